use std::time::Duration;

use proptest::prelude::*;

use super::super::chap::{CHALLENGE_LEN, ChapError, ChapPolicy, Credentials};
use super::super::directory::{Initiators, Target};
use super::super::recorded::{DISCOVERY, NORMAL, Recorded, recorded};
use super::super::sessions::Sessions;
use super::super::wire::bhs::Order;
use super::super::wire::iser::Control;
use super::*;

const ISID: Isid = Isid([0, 2, 0x3d, 0, 0, 1]);
const WINDOW: u16 = 64;

fn name(text: &str) -> IscsiName {
    IscsiName::parse(text).unwrap()
}

fn chap(mutual: bool) -> ChapPolicy {
    let credentials =
        |name: &str, secret: &str| Credentials { name: name.to_owned(), secret: secret.as_bytes().to_vec() };
    ChapPolicy::new(credentials("host", "secret"), mutual.then(|| credentials("target", "other"))).unwrap()
}

fn directory() -> Directory {
    let target = |text: &str, initiators, chap| Target { name: name(text), alias: None, initiators, chap };
    let friend = Initiators::Named(vec![name("iqn.2026-11.test:friend")]);
    Directory {
        targets: vec![
            target("iqn.2026-11.test:t0", Initiators::Any, None),
            target("iqn.2026-11.test:chap", Initiators::Any, Some(chap(true))),
            target("iqn.2026-11.test:friends", friend, None),
        ],
        portals: vec!["10.77.0.1:3260".parse().unwrap()],
        portal_group_tag: 1,
        discovery_chap: None,
    }
}

/// A host that logs in, and the target's side with its sessions.
struct Pair {
    login: Login,
    sessions: Sessions,
    now: Instant,
    tsih: Tsih,
    cmd_sn: Sn,
    /// Commands that the session may have.
    window: u16,
    /// Numbers of the last response.
    last: Option<Numbers>,
}

/// What became of a request.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    /// Went or stayed, and the text.
    Text(Step, String),
    /// The same, and the login is over.
    Established(Step, String, Box<Established>),
    Refused(LoginStatus, LoginFault),
    Closed(LoginClose),
}

impl Pair {
    #[expect(clippy::disallowed_methods, reason = "where virtual time starts does not matter")]
    fn with(directory: Directory) -> Self {
        let now = Instant::now();
        let login = Login::new(LoginParams {
            directory: Arc::new(directory),
            offers: Offers::default(),
            seed: Seed { identifier: 1, challenge: [9; CHALLENGE_LEN] },
            stat_sn: Sn(100),
            deadline: now + Duration::from_secs(15),
        });
        Self {
            login,
            sessions: Sessions::new(8),
            now,
            tsih: Tsih(0),
            cmd_sn: Sn(1),
            window: WINDOW,
            last: None,
        }
    }

    fn new() -> Self {
        Self::with(directory())
    }

    fn request(&self, step: Step) -> LoginRequest {
        let order = Order { immediate: true, cmd_sn: self.cmd_sn, exp_stat_sn: Sn(0) };
        LoginRequest {
            step,
            version_max: 0,
            version_min: 0,
            isid: ISID,
            tsih: self.tsih,
            itt: Itt(7),
            cid: 0,
            order,
        }
    }

    fn send(&mut self, request: &LoginRequest, text: &str) -> Said {
        let mut bhs = request.emit();
        let data = text.replace(' ', "\0");
        bhs.set_data_len(data.len());
        let message = Message { control: Control::default(), bhs: &bhs, ahs: &[], data: data.as_bytes() };
        let mut bytes = vec![0; message.emitted_len()];
        message.emit(&mut bytes);
        self.receive(&bytes)
    }

    fn say(&mut self, step: Step, text: &str) -> Said {
        let request = self.request(step);
        self.send(&request, text)
    }

    fn receive(&mut self, bytes: &[u8]) -> Said {
        self.login.handle_message(self.now, bytes);
        self.poll()
    }

