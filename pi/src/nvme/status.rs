//! Status codes that have to do with protection information. (NVM Command Set 5.3; Base, "Status Field".)

use std::fmt;

use crate::error::Field;

/// A status: the status code type in bits 10:8, the status code in bits 7:0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Status(u16);

impl Status {
    /// Invalid Field in Command.
    pub const INVALID_FIELD: Self = Self(0x002);
    /// Invalid Namespace or Format.
    pub const INVALID_NAMESPACE_OR_FORMAT: Self = Self(0x00B);
    /// Invalid Protection Information.
    pub const INVALID_PROTECTION_INFORMATION: Self = Self(0x181);
    /// Incompatible Namespace or Format (Copy).
    pub const INCOMPATIBLE_NAMESPACE_OR_FORMAT: Self = Self(0x185);
    /// End-to-end Guard Check Error.
    pub const GUARD_CHECK: Self = Self(0x282);
    /// End-to-end Application Tag Check Error.
    pub const APPLICATION_TAG_CHECK: Self = Self(0x283);
    /// End-to-end Reference Tag Check Error.
    pub const REFERENCE_TAG_CHECK: Self = Self(0x284);
    /// End-to-end Storage Tag Check Error.
    pub const STORAGE_TAG_CHECK: Self = Self(0x288);

    /// The code type and code, as in `0x282`.
    pub const fn code(self) -> u16 {
        self.0
    }
}

impl From<Field> for Status {
    /// The status of a command in which the check of this field failed.
    fn from(field: Field) -> Self {
        match field {
            Field::Guard => Self::GUARD_CHECK,
            Field::AppTag => Self::APPLICATION_TAG_CHECK,
            Field::StorageTag => Self::STORAGE_TAG_CHECK,
            Field::RefTag => Self::REFERENCE_TAG_CHECK,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            Self::INVALID_FIELD => "Invalid Field in Command",
            Self::INVALID_NAMESPACE_OR_FORMAT => "Invalid Namespace or Format",
            Self::INVALID_PROTECTION_INFORMATION => "Invalid Protection Information",
            Self::INCOMPATIBLE_NAMESPACE_OR_FORMAT => "Incompatible Namespace or Format",
            Self::GUARD_CHECK => "End-to-end Guard Check Error",
            Self::APPLICATION_TAG_CHECK => "End-to-end Application Tag Check Error",
            Self::REFERENCE_TAG_CHECK => "End-to-end Reference Tag Check Error",
            _ => "End-to-end Storage Tag Check Error",
        };
        write!(f, "{name} ({:#05x})", self.0)
    }
}

impl std::error::Error for Status {}
