//! The fake library's work requests: the calls that make a list of them. (rw-contexts 2.6.5)
#![allow(unsafe_code, reason = "C functions that are called through pointers")]

use std::ffi::c_int;
use std::ptr;

use nix::errno::Errno;

use super::super::ffi;
use super::device::{Block, Device, Domain, Layout, NewBlock, Remembered, Request, What, size};
use super::fake::Qp;

/// A list of work requests that is being made.
#[derive(Debug, Default)]
pub(super) struct Posting {
    started: bool,
    /// The first error: 0, or an errno.
    error: c_int,
    requests: Vec<Request>,
    configuring: Option<Configuring>,
    /// Keys that the list configures.
    configured: Vec<u32>,
}

/// A key that is being configured.
#[derive(Debug)]
struct Configuring {
    request: Request,
    key: u32,
    left: u8,
    access: Option<u32>,
    layout: Option<Layout>,
    entries: u32,
    block: Option<(Block, bool)>,
}

/// The calls of a queue pair.
pub(super) fn calls() -> (ffi::QpEx, ffi::DvQpEx) {
    let ex = ffi::QpEx {
        qp_base: [0; 20],
        comp_mask: 0,
        wr_id: 0,
        wr_flags: 0,
        others: [ptr::null(); 3],
        wr_local_inv: Some(wr_local_inv),
        wr_rdma_read: Some(wr_rdma_read),
        wr_rdma_write: Some(wr_rdma_write),
        more: [ptr::null(); 9],
        wr_set_sge: Some(wr_set_sge),
        wr_set_sge_list: ptr::null(),
        wr_start: Some(wr_start),
        wr_complete: Some(wr_complete),
        wr_abort: Some(wr_abort),
    };
    let dv = ffi::DvQpEx {
        comp_mask: 0,
        others: [ptr::null(); 3],
        wr_mkey_configure: Some(mkey_configure),
        wr_set_mkey_access_flags: Some(set_access_flags),
        wr_set_mkey_layout_list: Some(set_layout_list),
        wr_set_mkey_layout_interleaved: Some(set_layout_interleaved),
        wr_set_mkey_sig_block: Some(set_sig_block),
        more: [ptr::null(); 4],
    };
    (ex, dv)
}

/// What a call on a queue pair works on.
fn with<Q>(qp: *mut Q, act: impl FnOnce(&mut Posting, &mut Device, (u64, u32), u32)) {
    // SAFETY: queue pairs are all made here, and the caller passes either of the structures in it.
    let qp: &Qp = unsafe { &*qp.cast() };
    let mut posting = qp.posting.borrow_mut();
    // SAFETY: lives as long as its queue pair.
    let mut device = unsafe { qp.device.as_ref() }.borrow_mut();
    if !posting.started {
        device.mistake("a work request was made outside a list");
        return;
    }
    if posting.error == 0 {
        act(&mut posting, &mut device, (qp.ex.wr_id, qp.ex.wr_flags), qp.max_inline_data + 4);
    }
}

/// The queue pair that a structure lies in.
fn of_dv(dv: *mut ffi::DvQpEx) -> *mut Qp {
    // SAFETY: it lies in a queue pair, at this offset.
    unsafe { dv.byte_sub(std::mem::offset_of!(Qp, dv)) }.cast()
}

unsafe extern "C" fn wr_start(qp: *mut ffi::QpEx) {
    // SAFETY: queue pairs are all made here.
    let qp: &Qp = unsafe { &*qp.cast() };
    if qp.posting.borrow().started {
        // SAFETY: lives as long as its queue pair.
        unsafe { qp.device.as_ref() }.borrow_mut().mistake("a list was started in another");
    }
    *qp.posting.borrow_mut() = Posting { started: true, ..Posting::default() };
}

unsafe extern "C" fn wr_complete(qp: *mut ffi::QpEx) -> c_int {
    let mut error = 0;
    with(qp, |posting, device, _, _| posting.end_request(device));
    // SAFETY: queue pairs are all made here.
    let qp: &Qp = unsafe { &*qp.cast() };
    let posting = qp.posting.take();
    // SAFETY: lives as long as its queue pair.
    let mut device = unsafe { qp.device.as_ref() }.borrow_mut();
    if posting.error == 0 {
        posting.requests.iter().for_each(|request| device.execute(request));
    } else {
        error = posting.error;
        forget(&posting, &mut device);
    }
    error
}

