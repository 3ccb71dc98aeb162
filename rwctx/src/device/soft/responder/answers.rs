//! What the responder still has to say: acknowledges and READ responses, in the order of the requests, because a
//! requester takes a later acknowledge for the loss of earlier READ responses.
//!
//! Acknowledges coalesce: of those that nothing separates only the newest is sent. Room is fixed; what finds none is
//! dropped, and the requester asks again.

use std::collections::VecDeque;

use super::super::psn::Psn;
use super::super::wire::{NakCode, Reth, Syndrome};

/// A READ request that was accepted, kept so that it can be executed again.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServedRead {
    number: u64,
    pub(super) first: Psn,
    packets: u32,
    pub(super) reth: Reth,
    /// Message sequence number of its responses.
    pub(super) msn: u32,
}

/// READ responses to send.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadJob {
    pub(super) of: ServedRead,
    /// The first response, the next one, and one past the last.
    pub(super) start: Psn,
    pub(super) next: Psn,
    pub(super) end: Psn,
    /// Where the last response ends, in bytes from the start of the READ.
    pub(super) end_offset: u32,
    /// Whether it was executed before.
    pub(super) replay: bool,
}

/// One thing to say.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// An ACK, RNR NAK or NAK.
    Acknowledge { psn: Psn, syndrome: Syndrome },
    /// READ responses.
    Read(ReadJob),
}

/// Answers to send, and READs that may be asked for again.
#[derive(Debug)]
pub(super) struct Answers {
    queue: VecDeque<Answer>,
    capacity: usize,
    served: VecDeque<ServedRead>,
    max_reads: usize,
    reads_seen: u64,
}

