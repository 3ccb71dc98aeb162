//! Device-neutral work requests (verbs `ibv_send_wr`, `ibv_recv_wr`).

use crate::device::DeviceError;
use crate::mem::{Access, Lkey, MrId};
use crate::remote::{RemoteAddr, Rkey};

/// The poster's name for a work request; comes back in its completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WrId(pub u64);

/// One piece of local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    /// Address inside the memory region that `lkey` names.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Local key of the memory region.
    pub lkey: Lkey,
}

impl Sge {
    /// Whether `next` goes on where it ends.
    pub(crate) fn ends_at(&self, next: &Self) -> bool {
        self.lkey == next.lkey && self.addr.checked_add(u64::from(self.length)) == Some(next.addr)
    }

    /// How far behind the start of `whole` it begins, if it lies inside.
    fn offset_in(&self, whole: &Self) -> Option<u64> {
        let offset = self.addr.checked_sub(whole.addr)?;
        let inside = offset + u64::from(self.length) <= u64::from(whole.length);
        (self.lkey == whole.lkey && inside).then_some(offset)
    }

    /// Whether both have a byte in common.
    pub(crate) fn overlaps(&self, other: &Self) -> bool {
        let begins_in = |one: &Self, other: &Self| {
            one.addr.checked_sub(other.addr).is_some_and(|skip| skip < u64::from(other.length))
        };
        let some = self.length > 0 && other.length > 0;
        some && self.lkey == other.lkey && (begins_in(self, other) || begins_in(other, self))
    }

    /// Takes from `to` what it took from `from`.
    ///
    /// # Errors
    /// [`DeviceError::Invalid`] when a part of it lies in `from`, and a part outside: it stays as it is then.
    pub(crate) fn replace(&mut self, from: &Self, to: &Self) -> Result<(), DeviceError> {
        match self.offset_in(from) {
            Some(offset) => (self.addr, self.lkey) = (to.addr + offset, to.lkey),
            None if self.overlaps(from) => {
                return Err(DeviceError::Invalid("range: a part of a larger piece"));
            }
            None => {}
        }
        Ok(())
    }
}

/// What a send-queue work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SendOp {
    /// SEND.
    Send,
    /// SEND with four bytes of immediate data, in the order they have on the wire.
    SendWithImm([u8; 4]),
    /// SEND that invalidates a key of the peer.
    SendWithInv(Rkey),
    /// RDMA WRITE.
    Write(RemoteAddr),
    /// RDMA WRITE that also consumes a receive of the peer and delivers four bytes.
    WriteWithImm(RemoteAddr, [u8; 4]),
    /// RDMA READ.
    Read(RemoteAddr),
    /// RDMA READ that invalidates the key of its one sink when it is complete (iWARP).
    ReadWithInv(RemoteAddr),
    /// Invalidates a local fast-registration key.
    LocalInv(Rkey),
    /// Fast registration: maps the memory of the work request's SGEs, in order, one behind the other from the address of
    /// its first byte on, and gives it a fresh key. The new key must differ from the old one in its low byte only, and the
    /// old one be invalid. What a list may look like: [`crate::mem::PageList`].
    RegMr {
        /// The region, made by [`crate::device::Device::alloc_fast_reg`].
        mr: MrId,
        /// The key it gets.
        key: Rkey,
        /// Rights of local and remote users.
        access: Access,
    },
    /// Integrity registration: gives the region `mr`, with what was mapped to it by
    /// [`crate::device::Device::map_integrity`], a fresh key. The new key must differ from the old one in its low byte only,
    /// and the old one be invalid. The key is good for one READ or WRITE of the signature's direction and wire length, whose
    /// only SGE is at address 0; what the signature found is [`crate::device::Device::sig_status`], to be asked once.
    RegMrIntegrity {
        /// The region, made by [`crate::device::Device::alloc_integrity_mr`].
        mr: MrId,
        /// The key it gets.
        key: Rkey,
        /// Rights; remote ones are not given.
        access: Access,
    },
}

/// Whether a work request completes visibly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A completion entry is made.
    Signaled,
    /// A completion entry is made only on error or flush.
    Unsignaled,
}

/// Whether a work request waits for earlier RDMA READs of its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fence {
    /// Starts in order, without waiting.
    None,
    /// Starts when all earlier READs have completed.
    Reads,
}

/// A send-queue work request. The device copies what it needs; `sges` is free again after the call.
#[derive(Clone, Copy, Debug)]
pub struct SendWr<'a> {
    /// Comes back in the completion.
    pub wr_id: WrId,
    /// Operation.
    pub op: SendOp,
    /// Local memory, gathered or scattered in order; at most the device's `max_send_sge` (READ: `max_sge_rd`). Of a fast
    /// registration, the memory that it maps: as many pages as its region has.
    pub sges: &'a [Sge],
    /// Completion wanted.
    pub signal: Signal,
    /// Ordering against earlier READs.
    pub fence: Fence,
}

/// A receive-queue work request.
#[derive(Clone, Copy, Debug)]
pub struct RecvWr<'a> {
    /// Comes back in the completion.
    pub wr_id: WrId,
    /// Memory that the message is scattered to; at most the device's `max_recv_sge`.
    pub sges: &'a [Sge],
}
