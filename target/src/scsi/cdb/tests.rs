use t10pi::scsi::{ByteCheck, Command as Kind};

use super::*;
use crate::scsi::opcodes::{self, Profile, ReportingOptions};
use crate::scsi::sense::{Sense, code};

fn parse(cdb: &[u8]) -> Result<Command, Sense> {
    opcodes::parse(cdb, Profile::Type2Disk).map(|(_, command)| command)
}

fn blocks(cdb: &[u8]) -> BlockCommand {
    match parse(cdb) {
        Ok(Command::Blocks(command)) => command,
        other => panic!("{cdb:02x?} is no command on blocks: {other:?}"),
    }
}

#[test]
fn primary_commands_are_read() {
    assert_eq!(parse(&[0; 6]), Ok(Command::TestUnitReady));
    let sense = Command::RequestSense { format: SenseFormat::Descriptor, allocation: 252 };
    assert_eq!(parse(&[0x03, 1, 0, 0, 252, 0]), Ok(sense));
    let inquiry = Command::Inquiry { page: Some(0x83), allocation: 0x0102 };
    assert_eq!(parse(&[0x12, 1, 0x83, 1, 2, 0]), Ok(inquiry));
    assert_eq!(parse(&[0x12, 0, 0, 0, 5, 0]), Ok(Command::Inquiry { page: None, allocation: 5 }));
    assert_eq!(parse(&[0x12, 0, 0x83, 0, 5, 0]), Err(Sense::in_cdb(2, None)));
    let luns = Command::ReportLuns { select: SelectReport::All, allocation: 0x0102_0304 };
    assert_eq!(parse(&[0xA0, 0, 2, 0, 0, 0, 1, 2, 3, 4, 0, 0]), Ok(luns));
    assert_eq!(parse(&[0xA0, 0, 3, 0, 0, 0, 1, 2, 3, 4, 0, 0]), Err(Sense::in_cdb(2, None)));
}

#[test]
fn mode_commands_are_read_in_both_forms() {
    let six = ModeSense {
        form: ModeForm::Six,
        block_descriptor: true,
        long_lba: false,
        control: PageControl::Default,
        page: 0x3F,
        subpage: 0xFF,
        allocation: 255,
    };
    assert_eq!(parse(&[0x1A, 0, 0xBF, 0xFF, 255, 0]), Ok(Command::ModeSense(six)));
    let ten = ModeSense {
        form: ModeForm::Ten,
        block_descriptor: false,
        long_lba: true,
        control: PageControl::Saved,
        page: 0x08,
        subpage: 0,
        allocation: 0x0100,
    };
    assert_eq!(parse(&[0x5A, 0x18, 0xC8, 0, 0, 0, 0, 1, 0, 0]), Ok(Command::ModeSense(ten)));
    let select = ModeSelect { form: ModeForm::Six, length: 24 };
    assert_eq!(parse(&[0x15, 0x10, 0, 0, 24, 0]), Ok(Command::ModeSelect(select)));
    let select = ModeSelect { form: ModeForm::Ten, length: 0x0102 };
    assert_eq!(parse(&[0x55, 0x10, 0, 0, 0, 0, 0, 1, 2, 0]), Ok(Command::ModeSelect(select)));
    // Without PF, and with SP.
    assert_eq!(parse(&[0x15, 0x00, 0, 0, 24, 0]), Err(Sense::in_cdb(1, Some(4))));
    assert_eq!(parse(&[0x15, 0x11, 0, 0, 24, 0]), Err(Sense::in_cdb(1, Some(0))));
}

