//! Owners of libibverbs' objects: context, protection domain, completion queue, memory region.
//!
//! One of the files of the verbs device that call C (`queue_pair` and `channel` are the others). An owner keeps what it was made from, so that objects go in the
//! order that the library asks for; what comes out are values of ours. Makes no decision of its own. Manual pages:
//! ibv_open_device(3) and on.
#![allow(unsafe_code, reason = "the objects of a C library, and the memory that its device reads and writes")]

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr::{self, NonNull};
use std::sync::Arc;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use rdma_sys::{
    ibv_access_flags, ibv_ack_async_event, ibv_ack_cq_events, ibv_alloc_pd, ibv_async_event,
    ibv_close_device, ibv_comp_channel, ibv_context, ibv_cq, ibv_create_comp_channel, ibv_create_cq,
    ibv_dealloc_pd, ibv_dereg_mr, ibv_destroy_comp_channel, ibv_destroy_cq, ibv_device, ibv_device_attr,
    ibv_device_cap_flags, ibv_free_device_list, ibv_get_async_event, ibv_get_cq_event, ibv_get_device_list,
    ibv_get_device_name, ibv_mr, ibv_open_device, ibv_pd, ibv_poll_cq, ibv_query_device, ibv_reg_mr,
    ibv_req_notify_cq, ibv_transport_type, ibv_wc,
};

use super::caps::Attributes;
use super::completion::RawWc;
use super::teardown::Fate;
use crate::device::Qpn;
#[cfg(feature = "mlx5")]
use crate::device::mlx5::{KeyKind, Library, SigCaps, SpareKey};
use crate::mem::{Access, Region};

/// Completions that one call takes.
const BATCH: usize = 32;

/// An open device.
#[derive(Debug)]
pub(super) struct Context {
    raw: NonNull<ibv_context>,
    /// Which has opened it, so that signatures can be used.
    #[cfg(feature = "mlx5")]
    library: Option<Library>,
}

/// A protection domain.
#[derive(Debug)]
pub(super) struct ProtectionDomain {
    raw: NonNull<ibv_pd>,
    #[cfg_attr(not(feature = "mlx5"), expect(dead_code, reason = "kept open"))]
    context: Arc<Context>,
}

/// Where completion queues say that they are no longer empty.
#[derive(Debug)]
pub(super) struct CompletionChannel {
    raw: NonNull<ibv_comp_channel>,
    context: Arc<Context>,
}

/// A completion queue.
#[derive(Debug)]
pub(super) struct CompletionQueue {
    raw: NonNull<ibv_cq>,
    _channel: Arc<CompletionChannel>,
}

/// Registered memory, which stays mapped at least as long.
#[derive(Debug)]
pub(super) struct MemoryRegion {
    raw: NonNull<ibv_mr>,
    region: Option<Arc<Region>>,
    _pd: Arc<ProtectionDomain>,
}

// SAFETY: libibverbs may be called from any thread, with any of its objects (rdma-core, Documentation/libibverbs.md: "fully
// thread-safe"); the pointers are handed to nothing else.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}
// SAFETY: as above.
unsafe impl Send for ProtectionDomain {}
// SAFETY: as above.
unsafe impl Sync for ProtectionDomain {}
// SAFETY: as above.
unsafe impl Send for CompletionChannel {}
// SAFETY: as above.
unsafe impl Sync for CompletionChannel {}
// SAFETY: as above.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}
// SAFETY: as above.
unsafe impl Send for MemoryRegion {}

/// Something happened to the device or one of its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AsyncEvent {
    /// The first request of a queue pair came.
    CommEst(Qpn),
    /// A queue pair failed.
    QpFatal(Qpn),
    /// Completions were lost: all queue pairs fail.
    CqError,
    /// The device is gone, or beyond help.
    DeviceFatal,
    /// A port came up.
    PortActive(i32),
    /// A port went down.
    PortError(i32),
    /// Nothing that needs anything done: its number.
    Other(u32),
}

