//! Who runs the signatures of transfers: the device while it moves data, or software before and after, and why.

use std::sync::Arc;

use thiserror::Error;

/// Why software runs a signature instead of the device. Its text goes on after "in software: ".
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoOffload {
    /// The device has no integrity registrations.
    #[error("the device has no signature offload")]
    Device,
    /// Blocks with so many bytes of data are outside of what the device checks.
    #[error("the device checks blocks of {least} to {most} bytes, these have {block}")]
    BlockSize {
        /// Bytes of data in a block.
        block: u32,
        /// The smallest that it checks.
        least: u32,
        /// The largest.
        most: u32,
    },
    /// The device's signatures can't be used, for the reason that is given.
    #[error("{0}")]
    Unavailable(Arc<str>),
    /// The device says what it does not know of the signature.
    #[cfg(feature = "mlx5")]
    #[error(transparent)]
    Mlx5(#[from] super::mlx5::Unsupported),
    /// Metadata of more bytes than a block has data.
    #[error("the device has no blocks of {block} bytes with {metadata} of metadata")]
    Metadata {
        /// Bytes of data in a block.
        block: u32,
        /// Bytes of metadata.
        metadata: u16,
    },
    /// Nobody can run it: its attributes contradict each other.
    #[error(transparent)]
    Invalid(#[from] crate::signature::SigError),
}
