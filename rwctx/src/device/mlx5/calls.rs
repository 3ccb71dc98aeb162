//! Keys and queue pairs of libmlx5, as owners whose calls are safe.
//!
//! With [`super::library`] all that calls C. Each call is safe whatever the order of calls; what order makes sense is
//! [`super::queue`]'s to know. (rw-contexts 2.6.3 to 2.6.5)
#![allow(unsafe_code, reason = "the objects of a C library, whose calls are pointers")]

use std::ffi::c_void;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};

use super::attrs::{Domain, SigBlock};
use super::ffi;
use super::library::Functions;
use crate::mem::Lkey;
use crate::remote::{RemoteAddr, Rkey};
use crate::wr::{Sge, WrId};

/// What a key is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Memory and the signature of what it holds.
    Signature,
    /// Pieces of memory in a row, that a signature's key takes for one.
    List,
}

/// A key that the library made.
#[derive(Debug)]
pub(super) struct Mkey {
    functions: Functions,
    raw: NonNull<ffi::Mkey>,
    max_entries: u16,
}

/// A queue pair whose work requests are made by calls.
#[derive(Debug)]
pub struct RawQueue {
    pub(super) functions: Functions,
    pub(super) pd: NonNull<ffi::Pd>,
    pub(super) qp: NonNull<ffi::QpEx>,
    pub(super) dv: NonNull<ffi::DvQpEx>,
    pub(super) calls: Calls,
    pub(super) max_inline_data: u32,
}

/// The calls of one queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calls {
    start: ffi::WrStart,
    complete: ffi::WrComplete,
    abort: ffi::WrStart,
    rdma_read: ffi::WrRemote,
    rdma_write: ffi::WrRemote,
    local_inv: ffi::WrKey<ffi::QpEx>,
    set_sge: ffi::WrSetSge,
    configure: ffi::MkeyConfigure,
    set_access: ffi::WrKey<ffi::DvQpEx>,
    set_list: ffi::SetLayoutList,
    set_interleaved: ffi::SetLayoutInterleaved,
    set_sig_block: ffi::SetSigBlock,
}

/// Work requests that are posted together, or not at all: dropping it forgets them.
#[derive(Debug)]
pub(super) struct Posting<'q>(&'q mut RawQueue);

/// What a key is configured with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Configuration<'a> {
    pub(super) access: u32,
    pub(super) layout: Layout<'a>,
    pub(super) signature: Option<&'a SigBlock>,
}

/// Where the bytes of a key lie.
#[derive(Clone, Copy, Debug)]
pub(super) enum Layout<'a> {
    /// One piece behind the other.
    List(&'a [ffi::Sge]),
    /// A part of each in turn, this many times.
    Interleaved(u32, &'a [ffi::MrInterleaved]),
}

/// Which way an RDMA operation moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Move {
    Read,
    Write,
}

// SAFETY: libmlx5 may be called from any thread, with any of its objects (rdma-core, Documentation/libibverbs.md: "fully
// thread-safe"); the pointer is handed to nothing else.
unsafe impl Send for Mkey {}
// SAFETY: as above; posting takes the value exclusively.
unsafe impl Send for RawQueue {}

impl Mkey {
    /// Makes a key for at least so many entries. The library says `EOPNOTSUPP` without signatures.
    ///
    /// # Safety
    /// The protection domain is the library's, and outlives the key.
    pub(super) unsafe fn create(
        functions: Functions,
        pd: NonNull<ffi::Pd>,
        kind: KeyKind,
        max_entries: u16,
    ) -> io::Result<Self> {
        let signature = match kind {
            KeyKind::Signature => ffi::MKEY_INIT_BLOCK_SIGNATURE,
            KeyKind::List => 0,
        };
        let create_flags = ffi::MKEY_INIT_INDIRECT | signature;
        let mut attr = ffi::MkeyInitAttr { pd: pd.as_ptr(), create_flags, max_entries };
        // SAFETY: the protection domain exists by the caller's promise; `attr` may be written.
        let raw = unsafe { (functions.create_mkey)(&raw mut attr) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { functions, raw, max_entries: attr.max_entries })
    }

