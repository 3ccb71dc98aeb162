//! One RDMA queue pair to a target: messages on their way out, and receives for those that come.
//!
//! Owns one registered region: a ring of slots for messages, which are free again when the SEND was acknowledged (not when
//! it was answered: it may have to be sent again), and one slot for each receive. Knows nothing of what messages mean, and
//! never touches data that goes behind one.

use std::sync::Arc;

use rwctx::device::soft::cm::CmId;
use rwctx::device::{Device, DeviceError, PostError, QpCap, Qpn};
use rwctx::mem::{Access, Mr, Pd, Region};
use rwctx::plan::Integrity;
use rwctx::wr::{Fence, RecvWr, SendOp, SendWr, Sge, Signal, WrId};

/// A queue pair with its memory.
#[derive(Debug)]
pub(super) struct Channel {
    index: u32,
    pub(super) qpn: Qpn,
    /// Its connection; none before it was asked for.
    pub(super) cm: Option<CmId>,
    region: Arc<Region>,
    mr: Mr,
    /// Message slots, a power of two.
    slots: u32,
    message_len: u32,
    receive_len: u32,
    /// Messages sent and acknowledged, ever.
    sent: u32,
    acked: u32,
}

/// Sizes of a channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    /// Messages that are outstanding at most; acknowledgements lag behind answers.
    pub(super) messages: u32,
    /// Bytes of a message, without data behind it.
    pub(super) message_len: u32,
    /// Receives.
    pub(super) receives: u32,
    /// Bytes of a receive.
    pub(super) receive_len: u32,
    /// Registrations and invalidations that are outstanding at most.
    pub(super) memory: u32,
}

/// What a work completion is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// The receive in this slot.
    Receive(u32),
    /// The message of this number.
    Message(u32),
    /// A registration or invalidation of memory.
    Memory,
}

const RECEIVE: u64 = 0;
const MESSAGE: u64 = 1;
const MEMORY: u64 = 2;

impl Channel {
    /// Makes the queue pair and its memory, and posts its receives.
    pub(super) fn open<D: Device>(
        device: &mut D,
        pd: Pd,
        index: u32,
        shape: Shape,
    ) -> Result<Self, DeviceError> {
        let Shape { messages, message_len, receives, receive_len, memory } = shape;
        let slots = messages.next_power_of_two().max(16);
        let cap = QpCap {
            max_send_wr: slots + memory,
            max_recv_wr: receives,
            max_send_sge: 2,
            max_recv_sge: 1,
            integrity: Integrity::Off,
        };
        let length = slots as usize * message_len as usize + receives as usize * receive_len as usize;
        let region = Arc::new(Region::new(length).map_err(|_| DeviceError::NoResources("memory"))?);
        let mr = device.reg_mr(pd, &region, 0, length, Access { local_write: true, ..Access::default() })?;
        let qpn = device.create_qp(pd, &cap)?;
        let channel =
            Self { index, qpn, cm: None, region, mr, slots, message_len, receive_len, sent: 0, acked: 0 };
        for slot in 0..receives {
            channel.post_receive(device, slot).map_err(|_| DeviceError::NoResources("receives"))?;
        }
        Ok(channel)
    }

    /// What a work request identifier of any channel stands for: the channel's index, and the work.
    #[inline]
    pub(super) fn work(wr_id: WrId) -> (usize, Work) {
        let [number, rest] = [wr_id.0 & 0xffff_ffff, wr_id.0 >> 32];
        let number = u32::try_from(number).expect("32 bits");
        let channel = usize::try_from(rest >> 8).expect("24 bits");
        match rest & 0xff {
            RECEIVE => (channel, Work::Receive(number)),
            MESSAGE => (channel, Work::Message(number)),
            _ => (channel, Work::Memory),
        }
    }

    #[inline]
    fn wr_id(&self, kind: u64, number: u32) -> WrId {
        WrId(u64::from(self.index) << 40 | kind << 32 | u64::from(number))
    }

