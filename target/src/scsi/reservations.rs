//! Reservations of a logical unit: who may do what while somebody has it for themselves. (SPC-4
//! "Reservations"; RESERVE and RELEASE: SPC-2, and "Exceptions to SPC-2 RESERVE and RELEASE behavior" of SPC-4.)
//!
//! Owns registrations, which outlive their nexus, and the reservation. Never aborts a command or stores anything: what is to be
//! told, aborted and stored is returned.

mod out;
mod report;
mod saved;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

pub use self::out::{Outcome, Refusal};
pub use self::saved::{RestoreError, Saved};
use super::nexus::{Nexus, NexusId};
use super::opcodes::Access;

/// The reservations of a unit.
#[derive(Clone, Debug)]
pub struct Reservations {
    /// PRGENERATION
    generation: u32,
    registrations: Vec<Registration>,
    reservation: Option<Reservation>,
    /// APTPL: kept over restarts.
    kept: bool,
    persistence: Persistence,
    /// Holder of a reservation by RESERVE (6) or (10).
    legacy: Option<NexusId>,
    /// Those of the nexuses that live which are registered.
    registered: BTreeSet<NexusId>,
    /// That of them which holds the reservation, where not all do.
    holder: Option<NexusId>,
}

/// Whether reservations can be stored, so that they outlive a restart (PTPL_C).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Persistence {
    /// They are gone with the process.
    Volatile,
    /// Somebody stores each [`Saved`] before it takes effect and the command that caused it is answered.
    Stored,
}

