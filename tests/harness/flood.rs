//! Connection requests under addresses where nobody is.

#![expect(clippy::disallowed_methods, reason = "real programs are flooded in real time")]

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::thread;
use std::time::{Duration, Instant};

use intact::nvmf::wire::private_data::QueueRequest;
use rwctx::device::soft::cm::{Cm, CmConfig, ConnectParams};
use rwctx::device::soft::icrc::IcrcFlow;
use rwctx::device::soft::wire::UDP_PORT;
use rwctx::device::{PathMtu, Qpn};
use zerocopy::IntoBytes;

use crate::packet::mad_packet;

/// Pours requests for admin queues, `rate` a second at most, from random addresses of loopback, of which a machine has all;
/// until `enough` says so of how many there were.
///
/// # Panics
/// When a socket can't be had.
pub fn pour(target: SocketAddr, rate: u32, mut enough: impl FnMut(usize) -> bool) {
    let mut random = fastrand::Rng::with_seed(1);
    let mut next = Instant::now();
    let mut poured = 0;
    while !enough(poured) {
        let address = [127, random.u8(32..60), random.u8(..), random.u8(1..255)];
        ask(address.into(), target, &mut random);
        poured += 1;
        // What this thread is late by is lost, and not made up for in a burst.
        next = Instant::now().max(next + Duration::from_secs(1) / rate);
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
}

/// Sends one request, and takes no answer.
fn ask(local: IpAddr, target: SocketAddr, random: &mut fastrand::Rng) {
    let request = QueueRequest { qid: 0, host_recv_entries: 32, host_send_entries: 32, cntlid: 0 }.emit();
    let params = ConnectParams {
        local,
        remote: target.ip(),
        port: target.port(),
        qpn: Qpn(random.u32(0x100..0xff_0000)),
        rq_psn: 0x100,
        path_mtu: PathMtu::Mtu1024,
        responder_resources: 16,
        initiator_depth: 0,
        tos: 0,
        private: request.as_bytes(),
    };
    let now = Instant::now();
    let mut cm = Cm::new(CmConfig::new(random.u64(..), random.u64(..), PathMtu::Mtu4096));
    cm.connect(now, &params).expect("the request is one that can be");
    let socket = UdpSocket::bind((local, 0)).unwrap_or_else(|error| panic!("{local}: {error}"));
    let port = socket.local_addr().expect("a bound socket has an address").port();
    let flow = IcrcFlow::new(local, target.ip(), port);
    while let Some(out) = cm.poll_mad(now) {
        // A full socket buffer loses it, as a network would.
        let _ = socket.send_to(&mad_packet(&flow, &out.mad), (target.ip(), UDP_PORT));
    }
}