impl Context {
    /// Opens the device of this name.
    ///
    /// # Errors
    /// `ENODEV` when there is none; what the library says.
    pub(super) fn open(name: &str) -> io::Result<Arc<Self>> {
        let raw = open_by(name, |device| {
            // SAFETY: a device of the list, which was not freed yet.
            let context = unsafe { ibv_open_device(device.as_ptr()) };
            NonNull::new(context).ok_or_else(io::Error::last_os_error)
        })?;
        Self {
            raw,
            #[cfg(feature = "mlx5")]
            library: None,
        }
        .nonblocking()
    }

    /// Opens the device of this name for its signatures. Returns it with what it has of them.
    ///
    /// # Errors
    /// What the libraries say.
    #[cfg(feature = "mlx5")]
    pub(super) fn open_for_signatures(name: &str, library: Library) -> io::Result<(Arc<Self>, SigCaps)> {
        let raw = open_by(name, |device| {
            // SAFETY: a device of the list, which was not freed yet.
            unsafe { library.open_device(device.cast()) }.map(NonNull::cast)
        })?;
        let context = Self { raw, library: Some(library) }.nonblocking()?;
        // SAFETY: the library has opened the context.
        let caps = unsafe { library.sig_caps(raw.cast()) }?;
        Ok((context, caps))
    }

    fn nonblocking(self) -> io::Result<Arc<Self>> {
        set_nonblocking(self.async_fd())?;
        Ok(Arc::new(self))
    }

    /// What the device says of itself.
    pub(super) fn attributes(&self) -> io::Result<Attributes> {
        let mut attr = MaybeUninit::<ibv_device_attr>::zeroed();
        // SAFETY: the context is open; `attr` may be written.
        check(unsafe { ibv_query_device(self.raw.as_ptr(), attr.as_mut_ptr()) })?;
        // SAFETY: filled by the call, and plain numbers anyway.
        let attr = unsafe { attr.assume_init() };
        // SAFETY: the context is open.
        let device = unsafe { (*self.raw.as_ptr()).device };
        // SAFETY: an open context has its device.
        let transport = unsafe { (*device).transport_type };
        let count = |value: i32| u32::try_from(value).unwrap_or(0);
        let cap_flags = ibv_device_cap_flags(attr.device_cap_flags);
        Ok(Attributes {
            vendor_id: attr.vendor_id,
            vendor_part_id: attr.vendor_part_id,
            iwarp: transport == ibv_transport_type::IBV_TRANSPORT_IWARP,
            mem_mgt_extensions: (cap_flags & ibv_device_cap_flags::IBV_DEVICE_MEM_MGT_EXTENSIONS).0 != 0,
            max_qp_wr: count(attr.max_qp_wr),
            max_sge: count(attr.max_sge),
            max_sge_rd: count(attr.max_sge_rd),
            max_cqe: count(attr.max_cqe),
            max_qp_rd_atom: count(attr.max_qp_rd_atom),
            max_qp_init_rd_atom: count(attr.max_qp_init_rd_atom),
        })
    }