/// TYPE of a persistent reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "u8", into = "u8")]
#[repr(u8)]
pub enum Kind {
    /// Write Exclusive
    WriteExclusive = 1,
    /// Exclusive Access
    ExclusiveAccess = 3,
    /// Write Exclusive - Registrants Only
    WriteExclusiveRegistrantsOnly = 5,
    /// Exclusive Access - Registrants Only
    ExclusiveAccessRegistrantsOnly = 6,
    /// Write Exclusive - All Registrants
    WriteExclusiveAllRegistrants = 7,
    /// Exclusive Access - All Registrants
    ExclusiveAccessAllRegistrants = 8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Registration {
    nexus: Nexus,
    /// Not 0.
    key: u64,
    /// The nexus, while it lives.
    id: Option<NexusId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Reservation {
    kind: Kind,
    /// None: all registrants hold it.
    holder: Option<Nexus>,
}

/// Registrations of a unit at most.
pub const REGISTRATIONS_MAX: usize = 256;

impl Reservations {
    /// None.
    #[must_use]
    pub fn new(persistence: Persistence) -> Self {
        Self {
            generation: 0,
            registrations: Vec::new(),
            reservation: None,
            kept: false,
            persistence,
            legacy: None,
            registered: BTreeSet::new(),
            holder: None,
        }
    }

    /// A nexus begins. It has the registration that it had before.
    pub fn attach(&mut self, id: NexusId, nexus: &Nexus) {
        if let Some(registration) = self.registrations.iter_mut().find(|r| r.nexus == *nexus) {
            registration.id = Some(id);
        }
        self.index();
    }

    /// A nexus ends. Its registration stays; what RESERVE reserved for it does not.
    pub fn detach(&mut self, id: NexusId) {
        self.registrations.iter_mut().filter(|r| r.id == Some(id)).for_each(|r| r.id = None);
        self.legacy = self.legacy.filter(|holder| *holder != id);
        self.index();
    }

    /// The unit was reset: what RESERVE reserved is free. Persistent reservations stay.
    pub fn reset(&mut self) {
        self.legacy = None;
    }

    /// Whether a nexus may execute a command of this kind now.
    #[must_use]
    pub fn allow(&self, id: NexusId, access: Access) -> bool {
        if let Some(holder) = self.legacy {
            match access {
                Access::Free | Access::Legacy => {}
                Access::Persistent => return false,
                Access::Status | Access::Read | Access::Write if holder != id => return false,
                Access::Status | Access::Read | Access::Write => {}
            }
        }
        let Some(reservation) = &self.reservation else { return true };
        match access {
            Access::Free | Access::Status | Access::Persistent | Access::Legacy => true,
            Access::Read if !reservation.kind.excludes_readers() => true,
            Access::Read | Access::Write => self.may_use(id, reservation),
        }
    }

    /// RESERVE (6) and (10). With persistent reservations about, it changes nothing.
    ///
    /// # Errors
    /// RESERVATION CONFLICT: somebody else has reserved the unit, or is registered.
    pub fn reserve_legacy(&mut self, id: NexusId) -> Result<(), Refusal> {
        if !self.registrations.is_empty() {
            return self.legacy_beside_persistent(id);
        }
        if self.legacy.is_some_and(|holder| holder != id) {
            return Err(Refusal::Conflict);
        }
        self.legacy = Some(id);
        Ok(())
    }

    /// RELEASE (6) and (10): of what this nexus has not reserved, it changes nothing and is no error.
    ///
    /// # Errors
    /// RESERVATION CONFLICT: somebody else is registered.
    pub fn release_legacy(&mut self, id: NexusId) -> Result<(), Refusal> {
        if !self.registrations.is_empty() {
            return self.legacy_beside_persistent(id);
        }
        self.legacy = self.legacy.filter(|holder| *holder != id);
        Ok(())
    }

    /// What CRH = 1 of the capabilities promises: who holds the reservation, or has a part in it, is told that all is well.
    fn legacy_beside_persistent(&self, id: NexusId) -> Result<(), Refusal> {
        let well = self.reservation.as_ref().is_some_and(|reservation| self.may_use(id, reservation));
        if well { Ok(()) } else { Err(Refusal::Conflict) }
    }

    /// Whether a reservation was made for this nexus.
    fn may_use(&self, id: NexusId, reservation: &Reservation) -> bool {
        if reservation.kind.is_registrants() {
            self.registered.contains(&id)
        } else {
            self.holder == Some(id)
        }
    }

    /// Finds registered nexuses anew, after a change.
    fn index(&mut self) {
        self.registered = self.registrations.iter().filter_map(|r| r.id).collect();
        let holder = self.reservation.as_ref().and_then(|reservation| reservation.holder.as_ref());
        let found = self.registrations.iter().find(|r| Some(&r.nexus) == holder);
        self.holder = found.and_then(|registration| registration.id);
    }

    /// Whether a registration holds the reservation, alone or with all others.
    fn holds(&self, registration: &Registration) -> bool {
        self.reservation.as_ref().is_some_and(|reservation| {
            reservation.holder.as_ref().is_none_or(|holder| *holder == registration.nexus)
        })
    }
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::WriteExclusive,
        Self::ExclusiveAccess,
        Self::WriteExclusiveRegistrantsOnly,
        Self::ExclusiveAccessRegistrantsOnly,
        Self::WriteExclusiveAllRegistrants,
        Self::ExclusiveAccessAllRegistrants,
    ];

    /// Whether those for whom it was not made can't read either.
    const fn excludes_readers(self) -> bool {
        matches!(
            self,
            Self::ExclusiveAccess
                | Self::ExclusiveAccessRegistrantsOnly
                | Self::ExclusiveAccessAllRegistrants
        )
    }

    /// Whether every registrant may use the unit.
    const fn is_registrants(self) -> bool {
        !matches!(self, Self::WriteExclusive | Self::ExclusiveAccess)
    }

    /// Whether every registrant holds it.
    const fn is_all_registrants(self) -> bool {
        matches!(self, Self::WriteExclusiveAllRegistrants | Self::ExclusiveAccessAllRegistrants)
    }
}

impl TryFrom<u8> for Kind {
    type Error = &'static str;

    fn try_from(code: u8) -> Result<Self, Self::Error> {
        let found = Self::ALL.into_iter().find(|kind| u8::from(*kind) == code);
        found.ok_or("a type of reservation is 1, 3, 5, 6, 7 or 8")
    }
}

impl From<Kind> for u8 {
    fn from(kind: Kind) -> Self {
        kind as Self
    }
}
