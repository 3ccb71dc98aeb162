//! Connection requests and Connect commands that are wrong, and hosts that connect over and over.

#![expect(clippy::disallowed_methods, reason = "tests of real programs run in real time")]

use std::time::{Duration, Instant};

use intact::nvmf::command::ConnectFields;
use intact::nvmf::wire::status::Status;
use rwctx::device::soft::wire::RejReason;
use zerocopy::IntoBytes;

use super::honest::Honest;
use super::peer::{How, Peer, Refused, connect_data, connect_fields, connect_sqe, private};
use super::world::{FRIEND_NQN, HOST_NQN, NQN, PORT, PRIVATE_NQN, World};

const SOON: Duration = Duration::from_secs(5);

#[test]
fn each_wrong_connection_request_is_rejected_with_its_own_status() {
    let world = World::start(1);
    let honest = Honest::start(&world, 1);
    let mut peer = Peer::open(world.peer(2), world.listener(), 1 << 16);
    let raw = |recfmt: u16, qid: u16, hrqsize: u16, hsqsize: u16| {
        [recfmt, qid, hrqsize, hsqsize].map(u16::to_le_bytes).concat()
    };
    let how = How::default();
    let none = How { reads: 0, ..how };
    let cases: &[(&str, Vec<u8>, How, u16)] = &[
        ("record format", raw(1, 0, 32, 31), how, 2),
        ("queue ID", raw(0, 129, 32, 31), how, 3),
        ("highest queue ID", raw(0, 0xffff, 32, 31), how, 3),
        ("admin queue too deep", raw(0, 0, 32, 32), how, 4),
        ("deepest", raw(0, 0, 32, 0xffff), how, 4),
        ("I/O queue too deep", raw(0, 1, 256, 256), how, 4),
        ("one entry", raw(0, 1, 32, 0), how, 4),
        ("nothing", Vec::new(), how, 4),
        ("no receives", raw(0, 0, 0, 31), how, 5),
        ("no READs", raw(0, 0, 32, 31), none, 8),
    ];
    for (what, private, how, status) in cases {
        assert_eq!(peer.connect(private, *how), Err(Refused::Nvme(*status)), "{what}");
    }
    assert_eq!(world.await_metric("intact_nvme_rejected_connections_total", SOON, |n| n >= 10), 10);
    let mut elsewhere = world.listener();
    elsewhere.set_port(PORT + 1);
    peer.target = elsewhere;
    let refused = peer.connect(&private(0, 32, 0), how);
    assert_eq!(refused, Err(Refused::Manager(RejReason::InvalidServiceId)));
    honest.finish(SOON);
    world.await_idle();
    world.end();
}

