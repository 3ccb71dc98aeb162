//! Hosts that stop: taking completions, acknowledging, sending keep-alives, or in the middle of everything.

#![expect(clippy::disallowed_methods, reason = "tests of real programs run in real time")]

use std::time::{Duration, Instant};

use intact::nvmf::command::{BlockRange, DataPointer, IoCommand, IoOp, PiFields};
use intact::nvmf::wire::sqe::Sqe;
use intact::nvmf::wire::status::Status;

use super::honest::{Honest, protected};
use super::peer::{End, How, Peer};
use super::world::World;

const SOON: Duration = Duration::from_secs(5);
/// Blocks of the largest transfer, 1 MiB.
const LARGEST: u32 = 256;

fn read(cid: u16, blocks: u32, peer: &Peer) -> Sqe {
    let dptr = peer.keyed(0, blocks << 12);
    IoCommand { cid, opcode: 0, nsid: 1, op: IoOp::Read(protected(0, blocks)), dptr }.emit()
}

fn write(cid: u16, slba: u64, blocks: u32, peer: &Peer) -> Sqe {
    let dptr = peer.keyed(0, blocks << 12);
    IoCommand { cid, opcode: 0, nsid: 1, op: IoOp::Write(protected(slba, blocks)), dptr }.emit()
}

/// Asks for more data than the target has buffers, on several queues.
fn ask_for_everything(peer: &mut Peer, cntlid: u16, how: How) -> Vec<usize> {
    let queues: Vec<usize> = (1..=5).map(|qid| peer.io(cntlid, qid, 64, how)).collect();
    for &at in &queues {
        for cid in 0..60 {
            let sqe = read(cid, LARGEST, peer);
            peer.submit(at, &sqe, &[]);
        }
    }
    queues
}

#[test]
fn a_host_that_takes_no_completions_keeps_at_most_its_share_and_is_dropped() {
    let world = World::start(1);
    let honest = Honest::start(&world, 1);
    let mut peer = Peer::open(world.peer(2), world.listener(), 1 << 20);
    let (admin, cntlid) = peer.admin(0);
    // One receive, for Connect: every response after that meets a host that is not ready, for ever.
    let how = How { receives: 1, reposts: false, ..How::default() };
    let queues = ask_for_everything(&mut peer, cntlid, how);
    peer.run_for(Duration::from_secs(3));
    let waits = world.metric("intact_waits_total for=\"buffer\"");
    assert!(waits > 100, "the host was to ask for more than there is: {waits} waits");
    // A newcomer gets buffers while the others wait.
    let start = Instant::now();
    let mut other = Peer::open(world.peer(3), world.listener(), 1 << 20);
    let (_, other_cntlid) = other.admin(0);
    let at = other.io(other_cntlid, 1, 32, How::default());
    for cid in 0..8 {
        let sqe = read(cid, LARGEST, &other);
        assert_eq!(other.execute(at, &sqe, &[]).unwrap().status, Status::SUCCESS);
    }
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
    // In the end the target gives up, on those first that have buffers.
    let until = Instant::now() + Duration::from_secs(25);
    while queues.iter().all(|&at| peer.queues[at].end.is_none()) {
        assert!(Instant::now() < until, "queues that take nothing are kept");
        peer.run_for(Duration::from_millis(100));
    }
    assert!(world.metric("intact_nvme_stuck_queues_total") >= 1);
    assert_eq!(peer.queues[admin].end, None, "its other queues are its own business");
    honest.finish(SOON);
    drop((peer, other));
    world.end();
}

#[test]
fn a_host_that_falls_silent_in_the_middle_is_cleaned_up() {
    let world = World::start(1);
    let honest = Honest::start(&world, 1);
    let before = world.target.usage();
    let mut peer = Peer::open(world.peer(2), world.listener(), 1 << 20);
    let (_, cntlid) = peer.admin(2000);
    let queues = ask_for_everything(&mut peer, cntlid, How::default());
    for &at in &queues {
        for cid in 60..63 {
            let sqe = write(cid, 0, LARGEST, &peer);
            peer.submit(at, &sqe, &[]);
        }
    }
    peer.exchange();
    // Not a packet more of it; its socket fills and overflows.
    world.await_metric("intact_nvme_controllers", Duration::from_secs(20), |n| n == 1);
    honest.finish(SOON);
    world.await_idle();
    drop(peer);
    world.assert_no_growth(before, 400 << 20);
    world.end();
}

