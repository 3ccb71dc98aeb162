//! A queue pair: a requester and a responder that share a connection, a state and a protection domain.

use std::collections::VecDeque;
use std::time::Instant;

use super::counters::Counters;
use super::endpoint::Tuning;
use super::requester::{Requester, Step, Stop};
use super::responder::{Fault, Responder};
use super::wire::{Bth, Ext, HEADER_MAX, Header, Packet, Role};
use super::{PacketSink, SinkFull, TxMeta};
use crate::device::{DeviceCaps, DeviceError, PathMtu, PostError, QpCap, QpConnect, QpEvent, QpState, Qpn};
use crate::mem::{Iov, MemTable, Pd};
use crate::plan::Integrity;
use crate::wc::{Wc, WcStatus};
use crate::wr::{RecvWr, SendOp, SendWr, Sge, WrId};

/// What a queue pair borrows from its endpoint for a call.
#[derive(Debug)]
pub(super) struct Env<'e> {
    pub(super) now: Instant,
    pub(super) mem: &'e mut MemTable,
    pub(super) cq: &'e mut VecDeque<Wc>,
    pub(super) events: &'e mut VecDeque<QpEvent>,
    pub(super) read_budget: &'e mut ReadBudget,
    pub(super) counters: &'e mut Counters,
}

/// What emptying a queue pair takes.
#[derive(Debug)]
pub(super) struct Drain<'e> {
    pub(super) cq: &'e mut VecDeque<Wc>,
    pub(super) read_budget: &'e mut ReadBudget,
    pub(super) counters: &'e mut Counters,
}

impl Env<'_> {
    /// The parts that emptying a queue pair takes.
    pub(super) fn drain(&mut self) -> Drain<'_> {
        Drain { cq: self.cq, read_budget: self.read_budget, counters: self.counters }
    }
}

/// READ bytes that all queue pairs of an endpoint may have asked for at once, so that a burst of responses fits the
/// receive buffer of its socket.
#[derive(Debug)]
pub(super) struct ReadBudget {
    used: u64,
    most: u64,
    freed: bool,
}

impl ReadBudget {
    pub(super) fn new(most: u32) -> Self {
        Self { used: 0, most: u64::from(most), freed: false }
    }

    /// Whether `bytes` more may be asked for. One READ always may, whatever its size.
    #[inline]
    pub(super) fn has(&self, bytes: u32) -> bool {
        self.used == 0 || self.used + u64::from(bytes) <= self.most
    }

    #[inline]
    pub(super) fn take(&mut self, bytes: u32) {
        self.used += u64::from(bytes);
    }

    #[inline]
    pub(super) fn give_back(&mut self, bytes: u32) {
        self.used -= u64::from(bytes);
        self.freed = true;
    }

    /// Bytes asked for.
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    /// Whether something was given back since the last call.
    pub(super) fn take_freed(&mut self) -> bool {
        std::mem::take(&mut self.freed)
    }
}

/// Where the packets of a connection go, and what both halves need to form them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) qpn: Qpn,
    pub(super) pd: Pd,
    pub(super) meta: TxMeta,
    pub(super) dest_qpn: Qpn,
    /// Path MTU in bytes.
    pub(super) mtu: u32,
}

impl Path {
    /// Gives a packet to the sink.
    ///
    /// # Errors
    /// When the sink is full.
    #[inline]
    pub(super) fn push<S: PacketSink>(
        &self,
        sink: &mut S,
        counters: &mut Counters,
        bth: Bth,
        ext: Ext,
        payload: &[Iov<'_>],
    ) -> Result<(), SinkFull> {
        let mut header = [0; HEADER_MAX];
        let length = Header { bth, ext }.emit(&mut header);
        sink.push(&self.meta, &header[..length], payload)?;
        counters.tx_packets += 1;
        counters.tx_bytes += payload.iter().map(|iov| iov.len() as u64).sum::<u64>();
        Ok(())
    }
}

/// The send work request that makes a queue pair fail, and how it completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) wqe: u64,
    pub(super) status: WcStatus,
}

