//! A device that moves nothing: it takes what is posted, executes local operations on keys at once, and counts. For tests of what
//! stands above a device, which it can fail at any step, and for measuring it.
//!
//! Nothing completes by itself: whoever posted knows what it posted.

use std::sync::Arc;
use std::time::Instant;

use super::{Device, DeviceCaps, DeviceError, PostError, QpCap, QpConnect, QpEvent, QpState, Qpn};
use crate::mem::{Access, Lkey, Mr, MrId, PageList, Pd, Region};
use crate::remote::Rkey;
use crate::signature::{SigLayout, SigStatus, Signature};
use crate::wc::Wc;
use crate::wr::{RecvWr, SendOp, SendWr, Sge, WrId};

/// A device without a network.
#[derive(Debug)]
pub struct NullDevice {
    caps: DeviceCaps,
    /// By number, from 1 on; `None` when gone.
    mrs: Vec<Option<NullMr>>,
    next_pd: u32,
    next_qpn: u32,
    posted: u64,
    registered: u64,
    /// Steps that succeed; then one fails, and all after it succeed again.
    until_failure: Option<u64>,
}

#[derive(Clone, Copy, Debug)]
struct NullMr {
    key: u32,
    /// Pages of a fast registration; `None` of registered memory.
    pages: Option<u32>,
    valid: bool,
    /// Of an integrity registration.
    integrity: Option<NullIntegrity>,
}

#[derive(Clone, Copy, Debug, Default)]
struct NullIntegrity {
    mapped: bool,
    /// Registered, and its status not asked for.
    unasked: bool,
}

impl NullDevice {
    /// A device with these capabilities.
    #[must_use]
    pub fn new(caps: DeviceCaps) -> Self {
        Self { caps, mrs: Vec::new(), next_pd: 1, next_qpn: 2, posted: 0, registered: 0, until_failure: None }
    }

    /// The next `steps` calls that can fail succeed, the one after them fails.
    pub fn fail_after(&mut self, steps: u64) {
        self.until_failure = Some(steps);
    }

    /// Whether the failure that [`Self::fail_after`] ordered is still to come.
    #[must_use]
    pub fn will_fail(&self) -> bool {
        self.until_failure.is_some()
    }

    /// Regions that were made and not given back.
    #[must_use]
    pub fn live_mrs(&self) -> usize {
        self.mrs.iter().flatten().count()
    }

    /// Fast registrations whose key is valid.
    #[must_use]
    pub fn valid_mrs(&self) -> usize {
        self.mrs.iter().flatten().filter(|mr| mr.pages.is_some() && mr.valid).count()
    }

    /// Work requests posted.
    #[must_use]
    pub fn posted(&self) -> u64 {
        self.posted
    }

    /// Fast registrations among them.
    #[must_use]
    pub fn registered(&self) -> u64 {
        self.registered
    }

    #[inline]
    fn fails(&mut self) -> bool {
        match &mut self.until_failure {
            None => false,
            Some(0) => {
                self.until_failure = None;
                true
            }
            Some(steps) => {
                *steps -= 1;
                false
            }
        }
    }

    fn make_mr(&mut self, pages: Option<u32>, addr: u64, length: u64) -> Result<Mr, DeviceError> {
        if self.fails() {
            return Err(DeviceError::NoResources("memory regions"));
        }
        let number = u32::try_from(self.mrs.len() + 1).map_err(|_| DeviceError::NoResources("numbers"))?;
        let key = number << 8;
        self.mrs.push(Some(NullMr { key, pages, valid: pages.is_none(), integrity: None }));
        Ok(Mr { id: MrId(number), lkey: Lkey(key), rkey: Rkey(key), addr, length })
    }

    fn mr(&mut self, number: u32) -> Option<&mut NullMr> {
        self.mrs.get_mut(number.checked_sub(1)? as usize)?.as_mut()
    }

    /// Executes an operation on a key.
    fn execute(&mut self, wr: &SendWr<'_>) -> Result<(), PostError> {
        match wr.op {
            SendOp::LocalInv(key) => {
                let mr = self.mr(key.0 >> 8).filter(|mr| mr.pages.is_some() && mr.valid && mr.key == key.0);
                mr.ok_or(PostError::BadState)?.valid = false;
            }
            SendOp::RegMr { mr, key, .. } => {
                let mr = self.mr(mr.0).ok_or(PostError::BadState)?;
                let mut list = PageList::default();
                let pages = mr.pages.ok_or(PostError::BadState)?;
                if !wr.sges.iter().all(|sge| list.push(sge.addr, sge.length, pages)) {
                    return Err(PostError::BadSge);
                }
                if mr.valid || mr.key >> 8 != key.0 >> 8 || mr.key == key.0 {
                    return Err(PostError::BadState);
                }
                (mr.key, mr.valid) = (key.0, true);
                self.registered += 1;
            }
            SendOp::RegMrIntegrity { mr, key, .. } => {
                let mr = self.mr(mr.0).ok_or(PostError::BadState)?;
                let integrity = mr.integrity.as_mut().ok_or(PostError::BadState)?;
                if !integrity.mapped || integrity.unasked {
                    return Err(PostError::Integrity);
                }
                if mr.valid || mr.key >> 8 != key.0 >> 8 || mr.key == key.0 {
                    return Err(PostError::BadState);
                }
                *integrity = NullIntegrity { mapped: false, unasked: true };
                (mr.key, mr.valid) = (key.0, true);
                self.registered += 1;
            }
            SendOp::ReadWithInv(_) => {
                let key = wr.sges.first().map_or(0, |sge| sge.lkey.0);
                let mr = self.mr(key >> 8).filter(|mr| mr.pages.is_some() && mr.valid && mr.key == key);
                mr.ok_or(PostError::BadState)?.valid = false;
            }
            _ => {}
        }
        Ok(())
    }
}

