//! What a discovery session tells: targets and where they are (RFC 7143 appendix C).
//!
//! Sans-IO.

use std::fmt::Write as _;

use intact::iscsi::text::{self, TextError};
use serde::Serialize;

/// What is asked.
pub const SEND_TARGETS: &[u8] = b"SendTargets=All\0";

/// A target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Record {
    /// TargetName.
    pub target: String,
    /// TargetAddress: addresses with ports and portal group tags, as the target says them.
    pub addresses: Vec<String>,
}

/// Reads the answer; addresses belong to the name before them.
///
/// # Errors
/// When it is no text.
pub fn parse(answer: &[u8]) -> Result<Vec<Record>, TextError> {
    let mut found: Vec<Record> = Vec::new();
    let Some((last, whole)) = answer.split_last() else { return Ok(found) };
    if *last != 0 {
        return Err(TextError::Unterminated);
    }
    // A text has its limit of pairs, and an answer may have many targets.
    for pair in whole.split(|byte| *byte == 0).filter(|pair| !pair.is_empty()) {
        let ended = [pair, &[0]].concat();
        for pair in text::pairs(&ended)? {
            match (pair.key, found.last_mut()) {
                ("TargetName", _) => {
                    found.push(Record { target: pair.value.to_owned(), addresses: Vec::new() });
                }
                ("TargetAddress", Some(record)) => record.addresses.push(pair.value.to_owned()),
                _ => {}
            }
        }
    }
    Ok(found)
}

/// For people, as `iscsiadm` prints it: an address and a name on a line.
#[must_use]
pub fn to_text(records: &[Record]) -> String {
    let mut text = String::new();
    for Record { target, addresses } in records {
        if addresses.is_empty() {
            writeln!(text, "- {}", shown(target)).expect("writing to a string can't fail");
        }
        for address in addresses {
            writeln!(text, "{} {}", shown(address), shown(target)).expect("writing to a string can't fail");
        }
    }
    text
}

/// Text of a target, with nothing that a terminal would act on.
fn shown(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_belong_to_the_name_before_them() {
        let answer = b"TargetName=iqn.2026-11.test:t0\0TargetAddress=10.77.0.1:3260,1\0\
            TargetAddress=[fd00::1]:3260,1\0TargetName=iqn.2026-11.test:t1\0X-key=a\0\0\0";
        let records = parse(answer).unwrap();
        let expected = "10.77.0.1:3260,1 iqn.2026-11.test:t0\n[fd00::1]:3260,1 iqn.2026-11.test:t0\n\
            - iqn.2026-11.test:t1\n";
        assert_eq!(to_text(&records), expected);
        assert_eq!(parse(b"").unwrap(), []);
        assert_eq!(parse(b"TargetAddress=10.77.0.1:3260,1\0").unwrap(), [], "of no target");
    }

    #[test]
    fn what_is_no_text_is_refused_and_what_is_shown_moves_no_cursor() {
        assert_eq!(parse(b"TargetName=a"), Err(TextError::Unterminated));
        assert_eq!(parse(b"TargetName\0"), Err(TextError::NoSeparator));
        let many: Vec<u8> = b"TargetName=a\0TargetAddress=b\0".repeat(1000);
        assert_eq!(parse(&many).unwrap().len(), 1000);
        let odd = Record { target: "a\x1b[2J".to_owned(), addresses: vec!["b\r".to_owned()] };
        assert_eq!(to_text(&[odd]), "b? a?[2J\n");
    }
}
