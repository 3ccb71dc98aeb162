//! The host's side of one NVMe queue pair: capsules on their way out, receives for completions, and the commands in
//! flight.
//!
//! A [`Channel`] whose messages are commands; owns their identifiers and the flow control of the submission queue. Never
//! touches a command's data. NVMe RDMA transport 1.0 "Capsules and Queues"; base 3.3.1 (submission queue flow control).

use intact::nvmf::wire::cqe::{CQE_LEN, Cqe, SQHD_DISABLED};
use intact::nvmf::wire::sqe::{SQE_LEN, Sqe};
use rwctx::device::{Device, DeviceError, PostError};
use rwctx::mem::Pd;
use rwctx::wr::Sge;
use zerocopy::{FromBytes, IntoBytes};

use super::channel::{Channel, Shape};

/// One NVMe queue pair on one RDMA queue pair.
#[derive(Debug)]
pub(super) struct Queue {
    pub(super) channel: Channel,
    pub(super) qid: u16,
    /// Entries of the submission queue; one fewer commands are outstanding at most.
    entries: u32,
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
    /// Sent as the capsule of this number; see `Channel::is_acked`.
    Sent(u32),
    /// The queue is full: try again after a completion.
    Full,
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

impl Queue {
    /// Makes the RDMA queue pair and its memory, and posts its receives. `entries` is 2 to 65536; `memory` registrations and
    /// invalidations may be outstanding.
    pub(super) fn open<D: Device>(
        device: &mut D,
        pd: Pd,
        index: u32,
        qid: u16,
        entries: u32,
        memory: u32,
    ) -> Result<Self, DeviceError> {
        debug_assert!((2..=1 << 16).contains(&entries), "checked where it was asked for");
        let shape = Shape {
            messages: entries * 2,
            message_len: SQE_BYTES,
            receives: entries,
            receive_len: CQE_BYTES,
            memory,
        };
        Ok(Self {
            channel: Channel::open(device, pd, index, shape)?,
            qid,
            entries,
            tail: 0,
            head: 0,
            in_flight: vec![false; entries as usize].into_boxed_slice(),
            next_cid: 0,
        })
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
    /// behind it: memory that stays as it is until the capsule is acknowledged.
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
        if tail == self.head || !self.channel.has_room() {
            return Ok(Submit::Full);
        }
        let cid = usize::from(sqe.cid.get());
        debug_assert!(!self.in_flight[cid], "an identifier names one command at a time");
        let number = self.channel.send(device, &[sqe.as_bytes()], in_capsule)?;
        self.tail = tail;
        self.in_flight[cid] = true;
        Ok(Submit::Sent(number))
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
        self.channel.on_receive(device, slot, &mut bytes)?;
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
}
