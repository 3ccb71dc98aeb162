//! Sizes and times as people type them: `4096`, `4k`, `128KiB`; `10`, `1.5s`.

use std::time::Duration;

/// Reads a number of bytes. Units are binary whether or not they say so: `4k`, `4K`, `4KB`, `4KiB` are 4096 bytes.
///
/// # Errors
/// When it is something else, or zero; the message says what is allowed.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(format!("{text:?} is not a size such as 4096, 4k or 128KiB")),
    };
    let number: u64 =
        number.parse().map_err(|_| format!("{text:?} is not a size such as 4096, 4k or 128KiB"))?;
    match number.checked_mul(1 << shift) {
        Some(0) => Err("a size must be more than 0".to_owned()),
        Some(bytes) => Ok(bytes),
        None => Err(format!("{text:?} is too large")),
    }
}

/// Reads a number of seconds, with or without an `s`.
///
/// # Errors
/// When it is something else, or not positive.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let number = text.strip_suffix('s').unwrap_or(text);
    number
        .parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|time| !time.is_zero())
        .ok_or_else(|| format!("{text:?} is not a positive number of seconds"))
}

/// Reads an integer, decimal or (`0x`) hexadecimal.
///
/// # Errors
/// When it is something else.
pub fn parse_integer(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text:?} is not an unsigned integer, decimal or 0x hexadecimal"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways_to_say_4_kib_are_4096_bytes() {
        for text in ["4096", "4k", "4K", "4KB", "4KiB", "4 KiB", "4096b"] {
            assert_eq!(parse(text), Ok(4096), "{text}");
        }
        assert_eq!(parse("128KiB"), Ok(131_072));
        assert_eq!(parse("1g"), Ok(1 << 30));
    }

    #[test]
    fn what_is_no_size_is_refused_in_words() {
        for text in ["", "k", "4x", "-4", "0", "0k", "99999999999999999999", "16777216TiB"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_positive_seconds() {
        assert_eq!(parse_time("10"), Ok(Duration::from_secs(10)));
        assert_eq!(parse_time("1.5s"), Ok(Duration::from_millis(1500)));
        for text in ["", "s", "0", "-1", "nan", "inf", "1m"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }

    #[test]
    fn integers_may_be_hexadecimal() {
        assert_eq!(parse_integer("0x1F"), Ok(31));
        assert_eq!(parse_integer("31"), Ok(31));
        assert!(parse_integer("1f").is_err() && parse_integer("0x").is_err() && parse_integer("-1").is_err());
    }
}
