//! The table of commands: for each its name, what reservations take it for, and the bits of its CDB that a host may set.
//! (SPC-4, SBC-4; RESERVE and RELEASE: SPC-2.)
//!
//! Bits that are not set here are refused: reserved and obsolete ones, and those of features that there are not, such as
//! anchored blocks (ANCHOR) and ACA (NACA of the CONTROL byte).

use super::{Access, Operation, Units};
use crate::scsi::cdb::{blocks, control, reserve};

pub(super) const INQUIRY: u8 = 0x12;
pub(super) const REPORT_LUNS: u8 = 0xA0;
pub(super) const REQUEST_SENSE: u8 = 0x03;

const ALL: u8 = 0xFF;
/// PROTECT, DPO, FUA, and RARC of READ.
const READ: u8 = 0xFC;
/// RARC: rebuild assist mode is not there, so that the bit is ignored.
const RARC: u8 = 0x04;
/// PROTECT, DPO, FUA.
const WRITE: u8 = 0xF8;
/// PROTECT, DPO, BYTCHK.
const VERIFY: u8 = 0xF6;
/// PROTECT, UNMAP.
const SAME: u8 = 0xE8;
/// PROTECT, UNMAP, NDOB.
const SAME_NDOB: u8 = 0xE9;
/// GROUP NUMBER: grouping is not there, so that the field is ignored.
const GROUP: u8 = 0x3F;

const GROUP_10: &[(usize, u8)] = &[(6, GROUP)];
const GROUP_12: &[(usize, u8)] = &[(10, GROUP)];
const GROUP_16: &[(usize, u8)] = &[(14, GROUP)];

/// A CDB of 10 bytes with LBA, GROUP NUMBER and a length of 16 bits.
macro_rules! cdb10 {
    ($flags:expr) => {
        &[0, $flags, ALL, ALL, ALL, ALL, GROUP, ALL, ALL, 0]
    };
}

/// A CDB of 12 bytes with LBA, a length of 32 bits and GROUP NUMBER.
macro_rules! cdb12 {
    ($flags:expr) => {
        &[0, $flags, ALL, ALL, ALL, ALL, ALL, ALL, ALL, ALL, GROUP, 0]
    };
}

/// A CDB of 16 bytes with LBA, a length of 32 bits and GROUP NUMBER.
macro_rules! cdb16 {
    ($flags:expr) => {
        &[0, $flags, ALL, ALL, ALL, ALL, ALL, ALL, ALL, ALL, ALL, ALL, ALL, ALL, GROUP, 0]
    };
}

/// A CDB of 32 bytes.
macro_rules! cdb32 {
    ($flags:expr) => {
        &[
            0, 0, 0, 0, 0, 0, GROUP, 0, 0, 0, $flags, 0, ALL, ALL, ALL, ALL, ALL, ALL, ALL, ALL, ALL, ALL,
            ALL, ALL, ALL, ALL, ALL, ALL, ALL, ALL, ALL, ALL,
        ]
    };
}

/// MAINTENANCE IN with an allocation length and nothing else but byte 1 and byte 2.
macro_rules! maintenance_in {
    ($byte1:expr, $byte2:expr, $asked:expr) => {
        &[0, $byte1, $byte2, $asked, $asked, $asked, ALL, ALL, ALL, ALL, 0, 0]
    };
}

/// A row: code, service action, name, access, bits, ignored bits, parser.
macro_rules! operation {
    ($units:ident, $code:expr, $action:expr, $name:expr, $access:ident, $bits:expr, $ignored:expr, $parse:expr) => {
        Operation {
            code: $code,
            service_action: $action,
            name: $name,
            access: Access::$access,
            bits: $bits,
            ignored: $ignored,
            units: Units::$units,
            parse: $parse,
        }
    };
}

