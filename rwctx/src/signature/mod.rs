//! Signatures: what protection information a transfer has in memory and on the wire, and what that makes of it.
//!
//! Attributes ([`SigAttrs`]) describe a *memory* and a *wire* domain, each without protection or T10-DIF. Validated once, with
//! the direction of the transfer, they become a [`Signature`]: insert, strip, verify or rewrite. The same code runs over whole
//! transfers in software ([`Signature::before_write`], [`Signature::after_read`]) and over the blocks of an integrity
//! registration as a device moves them ([`Signature::run`]); so results are the same. What was wrong first is a [`SigStatus`].
//!
//! Model and names are those of Linux `include/rdma/signature.h`, extended to what [`t10pi`] knows beyond 16-bit guards:
//! 32- and 64-bit guards, storage tags, metadata larger than the tuple.

mod attrs;
mod operation;
mod pieces;
mod software;
mod status;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

pub use attrs::{CopyMask, SigAttrs, SigDomain, SigError, T10Dif, check_mask, check_mask_bits};
pub use operation::{Operation, SigLayout, Signature};
pub(crate) use pieces::{Place, Shape, Span, cut};
pub use status::{SigErr, SigStatus};
