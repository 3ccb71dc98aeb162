//! Two hosts and two reactors overwrite and read overlapping ranges of the same volumes, as fast as they can.
//!
//! Every block says who wrote it and as part of which command. So each read shows whether a block is torn, whether a command
//! was seen in part, and whether a block went back to what it was before a write that had completed. Guards and reference tags are
//! checked on each read, by the target or by the host.
//!
//! `INTACT_TWO_HOSTS_SECONDS` says for how long [5]. Built with the feature `_fault`, packets get lost as `INTACT_FAULT_*` say, and
//! retransmissions are compared with the first try.
#![expect(clippy::disallowed_methods, reason = "runs a real target in real time")]

use std::process::Command;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use intact::nvmf::command::IoOp;
use intact_tests::host::{Done, Host, HostConfig, checked_range, protection};
use intact_tests::metrics::Metrics;
use intact_tests::stamp::{Stamp, find_torn_command};
use intact_tests::target::{Target, program};
use intact_tools::host::Keys;
use intact_tools::host::namespace::Namespace;

const NQN: &str = "nqn.2026-11.io.intact:shared";
const TARGET: [u8; 4] = [127, 0, 8, 1];
const METRICS: &str = "127.0.8.1:9420";
/// Blocks that are fought over: few enough that commands overlap all the time.
const SPAN: u64 = 192;
/// Blocks of a command at most: 128 KiB.
const MOST: usize = 32;
const BLOCK: usize = 4096;
const QUEUES: u16 = 4;
const DEPTH: u16 = 6;
const VOLUMES: usize = 3;

#[test]
fn two_hosts_on_two_reactors_find_no_torn_block_and_no_false_guard_error() {
    let time = Duration::from_secs(
        std::env::var("INTACT_TWO_HOSTS_SECONDS")
            .map_or(5, |text| text.parse().expect("INTACT_TWO_HOSTS_SECONDS is a number of seconds")),
    );
    let files = tempfile::tempdir().expect("a temporary folder can be made");
    let config = format!(
        "[device]\naddress = \"127.0.8.1\"\n[reactor]\ncores = 2\n[metrics]\naddress = \"{METRICS}\"\n\
         [[volume]]\nname = \"memory\"\nmemory = \"1MiB\"\nprotection = {{ type = 1 }}\n\
         [[volume]]\nname = \"separate\"\nfile = \"{0}/separate\"\nsize = \"1MiB\"\nprotection = {{ type = 1 }}\n\
         [[volume]]\nname = \"interleaved\"\nfile = \"{0}/interleaved\"\nsize = \"1MiB\"\n\
         protection = {{ type = 1, layout = \"interleaved\" }}\n\
         [[nvme.subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         [[nvme.subsystem.namespace]]\nvolume = \"memory\"\n\
         [[nvme.subsystem.namespace]]\nvolume = \"separate\"\n\
         [[nvme.subsystem.namespace]]\nvolume = \"interleaved\"\n",
        files.path().display()
    );
    let mut target = Target::start(Command::new(program("intact")), &config, 1);

    let filled = Barrier::new(2);
    let reports = std::thread::scope(|scope| {
        let hosts = [0, 1].map(|writer| {
            let filled = &filled;
            let run = move || {
                let mut worker = Worker::connect(writer);
                if writer == 0 {
                    worker.write_everything();
                }
                filled.wait();
                worker.run(time)
            };
            let name = format!("host-{writer}");
            std::thread::Builder::new().name(name).spawn_scoped(scope, run).expect("a thread can be made")
        });
        hosts.map(|host| host.join().expect("a host found nothing wrong"))
    });

    let metrics = Metrics::scrape(METRICS.parse().expect("a socket address"));
    for reactor in ["reactor=\"0\"", "reactor=\"1\""] {
        let commands = metrics.sum("intact_nvme_commands_total", reactor);
        assert!(commands > 100, "{reactor} carried out {commands} commands: both take part");
    }
    for wrong in [
        "intact_nvme_failed_commands_total",
        "intact_nvme_failed_queues_total",
        "intact_nvme_bad_capsules_total",
        "intact_media_errors_total",
        "intact_pi_errors_total",
        "intact_roce_qp_failures_total",
    ] {
        assert_eq!(metrics.sum(wrong, ""), 0, "{wrong}\n{}", target.log());
    }
    let waits = metrics.sum("intact_waits_total", "for=\"range\"");
    assert!(waits > 0, "commands overlapped\n{}", metrics.text());
    let copied = metrics.sum("intact_in_place_conflicts_total", "");
    assert!(copied > 0, "reads in place were in the way\n{}", metrics.text());
    let retransmitted = metrics.sum("intact_roce_retransmits_total", "");
    let lost = std::env::var("INTACT_FAULT_LOSS").is_ok_and(|loss| loss != "0");
    assert!(!cfg!(feature = "_fault") || !lost || retransmitted > 0, "packets were lost\n{}", target.log());
    for report in reports {
        println!("{report:?}");
        assert!(report.reads > 100 && report.writes > 100, "{report:?}");
    }
    println!(
        "{waits} commands waited for a range; {copied} reads in place were copied for others; the target sent \
         {retransmitted} packets again"
    );
    assert!(target.terminate(Duration::from_secs(10)).success(), "{}", target.log());
    if cfg!(feature = "_fault") && lost {
        println!("{}", target.log());
        assert!(
            target.whole_log().contains("FAULTS ARE ON"),
            "the target was built with faults\n{}",
            target.log()
        );
        assert!(!target.whole_log().contains("RETRANSMISSION DIFFERS"));
    }
}

