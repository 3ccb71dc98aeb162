//! Packets per second through a pair of endpoints on one core: both ends' work, without sockets and without ICRC
//! (`icrc` times that). Run: `cargo bench -p rwctx --bench rc`.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::cast_precision_loss, reason = "printed averages")]

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rwctx::device::soft::endpoint::{Endpoint, EndpointConfig, IcrcCheck, Transmit};
use rwctx::device::soft::{PacketSink, RxMeta, SinkFull, TxMeta};
use rwctx::device::{PathMtu, QpCap, QpConnect, Qpn, RemoteAccess};
use rwctx::mem::{Access, Iov, Mr, Region};
use rwctx::plan::Integrity;
use rwctx::remote::RemoteAddr;
use rwctx::wr::{Fence, RecvWr, SendOp, SendWr, Sge, Signal, WrId};

const DEPTH: u32 = 64;
const RUN: Duration = Duration::from_millis(300);

/// Holds a batch of datagrams, one after the other.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl PacketSink for Batch {
    fn push(&mut self, _meta: &TxMeta, header: &[u8], payload: &[Iov<'_>]) -> Result<(), SinkFull> {
        if self.ends.len() == 256 {
            return Err(SinkFull);
        }
        self.bytes.extend_from_slice(header);
        payload.iter().for_each(|piece| piece.append_to(&mut self.bytes));
        let pad = (header.len() - self.bytes.len() + self.ends.last().copied().unwrap_or(0)) & 3;
        self.bytes.resize(self.bytes.len() + pad + 4, 0);
        self.ends.push(self.bytes.len());
        Ok(())
    }
}

struct Pair {
    endpoints: [Endpoint; 2],
    addresses: [IpAddr; 2],
    qpns: Vec<[Qpn; 2]>,
    mrs: [Mr; 2],
    batch: Batch,
    packets: u64,
}

impl Pair {
    fn new(path_mtu: PathMtu, queue_pairs: usize) -> Self {
        let addresses: [IpAddr; 2] = [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()];
        let mut endpoints = [1, 2].map(|seed| {
            Endpoint::new(&EndpointConfig { icrc: IcrcCheck::Off, ..EndpointConfig::new(seed, 0, 1) })
        });
        let access = Access { local_write: true, remote_read: true, remote_write: true };
        let cap = QpCap {
            max_send_wr: DEPTH,
            max_recv_wr: DEPTH,
            max_send_sge: 4,
            max_recv_sge: 4,
            integrity: Integrity::Off,
        };
        let (mut mrs, mut pds) = (Vec::new(), Vec::new());
        for endpoint in &mut endpoints {
            let pd = endpoint.alloc_pd().expect("a protection domain");
            let region = Arc::new(Region::new(1 << 20).expect("memory"));
            mrs.push(endpoint.reg_mr(pd, &region, 0, 1 << 20, access).expect("a region"));
            pds.push(pd);
        }
        let mut qpns = Vec::new();
        for _ in 0..queue_pairs {
            let pair = [0, 1].map(|side| endpoints[side].create_qp(pds[side], &cap).expect("a queue pair"));
            for side in 0..2 {
                let to = QpConnect {
                    local: addresses[side],
                    remote: addresses[1 - side],
                    dest_qpn: pair[1 - side],
                    sq_psn: 1,
                    rq_psn: 1,
                    path_mtu,
                    max_rd_atomic: 16,
                    max_dest_rd_atomic: 16,
                    ack_timeout: Duration::from_secs(1),
                    retry_cnt: 7,
                    rnr_retry: 7,
                    min_rnr_timer: 12,
                    tos: 0,
                    remote_access: RemoteAccess { read: true, write: true },
                    route: None,
                };
                endpoints[side].connect_qp(pair[side], &to).expect("a connection");
            }
            qpns.push(pair);
        }
        let mrs = [mrs[0], mrs[1]];
        Self { endpoints, addresses, qpns, mrs, batch: Batch::default(), packets: 0 }
    }

