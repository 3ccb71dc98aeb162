//! Owners of librdmacm's objects: an event channel and connection identifiers, and their events as values.
//!
//! Calls C, as `handles` does. Queue pairs are not made by librdmacm: it is told their numbers, so that
//! they can belong to another thread's device. Manual pages: rdma_cm(7) and on.
#![allow(unsafe_code, reason = "the objects of a C library")]

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use rdma_sys::{
    ibv_event_type, ibv_qp_attr, ibv_qp_state, rdma_accept, rdma_ack_cm_event, rdma_bind_addr, rdma_cm_event,
    rdma_cm_event_type, rdma_cm_id, rdma_conn_param, rdma_create_event_channel, rdma_create_id,
    rdma_destroy_event_channel, rdma_destroy_id, rdma_disconnect, rdma_event_channel, rdma_get_cm_event,
    rdma_init_qp_attr, rdma_listen, rdma_notify, rdma_port_space, rdma_reject,
};

use super::connections::{Acceptance, Change, Handle, IdKey, Request};
use super::handles::{borrow_fd, check, device_name, given_back, set_nonblocking};
use crate::device::soft::cm::PeerQp;
use crate::device::soft::wire::cm::REQ_PRIVATE_LEN;
use crate::device::{PathMtu, Qpn, Route};

/// Where events of connections arrive.
#[derive(Debug)]
pub(super) struct EventChannel(NonNull<rdma_event_channel>);

/// A connection, or a listener. Dropping it ends it.
#[derive(Debug)]
pub(super) struct Id {
    raw: NonNull<rdma_cm_id>,
    _channel: Arc<EventChannel>,
}

// SAFETY: librdmacm may be called from any thread (rdma_cm(7), "thread safe"), and each object has one owner here.
unsafe impl Send for EventChannel {}
// SAFETY: as above.
unsafe impl Sync for EventChannel {}
// SAFETY: as above.
unsafe impl Send for Id {}

/// What happened.
#[derive(Debug)]
pub(super) enum Event {
    /// Somebody asks for a connection.
    Request(Id, Box<Request>),
    /// Something became of a connection or listener.
    Change(IdKey, Change),
    /// A request that could not be read; it was dropped, and its sender asks again.
    Unreadable(io::Error),
}

impl EventChannel {
    pub(super) fn new() -> io::Result<Arc<Self>> {
        // SAFETY: no preconditions.
        let raw = NonNull::new(unsafe { rdma_create_event_channel() });
        let channel = Self(raw.ok_or_else(io::Error::last_os_error)?);
        set_nonblocking(channel.fd())?;
        Ok(Arc::new(channel))
    }

    /// Becomes readable when [`Self::poll`] has something.
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel exists.
        let fd = unsafe { (*self.0.as_ptr()).fd };
        borrow_fd(self, fd)
    }

    /// Takes the next event, and acknowledges it.
    pub(super) fn poll(self: &Arc<Self>) -> Option<Event> {
        let mut at: *mut rdma_cm_event = ptr::null_mut();
        // SAFETY: the channel exists, `at` may be written, and the descriptor does not block.
        if unsafe { rdma_get_cm_event(self.0.as_ptr(), &raw mut at) } != 0 {
            return None;
        }
        // SAFETY: the call gave an event, which lives until it is acknowledged.
        let event = unsafe { &*at };
        let seen = if event.event == rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_REQUEST {
            self.read_request(event)
        } else {
            Some(Event::Change(IdKey(event.id.addr()), change(event.event)))
        };
        // SAFETY: got by the call above, acknowledged once; nothing of it is used any more.
        unsafe { rdma_ack_cm_event(at) };
        seen
    }

    fn read_request(self: &Arc<Self>, event: &rdma_cm_event) -> Option<Event> {
        // The new identifier is ours now: from here on dropping it refuses the request.
        let id = Id { raw: NonNull::new(event.id)?, _channel: Arc::clone(self) };
        // SAFETY: a request for a connection has the parameters of one.
        let asked = unsafe { &event.param.conn };
        let mut private = [0; REQ_PRIVATE_LEN];
        if !asked.private_data.is_null() {
            let length = usize::from(asked.private_data_len).min(REQ_PRIVATE_LEN);
            // SAFETY: the event has so many bytes there, and lives for this call.
            let given = unsafe { std::slice::from_raw_parts(asked.private_data.cast::<u8>(), length) };
            private[..length].copy_from_slice(given);
        }
        let read = || -> io::Result<(SocketAddr, IpAddr, PeerQp)> {
            let (local, remote) = id.addresses()?;
            Ok((local, remote.ip(), id.peer(asked)?))
        };
        Some(match read() {
            Ok((local, remote, peer)) => {
                Event::Request(id, Box::new(Request { local, remote, peer, private }))
            }
            Err(error) => Event::Unreadable(error),
        })
    }
}

