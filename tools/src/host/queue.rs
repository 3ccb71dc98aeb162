//! The host's side of one NVMe queue pair: capsules on their way out, receives for completions, and the commands in
//! flight.
//!
//! Owns one registered region: a ring of command capsules, whose slots are free again when the SEND was acknowledged
//! (not when the command completed: it may have to be sent again), and one slot for each receive. Never touches a
//! command's data. NVMe RDMA transport 1.0 "Capsules and Queues"; base 3.3.1 (submission queue flow control).

use std::sync::Arc;

use intact::nvmf::wire::cqe::{CQE_LEN, Cqe, SQHD_DISABLED};
use intact::nvmf::wire::sqe::{SQE_LEN, Sqe};
use rwctx::device::soft::cm::CmId;
use rwctx::device::{Device, DeviceError, PostError, QpCap, Qpn};
use rwctx::mem::{Access, Mr, Pd, Region};
use rwctx::plan::Integrity;
use rwctx::wr::{Fence, RecvWr, SendOp, SendWr, Sge, Signal, WrId};
use zerocopy::{FromBytes, IntoBytes};

/// One NVMe queue pair on one RDMA queue pair.
#[derive(Debug)]
pub(super) struct Queue {
    index: u32,
    pub(super) qid: u16,
    pub(super) qpn: Qpn,
    /// Its connection; none before it was asked for.
    pub(super) cm: Option<CmId>,
    /// Entries of the submission queue; one fewer commands are outstanding at most.
    entries: u32,
    region: Arc<Region>,
    mr: Mr,
    /// Capsule slots, a power of two.
    slots: u32,
    /// Capsules sent and acknowledged, ever.
    sent: u32,
    acked: u32,
    /// Submission queue, as flow control sees it.
    tail: u32,
    head: u32,
    /// By command identifier.
    in_flight: Box<[bool]>,
    next_cid: u16,
}

/// What became of a command that was to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Submit {
    /// Sent as the capsule of this number; see `Queue::is_acked`.
    Sent(u32),
    /// The queue is full: try again after a completion.
    Full,
}

/// What a work completion is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// The receive in this slot.
    Receive(u32),
    /// The capsule of this number.
    Capsule(u32),
    /// A registration or invalidation of memory.
    Memory,
}

/// A response that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadResponse {
    /// Not 16 bytes.
    Length(u32),
    /// No command with this identifier is in flight.
    Cid(u16),
    /// The submission queue has no such entry.
    Sqhd(u16),
}

/// Lengths as work requests have them.
const SQE_BYTES: u32 = 64;
const CQE_BYTES: u32 = 16;
const _: () = assert!(SQE_BYTES as usize == SQE_LEN && CQE_BYTES as usize == CQE_LEN);

const RECEIVE: u64 = 0;
const CAPSULE: u64 = 1;
const MEMORY: u64 = 2;

impl Queue {
    /// Makes the RDMA queue pair and its memory, and posts its receives. `entries` is 2 to 65536; `extra` more work
    /// requests may be outstanding on its send queue.
    pub(super) fn open<D: Device>(
        device: &mut D,
        pd: Pd,
        index: u32,
        qid: u16,
        entries: u32,
        extra: u32,
    ) -> Result<Self, DeviceError> {
        debug_assert!((2..=1 << 16).contains(&entries), "checked where it was asked for");
        // Acknowledgements lag behind completions.
        let slots = (entries * 2).next_power_of_two().max(16);
        let cap = QpCap {
            max_send_wr: slots + extra,
            max_recv_wr: entries,
            max_send_sge: 2,
            max_recv_sge: 1,
            integrity: Integrity::Off,
        };
        let length = slots as usize * SQE_LEN + entries as usize * CQE_LEN;
        let region = Arc::new(Region::new(length).map_err(|_| DeviceError::NoResources("memory"))?);
        let mr = device.reg_mr(pd, &region, 0, length, Access { local_write: true, ..Access::default() })?;
        let qpn = device.create_qp(pd, &cap)?;
        let queue = Self {
            index,
            qid,
            qpn,
            cm: None,
            entries,
            region,
            mr,
            slots,
            sent: 0,
            acked: 0,
            tail: 0,
            head: 0,
            in_flight: vec![false; entries as usize].into_boxed_slice(),
            next_cid: 0,
        };
        for slot in 0..entries {
            queue.post_receive(device, slot).map_err(|_| DeviceError::NoResources("receives"))?;
        }
        Ok(queue)
    }

    /// What a work request identifier of any queue stands for: the queue's index, and the work.
    #[inline]
    pub(super) fn work(wr_id: WrId) -> (usize, Work) {
        let [number, rest] = [wr_id.0 & 0xffff_ffff, wr_id.0 >> 32];
        let number = u32::try_from(number).expect("32 bits");
        let queue = usize::try_from(rest >> 8).expect("24 bits");
        match rest & 0xff {
            RECEIVE => (queue, Work::Receive(number)),
            CAPSULE => (queue, Work::Capsule(number)),
            _ => (queue, Work::Memory),
        }
    }

    #[inline]
    fn wr_id(&self, kind: u64, number: u32) -> WrId {
        WrId(u64::from(self.index) << 40 | kind << 32 | u64::from(number))
    }

    /// An identifier that no command in flight has; `None` when as many are in flight as the queue can hold.
    pub(super) fn free_cid(&mut self) -> Option<u16> {
        let most = u16::try_from(self.entries - 1).expect("at most 65536 entries");
        for _ in 0..most {
            let cid = self.next_cid;
            self.next_cid = (cid + 1) % most;
            if !self.in_flight[usize::from(cid)] {
                return Some(cid);
            }
        }
        None
    }