    fn poll(&mut self) -> Said {
        let mut sent = None;
        let mut end = None;
        while let Some(action) = self.login.poll_action() {
            assert!(end.is_none(), "{action:?} after the end");
            match action {
                LoginAction::Send(Outgoing { pdu: Pdu::LoginResponse(response), data, invalidate: None }) => {
                    assert!(data.len() <= 8192, "what a host receives before it has said more");
                    let text = String::from_utf8(data).unwrap().replace('\0', " ");
                    self.last = Some(response.numbers);
                    assert!(sent.replace((response, text)).is_none(), "one response for a request");
                }
                LoginAction::Send(other) => panic!("{other:?}"),
                LoginAction::Admit(request) => {
                    let place = self.sessions.admit(&request).map(|place| (place, self.window));
                    self.login.handle_admission(place);
                }
                LoginAction::Established(established) => end = Some(Ok(established)),
                LoginAction::Close(why) => end = Some(Err(why)),
            }
        }
        match (sent, end) {
            (Some((response, text)), None) => {
                assert_eq!(response.status, LoginStatus::Success);
                Said::Text(response.step, text)
            }
            (Some((response, text)), Some(Ok(established))) => {
                assert_eq!(response.status, LoginStatus::Success);
                assert_eq!(response.tsih, established.tsih);
                assert_eq!(response.numbers.stat_sn.next(), established.stat_sn);
                Said::Established(response.step, text, established)
            }
            (Some((response, _)), Some(Err(LoginClose::Refused(fault)))) => {
                assert_eq!(response.status, fault.status());
                Said::Refused(response.status, fault)
            }
            (None, Some(Err(why))) => Said::Closed(why),
            other => panic!("{other:?}"),
        }
    }

    fn established(&mut self, step: Step, text: &str) -> Box<Established> {
        match self.say(step, text) {
            Said::Established(_, _, established) => established,
            other => panic!("{other:?}"),
        }
    }
}

const OPERATIONAL: Step = Step::Transit(Stage::Operational, Stage::FullFeature);
const SECURITY: Step = Step::Transit(Stage::Security, Stage::Operational);
const WHO: &str = "InitiatorName=iqn.2026-11.test:ini TargetName=iqn.2026-11.test:t0 ";
const WHO_CHAP: &str = "InitiatorName=iqn.2026-11.test:ini TargetName=iqn.2026-11.test:chap ";

fn refused(said: Said) -> LoginStatus {
    match said {
        Said::Refused(status, _) => status,
        other => panic!("{other:?}"),
    }
}

/// The text and header of a recorded response.
fn response(bytes: &[u8]) -> (LoginResponse, Vec<String>) {
    let message = Message::parse(bytes).unwrap();
    let Ok(Pdu::LoginResponse(response)) = Pdu::parse(message.bhs) else { panic!("{message:?}") };
    let mut pairs: Vec<String> = text::pairs(message.data)
        .unwrap()
        .iter()
        .map(|pair| format!("{}={}", pair.key, pair.value))
        .filter(|pair| !pair.starts_with("TargetAlias="))
        .collect();
    pairs.sort_unstable();
    (response, pairs)
}

#[test]
fn recorded_logins_of_a_linux_host_come_to_what_they_came_to_with_the_kernels_target() {
    for qpn in [DISCOVERY, NORMAL] {
        let records = recorded(qpn);
        let [Recorded::Host(request), Recorded::Target(theirs, None), ..] = &records[..] else { panic!() };
        let mut pair = Pair::new();
        let (theirs, mut agreed) = response(theirs);
        let Said::Established(step, text, established) = pair.receive(request) else { panic!() };
        assert_eq!(step, theirs.step);
        assert_eq!(established.isid, theirs.isid);
        assert_eq!(established.cmd_sn, theirs.numbers.exp_cmd_sn);
        assert_eq!(established.initiator, name("iqn.2026-11.test:ini"));
        // What the kernel's target declares of its TCP segments means nothing over RDMA.
        agreed.retain(|pair| !pair.starts_with("MaxRecvDataSegmentLength="));
        // Yes is what these two come to whatever is answered, and the kernel's target says nothing.
        let given = |pair: &&str| !["DataPDUInOrder=Yes", "DataSequenceInOrder=Yes"].contains(pair);
        let mut ours: Vec<&str> = text.trim_end().split(' ').filter(given).collect();
        ours.sort_unstable();
        assert_eq!(ours, agreed);
        if qpn == NORMAL {
            assert_eq!(established.target, Some(name("iqn.2026-11.test:t0")));
            let expected = Negotiated {
                initiator_recv: 262_144,
                time_to_retain: 0,
                rdma_extensions: true,
                ..Negotiated::default()
            };
            assert_eq!(established.negotiated, expected);
        } else {
            assert_eq!(established.target, None);
            assert_eq!(established.negotiated.host_recv, 8192);
        }
    }
}