    /// Becomes readable when [`Self::poll_event`] has something.
    pub(super) fn async_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the context is open.
        let fd = unsafe { (*self.raw.as_ptr()).async_fd };
        borrow_fd(self, fd)
    }

    /// Takes the next asynchronous event, and acknowledges it.
    pub(super) fn poll_event(&self) -> Option<AsyncEvent> {
        let mut event = MaybeUninit::<ibv_async_event>::zeroed();
        // SAFETY: the context is open, `event` may be written, and the descriptor does not block.
        if unsafe { ibv_get_async_event(self.raw.as_ptr(), event.as_mut_ptr()) } != 0 {
            return None;
        }
        let at = event.as_mut_ptr();
        // SAFETY: within `event`.
        let number = unsafe { &raw const (*at).event_type };
        // SAFETY: filled. Read as a number: the library may know events that the binding's enum doesn't.
        let number = unsafe { number.cast::<u32>().read() };
        // SAFETY: within `event`.
        let element = unsafe { &raw const (*at).element };
        // SAFETY: zeroed and filled: a union of pointers and a number.
        let element = unsafe { element.read() };
        let qpn = || {
            // SAFETY: events of these numbers are of queue pairs.
            let qp = unsafe { element.qp };
            // SAFETY: destroying a queue pair waits until its events are acknowledged, as is done below.
            Qpn(unsafe { (*qp).qp_num })
        };
        let seen = match number {
            0 => AsyncEvent::CqError,
            1..=3 => AsyncEvent::QpFatal(qpn()),
            4 => AsyncEvent::CommEst(qpn()),
            8 => AsyncEvent::DeviceFatal,
            // SAFETY: events of these numbers are of ports.
            9 => AsyncEvent::PortActive(unsafe { element.port_num }),
            // SAFETY: as above.
            10 => AsyncEvent::PortError(unsafe { element.port_num }),
            other => AsyncEvent::Other(other),
        };
        // SAFETY: got by the call above, acknowledged once.
        unsafe { ibv_ack_async_event(at) };
        Some(seen)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: opened once, closed once; whatever was made from it held it.
        given_back("an open device", unsafe { ibv_close_device(self.raw.as_ptr()) });
    }
}

impl ProtectionDomain {
    pub(super) fn new(context: &Arc<Context>) -> io::Result<Arc<Self>> {
        // SAFETY: the context is open.
        let raw = NonNull::new(unsafe { ibv_alloc_pd(context.raw.as_ptr()) });
        let raw = raw.ok_or_else(io::Error::last_os_error)?;
        Ok(Arc::new(Self { raw, context: Arc::clone(context) }))
    }

    /// Makes a signature key, or one of a list, that lives no longer than this.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] when the device was not opened for signatures; what the library says.
    #[cfg(feature = "mlx5")]
    pub(super) fn create_key(&self, kind: KeyKind, entries: u16) -> io::Result<SpareKey> {
        let library = self.library()?;
        // SAFETY: the library has opened the device; whoever owns keys drops them before the protection domain.
        unsafe { library.create_key(self.raw.cast(), kind, entries) }
    }

    /// The library that has opened the device.
    #[cfg(feature = "mlx5")]
    pub(super) fn library(&self) -> io::Result<Library> {
        self.context.library.ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// The device's context, for calls of the library as long as this lives.
    #[cfg(feature = "mlx5")]
    pub(super) fn context_ptr(&self) -> NonNull<ibv_context> {
        self.context.raw
    }

    /// For calls of the library, as long as this lives.
    pub(super) fn as_ptr(&self) -> *mut ibv_pd {
        self.raw.as_ptr()
    }
}

impl Drop for ProtectionDomain {
    fn drop(&mut self) {
        // SAFETY: made once, given back once; queue pairs and regions of it held it.
        given_back("a protection domain", unsafe { ibv_dealloc_pd(self.raw.as_ptr()) });
    }
}

impl CompletionChannel {
    pub(super) fn new(context: &Arc<Context>) -> io::Result<Arc<Self>> {
        // SAFETY: the context is open.
        let raw = NonNull::new(unsafe { ibv_create_comp_channel(context.raw.as_ptr()) });
        let channel = Self { raw: raw.ok_or_else(io::Error::last_os_error)?, context: Arc::clone(context) };
        set_nonblocking(channel.fd())?;
        Ok(Arc::new(channel))
    }

    /// Becomes readable when a queue that was armed has a completion.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel exists.
        let fd = unsafe { (*self.raw.as_ptr()).fd };
        borrow_fd(self, fd)
    }

