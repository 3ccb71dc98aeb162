//! What can be wrong: with a format, with a transfer's description, and with the protection information of a block.

use std::fmt;

/// Why a format is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FormatError {
    /// A block has at least one byte.
    #[error("block size is zero")]
    BlockSize,
    /// The tuple does not fit into the metadata. Both in bytes.
    #[error("metadata of {metadata_size} bytes is smaller than its tuple of {tuple_size} bytes")]
    MetadataSize {
        /// Metadata of one block.
        metadata_size: u16,
        /// Tuple of the guard that was asked for.
        tuple_size: usize,
    },
    /// The guard does not allow a storage tag of this size.
    #[error("storage tag of {bits} bits, the guard allows {min} to {max}")]
    StorageTagBits {
        /// What was asked for.
        bits: u8,
        /// The smallest size.
        min: u8,
        /// The largest size.
        max: u8,
    },
    /// The mask has bits above the storage tag's width.
    #[error("storage tag mask {mask:#x} is wider than the tag of {bits} bits")]
    StorageTagMask {
        /// What was asked for.
        mask: u64,
        /// Width of the tag.
        bits: u8,
    },
}

/// Why a transfer's description is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// The storage tag does not fit into the format's field.
    #[error("storage tag {tag:#x} is wider than {bits} bits")]
    StorageTag {
        /// What was asked for.
        tag: u64,
        /// Width of the field.
        bits: u8,
    },
}

/// A field of the tuple, in the order in which the fields of one block are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// The checksum over the block.
    Guard,
    /// The application tag.
    AppTag,
    /// The storage tag.
    StorageTag,
    /// The reference tag.
    RefTag,
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Guard => "guard",
            Self::AppTag => "application tag",
            Self::StorageTag => "storage tag",
            Self::RefTag => "reference tag",
        })
    }
}

/// The first check that failed: the lowest block, and in it the first field in the order of [`Field`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} of block {block} is {actual:#x}, expected {expected:#x}")]
pub struct PiMismatch {
    /// Index of the block in the transfer.
    pub block: u64,
    /// The field.
    pub field: Field,
    /// What was computed or commanded, after masking.
    pub expected: u64,
    /// What the tuple holds, after masking.
    pub actual: u64,
}
