//! The RC endpoint of one reactor: its memory, queue pairs, completions and timers, without sockets or clocks.
//!
//! Method kinds: `handle_*` take input (datagrams, time), `poll_*` give output (packets, completions, events), the others
//! are the calls of [`Device`](crate::device::Device). After any input or call, [`Endpoint::poll_transmit`] is to be called
//! until it says [`Transmit::Drained`]; [`Endpoint::handle_timeout`] when the moment of [`Endpoint::next_timeout`] has come.
//! `now` must not go back between calls. Nothing here allocates after a queue pair was made, unless completions are left
//! to pile up. Spec: IBTA chapters 9 and 10; annex A17.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::counters::Counters;
use super::icrc::IcrcChecker;
use super::qp::{Drain, Env, Qp, ReadBudget};
use super::qp_table::QpTable;
use super::queue::MAX_SGE;
use super::requester::Step;
use super::timers::Timers;
use super::wire::{Packet, ParseError, Role};
use super::{PacketSink, RxMeta, SinkFull};
use crate::device::{DeviceCaps, DeviceError, PostError, QpCap, QpConnect, QpEvent, QpState, Qpn};
use crate::mem::{Access, MemTable, Mr, MrId, Pd, Region, Sinks};
use crate::plan::Integrity;
use crate::signature::{SigLayout, SigStatus, Signature};
use crate::wc::Wc;
use crate::wr::{RecvWr, SendOp, SendWr, Sge, WrId};

/// What the soft device can do, when it does not pretend to be another.
pub const CAPS: DeviceCaps = DeviceCaps {
    iwarp: false,
    max_sgl_rd: 0,
    max_send_sge: 32,
    max_sge_rd: 32,
    max_recv_sge: 32,
    max_fast_reg_page_list_len: 512,
    max_pi_fast_reg_page_list_len: 256,
    max_qp_wr: 16384,
    max_qp_rd_atom: 128,
    max_qp_init_rd_atom: 128,
    mem_mgt_extensions: true,
    send_with_inv: true,
    force_mr: false,
    replace_source: true,
    takes_sums: true,
};

/// Numbers that trade throughput, fairness and memory; any value works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// Request packets in flight per queue pair at first (8 to `window_max`).
    pub window_start: u32,
    /// Request packets in flight per queue pair at most. A Linux host's network backlog holds 1000 packets.
    pub window_max: u32,
    /// Bytes of one READ request on the wire; longer READs are asked for in pieces. At most 256 packets are.
    pub read_chunk: u32,
    /// READ bytes asked for and not received, per queue pair. Each may have one READ request in any case.
    pub read_bytes_per_qp: u32,
    /// READ bytes asked for and not received, per endpoint: a quarter of the socket's receive buffer.
    pub read_bytes: u32,
    /// Shortest retransmission timeout.
    pub rto_min: Duration,
    /// Retransmission timeout before the round-trip time is known.
    pub rto_start: Duration,
    /// Silent periods of the full `ack_timeout` that a connection with retry count 7 survives.
    pub transport_retries: u8,
    /// Packets that one queue pair sends before the next one's turn; at least 2.
    pub burst: u32,
    /// Packets of one [`Endpoint::poll_transmit`].
    pub budget: u32,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            window_start: 64,
            window_max: 256,
            read_chunk: 64 << 10,
            read_bytes_per_qp: 256 << 10,
            read_bytes: 8 << 20,
            rto_min: Duration::from_millis(5),
            rto_start: Duration::from_millis(20),
            transport_retries: 10,
            burst: 64,
            budget: 1024,
        }
    }
}

