use super::*;
use crate::scsi::cdb::{OutAction, PersistentOut, StatusOf};
use crate::scsi::nexus::InitiatorPort;
use crate::scsi::sense::{Sense, code};
use crate::scsi::unit_attention::UnitAttention::{
    self, RegistrationsPreempted, ReservationsPreempted, ReservationsReleased,
};

const APTPL: u8 = 1;
const KEYS: [u64; 4] = [0xA0, 0xB0, 0xC0, 0xC0];

/// Four nexuses; their number is their identifier and names their key.
struct World {
    all: Reservations,
}

fn nexus(id: u32) -> Nexus {
    let initiator = InitiatorPort::new(format!("iqn.x:{id}"), [0, 0, 0, 0, 0, 1]).unwrap();
    Nexus { initiator, target_port: 1 }
}

fn list(key: u64, action_key: u64, flags: u8) -> Vec<u8> {
    [key.to_be_bytes().as_slice(), &action_key.to_be_bytes(), &[0, 0, 0, 0, flags, 0, 0, 0]].concat()
}

impl World {
    fn new() -> Self {
        let mut all = Reservations::new(Persistence::Stored);
        (0..4).for_each(|id| all.attach(NexusId(id), &nexus(id)));
        Self { all }
    }

    /// The first `count` are registered.
    fn registered(count: u32) -> Self {
        let mut world = Self::new();
        for id in 0..count {
            world.out(id, OutAction::Register, 0, 0, KEYS[usize::try_from(id).unwrap()]).unwrap();
        }
        world
    }

    fn reserved(count: u32, kind: Kind) -> Self {
        let mut world = Self::registered(count);
        world.out(0, OutAction::Reserve, kind.into(), KEYS[0], 0).unwrap();
        world
    }

    fn out(
        &mut self,
        id: u32,
        action: OutAction,
        kind: u8,
        key: u64,
        other: u64,
    ) -> Result<Outcome, Refusal> {
        let command = PersistentOut { action, scope: 0, kind };
        self.all.out(NexusId(id), &nexus(id), &command, &list(key, other, 0))
    }

    /// Keys, and the type and key of the reservation.
    fn state(&self) -> (Vec<u64>, Option<(u8, u64)>) {
        let keys = self.all.registrations.iter().map(|r| r.key).collect();
        let reservation = self.all.reservation.as_ref().map(|reservation| {
            let holder =
                self.all.registrations.iter().find(|r| Some(&r.nexus) == reservation.holder.as_ref());
            (reservation.kind.into(), holder.map_or(0, |r| r.key))
        });
        (keys, reservation)
    }

    fn may(&self, id: u32, access: Access) -> bool {
        self.all.allow(NexusId(id), access)
    }
}

fn told(outcome: &Outcome) -> Vec<(u32, UnitAttention)> {
    outcome.attentions.iter().map(|(id, attention)| (id.0, *attention)).collect()
}

#[test]
fn registering_checks_the_key_unless_it_is_to_be_ignored() {
    let mut world = World::new();
    assert_eq!(world.out(0, OutAction::Register, 0, 1, 0xA0), Err(Refusal::Conflict));
    // Neither is nor is to be.
    assert_eq!(world.out(0, OutAction::Register, 0, 0, 0), Ok(Outcome::default()));
    assert_eq!((world.state().0, world.all.generation), (vec![], 0));
    world.out(0, OutAction::Register, 0, 0, 0xA0).unwrap();
    assert_eq!(world.out(0, OutAction::Register, 0, 1, 0xA1), Err(Refusal::Conflict));
    world.out(0, OutAction::Register, 0, 0xA0, 0xA1).unwrap();
    world.out(0, OutAction::RegisterAndIgnore, 0, 99, 0xA2).unwrap();
    world.out(1, OutAction::RegisterAndIgnore, 0, 99, 0xB0).unwrap();
    assert_eq!((world.state().0, world.all.generation), (vec![0xA2, 0xB0], 4));
    world.out(0, OutAction::RegisterAndIgnore, 0, 0, 0).unwrap();
    world.out(1, OutAction::Register, 0, 0xB0, 0).unwrap();
    assert_eq!((world.state().0, world.all.generation), (vec![], 6));
}