/// A queue pair.
#[derive(Debug)]
pub(super) struct Qp {
    pub(super) path: Path,
    state: QpState,
    integrity: Integrity,
    requester: Requester,
    responder: Responder,
    /// Whether a valid packet came.
    established: bool,
    /// The earliest entry that the endpoint's timers hold for it.
    pub(super) armed: Option<Instant>,
    /// Whether it is on the endpoint's list of those that may have something to send.
    pub(super) active: bool,
    /// Whether it is on the endpoint's list of those that wait for READ budget.
    pub(super) starved: bool,
}

impl Qp {
    /// A queue pair in the state INIT.
    pub(super) fn new(qpn: Qpn, pd: Pd, cap: &QpCap, tuning: &Tuning) -> Self {
        let nowhere = std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
        Self {
            path: Path {
                qpn,
                pd,
                meta: TxMeta { src: nowhere, dst: nowhere, tos: 0, peer_port: 0 },
                dest_qpn: Qpn(0),
                mtu: PathMtu::Mtu256.bytes(),
            },
            state: QpState::Init,
            integrity: cap.integrity,
            requester: Requester::new(cap, tuning),
            responder: Responder::new(cap),
            established: false,
            armed: None,
            active: false,
            starved: false,
        }
    }

    /// INIT to RTS.
    ///
    /// # Errors
    /// In any other state.
    pub(super) fn connect(&mut self, to: &QpConnect, tuning: &Tuning) -> Result<(), DeviceError> {
        if self.state != QpState::Init {
            return Err(DeviceError::Invalid("state of the queue pair"));
        }
        self.path.meta = TxMeta { src: to.local, dst: to.remote, tos: to.tos, peer_port: 0 };
        self.path.dest_qpn = to.dest_qpn;
        self.path.mtu = to.path_mtu.bytes();
        self.requester.connect(to, &self.path, tuning);
        self.responder.connect(to);
        self.state = QpState::Rts;
        Ok(())
    }

    pub(super) fn state(&self) -> QpState {
        self.state
    }

    /// Queues a send work request; in the error state it completes at once, as flushed.
    ///
    /// # Errors
    /// See [`PostError`].
    pub(super) fn post_send(
        &mut self,
        drain: &mut Drain<'_>,
        wr: &SendWr<'_>,
        caps: &DeviceCaps,
        mem: &MemTable,
    ) -> Result<(), PostError> {
        if self.integrity == Integrity::Off && matches!(wr.op, SendOp::RegMrIntegrity { .. }) {
            return Err(PostError::Unsupported);
        }
        match self.state {
            QpState::Rts => self.requester.post(wr, &self.path, caps.max_sge_rd as usize, mem),
            QpState::Error => {
                self.requester.post(wr, &self.path, caps.max_sge_rd as usize, mem)?;
                self.requester.flush(drain, &self.path, None);
                Ok(())
            }
            QpState::Reset | QpState::Init | QpState::Rtr => Err(PostError::BadState),
        }
    }

    /// Queues a receive; in the error state it completes at once, as flushed.
    ///
    /// # Errors
    /// See [`PostError`].
    pub(super) fn post_recv(&mut self, drain: &mut Drain<'_>, wr: &RecvWr<'_>) -> Result<(), PostError> {
        self.responder.post(wr)?;
        if self.state == QpState::Error {
            self.responder.flush(drain, &self.path, None);
        }
        Ok(())
    }

    /// Takes a packet that was checked to be of this connection.
    pub(super) fn handle_packet(&mut self, env: &mut Env<'_>, packet: &Packet<'_>) {
        match packet.bth.opcode.role() {
            Role::Request => {
                let expected = self.responder.expected();
                let handled = self.responder.handle_request(env, &self.path, packet);
                // Numbers of queue pairs follow each other and can be guessed: that the peer got our reply is shown by the PSN.
                if !self.established && self.responder.expected() != expected {
                    self.established = true;
                    env.events.push_back(QpEvent::CommEst(self.path.qpn));
                }
                if let Err(fault) = handled {
                    self.fail_by_peer(env, fault);
                }
            }
            Role::Response => {
                if let Err(failure) = self.requester.handle_response(env, &self.path, packet) {
                    self.fail(env, failure);
                }
            }
            Role::Congestion => {
                env.counters.rx_cnps += 1;
                self.requester.handle_congestion();
            }
            Role::Datagram | Role::Unknown => env.counters.drop_parse += 1,
        }
    }

