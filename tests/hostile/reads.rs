//! A host that answers the target's RDMA READs and WRITEs wrongly: short, late, twice, with garbage, or refusing.

#![expect(clippy::disallowed_methods, reason = "tests of real programs run in real time")]

use std::time::{Duration, Instant};

use intact::nvmf::command::{
    BlockRange, DataPointer, FabricsCommand, FabricsOp, IoCommand, IoOp, PropertySize,
};
use intact::nvmf::wire::cqe::Cqe;
use intact::nvmf::wire::fabrics::property;
use intact::nvmf::wire::sqe::Sqe;
use intact::nvmf::wire::status::Status;
use rwctx::device::soft::wire::{Aeth, Bth, Ext, NakCode, Opcode, Reth, RnrTimer, Syndrome};
use rwctx::remote::{RemoteAddr, RemoteSegment, Rkey};
use zerocopy::{FromBytes, IntoBytes};

use super::honest::{Honest, protected};
use super::peer::{How, Peer, connect_data, connect_fields, connect_sqe, private};
use super::raw::{Got, Raw};
use super::world::{HOST_NQN, NQN, World};

const SOON: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(20);

/// Connects raw admin and I/O queues, each with its own socket and address.
fn connected(world: &World) -> (Raw, Raw) {
    let mut admin = Raw::open(world.peer(2), world.listener(), 4791);
    admin.connect(&private(0, 32, 0));
    let done = execute(
        &mut admin,
        &connect_sqe(1, connect_fields(0, 32)),
        connect_data(0xffff, NQN, HOST_NQN).as_bytes(),
    );
    let cntlid = u16::try_from(done.result.get() & 0xffff).unwrap();
    let enable = FabricsOp::PropertySet { size: PropertySize::Dword, offset: property::CC, value: 0x46_0001 };
    execute(&mut admin, &FabricsCommand { cid: 2, op: enable, dptr: DataPointer::None }.emit(), &[]);
    let mut io = Raw::open(world.peer(3), world.listener(), 4791);
    io.connect(&private(1, 32, cntlid));
    execute(&mut io, &connect_sqe(3, connect_fields(1, 32)), connect_data(cntlid, NQN, HOST_NQN).as_bytes());
    (admin, io)
}

/// Sends a command that needs no data and takes its response, which must be a success.
fn execute(raw: &mut Raw, sqe: &Sqe, behind: &[u8]) -> Cqe {
    let mut capsule = sqe.as_bytes().to_vec();
    capsule.extend_from_slice(behind);
    raw.send_capsule(&capsule);
    let cqe = response(raw).expect("an answer");
    assert_eq!(cqe.status(), Status::SUCCESS);
    cqe
}

/// Takes and acknowledges the next response.
fn response(raw: &mut Raw) -> Option<Cqe> {
    let expected = raw.expected;
    let got = raw.await_packet(LONG, |got| {
        got.bth.psn >= expected && matches!(got.bth.opcode, Opcode::SendOnly | Opcode::SendOnlyWithInvalidate)
    })?;
    raw.ack(got.bth.psn);
    raw.expected = (got.bth.psn + 1) & 0xff_ffff;
    Cqe::read_from_bytes(&got.payload).ok()
}

fn write(blocks: u32, cid: u16) -> Vec<u8> {
    let at = RemoteAddr { addr: 0x10_0000, rkey: Rkey(0x77) };
    let dptr = DataPointer::Keyed { segment: RemoteSegment { at, length: blocks << 12 }, invalidate: false };
    let command = IoCommand { cid, opcode: 0, nsid: 1, op: IoOp::Write(protected(9, blocks)), dptr };
    command.emit().as_bytes().to_vec()
}

/// The READ that the target sends for a write. One that was answered already, and was sent again meanwhile, is none.
fn read_request(raw: &mut Raw) -> (u32, Reth) {
    let expected = raw.expected;
    let is_new = |got: &Got| got.bth.psn >= expected && got.bth.opcode == Opcode::ReadRequest;
    let got = raw.await_packet(LONG, is_new).expect("a READ");
    let Ext::Reth(reth) = got.ext else { panic!("{got:?}") };
    (got.bth.psn, reth)
}

