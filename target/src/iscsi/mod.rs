//! iSCSI over RDMA (iSER): wire formats, texts and their keys, names, authentication.
//!
//! Sans-IO: nothing here has a socket, a clock or a thread. Nothing listens for it yet: the target serves NVMe over
//! Fabrics only.

pub mod chap;
pub mod keys;
pub mod name;
pub mod text;
pub mod wire;

#[cfg(test)]
mod recorded;
