//! The login phase of a connection, the initiator's side (RFC 7143 sections 6.3, 11.12, 11.13).
//!
//! Sans-IO. Send what [`Login::poll_transmit`] says, feed what arrives to [`Login::handle_message`], until there is a
//! [`Login::established`] or an error. How long that may take is the caller's to say; how many rounds, and how much text,
//! is bounded here.

use intact::iscsi::chap::Seed;
use intact::iscsi::keys::SessionType;
use intact::iscsi::name::IscsiName;
use intact::iscsi::outgoing::Outgoing;
use intact::iscsi::text::{self, Gathered, Pair, TextError};
use intact::iscsi::wire::bhs::{Numbers, Order};
use intact::iscsi::wire::login::{
    Isid, LoginRequest, LoginResponse, LoginStatus, Stage, Step, Tsih, VERSION,
};
use intact::iscsi::wire::message::{Message, MessageError};
use intact::iscsi::wire::number::{Itt, Sn};
use intact::iscsi::wire::opcode::Opcode;
use intact::iscsi::wire::pdu::{Pdu, PduError};
use thiserror::Error;

use super::chap::{Account, Chap, ChapFault};
use super::keys::{Agreed, KeyFault, Negotiation};

/// Requests after which a target is taken for broken.
pub const REQUESTS_MAX: u32 = 32;
/// The tag of all requests of a login.
const LOGIN_TAG: Itt = Itt(0);
/// The first command's CmdSN.
const FIRST_CMD_SN: Sn = Sn(1);

/// Who logs in where, and how.
#[derive(Clone, Debug)]
pub struct LoginParams {
    /// Us.
    pub initiator: IscsiName,
    /// The target; none for discovery.
    pub target: Option<IscsiName>,
    /// Our name of the session.
    pub isid: Isid,
    /// What is proved, if anything.
    pub account: Option<Account>,
    /// Randomness for CHAP.
    pub seed: Seed,
}

/// What a login came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Established {
    /// What both agreed on.
    pub agreed: Agreed,
    /// TSIH.
    pub tsih: Tsih,
    /// Sequence numbers of the last response.
    pub numbers: Numbers,
}

