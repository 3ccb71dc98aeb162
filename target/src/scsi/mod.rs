//! SCSI: what a target's logical units answer, without any transport.
//!
//! CDBs become values ([`cdb`]) by the one table of what is supported ([`opcodes`]); everything that goes wrong becomes
//! [`Sense`](sense::Sense). Nothing here has a socket, a clock or a thread, moves data, or listens. What protection fields of a
//! CDB mean is decided by [`t10pi::scsi`].
//!
//! SPC-4, SBC-4 and SAM-5, by their numbers.

mod big_endian;
pub mod cdb;
pub mod luns;
pub mod opcodes;
pub mod sense;
pub mod status;
