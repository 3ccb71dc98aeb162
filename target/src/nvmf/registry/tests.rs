use std::time::Instant;

use proptest::prelude::*;

use super::*;
use crate::nvmf::command::ConnectFields;
use crate::nvmf::controller::AerCompletion;
use crate::nvmf::testing::{
    HOST, Host, NQN, PEER, config, connect_as, connect_data, connect_io, fields, file_volume, listener,
    registry, transport, volume,
};
use crate::nvmf::wire::fabrics::DISCOVERY_NQN;
use crate::nvmf::wire::features::fid;
use crate::nvmf::wire::identify::{IdentifyController, ascii, cns};
use crate::nvmf::wire::log_page::{DiscoveryEntry, lid};
use crate::nvmf::wire::private_data::QueueRequest;
use crate::nvmf::wire::status::Status;
use zerocopy::FromBytes;

const OTHER_HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:00000000-0000-0000-0000-000000000001";

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a test's virtual clock starts somewhere")]
    Instant::now()
}

fn target() -> (Instant, Registry) {
    let now = now();
    (now, registry(now, &[(1, volume("disk0", 4096, 1000, None))]))
}

#[test]
fn each_connect_makes_a_controller_with_its_own_number() {
    let (now, registry) = target();
    let first = connect_as(&registry, now, NQN, HOST, 0).unwrap();
    let second = connect_as(&registry, now, NQN, HOST, 0).unwrap();
    assert_eq!((first.controller.cntlid(), second.controller.cntlid()), (1, 2));
    assert_eq!((first.entries, first.flow_control), (32, true));
    assert_eq!(registry.controllers().len(), 2);
    assert_eq!(registry.remove_controller(1), []);
    let third = connect_as(&registry, now, NQN, HOST, 0).unwrap();
    assert_eq!(third.controller.cntlid(), 3, "a number is not reused at once");
}

#[test]
fn numbers_start_over_when_they_are_used_up() {
    let (now, registry) = target();
    registry.lock().last_cntlid = CNTLID_MAX - 1;
    let next = || connect_as(&registry, now, NQN, HOST, 0).unwrap().controller.cntlid();
    assert_eq!([next(), next(), next()], [0xffef, 1, 2]);
    registry.lock().last_cntlid = 0;
    assert_eq!(connect_as(&registry, now, NQN, HOST, 0).unwrap().controller.cntlid(), 3);
}

#[test]
fn connections_that_come_and_go_leave_nothing() {
    let (now, registry) = target();
    for _ in 0..70_000 {
        let cntlid = connect_as(&registry, now, NQN, HOST, 0).unwrap().controller.cntlid();
        assert_eq!(registry.remove_controller(cntlid), []);
    }
    assert_eq!(registry.controllers(), []);
}

#[test]
fn more_controllers_than_allowed_are_busy_and_may_try_again() {
    let now = now();
    let limits = TargetLimits { max_controllers: 4, ..TargetLimits::default() };
    let registry = Registry::new(limits, 1);
    let _ = registry.apply(now, config(&[]));
    let first = connect_as(&registry, now, NQN, HOST, 0).unwrap();
    let _second = connect_as(&registry, now, DISCOVERY_NQN, HOST, 0).unwrap();
    let refused = connect_as(&registry, now, NQN, HOST, 0).unwrap_err();
    assert_eq!(refused.status.code(), 0x181);
    assert!(!refused.status.is_dnr());
    registry.remove_controller(first.controller.cntlid());
    assert!(connect_as(&registry, now, NQN, HOST, 0).is_ok());
}

