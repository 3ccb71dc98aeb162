//! What contexts know of the queue pair that they are posted to: its limits and its pools of registrations.
//!
//! Follows Linux `rdma_rw_init_mrs` and `rdma_rw_cleanup_mrs`, and what `ib_create_qp` derives for contexts. Spec: rw contexts
//! 1.1, 1.10.

use crate::device::{Device, DeviceCaps, DeviceError, QpCap};
use crate::mem::Pd;
use crate::mr_pool::MrPool;
use crate::plan::{Integrity, QpLimits, can_use_mr, pages_per_mr};

/// A queue pair as contexts see it.
#[derive(Debug)]
pub struct RwQp {
    caps: DeviceCaps,
    limits: QpLimits,
    pages_per_mr: u32,
    rdma_mrs: MrPool,
    sig_mrs: MrPool,
}

/// Registrations of a queue pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolSizes {
    /// For plain contexts: none where the device's use none.
    pub plain: u32,
    /// For contexts with signatures, on a queue pair with integrity.
    pub signatures: u32,
}

impl RwQp {
    /// Of a queue pair made with `cap`, without registrations: contexts that need one find the pool empty.
    #[must_use]
    pub fn new(caps: &DeviceCaps, cap: &QpCap) -> Self {
        Self {
            caps: *caps,
            limits: QpLimits::new(caps, cap),
            pages_per_mr: pages_per_mr(caps, cap.integrity),
            rdma_mrs: MrPool::default(),
            sig_mrs: MrPool::default(),
        }
    }

    /// Of a queue pair made with `cap` in `pd`, with a registration for each of `ctxs` contexts where the device's contexts may
    /// use some, and one for signatures with integrity. Give them back with [`Self::cleanup_mrs`].
    ///
    /// # Errors
    /// The device's; nothing is left of it then.
    pub fn init_mrs<D: Device>(device: &mut D, pd: Pd, cap: &QpCap, ctxs: u32) -> Result<Self, DeviceError> {
        let integrity = cap.integrity == Integrity::Enabled;
        // Deviation: Linux makes some for every queue pair with integrity. A device in user space may have signatures and no fast
        // registrations; its contexts ask for none.
        let has_some = integrity && device.caps().max_fast_reg_page_list_len > 0;
        let plain = if can_use_mr(device.caps()) || has_some { ctxs } else { 0 };
        let signatures = if integrity { ctxs } else { 0 };
        Self::init_pools(device, pd, cap, PoolSizes { plain, signatures })
    }

    /// As [`Self::init_mrs`], with pools of these sizes, for a user that knows how many of its contexts use registrations.
    ///
    /// # Errors
    /// The device's; nothing is left of it then.
    pub fn init_pools<D: Device>(
        device: &mut D,
        pd: Pd,
        cap: &QpCap,
        sizes: PoolSizes,
    ) -> Result<Self, DeviceError> {
        let mut qp = Self::new(device.caps(), cap);
        if sizes.plain > 0 {
            qp.rdma_mrs = MrPool::new(device, pd, sizes.plain, qp.pages_per_mr)?;
        }
        if sizes.signatures > 0 {
            match MrPool::new_integrity(device, pd, sizes.signatures, qp.pages_per_mr) {
                Ok(pool) => qp.sig_mrs = pool,
                Err(error) => {
                    qp.cleanup_mrs(device);
                    return Err(error);
                }
            }
        }
        Ok(qp)
    }

    /// Gives the registrations back to the device. All contexts of the queue pair were destroyed.
    pub fn cleanup_mrs<D: Device>(&mut self, device: &mut D) {
        self.sig_mrs.destroy(device);
        self.rdma_mrs.destroy(device);
    }

    /// The device's capabilities.
    #[must_use]
    pub fn caps(&self) -> &DeviceCaps {
        &self.caps
    }

    /// SGE limits.
    #[must_use]
    pub fn limits(&self) -> QpLimits {
        self.limits
    }

    /// Scatter entries of one registration at most, at least one.
    #[must_use]
    pub fn pages_per_mr(&self) -> u32 {
        self.pages_per_mr
    }

    /// Registrations for plain contexts.
    #[must_use]
    pub fn rdma_mrs(&self) -> &MrPool {
        &self.rdma_mrs
    }

    /// Registrations for contexts with signatures.
    #[must_use]
    pub fn sig_mrs(&self) -> &MrPool {
        &self.sig_mrs
    }
}
