//! SGL descriptor 1 as a value, and what an in-capsule descriptor may reach (base 4.1.2; RDMA transport, keyed forms).

use rwctx::remote::{RemoteAddr, RemoteSegment, Rkey};
use zerocopy::FromBytes;

use crate::nvmf::wire::sgl::{self, DataBlock, KeyedDataBlock};
use crate::nvmf::wire::sqe::Sqe;
use crate::nvmf::wire::status::Status;

/// Where a command's data is (SGL descriptor 1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataPointer {
    /// No data: a descriptor of length 0.
    #[default]
    None,
    /// In the capsule behind the SQE: type 01h.
    InCapsule {
        /// Bytes from the start of the in-capsule data.
        offset: u64,
        /// Bytes; not 0.
        length: u32,
    },
    /// In the host's memory: types 40h and 4Fh.
    Keyed {
        /// Address, key and length (1 to 2^24 - 1 bytes).
        segment: RemoteSegment,
        /// The response is to invalidate the key (4Fh).
        invalidate: bool,
    },
}

impl DataPointer {
    /// Reads SGL descriptor 1.
    ///
    /// # Errors
    /// `INVALID_FIELD` for a subtype that is not announced and for memory that wraps around the address space,
    /// `SGL_DESCRIPTOR_TYPE_INVALID` for any other type (segments included: one descriptor a command, as MSDBD says).
    pub fn parse(descriptor: &[u8; 16]) -> Result<Self, Status> {
        match descriptor[15] {
            sgl::IN_CAPSULE => {
                let block = DataBlock::read_from_bytes(descriptor).expect("a descriptor has 16 bytes");
                Ok(match block.length.get() {
                    0 => Self::None,
                    length => Self::InCapsule { offset: block.addr.get(), length },
                })
            }
            sglid @ (sgl::KEYED | sgl::KEYED_INVALIDATE) => {
                let block = KeyedDataBlock::read_from_bytes(descriptor).expect("a descriptor has 16 bytes");
                let [b0, b1, b2] = block.length;
                let length = u32::from_le_bytes([b0, b1, b2, 0]);
                if length == 0 {
                    return Ok(Self::None);
                }
                let at = RemoteAddr { addr: block.addr.get(), rkey: Rkey(block.key.get()) };
                if at.addr.checked_add(length.into()).is_none() {
                    return Err(Status::INVALID_FIELD);
                }
                Ok(Self::Keyed {
                    segment: RemoteSegment { at, length },
                    invalidate: sglid == sgl::KEYED_INVALIDATE,
                })
            }
            // A host that moves no data may leave the descriptor zero.
            0 if *descriptor == [0; 16] => Ok(Self::None),
            other if matches!(other >> 4, 0x0 | 0x4) => Err(Status::INVALID_FIELD),
            _ => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID),
        }
    }

    /// The descriptor that says this: what a host puts into DPTR.
    #[must_use]
    pub fn emit(&self) -> [u8; 16] {
        let mut out = [0; 16];
        match *self {
            Self::None => out[15] = sgl::KEYED,
            Self::InCapsule { offset, length } => {
                out[..8].copy_from_slice(&offset.to_le_bytes());
                out[8..12].copy_from_slice(&length.to_le_bytes());
                out[15] = sgl::IN_CAPSULE;
            }
            Self::Keyed { segment, invalidate } => {
                out[..8].copy_from_slice(&segment.at.addr.to_le_bytes());
                out[8..11].copy_from_slice(&segment.length.to_le_bytes()[..3]);
                out[11..15].copy_from_slice(&segment.at.rkey.0.to_le_bytes());
                out[15] = if invalidate { sgl::KEYED_INVALIDATE } else { sgl::KEYED };
            }
        }
        out
    }

    /// Bytes it describes.
    #[must_use]
    pub const fn length(&self) -> u32 {
        match self {
            Self::None => 0,
            Self::InCapsule { length, .. } => *length,
            Self::Keyed { segment, .. } => segment.length,
        }
    }

    /// The key that the response must invalidate, if any.
    #[must_use]
    pub const fn invalidate_rkey(&self) -> Option<Rkey> {
        match self {
            Self::Keyed { segment, invalidate: true } => Some(segment.at.rkey),
            _ => None,
        }
    }

    /// The part of a capsule's `in_capsule` data (what was received behind the SQE) that an in-capsule descriptor
    /// names.
    ///
    /// # Errors
    /// `SGL_OFFSET_INVALID` when it reaches past `max` (the capsule size that IOCCSZ announces),
    /// `SGL_DATA_LENGTH_INVALID` when it reaches past what was received.
    pub fn in_capsule_range(
        &self,
        received: usize,
        max: usize,
    ) -> Result<Option<std::ops::Range<usize>>, Status> {
        let Self::InCapsule { offset, length } = *self else { return Ok(None) };
        let end = offset.checked_add(u64::from(length)).ok_or(Status::SGL_OFFSET_INVALID)?;
        let (Ok(start), Ok(end)) = (usize::try_from(offset), usize::try_from(end)) else {
            return Err(Status::SGL_OFFSET_INVALID);
        };
        if end > max {
            return Err(Status::SGL_OFFSET_INVALID);
        }
        if end > received {
            return Err(Status::SGL_DATA_LENGTH_INVALID);
        }
        Ok(Some(start..end))
    }
}

/// Reads the descriptor and checks it against the direction that the opcode's low bits (or FCTYPE's) state.
pub(super) fn data_pointer(sqe: &Sqe, transfer: u8) -> Result<DataPointer, Status> {
    let dptr = DataPointer::parse(&sqe.dptr)?;
    match (transfer & 3, &dptr) {
        // Data behind the SQE can only flow to the controller.
        (0b10, DataPointer::InCapsule { .. }) => Err(Status::INVALID_FIELD),
        (0b00, DataPointer::InCapsule { .. } | DataPointer::Keyed { .. }) => {
            Err(Status::SGL_DATA_LENGTH_INVALID)
        }
        _ => Ok(dptr),
    }
}
