//! PERSISTENT RESERVE OUT. (SPC-4 "PERSISTENT RESERVE OUT" and, for what each service action does, "Reservations".)

use super::{Kind, Persistence, REGISTRATIONS_MAX, Registration, Reservation, Reservations, Saved};
use crate::scsi::big_endian::u64_at;
use crate::scsi::cdb::{OutAction, PersistentOut};
use crate::scsi::nexus::{Nexus, NexusId};
use crate::scsi::sense::{Sense, code};
use crate::scsi::unit_attention::UnitAttention;

/// What follows from a PERSISTENT RESERVE OUT that succeeded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// What other nexuses are to be told.
    pub attentions: Vec<(NexusId, UnitAttention)>,
    /// Nexuses whose commands in this unit are to be aborted before the answer.
    pub abort: Vec<NexusId>,
    /// What is to be stored before the change takes effect, in place of what was stored before.
    pub save: Option<Saved>,
}

/// Why a command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// RESERVATION CONFLICT
    Conflict,
    /// BUSY: another change is being stored.
    Busy,
    /// CHECK CONDITION
    Check(Sense),
}

/// The list of parameters.
struct List {
    key: u64,
    /// SERVICE ACTION RESERVATION KEY
    action_key: u64,
    /// APTPL
    keep: bool,
}

/// Byte 20 of the list.
const SPEC_I_PT: u8 = 1 << 3;
const ALL_TG_PT: u8 = 1 << 2;
const APTPL: u8 = 1 << 0;

impl From<Sense> for Refusal {
    fn from(sense: Sense) -> Self {
        Self::Check(sense)
    }
}

impl Reservations {
    /// Carries out a PERSISTENT RESERVE OUT of nexus `id` with this list of parameters.
    ///
    /// # Errors
    /// RESERVATION CONFLICT or sense data; nothing has changed then.
    pub fn out(
        &mut self,
        id: NexusId,
        nexus: &Nexus,
        command: &PersistentOut,
        list: &[u8],
    ) -> Result<Outcome, Refusal> {
        let list = List::parse(command.action, list, self.persistence)?;
        let registers = matches!(command.action, OutAction::Register | OutAction::RegisterAndIgnore);
        let own = self.registrations.iter().position(|r| r.nexus == *nexus);
        let was_kept = self.kept;
        let before = (self.registrations.clone(), self.reservation.clone());
        let mut outcome = Outcome::default();
        if registers {
            self.register(id, nexus, own, command.action, &list, &mut outcome)?;
        } else {
            let own = own.filter(|at| self.registrations[*at].key == list.key).ok_or(Refusal::Conflict)?;
            match command.action {
                OutAction::Reserve => self.reserve(own, command)?,
                OutAction::Release => self.release(own, command, &mut outcome)?,
                OutAction::Clear => self.clear(own, &mut outcome),
                _ => self.preempt(own, command, &list, &mut outcome)?,
            }
        }
        self.index();
        let changed = before != (self.registrations.clone(), self.reservation.clone());
        if self.kept && (changed || !was_kept) {
            outcome.save = Some(self.saved());
        } else if was_kept && !self.kept {
            outcome.save = Some(Saved::default());
        }
        Ok(outcome)
    }

    /// REGISTER and REGISTER AND IGNORE EXISTING KEY.
    fn register(
        &mut self,
        id: NexusId,
        nexus: &Nexus,
        own: Option<usize>,
        action: OutAction,
        list: &List,
        outcome: &mut Outcome,
    ) -> Result<(), Refusal> {
        let existing = own.map_or(0, |at| self.registrations[at].key);
        if action == OutAction::Register && existing != list.key {
            return Err(Refusal::Conflict);
        }
        match (own, list.action_key) {
            // Neither registered nor to be registered: nothing is done, and nothing counted.
            (None, 0) => return Ok(()),
            (None, key) => {
                if self.registrations.len() >= REGISTRATIONS_MAX {
                    return Err(Sense::new(code::INSUFFICIENT_REGISTRATION_RESOURCES).into());
                }
                self.registrations.push(Registration { nexus: nexus.clone(), key, id: Some(id) });
            }
            (Some(at), 0) => self.unregister(at, outcome),
            (Some(at), key) => self.registrations[at].key = key,
        }
        self.generation = self.generation.wrapping_add(1);
        self.kept = list.keep;
        Ok(())
    }

    /// Ends a registration, and the reservation that it held.
    fn unregister(&mut self, at: usize, outcome: &mut Outcome) {
        let held = self.holds(&self.registrations[at]);
        self.registrations.remove(at);
        let Some(kind) = self.reservation.as_ref().filter(|_| held).map(|reservation| reservation.kind)
        else {
            return;
        };
        if kind.is_all_registrants() && !self.registrations.is_empty() {
            return;
        }
        self.reservation = None;
        if kind.is_registrants() {
            self.tell(None, UnitAttention::ReservationsReleased, outcome);
        }
    }

    fn reserve(&mut self, own: usize, command: &PersistentOut) -> Result<(), Refusal> {
        let kind = kind_of(command)?;
        match &self.reservation {
            Some(reservation) if reservation.kind == kind && self.holds(&self.registrations[own]) => {}
            Some(_) => return Err(Refusal::Conflict),
            None => self.reservation = Some(self.reservation_of(own, kind)),
        }
        Ok(())
    }