/// What an endpoint is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// Capabilities to keep within; SGE counts above 32 mean 32.
    pub caps: DeviceCaps,
    /// Where queue pair numbers start; different after every start of the process.
    pub seed: u64,
    /// Index of this reactor, below `reactors`.
    pub reactor: u32,
    /// Reactors of the process; queue pair numbers modulo this are `reactor`.
    pub reactors: u32,
    /// Most queue pairs (1 to 2^20).
    pub max_qps: u32,
    /// Most memory regions (1 to 2^24 - 1).
    pub max_mrs: u32,
    /// Whether datagrams are checked.
    pub icrc: IcrcCheck,
    /// Trade-offs.
    pub tuning: Tuning,
}

/// Whether the ICRC of received datagrams is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IcrcCheck {
    /// Datagrams with a wrong one are dropped.
    On,
    /// Nothing but the link's own checksum protects what arrives.
    Off,
}

impl EndpointConfig {
    /// The usual endpoint of one reactor out of `reactors`.
    #[must_use]
    pub fn new(seed: u64, reactor: u32, reactors: u32) -> Self {
        Self {
            caps: CAPS,
            seed,
            reactor,
            reactors,
            max_qps: 16 << 10,
            max_mrs: 1 << 20,
            icrc: IcrcCheck::On,
            tuning: Tuning::default(),
        }
    }
}

/// How [`Endpoint::poll_transmit`] ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Transmit {
    /// Everything that may be sent was sent.
    Drained,
    /// The budget is used up or the sink is full: flush the sink and call again.
    More,
}

/// A RoCEv2 RC endpoint; see the module.
#[derive(Debug)]
pub struct Endpoint {
    caps: DeviceCaps,
    tuning: Tuning,
    mem: MemTable,
    qps: QpTable,
    /// The number of the next queue pair, if somebody asked for one.
    next_qpn: Option<Qpn>,
    cq: VecDeque<Wc>,
    events: VecDeque<QpEvent>,
    /// Queue pairs that may have something to send, each once.
    active: VecDeque<Qpn>,
    /// Queue pairs that wait for READ budget, each once.
    starved: VecDeque<Qpn>,
    timers: Timers,
    read_budget: ReadBudget,
    icrc: Option<IcrcChecker>,
    counters: Counters,
}

/// Borrows the parts of an endpoint that its queue pairs work with.
macro_rules! env {
    ($endpoint:expr, $now:expr) => {
        Env {
            now: $now,
            mem: &mut $endpoint.mem,
            cq: &mut $endpoint.cq,
            events: &mut $endpoint.events,
            read_budget: &mut $endpoint.read_budget,
            counters: &mut $endpoint.counters,
        }
    };
}

/// Borrows the parts of an endpoint that emptying a queue pair takes.
macro_rules! drain {
    ($endpoint:expr) => {
        Drain {
            cq: &mut $endpoint.cq,
            read_budget: &mut $endpoint.read_budget,
            counters: &mut $endpoint.counters,
        }
    };
}

impl Endpoint {
    /// An endpoint without queue pairs.
    #[must_use]
    pub fn new(config: &EndpointConfig) -> Self {
        let most_sge = u32::try_from(MAX_SGE).expect("a small number");
        let mut caps = config.caps;
        caps.max_send_sge = caps.max_send_sge.min(most_sge);
        caps.max_sge_rd = caps.max_sge_rd.min(most_sge);
        caps.max_recv_sge = caps.max_recv_sge.min(most_sge);
        let sinks = if caps.iwarp { Sinks::Remote } else { Sinks::Local };
        Self {
            caps,
            tuning: config.tuning,
            mem: MemTable::new(config.max_mrs).with_sinks(sinks),
            qps: QpTable::new(config.reactor, config.reactors, config.max_qps, config.seed),
            next_qpn: None,
            cq: VecDeque::with_capacity(1024),
            events: VecDeque::new(),
            active: VecDeque::with_capacity(64),
            starved: VecDeque::with_capacity(64),
            timers: Timers::default(),
            read_budget: ReadBudget::new(config.tuning.read_bytes),
            icrc: (config.icrc == IcrcCheck::On).then(IcrcChecker::new),
            counters: Counters::default(),
        }
    }

