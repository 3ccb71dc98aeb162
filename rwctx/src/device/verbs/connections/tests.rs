use std::cell::Cell;
use std::rc::Rc;

use super::*;
use crate::device::PathMtu;

/// An identifier whose calls fail when they shall; it counts the connections that are there.
#[derive(Debug)]
struct Stub {
    key: usize,
    fails: Rc<Cell<bool>>,
    live: Rc<Cell<usize>>,
}

impl Stub {
    fn call(&self) -> io::Result<()> {
        if self.fails.get() { Err(io::Error::from_raw_os_error(libc::EINVAL)) } else { Ok(()) }
    }
}

impl Handle for Stub {
    fn key(&self) -> IdKey {
        IdKey(self.key)
    }
    fn accept(&self, _: &Acceptance<'_>) -> io::Result<()> {
        self.call()
    }
    fn reject(&self, _: &[u8]) -> io::Result<()> {
        self.call()
    }
    fn disconnect(&self) -> io::Result<()> {
        self.call()
    }
    fn notify_traffic(&self) -> io::Result<()> {
        self.call()
    }
}

impl Drop for Stub {
    fn drop(&mut self) {
        self.live.set(self.live.get() - 1);
    }
}

#[derive(Default)]
struct World {
    connections: Connections<Stub>,
    fails: Rc<Cell<bool>>,
    live: Rc<Cell<usize>>,
    keys: usize,
}

impl World {
    /// A request of `peer`; the key of its identifier.
    fn ask(&mut self, now: Instant, peer: IpAddr) -> IdKey {
        self.keys += 1;
        self.live.set(self.live.get() + 1);
        let handle = Stub { key: self.keys, fails: Rc::clone(&self.fails), live: Rc::clone(&self.live) };
        let request = Request {
            local: "10.77.0.1:4420".parse().unwrap(),
            remote: peer,
            peer: PeerQp {
                qpn: Qpn(0x11),
                psn: 1,
                path_mtu: PathMtu::Mtu1024,
                retry_cnt: 7,
                rnr_retry: 7,
                ack_timeout: Duration::from_millis(67),
                responder_resources: 16,
                initiator_depth: 0,
                tos: 0,
                flow_label: 0,
                rq_psn: Some(2),
                route: None,
            },
            private: [0; REQ_PRIVATE_LEN],
        };
        self.connections.handle_request(now, handle, &request);
        IdKey(self.keys)
    }

    /// What happened since, in a word each.
    fn events(&mut self) -> Vec<(&'static str, u32)> {
        std::iter::from_fn(|| self.connections.poll_event())
            .map(|event| match event {
                CmEvent::ConnectRequest { id, .. } => ("request", id.0),
                CmEvent::Established { id } => ("established", id.0),
                CmEvent::Rejected { id, .. } => ("rejected", id.0),
                CmEvent::Unreachable { id } => ("unreachable", id.0),
                CmEvent::Disconnected { id } => ("disconnected", id.0),
                CmEvent::Released { id } => ("released", id.0),
                CmEvent::ConnectReply { id, .. } => ("reply", id.0),
            })
            .collect()
    }

    fn accept(&mut self, id: u32) -> Result<(), CmError> {
        let with = AcceptParams {
            qpn: Qpn(0x12),
            rq_psn: 2,
            responder_resources: 0,
            initiator_depth: 16,
            private: &[],
        };
        self.connections.accept(CmId(id), &with)
    }
}

#[expect(clippy::disallowed_methods, reason = "an arbitrary point to count from")]
fn start() -> Instant {
    Instant::now() + Duration::from_secs(100)
}

fn peer(number: usize) -> IpAddr {
    let [high, low] = u16::try_from(number).unwrap().to_be_bytes();
    [10, 78, high, low].into()
}

#[test]
fn a_connection_has_its_events_in_order_and_one_end() {
    let (mut world, now) = (World::default(), start());
    let key = world.ask(now, peer(1));
    world.accept(1).unwrap();
    for change in [
        Change::Established,
        Change::Disconnected,
        Change::Disconnected,
        Change::Other(9),
        Change::TimewaitExit,
        Change::DeviceRemoval,
    ] {
        world.connections.handle_change(key, change);
    }
    let order = [("request", 1), ("established", 1), ("disconnected", 1), ("released", 1)];
    assert_eq!(world.events(), order);
    assert_eq!((world.live.get(), world.connections.counters().failures), (0, 0));
}