#[test]
fn who_is_not_registered_or_has_another_key_does_nothing() {
    let actions = [
        OutAction::Reserve,
        OutAction::Release,
        OutAction::Clear,
        OutAction::Preempt,
        OutAction::PreemptAndAbort,
    ];
    for action in actions {
        let mut world = World::reserved(2, Kind::WriteExclusive);
        let before = world.state();
        assert_eq!(world.out(2, action, 1, 0, 0xA0), Err(Refusal::Conflict), "{action:?}");
        assert_eq!(world.out(1, action, 1, 0xB1, 0xA0), Err(Refusal::Conflict), "{action:?}");
        assert_eq!(world.state(), before);
    }
}

#[test]
fn reserving_again_is_well_for_the_holder_and_a_conflict_for_others() {
    for kind in Kind::ALL {
        let mut world = World::reserved(2, kind);
        let code = u8::from(kind);
        world.out(0, OutAction::Reserve, code, 0xA0, 0).unwrap();
        let other = world.out(1, OutAction::Reserve, code, 0xB0, 0);
        assert_eq!(other.is_ok(), kind.is_all_registrants(), "{kind:?}");
        let another = if code == 1 { 3 } else { 1 };
        assert_eq!(world.out(0, OutAction::Reserve, another, 0xA0, 0), Err(Refusal::Conflict));
        let key = if kind.is_all_registrants() { 0 } else { 0xA0 };
        assert_eq!(world.state().1, Some((code, key)));
    }
    let mut world = World::registered(1);
    for kind in [0, 2, 4, 9, 15] {
        let refused = Err(Refusal::Check(Sense::in_cdb(2, Some(3))));
        assert_eq!(world.out(0, OutAction::Reserve, kind, 0xA0, 0), refused, "type {kind}");
    }
    let scope = PersistentOut { action: OutAction::Reserve, scope: 1, kind: 1 };
    let refused = world.all.out(NexusId(0), &nexus(0), &scope, &list(0xA0, 0, 0));
    assert_eq!(refused, Err(Refusal::Check(Sense::in_cdb(2, Some(7)))));
}

#[test]
fn releasing_is_the_holders_and_others_are_told_where_they_had_a_part() {
    for kind in Kind::ALL {
        let mut world = World::reserved(3, kind);
        let code = u8::from(kind);
        if !kind.is_all_registrants() {
            assert_eq!(world.out(1, OutAction::Release, code, 0xB0, 0), Ok(Outcome::default()));
            assert!(world.state().1.is_some(), "who does not hold it releases nothing");
        }
        let another = if code == 1 { 3 } else { 1 };
        let wrong = Sense::new(code::INVALID_RELEASE_OF_PERSISTENT_RESERVATION);
        assert_eq!(world.out(0, OutAction::Release, another, 0xA0, 0), Err(Refusal::Check(wrong)));
        let outcome = world.out(0, OutAction::Release, code, 0xA0, 0).unwrap();
        let expected = if kind.is_registrants() {
            vec![(1, ReservationsReleased), (2, ReservationsReleased)]
        } else {
            vec![]
        };
        assert_eq!(told(&outcome), expected, "{kind:?}");
        assert_eq!((world.state().1, world.all.generation), (None, 3));
        assert_eq!(world.out(0, OutAction::Release, code, 0xA0, 0), Ok(Outcome::default()));
    }
}

#[test]
fn a_reservation_ends_with_its_holders_registration() {
    for kind in Kind::ALL {
        let mut world = World::reserved(2, kind);
        let outcome = world.out(0, OutAction::Register, 0, 0xA0, 0).unwrap();
        match (kind.is_all_registrants(), kind.is_registrants()) {
            (true, _) => {
                assert_eq!((told(&outcome), world.state().1), (vec![], Some((kind.into(), 0))));
                world.out(1, OutAction::Register, 0, 0xB0, 0).unwrap();
            }
            (false, true) => assert_eq!(told(&outcome), [(1, ReservationsReleased)]),
            (false, false) => assert_eq!(told(&outcome), []),
        }
        assert_eq!(world.state().1, None, "{kind:?}");
    }
}

#[test]
fn clearing_removes_all_and_tells_the_others() {
    let mut world = World::reserved(3, Kind::ExclusiveAccess);
    let outcome = world.out(1, OutAction::Clear, 0, 0xB0, 0).unwrap();
    assert_eq!(told(&outcome), [(0, ReservationsPreempted), (2, ReservationsPreempted)]);
    assert_eq!((world.state(), world.all.generation), ((vec![], None), 4));
}

