use proptest::prelude::*;
use rwctx::remote::{RemoteAddr, RemoteSegment, Rkey};
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::nvmf::wire::sgl::KeyedDataBlock;
use crate::nvmf::wire::sqe::io_opcode;

/// Every command capsule of three recorded Linux hosts: `host QPN hex`.
const CAPSULES: &str = include_str!("../../../tests/data/nvme-capsules.txt");

fn sqe(hex: &str) -> Sqe {
    let bytes: Vec<u8> =
        (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect();
    Sqe::read_from_bytes(&bytes).unwrap()
}

fn io(hex: &str) -> IoCommand {
    match Command::parse(&sqe(hex), QueueKind::Io).unwrap() {
        Command::Io(command) => command,
        other => panic!("{other:?}"),
    }
}

fn admin(hex: &str) -> AdminCommand {
    match Command::parse(&sqe(hex), QueueKind::Admin).unwrap() {
        Command::Admin(command) => command,
        other => panic!("{other:?}"),
    }
}

fn keyed(addr: u64, length: u32, rkey: u32, invalidate: bool) -> DataPointer {
    let at = RemoteAddr { addr, rkey: Rkey(rkey) };
    DataPointer::Keyed { segment: RemoteSegment { at, length }, invalidate }
}

#[test]
fn every_capsule_recorded_from_linux_hosts_parses_and_is_emitted_byte_for_byte() {
    // QPNs that were I/O queues, told by their Connect.
    let is_io = |host: &str, qpn: &str| {
        matches!((host, qpn), ("linux-6.1", "18") | ("linux-6.12" | "linux-nvme-a", "19"))
    };
    let mut parsed = 0;
    for line in CAPSULES.lines() {
        let [host, qpn, hex] = line.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let kind = if is_io(host, qpn) { QueueKind::Io } else { QueueKind::Admin };
        let sqe = sqe(hex);
        let command = Command::parse(&sqe, kind).unwrap_or_else(|status| panic!("{line}: {status}"));
        assert_eq!(command.cid(), sqe.cid.get());
        assert_eq!(command.emit().as_bytes(), sqe.as_bytes(), "{line}");
        parsed += 1;
    }
    assert_eq!(parsed, 127);
}

#[test]
fn a_recorded_write_of_32_blocks_is_read_exactly() {
    let hex = "01400110010000000000000000000000000000000000000000202f89802822ff000002ac4400004f\
               20000000000000001f000000000000000000000000000000";
    let command = io(hex);
    assert_eq!(command.cid, 0x1001);
    assert_eq!(command.nsid, 1);
    assert_eq!(command.dptr, keyed(0xff22_2880_892f_2000, 0x2_0000, 0x44ac, true));
    assert_eq!(command.dptr.invalidate_rkey(), Some(Rkey(0x44ac)));
    let range = command.op.range().unwrap();
    assert_eq!((range.slba, range.blocks, range.fua), (0x20, 32, false));
    assert_eq!(range.pi, PiFields::default());
    assert_eq!(command.op.direction(), Direction::FromHost);
}

#[test]
fn a_recorded_connect_with_in_capsule_data_is_read_exactly() {
    let hex = "7f400000010000000000000000000000000000000000000000000000000000000004000000000001\
               000001007f00000000000000000000000000000000000000";
    let Command::Fabrics(command) = Command::parse(&sqe(hex), QueueKind::Io).unwrap() else { panic!() };
    assert_eq!(command.dptr, DataPointer::InCapsule { offset: 0, length: 1024 });
    let FabricsOp::Connect(connect) = command.op else { panic!() };
    assert_eq!(connect, ConnectFields { recfmt: 0, qid: 1, sq_entries: 128, cattr: 0, kato_ms: 0 });
}

#[test]
fn a_recorded_admin_connect_states_its_keep_alive_in_milliseconds() {
    let hex = "7f400000010000000000000000000000000000000000000000fc90c2a18bffff000400c80b00004f\
               000000001f00000088130000000000000000000000000000";
    let Command::Fabrics(command) = Command::parse(&sqe(hex), QueueKind::Admin).unwrap() else { panic!() };
    let FabricsOp::Connect(connect) = command.op else { panic!() };
    assert_eq!(connect, ConnectFields { recfmt: 0, qid: 0, sq_entries: 32, cattr: 0, kato_ms: 5000 });
    assert_eq!(command.dptr, keyed(0xffff_8ba1_c290_fc00, 1024, 0xbc8, true));
}

#[test]
fn a_recorded_property_set_of_cc_is_read_exactly() {
    let hex = "7f400010000000000000000000000000000000000000000000000000000000000000000000000040\
               000000001400000060004600000000000000000000000000";
    let Command::Fabrics(command) = Command::parse(&sqe(hex), QueueKind::Admin).unwrap() else { panic!() };
    assert_eq!(command.dptr, DataPointer::None);
    assert_eq!(
        command.op,
        FabricsOp::PropertySet { size: PropertySize::Dword, offset: 0x14, value: 0x46_0060 }
    );
}

#[test]
fn recorded_log_page_requests_give_lengths_in_bytes() {
    let discovery = admin(
        "02401100000000000000000000000000000000000000000060823589802822ff000400310300004f\
         7080ff000000000000000000000000000000000000000000",
    );
    let AdminOp::GetLogPage { lid, rae, length, offset, .. } = discovery.op else { panic!() };
    assert_eq!((lid, rae, length, offset), (0x70, true, 1024, 0));
    let effects = admin(
        "024003000000000000000000000000000000000000000000009086c2a18bffff001000ca0b00004f\
         0500ff030000000000000000000000000000000000000000",
    );
    let AdminOp::GetLogPage { lid, rae, length, csi, .. } = effects.op else { panic!() };
    assert_eq!((lid, rae, length, csi), (0x05, false, 4096, 0));
}

#[test]
fn a_recorded_set_features_asks_for_its_queues() {
    let command = admin(
        "09400210000000000000000000000000000000000000000000000000000000000000000000000040\
         070000000000000000000000000000000000000000000000",
    );
    assert_eq!(command.op, AdminOp::SetFeatures { fid: 7, save: false, cdw: [0; 5] });
}

#[test]
fn sgl_forms_that_are_not_announced_are_refused_with_the_right_status() {
    let mut descriptor = [0; 16];
    descriptor[8] = 1;
    for (sglid, status) in [
        (0x00, Status::INVALID_FIELD),
        (0x02, Status::INVALID_FIELD),
        (0x0f, Status::INVALID_FIELD),
        (0x41, Status::INVALID_FIELD),
        (0x4a, Status::INVALID_FIELD),
        (0x10, Status::SGL_DESCRIPTOR_TYPE_INVALID),
        (0x20, Status::SGL_DESCRIPTOR_TYPE_INVALID),
        (0x30, Status::SGL_DESCRIPTOR_TYPE_INVALID),
        (0x5a, Status::SGL_DESCRIPTOR_TYPE_INVALID),
        (0xf0, Status::SGL_DESCRIPTOR_TYPE_INVALID),
    ] {
        descriptor[15] = sglid;
        assert_eq!(DataPointer::parse(&descriptor), Err(status), "{sglid:#x}");
    }
}

#[test]
fn a_last_segment_in_the_capsule_names_1_to_16_descriptors() {
    for (length, parsed) in [
        (0, Err(Status::INVALID_SGL_SEGMENT_DESCRIPTOR)),
        (8, Err(Status::INVALID_SGL_SEGMENT_DESCRIPTOR)),
        (40, Err(Status::INVALID_SGL_SEGMENT_DESCRIPTOR)),
        (16, Ok(())),
        (256, Ok(())),
        (272, Err(Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS)),
        (0xffff_fff0, Err(Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS)),
    ] {
        let dptr = DataPointer::LastSegment { offset: 48, length };
        assert_eq!(DataPointer::parse(&dptr.emit()), parsed.map(|()| dptr), "{length}");
    }
    let at = |offset, length| DataPointer::LastSegment { offset, length };
    assert_eq!((at(0, 32).length(), at(0, 32).invalidate_rkey()), (0, None), "the descriptors say that");
    assert_eq!(at(48, 32).in_capsule_range(80, 4096), Ok(Some(48..80)));
    let not_received = at(48, 32).in_capsule_range(79, 4096);
    assert_eq!(not_received, Err(Status::INVALID_SGL_SEGMENT_DESCRIPTOR));
    assert_eq!(at(4080, 32).in_capsule_range(9999, 4096), Err(Status::SGL_OFFSET_INVALID));
    assert_eq!(at(u64::MAX, 32).in_capsule_range(9999, 4096), Err(Status::SGL_OFFSET_INVALID));
}

#[test]
fn only_io_commands_have_several_descriptors() {
    let dptr = DataPointer::LastSegment { offset: 0, length: 32 };
    let mut read = IoCommand { cid: 1, opcode: 0, nsid: 1, op: IoOp::Flush, dptr }.emit();
    assert_eq!(
        Command::parse(&read, QueueKind::Io),
        Err(Status::SGL_DATA_LENGTH_INVALID),
        "Flush has no data"
    );
    read.opc = 0x02;
    let Ok(Command::Io(command)) = Command::parse(&read, QueueKind::Io) else { panic!("a Read") };
    assert_eq!(command.dptr, dptr);
    // Opcode 2 of the admin queue is Get Log Page.
    assert_eq!(Command::parse(&read, QueueKind::Admin), Err(Status::SGL_DESCRIPTOR_TYPE_INVALID));
    let fields = ConnectFields { recfmt: 0, qid: 1, sq_entries: 32, cattr: 0, kato_ms: 0 };
    let connect = FabricsCommand { cid: 1, op: FabricsOp::Connect(fields), dptr }.emit();
    assert_eq!(Command::parse(&connect, QueueKind::Io), Err(Status::SGL_DESCRIPTOR_TYPE_INVALID));
}

#[test]
fn memory_that_wraps_around_the_address_space_is_refused() {
    let at = |addr: u64| {
        let at = RemoteAddr { addr, rkey: Rkey(7) };
        DataPointer::Keyed { segment: RemoteSegment { at, length: 4096 }, invalidate: true }
    };
    assert!(DataPointer::parse(&at(u64::MAX - 4096).emit()).is_ok());
    assert_eq!(DataPointer::parse(&at(u64::MAX - 4095).emit()), Err(Status::INVALID_FIELD));
    assert_eq!(DataPointer::parse(&at(u64::MAX).emit()), Err(Status::INVALID_FIELD));
}

#[test]
fn an_in_capsule_descriptor_stays_within_the_capsule_and_what_was_received() {
    let at = |offset, length| DataPointer::InCapsule { offset, length };
    assert_eq!(at(0, 4096).in_capsule_range(4096, 4096), Ok(Some(0..4096)));
    assert_eq!(at(512, 512).in_capsule_range(4096, 4096), Ok(Some(512..1024)));
    assert_eq!(at(1, 4096).in_capsule_range(8192, 4096), Err(Status::SGL_OFFSET_INVALID));
    assert_eq!(at(u64::MAX, 1).in_capsule_range(4096, 4096), Err(Status::SGL_OFFSET_INVALID));
    assert_eq!(at(0, u32::MAX).in_capsule_range(4096, 4096), Err(Status::SGL_OFFSET_INVALID));
    assert_eq!(at(0, 1024).in_capsule_range(512, 4096), Err(Status::SGL_DATA_LENGTH_INVALID));
    assert_eq!(DataPointer::None.in_capsule_range(0, 0), Ok(None));
}

#[test]
fn data_in_the_capsule_is_refused_for_commands_that_send_data_to_the_host() {
    let mut read = IoCommand {
        cid: 1,
        opcode: io_opcode::READ,
        nsid: 1,
        op: IoOp::Read(BlockRange {
            slba: 0,
            blocks: 1,
            fua: false,
            limited_retry: false,
            pi: PiFields::default(),
        }),
        dptr: DataPointer::InCapsule { offset: 0, length: 512 },
    }
    .emit();
    assert_eq!(Command::parse(&read, QueueKind::Io), Err(Status::INVALID_FIELD));
    read.opc = io_opcode::FLUSH;
    assert_eq!(Command::parse(&read, QueueKind::Io), Err(Status::SGL_DATA_LENGTH_INVALID));
}

#[test]
fn flags_other_than_sgl_without_fuse_are_refused() {
    for flags in [0x00, 0x80, 0xc0, 0x41, 0x42, 0x43] {
        let sqe = Sqe { opc: io_opcode::FLUSH, flags, ..Sqe::default() };
        assert_eq!(Command::parse(&sqe, QueueKind::Io), Err(Status::INVALID_FIELD), "{flags:#x}");
    }
}

#[test]
fn opcodes_that_are_not_carried_out_are_invalid_opcodes() {
    for opc in 0..=u8::MAX {
        let sqe = Sqe { opc, flags: PSDT_SGL, nsid: 0xff.into(), ..Sqe::default() };
        let known_admin = matches!(opc, 0x02 | 0x06 | 0x08 | 0x09 | 0x0a | 0x0c | 0x18);
        let known_io = matches!(opc, 0x00 | 0x01 | 0x02 | 0x05 | 0x08 | 0x09 | 0x0c);
        for (kind, known) in [(QueueKind::Admin, known_admin), (QueueKind::Io, known_io)] {
            let result = Command::parse(&sqe, kind);
            assert_eq!(result.is_err(), !known, "{opc:#x} on {kind:?}: {result:?}");
            if !known {
                assert_eq!(result, Err(Status::INVALID_OPCODE), "{opc:#x} on {kind:?}");
            }
        }
    }
}

#[test]
fn protection_bits_of_cdw12_are_read_one_by_one() {
    let command = |cdw12: u32| {
        let sqe = Sqe { opc: io_opcode::WRITE, flags: PSDT_SGL, cdw12: cdw12.into(), ..Sqe::default() };
        match Command::parse(&sqe, QueueKind::Io).unwrap() {
            Command::Io(IoCommand { op: IoOp::Write(range), .. }) => range,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(command(0).pi, PiFields::default());
    assert!(command(1 << 24).pi.checks.storage_tag);
    assert!(command(1 << 26).pi.checks.ref_tag);
    assert!(command(1 << 27).pi.checks.app_tag);
    assert!(command(1 << 28).pi.checks.guard);
    assert!(command(1 << 29).pi.pract);
    assert!(command(1 << 30).fua);
    assert!(command(1 << 31).limited_retry);
    assert_eq!(command(0xffff).blocks, 65536);
}

#[test]
fn directives_and_command_extensions_are_refused() {
    for (opc, cdw12) in [(0x01, 1_u32 << 20), (0x01, 1 << 16), (0x02, 1 << 19), (0x08, 1 << 23)] {
        let sqe = Sqe { opc, flags: PSDT_SGL, cdw12: cdw12.into(), ..Sqe::default() };
        assert_eq!(Command::parse(&sqe, QueueKind::Io), Err(Status::INVALID_FIELD), "{opc:#x} {cdw12:#x}");
    }
}

fn any_pi() -> impl Strategy<Value = PiFields> {
    (any::<[bool; 5]>(), any::<u16>(), any::<u16>(), any::<[u32; 3]>()).prop_map(
        |(b, app_tag, mask, tags)| PiFields {
            pract: b[0],
            checks: t10pi::Checks { guard: b[1], app_tag: b[2], ref_tag: b[3], storage_tag: b[4] },
            app_tag,
            app_tag_mask: mask,
            command_tags: t10pi::CommandTags { cdw2: tags[0] & 0xffff, cdw3: tags[1], cdw14: tags[2] },
        },
    )
}

fn any_range() -> impl Strategy<Value = BlockRange> {
    (any::<u64>(), 1_u32..=65536, any::<bool>(), any::<bool>(), any_pi()).prop_map(
        |(slba, blocks, fua, limited_retry, pi)| BlockRange { slba, blocks, fua, limited_retry, pi },
    )
}

fn any_io() -> impl Strategy<Value = IoCommand> {
    let op = prop_oneof![
        Just((io_opcode::FLUSH, IoOp::Flush)),
        any_range().prop_map(|r| (io_opcode::READ, IoOp::Read(r))),
        any_range().prop_map(|r| (io_opcode::WRITE, IoOp::Write(r))),
        any_range().prop_map(|r| (io_opcode::COMPARE, IoOp::Compare(r))),
        any_range().prop_map(|r| (io_opcode::VERIFY, IoOp::Verify(r))),
        (any_range(), any::<bool>()).prop_map(|(range, deallocate)| (
            io_opcode::WRITE_ZEROES,
            IoOp::WriteZeroes { range, deallocate }
        )),
        (1_u16..=256, any::<bool>()).prop_map(|(ranges, deallocate)| {
            (io_opcode::DATASET_MANAGEMENT, IoOp::DatasetManagement { ranges, deallocate })
        }),
    ];
    let data = (any::<u64>(), 1..=KeyedDataBlock::MAX_LENGTH, any::<u32>(), any::<bool>());
    (any::<u16>(), any::<u32>(), op, data).prop_map(|(cid, nsid, (opcode, op), (addr, len, key, inv))| {
        let dptr = match op.direction() {
            Direction::None => DataPointer::None,
            _ => keyed(addr, len, key, inv),
        };
        IoCommand { cid, opcode, nsid, op, dptr }
    })
}

proptest! {
    #[test]
    fn parsing_what_a_host_emits_gives_the_same_command(command in any_io()) {
        prop_assert_eq!(Command::parse(&command.emit(), QueueKind::Io), Ok(Command::Io(command)));
    }

    #[test]
    fn no_entry_makes_the_parser_panic_and_what_parses_is_emitted_the_same(bytes in any::<[u8; 32]>(), more in any::<[u8; 32]>(), io in any::<bool>()) {
        let mut raw = [0; 64];
        raw[..32].copy_from_slice(&bytes);
        raw[32..].copy_from_slice(&more);
        let kind = if io { QueueKind::Io } else { QueueKind::Admin };
        let mut sqe = Sqe::read_from_bytes(&raw).unwrap();
        if let Err(status) = Command::parse(&sqe, kind) {
            prop_assert!(!status.is_success() && status.is_dnr());
        }
        // The same with flags and descriptor that pass, so that the fields behind them are reached.
        sqe.flags = PSDT_SGL;
        sqe.dptr = DataPointer::None.emit();
        for opc in [0x00, 0x01, 0x02, 0x05, 0x06, 0x08, 0x09, 0x0a, 0x0c, 0x18, 0x7f] {
            sqe.opc = opc;
            if let Ok(command) = Command::parse(&sqe, kind) {
                prop_assert_eq!(Command::parse(&command.emit(), kind), Ok(command));
            }
        }
    }
}
