//! What a signature found (Linux `struct ib_mr_status`, `struct ib_sig_err`).

use t10pi::{Field, Format, PiMismatch};

use crate::remote::Rkey;

/// The outcome of one registration, or of one transfer checked in software.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum SigStatus {
    /// Every block passed.
    Clean,
    /// A block did not.
    Failed(SigErr),
}

/// The first check that failed: of the lowest block, and in it the first of guard, application, storage, reference tag. The
/// transfer was not cut short for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SigErr {
    /// The field (Linux `err_type`).
    pub field: Field,
    /// What was computed or given by the attributes, after masking.
    pub expected: u64,
    /// What the tuple holds, after masking.
    pub actual: u64,
    /// Where the block begins, in bytes of data and metadata interleaved; also where one side has no metadata.
    pub offset: u64,
    /// The key of the registration; 0 in software.
    pub key: Rkey,
}

impl SigStatus {
    /// The status of a transfer in blocks of `format`.
    pub(crate) fn of(format: &Format, key: Rkey, mismatch: Option<PiMismatch>) -> Self {
        let Some(PiMismatch { block, field, expected, actual }) = mismatch else { return Self::Clean };
        // Blocks are counted in a transfer of at most 2^31 bytes.
        let offset = block * format.interleaved_block_size() as u64;
        Self::Failed(SigErr { field, expected, actual, offset, key })
    }

    /// The mismatch as [`t10pi`] says it, of blocks of `format`.
    ///
    /// # Errors
    /// The mismatch.
    pub fn mismatch(self, format: &Format) -> Result<(), PiMismatch> {
        let Self::Failed(error) = self else { return Ok(()) };
        let SigErr { field, expected, actual, offset, .. } = error;
        Err(PiMismatch { block: offset / format.interleaved_block_size() as u64, field, expected, actual })
    }
}
