//! The bodies for iSCSI and iSER: one message, a login, a session.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use intact::iscsi::chap::{CHALLENGE_LEN, ChapPolicy, Credentials, Seed};
use intact::iscsi::directory::{Directory, Initiators, Target};
use intact::iscsi::keys::{Negotiated, Offers};
use intact::iscsi::login::{Established, Login, LoginAction, LoginParams};
use intact::iscsi::name::IscsiName;
use intact::iscsi::outgoing::Outgoing;
use intact::iscsi::session::{
    Action, Done, IMMEDIATE_MAX, Invalidation, Patience, Session, SessionParams, Transfer,
};
use intact::iscsi::sessions::Sessions;
use intact::iscsi::wire::ahs;
use intact::iscsi::wire::bhs::{BHS_LEN, Bhs, Order};
use intact::iscsi::wire::iser::{Control, ISER_HEADER_LEN, IserHeader};
use intact::iscsi::wire::login::{Isid, LoginRequest, Stage, Step, Tsih};
use intact::iscsi::wire::message::Message;
use intact::iscsi::wire::number::{Itt, Sn};
use intact::iscsi::wire::pdu::Pdu;
use intact::iscsi::wire::private_data::Abilities;
use intact::iscsi::wire::task::TaskResponseCode;
use rwctx::remote::{RemoteAddr, Rkey};
use zerocopy::FromBytes;

/// What one SEND brings, of either side.
///
/// # Panics
/// When what parses is not the same after it was emitted and parsed again.
pub fn pdu(input: &[u8]) {
    let abilities = Abilities::parse(input);
    assert_eq!(Abilities::parse(&[abilities.emit().flags, 0, 0, 0]), abilities);
    if let Some(header) = input.first_chunk::<ISER_HEADER_LEN>() {
        let header = IserHeader::parse(header);
        assert_eq!(IserHeader::parse(&header.emit()), header);
    }
    let Ok(message) = Message::parse(input) else { return };
    let mut again = vec![0xff; message.emitted_len()];
    message.emit(&mut again);
    assert_eq!(Message::parse(&again), Ok(message));
    if let Ok(segments) = ahs::parse(message.ahs)
        && let Some(bytes) = ahs::emit(&segments)
    {
        assert_eq!(ahs::parse(&bytes), Ok(segments));
    }
    if let Ok(pdu) = Pdu::parse(message.bhs) {
        assert_eq!(Pdu::parse(&pdu.emit()), Ok(pdu));
    }
}

fn name(text: &str) -> IscsiName {
    IscsiName::parse(text).expect("names of ours are names")
}

/// A target for everybody, and one that wants CHAP.
fn directory() -> Arc<Directory> {
    let credentials =
        |name: &str| Credentials { name: name.to_owned(), secret: format!("{name}'s secret").into_bytes() };
    let chap = ChapPolicy::new(credentials("host"), Some(credentials("target")));
    let target = |text, chap| Target { name: name(text), alias: None, initiators: Initiators::Any, chap };
    let chap = chap.expect("secrets differ");
    Arc::new(Directory {
        targets: vec![target("iqn.2026-11.test:t0", None), target("iqn.2026-11.test:chap", Some(chap))],
        portals: vec![([127, 0, 0, 1], 3260).into()],
        portal_group_tag: 1,
        discovery_chap: None,
    })
}

#[expect(clippy::disallowed_methods, reason = "where virtual time starts does not matter")]
fn start() -> Instant {
    Instant::now()
}

/// A message with these segments.
fn message(bhs: &mut Bhs, control: Control, data: &[u8]) -> Vec<u8> {
    bhs.set_data_len(data.len());
    bhs.total_ahs_length = 0;
    let message = Message { control, bhs, ahs: &[], data };
    let mut bytes = vec![0; message.emitted_len()];
    message.emit(&mut bytes);
    bytes
}

/// Checks that a PDU of the target is one.
fn check_sent(outgoing: &Outgoing, data_max: usize) {
    assert!(outgoing.data.len() <= data_max, "{outgoing:?}");
    let mut bytes = vec![0xff; outgoing.emitted_len()];
    outgoing.emit(&mut bytes);
    let message = Message::parse(&bytes).expect("what is sent is a message");
    assert_eq!(Pdu::parse(message.bhs), Ok(outgoing.pdu));
}

/// A login: requests, separated by 0xff, each a byte of flags and a text whose spaces are zero bytes.
///
/// # Panics
/// When a request is not answered, an answer is too long or no PDU, or a login goes on after its end.
pub fn login(input: &[u8]) {
    let now = start();
    let mut login = Login::new(LoginParams {
        directory: directory(),
        offers: Offers { immediate_data: input.len().is_multiple_of(2), ..Offers::default() },
        seed: Seed { identifier: 1, challenge: [9; CHALLENGE_LEN] },
        stat_sn: Sn(1),
        deadline: now + Duration::from_secs(15),
    });
    let mut sessions = Sessions::new(1);
    for record in input.split(|byte| *byte == 0xff) {
        let (flags, text) = record.split_first().unwrap_or((&0x87, &[]));
        let text: Vec<u8> = text.iter().map(|byte| if *byte == b' ' { 0 } else { *byte }).collect();
        let request = LoginRequest {
            step: Step::Stay(Stage::Operational),
            version_max: 0,
            version_min: 0,
            isid: Isid([0; 6]),
            tsih: Tsih(0),
            itt: Itt(1),
            cid: 0,
            order: Order { immediate: true, cmd_sn: Sn(1), exp_stat_sn: Sn(1) },
        };
        let mut bhs = request.emit();
        bhs.flags = *flags;
        login.handle_message(now, &message(&mut bhs, Control::default(), &text));
        let (mut sent, mut over) = (0, false);
        while let Some(action) = login.poll_action() {
            assert!(!over, "{action:?} after the end");
            match action {
                LoginAction::Send(outgoing) => {
                    check_sent(&outgoing, 8192);
                    sent += 1;
                }
                LoginAction::Admit(request) => {
                    login.handle_admission(sessions.admit(&request).map(|place| (place, 4)));
                }
                LoginAction::Established(established) => {
                    let negotiated = &established.negotiated;
                    assert!(negotiated.rdma_extensions || established.target.is_none());
                    assert_ne!(
                        established.target,
                        Some(name("iqn.2026-11.test:chap")),
                        "nobody knows its secret"
                    );
                    over = true;
                }
                LoginAction::Close(_) => over = true,
            }
        }
        assert_eq!(sent, 1, "each request is answered");
        assert_eq!(login.poll_timeout().is_none(), over);
        if over {
            return;
        }
    }
    login.handle_timeout(now + Duration::from_secs(15));
    assert!(matches!(login.poll_action(), Some(LoginAction::Close(_))), "a login without end is ended");
}