impl Drop for EventChannel {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once; identifiers of it held it.
        unsafe { rdma_destroy_event_channel(self.0.as_ptr()) };
    }
}

impl Id {
    /// An identifier that is bound to a local address; port 0 is any free one.
    ///
    /// # Errors
    /// What the library says: `ENODEV` and `EADDRNOTAVAIL` where no RDMA device has the address, `EADDRINUSE`.
    pub(super) fn bind(channel: &Arc<EventChannel>, address: SocketAddr) -> io::Result<Self> {
        let mut raw = ptr::null_mut();
        let space = rdma_port_space::RDMA_PS_TCP;
        // SAFETY: the channel exists; `raw` may be written.
        check(unsafe { rdma_create_id(channel.0.as_ptr(), &raw mut raw, ptr::null_mut(), space) })?;
        let raw = NonNull::new(raw).ok_or(io::ErrorKind::Other)?;
        let id = Self { raw, _channel: Arc::clone(channel) };
        let mut storage = sockaddr(address);
        // SAFETY: the identifier exists; `storage` has an address of the family that it names, and room for any.
        check(unsafe { rdma_bind_addr(raw.as_ptr(), (&raw mut storage).cast()) })?;
        Ok(id)
    }

    /// The device that has its address, and its port there; none where an address is no device's.
    pub(super) fn device(&self) -> Option<(String, u8)> {
        // SAFETY: the identifier exists.
        let id = unsafe { self.raw.as_ref() };
        // SAFETY: where it has a device, that is open as long as the identifier.
        let context = unsafe { id.verbs.as_ref() }?;
        // SAFETY: the device of an open context.
        Some((unsafe { device_name(context.device) }, id.port_num))
    }

    /// Takes requests from now on; the kernel keeps at most `backlog` of them.
    pub(super) fn listen(&self, backlog: i32) -> io::Result<()> {
        // SAFETY: the identifier exists and is bound.
        check(unsafe { rdma_listen(self.raw.as_ptr(), backlog) })
    }

