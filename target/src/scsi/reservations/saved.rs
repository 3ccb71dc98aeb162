//! What of a unit's reservations outlives a restart (APTPL), as a value that can be stored and read again.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{Kind, Persistence, REGISTRATIONS_MAX, Registration, Reservation, Reservations};
use crate::scsi::nexus::Nexus;

/// Registrations and reservation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Saved {
    /// Of this form: [`Saved::VERSION`].
    version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reservation: Option<SavedReservation>,
    #[serde(default)]
    registrations: Vec<SavedRegistration>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedRegistration {
    /// 16 hexadecimal digits: not every format has room for 64 bits.
    key: String,
    nexus: Nexus,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SavedReservation {
    kind: Kind,
    /// Place in the list of registrations; none: all of them hold it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    holder: Option<usize>,
}

/// Why reservations that were stored can't be had again.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum RestoreError {
    /// Of another form.
    #[error("stored reservations have version {found}; {known} is known", known = Saved::VERSION)]
    Version {
        /// Theirs.
        found: u32,
    },
    /// What no unit has stored.
    #[error("stored reservations are damaged: {what}; {allowed}")]
    Damaged {
        /// What is wrong.
        what: String,
        /// What would be right.
        allowed: &'static str,
    },
}

impl Saved {
    /// The version of the form.
    pub const VERSION: u32 = 1;

    /// Whether there is nothing to keep.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.registrations.is_empty()
    }
}

impl Default for Saved {
    /// Nothing is kept.
    fn default() -> Self {
        Self { version: Self::VERSION, reservation: None, registrations: Vec::new() }
    }
}

impl Reservations {
    /// What is to be kept.
    pub(crate) fn saved(&self) -> Saved {
        let registrations = self.registrations.iter().map(|registration| SavedRegistration {
            key: format!("{:016x}", registration.key),
            nexus: registration.nexus.clone(),
        });
        let reservation = self.reservation.as_ref().map(|reservation| SavedReservation {
            kind: reservation.kind,
            holder: self.registrations.iter().position(|r| Some(&r.nexus) == reservation.holder.as_ref()),
        });
        Saved { version: Saved::VERSION, reservation, registrations: registrations.collect() }
    }

    /// What was kept, after a restart. No nexus lives yet.
    ///
    /// # Errors
    /// Another version, or what no unit has stored.
    pub fn restore(saved: &Saved) -> Result<Self, RestoreError> {
        if saved.version != Saved::VERSION {
            return Err(RestoreError::Version { found: saved.version });
        }
        let damaged = |what: String, allowed| RestoreError::Damaged { what, allowed };
        let count = saved.registrations.len();
        if count > REGISTRATIONS_MAX {
            return Err(damaged(format!("{count} registrations"), "at most 256"));
        }
        let mut all = Self::new(Persistence::Stored);
        for registration in &saved.registrations {
            let key = u64::from_str_radix(&registration.key, 16).ok().filter(|key| *key != 0);
            let wrong_key = || damaged(format!("key {:?}", registration.key), "a number of 16 digits, not 0");
            let key = key.filter(|_| registration.key.len() == 16).ok_or_else(wrong_key)?;
            if all.registrations.iter().any(|other| other.nexus == registration.nexus) {
                let name = registration.nexus.initiator.name();
                return Err(damaged(format!("two registrations of {name:?}"), "one for each nexus"));
            }
            all.registrations.push(Registration { nexus: registration.nexus.clone(), key, id: None });
        }
        if let Some(SavedReservation { kind, holder }) = saved.reservation {
            let found = holder.map(|at| all.registrations.get(at).map(|r| r.nexus.clone()));
            let holder = match found {
                Some(Some(nexus)) if !kind.is_all_registrants() => Some(nexus),
                None if kind.is_all_registrants() && count > 0 => None,
                _ => {
                    let allowed = "a registration, and none for the types of all registrants";
                    return Err(damaged(format!("holder {holder:?} of a reservation"), allowed));
                }
            };
            all.reservation = Some(Reservation { kind, holder });
        }
        all.kept = count > 0;
        Ok(all)
    }
}
