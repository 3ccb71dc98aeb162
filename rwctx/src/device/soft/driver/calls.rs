//! One `sendmmsg` call: message headers, names and control messages, laid out anew each time.
//!
//! Knows nothing of queues; what the vectors point to is the caller's business. Spec: roce-wire 5.3 (`UDP_SEGMENT`).
#![allow(unsafe_code, reason = "sendmmsg with control messages, gathering registered memory in place")]

use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};

use libc::c_int;
use nix::errno::Errno;

use super::queue::{MESSAGES, VECTORS};
use super::rx::{Name, empty_header};
use super::{ROCE_PORT, TxCounters};

/// Arguments of `sendmmsg`, made anew for each call.
#[derive(Debug)]
pub(super) struct Calls {
    headers: Vec<libc::mmsghdr>,
    names: Vec<Name>,
    controls: Vec<[Control; 2]>,
    /// Pieces of all messages, each message's together.
    vectors: Vec<libc::iovec>,
    /// How many of them each message has.
    pieces: Vec<usize>,
    /// Messages that the kernel has room for, as far as a test says.
    #[cfg(test)]
    pub(super) room: usize,
}

// SAFETY: pointers in here are stale between calls of `flush`; each call replaces them before the kernel sees them.
unsafe impl Send for Calls {}

/// A control message with an integer of up to eight bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    data: [u8; 8],
}

/// How a call ended.
pub(super) enum Outcome {
    /// So many messages are gone.
    Sent(usize),
    /// The socket's buffer is full.
    Later,
    /// The first one was refused.
    Refused(Errno),
}

impl Calls {
    pub(super) fn new() -> Self {
        Self {
            headers: Vec::with_capacity(MESSAGES),
            names: Vec::with_capacity(MESSAGES),
            controls: Vec::with_capacity(MESSAGES),
            vectors: Vec::with_capacity(VECTORS),
            pieces: Vec::with_capacity(MESSAGES),
            #[cfg(test)]
            room: usize::MAX,
        }
    }

    pub(super) fn clear(&mut self) {
        self.headers.clear();
        self.names.clear();
        self.controls.clear();
        self.vectors.clear();
        self.pieces.clear();
    }

    /// Begins a message: of segments of a size, or a single datagram.
    pub(super) fn message(&mut self, to: IpAddr, tos: u8, segment: Option<usize>) {
        let name = Name::new(SocketAddr::new(to, ROCE_PORT));
        let mut header = empty_header();
        header.msg_hdr.msg_namelen = name.length();
        let mut controls = [Control::none(); 2];
        let mut used = 0;
        if let Some(segment) = segment {
            let segment = u16::try_from(segment).expect("a packet fits a UDP datagram");
            controls[used] = Control::new(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
            used += 1;
        }
        if tos != 0 {
            let (level, option) = match to {
                IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
                IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
            };
            controls[used] = Control::new(level, option, &c_int::from(tos).to_ne_bytes());
            used += 1;
        }
        header.msg_hdr.msg_controllen = (used * size_of::<Control>()) as _;
        self.headers.push(header);
        self.names.push(name);
        self.controls.push(controls);
        self.pieces.push(0);
    }

    /// Appends bytes to the message begun last. Neighbours in memory become one piece.
    pub(super) fn piece(&mut self, piece: libc::iovec) {
        let pieces = self.pieces.last_mut().expect("a message was begun");
        match self.vectors.last_mut() {
            Some(last) if *pieces > 0 && last.iov_base.wrapping_byte_add(last.iov_len) == piece.iov_base => {
                last.iov_len += piece.iov_len;
            }
            _ => {
                debug_assert!(self.vectors.len() < VECTORS, "no more pieces than the queue has");
                self.vectors.push(piece);
                *pieces += 1;
            }
        }
    }

    /// Sends all messages, as far as the kernel takes them.
    pub(super) fn send(&mut self, socket: &OwnedFd, counters: &mut TxCounters) -> Outcome {
        let mut vectors = self.vectors.as_mut_slice();
        let parts = self.names.iter_mut().zip(&mut self.controls).zip(&self.pieces);
        for (header, ((name, control), &pieces)) in self.headers.iter_mut().zip(parts) {
            let message = &mut header.msg_hdr;
            let (own, rest) = vectors.split_at_mut(pieces);
            vectors = rest;
            message.msg_iov = own.as_mut_ptr();
            message.msg_iovlen = pieces as _;
            message.msg_name = (&raw mut *name).cast();
            if message.msg_controllen > 0 {
                message.msg_control = (&raw mut *control).cast();
            }
        }
        #[cfg(test)]
        if self.room < self.headers.len() {
            self.headers.truncate(self.room);
            if self.room == 0 {
                return Outcome::Later;
            }
        }
        counters.calls += 1;
        let count = libc::c_uint::try_from(self.headers.len()).expect("at most MESSAGES");
        // SAFETY: `count` headers, each with a name, control messages and vectors in this value's own arrays and with
        // their true lengths, which nothing changes during the call; the vectors point to bytes of a queue's arena or
        // of registered memory, which live while packets wait (see `TxBatch`).
        let sent = unsafe {
            libc::sendmmsg(socket.as_raw_fd(), self.headers.as_mut_ptr(), count, libc::MSG_DONTWAIT as _)
        };
        match usize::try_from(sent) {
            Ok(sent) => {
                #[cfg(test)]
                {
                    self.room -= sent;
                }
                Outcome::Sent(sent)
            }
            Err(_) => match Errno::last() {
                Errno::EAGAIN => Outcome::Later,
                Errno::EINTR => Outcome::Sent(0),
                error => Outcome::Refused(error),
            },
        }
    }
}

impl Control {
    fn none() -> Self {
        Self::new(0, 0, &[])
    }

    fn new(level: c_int, kind: c_int, value: &[u8]) -> Self {
        let mut data = [0; 8];
        data[..value.len()].copy_from_slice(value);
        let length = size_of::<libc::cmsghdr>() + value.len();
        Self { header: libc::cmsghdr { cmsg_len: length as _, cmsg_level: level, cmsg_type: kind }, data }
    }
}

impl Name {
    fn new(to: SocketAddr) -> Self {
        let mut name = [0; 28];
        let family = if to.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
        let family = u16::try_from(family).expect("address families are small");
        name[..2].copy_from_slice(&family.to_ne_bytes());
        name[2..4].copy_from_slice(&to.port().to_be_bytes());
        match to.ip() {
            IpAddr::V4(v4) => name[4..8].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => name[8..24].copy_from_slice(&v6.octets()),
        }
        Self(name)
    }

    fn length(&self) -> libc::socklen_t {
        let v4 = c_int::from(u16::from_ne_bytes([self.0[0], self.0[1]])) == libc::AF_INET;
        if v4 { 16 } else { 28 }
    }
}

const _: () = assert!(size_of::<Control>() == 24, "a control message is aligned to words of eight bytes");
