//! Packets of one socket that wait for the kernel, and how they form segmentation messages.
//!
//! A message carries packets of one size, but for a shorter last one. Receivers steer a message as a whole, by the queue
//! pair of its first packet, so it mixes queue pairs only when the peer answers for all of them from one UDP port: then
//! one of its threads has them all. Packets of a queue pair keep their order; those of different ones need not, and so
//! may join an earlier message. Finishes packets with pad and ICRC, which depend on the position in the message.
//! Spec: roce-wire 1.6 (pads), 1.7 (ICRC), 1.8 (Identification = position), 5.3 (segmentation).
#![allow(unsafe_code, reason = "reads registered memory in place")]

use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::ptr::NonNull;

use t10pi::Ahead;

use super::TxCounters;
use super::calls::Calls;
use crate::device::SUM_PIECE;
use crate::device::soft::icrc::{Icrc, IcrcFlow};
use crate::device::soft::wire::ICRC_LEN as ICRC;
use crate::device::soft::{COPIED_PAYLOAD as COPY, SinkFull, TxMeta};
use crate::mem::{Iov, Region};

/// Unsent packets of one socket, oldest first.
#[derive(Debug)]
pub(super) struct Queue {
    /// Headers, short payloads, pads and ICRCs, in the order of packets.
    arena: Region,
    arena_used: usize,
    /// Payloads that the kernel had no room for, so that their memory need not stay as it is.
    kept: Region,
    kept_used: usize,
    /// Pieces of all packets, in order.
    vectors: Vec<libc::iovec>,
    /// So many of them lie in memory of this value.
    own_vectors: usize,
    packets: Vec<Packet>,
    messages: Vec<Message>,
    /// Messages that are done with.
    gone: usize,
    /// Packets of message `gone` that are done with, when it is taken apart.
    gone_singly: usize,
    recent: Recent,
    mix: Mix,
    flows: Flows,
}

// SAFETY: the vectors point into the arena, which this value owns, and into registered memory, whose `Region` is Sync
// and lives while packets wait here (see `TxBatch`); none is tied to a thread.
unsafe impl Send for Queue {}

#[derive(Clone, Copy, Debug)]
struct Packet {
    /// Bytes on the wire after the UDP header.
    size: usize,
    /// Where its ICRC lies in the arena.
    icrc: usize,
    first_vector: usize,
    vectors: usize,
    /// The next one of its message; meaningless in the last.
    next: usize,
}

/// What was said of the next packet's payload, and of the one behind.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hints {
    /// Its checksum ([`SUM_PIECE`]), when that is known.
    pub(super) sum: Option<u32>,
    /// The payload of the packet behind, to be fetched meanwhile.
    pub(super) ahead: Ahead,
}

/// The room of one packet in the arena, while it is filled.
struct Arena<'r> {
    at: NonNull<u8>,
    length: usize,
    put: usize,
    /// Bytes that stand in a piece already.
    taken: usize,
    region: PhantomData<&'r Region>,
}

/// What one call of `sendmsg` would carry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Message {
    to: Destination,
    /// Size of every packet but the last, which may be shorter.
    segment: usize,
    bytes: usize,
    vectors: usize,
    first_packet: usize,
    last_packet: usize,
    packets: usize,
    state: MessageState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageState {
    /// Takes more packets.
    Open,
    /// Is complete.
    Closed,
    /// The kernel refused to segment it: its packets go one by one.
    Singly,
}

/// Packets of one message agree in this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Destination {
    address: IpAddr,
    tos: u8,
    steering: Steering,
}

/// Which packets one thread of the peer receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Steering {
    /// All to queue pairs that send from this UDP port.
    Port(u16),
    /// All to this queue pair.
    Qpn(u32),
}

/// The newest message of each queue pair in the batch: no packet of it may go into an older one.
#[derive(Debug)]
struct Recent {
    table: Vec<RecentMessage>,
    /// Of the batch; entries of others are void.
    batch: u32,
    /// Holds for queue pairs whose entry another one took.
    floor: usize,
}

#[derive(Clone, Copy, Debug)]
struct RecentMessage {
    qpn: u32,
    batch: u32,
    message: usize,
}

/// Whether several queue pairs that may share messages have packets, now or in the batch before. If so, a message stays
/// open for the other ones' packets of its size rather than end with a shorter packet.
#[derive(Debug, Default)]
struct Mix {
    before: bool,
    now: bool,
    last: Option<u32>,
}

