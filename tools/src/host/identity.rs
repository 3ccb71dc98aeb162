//! Who this host is: its NQN and identifier, as `nvme-cli` keeps them, its iSCSI name, as open-iscsi does, or derived from the
//! machine.

use uuid::Uuid;

use super::error::HostError;
use intact::nvmf::wire::fabrics::NQN_MAX_LEN;

/// Names this host to controllers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    /// Host NQN, at most 223 bytes.
    pub nqn: String,
    /// Host Identifier.
    pub id: [u8; 16],
}

/// What host NQNs made from a UUID start with.
const UUID_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:";
/// Where `nvme-cli` keeps the host's NQN and identifier.
const HOSTNQN_FILE: &str = "/etc/nvme/hostnqn";
const HOSTID_FILE: &str = "/etc/nvme/hostid";
/// Where open-iscsi keeps the host's name.
const INITIATORNAME_FILE: &str = "/etc/iscsi/initiatorname.iscsi";

impl HostIdentity {
    /// The identity that was asked for. Without an NQN it is the one in `/etc/nvme/hostnqn`, or one that follows from the
    /// machine's ID. Without an identifier it is the UUID in the NQN, or one that follows from the NQN.
    ///
    /// # Errors
    /// When the NQN is too long or the identifier is no UUID.
    pub fn new(nqn: Option<&str>, id: Option<&str>) -> Result<Self, HostError> {
        let (nqn, stored_id) = match nqn {
            Some(nqn) => (nqn.to_owned(), None),
            None => match read_line(HOSTNQN_FILE) {
                Some(nqn) => (nqn, read_line(HOSTID_FILE)),
                None => (format!("{UUID_NQN}{}", machine_uuid().hyphenated()), None),
            },
        };
        if nqn.is_empty() || nqn.len() > NQN_MAX_LEN {
            return Err(HostError::Invalid(format!("host NQN: 1 to {NQN_MAX_LEN} bytes, not {}", nqn.len())));
        }
        let id = match id.or(stored_id.as_deref()) {
            Some(text) => Uuid::parse_str(text)
                .map_err(|_| HostError::Invalid(format!("host identifier: {text:?} is not a UUID")))?,
            None => nqn
                .strip_prefix(UUID_NQN)
                .and_then(|text| Uuid::parse_str(text).ok())
                .unwrap_or_else(|| Uuid::new_v5(&Uuid::NAMESPACE_OID, nqn.as_bytes())),
        };
        Ok(Self { nqn, id: *id.as_bytes() })
    }
}

/// This host's iSCSI name: the one that was asked for, the one in `/etc/iscsi/initiatorname.iscsi`, or one that follows from
/// the machine's ID.
#[must_use]
pub fn initiator_name(asked: Option<&str>) -> String {
    if let Some(name) = asked {
        return name.to_owned();
    }
    let file = std::fs::read_to_string(INITIATORNAME_FILE).unwrap_or_default();
    match initiator_name_in(&file) {
        Some(name) => name.to_owned(),
        None => format!("iqn.2026-11.io.intact:host:{}", machine_uuid().hyphenated()),
    }
}

/// The name in open-iscsi's file.
fn initiator_name_in(file: &str) -> Option<&str> {
    let mut lines = file.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    lines.find_map(|line| line.strip_prefix("InitiatorName=")).map(str::trim).filter(|name| !name.is_empty())
}

fn machine_uuid() -> Uuid {
    let machine = read_line("/etc/machine-id").or_else(|| read_line("/etc/hostname")).unwrap_or_default();
    Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("intact-host {machine}").as_bytes())
}

fn read_line(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().next().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_identifier_is_the_uuid_of_the_nqn() {
        let host = HostIdentity::new(
            Some("nqn.2014-08.org.nvmexpress:uuid:1d5a8f62-7a3b-4f0e-8c49-2f6d1b9e0c31"),
            None,
        );
        assert_eq!(host.unwrap().id[..4], [0x1d, 0x5a, 0x8f, 0x62]);
    }

    #[test]
    fn other_nqns_have_an_identifier_of_their_own_that_stays() {
        let of = |nqn| HostIdentity::new(Some(nqn), None).unwrap().id;
        assert_eq!(of("nqn.2026-11.io.intact:a"), of("nqn.2026-11.io.intact:a"));
        assert_ne!(of("nqn.2026-11.io.intact:a"), of("nqn.2026-11.io.intact:b"));
    }

    #[test]
    fn a_host_without_an_nqn_gets_one() {
        assert!(HostIdentity::new(None, None).unwrap().nqn.starts_with("nqn."));
    }

    #[test]
    fn the_iscsi_name_is_open_iscsis_or_follows_from_the_machine() {
        let file = "## DO NOT EDIT\n#InitiatorName=iqn.no:no\nInitiatorName=iqn.1993-08.org.debian:01:abc \n";
        assert_eq!(initiator_name_in(file), Some("iqn.1993-08.org.debian:01:abc"));
        assert_eq!(initiator_name_in("GenerateName=yes\nInitiatorName=\n"), None);
        assert_eq!(initiator_name(Some("iqn.x")), "iqn.x");
        assert!(intact::iscsi::name::IscsiName::parse(&initiator_name(None)).is_ok());
    }

    #[test]
    fn bad_names_are_refused() {
        assert!(HostIdentity::new(Some(&"x".repeat(224)), None).is_err());
        assert!(HostIdentity::new(Some("nqn.2026-11.io.intact:a"), Some("x")).is_err());
    }
}
