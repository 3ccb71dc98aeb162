//! What each request of the host does. One that is rejected changes nothing, and its CmdSN is not used up.

use super::super::discovery::TextFault;
use super::super::text::TextError;
use super::super::wire::bhs::Order;
use super::super::wire::logout::{LogoutReason, LogoutRequest, LogoutResult};
use super::super::wire::message::Message;
use super::super::wire::nop::{NopIn, NopOut};
use super::super::wire::number::{Itt, Lun, Ttt};
use super::super::wire::pdu::{Pdu, PduError};
use super::super::wire::reject::RejectReason;
use super::super::wire::scsi::{ScsiCommand, TaskAttribute};
use super::super::wire::text::{TextRequest, TextResponse};
use super::tasks::Task;
use super::{Action, CONTROL_DATA_MAX, Command, IMMEDIATE_MAX, Outgoing, Session, State, Transfer};

/// Where a request stands; `None` for what is no request of the full feature phase.
pub(super) fn order(pdu: &Pdu) -> Option<Order> {
    Some(match pdu {
        Pdu::NopOut(request) => request.order,
        Pdu::ScsiCommand(request) => request.order,
        Pdu::TaskRequest(request) => request.order,
        Pdu::TextRequest(request) => request.order,
        Pdu::LogoutRequest(request) => request.order,
        _ => return None,
    })
}

/// Why a header that is none is rejected.
pub(super) fn reason(error: PduError) -> RejectReason {
    match error {
        PduError::NotOverIser(_) => RejectReason::ProtocolError,
        PduError::NotSupported(_) => RejectReason::CommandNotSupported,
        PduError::Field(_) => RejectReason::InvalidField,
    }
}

impl Session {
    /// Does what a request asks for, which is the next in order.
    pub(super) fn handle_request(&mut self, pdu: &Pdu, message: &Message<'_>) -> Result<(), RejectReason> {
        if matches!(self.state, State::LoggingOut(_)) {
            return Err(RejectReason::WaitingForLogout);
        }
        if message.data.len() > self.established.negotiated.target_recv as usize {
            return Err(RejectReason::InvalidField);
        }
        let discovery = self.established.target.is_none();
        match pdu {
            Pdu::TextRequest(request) => self.handle_text(request, message.data),
            Pdu::LogoutRequest(request) => self.handle_logout(request),
            // A discovery session has nothing else (RFC 7143 section 4.3).
            _ if discovery => Err(RejectReason::ProtocolError),
            Pdu::NopOut(request) => self.handle_nop(request, message.data),
            Pdu::ScsiCommand(request) => self.handle_command(request, message),
            Pdu::TaskRequest(request) => self.handle_task_request(request),
            _ => Err(RejectReason::ProtocolError),
        }
    }

    fn handle_command(&mut self, request: &ScsiCommand, message: &Message<'_>) -> Result<(), RejectReason> {
        if request.itt == Itt::NONE || matches!(request.attribute, TaskAttribute::Unknown(_)) {
            return Err(RejectReason::InvalidField);
        }
        if self.tasks.find(request.itt).is_some() {
            return Err(RejectReason::TaskInProgress);
        }
        let immediate = request.order.immediate;
        if immediate && self.tasks.immediate() >= usize::from(IMMEDIATE_MAX) {
            return Err(RejectReason::TooManyImmediate);
        }
        let data = Transfer::of(request, message, &self.established.negotiated)?;
        let task = Task {
            itt: request.itt,
            lun: request.lun,
            immediate,
            expected_length: request.expected_length,
            rkey: data.rkey(),
            aborted: false,
            waiters: 0,
        };
        let task = self.tasks.insert(task).expect("the window is no wider than the free slots");
        self.window.take(request.order);
        let (lun, attribute, cdb) = (request.lun, request.attribute, request.cdb);
        self.actions.push_back(Action::StartCommand(Command { task, lun, attribute, cdb, data }));
        Ok(())
    }

    fn handle_nop(&mut self, request: &NopOut, data: &[u8]) -> Result<(), RejectReason> {
        if request.itt == Itt::NONE {
            // The answer to a ping; that it came is all there is to know. It is immediate (section 11.18).
            return if request.order.immediate { Ok(()) } else { Err(RejectReason::ProtocolError) };
        }
        self.take_answered(request.order);
        let numbers = self.next_numbers();
        let pdu = Pdu::NopIn(NopIn { lun: Lun::default(), itt: request.itt, ttt: Ttt::NONE, numbers });
        // As much of the ping's data as the host receives.
        let echo = data[..data.len().min(CONTROL_DATA_MAX)].to_vec();
        self.actions.push_back(Action::Send(Outgoing::new(pdu, echo)));
        Ok(())
    }

    fn handle_text(&mut self, request: &TextRequest, data: &[u8]) -> Result<(), RejectReason> {
        if request.itt == Itt::NONE {
            return Err(RejectReason::InvalidField);
        }
        let reply = self.texts.handle_request(request, data, &self.directory, &self.asker);
        let reply = reply.map_err(|fault| match fault {
            TextFault::NoExchange => RejectReason::InvalidField,
            TextFault::Text(TextError::TooLong) => RejectReason::LongOperation,
            TextFault::Unasked | TextFault::Text(_) | TextFault::Key(_) => RejectReason::ProtocolError,
        })?;
        self.take_answered(request.order);
        let numbers = self.next_numbers();
        let pdu = TextResponse {
            progress: reply.progress,
            lun: request.lun,
            itt: request.itt,
            ttt: reply.ttt,
            numbers,
        };
        self.actions.push_back(Action::Send(Outgoing::new(Pdu::TextResponse(pdu), reply.data)));
        Ok(())
    }

    fn handle_logout(&mut self, request: &LogoutRequest) -> Result<(), RejectReason> {
        let refused = match request.reason {
            LogoutReason::CloseSession => None,
            LogoutReason::CloseConnection if request.cid == self.established.cid => None,
            LogoutReason::CloseConnection => Some(LogoutResult::NoSuchConnection),
            LogoutReason::RemoveForRecovery => Some(LogoutResult::RecoveryNotSupported),
            LogoutReason::Unknown(_) => return Err(RejectReason::InvalidField),
        };
        self.take_answered(request.order);
        if let Some(result) = refused {
            self.send_logout_response(request.itt, result);
            return Ok(());
        }
        self.state = State::LoggingOut(request.itt);
        self.deadline = None;
        self.abort(0, |_| true);
        self.finish_logout();
        Ok(())
    }

    /// Takes a request that is answered at once, so that there is room for another.
    pub(super) fn take_answered(&mut self, order: Order) {
        self.window.take(order);
        self.open_window();
    }
}