    /// Takes a datagram: the UDP payload, from BTH to ICRC. What is no valid packet for us is dropped and counted.
    pub fn handle_datagram(&mut self, now: Instant, meta: &RxMeta, udp_payload: &[u8]) {
        self.counters.rx_packets += 1;
        self.counters.rx_bytes += udp_payload.len() as u64;
        let packet = match Packet::parse(udp_payload) {
            Ok(packet) => packet,
            Err(ParseError::Pkey(_)) => {
                self.counters.drop_pkey += 1;
                return;
            }
            Err(_) => {
                self.counters.drop_parse += 1;
                return;
            }
        };
        if packet.bth.opcode.role() == Role::Datagram {
            self.counters.drop_datagram += 1;
            return;
        }
        let qpn = packet.bth.dest_qpn;
        let Some(qp) = self.qps.get_mut(qpn) else {
            self.counters.drop_qpn += 1;
            return;
        };
        if qp.state() != QpState::Rts {
            self.counters.drop_state += 1;
            return;
        }
        if meta.src != qp.path.meta.dst || meta.dst != qp.path.meta.src {
            self.counters.drop_address += 1;
            return;
        }
        if let Some(icrc) = &mut self.icrc
            && !icrc.check(meta, udp_payload)
        {
            self.counters.drop_icrc += 1;
            return;
        }
        qp.path.meta.peer_port = meta.src_port;
        qp.handle_packet(&mut env!(self, now), &packet);
        arm(&mut self.timers, qp);
        activate(&mut self.active, qp);
        self.tidy_timers();
    }

    /// Sends what may be sent, queue pairs in turn.
    pub fn poll_transmit<S: PacketSink>(&mut self, now: Instant, sink: &mut S) -> Transmit {
        let mut budget = self.tuning.budget.max(1);
        while budget > 0 {
            self.feed_starved();
            self.tidy_timers();
            let Some(qpn) = self.active.pop_front() else { return Transmit::Drained };
            let Some(qp) = self.qps.get_mut(qpn) else { continue };
            let turn = self.tuning.burst.max(2).min(budget);
            let mut left = turn;
            let step = qp.transmit(&mut env!(self, now), sink, &mut left);
            budget -= turn - left;
            arm(&mut self.timers, qp);
            match step {
                Ok(Step::Idle) => qp.active = false,
                Ok(Step::More) => self.active.push_back(qpn),
                Ok(Step::Starved) => {
                    qp.active = false;
                    if !std::mem::replace(&mut qp.starved, true) {
                        self.starved.push_back(qpn);
                    }
                }
                Err(SinkFull) => {
                    self.active.push_front(qpn);
                    return Transmit::More;
                }
            }
        }
        if self.active.is_empty() { Transmit::Drained } else { Transmit::More }
    }

