//! Keys from their making to their end, by our calls, on the fake library.

use std::io::ErrorKind;

use t10pi::{Field, Format, Guard, PiType};

use super::super::{
    KeyKind, KeyState, Memory, MkeyError, Piece, SEPARATE_ENTRIES, SigBlock, Unsupported, ffi,
};
use super::device::PEER;
use super::world::{AT, REGISTER, TRANSFER, World};
use crate::mem::Lkey;
use crate::plan::Direction;
use crate::remote::{RemoteAddr, Rkey};
use crate::signature::testing::{attrs, domain, join};
use crate::signature::{SigError, SigStatus, Signature};
use crate::wc::WcStatus;
use crate::wr::{Sge, WrId};

const BLOCKS: usize = 4;

fn format() -> Format {
    Format::new(Guard::Crc16, 512, 8).unwrap()
}

/// Tuples go into memory as data comes.
fn insert(world: &World) -> SigBlock {
    let dif = domain(format(), PiType::Type1, 9);
    SigBlock::new(&attrs(Some(dif), None), Direction::FromHost, &world.caps()).unwrap()
}

/// Data that the peer has, and memory for it and its tuples.
fn prepare(world: &World) -> Memory<'static> {
    world.peer(&[0xA5; 512 * BLOCKS]);
    let data = world.memory(1, vec![0; 512 * BLOCKS]);
    let metadata = world.memory(2, vec![0; 8 * BLOCKS]);
    Memory::Separate { data: Piece::Sge(data), metadata: Piece::Sge(metadata) }
}

/// The tuples of data, as software makes them.
fn tuples(data: &[u8]) -> [u8; 8 * BLOCKS] {
    let dif = domain(format(), PiType::Type1, 9);
    let signature = Signature::new(&attrs(None, Some(dif)), Direction::ToHost).unwrap();
    let mut tuples = [0; 8 * BLOCKS];
    assert_eq!(signature.before_write(&[data], &[], &mut [&mut tuples]), SigStatus::Clean);
    tuples
}

fn state_of(error: &MkeyError) -> Option<KeyState> {
    if let MkeyError::State(state) = error { Some(*state) } else { None }
}

#[test]
fn a_key_is_registered_used_checked_and_used_again() {
    let mut world = World::new(124);
    let (block, key) = (insert(&world), world.signature_key());
    let memory = prepare(&world);
    assert_eq!(world.queue.state(key), Some(KeyState::Idle));
    for _ in 0..3 {
        let layout = world.post(key, &block, memory).unwrap();
        assert_eq!((layout.blocks, layout.wire), (4, 512 * 4));
        assert_eq!(world.queue.state(key), Some(KeyState::InFlight));
        let early = world.queue.check(key).unwrap_err();
        assert_eq!(state_of(&early), Some(KeyState::InFlight), "the completion was not polled");
        world.completed(key);
        let again = world.post(key, &block, memory).unwrap_err();
        assert_eq!(state_of(&again), Some(KeyState::Unchecked), "nobody asked what was found");
        assert_eq!(world.queue.check(key).unwrap(), SigStatus::Clean);
        let twice = world.queue.check(key).unwrap_err();
        assert_eq!(state_of(&twice), Some(KeyState::Checked));
    }
    // 512 bytes A5h: the guard that hardware makes when its seed is 0 (pi 8).
    let tuple = |block: u8| [0x9E, 0xC6, 0x12, 0x34, 0, 0, 0, 9 + block];
    assert_eq!(world.bytes(2), [tuple(0), tuple(1), tuple(2), tuple(3)].concat());
    assert_eq!(world.bytes(1), [0xA5; 512 * BLOCKS]);
}

