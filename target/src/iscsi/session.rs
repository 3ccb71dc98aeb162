//! A session in its full feature phase, the target's side: one connection, ErrorRecoveryLevel 0 (RFC 7143 sections 4.2,
//! 4.3, 7; RFC 7145 section 7).
//!
//! Sans-IO. Feed it what arrives ([`Session::handle_message`]), what became of what it asked for
//! ([`Session::handle_done`], [`Session::handle_managed`]), and the time ([`Session::handle_timeout`], due at
//! [`Session::poll_timeout`]); do what [`Session::poll_action`] says, in order, until it says nothing. It knows no
//! command set: it starts tasks with their CDBs and the memory that their data may use, and moves no data.
//!
//! At level 0 what can't be mended ends the session: bytes that are no PDU, and a missing CmdSN, which a connection that
//! delivers in order will never bring. The CmdSN of a rejected request counts as not received (section 11.17.1).

mod manage;
mod requests;
mod tasks;
#[cfg(test)]
mod tests;
mod transfer;
mod window;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use thiserror::Error;

use manage::Managements;
pub use manage::{Manage, ManageId};
pub use tasks::TaskId;
use tasks::Tasks;
pub use transfer::Transfer;
use window::{Place, Window};

use super::directory::Directory;
use super::discovery::{Asker, Texts};
use super::login::{Established, WINDOW_MAX};
use super::outgoing::Outgoing;
use super::sessions::Nexus;
use super::wire::async_message::{AsyncEvent, AsyncMessage};
use super::wire::bhs::{Bhs, Numbers};
use super::wire::logout::{LogoutResponse, LogoutResult};
use super::wire::message::{Message, MessageError};
use super::wire::nop::NopIn;
use super::wire::number::{Itt, Lun, Sn, Ttt};
use super::wire::pdu::Pdu;
use super::wire::reject::{Reject, RejectReason};
use super::wire::scsi::{CDB_LEN, ScsiResponse, ServiceResponse, TaskAttribute};

/// Immediate commands under way at once, beside those of the window.
pub const IMMEDIATE_MAX: u16 = 8;
/// Rejects after which a host is taken for broken.
pub const REJECTS_MAX: u32 = 64;
/// Bytes of data that a Linux host receives with any PDU of a normal session, whatever it negotiated: ib_iser posts
/// buffers of its headers and so much.
pub const CONTROL_DATA_MAX: usize = 128;

/// What must be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send this.
    Send(Outgoing),
    /// Run a command, move its data, then [`Session::handle_done`].
    StartCommand(Command),
    /// End a task soon; [`Session::handle_done`] says when it touches neither blocks nor the host's memory any more.
    AbortTask(TaskId),
    /// Do to the logical unit, or to the target, what goes beyond this session's tasks, then
    /// [`Session::handle_managed`]. This session's are aborted apart.
    Manage(Manage),
    /// Close the connection, once what was said to be sent is sent. Tasks under way are to be ended; saying that they
    /// are done is allowed, and has no effect.
    Close(SessionClose),
}

/// A command to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// The task.
    pub task: TaskId,
    /// Logical unit number.
    pub lun: Lun,
    /// Task attribute.
    pub attribute: TaskAttribute,
    /// Command descriptor block.
    pub cdb: [u8; CDB_LEN],
    /// What data may move.
    pub data: Transfer,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done<'a> {
    /// With a status.
    Status {
        /// SCSI status (SAM-5).
        status: u8,
        /// Sense data; empty without. What a host can't receive of it is left out.
        sense: &'a [u8],
        /// Bytes of data that the command has, moved or not: what is more or less than the host expected is its residual.
        length: u64,
    },
    /// Without one: the target failed.
    TargetFailure,
}