#[test]
fn a_host_may_go_through_both_stages_in_steps() {
    let mut pair = Pair::new();
    let said = pair.say(Step::Stay(Stage::Security), &format!("{WHO}AuthMethod=CHAP,None "));
    let stay = Step::Stay(Stage::Security);
    assert_eq!(said, Said::Text(stay, "TargetPortalGroupTag=1 AuthMethod=None ".to_owned()));
    assert_eq!(pair.say(SECURITY, ""), Said::Text(SECURITY, String::new()));
    let said = pair.say(Step::Stay(Stage::Operational), "RDMAExtensions=Yes ");
    assert_eq!(said, Said::Text(Step::Stay(Stage::Operational), "RDMAExtensions=Yes ".to_owned()));
    let established = pair.established(OPERATIONAL, "");
    assert_eq!((established.stat_sn, established.cmd_sn, established.window), (Sn(104), Sn(1), WINDOW));
    assert_eq!(pair.login.poll_timeout(), None);
}

#[test]
fn the_last_response_opens_the_window() {
    for (window, promised) in [(0, 1), (64, 64), (u16::MAX, WINDOW_MAX)] {
        let mut pair = Pair::new();
        pair.window = window;
        let established = pair.established(OPERATIONAL, &format!("{WHO}RDMAExtensions=Yes "));
        assert_eq!(established.window, promised);
        let max = pair.last.unwrap().max_cmd_sn;
        assert_eq!(max, established.cmd_sn.plus(u32::from(promised) - 1));
    }
}

#[test]
fn a_text_may_come_in_pieces() {
    let mut pair = Pair::new();
    let more = Step::Continued(Stage::Operational);
    let stay = || Said::Text(Step::Stay(Stage::Operational), String::new());
    assert_eq!(pair.say(more, "InitiatorName=iqn.2026-11.test:i"), stay());
    assert_eq!(pair.say(more, "ni TargetName=iqn.2026-11.test:t0 RDMAExten"), stay());
    let established = pair.established(OPERATIONAL, "sions=Yes ");
    assert_eq!(established.initiator, name("iqn.2026-11.test:ini"));
}

#[test]
fn a_target_with_chap_lets_in_who_proves_itself_and_proves_itself_too() {
    use md5::{Digest, Md5};
    let response = |identifier: u8, secret: &str, challenge: &[u8]| {
        let digest = Md5::new().chain_update([identifier]).chain_update(secret).chain_update(challenge);
        text::to_hexadecimal(&digest.finalize())
    };
    let begun = || {
        let mut pair = Pair::new();
        let said = pair.say(SECURITY, &format!("{WHO_CHAP}AuthMethod=CHAP,None "));
        let stay = Step::Stay(Stage::Security);
        assert_eq!(said, Said::Text(stay, "TargetPortalGroupTag=1 AuthMethod=CHAP ".to_owned()));
        let Said::Text(step, challenge) = pair.say(stay, "CHAP_A=5 ") else { panic!() };
        assert_eq!(step, stay);
        assert_eq!(challenge, format!("CHAP_A=5 CHAP_I=1 CHAP_C=0x{} ", "09".repeat(CHALLENGE_LEN)));
        pair
    };
    let right = response(1, "secret", &[9; CHALLENGE_LEN]);
    let mut pair = begun();
    let said = pair.say(SECURITY, &format!("CHAP_N=host CHAP_R={right} CHAP_I=5 CHAP_C=0xabcd "));
    let proof = response(5, "other", &[0xab, 0xcd]);
    assert_eq!(said, Said::Text(SECURITY, format!("CHAP_N=target CHAP_R={proof} ")));
    pair.established(OPERATIONAL, "RDMAExtensions=Yes ");

    let wrong = response(1, "guess", &[9; CHALLENGE_LEN]);
    let said = begun().say(SECURITY, &format!("CHAP_N=host CHAP_R={wrong} "));
    assert_eq!(refused(said), LoginStatus::AuthenticationFailure);
    let ours = "09".repeat(CHALLENGE_LEN);
    let said = begun().say(SECURITY, &format!("CHAP_N=host CHAP_R={right} CHAP_I=1 CHAP_C=0x{ours} "));
    assert_eq!(said, Said::Refused(LoginStatus::AuthenticationFailure, ChapError::Reflected.into()));
    // Wanting to go on is no proof.
    assert_eq!(begun().say(SECURITY, ""), Said::Text(Step::Stay(Stage::Security), String::new()));
    let said = begun().say(Step::Transit(Stage::Security, Stage::FullFeature), "");
    assert_eq!(said, Said::Text(Step::Stay(Stage::Security), String::new()));
    assert_eq!(begun().say(OPERATIONAL, "RDMAExtensions=Yes "), {
        Said::Refused(LoginStatus::InitiatorError, LoginFault::WrongStage)
    });
}