    #[cfg(test)]
    pub(super) fn as_ptr(&self) -> *mut ffi::Mkey {
        self.raw.as_ptr()
    }

    pub(super) fn lkey(&self) -> Lkey {
        // SAFETY: the key exists; what the structure shows does not change.
        Lkey(unsafe { self.raw.as_ref() }.lkey)
    }

    pub(super) fn rkey(&self) -> Rkey {
        // SAFETY: as above.
        Rkey(unsafe { self.raw.as_ref() }.rkey)
    }

    /// Entries that its layout can have.
    pub(super) fn max_entries(&self) -> u16 {
        self.max_entries
    }

    /// Takes the error of what moved through the key.
    pub(super) fn check(&mut self) -> io::Result<ffi::MkeyErr> {
        let mut err = ffi::MkeyErr::default();
        // SAFETY: the key exists; `err` may be written, and is as large as is said.
        check(unsafe {
            (self.functions.mkey_check)(self.raw.as_ptr(), &raw mut err, size_of::<ffi::MkeyErr>())
        })?;
        Ok(err)
    }

    /// Destroys the key, or hands it back with the reason why not.
    pub(super) fn destroy(self) -> Result<(), (Self, io::Error)> {
        let this = ManuallyDrop::new(self);
        // SAFETY: the key exists: one that was destroyed is neither handed back nor dropped.
        let destroyed = check(unsafe { (this.functions.destroy_mkey)(this.raw.as_ptr()) });
        destroyed.map_err(|error| (ManuallyDrop::into_inner(this), error))
    }
}

impl Drop for Mkey {
    fn drop(&mut self) {
        // SAFETY: as above. A key that stays is the library's until its context is closed.
        let _ = unsafe { (self.functions.destroy_mkey)(self.raw.as_ptr()) };
    }
}

impl Calls {
    /// The calls, if the queue pair has them all.
    pub(super) fn new(qp: &ffi::QpEx, dv: &ffi::DvQpEx) -> Option<Self> {
        Some(Self {
            start: qp.wr_start?,
            complete: qp.wr_complete?,
            abort: qp.wr_abort?,
            rdma_read: qp.wr_rdma_read?,
            rdma_write: qp.wr_rdma_write?,
            local_inv: qp.wr_local_inv?,
            set_sge: qp.wr_set_sge?,
            configure: dv.wr_mkey_configure?,
            set_access: dv.wr_set_mkey_access_flags?,
            set_list: dv.wr_set_mkey_layout_list?,
            set_interleaved: dv.wr_set_mkey_layout_interleaved?,
            set_sig_block: dv.wr_set_mkey_sig_block?,
        })
    }
}

impl RawQueue {
    /// Bytes that a work request can hold itself.
    pub(super) fn max_inline_data(&self) -> u32 {
        self.max_inline_data
    }

    /// Makes a key; see [`Mkey::create`].
    pub(super) fn create_mkey(&self, kind: KeyKind, max_entries: u16) -> io::Result<Mkey> {
        // SAFETY: the protection domain outlives the queue and the keys that it makes.
        unsafe { Mkey::create(self.functions, self.pd, kind, max_entries) }
    }

    /// Begins a list of work requests.
    pub(super) fn start(&mut self) -> Posting<'_> {
        // SAFETY: the queue pair exists, and none is under way: a `Posting` borrows the queue until its end.
        unsafe { (self.calls.start)(self.qp.as_ptr()) };
        Posting(self)
    }

    /// Names the next request.
    fn request(&mut self, wr_id: WrId, flags: u32) {
        // SAFETY: the queue pair exists, and these fields are there for its user to write.
        unsafe { (*self.qp.as_ptr()).wr_id = wr_id.0 };
        // SAFETY: as above.
        unsafe { (*self.qp.as_ptr()).wr_flags = flags };
    }
}

