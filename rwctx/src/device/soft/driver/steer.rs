//! Opens the sockets of the soft device, and steers datagrams to the reactor that owns their queue pair.
//!
//! All receive sockets of one address form an `SO_REUSEPORT` group. A classic BPF program reads the destination queue
//! pair of the base transport header and picks the group's member; members are numbered in the order in which they
//! were bound, so one thread opens a whole group, in reactor order, and hands the members out. Moves no packets.
//! Spec: roce-wire 5.1 (who owns port 4791), 5.2 (checksums), 5.4 (steering), 5.5 (buffers), 1.8 (IPv4 Identification).
#![allow(unsafe_code, reason = "sets socket options that no safe wrapper offers")]

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

use libc::c_int;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, bind, socket};
use thiserror::Error;

use super::{Checksum, DriverConfig, Gso, ROCE_PORT};

/// Why the sockets of a soft device could not be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The configuration names no address, or no reactor.
    #[error("the soft device needs at least one {0}")]
    Nothing(&'static str),
    /// The address can't be used by RoCE.
    #[error("{address} can't be used by the soft device: {reason}")]
    Unusable {
        /// As configured.
        address: IpAddr,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// No interface has the address.
    #[error(
        "{0} is not an address of this machine (or of this network namespace); `ip address` lists those that are"
    )]
    NotLocal(IpAddr),
    /// Somebody else has UDP port 4791 of the address.
    #[error("UDP port {ROCE_PORT} of {address} is taken {by}")]
    PortTaken {
        /// As configured.
        address: IpAddr,
        /// Whom we suspect, and what to do.
        by: &'static str,
    },
    /// A system call failed.
    #[error("{operation} for {address} failed")]
    System {
        /// What was tried.
        operation: &'static str,
        /// For which local address.
        address: IpAddr,
        /// Why it failed.
        source: io::Error,
    },
}

/// The sockets of one reactor for one local address.
#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) address: IpAddr,
    /// Bound to port 4791.
    pub(super) rx: OwnedFd,
    /// Unconnected; bound to `tx_port`, receives nothing.
    pub(super) tx: OwnedFd,
    pub(super) tx_port: u16,
    /// Another one like `tx`, on the reactor that has queue pair 1: for peers that may not exist.
    pub(super) strangers: Option<(OwnedFd, u16)>,
    /// Bytes that the kernel charges against before it drops (about twice the payload for 4 KiB datagrams).
    pub(super) rcvbuf: usize,
}

/// Opens the sockets of all reactors for one address, in reactor order.
pub(super) fn open_group(config: &DriverConfig, address: IpAddr) -> Result<Vec<Sockets>, OpenError> {
    usable(address)?;
    // A group that already exists would take us in silently if it belongs to our user, and then swallow our packets.
    // A socket without SO_REUSEPORT can join none: if it can be bound, the port is free.
    drop(bound(config, address, Group::Alone)?);
    let group = if config.reactors == 1 { Group::Alone } else { Group::Member };
    let mut all = Vec::with_capacity(config.reactors);
    for reactor in 0..config.reactors {
        let (rx, rcvbuf) = bound(config, address, group)?;
        let (tx, tx_port) = open_tx(config, address, SNDBUF)?;
        let strangers = if reactor == 0 { Some(open_tx(config, address, SNDBUF_STRANGERS)?) } else { None };
        all.push(Sockets { address, rx, tx, tx_port, strangers, rcvbuf });
    }
    if let (Group::Member, Some(first)) = (group, all.first()) {
        let members = u32::try_from(config.reactors).expect("reactors are far fewer than 2^32");
        attach(&first.rx, libc::SO_ATTACH_REUSEPORT_CBPF, &steering(members)).map_err(|source| {
            OpenError::System { operation: "steering queue pairs to reactors", address, source }
        })?;
    }
    Ok(all)
}

/// Whether a receive socket shares its port with the other reactors' sockets.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Alone,
    Member,
}

