//! Sends packets: all that wait go in one `sendmmsg`, joined into segmentation messages by `queue`.
//!
//! Decides nothing about the protocol and repeats nothing that the kernel took or refused for good; the reliable
//! connection above repairs losses. Spec: roce-wire 1.8 (what to do when a path can't segment), 5.3 (segmentation).

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use t10pi::Ahead;

use super::TxCounters;
use super::calls::{Calls, Outcome};
use super::queue::{Hints, Queue};
use crate::device::soft::{PacketSink, SinkFull, TxMeta};
use crate::mem::Iov;

/// Packets on their way to the kernel, of one reactor, for all its local addresses.
///
/// # Lifetime of payloads
/// Payloads are sent in place: from `push` to the next [`Self::flush`] a packet is a pointer into registered memory, whose
/// bytes stay unchanged by the contract of work requests. What the kernel has no room for then is copied: afterwards
/// nothing here points to foreign memory, which may be unmapped, or given to somebody else.
///
/// # Strangers
/// Packets to an address in the kernel's own network at which nobody is wait in the kernel for seconds, and count as room of
/// their socket all the time. So those to peers that may not exist, which anybody can have us send, have sockets of their
/// own, and wait for nothing: what finds no room is lost.
#[derive(Debug)]
pub struct TxBatch {
    sockets: Vec<TxSocket>,
    /// Those for strangers.
    strangers: Vec<TxSocket>,
    segments: bool,
    /// Destinations that refused segmentation.
    plain: Plain,
    calls: Calls,
    counters: TxCounters,
    /// For the next packet.
    hints: Hints,
}

/// Destinations that get single datagrams. Few: one a path whose device can't segment.
#[derive(Debug)]
struct Plain {
    addresses: Vec<IpAddr>,
    next: usize,
}

#[derive(Debug)]
struct TxSocket {
    fd: OwnedFd,
    source: SocketAddr,
    queue: Queue,
}

impl TxBatch {
    /// Takes over the transmit sockets, and those for strangers if there are any, each with the address and port that it is
    /// bound to. Allocates everything.
    pub(super) fn new(
        sockets: Vec<(OwnedFd, SocketAddr)>,
        strangers: Vec<(OwnedFd, SocketAddr)>,
        segments: bool,
    ) -> nix::Result<Self> {
        let with_queues = |sockets: Vec<(OwnedFd, SocketAddr)>| {
            let with_queue = |(fd, source)| Ok(TxSocket { fd, source, queue: Queue::new(source)? });
            sockets.into_iter().map(with_queue).collect::<nix::Result<_>>()
        };
        Ok(Self {
            sockets: with_queues(sockets)?,
            strangers: with_queues(strangers)?,
            segments,
            plain: Plain { addresses: Vec::with_capacity(PLAIN), next: 0 },
            calls: Calls::new(),
            counters: TxCounters::default(),
            hints: Hints::default(),
        })
    }

    /// Sends what waits. What the kernel has no room for stays, in order; see [`Self::has_unsent`].
    pub fn flush(&mut self) {
        for socket in self.sockets.iter_mut().filter(|s| !s.queue.is_empty()) {
            socket.flush(&mut self.calls, &mut self.plain, &mut self.counters);
        }
        for socket in self.strangers.iter_mut().filter(|s| !s.queue.is_empty()) {
            socket.flush(&mut self.calls, &mut self.plain, &mut self.counters);
            self.counters.no_room += socket.queue.unsent() as u64;
            socket.queue.clear();
        }
    }

    /// Whether packets wait.
    #[must_use]
    pub fn has_unsent(&self) -> bool {
        self.sockets.iter().any(|s| !s.queue.is_empty())
    }

    /// Sockets whose packets wait for room in the kernel: interesting when they become writable.
    pub fn blocked(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.sockets.iter().filter(|s| !s.queue.is_empty()).map(|s| s.fd.as_fd())
    }

