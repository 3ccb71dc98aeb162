//! Everything that keeps a host from getting what it asked for, in words for people.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use intact::iscsi::wire::login::LoginStatus;
use intact::iscsi::wire::opcode::Opcode;
use intact::iscsi::wire::reject::RejectReason;
use intact::nvmf::wire::private_data::{RejectData, RejectStatus};
use intact::nvmf::wire::status::Status;
use rwctx::device::soft::driver::OpenError;
use rwctx::device::soft::wire::RejReason;
use rwctx::device::{DeviceError, PostError};
use rwctx::wc::WcStatus;
use thiserror::Error;
use zerocopy::FromBytes;

use super::iscsi::Failure;

/// Why an operation of the host failed.
#[derive(Debug, Error)]
pub enum HostError {
    /// The soft device can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// No local address is known from which the target can be reached.
    #[error("no local address for {target}: name one with --local")]
    NoLocal {
        /// The target.
        target: IpAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The local address is the target's, where the target's device is.
    #[error(
        "{target} can't be both the target's address and this host's: name another address of this machine with --local"
    )]
    LocalIsTarget {
        /// Both.
        target: IpAddr,
    },
    /// The device refused an object.
    #[error("the RDMA device refuses: {0}")]
    Device(#[from] DeviceError),
    /// The device refused work.
    #[error("the RDMA device refuses work: {0}")]
    Post(#[from] PostError),
    /// The system refused something.
    #[error("can't {what}")]
    System {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
    /// A file can't be used.
    #[error("{path}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The target answered a connection request, with no.
    #[error("{target} refused the connection of {of}: {refusal}")]
    Refused {
        /// Whom we asked.
        target: SocketAddr,
        /// For what.
        of: Of,
        /// Why.
        refusal: Refusal,
    },
    /// The target did not answer.
    #[error("no answer from {target} within {} s: {what}", after.as_secs_f32())]
    Timeout {
        /// Whom we asked.
        target: SocketAddr,
        /// What was asked.
        what: &'static str,
        /// How long we waited.
        after: Duration,
    },
    /// The connection broke.
    #[error("the connection of {of} to {target} broke: {fault}")]
    Broken {
        /// The other side.
        target: SocketAddr,
        /// What it was for.
        of: Of,
        /// How.
        fault: Fault,
    },
    /// The target broke the protocol.
    #[error("{target} breaks the protocol: {what}")]
    Protocol {
        /// The other side.
        target: SocketAddr,
        /// What it did.
        what: String,
    },
    /// A command completed with a status other than success.
    #[error("{command} failed: {}", describe(command, *status))]
    Status {
        /// Which command.
        command: &'static str,
        /// How it completed.
        status: Status,
    },
    /// A SCSI command ended with a status other than GOOD.
    #[error("{command} failed: {failure}")]
    Scsi {
        /// Which command.
        command: &'static str,
        /// How it ended.
        failure: Failure,
    },
    /// An iSCSI login was refused.
    #[error("{0}")]
    Login(LoginStatus),
    /// An iSCSI target rejected what we sent.
    #[error("{opcode:?} rejected: {}", reason.text())]
    Rejected {
        /// What was sent.
        opcode: Opcode,
        /// Why it was rejected.
        reason: RejectReason,
    },
    /// What was asked for does not fit this target or namespace.
    #[error("{0}")]
    Invalid(String),
    /// Data that was read is not what was written.
    #[error("verify: {0}")]
    Corrupt(String),
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// The NVMe queue of this identifier.
    Queue(u16),
    /// The iSCSI session of this number, from 0.
    Session(u16),
}

impl fmt::Display for Of {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Queue(qid) => write!(f, "queue {qid}"),
            Self::Session(number) => write!(f, "session {number}"),
        }
    }
}

/// How a connection broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The target disconnected.
    Disconnected,
    /// A work request failed.
    Work(WcStatus),
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disconnected => "the target disconnected",
            Self::Work(WcStatus::RetryExcErr) => "the target does not acknowledge",
            Self::Work(WcStatus::RnrRetryExcErr) => "the target has no room for commands",
            Self::Work(WcStatus::WrFlushErr) => "the queue pair failed",
            Self::Work(WcStatus::RemAccessErr) => "the target refused access to its memory",
            Self::Work(WcStatus::RemInvReqErr) => "the target found a request invalid",
            Self::Work(WcStatus::RemOpErr) => "the target could not complete a request",
            Self::Work(status) => return write!(f, "{status:?}"),
        })
    }
}

/// Why a connection request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The connection manager refused.
    Manager(RejReason),
    /// The NVMe target refused, with a status.
    Nvme(u16),
}

