//! The connection to an NVMe target: the soft device, and the queue pairs on it.
//!
//! Owns the queues and what completes on them; what touches the device is the port's and their channels'. Knows capsules
//! and their identifiers, not what commands mean. One command at a time with [`Link::execute`]; many with
//! [`Link::submit`] and [`Link::next_completion`].

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use intact::nvmf::wire::private_data::QueueRequest;
use intact::nvmf::wire::sqe::Sqe;
use intact::nvmf::wire::status::Status;
use rwctx::device::soft::cm::CmId;
use rwctx::device::soft::device::SoftCounters;
use rwctx::device::{Device, RemoteAccess};
use rwctx::mem::{Mr, Region};
use rwctx::remote::Rkey;
use rwctx::wc::{RecvExtra, WcStatus};
use rwctx::wr::{SendOp, Sge};
use zerocopy::IntoBytes;

use super::buffers::Registrar;
use super::channel::{Channel, Work};
use super::clock;
use super::error::{Fault, HostError, Of};
use super::port::Port;
pub use super::queue::Submit;
use super::queue::{BadResponse, Queue};

/// A command's completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Index of the queue that the command was sent on.
    pub queue: usize,
    /// The command's identifier.
    pub cid: u16,
    /// How it ended.
    pub status: Status,
    /// DW0 and DW1.
    pub result: u64,
    /// The key that the target invalidated.
    pub invalidated: Option<Rkey>,
}

/// The soft device with the queue pairs to one target.
#[derive(Debug)]
pub struct Link {
    port: Port,
    queues: Vec<Queue>,
}

impl Link {
    /// Opens a device on `local`; nothing is sent yet.
    ///
    /// # Errors
    /// When the address can't be used.
    pub fn open(local: IpAddr, target: SocketAddr) -> Result<Self, HostError> {
        Ok(Self { port: Port::open(local, target)?, queues: Vec::new() })
    }

    /// Opens a device for a target on `local`, or on the address that suits it: 127.0.0.2 for one on loopback, else the one
    /// that the system would use.
    ///
    /// # Errors
    /// When there is no such address, or it can't be used.
    pub fn reach(local: Option<IpAddr>, target: SocketAddr) -> Result<Self, HostError> {
        Ok(Self { port: Port::reach(local, target)?, queues: Vec::new() })
    }

    /// The other side.
    #[must_use]
    pub fn target(&self) -> SocketAddr {
        self.port.target()
    }

    /// Sums of the device.
    #[must_use]
    pub fn counters(&self) -> SoftCounters {
        self.port.counters()
    }

    /// Connects an NVMe queue of `entries` entries; the Connect command comes next. `cntlid` says which controller an I/O
    /// queue belongs to. Returns the queue's index.
    ///
    /// # Errors
    /// When the target refuses or does not answer.
    pub fn connect_queue(&mut self, qid: u16, entries: u32, cntlid: u16) -> Result<usize, HostError> {
        if !(2..=1 << 16).contains(&entries) {
            return Err(HostError::Invalid(format!("a queue has 2 to 65536 entries, not {entries}")));
        }
        let at = self.queues.len();
        let index = u32::try_from(at).expect("at most 65536 queues");
        // A registration and an invalidation for each command, and those not yet acknowledged.
        let extra = entries * 4;
        let queue = Queue::open(&mut self.port.device, self.port.pd, index, qid, entries, extra)?;
        let qpn = queue.channel.qpn;
        self.queues.push(queue);
        let request = QueueRequest {
            qid,
            host_recv_entries: entries,
            host_send_entries: entries,
            cntlid: if qid == 0 { 0 } else { cntlid },
        };
        let connected = self.port.connect(qpn, Of::Queue(qid), request.emit().as_bytes())?;
        self.queues[at].channel.cm = Some(connected.id);
        Ok(at)
    }

    /// Sends what waits, sleeps until something happens, or until `until`, and receives.
    ///
    /// # Errors
    /// When the system refuses to wait.
    pub fn drive(&mut self, until: Instant) -> Result<(), HostError> {
        self.port.drive(until)
    }

    /// Receives what is there, without waiting.
    #[inline]
    pub fn receive(&mut self, now: Instant) {
        self.port.device.receive(now);
    }

    /// Sends everything that waits.
    #[inline]
    pub fn transmit(&mut self, now: Instant) {
        self.port.device.transmit(now);
    }

    /// An identifier for a new command on a queue; `None` when the queue is full.
    pub fn free_cid(&mut self, queue: usize) -> Option<u16> {
        self.queues[queue].free_cid()
    }

    /// Sends a command, with the next [`Self::transmit`]; see `Queue::submit` for what is asked of its identifier and of
    /// in-capsule data.
    ///
    /// # Errors
    /// When the queue pair failed.
    #[inline]
    pub fn submit(&mut self, queue: usize, sqe: &Sqe, in_capsule: Option<Sge>) -> Result<Submit, HostError> {
        Ok(self.queues[queue].submit(&mut self.port.device, sqe, in_capsule)?)
    }

    /// Whether a queue's memory has room for another capsule. If not, it has again when earlier ones are acknowledged; taking
    /// completions brings that about.
    #[inline]
    #[must_use]
    pub fn has_room(&self, queue: usize) -> bool {
        self.queues[queue].channel.has_room()
    }

    /// Whether a capsule will not be sent again, so that its in-capsule data may change.
    #[inline]
    #[must_use]
    pub fn is_acked(&self, queue: usize, number: u32) -> bool {
        self.queues[queue].channel.is_acked(number)
    }

