//! `intact-pi check-vectors`: runs vectors of protection information, one JSON object a line, through `t10pi`.
//!
//! Owns the format of the vectors and nothing of their meaning: every result is computed by the library, from the
//! inputs alone, in each way that it has to do so. What a vector says and this program doesn't know is an error of that
//! vector, never passed over. `tests/vectors.rs` runs the repository's own.

mod crc;
mod data;
mod dix;
mod format;
mod nvme;
mod operations;
mod outcome;
mod scsi;
mod value;

use std::fmt::Write as _;
use std::io::{BufRead, Read as _};

use serde_json::Value;

use outcome::Outcome;
use value::Object;

/// Why a vector could not be carried out: what in it is not understood.
type Malformed = String;

/// One kind of vector: `suite.op`, the keys besides the common ones, and what runs it.
struct Suite {
    name: &'static str,
    keys: &'static [&'static str],
    run: fn(&Object<'_>, &mut Outcome) -> Result<(), Malformed>,
}

const SUITES: [Suite; 20] = [
    Suite { name: "crc.value", keys: &["alg", "data"], run: crc::value },
    Suite { name: "nvme.tags", keys: &["fmt", "cmd"], run: nvme::tags },
    Suite { name: "nvme.tags_decode", keys: &["fmt", "cmd"], run: nvme::tags_decode },
    Suite { name: "nvme.sqe", keys: &["fmt", "sqe"], run: nvme::sqe },
    Suite { name: "nvme.generate", keys: &["fmt", "cmd", "data", "md_in"], run: nvme::generate },
    Suite { name: "nvme.verify", keys: &["fmt", "cmd", "data", "md"], run: nvme::verify },
    Suite { name: "nvme.command", keys: &["fmt", "cmd"], run: nvme::command },
    Suite { name: "nvme.write_zeroes", keys: &["fmt", "cmd"], run: nvme::write_zeroes },
    Suite { name: "nvme.dealloc", keys: &["fmt", "cmd"], run: nvme::dealloc },
    Suite { name: "nvme.remap", keys: &["fmt", "cmd", "md"], run: nvme::remap },
    Suite { name: "nvme.copy", keys: &["cmd"], run: nvme::copy },
    Suite { name: "dix.generate", keys: &["fmt", "cmd", "data", "md_in"], run: dix::generate },
    Suite { name: "dix.convert", keys: &["fmt", "cmd", "data", "md"], run: dix::convert },
    Suite { name: "scsi.generate", keys: &["fmt", "cmd", "data", "md_in"], run: scsi::generate },
    Suite { name: "scsi.verify", keys: &["fmt", "cmd", "data", "md"], run: scsi::verify },
    Suite { name: "scsi.decide", keys: &["cmd"], run: scsi::decide },
    Suite { name: "scsi.write_same", keys: &["fmt", "cmd", "data", "pi"], run: scsi::write_same },
    Suite { name: "scsi.format", keys: &["cmd"], run: scsi::format },
    Suite { name: "scsi.readcap16", keys: &["cmd"], run: scsi::read_capacity },
    Suite { name: "scsi.cdb", keys: &["cdb"], run: scsi::cdb },
];

/// Keys that every vector may have.
const COMMON: [&str; 7] = ["id", "suite", "op", "case", "note", "nvme_legal", "expect"];

/// Bytes of a line, and no more: it is held in memory.
const LONGEST: u64 = 64 << 20;

/// How many vectors passed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// They gave what they expect.
    pub passed: usize,
    /// They gave something else, or are not understood.
    pub failed: usize,
}

/// Runs every line of `vectors`; passes a text for each mismatch to `report`, with the vector's id.
///
/// # Errors
/// When reading fails.
pub fn check(mut vectors: impl BufRead, mut report: impl FnMut(&str)) -> std::io::Result<Tally> {
    let mut tally = Tally::default();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        if vectors.by_ref().take(LONGEST + 1).read_until(b'\n', &mut line)? == 0 {
            break;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        let problems = if line.len() as u64 > LONGEST {
            if line.last() != Some(&b'\n') {
                vectors.skip_until(b'\n')?;
            }
            vec![format!("line {number}: more than {LONGEST} bytes")]
        } else {
            match str::from_utf8(&line) {
                Ok(line) => problems(line, number),
                Err(error) => {
                    vec![format!("line {number}: not UTF-8 behind its first {} bytes", error.valid_up_to())]
                }
            }
        };
        if problems.is_empty() {
            tally.passed += 1;
        } else {
            tally.failed += 1;
        }
        problems.iter().for_each(|problem| report(problem));
    }
    Ok(tally)
}

/// What is wrong with the vector on line `number`.
fn problems(line: &str, number: usize) -> Vec<String> {
    let vector: Value = match serde_json::from_str(line) {
        Ok(vector) => vector,
        Err(error) => return vec![format!("line {number}: not a JSON object: {error}")],
    };
    let id = match vector.get("id").and_then(Value::as_str) {
        Some(id) => id.to_owned(),
        None => format!("line {number}"),
    };
    let mut outcome = Outcome::default();
    let run = Object::new(&vector, "the vector").and_then(|vector| run(&vector, &mut outcome));
    let mut texts = outcome.into_mismatches();
    texts.extend(run.err());
    texts.into_iter().map(|text| format!("{id}: {text}")).collect()
}

