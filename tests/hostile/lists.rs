//! Commands whose data is in several pieces of the host's memory, cut anywhere: right ones, and those that no host should
//! send.

use std::time::Duration;

use intact::nvmf::command::{
    AdminCommand, AdminOp, BlockRange, DataPointer, IoCommand, IoOp, MAX_SGL_DESCRIPTORS,
};
use intact::nvmf::wire::sqe::Sqe;
use intact::nvmf::wire::status::Status;
use rwctx::remote::{RemoteAddr, RemoteSegment, Rkey};
use t10pi::{Checks, Format, Guard, PiContext, PiType, Tags};

use super::honest::{Honest, protected};
use super::peer::{End, How, Peer};
use super::world::World;

const SOON: Duration = Duration::from_secs(5);
/// Bytes of a peer's memory.
const MEMORY: usize = 4 << 20;

/// A connected peer with one I/O queue, and what its memory must hold.
struct Host {
    peer: Peer,
    admin: usize,
    io: usize,
    random: fastrand::Rng,
    memory: Vec<u8>,
}

/// Pieces of a peer's memory, as offset and length, in the order of the data.
type Pieces = Vec<(usize, usize)>;

impl Host {
    fn connect(world: &World, number: u8, entries: u32) -> Self {
        let mut peer = Peer::open(world.peer(number), world.listener(), MEMORY);
        let (admin, cntlid) = peer.admin(0);
        let io = peer.io(cntlid, 1, entries, How::default());
        let random = fastrand::Rng::with_seed(number.into());
        Self { peer, admin, io, random, memory: vec![0; MEMORY] }
    }

    /// Cuts `length` bytes into at most `most` pieces anywhere, and puts them into memory between `from` and its end, in any
    /// order and with gaps. Some have no bytes.
    fn cut(&mut self, length: usize, most: usize, from: usize) -> Pieces {
        let count = self.random.usize(1..=most);
        let mut cuts: Vec<usize> = (1..count).map(|_| self.random.usize(0..=length)).collect();
        cuts.extend([0, length]);
        cuts.sort_unstable();
        let mut pieces: Vec<(usize, usize, usize)> =
            (0..).zip(cuts.windows(2)).map(|(number, pair)| (number, 0, pair[1] - pair[0])).collect();
        self.random.shuffle(&mut pieces);
        let mut at = from;
        for (_, offset, length) in &mut pieces {
            *offset = at + self.random.usize(0..100);
            at = *offset + *length;
        }
        assert!(at <= MEMORY, "there is room");
        pieces.sort_unstable();
        pieces.into_iter().map(|(_, offset, length)| (offset, length)).collect()
    }

    /// A descriptor for each piece.
    fn descriptors(&self, pieces: &Pieces) -> Vec<DataPointer> {
        let keyed = |&(offset, length): &(usize, usize)| {
            let at = RemoteAddr { addr: self.peer.mr.addr + offset as u64, rkey: self.peer.mr.rkey };
            let segment = RemoteSegment { at, length: u32::try_from(length).unwrap() };
            DataPointer::Keyed { segment, invalidate: false }
        };
        pieces.iter().map(keyed).collect()
    }

    /// A command with its data in pieces, and what goes behind it into the capsule.
    fn command(&mut self, op: IoOp, pieces: &Pieces) -> (Sqe, Vec<u8>) {
        let offset = self.random.usize(0..200);
        let mut behind = vec![0xee; offset];
        let (dptr, list) = listed(offset as u64, &self.descriptors(pieces));
        behind.extend_from_slice(&list);
        (IoCommand { cid: 7, opcode: 0, nsid: 1, op, dptr }.emit(), behind)
    }

    fn execute(&mut self, op: IoOp, pieces: &Pieces) -> Status {
        let (sqe, behind) = self.command(op, pieces);
        self.peer
            .execute(self.io, &sqe, &behind)
            .unwrap_or_else(|end| panic!("{op:?} {pieces:?}: {end:?}"))
            .status
    }

