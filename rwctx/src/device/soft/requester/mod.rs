//! The requester of a reliable connection: what we ask of the peer, and what the peer answers (IBTA 9.7.2 to 9.7.8).
//!
//! Work requests get their PSNs when they are posted, so a packet that is sent again is the same packet, but for its
//! AckReq bit, which asks for an answer where one is needed at the time. Loss is repaired by going back: a sequence NAK
//! or an expired timer moves the send position, nothing is kept of packets. READ responses are placed as they come.
//! It never reads a clock, and forms packets in `transmit` only.

mod reads;
mod transmit;

use std::time::{Duration, Instant};

use super::endpoint::Tuning;
use super::psn::Psn;
use super::qp::{Drain, Env, Failure, Path};
use super::queue::{SendQueue, message_length};
use super::window::Window;
use super::wire::{Ext, NakCode, Opcode, Packet, RnrTimer, Syndrome};
use crate::device::{DeviceError, PostError, QpCap, QpConnect, SUM_PIECE};
use crate::mem::{Lkey, MemTable, Pd};
use crate::remote::Rkey;
use crate::wc::WcStatus;
use crate::wr::{SendOp, SendWr, Sge, Signal, WrId};

use reads::{CHUNK_PACKETS, Came, ReadRing};
pub(super) use transmit::{Step, Stop};

/// Upper bound of the retransmission timer when the connection names none.
const ACK_TIMEOUT_DEFAULT: Duration = Duration::from_secs(2);

/// The value of a retry counter that means the largest.
const RETRY_MOST: u8 = 7;

/// Doublings of the retransmission timer after which only its upper bound counts.
const BACKOFF_MOST: u32 = 16;

/// The requester half of a queue pair.
#[derive(Debug)]
pub(super) struct Requester {
    sq: SendQueue,
    reads: ReadRing,
    /// Whether the connection allows any READ.
    may_read: bool,
    window: Window,

    /// PSN of the next work request to be posted.
    post_psn: Psn,
    /// Request packets of all posted work requests.
    post_request: u64,
    /// Next packet to send, and the work request that it is of.
    next: Psn,
    cursor: u64,
    /// One past the highest PSN that was ever used.
    sent: Psn,
    /// The peer executed everything before this.
    acked: Psn,
    /// READs have all their responses up to this.
    read_done: Psn,
    /// The first PSN that has no answer, and how many request packets come before it.
    una: Psn,
    floor: u64,
    /// Packets sent since the last that asked for an answer.
    since_ack_req: u32,
    /// The work request at `cursor` can't be sent; it fails when all before it are complete.
    blocked: Option<WcStatus>,

    /// READ bytes asked for and not complete, their limit now, and its bounds.
    read_bytes: u32,
    read_limit: u32,
    read_limit_most: u32,
    /// Responses per READ request.
    chunk_packets: u32,

    /// Paused by an RNR NAK until then.
    rnr_until: Option<Instant>,
    rnr_tries: u8,
    rnr_retry: u8,
    /// When the peer's silence counts as loss.
    deadline: Option<Instant>,
    ack_timeout: Duration,
    /// Timeouts since the last progress, and how many of them waited the full `ack_timeout`.
    backoff: u32,
    full_timeouts: u8,
    retries: u8,
    /// The last sequence NAK that was acted on.
    recovery: Option<(Psn, Instant)>,
    /// Loss before this PSN was answered with a smaller window already.
    recover_until: Psn,
}

