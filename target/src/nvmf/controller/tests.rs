use std::time::{Duration, Instant};

use proptest::prelude::*;
use t10pi::nvme::ExtendedFormats;
use t10pi::{Format, Guard, PiType};
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::nvmf::command::{Command, PropertySize, QueueKind};
use crate::nvmf::registry::Registry;
use crate::nvmf::testing::{
    CC_ENABLE, HOST, HOST_ID, Host, NQN, config, connect_as, connect_io, file_volume, registry, volume,
};
use crate::nvmf::wire::fabrics::{DISCOVERY_NQN, property};
use crate::nvmf::wire::features::{Select, fid};
use crate::nvmf::wire::identify::{
    IdentifyController, IdentifyControllerNvm, IdentifyNamespace, IdentifyNamespaceIndependent,
    IdentifyNamespaceNvm, ascii, cns,
};
use crate::nvmf::wire::log_page::{ErrorEntry, SmartLog, lid};
use crate::nvmf::wire::sqe::{PSDT_SGL, Sqe};

fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a test's virtual clock starts somewhere")]
    Instant::now()
}

fn crc16(block_size: u32) -> Format {
    Format::new(Guard::Crc16, block_size, 8).unwrap()
}

/// A target with namespaces 1 (plain), 2 (type 1, 512 bytes) and 5 (type 3, 64-bit guard with a storage tag).
fn target(now: Instant) -> Registry {
    let crc64 = Format::new(Guard::Crc64, 4096, 16).unwrap().with_storage_tag(8, 0x0f).unwrap();
    registry(
        now,
        &[
            (1, volume("plain", 4096, 1000, None)),
            (2, volume("pi", 512, 2000, Some((crc16(512), PiType::Type1)))),
            (5, volume("wide", 4096, 500, Some((crc64, PiType::Type3)))),
        ],
    )
}

fn host() -> Host {
    let now = now();
    Host::connect(&target(now), now, NQN, 5000)
}

fn id_ctrl(host: &mut Host) -> IdentifyController {
    host.identify(0, cns::CONTROLLER).unwrap()
}

// The checks that a Linux host makes before a controller goes live, in its order.

#[test]
fn the_host_finds_capabilities_it_can_work_with() {
    let now = now();
    let mut controller = connect_as(&target(now), now, NQN, HOST, 0).unwrap().controller;
    let cap = controller.property_get(PropertySize::Qword, property::CAP).unwrap();
    assert_eq!(cap >> 48 & 0xf, 0, "MPSMIN is 4 KiB");
    assert_eq!(cap & 0xffff, 127, "MQES, 0's based");
    assert_eq!(cap >> 37 & 1, 1, "the NVM command set");
    assert_eq!(cap >> 43 & 1, 0, "no choice of command sets");
    let timeout = cap >> 24 & 0xff;
    assert_eq!(cap >> 59 & 0b11, 0b01, "ready with media, as version 2.0 demands");
    let crto = controller.property_get(PropertySize::Dword, property::CRTO).unwrap();
    assert!(crto & 0xffff >= timeout);
    assert_eq!(controller.property_get(PropertySize::Dword, property::VS), Ok(0x2_0000));
    assert_eq!(controller.property_get(PropertySize::Dword, property::CSTS), Ok(0));
    for (size, offset) in [
        (PropertySize::Dword, property::CAP),
        (PropertySize::Qword, property::VS),
        (PropertySize::Dword, property::NSSR),
        (PropertySize::Dword, 0x28),
        (PropertySize::Qword, u32::MAX),
    ] {
        assert_eq!(controller.property_get(size, offset), Err(Status::INVALID_FIELD), "{offset:#x}");
    }
    assert_eq!(controller.property_set(PropertySize::Dword, property::CSTS, 0), Err(Status::INVALID_FIELD));
    assert_eq!(controller.property_set(PropertySize::Qword, property::CC, 1), Err(Status::INVALID_FIELD));
}

#[test]
fn the_controller_becomes_ready_when_it_is_enabled_and_not_before() {
    let now = now();
    let registry = target(now);
    let mut controller = connect_as(&registry, now, NQN, HOST, 0).unwrap().controller;
    let identify = AdminCommand {
        cid: 1,
        opcode: 6,
        nsid: 0,
        op: AdminOp::Identify { cns: 1, cntid: 0, cnssid: 0, csi: 0, uuid_index: 0 },
        dptr: Default::default(),
    };
    let mut out = vec![0; 4096];
    let early = controller.admin(now, &identify, &[], &mut out);
    let refused = Status::COMMAND_SEQUENCE_ERROR;
    assert_eq!(early, AdminOutcome::Complete { status: refused, result: 0, data_len: 0 });
    assert_eq!(controller.shared().check_ready(), Err(refused));
    // As recorded: a Linux host writes CC twice, first without EN.
    assert_eq!(controller.property_set(PropertySize::Dword, property::CC, 0x46_0000), Ok(None));
    assert_eq!(controller.property_get(PropertySize::Dword, property::CSTS), Ok(0));
    assert_eq!(controller.property_set(PropertySize::Dword, property::CC, CC_ENABLE), Ok(None));
    assert_eq!(controller.property_get(PropertySize::Dword, property::CSTS), Ok(1));
    assert_eq!(controller.shared().check_ready(), Ok(()));
    let later = controller.admin(now, &identify, &[], &mut out);
    assert_eq!(later, AdminOutcome::Complete { status: Status::SUCCESS, result: 0, data_len: 4096 });
}

