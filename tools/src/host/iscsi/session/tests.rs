use std::sync::Arc;
use std::time::{Duration, Instant};

use intact::iscsi::directory::{Directory, Initiators, Target};
use intact::iscsi::keys::Negotiated;
use intact::iscsi::login::Established;
use intact::iscsi::name::IscsiName;
use intact::iscsi::session::{
    Action, Done as TargetDone, Invalidation, Patience, Session as TargetSession, SessionParams,
};
use intact::iscsi::wire::async_message::AsyncMessage;
use intact::iscsi::wire::iser::Control;
use intact::iscsi::wire::login::{Isid, Tsih};
use intact::iscsi::wire::task::{TaskResponse, TaskResponseCode};
use proptest::prelude::*;
use rwctx::remote::{RemoteAddr, Rkey};

use super::*;

const WINDOW: u16 = 4;
const NUMBERS: Numbers = Numbers { stat_sn: Sn(99), exp_cmd_sn: Sn(10), max_cmd_sn: Sn(13) };
const PATIENCE: Patience = Patience { idle: Duration::from_secs(10), answer: Duration::from_secs(5) };

fn name(text: &str) -> IscsiName {
    IscsiName::parse(text).unwrap()
}

fn bytes(outgoing: &Outgoing) -> Vec<u8> {
    let mut bytes = vec![0; outgoing.emitted_len()];
    outgoing.emit(&mut bytes);
    bytes
}

/// Our session, and the target's own side of it.
struct Pair {
    ours: Session,
    theirs: TargetSession,
    now: Instant,
}

impl Pair {
    #[expect(clippy::disallowed_methods, reason = "where virtual time starts does not matter")]
    fn new(discovery: bool) -> Self {
        let now = Instant::now();
        let t0 = name("iqn.2026-11.test:t0");
        let target = |name: IscsiName| Target { name, alias: None, initiators: Initiators::Any, chap: None };
        let directory = Directory {
            targets: (0..200).map(|n| target(name(&format!("iqn.2026-11.test:t{n}")))).collect(),
            portals: vec!["10.77.0.1:3260".parse().unwrap()],
            portal_group_tag: 1,
            discovery_chap: None,
        };
        let established = Established {
            initiator: name("iqn.2026-11.test:host"),
            target: (!discovery).then_some(t0),
            isid: Isid([0x80, 0, 0, 0, 0, 1]),
            tsih: Tsih(1),
            cid: 0,
            negotiated: Negotiated { initiator_recv: 8192, ..Negotiated::default() },
            stat_sn: Sn(100),
            cmd_sn: Sn(10),
            window: WINDOW,
        };
        let theirs = TargetSession::new(
            now,
            SessionParams {
                established,
                directory: Arc::new(directory),
                invalidation: Invalidation::Remote,
                patience: PATIENCE,
            },
        );
        Self { ours: Session::new(NUMBERS, 8), theirs, now }
    }

    /// Sends a command that reads; returns what the target does.
    fn read(&mut self, tag: u32, length: u32) -> Vec<Action> {
        let command = Command { tag, lun: Lun::default(), cdb: [0x28; 16], data: Direction::ToHost(length) };
        let bhs = self.ours.start_command(&command);
        let read = Some(RemoteAddr { addr: 0x1000, rkey: Rkey(7) });
        let message = Message { control: Control { write: None, read }, bhs: &bhs, ahs: &[], data: &[] };
        let mut bytes = vec![0; message.emitted_len()];
        message.emit(&mut bytes);
        self.deliver(&bytes)
    }

    fn deliver(&mut self, bytes: &[u8]) -> Vec<Action> {
        self.theirs.handle_message(self.now, bytes);
        std::iter::from_fn(|| self.theirs.poll_action()).collect()
    }

    /// Sends what our side has to say; returns what the target does.
    fn flush(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        while let Some(outgoing) = self.ours.poll_transmit() {
            actions.extend(self.deliver(&bytes(&outgoing)));
        }
        actions
    }

