//! A session in its full feature phase, the initiator's side: one connection, ErrorRecoveryLevel 0 (RFC 7143 sections 4.2,
//! 7, 11; RFC 7145 section 7).
//!
//! Sans-IO. [`Session::start_command`] makes a command's header; [`Session::handle_message`] says what a message of the
//! target means; [`Session::poll_transmit`] has what must be said of the session's own accord. It moves no data and knows
//! no command set. Commands allocate nothing.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;

use intact::iscsi::outgoing::Outgoing;
use intact::iscsi::wire::async_message::AsyncEvent;
use intact::iscsi::wire::bhs::{BHS_LEN, Bhs, Numbers, Order};
use intact::iscsi::wire::logout::{LogoutReason, LogoutRequest, LogoutResult};
use intact::iscsi::wire::message::{Message, MessageError};
use intact::iscsi::wire::nop::{NopIn, NopOut};
use intact::iscsi::wire::number::{Itt, Lun, Sn, Ttt};
use intact::iscsi::wire::opcode::Opcode;
use intact::iscsi::wire::pdu::{Pdu, PduError};
use intact::iscsi::wire::reject::{Reject, RejectReason};
use intact::iscsi::wire::scsi::{
    CDB_LEN, Residual, ScsiCommand, ScsiResponse, ServiceResponse, TaskAttribute,
};
use intact::iscsi::wire::text::{Progress, TextRequest, TextResponse};
use thiserror::Error;
use zerocopy::FromBytes;

/// Answers to the target's pings that wait to be sent, at most: more pings than that is no liveness check.
pub const PINGS_MAX: usize = 8;
/// The tag of texts and of the logout: no command's.
const CONTROL_TAG: Itt = Itt(0xffff_fff0);

/// A command to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its tag: below the session's number of tasks, and of no command under way.
    pub tag: u32,
    /// Logical unit number.
    pub lun: Lun,
    /// The CDB's first 16 bytes.
    pub cdb: [u8; CDB_LEN],
    /// Which way its data goes, and how much that is at most.
    pub data: Direction,
}

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// None goes.
    None,
    /// To us, up to so many bytes.
    ToHost(u32),
    /// From us, so many bytes.
    FromHost(u32),
}

impl Direction {
    /// Expected Data Transfer Length, bytes.
    #[must_use]
    pub const fn length(self) -> u32 {
        match self {
            Self::None => 0,
            Self::ToHost(length) | Self::FromHost(length) => length,
        }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done<'a> {
    /// Its tag.
    pub tag: u32,
    /// SCSI status; none when the target failed.
    pub status: Option<u8>,
    /// By how much the data that moved differs from what was expected.
    pub residual: Residual,
    /// Sense data; empty without.
    pub sense: &'a [u8],
}

/// What a message means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Nothing for the caller; there may be something to transmit.
    Nothing,
    /// A command ended.
    Done(Done<'a>),
    /// The answer to a text, or a part of it.
    Text(&'a [u8], TextEnd),
    /// The logout is through, and so the session.
    LoggedOut(LogoutResult),
    /// The target rejected what we sent: at ErrorRecoveryLevel 0 nothing mends that.
    Rejected(RejectReason, Opcode),
    /// The target wants a logout within so many seconds.
    LogoutWanted(u16),
    /// The target ends the session.
    Dropped,
}

/// What follows a part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TextEnd {
    /// Nothing: it is whole.
    Whole,
    /// More: the request for it is there to be transmitted.
    More,
}

/// What a target must not do; it ends the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SessionFault {
    /// The bytes are no message.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The header is none, or contradicts itself.
    #[error(transparent)]
    Pdu(#[from] PduError),
    /// A PDU that a target does not send, or not now.
    #[error("{0:?} has no place here")]
    Unexpected(Opcode),
    /// A response to a command that is not under way.
    #[error("a response to task {0:#x}, which is not under way")]
    NoTask(u32),
    /// ExpCmdSN is beyond what was sent.
    #[error("ExpCmdSN {acknowledged:#x} acknowledges what was not sent, {next:#x} comes next")]
    ExpCmdSn {
        /// ExpCmdSN.
        acknowledged: u32,
        /// The next command's CmdSN.
        next: u32,
    },
    /// Sense data that is longer than its segment.
    #[error("sense data of {0} bytes in a segment of {1}")]
    Sense(usize, usize),
    /// A residual that is more than what was expected.
    #[error("{0} of {1} bytes were not moved")]
    Residual(u32, u32),
    /// Pings faster than they can be answered.
    #[error("more than {PINGS_MAX} pings wait for their answer")]
    Pings,
}

/// A session in its full feature phase.
#[derive(Debug)]
pub struct Session {
    /// Expected length of each command under way, by tag.
    tasks: Box<[Option<u32>]>,
    cmd_sn: Sn,
    exp_cmd_sn: Sn,
    max_cmd_sn: Sn,
    exp_stat_sn: Sn,
    /// Whether a text, or the logout, waits for its answer.
    asked: Asked,
    outgoing: VecDeque<Outgoing>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    Text,
    Logout,
}

impl Session {
    /// The session that a login came to, with room for `tasks` commands at once. `numbers` are those of the last response
    /// of the login.
    #[must_use]
    pub fn new(numbers: Numbers, tasks: usize) -> Self {
        Self {
            tasks: vec![None; tasks].into_boxed_slice(),
            cmd_sn: numbers.exp_cmd_sn,
            exp_cmd_sn: numbers.exp_cmd_sn,
            max_cmd_sn: numbers.max_cmd_sn,
            exp_stat_sn: numbers.stat_sn.next(),
            asked: Asked::Nothing,
            outgoing: VecDeque::with_capacity(PINGS_MAX + 2),
        }
    }

