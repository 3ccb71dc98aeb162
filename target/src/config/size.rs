//! Numbers of bytes with binary units.

/// The largest size, 1 EiB: a file offset is a signed 64-bit number, and metadata may be as large as data.
pub(super) const MAX: u64 = 1 << 60;

/// What a size looks like, for messages.
pub(super) const ALLOWED: &str = "a size such as \"256MiB\" (KiB, MiB, GiB, TiB) or an integer of bytes";

const UNITS: [(&str, u64); 4] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)];

/// Parses `256MiB` or `256 MiB`.
///
/// # Errors
/// When it is something else, zero, or beyond [`MAX`]; the message says what is allowed.
pub(super) fn parse(text: &str) -> Result<u64, String> {
    let refused = || format!("{text:?} is not {ALLOWED}");
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let unit = unit.strip_prefix(' ').unwrap_or(unit);
    let Some((_, factor)) = UNITS.iter().find(|(name, _)| *name == unit) else {
        let binary = UNITS.iter().find(|(name, _)| {
            [&name[..1], &name.replace('i', ""), name].iter().any(|other| unit.eq_ignore_ascii_case(other))
        });
        return Err(match binary {
            Some((name, _)) if digits > 0 => {
                format!("{text:?} has no binary unit; did you mean \"{number}{name}\"?")
            }
            _ => refused(),
        });
    };
    let number: u64 = number.parse().map_err(|_| refused())?;
    match number.checked_mul(*factor) {
        Some(0) => Err("must be more than 0".to_owned()),
        Some(bytes) if bytes <= MAX => Ok(bytes),
        _ => Err(format!("{text:?} is beyond {MAX} bytes")),
    }
}

/// Writes a size with the largest unit that divides it.
#[must_use]
pub fn display(bytes: u64) -> String {
    match UNITS.iter().rev().find(|(_, factor)| bytes >= *factor && bytes.is_multiple_of(*factor)) {
        Some((unit, factor)) => format!("{} {unit}", bytes / factor),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn binary_units_multiply_by_powers_of_1024() {
        assert_eq!(parse("1KiB"), Ok(1024));
        assert_eq!(parse("256MiB"), Ok(256 << 20));
        assert_eq!(parse("3 GiB"), Ok(3 << 30));
        assert_eq!(parse("1048576TiB"), Ok(1 << 60));
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in [
            "",
            "MiB",
            "256",
            "-1MiB",
            "+1MiB",
            "1.5GiB",
            "0KiB",
            "1048577TiB",
            "99999999999999999999KiB",
            "1  MiB",
            "1MiB ",
        ] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_decimal_unit_is_answered_with_the_binary_one() {
        for text in ["256MB", "256mb", "256M", "256mib"] {
            assert_eq!(parse(text), Err(format!("{text:?} has no binary unit; did you mean \"256MiB\"?")));
        }
    }

    proptest! {
        #[test]
        fn whatever_is_displayed_parses_to_the_same_size(kib in 1..(1_u64 << 40)) {
            prop_assert_eq!(parse(&display(kib << 10)), Ok(kib << 10));
        }

        #[test]
        fn no_text_panics(text in ".*") {
            let _ = parse(&text);
        }
    }
}