impl Device for NullDevice {
    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn alloc_pd(&mut self) -> Result<Pd, DeviceError> {
        if self.fails() {
            return Err(DeviceError::NoResources("protection domains"));
        }
        self.next_pd += 1;
        Ok(Pd(self.next_pd - 1))
    }

    fn reg_mr(
        &mut self,
        _pd: Pd,
        region: &Arc<Region>,
        offset: usize,
        length: usize,
        _access: Access,
    ) -> Result<Mr, DeviceError> {
        self.make_mr(None, region.addr() + offset as u64, length as u64)
    }

    fn alloc_fast_reg(&mut self, _pd: Pd, pages: u32) -> Result<Mr, DeviceError> {
        if pages > self.caps.max_fast_reg_page_list_len {
            return Err(DeviceError::Invalid("number of pages"));
        }
        self.make_mr(Some(pages), 0, 0)
    }

    fn alloc_integrity_mr(&mut self, _pd: Pd, pages: u32) -> Result<Mr, DeviceError> {
        if pages == 0 || pages > self.caps.max_pi_fast_reg_page_list_len {
            return Err(DeviceError::Invalid("number of pages"));
        }
        let mr = self.make_mr(Some(pages), 0, 0)?;
        if let Some(made) = self.mr(mr.id.0) {
            made.integrity = Some(NullIntegrity::default());
        }
        Ok(mr)
    }

    fn map_integrity(
        &mut self,
        mr: MrId,
        signature: &Signature,
        data: &[Sge],
        protection: &[Sge],
    ) -> Result<SigLayout, DeviceError> {
        if self.fails() {
            return Err(DeviceError::NoResources("memory"));
        }
        let mr = self.mr(mr.0).ok_or(DeviceError::Unknown("memory region"))?;
        let (Some(pages), Some(integrity)) = (mr.pages, mr.integrity.as_mut()) else {
            return Err(DeviceError::Invalid("use: no integrity region"));
        };
        let mut lengths = [0; 2];
        for (list, length) in [data, protection].into_iter().zip(&mut lengths) {
            let mut mapped = PageList::default();
            if !list.iter().all(|sge| mapped.push(sge.addr, sge.length, pages)) {
                return Err(DeviceError::Invalid("list: its pages"));
            }
            *length = mapped.length;
        }
        let layout = signature.layout(lengths[0], lengths[1]);
        let layout = layout.map_err(|_| DeviceError::Invalid("lengths of the lists"))?;
        integrity.mapped = true;
        Ok(layout)
    }

    fn sig_status(&mut self, mr: MrId) -> Result<SigStatus, DeviceError> {
        let mr = self.mr(mr.0).ok_or(DeviceError::Unknown("memory region"))?;
        let integrity = mr.integrity.as_mut().filter(|integrity| integrity.unasked);
        let integrity =
            integrity.ok_or(DeviceError::Invalid("query: nothing was registered since the last"))?;
        integrity.unasked = false;
        Ok(SigStatus::Clean)
    }

    fn dereg_mr(&mut self, id: MrId) -> Result<(), DeviceError> {
        let place = (id.0.checked_sub(1)).and_then(|index| self.mrs.get_mut(index as usize));
        place.and_then(Option::take).map(drop).ok_or(DeviceError::Unknown("memory region"))
    }

    fn create_qp(&mut self, _pd: Pd, cap: &QpCap) -> Result<Qpn, DeviceError> {
        if cap.max_send_wr > self.caps.max_qp_wr || cap.max_send_sge > self.caps.max_send_sge {
            return Err(DeviceError::Invalid("size of the queue pair"));
        }
        if self.fails() {
            return Err(DeviceError::NoResources("queue pairs"));
        }
        self.next_qpn += 1;
        Ok(Qpn(self.next_qpn - 1))
    }

    fn connect_qp(&mut self, _qpn: Qpn, _to: &QpConnect) -> Result<(), DeviceError> {
        if self.fails() { Err(DeviceError::Invalid("state")) } else { Ok(()) }
    }

    fn error_qp(&mut self, _qpn: Qpn) -> Result<(), DeviceError> {
        Ok(())
    }

    fn destroy_qp(&mut self, _qpn: Qpn) -> Result<(), DeviceError> {
        Ok(())
    }

    fn qp_state(&self, qpn: Qpn) -> Option<QpState> {
        (2..self.next_qpn).contains(&qpn.0).then_some(QpState::Rts)
    }

    #[inline]
    fn post_send(&mut self, _qpn: Qpn, wr: &SendWr<'_>) -> Result<(), PostError> {
        if self.fails() {
            return Err(PostError::Full);
        }
        if !matches!(wr.op, SendOp::Read(_) | SendOp::Write(_)) {
            self.execute(wr)?;
        }
        self.posted += 1;
        Ok(())
    }

    fn replace_source(&mut self, _qpn: Qpn, _wr_id: WrId, _from: Sge, _to: Sge) -> Result<(), DeviceError> {
        Err(DeviceError::Invalid("use: nothing is sent"))
    }

    fn post_recv(&mut self, _qpn: Qpn, _wr: &RecvWr<'_>) -> Result<(), PostError> {
        if self.fails() { Err(PostError::Full) } else { Ok(()) }
    }

    fn poll_cq(&mut self) -> Option<Wc> {
        None
    }

    fn poll_qp_event(&mut self) -> Option<QpEvent> {
        None
    }

    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}
