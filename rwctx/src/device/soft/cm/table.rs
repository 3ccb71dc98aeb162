//! The transitions of a connection: every state, every event (IBTA 12.9). What is not in the table has no effect.

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum State {
    /// Active: REQ sent, no answer yet.
    ReqSent,
    /// Active: REP received; our user connects its queue pair.
    RepReceived,
    /// Passive: REQ received; our user decides.
    ReqReceived,
    /// Passive: REP sent, nothing heard since.
    RepSent,
    /// Both sides know.
    Established,
    /// DREQ sent, no answer yet.
    DreqSent,
    /// Over; the IDs are kept until no packet of the connection can be under way.
    TimeWait,
    /// Passive: refused; kept for a moment to answer duplicates of the REQ.
    Refused,
}

/// What can happen to a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Event {
    /// A duplicate of its REQ came.
    Req,
    /// Its REP came, or a duplicate.
    Rep,
    /// RTU came.
    Rtu,
    /// A valid packet came on its queue pair.
    Traffic,
    /// MRA for the message that we wait on came.
    Mra,
    /// REJ came.
    Rej,
    /// DREQ came.
    Dreq,
    /// DREP came.
    Drep,
    /// The peer begins another connection with the same queue pair: it has forgotten this one.
    Stale,
    /// Our user accepts.
    Accept,
    /// Our user refuses.
    Reject,
    /// Our user has connected its queue pair.
    SendRtu,
    /// Our user closes.
    Disconnect,
    /// Another connection takes its place among those that are half open.
    Displace,
    /// The timer ran out and attempts are left.
    Retry,
    /// The timer ran out for the last time.
    Expire,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Action {
    /// Send the message that the state waits on once more.
    Resend,
    /// Restart the timer with the time that the MRA asks for.
    Extend,
    SendMra,
    SendRep,
    SendRtu,
    SendDreq,
    SendDrep,
    /// REJ with the reason of our user.
    SendRej,
    /// REJ with reason "consumer", without data.
    SendRejConsumer,
    /// REJ with reason "timeout" and our CA GUID.
    SendRejTimeout,
    TellReply,
    TellEstablished,
    TellRejected,
    TellUnreachable,
    TellDisconnected,
}

/// Where a connection goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Next {
    /// Stays where it is.
    Stay,
    /// Another state.
    To(State),
    /// Away, and its user is told that it is released.
    Gone,
    /// Away; its user has been done with it before.
    Forgotten,
}

