//! Integrity registrations, over good and bad networks: what moves, what is made and what is found is what the software path
//! says of the same transfer, and a bad peer changes nothing but its own data.

use std::ops::Range;
use std::time::Duration;

use t10pi::PiType;

use super::super::endpoint::{CAPS, IcrcCheck};
use super::super::fault::Faults;
use super::super::wire::{Aeth, Ext, Opcode, Syndrome};
use super::pair::{LATENCY, MEMORY, MTU, Pair, usual};
use super::{Replay, seeds};
use crate::device::conformance::transfer::{PAGES, Piece, SLOT, Transfer, expected, transfer};
use crate::device::{DeviceError, PathMtu, PostError, QpCap, QpConnect, QpState};
use crate::mem::{Access, Lkey, Mr};
use crate::plan::{Direction, Integrity};
use crate::remote::Rkey;
use crate::signature::testing::{attrs, domain, formats};
use crate::signature::{SigAttrs, SigStatus, Signature, T10Dif};
use crate::wc::WcStatus;
use crate::wr::{Fence, SendOp, Sge, Signal};

use WcStatus::{BadRespErr, LocProtErr, RemAccessErr, Success, WrFlushErr};

/// Transfers under way at once.
const SLOTS: usize = MEMORY / SLOT;
const PAGE: usize = 4096;

const LOCAL: Access = Access { local_write: true, remote_read: false, remote_write: false };

/// A region and what is done with it.
struct Slot {
    mr: Mr,
    key: Rkey,
    registered: bool,
    transfer: Option<Transfer>,
}

pub(super) struct Run {
    pair: Pair,
    slots: Vec<Slot>,
    /// What memory must hold.
    models: [Vec<u8>; 2],
    left: usize,
    found: usize,
}

