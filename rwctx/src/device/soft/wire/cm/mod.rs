//! The messages of the communication management class, version 2 (IBTA 12.6 to 12.11), and the header that rdma_cm puts
//! in front of a REQ's private data (IBTA annex A11).
//!
//! [`CmMessage::parse`] takes a management datagram apart, [`CmMessage::emit`] makes one. Nothing here knows a
//! connection. LAP and APR, which move a connection to another path, do not exist on RoCE and count as unknown.

mod req;

use std::time::Duration;

use zerocopy::byteorder::network_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::mad::{self, Attribute, MAD_HEADER_LEN, MAD_LEN, MadError};
use super::reason::RejReason;
use crate::device::Qpn;

pub use req::{CmaHeader, Path, REQ_PRIVATE_LEN, Req, gid, service_id, service_port};

/// Bytes of private data in a REP.
pub const REP_PRIVATE_LEN: usize = 196;
/// Bytes of private data in a REJ.
pub const REJ_PRIVATE_LEN: usize = 148;
/// Bytes of additional information in a REJ.
pub const REJ_INFO_LEN: usize = REJ_INFO_MAX as usize;
const REJ_INFO_MAX: u8 = 72;

/// Bytes of every message.
const BODY_LEN: usize = MAD_LEN - MAD_HEADER_LEN;

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRep {
    local_comm_id: U32,
    remote_comm_id: U32,
    local_qkey: U32,
    /// Local QPN (24), vendor (8).
    qpn: U32,
    /// Local EECN (24), vendor (8).
    eecn: U32,
    /// Starting PSN (24), vendor (8).
    psn: U32,
    responder_resources: u8,
    initiator_depth: u8,
    /// Target ACK delay (5), failover accepted (2), end-to-end flow control (1).
    delay: u8,
    /// RNR retry count (3), SRQ (1), reserved (4).
    retry: u8,
    local_ca_guid: U64,
    private: [u8; REP_PRIVATE_LEN],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawIds {
    local_comm_id: U32,
    remote_comm_id: U32,
    private: [u8; 224],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawMra {
    local_comm_id: U32,
    remote_comm_id: U32,
    /// Message (2), reserved (6).
    message: u8,
    /// Service timeout (5), reserved (3).
    timeout: u8,
    private: [u8; 222],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawRej {
    local_comm_id: U32,
    remote_comm_id: U32,
    /// Message (2), reserved (6).
    message: u8,
    /// Length of the additional information (7), reserved (1).
    info_len: u8,
    reason: U16,
    info: [u8; REJ_INFO_LEN],
    private: [u8; REJ_PRIVATE_LEN],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawDreq {
    local_comm_id: U32,
    remote_comm_id: U32,
    /// Remote QPN (24), reserved (8).
    qpn: U32,
    private: [u8; 220],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSidrReq {
    request_id: U32,
    pkey: U16,
    reserved: U16,
    service_id: U64,
    private: [u8; 216],
}

#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawSidrRep {
    request_id: U32,
    status: u8,
    info_len: u8,
    vendor_high: U16,
    /// QPN (24), vendor (8).
    qpn: U32,
    service_id: U64,
    qkey: U32,
    info: [u8; 72],
    private: [u8; 136],
}

const _: () = assert!(size_of::<RawRep>() == BODY_LEN);
const _: () = assert!(size_of::<RawIds>() == BODY_LEN);
const _: () = assert!(size_of::<RawMra>() == BODY_LEN);
const _: () = assert!(size_of::<RawRej>() == BODY_LEN);
const _: () = assert!(size_of::<RawDreq>() == BODY_LEN);
const _: () = assert!(size_of::<RawSidrReq>() == BODY_LEN);
const _: () = assert!(size_of::<RawSidrRep>() == BODY_LEN);

/// A message of the connection manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CmMessage {
    /// Asks for a connection.
    Req(Req),
    /// Asks for more time.
    Mra(Mra),
    /// Refuses.
    Rej(Rej),
    /// Accepts.
    Rep(Rep),
    /// Confirms.
    Rtu(CommIds),
    /// Ends a connection.
    Dreq(Dreq),
    /// Confirms its end.
    Drep(CommIds),
    /// Asks for a datagram service.
    SidrReq(SidrReq),
    /// Answers that. Sent to refuse; received ones are ignored.
    SidrRep(SidrRep),
}

/// The pair that names a connection: the communication IDs of the sender and of the receiver of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommIds {
    /// The sender's.
    pub local: u32,
    /// The receiver's.
    pub remote: u32,
}

impl CommIds {
    /// As the other side says it.
    #[must_use]
    pub fn swapped(self) -> Self {
        Self { local: self.remote, remote: self.local }
    }
}

/// Reply to a REQ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rep {
    /// The connection.
    pub ids: CommIds,
    /// The sender's queue pair.
    pub qpn: Qpn,
    /// PSN at which the receiver starts to send, 24 bits.
    pub starting_psn: u32,
    /// READs that the sender serves at once.
    pub responder_resources: u8,
    /// READs that the sender may have outstanding.
    pub initiator_depth: u8,
    /// Exponent (0-31) of the sender's delay before an ACK.
    pub target_ack_delay: u8,
    /// End-to-end credits.
    pub flow_control: bool,
    /// RNR retries that the receiver shall make, 0-7.
    pub rnr_retry_count: u8,
    /// The sender's queue pair uses a shared receive queue.
    pub srq: bool,
    /// The sender's channel adapter.
    pub ca_guid: u64,
    /// Private data of the connection's user.
    pub private: [u8; REP_PRIVATE_LEN],
}

/// Which message a REJ or MRA is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// REQ.
    Req,
    /// REP.
    Rep,
    /// Another, or none.
    Other,
}

