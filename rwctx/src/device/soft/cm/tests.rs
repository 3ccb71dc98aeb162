//! Both sides of the handshake: each rule by hand, then pairs of managers over a network that loses, repeats and
//! reorders, on a virtual clock.

use proptest::prelude::*;

use super::*;
use crate::device::soft::wire::MAD_LEN;
use crate::device::soft::wire::cm::{About, CmMessage, CommIds, Dreq, Mra, Rej, Rep, SidrReq};

mod flood;
mod simulation;

const GUID_A: u64 = 0x0200_0000_0000_000A;
const GUID_B: u64 = 0x0200_0000_0000_000B;
const PORT: u16 = 4420;

fn a() -> IpAddr {
    [10, 0, 0, 1].into()
}

fn b() -> IpAddr {
    [10, 0, 0, 2].into()
}

#[expect(clippy::disallowed_methods, reason = "an arbitrary point to count from")]
fn start() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}

fn cm(guid: u64, seed: u64) -> Cm {
    Cm::new(CmConfig::new(guid, seed, PathMtu::Mtu4096))
}

fn target() -> Cm {
    let mut cm = cm(GUID_B, 2);
    cm.listen(PORT).unwrap();
    cm
}

fn params(qpn: u32) -> ConnectParams<'static> {
    ConnectParams {
        local: a(),
        remote: b(),
        port: PORT,
        qpn: Qpn(qpn),
        rq_psn: 0xABC_DEF,
        path_mtu: PathMtu::Mtu1024,
        responder_resources: 16,
        initiator_depth: 1,
        tos: 0x68,
        private: b"hello",
    }
}

fn acceptance(qpn: u32) -> AcceptParams<'static> {
    AcceptParams {
        qpn: Qpn(qpn),
        rq_psn: 0x123_456,
        responder_resources: 1,
        initiator_depth: 16,
        private: b"welcome",
    }
}

fn events(cm: &mut Cm) -> Vec<CmEvent> {
    std::iter::from_fn(|| cm.poll_event()).collect()
}

fn sent(cm: &mut Cm, now: Instant) -> Vec<MadOut> {
    std::iter::from_fn(|| cm.poll_mad(now)).collect()
}

fn messages(cm: &mut Cm, now: Instant) -> Vec<CmMessage> {
    sent(cm, now).iter().map(|out| CmMessage::parse(&out.mad).unwrap().1).collect()
}

fn only<T: std::fmt::Debug>(all: Vec<T>) -> T {
    let [one] = <[T; 1]>::try_from(all).expect("exactly one");
    one
}

/// Carries datagrams both ways until none is left.
fn exchange(now: Instant, left: &mut Cm, right: &mut Cm) {
    loop {
        let (from_left, from_right) = (sent(left, now), sent(right, now));
        if from_left.is_empty() && from_right.is_empty() {
            break;
        }
        from_left.iter().for_each(|out| right.handle_mad(now, out.src, out.dst, &out.mad));
        from_right.iter().for_each(|out| left.handle_mad(now, out.src, out.dst, &out.mad));
    }
}

fn deliver(now: Instant, to: &mut Cm, all: &[MadOut]) {
    all.iter().for_each(|out| to.handle_mad(now, out.src, out.dst, &out.mad));
}

fn requested(cm: &mut Cm) -> CmId {
    match only(events(cm)) {
        CmEvent::ConnectRequest { id, .. } => id,
        other => panic!("{other:?}"),
    }
}

/// A request of `a` for queue pair `qpn`, as it goes over the wire, changed by `change`.
fn request(qpn: u32, change: impl FnOnce(&mut Req)) -> (Req, [u8; MAD_LEN]) {
    let now = start();
    let mut initiator = cm(GUID_A, u64::from(qpn));
    initiator.connect(now, &params(qpn)).unwrap();
    let out = only(sent(&mut initiator, now));
    let (transaction_id, CmMessage::Req(mut req)) = CmMessage::parse(&out.mad).unwrap() else {
        panic!("a REQ");
    };
    change(&mut req);
    (req, CmMessage::Req(req).emit(transaction_id))
}

/// A request as another host sends it, for queue pair `qpn`.
fn request_from(address: IpAddr, qpn: u32) -> [u8; MAD_LEN] {
    let change = |req: &mut Req| {
        req.primary.local_gid = gid(address);
        req.cma.as_mut().unwrap().src = address;
    };
    request(qpn, change).1
}