    /// When [`Self::handle_timeout`] may have something to do.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Lets timers expire.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((at, qpn)) = self.timers.pop_due(now) {
            let Some(qp) = self.qps.get_mut(qpn) else { continue };
            if qp.armed != Some(at) {
                continue;
            }
            qp.armed = None;
            if qp.deadline().is_some_and(|due| due <= now) {
                qp.handle_timeout(&mut env!(self, now));
                activate(&mut self.active, qp);
            }
            arm(&mut self.timers, qp);
        }
        self.tidy_timers();
    }

    /// Takes the next completion.
    pub fn poll_cq(&mut self) -> Option<Wc> {
        self.cq.pop_front()
    }

    /// Takes the next asynchronous event.
    pub fn poll_qp_event(&mut self) -> Option<QpEvent> {
        self.events.pop_front()
    }

    /// Makes a protection domain.
    ///
    /// # Errors
    /// [`DeviceError::NoResources`].
    pub fn alloc_pd(&mut self) -> Result<Pd, DeviceError> {
        self.mem.alloc_pd()
    }

    /// Registers memory; see [`MemTable::register`].
    ///
    /// # Errors
    /// See there.
    pub fn reg_mr(
        &mut self,
        pd: Pd,
        region: &Arc<Region>,
        offset: usize,
        length: usize,
        access: Access,
    ) -> Result<Mr, DeviceError> {
        self.mem.register(pd, region, offset, length, access)
    }

    /// Makes a fast-registration region; see [`MemTable::alloc_fast_reg`].
    ///
    /// # Errors
    /// See there; [`DeviceError::Invalid`] when the capabilities do not include it, or not so many pages.
    pub fn alloc_fast_reg(&mut self, pd: Pd, pages: u32) -> Result<Mr, DeviceError> {
        if !self.caps.mem_mgt_extensions {
            return Err(DeviceError::Invalid("use: no memory management extensions"));
        }
        if pages > self.caps.max_fast_reg_page_list_len {
            return Err(DeviceError::Invalid("number of pages"));
        }
        self.mem.alloc_fast_reg(pd, pages)
    }

    /// Makes an integrity region; see [`MemTable::alloc_integrity`].
    ///
    /// # Errors
    /// See there; [`DeviceError::Invalid`] when the capabilities do not include it, or that many pages.
    pub fn alloc_integrity_mr(&mut self, pd: Pd, pages: u32) -> Result<Mr, DeviceError> {
        self.check_integrity()?;
        if pages > self.caps.max_pi_fast_reg_page_list_len {
            return Err(DeviceError::Invalid("number of pages"));
        }
        self.mem.alloc_integrity(pd, pages)
    }

    /// Maps lists and a signature; see [`MemTable::map_integrity`].
    ///
    /// # Errors
    /// See there.
    pub fn map_integrity(
        &mut self,
        mr: MrId,
        signature: &Signature,
        data: &[Sge],
        protection: &[Sge],
    ) -> Result<SigLayout, DeviceError> {
        self.mem.map_integrity(mr, signature, data, protection)
    }

    /// What a signature found; see [`MemTable::sig_status`].
    ///
    /// # Errors
    /// See there.
    pub fn sig_status(&mut self, mr: MrId) -> Result<SigStatus, DeviceError> {
        self.mem.sig_status(mr)
    }

    fn check_integrity(&self) -> Result<(), DeviceError> {
        if self.caps.mem_mgt_extensions && self.caps.max_pi_fast_reg_page_list_len > 0 {
            return Ok(());
        }
        Err(DeviceError::Invalid("use: no integrity offload"))
    }

    /// Forgets a region; the sink has let go of all packets before. Work requests that still use it fail when they do.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn dereg_mr(&mut self, id: MrId) -> Result<(), DeviceError> {
        self.mem.deregister(id)
    }

    /// Which number the next queue pair shall have, if any in particular: one that belongs to this reactor, and was promised
    /// to a peer.
    pub fn number_next_qp(&mut self, qpn: Option<Qpn>) {
        self.next_qpn = qpn;
    }

    /// Makes a queue pair in the state INIT.
    ///
    /// # Errors
    /// When sizes exceed the capabilities or nothing is left.
    pub fn create_qp(&mut self, pd: Pd, cap: &QpCap) -> Result<Qpn, DeviceError> {
        if cap.max_send_wr > self.caps.max_qp_wr || cap.max_recv_wr > self.caps.max_qp_wr {
            return Err(DeviceError::Invalid("number of work requests"));
        }
        if cap.max_send_sge > self.caps.max_send_sge || cap.max_recv_sge > self.caps.max_recv_sge {
            return Err(DeviceError::Invalid("number of scatter-gather entries"));
        }
        if cap.integrity == Integrity::Enabled {
            self.check_integrity()?;
        }
        let make = |qpn| Qp::new(qpn, pd, cap, &self.tuning);
        let qpn = match self.next_qpn.take() {
            Some(qpn) => self.qps.insert_at(qpn, make)?,
            None => self.qps.insert(make)?,
        };
        let live = self.qps.len();
        self.timers.reserve(live);
        for list in [&mut self.active, &mut self.starved] {
            list.reserve(live.saturating_sub(list.len()));
        }
        self.events.reserve((2 * live).saturating_sub(self.events.len()));
        self.cq.reserve(cap.max_send_wr as usize + cap.max_recv_wr as usize);
        Ok(qpn)
    }

    /// INIT to RTS.
    ///
    /// # Errors
    /// In any other state, and when parameters exceed the capabilities.
    pub fn connect_qp(&mut self, qpn: Qpn, to: &QpConnect) -> Result<(), DeviceError> {
        if to.max_rd_atomic > self.caps.max_qp_init_rd_atom
            || to.max_dest_rd_atomic > self.caps.max_qp_rd_atom
        {
            return Err(DeviceError::Invalid("number of outstanding READs"));
        }
        if to.local.is_ipv4() != to.remote.is_ipv4() {
            return Err(DeviceError::Invalid("address family"));
        }
        self.qps.get_mut(qpn).ok_or(DeviceError::Unknown("queue pair"))?.connect(to, &self.tuning)
    }

    /// To the error state: everything posted completes as flushed, nothing more is sent. Only the NAK that says why a
    /// queue pair failed by itself still is; destroy one after [`Self::poll_transmit`], or its peer is left guessing.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn error_qp(&mut self, qpn: Qpn) -> Result<(), DeviceError> {
        let qp = self.qps.get_mut(qpn).ok_or(DeviceError::Unknown("queue pair"))?;
        qp.error(&mut drain!(self));
        Ok(())
    }

    /// See [`Device::note_sums`](crate::device::Device::note_sums).
    #[inline]
    pub fn note_sums(&mut self, qpn: Qpn, sums: &[u32]) {
        if let Some(qp) = self.qps.get_mut(qpn) {
            qp.note_sums(sums);
        }
    }

    /// See [`Device::replace_source`](crate::device::Device::replace_source); packets that were handed out are the caller's.
    ///
    /// # Errors
    /// When the capabilities do not include it, the queue pair does not exist, the lengths differ, or memory of `from` is used
    /// as a part of something larger.
    pub fn replace_source(&mut self, qpn: Qpn, wr_id: WrId, from: Sge, to: Sge) -> Result<(), DeviceError> {
        if !self.caps.replace_source {
            return Err(DeviceError::Invalid("use: no replacing of sources"));
        }
        let qp = self.qps.get_mut(qpn).ok_or(DeviceError::Unknown("queue pair"))?;
        if from.length != to.length {
            return Err(DeviceError::Invalid("length"));
        }
        qp.replace_source(&mut self.mem, wr_id, from, to)
    }

    /// Forgets a queue pair and its completions and events that were not polled.
    ///
    /// # Errors
    /// When it does not exist.
    pub fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), DeviceError> {
        self.error_qp(qpn)?;
        self.qps.remove(qpn);
        self.cq.retain(|wc| wc.qpn != qpn);
        self.events.retain(|event| {
            let (QpEvent::CommEst(of) | QpEvent::Fatal(of)) = *event;
            of != qpn
        });
        Ok(())
    }

    /// Queues a send work request.
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn post_send(&mut self, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), PostError> {
        if !self.caps.mem_mgt_extensions
            && matches!(
                wr.op,
                SendOp::LocalInv(_)
                    | SendOp::RegMr { .. }
                    | SendOp::RegMrIntegrity { .. }
                    | SendOp::SendWithInv(_)
            )
        {
            return Err(PostError::Unsupported);
        }
        if matches!(wr.op, SendOp::ReadWithInv(_)) && !self.caps.iwarp {
            return Err(PostError::Unsupported);
        }
        let qp = self.qps.get_mut(qpn).ok_or(PostError::UnknownQp)?;
        if let SendOp::RegMrIntegrity { mr, .. } = wr.op
            && !self.mem.is_integrity_ready(mr)
        {
            return Err(PostError::Integrity);
        }
        qp.post_send(&mut drain!(self), wr, &self.caps, &self.mem)?;
        activate(&mut self.active, qp);
        Ok(())
    }

    /// Queues a receive.
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn post_recv(&mut self, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let qp = self.qps.get_mut(qpn).ok_or(PostError::UnknownQp)?;
        qp.post_recv(&mut drain!(self), wr)
    }

    /// What it can do.
    #[must_use]
    pub fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    /// Its state, if it exists.
    #[must_use]
    pub fn qp_state(&self, qpn: Qpn) -> Option<QpState> {
        self.qps.get(qpn).map(Qp::state)
    }

    /// Whether [`Self::poll_transmit`] may have something to send.
    #[must_use]
    pub fn has_work(&self) -> bool {
        !self.active.is_empty()
    }

    /// Queue pairs in use.
    #[must_use]
    pub fn queue_pairs(&self) -> usize {
        self.qps.len()
    }

    /// Memory regions in use.
    #[must_use]
    pub fn memory_regions(&self) -> u32 {
        self.mem.live()
    }

    /// READ bytes asked for and not received.
    #[must_use]
    pub fn read_bytes_outstanding(&self) -> u64 {
        self.read_budget.used()
    }

    /// Totals since the endpoint was made.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Checks what must hold between any two calls.
    #[cfg(test)]
    pub(super) fn check(&self) {
        let asked: u64 = self.qps.iter().map(Qp::check).sum();
        assert_eq!(asked, self.read_budget.used());
        for qp in self.qps.iter() {
            assert_eq!(qp.active, self.active.contains(&qp.path.qpn));
            assert!(qp.starved == self.starved.contains(&qp.path.qpn));
            assert!(qp.deadline().is_none() || qp.armed.is_some_and(|at| Some(at) <= qp.deadline()));
        }
    }

    /// SGEs of a send work request of a queue pair.
    #[cfg(test)]
    pub(super) fn max_sge(&self, qpn: Qpn) -> usize {
        self.qps.get(qpn).expect("tests ask of what they made").max_sge()
    }

    /// Checks that nothing is on its way and nothing is kept.
    #[cfg(test)]
    pub(super) fn check_idle(&self) {
        self.check();
        assert!(self.active.is_empty() && self.starved.is_empty() && self.cq.is_empty());
        assert_eq!(self.read_budget.used(), 0);
        self.qps.iter().for_each(Qp::check_idle);
    }

    /// Lets queue pairs that wait for READ budget try again when some was given back.
    #[inline]
    fn feed_starved(&mut self) {
        if self.starved.is_empty() || !self.read_budget.take_freed() {
            return;
        }
        while let Some(qpn) = self.starved.pop_front() {
            if let Some(qp) = self.qps.get_mut(qpn) {
                qp.starved = false;
                activate(&mut self.active, qp);
            }
        }
    }

    /// Keeps the timers within the room that they have.
    #[inline]
    fn tidy_timers(&mut self) {
        self.timers.tidy(|at, qpn| self.qps.get(qpn).is_some_and(|qp| qp.armed == Some(at)));
    }
}

/// Puts a queue pair on the list of those that may have something to send.
#[inline]
fn activate(active: &mut VecDeque<Qpn>, qp: &mut Qp) {
    if !std::mem::replace(&mut qp.active, true) {
        active.push_back(qp.path.qpn);
    }
}

/// Sees to it that a queue pair is looked at when its deadline comes.
#[inline]
fn arm(timers: &mut Timers, qp: &mut Qp) {
    let due = qp.deadline();
    timers.arm(qp.path.qpn, &mut qp.armed, due);
}
