//! SCSI: CDBs decoded, intervals generated and verified, the tables of the PROTECT fields.

use serde_json::{Value, json};
use t10pi::scsi::{
    self, ByteCheck, Cdb, Command, Control, FieldNeeds, Need, Request, Sense, SupportedTypes, refusals,
};
use t10pi::{Checks, Escape, PiType, Tags};

use super::Malformed;
use super::data::data;
use super::dix::named_checks;
use super::format::{Shape, pi_type};
use super::operations;
use super::outcome::{Outcome, VERDICT_KEYS, Verdict};
use super::value::{Object, number};

const COMMANDS: [(&str, Command); 6] = [
    ("read", Command::Read),
    ("verify", Command::Verify),
    ("write", Command::Write),
    ("write_and_verify", Command::WriteAndVerify),
    ("write_same", Command::WriteSame),
    ("compare_and_write", Command::CompareAndWrite),
];

pub(super) fn generate(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let shape = Shape::of(vector)?;
    let cmd = vector.object("cmd")?;
    cmd.only(&["lba", "nlb", "per_block"])?;
    exponent(&cmd)?;
    let pi_type = scsi_type(&shape)?.ok_or_else(|| "fmt.type is 0: nothing is generated".to_owned())?;
    let pi = scsi::generate_context(&shape.format, pi_type, cmd.number("lba")?);
    operations::generate(vector, &shape, &pi, outcome)
}

pub(super) fn verify(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let shape = Shape::of(vector)?;
    let cmd = vector.object("cmd")?;
    cmd.only(&["lba", "nlb", "per_block", "check", "app_known", "ref_tag", "escape"])?;
    let expect = vector.object("expect")?;
    expect.only(&[&VERDICT_KEYS[..], &["xfer_sha"]].concat())?;
    scsi_type(&shape)?;
    let verdict = Verdict::parse(&expect)?
        .ok_or_else(|| expect.refuse("verdict", "is invalid_pi, which SCSI has not"))?;
    let checks = named_checks(&cmd)?;
    let known = cmd.find("app_known").map(|_| cmd.list("app_known")).transpose()?;
    let (app_tag, app_tag_mask) = match known {
        None => (0, 0),
        Some([tag, mask]) => half(tag).zip(half(mask)).ok_or_else(|| app_known(&cmd))?,
        Some(_) => return Err(app_known(&cmd)),
    };
    let checks = Checks { app_tag: checks.app_tag && known.is_some(), ..checks };
    let tags = Tags { app_tag, app_tag_mask, storage_tag: 0, ref_tag: cmd.number("ref_tag")? };
    let escape = if cmd.flag("escape")? { Escape::Honoured } else { Escape::Ignored };
    let context = shape.context(checks, tags)?.map(|pi| pi.with_escape(escape));

    if let Some(failing) = verdict.failing() {
        let place = scsi::interval(cmd.number("lba")?, failing.block, exponent(&cmd)?);
        outcome.number("lba", expect.number("lba")?, place.lba);
        if expect.has("interval") {
            outcome.number("interval", expect.number("interval")?, place.number);
        }
        senses(&expect, &Sense::check_failed(failing.field).into_iter().collect::<Vec<_>>(), outcome)?;
    }
    operations::verify(vector, &shape, context.as_ref(), &verdict, outcome)
}

fn app_known(cmd: &Object<'_>) -> Malformed {
    cmd.refuse("app_known", "is neither null nor a tag and its mask")
}

fn half(value: &Value) -> Option<u16> {
    u16::try_from(number(value)?).ok()
}

/// The type of a format that SCSI can have.
fn scsi_type(shape: &Shape) -> Result<Option<PiType>, Malformed> {
    if shape.format.storage_tag_bits() == 0 {
        Ok(shape.pi_type)
    } else {
        Err("fmt.sts is not 0, and SCSI has no storage tags".to_owned())
    }
}

