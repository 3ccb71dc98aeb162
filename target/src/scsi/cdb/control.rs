//! CDBs of the primary commands, and of the block commands that touch no block.

use super::Command;
use crate::scsi::big_endian::{u16_at, u32_at};
use crate::scsi::luns::SelectReport;
use crate::scsi::opcodes::{OpcodesRequest, ReportingOptions};
use crate::scsi::sense::{Sense, SenseFormat};

/// Which of the two CDBs and headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ModeForm {
    /// MODE SENSE (6) and MODE SELECT (6)
    Six,
    /// MODE SENSE (10) and MODE SELECT (10)
    Ten,
}

/// PC: which values of the pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PageControl {
    /// Those in effect.
    Current,
    /// Ones where a bit can be changed.
    Changeable,
    /// Those after a start.
    Default,
    /// Those that would be kept; there are none.
    Saved,
}

/// MODE SENSE (6) and (10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSense {
    /// (6) or (10).
    pub form: ModeForm,
    /// DBD clear: with a block descriptor.
    pub block_descriptor: bool,
    /// LLBAA: it may be a long one.
    pub long_lba: bool,
    /// PC
    pub control: PageControl,
    /// PAGE CODE, 0 to 3Fh.
    pub page: u8,
    /// SUBPAGE CODE
    pub subpage: u8,
    /// ALLOCATION LENGTH
    pub allocation: usize,
}

/// MODE SELECT (6) and (10).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSelect {
    /// (6) or (10).
    pub form: ModeForm,
    /// PARAMETER LIST LENGTH
    pub length: u16,
}

type Parsed = Result<Command, Sense>;

pub(in crate::scsi) fn test_unit_ready(_: &[u8]) -> Parsed {
    Ok(Command::TestUnitReady)
}

pub(in crate::scsi) fn request_sense(cdb: &[u8]) -> Parsed {
    let format = if cdb[1] & 1 == 0 { SenseFormat::Fixed } else { SenseFormat::Descriptor };
    Ok(Command::RequestSense { format, allocation: usize::from(cdb[4]) })
}

pub(in crate::scsi) fn inquiry(cdb: &[u8]) -> Parsed {
    let vital = cdb[1] & 1 != 0;
    if !vital && cdb[2] != 0 {
        return Err(Sense::in_cdb(2, None));
    }
    Ok(Command::Inquiry { page: vital.then_some(cdb[2]), allocation: usize::from(u16_at(cdb, 3)) })
}

pub(in crate::scsi) fn report_luns(cdb: &[u8]) -> Parsed {
    let select = SelectReport::from_code(cdb[2]).ok_or(Sense::in_cdb(2, None))?;
    Ok(Command::ReportLuns { select, allocation: allocation(cdb, 6) })
}

pub(in crate::scsi) fn mode_sense(cdb: &[u8]) -> Parsed {
    let (form, allocation) = match cdb.len() {
        6 => (ModeForm::Six, usize::from(cdb[4])),
        _ => (ModeForm::Ten, usize::from(u16_at(cdb, 7))),
    };
    let control = match cdb[2] >> 6 {
        0 => PageControl::Current,
        1 => PageControl::Changeable,
        2 => PageControl::Default,
        _ => PageControl::Saved,
    };
    Ok(Command::ModeSense(ModeSense {
        form,
        block_descriptor: cdb[1] & 1 << 3 == 0,
        long_lba: cdb[1] & 1 << 4 != 0,
        control,
        page: cdb[2] & 0x3F,
        subpage: cdb[3],
        allocation,
    }))
}

pub(in crate::scsi) fn mode_select(cdb: &[u8]) -> Parsed {
    const PAGE_FORMAT: u8 = 1 << 4;
    const SAVE_PAGES: u8 = 1 << 0;
    if cdb[1] & PAGE_FORMAT == 0 {
        return Err(Sense::in_cdb(1, Some(4)));
    }
    // Pages can't be saved.
    if cdb[1] & SAVE_PAGES != 0 {
        return Err(Sense::in_cdb(1, Some(0)));
    }
    let (form, length) = match cdb.len() {
        6 => (ModeForm::Six, u16::from(cdb[4])),
        _ => (ModeForm::Ten, u16_at(cdb, 7)),
    };
    Ok(Command::ModeSelect(ModeSelect { form, length }))
}

pub(in crate::scsi) fn read_capacity_10(_: &[u8]) -> Parsed {
    Ok(Command::ReadCapacity10)
}

pub(in crate::scsi) fn read_capacity_16(cdb: &[u8]) -> Parsed {
    Ok(Command::ReadCapacity16 { allocation: allocation(cdb, 10) })
}

pub(in crate::scsi) fn report_port_groups(cdb: &[u8]) -> Parsed {
    let extended = match cdb[1] >> 5 {
        0 => false,
        1 => true,
        _ => return Err(Sense::in_cdb(1, Some(7))),
    };
    Ok(Command::ReportPortGroups { extended, allocation: allocation(cdb, 6) })
}

pub(in crate::scsi) fn report_opcodes(cdb: &[u8]) -> Parsed {
    let options = ReportingOptions::from_code(cdb[2] & 7).ok_or(Sense::in_cdb(2, Some(2)))?;
    let request = OpcodesRequest {
        options,
        timeouts: cdb[2] & 1 << 7 != 0,
        code: cdb[3],
        service_action: u16_at(cdb, 4),
    };
    Ok(Command::ReportOpcodes { request, allocation: allocation(cdb, 6) })
}

pub(in crate::scsi) fn report_task_functions(cdb: &[u8]) -> Parsed {
    let allocation = allocation(cdb, 6);
    // The one command whose allocation length has a least value.
    if allocation < 4 {
        return Err(Sense::in_cdb(6, None));
    }
    Ok(Command::ReportTaskFunctions { extended: cdb[2] & 1 << 7 != 0, allocation })
}

pub(in crate::scsi) fn start_stop_unit(cdb: &[u8]) -> Parsed {
    const START: u8 = 1 << 0;
    // It is never stopped: what it would have to refuse then, other hosts need.
    if cdb[4] & START == 0 {
        return Err(Sense::in_cdb(4, Some(0)));
    }
    Ok(Command::StartUnit)
}

/// An allocation length of 32 bits.
pub(super) fn allocation(cdb: &[u8], at: usize) -> usize {
    usize::try_from(u32_at(cdb, at)).expect("an address has at least 32 bits")
}
