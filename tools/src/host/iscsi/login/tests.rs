use std::sync::Arc;
use std::time::{Duration, Instant};

use intact::iscsi::chap::{CHALLENGE_LEN, ChapPolicy, Credentials};
use intact::iscsi::directory::{Directory, Initiators, Target};
use intact::iscsi::keys::Offers;
use intact::iscsi::login::{Login as TargetLogin, LoginAction, LoginParams as TargetParams};
use intact::iscsi::sessions::Sessions;

use super::*;

const WINDOW: u16 = 8;
const THEIRS: Seed = Seed { identifier: 1, challenge: [9; CHALLENGE_LEN] };

fn name(text: &str) -> IscsiName {
    IscsiName::parse(text).unwrap()
}

fn credentials(name: &str, secret: &str) -> Credentials {
    Credentials { name: name.to_owned(), secret: secret.as_bytes().to_vec() }
}

fn directory() -> Directory {
    let policy = ChapPolicy::new(credentials("host", "a secret"), Some(credentials("target", "another")));
    let target = |text: &str, initiators, chap| Target { name: name(text), alias: None, initiators, chap };
    let friends = Initiators::Named(vec![name("iqn.2026-11.test:friend")]);
    Directory {
        targets: vec![
            target("iqn.2026-11.test:t0", Initiators::Any, None),
            target("iqn.2026-11.test:chap", Initiators::Any, Some(policy.unwrap())),
            target("iqn.2026-11.test:friends", friends, None),
        ],
        portals: vec!["10.77.0.1:3260".parse().unwrap()],
        portal_group_tag: 1,
        discovery_chap: None,
    }
}

fn params(target: Option<&str>, account: Option<Account>) -> LoginParams {
    LoginParams {
        initiator: name("iqn.2026-11.test:host"),
        target: target.map(name),
        isid: Isid([0x80, 1, 2, 3, 0, 0]),
        account,
        seed: Seed { identifier: 7, challenge: [5; CHALLENGE_LEN] },
    }
}

fn account(secret: &str, target: Option<&str>) -> Account {
    Account { host: credentials("host", secret), target: target.map(|secret| credentials("target", secret)) }
}

fn bytes(outgoing: &Outgoing) -> Vec<u8> {
    let mut bytes = vec![0; outgoing.emitted_len()];
    outgoing.emit(&mut bytes);
    bytes
}

/// Logs in to the target's own side; returns what came of it, and how many requests it took.
#[expect(clippy::disallowed_methods, reason = "where virtual time starts does not matter")]
fn log_in_with(params: LoginParams, offers: Offers) -> (Result<Established, LoginFault>, u32) {
    let now = Instant::now();
    let mut target = TargetLogin::new(TargetParams {
        directory: Arc::new(directory()),
        offers,
        seed: THEIRS,
        stat_sn: Sn(0xffff_fffe),
        deadline: now + Duration::from_secs(15),
    });
    let mut sessions = Sessions::new(4);
    let mut login = Login::new(params);
    let mut requests = 0;
    loop {
        let request = login.poll_transmit().expect("until it is over there is something to say");
        requests += 1;
        assert_eq!(login.poll_transmit(), None, "once");
        target.handle_message(now, &bytes(&request));
        while let Some(action) = target.poll_action() {
            match action {
                LoginAction::Send(outgoing) => {
                    if let Err(fault) = login.handle_message(&bytes(&outgoing)) {
                        return (Err(fault), requests);
                    }
                }
                LoginAction::Admit(request) => {
                    target.handle_admission(sessions.admit(&request).map(|place| (place, WINDOW)));
                }
                LoginAction::Established(theirs) => {
                    let ours = *login.established().expect("both sides think so");
                    assert_eq!((ours.tsih, ours.numbers.exp_cmd_sn), (theirs.tsih, theirs.cmd_sn));
                    assert_eq!(ours.agreed.immediate_data, theirs.negotiated.immediate_data);
                    assert_eq!(ours.agreed.target_recv, theirs.negotiated.target_recv);
                    return (Ok(ours), requests);
                }
                LoginAction::Close(why) => panic!("{why}"),
            }
        }
    }
}

