//! Memory for commands' data, and the keys under which the target reaches it.
//!
//! Slots of one region. Either the whole region has one key that lasts ([`Keys::Lasting`]), or each command gets one of its
//! own that the target is asked to invalidate ([`Keys::PerCommand`]), as Linux hosts do.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use intact::nvmf::command::DataPointer;
use rwctx::device::RemoteAccess;
use rwctx::mem::{Access, Mr, Region};
use rwctx::remote::{RemoteAddr, RemoteSegment, Rkey};
use rwctx::wr::{SendOp, Sge};

use super::clock;
use super::error::HostError;
use super::link::Completion;

/// What memory is registered with: the device, and the queue pairs to one target.
pub trait Registrar {
    /// The other side.
    fn target(&self) -> SocketAddr;

    /// Registers memory for the target to READ and WRITE, if `remote`, and for us.
    ///
    /// # Errors
    /// When the device is out of registrations.
    fn register(&mut self, region: &Arc<Region>, remote: RemoteAccess) -> Result<Mr, HostError>;

    /// Makes a registration that [`Self::post_memory`] gives memory.
    ///
    /// # Errors
    /// When the device is out of registrations.
    fn alloc_fast_reg(&mut self) -> Result<Mr, HostError>;

    /// Gives a registration back.
    ///
    /// # Errors
    /// When it does not exist.
    fn deregister(&mut self, mr: &Mr) -> Result<(), HostError>;

    /// Posts a registration or invalidation on a queue pair: it is carried out before messages that are sent later.
    ///
    /// # Errors
    /// When the queue pair failed.
    fn post_memory(&mut self, queue: usize, op: SendOp, memory: &[Sge]) -> Result<(), HostError>;

    /// Sends everything that waits.
    fn transmit(&mut self, now: Instant);
}

/// How the target reaches memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    /// One key for all commands, never invalidated.
    #[default]
    Lasting,
    /// Memory is registered for each command, and the response invalidates the key.
    PerCommand,
}

/// Data slots of equal size.
#[derive(Debug)]
pub struct Buffers {
    region: Arc<Region>,
    mr: Mr,
    slot_len: usize,
    /// By slot; none with a lasting key.
    fast: Vec<FastReg>,
}

/// A registration that gets memory for each command.
#[derive(Debug)]
struct FastReg {
    mr: Mr,
    key: Rkey,
    valid: bool,
}

/// Slots start at multiples of this.
const ALIGNMENT: usize = 4096;

impl Buffers {
    /// `slots` slots of at least `slot_len` bytes.
    ///
    /// # Errors
    /// When the memory or its registrations are not to be had.
    pub fn new(
        link: &mut impl Registrar,
        slots: usize,
        slot_len: usize,
        keys: Keys,
    ) -> Result<Self, HostError> {
        let slot_len = slot_len.max(1).next_multiple_of(ALIGNMENT);
        let region = Region::new(slots * slot_len)
            .map_err(|errno| HostError::system(format!("map {} bytes", slots * slot_len), errno))?;
        let region = Arc::new(region);
        let (remote, count) = match keys {
            Keys::Lasting => (RemoteAccess { read: true, write: true }, 0),
            Keys::PerCommand => (RemoteAccess::default(), slots),
        };
        let mr = link.register(&region, remote)?;
        let mut fast = Vec::with_capacity(count);
        for _ in 0..count {
            let mr = link.alloc_fast_reg()?;
            fast.push(FastReg { key: mr.rkey, mr, valid: false });
        }
        Ok(Self { region, mr, slot_len, fast })
    }

    /// Bytes of a slot.
    #[must_use]
    pub fn slot_len(&self) -> usize {
        self.slot_len
    }

    /// Copies into a slot.
    #[inline]
    pub fn write(&self, slot: usize, from: &[u8]) {
        debug_assert!(from.len() <= self.slot_len, "data fits its slot");
        self.region.write(slot * self.slot_len, from);
    }

    /// Copies out of a slot.
    #[inline]
    pub fn read(&self, slot: usize, to: &mut [u8]) {
        debug_assert!(to.len() <= self.slot_len, "data fits its slot");
        self.region.read(slot * self.slot_len, to);
    }

    /// The first `length` bytes of a slot, for work requests of our own.
    #[inline]
    #[must_use]
    pub fn sge(&self, slot: usize, length: u32) -> Sge {
        Sge { addr: self.mr.addr + (slot * self.slot_len) as u64, length, lkey: self.mr.lkey }
    }

