//! `[iscsi]`: the port, targets, their logical units, and who may log in with which secrets.

use std::collections::BTreeMap;

use super::numbered::Numbered;
use super::reader::{Field, Section};
use super::volume::{self, Volume};
use crate::iscsi::chap::{ChapPolicy, Credentials};
use crate::iscsi::directory::Initiators;
use crate::iscsi::name::IscsiName;
use crate::scsi::luns::LUN_MAX;
use crate::scsi::medium::Medium;

/// The port that IANA gave iSCSI.
const PORT: u16 = 3260;
/// Logical units of one target at most.
const UNITS_MAX: usize = 256;
/// Bytes of a secret: RFC 7143 section 9.2.1 asks for 96 bits at least.
const SECRET_LEN: std::ops::RangeInclusive<usize> = 12..=255;
/// Bytes of a user's name at most.
const USER_MAX: usize = 255;

/// What is exported by iSCSI over RDMA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Iscsi {
    /// RDMA service port of every portal, 1 to 65535.
    pub port: u16,
    /// In the order of the file; names are unique.
    pub targets: Vec<Target>,
}

/// A target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name.
    pub iqn: IscsiName,
    /// Who may log in.
    pub initiators: Initiators,
    /// What they must prove, if anything. Its secrets are never shown.
    pub chap: Option<ChapPolicy>,
    /// Names of volumes of this configuration by logical unit number, 0 to 16383.
    pub units: BTreeMap<u16, String>,
}

impl Default for Iscsi {
    fn default() -> Self {
        Self { port: PORT, targets: Vec::new() }
    }
}

impl Iscsi {
    pub(super) fn read(mut section: Section<'_, '_>, volumes: &[volume::Draft<'_>]) -> Self {
        let port = section.integer("port", 1..=65_535).and_then(|field| u16::try_from(field.value).ok());
        let mut targets: Vec<Target> = Vec::new();
        for section in section.sections("target") {
            let Some((iqn, target)) = Target::read(section, volumes) else { continue };
            if targets.iter().any(|other| other.iqn == target.iqn) {
                iqn.report(format!("{} is the name of an earlier target, too", target.iqn));
            }
            targets.push(target);
        }
        section.finish();
        Self { port: port.unwrap_or(PORT), targets }
    }
}

impl Target {
    /// The volume of each logical unit, with its number.
    pub fn volumes<'c>(&self, volumes: &'c [Volume]) -> impl Iterator<Item = (u16, &'c Volume)> {
        self.units.iter().filter_map(|(lun, name)| {
            volumes.iter().find(|volume| volume.name == *name).map(|volume| (*lun, volume))
        })
    }

    fn read<'d>(
        mut section: Section<'d, '_>,
        volumes: &[volume::Draft<'_>],
    ) -> Option<(Field<'d, IscsiName>, Self)> {
        let iqn = section.string("iqn").and_then(|field| field.parse(IscsiName::parse));
        let iqn = section.require(iqn, "iqn", "iqn = \"iqn.2026-11.org.example:disk0\"");
        let any = section.boolean("allow_any_initiator");
        let listed = section.strings("initiators");
        let initiators = match (any.as_ref().map(|field| field.value), listed) {
            (Some(true), Some(listed)) => {
                listed.report("initiators are listed and allow_any_initiator is true; keep one of them");
                None
            }
            (Some(true), None) => Some(Initiators::Any),
            (_, Some(listed)) => initiator_names(listed).map(Initiators::Named),
            (_, None) => None,
        };
        if initiators.is_none()
            && !section.has("initiators")
            && any.is_some() == section.has("allow_any_initiator")
        {
            section
                .report("nobody may log in; give initiators = [\"iqn…\", …] or allow_any_initiator = true");
        }
        let wants_chap = section.has("chap");
        let chap = section.section("chap").and_then(chap);
        let units = Numbered {
            key: "lun",
            one: "logical unit",
            as_one: "a logical unit",
            home: "target",
            numbers: 0..=u32::from(LUN_MAX),
            most: UNITS_MAX,
        };
        let sections = section.sections("lun");
        if sections.len() > UNITS_MAX {
            section.report_key("lun", format!("a target has at most {UNITS_MAX} logical units"));
        }
        let units = units.read(sections, volumes, cannot_be_a_unit);
        section.finish();
        let iqn = iqn?;
        let units = units.into_iter().filter_map(|(lun, name)| Some((u16::try_from(lun).ok()?, name)));
        let units = units.collect();
        // A policy that can't be used was noted: a target without one is another than was meant.
        if wants_chap && chap.is_none() {
            return None;
        }
        let target = Self { iqn: iqn.value.clone(), initiators: initiators?, chap, units };
        Some((iqn, target))
    }
}

/// Why a volume can't be a logical unit.
fn cannot_be_a_unit(volume: &volume::Draft<'_>) -> Option<String> {
    let protection = volume.protection().map(|protection| (protection.format, protection.pi_type));
    let error = Medium::new(1, volume.block_size(), protection).err()?;
    Some(format!("volume {:?} can't be a logical unit: {error}", volume.name.value))
}

fn initiator_names(list: Field<'_, Vec<Field<'_, &str>>>) -> Option<Vec<IscsiName>> {
    if list.value.is_empty() {
        list.report("the list is empty, so that nobody may log in; give at least one initiator's name");
        return None;
    }
    let mut names = Vec::new();
    for field in list.value {
        let Some(field) = field.parse(IscsiName::parse) else { continue };
        if names.contains(&field.value) {
            field.report(format!("{} is listed twice", field.value));
        }
        names.push(field.value);
    }
    Some(names)
}

/// `chap = { user, secret, mutual_user, mutual_secret }`. No message has a secret.
fn chap(mut section: Section<'_, '_>) -> Option<ChapPolicy> {
    let host = credentials(&mut section, "user", "secret", Needed::Yes);
    let wants_mutual = section.has("mutual_user") || section.has("mutual_secret");
    let needed = if wants_mutual { Needed::Yes } else { Needed::No };
    let target = credentials(&mut section, "mutual_user", "mutual_secret", needed);
    let policy = match (host, target) {
        (Some(host), target) if target.is_some() == wants_mutual => match ChapPolicy::new(host, target) {
            Ok(policy) => Some(policy),
            Err(why) => {
                section.report(why.to_string());
                None
            }
        },
        _ => None,
    };
    section.finish();
    policy
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needed {
    Yes,
    No,
}

fn credentials(
    section: &mut Section<'_, '_>,
    user: &'static str,
    secret: &'static str,
    needed: Needed,
) -> Option<Credentials> {
    let name = section.string(user).and_then(|field| {
        field.parse(|text| {
            let right = (1..=USER_MAX).contains(&text.len()) && !text.contains('\0');
            let error = format!("must have 1 to {USER_MAX} bytes, none of them zero");
            if right { Ok(text.to_owned()) } else { Err(error) }
        })
    });
    let value = section.string(secret).and_then(|field| {
        field.parse(|text| {
            let (low, high) = (SECRET_LEN.start(), SECRET_LEN.end());
            let error = format!("must have {low} to {high} bytes, and has {}", text.len());
            if SECRET_LEN.contains(&text.len()) { Ok(text.as_bytes().to_vec()) } else { Err(error) }
        })
    });
    if needed == Needed::No {
        return None;
    }
    let name = section.require(name, user, &format!("{user} = \"host\""));
    let value = section.require(
        value,
        secret,
        &format!("{secret} = \"…\", of {} bytes at least", SECRET_LEN.start()),
    );
    Some(Credentials { name: name?.value, secret: value?.value })
}
