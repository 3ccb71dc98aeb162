//! What ends a login, and with which status.

use thiserror::Error;

use super::super::chap::ChapError;
use super::super::keys::KeyError;
use super::super::name::{IscsiName, NameError};
use super::super::text::TextError;
use super::super::wire::login::LoginStatus;
use super::super::wire::message::MessageError;
use super::super::wire::opcode::Opcode;
use super::super::wire::pdu::PduError;

/// Why a connection in its login phase is closed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LoginClose {
    /// What arrived is no PDU, so that there is nothing to answer.
    #[error("login: {0}")]
    Malformed(MessageError),
    /// The login was refused.
    #[error("login refused: {0}")]
    Refused(LoginFault),
    /// The login took too long.
    #[error("the login was not over in time")]
    Timeout,
}

/// What a host did wrong, or why it may not enter.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum LoginFault {
    /// Another PDU than a Login Request.
    #[error("{0:?} before the end of the login")]
    NoLogin(Opcode),
    /// A header that contradicts itself.
    #[error(transparent)]
    Header(#[from] PduError),
    /// There are additional header segments.
    #[error("a Login Request with additional header segments")]
    AdditionalHeader,
    /// More requests than a login needs.
    #[error("more than {} requests", super::REQUESTS_MAX)]
    TooManyRequests,
    /// A request before the last one was answered.
    #[error("a request while the last response is still to come")]
    OutOfTurn,
    /// No version in common.
    #[error("the lowest version of the host is {0}, the only one there is 0")]
    Version(u8),
    /// ISID, TSIH, tag, CID or CmdSN is another than at first.
    #[error("ISID, TSIH, task tag, CID or CmdSN changed during the login")]
    ChangedHeader,
    /// CSG is not the stage that was agreed on.
    #[error("CSG is not the current stage")]
    WrongStage,
    /// The text is none.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A key of the first request is missing.
    #[error("{0} is missing in the first request")]
    Missing(&'static str),
    /// SessionType or TargetName after the first request.
    #[error("SessionType or TargetName after the first request")]
    LateIdentity,
    /// A name is none.
    #[error(transparent)]
    Name(NameError),
    /// SessionType is neither Discovery nor Normal.
    #[error("SessionType is neither Discovery nor Normal")]
    SessionType,
    /// There is no such target.
    #[error("there is no target {0}")]
    NoTarget(IscsiName),
    /// The initiator may not use the target.
    #[error("{initiator} may not use {target}")]
    NotAllowed {
        /// The host.
        initiator: IscsiName,
        /// The target.
        target: IscsiName,
    },
    /// The target wants CHAP, and the host begins behind that.
    #[error("the host leaves out the authentication that the target demands")]
    SecuritySkipped,
    /// No method of the host is the one that the target wants.
    #[error("AuthMethod: none of the host's methods will do")]
    Method,
    /// CHAP failed.
    #[error("CHAP: {0}")]
    Chap(#[from] ChapError),
    /// A key broke a rule.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// There is no place for the session.
    #[error("no place for the session: {0}")]
    NoPlace(LoginStatus),
}

impl LoginFault {
    /// What the host is told.
    #[must_use]
    pub fn status(&self) -> LoginStatus {
        match self {
            Self::NoLogin(_) => LoginStatus::InvalidDuringLogin,
            Self::Header(_)
            | Self::AdditionalHeader
            | Self::TooManyRequests
            | Self::OutOfTurn
            | Self::ChangedHeader
            | Self::WrongStage
            | Self::Text(_)
            | Self::LateIdentity
            | Self::Name(_)
            | Self::Key(_) => LoginStatus::InitiatorError,
            Self::Version(_) => LoginStatus::UnsupportedVersion,
            Self::Missing(_) => LoginStatus::MissingParameter,
            Self::SessionType => LoginStatus::SessionTypeNotSupported,
            Self::NoTarget(_) => LoginStatus::NotFound,
            Self::NotAllowed { .. } => LoginStatus::AuthorizationFailure,
            Self::SecuritySkipped | Self::Method | Self::Chap(_) => LoginStatus::AuthenticationFailure,
            Self::NoPlace(status) => *status,
        }
    }
}