/// Why a session ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SessionClose {
    /// What arrived is no PDU.
    #[error("{0}")]
    Malformed(#[from] MessageError),
    /// Commands are missing.
    #[error("CmdSN {received:#x} arrived, {expected:#x} is missing")]
    MissingCommand {
        /// ExpCmdSN.
        expected: u32,
        /// What came instead.
        received: u32,
    },
    /// More rejects than a host in order causes.
    #[error("more than {REJECTS_MAX} requests had to be rejected")]
    TooManyRejects,
    /// The host doesn't answer.
    #[error("no answer to a NOP-In")]
    PingTimeout,
    /// A discovery session in which nothing is asked.
    #[error("a discovery session in which nothing was asked for long")]
    Idle,
    /// The host logged out.
    #[error("logged out")]
    LoggedOut,
    /// The host was asked to log out, and didn't.
    #[error("the host was asked to log out and did not")]
    LogoutTimeout,
    /// After TARGET COLD RESET all sessions end.
    #[error("target cold reset")]
    ColdReset,
}

/// How long a silent host is believed to be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Silence after which it is pinged; the end of a discovery session.
    pub idle: Duration,
    /// Time for the answer.
    pub answer: Duration,
}

/// Whether responses invalidate the key of the command that they answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalidation {
    /// Both sides said so when they connected, and the device can.
    Remote,
    /// The host does it itself.
    No,
}

/// What one session is given.
#[derive(Clone, Debug)]
pub struct SessionParams {
    /// What the login came to. Its window is the number of commands that may ever be under way.
    pub established: Established,
    /// Targets, for SendTargets.
    pub directory: Arc<Directory>,
    /// Whether keys are invalidated.
    pub invalidation: Invalidation,
    /// When a silent host is given up.
    pub patience: Patience,
}

/// A session in its full feature phase.
#[derive(Debug)]
pub struct Session {
    established: Established,
    directory: Arc<Directory>,
    invalidation: Invalidation,
    patience: Patience,
    asker: Asker,
    window: Window,
    /// Commands that may be under way: what the caller has resources for.
    limit: u16,
    stat_sn: Sn,
    tasks: Tasks,
    managements: Managements,
    texts: Texts,
    rejects: u32,
    state: State,
    /// When the host must have shown itself, or must be gone.
    deadline: Option<Instant>,
    /// The tag of the last ping, and whether it waits for an answer.
    ping: u32,
    pinged: bool,
    actions: VecDeque<Action>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The host was asked to log out.
    Asked,
    /// The host logs out: the response goes out when the last task has ended.
    LoggingOut(Itt),
    Over,
}

impl Session {
    /// The session that a login came to.
    ///
    /// # Panics
    /// When its window is larger than a login promises.
    #[must_use]
    pub fn new(now: Instant, params: SessionParams) -> Self {
        let SessionParams { established, directory, invalidation, patience } = params;
        assert!(established.window <= WINDOW_MAX, "a login promises no more");
        let asker = Asker { initiator: established.initiator.clone(), target: established.target.clone() };
        let segment_max = match established.target {
            Some(_) => CONTROL_DATA_MAX.min(established.negotiated.initiator_recv as usize),
            // ib_iser uses the buffer of the login for all of a discovery session.
            None => 8192.min(established.negotiated.host_recv as usize),
        };
        let limit = established.window;
        let capacity = limit + IMMEDIATE_MAX;
        Self {
            asker,
            window: Window::new(established.cmd_sn, limit),
            limit,
            stat_sn: established.stat_sn,
            tasks: Tasks::new(capacity),
            managements: Managements::default(),
            texts: Texts::new(segment_max),
            rejects: 0,
            state: State::Open,
            deadline: now.checked_add(patience.idle),
            ping: 0,
            pinged: false,
            actions: VecDeque::with_capacity(usize::from(capacity) + 2),
            established,
            directory,
            invalidation,
            patience,
        }
    }

    /// Takes what a SEND brought.
    pub fn handle_message(&mut self, now: Instant, bytes: &[u8]) {
        self.handle_timeout(now);
        if self.state == State::Over {
            return;
        }
        if self.state == State::Open {
            self.pinged = false;
            self.deadline = now.checked_add(self.patience.idle);
        }
        match Message::parse(bytes) {
            Ok(message) => self.take(&message),
            Err(error) => self.close(error.into()),
        }
    }

