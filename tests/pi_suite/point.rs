//! Where on its way a command's blocks are damaged, and who must notice.

use super::damage::{BLOCKS, Damage, Reason, Verdict, expect};
use super::format::Format;
use super::oracle::{Checks, Field};

/// Who checks what a Write or Compare has, when it comes from the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Checker {
    /// Software, when all of it is there.
    Software,
    /// The device, while it comes in.
    Device,
}

impl Checker {
    /// As configurations say it.
    pub(crate) fn integrity(self) -> &'static str {
        match self {
            Self::Software => "software",
            Self::Device => "offload",
        }
    }
}

/// Where blocks are damaged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Point {
    /// In the host's memory, before a Write.
    Host,
    /// In the host's memory, before a Write that carries its data in the capsule.
    Capsule,
    /// In the host's memory, before a Compare.
    Compared,
    /// In the host's memory, before a Write that has nothing checked.
    Unchecked,
    /// In the host's memory, before a Write whose tuples the target makes.
    Inserted,
    /// On the way of a Write.
    Wire,
    /// On the way of a capsule.
    WireCapsule,
    /// In the target's memory, before a Write is checked.
    Arrived,
    /// In the target's memory, between the check of a Write and the medium.
    Checked,
    /// On the medium.
    Medium,
    /// In the target's memory, between the medium and the check of a Read.
    Read,
    /// In the target's memory, after the check of a Read.
    Leaving,
    /// On the way of a Read.
    WireBack,
    /// On the way of a Read whose tuples the target keeps back.
    Stripped,
    /// On the medium, for a Verify that leaves a field unchecked.
    NoGuard,
    NoApp,
    NoStorage,
    NoRef,
    /// On the medium, for a Verify that checks no field.
    NoCheck,
}

/// Data that goes in a capsule, at the most.
pub(crate) const CAPSULE: usize = 4096;

impl Point {
    pub(crate) const ALL: [Self; 19] = [
        Self::Host,
        Self::Capsule,
        Self::Compared,
        Self::Unchecked,
        Self::Inserted,
        Self::Wire,
        Self::WireCapsule,
        Self::Arrived,
        Self::Checked,
        Self::Medium,
        Self::Read,
        Self::Leaving,
        Self::WireBack,
        Self::Stripped,
        Self::NoGuard,
        Self::NoApp,
        Self::NoStorage,
        Self::NoRef,
        Self::NoCheck,
    ];

    /// As README says it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Host => "before the wire, in a Write",
            Self::Capsule => "the same, with its data in the capsule",
            Self::Compared => "before the wire, in a Compare",
            Self::Unchecked => "before the wire, in a Write that has nothing checked",
            Self::Inserted => "before the wire, in a Write whose tuples the target makes",
            Self::Wire => "on the wire, in a Write",
            Self::WireCapsule => "the same, with its data in the capsule",
            Self::Arrived => "in memory, in a Write before its check",
            Self::Checked => "in memory, in a Write after its check",
            Self::Medium => "on the medium",
            Self::Read => "in memory, in a Read before its check",
            Self::Leaving => "in memory, in a Read after its check",
            Self::WireBack => "on the wire, in a Read",
            Self::Stripped => "on the wire, in a Read whose tuples the target keeps back",
            Self::NoGuard => "on the medium, guard not checked",
            Self::NoApp => "on the medium, application tag not checked",
            Self::NoStorage => "on the medium, storage tag not checked",
            Self::NoRef => "on the medium, reference tag not checked",
            Self::NoCheck => "on the medium, nothing checked",
        }
    }

    /// Where the target says that the damage happened; `None` where the host alone can notice it.
    pub(crate) fn hop(self) -> Option<&'static str> {
        match self {
            Self::Host | Self::Capsule | Self::Compared | Self::Unchecked | Self::Inserted => Some("host"),
            // What a capsule carries comes once: nobody can ask for it again.
            Self::WireCapsule => Some("host"),
            Self::Wire | Self::Arrived => Some("wire"),
            Self::Checked | Self::Medium | Self::Read => Some("media"),
            Self::NoGuard | Self::NoApp | Self::NoStorage | Self::NoRef | Self::NoCheck => Some("media"),
            Self::Leaving | Self::WireBack | Self::Stripped => None,
        }
    }

    /// What README says of those that notice.
    pub(crate) fn noticed(self) -> &'static str {
        match self {
            Self::Unchecked | Self::Inserted | Self::Stripped | Self::NoCheck => "nobody",
            Self::Host | Self::Capsule => "the Write fails and changes nothing; hop `host`",
            Self::Compared => "the Compare fails; hop `host`",
            Self::Wire => "the Write fails and changes nothing; hop `wire`",
            Self::WireCapsule => {
                "the Write fails and changes nothing; hop `host`, for a capsule comes once and can't be asked for again"
            }
            Self::Arrived => "the Write fails and changes nothing; hop `wire`",
            Self::Checked => "the next Verify fails; hop `media`",
            Self::Medium => "Read, Verify and Compare fail; hop `media`",
            Self::Read => "the Read fails; hop `media`",
            Self::NoGuard | Self::NoApp | Self::NoStorage | Self::NoRef => "the check of another field",
            Self::Leaving | Self::WireBack => "the host, when it checks what it read",
        }
    }

    /// The fields that are checked.
    pub(crate) fn checks(self) -> Checks {
        match self {
            Self::NoGuard => Checks::without(Field::Guard),
            Self::NoApp => Checks::without(Field::App),
            Self::NoStorage => Checks::without(Field::Storage),
            Self::NoRef => Checks::without(Field::Ref),
            Self::NoCheck | Self::Unchecked => Checks::NONE,
            _ => Checks::ALL,
        }
    }

    /// What must become of a command whose blocks are damaged so here. `None` where this can't
    /// be, or would say no more than another point does.
    pub(crate) fn expect(self, damage: Damage, format: &Format) -> Option<Verdict> {
        let in_capsule = BLOCKS * format.stride() <= CAPSULE;
        let protection = format.protection;
        match self {
            Self::Capsule | Self::WireCapsule if !in_capsule => None,
            Self::Inserted => (damage == Damage::DataBit && protection.is_some())
                .then_some(Verdict::Passes(Reason::MadeAfter)),
            Self::Stripped => (damage == Damage::DataBit && protection.is_some() && format.leading() == 0)
                .then_some(Verdict::Passes(Reason::Stripped)),
            _ => Some(expect(damage, format, self.checks())),
        }
    }
}