#[test]
fn preempting_the_holder_takes_the_reservation_over() {
    let mut world = World::reserved(4, Kind::WriteExclusive);
    let outcome = world.out(1, OutAction::Preempt, 6, 0xB0, 0xA0).unwrap();
    // The type changed: those that are left are told.
    let expected = [(0, RegistrationsPreempted), (2, ReservationsReleased), (3, ReservationsReleased)];
    assert_eq!((told(&outcome), outcome.abort), (expected.to_vec(), vec![]));
    assert_eq!(world.state(), (vec![0xB0, 0xC0, 0xC0], Some((6, 0xB0))));
    assert_eq!(world.all.generation, 5);
    // With the same type nobody else is told, and with ABORT commands end.
    let mut world = World::reserved(4, Kind::WriteExclusive);
    let outcome = world.out(1, OutAction::PreemptAndAbort, 1, 0xB0, 0xA0).unwrap();
    assert_eq!((told(&outcome), outcome.abort), (vec![(0, RegistrationsPreempted)], vec![NexusId(0)]));
    // The holder preempts itself: it stays, with the new type.
    let mut world = World::reserved(2, Kind::WriteExclusive);
    let outcome = world.out(0, OutAction::Preempt, 3, 0xA0, 0xA0).unwrap();
    assert_eq!(told(&outcome), [(1, ReservationsReleased)]);
    assert_eq!(world.state(), (vec![0xA0, 0xB0], Some((3, 0xA0))));
}

#[test]
fn preempting_others_removes_their_registrations_alone() {
    let mut world = World::reserved(4, Kind::WriteExclusiveRegistrantsOnly);
    // SCOPE and TYPE mean nothing then.
    let outcome = world.out(1, OutAction::PreemptAndAbort, 15, 0xB0, 0xC0).unwrap();
    assert_eq!(told(&outcome), [(2, RegistrationsPreempted), (3, RegistrationsPreempted)]);
    assert_eq!(outcome.abort, [NexusId(2), NexusId(3)]);
    assert_eq!(world.state(), (vec![0xA0, 0xB0], Some((5, 0xA0))));
    assert_eq!(world.out(1, OutAction::Preempt, 5, 0xB0, 0xC0), Err(Refusal::Conflict), "nobody has it");
    let zero = Err(Refusal::Check(Sense::in_list(8, None)));
    assert_eq!(world.out(1, OutAction::Preempt, 5, 0xB0, 0), zero);
    // Without a reservation it is the same, and one may remove oneself.
    let mut world = World::registered(4);
    let outcome = world.out(2, OutAction::Preempt, 1, 0xC0, 0xC0).unwrap();
    assert_eq!(told(&outcome), [(3, RegistrationsPreempted)]);
    assert_eq!(world.state(), (vec![0xA0, 0xB0], None));
}

#[test]
fn a_reservation_of_all_registrants_is_taken_over_with_key_zero() {
    let mut world = World::reserved(4, Kind::ExclusiveAccessAllRegistrants);
    let outcome = world.out(1, OutAction::Preempt, 15, 0xB0, 0xC0).unwrap();
    assert_eq!(told(&outcome), [(2, RegistrationsPreempted), (3, RegistrationsPreempted)]);
    assert_eq!(world.state(), (vec![0xA0, 0xB0], Some((8, 0))));
    let refused = Err(Refusal::Check(Sense::in_cdb(2, Some(3))));
    assert_eq!(world.out(1, OutAction::Preempt, 15, 0xB0, 0), refused);
    let outcome = world.out(1, OutAction::Preempt, 1, 0xB0, 0).unwrap();
    assert_eq!(told(&outcome), [(0, RegistrationsPreempted)]);
    assert_eq!(world.state(), (vec![0xB0], Some((1, 0xB0))));
    // With nobody left nobody holds it.
    let mut world = World::reserved(1, Kind::WriteExclusiveAllRegistrants);
    world.out(0, OutAction::Preempt, 7, 0xA0, 0xA0).unwrap();
    assert_eq!(world.state(), (vec![], None));
}

