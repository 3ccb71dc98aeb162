//! The command line of `intact`: its arguments, what `intact check` prints, and where logs go.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use clap::{Parser, Subcommand, ValueEnum};
use tracing::level_filters::LevelFilter;

use t10pi::Kernel;

use crate::block::Identity;
use crate::config::{Backend, Config, Hosts, Layout, Poll, Protection, Volume, display_size};
use crate::iscsi::directory::Initiators;
use crate::log_writer::LogWriter;

/// Exit status for a configuration that can't be used; clap uses the same for wrong arguments.
pub const EXIT_CONFIG: u8 = 2;

/// Exports block volumes over RDMA and keeps their T10 protection information intact.
///
/// Exit status: 0 success; 1 a volume, an address or something else of this machine can't be used; 2 wrong arguments or
/// a wrong configuration.
#[derive(Clone, Debug, Parser)]
#[command(name = "intact", version, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Serve the volumes of a configuration, in the foreground, until SIGTERM or SIGINT; SIGHUP reads the file again
    Serve(Serve),
    /// Validate a configuration and print what it would serve, without opening volumes and addresses
    Check(Check),
}

/// Arguments of `intact serve`.
#[derive(Clone, Debug, clap::Args)]
pub struct Serve {
    /// The configuration file (TOML)
    pub config: PathBuf,
    /// How much is logged on stderr
    #[arg(long, value_enum, default_value_t = LogLevel::Info, value_name = "LEVEL")]
    pub log: LogLevel,
    /// How log lines look
    #[arg(long, value_enum, default_value_t = LogFormat::Text, value_name = "FORMAT")]
    pub log_format: LogFormat,
}

/// Arguments of `intact check`.
#[derive(Clone, Debug, clap::Args)]
pub struct Check {
    /// The configuration file (TOML)
    pub config: PathBuf,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Nothing
    Off,
    /// Somebody must act
    Error,
    /// Abnormal, but handled
    Warn,
    /// Rare changes of state
    Info,
    /// Decisions
    Debug,
    /// Single commands
    Trace,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Off => Self::OFF,
            LogLevel::Error => Self::ERROR,
            LogLevel::Warn => Self::WARN,
            LogLevel::Info => Self::INFO,
            LogLevel::Debug => Self::DEBUG,
            LogLevel::Trace => Self::TRACE,
        }
    }
}

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people
    Text,
    /// One JSON object a line
    Json,
}

/// Sends logs to stderr from now on, as far as that takes them.
///
/// # Panics
/// When it is called twice in one process.
pub fn start_logging(level: LogLevel, format: LogFormat) {
    let writer = LogWriter::new(std::io::stderr());
    let logs = tracing_subscriber::fmt().with_max_level(LevelFilter::from(level)).with_writer(writer);
    match format {
        LogFormat::Text => {
            logs.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).with_target(false).init();
        }
        LogFormat::Json => logs.json().flatten_event(true).init(),
    }
}

/// Says something on stderr, on a line of its own, if that takes it: the exit status says the rest.
pub fn complain(what: &dyn fmt::Display) {
    // Nobody is left to be told.
    let _ = writeln!(std::io::stderr(), "{what}");
}

/// Refuses environment variables that would otherwise be ignored: work with another checksum kernel than the one that
/// was asked for would be taken for its work.
///
/// # Errors
/// The text for stderr; the exit status is then [`EXIT_CONFIG`].
pub fn check_environment() -> Result<(), String> {
    Kernel::from_env().map(drop).map_err(|error| format!("{}: {error}", t10pi::crc::ENV))
}

/// What `intact check` says about a configuration file: the plan, or its errors, one a line.
///
/// # Errors
/// The text for stderr, when the file is not valid; the exit status is then [`EXIT_CONFIG`].
pub fn check(file: &Path) -> Result<String, String> {
    Config::load(file).map(|config| plan(&config)).map_err(|errors| errors.to_string())
}

/// Describes what a configuration serves.
#[must_use]
pub fn plan(config: &Config) -> String {
    let mut text = String::new();
    write_plan(&mut text, config).expect("writing to a string can't fail");
    text
}