impl Answers {
    /// For a responder that serves `max_reads` READs at once.
    pub(super) fn new(max_reads: u8) -> Self {
        let max_reads = usize::from(max_reads);
        // Every READ may wait as itself and once again, each followed by an acknowledge.
        let capacity = 4 * max_reads + 4;
        Self {
            queue: VecDeque::with_capacity(capacity),
            capacity,
            served: VecDeque::with_capacity(max_reads),
            max_reads,
            reads_seen: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.served.clear();
    }

    #[inline]
    pub(super) fn front_mut(&mut self) -> Option<&mut Answer> {
        self.queue.front_mut()
    }

    #[inline]
    pub(super) fn pop(&mut self) {
        self.queue.pop_front();
    }

    /// Everything up to and including `psn` was executed.
    #[inline]
    pub(super) fn acknowledge(&mut self, psn: Psn) {
        match self.queue.back_mut() {
            Some(Answer::Acknowledge { psn: last, syndrome: Syndrome::Ack(_) }) => *last = psn,
            // A NAK acknowledges what lies before it.
            Some(Answer::Acknowledge { psn: refused, syndrome: Syndrome::Nak(_) }) if psn < *refused => {}
            _ => self.push(Answer::Acknowledge { psn, syndrome: Syndrome::ACK }),
        }
    }

    /// `psn` was not executed; everything before it was.
    pub(super) fn refuse(&mut self, psn: Psn, syndrome: Syndrome) {
        match self.queue.back_mut() {
            Some(Answer::Acknowledge { psn: last, syndrome: before })
                if matches!(before, Syndrome::Ack(_)) || *last == psn =>
            {
                (*last, *before) = (psn, syndrome);
            }
            _ => {
                let fatal = matches!(syndrome, Syndrome::Nak(code) if code != NakCode::PsnSequence);
                if fatal && self.queue.len() == self.capacity {
                    // Nothing after it matters.
                    self.queue.pop_back();
                }
                self.push(Answer::Acknowledge { psn, syndrome });
            }
        }
    }

    /// Whether one more new READ may wait.
    pub(super) fn has_room_for_read(&self) -> bool {
        let waiting =
            self.queue.iter().filter(|answer| matches!(answer, Answer::Read(job) if !job.replay)).count();
        waiting < self.max_reads
    }

    /// Takes a new READ of `packets` responses; there is room.
    pub(super) fn serve(&mut self, first: Psn, packets: u32, reth: Reth, msn: u32) {
        if self.served.len() == self.max_reads {
            self.served.pop_front();
        }
        let of = ServedRead { number: self.reads_seen, first, packets, reth, msn };
        self.reads_seen += 1;
        self.served.push_back(of);
        let end = first.after(packets);
        let job = ReadJob { of, start: first, next: first, end, end_offset: reth.dma_len, replay: false };
        self.push(Answer::Read(job));
    }

    /// Serves a READ again, from `psn` on, if it asks for a part of one that is known. Returns whether it did.
    pub(super) fn replay(&mut self, psn: Psn, reth: Reth, mtu: u32) -> bool {
        let Some(&of) =
            self.served.iter().find(|read| read.first <= psn && psn < read.first.after(read.packets))
        else {
            return false;
        };
        let offset = psn.since(of.first) * mtu;
        let same_place = reth.rkey == of.reth.rkey && reth.va == of.reth.va.wrapping_add(u64::from(offset));
        if !same_place || reth.dma_len > of.reth.dma_len - offset {
            return false;
        }
        let end = psn.after(reth.dma_len.div_ceil(mtu).max(1));
        let end_offset = offset + reth.dma_len;
        let job = ReadJob { of, start: psn, next: psn, end, end_offset, replay: true };
        for answer in self.queue.iter_mut().rev() {
            let Answer::Read(waiting) = answer else { continue };
            if waiting.of.number != of.number {
                continue;
            }
            let to_come = waiting.next <= psn && waiting.end_offset >= end_offset;
            if to_come {
                return true;
            }
            if waiting.replay && waiting.next == waiting.start {
                *waiting = job;
                return true;
            }
            break;
        }
        self.push(Answer::Read(job));
        true
    }

    fn push(&mut self, answer: Answer) {
        if self.queue.len() < self.capacity {
            self.queue.push_back(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::wire::RnrTimer;
    use super::*;
    use crate::remote::Rkey;

    const GAP: Syndrome = Syndrome::Nak(NakCode::PsnSequence);
    const FATAL: Syndrome = Syndrome::Nak(NakCode::InvalidRequest);

    fn psn(number: u32) -> Psn {
        Psn::start(0xFF_FFF8).after(number)
    }

    fn reth(va: u64, dma_len: u32) -> Reth {
        Reth { va, rkey: Rkey(1), dma_len }
    }

    /// What waits, in short.
    fn waiting(answers: &Answers) -> Vec<(char, u32, u32)> {
        let short = |answer: &Answer| match *answer {
            Answer::Acknowledge { psn: at, syndrome } => {
                let kind = match syndrome {
                    Syndrome::Ack(_) => 'a',
                    Syndrome::RnrNak(_) => 'r',
                    GAP => 'g',
                    _ => 'f',
                };
                (kind, at.since(psn(0)), 0)
            }
            Answer::Read(job) => ('d', job.next.since(psn(0)), job.end.since(psn(0))),
        };
        answers.queue.iter().map(short).collect()
    }

    #[test]
    fn acknowledges_coalesce_until_something_separates_them() {
        let mut answers = Answers::new(2);
        (0..5).for_each(|at| answers.acknowledge(psn(at)));
        assert_eq!(waiting(&answers), [('a', 4, 0)]);
        answers.serve(psn(5), 3, reth(0, 3000), 1);
        answers.acknowledge(psn(8));
        answers.acknowledge(psn(9));
        assert_eq!(waiting(&answers), [('a', 4, 0), ('d', 5, 8), ('a', 9, 0)]);
        answers.refuse(psn(10), GAP);
        answers.acknowledge(psn(9));
        assert_eq!(waiting(&answers)[2..], [('g', 10, 0)], "a NAK acknowledges what lies before it");
        answers.acknowledge(psn(10));
        answers.refuse(psn(11), Syndrome::RnrNak(RnrTimer::new(12)));
        answers.refuse(psn(11), FATAL);
        assert_eq!(waiting(&answers)[2..], [('g', 10, 0), ('f', 11, 0)]);
    }

    #[test]
    fn a_fatal_nak_finds_room_whatever_waits() {
        let mut answers = Answers::new(0);
        for at in 0..10 {
            answers.refuse(psn(2 * at), GAP);
            answers.acknowledge(psn(2 * at));
        }
        assert_eq!(answers.queue.len(), answers.capacity);
        answers.refuse(psn(30), FATAL);
        assert_eq!(waiting(&answers).last(), Some(&('f', 30, 0)));
        assert_eq!(answers.queue.len(), answers.capacity);
    }

    #[test]
    fn reads_wait_in_order_and_no_more_than_agreed() {
        let mut answers = Answers::new(2);
        answers.serve(psn(0), 1, reth(0, 100), 1);
        assert!(answers.has_room_for_read());
        answers.serve(psn(1), 2, reth(0, 2000), 2);
        assert!(!answers.has_room_for_read());
        answers.pop();
        assert!(answers.has_room_for_read());
    }

    #[test]
    fn a_read_is_served_again_from_where_it_is_asked_for() {
        let mut answers = Answers::new(2);
        answers.serve(psn(0), 4, reth(1000, 3500), 1);
        assert!(answers.replay(psn(1), reth(2024, 2476), 1024));
        assert_eq!(waiting(&answers), [('d', 0, 4)], "it comes by itself");
        answers.pop();
        for (at, asked) in [
            (1, reth(2023, 2476)),
            (1, reth(2024, 2477)),
            (0, Reth { rkey: Rkey(2), ..reth(1000, 3500) }),
            (4, reth(5096, 0)),
        ] {
            assert!(!answers.replay(psn(at), asked, 1024), "{asked:?}");
        }
        assert!(answers.replay(psn(1), reth(2024, 2476), 1024));
        assert!(answers.replay(psn(2), reth(3048, 1024), 1024));
        assert_eq!(waiting(&answers), [('d', 1, 4)], "the first includes the second");
        answers.pop();
        assert!(answers.replay(psn(2), reth(3048, 1024), 1024));
        assert!(answers.replay(psn(0), reth(1000, 3500), 1024));
        assert_eq!(waiting(&answers), [('d', 0, 4)], "the newest wish counts");
        answers.serve(psn(4), 1, reth(0, 1), 2);
        answers.serve(psn(5), 1, reth(0, 1), 3);
        assert!(!answers.replay(psn(0), reth(1000, 3500), 1024), "its record is gone");
    }
}