#[test]
fn hosts_that_leave_in_the_middle_of_writes_leave_nothing_behind() {
    let world = World::start(2);
    let honest = Honest::start(&world, 1);
    let mut before = None;
    for round in 0..60 {
        let mut peer = Peer::open(world.peer(2), world.listener(), 1 << 20);
        let (admin, cntlid) = peer.admin(1000);
        let first = peer.io(cntlid, 1, 64, How::default());
        let second = peer.io(cntlid, 2, 64, How::default());
        for cid in 0..60 {
            // Overlapping ranges, so that many wait for each other.
            let sqes = [write(cid, 0, 16, &peer), read(cid, 64, &peer)];
            for at in [first, second] {
                let sqe = sqes[usize::from((cid + round) % 2)];
                peer.submit(at, &sqe, &[]);
            }
        }
        for _ in 0..round % 4 {
            peer.exchange();
        }
        match round % 3 {
            0 => [first, second, admin].into_iter().for_each(|at| peer.disconnect(at)),
            1 => peer.disconnect(admin),
            // Its end is noticed by the keep-alive timer.
            _ => {}
        }
        peer.turn();
        drop(peer);
        if round == 20 {
            before = Some(world.target.usage());
        }
    }
    // The ranges are free.
    let mut peer = Peer::open(world.peer(3), world.listener(), 1 << 20);
    let (admin, cntlid) = peer.admin(0);
    let at = peer.io(cntlid, 1, 32, How::default());
    for cid in 0..4 {
        let sqe = write(cid, 0, LARGEST, &peer);
        assert_eq!(peer.execute(at, &sqe, &[]).unwrap().status, Status::SUCCESS);
    }
    peer.disconnect(at);
    peer.disconnect(admin);
    peer.await_departure();
    honest.finish(SOON);
    world.await_idle();
    // Buffers touched for the first time: half of each reactor's, for hosts whose end is not noticed yet.
    world.assert_no_growth(before.expect("there are rounds"), 320 << 20);
    world.end();
}

#[test]
fn a_host_without_keep_alives_is_dropped_and_one_with_traffic_is_not() {
    let world = World::start(2);
    let honest = Honest::start(&world, 1);
    let mut quiet = Peer::open(world.peer(2), world.listener(), 1 << 20);
    let (admin, cntlid) = quiet.admin(1000);
    let io = quiet.io(cntlid, 1, 32, How::default());
    let mut busy = Peer::open(world.peer(3), world.listener(), 1 << 20);
    let (busy_admin, cntlid) = busy.admin(1000);
    let busy_io = busy.io(cntlid, 1, 32, How::default());
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(4) {
        let sqe = read(1, 1, &busy);
        assert_eq!(busy.execute(busy_io, &sqe, &[]).unwrap().status, Status::SUCCESS);
        quiet.turn();
        busy.run_for(Duration::from_millis(50));
    }
    assert_eq!((quiet.await_end(admin), quiet.await_end(io)), (End::Disconnected, End::Disconnected));
    assert_eq!((busy.queues[busy_admin].end, busy.queues[busy_io].end), (None, None));
    busy.disconnect(busy_io);
    busy.disconnect(busy_admin);
    busy.await_departure();
    honest.finish(SOON);
    world.await_idle();
    world.end();
}

#[test]
fn commands_that_wait_for_one_block_by_the_thousand_slow_nobody_down() {
    /// Enough that looking at all of them whenever one has ended takes longer than anybody's command.
    const QUEUES: u16 = 60;
    let world = World::with_volume(1, "file = \"disk.img\"\nsize = \"64MiB\"");
    let mut other = Peer::open(world.peer(3), world.listener(), 1 << 20);
    let (_, cntlid) = other.admin(0);
    let at = other.io(cntlid, 1, 32, How::default());
    let mut median = || {
        let mut all: Vec<Duration> = Vec::new();
        for _ in 0..101 {
            let sqe = read(1, 1, &other);
            let start = Instant::now();
            assert_eq!(other.execute(at, &sqe, &[]).unwrap().status, Status::SUCCESS);
            all.push(start.elapsed());
        }
        all.sort();
        all[50]
    };
    let alone = median();
    let mut peer = Peer::open(world.peer(4), world.listener(), 1 << 20);
    let (_, cntlid) = peer.admin(0);
    let queues: Vec<usize> = (1..=QUEUES).map(|qid| peer.io(cntlid, qid, 256, How::default())).collect();
    let range = BlockRange { pi: PiFields { pract: true, ..PiFields::default() }, ..protected(1000, 1) };
    let op = IoOp::WriteZeroes { range, deallocate: true };
    for &at in &queues {
        for cid in 0..250 {
            let sqe = IoCommand { cid, opcode: 0, nsid: 1, op, dptr: DataPointer::None }.emit();
            peer.submit(at, &sqe, &[]);
        }
        peer.exchange();
    }
    let among = median();
    println!(
        "alone {alone:?}, among others {among:?}, waits {}",
        world.metric("intact_waits_total for=\"range\"")
    );
    assert!(among < 8 * alone + Duration::from_millis(1), "{among:?} instead of {alone:?}");
    // All of them are carried out.
    for &at in &queues {
        for _ in 0..250 {
            assert_eq!(peer.response(at).unwrap().status, Status::SUCCESS);
        }
    }
    drop((peer, other));
    world.end();
}
