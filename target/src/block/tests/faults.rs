//! Storage that fails, comes short, comes late or leaves damage.

use std::time::{Duration, Instant};

use t10pi::Guard;

use super::super::fault::{Damage, Effect, Moment, Place, Rule};
use super::super::*;
use super::bench::{Bench, Kind, Shape};
use super::each;

const SEPARATE: Shape = Shape { block_size: 512, guard: Some((Guard::Crc16, 8)), layout: Layout::Separate };
const INTERLEAVED: Shape = Shape { layout: Layout::Interleaved, ..SEPARATE };

fn rule(op: IoOp, lbas: std::ops::Range<u64>, effect: Effect) -> Rule {
    Rule { op: Some(op), lbas, count: 1, effect }
}

#[test]
fn transfers_that_come_short_are_continued() {
    each(|mut bench| {
        for bytes in [1, 512, 1000, 4096, 10_000] {
            let short = Effect::Short { bytes };
            bench.volume.add_fault(rule(IoOp::Write, 0..1024, short));
            bench.volume.add_fault(rule(IoOp::Read, 0..1024, short));
            bench.write_pattern(7, 200);
            bench.expect_pattern(7, 200);
            assert!(bench.volume.clear_faults().is_empty(), "both rules applied");
        }
    });
}

#[test]
fn a_failure_of_data_names_its_first_block() {
    for kind in Kind::ALL {
        let mut bench = Bench::new(kind, SEPARATE, 1024);
        bench.write_pattern(0, 1024);
        for (errno, expected) in [
            (libc::EIO, IoErrorKind::Media),
            (libc::ENOSPC, IoErrorKind::NoSpace),
            (libc::EROFS, IoErrorKind::ReadOnly),
            (libc::ETIMEDOUT, IoErrorKind::Timeout),
            (libc::EPROTO, IoErrorKind::Internal),
        ] {
            let fail = Effect::Fail { errno, area: Area::Data };
            for op in [IoOp::Read, IoOp::Write] {
                bench.volume.add_fault(rule(op, 77..80, fail));
                let (data, md) = (bench.pattern(70, 20), bench.md_pattern(70, 20));
                let io = Io { op, ..bench.write_io(70, &data, &md) };
                let error = bench.run(io).result.unwrap_err();
                assert_eq!((error.kind, error.lba, error.area), (expected, 77, Area::Data), "{kind:?}");
                assert_eq!(error.errno, errno);
            }
        }
        // The target lives, and so does the volume.
        bench.write_pattern(70, 20);
        bench.expect_pattern(0, 1024);
    }
}

#[test]
fn every_operation_can_fail_and_hands_everything_back() {
    for kind in Kind::ALL {
        for shape in [SEPARATE, INTERLEAVED] {
            let mut bench = Bench::new(kind, shape, 1024);
            bench.write_pattern(0, 1024);
            let area = if kind == Kind::Memory || shape == INTERLEAVED { Area::Data } else { Area::Metadata };
            let fail = Effect::Fail { errno: libc::EIO, area };
            let rule = Rule { op: None, lbas: 0..1024, count: 4, effect: fail };
            bench.volume.add_fault(rule);
            let (data, md) = (bench.pattern(5, 100), bench.md_pattern(5, 100));
            for error in [
                bench.write(5, &data, &md).unwrap_err(),
                bench.zero(5, 100, Some(&md)).unwrap_err(),
                bench.deallocate(5, 100).unwrap_err(),
            ] {
                assert_eq!((error.kind, error.area), (IoErrorKind::Media, area), "{kind:?}");
                assert!((5..105).contains(&error.lba), "{error}");
            }
            let error = bench.flush().unwrap_err();
            assert_eq!((error.kind, error.area), (IoErrorKind::Media, area), "{kind:?}");
            bench.volume.clear_faults();
            assert_eq!(bench.engine.in_flight(), 0);
            assert!(bench.volume.locks().try_lock(0, 1024, Mode::Write).is_some());
            assert_eq!(bench.pool.free_bytes(), bench.pool.region().len());
            bench.write_pattern(0, 1024);
            bench.expect_pattern(0, 1024);
        }
    }
}

#[test]
fn a_failing_sector_fails_those_who_share_it_and_nobody_else() {
    let mut bench = Bench::new(Kind::File, SEPARATE, 1024);
    // Blocks 0 to 63 have their metadata in the first sector.
    let fail = Effect::Fail { errno: libc::EIO, area: Area::Metadata };
    bench.volume.add_fault(rule(IoOp::Write, 3..4, fail));
    for lba in [1, 3, 5, 70] {
        let (data, md) = (bench.pattern(lba, 1), bench.md_pattern(lba, 1));
        let mut io = bench.write_io(lba, &data, &md);
        io.guard = bench.volume.locks().try_lock(lba, 1, Mode::Write);
        assert!(matches!(bench.engine.submit(io), Submit::Pending));
    }
    for _ in 0..4 {
        let done = bench.wait();
        match done.io.slba {
            70 => assert_eq!(done.result, Ok(())),
            lba => assert_eq!(done.result.unwrap_err().lba, lba),
        }
    }
    bench.write_pattern(0, 100);
    bench.expect_pattern(0, 100);
}