#[test]
fn one_address_has_at_most_as_many_controllers_as_it_leaves_to_others() {
    let now = now();
    let limits = TargetLimits { max_controllers: 8, ..TargetLimits::default() };
    let registry = Registry::new(limits, 1);
    let _ = registry.apply(now, config(&[]));
    let connect = |peer: &str| {
        let request = ConnectRequest {
            fields: &fields(0, 32, 0),
            data: &connect_data(0xffff, NQN, HOST),
            transport: &transport(0, 32),
            local: listener("10.77.0.1:4420"),
            peer: peer.parse().unwrap(),
            reactor: 0,
        };
        registry.connect_admin(now, &request).is_ok()
    };
    let count = |peer: &str| (0..10).filter(|_| connect(peer)).count();
    assert_eq!((count("10.0.0.1"), count("10.0.0.2"), count("2001:db8::1")), (4, 2, 1));
    assert_eq!(count("2001:db8::2"), 0, "addresses of one network are one peer");
    assert_eq!(count("10.0.0.3"), 1);
}

#[test]
fn hosts_that_are_not_listed_are_refused_everywhere_but_in_discovery() {
    let (now, registry) = target();
    let mut config = config(&[]);
    config.subsystems[0].hosts = Hosts::Listed([HOST.to_owned()].into());
    let _ = registry.apply(now, config);
    assert!(connect_as(&registry, now, NQN, HOST, 0).is_ok());
    let refused = connect_as(&registry, now, NQN, OTHER_HOST, 0).unwrap_err();
    assert_eq!(refused.status, Status::CONNECT_INVALID_HOST);
    assert_eq!(refused.status.code(), 0x184);
    assert!(connect_as(&registry, now, DISCOVERY_NQN, OTHER_HOST, 0).is_ok());
}

/// Connect of an admin queue with something changed.
fn admin_with(edit: impl FnOnce(&mut ConnectFields, &mut Vec<u8>, &mut QueueRequest)) -> ConnectError {
    let (now, registry) = target();
    let (mut fields, mut data, mut transport) =
        (fields(0, 32, 0), connect_data(0xffff, NQN, HOST), transport(0, 32));
    edit(&mut fields, &mut data, &mut transport);
    let request = ConnectRequest {
        fields: &fields,
        data: &data,
        transport: &transport,
        local: listener("10.77.0.1:4420"),
        peer: PEER,
        reactor: 0,
    };
    let refused = registry.connect_admin(now, &request).unwrap_err();
    assert_eq!(registry.controllers(), [], "nothing has changed");
    refused
}

const INVALID: Status = Status::CONNECT_INVALID_PARAMETERS;
/// IATTR: the parameter is in the data.
const IN_DATA: u32 = 1 << 16;

#[test]
fn each_bad_admin_connect_has_its_status_and_points_at_the_parameter() {
    let check = |refused: ConnectError, status, result| {
        assert_eq!((refused.status, refused.result), (status, result));
    };
    check(admin_with(|f, _, _| f.recfmt = 1), Status::CONNECT_INCOMPATIBLE_FORMAT, 0);
    check(admin_with(|f, _, _| f.qid = 1), INVALID, 42);
    check(admin_with(|_, _, t| t.qid = 1), INVALID, 42);
    check(admin_with(|f, _, _| f.sq_entries = 1), INVALID, 44);
    check(admin_with(|f, _, _| f.sq_entries = 33), INVALID, 44);
    check(admin_with(|_, d, _| d[16..18].fill(0)), INVALID, IN_DATA | 16);
    check(admin_with(|_, d, _| d[256] = b'x'), INVALID, IN_DATA | 256);
    check(admin_with(|_, d, _| d[256..512].fill(b'n')), INVALID, IN_DATA | 256);
    check(admin_with(|_, d, _| d[256] = 0), INVALID, IN_DATA | 256);
    check(admin_with(|_, d, _| d[512] = 0), INVALID, IN_DATA | 512);
    check(admin_with(|_, d, _| d[512] = 0xff), INVALID, IN_DATA | 512);
    check(admin_with(|_, d, _| d.truncate(1023)), Status::SGL_DATA_LENGTH_INVALID, 0);
    check(admin_with(|_, d, _| d.clear()), Status::SGL_DATA_LENGTH_INVALID, 0);
}