fn answer(raw: &Raw, opcode: Opcode, psn: u32, payload: &[u8]) {
    let aeth = Aeth { syndrome: Syndrome::Ack(0x1f), msn: 1 };
    let ext = if opcode == Opcode::ReadResponseMiddle { Ext::None } else { Ext::Aeth(aeth) };
    raw.send(Bth::new(opcode, raw.remote, psn, payload.len()), ext, payload);
}

fn is_response(got: &Got) -> bool {
    matches!(got.bth.opcode, Opcode::SendOnly | Opcode::SendOnlyWithInvalidate)
}

#[test]
fn wrong_answers_to_reads_fail_their_own_connection_at_most() {
    let world = World::start(1);
    let honest = Honest::start(&world, 1);
    type Case = (&'static str, fn(&Raw, u32), Ending);
    enum Ending {
        Success,
        Closed,
    }
    let cases: &[Case] = &[
        ("right", |raw, psn| answer(raw, Opcode::ReadResponseOnly, psn, &[7; 4096]), Ending::Success),
        (
            "twice",
            |raw, psn| {
                for _ in 0..50 {
                    answer(raw, Opcode::ReadResponseOnly, psn, &[7; 4096]);
                }
            },
            Ending::Success,
        ),
        (
            "late",
            |raw, psn| {
                std::thread::sleep(Duration::from_millis(1500));
                answer(raw, Opcode::ReadResponseOnly, psn, &[7; 4096]);
            },
            Ending::Success,
        ),
        (
            "of other PSNs first",
            |raw, psn| {
                for other in [psn.wrapping_sub(1), psn + 1, psn + 100, psn ^ 0x80_0000] {
                    answer(raw, Opcode::ReadResponseOnly, other & 0xff_ffff, &[9; 4096]);
                    answer(raw, Opcode::ReadResponseMiddle, other & 0xff_ffff, &[9; 4096]);
                    raw.ack(other & 0xff_ffff);
                }
                answer(raw, Opcode::ReadResponseOnly, psn, &[7; 4096]);
            },
            Ending::Success,
        ),
        ("short", |raw, psn| answer(raw, Opcode::ReadResponseOnly, psn, &[7; 100]), Ending::Closed),
        ("empty", |raw, psn| answer(raw, Opcode::ReadResponseOnly, psn, &[]), Ending::Closed),
        ("refused", |raw, psn| raw.nak(psn, NakCode::RemoteAccess), Ending::Closed),
        ("impossible", |raw, psn| raw.nak(psn, NakCode::InvalidRequest), Ending::Closed),
        ("failed", |raw, psn| raw.nak(psn, NakCode::RemoteOperational), Ending::Closed),
    ];
    for (what, act, ending) in cases {
        let (mut admin, mut io) = connected(&world);
        io.send_capsule(&write(1, 5));
        let (psn, reth) = read_request(&mut io);
        assert_eq!((reth.va, reth.rkey, reth.dma_len), (0x10_0000, Rkey(0x77), 4096), "{what}");
        io.expected = (psn + 1) & 0xff_ffff;
        act(&io, psn);
        match ending {
            Ending::Success => {
                let cqe = response(&mut io).unwrap_or_else(|| panic!("{what}: no response"));
                assert_eq!((cqe.cid.get(), cqe.status()), (5, Status::SUCCESS), "{what}");
            }
            Ending::Closed => {
                let answered = io.await_packet(LONG, is_response);
                assert!(answered.is_none() && io.ended, "{what}: {answered:?}");
            }
        }
        io.disconnect();
        admin.disconnect();
    }
    world.await_metric("intact_nvme_failed_queues_total", SOON, |n| n >= 5);
    honest.finish(SOON);
    world.await_idle();
    world.end();
}

/// A command at block 9 whose tuples come from the host, guard and reference tag checked.
fn checked(op: fn(BlockRange) -> IoOp, cid: u16) -> Vec<u8> {
    let at = RemoteAddr { addr: 0x10_0000, rkey: Rkey(0x77) };
    let dptr = DataPointer::Keyed { segment: RemoteSegment { at, length: 4104 }, invalidate: false };
    let mut range = protected(9, 1);
    range.pi.pract = false;
    IoCommand { cid, opcode: 0, nsid: 1, op: op(range), dptr }.emit().as_bytes().to_vec()
}

#[test]
fn the_log_tells_damage_in_a_hosts_memory_from_damage_on_the_way() {
    let world = World::start(1);
    let honest = Honest::start(&world, 1);
    let (mut admin, mut io) = connected(&world);
    // A block of zeroes has the guard 0. What is wrong in it, when it is asked first and when it is asked again.
    let good = |_: &mut [u8]| {};
    let data = |block: &mut [u8]| block[100] = 1;
    let ref_tag = |block: &mut [u8]| block[4103] = 8;
    type Damage = fn(&mut [u8]);
    let cases: [(Damage, Damage, Status, &str, &str); 5] = [
        (good, good, Status::SUCCESS, "", ""),
        (data, good, Status::GUARD_CHECK_ERROR, "guard", "wire"),
        (data, data, Status::GUARD_CHECK_ERROR, "guard", "host"),
        (ref_tag, good, Status::REF_TAG_CHECK_ERROR, "ref_tag", "wire"),
        (ref_tag, ref_tag, Status::REF_TAG_CHECK_ERROR, "ref_tag", "host"),
    ];
    let lines = || {
        let log = world.target.whole_log();
        let failed = log.lines().filter(|line| line.contains("protection information check failed"));
        failed.map(str::to_owned).collect::<Vec<_>>()
    };
    for (cid, (first, again, status, field, hop)) in (10..).zip(cases) {
        for op in [IoOp::Write, IoOp::Compare] {
            let before = lines().len();
            io.send_capsule(&checked(op, cid));
            let asked: &[Damage] = if status.is_success() { &[first] } else { &[first, again] };
            for damage in asked {
                let mut block = [0; 4104];
                block[4103] = 9;
                damage(&mut block);
                let (psn, reth) = read_request(&mut io);
                assert_eq!((reth.va, reth.rkey, reth.dma_len), (0x10_0000, Rkey(0x77), 4104));
                io.expected = (psn + 2) & 0xff_ffff;
                answer(&io, Opcode::ReadResponseFirst, psn, &block[..4096]);
                answer(&io, Opcode::ReadResponseLast, (psn + 1) & 0xff_ffff, &block[4096..]);
            }
            let cqe = response(&mut io).expect("an answer");
            assert_eq!((cqe.cid.get(), cqe.status().code()), (cid, status.code()), "{field} {hop}");
            let new = lines().split_off(before);
            if status.is_success() {
                assert_eq!(new, [""; 0]);
                continue;
            }
            let [line] = &new[..] else { panic!("one line for a failed check: {new:#?}") };
            for part in ["disk0", "lba=9", &format!("field=\"{field}\""), &format!("hop=\"{hop}\"")] {
                assert!(line.contains(part), "{part}: {line}");
            }
        }
    }
    io.disconnect();
    admin.disconnect();
    honest.finish(SOON);
    world.await_idle();
    world.end();
}

#[test]
fn longer_reads_survive_missing_and_misplaced_parts() {
    let world = World::start(1);
    let honest = Honest::start(&world, 1);
    let (mut admin, mut io) = connected(&world);
    // 16 blocks: one READ of 16 responses. The host forgets some, and answers what it is asked again.
    io.send_capsule(&write(16, 6));
    let mut random = fastrand::Rng::with_seed(3);
    let mut last = 0;
    let first = io.expected;
    let cqe = 'done: loop {
        let got =
            io.await_packet(LONG, |got| got.bth.opcode != Opcode::Acknowledge).expect("the target goes on");
        if is_response(&got) && got.bth.psn >= first + 16 {
            io.ack(got.bth.psn);
            break 'done Cqe::read_from_bytes(&got.payload).unwrap();
        }
        let Ext::Reth(reth) = got.ext else { continue };
        let count = reth.dma_len.div_ceil(4096);
        for part in 0..count {
            let opcode = match (part, count) {
                (0, 1) => Opcode::ReadResponseOnly,
                (0, _) => Opcode::ReadResponseFirst,
                (n, count) if n + 1 == count => Opcode::ReadResponseLast,
                _ => Opcode::ReadResponseMiddle,
            };
            if random.u8(0..4) > 0 || last > 100 {
                answer(&io, opcode, got.bth.psn + part, &[0x33; 4096]);
            }
            last += 1;
        }
    };
    assert_eq!((cqe.cid.get(), cqe.status()), (6, Status::SUCCESS));
    io.disconnect();
    admin.disconnect();
    honest.finish(SOON);
    world.await_idle();
    world.end();
}

