//! The suite of all devices on an [`Offload`] over the fake library. Plain contexts, which never reach the library, are carried out by the
//! rig itself.
#![allow(unsafe_code, reason = "a protection domain that the fake made up")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use super::super::{ENTRIES, INLINE_DATA, Offload, Posted, SigCaps, SigQueue};
use super::device::PEER;
use super::fake::{Fake, library};
use crate::device::conformance::{MEMORY, Rig, Side, conforms};
use crate::device::soft::endpoint::CAPS;
use crate::device::{
    Device, DeviceCaps, DeviceError, NoOffload, PostError, QpCap, QpConnect, QpEvent, QpState, Qpn,
};
use crate::mem::{Access, Lkey, Mr, MrId, Pd, Region};
use crate::remote::Rkey;
use crate::signature::{SigLayout, SigStatus, Signature};
use crate::wc::{RecvExtra, Wc, WcOpcode, WcStatus};
use crate::wr::{RecvWr, SendOp, SendWr, Sge, Signal, WrId};

const QPN: Qpn = Qpn(2);
/// Our memory.
const OURS: Mr = Mr { id: MrId(0), lkey: Lkey(1), rkey: Rkey(1), addr: 1 << 32, length: MEMORY as u64 };

/// A queue pair of a NIC. Keys are dropped before what they are of.
struct Nic {
    queue: SigQueue,
    offload: Offload,
    fake: Fake,
    caps: DeviceCaps,
    depth: u32,
    state: QpState,
    next_mr: u32,
    live: u64,
    /// Transfers under way, and under which name they complete.
    transfers: VecDeque<(MrId, Option<WrId>)>,
    /// Work requests from the last signaled one on, and all.
    unsignaled: u32,
    used: u32,
    /// With the work requests that each stands for.
    done: VecDeque<(Wc, u32)>,
}

fn nic() -> Nic {
    let (fake, queue) = Fake::new(INLINE_DATA);
    fake.device().memory.insert(OURS.lkey.0, (OURS.addr, vec![0; MEMORY]));
    fake.device().peer = vec![0; MEMORY];
    let offload = Offload::new(SigCaps::new(&fake.device().caps));
    Nic {
        queue: SigQueue::new(queue),
        offload,
        fake,
        caps: DeviceCaps {
            max_send_sge: 30,
            max_sge_rd: 30,
            max_fast_reg_page_list_len: 0,
            max_pi_fast_reg_page_list_len: ENTRIES.into(),
            mem_mgt_extensions: false,
            replace_source: false,
            ..CAPS
        },
        depth: 0,
        state: QpState::Rts,
        next_mr: 1,
        live: 1,
        transfers: VecDeque::new(),
        unsignaled: 0,
        used: 0,
        done: VecDeque::new(),
    }
}

impl Nic {
    fn complete(&mut self, wr_id: WrId, status: WcStatus) {
        let wc = Wc { wr_id, qpn: QPN, status, opcode: WcOpcode::Send, byte_len: 0, extra: RecvExtra::None };
        self.done.push_back((wc, std::mem::take(&mut self.unsignaled)));
    }

    /// Takes what the library's completion queue has.
    fn poll(&mut self) {
        let polled = self.fake.device().poll();
        for (wr_id, success) in polled {
            assert!(success, "work request {wr_id} failed");
            let (mr, name) = self.transfers.pop_front().expect("transfers alone complete");
            self.offload.transferred(mr, &mut self.queue, WcStatus::Success).expect("it was under way");
            if let Some(name) = name {
                self.complete(name, WcStatus::Success);
            }
        }
    }

    /// Carries out a READ or WRITE of registered memory.
    fn copy(&mut self, wr: &SendWr<'_>) {
        let (SendOp::Read(at) | SendOp::Write(at)) = wr.op else { panic!("{:?}", wr.op) };
        assert_eq!(at.rkey, Rkey(PEER));
        let device = &mut *self.fake.device();
        let mut far = usize::try_from(at.addr).unwrap();
        for Sge { addr, length, lkey } in wr.sges {
            let (base, memory) = device.memory.get_mut(&lkey.0).expect("registered memory");
            let near = usize::try_from(addr - *base).unwrap();
            let length = *length as usize;
            let (ours, theirs) = (&mut memory[near..near + length], &mut device.peer[far..far + length]);
            match wr.op {
                SendOp::Read(_) => ours.copy_from_slice(theirs),
                _ => theirs.copy_from_slice(ours),
            }
            far += length;
        }
    }
}

impl Device for Nic {
    fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    fn alloc_pd(&mut self) -> Result<Pd, DeviceError> {
        Ok(Pd(0))
    }

    fn reg_mr(&mut self, _: Pd, _: &Arc<Region>, _: usize, _: usize, _: Access) -> Result<Mr, DeviceError> {
        Err(DeviceError::NoResources("memory: there is one region"))
    }

    fn alloc_fast_reg(&mut self, _: Pd, _: u32) -> Result<Mr, DeviceError> {
        Err(DeviceError::NoResources("fast registrations"))
    }

    fn executes(&self, signature: &Signature) -> Result<(), NoOffload> {
        self.offload.executes(signature)
    }