#[test]
fn a_key_is_invalidated_and_destroyed_when_nothing_has_it() {
    let mut world = World::new(124);
    let (block, key) = (insert(&world), world.signature_key());
    let memory = prepare(&world);
    let mut batch = world.start();
    batch.register(REGISTER, key, &block, memory).unwrap();
    batch.complete().unwrap();
    assert_eq!(state_of(&world.queue.destroy_key(key).unwrap_err()), Some(KeyState::Posted));
    let mut batch = world.start();
    assert_eq!(state_of(&batch.register(REGISTER, key, &block, memory).unwrap_err()), Some(KeyState::Posted));
    batch.invalidate(WrId(7), key).unwrap();
    assert_eq!(state_of(&batch.transfer(TRANSFER, key, AT).unwrap_err()), Some(KeyState::Invalidating));
    batch.complete().unwrap();
    assert!(world.queue.destroy_key(key).is_err(), "its invalidation is under way");
    assert_eq!(world.fake.device().poll(), [(7, true)]);
    world.queue.handle_completion(key, WcStatus::Success).unwrap();
    assert_eq!(world.queue.state(key), Some(KeyState::Idle));
    assert_eq!(world.run(key, &block, memory), SigStatus::Clean, "it can be used as before");
    world.queue.destroy_key(key).unwrap();
    assert_eq!(world.queue.state(key), None);
    assert!(matches!(world.queue.destroy_key(key), Err(MkeyError::Unknown)));
    assert!(matches!(world.queue.check(key), Err(MkeyError::Unknown)));
    let next = world.signature_key();
    assert_eq!(world.run(next, &block, memory), SigStatus::Clean);
}

#[test]
fn a_list_that_is_given_up_or_refused_changes_nothing() {
    let mut world = World::new(124);
    let (block, key) = (insert(&world), world.signature_key());
    let memory = prepare(&world);
    let mut batch = world.start();
    batch.register(REGISTER, key, &block, memory).unwrap();
    batch.transfer(TRANSFER, key, AT).unwrap();
    drop(batch);
    assert_eq!(world.queue.state(key), Some(KeyState::Idle));
    // The library has less room than the device promised.
    let entries = |world: &World, to| {
        let mut device = world.fake.device();
        device.keys.values_mut().for_each(|key| key.entries = to);
    };
    entries(&world, 1);
    let MkeyError::Library { what, source } = world.post(key, &block, memory).unwrap_err() else {
        panic!("the library refuses")
    };
    assert_eq!((what, source.kind()), ("post work requests", ErrorKind::OutOfMemory));
    assert_eq!(world.queue.state(key), Some(KeyState::Idle));
    assert_eq!(world.fake.device().poll(), []);
    entries(&world, 4);
    assert_eq!(world.run(key, &block, memory), SigStatus::Clean);
}

#[test]
fn what_a_registration_can_not_have_is_refused_before_the_library_sees_it() {
    let mut world = World::new(124);
    let (block, key, list) = (insert(&world), world.signature_key(), world.key(KeyKind::List, 2));
    let Memory::Separate { data: Piece::Sge(data), metadata: Piece::Sge(metadata) } = prepare(&world) else {
        panic!("apart")
    };
    let (data_piece, metadata_piece) = (Piece::Sge(data), Piece::Sge(metadata));
    let mut batch = world.start();
    let mut refused = |id, memory| batch.register(REGISTER, id, &block, memory).unwrap_err();
    let short = Piece::Sge(Sge { length: 8, ..metadata });
    let error = refused(key, Memory::Separate { data: data_piece, metadata: short });
    assert!(matches!(error, MkeyError::Signature(SigError::Lengths { .. })), "{error}");
    let five = [data; 5];
    let error = refused(key, Memory::Row(&five));
    assert!(matches!(error, MkeyError::Entries { given: 5, allowed: 4 }), "{error}");
    assert!(matches!(refused(key, Memory::Row(&[])), MkeyError::Entries { given: 0, .. }));
    let separate = Memory::Separate { data: data_piece, metadata: metadata_piece };
    assert!(matches!(refused(list, separate), MkeyError::Kind));
    let unmapped = Memory::Separate { data: Piece::List(list), metadata: metadata_piece };
    assert!(matches!(refused(key, unmapped), MkeyError::Kind), "a list of nothing");
    assert!(matches!(batch.map(REGISTER, key, &[data]), Err(MkeyError::Kind)));
    assert!(matches!(batch.transfer(TRANSFER, key, AT), Err(MkeyError::Kind)), "nothing is registered");
    assert!(matches!(batch.map(REGISTER, list, &five), Err(MkeyError::Entries { .. })));
    // What was refused left the list as it was.
    batch.register(REGISTER, key, &block, separate).unwrap();
    batch.transfer(TRANSFER, key, AT).unwrap();
    batch.complete().unwrap();
    world.completed(key);
    assert_eq!(world.queue.check(key).unwrap(), SigStatus::Clean);
}

