//! What a measurement found, for people and as JSON.

use std::fmt;
use std::time::Duration;

use serde::Serialize;

use super::engine::Measured;
use super::{Job, PiMode, Workload};

/// Results of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Commands.
    pub rw: Workload,
    /// User data of a command, in bytes.
    pub bs: u64,
    /// Commands in flight on each queue.
    pub qd: u32,
    /// I/O queues.
    pub queues: u16,
    /// Protection.
    pub pi: PiMode,
    /// Bytes of the namespace that were used.
    pub span: u64,
    /// Seconds measured.
    pub seconds: f64,
    /// Reads completed.
    pub reads: u64,
    /// Writes completed.
    pub writes: u64,
    /// Commands a second.
    pub iops: f64,
    /// User data a second, in 10^6 bytes.
    pub mb_s: f64,
    /// Median latency, in microseconds.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// CPU time of this process, in seconds.
    pub cpu_s: f64,
    /// Calls of `sendmmsg` and `recvmmsg` for each command, those of busy polling that found nothing included.
    pub system_calls_per_command: f64,
    /// Packets that were sent again.
    pub retransmitted: u64,
    /// Datagrams that the kernel dropped because our receive buffer was full.
    pub dropped: u64,
    /// Reads whose data was checked.
    pub verified: u64,
}

impl Report {
    pub(super) fn new(job: &Job, measured: &Measured, verified: u64) -> Self {
        let commands = measured.reads + measured.writes;
        let seconds = measured.elapsed.as_secs_f64();
        let percentile = |percent| micros(measured.latency.value_at_percentile(percent));
        let iops = as_f64(commands) / seconds;
        Self {
            rw: job.options.workload,
            bs: job.options.block_bytes,
            qd: job.options.depth,
            queues: job.options.queues,
            pi: job.pi,
            span: job.span(),
            seconds,
            reads: measured.reads,
            writes: measured.writes,
            iops,
            mb_s: iops * as_f64(job.options.block_bytes) / 1e6,
            p50_us: percentile(50.0),
            p99_us: percentile(99.0),
            p999_us: percentile(99.9),
            cpu_s: measured.cpu.as_secs_f64(),
            system_calls_per_command: as_f64(measured.system_calls) / as_f64(commands.max(1)),
            retransmitted: measured.retransmitted,
            dropped: measured.dropped,
            verified,
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts of a measurement stay far below 2^53")]
fn as_f64(count: u64) -> f64 {
    count as f64
}

fn micros(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64() * 1e6
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |value: &dyn fmt::Debug| format!("{value:?}").to_lowercase();
        writeln!(
            f,
            "{}: {} bytes, depth {} x {} queue(s), pi {}, {:.1} s over {} bytes",
            name(&self.rw),
            self.bs,
            self.qd,
            self.queues,
            name(&self.pi),
            self.seconds,
            self.span
        )?;
        writeln!(f, "  IOPS      {:.0} ({} reads, {} writes)", self.iops, self.reads, self.writes)?;
        writeln!(f, "  MB/s      {:.1}", self.mb_s)?;
        writeln!(
            f,
            "  latency   p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us",
            self.p50_us, self.p99_us, self.p999_us
        )?;
        writeln!(f, "  CPU       {:.2} s", self.cpu_s)?;
        write!(f, "  network   {:.3} system calls a command", self.system_calls_per_command)?;
        write!(f, ", {} packets sent again, {} dropped", self.retransmitted, self.dropped)?;
        if self.verified > 0 {
            write!(f, "\n  verified  {} reads", self.verified)?;
        }
        Ok(())
    }
}
