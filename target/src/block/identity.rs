//! What names a volume towards hosts: UUID, NGUID and serial number.
//!
//! Owns how each is derived when the configuration does not give it: a function of the subsystem's NQN and the
//! volume's name alone, so that a host finds the same disk after a restart and on another machine. Never reads the
//! medium, a clock or a random source. (NVM Express Base: Namespace Identification Descriptor; RFC 9562, version 5.)

use uuid::Uuid;

/// The namespace in which volumes' UUIDs are derived. Changing it changes the identity of every volume.
const DERIVATION: Uuid = Uuid::from_u128(0x6b1e_9a52_3c0f_4c5d_9d6a_5f27_18e4_b3c1);

/// What names a volume towards hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    uuid: Uuid,
    nguid: [u8; 16],
    serial: String,
}

/// Characters of a serial number at most (Identify Controller bytes 23:04).
pub const MAX_SERIAL: usize = 20;

impl Identity {
    /// The identity of volume `volume` in subsystem `nqn`: each part as given, or derived from the two names.
    ///
    /// The NGUID is the UUID's 16 bytes, so that a host that knows either descriptor sees one disk. A given serial
    /// longer than [`MAX_SERIAL`] or not printable ASCII is the configuration's to refuse; here it is cut.
    #[must_use]
    pub fn new(nqn: &str, volume: &str, uuid: Option<Uuid>, serial: Option<&str>) -> Self {
        let uuid = uuid.unwrap_or_else(|| Uuid::new_v5(&DERIVATION, name(b"uuid", nqn, volume).as_slice()));
        let serial = serial.map_or_else(
            || {
                let digest = Uuid::new_v5(&DERIVATION, name(b"serial", nqn, volume).as_slice());
                let hex = digest.simple().to_string();
                hex[..MAX_SERIAL].to_owned()
            },
            |given| given.chars().filter(char::is_ascii).take(MAX_SERIAL).collect(),
        );
        Self { uuid, nguid: *uuid.as_bytes(), serial }
    }

    /// The UUID.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// The namespace globally unique identifier, 16 bytes, most significant first.
    #[must_use]
    pub fn nguid(&self) -> [u8; 16] {
        self.nguid
    }

    /// The serial number: 1 to [`MAX_SERIAL`] ASCII characters.
    #[must_use]
    pub fn serial(&self) -> &str {
        &self.serial
    }
}

/// What is hashed. The zero bytes keep ("a", "bc") and ("ab", "c") apart; neither name can hold one.
fn name(kind: &[u8], nqn: &str, volume: &str) -> Vec<u8> {
    [kind, nqn.as_bytes(), volume.as_bytes()].join(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_derived_identity_never_changes() {
        // Frozen: hosts name disks by these.
        let identity = Identity::new("nqn.2026-11.io.intact:disk0", "disk0", None, None);
        assert_eq!(identity.uuid().to_string(), "b59bc556-3668-5893-b59f-5e18792567a5");
        assert_eq!(identity.serial(), "c2978a1da4c75833a4c6");
        assert_eq!(identity.nguid(), *identity.uuid().as_bytes());
        assert_eq!(identity.uuid().get_version_num(), 5);
    }

    #[test]
    fn names_that_join_to_the_same_text_differ() {
        let one = Identity::new("nqn.a", "bc", None, None);
        let other = Identity::new("nqn.ab", "c", None, None);
        assert_ne!(one, other);
        assert_ne!(one.serial(), other.serial());
    }

    #[test]
    fn given_parts_are_kept() {
        let uuid = Uuid::from_u128(7);
        let identity = Identity::new("nqn.a", "b", Some(uuid), Some("SN-1"));
        assert_eq!((identity.uuid(), identity.serial()), (uuid, "SN-1"));
        assert_eq!(identity.nguid(), *uuid.as_bytes());
        let long = Identity::new("nqn.a", "b", None, Some("0123456789012345678901234567890"));
        assert_eq!(long.serial().len(), MAX_SERIAL);
    }
}
