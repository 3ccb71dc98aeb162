//! What the device found, as the status of a signature.
//!
//! Pure. The device names one field of one block. Which, when several blocks or fields are wrong, is its own choice: the
//! documentation says the first block and guard before application tag before reference tag, the library looks for the
//! reference tag first. Software names the first by its own order, so both name a block and a field that are wrong, and the
//! same ones when there is only one. (rw-contexts 2.4, 2.6.5 `mkey_check`; pi 8)

use t10pi::{Field, Format, PiMismatch};

use super::attrs::SigBlock;
use super::ffi;
use crate::remote::Rkey;
use crate::signature::{SigLayout, SigStatus};

/// What a status is told in: the blocks of a registration.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    format: Format,
    count: u32,
    app_tag_mask: u16,
}

impl Blocks {
    pub(super) fn new(block: &SigBlock, layout: &SigLayout) -> Self {
        Self { format: *block.signature().format(), count: layout.blocks, app_tag_mask: block.app_tag_mask() }
    }

    /// The status that an error record stands for; `None` for one that these blocks can't have.
    pub(super) fn status(&self, err: &ffi::MkeyErr, key: Rkey) -> Option<SigStatus> {
        let app_tag = |value: u64| value >> 32 & u64::from(self.app_tag_mask);
        let (field, expected, actual) = match err.err_type {
            ffi::MKEY_NO_ERR => return Some(SigStatus::Clean),
            ffi::MKEY_SIG_BLOCK_BAD_GUARD => (Field::Guard, err.expected_value >> 48, err.actual_value >> 48),
            ffi::MKEY_SIG_BLOCK_BAD_APPTAG => {
                (Field::AppTag, app_tag(err.expected_value), app_tag(err.actual_value))
            }
            ffi::MKEY_SIG_BLOCK_BAD_REFTAG => {
                let low = u64::from(u32::MAX);
                (Field::RefTag, err.expected_value & low, err.actual_value & low)
            }
            _ => return None,
        };
        // Anywhere in the block: hardware was seen to name its last byte.
        let block = err.offset / self.format.interleaved_block_size() as u64;
        let mismatch = PiMismatch { block, field, expected, actual };
        (block < u64::from(self.count)).then(|| SigStatus::of(&self.format, key, Some(mismatch)))
    }
}

#[cfg(test)]
mod tests {
    use t10pi::Guard;

    use super::*;
    use crate::signature::SigErr;

    #[test]
    fn records_are_errors_of_blocks() {
        let format = Format::new(Guard::Crc16, 512, 8).unwrap();
        let blocks = Blocks { format, count: 3, app_tag_mask: 0xFF00 };
        let record = |err_type, offset| ffi::MkeyErr {
            err_type,
            actual_value: 0x1111_2222_3333_4444,
            expected_value: 0xAAAA_BBBB_CCCC_DDDD,
            offset,
        };
        let failed = |field, expected, actual, offset| {
            Some(SigStatus::Failed(SigErr { field, expected, actual, offset, key: Rkey(9) }))
        };
        let status = |err_type, offset| blocks.status(&record(err_type, offset), Rkey(9));
        assert_eq!(status(ffi::MKEY_NO_ERR, 77), Some(SigStatus::Clean));
        assert_eq!(status(ffi::MKEY_SIG_BLOCK_BAD_GUARD, 0), failed(Field::Guard, 0xAAAA, 0x1111, 0));
        assert_eq!(status(ffi::MKEY_SIG_BLOCK_BAD_APPTAG, 519), failed(Field::AppTag, 0xBB00, 0x2200, 0));
        assert_eq!(
            status(ffi::MKEY_SIG_BLOCK_BAD_REFTAG, 520),
            failed(Field::RefTag, 0xCCCC_DDDD, 0x3333_4444, 520)
        );
        assert!(status(ffi::MKEY_SIG_BLOCK_BAD_GUARD, 3 * 520 - 1).is_some());
        assert_eq!(status(ffi::MKEY_SIG_BLOCK_BAD_GUARD, 3 * 520), None, "there is no fourth block");
        assert_eq!(status(4, 0), None);
    }
}
