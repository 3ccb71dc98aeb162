//! An iSCSI initiator over RDMA (iSER): logs in, sends SCSI commands, moves their data, measures.
//!
//! State machines without clock, device or socket: [`login`] with [`keys`] and [`chap`], [`session`]. What SCSI says:
//! [`cdb`], [`mod@unit`], [`inquiry`], [`Failure`]. [`initiator::Initiator`] owns the device and drives them; [`commands`] are
//! carried out one at a time, [`mod@bench`] keeps many under way. RFC 7143, RFC 7145; rw-contexts 5.

pub mod bench;
pub mod cdb;
pub mod chap;
pub mod cli;
pub mod commands;
mod connection;
pub mod discovery;
mod failure;
pub mod initiator;
pub mod inquiry;
pub mod keys;
pub mod login;
pub mod secret;
pub mod session;
pub mod unit;

pub use failure::{Failure, GOOD};