#[test]
fn a_configuration_that_cannot_be_enabled_is_a_fatal_status_until_the_reset() {
    for bad in [
        CC_ENABLE | 6 << 4,    // more command sets
        CC_ENABLE | 1 << 7,    // 8 KiB pages
        CC_ENABLE | 1 << 11,   // weighted arbitration
        CC_ENABLE ^ 0x01_0000, // 128-byte submission entries
        CC_ENABLE ^ 0x10_0000, // 32-byte completion entries
    ] {
        let mut host = host();
        assert_eq!(host.set(property::CC, 0x46_0000), Ok(Some(Effect::Reset)));
        assert_eq!(host.set(property::CC, bad), Ok(None));
        assert_eq!(host.get(property::CSTS), Ok(0b10), "{bad:#x}");
        assert_eq!(host.controller.shared().check_ready(), Err(Status::COMMAND_SEQUENCE_ERROR));
        assert_eq!(host.set(property::CC, 0), Ok(Some(Effect::Reset)));
        assert_eq!(host.get(property::CSTS), Ok(0));
        assert_eq!(host.set(property::CC, CC_ENABLE), Ok(None));
        assert_eq!(host.get(property::CSTS), Ok(1));
    }
}

#[test]
fn a_shutdown_notification_is_answered_and_ends_the_controllers_readiness() {
    let mut host = host();
    // Memory volumes have no write cache: nothing is to be flushed.
    assert_eq!(host.set(property::CC, CC_ENABLE | 1 << 14), Ok(None));
    assert_eq!(host.get(property::CSTS), Ok(0b10 << 2));
    assert_eq!(host.controller.shared().check_ready(), Err(Status::COMMAND_SEQUENCE_ERROR));
    assert_eq!(host.set(property::CC, 0), Ok(Some(Effect::Reset)));
    assert_eq!(host.get(property::CSTS), Ok(0));
}

#[test]
fn a_write_cache_is_reported_cannot_be_switched_off_and_is_flushed_at_shutdown() {
    let now = now();
    let folder = tempfile::tempdir().unwrap();
    let registry = registry(now, &[(1, file_volume(folder.path(), "cached"))]);
    let mut host = Host::connect(&registry, now, NQN, 0);
    assert_eq!(id_ctrl(&mut host).vwc, 0b101);
    assert_eq!(host.get_feature(fid::VOLATILE_WRITE_CACHE, Select::Current), Ok(1));
    assert_eq!(host.get_feature(fid::VOLATILE_WRITE_CACHE, Select::Capabilities), Ok(0));
    assert_eq!(host.set_feature(fid::VOLATILE_WRITE_CACHE, 0), Err(Status::FEATURE_NOT_CHANGEABLE));
    assert_eq!(host.set(property::CC, CC_ENABLE | 1 << 14), Ok(Some(Effect::FlushForShutdown)));
    assert_eq!(host.get(property::CSTS), Ok(0b01 << 2), "in progress");
    host.controller.shutdown_complete();
    assert_eq!(host.get(property::CSTS), Ok(0b10 << 2), "complete");
}

#[test]
fn identify_controller_says_what_hosts_check_and_what_is_true() {
    let mut host = host();
    let cntlid = host.controller.cntlid();
    let id = id_ctrl(&mut host);
    assert_eq!(id.cntlid.get(), cntlid, "equals Connect's");
    assert_eq!(ascii(&id.subnqn), NQN);
    assert_eq!(ascii(&id.mn), "Intact");
    assert_eq!(ascii(&id.sn), "INTACT0001");
    assert_eq!(id.sn[10..], [b' '; 10], "padded with spaces");
    assert_eq!(id.cmic & 0b10, 0b10, "a second controller may come");
    assert_ne!(id.kas.get(), 0);
    assert_eq!(id.cntrltype, 1);
    assert_eq!(id.ver.get(), 0x2_0000);
    assert_eq!(id.ioccsz.get(), (64 + 4096) / 16);
    assert_eq!(id.iorcsz.get(), 1);
    assert_eq!(id.icdoff.get(), 0);
    assert_eq!(id.msdbd, 16, "descriptors of a command");
    assert_eq!(id.sgls.get(), 0x10_0005, "keyed, in-capsule offset");
    assert_eq!(id.maxcmd.get(), 128);
    assert_eq!(id.mdts, 8, "1 MiB");
    assert_eq!((id.sqes, id.cqes), (0x66, 0x44));
    assert_eq!(id.nn.get(), 1024);
    assert_eq!(id.oacs.get(), 0);
    assert_eq!(id.oncs.get(), 0b1101_1101);
    assert_eq!(id.fuses.get(), 0);
    assert_eq!(id.vwc, 0b100, "no cache; no flush of all namespaces");
    assert_eq!((id.acl, id.aerl, id.elpe), (3, 3, 63));
    assert_eq!(id.lpa & 0b10, 0b10, "effects log");
    assert_eq!(id.oaes.get(), 1 << 8);
    assert_eq!(id.ctratt.get(), 1 << 0 | 1 << 6 | 1 << 15 | 1 << 16);
}

