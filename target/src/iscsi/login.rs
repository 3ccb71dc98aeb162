//! The login phase of a connection, the target's side (RFC 7143 sections 6.3, 11.12, 11.13).
//!
//! Sans-IO. Feed it what arrives ([`Login::handle_message`]), the answer to its one question
//! ([`Login::handle_admission`]) and the time ([`Login::handle_timeout`], due at [`Login::poll_timeout`]); do what
//! [`Login::poll_action`] says until it says nothing. Memory and work are bounded: by the size of a text, the number of
//! its keys, the number of requests, and the deadline.

mod fault;
mod security;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

pub use fault::{LoginClose, LoginFault};
use security::Security;

use super::chap::Seed;
use super::directory::Directory;
use super::keys::{Negotiated, Negotiation, Offers, SessionType};
use super::name::IscsiName;
use super::outgoing::Outgoing;
use super::sessions::{Admission, AdmitRequest};
use super::text::{self, Gathered, Pair};
use super::wire::bhs::Numbers;
use super::wire::login::{Isid, LoginRequest, LoginResponse, LoginStatus, Stage, Step, Tsih, VERSION};
use super::wire::message::Message;
use super::wire::number::{Itt, Sn};
use super::wire::opcode::Opcode;
use super::wire::pdu::Pdu;

/// Commands that a host may have under way at most; those that are immediate come on top.
pub const WINDOW_MAX: u16 = 4096;
/// Requests that a login may take.
pub const REQUESTS_MAX: u32 = 32;

/// What must be done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoginAction {
    /// Send this.
    Send(Outgoing),
    /// Find a place for the session, and say which ([`Login::handle_admission`]).
    Admit(AdmitRequest),
    /// The connection is in the full feature phase, once what was said to be sent is sent: receives must be posted
    /// before that.
    Established(Box<Established>),
    /// Close the connection, once what was said to be sent is sent.
    Close(LoginClose),
}

/// What a login came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Established {
    /// The host.
    pub initiator: IscsiName,
    /// The target; none in a discovery session.
    pub target: Option<IscsiName>,
    /// ISID.
    pub isid: Isid,
    /// TSIH.
    pub tsih: Tsih,
    /// The connection's ID.
    pub cid: u16,
    /// What the host said of itself and both agreed on.
    pub negotiated: Negotiated,
    /// The next response's StatSN.
    pub stat_sn: Sn,
    /// The next command's CmdSN.
    pub cmd_sn: Sn,
    /// Commands that the host was told it may send, 1 to [`WINDOW_MAX`].
    pub window: u16,
}

/// What one login is given.
#[derive(Clone, Debug)]
pub struct LoginParams {
    /// Targets.
    pub directory: Arc<Directory>,
    /// What is offered.
    pub offers: Offers,
    /// Randomness for CHAP.
    pub seed: Seed,
    /// The first response's StatSN: any.
    pub stat_sn: Sn,
    /// When it must be over.
    pub deadline: Instant,
}

/// A connection from its first byte to the full feature phase, or to its end.
#[derive(Debug)]
pub struct Login {
    params: LoginParams,
    requests: u32,
    /// What the first request's header said; later ones must say the same.
    first: Option<LoginRequest>,
    stage: Stage,
    text: Gathered,
    /// Known from the first whole text on.
    peer: Option<Peer>,
    state: State,
    actions: VecDeque<LoginAction>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Negotiating,
    /// All is agreed; the last response waits for a place.
    Admitting,
    Over,
}

/// Who logs in, and what was agreed so far.
#[derive(Debug)]
struct Peer {
    initiator: IscsiName,
    target: Option<IscsiName>,
    security: Security,
    negotiation: Negotiation,
    /// The response that waits for a place: its step, its text and what was agreed.
    last: Option<(Step, Vec<u8>, Negotiated)>,
}

impl Login {
    /// A connection that was just accepted.
    #[must_use]
    pub fn new(params: LoginParams) -> Self {
        Self {
            params,
            requests: 0,
            first: None,
            stage: Stage::Security,
            text: Gathered::default(),
            peer: None,
            state: State::Negotiating,
            actions: VecDeque::new(),
        }
    }

    /// Takes what a SEND brought.
    pub fn handle_message(&mut self, now: Instant, bytes: &[u8]) {
        self.handle_timeout(now);
        if self.state == State::Over {
            return;
        }
        let message = match Message::parse(bytes) {
            Ok(message) => message,
            Err(error) => return self.close(LoginClose::Malformed(error)),
        };
        let request = match Pdu::parse(message.bhs) {
            Ok(Pdu::LoginRequest(request)) => request,
            // Whatever else it is, its tag stands at the same place.
            Err(error) if message.bhs.opcode() == Opcode::LoginRequest => {
                return self.refuse(message.bhs.itt(), error.into());
            }
            _ => return self.refuse(message.bhs.itt(), LoginFault::NoLogin(message.bhs.opcode())),
        };
        if let Err(fault) = self.take(&request, &message) {
            self.refuse(request.itt, fault);
        }
    }