impl Run {
    pub(super) fn new(seed: u64, faults: Faults, transfers: usize) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mtus = [PathMtu::Mtu256, PathMtu::Mtu512, PathMtu::Mtu1024, PathMtu::Mtu2048, PathMtu::Mtu4096];
        let path_mtu = mtus[rng.usize(0..mtus.len())];
        let parameters = [0, 1].map(|side| QpConnect { path_mtu, ..usual(side) });
        let mut pair = Pair::over(seed, faults, IcrcCheck::On, CAPS, parameters);
        pair.world.choke = rng.bool();
        let (pd, endpoint) = (pair.pds[0], &mut pair.world.endpoints[0]);
        let slots = (0..SLOTS)
            .map(|_| endpoint.alloc_integrity_mr(pd, PAGES).unwrap())
            .map(|mr| Slot { mr, key: mr.rkey, registered: false, transfer: None })
            .collect();
        Self { pair, slots, models: [vec![0; MEMORY], vec![0; MEMORY]], left: transfers, found: 0 }
    }

    /// Carries transfers out until all are.
    fn run(&mut self) {
        while self.left > 0 || self.slots.iter().any(|slot| slot.transfer.is_some()) {
            for index in 0..SLOTS {
                if self.left > 0 && self.slots[index].transfer.is_none() && self.pair.world.rng.bool() {
                    self.left -= 1;
                    self.start(index);
                }
            }
            self.pair.world.transmit();
            if let Some(at) = self.pair.world.next_event() {
                self.pair.world.advance_to(at);
            }
            for wc in self.pair.completions(0) {
                assert_eq!(wc.status, Success, "{wc:?}");
                self.finish(usize::try_from(wc.wr_id.0).unwrap());
            }
        }
    }

    /// Checks that nothing else changed, and nothing is left.
    fn end(&mut self) {
        for side in 0..2 {
            assert!(self.pair.bytes(side, 0, MEMORY) == self.models[side], "memory of side {side}");
        }
        self.pair.run(Duration::from_secs(1));
        self.pair.world.endpoints[0].check_idle();
        for slot in &self.slots {
            self.pair.world.endpoints[0].dereg_mr(slot.mr.id).unwrap();
        }
        assert_eq!(self.pair.world.endpoints[0].memory_regions(), 1);
    }

    fn start(&mut self, index: usize) {
        let transfer = transfer(&mut self.pair.world.rng, index * SLOT);
        self.begin(index, transfer);
    }

    /// Carries one transfer out and checks what became of it.
    pub(super) fn carry_out(&mut self, transfer: Transfer) {
        self.begin(0, transfer);
        self.run();
    }

    fn begin(&mut self, index: usize, transfer: Transfer) {
        let lists = [&transfer.data, &transfer.protection];
        for (list, bytes) in lists.into_iter().zip(&transfer.before) {
            self.put(0, list, bytes);
        }
        if transfer.signature.direction() == Direction::FromHost {
            self.put(1, &[(transfer.remote, transfer.wire.len())], &transfer.wire);
        }
        let [data, protection] = lists.map(|list| sges(&self.pair, list));
        let slot = &mut self.slots[index];
        let endpoint = &mut self.pair.world.endpoints[0];
        let layout = endpoint.map_integrity(slot.mr.id, &transfer.signature, &data, &protection).unwrap();
        assert_eq!(layout.wire as usize, transfer.wire.len());
        let (old, stale) = (slot.key, std::mem::replace(&mut slot.registered, true));
        slot.key = next_key(old);
        let (mr, key) = (slot.mr.id, slot.key);
        let op = op(&self.pair, &transfer);
        let mut post = |op, sges: &[Sge], signal| {
            self.pair.try_post(0, index as u64, op, sges, signal, Fence::None).unwrap();
        };
        if stale {
            post(SendOp::LocalInv(old), &[], Signal::Unsignaled);
        }
        post(SendOp::RegMrIntegrity { mr, key, access: LOCAL }, &[], Signal::Unsignaled);
        let sge = Sge { addr: 0, length: layout.wire, lkey: Lkey(key.0) };
        post(op, &[sge], Signal::Signaled);
        self.slots[index].transfer = Some(transfer);
    }

    fn finish(&mut self, index: usize) {
        let slot = &mut self.slots[index];
        let transfer = slot.transfer.take().expect("it was started");
        let status = self.pair.world.endpoints[0].sig_status(slot.mr.id).unwrap();
        let what = (transfer.signature.direction(), transfer.signature.operation());
        assert_eq!(status.mismatch(transfer.signature.format()).err(), transfer.found, "{what:?}");
        if let SigStatus::Failed(error) = status {
            assert_eq!(error.key, slot.key);
            self.found += 1;
        }
        for (list, bytes) in [&transfer.data, &transfer.protection].into_iter().zip(&transfer.after) {
            assert!(gathered(&self.pair, 0, list) == *bytes, "memory after {what:?}");
            model(&mut self.models[0], list, bytes);
        }
        let there = [(transfer.remote, transfer.wire.len())];
        assert!(gathered(&self.pair, 1, &there) == transfer.wire, "the peer's memory after {what:?}");
        model(&mut self.models[1], &there, &transfer.wire);
    }

    fn put(&mut self, side: usize, list: &[Piece], bytes: &[u8]) {
        let mut rest = bytes;
        for &(at, length) in list {
            self.pair.regions[side].write(at, &rest[..length]);
            rest = &rest[length..];
        }
        model(&mut self.models[side], list, bytes);
    }
}

fn model(model: &mut [u8], list: &[Piece], bytes: &[u8]) {
    let mut rest = bytes;
    for &(at, length) in list {
        model[at..at + length].copy_from_slice(&rest[..length]);
        rest = &rest[length..];
    }
}

fn gathered(pair: &Pair, side: usize, list: &[Piece]) -> Vec<u8> {
    list.iter().flat_map(|&(at, length)| pair.bytes(side, at, length)).collect()
}

fn sges(pair: &Pair, list: &[Piece]) -> Vec<Sge> {
    list.iter().map(|&(at, length)| pair.sge(0, at, length)).collect()
}

fn op(pair: &Pair, transfer: &Transfer) -> SendOp {
    let remote = pair.remote(1, transfer.remote);
    match transfer.signature.direction() {
        Direction::ToHost => SendOp::Write(remote),
        Direction::FromHost => SendOp::Read(remote),
    }
}

