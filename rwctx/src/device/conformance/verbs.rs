//! The suite on a verbs device, whose two ends are two contexts of one RDMA device.
//!
//! `INTACT_CONFORMANCE_ADDRESS` is an address of it. Without an RDMA device nothing can run: a guest of the interop suite has one.

use std::fs;
use std::net::IpAddr;

use super::link::Link;
use crate::device::Route;
use crate::device::verbs::{VerbsConfig, VerbsDevice};

fn link() -> Link<VerbsDevice> {
    let address = std::env::var("INTACT_CONFORMANCE_ADDRESS").expect("INTACT_CONFORMANCE_ADDRESS is set");
    let address: IpAddr = address.parse().expect("INTACT_CONFORMANCE_ADDRESS is an IP address");
    let devices = VerbsDevice::open(&VerbsConfig { addresses: vec![address], reactors: 2 }).unwrap();
    let devices = devices.try_into().expect("two devices");
    Link::new(devices, [address; 2], [Some(route(address)); 2])
}

/// How the device reaches itself.
fn route(address: IpAddr) -> Route {
    let dgid = match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    };
    let gid =
        dgid.chunks(2).map(|pair| format!("{:02x}{:02x}", pair[0], pair[1])).collect::<Vec<_>>().join(":");
    let index = (0..16_u8).find(|index| {
        let devices = fs::read_dir("/sys/class/infiniband").expect("RDMA devices are listed");
        devices.flatten().any(|device| {
            let path = device.path().join(format!("ports/1/gids/{index}"));
            fs::read_to_string(path).is_ok_and(|found| found.trim() == gid)
        })
    });
    Route {
        port: 1,
        pkey_index: 0,
        dgid,
        sgid_index: index.expect("the address is one of the device's"),
        flow_label: 0,
        hop_limit: 64,
        is_global: true,
        dlid: 0,
        sl: 0,
        src_path_bits: 0,
        static_rate: 0,
    }
}

super::conforms_with_a_peer!(
    [#[ignore = "needs an RDMA device: tests/interop/conformance.rs runs it in a guest"]] link
);
