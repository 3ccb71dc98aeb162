//! Peers that send anything: nothing panics, no invariant breaks, and no byte changes that was not granted.
//!
//! The ICRC is not checked here: a peer can make a right one for every packet.

use std::sync::Arc;
use std::time::Duration;

use super::super::fault::Faults;
use super::super::wire::{
    Aeth, AtomicEth, Bth, Ext, ExtKind, Header, Ieth, ImmDt, NakCode, Opcode, Reth, RnrTimer, Syndrome,
};
use super::pair::{ALL, MEMORY, PSN, Pair, usual};
use super::{Replay, seeds};
use crate::device::{QpState, Qpn};
use crate::mem::{Access, Mr, Region};
use crate::remote::Rkey;
use crate::wc::{Wc, WcStatus};
use crate::wr::{Fence, SendOp, Signal};

const SECRET: u8 = 0x5E;

/// Memory of side 1 that peers must not reach, and the regions that cover it.
struct Guarded {
    region: Arc<Region>,
    keys: Vec<Rkey>,
    addresses: Vec<u64>,
}

impl Guarded {
    fn new(pair: &mut Pair) -> Self {
        let region = Arc::new(Region::new(1 << 16).unwrap());
        region.write(0, &vec![SECRET; 1 << 16]);
        let endpoint = &mut pair.world.endpoints[1];
        let foreign = endpoint.alloc_pd().unwrap();
        let local = Access { local_write: true, ..Access::default() };
        let mrs: [Mr; 3] = [
            endpoint.reg_mr(foreign, &region, 0, 1 << 16, ALL).unwrap(),
            endpoint.reg_mr(pair.pds[1], &region, 0, 1 << 16, local).unwrap(),
            endpoint.reg_mr(pair.pds[1], &region, 0, 1 << 16, ALL).unwrap(),
        ];
        endpoint.dereg_mr(mrs[2].id).unwrap();
        let unused = endpoint.alloc_fast_reg(pair.pds[1], 16).unwrap();
        let keys = mrs.iter().map(|mr| mr.rkey).chain([unused.rkey]).collect();
        Self { addresses: vec![region.addr(), region.addr() + 4000], region, keys }
    }

    fn check(&self) {
        let mut bytes = vec![0; self.region.len()];
        self.region.read(0, &mut bytes);
        assert!(bytes.iter().all(|&byte| byte == SECRET), "memory that was not granted was written");
    }
}

/// A number that is likely to be at an edge of something.
fn edge(rng: &mut fastrand::Rng, usual: u32) -> u32 {
    match rng.u32(0..6) {
        0 => 0,
        1 => u32::MAX,
        2 => 1 << rng.u32(0..32),
        3 => rng.u32(..),
        _ => usual.wrapping_add(rng.u32(0..5)).wrapping_sub(2),
    }
}

fn any_ext(rng: &mut fastrand::Rng, kind: ExtKind, pair: &Pair, guarded: &Guarded) -> Ext {
    let key = match rng.u32(0..4) {
        0 => *rng.choice(&guarded.keys).unwrap(),
        1 => Rkey(edge(rng, pair.mrs[1].rkey.0)),
        _ => pair.mrs[1].rkey,
    };
    let va = match rng.u32(0..4) {
        0 => *rng.choice(&guarded.addresses).unwrap(),
        1 => pair.mrs[1].addr.wrapping_sub(u64::from(edge(rng, 0))),
        2 => rng.u64(..),
        _ => pair.mrs[1].addr + rng.u64(0..MEMORY as u64),
    };
    let reth = Reth { va, rkey: key, dma_len: edge(rng, 2000) };
    let syndrome = match rng.u32(0..8) {
        0 => Syndrome::RnrNak(RnrTimer::new(rng.u8(..))),
        1 => Syndrome::Nak(NakCode::from(rng.u8(..))),
        2 => Syndrome::Nak(NakCode::PsnSequence),
        3 => Syndrome::from(rng.u8(..)),
        _ => Syndrome::ACK,
    };
    let aeth = Aeth { syndrome, msn: rng.u32(0..1 << 24) };
    match kind {
        ExtKind::Imm => Ext::Imm(ImmDt([1; 4])),
        ExtKind::Reth => Ext::Reth(reth),
        ExtKind::RethImm => Ext::RethImm(reth, ImmDt([2; 4])),
        ExtKind::Aeth => Ext::Aeth(aeth),
        ExtKind::Atomic => Ext::Atomic(AtomicEth { va, rkey: key, swap_or_add: 1, compare: 0 }),
        ExtKind::Ieth => Ext::Ieth(Ieth(key)),
        ExtKind::Cnp => Ext::Cnp,
        _ => Ext::None,
    }
}

