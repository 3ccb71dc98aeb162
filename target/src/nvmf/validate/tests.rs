use proptest::prelude::*;
use rwctx::remote::{RemoteAddr, RemoteSegment, Rkey};
use t10pi::{Checks, CommandTags, Guard};
use zerocopy::IntoBytes;

use super::*;
use crate::nvmf::command::{DataPointer, PiFields};
use crate::nvmf::wire::sqe::io_opcode;

const LIMITS: IoLimits = IoLimits { max_data: 1 << 20, extended_formats: ExtendedFormats::Disabled };

fn plain() -> NamespaceView {
    NamespaceView { blocks: 1000, block_size: 4096, metadata_size: 0, protection: None, read_only: false }
}

fn protected(pi_type: PiType, format: Format) -> NamespaceView {
    NamespaceView {
        block_size: format.block_size(),
        metadata_size: format.metadata_size(),
        protection: Some((format, pi_type)),
        ..plain()
    }
}

fn type1() -> NamespaceView {
    protected(PiType::Type1, Format::new(Guard::Crc16, 4096, 8).unwrap())
}

fn range(slba: u64, blocks: u32) -> BlockRange {
    BlockRange { slba, blocks, fua: false, limited_retry: false, pi: PiFields::default() }
}

fn with(range: BlockRange, edit: impl FnOnce(&mut PiFields)) -> BlockRange {
    let mut range = range;
    edit(&mut range.pi);
    range
}

fn command(op: IoOp, sgl: u32) -> IoCommand {
    let at = RemoteAddr { addr: 0x1000, rkey: Rkey(7) };
    let dptr = match sgl {
        0 => DataPointer::None,
        length => DataPointer::Keyed { segment: RemoteSegment { at, length }, invalidate: true },
    };
    IoCommand { cid: 1, opcode: io_opcode::READ, nsid: 1, op, dptr }
}

fn validated(command: &IoCommand, ns: &NamespaceView, limits: &IoLimits) -> Result<IoPlan, Status> {
    validate(command, command.dptr.length(), ns, limits)
}

fn check(op: IoOp, sgl: u32, ns: &NamespaceView) -> Result<BlockPlan, Status> {
    validated(&command(op, sgl), ns, &LIMITS).map(|plan| match plan {
        IoPlan::Blocks(plan) => plan,
        other => panic!("{other:?}"),
    })
}

#[test]
fn with_pract_and_only_the_tuple_as_metadata_the_wire_carries_data_alone() {
    let pract = with(range(0, 8), |pi| pi.pract = true);
    let write = check(IoOp::Write(pract), 32768, &type1()).unwrap();
    assert_eq!((write.wire, write.wire_len), (WireForm::Data, 32768));
    assert_eq!((write.data_len, write.metadata_len), (32768, 64));
    assert!(matches!(write.pi, PiAction::Insert(_)));
    let read = check(IoOp::Read(pract), 32768, &type1()).unwrap();
    assert_eq!((read.wire, read.wire_len), (WireForm::Data, 32768));
    assert!(matches!(read.pi, PiAction::Strip(_)));
}

#[test]
fn without_pract_the_wire_carries_each_block_with_its_tuple() {
    for op in [IoOp::Read(range(0, 8)), IoOp::Write(range(0, 8)), IoOp::Compare(range(0, 8))] {
        let plan = check(op, 32832, &type1()).unwrap();
        assert_eq!((plan.wire, plan.wire_len), (WireForm::Interleaved, 32832));
        assert!(matches!(plan.pi, PiAction::Pass(_)));
    }
}

#[test]
fn with_pract_and_more_metadata_than_the_tuple_the_wire_carries_all_of_it() {
    let ns = protected(PiType::Type1, Format::new(Guard::Crc16, 4096, 64).unwrap());
    let pract = with(range(0, 2), |pi| pi.pract = true);
    let write = check(IoOp::Write(pract), 2 * 4160, &ns).unwrap();
    assert!(matches!((write.wire, write.pi), (WireForm::Interleaved, PiAction::Insert(_))));
    let read = check(IoOp::Read(pract), 2 * 4160, &ns).unwrap();
    assert!(matches!((read.wire, read.pi), (WireForm::Interleaved, PiAction::Pass(_))));
}

