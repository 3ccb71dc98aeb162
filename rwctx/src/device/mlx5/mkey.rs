//! The life of a key: what may be done with it when.
//!
//! A state machine without I/O. It allows less than the library does, whose calls notice few mistakes: a registration is used by
//! one transfer, whose completion is polled, and is then checked once; a key that a work request may still use is not touched.
//! (rw-contexts 2.4, 2.6.5)

/// What a key is good for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum KeyState {
    /// No work request has it.
    Idle,
    /// Its configuration was posted.
    Posted,
    /// A list: the registration of a signature's key has it.
    Used,
    /// A transfer through it was posted.
    InFlight,
    /// The transfer is done: what its signature found is to be asked for.
    Unchecked,
    /// That was asked for. The registration can be replaced.
    Checked,
    /// Its invalidation was posted.
    Invalidating,
    /// A work request of it failed, and with it the queue: it waits for that to be drained.
    Failed,
    /// The device told something that can't be: it can only be destroyed.
    Broken,
    /// Its queue was drained: it can only be destroyed.
    Drained,
}

/// What happens to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A configuration is posted.
    Register,
    /// A list becomes part of a signature's key.
    Use,
    /// The registration that a list is part of was used, or invalidated.
    Release,
    /// A transfer is posted.
    Transfer,
    /// An invalidation is posted.
    Invalidate,
    /// A signaled work request completed.
    Succeed,
    /// A work request failed or was flushed.
    Fail,
    /// The status was asked for and told.
    Check,
    /// The status makes no sense.
    Break,
    /// The queue failed, and everything that was posted to it has completed.
    Drain,
    /// The key goes.
    Destroy,
}

impl KeyState {
    /// The state after an event; `None` when it may not happen.
    pub(super) fn after(self, event: Event) -> Option<Self> {
        use Event as E;
        match (self, event) {
            (Self::Idle | Self::Checked, E::Register) => Some(Self::Posted),
            (Self::Posted, E::Use) => Some(Self::Used),
            (Self::Used, E::Release) => Some(Self::Idle),
            (Self::Posted, E::Transfer) => Some(Self::InFlight),
            (Self::Posted | Self::Checked, E::Invalidate) => Some(Self::Invalidating),
            (Self::InFlight, E::Succeed) => Some(Self::Unchecked),
            (Self::Invalidating, E::Succeed) => Some(Self::Idle),
            // The failure of a list's configuration may be told after that of the transfer that used it.
            (Self::Posted | Self::Used | Self::InFlight | Self::Invalidating | Self::Failed, E::Fail) => {
                Some(Self::Failed)
            }
            (Self::Unchecked, E::Check) => Some(Self::Checked),
            (Self::Unchecked, E::Break) => Some(Self::Broken),
            // What had arrived before the queue failed can still be asked for.
            (Self::Unchecked, E::Drain) => Some(Self::Unchecked),
            (_, E::Drain) => Some(Self::Drained),
            (Self::Idle | Self::Checked | Self::Broken | Self::Drained, E::Destroy) => Some(Self::Drained),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_takes_these_events_and_no_others() {
        use Event::*;
        use KeyState as S;
        let events =
            [Register, Use, Release, Transfer, Invalidate, Succeed, Fail, Check, Break, Drain, Destroy];
        let table: [(S, &[(Event, S)]); 10] = [
            (S::Idle, &[(Register, S::Posted), (Drain, S::Drained), (Destroy, S::Drained)]),
            (
                S::Posted,
                &[
                    (Use, S::Used),
                    (Transfer, S::InFlight),
                    (Invalidate, S::Invalidating),
                    (Fail, S::Failed),
                    (Drain, S::Drained),
                ],
            ),
            (S::Used, &[(Release, S::Idle), (Fail, S::Failed), (Drain, S::Drained)]),
            (S::InFlight, &[(Succeed, S::Unchecked), (Fail, S::Failed), (Drain, S::Drained)]),
            (S::Unchecked, &[(Check, S::Checked), (Break, S::Broken), (Drain, S::Unchecked)]),
            (
                S::Checked,
                &[
                    (Register, S::Posted),
                    (Invalidate, S::Invalidating),
                    (Drain, S::Drained),
                    (Destroy, S::Drained),
                ],
            ),
            (S::Invalidating, &[(Succeed, S::Idle), (Fail, S::Failed), (Drain, S::Drained)]),
            (S::Failed, &[(Fail, S::Failed), (Drain, S::Drained)]),
            (S::Broken, &[(Drain, S::Drained), (Destroy, S::Drained)]),
            (S::Drained, &[(Drain, S::Drained), (Destroy, S::Drained)]),
        ];
        for (state, takes) in table {
            for event in events {
                let expected = takes.iter().find(|(taken, _)| *taken == event).map(|(_, next)| *next);
                assert_eq!(state.after(event), expected, "{state:?}, {event:?}");
            }
        }
    }
}
