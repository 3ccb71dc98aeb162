//! The command line of `intact-host`: its arguments, and what each command does with them.
//!
//! Options are those of `nvme connect` and, long-form, of nvme-cli's I/O commands.

use std::fs;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use intact::cli::{LogLevel, complain};
use intact::nvmf::command::{BlockRange, IoOp, PiFields};
use intact::nvmf::wire::fabrics::DISCOVERY_NQN;
use intact::nvmf::wire::sqe::DsmRange;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use t10pi::Checks;
use zerocopy::IntoBytes;

use super::bench::{self, Options, PiMode, Workload};
use super::buffers::Keys;
use super::controller::{Controller, Data};
use super::discovery;
use super::error::HostError;
use super::identify::Description;
use super::identity::HostIdentity;
use super::iscsi::cli::Iscsi;
use super::link::Link;
use super::namespace::Namespace;
use super::size;

/// A host for NVMe over RDMA, and with `iscsi` for iSER, in userspace: no RDMA hardware, kernel module or privilege needed.
///
/// Exit status: 0 success; 1 a command completed with an error, which is printed as `status: ...`, or data was wrong;
/// 2 wrong arguments or files; 3 no connection, or no answer.
#[derive(Clone, Debug, Parser)]
#[command(name = "intact-host", version, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// How much is logged on stderr
    #[arg(long, value_enum, default_value_t = LogLevel::Warn, value_name = "LEVEL", global = true)]
    pub log: LogLevel,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Show what a target offers
    Discover(Discover),
    /// Show a controller and its namespaces
    Identify(Identify),
    /// Read blocks into a file
    Read(Transfer),
    /// Write blocks from a file
    Write(Transfer),
    /// Compare blocks with a file
    Compare(Transfer),
    /// Make written blocks durable
    Flush(Flush),
    /// Let the controller check the protection information of blocks
    Verify(Verify),
    /// Write zeroes
    WriteZeroes(WriteZeroes),
    /// Deallocate ranges of blocks
    Dsm(Dsm),
    /// Measure
    Bench(Bench),
    /// The same for iSCSI over RDMA (iSER)
    Iscsi(Iscsi),
}

/// How to reach a target, and who we are.
#[derive(Clone, Debug, Args)]
pub struct Reach {
    /// The target's IP address
    #[arg(short = 'a', long, value_name = "ADDR")]
    pub traddr: IpAddr,
    /// The target's port
    #[arg(short = 's', long, value_name = "PORT", default_value_t = 4420)]
    pub trsvcid: u16,
    /// This host's NQN [default: /etc/nvme/hostnqn, or one that follows from the machine's ID]
    #[arg(short = 'q', long, value_name = "NQN")]
    pub hostnqn: Option<String>,
    /// This host's identifier, a UUID [default: the one in the host NQN]
    #[arg(short = 'I', long, value_name = "UUID")]
    pub hostid: Option<String>,
    /// The local address, whose UDP port 4791 must be free [default: 127.0.0.2 for targets on IPv4 loopback, else the one
    /// that the system would use]; needed where that is the target's own, as for ::1 and 127.0.0.2
    #[arg(long, value_name = "ADDR")]
    pub local: Option<IpAddr>,
    /// Register memory for each command and let the controller invalidate its key, as Linux does, instead of using one key
    #[arg(long)]
    pub key_per_command: bool,
}

/// Which controller.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// How to reach it.
    #[command(flatten)]
    pub reach: Reach,
    /// The subsystem's NQN
    #[arg(short = 'n', long, value_name = "NQN")]
    pub nqn: String,
    /// I/O queues to connect; single commands use the first
    #[arg(short = 'i', long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub nr_io_queues: u16,
}

