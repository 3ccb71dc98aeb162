use std::sync::Arc;

use t10pi::{Checks, Format, Guard, PiContext, PiType, Tags};

use super::*;
use crate::device::{DeviceError, Qpn};
use crate::plan::Direction;
use crate::signature::{SigAttrs, SigStatus, Signature};
use crate::wr::Sge;

const ALL: Access = Access { local_write: true, remote_read: true, remote_write: true };

fn region(length: usize) -> Arc<Region> {
    Arc::new(Region::new(length).unwrap())
}

fn sge(mr: &Mr, offset: u64, length: u32) -> Sge {
    Sge { addr: mr.addr + offset, length, lkey: mr.lkey }
}

#[test]
fn a_range_is_reached_up_to_its_last_byte_and_not_beyond() {
    let mut table = MemTable::default();
    let pd = table.alloc_pd().unwrap();
    let mr = table.register(pd, &region(8192), 100, 1000, ALL).unwrap();
    for (addr, length, granted) in [
        (mr.addr, 1000, true),
        (mr.addr, 1001, false),
        (mr.addr - 1, 1, false),
        (mr.addr + 999, 1, true),
        (mr.addr + 1000, 0, true),
        (mr.addr + 1000, 1, false),
        (mr.addr + 1001, 0, false),
        (u64::MAX, 1, false),
        (u64::MAX, usize::MAX, false),
        (mr.addr + 1, usize::MAX, false),
        (0, 1, false),
    ] {
        assert_eq!(table.local(pd, mr.lkey, addr, length).is_ok(), granted, "{addr:#x} {length}");
        assert_eq!(table.remote(pd, mr.rkey, addr, length).is_ok(), granted, "{addr:#x} {length}");
        if length != 0 && length < 2000 {
            let bytes = vec![1; length];
            assert_eq!(table.write_remote(pd, mr.rkey, addr, &bytes).is_ok(), granted);
        }
    }
}

#[test]
fn rights_are_those_given() {
    let mut table = MemTable::default();
    let pd = table.alloc_pd().unwrap();
    let memory = region(4096);
    let none = table.register(pd, &memory, 0, 4096, Access::default()).unwrap();
    let read =
        table.register(pd, &memory, 0, 4096, Access { remote_read: true, ..Access::default() }).unwrap();
    assert!(table.local(pd, none.lkey, none.addr, 1).is_ok());
    assert_eq!(table.scatter(pd, &[sge(&none, 0, 4)], 0, &[1]), Err(MemError::Rights));
    assert_eq!(table.remote(pd, none.rkey, none.addr, 1).unwrap_err(), MemError::Rights);
    assert_eq!(table.write_remote(pd, read.rkey, read.addr, &[1]), Err(MemError::Rights));
    assert!(table.remote(pd, read.rkey, read.addr, 1).is_ok());
    assert_eq!(table.check_remote(pd, read.rkey, read.addr, 1, Remote::Write), Err(MemError::Rights));
    assert_eq!(table.check_remote(pd, Rkey(7), 0, 0, Remote::Write), Ok(()));
    let inconsistent = Access { remote_write: true, ..Access::default() };
    assert!(table.register(pd, &memory, 0, 4096, inconsistent).is_err());
}

#[test]
fn a_key_is_unknown_in_another_protection_domain() {
    let mut table = MemTable::default();
    let (ours, theirs) = (table.alloc_pd().unwrap(), table.alloc_pd().unwrap());
    let mr = table.register(ours, &region(4096), 0, 4096, ALL).unwrap();
    assert_eq!(table.remote(theirs, mr.rkey, mr.addr, 1).unwrap_err(), MemError::Key);
    assert_eq!(table.local(theirs, mr.lkey, mr.addr, 1).unwrap_err(), MemError::Key);
    assert_eq!(table.write_remote(theirs, mr.rkey, mr.addr, &[1]), Err(MemError::Key));
}

