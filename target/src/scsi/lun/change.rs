//! Changes of reservations that outlive a restart: each is stored before it takes effect and its command is answered, so that
//! what can't be stored has changed nothing. (SPC-4 "Preserving persistent reservations and registrations".)
//!
//! Until a change is stored the unit obeys the reservations of before, and ends other commands that would change them with
//! BUSY.

use super::{Action, Lun, Response};
use crate::scsi::nexus::{Nexus, NexusId};
use crate::scsi::reservations::{Outcome, Refusal, Reservations};
use crate::scsi::sense::{Sense, code};
use crate::scsi::unit_attention::UnitAttention;

/// A change that is being stored, among all of a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeId(pub(in crate::scsi) u64);

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stored {
    /// It is durable.
    Durably,
    /// What was stored before still is.
    Not,
}

/// A change that takes effect when it is stored.
#[derive(Debug)]
pub(super) struct Change {
    id: ChangeId,
    reservations: Reservations,
    attentions: Vec<(NexusId, UnitAttention)>,
    abort: Vec<NexusId>,
}

impl Change {
    /// A nexus begins meanwhile.
    pub(super) fn attach(&mut self, id: NexusId, nexus: &Nexus) {
        self.reservations.attach(id, nexus);
    }

    /// A nexus ends meanwhile.
    pub(super) fn detach(&mut self, id: NexusId) {
        self.reservations.detach(id);
    }
}

impl Lun {
    /// Takes what became of a change that [`Action::Store`] asked to store; nothing when the unit waits for no such.
    pub fn handle_stored(&mut self, change: ChangeId, stored: Stored) -> Option<Action> {
        let change = self.change.take_if(|waiting| waiting.id == change)?;
        Some(match stored {
            Stored::Durably => {
                self.reservations = change.reservations;
                self.settle(change.attentions, change.abort)
            }
            Stored::Not => Response::check(Sense::new(code::INTERNAL_TARGET_FAILURE)).into(),
        })
    }

    /// The first number that this unit gives a change.
    pub(in crate::scsi) fn number_changes_from(&mut self, first: u64) {
        self.next_change = first;
    }

    /// Whether a change is being stored, so that no other can be made.
    pub(super) fn may_change(&self) -> Result<(), Refusal> {
        if self.change.is_some() { Err(Refusal::Busy) } else { Ok(()) }
    }

    /// Takes over what a command made of the reservations: now, or when it is stored.
    pub(super) fn change(&mut self, reservations: Reservations, outcome: Outcome) -> Action {
        let Outcome { attentions, abort, save } = outcome;
        let Some(saved) = save else {
            self.reservations = reservations;
            return self.settle(attentions, abort);
        };
        let id = ChangeId(self.next_change);
        self.next_change += 1;
        self.change = Some(Change { id, reservations, attentions, abort });
        Action::Store { change: id, saved: Box::new(saved) }
    }

    fn settle(&mut self, attentions: Vec<(NexusId, UnitAttention)>, abort: Vec<NexusId>) -> Action {
        for (other, attention) in attentions {
            self.tell(other, attention);
        }
        if abort.is_empty() { Response::good().into() } else { Action::Settle { abort } }
    }
}
