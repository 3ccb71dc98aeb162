//! A peer without a device: it makes every packet itself, so that packets can be wrong in any way.

#![expect(clippy::disallowed_methods, reason = "tests of real programs run in real time")]

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use intact_tests::packet;
use rwctx::device::soft::cm::{Cm, CmConfig, CmEvent, CmId, ConnectParams};
use rwctx::device::soft::icrc::IcrcFlow;
use rwctx::device::soft::wire::{
    Aeth, Bth, Ext, Header, MAD_LEN, NakCode, Opcode, Packet, Syndrome, UDP_PORT,
};
use rwctx::device::{PathMtu, Qpn};

use super::peer::PATIENCE;

/// Our queue pair; any number will do.
pub(crate) const QPN: Qpn = Qpn(0x4711);

/// A raw peer.
pub(crate) struct Raw {
    pub(crate) socket: UdpSocket,
    flow: IcrcFlow,
    local: IpAddr,
    target: SocketAddr,
    cm: Cm,
    connection: Option<CmId>,
    /// The target's queue pair.
    pub(crate) remote: Qpn,
    /// PSN of our next request.
    pub(crate) psn: u32,
    /// PSN of the target's next request, as far as we know.
    pub(crate) expected: u32,
    /// The target ended the connection.
    pub(crate) ended: bool,
}

/// A packet of the target, for our queue pair.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) bth: Bth,
    pub(crate) ext: Ext,
    pub(crate) payload: Vec<u8>,
}

impl Raw {
    /// A peer at `local` that receives, with UDP port `port` (4791, or 0 for any: then nothing comes back).
    pub(crate) fn open(local: IpAddr, target: SocketAddr, port: u16) -> Self {
        let socket = UdpSocket::bind((local, port)).unwrap_or_else(|error| panic!("{local}: {error}"));
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let port = socket.local_addr().unwrap().port();
        let flow = IcrcFlow::new(local, target.ip(), port);
        let cm = Cm::new(CmConfig::new(fastrand::u64(..), fastrand::u64(..), PathMtu::Mtu4096));
        Self {
            socket,
            flow,
            local,
            target,
            cm,
            connection: None,
            remote: Qpn(0),
            psn: 0,
            expected: 0,
            ended: false,
        }
    }

    /// Sends bytes as they are.
    pub(crate) fn send_bytes(&self, bytes: &[u8]) {
        // A full socket buffer loses it, as a network would.
        let _ = self.socket.send_to(bytes, (self.target.ip(), UDP_PORT));
    }

    /// A whole packet with its ICRC.
    pub(crate) fn packet(&self, header: &Header, payload: &[u8]) -> Vec<u8> {
        packet::packet(&self.flow, header, payload)
    }

    /// Headers and payload of any kind, with pad bytes and a right ICRC.
    pub(crate) fn sealed(&self, header: &[u8], payload: &[u8]) -> Vec<u8> {
        packet::sealed(&self.flow, header, payload)
    }

    /// Sends a packet.
    pub(crate) fn send(&self, bth: Bth, ext: Ext, payload: &[u8]) {
        self.send_bytes(&self.packet(&Header { bth, ext }, payload));
    }

    /// A management datagram to QP1.
    pub(crate) fn mad_packet(&self, mad: &[u8]) -> Vec<u8> {
        packet::mad_packet(&self.flow, mad)
    }

    /// Sends a connection request with any private data, once.
    pub(crate) fn ask(&mut self, private: &[u8]) {
        let params = ConnectParams {
            local: self.local,
            remote: self.target.ip(),
            port: self.target.port(),
            qpn: QPN,
            rq_psn: 0x100,
            path_mtu: PathMtu::Mtu4096,
            responder_resources: 16,
            initiator_depth: 0,
            tos: 0,
            private,
        };
        self.connection = Some(self.cm.connect(Instant::now(), &params).unwrap());
        self.expected = 0x100;
        self.flush_mads();
    }