#[test]
fn commands_conflict_as_the_standards_table_says() {
    // Read and Write, of: the holder, a registrant, another.
    let table = [
        (Kind::WriteExclusive, [(true, true), (true, false), (true, false)]),
        (Kind::ExclusiveAccess, [(true, true), (false, false), (false, false)]),
        (Kind::WriteExclusiveRegistrantsOnly, [(true, true), (true, true), (true, false)]),
        (Kind::ExclusiveAccessRegistrantsOnly, [(true, true), (true, true), (false, false)]),
        (Kind::WriteExclusiveAllRegistrants, [(true, true), (true, true), (true, false)]),
        (Kind::ExclusiveAccessAllRegistrants, [(true, true), (true, true), (false, false)]),
    ];
    for (kind, expected) in table {
        let world = World::reserved(2, kind);
        for (id, expected) in (0..).zip(expected) {
            assert_eq!(
                (world.may(id, Access::Read), world.may(id, Access::Write)),
                expected,
                "{kind:?} {id}"
            );
            for access in [Access::Free, Access::Status, Access::Persistent, Access::Legacy] {
                assert!(world.may(id, access), "{kind:?} {id} {access:?}");
            }
        }
    }
    let world = World::registered(1);
    assert!(world.may(3, Access::Write), "registrations alone keep nobody out");
}

#[test]
fn what_reserve_reserved_keeps_others_out_until_its_nexus_ends_or_the_unit_is_reset() {
    let mut world = World::new();
    let (one, other) = (NexusId(0), NexusId(1));
    world.all.reserve_legacy(one).unwrap();
    world.all.reserve_legacy(one).unwrap();
    assert_eq!(world.all.reserve_legacy(other), Err(Refusal::Conflict));
    for access in [Access::Read, Access::Write, Access::Status] {
        assert!(world.may(0, access) && !world.may(1, access), "{access:?}");
    }
    // Persistent reservations are for nobody then.
    assert!(!world.may(0, Access::Persistent) && !world.may(1, Access::Persistent));
    assert!(world.may(1, Access::Free) && world.may(1, Access::Legacy));
    world.all.release_legacy(other).unwrap();
    assert!(!world.may(1, Access::Read), "others release nothing");
    world.all.release_legacy(one).unwrap();
    assert!(world.may(1, Access::Write));
    world.all.reserve_legacy(one).unwrap();
    world.all.detach(one);
    assert!(world.may(1, Access::Write));
    world.all.reserve_legacy(other).unwrap();
    world.all.reset();
    assert!(world.may(2, Access::Write));
}

#[test]
fn reserve_beside_registrations_succeeds_for_those_alone_who_have_a_part_and_changes_nothing() {
    let mut world = World::registered(1);
    assert_eq!(world.all.reserve_legacy(NexusId(0)), Err(Refusal::Conflict));
    assert_eq!(world.all.release_legacy(NexusId(0)), Err(Refusal::Conflict));
    for (kind, registrant) in [(Kind::WriteExclusive, false), (Kind::WriteExclusiveRegistrantsOnly, true)] {
        let mut world = World::reserved(2, kind);
        for (id, well) in [(0, true), (1, registrant), (2, false)] {
            assert_eq!(world.all.reserve_legacy(NexusId(id)).is_ok(), well, "{kind:?} {id}");
            assert_eq!(world.all.release_legacy(NexusId(id)).is_ok(), well, "{kind:?} {id}");
        }
        assert_eq!((world.all.legacy, world.state().1), (None, Some((kind.into(), 0xA0))));
    }
}

#[test]
fn registrations_outlive_their_nexus() {
    let mut world = World::reserved(2, Kind::WriteExclusive);
    world.all.detach(NexusId(0));
    assert!(!world.may(0, Access::Write) && !world.may(1, Access::Write));
    assert_eq!(world.state(), (vec![0xA0, 0xB0], Some((1, 0xA0))));
    // It comes again, under another number.
    world.all.attach(NexusId(9), &nexus(0));
    assert!(world.may(9, Access::Write) && !world.may(0, Access::Write));
    // Who is gone is not told.
    world.all.detach(NexusId(1));
    let outcome = world.all.out(
        NexusId(9),
        &nexus(0),
        &PersistentOut { action: OutAction::Clear, scope: 0, kind: 0 },
        &list(0xA0, 0, 0),
    );
    assert_eq!(outcome, Ok(Outcome::default()));
}