#[test]
fn without_in_capsule_data_the_capsule_is_the_entry_alone() {
    let now = now();
    let limits = TargetLimits { in_capsule_data: 0, ..TargetLimits::default() };
    let registry = Registry::new(limits, 1);
    let _ = registry.apply(now, config(&[]));
    let mut host = Host::connect(&registry, now, NQN, 0);
    let id = id_ctrl(&mut host);
    assert_eq!((id.ioccsz.get(), id.sgls.get(), id.msdbd), (4, 0b101, 1));
    let room = |in_capsule_data| TargetLimits { in_capsule_data, ..limits }.max_sgl_descriptors();
    assert_eq!([16, 48, 256, 16384].map(room), [1, 3, 16, 16], "descriptors have to fit the capsule");
}

#[test]
fn the_number_of_queues_is_settled_before_the_first_io_queue() {
    let now = now();
    let registry = target(now);
    let mut host = Host::connect(&registry, now, NQN, 0);
    assert_eq!(host.set_feature(fid::NUMBER_OF_QUEUES, 0), Ok(127 | 127 << 16));
    assert_eq!(host.set_feature(fid::NUMBER_OF_QUEUES, 0xffff), Err(Status::INVALID_FIELD));
    assert_eq!(host.set_feature(fid::NUMBER_OF_QUEUES, 0xffff << 16), Err(Status::INVALID_FIELD));
    let queue = connect_io(&registry, host.controller.cntlid(), 1).unwrap();
    assert_eq!((queue.qid, queue.entries, queue.admin_reactor), (1, 128, 0));
    host.controller.io_queue_connected();
    assert_eq!(host.set_feature(fid::NUMBER_OF_QUEUES, 3), Err(Status::COMMAND_SEQUENCE_ERROR));
    assert_eq!(host.get_feature(fid::NUMBER_OF_QUEUES, Select::Current), Ok(127 | 127 << 16));
}

// What a host checks of namespaces.

#[test]
fn the_active_list_starts_above_the_number_given() {
    let mut host = host();
    let list = |host: &mut Host, nsid, which| -> Result<Vec<u32>, Status> {
        let page: [u8; 4096] = host.identify(nsid, which)?;
        let numbers = page.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap()));
        Ok(numbers.take_while(|&nsid| nsid != 0).collect())
    };
    for which in [cns::ACTIVE_NAMESPACES, cns::CSI_ACTIVE_NAMESPACES] {
        assert_eq!(list(&mut host, 0, which), Ok(vec![1, 2, 5]));
        assert_eq!(list(&mut host, 1, which), Ok(vec![2, 5]));
        assert_eq!(list(&mut host, 5, which), Ok(vec![]));
        for nsid in [0xffff_fffe, 0xffff_ffff] {
            assert_eq!(list(&mut host, nsid, which), Err(Status::INVALID_NAMESPACE_OR_FORMAT));
        }
    }
}

#[test]
fn a_plain_namespace_is_described_exactly() {
    let id: IdentifyNamespace = host().identify(1, cns::NAMESPACE).unwrap();
    assert_eq!((id.nsze.get(), id.ncap.get(), id.nuse.get()), (1000, 1000, 1000));
    assert_eq!((id.flbas, id.nlbaf, id.mc, id.dpc, id.dps), (0, 0, 0, 0, 0));
    assert_eq!(id.lbaf[0], LbaFormatValue { ms: 0, lbads: 12 }.into());
    assert_eq!(id.nmic, 1, "shared between controllers");
    assert_eq!(id.dlfeat, 0b1001);
    assert_eq!(u128::from_le_bytes(id.nvmcap), 4_096_000);
    assert_ne!(id.nguid, [0; 16]);
    assert_eq!(id.nsattr, 0);
}

struct LbaFormatValue {
    ms: u16,
    lbads: u8,
}

impl From<LbaFormatValue> for crate::nvmf::wire::identify::LbaFormat {
    fn from(value: LbaFormatValue) -> Self {
        Self { ms: value.ms.into(), lbads: value.lbads, rp: 0 }
    }
}

#[test]
fn a_protected_namespace_is_one_that_linux_takes() {
    let mut host = host();
    let id: IdentifyNamespace = host.identify(2, cns::NAMESPACE).unwrap();
    assert_eq!(id.flbas, 0x10, "metadata follows each block");
    assert_eq!(id.mc, 1, "and nothing else");
    assert_eq!(id.dpc, 0b1_0111, "types 1 to 3, last bytes");
    assert_eq!(id.dps, 1);
    assert_eq!(id.lbaf[usize::from(id.flbas & 0xf)], LbaFormatValue { ms: 8, lbads: 9 }.into());
    let nvm: IdentifyNamespaceNvm = host.identify(2, cns::CSI_NAMESPACE).unwrap();
    assert_eq!((nvm.lbstm.get(), nvm.pic, nvm.pifa, nvm.elbaf[0].get()), (0, 0, 0, 0));
}