/// An established connection: initiator, target, and its IDs there.
fn established(now: Instant) -> (Cm, Cm, CmId, CmId) {
    let (mut initiator, mut target) = (cm(GUID_A, 1), target());
    let active = initiator.connect(now, &params(0x100)).unwrap();
    exchange(now, &mut initiator, &mut target);
    let passive = requested(&mut target);
    target.accept(now, passive, &acceptance(0x200)).unwrap();
    exchange(now, &mut initiator, &mut target);
    assert!(matches!(only(events(&mut initiator)), CmEvent::ConnectReply { .. }));
    initiator.send_rtu(now, active).unwrap();
    exchange(now, &mut initiator, &mut target);
    assert_eq!(only(events(&mut target)), CmEvent::Established { id: passive });
    (initiator, target, active, passive)
}

/// Runs a manager alone until its timers have run out; what it sent, with seconds since `now`.
fn run_alone(cm: &mut Cm, now: Instant) -> Vec<(f64, CmMessage)> {
    let mut all = Vec::new();
    let mut at = now;
    loop {
        all.extend(messages(cm, at).into_iter().map(|message| ((at - now).as_secs_f64(), message)));
        match cm.next_timeout() {
            Some(next) => at = next,
            None => return all,
        }
        cm.handle_timeout(at);
    }
}

fn assert_empty(cm: &Cm) {
    assert_eq!(cm.connections(), 0);
    assert_eq!(cm.next_timeout(), None);
    assert!(cm.by_peer_id.is_empty() && cm.by_peer_qpn.is_empty(), "{cm:?}");
    assert!(cm.half_open.iter().all(|half_open| half_open.total() == 0));
}

#[test]
fn each_side_learns_what_the_other_said() {
    let now = start();
    let (mut initiator, mut target) = (cm(GUID_A, 1), target());
    let active = initiator.connect(now, &params(0x100)).unwrap();
    exchange(now, &mut initiator, &mut target);
    let event = only(events(&mut target));
    let CmEvent::ConnectRequest { id, local, remote, port, peer, private, doubtful } = event else {
        panic!("{event:?}")
    };
    assert_eq!((local, remote, port, doubtful), (b(), a(), PORT, false));
    assert_eq!(&private[..6], b"hello\0");
    assert!((1..1 << 20).contains(&peer.flow_label));
    let expected = PeerQp {
        qpn: Qpn(0x100),
        psn: 0xABC_DEF,
        path_mtu: PathMtu::Mtu1024,
        retry_cnt: 7,
        rnr_retry: 7,
        ack_timeout: Duration::from_nanos(4096 << 17),
        responder_resources: 16,
        initiator_depth: 1,
        tos: 0x68,
        flow_label: peer.flow_label,
        rq_psn: None,
        route: None,
    };
    assert_eq!(peer, expected);

    target.accept(now, id, &acceptance(0x200)).unwrap();
    exchange(now, &mut initiator, &mut target);
    let event = only(events(&mut initiator));
    let CmEvent::ConnectReply { id: replied, peer, private } = event else { panic!("{event:?}") };
    assert_eq!(replied, active);
    assert_eq!(&private[..8], b"welcome\0");
    let expected =
        PeerQp { qpn: Qpn(0x200), psn: 0x123_456, responder_resources: 1, initiator_depth: 16, ..expected };
    assert_eq!(peer, expected);
}

#[test]
fn a_connection_that_the_initiator_closes_is_released_on_both_sides() {
    let now = start();
    let (mut initiator, mut target, active, passive) = established(now);
    initiator.disconnect(now, active).unwrap();
    exchange(now, &mut initiator, &mut target);
    assert_eq!(only(events(&mut target)), CmEvent::Disconnected { id: passive });
    assert_eq!(only(events(&mut initiator)), CmEvent::Disconnected { id: active });
    initiator.disconnect(now, active).expect("ending twice is no error");
    for (cm, id) in [(&mut initiator, active), (&mut target, passive)] {
        assert!(run_alone(cm, now).is_empty());
        assert_eq!(only(events(cm)), CmEvent::Released { id });
        assert_empty(cm);
        assert_eq!(cm.disconnect(now, id), Err(CmError::UnknownId));
    }
}

#[test]
fn a_connection_that_the_target_closes_is_released_on_both_sides() {
    let now = start();
    let (mut initiator, mut target, active, passive) = established(now);
    target.disconnect(now, passive).unwrap();
    exchange(now, &mut initiator, &mut target);
    assert_eq!(only(events(&mut target)), CmEvent::Disconnected { id: passive });
    assert_eq!(only(events(&mut initiator)), CmEvent::Disconnected { id: active });
}