#[test]
fn flow_control_can_be_disabled() {
    let (now, registry) = target();
    let fields = ConnectFields { cattr: 1 << 2, ..fields(0, 32, 0) };
    let request = ConnectRequest {
        fields: &fields,
        data: &connect_data(0xffff, NQN, HOST),
        transport: &transport(0, 32),
        local: listener("10.77.0.1:4420"),
        peer: PEER,
        reactor: 0,
    };
    assert!(!registry.connect_admin(now, &request).unwrap().flow_control);
}

#[test]
fn io_queues_join_their_controller_once_each() {
    let (now, registry) = target();
    let host = Host::connect(&registry, now, NQN, 0);
    let cntlid = host.controller.cntlid();
    let queue = connect_io(&registry, cntlid, 1).unwrap();
    assert!(Arc::ptr_eq(&queue.shared, host.controller.shared()));
    assert_eq!(queue.subsystem.nqn(), NQN);
    assert!(connect_io(&registry, cntlid, 128).is_ok());
    assert_eq!(connect_io(&registry, cntlid, 1).unwrap_err().status, Status::COMMAND_SEQUENCE_ERROR);
    registry.remove_io_queue(cntlid, 1);
    assert!(connect_io(&registry, cntlid, 1).is_ok());
    let queues = registry.remove_controller(cntlid);
    let reference = |qid| IoQueueRef { cntlid, qid, reactor: 1 };
    assert_eq!(queues, [reference(1), reference(128)]);
    assert_eq!(connect_io(&registry, cntlid, 2).unwrap_err().result, IN_DATA | 16, "the controller is gone");
}

/// Connect of I/O queue 1 with something changed.
fn io_with(edit: impl FnOnce(&mut ConnectFields, &mut Vec<u8>, &mut QueueRequest)) -> ConnectError {
    let (now, registry) = target();
    let host = Host::connect(&registry, now, NQN, 0);
    let cntlid = host.controller.cntlid();
    let (mut fields, mut data, mut transport) =
        (fields(1, 128, 0), connect_data(cntlid, NQN, HOST), transport(1, 128));
    edit(&mut fields, &mut data, &mut transport);
    let request = ConnectRequest {
        fields: &fields,
        data: &data,
        transport: &transport,
        local: listener("10.77.0.1:4420"),
        peer: PEER,
        reactor: 0,
    };
    let refused = registry.connect_io(&request).unwrap_err();
    assert_eq!(registry.io_queues(cntlid), [], "nothing has changed");
    refused
}

#[test]
fn each_bad_io_connect_has_its_status_and_points_at_the_parameter() {
    let check = |refused: ConnectError, status, result| {
        assert_eq!((refused.status, refused.result), (status, result));
    };
    let name = |text: &str| {
        let mut field = [0; 256];
        field[..text.len()].copy_from_slice(text.as_bytes());
        field
    };
    check(io_with(|f, _, _| f.recfmt = 1), Status::CONNECT_INCOMPATIBLE_FORMAT, 0);
    check(io_with(|_, d, _| d[16] = 77), INVALID, IN_DATA | 16);
    check(io_with(|_, d, _| d[16..18].fill(0xff)), INVALID, IN_DATA | 16);
    check(io_with(|_, _, t| t.cntlid = 99), INVALID, IN_DATA | 16);
    check(io_with(|_, d, _| d[256..512].copy_from_slice(&name(DISCOVERY_NQN))), INVALID, IN_DATA | 256);
    check(io_with(|_, d, _| d[512..768].copy_from_slice(&name(OTHER_HOST))), INVALID, IN_DATA | 512);
    check(io_with(|_, d, _| d[0] = 99), INVALID, IN_DATA);
    check(io_with(|f, _, t| (f.qid, t.qid) = (0, 0)), INVALID, 42);
    check(io_with(|f, _, t| (f.qid, t.qid) = (129, 129)), INVALID, 42);
    check(io_with(|_, _, t| t.qid = 2), INVALID, 42);
    check(io_with(|f, _, _| f.sq_entries = 1), INVALID, 44);
    check(io_with(|f, _, t| (f.sq_entries, t.host_send_entries) = (129, 256)), INVALID, 44);
    check(io_with(|f, _, t| (f.sq_entries, t.host_send_entries) = (128, 64)), INVALID, 44);
    check(io_with(|_, d, _| d.truncate(64)), Status::SGL_DATA_LENGTH_INVALID, 0);
}

