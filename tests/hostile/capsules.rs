//! Capsules that no host should send.

use std::time::Duration;

use intact::nvmf::command::{
    AdminCommand, AdminOp, DataPointer, FabricsCommand, FabricsOp, IoCommand, IoOp, PropertySize,
};
use intact::nvmf::wire::fabrics::property;
use intact::nvmf::wire::sqe::Sqe;
use intact::nvmf::wire::status::Status;
use rwctx::remote::{RemoteAddr, RemoteSegment, Rkey};
use rwctx::wc::WcStatus;
use rwctx::wr::SendOp;
use zerocopy::{FromBytes, IntoBytes};

use super::honest::{Honest, protected};
use super::peer::{End, How, Peer, connect_data, connect_fields, connect_sqe, private};
use super::world::{BLOCKS, HOST_NQN, NQN, World};

/// An honest host next to the hostile one waits at most this long, on a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(5);

/// A connected peer with one I/O queue.
fn connected(world: &World, number: u8) -> (Peer, usize, usize) {
    let mut peer = Peer::open(world.peer(number), world.listener(), 4 << 20);
    let (admin, cntlid) = peer.admin(0);
    let io = peer.io(cntlid, 1, 32, How::default());
    (peer, admin, io)
}

fn read(cid: u16, slba: u64, blocks: u32, dptr: DataPointer) -> Sqe {
    IoCommand { cid, opcode: 0, nsid: 1, op: IoOp::Read(protected(slba, blocks)), dptr }.emit()
}

fn write(cid: u16, slba: u64, blocks: u32, dptr: DataPointer) -> Sqe {
    IoCommand { cid, opcode: 0, nsid: 1, op: IoOp::Write(protected(slba, blocks)), dptr }.emit()
}

fn keyed(addr: u64, rkey: u32, length: u32) -> DataPointer {
    DataPointer::Keyed {
        segment: RemoteSegment { at: RemoteAddr { addr, rkey: Rkey(rkey) }, length },
        invalidate: false,
    }
}

