//! The verbs device of one reactor: its queue pairs, completion queues and memory.
//!
//! Sends are gathered and leave with `transmit`, all that a queue pair has in one call: a call costs a doorbell, and
//! with software RoCE a system call. The data path allocates nothing once its buffers have grown.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::caps::Attributes;
use super::cm::Cm;
use super::completion::RawWc;
use super::handles::{
    AsyncEvent, CompletionChannel, CompletionQueue, Context, MemoryRegion, ProtectionDomain,
};
use super::queue_pair::{QueuePair, SendBatch};
use super::send_queue::SendQueue;
use super::signatures::{Signatures, Signed};
use super::teardown::{Fate, of_queue_pair};
use crate::device::provider::VerbsCounters;
use crate::device::{
    Device, DeviceCaps, DeviceError, NoOffload, PostError, QpCap, QpConnect, QpEvent, QpState, Qpn,
};
use crate::mem::{Access, Lkey, Mr, MrId, Pd, Region};
use crate::remote::Rkey;
use crate::signature::{SigLayout, SigStatus, Signature};
use crate::wc::{Wc, WcStatus};
use crate::wr::{RecvWr, SendOp, SendWr, Sge, Signal, WrId};

/// Entries of a completion queue, which several queue pairs share; more where one queue pair needs them.
const CQ_ENTRIES: u32 = 4096;

/// A device of libibverbs, as one reactor has it.
#[derive(Debug)]
pub struct VerbsDevice {
    pub(super) name: String,
    /// Port of the first address: queue pairs begin there, and may go to another.
    port: u8,
    caps: DeviceCaps,
    max_cqe: u32,
    pub(super) qps: HashMap<Qpn, Qp>,
    /// Queue pairs with gathered sends.
    pub(super) gathered: Vec<Qpn>,
    pub(super) cqs: Vec<Cq>,
    /// The completion queues, for [`CompletionChannel::take`].
    pub(super) queues: Vec<Arc<CompletionQueue>>,
    /// Completions that were taken and not handed out.
    ready: VecDeque<RawWc>,
    pub(super) events: VecDeque<QpEvent>,
    pub(super) regions: HashMap<MrId, MemoryRegion>,
    next_region: u32,
    /// Who runs signatures.
    pub(super) signatures: Signatures,
    /// Reactor 0's.
    pub(super) cm: Option<Cm>,
    pub(super) control_at: Option<Instant>,
    pub(super) failure: Option<String>,
    pub(super) counters: VerbsCounters,
    /// Behind the keys that are of them.
    pds: Vec<Arc<ProtectionDomain>>,
    pub(super) channel: Arc<CompletionChannel>,
    pub(super) context: Arc<Context>,
}

#[derive(Debug)]
pub(super) struct Cq {
    pub(super) queue: Arc<CompletionQueue>,
    /// Entries that no queue pair may need.
    free: u32,
    /// It will say when it gets a completion.
    pub(super) is_armed: bool,
}

#[derive(Debug)]
pub(super) struct Qp {
    pub(super) pair: QueuePair,
    pub(super) state: QpState,
    cap: QpCap,
    /// Port and P_Key that it was given.
    place: (u8, u16),
    /// Its completion queue, and the entries of it that it may need.
    cq: (usize, u32),
    pub(super) sends: SendQueue,
    pub(super) signed: Signed,
    pub(super) batch: SendBatch,
    receives: u32,
}

impl VerbsDevice {
    pub(super) fn new(
        name: &str,
        port: u8,
        attributes: &Attributes,
        signatures: Signatures,
        cm: Option<Cm>,
        channel: Arc<CompletionChannel>,
        context: Arc<Context>,
    ) -> Self {
        if cm.is_some() {
            let driver = attributes.quirk().map_or("unknown", |quirk| quirk.driver);
            tracing::info!(
                device = name,
                port,
                driver,
                vendor = format_args!("{:#x}", attributes.vendor_id),
                part = attributes.vendor_part_id,
                "RDMA device opened"
            );
        }
        Self {
            name: name.to_owned(),
            port,
            caps: DeviceCaps { max_pi_fast_reg_page_list_len: signatures.pages(), ..attributes.caps() },
            max_cqe: attributes.max_cqe,
            qps: HashMap::new(),
            gathered: Vec::new(),
            cqs: Vec::new(),
            queues: Vec::new(),
            ready: VecDeque::with_capacity(256),
            events: VecDeque::new(),
            regions: HashMap::new(),
            next_region: 1,
            signatures,
            cm,
            control_at: None,
            failure: None,
            counters: VerbsCounters::default(),
            pds: Vec::new(),
            channel,
            context,
        }
    }

