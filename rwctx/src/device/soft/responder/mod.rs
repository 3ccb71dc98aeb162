//! The responder of a reliable connection: what the peer asks of us (IBTA 9.7.1, 9.7.4, 9.7.5).
//!
//! Requests are executed once, in the order of their PSNs; payload goes straight to its memory. Checks come in the order
//! of IBTA 9.7.4: sequence, opcode sequence, operation, resources, length, access. Anything but the expected PSN changes
//! no memory. Answers are queued and leave when the endpoint is polled, so a batch of requests costs one acknowledge.

mod answers;

use super::PacketSink;
use super::SinkFull;
use super::psn::Psn;
use super::qp::{Drain, Env, Path};
use super::queue::{MAX_MESSAGE, RecvQueue};
use super::wire::{Aeth, Bth, Ext, Ieth, ImmDt, NakCode, Opcode, Packet, Place, Reth, RnrTimer, Syndrome};
use crate::device::{PostError, QpCap, QpConnect, RemoteAccess};
use crate::mem::{Iov, PACKET_PIECES, Remote};
use crate::wc::{RecvExtra, Wc, WcOpcode, WcStatus};
use crate::wr::RecvWr;

use answers::{Answer, Answers, ReadJob};

const MSN_MASK: u32 = 0x00FF_FFFF;

/// The message that is being received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Message {
    /// None.
    Idle,
    /// A SEND of which so many bytes came.
    Send(u32),
    /// A WRITE of which so many bytes came.
    Write(Reth, u32),
}

/// A request that is refused for good: both queue pairs fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// What the peer is told.
    pub(super) nak: NakCode,
    /// How the receive that it hit completes.
    pub(super) receive: Option<WcStatus>,
}

/// What became of a request that is not refused for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Executed {
    /// It was executed and used so many PSNs.
    Done(u32),
    /// It needs a receive, and there is none.
    NotReady,
}

impl Fault {
    const INVALID: Self = Self { nak: NakCode::InvalidRequest, receive: None };
    const ACCESS: Self = Self { nak: NakCode::RemoteAccess, receive: None };

    fn of_receive(nak: NakCode, status: WcStatus) -> Self {
        Self { nak, receive: Some(status) }
    }
}

/// The responder half of a queue pair.
#[derive(Debug)]
pub(super) struct Responder {
    rq: RecvQueue,
    /// The next PSN to execute.
    expected: Psn,
    /// Messages executed, modulo 2^24.
    msn: u32,
    /// Whether the gap before `expected` was reported.
    nak_sent: bool,
    message: Message,
    answers: Answers,
    access: RemoteAccess,
    rnr_timer: RnrTimer,
}

impl Responder {
    pub(super) fn new(cap: &QpCap) -> Self {
        Self {
            rq: RecvQueue::new(cap.max_recv_wr, cap.max_recv_sge),
            expected: Psn::start(0),
            msn: 0,
            nak_sent: false,
            message: Message::Idle,
            answers: Answers::new(0),
            access: RemoteAccess::default(),
            rnr_timer: RnrTimer::new(0),
        }
    }

    /// Takes the parameters of the connection.
    pub(super) fn connect(&mut self, to: &QpConnect) {
        self.expected = Psn::start(to.rq_psn);
        self.answers = Answers::new(to.max_dest_rd_atomic);
        self.access = to.remote_access;
        self.rnr_timer = RnrTimer::new(to.min_rnr_timer);
    }

    /// Queues a receive.
    ///
    /// # Errors
    /// See [`PostError`].
    pub(super) fn post(&mut self, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.rq.push(wr)
    }

    /// The PSN of the next request to execute.
    #[inline]
    pub(super) fn expected(&self) -> Psn {
        self.expected
    }

    /// Whether there is something to send.
    #[inline]
    pub(super) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// Forgets what was to be sent.
    pub(super) fn forget_answers(&mut self) {
        self.answers.clear();
    }

