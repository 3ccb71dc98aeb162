//! A volume that keeps nothing: for measuring everything but storage.
//!
//! Owns what such a volume reads as (blocks that nobody ever wrote); drops what is written.

use super::metadata::Metadata;
use super::shared::Piece;

/// The backend of a null volume.
#[derive(Debug)]
pub(super) struct NullBackend {
    metadata: Option<Metadata>,
}

impl NullBackend {
    pub(super) fn new(metadata: Option<Metadata>) -> Self {
        Self { metadata }
    }

    /// Fills the buffers with blocks that nobody wrote.
    pub(super) fn read(&self, data: Option<&Piece<'_>>, md: Option<&Piece<'_>>) {
        if let Some(data) = data {
            data.fill(0);
        }
        if let (Some(shape), Some(md)) = (&self.metadata, md) {
            shape.fill_unwritten(md);
        }
    }
}