/// What the ICRC needs of each destination, for the last few.
#[derive(Debug)]
struct Flows {
    known: [(IpAddr, IcrcFlow); FLOWS],
}

impl Queue {
    /// Allocates everything.
    pub(super) fn new(source: SocketAddr) -> nix::Result<Self> {
        Ok(Self {
            arena: Region::new(ARENA)?,
            arena_used: 0,
            kept: Region::new(KEPT)?,
            kept_used: 0,
            own_vectors: 0,
            vectors: Vec::with_capacity(VECTORS),
            packets: Vec::with_capacity(PACKETS),
            messages: Vec::with_capacity(MESSAGES),
            gone: 0,
            gone_singly: 0,
            recent: Recent::new(),
            mix: Mix::default(),
            flows: Flows::new(source),
        })
    }

    /// Takes a packet; see [`crate::device::soft::PacketSink`].
    pub(super) fn push(
        &mut self,
        source: SocketAddr,
        segments: bool,
        meta: &TxMeta,
        header: &[u8],
        payload: &[Iov<'_>],
        Hints { sum, mut ahead }: Hints,
    ) -> Result<(), SinkFull> {
        let &[_, _, _, _, dest @ .., _, _, _, _] =
            header.first_chunk::<12>().expect("a packet starts with a BTH");
        let qpn = u32::from_be_bytes(dest) & 0x00FF_FFFF;
        let length: usize = payload.iter().map(Iov::len).sum();
        let pad = length.wrapping_neg() % 4;
        let size = header.len() + length + pad + ICRC;
        let sum = sum.filter(|_| length == SUM_PIECE as usize);
        assert!(size <= MAX_BYTES, "a packet fits a UDP datagram");
        let is_copied = length <= COPY;
        let pieces = 2 + payload.len();
        // What goes by way of the arena: headers, a short payload, pad and ICRC.
        let own = if is_copied { size } else { size - length };
        if self.packets.len() == PACKETS
            || self.vectors.len() + pieces > VECTORS
            || self.arena_used + own > ARENA
        {
            return Err(SinkFull);
        }
        let steering = if meta.peer_port == 0 { Steering::Qpn(qpn) } else { Steering::Port(meta.peer_port) };
        let to = Destination { address: meta.dst, tos: meta.tos, steering };
        let place = if segments { self.place(to, qpn, size, pieces) } else { None };
        if place.is_none() && self.messages.len() == MESSAGES {
            return Err(SinkFull);
        }
        let (index, position) = match place {
            Some(index) => (index, self.join(index, size, pieces)),
            None => (self.begin(to, size, pieces, segments), 0),
        };
        self.recent.set(qpn, index);
        self.mix.note(to, qpn);
        let position = u16::try_from(position).expect("a message has at most SEGMENTS packets");
        let mut icrc = self.flows.flow(source, meta.dst).begin(position, header, length);
        let first_vector = self.vectors.len();
        let mut read = u32::MAX;
        let mut to = Arena::new(&self.arena, self.arena_used, own);
        to.put(header);
        for piece in payload.iter().filter(|p| !p.is_empty()) {
            // SAFETY: the piece is mapped for its life, which covers this call, and bytes of a packet that is being
            // sent stay unchanged by the contract of work requests.
            let bytes = unsafe { std::slice::from_raw_parts(piece.ptr().as_ptr(), piece.len()) };
            if sum.is_none() {
                icrc.update_ahead(bytes, std::mem::replace(&mut ahead, Ahead::NONE));
            } else if cfg!(debug_assertions) {
                read = t10pi::Kernel::active().crc32(read, bytes);
            }
            if is_copied {
                to.put(bytes);
            } else {
                self.vectors.extend(to.take());
                self.vectors
                    .push(libc::iovec { iov_base: piece.ptr().as_ptr().cast(), iov_len: piece.len() });
            }
        }
        if let Some(sum) = sum {
            debug_assert_eq!(sum, !read, "the checksum that was said is the payload's");
            icrc.update_known(sum);
        }
        to.put(icrc.finish().as_bytes());
        self.vectors.extend(to.take());
        self.arena_used += own;
        let vectors = self.vectors.len() - first_vector;
        self.packets.push(Packet { size, icrc: self.arena_used - ICRC, first_vector, vectors, next: 0 });
        Ok(())
    }

    /// The message that a packet may join, the oldest first.
    fn place(&self, to: Destination, qpn: u32, size: usize, pieces: usize) -> Option<usize> {
        let from = self.recent.message(qpn).max(self.gone);
        let newest = self.messages.len().checked_sub(1)?;
        for index in (from..=newest).take(LOOK) {
            let message = &self.messages[index];
            if size == message.segment && message.takes(to, size, pieces) {
                return Some(index);
            }
        }
        let last = &self.messages[newest];
        let ends = newest >= from && size < last.segment && last.takes(to, size, pieces);
        (ends && !self.mix.is_mixed(to)).then_some(newest)
    }

    /// Adds the packet that is about to be pushed to a message; returns its position there.
    fn join(&mut self, index: usize, size: usize, pieces: usize) -> usize {
        let packet = self.packets.len();
        let message = &mut self.messages[index];
        self.packets[message.last_packet].next = packet;
        message.last_packet = packet;
        message.bytes += size;
        message.vectors += pieces;
        message.packets += 1;
        if size < message.segment {
            message.state = MessageState::Closed;
        }
        message.packets - 1
    }

    /// Begins a message with the packet that is about to be pushed.
    fn begin(&mut self, to: Destination, size: usize, pieces: usize, segments: bool) -> usize {
        let packet = self.packets.len();
        self.messages.push(Message {
            to,
            segment: size,
            bytes: size,
            vectors: pieces,
            first_packet: packet,
            last_packet: packet,
            packets: 1,
            state: if segments { MessageState::Open } else { MessageState::Closed },
        });
        self.messages.len() - 1
    }

    /// Copies the payloads of all packets that wait: the memory they came from is not looked at any more.
    pub(super) fn keep_payloads(&mut self) {
        // What the kernel has taken needs no copy.
        let unsent = self
            .messages
            .get(self.gone)
            .map_or(self.vectors.len(), |message| self.packets[message.first_packet].first_vector);
        let from = self.own_vectors.max(unsent.min(self.vectors.len()));
        for index in from..self.vectors.len() {
            let piece = self.vectors[index];
            if self.is_in_arena(&piece) {
                continue;
            }
            // SAFETY: the piece lies in registered memory, which is mapped as long as packets that were not copied wait
            // (see `TxBatch`), and stays unchanged by the contract of work requests.
            let bytes = unsafe { std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len) };
            let to = self.kept.ptr(self.kept_used, bytes.len()).expect("there is room for all payloads");
            self.kept.write(self.kept_used, bytes);
            self.kept_used += bytes.len();
            self.vectors[index].iov_base = to.as_ptr().cast();
        }
        self.own_vectors = self.vectors.len();
    }