#[test]
fn well_formed_packets_of_a_hostile_peer_reach_nothing_that_was_not_granted() {
    for seed in seeds(0..400) {
        let _replay = Replay {
            test: "hostile::well_formed_packets_of_a_hostile_peer_reach_nothing_that_was_not_granted",
            seed,
        };
        let rng = &mut fastrand::Rng::with_seed(seed);
        let mut pair = Pair::new();
        pair.world.expect_unsteady_memory();
        let guarded = Guarded::new(&mut pair);
        let mut next = [0_u32; 2];
        for _ in 0..rng.usize(1..300) {
            if pair.states()[1] == Some(QpState::Error) {
                pair.reconnect();
                next = [0; 2];
            }
            if rng.u32(0..4) == 0 {
                let room = pair.sge(1, rng.usize(0..1000), rng.usize(0..4000));
                let qpn = pair.qpns[1];
                let wr = crate::wr::RecvWr { wr_id: crate::wr::WrId(0), sges: &[room] };
                let _full = pair.world.endpoints[1].post_recv(qpn, &wr);
            }
            if rng.u32(0..4) == 0 {
                let sge = pair.sge(1, rng.usize(0..1000), rng.usize(0..9000));
                let op = if rng.bool() {
                    SendOp::Read(pair.remote(0, 0))
                } else {
                    SendOp::Write(pair.remote(0, 0))
                };
                let _full = pair.try_post(1, 1, op, &[sge], Signal::Signaled, Fence::None);
            }
            let opcode = Opcode::from(if rng.u32(0..10) == 0 { 0x81 } else { rng.u8(0..0x20) });
            let ext = any_ext(rng, opcode.ext_kind(), &pair, &guarded);
            if ext.kind() != opcode.ext_kind() {
                continue;
            }
            let size = match rng.u32(0..4) {
                0 => 1024,
                1 => rng.usize(0..2000),
                _ => rng.usize(0..100),
            };
            let payload = vec![0xBA; if opcode.may_carry_payload() { size } else { 0 }];
            let response = usize::from(opcode.role() == super::super::wire::Role::Response);
            let base = if response == 1 { PSN[1] } else { PSN[0] };
            let psn = base.wrapping_add(edge(rng, next[response]));
            let mut bth = Bth::new(opcode, pair.qpns[1], psn, payload.len());
            bth.ack_req = rng.bool();
            next[response] = next[response].wrapping_add(rng.u32(0..2));
            pair.inject_header(1, &Header { bth, ext }, &payload);
            if rng.bool() {
                // What it answers goes to nobody.
                pair.world.links[1].set_faults(Faults { lose: 1000, ..Faults::default() });
                pair.world.transmit();
            }
            if rng.u32(0..20) == 0 {
                let later = pair.world.now + Duration::from_millis(rng.u64(0..30));
                pair.world.advance_to(later);
            }
            guarded.check();
        }
        pair.world.transmit();
        let qpn = pair.qpns[1];
        pair.world.endpoints[1].error_qp(qpn).unwrap();
        pair.completions(1);
        pair.world.endpoints[1].check_idle();
    }
}