/// Why a login failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum LoginFault {
    /// The target refused it, or sends us elsewhere, which is not followed.
    #[error("{0}")]
    Refused(LoginStatus),
    /// The bytes are no message.
    #[error(transparent)]
    Message(#[from] MessageError),
    /// The header contradicts itself.
    #[error(transparent)]
    Pdu(#[from] PduError),
    /// Another PDU than a Login Response.
    #[error("{0:?} before the end of the login")]
    NoLogin(Opcode),
    /// A response without a request.
    #[error("a Login Response that nobody asked for")]
    Unasked,
    /// A field does not repeat what was asked, or has no meaning here.
    #[error("{0} of a Login Response is not what it must be")]
    Field(&'static str),
    /// The text is none.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The negotiation of security went wrong.
    #[error("CHAP: {0}")]
    Chap(#[from] ChapFault),
    /// The target did not choose the method that was offered.
    #[error("AuthMethod: the target chose none of what was offered")]
    Method,
    /// A key broke a rule.
    #[error(transparent)]
    Key(#[from] KeyFault),
    /// No end in sight.
    #[error("the login has no end: more than {REQUESTS_MAX} requests")]
    TooManyRequests,
}

/// A connection from its first byte to the full feature phase.
#[derive(Debug)]
pub struct Login {
    params: LoginParams,
    stage: Stage,
    security: Security,
    negotiation: Negotiation,
    requests: u32,
    /// What the last request said, while it waits for its answer.
    asked: Option<Step>,
    heard: Gathered,
    exp_stat_sn: Sn,
    next: Option<Outgoing>,
    established: Option<Established>,
}

#[derive(Debug)]
enum Security {
    /// No authentication, or it is over.
    Done,
    /// The method was offered.
    Offered,
    Chap(Box<Chap>),
}

impl Login {
    /// A connection that was just made; the first request is there to be sent.
    #[must_use]
    pub fn new(params: LoginParams) -> Self {
        let kind = if params.target.is_some() { SessionType::Normal } else { SessionType::Discovery };
        let mut login = Self {
            stage: Stage::Operational,
            security: Security::Done,
            negotiation: Negotiation::new(kind),
            requests: 0,
            asked: None,
            heard: Gathered::default(),
            exp_stat_sn: Sn(0),
            next: None,
            established: None,
            params,
        };
        login.begin();
        login
    }

    /// What must be sent.
    pub fn poll_transmit(&mut self) -> Option<Outgoing> {
        self.next.take()
    }

    /// What the login came to, when it is over.
    #[must_use]
    pub fn established(&self) -> Option<&Established> {
        self.established.as_ref()
    }

    /// Takes what a SEND brought.
    ///
    /// # Errors
    /// When the target refuses, or breaks the protocol; the login is over then.
    pub fn handle_message(&mut self, bytes: &[u8]) -> Result<(), LoginFault> {
        let message = Message::parse(bytes)?;
        let Pdu::LoginResponse(response) = Pdu::parse(message.bhs)? else {
            return Err(LoginFault::NoLogin(message.bhs.opcode()));
        };
        let asked = self.asked.take().ok_or(LoginFault::Unasked)?;
        // The status first: other fields of a refusal need not mean anything.
        if response.status != LoginStatus::Success {
            return Err(LoginFault::Refused(response.status));
        }
        self.check(&response, asked)?;
        if !message.ahs.is_empty() {
            return Err(LoginFault::Field("TotalAHSLength"));
        }
        self.exp_stat_sn = response.numbers.stat_sn.next();
        self.heard.push(message.data)?;
        if let Step::Continued(_) = response.step {
            // The rest is asked for with nothing, and wherever we wanted to go, we still do.
            self.ask(asked, Vec::new());
            return self.check_length();
        }
        let whole = self.heard.take();
        let pairs = text::pairs(&whole)?;
        let mut said = Vec::new();
        self.take(&pairs, &mut said)?;
        self.proceed(&response, said)?;
        self.check_length()
    }

    /// The first request: with security if there is something to prove, else straight to the operational stage.
    fn begin(&mut self) {
        let LoginParams { initiator, target, account, .. } = &self.params;
        let mut said = Vec::new();
        text::append(&mut said, "InitiatorName", initiator.as_str());
        if let Some(target) = target {
            text::append(&mut said, "TargetName", target.as_str());
        }
        text::append(&mut said, "SessionType", if target.is_some() { "Normal" } else { "Discovery" });
        if account.is_some() {
            self.stage = Stage::Security;
            self.security = Security::Offered;
            // Nothing else: who has a secret for the target does not talk to one that wants none.
            text::append(&mut said, "AuthMethod", "CHAP");
            self.ask(Step::Stay(Stage::Security), said);
        } else {
            self.negotiation.offer(&mut said);
            self.ask(Step::Transit(Stage::Operational, Stage::FullFeature), said);
        }
    }

    fn ask(&mut self, step: Step, said: Vec<u8>) {
        self.requests += 1;
        let request = LoginRequest {
            step,
            version_max: VERSION,
            version_min: VERSION,
            isid: self.params.isid,
            tsih: Tsih(0),
            itt: LOGIN_TAG,
            cid: 0,
            order: Order { immediate: true, cmd_sn: FIRST_CMD_SN, exp_stat_sn: self.exp_stat_sn },
        };
        self.asked = Some(step);
        self.next = Some(Outgoing::new(Pdu::LoginRequest(request), said));
    }

    /// A target that never comes to an end.
    fn check_length(&mut self) -> Result<(), LoginFault> {
        if self.requests <= REQUESTS_MAX {
            return Ok(());
        }
        self.next = None;
        Err(LoginFault::TooManyRequests)
    }

    /// Whether the header answers what was asked.
    fn check(&self, response: &LoginResponse, asked: Step) -> Result<(), LoginFault> {
        let transits = match (response.step, asked) {
            (Step::Transit(_, to), Step::Transit(_, wanted)) => to <= wanted,
            (Step::Transit(..), _) => false,
            _ => true,
        };
        let first = self.requests == 1;
        for (right, field) in [
            (response.version_active == VERSION, "Version-active"),
            (response.isid == self.params.isid, "ISID"),
            (response.itt == LOGIN_TAG, "Initiator Task Tag"),
            (response.step.stage() == self.stage, "CSG"),
            (transits, "T or NSG"),
            (first || response.numbers.stat_sn == self.exp_stat_sn, "StatSN"),
        ] {
            if !right {
                return Err(LoginFault::Field(field));
            }
        }
        Ok(())
    }

    fn take(&mut self, pairs: &[Pair<'_>], said: &mut Vec<u8>) -> Result<(), LoginFault> {
        let is_security = |pair: &Pair<'_>| pair.key == "AuthMethod" || pair.key.starts_with("CHAP_");
        match (self.stage, &mut self.security) {
            (Stage::Security, Security::Offered) => {
                let mut methods = pairs.iter().filter(|pair| is_security(pair));
                match (methods.next(), methods.next()) {
                    (Some(Pair { key: "AuthMethod", value: "CHAP" }), None) => {}
                    _ => return Err(LoginFault::Method),
                }
                let account = self.params.account.clone().ok_or(LoginFault::Method)?;
                self.security = Security::Chap(Box::new(Chap::begin(account, self.params.seed, said)));
            }
            (Stage::Security, Security::Chap(chap)) => {
                if pairs.iter().any(|pair| pair.key == "AuthMethod") {
                    return Err(LoginFault::Method);
                }
                chap.handle_pairs(pairs, said)?;
            }
            _ if pairs.iter().any(is_security) => return Err(LoginFault::Method),
            _ => {}
        }
        for pair in pairs.iter().filter(|pair| !is_security(pair)) {
            self.negotiation.handle_pair(*pair, said)?;
        }
        Ok(())
    }

    /// Says what comes next.
    fn proceed(&mut self, response: &LoginResponse, mut said: Vec<u8>) -> Result<(), LoginFault> {
        let (transit, stage) = match response.step {
            Step::Transit(_, to) => (true, to),
            _ => (false, self.stage),
        };
        let chap = match &self.security {
            Security::Chap(chap) => Some((chap.has_responded(), chap.is_done())),
            Security::Offered => Some((false, false)),
            Security::Done => None,
        };
        match (stage, chap) {
            (Stage::FullFeature, _) => return self.finish(response),
            // Nobody leaves the stage before all is proved.
            (Stage::Operational, Some((_, false))) => {
                return Err(ChapFault::Missing("CHAP_N or CHAP_R").into());
            }
            (Stage::Operational, _) => {
                if transit {
                    self.stage = stage;
                    self.security = Security::Done;
                    self.negotiation.offer(&mut said);
                }
                self.ask(Step::Transit(Stage::Operational, Stage::FullFeature), said);
            }
            (Stage::Security, Some((true, _))) => {
                self.ask(Step::Transit(Stage::Security, Stage::Operational), said);
            }
            (Stage::Security, _) => self.ask(Step::Stay(Stage::Security), said),
        }
        Ok(())
    }

    fn finish(&mut self, response: &LoginResponse) -> Result<(), LoginFault> {
        if response.tsih == Tsih(0) {
            return Err(LoginFault::Field("TSIH"));
        }
        let Numbers { exp_cmd_sn, .. } = response.numbers;
        // Nothing was numbered yet.
        if exp_cmd_sn != FIRST_CMD_SN {
            return Err(LoginFault::Field("ExpCmdSN"));
        }
        let agreed = self.negotiation.finish()?;
        self.established = Some(Established { agreed, tsih: response.tsih, numbers: response.numbers });
        Ok(())
    }
}

#[cfg(test)]
mod tests;
