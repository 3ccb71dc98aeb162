//! Receives datagrams in batches into preallocated buffers, and splits what the kernel merged (`UDP_GRO`).
//!
//! Looks at no payload. Spec: roce-wire 5.3 (merging), 5.5 (drops), 5.7 (batches).
#![allow(unsafe_code, reason = "recvmmsg with control messages, into memory that is reused")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

use libc::c_int;

use super::{More, RxCounters};
use crate::device::soft::RxMeta;
use crate::mem::Region;

/// Buffers of one reactor, shared by its receive sockets: each call starts with the first again.
#[derive(Debug)]
pub(super) struct RxRing {
    buffers: Region,
    slots: Vec<Slot>,
    headers: Vec<libc::mmsghdr>,
    /// Headers from the first that the kernel changed in the last call.
    used: usize,
}

// SAFETY: the headers point into `slots` and `buffers` only, which this value owns, which never move (a Vec that never
// grows, a mapping), and which nobody else reaches.
unsafe impl Send for RxRing {}

/// A receive socket.
#[derive(Debug)]
pub(super) struct RxSocket {
    pub(super) fd: OwnedFd,
    pub(super) address: IpAddr,
    /// Bytes that the kernel charges against before it drops.
    pub(super) rcvbuf: usize,
    /// The kernel's count of drops, when it last told.
    drops: u32,
}

impl RxSocket {
    pub(super) fn new(fd: OwnedFd, address: IpAddr, rcvbuf: usize) -> Self {
        Self { fd, address, rcvbuf, drops: 0 }
    }
}

/// Where the kernel puts the sender, control messages and (through the vector) the bytes of a message.
#[derive(Debug)]
struct Slot {
    name: Name,
    control: Control,
    vector: libc::iovec,
}

/// A socket address in its wire-like layout: `sockaddr_in` or `sockaddr_in6`.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub(super) struct Name(pub(super) [u8; 28]);

/// Room for the control messages that we asked for (drop count, segment size) and two more.
#[derive(Debug)]
#[repr(C, align(8))]
struct Control([u8; 96]);

impl RxRing {
    /// Allocates everything.
    pub(super) fn new() -> nix::Result<Self> {
        let buffers = Region::new(RX_BATCH * STRIDE)?;
        let slots = (0..RX_BATCH)
            .map(|index| {
                let buffer =
                    buffers.ptr(index * STRIDE, BUFFER).expect("the region was made for all buffers");
                Slot {
                    name: Name([0; 28]),
                    control: Control([0; 96]),
                    vector: libc::iovec { iov_base: buffer.as_ptr().cast(), iov_len: BUFFER },
                }
            })
            .collect();
        let headers = (0..RX_BATCH).map(|_| empty_header()).collect();
        Ok(Self { buffers, slots, headers, used: RX_BATCH })
    }

