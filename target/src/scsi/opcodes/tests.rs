use super::*;
use crate::scsi::sense::SenseCode;

const TYPE_2: Profile = Profile::Type2Disk;

/// A CDB of zeroes with the operation code and service action of a row.
fn cdb_of(operation: &Operation) -> Vec<u8> {
    let mut cdb = vec![0; operation.cdb_len()];
    cdb[0] = operation.code;
    if let Some(action) = operation.service_action {
        if operation.code == VARIABLE_LENGTH {
            cdb[7] = ADDITIONAL_LENGTH_32;
            cdb[8..10].copy_from_slice(&action.to_be_bytes());
        } else {
            cdb[1] = action.to_be_bytes()[1];
        }
    }
    cdb
}

fn refused(cdb: &[u8], profile: Profile) -> Sense {
    parse(cdb, profile).map(|(operation, _)| operation.name).expect_err("it is refused")
}

#[test]
fn each_command_has_one_row_and_the_length_that_its_group_says() {
    let mut seen = std::collections::BTreeSet::new();
    for operation in supported(TYPE_2) {
        assert!(seen.insert((operation.code, operation.service_action)), "{} twice", operation.name);
        let expected = match operation.code >> 5 {
            0 => 6,
            1 | 2 => 10,
            3 => 32,
            4 => 16,
            5 => 12,
            group => panic!("{}: group {group}", operation.name),
        };
        assert_eq!(operation.cdb_len(), expected, "{}", operation.name);
        assert_eq!(operation.bits[0], 0, "{}: the operation code is no bit of a host's", operation.name);
        // CONTROL, NACA included.
        let control = if operation.code == VARIABLE_LENGTH { 1 } else { expected - 1 };
        assert_eq!(operation.bits[control], 0, "{}", operation.name);
        // The service action is found, and not a bit of the host's.
        assert_eq!(find(&cdb_of(operation), TYPE_2).unwrap().name, operation.name);
        let rows = OPERATIONS.iter().filter(|row| row.code == operation.code).count();
        assert_eq!(table::rows_of(operation.code).len(), rows, "{}: rows stand together", operation.name);
        for (byte, bits) in operation.ignored {
            assert_eq!(operation.bits[*byte] & bits, *bits, "{}: ignored is allowed", operation.name);
        }
    }
}

#[test]
fn every_bit_that_no_host_may_set_is_refused_where_it_stands() {
    for operation in supported(TYPE_2) {
        for at in 1..operation.cdb_len() {
            for bit in 0..8 {
                if (operation.bits[at] | operation.fixed_bits(at)) & 1 << bit != 0 {
                    continue;
                }
                let mut cdb = cdb_of(operation);
                cdb[at] |= 1 << bit;
                let at = u16::try_from(at).unwrap();
                assert_eq!(refused(&cdb, TYPE_2), Sense::in_cdb(at, Some(bit)), "{}", operation.name);
            }
        }
    }
}

#[test]
fn a_cdb_that_ends_too_early_is_refused_and_what_follows_it_ignored() {
    for operation in supported(TYPE_2) {
        let cdb = cdb_of(operation);
        for len in 0..cdb.len() {
            let code = refused(&cdb[..len], TYPE_2).code;
            assert!(matches!(code, SenseCode::INVALID_FIELD_IN_CDB | SenseCode::INVALID_OPERATION_CODE));
        }
        let longer = [cdb.as_slice(), &[0xFF; 16]].concat();
        assert_eq!(
            parse(&longer, TYPE_2).map(|(_, command)| command),
            parse(&cdb, TYPE_2).map(|(_, command)| command)
        );
    }
}

#[test]
fn what_a_unit_has_not_is_an_invalid_operation_code_or_service_action() {
    let unknown = Sense::new(SenseCode::INVALID_OPERATION_CODE);
    assert_eq!(refused(&[0x04; 6], Profile::Disk), unknown, "FORMAT UNIT");
    let mut long = [0; 32];
    (long[0], long[7], long[9]) = (0x7F, 0x18, 0x09);
    assert_eq!(refused(&long, Profile::Disk), unknown, "CDBs of 32 bytes are type 2's");
    assert!(parse(&long, TYPE_2).is_ok());
    long[9] = 0x0E;
    assert_eq!(refused(&long, TYPE_2), Sense::in_cdb(8, None));
    (long[9], long[7]) = (0x09, 0x19);
    assert_eq!(refused(&long, TYPE_2), Sense::in_cdb(7, None));
    // REGISTER AND MOVE.
    let moves = [0x5F, 0x07, 0, 0, 0, 0, 0, 0, 24, 0];
    assert_eq!(refused(&moves, Profile::Disk), Sense::in_cdb(1, Some(4)));
    assert_eq!(refused(&[0x28; 10], Profile::NoDisk), unknown);
    assert!(parse(&[0x12, 0, 0, 0, 96, 0], Profile::NoDisk).is_ok());
}