/// The payload of the data that the target sends for a read, not acknowledged, and the PSN of the response behind it.
fn data_sent(raw: &mut Raw, first: u32, blocks: u32) -> (Vec<u8>, u32) {
    let mut data = Vec::new();
    for index in 0..blocks {
        let psn = (first + index) & 0xff_ffff;
        let got = raw.await_packet(LONG, |got| got.bth.psn == psn).expect("data");
        data.extend_from_slice(&got.payload);
    }
    (data, (first + blocks) & 0xff_ffff)
}

#[test]
fn data_on_its_way_to_a_silent_host_stays_as_it_was_and_keeps_nobody_from_writing() {
    const BLOCKS: u32 = 4;
    let world = World::start(2);
    let honest = Honest::start(&world, 1);
    let mut other = Peer::open(world.peer(4), world.listener(), 1 << 20);
    let (_, cntlid) = other.admin(0);
    let at = other.io(cntlid, 1, 32, How::default());
    let mut fill = |byte: u8| {
        other.memory.write(0, &[byte; (BLOCKS as usize) << 12]);
        let op = IoOp::Write(protected(21, BLOCKS));
        let sqe = IoCommand { cid: 1, opcode: 0, nsid: 1, op, dptr: other.keyed(0, BLOCKS << 12) }.emit();
        let start = Instant::now();
        assert_eq!(other.execute(at, &sqe, &[]).unwrap().status, Status::SUCCESS);
        start.elapsed()
    };
    fill(0xaa);
    let (mut admin, mut io) = connected(&world);
    let segment =
        RemoteSegment { at: RemoteAddr { addr: 0x10_0000, rkey: Rkey(0x77) }, length: BLOCKS << 12 };
    let dptr = DataPointer::Keyed { segment, invalidate: false };
    let command = IoCommand { cid: 7, opcode: 0, nsid: 1, op: IoOp::Read(protected(21, BLOCKS)), dptr };
    io.send_capsule(command.emit().as_bytes());
    let first = io.expected;
    let (data, response_psn) = data_sent(&mut io, first, BLOCKS);
    assert!(data == [0xaa; (BLOCKS as usize) << 12], "what was written is read");
    // The host acknowledges nothing. The target repeats for as long as 15 s; others do not wait for that.
    let took = fill(0xbb);
    assert!(took < Duration::from_secs(1), "a writer waited for {took:?}");
    assert!(world.metric("intact_in_place_conflicts_total") >= 1);
    let (again, _) = data_sent(&mut io, first, BLOCKS);
    assert!(again == data, "a packet that is sent again is the same packet");
    io.ack(response_psn);
    io.expected = (response_psn + 1) & 0xff_ffff;
    // Of two tries, some packets may be left over.
    io.send_capsule(command.emit().as_bytes());
    let first = io.expected;
    let (new, response_psn) = data_sent(&mut io, first, BLOCKS);
    assert!(new == [0xbb; (BLOCKS as usize) << 12], "what was written last is read");
    io.ack(response_psn);
    admin.disconnect();
    io.disconnect();
    drop(other);
    honest.finish(SOON);
    world.end();
}