    /// The answer to [`LoginAction::Admit`]: the session's place, and how many commands the host may send, or the status
    /// that refuses it. Unless [`LoginAction::Established`] follows, the login was over by then, and the place is to be
    /// given up.
    pub fn handle_admission(&mut self, admission: Result<(Admission, u16), LoginStatus>) {
        if self.state != State::Admitting {
            return;
        }
        let (Some(first), Some(peer)) = (self.first, &mut self.peer) else { return };
        let Some((step, text, negotiated)) = peer.last.take() else { return };
        let (admission, window) = match admission {
            Ok(place) => place,
            Err(status) => return self.refuse(first.itt, LoginFault::NoPlace(status)),
        };
        let established = Established {
            initiator: peer.initiator.clone(),
            target: peer.target.clone(),
            isid: first.isid,
            tsih: admission.tsih,
            cid: first.cid,
            negotiated,
            stat_sn: self.params.stat_sn.next(),
            cmd_sn: first.order.cmd_sn,
            window: window.clamp(1, WINDOW_MAX),
        };
        let numbers = Numbers {
            max_cmd_sn: first.order.cmd_sn.plus(u32::from(established.window) - 1),
            ..self.numbers(first.order.cmd_sn)
        };
        self.state = State::Over;
        self.respond(&first, step, admission.tsih, numbers, LoginStatus::Success, text);
        self.actions.push_back(LoginAction::Established(Box::new(established)));
    }