    /// Our address and the peer's.
    fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        // SAFETY: the identifier exists.
        let route = unsafe { &self.raw.as_ref().route.addr };
        // SAFETY: each arm has the size of `sockaddr_storage`, the last one's, and any bytes are a value of that.
        let local = unsafe { &route.src_addr_union.src_storage };
        // SAFETY: as above.
        let remote = unsafe { &route.dst_addr_union.dst_storage };
        let known =
            |address| socket_addr(address).ok_or_else(|| io::Error::other("an address of another family"));
        Ok((known(local)?, known(remote)?))
    }

    /// What the request says of the peer's queue pair, and how the kernel would connect ours to it.
    fn peer(&self, asked: &rdma_conn_param) -> io::Result<PeerQp> {
        let init = self.attributes(ibv_qp_state::IBV_QPS_INIT)?;
        let rtr = self.attributes(ibv_qp_state::IBV_QPS_RTR)?;
        let rts = self.attributes(ibv_qp_state::IBV_QPS_RTS)?;
        let ah = &rtr.ah_attr;
        let route = Route {
            port: init.port_num,
            pkey_index: init.pkey_index,
            // SAFETY: any 16 bytes are a GID.
            dgid: unsafe { ah.grh.dgid.raw },
            sgid_index: ah.grh.sgid_index,
            flow_label: ah.grh.flow_label,
            hop_limit: ah.grh.hop_limit,
            is_global: ah.is_global != 0,
            dlid: ah.dlid,
            sl: ah.sl,
            src_path_bits: ah.src_path_bits,
            static_rate: ah.static_rate,
        };
        Ok(PeerQp {
            qpn: Qpn(rtr.dest_qp_num),
            psn: rts.sq_psn,
            path_mtu: path_mtu(rtr.path_mtu).ok_or_else(|| io::Error::other("a path MTU that is none"))?,
            retry_cnt: rts.retry_cnt,
            rnr_retry: rts.rnr_retry,
            ack_timeout: timer(rts.timeout),
            // The kernel swaps the two on the way: what the peer serves is what we may have outstanding.
            responder_resources: asked.initiator_depth,
            initiator_depth: asked.responder_resources,
            tos: ah.grh.traffic_class,
            flow_label: ah.grh.flow_label,
            rq_psn: Some(rtr.rq_psn),
            route: Some(route),
        })
    }

    /// What the kernel would change a queue pair of this connection to.
    fn attributes(&self, state: u32) -> io::Result<ibv_qp_attr> {
        // SAFETY: plain numbers, for which zeroes are values.
        let mut attr: ibv_qp_attr = unsafe { MaybeUninit::zeroed().assume_init() };
        attr.qp_state = state;
        let mut mask = 0;
        // SAFETY: the identifier exists; both may be written.
        check(unsafe { rdma_init_qp_attr(self.raw.as_ptr(), &raw mut attr, &raw mut mask) })?;
        Ok(attr)
    }
}