    /// Puts bytes into pieces of its memory.
    fn fill(&mut self, pieces: &Pieces, mut bytes: &[u8]) {
        for &(offset, length) in pieces {
            let (part, rest) = bytes.split_at(length);
            self.memory[offset..offset + length].copy_from_slice(part);
            self.peer.memory.write(offset, part);
            bytes = rest;
        }
    }

    /// Asserts that its memory holds what it should, everywhere.
    fn check(&self, what: &str) {
        let mut found = vec![0; MEMORY];
        self.peer.memory.read(0, &mut found);
        let wrong = found.iter().zip(&self.memory).position(|(found, wanted)| found != wanted);
        assert_eq!(wrong, None, "{what}: the first wrong byte");
    }

    /// Notes that the target wrote to pieces.
    fn expect(&mut self, pieces: &Pieces, mut bytes: &[u8]) {
        for &(offset, length) in pieces {
            let (part, rest) = bytes.split_at(length);
            self.memory[offset..offset + length].copy_from_slice(part);
            bytes = rest;
        }
    }

    fn leave(mut self) {
        self.peer.disconnect(self.io);
        self.peer.disconnect(self.admin);
        self.peer.await_departure();
    }
}

/// A data pointer to descriptors at `offset` behind the command, and the descriptors.
fn listed(offset: u64, descriptors: &[DataPointer]) -> (DataPointer, Vec<u8>) {
    let bytes: Vec<u8> = descriptors.iter().flat_map(DataPointer::emit).collect();
    (DataPointer::LastSegment { offset, length: u32::try_from(bytes.len()).unwrap() }, bytes)
}

/// A range whose tuples come from and go to the host.
fn carried(slba: u64, blocks: u32) -> BlockRange {
    let mut range = protected(slba, blocks);
    range.pi.pract = false;
    range
}

/// Random blocks at `slba`, as the wire carries them.
fn data(random: &mut fastrand::Rng, block_size: u32, range: &BlockRange) -> Vec<u8> {
    let format = Format::new(Guard::Crc16, block_size, 8).unwrap();
    let stride = if range.pi.pract { block_size as usize } else { format.interleaved_block_size() };
    let mut bytes = vec![0; range.blocks as usize * stride];
    random.fill(&mut bytes);
    if !range.pi.pract {
        let tags = Tags { ref_tag: range.slba, ..Tags::default() };
        let pi = PiContext::new(&format, PiType::Type1, Checks::ALL, tags).unwrap();
        pi.generate_interleaved(&mut [&mut bytes]);
    }
    bytes
}

/// Writes, reads and compares blocks by lists and by single descriptors.
fn moves_data_in_pieces(stored: &str, block_size: u32, rounds: usize) {
    const ROOM: usize = 2 << 20;
    let world = World::with_volume(1, stored);
    let mut host = Host::connect(&world, 1, 32);
    for round in 0..rounds {
        let blocks = host.random.u32(1..=if round % 10 == 0 { (1 << 20) / block_size } else { 40 });
        let slba = host.random.u64(0..1000);
        let range = if host.random.bool() { protected(slba, blocks) } else { carried(slba, blocks) };
        let what = format!("round {round}: {range:?}");
        let bytes = data(&mut host.random, block_size, &range);
        let length = bytes.len();
        let whole = vec![(ROOM + 5, length)];

        let from = host.cut(length, MAX_SGL_DESCRIPTORS, 0);
        host.fill(&from, &bytes);
        assert_eq!(host.execute(IoOp::Write(range), &from), Status::SUCCESS, "{what} {from:?}");
        host.check(&what);
        let single = host.descriptors(&whole)[0];
        let read = IoCommand { cid: 9, opcode: 0, nsid: 1, op: IoOp::Read(range), dptr: single };
        let done = host.peer.execute(host.io, &read.emit(), &[]).unwrap();
        assert_eq!(done.status, Status::SUCCESS, "{what}");
        host.expect(&whole, &bytes);
        host.check(&what);

        let to = host.cut(length, MAX_SGL_DESCRIPTORS, ROOM);
        assert_eq!(host.execute(IoOp::Read(range), &to), Status::SUCCESS, "{what} {to:?}");
        host.expect(&to, &bytes);
        host.check(&what);

        // Only commands that carry tuples may compare.
        if !range.pi.pract {
            let other = host.cut(length, MAX_SGL_DESCRIPTORS, 0);
            host.fill(&other, &bytes);
            assert_eq!(host.execute(IoOp::Compare(range), &other), Status::SUCCESS, "{what} {other:?}");
            let others = data(&mut host.random, block_size, &range);
            host.fill(&other, &others);
            let status = host.execute(IoOp::Compare(range), &other);
            assert_eq!(status.code(), Status::COMPARE_FAILURE.code(), "{what} {other:?}");
            let mut wrong = bytes.clone();
            let block = host.random.usize(0..blocks as usize) * (length / blocks as usize);
            wrong[block + host.random.usize(0..block_size as usize)] ^= 0x10;
            host.fill(&other, &wrong);
            for op in [IoOp::Write(range), IoOp::Compare(range)] {
                let status = host.execute(op, &other);
                assert_eq!(status.code(), Status::GUARD_CHECK_ERROR.code(), "{what} {other:?}");
            }
        }
        host.check(&what);
        // What failed changed nothing.
        assert_eq!(host.execute(IoOp::Read(range), &to), Status::SUCCESS, "{what}");
        host.check(&what);
    }
    host.leave();
    world.await_idle();
    world.end();
}

