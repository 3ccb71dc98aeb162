//! RDMA devices: what the layers above may ask of one, and what it says of itself.
//!
//! A device belongs to one reactor thread. Posting never blocks; a full queue is a result.

#[cfg(test)]
mod conformance;
#[cfg(feature = "mlx5")]
pub mod mlx5;
pub mod null;
mod offload;
pub mod provider;
pub mod soft;
#[cfg(feature = "verbs")]
pub mod verbs;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;

pub use offload::NoOffload;

use crate::mem::{Access, Mr, MrId, Pd, Region};
use crate::plan::Integrity;
use crate::signature::{SigLayout, SigStatus, Signature};
use crate::wc::Wc;
use crate::wr::{RecvWr, SendWr, Sge, WrId};

/// A queue pair number, 24 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Qpn(pub u32);

/// What a device can do; drives every branch of context planning (names of Linux `ib_device_attr`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceCaps {
    /// iWARP: READ sinks need a registration, SENDs need no credits.
    pub iwarp: bool,
    /// Scatter entries above which a READ should use a registration; 0 = no hint.
    pub max_sgl_rd: u32,
    /// SGEs of a SEND or WRITE.
    pub max_send_sge: u32,
    /// SGEs of a READ.
    pub max_sge_rd: u32,
    /// SGEs of a receive.
    pub max_recv_sge: u32,
    /// Pages of one fast registration.
    pub max_fast_reg_page_list_len: u32,
    /// Pages of one integrity registration; 0 = no integrity offload.
    pub max_pi_fast_reg_page_list_len: u32,
    /// Work requests of one queue.
    pub max_qp_wr: u32,
    /// READs that one queue pair serves at once.
    pub max_qp_rd_atom: u8,
    /// READs that one queue pair has outstanding at once.
    pub max_qp_init_rd_atom: u8,
    /// Fast registration, local and remote invalidation work (Linux `IB_DEVICE_MEM_MGT_EXTENSIONS`).
    pub mem_mgt_extensions: bool,
    /// SENDs that invalidate a key of the peer.
    pub send_with_inv: bool,
    /// Forces registrations for every context (Linux module option `force_mr`).
    pub force_mr: bool,
    /// Posted work requests can be given other memory with the same bytes ([`Device::replace_source`]).
    pub replace_source: bool,
    /// Gains by being told of payloads' checksums ([`Device::note_sums`]).
    pub takes_sums: bool,
}

/// Bytes of payload that a sum of [`Device::note_sums`] is of.
pub const SUM_PIECE: u32 = 4096;

/// Sizes of a queue pair (verbs `ibv_qp_cap`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpCap {
    /// Send work requests outstanding.
    pub max_send_wr: u32,
    /// Receives posted.
    pub max_recv_wr: u32,
    /// SGEs of a send work request.
    pub max_send_sge: u32,
    /// SGEs of a receive.
    pub max_recv_sge: u32,
    /// Whether it takes integrity registrations ([`crate::wr::SendOp::RegMrIntegrity`]).
    pub integrity: Integrity,
}

/// Path MTU (IBTA code 1-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathMtu {
    /// 256 bytes.
    Mtu256 = 1,
    /// 512 bytes.
    Mtu512 = 2,
    /// 1024 bytes.
    Mtu1024 = 3,
    /// 2048 bytes.
    Mtu2048 = 4,
    /// 4096 bytes.
    Mtu4096 = 5,
}

/// Everything that connects a queue pair to its peer: INIT to RTR to RTS in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpConnect {
    /// Our address.
    pub local: IpAddr,
    /// The peer's address; packets from any other are dropped.
    pub remote: IpAddr,
    /// The peer's queue pair.
    pub dest_qpn: Qpn,
    /// PSN of our first request (24 bits; the peer's CM message names it).
    pub sq_psn: u32,
    /// PSN that we expect first (24 bits; our CM message named it).
    pub rq_psn: u32,
    /// Both sides use the same.
    pub path_mtu: PathMtu,
    /// READs that we may have outstanding.
    pub max_rd_atomic: u8,
    /// READs that we serve at once.
    pub max_dest_rd_atomic: u8,
    /// Upper bound of the retransmission timer.
    pub ack_timeout: Duration,
    /// Transport retries without progress, 0-7; 7 is the device's own larger limit.
    pub retry_cnt: u8,
    /// RNR retries, 0-7; 7 = for ever.
    pub rnr_retry: u8,
    /// RNR timer code that we advertise, 0-31.
    pub min_rnr_timer: u8,
    /// IP traffic class.
    pub tos: u8,
    /// Whether peers may READ and WRITE memory of this protection domain through this queue pair.
    pub remote_access: RemoteAccess,
    /// How the peer is reached, where the connection manager found that out: verbs devices need it, the soft device follows
    /// the addresses.
    pub route: Option<Route>,
}