#[test]
fn each_bad_command_has_its_status_and_the_queue_goes_on() {
    let world = World::start(1);
    let honest = Honest::start(&world, 1);
    let (mut peer, admin, io) = connected(&world, 2);
    let good = peer.keyed(0, 4096);
    let edit = |mut sqe: Sqe, edit: &dyn Fn(&mut Sqe)| {
        edit(&mut sqe);
        sqe
    };
    let descriptor = |sglid: u8| edit(read(1, 0, 1, good), &move |sqe| sqe.dptr[15] = sglid);
    let in_capsule = |offset, length| DataPointer::InCapsule { offset, length };
    let data = [0x5a; 4096];
    let cases: &[(&str, Sqe, &[u8], Status)] = &[
        ("opcode", edit(read(1, 0, 1, good), &|s| s.opc = 0x7e), &[], Status::INVALID_OPCODE),
        ("vendor opcode", edit(read(1, 0, 1, good), &|s| s.opc = 0xff), &[], Status::INVALID_OPCODE),
        ("PRPs", edit(read(1, 0, 1, good), &|s| s.flags = 0), &[], Status::INVALID_FIELD),
        ("fused", edit(read(1, 0, 1, good), &|s| s.flags |= 1), &[], Status::INVALID_FIELD),
        ("bit bucket", descriptor(0x10), &[], Status::SGL_DESCRIPTOR_TYPE_INVALID),
        ("segment", descriptor(0x20), &[], Status::SGL_DESCRIPTOR_TYPE_INVALID),
        ("last segment", descriptor(0x30), &[], Status::SGL_DESCRIPTOR_TYPE_INVALID),
        ("transport", descriptor(0x5a), &[], Status::SGL_DESCRIPTOR_TYPE_INVALID),
        ("keyed subtype", descriptor(0x41), &[], Status::INVALID_FIELD),
        ("data block by address", descriptor(0x00), &[], Status::INVALID_FIELD),
        ("read into a capsule", read(1, 0, 1, in_capsule(0, 4096)), &data, Status::INVALID_FIELD),
        ("too short", read(1, 0, 1, peer.keyed(0, 4095)), &[], Status::SGL_DATA_LENGTH_INVALID),
        ("too long", read(1, 0, 1, peer.keyed(0, 4097)), &[], Status::SGL_DATA_LENGTH_INVALID),
        ("none", read(1, 0, 1, DataPointer::None), &[], Status::SGL_DATA_LENGTH_INVALID),
        ("16 MiB", read(1, 0, 1, keyed(0, 1, 0xff_ffff)), &[], Status::SGL_DATA_LENGTH_INVALID),
        ("wraps", read(1, 0, 1, keyed(u64::MAX - 8, 1, 4096)), &[], Status::INVALID_FIELD),
        ("wraps on a write", write(1, 0, 1, keyed(u64::MAX, 1, 4096)), &[], Status::INVALID_FIELD),
        ("beyond the capsule", write(1, 0, 1, in_capsule(1, 4096)), &data, Status::SGL_OFFSET_INVALID),
        ("far beyond", write(1, 0, 1, in_capsule(u64::MAX, 4096)), &data, Status::SGL_OFFSET_INVALID),
        ("not received", write(1, 0, 1, in_capsule(0, 4096)), &data[..512], Status::SGL_DATA_LENGTH_INVALID),
        ("nothing received", write(1, 0, 1, in_capsule(0, 4096)), &[], Status::SGL_DATA_LENGTH_INVALID),
        ("last block + 1", read(1, BLOCKS, 1, good), &[], Status::LBA_OUT_OF_RANGE),
        ("LBA overflow", read(1, u64::MAX, 1, good), &[], Status::LBA_OUT_OF_RANGE),
        ("more than MDTS", read(1, 0, 257, peer.keyed(0, 257 << 12)), &[], Status::INVALID_FIELD),
        ("inactive namespace", edit(read(1, 0, 1, good), &|s| s.nsid = 9.into()), &[], Status::INVALID_FIELD),
        (
            "no such namespace",
            edit(read(1, 0, 1, good), &|s| s.nsid = 5000.into()),
            &[],
            Status::INVALID_NAMESPACE_OR_FORMAT,
        ),
        (
            "all namespaces",
            edit(read(1, 0, 1, good), &|s| s.nsid = u32::MAX.into()),
            &[],
            Status::INVALID_NAMESPACE_OR_FORMAT,
        ),
        (
            "reference tag",
            edit(read(1, 7, 1, good), &|s| s.cdw14 = 8.into()),
            &[],
            Status::INVALID_PROTECTION_INFORMATION,
        ),
    ];
    for (what, sqe, behind, status) in cases {
        let done = peer.execute(io, sqe, behind).unwrap_or_else(|end| panic!("{what}: {end:?}"));
        assert_eq!(done.status.code(), status.code(), "{what}");
    }
    // On the admin queue, too, where in-capsule data is not announced.
    let identify = |cns, dptr| {
        let op = AdminOp::Identify { cns, cntid: 0, cnssid: 0, csi: 0, uuid_index: 0 };
        AdminCommand { cid: 2, opcode: 0, nsid: 0, op, dptr }.emit()
    };
    let admin_cases: &[(&str, Sqe, Status)] = &[
        ("opcode", edit(identify(1, good), &|s| s.opc = 0xc0), Status::INVALID_OPCODE),
        ("create queue", edit(identify(1, good), &|s| s.opc = 0x01), Status::INVALID_OPCODE),
        ("short", identify(1, peer.keyed(0, 4092)), Status::SGL_DATA_LENGTH_INVALID),
        ("wraps", identify(1, keyed(u64::MAX - 1, 1, 4096)), Status::INVALID_FIELD),
        ("CNS", identify(0xee, good), Status::INVALID_FIELD),
        ("I/O command", read(2, 0, 1, good), Status::SGL_DATA_LENGTH_INVALID),
    ];
    for (what, sqe, status) in admin_cases {
        let done = peer.execute(admin, sqe, &[]).unwrap_or_else(|end| panic!("{what}: {end:?}"));
        // Opcode 2 is Get Log Page on an admin queue; what it says there need not be the same.
        assert!(!done.status.is_success(), "{what}");
        if *what != "I/O command" {
            assert_eq!(done.status.code(), status.code(), "{what}");
        }
    }
    assert_eq!(peer.execute(io, &read(3, 0, 1, good), &[]).unwrap().status, Status::SUCCESS);
    let failed = world.await_metric("intact_nvme_failed_commands_total", SOON, |n| n >= 30);
    assert_eq!(failed, (cases.len() + admin_cases.len()) as u64);
    honest.finish(SOON);
    peer.disconnect(io);
    peer.disconnect(admin);
    peer.await_departure();
    world.await_idle();
    world.end();
}