fn next_key(key: Rkey) -> Rkey {
    Rkey(key.0 & !0xFF | key.0.wrapping_add(1) & 0xFF)
}

fn all(test: &'static str, range: Range<u64>, faults: impl Fn(u64) -> Faults) -> (u64, usize) {
    let (mut repeated, mut found) = (0, 0);
    for seed in seeds(range) {
        let _replay = Replay { test, seed };
        let mut run = Run::new(seed, faults(seed), 40);
        run.run();
        run.end();
        let counters = run.pair.counters(0);
        assert_eq!((counters.qp_failures, counters.flushes), (0, 0));
        repeated += counters.retransmits + counters.read_rerequests;
        found += run.found;
    }
    (repeated, found)
}

#[test]
fn offload_does_what_the_software_path_does() {
    let clean = |_| Faults { latency: LATENCY, ..Faults::default() };
    let (_, found) = all("signature::offload_does_what_the_software_path_does", 0..60, clean);
    assert!(found > 100, "{found}");
}

#[test]
fn offload_does_the_same_however_often_packets_are_lost_and_sent_again() {
    let bad = |seed| {
        let mut rng = fastrand::Rng::with_seed(seed);
        Faults {
            lose: rng.u32(0..=100),
            duplicate: rng.u32(0..=100),
            reorder: rng.u32(0..=200),
            corrupt: rng.u32(0..=30),
            latency: LATENCY,
            hold: Duration::from_micros(300),
        }
    };
    let test = "signature::offload_does_the_same_however_often_packets_are_lost_and_sent_again";
    let (repeated, found) = all(test, 5000..5120, bad);
    assert!(repeated > 1000 && found > 200, "{repeated} {found}");
}

/// A pair with one region, and a transfer of `blocks` blocks of 512 bytes.
fn single(attrs: &SigAttrs, direction: Direction, blocks: usize) -> (Pair, Mr, Transfer) {
    let mut pair = Pair::new();
    let mr = pair.world.endpoints[0].alloc_integrity_mr(pair.pds[0], PAGES).unwrap();
    let mut rng = fastrand::Rng::with_seed(3);
    let transfer = loop {
        let transfer = expected(&mut rng, attrs, direction, blocks, false, 0);
        if transfer.found.is_none() {
            break transfer;
        }
    };
    for (list, bytes) in [&transfer.data, &transfer.protection].into_iter().zip(&transfer.before) {
        let mut rest = &bytes[..];
        for &(at, length) in list {
            pair.regions[0].write(at, &rest[..length]);
            rest = &rest[length..];
        }
    }
    pair.regions[1].write(transfer.remote, &transfer.wire);
    (pair, mr, transfer)
}

fn dif() -> T10Dif {
    domain(formats()[0], PiType::Type1, 1)
}

/// Maps and registers, and returns the SGE of the data.
fn register(pair: &mut Pair, mr: &Mr, transfer: &Transfer, key: Rkey) -> Sge {
    let [data, protection] = [&transfer.data, &transfer.protection].map(|list| sges(pair, list));
    let layout =
        pair.world.endpoints[0].map_integrity(mr.id, &transfer.signature, &data, &protection).unwrap();
    pair.post(0, 1, SendOp::RegMrIntegrity { mr: mr.id, key, access: LOCAL }, &[]);
    Sge { addr: 0, length: layout.wire, lkey: Lkey(key.0) }
}