#[test]
fn requests_that_break_a_rule_are_refused_with_its_reason_and_without_an_id_of_ours() {
    type Change = fn(&mut Req);
    let rules: [(Change, RejReason); 11] = [
        (|req| req.service_id = service_id(PORT + 1), RejReason::InvalidServiceId),
        (|req| req.service_id = 0x0111_0000 | u64::from(PORT), RejReason::InvalidServiceId),
        (|req| req.transport = 1, RejReason::InvalidTransport),
        (|req| req.qpn = Qpn(1), RejReason::NoQp),
        (|req| req.pkey = 0x8001, RejReason::Unsupported),
        (|req| req.primary.local_gid = gid([10, 0, 0, 9].into()), RejReason::InvalidGid),
        (|req| req.primary.remote_gid = gid([10, 0, 0, 9].into()), RejReason::InvalidGid),
        (|req| req.cma.as_mut().unwrap().src = [10, 0, 0, 9].into(), RejReason::Consumer),
        (|req| req.cma = None, RejReason::Consumer),
        (|req| req.path_mtu = Err(6), RejReason::InvalidMtu),
        (|req| req.path_mtu = Ok(PathMtu::Mtu4096), RejReason::InvalidMtu),
    ];
    for (change, reason) in rules {
        let now = start();
        let mut target = Cm::new(CmConfig::new(GUID_B, 2, PathMtu::Mtu2048));
        target.listen(PORT).unwrap();
        let (req, mad) = request(0x100, change);
        target.handle_mad(now, a(), b(), &mad);
        let CmMessage::Rej(rej) = only(messages(&mut target, now)) else { panic!("a REJ") };
        assert_eq!(rej.reason, reason);
        assert_eq!((rej.ids, rej.about), (CommIds { local: 0, remote: req.local_comm_id }, About::Req));
        assert!(events(&mut target).is_empty());
        assert_empty(&target);
    }
}

#[test]
fn a_request_is_answered_again_as_its_state_has_it() {
    let now = start();
    let mut target = target();
    let (_, mad) = request(0x100, |_| ());
    target.handle_mad(now, a(), b(), &mad);
    let id = requested(&mut target);
    target.handle_mad(now, a(), b(), &mad);
    assert!(matches!(only(messages(&mut target, now)), CmMessage::Mra(Mra { about: About::Req, .. })));
    target.accept(now, id, &acceptance(0x200)).unwrap();
    let first = only(sent(&mut target, now));
    target.handle_mad(now, a(), b(), &mad);
    assert_eq!(only(sent(&mut target, now)), first);
    target.handle_qp_traffic(now, id);
    assert_eq!(only(events(&mut target)), CmEvent::Established { id });
    target.handle_mad(now, a(), b(), &mad);
    assert!(sent(&mut target, now).is_empty());
    assert!(events(&mut target).is_empty());
}

#[test]
fn a_refused_request_is_refused_again_the_same_way_and_then_forgotten() {
    let now = start();
    let mut target = target();
    let (req, mad) = request(0x100, |_| ());
    target.handle_mad(now, a(), b(), &mad);
    let id = requested(&mut target);
    target.reject(now, id, RejReason::Consumer, &[0, 0, 6, 0]).unwrap();
    let first = only(sent(&mut target, now));
    let (_, CmMessage::Rej(rej)) = CmMessage::parse(&first.mad).unwrap() else { panic!("a REJ") };
    assert_eq!(
        (rej.reason, rej.ids.remote, &rej.private[..4]),
        (RejReason::Consumer, req.local_comm_id, &[0, 0, 6, 0][..])
    );
    target.handle_mad(now, a(), b(), &mad);
    assert_eq!(only(sent(&mut target, now)), first);
    // The same queue pair may ask again at once, under another ID.
    let (_, again) = request(0x100, |req| req.local_comm_id ^= 1);
    target.handle_mad(now, a(), b(), &again);
    let second = requested(&mut target);
    target.reject(now, second, RejReason::Consumer, &[]).unwrap();
    run_alone(&mut target, now);
    assert!(events(&mut target).is_empty());
    assert_empty(&target);
}

