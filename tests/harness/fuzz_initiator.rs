//! The bodies for the iSCSI initiator: what a target says to it, in a login and afterwards.

use intact::iscsi::chap::{CHALLENGE_LEN, Credentials, Seed};
use intact::iscsi::name::IscsiName;
use intact::iscsi::outgoing::Outgoing;
use intact::iscsi::wire::bhs::{Bhs, Numbers};
use intact::iscsi::wire::iser::Control;
use intact::iscsi::wire::login::{Isid, LoginResponse, LoginStatus, Tsih};
use intact::iscsi::wire::message::Message;
use intact::iscsi::wire::number::{Lun, Sn};
use intact::iscsi::wire::pdu::Pdu;
use intact_tools::host::iscsi::chap::Account;
use intact_tools::host::iscsi::inquiry::Description;
use intact_tools::host::iscsi::login::{Login, LoginParams, REQUESTS_MAX};
use intact_tools::host::iscsi::session::{Command, Direction, Event, PINGS_MAX, Session, TextEnd};
use intact_tools::host::iscsi::unit::Unit;
use intact_tools::host::iscsi::{Failure, discovery};
use zerocopy::FromBytes;

/// Checks that what the initiator sends is a PDU, and that its text fits a target's smallest buffer.
fn check_sent(outgoing: &Outgoing) -> Pdu {
    assert!(outgoing.data.len() <= 8192, "{} bytes of text", outgoing.data.len());
    let mut bytes = vec![0xff; outgoing.emitted_len()];
    outgoing.emit(&mut bytes);
    let message = Message::parse(&bytes).expect("what is sent is a message");
    assert_eq!(Pdu::parse(message.bhs), Ok(outgoing.pdu));
    outgoing.pdu
}

fn message(bhs: &mut Bhs, data: &[u8]) -> Vec<u8> {
    bhs.set_data_len(data.len());
    bhs.total_ahs_length = 0;
    let message = Message { control: Control::default(), bhs, ahs: &[], data };
    let mut bytes = vec![0; message.emitted_len()];
    message.emit(&mut bytes);
    bytes
}

/// A login, whose target knows no secret: answers, separated by 0xff, each a byte of flags and a text whose spaces are zero
/// bytes. The first byte says who logs in.
///
/// # Panics
/// When a request is none or too many are made, or a login comes to an end that demands a proof and had none.
pub fn host_login(input: &[u8]) {
    let (kind, answers) = input.split_first().unwrap_or((&0, &[]));
    let name = |text| IscsiName::parse(text).expect("names of ours are names");
    let credentials =
        |name: &str| Credentials { name: name.to_owned(), secret: format!("{name}'s secret").into_bytes() };
    let mutual = kind & 4 != 0;
    let account = Account { host: credentials("host"), target: mutual.then(|| credentials("target")) };
    let mut login = Login::new(LoginParams {
        initiator: name("iqn.2026-11.test:host"),
        target: (kind & 1 == 0).then(|| name("iqn.2026-11.test:t0")),
        isid: Isid([0x80, 0, 0, 0, 0, 0]),
        account: (kind & 6 != 0).then_some(account),
        seed: Seed { identifier: 1, challenge: [9; CHALLENGE_LEN] },
    });
    let mut requests = 0;
    for (at, record) in (0..).zip(answers.split(|byte| *byte == 0xff)) {
        let Some(request) = login.poll_transmit() else { break };
        requests += 1;
        let Pdu::LoginRequest(request) = check_sent(&request) else { panic!("a login is requests") };
        let (flags, text) = record.split_first().unwrap_or((&0x87, &[]));
        let text: Vec<u8> = text.iter().map(|byte| if *byte == b' ' { 0 } else { *byte }).collect();
        let response = LoginResponse {
            step: request.step,
            version_max: 0,
            version_active: 0,
            isid: request.isid,
            tsih: Tsih(1),
            itt: request.itt,
            numbers: Numbers { stat_sn: Sn(at), exp_cmd_sn: Sn(1), max_cmd_sn: Sn(4) },
            status: LoginStatus::Success,
        };
        let mut bhs = response.emit();
        bhs.flags = *flags;
        if login.handle_message(&message(&mut bhs, &text)).is_err() {
            return;
        }
        if let Some(established) = login.established() {
            assert!(!mutual, "nobody knows the target's secret");
            assert!(established.agreed.target_recv <= 8192 && established.agreed.immediate(u32::MAX) <= 8192);
            assert_eq!(login.poll_transmit(), None, "it is over");
            return;
        }
    }
    assert!(requests <= REQUESTS_MAX);
}

