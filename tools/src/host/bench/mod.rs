//! `intact-host bench` and `intact-host iscsi bench`: many commands in flight, measured.
//!
//! [`Job`] is what was asked for, checked against the disk; [`measure`] prepares, measures, and reads back what was written.
//! The loop itself is in `engine`; what commands are sent to is a [`Subject`]. One thread; nothing is allocated per command.

mod engine;
mod extents;
mod nvme;
mod pattern;
mod report;
mod source;
mod subject;

use std::time::Duration;

use clap::ValueEnum;
use serde::Serialize;

pub use report::Report;
pub use source::Op;
pub use subject::{Disk, Done, Subject, Transfer};

use self::engine::Engine;
use self::nvme::Queues;
use self::source::Source;
use super::buffers::Keys;
use super::controller::Controller;
use super::error::HostError;

/// Which commands at which addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Workload {
    /// Reads at random addresses
    Randread,
    /// Writes at random addresses
    Randwrite,
    /// Reads at rising addresses
    Read,
    /// Writes at rising addresses
    Write,
    /// Reads and writes, half each, at random addresses
    Randrw,
}

impl Workload {
    fn reads(self) -> bool {
        matches!(self, Self::Randread | Self::Read | Self::Randrw)
    }

    fn writes(self) -> bool {
        matches!(self, Self::Randwrite | Self::Write | Self::Randrw)
    }
}

/// Who handles protection information.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PiMode {
    /// Nobody: the namespace has none
    Off,
    /// The controller inserts and strips it, and checks guard and reference tag (PRACT = 1)
    Pract,
    /// It travels with the data; this host generates and verifies it, and the controller checks it (PRACT = 0)
    Full,
}

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Commands.
    pub workload: Workload,
    /// User data of a command, in bytes.
    pub block_bytes: u64,
    /// Commands in flight on each queue, 1 to 65535.
    pub depth: u32,
    /// I/O queues.
    pub queues: u16,
    /// How long to measure.
    pub time: Duration,
    /// Protection; by default what suits the namespace.
    pub pi: Option<PiMode>,
    /// Whether all data that is read is checked.
    pub verify: bool,
    /// Whether everything is written once before measuring.
    pub prepare: bool,
    /// First block.
    pub start: u64,
    /// Bytes of user data of the namespace that are used, from `start`; by default all, or with `verify` at most 1 GiB.
    pub span: Option<u64>,
    /// How the target reaches memory.
    pub keys: Keys,
    /// For the choice of addresses and the data.
    pub seed: u64,
}

/// Bytes that `verify` uses by default: it has to write them first.
const VERIFY_SPAN: u64 = 1 << 30;

/// A measurement that fits its disk.
#[derive(Clone, Debug)]
pub struct Job {
    options: Options,
    disk: Disk,
    pi: PiMode,
    /// Blocks of a command.
    blocks: u32,
    /// Commands' worth of blocks in the span.
    extents: u32,
    /// Bytes that a command transfers.
    wire_len: u32,
}

impl Job {
    /// What was asked for, if it fits; `block_len` says how many bytes a block takes in a transfer.
    ///
    /// # Errors
    /// What does not fit.
    pub fn new(
        options: Options,
        disk: Disk,
        block_len: impl Fn(PiMode) -> Result<u64, HostError>,
    ) -> Result<Self, HostError> {
        let invalid = |what: String| Err(HostError::Invalid(what));
        let block_size = u64::from(disk.block_size);
        let bs = options.block_bytes;
        if bs > disk.max_data {
            return invalid(format!(
                "--bs: the target takes at most {} bytes in a command, not {bs}",
                disk.max_data
            ));
        }
        if !bs.is_multiple_of(block_size) {
            return invalid(format!(
                "--bs: {bs} is not a multiple of the blocks of {block_size} bytes of {}",
                disk.name
            ));
        }
        let Some(blocks) = u32::try_from(bs / block_size).ok().filter(|&blocks| blocks <= 1 << 16) else {
            return invalid("--bs: a command takes at most 65536 blocks".to_owned());
        };
        let pi = match (options.pi, disk.protection) {
            (None | Some(PiMode::Off), None) => PiMode::Off,
            (None | Some(PiMode::Pract), Some(_)) => PiMode::Pract,
            (Some(PiMode::Full), Some(_)) => PiMode::Full,
            (Some(PiMode::Off), Some(_)) => {
                return invalid(format!(
                    "--pi off: {} is protected; use pract or full, or one without protection",
                    disk.name
                ));
            }
            (Some(PiMode::Pract | PiMode::Full), None) => {
                return invalid(format!("--pi: {} has no protection information", disk.name));
            }
        };
        if disk.read_only && (options.workload.writes() || options.prepare || options.verify) {
            return invalid(format!("{} is read only", disk.name));
        }
        let wire_len = block_len(pi)? * u64::from(blocks);
        let Some(wire_len) = u32::try_from(wire_len).ok().filter(|&length| length < 1 << 24) else {
            return invalid("--bs: with metadata, a command would transfer 16 MiB or more".to_owned());
        };
        let Some(available) = disk.blocks.checked_sub(options.start) else {
            return invalid(format!("--start-block: {} has {} blocks", disk.name, disk.blocks));
        };
        let default = if options.verify { VERIFY_SPAN / block_size } else { u64::MAX };
        let span = options.span.map_or(default, |bytes| bytes / block_size).min(available);
        let extents = u32::try_from(span / u64::from(blocks)).unwrap_or(u32::MAX);
        let in_flight = options.depth.saturating_mul(u32::from(options.queues));
        if extents == 0 {
            return invalid(format!(
                "--start-block, --span: {span} blocks of {} of {} are left, and a command takes {blocks} (--bs)",
                disk.blocks, disk.name
            ));
        }
        if options.verify && extents <= in_flight {
            return invalid(format!(
                "--verify keeps commands apart: {in_flight} in flight need more than {} bytes",
                u64::from(in_flight) * bs
            ));
        }
        Ok(Self { options, disk, pi, blocks, extents, wire_len })
    }

