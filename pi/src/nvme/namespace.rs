//! What decisions need to know of a namespace.

use super::status::Status;
use crate::checks::PiType;
use crate::format::Format;

/// How metadata that is transferred lies beside its data (FLBAS bit 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// Each block is followed by its metadata, in one buffer.
    Extended,
    /// Metadata is in a buffer of its own (MPTR).
    Separate,
}

/// Whether the host has declared that it understands extended formats (Host Behavior Support, LBAFEE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExtendedFormats {
    /// It has.
    Enabled,
    /// It has not: I/O to a protected namespace with such a format is refused.
    Disabled,
}

/// A namespace's format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    block_size: u32,
    metadata_size: u32,
    layout: Layout,
    protection: Option<(Format, PiType)>,
}

impl Namespace {
    /// A namespace with protection information.
    pub const fn protected(format: Format, pi_type: PiType, layout: Layout) -> Self {
        Self {
            block_size: format.block_size(),
            metadata_size: format.metadata_size() as u32,
            layout,
            protection: Some((format, pi_type)),
        }
    }

    /// A namespace without (type 0). Its metadata, 0 or more bytes a block, is opaque.
    pub const fn plain(block_size: u32, metadata_size: u16, layout: Layout) -> Self {
        Self { block_size, metadata_size: metadata_size as u32, layout, protection: None }
    }

    /// Bytes of user data in a block.
    pub const fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Bytes of metadata of a block; 0 = none.
    pub const fn metadata_size(&self) -> u32 {
        self.metadata_size
    }

    /// How metadata is transferred.
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// The format and type of the protection.
    pub const fn protection(&self) -> Option<&(Format, PiType)> {
        self.protection.as_ref()
    }

    /// Whether the host may use the namespace at all: I/O commands on an extended format that it has not declared to
    /// understand are aborted, whether they carry protection information or not.
    ///
    /// # Errors
    /// `INVALID_NAMESPACE_OR_FORMAT`.
    pub fn check_consent(&self, extended_formats: ExtendedFormats) -> Result<(), Status> {
        match &self.protection {
            Some((format, _)) if format.is_extended() && extended_formats == ExtendedFormats::Disabled => {
                Err(Status::INVALID_NAMESPACE_OR_FORMAT)
            }
            _ => Ok(()),
        }
    }

    /// Whether all metadata is protection information.
    pub(super) fn is_tuple_only(&self) -> bool {
        self.protection.is_some_and(|(format, _)| self.metadata_size as usize == format.tuple_size())
    }
}
