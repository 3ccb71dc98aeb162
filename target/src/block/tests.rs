//! The conformance suite: what every backend does alike, in each layout and block size.

mod bench;
#[cfg(feature = "_fault")]
mod faults;
mod files;
mod pending;
mod reactors;

use t10pi::Guard;

use self::bench::{Bench, Kind, Shape};
use super::*;

/// Every backend that keeps data, in every shape.
fn each(mut test: impl FnMut(Bench)) {
    for kind in Kind::ALL {
        for shape in Shape::all() {
            println!("{kind:?}, {shape:?}");
            test(Bench::new(kind, shape, 1024));
        }
    }
}

#[test]
fn blocks_that_nobody_wrote_are_zero_with_escape_tuples() {
    each(|mut bench| {
        let (data, md) = bench.read(0, 1024);
        assert!(data.iter().all(|&byte| byte == 0));
        assert_eq!(md, bench.unwritten(1024));
    });
}

#[test]
fn what_was_written_is_read_and_nothing_else_changed() {
    each(|mut bench| {
        let data = bench.pattern(7, 40);
        let md = bench.md_pattern(7, 40);
        bench.write(100, &data, &md).unwrap();
        assert_eq!(bench.read(100, 40), (data, md));
        let (data, md) = bench.read(99, 1);
        assert!(data.iter().all(|&byte| byte == 0));
        assert_eq!(md, bench.unwritten(1));
        let (data, md) = bench.read(140, 1);
        assert!(data.iter().all(|&byte| byte == 0));
        assert_eq!(md, bench.unwritten(1));
    });
}

#[test]
fn zeroed_blocks_have_the_given_metadata_or_zero() {
    each(|mut bench| {
        bench.write_pattern(0, 64);
        let md = bench.md_pattern(3, 20);
        bench.zero(10, 20, Some(&md)).unwrap();
        let (data, read) = bench.read(10, 20);
        assert!(data.iter().all(|&byte| byte == 0));
        assert_eq!(read, md);
        bench.zero(5, 30, None).unwrap();
        let (data, read) = bench.read(5, 30);
        assert!(data.iter().chain(&read).all(|&byte| byte == 0));
        bench.expect_pattern(0, 5);
        bench.expect_pattern(35, 29);
    });
}

#[test]
fn deallocated_blocks_are_as_nobody_had_written_them() {
    each(|mut bench| {
        bench.write_pattern(0, 1024);
        bench.deallocate(3, 1018).unwrap();
        let (data, md) = bench.read(3, 1018);
        assert!(data.iter().all(|&byte| byte == 0));
        assert_eq!(md, bench.unwritten(1018));
        bench.expect_pattern(0, 3);
        bench.expect_pattern(1021, 3);
    });
}

#[test]
fn data_and_metadata_can_be_read_alone() {
    each(|mut bench| {
        bench.write_pattern(50, 10);
        assert_eq!(bench.read_parts(52, 3, true, false).0, bench.pattern(52, 3));
        assert_eq!(bench.read_parts(52, 3, false, true).1, bench.md_pattern(52, 3));
    });
}

#[test]
fn flush_and_unit_access_succeed() {
    each(|mut bench| {
        bench.write_pattern(0, 8);
        bench.flush().unwrap();
        bench.fua = true;
        bench.write_pattern(8, 8);
        bench.zero(4, 2, None).unwrap();
        bench.deallocate(2, 1).unwrap();
        bench.expect_pattern(8, 8);
    });
}

#[test]
fn operations_beyond_the_end_are_refused_at_its_block() {
    each(|mut bench| {
        let (data, md) = (bench.pattern(0, 2), bench.md_pattern(0, 2));
        let error = bench.write(1023, &data, &md).unwrap_err();
        assert_eq!((error.kind, error.lba), (IoErrorKind::OutOfRange, 1024));
        let error = bench.deallocate(2000, 1).unwrap_err();
        assert_eq!((error.kind, error.lba), (IoErrorKind::OutOfRange, 2000));
        let error = bench.deallocate(u64::MAX, 2).unwrap_err();
        assert_eq!(error.kind, IoErrorKind::OutOfRange);
    });
}