#[test]
fn data_in_pieces_reaches_memory_and_comes_back() {
    moves_data_in_pieces("memory = \"64MiB\"", 4096, 120);
}

#[test]
fn data_in_pieces_reaches_blocks_of_512_bytes_and_comes_back() {
    moves_data_in_pieces("memory = \"64MiB\"\nblock_size = 512", 512, 60);
}

#[test]
fn data_in_pieces_reaches_a_file_and_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk0");
    moves_data_in_pieces(&format!("file = \"{}\"\nsize = \"64MiB\"", file.display()), 4096, 60);
}

#[test]
fn overlapping_commands_in_pieces_leave_no_block_mixed() {
    const BLOCKS: u32 = 16;
    const LENGTH: usize = (BLOCKS as usize) << 12;
    const SLOT: usize = 2 * LENGTH;
    let world = World::start(2);
    let mut host = Host::connect(&world, 1, 32);
    let zeroes = protected(0, BLOCKS);
    let first = vec![(0, LENGTH)];
    host.fill(&first, &[0; LENGTH]);
    assert_eq!(host.execute(IoOp::Write(zeroes), &first), Status::SUCCESS);
    let mut reads = 0;
    for round in 0..60 {
        // All at once, reads and writes of the same blocks.
        let mut sent: Vec<Option<Pieces>> = Vec::new();
        for slot in 0..20 {
            let reading = host.random.bool();
            let pieces = host.cut(LENGTH, MAX_SGL_DESCRIPTORS, slot * SLOT);
            let stamp = host.random.u8(..);
            host.fill(&pieces, &[stamp; LENGTH]);
            let range = protected(host.random.u64(0..3), BLOCKS);
            let op = if reading { IoOp::Read(range) } else { IoOp::Write(range) };
            let (mut sqe, behind) = host.command(op, &pieces);
            sqe.cid = u16::try_from(slot).unwrap().into();
            host.peer.submit(host.io, &sqe, &behind);
            sent.push(reading.then_some(pieces));
        }
        for _ in 0..sent.len() {
            let done = host.peer.response(host.io).unwrap();
            assert_eq!(done.status, Status::SUCCESS, "round {round}");
            let Some(pieces) = sent[usize::from(done.cid)].take() else { continue };
            reads += 1;
            let mut bytes = Vec::new();
            for (offset, length) in pieces {
                let mut part = vec![0; length];
                host.peer.memory.read(offset, &mut part);
                host.memory[offset..offset + length].copy_from_slice(&part);
                bytes.extend(part);
            }
            for block in bytes.chunks(4096) {
                assert!(block.iter().all(|byte| *byte == block[0]), "round {round}: a block of two writes");
            }
        }
    }
    assert!(reads > 100);
    host.check("after all");
    host.leave();
    world.await_idle();
    world.end();
}