    fn next_id(&mut self) -> Result<MrId, DeviceError> {
        let next = self.next_region.checked_add(1).ok_or(DeviceError::NoResources("memory regions"))?;
        Ok(MrId(std::mem::replace(&mut self.next_region, next)))
    }

    /// The completion queue that a queue pair of so many entries goes to.
    fn cq_for(&mut self, entries: u32) -> Result<usize, DeviceError> {
        if let Some(index) = self.cqs.iter().position(|cq| cq.free >= entries) {
            return Ok(index);
        }
        let size = CQ_ENTRIES.max(entries).min(self.max_cqe);
        if size < entries {
            return Err(DeviceError::NoResources("completion queue entries"));
        }
        let queue = CompletionQueue::new(&self.channel, size)
            .map_err(|error| refused("completion queues", &error))?;
        self.queues.push(Arc::clone(&queue));
        self.cqs.push(Cq { queue, free: size, is_armed: false });
        Ok(self.cqs.len() - 1)
    }

    /// Takes completions from the queues, a batch of each at most; whether any are ready.
    pub(super) fn fill(&mut self) -> bool {
        for cq in &self.cqs {
            if let Err(error) = cq.queue.poll(&mut self.ready) {
                fail(&mut self.failure, format!("completion queue of {}: {error}", self.name));
            }
        }
        !self.ready.is_empty()
    }

    /// Makes a completion that was taken known to its queue pair; `None` for one of a queue pair that is gone, or that
    /// nobody asked for.
    fn account(&mut self, raw: &RawWc) -> Option<Wc> {
        let wc = raw.wc();
        let qp = self.qps.get_mut(&wc.qpn)?;
        self.counters.completions += 1;
        if wc.status != WcStatus::Success {
            qp.state = QpState::Error;
            self.counters.failures += u64::from(wc.status != WcStatus::WrFlushErr);
        } else if raw.is_receive() {
            qp.receives = qp.receives.saturating_sub(1);
        } else if let Some(done) = qp.sends.complete() {
            if let Some(region) = done.transfer {
                self.signatures.transferred(region, &mut qp.signed);
            }
            if !done.is_signaled {
                return None;
            }
        }
        Some(wc)
    }

    pub(super) fn poll_async_events(&mut self) {
        while let Some(event) = self.context.poll_event() {
            match event {
                AsyncEvent::CommEst(qpn) => self.events.push_back(QpEvent::CommEst(qpn)),
                AsyncEvent::QpFatal(qpn) => self.qp_failed(qpn),
                AsyncEvent::CqError => {
                    fail(&mut self.failure, format!("a completion queue of {} failed", self.name));
                }
                AsyncEvent::DeviceFatal => {
                    fail(&mut self.failure, format!("{} is gone, or failed", self.name));
                }
                AsyncEvent::PortActive(port) => {
                    tracing::info!(device = self.name, port, "port is active");
                }
                // Connections live on if it comes back before their retries are used up.
                AsyncEvent::PortError(port) => {
                    self.counters.port_errors += 1;
                    tracing::warn!(device = self.name, port, "port is down");
                }
                AsyncEvent::Other(number) => {
                    tracing::debug!(device = self.name, number, "event of the device");
                }
            }
        }
    }

    fn qp_failed(&mut self, qpn: Qpn) {
        if let Some(qp) = self.qps.get_mut(&qpn) {
            qp.state = QpState::Error;
            self.counters.qp_failures += 1;
            self.events.push_back(QpEvent::Fatal(qpn));
        }
    }

    /// Ends a queue pair. The device may write to memory that its work named as long as it has it: without that certainty
    /// there is nothing to go on with.
    fn destroy(&mut self, pair: QueuePair) {
        let destroyed = pair.destroy();
        match of_queue_pair(&destroyed, || self.context.attributes().map(drop)) {
            Fate::Gone => {}
            // The kernel took all its objects away when the hardware went: it uses none of our memory any more.
            Fate::DeviceGone => fail(&mut self.failure, format!("{} was removed", self.name)),
            Fate::Kept => {
                let error = destroyed.err();
                panic!("{} keeps a queue pair that was to be destroyed: {error:?}", self.name)
            }
        }
    }
}

