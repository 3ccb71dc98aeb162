//! libmlx5, found at run time: its functions, and what they make of devices.
//!
//! Tests put other functions into the same table ([`Functions`]). (rw-contexts 2.6.1, 2.6.3, 2.6.4)
#![allow(
    unsafe_code,
    reason = "functions of a C library that is found at run time, and the objects of whoever calls"
)]

use std::io;
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use thiserror::Error;

use super::calls::{Calls, KeyKind, Mkey, RawQueue, check};
use super::caps::SigCaps;
use super::ffi;
use super::queue::SpareKey;
use super::size::QueueSize;

/// The library, as every distribution calls it.
const NAME: &str = "libmlx5.so.1";

/// The library's functions. It stays loaded for as long as the program runs.
#[derive(Clone, Copy, Debug)]
pub struct Library(Functions);

/// What is called. `ibv_qp_to_qp_ex` is libibverbs', which libmlx5 needs and so brings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Functions {
    pub(super) open_device: ffi::OpenDevice,
    pub(super) query_device: ffi::QueryDevice,
    pub(super) create_qp: ffi::CreateQp,
    pub(super) qp_to_qp_ex: ffi::QpToQpEx,
    pub(super) dv_qp_ex_from: ffi::DvQpExFrom,
    pub(super) create_mkey: ffi::CreateMkey,
    pub(super) destroy_mkey: ffi::DestroyMkey,
    pub(super) mkey_check: ffi::MkeyCheck,
}

/// Why the library can't be used.
#[derive(Debug, Error)]
pub enum LoadError {
    /// There is none, or it lacks what it needs itself.
    #[error("cannot load {library}")]
    Library {
        /// Its name.
        library: String,
        /// What the dynamic linker says.
        source: libloading::Error,
    },
    /// It is too old, or something else.
    #[error("{library} has no function {function}")]
    Function {
        /// The library's name.
        library: String,
        /// What it lacks.
        function: &'static str,
        /// What the dynamic linker says.
        source: libloading::Error,
    },
}

