//! iSCSI over RDMA (iSER): wire formats, the login and the full feature phase.
//!
//! Sans-IO: nothing here has a socket, a clock or a thread. Connections and the movement of data live beside this on an RDMA
//! device ([`rdma`]) and feed it.

pub mod chap;
pub mod directory;
pub mod discovery;
pub mod keys;
pub mod login;
pub mod name;
pub mod outgoing;
pub mod rdma;
pub mod registry;
pub mod session;
pub mod sessions;
pub mod text;
pub mod wire;

#[cfg(test)]
mod recorded;