    /// Takes what waits in a socket, at most one batch, and gives each datagram to `each`. Never blocks.
    pub(super) fn receive(
        &mut self,
        socket: &mut RxSocket,
        counters: &mut RxCounters,
        mut each: impl FnMut(&RxMeta, &[u8]),
    ) -> More {
        for (slot, header) in self.slots.iter_mut().zip(&mut self.headers).take(self.used) {
            let message = &mut header.msg_hdr;
            message.msg_name = (&raw mut slot.name).cast();
            message.msg_namelen = NAME_LEN;
            message.msg_iov = &raw mut slot.vector;
            message.msg_iovlen = 1;
            message.msg_control = (&raw mut slot.control).cast();
            message.msg_controllen = size_of::<Control>();
        }
        self.used = 0;
        // SAFETY: the headers are RX_BATCH many; each points to a name, a control buffer and a vector of this value
        // with their true sizes, and each vector to its own BUFFER bytes of the region, which no reference covers now.
        let got = unsafe {
            libc::recvmmsg(
                socket.fd.as_raw_fd(),
                self.headers.as_mut_ptr(),
                BATCH,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        counters.calls += 1;
        let Ok(count) = usize::try_from(got) else {
            let error = nix::Error::last();
            if error != nix::Error::EAGAIN && error != nix::Error::EINTR {
                counters.errors += 1;
                tracing::debug!(address = %socket.address, %error, "receiving failed");
            }
            return More::No;
        };
        self.used = count;
        for (index, (slot, header)) in self.slots.iter().zip(&self.headers).take(count).enumerate() {
            let length = header.msg_len as usize;
            let extras = Extras::parse(&slot.control.0, header.msg_hdr.msg_controllen);
            if let Some(drops) = extras.drops {
                counters.drops += u64::from(drops.wrapping_sub(socket.drops));
                socket.drops = drops;
            }
            let cut = header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0;
            let Some((src, src_port)) = slot.name.parse().filter(|_| !cut) else {
                counters.malformed += 1;
                continue;
            };
            let meta = RxMeta { src, dst: socket.address, src_port };
            // SAFETY: the kernel writes to the buffers only during recvmmsg, and only `self` can call that.
            let bytes = unsafe { self.buffers.bytes(index * STRIDE, length) };
            counters.bytes += length as u64;
            for datagram in bytes.chunks(extras.segment.unwrap_or(length).max(1)) {
                each(&meta, datagram);
                counters.datagrams += 1;
            }
        }
        if count == RX_BATCH { More::Likely } else { More::No }
    }
}

/// The control messages of a received message.
#[derive(Default)]
struct Extras {
    segment: Option<usize>,
    drops: Option<u32>,
}

impl Extras {
    fn parse(control: &[u8], length: usize) -> Self {
        let mut extras = Self::default();
        let mut rest = &control[..length.min(control.len())];
        while let Some((header, _)) = rest.split_at_checked(CMSG_HEADER) {
            let (length, ids) = header.split_at(size_of::<usize>());
            let length = usize::from_ne_bytes(length.try_into().expect("the length is a word"));
            let Some(data) = rest.get(CMSG_HEADER..length) else { break };
            let word =
                |at: usize| ids.get(at..at + 4).and_then(|b| b.try_into().ok()).map(c_int::from_ne_bytes);
            let value: Option<[u8; 4]> = data.get(..4).and_then(|b| b.try_into().ok());
            match (word(0), word(4), value) {
                (Some(libc::SOL_UDP), Some(libc::UDP_GRO), Some(value)) => {
                    extras.segment = usize::try_from(c_int::from_ne_bytes(value)).ok().filter(|s| *s > 0);
                }
                (Some(libc::SOL_SOCKET), Some(libc::SO_RXQ_OVFL), Some(value)) => {
                    extras.drops = Some(u32::from_ne_bytes(value));
                }
                _ => {}
            }
            rest = rest.get(length.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
        }
        extras
    }
}

impl Name {
    /// Address and port, if it is an IP address.
    fn parse(&self) -> Option<(IpAddr, u16)> {
        let bytes = &self.0;
        let family = c_int::from(u16::from_ne_bytes([bytes[0], bytes[1]]));
        let port = u16::from_be_bytes([bytes[2], bytes[3]]);
        let address = match family {
            libc::AF_INET => Ipv4Addr::new(bytes[4], bytes[5], bytes[6], bytes[7]).into(),
            libc::AF_INET6 => {
                let address: [u8; 16] = bytes[8..24].try_into().expect("sixteen bytes");
                Ipv6Addr::from(address).into()
            }
            _ => return None,
        };
        Some((address, port))
    }
}

/// A message header that names nothing.
pub(super) fn empty_header() -> libc::mmsghdr {
    // SAFETY: null pointers, zero lengths and zero flags are valid values of every field.
    unsafe { std::mem::zeroed() }
}

/// Messages of one call. A message may hold 64 datagrams (roce-wire 6 suggests 64 without merging).
const BATCH: libc::c_uint = 64;
const RX_BATCH: usize = BATCH as usize;
/// The longest UDP payload and merged datagram fit.
const BUFFER: usize = 64 << 10;
/// Distance of buffers: not a power of two, which would put the starts of all buffers into the same few cache sets.
const STRIDE: usize = BUFFER + 4096 + 128;
/// Bytes of a [`Name`].
const NAME_LEN: libc::socklen_t = 28;
/// `cmsghdr` before its data.
const CMSG_HEADER: usize = size_of::<libc::cmsghdr>();
