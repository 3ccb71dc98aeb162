//! `[nvme]`: the port, subsystems, their namespaces and who may connect.

use std::collections::BTreeSet;

use super::nqn::{Nqn, Serial};
use super::numbered::Numbered;
use super::reader::{Field, Section};
use super::volume::{self, Volume};

/// The port that IANA gave NVMe-oF over RDMA.
const PORT: u16 = 4420;

/// Highest namespace number, and so most namespaces, of one subsystem.
pub const NSID_MAX: u32 = 1024;

/// What is exported by NVMe-oF.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nvme {
    /// RDMA service port of every listener, 1 to 65535.
    pub port: u16,
    /// In the order of the file; names are unique.
    pub subsystems: Vec<Subsystem>,
}

/// An NVM subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subsystem {
    /// Its name.
    pub nqn: Nqn,
    /// As configured, or that of its first volume, or derived from the name.
    pub serial: Serial,
    /// Who may connect.
    pub hosts: Hosts,
    /// By rising number.
    pub namespaces: Vec<Namespace>,
}

/// Who may connect to a subsystem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hosts {
    /// Everybody.
    Any,
    /// Hosts of these names; not empty.
    Listed(BTreeSet<Nqn>),
}

impl Hosts {
    /// Whether a host of this name may connect. Names are compared byte by byte.
    #[must_use]
    pub fn allows(&self, host_nqn: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(names) => names.iter().any(|name| name.as_str() == host_nqn),
        }
    }
}

/// A namespace: a volume under a number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// 1 to [`NSID_MAX`].
    pub nsid: u32,
    /// Name of a volume of this configuration.
    pub volume: String,
}

impl Default for Nvme {
    fn default() -> Self {
        Self { port: PORT, subsystems: Vec::new() }
    }
}

impl Nvme {
    pub(super) fn read(mut section: Section<'_, '_>, volumes: &[volume::Draft<'_>]) -> Self {
        let port = section.integer("port", 1..=65_535).and_then(|field| u16::try_from(field.value).ok());
        let shared_serial = section.string("serial").and_then(|field| field.parse(Serial::parse));
        let shared_hosts = section.strings("hosts").and_then(host_names);
        let mut subsystems: Vec<Subsystem> = Vec::new();
        for section in section.sections("subsystem") {
            let Some((nqn, subsystem)) = Subsystem::read(
                section,
                volumes,
                shared_serial.as_ref().map(|field| &field.value),
                shared_hosts.as_ref(),
            ) else {
                continue;
            };
            if subsystems.iter().any(|other| other.nqn == subsystem.nqn) {
                nqn.report(format!("{} is the name of an earlier subsystem, too", subsystem.nqn));
            }
            subsystems.push(subsystem);
        }
        section.finish();
        Self { port: port.unwrap_or(PORT), subsystems }
    }
}

impl Subsystem {
    /// The volume of each namespace, with its number.
    pub fn volumes<'c>(&self, volumes: &'c [Volume]) -> impl Iterator<Item = (u32, &'c Volume)> {
        self.namespaces.iter().filter_map(|n| {
            volumes.iter().find(|volume| volume.name == n.volume).map(|volume| (n.nsid, volume))
        })
    }

    fn read<'d>(
        mut section: Section<'d, '_>,
        volumes: &[volume::Draft<'_>],
        shared_serial: Option<&Serial>,
        shared_hosts: Option<&BTreeSet<Nqn>>,
    ) -> Option<(Field<'d, Nqn>, Self)> {
        let nqn = section.string("nqn").and_then(|field| field.parse(Nqn::parse));
        let nqn = section.require(nqn, "nqn", "nqn = \"nqn.2026-11.org.example:disk0\"");
        let serial =
            section.string("serial").and_then(|field| field.parse(Serial::parse)).map(|field| field.value);
        let any = section.boolean("allow_any_host");
        let listed = section.strings("hosts");
        let hosts = match (any.as_ref().map(|field| field.value), listed) {
            (Some(true), Some(listed)) => {
                listed.report("hosts are listed and allow_any_host is true; keep one of them");
                None
            }
            (Some(true), None) => Some(Hosts::Any),
            (_, Some(listed)) => host_names(listed).map(Hosts::Listed),
            (_, None) => shared_hosts.cloned().map(Hosts::Listed),
        };
        if hosts.is_none() && !section.has("hosts") && any.is_some() == section.has("allow_any_host") {
            section.report("nobody may connect; give hosts = [\"nqn…\", …] or allow_any_host = true");
        }
        let namespaces = namespaces(section.sections("namespace"), volumes);
        section.finish();
        let nqn = nqn?;
        let first =
            namespaces.first().and_then(|n| volumes.iter().find(|volume| volume.name.value == n.volume));
        let serial = serial
            .or_else(|| shared_serial.cloned())
            .or_else(|| first.and_then(volume::Draft::serial).cloned())
            .unwrap_or_else(|| Serial::derived(&nqn.value));
        let subsystem = Self { nqn: nqn.value.clone(), serial, hosts: hosts?, namespaces };
        Some((nqn, subsystem))
    }
}

fn host_names(list: Field<'_, Vec<Field<'_, &str>>>) -> Option<BTreeSet<Nqn>> {
    if list.value.is_empty() {
        list.report("the list is empty, so that nobody may connect; give at least one host's NQN");
        return None;
    }
    let mut names = BTreeSet::new();
    for field in list.value {
        let Some(field) = field.parse(Nqn::parse) else { continue };
        if names.contains(&field.value) {
            field.report(format!("{} is listed twice", field.value));
        }
        names.insert(field.value);
    }
    Some(names)
}

/// Reads the namespaces; those without a number get the lowest free ones, in their order.
fn namespaces(sections: Vec<Section<'_, '_>>, volumes: &[volume::Draft<'_>]) -> Vec<Namespace> {
    let numbered = Numbered {
        key: "nsid",
        one: "namespace",
        as_one: "a namespace",
        home: "subsystem",
        numbers: 1..=NSID_MAX,
        most: NSID_MAX as usize,
    };
    let numbered = numbered.read(sections, volumes, |_| None);
    numbered.into_iter().map(|(nsid, volume)| Namespace { nsid, volume }).collect()
}
