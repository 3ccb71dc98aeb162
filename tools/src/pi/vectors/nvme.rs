//! NVMe: tags and entries decoded, blocks generated and verified, decisions on commands.

use serde_json::Value;
use t10pi::nvme::{
    Action, CopyAction, DescriptorFormat, ExtendedFormats, Namespace, Opcode, RwFields, Status, decide,
    decide_copy,
};
use t10pi::{Checks, CommandTags, Fill, Tags, UnwrittenGuard};

use super::Malformed;
use super::format::{Shape, tags as command_tags};
use super::operations;
use super::outcome::{Outcome, VERDICT_KEYS, Verdict};
use super::value::{Object, number};

const OPCODES: [(&str, Opcode); 5] = [
    ("write", Opcode::Write),
    ("read", Opcode::Read),
    ("compare", Opcode::Compare),
    ("write_zeroes", Opcode::WriteZeroes),
    ("verify", Opcode::Verify),
];

pub(super) fn tags(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let shape = Shape::of(vector)?;
    let cmd = vector.object("cmd")?;
    cmd.only(&["storage_tag", "ref_tag"])?;
    let expect = vector.object("expect")?;
    expect.only(&["cdw2", "cdw3", "cdw14"])?;
    let packed = shape.format.pack_tags(cmd.number("storage_tag")?, cmd.number("ref_tag")?);
    for (key, value) in [("cdw2", packed.cdw2), ("cdw3", packed.cdw3), ("cdw14", packed.cdw14)] {
        outcome.number(key, expect.number(key)?, value.into());
    }
    Ok(())
}

pub(super) fn tags_decode(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let shape = Shape::of(vector)?;
    let cmd = vector.object("cmd")?;
    cmd.only(&["cdw2", "cdw3", "cdw14"])?;
    let expect = vector.object("expect")?;
    expect.only(&["storage_tag", "ref_tag"])?;
    let field =
        CommandTags { cdw2: cmd.small("cdw2")?, cdw3: cmd.small("cdw3")?, cdw14: cmd.small("cdw14")? };
    let (storage_tag, ref_tag) = shape.format.unpack_tags(field);
    outcome.number("storage_tag", expect.number("storage_tag")?, storage_tag);
    outcome.number("ref_tag", expect.number("ref_tag")?, ref_tag);
    Ok(())
}

pub(super) fn sqe(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let shape = Shape::of(vector)?;
    let expect = vector.object("expect")?;
    expect.only(&[
        "op",
        "cid",
        "nsid",
        "slba",
        "nlb",
        "stc",
        "prchk",
        "pract",
        "fua",
        "lr",
        "deac",
        "app_tag",
        "app_mask",
        "storage_tag",
        "ref_tag",
    ])?;
    let fields = RwFields::parse(&vector.bytes("sqe")?);
    let tags = fields.tags(&shape.format);
    let Checks { guard, app_tag, storage_tag, ref_tag } = fields.checks;
    let prchk = u64::from(guard) << 2 | u64::from(app_tag) << 1 | u64::from(ref_tag);
    if expect.has("op") {
        outcome.compare("op", &expect.one_of("op", &OPCODES)?, &fields.opcode);
    }
    for (key, value) in [
        ("cid", fields.cid.into()),
        ("nsid", fields.nsid.into()),
        ("slba", fields.slba),
        ("nlb", fields.blocks.into()),
        ("stc", storage_tag.into()),
        ("prchk", prchk),
        ("pract", fields.pract.into()),
        ("fua", fields.fua.into()),
        ("lr", fields.lr.into()),
        ("deac", fields.deac.into()),
        ("app_tag", tags.app_tag.into()),
        ("app_mask", tags.app_tag_mask.into()),
        ("storage_tag", tags.storage_tag),
        ("ref_tag", tags.ref_tag),
    ] {
        if expect.has(key) {
            outcome.number(key, expect.number(key)?, value);
        }
    }
    Ok(())
}

pub(super) fn generate(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let shape = Shape::of(vector)?;
    let cmd = vector.object("cmd")?;
    cmd.only(&["nlb", "app_tag", "app_mask", "storage_tag", "ref_tag"])?;
    let pi = shape.protected(Checks::ALL, command_tags(&cmd)?)?;
    operations::generate(vector, &shape, &pi, outcome)
}

