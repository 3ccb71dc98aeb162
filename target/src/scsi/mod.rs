//! SCSI: what a target's logical units answer, without any transport.
//!
//! A CDB becomes a value ([`cdb`]) by the one table of what is supported ([`opcodes`]). A [`target::Target`] hands it to its
//! [`lun::Lun`], which answers, or says what is to be moved, flushed, given back, aborted or stored ([`lun::Action`]).
//! Everything that goes wrong becomes [`sense::Sense`]. Nothing here has a socket, a clock or a thread, moves data, or listens.
//! What protection fields of a CDB mean is decided by [`t10pi::scsi`].
//!
//! Sections of SPC-4, SBC-4 and SAM-5 are named by their titles, which stay the same while drafts renumber them.

mod big_endian;
pub mod capacity;
pub mod cdb;
pub(crate) mod failure;
pub mod inquiry;
pub mod lba_status;
pub mod lun;
pub mod luns;
pub mod medium;
pub mod mode;
pub mod nexus;
pub mod opcodes;
pub mod ports;
pub mod reservations;
pub mod sense;
pub mod shared;
pub mod status;
pub mod target;
pub mod transfer;
pub mod unit_attention;
pub mod unmap;
pub mod vpd;
