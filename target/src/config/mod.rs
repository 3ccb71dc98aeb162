//! The configuration: a TOML file becomes a validated value, or a list of everything that is wrong with it.
//!
//! A [`Config`] that exists is consistent: names are unique, every namespace has its volume, every number is in its
//! range. Nothing here opens volumes or sockets. Keys of features that are not built yet are known and refused, never
//! ignored.

mod device;
mod error;
mod files;
mod iscsi;
mod nqn;
mod numbered;
mod nvme;
mod reactor;
mod reader;
mod restart;
mod size;
mod volume;

use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use toml::de::DeTable;

pub use device::{Checker, Device, Integrity, Provider};
pub use error::{ConfigError, ConfigErrors, Place};
pub use files::{FileState, Probe, probe};
pub use iscsi::{Iscsi, Target};
pub use nqn::{DISCOVERY_NQN, NQN_MAX, Nqn, Serial};
pub use nvme::{Hosts, NSID_MAX, Namespace, Nvme, Subsystem};
pub use reactor::{Cores, Metrics, Poll, Reactor};
pub use size::display as display_size;
pub use volume::Volume;

pub use crate::block::{BackendConfig as Backend, Layout, Protection};

use error::Diagnostics;
use reader::Section;

/// Longest configuration file, in bytes.
const FILE_MAX: u64 = 16 << 20;

/// A validated configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Config {
    /// `[device]`.
    pub device: Device,
    /// `[reactor]`.
    pub reactor: Reactor,
    /// `[metrics]`.
    pub metrics: Metrics,
    /// `[nvme]`.
    pub nvme: Nvme,
    /// `[iscsi]`.
    pub iscsi: Iscsi,
    /// `[[volume]]`, in the order of the file.
    pub volumes: Vec<Volume>,
}

impl Config {
    /// Reads and validates a file.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn load(file: &Path) -> Result<Self, ConfigErrors> {
        let unreadable = |why| ConfigErrors::unreadable(file, &why);
        let mut bytes = Vec::new();
        let opened = std::fs::File::open(file).map_err(unreadable)?;
        opened.take(FILE_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
        if bytes.len() as u64 > FILE_MAX {
            return Err(ConfigErrors::unreadable(file, &std::io::Error::other("it is longer than 16 MiB")));
        }
        Self::parse(&bytes, file, &probe)
    }

    /// Validates the text of a file; `probe` says what stands at the paths that it names.
    ///
    /// # Errors
    /// Everything that is wrong with it.
    pub fn parse(text: &[u8], file: &Path, probe: Probe<'_>) -> Result<Self, ConfigErrors> {
        let diagnostics = Diagnostics::default();
        let text = match std::str::from_utf8(text) {
            Ok(text) => text,
            Err(why) => {
                let valid = String::from_utf8_lossy(text.get(..why.valid_up_to()).unwrap_or_default());
                diagnostics.report(valid.len(), "", "not valid TOML: the file is not UTF-8 text");
                return diagnostics.into_result(file, &valid).map(|()| Self::default());
            }
        };
        let (document, syntax) = DeTable::parse_recoverable(text);
        let config = if syntax.is_empty() {
            Self::read(Section::root(document.get_ref(), &diagnostics), file, probe)
        } else {
            syntax.iter().for_each(|why| diagnostics.syntax(why.span(), why.message()));
            Self::default()
        };
        diagnostics.into_result(file, text).map(|()| config)
    }

    /// The volume of a name.
    #[must_use]
    pub fn volume(&self, name: &str) -> Option<&Volume> {
        self.volumes.iter().find(|volume| volume.name == name)
    }

    /// The name that a volume's identity is derived from: of the first subsystem that presents it, or else of the first target.
    #[must_use]
    pub fn home(&self, volume: &str) -> Option<&str> {
        let subsystem = |subsystem: &&Subsystem| subsystem.namespaces.iter().any(|n| n.volume == volume);
        let target = |target: &&Target| target.units.values().any(|name| name == volume);
        let subsystem = self.nvme.subsystems.iter().find(subsystem).map(|subsystem| subsystem.nqn.as_str());
        subsystem.or_else(|| self.iscsi.targets.iter().find(target).map(|target| target.iqn.as_str()))
    }

    /// Addresses and ports that NVMe hosts connect to, in the order of the file: none where all that is exported is by iSCSI.
    pub fn nvme_listeners(&self) -> impl Iterator<Item = SocketAddr> {
        let only_iscsi = self.nvme.subsystems.is_empty() && !self.iscsi.targets.is_empty();
        let addresses = self.device.addresses.iter().filter(move |_| !only_iscsi);
        addresses.map(|address| SocketAddr::new(*address, self.nvme.port))
    }

    /// Addresses and ports that iSCSI hosts connect to, in the order of the file: none where there is no target.
    pub fn iscsi_portals(&self) -> impl Iterator<Item = SocketAddr> {
        let addresses = self.device.addresses.iter().filter(|_| !self.iscsi.targets.is_empty());
        addresses.map(|address| SocketAddr::new(*address, self.iscsi.port))
    }

    /// Keys that differ in `new` but are only read at start ([`Self::without_restart`]).
    #[must_use]
    pub fn needs_restart(&self, new: &Self) -> Vec<String> {
        restart::differences(self, new)
    }

    /// What `new` means for a target that runs with this configuration: what is only read at start stays as it is.
    #[must_use]
    pub fn without_restart(&self, new: Self) -> Self {
        restart::without_differences(self, new)
    }

    fn read(mut root: Section<'_, '_>, file: &Path, probe: Probe<'_>) -> Self {
        let device = root.section("device").map(Device::read).unwrap_or_default();
        let reactor = root.section("reactor").map(Reactor::read).unwrap_or_default();
        let metrics = root.section("metrics").map(Metrics::read).unwrap_or_default();
        let volumes = volumes(&mut root, file.parent().unwrap_or_else(|| Path::new("")), probe);
        let nvme = root.section("nvme").map(|section| Nvme::read(section, &volumes)).unwrap_or_default();
        let iscsi = root.section("iscsi").map(|section| Iscsi::read(section, &volumes)).unwrap_or_default();
        if nvme.port == iscsi.port && !iscsi.targets.is_empty() && !nvme.subsystems.is_empty() {
            root.report(format!(
                "nvme.port and iscsi.port are both {}; they need ports of their own",
                nvme.port
            ));
        }
        root.finish();
        let volumes = volumes.into_iter().map(volume::Draft::finish).collect();
        Self { device, reactor, metrics, nvme, iscsi, volumes }
    }
}

fn volumes<'d>(root: &mut Section<'d, '_>, folder: &Path, probe: Probe<'_>) -> Vec<volume::Draft<'d>> {
    let mut volumes: Vec<volume::Draft<'d>> = Vec::new();
    let mut files: Vec<PathBuf> = Vec::new();
    for section in root.sections("volume") {
        let Some(volume) = volume::Draft::read(section, folder, probe) else { continue };
        if volumes.iter().any(|other| other.name.value == volume.name.value) {
            volume.name.report(format!("{:?} is the name of an earlier volume, too", volume.name.value));
        }
        if volume.uuid().is_some() && volumes.iter().any(|other| other.uuid() == volume.uuid()) {
            volume.name.report(format!("{:?} has the UUID of an earlier volume", volume.name.value));
        }
        let own = volume.files();
        if let Some(file) = own.iter().find(|file| files.contains(file)) {
            volume.report_file(format!("{} is used by an earlier volume", file.display()));
        }
        files.extend(own);
        volumes.push(volume);
    }
    volumes
}

#[cfg(test)]
mod tests;