    /// The message that is to go next.
    pub(super) fn head(&self) -> Option<Message> {
        self.messages.get(self.gone).copied()
    }

    /// Packets that wait.
    pub(super) fn unsent(&self) -> usize {
        let waiting = self.messages.iter().skip(self.gone).map(|message| message.packets).sum::<usize>();
        waiting - self.gone_singly
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    fn is_in_arena(&self, piece: &libc::iovec) -> bool {
        let offset = (piece.iov_base.addr() as u64).wrapping_sub(self.arena.addr());
        offset < ARENA as u64
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.arena_used = 0;
        self.kept_used = 0;
        self.own_vectors = 0;
        self.vectors.clear();
        self.packets.clear();
        self.messages.clear();
        self.gone = 0;
        self.gone_singly = 0;
        self.recent.clear();
        self.mix.clear();
    }

    /// Lays out the waiting messages, up to the next that was taken apart.
    pub(super) fn prepare_messages(&mut self, calls: &mut Calls) {
        calls.clear();
        for index in self.gone..self.messages.len() {
            let message = &mut self.messages[index];
            if message.state == MessageState::Singly {
                break;
            }
            // What the kernel has seen takes no more: its packets are numbered.
            message.state = MessageState::Closed;
            let message = *message;
            let segment = (message.packets > 1).then_some(message.segment);
            calls.message(message.to.address, message.to.tos, segment);
            for packet in self.packets_of(message) {
                self.pieces_of(packet).iter().for_each(|&piece| calls.piece(piece));
            }
        }
    }

    /// Lays out the packets of the first message, each alone.
    pub(super) fn prepare_packets(&self, calls: &mut Calls) {
        calls.clear();
        let message = self.messages[self.gone];
        for packet in self.packets_of(message).skip(self.gone_singly) {
            calls.message(message.to.address, message.to.tos, None);
            self.pieces_of(packet).iter().for_each(|&piece| calls.piece(piece));
        }
    }

    fn packets_of(&self, message: Message) -> impl Iterator<Item = Packet> + '_ {
        let first = self.packets[message.first_packet];
        std::iter::successors(Some(first), |packet| Some(self.packets[packet.next])).take(message.packets)
    }

