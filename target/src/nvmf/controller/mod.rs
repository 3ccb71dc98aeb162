//! One NVMe controller, sans-IO: what its admin queue makes of commands, time, and notices of the control plane.
//!
//! Owns properties, features, keep-alive, asynchronous events and log pages (base 3.1, 3.9, 5). Belongs to the
//! reactor of its admin queue; what I/O queues on other reactors need is in [`CtrlShared`]. Never does I/O, never
//! reads a clock.
//!
//! Order of calls for an admin command: [`Controller::data_lengths`], fetch that much from the host,
//! [`Controller::admin`], send `data_len` bytes of `out`, complete; then [`Controller::poll_event_completion`] until it
//! has no more.

mod events;
mod features;
mod identify;
mod keep_alive;
mod log_pages;
mod properties;
mod shared;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

pub use self::events::AerCompletion;
use self::events::Events;
use self::features::Features;
use self::keep_alive::KeepAlive;
use self::log_pages::LogRequest;
use self::properties::Properties;
pub use self::shared::{CtrlShared, ERROR_LOG_ENTRIES, ErrorRecord, NO_LOCATION};
use super::command::{AdminCommand, AdminOp, FabricsCommand, FabricsOp, MAX_SGL_DESCRIPTORS};
use super::discovery::DiscoveryView;
use super::subsystem::Subsystem;
use super::wire::identify::IDENTIFY_LEN;
use super::wire::sgl::SGL_DESCRIPTOR_LEN;
use super::wire::sqe::admin_opcode;
use super::wire::status::Status;

/// Model number of Identify Controller.
pub const MODEL: &str = "Intact";

/// Keep-alive of a discovery controller whose host asks for none: without it a vanished host would stay.
const DISCOVERY_KATO_MS: u32 = 120_000;
/// Bytes of the page size that MDTS counts in (CAP.MPSMIN = 0).
const MDTS_PAGE: u32 = 4096;

/// Sizes that the whole target agrees on; Identify and CAP state them, and they are enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetLimits {
    /// I/O queues of a controller, 1 to 128.
    pub max_io_queues: u16,
    /// Entries of a queue, 2 to 1024 (CAP.MQES + 1, MAXCMD).
    pub max_queue_entries: u32,
    /// User data of one command in bytes: a power of two of at least 4096 (MDTS).
    pub max_data: u32,
    /// Data behind the SQE in an I/O command capsule, in bytes: a multiple of 16 up to 16 KiB; 0 = none (IOCCSZ).
    pub in_capsule_data: u32,
    /// Controllers of the whole target, discovery controllers included.
    pub max_controllers: usize,
}

impl Default for TargetLimits {
    fn default() -> Self {
        Self {
            max_io_queues: 128,
            max_queue_entries: 128,
            max_data: 1 << 20,
            in_capsule_data: 4096,
            max_controllers: 1024,
        }
    }
}

impl TargetLimits {
    /// MSDBD: SGL descriptors of a command, which the capsule has room for.
    #[must_use]
    pub fn max_sgl_descriptors(&self) -> u8 {
        let room = self.in_capsule_data as usize / SGL_DESCRIPTOR_LEN;
        u8::try_from(room.clamp(1, MAX_SGL_DESCRIPTORS)).expect("a few")
    }

    /// MDTS: log2 of `max_data` in pages.
    #[must_use]
    pub fn mdts(&self) -> u8 {
        u8::try_from((self.max_data / MDTS_PAGE).max(1).ilog2()).expect("the logarithm of a u32 fits")
    }
}

/// Who is connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// Host NQN.
    pub nqn: String,
    /// Host Identifier.
    pub id: [u8; 16],
}

#[derive(Debug)]
enum Kind {
    Io(Arc<Subsystem>),
    Discovery(DiscoveryView),
}

/// A controller.
#[derive(Debug)]
pub struct Controller {
    shared: Arc<CtrlShared>,
    kind: Kind,
    host: HostIdentity,
    limits: TargetLimits,
    properties: Properties,
    features: Features,
    events: Events,
    keep_alive: KeepAlive,
    has_io_queues: bool,
}

/// What becomes of an admin command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the command has to be completed"]
pub enum AdminOutcome {
    /// Send the first `data_len` bytes of `out`, then complete the command.
    Complete {
        /// How it ended.
        status: Status,
        /// DW0 and DW1 of the CQE.
        result: u64,
        /// Bytes for the host; 0 when the command failed.
        data_len: usize,
    },
    /// Asynchronous Event Request: completes later by [`Controller::poll_event_completion`].
    Pend,
}