/// How a peer is reached, as the kernel's connection manager resolved it (verbs `ibv_ah_attr`, and what of a queue pair goes
/// with it).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    /// Our port, from 1.
    pub port: u8,
    /// Which entry of the port's table holds the partition key.
    pub pkey_index: u16,
    /// The peer's GID; for RoCE its IP address.
    pub dgid: [u8; 16],
    /// Which entry of the port's table holds our GID.
    pub sgid_index: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
    /// Whether the GIDs count: always with RoCE.
    pub is_global: bool,
    /// The peer's local identifier; InfiniBand alone.
    pub dlid: u16,
    /// Service level.
    pub sl: u8,
    /// Low bits of our local identifier; InfiniBand alone.
    pub src_path_bits: u8,
    /// Rate limit (`enum ibv_rate`).
    pub static_rate: u8,
}

/// Which RDMA operations of the peer a queue pair accepts; others are NAKed as invalid requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteAccess {
    /// RDMA READ.
    pub read: bool,
    /// RDMA WRITE.
    pub write: bool,
}

/// States of a queue pair (IBTA 10.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QpState {
    /// Made.
    Reset,
    /// Receives may be posted.
    Init,
    /// Receives packets.
    Rtr,
    /// Sends packets.
    Rts,
    /// Failed; everything posted is flushed.
    Error,
}

/// Asynchronous event of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpEvent {
    /// The peer's first request was executed (verbs `IBV_EVENT_COMM_EST`): it knows the queue pair's number and first PSN.
    CommEst(Qpn),
    /// It went to the error state by itself.
    Fatal(Qpn),
}

/// Why a work request was not taken. Nothing was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PostError {
    /// The queue is full; post again after a completion.
    #[error("the queue is full")]
    Full,
    /// No such queue pair.
    #[error("no such queue pair")]
    UnknownQp,
    /// The queue pair's state does not allow it.
    #[error("the queue pair's state does not allow posting")]
    BadState,
    /// Too many SGEs, or a length beyond 2^31 bytes.
    #[error("too many scatter-gather entries or too long a message")]
    BadSge,
    /// The operation is not supported by this device.
    #[error("operation not supported by this device")]
    Unsupported,
    /// The integrity region was never mapped, or the status of its last registration was not asked for.
    #[error("the integrity region is not ready")]
    Integrity,
}