impl Requester {
    pub(super) fn new(cap: &QpCap, tuning: &Tuning) -> Self {
        let start = Psn::start(0);
        Self {
            sq: SendQueue::new(cap.max_send_wr, cap.max_send_sge),
            reads: ReadRing::new(0),
            may_read: true,
            window: Window::new(tuning),
            post_psn: start,
            post_request: 0,
            next: start,
            cursor: 0,
            sent: start,
            acked: start,
            read_done: start,
            una: start,
            floor: 0,
            since_ack_req: 0,
            blocked: None,
            read_bytes: 0,
            read_limit: tuning.read_bytes_per_qp,
            read_limit_most: tuning.read_bytes_per_qp,
            chunk_packets: CHUNK_PACKETS,
            rnr_until: None,
            rnr_tries: 0,
            rnr_retry: RETRY_MOST,
            deadline: None,
            ack_timeout: ACK_TIMEOUT_DEFAULT,
            backoff: 0,
            full_timeouts: 0,
            retries: tuning.transport_retries,
            recovery: None,
            recover_until: start,
        }
    }

    /// Takes the parameters of the connection; nothing was posted yet.
    pub(super) fn connect(&mut self, to: &QpConnect, path: &Path, tuning: &Tuning) {
        let start = Psn::start(to.sq_psn);
        (self.post_psn, self.next, self.sent, self.acked) = (start, start, start, start);
        (self.read_done, self.una, self.recover_until) = (start, start, start);
        self.reads = ReadRing::new(to.max_rd_atomic);
        self.may_read = to.max_rd_atomic > 0;
        self.chunk_packets = (tuning.read_chunk / path.mtu).clamp(1, CHUNK_PACKETS);
        self.rnr_retry = to.rnr_retry;
        if !to.ack_timeout.is_zero() {
            self.ack_timeout = to.ack_timeout.max(tuning.rto_min);
        }
        if to.retry_cnt < RETRY_MOST {
            self.retries = to.retry_cnt;
        }
    }

    /// Queues a work request.
    ///
    /// # Errors
    /// See [`PostError`].
    pub(super) fn post(
        &mut self,
        wr: &SendWr<'_>,
        path: &Path,
        max_sge_rd: usize,
        mem: &MemTable,
    ) -> Result<(), PostError> {
        let most = match wr.op {
            SendOp::LocalInv(_) | SendOp::RegMrIntegrity { .. } => 0,
            // What its region has room for is seen when it is executed.
            SendOp::RegMr { .. } => usize::MAX,
            // The key that goes is that of the one sink.
            SendOp::ReadWithInv(_) => 1,
            SendOp::Read(_) => self.sq.max_sge().min(max_sge_rd),
            _ => self.sq.max_sge(),
        };
        let length = message_length(wr.sges, most)?;
        if self.sq.is_full() {
            return Err(PostError::Full);
        }
        let packets = match wr.op {
            SendOp::LocalInv(_) | SendOp::RegMr { .. } | SendOp::RegMrIntegrity { .. } => 0,
            SendOp::Read(_) | SendOp::ReadWithInv(_) if !self.may_read => return Err(PostError::Unsupported),
            // Path MTUs are powers of two.
            _ => ((length + (path.mtu - 1)) >> path.mtu.trailing_zeros()).max(1),
        };
        let requests = match wr.op {
            SendOp::Read(_) | SendOp::ReadWithInv(_) => packets.div_ceil(self.chunk_packets),
            _ => packets,
        };
        let signed = matches!(wr.sges, [sge] if mem.is_integrity(sge.lkey));
        self.sq.push(wr, length, self.post_psn, packets, self.post_request, signed);
        self.post_psn = self.post_psn.after(packets);
        self.post_request += u64::from(requests);
        Ok(())
    }

    /// Keeps the checksums of what was posted last, if each is that of one packet.
    #[inline]
    pub(super) fn note_sums(&mut self, path: &Path, sums: &[u32]) {
        if path.mtu == SUM_PIECE {
            self.sq.note_sums(sums);
        }
    }

    /// What was posted under `wr_id` takes from `to` what it took from `from`.
    ///
    /// # Errors
    /// See [`Device::replace_source`](crate::device::Device::replace_source).
    pub(super) fn replace_source(
        &mut self,
        mem: &mut MemTable,
        pd: Pd,
        wr_id: WrId,
        from: Sge,
        to: Sge,
    ) -> Result<(), DeviceError> {
        let in_registration = |sge: &Sge| mem.replace_registered_source(pd, sge.lkey, &from, &to);
        self.sq.replace_source(wr_id, (from, to), in_registration)
    }

