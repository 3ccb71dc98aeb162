//! Datagrams that are no packets, packets that are nobody's, and management datagrams that make no sense.

#![expect(clippy::disallowed_methods, reason = "tests of real programs run in real time")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use intact_tests::flood::pour;
use rwctx::device::Qpn;
use rwctx::device::soft::wire::cm::{CmMessage, CommIds, Dreq};
use rwctx::device::soft::wire::{Bth, Ext, MAD_LEN, Opcode};

use super::honest::Honest;
use super::peer::{How, Peer, private};
use super::raw::Raw;
use super::world::World;

const SOON: Duration = Duration::from_secs(5);
/// Datagrams between pauses, so that the flood is not mostly lost in the receive buffer.
const BURST: usize = 64;

/// Sends what `make` makes, `count` times, with a pause after each burst.
fn flood(raw: &Raw, count: usize, mut make: impl FnMut(usize) -> Vec<u8>) {
    for number in 0..count {
        raw.send_bytes(&make(number));
        if number % BURST == BURST - 1 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn garbage_is_dropped_counted_and_felt_by_nobody() {
    let world = World::start(2);
    let honest = Honest::start(&world, 1);
    let before = world.target.usage();
    let raw = Raw::open(world.peer(2), world.listener(), 0);
    let mut random = fastrand::Rng::with_seed(1);
    // Noise of every length up to the largest that the loopback carries.
    flood(&raw, 3000, |number| {
        let length = if number % 10 == 0 { random.usize(0..60_000) } else { random.usize(0..200) };
        let mut bytes = vec![0; length];
        random.fill(&mut bytes);
        bytes
    });
    // Good packets, cut short, with a bit flipped, or for queue pairs that nobody has.
    let good = |opcode: u8, qpn: u32, payload: usize| {
        let opcode = Opcode::from(opcode);
        let header = bth_bytes(opcode, qpn);
        raw.sealed(&header, &vec![0x41; payload])
    };
    flood(&raw, 3000, |number| {
        let mut packet = good(random.u8(..), random.u32(2..1 << 24), random.usize(0..300));
        match number % 3 {
            0 => packet.truncate(random.usize(0..packet.len())),
            1 => {
                let bit = random.usize(0..packet.len() * 8);
                packet[bit / 8] ^= 1 << (bit % 8);
            }
            _ => {}
        }
        packet
    });
    world.await_metric("intact_roce_dropped_total", SOON, |n| n > 2000);
    for cause in ["malformed", "qpn"] {
        world.await_metric(&format!("intact_roce_dropped_total cause=\"{cause}\""), SOON, |n| n > 0);
    }
    honest.finish(SOON);
    world.await_idle();
    world.assert_no_growth(before, 32 << 20);
    world.end();
}

/// Base header and room for extension headers, whatever the opcode has.
fn bth_bytes(opcode: Opcode, qpn: u32) -> Vec<u8> {
    let mut bytes = vec![0; 12];
    bytes[0] = u8::from(opcode);
    bytes[1] = 0x40;
    bytes[2..4].copy_from_slice(&[0xff, 0xff]);
    bytes[5..8].copy_from_slice(&qpn.to_be_bytes()[1..]);
    bytes
}

#[test]
fn packets_forged_for_others_queue_pairs_are_dropped_by_address() {
    let world = World::start(1);
    let honest = Honest::start(&world, 1);
    // A queue pair of this peer, as anyone could guess it.
    let mut victim = Peer::open(world.peer(2), world.listener(), 1 << 16);
    let (admin, _) = victim.admin(0);
    let qpn = victim.queues[admin].remote;
    let raw = Raw::open(world.peer(3), world.listener(), 0);
    let mut random = fastrand::Rng::with_seed(2);
    let opcodes = [Opcode::SendOnly, Opcode::SendFirst, Opcode::SendLast, Opcode::Unknown(0x1f)];
    for number in 0..2000 {
        let opcode = opcodes[random.usize(..opcodes.len())];
        raw.send(Bth::new(opcode, qpn, random.u32(..), 64), Ext::None, &[0; 64]);
        if number % BURST == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
    world.await_metric("intact_roce_dropped_total cause=\"address\"", SOON, |n| n > 1000);
    // With the right address, but a port of its own and a wrong ICRC.
    let forger = Raw::open(world.peer(2), world.listener(), 0);
    for _ in 0..100 {
        let mut packet = forger.sealed(&bth_bytes(Opcode::SendOnly, qpn.0), &[0; 64]);
        let last = packet.len() - 1;
        packet[last] ^= 0x55;
        forger.send_bytes(&packet);
    }
    world.await_metric("intact_roce_dropped_total cause=\"icrc\"", SOON, |n| n > 0);
    victim.run_for(Duration::from_millis(50));
    assert_eq!(victim.queues[admin].end, None);
    victim.disconnect(admin);
    victim.await_departure();
    honest.finish(SOON);
    world.await_idle();
    world.end();
}

#[test]
fn management_datagrams_that_make_no_sense_end_nobodys_connection() {
    let world = World::start(2);
    let honest = Honest::start(&world, 1);
    let before = world.target.usage();
    let raw = Raw::open(world.peer(2), world.listener(), 0);
    let mut random = fastrand::Rng::with_seed(5);
    // Every attribute of the communication class and some others, every other byte random.
    flood(&raw, 4000, |number| {
        let mut mad = [0; MAD_LEN];
        random.fill(&mut mad);
        mad[..4].copy_from_slice(&[1, 7, 2, 3]);
        mad[4..8].fill(0);
        mad[16..18].copy_from_slice(&(0x10 + u16::try_from(number % 14).unwrap()).to_be_bytes());
        mad[18..24].fill(0);
        if number % 7 == 0 {
            let at = random.usize(0..24);
            mad[at] = random.u8(..);
        }
        raw.mad_packet(&mad)
    });
    // Of every length.
    flood(&raw, 600, |number| raw.mad_packet(&vec![0x07; number]));
    // Ends of connections that others have, by their identifiers.
    flood(&raw, 2000, |_| {
        let ids = CommIds { local: random.u32(..), remote: random.u32(..) };
        let dreq = CmMessage::Dreq(Dreq { ids, remote_qpn: Qpn(random.u32(..) & 0xff_ffff) });
        raw.mad_packet(&dreq.emit(random.u64(..)))
    });
    world.await_metric("intact_cm_messages_total what=\"malformed\"", SOON, |n| n > 0);
    honest.finish(SOON);
    world.await_idle();
    world.assert_no_growth(before, 32 << 20);
    world.end();
}

#[test]
fn a_flood_of_connection_requests_from_one_address_leaves_room_for_others() {
    let world = World::start(2);
    let honest = Honest::start(&world, 1);
    let before = world.target.usage();
    // Requests whose answers nobody takes.
    let mut flooder = Peer::open(world.peer(2), world.listener(), 1 << 16);
    for number in 0..600 {
        flooder.request(&private(0, 32, 0), How { receives: 1, ..How::default() });
        if number % 16 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    world.await_metric("intact_nvme_queues", SOON, |n| n >= 64);
    let start = Instant::now();
    let mut other = Peer::open(world.peer(3), world.listener(), 1 << 16);
    let (admin, _) = other.admin(0);
    assert!(start.elapsed() < SOON, "a newcomer waits {:?}", start.elapsed());
    other.disconnect(admin);
    other.await_departure();
    let kept = world.metric("intact_nvme_queues");
    assert!(kept <= 64 + 4, "{kept} queues of a peer that never spoke");
    drop(flooder);
    honest.finish(SOON);
    // Nobody took the answers: they are given up after a while.
    world.await_metric("intact_nvme_queues", Duration::from_secs(30), |n| n == 0);
    world.await_metric("intact_nvme_abandoned_queues_total", SOON, |n| n > 0);
    world.assert_no_growth(before, 64 << 20);
    world.end();
}

#[test]
fn a_flood_of_connection_requests_from_everywhere_keeps_no_newcomer_out() {
    const ADDRESSES: usize = 4000;
    /// Requests a second: more than a machine with other work takes would be a test of its socket buffers.
    const RATE: u32 = 5000;
    let world = World::start(2);
    let honest = Honest::start(&world, 1);
    let before = world.target.usage();
    let (poured, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // It ends by itself, too: a failure of the other thread waits for this one.
            let until = Instant::now() + Duration::from_secs(60);
            pour(world.listener(), RATE, |count| {
                poured.store(count, Ordering::Relaxed);
                stop.load(Ordering::Relaxed) || Instant::now() > until
            });
        });
        let start = Instant::now();
        while poured.load(Ordering::Relaxed) < ADDRESSES {
            assert!(start.elapsed() < Duration::from_secs(30), "the flood is a trickle");
            std::thread::sleep(Duration::from_millis(10));
        }
        // Strangers, of which each is known afterwards.
        for number in 3..6 {
            let start = Instant::now();
            let mut other = Peer::open(world.peer(number), world.listener(), 1 << 16);
            let (admin, cntlid) = other.admin(0);
            let io = other.io(cntlid, 1, 32, How::default());
            assert!(start.elapsed() < SOON, "a newcomer waits {:?}", start.elapsed());
            other.disconnect(io);
            other.disconnect(admin);
            other.await_departure();
        }
        let kept = world.metric("intact_nvme_queues");
        stop.store(true, Ordering::Relaxed);
        assert!(kept <= 64 + 8, "{kept} queues, most of hosts that don't exist");
    });
    honest.finish(SOON);
    world.await_metric("intact_nvme_queues", Duration::from_secs(30), |n| n == 0);
    world.assert_no_growth(before, 64 << 20);
    world.end();
}