/// What becomes of a Fabrics command on a connected queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the command has to be completed"]
pub struct FabricsOutcome {
    /// How it ended.
    pub status: Status,
    /// DW0 and DW1 of the CQE.
    pub result: u64,
    /// What the caller has to do besides.
    pub effect: Option<Effect>,
}

/// What writing CC asks of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// CC.EN was cleared: the I/O queues are gone; disconnect them.
    Reset,
    /// Shutdown notification: make the volumes' writes durable, then call [`Controller::shutdown_complete`].
    FlushForShutdown,
}

/// Data of an admin command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataLengths {
    /// Bytes to fetch from the host before the command is carried out.
    pub from_host: usize,
    /// Bytes that the command may return: the length of `out`.
    pub to_host: usize,
}

impl Controller {
    pub(super) fn new_io(
        now: Instant,
        shared: Arc<CtrlShared>,
        subsystem: Arc<Subsystem>,
        host: HostIdentity,
        limits: TargetLimits,
        kato_ms: u32,
    ) -> Self {
        Self::new(now, shared, Kind::Io(subsystem), host, limits, kato_ms)
    }

    pub(super) fn new_discovery(
        now: Instant,
        shared: Arc<CtrlShared>,
        view: DiscoveryView,
        host: HostIdentity,
        limits: TargetLimits,
        kato_ms: u32,
    ) -> Self {
        let kato_ms = if kato_ms == 0 { DISCOVERY_KATO_MS } else { kato_ms };
        Self::new(now, shared, Kind::Discovery(view), host, limits, kato_ms)
    }

    fn new(
        now: Instant,
        shared: Arc<CtrlShared>,
        kind: Kind,
        host: HostIdentity,
        limits: TargetLimits,
        kato_ms: u32,
    ) -> Self {
        Self {
            shared,
            kind,
            host,
            limits,
            properties: Properties::default(),
            features: Features::default(),
            events: Events::default(),
            keep_alive: KeepAlive::new(now, kato_ms),
            has_io_queues: false,
        }
    }

    /// A connected queue's Fabrics command on the admin queue.
    pub fn fabrics(&mut self, command: &FabricsCommand) -> FabricsOutcome {
        self.shared.touch();
        let done = match &command.op {
            // The queue is connected already.
            FabricsOp::Connect(_) => Err(Status::COMMAND_SEQUENCE_ERROR),
            FabricsOp::PropertyGet { size, offset } => self.property_get(*size, *offset).map(|v| (v, None)),
            FabricsOp::PropertySet { size, offset, value } => {
                self.property_set(*size, *offset, *value).map(|effect| (0, effect))
            }
        };
        match done {
            Ok((result, effect)) => FabricsOutcome { status: Status::SUCCESS, result, effect },
            Err(status) => {
                self.log(command.cid, admin_opcode::FABRICS, 0, status);
                FabricsOutcome { status, result: 0, effect: None }
            }
        }
    }

    /// How much data an admin command moves.
    ///
    /// # Errors
    /// The status to complete it with when its SGL does not fit; call [`Controller::fail_admin`] with it.
    pub fn data_lengths(&self, command: &AdminCommand) -> Result<DataLengths, Status> {
        let sgl = usize::try_from(command.dptr.length()).map_err(|_| Status::SGL_DATA_LENGTH_INVALID)?;
        let exactly = |length: usize| {
            if sgl == length { Ok(length) } else { Err(Status::SGL_DATA_LENGTH_INVALID) }
        };
        // Hosts don't always know how long a feature's data is.
        let at_least = |length: usize| {
            if sgl >= length { Ok(length) } else { Err(Status::SGL_DATA_LENGTH_INVALID) }
        };
        let (from_host, to_host) = match command.op {
            AdminOp::Identify { .. } => (0, exactly(IDENTIFY_LEN)?),
            AdminOp::GetLogPage { length, .. } => {
                if length > u64::from(self.limits.max_data) {
                    return Err(Status::INVALID_FIELD);
                }
                (0, exactly(usize::try_from(length).map_err(|_| Status::INVALID_FIELD)?)?)
            }
            AdminOp::SetFeatures { fid, .. } => (at_least(self.set_feature_len(fid))?, 0),
            AdminOp::GetFeatures { fid, select, .. } => (0, at_least(self.get_feature_len(fid, select))?),
            AdminOp::Abort { .. } | AdminOp::AsyncEventRequest | AdminOp::KeepAlive => (0, 0),
        };
        Ok(DataLengths { from_host, to_host })
    }

