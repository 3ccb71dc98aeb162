//! An NVMe-oF/RDMA host on the soft device: connects to a controller, sends commands, moves their data, measures.
//!
//! [`link::Link`] owns the device and the queue pairs on it; [`controller::Controller`] speaks NVMe over them: Connect,
//! properties, Admin and I/O commands, one at a time; [`mod@bench`] keeps many in flight. Layouts are the target's
//! ([`intact::nvmf::wire`]), used from the other side. One thread, no locks. Works with Linux's target, too.

pub mod bench;
mod buffers;
pub mod cli;
mod clock;
pub mod controller;
pub mod discovery;
mod error;
pub mod identify;
pub mod identity;
pub mod link;
pub mod namespace;
mod queue;
pub mod size;

pub use buffers::{Buffers, Keys};
pub use error::{Fault, HostError, Refusal, advice, describe};
