//! iSCSI over RDMA (iSER): wire formats.
//!
//! Sans-IO: nothing here has a socket, a clock or a thread. Nothing listens for it yet: the target serves NVMe over
//! Fabrics only.

pub mod wire;

#[cfg(test)]
mod recorded;
