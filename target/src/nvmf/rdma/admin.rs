//! Fabrics and admin commands, and what controllers do by themselves: events, keep-alive, the end.

use std::sync::Arc;

use rwctx::device::Device;
use zerocopy::FromBytes;

use super::exec::{Outcome, Work};
use super::queue::Queue;
use super::role::{IoRole, Role};
use crate::block::Volume;
use crate::nvmf::command::{AdminCommand, DataPointer, FabricsCommand, FabricsOp};
use crate::nvmf::controller::{AdminOutcome, DataLengths, Effect, ErrorRecord};
use crate::nvmf::registry::{ConnectError, ConnectRequest};
use crate::nvmf::wire::fabrics::{CONNECT_DATA_LEN, ConnectData};
use crate::nvmf::wire::sqe::admin_opcode;
use crate::nvmf::wire::status::Status;
use crate::request::Kind;
use crate::transport::core::Core;

/// Bytes of Connect's data.
const CONNECT_DATA: u32 = 1024;
const _: () = assert!(CONNECT_DATA as usize == CONNECT_DATA_LEN);

/// The names of host and subsystem in Connect's data, as a log can take them: whoever connects chose every byte.
fn connect_names(data: &[u8]) -> (String, String) {
    let Ok((data, _)) = ConnectData::ref_from_prefix(data) else { return Default::default() };
    let name = |field: &[u8; 256]| {
        let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
        field[..end].escape_ascii().to_string()
    };
    (name(&data.hostnqn), name(&data.subnqn))
}

/// A Fabrics command under way.
#[derive(Debug)]
pub(super) struct FabricsWork {
    command: FabricsCommand,
    /// Volumes whose writes a shutdown still has to make durable.
    pub(super) flush: Vec<Arc<Volume>>,
}

/// An admin command under way.
#[derive(Debug)]
pub(super) struct AdminWork {
    pub(super) command: AdminCommand,
    pub(super) lengths: DataLengths,
}

impl FabricsWork {
    /// Bytes that it fetches.
    pub(super) fn data_length(&self) -> u32 {
        if matches!(self.command.op, FabricsOp::Connect(_)) { CONNECT_DATA } else { 0 }
    }
}

impl AdminWork {
    /// Bytes of its buffer.
    pub(super) fn data_length(&self) -> u32 {
        let length = self.lengths.from_host.max(self.lengths.to_host);
        u32::try_from(length).expect("at most what its SGL says, which is a u32")
    }
}

impl Queue {
    /// Checks a Fabrics command and says how it is done.
    pub(super) fn prepare_fabrics(&self, command: FabricsCommand) -> Result<(Kind, Work), Status> {
        let kind = match (&command.op, &self.role) {
            (FabricsOp::Connect(_), Role::New) => {
                if command.dptr.length() as usize != CONNECT_DATA_LEN {
                    return Err(Status::SGL_DATA_LENGTH_INVALID);
                }
                Kind::FromHost
            }
            (FabricsOp::PropertyGet { .. }, Role::Admin(_)) => Kind::Plain,
            (FabricsOp::PropertySet { .. }, Role::Admin(_)) => Kind::PropertySet,
            (FabricsOp::PropertyGet { .. } | FabricsOp::PropertySet { .. }, Role::Io(_)) => {
                return Err(Status::INVALID_OPCODE);
            }
            (FabricsOp::Connect(_), Role::Admin(_) | Role::Io(_)) | (_, Role::New) => {
                return Err(Status::COMMAND_SEQUENCE_ERROR);
            }
        };
        Ok((kind, Work::Fabrics(FabricsWork { command, flush: Vec::new() })))
    }

    /// Checks an admin command and says how it is done.
    pub(super) fn prepare_admin(&self, command: AdminCommand) -> Result<(Kind, Work), Status> {
        let Role::Admin(controller) = &self.role else { return Err(Status::COMMAND_SEQUENCE_ERROR) };
        let lengths = controller.data_lengths(&command)?;
        if lengths.to_host > 0 && matches!(command.dptr, DataPointer::InCapsule { .. }) {
            return Err(Status::INVALID_FIELD);
        }
        let kind = match lengths {
            DataLengths { from_host: 0, to_host: 0 } => Kind::Plain,
            DataLengths { from_host: 0, .. } => Kind::ToHost,
            DataLengths { .. } => Kind::FromHost,
        };
        Ok((kind, Work::Admin(AdminWork { command, lengths })))
    }

    /// Carries out an admin command whose data is here.
    pub(super) fn execute_admin<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Outcome {
        let request = &mut self.requests[id as usize];
        let (Work::Admin(work), Role::Admin(controller)) = (&request.work, &mut self.role) else {
            return Outcome::Fail(Status::INTERNAL_ERROR);
        };
        let fetched;
        let (data, out): (&[u8], &mut [u8]) = match &mut request.data {
            Some(buf) if work.lengths.from_host > 0 => {
                fetched = buf;
                (fetched.bytes(), &mut [])
            }
            Some(buf) => {
                let out = buf.bytes_mut();
                out.fill(0);
                (&[], out)
            }
            None => (&[], &mut []),
        };
        let outcome = controller.admin(core.now, &work.command, data, out);
        let outcome = match outcome {
            AdminOutcome::Pend => Outcome::Wait,
            AdminOutcome::Complete { status, result, data_len } => {
                request.result = result;
                request.send_length = u32::try_from(data_len).expect("at most the length of the buffer");
                request.error_logged = true;
                if status.is_success() { Outcome::Done } else { Outcome::Fail(status) }
            }
        };
        self.complete_async_events(core);
        outcome
    }