/// Message receipt acknowledge: wait longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mra {
    /// The connection.
    pub ids: CommIds,
    /// The message that takes time.
    pub about: About,
    /// Exponent (0-31) of the time it takes.
    pub service_timeout: u8,
}

/// Reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rej {
    /// The connection; either ID may be 0 when the sender has none.
    pub ids: CommIds,
    /// The message that is rejected.
    pub about: About,
    /// Why.
    pub reason: RejReason,
    /// Meaningful bytes of `info`, 0-72.
    pub info_len: u8,
    /// Additional information; what it is depends on the reason.
    pub info: [u8; REJ_INFO_LEN],
    /// Private data of the connection's user.
    pub private: [u8; REJ_PRIVATE_LEN],
}

/// Disconnect request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dreq {
    /// The connection.
    pub ids: CommIds,
    /// The receiver's queue pair.
    pub remote_qpn: Qpn,
}

/// Service ID resolution request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrReq {
    /// The sender's request ID.
    pub request_id: u32,
    /// Service wanted.
    pub service_id: u64,
}

/// Answer to a service ID resolution request: the service is not supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SidrRep {
    /// Of the request.
    pub request_id: u32,
    /// Of the request.
    pub service_id: u64,
}

/// The time that a five-bit exponent means: 4.096 microseconds times a power of two.
#[must_use]
pub fn exponent_time(exponent: u8) -> Duration {
    Duration::from_nanos(4096_u64 << (exponent & 0x1F))
}