#[test]
fn an_sgl_of_another_length_than_the_wire_form_is_refused() {
    let pract = with(range(0, 8), |pi| pi.pract = true);
    for (op, sgl) in [
        (IoOp::Write(range(0, 8)), 32768),
        (IoOp::Write(pract), 32832),
        (IoOp::Read(pract), 32832),
        (IoOp::Read(range(0, 8)), 32768),
        (IoOp::Read(range(0, 8)), 0),
        (IoOp::Read(range(0, 8)), 32833),
    ] {
        assert_eq!(check(op, sgl, &type1()).unwrap_err(), Status::SGL_DATA_LENGTH_INVALID, "{op:?} {sgl}");
    }
}

#[test]
fn a_type_0_namespace_ignores_prinfo() {
    let all = with(range(0, 8), |pi| {
        pi.pract = true;
        pi.checks = Checks::ALL;
    });
    for op in [IoOp::Read(all), IoOp::Write(all), IoOp::Compare(all)] {
        assert!(matches!(check(op, 32768, &plain()).unwrap().pi, PiAction::None));
    }
    for op in [IoOp::Verify(all), IoOp::WriteZeroes { range: all, deallocate: false }] {
        assert!(matches!(check(op, 0, &plain()).unwrap().pi, PiAction::None));
    }
}

#[test]
fn type_1_with_ref_check_wants_the_low_bits_of_the_lba() {
    let ns = NamespaceView { blocks: 1 << 40, ..type1() };
    let ask = |slba: u64, tag: u32, check_ref: bool, pract: bool| {
        let range = with(range(slba, 1), |pi| {
            pi.checks.ref_tag = check_ref;
            pi.pract = pract;
            pi.command_tags.cdw14 = tag;
        });
        check(IoOp::Write(range), if pract { 4096 } else { 4104 }, &ns).map(|_| ())
    };
    let refused = Err(Status::INVALID_PROTECTION_INFORMATION);
    assert_eq!(ask(5, 5, true, false), Ok(()));
    assert_eq!(ask(5, 6, true, false), refused);
    assert_eq!(ask(5, 6, false, false), Ok(()));
    assert_eq!(ask(5, 6, true, true), refused);
    assert_eq!(ask(0x1_0000_0005, 5, true, false), Ok(()));
}

#[test]
fn types_2_and_3_take_any_reference_tag() {
    for pi_type in [PiType::Type2, PiType::Type3] {
        let ns = protected(pi_type, Format::new(Guard::Crc16, 512, 8).unwrap());
        let range = with(range(5, 1), |pi| {
            pi.checks.ref_tag = true;
            pi.command_tags.cdw14 = 77;
        });
        let plan = check(IoOp::Read(range), 520, &ns).unwrap();
        let PiAction::Pass(context) = plan.pi else { panic!() };
        assert_eq!(context.tags().ref_tag, 77);
    }
}

#[test]
fn rules_of_single_commands_have_their_statuses() {
    let pract = with(range(0, 1), |pi| pi.pract = true);
    let guard = with(range(0, 1), |pi| pi.checks.guard = true);
    let stc = with(range(0, 1), |pi| pi.checks.storage_tag = true);
    let ns = type1();
    let invalid_pi = Status::INVALID_PROTECTION_INFORMATION;
    assert_eq!(check(IoOp::Verify(pract), 0, &ns).unwrap_err(), Status::INVALID_FIELD);
    assert_eq!(check(IoOp::Compare(pract), 4096, &ns).unwrap_err(), invalid_pi);
    for range in [guard, stc] {
        for deallocate in [false, true] {
            assert_eq!(check(IoOp::WriteZeroes { range, deallocate }, 0, &ns).unwrap_err(), invalid_pi);
        }
    }
    let zeroes = |range| check(IoOp::WriteZeroes { range, deallocate: false }, 0, &ns).unwrap().pi;
    assert!(matches!(zeroes(pract), PiAction::Insert(_)));
    assert!(matches!(zeroes(range(0, 1)), PiAction::Zero));
}

#[test]
fn an_extended_format_needs_the_hosts_consent() {
    let ns = protected(PiType::Type1, Format::new(Guard::Crc64, 4096, 16).unwrap());
    let consent = IoLimits { extended_formats: ExtendedFormats::Enabled, ..LIMITS };
    for (op, length) in [
        (IoOp::Read(range(0, 1)), 4112),
        (IoOp::Verify(range(0, 1)), 0),
        (IoOp::DatasetManagement { ranges: 1, deallocate: true }, 16),
        (IoOp::Flush, 0),
    ] {
        let command = command(op, length);
        let refused = validated(&command, &ns, &LIMITS).map(|_| ());
        assert_eq!(refused, Err(Status::INVALID_NAMESPACE_OR_FORMAT), "{command:?}");
        assert!(validated(&command, &ns, &consent).is_ok(), "{command:?}");
    }
}