impl Device for VerbsDevice {
    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn alloc_pd(&mut self) -> Result<Pd, DeviceError> {
        let number =
            u32::try_from(self.pds.len()).map_err(|_| DeviceError::NoResources("protection domains"))?;
        let pd =
            ProtectionDomain::new(&self.context).map_err(|error| refused("protection domains", &error))?;
        self.pds.push(pd);
        Ok(Pd(number))
    }

    fn reg_mr(
        &mut self,
        pd: Pd,
        region: &Arc<Region>,
        offset: usize,
        length: usize,
        access: Access,
    ) -> Result<Mr, DeviceError> {
        let pd = self.pds.get(pd.0 as usize).ok_or(DeviceError::Unknown("protection domain"))?;
        if length == 0 || region.ptr(offset, length).is_none() {
            return Err(DeviceError::Invalid("range of the region"));
        }
        if access.remote_write && !access.local_write {
            return Err(DeviceError::Invalid("access: remote write needs local write"));
        }
        let made = MemoryRegion::new(pd, region, offset, length, access)
            .map_err(|error| refused("memory that devices may use (it is locked: ulimit -l)", &error))?;
        let (lkey, rkey) = made.keys();
        let id = self.next_id()?;
        self.regions.insert(id, made);
        let addr = region.addr() + offset as u64;
        Ok(Mr { id, lkey: Lkey(lkey), rkey: Rkey(rkey), addr, length: length as u64 })
    }

    fn alloc_fast_reg(&mut self, _: Pd, _: u32) -> Result<Mr, DeviceError> {
        Err(DeviceError::NoResources("fast registrations: verbs has none in user space"))
    }

    fn executes(&self, signature: &Signature) -> Result<(), NoOffload> {
        self.signatures.executes(signature)
    }

    fn alloc_integrity_mr(&mut self, pd: Pd, pages: u32) -> Result<Mr, DeviceError> {
        let pd = Arc::clone(self.pds.get(pd.0 as usize).ok_or(DeviceError::Unknown("protection domain"))?);
        let id = self.next_id()?;
        let key = self.alloc_region(id, &pd, pages)?;
        Ok(Mr { id, lkey: key, rkey: Rkey(key.0), addr: 0, length: 0 })
    }

    fn map_integrity(
        &mut self,
        mr: MrId,
        signature: &Signature,
        data: &[Sge],
        protection: &[Sge],
    ) -> Result<SigLayout, DeviceError> {
        self.map_region(mr, signature, data, protection)
    }

    fn sig_status(&mut self, mr: MrId) -> Result<SigStatus, DeviceError> {
        self.region_status(mr)
    }

    fn dereg_mr(&mut self, id: MrId) -> Result<(), DeviceError> {
        if self.free_region(id) {
            return Ok(());
        }
        self.regions.remove(&id).map(drop).ok_or(DeviceError::Unknown("memory region"))
    }

    fn create_qp(&mut self, pd: Pd, cap: &QpCap) -> Result<Qpn, DeviceError> {
        let wrs = self.signatures.wrs_per_wr(cap.integrity);
        let wrs =
            wrs.ok_or(DeviceError::Invalid("use: no integrity offload"))?.saturating_mul(cap.max_send_wr);
        let fits = wrs <= self.caps.max_qp_wr
            && cap.max_recv_wr <= self.caps.max_qp_wr
            && cap.max_send_sge <= self.caps.max_send_sge
            && cap.max_recv_sge <= self.caps.max_recv_sge;
        if !fits {
            return Err(DeviceError::Invalid("sizes of the queue pair"));
        }
        let pd = Arc::clone(self.pds.get(pd.0 as usize).ok_or(DeviceError::Unknown("protection domain"))?);
        let entries = wrs.saturating_add(cap.max_recv_wr);
        let index = self.cq_for(entries)?;
        let made = self.signatures.make_pair(&pd, &self.cqs[index].queue, cap);
        let (pair, signed) = made.map_err(|error| refused("queue pairs", &error))?;
        let place = (self.port, 0);
        // A target exposes no memory: rights come with the connection.
        if let Err(error) = pair.to_init(place.0, place.1, Access::default()) {
            self.destroy(pair);
            return Err(refused("queue pairs that can receive", &error));
        }
        let qpn = pair.qpn();
        self.cqs[index].free -= entries;
        let qp = Qp {
            pair,
            state: QpState::Init,
            cap: *cap,
            place,
            cq: (index, entries),
            signed,
            sends: SendQueue::new(cap.max_send_wr),
            batch: SendBatch::default(),
            receives: 0,
        };
        self.qps.insert(qpn, qp);
        Ok(qpn)
    }