/// All commands; those of one operation code stand together.
#[rustfmt::skip]
pub(super) static OPERATIONS: [Operation; 57] = [
    operation!(All, 0x00, None, "TEST UNIT READY", Status, &[0, 0, 0, 0, 0, 0], &[], control::test_unit_ready),
    operation!(All, REQUEST_SENSE, None, "REQUEST SENSE", Free, &[0, 1, 0, 0, ALL, 0], &[], control::request_sense),
    operation!(All, INQUIRY, None, "INQUIRY", Free, &[0, 1, ALL, ALL, ALL, 0], &[], control::inquiry),
    operation!(All, REPORT_LUNS, None, "REPORT LUNS", Free, &[0, 0, ALL, 0, 0, 0, ALL, ALL, ALL, ALL, 0, 0], &[], control::report_luns),

    operation!(Disks, 0x15, None, "MODE SELECT (6)", Write, &[0, 0x11, 0, 0, ALL, 0], &[], control::mode_select),
    operation!(Disks, 0x55, None, "MODE SELECT (10)", Write, &[0, 0x11, 0, 0, 0, 0, 0, ALL, ALL, 0], &[], control::mode_select),
    operation!(Disks, 0x1A, None, "MODE SENSE (6)", Read, &[0, 0x08, ALL, ALL, ALL, 0], &[], control::mode_sense),
    operation!(Disks, 0x5A, None, "MODE SENSE (10)", Read, &[0, 0x18, ALL, ALL, 0, 0, 0, ALL, ALL, 0], &[], control::mode_sense),
    operation!(Disks, 0x25, None, "READ CAPACITY (10)", Free, &[0; 10], &[], control::read_capacity_10),
    operation!(Disks, 0x9E, Some(0x10), "READ CAPACITY (16)", Free, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, ALL, ALL, ALL, ALL, 0, 0], &[], control::read_capacity_16),
    operation!(Disks, 0x9E, Some(0x12), "GET LBA STATUS", Read, &[0, 0, ALL, ALL, ALL, ALL, ALL, ALL, ALL, ALL, ALL, ALL, ALL, ALL, 0, 0], &[], blocks::lba_status),
    operation!(Disks, 0x1B, None, "START STOP UNIT", Free, &[0, 0x01, 0, 0, 0x05, 0], &[(1, 0x01), (4, 0x04)], control::start_stop_unit),
    operation!(Disks, 0xA3, Some(0x0A), "REPORT TARGET PORT GROUPS", Free, maintenance_in!(0xE0, 0, 0), &[], control::report_port_groups),
    operation!(Disks, 0xA3, Some(0x0C), "REPORT SUPPORTED OPERATION CODES", Status, maintenance_in!(0, 0x87, ALL), &[], control::report_opcodes),
    operation!(Disks, 0xA3, Some(0x0D), "REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS", Status, maintenance_in!(0, 0x80, 0), &[], control::report_task_functions),

    operation!(Disks, 0x16, None, "RESERVE (6)", Legacy, &[0; 6], &[], reserve::reserve),
    operation!(Disks, 0x17, None, "RELEASE (6)", Legacy, &[0; 6], &[], reserve::release),
    operation!(Disks, 0x56, None, "RESERVE (10)", Legacy, &[0; 10], &[], reserve::reserve),
    operation!(Disks, 0x57, None, "RELEASE (10)", Legacy, &[0; 10], &[], reserve::release),
    operation!(Disks, 0x5E, Some(0), "PERSISTENT RESERVE IN, READ KEYS", Persistent, reserve::IN, &[], reserve::persistent_in),
    operation!(Disks, 0x5E, Some(1), "PERSISTENT RESERVE IN, READ RESERVATION", Persistent, reserve::IN, &[], reserve::persistent_in),
    operation!(Disks, 0x5E, Some(2), "PERSISTENT RESERVE IN, REPORT CAPABILITIES", Persistent, reserve::IN, &[], reserve::persistent_in),
    operation!(Disks, 0x5E, Some(3), "PERSISTENT RESERVE IN, READ FULL STATUS", Persistent, reserve::IN, &[], reserve::persistent_in),
    operation!(Disks, 0x5F, Some(0), "PERSISTENT RESERVE OUT, REGISTER", Persistent, reserve::OUT, &[], reserve::persistent_out),
    operation!(Disks, 0x5F, Some(1), "PERSISTENT RESERVE OUT, RESERVE", Persistent, reserve::OUT, &[], reserve::persistent_out),
    operation!(Disks, 0x5F, Some(2), "PERSISTENT RESERVE OUT, RELEASE", Persistent, reserve::OUT, &[], reserve::persistent_out),
    operation!(Disks, 0x5F, Some(3), "PERSISTENT RESERVE OUT, CLEAR", Persistent, reserve::OUT, &[], reserve::persistent_out),
    operation!(Disks, 0x5F, Some(4), "PERSISTENT RESERVE OUT, PREEMPT", Persistent, reserve::OUT, &[], reserve::persistent_out),
    operation!(Disks, 0x5F, Some(5), "PERSISTENT RESERVE OUT, PREEMPT AND ABORT", Persistent, reserve::OUT, &[], reserve::persistent_out),
    operation!(Disks, 0x5F, Some(6), "PERSISTENT RESERVE OUT, REGISTER AND IGNORE EXISTING KEY", Persistent, reserve::OUT, &[], reserve::persistent_out),

    operation!(Disks, 0x08, None, "READ (6)", Read, &[0, 0x1F, ALL, ALL, ALL, 0], &[], blocks::parse),
    operation!(Disks, 0x28, None, "READ (10)", Read, cdb10!(READ), &[(1, RARC), (6, GROUP)], blocks::parse),
    operation!(Disks, 0xA8, None, "READ (12)", Read, cdb12!(READ), &[(1, RARC), (10, GROUP)], blocks::parse),
    operation!(Disks, 0x88, None, "READ (16)", Read, cdb16!(READ), &[(1, RARC), (14, GROUP)], blocks::parse),
    operation!(Disks, 0x0A, None, "WRITE (6)", Write, &[0, 0x1F, ALL, ALL, ALL, 0], &[], blocks::parse),
    operation!(Disks, 0x2A, None, "WRITE (10)", Write, cdb10!(WRITE), GROUP_10, blocks::parse),
    operation!(Disks, 0xAA, None, "WRITE (12)", Write, cdb12!(WRITE), GROUP_12, blocks::parse),
    operation!(Disks, 0x8A, None, "WRITE (16)", Write, cdb16!(WRITE), GROUP_16, blocks::parse),
    operation!(Disks, 0x2E, None, "WRITE AND VERIFY (10)", Write, cdb10!(VERIFY), GROUP_10, blocks::parse),
    operation!(Disks, 0xAE, None, "WRITE AND VERIFY (12)", Write, cdb12!(VERIFY), GROUP_12, blocks::parse),
    operation!(Disks, 0x8E, None, "WRITE AND VERIFY (16)", Write, cdb16!(VERIFY), GROUP_16, blocks::parse),
    operation!(Disks, 0x2F, None, "VERIFY (10)", Read, cdb10!(VERIFY), GROUP_10, blocks::parse),
    operation!(Disks, 0xAF, None, "VERIFY (12)", Read, cdb12!(VERIFY), GROUP_12, blocks::parse),
    operation!(Disks, 0x8F, None, "VERIFY (16)", Read, cdb16!(VERIFY), GROUP_16, blocks::parse),
    operation!(Disks, 0x41, None, "WRITE SAME (10)", Write, cdb10!(SAME), GROUP_10, blocks::parse),
    operation!(Disks, 0x93, None, "WRITE SAME (16)", Write, cdb16!(SAME_NDOB), GROUP_16, blocks::parse),
    operation!(Disks, 0x89, None, "COMPARE AND WRITE", Write, &[0, WRITE, ALL, ALL, ALL, ALL, ALL, ALL, ALL, ALL, 0, 0, 0, ALL, GROUP, 0], GROUP_16, blocks::parse),
    operation!(Disks, 0x35, None, "SYNCHRONIZE CACHE (10)", Write, cdb10!(0x02), &[(1, 0x02), (6, GROUP)], blocks::synchronize_cache_10),
    operation!(Disks, 0x91, None, "SYNCHRONIZE CACHE (16)", Write, cdb16!(0x02), &[(1, 0x02), (14, GROUP)], blocks::synchronize_cache_16),
    operation!(Disks, 0x34, None, "PRE-FETCH (10)", Read, cdb10!(0x02), &[(1, 0x02), (6, GROUP)], blocks::prefetch_10),
    operation!(Disks, 0x90, None, "PRE-FETCH (16)", Read, cdb16!(0x02), &[(1, 0x02), (14, GROUP)], blocks::prefetch_16),
    operation!(Disks, 0x42, None, "UNMAP", Write, &[0, 0, 0, 0, 0, 0, GROUP, ALL, ALL, 0], GROUP_10, blocks::unmap),

    operation!(Type2Disks, 0x7F, Some(0x09), "READ (32)", Read, cdb32!(READ), &[(10, RARC), (6, GROUP)], blocks::parse),
    operation!(Type2Disks, 0x7F, Some(0x0B), "WRITE (32)", Write, cdb32!(WRITE), GROUP_10, blocks::parse),
    operation!(Type2Disks, 0x7F, Some(0x0C), "WRITE AND VERIFY (32)", Write, cdb32!(VERIFY), GROUP_10, blocks::parse),
    operation!(Type2Disks, 0x7F, Some(0x0A), "VERIFY (32)", Read, cdb32!(VERIFY), GROUP_10, blocks::parse),
    operation!(Type2Disks, 0x7F, Some(0x0D), "WRITE SAME (32)", Write, cdb32!(SAME_NDOB), GROUP_10, blocks::parse),
];

/// Where the rows of each operation code start; behind the end for one without.
static FIRST: [usize; 256] = {
    let mut first = [OPERATIONS.len(); 256];
    let mut at = OPERATIONS.len();
    while at > 0 {
        at -= 1;
        first[OPERATIONS[at].code as usize] = at;
    }
    first
};

/// The rows of an operation code.
pub(super) fn rows_of(code: u8) -> &'static [Operation] {
    let rows = &OPERATIONS[FIRST[usize::from(code)]..];
    let count = rows.iter().take_while(|row| row.code == code).count();
    &rows[..count]
}