/// Why an object could not be made or changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DeviceError {
    /// Out of queue pairs, regions or memory.
    #[error("out of {0}")]
    NoResources(&'static str),
    /// The object does not exist.
    #[error("no such {0}")]
    Unknown(&'static str),
    /// A parameter is out of range.
    #[error("invalid {0}")]
    Invalid(&'static str),
    /// The object is in use.
    #[error("{0} is busy")]
    Busy(&'static str),
}

/// An RDMA device as one reactor sees it.
pub trait Device {
    /// What it can do.
    fn caps(&self) -> &DeviceCaps;

    /// Makes a protection domain.
    ///
    /// # Errors
    /// [`DeviceError::NoResources`].
    fn alloc_pd(&mut self) -> Result<Pd, DeviceError>;

    /// Registers `length` bytes of `region` from `offset`; the region lives as long as the registration.
    ///
    /// # Errors
    /// When the range lies outside the region, or nothing is left.
    fn reg_mr(
        &mut self,
        pd: Pd,
        region: &Arc<Region>,
        offset: usize,
        length: usize,
        access: Access,
    ) -> Result<Mr, DeviceError>;

    /// Makes a fast-registration region without memory, with room for a list of `pages` pages; [`crate::wr::SendOp::RegMr`]
    /// gives it some.
    ///
    /// # Errors
    /// [`DeviceError::NoResources`]; [`DeviceError::Invalid`] when that is more than
    /// [`DeviceCaps::max_fast_reg_page_list_len`].
    fn alloc_fast_reg(&mut self, pd: Pd, pages: u32) -> Result<Mr, DeviceError>;

    /// Whether the device runs this signature while it moves data; otherwise software has to, and the error says why. The
    /// answer is the same for the device's life. Ask before a signature is first used: what the device does not run,
    /// [`Self::map_integrity`] refuses.
    ///
    /// # Errors
    /// [`NoOffload`].
    fn executes(&self, _signature: &Signature) -> Result<(), NoOffload> {
        if self.caps().max_pi_fast_reg_page_list_len == 0 { Err(NoOffload::Device) } else { Ok(()) }
    }

    /// Makes a region for integrity registrations whose two lists have at most `pages` pages each.
    ///
    /// # Errors
    /// [`DeviceError::NoResources`]; [`DeviceError::Invalid`] beyond [`DeviceCaps::max_pi_fast_reg_page_list_len`].
    fn alloc_integrity_mr(&mut self, _pd: Pd, _pages: u32) -> Result<Mr, DeviceError> {
        Err(DeviceError::Invalid("use: no integrity offload"))
    }

    /// Maps a data list and a protection list (empty where memory is bare or interleaved) to an integrity region, for its next
    /// registration; what is registered now stays. Returns the lengths of the transfer: its READ or WRITE has one SGE, of
    /// [`SigLayout::wire`] bytes at address 0. (Linux `ib_map_mr_sg_pi`.)
    ///
    /// # Errors
    /// [`DeviceError::Unknown`] without such a region; [`DeviceError::Invalid`] when the device can't execute the signature, the
    /// lists don't fit it or the region's pages, or pieces of what it writes overlap.
    fn map_integrity(
        &mut self,
        _mr: MrId,
        _signature: &Signature,
        _data: &[Sge],
        _protection: &[Sge],
    ) -> Result<SigLayout, DeviceError> {
        Err(DeviceError::Invalid("use: no integrity offload"))
    }

    /// What the signature of a registration found; to be asked once for each, after the completion of its READ or WRITE, and
    /// before the next is posted. (Linux `ib_check_mr_status`.)
    ///
    /// # Errors
    /// [`DeviceError::Unknown`] without such a region; [`DeviceError::Invalid`] when there is no status to be asked for;
    /// [`DeviceError::Busy`] when the data did not move completely.
    fn sig_status(&mut self, _mr: MrId) -> Result<SigStatus, DeviceError> {
        Err(DeviceError::Invalid("use: no integrity offload"))
    }

    /// Forgets a region. Peers lose access at once.
    ///
    /// # Errors
    /// When it does not exist.
    fn dereg_mr(&mut self, id: MrId) -> Result<(), DeviceError>;

    /// Makes a queue pair in state INIT: receives may be posted.
    ///
    /// # Errors
    /// When sizes exceed the capabilities or nothing is left.
    fn create_qp(&mut self, pd: Pd, cap: &QpCap) -> Result<Qpn, DeviceError>;

    /// INIT to RTS.
    ///
    /// # Errors
    /// In any state but INIT.
    fn connect_qp(&mut self, qpn: Qpn, to: &QpConnect) -> Result<(), DeviceError>;

    /// Any state to ERROR: everything posted completes as flushed.
    ///
    /// # Errors
    /// When it does not exist.
    fn error_qp(&mut self, qpn: Qpn) -> Result<(), DeviceError>;

    /// Forgets a queue pair; its completions that were not polled are dropped. The number is not reused soon.
    ///
    /// # Errors
    /// When it does not exist.
    fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), DeviceError>;

    /// Its state, if it exists.
    fn qp_state(&self, qpn: Qpn) -> Option<QpState>;

    /// Queues one send work request.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was queued then.
    fn post_send(&mut self, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), PostError>;

    /// Tells checksums of the payload of what was posted last to `qpn`, a SEND or WRITE, so that a device which makes them
    /// itself ([`DeviceCaps::takes_sums`]) need not read it once more: of each [`SUM_PIECE`] bytes in turn, as
    /// `t10pi::PiContext::verify_summed` makes them. They must be right: packets with others are lost. What does not fit
    /// the work request, or how the device cuts it, is ignored.
    fn note_sums(&mut self, _qpn: Qpn, _sums: &[u32]) {}

    /// From now on, SENDs and WRITEs that were posted to `qpn` under `wr_id` take from `to` what they took from `from`: as
    /// many bytes, the same ones. The device does not look at `from` again, not even to repeat a packet; packets of any
    /// queue pair that still waited for the network may be dropped, as if lost. Work that completed is left alone.
    ///
    /// # Errors
    /// [`DeviceError::Unknown`] without such a queue pair; [`DeviceError::Invalid`] when the lengths differ, the device can't do
    /// it ([`DeviceCaps::replace_source`]), or a work request has memory of `from` in a piece that is larger than `from`, or
    /// in a fast registration: that goes on to be looked at then.
    fn replace_source(&mut self, qpn: Qpn, wr_id: WrId, from: Sge, to: Sge) -> Result<(), DeviceError>;

    /// Queues one receive.
    ///
    /// # Errors
    /// See [`PostError`]; nothing was queued then.
    fn post_recv(&mut self, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), PostError>;

    /// Takes the next completion.
    fn poll_cq(&mut self) -> Option<Wc>;

    /// Takes the next asynchronous event.
    fn poll_qp_event(&mut self) -> Option<QpEvent>;

    /// When the device wants to be driven again though nothing arrives.
    fn next_timeout(&self) -> Option<Instant>;
}