fn log_in(target: Option<&str>, account: Option<Account>) -> (Result<Established, LoginFault>, u32) {
    log_in_with(params(target, account), Offers::default())
}

#[test]
fn the_targets_side_lets_us_in_in_one_round_and_with_chap_in_four() {
    let (plain, requests) = log_in(Some("iqn.2026-11.test:t0"), None);
    let plain = plain.unwrap();
    assert_eq!(requests, 1);
    assert_eq!((plain.agreed.immediate_data, plain.agreed.first_burst), (true, 65536));
    assert_eq!(plain.numbers.max_cmd_sn, Sn(1).plus(u32::from(WINDOW) - 1));
    let (discovery, requests) = log_in(None, None);
    assert!(discovery.is_ok() && requests == 1);
    for mutual in [None, Some("another")] {
        let (chap, requests) = log_in(Some("iqn.2026-11.test:chap"), Some(account("a secret", mutual)));
        assert!(chap.is_ok() && requests == 4, "{chap:?} after {requests}");
    }
}

#[test]
fn a_target_without_immediate_data_says_so_and_is_understood() {
    let offers = Offers { immediate_data: false, ..Offers::default() };
    let (result, _) = log_in_with(params(Some("iqn.2026-11.test:t0"), None), offers);
    assert!(!result.unwrap().agreed.immediate_data);
}

#[test]
fn refusals_arrive_with_their_status() {
    let status = |target, account| match log_in(Some(target), account).0.unwrap_err() {
        LoginFault::Refused(status) => status,
        other => panic!("{other}"),
    };
    assert_eq!(status("iqn.2026-11.test:nope", None), LoginStatus::NotFound);
    assert_eq!(status("iqn.2026-11.test:friends", None), LoginStatus::AuthorizationFailure);
    assert_eq!(status("iqn.2026-11.test:chap", None), LoginStatus::AuthenticationFailure);
    let wrong = Some(account("not the secret", None));
    assert_eq!(status("iqn.2026-11.test:chap", wrong), LoginStatus::AuthenticationFailure);
    // Who has a secret does not go on without it.
    let unasked = Some(account("a secret", None));
    assert_eq!(status("iqn.2026-11.test:t0", unasked), LoginStatus::AuthenticationFailure);
}

#[test]
fn a_target_that_does_not_know_its_secret_is_left() {
    let (result, _) = log_in(Some("iqn.2026-11.test:chap"), Some(account("a secret", Some("wrong"))));
    assert_eq!(result, Err(LoginFault::Chap(ChapFault::Denied)));
}

/// A response to the first request, changed as a test likes.
fn answer(login: &mut Login, text: &str, change: impl FnOnce(&mut LoginResponse)) -> Result<(), LoginFault> {
    let request = login.poll_transmit().expect("a request");
    let Pdu::LoginRequest(request) = request.pdu else { panic!() };
    let mut response = LoginResponse {
        step: request.step,
        version_max: VERSION,
        version_active: VERSION,
        isid: request.isid,
        tsih: Tsih(1),
        itt: request.itt,
        numbers: Numbers { stat_sn: login.exp_stat_sn, exp_cmd_sn: Sn(1), max_cmd_sn: Sn(8) },
        status: LoginStatus::Success,
    };
    change(&mut response);
    let data = text.replace(' ', "\0").into_bytes();
    login.handle_message(&bytes(&Outgoing::new(Pdu::LoginResponse(response), data)))
}

fn fresh() -> Login {
    Login::new(params(Some("iqn.2026-11.test:t0"), None))
}

fn with_chap() -> Login {
    Login::new(params(Some("iqn.2026-11.test:t0"), Some(account("a secret", None))))
}

