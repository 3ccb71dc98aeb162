//! Unit attention conditions of one nexus: what it has to be told before its next command. (SAM-5 "Unit attention conditions".)

use super::sense::{SenseCode, code};

/// A condition. The order is that in which they are told: resets first, and among them the greater before the smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum UnitAttention {
    /// The nexus or the unit is new.
    PowerOn,
    /// The unit was reset.
    UnitReset,
    /// The nexus was lost and came again.
    NexusLoss,
    /// Another nexus cleared reservation and registrations.
    ReservationsPreempted,
    /// Another nexus removed this one's registration.
    RegistrationsPreempted,
    /// The reservation in which the nexus had a part was released.
    ReservationsReleased,
    /// Another nexus aborted commands of this one.
    CommandsCleared,
    /// Another nexus changed mode pages.
    ModeParametersChanged,
    /// The unit has another size.
    CapacityChanged,
    /// Units came or went.
    ReportedLunsChanged,
}

/// The conditions that wait, each once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitAttentions {
    waiting: u16,
}

impl UnitAttention {
    const ALL: [Self; 10] = [
        Self::PowerOn,
        Self::UnitReset,
        Self::NexusLoss,
        Self::ReservationsPreempted,
        Self::RegistrationsPreempted,
        Self::ReservationsReleased,
        Self::CommandsCleared,
        Self::ModeParametersChanged,
        Self::CapacityChanged,
        Self::ReportedLunsChanged,
    ];

    /// Its sense code.
    #[must_use]
    pub const fn code(self) -> SenseCode {
        match self {
            Self::PowerOn => code::POWER_ON_RESET_OR_BUS_DEVICE_RESET_OCCURRED,
            Self::UnitReset => code::BUS_DEVICE_RESET_FUNCTION_OCCURRED,
            Self::NexusLoss => code::I_T_NEXUS_LOSS_OCCURRED,
            Self::ReservationsPreempted => code::RESERVATIONS_PREEMPTED,
            Self::RegistrationsPreempted => code::REGISTRATIONS_PREEMPTED,
            Self::ReservationsReleased => code::RESERVATIONS_RELEASED,
            Self::CommandsCleared => code::COMMANDS_CLEARED_BY_ANOTHER_INITIATOR,
            Self::ModeParametersChanged => code::MODE_PARAMETERS_CHANGED,
            Self::CapacityChanged => code::CAPACITY_DATA_HAS_CHANGED,
            Self::ReportedLunsChanged => code::REPORTED_LUNS_DATA_HAS_CHANGED,
        }
    }

    const fn bit(self) -> u16 {
        1 << self as u8
    }
}

impl UnitAttentions {
    /// Adds a condition. A reset makes the host look at everything anew: smaller resets and what was changed before it are
    /// told no more.
    pub fn add(&mut self, attention: UnitAttention) {
        if matches!(attention, UnitAttention::PowerOn) {
            self.waiting = 0;
        }
        let greater = UnitAttention::PowerOn.bit() | UnitAttention::UnitReset.bit();
        match attention {
            UnitAttention::UnitReset if self.waiting & UnitAttention::PowerOn.bit() != 0 => {}
            UnitAttention::UnitReset => self.waiting = attention.bit(),
            UnitAttention::NexusLoss if self.waiting & greater != 0 => {}
            _ => self.waiting |= attention.bit(),
        }
    }

    /// Takes the next condition to tell.
    pub fn take(&mut self) -> Option<UnitAttention> {
        let next = UnitAttention::ALL.into_iter().find(|attention| self.has(*attention))?;
        self.remove(next);
        Some(next)
    }

    /// Forgets a condition.
    pub fn remove(&mut self, attention: UnitAttention) {
        self.waiting &= !attention.bit();
    }

    /// Whether there is nothing to tell.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.waiting == 0
    }

    /// Whether a condition waits.
    #[must_use]
    pub const fn has(&self, attention: UnitAttention) -> bool {
        self.waiting & attention.bit() != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(added: &[UnitAttention]) -> Vec<UnitAttention> {
        let mut attentions = UnitAttentions::default();
        added.iter().for_each(|attention| attentions.add(*attention));
        std::iter::from_fn(|| attentions.take()).collect()
    }

    #[test]
    fn conditions_are_told_in_their_order_and_once() {
        use UnitAttention::{CapacityChanged, ModeParametersChanged, NexusLoss, ReservationsReleased};
        let added =
            [CapacityChanged, NexusLoss, CapacityChanged, ModeParametersChanged, ReservationsReleased];
        assert_eq!(told(&added), [NexusLoss, ReservationsReleased, ModeParametersChanged, CapacityChanged]);
    }

    #[test]
    fn a_reset_replaces_what_came_before_it_and_is_not_replaced_by_a_smaller_one() {
        use UnitAttention::{CapacityChanged, NexusLoss, PowerOn, UnitReset};
        assert_eq!(told(&[CapacityChanged, UnitReset]), [UnitReset]);
        assert_eq!(told(&[PowerOn, UnitReset, NexusLoss, CapacityChanged]), [PowerOn, CapacityChanged]);
        assert_eq!(told(&[NexusLoss, UnitReset, PowerOn]), [PowerOn]);
    }

    #[test]
    fn the_list_of_all_is_the_order() {
        assert!(UnitAttention::ALL.is_sorted());
        for (at, attention) in UnitAttention::ALL.into_iter().enumerate() {
            assert_eq!(attention.bit(), 1 << at);
        }
    }
}
