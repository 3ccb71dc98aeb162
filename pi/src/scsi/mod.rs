//! What SCSI's block commands say about protection information, and what a logical unit makes of it: CDB fields, the
//! tables of the PROTECT fields, FORMAT UNIT, WRITE SAME, and the sense data that refusals and failed checks become.
//!
//! Knows no transport and moves no data. Tuples are those of [`Guard::Crc16`](crate::Guard::Crc16) without storage tag.
//! (SBC-4 4.21, 5.16 "READ", 5.36 "VERIFY", 5.40 "WRITE", 5.4 "FORMAT UNIT"; SPC-6 7.7.7.)
//!
//! ```
//! use t10pi::PiType;
//! use t10pi::scsi::{Cdb, Control, Need, Request, decide};
//!
//! // READ (16), RDPROTECT 001b
//! let cdb = Cdb::parse(&[0x88, 0x20, 0, 0, 0, 0, 0, 0, 0, 99, 0, 0, 0, 8, 0, 0]).expect("a known command");
//! let control = Control { pi_type: Some(PiType::Type1), guard_check: true, ref_check: true, ..Control::default() };
//! let decision = decide(&control, &Request::new(&cdb))?;
//! assert!(decision.to_host, "eight tuples follow the data");
//! assert_eq!((decision.medium.guard, decision.medium.ref_tag), (Need::Shall, Need::Shall));
//! # Ok::<(), t10pi::scsi::Sense>(())
//! ```

mod cdb;
mod decide;
mod format_unit;
mod sense;
mod tuples;

pub use cdb::{ByteCheck, Cdb, Command, LongFields};
pub use decide::{Control, Decision, FieldNeeds, Need, Request, decide, refusals};
pub use format_unit::{SupportedTypes, format_unit, read_capacity_byte_12};
pub use sense::Sense;
pub use tuples::{FORMATTED_TUPLE, Interval, generate_context, interval, write_same};