    fn pieces_of(&self, packet: Packet) -> &[libc::iovec] {
        &self.vectors[packet.first_vector..][..packet.vectors]
    }

    pub(super) fn done_messages(&mut self, count: usize, counters: &mut TxCounters) {
        for message in &self.messages[self.gone..][..count] {
            counters.packets += message.packets as u64;
            counters.bytes += message.bytes as u64;
        }
        counters.messages += count as u64;
        self.gone += count;
    }

    pub(super) fn done_packets(&mut self, count: usize, counters: &mut TxCounters) {
        let message = self.messages[self.gone];
        let bytes: usize = self.packets_of(message).skip(self.gone_singly).take(count).map(|p| p.size).sum();
        counters.bytes += bytes as u64;
        counters.packets += count as u64;
        counters.messages += count as u64;
        self.leave_packets(count);
    }

    /// Gives up the packet or the message that the kernel refused.
    pub(super) fn drop_first(&mut self) {
        if self.messages[self.gone].state == MessageState::Singly {
            self.leave_packets(1);
        } else {
            self.gone += 1;
        }
    }

    fn leave_packets(&mut self, count: usize) {
        self.gone_singly += count;
        if self.gone_singly == self.messages[self.gone].packets {
            self.gone += 1;
            self.gone_singly = 0;
        }
    }

    /// Makes single datagrams of the first message: each has Identification 0 then, and another ICRC.
    #[cold]
    pub(super) fn take_apart(&mut self, source: SocketAddr) {
        let message = &mut self.messages[self.gone];
        message.state = MessageState::Singly;
        let message = *message;
        let flow = self.flows.flow(source, message.to.address);
        for packet in self.packets_of(message) {
            let mut covered = packet.size - ICRC;
            let mut icrc: Option<Icrc> = None;
            for piece in self.pieces_of(packet) {
                let mut at = piece.iov_base.cast::<u8>();
                // The last piece ends with the ICRC.
                let mut left = piece.iov_len.min(covered);
                while left > 0 {
                    // A copy: the packet may be a repetition of one that is acknowledged meanwhile, whose bytes may
                    // change. Receivers drop it for its ICRC then, as they would as a duplicate.
                    let mut copy = [0_u8; 512];
                    let length = left.min(copy.len());
                    // SAFETY: `at` has `left` readable bytes, in the arena or in registered memory that lives while
                    // the packet waits (see `TxBatch`); `copy` is a local of at least `length` bytes.
                    unsafe { std::ptr::copy_nonoverlapping(at, copy.as_mut_ptr(), length) };
                    covered -= length;
                    match &mut icrc {
                        Some(icrc) => icrc.update(&copy[..length]),
                        // All headers, or all of a packet that was copied with its pad: a multiple of four.
                        None => icrc = Some(flow.begin(0, &copy[..length], covered)),
                    }
                    at = at.wrapping_add(length);
                    left -= length;
                }
            }
            let icrc = icrc.expect("a packet starts with a BTH");
            self.arena.write(packet.icrc, icrc.finish().as_bytes());
        }
    }
}

impl<'r> Arena<'r> {
    /// `length` bytes from `offset`, which the caller knows to be there.
    #[inline]
    fn new(region: &'r Region, offset: usize, length: usize) -> Self {
        let at = region.ptr(offset, length).expect("push checked that the arena has room");
        Self { at, taken: 0, put: 0, length, region: PhantomData }
    }

    /// Appends bytes.
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.length - self.put, "a packet takes the room that it asked for");
        let to = self.at.as_ptr().wrapping_add(self.put);
        // SAFETY: `to` has room for `bytes` inside the `length` bytes of the mapping that `new` found, by the assertion above;
        // nobody else uses these.
        unsafe { std::ptr::copy(bytes.as_ptr(), to, bytes.len()) };
        self.put += bytes.len();
    }

    /// What was put since the last time, as a piece.
    #[inline]
    fn take(&mut self) -> Option<libc::iovec> {
        let iov_len = self.put - self.taken;
        let iov_base = self.at.as_ptr().wrapping_add(self.taken).cast();
        self.taken = self.put;
        (iov_len > 0).then_some(libc::iovec { iov_base, iov_len })
    }
}

