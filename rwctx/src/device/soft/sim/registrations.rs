//! Fast registrations of scattered memory, and the rules of iWARP for what READs go to.

use super::super::persona::Persona;
use super::pair::{ALL, Pair, usual};
use crate::device::{DeviceError, PostError};
use crate::mem::{Access, Lkey, Mr};
use crate::remote::Rkey;
use crate::wc::WcStatus::{LocProtErr, LocQpOpErr, Success};
use crate::wr::{Fence, SendOp, Sge, Signal, WrId};

const PAGE: usize = 4096;
/// More than a work request of these queue pairs has room for.
const MANY: usize = 8;

fn iwarp() -> Pair {
    Pair::with_caps([usual(0), usual(1)], Persona::Iwarp.caps())
}

fn region(pair: &mut Pair, side: usize, pages: u32) -> Mr {
    let pd = pair.pds[side];
    pair.world.endpoints[side].alloc_fast_reg(pd, pages).unwrap()
}

fn key(mr: &Mr, step: u32) -> Rkey {
    Rkey(mr.rkey.0 & !0xff | mr.rkey.0.wrapping_add(step) & 0xff)
}

/// Every other page, from page `first` on, from the last to the first of them.
fn scattered(pair: &Pair, side: usize, first: usize) -> Vec<Sge> {
    (0..MANY).rev().map(|i| pair.sge(side, (first + 2 * i) * PAGE, PAGE)).collect()
}

/// All of a registration.
fn whole(list: &[Sge], key: Rkey) -> Sge {
    Sge { addr: list[0].addr, length: list.iter().map(|sge| sge.length).sum(), lkey: Lkey(key.0) }
}

fn unsignaled(pair: &mut Pair, op: SendOp, sges: &[Sge]) {
    pair.try_post(0, 0, op, sges, Signal::Unsignaled, Fence::None).unwrap();
}

#[test]
fn reads_fill_scattered_pages_through_registrations_that_follow_each_other() {
    let mut pair = Pair::new();
    let mr = region(&mut pair, 0, 8);
    let length = MANY * PAGE;
    for page in 0..2 * MANY {
        pair.fill(1, page * PAGE, PAGE, u8::try_from(page + 1).unwrap());
    }
    let lists = [scattered(&pair, 0, 0), scattered(&pair, 0, 1)];
    for (turn, list) in (0..).zip(&lists) {
        let key = key(&mr, turn + 1);
        unsignaled(&mut pair, SendOp::RegMr { mr: mr.id, key, access: ALL }, list);
        let from = pair.remote(1, turn as usize * length);
        pair.post(0, u64::from(turn), SendOp::Read(from), &[whole(list, key)]);
        unsignaled(&mut pair, SendOp::LocalInv(key), &[]);
    }
    assert_eq!(pair.outcome(0), [(0, Success), (1, Success)]);
    for turn in 0..2 {
        for index in 0..MANY {
            let page = turn + 2 * (MANY - 1 - index);
            let expected = u8::try_from(turn * MANY + index + 1).unwrap();
            assert_eq!(pair.bytes(0, page * PAGE, PAGE), vec![expected; PAGE], "page {page}");
        }
    }
    assert_eq!(pair.counters(0).fast_registrations, 2);
}

