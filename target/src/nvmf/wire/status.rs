//! Completion status (base 3.3.3.2.1 and its figures; NVM 4.1.1 and 4.1.3; fabrics "Status Code" tables): a
//! status code type, a status code and the Do Not Retry bit.
//!
//! The constants carry DNR where sending the same command again cannot succeed. Comparison of what kind of
//! error it is goes by [`Status::code`], which leaves DNR out.

use std::fmt;

/// A completion status, as the CQE's status field without its phase bit: SC in 7:0, SCT in 10:8, DNR in 14.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(u16);

const DNR: u16 = 1 << 14;

macro_rules! statuses {
    ($($name:ident = $sct:literal $sc:literal $retry:ident $text:literal;)*) => {
        impl Status {
            $(
                #[doc = concat!("SCT ", $sct, " SC ", $sc, ": ", $text, ".")]
                pub const $name: Self = statuses!(@make $sct, $sc, $retry);
            )*

            /// What the code means, in words; `None` for a code this target never sends.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.code() {
                    $( c if c == Self::$name.code() => Some($text), )*
                    _ => None,
                }
            }
        }

        #[cfg(test)]
        const ALL: &[(Status, &str)] = &[$((Status::$name, $text)),*];
    };
    (@make $sct:literal, $sc:literal, retry) => { Self::new($sct, $sc) };
    (@make $sct:literal, $sc:literal, dnr) => { Self::new($sct, $sc).dnr() };
}

statuses! {
    SUCCESS = 0x0 0x00 retry "success";
    INVALID_OPCODE = 0x0 0x01 dnr "invalid opcode";
    INVALID_FIELD = 0x0 0x02 dnr "invalid field";
    COMMAND_ID_CONFLICT = 0x0 0x03 dnr "command id conflict";
    DATA_TRANSFER_ERROR = 0x0 0x04 retry "data transfer error";
    INTERNAL_ERROR = 0x0 0x06 retry "internal error";
    COMMAND_ABORT_REQUESTED = 0x0 0x07 dnr "command abort requested";
    ABORTED_SQ_DELETION = 0x0 0x08 retry "aborted due to queue deletion";
    INVALID_NAMESPACE_OR_FORMAT = 0x0 0x0b dnr "invalid namespace or format";
    COMMAND_SEQUENCE_ERROR = 0x0 0x0c dnr "command sequence error";
    INVALID_SGL_SEGMENT_DESCRIPTOR = 0x0 0x0d dnr "invalid sgl segment descriptor";
    INVALID_NUMBER_OF_SGL_DESCRIPTORS = 0x0 0x0e dnr "invalid number of sgl descriptors";
    SGL_DATA_LENGTH_INVALID = 0x0 0x0f dnr "data sgl length invalid";
    SGL_DESCRIPTOR_TYPE_INVALID = 0x0 0x11 dnr "sgl descriptor type invalid";
    SGL_OFFSET_INVALID = 0x0 0x16 dnr "sgl offset invalid";
    HOST_ID_INCONSISTENT = 0x0 0x18 dnr "host identifier inconsistent format";
    KEEP_ALIVE_EXPIRED = 0x0 0x19 dnr "keep alive timer expired";
    KEEP_ALIVE_TIMEOUT_INVALID = 0x0 0x1a dnr "keep alive timeout invalid";
    NAMESPACE_WRITE_PROTECTED = 0x0 0x20 dnr "namespace is write protected";
    TRANSIENT_TRANSPORT_ERROR = 0x0 0x22 retry "transient transport error";
    LBA_OUT_OF_RANGE = 0x0 0x80 dnr "lba out of range";
    CAPACITY_EXCEEDED = 0x0 0x81 dnr "capacity exceeded";
    NAMESPACE_NOT_READY = 0x0 0x82 retry "namespace not ready";
    ASYNC_EVENT_LIMIT_EXCEEDED = 0x1 0x05 dnr "asynchronous event request limit exceeded";
    INVALID_LOG_PAGE = 0x1 0x09 dnr "invalid log page";
    INVALID_FORMAT = 0x1 0x0a dnr "invalid format";
    FEATURE_ID_NOT_SAVEABLE = 0x1 0x0d dnr "feature identifier not saveable";
    FEATURE_NOT_CHANGEABLE = 0x1 0x0e dnr "feature not changeable";
    FEATURE_NOT_NAMESPACE_SPECIFIC = 0x1 0x0f dnr "feature not namespace specific";
    INVALID_CONTROLLER_IDENTIFIER = 0x1 0x1f dnr "invalid controller identifier";
    INVALID_IO_COMMAND_SET = 0x1 0x2c dnr "invalid i/o command set";
    CONNECT_INCOMPATIBLE_FORMAT = 0x1 0x80 dnr "connect incompatible format or conflicting attributes";
    CONNECT_CONTROLLER_BUSY = 0x1 0x81 retry "invalid protection information or controller busy";
    CONNECT_INVALID_PARAMETERS = 0x1 0x82 dnr "connect invalid parameters or attempted write to read only range";
    CONNECT_INVALID_HOST = 0x1 0x84 dnr "connect invalid host";
    WRITE_FAULT = 0x2 0x80 retry "write fault";
    UNRECOVERED_READ_ERROR = 0x2 0x81 retry "unrecovered read error";
    GUARD_CHECK_ERROR = 0x2 0x82 retry "guard check error";
    APP_TAG_CHECK_ERROR = 0x2 0x83 retry "application tag check error";
    REF_TAG_CHECK_ERROR = 0x2 0x84 retry "reference tag check error";
    COMPARE_FAILURE = 0x2 0x85 dnr "compare failure";
    ACCESS_DENIED = 0x2 0x86 dnr "access denied";
    DEALLOCATED_BLOCK = 0x2 0x87 dnr "deallocated or unwritten logical block";
    STORAGE_TAG_CHECK_ERROR = 0x2 0x88 retry "storage tag check error";
}

