//! Memory of one queue's capsules: receive slots for commands, send slots for responses.
//!
//! A receive slot belongs to the device while it is posted and to its command after; a response slot belongs to its request
//! until the SEND completed.

use rwctx::device::{Device, DeviceError};
use rwctx::mem::Pd;
use rwctx::wr::Sge;
use zerocopy::IntoBytes;

use crate::nvmf::wire::cqe::{CQE_LEN, Cqe};
use crate::nvmf::wire::sqe::{SQE_LEN, Sqe};
use crate::transport::slots::Slots;

/// Capsule memory of one queue.
#[derive(Debug)]
pub(super) struct Capsules {
    commands: Slots,
    responses: Slots,
    /// In-capsule data that a slot holds, in bytes.
    data: u32,
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
        let commands = Slots::new(device, pd, receives, SQE_LEN + data as usize)?;
        match Slots::new(device, pd, responses, CQE_LEN) {
            Ok(responses) => Ok(Self { commands, responses, data }),
            Err(error) => {
                commands.release(device);
                Err(error)
            }
        }
    }

    /// Gives the registrations back; the device no longer uses the memory (its queue pair is gone).
    pub(super) fn release<D: Device>(self, device: &mut D) {
        self.commands.release(device);
        self.responses.release(device);
    }

    /// Receive slots.
    pub(super) fn receives(&self) -> u32 {
        self.commands.count()
    }

    /// In-capsule data that a slot holds, in bytes.
    pub(super) fn data_capacity(&self) -> u32 {
        self.data
    }

    /// What is posted to receive into slot `index`.
    pub(super) fn receive_sge(&self, index: u32) -> Sge {
        self.commands.receive(index)
    }

    /// The command in slot `index`.
    pub(super) fn sqe(&self, index: u32) -> Sqe {
        let mut sqe = [0; SQE_LEN];
        self.commands.read(index, 0, &mut sqe);
        zerocopy::transmute!(sqe)
    }

    /// Copies in-capsule data of slot `index` from `offset` on; the caller checked it against the capsule's length.
    pub(super) fn read_data(&self, index: u32, offset: u32, to: &mut [u8]) {
        self.commands.read(index, SQE_LEN + offset as usize, to);
    }

    /// Writes a response into its slot and returns what to send.
    pub(super) fn write_response(&self, index: u32, cqe: &Cqe) -> Sge {
        self.responses.write(index, cqe.as_bytes())
    }
}