unsafe extern "C" fn wr_abort(qp: *mut ffi::QpEx) {
    // SAFETY: queue pairs are all made here.
    let qp: &Qp = unsafe { &*qp.cast() };
    let posting = qp.posting.take();
    // SAFETY: lives as long as its queue pair.
    let mut device = unsafe { qp.device.as_ref() }.borrow_mut();
    if !posting.started {
        device.mistake("no list was started");
    }
    forget(&posting, &mut device);
}

/// What the library remembers of keys whose configuration was not posted is not defined.
fn forget(posting: &Posting, device: &mut Device) {
    for key in &posting.configured {
        if let Some(key) = device.keys.get_mut(key) {
            key.remembered = Remembered::Undefined;
        }
    }
}

unsafe extern "C" fn wr_rdma_read(qp: *mut ffi::QpEx, rkey: u32, remote: u64) {
    with(qp, |posting, device, named, _| posting.transfer(device, named, true, rkey, remote));
}

unsafe extern "C" fn wr_rdma_write(qp: *mut ffi::QpEx, rkey: u32, remote: u64) {
    with(qp, |posting, device, named, _| posting.transfer(device, named, false, rkey, remote));
}

unsafe extern "C" fn wr_local_inv(qp: *mut ffi::QpEx, key: u32) {
    with(qp, |posting, device, named, _| posting.begin(device, named, What::Invalidate { key }));
}

unsafe extern "C" fn wr_set_sge(qp: *mut ffi::QpEx, lkey: u32, addr: u64, length: u32) {
    with(qp, |posting, device, _, _| match posting.requests.last_mut().map(|request| &mut request.what) {
        Some(What::Transfer { sge: sge @ None, .. }) => *sge = Some(ffi::Sge { addr, length, lkey }),
        _ => device.mistake("memory was given to no request"),
    });
}

unsafe extern "C" fn mkey_configure(
    dv: *mut ffi::DvQpEx,
    mkey: *mut ffi::Mkey,
    setters: u8,
    attr: *mut ffi::MkeyConfAttr,
) {
    // SAFETY: keys are all made here.
    let lkey = unsafe { (*mkey).lkey };
    // SAFETY: the caller's structure.
    let attr = unsafe { &*attr };
    with(of_dv(dv), |posting, device, named, room| {
        posting.end_request(device);
        let unknown = attr.conf_flags & !ffi::MKEY_CONF_RESET_SIG_ATTR != 0 || attr.comp_mask != 0;
        if named.1 & ffi::SEND_INLINE == 0 || unknown || lkey & 0xFF != 0 {
            posting.error = Errno::EOPNOTSUPP as c_int;
            return;
        }
        let key = device.keys.get_mut(&lkey).expect("a key that exists");
        key.remembered = match (attr.conf_flags, key.remembered) {
            (ffi::MKEY_CONF_RESET_SIG_ATTR, _) => Remembered::Reset,
            (_, Remembered::Updated) => Remembered::Set,
            (_, Remembered::Reset) => Remembered::Init,
            (_, other) => other,
        };
        posting.configured.push(lkey);
        let what = What::Configure { key: lkey, access: None, layout: None, block: NewBlock::Stays };
        let request = Request { wr_id: named.0, signaled: named.1 & ffi::SEND_SIGNALED != 0, what };
        let (access, layout, block) = (None, None, None);
        posting.configuring =
            Some(Configuring { request, key: lkey, left: setters, access, layout, entries: 0, block });
        posting.set(device, room, |_, _| Ok(0));
    });
}

unsafe extern "C" fn set_access_flags(dv: *mut ffi::DvQpEx, access: u32) {
    with(of_dv(dv), |posting, device, _, room| {
        posting.set(device, room, |of, _| {
            if access & !0xF != 0 || of.access.replace(access).is_some() {
                return Err(Errno::EINVAL);
            }
            Ok(1)
        });
    });
}

