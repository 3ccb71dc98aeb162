//! Generation and verification in every way that the library has: separate, interleaved, copying, and with segments
//! that end anywhere.

use sha2::{Digest, Sha256};
use t10pi::{Checks, Outgoing, PiContext};

use super::Malformed;
use super::data::data;
use super::format::Shape;
use super::outcome::{Outcome, Verdict};
use super::value::Object;

/// Generates by `pi`, and compares with `md_out` and, where it is given, the digest of the transfer.
pub(super) fn generate(
    vector: &Object<'_>,
    shape: &Shape,
    pi: &PiContext,
    outcome: &mut Outcome,
) -> Result<(), Malformed> {
    let expect = vector.object("expect")?;
    expect.only(&["md_out", "xfer_sha"])?;
    let expected = expect.hex("md_out")?;
    let data = data(vector)?;
    let given = if vector.has("md_in") { vector.hex("md_in")? } else { Vec::new() };
    let md = if given.is_empty() { vec![0; data.len() / shape.block() * shape.metadata()] } else { given };
    shape.blocks(&data, &md)?;

    let mut out = md.clone();
    pi.generate(&[&data], &mut [&mut out]);
    outcome.bytes("md_out", &expected, &out);
    if expect.has("xfer_sha") {
        digest(shape, &data, &out, expect.text("xfer_sha")?, outcome);
    }
    let whole = shape.interleave(&data, &out);
    let mut again = md.clone();
    pi.generate(&data.chunks(47).collect::<Vec<_>>(), &mut again.chunks_mut(3).collect::<Vec<_>>());
    outcome.bytes("generate in segments", &out, &again);
    for segment in [usize::MAX, 29] {
        let mut stream = shape.interleave(&data, &md);
        pi.generate_interleaved(&mut stream.chunks_mut(segment).collect::<Vec<_>>());
        outcome.bytes(format_args!("generate interleaved, segments of {segment}"), &whole, &stream);
    }
    if md.iter().all(|byte| *byte == 0) {
        for (from, to) in [(usize::MAX, usize::MAX), (31, 23), (4096, 4096)] {
            let mut stream = vec![0xEE; whole.len()];
            pi.insert(&data.chunks(from).collect::<Vec<_>>(), &mut stream.chunks_mut(to).collect::<Vec<_>>());
            outcome.bytes(format_args!("insert, segments of {from} and {to}"), &whole, &stream);
        }
    }
    Ok(())
}

/// Verifies `md` by `pi` and compares with the verdict; `None` is a context for type 0, which finds nothing.
pub(super) fn verify(
    vector: &Object<'_>,
    shape: &Shape,
    pi: Option<&PiContext>,
    verdict: &Verdict<'_>,
    outcome: &mut Outcome,
) -> Result<(), Malformed> {
    let data = data(vector)?;
    let md = vector.hex("md")?;
    shape.blocks(&data, &md)?;
    let expect = vector.object("expect")?;
    if expect.has("xfer_sha") {
        digest(shape, &data, &md, expect.text("xfer_sha")?, outcome);
    }
    let Some(pi) = pi else {
        verdict.first("type 0", Ok(()), outcome);
        return verdict.all(&[], outcome);
    };
    let stream = shape.interleave(&data, &md);

    verdict.first("verify", pi.verify(&[&data], &[&md]), outcome);
    let mut reports = Vec::new();
    pi.inspect(&[&data], &[&md], |report| reports.push(*report));
    verdict.all(&reports, outcome)?;
    let mut again = Vec::new();
    pi.inspect_interleaved(&stream.chunks(53).collect::<Vec<_>>(), |report| again.push(*report));
    outcome.compare("inspect interleaved", &reports, &again);

    let segments = |bytes: usize| stream.chunks(bytes).collect::<Vec<_>>();
    let by_37 = data.chunks(37).collect::<Vec<_>>();
    let md_by_5 = md.chunks(5).collect::<Vec<_>>();
    verdict.first("verify in segments", pi.verify(&by_37, &md_by_5), outcome);
    for bytes in [usize::MAX, 1001, 5] {
        let way = format!("verify interleaved, segments of {bytes}");
        verdict.first(&way, pi.verify_interleaved(&segments(bytes)), outcome);
    }
    for (from, to) in [(usize::MAX, usize::MAX), (97, 43), (613, 700), (4096, 4096)] {
        let ways = format!("segments of {from} and {to}");
        let (mut out, mut out_md) = (vec![0xEE; data.len()], vec![0xEE; md.len()]);
        let found = pi.strip(&segments(from), &mut out.chunks_mut(to).collect::<Vec<_>>());
        verdict.first(&format!("strip, {ways}"), found, outcome);
        if verdict.is_ok() {
            outcome.bytes(format_args!("data of strip, {ways}"), &data, &out);
        }
        out.fill(0xEE);
        let found = pi.split(
            &segments(from),
            &mut out.chunks_mut(to).collect::<Vec<_>>(),
            &mut out_md.chunks_mut(to).collect::<Vec<_>>(),
        );
        verdict.first(&format!("split, {ways}"), found, outcome);
        if verdict.is_ok() {
            outcome.bytes(format_args!("data of split, {ways}"), &data, &out);
            outcome.bytes(format_args!("metadata of split, {ways}"), &md, &out_md);
        }
        let mut copy = vec![0xEE; stream.len()];
        let found = pi.join(
            &data.chunks(from).collect::<Vec<_>>(),
            &md.chunks(from).collect::<Vec<_>>(),
            &mut copy.chunks_mut(to).collect::<Vec<_>>(),
        );
        verdict.first(&format!("join, {ways}"), found, outcome);
        if verdict.is_ok() {
            outcome.bytes(format_args!("stream of join, {ways}"), &stream, &copy);
        }
        copy.fill(0xEE);
        let found =
            pi.pass(&segments(from), &mut copy.chunks_mut(to).collect::<Vec<_>>(), Outgoing::AsStored);
        verdict.first(&format!("pass, {ways}"), found, outcome);
        if verdict.is_ok() {
            outcome.bytes(format_args!("stream of pass, {ways}"), &stream, &copy);
        }
    }
    Ok(())
}

/// Compares the first eight bytes of the transfer's SHA-256.
fn digest(shape: &Shape, data: &[u8], md: &[u8], expected: &str, outcome: &mut Outcome) {
    use std::fmt::Write as _;
    let hash = Sha256::digest(shape.transfer(data, md));
    let actual = hash.iter().take(8).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    if actual != expected {
        outcome.mismatch("xfer_sha", expected, actual);
    }
}

/// PRCHK and STC.
pub(super) fn checks(cmd: &Object<'_>) -> Result<Checks, Malformed> {
    let prchk = cmd.number("prchk")?;
    if prchk > 7 {
        return Err(cmd.refuse("prchk", "is more than three bits"));
    }
    Ok(Checks {
        guard: prchk & 4 != 0,
        app_tag: prchk & 2 != 0,
        storage_tag: cmd.flag("stc")?,
        ref_tag: prchk & 1 != 0,
    })
}