    fn connect_qp(&mut self, qpn: Qpn, to: &QpConnect) -> Result<(), DeviceError> {
        let qp = self.qps.get_mut(&qpn).ok_or(DeviceError::Unknown("queue pair"))?;
        if qp.state != QpState::Init {
            return Err(DeviceError::Invalid("state of the queue pair"));
        }
        let route = to.route.as_ref().ok_or(DeviceError::Invalid("route: this device needs one"))?;
        let place = (route.port, route.pkey_index);
        let access = Access {
            local_write: to.remote_access.write,
            remote_read: to.remote_access.read,
            remote_write: to.remote_access.write,
        };
        let connect = || {
            if place != qp.place || access != Access::default() {
                qp.pair.to_init(place.0, place.1, access)?;
            }
            qp.pair.to_rtr(to, route)?;
            qp.pair.to_rts(to, timer_exponent(to.ack_timeout))
        };
        match connect() {
            Ok(()) => {
                (qp.place, qp.state) = (place, QpState::Rts);
                Ok(())
            }
            Err(error) => {
                tracing::debug!(%error, qpn = qpn.0, ?to, "the device does not connect a queue pair");
                Err(DeviceError::Invalid("connection parameters"))
            }
        }
    }

    fn error_qp(&mut self, qpn: Qpn) -> Result<(), DeviceError> {
        let qp = self.qps.get_mut(&qpn).ok_or(DeviceError::Unknown("queue pair"))?;
        // What was gathered has to be flushed by the device, too; whatever becomes of that, the peer is served no longer.
        let posted = qp.pair.post_send(&mut qp.batch);
        qp.state = QpState::Error;
        qp.pair.to_error().and(posted).map_err(|_| DeviceError::Invalid("state of the queue pair"))
    }

    fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), DeviceError> {
        let Qp { pair, signed, cq: (cq, entries), .. } =
            self.qps.remove(&qpn).ok_or(DeviceError::Unknown("queue pair"))?;
        self.destroy(pair);
        self.signatures.queue_gone(qpn);
        drop(signed);
        // Its completions are in the queue still, and its number may be given out again.
        while self.cqs[cq].queue.poll(&mut self.ready).is_ok_and(|count| count > 0) {}
        self.ready.retain(|raw| raw.qp_num != qpn.0);
        self.gathered.retain(|other| *other != qpn);
        self.events.retain(
            |event| !matches!(event, QpEvent::CommEst(other) | QpEvent::Fatal(other) if *other == qpn),
        );
        self.cqs[cq].free += entries;
        Ok(())
    }

    fn qp_state(&self, qpn: Qpn) -> Option<QpState> {
        self.qps.get(&qpn).map(|qp| qp.state)
    }

    #[inline]
    fn post_send(&mut self, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), PostError> {
        let qp = self.qps.get_mut(&qpn).ok_or(PostError::UnknownQp)?;
        if qp.state != QpState::Rts {
            return Err(PostError::BadState);
        }
        if matches!(wr.op, SendOp::SendWithInv(_)) && !self.caps.send_with_inv {
            return Err(PostError::Unsupported);
        }
        let is_read = matches!(wr.op, SendOp::Read(_));
        let max_sge = qp.cap.max_send_sge.min(if is_read { self.caps.max_sge_rd } else { u32::MAX });
        if !fits(wr.sges, max_sge) {
            return Err(PostError::BadSge);
        }
        if !qp.sends.has_room() {
            return Err(PostError::Full);
        }
        if self.signatures.is_for(&qp.signed, wr) {
            return self.post_signed(qpn, wr);
        }
        let is_first = qp.batch.is_empty();
        if !qp.batch.push(wr) {
            return Err(PostError::Unsupported);
        }
        qp.sends.post(wr.signal == Signal::Signaled);
        self.counters.sends += 1;
        if is_first {
            self.gathered.push(qpn);
        }
        Ok(())
    }

    fn replace_source(&mut self, _: Qpn, _: WrId, _: Sge, _: Sge) -> Result<(), DeviceError> {
        Err(DeviceError::Invalid("operation: what is posted can't be changed"))
    }

    #[inline]
    fn post_recv(&mut self, qpn: Qpn, wr: &RecvWr<'_>) -> Result<(), PostError> {
        let qp = self.qps.get_mut(&qpn).ok_or(PostError::UnknownQp)?;
        if !matches!(qp.state, QpState::Init | QpState::Rtr | QpState::Rts) {
            return Err(PostError::BadState);
        }
        if !fits(wr.sges, qp.cap.max_recv_sge) {
            return Err(PostError::BadSge);
        }
        if qp.receives >= qp.cap.max_recv_wr {
            return Err(PostError::Full);
        }
        qp.pair.post_recv(wr.wr_id.0, wr.sges).map_err(|_| PostError::Full)?;
        qp.receives += 1;
        self.counters.receives += 1;
        Ok(())
    }

    #[inline]
    fn poll_cq(&mut self) -> Option<Wc> {
        loop {
            if let Some(raw) = self.ready.pop_front() {
                if let Some(wc) = self.account(&raw) {
                    return Some(wc);
                }
            } else if !self.fill() {
                return None;
            }
        }
    }

    fn poll_qp_event(&mut self) -> Option<QpEvent> {
        self.events.pop_front()
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.cm.as_ref().and_then(Cm::next_timeout)
    }
}