#[test]
fn an_extended_format_is_described_in_the_nvm_structure() {
    let mut host = host();
    let id: IdentifyNamespace = host.identify(5, cns::NAMESPACE).unwrap();
    assert_eq!((id.dps, id.flbas), (3, 0x10));
    assert_eq!(id.lbaf[0], LbaFormatValue { ms: 16, lbads: 12 }.into());
    let nvm: IdentifyNamespaceNvm = host.identify(5, cns::CSI_NAMESPACE).unwrap();
    assert_eq!(nvm.lbstm.get(), 0x0f);
    assert_eq!(nvm.pic, 1);
    assert_eq!(nvm.elbaf[0].get(), 8 | 2 << 7, "STS 8, 64b guard");
}

#[test]
fn descriptors_carry_nguid_uuid_and_the_command_set() {
    let mut host = host();
    let list: [u8; 4096] = host.identify(1, cns::NAMESPACE_DESCRIPTORS).unwrap();
    let id: IdentifyNamespace = host.identify(1, cns::NAMESPACE).unwrap();
    let mut seen = Vec::new();
    let mut rest = &list[..];
    while rest[0] != 0 {
        let length = usize::from(rest[1]);
        seen.push((rest[0], rest[4..4 + length].to_vec()));
        rest = &rest[4 + length..];
    }
    let lengths: Vec<_> = seen.iter().map(|(kind, id)| (*kind, id.len())).collect();
    assert_eq!(lengths, [(2, 16), (3, 16), (4, 1)]);
    assert_eq!(seen[0].1, id.nguid);
    assert_eq!(seen[2].1, [0], "NVM command set");
    let missing = host.identify::<[u8; 4096]>(3, cns::NAMESPACE_DESCRIPTORS);
    assert_eq!(missing, Err(Status::INVALID_NAMESPACE_OR_FORMAT));
}

#[test]
fn inactive_numbers_read_as_zero_and_invalid_ones_are_refused() {
    let mut host = host();
    let id: IdentifyNamespace = host.identify(3, cns::NAMESPACE).unwrap();
    assert!(id.as_bytes().iter().all(|&b| b == 0));
    for nsid in [0, 1025, 0xffff_ffff] {
        for which in [cns::NAMESPACE, cns::CSI_NAMESPACE, cns::INDEPENDENT_NAMESPACE] {
            let refused = host.identify::<[u8; 4096]>(nsid, which);
            assert_eq!(refused, Err(Status::INVALID_NAMESPACE_OR_FORMAT), "{nsid:#x} {which}");
        }
    }
}

#[test]
fn other_identify_structures_are_there_or_refused() {
    let mut host = host();
    let nvm: IdentifyControllerNvm = host.identify(0, cns::CSI_CONTROLLER).unwrap();
    assert_eq!((nvm.vsl, nvm.wzsl, nvm.dmrl), (8, 8, 0));
    let independent: IdentifyNamespaceIndependent = host.identify(1, cns::INDEPENDENT_NAMESPACE).unwrap();
    assert_eq!((independent.nmic, independent.nstat), (1, 1));
    for which in [0x04, 0x09, 0x10, 0x11, 0x12, 0x13, 0x14, 0x1c, 0xff] {
        assert_eq!(host.identify::<[u8; 4096]>(1, which), Err(Status::INVALID_FIELD), "{which:#x}");
    }
    let zns = AdminOp::Identify { cns: cns::CSI_NAMESPACE, cntid: 0, cnssid: 0, csi: 2, uuid_index: 0 };
    assert_eq!(host.send(1, zns, 4096, &[]).unwrap_err(), Status::INVALID_IO_COMMAND_SET);
    let short = AdminOp::Identify { cns: cns::CONTROLLER, cntid: 0, cnssid: 0, csi: 0, uuid_index: 0 };
    assert_eq!(host.send(0, short, 4092, &[]).unwrap_err(), Status::SGL_DATA_LENGTH_INVALID);
}

// Features.

#[test]
fn features_answer_every_selector() {
    let mut host = host();
    assert_eq!(host.set_feature(fid::WRITE_ATOMICITY, 1), Ok(0));
    for (fid, current, default, changeable) in [
        (fid::ARBITRATION, 7, 7, false),
        (fid::POWER_MANAGEMENT, 0, 0, true),
        (fid::ERROR_RECOVERY, 0, 0, false),
        (fid::WRITE_ATOMICITY, 1, 0, true),
        (fid::ASYNC_EVENT_CONFIG, 0, 0, true),
        (fid::KEEP_ALIVE_TIMER, 5000, 0, true),
    ] {
        assert_eq!(host.get_feature(fid, Select::Current), Ok(current), "{fid:#x}");
        assert_eq!(host.get_feature(fid, Select::Default), Ok(default), "{fid:#x}");
        assert_eq!(host.get_feature(fid, Select::Saved), Ok(default), "{fid:#x}");
        let capabilities = if changeable { 4 } else { 0 };
        assert_eq!(host.get_feature(fid, Select::Capabilities), Ok(capabilities), "{fid:#x}");
    }
}

