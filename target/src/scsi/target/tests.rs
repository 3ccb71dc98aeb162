use super::*;
use crate::block::Identity;
use crate::scsi::lun::{Limits, LunConfig};
use crate::scsi::medium::Medium;
use crate::scsi::nexus::InitiatorPort;
use crate::scsi::opcodes::TaskFunctions;
use crate::scsi::ports::TargetPort;
use crate::scsi::reservations::{Persistence, Reservations};
use crate::scsi::status::Status;

const TEST_UNIT_READY: [u8; 6] = [0; 6];
const REPORT_LUNS: [u8; 12] = [0xA0, 0, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0];
const WELL_KNOWN: [u8; 8] = [0xC1, 1, 0, 0, 0, 0, 0, 0];

fn lun(number: u16) -> [u8; 8] {
    LunAddress::Unit(number).emit()
}

fn target() -> Target {
    let ports = [1, 2].map(|relative| TargetPort { relative, portal_group: relative });
    Target::new(Arc::new(TargetPorts { name: "iqn.x:t".to_owned(), ports: ports.to_vec() }))
}

fn unit(target: &Target) -> Lun {
    Lun::new(LunConfig {
        medium: Medium::new(8, 512, None).unwrap(),
        identity: Identity::new("iqn.x:t", "disk0", None, None),
        ports: Arc::clone(&target.ports),
        limits: Limits::new(512, 1 << 20),
        task_functions: TaskFunctions::default(),
        reservations: Reservations::new(Persistence::Volatile),
    })
}

fn nexus(number: usize) -> Nexus {
    let initiator = InitiatorPort::new(format!("iqn.x:{number}"), [0; 6]).unwrap();
    Nexus { initiator, target_port: 1 }
}

fn run(target: &mut Target, id: NexusId, lun: [u8; 8], cdb: &[u8]) -> Response {
    match target.handle_command(id, lun, cdb) {
        Action::Done(response) => response,
        other => panic!("not done: {other:?}"),
    }
}

#[test]
fn a_number_without_a_unit_says_so_and_lists_those_that_there_are() {
    let mut target = target();
    let unit = unit(&target);
    target.insert(7, unit);
    let id = target.attach(nexus(0)).unwrap();
    for address in [lun(0), [0xFF; 8], [0x80, 0, 0, 0, 0, 0, 0, 0]] {
        assert_eq!(run(&mut target, id, address, &[0x12, 0, 0, 0, 36, 0]).data[0], 0x7F);
        let luns = run(&mut target, id, address, &REPORT_LUNS);
        assert_eq!((luns.data[3], luns.data[8], luns.data[17]), (16, 0xC1, 7));
        let sense = run(&mut target, id, address, &[0x03, 0, 0, 0, 18, 0]);
        assert_eq!((sense.status, sense.data[2], sense.data[12]), (Status::Good, 5, 0x25));
        for cdb in [TEST_UNIT_READY.as_slice(), &[0xFF], &[0x28; 10], &[]] {
            let refused = run(&mut target, id, address, cdb);
            assert_eq!(refused.sense, Some(code::LOGICAL_UNIT_NOT_SUPPORTED.into()), "{cdb:02x?}");
        }
        let page = run(&mut target, id, address, &[0x12, 1, 0x83, 0, 36, 0]);
        assert_eq!(page.sense, Some(Sense::in_cdb(2, None)));
    }
}

#[test]
fn the_well_known_unit_answers_what_it_must() {
    let mut target = target();
    let id = target.attach(nexus(0)).unwrap();
    assert_eq!(run(&mut target, id, WELL_KNOWN, &TEST_UNIT_READY), Response::good());
    assert_eq!(run(&mut target, id, WELL_KNOWN, &[0x12, 0, 0, 0, 36, 0]).data[0], 0x1E);
    assert_eq!(run(&mut target, id, WELL_KNOWN, &[0x12, 1, 0x00, 0, 36, 0]).data, [0x1E, 0, 0, 2, 0, 0x83]);
    assert_eq!(run(&mut target, id, WELL_KNOWN, &REPORT_LUNS).data[3], 8);
    assert_eq!(run(&mut target, id, WELL_KNOWN, &[0x03, 0, 0, 0, 18, 0]).data[2], 0);
    let read = run(&mut target, id, WELL_KNOWN, &[0x28; 10]);
    assert_eq!(read.sense, Some(code::INVALID_COMMAND_OPERATION_CODE.into()));
}