#[test]
fn a_status_is_asked_for_once_and_before_the_next_registration() {
    let (mut pair, mr, transfer) = single(&attrs(Some(dif()), None), Direction::ToHost, 8);
    let status = |pair: &mut Pair| pair.world.endpoints[0].sig_status(mr.id);
    let nothing = Err(DeviceError::Invalid("query: nothing was registered since the last"));
    assert_eq!(status(&mut pair), nothing);
    let refused = pair.try_post(
        0,
        9,
        SendOp::RegMrIntegrity { mr: mr.id, key: next_key(mr.rkey), access: LOCAL },
        &[],
        Signal::Signaled,
        Fence::None,
    );
    assert_eq!(refused, Err(PostError::Integrity), "nothing was mapped");

    let key = next_key(mr.rkey);
    let sge = register(&mut pair, &mr, &transfer, key);
    pair.post(0, 2, op(&pair, &transfer), &[sge]);
    assert_eq!(status(&mut pair), nothing, "not executed yet");
    pair.world.transmit();
    assert_eq!(pair.outcome(0), [(1, Success), (2, Success)]);
    let lists = [&transfer.data, &transfer.protection].map(|list| sges(&pair, list));
    pair.world.endpoints[0].map_integrity(mr.id, &transfer.signature, &lists[0], &lists[1]).unwrap();
    let again = SendOp::RegMrIntegrity { mr: mr.id, key: next_key(key), access: LOCAL };
    let refused = pair.try_post(0, 9, again, &[], Signal::Signaled, Fence::None);
    assert_eq!(refused, Err(PostError::Integrity), "its status was not asked for");
    assert_eq!(status(&mut pair), Ok(SigStatus::Clean));
    assert_eq!(status(&mut pair), nothing);
    pair.post(0, 3, SendOp::LocalInv(key), &[]);
    pair.post(0, 4, again, &[]);
    assert_eq!(pair.outcome(0), [(3, Success), (4, Success)]);
}

#[test]
fn a_registration_is_good_for_its_own_transfer_alone() {
    let wrong: [fn(&Pair, &mut Sge, &mut SendOp); 4] = [
        |_, sge, _| sge.addr = 1,
        |_, sge, _| sge.length -= 512,
        |pair, _, op| *op = SendOp::Read(pair.remote(1, 0)),
        |_, sge, _| sge.lkey = Lkey(sge.lkey.0 ^ 1),
    ];
    for spoil in wrong {
        let (mut pair, mr, transfer) = single(&attrs(Some(dif()), None), Direction::ToHost, 8);
        let mut sge = register(&mut pair, &mr, &transfer, next_key(mr.rkey));
        let mut wr = op(&pair, &transfer);
        spoil(&pair, &mut sge, &mut wr);
        pair.post(0, 2, wr, &[sge]);
        assert_eq!(pair.outcome(0), [(1, Success), (2, LocProtErr)]);
        let status = pair.world.endpoints[0].sig_status(mr.id);
        assert_eq!(status, Err(DeviceError::Busy("the transfer of the registration")));
        pair.world.endpoints[0].dereg_mr(mr.id).unwrap();
        assert!(pair.world.endpoints[0].dereg_mr(mr.id).is_err(), "freed once");
    }
    // A second work request.
    let (mut pair, mr, transfer) = single(&attrs(Some(dif()), None), Direction::ToHost, 8);
    let sge = register(&mut pair, &mr, &transfer, next_key(mr.rkey));
    pair.post(0, 2, op(&pair, &transfer), &[sge]);
    pair.post(0, 3, op(&pair, &transfer), &[sge]);
    assert_eq!(pair.outcome(0), [(1, Success), (2, Success), (3, LocProtErr)]);
    // One among other memory, and a peer that guessed the key.
    let (mut pair, mr, transfer) = single(&attrs(Some(dif()), None), Direction::ToHost, 8);
    let sge = register(&mut pair, &mr, &transfer, next_key(mr.rkey));
    let other = pair.sge(0, 0, 8);
    pair.post(0, 2, op(&pair, &transfer), &[sge, other]);
    assert_eq!(pair.outcome(0), [(1, Success), (2, LocProtErr)]);
    let (mut pair, mr, transfer) = single(&attrs(Some(dif()), None), Direction::ToHost, 8);
    let sge = register(&mut pair, &mr, &transfer, next_key(mr.rkey));
    assert_eq!(pair.outcome(0), [(1, Success)]);
    let guessed = crate::remote::RemoteAddr { addr: 0, rkey: Rkey(sge.lkey.0) };
    let room = pair.sge(1, 0, 8);
    pair.post(1, 5, SendOp::Read(guessed), &[room]);
    assert_eq!(pair.outcome(1), [(5, RemAccessErr)]);
}