impl Refusal {
    /// Reads a REJ's reason and private data. What an iSER target refuses, it says no more of.
    #[must_use]
    pub fn new(of: Of, reason: RejReason, private: &[u8]) -> Self {
        match (of, RejectData::ref_from_prefix(private)) {
            (Of::Queue(_), Ok((data, _))) if reason == RejReason::Consumer => Self::Nvme(data.sts.get()),
            _ => Self::Manager(reason),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Manager(reason) => {
                f.write_str(match reason {
                    RejReason::InvalidServiceId => "nobody listens on this port",
                    RejReason::Stale => "it still holds an older connection of this host; try again",
                    RejReason::InvalidMtu => "the path MTU is too large for it",
                    RejReason::NoQp | RejReason::NoResources => "it is out of resources",
                    RejReason::Timeout => "it gave up",
                    RejReason::InvalidGid => "the address is not its own",
                    RejReason::Consumer => "the target refuses",
                    _ => "rejected",
                })?;
                write!(f, " (CM reason {})", u16::from(reason))
            }
            Self::Nvme(status) => {
                let text = match RejectStatus::from_wire(status) {
                    Some(RejectStatus::InvalidLength) => "invalid private data length",
                    Some(RejectStatus::InvalidRecfmt) => "invalid record format",
                    Some(RejectStatus::InvalidQid) => "invalid queue ID",
                    Some(RejectStatus::InvalidHsqsize) => "invalid host send queue size",
                    Some(RejectStatus::InvalidHrqsize) => "invalid host receive queue size",
                    Some(RejectStatus::NoResources) => "no resources",
                    Some(RejectStatus::InvalidIrd) => "invalid inbound RDMA read depth",
                    Some(RejectStatus::InvalidOrd) => "invalid outbound RDMA read depth",
                    None => "unknown",
                };
                write!(f, "NVMe status {status} ({text})")
            }
        }
    }
}

/// A status in words, as `command` means it: NVMe gives two codes to Connect and to I/O commands, in different senses.
#[must_use]
pub fn describe(command: &str, status: Status) -> String {
    let connect = command == "Connect";
    let text = if status.code() == Status::CONNECT_CONTROLLER_BUSY.code() {
        if connect { "connect controller busy" } else { "invalid protection information" }
    } else if status.code() == Status::CONNECT_INVALID_PARAMETERS.code() {
        if connect { "connect invalid parameters" } else { "attempted write to read only range" }
    } else {
        return status.to_string();
    };
    format!("SCT {:#x} SC {:#04x} ({text})", status.sct(), status.sc())
}

/// What to look at first when `command` completed with `status`.
#[must_use]
pub fn advice(command: &str, status: Status) -> Option<&'static str> {
    if command != "Connect" {
        None
    } else if status.code() == Status::CONNECT_INVALID_PARAMETERS.code() {
        Some("is there a subsystem of this NQN? discover lists those that are open to this host")
    } else if status.code() == Status::CONNECT_INVALID_HOST.code() {
        Some("the subsystem is not open to this host's NQN; --hostnqn gives another")
    } else {
        None
    }
}

impl HostError {
    /// How a command completed, or a login, that was answered with another status than success.
    #[must_use]
    pub fn status(&self) -> Option<String> {
        match self {
            Self::Status { command, status } => Some(describe(command, *status)),
            Self::Scsi { failure, .. } => Some(failure.to_string()),
            Self::Login(status) => Some(status.to_string()),
            Self::Rejected { opcode, reason } => {
                Some(format!("{} rejected: {}", opcode.text(), reason.text()))
            }
            _ => None,
        }
    }

    /// What to look at first.
    #[must_use]
    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Status { command, status } => advice(command, *status),
            Self::Login(LoginStatus::NotFound) => {
                Some("is there a target of this name? iscsi discover lists those that are open to this host")
            }
            Self::Login(LoginStatus::AuthorizationFailure) => {
                Some("the target is not open to this initiator's name; --initiatorname gives another")
            }
            Self::Login(LoginStatus::AuthenticationFailure) => {
                Some("the target wants CHAP, or other names and secrets: --chap-user, --chap-secret")
            }
            _ => None,
        }
    }

    /// A system call that failed.
    pub(crate) fn system(what: impl Into<String>, source: impl Into<std::io::Error>) -> Self {
        Self::System { what: what.into(), source: source.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_what_its_command_means() {
        let pi = describe("Read", Status::INVALID_PROTECTION_INFORMATION);
        assert_eq!(pi, "SCT 0x1 SC 0x81 (invalid protection information)");
        let busy = describe("Connect", Status::CONNECT_CONTROLLER_BUSY);
        assert_eq!(busy, "SCT 0x1 SC 0x81 (connect controller busy)");
        let range = describe("Write", Status::WRITE_TO_READ_ONLY);
        assert_eq!(range, "SCT 0x1 SC 0x82 (attempted write to read only range)");
        let nqn = describe("Connect", Status::CONNECT_INVALID_PARAMETERS);
        assert_eq!(nqn, "SCT 0x1 SC 0x82 (connect invalid parameters)");
        assert_eq!(advice("Write", Status::WRITE_TO_READ_ONLY), None);
        let guard = describe("Read", Status::GUARD_CHECK_ERROR);
        assert_eq!(guard, Status::GUARD_CHECK_ERROR.to_string());
    }

    #[test]
    fn a_refusal_says_the_targets_own_reason_when_it_gave_one() {
        let consumer = Refusal::new(Of::Queue(0), RejReason::Consumer, &[0, 0, 4, 0, 0]);
        assert_eq!(consumer.to_string(), "NVMe status 4 (invalid host send queue size)");
        let manager = Refusal::new(Of::Queue(0), RejReason::InvalidServiceId, &[0, 0, 4, 0]);
        assert_eq!(manager.to_string(), "nobody listens on this port (CM reason 8)");
        let other = Refusal::new(Of::Queue(0), RejReason::Other(99), &[]);
        assert_eq!(other.to_string(), "rejected (CM reason 99)");
        let iser = Refusal::new(Of::Session(0), RejReason::Consumer, &[0, 0, 4, 0]);
        assert_eq!(iser.to_string(), "the target refuses (CM reason 28)");
    }
}