#[test]
fn units_that_come_and_go_are_told_until_a_host_asks() {
    let mut target = target();
    let first = unit(&target);
    target.insert(0, first);
    let (asks, other) = (target.attach(nexus(0)).unwrap(), target.attach(nexus(1)).unwrap());
    for id in [asks, other] {
        assert!(run(&mut target, id, lun(0), &TEST_UNIT_READY).sense.is_some(), "it is new");
        assert_eq!(run(&mut target, id, lun(0), &TEST_UNIT_READY), Response::good());
    }
    let second = unit(&target);
    target.insert(1, second);
    let changed = Some(code::REPORTED_LUNS_DATA_HAS_CHANGED.into());
    assert_eq!(run(&mut target, other, lun(0), &TEST_UNIT_READY).sense, changed);
    // Who asks, whom ever, is told no more.
    assert_eq!(run(&mut target, asks, lun(1), &REPORT_LUNS).data[3], 24);
    assert_eq!(run(&mut target, asks, lun(0), &TEST_UNIT_READY), Response::good());
    let power_on = Some(code::POWER_ON_RESET_OR_BUS_DEVICE_RESET_OCCURRED.into());
    assert_eq!(run(&mut target, asks, lun(1), &TEST_UNIT_READY).sense, power_on);
    assert!(target.remove(1).is_some() && target.remove(1).is_none());
    assert_eq!(run(&mut target, asks, lun(0), &TEST_UNIT_READY).sense, changed);
    assert_eq!(
        run(&mut target, asks, lun(1), &TEST_UNIT_READY).sense,
        Some(code::LOGICAL_UNIT_NOT_SUPPORTED.into())
    );
}

#[test]
fn nexuses_are_limited_and_there_is_one_of_each() {
    let mut target = target();
    let first = target.attach(nexus(0)).unwrap();
    assert_eq!(target.attach(nexus(0)), Err(AttachError::Exists));
    assert_eq!(target.attach(Nexus { target_port: 3, ..nexus(1) }), Err(AttachError::Port(3)));
    assert!(target.attach(Nexus { target_port: 2, ..nexus(0) }).is_ok(), "another port, another nexus");
    for number in 2..NEXUSES_MAX {
        target.attach(nexus(number)).unwrap();
    }
    assert_eq!(target.attach(nexus(NEXUSES_MAX)), Err(AttachError::Full));
    target.detach(first);
    // A number that is in use is not given again, also after all have been given once.
    target.next_id = 1;
    assert_eq!(target.attach(nexus(0)), Ok(NexusId(1024)));
}

#[test]
fn a_change_is_stored_for_the_unit_that_made_it_and_no_other() {
    let mut target = target();
    let id = target.attach(nexus(0)).unwrap();
    let register = |target: &mut Target| {
        let storing = Lun::new(LunConfig {
            medium: Medium::new(8, 512, None).unwrap(),
            identity: Identity::new("iqn.x:t", "disk0", None, None),
            ports: Arc::clone(&target.ports),
            limits: Limits::new(512, 1 << 20),
            task_functions: TaskFunctions::default(),
            reservations: Reservations::new(Persistence::Stored),
        });
        target.insert(0, storing);
        let _ = run(target, id, lun(0), &TEST_UNIT_READY);
        let cdb = [0x5F, 0, 0, 0, 0, 0, 0, 0, 24, 0];
        let Action::Fetch { operation, command, .. } = target.handle_command(id, lun(0), &cdb) else {
            panic!("a list is to be fetched")
        };
        let mut list = [0; 24];
        (list[15], list[20]) = (7, 1);
        let Action::Store { change, .. } = target.handle_parameters(id, lun(0), operation, &command, &list)
        else {
            panic!("a registration is to be stored")
        };
        change
    };
    let first = register(&mut target);
    let second = register(&mut target);
    let answer = |action| match action {
        Action::Done(response) => response,
        other => panic!("not done: {other:?}"),
    };
    let gone = answer(target.handle_stored(first, Stored::Durably));
    assert_eq!(gone.sense, Some(code::LOGICAL_UNIT_NOT_SUPPORTED.into()));
    assert_eq!(answer(target.handle_stored(second, Stored::Durably)), Response::good());
}

#[test]
fn a_list_for_a_unit_that_has_gone_is_answered() {
    let mut target = target();
    let unit = unit(&target);
    target.insert(0, unit);
    let id = target.attach(nexus(0)).unwrap();
    let _ = run(&mut target, id, lun(0), &TEST_UNIT_READY);
    let select = [0x15, 0x10, 0, 0, 16, 0];
    let Action::Fetch { operation, command, length } = target.handle_command(id, lun(0), &select) else {
        panic!("a list is to be fetched")
    };
    let list = vec![0; length];
    target.remove(0);
    let Action::Done(gone) = target.handle_parameters(id, lun(0), operation, &command, &list) else {
        panic!("nothing is left to do")
    };
    assert_eq!(gone.sense, Some(code::LOGICAL_UNIT_NOT_SUPPORTED.into()));
    assert_eq!(target.sense_format(lun(0)), SenseFormat::Fixed);
}