    /// Whether the target takes another command now.
    #[inline]
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.max_cmd_sn.is_before(self.cmd_sn)
    }

    /// The header of a command, which is under way from now on.
    ///
    /// # Panics
    /// When there is no room, or the tag is a command's that is under way.
    #[inline]
    pub fn start_command(&mut self, command: &Command) -> Bhs {
        assert!(self.has_room(), "the window is looked at first");
        let task = &mut self.tasks[command.tag as usize];
        assert!(task.is_none(), "a tag names one command at a time");
        *task = Some(command.data.length());
        let order = Order { immediate: false, cmd_sn: self.cmd_sn, exp_stat_sn: self.exp_stat_sn };
        self.cmd_sn = self.cmd_sn.next();
        ScsiCommand {
            order,
            last: true,
            to_host: matches!(command.data, Direction::ToHost(1..)),
            from_host: matches!(command.data, Direction::FromHost(1..)),
            attribute: TaskAttribute::Simple,
            lun: command.lun,
            itt: Itt(command.tag),
            expected_length: command.data.length(),
            cdb: command.cdb,
        }
        .emit()
    }

    /// Asks something by a text.
    ///
    /// # Panics
    /// When an answer, or the end of the session, is waited for.
    pub fn ask(&mut self, text: Vec<u8>) {
        assert_eq!(self.asked, Asked::Nothing, "one question at a time");
        self.asked = Asked::Text;
        self.send_text(Lun::default(), Ttt::NONE, text);
    }

    /// Asks for the end of the session.
    pub fn log_out(&mut self) {
        self.asked = Asked::Logout;
        let (order, reason) = (self.immediate(), LogoutReason::CloseSession);
        let request = LogoutRequest { order, reason, itt: CONTROL_TAG, cid: 0 };
        self.outgoing.push_back(Outgoing::new(Pdu::LogoutRequest(request), Vec::new()));
    }

    /// What must be sent.
    #[inline]
    pub fn poll_transmit(&mut self) -> Option<Outgoing> {
        self.outgoing.pop_front()
    }

