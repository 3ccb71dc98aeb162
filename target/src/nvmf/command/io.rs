//! I/O commands of the NVM Command Set (NVM 3).

use super::data_pointer::io_data_pointer;
use super::{DataPointer, Direction, PiFields, byte, halves};
use crate::nvmf::wire::sqe::{PSDT_SGL, Sqe, io_opcode, rw_bits};
use crate::nvmf::wire::status::Status;

/// An I/O command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoCommand {
    /// Command Identifier.
    pub cid: u16,
    /// Opcode as sent, for logs.
    pub opcode: u8,
    /// Namespace Identifier.
    pub nsid: u32,
    /// What to do.
    pub op: IoOp,
    /// Where its data is.
    pub dptr: DataPointer,
}

/// The I/O commands this target carries out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoOp {
    /// Flush.
    Flush,
    /// Read.
    Read(BlockRange),
    /// Write.
    Write(BlockRange),
    /// Compare.
    Compare(BlockRange),
    /// Verify.
    Verify(BlockRange),
    /// Write Zeroes.
    WriteZeroes {
        /// Blocks.
        range: BlockRange,
        /// Deallocate.
        deallocate: bool,
    },
    /// Dataset Management.
    DatasetManagement {
        /// Ranges in the data, 1 to 256.
        ranges: u16,
        /// Attribute - Deallocate; the other attributes are hints.
        deallocate: bool,
    },
}

/// The block range of a command and what its CDW12 and tags say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRange {
    /// Starting LBA.
    pub slba: u64,
    /// Blocks, 1 to 65536.
    pub blocks: u32,
    /// Force Unit Access.
    pub fua: bool,
    /// Limited Retry.
    pub limited_retry: bool,
    /// Protection fields, decoded as far as the namespace's format is not needed.
    pub pi: PiFields,
}

impl IoOp {
    /// Direction of the command's data.
    #[must_use]
    pub const fn direction(&self) -> Direction {
        match self {
            Self::Read(_) => Direction::ToHost,
            Self::Write(_) | Self::Compare(_) | Self::DatasetManagement { .. } => Direction::FromHost,
            Self::Flush | Self::Verify(_) | Self::WriteZeroes { .. } => Direction::None,
        }
    }

    /// The block range, of commands that have one.
    #[must_use]
    pub const fn range(&self) -> Option<&BlockRange> {
        match self {
            Self::Read(r) | Self::Write(r) | Self::Compare(r) | Self::Verify(r) => Some(r),
            Self::WriteZeroes { range, .. } => Some(range),
            Self::Flush | Self::DatasetManagement { .. } => None,
        }
    }
}

impl IoCommand {
    pub(super) fn parse(sqe: &Sqe) -> Result<Self, Status> {
        if !matches!(
            sqe.opc,
            io_opcode::FLUSH
                | io_opcode::WRITE
                | io_opcode::READ
                | io_opcode::COMPARE
                | io_opcode::WRITE_ZEROES
                | io_opcode::DATASET_MANAGEMENT
                | io_opcode::VERIFY
        ) {
            return Err(Status::INVALID_OPCODE);
        }
        let dptr = io_data_pointer(sqe)?;
        let op = match sqe.opc {
            io_opcode::FLUSH => IoOp::Flush,
            io_opcode::WRITE => {
                // Directives are not supported, so a directive type is not ours to ignore.
                if sqe.cdw12.get() & rw_bits::DTYPE != 0 {
                    return Err(Status::INVALID_FIELD);
                }
                IoOp::Write(block_range(sqe)?)
            }
            io_opcode::READ => IoOp::Read(block_range(sqe)?),
            io_opcode::COMPARE => IoOp::Compare(block_range(sqe)?),
            io_opcode::VERIFY => IoOp::Verify(block_range(sqe)?),
            io_opcode::WRITE_ZEROES => {
                if sqe.cdw12.get() & rw_bits::NSZ != 0 {
                    return Err(Status::INVALID_FIELD);
                }
                IoOp::WriteZeroes {
                    range: block_range(sqe)?,
                    deallocate: sqe.cdw12.get() & rw_bits::DEAC != 0,
                }
            }
            _ => IoOp::DatasetManagement {
                ranges: u16::from(byte(sqe.cdw10.get(), 0)) + 1,
                deallocate: sqe.cdw11.get() & 1 << 2 != 0,
            },
        };
        Ok(Self { cid: sqe.cid.get(), opcode: sqe.opc, nsid: sqe.nsid.get(), op, dptr })
    }

    /// The submission queue entry that says this: what a host sends.
    #[must_use]
    pub fn emit(&self) -> Sqe {
        let mut sqe = Sqe {
            flags: PSDT_SGL,
            cid: self.cid.into(),
            nsid: self.nsid.into(),
            dptr: self.dptr.emit(),
            ..Sqe::default()
        };
        let mut cdw12 = 0;
        sqe.opc = match &self.op {
            IoOp::Flush => io_opcode::FLUSH,
            IoOp::Read(_) => io_opcode::READ,
            IoOp::Write(_) => io_opcode::WRITE,
            IoOp::Compare(_) => io_opcode::COMPARE,
            IoOp::Verify(_) => io_opcode::VERIFY,
            IoOp::WriteZeroes { deallocate, .. } => {
                cdw12 |= if *deallocate { rw_bits::DEAC } else { 0 };
                io_opcode::WRITE_ZEROES
            }
            IoOp::DatasetManagement { ranges, deallocate } => {
                sqe.cdw10 = u32::from(ranges.saturating_sub(1) & 0xff).into();
                sqe.cdw11 = (u32::from(*deallocate) << 2).into();
                io_opcode::DATASET_MANAGEMENT
            }
        };
        if let Some(range) = self.op.range() {
            let [low, high] = halves(range.slba);
            sqe.cdw10 = low.into();
            sqe.cdw11 = high.into();
            cdw12 |= range.blocks.saturating_sub(1) & rw_bits::NLB;
            cdw12 |= if range.fua { rw_bits::FUA } else { 0 };
            cdw12 |= if range.limited_retry { rw_bits::LR } else { 0 };
            range.pi.emit(&mut sqe, cdw12);
        }
        sqe
    }
}

fn block_range(sqe: &Sqe) -> Result<BlockRange, Status> {
    let cdw12 = sqe.cdw12.get();
    if cdw12 & rw_bits::CETYPE != 0 {
        return Err(Status::INVALID_FIELD);
    }
    Ok(BlockRange {
        slba: u64::from(sqe.cdw11.get()) << 32 | u64::from(sqe.cdw10.get()),
        blocks: (cdw12 & rw_bits::NLB) + 1,
        fua: cdw12 & rw_bits::FUA != 0,
        limited_retry: cdw12 & rw_bits::LR != 0,
        pi: PiFields::parse(sqe),
    })
}