impl Status {
    /// SCT 1h SC 81h as an I/O command means it: invalid protection information. (The same code is "controller
    /// busy" when it answers Connect.)
    pub const INVALID_PROTECTION_INFORMATION: Self = Self::CONNECT_CONTROLLER_BUSY.dnr();
    /// SCT 1h SC 82h as an I/O command means it: attempted write to read only range. (The same code is "invalid
    /// parameters" when it answers Connect.)
    pub const WRITE_TO_READ_ONLY: Self = Self::CONNECT_INVALID_PARAMETERS;

    /// A status of type `sct` (0-7) and code `sc`, without DNR.
    #[must_use]
    pub const fn new(sct: u8, sc: u8) -> Self {
        Self(((sct as u16 & 7) << 8) | sc as u16)
    }

    /// The same status with Do Not Retry set.
    #[must_use]
    pub const fn dnr(self) -> Self {
        Self(self.0 | DNR)
    }

    /// The same status without Do Not Retry.
    #[must_use]
    pub const fn retryable(self) -> Self {
        Self(self.0 & !DNR)
    }

    /// Status Code Type, 0-7.
    #[must_use]
    pub const fn sct(self) -> u8 {
        ((self.0 >> 8) & 7) as u8
    }

    /// Status Code.
    #[must_use]
    pub const fn sc(self) -> u8 {
        (self.0 & 0xff) as u8
    }

    /// SCT in 10:8 and SC in 7:0: what kind of result it is, whether or not a retry makes sense.
    #[must_use]
    pub const fn code(self) -> u16 {
        self.0 & 0x7ff
    }

    /// Whether Do Not Retry is set.
    #[must_use]
    pub const fn is_dnr(self) -> bool {
        self.0 & DNR != 0
    }

    /// Whether the command succeeded.
    #[must_use]
    pub const fn is_success(self) -> bool {
        self.code() == 0
    }

    /// The CQE's status field; the phase bit is 0.
    #[must_use]
    pub const fn to_cqe(self) -> u16 {
        self.0 << 1
    }

    /// The status in a CQE's status field; the phase bit is ignored.
    #[must_use]
    pub const fn from_cqe(field: u16) -> Self {
        Self(field >> 1)
    }
}

impl From<t10pi::nvme::Status> for Status {
    /// What a decision about protection information, or a check of it, becomes: with DNR where trying again can't help.
    fn from(status: t10pi::nvme::Status) -> Self {
        match status {
            t10pi::nvme::Status::INVALID_FIELD => Self::INVALID_FIELD,
            t10pi::nvme::Status::INVALID_NAMESPACE_OR_FORMAT => Self::INVALID_NAMESPACE_OR_FORMAT,
            t10pi::nvme::Status::INVALID_PROTECTION_INFORMATION => Self::INVALID_PROTECTION_INFORMATION,
            // What remains are failed checks, which another try may pass.
            other => Self(other.code()),
        }
    }
}

impl fmt::Display for Status {
    /// For example `SCT 0x2 SC 0x82 (guard check error)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SCT {:#x} SC {:#04x} ({})", self.sct(), self.sc(), self.name().unwrap_or("unknown"))
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}{}", if self.is_dnr() { " dnr" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_form_that_scripts_read() {
        assert_eq!(Status::GUARD_CHECK_ERROR.to_string(), "SCT 0x2 SC 0x82 (guard check error)");
        assert_eq!(Status::SUCCESS.to_string(), "SCT 0x0 SC 0x00 (success)");
        assert_eq!(Status::new(3, 0x77).to_string(), "SCT 0x3 SC 0x77 (unknown)");
    }

    #[test]
    fn every_code_is_named_once_and_survives_the_cqe() {
        for (i, (status, text)) in ALL.iter().enumerate() {
            assert_eq!(status.name(), Some(*text));
            assert_eq!(Status::from_cqe(status.to_cqe()), *status);
            assert!(ALL[i + 1..].iter().all(|(other, _)| other.code() != status.code()), "{status}");
        }
    }

    #[test]
    fn codes_used_by_protection_have_the_specified_values() {
        assert_eq!(Status::INVALID_PROTECTION_INFORMATION.code(), 0x181);
        assert_eq!(Status::GUARD_CHECK_ERROR.code(), 0x282);
        assert_eq!(Status::APP_TAG_CHECK_ERROR.code(), 0x283);
        assert_eq!(Status::REF_TAG_CHECK_ERROR.code(), 0x284);
        assert_eq!(Status::COMPARE_FAILURE.code(), 0x285);
        assert_eq!(Status::STORAGE_TAG_CHECK_ERROR.code(), 0x288);
    }
}
