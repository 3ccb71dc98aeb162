//! The queues of a queue pair: rings that are allocated once. Entries keep their place until they complete.

use std::collections::VecDeque;

use crate::device::{DeviceError, PostError, Qpn, SUM_PIECE};
use crate::wc::{RecvExtra, Wc, WcOpcode, WcStatus};
use crate::wr::{Fence, RecvWr, SendOp, SendWr, Sge, Signal, WrId};

use super::psn::Psn;

/// Most SGEs of any work request.
pub(super) const MAX_SGE: usize = 32;

/// Checksums of payloads that are kept for a work request: of as many as Linux asks for at a time, and twice that.
const MAX_SUMS: usize = 64;

/// Longest message (IBTA 9.4.2).
pub(super) const MAX_MESSAGE: u32 = 1 << 31;

const NO_SGE: Sge = Sge { addr: 0, length: 0, lkey: crate::mem::Lkey(0) };

/// A send work request on its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct SendWqe {
    pub(super) wr_id: WrId,
    pub(super) op: SendOp,
    pub(super) signal: Signal,
    pub(super) fence: Fence,
    /// Bytes of the message.
    pub(super) length: u32,
    /// PSN of its first packet.
    pub(super) first: Psn,
    /// PSNs that it takes; none for local operations.
    pub(super) packets: u32,
    /// Request packets of all earlier work requests.
    pub(super) first_request: u64,
    /// Whether a local operation was executed.
    pub(super) done: bool,
    /// Whether its memory is an integrity registration.
    pub(super) signed: bool,
    /// Whether the checksum of each of its packets' payloads is known.
    pub(super) summed: bool,
    sge_count: u8,
    /// Of a registration with more pieces than a slot has room for: where they begin, and how many.
    listed: (u64, u32),
}

impl SendWqe {
    /// One past its last PSN.
    #[inline]
    pub(super) fn end(&self) -> Psn {
        self.first.after(self.packets)
    }

    /// Whether it is an RDMA READ.
    #[inline]
    pub(super) fn is_read(&self) -> bool {
        matches!(self.op, SendOp::Read(_) | SendOp::ReadWithInv(_))
    }

    /// Whether nothing of it goes to the peer.
    #[inline]
    pub(super) fn is_local(&self) -> bool {
        matches!(self.op, SendOp::LocalInv(_) | SendOp::RegMr { .. } | SendOp::RegMrIntegrity { .. })
    }

    /// Its completion.
    #[inline]
    pub(super) fn completion(&self, qpn: Qpn, status: WcStatus) -> Wc {
        let opcode = match self.op {
            SendOp::Send | SendOp::SendWithImm(_) | SendOp::SendWithInv(_) => WcOpcode::Send,
            SendOp::Write(_) | SendOp::WriteWithImm(..) => WcOpcode::RdmaWrite,
            SendOp::Read(_) | SendOp::ReadWithInv(_) => WcOpcode::RdmaRead,
            SendOp::LocalInv(_) => WcOpcode::LocalInv,
            SendOp::RegMr { .. } => WcOpcode::RegMr,
            SendOp::RegMrIntegrity { .. } => WcOpcode::RegMrIntegrity,
        };
        Wc { wr_id: self.wr_id, qpn, status, opcode, byte_len: self.length, extra: RecvExtra::None }
    }
}

/// Total length of a message.
///
/// # Errors
/// [`PostError::BadSge`] when there are more than `most` SGEs or more than 2^31 bytes.
pub(super) fn message_length(sges: &[Sge], most: usize) -> Result<u32, PostError> {
    if sges.len() > most {
        return Err(PostError::BadSge);
    }
    let total: u64 = sges.iter().map(|sge| u64::from(sge.length)).sum();
    u32::try_from(total).ok().filter(|&bytes| bytes <= MAX_MESSAGE).ok_or(PostError::BadSge)
}

/// Pieces that are contiguous as one.
fn runs(sges: &[Sge]) -> impl Iterator<Item = Sge> {
    let mut rest = sges.iter().peekable();
    std::iter::from_fn(move || {
        let mut run = *rest.next()?;
        while let Some(next) = rest.next_if(|next| {
            next.lkey == run.lkey && run.addr.checked_add(u64::from(run.length)) == Some(next.addr)
        }) {
            // Their sum was checked with the message's length.
            run.length += next.length;
        }
        Some(run)
    })
}