#[test]
fn a_peer_reads_and_writes_scattered_pages_as_one_range() {
    let mut pair = Pair::new();
    let mr = region(&mut pair, 0, 8);
    let mut list = scattered(&pair, 0, 0);
    // The first may start, and the last may end, inside a page: so packets lie over the seams.
    (list[0].addr, list[0].length) = (list[0].addr + 1000, 3096);
    list[MANY - 1].length = 77;
    for (index, sge) in list.iter().enumerate() {
        let at = usize::try_from(sge.addr - pair.mrs[0].addr).unwrap();
        pair.fill(0, at, sge.length as usize, u8::try_from(index + 1).unwrap());
    }
    let key = key(&mr, 1);
    pair.post(0, 1, SendOp::RegMr { mr: mr.id, key, access: ALL }, &list);
    assert_eq!(pair.outcome(0), [(1, Success)]);
    let range = whole(&list, key);
    let remote = crate::remote::RemoteAddr { addr: range.addr, rkey: key };
    let length = range.length as usize;
    let sink = pair.sge(1, 0, length);
    pair.post(1, 2, SendOp::Read(remote), &[sink]);
    assert_eq!(pair.outcome(1), [(2, Success)]);
    let expected: Vec<u8> =
        (1..).zip(&list).flat_map(|(byte, sge)| std::iter::repeat_n(byte, sge.length as usize)).collect();
    assert!(pair.bytes(1, 0, length) == expected);
    // And back, turned around.
    let turned: Vec<u8> = expected.iter().rev().copied().collect();
    pair.regions[1].write(0, &turned);
    pair.post(1, 3, SendOp::Write(remote), &[sink]);
    assert_eq!(pair.outcome(1), [(3, Success)]);
    let mut got = Vec::new();
    for sge in &list {
        let at = usize::try_from(sge.addr - pair.mrs[0].addr).unwrap();
        got.extend(pair.bytes(0, at, sge.length as usize));
    }
    assert!(got == turned);
}

#[test]
fn a_list_of_more_pages_than_the_region_has_fails_the_queue_pair() {
    let mut pair = Pair::new();
    let mr = region(&mut pair, 0, 7);
    let list = scattered(&pair, 0, 0);
    pair.post(0, 1, SendOp::RegMr { mr: mr.id, key: key(&mr, 1), access: ALL }, &list);
    assert_eq!(pair.outcome(0), [(1, LocProtErr)]);
    let pd = pair.pds[0];
    assert!(pair.world.endpoints[0].alloc_fast_reg(pd, 513).is_err(), "more than the device offers");
}

#[test]
fn an_iwarp_read_goes_to_one_registration_that_the_peer_may_write() {
    let mut pair = iwarp();
    let pd = pair.pds[0];
    let local = Access { local_write: true, ..Access::default() };
    let closed = pair.world.endpoints[0].reg_mr(pd, &pair.regions[0], 0, PAGE, local).unwrap();
    let from = SendOp::Read(pair.remote(1, 0));
    let two = [pair.sge(0, 0, 10), pair.sge(0, 10, 10)];
    let refused = pair.try_post(0, 1, from, &two, Signal::Signaled, Fence::None);
    assert_eq!(refused, Err(PostError::BadSge));
    pair.fill(1, 0, PAGE, 9);
    let open = pair.sge(0, PAGE, PAGE);
    pair.post(0, 2, from, &[open]);
    assert_eq!(pair.outcome(0), [(2, Success)]);
    assert_eq!(pair.bytes(0, PAGE, PAGE), vec![9; PAGE]);
    pair.post(0, 3, from, &[Sge { addr: closed.addr, length: 100, lkey: closed.lkey }]);
    assert_eq!(pair.outcome(0), [(3, LocProtErr)]);
    assert_eq!(pair.bytes(0, 0, PAGE), vec![0; PAGE]);
}

#[test]
fn a_read_with_invalidation_takes_its_sinks_key_away() {
    let mut pair = iwarp();
    let mr = region(&mut pair, 0, 8);
    let list = scattered(&pair, 0, 0);
    let from = pair.remote(1, 0);
    for turn in 1..=3 {
        let key = key(&mr, turn);
        unsignaled(&mut pair, SendOp::RegMr { mr: mr.id, key, access: ALL }, &list);
        pair.post(0, u64::from(turn), SendOp::ReadWithInv(from), &[whole(&list, key)]);
        assert_eq!(pair.outcome(0), [(u64::from(turn), Success)]);
    }
    pair.post(0, 9, SendOp::LocalInv(key(&mr, 3)), &[]);
    assert_eq!(pair.outcome(0), [(9, LocQpOpErr)], "it is invalid already");
    // Other devices have no such READ.
    let mut pair = Pair::new();
    let (sink, op) = (pair.sge(0, 0, 10), SendOp::ReadWithInv(pair.remote(1, 0)));
    assert_eq!(pair.try_post(0, 1, op, &[sink], Signal::Signaled, Fence::None), Err(PostError::Unsupported));
}

