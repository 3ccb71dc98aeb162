//! Block storage: volumes, what stores them, and the engine that moves data between them and a reactor's buffers.
//!
//! A [`Volume`] is a logical disk that namespaces and logical units present. Its backend is memory, a file or block
//! device, or nothing. An [`Engine`] belongs to one reactor and carries out [`Io`]s; the buffers are the reactor's
//! own ([`BufPool`]). The engine moves data and metadata, always as two buffers however the volume stores them, and
//! never checks or generates protection information.
//!
//! ```text
//! request --lock--> RangeGuard --Io--> Engine::submit --> memory: at once
//!    ^                                      |             file:   io_uring, Engine::poll
//!    +------------- IoDone (the Io, with its buffers and guard, and the result) <-+
//! ```
//!
//! Obligations of a backend, which the conformance suite checks for each:
//! - an [`Io`] owns its buffers and its guard until it is handed back, also on error and teardown;
//! - data and metadata of a block change together for whoever holds the range lock;
//! - blocks that nobody wrote, or that were deallocated, read as zero data with a tuple of all ones (NVM Command Set,
//!   deallocated or unwritten logical blocks);
//! - an error names the first block that failed; blocks of a failed write hold old data, new data or a mix;
//! - a completed [`IoOp::Flush`] makes durable what completed before it was submitted, `fua` what it belongs to.

mod engine;
#[cfg(feature = "_fault")]
pub mod fault;
mod file;
mod identity;
mod io;
mod locks;
mod memory;
mod metadata;
mod null;
mod number;
mod pending;
pub mod pi_file;
mod pool;
mod shared;
mod stop;
mod uring;
mod volume;

pub use engine::{Engine, EngineError};
pub use identity::{Identity, MAX_SERIAL};
pub use io::{Area, Io, IoDone, IoError, IoErrorKind, IoOp, Submit};
pub use locks::{Lock, Mode, RangeGuard, RangeLocks, RangeWait, Waker, WakerId};
pub use pending::{Cut, Pending};
pub use pi_file::{PI_FILE_HEADER, PI_HEADER_LEN, PiFileError, PiHeader, pi_path};
pub use pool::{Buf, BufPin, BufPool, PAGE, Promise};
pub use stop::Stop;
pub use uring::FileSetup;
pub use volume::{BackendConfig, BackendKind, Layout, Protection, Volume, VolumeConfig, VolumeError};

#[cfg(test)]
mod tests;
