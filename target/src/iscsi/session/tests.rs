use proptest::prelude::*;
use rwctx::remote::{RemoteAddr, RemoteSegment, Rkey};

use super::super::directory::{Initiators, Target};
use super::super::keys::Negotiated;
use super::super::login::Established;
use super::super::name::IscsiName;
use super::super::recorded::{DISCOVERY, NORMAL, Recorded, recorded};
use super::super::wire::bhs::Order;
use super::super::wire::iser::Control;
use super::super::wire::login::{Isid, Tsih};
use super::super::wire::logout::{LogoutReason, LogoutRequest};
use super::super::wire::nop::NopOut;
use super::super::wire::scsi::{Residual, ScsiCommand};
use super::super::wire::task::{TaskFunction, TaskRequest, TaskResponseCode};
use super::super::wire::text::{Progress, TextRequest};
use super::*;
use crate::scsi::luns::LunAddress;

const GOOD: Done<'_> = Done::Status { status: 0, sense: &[], length: 0 };
const PATIENCE: Patience = Patience { idle: Duration::from_secs(10), answer: Duration::from_secs(5) };

fn name(text: &str) -> IscsiName {
    IscsiName::parse(text).unwrap()
}

fn unit(number: u16) -> Lun {
    Lun(LunAddress::Unit(number).emit())
}

fn directory() -> Directory {
    let t0 =
        Target { name: name("iqn.2026-11.test:t0"), alias: None, initiators: Initiators::Any, chap: None };
    Directory {
        targets: vec![t0],
        portals: vec!["10.77.0.1:3260".parse().unwrap()],
        portal_group_tag: 1,
        discovery_chap: None,
    }
}

/// A host and its session, and the number of the host's next command.
struct Pair {
    session: Session,
    now: Instant,
    cmd_sn: Sn,
}

#[derive(Clone, Copy)]
enum Urgency {
    Queued,
    Immediate,
}
use Urgency::{Immediate, Queued};

impl Pair {
    #[expect(clippy::disallowed_methods, reason = "where virtual time starts does not matter")]
    fn with(target: Option<&str>, stat_sn: u32, cmd_sn: u32, window: u16) -> Self {
        let now = Instant::now();
        let established = Established {
            initiator: name("iqn.2026-11.test:ini"),
            target: target.map(name),
            isid: Isid([0, 2, 0x3d, 0, 0, 1]),
            tsih: Tsih(1),
            cid: 0,
            negotiated: Negotiated { initiator_recv: 262_144, ..Negotiated::default() },
            stat_sn: Sn(stat_sn),
            cmd_sn: Sn(cmd_sn),
            window,
        };
        let params = SessionParams {
            established,
            directory: Arc::new(directory()),
            invalidation: Invalidation::Remote,
            patience: PATIENCE,
        };
        Self { session: Session::new(now, params), now, cmd_sn: Sn(cmd_sn) }
    }

    /// A normal session with room for four commands.
    fn new() -> Self {
        Self::with(Some("iqn.2026-11.test:t0"), 100, 10, 4)
    }

    fn discovery() -> Self {
        Self::with(None, 100, 10, 4)
    }

    fn order(&mut self, urgency: Urgency) -> Order {
        let cmd_sn = self.cmd_sn;
        let immediate = matches!(urgency, Immediate);
        if !immediate {
            self.cmd_sn = cmd_sn.next();
        }
        Order { immediate, cmd_sn, exp_stat_sn: Sn(0) }
    }

    /// Sends a request; returns what must be done.
    fn send(&mut self, pdu: Pdu, control: Control, data: &[u8]) -> Vec<Action> {
        let mut bhs = pdu.emit();
        bhs.set_data_len(data.len());
        let message = Message { control, bhs: &bhs, ahs: &[], data };
        let mut bytes = vec![0; message.emitted_len()];
        message.emit(&mut bytes);
        self.receive(&bytes)
    }

    fn receive(&mut self, bytes: &[u8]) -> Vec<Action> {
        self.session.handle_message(self.now, bytes);
        self.poll()
    }