#[test]
fn the_largest_commands_in_the_most_pieces_wait_for_each_other_on_a_short_queue() {
    let world = World::with_volume(1, "memory = \"64MiB\"\nblock_size = 512");
    let mut host = Host::connect(&world, 1, 4);
    let range = carried(0, 2048);
    let bytes = data(&mut host.random, 512, &range);
    // Each piece ends in the middle of a tuple, and one work request has 32 entries at most.
    let part = bytes.len() / 16 / 520 * 520 + 515;
    let mut pieces: Pieces = (0..15).map(|number| (number * (part + 3), part)).collect();
    pieces.push((15 * (part + 3), bytes.len() - 15 * part));
    host.fill(&pieces, &bytes);
    for round in 0..10 {
        for (cid, op) in [(1, IoOp::Write(range)), (2, IoOp::Write(range)), (3, IoOp::Compare(range))] {
            let (mut sqe, behind) = host.command(op, &pieces);
            sqe.cid = cid.into();
            host.peer.submit(host.io, &sqe, &behind);
        }
        for _ in 0..3 {
            let done = host.peer.response(host.io).unwrap_or_else(|end| panic!("round {round}: {end:?}"));
            // The first Compare may come before the first Write.
            assert!(done.status.is_success() || (round, done.cid) == (0, 3), "{done:?}");
        }
        assert_eq!(host.execute(IoOp::Read(range), &pieces), Status::SUCCESS);
        host.check("largest");
    }
    host.leave();
    world.await_idle();
    world.end();
}

#[test]
fn only_the_last_pieces_key_is_invalidated_and_only_when_it_asks() {
    let world = World::start(1);
    let mut host = Host::connect(&world, 1, 32);
    let windows = [0, 4096, 8192, 12288].map(|offset| host.peer.window(host.io, offset, 4096));
    let base = host.peer.mr.addr;
    let piece = |window: usize, invalidate| {
        let at = RemoteAddr { addr: base + window as u64 * 4096, rkey: windows[window] };
        DataPointer::Keyed { segment: RemoteSegment { at, length: 4096 }, invalidate }
    };
    for (what, op, pieces, status, invalidated) in [
        (
            "none asks",
            IoOp::Write(protected(0, 2)),
            [piece(0, false), piece(1, false)],
            Status::SUCCESS,
            None,
        ),
        (
            "the first asks",
            IoOp::Read(protected(0, 2)),
            [piece(0, true), piece(1, false)],
            Status::SUCCESS,
            None,
        ),
        (
            "both ask",
            IoOp::Read(protected(0, 2)),
            [piece(0, true), piece(1, true)],
            Status::SUCCESS,
            Some(windows[1]),
        ),
        // Also when the command is refused.
        (
            "refused",
            IoOp::Write(protected(0, 3)),
            [piece(0, false), piece(2, true)],
            Status::SGL_DATA_LENGTH_INVALID,
            Some(windows[2]),
        ),
        (
            "refused before its list is of interest",
            IoOp::Flush,
            [piece(0, true), piece(3, true)],
            Status::SGL_DATA_LENGTH_INVALID,
            Some(windows[3]),
        ),
        (
            "the same, and the last does not ask",
            IoOp::Flush,
            [piece(0, true), piece(0, false)],
            Status::SGL_DATA_LENGTH_INVALID,
            None,
        ),
    ] {
        let (dptr, list) = listed(0, &pieces);
        let sqe = IoCommand { cid: 1, opcode: 0, nsid: 1, op, dptr }.emit();
        let done = host.peer.execute(host.io, &sqe, &list).unwrap_or_else(|end| panic!("{what}: {end:?}"));
        assert_eq!((done.status.code(), done.invalidated), (status.code(), invalidated), "{what}");
    }
    // The first window still works, alone.
    let (dptr, list) = listed(0, &[piece(0, true)]);
    let sqe = IoCommand { cid: 1, opcode: 0, nsid: 1, op: IoOp::Read(protected(0, 1)), dptr }.emit();
    let done = host.peer.execute(host.io, &sqe, &list).unwrap();
    assert_eq!((done.status, done.invalidated), (Status::SUCCESS, Some(windows[0])));
    host.leave();
    world.await_idle();
    world.end();
}

