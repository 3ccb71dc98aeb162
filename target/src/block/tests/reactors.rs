//! Several reactors on one volume.

use std::sync::Arc;

use t10pi::Guard;

use super::super::*;
use super::bench::{Bench, Kind, Shape};

/// Operations under way on one reactor.
const DEPTH: usize = 8;
const BLOCKS: u64 = 96;

/// A stamp for each operation, in every byte pair of its data and metadata.
fn stamped(stamp: u16, length: usize) -> Vec<u8> {
    stamp.to_be_bytes().repeat(length / 2)
}

/// Each block has one stamp throughout, and its metadata the same; a block that nobody wrote has none.
fn check(volume: &Volume, io: &Io) {
    let (data, md) = (io.data.as_ref().unwrap().bytes(), io.md.as_ref().unwrap().bytes());
    let (block, each) = (volume.block_size() as usize, usize::from(volume.metadata_size()));
    for (index, (data, md)) in data.chunks(block).zip(md.chunks(each)).enumerate() {
        let stamp = &data[..2];
        let lba = io.slba + index as u64;
        assert!(data.chunks(2).all(|pair| pair == stamp), "block {lba} is torn");
        if stamp == [0, 0] {
            assert!(md.iter().all(|&byte| byte == 0xFF), "block {lba}: metadata of another write");
        } else {
            assert!(md.chunks(2).all(|pair| pair == stamp), "block {lba}: metadata of another write");
        }
    }
}

fn reactor(mut bench: Bench, seed: u16) {
    let mut random = u64::from(seed);
    let mut next = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut waits: Vec<(Io, RangeWait)> = Vec::new();
    let mut ready: Vec<Io> = Vec::new();
    let (mut started, mut done) = (0_u16, 0_u16);
    while done < 600 {
        while started < 600 && usize::from(started - done) < DEPTH {
            started += 1;
            let slba = next(BLOCKS - 1);
            let nlb = u32::try_from(1 + next((BLOCKS - slba).min(20))).unwrap();
            let block = bench.volume.block_size() as usize;
            let each = usize::from(bench.volume.metadata_size());
            let stamp = started * 3 + seed;
            let mut io = bench.write_io(
                slba,
                &stamped(stamp, nlb as usize * block),
                &stamped(stamp, nlb as usize * each),
            );
            match next(8) {
                0..=2 => io.op = IoOp::Read,
                3 => io = bench.io(IoOp::Deallocate, slba, nlb),
                _ => {}
            }
            let mode = if io.op == IoOp::Read { Mode::Read } else { Mode::Write };
            match bench.volume.locks().lock(slba, u64::from(nlb), mode, bench.waker) {
                Lock::Held(guard) => ready.push(Io { guard: Some(guard), ..io }),
                Lock::Waiting(wait) => waits.push((io, wait)),
            }
        }
        if bench.engine.take_wakeup() {
            let mut still = Vec::new();
            for (io, mut wait) in waits.drain(..) {
                match wait.poll() {
                    Some(guard) => ready.push(Io { guard: Some(guard), ..io }),
                    None => still.push((io, wait)),
                }
            }
            waits = still;
        }
        let mut completed = Vec::new();
        for io in ready.drain(..) {
            match bench.engine.submit(io) {
                Submit::Done(done) => completed.push(done),
                Submit::Pending => {}
                Submit::Busy(_) => panic!("there is room"),
            }
        }
        completed.extend(std::iter::from_fn(|| bench.engine.poll()));
        if completed.is_empty() && !waits.is_empty() | (bench.engine.in_flight() > 0) {
            bench.sleep();
        }
        for finished in completed {
            assert_eq!(finished.result, Ok(()));
            done += 1;
            if finished.io.op == IoOp::Read {
                check(&bench.volume, &finished.io);
            }
        }
    }
}

#[test]
fn overlapping_operations_of_several_reactors_never_tear_a_block_or_part_its_metadata() {
    for kind in Kind::ALL {
        for layout in [Layout::Separate, Layout::Interleaved] {
            let shape = Shape { block_size: 512, guard: Some((Guard::Crc16, 8)), layout };
            let first = Bench::new(kind, shape, BLOCKS);
            let volume = Arc::clone(&first.volume);
            std::thread::scope(|scope| {
                for seed in 0..3 {
                    let volume = Arc::clone(&volume);
                    scope.spawn(move || reactor(Bench::with(volume, shape), seed));
                }
            });
            drop(first);
        }
    }
}