    /// Takes what a SEND brought.
    ///
    /// # Errors
    /// When the target broke the protocol.
    pub fn handle_message<'a>(&mut self, bytes: &'a [u8]) -> Result<Event<'a>, SessionFault> {
        let message = Message::parse(bytes)?;
        if message.bhs.ahs_len() != 0 {
            return Err(SessionFault::Unexpected(message.bhs.opcode()));
        }
        match Pdu::parse(message.bhs)? {
            Pdu::ScsiResponse(response) => self.handle_response(&response, message.data).map(Event::Done),
            Pdu::NopIn(nop) => self.handle_nop(&nop),
            Pdu::TextResponse(response) => self.handle_text(&response, message.data),
            Pdu::LogoutResponse(response) if self.asked == Asked::Logout => {
                self.take_numbers(response.numbers, true)?;
                self.asked = Asked::Nothing;
                Ok(Event::LoggedOut(response.result))
            }
            Pdu::Reject(reject) => self.handle_reject(&reject, message.data),
            Pdu::AsyncMessage(message) => {
                self.take_numbers(message.numbers, true)?;
                Ok(match message.event {
                    AsyncEvent::LogoutRequest { seconds } => Event::LogoutWanted(seconds),
                    AsyncEvent::ConnectionDropped { .. } | AsyncEvent::SessionDropped { .. } => {
                        Event::Dropped
                    }
                    // What happens at a unit its next commands tell. Parameters stay what they are.
                    _ => Event::Nothing,
                })
            }
            _ => Err(SessionFault::Unexpected(message.bhs.opcode())),
        }
    }

    fn handle_response<'a>(
        &mut self,
        response: &ScsiResponse,
        data: &'a [u8],
    ) -> Result<Done<'a>, SessionFault> {
        let tag = response.itt.0;
        let task = usize::try_from(tag).ok().and_then(|tag| self.tasks.get_mut(tag));
        let expected = task.and_then(Option::take).ok_or(SessionFault::NoTask(tag))?;
        self.take_numbers(response.numbers, true)?;
        if let Residual::Underflow(count) = response.residual
            && count > expected
        {
            return Err(SessionFault::Residual(count, expected));
        }
        let status = match response.response {
            ServiceResponse::Completed => Some(response.status),
            ServiceResponse::TargetFailure | ServiceResponse::Unknown(_) => None,
        };
        Ok(Done { tag, status, residual: response.residual, sense: sense(data)? })
    }

    /// A ping is answered; an answer is one to a ping that we never send.
    fn handle_nop<'a>(&mut self, nop: &NopIn) -> Result<Event<'a>, SessionFault> {
        if nop.itt != Itt::NONE {
            return Err(SessionFault::Unexpected(Opcode::NopIn));
        }
        self.take_numbers(nop.numbers, false)?;
        if nop.ttt != Ttt::NONE {
            if self.outgoing.len() >= PINGS_MAX {
                return Err(SessionFault::Pings);
            }
            let answer = NopOut { order: self.immediate(), lun: nop.lun, itt: Itt::NONE, ttt: nop.ttt };
            self.outgoing.push_back(Outgoing::new(Pdu::NopOut(answer), Vec::new()));
        }
        Ok(Event::Nothing)
    }

    fn handle_text<'a>(
        &mut self,
        response: &TextResponse,
        data: &'a [u8],
    ) -> Result<Event<'a>, SessionFault> {
        if self.asked != Asked::Text {
            return Err(SessionFault::Unexpected(Opcode::TextResponse));
        }
        if response.itt != CONTROL_TAG {
            return Err(SessionFault::NoTask(response.itt.0));
        }
        self.take_numbers(response.numbers, true)?;
        if response.progress == Progress::Final {
            self.asked = Asked::Nothing;
            return Ok(Event::Text(data, TextEnd::Whole));
        }
        if response.ttt == Ttt::NONE {
            // Nothing says how to go on.
            return Err(SessionFault::Unexpected(Opcode::TextResponse));
        }
        self.send_text(response.lun, response.ttt, Vec::new());
        Ok(Event::Text(data, TextEnd::More))
    }

    fn handle_reject<'a>(&mut self, reject: &Reject, data: &[u8]) -> Result<Event<'a>, SessionFault> {
        self.take_numbers(reject.numbers, true)?;
        // The rejected header lies behind ours.
        let rejected = data.first_chunk::<BHS_LEN>().and_then(|bytes| Bhs::read_from_bytes(bytes).ok());
        let opcode = rejected.ok_or(SessionFault::Unexpected(Opcode::Reject))?.opcode();
        Ok(Event::Rejected(reject.reason, opcode))
    }

    /// Both sides' numbers of a response, which has a StatSN of its own or not.
    ///
    /// A StatSN that is not the next is no fault here: nothing is lost on a reliable connection, and the kernel's target
    /// numbers responses on several processors before it sends them.
    fn take_numbers(&mut self, numbers: Numbers, own: bool) -> Result<(), SessionFault> {
        let Numbers { stat_sn, exp_cmd_sn, max_cmd_sn } = numbers;
        if self.cmd_sn.is_before(exp_cmd_sn) {
            return Err(SessionFault::ExpCmdSn { acknowledged: exp_cmd_sn.0, next: self.cmd_sn.0 });
        }
        let next = stat_sn.next();
        if own && self.exp_stat_sn.is_before(next) {
            self.exp_stat_sn = next;
        }
        // Section 4.2.2.1: what is older than what is known, or contradicts itself, is ignored.
        if max_cmd_sn.next().is_before(exp_cmd_sn) {
            return Ok(());
        }
        if self.exp_cmd_sn.is_before(exp_cmd_sn) {
            self.exp_cmd_sn = exp_cmd_sn;
        }
        if self.max_cmd_sn.is_before(max_cmd_sn) {
            self.max_cmd_sn = max_cmd_sn;
        }
        Ok(())
    }

    fn send_text(&mut self, lun: Lun, ttt: Ttt, text: Vec<u8>) {
        let (order, progress) = (self.immediate(), Progress::Final);
        let request = TextRequest { order, progress, lun, itt: CONTROL_TAG, ttt };
        self.outgoing.push_back(Outgoing::new(Pdu::TextRequest(request), text));
    }

    /// The place of a request that takes no number.
    fn immediate(&self) -> Order {
        Order { immediate: true, cmd_sn: self.cmd_sn, exp_stat_sn: self.exp_stat_sn }
    }
}

/// The sense data of a response's data segment (section 11.4.7.1); what follows it is the target's own.
fn sense(data: &[u8]) -> Result<&[u8], SessionFault> {
    let Some((length, rest)) = data.split_first_chunk::<2>() else { return Ok(&[]) };
    let length = usize::from(u16::from_be_bytes(*length));
    rest.get(..length).ok_or(SessionFault::Sense(length, data.len()))
}