#[test]
fn what_is_no_feature_or_cannot_be_changed_is_refused_with_its_status() {
    let mut host = host();
    // Without a write cache there is no feature for it.
    for fid in [0x00, 0x03, fid::TEMPERATURE_THRESHOLD, fid::VOLATILE_WRITE_CACHE, 0x08, 0x10, 0x80, 0xff] {
        for select in [Select::Current, Select::Default, Select::Saved, Select::Capabilities] {
            assert_eq!(host.get_feature(fid, select), Err(Status::INVALID_FIELD), "{fid:#x}");
        }
        assert_eq!(host.set_feature(fid, 0), Err(Status::INVALID_FIELD), "{fid:#x}");
    }
    assert_eq!(host.set_feature(fid::ARBITRATION, 7), Err(Status::FEATURE_NOT_CHANGEABLE));
    assert_eq!(host.set_feature(fid::ERROR_RECOVERY, 1 << 16), Err(Status::FEATURE_NOT_CHANGEABLE));
    assert_eq!(host.set_feature(fid::HOST_IDENTIFIER, 0), Err(Status::COMMAND_SEQUENCE_ERROR));
    assert_eq!(host.set_feature(fid::POWER_MANAGEMENT, 1), Err(Status::INVALID_FIELD));
    assert_eq!(host.set_feature(fid::ASYNC_EVENT_CONFIG, 1 << 31), Err(Status::INVALID_FIELD));
    let save = AdminOp::SetFeatures { fid: fid::KEEP_ALIVE_TIMER, save: true, cdw: [1; 5] };
    assert_eq!(host.send(0, save, 0, &[]).unwrap_err(), Status::FEATURE_ID_NOT_SAVEABLE);
    let of_namespace = AdminOp::SetFeatures { fid: fid::KEEP_ALIVE_TIMER, save: false, cdw: [1; 5] };
    assert_eq!(host.send(1, of_namespace, 0, &[]).unwrap_err(), Status::FEATURE_NOT_NAMESPACE_SPECIFIC);
}

#[test]
fn the_host_identifier_is_that_of_connect_and_only_the_long_form() {
    let mut host = host();
    assert_eq!(host.get_feature_data(fid::HOST_IDENTIFIER), Ok(HOST_ID.to_vec()));
    let short = AdminOp::GetFeatures { fid: fid::HOST_IDENTIFIER, select: Select::Current, cdw11: 0 };
    assert_eq!(host.send(0, short, 16, &[]).unwrap_err(), Status::INVALID_FIELD);
    let no_room = AdminOp::GetFeatures { fid: fid::HOST_IDENTIFIER, select: Select::Current, cdw11: 1 };
    assert_eq!(host.send(0, no_room, 8, &[]).unwrap_err(), Status::SGL_DATA_LENGTH_INVALID);
}

#[test]
fn a_timestamp_goes_on_from_what_the_host_set() {
    let mut host = host();
    assert_eq!(host.get_feature_data(fid::TIMESTAMP), Ok(vec![0; 8]));
    let set = 1_700_000_000_000_u64.to_le_bytes();
    assert_eq!(host.set_feature_data(fid::TIMESTAMP, &set), Ok(0));
    host.pass(Duration::from_millis(1234));
    let mut expected = 1_700_000_001_234_u64.to_le_bytes();
    expected[6] = 0b10;
    assert_eq!(host.get_feature_data(fid::TIMESTAMP), Ok(expected.to_vec()));
}

#[test]
fn extended_formats_need_the_hosts_declaration_which_a_reset_forgets() {
    let mut host = host();
    let mut behavior = vec![0; 512];
    behavior[2] = 1;
    assert_eq!(host.controller.shared().io_limits().extended_formats, ExtendedFormats::Disabled);
    assert_eq!(host.set_feature_data(fid::HOST_BEHAVIOR_SUPPORT, &behavior), Ok(0));
    assert_eq!(host.controller.shared().io_limits().extended_formats, ExtendedFormats::Enabled);
    assert_eq!(host.get_feature_data(fid::HOST_BEHAVIOR_SUPPORT), Ok(behavior.clone()));
    behavior[2] = 2;
    assert_eq!(host.set_feature_data(fid::HOST_BEHAVIOR_SUPPORT, &behavior), Err(Status::INVALID_FIELD));
    assert_eq!(host.set(property::CC, 0), Ok(Some(Effect::Reset)));
    assert_eq!(host.set(property::CC, CC_ENABLE), Ok(None));
    assert_eq!(host.controller.shared().io_limits().extended_formats, ExtendedFormats::Disabled);
}

// Log pages.

#[test]
fn supported_pages_and_features_list_what_is_there_and_nothing_else() {
    let mut host = host();
    let listed = |page: Vec<u8>| -> Vec<u8> {
        let entries = page.chunks_exact(4).map(|c| u32::from_le_bytes(c.try_into().unwrap()));
        (0..=255).zip(entries).filter(|(_, e)| e & 1 == 1).map(|(id, _)| id).collect()
    };
    let pages = listed(host.log(lid::SUPPORTED_LOG_PAGES, 0, 1024, true).unwrap());
    assert_eq!(pages, [0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x12, 0x13]);
    for page in 0..=255 {
        let answer = host.log(page, 0, 4, true).map(|_| ());
        let expected = if pages.contains(&page) { Ok(()) } else { Err(Status::INVALID_LOG_PAGE) };
        assert_eq!(answer, expected, "{page:#x}");
    }
    let features = listed(host.log(lid::FEATURE_EFFECTS, 0, 1024, true).unwrap());
    assert_eq!(features, [0x01, 0x02, 0x05, 0x07, 0x0a, 0x0b, 0x0e, 0x0f, 0x16, 0x81]);
}