#[test]
fn a_reply_is_sent_again_until_the_peer_is_given_up() {
    let now = start();
    let mut target = target();
    let (_, mad) = request(0x100, |_| ());
    target.handle_mad(now, a(), b(), &mad);
    let id = requested(&mut target);
    target.accept(now, id, &acceptance(0x200)).unwrap();
    let all = run_alone(&mut target, now);
    let times: Vec<f64> = all.iter().map(|(at, _)| *at).collect();
    assert_eq!(times[..7], [0.0, 0.25, 0.75, 1.75, 3.75, 7.75, 11.75]);
    let ((last, CmMessage::Rej(rej)), reps) = all.split_last().unwrap() else { panic!("a REJ at last") };
    assert_eq!((rej.reason, rej.about), (RejReason::Timeout, About::Rep));
    assert!((58.0..66.0).contains(last), "{last}");
    assert!(reps.iter().all(|(_, message)| matches!(message, CmMessage::Rep(_))));
    assert_eq!(events(&mut target), [CmEvent::Unreachable { id }, CmEvent::Released { id }]);
    assert_empty(&target);
}

#[test]
fn a_request_without_answer_ends_as_unreachable_and_takes_the_peer_with_it() {
    let now = start();
    let (mut initiator, mut target) = (cm(GUID_A, 1), target());
    let id = initiator.connect(now, &params(0x100)).unwrap();
    let request = only(sent(&mut initiator, now));
    let all = run_alone(&mut initiator, now);
    assert_eq!(all.len(), 11);
    assert_eq!(events(&mut initiator), [CmEvent::Unreachable { id }, CmEvent::Released { id }]);
    assert_empty(&initiator);
    // The target had got the request, but its replies were lost: the last message ends that too.
    deliver(now, &mut target, &[request]);
    let passive = requested(&mut target);
    target.accept(now, passive, &acceptance(0x200)).unwrap();
    let (_, last) = all.last().unwrap();
    target.handle_mad(now, a(), b(), &last.emit(0));
    let event = only(events(&mut target));
    assert!(matches!(event, CmEvent::Rejected { reason: RejReason::Timeout, .. }), "{event:?}");
}

#[test]
fn connections_that_their_makers_end_before_they_are_established_stay_within_the_limit() {
    let now = start();
    let mut config = CmConfig::new(GUID_B, 2, PathMtu::Mtu4096);
    config.max_half_open = 5;
    let mut target = Cm::new(config);
    target.listen(PORT).unwrap();
    let mut at = now;
    for host in 1..=100 {
        at += Duration::from_millis(10);
        let address: IpAddr = [10, 0, 1, host].into();
        target.handle_mad(at, address, b(), &request_from(address, 0x100));
        for event in events(&mut target) {
            if let CmEvent::ConnectRequest { id, .. } = event {
                target.accept(at, id, &acceptance(0x200 + u32::from(host))).unwrap();
            }
        }
        let end = if host % 2 == 0 {
            // Its maker gives up, which takes no number of ours.
            let (req, _) = request(0x100, |_| ());
            let ids = CommIds { local: req.local_comm_id, remote: 0 };
            let mut info = [0; 72];
            info[..8].copy_from_slice(&req.ca_guid.to_be_bytes());
            let private = [0; REJ_PRIVATE_LEN];
            let reason = RejReason::Timeout;
            CmMessage::Rej(Rej { ids, about: About::Rep, reason, info_len: 8, info, private }).emit(0)
        } else {
            // It asks again for the same queue pair, under another number.
            let change = |req: &mut Req| {
                req.local_comm_id ^= 1;
                req.primary.local_gid = gid(address);
                req.cma.as_mut().unwrap().src = address;
            };
            request(0x100, change).1
        };
        target.handle_mad(at, address, b(), &end);
        events(&mut target);
        assert!(target.connections() <= 5, "{}", target.connections());
    }
    assert!(target.counters().displaced > 0);
    run_alone(&mut target, at);
    assert_empty(&target);
}

#[test]
fn a_peer_that_wants_more_time_gets_it() {
    let now = start();
    let mut initiator = cm(GUID_A, 1);
    let id = initiator.connect(now, &params(0x100)).unwrap();
    messages(&mut initiator, now);
    let ids = CommIds { local: 77, remote: id.0 };
    let mra = |about| CmMessage::Mra(Mra { ids, about, service_timeout: 21 }).emit(0);
    initiator.handle_mad(now, b(), a(), &mra(About::Rep));
    assert_eq!(initiator.next_timeout(), Some(now + Duration::from_millis(500)));
    initiator.handle_mad(now, b(), a(), &mra(About::Req));
    assert_eq!(initiator.next_timeout(), Some(now + Duration::from_nanos(4096 << 21)));
    // But not for ever.
    let longest = CmMessage::Mra(Mra { ids, about: About::Req, service_timeout: 31 }).emit(0);
    for _ in 0..10 {
        initiator.handle_mad(now, b(), a(), &longest);
    }
    assert_eq!(initiator.next_timeout(), Some(now + Duration::from_secs(70)));
}