    /// Carries out a Fabrics command whose data is here.
    pub(super) fn execute_fabrics<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Outcome {
        let request = &mut self.requests[id as usize];
        let Work::Fabrics(work) = &mut request.work else { return Outcome::Fail(Status::INTERNAL_ERROR) };
        if let FabricsOp::Connect(_) = work.command.op {
            return match self.connect(core, id) {
                Ok(cntlid) => {
                    self.requests[id as usize].result = cntlid.into();
                    Outcome::Done
                }
                Err(error) => {
                    core.stats.refused_connects.add(1);
                    let data = self.requests[id as usize].data.as_ref();
                    core.warn(|| {
                        let (host, subsystem) = connect_names(data.map_or(&[], |data| data.bytes()));
                        tracing::warn!(peer = %self.peer, status = %error.status, parameter = error.result, host, subsystem, "Connect refused");
                    });
                    self.requests[id as usize].result = error.result.into();
                    Outcome::Fail(error.status)
                }
            };
        }
        let Role::Admin(controller) = &mut self.role else { return Outcome::Fail(Status::INTERNAL_ERROR) };
        let done = controller.fabrics(&work.command);
        request.result = done.result;
        request.error_logged = true;
        match done.effect {
            Some(Effect::Reset) => core.resets.push(controller.cntlid()),
            Some(Effect::FlushForShutdown) => {
                if let Some(subsystem) = controller.io_subsystem() {
                    work.flush = subsystem.namespaces().iter().map(|ns| Arc::clone(ns.volume())).collect();
                }
                if work.flush.is_empty() {
                    controller.shutdown_complete();
                }
            }
            None => {}
        }
        self.complete_async_events(core);
        if done.status.is_success() { Outcome::Done } else { Outcome::Fail(done.status) }
    }

    /// The next volume to flush at a shutdown, if there is one; otherwise the shutdown is complete.
    pub(super) fn next_flush(&mut self, id: u32) -> bool {
        let Work::Fabrics(work) = &mut self.requests[id as usize].work else { return false };
        if work.flush.pop().is_none() {
            return false;
        }
        let more = !work.flush.is_empty();
        if !more && let Role::Admin(controller) = &mut self.role {
            controller.shutdown_complete();
        }
        more
    }

    /// A flush of a shutdown failed. The command's status says so; the shutdown ends all the same, for a host that waits
    /// for CSTS.SHST would wait for ever.
    pub(super) fn abandon_flush<D: Device>(&mut self, core: &mut Core<D>, id: u32) {
        let Work::Fabrics(work) = &mut self.requests[id as usize].work else { return };
        if work.flush.is_empty() {
            return;
        }
        core.warn_of_medium(
            || tracing::error!(peer = %self.peer, "a volume could not be flushed at a controller's shutdown"),
        );
        work.flush.clear();
        if let Role::Admin(controller) = &mut self.role {
            controller.shutdown_complete();
        }
    }

    fn connect<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Result<u16, ConnectError> {
        let request = &self.requests[id as usize];
        let (Work::Fabrics(FabricsWork { command, .. }), Some(data)) = (&request.work, &request.data) else {
            return Err(ConnectError { status: Status::INTERNAL_ERROR, result: 0 });
        };
        let FabricsOp::Connect(fields) = &command.op else {
            return Err(ConnectError { status: Status::INTERNAL_ERROR, result: 0 });
        };
        // Several may have been under way when there was no controller yet: the first one makes it.
        if !matches!(self.role, Role::New) {
            return Err(ConnectError { status: Status::COMMAND_SEQUENCE_ERROR, result: 0 });
        }
        let connect = ConnectRequest {
            fields,
            data: data.bytes(),
            transport: &self.request,
            local: self.local,
            peer: self.peer,
            reactor: core.reactor,
        };
        if self.request.qid == 0 {
            let admin = core.registry.connect_admin(core.now, &connect)?;
            let cntlid = admin.controller.cntlid();
            core.warn(|| tracing::info!(peer = %self.peer, cntlid, host = admin.controller.host().nqn, subsystem = admin.controller.io_subsystem().map_or("discovery", |s| s.nqn()), "controller created"));
            self.sq_head.connect(admin.entries, admin.flow_control);
            self.role = Role::Admin(Box::new(admin.controller));
            return Ok(cntlid);
        }
        let io = core.registry.connect_io(&connect)?;
        self.sq_head.connect(io.entries, io.flow_control);
        let cntlid = io.shared.cntlid();
        core.io_connected.push((cntlid, io.admin_reactor));
        let namespaces = io.subsystem.cached_namespaces();
        self.role = Role::Io(IoRole { shared: io.shared, subsystem: io.subsystem, namespaces, qid: io.qid });
        Ok(cntlid)
    }