/// A session: messages of a target, each a byte that says how, a header and data.
///
/// # Panics
/// When a command ends that is not under way, or what the initiator sends is no PDU.
pub fn host_session(script: &[u8]) {
    const TASKS: u32 = 4;
    let numbers = Numbers { stat_sn: Sn(1), exp_cmd_sn: Sn(1), max_cmd_sn: Sn(2) };
    let mut session = Session::new(numbers, TASKS as usize);
    let mut under_way = [false; TASKS as usize];
    let mut asking = false;
    let mut cmd_sn = 1_u32;
    let mut rest = script;
    while let Some((step, tail)) = rest.split_first() {
        let tag = u32::from(step & 3);
        let slot = &mut under_way[tag as usize];
        if session.has_room() && !*slot {
            *slot = true;
            let data = if step & 4 == 0 { Direction::ToHost(512) } else { Direction::FromHost(512) };
            let command = Command { tag, lun: Lun::default(), cdb: [0x28; 16], data };
            let bhs = session.start_command(&command);
            assert!(matches!(Pdu::parse(&bhs), Ok(Pdu::ScsiCommand(_))));
            cmd_sn = cmd_sn.wrapping_add(1);
        }
        if step & 8 != 0 && !asking {
            session.ask(b"SendTargets=All\0".to_vec());
            asking = true;
        }
        let Ok((mut bhs, behind)) = Bhs::read_from_prefix(tail) else { return };
        if step & 0x10 == 0 {
            // Numbers that are possible.
            bhs.words[2].set(cmd_sn);
        }
        let (data, behind) = behind.split_at(behind.len().min(usize::from(step >> 5) * 16));
        rest = behind;
        let bytes = message(&mut bhs, data);
        match session.handle_message(&bytes) {
            Ok(Event::Done(done)) => {
                let slot = &mut under_way[done.tag as usize];
                assert!(*slot, "a command that is not under way ended");
                *slot = false;
                assert!(!Failure::new(done.status, done.sense).to_string().is_empty());
            }
            Ok(Event::Text(part, end)) => {
                assert!(asking, "an answer that was not asked for");
                asking = end == TextEnd::More;
                let _ = discovery::parse(part).map(|records| discovery::to_text(&records));
            }
            Ok(_) => {}
            Err(_) => return,
        }
        let sent = std::iter::from_fn(|| session.poll_transmit()).map(|outgoing| check_sent(&outgoing));
        assert!(sent.count() <= PINGS_MAX + 2, "it says no more than it must");
        describe(data);
    }
}

/// What a unit says of itself: any bytes.
fn describe(data: &[u8]) {
    if let Ok(unit) = Unit::parse(0, data) {
        assert!(unit.blocks > 0 && unit.transfer_len(1, 1) >= u64::from(unit.block_size));
    }
    let Ok(mut description) = Description::new(0, &data.repeat(3)) else { return };
    for page in 0..=255 {
        description.take_page(page, data);
    }
    for page in description.wanted_pages() {
        let header = [&[0, page, 0, u8::MAX], data].concat();
        description.take_page(page, &header);
    }
    assert!(!description.to_text().contains('\x1b'), "text moves no cursor");
}
