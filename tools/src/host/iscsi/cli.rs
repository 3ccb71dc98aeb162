//! The command line of `intact-host iscsi`: its arguments, and what each command does with them.
//!
//! Options are in the spirit of open-iscsi's and of those for NVMe.

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use intact::iscsi::name::IscsiName;
use intact::scsi::luns::LUN_MAX;
use t10pi::scsi::LongFields;

use super::bench;
use super::cdb::{BlockOp, Cdb, CdbLength};
use super::discovery::{self, SEND_TARGETS};
use super::initiator::{Initiator, Parties, TASKS_MAX};
use super::inquiry::Description;
use super::secret::{self, Source};
use super::unit::Unit;
use crate::host::bench::{Options, PiMode, Workload};
use crate::host::buffers::Keys;
use crate::host::cli::{file_error, parse_u16, parse_u32, print, print_json, run_on_cpu, say_success};
use crate::host::controller::Data;
use crate::host::error::HostError;
use crate::host::identity;
use crate::host::size;

/// Arguments of `iscsi`.
#[derive(Clone, Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Iscsi {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Show the targets that are open to this host, and where they are
    Discover(Discover),
    /// Show what logical units say of themselves: INQUIRY data, vital product data, capacity with protection
    Inquiry(Inquiry),
    /// Read blocks into a file
    Read(Transfer),
    /// Write blocks from a file
    Write(Transfer),
    /// Measure
    Bench(Bench),
}

/// How to reach a target, and who we are.
#[derive(Clone, Debug, Args)]
pub struct Reach {
    /// The target's IP address
    #[arg(short = 'a', long, value_name = "ADDR")]
    pub traddr: IpAddr,
    /// The target's port
    #[arg(short = 's', long, value_name = "PORT", default_value_t = 3260)]
    pub trsvcid: u16,
    /// This host's iSCSI name [default: the one in /etc/iscsi/initiatorname.iscsi, or one that follows from the machine's ID]
    #[arg(long, value_name = "NAME")]
    pub initiatorname: Option<String>,
    /// The local address, whose UDP port 4791 must be free [default: 127.0.0.2 for targets on IPv4 loopback, else the one
    /// that the system would use]; needed where that is the target's own, as for ::1 and 127.0.0.2
    #[arg(long, value_name = "ADDR")]
    pub local: Option<IpAddr>,
    /// Use one key for all memory, which the target may not invalidate, instead of registering it for each command
    #[arg(long)]
    pub lasting_key: bool,
    /// Log in with CHAP, by this name
    #[arg(long, value_name = "NAME")]
    pub chap_user: Option<String>,
    /// The secret for that; others can see it. Better is --chap-secret-file, or the variable INTACT_CHAP_SECRET
    #[arg(long, value_name = "SECRET", conflicts_with = "chap_secret_file")]
    pub chap_secret: Option<String>,
    /// A file whose first line is the secret
    #[arg(long, value_name = "FILE")]
    pub chap_secret_file: Option<PathBuf>,
    /// Have the target prove itself, too, by this name
    #[arg(long, value_name = "NAME")]
    pub mutual_user: Option<String>,
    /// The target's secret; others can see it. Better is --mutual-secret-file, or the variable INTACT_MUTUAL_SECRET
    #[arg(long, value_name = "SECRET", conflicts_with = "mutual_secret_file")]
    pub mutual_secret: Option<String>,
    /// A file whose first line is the target's secret
    #[arg(long, value_name = "FILE")]
    pub mutual_secret_file: Option<PathBuf>,
}

/// Which target.
#[derive(Clone, Debug, Args)]
pub struct Connection {
    /// How to reach it.
    #[command(flatten)]
    pub reach: Reach,
    /// The target's name
    #[arg(short = 'T', long, value_name = "NAME")]
    pub targetname: String,
}