#[test]
fn a_volume_grows_and_shrinks() {
    each(|mut bench| {
        bench.write_pattern(0, 1024);
        bench.volume.resize(1536).unwrap();
        assert_eq!(bench.volume.blocks(), 1536);
        bench.expect_pattern(0, 1024);
        let (data, md) = bench.read(1024, 512);
        assert!(data.iter().all(|&byte| byte == 0));
        assert_eq!(md, bench.unwritten(512));
        // Across the old end.
        bench.write_pattern(1000, 100);
        bench.expect_pattern(1000, 100);
        bench.volume.resize(100).unwrap();
        assert_eq!(bench.deallocate(100, 1).unwrap_err().kind, IoErrorKind::OutOfRange);
        bench.expect_pattern(0, 100);
        assert!(bench.volume.resize(0).is_err());
        assert_eq!(bench.volume.blocks(), 100);
    });
}

#[test]
fn any_sequence_of_operations_is_what_a_plain_array_says() {
    each(|mut bench| bench.compare_with_array(400));
}

#[test]
fn a_read_only_volume_is_read_only() {
    let shape = Shape { block_size: 512, guard: Some((Guard::Crc16, 8)), layout: Layout::Separate };
    let mut config = bench::memory(shape, 8);
    config.read_only = true;
    let mut bench = Bench::with(Volume::open(config).unwrap(), shape);
    let (data, md) = (bench.pattern(0, 1), bench.md_pattern(0, 1));
    for error in [
        bench.write(3, &data, &md).unwrap_err(),
        bench.zero(3, 1, None).unwrap_err(),
        bench.deallocate(3, 1).unwrap_err(),
    ] {
        assert_eq!((error.kind, error.lba), (IoErrorKind::ReadOnly, 3));
    }
    bench.flush().unwrap();
    assert_eq!(bench.read(3, 1).1, bench.unwritten(1));
}

#[test]
fn a_null_volume_takes_everything_and_keeps_nothing() {
    for shape in Shape::all() {
        let mut config = bench::memory(shape, 8);
        config.backend = BackendConfig::Null { size: 1 << 40 };
        let mut bench = Bench::with(Volume::open(config).unwrap(), shape);
        bench.write_pattern(1 << 27, 8);
        bench.zero(5, 3, None).unwrap();
        bench.deallocate(0, 1 << 27).unwrap();
        bench.flush().unwrap();
        let (data, md) = bench.read(1 << 27, 8);
        assert!(data.iter().all(|&byte| byte == 0));
        assert_eq!(md, bench.unwritten(8));
    }
}

#[test]
fn impossible_geometry_is_refused_with_what_is_allowed() {
    let shape = Shape { block_size: 512, guard: None, layout: Layout::Separate };
    let with = |change: &dyn Fn(&mut VolumeConfig)| {
        let mut config = bench::memory(shape, 8);
        change(&mut config);
        Volume::open(config).unwrap_err().to_string()
    };
    let error = with(&|config| config.block_size = 1024);
    assert!(error.contains("block size 1024") && error.contains("512 or 4096"), "{error}");
    for size in [0, 513, (1 << 60) + 512] {
        let error = with(&|config| config.backend = BackendConfig::Memory { size });
        assert!(error.contains(&size.to_string()) && error.contains("multiple of"), "{error}");
    }
    let error = with(&|config| {
        let format = t10pi::Format::new(Guard::Crc16, 4096, 8).unwrap();
        let pi_type = t10pi::PiType::Type1;
        config.protection = Some(Protection { format, pi_type, layout: Layout::Separate });
    });
    assert!(error.contains("4096") && error.contains("512"), "{error}");
}

