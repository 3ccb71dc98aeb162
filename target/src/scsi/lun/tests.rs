use proptest::prelude::*;
use t10pi::{Format, Guard, PiType};

use super::*;
use crate::scsi::nexus::InitiatorPort;
use crate::scsi::reservations::{Persistence, Saved};
use crate::scsi::status::Status;
use crate::scsi::transfer::Work;
use crate::scsi::unmap::Extent;

const A: NexusId = NexusId(1);
const B: NexusId = NexusId(2);

const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const WRITE: [u8; 10] = [0x2A, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const TEST_UNIT_READY: [u8; 6] = [0; 6];
const MODE_SELECT: [u8; 6] = [0x15, 0x10, 0, 0, 16, 0];
/// The control mode page with D_SENSE.
const D_SENSE: [u8; 16] = [0, 0, 0, 0, 0x0A, 0x0A, 0x04, 0x10, 0, 0, 0, 0, 0, 0, 0, 0];

fn nexus(id: NexusId) -> Nexus {
    let initiator = InitiatorPort::new(format!("iqn.x:{}", id.0), [0; 6]).unwrap();
    Nexus { initiator, target_port: 1 }
}

/// A unit with both nexuses, who have been told everything.
fn unit_on(medium: Medium, persistence: Persistence) -> Lun {
    let ports =
        TargetPorts { name: "iqn.x:t".to_owned(), ports: vec![TargetPort { relative: 1, portal_group: 1 }] };
    let mut unit = Lun::new(LunConfig {
        medium,
        identity: Identity::new("iqn.x:t", "disk0", None, None),
        ports: Arc::new(ports),
        limits: Limits::new(medium.block_size(), 1 << 20),
        task_functions: TaskFunctions { abort_task: true, ..TaskFunctions::default() },
        reservations: Reservations::new(persistence),
    });
    for id in [A, B] {
        unit.attach(id, &nexus(id));
        let told = done(unit.handle_command(id, &TEST_UNIT_READY, &[]));
        assert_eq!(told.sense, Some(code::POWER_ON_RESET_OR_BUS_DEVICE_RESET_OCCURRED.into()));
    }
    unit
}

fn unit() -> Lun {
    unit_on(Medium::new(1 << 20, 512, None).unwrap(), Persistence::Volatile)
}

fn done(action: Action) -> Response {
    match action {
        Action::Done(response) => response,
        other => panic!("not done: {other:?}"),
    }
}

/// Runs a command that may have a list of parameters.
fn run(unit: &mut Lun, id: NexusId, cdb: &[u8], list: &[u8]) -> Action {
    match unit.handle_command(id, cdb, &[0, 5]) {
        Action::Fetch { operation, command, length } => {
            assert_eq!(length, list.len());
            unit.handle_parameters(id, operation, &command, list)
        }
        action => action,
    }
}

fn status(unit: &mut Lun, id: NexusId, cdb: &[u8], list: &[u8]) -> Status {
    done(run(unit, id, cdb, list)).status
}

/// PERSISTENT RESERVE OUT.
fn reserve_out(unit: &mut Lun, id: NexusId, action: u8, kind: u8, keys: [u64; 2], flags: u8) -> Action {
    let cdb = [0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0];
    let tail = [0, 0, 0, 0, flags, 0, 0, 0];
    let list = [keys[0].to_be_bytes(), keys[1].to_be_bytes(), tail].concat();
    run(unit, id, &cdb, &list)
}

#[test]
fn answers_are_cut_to_their_allocation_lengths() {
    let mut unit = unit();
    for allocation in [0, 5, 36, 96, 255] {
        let answer = done(run(&mut unit, A, &[0x12, 0, 0, 0, allocation, 0], &[]));
        assert_eq!((answer.status, answer.data.len()), (Status::Good, usize::from(allocation).min(96)));
    }
    let luns = done(run(&mut unit, A, &[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 24, 0, 0], &[])).data;
    assert_eq!(luns, [0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0]);
    let capacity = [0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0];
    assert_eq!(done(run(&mut unit, A, &capacity, &[])).data, [0, 0, 0, 0, 0, 0x0F, 0xFF, 0xFF, 0, 0, 2, 0]);
    assert_eq!(done(run(&mut unit, A, &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[])).data.len(), 8);
    let page = done(run(&mut unit, A, &[0x12, 1, 0xC0, 0, 255, 0], &[]));
    assert_eq!(page.sense, Some(Sense::in_cdb(2, None)));
}

#[test]
fn blocks_are_moved_flushed_and_given_back_by_somebody_else() {
    let mut unit = unit();
    let Action::Transfer(read) = run(&mut unit, A, &READ, &[]) else { panic!("a read moves blocks") };
    assert_eq!((read.work, read.blocks, read.to_host), (Work::Read, 1, 512));
    let none = [0x28, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(status(&mut unit, A, &none, &[]), Status::Good);
    let flush = run(&mut unit, A, &[0x35, 0, 0, 0, 0, 8, 0, 0, 0, 0], &[]);
    assert!(matches!(flush, Action::Flush { lba: 8, blocks: 0 }));
    let out = done(run(&mut unit, A, &[0x35, 0, 1, 0, 0, 0, 0, 0, 0, 0], &[]));
    assert_eq!(out.sense, Some(code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE.into()));
    let list = [0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0, 0];
    let Action::Unmap(extents) = run(&mut unit, A, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list) else {
        panic!("blocks are given back")
    };
    assert_eq!(extents, [Extent { lba: 9, blocks: 2 }]);
    assert_eq!(status(&mut unit, A, &[0x42, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[]), Status::Good);
    let mut read_only = unit_on(Medium::new(8, 512, None).unwrap().with_read_only(), Persistence::Volatile);
    let refused = done(run(&mut read_only, A, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], &list));
    assert_eq!(refused.sense, Some(code::WRITE_PROTECTED.into()));
}

#[test]
fn a_unit_is_asked_for_what_it_need_not_do() {
    let mut unit = unit();
    let out = Some(code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE.into());
    // Blocks are not fetched ahead, but those that there are not are refused; with IMMED and GROUP NUMBER, too.
    for (lba, blocks, expected) in [
        (0, 1, None),
        (0, 0, None),
        ((1 << 20) - 1, 1, None),
        ((1 << 20) - 1, 2, out),
        ((1 << 20) + 1, 0, out),
    ] {
        let [_, a, b, c] = u32::to_be_bytes(lba);
        let short = done(run(&mut unit, A, &[0x34, 0x02, 0, a, b, c, 3, 0, blocks, 0], &[]));
        let long = [0x90, 0, 0, 0, 0, 0, 0, a, b, c, 0, 0, 0, blocks, 3, 0];
        assert_eq!((short.sense, done(run(&mut unit, A, &long, &[])).sense), (expected, expected));
    }
    let mut status_of = [0x9E, 0x12, 0, 0, 0, 0, 0, 0x0F, 0xFF, 0xFF, 0, 0, 0, 24, 0, 0];
    assert_eq!(
        done(run(&mut unit, A, &status_of, &[])).data[8..20],
        [0, 0, 0, 0, 0, 0x0F, 0xFF, 0xFF, 0, 0, 0, 1]
    );
    status_of[7] = 0x10;
    assert_eq!(done(run(&mut unit, A, &status_of, &[])).sense, out);
    // It is started, also without waiting; it can't be stopped, ejected or put to sleep.
    for immediately in [0, 1] {
        assert_eq!(status(&mut unit, A, &[0x1B, immediately, 0, 0, 0x01, 0], &[]), Status::Good);
        let refused =
            |unit: &mut Lun, byte| done(run(unit, A, &[0x1B, immediately, 0, 0, byte, 0], &[])).sense;
        assert_eq!(refused(&mut unit, 0x00), Some(Sense::in_cdb(4, Some(0))));
        assert_eq!(refused(&mut unit, 0x03), Some(Sense::in_cdb(4, Some(1))), "LOEJ");
        assert_eq!(refused(&mut unit, 0x31), Some(Sense::in_cdb(4, Some(5))), "POWER CONDITION");
    }
}

#[test]
fn what_waits_is_told_before_a_command_and_by_request_sense() {
    let mut unit = unit();
    unit.resize(1 << 21);
    // INQUIRY and REPORT LUNS pass; what can't be read does not.
    assert_eq!(status(&mut unit, A, &[0x12, 0, 0, 0, 36, 0], &[]), Status::Good);
    assert_eq!(status(&mut unit, A, &[0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0], &[]), Status::Good);
    let told = done(run(&mut unit, A, &[0xFF], &[]));
    assert_eq!(told.sense, Some(code::CAPACITY_DATA_HAS_CHANGED.into()));
    let unknown = done(run(&mut unit, A, &[0xFF], &[]));
    assert_eq!(unknown.sense, Some(code::INVALID_COMMAND_OPERATION_CODE.into()));
    // The other asks.
    let sense = done(run(&mut unit, B, &[0x03, 1, 0, 0, 252, 0], &[]));
    assert_eq!(
        (sense.status, sense.data.as_slice()),
        (Status::Good, [0x72, 6, 0x2A, 9, 0, 0, 0, 0].as_slice())
    );
    let sense = done(run(&mut unit, B, &[0x03, 0, 0, 0, 252, 0], &[]));
    assert_eq!((sense.data.len(), sense.data[2]), (18, 0));
    unit.resize(1 << 21);
    assert_eq!(status(&mut unit, B, &TEST_UNIT_READY, &[]), Status::Good, "the size is the same");
}

#[test]
fn changed_mode_pages_are_obeyed_and_told_to_others() {
    let mut unit = unit();
    assert_eq!(unit.sense_format(), SenseFormat::Fixed);
    assert_eq!(status(&mut unit, A, &MODE_SELECT, &D_SENSE), Status::Good);
    assert_eq!(unit.sense_format(), SenseFormat::Descriptor);
    let told = done(run(&mut unit, B, &READ, &[]));
    assert_eq!(told.sense, Some(code::MODE_PARAMETERS_CHANGED.into()));
    // The same again is no change.
    assert_eq!(status(&mut unit, A, &MODE_SELECT, &D_SENSE), Status::Good);
    assert!(matches!(run(&mut unit, B, &READ, &[]), Action::Transfer(_)));
    unit.reset();
    assert_eq!(unit.sense_format(), SenseFormat::Fixed);
    for id in [A, B] {
        let told = done(run(&mut unit, id, &READ, &[]));
        assert_eq!(told.sense, Some(code::BUS_DEVICE_RESET_FUNCTION_OCCURRED.into()));
    }
}

#[test]
fn reservations_keep_others_out_and_those_who_lose_them_are_told() {
    let mut unit = unit();
    let (register, reserve, preempt_and_abort) = (0, 1, 5);
    assert!(
        matches!(reserve_out(&mut unit, A, register, 0, [0, 0xA], 0), Action::Done(r) if r == Response::good())
    );
    assert!(
        matches!(reserve_out(&mut unit, A, reserve, 1, [0xA, 0], 0), Action::Done(r) if r == Response::good())
    );
    assert_eq!(status(&mut unit, B, &WRITE, &[]), Status::ReservationConflict);
    assert!(matches!(run(&mut unit, B, &READ, &[]), Action::Transfer(_)));
    assert_eq!(status(&mut unit, B, &MODE_SELECT, &D_SENSE), Status::ReservationConflict);
    assert!(matches!(run(&mut unit, A, &WRITE, &[]), Action::Transfer(_)));
    let _ = reserve_out(&mut unit, B, register, 0, [0, 0xB], 0);
    let Action::Settle { abort } = reserve_out(&mut unit, B, preempt_and_abort, 3, [0xB, 0xA], 0) else {
        panic!("commands of the other are to be aborted")
    };
    assert_eq!(abort, [A]);
    assert_eq!(done(run(&mut unit, A, &READ, &[])).sense, Some(code::REGISTRATIONS_PREEMPTED.into()));
    assert_eq!(status(&mut unit, A, &READ, &[]), Status::ReservationConflict);
    assert_eq!(status(&mut unit, A, &TEST_UNIT_READY, &[]), Status::Good);
}

#[test]
fn a_list_that_is_on_its_way_meets_the_reservations_of_its_arrival() {
    let mut unit = unit();
    let Action::Fetch { operation, command, length } = unit.handle_command(B, &MODE_SELECT, &[]) else {
        panic!("a list is to be fetched")
    };
    assert_eq!(length, 16);
    assert_eq!(status(&mut unit, A, &[0x16, 0, 0, 0, 0, 0], &[]), Status::Good);
    let answer = done(unit.handle_parameters(B, operation, &command, &D_SENSE));
    assert_eq!(answer, Response::conflict());
    assert_eq!(status(&mut unit, A, &[0x17, 0, 0, 0, 0, 0], &[]), Status::Good);
    let short = done(unit.handle_parameters(B, operation, &command, &D_SENSE[1..]));
    assert_eq!(short.sense, Some(code::PARAMETER_LIST_LENGTH_ERROR.into()));
    assert_eq!(done(unit.handle_parameters(B, operation, &command, &D_SENSE)), Response::good());
}

/// A unit whose reservations can be stored.
fn storing() -> Lun {
    unit_on(Medium::new(8, 512, None).unwrap(), Persistence::Stored)
}

fn to_store(action: Action) -> (ChangeId, Saved) {
    match action {
        Action::Store { change, saved } => (change, *saved),
        other => panic!("nothing to store: {other:?}"),
    }
}

#[test]
fn what_outlives_a_restart_is_stored_before_it_takes_effect() {
    let mut unit = storing();
    let (change, saved) = to_store(reserve_out(&mut unit, A, 0, 0, [0, 0xA], 1));
    assert_eq!(unit_keys(&Reservations::restore(&saved).unwrap()), [0xA]);
    // Until then it is as before, and can't be changed by others.
    assert!(unit_keys(&unit.reservations).is_empty());
    let busy = |action| matches!(action, Action::Done(answer) if answer == Response::busy());
    assert!(busy(reserve_out(&mut unit, B, 0, 0, [0, 0xB], 0)));
    for cdb in [[0x16, 0, 0, 0, 0, 0], [0x17, 0, 0, 0, 0, 0]] {
        assert_eq!(status(&mut unit, B, &cdb, &[]), Status::Busy);
    }
    assert!(matches!(run(&mut unit, B, &WRITE, &[]), Action::Transfer(_)));
    assert_eq!(done(unit.handle_stored(change, Stored::Durably).unwrap()), Response::good());
    assert_eq!(unit_keys(&unit.reservations), [0xA]);
    assert!(unit.handle_stored(change, Stored::Durably).is_none(), "once");
}

#[test]
fn what_can_not_be_stored_has_changed_nothing() {
    let mut unit = storing();
    let (change, _) = to_store(reserve_out(&mut unit, A, 0, 0, [0, 0xA], 1));
    let failed = done(unit.handle_stored(change, Stored::Not).unwrap());
    assert_eq!(failed.sense, Some(code::INTERNAL_TARGET_FAILURE.into()));
    let report = unit.reservations.report(crate::scsi::cdb::StatusOf::Keys);
    assert_eq!(report, [0; 8], "neither a key nor a generation");
    assert_eq!(unit.reservations.report(crate::scsi::cdb::StatusOf::Capabilities)[3] & 1, 0, "PTPL_A");
    // Of a change that takes a registration away, too: nobody is told, nobody loses anything.
    let (change, _) = to_store(reserve_out(&mut unit, A, 0, 0, [0, 0xA], 1));
    let _ = unit.handle_stored(change, Stored::Durably);
    let (change, _) = to_store(reserve_out(&mut unit, B, 0, 0, [0, 0xB], 1));
    let _ = unit.handle_stored(change, Stored::Durably);
    let (change, _) = to_store(reserve_out(&mut unit, B, 5, 0, [0xB, 0xA], 0));
    let _ = unit.handle_stored(change, Stored::Not);
    assert_eq!(unit_keys(&unit.reservations), [0xA, 0xB]);
    assert_eq!(status(&mut unit, A, &TEST_UNIT_READY, &[]), Status::Good);
    let (change, _) = to_store(reserve_out(&mut unit, B, 5, 0, [0xB, 0xA], 0));
    let Some(Action::Settle { abort }) = unit.handle_stored(change, Stored::Durably) else {
        panic!("commands of the other are to be aborted")
    };
    assert_eq!((abort, unit_keys(&unit.reservations)), (vec![A], vec![0xB]));
    assert_eq!(
        done(run(&mut unit, A, &TEST_UNIT_READY, &[])).sense,
        Some(code::REGISTRATIONS_PREEMPTED.into())
    );
}

#[test]
fn a_nexus_that_comes_or_goes_while_its_change_is_stored_is_found_again() {
    let mut unit = storing();
    let (change, _) = to_store(reserve_out(&mut unit, A, 0, 0, [0, 0xA], 1));
    unit.detach(A);
    let again = NexusId(3);
    unit.attach(again, &nexus(A));
    let _ = run(&mut unit, again, &TEST_UNIT_READY, &[]);
    let _ = unit.handle_stored(change, Stored::Durably);
    // Exclusive access for registrants: who came again is the one.
    let (change, _) = to_store(reserve_out(&mut unit, again, 1, 6, [0xA, 0], 0));
    unit.reset();
    let _ = unit.handle_stored(change, Stored::Durably);
    let _ = (run(&mut unit, again, &TEST_UNIT_READY, &[]), run(&mut unit, B, &TEST_UNIT_READY, &[]));
    assert!(matches!(run(&mut unit, again, &READ, &[]), Action::Transfer(_)));
    assert_eq!(status(&mut unit, B, &READ, &[]), Status::ReservationConflict);
}

/// The keys that a unit with these reservations reports.
fn unit_keys(reservations: &Reservations) -> Vec<u64> {
    let report = reservations.report(crate::scsi::cdb::StatusOf::Keys);
    report[8..].chunks(8).map(|key| u64::from_be_bytes(key.try_into().unwrap())).collect()
}

/// ALLOCATION LENGTH, as a host knows it.
fn allocation(command: &Command) -> usize {
    match *command {
        Command::RequestSense { allocation, .. }
        | Command::Inquiry { allocation, .. }
        | Command::ReportLuns { allocation, .. }
        | Command::ReadCapacity16 { allocation }
        | Command::LbaStatus { allocation, .. }
        | Command::ReportPortGroups { allocation, .. }
        | Command::ReportOpcodes { allocation, .. }
        | Command::ReportTaskFunctions { allocation, .. }
        | Command::PersistentIn { allocation, .. } => allocation,
        Command::ModeSense(sense) => sense.allocation,
        Command::ReadCapacity10 => 8,
        _ => 0,
    }
}

fn media() -> impl Strategy<Value = Medium> {
    let format = Format::new(Guard::Crc16, 512, 8).unwrap();
    let types = [None, Some(PiType::Type1), Some(PiType::Type2), Some(PiType::Type3)];
    (1..u64::MAX, prop::sample::select(types.to_vec()), any::<[bool; 2]>()).prop_map(
        move |(blocks, pi_type, [cache, read_only])| {
            let medium = Medium::new(blocks, 512, pi_type.map(|pi_type| (format, pi_type))).unwrap();
            let medium = if cache { medium.with_write_cache() } else { medium };
            if read_only { medium.with_read_only() } else { medium }
        },
    )
}

/// Any bytes, half of the time with a CDB that exists and few bits.
fn cdbs() -> impl Strategy<Value = Vec<u8>> {
    let rows: Vec<Vec<u8>> =
        opcodes::supported(opcodes::Profile::Type2Disk).map(|row| row.usage().collect()).collect();
    let bytes = || prop::collection::vec(any::<u8>(), 32);
    let known =
        (prop::sample::select(rows), bytes(), bytes(), any::<u8>()).prop_map(|(row, bytes, kept, spare)| {
            let (code, has_action) = (row[0], matches!(row[0], 0x5E | 0x5F | 0x9E | 0xA3));
            let mut cdb = row.clone();
            for at in 1..row.len() {
                let fixed = at == 1 && has_action || (7..10).contains(&at) && code == 0x7F;
                if !fixed {
                    // Addresses and lengths with few bits are those that lie within something.
                    cdb[at] &= if kept[at] < 64 || spare & 3 == 0 { bytes[at] } else { 0 };
                }
            }
            if code == 0x5F && spare & 4 == 0 {
                cdb[2] &= 0x0F;
                cdb[5..9].copy_from_slice(&[0, 0, 0, 24]);
            }
            if code == 0x42 && spare & 4 == 0 {
                cdb[7..9].copy_from_slice(&[0, 24]);
            }
            cdb
        });
    prop_oneof![3 => known, 1 => prop::collection::vec(any::<u8>(), 0..40)]
}

/// Any bytes, or a list that PERSISTENT RESERVE OUT or UNMAP takes.
fn lists() -> impl Strategy<Value = Vec<u8>> {
    let reserve = (0..3_u64, 0..3_u64, 0..2_u8).prop_map(|(key, other, flags)| {
        [key.to_be_bytes(), other.to_be_bytes(), [0, 0, 0, 0, flags, 0, 0, 0]].concat()
    });
    let unmap = (any::<u8>(), 0..3_u8).prop_map(|(lba, blocks)| {
        vec![0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, blocks, 0, 0, 0, 0]
    });
    prop_oneof![prop::collection::vec(any::<u8>(), 64), reserve, unmap]
}

proptest! {
    #[test]
    fn no_command_of_any_bytes_does_what_it_may_not(
        medium in media(),
        commands in prop::collection::vec((any::<bool>(), cdbs(), lists()), 1..40),
    ) {
        let mut unit = unit_on(medium, Persistence::Stored);
        let mut waiting = None;
        for (first, cdb, list) in commands {
            let id = if first { A } else { B };
            // What is stored takes as long as other commands do.
            if let Some(change) = waiting.take_if(|_| first) {
                let stored = if cdb.len() % 2 == 0 { Stored::Durably } else { Stored::Not };
                let action = unit.handle_stored(change, stored);
                let ended = matches!(action, Some(Action::Done(_) | Action::Settle { .. }));
                prop_assert!(ended);
            }
            let read = opcodes::parse(&cdb, medium.profile());
            let action = match unit.handle_command(id, &cdb, &[0, 300]) {
                Action::Fetch { operation, command, length } => {
                    prop_assert!(length > 0 && length <= usize::from(u16::MAX));
                    let list: Vec<u8> = list.iter().copied().chain(std::iter::repeat(0)).take(length).collect();
                    unit.handle_parameters(id, operation, &command, &list)
                }
                action => action,
            };
            match action {
                Action::Done(response) => {
                    prop_assert_eq!(response.status == Status::CheckCondition, response.sense.is_some());
                    let room = read.map_or(0, |(_, command)| allocation(&command));
                    prop_assert!(response.data.len() <= room);
                }
                Action::Transfer(transfer) => {
                    prop_assert!(transfer.blocks > 0);
                    prop_assert!(transfer.lba + u64::from(transfer.blocks) <= medium.blocks());
                    prop_assert!(transfer.blocks <= Limits::new(512, 1 << 20).of(transfer.work));
                    prop_assert!(!transfer.work.writes() || !medium.read_only());
                    prop_assert!(transfer.to_host.max(transfer.from_host) <= (1 << 20) / 512 * 520);
                }
                Action::Unmap(extents) => {
                    prop_assert!(!extents.is_empty() && extents.len() <= 256 && !medium.read_only());
                    let within = |e: &Extent| e.blocks > 0 && e.lba + u64::from(e.blocks) <= medium.blocks();
                    prop_assert!(extents.iter().all(within));
                }
                Action::Flush { lba, blocks } => {
                    prop_assert!(lba + u64::from(blocks) <= medium.blocks());
                }
                Action::Settle { abort } => prop_assert!(!abort.contains(&id) && !abort.is_empty()),
                Action::Store { change, saved } => {
                    prop_assert!(Reservations::restore(&saved).is_ok());
                    prop_assert!(waiting.is_none(), "one after the other");
                    waiting = Some(change);
                }
                Action::Fetch { .. } => prop_assert!(false, "a list is fetched once"),
            }
        }
    }
}