    fn poll(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.session.poll_action()).collect()
    }

    fn command(&mut self, itt: u32, lun: u16, urgency: Urgency) -> Vec<Action> {
        let order = self.order(urgency);
        let command = command(order, itt, lun);
        self.send(Pdu::ScsiCommand(command), Control::default(), &[])
    }

    /// Starts a command without data.
    fn start(&mut self, itt: u32, lun: u16) -> TaskId {
        started(&self.command(itt, lun, Queued)).task
    }

    fn done(&mut self, task: TaskId) -> Vec<Action> {
        self.session.handle_done(task, GOOD);
        self.poll()
    }

    fn manage(&mut self, function: TaskFunction, lun: u16, referenced: u32, ref_cmd_sn: u32) -> Vec<Action> {
        let request = TaskRequest {
            order: self.order(Immediate),
            function,
            lun: unit(lun),
            itt: Itt(0x7777),
            referenced: Itt(referenced),
            ref_cmd_sn: Sn(ref_cmd_sn),
            exp_data_sn: 0,
        };
        self.send(Pdu::TaskRequest(request), Control::default(), &[])
    }

    fn pass(&mut self, time: Duration) -> Vec<Action> {
        self.now += time;
        self.session.handle_timeout(self.now);
        self.poll()
    }
}

fn command(order: Order, itt: u32, lun: u16) -> ScsiCommand {
    ScsiCommand {
        order,
        last: true,
        to_host: false,
        from_host: false,
        attribute: TaskAttribute::Simple,
        lun: unit(lun),
        itt: Itt(itt),
        expected_length: 0,
        cdb: [0; 16],
    }
}

fn started(actions: &[Action]) -> &Command {
    match actions {
        [Action::StartCommand(command)] => command,
        other => panic!("{other:?}"),
    }
}

fn sent(actions: &[Action]) -> &Outgoing {
    match actions {
        [Action::Send(outgoing)] => outgoing,
        other => panic!("{other:?}"),
    }
}

fn response(actions: &[Action]) -> ScsiResponse {
    match sent(actions).pdu {
        Pdu::ScsiResponse(response) => response,
        other => panic!("{other:?}"),
    }
}

fn managed(actions: &[Action]) -> TaskResponseCode {
    match sent(actions).pdu {
        Pdu::TaskResponse(response) => {
            assert_eq!(response.itt, Itt(0x7777));
            response.code
        }
        other => panic!("{other:?}"),
    }
}

fn rejected(actions: &[Action]) -> RejectReason {
    match sent(actions) {
        Outgoing { pdu: Pdu::Reject(reject), data, invalidate: None } => {
            assert_eq!(data.len(), 48, "the header of what was rejected");
            reject.reason
        }
        other => panic!("{other:?}"),
    }
}

fn bytes(outgoing: &Outgoing) -> Vec<u8> {
    let mut bytes = vec![0xff; outgoing.emitted_len()];
    outgoing.emit(&mut bytes);
    bytes
}

/// How a recorded command ended.
fn recorded_end(theirs: &[u8], expected: u32) -> (u8, Vec<u8>, u64) {
    let message = Message::parse(theirs).unwrap();
    let Ok(Pdu::ScsiResponse(response)) = Pdu::parse(message.bhs) else { panic!("{message:?}") };
    let length = match response.residual {
        Residual::None => u64::from(expected),
        Residual::Underflow(less) => u64::from(expected - less),
        Residual::Overflow(more) => u64::from(expected) + u64::from(more),
    };
    (response.status, message.data.get(2..).unwrap_or_default().to_vec(), length)
}

