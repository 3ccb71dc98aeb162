//! What goes beyond one session: task management, commands that abort others', and sessions that end because of others.

use std::sync::Arc;

use rwctx::device::Device;

use super::Common;
use super::connection::{Connection, Phase};
use super::exec::Outcome;
use super::notice::{Abort, Notice, Origin, Waiter, Waits};
use super::request::{Ended, Work};
use crate::iscsi::session::{Manage, ManageId};
use crate::iscsi::wire::number::Lun;
use crate::iscsi::wire::task::{TaskFunction, TaskResponseCode};
use crate::reactor::Message;
use crate::scsi::lun::{Action, ChangeId};
use crate::scsi::nexus::NexusId;
use crate::scsi::reservations::Saved;
use crate::scsi::sense::code;
use crate::scsi::status::Status;
use crate::transport::Event;
use crate::transport::core::Core;

impl Connection {
    /// Something happened to sessions or targets.
    pub(super) fn notice<D: Device>(&mut self, core: &mut Core<D>, common: &mut Common, notice: &Notice) {
        if self.is_closing() {
            return;
        }
        match notice {
            Notice::Changed => self.targets_changed(core, common),
            Notice::End(tsih) if self.place.is_some_and(|place| place.tsih == *tsih) => {
                core.close_later(self.index);
            }
            Notice::Ended => {
                self.try_attach(common);
                self.run_login(core, common);
            }
            Notice::Abort(abort) => self.abort_for(core, common, abort),
            Notice::Aborted(origin) if self.is_at(origin) => self.aborted(core, common, origin.what),
            Notice::Stored(origin, change, action) if self.is_at(origin) => {
                if let Waits::Command(id) = origin.what {
                    self.stored(core, common, id, *change, action);
                }
            }
            Notice::Cold(target) => {
                let own = self.attached.as_ref().filter(|own| Arc::ptr_eq(&own.target, target));
                if own.is_some() && !self.is_ending() {
                    core.close_later(self.index);
                }
            }
            Notice::End(_) | Notice::Aborted(_) | Notice::Stored(..) => {}
        }
    }

    /// Looks whether the session may go on, and lets go of volumes that are gone.
    fn targets_changed<D: Device>(&mut self, core: &mut Core<D>, common: &Common) {
        let (Phase::Session(logged), Some(attached)) = (&mut self.phase, &self.attached) else { return };
        let Some(name) = &logged.target else { return };
        if common.registry.is_current(&logged.initiator, name, &attached.target) {
            attached.target.renew(&mut logged.view, attached.id);
        } else {
            tracing::info!(peer = %self.peer, initiator = %logged.initiator, target = %name, "iSCSI session ended by the configuration");
            core.close_later(self.index);
        }
    }

    /// Does what a task management function asks for beyond the session's own tasks.
    pub(super) fn manage<D: Device>(&mut self, core: &mut Core<D>, common: &Common, manage: Manage) {
        let Manage { id, function, lun } = manage;
        let Some(attached) = self.attached.clone() else {
            return self.managed(id, TaskResponseCode::NotSupported);
        };
        let target = &attached.target;
        let whole = matches!(function, TaskFunction::TargetWarmReset | TaskFunction::TargetColdReset);
        if !whole && !target.has_unit(lun.0) {
            return self.managed(id, TaskResponseCode::NoSuchLun);
        }
        match function {
            TaskFunction::LogicalUnitReset => {
                target.reset_unit(lun.0);
            }
            TaskFunction::TargetWarmReset => target.reset(),
            TaskFunction::TargetColdReset => {
                target.reset();
                core.events.push(Event::Iscsi(Notice::Cold(Arc::clone(target))));
            }
            TaskFunction::ClearTaskSet => {}
            // Only this session's own tasks.
            _ => return self.managed(id, TaskResponseCode::Complete),
        }
        let Some(waiter) = self.waiter(common, Waits::Management(id)) else { return };
        core.events.push(Event::Iscsi(Notice::Abort(Abort {
            target: Arc::clone(target),
            nexuses: None,
            by: attached.id,
            lun: (!whole).then_some(lun.0),
            tell: function == TaskFunction::ClearTaskSet,
            waiter,
        })));
    }

    /// A command of this session's has the commands of other nexuses aborted, and waits for it.
    pub(super) fn abort_others<D: Device>(
        &mut self,
        core: &mut Core<D>,
        common: &Common,
        id: u32,
        nexuses: Vec<NexusId>,
    ) {
        let (Some(attached), Some(waiter)) = (self.attached.clone(), self.waiter(common, Waits::Command(id)))
        else {
            return;
        };
        core.events.push(Event::Iscsi(Notice::Abort(Abort {
            target: attached.target,
            nexuses: Some(nexuses),
            by: attached.id,
            lun: Some(self.requests[id as usize].lun),
            tell: false,
            waiter,
        })));
    }