impl Posting<'_> {
    /// Gives a key its layout, rights and signature. Only a failure makes a completion.
    pub(super) fn configure(&mut self, wr_id: WrId, key: &Mkey, configuration: &Configuration<'_>) {
        let Self(RawQueue { dv, calls, .. }) = *self;
        let (dv, calls) = (dv.as_ptr(), *calls);
        let setters = if configuration.signature.is_some() { 3 } else { 2 };
        let mut attr = ffi::MkeyConfAttr::default();
        self.0.request(wr_id, ffi::SEND_INLINE);
        // SAFETY: a list was started; key and attributes exist. So for each of the following setters, whose memory outlives
        // the call: the library copies it.
        unsafe { (calls.configure)(dv, key.raw.as_ptr(), setters, &raw mut attr) };
        // SAFETY: as above.
        unsafe { (calls.set_access)(dv, configuration.access) };
        match configuration.layout {
            Layout::List(list) => {
                let count = u16::try_from(list.len()).expect("a list that fits its key");
                // SAFETY: as above; there are `count`.
                unsafe { (calls.set_list)(dv, count, list.as_ptr()) };
            }
            Layout::Interleaved(repeat, entries) => {
                let count = u16::try_from(entries.len()).expect("data and metadata");
                // SAFETY: as above; there are `count`.
                unsafe { (calls.set_interleaved)(dv, repeat, count, entries.as_ptr()) };
            }
        }
        if let Some(signature) = configuration.signature {
            let (mem, wire) = (signature.mem().map(domain), signature.wire().map(domain));
            let pointer =
                |domain: &Option<ffi::SigBlockDomain>| domain.as_ref().map_or(ptr::null(), ptr::from_ref);
            let attr = ffi::SigBlockAttr {
                mem: pointer(&mem),
                wire: pointer(&wire),
                flags: if signature.copy_mask().is_some() { ffi::SIG_BLOCK_ATTR_FLAG_COPY_MASK } else { 0 },
                check_mask: signature.check_mask(),
                copy_mask: signature.copy_mask().unwrap_or(0),
                comp_mask: 0,
            };
            // SAFETY: as above; null is a domain without protection.
            unsafe { (calls.set_sig_block)(dv, &raw const attr) };
        }
    }

    /// Moves `sge.length` bytes between a peer's memory and that of a key, and makes a completion.
    pub(super) fn transfer(&mut self, wr_id: WrId, what: Move, remote: RemoteAddr, sge: &Sge) {
        let Self(RawQueue { qp, calls, .. }) = *self;
        let (qp, calls) = (qp.as_ptr(), *calls);
        self.0.request(wr_id, ffi::SEND_SIGNALED);
        let call = match what {
            Move::Read => calls.rdma_read,
            Move::Write => calls.rdma_write,
        };
        // SAFETY: a list was started.
        unsafe { call(qp, remote.rkey.0, remote.addr) };
        // SAFETY: a request was begun that takes memory; the device checks keys and addresses itself.
        unsafe { (calls.set_sge)(qp, sge.lkey.0, sge.addr, sge.length) };
    }

    /// Takes all rights from a key, and makes a completion.
    pub(super) fn invalidate(&mut self, wr_id: WrId, key: &Mkey) {
        let Self(RawQueue { qp, calls, .. }) = *self;
        let (qp, calls) = (qp.as_ptr(), *calls);
        self.0.request(wr_id, ffi::SEND_SIGNALED);
        // SAFETY: a list was started.
        unsafe { (calls.local_inv)(qp, key.lkey().0) };
    }

    /// Posts the requests: all of them, or none.
    pub(super) fn complete(self) -> io::Result<()> {
        let this = ManuallyDrop::new(self);
        // SAFETY: a list was started; this ends it, and so nothing else may.
        check(unsafe { (this.0.calls.complete)(this.0.qp.as_ptr()) })
    }
}

impl Drop for Posting<'_> {
    fn drop(&mut self) {
        // SAFETY: a list was started; this ends it.
        unsafe { (self.0.calls.abort)(self.0.qp.as_ptr()) };
    }
}

/// A domain as the library reads it, while `of` lives.
fn domain(of: &Domain) -> ffi::SigBlockDomain {
    ffi::SigBlockDomain {
        sig_type: ffi::SIG_TYPE_T10DIF,
        sig: (&raw const of.t10dif).cast::<c_void>(),
        block_size: of.block_size,
        comp_mask: 0,
    }
}

/// Functions return 0, or an errno, which some give negative.
pub(super) fn check(returned: i32) -> io::Result<()> {
    if returned == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(returned.saturating_abs())) }
}