#[test]
fn the_effects_log_lists_exactly_the_commands_that_parse() {
    let mut host = host();
    let page = host.log(lid::COMMAND_EFFECTS, 0, 4096, false).unwrap();
    let entry = |index: usize| u32::from_le_bytes(page[index * 4..index * 4 + 4].try_into().unwrap());
    for opc in 0..=u8::MAX {
        let sqe = Sqe { opc, flags: PSDT_SGL, nsid: 0xff.into(), ..Sqe::default() };
        for (base, kind) in [(0, QueueKind::Admin), (256, QueueKind::Io)] {
            let supported = entry(base + usize::from(opc)) & 1 == 1;
            assert_eq!(Command::parse(&sqe, kind).is_ok(), supported, "{opc:#x} {kind:?}");
        }
    }
    let zns = AdminOp::GetLogPage {
        lid: lid::COMMAND_EFFECTS,
        lsp: 0,
        rae: false,
        length: 4096,
        lsi: 0,
        offset: 0,
        offset_is_index: false,
        csi: 2,
        uuid_index: 0,
    };
    assert_eq!(host.send(0, zns, 4096, &[]).unwrap_err(), Status::INVALID_IO_COMMAND_SET);
}

#[test]
fn log_pages_can_be_read_in_pieces_and_end_in_zeroes() {
    let mut host = host();
    let whole = host.log(lid::FIRMWARE_SLOT, 0, 512, false).unwrap();
    assert_eq!(whole[0], 1);
    assert_eq!(ascii(&whole[8..16]), env!("CARGO_PKG_VERSION"));
    let mut pieces = host.log(lid::FIRMWARE_SLOT, 0, 12, false).unwrap();
    pieces.extend(host.log(lid::FIRMWARE_SLOT, 12, 500, false).unwrap());
    assert_eq!(pieces, whole);
    let beyond = host.log(lid::FIRMWARE_SLOT, 508, 16, false).unwrap();
    assert_eq!(beyond, [0; 16]);
    for offset in [1, 2, 3, 510, 512, 1 << 40, u64::MAX - 3] {
        assert_eq!(host.log(lid::FIRMWARE_SLOT, offset, 4, false), Err(Status::INVALID_FIELD), "{offset}");
    }
    assert_eq!(host.log(lid::ERROR_INFORMATION, 0, (1 << 20) + 4, false), Err(Status::INVALID_FIELD));
}

#[test]
fn an_index_instead_of_an_offset_is_refused() {
    let mut host = host();
    let op = AdminOp::GetLogPage {
        lid: lid::FIRMWARE_SLOT,
        lsp: 0,
        rae: false,
        length: 512,
        lsi: 0,
        offset: 0,
        offset_is_index: true,
        csi: 0,
        uuid_index: 0,
    };
    assert_eq!(host.send(0, op, 512, &[]).unwrap_err(), Status::INVALID_FIELD);
}

#[test]
fn failed_commands_are_in_the_error_log_newest_first() {
    let mut host = host();
    let shared = Arc::clone(host.controller.shared());
    for lba in 0..70 {
        shared.log_error(&ErrorRecord::new(3, 9, 2, 2, Status::GUARD_CHECK_ERROR).at_lba(lba));
    }
    let page = host.log(lid::ERROR_INFORMATION, 0, 4096, false).unwrap();
    let entry = |i: usize| ErrorEntry::read_from_bytes(&page[i * 64..i * 64 + 64]).unwrap();
    assert_eq!((entry(0).error_count.get(), entry(0).lba.get()), (70, 69));
    assert_eq!((entry(63).error_count.get(), entry(63).lba.get()), (7, 6));
    assert_eq!((entry(0).sqid.get(), entry(0).cmdid.get(), entry(0).opcode), (3, 9, 2));
    assert_eq!(entry(0).status.get(), 0x282 << 1);
    assert_eq!((entry(0).nsid.get(), entry(0).location.get()), (2, 0xffff));
    // Failed admin commands are logged as well.
    assert!(host.get_feature(0xff, Select::Current).is_err());
    let page = host.log(lid::ERROR_INFORMATION, 0, 64, false).unwrap();
    let newest = ErrorEntry::read_from_bytes(&page).unwrap();
    assert_eq!(newest.error_count.get(), 71);
    assert_eq!(newest.status.get(), Status::INVALID_FIELD.to_cqe());
}