#[test]
fn keys_that_were_not_granted_end_the_connection_and_nothing_else() {
    let world = World::start(2);
    let honest = Honest::start(&world, 1);
    let mut peer = Peer::open(world.peer(2), world.listener(), 1 << 20);
    let mut attempts = 0;
    for (what, addr, rkey) in [
        ("key", peer.mr.addr, peer.mr.rkey.0 ^ 0x5500),
        ("key's low byte", peer.mr.addr, peer.mr.rkey.0 ^ 1),
        ("address below", peer.mr.addr - 1, peer.mr.rkey.0),
        ("address above", peer.mr.addr + (1 << 20) - 4095, peer.mr.rkey.0),
    ] {
        for writes in [false, true] {
            let (_, cntlid) = peer.admin(0);
            let io = peer.io(cntlid, 1, 32, How::default());
            let dptr = keyed(addr, rkey, 4096);
            let sqe = if writes { write(5, 3, 1, dptr) } else { read(5, 3, 1, dptr) };
            let end = peer.execute(io, &sqe, &[]).expect_err(what);
            assert!(
                matches!(
                    end,
                    End::Disconnected
                        | End::Failed(WcStatus::RemAccessErr | WcStatus::WrFlushErr)
                        | End::Failed(WcStatus::LocProtErr)
                ),
                "{what}: {end:?}"
            );
            attempts += 1;
            let all: Vec<usize> = (0..peer.queues.len()).collect();
            all.into_iter().for_each(|at| peer.disconnect(at));
            peer.await_departure();
            peer.forget_queues();
        }
    }
    world.await_metric("intact_roce_naks_received_total kind=\"fatal\"", SOON, |n| n == attempts);
    honest.finish(SOON);
    world.await_idle();
    world.end();
}

#[test]
fn capsules_of_the_wrong_size_end_the_connection() {
    let world = World::start(1);
    let honest = Honest::start(&world, 1);
    for length in [0, 1, 63, 64 + 4096 + 1, 12 << 10] {
        let (mut peer, admin, io) = connected(&world, 2);
        peer.send(io, &vec![0x41; length]);
        let end = peer.await_end(io);
        if length > 64 {
            assert_eq!(end, End::Failed(WcStatus::RemInvReqErr), "{length}");
        }
        // The rest of the controller lives on.
        let keep_alive =
            AdminCommand { cid: 9, opcode: 0, nsid: 0, op: AdminOp::KeepAlive, dptr: DataPointer::None };
        assert_eq!(peer.execute(admin, &keep_alive.emit(), &[]).unwrap().status, Status::SUCCESS);
        peer.disconnect(admin);
        peer.await_departure();
    }
    assert_eq!(world.metric("intact_nvme_bad_capsules_total"), 3);
    world.await_metric("intact_nvme_failed_queues_total", SOON, |n| n >= 5);
    honest.finish(SOON);
    world.await_idle();
    world.end();
}

#[test]
fn rdma_operations_that_a_target_does_not_offer_end_the_connection() {
    let world = World::start(1);
    let honest = Honest::start(&world, 1);
    let at = RemoteAddr { addr: 0x7000_0000_0000, rkey: Rkey(0x100) };
    for op in [SendOp::Write(at), SendOp::WriteWithImm(at, [1; 4]), SendOp::SendWithInv(Rkey(0x100))] {
        let (mut peer, _, io) = connected(&world, 2);
        peer.post(io, &[0; 64], op);
        let end = peer.await_end(io);
        assert!(matches!(end, End::Failed(_) | End::Disconnected), "{op:?}: {end:?}");
    }
    honest.finish(SOON);
    world.end();
}

#[test]
fn an_identifier_in_use_is_a_conflict_and_stays_with_the_first_command() {
    let world = World::start(1);
    let (mut peer, admin, _) = connected(&world, 1);
    let command = |cid, op| AdminCommand { cid, opcode: 0, nsid: 0, op, dptr: DataPointer::None }.emit();
    // An event request waits: its identifier stays in use.
    peer.submit(admin, &command(77, AdminOp::AsyncEventRequest), &[]);
    for _ in 0..3 {
        let done = peer.execute(admin, &command(77, AdminOp::KeepAlive), &[]).unwrap();
        assert_eq!((done.cid, done.status.code()), (77, Status::COMMAND_ID_CONFLICT.code()));
    }
    assert_eq!(peer.execute(admin, &command(78, AdminOp::KeepAlive), &[]).unwrap().status, Status::SUCCESS);
    // More event requests than announced.
    for cid in 80..83 {
        peer.submit(admin, &command(cid, AdminOp::AsyncEventRequest), &[]);
    }
    let done = peer.execute(admin, &command(90, AdminOp::AsyncEventRequest), &[]).unwrap();
    assert_eq!((done.cid, done.status), (90, Status::ASYNC_EVENT_LIMIT_EXCEEDED));
    // Aborted, it answers first or second, and its identifier is free again.
    peer.submit(admin, &command(91, AdminOp::Abort { sqid: 0, cid: 77 }), &[]);
    let mut cids = [peer.response(admin).unwrap().cid, peer.response(admin).unwrap().cid];
    cids.sort_unstable();
    assert_eq!(cids, [77, 91]);
    assert_eq!(peer.execute(admin, &command(77, AdminOp::KeepAlive), &[]).unwrap().status, Status::SUCCESS);
    assert_eq!(world.await_metric("intact_nvme_cid_conflicts_total", SOON, |n| n > 0), 3);
    peer.disconnect(admin);
    peer.await_departure();
    world.await_idle();
    world.end();
}