#[test]
fn data_on_its_way_to_a_silent_host_keeps_nobody_waiting_who_waited_before_it_was_sent() {
    /// Blocks of 32 GiB: emptying them takes a while.
    const ALL: u32 = 8 << 20;
    let world = World::with_volume(1, "memory = \"32GiB\"");
    let mut other = Peer::open(world.peer(4), world.listener(), 1 << 20);
    let (_, cntlid) = other.admin(0);
    let at = other.io(cntlid, 1, 32, How::default());
    let (mut admin, mut io) = connected(&world);
    let dptr = DataPointer::InCapsule { offset: 0, length: 16 };
    let op = IoOp::DatasetManagement { ranges: 1, deallocate: true };
    let mut capsule = IoCommand { cid: 6, opcode: 0, nsid: 1, op, dptr }.emit().as_bytes().to_vec();
    capsule.extend_from_slice(&[[0; 4], ALL.to_le_bytes(), [0; 4], [0; 4]].concat());
    io.send_capsule(&capsule);
    let segment = RemoteSegment { at: RemoteAddr { addr: 0x10_0000, rkey: Rkey(0x77) }, length: 1 << 12 };
    let dptr = DataPointer::Keyed { segment, invalidate: false };
    let read = IoCommand { cid: 7, opcode: 0, nsid: 1, op: IoOp::Read(protected(21, 1)), dptr };
    io.send_capsule(read.emit().as_bytes());
    let first = io.expected;
    // While the blocks are emptied the read waits for them, and behind it this write.
    let dptr = DataPointer::InCapsule { offset: 0, length: 1 << 12 };
    let write = IoCommand { cid: 1, opcode: 0, nsid: 1, op: IoOp::Write(protected(21, 1)), dptr };
    other.submit(at, &write.emit(), &[0xbb; 1 << 12]);
    other.exchange();
    let is_data = |got: &Got| got.bth.opcode == Opcode::WriteOnly;
    io.await_packet(LONG, is_data).expect("the data of the read");
    // Nothing is acknowledged, neither the emptying nor the data.
    let start = Instant::now();
    assert_eq!(other.response(at).unwrap().status, Status::SUCCESS);
    assert!(start.elapsed() < Duration::from_secs(1), "a writer waited for {:?}", start.elapsed());
    assert!(world.metric("intact_waits_total for=\"range\"") >= 2, "{}", world.target.log());
    let response_psn = (first + 2) & 0xff_ffff;
    io.ack(response_psn);
    admin.disconnect();
    io.disconnect();
    drop(other);
    world.end();
}