#[test]
fn a_torn_write_leaves_one_block_whose_metadata_is_old() {
    for kind in Kind::ALL {
        for shape in [SEPARATE, INTERLEAVED] {
            let mut bench = Bench::new(kind, shape, 64);
            bench.write_pattern(0, 64);
            bench.volume.add_fault(rule(IoOp::Write, 13..14, Effect::Torn));
            let (data, md) = (bench.pattern(1010, 8), bench.md_pattern(1010, 8));
            let error = bench.write(10, &data, &md).unwrap_err();
            assert_eq!((error.kind, error.lba), (IoErrorKind::Media, 13));
            let read = bench.read(10, 3);
            assert_eq!(read, (bench.pattern(1010, 3), bench.md_pattern(1010, 3)), "{kind:?}");
            let read = bench.read(13, 1);
            assert_eq!(read, (bench.pattern(1013, 1), bench.md_pattern(13, 1)), "{kind:?}");
            bench.expect_pattern(14, 50);
            bench.expect_pattern(0, 10);
        }
    }
}

#[test]
fn damage_to_a_stored_byte_is_read() {
    each(|mut bench| {
        bench.write_pattern(0, 64);
        bench.volume.corrupt(9, Place::Data(100), 0x10);
        let mut expected = bench.pattern(8, 3);
        let block = bench.volume.block_size() as usize;
        expected[block + 100] ^= 0x10;
        assert!(bench.read(8, 3).0 == expected);
        bench.expect_pattern(10, 10);
        if bench.volume.protection().is_some() {
            bench.volume.add_fault(rule(
                IoOp::Write,
                20..21,
                Effect::Corrupt { place: Place::Metadata(7), mask: 0x80 },
            ));
            bench.write_pattern(18, 4);
            let mut expected = bench.md_pattern(18, 4);
            expected[2 * usize::from(bench.volume.metadata_size()) + 7] ^= 0x80;
            assert!(bench.read(18, 4).1 == expected);
            bench.volume.add_fault(rule(
                IoOp::Read,
                18..19,
                Effect::Corrupt { place: Place::Data(0), mask: 1 },
            ));
            let damaged = bench.read(18, 1).0[0] ^ 1;
            assert_eq!(damaged, bench.pattern(18, 1)[0]);
        }
    });
}

#[test]
fn a_block_is_damaged_once_where_it_is_in_memory() {
    for kind in Kind::ALL {
        for shape in [SEPARATE, INTERLEAVED] {
            let mut bench = Bench::new(kind, shape, 64);
            bench.write_pattern(0, 64);
            let (data, md) = (bench.pattern(40, 1), bench.md_pattern(40, 1));
            let damage = |moment, lba| Damage { moment, lba, data: data.clone(), md: md.clone() };
            bench.volume.damage_on_the_way(damage(Moment::Read, 5));
            bench.expect_pattern(6, 10);
            let read = bench.read(4, 3);
            assert_eq!((&read.0[512..1024], &read.1[8..16]), (&data[..], &md[..]), "{kind:?}");
            bench.expect_pattern(4, 3);
            bench.volume.damage_on_the_way(damage(Moment::Checked, 5));
            bench.write_pattern(0, 10);
            assert_eq!(bench.read(5, 1), (data.clone(), md.clone()), "{kind:?}");
            bench.write_pattern(0, 10);
            bench.expect_pattern(0, 10);
            bench.volume.damage_on_the_way(damage(Moment::Leaving, 5));
            assert_eq!(bench.volume.clear_damage().len(), 1, "an engine sees no such block");
            assert!(!bench.volume.has_faults());
        }
    }
}

#[test]
fn memory_is_seen_and_changed_behind_the_targets_back() {
    for shape in Shape::all() {
        let mut bench = Bench::new(Kind::Memory, shape, 64);
        bench.write_pattern(0, 64);
        let [one, other] = [9, 30].map(|lba| [bench.pattern(lba, 1), bench.md_pattern(lba, 1)].concat());
        assert_eq!(bench.volume.stored(9), one);
        bench.volume.store(9, &other);
        assert_eq!(bench.volume.stored(9), other);
        let (data, md) = bench.read(9, 1);
        assert_eq!([data, md].concat(), other);
        bench.expect_pattern(10, 10);
    }
}

#[test]
fn a_delayed_operation_completes_later_and_others_do_not_wait() {
    for kind in Kind::ALL {
        let mut bench = Bench::new(kind, SEPARATE, 64);
        let time = Duration::from_millis(30);
        bench.volume.add_fault(rule(IoOp::Write, 1..2, Effect::Delay(time)));
        #[expect(clippy::disallowed_methods, reason = "the delay is real time")]
        let start = Instant::now();
        let (data, md) = (bench.pattern(0, 4), bench.md_pattern(0, 4));
        let mut io = bench.write_io(0, &data, &md);
        io.guard = bench.volume.locks().try_lock(0, 4, Mode::Write);
        assert!(matches!(bench.engine.submit(io), Submit::Pending));
        assert_eq!(bench.engine.in_flight(), 1);
        let io = Io { token: 99, ..bench.io(IoOp::Deallocate, 8, 8) };
        assert_eq!(bench.run(io).io.token, 99);
        let done = bench.wait();
        assert_eq!((done.io.token, done.result), (17, Ok(())));
        assert!(start.elapsed() >= time);
        drop(done);
        bench.expect_pattern(0, 4);
    }
}