/// A session: steps of a byte each, some followed by a header and data.
///
/// # Panics
/// When more tasks run than there is room for, a transfer leaves what the host granted, an answer is no PDU, or the
/// session goes on after its end.
pub fn session(script: &[u8]) {
    const WINDOW: u16 = 4;
    let mut conversation = Conversation::new(WINDOW);
    let mut rest = script;
    while let Some((step, tail)) = rest.split_first() {
        rest = conversation.step(*step, tail);
        if !conversation.poll() {
            return;
        }
        assert!(conversation.tasks.len() <= usize::from(WINDOW + IMMEDIATE_MAX));
    }
}

struct Conversation {
    session: Session,
    now: Instant,
    cmd_sn: Sn,
    tasks: VecDeque<intact::iscsi::session::TaskId>,
    owed: VecDeque<intact::iscsi::session::ManageId>,
}

impl Conversation {
    fn new(window: u16) -> Self {
        let now = start();
        let established = Established {
            initiator: name("iqn.2026-11.test:host"),
            target: Some(name("iqn.2026-11.test:t0")),
            isid: Isid([0; 6]),
            tsih: Tsih(1),
            cid: 0,
            negotiated: Negotiated { rdma_extensions: true, ..Negotiated::default() },
            stat_sn: Sn(1),
            cmd_sn: Sn(1),
            window,
        };
        let patience = Patience { idle: Duration::from_secs(10), answer: Duration::from_secs(5) };
        let (directory, invalidation) = (directory(), Invalidation::Remote);
        let params = SessionParams { established, directory, invalidation, patience };
        let session = Session::new(now, params);
        Self { session, now, cmd_sn: Sn(1), tasks: VecDeque::new(), owed: VecDeque::new() }
    }

    /// Takes one step; returns what follows it in the script.
    fn step<'s>(&mut self, step: u8, tail: &'s [u8]) -> &'s [u8] {
        match step & 7 {
            5 => {
                if let Some(task) = self.tasks.pop_front() {
                    let (status, length) = (step >> 3, u64::from(step) << 8);
                    self.session.handle_done(
                        task,
                        Done::Status { status, sense: &tail[..tail.len().min(300)], length },
                    );
                }
            }
            6 => {
                self.now += Duration::from_secs(u64::from(step >> 3));
                self.session.handle_timeout(self.now);
            }
            7 => {
                if let Some(id) = self.owed.pop_front() {
                    self.session.handle_managed(id, TaskResponseCode::Complete);
                }
                self.session.handle_resources(u16::from(step >> 3));
            }
            _ => return self.receive(step, tail),
        }
        tail
    }

    fn receive<'s>(&mut self, step: u8, tail: &'s [u8]) -> &'s [u8] {
        let Ok((bhs, behind)) = Bhs::read_from_prefix(tail) else { return &[] };
        let mut bhs = bhs;
        // Numbers that are right now and then, so that something happens.
        if step & 8 == 0 {
            bhs.words[1].set(self.cmd_sn.0);
        }
        let (data, behind) = behind.split_at(behind.len().min(usize::from(step >> 5) * 8));
        let at = RemoteAddr { addr: 0x1000, rkey: Rkey(7) };
        let control = match step & 0x10 {
            0 => Control::default(),
            _ => Control { read: Some(at), write: Some(at) },
        };
        self.session.handle_message(self.now, &message(&mut bhs, control, data));
        behind
    }

    /// Does what must be done; whether the session goes on.
    fn poll(&mut self) -> bool {
        let mut open = true;
        while let Some(action) = self.session.poll_action() {
            assert!(open, "{action:?} after the end");
            match action {
                Action::Send(outgoing) => {
                    check_sent(&outgoing, 128);
                    let bhs = outgoing.pdu.emit();
                    self.cmd_sn = Sn(bhs.words[2].get());
                }
                Action::StartCommand(command) => {
                    self.cmd_sn = self.cmd_sn.next();
                    if let Transfer::FromHost { immediate, .. } = command.data {
                        assert!(immediate.start >= ISER_HEADER_LEN + BHS_LEN && immediate.len() <= 56);
                    }
                    self.tasks.push_back(command.task);
                }
                Action::AbortTask(task) => assert!(self.tasks.contains(&task)),
                Action::Manage(manage) => self.owed.push_back(manage.id),
                Action::Close(_) => open = false,
            }
        }
        open
    }
}
