//! iSCSI names (RFC 7143 section 4.2.7; RFC 3722 for how they compare).

use std::fmt;

use thiserror::Error;

/// Longest name, in bytes.
pub const NAME_MAX: usize = 223;

/// A name of an initiator or a target: `iqn.`, `eui.` or `naa.`, in lower case, for case makes no difference.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IscsiName(String);

/// Why a text is no iSCSI name.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{name:?} is no iSCSI name: {why}")]
pub struct NameError {
    name: String,
    why: &'static str,
}

impl IscsiName {
    /// Checks a name.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, NameError> {
        let refuse = |why| Err(NameError { name: text.chars().take(NAME_MAX).collect(), why });
        if text.len() > NAME_MAX {
            return refuse("it is longer than 223 bytes");
        }
        let allowed = |c: char| c.is_ascii_alphanumeric() || ".-:".contains(c) || c.is_alphanumeric();
        if !text.chars().all(allowed) {
            return refuse("it has other characters than letters, digits, dots, dashes and colons");
        }
        let name = text.to_lowercase();
        let digits = |text: &str, lengths: &[usize]| {
            lengths.contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        let right = match name.split_once('.') {
            Some(("iqn", rest)) => is_qualified(rest),
            Some(("eui", rest)) => digits(rest, &[16]),
            Some(("naa", rest)) => digits(rest, &[16, 32]),
            _ => false,
        };
        if !right {
            return refuse(
                "it must look like iqn.2026-11.org.example:name, or be eui. or naa. with 16 or 32 digits",
            );
        }
        Ok(Self(name))
    }

    /// The name, in lower case.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Year and month, and a domain with or without a string.
fn is_qualified(rest: &str) -> bool {
    let Some((date, domain)) = rest.split_once('.') else { return false };
    let date = date.split_once('-').is_some_and(|(year, month)| {
        let digits = |part: &str, length| part.len() == length && part.bytes().all(|b| b.is_ascii_digit());
        digits(year, 4) && digits(month, 2) && ("01"..="12").contains(&month)
    });
    date && !domain.is_empty() && !domain.starts_with([':', '.'])
}

impl fmt::Display for IscsiName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_three_kinds_are_taken_whatever_their_case() {
        for name in [
            "iqn.2026-11.io.intact:disk0",
            "iqn.1993-08.org.debian:01:f2ae1ce6b1a2",
            "iqn.2001-04.com.example",
            "eui.02004567A425678D",
            "naa.52004567BA64678D",
            "naa.62004567BA64678D0123456789ABCDEF",
        ] {
            assert_eq!(IscsiName::parse(name).unwrap().as_str(), name.to_lowercase());
        }
    }

    #[test]
    fn what_is_no_name_is_refused() {
        for name in [
            "",
            "iqn",
            "iqn.",
            "iqn.2026-11",
            "iqn.2026-13.org.example",
            "iqn.26-11.org.example",
            "iqn.2026-11.",
            "iqn.2026-11.:x",
            "iqn.2026-11.org example",
            "iqn.2026-11.org.example:a,b",
            "iqn.2026-11.org.example:a\n",
            "eui.02004567A425678",
            "naa.52004567BA64678G",
            "nqn.2026-11.org.example:a",
        ] {
            assert!(IscsiName::parse(name).is_err(), "{name}");
        }
        let long = format!("iqn.2026-11.org.example:{}", "a".repeat(200));
        assert!(IscsiName::parse(&long).is_err());
    }
}