    /// The first `length` bytes of a slot, for an NVMe command on `queue`: registers them for it, if each command has its key.
    ///
    /// # Errors
    /// When the queue pair failed.
    #[inline]
    pub fn grant(
        &mut self,
        link: &mut impl Registrar,
        queue: usize,
        slot: usize,
        length: u32,
    ) -> Result<DataPointer, HostError> {
        if length == 0 {
            return Ok(DataPointer::None);
        }
        let segment = self.lend(link, queue, slot, length)?;
        Ok(DataPointer::Keyed { segment, invalidate: !self.fast.is_empty() })
    }

    /// The first `length` bytes of a slot, at least one, as the target reaches them for a command on `queue`: registers them
    /// for it, if each command has its key.
    ///
    /// # Errors
    /// When the queue pair failed.
    #[inline]
    pub fn lend(
        &mut self,
        link: &mut impl Registrar,
        queue: usize,
        slot: usize,
        length: u32,
    ) -> Result<RemoteSegment, HostError> {
        let sge = self.sge(slot, length);
        let rkey = match self.fast.get_mut(slot) {
            None => self.mr.rkey,
            Some(fast) => {
                fast.revoke(link, queue)?;
                fast.key = next_key(fast.key);
                let access = Access { local_write: true, remote_read: true, remote_write: true };
                let op = SendOp::RegMr { mr: fast.mr.id, key: fast.key, access };
                link.post_memory(queue, op, &[sge])?;
                fast.valid = true;
                fast.key
            }
        };
        Ok(RemoteSegment { at: RemoteAddr { addr: sge.addr, rkey }, length })
    }

    /// The NVMe command that used a slot completed: its key is no longer valid.
    ///
    /// # Errors
    /// When the target invalidated a key that it should not have, or the queue pair failed.
    #[inline]
    pub fn completed(
        &mut self,
        link: &mut impl Registrar,
        slot: usize,
        done: &Completion,
    ) -> Result<(), HostError> {
        self.returned(link, done.queue, slot, done.invalidated)
    }

    /// The command on `queue` that used a slot has ended, and the answer invalidated a key, or none: that of the slot is no
    /// longer valid.
    ///
    /// # Errors
    /// When the target invalidated a key that it should not have, or the queue pair failed.
    #[inline]
    pub fn returned(
        &mut self,
        link: &mut impl Registrar,
        queue: usize,
        slot: usize,
        invalidated: Option<Rkey>,
    ) -> Result<(), HostError> {
        let Some(fast) = self.fast.get_mut(slot) else {
            return match invalidated {
                None => Ok(()),
                Some(key) => Err(wrong_key(link, key)),
            };
        };
        match invalidated {
            Some(key) if key == fast.key && fast.valid => fast.valid = false,
            Some(key) => return Err(wrong_key(link, key)),
            // Allowed: then it is ours to do.
            None => fast.revoke(link, queue)?,
        }
        Ok(())
    }

    /// Gives memory and registrations back.
    ///
    /// # Errors
    /// When the device does not know them.
    pub fn release(self, link: &mut impl Registrar) -> Result<(), HostError> {
        // Invalidations that were posted are carried out while the registration still exists.
        link.transmit(clock::now());
        for fast in &self.fast {
            link.deregister(&fast.mr)?;
        }
        link.deregister(&self.mr)
    }
}

impl FastReg {
    /// Invalidates the key ourselves, if it is valid.
    fn revoke(&mut self, link: &mut impl Registrar, queue: usize) -> Result<(), HostError> {
        if std::mem::take(&mut self.valid) {
            link.post_memory(queue, SendOp::LocalInv(self.key), &[])?;
        }
        Ok(())
    }
}

#[cold]
fn wrong_key(link: &impl Registrar, key: Rkey) -> HostError {
    HostError::Protocol {
        target: link.target(),
        what: format!("it invalidated {key:?}, which it was not told to"),
    }
}

/// The next key of the same region: its low byte steps.
fn next_key(key: Rkey) -> Rkey {
    Rkey(key.0 & !0xff | key.0.wrapping_add(1) & 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_step_in_their_low_byte_only() {
        assert_eq!(next_key(Rkey(0x0102_0304)), Rkey(0x0102_0305));
        assert_eq!(next_key(Rkey(0x0102_03ff)), Rkey(0x0102_0300));
        assert_eq!(next_key(Rkey(0xffff_ffff)), Rkey(0xffff_ff00));
    }
}
