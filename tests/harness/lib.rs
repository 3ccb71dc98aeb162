//! Harness of the suites: starts targets, drives hosts, boots guests.

pub mod flood;
pub mod fuzz;
pub mod guest;
pub mod host;
pub mod iscsi;
pub mod metrics;
pub mod net;
pub mod packet;
pub mod stamp;
pub mod target;
pub mod vm;