    /// Takes a packet that answers a request.
    ///
    /// # Errors
    /// When the queue pair fails.
    pub(super) fn handle_response(
        &mut self,
        env: &mut Env<'_>,
        path: &Path,
        packet: &Packet<'_>,
    ) -> Result<(), Failure> {
        match (packet.bth.opcode, packet.ext) {
            (Opcode::Acknowledge, Ext::Aeth(aeth)) => {
                self.handle_acknowledge(env, path, packet.bth.psn, aeth.syndrome)
            }
            (opcode, _) if opcode.is_read_response() => self.handle_read_response(env, path, packet),
            // Atomic acknowledges: we never ask for one.
            _ => {
                env.counters.drop_response += 1;
                Ok(())
            }
        }
    }

    /// The network asks for less; it is heard once a round trip.
    pub(super) fn handle_congestion(&mut self) {
        if self.una >= self.recover_until {
            self.recover_until = self.sent;
            self.window.on_loss();
        }
    }

    /// Lets timers expire.
    ///
    /// # Errors
    /// When the queue pair fails for lack of answers.
    pub(super) fn handle_timeout(&mut self, env: &mut Env<'_>) -> Result<(), Failure> {
        if self.rnr_until.is_some_and(|at| at <= env.now) {
            self.rnr_until = None;
            self.arm(env.now);
            return Ok(());
        }
        if self.deadline.is_none_or(|at| at > env.now) {
            return Ok(());
        }
        if self.una >= self.sent {
            self.deadline = None;
            return Ok(());
        }
        env.counters.timeouts += 1;
        // Only silence of the full length counts as one of the peer's retries; the quick tries before are ours.
        if self.rto() >= self.ack_timeout {
            self.full_timeouts += 1;
            if self.full_timeouts > self.retries {
                return Err(Failure { wqe: self.sq.head(), status: WcStatus::RetryExcErr });
            }
        }
        self.backoff = (self.backoff + 1).min(BACKOFF_MOST);
        self.window.on_timeout();
        self.reads.forget_streams();
        self.go_back(self.una);
        self.arm(env.now);
        Ok(())
    }

