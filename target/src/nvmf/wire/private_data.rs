//! Private data of the RDMA connection manager's messages (RDMA transport "Connection Management"): what the
//! host says of the queue in REQ, what the target answers in REP, and why it refuses in REJ.

use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// CM reject reason "consumer defined", under which [`RejectData`] travels.
pub const CM_REJECT_CONSUMER_DEFINED: u16 = 28;

/// RDMA_CM_REQUEST private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RequestData {
    /// Record Format; 0.
    pub recfmt: U16,
    /// Queue ID; 0 is the admin queue.
    pub qid: U16,
    /// RDMA QP Host Receive Queue Size (entries).
    pub hrqsize: U16,
    /// RDMA QP Host Send Queue Size (0's based).
    pub hsqsize: U16,
    /// Controller ID of an I/O queue; 0 for the admin queue and from older hosts.
    pub cntlid: U16,
    /// Reserved.
    pub rsvd10: [u8; 22],
}

/// RDMA_CM_ACCEPT private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct AcceptData {
    /// Record Format; 0.
    pub recfmt: U16,
    /// RDMA QP Controller Receive Queue Size (entries).
    pub crqsize: U16,
    /// Reserved.
    pub rsvd4: [u8; 28],
}

/// RDMA_CM_REJECT private data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RejectData {
    /// Record Format; 0.
    pub recfmt: U16,
    /// Status: a [`RejectStatus`].
    pub sts: U16,
}

const _: () = assert!(size_of::<RequestData>() == 32);
const _: () = assert!(size_of::<AcceptData>() == 32);
const _: () = assert!(size_of::<RejectData>() == 4);

/// Why a connection was refused ([`RejectData::sts`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum RejectStatus {
    /// The private data is missing or of the wrong length.
    InvalidLength = 1,
    /// Record format not known.
    InvalidRecfmt = 2,
    /// Queue ID out of range.
    InvalidQid = 3,
    /// Host send queue size not acceptable.
    InvalidHsqsize = 4,
    /// Host receive queue size not acceptable.
    InvalidHrqsize = 5,
    /// No resources for the queue.
    NoResources = 6,
    /// Inbound RDMA read depth not acceptable.
    InvalidIrd = 7,
    /// Outbound RDMA read depth not acceptable.
    InvalidOrd = 8,
}

impl RejectStatus {
    /// The meaning of a status in a peer's REJ.
    #[must_use]
    pub const fn from_wire(sts: u16) -> Option<Self> {
        Some(match sts {
            1 => Self::InvalidLength,
            2 => Self::InvalidRecfmt,
            3 => Self::InvalidQid,
            4 => Self::InvalidHsqsize,
            5 => Self::InvalidHrqsize,
            6 => Self::NoResources,
            7 => Self::InvalidIrd,
            8 => Self::InvalidOrd,
            _ => return None,
        })
    }
}

/// What a host asks for when it connects a queue, converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueRequest {
    /// Queue ID; 0 is the admin queue.
    pub qid: u16,
    /// Receives that the host posts: completions that may be outstanding.
    pub host_recv_entries: u32,
    /// Sends that the host may have outstanding: commands (hsqsize + 1).
    pub host_send_entries: u32,
    /// Controller ID the host says an I/O queue belongs to; 0 when it does not say.
    pub cntlid: u16,
}

/// Commands an admin queue may hold: hosts use 32.
pub const ADMIN_QUEUE_MAX_ENTRIES: u32 = 32;

