//! A header of any opcode as the value that it is.

use thiserror::Error;

use super::async_message::AsyncMessage;
use super::bhs::Bhs;
use super::login::{LoginRequest, LoginResponse};
use super::logout::{LogoutRequest, LogoutResponse};
use super::nop::{NopIn, NopOut};
use super::opcode::Opcode;
use super::reject::Reject;
use super::scsi::{ScsiCommand, ScsiResponse};
use super::task::{TaskRequest, TaskResponse};
use super::text::{TextRequest, TextResponse};

/// Why a header is no PDU that goes over iSER.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PduError {
    /// Data-Out, Data-In and Ready To Transfer: RDMA moves the data instead (RFC 7145 section 7.3).
    #[error("{0:?}: over iSER data moves by RDMA")]
    NotOverIser(Opcode),
    /// The opcode is reserved, a vendor's, or needs error recovery.
    #[error("{0:?}: not supported")]
    NotSupported(Opcode),
    /// A field, and what is wrong with it.
    #[error("{0}")]
    Field(&'static str),
}

/// A PDU of either side, without its data segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each arm is named as the value it holds")]
pub enum Pdu {
    NopOut(NopOut),
    ScsiCommand(ScsiCommand),
    TaskRequest(TaskRequest),
    LoginRequest(LoginRequest),
    TextRequest(TextRequest),
    LogoutRequest(LogoutRequest),
    NopIn(NopIn),
    ScsiResponse(ScsiResponse),
    TaskResponse(TaskResponse),
    LoginResponse(LoginResponse),
    TextResponse(TextResponse),
    LogoutResponse(LogoutResponse),
    AsyncMessage(AsyncMessage),
    Reject(Reject),
}

impl Pdu {
    /// What a header says.
    ///
    /// # Errors
    /// When the opcode has no place on an iSER connection, or fields contradict each other.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        Ok(match bhs.opcode() {
            Opcode::NopOut => Self::NopOut(NopOut::parse(bhs)),
            Opcode::ScsiCommand => Self::ScsiCommand(ScsiCommand::parse(bhs)),
            Opcode::TaskManagementRequest => Self::TaskRequest(TaskRequest::parse(bhs)),
            Opcode::LoginRequest => Self::LoginRequest(LoginRequest::parse(bhs)?),
            Opcode::TextRequest => Self::TextRequest(TextRequest::parse(bhs)?),
            Opcode::LogoutRequest => Self::LogoutRequest(LogoutRequest::parse(bhs)),
            Opcode::NopIn => Self::NopIn(NopIn::parse(bhs)),
            Opcode::ScsiResponse => Self::ScsiResponse(ScsiResponse::parse(bhs)?),
            Opcode::TaskManagementResponse => Self::TaskResponse(TaskResponse::parse(bhs)),
            Opcode::LoginResponse => Self::LoginResponse(LoginResponse::parse(bhs)?),
            Opcode::TextResponse => Self::TextResponse(TextResponse::parse(bhs)?),
            Opcode::LogoutResponse => Self::LogoutResponse(LogoutResponse::parse(bhs)),
            Opcode::AsyncMessage => Self::AsyncMessage(AsyncMessage::parse(bhs)),
            Opcode::Reject => Self::Reject(Reject::parse(bhs)),
            other @ (Opcode::DataOut | Opcode::DataIn | Opcode::ReadyToTransfer) => {
                return Err(PduError::NotOverIser(other));
            }
            other @ (Opcode::SnackRequest | Opcode::Unknown(_)) => return Err(PduError::NotSupported(other)),
        })
    }

    /// The header that says this; its lengths are zero.
    #[must_use]
    pub fn emit(&self) -> Bhs {
        match self {
            Self::NopOut(pdu) => pdu.emit(),
            Self::ScsiCommand(pdu) => pdu.emit(),
            Self::TaskRequest(pdu) => pdu.emit(),
            Self::LoginRequest(pdu) => pdu.emit(),
            Self::TextRequest(pdu) => pdu.emit(),
            Self::LogoutRequest(pdu) => pdu.emit(),
            Self::NopIn(pdu) => pdu.emit(),
            Self::ScsiResponse(pdu) => pdu.emit(),
            Self::TaskResponse(pdu) => pdu.emit(),
            Self::LoginResponse(pdu) => pdu.emit(),
            Self::TextResponse(pdu) => pdu.emit(),
            Self::LogoutResponse(pdu) => pdu.emit(),
            Self::AsyncMessage(pdu) => pdu.emit(),
            Self::Reject(pdu) => pdu.emit(),
        }
    }
}
