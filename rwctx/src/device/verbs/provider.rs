//! The verbs device as reactors drive it.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use super::cm::Cm;
use super::device::{VerbsDevice, fail};
use crate::device::provider::{Provider, ProviderCounters, Sleep, VerbsCounters};
use crate::device::soft::cm::{AcceptParams, CmError, CmEvent, CmId};
use crate::device::soft::driver::More;
use crate::device::{QpEvent, QpState, Qpn};

/// How often a reactor that does not sleep looks at what needs a system call: connections, and events of the device.
const CONTROL: Duration = Duration::from_millis(4);

impl Provider for VerbsDevice {
    fn receive(&mut self, now: Instant) -> More {
        if self.control_at.is_none_or(|at| now >= at) {
            self.control_at = Some(now + CONTROL);
            self.poll_async_events();
            if let Some(cm) = &mut self.cm {
                cm.receive(now);
                if cm.device_removed() {
                    fail(&mut self.failure, format!("{} was removed", self.name));
                }
            }
        }
        More::No
    }

    fn transmit(&mut self, _: Instant) {
        let Self { gathered, qps, counters, events, .. } = self;
        for qpn in gathered.drain(..) {
            let Some(qp) = qps.get_mut(&qpn) else { continue };
            counters.send_calls += 1;
            if let Err(error) = qp.pair.post_send(&mut qp.batch) {
                tracing::debug!(%error, qpn = qpn.0, "the device does not take sends");
                qp.state = QpState::Error;
                counters.qp_failures += 1;
                events.push_back(QpEvent::Fatal(qpn));
            }
        }
    }

    fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let cm = self.cm.as_ref().map(Cm::fd);
        [self.channel.fd(), self.context.async_fd()].into_iter().chain(cm)
    }

    fn has_unsent(&self) -> bool {
        false
    }

    fn prepare_sleep(&mut self) -> Sleep {
        for cq in self.cqs.iter_mut().filter(|cq| !cq.is_armed) {
            match cq.queue.arm() {
                Ok(()) => cq.is_armed = true,
                Err(error) => fail(&mut self.failure, format!("completion queue of {}: {error}", self.name)),
            }
        }
        // What completed before the queue was armed is not announced.
        if self.fill() || !self.events.is_empty() { Sleep::NotNow } else { Sleep::Ready }
    }

    fn woken(&mut self) {
        self.control_at = None;
        // Another look would cost a system call that finds nothing.
        while self.cqs.iter().any(|cq| cq.is_armed)
            && let Some(of) = self.channel.take(&self.queues)
        {
            self.counters.notifications += 1;
            if let Some(cq) = of.and_then(|index| self.cqs.get_mut(index)) {
                cq.is_armed = false;
            }
        }
    }

    fn number_next_qp(&mut self, _: Option<Qpn>) {}

    fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    fn counters(&self) -> ProviderCounters {
        let cm = self.cm.as_ref().map(|cm| cm.connections.counters()).unwrap_or_default();
        ProviderCounters {
            verbs: Some(VerbsCounters {
                requests: cm.requests,
                crowded_out: cm.crowded_out,
                displaced: cm.displaced,
                expired: cm.expired,
                cm_failures: cm.failures,
                memory_regions: self.regions.len() as u64,
                ..self.counters
            }),
            ..ProviderCounters::default()
        }
    }

    fn listen(&mut self, port: u16) -> io::Result<()> {
        self.cm.as_mut().map_or(Ok(()), |cm| cm.listen(port))
    }

    fn unlisten(&mut self, port: u16) {
        if let Some(cm) = &mut self.cm {
            cm.unlisten(port);
        }
    }

    fn accept(&mut self, _: Instant, id: CmId, with: &AcceptParams<'_>) -> Result<(), CmError> {
        self.cm.as_mut().map_or(Err(CmError::UnknownId), |cm| cm.connections.accept(id, with))
    }

    fn reject(&mut self, _: Instant, id: CmId, private: &[u8]) -> Result<(), CmError> {
        self.cm.as_mut().map_or(Err(CmError::UnknownId), |cm| cm.connections.reject(id, private))
    }

    fn disconnect(&mut self, now: Instant, id: CmId) -> Result<(), CmError> {
        self.cm.as_mut().map_or(Err(CmError::UnknownId), |cm| cm.connections.disconnect(now, id))
    }

    fn handle_qp_traffic(&mut self, _: Instant, id: CmId) {
        if let Some(cm) = &mut self.cm {
            cm.connections.handle_qp_traffic(id);
        }
    }

    fn poll_cm_event(&mut self, _: Instant) -> Option<CmEvent> {
        self.cm.as_mut()?.connections.poll_event()
    }
}