#[test]
fn a_recorded_session_is_answered_byte_for_byte_as_the_kernels_target_did() {
    let records = recorded(NORMAL);
    // The login's last response had StatSN 0xcddd15f6; commands begin at 0.
    let mut pair = Pair::with(Some("iqn.2026-11.test:t0"), 0xcddd_15f7, 0, 64);
    pair.session.established.negotiated.rdma_extensions = true;
    let answers: Vec<(&Vec<u8>, &Option<Rkey>)> = records
        .iter()
        .filter_map(|record| match record {
            Recorded::Target(bytes, key) => Some((bytes, key)),
            _ => None,
        })
        .skip(1)
        .collect();
    let hosts = records.iter().filter_map(|record| match record {
        Recorded::Host(bytes) => Some(bytes),
        _ => None,
    });
    let mut seen = 0;
    for (request, (theirs, invalidated)) in hosts.skip(1).zip(answers) {
        let actions = pair.receive(request);
        if let [Action::StartCommand(command)] = &actions[..] {
            // The data goes where the kernel's target moved it.
            let moved = match &command.data {
                Transfer::None => None,
                Transfer::ToHost(segment) => Some(segment),
                Transfer::FromHost { immediate, solicited } => {
                    assert_eq!(*immediate, 76..76 + 8192);
                    solicited.as_ref()
                }
            };
            let expected = u32::from_be_bytes(request[48..52].try_into().unwrap());
            let (status, sense, length) = recorded_end(theirs, expected);
            if let (Some(moved), 0) = (moved, status) {
                let wanted = RemoteSegment { length: length.try_into().unwrap(), ..*moved };
                let found = records.iter().any(|record| match record {
                    Recorded::Write(segment) => segment.at == moved.at && segment.length <= moved.length,
                    Recorded::Read(segment) => *segment == *moved,
                    _ => false,
                });
                assert!(found, "{moved:?} {wanted:?}");
            }
            pair.session.handle_done(command.task, Done::Status { status, sense: &sense, length });
            let actions = pair.poll();
            let ours = sent(&actions);
            assert_eq!(bytes(ours), *theirs, "{ours:?}");
            // The kernel's target leaves the key of a failed command to the host; both are allowed.
            if status == 0 {
                assert_eq!(ours.invalidate, *invalidated);
            }
            seen += 1;
        } else {
            let [Action::Send(ours), Action::Close(SessionClose::LoggedOut)] = &actions[..] else {
                panic!("{actions:?}")
            };
            assert_eq!(bytes(ours), *theirs, "{ours:?}");
        }
    }
    assert_eq!(seen, 23);
}

#[test]
fn a_recorded_discovery_is_answered_byte_for_byte_as_the_kernels_target_did() {
    let records = recorded(DISCOVERY);
    let [_, _, Recorded::Host(request), Recorded::Target(theirs, None)] = &records[..] else { panic!() };
    let mut pair = Pair::with(None, 0x0851_91ea, 1, 1);
    let actions = pair.receive(request);
    assert_eq!(bytes(sent(&actions)), *theirs);
}

#[test]
fn the_window_follows_the_tasks_under_way() {
    let mut pair = Pair::new();
    let tasks: Vec<TaskId> = (1..=4).map(|itt| pair.start(itt, 0)).collect();
    assert_eq!(pair.command(5, 0, Queued), [], "beyond MaxCmdSN: ignored");
    pair.cmd_sn = Sn(14);
    let ended = response(&pair.done(tasks[2]));
    assert_eq!((ended.itt, ended.numbers.stat_sn), (Itt(3), Sn(100)));
    assert_eq!((ended.numbers.exp_cmd_sn, ended.numbers.max_cmd_sn), (Sn(14), Sn(14)));
    let fifth = pair.start(5, 0);
    assert_eq!(response(&pair.done(fifth)).numbers.stat_sn, Sn(101));
    // Fewer resources: what was allowed stays allowed, and no more comes.
    pair.session.handle_resources(1);
    let numbers = response(&pair.done(tasks[0])).numbers;
    assert_eq!((numbers.exp_cmd_sn, numbers.max_cmd_sn), (Sn(15), Sn(15)));
    pair.done(tasks[1]);
    let numbers = response(&pair.done(tasks[3])).numbers;
    assert_eq!((numbers.exp_cmd_sn, numbers.max_cmd_sn), (Sn(15), Sn(15)));
    pair.session.handle_resources(9);
    let sixth = pair.start(6, 0);
    assert_eq!(response(&pair.done(sixth)).numbers.max_cmd_sn, Sn(19), "four, as the login promised");
}

#[test]
fn old_numbers_are_ignored_and_missing_ones_end_the_session() {
    let mut pair = Pair::new();
    pair.start(1, 0);
    pair.cmd_sn = Sn(10);
    assert_eq!(pair.command(2, 0, Queued), [], "a number that was used");
    pair.cmd_sn = Sn(0x8000_0000);
    assert_eq!(pair.command(2, 0, Queued), []);
    pair.cmd_sn = Sn(12);
    let missing = SessionClose::MissingCommand { expected: 11, received: 12 };
    assert_eq!(pair.command(2, 0, Queued), [Action::Close(missing)]);
    assert_eq!(pair.command(3, 0, Queued), [], "it is over");
    assert_eq!(pair.session.poll_timeout(), None);
}