#[test]
fn more_commands_than_the_queue_has_entries_end_the_connection() {
    let world = World::start(1);
    let honest = Honest::start(&world, 1);
    let mut peer = Peer::open(world.peer(2), world.listener(), 4 << 20);
    let (admin, cntlid) = peer.admin(0);
    // The RDMA queue pair has room for 64 commands, Connect says 4.
    let io = peer.connect(&private(1, 64, cntlid), How::default()).unwrap();
    let data = connect_data(cntlid, NQN, HOST_NQN);
    let connect = connect_sqe(0, connect_fields(1, 4));
    assert_eq!(peer.execute(io, &connect, data.as_bytes()).unwrap().status, Status::SUCCESS);
    for round in 0..20 {
        for cid in 0..60 {
            let sqe = write(cid, 0, 16, peer.keyed(u64::from(cid) << 16, 16 << 12));
            peer.submit(io, &sqe, &[]);
        }
        peer.run_for(Duration::from_millis(20));
        if peer.queues[io].end.is_some() {
            break;
        }
        assert!(round < 19, "the queue takes more commands than it has entries");
    }
    world.await_metric("intact_nvme_bad_capsules_total", SOON, |n| n > 0);
    peer.disconnect(admin);
    peer.await_departure();
    honest.finish(SOON);
    world.await_idle();
    world.end();
}

#[test]
fn several_connects_at_once_make_one_controller() {
    let world = World::start(1);
    let before = world.target.usage();
    for _ in 0..20 {
        let mut peer = Peer::open(world.peer(1), world.listener(), 1 << 20);
        let at = peer.connect(&private(0, 32, 0), How::default()).unwrap();
        let data = connect_data(0xffff, NQN, HOST_NQN);
        // Fetched data: the second command is here before the first is done.
        peer.memory.write(0, data.as_bytes());
        let dptr = peer.keyed(0, 1024);
        for cid in 0..8 {
            let op = FabricsOp::Connect(connect_fields(0, 32));
            peer.submit(at, &FabricsCommand { cid, op, dptr }.emit(), &[]);
        }
        let statuses: Vec<Status> = (0..8).map(|_| peer.response(at).unwrap().status).collect();
        let made = statuses.iter().filter(|status| status.is_success()).count();
        assert_eq!(made, 1, "{statuses:?}");
        assert!(
            statuses.iter().all(|s| s.is_success() || s.code() == Status::COMMAND_SEQUENCE_ERROR.code()),
            "{statuses:?}"
        );
        assert_eq!(world.metric("intact_nvme_controllers"), 1);
        peer.disconnect(at);
        peer.await_departure();
        world.await_idle();
    }
    world.assert_no_growth(before, 16 << 20);
    world.end();
}

#[test]
fn commands_before_connect_are_out_of_sequence() {
    let world = World::start(1);
    let mut peer = Peer::open(world.peer(1), world.listener(), 1 << 20);
    let sequence_error = Status::COMMAND_SEQUENCE_ERROR.code();
    let admin = peer.connect(&private(0, 32, 0), How::default()).unwrap();
    let io = peer.connect(&private(1, 32, 0), How::default()).unwrap();
    let get = FabricsOp::PropertyGet { size: PropertySize::Qword, offset: property::CAP };
    let get = FabricsCommand { cid: 1, op: get, dptr: DataPointer::None }.emit();
    let keep_alive =
        AdminCommand { cid: 2, opcode: 0, nsid: 0, op: AdminOp::KeepAlive, dptr: DataPointer::None };
    let read = read(3, 0, 1, peer.keyed(0, 4096));
    for (at, sqe) in [(admin, get), (admin, keep_alive.emit()), (io, get), (io, read)] {
        assert_eq!(peer.execute(at, &sqe, &[]).unwrap().status.code(), sequence_error);
    }
    world.end();
}

