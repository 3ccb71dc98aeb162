//! The verbs device: RDMA hardware, or the kernel's software RoCE, through libibverbs and librdmacm.
//!
//! `handles`, `queue_pair` and `channel` own the libraries' objects and are all that calls C; the rest is safe. Each reactor opens the
//! device by itself and shares nothing with the others; connections are the business of reactor 0's event channel, which is
//! told the number of a queue pair, whichever reactor has made it.
//!
//! A ConnectX runs signatures where the build has the feature `mlx5` ([`super::mlx5`]): `signatures` says who does.
//! User space has no fast registration, so contexts are made of plain scatter lists over memory that was registered once.
//! iWARP devices are refused: their READs need registrations of another kind.

mod caps;
mod channel;
mod cm;
mod completion;
mod connections;
mod device;
mod handles;
mod open;
mod provider;
mod queue_pair;
mod send_queue;
mod signatures;
mod teardown;
mod unconfirmed;

use std::io;
use std::net::IpAddr;

use thiserror::Error;

pub use device::VerbsDevice;

/// How to open a verbs device.
#[derive(Clone, Debug)]
pub struct VerbsConfig {
    /// Local addresses, all of one RDMA device.
    pub addresses: Vec<IpAddr>,
    /// Reactors, at least one; each opens the device.
    pub reactors: usize,
}

/// Why the device can't be opened.
#[derive(Debug, Error)]
pub enum OpenError {
    /// There is no address to look for.
    #[error("no address: give at least one")]
    NoAddress,
    /// The address is none of an RDMA device.
    #[error("{address} is the address of no RDMA device (`rdma link` lists them)")]
    NoDevice {
        /// The address.
        address: IpAddr,
        /// What the library said.
        #[source]
        source: io::Error,
    },
    /// Addresses of two devices.
    #[error(
        "{address} is an address of {device}, and {other_address} is one of {other}; needed: addresses of one device"
    )]
    SeveralDevices {
        /// An address.
        address: IpAddr,
        /// Its device.
        device: String,
        /// Another address.
        other_address: IpAddr,
        /// Its device.
        other: String,
    },
    /// iWARP.
    #[error("{device} is an iWARP device, which is not supported; needed: RoCE or InfiniBand")]
    Iwarp {
        /// The device.
        device: String,
    },
    /// The system refused something.
    #[error("can't {what}")]
    System {
        /// What was to be done.
        what: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
}
