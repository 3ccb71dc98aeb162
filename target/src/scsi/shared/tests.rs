use std::path::Path;
use std::sync::mpsc::channel;
use std::time::Duration;

use super::*;
use crate::block::{BackendConfig, Identity, Stop, VolumeConfig};
use crate::reservation_store::ReservationStore;
use crate::scsi::lun::Response;
use crate::scsi::nexus::InitiatorPort;
use crate::scsi::ports::TargetPort;
use crate::scsi::sense::{Sense, code};
use crate::scsi::status::Status;

const UNIT: [u8; 8] = [0; 8];
const TEST_UNIT_READY: [u8; 6] = [0; 6];
const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0];
const READ_KEYS: [u8; 10] = [0x5E, 0, 0, 0, 0, 0, 0, 1, 0, 0];
const REGISTER: u8 = 0;
const RESERVE: u8 = 1;

/// A target whose one unit is a volume in this file, as one process has it, and two hosts.
struct Process {
    target: Arc<SharedTarget>,
    hosts: [NexusId; 2],
}

impl Process {
    fn start(file: &Path) -> Self {
        let volume = Volume::open(VolumeConfig {
            name: "disk0".to_owned(),
            identity: Identity::new("iqn.x:t", "disk0", None, None),
            block_size: 4096,
            protection: None,
            read_only: false,
            backend: BackendConfig::File { path: file.to_owned(), size: Some(1 << 20) },
            stop: Stop::default(),
        })
        .unwrap();
        let mut opened = Some(ReservationStore::start().unwrap().open(&volume).unwrap());
        let port = TargetPort { relative: 1, portal_group: 1 };
        let ports = TargetPorts { name: "iqn.x:t".to_owned(), ports: vec![port] };
        let target = Arc::new(SharedTarget::new(Arc::new(ports), 1 << 20));
        target.apply(&BTreeMap::from([(0, volume)]), |_| opened.take().unwrap()).unwrap();
        let hosts = [0, 1].map(|host| {
            let initiator = InitiatorPort::new(format!("iqn.x:{host}"), [0; 6]).unwrap();
            let id = target.attach(Nexus { initiator, target_port: 1 }).unwrap();
            let told = target.handle_command(&mut NexusView::default(), id, UNIT, &TEST_UNIT_READY);
            assert!(matches!(told.action, Action::Done(Response { sense: Some(_), .. })), "it is new");
            id
        });
        Self { target, hosts }
    }

    fn run(&self, host: usize, cdb: &[u8]) -> Action {
        self.target.handle_command(&mut NexusView::default(), self.hosts[host], UNIT, cdb).action
    }

    fn keys(&self) -> Vec<u8> {
        match self.run(0, &READ_KEYS) {
            Action::Done(Response { data, .. }) => {
                data[8..].iter().copied().filter(|byte| *byte != 0).collect()
            }
            other => panic!("no report: {other:?}"),
        }
    }

    /// PERSISTENT RESERVE OUT, with APTPL, and what it is answered when that is stored.
    fn reserve_out(&self, host: usize, action: u8, kind: u8, keys: [u8; 2]) -> Response {
        let cdb = [0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0];
        let Action::Fetch { operation, command, .. } = self.run(host, &cdb) else { panic!("it has a list") };
        let mut list = [0; 24];
        (list[7], list[15], list[20]) = (keys[0], keys[1], 1);
        let handled = self.target.handle_parameters(self.hosts[host], UNIT, operation, &command, &list);
        let Action::Store { change, saved } = handled.action else {
            panic!("it is to be stored: {handled:?}")
        };
        let (post, answer) = channel();
        self.target.store(UNIT, change, saved, move |action| post.send(action).unwrap());
        match answer.recv_timeout(Duration::from_secs(60)).unwrap() {
            Action::Done(response) => response,
            other => panic!("not done: {other:?}"),
        }
    }
}

#[test]
fn what_a_host_reserved_and_had_kept_is_reserved_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk0.img");
    let process = Process::start(&file);
    assert_eq!(process.reserve_out(0, REGISTER, 0, [0, 0xA]), Response::good());
    // Exclusive access.
    assert_eq!(process.reserve_out(0, RESERVE, 3, [0xA, 0]), Response::good());
    // Nothing is done for the end: a process that is killed does nothing, either.
    drop(process);
    let process = Process::start(&file);
    assert_eq!(process.keys(), [0xA]);
    assert!(matches!(process.run(0, &READ), Action::Transfer(_)), "its holder has come again");
    let other = process.run(1, &READ);
    assert!(matches!(other, Action::Done(Response { status: Status::ReservationConflict, .. })), "{other:?}");
    // What can't be stored has changed nothing.
    let in_the_way = folder.path().join("disk0.img.pr.new");
    std::fs::create_dir(&in_the_way).unwrap();
    let failed = Some(Sense::new(code::INTERNAL_TARGET_FAILURE));
    assert_eq!(process.reserve_out(1, REGISTER, 0, [0, 0xB]).sense, failed);
    assert_eq!(process.keys(), [0xA]);
    std::fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(process.reserve_out(1, REGISTER, 0, [0, 0xB]), Response::good());
    assert_eq!(process.keys(), [0xA, 0xB]);
}