    /// An I/O queue of this queue's controller was connected somewhere.
    pub(super) fn io_queue_connected(&mut self) {
        if let Role::Admin(controller) = &mut self.role {
            controller.io_queue_connected();
        }
    }

    /// Takes notices of the control plane; events that follow complete their requests.
    pub(super) fn take_async_events<D: Device>(&mut self, core: &mut Core<D>) {
        if let Role::Admin(controller) = &mut self.role {
            controller.handle_notices();
            self.complete_async_events(core);
        }
    }

    fn complete_async_events<D: Device>(&mut self, core: &mut Core<D>) {
        loop {
            let Role::Admin(controller) = &mut self.role else { return };
            let Some(event) = controller.poll_event_completion() else { return };
            let waiting = self
                .requests
                .iter()
                .position(|request| request.cid == event.cid && request.is_event_request());
            if let Some(id) = waiting.and_then(|id| u32::try_from(id).ok()) {
                let request = &mut self.requests[id as usize];
                request.result = event.result.into();
                request.error_logged = true;
                if let Some(progress) = &mut request.progress {
                    progress.done();
                }
                self.finish(core, id, event.status);
            }
        }
    }

    /// Time has passed.
    pub(super) fn tick<D: Device>(&mut self, core: &mut Core<D>) {
        if self.is_overdue(core.now) {
            core.stats.abandoned_queues.add(1);
            core.warn(|| tracing::warn!(peer = %self.peer, "no Connect on a new queue"));
            core.close_later(self.index);
        }
        if self.is_stuck(core.now) {
            core.stats.stuck_queues.add(1);
            core.warn(|| tracing::warn!(peer = %self.peer, qpn = self.qpn.0, qid = self.request.qid, "the host does not take its data or completions"));
            core.close_later(self.index);
        }
        if let Role::Io(role) = &mut self.role {
            // Volumes that are gone from the configuration are let go of.
            role.namespaces.load();
        }
        if let Role::Admin(controller) = &mut self.role
            && controller.next_timeout().is_some_and(|due| due <= core.now)
            && controller.handle_timeout(core.now).is_some()
        {
            core.warn(|| tracing::warn!(peer = %self.peer, cntlid = controller.cntlid(), host = controller.host().nqn, "keep-alive timer expired"));
            core.close_later(self.index);
        }
    }

    /// The controller that the queue belongs to.
    pub(super) fn cntlid(&self) -> Option<u16> {
        self.role.cntlid()
    }

    /// Whether the queue is an I/O queue of the controller.
    pub(super) fn is_io_of(&self, cntlid: u16) -> bool {
        matches!(&self.role, Role::Io(role) if role.shared.cntlid() == cntlid)
    }

    /// The queue is closed: its place in the controller is free. Returns the controller that ends with it.
    pub(super) fn leave_controller<D: Device>(&mut self, core: &mut Core<D>) -> Option<u16> {
        match std::mem::replace(&mut self.role, Role::New) {
            Role::New => None,
            Role::Io(role) => {
                core.registry.remove_io_queue(role.shared.cntlid(), role.qid);
                None
            }
            Role::Admin(controller) => {
                let cntlid = controller.cntlid();
                core.registry.remove_controller(cntlid);
                core.warn(|| tracing::info!(peer = %self.peer, cntlid, host = controller.host().nqn, "controller removed"));
                Some(cntlid)
            }
        }
    }

    /// Counts a failed command and puts it into the error log, unless the controller did.
    pub(super) fn note_error<D: Device>(&mut self, core: &Core<D>, id: u32, status: Status) {
        core.stats.failed_commands.add(1);
        let request = &self.requests[id as usize];
        if request.error_logged {
            return;
        }
        let Some(shared) = self.role.shared() else { return };
        let (opcode, nsid, lba) = match &request.work {
            Work::Io(io) => (io.opcode, io.namespace.nsid(), io.failed_lba),
            Work::Admin(work) => (work.command.opcode, work.command.nsid, None),
            Work::Fabrics(_) => (admin_opcode::FABRICS, 0, None),
            Work::None | Work::Refused => (request.opcode, request.nsid, None),
        };
        let record = ErrorRecord::new(self.request.qid, request.cid, opcode, nsid, status);
        shared.log_error(&lba.map_or(record, |lba| record.at_lba(lba)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_a_connect_cannot_forge_log_lines() {
        let mut data = vec![0; CONNECT_DATA_LEN];
        data[256..265].copy_from_slice(b"nqn.x:sub");
        data[512..520].copy_from_slice(b"nqn\n\xff\0:h");
        assert_eq!(connect_names(&data), ("nqn\\n\\xff".to_owned(), "nqn.x:sub".to_owned()));
        data[256..512].fill(b'a');
        assert_eq!(connect_names(&data).1, "a".repeat(256));
        assert_eq!(connect_names(&data[..100]), Default::default(), "cut short");
    }
}