/// Arguments of `discover`.
#[derive(Clone, Debug, Args)]
pub struct Discover {
    /// How to reach it.
    #[command(flatten)]
    pub reach: Reach,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `inquiry`.
#[derive(Clone, Debug, Args)]
pub struct Inquiry {
    /// Which target.
    #[command(flatten)]
    pub connection: Connection,
    /// Show this logical unit only [default: all that the target reports]
    #[arg(long, value_name = "NUMBER", value_parser = parse_lun)]
    pub lun: Option<u16>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Arguments of commands that move data.
#[derive(Clone, Debug, Args)]
pub struct Transfer {
    /// Which target.
    #[command(flatten)]
    pub connection: Connection,
    /// Logical unit
    #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = parse_lun)]
    pub lun: u16,
    /// First block
    #[arg(long, value_name = "LBA", default_value = "0", value_parser = size::parse_integer)]
    pub start_block: u64,
    /// Number of blocks, 0's based: 0 is one block
    #[arg(long, value_name = "COUNT", default_value = "0", value_parser = parse_u16)]
    pub block_count: u16,
    /// RDPROTECT or WRPROTECT: 0 the unit inserts or strips protection information; with others it travels behind each block
    /// and is checked as SBC-4 says (1 all of it, 2 all but the guard, 3 nothing, 4 the guard alone, 5 all of it)
    #[arg(long, value_name = "VALUE", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..8))]
    pub protect: u8,
    /// Length of the CDB [default: 10, or 16 for what needs it, or 32 for --protect on units of type 2]
    #[arg(long, value_enum)]
    pub cdb: Option<CdbLength>,
    /// Expected initial reference tag of a CDB of 32 bytes [default: the start block]
    #[arg(long, value_name = "TAG", value_parser = parse_u32)]
    pub ref_tag: Option<u32>,
    /// Expected application tag of a CDB of 32 bytes
    #[arg(long, value_name = "TAG", default_value = "0", value_parser = parse_u16)]
    pub app_tag: u16,
    /// Bits of the application tag that are checked
    #[arg(long, value_name = "MASK", default_value = "0", value_parser = parse_u16)]
    pub app_tag_mask: u16,
    /// Durable before it completes (FUA)
    #[arg(long)]
    pub force_unit_access: bool,
    /// The file to write (exactly as long as the blocks), or to read into; with --protect each block of a protected unit is
    /// followed by its tuple of 8 bytes
    #[arg(long, value_name = "FILE")]
    pub data: PathBuf,
}

/// Arguments of `bench`.
#[derive(Clone, Debug, Args)]
pub struct Bench {
    /// Which target.
    #[command(flatten)]
    pub connection: Connection,
    /// Logical unit
    #[arg(long, value_name = "NUMBER", default_value = "0", value_parser = parse_lun)]
    pub lun: u16,
    /// Which commands
    #[arg(long, value_enum, default_value_t = Workload::Randread)]
    pub rw: Workload,
    /// User data of a command: 4096, 4k, 128KiB
    #[arg(long, value_name = "SIZE", default_value = "4KiB", value_parser = size::parse)]
    pub bs: u64,
    /// Commands in flight in each session
    #[arg(long, value_name = "DEPTH", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=i64::from(TASKS_MAX)))]
    pub qd: u32,
    /// Sessions
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub queues: u16,
    /// Seconds to measure
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = size::parse_time)]
    pub time: Duration,
    /// Who handles protection information: pract the unit (PROTECT = 0), full this host and the unit (PROTECT = 1) [default: pract if the unit has it, else off]
    #[arg(long, value_enum)]
    pub pi: Option<PiMode>,
    /// Length of the CDBs [default: 10, or 16 for what needs it, or 32 for --pi full on units of type 2]
    #[arg(long, value_enum)]
    pub cdb: Option<CdbLength>,
    /// Check all data that is read; OVERWRITES the unit (see --span) before reads are measured
    #[arg(long)]
    pub verify: bool,
    /// OVERWRITE what is used of the unit before measuring, so that no block was never written
    #[arg(long)]
    pub prepare: bool,
    /// First block to use
    #[arg(long, value_name = "LBA", default_value = "0", value_parser = size::parse_integer)]
    pub start_block: u64,
    /// How much of the unit to use [default: all, with --verify at most 1 GiB]
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

fn parse_lun(text: &str) -> Result<u16, String> {
    let value = parse_u16(text)?;
    if value > LUN_MAX {
        return Err(format!("{text:?} is above {LUN_MAX}"));
    }
    Ok(value)
}

/// Carries out a command; what it prints goes to stdout.
///
/// # Errors
/// When it fails.
pub fn run(iscsi: &Iscsi) -> Result<(), HostError> {
    match &iscsi.command {
        Command::Discover(args) => discover(args),
        Command::Inquiry(args) => inquiry(args),
        Command::Read(args) => read(args),
        Command::Write(args) => write(args),
        Command::Bench(args) => run_bench(args),
    }
}

impl Reach {
    /// The device, for sessions with a target, or for discovery.
    fn open(&self, target: Option<&str>) -> Result<Initiator, HostError> {
        let name = |option: &str, text: &str| {
            IscsiName::parse(text).map_err(|error| HostError::Invalid(format!("{option}: {error}")))
        };
        let target = target.map(|text| name("--targetname", text)).transpose()?;
        let initiator = name("--initiatorname", &identity::initiator_name(self.initiatorname.as_deref()))?;
        let host = Source {
            option: "--chap-secret",
            given: self.chap_secret.as_deref(),
            file: self.chap_secret_file.as_deref(),
            variable: "INTACT_CHAP_SECRET",
        };
        let mutual = Source {
            option: "--mutual-secret",
            given: self.mutual_secret.as_deref(),
            file: self.mutual_secret_file.as_deref(),
            variable: "INTACT_MUTUAL_SECRET",
        };
        let account =
            secret::account((self.chap_user.as_deref(), host), (self.mutual_user.as_deref(), mutual))?;
        let keys = if self.lasting_key { Keys::Lasting } else { Keys::PerCommand };
        let parties = Parties { initiator, target, account, keys };
        Initiator::reach(self.local, SocketAddr::new(self.traddr, self.trsvcid), parties)
    }
}

impl Connection {
    /// A session for one command at a time.
    fn open(&self) -> Result<(Initiator, usize), HostError> {
        let mut initiator = self.reach.open(Some(&self.targetname))?;
        let session = initiator.open_session(1)?;
        Ok((initiator, session))
    }
}

impl Transfer {
    fn blocks(&self) -> u32 {
        u32::from(self.block_count) + 1
    }