impl CmMessage {
    /// Reads a management datagram; returns its transaction ID with the message.
    ///
    /// # Errors
    /// When it is none that we take; see [`MadError`].
    pub fn parse(datagram: &[u8]) -> Result<(u64, Self), MadError> {
        let (transaction_id, attribute, body) = mad::parse(datagram)?;
        let message = match attribute {
            Attribute::Req => Self::Req(Req::from_raw(view(body))),
            Attribute::Mra => Self::Mra(Mra::from_raw(view(body))),
            Attribute::Rej => Self::Rej(Rej::from_raw(view(body))),
            Attribute::Rep => Self::Rep(Rep::from_raw(view(body))),
            Attribute::Rtu => Self::Rtu(CommIds::from_raw(view(body))),
            Attribute::Dreq => Self::Dreq(Dreq::from_raw(view(body))),
            Attribute::Drep => Self::Drep(CommIds::from_raw(view(body))),
            Attribute::SidrReq => {
                let raw: &RawSidrReq = view(body);
                Self::SidrReq(SidrReq { request_id: raw.request_id.get(), service_id: raw.service_id.get() })
            }
            Attribute::SidrRep | Attribute::Unknown(_) => return Err(MadError::Attribute(attribute.into())),
        };
        Ok((transaction_id, message))
    }

    /// The management datagram that says it.
    #[must_use]
    pub fn emit(&self, transaction_id: u64) -> [u8; MAD_LEN] {
        let datagram = |attribute: Attribute, body: &[u8]| {
            let mut datagram = mad::emit(transaction_id, attribute);
            datagram[MAD_HEADER_LEN..].copy_from_slice(body);
            datagram
        };
        match self {
            Self::Req(req) => datagram(Attribute::Req, req.to_raw().as_bytes()),
            Self::Mra(mra) => datagram(Attribute::Mra, mra.to_raw().as_bytes()),
            Self::Rej(rej) => datagram(Attribute::Rej, rej.to_raw().as_bytes()),
            Self::Rep(rep) => datagram(Attribute::Rep, rep.to_raw().as_bytes()),
            Self::Rtu(ids) => datagram(Attribute::Rtu, ids.to_raw().as_bytes()),
            Self::Dreq(dreq) => datagram(Attribute::Dreq, dreq.to_raw().as_bytes()),
            Self::Drep(ids) => datagram(Attribute::Drep, ids.to_raw().as_bytes()),
            Self::SidrReq(request) => datagram(Attribute::SidrReq, request.to_raw().as_bytes()),
            Self::SidrRep(reply) => datagram(Attribute::SidrRep, reply.to_raw().as_bytes()),
        }
    }
}

/// The message in a body; all are as long as the body.
fn view<T: FromBytes + Immutable + KnownLayout + Unaligned>(body: &[u8]) -> &T {
    T::ref_from_bytes(body).expect("every message fills the 232 bytes of a body")
}

/// The 24-bit field in front of `low`.
fn word(high_24: u32, low: u8) -> U32 {
    U32::new(high_24 << 8 | u32::from(low))
}

/// Splits a word into a 24-bit field and the byte behind it.
fn split(word: U32) -> (u32, u8) {
    let [.., low] = word.to_bytes();
    (word.get() >> 8, low)
}

impl Rep {
    fn from_raw(raw: &RawRep) -> Self {
        Self {
            ids: CommIds { local: raw.local_comm_id.get(), remote: raw.remote_comm_id.get() },
            qpn: Qpn(split(raw.qpn).0),
            starting_psn: split(raw.psn).0,
            responder_resources: raw.responder_resources,
            initiator_depth: raw.initiator_depth,
            target_ack_delay: raw.delay >> 3,
            flow_control: raw.delay & 1 != 0,
            rnr_retry_count: raw.retry >> 5,
            srq: raw.retry & 0x10 != 0,
            ca_guid: raw.local_ca_guid.get(),
            private: raw.private,
        }
    }

    fn to_raw(self) -> RawRep {
        RawRep {
            local_comm_id: U32::new(self.ids.local),
            remote_comm_id: U32::new(self.ids.remote),
            local_qkey: U32::ZERO,
            qpn: word(self.qpn.0, 0),
            eecn: U32::ZERO,
            psn: word(self.starting_psn, 0),
            responder_resources: self.responder_resources,
            initiator_depth: self.initiator_depth,
            delay: self.target_ack_delay << 3 | u8::from(self.flow_control),
            retry: self.rnr_retry_count << 5 | u8::from(self.srq) << 4,
            local_ca_guid: U64::new(self.ca_guid),
            private: self.private,
        }
    }
}