pub(super) fn verify(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let shape = Shape::of(vector)?;
    let cmd = vector.object("cmd")?;
    cmd.only(&["slba", "nlb", "prchk", "stc", "app_tag", "app_mask", "storage_tag", "ref_tag"])?;
    let expect = vector.object("expect")?;
    expect.only(&[&VERDICT_KEYS[..], &["xfer_sha"]].concat())?;
    let (checks, tags) = (operations::checks(&cmd)?, command_tags(&cmd)?);
    let slba = cmd.number("slba")?;

    // The command that does nothing but check says whether it is accepted.
    let refused = decide(
        &namespace(&shape),
        &RwFields { checks, ..fields(&shape, Opcode::Verify, slba, cmd.small("nlb")?, tags) },
        ExtendedFormats::Enabled,
    )
    .err();
    let Some(verdict) = Verdict::parse(&expect)? else {
        outcome.compare("verdict", &Some(Status::INVALID_PROTECTION_INFORMATION), &refused);
        return status(&expect, refused, outcome);
    };
    if let Some(refused) = refused {
        let conforms = expect.has("alt") && expect.list("alt")?.iter().any(|alt| alt == "invalid_pi");
        if !conforms {
            outcome.mismatch("verdict", expect.text("verdict")?, refused);
        }
        return Ok(());
    }
    if let Some(failing) = verdict.failing() {
        status(&expect, Some(failing.field.into()), outcome)?;
        outcome.number("lba", expect.number("lba")?, slba.wrapping_add(failing.block));
    }
    operations::verify(vector, &shape, shape.context(checks, tags)?.as_ref(), &verdict, outcome)
}

/// Compares a status with the one that is expected, and those that conform.
fn status(expect: &Object<'_>, status: Option<Status>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let code = status.map_or(0, |status| u64::from(status.code()));
    if expect.has("status") {
        outcome.number("status", expect.number("status")?, code);
    }
    if expect.has("status_any") {
        let any = expect.list("status_any")?;
        if !any.iter().any(|each| number(each) == Some(code)) {
            let any: Vec<String> = any.iter().map(Value::to_string).collect();
            outcome.mismatch(
                "status",
                format_args!("one of {}", any.join(", ")),
                format_args!("{code:#05x}"),
            );
        }
    }
    Ok(())
}

/// The fields of a command.
fn fields(shape: &Shape, opcode: Opcode, slba: u64, blocks: u32, tags: Tags) -> RwFields {
    RwFields {
        opcode,
        cid: 0,
        nsid: 1,
        slba,
        blocks,
        fua: false,
        lr: false,
        deac: false,
        pract: false,
        checks: Checks::NONE,
        app_tag: tags.app_tag,
        app_tag_mask: tags.app_tag_mask,
        command_tags: shape.format.pack_tags(tags.storage_tag, tags.ref_tag),
    }
}

fn namespace(shape: &Shape) -> Namespace {
    match shape.pi_type {
        Some(pi_type) => Namespace::protected(shape.format, pi_type, shape.layout),
        None => Namespace::plain(shape.format.block_size(), shape.format.metadata_size(), shape.layout),
    }
}

pub(super) fn command(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let shape = Shape::of(vector)?;
    let cmd = vector.object("cmd")?;
    cmd.only(&[
        "op",
        "pract",
        "prchk",
        "stc",
        "slba",
        "nlb",
        "lbafee",
        "app_tag",
        "app_mask",
        "storage_tag",
        "ref_tag",
    ])?;
    let expect = vector.object("expect")?;
    expect.only(&["status", "status_any", "action", "dptr_bytes", "mptr_bytes"])?;
    let opcode = cmd.one_of("op", &OPCODES)?;
    let command = RwFields {
        pract: cmd.flag("pract")?,
        checks: operations::checks(&cmd)?,
        ..fields(&shape, opcode, cmd.number("slba")?, cmd.small("nlb")?, command_tags(&cmd)?)
    };
    let extended = if cmd.flag("lbafee")? { ExtendedFormats::Enabled } else { ExtendedFormats::Disabled };
    let decided = decide(&namespace(&shape), &command, extended);
    status(&expect, decided.err(), outcome)?;
    let expected = action(opcode, &expect)?;
    outcome.compare("action", &expected, &decided.ok().map(|decision| decision.action));
    if let Ok(decision) = decided {
        for (key, bytes) in [("dptr_bytes", decision.data_bytes), ("mptr_bytes", decision.metadata_bytes)] {
            if expect.has(key) {
                outcome.number(key, expect.number(key)?, bytes);
            }
        }
    }
    Ok(())
}

/// The action that is expected; `None` is a refusal.
fn action(opcode: Opcode, expect: &Object<'_>) -> Result<Option<Action>, Malformed> {
    let known = [
        ("reject", None),
        ("none", Some(Action::None)),
        ("check", Some(Action::Check)),
        ("insert", Some(Action::Insert)),
        ("replace", Some(Action::Replace)),
        ("check_strip", Some(Action::CheckAndStrip)),
        ("check_pass", Some(Action::CheckAndPass)),
        ("zero_pi_zero", Some(Action::Zero)),
    ];
    let text = expect.text("action")?;
    // The description of the format names none for zeroes with generated tuples, which is the only other thing that
    // Write Zeroes can do.
    let zeroes = opcode == Opcode::WriteZeroes;
    if zeroes && (text == "insert" || known.iter().all(|(name, _)| *name != text)) {
        return Ok(Some(Action::GenerateZeroes));
    }
    expect.one_of("action", &known)
}