/// `P_I_EXPONENT` of the intervals in a block.
fn exponent(cmd: &Object<'_>) -> Result<u8, Malformed> {
    let intervals = cmd.number("per_block")?;
    if intervals.is_power_of_two() && intervals <= 1 << 15 {
        Ok(u8::try_from(intervals.trailing_zeros()).expect("at most 15"))
    } else {
        Err(cmd.refuse("per_block", "is not a power of two up to 32768"))
    }
}

/// Compares the sense that is chosen, and all that apply.
fn senses(expect: &Object<'_>, actual: &[Sense], outcome: &mut Outcome) -> Result<(), Malformed> {
    let list = |sense: &Sense| json!([sense.key, sense.asc, sense.ascq]);
    if expect.has("sense") {
        let actual = actual.first().map_or(Value::Null, list);
        let expected = expect.find("sense").cloned().unwrap_or_default();
        if expected != actual {
            outcome.mismatch("sense", expected, actual);
        }
    }
    if expect.has("sense_any") {
        let mut expected: Vec<String> = expect.list("sense_any")?.iter().map(Value::to_string).collect();
        let mut actual: Vec<String> = actual.iter().map(|sense| list(sense).to_string()).collect();
        for set in [&mut expected, &mut actual] {
            set.sort();
            set.dedup();
        }
        outcome.compare("sense_any", &expected, &actual);
    }
    Ok(())
}

pub(super) fn decide(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let cmd = vector.object("cmd")?;
    cmd.only(&[
        "cmd",
        "protect",
        "ptype",
        "cdb32",
        "bytchk",
        "grd",
        "app",
        "ref",
        "dpicz",
        "ato",
        "rwwp",
        "app_known",
    ])?;
    let expect = vector.object("expect")?;
    expect.only(&["sense", "sense_any", "pi_in", "pi_out", "medium", "dout", "compare"])?;
    let control = Control {
        pi_type: pi_type(&cmd, "ptype")?,
        guard_check: cmd.flag("grd")?,
        app_check: cmd.flag("app")?,
        ref_check: cmd.flag("ref")?,
        no_check_without_protect: cmd.flag("dpicz")?,
        app_tag_owner: cmd.flag("ato")?,
        reject_unprotected_writes: cmd.flag("rwwp")?,
    };
    let request = Request {
        command: cmd.one_of("cmd", &COMMANDS)?,
        protect: three_bits(&cmd, "protect")?,
        long_cdb: cmd.flag("cdb32")?,
        byte_check: ByteCheck::from(cmd.small_or_zero::<u8>("bytchk")?),
        app_tag_known: cmd.flag("app_known")?,
    };
    senses(&expect, &refusals(&control, &request).collect::<Vec<_>>(), outcome)?;
    let Ok(decision) = scsi::decide(&control, &request) else {
        for key in ["pi_in", "pi_out", "medium", "dout", "compare"] {
            if expect.has(key) {
                outcome.mismatch("decision", format_args!("{key}"), "a refusal");
            }
        }
        return Ok(());
    };
    for (key, actual) in [("pi_in", decision.to_host), ("pi_out", decision.from_host)] {
        if expect.has(key) {
            outcome.compare(key, &expect.flag(key)?, &actual);
        }
    }
    for (key, actual) in
        [("medium", decision.medium), ("dout", decision.data_out), ("compare", decision.compare)]
    {
        if expect.has(key) {
            outcome.compare(key, &needs(&expect.object(key)?)?, &actual);
        }
    }
    Ok(())
}

fn needs(object: &Object<'_>) -> Result<FieldNeeds, Malformed> {
    object.only(&["guard", "app", "ref"])?;
    let table = [("no", Need::No), ("may", Need::May), ("shall", Need::Shall)];
    Ok(FieldNeeds {
        guard: object.one_of("guard", &table)?,
        app_tag: object.one_of("app", &table)?,
        ref_tag: object.one_of("ref", &table)?,
    })
}

fn three_bits(object: &Object<'_>, key: &str) -> Result<u8, Malformed> {
    object.small(key).ok().filter(|bits: &u8| *bits < 8).ok_or_else(|| object.refuse(key, "is not 0 to 7"))
}