    fn alloc_integrity_mr(&mut self, _: Pd, pages: u32) -> Result<Mr, DeviceError> {
        let id = MrId(self.next_mr);
        let pd = self.fake.context().cast();
        let made = self.offload.alloc(id, pages, |kind, entries| {
            // SAFETY: what the fake takes for a protection domain is its device, which is dropped last.
            unsafe { library().create_key(pd, kind, entries) }
        });
        let lkey = made.map_err(|_| DeviceError::NoResources("keys"))?;
        (self.next_mr, self.live) = (self.next_mr + 1, self.live + 1);
        Ok(Mr { id, lkey, rkey: Rkey(lkey.0), addr: 0, length: 0 })
    }

    fn map_integrity(
        &mut self,
        mr: MrId,
        signature: &Signature,
        data: &[Sge],
        protection: &[Sge],
    ) -> Result<SigLayout, DeviceError> {
        self.offload.map(mr, signature, data, protection)
    }

    fn sig_status(&mut self, mr: MrId) -> Result<SigStatus, DeviceError> {
        let is_ours = self.offload.queue_of(mr).is_some();
        self.offload.status(mr, is_ours.then_some(&mut self.queue))
    }

    fn dereg_mr(&mut self, id: MrId) -> Result<(), DeviceError> {
        let is_ours = self.offload.queue_of(id).is_some();
        self.offload.free(id, is_ours.then_some(&mut self.queue))?;
        self.live -= 1;
        Ok(())
    }

    fn create_qp(&mut self, _: Pd, cap: &QpCap) -> Result<Qpn, DeviceError> {
        assert_eq!(self.depth, 0, "one queue pair a library");
        self.depth = cap.max_send_wr;
        Ok(QPN)
    }

    fn connect_qp(&mut self, _: Qpn, _: &QpConnect) -> Result<(), DeviceError> {
        Ok(())
    }

    fn error_qp(&mut self, _: Qpn) -> Result<(), DeviceError> {
        self.state = QpState::Error;
        self.fake.device().failed = true;
        self.queue.handle_drained();
        Ok(())
    }

    fn destroy_qp(&mut self, qpn: Qpn) -> Result<(), DeviceError> {
        self.error_qp(qpn)?;
        self.offload.queue_gone(qpn);
        Ok(())
    }

    fn qp_state(&self, _: Qpn) -> Option<QpState> {
        Some(self.state)
    }

    fn post_send(&mut self, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), PostError> {
        if self.state != QpState::Rts {
            return Err(PostError::BadState);
        }
        if self.used == self.depth {
            return Err(PostError::Full);
        }
        let is_signaled = wr.signal == Signal::Signaled;
        if self.offload.is_for(wr) {
            if let Posted::Transfer(mr) = self.offload.post(qpn, &mut self.queue, wr)? {
                self.transfers.push_back((mr, is_signaled.then_some(wr.wr_id)));
            }
            (self.used, self.unsignaled) = (self.used + 1, self.unsignaled + 1);
            self.poll();
        } else {
            self.copy(wr);
            (self.used, self.unsignaled) = (self.used + 1, self.unsignaled + 1);
            if is_signaled {
                self.complete(wr.wr_id, WcStatus::Success);
            }
        }
        Ok(())
    }

    fn replace_source(&mut self, _: Qpn, _: WrId, _: Sge, _: Sge) -> Result<(), DeviceError> {
        Err(DeviceError::Invalid("use: not of this device"))
    }

    fn post_recv(&mut self, _: Qpn, _: &RecvWr<'_>) -> Result<(), PostError> {
        Err(PostError::Full)
    }

    fn poll_cq(&mut self) -> Option<Wc> {
        let (wc, entries) = self.done.pop_front()?;
        self.used -= entries;
        Some(wc)
    }

    fn poll_qp_event(&mut self) -> Option<QpEvent> {
        None
    }

    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}

impl Rig for Nic {
    type Device = Self;

    const ROUNDS: u64 = 4;
    const NAMES_FIRST_FAULT: bool = false;

    fn device(&mut self) -> &mut Self {
        self
    }

    fn pd(&self) -> Pd {
        Pd(0)
    }

    fn memory(&self, side: Side) -> Mr {
        match side {
            Side::Ours => OURS,
            Side::Peer => Mr { rkey: Rkey(PEER), addr: 0, ..OURS },
        }
    }

    fn put(&mut self, side: Side, offset: usize, bytes: &[u8]) {
        let device = &mut *self.fake.device();
        let memory = match side {
            Side::Ours => &mut device.memory.get_mut(&OURS.lkey.0).expect("it was inserted").1,
            Side::Peer => &mut device.peer,
        };
        memory[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    fn bytes(&self, side: Side, offset: usize, length: usize) -> Vec<u8> {
        let device = self.fake.device();
        let memory = match side {
            Side::Ours => &device.memory[&OURS.lkey.0].1,
            Side::Peer => &device.peer,
        };
        memory[offset..offset + length].to_vec()
    }

    fn connect(&mut self, cap: &QpCap) -> Qpn {
        self.create_qp(Pd(0), cap).expect("the one queue pair")
    }

    fn disconnect(&mut self, qpn: Qpn) {
        self.destroy_qp(qpn).expect("it was connected");
    }

    fn completions(&mut self, count: usize) -> Vec<Wc> {
        let done: Vec<Wc> = std::iter::from_fn(|| self.poll_cq()).collect();
        assert!(done.len() >= count, "{} of {count} completions", done.len());
        done
    }

    fn live_mrs(&mut self) -> u64 {
        self.live
    }
}

conforms!([] nic);
