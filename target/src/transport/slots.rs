//! Registered memory in slots of one size, for messages that are received or sent.
//!
//! A slot that is posted belongs to the device until its completion, and to whoever posted it after.

use std::sync::Arc;

use rwctx::device::{Device, DeviceError};
use rwctx::mem::{Access, Mr, Pd, Region};
use rwctx::wr::Sge;

/// Slots of one size.
#[derive(Debug)]
pub(crate) struct Slots {
    region: Arc<Region>,
    mr: Mr,
    length: usize,
    count: u32,
}

impl Slots {
    /// `count` slots of `length` bytes.
    pub(crate) fn new<D: Device>(
        device: &mut D,
        pd: Pd,
        count: u32,
        length: usize,
    ) -> Result<Self, DeviceError> {
        let whole = count as usize * length;
        let region = Arc::new(Region::new(whole).map_err(|_| DeviceError::NoResources("message memory"))?);
        let access = Access { local_write: true, ..Access::default() };
        let mr = device.reg_mr(pd, &region, 0, whole, access)?;
        Ok(Self { region, mr, length, count })
    }

    /// Gives the registration back; the device no longer uses the memory (its queue pair is gone).
    pub(crate) fn release<D: Device>(self, device: &mut D) {
        let released = device.dereg_mr(self.mr.id);
        debug_assert!(released.is_ok(), "the registration is released once");
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// What is posted to receive into a slot.
    pub(crate) fn receive(&self, index: u32) -> Sge {
        let length = u32::try_from(self.length).expect("a slot is a few KiB");
        Sge { addr: self.mr.addr + self.offset(index) as u64, length, lkey: self.mr.lkey }
    }

    /// Copies what stands in a slot from `offset` on. It must lie in the slot.
    pub(crate) fn read(&self, index: u32, offset: usize, to: &mut [u8]) {
        debug_assert!(offset + to.len() <= self.length, "what is read lies in the slot");
        self.region.read(self.offset(index) + offset, to);
    }

    /// Writes a message into a slot and returns what to send. It must fit the slot.
    pub(crate) fn write(&self, index: u32, message: &[u8]) -> Sge {
        assert!(message.len() <= self.length, "a message fits its slot");
        self.region.write(self.offset(index), message);
        let length = u32::try_from(message.len()).expect("a slot is a few KiB");
        Sge { length, ..self.receive(index) }
    }

    fn offset(&self, index: u32) -> usize {
        debug_assert!(index < self.count, "a slot of this memory");
        index as usize * self.length
    }
}
