//! Text: `key=value` pairs, each ended by a zero byte (RFC 7143 section 6.1), gathered over several PDUs and taken apart.
//!
//! What keys mean is [`super::keys`]' business.

use thiserror::Error;

/// Longest name of a key, in bytes (section 6.1).
pub const KEY_MAX: usize = 63;
/// Longest value, in bytes, where a key doesn't say otherwise (section 6.1, text-value).
pub const VALUE_MAX: usize = 255;
/// Longest value of a key that carries binary data, in bytes: 1024 bytes in hexadecimal behind `0x`.
pub const BINARY_VALUE_MAX: usize = 2 + 2 * 1024;
/// Bytes of a text, over all PDUs that it takes.
pub const TEXT_MAX: usize = 8192;
/// Pairs in a text. The RFCs and Linux know about 40 keys.
pub const PAIRS_MAX: usize = 64;

/// A pair of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair<'a> {
    /// A key's name: a letter first, then letters, digits and `. - + @ _ #`.
    pub key: &'a str,
    /// What stands behind the first `=`.
    pub value: &'a str,
}

/// Why bytes are no text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TextError {
    /// More than [`TEXT_MAX`] bytes.
    #[error("a text of more than {TEXT_MAX} bytes")]
    TooLong,
    /// More than [`PAIRS_MAX`] pairs.
    #[error("more than {PAIRS_MAX} keys in a text")]
    TooManyPairs,
    /// The last pair has no zero byte behind it.
    #[error("a text whose last pair is not ended by a zero byte")]
    Unterminated,
    /// A pair without `=`.
    #[error("a text with a pair that has no `=`")]
    NoSeparator,
    /// A name that no key can have.
    #[error("a key's name has 1 to {KEY_MAX} letters, digits and . - + @ _ #, a letter first")]
    BadKey,
    /// A value that is not UTF-8.
    #[error("a value that is not UTF-8")]
    NotUtf8,
    /// A value longer than its key allows.
    #[error("a value of {0} bytes is longer than its key allows")]
    ValueTooLong(usize),
}

/// A text as its PDUs arrive.
#[derive(Debug, Default)]
pub struct Gathered {
    bytes: Vec<u8>,
}

impl Gathered {
    /// Adds a PDU's data segment.
    ///
    /// # Errors
    /// When the text gets longer than [`TEXT_MAX`].
    pub fn push(&mut self, data: &[u8]) -> Result<(), TextError> {
        if data.len() > TEXT_MAX - self.bytes.len() {
            return Err(TextError::TooLong);
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    /// The whole text; what comes next begins another.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }

    /// Whether nothing has arrived.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// The pairs of a text, in order. Further zero bytes behind a pair are passed over.
///
/// # Errors
/// What is wrong with the first pair that is none, or with the number of them.
pub fn pairs(text: &[u8]) -> Result<Vec<Pair<'_>>, TextError> {
    let Some((last, text)) = text.split_last() else { return Ok(Vec::new()) };
    if *last != 0 {
        return Err(TextError::Unterminated);
    }
    let mut found = Vec::new();
    for pair in text.split(|byte| *byte == 0).filter(|pair| !pair.is_empty()) {
        if found.len() == PAIRS_MAX {
            return Err(TextError::TooManyPairs);
        }
        found.push(parse(pair)?);
    }
    Ok(found)
}

fn parse(pair: &[u8]) -> Result<Pair<'_>, TextError> {
    let at = pair.iter().position(|byte| *byte == b'=').ok_or(TextError::NoSeparator)?;
    let (key, value) = (&pair[..at], &pair[at + 1..]);
    let name = |byte: &u8| byte.is_ascii_alphanumeric() || b".-+@_#".contains(byte);
    if key.len() > KEY_MAX || !key.first().is_some_and(u8::is_ascii_alphabetic) || !key.iter().all(name) {
        return Err(TextError::BadKey);
    }
    let key = str::from_utf8(key).map_err(|_| TextError::BadKey)?;
    let limit = if carries_binary(key) { BINARY_VALUE_MAX } else { VALUE_MAX };
    if value.len() > limit {
        return Err(TextError::ValueTooLong(value.len()));
    }
    Ok(Pair { key, value: str::from_utf8(value).map_err(|_| TextError::NotUtf8)? })
}

fn carries_binary(key: &str) -> bool {
    matches!(key, "CHAP_C" | "CHAP_R")
}

/// Adds a pair to a text.
pub fn append(text: &mut Vec<u8>, key: &str, value: &str) {
    text.extend_from_slice(key.as_bytes());
    text.push(b'=');
    text.extend_from_slice(value.as_bytes());
    text.push(0);
}

/// A number as texts have it: decimal, or hexadecimal behind `0x` (section 6.1, numerical-value). `None` for anything
/// else, and for what needs more than 64 bits.
#[must_use]
pub fn number(value: &str) -> Option<u64> {
    let (digits, radix) = match value.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&value[2..], 16),
        _ => (value, 10),
    };
    // `from_str_radix` takes signs, which no text has.
    digits.chars().all(|c| c.is_digit(radix)).then_some(())?;
    u64::from_str_radix(digits, radix).ok()
}

