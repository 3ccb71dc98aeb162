use t10pi::Guard;

use super::*;
use crate::scsi::cdb::Command;
use crate::scsi::opcodes;
use crate::scsi::sense::SenseCode;

const BLOCKS: u64 = 1 << 20;

fn medium(pi_type: Option<PiType>) -> Medium {
    let format = Format::new(Guard::Crc16, 4096, 8).unwrap();
    Medium::new(BLOCKS, 4096, pi_type.map(|pi_type| (format, pi_type))).unwrap()
}

fn plan_on(medium: &Medium, pages: &ModePages, cdb: &[u8]) -> Result<Option<Transfer>, Sense> {
    let (_, command) = opcodes::parse(cdb, medium.profile())?;
    let Command::Blocks(command) = command else { panic!("{command:?} is on no blocks") };
    Transfer::plan(&command, medium, pages, &Limits::new(4096, 1 << 20))
}

fn plan(pi_type: Option<PiType>, cdb: &[u8]) -> Result<Option<Transfer>, Sense> {
    let medium = medium(pi_type);
    plan_on(&medium, &ModePages::new(&medium), cdb)
}

/// A CDB of 16 bytes.
fn cdb16(code: u8, flags: u8, lba: u64, blocks: u32) -> [u8; 16] {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1]) = (code, flags);
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