#[test]
fn io_queues_need_an_enabled_controller_of_a_subsystem() {
    let (now, registry) = target();
    let disabled = connect_as(&registry, now, NQN, HOST, 0).unwrap().controller;
    let refused = connect_io(&registry, disabled.cntlid(), 1).unwrap_err();
    assert_eq!(refused.status, Status::COMMAND_SEQUENCE_ERROR);
    let discovery = Host::connect(&registry, now, DISCOVERY_NQN, 0);
    let refused = connect_io(&registry, discovery.controller.cntlid(), 1).unwrap_err();
    assert_eq!((refused.status, refused.result), (INVALID, IN_DATA | 16));
}

// Discovery.

fn entries(host: &mut Host) -> (u64, Vec<DiscoveryEntry>) {
    let header = host.log(lid::DISCOVERY, 0, 16, true).unwrap();
    let generation = u64::from_le_bytes(header[..8].try_into().unwrap());
    let count = usize::try_from(u64::from_le_bytes(header[8..].try_into().unwrap())).unwrap();
    let page = host.log(lid::DISCOVERY, 0, 1024 * (count + 1), false).unwrap();
    let entries = page[1024..].chunks_exact(1024).map(|e| DiscoveryEntry::read_from_bytes(e).unwrap());
    (generation, entries.collect())
}

#[test]
fn the_discovery_log_lists_what_the_host_may_use_where_it_can_reach_it() {
    let (now, registry) = target();
    let mut new = config(&[]);
    new.listeners = ["10.77.0.1:4420", "127.0.0.1:4420", "[fd77::1]:4421"].map(listener).to_vec();
    new.subsystems.push(SubsystemConfig {
        nqn: "nqn.2026-11.io.intact:private".to_owned(),
        serial: "P".to_owned(),
        hosts: Hosts::Listed([OTHER_HOST.to_owned()].into()),
        namespaces: vec![],
    });
    let _ = registry.apply(now, new);
    let mut host = Host::connect(&registry, now, DISCOVERY_NQN, 0);
    let (generation, log) = entries(&mut host);
    assert_eq!(generation, 2);
    let rows: Vec<_> = log
        .iter()
        .map(|e| (e.subtype, ascii(&e.subnqn), ascii(&e.traddr), ascii(&e.trsvcid), e.adrfam, e.portid.get()))
        .collect();
    let row = |subtype, nqn: &str, address: &str, port: &str, family, id| {
        (subtype, nqn.to_owned(), address.to_owned(), port.to_owned(), family, id)
    };
    assert_eq!(
        rows,
        [
            row(3, DISCOVERY_NQN, "10.77.0.1", "4420", 1, 1),
            row(2, NQN, "10.77.0.1", "4420", 1, 1),
            row(2, NQN, "fd77::1", "4421", 2, 3),
        ]
    );
    for entry in &log {
        assert_eq!((entry.trtype, entry.cntlid.get(), entry.asqsz.get()), (1, 0xffff, 32));
        assert_eq!((entry.qptype, entry.prtype, entry.cms), (1, 4, 1));
        assert_eq!(entry.traddr[250], b' ', "padded with spaces");
        assert_eq!(entry.subnqn[255], 0, "padded with zeroes");
    }
    assert_eq!((log[0].eflags.get(), log[1].eflags.get()), (3, 0));
}