#[derive(Debug, Default)]
struct Report {
    reads: u64,
    writes: u64,
    blocks: u64,
    retransmitted: u64,
}

/// A command in flight.
#[derive(Clone, Copy, Debug)]
struct Flight {
    volume: usize,
    slba: u64,
    blocks: usize,
    /// The number of a write; none of a read.
    write: Option<u32>,
    pract: bool,
    /// When it was sent, in events of this host.
    sent: u64,
    /// Of each block that is read: when the latest of our writes was sent that had completed when the read was sent.
    floors: [u64; MOST],
}

/// One host.
struct Worker {
    writer: u8,
    host: Host,
    namespaces: Vec<Namespace>,
    flights: Vec<Option<Flight>>,
    random: fastrand::Rng,
    scratch: Vec<u8>,
    /// Counts events, so that they can be ordered.
    clock: u64,
    /// When each write completed; `u64::MAX` for those in flight.
    completed: Vec<u64>,
    /// By volume and block: when the latest of our completed writes was sent.
    floors: Vec<Vec<u64>>,
    report: Report,
}

impl Worker {
    fn connect(writer: u8) -> Self {
        let mut host = Host::connect(&HostConfig {
            local: [127, 0, 8, 2 + writer].into(),
            target: (TARGET, 4420).into(),
            nqn: NQN.to_owned(),
            hostnqn: format!("nqn.2026-11.io.intact:host{writer}"),
            queues: QUEUES,
            depth: DEPTH,
            slot_len: MOST * (BLOCK + 8),
            // Both ways in one run.
            keys: if writer == 0 { Keys::PerCommand } else { Keys::Lasting },
        });
        let namespaces = (1..=u32::try_from(VOLUMES).expect("a few"))
            .map(|nsid| host.controller().namespace(nsid).expect("the namespace can be identified"))
            .collect();
        let seed = fastrand::u64(..);
        println!("host {writer}: seed {seed}");
        Self {
            writer,
            namespaces,
            flights: vec![None; host.slots()],
            host,
            random: fastrand::Rng::with_seed(seed),
            scratch: Vec::new(),
            clock: 0,
            completed: Vec::new(),
            floors: vec![vec![0; usize::try_from(SPAN).expect("small")]; VOLUMES],
            report: Report::default(),
        }
    }

    /// So that every block that is read has a stamp.
    fn write_everything(&mut self) {
        for volume in 0..VOLUMES {
            for slba in (0..SPAN).step_by(MOST) {
                let slot = self.slot();
                self.write(slot, volume, slba, MOST, true);
            }
        }
        self.finish();
    }

    fn run(mut self, time: Duration) -> Report {
        let until = Instant::now() + time;
        while Instant::now() < until {
            let slot = self.slot();
            let volume = self.random.usize(..VOLUMES);
            // Single blocks often, so that large commands are overwritten in part.
            let blocks =
                if self.random.bool() { self.random.usize(1..=4) } else { self.random.usize(1..=MOST) };
            let slba = self.random.u64(..=SPAN - blocks as u64);
            let pract = self.random.bool();
            if self.random.bool() {
                self.write(slot, volume, slba, blocks, pract);
            } else {
                self.read(slot, volume, slba, blocks, pract);
            }
        }
        self.finish();
        self.report.retransmitted = self.host.retransmitted();
        self.host.close();
        self.report
    }

    fn slot(&mut self) -> usize {
        loop {
            while let Some(done) = self.host.poll_done() {
                self.on_done(done);
            }
            if let Some(slot) = self.host.take_slot() {
                return slot;
            }
            self.host.drive();
        }
    }

    fn finish(&mut self) {
        while let Some(done) = self.host.next_done() {
            self.on_done(done);
        }
    }