    /// Takes a request.
    ///
    /// # Errors
    /// When the request is refused for good. The NAK is queued; the queue pair fails.
    pub(super) fn handle_request(
        &mut self,
        env: &mut Env<'_>,
        path: &Path,
        packet: &Packet<'_>,
    ) -> Result<(), Fault> {
        let psn = self.expected.near(packet.bth.psn);
        if psn > self.expected {
            env.counters.out_of_sequence += 1;
            if !self.nak_sent {
                self.nak_sent = true;
                self.answers.refuse(self.expected, Syndrome::Nak(NakCode::PsnSequence));
            }
            return Ok(());
        }
        if psn < self.expected {
            self.handle_duplicate(env, path, psn, packet);
            return Ok(());
        }
        self.nak_sent = false;
        match self.execute(env, path, packet) {
            Ok(Executed::Done(packets)) => {
                self.expected = psn.after(packets);
                if packet.bth.ack_req && packet.bth.opcode != Opcode::ReadRequest {
                    self.answers.acknowledge(psn);
                }
                Ok(())
            }
            Ok(Executed::NotReady) => {
                // What follows this packet is refused with it; a gap need not be reported.
                self.nak_sent = true;
                self.answers.refuse(psn, Syndrome::RnrNak(self.rnr_timer));
                Ok(())
            }
            Err(fault) => {
                self.answers.refuse(psn, Syndrome::Nak(fault.nak));
                Err(fault)
            }
        }
    }

    /// Sends answers, up to `budget` packets, which it counts down.
    ///
    /// # Errors
    /// When the sink is full.
    ///
    /// The inner result is a fault when memory that a READ reads from was taken away meanwhile. The NAK is queued then.
    pub(super) fn transmit<S: PacketSink>(
        &mut self,
        env: &mut Env<'_>,
        path: &Path,
        sink: &mut S,
        budget: &mut u32,
    ) -> Result<Result<(), Fault>, SinkFull> {
        while *budget > 0 {
            let msn = self.msn;
            match self.answers.front_mut() {
                None => break,
                Some(&mut Answer::Acknowledge { psn, syndrome }) => {
                    let bth = Bth::new(Opcode::Acknowledge, path.dest_qpn, psn.wire(), 0);
                    path.push(sink, env.counters, bth, Ext::Aeth(Aeth { syndrome, msn }), &[])?;
                    let counter = match syndrome {
                        Syndrome::Ack(_) | Syndrome::Reserved(_) => &mut env.counters.tx_acks,
                        Syndrome::RnrNak(_) => &mut env.counters.tx_rnr_naks,
                        Syndrome::Nak(NakCode::PsnSequence) => &mut env.counters.tx_sequence_naks,
                        Syndrome::Nak(_) => &mut env.counters.tx_fatal_naks,
                    };
                    *counter += 1;
                    self.answers.pop();
                    *budget -= 1;
                }
                Some(Answer::Read(job)) => {
                    let Some(more) = send_response(env, path, sink, job)? else {
                        // The region was invalidated or deregistered. A replay may just be late; the READ itself
                        // must not stay without an answer.
                        let (psn, replay) = (job.next, job.replay);
                        if replay {
                            self.answers.pop();
                            continue;
                        }
                        self.answers.clear();
                        self.answers.refuse(psn, Syndrome::Nak(NakCode::RemoteAccess));
                        return Ok(Err(Fault::ACCESS));
                    };
                    *budget -= 1;
                    if !more {
                        self.answers.pop();
                    }
                }
            }
        }
        Ok(Ok(()))
    }

    /// Completes all receives as flushed; `first` says how the oldest one ends.
    pub(super) fn flush(&mut self, drain: &mut Drain<'_>, path: &Path, mut first: Option<WcStatus>) {
        self.message = Message::Idle;
        while let Some(wr_id) = self.rq.pop() {
            let status = first.take().unwrap_or_else(|| {
                drain.counters.flushes += 1;
                WcStatus::WrFlushErr
            });
            drain.cq.push_back(Wc {
                wr_id,
                qpn: path.qpn,
                status,
                opcode: WcOpcode::Recv,
                byte_len: 0,
                extra: RecvExtra::None,
            });
        }
    }

    /// A request that was executed before, or is said to be.
    fn handle_duplicate(&mut self, env: &mut Env<'_>, path: &Path, psn: Psn, packet: &Packet<'_>) {
        env.counters.duplicates += 1;
        if let (Opcode::ReadRequest, Ext::Reth(reth)) = (packet.bth.opcode, packet.ext) {
            if self.access.read && self.answers.replay(psn, reth, path.mtu) {
                env.counters.read_replays += 1;
            }
            return;
        }
        self.answers.acknowledge(self.expected.before());
    }