#[test]
fn all_commands_are_reported_with_their_lengths() {
    let request =
        OpcodesRequest { options: ReportingOptions::All, timeouts: false, code: 0, service_action: 0 };
    let data = request.answer(Profile::Disk).unwrap();
    let rows = supported(Profile::Disk).count();
    assert_eq!(data.len(), 4 + rows * 8);
    assert_eq!(data[..4], u32::try_from(rows * 8).unwrap().to_be_bytes());
    assert!(data[4..].chunks(8).any(|row| row == [0x88, 0, 0, 0, 0, 0, 0, 16]));
    assert!(data[4..].chunks(8).any(|row| row == [0x9E, 0, 0, 0x10, 0, 1, 0, 16]));
    assert!(!data[4..].chunks(8).any(|row| row[0] == 0x7F));
    let with_times = OpcodesRequest { timeouts: true, ..request }.answer(TYPE_2).unwrap();
    assert_eq!(with_times.len(), 4 + supported(TYPE_2).count() * 20);
    assert_eq!(with_times[4 + 5], 2, "CTDP");
    assert_eq!(with_times[4 + 8..4 + 20], [0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn one_command_is_reported_with_the_bits_that_it_uses() {
    let ask = |options, code, service_action| {
        OpcodesRequest { options, timeouts: false, code, service_action }.answer(TYPE_2)
    };
    let read = ask(ReportingOptions::Code, 0x28, 0).unwrap();
    // Of byte 1 not RARC; no GROUP NUMBER.
    assert_eq!(read, [0, 3, 0, 10, 0x28, 0xF8, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF, 0xFF, 0]);
    let capacity = ask(ReportingOptions::CodeAndAction, 0x9E, 0x10).unwrap();
    let expected = [0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0];
    assert_eq!((&capacity[..4], &capacity[4..]), ([0, 3, 0, 16].as_slice(), expected.as_slice()));
    let long = ask(ReportingOptions::Either, 0x7F, 0x0B).unwrap();
    assert_eq!(long[..4], [0, 3, 0, 32]);
    assert_eq!(long[4..16], [0x7F, 0, 0, 0, 0, 0, 0, 0x18, 0, 0x0B, 0xF8, 0]);
    // What is not there.
    assert_eq!(ask(ReportingOptions::Code, 0x04, 0).unwrap(), [0, 1, 0, 0]);
    assert_eq!(ask(ReportingOptions::CodeAndAction, 0x9E, 0x13).unwrap(), [0, 1, 0, 0]);
    assert_eq!(ask(ReportingOptions::Either, 0x28, 1).unwrap(), [0, 1, 0, 0]);
    // Options that don't fit.
    assert_eq!(ask(ReportingOptions::Code, 0x9E, 0), Err(Sense::in_cdb(2, Some(2))));
    assert_eq!(ask(ReportingOptions::CodeAndAction, 0x28, 0), Err(Sense::in_cdb(2, Some(2))));
}

#[test]
fn what_is_reported_of_a_command_is_what_is_let_through() {
    for operation in supported(TYPE_2) {
        let usage: Vec<u8> = operation.usage().collect();
        assert_eq!(usage.len(), operation.cdb_len());
        for (at, byte) in usage.iter().enumerate() {
            let allowed = operation.bits[at] | operation.fixed_bits(at);
            assert_eq!(byte & !allowed, 0, "{} byte {at}", operation.name);
        }
    }
}

#[test]
fn task_management_functions_are_reported() {
    let functions = TaskFunctions { abort_task: true, clear_task_set: true, ..TaskFunctions::default() };
    assert_eq!(functions.answer(false), [0x90, 0, 0, 0]);
    let extended = TaskFunctions { abort_task_set: true, unit_reset: true, ..functions }.answer(true);
    assert_eq!(extended, [0xD8, 0, 0, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
}

#[test]
fn each_command_is_for_reservations_what_the_standards_tables_say() {
    let of = |access| {
        let rows = supported(TYPE_2).filter(|operation| operation.access == access);
        let without_form = |name: &'static str| name.split([',', '(']).next().unwrap().trim_end();
        let names: std::collections::BTreeSet<&str> =
            rows.map(|operation| without_form(operation.name)).collect();
        names.into_iter().collect::<Vec<_>>()
    };
    let free = [
        "INQUIRY",
        "READ CAPACITY",
        "REPORT LUNS",
        "REPORT TARGET PORT GROUPS",
        "REQUEST SENSE",
        "START STOP UNIT",
    ];
    assert_eq!(of(Access::Free), free);
    let status =
        ["REPORT SUPPORTED OPERATION CODES", "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS", "TEST UNIT READY"];
    assert_eq!(of(Access::Status), status);
    assert_eq!(of(Access::Read), ["GET LBA STATUS", "MODE SENSE", "PRE-FETCH", "READ", "VERIFY"]);
    let write = [
        "COMPARE AND WRITE",
        "MODE SELECT",
        "SYNCHRONIZE CACHE",
        "UNMAP",
        "WRITE",
        "WRITE AND VERIFY",
        "WRITE SAME",
    ];
    assert_eq!(of(Access::Write), write);
    assert_eq!(of(Access::Persistent), ["PERSISTENT RESERVE IN", "PERSISTENT RESERVE OUT"]);
    assert_eq!(of(Access::Legacy), ["RELEASE", "RESERVE"]);
}
