//! Signatures by ConnectX: protection information that the NIC inserts, strips, checks and passes as it moves data.
//!
//! [`Library`] is libmlx5, loaded when it is asked for and never linked. [`SigCaps`] says which of our formats a device knows, and
//! why it does not know the others, which are for software. [`SigBlock`] is a signature as the device takes it; a [`SigQueue`] owns
//! the keys of a queue pair, a [`Batch`] posts registrations and the transfers that use them, [`SigQueue::check`] says what was
//! found.
//!
//! An [`Offload`] makes integrity regions of all that: the verbs device has one where the NIC and the library have signatures. No
//! such NIC was there to try it on. Tests run it against functions of their own behind the same
//! binary interface, which demand the documented order of calls and move data in memory as the documentation has it. (rw-contexts
//! 2.6; pi 8)

mod attrs;
mod batch;
mod calls;
mod caps;
pub mod ffi;
mod library;
mod mkey;
mod offload;
mod queue;
mod size;
mod status;
#[cfg(test)]
mod tests;

pub use attrs::{SigBlock, SigBlockError};
pub use batch::{Batch, Memory, Piece};
pub use calls::{KeyKind, RawQueue};
pub use caps::{Checksum, SigCaps, Unsupported};
pub use library::{Library, LoadError};
pub use mkey::KeyState;
pub use offload::{ENTRIES, INLINE_DATA, Offload, Posted, WRS_PER_WR};
pub use queue::{MkeyError, MkeyId, SigQueue, SpareKey};
pub use size::{QueueSize, SEPARATE_ENTRIES, WRS_PER_REGISTRATION, inline_data};
