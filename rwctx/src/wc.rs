//! Work completions (verbs `ibv_wc`).

use crate::device::Qpn;
use crate::remote::Rkey;
use crate::wr::WrId;

/// How a work request ended; names follow `ibv_wc_status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WcStatus {
    /// Done.
    Success,
    /// A message was longer than the memory given for it.
    LocLenErr,
    /// A local key, address or right did not fit.
    LocProtErr,
    /// A local inconsistency of the queue pair.
    LocQpOpErr,
    /// Flushed: the queue pair went to the error state first.
    WrFlushErr,
    /// The peer found the request invalid (NAK 0x61).
    RemInvReqErr,
    /// The peer refused access to its memory (NAK 0x62).
    RemAccessErr,
    /// The peer failed (NAK 0x63).
    RemOpErr,
    /// No answer after all transport retries.
    RetryExcErr,
    /// The peer had no receive buffer after all retries.
    RnrRetryExcErr,
    /// A response that fits no request.
    BadRespErr,
}

/// What completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WcOpcode {
    /// Any SEND.
    Send,
    /// RDMA WRITE.
    RdmaWrite,
    /// RDMA READ.
    RdmaRead,
    /// Local invalidate.
    LocalInv,
    /// Fast registration.
    RegMr,
    /// Integrity registration.
    RegMrIntegrity,
    /// A received SEND.
    Recv,
    /// A received RDMA WRITE with immediate.
    RecvRdmaWithImm,
}

/// Extra word of a received message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvExtra {
    /// None.
    None,
    /// Immediate data as on the wire.
    Imm([u8; 4]),
    /// The peer invalidated this key of ours.
    Invalidated(Rkey),
}

/// A completion entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wc {
    /// As posted.
    pub wr_id: WrId,
    /// Queue pair.
    pub qpn: Qpn,
    /// Outcome; fields below are meaningful only on success.
    pub status: WcStatus,
    /// Operation.
    pub opcode: WcOpcode,
    /// Bytes received (receives) or moved (READs).
    pub byte_len: u32,
    /// Immediate data or invalidated key of a receive.
    pub extra: RecvExtra,
}
