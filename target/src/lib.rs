//! The target: volumes, exported over RDMA, with protection information kept intact.

pub mod block;
pub mod cli;
pub mod config;
pub mod iscsi;
pub mod log_limit;
pub mod log_writer;
pub mod metrics;
pub mod nvmf;
pub mod reactor;
pub mod request;
pub mod reservation_store;
pub mod scsi;
pub mod serve;
pub mod stats;
pub mod transport;
