//! What NVMe's commands say about protection information, and what a controller makes of it: fields decoded from
//! submission queue entries and Copy descriptors, the decision of what moves and what is done to the tuples, and the
//! status that a failed check becomes.
//!
//! Knows no transport and moves no data. (NVM Command Set 3.2, 3.3.2 "Copy", 5.3 "End-to-end Data Protection".)
//!
//! ```
//! use t10pi::nvme::{Action, ExtendedFormats, Layout, Namespace, RwFields, decide};
//! use t10pi::{Format, Guard, PiType};
//!
//! let format = Format::new(Guard::Crc16, 4096, 8)?;
//! let namespace = Namespace::protected(format, PiType::Type1, Layout::Extended);
//! let mut sqe = [0; 64];
//! sqe[0] = 0x02; // Read
//! sqe[40] = 7; // of the block at 7,
//! sqe[51] = 0x34; // PRACT, PRCHK: guard and reference tag,
//! sqe[56] = 7; // which is to be 7
//!
//! let decision = decide(&namespace, &RwFields::parse(&sqe), ExtendedFormats::Disabled)?;
//! assert_eq!((decision.action, decision.data_bytes), (Action::CheckAndStrip, 4096));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod command;
mod copy;
mod namespace;
mod sqe;
mod status;

pub use command::{Action, Decision, decide};
pub use copy::{CopyAction, CopyFields, DescriptorFormat, PrInfo, SourceRange, decide_copy};
pub use namespace::{ExtendedFormats, Layout, Namespace};
pub use sqe::{Opcode, RwFields};
pub use status::Status;