fn write_plan(out: &mut String, config: &Config) -> fmt::Result {
    let reactors = config.reactor.cores.count();
    let places: Vec<String> =
        (0..reactors).filter_map(|i| config.reactor.cores.cpu(i)).map(|cpu| cpu.to_string()).collect();
    let pinned = if places.is_empty() { String::new() } else { format!(" on CPU {}", places.join(", ")) };
    let poll = match config.reactor.poll {
        Poll::Adaptive => "adaptive polling",
        Poll::Busy => "busy polling",
    };
    writeln!(out, "reactors: {reactors}{pinned}, {poll}")?;
    if let Some(address) = config.metrics.address {
        writeln!(out, "metrics: http://{address}/metrics")?;
    }
    let device = config.device.provider.name();
    let (checker, integrity) = (config.device.checker(), config.device.integrity.name());
    let protection = match checker.offload {
        true => {
            "protection of writes checked by the device while data comes in, of reads in software before anything is sent"
        }
        false => "protection checked in software",
    };
    let why = checker.why.map_or(String::new(), |why| format!(": {why}"));
    let for_iser = match checker.offload {
        true => "integrity = \"offload\" is for NVMe alone".to_owned(),
        false => format!("integrity = \"{integrity}\"{why}"),
    };
    let persona =
        config.device.persona.map_or(String::new(), |it| format!(" with the capabilities of {}", it.name()));
    for listener in config.nvme_listeners() {
        writeln!(
            out,
            "listener: nvme rdma {listener}, {device} device{persona}, {protection} (integrity = \"{integrity}\"{why})"
        )?;
    }
    for portal in config.iscsi_portals() {
        writeln!(
            out,
            "listener: iser {portal}, {device} device{persona}, protection checked in software ({for_iser})"
        )?;
    }
    for subsystem in &config.nvme.subsystems {
        let hosts = match &subsystem.hosts {
            Hosts::Any => "any host".to_owned(),
            Hosts::Listed(names) => names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", "),
        };
        writeln!(out, "subsystem: {}, serial {}, open to {hosts}", subsystem.nqn, subsystem.serial.as_str())?;
        for (nsid, volume) in subsystem.volumes(&config.volumes) {
            writeln!(out, "  namespace {nsid}: {}", Described(config, volume))?;
        }
    }
    for target in &config.iscsi.targets {
        let initiators = match &target.initiators {
            Initiators::Any => "any initiator".to_owned(),
            Initiators::Named(names) => names.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", "),
        };
        let chap = match &target.chap {
            None => "no CHAP",
            Some(policy) if policy.is_mutual() => "mutual CHAP",
            Some(_) => "CHAP",
        };
        writeln!(out, "target: {}, open to {initiators}, {chap}", target.iqn)?;
        for (lun, volume) in target.volumes(&config.volumes) {
            writeln!(out, "  logical unit {lun}: {}", Described(config, volume))?;
        }
    }
    for volume in &config.volumes {
        if config.home(&volume.name).is_none() {
            writeln!(out, "not presented: {}", Described(config, volume))?;
        }
    }
    Ok(())
}