/// The send queue. Entries are named by a number that only grows.
#[derive(Debug)]
pub(super) struct SendQueue {
    ring: Box<[SendWqe]>,
    sges: Box<[Sge]>,
    /// Checksums of payloads, [`MAX_SUMS`] for each entry.
    sums: Box<[u32]>,
    /// Long lists of registrations, one after the other; how many pieces were taken off before the first.
    lists: VecDeque<Sge>,
    lists_popped: u64,
    max_sge: usize,
    limit: u64,
    head: u64,
    tail: u64,
}

impl SendQueue {
    pub(super) fn new(max_wr: u32, max_sge: u32) -> Self {
        let slots = max_wr.max(1).next_power_of_two() as usize;
        let max_sge = (max_sge.max(1) as usize).min(MAX_SGE);
        let unused = SendWqe {
            wr_id: WrId(0),
            op: SendOp::Send,
            signal: Signal::Unsignaled,
            fence: Fence::None,
            length: 0,
            first: Psn::start(0),
            packets: 0,
            first_request: 0,
            done: false,
            signed: false,
            summed: false,
            sge_count: 0,
            listed: (0, 0),
        };
        Self {
            ring: vec![unused; slots].into_boxed_slice(),
            sges: vec![NO_SGE; slots * max_sge].into_boxed_slice(),
            // Zeroes take no memory before they are written.
            sums: vec![0; slots * MAX_SUMS].into_boxed_slice(),
            lists: VecDeque::new(),
            lists_popped: 0,
            max_sge,
            limit: u64::from(max_wr),
            head: 0,
            tail: 0,
        }
    }

    /// SGEs that a work request may have.
    pub(super) fn max_sge(&self) -> usize {
        self.max_sge
    }

