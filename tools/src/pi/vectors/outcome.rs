//! What a vector gave, beside what it expects.

use std::fmt::{Debug, Display};

use serde_json::Value;
use t10pi::{BlockReport, Field, PiMismatch};

use super::Malformed;
use super::value::{Object, number};

/// The mismatches of one vector.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    mismatches: Vec<String>,
}

impl Outcome {
    pub(super) fn into_mismatches(self) -> Vec<String> {
        self.mismatches
    }

    /// Notes that `what` is `actual` instead of `expected`.
    pub(super) fn mismatch(&mut self, what: impl Display, expected: impl Display, actual: impl Display) {
        self.mismatches.push(format!("{what}: expected {expected}, got {actual}"));
    }

    pub(super) fn compare<T: PartialEq + Debug>(&mut self, what: impl Display, expected: &T, actual: &T) {
        if expected != actual {
            self.mismatch(what, format_args!("{expected:?}"), format_args!("{actual:?}"));
        }
    }

    pub(super) fn number(&mut self, what: impl Display, expected: u64, actual: u64) {
        if expected != actual {
            self.mismatch(what, format_args!("{expected:#x}"), format_args!("{actual:#x}"));
        }
    }

    /// Compares bytes and names the first that differs.
    pub(super) fn bytes(&mut self, what: impl Display, expected: &[u8], actual: &[u8]) {
        if expected.len() != actual.len() {
            self.mismatch(
                what,
                format_args!("{} bytes", expected.len()),
                format_args!("{} bytes", actual.len()),
            );
        } else if let Some(at) = (0..expected.len()).find(|at| expected[*at] != actual[*at]) {
            let (expected, actual) = (expected[at], actual[at]);
            self.mismatch(
                format_args!("{what}, byte {at}"),
                format_args!("{expected:#04x}"),
                format_args!("{actual:#04x}"),
            );
        }
    }
}

/// What a vector says of the checks of its blocks.
#[derive(Debug)]
pub(super) struct Verdict<'a> {
    expect: Object<'a>,
    /// The first mismatch; `None` when all is well.
    first: Option<PiMismatch>,
}

/// Keys that `expect` may have where checks are made.
pub(super) const VERDICT_KEYS: [&str; 15] = [
    "verdict",
    "status",
    "status_any",
    "sense",
    "sense_any",
    "block",
    "lba",
    "interval",
    "field",
    "expected",
    "actual",
    "fields",
    "all",
    "escaped",
    "alt",
];

impl<'a> Verdict<'a> {
    /// Reads `expect`; `None` when it expects the command to be refused.
    pub(super) fn parse(expect: &Object<'a>) -> Result<Option<Self>, Malformed> {
        let verdict = expect.text("verdict")?;
        let first = match verdict {
            "invalid_pi" => return Ok(None),
            "ok" => None,
            "pi_error" => Some(PiMismatch {
                block: expect.number("block")?,
                field: field(expect.text("field")?)?,
                expected: expect.number("expected")?,
                actual: expect.number("actual")?,
            }),
            _ => return Err(expect.refuse("verdict", "is none of ok, pi_error, invalid_pi")),
        };
        Ok(Some(Self { expect: expect.clone(), first }))
    }

    pub(super) fn is_ok(&self) -> bool {
        self.first.is_none()
    }

    /// Compares what one way of checking found first.
    pub(super) fn first(&self, way: &str, found: Result<(), PiMismatch>, outcome: &mut Outcome) {
        let found = found.err();
        if found != self.first {
            let name = |mismatch: Option<PiMismatch>| {
                mismatch.map_or_else(|| "no mismatch".to_owned(), |m| m.to_string())
            };
            outcome.mismatch(way, name(self.first), name(found));
        }
    }

    /// Compares all that was found, block by block.
    pub(super) fn all(&self, reports: &[BlockReport], outcome: &mut Outcome) -> Result<(), Malformed> {
        let failing: Vec<(u64, Vec<&str>)> = reports
            .iter()
            .filter(|report| !report.is_ok())
            .map(|report| (report.block, report.mismatches().map(|m| field_name(m.field)).collect()))
            .collect();
        if self.expect.has("all") {
            let expected: Vec<_> =
                self.expect.list("all")?.iter().map(failing_block).collect::<Result<_, _>>()?;
            outcome.compare("all failing blocks", &expected, &failing);
        }
        if self.expect.has("fields") {
            let expected = names(self.expect.list("fields")?)?;
            let fields = failing.first().map(|(_, fields)| fields.clone()).unwrap_or_default();
            outcome.compare("fields of the first failing block", &expected, &fields);
        }
        if self.expect.has("escaped") {
            let blocks = self.expect.list("escaped")?.iter().map(number).collect::<Option<Vec<_>>>();
            let expected = blocks.ok_or_else(|| self.expect.refuse("escaped", "is not numbers"))?;
            let escaped: Vec<_> = reports.iter().filter(|r| r.escaped).map(|r| r.block).collect();
            outcome.compare("escaped blocks", &expected, &escaped);
        }
        Ok(())
    }

    /// The first failing block and field, if there should be one.
    pub(super) fn failing(&self) -> Option<&PiMismatch> {
        self.first.as_ref()
    }
}

fn failing_block(value: &Value) -> Result<(u64, Vec<&str>), Malformed> {
    let parts = value.as_array().map(Vec::as_slice);
    let Some([block, Value::Array(fields)]) = parts else {
        return Err("expect.all is not pairs of a block and its fields".to_owned());
    };
    let block = number(block).ok_or_else(|| "expect.all has a block that is no number".to_owned())?;
    Ok((block, names(fields)?))
}

/// Names of fields, all of them known.
pub(super) fn names(list: &[Value]) -> Result<Vec<&str>, Malformed> {
    list.iter()
        .map(|name| {
            let name = name.as_str().ok_or_else(|| "a field's name is not a text".to_owned())?;
            field(name).map(|_| name)
        })
        .collect()
}

pub(super) fn field(name: &str) -> Result<Field, Malformed> {
    match name {
        "guard" => Ok(Field::Guard),
        "app" => Ok(Field::AppTag),
        "storage" => Ok(Field::StorageTag),
        "ref" => Ok(Field::RefTag),
        other => Err(format!("{other:?} is no field; there are guard, app, storage, ref")),
    }
}

pub(super) fn field_name(field: Field) -> &'static str {
    match field {
        Field::Guard => "guard",
        Field::AppTag => "app",
        Field::StorageTag => "storage",
        Field::RefTag => "ref",
    }
}
