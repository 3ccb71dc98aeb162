//! Connect (base 6.3): every check, and what a connected queue gets.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use zerocopy::FromBytes;

use super::{Entry, Registry};
use crate::nvmf::command::ConnectFields;
use crate::nvmf::controller::{Controller, CtrlShared, HostIdentity};
use crate::nvmf::discovery::DiscoveryView;
use crate::nvmf::subsystem::Subsystem;
use crate::nvmf::wire::fabrics::{
    CATTR_DISABLE_SQFC, CONNECT_DATA_LEN, ConnectData, DISCOVERY_NQN, NQN_MAX_LEN, connect_data_offset,
    connect_sqe_offset,
};
use crate::nvmf::wire::private_data::QueueRequest;
use crate::nvmf::wire::status::Status;
use crate::transport::share::peer_group;

/// CNTLID that asks for a new controller.
const CNTLID_ANY: u16 = 0xffff;
/// Entries of a queue at least: one entry always stays free.
const MIN_ENTRIES: u32 = 2;

/// A Connect command with its data, and the queue pair it came on.
#[derive(Clone, Copy, Debug)]
pub struct ConnectRequest<'a> {
    /// The SQE's fields.
    pub fields: &'a ConnectFields,
    /// Its data: 1024 bytes, or it is refused.
    pub data: &'a [u8],
    /// What the host said when it made the RDMA connection.
    pub transport: &'a QueueRequest,
    /// The address the connection was made to.
    pub local: SocketAddr,
    /// The address it came from.
    pub peer: IpAddr,
    /// The reactor of the queue pair.
    pub reactor: usize,
}

/// A refused Connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectError {
    /// How it ended.
    pub status: Status,
    /// DW0 of the CQE: with Invalid Parameters, where the parameter is (offset in 15:0; bit 16: in the data).
    pub result: u32,
}

/// A connected admin queue: complete Connect with the controller's CNTLID as result.
#[derive(Debug)]
pub struct AdminQueue {
    /// Its controller, new.
    pub controller: Controller,
    /// Entries of the queue.
    pub entries: u32,
    /// Whether CQEs carry SQHD; otherwise it is FFFFh.
    pub flow_control: bool,
}

/// A connected I/O queue: complete Connect with the controller's CNTLID as result.
#[derive(Clone, Debug)]
pub struct IoQueue {
    /// What it shares with its controller.
    pub shared: Arc<CtrlShared>,
    /// Its subsystem.
    pub subsystem: Arc<Subsystem>,
    /// Queue ID.
    pub qid: u16,
    /// Entries of the queue.
    pub entries: u32,
    /// Whether CQEs carry SQHD; otherwise it is FFFFh.
    pub flow_control: bool,
    /// The reactor of the controller, which is to call `Controller::io_queue_connected`.
    pub admin_reactor: usize,
}

impl ConnectError {
    fn status(status: Status) -> Self {
        Self { status, result: 0 }
    }

    /// A parameter in the SQE, at byte `offset`.
    fn sqe(offset: u16) -> Self {
        Self { status: Status::CONNECT_INVALID_PARAMETERS, result: offset.into() }
    }

    /// A parameter in the data, at byte `offset`.
    fn data(offset: u16) -> Self {
        Self { status: Status::CONNECT_INVALID_PARAMETERS, result: 1 << 16 | u32::from(offset) }
    }
}

/// Connect's data, converted.
struct Parsed {
    cntlid: u16,
    subnqn: String,
    host: HostIdentity,
}

impl Parsed {
    fn read(data: &[u8]) -> Result<Self, ConnectError> {
        if data.len() != CONNECT_DATA_LEN {
            return Err(ConnectError::status(Status::SGL_DATA_LENGTH_INVALID));
        }
        let raw = ConnectData::ref_from_bytes(data).expect("the length was checked");
        let subnqn = nqn(&raw.subnqn).ok_or_else(|| ConnectError::data(connect_data_offset::SUBNQN))?;
        let nqn = nqn(&raw.hostnqn).ok_or_else(|| ConnectError::data(connect_data_offset::HOSTNQN))?;
        Ok(Self { cntlid: raw.cntlid.get(), subnqn, host: HostIdentity { nqn, id: raw.hostid } })
    }
}

/// The text of a zero-terminated NQN field: 1 to 223 bytes of UTF-8.
fn nqn(field: &[u8; 256]) -> Option<String> {
    let length = field.iter().position(|&b| b == 0).filter(|length| (1..=NQN_MAX_LEN).contains(length))?;
    std::str::from_utf8(&field[..length]).ok().map(str::to_owned)
}

