//! Memory of one queue's capsules: receive slots for commands, send slots for responses.
//!
//! One region a queue, registered with the reactor's device. A receive slot belongs to the device while it is posted and
//! to its command after; a response slot belongs to its request until the SEND completed.

use std::sync::Arc;

use rwctx::device::{Device, DeviceError};
use rwctx::mem::{Access, Mr, Pd, Region};
use rwctx::wr::Sge;
use zerocopy::IntoBytes;

use crate::nvmf::wire::cqe::{CQE_LEN, Cqe};
use crate::nvmf::wire::sqe::{SQE_LEN, Sqe};

/// Bytes of a submission queue entry.
const SQE: usize = SQE_LEN;
/// Bytes of a completion queue entry.
const CQE: usize = CQE_LEN;

/// Bytes of a response capsule.
const RESPONSE: u32 = 16;
const _: () = assert!(RESPONSE as usize == CQE_LEN);

/// Capsule memory of one queue.
#[derive(Debug)]
pub(super) struct Capsules {
    region: Arc<Region>,
    mr: Mr,
    /// Bytes of a receive slot: a submission queue entry and in-capsule data.
    slot: usize,
    receives: u32,
    responses: u32,
}

impl Capsules {
    /// Memory for `receives` command capsules of `data` bytes in-capsule data each and for `responses` responses.
    pub(super) fn new<D: Device>(
        device: &mut D,
        pd: Pd,
        receives: u32,
        data: u32,
        responses: u32,
    ) -> Result<Self, DeviceError> {
        let slot = SQE + data as usize;
        let length = receives as usize * slot + responses as usize * CQE;
        let region = Arc::new(Region::new(length).map_err(|_| DeviceError::NoResources("capsule memory"))?);
        let access = Access { local_write: true, ..Access::default() };
        let mr = device.reg_mr(pd, &region, 0, length, access)?;
        Ok(Self { region, mr, slot, receives, responses })
    }

    /// Gives the registration back; the device no longer uses the memory (its queue pair is gone).
    pub(super) fn release<D: Device>(self, device: &mut D) {
        let released = device.dereg_mr(self.mr.id);
        debug_assert!(released.is_ok(), "the registration is released once");
    }

    /// Receive slots.
    pub(super) fn receives(&self) -> u32 {
        self.receives
    }

    /// In-capsule data that a slot holds, in bytes.
    pub(super) fn data_capacity(&self) -> u32 {
        u32::try_from(self.slot - SQE).expect("made from a u32")
    }

    /// What is posted to receive into slot `index`.
    pub(super) fn receive_sge(&self, index: u32) -> Sge {
        let length = u32::try_from(self.slot).expect("a slot is a few KiB");
        Sge { addr: self.mr.addr + self.receive_offset(index) as u64, length, lkey: self.mr.lkey }
    }

    /// The command in slot `index`.
    pub(super) fn sqe(&self, index: u32) -> Sqe {
        let mut sqe = [0; SQE];
        self.region.read(self.receive_offset(index), &mut sqe);
        zerocopy::transmute!(sqe)
    }

    /// Copies in-capsule data of slot `index` from `offset` on; the caller checked it against the capsule's length.
    pub(super) fn read_data(&self, index: u32, offset: u32, to: &mut [u8]) {
        debug_assert!(offset as usize + to.len() <= self.slot - SQE, "in-capsule range was checked");
        self.region.read(self.receive_offset(index) + SQE + offset as usize, to);
    }

    /// Writes a response into its slot and returns what to send.
    pub(super) fn write_response(&self, index: u32, cqe: &Cqe) -> Sge {
        debug_assert!(index < self.responses, "a response slot per request");
        let offset = self.receives as usize * self.slot + index as usize * CQE;
        self.region.write(offset, cqe.as_bytes());
        Sge { addr: self.mr.addr + offset as u64, length: RESPONSE, lkey: self.mr.lkey }
    }

    fn receive_offset(&self, index: u32) -> usize {
        debug_assert!(index < self.receives, "a receive slot of this queue");
        index as usize * self.slot
    }
}