    /// Sums since the start.
    #[must_use]
    pub fn counters(&self) -> TxCounters {
        self.counters
    }

    /// Every socket with the address and port that it sends from.
    #[cfg(test)]
    pub(super) fn sources(&self) -> impl Iterator<Item = (BorrowedFd<'_>, SocketAddr)> {
        self.sockets.iter().map(|s| (s.fd.as_fd(), s.source))
    }

    /// Pretends that the kernel has room for this many more messages.
    #[cfg(test)]
    pub(super) fn room(&mut self, messages: usize) {
        self.calls.room = messages;
    }

    /// Treats a destination as one whose path refused segmentation.
    #[cfg(test)]
    pub(super) fn refuse_segments(&mut self, to: IpAddr) {
        self.plain.insert(to);
    }
}

impl PacketSink for TxBatch {
    fn push(&mut self, meta: &TxMeta, header: &[u8], payload: &[Iov<'_>]) -> Result<(), SinkFull> {
        let Some(socket) = self.sockets.iter_mut().find(|s| s.source.ip() == meta.src) else {
            self.counters.no_source += 1;
            return Ok(());
        };
        let segments = self.segments && !self.plain.contains(meta.dst);
        socket.queue.push(socket.source, segments, meta, header, payload, std::mem::take(&mut self.hints))
    }

    #[inline]
    fn announce(&mut self, next: Ahead) {
        self.hints.ahead = next;
    }

    #[inline]
    fn know_payload(&mut self, sum: u32) {
        self.hints.sum = Some(sum);
    }

    fn push_to_stranger(
        &mut self,
        meta: &TxMeta,
        header: &[u8],
        payload: &[Iov<'_>],
    ) -> Result<(), SinkFull> {
        let Some(socket) = self.strangers.iter_mut().find(|s| s.source.ip() == meta.src) else {
            return self.push(meta, header, payload);
        };
        socket.queue.push(socket.source, false, meta, header, payload, Hints::default())
    }
}

impl Plain {
    fn contains(&self, address: IpAddr) -> bool {
        self.addresses.contains(&address)
    }

    fn insert(&mut self, address: IpAddr) {
        if self.contains(address) {
            return;
        }
        if self.addresses.len() < PLAIN {
            self.addresses.push(address);
        } else {
            // The oldest is learnt again when it is still in use.
            self.addresses[self.next] = address;
            self.next = (self.next + 1) % PLAIN;
        }
    }
}

impl TxSocket {
    fn flush(&mut self, calls: &mut Calls, plain: &mut Plain, counters: &mut TxCounters) {
        while let Some(head) = self.queue.head() {
            let singly = head.is_taken_apart();
            let outcome = if singly {
                self.queue.prepare_packets(calls);
                calls.send(&self.fd, counters)
            } else {
                self.queue.prepare_messages(calls);
                calls.send(&self.fd, counters)
            };
            match outcome {
                Outcome::Sent(count) if singly => self.queue.done_packets(count, counters),
                Outcome::Sent(count) => self.queue.done_messages(count, counters),
                Outcome::Later => {
                    self.queue.keep_payloads();
                    return;
                }
                Outcome::Refused(Errno::EIO | Errno::EINVAL | Errno::EMSGSIZE)
                    if head.is_segmented() && !singly =>
                {
                    if !plain.contains(head.to()) {
                        tracing::info!(to = %head.to(), "no segmentation on this path: sending single datagrams");
                    }
                    plain.insert(head.to());
                    counters.segmentation_refused += 1;
                    self.queue.take_apart(self.source);
                }
                Outcome::Refused(error) => {
                    counters.errors += 1;
                    if error == Errno::EMSGSIZE {
                        counters.too_long += 1;
                    }
                    self.queue.drop_first();
                }
            }
        }
        self.queue.clear();
    }
}

/// Destinations without segmentation that are remembered.
const PLAIN: usize = 64;