#[test]
fn lists_with_what_is_not_supported_are_refused() {
    let mut volatile = Reservations::new(Persistence::Volatile);
    let register = PersistentOut { action: OutAction::Register, scope: 0, kind: 0 };
    let mut out = |action, list: &[u8]| {
        volatile.out(NexusId(0), &nexus(0), &PersistentOut { action, ..register }, list).unwrap_err()
    };
    let at = |bit| Refusal::Check(Sense::in_list(20, Some(bit)));
    assert_eq!(out(OutAction::Register, &list(0, 1, 1 << 3)), at(3), "SPEC_I_PT");
    assert_eq!(out(OutAction::Register, &list(0, 1, 1 << 2)), at(2), "ALL_TG_PT");
    assert_eq!(out(OutAction::RegisterAndIgnore, &list(0, 1, APTPL)), at(0), "nothing is stored");
    assert_eq!(out(OutAction::Register, &list(0, 1, 0x80)), at(7));
    assert_eq!(out(OutAction::Clear, &list(0, 1, 1 << 3)), at(3));
    // Of other service actions APTPL means nothing: it is the key that is wrong.
    assert_eq!(out(OutAction::Clear, &list(0, 1, APTPL)), Refusal::Conflict);
    let length = Refusal::Check(Sense::new(code::PARAMETER_LIST_LENGTH_ERROR));
    assert_eq!(out(OutAction::Register, &list(0, 1, 0)[..23]), length);
    let mut reserved = list(0, 1, 0);
    reserved[21] = 1;
    assert_eq!(out(OutAction::Register, &reserved), Refusal::Check(Sense::in_list(21, None)));
}

#[test]
fn registrations_are_limited() {
    let mut all = Reservations::new(Persistence::Volatile);
    let register = PersistentOut { action: OutAction::Register, scope: 0, kind: 0 };
    for id in 0..256 {
        all.out(NexusId(id), &nexus(id), &register, &list(0, 1, 0)).unwrap();
    }
    let full = Refusal::Check(Sense::new(code::INSUFFICIENT_REGISTRATION_RESOURCES));
    assert_eq!(all.out(NexusId(256), &nexus(256), &register, &list(0, 1, 0)), Err(full));
    assert_eq!((all.registrations.len(), all.generation), (256, 256));
    all.out(NexusId(7), &nexus(7), &register, &list(1, 0, 0)).unwrap();
    assert!(all.out(NexusId(256), &nexus(256), &register, &list(0, 1, 0)).is_ok());
}

#[test]
fn what_is_there_is_reported() {
    let mut world = World::reserved(2, Kind::ExclusiveAccess);
    let keys = world.all.report(StatusOf::Keys);
    let expected = [0_u32.to_be_bytes(), 2_u32.to_be_bytes()];
    assert_eq!(keys[..4], expected[1]);
    assert_eq!(keys[4..8], 16_u32.to_be_bytes());
    assert_eq!(keys[8..], [0xA0_u64.to_be_bytes(), 0xB0_u64.to_be_bytes()].concat());
    let reservation = world.all.report(StatusOf::Reservation);
    assert_eq!(reservation[4..8], 16_u32.to_be_bytes());
    assert_eq!(reservation[8..], [0, 0, 0, 0, 0, 0, 0, 0xA0, 0, 0, 0, 0, 0, 3, 0, 0]);
    let full = world.all.report(StatusOf::Registrations);
    let id = nexus(0).initiator.transport_id();
    let one = 24 + id.len();
    assert_eq!(full.len(), 8 + 2 * one);
    assert_eq!(full[8..16], 0xA0_u64.to_be_bytes());
    assert_eq!(full[20..32], [1, 3, 0, 0, 0, 0, 0, 1, 0, 0, 0, u8::try_from(id.len()).unwrap()]);
    assert_eq!(full[32..8 + one], id);
    assert_eq!(full[8 + one + 12..8 + one + 14], [0, 0], "the second does not hold it");
    let capabilities = world.all.report(StatusOf::Capabilities);
    assert_eq!(capabilities, [0, 8, 0x11, 0x90, 0xEA, 0x01, 0, 0]);
    world.out(0, OutAction::Release, 3, 0xA0, 0).unwrap();
    assert_eq!(world.all.report(StatusOf::Reservation), [0, 0, 0, 2, 0, 0, 0, 0]);
    // All registrants have no key together.
    let world = World::reserved(2, Kind::WriteExclusiveAllRegistrants);
    assert_eq!(world.all.report(StatusOf::Reservation)[8..16], [0; 8]);
    assert_eq!(world.all.report(StatusOf::Registrations)[20..22], [1, 7]);
    let volatile = Reservations::new(Persistence::Volatile);
    assert_eq!(volatile.report(StatusOf::Capabilities)[2..4], [0x10, 0x90]);
}