#[test]
fn no_way_leads_around_the_authentication_that_a_target_demands() {
    for (step, text) in [
        (OPERATIONAL, "RDMAExtensions=Yes "),
        (SECURITY, "AuthMethod=None "),
        (SECURITY, "AuthMethod=KRB5 "),
        (SECURITY, "AuthMethod=CHAP AuthMethod=None "),
        (SECURITY, "AuthMethod=CHAP CHAP_A=5 "),
        (SECURITY, "CHAP_A=5 "),
        (SECURITY, "AuthMethod=CHAP CHAP_X=5 "),
    ] {
        let said = Pair::new().say(step, &format!("{WHO_CHAP}{text}"));
        assert_eq!(refused(said), LoginStatus::AuthenticationFailure, "{text}");
    }
    // Without a method: nothing goes on.
    let mut pair = Pair::new();
    let said = pair.say(SECURITY, WHO_CHAP);
    assert_eq!(said, Said::Text(Step::Stay(Stage::Security), "TargetPortalGroupTag=1 ".to_owned()));
    // A second try at the method.
    pair.say(SECURITY, "AuthMethod=CHAP ");
    assert_eq!(refused(pair.say(SECURITY, "AuthMethod=None ")), LoginStatus::AuthenticationFailure);
    // A target that demands nothing takes no CHAP, for it has no secret.
    let said = Pair::new().say(SECURITY, &format!("{WHO}AuthMethod=CHAP "));
    assert_eq!(refused(said), LoginStatus::AuthenticationFailure);
    // Discovery has a demand of its own.
    let guarded = Directory { discovery_chap: Some(chap(false)), ..directory() };
    let said =
        Pair::with(guarded).say(OPERATIONAL, "InitiatorName=iqn.2026-11.test:ini SessionType=Discovery ");
    assert_eq!(said, Said::Refused(LoginStatus::AuthenticationFailure, LoginFault::SecuritySkipped));
}