    /// Connects a queue pair with any private data. The PSNs of both sides start at 0x100.
    pub(crate) fn connect(&mut self, private: &[u8]) {
        let now = Instant::now();
        self.ask(private);
        let until = now + PATIENCE;
        loop {
            assert!(Instant::now() < until, "no answer to a connection request");
            let _ = self.receive();
            match self.cm.poll_event() {
                Some(CmEvent::ConnectReply { id, peer, .. }) => {
                    (self.remote, self.psn) = (peer.qpn, peer.psn);
                    self.cm.send_rtu(Instant::now(), id).unwrap();
                    self.flush_mads();
                    return;
                }
                Some(event @ (CmEvent::Rejected { .. } | CmEvent::Unreachable { .. })) => panic!("{event:?}"),
                _ => {}
            }
        }
    }

    /// Ends the connection.
    pub(crate) fn disconnect(&mut self) {
        if let Some(id) = self.connection.take() {
            let _ = self.cm.disconnect(Instant::now(), id);
            self.flush_mads();
        }
    }

    fn flush_mads(&mut self) {
        while let Some(out) = self.cm.poll_mad(Instant::now()) {
            self.send_bytes(&self.mad_packet(&out.mad));
        }
    }

    /// Sends a capsule as one packet.
    pub(crate) fn send_capsule(&mut self, capsule: &[u8]) {
        let bth = Bth::new(Opcode::SendOnly, self.remote, self.psn, capsule.len()).with_ack_req();
        self.send(bth, Ext::None, capsule);
        self.psn = (self.psn + 1) & 0xff_ffff;
    }

    /// Acknowledges a request of the target.
    pub(crate) fn ack(&self, psn: u32) {
        let aeth = Aeth { syndrome: Syndrome::Ack(0x1f), msn: psn };
        self.send(Bth::new(Opcode::Acknowledge, self.remote, psn, 0), Ext::Aeth(aeth), &[]);
    }

    /// Refuses a request of the target.
    pub(crate) fn nak(&self, psn: u32, code: NakCode) {
        let aeth = Aeth { syndrome: Syndrome::Nak(code), msn: psn };
        self.send(Bth::new(Opcode::Acknowledge, self.remote, psn, 0), Ext::Aeth(aeth), &[]);
    }

    /// The next packet for our queue pair, if one comes within a moment. Management is done on the way.
    pub(crate) fn receive(&mut self) -> Option<Got> {
        let now = Instant::now();
        if self.cm.next_timeout().is_some_and(|due| due <= now) {
            self.cm.handle_timeout(now);
        }
        self.flush_mads();
        let mut buffer = [0; 9000];
        let (length, from) = self.socket.recv_from(&mut buffer).ok()?;
        let packet = Packet::parse(&buffer[..length]).ok()?;
        if packet.bth.dest_qpn == Qpn(1) {
            if packet.payload.len() == MAD_LEN {
                self.cm.handle_mad(now, from.ip(), self.local, packet.payload);
                self.flush_mads();
            }
            if let Some(id) = self.connection {
                // Taken here only once connected: then nothing but its end is of interest.
                if self.remote != Qpn(0) {
                    while let Some(event) = self.cm.poll_event() {
                        self.ended |= matches!(event, CmEvent::Disconnected { id: of } if of == id);
                    }
                }
            }
            return None;
        }
        Some(Got { bth: packet.bth, ext: packet.ext, payload: packet.payload.to_vec() })
    }

    /// The next packet that fits; others are passed over. `None` when the connection ended or nothing came for long.
    pub(crate) fn await_packet(&mut self, within: Duration, fits: impl Fn(&Got) -> bool) -> Option<Got> {
        let until = Instant::now() + within;
        while Instant::now() < until && !self.ended {
            if let Some(got) = self.receive()
                && fits(&got)
            {
                return Some(got);
            }
        }
        None
    }
}