    /// A command's change of reservations is to be stored, and the command waits for it.
    pub(super) fn store(
        &self,
        common: &Common,
        id: u32,
        change: ChangeId,
        saved: Box<Saved>,
    ) -> Result<(), Ended> {
        let (Some(attached), Some(place)) = (&self.attached, self.place) else {
            return Err(code::INTERNAL_TARGET_FAILURE.into());
        };
        let origin = Origin { connection: self.index, tsih: place.tsih, what: Waits::Command(id) };
        let postbox = common.postbox.clone();
        attached.target.store(self.requests[id as usize].lun, change, saved, move |action| {
            postbox.post(Message::Iscsi(Notice::Stored(origin, change, Box::new(action))));
        });
        Ok(())
    }

    /// A command's change was stored, or was not. The command may have been aborted meanwhile.
    fn stored<D: Device>(
        &mut self,
        core: &mut Core<D>,
        common: &mut Common,
        id: u32,
        change: ChangeId,
        action: &Action,
    ) {
        let request = &mut self.requests[id as usize];
        let waits = matches!(request.work, Work::Store(waits) if waits == change);
        if !waits || request.task.is_none() {
            return;
        }
        let length = request.length;
        match action {
            Action::Settle { abort } => {
                request.work = Work::Settle;
                self.abort_others(core, common, id, abort.clone());
            }
            Action::Done(response) if response.status == Status::Good => self.resume(core, common, id),
            Action::Done(response) => {
                let ended = Ended { status: response.status, sense: response.sense, length };
                self.finish(core, common, id, &ended);
            }
            // What was stored moves nothing.
            _ => {
                let ended = Ended { length, ..code::INTERNAL_TARGET_FAILURE.into() };
                self.finish(core, common, id, &ended);
            }
        }
    }

    /// The step in which a command waits for the end of others, or for the store.
    pub(super) fn settle(&self, id: u32) -> Outcome {
        let waits = matches!(self.requests[id as usize].work, Work::Settle | Work::Store(_));
        debug_assert!(waits, "only such commands settle");
        Outcome::Wait
    }

    fn waiter(&self, common: &Common, what: Waits) -> Option<Arc<Waiter>> {
        let origin = Origin { connection: self.index, tsih: self.place?.tsih, what };
        Some(Waiter::new(origin, &common.postbox))
    }

    fn is_at(&self, origin: &Origin) -> bool {
        self.index == origin.connection && self.place.is_some_and(|place| place.tsih == origin.tsih)
    }

    /// Tasks of others that this session waited for have ended.
    fn aborted<D: Device>(&mut self, core: &mut Core<D>, common: &mut Common, what: Waits) {
        match what {
            Waits::Management(id) => {
                self.managed(id, TaskResponseCode::Complete);
                self.run_session(core, common, &mut None);
            }
            Waits::Command(id) => {
                if matches!(self.requests[id as usize].work, Work::Settle) {
                    self.resume(core, common, id);
                }
            }
        }
    }

    fn managed(&mut self, id: ManageId, code: TaskResponseCode) {
        if let Phase::Session(logged) = &mut self.phase {
            logged.session.handle_managed(id, code);
        }
    }

    /// Ends tasks of this session for somebody else. Those whose response is on its way have ended.
    fn abort_for<D: Device>(&mut self, core: &mut Core<D>, common: &mut Common, abort: &Abort) {
        let Some(own) = &self.attached else { return };
        let concerned = Arc::ptr_eq(&own.target, &abort.target)
            && match &abort.nexuses {
                Some(nexuses) => nexuses.contains(&own.id),
                None => own.id != abort.by,
            };
        if !concerned {
            return;
        }
        let own = own.clone();
        let Phase::Session(logged) = &mut self.phase else { return };
        let lun = abort.lun;
        let ended = logged.session.abort_for_others(|of: Lun| lun.is_none_or(|lun| of.0 == lun));
        if ended == 0 {
            return;
        }
        if let (true, Some(lun)) = (abort.tell, lun) {
            own.target.commands_cleared(own.id, lun);
        }
        self.run_session(core, common, &mut None);
        for task in &self.aborts {
            if let Some(id) = self.tasks[task.index()] {
                self.requests[id as usize].waiters.push(Arc::clone(&abort.waiter));
            }
        }
        // Those that were being aborted before are waited for, too.
        for request in self.requests.iter_mut().filter(|request| request.aborted && request.task.is_some()) {
            if lun.is_none_or(|lun| request.lun == lun) {
                request.waiters.push(Arc::clone(&abort.waiter));
            }
        }
        self.abort_tasks(core, common);
    }
}