#[test]
fn bad_lists_have_their_status_and_the_queue_goes_on() {
    let world = World::start(1);
    let honest = Honest::start(&world, 1);
    let mut host = Host::connect(&world, 2, 32);
    let piece = |offset, length| host.peer.keyed(offset, length);
    let two = [piece(0, 4000), piece(9000, 96)];
    let with_type = |sglid: u8| {
        let mut bytes = listed(0, &two).1;
        bytes[31] = sglid;
        bytes
    };
    let segment = |offset, length| DataPointer::LastSegment { offset, length };
    let raw_segment = |sglid: u8| {
        let mut bytes = segment(0, 32).emit();
        bytes[15] = sglid;
        bytes
    };
    let list = listed(0, &two).1;
    let wraps = listed(0, &[two[0], keyed(u64::MAX - 8, 1, 96)]).1;
    let short = listed(0, &[two[0], piece(9000, 95)]).1;
    let long = listed(0, &[two[0], piece(9000, 96), piece(0, 1)]).1;
    let huge = listed(0, &[keyed(0, 1, 0xff_ffff); 16]).1;
    let none = listed(0, &[piece(0, 0); 16]).1;
    let seventeen = listed(0, &[piece(0, 241); 17]).1;
    let cases: &[(&str, [u8; 16], &[u8], Status)] = &[
        ("data by address", segment(0, 32).emit(), &with_type(0x00), Status::INVALID_FIELD),
        ("data in the capsule", segment(0, 32).emit(), &with_type(0x01), Status::SGL_DESCRIPTOR_TYPE_INVALID),
        ("bit bucket", segment(0, 32).emit(), &with_type(0x10), Status::SGL_DESCRIPTOR_TYPE_INVALID),
        ("segment", segment(0, 32).emit(), &with_type(0x21), Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS),
        ("last segment", segment(0, 32).emit(), &with_type(0x31), Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS),
        ("keyed subtype", segment(0, 32).emit(), &with_type(0x41), Status::INVALID_FIELD),
        ("transport", segment(0, 32).emit(), &with_type(0x5a), Status::SGL_DESCRIPTOR_TYPE_INVALID),
        ("not the last segment", raw_segment(0x21), &list, Status::SGL_DESCRIPTOR_TYPE_INVALID),
        ("in the host's memory", raw_segment(0x30), &list, Status::SGL_DESCRIPTOR_TYPE_INVALID),
        ("no descriptors", segment(0, 0).emit(), &list, Status::INVALID_SGL_SEGMENT_DESCRIPTOR),
        ("half a descriptor", segment(0, 24).emit(), &list, Status::INVALID_SGL_SEGMENT_DESCRIPTOR),
        ("17", segment(0, 272).emit(), &seventeen, Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS),
        ("4 GiB", segment(0, 0xffff_fff0).emit(), &list, Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS),
        ("beyond the capsule", segment(4080, 32).emit(), &list, Status::SGL_OFFSET_INVALID),
        ("far beyond", segment(u64::MAX, 32).emit(), &list, Status::SGL_OFFSET_INVALID),
        ("not received", segment(0, 48).emit(), &list, Status::INVALID_SGL_SEGMENT_DESCRIPTOR),
        ("nothing received", segment(0, 32).emit(), &[], Status::INVALID_SGL_SEGMENT_DESCRIPTOR),
        ("wraps", segment(0, 32).emit(), &wraps, Status::INVALID_FIELD),
        ("too short", segment(0, 32).emit(), &short, Status::SGL_DATA_LENGTH_INVALID),
        ("too long", segment(0, 48).emit(), &long, Status::SGL_DATA_LENGTH_INVALID),
        ("256 MiB", segment(0, 256).emit(), &huge, Status::SGL_DATA_LENGTH_INVALID),
        ("no bytes", segment(0, 256).emit(), &none, Status::SGL_DATA_LENGTH_INVALID),
    ];
    for (what, dptr, behind, status) in cases {
        for op in [IoOp::Read(protected(3, 1)), IoOp::Write(protected(3, 1))] {
            let mut sqe = IoCommand { cid: 1, opcode: 0, nsid: 1, op, dptr: DataPointer::None }.emit();
            sqe.dptr = *dptr;
            let done =
                host.peer.execute(host.io, &sqe, behind).unwrap_or_else(|end| panic!("{what}: {end:?}"));
            assert_eq!(done.status.code(), status.code(), "{what}: {op:?}");
            assert_eq!(done.invalidated, None, "{what}");
        }
    }
    // Commands without data, and those of the admin queue, which has single descriptors.
    for (what, sqe, status) in [
        ("flush", IoOp::Flush, Status::SGL_DATA_LENGTH_INVALID),
        ("verify", IoOp::Verify(protected(0, 1)), Status::SGL_DATA_LENGTH_INVALID),
    ]
    .map(|(what, op, status)| {
        (what, IoCommand { cid: 1, opcode: 0, nsid: 1, op, dptr: segment(0, 32) }.emit(), status)
    }) {
        assert_eq!(host.peer.execute(host.io, &sqe, &list).unwrap().status.code(), status.code(), "{what}");
    }
    let op = AdminOp::Identify { cns: 1, cntid: 0, cnssid: 0, csi: 0, uuid_index: 0 };
    let identify = AdminCommand { cid: 2, opcode: 0, nsid: 0, op, dptr: segment(0, 32) }.emit();
    let done = host.peer.execute(host.admin, &identify, &list).unwrap();
    assert_eq!(done.status.code(), Status::SGL_DESCRIPTOR_TYPE_INVALID.code());
    host.check("nothing was written");
    let good = vec![(0, 4000), (9000, 96)];
    host.fill(&good, &[5; 4096]);
    assert_eq!(host.execute(IoOp::Write(protected(3, 1)), &good), Status::SUCCESS);
    honest.finish(SOON);
    host.leave();
    world.await_idle();
    world.end();
}

