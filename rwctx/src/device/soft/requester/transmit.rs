//! Forming request packets: the send position walks over the send queue, forward for new packets, and from where it was
//! put back for those that are sent again.

use t10pi::Ahead;

use super::super::PacketSink;
use super::super::psn::Psn;
use super::super::qp::{Env, Failure, Path};
use super::super::queue::MAX_SGE;
use super::super::wire::{Bth, Ext, Ieth, ImmDt, Opcode, Reth};
use super::Requester;
use crate::mem::{Iov, Lkey, MemError, MemTable, PACKET_PIECES, Use};
use crate::plan::Direction;
use crate::remote::Rkey;
use crate::wc::WcStatus;
use crate::wr::{Fence, SendOp, Sge, Signal};

/// An answer is asked for at least every so many packets.
const ACK_REQ_INTERVAL: u32 = 16;

/// Pieces that nearly every packet has at most.
const FEW: usize = 2;
/// Pieces that a packet has at most.
const MANY: usize = MAX_SGE * PACKET_PIECES;

/// Why the requester stopped sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Step {
    /// Nothing to send before something happens.
    Idle,
    /// The budget is used up.
    More,
    /// A READ waits for other queue pairs' READs to complete.
    Starved,
}

/// Why sending was cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Stop {
    /// The sink is full.
    Full,
    /// The queue pair fails.
    Failed(Failure),
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Requester {
    /// Sends what may be sent, up to `budget` packets, which it counts down.
    ///
    /// # Errors
    /// See [`Stop`].
    pub(in super::super) fn transmit<S: PacketSink>(
        &mut self,
        env: &mut Env<'_>,
        path: &Path,
        sink: &mut S,
        budget: &mut u32,
    ) -> Result<Step, Stop> {
        let stopped = self.transmit_some(env, path, sink, budget);
        if self.deadline.is_none() && self.rnr_until.is_none() && self.una < self.sent {
            self.arm(env.now);
        }
        stopped
    }

    fn transmit_some<S: PacketSink>(
        &mut self,
        env: &mut Env<'_>,
        path: &Path,
        sink: &mut S,
        budget: &mut u32,
    ) -> Result<Step, Stop> {
        if self.rnr_until.is_some() {
            return Ok(Step::Idle);
        }
        loop {
            if *budget == 0 {
                return Ok(Step::More);
            }
            if let Some(position) = self.reads.wanted() {
                self.ask_again(env, path, sink, position)?;
                *budget -= 1;
                continue;
            }
            let Some(wqe) = self.sq.get(self.cursor) else { return Ok(Step::Idle) };
            if self.blocked.is_some() {
                return Ok(Step::Idle);
            }
            let starts = self.next == wqe.first && self.next == self.sent;
            if wqe.fence == Fence::Reads && starts && !self.reads.is_empty() {
                return Ok(Step::Idle);
            }
            let sent = if wqe.is_local() {
                self.execute_local(env, path)?
            } else if wqe.is_read() {
                match self.send_read(env, path, sink)? {
                    Some(sent) => sent,
                    None => return Ok(Step::Starved),
                }
            } else {
                self.send_packet(env, path, sink)?
            };
            match sent {
                Sent::Packet => *budget -= 1,
                Sent::Nothing => {}
                Sent::Blocked => return Ok(Step::Idle),
            }
        }
    }

    /// Sends the packet at the send position, which is of a SEND or WRITE.
    fn send_packet<S: PacketSink>(
        &mut self,
        env: &mut Env<'_>,
        path: &Path,
        sink: &mut S,
    ) -> Result<Sent, Stop> {
        let wqe = *self.sq.get(self.cursor).expect("the send position is on the queue");
        if self.next < self.acked {
            // Sent before and known to have arrived.
            self.advance_to(self.acked.min(wqe.end()), wqe.end());
            return Ok(Sent::Nothing);
        }
        let index = self.next.since(wqe.first);
        let in_flight = self.in_flight(wqe.first_request + u64::from(index));
        if in_flight >= self.window.packets() {
            return Ok(Sent::Blocked);
        }
        let offset = index * path.mtu;
        let length = (wqe.length - offset).min(path.mtu);
        let last = index + 1 == wqe.packets;
        let (opcode, ext) = headers(&wqe.op, wqe.length, index == 0, last);

        let interval = ACK_REQ_INTERVAL.min(self.window.packets() / 2);
        let ack_req = last && (wqe.signal == Signal::Signaled || self.waits_after(self.cursor))
            || self.since_ack_req + 1 >= interval
            || in_flight + 1 >= self.window.packets();
        let mut bth = Bth::new(opcode, path.dest_qpn, self.next.wire(), length as usize);
        bth.ack_req = ack_req;

        if wqe.signed && self.sign(env, path, offset + length).is_err() {
            return self.block(env, path, WcStatus::LocProtErr);
        }
        let sges = self.sq.sges(self.cursor);
        let (mut few, mut many) = ([Iov::EMPTY; FEW], None);
        let mut iovs: &mut [Iov<'_>] = &mut few;
        // Room for many pieces costs more to make than all else of a packet.
        if sges.len() > FEW || wqe.signed {
            iovs = many.insert([Iov::EMPTY; MANY]);
        }
        let mut gathered = if wqe.signed {
            env.mem.gather_integrity(path.pd, sges[0].lkey, offset, length, iovs)
        } else {
            env.mem.gather(path.pd, sges, offset, length as usize, iovs)
        };
        if gathered == Err(MemError::Pieces) && !wqe.signed {
            iovs = many.insert([Iov::EMPTY; MANY]);
            gathered = env.mem.gather(path.pd, sges, offset, length as usize, iovs);
        }
        let Ok(pieces) = gathered else {
            return self.block(env, path, WcStatus::LocProtErr);
        };
        if wqe.summed {
            sink.know_payload(self.sq.sum(self.cursor, index));
        }
        sink.announce(self.payload_after(offset + path.mtu, wqe.length, path.mtu));
        path.push(sink, env.counters, bth, ext, &iovs[..pieces]).map_err(|_| Stop::Full)?;

        if self.next < self.sent {
            env.counters.retransmits += 1;
        } else if ack_req {
            self.window.on_sent(self.next, env.now);
        }
        self.since_ack_req = if ack_req { 0 } else { self.since_ack_req + 1 };
        self.advance_to(self.next.after(1), wqe.end());
        Ok(Sent::Packet)
    }

    /// Where the payload of the next packet begins: of the message of `length` bytes at the send position when there is
    /// more of it from `offset` on, otherwise of the next one. A hint, nothing more.
    #[inline]
    fn payload_after(&self, offset: u32, length: u32, mtu: u32) -> Ahead {
        let (number, mut skip) = if offset < length { (self.cursor, offset) } else { (self.cursor + 1, 0) };
        // Where a registration's memory lies is not worth to be looked up, and what has its checksums is not read.
        if self.sq.get(number).is_none_or(|wqe| wqe.signed || wqe.summed) {
            return Ahead::NONE;
        }
        for sge in self.sq.sges(number) {
            if skip < sge.length {
                // An address of another width is none that could be asked for.
                let address = usize::try_from(sge.addr.wrapping_add(skip.into())).unwrap_or_default();
                return Ahead::new(address, (sge.length - skip).min(mtu) as usize);
            }
            skip -= sge.length;
        }
        Ahead::NONE
    }

    /// Sends the READ request at the send position; `None` when the endpoint has too much asked for already.
    fn send_read<S: PacketSink>(
        &mut self,
        env: &mut Env<'_>,
        path: &Path,
        sink: &mut S,
    ) -> Result<Option<Sent>, Stop> {
        let wqe = *self.sq.get(self.cursor).expect("the send position is on the queue");
        let index = self.next.since(wqe.first);
        let packets = self.chunk_packets.min(wqe.packets - index);
        if self.next < self.sent {
            let chunk_end = self.next.after(packets);
            let open = self.reads.find(self.next).filter(|&position| !self.reads.at(position).is_complete());
            let Some(position) = open else {
                self.advance_to(chunk_end, wqe.end());
                return Ok(Some(Sent::Nothing));
            };
            let request = wqe.first_request + u64::from(index / self.chunk_packets);
            if self.in_flight(request) >= self.window.packets() {
                return Ok(Some(Sent::Blocked));
            }
            self.ask_again(env, path, sink, position)?;
            self.advance_to(chunk_end, wqe.end());
            return Ok(Some(Sent::Packet));
        }
        if wqe.signed && self.use_registration(env, path, Direction::FromHost).is_err() {
            return self.block(env, path, WcStatus::LocProtErr).map(Some);
        }
        let request = wqe.first_request + u64::from(index / self.chunk_packets);
        if self.reads.is_full() || self.in_flight(request) >= self.window.packets() {
            return Ok(Some(Sent::Blocked));
        }
        if index == 0 && env.mem.check_sinks(path.pd, self.sq.sges(self.cursor)).is_err() {
            return self.block(env, path, WcStatus::LocProtErr).map(Some);
        }
        let offset = index * path.mtu;
        let bytes = (wqe.length - offset).min(packets * path.mtu);
        if self.read_bytes > 0 && self.read_bytes.saturating_add(bytes) > self.read_limit {
            return Ok(Some(Sent::Blocked));
        }
        if !env.read_budget.has(bytes) {
            return Ok(None);
        }
        let piece = Piece { wqe: self.cursor, psn: self.next, offset, bytes };
        self.push_read(env, path, sink, piece)?;
        env.read_budget.take(bytes);
        self.read_bytes += bytes;
        self.reads.push(self.cursor, self.next, packets, offset, bytes);
        self.window.on_sent(self.next, env.now);
        self.advance_to(self.next.after(packets), wqe.end());
        Ok(Some(Sent::Packet))
    }

    /// Asks for the rest of a READ from its first missing response on.
    fn ask_again<S: PacketSink>(
        &mut self,
        env: &mut Env<'_>,
        path: &Path,
        sink: &mut S,
        position: usize,
    ) -> Result<(), Stop> {
        let chunk = self.reads.at(position);
        let skip = chunk.missing * path.mtu;
        let piece = Piece {
            wqe: chunk.wqe,
            psn: chunk.first_missing(),
            offset: chunk.offset + skip,
            bytes: chunk.bytes - skip,
        };
        self.push_read(env, path, sink, piece)?;
        self.reads.note_asked_again(position);
        self.window.forget_sample();
        env.counters.read_rerequests += 1;
        Ok(())
    }

    fn push_read<S: PacketSink>(
        &self,
        env: &mut Env<'_>,
        path: &Path,
        sink: &mut S,
        piece: Piece,
    ) -> Result<(), Stop> {
        let wqe = self.sq.get(piece.wqe).expect("a READ stays on the queue until its responses came");
        let (SendOp::Read(remote) | SendOp::ReadWithInv(remote)) = wqe.op else {
            unreachable!("READ requests are made of READs only")
        };
        let reth = Reth {
            // A READ that passes the end of the address space is refused by the peer, which sees the whole range.
            va: remote.addr.wrapping_add(u64::from(piece.offset)),
            rkey: remote.rkey,
            dma_len: piece.bytes,
        };
        let bth = Bth::new(Opcode::ReadRequest, path.dest_qpn, piece.psn.wire(), 0).with_ack_req();
        path.push(sink, env.counters, bth, Ext::Reth(reth), &[]).map_err(|_| Stop::Full)
    }

    /// Runs the signature of the work request at the send position over what is sent of its first `bytes`.
    fn sign(&self, env: &mut Env<'_>, path: &Path, bytes: u32) -> Result<(), MemError> {
        let sge = self.use_registration(env, path, Direction::ToHost)?;
        env.mem.sign_outgoing(path.pd, sge.lkey, bytes)
    }

    /// Lets the work request at the send position use the integrity registration that is its memory.
    fn use_registration(
        &self,
        env: &mut Env<'_>,
        path: &Path,
        direction: Direction,
    ) -> Result<Sge, MemError> {
        let sge = self.sq.sges(self.cursor)[0];
        env.mem.use_integrity(path.pd, &sge, Use { qpn: path.qpn, number: self.cursor, direction })?;
        Ok(sge)
    }

    /// Executes the local operation at the send position, unless an earlier work request still uses its key.
    fn execute_local(&mut self, env: &mut Env<'_>, path: &Path) -> Result<Sent, Stop> {
        let wqe = *self.sq.get(self.cursor).expect("the send position is on the queue");
        if wqe.done {
            self.cursor += 1;
            return Ok(Sent::Nothing);
        }
        let done = match wqe.op {
            SendOp::LocalInv(key) => {
                if self.is_in_use(env.mem, path, key) {
                    return Ok(Sent::Blocked);
                }
                env.mem.invalidate_local(path.pd, key)
            }
            SendOp::RegMrIntegrity { mr, key, access } => {
                env.mem.register_integrity(path.pd, mr, key, access)
            }
            SendOp::RegMr { mr, key, access } => {
                let registered = env.mem.fast_register(path.pd, mr, key, access, self.sq.list(self.cursor));
                env.counters.fast_registrations += u64::from(registered.is_ok());
                registered
            }
            _ => unreachable!("other operations go to the peer"),
        };
        match done {
            Ok(()) => {
                self.sq.set_done(self.cursor);
                self.cursor += 1;
                self.retire(env, path)?;
                Ok(Sent::Nothing)
            }
            Err(MemError::Range | MemError::Rights | MemError::Pieces) => {
                self.block(env, path, WcStatus::LocProtErr)
            }
            Err(MemError::Key | MemError::State) => self.block(env, path, WcStatus::LocQpOpErr),
        }
    }

    /// Whether a work request before the send position still uses a local key.
    fn is_in_use(&self, mem: &MemTable, path: &Path, key: Rkey) -> bool {
        if mem.is_integrity(Lkey(key.0)) {
            // One work request alone can use it, and nearly always it has completed long ago.
            let user = mem.integrity_user(Lkey(key.0));
            return user.is_some_and(|by| by.qpn == path.qpn && by.number >= self.sq.head());
        }
        let names_it = |number| self.sq.sges(number).iter().any(|sge| sge.lkey.0 == key.0);
        (self.sq.head()..self.cursor).any(names_it)
    }

    /// The work request at the send position can't be executed: it fails in its turn.
    fn block(&mut self, env: &mut Env<'_>, path: &Path, status: WcStatus) -> Result<Sent, Stop> {
        self.blocked = Some(status);
        self.retire(env, path)?;
        Ok(Sent::Blocked)
    }

    /// Request packets without an answer when `request` packets came before the send position.
    #[inline]
    fn in_flight(&self, request: u64) -> u32 {
        u32::try_from(request.saturating_sub(self.floor)).unwrap_or(u32::MAX)
    }

    /// Whether nothing follows work request `number` at once, so that its end needs an answer of its own.
    #[inline]
    fn waits_after(&self, number: u64) -> bool {
        self.sq.get(number + 1).is_none_or(|next| next.is_local() || next.fence == Fence::Reads)
    }

    /// Moves the send position to `to`, and to the next work request when this one ends at `end` there.
    #[inline]
    fn advance_to(&mut self, to: Psn, end: Psn) {
        self.next = to;
        self.sent = self.sent.max(to);
        if to == end {
            self.cursor += 1;
        }
    }
}

/// What became of the send position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    /// A packet went out.
    Packet,
    /// It moved without a packet.
    Nothing,
    /// It can't move now.
    Blocked,
}