#[test]
fn ordinary_limits_hold_with_and_without_metadata() {
    for (ns, per_block) in [(plain(), 4096), (type1(), 4104)] {
        assert!(check(IoOp::Read(range(0, 256)), 256 * per_block, &ns).is_ok());
        let too_long = check(IoOp::Read(range(0, 257)), 257 * per_block, &ns).unwrap_err();
        assert_eq!(too_long, Status::INVALID_FIELD);
        assert!(check(IoOp::Read(range(999, 1)), per_block, &ns).is_ok());
        for (slba, blocks) in [(999, 2), (1000, 1), (u64::MAX, 1), (u64::MAX, 65536)] {
            let status = check(IoOp::Read(range(slba, blocks)), per_block, &ns).unwrap_err();
            assert_eq!(status, Status::LBA_OUT_OF_RANGE);
        }
    }
}

#[test]
fn a_read_only_namespace_refuses_what_changes_blocks() {
    let ns = NamespaceView { read_only: true, ..plain() };
    let one = range(0, 1);
    let refused = Status::NAMESPACE_WRITE_PROTECTED;
    assert_eq!(check(IoOp::Write(one), 4096, &ns).unwrap_err(), refused);
    assert_eq!(check(IoOp::WriteZeroes { range: one, deallocate: true }, 0, &ns).unwrap_err(), refused);
    let dsm = command(IoOp::DatasetManagement { ranges: 1, deallocate: true }, 16);
    assert_eq!(validated(&dsm, &ns, &LIMITS).map(|_| ()), Err(refused));
    assert!(check(IoOp::Read(one), 4096, &ns).is_ok());
    assert!(check(IoOp::Compare(one), 4096, &ns).is_ok());
    assert!(matches!(validated(&command(IoOp::Flush, 0), &ns, &LIMITS), Ok(IoPlan::Flush)));
}

#[test]
fn a_range_list_may_have_more_room_than_ranges_but_not_less() {
    let dsm = |ranges, sgl| {
        validated(&command(IoOp::DatasetManagement { ranges, deallocate: true }, sgl), &plain(), &LIMITS)
    };
    // Linux sends one range in a buffer for 256.
    let plan = dsm(1, 4096).unwrap();
    assert!(matches!(plan, IoPlan::DatasetManagement { ranges: 1, list_len: 16, deallocate: true }));
    assert_eq!(dsm(2, 16).unwrap_err(), Status::SGL_DATA_LENGTH_INVALID);
    let entry = |slba: u64, nlb: u32| DsmRange { slba: slba.into(), nlb: nlb.into(), ..DsmRange::default() };
    assert_eq!(check_dsm_range(&entry(10, 5), &plain()), Ok(Some((10, 5))));
    assert_eq!(check_dsm_range(&entry(10, 0), &plain()), Ok(None));
    assert_eq!(check_dsm_range(&entry(999, 2), &plain()), Err(Status::LBA_OUT_OF_RANGE));
    assert_eq!(check_dsm_range(&entry(u64::MAX, u32::MAX), &plain()), Err(Status::LBA_OUT_OF_RANGE));
}

/// Formats of every kind, and namespaces without protection, with and without metadata.
fn any_namespace() -> impl Strategy<Value = NamespaceView> {
    let pi_type = prop_oneof![Just(PiType::Type1), Just(PiType::Type2), Just(PiType::Type3)];
    let format = prop_oneof![
        (Just(Guard::Crc16), 0_u8..=32),
        (Just(Guard::Crc32c), 16_u8..=64),
        (Just(Guard::Crc64), 0_u8..=48),
    ];
    let protected = (pi_type, format, any::<bool>()).prop_map(|(pi_type, (guard, bits), more)| {
        let metadata = u16::try_from(guard.tuple_size()).unwrap() + if more { 48 } else { 0 };
        protected(pi_type, Format::new(guard, 4096, metadata).unwrap().with_storage_tag(bits, 0).unwrap())
    });
    let opaque = NamespaceView { metadata_size: 8, ..plain() };
    prop_oneof![1 => Just(plain()), 1 => Just(opaque), 6 => protected]
}

/// One of the commands on a range of blocks.
fn block_op(which: u8, range: BlockRange, deallocate: bool) -> IoOp {
    match which {
        0 => IoOp::Read(range),
        1 => IoOp::Write(range),
        2 => IoOp::Compare(range),
        3 => IoOp::Verify(range),
        _ => IoOp::WriteZeroes { range, deallocate },
    }
}