#[test]
fn immediate_commands_take_no_number_and_are_few() {
    let mut pair = Pair::new();
    let tasks: Vec<TaskId> =
        (0..IMMEDIATE_MAX).map(|itt| started(&pair.command(itt.into(), 0, Immediate)).task).collect();
    assert_eq!(rejected(&pair.command(99, 0, Immediate)), RejectReason::TooManyImmediate);
    let queued = pair.start(100, 0);
    let numbers = response(&pair.done(tasks[0])).numbers;
    assert_eq!((numbers.exp_cmd_sn, numbers.max_cmd_sn), (Sn(11), Sn(13)));
    started(&pair.command(99, 0, Immediate));
    assert_eq!(response(&pair.done(queued)).numbers.max_cmd_sn, Sn(14));
}

#[test]
fn tags_name_one_task_each() {
    let mut pair = Pair::new();
    let task = pair.start(1, 0);
    assert_eq!(rejected(&pair.command(1, 0, Queued)), RejectReason::TaskInProgress);
    // The number of a rejected command was not used up.
    pair.cmd_sn = Sn(11);
    assert_eq!(rejected(&pair.command(Itt::NONE.0, 0, Queued)), RejectReason::InvalidField);
    pair.cmd_sn = Sn(11);
    pair.done(task);
    pair.start(1, 0);
}

#[test]
fn responses_say_how_a_command_ended() {
    let mut pair = Pair::new();
    let at = RemoteAddr { addr: 0x1000, rkey: Rkey(0x77) };
    let control = Control { read: Some(at), write: None };
    let read = |pair: &mut Pair, itt| {
        let order = pair.order(Queued);
        let read = ScsiCommand { to_host: true, expected_length: 512, ..command(order, itt, 0) };
        started(&pair.send(Pdu::ScsiCommand(read), control, &[])).clone()
    };
    let first = read(&mut pair, 1);
    assert_eq!(first.data, Transfer::ToHost(RemoteSegment { at, length: 512 }));
    let sense = [0x70, 0, 5, 0];
    pair.session.handle_done(first.task, Done::Status { status: 2, sense: &sense, length: 0 });
    let actions = pair.poll();
    assert_eq!(response(&actions).residual, Residual::Underflow(512));
    assert_eq!(sent(&actions).data, [0, 4, 0x70, 0, 5, 0]);
    assert_eq!(sent(&actions).invalidate, Some(Rkey(0x77)));

    let second = read(&mut pair, 2);
    pair.session.handle_done(second.task, Done::Status { status: 2, sense: &[1; 252], length: 1024 });
    let actions = pair.poll();
    assert_eq!(response(&actions).residual, Residual::Overflow(512));
    assert_eq!(sent(&actions).data.len(), CONTROL_DATA_MAX);
    assert_eq!(sent(&actions).data[..2], [0, 126]);

    pair.session.invalidation = Invalidation::No;
    let third = read(&mut pair, 3);
    pair.session.handle_done(third.task, Done::TargetFailure);
    let actions = pair.poll();
    assert_eq!(response(&actions).response, ServiceResponse::TargetFailure);
    assert_eq!(sent(&actions).invalidate, None);
}

#[test]
fn an_aborted_task_gets_no_response_and_the_abort_waits_for_its_end() {
    let mut pair = Pair::new();
    let task = pair.start(1, 0);
    assert_eq!(pair.manage(TaskFunction::AbortTask, 0, 1, 10), [Action::AbortTask(task)]);
    assert_eq!(managed(&pair.done(task)), TaskResponseCode::Complete);
    // Gone, on another unit, or never there.
    assert_eq!(managed(&pair.manage(TaskFunction::AbortTask, 0, 1, 10)), TaskResponseCode::NoSuchTask);
    let other = pair.start(2, 0);
    assert_eq!(managed(&pair.manage(TaskFunction::AbortTask, 1, 2, 11)), TaskResponseCode::NoSuchTask);
    // One that ended before it was told: once.
    assert_eq!(pair.manage(TaskFunction::AbortTask, 0, 2, 11), [Action::AbortTask(other)]);
    assert_eq!(pair.manage(TaskFunction::AbortTask, 0, 2, 11), [], "a second abort waits too");
    let actions = pair.done(other);
    assert_eq!(actions.len(), 2);
    assert_eq!(managed(&actions[..1]), TaskResponseCode::Complete);
    // A command that was rejected: its number counts now.
    let lost = managed(&pair.manage(TaskFunction::AbortTask, 0, 3, 12));
    assert_eq!(lost, TaskResponseCode::Complete);
    pair.cmd_sn = Sn(13);
    pair.start(4, 0);
}

