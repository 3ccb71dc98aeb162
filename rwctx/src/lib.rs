//! RDMA READ/WRITE contexts, and the devices that execute them.
//!
//! A context ([`ctx::RwCtx`]) moves the data of one request between local memory and a peer's segments; a
//! [`device::Device`] executes its work requests. The model is Linux's `rdma_rw`; the default device is the
//! userspace RoCEv2 endpoint in [`device::soft`]. Lists of a peer's segments become contexts by [`segment`].

pub mod ctx;
pub mod device;
pub mod mem;
pub mod mr_pool;
pub mod plan;
pub mod qp;
pub mod remote;
pub mod segment;
pub mod signature;
pub mod sq;
pub mod wc;
pub mod wr;
