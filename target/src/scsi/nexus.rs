//! Who speaks to whom: initiator ports, target ports, and the nexus of the two. (SAM-5 "SCSI
//! architecture model", SPC-4 "TransportID identifiers".)

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A number for a nexus while it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NexusId(pub u32);

/// An iSCSI initiator port: what stays the same of an initiator when it comes again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "(String, [u8; 6])", into = "(String, [u8; 6])")]
pub struct InitiatorPort {
    name: String,
    isid: [u8; 6],
}

/// An initiator port at a target port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nexus {
    /// The initiator port.
    pub initiator: InitiatorPort,
    /// RELATIVE TARGET PORT IDENTIFIER of the target port, from 1.
    pub target_port: u16,
}

/// A name that no initiator can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("an iSCSI name has 1 to {NAME_MAX} bytes and no zero byte among them")]
pub struct NameError;

/// Bytes of an iSCSI name at most (RFC 7143 4.2.7.1).
pub const NAME_MAX: usize = 223;

impl InitiatorPort {
    /// The port of the initiator `name` whose sessions have this ISID.
    ///
    /// # Errors
    /// A name that is empty, longer than [`NAME_MAX`] bytes, or has a zero byte.
    pub fn new(name: impl Into<String>, isid: [u8; 6]) -> Result<Self, NameError> {
        let name = name.into();
        if name.is_empty() || name.len() > NAME_MAX || name.contains('\0') {
            return Err(NameError);
        }
        Ok(Self { name, isid })
    }

    /// The initiator's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its TransportID: of an iSCSI initiator port, with name and ISID.
    #[must_use]
    pub fn transport_id(&self) -> Vec<u8> {
        const FORMAT_WITH_ISID: u8 = 0b01 << 6;
        let [a, b, c, d, e, f] = self.isid;
        let text = format!("{},i,0x{a:02x}{b:02x}{c:02x}{d:02x}{e:02x}{f:02x}", self.name);
        let text = padded(text.as_bytes(), 20);
        let [high, low] = u16::try_from(text.len()).expect("names are short").to_be_bytes();
        [&[FORMAT_WITH_ISID | PROTOCOL_ISCSI, 0, high, low], text.as_slice()].concat()
    }
}

impl TryFrom<(String, [u8; 6])> for InitiatorPort {
    type Error = NameError;

    fn try_from((name, isid): (String, [u8; 6])) -> Result<Self, NameError> {
        Self::new(name, isid)
    }
}

impl From<InitiatorPort> for (String, [u8; 6]) {
    fn from(port: InitiatorPort) -> Self {
        (port.name, port.isid)
    }
}

/// PROTOCOL IDENTIFIER of iSCSI.
pub(super) const PROTOCOL_ISCSI: u8 = 0x5;

/// A name with a zero byte behind it, and as many more as make whole words of four bytes, `least` at least.
pub(super) fn padded(name: &[u8], least: usize) -> Vec<u8> {
    let mut text = name.to_vec();
    text.resize((name.len() + 1).next_multiple_of(4).max(least), 0);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transport_id_has_name_and_isid() {
        let port = InitiatorPort::new("iqn.2026-11.x:a", [0x00, 0x02, 0x3D, 0, 0, 0x0F]).unwrap();
        let id = port.transport_id();
        assert_eq!(id[..4], [0x45, 0, 0, 36]);
        assert_eq!(id[4..], *b"iqn.2026-11.x:a,i,0x00023d00000f\0\0\0\0");
        assert_eq!(id.len() % 4, 0);
    }

    #[test]
    fn names_are_padded_to_words_and_end_in_zero() {
        assert_eq!(padded(b"abc", 0), b"abc\0");
        assert_eq!(padded(b"abcd", 0), b"abcd\0\0\0\0");
        assert_eq!(padded(b"a", 20).len(), 20);
    }

    #[test]
    fn names_that_cannot_be_are_refused() {
        for name in ["", "a\0b", &"x".repeat(NAME_MAX + 1)] {
            assert_eq!(InitiatorPort::new(name, [0; 6]), Err(NameError));
        }
        assert!(InitiatorPort::new("x".repeat(NAME_MAX), [0; 6]).is_ok());
    }
}