unsafe extern "C" fn set_layout_list(dv: *mut ffi::DvQpEx, count: u16, sges: *const ffi::Sge) {
    // SAFETY: the caller's array.
    let list = unsafe { std::slice::from_raw_parts(sges, count.into()) }.to_vec();
    with(of_dv(dv), |posting, device, _, room| {
        posting.set(device, room, |of, device| {
            if u32::from(count) > (room / 16).min(device.keys[&of.key].entries.into()) {
                return Err(Errno::ENOMEM);
            }
            of.entries = count.into();
            of.layout.replace(Layout::List(list)).map_or(Ok(1), |_| Err(Errno::EINVAL))
        });
    });
}

unsafe extern "C" fn set_layout_interleaved(
    dv: *mut ffi::DvQpEx,
    repeat: u32,
    count: u16,
    turns: *const ffi::MrInterleaved,
) {
    // SAFETY: the caller's array.
    let turns = unsafe { std::slice::from_raw_parts(turns, count.into()) }.to_vec();
    with(of_dv(dv), |posting, device, _, room| {
        posting.set(device, room, |of, device| {
            let entries = u32::from(device.keys[&of.key].entries);
            if u32::from(count) > (room / 16 - 1).min(entries) {
                return Err(Errno::ENOMEM);
            }
            if u32::from(count) + 1 > entries {
                device.mistake("an interleaved layout takes one entry more");
            }
            if turns
                .iter()
                .any(|turn| turn.bytes_count > 0xFFFF || turn.bytes_count + turn.bytes_skip > 0xFFFF)
            {
                device.mistake("16 bits of an interleaved piece count");
            }
            of.entries = u32::from(count) + 1;
            of.layout.replace(Layout::Interleaved(repeat, turns)).map_or(Ok(1), |_| Err(Errno::EINVAL))
        });
    });
}

unsafe extern "C" fn set_sig_block(dv: *mut ffi::DvQpEx, attr: *const ffi::SigBlockAttr) {
    // SAFETY: the caller's structures, here and below.
    let attr = unsafe { &*attr };
    with(of_dv(dv), |posting, device, _, room| {
        posting.set(device, room, |of, device| {
            let copies = attr.flags & ffi::SIG_BLOCK_ATTR_FLAG_COPY_MASK != 0;
            let unknown = attr.flags & !ffi::SIG_BLOCK_ATTR_FLAG_COPY_MASK != 0 || attr.comp_mask != 0;
            let neither = attr.mem.is_null() && attr.wire.is_null();
            if !device.keys[&of.key].signature || of.block.is_some() || neither || unknown {
                return Err(Errno::EINVAL);
            }
            // SAFETY: as above.
            let (mem, wire) = (unsafe { attr.mem.as_ref() }, unsafe { attr.wire.as_ref() });
            let mem = mem.map(|domain| read_domain(domain, device)).transpose()?;
            let wire = wire.map(|domain| read_domain(domain, device)).transpose()?;
            let copy_mask = match (mem, wire) {
                _ if copies => attr.copy_mask,
                (Some(mem), Some(wire)) if mem.block == wire.block => equal(&mem.dif, &wire.dif),
                _ => 0,
            };
            of.block = Some((Block { mem, wire, check_mask: attr.check_mask, copy_mask }, copies));
            Ok(1)
        });
    });
}

/// What is copied when nobody says.
fn equal(mem: &ffi::SigT10Dif, wire: &ffi::SigT10Dif) -> u8 {
    let guard = if (mem.bg_type, mem.bg) == (wire.bg_type, wire.bg) { 0xC0 } else { 0 };
    let app_tag = if mem.app_tag == wire.app_tag { 0x30 } else { 0 };
    let ref_tag = if mem.ref_tag == wire.ref_tag { 0x0F } else { 0 };
    guard | app_tag | ref_tag
}

