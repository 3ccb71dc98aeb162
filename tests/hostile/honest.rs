//! A host that keeps the rules, writes and reads all the time, checks every byte, and measures how long it waits.

#![expect(clippy::disallowed_methods, reason = "tests of real programs run in real time")]

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use intact::nvmf::command::{BlockRange, IoCommand, IoOp, PiFields};
use intact::nvmf::wire::status::Status;
use t10pi::{Checks, CommandTags};

use super::peer::{How, Peer};
use super::world::World;

/// Blocks that each host writes, at the end of the volume where no hostile peer writes.
const OWN_BLOCKS: u64 = 512;

/// A working host.
pub(crate) struct Honest {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Seen>,
}

/// What it saw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// Writes that were read back and compared.
    pub(crate) rounds: u64,
    /// The longest wait for a command.
    pub(crate) longest: Duration,
}

/// A range of blocks with PRACT = 1 and all checks.
pub(crate) fn protected(slba: u64, blocks: u32) -> BlockRange {
    let reference = u32::try_from(slba & 0xffff_ffff).unwrap();
    BlockRange {
        slba,
        blocks,
        fua: false,
        limited_retry: false,
        pi: PiFields {
            pract: true,
            checks: Checks { guard: true, ref_tag: true, ..Checks::NONE },
            command_tags: CommandTags { cdw14: reference, ..CommandTags::default() },
            ..PiFields::default()
        },
    }
}

impl Honest {
    /// Starts a host at the world's address `number`; returns when its first round is done. Different hosts use
    /// different blocks.
    pub(crate) fn start(world: &World, number: u8) -> Self {
        let (local, target) = (world.peer(number), world.listener());
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, started) = std::sync::mpsc::channel();
        let thread = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || work(local, target, u64::from(number), &stop, &ready)
        });
        started.recv_timeout(Duration::from_secs(30)).expect("the honest host gets to work");
        Self { stop, thread }
    }

    /// Lets it end; asserts that it worked all the time and never waited longer than `longest`.
    pub(crate) fn finish(self, longest: Duration) -> Seen {
        self.stop.store(true, Ordering::Relaxed);
        let seen = self.thread.join().expect("the honest host saw no error");
        assert!(seen.rounds >= 2, "{seen:?}");
        assert!(seen.longest <= longest, "the honest host had to wait: {seen:?}");
        seen
    }
}

/// Connects and works until told to stop. Every fault is a panic.
fn work(
    local: IpAddr,
    target: SocketAddr,
    number: u64,
    stop: &AtomicBool,
    ready: &std::sync::mpsc::Sender<()>,
) -> Seen {
    const LENGTH: usize = 128 << 10;
    const BLOCKS: u32 = 32;
    let mut peer = Peer::open(local, target, 2 * LENGTH);
    let (admin, cntlid) = peer.admin(0);
    let io = peer.io(cntlid, 1, 32, How::default());
    let first = super::world::BLOCKS - OWN_BLOCKS * (number + 1);
    let (read_at, write_at) = (0, LENGTH as u64);
    let mut random = fastrand::Rng::with_seed(number);
    let mut seen = Seen { rounds: 0, longest: Duration::ZERO };
    let mut data = vec![0; LENGTH];
    let mut back = vec![0; LENGTH];
    while !stop.load(Ordering::Relaxed) {
        // Sizes of one block to many: fetched data, and many packets.
        let blocks = random.u32(1..=BLOCKS);
        let length = blocks * 4096;
        let range = protected(first + random.u64(0..OWN_BLOCKS - u64::from(BLOCKS)), blocks);
        let bytes = length as usize;
        random.fill(&mut data[..bytes]);
        peer.memory.write(LENGTH, &data[..bytes]);
        for (op, at) in [(IoOp::Write(range), write_at), (IoOp::Read(range), read_at)] {
            let start = Instant::now();
            let cid = u16::try_from(seen.rounds % 30).unwrap();
            let command = IoCommand { cid, opcode: 0, nsid: 1, op, dptr: peer.keyed(at, length) };
            let done =
                peer.execute(io, &command.emit(), &[]).unwrap_or_else(|end| panic!("honest host: {end:?}"));
            assert_eq!((done.cid, done.status), (cid, Status::SUCCESS));
            seen.longest = seen.longest.max(start.elapsed());
        }
        peer.memory.read(0, &mut back[..bytes]);
        assert!(data[..bytes] == back[..bytes], "the honest host read what it did not write");
        seen.rounds += 1;
        let _ = ready.send(());
    }
    peer.disconnect(io);
    peer.disconnect(admin);
    peer.await_departure();
    seen
}
