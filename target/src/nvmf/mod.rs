//! NVMe over Fabrics: wire formats, commands as values, controllers, discovery and the registry of all of them.
//!
//! Sans-IO: nothing here has a socket, a clock or a thread. Time is an argument, effects are returned. Queue pairs
//! and the movement of data live beside this on an RDMA device and feed it.

pub mod command;
pub mod controller;
mod discovery;
pub mod namespace;
pub mod rdma;
pub mod registry;
pub mod subsystem;
pub mod validate;
pub mod wire;

#[cfg(test)]
mod testing;