#[test]
fn a_discovery_controller_says_so_and_has_no_namespaces() {
    let (now, registry) = target();
    let mut host = Host::connect(&registry, now, DISCOVERY_NQN, 0);
    let id: IdentifyController = host.identify(0, cns::CONTROLLER).unwrap();
    assert_eq!(ascii(&id.subnqn), DISCOVERY_NQN);
    assert_eq!((id.cntrltype, id.oaes.get(), id.nn.get()), (2, 1 << 31, 0));
    assert_eq!(host.identify::<[u8; 4096]>(0, cns::ACTIVE_NAMESPACES), Err(Status::INVALID_FIELD));
    assert_eq!(host.log(lid::SMART, 0, 512, true), Err(Status::INVALID_LOG_PAGE));
    assert_eq!(host.set_feature(fid::NUMBER_OF_QUEUES, 0), Err(Status::INVALID_FIELD));
    let mut io = Host::connect(&registry, now, NQN, 0);
    assert_eq!(io.log(lid::DISCOVERY, 0, 16, true), Err(Status::INVALID_LOG_PAGE));
}

#[test]
fn a_changed_log_has_a_new_generation_and_is_announced() {
    let (now, registry) = target();
    let mut host = Host::connect(&registry, now, DISCOVERY_NQN, 5000);
    assert_eq!(host.set_feature(fid::ASYNC_EVENT_CONFIG, 1 << 31), Ok(0));
    let cid = host.request_event().unwrap();
    assert_eq!(entries(&mut host).0, 1);
    assert_eq!(registry.apply(now, config(&[])).notified, [], "namespaces are no part of it");
    assert_eq!(entries(&mut host).0, 1);
    let mut new = config(&[]);
    new.listeners.push(listener("10.77.0.9:4420"));
    let applied = registry.apply(now, new);
    assert_eq!(applied.notified, [ControllerRef { cntlid: host.controller.cntlid(), reactor: 0 }]);
    host.controller.handle_notices();
    let event = AerCompletion { cid, status: Status::SUCCESS, result: 0x70_f002 };
    assert_eq!(host.controller.poll_event_completion(), Some(event));
    let (generation, log) = entries(&mut host);
    assert_eq!((generation, log.len()), (2, 3));
}

// Changed configurations.

#[test]
fn namespaces_that_come_go_grow_or_change_their_volume_are_announced() {
    let now = now();
    let [a, b, c] = ["a", "b", "c"].map(|name| volume(name, 4096, 100, None));
    let registry = registry(now, &[(1, Arc::clone(&a)), (2, Arc::clone(&b)), (3, Arc::clone(&c))]);
    let mut host = Host::connect(&registry, now, NQN, 0);
    assert_eq!(host.set_feature(fid::ASYNC_EVENT_CONFIG, 1 << 8), Ok(0));
    let mut changed = |namespaces: &[(u32, Arc<Volume>)]| -> Vec<u32> {
        let cid = host.request_event().ok();
        let applied = registry.apply(now, config(namespaces));
        assert_eq!(applied.disconnect, []);
        host.controller.handle_notices();
        let reported = host.controller.poll_event_completion();
        assert_eq!(reported.is_some(), !applied.notified.is_empty());
        assert!(reported.is_none() || cid.is_some());
        let page = host.log(lid::CHANGED_NAMESPACES, 0, 4096, false).unwrap();
        let numbers = page.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap()));
        numbers.take_while(|&nsid| nsid != 0).collect()
    };
    let all = [(1, Arc::clone(&a)), (2, Arc::clone(&b)), (3, Arc::clone(&c))];
    assert_eq!(changed(&all), [0; 0]);
    assert_eq!(changed(&all[..2]), [3], "removed");
    assert_eq!(changed(&[(1, Arc::clone(&c)), (2, Arc::clone(&b)), (7, Arc::clone(&a))]), [1, 7]);
    b.resize(200).unwrap();
    let moved = [(1, Arc::clone(&c)), (2, Arc::clone(&b)), (7, Arc::clone(&a))];
    assert_eq!(changed(&moved), [2], "grown");
    assert_eq!(changed(&moved), [0; 0]);
    let subsystem = registry.subsystem(NQN).unwrap();
    assert_eq!(subsystem.namespaces().find(2).unwrap().view().blocks, 200);
    assert_eq!(subsystem.namespaces().find(3).unwrap_err(), Status::INVALID_FIELD);
    assert_eq!(subsystem.namespaces().find(0).unwrap_err(), Status::INVALID_NAMESPACE_OR_FORMAT);
    assert_eq!(subsystem.namespaces().find(0xffff_ffff).unwrap_err(), Status::INVALID_NAMESPACE_OR_FORMAT);
}