    #[inline]
    fn execute(&mut self, env: &mut Env<'_>, path: &Path, packet: &Packet<'_>) -> Result<Executed, Fault> {
        let opcode = packet.bth.opcode;
        if opcode.is_send() {
            self.execute_send(env, path, packet)
        } else if opcode.is_write() {
            self.execute_write(env, path, packet)
        } else if let (Opcode::ReadRequest, Ext::Reth(reth)) = (opcode, packet.ext) {
            self.execute_read(env, path, reth)
        } else {
            // Atomics, and operations that we do not know.
            Err(Fault::INVALID)
        }
    }

    fn execute_send(
        &mut self,
        env: &mut Env<'_>,
        path: &Path,
        packet: &Packet<'_>,
    ) -> Result<Executed, Fault> {
        let place = packet.bth.opcode.place();
        let received = match (place, self.message) {
            (Place::First | Place::Only, Message::Idle) => 0,
            (Place::Middle | Place::Last, Message::Send(received)) => received,
            _ => return Err(Fault::INVALID),
        };
        let Some(receive) = self.rq.front() else { return Ok(Executed::NotReady) };
        check_payload(place, packet.payload.len(), path.mtu)?;
        let total = u32::try_from(packet.payload.len())
            .ok()
            .and_then(|bytes| received.checked_add(bytes))
            .filter(|&total| total <= receive.room)
            .ok_or_else(|| Fault::of_receive(NakCode::InvalidRequest, WcStatus::LocLenErr))?;
        let extra = match packet.ext {
            Ext::Imm(ImmDt(imm)) => RecvExtra::Imm(imm),
            Ext::Ieth(Ieth(key)) => {
                env.mem.invalidatable(path.pd, key).map_err(|_| Fault::ACCESS)?;
                RecvExtra::Invalidated(key)
            }
            _ => RecvExtra::None,
        };
        env.mem
            .scatter(path.pd, receive.sges, received, packet.payload)
            .map_err(|_| Fault::of_receive(NakCode::RemoteOperational, WcStatus::LocProtErr))?;
        if matches!(place, Place::First | Place::Middle) {
            self.message = Message::Send(total);
            return Ok(Executed::Done(1));
        }
        if let RecvExtra::Invalidated(key) = extra {
            // Nothing is granted through a queue pair without remote access: nor can it be taken back.
            if self.access == RemoteAccess::default() {
                return Err(Fault::ACCESS);
            }
            env.mem.invalidate(path.pd, key).map_err(|_| Fault::ACCESS)?;
        }
        self.finish_message();
        self.complete_receive(env, path, WcOpcode::Recv, total, extra);
        Ok(Executed::Done(1))
    }

    fn execute_write(
        &mut self,
        env: &mut Env<'_>,
        path: &Path,
        packet: &Packet<'_>,
    ) -> Result<Executed, Fault> {
        let place = packet.bth.opcode.place();
        let (reth, received) = match (place, self.message, packet.ext) {
            (Place::First | Place::Only, Message::Idle, Ext::Reth(reth) | Ext::RethImm(reth, _)) => (reth, 0),
            (Place::Middle | Place::Last, Message::Write(reth, received), _) => (reth, received),
            _ => return Err(Fault::INVALID),
        };
        if !self.access.write || reth.dma_len > MAX_MESSAGE {
            return Err(Fault::INVALID);
        }
        let extra = match packet.ext {
            Ext::Imm(ImmDt(imm)) | Ext::RethImm(_, ImmDt(imm)) => RecvExtra::Imm(imm),
            _ => RecvExtra::None,
        };
        if extra != RecvExtra::None && self.rq.front().is_none() {
            return Ok(Executed::NotReady);
        }
        check_payload(place, packet.payload.len(), path.mtu)?;
        let bytes = u32::try_from(packet.payload.len()).map_err(|_| Fault::INVALID)?;
        let left = (reth.dma_len - received).checked_sub(bytes).ok_or(Fault::INVALID)?;
        let ends = matches!(place, Place::Last | Place::Only);
        if ends != (left == 0) {
            return Err(Fault::INVALID);
        }
        if received == 0 {
            env.mem
                .check_remote(path.pd, reth.rkey, reth.va, reth.dma_len, Remote::Write)
                .map_err(|_| Fault::ACCESS)?;
        }
        if bytes > 0 {
            // The whole range was checked by the first packet, so the sum does not pass the end of the address space.
            let addr = reth.va.wrapping_add(u64::from(received));
            env.mem.write_remote(path.pd, reth.rkey, addr, packet.payload).map_err(|_| Fault::ACCESS)?;
        }
        if !ends {
            self.message = Message::Write(reth, received + bytes);
            return Ok(Executed::Done(1));
        }
        self.finish_message();
        if extra != RecvExtra::None {
            self.complete_receive(env, path, WcOpcode::RecvRdmaWithImm, reth.dma_len, extra);
        }
        Ok(Executed::Done(1))
    }

