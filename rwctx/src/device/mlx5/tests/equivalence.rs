//! The device and the software execute signatures alike: bytes in memory, bytes on the wire, status.

use t10pi::{Checks, Field, Format, Guard, PiType};

use super::super::{KeyKind, Memory, MkeyId, Piece, SigBlock, Unsupported};
use super::world::{REGISTER, TRANSFER, World};
use crate::mem::Lkey;
use crate::plan::Direction;
use crate::signature::testing::{attrs, domain, join, protected};
use crate::signature::{CopyMask, Operation, SigAttrs, SigErr, SigStatus, Signature, T10Dif};
use crate::wr::Sge;

const BLOCKS: usize = 5;

/// What is moved, and with what signature.
struct Case {
    attrs: SigAttrs,
    direction: Direction,
    format: Format,
    /// Data, and the tuples that come with it, if any do.
    data: Vec<u8>,
    metadata: Vec<u8>,
}

/// What became of it.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    /// Interleaved where there are tuples.
    went: Vec<u8>,
    status: SigStatus,
}

impl Case {
    fn new(rng: &mut fastrand::Rng) -> Self {
        let direction = if rng.bool() { Direction::ToHost } else { Direction::FromHost };
        let both = rng.u32(0..3) == 0;
        let block = *rng.choice(&[512, 520, 4048, 4096, 4160]).unwrap();
        // Metadata before the tuple is covered by it: 512 + 8 bytes are a block for the device.
        let format = if both && rng.u32(0..4) == 0 {
            Format::new(Guard::Crc16, 512, 16)
        } else {
            Format::new(Guard::Crc16, block, 8)
        };
        let format = format.unwrap();
        let memory = Format::new(Guard::Ip, format.block_size(), format.metadata_size()).unwrap();
        let memory = if rng.u32(0..4) == 0 { memory } else { format };
        let pi_type = *rng.choice(&[PiType::Type1, PiType::Type3]).unwrap();
        let mut dif = |format| {
            let mut dif = T10Dif {
                app_tag: if rng.bool() { 0x1234 } else { rng.u16(..) },
                apptag_check_mask: *rng.choice(&[0xFFFF, 0xFFFF, 0xFF00, 0x00FF, 0]).unwrap(),
                // Counting over the end of its width, too.
                ref_tag: *rng.choice(&[9, 9, 0xFFFF_FFFE]).unwrap(),
                ..domain(format, pi_type, 0)
            };
            if rng.u32(0..4) == 0 {
                (dif.app_escape, dif.ref_escape, dif.ref_remap) = (rng.bool(), rng.bool(), rng.bool());
            }
            if format.guard() == Guard::Crc16 && rng.u32(0..8) == 0 {
                dif.guard_seed = 0xFFFF;
            }
            dif
        };
        let (mem, wire) = (dif(memory), dif(format));
        let (mem, wire) = match rng.u32(0..2) {
            _ if both => (Some(mem), Some(if rng.bool() && mem.format == wire.format { mem } else { wire })),
            0 => (Some(mem), None),
            _ => (None, Some(wire)),
        };
        let mut chosen =
            || Checks { guard: rng.bool(), app_tag: rng.bool(), storage_tag: false, ref_tag: rng.bool() };
        let (check_mask, mut copied) = (chosen(), chosen());
        if let Some((mem, wire)) = mem.zip(wire) {
            copied.guard &= (mem.format, mem.guard_seed) == (wire.format, wire.guard_seed);
        }
        let copy_mask = if rng.bool() { CopyMask::Equal } else { CopyMask::Fields(copied) };
        let attrs = SigAttrs { check_mask, copy_mask, ..attrs(mem, wire) };
        let input = if direction == Direction::ToHost { mem } else { wire };
        // Where nothing is checked, tuples are only a length.
        let (data, metadata) = protected(&input.or(mem).or(wire).unwrap(), BLOCKS, rng);
        Self { attrs, direction, format, data, metadata }
    }

    fn signature(&self) -> Signature {
        Signature::new(&self.attrs, self.direction).unwrap()
    }

    /// Interleaved where there are tuples.
    fn stream(&self, tuples: bool, metadata: &[u8]) -> Vec<u8> {
        if tuples { join(&self.format, &self.data, metadata) } else { self.data.clone() }
    }

    fn comes_with_tuples(&self) -> bool {
        self.signature().operation() != Operation::Insert
    }

    fn goes_with_tuples(&self) -> bool {
        self.signature().operation() != Operation::Strip
    }

    /// What software makes of it.
    fn software(&self) -> Outcome {
        let signature = self.signature();
        let operation = signature.operation();
        let mut made = if operation == Operation::Verify {
            self.metadata.clone()
        } else {
            vec![0x33; self.metadata.len()]
        };
        let status = match self.direction {
            Direction::ToHost => {
                let given: &[&[u8]] = if self.comes_with_tuples() { &[&self.metadata] } else { &[] };
                let apart: &mut [&mut [u8]] = match operation {
                    Operation::Insert | Operation::Rewrite => &mut [&mut made],
                    Operation::Strip | Operation::Verify => &mut [],
                };
                signature.before_write(&[&self.data], given, apart)
            }
            Direction::FromHost => {
                let mut data = self.data.clone();
                let apart: &[&[u8]] = match operation {
                    Operation::Strip | Operation::Rewrite => &[&self.metadata],
                    Operation::Insert | Operation::Verify => &[],
                };
                let memory: &mut [&mut [u8]] =
                    if self.goes_with_tuples() { &mut [&mut made] } else { &mut [] };
                signature.after_read(&mut [&mut data], memory, apart)
            }
        };
        Outcome { went: self.stream(self.goes_with_tuples(), &made), status }
    }