fn cdb32(action: u8, flags: u8, lba: u64, blocks: u32) -> [u8; 32] {
    let mut cdb = [0; 32];
    (cdb[0], cdb[7], cdb[9], cdb[10]) = (0x7F, 0x18, action, flags);
    cdb[12..20].copy_from_slice(&lba.to_be_bytes());
    cdb[20..28].copy_from_slice(&[0, 0, 0, 7, 0xAB, 0xCD, 0xFF, 0x0F]);
    cdb[28..32].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

#[test]
fn ranges_end_with_the_medium() {
    let out = SenseCode { key: 5, asc: 0x21, ascq: 0 };
    let read = |lba, blocks| plan(None, &cdb16(0x88, 0, lba, blocks)).map(|plan| plan.map(|t| t.to_host));
    assert_eq!(read(BLOCKS - 8, 8), Ok(Some(8 * 4096)));
    assert_eq!(read(BLOCKS - 8, 9), Err(Sense::new(out)));
    assert_eq!(read(u64::MAX, 1), Err(Sense::new(out)));
    assert_eq!(read(u64::MAX, 0), Err(Sense::new(out)));
    // No blocks are no error, as long as they are not out of range.
    assert_eq!((read(0, 0), read(BLOCKS, 0)), (Ok(None), Ok(None)));
    assert_eq!(read(BLOCKS + 1, 0), Err(Sense::new(out)));
}

#[test]
fn limits_are_held_to_with_a_pointer_to_the_number_of_blocks() {
    let refused = |cdb: &[u8]| plan(None, cdb).map(|plan| plan.is_some());
    assert_eq!(refused(&cdb16(0x88, 0, 0, 256)), Ok(true));
    assert_eq!(refused(&cdb16(0x88, 0, 0, 257)), Err(Sense::in_cdb(10, None)));
    assert_eq!(refused(&[0x28, 0, 0, 0, 0, 0, 0, 1, 1, 0]), Err(Sense::in_cdb(7, None)));
    let mut compare = cdb16(0x89, 0, 0, 0);
    compare[13] = 128;
    assert_eq!(refused(&compare), Ok(true));
    compare[13] = 129;
    assert_eq!(refused(&compare), Err(Sense::in_cdb(13, None)));
    // Blocks that are not sent one by one may be many.
    assert_eq!(refused(&cdb16(0x93, 0, 0, 1 << 20)), Ok(true));
}

#[test]
fn what_moves_is_counted_in_bytes_with_tuples() {
    let moved = |pi_type, cdb: &[u8]| {
        let plan = plan(pi_type, cdb).unwrap().unwrap();
        (plan.work, plan.from_host, plan.to_host)
    };
    let type_1 = Some(PiType::Type1);
    let mut compare = cdb16(0x89, 0x20, 0, 0);
    compare[13] = 2;
    for (pi_type, cdb, expected) in [
        (None, cdb16(0x8A, 0, 0, 2), (Work::Write, 8192, 0)),
        (type_1, cdb16(0x8A, 0x00, 0, 2), (Work::Write, 8192, 0)),
        (type_1, cdb16(0x8A, 0x20, 0, 2), (Work::Write, 8208, 0)),
        (type_1, cdb16(0x88, 0x20, 0, 2), (Work::Read, 0, 8208)),
        (type_1, cdb16(0x88, 0x00, 0, 2), (Work::Read, 0, 8192)),
        (type_1, cdb16(0x8E, 0x20, 0, 2), (Work::WriteAndVerify, 8208, 0)),
        (type_1, cdb16(0x8E, 0x22, 0, 2), (Work::WriteAndCompare, 8208, 0)),
        (type_1, cdb16(0x8F, 0x20, 0, 2), (Work::Verify, 0, 0)),
        (type_1, cdb16(0x8F, 0x22, 0, 2), (Work::CompareBlocks, 8208, 0)),
        (type_1, cdb16(0x8F, 0x06, 0, 2), (Work::CompareOne, 4096, 0)),
        (type_1, cdb16(0x93, 0x20, 0, 2), (Work::Same { give_back: false }, 4104, 0)),
        (type_1, cdb16(0x93, 0x09, 0, 2), (Work::Zero { give_back: true }, 0, 0)),
        (type_1, compare, (Work::CompareAndWrite, 4 * 4104, 0)),
    ] {
        assert_eq!(moved(pi_type, &cdb), expected, "{cdb:02x?}");
    }
}

#[test]
fn protection_that_the_unit_has_not_is_refused_where_it_is_asked_for() {
    let refused = |pi_type, cdb: &[u8]| plan(pi_type, cdb).map(|_| ()).unwrap_err();
    assert_eq!(refused(None, &cdb16(0x88, 0x20, 0, 1)), Sense::in_cdb(1, Some(7)));
    assert_eq!(refused(Some(PiType::Type1), &cdb16(0x88, 0xC0, 0, 1)), Sense::in_cdb(1, Some(7)));
    let code = Sense::new(SenseCode::INVALID_OPERATION_CODE);
    assert_eq!(refused(Some(PiType::Type2), &cdb16(0x88, 0x20, 0, 1)), code);
    assert_eq!(refused(Some(PiType::Type1), &cdb32(0x09, 0x20, 0, 1)), code);
    assert_eq!(refused(Some(PiType::Type2), &cdb32(0x09, 0xE0, 0, 1)), Sense::in_cdb(10, Some(7)));
}

#[test]
fn type_2_is_protected_by_the_tags_of_the_cdb() {
    let write = plan(Some(PiType::Type2), &cdb32(0x0B, 0x20, 100, 1)).unwrap().unwrap();
    let Tuples::FromHost(context) = write.protection.tuples else { panic!("{write:?}") };
    let tags = context.tags();
    assert_eq!((tags.ref_tag, tags.app_tag, tags.app_tag_mask), (7, 0xABCD, 0xFF0F));
    // The tuple that the host sends is checked against them.
    let block = [0x5A; 4096];
    let good = {
        let mut tuple = [0; 8];
        context.generate(&[&block], &mut [&mut tuple]);
        tuple
    };
    assert!(context.verify(&[&block], &[&good]).is_ok());
    let mut wrong = good;
    wrong[7] ^= 1;
    assert!(context.verify(&[&block], &[&wrong]).is_err(), "the reference tag is checked");
    // Without tuples from the host they are generated; a short read knows no reference tag to expect.
    let short = plan(Some(PiType::Type2), &cdb16(0x8A, 0, 100, 1)).unwrap().unwrap();
    assert!(matches!(short.protection.tuples, Tuples::Generate(_)));
    let read = plan(Some(PiType::Type2), &cdb16(0x88, 0, 100, 1)).unwrap().unwrap();
    let Tuples::CheckMedium(guard_alone) = read.protection.tuples else { panic!("{read:?}") };
    assert!(guard_alone.verify(&[&block], &[&wrong]).is_ok());
    wrong[0] ^= 1;
    assert!(guard_alone.verify(&[&block], &[&wrong]).is_err());
}

#[test]
fn reads_are_checked_unless_the_control_page_says_otherwise() {
    let medium = medium(Some(PiType::Type1));
    let pages = ModePages::new(&medium);
    let read = |pages: &ModePages, flags| {
        plan_on(&medium, pages, &cdb16(0x88, flags, 9, 1)).unwrap().unwrap().protection
    };
    let checked = read(&pages, 0);
    let Tuples::CheckMedium(context) = checked.tuples else { panic!("{checked:?}") };
    assert_eq!((context.tags().ref_tag, checked.to_host), (9, false));
    let unchecked = read(&pages, 0x60);
    assert!(matches!(unchecked.tuples, Tuples::None) && unchecked.to_host, "RDPROTECT 011b");
    let mut list = [0; 16];
    list[4..].copy_from_slice(&[0x0A, 0x0A, 1 << 3, 0x10, 0, 0x80, 0, 0, 0, 0, 0, 0]);
    let changed = pages.select(crate::scsi::cdb::ModeForm::Six, &list, &medium).unwrap();
    assert!(matches!(read(&changed, 0).tuples, Tuples::None), "DPICZ");
    assert!(matches!(read(&changed, 0x20).tuples, Tuples::CheckMedium(_)));
}

#[test]
fn comparisons_say_which_fields_they_compare() {
    let compare = |flags| plan(Some(PiType::Type1), &cdb16(0x8F, flags, 0, 1)).unwrap().unwrap().protection;
    let plain = compare(0x02);
    assert!(matches!(plain.tuples, Tuples::CheckMedium(_)));
    assert_eq!(plain.compare, Checks::NONE);
    let with = compare(0x22);
    assert!(matches!(with.tuples, Tuples::FromHost(_)));
    assert!(with.compare.guard && with.compare.ref_tag && !with.compare.storage_tag);
}

#[test]
fn media_that_cannot_be_written_are_read_alone() {
    let writable = medium(None);
    let pages = ModePages::new(&writable);
    let protected = {
        let list = [0, 0, 0, 0, 0x0A, 0x0A, 0, 0x10, 1 << 3, 0, 0, 0, 0, 0, 0, 0];
        pages.select(crate::scsi::cdb::ModeForm::Six, &list, &writable).unwrap()
    };
    let read_only = writable.with_read_only();
    for code in [0x8A, 0x8E, 0x93] {
        let cdb = cdb16(code, 0, 0, 1);
        let refused = |medium, pages| plan_on(medium, pages, &cdb).map(|_| ()).unwrap_err().code;
        assert_eq!(refused(&read_only, &pages), code::WRITE_PROTECTED);
        assert_eq!(refused(&writable, &protected), code::LOGICAL_UNIT_SOFTWARE_WRITE_PROTECTED);
    }
    for code in [0x88, 0x8F] {
        assert!(plan_on(&read_only, &protected, &cdb16(code, 0, 0, 1)).is_ok());
    }
}

#[test]
fn writes_are_durable_when_the_command_or_the_caching_page_says_so() {
    let medium = medium(None).with_write_cache();
    let pages = ModePages::new(&medium);
    let durable = |pages: &ModePages, code, flags| {
        plan_on(&medium, pages, &cdb16(code, flags, 0, 1)).unwrap().unwrap().durable
    };
    assert!(!durable(&pages, 0x8A, 0) && durable(&pages, 0x8A, 0x08));
    assert!(durable(&pages, 0x8E, 0), "what is verified is on the medium");
    let mut list = [0; 24];
    (list[4], list[5]) = (0x08, 0x12);
    let through = pages.select(crate::scsi::cdb::ModeForm::Six, &list, &medium).unwrap();
    assert!(durable(&through, 0x8A, 0) && durable(&through, 0x93, 0));
    assert!(!durable(&through, 0x88, 0x08), "a read writes nothing");
}
