//! Protection information of a host's memory.

use t10pi::Checks;

use super::Malformed;
use super::data::data;
use super::format::{GUARDS, Shape, tags};
use super::operations;
use super::outcome::{Outcome, VERDICT_KEYS, Verdict, names};
use super::value::Object;

pub(super) fn generate(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let shape = Shape::of(vector)?;
    let cmd = vector.object("cmd")?;
    cmd.only(&["nlb", "app_tag", "storage_tag", "ref_tag"])?;
    let pi = shape.protected(Checks::ALL, tags(&cmd)?)?;
    operations::generate(vector, &shape, &pi, outcome)
}

pub(super) fn convert(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let shape = Shape::of(vector)?;
    let cmd = vector.object("cmd")?;
    cmd.only(&["to", "check", "app_tag", "app_mask", "storage_tag", "ref_tag"])?;
    let expect = vector.object("expect")?;
    expect.only(&[&VERDICT_KEYS[..], &["md_out"]].concat())?;
    let verdict = Verdict::parse(&expect)?
        .ok_or_else(|| expect.refuse("verdict", "is invalid_pi, and a conversion is no command"))?;
    let to = cmd.one_of("to", &GUARDS)?;
    if shape.format.tuple_size() != to.tuple_size() || to.size() != shape.format.guard().size() {
        return Err(cmd.refuse("to", "has other tuples than fmt.guard"));
    }
    let pi = shape.protected(named_checks(&cmd)?, tags(&cmd)?)?;
    let data = data(vector)?;
    let md = vector.hex("md")?;
    shape.blocks(&data, &md)?;
    for (from, to_segment) in [(usize::MAX, usize::MAX), (71, 3)] {
        let mut out = md.clone();
        let found = pi.convert(
            &data.chunks(from).collect::<Vec<_>>(),
            &mut out.chunks_mut(to_segment).collect::<Vec<_>>(),
            to,
        );
        verdict.first("convert", found, outcome);
        if verdict.is_ok() {
            outcome.bytes("md_out", &expect.hex("md_out")?, &out);
        }
    }
    let mut reports = Vec::new();
    pi.inspect(&[&data], &[&md], |report| reports.push(*report));
    verdict.all(&reports, outcome)
}

/// Checks by their names.
pub(super) fn named_checks(cmd: &Object<'_>) -> Result<Checks, Malformed> {
    let names = names(cmd.list("check")?)?;
    let has = |name: &str| names.contains(&name);
    Ok(Checks { guard: has("guard"), app_tag: has("app"), storage_tag: has("storage"), ref_tag: has("ref") })
}