impl Library {
    /// Loads the library.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn load() -> Result<Self, LoadError> {
        Self::load_from(NAME)
    }

    pub(super) fn load_from(name: &str) -> Result<Self, LoadError> {
        // SAFETY: what libmlx5 does when it is loaded is to tell libibverbs of itself.
        let loaded = unsafe { libloading::Library::new(name) };
        let library = loaded.map_err(|source| LoadError::Library { library: name.to_owned(), source })?;
        // Never unloaded, so that its functions can be kept.
        let library: &'static libloading::Library = Box::leak(Box::new(library));
        let find = Find { library, name };
        // SAFETY: `mlx5dv.h` and `verbs.h` declare them with the types that `ffi` has; so for each of the following.
        let open_device = unsafe { find.function("mlx5dv_open_device") }?;
        // SAFETY: as above.
        let query_device = unsafe { find.function("mlx5dv_query_device") }?;
        // SAFETY: as above.
        let create_qp = unsafe { find.function("mlx5dv_create_qp") }?;
        // SAFETY: as above.
        let qp_to_qp_ex = unsafe { find.function("ibv_qp_to_qp_ex") }?;
        // SAFETY: as above.
        let dv_qp_ex_from = unsafe { find.function("mlx5dv_qp_ex_from_ibv_qp_ex") }?;
        // SAFETY: as above.
        let create_mkey = unsafe { find.function("mlx5dv_create_mkey") }?;
        // SAFETY: as above.
        let destroy_mkey = unsafe { find.function("mlx5dv_destroy_mkey") }?;
        // SAFETY: as above.
        let mkey_check = unsafe { find.function("_mlx5dv_mkey_check") }?;
        Ok(Self(Functions {
            open_device,
            query_device,
            create_qp,
            qp_to_qp_ex,
            dv_qp_ex_from,
            create_mkey,
            destroy_mkey,
            mkey_check,
        }))
    }

    #[cfg(test)]
    pub(super) fn of(functions: Functions) -> Self {
        Self(functions)
    }

    /// Opens a device so that signatures can be used. It is closed as any other.
    ///
    /// # Errors
    /// What the library says: `EOPNOTSUPP` for a device that isn't its own.
    ///
    /// # Safety
    /// `device` is in a list of libibverbs that was not freed.
    pub unsafe fn open_device(&self, device: NonNull<ffi::Device>) -> io::Result<NonNull<ffi::Context>> {
        let mut attr = ffi::ContextAttr { flags: ffi::CONTEXT_FLAGS_DEVX, ..ffi::ContextAttr::default() };
        // SAFETY: the caller's device; `attr` is read.
        let context = unsafe { (self.0.open_device)(device.as_ptr(), &raw mut attr) };
        NonNull::new(context).ok_or_else(io::Error::last_os_error)
    }

    /// What signatures an open device knows: none, when it has none or was not opened by [`Self::open_device`].
    ///
    /// # Errors
    /// What the library says.
    ///
    /// # Safety
    /// `context` is open, and of a device of this library.
    pub unsafe fn sig_caps(&self, context: NonNull<ffi::Context>) -> io::Result<SigCaps> {
        let mut attrs = MaybeUninit::<ffi::DvContext>::zeroed();
        // SAFETY: zeroed, and plain numbers.
        let asked = unsafe { attrs.assume_init_mut() };
        asked.comp_mask = ffi::CONTEXT_MASK_SIGNATURE_OFFLOAD;
        // SAFETY: the caller's context; the structure is at least as large as the library's.
        check(unsafe { (self.0.query_device)(context.as_ptr(), asked) })?;
        let told = asked.comp_mask & ffi::CONTEXT_MASK_SIGNATURE_OFFLOAD != 0;
        Ok(if told { SigCaps::new(&asked.sig_caps) } else { SigCaps::default() })
    }

    /// Makes a key with at least `entries` entries that belongs to no queue yet.
    ///
    /// # Errors
    /// What the library says: `EOPNOTSUPP` without signatures.
    ///
    /// # Safety
    /// The protection domain is of a device of this library, and outlives the key.
    pub unsafe fn create_key(
        &self,
        pd: NonNull<ffi::Pd>,
        kind: KeyKind,
        entries: u16,
    ) -> io::Result<SpareKey> {
        // SAFETY: the caller's promise.
        let raw = unsafe { Mkey::create(self.0, pd, kind, entries) }?;
        Ok(SpareKey { raw, kind })
    }

    /// Makes a reliable connection's queue pair that takes signatures, and says how much its work requests can hold themselves:
    /// see [`QueueSize::max_inline_data`]. It is destroyed as any other.
    ///
    /// # Errors
    /// What the library says.
    ///
    /// # Safety
    /// The context is open and of a device of this library; the protection domain and the completion queue are its own, and all
    /// outlive the queue pair.
    pub unsafe fn create_qp(
        &self,
        context: NonNull<ffi::Context>,
        pd: NonNull<ffi::Pd>,
        cq: NonNull<ffi::Cq>,
        size: &QueueSize,
    ) -> io::Result<(NonNull<ffi::Qp>, u32)> {
        let mut attr = ffi::QpInitAttrEx {
            qp_context: ptr::null_mut(),
            send_cq: cq.as_ptr(),
            recv_cq: cq.as_ptr(),
            srq: ptr::null_mut(),
            cap: ffi::QpCap {
                max_send_wr: size.max_send_wr,
                max_recv_wr: size.max_recv_wr,
                max_send_sge: size.max_send_sge,
                max_recv_sge: size.max_recv_sge,
                max_inline_data: size.max_inline_data,
            },
            qp_type: ffi::QPT_RC,
            sq_sig_all: 0,
            comp_mask: ffi::QP_INIT_ATTR_PD | ffi::QP_INIT_ATTR_SEND_OPS_FLAGS,
            pd: pd.as_ptr(),
            others: [0; 7],
            send_ops_flags: ffi::QP_EX_WITH_RDMA_WRITE
                | ffi::QP_EX_WITH_RDMA_READ
                | ffi::QP_EX_WITH_SEND
                | ffi::QP_EX_WITH_SEND_WITH_INV
                | ffi::QP_EX_WITH_LOCAL_INV,
        };
        let mut dv_attr = ffi::DvQpInitAttr {
            comp_mask: ffi::DV_QP_INIT_ATTR_CREATE_FLAGS | ffi::DV_QP_INIT_ATTR_SEND_OPS_FLAGS,
            create_flags: ffi::QP_CREATE_DISABLE_SCATTER_TO_CQE,
            send_ops_flags: ffi::QP_EX_WITH_MKEY_CONFIGURE,
            ..ffi::DvQpInitAttr::default()
        };
        // SAFETY: the caller's objects; both structures are as the header has them.
        let qp = unsafe { (self.0.create_qp)(context.as_ptr(), &raw mut attr, &raw mut dv_attr) };
        let qp = NonNull::new(qp).ok_or_else(io::Error::last_os_error)?;
        Ok((qp, attr.cap.max_inline_data))
    }

    /// The calls of a queue pair, and what makes its keys.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] when the queue pair lacks a call.
    ///
    /// # Safety
    /// [`Self::create_qp`] made `qp` in `pd` with `max_inline_data`. Both outlive what is returned and the keys that it makes;
    /// nobody else makes work requests by `qp`'s calls, and this is not called twice for it.
    pub unsafe fn queue(
        &self,
        qp: NonNull<ffi::Qp>,
        pd: NonNull<ffi::Pd>,
        max_inline_data: u32,
    ) -> io::Result<RawQueue> {
        // SAFETY: a queue pair of libibverbs.
        let qp = unsafe { (self.0.qp_to_qp_ex)(qp.as_ptr()) };
        let qp = NonNull::new(qp).ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: a queue pair of this library.
        let dv = unsafe { (self.0.dv_qp_ex_from)(qp.as_ptr()) };
        let dv = NonNull::new(dv).ok_or(io::ErrorKind::Unsupported)?;
        // SAFETY: it lives as long as the queue pair, which nobody uses yet.
        let (made, dv_made) = (unsafe { qp.as_ref() }, unsafe { dv.as_ref() });
        let calls = Calls::new(made, dv_made).ok_or(io::ErrorKind::Unsupported)?;
        Ok(RawQueue { functions: self.0, pd, qp, dv, calls, max_inline_data })
    }
}

/// Where functions are looked for.
struct Find<'l> {
    library: &'static libloading::Library,
    name: &'l str,
}

impl Find<'_> {
    /// # Safety
    /// The function is one of type `F`.
    unsafe fn function<F: Copy>(&self, function: &'static str) -> Result<F, LoadError> {
        // SAFETY: the caller's type.
        let symbol = unsafe { self.library.get::<F>(function) };
        let library = || self.name.to_owned();
        symbol.map(|symbol| *symbol).map_err(|source| LoadError::Function {
            library: library(),
            function,
            source,
        })
    }
}