    /// One side sends a batch, the other one takes it.
    fn turn(&mut self, side: usize, now: Instant) {
        loop {
            let more = self.endpoints[side].poll_transmit(now, &mut self.batch);
            let meta = RxMeta { src: self.addresses[side], dst: self.addresses[1 - side], src_port: 0xC000 };
            let mut start = 0;
            for &end in &self.batch.ends {
                self.endpoints[1 - side].handle_datagram(now, &meta, &self.batch.bytes[start..end]);
                start = end;
            }
            self.packets += self.batch.ends.len() as u64;
            self.batch.ends.clear();
            self.batch.bytes.clear();
            if more == Transmit::Drained {
                return;
            }
        }
    }

    fn sge(&self, side: usize, length: u32) -> Sge {
        Sge { addr: self.mrs[side].addr, length, lkey: self.mrs[side].lkey }
    }

    fn post(&mut self, index: usize, op: SendOp, length: u32) {
        let sges = [self.sge(0, length)];
        let wr = SendWr {
            wr_id: WrId(index as u64),
            op,
            sges: &sges,
            signal: Signal::Signaled,
            fence: Fence::None,
        };
        self.endpoints[0].post_send(self.qpns[index][0], &wr).expect("room");
    }

    fn receive(&mut self, index: usize) {
        let sges = [self.sge(1, 1 << 16)];
        let wr = RecvWr { wr_id: WrId(index as u64), sges: &sges };
        self.endpoints[1].post_recv(self.qpns[index][1], &wr).expect("room");
    }
}

fn measure(
    name: &str,
    path_mtu: PathMtu,
    queue_pairs: usize,
    depth: u32,
    length: u32,
    op: impl Fn(&Pair) -> SendOp,
) {
    let mut pair = Pair::new(path_mtu, queue_pairs);
    let op = op(&pair);
    for index in 0..queue_pairs {
        for _ in 0..depth {
            pair.receive(index);
            pair.post(index, op, length);
        }
    }
    let start = Instant::now();
    let mut messages = 0_u64;
    let mut elapsed = Duration::ZERO;
    while elapsed < RUN {
        let now = Instant::now();
        pair.turn(0, now);
        while let Some(wc) = pair.endpoints[1].poll_cq() {
            pair.receive(usize::try_from(wc.wr_id.0).expect("an index"));
        }
        pair.turn(1, now);
        while let Some(wc) = pair.endpoints[0].poll_cq() {
            messages += 1;
            pair.post(usize::try_from(wc.wr_id.0).expect("an index"), op, length);
        }
        for endpoint in &mut pair.endpoints {
            endpoint.handle_timeout(now);
        }
        elapsed = start.elapsed();
    }
    let seconds = elapsed.as_secs_f64();
    println!(
        "{name:<24} {queue_pairs:>5} QPs {length:>6} B  {:>7.2} M packets/s {:>7.2} M messages/s {:>7.2} GB/s",
        pair.packets as f64 / seconds / 1e6,
        messages as f64 / seconds / 1e6,
        messages as f64 * f64::from(length) / seconds / 1e9,
    );
}

fn main() {
    let remote = |pair: &Pair| RemoteAddr { addr: pair.mrs[1].addr, rkey: pair.mrs[1].rkey };
    for queue_pairs in [1, 16, 1000] {
        measure("SEND", PathMtu::Mtu1024, queue_pairs, 16, 64, |_| SendOp::Send);
    }
    for (mtu, name) in [(PathMtu::Mtu1024, "1024"), (PathMtu::Mtu4096, "4096")] {
        for length in [4096, 65536] {
            measure(&format!("WRITE, path MTU {name}"), mtu, 4, 8, length, |pair| {
                SendOp::Write(remote(pair))
            });
            measure(&format!("READ, path MTU {name}"), mtu, 4, 8, length, |pair| SendOp::Read(remote(pair)));
        }
    }
}