#[test]
fn a_header_that_does_not_answer_the_request_is_refused() {
    let field = |change: fn(&mut LoginResponse)| match answer(&mut fresh(), "", change).unwrap_err() {
        LoginFault::Field(field) => field,
        other => panic!("{other}"),
    };
    assert_eq!(field(|r| r.version_active = 1), "Version-active");
    assert_eq!(field(|r| r.isid.0[5] ^= 1), "ISID");
    assert_eq!(field(|r| r.itt.0 ^= 1), "Initiator Task Tag");
    assert_eq!(field(|r| r.step = Step::Stay(Stage::Security)), "CSG");
    let error = |text, change: fn(&mut LoginResponse)| answer(&mut fresh(), text, change).unwrap_err();
    assert_eq!(error("RDMAExtensions=Yes ", |r| r.tsih = Tsih(0)), LoginFault::Field("TSIH"));
    let numbered: fn(&mut LoginResponse) = |r| r.numbers.exp_cmd_sn = Sn(2);
    assert_eq!(error("RDMAExtensions=Yes ", numbered), LoginFault::Field("ExpCmdSN"));
    assert_eq!(error("", |_| {}), LoginFault::Key(KeyFault::NoRdma));
    assert_eq!(error("RDMAExtensions=Yes", |_| {}), LoginFault::Text(TextError::Unterminated));
    assert_eq!(error("AuthMethod=CHAP ", |_| {}), LoginFault::Method);
    assert_eq!(answer(&mut fresh(), "RDMAExtensions=Yes ", |_| {}), Ok(()));
    let forward: fn(&mut LoginResponse) = |r| r.step = Step::Transit(Stage::Security, Stage::Operational);
    assert_eq!(answer(&mut with_chap(), "AuthMethod=CHAP ", forward), Err(LoginFault::Field("T or NSG")));
    assert_eq!(answer(&mut with_chap(), "AuthMethod=None ", |_| {}), Err(LoginFault::Method));
    assert_eq!(answer(&mut with_chap(), "", |_| {}), Err(LoginFault::Method));
}

#[test]
fn a_stat_sn_that_is_not_the_next_is_refused() {
    let mut login = with_chap();
    assert_eq!(answer(&mut login, "AuthMethod=CHAP ", |r| r.numbers.stat_sn = Sn(70)), Ok(()));
    let challenge = "CHAP_A=5 CHAP_I=1 CHAP_C=0x01 ";
    let again = answer(&mut login, challenge, |r| r.numbers.stat_sn = Sn(70));
    assert_eq!(again, Err(LoginFault::Field("StatSN")));
}

#[test]
fn a_text_in_pieces_is_put_together_and_one_without_end_is_not() {
    let mut login = fresh();
    let more: fn(&mut LoginResponse) = |r| r.step = Step::Continued(Stage::Operational);
    assert_eq!(answer(&mut login, "RDMAExten", more), Ok(()));
    assert_eq!(answer(&mut login, "sions=Yes ", |_| {}), Ok(()));
    assert!(login.established().is_some());

    let mut endless = fresh();
    let result = std::iter::repeat_with(|| answer(&mut endless, "A", more)).find(Result::is_err);
    assert_eq!(result, Some(Err(LoginFault::TooManyRequests)));
    assert_eq!(endless.poll_transmit(), None);
    let mut staying = fresh();
    let stay: fn(&mut LoginResponse) = |r| r.step = Step::Stay(Stage::Operational);
    let result = std::iter::repeat_with(|| answer(&mut staying, "", stay)).find(Result::is_err);
    assert_eq!(result, Some(Err(LoginFault::TooManyRequests)));
}

#[test]
fn what_is_no_answer_to_a_login_is_refused() {
    assert_eq!(fresh().handle_message(&[0x10; 20]), Err(LoginFault::Message(MessageError::Short(20))));
    let mut login = fresh();
    let request = login.poll_transmit().unwrap();
    assert_eq!(login.handle_message(&bytes(&request)), Err(LoginFault::NoLogin(Opcode::LoginRequest)));
    let mut done = fresh();
    answer(&mut done, "RDMAExtensions=Yes ", |_| {}).unwrap();
    assert!(done.established().is_some());
    let response = LoginResponse {
        step: Step::Stay(Stage::Operational),
        version_max: 0,
        version_active: 0,
        isid: Isid([0; 6]),
        tsih: Tsih(0),
        itt: Itt(0),
        numbers: Numbers { stat_sn: Sn(0), exp_cmd_sn: Sn(0), max_cmd_sn: Sn(0) },
        status: LoginStatus::Success,
    };
    let unasked = done.handle_message(&bytes(&Outgoing::new(Pdu::LoginResponse(response), Vec::new())));
    assert_eq!(unasked, Err(LoginFault::Unasked));
}