    /// Ends the login if its time is over.
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.state != State::Over && now >= self.params.deadline {
            self.close(LoginClose::Timeout);
        }
    }

    /// What must be done next.
    pub fn poll_action(&mut self) -> Option<LoginAction> {
        self.actions.pop_front()
    }

    /// When [`Login::handle_timeout`] is due.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        (self.state != State::Over).then_some(self.params.deadline)
    }

    fn take(&mut self, request: &LoginRequest, message: &Message<'_>) -> Result<(), LoginFault> {
        self.requests += 1;
        if self.requests > REQUESTS_MAX {
            return Err(LoginFault::TooManyRequests);
        }
        if !message.ahs.is_empty() {
            return Err(LoginFault::AdditionalHeader);
        }
        if self.state != State::Negotiating {
            return Err(LoginFault::OutOfTurn);
        }
        self.check_header(request)?;
        self.text.push(message.data)?;
        if let Step::Continued(stage) = request.step {
            self.answer(request, Step::Stay(stage), Vec::new());
            return Ok(());
        }
        let whole = self.text.take();
        let pairs = text::pairs(&whole)?;
        let mut answers = Vec::new();
        if self.peer.is_none() {
            self.peer = Some(self.meet(request, &pairs, &mut answers)?);
        } else if pairs.iter().any(|pair| matches!(pair.key, "SessionType" | "TargetName")) {
            return Err(LoginFault::LateIdentity);
        }
        let peer = self.peer.as_mut().expect("the first text made it");
        peer.security.handle_pairs(&pairs, self.stage, &mut answers)?;
        for pair in pairs {
            if !Security::owns(pair.key) || self.stage != Stage::Security {
                peer.negotiation.handle_pair(pair, self.stage, &mut answers)?;
            }
        }
        self.proceed(request, answers)
    }

    /// What must be the same in all requests of a login, and possible in the first.
    fn check_header(&mut self, request: &LoginRequest) -> Result<(), LoginFault> {
        let Some(first) = &self.first else {
            if request.version_min > VERSION {
                return Err(LoginFault::Version(request.version_min));
            }
            self.stage = request.step.stage();
            self.first = Some(*request);
            return Ok(());
        };
        let said = |request: &LoginRequest| {
            (request.isid, request.tsih, request.itt, request.cid, request.order.cmd_sn)
        };
        if said(first) != said(request) {
            return Err(LoginFault::ChangedHeader);
        }
        if request.step.stage() != self.stage {
            return Err(LoginFault::WrongStage);
        }
        Ok(())
    }

    /// Who logs in, and where, as the first text says.
    fn meet(
        &self,
        request: &LoginRequest,
        pairs: &[Pair<'_>],
        answers: &mut Vec<u8>,
    ) -> Result<Peer, LoginFault> {
        let value = |key| pairs.iter().find(|pair| pair.key == key).map(|pair| pair.value);
        let name = |key| {
            let value = value(key).ok_or(LoginFault::Missing(key))?;
            IscsiName::parse(value).map_err(LoginFault::Name)
        };
        let initiator = name("InitiatorName")?;
        let kind = match value("SessionType") {
            None | Some("Normal") => SessionType::Normal,
            Some("Discovery") => SessionType::Discovery,
            Some(_) => return Err(LoginFault::SessionType),
        };
        let directory = &self.params.directory;
        let (target, chap) = match kind {
            SessionType::Discovery => (None, directory.discovery_chap.as_ref()),
            SessionType::Normal => {
                let name = name("TargetName")?;
                let target = directory.target(&name).ok_or_else(|| LoginFault::NoTarget(name.clone()))?;
                if !target.allows(&initiator) {
                    return Err(LoginFault::NotAllowed { initiator, target: name });
                }
                if let Some(alias) = &target.alias {
                    text::append(answers, "TargetAlias", alias);
                }
                (Some(name), target.chap.as_ref())
            }
        };
        text::append(answers, "TargetPortalGroupTag", &directory.portal_group_tag.to_string());
        if chap.is_some() && request.step.stage() != Stage::Security {
            return Err(LoginFault::SecuritySkipped);
        }
        Ok(Peer {
            initiator,
            target,
            security: Security::new(chap.cloned(), self.params.seed),
            negotiation: Negotiation::new(self.params.offers, kind),
            last: None,
        })
    }

    /// Goes where the host wants to go, as far as it may.
    fn proceed(&mut self, request: &LoginRequest, mut answers: Vec<u8>) -> Result<(), LoginFault> {
        let peer = self.peer.as_mut().expect("the first text made it");
        let Step::Transit(from, to) = request.step else {
            self.answer(request, Step::Stay(self.stage), answers);
            return Ok(());
        };
        let ready = match from {
            Stage::Security => peer.security.is_done(),
            _ => !peer.negotiation.poll_offer(&mut answers),
        };
        if !ready {
            self.answer(request, Step::Stay(from), answers);
        } else if to == Stage::FullFeature {
            let agreed = peer.negotiation.finish()?;
            peer.last = Some((request.step, answers, agreed));
            let (initiator, target) = (peer.initiator.clone(), peer.target.clone());
            self.state = State::Admitting;
            let place = AdmitRequest::new(initiator, target, request.isid, request.tsih, request.cid);
            self.actions.push_back(LoginAction::Admit(place));
        } else {
            self.stage = to;
            self.answer(request, request.step, answers);
        }
        Ok(())
    }

    fn answer(&mut self, request: &LoginRequest, step: Step, text: Vec<u8>) {
        let numbers = self.numbers(request.order.cmd_sn);
        self.respond(request, step, request.tsih, numbers, LoginStatus::Success, text);
    }

    fn refuse(&mut self, itt: Itt, fault: LoginFault) {
        let status = fault.status();
        let cmd_sn = self.first.map_or(Sn(0), |first| first.order.cmd_sn);
        let response = LoginResponse {
            step: Step::Stay(self.stage),
            version_max: VERSION,
            version_active: VERSION,
            isid: self.first.map_or(Isid([0; 6]), |first| first.isid),
            tsih: Tsih(0),
            itt,
            numbers: self.numbers(cmd_sn),
            status,
        };
        self.send(response, Vec::new());
        self.close(LoginClose::Refused(fault));
    }

    fn respond(
        &mut self,
        request: &LoginRequest,
        step: Step,
        tsih: Tsih,
        numbers: Numbers,
        status: LoginStatus,
        text: Vec<u8>,
    ) {
        let response = LoginResponse {
            step,
            version_max: VERSION,
            version_active: VERSION,
            isid: request.isid,
            tsih,
            itt: request.itt,
            numbers,
            status,
        };
        self.send(response, text);
    }

    fn send(&mut self, response: LoginResponse, text: Vec<u8>) {
        self.params.stat_sn = response.numbers.stat_sn.next();
        self.actions.push_back(LoginAction::Send(Outgoing::new(Pdu::LoginResponse(response), text)));
    }

    /// A login has no commands: the only number that one could have is the next.
    fn numbers(&self, cmd_sn: Sn) -> Numbers {
        Numbers { stat_sn: self.params.stat_sn, exp_cmd_sn: cmd_sn, max_cmd_sn: cmd_sn }
    }

    fn close(&mut self, why: LoginClose) {
        self.state = State::Over;
        self.actions.push_back(LoginAction::Close(why));
    }
}