    fn done(&mut self, action: &Action, done: TargetDone<'_>) -> Vec<u8> {
        let Action::StartCommand(command) = action else { panic!("{action:?}") };
        self.theirs.handle_done(command.task, done);
        match self.theirs.poll_action() {
            Some(Action::Send(outgoing)) => bytes(&outgoing),
            other => panic!("{other:?}"),
        }
    }
}

fn good(length: u64) -> TargetDone<'static> {
    TargetDone::Status { status: 0, sense: &[], length }
}

#[test]
fn commands_go_as_far_as_the_window_and_their_end_opens_it() {
    let mut pair = Pair::new(false);
    let mut started = Vec::new();
    for tag in 0..u32::from(WINDOW) {
        assert!(pair.ours.has_room());
        started.extend(pair.read(tag, 512));
    }
    assert!(!pair.ours.has_room());
    let response = pair.done(&started[2], good(512));
    let event = pair.ours.handle_message(&response).unwrap();
    let done = Done { tag: 2, status: Some(0), residual: Residual::None, sense: &[] };
    assert_eq!(event, Event::Done(done));
    assert!(pair.ours.has_room());
    // The tag is free again.
    started.extend(pair.read(2, 512));
    assert!(!pair.ours.has_room() && matches!(started[4], Action::StartCommand(_)));
}

#[test]
fn a_failure_arrives_with_sense_data_and_residual() {
    let mut pair = Pair::new(false);
    let started = pair.read(1, 4096).remove(0);
    let failed = TargetDone::Status { status: 2, sense: &[0x70, 0, 0xb, 0, 0, 0, 0, 10], length: 0 };
    let response = pair.done(&started, failed);
    let Event::Done(done) = pair.ours.handle_message(&response).unwrap() else { panic!() };
    assert_eq!((done.status, done.residual), (Some(2), Residual::Underflow(4096)));
    assert_eq!(done.sense, [0x70, 0, 0xb, 0, 0, 0, 0, 10]);
    let started = pair.read(1, 4096).remove(0);
    let response = pair.done(&started, TargetDone::TargetFailure);
    let Event::Done(done) = pair.ours.handle_message(&response).unwrap() else { panic!() };
    assert_eq!(done.status, None);
}

#[test]
fn pings_are_answered_and_keep_the_session() {
    let mut pair = Pair::new(false);
    for _ in 0..3 {
        pair.now += PATIENCE.idle;
        pair.theirs.handle_timeout(pair.now);
        let Some(Action::Send(ping)) = pair.theirs.poll_action() else { panic!("a silent host is pinged") };
        assert_eq!(pair.ours.handle_message(&bytes(&ping)), Ok(Event::Nothing));
        assert_eq!(pair.flush(), []);
    }
    // Without an answer the target would have closed it: commands still go.
    assert!(matches!(pair.read(0, 512)[..], [Action::StartCommand(_)]));
}

#[test]
fn a_long_answer_to_a_text_is_asked_for_piece_by_piece() {
    let mut pair = Pair::new(true);
    pair.ours.ask(b"SendTargets=All\0".to_vec());
    let mut whole = Vec::new();
    let mut pieces = 0;
    loop {
        let actions = pair.flush();
        let [Action::Send(ref answer)] = actions[..] else { panic!("{actions:?}") };
        pieces += 1;
        let answer = bytes(answer);
        let Event::Text(part, end) = pair.ours.handle_message(&answer).unwrap() else { panic!() };
        whole.extend_from_slice(part);
        if end == TextEnd::Whole {
            break;
        }
    }
    let text = String::from_utf8(whole).unwrap();
    assert_eq!(text.matches("TargetName=").count(), 200);
    assert_eq!(pieces, text.len().div_ceil(8192));
    pair.ours.log_out();
    let actions = pair.flush();
    let Action::Send(ref answer) = actions[0] else { panic!("{actions:?}") };
    assert_eq!(pair.ours.handle_message(&bytes(answer)), Ok(Event::LoggedOut(LogoutResult::Closed)));
}