impl Handle for Id {
    fn accept(&self, with: &Acceptance<'_>) -> io::Result<()> {
        let mut param = rdma_conn_param {
            private_data: with.private.as_ptr().cast(),
            private_data_len: u8::try_from(with.private.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            responder_resources: with.responder_resources,
            initiator_depth: with.initiator_depth,
            flow_control: 1,
            retry_count: 7,
            rnr_retry_count: 7,
            srq: 0,
            qp_num: with.qpn.0,
        };
        // SAFETY: the identifier exists; `param`, whose data lives as long, is copied.
        check(unsafe { rdma_accept(self.raw.as_ptr(), &raw mut param) })
    }

    fn reject(&self, private: &[u8]) -> io::Result<()> {
        let length = u8::try_from(private.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: the identifier exists; the data is copied.
        check(unsafe { rdma_reject(self.raw.as_ptr(), private.as_ptr().cast(), length) })
    }

    fn disconnect(&self) -> io::Result<()> {
        // SAFETY: the identifier exists.
        check(unsafe { rdma_disconnect(self.raw.as_ptr()) })
    }

    fn notify_traffic(&self) -> io::Result<()> {
        // SAFETY: the identifier exists.
        check(unsafe { rdma_notify(self.raw.as_ptr(), ibv_event_type::IBV_EVENT_COMM_EST) })
    }

    fn key(&self) -> IdKey {
        IdKey(self.raw.as_ptr().addr())
    }
}

impl Drop for Id {
    fn drop(&mut self) {
        // SAFETY: made once, destroyed once. It waits until events of it are acknowledged, which they are as they are taken.
        given_back("a connection identifier", unsafe { rdma_destroy_id(self.raw.as_ptr()) });
    }
}

fn change(number: u32) -> Change {
    match number {
        rdma_cm_event_type::RDMA_CM_EVENT_ESTABLISHED => Change::Established,
        rdma_cm_event_type::RDMA_CM_EVENT_REJECTED => Change::Rejected,
        rdma_cm_event_type::RDMA_CM_EVENT_UNREACHABLE | rdma_cm_event_type::RDMA_CM_EVENT_CONNECT_ERROR => {
            Change::Unreachable
        }
        rdma_cm_event_type::RDMA_CM_EVENT_DISCONNECTED => Change::Disconnected,
        rdma_cm_event_type::RDMA_CM_EVENT_TIMEWAIT_EXIT => Change::TimewaitExit,
        rdma_cm_event_type::RDMA_CM_EVENT_DEVICE_REMOVAL => Change::DeviceRemoval,
        other => Change::Other(other),
    }
}

/// `enum ibv_mtu` has IBTA's codes.
fn path_mtu(code: u32) -> Option<PathMtu> {
    Some(match code {
        1 => PathMtu::Mtu256,
        2 => PathMtu::Mtu512,
        3 => PathMtu::Mtu1024,
        4 => PathMtu::Mtu2048,
        5 => PathMtu::Mtu4096,
        _ => return None,
    })
}

/// The time that an exponent stands for: 4.096 us * 2^exponent. 0 is no timer, which is taken for the longest.
fn timer(exponent: u8) -> Duration {
    let exponent = if exponent == 0 { 31 } else { exponent.min(31) };
    Duration::from_nanos(4096 << exponent)
}

fn sockaddr(address: SocketAddr) -> libc::sockaddr_storage {
    // SAFETY: plain numbers, for which zeroes are values.
    let mut storage: libc::sockaddr_storage = unsafe { MaybeUninit::zeroed().assume_init() };
    match address {
        SocketAddr::V4(v4) => {
            let from = libc::sockaddr_in {
                sin_family: family(libc::AF_INET),
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage has room and alignment for every kind of address.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(from) };
        }
        SocketAddr::V6(v6) => {
            let from = libc::sockaddr_in6 {
                sin6_family: family(libc::AF_INET6),
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: 0,
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            // SAFETY: as above.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(from) };
        }
    }
    storage
}

fn socket_addr(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let at = ptr::from_ref(storage);
    if storage.ss_family == family(libc::AF_INET) {
        // SAFETY: the storage has room and alignment for every kind of address, and any bytes are a value of this one.
        let v4 = unsafe { at.cast::<libc::sockaddr_in>().read() };
        let ip = Ipv4Addr::from(v4.sin_addr.s_addr.to_ne_bytes());
        Some(SocketAddr::new(ip.into(), u16::from_be(v4.sin_port)))
    } else if storage.ss_family == family(libc::AF_INET6) {
        // SAFETY: as above.
        let v6 = unsafe { at.cast::<libc::sockaddr_in6>().read() };
        let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
        Some(SocketAddr::new(ip.to_canonical(), u16::from_be(v6.sin6_port)))
    } else {
        None
    }
}

fn family(number: i32) -> libc::sa_family_t {
    libc::sa_family_t::try_from(number).expect("families are small numbers")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_way_to_c_and_back() {
        for text in ["10.77.0.1:4420", "[fd77::1]:4420", "0.0.0.0:0"] {
            let address: SocketAddr = text.parse().unwrap();
            assert_eq!(socket_addr(&sockaddr(address)), Some(address));
        }
        assert_eq!(
            socket_addr(&sockaddr("[::ffff:10.77.0.1]:1".parse().unwrap())),
            "10.77.0.1:1".parse().ok()
        );
        let mut other = sockaddr("10.77.0.1:1".parse().unwrap());
        other.ss_family = family(libc::AF_UNIX);
        assert_eq!(socket_addr(&other), None);
    }

    #[test]
    fn timers_double_with_each_exponent() {
        assert_eq!(timer(14), Duration::from_nanos(4096 << 14));
        assert_eq!((timer(0), timer(255)), (timer(31), timer(31)));
    }

    #[test]
    fn path_mtus_have_ibtas_codes() {
        for mtu in [PathMtu::Mtu256, PathMtu::Mtu512, PathMtu::Mtu1024, PathMtu::Mtu2048, PathMtu::Mtu4096] {
            assert_eq!(path_mtu(mtu as u32), Some(mtu));
        }
        assert_eq!((path_mtu(0), path_mtu(6)), (None, None));
    }
}