proptest! {
    #[test]
    fn what_t10pi_decides_of_the_entry_is_what_is_planned(
        ns in any_namespace(),
        slba in 0_u64..1000,
        blocks in 1_u32..=4,
        bits in any::<[bool; 7]>(),
        tags in prop_oneof![Just([0; 3]), any::<[u32; 3]>()],
        own_ref_tag in any::<bool>(),
        which in 0_u8..5,
    ) {
        let mut fields = with(range(slba.min(1000 - u64::from(blocks)), blocks), |pi| {
            pi.pract = bits[0];
            pi.checks = Checks { guard: bits[1], app_tag: bits[2], storage_tag: bits[3], ref_tag: bits[4] };
            pi.command_tags = CommandTags { cdw2: tags[0] & 0xffff, cdw3: tags[1], cdw14: tags[2] };
        });
        if let (true, Some((format, _))) = (own_ref_tag, &ns.protection) {
            fields.pi.command_tags = format.pack_tags(u64::from(tags[0]), fields.slba);
        }
        let op = block_op(which, fields, bits[5]);
        let extended_formats =
            if bits[6] { ExtendedFormats::Enabled } else { ExtendedFormats::Disabled };
        let limits = IoLimits { extended_formats, ..LIMITS };

        // The library reads the entry by itself.
        let sqe = command(op, 0).emit();
        let entry = RwFields::parse(sqe.as_bytes().try_into().unwrap());
        match decide(&ns.nvme(), &entry, extended_formats) {
            Err(status) => {
                let refused = validated(&command(op, 4096), &ns, &limits).unwrap_err();
                prop_assert_eq!(refused.code(), status.code());
                prop_assert!(refused.is_dnr());
            }
            Ok(decision) => {
                let length = u32::try_from(decision.data_bytes).unwrap();
                let wrong = validated(&command(op, length + 1), &ns, &limits).map(|_| ());
                prop_assert_eq!(wrong, Err(Status::SGL_DATA_LENGTH_INVALID));
                let IoPlan::Blocks(plan) = validated(&command(op, length), &ns, &limits).unwrap() else {
                    panic!("blocks")
                };
                let expected = match length {
                    0 => WireForm::None,
                    _ if length == blocks * ns.block_size => WireForm::Data,
                    _ => WireForm::Interleaved,
                };
                prop_assert_eq!((plan.wire_len, plan.wire), (length, expected));
                let planned = match plan.pi {
                    PiAction::None if plan.op == BlockOp::Deallocate => decision.action,
                    PiAction::None => Action::None,
                    PiAction::Zero => Action::Zero,
                    PiAction::Strip(_) => Action::CheckAndStrip,
                    PiAction::Insert(_) => match (plan.op, plan.wire) {
                        (BlockOp::WriteZeroes, _) => Action::GenerateZeroes,
                        (_, WireForm::Data) => Action::Insert,
                        _ => Action::Replace,
                    },
                    PiAction::Pass(_) if plan.op == BlockOp::Read => Action::CheckAndPass,
                    PiAction::Pass(_) => Action::Check,
                };
                prop_assert_eq!(planned, decision.action);
            }
        }
    }
}

proptest! {
    #[test]
    fn a_planned_command_never_leaves_the_namespace_or_its_limits(
        slba in prop_oneof![0_u64..2000, any::<u64>()],
        blocks in 1_u32..=65536,
        bits in any::<[bool; 6]>(),
        tag in any::<u32>(),
        sgl in any::<u32>(),
        exact in any::<bool>(),
        which in 0_u8..5,
    ) {
        let fields = with(range(slba, blocks), |pi| {
            pi.pract = bits[0];
            pi.checks = Checks { guard: bits[2], app_tag: bits[3], storage_tag: bits[1], ref_tag: bits[4] };
            pi.command_tags.cdw14 = tag;
        });
        let op = block_op(which, fields, bits[5]);
        let sgl = if exact { blocks.wrapping_mul(if bits[0] { 4096 } else { 4104 }) & 0xff_ffff } else { sgl };
        if let Ok(plan) = check(op, sgl, &type1()) {
            prop_assert!(plan.slba + u64::from(plan.blocks) <= 1000);
            prop_assert!(plan.data_len <= LIMITS.max_data);
            prop_assert_eq!(plan.wire_len, sgl);
            prop_assert!(plan.wire_len <= plan.data_len + plan.metadata_len);
        }
    }
}