#[test]
fn packets_with_wild_sequence_numbers_change_nothing() {
    let world = World::start(1);
    let honest = Honest::start(&world, 1);
    let (mut admin, mut io) = connected(&world);
    let mut random = fastrand::Rng::with_seed(4);
    for round in 0..2000_u32 {
        let psn = if round % 2 == 0 {
            random.u32(..) & 0xff_ffff
        } else {
            io.psn.wrapping_sub(random.u32(1..64)) & 0xff_ffff
        };
        match random.u8(0..5) {
            // Acknowledges of what was never sent, credits and RNR included.
            0 => {
                let syndrome = match random.u8(0..3) {
                    0 => Syndrome::Ack(random.u8(0..32)),
                    1 => Syndrome::RnrNak(RnrTimer::new(random.u8(0..32))),
                    _ => Syndrome::Nak(NakCode::PsnSequence),
                };
                let psn = (io.expected + 1000 + random.u32(0..1000)) & 0xff_ffff;
                let bth = Bth::new(Opcode::Acknowledge, io.remote, psn, 0);
                io.send(bth, Ext::Aeth(Aeth { syndrome, msn: random.u32(..) & 0xff_ffff }), &[]);
            }
            // Duplicates of capsules that came before: acknowledged, and not carried out again.
            1 => io.send(Bth::new(Opcode::SendOnly, io.remote, psn, 64), Ext::None, &[0; 64]),
            2 => answer(&io, Opcode::ReadResponseOnly, psn, &[1; 64]),
            3 => io.send(Bth::new(Opcode::SendMiddle, io.remote, psn, 4096), Ext::None, &[0; 4096]),
            _ => {
                let bth = Bth::new(Opcode::Cnp, io.remote, psn, 0);
                io.send(bth, Ext::Cnp, &[]);
            }
        }
        while io.socket.set_nonblocking(true).is_ok() && io.receive().is_some() {}
        io.socket.set_nonblocking(false).unwrap();
    }
    if !io.ended {
        io.send_capsule(&write(1, 5));
        let (psn, _) = read_request(&mut io);
        io.expected = (psn + 1) & 0xff_ffff;
        answer(&io, Opcode::ReadResponseOnly, psn, &[7; 4096]);
        let cqe = response(&mut io).expect("the queue still works");
        assert_eq!((cqe.cid.get(), cqe.status()), (5, Status::SUCCESS));
    }
    io.disconnect();
    admin.disconnect();
    honest.finish(SOON);
    world.await_idle();
    world.end();
}
