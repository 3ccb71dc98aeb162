//! What connections of all reactors are told of sessions and targets.

use std::fmt;
use std::sync::Arc;

use crate::iscsi::wire::login::Tsih;
use crate::reactor::Message;
use crate::reactor::mailbox::Postbox;
use crate::scsi::lun::{Action, ChangeId};
use crate::scsi::nexus::NexusId;
use crate::scsi::shared::SharedTarget;

/// Something that happened to sessions or targets.
#[derive(Clone, Debug)]
pub enum Notice {
    /// Targets changed: sessions with those that are gone end.
    Changed,
    /// A session is to end, for another one replaces it.
    End(Tsih),
    /// A session ended, with all of its tasks.
    Ended,
    /// Tasks are to be aborted.
    Abort(Abort),
    /// The tasks that somebody on this reactor had aborted have ended.
    Aborted(Origin),
    /// What follows for a command whose change of reservations was stored, or was not.
    Stored(Origin, ChangeId, Box<Action>),
    /// All sessions of a target are to end.
    Cold(Arc<SharedTarget>),
}

/// Tasks to abort.
#[derive(Clone, Debug)]
pub struct Abort {
    /// Of sessions with this target.
    pub(super) target: Arc<SharedTarget>,
    /// Of these nexuses; none: of all but the one that asks.
    pub(super) nexuses: Option<Vec<NexusId>>,
    /// The one that asks.
    pub(super) by: NexusId,
    /// In this unit; none: in all.
    pub(super) lun: Option<[u8; 8]>,
    /// Whether nexuses that lose commands are told.
    pub(super) tell: bool,
    /// Kept until the last of them has ended.
    pub(super) waiter: Arc<Waiter>,
}

/// Who had tasks aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Index of the connection.
    pub(super) connection: u32,
    /// The session on it, by its handle.
    pub(super) tsih: Tsih,
    /// What waits.
    pub(super) what: Waits,
}

/// What waits for the end of aborted tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waits {
    /// A task management function.
    Management(crate::iscsi::session::ManageId),
    /// A command, by the slot of its request.
    Command(u32),
}

/// Tells whoever had tasks aborted when the last of those who share it lets go.
pub struct Waiter {
    origin: Origin,
    postbox: Postbox<Message>,
}

impl Waiter {
    pub(super) fn new(origin: Origin, postbox: &Postbox<Message>) -> Arc<Self> {
        Arc::new(Self { origin, postbox: postbox.clone() })
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        self.postbox.post(Message::Iscsi(Notice::Aborted(self.origin)));
    }
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Waiter").field("origin", &self.origin).finish_non_exhaustive()
    }
}
