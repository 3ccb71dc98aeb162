//! NVMe Qualified Names and serial numbers: what the specification allows (NVMe Base 4.7, 5.1.13).

use std::fmt;

/// The name of the discovery subsystem, which no configured subsystem may take.
pub const DISCOVERY_NQN: &str = "nqn.2014-08.org.nvmexpress.discovery";

/// Longest name, in bytes.
pub const NQN_MAX: usize = 223;

/// A valid NVMe Qualified Name: at most 223 bytes, `nqn.YYYY-MM.` and a reversed domain, `:` and a string.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Nqn(String);

impl Nqn {
    /// Checks a name.
    ///
    /// # Errors
    /// A sentence that says what is wrong and what is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let refuse = |why: &str| Err(format!("{text:?} is no NVMe Qualified Name: {why}"));
        if text.len() > NQN_MAX {
            return refuse("it is longer than 223 bytes");
        }
        if text.chars().any(|c| c.is_control() || c.is_whitespace()) {
            return refuse("it has white space or control characters");
        }
        let Some((date, rest)) = text.strip_prefix("nqn.").and_then(|rest| rest.split_once('.')) else {
            return refuse("it must look like nqn.2026-11.org.example:name");
        };
        let month = date.split_once('-').filter(|(year, month)| {
            let digits =
                |part: &str, length| part.len() == length && part.bytes().all(|b| b.is_ascii_digit());
            digits(year, 4) && digits(month, 2)
        });
        if !month.is_some_and(|(_, month)| ("01"..="12").contains(&month)) {
            return refuse("after `nqn.` comes a year and a month, such as 2026-11");
        }
        let Some((domain, name)) = rest.split_once(':') else {
            return refuse("it needs `:` and a name after the reversed domain");
        };
        let label = |label: &str| {
            !label.is_empty()
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if !domain.split('.').all(label) {
            return refuse("after the date comes a reversed domain, such as org.example");
        }
        if name.is_empty() {
            return refuse("the name after `:` is empty");
        }
        Ok(Self(text.to_owned()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Nqn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A serial number as Identify Controller reports it: 1 to 20 printable ASCII characters, without spaces at its ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serial(String);

impl Serial {
    /// Checks a serial number.
    ///
    /// # Errors
    /// A sentence that says what is wrong and what is allowed.
    pub fn parse(text: &str) -> Result<Self, String> {
        let printable = text.bytes().all(|b| (0x20..0x7f).contains(&b));
        if text.is_empty() || text.len() > 20 || !printable || text.trim() != text {
            return Err(format!(
                "{text:?} is no serial number: 1 to 20 printable ASCII characters, no space at either end"
            ));
        }
        Ok(Self(text.to_owned()))
    }

    /// The serial number that a subsystem has when none is given: the same for the same name.
    pub(super) fn derived(nqn: &Nqn) -> Self {
        let uuid = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, nqn.as_str().as_bytes());
        let mut serial = uuid.simple().to_string().to_ascii_uppercase();
        serial.truncate(20);
        Self(serial)
    }

    /// The serial number, without padding.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_the_specification_shows_are_valid() {
        for name in [
            "nqn.2014-08.com.example:nvme:nvm-subsystem-sn-d78432",
            "nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
            "nqn.2026-11.io.intact:disk0",
            "nqn.2026-11.io.intact:größe",
        ] {
            assert_eq!(Nqn::parse(name).as_ref().map(Nqn::as_str), Ok(name));
        }
    }

    #[test]
    fn names_that_break_a_rule_are_refused() {
        let long = format!("nqn.2026-11.io.intact:{}", "x".repeat(202));
        assert_eq!(long.len(), 224);
        for name in [
            "",
            "disk0",
            "iqn.2026-11.io.intact:disk0",
            "nqn.2026.io.intact:disk0",
            "nqn.2026-13.io.intact:disk0",
            "nqn.2026-00.io.intact:disk0",
            "nqn.26-11.io.intact:disk0",
            "nqn.2026-11.io.intact",
            "nqn.2026-11.io.intact:",
            "nqn.2026-11.:disk0",
            "nqn.2026-11.io..intact:disk0",
            "nqn.2026-11.io.-intact:disk0",
            "nqn.2026-11.io.intact:disk 0",
            "nqn.2026-11.io.intact:disk0\n",
            DISCOVERY_NQN,
            &long,
        ] {
            assert!(Nqn::parse(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_name_of_223_bytes_is_valid() {
        assert!(Nqn::parse(&format!("nqn.2026-11.io.intact:{}", "x".repeat(201))).is_ok());
    }

    #[test]
    fn a_derived_serial_number_is_valid_and_stable() {
        let nqn = Nqn::parse("nqn.2026-11.io.intact:disk0").unwrap();
        let serial = Serial::derived(&nqn);
        assert_eq!(Serial::parse(serial.as_str()), Ok(serial.clone()));
        assert_eq!(serial, Serial::derived(&nqn));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = Nqn::parse(&text);
            let _ = Serial::parse(&text);
        }
    }
}
