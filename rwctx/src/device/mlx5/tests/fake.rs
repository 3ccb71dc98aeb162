//! libmlx5 for the tests: the same functions behind the same binary interface, with every rule of the documentation, those that the
//! library leaves unchecked too. Work requests are executed when they are posted. (rw-contexts 2.6.4, 2.6.5)
#![allow(unsafe_code, reason = "C functions that are called through pointers")]

use std::cell::RefCell;
use std::ffi::c_int;
use std::ptr::{self, NonNull};

use nix::errno::Errno;

use super::super::calls::RawQueue;
use super::super::ffi;
use super::super::library::{Functions, Library};
use super::super::size::QueueSize;
use super::device::{Device, Key};
use super::posting::{Posting, calls};

/// A library with one device and one queue pair. When it goes, nobody may have made a mistake that was not expected.
#[derive(Debug)]
pub(super) struct Fake {
    /// Shared with the objects that were made: freed last.
    device: NonNull<RefCell<Device>>,
    qp: *mut Qp,
}

/// A queue pair. The structures that the caller looks into come first.
#[repr(C)]
pub(super) struct Qp {
    pub(super) ex: ffi::QpEx,
    pub(super) dv: ffi::DvQpEx,
    pub(super) device: NonNull<RefCell<Device>>,
    pub(super) posting: RefCell<Posting>,
    pub(super) max_inline_data: u32,
}

/// A key. What the caller looks into comes first.
#[repr(C)]
struct Mkey {
    shown: ffi::Mkey,
    device: NonNull<RefCell<Device>>,
}

impl Fake {
    /// A library, and its queue pair whose requests can hold so much themselves.
    pub(super) fn new(max_inline_data: u32) -> (Self, RawQueue) {
        let caps = ffi::SigCaps { block_size: 0x1F, block_prot: 3, t10dif_bg: 3, crc_type: 7 };
        let device = Device { caps, next_index: 0x12, ..Device::default() };
        let device = NonNull::from(Box::leak(Box::new(RefCell::new(device))));
        let size =
            QueueSize { max_send_wr: 64, max_recv_wr: 1, max_send_sge: 1, max_recv_sge: 1, max_inline_data };
        // SAFETY: what the fake takes for a context, a protection domain or a completion queue is its device.
        let made = unsafe { library().create_qp(device.cast(), device.cast(), device.cast(), &size) };
        let (qp, granted) = made.expect("a queue pair");
        // SAFETY: as above; it lives as long as the fake, which tests drop last.
        let queue =
            unsafe { library().queue(qp, device.cast(), granted) }.expect("a queue pair with all calls");
        (Self { device, qp: qp.as_ptr().cast() }, queue)
    }

    pub(super) fn device(&self) -> std::cell::RefMut<'_, Device> {
        // SAFETY: lives as long as the fake.
        unsafe { self.device.as_ref() }.borrow_mut()
    }

    pub(super) fn context(&self) -> NonNull<ffi::Context> {
        self.device.cast()
    }

    /// Takes the mistakes that were made.
    pub(super) fn mistakes(&self) -> Vec<String> {
        std::mem::take(&mut self.device().mistakes)
    }

    pub(super) fn qp(&self) -> *mut ffi::QpEx {
        self.qp.cast()
    }

    pub(super) fn ex(&self) -> &ffi::QpEx {
        // SAFETY: lives as long as the fake.
        unsafe { &(*self.qp).ex }
    }

    pub(super) fn dv_ex(&self) -> &ffi::DvQpEx {
        // SAFETY: lives as long as the fake.
        unsafe { &(*self.qp).dv }
    }

    pub(super) fn dv(&self) -> *mut ffi::DvQpEx {
        // SAFETY: lives as long as the fake.
        unsafe { &raw mut (*self.qp).dv }
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            assert_eq!(self.mistakes(), [""; 0]);
        }
        // SAFETY: made by `create_qp`, and nobody uses it any more.
        drop(unsafe { Box::from_raw(self.qp) });
        // SAFETY: made by `new`; keys that are left do not look at it.
        drop(unsafe { Box::from_raw(self.device.as_ptr()) });
    }
}

/// The functions of the fake.
pub(super) fn library() -> Library {
    Library::of(Functions {
        open_device,
        query_device,
        create_qp,
        qp_to_qp_ex,
        dv_qp_ex_from,
        create_mkey,
        destroy_mkey,
        mkey_check,
    })
}

fn device<'d, T>(handle: *mut T) -> std::cell::RefMut<'d, Device> {
    // SAFETY: contexts, protection domains and completion queues are devices here.
    unsafe { &*handle.cast::<RefCell<Device>>() }.borrow_mut()
}

fn null<T>(errno: Errno) -> *mut T {
    errno.set();
    ptr::null_mut()
}

unsafe extern "C" fn open_device(of: *mut ffi::Device, attr: *mut ffi::ContextAttr) -> *mut ffi::Context {
    // SAFETY: the caller's structure.
    let attr = unsafe { &*attr };
    if attr.flags != ffi::CONTEXT_FLAGS_DEVX || attr.comp_mask != 0 {
        return null(Errno::EOPNOTSUPP);
    }
    of.cast()
}