/// The bytes of a binary value: hexadecimal behind `0x`, base64 behind `0b` (section 6.1, binary-value). `None` for
/// anything else.
#[must_use]
pub fn binary(value: &str) -> Option<Vec<u8>> {
    let (prefix, digits) = value.as_bytes().split_first_chunk::<2>()?;
    match prefix {
        [b'0', b'x' | b'X'] => hexadecimal(digits),
        [b'0', b'b' | b'B'] => base64(digits),
        _ => None,
    }
}

/// An odd first digit stands for a byte of its own.
fn hexadecimal(digits: &[u8]) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let (first, pairs) = digits.split_at(digits.len() % 2);
    let mut out: Vec<u8> = first.iter().map(|byte| digit(*byte)).collect::<Option<_>>()?;
    for [high, low] in pairs.as_chunks::<2>().0 {
        out.push(digit(*high)? << 4 | digit(*low)?);
    }
    (!out.is_empty()).then_some(out)
}

/// RFC 4648 section 4, with its padding; bits behind the last byte must be zero.
fn base64(digits: &[u8]) -> Option<Vec<u8>> {
    let (groups, rest) = digits.as_chunks::<4>();
    if groups.is_empty() || !rest.is_empty() {
        return None;
    }
    let mut out = Vec::with_capacity(groups.len() * 3);
    for (at, group) in groups.iter().enumerate() {
        let padding =
            if at + 1 == groups.len() { group.iter().rev().take_while(|b| **b == b'=').count() } else { 0 };
        if padding > 2 {
            return None;
        }
        let mut bits = 0_u32;
        for byte in &group[..4 - padding] {
            bits = bits << 6 | u32::from(sextet(*byte)?);
        }
        bits <<= 6 * padding;
        let [_, bytes @ ..] = bits.to_be_bytes();
        let (taken, left) = bytes.split_at(3 - padding);
        if left.iter().any(|byte| *byte != 0) {
            return None;
        }
        out.extend_from_slice(taken);
    }
    Some(out)
}

fn sextet(byte: u8) -> Option<u8> {
    Some(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    })
}