#[test]
fn the_smart_log_adds_up_all_reactors() {
    let now = now();
    let registry = target(now);
    let mut host = Host::connect(&registry, now, NQN, 0);
    let subsystem = registry.subsystem(NQN).unwrap();
    for reactor in [0, 1] {
        for _ in 0..100 {
            subsystem.counters(reactor).read(4096);
            subsystem.counters(reactor).written(512_000);
        }
    }
    subsystem.counters(1).media_error();
    host.pass(Duration::from_secs(2 * 3600 + 5));
    let page = host.log(lid::SMART, 0, 512, true).unwrap();
    let smart = SmartLog::read_from_bytes(&page).unwrap();
    let value = |field: [u8; 16]| u128::from_le_bytes(field);
    assert_eq!((value(smart.host_reads), value(smart.host_writes)), (200, 200));
    assert_eq!((value(smart.data_units_read), value(smart.data_units_written)), (2, 200));
    assert_eq!((value(smart.power_on_hours), value(smart.media_errors)), (2, 1));
    assert_eq!((smart.critical_warning, smart.composite_temperature.get()), (0, 0));
}

// Keep alive.

#[test]
fn a_silent_host_expires_after_its_timeout_and_not_earlier() {
    let mut host = host();
    // What was sent to enable the controller counts as traffic of the first interval.
    host.pass(Duration::from_millis(5000));
    assert_eq!(host.controller.next_timeout(), Some(host.now));
    assert_eq!(host.controller.handle_timeout(host.now), None);
    host.pass(Duration::from_millis(4999));
    assert_eq!(host.controller.handle_timeout(host.now), None);
    host.pass(Duration::from_millis(1));
    assert_eq!(host.controller.handle_timeout(host.now), Some(KeepAliveExpired));
    assert_eq!(host.controller.next_timeout(), None);
    assert_eq!(host.get(property::CSTS), Ok(0b11), "fatal");
    assert_eq!(host.controller.shared().check_ready(), Err(Status::COMMAND_SEQUENCE_ERROR));
}

#[test]
fn traffic_on_any_queue_keeps_the_association() {
    let mut host = host();
    let shared = Arc::clone(host.controller.shared());
    for _ in 0..10 {
        shared.touch();
        host.pass(Duration::from_secs(5));
        assert_eq!(host.controller.handle_timeout(host.now), None);
    }
    assert_eq!(host.send(0, AdminOp::KeepAlive, 0, &[]), Ok((0, vec![])));
    host.pass(Duration::from_secs(5));
    assert_eq!(host.controller.handle_timeout(host.now), None);
    host.pass(Duration::from_secs(5));
    assert_eq!(host.controller.handle_timeout(host.now), Some(KeepAliveExpired));
}

#[test]
fn the_timeout_is_rounded_up_to_the_announced_granularity() {
    let mut host = host();
    for (set, in_force) in [(1, 1000), (1000, 1000), (1001, 2000), (0, 0), (u32::MAX, u32::MAX)] {
        assert_eq!(host.set_feature(fid::KEEP_ALIVE_TIMER, set), Ok(0));
        assert_eq!(host.get_feature(fid::KEEP_ALIVE_TIMER, Select::Current), Ok(in_force.into()));
        assert_eq!(host.controller.next_timeout().is_some(), in_force != 0);
    }
}

#[test]
fn without_a_timeout_only_a_discovery_controller_expires() {
    let now = now();
    let registry = target(now);
    let io = Host::connect(&registry, now, NQN, 0);
    assert_eq!(io.controller.next_timeout(), None);
    let discovery = Host::connect(&registry, now, DISCOVERY_NQN, 0);
    assert_eq!(discovery.controller.next_timeout(), Some(now + Duration::from_secs(120)));
}

// Asynchronous events and Abort.

fn enable_namespace_events(host: &mut Host) {
    assert_eq!(host.set_feature(fid::ASYNC_EVENT_CONFIG, 1 << 8), Ok(0));
}

fn notify(host: &mut Host, nsids: &[u32]) {
    host.controller.shared().notify(|notices| notices.namespaces.extend(nsids));
    host.controller.handle_notices();
}

#[test]
fn a_change_is_reported_once_until_its_page_was_read() {
    let mut host = host();
    enable_namespace_events(&mut host);
    let first = host.request_event().unwrap();
    let second = host.request_event().unwrap();
    assert_eq!(host.controller.poll_event_completion(), None);
    notify(&mut host, &[5]);
    let event = |cid| AerCompletion { cid, status: Status::SUCCESS, result: 0x04_0002 };
    assert_eq!(host.controller.poll_event_completion(), Some(event(first)));
    notify(&mut host, &[2]);
    assert_eq!(host.controller.poll_event_completion(), None);
    let numbers = |page: Vec<u8>| [page[0], page[4], page[8]];
    assert_eq!(numbers(host.log(lid::CHANGED_NAMESPACES, 0, 4096, true).unwrap()), [2, 5, 0]);
    notify(&mut host, &[1]);
    assert_eq!(host.controller.poll_event_completion(), None, "the event was retained");
    assert_eq!(numbers(host.log(lid::CHANGED_NAMESPACES, 0, 4096, false).unwrap()), [1, 2, 5]);
    assert_eq!(numbers(host.log(lid::CHANGED_NAMESPACES, 0, 4096, false).unwrap()), [0, 0, 0]);
    notify(&mut host, &[1]);
    assert_eq!(host.controller.poll_event_completion(), Some(event(second)));
}