#[test]
fn a_peer_without_remote_access_invalidates_nothing() {
    let mut parameters = [usual(0), usual(1)];
    parameters[1].remote_access = crate::device::RemoteAccess::default();
    let mut pair = Pair::with(parameters);
    let mr = region(&mut pair, 1, 8);
    let key = key(&mr, 1);
    let list = [pair.sge(1, 0, PAGE)];
    pair.post(1, 1, SendOp::RegMr { mr: mr.id, key, access: ALL }, &list);
    assert_eq!(pair.outcome(1), [(1, Success)]);
    pair.receive(1, 100, &[]);
    pair.post(0, 2, SendOp::SendWithInv(key), &[]);
    assert_eq!(pair.outcome(0), [(2, crate::wc::WcStatus::RemAccessErr)]);
    // The key is as valid as before, for who may use it.
    pair.reconnect();
    let source = pair.sge(0, 0, PAGE);
    pair.post(0, 3, SendOp::Write(pair.remote_by(1, 0, key)), &[source]);
    assert_eq!(pair.outcome(0), [(3, Success)]);
}

#[test]
fn memory_that_a_registration_or_a_larger_piece_sends_is_not_replaced_and_that_is_said() {
    let mut pair = Pair::new();
    let mr = region(&mut pair, 0, 8);
    let list = scattered(&pair, 0, 0);
    let (key, other) = (key(&mr, 1), pair.sge(0, 100 * PAGE, PAGE));
    let replace = |pair: &mut Pair, wr: u64, from: Sge| {
        let to = Sge { length: from.length, ..other };
        pair.world.endpoints[0].replace_source(pair.qpns[0], WrId(wr), from, to)
    };
    let in_registration = Err(DeviceError::Invalid("range: in a fast registration"));
    // Under the name of both, before and after the registration was executed, and under that of what comes after it.
    unsignaled(&mut pair, SendOp::RegMr { mr: mr.id, key, access: ALL }, &list);
    let to = pair.remote(1, 0);
    unsignaled(&mut pair, SendOp::Write(to), &[whole(&list, key)]);
    pair.post(0, 7, SendOp::Write(to), &[whole(&list, key)]);
    for wr in [0, 7] {
        assert_eq!(replace(&mut pair, wr, list[3]), in_registration, "work request {wr}");
    }
    pair.world.transmit();
    for wr in [0, 7] {
        assert_eq!(replace(&mut pair, wr, list[3]), in_registration, "work request {wr}");
        assert_eq!(replace(&mut pair, wr, list[MANY - 1]), in_registration, "work request {wr}");
        let between = Sge { addr: list[3].addr + PAGE as u64, ..list[3] };
        assert_eq!(replace(&mut pair, wr, between), Ok(()), "none of it is sent");
    }
    assert_eq!(pair.outcome(0), [(7, Success)]);

    let large = pair.sge(0, 0, 2 * PAGE);
    pair.post(0, 8, SendOp::Write(to), &[large]);
    let half = Sge { length: large.length / 2, ..large };
    let part = Err(DeviceError::Invalid("range: a part of a larger piece"));
    assert_eq!(replace(&mut pair, 8, half), part);
    assert_eq!(replace(&mut pair, 8, Sge { addr: half.addr + 5, ..half }), part);
    assert_eq!(replace(&mut pair, 9, half), Ok(()), "of another work request");
    assert_eq!(pair.outcome(0), [(8, Success)]);

    let mut persona = Pair::with_caps([usual(0), usual(1)], Persona::Rxe.caps());
    let sge = persona.sge(0, 0, PAGE);
    assert!(replace(&mut persona, 1, sge).is_err(), "a device that can't do it");
}