impl Message {
    /// Where it goes.
    pub(super) fn to(&self) -> IpAddr {
        self.to.address
    }

    /// Whether the kernel is asked to segment it.
    pub(super) fn is_segmented(&self) -> bool {
        self.packets > 1
    }

    /// Whether its packets go one by one.
    pub(super) fn is_taken_apart(&self) -> bool {
        self.state == MessageState::Singly
    }

    /// Whether another packet may join.
    fn takes(&self, to: Destination, size: usize, pieces: usize) -> bool {
        self.state == MessageState::Open
            && size <= self.segment
            && self.packets < SEGMENTS
            && self.bytes + size <= MAX_BYTES
            && self.vectors + pieces <= MAX_VECTORS
            && self.to == to
    }
}

impl Recent {
    fn new() -> Self {
        Self { table: vec![RecentMessage { qpn: 0, batch: 0, message: 0 }; RECENT], batch: 1, floor: 0 }
    }

    fn slot(qpn: u32) -> usize {
        qpn as usize % RECENT
    }

    /// The oldest message that a packet of a queue pair may join.
    fn message(&self, qpn: u32) -> usize {
        let entry = &self.table[Self::slot(qpn)];
        if entry.batch == self.batch && entry.qpn == qpn { entry.message } else { self.floor }
    }

    /// Queue pairs of the same number at different peers share an entry: less joins then, and order holds, because a
    /// message set here is never older than the one before.
    fn set(&mut self, qpn: u32, message: usize) {
        let entry = &mut self.table[Self::slot(qpn)];
        if entry.batch == self.batch && entry.qpn != qpn {
            self.floor = self.floor.max(entry.message);
        }
        *entry = RecentMessage { qpn, batch: self.batch, message };
    }

    fn clear(&mut self) {
        self.batch = self.batch.wrapping_add(1);
        self.floor = 0;
    }
}

impl Mix {
    fn note(&mut self, to: Destination, qpn: u32) {
        if matches!(to.steering, Steering::Port(_)) {
            self.now |= self.last.is_some_and(|last| last != qpn);
            self.last = Some(qpn);
        }
    }

    fn is_mixed(&self, to: Destination) -> bool {
        (self.now || self.before) && matches!(to.steering, Steering::Port(_))
    }

    fn clear(&mut self) {
        *self = Self { before: self.now, now: false, last: None };
    }
}

impl Flows {
    fn new(source: SocketAddr) -> Self {
        let to = source.ip();
        Self { known: [(to, IcrcFlow::new(to, to, source.port())); FLOWS] }
    }

    fn flow(&mut self, source: SocketAddr, to: IpAddr) -> IcrcFlow {
        let low = match to {
            IpAddr::V4(v4) => v4.octets()[3],
            IpAddr::V6(v6) => v6.octets()[15],
        };
        let known = &mut self.known[usize::from(low) % FLOWS];
        if known.0 != to {
            *known = (to, IcrcFlow::new(source.ip(), to, source.port()));
        }
        known.1
    }
}

/// Destinations whose ICRC prefix is kept; others cost one computation a packet.
const FLOWS: usize = 32;
/// Queue pairs whose newest message is known exactly.
const RECENT: usize = 256;
/// Messages looked at for room for a packet.
const LOOK: usize = 8;
/// Packets of one message; older kernels take no more.
const SEGMENTS: usize = 64;
/// Bytes of one message: an IPv4 datagram's payload.
const MAX_BYTES: usize = 65_507;
/// Pieces of one message that the kernel takes (`UIO_MAXIOV`).
const MAX_VECTORS: usize = 1024;
/// Messages that wait or go in one call; single datagrams of a message that was taken apart are no more.
pub(super) const MESSAGES: usize = 128;
/// Packets that wait.
const PACKETS: usize = 1024;
/// Pieces that wait.
pub(super) const VECTORS: usize = 4096;
/// Bytes of headers, short payloads, pads and ICRCs that wait.
const ARENA: usize = 256 << 10;
/// Bytes of all payloads at most: a packet carries no more than the largest path MTU.
const KEPT: usize = PACKETS * 4096;

const _: () = assert!(SEGMENTS <= MESSAGES);
