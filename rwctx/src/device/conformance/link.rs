//! Two devices of one provider, connected with each other: driven in real time, as a reactor drives one.
#![expect(clippy::disallowed_methods, reason = "drives devices in real time")]

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{MEMORY, Peered, Rig, Side};
use crate::device::provider::Provider;
use crate::device::{PathMtu, QpCap, QpConnect, Qpn, RemoteAccess, Route};
use crate::mem::{Access, Mr, Pd, Region};
use crate::wc::Wc;

pub(super) const ALL: Access = Access { local_write: true, remote_read: true, remote_write: true };

/// First PSNs: the first wraps soon.
const PSN: [u32; 2] = [0xFF_FFF0, 77];

/// Longest wait for a completion; a peer that is silent is given up before.
const PATIENCE: Duration = Duration::from_secs(60);

/// A device and its peer's.
pub(super) struct Link<P: Provider> {
    pub(super) devices: [P; 2],
    addresses: [IpAddr; 2],
    routes: [Option<Route>; 2],
    pds: [Pd; 2],
    regions: [Arc<Region>; 2],
    mrs: [Mr; 2],
    peers: HashMap<Qpn, Qpn>,
    done: [VecDeque<Wc>; 2],
    capped: [u32; 2],
}

impl<P: Provider> Link<P> {
    /// Registers memory on both; `routes` lead from each to the other.
    pub(super) fn new(mut devices: [P; 2], addresses: [IpAddr; 2], routes: [Option<Route>; 2]) -> Self {
        let pds = [0, 1].map(|side: usize| devices[side].alloc_pd().unwrap());
        let regions = [0, 1].map(|_| Arc::new(Region::new(MEMORY).unwrap()));
        let mrs = [0, 1]
            .map(|side: usize| devices[side].reg_mr(pds[side], &regions[side], 0, MEMORY, ALL).unwrap());
        let capped = [0, 1].map(|side: usize| devices[side].caps().max_send_sge);
        let done = [VecDeque::new(), VecDeque::new()];
        Self { devices, addresses, routes, pds, regions, mrs, peers: HashMap::new(), done, capped }
    }

    fn step(&mut self) {
        let now = Instant::now();
        for (device, done) in self.devices.iter_mut().zip(&mut self.done) {
            device.receive(now);
            device.transmit(now);
            while device.poll_qp_event().is_some() {}
            done.extend(std::iter::from_fn(|| device.poll_cq()));
        }
    }

    fn wait(&mut self, side: Side, count: usize) -> Vec<Wc> {
        let begun = Instant::now();
        loop {
            self.step();
            let done = &mut self.done[side as usize];
            if done.len() >= count {
                return done.drain(..).collect();
            }
            assert!(begun.elapsed() < PATIENCE, "{} of {count} completions of {side:?}", done.len());
        }
    }

    fn connect_ends(&mut self, qpns: [Qpn; 2]) {
        for side in 0..2 {
            let to = QpConnect {
                local: self.addresses[side],
                remote: self.addresses[1 - side],
                dest_qpn: qpns[1 - side],
                sq_psn: PSN[side],
                rq_psn: PSN[1 - side],
                path_mtu: PathMtu::Mtu1024,
                max_rd_atomic: 4,
                max_dest_rd_atomic: 4,
                ack_timeout: Duration::from_millis(17),
                retry_cnt: 3,
                rnr_retry: 7,
                min_rnr_timer: 12,
                tos: 0,
                remote_access: RemoteAccess { read: true, write: true },
                route: self.routes[side],
            };
            self.devices[side].connect_qp(qpns[side], &to).unwrap();
        }
    }
}

impl<P: Provider> Rig for Link<P> {
    type Device = P;

    const ROUNDS: u64 = 1;
    const NAMES_FIRST_FAULT: bool = true;

    fn device(&mut self) -> &mut P {
        &mut self.devices[0]
    }

    fn pd(&self) -> Pd {
        self.pds[0]
    }

    fn memory(&self, side: Side) -> Mr {
        self.mrs[side as usize]
    }

    fn put(&mut self, side: Side, offset: usize, bytes: &[u8]) {
        self.regions[side as usize].write(offset, bytes);
    }

    fn bytes(&self, side: Side, offset: usize, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.regions[side as usize].read(offset, &mut bytes);
        bytes
    }

    fn connect(&mut self, cap: &QpCap) -> Qpn {
        let peer = QpCap {
            max_send_wr: cap.max_send_wr.max(8),
            max_send_sge: self.capped[1],
            integrity: crate::plan::Integrity::Off,
            ..*cap
        };
        let qpns = [0, 1]
            .map(|side: usize| self.devices[side].create_qp(self.pds[side], [cap, &peer][side]).unwrap());
        self.connect_ends(qpns);
        self.peers.insert(qpns[0], qpns[1]);
        qpns[0]
    }

    fn disconnect(&mut self, qpn: Qpn) {
        let peer = self.peers.remove(&qpn).expect("a queue pair that was connected");
        for (device, qpn) in self.devices.iter_mut().zip([qpn, peer]) {
            device.destroy_qp(qpn).unwrap();
        }
        self.step();
        self.done.iter_mut().for_each(VecDeque::clear);
    }

    fn completions(&mut self, count: usize) -> Vec<Wc> {
        self.wait(Side::Ours, count)
    }

    fn live_mrs(&mut self) -> u64 {
        let counters = self.devices[0].counters();
        let soft = counters.soft.map(|soft| u64::from(soft.memory_regions));
        soft.or_else(|| counters.verbs.map(|verbs| verbs.memory_regions))
            .expect("a provider counts its regions")
    }
}

impl<P: Provider> Peered for Link<P> {
    fn peer(&mut self) -> &mut P {
        &mut self.devices[1]
    }

    fn peer_qpn(&self, qpn: Qpn) -> Qpn {
        self.peers[&qpn]
    }

    fn peer_completions(&mut self, count: usize) -> Vec<Wc> {
        self.wait(Side::Peer, count)
    }

    fn peer_registers(&mut self) -> Mr {
        self.devices[1].reg_mr(self.pds[1], &self.regions[1], 0, MEMORY, ALL).unwrap()
    }
}