    fn execute_read(&mut self, env: &mut Env<'_>, path: &Path, reth: Reth) -> Result<Executed, Fault> {
        let allowed = self.message == Message::Idle
            && self.access.read
            && reth.dma_len <= MAX_MESSAGE
            && self.answers.has_room_for_read();
        if !allowed {
            return Err(Fault::INVALID);
        }
        env.mem
            .check_remote(path.pd, reth.rkey, reth.va, reth.dma_len, Remote::Read)
            .map_err(|_| Fault::ACCESS)?;
        let packets = reth.dma_len.div_ceil(path.mtu).max(1);
        self.finish_message();
        self.answers.serve(self.expected, packets, reth, self.msn);
        Ok(Executed::Done(packets))
    }

    #[inline]
    fn finish_message(&mut self) {
        self.message = Message::Idle;
        self.msn = (self.msn + 1) & MSN_MASK;
    }

    #[inline]
    fn complete_receive(
        &mut self,
        env: &mut Env<'_>,
        path: &Path,
        opcode: WcOpcode,
        byte_len: u32,
        extra: RecvExtra,
    ) {
        let wr_id = self.rq.pop().expect("looked at before");
        env.cq.push_back(Wc { wr_id, qpn: path.qpn, status: WcStatus::Success, opcode, byte_len, extra });
    }
}

/// FIRST and MIDDLE carry exactly the path MTU, LAST at least one byte, and none more than the path MTU (IBTA 9.7.4.1.6).
#[inline]
fn check_payload(place: Place, bytes: usize, mtu: u32) -> Result<(), Fault> {
    let mtu = mtu as usize;
    let fits = match place {
        Place::First | Place::Middle => bytes == mtu,
        Place::Last => (1..=mtu).contains(&bytes),
        Place::Only => bytes <= mtu,
    };
    if fits { Ok(()) } else { Err(Fault::INVALID) }
}

/// Sends the next response of `job` and returns whether more follow; `None` when its memory is gone.
fn send_response<S: PacketSink>(
    env: &mut Env<'_>,
    path: &Path,
    sink: &mut S,
    job: &mut ReadJob,
) -> Result<Option<bool>, SinkFull> {
    let offset = job.next.since(job.of.first) * path.mtu;
    let length = (job.end_offset - offset).min(path.mtu) as usize;
    let (mut payload, mut pieces, mut bytes) = ([Iov::EMPTY; PACKET_PIECES], 0, 0);
    while bytes < length {
        let addr = job.of.reth.va.wrapping_add(u64::from(offset)).wrapping_add(bytes as u64);
        let (Ok(piece), Some(place)) =
            (env.mem.remote(path.pd, job.of.reth.rkey, addr, length - bytes), payload.get_mut(pieces))
        else {
            return Ok(None);
        };
        *place = piece;
        pieces += 1;
        bytes += piece.len();
    }
    let first = job.next == job.start;
    let last = job.next.after(1) == job.end;
    let opcode = match (first, last) {
        (true, true) => Opcode::ReadResponseOnly,
        (true, false) => Opcode::ReadResponseFirst,
        (false, true) => Opcode::ReadResponseLast,
        (false, false) => Opcode::ReadResponseMiddle,
    };
    let ext = if opcode == Opcode::ReadResponseMiddle {
        Ext::None
    } else {
        Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn: job.of.msn })
    };
    let bth = Bth::new(opcode, path.dest_qpn, job.next.wire(), length);
    path.push(sink, env.counters, bth, ext, &payload[..pieces])?;
    job.next = job.next.after(1);
    Ok(Some(!last))
}