/// A piece of a READ to ask for.
#[derive(Clone, Copy, Debug)]
struct Piece {
    wqe: u64,
    psn: Psn,
    /// Where it starts in the message, in bytes.
    offset: u32,
    bytes: u32,
}

/// Opcode and extension headers of a SEND or WRITE packet by its place in a message of `length` bytes.
#[inline]
fn headers(op: &SendOp, length: u32, first: bool, last: bool) -> (Opcode, Ext) {
    let reth =
        |remote: &crate::remote::RemoteAddr| Reth { va: remote.addr, rkey: remote.rkey, dma_len: length };
    match (op, first, last) {
        (SendOp::Write(_) | SendOp::WriteWithImm(..), false, false) => (Opcode::WriteMiddle, Ext::None),
        (SendOp::Write(to) | SendOp::WriteWithImm(to, _), true, false) => {
            (Opcode::WriteFirst, Ext::Reth(reth(to)))
        }
        (SendOp::Write(to), true, true) => (Opcode::WriteOnly, Ext::Reth(reth(to))),
        (SendOp::Write(_), false, true) => (Opcode::WriteLast, Ext::None),
        (SendOp::WriteWithImm(to, imm), true, true) => {
            (Opcode::WriteOnlyWithImm, Ext::RethImm(reth(to), ImmDt(*imm)))
        }
        (SendOp::WriteWithImm(_, imm), false, true) => (Opcode::WriteLastWithImm, Ext::Imm(ImmDt(*imm))),
        (_, true, false) => (Opcode::SendFirst, Ext::None),
        (_, false, false) => (Opcode::SendMiddle, Ext::None),
        (SendOp::SendWithImm(imm), true, true) => (Opcode::SendOnlyWithImm, Ext::Imm(ImmDt(*imm))),
        (SendOp::SendWithImm(imm), false, true) => (Opcode::SendLastWithImm, Ext::Imm(ImmDt(*imm))),
        (SendOp::SendWithInv(key), true, true) => (Opcode::SendOnlyWithInvalidate, Ext::Ieth(Ieth(*key))),
        (SendOp::SendWithInv(key), false, true) => (Opcode::SendLastWithInvalidate, Ext::Ieth(Ieth(*key))),
        (_, true, true) => (Opcode::SendOnly, Ext::None),
        (_, false, true) => (Opcode::SendLast, Ext::None),
    }
}