    /// A task has ended: its data has moved, or never will.
    ///
    /// # Panics
    /// When the task was said to have ended before.
    pub fn handle_done(&mut self, task: TaskId, done: Done<'_>) {
        let ended = self.tasks.remove(task);
        if self.state == State::Over {
            return;
        }
        self.open_window();
        if !ended.aborted {
            let (response, status, sense, residual) = match done {
                Done::Status { status, sense, length } => {
                    let residual = transfer::residual(ended.expected_length, length);
                    (ServiceResponse::Completed, status, sense, residual)
                }
                Done::TargetFailure => {
                    let residual = transfer::residual(ended.expected_length, 0);
                    (ServiceResponse::TargetFailure, 0, &[][..], residual)
                }
            };
            let numbers = self.next_numbers();
            let pdu = Pdu::ScsiResponse(ScsiResponse { response, status, itt: ended.itt, numbers, residual });
            let invalidate = match self.invalidation {
                Invalidation::Remote => ended.rkey,
                Invalidation::No => None,
            };
            self.actions.push_back(Action::Send(Outgoing { pdu, data: sense_segment(sense), invalidate }));
        }
        self.managements.task_ended(ended.waiters);
        self.answer_managements();
        self.finish_logout();
    }

    /// What was asked by [`Action::Manage`] is done, or was refused.
    pub fn handle_managed(&mut self, id: ManageId, code: super::wire::task::TaskResponseCode) {
        if self.state != State::Over {
            self.managements.decide(id, code);
            self.answer_managements();
        }
    }

    /// There are resources for so many commands, at most as many as the login promised. What the host was allowed stays
    /// allowed.
    pub fn handle_resources(&mut self, commands: u16) {
        self.limit = commands.min(self.established.window);
        self.open_window();
    }

    /// Tells the host what it did not ask for.
    pub fn notify(&mut self, event: AsyncEvent, lun: Lun, sense: &[u8]) {
        if self.state == State::Over {
            return;
        }
        let numbers = self.next_numbers();
        let pdu = Pdu::AsyncMessage(AsyncMessage { event, vendor_code: 0, lun, numbers });
        self.actions.push_back(Action::Send(Outgoing::new(pdu, sense_segment(sense))));
    }

    /// Tasks of units that `which` names are to end because another session says so; returns how many there are. Nobody is
    /// told how they end.
    pub fn abort_for_others(&mut self, which: impl Fn(Lun) -> bool) -> u16 {
        if self.state == State::Over { 0 } else { self.abort(0, which) }
    }

    /// Asks the host to log out within `seconds`; the session ends then, whether it does or not.
    pub fn ask_for_logout(&mut self, now: Instant, seconds: u16) {
        if self.state != State::Open {
            return;
        }
        self.notify(AsyncEvent::LogoutRequest { seconds }, Lun::default(), &[]);
        self.state = State::Asked;
        self.deadline = now.checked_add(Duration::from_secs(seconds.into()));
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.deadline.is_none_or(|deadline| now < deadline) {
            return;
        }
        match self.state {
            State::Open if self.pinged => self.close(SessionClose::PingTimeout),
            State::Open if self.established.target.is_none() => self.close(SessionClose::Idle),
            State::Open => {
                self.send_ping();
                self.deadline = now.checked_add(self.patience.answer);
            }
            State::Asked => self.close(SessionClose::LogoutTimeout),
            State::LoggingOut(_) | State::Over => self.deadline = None,
        }
    }