    /// Takes the next notification, and acknowledges it: which of these queues it is of.
    pub(super) fn take(&self, queues: &[Arc<CompletionQueue>]) -> Option<Option<usize>> {
        let (mut cq, mut user) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel exists, both may be written, and the descriptor does not block.
        if unsafe { ibv_get_cq_event(self.raw.as_ptr(), &raw mut cq, &raw mut user) } != 0 {
            return None;
        }
        // SAFETY: destroying a queue waits until its notifications are acknowledged, as is done here, once.
        unsafe { ibv_ack_cq_events(cq, 1) };
        Some(queues.iter().position(|queue| queue.raw.as_ptr() == cq))
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once; queues of it held it.
        given_back("a completion channel", unsafe { ibv_destroy_comp_channel(self.raw.as_ptr()) });
    }
}

impl CompletionQueue {
    /// A queue of at least `entries` entries.
    pub(super) fn new(channel: &Arc<CompletionChannel>, entries: u32) -> io::Result<Arc<Self>> {
        let context = channel.context.raw.as_ptr();
        let entries = i32::try_from(entries).unwrap_or(i32::MAX);
        // SAFETY: context and channel exist; vector 0 always does.
        let raw = unsafe { ibv_create_cq(context, entries, ptr::null_mut(), channel.raw.as_ptr(), 0) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Arc::new(Self { raw, _channel: Arc::clone(channel) }))
    }

    /// Appends what completed to `to`, a batch at most. Returns how many there were.
    ///
    /// # Errors
    /// When the queue overflowed or the device is gone.
    pub(super) fn poll(&self, to: &mut impl Extend<RawWc>) -> io::Result<usize> {
        // Of work that failed the library fills in less than of other work: what it leaves alone are zeroes.
        let mut entries = [const { MaybeUninit::<ibv_wc>::zeroed() }; BATCH];
        let most = i32::try_from(BATCH).expect("a batch is small");
        // SAFETY: the queue exists; `entries` has room for a batch.
        let count = unsafe { ibv_poll_cq(self.raw.as_ptr(), most, entries.as_mut_ptr().cast()) };
        let count = usize::try_from(count).map_err(|_| io::Error::other("the completion queue failed"))?;
        to.extend(entries[..count].iter().map(|entry| {
            // SAFETY: the entry is plain numbers, all of which were set.
            let wc = unsafe { entry.assume_init_ref() };
            RawWc {
                wr_id: wc.wr_id,
                status: wc.status,
                opcode: wc.opcode,
                byte_len: wc.byte_len,
                // SAFETY: both arms are 32-bit numbers.
                word: unsafe { wc.imm_data_invalidated_rkey_union.invalidated_rkey },
                qp_num: wc.qp_num,
                flags: wc.wc_flags,
            }
        }));
        Ok(count)
    }

    /// For calls of the library, as long as this lives.
    pub(super) fn as_ptr(&self) -> *mut ibv_cq {
        self.raw.as_ptr()
    }

    /// Asks for a notification at the next completion.
    pub(super) fn arm(&self) -> io::Result<()> {
        // SAFETY: the queue exists.
        check(unsafe { ibv_req_notify_cq(self.raw.as_ptr(), 0) })
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once; queue pairs that use it held it.
        given_back("a completion queue", unsafe { ibv_destroy_cq(self.raw.as_ptr()) });
    }
}

impl MemoryRegion {
    /// Registers `length` bytes of `region` from `offset`, which lie inside.
    pub(super) fn new(
        pd: &Arc<ProtectionDomain>,
        region: &Arc<Region>,
        offset: usize,
        length: usize,
        access: Access,
    ) -> io::Result<Self> {
        let at = region.ptr(offset, length).ok_or(io::ErrorKind::InvalidInput)?;
        let flags = i32::try_from(access_flags(access).0).expect("the bits of access are few");
        // SAFETY: the protection domain exists; the range is mapped, and stays so as long as this value holds the region.
        let raw = unsafe { ibv_reg_mr(pd.raw.as_ptr(), at.as_ptr().cast(), length, flags) };
        let raw = NonNull::new(raw).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { raw, region: Some(Arc::clone(region)), _pd: Arc::clone(pd) })
    }

    /// Local and remote key.
    pub(super) fn keys(&self) -> (u32, u32) {
        // SAFETY: the registration exists.
        let mr = unsafe { self.raw.as_ref() };
        (mr.lkey, mr.rkey)
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        // SAFETY: made once, given back once.
        if given_back("a memory region", unsafe { ibv_dereg_mr(self.raw.as_ptr()) }) != Fate::Gone {
            // The device, if it is there, may still use it: the memory is never unmapped then.
            std::mem::forget(self.region.take());
        }
    }
}

