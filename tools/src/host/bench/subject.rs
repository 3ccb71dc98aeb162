//! What a measurement runs on: a namespace or a logical unit, and the queues or sessions on which it is reached.

use std::net::SocketAddr;
use std::time::Instant;

use rwctx::device::soft::device::SoftCounters;
use t10pi::{Format, PiType};

use super::PiMode;
use super::source::Op;
use crate::host::error::HostError;

/// Geometry and protection of what is measured.
#[derive(Clone, Debug)]
pub struct Disk {
    /// What it is called in messages: `namespace 1`.
    pub name: String,
    /// Size in blocks.
    pub blocks: u64,
    /// Bytes of user data in a block.
    pub block_size: u32,
    /// Format and type of its protection.
    pub protection: Option<(Format, PiType)>,
    /// Refuses commands that change blocks.
    pub read_only: bool,
    /// User data of a command at most, in bytes.
    pub max_data: u64,
}

impl Disk {
    /// The reference tag with which a transfer at `slba` starts.
    #[must_use]
    pub fn ref_tag(&self, slba: u64) -> u64 {
        match self.protection {
            Some((format, PiType::Type1 | PiType::Type2)) => format.ref_tag_of(slba),
            _ => 0,
        }
    }
}

/// A command on blocks.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// What it does.
    pub op: Op,
    /// First block.
    pub slba: u64,
    /// Blocks.
    pub blocks: u32,
    /// Bytes that it transfers.
    pub length: u32,
    /// Who handles protection information.
    pub pi: PiMode,
}

/// A command that ended.
#[derive(Debug)]
pub struct Done {
    /// The slot that it was sent for.
    pub slot: usize,
    /// How it failed, if it did.
    pub failure: Option<Box<HostError>>,
}

/// What commands are sent to. Each goes for a slot, which has memory for its data; slots are dealt out evenly to queues or
/// sessions.
pub trait Subject {
    /// The other side.
    fn target(&self) -> SocketAddr;

    /// Receives what is there, without waiting.
    fn receive(&mut self, now: Instant);

    /// Sends everything that waits.
    fn transmit(&mut self, now: Instant);

    /// Does what need not be done all the time.
    ///
    /// # Errors
    /// When a connection broke.
    fn look_after(&mut self, now: Instant) -> Result<(), HostError>;

    /// Sums of the device.
    fn counters(&self) -> SoftCounters;

    /// Copies into a slot.
    fn write(&self, slot: usize, from: &[u8]);

    /// Copies out of a slot.
    fn read(&self, slot: usize, to: &mut [u8]);

    /// Whether a command can be sent for a slot now. If not, it can when something completed.
    fn has_room(&self, slot: usize) -> bool;

    /// Sends a command for a slot, for which there is room. Returns the number of the message that carries its data, if one
    /// does.
    ///
    /// # Errors
    /// When a connection broke.
    fn submit(&mut self, slot: usize, transfer: &Transfer) -> Result<Option<u32>, HostError>;

    /// Takes the next command that ended.
    ///
    /// # Errors
    /// When a connection broke, or the target breaks the protocol.
    fn next_done(&mut self) -> Result<Option<Done>, HostError>;

    /// Whether a message that carries a slot's data will not be sent again.
    fn is_acked(&self, slot: usize, message: u32) -> bool;
}