fn keyed(addr: u64, rkey: u32, length: u32) -> DataPointer {
    let at = RemoteAddr { addr, rkey: Rkey(rkey) };
    DataPointer::Keyed { segment: RemoteSegment { at, length }, invalidate: false }
}

#[test]
fn a_wrong_key_in_the_middle_ends_the_connection_and_nothing_else() {
    let world = World::start(1);
    let honest = Honest::start(&world, 1);
    let mut victim = Host::connect(&world, 3, 32);
    let range = carried(40, 4);
    let bytes = data(&mut victim.random, 4096, &range);
    let whole = vec![(0, bytes.len())];
    victim.fill(&whole, &bytes);
    assert_eq!(victim.execute(IoOp::Write(range), &whole), Status::SUCCESS);
    for op in [IoOp::Write(range), IoOp::Read(range), IoOp::Compare(range)] {
        let mut host = Host::connect(&world, 2, 32);
        let pieces: Pieces = (0..16).map(|number| (number * 3000, 4 * 4104 / 16)).collect();
        let mut descriptors = host.descriptors(&pieces);
        let DataPointer::Keyed { segment, .. } = &mut descriptors[8] else { panic!("a keyed one") };
        segment.at.rkey.0 ^= 0x5500;
        let (dptr, list) = listed(16, &descriptors);
        let sqe = IoCommand { cid: 1, opcode: 0, nsid: 1, op, dptr }.emit();
        let end = host.peer.execute(host.io, &sqe, &[&[0; 16][..], &list].concat()).expect_err("no answer");
        assert!(matches!(end, End::Disconnected | End::Failed(_)), "{op:?}: {end:?}");
        host.leave();
    }
    world.await_metric("intact_roce_naks_received_total kind=\"fatal\"", SOON, |n| n == 3);
    // The write that failed in its middle wrote nothing.
    assert_eq!(victim.execute(IoOp::Compare(range), &whole), Status::SUCCESS);
    honest.finish(SOON);
    victim.leave();
    world.await_idle();
    world.end();
}