/// Arguments of `discover`.
#[derive(Clone, Debug, Args)]
pub struct Discover {
    /// How to reach it.
    #[command(flatten)]
    pub reach: Reach,
    /// The discovery subsystem's NQN
    #[arg(short = 'n', long, value_name = "NQN", default_value = DISCOVERY_NQN)]
    pub nqn: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `identify`.
#[derive(Clone, Debug, Args)]
pub struct Identify {
    /// Which controller.
    #[command(flatten)]
    pub connection: Connection,
    /// Show this namespace only
    #[arg(long, value_name = "NSID", value_parser = parse_u32)]
    pub namespace_id: Option<u32>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Which blocks.
#[derive(Clone, Debug, Args)]
pub struct Blocks {
    /// Namespace
    #[arg(long, value_name = "NSID", default_value = "1", value_parser = parse_u32)]
    pub namespace_id: u32,
    /// First block
    #[arg(long, value_name = "LBA", default_value = "0", value_parser = size::parse_integer)]
    pub start_block: u64,
    /// Number of blocks, 0's based: 0 is one block
    #[arg(long, value_name = "COUNT", default_value = "0", value_parser = parse_u16)]
    pub block_count: u16,
    /// Protection information: 8 PRACT (the controller inserts or strips it), 4 check guard, 2 check application tag, 1 check
    /// reference tag
    #[arg(long, value_name = "BITS", default_value = "0", value_parser = parse_prinfo)]
    pub prinfo: u8,
    /// Initial reference tag [default: the start block for types 1 and 2, else 0]
    #[arg(long, value_name = "TAG", value_parser = size::parse_integer)]
    pub ref_tag: Option<u64>,
    /// Application tag
    #[arg(long, value_name = "TAG", default_value = "0", value_parser = parse_u16)]
    pub app_tag: u16,
    /// Bits of the application tag that are checked
    #[arg(long, value_name = "MASK", default_value = "0", value_parser = parse_u16)]
    pub app_tag_mask: u16,
    /// Storage tag
    #[arg(long, value_name = "TAG", default_value = "0", value_parser = size::parse_integer)]
    pub storage_tag: u64,
    /// Check the storage tag
    #[arg(long)]
    pub storage_tag_check: bool,
    /// Durable before it completes (FUA)
    #[arg(long)]
    pub force_unit_access: bool,
    /// Do not try hard (LR)
    #[arg(long)]
    pub limited_retry: bool,
}

/// Arguments of commands that move data.
#[derive(Clone, Debug, Args)]
pub struct Transfer {
    /// Which controller.
    #[command(flatten)]
    pub connection: Connection,
    /// Which blocks.
    #[command(flatten)]
    pub blocks: Blocks,
    /// The file to write or compare (exactly as long as the blocks), or to read into; of a protected namespace and without
    /// PRACT each block is followed by its metadata
    #[arg(long, value_name = "FILE")]
    pub data: PathBuf,
}

/// Arguments of `flush`.
#[derive(Clone, Debug, Args)]
pub struct Flush {
    /// Which controller.
    #[command(flatten)]
    pub connection: Connection,
    /// Namespace
    #[arg(long, value_name = "NSID", default_value = "1", value_parser = parse_u32)]
    pub namespace_id: u32,
}

/// Arguments of `verify`.
#[derive(Clone, Debug, Args)]
pub struct Verify {
    /// Which controller.
    #[command(flatten)]
    pub connection: Connection,
    /// Which blocks.
    #[command(flatten)]
    pub blocks: Blocks,
}

/// Arguments of `write-zeroes`.
#[derive(Clone, Debug, Args)]
pub struct WriteZeroes {
    /// Which controller.
    #[command(flatten)]
    pub connection: Connection,
    /// Which blocks.
    #[command(flatten)]
    pub blocks: Blocks,
    /// Deallocate them too, if possible
    #[arg(long)]
    pub deac: bool,
}

/// Arguments of `dsm`.
#[derive(Clone, Debug, Args)]
pub struct Dsm {
    /// Which controller.
    #[command(flatten)]
    pub connection: Connection,
    /// Namespace
    #[arg(long, value_name = "NSID", default_value = "1", value_parser = parse_u32)]
    pub namespace_id: u32,
    /// First blocks of the ranges, separated by commas
    #[arg(long, value_name = "LBA,...", value_delimiter = ',', required = true, value_parser = size::parse_integer)]
    pub slbs: Vec<u64>,
    /// Blocks of the ranges, separated by commas
    #[arg(long, value_name = "COUNT,...", value_delimiter = ',', required = true, value_parser = parse_u32)]
    pub blocks: Vec<u32>,
    /// Deallocate the ranges; without this they are hints
    #[arg(long)]
    pub ad: bool,
}

/// Arguments of `bench`.
#[derive(Clone, Debug, Args)]
pub struct Bench {
    /// Which controller.
    #[command(flatten)]
    pub connection: Connection,
    /// Namespace
    #[arg(long, value_name = "NSID", default_value = "1", value_parser = parse_u32)]
    pub namespace_id: u32,
    /// Which commands
    #[arg(long, value_enum, default_value_t = Workload::Randread)]
    pub rw: Workload,
    /// User data of a command: 4096, 4k, 128KiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = size::parse)]
    pub bs: u64,
    /// Commands in flight on each queue
    #[arg(long, value_name = "DEPTH", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=65535))]
    pub qd: u32,
    /// I/O queues [default: --nr-io-queues]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..))]
    pub queues: Option<u16>,
    /// Seconds to measure
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = size::parse_time)]
    pub time: Duration,
    /// Who handles protection information [default: pract if the namespace has it, else off]
    #[arg(long, value_enum)]
    pub pi: Option<PiMode>,
    /// Check all data that is read; OVERWRITES the namespace (see --span) before reads are measured
    #[arg(long)]
    pub verify: bool,
    /// OVERWRITE what is used of the namespace before measuring, so that no block was never written
    #[arg(long)]
    pub prepare: bool,
    /// First block to use
    #[arg(long, value_name = "LBA", default_value = "0", value_parser = size::parse_integer)]
    pub start_block: u64,
    /// How much of the namespace to use [default: all, with --verify at most 1 GiB]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub span: Option<u64>,
    /// Run on this CPU only
    #[arg(long, value_name = "N")]
    pub cpu: Option<usize>,
    /// Makes addresses and data the same in each run [default: random]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

fn parse_prinfo(text: &str) -> Result<u8, String> {
    let value = size::parse_integer(text)?;
    u8::try_from(value).ok().filter(|&bits| bits < 16).ok_or_else(|| {
        format!("{text:?} is not a sum of 8 (PRACT), 4 (guard), 2 (application tag), 1 (reference tag)")
    })
}

/// Reads an integer of 16 bits.
pub(super) fn parse_u16(text: &str) -> Result<u16, String> {
    let value = size::parse_integer(text)?;
    u16::try_from(value).map_err(|_| format!("{text:?} has more than 16 bits"))
}

/// Reads an integer of 32 bits.
pub(super) fn parse_u32(text: &str) -> Result<u32, String> {
    let value = size::parse_integer(text)?;
    u32::try_from(value).map_err(|_| format!("{text:?} has more than 32 bits"))
}

/// Carries out a command; what it prints goes to stdout.
///
/// # Errors
/// When it fails.
pub fn run(command: &Command) -> Result<(), HostError> {
    match command {
        Command::Discover(args) => discover(args),
        Command::Identify(args) => identify(args),
        Command::Read(args) => read(args),
        Command::Write(args) => send(args, IoOp::Write),
        Command::Compare(args) => send(args, IoOp::Compare),
        Command::Flush(args) => {
            let mut session = Session::open(&args.connection, args.namespace_id)?;
            session.io(IoOp::Flush, Data::None)?;
            session.finish("flush")
        }
        Command::Verify(args) => {
            let mut session = Session::open(&args.connection, args.blocks.namespace_id)?;
            let range = args.blocks.range(&session.namespace)?;
            session.io(IoOp::Verify(range), Data::None)?;
            session.finish("verify")
        }
        Command::WriteZeroes(args) => {
            let mut session = Session::open(&args.connection, args.blocks.namespace_id)?;
            let range = args.blocks.range(&session.namespace)?;
            session.io(IoOp::WriteZeroes { range, deallocate: args.deac }, Data::None)?;
            session.finish("write-zeroes")
        }
        Command::Dsm(args) => dsm(args),
        Command::Bench(args) => run_bench(args),
        Command::Iscsi(args) => super::iscsi::cli::run(args),
    }
}

impl Reach {
    fn connect(&self, nqn: &str) -> Result<Controller, HostError> {
        let host = HostIdentity::new(self.hostnqn.as_deref(), self.hostid.as_deref())?;
        let link = Link::reach(self.local, SocketAddr::new(self.traddr, self.trsvcid))?;
        Controller::connect(link, nqn, host, self.keys())
    }