#[test]
fn reports_are_read() {
    assert_eq!(parse(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Ok(Command::ReadCapacity10));
    // PMI, or an address without it.
    assert_eq!(parse(&[0x25, 0, 0, 0, 0, 0, 0, 0, 1, 0]), Err(Sense::in_cdb(8, Some(0))));
    assert_eq!(parse(&[0x25, 0, 0, 0, 0, 9, 0, 0, 0, 0]), Err(Sense::in_cdb(5, Some(3))));
    let capacity = [0x9E, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0];
    assert_eq!(parse(&capacity), Ok(Command::ReadCapacity16 { allocation: 32 }));
    let groups = [0xA3, 0x2A, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    assert_eq!(parse(&groups), Ok(Command::ReportPortGroups { extended: true, allocation: 256 }));
    let groups = [0xA3, 0x4A, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    assert_eq!(parse(&groups), Err(Sense::in_cdb(1, Some(7))));
    let opcodes = [0xA3, 0x0C, 0x82, 0x9E, 0, 0x10, 0, 0, 0, 64, 0, 0];
    let request = OpcodesRequest {
        options: ReportingOptions::CodeAndAction,
        timeouts: true,
        code: 0x9E,
        service_action: 0x10,
    };
    assert_eq!(parse(&opcodes), Ok(Command::ReportOpcodes { request, allocation: 64 }));
    let opcodes = [0xA3, 0x0C, 0x04, 0x9E, 0, 0x10, 0, 0, 0, 64, 0, 0];
    assert_eq!(parse(&opcodes), Err(Sense::in_cdb(2, Some(2))));
    let functions = |len| [0xA3, 0x0D, 0x80, 0, 0, 0, 0, 0, 0, len, 0, 0];
    let expected = Command::ReportTaskFunctions { extended: true, allocation: 16 };
    assert_eq!(parse(&functions(16)), Ok(expected));
    assert_eq!(parse(&functions(3)), Err(Sense::in_cdb(6, None)));
}

#[test]
fn reservations_are_read() {
    assert_eq!(parse(&[0x16, 0, 0, 0, 0, 0]), Ok(Command::Reserve));
    assert_eq!(parse(&[0x57, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Ok(Command::Release));
    // Third party, and extents.
    assert_eq!(parse(&[0x56, 0x10, 0, 0, 0, 0, 0, 0, 0, 0]), Err(Sense::in_cdb(1, Some(4))));
    assert_eq!(parse(&[0x16, 0x01, 0, 0, 0, 0]), Err(Sense::in_cdb(1, Some(0))));
    let status = Command::PersistentIn { of: StatusOf::Registrations, allocation: 0x1234 };
    assert_eq!(parse(&[0x5E, 3, 0, 0, 0, 0, 0, 0x12, 0x34, 0]), Ok(status));
    let out = PersistentOut { action: OutAction::Preempt, scope: 0xA, kind: 5 };
    assert_eq!(parse(&[0x5F, 4, 0xA5, 0, 0, 0, 0, 0, 24, 0]), Ok(Command::PersistentOut(out)));
    let length = Sense::new(code::PARAMETER_LIST_LENGTH_ERROR);
    assert_eq!(parse(&[0x5F, 4, 0xA5, 0, 0, 0, 0, 0, 23, 0]), Err(length));
    assert_eq!(parse(&[0x5F, 4, 0xA5, 0, 0, 1, 0, 0, 24, 0]), Err(length));
}

#[test]
fn reads_and_writes_of_every_length_are_read() {
    let read = blocks(&[0x08, 0x1F, 0xFF, 0xFF, 0, 0]);
    assert_eq!((read.fields.command, read.fields.lba, read.fields.blocks), (Kind::Read, 0x1F_FFFF, 256));
    // The address's bits are not flags.
    assert!(!read.fua && read.fields.protect == 0);
    let write = blocks(&[0x2A, 0x28, 1, 2, 3, 4, 0x3F, 0, 0, 0]);
    assert_eq!((write.fields.command, write.fields.lba, write.fields.blocks), (Kind::Write, 0x0102_0304, 0));
    assert!(write.fua && write.fields.protect == 1);
    let read = blocks(&[0xA8, 0x14, 0, 0, 0, 1, 0, 0, 1, 0, 0, 0]);
    assert_eq!((read.fields.blocks, read.fua), (256, false));
    let write = blocks(&[0x8A, 0x08, 0xFF, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0]);
    assert_eq!((write.fields.lba, write.fields.blocks, write.fua), (0xFF00_0000_0000_0001, 2, true));
    let mut long = [0; 32];
    (long[0], long[6], long[7], long[9], long[10]) = (0x7F, 0x3F, 0x18, 0x0B, 0x28);
    (long[19], long[23], long[25], long[27], long[31]) = (9, 7, 5, 3, 1);
    let write = blocks(&long);
    let tags = write.fields.long.unwrap();
    assert_eq!((write.fields.lba, write.fields.blocks, write.fua), (9, 1, true));
    assert_eq!((tags.ref_tag, tags.app_tag, tags.app_tag_mask), (7, 5, 3));
    assert_eq!((write.protect_at(), write.length_at), (10, 28));
}

#[test]
fn commands_that_verify_say_what_they_compare_with() {
    for (code, name) in [(0x2F, Kind::Verify), (0x2E, Kind::WriteAndVerify)] {
        let cdb = |check: u8| [code, 0x20 | check << 1, 0, 0, 0, 1, 0, 0, 1, 0];
        assert_eq!(blocks(&cdb(0)).fields.byte_check, ByteCheck::None);
        assert_eq!(blocks(&cdb(1)).fields.byte_check, ByteCheck::Blocks);
        assert_eq!(blocks(&cdb(1)).fields.command, name);
        assert_eq!(parse(&cdb(2)), Err(Sense::in_cdb(1, Some(2))));
    }
    let one = blocks(&[0x2F, 0x06, 0, 0, 0, 1, 0, 0, 1, 0]);
    assert_eq!((one.fields.byte_check, one.fua), (ByteCheck::OneBlock, false));
    assert_eq!(parse(&[0x2E, 0x06, 0, 0, 0, 1, 0, 0, 1, 0]), Err(Sense::in_cdb(1, Some(2))));
}

#[test]
fn repeated_blocks_and_comparisons_are_read() {
    let same = blocks(&[0x93, 0x09, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0]);
    assert_eq!((same.fields.command, same.fields.lba, same.fields.blocks), (Kind::WriteSame, 5, 6));
    assert!(same.unmap && same.no_data && !same.fua);
    // NDOB is not of the short form; ANCHOR is of none; no blocks would be all up to the end.
    assert_eq!(parse(&[0x41, 0x01, 0, 0, 0, 5, 0, 0, 6, 0]), Err(Sense::in_cdb(1, Some(0))));
    assert_eq!(parse(&[0x41, 0x10, 0, 0, 0, 5, 0, 0, 6, 0]), Err(Sense::in_cdb(1, Some(4))));
    assert_eq!(parse(&[0x41, 0x08, 0, 0, 0, 5, 0, 0, 0, 0]), Err(Sense::in_cdb(7, None)));
    let compare = blocks(&[0x89, 0x08, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 255, 0, 0]);
    assert_eq!(
        (compare.fields.command, compare.fields.blocks, compare.fua),
        (Kind::CompareAndWrite, 255, true)
    );
    assert_eq!(compare.length_at, 13);
    assert_eq!(parse(&[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 1, 1, 0, 0]), Err(Sense::in_cdb(12, Some(0))));
}

#[test]
fn caches_and_unmapping_are_read() {
    let flush = Command::SynchronizeCache { lba: 0x0102_0304, blocks: 0x0506 };
    assert_eq!(parse(&[0x35, 0x02, 1, 2, 3, 4, 0, 5, 6, 0]), Ok(flush));
    let flush = Command::SynchronizeCache { lba: 1 << 56, blocks: 3 };
    assert_eq!(parse(&[0x91, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0]), Ok(flush));
    let unmap = [0x42, 0, 0, 0, 0, 0, 0, 1, 2, 0];
    assert_eq!(parse(&unmap), Ok(Command::Unmap { length: 0x0102 }));
    assert_eq!(Command::Unmap { length: 0x0102 }.parameter_list_len(), 0x0102);
    // ANCHOR.
    assert_eq!(parse(&[0x42, 1, 0, 0, 0, 0, 0, 1, 2, 0]), Err(Sense::in_cdb(1, Some(0))));
}
