//! iSCSI over RDMA (iSER): wire formats, and the login to which they add up.
//!
//! Sans-IO: nothing here has a socket, a clock or a thread. Nothing listens for it yet: the target serves NVMe over
//! Fabrics only.

pub mod chap;
pub mod directory;
pub mod discovery;
pub mod keys;
pub mod login;
pub mod name;
pub mod outgoing;
pub mod sessions;
pub mod text;
pub mod wire;

#[cfg(test)]
mod recorded;
