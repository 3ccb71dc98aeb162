//! Task management (RFC 7143 sections 4.2.3, 11.5, 11.6).

use super::super::wire::bhs::{Numbers, Order};
use super::super::wire::number::{Itt, Lun};
use super::super::wire::reject::RejectReason;
use super::super::wire::task::{TaskFunction, TaskRequest, TaskResponse, TaskResponseCode};
use super::{Action, Session};

/// Functions under way at once: a bit each in what a task knows of who waits for its end.
const UNDER_WAY_MAX: usize = 8;

/// A task management function under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManageId(u8);

/// A function that concerns more than this session's tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manage {
    /// What [`Session::handle_managed`] is told.
    pub id: ManageId,
    /// ABORT TASK SET and CLEAR TASK SET, whose logical unit may not exist; LOGICAL UNIT RESET; the target's resets.
    pub function: TaskFunction,
    /// The logical unit; of no meaning to the target's resets.
    pub lun: Lun,
}

#[derive(Clone, Copy, Debug)]
struct Management {
    itt: Itt,
    /// This session's tasks that must end first.
    waiting: u16,
    /// What is answered then.
    code: Option<TaskResponseCode>,
    function: TaskFunction,
}

/// A response that waits for its numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Finished {
    code: TaskResponseCode,
    itt: Itt,
}

impl Finished {
    pub(super) fn with(self, numbers: Numbers) -> TaskResponse {
        TaskResponse { code: self.code, itt: self.itt, numbers }
    }
}

/// The functions under way.
#[derive(Debug, Default)]
pub(super) struct Managements([Option<Management>; UNDER_WAY_MAX]);

impl Managements {
    /// The function that waits for a task whose `waiters` these were has one less to wait for.
    pub(super) fn task_ended(&mut self, waiters: u8) {
        for (at, management) in self.0.iter_mut().enumerate() {
            if let Some(management) = management
                && waiters & 1 << at != 0
            {
                management.waiting -= 1;
            }
        }
    }

    /// What is answered when all tasks have ended.
    pub(super) fn decide(&mut self, id: ManageId, code: TaskResponseCode) {
        if let Some(Some(management)) = self.0.get_mut(usize::from(id.0)) {
            management.code = Some(code);
        }
    }

    /// The next function that is through, and whether it ends the session.
    pub(super) fn poll_finished(&mut self) -> Option<(Finished, bool)> {
        self.0.iter_mut().find_map(|slot| {
            let Management { itt, waiting: 0, code: Some(code), function } = (*slot)? else { return None };
            *slot = None;
            let cold = function == TaskFunction::TargetColdReset && code == TaskResponseCode::Complete;
            Some((Finished { code, itt }, cold))
        })
    }

    fn free(&self) -> Option<u8> {
        let at = self.0.iter().position(Option::is_none)?;
        u8::try_from(at).ok()
    }
}

impl Session {
    pub(super) fn handle_task_request(&mut self, request: &TaskRequest) -> Result<(), RejectReason> {
        if request.itt == Itt::NONE {
            return Err(RejectReason::InvalidField);
        }
        let Some(slot) = self.managements.free() else {
            // A host that waits for no answer.
            return Err(if request.order.immediate {
                RejectReason::TooManyImmediate
            } else {
                RejectReason::ProtocolError
            });
        };
        self.take_answered(request.order);
        let waiter = 1 << slot;
        let lun = request.lun;
        let (waiting, code) = match request.function {
            TaskFunction::AbortTask => self.abort_task(request, waiter),
            TaskFunction::AbortTaskSet | TaskFunction::ClearTaskSet | TaskFunction::LogicalUnitReset => {
                (self.abort(waiter, |of| of == lun), None)
            }
            TaskFunction::TargetWarmReset | TaskFunction::TargetColdReset => {
                (self.abort(waiter, |_| true), None)
            }
            TaskFunction::TaskReassign => (0, Some(TaskResponseCode::ReassignNotSupported)),
            TaskFunction::ClearAca | TaskFunction::Unknown(_) => (0, Some(TaskResponseCode::NotSupported)),
        };
        let (itt, function) = (request.itt, request.function);
        self.managements.0[usize::from(slot)] = Some(Management { itt, waiting, code, function });
        if code.is_none() {
            self.actions.push_back(Action::Manage(Manage { id: ManageId(slot), function, lun }));
        }
        self.answer_managements();
        Ok(())
    }

    /// The tasks to wait for, one or none, and what is answered then.
    fn abort_task(&mut self, request: &TaskRequest, waiter: u8) -> (u16, Option<TaskResponseCode>) {
        let found = self.tasks.find(request.referenced);
        let found = found.filter(|id| self.tasks.get_mut(*id).lun == request.lun);
        let Some(id) = found else {
            // A task that never came, because it was rejected: its number counts as received now (section 11.5.5).
            let lost =
                request.ref_cmd_sn == self.window.expected() && self.window.contains(request.ref_cmd_sn);
            if !lost {
                return (0, Some(TaskResponseCode::NoSuchTask));
            }
            self.take_answered(Order { immediate: false, ..request.order });
            return (0, Some(TaskResponseCode::Complete));
        };
        let task = self.tasks.get_mut(id);
        task.waiters |= waiter;
        if !task.aborted {
            task.aborted = true;
            self.actions.push_back(Action::AbortTask(id));
        }
        (1, Some(TaskResponseCode::Complete))
    }
}