    fn release(&mut self, own: usize, command: &PersistentOut, outcome: &mut Outcome) -> Result<(), Refusal> {
        let kind = kind_of(command)?;
        let Some(reservation) = &self.reservation else { return Ok(()) };
        // Of who does not hold it nothing is released, and it is no error.
        if !self.holds(&self.registrations[own]) {
            return Ok(());
        }
        if reservation.kind != kind {
            return Err(Sense::new(code::INVALID_RELEASE_OF_PERSISTENT_RESERVATION).into());
        }
        self.reservation = None;
        if kind.is_registrants() {
            self.tell(Some(own), UnitAttention::ReservationsReleased, outcome);
        }
        Ok(())
    }

    fn clear(&mut self, own: usize, outcome: &mut Outcome) {
        self.tell(Some(own), UnitAttention::ReservationsPreempted, outcome);
        self.registrations.clear();
        self.reservation = None;
        self.generation = self.generation.wrapping_add(1);
    }

    /// PREEMPT and PREEMPT AND ABORT: removes the registrations with a key, and takes the reservation over when they hold it.
    fn preempt(
        &mut self,
        own: usize,
        command: &PersistentOut,
        list: &List,
        outcome: &mut Outcome,
    ) -> Result<(), Refusal> {
        let victim = list.action_key;
        let all_hold = self.reservation.as_ref().is_some_and(|r| r.kind.is_all_registrants());
        let is_holders = !all_hold && self.registrations.iter().any(|r| r.key == victim && self.holds(r));
        let takes_over = if all_hold { victim == 0 } else { is_holders };
        if victim == 0 && !takes_over {
            return Err(Sense::in_list(8, None).into());
        }
        let taken = takes_over.then(|| kind_of(command)).transpose()?;
        if !takes_over && !self.registrations.iter().any(|r| r.key == victim) {
            return Err(Refusal::Conflict);
        }
        let own_nexus = self.registrations[own].nexus.clone();
        let removed: Vec<Registration> = self
            .registrations
            .extract_if(.., |r| {
                let is_victim = victim == 0 || r.key == victim;
                // Who takes over stays registered, also with the key that is preempted.
                is_victim && !(takes_over && r.nexus == own_nexus)
            })
            .collect();
        for id in removed.iter().filter(|r| r.nexus != own_nexus).filter_map(|r| r.id) {
            outcome.attentions.push((id, UnitAttention::RegistrationsPreempted));
            if command.action == OutAction::PreemptAndAbort {
                outcome.abort.push(id);
            }
        }
        let own = self.registrations.iter().position(|r| r.nexus == own_nexus);
        if let (Some(kind), Some(own)) = (taken, own) {
            let before = self.reservation.replace(self.reservation_of(own, kind));
            if before.is_some_and(|before| before.kind != kind) {
                self.tell(Some(own), UnitAttention::ReservationsReleased, outcome);
            }
        }
        if self.registrations.is_empty() {
            self.reservation = None;
        }
        self.generation = self.generation.wrapping_add(1);
        Ok(())
    }

    fn reservation_of(&self, own: usize, kind: Kind) -> Reservation {
        let holder = (!kind.is_all_registrants()).then(|| self.registrations[own].nexus.clone());
        Reservation { kind, holder }
    }

    /// All registered nexuses that live, but for `own`, are to be told.
    fn tell(&self, own: Option<usize>, attention: UnitAttention, outcome: &mut Outcome) {
        let others = self.registrations.iter().enumerate().filter(|(at, _)| Some(*at) != own);
        outcome.attentions.extend(others.filter_map(|(_, r)| r.id).map(|id| (id, attention)));
    }
}

/// SCOPE and TYPE, of service actions that have such.
fn kind_of(command: &PersistentOut) -> Result<Kind, Sense> {
    /// LU_SCOPE
    const LOGICAL_UNIT: u8 = 0;
    if command.scope != LOGICAL_UNIT {
        return Err(Sense::in_cdb(2, Some(7)));
    }
    Kind::try_from(command.kind).map_err(|_| Sense::in_cdb(2, Some(3)))
}

impl List {
    fn parse(action: OutAction, list: &[u8], persistence: Persistence) -> Result<Self, Sense> {
        let list: &[u8; PersistentOut::LIST_LEN] =
            list.try_into().map_err(|_| Sense::new(code::PARAMETER_LIST_LENGTH_ERROR))?;
        let registers = matches!(action, OutAction::Register | OutAction::RegisterAndIgnore);
        let flags = list[20];
        let mut refused = !(ALL_TG_PT | APTPL);
        if registers {
            // Other ports are not registered for (SIP_C, ATP_C); what can't be stored is not promised (PTPL_C).
            refused |= ALL_TG_PT;
            refused |= if persistence == Persistence::Volatile { APTPL } else { 0 };
        }
        debug_assert!(refused & SPEC_I_PT != 0, "it is of no service action here");
        if let Some(bit) = (flags & refused).checked_ilog2() {
            return Err(Sense::in_list(20, u8::try_from(bit).ok()));
        }
        if list[21] != 0 {
            return Err(Sense::in_list(21, None));
        }
        let keep = flags & APTPL != 0;
        Ok(Self { key: u64_at(list, 0), action_key: u64_at(list, 8), keep })
    }
}