    /// Sends a command whose identifier is below [`Self::entries`] and not in flight. `in_capsule` is data that goes
    /// behind it: memory that stays as it is until [`Self::is_acked`].
    ///
    /// # Errors
    /// When the device does not take it.
    #[inline]
    pub(super) fn submit<D: Device>(
        &mut self,
        device: &mut D,
        sqe: &Sqe,
        in_capsule: Option<Sge>,
    ) -> Result<Submit, PostError> {
        let tail = if self.tail + 1 == self.entries { 0 } else { self.tail + 1 };
        if tail == self.head || !self.has_room() {
            return Ok(Submit::Full);
        }
        let cid = usize::from(sqe.cid.get());
        debug_assert!(!self.in_flight[cid], "an identifier names one command at a time");
        let number = self.sent;
        let offset = (number & (self.slots - 1)) as usize * SQE_LEN;
        self.region.write(offset, sqe.as_bytes());
        let entry = Sge { addr: self.mr.addr + offset as u64, length: SQE_BYTES, lkey: self.mr.lkey };
        let both = [entry, in_capsule.unwrap_or(entry)];
        // Often enough that slots are free in time; always when somebody waits for the data's memory.
        let told = in_capsule.is_some() || number.is_multiple_of((self.slots / 4).max(1));
        let wr = SendWr {
            wr_id: self.wr_id(CAPSULE, number),
            op: SendOp::Send,
            sges: &both[..1 + usize::from(in_capsule.is_some())],
            signal: if told { Signal::Signaled } else { Signal::Unsignaled },
            fence: Fence::None,
        };
        device.post_send(self.qpn, &wr)?;
        self.tail = tail;
        self.sent = number.wrapping_add(1);
        self.in_flight[cid] = true;
        Ok(Submit::Sent(number))
    }

    /// Posts a registration or invalidation; it completes visibly only if it fails.
    pub(super) fn post_memory<D: Device>(
        &self,
        device: &mut D,
        op: SendOp,
        memory: &[Sge],
    ) -> Result<(), PostError> {
        let wr = SendWr {
            wr_id: self.wr_id(MEMORY, 0),
            op,
            sges: memory,
            signal: Signal::Unsignaled,
            fence: Fence::None,
        };
        device.post_send(self.qpn, &wr)
    }

    /// Whether there is a slot for another capsule. When acknowledgements are lost, commands complete before their capsules
    /// are known to have arrived, and there may be none for a while.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.sent.wrapping_sub(self.acked) < self.slots
    }

    /// Whether the capsule `number` was acknowledged: it will not be sent again.
    #[inline]
    pub(super) fn is_acked(&self, number: u32) -> bool {
        self.acked.wrapping_sub(number).wrapping_sub(1) < 1 << 31
    }

    /// A capsule was acknowledged, and with it all before it.
    #[inline]
    pub(super) fn on_acked(&mut self, number: u32) {
        self.acked = number.wrapping_add(1);
    }

    /// A response of `length` bytes came into `slot`, which receives again.
    #[inline]
    pub(super) fn on_receive<D: Device>(
        &mut self,
        device: &mut D,
        slot: u32,
        length: u32,
    ) -> Result<Result<Cqe, BadResponse>, PostError> {
        let mut bytes = [0; CQE_LEN];
        self.region.read(self.receive_offset(slot), &mut bytes);
        self.post_receive(device, slot)?;
        if length as usize != CQE_LEN {
            return Ok(Err(BadResponse::Length(length)));
        }
        let cqe = Cqe::read_from_bytes(&bytes).expect("as long as an entry");
        Ok(self.complete(&cqe).map(|()| cqe))
    }

    fn complete(&mut self, cqe: &Cqe) -> Result<(), BadResponse> {
        let cid = cqe.cid.get();
        match self.in_flight.get_mut(usize::from(cid)) {
            Some(in_flight) if *in_flight => *in_flight = false,
            _ => return Err(BadResponse::Cid(cid)),
        }
        match cqe.sqhd.get() {
            // No flow control: what was completed was taken from the queue.
            SQHD_DISABLED => self.head = (self.head + 1) % self.entries,
            sqhd if u32::from(sqhd) < self.entries => self.head = u32::from(sqhd),
            sqhd => return Err(BadResponse::Sqhd(sqhd)),
        }
        Ok(())
    }

    fn post_receive<D: Device>(&self, device: &mut D, slot: u32) -> Result<(), PostError> {
        let addr = self.mr.addr + self.receive_offset(slot) as u64;
        let sge = Sge { addr, length: CQE_BYTES, lkey: self.mr.lkey };
        device.post_recv(self.qpn, &RecvWr { wr_id: self.wr_id(RECEIVE, slot), sges: &[sge] })
    }

    fn receive_offset(&self, slot: u32) -> usize {
        self.slots as usize * SQE_LEN + slot as usize * CQE_LEN
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_request_identifiers_say_queue_and_work() {
        for index in [0_u64, 1, 128] {
            let id = |kind, number: u32| WrId(index << 40 | kind << 32 | u64::from(number));
            let queue = usize::try_from(index).unwrap();
            assert_eq!(Queue::work(id(RECEIVE, 7)), (queue, Work::Receive(7)));
            assert_eq!(Queue::work(id(CAPSULE, u32::MAX)), (queue, Work::Capsule(u32::MAX)));
            assert_eq!(Queue::work(id(MEMORY, 0)), (queue, Work::Memory));
        }
    }
}