#[test]
fn functions_for_a_unit_end_its_tasks_and_wait_for_the_others() {
    for function in [TaskFunction::AbortTaskSet, TaskFunction::ClearTaskSet, TaskFunction::LogicalUnitReset] {
        let mut pair = Pair::new();
        let (first, other, second) = (pair.start(1, 0), pair.start(2, 1), pair.start(3, 0));
        let actions = pair.manage(function, 0, Itt::NONE.0, 0);
        let [Action::AbortTask(one), Action::AbortTask(two), Action::Manage(asked)] = actions[..] else {
            panic!("{actions:?}")
        };
        assert_eq!([one, two], [first, second]);
        assert_eq!((asked.function, asked.lun), (function, unit(0)));
        assert_eq!(pair.done(first), []);
        pair.session.handle_managed(asked.id, TaskResponseCode::Complete);
        assert_eq!(pair.poll(), [], "a task is left");
        assert_eq!(response(&pair.done(other)).itt, Itt(2), "another unit's");
        assert_eq!(managed(&pair.done(second)), TaskResponseCode::Complete);
    }
    let mut pair = Pair::new();
    let actions = pair.manage(TaskFunction::LogicalUnitReset, 9, Itt::NONE.0, 0);
    let [Action::Manage(asked)] = actions[..] else { panic!("{actions:?}") };
    pair.session.handle_managed(asked.id, TaskResponseCode::NoSuchLun);
    assert_eq!(managed(&pair.poll()), TaskResponseCode::NoSuchLun);
}

#[test]
fn resets_of_the_target_end_all_tasks_and_a_cold_one_the_session() {
    for (function, cold) in [(TaskFunction::TargetWarmReset, false), (TaskFunction::TargetColdReset, true)] {
        let mut pair = Pair::new();
        let (first, second) = (pair.start(1, 0), pair.start(2, 1));
        let actions = pair.manage(function, 0, Itt::NONE.0, 0);
        let [Action::AbortTask(_), Action::AbortTask(_), Action::Manage(asked)] = actions[..] else {
            panic!("{actions:?}")
        };
        pair.done(first);
        pair.done(second);
        pair.session.handle_managed(asked.id, TaskResponseCode::Complete);
        let actions = pair.poll();
        assert_eq!(managed(&actions[..1]), TaskResponseCode::Complete);
        let end = cold.then_some(Action::Close(SessionClose::ColdReset));
        assert_eq!(actions.get(1), end.as_ref());
    }
}

#[test]
fn functions_that_there_are_not_say_so() {
    let mut pair = Pair::new();
    let reassign = pair.manage(TaskFunction::TaskReassign, 0, 1, 0);
    assert_eq!(managed(&reassign), TaskResponseCode::ReassignNotSupported);
    for function in [TaskFunction::ClearAca, TaskFunction::Unknown(9), TaskFunction::Unknown(0)] {
        assert_eq!(managed(&pair.manage(function, 0, 1, 0)), TaskResponseCode::NotSupported);
    }
    // Functions whose answers the caller owes are few.
    for _ in 0..8 {
        assert!(matches!(pair.manage(TaskFunction::AbortTaskSet, 0, 0, 0)[..], [Action::Manage(_)]));
    }
    let ninth = pair.manage(TaskFunction::AbortTaskSet, 0, 0, 0);
    assert_eq!(rejected(&ninth), RejectReason::TooManyImmediate);
}

fn nop(pair: &mut Pair, itt: Itt, ttt: Ttt, urgency: Urgency, data: &[u8]) -> Vec<Action> {
    let order = pair.order(urgency);
    let request = NopOut { order, lun: Lun::default(), itt, ttt };
    pair.send(Pdu::NopOut(request), Control::default(), data)
}

#[test]
fn a_ping_of_the_host_is_answered_with_its_data() {
    let mut pair = Pair::new();
    let actions = nop(&mut pair, Itt(5), Ttt::NONE, Queued, &[7; 300]);
    let Outgoing { pdu: Pdu::NopIn(answer), data, .. } = sent(&actions) else { panic!() };
    assert_eq!((answer.itt, answer.ttt, answer.numbers.stat_sn), (Itt(5), Ttt::NONE, Sn(100)));
    assert_eq!((answer.numbers.exp_cmd_sn, answer.numbers.max_cmd_sn), (Sn(11), Sn(14)));
    assert_eq!(*data, [7; CONTROL_DATA_MAX]);
    assert_eq!(nop(&mut pair, Itt::NONE, Ttt(3), Immediate, &[]), []);
    assert_eq!(rejected(&nop(&mut pair, Itt::NONE, Ttt(3), Queued, &[])), RejectReason::ProtocolError);
}