fn usable(address: IpAddr) -> Result<(), OpenError> {
    let refuse = |reason| Err(OpenError::Unusable { address, reason });
    if address.is_unspecified() {
        return refuse("packets are checksummed with their addresses, so name each address instead");
    }
    if address.is_multicast() {
        return refuse("it is a multicast address");
    }
    match address {
        IpAddr::V4(v4) if v4.is_broadcast() => refuse("it is the broadcast address"),
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            refuse("link-local IPv6 addresses depend on an interface; use another address of the interface")
        }
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => refuse("write it as an IPv4 address"),
        _ => Ok(()),
    }
}

/// Binds a receive socket with everything it needs; also says how much it buffers.
fn bound(config: &DriverConfig, address: IpAddr, group: Group) -> Result<(OwnedFd, usize), OpenError> {
    let system = |operation| move |source| OpenError::System { operation, address, source };
    let rx = datagram_socket(address).map_err(system("making a receive socket"))?;
    if group == Group::Member {
        set_int(&rx, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1).map_err(system("sharing the port"))?;
    }
    if address.is_ipv6() {
        set_int(&rx, libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1).map_err(system("choosing IPv6 only"))?;
        // rxe and hardware send checksum zero, which IPv6 sockets refuse otherwise.
        set_int(&rx, libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1)
            .map_err(system("accepting datagrams without UDP checksum"))?;
    }
    let rcvbuf = grow(&rx, (libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), config.rcvbuf)
        .map_err(system("sizing the receive buffer"))?;
    set_int(&rx, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1).map_err(system("counting drops"))?;
    // An interface merges datagrams of one sender whatever their queue pairs, and a merged one is steered as a whole, so
    // several reactors can't have it. Loopback merges nothing by itself: there it means that batches, each of one queue
    // pair, are taken whole. Set before the first datagram can arrive, so that none is queued in another shape.
    if config.reactors == 1 || address.is_loopback() {
        set_int(&rx, libc::SOL_UDP, libc::UDP_GRO, 1).map_err(system("receiving merged datagrams"))?;
    }
    match bind(rx.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(address, ROCE_PORT))) {
        Ok(()) => Ok((rx, rcvbuf)),
        Err(nix::Error::EADDRINUSE) => Err(OpenError::PortTaken { address, by: suspect() }),
        Err(nix::Error::EADDRNOTAVAIL) => Err(OpenError::NotLocal(address)),
        Err(error) => Err(system("binding the receive socket")(error.into())),
    }
}

/// Whom to blame for a taken port: rdma_rxe owns it in every address of its network namespace once it is loaded.
fn suspect() -> &'static str {
    if Path::new("/sys/module/rdma_rxe").exists() {
        "by the kernel's Soft-RoCE, rdma_rxe, which is loaded: unload it (`rmmod rdma_rxe`), or run in another network \
         namespace"
    } else {
        "by another process, such as a second soft device: `ss -ulpn sport = :4791` names it; stop it, or use another \
         address or network namespace"
    }
}

/// Makes a transmit socket. It is never connected: the kernel numbers the IPv4 Identification of connected sockets
/// in a way that the ICRC can't follow.
fn open_tx(config: &DriverConfig, address: IpAddr, sndbuf: usize) -> Result<(OwnedFd, u16), OpenError> {
    let system = |operation| move |source| OpenError::System { operation, address, source };
    let tx = datagram_socket(address).map_err(system("making a transmit socket"))?;
    // PROBE sets DF, keeps the Identification at zero, and ignores ICMP messages that would shrink our MTU.
    let (level, option, probe) = if address.is_ipv4() {
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_PROBE)
    } else {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_PROBE)
    };
    set_int(&tx, level, option, probe).map_err(system("forbidding fragments"))?;
    if config.checksum == Checksum::Zero {
        let (level, option) = if address.is_ipv4() {
            (libc::SOL_SOCKET, libc::SO_NO_CHECK)
        } else {
            (libc::SOL_UDP, libc::UDP_NO_CHECK6_TX)
        };
        set_int(&tx, level, option, 1).map_err(system("sending without UDP checksum"))?;
    }
    grow(&tx, (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF), sndbuf)
        .map_err(system("sizing the transmit buffer"))?;
    let nothing = [statement(libc::BPF_RET | libc::BPF_K, 0)];
    attach(&tx, libc::SO_ATTACH_FILTER, &nothing).map_err(system("refusing datagrams to the source port"))?;
    for _ in 0..PORT_TRIES {
        let port = fastrand::u16(SOURCE_PORTS);
        match bind(tx.as_raw_fd(), &SockaddrStorage::from(SocketAddr::new(address, port))) {
            Ok(()) => return Ok((tx, port)),
            Err(nix::Error::EADDRINUSE) => {}
            Err(error) => return Err(system("binding a transmit socket")(error.into())),
        }
    }
    Err(system("finding a free source port")(nix::Error::EADDRINUSE.into()))
}