impl Registry {
    /// Connect of queue 0: makes a controller.
    ///
    /// # Errors
    /// What to complete the command with; nothing has changed then.
    pub fn connect_admin(
        &self,
        now: Instant,
        request: &ConnectRequest<'_>,
    ) -> Result<AdminQueue, ConnectError> {
        let fields = request.fields;
        check_format(fields)?;
        if fields.qid != 0 || request.transport.qid != 0 {
            return Err(ConnectError::sqe(connect_sqe_offset::QID));
        }
        let parsed = Parsed::read(request.data)?;
        if parsed.cntlid != CNTLID_ANY {
            return Err(ConnectError::data(connect_data_offset::CNTLID));
        }
        check_size(fields, request.transport.host_send_entries)?;
        let limits = self.limits;
        let mut state = self.lock();
        let subsystem = if parsed.subnqn == DISCOVERY_NQN {
            None
        } else {
            let subsystem = state
                .subsystems
                .get(&parsed.subnqn)
                .ok_or_else(|| ConnectError::data(connect_data_offset::SUBNQN))?;
            if !subsystem.hosts().allow(&parsed.host.nqn) {
                return Err(ConnectError::status(Status::CONNECT_INVALID_HOST));
            }
            Some(Arc::clone(subsystem))
        };
        let peer = peer_group(request.peer);
        let own = state.controllers.values().filter(|entry| entry.peer == peer).count();
        // A peer may have as many as it leaves to others, so that none can take them all.
        if own >= limits.max_controllers.saturating_sub(state.controllers.len()) {
            return Err(ConnectError::status(Status::CONNECT_CONTROLLER_BUSY));
        }
        let cntlid =
            state.allocate_cntlid().ok_or_else(|| ConnectError::status(Status::CONNECT_CONTROLLER_BUSY))?;
        let shared = Arc::new(CtrlShared::new(cntlid, limits.max_data));
        let entry = Entry {
            shared: Arc::clone(&shared),
            subsystem: subsystem.clone(),
            subnqn: parsed.subnqn,
            host: parsed.host.clone(),
            peer,
            reactor: request.reactor,
            write_cache_told: subsystem.as_ref().is_some_and(|s| s.namespaces().have_write_cache()),
            io_queues: BTreeMap::new(),
        };
        state.controllers.insert(cntlid, entry);
        let (host, kato_ms) = (parsed.host, fields.kato_ms);
        let controller = if let Some(subsystem) = subsystem {
            Controller::new_io(now, shared, subsystem, host, limits, kato_ms)
        } else {
            let view = DiscoveryView::new(Arc::clone(&self.discovery), request.local);
            Controller::new_discovery(now, shared, view, host, limits, kato_ms)
        };
        Ok(AdminQueue { controller, entries: fields.sq_entries, flow_control: flow_control(fields) })
    }

    /// Connect of an I/O queue: joins it to a controller.
    ///
    /// # Errors
    /// What to complete the command with; nothing has changed then.
    pub fn connect_io(&self, request: &ConnectRequest<'_>) -> Result<IoQueue, ConnectError> {
        let fields = request.fields;
        check_format(fields)?;
        let parsed = Parsed::read(request.data)?;
        let invalid_cntlid = || ConnectError::data(connect_data_offset::CNTLID);
        let mut state = self.lock();
        let entry = state.controllers.get_mut(&parsed.cntlid).ok_or_else(invalid_cntlid)?;
        // Discovery controllers have no I/O queues.
        let subsystem = entry.subsystem.clone().ok_or_else(invalid_cntlid)?;
        if ![0, parsed.cntlid].contains(&request.transport.cntlid) {
            return Err(invalid_cntlid());
        }
        if entry.subnqn != parsed.subnqn {
            return Err(ConnectError::data(connect_data_offset::SUBNQN));
        }
        if entry.host.nqn != parsed.host.nqn {
            return Err(ConnectError::data(connect_data_offset::HOSTNQN));
        }
        if entry.host.id != parsed.host.id {
            return Err(ConnectError::data(connect_data_offset::HOSTID));
        }
        if !subsystem.hosts().allow(&parsed.host.nqn) {
            return Err(ConnectError::status(Status::CONNECT_INVALID_HOST));
        }
        let qid = fields.qid;
        if !(1..=self.limits.max_io_queues).contains(&qid) || request.transport.qid != qid {
            return Err(ConnectError::sqe(connect_sqe_offset::QID));
        }
        check_size(fields, request.transport.host_send_entries.min(self.limits.max_queue_entries))?;
        entry.shared.check_ready().map_err(ConnectError::status)?;
        if entry.io_queues.contains_key(&qid) {
            return Err(ConnectError::status(Status::COMMAND_SEQUENCE_ERROR));
        }
        entry.io_queues.insert(qid, request.reactor);
        Ok(IoQueue {
            shared: Arc::clone(&entry.shared),
            subsystem,
            qid,
            entries: fields.sq_entries,
            flow_control: flow_control(fields),
            admin_reactor: entry.reactor,
        })
    }
}

fn check_format(fields: &ConnectFields) -> Result<(), ConnectError> {
    if fields.recfmt == 0 { Ok(()) } else { Err(ConnectError::status(Status::CONNECT_INCOMPATIBLE_FORMAT)) }
}

/// A queue holds at least two entries, and no more than the RDMA connection was made for.
fn check_size(fields: &ConnectFields, max: u32) -> Result<(), ConnectError> {
    if (MIN_ENTRIES..=max).contains(&fields.sq_entries) {
        Ok(())
    } else {
        Err(ConnectError::sqe(connect_sqe_offset::SQSIZE))
    }
}

fn flow_control(fields: &ConnectFields) -> bool {
    fields.cattr & CATTR_DISABLE_SQFC == 0
}
