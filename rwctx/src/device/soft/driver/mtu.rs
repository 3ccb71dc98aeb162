//! Which path MTU the interface of a local address allows.
//!
//! Reads the system's list of interfaces, once per address. Spec: roce-wire 5.6.
#![allow(unsafe_code, reason = "asks for an interface's MTU, which no safe wrapper offers")]

use std::ffi::c_char;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use nix::ifaddrs::getifaddrs;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, socket};

use crate::device::PathMtu;

/// The largest path MTU whose packets fit the interface that has `address` or, for loopback, its network; 1024, which
/// fits Ethernet, if no interface is found.
pub(super) fn path_mtu(address: IpAddr) -> PathMtu {
    interface_mtu(address).map_or(PathMtu::Mtu1024, largest)
}

/// Linux's rule: headers of any packet are reckoned with 96 bytes.
fn largest(interface: usize) -> PathMtu {
    match interface.saturating_sub(HEADERS) {
        4096.. => PathMtu::Mtu4096,
        2048.. => PathMtu::Mtu2048,
        1024.. => PathMtu::Mtu1024,
        512.. => PathMtu::Mtu512,
        _ => PathMtu::Mtu256,
    }
}

fn interface_mtu(address: IpAddr) -> Option<usize> {
    let name = getifaddrs().ok()?.find_map(|interface| {
        let own = ip(interface.address.as_ref()?)?;
        let same = own == address || (own.is_loopback() && address.is_loopback());
        same.then_some(interface.interface_name)
    })?;
    let any = socket(AddressFamily::Inet, SockType::Datagram, SockFlag::SOCK_CLOEXEC, None).ok()?;
    // Not from sysfs, which may show another network namespace than ours.
    // SAFETY: zero is a valid value of every field of a request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    // SAFETY: the request is a valid `ifreq` with a name that ends in zero, and lives during the call.
    let failed = unsafe { libc::ioctl(any.as_raw_fd(), libc::SIOCGIFMTU, &raw mut request) };
    if failed != 0 {
        return None;
    }
    // SAFETY: the call filled in this field of the union.
    usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()
}

fn ip(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
}

/// IPv6 or GRH, UDP, BTH and the longest extension headers, ICRC.
const HEADERS: usize = 96;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_allow_what_linux_would_choose() {
        for (interface, expected) in [
            (65536, PathMtu::Mtu4096),
            (9000, PathMtu::Mtu4096),
            (4192, PathMtu::Mtu4096),
            (4191, PathMtu::Mtu2048),
            (1500, PathMtu::Mtu1024),
            (1400, PathMtu::Mtu1024),
            (1000, PathMtu::Mtu512),
            (68, PathMtu::Mtu256),
        ] {
            assert_eq!(largest(interface), expected, "{interface}");
        }
    }

    #[test]
    fn every_loopback_address_has_the_mtu_of_the_loopback_interface() {
        for address in ["127.0.0.1", "127.99.0.2", "::1"] {
            assert_eq!(path_mtu(address.parse().unwrap()), PathMtu::Mtu4096, "{address}");
        }
        assert_eq!(path_mtu("203.0.113.9".parse().unwrap()), PathMtu::Mtu1024);
    }
}