fn read_domain(domain: &ffi::SigBlockDomain, device: &mut Device) -> Result<Domain, Errno> {
    const SIZES: [usize; 5] = [512, 520, 4048, 4096, 4160];
    let block = SIZES.get(domain.block_size as usize).copied().ok_or(Errno::EINVAL)?;
    if domain.comp_mask != 0 || domain.sig_type > ffi::SIG_TYPE_CRC {
        return Err(Errno::EINVAL);
    }
    if domain.sig_type == ffi::SIG_TYPE_CRC {
        // SAFETY: the caller's structure, as the type says.
        let crc = unsafe { &*domain.sig.cast::<ffi::SigCrc>() };
        let ones = if crc.crc_type == ffi::CRC_TYPE_CRC64_XP10 { u64::MAX } else { u32::MAX.into() };
        if crc.crc_type > ffi::CRC_TYPE_CRC64_XP10 || crc.seed != 0 && crc.seed != ones {
            return Err(Errno::EINVAL);
        }
        device.mistake("nobody here asks for bare checksums");
        return Err(Errno::EINVAL);
    }
    // SAFETY: the caller's structure, as the type says.
    let dif = unsafe { *domain.sig.cast::<ffi::SigT10Dif>() };
    if dif.bg != 0 && dif.bg != 0xFFFF || dif.bg_type > ffi::T10DIF_CSUM || dif.flags & !7 != 0 {
        return Err(Errno::EINVAL);
    }
    let caps = device.caps;
    if caps.block_size & (1 << domain.block_size) == 0 || caps.t10dif_bg & (1 << dif.bg_type) == 0 {
        device.mistake("the device knows no such block or guard");
    }
    Ok(Domain { block, dif })
}

impl Posting {
    /// A setter of the key that is being configured, which says how many of those announced it was.
    fn set(
        &mut self,
        device: &mut Device,
        room: u32,
        set: impl FnOnce(&mut Configuring, &mut Device) -> Result<u8, Errno>,
    ) {
        let Some(of) = &mut self.configuring else {
            self.error = Errno::EINVAL as c_int;
            return;
        };
        match set(of, device) {
            Ok(count) => of.left -= count,
            Err(errno) => self.error = errno as c_int,
        }
        if self.error != 0 || of.left > 0 {
            return;
        }
        let of = self.configuring.take().expect("one is being configured");
        match of.finish(device, room) {
            Ok(request) => self.requests.push(request),
            Err(errno) => self.error = errno as c_int,
        }
    }

    /// Nothing of the last request may be missing.
    fn end_request(&mut self, device: &mut Device) {
        if self.configuring.take().is_some() {
            device.mistake("fewer setters than were announced: the key is not configured");
        }
        if let Some(Request { what: What::Transfer { sge: None, .. }, .. }) = self.requests.last() {
            device.mistake("a transfer without memory");
        }
    }

    fn begin(&mut self, device: &mut Device, named: (u64, u32), what: What) {
        self.end_request(device);
        self.requests.push(Request { wr_id: named.0, signaled: named.1 & ffi::SEND_SIGNALED != 0, what });
    }

    fn transfer(&mut self, device: &mut Device, named: (u64, u32), read: bool, rkey: u32, remote: u64) {
        self.begin(device, named, What::Transfer { read, rkey, remote, sge: None });
    }
}

impl Configuring {
    fn finish(self, device: &mut Device, room: u32) -> Result<Request, Errno> {
        let layout_bytes = (self.entries * 16).next_multiple_of(64);
        if self.block.is_some() && layout_bytes + 64 > room {
            return Err(Errno::ENOMEM);
        }
        if self.layout.as_ref().is_some_and(|layout| u32::try_from(size(layout)).is_err()) {
            return Err(Errno::EINVAL);
        }
        if let Some((Block { mem, wire: Some(wire), .. }, true)) = self.block
            && mem.is_none_or(|mem| mem.block != wire.block)
        {
            return Err(Errno::EINVAL);
        }
        let key = device.keys.get_mut(&self.key).expect("a key that exists");
        let block = match (self.block, key.remembered) {
            (Some((block, _)), _) => {
                key.remembered = Remembered::Updated;
                NewBlock::Set(block)
            }
            (None, Remembered::Init | Remembered::Reset) => NewBlock::None,
            (None, Remembered::Updated | Remembered::Set) => NewBlock::Stays,
            (None, Remembered::Undefined) => {
                device.mistake("what the library remembers of the signature is not defined");
                NewBlock::None
            }
        };
        let what = What::Configure { key: self.key, access: self.access, layout: self.layout, block };
        Ok(Request { what, ..self.request })
    }
}