    /// Sends the parts of a message, for which there is room, and `data` behind them: memory that stays as it is until
    /// [`Self::is_acked`]. Returns the message's number.
    ///
    /// # Errors
    /// When the device does not take it.
    ///
    /// # Panics
    /// When there is no room, or the parts are longer than a message.
    #[inline]
    pub(super) fn send<D: Device>(
        &mut self,
        device: &mut D,
        parts: &[&[u8]],
        data: Option<Sge>,
    ) -> Result<u32, PostError> {
        assert!(self.has_room(), "room is looked for first");
        let number = self.sent;
        let start = (number & (self.slots - 1)) as usize * self.message_len as usize;
        let mut offset = start;
        for part in parts {
            self.region.write(offset, part);
            offset += part.len();
        }
        let length = u32::try_from(offset - start).expect("messages are short");
        assert!(length <= self.message_len, "a message fits its slot");
        let message = Sge { addr: self.mr.addr + start as u64, length, lkey: self.mr.lkey };
        let both = [message, data.unwrap_or(message)];
        // Often enough that slots are free in time; always when somebody waits for the data's memory.
        let told = data.is_some() || number.is_multiple_of((self.slots / 4).max(1));
        let wr = SendWr {
            wr_id: self.wr_id(MESSAGE, number),
            op: SendOp::Send,
            sges: &both[..1 + usize::from(data.is_some())],
            signal: if told { Signal::Signaled } else { Signal::Unsignaled },
            fence: Fence::None,
        };
        device.post_send(self.qpn, &wr)?;
        self.sent = number.wrapping_add(1);
        Ok(number)
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

    /// Whether there is a slot for another message. When acknowledgements are lost, messages are answered before they are
    /// known to have arrived, and there may be none for a while.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.sent.wrapping_sub(self.acked) < self.slots
    }

    /// Whether the message `number` was acknowledged: it will not be sent again.
    #[inline]
    pub(super) fn is_acked(&self, number: u32) -> bool {
        self.acked.wrapping_sub(number).wrapping_sub(1) < 1 << 31
    }

    /// A message was acknowledged, and with it all before it.
    #[inline]
    pub(super) fn on_acked(&mut self, number: u32) {
        self.acked = number.wrapping_add(1);
    }

    /// Copies the start of what came into `slot`, which receives again.
    ///
    /// # Panics
    /// When `to` is longer than a receive.
    #[inline]
    pub(super) fn on_receive<D: Device>(
        &self,
        device: &mut D,
        slot: u32,
        to: &mut [u8],
    ) -> Result<(), PostError> {
        assert!(to.len() <= self.receive_len as usize, "the device puts no more into a receive");
        self.region.read(self.receive_offset(slot), to);
        self.post_receive(device, slot)
    }

    fn post_receive<D: Device>(&self, device: &mut D, slot: u32) -> Result<(), PostError> {
        let addr = self.mr.addr + self.receive_offset(slot) as u64;
        let sge = Sge { addr, length: self.receive_len, lkey: self.mr.lkey };
        device.post_recv(self.qpn, &RecvWr { wr_id: self.wr_id(RECEIVE, slot), sges: &[sge] })
    }

    fn receive_offset(&self, slot: u32) -> usize {
        self.slots as usize * self.message_len as usize + slot as usize * self.receive_len as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_request_identifiers_say_channel_and_work() {
        for index in [0_u64, 1, 128] {
            let id = |kind, number: u32| WrId(index << 40 | kind << 32 | u64::from(number));
            let channel = usize::try_from(index).unwrap();
            assert_eq!(Channel::work(id(RECEIVE, 7)), (channel, Work::Receive(7)));
            assert_eq!(Channel::work(id(MESSAGE, u32::MAX)), (channel, Work::Message(u32::MAX)));
            assert_eq!(Channel::work(id(MEMORY, 0)), (channel, Work::Memory));
        }
    }
}
