//! Applications on top of a simulated pair: random operations, and a model of what they must do to memory.
//!
//! Each side has one region: source slots, receive slots, and slots that the peer reads and writes. A copy of it (the
//! model) changes only when a completion says so; at the end both must be equal, so a stray byte anywhere is seen.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::Counters;
use super::super::endpoint::EndpointConfig;
use super::super::fault::Faults;
use super::{SideId, World};
use crate::device::{PathMtu, QpCap, QpConnect, QpState, Qpn, RemoteAccess};
use crate::mem::{Access, Mr, Pd, Region};
use crate::plan::Integrity;
use crate::remote::{RemoteAddr, Rkey};
use crate::wc::{RecvExtra, WcOpcode, WcStatus};
use crate::wr::{Fence, RecvWr, SendOp, SendWr, Sge, Signal, WrId};

/// Messages in flight per queue pair, and receive slots.
const DEPTH: usize = 12;
const RECEIVES: usize = 8;
const FAST_REGIONS: usize = 2;
const ALL: Access = Access { local_write: true, remote_read: true, remote_write: true };

/// What a run is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) faults: Faults,
    pub(super) ipv6: bool,
    /// Operations per queue pair and side.
    pub(super) operations: usize,
    /// Receives come late now and then.
    pub(super) lazy_receives: bool,
}

/// A piece of memory in a region, as offset and length.
type Piece = (usize, usize);

/// A message in flight.
#[derive(Debug)]
struct Sent {
    wr: u64,
    slot: usize,
    pattern: u64,
    signaled: bool,
    /// Its source was replaced.
    moved: bool,
    what: What,
}

#[derive(Debug)]
enum What {
    /// Only the receiver sees it.
    Message,
    /// Peer's memory at this offset.
    Write(usize, usize, Option<usize>),
    /// Our memory in these pieces.
    Read(Vec<Piece>, Option<usize>),
    /// The fast region is valid when it completes.
    Register(usize),
    /// The fast region is invalid when it completes.
    Invalidate(usize),
}

/// What a receive must bring.
#[derive(Debug)]
struct Expected {
    opcode: WcOpcode,
    length: usize,
    pattern: u64,
    extra: RecvExtra,
}

