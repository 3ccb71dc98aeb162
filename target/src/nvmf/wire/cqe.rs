//! Completion queue entry: the whole of a response capsule (base 3.3.3.2; over RDMA the phase bit is 0 and SQID
//! is reserved).

use zerocopy::little_endian::{U16, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::status::Status;

/// Bytes of a completion queue entry.
pub const CQE_LEN: usize = 16;

/// SQHD of a queue whose submission flow control is disabled.
pub const SQHD_DISABLED: u16 = 0xffff;

/// Completion queue entry.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned,
)]
#[repr(C)]
pub struct Cqe {
    /// Command specific result (DW0 and DW1; Property Get uses both).
    pub result: U64,
    /// SQ Head Pointer.
    pub sqhd: U16,
    /// Reserved over fabrics (SQ Identifier).
    pub sqid: U16,
    /// Command Identifier.
    pub cid: U16,
    /// Phase (0, always 0 over fabrics) and Status (15:1).
    pub status: U16,
}

const _: () = assert!(size_of::<Cqe>() == CQE_LEN);

impl Cqe {
    /// A response capsule's entry.
    #[must_use]
    pub fn new(cid: u16, sqhd: u16, status: Status, result: u64) -> Self {
        Self {
            result: U64::new(result),
            sqhd: U16::new(sqhd),
            sqid: U16::ZERO,
            cid: U16::new(cid),
            status: U16::new(status.to_cqe()),
        }
    }

    /// The status field without its phase bit.
    #[must_use]
    pub fn status(&self) -> Status {
        Status::from_cqe(self.status.get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_response_of_a_linux_target_to_connect_reads_as_success_with_cntlid_1() {
        let raw: [u8; 16] = [1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
        let cqe = Cqe::new(0, 1, Status::SUCCESS, 1);
        assert_eq!(cqe.as_bytes(), raw);
        assert!(Cqe::read_from_bytes(&raw).unwrap().status().is_success());
    }

    #[test]
    fn the_status_code_stands_above_the_phase_bit() {
        let cqe = Cqe::new(7, 0, Status::INVALID_FIELD, 0);
        assert_eq!(cqe.status.get(), (0x4002) << 1);
    }
}