#[test]
fn lists_and_signatures_that_do_not_fit_are_refused_when_they_are_mapped() {
    let (mut pair, mr, transfer) = single(&attrs(Some(dif()), None), Direction::FromHost, 16);
    let insert = transfer.signature;
    let sge = |pair: &Pair, at, length| pair.sge(0, at, length);
    let mut map = |signature: &Signature, data: &[Piece], protection: &[Piece]| {
        let [data, protection] =
            [data, protection].map(|list| list.iter().map(|&(at, n)| sge(&pair, at, n)).collect::<Vec<_>>());
        pair.world.endpoints[0].map_integrity(mr.id, signature, &data, &protection).err()
    };
    assert_eq!(map(&insert, &[(0, 8192)], &[(16384, 128)]), None);
    assert_eq!(map(&insert, &[(4000, 96), (8192, 4096), (20480, 4000)], &[(16384, 128)]), None);
    assert_eq!(map(&insert, &[(4000, 96), (4096, 8096)], &[(16384, 128)]), None, "contiguous");
    let pages = Some(DeviceError::Invalid("list: its pages"));
    assert_eq!(map(&insert, &[(0, 4095), (8192, 4097)], &[(16384, 128)]), pages);
    assert_eq!(map(&insert, &[(0, 4096), (8193, 4096)], &[(16384, 128)]), pages);
    assert_eq!(map(&insert, &[(1, 32 * PAGE)], &[(32 * PAGE + 4096, 2048)]), pages, "one page too many");
    let overlap = Some(DeviceError::Invalid("lists: their pieces overlap"));
    assert_eq!(map(&insert, &[(0, 8192)], &[(8191, 128)]), overlap);
    assert_eq!(map(&insert, &[(0, 4096), (0, 4096)], &[(16384, 128)]), overlap);
    let lengths = Some(DeviceError::Invalid("lengths of the lists"));
    assert_eq!(map(&insert, &[(0, 8192)], &[(16384, 120)]), lengths);
    assert_eq!(map(&insert, &[], &[]), lengths);
    let tiny = domain(t10pi::Format::new(t10pi::Guard::Crc16, 64, 8).unwrap(), PiType::Type1, 0);
    let tiny = Signature::new(&attrs(Some(tiny), None), Direction::FromHost).unwrap();
    let sizes = Some(DeviceError::Invalid("signature: sizes of a block"));
    assert_eq!(map(&tiny, &[(0, 640)], &[(4096, 80)]), sizes);

    let plain = pair.mrs[0].id;
    let endpoint = &mut pair.world.endpoints[0];
    assert!(endpoint.map_integrity(plain, &insert, &[], &[]).is_err());
    assert!(endpoint.sig_status(plain).is_err());
    assert!(endpoint.alloc_integrity_mr(pair.pds[0], 257).is_err());
    let cap =
        QpCap { max_send_wr: 8, max_recv_wr: 8, max_send_sge: 1, max_recv_sge: 1, integrity: Integrity::Off };
    let qpn = endpoint.create_qp(pair.pds[0], &cap).unwrap();
    pair.qpns[0] = qpn;
    let ready = SendOp::RegMrIntegrity { mr: mr.id, key: next_key(mr.rkey), access: LOCAL };
    let [data, protection] = [(0, 8192), (16384, 128)].map(|(at, length)| pair.sge(0, at, length));
    pair.world.endpoints[0].map_integrity(mr.id, &insert, &[data], &[protection]).unwrap();
    let refused = pair.try_post(0, 1, ready, &[], Signal::Signaled, Fence::None);
    assert_eq!(refused, Err(PostError::Unsupported), "a queue pair without integrity");
}