    /// Commands in flight, on all queues.
    #[must_use]
    pub fn slots(&self) -> usize {
        usize::from(self.options.queues) * self.options.depth as usize
    }

    /// Bytes that a command transfers.
    #[must_use]
    pub fn transfer_len(&self) -> usize {
        self.wire_len as usize
    }

    /// Bytes of user data that are used.
    fn span(&self) -> u64 {
        u64::from(self.extents) * self.options.block_bytes
    }
}

/// Runs a measurement.
///
/// # Errors
/// When it does not fit the namespace, a command fails, the connection breaks, or data is not what it should be.
pub fn run(controller: &mut Controller, nsid: u32, options: Options) -> Result<Report, HostError> {
    let namespace = controller.namespace(nsid)?;
    let disk = nvme::disk(&namespace, controller.max_data());
    let job = Job::new(options, disk, |pi| nvme::block_len(&namespace, pi))?;
    let entries = job.options.depth.saturating_add(1).max(2);
    let queues = controller.connect_io_queues(job.options.queues, entries)?;
    let subject = Queues::new(controller, namespace, &job, &queues)?;
    measure(subject, &job)
}

/// Measures.
///
/// # Errors
/// When a command fails, a connection breaks, or data is not what it should be.
pub fn measure(subject: impl Subject, job: &Job) -> Result<Report, HostError> {
    let mut engine = Engine::new(subject, job);
    let Options { workload, verify, prepare, time, .. } = job.options;
    if prepare || (verify && workload.reads()) {
        engine.run(Source::fill(), None)?;
    }
    let measured = engine.run(Source::workload(workload), Some(time))?;
    let read_back =
        if verify && workload.writes() { engine.run(Source::read_back(), None)?.reads } else { 0 };
    let checked = if verify { measured.reads + read_back } else { 0 };
    Ok(Report::new(job, &measured, checked))
}

#[cfg(test)]
mod tests {
    use t10pi::{Format, Guard, PiType};

    use super::*;
    use crate::host::namespace::Namespace;

    fn job(options: Options, namespace: &Namespace) -> Result<Job, HostError> {
        Job::new(options, nvme::disk(namespace, 1 << 20), |pi| nvme::block_len(namespace, pi))
    }

    fn options() -> Options {
        Options {
            workload: Workload::Randread,
            block_bytes: 4096,
            depth: 32,
            queues: 1,
            time: Duration::from_secs(1),
            pi: None,
            verify: false,
            prepare: false,
            start: 0,
            span: None,
            keys: Keys::Lasting,
            seed: 1,
        }
    }

    fn namespace(protected: bool) -> Namespace {
        let format = Format::new(Guard::Crc16, 4096, 8).unwrap();
        Namespace {
            nsid: 1,
            blocks: 16_384,
            block_size: 4096,
            metadata_size: if protected { 8 } else { 0 },
            extended: protected,
            protection: protected.then_some((format, PiType::Type1)),
            read_only: false,
        }
    }

    #[test]
    fn protection_follows_from_the_namespace_unless_told() {
        let job = |pi, protected| {
            let job = job(Options { pi, ..options() }, &namespace(protected));
            job.map(|job| (job.pi, job.wire_len)).map_err(|error| error.to_string())
        };
        assert_eq!(job(None, false), Ok((PiMode::Off, 4096)));
        assert_eq!(job(None, true), Ok((PiMode::Pract, 4096)));
        assert_eq!(job(Some(PiMode::Full), true), Ok((PiMode::Full, 4104)));
        assert!(job(Some(PiMode::Off), true).unwrap_err().contains("is protected"));
        assert!(job(Some(PiMode::Full), false).unwrap_err().contains("has no protection"));
    }

    #[test]
    fn what_does_not_fit_the_namespace_is_refused() {
        let refused = |options: Options| job(options, &namespace(true)).is_err();
        assert!(!refused(options()));
        assert!(refused(Options { block_bytes: 2048, ..options() }));
        assert!(refused(Options { block_bytes: 2 << 20, ..options() }));
        assert!(refused(Options { start: 16_385, ..options() }));
        assert!(refused(Options { start: 16_384, ..options() }));
        assert!(refused(Options { span: Some(4095), ..options() }));
        assert!(refused(Options { verify: true, span: Some(32 * 4096), ..options() }));
    }

    #[test]
    fn the_span_is_what_is_left_of_the_namespace_at_most() {
        let extents =
            |start, span| job(Options { start, span, ..options() }, &namespace(true)).unwrap().extents;
        assert_eq!(extents(0, None), 16_384);
        assert_eq!(extents(16_000, Some(1 << 40)), 384);
        assert_eq!(extents(0, Some(1 << 20)), 256);
    }
}