#[test]
fn random_commands_are_answered_or_end_their_connection() {
    const COMMANDS: usize = 3000;
    let world = World::start(2);
    let honest = Honest::start(&world, 1);
    let before = world.target.usage();
    let mut random = fastrand::Rng::with_seed(0x1a7a_c701);
    let mut peer = Peer::open(world.peer(2), world.listener(), 4 << 20);
    let mut queues = None;
    let (mut answered, mut ended) = (0, 0);
    for number in 0..COMMANDS {
        let (admin, io) = *queues.get_or_insert_with(|| {
            let (admin, cntlid) = peer.admin(0);
            (admin, peer.io(cntlid, 1, 32, How::default()))
        });
        let sqe = random_sqe(&mut random, &peer);
        let at = if random.u8(..) < 64 { admin } else { io };
        let behind = vec![random.u8(..); random.usize(0..4096)];
        // An event request has no answer; opcode 0Ch on the admin queue.
        if at == admin && sqe.opc == 0x0c {
            continue;
        }
        match peer.execute(at, &sqe, &behind) {
            Ok(done) => {
                assert_eq!(done.cid, sqe.cid.get(), "command {number}: {sqe:?}");
                answered += 1;
            }
            Err(_) => {
                ended += 1;
                peer.disconnect(admin);
                peer.disconnect(io);
                peer.await_departure();
                peer.forget_queues();
                queues = None;
            }
        }
        // A reset or shutdown leaves a controller that refuses everything: that is no test.
        if number % 500 == 499 && queues.take().is_some() {
            peer.disconnect(admin);
            peer.disconnect(io);
            peer.await_departure();
            peer.forget_queues();
        }
    }
    assert!(answered > COMMANDS / 2, "{answered} answered, {ended} connections ended");
    honest.finish(SOON);
    world.await_idle();
    world.assert_no_growth(before, 256 << 20);
    world.end();
}

/// A command with a few fields that make sense, so that it gets deep. Blocks of the honest host are left alone.
fn random_sqe(random: &mut fastrand::Rng, peer: &Peer) -> Sqe {
    let mut bytes = [0; 64];
    random.fill(&mut bytes);
    let mut sqe = Sqe::read_from_bytes(&bytes).unwrap();
    if random.u8(..) < 250 {
        sqe.flags = 0x40;
    }
    if random.u8(..) < 230 {
        let opcodes = [0x00, 0x01, 0x02, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x7f];
        sqe.opc = opcodes[random.usize(..opcodes.len())];
    }
    if random.u8(..) < 230 {
        sqe.nsid = random.u32(0..3).into();
    }
    if random.u8(..) < 240 {
        sqe.cdw10 = random.u32(0..256).into();
        sqe.cdw11 = 0.into();
    }
    let blocks = random.u32(1..=64);
    if random.u8(..) < 230 {
        sqe.cdw12 = (sqe.cdw12.get() & 0x3c00_0000 | (blocks - 1)).into();
        sqe.cdw14 = sqe.cdw10;
    }
    // Never the last blocks of the volume, and no deallocation, which takes ranges from the data.
    if sqe.cdw10.get() > 10_000 || sqe.cdw11.get() != 0 {
        sqe.cdw11 = 0xff.into();
    }
    let per_block = if random.bool() { 4096 } else { 4104 };
    let pointer = match random.u8(0..9) {
        0 => None,
        1 => Some(DataPointer::InCapsule { offset: random.u64(0..4096), length: random.u32(1..5000) }),
        2 => Some(DataPointer::InCapsule { offset: 0, length: 4096 }),
        3 => Some(peer.keyed(0, 4096)),
        8 => Some(DataPointer::LastSegment { offset: random.u64(0..4096), length: random.u32(0..40) * 8 }),
        // Rarely: it ends the connection.
        4 if random.u8(..) < 24 => Some(keyed(random.u64(..), random.u32(..), random.u32(1..1 << 20))),
        _ => Some(peer.keyed(0, blocks * per_block)),
    };
    if let Some(pointer) = pointer {
        sqe.dptr = pointer.emit();
    }
    if random.u8(..) < 40 {
        sqe.dptr = DataPointer::None.emit();
    }
    sqe
}