#[test]
fn each_refusal_has_its_status() {
    let first = |text: &str| refused(Pair::new().say(OPERATIONAL, text));
    let t0 = "TargetName=iqn.2026-11.test:t0 ";
    let ini = "InitiatorName=iqn.2026-11.test:ini ";
    assert_eq!(first(t0), LoginStatus::MissingParameter);
    assert_eq!(first(ini), LoginStatus::MissingParameter);
    assert_eq!(first(&format!("{ini}TargetName=iqn.2026-11.test:t9 ")), LoginStatus::NotFound);
    assert_eq!(
        first(&format!("{ini}TargetName=iqn.2026-11.test:friends ")),
        LoginStatus::AuthorizationFailure
    );
    assert_eq!(first(&format!("{ini}{t0}SessionType=Other ")), LoginStatus::SessionTypeNotSupported);
    assert_eq!(first(&format!("InitiatorName=nobody {t0}")), LoginStatus::InitiatorError);
    assert_eq!(first(&format!("{ini}{t0}")), LoginStatus::InitiatorError, "no RDMAExtensions");
    assert_eq!(first(&format!("{ini}{t0}RDMAExtensions=No ")), LoginStatus::InitiatorError);
    assert_eq!(first(&format!("{ini}{t0}iSERHelloRequired=Yes ")), LoginStatus::InitiatorError);
    assert_eq!(first(&format!("{ini}{ini}{t0}")), LoginStatus::InitiatorError, "twice");
    assert_eq!(first("InitiatorName"), LoginStatus::InitiatorError, "no text");
    let friend =
        "InitiatorName=iqn.2026-11.test:friend TargetName=iqn.2026-11.test:friends RDMAExtensions=Yes ";
    Pair::new().established(OPERATIONAL, friend);

    let mut pair = Pair::new();
    let request = LoginRequest { version_min: 1, version_max: 1, ..pair.request(OPERATIONAL) };
    assert_eq!(refused(pair.send(&request, WHO)), LoginStatus::UnsupportedVersion);
    let mut pair = Pair::new();
    pair.tsih = Tsih(3);
    let text = format!("{WHO}RDMAExtensions=Yes ");
    assert_eq!(refused(pair.say(OPERATIONAL, &text)), LoginStatus::SessionDoesNotExist);
}

#[test]
fn a_header_that_changes_on_the_way_ends_the_login() {
    let stay = Step::Stay(Stage::Operational);
    let begun = || {
        let mut pair = Pair::new();
        assert!(matches!(pair.say(stay, WHO), Said::Text(..)));
        pair
    };
    let mut pair = begun();
    let same = pair.request(stay);
    for request in [
        LoginRequest { isid: Isid([1; 6]), ..same },
        LoginRequest { tsih: Tsih(1), ..same },
        LoginRequest { itt: Itt(8), ..same },
        LoginRequest { cid: 1, ..same },
        LoginRequest { order: Order { cmd_sn: Sn(2), ..same.order }, ..same },
    ] {
        let said = begun().send(&request, "");
        assert_eq!(said, Said::Refused(LoginStatus::InitiatorError, LoginFault::ChangedHeader));
    }
    let said = begun().say(Step::Stay(Stage::Security), "");
    assert_eq!(said, Said::Refused(LoginStatus::InitiatorError, LoginFault::WrongStage));
    let said = pair.say(stay, "TargetName=iqn.2026-11.test:friends ");
    assert_eq!(said, Said::Refused(LoginStatus::InitiatorError, LoginFault::LateIdentity));
}

#[test]
fn what_is_no_login_is_refused_and_what_is_no_pdu_closes() {
    let records = recorded(NORMAL);
    let command = records.iter().filter_map(|record| match record {
        Recorded::Host(bytes) => Some(bytes.clone()),
        _ => None,
    });
    let command = command.clone().nth(1).unwrap();
    let said = Pair::new().receive(&command);
    let fault = LoginFault::NoLogin(Opcode::ScsiCommand);
    assert_eq!(said, Said::Refused(LoginStatus::InvalidDuringLogin, fault));
    assert!(matches!(Pair::new().receive(&command[..40]), Said::Closed(LoginClose::Malformed(_))));
    assert!(matches!(Pair::new().receive(&[]), Said::Closed(LoginClose::Malformed(_))));
    let mut pair = Pair::new();
    let mut header = pair.request(OPERATIONAL).emit();
    header.flags = 0xc7;
    let message = Message { control: Control::default(), bhs: &header, ahs: &[], data: &[] };
    let mut bytes = vec![0; message.emitted_len()];
    message.emit(&mut bytes);
    assert_eq!(refused(pair.receive(&bytes)), LoginStatus::InitiatorError);
}

