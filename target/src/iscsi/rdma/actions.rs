//! Drives the full feature phase of a session: does what it says, in order.

use rwctx::device::Device;

use super::Common;
use super::connection::{Connection, Phase};
use super::request::{Arrived, Ended};
use crate::iscsi::session::{Action, Command, Done, SessionClose, TaskId, Transfer};
use crate::iscsi::wire::pdu::Pdu;
use crate::scsi::sense::{SenseData, SenseFormat, code};
use crate::transport::core::Core;

impl Connection {
    /// Does what the session says; tasks that are to start or to end are remembered. `arrived` is the message that a command
    /// may have come with: taken if its data is needed.
    pub(super) fn run_session<D: Device>(
        &mut self,
        core: &mut Core<D>,
        common: &mut Common,
        arrived: &mut Option<Arrived>,
    ) {
        while let Phase::Session(logged) = &mut self.phase
            && let Some(action) = logged.session.poll_action()
        {
            self.act(core, common, action, arrived);
        }
    }

    fn act<D: Device>(
        &mut self,
        core: &mut Core<D>,
        common: &mut Common,
        action: Action,
        arrived: &mut Option<Arrived>,
    ) {
        match action {
            Action::Send(outgoing) if matches!(outgoing.pdu, Pdu::ScsiResponse(_)) => {
                // Only a task that has just ended is answered.
                if let Some(id) = self.answering.take() {
                    self.respond(core, id, outgoing);
                }
            }
            Action::Send(outgoing) => self.send(core, outgoing),
            Action::StartCommand(command) => {
                let came_along = has_immediate(&command);
                self.commands.push_back((command, arrived.take_if(|_| came_along)));
            }
            Action::AbortTask(task) => self.aborts.push(task),
            Action::Manage(manage) => self.manage(core, common, manage),
            Action::Close(why) => {
                self.log_close(core, common, why);
                self.end_soon(core);
            }
        }
    }

    /// Ends the tasks that are to end: one that waits for nothing of the host's or the medium's ends at once.
    pub(super) fn abort_tasks<D: Device>(&mut self, core: &mut Core<D>, common: &mut Common) {
        while let Some(task) = self.aborts.pop() {
            common.stats.aborted_commands.add(1);
            if let Some(id) = self.tasks[task.index()] {
                self.requests[id as usize].aborted = true;
                self.end_if_aborted(core, common, id);
            } else if let Some(at) = self.commands.iter().position(|(command, _)| command.task == task) {
                // It was not started yet.
                if let Some((_, Some(arrived))) = self.commands.remove(at) {
                    self.repost(core, arrived);
                }
                self.done(
                    core,
                    common,
                    task,
                    None,
                    &Ended::from(code::INTERNAL_TARGET_FAILURE),
                    SenseFormat::Fixed,
                );
            }
        }
    }

    /// Tells the session how a task ended; `id` is its request, which sends the response. Whether there is one to send.
    pub(super) fn done<D: Device>(
        &mut self,
        core: &mut Core<D>,
        common: &mut Common,
        task: TaskId,
        id: Option<u32>,
        ended: &Ended,
        format: SenseFormat,
    ) -> bool {
        self.tasks[task.index()] = None;
        let Phase::Session(logged) = &mut self.phase else { return false };
        let sense = ended.sense.map(|sense| sense.emit(format));
        let sense = sense.as_ref().map_or(&[][..], SenseData::as_bytes);
        logged
            .session
            .handle_done(task, Done::Status { status: ended.status.code(), sense, length: ended.length });
        self.answering = id;
        self.run_session(core, common, &mut None);
        self.answering.take().is_none() && id.is_some()
    }

    fn log_close<D: Device>(&self, core: &mut Core<D>, common: &Common, why: SessionClose) {
        let Phase::Session(logged) = &self.phase else { return };
        let (peer, initiator) = (self.peer, logged.initiator.as_str());
        match why {
            SessionClose::LoggedOut | SessionClose::Idle | SessionClose::ColdReset => {
                tracing::debug!(%peer, initiator, %why, "iSCSI session ended");
            }
            why => {
                common.stats.failed_sessions.add(1);
                core.warn(|| tracing::warn!(%peer, initiator, %why, "iSCSI session closed"));
            }
        }
    }
}

/// Whether data came along with a command.
fn has_immediate(command: &Command) -> bool {
    matches!(&command.data, Transfer::FromHost { immediate, .. } if !immediate.is_empty())
}
