//! CDBs of commands on blocks. Fields of protection information are read by [`t10pi::scsi::Cdb`].

use t10pi::scsi::{ByteCheck, Cdb, Command as Kind};

use super::Command;
use super::control::allocation;
use crate::scsi::big_endian::{u16_at, u32_at, u64_at};
use crate::scsi::sense::{Sense, code};

/// A command on a range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockCommand {
    /// Kind, range, protection.
    pub fields: Cdb,
    /// FUA: durable before the command ends.
    pub fua: bool,
    /// UNMAP of WRITE SAME: blocks that become zero may be given back.
    pub unmap: bool,
    /// NDOB of WRITE SAME: the host sends no block, which stands for zeroes.
    pub no_data: bool,
    /// Where in the CDB the number of blocks stands.
    pub length_at: u16,
}

impl BlockCommand {
    /// Where in the CDB the PROTECT field stands, for a field pointer.
    #[must_use]
    pub const fn protect_at(&self) -> u16 {
        if self.fields.long.is_some() { 10 } else { 1 }
    }
}

type Parsed = Result<Command, Sense>;

/// READ, WRITE, WRITE AND VERIFY, VERIFY, WRITE SAME, COMPARE AND WRITE of every length.
pub(in crate::scsi) fn parse(cdb: &[u8]) -> Parsed {
    const UNMAP: u8 = 1 << 3;
    const FUA: u8 = 1 << 3;
    const NDOB: u8 = 1 << 0;
    let fields = Cdb::parse(cdb).ok_or(Sense::new(code::INVALID_COMMAND_OPERATION_CODE))?;
    let kind = fields.command;
    let (flags_at, length_at) = match cdb.len() {
        6 => (1, 4),
        10 => (1, 7),
        12 => (1, 6),
        16 if kind == Kind::CompareAndWrite => (1, 13),
        16 => (1, 10),
        _ => (10, 28),
    };
    // In the shortest CDB these bits are the address's.
    let flags = if cdb.len() == 6 { 0 } else { cdb[flags_at] };
    let compares_blocks = matches!(fields.byte_check, ByteCheck::None | ByteCheck::Blocks);
    let compares_one = kind == Kind::Verify && fields.byte_check == ByteCheck::OneBlock;
    if !compares_blocks && !compares_one {
        let flags_at = u16::try_from(flags_at).expect("CDBs are short");
        return Err(Sense::in_cdb(flags_at, Some(2)));
    }
    let same = kind == Kind::WriteSame;
    // Without a number of blocks it would go on to the last one, for however long (WSNZ of the block limits).
    if same && fields.blocks == 0 {
        return Err(Sense::in_cdb(length_at, None));
    }
    Ok(Command::Blocks(BlockCommand {
        fields,
        fua: matches!(kind, Kind::Read | Kind::Write | Kind::CompareAndWrite) && flags & FUA != 0,
        unmap: same && flags & UNMAP != 0,
        no_data: same && flags & NDOB != 0,
        length_at,
    }))
}

pub(in crate::scsi) fn synchronize_cache_10(cdb: &[u8]) -> Parsed {
    Ok(Command::SynchronizeCache { lba: u64::from(u32_at(cdb, 2)), blocks: u32::from(u16_at(cdb, 7)) })
}

pub(in crate::scsi) fn synchronize_cache_16(cdb: &[u8]) -> Parsed {
    Ok(Command::SynchronizeCache { lba: u64_at(cdb, 2), blocks: u32_at(cdb, 10) })
}

pub(in crate::scsi) fn prefetch_10(cdb: &[u8]) -> Parsed {
    Ok(Command::Prefetch { lba: u64::from(u32_at(cdb, 2)), blocks: u32::from(u16_at(cdb, 7)) })
}

pub(in crate::scsi) fn prefetch_16(cdb: &[u8]) -> Parsed {
    Ok(Command::Prefetch { lba: u64_at(cdb, 2), blocks: u32_at(cdb, 10) })
}

pub(in crate::scsi) fn lba_status(cdb: &[u8]) -> Parsed {
    Ok(Command::LbaStatus { lba: u64_at(cdb, 2), allocation: allocation(cdb, 10) })
}

pub(in crate::scsi) fn unmap(cdb: &[u8]) -> Parsed {
    Ok(Command::Unmap { length: u16_at(cdb, 7) })
}