impl QueueRequest {
    /// Reads REQ private data (the CM hands over its whole field, so bytes after the record are ignored), and
    /// applies the limits of the target: `max_qid` I/O queues of at most `max_entries` commands each.
    ///
    /// # Errors
    /// The status to reject the connection with.
    pub fn parse(private: &[u8], max_qid: u16, max_entries: u32) -> Result<Self, RejectStatus> {
        let (raw, _) = RequestData::ref_from_prefix(private).map_err(|_| RejectStatus::InvalidLength)?;
        if raw.recfmt.get() != 0 {
            return Err(RejectStatus::InvalidRecfmt);
        }
        let qid = raw.qid.get();
        if qid > max_qid {
            return Err(RejectStatus::InvalidQid);
        }
        let host_send_entries = u32::from(raw.hsqsize.get()) + 1;
        let limit = if qid == 0 { ADMIN_QUEUE_MAX_ENTRIES } else { max_entries };
        if host_send_entries > limit || host_send_entries < 2 {
            return Err(RejectStatus::InvalidHsqsize);
        }
        let host_recv_entries = u32::from(raw.hrqsize.get());
        if host_recv_entries == 0 {
            return Err(RejectStatus::InvalidHrqsize);
        }
        Ok(Self { qid, host_recv_entries, host_send_entries, cntlid: raw.cntlid.get() })
    }

    /// The record that says this: what a host puts into REQ.
    #[must_use]
    pub fn emit(&self) -> RequestData {
        let size = |n: u32| U16::new(u16::try_from(n).unwrap_or(u16::MAX));
        RequestData {
            recfmt: U16::ZERO,
            qid: U16::new(self.qid),
            hrqsize: size(self.host_recv_entries),
            hsqsize: size(self.host_send_entries.saturating_sub(1)),
            cntlid: U16::new(self.cntlid),
            rsvd10: [0; 22],
        }
    }
}

impl AcceptData {
    /// REP private data for a queue with `entries` receives.
    #[must_use]
    pub fn new(entries: u16) -> Self {
        Self { recfmt: U16::ZERO, crqsize: U16::new(entries), rsvd4: [0; 28] }
    }
}

impl RejectData {
    /// REJ private data.
    #[must_use]
    pub fn new(status: RejectStatus) -> Self {
        Self { recfmt: U16::ZERO, sts: U16::new(status as u16) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(bytes: &[u8]) -> [u8; 56] {
        let mut out = [0; 56];
        out[..bytes.len()].copy_from_slice(bytes);
        out
    }

    #[test]
    fn the_admin_request_of_a_linux_host_is_read_and_written_back() {
        // recfmt 0, qid 0, hrqsize 32, hsqsize 31: as recorded from Linux 6.1 and 6.12.
        let wire = record(&[0, 0, 0, 0, 0x20, 0, 0x1f, 0]);
        let request = QueueRequest::parse(&wire, 128, 128).unwrap();
        assert_eq!(request, QueueRequest { qid: 0, host_recv_entries: 32, host_send_entries: 32, cntlid: 0 });
        assert_eq!(request.emit().as_bytes(), &wire[..32]);
    }

    #[test]
    fn each_bad_record_is_refused_with_its_own_status() {
        let parse = |b: &[u8]| QueueRequest::parse(b, 4, 128).unwrap_err();
        assert_eq!(parse(&[0; 31]), RejectStatus::InvalidLength);
        assert_eq!(parse(&[]), RejectStatus::InvalidLength);
        assert_eq!(parse(&record(&[1, 0, 0, 0, 32, 0, 31, 0])), RejectStatus::InvalidRecfmt);
        assert_eq!(parse(&record(&[0, 0, 5, 0, 32, 0, 31, 0])), RejectStatus::InvalidQid);
        assert_eq!(parse(&record(&[0, 0, 0, 0, 32, 0, 32, 0])), RejectStatus::InvalidHsqsize);
        assert_eq!(parse(&record(&[0, 0, 1, 0, 32, 0, 128, 0])), RejectStatus::InvalidHsqsize);
        assert_eq!(parse(&record(&[0, 0, 1, 0, 32, 0, 0, 0])), RejectStatus::InvalidHsqsize);
        assert_eq!(parse(&record(&[0, 0, 1, 0, 0, 0, 31, 0])), RejectStatus::InvalidHrqsize);
    }

    #[test]
    fn answers_have_the_specified_bytes() {
        assert_eq!(&AcceptData::new(32).as_bytes()[..6], &[0, 0, 32, 0, 0, 0]);
        assert_eq!(RejectData::new(RejectStatus::NoResources).as_bytes(), &[0, 0, 6, 0]);
    }
}