    /// When [`Self::handle_timeout`] has something to do.
    #[inline]
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.rnr_until.or(self.deadline)
    }

    /// Completes everything: `failure` as it says, all else as flushed. The queue pair is in the error state then.
    pub(super) fn flush(&mut self, drain: &mut Drain<'_>, path: &Path, failure: Option<Failure>) {
        while !self.sq.is_empty() {
            let number = self.sq.head();
            let Some(wqe) = self.sq.pop() else { break };
            let status = match failure {
                Some(failure) if failure.wqe == number => failure.status,
                _ => {
                    drain.counters.flushes += 1;
                    WcStatus::WrFlushErr
                }
            };
            drain.cq.push_back(wqe.completion(path.qpn, status));
        }
        while let Some(chunk) = self.reads.front() {
            drain.read_budget.give_back(chunk.bytes);
            self.reads.pop();
        }
        self.read_bytes = 0;
        (self.cursor, self.next, self.sent) = (self.sq.head(), self.post_psn, self.post_psn);
        (self.una, self.acked, self.read_done) = (self.post_psn, self.post_psn, self.post_psn);
        self.floor = self.post_request;
        (self.blocked, self.rnr_until, self.deadline) = (None, None, None);
    }

    fn handle_acknowledge(
        &mut self,
        env: &mut Env<'_>,
        path: &Path,
        psn: u32,
        syndrome: Syndrome,
    ) -> Result<(), Failure> {
        let psn = self.una.near(psn);
        match syndrome {
            Syndrome::Ack(_) => {
                env.counters.rx_acks += 1;
                if psn >= self.sent {
                    env.counters.drop_response += 1;
                    return Ok(());
                }
                self.executed(env, path, psn.after(1))
            }
            Syndrome::RnrNak(timer) => {
                env.counters.rx_rnr_naks += 1;
                self.handle_rnr(env, path, psn, timer)
            }
            Syndrome::Nak(NakCode::PsnSequence) => {
                env.counters.rx_sequence_naks += 1;
                self.handle_sequence_nak(env, path, psn)
            }
            Syndrome::Nak(code) => {
                env.counters.rx_fatal_naks += 1;
                if psn < self.una || psn >= self.sent {
                    env.counters.drop_response += 1;
                    return Ok(());
                }
                self.executed(env, path, psn)?;
                let status = match code {
                    NakCode::InvalidRequest => WcStatus::RemInvReqErr,
                    NakCode::RemoteAccess => WcStatus::RemAccessErr,
                    _ => WcStatus::RemOpErr,
                };
                Err(Failure { wqe: self.sq.find(psn).unwrap_or_else(|| self.sq.head()), status })
            }
            Syndrome::Reserved(_) => {
                env.counters.drop_response += 1;
                Ok(())
            }
        }
    }

    fn handle_sequence_nak(&mut self, env: &mut Env<'_>, path: &Path, psn: Psn) -> Result<(), Failure> {
        // While paused, packets that were on their way when the peer ran out of receives still cause one.
        if psn < self.una || psn > self.sent || self.rnr_until.is_some() {
            return Ok(());
        }
        self.executed(env, path, psn)?;
        if psn == self.sent {
            return Ok(());
        }
        let repeated = self.recovery.is_some_and(|(at, since)| {
            at == psn && env.now.saturating_duration_since(since) < self.window.round_trip()
        });
        if repeated {
            return Ok(());
        }
        self.recovery = Some((psn, env.now));
        if psn >= self.recover_until {
            self.recover_until = self.sent;
            self.window.on_loss();
        }
        self.go_back(psn);
        Ok(())
    }

    fn handle_rnr(
        &mut self,
        env: &mut Env<'_>,
        path: &Path,
        psn: Psn,
        timer: RnrTimer,
    ) -> Result<(), Failure> {
        // rxe reports trouble with a READ response as RNR of the whole READ, some of which may have come.
        let of_read = self.reads.find(psn).is_some();
        if psn >= self.sent || (psn < self.una && !of_read) || self.rnr_until.is_some() {
            return Ok(());
        }
        self.executed(env, path, psn)?;
        if self.rnr_retry != RETRY_MOST && self.rnr_tries >= self.rnr_retry {
            let wqe = self.sq.find(psn.max(self.una)).unwrap_or_else(|| self.sq.head());
            return Err(Failure { wqe, status: WcStatus::RnrRetryExcErr });
        }
        self.rnr_tries = self.rnr_tries.saturating_add(1);
        self.rnr_until = Some(env.now + timer.delay());
        self.deadline = None;
        self.go_back(psn);
        Ok(())
    }

    fn handle_read_response(
        &mut self,
        env: &mut Env<'_>,
        path: &Path,
        packet: &Packet<'_>,
    ) -> Result<(), Failure> {
        let psn = self.una.near(packet.bth.psn);
        let Some(position) = self.reads.find(psn) else {
            let counter = if psn < self.una {
                &mut env.counters.read_duplicates
            } else {
                &mut env.counters.drop_response
            };
            *counter += 1;
            return Ok(());
        };
        let came = self.reads.came(position, psn);
        if came == Came::New {
            let chunk = self.reads.at(position);
            let skip = psn.since(chunk.first) * path.mtu;
            let last = psn.after(1) == chunk.end();
            let bytes = if last { chunk.bytes - skip } else { path.mtu };
            // A stream that was asked for again may begin with MIDDLE or LAST (rxe) or with FIRST or ONLY (IBTA).
            let fits = match packet.bth.opcode {
                Opcode::ReadResponseLast | Opcode::ReadResponseOnly => last,
                _ => !last,
            };
            let wqe = chunk.wqe;
            if !fits || packet.payload.len() != bytes as usize {
                return Err(Failure { wqe, status: WcStatus::BadRespErr });
            }
            let offset = chunk.offset + skip;
            let sges = self.sq.sges(wqe);
            let placed = match self.registration(wqe) {
                None => env.mem.scatter(path.pd, sges, offset, packet.payload),
                Some(lkey) => env.mem.scatter_integrity(path.pd, lkey, offset, packet.payload),
            };
            if placed.is_err() {
                return Err(Failure { wqe, status: WcStatus::LocProtErr });
            }
            // It was executed in its turn, so everything before it was.
            self.acked = self.acked.max(chunk.first);
            self.window.on_answer(psn, env.now);
        } else {
            env.counters.read_duplicates += 1;
        }
        let lost = self.reads.note(position, psn);
        self.on_read_loss(lost, path);
        if came == Came::New {
            let wqe = self.reads.at(position).wqe;
            if let Some(lkey) = self.registration(wqe) {
                let upto = self.reads.came_upto(position, path.mtu);
                env.mem
                    .sign_incoming(path.pd, lkey, upto)
                    .map_err(|_| Failure { wqe, status: WcStatus::LocProtErr })?;
            }
            self.on_progress(env.now);
            self.retire(env, path)?;
        }
        Ok(())
    }

    /// The key of the integrity registration that is the memory of a work request, if it is one.
    #[inline]
    fn registration(&self, wqe: u64) -> Option<Lkey> {
        self.sq.get(wqe).filter(|wqe| wqe.signed).map(|_| self.sq.sges(wqe)[0].lkey)
    }

    /// The peer executed everything before `upto`.
    fn executed(&mut self, env: &mut Env<'_>, path: &Path, upto: Psn) -> Result<(), Failure> {
        if upto <= self.acked {
            return Ok(());
        }
        self.acked = upto;
        self.window.on_answer(upto.before(), env.now);
        let lost = self.reads.note_executed(upto);
        self.on_read_loss(lost, path);
        self.on_progress(env.now);
        self.retire(env, path)
    }

    fn on_read_loss(&mut self, chunks: u32, path: &Path) {
        if chunks > 0 {
            self.window.forget_sample();
            let least = self.chunk_packets * path.mtu;
            self.read_limit = (self.read_limit / 2).max(least).min(self.read_limit_most);
        }
    }

    fn on_progress(&mut self, now: Instant) {
        (self.backoff, self.full_timeouts, self.rnr_tries) = (0, 0, 0);
        if self.rnr_until.is_none() {
            self.arm(now);
        }
    }

    /// Restarts the retransmission timer, or stops it when nothing is unanswered.
    #[inline]
    fn arm(&mut self, now: Instant) {
        self.deadline = (self.una < self.sent).then(|| now + self.rto());
    }

    fn rto(&self) -> Duration {
        self.window.timeout().saturating_mul(1 << self.backoff).min(self.ack_timeout)
    }

    /// Completes what is complete, in order, and moves the positions behind it.
    fn retire(&mut self, env: &mut Env<'_>, path: &Path) -> Result<(), Failure> {
        while let Some(chunk) = self.reads.front()
            && chunk.is_complete()
        {
            self.read_done = chunk.end();
            self.acked = self.acked.max(self.read_done);
            self.read_bytes -= chunk.bytes;
            self.read_limit = (self.read_limit + path.mtu).min(self.read_limit_most);
            env.read_budget.give_back(chunk.bytes);
            self.reads.pop();
        }
        while let Some(wqe) = self.sq.get(self.sq.head()) {
            let complete = if wqe.is_local() {
                wqe.done
            } else if wqe.is_read() {
                self.read_done >= wqe.end()
            } else {
                self.acked >= wqe.end()
            };
            if !complete {
                break;
            }
            if wqe.signal == Signal::Signaled {
                env.cq.push_back(wqe.completion(path.qpn, WcStatus::Success));
            }
            if let (SendOp::ReadWithInv(_), [sink]) = (wqe.op, self.sq.sges(self.sq.head())) {
                // It was valid when it was filled; if the peer invalidated it since, it is what it is to be.
                let _ = env.mem.invalidate(path.pd, Rkey(sink.lkey.0));
            }
            self.sq.pop();
        }
        self.settle(env.now);
        if let Some(status) = self.blocked
            && self.cursor == self.sq.head()
        {
            return Err(Failure { wqe: self.cursor, status });
        }
        Ok(())
    }

    /// Finds the first unanswered PSN again and keeps the send position from lagging behind it.
    fn settle(&mut self, now: Instant) {
        let head = self.sq.head();
        let (una, resume, floor) = match self.sq.get(head) {
            None => (self.post_psn, self.post_psn, self.post_request),
            Some(wqe) if wqe.is_read() => {
                let una = match self.reads.front() {
                    Some(chunk) if chunk.wqe == head => chunk.first_missing(),
                    _ => self.read_done.max(wqe.first),
                };
                let chunks = una.since(wqe.first) / self.chunk_packets;
                let resume = wqe.first.after(chunks * self.chunk_packets);
                (una, resume, wqe.first_request + u64::from(chunks))
            }
            Some(wqe) => {
                let una = self.acked.clamp(wqe.first, wqe.end());
                (una, una, wqe.first_request + u64::from(una.since(wqe.first)))
            }
        };
        let moved = u32::try_from(floor - self.floor).unwrap_or(u32::MAX);
        self.window.on_progress(moved);
        (self.una, self.floor) = (una, floor);
        if self.cursor < head {
            (self.cursor, self.next) = (head, resume);
        } else if self.next < resume {
            self.next = resume;
        }
        if self.una >= self.sent && self.deadline.is_some() {
            self.arm(now);
        }
    }

    /// Sends again from `to` on, if that was sent.
    fn go_back(&mut self, to: Psn) {
        let to = to.max(self.una);
        if to >= self.sent {
            return;
        }
        let Some(number) = self.sq.find(to) else { return };
        let Some(wqe) = self.sq.get(number) else { return };
        self.cursor = number;
        self.next = to;
        if wqe.is_read() {
            let into = to.since(wqe.first);
            self.next = wqe.first.after(into - into % self.chunk_packets);
        }
        self.blocked = None;
        self.since_ack_req = 0;
        self.window.forget_sample();
        self.reads.restart(self.next);
    }

    /// Checks what must hold between any two calls; returns the READ bytes asked for.
    #[cfg(test)]
    pub(super) fn check(&self) -> u64 {
        assert!(self.una <= self.sent && self.sent <= self.post_psn && self.acked <= self.sent, "{self:#?}");
        assert!(self.next <= self.sent && self.cursor >= self.sq.head(), "{self:#?}");
        assert!(self.read_done <= self.acked, "{self:#?}");
        if let Some(wqe) = self.sq.get(self.cursor) {
            assert!(wqe.first <= self.next && (self.next < wqe.end() || wqe.is_local()), "{self:#?}");
        } else {
            assert!(self.next == self.post_psn, "{self:#?}");
        }
        let chunks = self.reads.iter().map(|chunk| chunk.bytes).sum::<u32>();
        assert_eq!(chunks, self.read_bytes);
        if self.una < self.sent {
            assert!(self.deadline.is_some() != self.rnr_until.is_some(), "someone must wake it: {self:#?}");
        }
        u64::from(chunks)
    }

    /// SGEs of a work request.
    #[cfg(test)]
    pub(super) fn max_sge(&self) -> usize {
        self.sq.max_sge()
    }

    /// Checks that nothing is on its way.
    #[cfg(test)]
    pub(super) fn check_idle(&self) {
        assert!(self.sq.is_empty() && self.reads.is_empty(), "{self:#?}");
        assert_eq!((self.deadline, self.rnr_until), (None, None));
        assert_eq!(self.floor, self.post_request);
    }
}