fn run(vector: &Object<'_>, outcome: &mut Outcome) -> Result<(), Malformed> {
    let name = format!("{}.{}", vector.text("suite")?, vector.text("op")?);
    let Some(suite) = SUITES.iter().find(|suite| suite.name == name) else {
        let mut error = format!("no suite is called {name}; there are");
        for suite in &SUITES {
            let _ = write!(error, " {}", suite.name);
        }
        return Err(error);
    };
    vector.only(&[&COMMON, suite.keys].concat())?;
    (suite.run)(vector, outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failures(lines: &str) -> Vec<String> {
        let mut failures = Vec::new();
        let tally = check(lines.as_bytes(), |text| failures.push(text.to_owned())).unwrap();
        assert_eq!(tally.failed, lines.lines().filter(|line| !line.trim().is_empty()).count() - tally.passed);
        failures
    }

    #[test]
    fn a_wrong_expectation_is_named_with_its_vector() {
        let good = r#"{"id":"A","suite":"crc","op":"value","alg":"crc16","data":{"enc":"hex","hex":"313233"},"expect":{"crc":"0x6a3c"}}"#;
        let wrong = format!("{:#06x}", t10pi::crc::crc16(0, b"123") ^ 1);
        let bad = good.replace("0x6a3c", &wrong);
        let text = failures(&bad).concat();
        assert!(text.starts_with("A: crc by ") && text.contains(&wrong), "{text}");
        let right = good.replace("0x6a3c", &format!("{:#06x}", t10pi::crc::crc16(0, b"123")));
        assert_eq!(failures(&format!("{right}\n\n{right}\n")), Vec::<String>::new());
    }

    #[test]
    fn a_line_that_is_no_text_is_an_error_of_that_line_alone() {
        let good =
            r#"{"id":"A","suite":"scsi","op":"readcap16","case":"","cmd":{"type":1},"expect":{"byte12":1}}"#;
        let text = [good.as_bytes(), b"\n{\"\xff\n", good.as_bytes()].concat();
        let mut texts = Vec::new();
        let tally = check(text.as_slice(), |text| texts.push(text.to_owned())).unwrap();
        assert_eq!(tally, Tally { passed: 2, failed: 1 });
        assert_eq!(texts, ["line 2: not UTF-8 behind its first 2 bytes"]);

        let long = vec![b'a'; usize::try_from(LONGEST).unwrap() + 10];
        let text = [&long, &b"\n"[..], good.as_bytes(), b"\n", &long].concat();
        let mut texts = Vec::new();
        let tally = check(text.as_slice(), |text| texts.push(text.to_owned())).unwrap();
        assert_eq!(tally, Tally { passed: 1, failed: 2 });
        assert_eq!(texts, ["line 1: more than 67108864 bytes", "line 3: more than 67108864 bytes"]);
    }

    #[test]
    fn what_is_not_understood_is_an_error_of_its_vector() {
        for (line, expected) in [
            ("{", "line 1: not a JSON object"),
            ("[]", "line 1: the vector is not an object"),
            (r#"{"id":"B"}"#, "B: the vector lacks suite"),
            (
                r#"{"id":"B","suite":"nvme","op":"format"}"#,
                "B: no suite is called nvme.format; there are crc.value",
            ),
            (
                r#"{"id":"B","suite":"scsi","op":"readcap16","cmd":{"type":4},"expect":{"byte12":0}}"#,
                "B: cmd.type is 4",
            ),
            (
                r#"{"id":"B","suite":"scsi","op":"readcap16","cmd":{"type":1,"colour":2},"expect":{"byte12":0}}"#,
                "B: cmd has colour",
            ),
            (
                r#"{"id":"B","suite":"scsi","op":"readcap16","cmd":{"type":1},"expect":{"byte12":1,"byte13":0}}"#,
                "B: expect has byte13",
            ),
            (
                r#"{"id":"B","suite":"scsi","op":"readcap16","cmd":{"type":1},"seed":1,"expect":{"byte12":1}}"#,
                "B: the vector has seed",
            ),
            (
                r#"{"id":"B","suite":"crc","op":"value","alg":"crc8","data":{"enc":"hex","hex":""},"expect":{"crc":0}}"#,
                "B: alg is \"crc8\"",
            ),
            (
                r#"{"id":"B","suite":"crc","op":"value","alg":"crc16","data":{"enc":"hex","hex":"1"},"expect":{"crc":0}}"#,
                "B: data.hex is not",
            ),
            (
                r#"{"id":"B","suite":"crc","op":"value","alg":"crc16","data":{"enc":"blocks","len":4,"blocks":[{"g":"zip"}]},"expect":{"crc":0}}"#,
                "B: data.blocks.g is \"zip\"",
            ),
        ] {
            let texts = failures(line);
            assert!(texts.len() == 1 && texts[0].starts_with(expected), "{texts:?}, not {expected}");
        }
    }
}