/// A volume on one line.
struct Described<'c>(&'c Config, &'c Volume);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Volume { name, backend, block_size, protection, read_only, uuid, .. } = self.1;
        write!(f, "volume {name}, ")?;
        match backend {
            Backend::Memory { size } => write!(f, "memory {}", display_size(*size))?,
            Backend::Null { size } => write!(f, "null {}", display_size(*size))?,
            Backend::File { path, size: Some(size) } => {
                write!(f, "file {} {}", path.display(), display_size(*size))?;
            }
            Backend::File { path, size: None } => write!(f, "file {}", path.display())?,
        }
        match protection {
            None => write!(f, ", blocks of {block_size} bytes, no protection")?,
            Some(Protection { pi_type, format, layout, .. }) => {
                let (number, guard) = (pi_type.number(), format.guard().name());
                let metadata_size = format.metadata_size();
                let layout = match layout {
                    Layout::Separate => "separate",
                    Layout::Interleaved => "interleaved",
                };
                write!(
                    f,
                    ", blocks of {block_size}+{metadata_size} bytes, protection type {number}, guard {guard}"
                )?;
                match format.storage_tag_bits() {
                    0 => {}
                    bits => write!(f, ", storage tag of {bits} bits")?,
                }
                write!(f, ", {layout}")?;
            }
        }
        let home = self.0.home(name).unwrap_or_default();
        write!(f, ", uuid {}", Identity::new(home, name, *uuid, None).uuid())?;
        f.write_str(if *read_only { ", read-only" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::config::FileState;

    #[test]
    fn the_definition_of_the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn serve_takes_the_documented_options() {
        let cli =
            Cli::try_parse_from(["intact", "serve", "c.toml", "--log", "debug", "--log-format", "json"]);
        let Command::Serve(serve) = cli.unwrap().command else { panic!("serve") };
        assert_eq!((serve.log, serve.log_format), (LogLevel::Debug, LogFormat::Json));
        let cli = Cli::try_parse_from(["intact", "serve", "c.toml"]);
        let Command::Serve(serve) = cli.unwrap().command else { panic!("serve") };
        assert_eq!((serve.log, serve.log_format), (LogLevel::Info, LogFormat::Text));
    }

    #[test]
    fn the_plan_lists_listeners_subsystems_namespaces_and_formats() {
        let text = r#"
            [device]
            addresses = ["127.0.0.1", "::1"]
            [reactor]
            cores = [0, 1]
            [metrics]
            address = "127.0.0.1:9420"
            [[volume]]
            name = "disk0"
            memory = "256MiB"
            protection = { type = 1 }
            uuid = "5b6c9a52-3d7e-4c8f-9a41-0e2d7c6b8a10"
            [[volume]]
            name = "spare"
            file = "spare.img"
            size = "1GiB"
            block_size = 512
            read_only = true
            uuid = "5b6c9a52-3d7e-4c8f-9a41-0e2d7c6b8a11"
            [[nvme.subsystem]]
            nqn = "nqn.2026-11.io.intact:disk0"
            serial = "S0"
            allow_any_host = true
            [[nvme.subsystem.namespace]]
            volume = "disk0"
        "#;
        let probe = |_: &Path| Ok(FileState::Regular);
        let config = Config::parse(text.as_bytes(), Path::new("/etc/intact/c.toml"), &probe).unwrap();
        let expected = r#"reactors: 2 on CPU 0, 1, adaptive polling
metrics: http://127.0.0.1:9420/metrics
listener: nvme rdma 127.0.0.1:4420, soft device, protection checked in software (integrity = "auto": the soft device's offload was not quicker with tuples on the wire)
listener: nvme rdma [::1]:4420, soft device, protection checked in software (integrity = "auto": the soft device's offload was not quicker with tuples on the wire)
subsystem: nqn.2026-11.io.intact:disk0, serial S0, open to any host
  namespace 1: volume disk0, memory 256 MiB, blocks of 4096+8 bytes, protection type 1, guard crc16, separate, uuid 5b6c9a52-3d7e-4c8f-9a41-0e2d7c6b8a10
not presented: volume spare, file /etc/intact/spare.img 1 GiB, blocks of 512 bytes, no protection, uuid 5b6c9a52-3d7e-4c8f-9a41-0e2d7c6b8a11, read-only
"#;
        assert_eq!(plan(&config), expected);

        let wide = "protection = { type = 2, guard = \"crc32c\", layout = \"interleaved\" }";
        let text = text.replace("protection = { type = 1 }", wide);
        let config = Config::parse(text.as_bytes(), Path::new("/etc/intact/c.toml"), &probe).unwrap();
        let (short, long) = (
            "4096+8 bytes, protection type 1, guard crc16, separate",
            "4096+16 bytes, protection type 2, guard crc32c, storage tag of 16 bits, interleaved",
        );
        let expected = expected.replace(short, long);
        assert_eq!(plan(&config), expected);

        let text = text.replace("[device]", "[device]\nintegrity = \"software\"");
        let config = Config::parse(text.as_bytes(), Path::new("/etc/intact/c.toml"), &probe).unwrap();
        let auto = "integrity = \"auto\": the soft device's offload was not quicker with tuples on the wire";
        let expected = expected.replace(auto, "integrity = \"software\"");
        assert_eq!(plan(&config), expected);

        let text = text.replace("[device]", "[device]\npersona = \"iwarp\"");
        let config = Config::parse(text.as_bytes(), Path::new("/etc/intact/c.toml"), &probe).unwrap();
        let persona = "soft device with the capabilities of iwarp, protection";
        assert_eq!(plan(&config), expected.replace("soft device, protection", persona));

        #[cfg(feature = "verbs")]
        {
            let text = text.replace("persona = \"iwarp\"", "provider = \"verbs\"");
            let config = Config::parse(text.as_bytes(), Path::new("/etc/intact/c.toml"), &probe).unwrap();
            assert!(plan(&config).contains("127.0.0.1:4420, verbs device, protection checked in software"));
        }
    }
}