#[test]
fn controllers_lose_subsystems_that_are_gone_and_hosts_that_are_struck_off() {
    let (now, registry) = target();
    let one = connect_as(&registry, now, NQN, HOST, 0).unwrap().controller;
    let other = connect_as(&registry, now, NQN, OTHER_HOST, 0).unwrap().controller;
    let discovery = connect_as(&registry, now, DISCOVERY_NQN, OTHER_HOST, 0).unwrap().controller;
    let reference = |controller: &crate::nvmf::controller::Controller| ControllerRef {
        cntlid: controller.cntlid(),
        reactor: 0,
    };
    let mut listed = config(&[]);
    listed.subsystems[0].hosts = Hosts::Listed([HOST.to_owned()].into());
    let applied = registry.apply(now, listed);
    assert_eq!(applied.disconnect, [reference(&other)]);
    assert_eq!(applied.notified, [reference(&one), reference(&discovery)]);
    registry.remove_controller(other.cntlid());
    let applied = registry.apply(now, NvmeConfig::default());
    assert_eq!(applied.disconnect, [reference(&one)]);
    assert_eq!(connect_as(&registry, now, NQN, HOST, 0).unwrap_err().result, IN_DATA | 256);
}

#[test]
fn hosts_that_know_of_no_write_cache_are_sent_to_connect_again_when_one_comes() {
    let (now, registry) = target();
    let folder = tempfile::tempdir().unwrap();
    let before = connect_as(&registry, now, NQN, HOST, 0).unwrap().controller;
    let cached = config(&[(1, file_volume(folder.path(), "cached"))]);
    let applied = registry.apply(now, cached.clone());
    assert_eq!(applied.disconnect, [ControllerRef { cntlid: before.cntlid(), reactor: 0 }]);
    assert_eq!(applied.notified, []);
    registry.remove_controller(before.cntlid());
    let _after = connect_as(&registry, now, NQN, HOST, 0).unwrap();
    assert_eq!(registry.apply(now, cached), Applied::default());
}

proptest! {
    #[test]
    fn no_connect_data_makes_the_registry_panic(
        data in proptest::collection::vec(any::<u8>(), 0..1100),
        raw in any::<[u16; 4]>(),
        io in any::<bool>(),
    ) {
        let (now, registry) = target();
        let host = Host::connect(&registry, now, NQN, 0);
        let fields = ConnectFields {
            recfmt: raw[0] & 1,
            qid: raw[1],
            sq_entries: u32::from(raw[2]) + 1,
            cattr: 0xff,
            kato_ms: u32::MAX,
        };
        let request = ConnectRequest {
            fields: &fields,
            data: &data,
            transport: &transport(raw[1], u32::from(raw[3])),
            local: listener("[::1]:1"),
            peer: PEER,
            reactor: 0,
        };
        if io {
            prop_assert!(registry.connect_io(&request).is_err());
        } else {
            prop_assert!(registry.connect_admin(now, &request).is_err());
        }
        prop_assert_eq!(registry.controllers().len(), 1);
        drop(host);
    }
}
