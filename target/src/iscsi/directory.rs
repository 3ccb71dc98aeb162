//! The targets that hosts may log in to, who they are, and where.

use std::net::SocketAddr;

use super::chap::ChapPolicy;
use super::name::IscsiName;

/// Which initiators may use a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Initiators {
    /// All.
    Any,
    /// Those of these names.
    Named(Vec<IscsiName>),
}

/// A target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name.
    pub name: IscsiName,
    /// TargetAlias: text for people, at most 255 bytes.
    pub alias: Option<String>,
    /// Who may use it.
    pub initiators: Initiators,
    /// What they must prove, if anything.
    pub chap: Option<ChapPolicy>,
}

/// All targets, as they were at one time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Targets, in the order in which discovery lists them.
    pub targets: Vec<Target>,
    /// Where all of them are reached.
    pub portals: Vec<SocketAddr>,
    /// Portal group tag of these portals.
    pub portal_group_tag: u16,
    /// What a discovery session must prove, if anything.
    pub discovery_chap: Option<ChapPolicy>,
}

impl Target {
    /// Whether an initiator may use it.
    #[must_use]
    pub fn allows(&self, initiator: &IscsiName) -> bool {
        match &self.initiators {
            Initiators::Any => true,
            Initiators::Named(names) => names.contains(initiator),
        }
    }
}

impl Directory {
    /// The target of this name.
    #[must_use]
    pub fn target(&self, name: &IscsiName) -> Option<&Target> {
        self.targets.iter().find(|target| target.name == *name)
    }
}