    /// What must be done next.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When [`Session::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.deadline
    }

    /// Between whom the session is.
    #[must_use]
    pub fn nexus(&self) -> Nexus {
        let Asker { initiator, target } = self.asker.clone();
        Nexus { initiator, isid: self.established.isid.0, target }
    }

    fn take(&mut self, message: &Message<'_>) {
        let pdu = match Pdu::parse(message.bhs) {
            Ok(pdu) => pdu,
            Err(error) => return self.reject(message.bhs, requests::reason(error)),
        };
        let Some(order) = requests::order(&pdu) else {
            // A response, or a login that is over.
            return self.reject(message.bhs, RejectReason::ProtocolError);
        };
        match self.window.place(order) {
            Place::Next => {}
            Place::Outside => return,
            Place::Gap => {
                return self.close(SessionClose::MissingCommand {
                    expected: self.window.expected().0,
                    received: order.cmd_sn.0,
                });
            }
        }
        let taken = if message.ahs.is_empty() {
            self.handle_request(&pdu, message)
        } else {
            Err(RejectReason::CommandNotSupported)
        };
        if let Err(reason) = taken {
            self.reject(message.bhs, reason);
        }
    }

    fn reject(&mut self, rejected: &Bhs, reason: RejectReason) {
        use zerocopy::IntoBytes as _;
        self.rejects += 1;
        let numbers = self.next_numbers();
        let pdu = Pdu::Reject(Reject { reason, numbers, data_sn: 0 });
        self.actions.push_back(Action::Send(Outgoing::new(pdu, rejected.as_bytes().to_vec())));
        if self.rejects > REJECTS_MAX {
            self.close(SessionClose::TooManyRejects);
        }
    }

    /// A ping takes no number of its own.
    fn send_ping(&mut self) {
        self.ping = self.ping.wrapping_add(1);
        if self.ping == Ttt::NONE.0 {
            self.ping = 0;
        }
        self.pinged = true;
        let numbers = self.numbers();
        let pdu = NopIn { lun: Lun::default(), itt: Itt::NONE, ttt: Ttt(self.ping), numbers };
        self.actions.push_back(Action::Send(Outgoing::new(Pdu::NopIn(pdu), Vec::new())));
    }

    /// Marks tasks as aborted and asks for their end; returns how many of them a management function must wait for.
    fn abort(&mut self, waiter: u8, which: impl Fn(Lun) -> bool) -> u16 {
        let mut waiting = 0;
        for (id, task) in self.tasks.iter_mut().filter(|(_, task)| which(task.lun)) {
            waiting += 1;
            task.waiters |= waiter;
            if !task.aborted {
                task.aborted = true;
                self.actions.push_back(Action::AbortTask(id));
            }
        }
        waiting
    }

    fn answer_managements(&mut self) {
        while let Some((response, cold)) = self.managements.poll_finished() {
            let numbers = self.next_numbers();
            let pdu = Pdu::TaskResponse(response.with(numbers));
            self.actions.push_back(Action::Send(Outgoing::new(pdu, Vec::new())));
            if cold {
                return self.close(SessionClose::ColdReset);
            }
        }
    }

    fn finish_logout(&mut self) {
        if let State::LoggingOut(itt) = self.state
            && self.tasks.is_empty()
        {
            self.send_logout_response(itt, LogoutResult::Closed);
            self.close(SessionClose::LoggedOut);
        }
    }

    fn send_logout_response(&mut self, itt: Itt, result: LogoutResult) {
        let negotiated = &self.established.negotiated;
        let (time_to_wait, time_to_retain) = match result {
            LogoutResult::Closed => (0, 0),
            _ => (negotiated.time_to_wait, negotiated.time_to_retain),
        };
        let numbers = self.next_numbers();
        let pdu = LogoutResponse { result, itt, numbers, time_to_wait, time_to_retain };
        self.actions.push_back(Action::Send(Outgoing::new(Pdu::LogoutResponse(pdu), Vec::new())));
    }

    fn open_window(&mut self) {
        self.window.open_to(self.limit.saturating_sub(self.tasks.counted()));
    }

    fn numbers(&self) -> Numbers {
        Numbers { stat_sn: self.stat_sn, exp_cmd_sn: self.window.expected(), max_cmd_sn: self.window.max() }
    }

    /// The numbers of a response, which takes a StatSN.
    fn next_numbers(&mut self) -> Numbers {
        let numbers = self.numbers();
        self.stat_sn = self.stat_sn.next();
        numbers
    }

    fn close(&mut self, why: SessionClose) {
        self.state = State::Over;
        self.deadline = None;
        self.actions.push_back(Action::Close(why));
    }
}

/// Sense data behind its length (RFC 7143 section 11.4.7.1), as much as a host receives.
fn sense_segment(sense: &[u8]) -> Vec<u8> {
    const LENGTH: usize = 2;
    if sense.is_empty() {
        return Vec::new();
    }
    let sense = &sense[..sense.len().min(CONTROL_DATA_MAX - LENGTH)];
    let length = u16::try_from(sense.len()).expect("it was cut to less than 128 bytes");
    [&length.to_be_bytes()[..], sense].concat()
}
