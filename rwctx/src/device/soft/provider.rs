//! The soft device as reactors drive it.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::cm::{AcceptParams, CmError, CmEvent, CmId};
use super::device::SoftDevice;
use super::driver::More;
use super::wire::RejReason;
use crate::device::Qpn;
use crate::device::provider::{Provider, ProviderCounters, Sleep};

impl Provider for SoftDevice {
    #[inline]
    fn receive(&mut self, now: Instant) -> More {
        self.receive(now)
    }

    #[inline]
    fn transmit(&mut self, now: Instant) {
        self.transmit(now);
    }

    fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.rx_fds()
    }

    fn has_unsent(&self) -> bool {
        self.tx_fds().next().is_some()
    }

    fn prepare_sleep(&mut self) -> Sleep {
        // Sockets say so by themselves.
        Sleep::Ready
    }

    fn woken(&mut self) {}

    fn number_next_qp(&mut self, qpn: Option<Qpn>) {
        self.number_next_qp(qpn);
    }

    fn failure(&self) -> Option<&str> {
        None
    }

    fn counters(&self) -> ProviderCounters {
        ProviderCounters { soft: Some(self.counters()), cm: self.cm_counters(), verbs: None }
    }

    fn listen(&mut self, port: u16) -> io::Result<()> {
        let in_use = |_| io::Error::from(io::ErrorKind::AddrInUse);
        self.cm().map_or(Ok(()), |cm| cm.listen(port).map_err(in_use))
    }

    fn unlisten(&mut self, port: u16) {
        if let Some(cm) = self.cm() {
            cm.unlisten(port);
        }
    }

    fn accept(&mut self, now: Instant, id: CmId, with: &AcceptParams<'_>) -> Result<(), CmError> {
        self.cm().map_or(Err(CmError::UnknownId), |cm| cm.accept(now, id, with))
    }

    fn reject(&mut self, now: Instant, id: CmId, private: &[u8]) -> Result<(), CmError> {
        self.cm().map_or(Err(CmError::UnknownId), |cm| cm.reject(now, id, RejReason::Consumer, private))
    }

    fn disconnect(&mut self, now: Instant, id: CmId) -> Result<(), CmError> {
        self.cm().map_or(Err(CmError::UnknownId), |cm| cm.disconnect(now, id))
    }

    fn handle_qp_traffic(&mut self, now: Instant, id: CmId) {
        if let Some(cm) = self.cm() {
            cm.handle_qp_traffic(now, id);
        }
    }

    fn poll_cm_event(&mut self, now: Instant) -> Option<CmEvent> {
        self.poll_cm_event(now)
    }
}
