//! Sense data of what went wrong while blocks were moved: on the medium, or in the protection information. (SBC-4 "Error
//! reporting", "VERIFY", "COMPARE AND WRITE".)

use t10pi::scsi::Sense as PiSense;
use t10pi::{Field, PiMismatch};

use super::sense::{Sense, SenseCode, code};
use super::transfer::Transfer;
use crate::block::{IoError, IoErrorKind};

impl Transfer {
    /// The medium failed, in `error`'s block.
    #[must_use]
    pub fn medium_failed(&self, error: &IoError) -> Sense {
        of_medium(self.work.writes(), error)
    }

    /// A tuple, of the medium or of the host, failed its check.
    #[must_use]
    pub fn check_failed(&self, mismatch: &PiMismatch) -> Sense {
        self.at_block(PiSense::check_failed(mismatch.field), mismatch.block)
    }

    /// Field `field` of the host's tuple of block `block`, counted from the transfer's first, differs from the medium's.
    #[must_use]
    pub fn tuple_differs(&self, field: Field, block: u64) -> Sense {
        self.at_block(PiSense::miscompare(field), block)
    }

    /// User data differ, first at byte `offset` of the host's.
    #[must_use]
    pub fn data_differ(&self, offset: u64) -> Sense {
        Sense::at(code::MISCOMPARE_DURING_VERIFY_OPERATION, offset)
    }

    /// About a field of protection information; the storage tag is none of SCSI's.
    fn at_block(&self, code: Option<SenseCode>, block: u64) -> Sense {
        let code = code.expect("a medium of SCSI has no storage tag");
        Sense::at(code, self.lba.saturating_add(block))
    }
}

/// What a failed operation on the medium means for the command that asked for it, one that `writes` or not.
pub(crate) fn of_medium(writes: bool, error: &IoError) -> Sense {
    let code = match error.kind {
        IoErrorKind::Media if writes => code::WRITE_ERROR,
        IoErrorKind::Media => code::UNRECOVERED_READ_ERROR,
        IoErrorKind::NoSpace => code::SPACE_ALLOCATION_FAILED_WRITE_PROTECT,
        IoErrorKind::ReadOnly => code::WRITE_PROTECTED,
        IoErrorKind::OutOfRange => code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE,
        IoErrorKind::Timeout => code::LOGICAL_UNIT_COMMUNICATION_TIME_OUT,
        IoErrorKind::Internal => code::INTERNAL_TARGET_FAILURE,
    };
    Sense::at(code, error.lba)
}

#[cfg(test)]
mod tests {
    use t10pi::Checks;

    use super::*;
    use crate::block::Area;
    use crate::scsi::transfer::{Protection, Tuples, Work};

    fn transfer(work: Work) -> Transfer {
        let protection = Protection { tuples: Tuples::None, to_host: false, compare: Checks::NONE };
        Transfer { work, lba: 100, blocks: 8, durable: false, to_host: 0, from_host: 0, protection }
    }

    #[test]
    fn a_medium_that_fails_is_told_with_the_block() {
        for (kind, work, expected) in [
            (IoErrorKind::Media, Work::Read, (0x3, 0x11, 0x00)),
            (IoErrorKind::Media, Work::Verify, (0x3, 0x11, 0x00)),
            (IoErrorKind::Media, Work::Write, (0x3, 0x0C, 0x00)),
            (IoErrorKind::NoSpace, Work::Write, (0x7, 0x27, 0x07)),
            (IoErrorKind::ReadOnly, Work::Write, (0x7, 0x27, 0x00)),
            (IoErrorKind::OutOfRange, Work::Read, (0x5, 0x21, 0x00)),
            (IoErrorKind::Timeout, Work::Read, (0xB, 0x08, 0x01)),
            (IoErrorKind::Internal, Work::Write, (0x4, 0x44, 0x00)),
        ] {
            let error = IoError { kind, lba: 103, area: Area::Data, errno: 0 };
            let sense = transfer(work).medium_failed(&error);
            assert_eq!((sense.code.key, sense.code.asc, sense.code.ascq), expected, "{kind:?}");
            assert_eq!(sense.information, Some(103));
        }
    }

    #[test]
    fn tuples_and_data_are_told_with_the_block_and_the_byte() {
        let transfer = transfer(Work::CompareBlocks);
        for (field, ascq) in [(Field::Guard, 1), (Field::AppTag, 2), (Field::RefTag, 3)] {
            let failed = transfer.check_failed(&PiMismatch { block: 3, field, expected: 1, actual: 2 });
            let differs = transfer.tuple_differs(field, 4);
            assert_eq!(failed, Sense::at(SenseCode { key: 0xB, asc: 0x10, ascq }, 103));
            assert_eq!(differs, Sense::at(SenseCode { key: 0xE, asc: 0x10, ascq }, 104));
        }
        let data = transfer.data_differ(4097);
        assert_eq!(data, Sense::at(SenseCode { key: 0xE, asc: 0x1D, ascq: 0 }, 4097));
    }
}