#[test]
fn a_peer_that_answers_twice_late_or_with_other_data_is_judged_by_what_came_first() {
    let aeth = Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn: 1 });
    let (mut pair, mr, transfer) = single(&attrs(None, Some(dif())), Direction::FromHost, 4);
    let key = next_key(mr.rkey);
    let sge = register(&mut pair, &mr, &transfer, key);
    pair.post(0, 2, op(&pair, &transfer), &[sge]);
    pair.world.transmit();
    let mut bad = transfer.wire.clone();
    bad[700] ^= 1; // in block 1, of 520 bytes
    let last = bad.len() - 2 * MTU;
    assert!(last > 0);
    // The last first, then the first twice with different data, then the one between.
    pair.inject(0, Opcode::ReadResponseLast, 2, aeth, &bad[2 * MTU..]);
    pair.inject(0, Opcode::ReadResponseFirst, 0, aeth, &bad[..MTU]);
    pair.inject(0, Opcode::ReadResponseFirst, 0, aeth, &transfer.wire[..MTU]);
    pair.inject(0, Opcode::ReadResponseLast, 2, aeth, &vec![0; last]);
    let busy = Err(DeviceError::Busy("the transfer of the registration"));
    assert_eq!(pair.world.endpoints[0].sig_status(mr.id), busy);
    pair.inject(0, Opcode::ReadResponseMiddle, 1, Ext::None, &bad[MTU..2 * MTU]);
    assert_eq!(pair.completions(0).iter().map(|wc| wc.status).collect::<Vec<_>>(), [Success, Success]);
    let SigStatus::Failed(error) = pair.world.endpoints[0].sig_status(mr.id).unwrap() else {
        panic!("a block was damaged")
    };
    assert_eq!((error.field, error.offset, error.key), (t10pi::Field::Guard, 520, key));
    // Late ones change nothing any more.
    let memory = gathered(&pair, 0, &transfer.data);
    pair.inject(0, Opcode::ReadResponseFirst, 0, aeth, &transfer.wire[..MTU]);
    assert!(gathered(&pair, 0, &transfer.data) == memory);
}

#[test]
fn a_peer_that_answers_short_or_closes_in_the_middle_leaves_nothing_registered() {
    let aeth = Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn: 1 });
    for closes in [false, true] {
        let (mut pair, mr, transfer) = single(&attrs(None, Some(dif())), Direction::FromHost, 4);
        let sge = register(&mut pair, &mr, &transfer, next_key(mr.rkey));
        pair.post(0, 2, op(&pair, &transfer), &[sge]);
        pair.world.transmit();
        pair.inject(0, Opcode::ReadResponseFirst, 0, aeth, &transfer.wire[..MTU]);
        let qpn = pair.qpns[0];
        let last = if closes {
            pair.world.endpoints[0].error_qp(qpn).unwrap();
            WrFlushErr
        } else {
            pair.inject(0, Opcode::ReadResponseMiddle, 1, Ext::None, &transfer.wire[..MTU - 4]);
            BadRespErr
        };
        let statuses: Vec<_> = pair.completions(0).iter().map(|wc| wc.status).collect();
        assert_eq!(statuses, [Success, last]);
        assert_eq!(pair.states()[0], Some(QpState::Error));
        let endpoint = &mut pair.world.endpoints[0];
        let busy = Err(DeviceError::Busy("the transfer of the registration"));
        assert_eq!(endpoint.sig_status(mr.id), busy, "half a transfer has no status");
        endpoint.destroy_qp(qpn).unwrap();
        endpoint.dereg_mr(mr.id).unwrap();
        assert!(endpoint.dereg_mr(mr.id).is_err(), "freed once");
        assert_eq!((endpoint.memory_regions(), endpoint.read_bytes_outstanding()), (1, 0));
        // What comes for it now finds nobody.
        pair.inject(0, Opcode::ReadResponseLast, 2, aeth, &transfer.wire[2 * MTU..]);
        assert_eq!(pair.counters(0).drop_qpn, 1);
    }
}

