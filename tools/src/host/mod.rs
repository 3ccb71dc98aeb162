//! An initiator on the soft device, for NVMe over RDMA and for iSCSI over RDMA (iSER): connects, sends commands, moves their
//! data, measures.
//!
//! [`link::Link`] owns the device and the NVMe queue pairs on it; [`controller::Controller`] speaks NVMe over them: Connect,
//! properties, Admin and I/O commands, one at a time. [`mod@iscsi`] has the same for iSER. [`mod@bench`] keeps many commands of
//! either in flight. Layouts are the target's ([`intact::nvmf::wire`], [`intact::iscsi::wire`]), used from the other side. One
//! thread, no locks. Works with Linux's targets, too.

pub mod bench;
mod buffers;
mod channel;
pub mod cli;
mod clock;
pub mod controller;
pub mod discovery;
mod error;
pub mod identify;
pub mod identity;
pub mod iscsi;
pub mod link;
pub mod namespace;
mod port;
mod queue;
pub mod size;

pub use buffers::{Buffers, Keys, Registrar};
pub use error::{Fault, HostError, Of, Refusal, advice, describe};