#[test]
fn a_lost_confirmation_is_given_again_for_a_repeated_reply() {
    let now = start();
    let (mut initiator, mut target) = (cm(GUID_A, 1), target());
    let active = initiator.connect(now, &params(0x100)).unwrap();
    exchange(now, &mut initiator, &mut target);
    let passive = requested(&mut target);
    target.accept(now, passive, &acceptance(0x200)).unwrap();
    exchange(now, &mut initiator, &mut target);
    initiator.send_rtu(now, active).unwrap();
    assert!(matches!(only(messages(&mut initiator, now)), CmMessage::Rtu(_)));
    let later = target.next_timeout().unwrap();
    target.handle_timeout(later);
    exchange(later, &mut initiator, &mut target);
    assert_eq!(only(events(&mut target)), CmEvent::Established { id: passive });
    assert_eq!(target.counters().retransmitted, 1);
}

#[test]
fn a_close_that_nobody_answers_ends_within_three_seconds() {
    let now = start();
    let (mut initiator, _, active, _) = established(now);
    initiator.disconnect(now, active).unwrap();
    let all = run_alone(&mut initiator, now);
    let times: Vec<f64> = all.iter().map(|(at, _)| *at).collect();
    assert_eq!(times, [0.0, 0.5, 1.0, 1.5]);
    assert!(all.iter().all(|(_, message)| matches!(message, CmMessage::Dreq(_))));
    assert_eq!(
        events(&mut initiator),
        [CmEvent::Disconnected { id: active }, CmEvent::Released { id: active }]
    );
    assert_empty(&initiator);
}

#[test]
fn a_close_of_an_unknown_connection_is_confirmed_with_the_ids_swapped() {
    let now = start();
    let mut target = target();
    let dreq = Dreq { ids: CommIds { local: 5, remote: 6 }, remote_qpn: Qpn(7) };
    target.handle_mad(now, a(), b(), &CmMessage::Dreq(dreq).emit(99));
    let out = only(sent(&mut target, now));
    let drep = CmMessage::Drep(CommIds { local: 6, remote: 5 });
    assert_eq!(CmMessage::parse(&out.mad), Ok((99, drep)));
    assert_eq!((out.src, out.dst), (b(), a()));
}

#[test]
fn a_close_with_another_queue_pair_or_from_another_address_is_not_believed() {
    let now = start();
    let (mut initiator, mut target, active, passive) = established(now);
    let ids = CommIds { local: active.0, remote: passive.0 };
    let wrong_qpn = Dreq { ids, remote_qpn: Qpn(0x201) };
    target.handle_mad(now, a(), b(), &CmMessage::Dreq(wrong_qpn).emit(1));
    let right = Dreq { ids, remote_qpn: Qpn(0x200) };
    target.handle_mad(now, [10, 0, 0, 9].into(), b(), &CmMessage::Dreq(right).emit(1));
    target.handle_mad(now, a(), [10, 0, 0, 9].into(), &CmMessage::Dreq(right).emit(1));
    let wrong_id = Dreq { ids: CommIds { local: active.0 ^ 1, ..ids }, ..right };
    target.handle_mad(now, a(), b(), &CmMessage::Dreq(wrong_id).emit(1));
    assert!(events(&mut target).is_empty());
    messages(&mut target, now);
    initiator.disconnect(now, active).unwrap();
    exchange(now, &mut initiator, &mut target);
    assert_eq!(only(events(&mut target)), CmEvent::Disconnected { id: passive });
}

#[test]
fn a_repeated_close_is_confirmed_again_with_its_own_transaction() {
    let now = start();
    let (mut initiator, mut target, active, _) = established(now);
    initiator.disconnect(now, active).unwrap();
    let dreq = sent(&mut initiator, now);
    let (transaction_id, _) = CmMessage::parse(&dreq[0].mad).unwrap();
    for _ in 0..2 {
        deliver(now, &mut target, &dreq);
        let out = only(sent(&mut target, now));
        let (answered, message) = CmMessage::parse(&out.mad).unwrap();
        assert!(matches!(message, CmMessage::Drep(_)));
        assert_eq!(answered, transaction_id);
    }
}

