//! The sense keys and additional sense codes that this target gives, by their names in the standards. (SPC-4
//! "Sense data"; the codes of protection information are [`t10pi::scsi::Sense`]'s.)

pub use t10pi::scsi::Sense as SenseCode;

/// Sense keys.
pub mod key {
    /// NO SENSE
    pub const NO_SENSE: u8 = 0x0;
    /// MEDIUM ERROR
    pub const MEDIUM_ERROR: u8 = 0x3;
    /// HARDWARE ERROR
    pub const HARDWARE_ERROR: u8 = 0x4;
    /// ILLEGAL REQUEST
    pub const ILLEGAL_REQUEST: u8 = 0x5;
    /// UNIT ATTENTION
    pub const UNIT_ATTENTION: u8 = 0x6;
    /// DATA PROTECT
    pub const DATA_PROTECT: u8 = 0x7;
    /// ABORTED COMMAND
    pub const ABORTED_COMMAND: u8 = 0xB;
}

const fn code(key: u8, asc: u8, ascq: u8) -> SenseCode {
    SenseCode { key, asc, ascq }
}

/// Nothing to say.
pub const NO_ADDITIONAL_SENSE: SenseCode = code(key::NO_SENSE, 0x00, 0x00);

/// The medium did not take a block.
pub const WRITE_ERROR: SenseCode = code(key::MEDIUM_ERROR, 0x0C, 0x00);
/// The medium did not give a block.
pub const UNRECOVERED_READ_ERROR: SenseCode = code(key::MEDIUM_ERROR, 0x11, 0x00);
/// No room for a block of a thinly provisioned unit.
pub const SPACE_ALLOCATION_FAILED_WRITE_PROTECT: SenseCode = code(key::DATA_PROTECT, 0x27, 0x07);
/// The storage did not answer in time.
pub const LOGICAL_UNIT_COMMUNICATION_TIME_OUT: SenseCode = code(key::ABORTED_COMMAND, 0x08, 0x01);
/// The target itself failed.
pub const INTERNAL_TARGET_FAILURE: SenseCode = code(key::HARDWARE_ERROR, 0x44, 0x00);

/// A list of parameters of a length that can't be.
pub const PARAMETER_LIST_LENGTH_ERROR: SenseCode = code(key::ILLEGAL_REQUEST, 0x1A, 0x00);
/// An operation code that is not supported.
pub const INVALID_COMMAND_OPERATION_CODE: SenseCode = SenseCode::INVALID_OPERATION_CODE;
/// A block behind the last one.
pub const LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE: SenseCode = code(key::ILLEGAL_REQUEST, 0x21, 0x00);
/// A field of the CDB.
pub const INVALID_FIELD_IN_CDB: SenseCode = SenseCode::INVALID_FIELD_IN_CDB;
/// A logical unit number that has no unit.
pub const LOGICAL_UNIT_NOT_SUPPORTED: SenseCode = code(key::ILLEGAL_REQUEST, 0x25, 0x00);
/// A field of a list of parameters.
pub const INVALID_FIELD_IN_PARAMETER_LIST: SenseCode = SenseCode::INVALID_FIELD_IN_PARAMETER_LIST;
/// A release with another type or scope than the reservation's.
pub const INVALID_RELEASE_OF_PERSISTENT_RESERVATION: SenseCode = code(key::ILLEGAL_REQUEST, 0x26, 0x04);
/// Mode pages can't be saved.
pub const SAVING_PARAMETERS_NOT_SUPPORTED: SenseCode = code(key::ILLEGAL_REQUEST, 0x39, 0x00);
/// No room for another registration.
pub const INSUFFICIENT_REGISTRATION_RESOURCES: SenseCode = code(key::ILLEGAL_REQUEST, 0x55, 0x04);

/// The volume can't be written.
pub const WRITE_PROTECTED: SenseCode = code(key::DATA_PROTECT, 0x27, 0x00);
/// The control mode page says that the unit can't be written (SWP).
pub const LOGICAL_UNIT_SOFTWARE_WRITE_PROTECTED: SenseCode = code(key::DATA_PROTECT, 0x27, 0x02);

/// User data differ.
pub const MISCOMPARE_DURING_VERIFY_OPERATION: SenseCode = SenseCode::MISCOMPARE;

/// The nexus is new, or the unit is.
pub const POWER_ON_RESET_OR_BUS_DEVICE_RESET_OCCURRED: SenseCode = code(key::UNIT_ATTENTION, 0x29, 0x00);
/// The unit was reset.
pub const BUS_DEVICE_RESET_FUNCTION_OCCURRED: SenseCode = code(key::UNIT_ATTENTION, 0x29, 0x03);
/// The nexus was lost.
pub const I_T_NEXUS_LOSS_OCCURRED: SenseCode = code(key::UNIT_ATTENTION, 0x29, 0x07);
/// Mode pages were changed by another nexus.
pub const MODE_PARAMETERS_CHANGED: SenseCode = code(key::UNIT_ATTENTION, 0x2A, 0x01);
/// Another nexus cleared the reservation and the registrations.
pub const RESERVATIONS_PREEMPTED: SenseCode = code(key::UNIT_ATTENTION, 0x2A, 0x03);
/// The reservation in which this nexus had a part was released.
pub const RESERVATIONS_RELEASED: SenseCode = code(key::UNIT_ATTENTION, 0x2A, 0x04);
/// Another nexus removed this one's registration.
pub const REGISTRATIONS_PREEMPTED: SenseCode = code(key::UNIT_ATTENTION, 0x2A, 0x05);
/// The unit's size changed.
pub const CAPACITY_DATA_HAS_CHANGED: SenseCode = code(key::UNIT_ATTENTION, 0x2A, 0x09);
/// Commands of this nexus were aborted by another.
pub const COMMANDS_CLEARED_BY_ANOTHER_INITIATOR: SenseCode = code(key::UNIT_ATTENTION, 0x2F, 0x00);
/// Units came or went.
pub const REPORTED_LUNS_DATA_HAS_CHANGED: SenseCode = code(key::UNIT_ATTENTION, 0x3F, 0x0E);