    /// Lets timers expire.
    pub(super) fn handle_timeout(&mut self, env: &mut Env<'_>) {
        if self.state == QpState::Rts
            && let Err(failure) = self.requester.handle_timeout(env)
        {
            self.fail(env, failure);
        }
    }

    /// When [`Self::handle_timeout`] has something to do.
    #[inline]
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.requester.deadline()
    }

    /// Sends what may be sent, up to `budget` packets, which it counts down.
    ///
    /// # Errors
    /// When the sink is full.
    pub(super) fn transmit<S: PacketSink>(
        &mut self,
        env: &mut Env<'_>,
        sink: &mut S,
        budget: &mut u32,
    ) -> Result<Step, SinkFull> {
        // READ responses can go on for long: they leave half the turn to the requester.
        let mut share = budget.div_ceil(2);
        *budget -= share;
        while self.responder.has_answers() && share > 0 {
            if let Err(fault) = self.responder.transmit(env, &self.path, sink, &mut share)? {
                self.fail_by_peer(env, fault);
            }
        }
        *budget += share;
        let more = self.responder.has_answers();
        if self.state != QpState::Rts {
            return Ok(if more { Step::More } else { Step::Idle });
        }
        match self.requester.transmit(env, &self.path, sink, budget) {
            Ok(Step::Idle | Step::Starved) if more => Ok(Step::More),
            Ok(step) => Ok(step),
            Err(Stop::Full) => Err(SinkFull),
            Err(Stop::Failed(failure)) => {
                self.fail(env, failure);
                Ok(Step::More)
            }
        }
    }

    /// To the error state, by its user: nothing more is sent, but for the NAK that says why it failed before.
    pub(super) fn error(&mut self, drain: &mut Drain<'_>) {
        if self.state != QpState::Error {
            self.state = QpState::Error;
            self.responder.forget_answers();
        }
        self.requester.flush(drain, &self.path, None);
        self.responder.flush(drain, &self.path, None);
    }

    /// Takes the checksums of the payload that was posted last.
    #[inline]
    pub(super) fn note_sums(&mut self, sums: &[u32]) {
        self.requester.note_sums(&self.path, sums);
    }

    /// Points a posted work request to other memory with the same bytes.
    pub(super) fn replace_source(
        &mut self,
        mem: &mut MemTable,
        wr_id: WrId,
        from: Sge,
        to: Sge,
    ) -> Result<(), DeviceError> {
        self.requester.replace_source(mem, self.path.pd, wr_id, from, to)
    }

    /// Checks what must hold between any two calls; returns the READ bytes that it has asked for.
    #[cfg(test)]
    pub(super) fn check(&self) -> u64 {
        self.requester.check()
    }

    /// SGEs of a send work request.
    #[cfg(test)]
    pub(super) fn max_sge(&self) -> usize {
        self.requester.max_sge()
    }

    /// Checks that nothing is on its way.
    #[cfg(test)]
    pub(super) fn check_idle(&self) {
        self.requester.check_idle();
        assert!(!self.responder.has_answers());
    }

    /// A send work request failed.
    fn fail(&mut self, env: &mut Env<'_>, failure: Failure) {
        self.fail_by_itself(env);
        self.requester.flush(&mut env.drain(), &self.path, Some(failure));
        self.responder.flush(&mut env.drain(), &self.path, None);
    }

    /// A request of the peer was refused for good. The NAK still goes out.
    fn fail_by_peer(&mut self, env: &mut Env<'_>, fault: Fault) {
        self.fail_by_itself(env);
        self.requester.flush(&mut env.drain(), &self.path, None);
        self.responder.flush(&mut env.drain(), &self.path, fault.receive);
    }

    fn fail_by_itself(&mut self, env: &mut Env<'_>) {
        if self.state != QpState::Error {
            self.state = QpState::Error;
            env.counters.qp_failures += 1;
            env.events.push_back(QpEvent::Fatal(self.path.qpn));
        }
    }
}

impl PathMtu {
    /// Bytes.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Mtu256 => 256,
            Self::Mtu512 => 512,
            Self::Mtu1024 => 1024,
            Self::Mtu2048 => 2048,
            Self::Mtu4096 => 4096,
        }
    }
}