#[test]
fn a_peer_that_restarted_gets_a_connection_at_its_first_try_when_the_old_one_was_given_up() {
    let now = start();
    for closing in [Duration::ZERO, Duration::from_secs(1), Duration::from_secs(60)] {
        let (_, mut target, _, passive) = established(now);
        target.disconnect(now, passive).unwrap();
        assert!(matches!(only(messages(&mut target, now)), CmMessage::Dreq(_)));
        // Nobody answers; it is being ended, then waits for its packets to be gone, then is forgotten.
        let mut at = now;
        while let Some(due) = target.next_timeout().filter(|due| *due <= now + closing) {
            at = due;
            target.handle_timeout(at);
            messages(&mut target, at);
        }
        let mut restarted = cm(GUID_A, 99);
        restarted.connect(at, &params(0x100)).unwrap();
        let request = sent(&mut restarted, at);
        deliver(at, &mut target, &request);
        let events = events(&mut target);
        assert!(matches!(events.last(), Some(CmEvent::ConnectRequest { .. })), "{closing:?}: {events:?}");
    }
}

#[test]
fn a_peer_that_restarted_loses_its_old_connection_and_gets_a_new_one_at_the_second_try() {
    let now = start();
    let (_, mut target, active, passive) = established(now);
    let mut restarted = cm(GUID_A, 99);
    let again = restarted.connect(now, &params(0x100)).unwrap();
    assert_ne!(again, active);
    let request = sent(&mut restarted, now);
    deliver(now, &mut target, &request);
    let out = messages(&mut target, now);
    assert!(matches!(out[0], CmMessage::Rej(Rej { reason: RejReason::Stale, .. })), "{out:?}");
    assert!(matches!(out[1], CmMessage::Dreq(Dreq { remote_qpn: Qpn(0x100), .. })), "{out:?}");
    assert_eq!(only(events(&mut target)), CmEvent::Disconnected { id: passive });
    // The restarted peer does not know the connection, and says so.
    restarted.handle_mad(now, b(), a(), &out[1].emit(3));
    let drep = only(sent(&mut restarted, now));
    deliver(now, &mut target, &[drep]);
    restarted.handle_mad(now, b(), a(), &out[0].emit(3));
    assert!(matches!(
        events(&mut restarted)[..],
        [CmEvent::Rejected { reason: RejReason::Stale, .. }, CmEvent::Released { .. }]
    ));
    run_alone(&mut target, now);
    assert_eq!(only(events(&mut target)), CmEvent::Released { id: passive });
    restarted.connect(now, &params(0x100)).unwrap();
    exchange(now, &mut restarted, &mut target);
    requested(&mut target);
}

#[test]
fn a_reply_that_names_a_live_connection_of_ours_is_refused_as_stale() {
    let now = start();
    let (mut initiator, _, active, _) = established(now);
    let second = initiator.connect(now, &params(0x101)).unwrap();
    let rep = Rep {
        ids: CommIds { local: 0x999, remote: second.0 },
        qpn: Qpn(0x200),
        starting_psn: 1,
        responder_resources: 1,
        initiator_depth: 1,
        target_ack_delay: 15,
        flow_control: true,
        rnr_retry_count: 7,
        srq: false,
        ca_guid: GUID_B,
        private: [0; REP_PRIVATE_LEN],
    };
    messages(&mut initiator, now);
    initiator.handle_mad(now, b(), a(), &CmMessage::Rep(rep).emit(1));
    let out = messages(&mut initiator, now);
    assert!(
        matches!(out[0], CmMessage::Rej(Rej { reason: RejReason::Stale, about: About::Rep, .. })),
        "{out:?}"
    );
    assert!(matches!(out[1], CmMessage::Dreq(_)));
    assert_eq!(only(events(&mut initiator)), CmEvent::Disconnected { id: active });
}

#[test]
fn a_reply_to_nobody_is_refused() {
    let now = start();
    let (mut initiator, mut target) = (cm(GUID_A, 1), target());
    let id = initiator.connect(now, &params(0x100)).unwrap();
    exchange(now, &mut initiator, &mut target);
    let passive = requested(&mut target);
    initiator.disconnect(now, id).unwrap();
    let lost = sent(&mut initiator, now);
    assert_eq!(lost.len(), 1);
    assert_eq!(only(events(&mut initiator)), CmEvent::Released { id });
    target.accept(now, passive, &acceptance(0x200)).unwrap();
    exchange(now, &mut initiator, &mut target);
    let event = only(events(&mut target));
    assert!(matches!(event, CmEvent::Rejected { reason: RejReason::InvalidCommId, .. }), "{event:?}");
}