    /// Carries out an admin command: `data` is what was fetched, `out` where data for the host goes, both at least as
    /// long as [`Controller::data_lengths`] says.
    pub fn admin(
        &mut self,
        now: Instant,
        command: &AdminCommand,
        data: &[u8],
        out: &mut [u8],
    ) -> AdminOutcome {
        self.shared.touch();
        if !self.properties.is_ready() {
            return self.fail_admin(command, Status::COMMAND_SEQUENCE_ERROR);
        }
        let nsid = command.nsid;
        let done = match command.op {
            AdminOp::Identify { cns, csi, .. } => {
                self.identify(nsid, cns, csi, out).map(|length| (0, length))
            }
            AdminOp::GetLogPage { lid, rae, length, offset, offset_is_index, csi, .. } => {
                let request =
                    LogRequest { nsid, lid, retain_event: rae, length, offset, offset_is_index, csi };
                self.log_page(now, &request, out).map(|length| (0, length))
            }
            AdminOp::SetFeatures { fid, save, cdw: [cdw11, ..] } => {
                self.set_features(now, nsid, fid, save, cdw11, data).map(|result| (result, 0))
            }
            AdminOp::GetFeatures { fid, select, cdw11 } => self.get_features(now, fid, select, cdw11, out),
            // Bit 0 set: not aborted. Commands that are under way run to their end.
            AdminOp::Abort { sqid, cid } => Ok((u64::from(!(sqid == 0 && self.events.abort(cid))), 0)),
            AdminOp::KeepAlive => {
                self.keep_alive.restart(now);
                Ok((0, 0))
            }
            AdminOp::AsyncEventRequest => match self.events.request(command.cid) {
                Ok(()) => return AdminOutcome::Pend,
                Err(status) => Err(status),
            },
        };
        match done {
            Ok((result, data_len)) => AdminOutcome::Complete { status: Status::SUCCESS, result, data_len },
            Err(status) => self.fail_admin(command, status),
        }
    }

    /// Ends an admin command that failed before or outside of [`Controller::admin`], with its error log entry.
    pub fn fail_admin(&mut self, command: &AdminCommand, status: Status) -> AdminOutcome {
        self.log(command.cid, command.opcode, command.nsid, status);
        AdminOutcome::Complete { status, result: 0, data_len: 0 }
    }

    /// A completed Asynchronous Event Request, if there is one: complete the command of this CID.
    pub fn poll_event_completion(&mut self) -> Option<AerCompletion> {
        self.events.poll_completion()
    }

    /// Takes what the control plane left in [`CtrlShared`]: events may complete.
    pub fn handle_notices(&mut self) {
        if let Some(notices) = self.shared.take_notices() {
            if !notices.namespaces.is_empty() {
                self.events.namespaces_changed(notices.namespaces);
            }
            if notices.discovery_log {
                self.events.discovery_log_changed();
            }
        }
    }

    /// An I/O queue was connected, so that the number of queues is settled.
    pub fn io_queue_connected(&mut self) {
        self.has_io_queues = true;
    }

    /// When [`Controller::handle_timeout`] wants to be called.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.keep_alive.deadline()
    }

    /// Time has passed. When the keep-alive timer expires the controller has failed: disconnect all its queues and
    /// remove it.
    #[must_use = "an expired controller has to be removed"]
    pub fn handle_timeout(&mut self, now: Instant) -> Option<KeepAliveExpired> {
        let shared = &self.shared;
        if !self.keep_alive.expired(now, || shared.take_traffic()) {
            return None;
        }
        self.log(0, admin_opcode::KEEP_ALIVE, 0, Status::KEEP_ALIVE_EXPIRED);
        self.fail();
        Some(KeepAliveExpired)
    }

    /// What its I/O queues share with it.
    #[must_use]
    pub fn shared(&self) -> &Arc<CtrlShared> {
        &self.shared
    }

    /// Controller Identifier.
    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.shared.cntlid()
    }

    /// Its subsystem; none for a discovery controller.
    #[must_use]
    pub fn io_subsystem(&self) -> Option<&Arc<Subsystem>> {
        match &self.kind {
            Kind::Io(subsystem) => Some(subsystem),
            Kind::Discovery(_) => None,
        }
    }

    /// Who is connected.
    #[must_use]
    pub fn host(&self) -> &HostIdentity {
        &self.host
    }

    fn set_keep_alive(&mut self, now: Instant, kato_ms: u32) {
        self.keep_alive = KeepAlive::new(now, kato_ms);
    }

    fn log(&self, cid: u16, opcode: u8, nsid: u32, status: Status) {
        self.shared.log_error(&ErrorRecord::new(0, cid, opcode, nsid, status));
    }
}

/// The keep-alive timer of a controller expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAliveExpired;