#[test]
fn arbitrary_bytes_are_dropped_or_refused() {
    for seed in seeds(0..200) {
        let _replay = Replay { test: "hostile::arbitrary_bytes_are_dropped_or_refused", seed };
        let rng = &mut fastrand::Rng::with_seed(seed);
        let mut pair = Pair::new();
        pair.world.expect_unsteady_memory();
        let guarded = Guarded::new(&mut pair);
        for _ in 0..500 {
            let mut bytes: Vec<u8> = (0..rng.usize(0..120)).map(|_| rng.u8(..)).collect();
            // Past the parser, more often than not.
            if bytes.len() >= 12 && rng.u32(0..8) > 0 {
                bytes[0] = rng.u8(0..0x20);
                bytes[1] &= 0xF0;
                bytes[2..4].fill(0xFF);
                let [_, qpn @ ..] = pair.qpns[1].0.to_be_bytes();
                bytes[5..8].copy_from_slice(&qpn);
            }
            pair.inject_bytes(1, &bytes);
            pair.world.transmit();
            if pair.states()[1] == Some(QpState::Error) {
                pair.reconnect();
            }
        }
        guarded.check();
    }
}

#[test]
fn a_peer_that_garbles_headers_hurts_only_its_own_connection() {
    let mut count = 0;
    for seed in seeds(0..200) {
        let _replay =
            Replay { test: "hostile::a_peer_that_garbles_headers_hurts_only_its_own_connection", seed };
        let rng = &mut fastrand::Rng::with_seed(seed);
        let mut pair = Pair::new();
        pair.world.expect_unsteady_memory();
        let guarded = Guarded::new(&mut pair);
        let garbled = pair.qpns;
        let intact = pair.connect([usual(0), usual(1)]);
        for wr in 0..12 {
            let sge = pair.sge(0, rng.usize(0..4096), rng.usize(0..9000));
            let room = pair.sge(1, 0, 9000);
            for qpns in [garbled, intact] {
                pair.qpns = qpns;
                pair.receive(1, 100 + wr, &[room]);
                let op = match wr % 3 {
                    0 => SendOp::Send,
                    1 => SendOp::Write(pair.remote(1, 16384)),
                    _ => SendOp::Read(pair.remote(1, 16384)),
                };
                pair.post(0, wr, op, &[sge]);
            }
        }
        for _ in 0..400 {
            pair.world.transmit();
            let Some(at) = pair.world.next_event() else { break };
            pair.world.now = pair.world.now.max(at);
            for side in 0..2 {
                while let Some((meta, mut bytes)) = pair.world.links[side].receive(pair.world.now) {
                    if qpn_of(&bytes) == garbled[1 - side] && rng.u32(0..6) == 0 {
                        let at = rng.usize(0..bytes.len().min(40));
                        bytes[at] = if rng.bool() { rng.u8(..) } else { bytes[at] ^ 1 << rng.u32(0..8) };
                        if qpn_of(&bytes) == intact[1 - side] {
                            continue;
                        }
                        count += 1;
                    }
                    let now = pair.world.now;
                    pair.world.endpoints[1 - side].handle_datagram(now, &meta, &bytes);
                }
            }
            guarded.check();
            pair.world.advance_to(at);
        }
        pair.qpns = garbled;
        for (endpoint, qpn) in pair.world.endpoints.iter_mut().zip(garbled) {
            endpoint.error_qp(qpn).unwrap();
        }
        pair.run(Duration::from_secs(5));
        for side in 0..2 {
            let done = pair.completions(side);
            for (qpns, all) in [(garbled, false), (intact, true)] {
                let of: Vec<_> = done.iter().filter(|wc| wc.qpn == qpns[side]).collect();
                let (sends, receives): (Vec<&Wc>, Vec<&Wc>) = of.iter().partition(|wc| wc.wr_id.0 < 100);
                assert_eq!(sends.len(), if side == 0 { 12 } else { 0 }, "each work request completes once");
                let successes = sends.iter().filter(|wc| wc.status == WcStatus::Success).count();
                assert!(!all || successes == sends.len(), "{of:?}");
                assert!(!all || receives.len() == if side == 1 { 4 } else { 0 });
            }
        }
        assert_eq!(pair.world.endpoints[0].qp_state(intact[0]), Some(QpState::Rts));
    }
    assert!(count > 100, "{count} packets were garbled");
}

fn qpn_of(datagram: &[u8]) -> Qpn {
    Qpn(u32::from_be_bytes([0, datagram[5], datagram[6], datagram[7]]))
}
