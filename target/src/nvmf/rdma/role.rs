//! What Connect made of a queue.

use std::sync::Arc;

use super::exec::Work;
use super::queue::Request;
use crate::nvmf::controller::{Controller, CtrlShared};
use crate::nvmf::subsystem::{NamespacesCache, Subsystem};
use crate::nvmf::validate::{BlockOp, IoPlan};
use crate::nvmf::wire::status::Status;
use crate::transport::stats::Stats;

/// What a queue is for.
#[derive(Debug)]
pub(super) enum Role {
    /// Not connected yet: Connect is the only command.
    New,
    /// The admin queue of a controller, which lives with it.
    Admin(Box<Controller>),
    /// An I/O queue of a controller.
    Io(IoRole),
}

/// An I/O queue's view of its controller.
#[derive(Debug)]
pub(super) struct IoRole {
    pub(super) shared: Arc<CtrlShared>,
    pub(super) subsystem: Arc<Subsystem>,
    /// Its namespaces. What is seen is new at once; what was seen before is let go of when it is looked at again, at the
    /// latest at the next tick.
    pub(super) namespaces: NamespacesCache,
    pub(super) qid: u16,
}

impl Role {
    /// The controller that the queue belongs to.
    pub(super) fn cntlid(&self) -> Option<u16> {
        self.shared().map(|shared| shared.cntlid())
    }

    /// Counts a command that is answered now.
    pub(super) fn count(&self, request: &Request, reactor: usize, stats: &Stats) {
        let (Self::Io(role), Work::Io(io)) = (self, &request.work) else { return };
        let counters = role.subsystem.counters(reactor);
        let status = request.status.code();
        if status == Status::UNRECOVERED_READ_ERROR.code() || io.failed_on_medium {
            counters.media_error();
        }
        if !request.status.is_success() {
            return;
        }
        let IoPlan::Blocks(plan) = &io.plan else { return };
        match plan.op {
            BlockOp::Read => {
                counters.read(plan.data_len);
                stats.bytes_to_host.add(plan.data_len.into());
            }
            BlockOp::Compare => counters.read(plan.data_len),
            BlockOp::Write => {
                counters.written(plan.data_len);
                stats.bytes_from_host.add(plan.data_len.into());
            }
            BlockOp::Verify | BlockOp::WriteZeroes | BlockOp::Deallocate => {}
        }
    }

    /// What the controller's queues share.
    pub(super) fn shared(&self) -> Option<&Arc<CtrlShared>> {
        match self {
            Self::New => None,
            Self::Admin(controller) => Some(controller.shared()),
            Self::Io(role) => Some(&role.shared),
        }
    }
}