pub(super) fn write_zeroes(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let shape = Shape::of(vector)?;
    let cmd = vector.object("cmd")?;
    cmd.only(&["nlb", "pract", "app_tag", "app_mask", "storage_tag", "ref_tag"])?;
    let expect = vector.object("expect")?;
    expect.only(&["md_out"])?;
    let mut md = vec![0xEE; shape.metadata() * cmd.count("nlb", shape.metadata())?];
    let context = shape.context(Checks::NONE, command_tags(&cmd)?)?;
    match context.filter(|_| cmd.flag("pract") == Ok(true)) {
        Some(pi) => pi.generate_zeroes(&mut md),
        None => md.fill(0),
    }
    outcome.bytes("md_out", &expect.hex("md_out")?, &md);
    Ok(())
}

pub(super) fn dealloc(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let shape = Shape::of(vector)?;
    let cmd = vector.object("cmd")?;
    cmd.only(&["nlb", "drb", "guard_crc"])?;
    let expect = vector.object("expect")?;
    expect.only(&["data_byte", "md_out"])?;
    let (fill, byte) = match cmd.number("drb")? {
        1 => (Fill::Zeroes, 0),
        2 => (Fill::Ones, 0xFF),
        _ => return Err(cmd.refuse("drb", "is neither 1 nor 2")),
    };
    let guard = if cmd.flag("guard_crc")? { UnwrittenGuard::Checksum } else { UnwrittenGuard::Ones };
    outcome.number("data_byte", expect.number("data_byte")?, byte);
    let mut md = vec![0xEE; shape.metadata() * cmd.count("nlb", shape.metadata())?];
    shape.format.fill_unwritten(fill, guard, &mut md);
    outcome.bytes("md_out", &expect.hex("md_out")?, &md);
    Ok(())
}

pub(super) fn remap(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let shape = Shape::of(vector)?;
    let cmd = vector.object("cmd")?;
    cmd.only(&["virt", "phys"])?;
    let expect = vector.object("expect")?;
    expect.only(&["md_out"])?;
    let (virt, phys) = (cmd.number("virt")?, cmd.number("phys")?);
    let md = vector.hex("md")?;
    let data = vec![0x5A; md.len() / shape.metadata() * shape.block()];
    shape.blocks(&data, &md)?;
    let expected = expect.hex("md_out")?;
    // Type 0 has no reference tags.
    let context = shape.context(Checks::NONE, Tags::default())?;
    for segment in [usize::MAX, 3] {
        let mut out = md.clone();
        let mut stream = shape.interleave(&data, &md);
        if let Some(pi) = &context {
            pi.remap(&mut out.chunks_mut(segment).collect::<Vec<_>>(), virt, phys);
            pi.remap_interleaved(&mut stream.chunks_mut(segment).collect::<Vec<_>>(), virt, phys);
        }
        outcome.bytes("md_out", &expected, &out);
        outcome.bytes("stream of remap", &shape.interleave(&data, &out), &stream);
    }
    Ok(())
}

pub(super) fn copy(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let cmd = vector.object("cmd")?;
    cmd.only(&["dst", "srcs", "descfmt", "pract_r", "pract_w"])?;
    let expect = vector.object("expect")?;
    expect.only(&["status", "status_any", "action"])?;
    let format = DescriptorFormat::from_code(cmd.small("descfmt")?)
        .ok_or_else(|| cmd.refuse("descfmt", "is not 0 to 3"))?;
    let destination = copied_namespace(&cmd.object("dst")?)?;
    let sources = cmd.list("srcs")?.iter();
    let sources: Vec<Namespace> = sources
        .map(|source| Object::new(source, "cmd.srcs").and_then(|source| copied_namespace(&source)))
        .collect::<Result<_, _>>()?;
    if sources.is_empty() {
        return Err(cmd.refuse("srcs", "is empty"));
    }
    let decided = decide_copy(&destination, &sources, format, cmd.flag("pract_r")?, cmd.flag("pract_w")?);
    status(&expect, decided.err(), outcome)?;
    let expected = expect.one_of(
        "action",
        &[
            ("reject", None),
            ("copy", Some(CopyAction::Copy)),
            ("pass", Some(CopyAction::Pass)),
            ("replace", Some(CopyAction::Replace)),
            ("insert", Some(CopyAction::Insert)),
            ("strip", Some(CopyAction::Strip)),
        ],
    )?;
    outcome.compare("action", &expected, &decided.ok());
    Ok(())
}

/// A namespace of a Copy, whose true metadata size is `md_real`.
fn copied_namespace(object: &Object<'_>) -> Result<Namespace, Malformed> {
    object.only(&["pif", "guard", "type", "lba", "md", "md_real", "pos", "sts", "lbstm", "layout"])?;
    let shape = Shape::parse(object)?;
    let real = if object.has("md_real") { object.small("md_real")? } else { shape.format.metadata_size() };
    match shape.pi_type {
        Some(_) if real != shape.format.metadata_size() => {
            Err(object.refuse("md_real", "is not md, and the type is not 0"))
        }
        Some(pi_type) => Ok(Namespace::protected(shape.format, pi_type, shape.layout)),
        None => Ok(Namespace::plain(shape.format.block_size(), real, shape.layout)),
    }
}