#[test]
fn a_silent_host_is_pinged_and_given_up() {
    let mut pair = Pair::new();
    assert_eq!(pair.session.poll_timeout(), Some(pair.now + PATIENCE.idle));
    assert_eq!(pair.pass(Duration::from_secs(9)), []);
    let actions = pair.pass(Duration::from_secs(1));
    let Pdu::NopIn(ping) = sent(&actions).pdu else { panic!() };
    assert_eq!((ping.itt, ping.numbers.stat_sn), (Itt::NONE, Sn(100)));
    assert_ne!(ping.ttt, Ttt::NONE);
    assert_eq!(nop(&mut pair, Itt::NONE, ping.ttt, Immediate, &[]), []);
    assert_eq!(pair.session.poll_timeout(), Some(pair.now + PATIENCE.idle));
    let again = pair.pass(Duration::from_secs(10));
    let Pdu::NopIn(second) = sent(&again).pdu else { panic!() };
    assert_ne!(second.ttt, ping.ttt);
    assert_eq!(second.numbers.stat_sn, Sn(100), "a ping takes no number");
    assert_eq!(pair.pass(Duration::from_secs(4)), []);
    assert_eq!(pair.pass(Duration::from_secs(1)), [Action::Close(SessionClose::PingTimeout)]);
    let mut silent = Pair::discovery();
    assert_eq!(silent.pass(Duration::from_secs(10)), [Action::Close(SessionClose::Idle)]);
}

fn logout(pair: &mut Pair, reason: LogoutReason, cid: u16) -> Vec<Action> {
    let request = LogoutRequest { order: pair.order(Immediate), reason, itt: Itt(9), cid };
    pair.send(Pdu::LogoutRequest(request), Control::default(), &[])
}