#[test]
fn half_open_connections_are_limited_by_peer_and_in_all() {
    let now = start();
    let mut config = CmConfig::new(GUID_B, 2, PathMtu::Mtu4096);
    (config.max_half_open, config.max_half_open_per_peer) = (5, 3);
    let mut target = Cm::new(config);
    target.listen(PORT).unwrap();
    assert_eq!(target.listen(PORT), Err(CmError::PortInUse));
    let ask = |target: &mut Cm, host: u8, qpn: u32| {
        let address: IpAddr = [10, 0, 1, host].into();
        let mad = request_from(address, qpn);
        target.handle_mad(now, address, b(), &mad);
        events(target).len()
    };
    let taken: Vec<usize> = (0..4).map(|at| ask(&mut target, 1, 0x100 + at)).collect();
    assert_eq!(taken, [1, 1, 1, 0], "three of one peer");
    assert_eq!((ask(&mut target, 2, 0x100), ask(&mut target, 3, 0x100)), (1, 1));
    assert_eq!(ask(&mut target, 4, 0x100), 0);
    assert_eq!(target.counters().over_limit, 2);
    // Whoever has more than others makes room, and its user is told; but not at once, and not for one that has as many.
    let soon = now + Duration::from_millis(100);
    let ask = |target: &mut Cm, host: u8, qpn: u32| {
        let address: IpAddr = [10, 0, 1, host].into();
        target.handle_mad(soon, address, b(), &request_from(address, qpn));
        events(target)
    };
    let told = ask(&mut target, 4, 0x100);
    assert!(
        matches!(
            told[..],
            [CmEvent::Unreachable { id }, CmEvent::Released { id: gone }, CmEvent::ConnectRequest { .. }] if id == gone
        ),
        "{told:?}"
    );
    assert_eq!(ask(&mut target, 2, 0x101), []);
    assert_eq!((target.counters().displaced, target.counters().over_limit), (1, 3));
    assert_eq!(target.connections(), 5);
    assert!(sent(&mut target, now).is_empty(), "what is dropped is not answered");

    target.unlisten(PORT);
    assert_eq!(ask(&mut target, 6, 0x100), []);
    assert!(matches!(
        only(messages(&mut target, now)),
        CmMessage::Rej(Rej { reason: RejReason::InvalidServiceId, .. })
    ));
}

#[test]
fn a_flood_is_answered_at_the_rate_that_is_set() {
    let now = start();
    let mut target = cm(GUID_B, 2);
    let (_, mad) = request(0x100, |_| ());
    for _ in 0..1000 {
        target.handle_mad(now, a(), b(), &mad);
    }
    assert_eq!(sent(&mut target, now).len(), 100);
    assert_eq!(target.counters().unanswered, 900);
    assert_empty(&target);
}

#[test]
fn datagram_services_are_refused_and_other_classes_ignored() {
    let now = start();
    let mut target = target();
    let sidr = SidrReq { request_id: 5, service_id: 0x0111_1144 };
    target.handle_mad(now, a(), b(), &CmMessage::SidrReq(sidr).emit(8));
    let out = only(sent(&mut target, now));
    assert_eq!(out.mad[16..18], [0, 0x18]);
    assert_eq!(out.mad[24..30], [0, 0, 0, 5, 1, 0]);
    let (_, good) = request(0x100, |_| ());
    let with = |at: usize, byte: u8| {
        let mut mad = good;
        mad[at] = byte;
        mad
    };
    // Base version, class (performance management), class version, method (Get), attribute (LAP, APR).
    for mad in [with(0, 2), with(1, 4), with(2, 1), with(3, 1), with(17, 0x19), with(17, 0x1A)] {
        target.handle_mad(now, a(), b(), &mad);
    }
    target.handle_mad(now, a(), b(), &good[..255]);
    assert_eq!(target.counters().malformed, 7);
    assert!(sent(&mut target, now).is_empty());
    assert!(events(&mut target).is_empty());
}