#[derive(Debug)]
struct Posted {
    wr: u64,
    slot: usize,
    pieces: Vec<Piece>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FastState {
    Invalid,
    /// A work request of the owner, or a SEND of the peer, is about to change it.
    Changing,
    /// So many operations of the peer use it.
    Valid(u32),
}

#[derive(Debug)]
struct Fast {
    mr: Mr,
    key: Rkey,
    state: FastState,
}

/// One end of a connection.
#[derive(Debug)]
struct End {
    qpn: Qpn,
    /// Where its memory begins in the region.
    base: usize,
    left: usize,
    next_wr: u64,
    sent: VecDeque<Sent>,
    unsignaled: usize,
    free_slots: Vec<usize>,
    posted: VecDeque<Posted>,
    free_receives: Vec<usize>,
    expected: VecDeque<Expected>,
    fast: Vec<Fast>,
}

struct Side {
    pd: Pd,
    region: Arc<Region>,
    mr: Mr,
    model: Vec<u8>,
    /// Where sources go that are replaced while messages are under way.
    away: (Arc<Region>, Mr),
    ends: Vec<End>,
    tick: Instant,
}

/// Both applications.
pub(super) struct Apps {
    world: World,
    sides: [Side; 2],
    plan: Plan,
    max_message: usize,
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap()
}

fn byte_of(pattern: u64, index: usize) -> u8 {
    ((pattern ^ index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

impl Apps {
    /// Two connected sides.
    pub(super) fn new(seed: u64, plan: Plan) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed ^ 0xA995);
        let path_mtu = rng
            .choice([PathMtu::Mtu256, PathMtu::Mtu512, PathMtu::Mtu1024, PathMtu::Mtu2048, PathMtu::Mtu4096])
            .unwrap();
        let max_message = (path_mtu.bytes() as usize * rng.usize(1..24)).min(40_000);
        let connections = rng.usize(1..=3);
        let (reactors, chunk) = (rng.u32(1..4), rng.u32(1..64 << 10));
        let (per_qp, total) = (rng.u32(1..100_000), rng.u32(1..200_000));
        let (start, most) = (rng.u32(1..128), rng.u32(1..300));
        let mut world = World::new(seed, plan.faults, plan.ipv6, |seed| {
            let mut config = EndpointConfig::new(seed, 0, reactors);
            config.max_qps = 8;
            config.tuning.read_chunk = chunk;
            config.tuning.read_bytes_per_qp = per_qp;
            config.tuning.read_bytes = total;
            config.tuning.window_start = start;
            config.tuning.window_max = most;
            config
        });
        world.choke = rng.bool();
        let end_size = (2 * DEPTH + RECEIVES) * 2 * max_message;
        let mut sides = [0, 1].map(|side: SideId| {
            let endpoint = &mut world.endpoints[side];
            let pd = endpoint.alloc_pd().unwrap();
            let region = Arc::new(Region::new(end_size * connections).unwrap());
            let mr = endpoint.reg_mr(pd, &region, 0, region.len(), ALL).unwrap();
            let model = vec![0; region.len()];
            let away = Arc::new(Region::new(region.len()).unwrap());
            let away_mr = endpoint.reg_mr(pd, &away, 0, away.len(), ALL).unwrap();
            Side { pd, region, mr, model, away: (away, away_mr), ends: Vec::new(), tick: world.now }
        });
        for index in 0..connections {
            let max_sge = rng.u32(1..=8);
            let qpns = [0, 1].map(|side: SideId| {
                let cap = QpCap {
                    max_send_wr: small(DEPTH + 2 * FAST_REGIONS),
                    max_recv_wr: small(RECEIVES),
                    max_send_sge: max_sge,
                    max_recv_sge: max_sge,
                    integrity: Integrity::Off,
                };
                let endpoint = &mut world.endpoints[side];
                let qpn = endpoint.create_qp(sides[side].pd, &cap).unwrap();
                let fast = (0..FAST_REGIONS)
                    .map(|_| endpoint.alloc_fast_reg(sides[side].pd, 512).unwrap())
                    .map(|mr| Fast { mr, key: mr.rkey, state: FastState::Invalid })
                    .collect();
                sides[side].ends.push(End {
                    qpn,
                    base: index * end_size,
                    left: plan.operations,
                    next_wr: 0,
                    sent: VecDeque::new(),
                    unsignaled: 0,
                    free_slots: (0..DEPTH).collect(),
                    posted: VecDeque::new(),
                    free_receives: (0..RECEIVES).collect(),
                    expected: VecDeque::new(),
                    fast,
                });
                qpn
            });
            let psns = [0, 1].map(|_| 0xFF_FFFF_u32.wrapping_sub(rng.u32(0..200)) & 0xFF_FFFF);
            let reads = [0, 1].map(|_| rng.u8(1..=16));
            let parameters = [0, 1].map(|side: SideId| QpConnect {
                local: world.addresses[side],
                remote: world.addresses[1 - side],
                dest_qpn: qpns[1 - side],
                sq_psn: psns[side],
                rq_psn: psns[1 - side],
                path_mtu,
                max_rd_atomic: reads[side],
                max_dest_rd_atomic: reads[1 - side],
                ack_timeout: Duration::from_millis(if rng.bool() { 67 } else { 537 }),
                retry_cnt: 7,
                rnr_retry: 7,
                min_rnr_timer: rng.u8(12..=14),
                tos: 0,
                remote_access: RemoteAccess { read: true, write: true },
                route: None,
            });
            world.connect(qpns, parameters);
        }
        Self { world, sides, plan, max_message }
    }

    /// Runs to the end: everything posted, everything arrived, nothing left over.
    pub(super) fn run(&mut self) {
        loop {
            for side in 0..2 {
                if self.sides[side].tick <= self.world.now {
                    self.act(side);
                    self.sides[side].tick =
                        self.world.now + Duration::from_micros(self.world.rng.u64(1..400));
                }
                self.complete(side);
            }
            self.world.transmit();
            (0..2).for_each(|side| self.complete(side));
            if self.is_done() {
                break;
            }
            let tick = self.sides[0].tick.min(self.sides[1].tick);
            let next = self.world.next_event().map_or(tick, |at| at.min(tick));
            self.world.advance_to(next);
        }
        self.world.settle(Duration::from_secs(5));
        (0..2).for_each(|side| self.complete(side));
        self.verify_end();
    }

    /// What both endpoints counted.
    pub(super) fn counters(&self) -> [Counters; 2] {
        [0, 1].map(|side: SideId| *self.world.endpoints[side].counters())
    }

    fn is_done(&self) -> bool {
        let ends = self.sides.iter().flat_map(|side| &side.ends);
        ends.clone().all(|end| end.left == 0 && end.sent.is_empty() && end.expected.is_empty())
    }

    fn verify_end(&mut self) {
        for side in 0..2 {
            let mut memory = vec![0; self.sides[side].region.len()];
            self.sides[side].region.read(0, &mut memory);
            if let Some(at) = (0..memory.len()).find(|&at| memory[at] != self.sides[side].model[at]) {
                panic!("side {side}: byte {at} of memory is not what the operations left there");
            }
            let endpoint = &mut self.world.endpoints[side];
            endpoint.check_idle();
            let qps = self.sides[side].ends.len();
            assert_eq!(endpoint.memory_regions() as usize, 2 + qps * FAST_REGIONS);
            for end in &self.sides[side].ends {
                assert_eq!(endpoint.qp_state(end.qpn), Some(QpState::Rts));
            }
        }
    }

    /// Posts receives and operations.
    fn act(&mut self, side: SideId) {
        for index in 0..self.sides[side].ends.len() {
            if !self.plan.lazy_receives || self.world.rng.u32(0..4) == 0 {
                self.post_receives(side, index);
            }
            for _ in 0..self.world.rng.usize(0..5) {
                self.post_operation(side, index);
            }
            if self.world.rng.u32(0..4) == 0 {
                self.replace_source(side, index);
            }
        }
    }

    /// Moves the source of a message under way elsewhere, and spoils the memory where it was.
    fn replace_source(&mut self, side: SideId, index: usize) {
        let Side { region, mr, away, ends, .. } = &mut self.sides[side];
        let end = &mut ends[index];
        let choice = self.world.rng.usize(0..DEPTH);
        let Some(sent) = end.sent.get_mut(choice) else { return };
        if sent.moved || !matches!(sent.what, What::Message | What::Write(..)) {
            return;
        }
        sent.moved = true;
        let (at, length) = (end.base + sent.slot * 2 * self.max_message, 2 * self.max_message);
        let mut bytes = vec![0; length];
        region.read(at, &mut bytes);
        away.0.write(at, &bytes);
        let sge = |region: &Region, mr: &Mr| Sge {
            addr: region.addr() + at as u64,
            length: small(length),
            lkey: mr.lkey,
        };
        let (from, to) = (sge(region, mr), sge(&away.0, &away.1));
        self.world.endpoints[side].replace_source(end.qpn, WrId(sent.wr), from, to).unwrap();
        let spoiled = self.world.rng.u64(..);
        self.fill(side, &[(at, length)], spoiled);
    }

    fn post_receives(&mut self, side: SideId, index: usize) {
        let many = self.world.rng.usize(0..=RECEIVES);
        for _ in 0..many {
            let Some(slot) = self.sides[side].ends[index].free_receives.pop() else { return };
            let base = self.sides[side].ends[index].base;
            let at = base + (2 * DEPTH + slot) * 2 * self.max_message;
            let most = self.max_sge(side, index);
            let pieces = self.split(at, self.max_message, most);
            let sges = self.sges(side, &pieces);
            let end = &mut self.sides[side].ends[index];
            let wr = end.next_wr;
            end.next_wr += 1;
            let posted =
                self.world.endpoints[side].post_recv(end.qpn, &RecvWr { wr_id: WrId(wr), sges: &sges });
            posted.unwrap();
            end.posted.push_back(Posted { wr, slot, pieces });
        }
    }

    fn post_operation(&mut self, side: SideId, index: usize) {
        let (qpn, base, slot) = {
            let end = &self.sides[side].ends[index];
            let Some(&slot) = end.free_slots.last() else { return };
            if end.left == 0 {
                return;
            }
            (end.qpn, end.base, slot)
        };
        let rng = &mut self.world.rng;
        let choice = rng.u32(0..20);
        let pattern = rng.u64(..);
        let length = match rng.u32(0..8) {
            0 => 0,
            1..4 => rng.usize(0..=self.max_message.min(300)),
            _ => rng.usize(0..=self.max_message),
        };
        let fence = if rng.u32(0..8) == 0 { Fence::Reads } else { Fence::None };
        let imm = rng.u32(..).to_be_bytes();
        let key_choice = rng.usize(0..3 * FAST_REGIONS);
        if choice >= 18 {
            return self.change_registration(side, index, key_choice % FAST_REGIONS);
        }

        // Memory of the peer that this slot may touch, through its whole region or a fast one.
        let peer = &mut self.sides[1 - side];
        let fast = peer.ends[index].fast.get_mut(key_choice);
        let (rkey, user) = match fast {
            Some(Fast { key, state: FastState::Valid(users), .. }) if (6..18).contains(&choice) => {
                *users += 1;
                (*key, Some(key_choice))
            }
            _ => (peer.mr.rkey, None),
        };
        let far = base + (DEPTH + slot) * 2 * self.max_message + self.world.rng.usize(0..=self.max_message);
        let remote = RemoteAddr { addr: peer.region.addr() + far as u64, rkey };

        let near = base + slot * 2 * self.max_message;
        let most = self.max_sge(side, index);
        let pieces = self.split(near, length, most);
        let sges = self.sges(side, &pieces);
        let mut expected = None;
        let message = |opcode, extra| Some(Expected { opcode, length, pattern, extra });
        let (op, what) = match choice {
            0..3 => {
                expected = message(WcOpcode::Recv, RecvExtra::None);
                (SendOp::Send, What::Message)
            }
            3 => {
                expected = message(WcOpcode::Recv, RecvExtra::Imm(imm));
                (SendOp::SendWithImm(imm), What::Message)
            }
            4 | 5 => {
                let fast = &mut self.sides[1 - side].ends[index].fast[key_choice % FAST_REGIONS];
                if fast.state == FastState::Valid(0) {
                    fast.state = FastState::Changing;
                    expected = message(WcOpcode::Recv, RecvExtra::Invalidated(fast.key));
                    (SendOp::SendWithInv(fast.key), What::Message)
                } else {
                    expected = message(WcOpcode::Recv, RecvExtra::None);
                    (SendOp::Send, What::Message)
                }
            }
            6..11 => (SendOp::Write(remote), What::Write(far, length, user)),
            11 => {
                expected = message(WcOpcode::RecvRdmaWithImm, RecvExtra::Imm(imm));
                (SendOp::WriteWithImm(remote, imm), What::Write(far, length, user))
            }
            _ => (SendOp::Read(remote), What::Read(pieces.clone(), user)),
        };
        if let What::Read(..) = what {
            self.fill(1 - side, &[(far, length)], pattern);
        } else {
            self.fill(side, &pieces, pattern);
        }
        let end = &mut self.sides[side].ends[index];
        let must = end.left == 1 || end.unsignaled + 2 >= DEPTH / 2;
        let signaled = must || self.world.rng.bool();
        let wr = end.next_wr;
        end.next_wr += 1;
        let signal = if signaled { Signal::Signaled } else { Signal::Unsignaled };
        let request = SendWr { wr_id: WrId(wr), op, sges: &sges, signal, fence };
        self.world.endpoints[side].post_send(qpn, &request).unwrap();
        end.left -= 1;
        end.free_slots.pop();
        end.unsignaled = if signaled { 0 } else { end.unsignaled + 1 };
        end.sent.push_back(Sent { wr, slot, pattern, signaled, moved: false, what });
        self.sides[1 - side].ends[index].expected.extend(expected);
    }

    /// Registers or invalidates a fast region, as its state allows.
    fn change_registration(&mut self, side: SideId, index: usize, which: usize) {
        let max_message = self.max_message;
        let step = self.world.rng.u32(1..5);
        let Side { region, mr, ends, .. } = &mut self.sides[side];
        let end = &mut ends[index];
        let fast = &mut end.fast[which];
        let memory;
        let (op, what, sges) = match fast.state {
            FastState::Invalid => {
                fast.key = Rkey(fast.key.0 & !0xFF | fast.key.0.wrapping_add(step) & 0xFF);
                let at = end.base + DEPTH * 2 * max_message;
                let op = SendOp::RegMr { mr: fast.mr.id, key: fast.key, access: ALL };
                memory = Sge {
                    addr: region.addr() + at as u64,
                    length: small(DEPTH * 2 * max_message),
                    lkey: mr.lkey,
                };
                (op, What::Register(which), std::slice::from_ref(&memory))
            }
            FastState::Valid(0) => (SendOp::LocalInv(fast.key), What::Invalidate(which), &[][..]),
            _ => return,
        };
        fast.state = FastState::Changing;
        let slot = usize::MAX;
        let wr = end.next_wr;
        end.next_wr += 1;
        let request = SendWr { wr_id: WrId(wr), op, sges, signal: Signal::Signaled, fence: Fence::None };
        self.world.endpoints[side].post_send(end.qpn, &request).unwrap();
        end.unsignaled = 0;
        end.sent.push_back(Sent { wr, slot, pattern: 0, signaled: true, moved: false, what });
    }

    /// Takes completions and checks what they stand for.
    fn complete(&mut self, side: SideId) {
        while self.world.endpoints[side].poll_qp_event().is_some() {}
        while let Some(wc) = self.world.endpoints[side].poll_cq() {
            assert_eq!(wc.status, WcStatus::Success, "{wc:?}");
            let index = self.sides[side].ends.iter().position(|end| end.qpn == wc.qpn).unwrap();
            let end = &mut self.sides[side].ends[index];
            if matches!(wc.opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm) {
                let posted = end.posted.pop_front().expect("a receive was posted");
                let expected = end.expected.pop_front().expect("a message was sent");
                assert_eq!(wc.wr_id, WrId(posted.wr));
                assert_eq!((wc.opcode, wc.extra), (expected.opcode, expected.extra));
                assert_eq!(wc.byte_len as usize, expected.length);
                end.free_receives.push(posted.slot);
                if let RecvExtra::Invalidated(key) = wc.extra {
                    let fast = end.fast.iter_mut().find(|fast| fast.key == key).unwrap();
                    assert_eq!(std::mem::replace(&mut fast.state, FastState::Invalid), FastState::Changing);
                }
                if wc.opcode == WcOpcode::Recv {
                    let pieces = cut(&posted.pieces, expected.length);
                    self.arrived(side, &pieces, expected.pattern);
                }
                continue;
            }
            loop {
                let end = &mut self.sides[side].ends[index];
                let sent = end.sent.pop_front().expect("it was posted");
                let this = WrId(sent.wr) == wc.wr_id;
                assert!(this == sent.signaled, "completions come in order");
                self.finish(side, index, sent);
                if this {
                    break;
                }
            }
        }
    }

    /// An operation is complete.
    fn finish(&mut self, side: SideId, index: usize, sent: Sent) {
        let release = |apps: &mut Self, user: Option<usize>| {
            let Some(user) = user else { return };
            let FastState::Valid(users) = &mut apps.sides[1 - side].ends[index].fast[user].state else {
                panic!("a region in use stays valid")
            };
            *users -= 1;
        };
        match sent.what {
            What::Message => {}
            What::Write(at, length, user) => {
                release(self, user);
                self.arrived(1 - side, &[(at, length)], sent.pattern);
            }
            What::Read(pieces, user) => {
                release(self, user);
                self.arrived(side, &pieces, sent.pattern);
            }
            What::Register(which) => self.sides[side].ends[index].fast[which].state = FastState::Valid(0),
            What::Invalidate(which) => self.sides[side].ends[index].fast[which].state = FastState::Invalid,
        }
        if sent.slot != usize::MAX {
            self.sides[side].ends[index].free_slots.push(sent.slot);
        }
    }

    /// The application writes a pattern.
    fn fill(&mut self, side: SideId, pieces: &[Piece], pattern: u64) {
        let mut index = 0;
        for &(at, length) in pieces {
            let bytes: Vec<u8> = (index..index + length).map(|index| byte_of(pattern, index)).collect();
            self.sides[side].region.write(at, &bytes);
            self.sides[side].model[at..at + length].copy_from_slice(&bytes);
            index += length;
        }
    }

    /// A device wrote a pattern: it must be there, and the model follows.
    fn arrived(&mut self, side: SideId, pieces: &[Piece], pattern: u64) {
        let mut index = 0;
        for &(at, length) in pieces {
            let mut bytes = vec![0; length];
            self.sides[side].region.read(at, &mut bytes);
            for (offset, &byte) in bytes.iter().enumerate() {
                assert_eq!(byte, byte_of(pattern, index + offset), "byte {} of a message", index + offset);
            }
            self.sides[side].model[at..at + length].copy_from_slice(&bytes);
            index += length;
        }
    }

    fn max_sge(&self, side: SideId, index: usize) -> usize {
        self.world.endpoints[side].max_sge(self.sides[side].ends[index].qpn)
    }

    /// Splits `length` bytes into pieces of a slot at `at`, which has twice the room of a message.
    fn split(&mut self, at: usize, length: usize, most: usize) -> Vec<Piece> {
        let rng = &mut self.world.rng;
        let count = rng.usize(1..=most);
        let mut cuts: Vec<usize> = (1..count).map(|_| rng.usize(0..=length)).collect();
        cuts.extend([0, length]);
        cuts.sort_unstable();
        let spare = self.max_message / count;
        let mut gap = 0;
        let mut pieces: Vec<Piece> = cuts
            .windows(2)
            .map(|pair| {
                gap += rng.usize(0..=spare);
                (at + pair[0] + gap, pair[1] - pair[0])
            })
            .collect();
        if rng.bool() {
            rng.shuffle(&mut pieces);
        }
        pieces
    }

    fn sges(&self, side: SideId, pieces: &[Piece]) -> Vec<Sge> {
        let Side { region, mr, .. } = &self.sides[side];
        let sge = |&(at, length): &Piece| Sge {
            addr: region.addr() + at as u64,
            length: small(length),
            lkey: mr.lkey,
        };
        pieces.iter().map(sge).collect()
    }
}

/// The first `length` bytes of `pieces`.
fn cut(pieces: &[Piece], length: usize) -> Vec<Piece> {
    let mut left = length;
    let part = |&(at, length): &Piece| {
        let now = length.min(left);
        left -= now;
        (at, now)
    };
    pieces.iter().map(part).collect()
}