pub(super) fn write_same(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let shape = Shape::of(vector)?;
    let pi_type = scsi_type(&shape)?.ok_or_else(|| "fmt.type is 0: there are no tuples".to_owned())?;
    let cmd = vector.object("cmd")?;
    cmd.only(&["lba", "nlb"])?;
    let expect = vector.object("expect")?;
    expect.only(&["md_out"])?;
    let tuple = vector.bytes("pi")?;
    shape.blocks(&data(vector)?, &tuple)?;
    let mut tuples = vec![0xEE; tuple.len() * cmd.count("nlb", tuple.len())?];
    scsi::write_same(pi_type, tuple, &mut tuples);
    outcome.bytes("md_out", &expect.hex("md_out")?, &tuples);
    Ok(())
}

pub(super) fn format(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let cmd = vector.object("cmd")?;
    cmd.only(&["spt", "protect", "fmtpinfo", "pfu", "fmtdata"])?;
    let expect = vector.object("expect")?;
    expect.only(&["type", "sense", "sense_any"])?;
    let supported = SupportedTypes::new(cmd.flag("protect")?, three_bits(&cmd, "spt")?);
    let with_list = !cmd.has("fmtdata") || cmd.flag("fmtdata")?;
    let usage = with_list.then(|| three_bits(&cmd, "pfu")).transpose()?;
    let fmtpinfo = three_bits(&cmd, "fmtpinfo")?;
    if fmtpinfo > 3 {
        return Err(cmd.refuse("fmtpinfo", "is not 0 to 3"));
    }
    let formatted = scsi::format_unit(&supported, fmtpinfo, usage);
    senses(&expect, &formatted.err().into_iter().collect::<Vec<_>>(), outcome)?;
    if expect.has("type") {
        outcome.compare("type", &Ok(pi_type(&expect, "type")?), &formatted);
    } else if let Ok(formatted) = formatted {
        outcome.mismatch("format", "a refusal", format_args!("{formatted:?}"));
    }
    Ok(())
}

pub(super) fn read_capacity(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let cmd = vector.object("cmd")?;
    cmd.only(&["type"])?;
    let expect = vector.object("expect")?;
    expect.only(&["byte12"])?;
    let byte = scsi::read_capacity_byte_12(pi_type(&cmd, "type")?);
    outcome.number("byte12", expect.number("byte12")?, byte.into());
    Ok(())
}

pub(super) fn cdb(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let expect = vector.object("expect")?;
    expect.only(&["cmd", "cdb32", "protect", "lba", "blocks", "bytchk", "ref_tag", "app_tag", "app_mask"])?;
    let bytes = vector.hex("cdb")?;
    let Some(cdb) = Cdb::parse(&bytes) else {
        outcome.mismatch("cdb", expect.text("cmd")?, "no command");
        return Ok(());
    };
    outcome.compare("cmd", &expect.one_of("cmd", &COMMANDS)?, &cdb.command);
    let byte_check = match cdb.byte_check {
        ByteCheck::None => 0,
        ByteCheck::Blocks => 1,
        ByteCheck::Reserved => 2,
        ByteCheck::OneBlock => 3,
    };
    for (key, value) in [
        ("cdb32", Some(u64::from(cdb.long.is_some()))),
        ("protect", Some(cdb.protect.into())),
        ("lba", Some(cdb.lba)),
        ("blocks", Some(cdb.blocks.into())),
        ("bytchk", Some(byte_check)),
        ("ref_tag", cdb.long.map(|long| long.ref_tag.into())),
        ("app_tag", cdb.long.map(|long| long.app_tag.into())),
        ("app_mask", cdb.long.map(|long| long.app_tag_mask.into())),
    ] {
        match value {
            _ if !expect.has(key) => {}
            Some(value) => outcome.number(key, expect.number(key)?, value),
            None => outcome.mismatch(key, expect.number(key)?, "none"),
        }
    }
    Ok(())
}