#[test]
fn a_deregistered_key_names_nothing_even_when_its_index_is_used_again() {
    let mut table = MemTable::new(1);
    let pd = table.alloc_pd().unwrap();
    let memory = region(4096);
    let mut seen = Vec::new();
    for _ in 0..300 {
        let mr = table.register(pd, &memory, 0, 4096, ALL).unwrap();
        assert_eq!(table.live(), 1);
        assert!(table.register(pd, &memory, 0, 4096, ALL).is_err(), "capacity is kept");
        assert_ne!(Some(&mr.rkey), seen.last());
        table.deregister(mr.id).unwrap();
        assert!(table.deregister(mr.id).is_err());
        assert!(table.remote(pd, mr.rkey, mr.addr, 1).is_err());
        seen.push(mr.rkey);
    }
    assert_eq!(seen[0], seen[256], "the step byte wraps");
    assert_eq!((table.live(), Arc::strong_count(&memory)), (0, 1));
}

#[test]
fn fast_registration_grants_a_window_until_it_is_invalidated() {
    let mut table = MemTable::default();
    let pd = table.alloc_pd().unwrap();
    let memory = table.register(pd, &region(8192), 0, 8192, ALL).unwrap();
    let fast = table.alloc_fast_reg(pd, 4).unwrap();
    assert!(table.remote(pd, fast.rkey, memory.addr, 1).is_err(), "invalid until it is registered");
    let key = Rkey(fast.rkey.0 & !0xFF | 0x77);
    let window = (memory.addr + 4096, 100);
    let list = [Sge { addr: window.0, length: 100, lkey: memory.lkey }];
    table.fast_register(pd, fast.id, key, ALL, list.into_iter()).unwrap();
    assert!(table.remote(pd, key, window.0, 100).is_ok());
    assert!(table.remote(pd, key, window.0, 101).is_err());
    assert!(table.remote(pd, key, memory.addr, 1).is_err());
    assert!(table.remote(pd, fast.rkey, window.0, 1).is_err(), "the old key is gone");
    let again = table.fast_register(pd, fast.id, key, ALL, list.into_iter());
    assert_eq!(again, Err(MemError::State), "a valid region is not registered again");
    table.invalidate(pd, key).unwrap();
    assert!(table.remote(pd, key, window.0, 1).is_err());
    assert_eq!(table.invalidate(pd, key), Err(MemError::Key), "never twice");
    assert_eq!(table.invalidate(pd, memory.rkey), Err(MemError::State), "plain regions stay");
}

#[test]
fn fast_registration_can_not_exceed_the_memory_it_is_made_of() {
    let mut table = MemTable::default();
    let (pd, other) = (table.alloc_pd().unwrap(), table.alloc_pd().unwrap());
    let pages = region(8192);
    let memory = table.register(pd, &pages, 0, 4096, Access::default()).unwrap();
    let fast = table.alloc_fast_reg(pd, 4).unwrap();
    let read = Access { remote_read: true, ..Access::default() };
    let mut register = |pd, id, key, access, addr, length, lkey| {
        table.fast_register(pd, id, key, access, [Sge { addr, length, lkey }].into_iter())
    };
    let (id, key, at, lkey) = (fast.id, fast.rkey, memory.addr, memory.lkey);
    assert_eq!(register(pd, id, key, ALL, at, 4096, lkey), Err(MemError::Rights));
    assert_eq!(register(pd, id, key, read, at, 4097, lkey), Err(MemError::Range));
    assert_eq!(register(pd, id, key, read, at, 0, lkey), Err(MemError::Range));
    assert_eq!(register(pd, id, key, read, at - 1, 2, lkey), Err(MemError::Range));
    assert_eq!(register(other, id, key, read, at, 1, lkey), Err(MemError::Key));
    assert_eq!(register(pd, id, Rkey(key.0 + 256), read, at, 1, lkey), Err(MemError::Key));
    assert_eq!(register(pd, memory.id, memory.rkey, read, at, 1, lkey), Err(MemError::Key));
    assert_eq!(register(pd, id, key, read, at, 4096, lkey), Ok(()));
}

