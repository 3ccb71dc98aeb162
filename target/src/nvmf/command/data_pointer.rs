//! SGL descriptor 1 as a value, and what an in-capsule descriptor may reach (base 4.1.2; RDMA transport, keyed forms).

use rwctx::remote::{RemoteAddr, RemoteSegment, Rkey};
use zerocopy::FromBytes;

use super::sgl_list::MAX_SGL_DESCRIPTORS;
use crate::nvmf::wire::sgl::{self, DataBlock, KeyedDataBlock, SGL_DESCRIPTOR_LEN};
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
    /// In the host's memory in several pieces: type 31h. Their descriptors are in the capsule behind the SQE, and read by
    /// [`super::SglList`].
    LastSegment {
        /// Bytes from there to the first descriptor.
        offset: u64,
        /// Bytes of all descriptors: a multiple of 16, not 0.
        length: u32,
    },
}

impl DataPointer {
    /// Reads SGL descriptor 1.
    ///
    /// # Errors
    /// `INVALID_FIELD` for a subtype that is not announced and for memory that wraps around the address space,
    /// `INVALID_SGL_SEGMENT_DESCRIPTOR` for a last segment of no whole descriptors, `INVALID_NUMBER_OF_SGL_DESCRIPTORS` for
    /// one of more than MSDBD says, `SGL_DESCRIPTOR_TYPE_INVALID` for any other type (other segments included: the
    /// transport has none).
    pub fn parse(descriptor: &[u8; 16]) -> Result<Self, Status> {
        match descriptor[15] {
            sgl::IN_CAPSULE => {
                let block = DataBlock::read_from_bytes(descriptor).expect("a descriptor has 16 bytes");
                Ok(match block.length.get() {
                    0 => Self::None,
                    length => Self::InCapsule { offset: block.addr.get(), length },
                })
            }
            sglid @ (sgl::KEYED | sgl::KEYED_INVALIDATE) => Ok(match keyed(descriptor)? {
                Some(segment) => Self::Keyed { segment, invalidate: sglid == sgl::KEYED_INVALIDATE },
                None => Self::None,
            }),
            sgl::LAST_SEGMENT_IN_CAPSULE => {
                let block = DataBlock::read_from_bytes(descriptor).expect("a descriptor has 16 bytes");
                let length = block.length.get();
                let bytes = usize::try_from(length).unwrap_or(usize::MAX);
                if bytes == 0 || !bytes.is_multiple_of(SGL_DESCRIPTOR_LEN) {
                    return Err(Status::INVALID_SGL_SEGMENT_DESCRIPTOR);
                }
                if bytes > MAX_SGL_DESCRIPTORS * SGL_DESCRIPTOR_LEN {
                    return Err(Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS);
                }
                Ok(Self::LastSegment { offset: block.addr.get(), length })
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
            Self::InCapsule { offset, length } | Self::LastSegment { offset, length } => {
                out[..8].copy_from_slice(&offset.to_le_bytes());
                out[8..12].copy_from_slice(&length.to_le_bytes());
                let data = matches!(self, Self::InCapsule { .. });
                out[15] = if data { sgl::IN_CAPSULE } else { sgl::LAST_SEGMENT_IN_CAPSULE };
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

    /// Bytes of data that it describes itself: none of those that a last segment's descriptors do.
    #[must_use]
    pub const fn length(&self) -> u32 {
        match self {
            Self::None | Self::LastSegment { .. } => 0,
            Self::InCapsule { length, .. } => *length,
            Self::Keyed { segment, .. } => segment.length,
        }
    }

    /// Whether RDMA moves the data.
    #[must_use]
    pub const fn is_in_host_memory(&self) -> bool {
        matches!(self, Self::Keyed { .. } | Self::LastSegment { .. })
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
    /// names, as data or as further descriptors.
    ///
    /// # Errors
    /// `SGL_OFFSET_INVALID` when it reaches past `max` (the capsule size that IOCCSZ announces); when it reaches past what
    /// was received `SGL_DATA_LENGTH_INVALID`, or `INVALID_SGL_SEGMENT_DESCRIPTOR` when it names descriptors.
    pub fn in_capsule_range(
        &self,
        received: usize,
        max: usize,
    ) -> Result<Option<std::ops::Range<usize>>, Status> {
        let (offset, length, not_received) = match *self {
            Self::InCapsule { offset, length } => (offset, length, Status::SGL_DATA_LENGTH_INVALID),
            Self::LastSegment { offset, length } => (offset, length, Status::INVALID_SGL_SEGMENT_DESCRIPTOR),
            Self::None | Self::Keyed { .. } => return Ok(None),
        };
        let end = offset.checked_add(u64::from(length)).ok_or(Status::SGL_OFFSET_INVALID)?;
        let (Ok(start), Ok(end)) = (usize::try_from(offset), usize::try_from(end)) else {
            return Err(Status::SGL_OFFSET_INVALID);
        };
        if end > max {
            return Err(Status::SGL_OFFSET_INVALID);
        }
        if end > received {
            return Err(not_received);
        }
        Ok(Some(start..end))
    }
}

/// The memory that a keyed descriptor names; none when it has no bytes.
pub(super) fn keyed(descriptor: &[u8; SGL_DESCRIPTOR_LEN]) -> Result<Option<RemoteSegment>, Status> {
    let block = KeyedDataBlock::read_from_bytes(descriptor).expect("a descriptor has 16 bytes");
    let [b0, b1, b2] = block.length;
    let length = u32::from_le_bytes([b0, b1, b2, 0]);
    if length == 0 {
        return Ok(None);
    }
    let at = RemoteAddr { addr: block.addr.get(), rkey: Rkey(block.key.get()) };
    at.checked_add(length.into()).ok_or(Status::INVALID_FIELD)?;
    Ok(Some(RemoteSegment { at, length }))
}

/// As [`io_data_pointer`] for admin and Fabrics commands, which have one descriptor. The low bits of `transfer` state the
/// direction: an opcode, or FCTYPE.
pub(super) fn data_pointer(sqe: &Sqe, transfer: u8) -> Result<DataPointer, Status> {
    match directed(sqe, transfer)? {
        DataPointer::LastSegment { .. } => Err(Status::SGL_DESCRIPTOR_TYPE_INVALID),
        dptr => Ok(dptr),
    }
}

/// Reads an I/O command's descriptor and checks it against the direction that the opcode's low bits state.
pub(super) fn io_data_pointer(sqe: &Sqe) -> Result<DataPointer, Status> {
    directed(sqe, sqe.opc)
}

fn directed(sqe: &Sqe, transfer: u8) -> Result<DataPointer, Status> {
    let dptr = DataPointer::parse(&sqe.dptr)?;
    match (transfer & 3, &dptr) {
        // Data behind the SQE can only flow to the controller.
        (0b10, DataPointer::InCapsule { .. }) => Err(Status::INVALID_FIELD),
        (
            0b00,
            DataPointer::InCapsule { .. } | DataPointer::Keyed { .. } | DataPointer::LastSegment { .. },
        ) => Err(Status::SGL_DATA_LENGTH_INVALID),
        _ => Ok(dptr),
    }
}