#[test]
fn a_rejected_command_and_a_logout_that_is_wanted_are_told() {
    let mut pair = Pair::new(true);
    let actions = pair.read(0, 512);
    let [Action::Send(ref reject)] = actions[..] else { panic!("{actions:?}") };
    assert_eq!(
        pair.ours.handle_message(&bytes(reject)),
        Ok(Event::Rejected(RejectReason::ProtocolError, Opcode::ScsiCommand))
    );
    pair.theirs.ask_for_logout(pair.now, 3);
    let Some(Action::Send(asked)) = pair.theirs.poll_action() else { panic!() };
    assert_eq!(pair.ours.handle_message(&bytes(&asked)), Ok(Event::LogoutWanted(3)));
}

/// A message of a target that says what no target should.
fn hear(session: &mut Session, pdu: Pdu, data: &[u8]) -> Result<(), SessionFault> {
    session.handle_message(&bytes(&Outgoing::new(pdu, data.to_vec()))).map(|_| ())
}

fn response(itt: u32) -> ScsiResponse {
    ScsiResponse {
        response: ServiceResponse::Completed,
        status: 0,
        itt: Itt(itt),
        numbers: NUMBERS,
        residual: Residual::None,
    }
}

fn with_a_read() -> Session {
    let mut session = Session::new(NUMBERS, 8);
    let data = Direction::ToHost(512);
    session.start_command(&Command { tag: 3, lun: Lun::default(), cdb: [0; 16], data });
    session
}

#[test]
fn what_a_target_must_not_say_is_a_fault() {
    let fault = |pdu, data: &[u8]| hear(&mut with_a_read(), pdu, data).unwrap_err();
    for itt in [0, 8, u32::MAX, CONTROL_TAG.0] {
        assert_eq!(fault(Pdu::ScsiResponse(response(itt)), &[]), SessionFault::NoTask(itt));
    }
    let mut twice = with_a_read();
    assert_eq!(hear(&mut twice, Pdu::ScsiResponse(response(3)), &[]), Ok(()));
    let again = hear(&mut twice, Pdu::ScsiResponse(response(3)), &[]);
    assert_eq!(again, Err(SessionFault::NoTask(3)));
    let short = ScsiResponse { residual: Residual::Underflow(513), ..response(3) };
    assert_eq!(fault(Pdu::ScsiResponse(short), &[]), SessionFault::Residual(513, 512));
    assert_eq!(fault(Pdu::ScsiResponse(response(3)), &[0, 9, 0x70]), SessionFault::Sense(9, 3));
    let numbers = Numbers { exp_cmd_sn: Sn(12), ..NUMBERS };
    assert_eq!(
        fault(Pdu::ScsiResponse(ScsiResponse { numbers, ..response(3) }), &[]),
        SessionFault::ExpCmdSn { acknowledged: 12, next: 11 }
    );
    let pong = NopIn { lun: Lun::default(), itt: Itt(1), ttt: Ttt::NONE, numbers: NUMBERS };
    assert_eq!(fault(Pdu::NopIn(pong), &[]), SessionFault::Unexpected(Opcode::NopIn));
    let text = TextResponse {
        progress: Progress::Final,
        lun: Lun::default(),
        itt: CONTROL_TAG,
        ttt: Ttt::NONE,
        numbers: NUMBERS,
    };
    assert_eq!(fault(Pdu::TextResponse(text), &[]), SessionFault::Unexpected(Opcode::TextResponse));
    let task = TaskResponse { code: TaskResponseCode::Complete, itt: Itt(3), numbers: NUMBERS };
    let opcode = Opcode::TaskManagementResponse;
    assert_eq!(fault(Pdu::TaskResponse(task), &[]), SessionFault::Unexpected(opcode));
    let reject = Reject { reason: RejectReason::InvalidField, numbers: NUMBERS, data_sn: 0 };
    assert_eq!(fault(Pdu::Reject(reject), &[0; 47]), SessionFault::Unexpected(Opcode::Reject));
    let mut asking = Session::new(NUMBERS, 1);
    asking.ask(Vec::new());
    let stuck = TextResponse { progress: Progress::Continued, ..text };
    let result = hear(&mut asking, Pdu::TextResponse(stuck), &[]);
    assert_eq!(result, Err(SessionFault::Unexpected(Opcode::TextResponse)));
    let mut pinged = Session::new(NUMBERS, 1);
    let ping = NopIn { itt: Itt::NONE, ttt: Ttt(1), ..pong };
    let result = std::iter::repeat_with(|| hear(&mut pinged, Pdu::NopIn(ping), &[])).find(Result::is_err);
    assert_eq!(result, Some(Err(SessionFault::Pings)));
}