    /// Takes the next completion of a command.
    ///
    /// # Errors
    /// When a connection broke or the target's answer makes no sense.
    #[inline]
    pub fn next_completion(&mut self) -> Result<Option<Completion>, HostError> {
        while let Some(wc) = self.port.device.poll_cq() {
            let (index, work) = Channel::work(wc.wr_id);
            if wc.status != WcStatus::Success {
                return Err(self.work_failed(index, wc.status));
            }
            let queue = &mut self.queues[index];
            match work {
                Work::Receive(slot) => {
                    let cqe = match queue.on_receive(&mut self.port.device, slot, wc.byte_len)? {
                        Ok(cqe) => cqe,
                        Err(bad) => return Err(self.bad_response(index, bad)),
                    };
                    let invalidated = match wc.extra {
                        RecvExtra::Invalidated(key) => Some(key),
                        RecvExtra::None | RecvExtra::Imm(_) => None,
                    };
                    return Ok(Some(Completion {
                        queue: index,
                        cid: cqe.cid.get(),
                        status: cqe.status(),
                        result: cqe.result.get(),
                        invalidated,
                    }));
                }
                Work::Message(number) => queue.channel.on_acked(number),
                Work::Memory => {}
            }
        }
        Ok(None)
    }

    /// Sees to it that the connections are still there.
    ///
    /// # Errors
    /// When one is not.
    pub fn check(&mut self, now: Instant) -> Result<(), HostError> {
        while let Some(id) = self.port.poll_lost(now) {
            if let Some(at) = self.queues.iter().position(|queue| queue.channel.cm == Some(id)) {
                self.queues[at].channel.cm = None;
                return Err(self.broken(at, Fault::Disconnected));
            }
        }
        Ok(())
    }

    /// Sends a command and waits for its completion. `in_capsule` may change when this returned.
    ///
    /// # Errors
    /// When the connection broke or the target does not answer within `timeout`; not for the command's own status.
    pub fn execute(
        &mut self,
        queue: usize,
        sqe: &Sqe,
        in_capsule: Option<Sge>,
        what: &'static str,
        timeout: Duration,
    ) -> Result<Completion, HostError> {
        let until = clock::now() + timeout;
        let number = loop {
            if let Submit::Sent(number) = self.submit(queue, sqe, in_capsule)? {
                break number;
            }
            self.step(until, what, timeout)?;
            // Only acknowledgements can be waited for here, and keep-alives.
            let _ = self.next_completion()?;
        };
        let mut done = None;
        loop {
            while let Some(completion) = self.next_completion()? {
                if completion.queue == queue && completion.cid == sqe.cid.get() {
                    done = Some(completion);
                }
            }
            match done {
                Some(completion) if in_capsule.is_none() || self.is_acked(queue, number) => {
                    return Ok(completion);
                }
                _ => self.step(until, what, timeout)?,
            }
        }
    }

    fn step(&mut self, until: Instant, what: &'static str, after: Duration) -> Result<(), HostError> {
        self.drive(until)?;
        let now = clock::now();
        self.check(now)?;
        if now >= until {
            return Err(HostError::Timeout { target: self.target(), what, after });
        }
        Ok(())
    }

    /// A failed work request; that of a connection which the target closed is told as that.
    #[cold]
    fn work_failed(&mut self, index: usize, status: WcStatus) -> HostError {
        match self.check(clock::now()) {
            Err(closed) => closed,
            Ok(()) => self.broken(index, Fault::Work(status)),
        }
    }

    fn broken(&self, index: usize, fault: Fault) -> HostError {
        HostError::Broken { target: self.target(), of: Of::Queue(self.queues[index].qid), fault }
    }

    #[cold]
    fn bad_response(&self, index: usize, bad: BadResponse) -> HostError {
        let qid = self.queues[index].qid;
        let what = match bad {
            BadResponse::Length(length) => format!("a response of {length} bytes on queue {qid}"),
            BadResponse::Cid(cid) => {
                format!("a response to command {cid} on queue {qid}, which is not in flight")
            }
            BadResponse::Sqhd(sqhd) => {
                format!("submission queue head {sqhd} of queue {qid} is outside the queue")
            }
        };
        HostError::Protocol { target: self.target(), what }
    }

    /// Ends all connections and waits a moment for the target to confirm it.
    pub fn close(mut self) {
        let open = self.disconnect();
        self.port.await_goodbye(open);
    }

    /// Tells the target that all connections end; what is left is not asked again. Returns those that were there.
    fn disconnect(&mut self) -> Vec<CmId> {
        // I/O queues first, as hosts do.
        let channels = self.queues.iter().rev().map(|queue| (queue.channel.qpn, queue.channel.cm));
        self.port.disconnect(channels);
        self.queues.iter_mut().filter_map(|queue| queue.channel.cm.take()).collect()
    }
}

impl Registrar for Link {
    fn target(&self) -> SocketAddr {
        self.port.target()
    }

    fn register(&mut self, region: &Arc<Region>, remote: RemoteAccess) -> Result<Mr, HostError> {
        self.port.register(region, remote)
    }

    fn alloc_fast_reg(&mut self) -> Result<Mr, HostError> {
        self.port.alloc_fast_reg()
    }

    fn deregister(&mut self, mr: &Mr) -> Result<(), HostError> {
        self.port.deregister(mr)
    }

    #[inline]
    fn post_memory(&mut self, queue: usize, op: SendOp, memory: &[Sge]) -> Result<(), HostError> {
        Ok(self.queues[queue].channel.post_memory(&mut self.port.device, op, memory)?)
    }

    fn transmit(&mut self, now: Instant) {
        self.port.device.transmit(now);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if self.queues.iter().any(|queue| queue.channel.cm.is_some()) {
            self.disconnect();
        }
    }
}