    /// Oldest entry.
    #[inline]
    pub(super) fn head(&self) -> u64 {
        self.head
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head == self.tail
    }

    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.tail - self.head >= self.limit
    }

    /// The entry, if it is on the queue.
    #[inline]
    pub(super) fn get(&self, number: u64) -> Option<&SendWqe> {
        (self.head..self.tail).contains(&number).then(|| &self.ring[self.slot(number)])
    }

    /// Its SGEs.
    #[inline]
    pub(super) fn sges(&self, number: u64) -> &[Sge] {
        let slot = self.slot(number);
        let start = slot * self.max_sge;
        &self.sges[start..start + usize::from(self.ring[slot].sge_count)]
    }

    /// Appends an entry; the queue is not full and the SGEs were counted.
    pub(super) fn push(
        &mut self,
        wr: &SendWr<'_>,
        length: u32,
        first: Psn,
        packets: u32,
        first_request: u64,
        signed: bool,
    ) {
        debug_assert!(!self.is_full(), "callers look for room first");
        let slot = self.slot(self.tail);
        let start = slot * self.max_sge;
        let (count, listed) = if matches!(wr.op, SendOp::RegMr { .. }) {
            self.push_list(start, wr.sges)
        } else {
            self.sges[start..start + wr.sges.len()].copy_from_slice(wr.sges);
            (wr.sges.len(), (0, 0))
        };
        self.ring[slot] = SendWqe {
            wr_id: wr.wr_id,
            op: wr.op,
            signal: wr.signal,
            fence: wr.fence,
            length,
            first,
            packets,
            first_request,
            done: false,
            signed,
            summed: false,
            sge_count: u8::try_from(count).expect("at most 32 SGEs"),
            listed,
        };
        self.tail += 1;
    }

    /// Stores the memory of a registration, what is contiguous as one: in the slot's SGEs from `start` on if it has room, and
    /// otherwise, which is rare, in the lists. Returns how much is in which.
    fn push_list(&mut self, start: usize, sges: &[Sge]) -> (usize, (u64, u32)) {
        if runs(sges).nth(self.max_sge).is_none() {
            let slot = &mut self.sges[start..start + self.max_sge];
            let count = runs(sges).zip(slot).map(|(run, sge)| *sge = run).count();
            return (count, (0, 0));
        }
        let begin = self.lists_popped + self.lists.len() as u64;
        self.lists.extend(runs(sges));
        let end = self.lists_popped + self.lists.len() as u64;
        (0, (begin, u32::try_from(end - begin).expect("a message has fewer pieces than bytes")))
    }

    /// The memory of a registration.
    pub(super) fn list(&self, number: u64) -> impl Iterator<Item = Sge> + Clone {
        let (begin, count) = self.ring[self.slot(number)].listed;
        let listed = usize::try_from(begin.saturating_sub(self.lists_popped)).unwrap_or(usize::MAX);
        let in_slot = if count == 0 { self.sges(number) } else { &[] };
        in_slot.iter().chain(self.lists.iter().skip(listed).take(count as usize)).copied()
    }

    /// Keeps the checksums of the newest entry's payload, [`SUM_PIECE`] bytes each, when it is as long as that and goes out from
    /// memory as it lies there.
    #[inline]
    pub(super) fn note_sums(&mut self, sums: &[u32]) {
        if self.is_empty() || sums.is_empty() || sums.len() > MAX_SUMS {
            return;
        }
        let slot = self.slot(self.tail - 1);
        let wqe = &mut self.ring[slot];
        if wqe.signed
            || wqe.is_read()
            || wqe.is_local()
            || wqe.length as usize != sums.len() * SUM_PIECE as usize
        {
            return;
        }
        wqe.summed = true;
        self.sums[slot * MAX_SUMS..][..sums.len()].copy_from_slice(sums);
    }

    /// The checksum of piece `index` of an entry that has them.
    #[inline]
    pub(super) fn sum(&self, number: u64, index: u32) -> u32 {
        self.sums[self.slot(number) * MAX_SUMS + index as usize]
    }

    /// Work requests posted under `wr_id` take from `to` what they took from `from`; READs, which fill memory, stay.
    /// `in_registration` replaces or checks what a piece names by the key of a registration.
    ///
    /// # Errors
    /// The first of its and of [`Sge::replace`]; of a fast registration that names memory of `from` itself as well. What can be
    /// replaced is, also then.
    pub(super) fn replace_source(
        &mut self,
        wr_id: WrId,
        (from, to): (Sge, Sge),
        mut in_registration: impl FnMut(&Sge) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let mut replaced = Ok(());
        for number in self.head..self.tail {
            let slot = self.slot(number);
            let wqe = &self.ring[slot];
            if wqe.wr_id != wr_id || wqe.is_read() {
                continue;
            }
            if matches!(wqe.op, SendOp::RegMr { .. }) && self.list(number).any(|sge| sge.overlaps(&from)) {
                replaced = replaced.and(Err(DeviceError::Invalid("range: in a fast registration")));
            }
            if wqe.is_local() {
                continue;
            }
            let start = slot * self.max_sge;
            for sge in &mut self.sges[start..start + usize::from(wqe.sge_count)] {
                let (there, here) = (in_registration(sge), sge.replace(&from, &to));
                replaced = replaced.and(there).and(here);
            }
        }
        replaced
    }

    /// Marks a local operation as executed.
    pub(super) fn set_done(&mut self, number: u64) {
        let slot = self.slot(number);
        self.ring[slot].done = true;
    }

    /// Takes the oldest entry off.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<SendWqe> {
        let wqe = *self.get(self.head)?;
        self.head += 1;
        if wqe.listed.1 > 0 {
            self.lists.drain(..wqe.listed.1 as usize);
            self.lists_popped += u64::from(wqe.listed.1);
        }
        Some(wqe)
    }

    /// The entry that holds `psn`, or `None` when none does.
    pub(super) fn find(&self, psn: Psn) -> Option<u64> {
        let (mut low, mut high) = (self.head, self.tail);
        while low < high {
            let middle = low.midpoint(high);
            if self.ring[self.slot(middle)].end() <= psn {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        self.get(low).filter(|wqe| wqe.first <= psn).map(|_| low)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "masked to the size of the ring")]
    fn slot(&self, number: u64) -> usize {
        number as usize & (self.ring.len() - 1)
    }
}

/// The receive queue.
#[derive(Debug)]
pub(super) struct RecvQueue {
    ring: Box<[(WrId, u32, u8)]>,
    sges: Box<[Sge]>,
    max_sge: usize,
    limit: usize,
    head: usize,
    length: usize,
}