fn logout_result(actions: &[Action]) -> LogoutResult {
    match actions.first() {
        Some(Action::Send(Outgoing { pdu: Pdu::LogoutResponse(response), .. })) => response.result,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_logout_ends_the_tasks_first() {
    let mut pair = Pair::new();
    let task = pair.start(1, 0);
    assert_eq!(logout(&mut pair, LogoutReason::CloseSession, 0), [Action::AbortTask(task)]);
    assert_eq!(rejected(&pair.command(2, 0, Queued)), RejectReason::WaitingForLogout);
    let actions = pair.done(task);
    assert_eq!(logout_result(&actions), LogoutResult::Closed);
    assert_eq!(actions[1..], [Action::Close(SessionClose::LoggedOut)]);
}

#[test]
fn a_logout_of_another_connection_or_for_recovery_is_refused() {
    let mut pair = Pair::new();
    let refused = logout(&mut pair, LogoutReason::CloseConnection, 1);
    assert_eq!(logout_result(&refused), LogoutResult::NoSuchConnection);
    let refused = logout(&mut pair, LogoutReason::RemoveForRecovery, 0);
    assert_eq!(logout_result(&refused), LogoutResult::RecoveryNotSupported);
    assert_eq!(rejected(&logout(&mut pair, LogoutReason::Unknown(3), 0)), RejectReason::InvalidField);
    assert_eq!(logout(&mut pair, LogoutReason::CloseConnection, 0).len(), 2);
}

#[test]
fn a_host_that_is_asked_to_log_out_has_its_time() {
    let mut pair = Pair::new();
    pair.session.ask_for_logout(pair.now, 3);
    let actions = pair.poll();
    let Pdu::AsyncMessage(message) = sent(&actions).pdu else { panic!() };
    assert_eq!(message.event, AsyncEvent::LogoutRequest { seconds: 3 });
    // Traffic doesn't stop the clock.
    pair.now += Duration::from_secs(2);
    let task = pair.start(1, 0);
    pair.done(task);
    assert_eq!(pair.pass(Duration::from_secs(1)), [Action::Close(SessionClose::LogoutTimeout)]);
    let mut pair = Pair::new();
    pair.session.ask_for_logout(pair.now, 3);
    pair.poll();
    assert_eq!(logout(&mut pair, LogoutReason::CloseSession, 0).len(), 2);
}

#[test]
fn what_happens_at_a_unit_is_told_with_sense_data() {
    let mut pair = Pair::new();
    pair.session.notify(AsyncEvent::Scsi, unit(1), &[0x70, 0, 6]);
    let actions = pair.poll();
    let Pdu::AsyncMessage(message) = sent(&actions).pdu else { panic!() };
    assert_eq!((message.event, message.lun), (AsyncEvent::Scsi, unit(1)));
    assert_eq!(sent(&actions).data, [0, 3, 0x70, 0, 6]);
}

fn send_targets(pair: &mut Pair, value: &str) -> Vec<Action> {
    let order = pair.order(Immediate);
    let (lun, itt, ttt) = (Lun::default(), Itt(3), Ttt::NONE);
    let request = TextRequest { order, progress: Progress::Final, lun, itt, ttt };
    pair.send(Pdu::TextRequest(request), Control::default(), format!("SendTargets={value}\0").as_bytes())
}

#[test]
fn a_discovery_session_answers_texts_and_nothing_else() {
    let mut pair = Pair::discovery();
    let answer = b"TargetName=iqn.2026-11.test:t0\0TargetAddress=10.77.0.1:3260,1\0";
    assert_eq!(sent(&send_targets(&mut pair, "All")).data, answer);
    assert_eq!(rejected(&pair.command(1, 0, Immediate)), RejectReason::ProtocolError);
    assert_eq!(rejected(&pair.manage(TaskFunction::AbortTask, 0, 1, 0)), RejectReason::ProtocolError);
    assert_eq!(rejected(&nop(&mut pair, Itt(5), Ttt::NONE, Immediate, &[])), RejectReason::ProtocolError);
    assert_eq!(logout_result(&logout(&mut pair, LogoutReason::CloseSession, 0)), LogoutResult::Closed);
    let mut normal = Pair::new();
    assert_eq!(sent(&send_targets(&mut normal, "")).data, answer);
}

#[test]
fn what_has_no_place_is_rejected_and_a_host_that_goes_on_is_closed() {
    let mut pair = Pair::new();
    let raw = |pair: &mut Pair, opcode: u8, flags: u8| {
        let order = Order { immediate: false, cmd_sn: pair.cmd_sn, exp_stat_sn: Sn(0) };
        let mut bhs = command(order, 1, 0).emit();
        (bhs.opcode, bhs.flags) = (opcode, flags);
        let message = Message { control: Control::default(), bhs: &bhs, ahs: &[], data: &[] };
        let mut bytes = vec![0; message.emitted_len()];
        message.emit(&mut bytes);
        pair.receive(&bytes)
    };
    for (opcode, flags, reason) in [
        (0x05, 0x80, RejectReason::ProtocolError),       // Data-Out
        (0x03, 0x87, RejectReason::ProtocolError),       // Login
        (0x10, 0x80, RejectReason::CommandNotSupported), // SNACK
        (0x1d, 0x80, RejectReason::CommandNotSupported),
        (0x20, 0x80, RejectReason::ProtocolError),       // NOP-In
        (0x04, 0xc0, RejectReason::InvalidField),        // F and C
        (0x01, 0xe1, RejectReason::CommandNotSupported), // both directions
        (0x01, 0x21, RejectReason::ProtocolError),       // unsolicited data
        (0x01, 0x87, RejectReason::InvalidField),        // a task attribute that is none
    ] {
        assert_eq!(rejected(&raw(&mut pair, opcode, flags)), reason, "{opcode:#x}");
    }
    // Additional headers.
    let order = pair.order(Immediate);
    let mut bhs = command(order, 1, 0).emit();
    bhs.total_ahs_length = 1;
    let message = Message { control: Control::default(), bhs: &bhs, ahs: &[0, 1, 9, 0], data: &[] };
    let mut bytes = vec![0; message.emitted_len()];
    message.emit(&mut bytes);
    assert_eq!(rejected(&pair.receive(&bytes)), RejectReason::CommandNotSupported);
    // More data than was agreed.
    let long = nop(&mut pair, Itt(5), Ttt::NONE, Immediate, &[0; 8193]);
    assert_eq!(rejected(&long), RejectReason::InvalidField);
    for _ in 11..REJECTS_MAX {
        rejected(&raw(&mut pair, 0x05, 0x80));
    }
    let actions = raw(&mut pair, 0x05, 0x80);
    assert_eq!(actions[1..], [Action::Close(SessionClose::TooManyRejects)]);
}

#[test]
fn bytes_that_are_no_pdu_end_the_session() {
    let mut pair = Pair::new();
    let task = pair.start(1, 0);
    let actions = pair.receive(&[0x10; 20]);
    assert_eq!(actions, [Action::Close(SessionClose::Malformed(MessageError::Short(20)))]);
    assert_eq!(pair.done(task), [], "tasks may end afterwards");
    let hello = pair.receive(&[0x20; 76]);
    assert_eq!(hello, []);
    assert!(matches!(Pair::new().receive(&[0x20; 76])[..], [Action::Close(SessionClose::Malformed(_))]));
}

#[test]
fn a_session_is_between_a_host_and_a_target() {
    let nexus = Pair::new().session.nexus();
    assert_eq!(nexus.initiator.as_str(), "iqn.2026-11.test:ini");
    assert_eq!(nexus.target, Some(name("iqn.2026-11.test:t0")));
    assert_eq!(nexus.isid, [0, 2, 0x3d, 0, 0, 1]);
}

proptest! {
    /// Whatever a host sends, in whatever order tasks end: tasks stay within the window, numbers never go back, and no
    /// action follows the last.
    #[test]
    fn whatever_arrives_the_session_stays_within_its_bounds(
        steps in prop::collection::vec((any::<[u8; 4]>(), 0_u32..16, 0_u32..60), 1..200),
    ) {
        let mut pair = Pair::new();
        let mut under_way = Vec::new();
        let mut owed = Vec::new();
        let mut last = Sn(99);
        let mut max = Sn(13);
        for ([opcode, flags, pick, more], tag, ahead) in steps {
            let actions = match pick % 8 {
                0 if !under_way.is_empty() => pair.done(under_way.swap_remove(usize::from(more) % under_way.len())),
                1 if !owed.is_empty() => {
                    pair.session.handle_managed(owed.swap_remove(0), TaskResponseCode::Complete);
                    pair.poll()
                }
                2 => pair.pass(Duration::from_secs(u64::from(more) / 32)),
                3 => {
                    pair.session.handle_resources(u16::from(more) % 8);
                    pair.poll()
                }
                _ => {
                    let order = Order {
                        immediate: opcode & 0x40 != 0,
                        // Mostly the next, sometimes another.
                        cmd_sn: pair.session.window.expected().plus(if ahead == 7 { u32::from(more) } else { 0 }),
                        exp_stat_sn: Sn(0),
                    };
                    let mut bhs = command(order, tag, 0).emit();
                    let kinds = [0, 1, 1, 1, 2, 4, 5, 6, 0x10, 0x20];
                    bhs.opcode = opcode & 0x40 | kinds[usize::from(pick) % kinds.len()];
                    bhs.flags = if pick & 0x10 == 0 { flags } else { 0x80 | flags & 7 };
                    let message = Message { control: Control::default(), bhs: &bhs, ahs: &[], data: &[] };
                    let mut bytes = vec![0; message.emitted_len()];
                    message.emit(&mut bytes);
                    pair.receive(&bytes)
                }
            };
            let mut over = false;
            for action in actions {
                prop_assert!(!over, "{:?} after the end", action);
                match action {
                    Action::StartCommand(command) => under_way.push(command.task),
                    Action::Manage(manage) => owed.push(manage.id),
                    Action::AbortTask(task) => prop_assert!(under_way.contains(&task)),
                    Action::Close(_) => over = true,
                    Action::Send(outgoing) => {
                        prop_assert!(outgoing.data.len() <= CONTROL_DATA_MAX);
                        let bytes = bytes(&outgoing);
                        let message = Message::parse(&bytes).unwrap();
                        prop_assert_eq!(Pdu::parse(message.bhs), Ok(outgoing.pdu));
                        let stat_sn = Sn(u32::from_be_bytes(bytes[52..56].try_into().unwrap()));
                        let ping = matches!(outgoing.pdu, Pdu::NopIn(nop) if nop.itt == Itt::NONE);
                        prop_assert_eq!(stat_sn, last.next());
                        if !ping {
                            last = stat_sn;
                        }
                        let now_max = Sn(u32::from_be_bytes(bytes[60..64].try_into().unwrap()));
                        prop_assert!(!now_max.is_before(max));
                        max = now_max;
                    }
                }
            }
            prop_assert!(under_way.len() <= 4 + usize::from(IMMEDIATE_MAX));
            if over {
                break;
            }
        }
    }
}
