//! T10 protection information (PI): generate, verify, insert, strip, split, join, remap and convert, over scattered
//! buffers.
//!
//! A *tuple* of 8 or 16 bytes protects one block of user data. It is big-endian, and lies in the first or the last
//! bytes of the block's metadata:
//!
//! ```text
//!            guard          app tag     storage tag | reference tag
//! Crc16, Ip  bytes 0..2     2..4        4..8    32 bits, storage tag 0 to 32 of them
//! Crc32c     bytes 0..4     4..6        6..16   80 bits, storage tag 16 to 64 of them
//! Crc64      bytes 0..8     8..10       10..16  48 bits, storage tag 0 to 48 of them
//! ```
//!
//! A [`Format`] says what the blocks look like; a [`PiContext`] adds the type, the checks and the tags of one command
//! and runs the operations. *Interleaved* (DIF) means each block is followed by its metadata in one stream,
//! *separate* (DIX) that metadata lies in a buffer of its own:
//!
//! ```
//! use t10pi::{Checks, Field, Format, Guard, PiContext, PiType, Tags};
//!
//! let format = Format::new(Guard::Crc16, 512, 8).expect("512 + 8 is a valid format");
//! let tags = Tags { app_tag: 0x1234, app_tag_mask: 0xFFFF, storage_tag: 0, ref_tag: 100 };
//! let pi = PiContext::new(&format, PiType::Type1, Checks::ALL, tags).expect("no storage tag to be too wide");
//!
//! let data = [0xA5; 1024];
//! let mut stream = [0; 1040];
//! pi.insert(&[&data], &mut [&mut stream]);
//! assert_eq!(stream[512..520], [0x9E, 0xC6, 0x12, 0x34, 0, 0, 0, 100]);
//!
//! stream[700] ^= 1;
//! let mismatch = pi.verify_interleaved(&[&stream]).unwrap_err();
//! assert_eq!((mismatch.block, mismatch.field), (1, Field::Guard));
//! ```
//!
//! | operation | from | to |
//! | --- | --- | --- |
//! | [`generate`](PiContext::generate), [`generate_interleaved`](PiContext::generate_interleaved) | data | tuples in space that is there |
//! | [`verify`](PiContext::verify), [`verify_interleaved`](PiContext::verify_interleaved) | both | the first mismatch |
//! | [`inspect`](PiContext::inspect), [`inspect_interleaved`](PiContext::inspect_interleaved) | both | all that is to be found, block by block |
//! | [`insert`](PiContext::insert) | data | an interleaved stream |
//! | [`strip`](PiContext::strip) | an interleaved stream | data, verified |
//! | [`split`](PiContext::split), [`join`](PiContext::join) | interleaved, separate | separate, interleaved; verified |
//! | [`pass`](PiContext::pass) | an interleaved stream | the same, verified, with the same or other tags |
//! | [`rewrite`](PiContext::rewrite) | separate | metadata with some fields made anew |
//! | [`remap`](PiContext::remap), [`remap_interleaved`](PiContext::remap_interleaved) | tuples | another numbering |
//! | [`convert`](PiContext::convert) | separate | another guard, verified |
//! | [`generate_zeroes`](PiContext::generate_zeroes), [`Format::fill_unwritten`], [`scsi::write_same`] | | metadata of blocks without data |
//!
//! All types (1, 2, 3), guards, positions and storage tag sizes are implemented for every operation. What a command may
//! ask for, what then moves and which status a mismatch becomes is decided by [`nvme`] and [`scsi`].

mod checks;
mod context;
mod convert;
mod copy;
pub mod crc;
mod error;
mod format;
mod generate;
mod insert;
pub mod nvme;
mod pass;
mod remap;
mod report;
mod rewrite;
pub mod scsi;
mod sgl;
mod strip;
mod unwritten;
mod verify;

pub use checks::{Checks, Escape, PiType, RefTags, Tags};
pub use context::PiContext;
pub use crc::{Ahead, Kernel, KernelError};
pub use error::{ContextError, Field, FormatError, PiMismatch};
pub use format::{CommandTags, Format, Guard, Position};
pub use pass::Outgoing;
pub use report::{BlockReport, Tuple};
pub use unwritten::{Fill, UnwrittenGuard};