#[test]
fn calls_that_a_state_does_not_allow_fail_and_change_nothing() {
    let now = start();
    let (mut initiator, _, active, _) = established(now);
    assert_eq!(initiator.accept(now, active, &acceptance(1)), Err(CmError::WrongState));
    assert_eq!(initiator.send_rtu(now, active), Err(CmError::WrongState));
    assert_eq!(initiator.reject(now, active, RejReason::Consumer, &[]), Err(CmError::WrongState));
    assert_eq!(initiator.send_rtu(now, CmId(0)), Err(CmError::UnknownId));
    let long = [0; REQ_PRIVATE_LEN + 1];
    let too_long = ConnectParams { private: &long, ..params(3) };
    assert_eq!(initiator.connect(now, &too_long), Err(CmError::PrivateTooLong));
    let mixed = ConnectParams { remote: "::1".parse().unwrap(), ..params(3) };
    assert_eq!(initiator.connect(now, &mixed), Err(CmError::MixedFamilies));
    assert!(sent(&mut initiator, now).is_empty());
    assert_eq!(initiator.connections(), 1);
}

#[test]
fn communication_ids_differ_from_run_to_run() {
    let now = start();
    let ids = |seed| {
        let mut cm = cm(GUID_A, seed);
        (0..3).map(|qpn| cm.connect(now, &params(qpn)).unwrap().0).collect::<Vec<_>>()
    };
    assert_eq!(ids(1), ids(1));
    assert!(ids(1).iter().all(|id| !ids(2).contains(id)));
}

#[test]
fn a_manager_connects_to_itself() {
    let now = start();
    let mut both = cm(GUID_A, 1);
    both.listen(PORT).unwrap();
    let to = ConnectParams { remote: a(), ..params(0x100) };
    let active = both.connect(now, &to).unwrap();
    let turn = |both: &mut Cm| {
        let all = sent(both, now);
        deliver(now, both, &all);
        events(both)
    };
    let CmEvent::ConnectRequest { id: passive, .. } = only(turn(&mut both)) else { panic!("a request") };
    both.accept(now, passive, &acceptance(0x101)).unwrap();
    assert!(matches!(only(turn(&mut both)), CmEvent::ConnectReply { id, .. } if id == active));
    both.send_rtu(now, active).unwrap();
    assert_eq!(only(turn(&mut both)), CmEvent::Established { id: passive });
    both.disconnect(now, active).unwrap();
    assert_eq!(only(turn(&mut both)), CmEvent::Disconnected { id: passive });
    assert_eq!(only(turn(&mut both)), CmEvent::Disconnected { id: active });
    run_alone(&mut both, now);
    assert_empty(&both);
}

proptest! {
    #[test]
    fn no_datagram_of_a_peer_upsets_a_manager(
        which in 0_u8..8,
        changes in proptest::collection::vec((0_usize..MAD_LEN, any::<u8>()), 0..6),
        foreign in any::<bool>(),
    ) {
        let now = start();
        let (mut initiator, mut target, active, passive) = established(now);
        let ids = CommIds { local: active.0, remote: passive.0 };
        let (req, _) = request(0x300, |_| ());
        let info = [0; 72];
        let message = match which {
            0 => CmMessage::Req(req),
            1 => CmMessage::Mra(Mra { ids, about: About::Rep, service_timeout: 31 }),
            2 => CmMessage::Rej(Rej { ids, about: About::Rep, reason: RejReason::Timeout, info_len: 8, info, private: [0; 148] }),
            3 => CmMessage::Rtu(ids),
            4 => CmMessage::Dreq(Dreq { ids, remote_qpn: Qpn(0x200) }),
            5 => CmMessage::Drep(ids),
            6 => CmMessage::SidrReq(SidrReq { request_id: 1, service_id: 2 }),
            _ => {
                let private = [0; REP_PRIVATE_LEN];
                CmMessage::Rep(Rep {
                    ids, qpn: Qpn(0x100), starting_psn: 0, responder_resources: 0, initiator_depth: 0, target_ack_delay: 0,
                    flow_control: false, rnr_retry_count: 0, srq: false, ca_guid: GUID_A, private,
                })
            }
        };
        let mut mad = message.emit(1);
        changes.into_iter().for_each(|(at, byte)| mad[at] = byte);
        let src = if foreign { [10, 0, 0, 77].into() } else { a() };
        target.handle_mad(now, src, b(), &mad);
        prop_assert!(sent(&mut target, now).len() <= 2);
        prop_assert!(target.connections() <= 2);
        // Whatever it was, everything ends.
        let open: Vec<u32> = target.connections.keys().copied().collect();
        open.into_iter().for_each(|id| target.disconnect(now, CmId(id)).unwrap());
        run_alone(&mut target, now);
        assert_empty(&target);
        initiator.disconnect(now, active).unwrap();
        run_alone(&mut initiator, now);
        assert_empty(&initiator);
    }
}