    fn keys(&self) -> Keys {
        if self.key_per_command { Keys::PerCommand } else { Keys::Lasting }
    }
}

impl Blocks {
    /// The range, with its protection fields, for a namespace.
    fn range(&self, namespace: &Namespace) -> Result<BlockRange, HostError> {
        if self.storage_tag != 0 {
            let bits = namespace.protection.map_or(0, |(format, _)| format.storage_tag_bits());
            if u64::BITS - self.storage_tag.leading_zeros() > u32::from(bits) {
                return Err(HostError::Invalid(format!(
                    "--storage-tag: {:#x} does not fit the namespace's storage tag of {bits} bits",
                    self.storage_tag
                )));
            }
        }
        if let Some(ref_tag) = self.ref_tag {
            // Without protection the field has its 32 bits, and means nothing.
            let bits = namespace.protection.map_or(32, |(format, _)| format.ref_tag_bits());
            if u64::BITS - ref_tag.leading_zeros() > u32::from(bits) {
                return Err(HostError::Invalid(format!(
                    "--ref-tag: {ref_tag:#x} does not fit the namespace's reference tag of {bits} bits"
                )));
            }
        }
        let ref_tag = self.ref_tag.unwrap_or_else(|| namespace.ref_tag(self.start_block));
        let pi = PiFields {
            pract: self.prinfo & 8 != 0,
            checks: Checks {
                guard: self.prinfo & 4 != 0,
                app_tag: self.prinfo & 2 != 0,
                storage_tag: self.storage_tag_check,
                ref_tag: self.prinfo & 1 != 0,
            },
            app_tag: self.app_tag,
            app_tag_mask: self.app_tag_mask,
            command_tags: namespace.command_tags(self.storage_tag, ref_tag),
        };
        Ok(BlockRange {
            slba: self.start_block,
            blocks: u32::from(self.block_count) + 1,
            fua: self.force_unit_access,
            limited_retry: self.limited_retry,
            pi,
        })
    }
}

/// A connection with one I/O queue in use, and a namespace.
struct Session {
    controller: Controller,
    queue: usize,
    namespace: Namespace,
}

/// Entries of queues that carry one command at a time.
const SHORT_QUEUE: u32 = 32;

impl Session {
    fn open(connection: &Connection, nsid: u32) -> Result<Self, HostError> {
        let mut controller = connection.reach.connect(&connection.nqn)?;
        let namespace = controller.namespace(nsid)?;
        let entries = SHORT_QUEUE.min(controller.max_entries());
        let queues = controller.connect_io_queues(connection.nr_io_queues, entries)?;
        Ok(Self { controller, queue: queues[0], namespace })
    }