#[test]
fn what_is_to_be_kept_is_stored_with_every_change_and_comes_back() {
    let mut world = World::new();
    let register = PersistentOut { action: OutAction::Register, scope: 0, kind: 0 };
    let saved = |outcome: Outcome| outcome.save.expect("something is to be stored");
    let mut out = |id, command: &PersistentOut, list: &[u8]| {
        world.all.out(NexusId(id), &nexus(id), command, list).unwrap()
    };
    assert_eq!(out(1, &register, &list(0, u64::MAX, 0)).save, None);
    let first = saved(out(0, &register, &list(0, 0xA0, APTPL)));
    let reserve = PersistentOut { action: OutAction::Reserve, scope: 0, kind: 5 };
    let second = saved(out(0, &reserve, &list(0xA0, 0, 0)));
    assert_ne!(first, second);
    assert_eq!(out(0, &reserve, &list(0xA0, 0, 0)).save, None, "nothing changed");
    // As text, and back.
    let text = toml::to_string(&second).unwrap();
    let read: Saved = toml::from_str(&text).unwrap();
    assert_eq!(read, second);
    let mut again = Reservations::restore(&read).unwrap();
    assert_eq!((&again.registrations.len(), again.generation, again.kept), (&2, 0, true));
    assert!(!again.allow(NexusId(0), Access::Write), "nobody has come yet");
    again.attach(NexusId(5), &nexus(1));
    assert!(again.allow(NexusId(5), Access::Write), "a registrant");
    assert_eq!(again.saved(), second);
    // Not to be kept any more: what is stored becomes nothing.
    let none = saved(out(0, &register, &list(0xA0, 0xA1, 0)));
    assert!(none.is_empty());
    assert!(!Reservations::restore(&none).unwrap().kept);
}

#[test]
fn the_form_that_is_stored_does_not_change_unnoticed() {
    let mut world = World::new();
    let register = PersistentOut { action: OutAction::Register, scope: 0, kind: 0 };
    world.all.out(NexusId(0), &nexus(0), &register, &list(0, 0xA0, APTPL)).unwrap();
    let reserve = PersistentOut { action: OutAction::Reserve, scope: 0, kind: 1 };
    let saved = world.all.out(NexusId(0), &nexus(0), &reserve, &list(0xA0, 0, 0)).unwrap().save.unwrap();
    let expected = "version = 1\n\n[reservation]\nkind = 1\nholder = 0\n\n[[registrations]]\n\
                    key = \"00000000000000a0\"\n\n[registrations.nexus]\n\
                    initiator = [\"iqn.x:0\", [0, 0, 0, 0, 0, 1]]\ntarget_port = 1\n";
    assert_eq!(toml::to_string(&saved).unwrap(), expected);
}

#[test]
fn what_no_unit_has_stored_is_refused() {
    let nexus = "[registrations.nexus]\ninitiator = [\"iqn.x:0\", [0, 0, 0, 0, 0, 1]]\ntarget_port = 1\n";
    let one = format!("[[registrations]]\nkey = \"00000000000000a0\"\n{nexus}");
    let restore = |text: &str| {
        let saved: Saved = toml::from_str(text).map_err(|_| "no such form".to_owned())?;
        Reservations::restore(&saved).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(restore(&format!("version = 1\n{one}")), Ok(()));
    for (text, error) in [
        ("version = 2\n".to_owned(), "version 2"),
        (format!("version = 1\n{one}{one}"), "two registrations"),
        (format!("version = 1\n{}", one.replace("a0", "00")), "key"),
        (format!("version = 1\n{}", one.replace("00a0", "a0")), "key"),
        (format!("version = 1\n[reservation]\nkind = 1\nholder = 1\n{one}"), "holder"),
        (format!("version = 1\n[reservation]\nkind = 1\n{one}"), "holder"),
        (format!("version = 1\n[reservation]\nkind = 7\nholder = 0\n{one}"), "holder"),
        ("version = 1\n[reservation]\nkind = 8\n".to_owned(), "holder"),
        (format!("version = 1\n[reservation]\nkind = 2\nholder = 0\n{one}"), "no such form"),
        (format!("version = 1\n{}", one.replace("iqn.x:0", "")), "no such form"),
        (format!("version = 1\nmore = 1\n{one}"), "no such form"),
    ] {
        let found = restore(&text).unwrap_err();
        assert!(found.contains(error), "{text}: {found}");
    }
}
