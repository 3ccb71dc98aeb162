//! Which sessions there are, and what a login makes of them: a new one, the same one anew, or none (RFC 7143 sections
//! 6.3.5, 6.3.6, 11.12.6).

use std::collections::BTreeMap;

use super::name::IscsiName;
use super::wire::login::{Isid, LoginStatus, Tsih};

/// Between whom a session is: there is one at most of each.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Nexus {
    /// The host.
    pub initiator: IscsiName,
    /// The host's name of the session.
    pub isid: [u8; 6],
    /// The target; none for discovery.
    pub target: Option<IscsiName>,
}

/// What a login asks for when it is through with all else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmitRequest {
    /// Between whom.
    pub nexus: Nexus,
    /// 0 for a new session, else the session that the connection should join.
    pub tsih: Tsih,
    /// The connection's ID.
    pub cid: u16,
}

impl AdmitRequest {
    /// What the headers of a login say.
    #[must_use]
    pub fn new(initiator: IscsiName, target: Option<IscsiName>, isid: Isid, tsih: Tsih, cid: u16) -> Self {
        Self { nexus: Nexus { initiator, isid: isid.0, target }, tsih, cid }
    }
}

/// A place for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The new session's handle.
    pub tsih: Tsih,
    /// A session that this one replaces: it must end, with its tasks, before this one has any.
    pub replaces: Option<Tsih>,
}

/// The sessions of all targets.
#[derive(Debug)]
pub struct Sessions {
    max: usize,
    by_nexus: BTreeMap<Nexus, u16>,
    by_tsih: BTreeMap<u16, Nexus>,
    last: u16,
}

impl Sessions {
    /// None yet, and never more than `max`, 1 to 65535.
    #[must_use]
    pub fn new(max: u16) -> Self {
        Self { max: max.max(1).into(), by_nexus: BTreeMap::new(), by_tsih: BTreeMap::new(), last: 0 }
    }

    /// Decides on a login.
    ///
    /// # Errors
    /// The status that refuses it. A session has one connection, so that nothing joins one.
    pub fn admit(&mut self, request: &AdmitRequest) -> Result<Admission, LoginStatus> {
        if request.tsih != Tsih(0) {
            let there = self.by_tsih.get(&request.tsih.0) == Some(&request.nexus);
            return Err(if there {
                LoginStatus::TooManyConnections
            } else {
                LoginStatus::SessionDoesNotExist
            });
        }
        let replaces = self.by_nexus.get(&request.nexus).copied();
        if replaces.is_none() && self.by_tsih.len() >= self.max {
            return Err(LoginStatus::OutOfResources);
        }
        // A handle that was just given up is not given out again soon: late messages may name it.
        let tsih = (1..=u16::MAX)
            .map(|step| self.last.wrapping_add(step))
            .find(|tsih| *tsih != 0 && !self.by_tsih.contains_key(tsih))
            .ok_or(LoginStatus::OutOfResources)?;
        self.last = tsih;
        if let Some(old) = replaces {
            self.by_tsih.remove(&old);
        }
        self.by_nexus.insert(request.nexus.clone(), tsih);
        self.by_tsih.insert(tsih, request.nexus.clone());
        Ok(Admission { tsih: Tsih(tsih), replaces: replaces.map(Tsih) })
    }

    /// A session has ended. One that was replaced is gone already.
    pub fn remove(&mut self, tsih: Tsih) {
        if let Some(nexus) = self.by_tsih.remove(&tsih.0) {
            self.by_nexus.remove(&nexus);
        }
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_tsih.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_tsih.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(host: &str, isid: u8, tsih: u16) -> AdmitRequest {
        let name = |text: &str| IscsiName::parse(&format!("iqn.2026-11.test:{text}")).unwrap();
        AdmitRequest::new(name(host), Some(name("t0")), Isid([0, 2, 0x3d, 0, 0, isid]), Tsih(tsih), 0)
    }

    #[test]
    fn a_new_session_gets_a_handle_and_the_same_one_anew_replaces_the_old() {
        let mut sessions = Sessions::new(2);
        let admitted =
            |tsih, replaces: Option<u16>| Ok(Admission { tsih: Tsih(tsih), replaces: replaces.map(Tsih) });
        assert_eq!(sessions.admit(&request("a", 1, 0)), admitted(1, None));
        assert_eq!(sessions.admit(&request("a", 2, 0)), admitted(2, None), "another session of the host");
        assert_eq!(sessions.admit(&request("b", 1, 0)), Err(LoginStatus::OutOfResources));
        assert_eq!(sessions.admit(&request("a", 1, 0)), admitted(3, Some(1)), "also when there is no room");
        sessions.remove(Tsih(1));
        assert_eq!(sessions.len(), 2, "the replaced one is gone already");
        sessions.remove(Tsih(3));
        assert_eq!(sessions.admit(&request("b", 1, 0)), admitted(4, None));
    }

    #[test]
    fn nothing_joins_a_session() {
        let mut sessions = Sessions::new(10);
        sessions.admit(&request("a", 1, 0)).unwrap();
        assert_eq!(sessions.admit(&request("a", 1, 1)), Err(LoginStatus::TooManyConnections));
        for (host, isid, tsih) in [("a", 2, 1), ("b", 1, 1), ("a", 1, 2)] {
            let answer = sessions.admit(&request(host, isid, tsih));
            assert_eq!(answer, Err(LoginStatus::SessionDoesNotExist), "{host} {isid} {tsih}");
        }
    }

    #[test]
    fn handles_are_never_zero_and_never_two_sessions() {
        let mut sessions = Sessions::new(u16::MAX);
        sessions.last = u16::MAX - 1;
        assert_eq!(sessions.admit(&request("a", 1, 0)).unwrap().tsih, Tsih(u16::MAX));
        assert_eq!(sessions.admit(&request("a", 2, 0)).unwrap().tsih, Tsih(1));
        sessions.last = 0;
        assert_eq!(sessions.admit(&request("a", 3, 0)).unwrap().tsih, Tsih(2));
        assert!(!sessions.is_empty());
    }
}