impl Drop for VerbsDevice {
    fn drop(&mut self) {
        // Listeners and connections first: nobody is to be connected any more.
        self.cm = None;
        for (qpn, qp) in self.qps.drain() {
            let destroyed = qp.pair.destroy();
            if let (Fate::Kept, Err(error)) = (Fate::of(&destroyed), &destroyed) {
                tracing::error!(%error, qpn = qpn.0, "the RDMA device keeps a queue pair");
            }
        }
    }
}

/// Whether so many pieces, and so many bytes, make a message.
fn fits(sges: &[Sge], most: u32) -> bool {
    let bytes: u64 = sges.iter().map(|sge| u64::from(sge.length)).sum();
    sges.len() <= most as usize && bytes <= 1 << 31
}

/// The least exponent whose time (4.096 us * 2^exponent) is at least this; 1 to 31.
fn timer_exponent(time: Duration) -> u8 {
    let units = time.as_nanos().div_ceil(4096).max(2);
    let exponent = units.next_power_of_two().trailing_zeros().min(31);
    u8::try_from(exponent).expect("at most 31")
}

/// The device's refusal, with what the system says in the log.
pub(super) fn refused(what: &'static str, error: &io::Error) -> DeviceError {
    tracing::debug!(%error, what, "the device refuses");
    DeviceError::NoResources(what)
}

/// Notes why the device can't be used any more: the first reason.
pub(super) fn fail(failure: &mut Option<String>, why: String) {
    if failure.is_none() {
        tracing::error!(why, "the RDMA device failed");
        *failure = Some(why);
    }
}

// Devices of all reactors are opened by one thread, then given to theirs.
const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<VerbsDevice>();
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_is_at_least_as_long_as_was_asked() {
        let unit = Duration::from_nanos(4096);
        for (time, exponent) in [
            (Duration::ZERO, 1),
            (unit * 2, 1),
            (unit * 2 + Duration::from_nanos(1), 2),
            (unit * (1 << 14), 14),
            (Duration::from_secs(2), 19),
            (Duration::MAX, 31),
        ] {
            assert_eq!(timer_exponent(time), exponent, "{time:?}");
        }
    }

    #[test]
    fn a_message_has_few_pieces_and_two_gibibytes_at_most() {
        let sge = |length| Sge { addr: 0, length, lkey: Lkey(1) };
        assert!(fits(&[], 1) && fits(&[sge(1 << 31)], 1));
        assert!(!fits(&[sge(1), sge(1)], 1));
        assert!(!fits(&[sge(1 << 31), sge(1)], 2));
    }
}