#[test]
fn memory_that_is_taken_away_fails_the_transfer_and_nothing_else() {
    let (mut pair, mr, transfer) = single(&attrs(Some(dif()), Some(dif())), Direction::ToHost, 16);
    let (pd, region) = (pair.pds[0], pair.regions[0].clone());
    let other = pair.world.endpoints[0].reg_mr(pd, &region, 0, MEMORY, LOCAL).unwrap();
    let lists = [&transfer.data, &transfer.protection].map(|list| {
        sges(&pair, list).into_iter().map(|sge| Sge { lkey: other.lkey, ..sge }).collect::<Vec<_>>()
    });
    let key = next_key(mr.rkey);
    let layout =
        pair.world.endpoints[0].map_integrity(mr.id, &transfer.signature, &lists[0], &lists[1]).unwrap();
    pair.post(0, 1, SendOp::RegMrIntegrity { mr: mr.id, key, access: LOCAL }, &[]);
    pair.world.transmit();
    pair.world.endpoints[0].dereg_mr(other.id).unwrap();
    let sge = Sge { addr: 0, length: layout.wire, lkey: Lkey(key.0) };
    pair.post(0, 2, op(&pair, &transfer), &[sge]);
    assert_eq!(pair.outcome(0), [(1, Success), (2, LocProtErr)]);
}

#[test]
fn data_under_way_may_move_elsewhere() {
    for operation in [attrs(Some(dif()), None), attrs(Some(dif()), Some(dif())), attrs(None, Some(dif()))] {
        let (mut pair, mr, mut transfer) = single(&operation, Direction::ToHost, 100);
        // In one piece, at a place of its own.
        transfer.data = vec![(3 * SLOT, transfer.before[0].len())];
        pair.regions[0].write(3 * SLOT, &transfer.before[0]);
        let sge = register(&mut pair, &mr, &transfer, next_key(mr.rkey));
        pair.post(0, 2, op(&pair, &transfer), &[sge]);
        pair.world.transmit();
        let from = pair.sge(0, 3 * SLOT, transfer.before[0].len());
        let to = pair.sge(0, 2 * SLOT, transfer.before[0].len());
        pair.regions[0].write(2 * SLOT, &transfer.before[0]);
        pair.world.endpoints[0].replace_source(pair.qpns[0], crate::wr::WrId(2), from, to).unwrap();
        pair.fill(0, 3 * SLOT, transfer.before[0].len(), 0xEE);
        assert_eq!(pair.outcome(0), [(1, Success), (2, Success)]);
        assert_eq!(pair.world.endpoints[0].sig_status(mr.id), Ok(SigStatus::Clean));
        assert!(gathered(&pair, 1, &[(transfer.remote, transfer.wire.len())]) == transfer.wire);
    }
}

#[test]
fn a_part_of_pieces_that_became_one_is_not_replaced_and_that_is_said() {
    let refused = Err(DeviceError::Invalid("range: a part of a larger piece"));
    let (mut pair, mr, mut transfer) = single(&attrs(Some(dif()), Some(dif())), Direction::ToHost, 100);
    // Two pieces in a row.
    let length = transfer.before[0].len();
    transfer.data = vec![(3 * SLOT, PAGE), (3 * SLOT + PAGE, length - PAGE)];
    pair.regions[0].write(3 * SLOT, &transfer.before[0]);
    let sge = register(&mut pair, &mr, &transfer, next_key(mr.rkey));
    pair.post(0, 2, op(&pair, &transfer), &[sge]);
    pair.world.transmit();
    let replace = |pair: &mut Pair, offset: usize, length: usize| {
        let from = pair.sge(0, 3 * SLOT + offset, length);
        let to = pair.sge(0, 2 * SLOT + offset, length);
        pair.world.endpoints[0].replace_source(pair.qpns[0], crate::wr::WrId(2), from, to)
    };
    assert_eq!(replace(&mut pair, 0, PAGE), refused);
    assert_eq!(replace(&mut pair, PAGE, length - PAGE), refused);
    assert_eq!(replace(&mut pair, length, PAGE), Ok(()), "none of it");
    // As a whole it is.
    pair.regions[0].write(2 * SLOT, &transfer.before[0]);
    assert_eq!(replace(&mut pair, 0, length), Ok(()));
    pair.fill(0, 3 * SLOT, length, 0xEE);
    assert_eq!(pair.outcome(0), [(1, Success), (2, Success)]);
    assert_eq!(pair.world.endpoints[0].sig_status(mr.id), Ok(SigStatus::Clean));
    assert!(gathered(&pair, 1, &[(transfer.remote, transfer.wire.len())]) == transfer.wire);
}