/// Bytes as a binary value in hexadecimal.
#[must_use]
pub fn to_hexadecimal(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold("0x".to_owned(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("strings take what is written to them");
        text
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn error(text: &[u8]) -> TextError {
        pairs(text).unwrap_err()
    }

    #[test]
    fn pairs_are_separated_by_zero_bytes_and_padding_is_none() {
        let found = pairs(b"SendTargets=All\0X-a.b=c=d\0\0\0Empty=\0\0").unwrap();
        let pair = |key, value| Pair { key, value };
        assert_eq!(found, [pair("SendTargets", "All"), pair("X-a.b", "c=d"), pair("Empty", "")]);
        assert_eq!(pairs(b"").unwrap(), []);
        assert_eq!(pairs(b"\0\0\0\0").unwrap(), []);
        let mut text = Vec::new();
        append(&mut text, "SendTargets", "All");
        assert_eq!(text, b"SendTargets=All\0");
    }

    #[test]
    fn what_is_no_pair_is_named() {
        assert_eq!(error(b"SendTargets=All"), TextError::Unterminated);
        assert_eq!(error(b"SendTargets\0"), TextError::NoSeparator);
        assert_eq!(error(b"=All\0"), TextError::BadKey);
        assert_eq!(error(b"7endTargets=All\0"), TextError::BadKey);
        assert_eq!(error(b"Send Targets=All\0"), TextError::BadKey);
        assert_eq!(error(format!("A{}=x\0", "a".repeat(KEY_MAX)).as_bytes()), TextError::BadKey);
        assert_eq!(error(b"A=\xff\0"), TextError::NotUtf8);
        let long = |key: &str, length| format!("{key}={}\0", "0".repeat(length)).into_bytes();
        assert_eq!(error(&long("A", 256)), TextError::ValueTooLong(256));
        assert!(pairs(&long("A", 255)).is_ok() && pairs(&long("CHAP_C", BINARY_VALUE_MAX)).is_ok());
        assert_eq!(error(&long("CHAP_C", 2051)), TextError::ValueTooLong(2051));
        assert_eq!(error(&b"A=b\0".repeat(65)), TextError::TooManyPairs);
        assert!(pairs(&b"A=b\0".repeat(64)).is_ok());
    }

    #[test]
    fn a_text_is_gathered_up_to_its_limit() {
        let mut text = Gathered::default();
        text.push(b"Send").unwrap();
        text.push(b"Targets=All\0").unwrap();
        assert_eq!(text.take(), b"SendTargets=All\0");
        assert!(text.is_empty());
        for _ in 0..8 {
            text.push(&[b'a'; 1024]).unwrap();
        }
        assert_eq!(text.push(b"a"), Err(TextError::TooLong));
        assert_eq!(text.push(b""), Ok(()));
        assert_eq!(text.take().len(), TEXT_MAX);
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal() {
        for (text, value) in [
            ("0", Some(0)),
            ("262144", Some(262_144)),
            ("0x1F", Some(31)),
            ("0X10", Some(16)),
            ("007", Some(7)),
        ] {
            assert_eq!(number(text), value, "{text}");
        }
        for text in ["", "0x", "-1", "+1", "1 ", "0x-1", "1a", "18446744073709551616", "٣"] {
            assert_eq!(number(text), None, "{text}");
        }
    }

    #[test]
    fn binary_values_are_hexadecimal_or_base64() {
        assert_eq!(binary("0x0123aF"), Some(vec![0x01, 0x23, 0xaf]));
        assert_eq!(binary("0xfab"), Some(vec![0x0f, 0xab]));
        // RFC 4648 section 10.
        for (text, bytes) in
            [("Zg==", "f"), ("Zm8=", "fo"), ("Zm9v", "foo"), ("Zm9vYg==", "foob"), ("Zm9vYmFy", "foobar")]
        {
            assert_eq!(binary(&format!("0b{text}")).unwrap(), bytes.as_bytes());
        }
        for text in [
            "",
            "0x",
            "0b",
            "0",
            "abcd",
            "0xgg",
            "0bZg=",
            "0bZ===",
            "0b====",
            "0bZg==Zg==",
            "0bZh==",
            "0bZm9-",
        ] {
            assert_eq!(binary(text), None, "{text}");
        }
        assert_eq!(to_hexadecimal(&[0, 0xab]), "0x00ab");
    }

    proptest! {
        #[test]
        fn no_bytes_make_the_parser_panic(text in prop::collection::vec(any::<u8>(), 0..300)) {
            for pair in pairs(&text).unwrap_or_default() {
                prop_assert!(pair.key.len() <= KEY_MAX && pair.value.len() <= BINARY_VALUE_MAX);
                let _ = (number(pair.value), binary(pair.value));
            }
        }

        #[test]
        fn binary_values_are_read_back(bytes in prop::collection::vec(any::<u8>(), 1..100)) {
            prop_assert_eq!(binary(&to_hexadecimal(&bytes)), Some(bytes));
        }

        #[test]
        fn pairs_are_read_back(key in "[A-Za-z][A-Za-z0-9.+@_#-]{0,62}", value in "[^\0]{0,60}") {
            let mut text = Vec::new();
            append(&mut text, &key, &value);
            prop_assert_eq!(pairs(&text).unwrap(), [Pair { key: &key, value: &value }]);
        }
    }
}