#[test]
fn the_data_of_a_memory_volume_can_be_sent_from_where_it_lies() {
    let shape = Shape { block_size: 512, guard: Some((Guard::Crc16, 8)), layout: Layout::Separate };
    let mut bench = Bench::new(Kind::Memory, shape, 1024);
    bench.write_pattern(0, 1024);
    let (region, offset, length) = bench.volume.shared_data(10, 20).unwrap();
    let mut bytes = vec![0; length];
    region.read(offset, &mut bytes);
    assert_eq!(bytes, bench.pattern(10, 20));
    let guard = bench.volume.locks().try_lock(10, 20, Mode::Read).unwrap();
    assert_eq!(bench.volume.shared_bytes(&guard).unwrap(), bench.pattern(10, 20));
    drop(guard);
    // Growth leaves it where it is; a range in two pieces of memory is read instead.
    let first = std::sync::Arc::as_ptr(region);
    bench.volume.resize(2048).unwrap();
    assert_eq!(std::sync::Arc::as_ptr(bench.volume.shared_data(0, 1).unwrap().0), first);
    assert!(bench.volume.shared_data(1020, 8).is_none());
    assert!(bench.volume.shared_data(1024, 1024).is_some());
    assert!(bench.volume.shared_data(1024, 1025).is_none());
    bench.deallocate(0, 1024).unwrap();
    assert!(bench.read(0, 1024).0.iter().all(|&byte| byte == 0));
    let other = Shape { layout: Layout::Interleaved, ..shape };
    assert!(Bench::new(Kind::Memory, other, 8).volume.shared_data(0, 1).is_none());
}

#[test]
#[should_panic(expected = "holds their lock")]
fn an_operation_without_a_guard_is_our_bug() {
    let shape = Shape { block_size: 512, guard: None, layout: Layout::Separate };
    let mut bench = Bench::new(Kind::Memory, shape, 8);
    let mut io = bench.io(IoOp::Deallocate, 0, 4);
    io.guard = bench.volume.locks().try_lock(0, 3, Mode::Write);
    let _ = bench.engine.submit(io);
}

#[test]
fn a_large_deallocation_leaves_room_for_other_commands() {
    let shape = Shape { block_size: 4096, guard: Some((Guard::Crc16, 8)), layout: Layout::Separate };
    let mut bench = Bench::new(Kind::Memory, shape, 1024);
    bench.write_pattern(0, 1024);
    let mut io = bench.io(IoOp::Deallocate, 0, 1024);
    io.guard = bench.volume.locks().try_lock(0, 1024, Mode::Write);
    assert!(matches!(bench.engine.submit(io), Submit::Pending));
    assert_eq!(bench.engine.in_flight(), 1);
    let mut polls = 0;
    let done = loop {
        assert!(bench.readable(), "the reactor is told that there is more to do");
        bench.engine.clear_event();
        polls += 1;
        if let Some(done) = bench.engine.poll() {
            break done;
        }
    };
    assert_eq!((done.result, polls), (Ok(()), 4));
    drop(done);
    assert_eq!(bench.read(1023, 1).1, bench.unwritten(1));
}

#[test]
fn a_waiting_command_on_another_reactor_is_woken() {
    let shape = Shape { block_size: 512, guard: None, layout: Layout::Separate };
    let bench = Bench::new(Kind::Memory, shape, 8);
    let mut other = Bench::with(std::sync::Arc::clone(&bench.volume), shape);
    let held = bench.volume.locks().try_lock(0, 8, Mode::Write).unwrap();
    let Lock::Waiting(mut wait) = other.volume.locks().lock(4, 1, Mode::Read, other.waker) else {
        panic!("the blocks are held");
    };
    assert!(!other.readable() && !other.engine.take_wakeup());
    drop(held);
    assert!(other.readable() && !bench.readable());
    other.engine.clear_event();
    assert!(other.engine.take_wakeup() && !other.engine.take_wakeup());
    assert!(wait.poll().is_some());
}