/// A receive on its queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecvWqe<'q> {
    pub(super) wr_id: WrId,
    /// Bytes that it takes.
    pub(super) room: u32,
    pub(super) sges: &'q [Sge],
}

impl RecvQueue {
    pub(super) fn new(max_wr: u32, max_sge: u32) -> Self {
        let slots = max_wr.max(1) as usize;
        let max_sge = (max_sge.max(1) as usize).min(MAX_SGE);
        Self {
            ring: vec![(WrId(0), 0, 0); slots].into_boxed_slice(),
            sges: vec![NO_SGE; slots * max_sge].into_boxed_slice(),
            max_sge,
            limit: max_wr as usize,
            head: 0,
            length: 0,
        }
    }

    /// Appends a receive.
    ///
    /// # Errors
    /// [`PostError::Full`], [`PostError::BadSge`].
    pub(super) fn push(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let room = message_length(wr.sges, self.max_sge)?;
        if self.length >= self.limit {
            return Err(PostError::Full);
        }
        let mut slot = self.head + self.length;
        if slot >= self.ring.len() {
            slot -= self.ring.len();
        }
        let start = slot * self.max_sge;
        self.sges[start..start + wr.sges.len()].copy_from_slice(wr.sges);
        let count = u8::try_from(wr.sges.len()).expect("at most 32 SGEs");
        self.ring[slot] = (wr.wr_id, room, count);
        self.length += 1;
        Ok(())
    }

    /// The oldest receive.
    #[inline]
    pub(super) fn front(&self) -> Option<RecvWqe<'_>> {
        if self.length == 0 {
            return None;
        }
        let (wr_id, room, count) = self.ring[self.head];
        let start = self.head * self.max_sge;
        Some(RecvWqe { wr_id, room, sges: &self.sges[start..start + usize::from(count)] })
    }

    /// Takes the oldest receive off.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<WrId> {
        let wr_id = self.front()?.wr_id;
        self.head += 1;
        if self.head == self.ring.len() {
            self.head = 0;
        }
        self.length -= 1;
        Some(wr_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mem::Lkey;
    use crate::remote::{RemoteAddr, Rkey};

    fn push(queue: &mut SendQueue, op: SendOp, length: u32, signed: bool) -> u64 {
        let sges = [Sge { addr: 0, length, lkey: Lkey(1) }];
        let wr = SendWr { wr_id: WrId(1), op, sges: &sges, signal: Signal::Signaled, fence: Fence::None };
        let number = queue.tail;
        queue.push(&wr, length, Psn::start(0), 1, 0, signed);
        number
    }

    #[test]
    fn sums_are_kept_of_the_newest_entry_if_they_are_of_its_payload() {
        let remote = RemoteAddr { addr: 0, rkey: Rkey(1) };
        let mut queue = SendQueue::new(8, 1);
        queue.note_sums(&[1]);
        let older = push(&mut queue, SendOp::Write(remote), 2 * SUM_PIECE, false);
        let newer = push(&mut queue, SendOp::Write(remote), 2 * SUM_PIECE, false);
        for wrong in [&[][..], &[1], &[1, 2, 3], &[0; MAX_SUMS + 1]] {
            queue.note_sums(wrong);
            assert!(!queue.get(newer).unwrap().summed, "{wrong:?}");
        }
        queue.note_sums(&[7, 8]);
        assert!(!queue.get(older).unwrap().summed && queue.get(newer).unwrap().summed);
        assert_eq!((queue.sum(newer, 0), queue.sum(newer, 1)), (7, 8));
        for (op, signed) in [(SendOp::Read(remote), false), (SendOp::Write(remote), true)] {
            let number = push(&mut queue, op, SUM_PIECE, signed);
            queue.note_sums(&[9]);
            assert!(!queue.get(number).unwrap().summed, "{op:?}");
        }
        // What comes into the place of an entry has no sums yet.
        while queue.pop().is_some() {}
        let again = (0..8).map(|_| push(&mut queue, SendOp::Send, 2 * SUM_PIECE, false)).max().unwrap();
        assert!((again - 7..=again).all(|number| !queue.get(number).unwrap().summed));
        queue.pop();
        let longer = push(&mut queue, SendOp::Send, SUM_PIECE + 1, false);
        queue.note_sums(&[1]);
        assert!(!queue.get(longer).unwrap().summed);
    }
}