#[test]
fn numbers_go_forward_only_and_pings_take_none() {
    let mut session = with_a_read();
    let event = AsyncEvent::TasksTerminated;
    let told = |stat_sn, exp, max| {
        let numbers = Numbers { stat_sn: Sn(stat_sn), exp_cmd_sn: Sn(exp), max_cmd_sn: Sn(max) };
        Pdu::AsyncMessage(AsyncMessage { event, vendor_code: 0, lun: Lun::default(), numbers })
    };
    let seen = |session: &Session| (session.exp_stat_sn.0, session.exp_cmd_sn.0, session.max_cmd_sn.0);
    hear(&mut session, told(101, 11, 20), &[]).unwrap();
    assert_eq!(seen(&session), (102, 11, 20));
    hear(&mut session, told(100, 10, 15), &[]).unwrap();
    assert_eq!(seen(&session), (102, 11, 20), "an older one changes nothing");
    hear(&mut session, told(102, 11, 9), &[]).unwrap();
    assert_eq!(seen(&session), (103, 11, 20), "a window that contradicts itself is none");
    let numbers = Numbers { stat_sn: Sn(103), exp_cmd_sn: Sn(11), max_cmd_sn: Sn(21) };
    let ping = NopIn { lun: Lun::default(), itt: Itt::NONE, ttt: Ttt(1), numbers };
    hear(&mut session, Pdu::NopIn(ping), &[]).unwrap();
    assert_eq!(seen(&session), (103, 11, 21));
}

proptest! {
    /// Whatever a target sends: every command ends once at most, and what we say is a PDU.
    #[test]
    fn whatever_a_target_sends_the_session_keeps_count(
        steps in prop::collection::vec((any::<[u8; 48]>(), 0_usize..12, 0_u32..10, prop::collection::vec(any::<u8>(), 0..24)), 1..80),
    ) {
        let mut session = Session::new(NUMBERS, 8);
        let mut under_way = [false; 8];
        for (raw, kind, tag, data) in steps {
            if session.has_room() && let Some(slot) = under_way.get_mut(tag as usize).filter(|slot| !**slot) {
                *slot = true;
                session.start_command(&Command { tag, lun: Lun::default(), cdb: [0; 16], data: Direction::ToHost(512) });
            }
            let mut bhs = Bhs::read_from_bytes(&raw).unwrap();
            bhs.opcode = [0x21, 0x21, 0x21, 0x20, 0x24, 0x26, 0x32, 0x3f, 0x22, 0x23, 0x31, 0x25][kind];
            bhs.total_ahs_length = 0;
            if kind != 0 {
                // Often enough what is possible.
                bhs.itt.set(if kind == 3 { u32::MAX } else { tag });
                bhs.flags = 0x80;
                bhs.words[2].set(session.cmd_sn.0);
            }
            bhs.set_data_len(data.len());
            let message = Message { control: Control::default(), bhs: &bhs, ahs: &[], data: &data };
            let mut bytes = vec![0; message.emitted_len()];
            message.emit(&mut bytes);
            match session.handle_message(&bytes) {
                Ok(Event::Done(done)) => {
                    let slot = &mut under_way[done.tag as usize];
                    prop_assert!(*slot, "a command that was under way");
                    *slot = false;
                    prop_assert!(done.sense.len() <= data.len());
                }
                Ok(_) => {}
                Err(_) => return Ok(()),
            }
            while let Some(outgoing) = session.poll_transmit() {
                let bytes = self::bytes(&outgoing);
                let message = Message::parse(&bytes).unwrap();
                prop_assert_eq!(Pdu::parse(message.bhs), Ok(outgoing.pdu));
            }
        }
    }
}