/// Actions in order, then the next state; `None` when the event means nothing in the state.
pub(super) fn transition(state: State, event: Event) -> Option<(&'static [Action], Next)> {
    use Action as A;
    use Event as E;
    use Next::{Forgotten, Gone, Stay, To};
    use State as S;

    let step: (&'static [Action], Next) = match (state, event) {
        (S::ReqSent, E::Rep) => (&[A::TellReply], To(S::RepReceived)),
        (S::ReqSent, E::Rej) => (&[A::TellRejected], Gone),
        (S::ReqSent, E::Mra) => (&[A::Extend], Stay),
        (S::ReqSent, E::Disconnect) => (&[A::SendRejTimeout], Gone),
        (S::ReqSent, E::Retry) => (&[A::Resend], Stay),
        (S::ReqSent, E::Expire) => (&[A::SendRejTimeout, A::TellUnreachable], Gone),

        (S::RepReceived, E::Rep) => (&[], Stay),
        (S::RepReceived, E::SendRtu) => (&[A::SendRtu], To(S::Established)),
        (S::RepReceived, E::Reject) => (&[A::SendRej], Gone),
        (S::RepReceived, E::Disconnect) => (&[A::SendRejConsumer], Gone),
        (S::RepReceived, E::Rej) => (&[A::TellRejected], To(S::TimeWait)),
        (S::RepReceived, E::Dreq) => (&[A::SendDrep, A::TellDisconnected], To(S::TimeWait)),
        (S::RepReceived, E::Stale) => (&[A::SendRejConsumer, A::TellDisconnected], To(S::TimeWait)),

        (S::ReqReceived, E::Req) => (&[A::SendMra], Stay),
        (S::ReqReceived, E::Accept) => (&[A::SendRep], To(S::RepSent)),
        (S::ReqReceived, E::Reject) => (&[A::SendRej], To(S::Refused)),
        (S::ReqReceived, E::Disconnect) => (&[A::SendRejConsumer], To(S::Refused)),
        (S::ReqReceived, E::Rej) => (&[A::TellRejected], Gone),
        (S::ReqReceived, E::Stale) => (&[A::TellDisconnected], Gone),
        (S::ReqReceived, E::Displace) => (&[A::TellUnreachable], Gone),

        // Linux ignores a duplicate; the REP again is as harmless and heals a lost one sooner.
        (S::RepSent, E::Req | E::Retry) => (&[A::Resend], Stay),
        (S::RepSent, E::Rtu | E::Traffic) => (&[A::TellEstablished], To(S::Established)),
        (S::RepSent, E::Mra) => (&[A::Extend], Stay),
        (S::RepSent, E::Rej) => (&[A::TellRejected], To(S::TimeWait)),
        (S::RepSent, E::Dreq) => (&[A::SendDrep, A::TellDisconnected], To(S::TimeWait)),
        (S::RepSent, E::Disconnect) => (&[A::SendDreq], To(S::DreqSent)),
        (S::RepSent, E::Stale) => (&[A::SendDreq, A::TellDisconnected], To(S::DreqSent)),
        (S::RepSent, E::Displace) => (&[A::TellUnreachable], Gone),
        (S::RepSent, E::Expire) => (&[A::SendRejTimeout, A::TellUnreachable], To(S::TimeWait)),

        // The RTU was lost.
        (S::Established, E::Rep) => (&[A::SendRtu], Stay),
        (S::Established, E::Rtu | E::Traffic) => (&[], Stay),
        (S::Established, E::Dreq) => (&[A::SendDrep, A::TellDisconnected], To(S::TimeWait)),
        (S::Established, E::Rej) => (&[A::TellDisconnected], To(S::TimeWait)),
        (S::Established, E::Disconnect) => (&[A::SendDreq], To(S::DreqSent)),
        (S::Established, E::Stale) => (&[A::SendDreq, A::TellDisconnected], To(S::DreqSent)),

        (S::DreqSent, E::Retry) => (&[A::Resend], Stay),
        (S::DreqSent, E::Dreq) => (&[A::SendDrep, A::TellDisconnected], To(S::TimeWait)),
        (S::DreqSent, E::Drep | E::Rej | E::Expire) => (&[A::TellDisconnected], To(S::TimeWait)),
        (S::DreqSent, E::Displace) => (&[A::TellDisconnected], Gone),
        (S::DreqSent | S::TimeWait, E::Disconnect) => (&[], Stay),

        (S::TimeWait, E::Dreq) => (&[A::SendDrep], Stay),
        (S::TimeWait, E::Displace | E::Expire) => (&[], Gone),

        (S::Refused, E::Req) => (&[A::Resend], Stay),
        (S::Refused, E::Displace | E::Expire) => (&[], Forgotten),

        _ => return None,
    };
    Some(step)
}

#[cfg(test)]
mod tests {
    use std::fmt::Write;

    use super::*;

    const STATES: [State; 8] = [
        State::ReqSent,
        State::RepReceived,
        State::ReqReceived,
        State::RepSent,
        State::Established,
        State::DreqSent,
        State::TimeWait,
        State::Refused,
    ];
    const EVENTS: [Event; 16] = [
        Event::Req,
        Event::Rep,
        Event::Rtu,
        Event::Traffic,
        Event::Mra,
        Event::Rej,
        Event::Dreq,
        Event::Drep,
        Event::Stale,
        Event::Accept,
        Event::Reject,
        Event::SendRtu,
        Event::Disconnect,
        Event::Displace,
        Event::Retry,
        Event::Expire,
    ];

    #[test]
    fn every_state_meets_every_event_as_recorded() {
        let mut table = String::new();
        for state in STATES {
            writeln!(table, "{state:?}").unwrap();
            for event in EVENTS {
                let line = match transition(state, event) {
                    None => "-".to_owned(),
                    Some((actions, next)) => format!("{actions:?} {next:?}"),
                };
                writeln!(table, "  {event:?}: {line}").unwrap();
            }
        }
        assert_eq!(
            table,
            include_str!("table.snapshot"),
            "the table changed; if by intent, record this:\n{table}"
        );
    }

    #[test]
    fn every_state_can_be_left() {
        for state in STATES {
            let leaves = |event| !matches!(transition(state, event), None | Some((_, Next::Stay)));
            assert!(EVENTS.into_iter().any(leaves), "{state:?}");
        }
    }

    #[test]
    fn a_user_is_told_of_an_end_before_release_unless_it_asked_for_it() {
        let tells = [Action::TellRejected, Action::TellUnreachable, Action::TellDisconnected];
        let asked = [Event::Disconnect, Event::Reject];
        for state in STATES {
            for event in EVENTS {
                let Some((actions, next)) = transition(state, event) else { continue };
                let ends = matches!(next, Next::Gone | Next::To(State::TimeWait));
                let first = state != State::TimeWait;
                if ends && first && !asked.contains(&event) {
                    assert!(actions.iter().any(|action| tells.contains(action)), "{state:?} {event:?}");
                }
            }
        }
    }
}