#[test]
fn a_login_without_end_is_ended() {
    let stay = Step::Stay(Stage::Operational);
    let mut pair = Pair::new();
    pair.say(stay, WHO);
    for _ in 1..REQUESTS_MAX {
        assert!(matches!(pair.say(stay, ""), Said::Text(..)));
    }
    assert_eq!(pair.say(stay, ""), Said::Refused(LoginStatus::InitiatorError, LoginFault::TooManyRequests));

    let mut pair = Pair::new();
    let more = Step::Continued(Stage::Operational);
    let mut sent = 0;
    let end = loop {
        match pair.say(more, &"a".repeat(1000)) {
            Said::Text(..) => sent += 1000,
            end => break end,
        }
    };
    assert_eq!(refused(end), LoginStatus::InitiatorError);
    assert_eq!(sent, 8000);

    let thousands: String = (0..1500).map(|n| format!("K{n}= ")).collect();
    let said = Pair::new().say(OPERATIONAL, &thousands[..8190]);
    assert_eq!(refused(said), LoginStatus::InitiatorError);

    let mut pair = Pair::new();
    pair.say(stay, WHO);
    assert_eq!(pair.login.poll_timeout(), Some(pair.now + Duration::from_secs(15)));
    pair.login.handle_timeout(pair.now + Duration::from_secs(14));
    assert_eq!(pair.login.poll_action(), None);
    pair.now += Duration::from_secs(15);
    pair.login.handle_timeout(pair.now);
    assert_eq!(pair.poll(), Said::Closed(LoginClose::Timeout));
    assert_eq!(pair.login.poll_timeout(), None);
    pair.login.handle_message(pair.now, &[]);
    assert_eq!(pair.login.poll_action(), None, "it is over");
}

#[test]
fn a_request_before_the_last_was_answered_ends_the_login() {
    let mut pair = Pair::new();
    let request = pair.request(OPERATIONAL);
    let mut bhs = request.emit();
    let data = format!("{WHO}RDMAExtensions=Yes ").replace(' ', "\0");
    bhs.set_data_len(data.len());
    let message = Message { control: Control::default(), bhs: &bhs, ahs: &[], data: data.as_bytes() };
    let mut bytes = vec![0; message.emitted_len()];
    message.emit(&mut bytes);
    pair.login.handle_message(pair.now, &bytes);
    assert!(matches!(pair.login.poll_action(), Some(LoginAction::Admit(_))));
    assert_eq!(pair.receive(&bytes), Said::Refused(LoginStatus::InitiatorError, LoginFault::OutOfTurn));
    // The place comes too late.
    pair.login.handle_admission(Err(LoginStatus::OutOfResources));
    assert_eq!(pair.login.poll_action(), None);
}

#[test]
fn a_target_without_immediate_data_says_so_before_the_login_ends() {
    let mut pair = Pair::new();
    pair.login.params.offers.immediate_data = false;
    let said = pair.say(OPERATIONAL, &format!("{WHO}RDMAExtensions=Yes "));
    let asked = "TargetPortalGroupTag=1 RDMAExtensions=Yes ImmediateData=No ";
    assert_eq!(said, Said::Text(Step::Stay(Stage::Operational), asked.to_owned()));
    let established = pair.established(OPERATIONAL, "ImmediateData=No ");
    assert!(!established.negotiated.immediate_data);
}

proptest! {
    #[test]
    fn whatever_a_host_says_the_login_goes_on_or_ends_with_an_answer(
        steps in prop::collection::vec((0_u8..=0xff, "((InitiatorName|TargetName|AuthMethod|CHAP_A|CHAP_R|SessionType|\
            RDMAExtensions|MaxBurstLength|X)=(iqn.2026-11.test:t0|CHAP|None|5|0x00|Discovery|Yes|512) ){0,5}"), 1..8),
    ) {
        let mut pair = Pair::new();
        for (flags, text) in steps {
            let mut bhs = pair.request(OPERATIONAL).emit();
            bhs.flags = flags & 0xcf;
            let data = text.replace(' ', "\0");
            bhs.set_data_len(data.len());
            let message = Message { control: Control::default(), bhs: &bhs, ahs: &[], data: data.as_bytes() };
            let mut bytes = vec![0; message.emitted_len()];
            message.emit(&mut bytes);
            if !matches!(pair.receive(&bytes), Said::Text(..)) {
                break;
            }
        }
    }
}