unsafe extern "C" fn query_device(context: *mut ffi::Context, out: *mut ffi::DvContext) -> c_int {
    // SAFETY: the caller's structure.
    let out = unsafe { &mut *out };
    // A device without signatures tells of none.
    let caps = device(context).caps;
    out.comp_mask &= if caps == ffi::SigCaps::default() { 0 } else { ffi::CONTEXT_MASK_SIGNATURE_OFFLOAD };
    out.sig_caps = caps;
    0
}

unsafe extern "C" fn create_qp(
    context: *mut ffi::Context,
    attr: *mut ffi::QpInitAttrEx,
    dv_attr: *mut ffi::DvQpInitAttr,
) -> *mut ffi::Qp {
    // SAFETY: the caller's structures.
    let (attr, dv_attr) = (unsafe { &mut *attr }, unsafe { &*dv_attr });
    let masks = (
        attr.comp_mask == ffi::QP_INIT_ATTR_PD | ffi::QP_INIT_ATTR_SEND_OPS_FLAGS,
        dv_attr.comp_mask == ffi::DV_QP_INIT_ATTR_CREATE_FLAGS | ffi::DV_QP_INIT_ATTR_SEND_OPS_FLAGS,
    );
    // Write, SEND, READ, local invalidation, SEND with invalidation.
    let has_calls = attr.send_ops_flags == 1 | 4 | 16 | 128 | 512;
    if attr.qp_type != ffi::QPT_RC || masks != (true, true) || !has_calls || dv_attr.send_ops_flags != 4 {
        return null(Errno::EOPNOTSUPP);
    }
    if dv_attr.create_flags != ffi::QP_CREATE_DISABLE_SCATTER_TO_CQE {
        device(context).mistake("indirect keys do not work with data in completions");
    }
    attr.cap.max_inline_data = (attr.cap.max_inline_data + 4).max(64).next_multiple_of(64) - 4;
    let (ex, dv) = calls();
    let device = NonNull::new(context).expect("a context").cast();
    let max_inline_data = attr.cap.max_inline_data;
    Box::into_raw(Box::new(Qp { ex, dv, device, posting: RefCell::default(), max_inline_data })).cast()
}

unsafe extern "C" fn qp_to_qp_ex(qp: *mut ffi::Qp) -> *mut ffi::QpEx {
    qp.cast()
}

unsafe extern "C" fn dv_qp_ex_from(qp: *mut ffi::QpEx) -> *mut ffi::DvQpEx {
    // SAFETY: queue pairs are all made here.
    unsafe { &raw mut (*qp.cast::<Qp>()).dv }
}

unsafe extern "C" fn create_mkey(attr: *mut ffi::MkeyInitAttr) -> *mut ffi::Mkey {
    // SAFETY: the caller's structure.
    let attr = unsafe { &mut *attr };
    let mut device = device(attr.pd);
    let signature = attr.create_flags & ffi::MKEY_INIT_BLOCK_SIGNATURE != 0;
    let known = ffi::MKEY_INIT_INDIRECT | ffi::MKEY_INIT_BLOCK_SIGNATURE;
    if attr.create_flags == 0 || attr.create_flags & !known != 0 || signature && device.caps.block_prot == 0 {
        return null(Errno::EOPNOTSUPP);
    }
    attr.max_entries = attr.max_entries.next_multiple_of(4);
    let lkey = device.next_index << 8;
    device.next_index += 1;
    device.keys.insert(lkey, Key { signature, entries: attr.max_entries, ..Key::default() });
    let shown = ffi::Mkey { lkey, rkey: lkey };
    let device = NonNull::new(attr.pd).expect("a protection domain").cast();
    Box::into_raw(Box::new(Mkey { shown, device })).cast()
}

unsafe extern "C" fn destroy_mkey(mkey: *mut ffi::Mkey) -> c_int {
    // SAFETY: keys are all made here.
    let Mkey { shown, device: of } = unsafe { &*mkey.cast::<Mkey>() };
    let lkey = shown.lkey;
    let mut device = device(of.as_ptr());
    let key = device.keys.remove(&lkey).expect("a key that exists");
    if !device.failed && (key.outstanding > 0 || key.unchecked > 0) {
        device.mistake("a key was destroyed that was in use");
    }
    // SAFETY: as above; the caller forgets it.
    drop(unsafe { Box::from_raw(mkey.cast::<Mkey>()) });
    0
}

unsafe extern "C" fn mkey_check(mkey: *mut ffi::Mkey, err: *mut ffi::MkeyErr, size: usize) -> c_int {
    assert_eq!(size, size_of::<ffi::MkeyErr>());
    // SAFETY: keys are all made here.
    let Mkey { shown, device: of } = unsafe { &*mkey.cast::<Mkey>() };
    let lkey = shown.lkey;
    let mut device = device(of.as_ptr());
    let key = device.keys.get_mut(&lkey).expect("a key that exists");
    if !key.signature {
        return Errno::EINVAL as c_int;
    }
    let (outstanding, unchecked) = (key.outstanding, std::mem::take(&mut key.unchecked));
    let found = key.error.take().unwrap_or_default();
    // SAFETY: the caller's structure.
    unsafe { err.write(found) };
    if outstanding > 0 {
        device.mistake("a status was asked for before the completion was polled");
    }
    if unchecked != 1 {
        device.mistake(format!("a status was asked for of {unchecked} transfers"));
    }
    // Record types beyond the known ones stand for a syndrome that the library does not know.
    if found.err_type == u32::MAX { Errno::EINVAL as c_int } else { 0 }
}
