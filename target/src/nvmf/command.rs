//! Commands as values: a submission queue entry is read once, here, and everything in it is converted (0's-based
//! counts to counts, dwords to bytes, descriptor bytes to a [`DataPointer`]).
//!
//! Parsing decides what a command *says*; whether a namespace or controller can do it is decided later
//! ([`super::validate`], [`super::controller`]). Never touches data. Base 3.3.3.1, 5 and 6; NVM 3; the order of
//! the checks is: flags, opcode, descriptor, command-specific fields.

mod admin;
mod data_pointer;
mod fabrics;
mod io;
mod pi_fields;
mod sgl_list;
#[cfg(test)]
mod tests;

pub use self::admin::{AdminCommand, AdminOp};
pub use self::data_pointer::DataPointer;
pub use self::fabrics::{ConnectFields, FabricsCommand, FabricsOp, PropertySize};
pub use self::io::{BlockRange, IoCommand, IoOp};
pub use self::pi_fields::PiFields;
pub use self::sgl_list::{MAX_SGL_DESCRIPTORS, SglList};
use super::wire::sqe::{FUSE_MASK, PSDT_MASK, PSDT_SGL, Sqe, admin_opcode};
use super::wire::status::Status;

/// Which kind of queue a command arrived on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// Queue 0.
    Admin,
    /// Any other.
    Io,
}

/// Direction of a command's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// No data.
    None,
    /// Host to controller.
    FromHost,
    /// Controller to host.
    ToHost,
}

/// Any command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A Fabrics command, on either kind of queue.
    Fabrics(FabricsCommand),
    /// An Admin command.
    Admin(AdminCommand),
    /// An I/O command.
    Io(IoCommand),
}

impl Command {
    /// Reads a submission queue entry that arrived on a queue of `kind`.
    ///
    /// # Errors
    /// The status to complete the command with (its CID is [`Sqe::cid`]).
    pub fn parse(sqe: &Sqe, kind: QueueKind) -> Result<Self, Status> {
        if sqe.flags & PSDT_MASK != PSDT_SGL || sqe.flags & FUSE_MASK != 0 {
            return Err(Status::INVALID_FIELD);
        }
        match (sqe.opc, kind) {
            (admin_opcode::FABRICS, _) => FabricsCommand::parse(sqe).map(Self::Fabrics),
            (_, QueueKind::Admin) => AdminCommand::parse(sqe).map(Self::Admin),
            (_, QueueKind::Io) => IoCommand::parse(sqe).map(Self::Io),
        }
    }

    /// Command Identifier.
    #[must_use]
    pub const fn cid(&self) -> u16 {
        match self {
            Self::Fabrics(c) => c.cid,
            Self::Admin(c) => c.cid,
            Self::Io(c) => c.cid,
        }
    }

    /// The submission queue entry that says this: what a host sends.
    #[must_use]
    pub fn emit(&self) -> Sqe {
        match self {
            Self::Fabrics(c) => c.emit(),
            Self::Admin(c) => c.emit(),
            Self::Io(c) => c.emit(),
        }
    }
}

fn low16(dword: u32) -> u16 {
    let [a, b, ..] = dword.to_le_bytes();
    u16::from_le_bytes([a, b])
}

fn high16(dword: u32) -> u16 {
    let [.., a, b] = dword.to_le_bytes();
    u16::from_le_bytes([a, b])
}

fn byte(dword: u32, index: usize) -> u8 {
    dword.to_le_bytes()[index]
}

fn halves(value: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = value.to_le_bytes();
    [u32::from_le_bytes([a, b, c, d]), u32::from_le_bytes([e, f, g, h])]
}