#[test]
fn keys_are_as_large_as_work_requests_allow() {
    let mut world = World::new(60);
    let error = world.queue.create_key(KeyKind::Signature, SEPARATE_ENTRIES).unwrap_err();
    assert!(matches!(error, MkeyError::Entries { given: 3, allowed: 0 }), "{error}");
    world.key(KeyKind::List, 4);
    assert!(world.queue.create_key(KeyKind::List, 5).is_err());
    assert!(world.queue.create_key(KeyKind::List, 0).is_err());
    let mut world = World::new(124);
    world.fake.device().caps = ffi::SigCaps::default();
    let MkeyError::Library { what, source } = world.queue.create_key(KeyKind::Signature, 3).unwrap_err()
    else {
        panic!("a device without signatures")
    };
    assert_eq!((what, source.raw_os_error()), ("make a key", Some(libc::EOPNOTSUPP)));
    let dif = domain(format(), PiType::Type1, 9);
    let refused = SigBlock::new(&attrs(Some(dif), None), Direction::FromHost, &world.caps()).unwrap_err();
    assert_eq!(refused, Unsupported::NoT10Dif.into());
}

#[test]
fn lists_make_one_piece_of_several_for_one_transfer() {
    let mut world = World::new(188);
    let (block, key) = (insert(&world), world.signature_key());
    let lists = [world.key(KeyKind::List, 3), world.key(KeyKind::List, 3)];
    prepare(&world);
    let sge =
        |lkey: u32, at: u64, length| Sge { addr: (u64::from(lkey) << 32) + at, length, lkey: Lkey(lkey) };
    // In another order than they lie in memory.
    let data = [sge(1, 1000, 1048), sge(1, 0, 700), sge(1, 700, 300)];
    let metadata = [sge(2, 9, 23), sge(2, 0, 9)];
    let memory = Memory::Separate { data: Piece::List(lists[0]), metadata: Piece::List(lists[1]) };
    for _ in 0..2 {
        let mut batch = world.start();
        batch.map(REGISTER, lists[0], &data).unwrap();
        batch.map(REGISTER, lists[1], &metadata).unwrap();
        let same = Memory::Separate { data: Piece::List(lists[0]), metadata: Piece::List(lists[0]) };
        assert!(matches!(batch.register(REGISTER, key, &block, same), Err(MkeyError::Kind)));
        batch.register(REGISTER, key, &block, memory).unwrap();
        let busy = batch.map(REGISTER, lists[0], &data).unwrap_err();
        assert_eq!(state_of(&busy), Some(KeyState::Used));
        batch.transfer(TRANSFER, key, AT).unwrap();
        batch.complete().unwrap();
        assert!(world.queue.destroy_key(lists[0]).is_err(), "a transfer has it");
        world.completed(key);
        assert_eq!(world.queue.check(key).unwrap(), SigStatus::Clean);
        assert_eq!(lists.map(|list| world.queue.state(list)), [Some(KeyState::Idle); 2]);
    }
    let tuples = tuples(&[0xA5; 512 * BLOCKS]);
    let stored = world.bytes(2);
    assert_eq!([&stored[9..], &stored[..9]].concat(), tuples);
    assert_eq!(world.bytes(1), [0xA5; 512 * BLOCKS]);

    // A registration that is taken back gives its lists back.
    let mut batch = world.start();
    batch.map(REGISTER, lists[0], &data).unwrap();
    batch.map(REGISTER, lists[1], &metadata).unwrap();
    batch.register(REGISTER, key, &block, memory).unwrap();
    batch.invalidate(TRANSFER, key).unwrap();
    batch.complete().unwrap();
    world.completed(key);
    assert_eq!(lists.map(|list| world.queue.state(list)), [Some(KeyState::Idle); 2]);
    for id in [key, lists[0], lists[1]] {
        world.queue.destroy_key(id).unwrap();
    }
}