fn datagram_socket(address: IpAddr) -> io::Result<OwnedFd> {
    let family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    Ok(socket(family, SockType::Datagram, flags, None)?)
}

/// Sets a buffer size, beyond the system's limit if we may, and returns what became of it. All sizes are as the
/// kernel accounts; it doubles what it is asked for.
fn grow(fd: &OwnedFd, (force, polite): (c_int, c_int), bytes: usize) -> io::Result<usize> {
    let half = c_int::try_from(bytes / 2).unwrap_or(c_int::MAX);
    if set_int(fd, libc::SOL_SOCKET, force, half).is_err() {
        // Without CAP_NET_ADMIN: as much as net.core.rmem_max or wmem_max allows.
        set_int(fd, libc::SOL_SOCKET, polite, half)?;
    }
    let got = int_option(fd, libc::SOL_SOCKET, polite)?;
    Ok(usize::try_from(got).unwrap_or(0))
}

/// `QPN 1 -> 0, otherwise QPN % members`: the number of the group's member that gets a datagram. A datagram too short
/// for the load goes to member 0.
fn steering(members: u32) -> [libc::sock_filter; 6] {
    [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 4),
        statement(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0x00ff_ffff),
        libc::sock_filter { jt: 0, jf: 1, ..statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 1) },
        statement(libc::BPF_RET | libc::BPF_K, 0),
        statement(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, members),
        statement(libc::BPF_RET | libc::BPF_A, 0),
    ]
}

/// One instruction that does not jump.
fn statement(code: u32, k: u32) -> libc::sock_filter {
    libc::sock_filter { code: u16::try_from(code).expect("BPF codes have 16 bits"), jt: 0, jf: 0, k }
}

fn attach(fd: &OwnedFd, option: c_int, program: &[libc::sock_filter]) -> io::Result<()> {
    let length = u16::try_from(program.len()).expect("programs are short");
    let program = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    set_option(fd, libc::SOL_SOCKET, option, &program)
}

fn set_int(fd: &OwnedFd, level: c_int, option: c_int, value: c_int) -> io::Result<()> {
    set_option(fd, level, option, &value)
}

fn set_option<T>(fd: &OwnedFd, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    let size = libc::socklen_t::try_from(size_of::<T>()).expect("option values are small");
    // SAFETY: `value` is readable for `size` bytes during the call; the kernel copies it, and what a filter program
    // points to, before it returns (`attach` borrows the program until then).
    let failed = unsafe { libc::setsockopt(fd.as_raw_fd(), level, option, (&raw const *value).cast(), size) };
    if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn int_option(fd: &OwnedFd, level: c_int, option: c_int) -> io::Result<c_int> {
    let mut value: c_int = 0;
    let mut size = libc::socklen_t::try_from(size_of::<c_int>()).expect("an int is small");
    // SAFETY: `value` is writable for `size` bytes during the call, and `size` says so.
    let failed =
        unsafe { libc::getsockopt(fd.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut size) };
    if failed == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

/// Source ports that RoCE uses by convention (roce-wire 1.9).
const SOURCE_PORTS: std::ops::RangeInclusive<u16> = 0xc000..=0xffff;
/// Random ports tried before giving up; they collide only when thousands are in use.
const PORT_TRIES: usize = 256;
/// Bytes that may wait in the interface's queue, as the kernel accounts.
const SNDBUF: usize = 8 << 20;
/// The same of packets to peers that may not exist: three seconds of thousands of answers each second.
const SNDBUF_STRANGERS: usize = 64 << 20;

impl DriverConfig {
    /// Whether segmentation may be used at all: the kernel refuses it for sockets that send no checksum.
    pub(super) fn segments(&self) -> bool {
        self.gso == Gso::On && self.checksum == Checksum::Full
    }
}