#[test]
fn each_way_to_end_is_told_once_whatever_follows() {
    let ends = [
        (Change::Rejected, "rejected"),
        (Change::Unreachable, "unreachable"),
        (Change::DeviceRemoval, "disconnected"),
        (Change::TimewaitExit, "disconnected"),
    ];
    for (change, name) in ends {
        let (mut world, now) = (World::default(), start());
        let key = world.ask(now, peer(1));
        world.connections.handle_change(key, change);
        for later in ends {
            world.connections.handle_change(key, later.0);
        }
        world.connections.handle_timeout(now + Duration::from_secs(60));
        assert_eq!(world.events(), [("request", 1), (name, 1), ("released", 1)], "{change:?}");
        assert_eq!(world.connections.next_timeout(), None);
    }
}

#[test]
fn a_connection_that_the_library_does_not_accept_ends_once() {
    let (mut world, now) = (World::default(), start());
    let key = world.ask(now, peer(1));
    world.fails.set(true);
    assert_eq!(world.accept(1), Err(CmError::WrongState));
    assert_eq!(world.accept(1), Err(CmError::UnknownId));
    world.connections.handle_change(key, Change::Unreachable);
    assert_eq!(world.events(), [("request", 1), ("unreachable", 1), ("released", 1)]);
    assert_eq!(world.live.get(), 0);
}

#[test]
fn a_peer_that_does_not_agree_to_the_end_has_a_second() {
    for fails in [false, true] {
        let (mut world, now) = (World::default(), start());
        let key = world.ask(now, peer(1));
        world.connections.handle_change(key, Change::Established);
        world.fails.set(fails);
        assert_eq!(world.connections.disconnect(now, CmId(1)).is_err(), fails);
        assert_eq!(world.events(), [("request", 1), ("established", 1)]);
        assert_eq!(world.connections.next_timeout(), Some(now + END));
        world.connections.handle_timeout(now + END);
        assert_eq!(world.events(), [("disconnected", 1), ("released", 1)]);
    }
}

#[test]
fn a_refused_request_has_no_further_event() {
    let (mut world, now) = (World::default(), start());
    let key = world.ask(now, peer(1));
    world.connections.reject(CmId(1), &[]).unwrap();
    world.connections.handle_change(key, Change::Unreachable);
    world.connections.handle_timeout(now + Duration::from_secs(60));
    assert_eq!(world.events(), [("request", 1)]);
    assert_eq!((world.live.get(), world.connections.next_timeout()), (0, None));
}

#[test]
fn requests_under_false_addresses_are_few_and_make_room_for_others() {
    let (mut world, now) = (World::default(), start());
    for number in 0..1000 {
        world.ask(now, peer(number));
    }
    assert_eq!(world.live.get(), 64);
    assert_eq!(world.connections.counters().crowded_out, 1000 - 64);
    assert_eq!(world.events().len(), 64);
    // Who comes from elsewhere has a place when the oldest had its time.
    let soon = now + Duration::from_millis(60);
    let elsewhere: IpAddr = [192, 0, 2, 1].into();
    let key = world.ask(soon, elsewhere);
    assert_eq!(world.events(), [("unreachable", 1), ("released", 1), ("request", 65)]);
    assert_eq!((world.live.get(), world.connections.counters().displaced), (64, 1));
    // It is known from now on, and does not compete with them.
    world.connections.handle_change(key, Change::Established);
    for number in 0..64 {
        world.ask(soon, peer(number));
    }
    for number in 66..98 {
        world.ask(soon, elsewhere);
        let events = world.events();
        assert!(events.ends_with(&[("request", number + 1)]), "{events:?}");
    }
    world.ask(soon, elsewhere);
    assert!(world.events().is_empty(), "32 of a peer");
}

#[test]
fn a_handshake_that_takes_ten_seconds_is_refused() {
    let (mut world, now) = (World::default(), start());
    let slow = world.ask(now, peer(1));
    world.accept(1).unwrap();
    let done = world.ask(now + Duration::from_secs(1), peer(2));
    world.connections.handle_change(done, Change::Established);
    assert_eq!(world.connections.next_timeout(), Some(now + Duration::from_secs(10)));
    world.events();
    world.connections.handle_timeout(now + Duration::from_secs(9));
    assert!(world.events().is_empty());
    world.connections.handle_timeout(now + Duration::from_secs(30));
    assert_eq!(world.events(), [("unreachable", 1), ("released", 1)]);
    world.connections.handle_change(slow, Change::Established);
    assert!(world.events().is_empty());
    assert_eq!((world.live.get(), world.connections.counters().expired), (1, 1));
}