#[test]
fn each_wrong_connect_command_has_its_status_and_points_at_the_parameter() {
    const IN_DATA: u64 = 1 << 16;
    let invalid = Status::CONNECT_INVALID_PARAMETERS;
    let world = World::start(2);
    let honest = Honest::start(&world, 1);
    let mut peer = Peer::open(world.peer(2), world.listener(), 1 << 16);
    let fields = connect_fields(0, 32);
    let any = |subnqn: &str, hostnqn: &str| connect_data(0xffff, subnqn, hostnqn);
    let mut endless = any(NQN, HOST_NQN);
    endless.subnqn.fill(b'n');
    let mut binary = any(NQN, HOST_NQN);
    binary.hostnqn[..4].copy_from_slice(&[0xff, 0xfe, 0x80, 0x81]);
    let unknown = "nqn.2026-11.io.intact:nobody";
    let admin: &[(&str, ConnectFields, _, Status, u64)] = &[
        ("NQN", fields, any(unknown, HOST_NQN), invalid, IN_DATA | 256),
        ("no NQN", fields, any("", HOST_NQN), invalid, IN_DATA | 256),
        ("endless NQN", fields, endless, invalid, IN_DATA | 256),
        ("host NQN", fields, binary, invalid, IN_DATA | 512),
        ("stranger", fields, any(PRIVATE_NQN, HOST_NQN), Status::CONNECT_INVALID_HOST, 0),
        ("CNTLID", fields, connect_data(1, NQN, HOST_NQN), invalid, IN_DATA | 16),
        (
            "record format",
            ConnectFields { recfmt: 1, ..fields },
            any(NQN, HOST_NQN),
            Status::CONNECT_INCOMPATIBLE_FORMAT,
            0,
        ),
        ("queue ID", ConnectFields { qid: 1, ..fields }, any(NQN, HOST_NQN), invalid, 42),
        ("size", ConnectFields { sq_entries: 33, ..fields }, any(NQN, HOST_NQN), invalid, 44),
        ("largest size", ConnectFields { sq_entries: 0x1_0000, ..fields }, any(NQN, HOST_NQN), invalid, 44),
        ("one entry", ConnectFields { sq_entries: 1, ..fields }, any(NQN, HOST_NQN), invalid, 44),
    ];
    for (what, fields, data, status, result) in admin {
        let at = peer.connect(&private(0, 32, 0), How::default()).unwrap();
        let done = peer.execute(at, &connect_sqe(1, *fields), data.as_bytes()).unwrap();
        // The queue number is wrong on an admin queue: then it is not one that could have made a controller.
        let code = (done.status.code(), done.result & 0x1_ffff);
        assert_eq!(code, (status.code(), *result), "{what}");
        peer.disconnect(at);
        peer.await_departure();
    }
    // The listed host gets in.
    let at = peer.connect(&private(0, 32, 0), How::default()).unwrap();
    let data = any(PRIVATE_NQN, FRIEND_NQN);
    assert_eq!(peer.execute(at, &connect_sqe(1, fields), data.as_bytes()).unwrap().status, Status::SUCCESS);
    peer.disconnect(at);

    // I/O queues: of no controller, of somebody else's, of another subsystem's.
    let (admin_at, cntlid) = peer.admin(0);
    let fields = connect_fields(1, 32);
    let io: &[(&str, ConnectFields, _, Status, u64)] = &[
        ("no such controller", fields, connect_data(0xffe0, NQN, HOST_NQN), invalid, IN_DATA | 16),
        ("dynamic", fields, connect_data(0xffff, NQN, HOST_NQN), invalid, IN_DATA | 16),
        ("other subsystem", fields, connect_data(cntlid, PRIVATE_NQN, HOST_NQN), invalid, IN_DATA | 256),
        ("other host", fields, connect_data(cntlid, NQN, FRIEND_NQN), invalid, IN_DATA | 512),
        ("queue ID", ConnectFields { qid: 2, ..fields }, connect_data(cntlid, NQN, HOST_NQN), invalid, 42),
        ("admin", ConnectFields { qid: 0, ..fields }, connect_data(cntlid, NQN, HOST_NQN), invalid, 42),
        (
            "size",
            ConnectFields { sq_entries: 33, ..fields },
            connect_data(cntlid, NQN, HOST_NQN),
            invalid,
            44,
        ),
    ];
    for (what, fields, data, status, result) in io {
        let at = peer.connect(&private(1, 32, 0), How::default()).unwrap();
        let done = peer.execute(at, &connect_sqe(1, *fields), data.as_bytes()).unwrap();
        assert_eq!((done.status.code(), done.result & 0x1_ffff), (status.code(), *result), "{what}");
        peer.disconnect(at);
        peer.await_departure();
    }
    // A queue that exists already.
    let first = peer.io(cntlid, 1, 32, How::default());
    let at = peer.connect(&private(1, 32, cntlid), How::default()).unwrap();
    let data = connect_data(cntlid, NQN, HOST_NQN);
    let done = peer.execute(at, &connect_sqe(1, fields), data.as_bytes()).unwrap();
    assert_eq!(done.status.code(), Status::COMMAND_SEQUENCE_ERROR.code());
    world.await_metric("intact_nvme_refused_connects_total", SOON, |n| n == 19);
    for at in [at, first, admin_at] {
        peer.disconnect(at);
    }
    peer.await_departure();
    honest.finish(SOON);
    world.await_idle();
    world.end();
}

/// Connects many times, and leaves at another stage each time: after the request, after the handshake, after Connect,
/// with an I/O queue; politely and without a word. `INTACT_CONNECTS` says how often [600].
#[test]
fn a_host_that_connects_over_and_over_and_leaves_in_every_way_costs_nothing() {
    let rounds = std::env::var("INTACT_CONNECTS")
        .map_or(600, |text| text.parse().expect("INTACT_CONNECTS is a number of connections"));
    let world = World::start(2);
    let honest = Honest::start(&world, 1);
    let mut before = None;
    let mut peer = Peer::open(world.peer(2), world.listener(), 1 << 16);
    for round in 0..rounds {
        let stage = round % 5;
        let how = How { receives: 8, reads: 4, ..How::default() };
        let connected = match stage {
            0 => {
                peer.request(&private(0, 32, 0), how);
                peer.turn();
                true
            }
            1 => peer.connect(&private(0, 32, 0), how).is_ok(),
            // With a keep-alive timer, which ends it when nobody else does.
            2 => peer.try_admin(2000).is_ok(),
            _ => {
                let (_, cntlid) = peer.admin(0);
                peer.io(cntlid, 1, 32, how);
                true
            }
        };
        assert!(connected, "round {round}: refused");
        // One in twenty leaves without a word.
        let polite = round % 20 != 7;
        for at in (0..peer.queues.len()).rev() {
            if polite {
                peer.disconnect(at);
            }
        }
        peer.turn();
        peer.forget_queues();
        if !polite {
            // Another process at this address, which knows nothing of the connections.
            peer.await_departure();
            drop(peer);
            peer = Peer::open(world.peer(2), world.listener(), 1 << 16);
        }
        if round == rounds / 3 {
            before = Some(world.target.usage());
        }
    }
    peer.await_departure();
    // It is there while the target tells it what it does not know any more: that its requests were accepted, for one.
    let until = Instant::now() + Duration::from_secs(90);
    while world.metric("intact_nvme_queues") > 2 {
        assert!(Instant::now() < until, "queues of a host that left are kept\n{}", world.target.log());
        peer.run_for(Duration::from_millis(50));
    }
    drop(peer);
    honest.finish(SOON);
    let before = before.expect("there are rounds");
    world.await_idle();
    world.assert_no_growth(before, 64 << 20);
    world.end();
}