    fn io(&mut self, op: IoOp, data: Data<'_>) -> Result<(), HostError> {
        self.controller.io(self.queue, self.namespace.nsid, op, data)
    }

    /// Bytes that a range transfers, if the controller takes so many.
    fn transfer_len(&self, range: &BlockRange) -> Result<usize, HostError> {
        let data = u64::from(range.blocks) * u64::from(self.namespace.block_size);
        if data > self.controller.max_data() {
            return Err(HostError::Invalid(format!(
                "the controller takes at most {} bytes in a command, not {data}",
                self.controller.max_data()
            )));
        }
        let length = self.namespace.transfer_len(range.blocks, range.pi.pract)?;
        usize::try_from(length).map_err(|_| HostError::Invalid(format!("{length} bytes are too many")))
    }

    fn finish(self, what: &str) -> Result<(), HostError> {
        self.controller.close();
        say_success(what);
        Ok(())
    }
}

fn discover(args: &Discover) -> Result<(), HostError> {
    let mut controller = args.reach.connect(&args.nqn)?;
    let log = discovery::read(&mut controller)?;
    controller.close();
    if args.json { print_json(&log) } else { print(&log.to_text()) }
}

fn identify(args: &Identify) -> Result<(), HostError> {
    let connection = &args.connection;
    let mut controller = connection.reach.connect(&connection.nqn)?;
    let description = Description::read(&mut controller, args.namespace_id)?;
    controller.close();
    if args.json { print_json(&description) } else { print(&description.to_text()) }
}

fn read(args: &Transfer) -> Result<(), HostError> {
    let mut session = Session::open(&args.connection, args.blocks.namespace_id)?;
    let range = args.blocks.range(&session.namespace)?;
    let mut data = vec![0; session.transfer_len(&range)?];
    session.io(IoOp::Read(range), Data::Receive(&mut data))?;
    fs::write(&args.data, &data).map_err(|source| file_error(&args.data, source))?;
    session.finish("read")
}

fn send(args: &Transfer, op: fn(BlockRange) -> IoOp) -> Result<(), HostError> {
    let data = fs::read(&args.data).map_err(|source| file_error(&args.data, source))?;
    let mut session = Session::open(&args.connection, args.blocks.namespace_id)?;
    let range = args.blocks.range(&session.namespace)?;
    let expected = session.transfer_len(&range)?;
    if data.len() != expected {
        let per_block = expected / range.blocks as usize;
        return Err(HostError::Invalid(format!(
            "{}: {expected} bytes are expected ({} x {per_block}), it has {}",
            args.data.display(),
            range.blocks,
            data.len()
        )));
    }
    let op = op(range);
    session.io(op, Data::Send(&data))?;
    session.finish(if matches!(op, IoOp::Write(_)) { "write" } else { "compare" })
}

fn dsm(args: &Dsm) -> Result<(), HostError> {
    if args.slbs.len() != args.blocks.len() {
        return Err(HostError::Invalid(format!(
            "--slbs has {} values and --blocks {}; each range needs one of both",
            args.slbs.len(),
            args.blocks.len()
        )));
    }
    let Some(ranges) = u16::try_from(args.slbs.len()).ok().filter(|&ranges| ranges <= 256) else {
        return Err(HostError::Invalid("--slbs: at most 256 ranges".to_owned()));
    };
    let list: Vec<DsmRange> = args
        .slbs
        .iter()
        .zip(&args.blocks)
        .map(|(&slba, &nlb)| DsmRange { cattr: 0.into(), nlb: nlb.into(), slba: slba.into() })
        .collect();
    let mut session = Session::open(&args.connection, args.namespace_id)?;
    session.io(IoOp::DatasetManagement { ranges, deallocate: args.ad }, Data::Send(list.as_bytes()))?;
    session.finish("dsm")
}

/// Runs on one CPU from now on, if that is asked for.
pub(super) fn run_on_cpu(cpu: Option<usize>) -> Result<(), HostError> {
    let Some(cpu) = cpu else { return Ok(()) };
    let mut set = CpuSet::new();
    set.set(cpu)
        .and_then(|()| sched_setaffinity(Pid::from_raw(0), &set))
        .map_err(|errno| HostError::Invalid(format!("--cpu {cpu}: can't run on this CPU: {}", errno.desc())))
}

fn run_bench(args: &Bench) -> Result<(), HostError> {
    run_on_cpu(args.cpu)?;
    let connection = &args.connection;
    let mut controller = connection.reach.connect(&connection.nqn)?;
    let options = Options {
        workload: args.rw,
        block_bytes: args.bs,
        depth: args.qd,
        queues: args.queues.unwrap_or(connection.nr_io_queues),
        time: args.time,
        pi: args.pi,
        verify: args.verify,
        prepare: args.prepare,
        start: args.start_block,
        span: args.span,
        keys: connection.reach.keys(),
        seed: args.seed.unwrap_or_else(|| fastrand::u64(..)),
    };
    let report = bench::run(&mut controller, args.namespace_id, options)?;
    controller.close();
    if args.json { print_json(&report) } else { print(&format!("{report}\n")) }
}

/// Says on stderr that a command that prints nothing succeeded.
pub(super) fn say_success(what: &str) {
    complain(&format_args!("{what}: success"));
}

/// Prints a value on stdout.
pub(super) fn print_json(value: &impl serde::Serialize) -> Result<(), HostError> {
    let text = serde_json::to_string_pretty(value).expect("plain values are JSON");
    print(&format!("{text}\n"))
}

/// Prints a text on stdout.
pub(super) fn print(text: &str) -> Result<(), HostError> {
    let written = std::io::stdout().write_all(text.as_bytes());
    written.map_err(|source| file_error(Path::new("standard output"), source))
}

/// A file that can't be used.
pub(super) fn file_error(path: &Path, source: std::io::Error) -> HostError {
    HostError::File { path: path.to_owned(), source }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn options_are_those_of_nvme_cli() {
        let line = "intact-host write -a 127.0.0.1 -s 4420 -n nqn.x:y -q nqn.h:h -i 2 --namespace-id 1 --start-block 8 \
             --block-count 7 --data f --prinfo 0xf --ref-tag 8 --app-tag 0x1234 --app-tag-mask 0xffff \
             --storage-tag 0 --storage-tag-check --local 127.0.0.3";
        let Command::Write(args) = Cli::parse_from(line.split_whitespace()).command else { panic!() };
        let namespace = Namespace {
            nsid: 1,
            blocks: 64,
            block_size: 4096,
            metadata_size: 0,
            extended: false,
            protection: None,
            read_only: false,
        };
        let range = args.blocks.range(&namespace).unwrap();
        assert_eq!((range.slba, range.blocks), (8, 8));
        assert!(range.pi.pract && range.pi.checks == Checks::ALL);
        assert_eq!((range.pi.app_tag, range.pi.app_tag_mask), (0x1234, 0xffff));
    }

    #[test]
    fn bench_takes_sizes_and_times_as_people_write_them() {
        let line = "intact-host bench -a 127.0.0.1 -n nqn.x:y --rw randrw --bs 128KiB --qd 255 --queues 4 --time 2.5 \
             --pi full --verify --json";
        let Command::Bench(args) = Cli::parse_from(line.split_whitespace()).command else { panic!() };
        assert_eq!((args.rw, args.bs, args.qd, args.queues), (Workload::Randrw, 131_072, 255, Some(4)));
        assert_eq!((args.time, args.pi), (Duration::from_millis(2500), Some(PiMode::Full)));
    }

    #[test]
    fn a_storage_tag_that_does_not_fit_is_refused() {
        let line = "intact-host verify -a 127.0.0.1 -n nqn.x:y --storage-tag 1";
        let Command::Verify(args) = Cli::parse_from(line.split_whitespace()).command else { panic!() };
        let namespace = Namespace {
            nsid: 1,
            blocks: 64,
            block_size: 512,
            metadata_size: 0,
            extended: false,
            protection: None,
            read_only: false,
        };
        assert!(args.blocks.range(&namespace).unwrap_err().to_string().contains("--storage-tag"));
    }

    #[test]
    fn a_reference_tag_that_does_not_fit_is_refused() {
        let format = t10pi::Format::new(t10pi::Guard::Crc16, 4096, 8).unwrap();
        let format = format.with_whole_storage_tag(16).unwrap();
        let namespace = Namespace {
            nsid: 1,
            blocks: 64,
            block_size: 4096,
            metadata_size: 8,
            extended: true,
            protection: Some((format, t10pi::PiType::Type1)),
            read_only: false,
        };
        let range = |tag: &str| {
            let line = ["intact-host", "verify", "-a", "127.0.0.1", "-n", "nqn.x:y", "--ref-tag", tag];
            let Command::Verify(args) = Cli::parse_from(line).command else { panic!() };
            args.blocks.range(&namespace).map(|_| ()).map_err(|error| error.to_string())
        };
        assert_eq!(range("0xffff"), Ok(()));
        let refused = "--ref-tag: 0x10000 does not fit the namespace's reference tag of 16 bits";
        assert_eq!(range("0x10000"), Err(refused.to_owned()));
    }

    #[test]
    fn namespaces_are_numbered_in_hexadecimal_too() {
        let line = "intact-host flush -a 127.0.0.1 -n nqn.x:y --namespace-id 0x10";
        let Command::Flush(args) = Cli::parse_from(line.split_whitespace()).command else { panic!() };
        assert_eq!(args.namespace_id, 16);
    }
}