    fn write(&mut self, slot: usize, volume: usize, slba: u64, blocks: usize, pract: bool) {
        let sequence = u32::try_from(self.completed.len()).expect("fewer writes than 2^32");
        self.completed.push(u64::MAX);
        let namespace = self.namespaces[volume];
        let stride = stride(pract);
        self.scratch.resize(blocks * stride, 0);
        for (index, block) in self.scratch.chunks_exact_mut(stride).enumerate() {
            let stamp = Stamp {
                writer: self.writer,
                volume: u8::try_from(volume).expect("few volumes"),
                sequence,
                slba: u16::try_from(slba).expect("a small span"),
                blocks: u8::try_from(blocks).expect("at most 32"),
                index: u8::try_from(index).expect("at most 32"),
            };
            stamp.fill(&mut block[..BLOCK]);
        }
        if !pract {
            protection(&namespace, slba).generate_interleaved(&mut [&mut self.scratch]);
        }
        self.host.fill(slot, &self.scratch);
        self.send(
            slot,
            Flight { volume, slba, blocks, write: Some(sequence), pract, sent: 0, floors: [0; MOST] },
        );
    }

    fn read(&mut self, slot: usize, volume: usize, slba: u64, blocks: usize, pract: bool) {
        let first = usize::try_from(slba).expect("a small span");
        let mut floors = [0; MOST];
        floors[..blocks].copy_from_slice(&self.floors[volume][first..first + blocks]);
        self.send(slot, Flight { volume, slba, blocks, write: None, pract, sent: 0, floors });
    }

    fn send(&mut self, slot: usize, flight: Flight) {
        self.clock += 1;
        let Flight { volume, slba, blocks, write, pract, .. } = flight;
        let namespace = self.namespaces[volume];
        let range = checked_range(&namespace, slba, u32::try_from(blocks).expect("at most 32"), pract);
        let op = if write.is_some() { IoOp::Write(range) } else { IoOp::Read(range) };
        let length = u32::try_from(blocks * stride(pract)).expect("at most 128 KiB and tuples");
        self.flights[slot] = Some(Flight { sent: self.clock, ..flight });
        self.host.submit(slot, namespace.nsid, op, length);
    }

    fn on_done(&mut self, Done { slot, status }: Done) {
        self.clock += 1;
        let flight = self.flights[slot].take().expect("a command completes once");
        assert!(status.is_success(), "{status}: {flight:?}");
        let Flight { volume, slba, blocks, .. } = flight;
        if let Some(sequence) = flight.write {
            self.completed[sequence as usize] = self.clock;
            let first = usize::try_from(slba).expect("a small span");
            for floor in &mut self.floors[volume][first..first + blocks] {
                *floor = flight.sent.max(*floor);
            }
            self.report.writes += 1;
        } else {
            self.check(slot, &flight);
            self.report.reads += 1;
        }
        self.report.blocks += blocks as u64;
        self.host.release(slot);
    }

    /// Checks what a read brought.
    fn check(&mut self, slot: usize, flight: &Flight) {
        let stride = stride(flight.pract);
        self.scratch.resize(flight.blocks * stride, 0);
        self.host.read(slot, &mut self.scratch);
        if !flight.pract {
            protection(&self.namespaces[flight.volume], flight.slba)
                .verify_interleaved(&[&self.scratch])
                .unwrap_or_else(|mismatch| panic!("{mismatch}: {flight:?}"));
        }
        let mut seen = Vec::with_capacity(MOST);
        for (index, block) in self.scratch.chunks_exact(stride).enumerate() {
            let stamp = Stamp::of_block(&block[..BLOCK])
                .unwrap_or_else(|torn| panic!("block {} of {flight:?}: {torn}", flight.slba + index as u64));
            let place = (stamp.lba(), usize::from(stamp.volume));
            assert_eq!(place, (flight.slba + index as u64, flight.volume), "{stamp:?} of {flight:?}");
            if stamp.writer == self.writer {
                let completed = self.completed[stamp.sequence as usize];
                let floor = flight.floors[index];
                assert!(
                    completed >= floor,
                    "{stamp:?} completed at {completed}, before a write was sent at {floor} that had completed when {flight:?} was sent"
                );
            }
            seen.push(stamp);
        }
        if let Some((one, other)) = find_torn_command(&seen) {
            panic!("{one:?} and {other:?}: a command was seen in part by {flight:?}");
        }
    }
}

/// Bytes of a block in a transfer: its tuple travels unless the target acts.
fn stride(pract: bool) -> usize {
    if pract { BLOCK } else { BLOCK + 8 }
}