impl CommIds {
    fn from_raw(raw: &RawIds) -> Self {
        Self { local: raw.local_comm_id.get(), remote: raw.remote_comm_id.get() }
    }

    fn to_raw(self) -> RawIds {
        RawIds {
            local_comm_id: U32::new(self.local),
            remote_comm_id: U32::new(self.remote),
            private: [0; 224],
        }
    }
}

impl From<u8> for About {
    fn from(bits: u8) -> Self {
        match bits >> 6 {
            0 => Self::Req,
            1 => Self::Rep,
            _ => Self::Other,
        }
    }
}

impl From<About> for u8 {
    fn from(about: About) -> Self {
        match about {
            About::Req => 0,
            About::Rep => 1 << 6,
            About::Other => 2 << 6,
        }
    }
}

impl Mra {
    fn from_raw(raw: &RawMra) -> Self {
        Self {
            ids: CommIds { local: raw.local_comm_id.get(), remote: raw.remote_comm_id.get() },
            about: raw.message.into(),
            service_timeout: raw.timeout >> 3,
        }
    }

    fn to_raw(self) -> RawMra {
        RawMra {
            local_comm_id: U32::new(self.ids.local),
            remote_comm_id: U32::new(self.ids.remote),
            message: self.about.into(),
            timeout: self.service_timeout << 3,
            private: [0; 222],
        }
    }
}

impl Rej {
    fn from_raw(raw: &RawRej) -> Self {
        Self {
            ids: CommIds { local: raw.local_comm_id.get(), remote: raw.remote_comm_id.get() },
            about: raw.message.into(),
            reason: raw.reason.get().into(),
            info_len: (raw.info_len >> 1).min(REJ_INFO_MAX),
            info: raw.info,
            private: raw.private,
        }
    }

    fn to_raw(self) -> RawRej {
        RawRej {
            local_comm_id: U32::new(self.ids.local),
            remote_comm_id: U32::new(self.ids.remote),
            message: self.about.into(),
            info_len: self.info_len << 1,
            reason: U16::new(self.reason.into()),
            info: self.info,
            private: self.private,
        }
    }

    /// The channel adapter whose request timed out, in a REJ for that reason.
    #[must_use]
    pub fn timed_out_ca_guid(&self) -> Option<u64> {
        let (guid, _) = self.info.split_first_chunk()?;
        (self.reason == RejReason::Timeout && self.info_len == 8).then(|| u64::from_be_bytes(*guid))
    }
}

impl Dreq {
    fn from_raw(raw: &RawDreq) -> Self {
        Self {
            ids: CommIds { local: raw.local_comm_id.get(), remote: raw.remote_comm_id.get() },
            remote_qpn: Qpn(split(raw.qpn).0),
        }
    }

    fn to_raw(self) -> RawDreq {
        RawDreq {
            local_comm_id: U32::new(self.ids.local),
            remote_comm_id: U32::new(self.ids.remote),
            qpn: word(self.remote_qpn.0, 0),
            private: [0; 220],
        }
    }
}

impl SidrReq {
    fn to_raw(self) -> RawSidrReq {
        RawSidrReq {
            request_id: U32::new(self.request_id),
            pkey: U16::new(super::PKEY_DEFAULT),
            reserved: U16::ZERO,
            service_id: U64::new(self.service_id),
            private: [0; 216],
        }
    }
}

impl SidrRep {
    /// IBTA 12.11.2: service ID not supported.
    const STATUS_NOT_SUPPORTED: u8 = 1;

    fn to_raw(self) -> RawSidrRep {
        RawSidrRep {
            request_id: U32::new(self.request_id),
            status: Self::STATUS_NOT_SUPPORTED,
            service_id: U64::new(self.service_id),
            ..RawSidrRep::new_zeroed()
        }
    }
}