#[test]
fn an_event_waits_for_a_request_and_needs_to_be_enabled() {
    let mut host = host();
    notify(&mut host, &[1]);
    host.request_event().unwrap();
    assert_eq!(host.controller.poll_event_completion(), None, "not enabled");
    enable_namespace_events(&mut host);
    notify(&mut host, &[1]);
    assert!(host.controller.poll_event_completion().is_some());
    assert!(host.log(lid::CHANGED_NAMESPACES, 0, 4096, false).is_ok());
    notify(&mut host, &[1]);
    assert_eq!(host.controller.poll_event_completion(), None, "no request");
    let cid = host.request_event().unwrap();
    assert_eq!(host.controller.poll_event_completion().map(|done| done.cid), Some(cid));
}

#[test]
fn a_fifth_event_request_is_one_too_many() {
    let mut host = host();
    for _ in 0..4 {
        assert!(host.request_event().is_ok());
    }
    assert_eq!(host.request_event(), Err(Status::ASYNC_EVENT_LIMIT_EXCEEDED));
}

#[test]
fn abort_ends_an_event_request_and_nothing_else() {
    let mut host = host();
    let cid = host.request_event().unwrap();
    let abort = |host: &mut Host, sqid, cid| host.send(0, AdminOp::Abort { sqid, cid }, 0, &[]).unwrap().0;
    assert_eq!(abort(&mut host, 1, cid), 1, "not aborted: another queue");
    assert_eq!(abort(&mut host, 0, cid + 100), 1);
    assert_eq!(abort(&mut host, 0, cid), 0);
    let done = host.controller.poll_event_completion().unwrap();
    assert_eq!((done.cid, done.status), (cid, Status::COMMAND_ABORT_REQUESTED));
    assert_eq!(abort(&mut host, 0, cid), 1, "gone already");
}

#[test]
fn a_reset_ends_event_requests_and_forgets_configuration() {
    let mut host = host();
    enable_namespace_events(&mut host);
    let cid = host.request_event().unwrap();
    assert_eq!(host.set(property::CC, 0), Ok(Some(Effect::Reset)));
    assert_eq!(host.controller.poll_event_completion().map(|done| done.cid), Some(cid));
    assert_eq!(host.set(property::CC, CC_ENABLE), Ok(None));
    assert_eq!(host.get_feature(fid::ASYNC_EVENT_CONFIG, Select::Current), Ok(0));
    assert_eq!(
        host.get_feature(fid::KEEP_ALIVE_TIMER, Select::Current),
        Ok(5000),
        "belongs to the association"
    );
}

// Bad input.

proptest! {
    #[test]
    fn no_admin_entry_makes_a_controller_panic_or_answer_out_of_bounds(
        raw in proptest::collection::vec(any::<[u8; 32]>(), 2 * 24),
        opcodes in proptest::collection::vec(0_usize..7, 24),
        small in any::<bool>(),
    ) {
        let mut host = host();
        let known = [0x02, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18];
        let data = [0xff; 4096];
        let mut pending = 0;
        for (entry, opcode) in raw.chunks_exact(2).zip(opcodes) {
            let mut bytes = [0; 64];
            bytes[..32].copy_from_slice(&entry[0]);
            bytes[32..].copy_from_slice(&entry[1]);
            bytes[0] = known[opcode];
            bytes[1] = PSDT_SGL;
            bytes[39] = 0x4f;
            if small {
                // Small numbers reach further than random ones.
                for at in [4, 40, 44, 48, 52] {
                    bytes[at] &= 0x1f;
                    bytes[at + 1..at + 4].fill(0);
                }
                bytes[32..35].copy_from_slice(&[0, 0x10, 0]);
            }
            let sqe = Sqe::read_from_bytes(&bytes).unwrap();
            let Ok(Command::Admin(command)) = Command::parse(&sqe, QueueKind::Admin) else { continue };
            let Ok(lengths) = host.controller.data_lengths(&command) else { continue };
            prop_assert!(lengths.to_host <= 1 << 20 && lengths.from_host <= 512);
            let mut out = vec![0; lengths.to_host];
            match host.controller.admin(host.now, &command, &data[..lengths.from_host], &mut out) {
                AdminOutcome::Pend => pending += 1,
                AdminOutcome::Complete { data_len, .. } => prop_assert!(data_len <= lengths.to_host),
            }
            while host.controller.poll_event_completion().is_some() {
                pending -= 1;
            }
            prop_assert!((0..=4).contains(&pending));
        }
    }

    #[test]
    fn no_property_write_makes_a_controller_panic(writes in proptest::collection::vec((any::<u32>(), any::<u64>()), 20)) {
        let mut host = host();
        for (offset, value) in writes {
            let offset = if offset & 1 == 0 { property::CC } else { offset };
            let _ = host.set(offset, value);
            let csts = host.get(property::CSTS).unwrap();
            prop_assert_eq!(csts & !0b1111, 0);
            prop_assert_eq!(host.controller.shared().check_ready().is_ok(), csts & 0b11 == 1);
        }
    }
}