#[test]
fn errors_are_taken_once_and_do_not_reach_the_next_transfer() {
    let mut world = World::new(124);
    let key = world.signature_key();
    let dif = domain(format(), PiType::Type1, 9);
    let strip = SigBlock::new(&attrs(None, Some(dif)), Direction::FromHost, &world.caps()).unwrap();
    let data = [0x5A; 512 * BLOCKS];
    let mut tuples = tuples(&data);
    let good = join(&format(), &data, &tuples);
    tuples[2 * 8 + 7] ^= 1;
    let bad = join(&format(), &data, &tuples);
    let memory = world.memory(1, vec![0; data.len()]);
    for (stream, fails) in [(&good, false), (&bad, true), (&good, false), (&bad, true)] {
        world.peer(stream);
        let status = world.run(key, &strip, Memory::Row(&[memory]));
        match status {
            SigStatus::Clean => assert!(!fails),
            SigStatus::Failed(error) => {
                assert!(fails);
                assert_eq!((error.field, error.offset), (Field::RefTag, 2 * 520));
                assert_eq!((error.expected, error.actual), (11, 10));
                assert_ne!(error.key, Rkey(0), "the registration's");
            }
        }
        assert_eq!(world.bytes(1), data, "what failed was moved all the same");
    }
}

#[test]
fn a_queue_that_failed_is_drained_before_keys_go() {
    let mut world = World::new(124);
    let (block, memory) = (insert(&world), prepare(&world));
    let [done, refused, flushed, idle] = [(); 4].map(|()| world.signature_key());
    world.post(done, &block, memory).unwrap();
    let mut batch = world.start();
    for (key, rkey) in [(refused, 0xBAD), (flushed, PEER)] {
        batch.register(REGISTER, key, &block, memory).unwrap();
        batch.transfer(TRANSFER, key, RemoteAddr { rkey: Rkey(rkey), ..AT }).unwrap();
    }
    batch.complete().unwrap();
    // The registration of the last is flushed too.
    let polled = world.fake.device().poll();
    assert_eq!(polled, [(2, true), (2, false), (1, false), (2, false)]);
    world.queue.handle_completion(done, WcStatus::Success).unwrap();
    world.queue.handle_completion(refused, WcStatus::RemAccessErr).unwrap();
    world.queue.handle_completion(flushed, WcStatus::WrFlushErr).unwrap();
    world.queue.handle_completion(flushed, WcStatus::WrFlushErr).unwrap();
    for key in [refused, flushed] {
        assert_eq!(world.queue.state(key), Some(KeyState::Failed));
        assert!(world.queue.check(key).is_err(), "nobody knows what moved");
        assert!(world.queue.destroy_key(key).is_err(), "a work request may still have it");
    }
    world.queue.handle_drained();
    assert!(matches!(world.queue.start(), Err(MkeyError::Drained)));
    assert_eq!(world.queue.check(done).unwrap(), SigStatus::Clean, "it was done before");
    for key in [done, refused, flushed, idle] {
        world.queue.destroy_key(key).unwrap();
    }
}

#[test]
fn reports_that_can_not_be_make_the_status_unknown() {
    for (err_type, offset, report) in [(9, 0, true), (1, 4 * 520, true), (u32::MAX, 0, false)] {
        let mut world = World::new(124);
        let (block, key) = (insert(&world), world.signature_key());
        let memory = prepare(&world);
        world.post(key, &block, memory).unwrap();
        world.completed(key);
        let error = ffi::MkeyErr { err_type, offset, ..ffi::MkeyErr::default() };
        world.fake.device().keys.values_mut().for_each(|key| key.error = Some(error));
        let unknown = world.queue.check(key).unwrap_err();
        assert_eq!(matches!(unknown, MkeyError::Report { .. }), report, "{unknown}");
        assert_eq!(matches!(unknown, MkeyError::Library { what: "check a key", .. }), !report, "{unknown}");
        assert_eq!(world.queue.state(key), Some(KeyState::Broken));
        assert!(world.post(key, &block, memory).is_err());
        world.queue.destroy_key(key).unwrap();
    }
}
