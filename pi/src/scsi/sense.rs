//! Sense data that has to do with protection information. (SBC-4 4.21, SPC-6 4.4.)

use std::fmt;

use crate::error::Field;

/// Sense key, additional sense code and its qualifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sense {
    /// Sense key.
    pub key: u8,
    /// Additional sense code.
    pub asc: u8,
    /// Its qualifier.
    pub ascq: u8,
}

impl Sense {
    /// ILLEGAL REQUEST, INVALID COMMAND OPERATION CODE.
    pub const INVALID_OPERATION_CODE: Self = Self::new(0x5, 0x20, 0x00);
    /// ILLEGAL REQUEST, INVALID FIELD IN CDB.
    pub const INVALID_FIELD_IN_CDB: Self = Self::new(0x5, 0x24, 0x00);
    /// ILLEGAL REQUEST, INVALID FIELD IN PARAMETER LIST.
    pub const INVALID_FIELD_IN_PARAMETER_LIST: Self = Self::new(0x5, 0x26, 0x00);
    /// MISCOMPARE, MISCOMPARE DURING VERIFY OPERATION: user data differ.
    pub const MISCOMPARE: Self = Self::new(0xE, 0x1D, 0x00);

    const fn new(key: u8, asc: u8, ascq: u8) -> Self {
        Self { key, asc, ascq }
    }

    /// ABORTED COMMAND: the check of this field failed. `None` for the storage tag, which SCSI has not.
    pub const fn check_failed(field: Field) -> Option<Self> {
        match field {
            Field::Guard => Some(Self::new(0xB, 0x10, 0x01)),
            Field::AppTag => Some(Self::new(0xB, 0x10, 0x02)),
            Field::RefTag => Some(Self::new(0xB, 0x10, 0x03)),
            Field::StorageTag => None,
        }
    }

    /// MISCOMPARE: this field of the host's tuple differs from the medium's. `None` for the storage tag.
    pub const fn miscompare(field: Field) -> Option<Self> {
        match Self::check_failed(field) {
            Some(sense) => Some(Self { key: 0xE, ..sense }),
            None => None,
        }
    }
}

impl fmt::Display for Sense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sense {:X}h/{:02X}h/{:02X}h", self.key, self.asc, self.ascq)
    }
}

impl std::error::Error for Sense {}