#[test]
fn messages_are_gathered_and_scattered_over_any_split() {
    let mut table = MemTable::default();
    let pd = table.alloc_pd().unwrap();
    let pages = region(4096);
    let mr = table.register(pd, &pages, 0, 4096, ALL).unwrap();
    let sges = [sge(&mr, 100, 3), sge(&mr, 50, 0), sge(&mr, 7, 5), sge(&mr, 900, 8)];
    let message: Vec<u8> = (1..=16).collect();
    for offset in 0..=16_u32 {
        for length in 0..=(16 - offset as usize) {
            pages.write(0, &[0; 4096]);
            let part = &message[offset as usize..offset as usize + length];
            table.scatter(pd, &sges, offset, part).unwrap();
            let mut iovs = [Iov::EMPTY; 4];
            let pieces = table.gather(pd, &sges, offset, length, &mut iovs).unwrap();
            let mut back = Vec::new();
            iovs[..pieces].iter().for_each(|iov| iov.append_to(&mut back));
            assert_eq!(back, part);
        }
    }
    assert_eq!(table.scatter(pd, &sges, 10, &[1; 7]), Err(MemError::Range));
    let mut end = [0; 8];
    pages.read(900, &mut end);
    assert_eq!(end[2..], [1; 6]);
}

/// Memory with a pattern, and a fast registration that maps some of it in another order.
fn scattered(
    table: &mut MemTable,
    pd: Pd,
    access: Access,
    list: &[(u64, u32)],
) -> (Arc<Region>, Mr, Result<(), MemError>, Sge) {
    let pages = region(8 * 4096);
    let pattern: Vec<u8> = (0..8 * 4096_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    pages.write(0, &pattern);
    let memory = table.register(pd, &pages, 0, pages.len(), ALL).unwrap();
    let fast = table.alloc_fast_reg(pd, 4).unwrap();
    let key = Rkey(fast.rkey.0 ^ 1);
    let sges: Vec<Sge> = list.iter().map(|&(offset, length)| sge(&memory, offset, length)).collect();
    let registered = table.fast_register(pd, fast.id, key, access, sges.iter().copied());
    let length = list.iter().map(|(_, length)| length).sum();
    let whole = Sge { addr: memory.addr + list[0].0, length, lkey: Lkey(key.0) };
    (pages, fast, registered, whole)
}

#[test]
fn a_fast_registration_shows_scattered_pages_as_one_range() {
    let list = [(5 * 4096 + 4000, 96), (4096, 4096), (2 * 4096, 4096), (7 * 4096, 100)];
    let mut table = MemTable::default();
    let pd = table.alloc_pd().unwrap();
    let (pages, fast, registered, whole) = scattered(&mut table, pd, ALL, &list);
    registered.unwrap();
    let mut expected = Vec::new();
    for (offset, length) in list {
        let mut bytes = vec![0; length as usize];
        pages.read(usize::try_from(offset).unwrap(), &mut bytes);
        expected.extend(bytes);
    }
    let total = whole.length as usize;
    for (offset, length) in
        [(0, 4096), (0, 96), (95, 2), (96, 4096), (4000, 4096), (total - 101, 101), (total, 0)]
    {
        let at = u32::try_from(offset).unwrap();
        let mut iovs = [Iov::EMPTY; PACKET_PIECES];
        let pieces = table.gather(pd, &[whole], at, length, &mut iovs).unwrap();
        let mut bytes = Vec::new();
        iovs[..pieces].iter().for_each(|iov| iov.append_to(&mut bytes));
        assert_eq!(bytes, expected[offset..offset + length], "{length} bytes at {offset}");
        let first = table.remote(pd, Rkey(whole.lkey.0), whole.addr + u64::from(at), length).unwrap();
        let all = table.local(pd, whole.lkey, whole.addr + u64::from(at), length);
        assert_eq!(all.is_ok(), first.len() == length);
        assert_eq!(first.len(), iovs.first().map_or(0, Iov::len), "{length} bytes at {offset}");
    }
    assert_eq!(table.gather(pd, &[whole], 0, 4096, &mut [Iov::EMPTY]), Err(MemError::Pieces));
    // Writing, by ourselves and by a peer, over the seams.
    let bytes: Vec<u8> = (0..total).map(|i| u8::try_from(i % 251).unwrap()).collect();
    table.scatter(pd, &[whole], 0, &bytes[..4200]).unwrap();
    table.write_remote(pd, Rkey(whole.lkey.0), whole.addr + 4200, &bytes[4200..]).unwrap();
    let mut at = 0;
    for (offset, length) in list {
        let mut there = vec![0; length as usize];
        pages.read(usize::try_from(offset).unwrap(), &mut there);
        assert_eq!(there, bytes[at..at + length as usize]);
        at += length as usize;
    }
    assert_eq!(table.write_remote(pd, Rkey(whole.lkey.0), whole.addr + 1, &bytes), Err(MemError::Range));
    // All of it is let go of.
    table.deregister(fast.id).unwrap();
    assert_eq!(Arc::strong_count(&pages), 2);
}

#[test]
fn a_list_that_pages_can_not_hold_is_not_registered() {
    for list in [
        &[(0, 4096), (4096 * 3 + 1, 10)][..],
        &[(0, 100), (4096, 4096)],
        &[(0, 3 * 4096), (4 * 4096, 4096), (6 * 4096, 1)],
        &[(1, 4 * 4096)],
    ] {
        let mut table = MemTable::default();
        let pd = table.alloc_pd().unwrap();
        let (.., refused, whole) = scattered(&mut table, pd, ALL, list);
        assert_eq!(refused, Err(MemError::Range), "{list:?}");
        assert_eq!(table.gather(pd, &[whole], 0, 1, &mut [Iov::EMPTY]), Err(MemError::Key));
    }
}

#[test]
fn a_read_over_iwarp_needs_a_sink_that_peers_may_write() {
    let mut table = MemTable::default().with_sinks(Sinks::Remote);
    let pd = table.alloc_pd().unwrap();
    let local = Access { local_write: true, ..Access::default() };
    let closed = table.register(pd, &region(4096), 0, 4096, local).unwrap();
    let open = table.register(pd, &region(4096), 0, 4096, ALL).unwrap();
    assert_eq!(table.check_sinks(pd, &[sge(&closed, 0, 1)]), Err(MemError::Rights));
    assert_eq!(table.check_sinks(pd, &[sge(&open, 0, 4096)]), Ok(()));
    assert_eq!(table.check_sinks(pd, &[sge(&open, 1, 4096)]), Err(MemError::Range));
    assert_eq!(MemTable::default().check_sinks(pd, &[sge(&closed, 0, 1)]), Ok(()));
}

#[test]
fn a_signature_runs_over_the_blocks_of_its_transfer_whatever_came_beyond() {
    let mut table = MemTable::default();
    let pd = table.alloc_pd().unwrap();
    let memory = table.register(pd, &region(4 * 4096), 0, 4 * 4096, ALL).unwrap();
    let format = Format::new(Guard::Crc16, 512, 8).unwrap();
    let pi = PiContext::new(&format, PiType::Type1, Checks::ALL, Tags::default()).unwrap();
    let signature = Signature::new(&SigAttrs::insert(&pi), Direction::FromHost).unwrap();
    let mr = table.alloc_integrity(pd, 3).unwrap();
    // One batch and a half: behind the last block the lists end.
    let (data, md) = (sge(&memory, 0, 24 * 512), sge(&memory, 3 * 4096, 24 * 8));
    let layout = table.map_integrity(mr.id, &signature, &[data], &[md]).unwrap();
    let key = Rkey(mr.rkey.0 + 1);
    table.register_integrity(pd, mr.id, key, Access { local_write: true, ..Access::default() }).unwrap();
    let whole = Sge { addr: 0, length: layout.wire, lkey: Lkey(key.0) };
    let by = Use { qpn: Qpn(2), number: 0, direction: Direction::FromHost };
    table.use_integrity(pd, &whole, by).unwrap();
    assert_eq!(table.sig_status(mr.id), Err(DeviceError::Busy("the transfer of the registration")));
    for bytes in [512, u32::MAX, u32::MAX] {
        assert_eq!(table.sign_incoming(pd, whole.lkey, bytes), Ok(()), "{bytes} bytes");
    }
    assert_eq!(table.sig_status(mr.id), Ok(SigStatus::Clean));
}