    fn cdb(&self, unit: &Unit, op: BlockOp) -> Result<Cdb, HostError> {
        let mut fields = unit.fields(self.start_block, self.blocks(), self.protect);
        fields.fua = self.force_unit_access;
        fields.tags = LongFields {
            ref_tag: self.ref_tag.unwrap_or(fields.tags.ref_tag),
            app_tag: self.app_tag,
            app_tag_mask: self.app_tag_mask,
        };
        let cdb = unit.cdb(op, self.cdb, &fields).ok_or_else(|| {
            HostError::Invalid(format!(
                "--cdb: block {} or {} blocks have no room in it",
                self.start_block,
                self.blocks()
            ))
        })?;
        let has_tags = self.ref_tag.is_some() || self.app_tag != 0 || self.app_tag_mask != 0;
        if has_tags && cdb.behind_header().is_empty() {
            return Err(HostError::Invalid(
                "--ref-tag, --app-tag, --app-tag-mask: only a CDB of 32 bytes has them (--cdb 32)".to_owned(),
            ));
        }
        Ok(cdb)
    }

    fn transfer_len(&self, unit: &Unit) -> Result<usize, HostError> {
        let length = unit.transfer_len(self.blocks(), self.protect);
        usize::try_from(length).map_err(|_| HostError::Invalid(format!("{length} bytes are too many")))
    }
}

fn discover(args: &Discover) -> Result<(), HostError> {
    let mut initiator = args.reach.open(None)?;
    let session = initiator.open_session(1)?;
    let answer = initiator.ask(session, SEND_TARGETS.to_vec())?;
    let records = discovery::parse(&answer)
        .map_err(|error| HostError::Invalid(format!("the target's answer: {error}")))?;
    initiator.close();
    if args.json { print_json(&records) } else { print(&discovery::to_text(&records)) }
}

fn inquiry(args: &Inquiry) -> Result<(), HostError> {
    let (mut initiator, session) = args.connection.open()?;
    let units = match args.lun {
        Some(lun) => vec![lun],
        None => initiator.report_luns(session)?,
    };
    let described: Result<Vec<Description>, HostError> =
        units.into_iter().map(|lun| initiator.describe(session, lun)).collect();
    let described = described?;
    initiator.close();
    if args.json {
        print_json(&described)
    } else {
        print(&described.iter().map(Description::to_text).collect::<String>())
    }
}

fn read(args: &Transfer) -> Result<(), HostError> {
    let (mut initiator, session) = args.connection.open()?;
    let unit = initiator.unit(session, args.lun)?;
    let cdb = args.cdb(&unit, BlockOp::Read)?;
    let mut data = vec![0; args.transfer_len(&unit)?];
    let moved = initiator.execute(session, unit.wire_lun(), &cdb, Data::Receive(&mut data), "READ")?;
    if moved != data.len() {
        return Err(HostError::Corrupt(format!("a READ of {} bytes moved {moved}", data.len())));
    }
    fs::write(&args.data, &data).map_err(|source| file_error(&args.data, source))?;
    initiator.close();
    say_success("read");
    Ok(())
}

fn write(args: &Transfer) -> Result<(), HostError> {
    let data = fs::read(&args.data).map_err(|source| file_error(&args.data, source))?;
    let (mut initiator, session) = args.connection.open()?;
    let unit = initiator.unit(session, args.lun)?;
    let cdb = args.cdb(&unit, BlockOp::Write)?;
    let expected = args.transfer_len(&unit)?;
    if data.len() != expected {
        return Err(HostError::Invalid(format!(
            "{}: {expected} bytes are expected ({} x {}), it has {}",
            args.data.display(),
            args.blocks(),
            expected / args.blocks() as usize,
            data.len()
        )));
    }
    let moved = initiator.execute(session, unit.wire_lun(), &cdb, Data::Send(&data), "WRITE")?;
    if moved != data.len() {
        return Err(HostError::Corrupt(format!("a WRITE of {} bytes moved {moved}", data.len())));
    }
    initiator.close();
    say_success("write");
    Ok(())
}

fn run_bench(args: &Bench) -> Result<(), HostError> {
    run_on_cpu(args.cpu)?;
    let (mut initiator, session) = args.connection.open()?;
    let unit = initiator.unit(session, args.lun)?;
    let max_data = initiator.max_data(session, &unit)?;
    let options = Options {
        workload: args.rw,
        block_bytes: args.bs,
        depth: args.qd,
        queues: args.queues,
        time: args.time,
        pi: args.pi,
        verify: args.verify,
        prepare: args.prepare,
        start: args.start_block,
        span: args.span,
        keys: initiator.keys(),
        seed: args.seed.unwrap_or_else(|| fastrand::u64(..)),
    };
    let report = bench::run(&mut initiator, unit, max_data, args.cdb, options)?;
    initiator.close();
    if args.json { print_json(&report) } else { print(&format!("{report}\n")) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::host::cli::{Cli, Command as Outer};

    fn parse(line: &str) -> Command {
        match Cli::parse_from(line.split_whitespace()).command {
            Outer::Iscsi(iscsi) => iscsi.command,
            other => panic!("{other:?}"),
        }
    }

    const UNIT: Unit = Unit {
        lun: 0,
        blocks: 64,
        block_size: 4096,
        protection: None,
        provisioned: false,
        reads_zero: false,
    };

    #[test]
    fn options_are_those_of_the_nvme_commands_where_there_are_such() {
        let line = "intact-host iscsi write -a 127.0.0.1 -s 3261 -T iqn.2026-11.x:y --initiatorname iqn.2026-11.h:h \
             --lun 3 --start-block 0x40 --block-count 7 --protect 1 --cdb 16 --data f --local 127.0.0.3";
        let Command::Write(args) = parse(line) else { panic!() };
        assert_eq!((args.lun, args.start_block, args.blocks(), args.protect), (3, 0x40, 8, 1));
        assert_eq!((args.cdb, args.connection.reach.trsvcid), (Some(CdbLength::Sixteen), 3261));
        let line = "intact-host iscsi bench -a 127.0.0.1 -T iqn.2026-11.x:y --rw randrw --bs 128KiB --qd 64 --queues 4 \
             --time 2.5 --pi full --verify --json";
        let Command::Bench(args) = parse(line) else { panic!() };
        assert_eq!((args.bs, args.qd, args.queues, args.pi), (131_072, 64, 4, Some(PiMode::Full)));
    }

    #[test]
    fn tags_need_a_cdb_that_has_them() {
        let line = "intact-host iscsi read -a 127.0.0.1 -T iqn.2026-11.x:y --data f --ref-tag 5";
        let Command::Read(mut args) = parse(line) else { panic!() };
        let refused = args.cdb(&UNIT, BlockOp::Read).unwrap_err().to_string();
        assert!(refused.contains("--cdb 32"), "{refused}");
        args.cdb = Some(CdbLength::ThirtyTwo);
        let cdb = args.cdb(&UNIT, BlockOp::Read).unwrap();
        assert_eq!(cdb.as_bytes()[20..24], [0, 0, 0, 5]);
        args.cdb = Some(CdbLength::Ten);
        args.ref_tag = None;
        args.start_block = 1 << 32;
        let refused = args.cdb(&UNIT, BlockOp::Read).unwrap_err().to_string();
        assert!(refused.contains("have no room"), "{refused}");
    }

    #[test]
    fn a_number_that_no_unit_has_is_refused() {
        let line = ["intact-host", "iscsi", "inquiry", "-a", "127.0.0.1", "-T", "iqn.2026-11.x:y", "--lun"];
        let parsed = |number| Cli::try_parse_from(line.into_iter().chain([number])).is_ok();
        assert!(parsed("0x3fff") && !parsed("0x4000"));
    }
}