    /// What the device makes of it.
    fn device(&self, block: &SigBlock, world: &mut World, keys: &Keys, rng: &mut fastrand::Rng) -> Outcome {
        let to_host = self.direction == Direction::ToHost;
        let tuples = if to_host { self.comes_with_tuples() } else { self.goes_with_tuples() };
        let on_wire = if to_host { self.goes_with_tuples() } else { self.comes_with_tuples() };
        let came = self.stream(on_wire, &self.metadata);
        world.peer(if to_host { vec![0x44; came.len()] } else { came }.as_slice());
        let fresh = |bytes: Vec<u8>| if to_host { bytes } else { vec![0x55; bytes.len()] };
        let separate = tuples && rng.bool();
        let (row, metadata) = if separate {
            (self.data.clone(), self.metadata.clone())
        } else {
            (self.stream(tuples, &self.metadata), Vec::new())
        };
        let row = world.memory(1, fresh(row));
        let metadata = world.memory(2, fresh(metadata));
        let mut batch = world.queue.start().unwrap();
        let mut piece = |sge: Sge, list: MkeyId| {
            if rng.bool() {
                return Piece::Sge(sge);
            }
            let [first, second] = halves(&sge, rng.u32(1..sge.length));
            batch.map(REGISTER, list, &[first, second]).unwrap();
            Piece::List(list)
        };
        let two;
        let memory = if separate {
            Memory::Separate { data: piece(row, keys.lists[0]), metadata: piece(metadata, keys.lists[1]) }
        } else {
            two = halves(&row, rng.u32(1..row.length));
            Memory::Row(&two)
        };
        batch.register(REGISTER, keys.signature, block, memory).unwrap();
        batch.transfer(TRANSFER, keys.signature, super::world::AT).unwrap();
        batch.complete().unwrap();
        world.completed(keys.signature);
        let status = world.queue.check(keys.signature).unwrap();
        let went = match (to_host, separate) {
            (true, _) => world.peer_bytes(),
            (false, false) => world.bytes(1),
            (false, true) => join(&self.format, &world.bytes(1), &world.bytes(2)),
        };
        Outcome { went, status }
    }
}

struct Keys {
    signature: MkeyId,
    lists: [MkeyId; 2],
}

fn halves(sge: &Sge, at: u32) -> [Sge; 2] {
    let Lkey(lkey) = sge.lkey;
    let rest = Sge { addr: sge.addr + u64::from(at), length: sge.length - at, lkey: Lkey(lkey) };
    [Sge { length: at, ..*sge }, rest]
}

/// Both statuses are of one block. Where it has several faults, the device may name another than software; software, told to look
/// at that field alone, says the same of it.
fn same_status(case: &Case, software: SigStatus, device: SigStatus, seed: u64) {
    let (SigStatus::Failed(software), SigStatus::Failed(device)) = (software, device) else {
        assert_eq!(software, device, "seed {seed}");
        return;
    };
    let software = if software.field == device.field {
        software
    } else {
        let only = |field| field == device.field;
        let check_mask = Checks {
            guard: only(Field::Guard),
            app_tag: only(Field::AppTag),
            storage_tag: false,
            ref_tag: only(Field::RefTag),
        };
        let (data, metadata) = (case.data.clone(), case.metadata.clone());
        let alone = Case { attrs: SigAttrs { check_mask, ..case.attrs }, data, metadata, ..*case };
        let SigStatus::Failed(alone) = alone.software().status else { panic!("seed {seed}: {device:?}") };
        assert_eq!(alone.offset, software.offset, "seed {seed}");
        alone
    };
    assert_eq!(SigErr { key: software.key, ..device }, software, "seed {seed}");
}

#[test]
fn device_and_software_move_the_same_bytes_and_find_the_same() {
    let (mut seen, mut refused) = ([[0; 2]; 4], 0);
    let mut world = World::new(124);
    let keys = Keys {
        signature: world.signature_key(),
        lists: [world.key(KeyKind::List, 2), world.key(KeyKind::List, 2)],
    };
    for seed in 0..2000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let case = Case::new(&mut rng);
        let software = case.software();
        let block = match SigBlock::new(&case.attrs, case.direction, &world.caps()) {
            Ok(block) => block,
            Err(error) => {
                assert_eq!(error, Unsupported::EscapedRewrite.into(), "seed {seed}: {:?}", case.attrs);
                refused += 1;
                continue;
            }
        };
        let device = case.device(&block, &mut world, &keys, &mut rng);
        assert!(software.went == device.went, "seed {seed}: {:?}", case.attrs);
        same_status(&case, software.status, device.status, seed);
        let failed = usize::from(software.status != SigStatus::Clean);
        seen[case.signature().operation() as usize][failed] += 1;
    }
    assert!((50..1000).contains(&refused), "{refused}");
    let [insert, strip, verify, rewrite] = seen;
    assert!(insert[0] > 300 && insert[1] == 0, "{seen:?}");
    for operation in [strip, verify, rewrite] {
        assert!(operation.iter().all(|count| *count > 40), "{seen:?}");
    }
}