/// The error that a function of the library returned: an errno, or -1 with one set.
pub(super) fn check(returned: i32) -> io::Result<()> {
    match returned {
        0 => Ok(()),
        -1 => Err(io::Error::last_os_error()),
        errno => Err(io::Error::from_raw_os_error(errno.saturating_abs())),
    }
}

/// Opens the device of this name by `open`, which gets it while libibverbs' list is there.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] when there is none; what the library says.
fn open_by(
    name: &str,
    open: impl FnOnce(NonNull<ibv_device>) -> io::Result<NonNull<ibv_context>>,
) -> io::Result<NonNull<ibv_context>> {
    let mut count = 0;
    // SAFETY: `count` may be written; the list is freed below.
    let list = unsafe { ibv_get_device_list(&raw mut count) };
    if list.is_null() {
        return Err(io::Error::last_os_error());
    }
    let opened = (0..usize::try_from(count).unwrap_or(0))
        // SAFETY: the list has `count` entries.
        .map(|index| unsafe { list.add(index) })
        // SAFETY: as above; entries are devices that live as long as the list.
        .map(|entry| unsafe { entry.read() })
        // SAFETY: as above.
        .find(|device| unsafe { device_name(*device) } == name)
        .and_then(NonNull::new)
        .ok_or_else(|| io::ErrorKind::NotFound.into())
        .and_then(open);
    // SAFETY: made by the call above, freed once; open devices stay valid.
    unsafe { ibv_free_device_list(list) };
    opened
}

/// What became of an object that the library was to take back; says so where it did not.
pub(super) fn given_back(what: &str, returned: i32) -> Fate {
    let result = check(returned);
    let fate = Fate::of(&result);
    if let (Fate::Kept, Err(error)) = (fate, &result) {
        tracing::error!(%error, what, "the RDMA device keeps an object");
    }
    fate
}

/// The name of a device.
///
/// # Safety
/// The device is one of the library, of a list that was not freed or a context that is open.
pub(super) unsafe fn device_name(device: *mut ibv_device) -> String {
    // SAFETY: the caller's promise.
    let name = unsafe { ibv_get_device_name(device) };
    // SAFETY: names are strings that end in a zero byte, and live as long as the device.
    unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
}

/// A descriptor that lives as long as its owner.
pub(super) fn borrow_fd<T>(_owner: &T, fd: RawFd) -> BorrowedFd<'_> {
    // SAFETY: the library opened it with the owner, and closes it with that.
    unsafe { BorrowedFd::borrow_raw(fd) }
}

/// Makes calls that wait for events return at once instead.
pub(super) fn set_nonblocking(fd: BorrowedFd<'_>) -> io::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK))?;
    Ok(())
}

/// What a device may do, as the library numbers it.
pub(super) fn access_flags(access: Access) -> ibv_access_flags {
    let mut flags = ibv_access_flags(0);
    if access.local_write {
        flags |= ibv_access_flags::IBV_ACCESS_LOCAL_WRITE;
    }
    if access.remote_read {
        flags |= ibv_access_flags::IBV_ACCESS_REMOTE_READ;
    }
    if access.remote_write {
        flags |= ibv_access_flags::IBV_ACCESS_REMOTE_WRITE;
    }
    flags
}
