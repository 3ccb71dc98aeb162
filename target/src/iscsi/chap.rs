//! CHAP, one-way and mutual (RFC 7143 section 12.1.3, RFC 1994): the target's side, and the hash functions of both.
//!
//! Randomness is an argument. Secrets appear in no message and no error.

use std::fmt;
use std::hint::black_box;

use md5::{Digest, Md5};
use sha2::Sha256;
use thiserror::Error;

use super::text;

/// Bytes of a challenge that we make.
pub const CHALLENGE_LEN: usize = 32;
/// Longest challenge of a host, in bytes (section 12.1.3).
pub const CHALLENGE_MAX: usize = 1024;

/// A name and a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// CHAP_N.
    pub name: String,
    /// The secret; RFC 7143 asks for 12 bytes at least.
    pub secret: Vec<u8>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Who must prove what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChapPolicy {
    host: Credentials,
    target: Option<Credentials>,
}

/// Why credentials can't be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChapPolicyError {
    /// A name or a secret is empty.
    #[error("a CHAP name or secret is empty")]
    Empty,
    /// Both sides have the same secret, so that each could have the other prove itself (RFC 7143 section 9.2.1).
    #[error("the host's and the target's CHAP secrets are the same")]
    SameSecret,
}

impl ChapPolicy {
    /// Hosts prove that they know `host`'s secret; if they ask, the target proves that it knows `target`'s.
    ///
    /// # Errors
    /// When these can't be used.
    pub fn new(host: Credentials, target: Option<Credentials>) -> Result<Self, ChapPolicyError> {
        let both = || std::iter::once(&host).chain(&target);
        if both().any(|credentials| credentials.name.is_empty() || credentials.secret.is_empty()) {
            return Err(ChapPolicyError::Empty);
        }
        if target.as_ref().is_some_and(|target| target.secret == host.secret) {
            return Err(ChapPolicyError::SameSecret);
        }
        Ok(Self { host, target })
    }

    /// Whether the target can prove itself as well.
    #[must_use]
    pub fn is_mutual(&self) -> bool {
        self.target.is_some()
    }
}

/// Randomness for one login, from the operating system.
#[derive(Clone, Copy)]
pub struct Seed {
    /// CHAP_I.
    pub identifier: u8,
    /// CHAP_C.
    pub challenge: [u8; CHALLENGE_LEN],
}

impl fmt::Debug for Seed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed")
    }
}

/// What a host did wrong; all of it ends the login as a failed authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChapError {
    /// A key of this step is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A key that has no place in this step.
    #[error("a CHAP key out of its order")]
    OutOfOrder,
    /// A value that the key can't have.
    #[error("{0} has a value that it can't have")]
    BadValue(&'static str),
    /// None of the host's algorithms is ours.
    #[error("CHAP_A: only MD5 (5) and SHA-256 (7) are supported")]
    Algorithm,
    /// The name is not known, or the response is not the secret's.
    #[error("unknown name or wrong response")]
    Denied,
    /// The host gave our own challenge back.
    #[error("the host's challenge is the target's own")]
    Reflected,
    /// The host wants a proof and the target has no secret.
    #[error("the host asks for mutual CHAP, for which the target has no secret")]
    NotMutual,
}

/// Hash functions (IANA, "CHAP Authentication Algorithms").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// MD5 (5), which every side has.
    Md5,
    /// SHA-256 (7).
    Sha256,
}

impl Algorithm {
    /// The algorithm of a number in CHAP_A; `None` for those that are not ours.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        match text::number(text)? {
            5 => Some(Self::Md5),
            7 => Some(Self::Sha256),
            _ => None,
        }
    }

    /// Its number as CHAP_A has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Md5 => "5",
            Self::Sha256 => "7",
        }
    }

    /// RFC 1994 section 4.1: hash of identifier, secret and challenge.
    #[must_use]
    pub fn response(self, identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
        fn hash<D: Digest>(parts: [&[u8]; 3]) -> Vec<u8> {
            let mut digest = D::new();
            for part in parts {
                digest.update(part);
            }
            digest.finalize().to_vec()
        }
        let parts = [&[identifier][..], secret, challenge];
        match self {
            Self::Md5 => hash::<Md5>(parts),
            Self::Sha256 => hash::<Sha256>(parts),
        }
    }
}

/// The CHAP keys of one login request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChapKeys<'a> {
    algorithms: Option<&'a str>,
    name: Option<&'a str>,
    response: Option<&'a str>,
    identifier: Option<&'a str>,
    challenge: Option<&'a str>,
}

impl<'a> ChapKeys<'a> {
    /// Takes a pair if it is one of CHAP's; returns whether it was.
    ///
    /// # Errors
    /// When the key came before.
    pub fn take(&mut self, pair: text::Pair<'a>) -> Result<bool, ChapError> {
        let slot = match pair.key {
            "CHAP_A" => &mut self.algorithms,
            "CHAP_N" => &mut self.name,
            "CHAP_R" => &mut self.response,
            "CHAP_I" => &mut self.identifier,
            "CHAP_C" => &mut self.challenge,
            _ => return Ok(false),
        };
        if slot.replace(pair.value).is_some() {
            return Err(ChapError::OutOfOrder);
        }
        Ok(true)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How far a host has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChapProgress {
    /// It must say more.
    Going,
    /// It is who it says.
    Authenticated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Algorithm,
    Response(Algorithm),
    Done,
}

/// The exchange of one login.
#[derive(Debug)]
pub struct Chap {
    policy: ChapPolicy,
    seed: Seed,
    step: Step,
}

impl Chap {
    /// Nothing was said yet but that CHAP is the method.
    #[must_use]
    pub fn new(policy: ChapPolicy, seed: Seed) -> Self {
        Self { policy, seed, step: Step::Algorithm }
    }

    /// Takes the keys of a request, and adds what must be answered to `answers`. A request without any changes nothing.
    ///
    /// # Errors
    /// When the host is not to be let in.
    pub fn handle_keys(
        &mut self,
        keys: ChapKeys<'_>,
        answers: &mut Vec<u8>,
    ) -> Result<ChapProgress, ChapError> {
        match self.step {
            _ if keys.is_empty() => {}
            Step::Algorithm => {
                let ChapKeys {
                    algorithms: Some(offered),
                    name: None,
                    response: None,
                    identifier: None,
                    challenge: None,
                } = keys
                else {
                    return Err(if keys.algorithms.is_some() {
                        ChapError::OutOfOrder
                    } else {
                        ChapError::Missing("CHAP_A")
                    });
                };
                let algorithm =
                    offered.split(',').find_map(Algorithm::from_text).ok_or(ChapError::Algorithm)?;
                text::append(answers, "CHAP_A", algorithm.name());
                text::append(answers, "CHAP_I", &self.seed.identifier.to_string());
                text::append(answers, "CHAP_C", &text::to_hexadecimal(&self.seed.challenge));
                self.step = Step::Response(algorithm);
            }
            Step::Response(algorithm) => {
                self.check(algorithm, keys, answers)?;
                self.step = Step::Done;
            }
            Step::Done => return Err(ChapError::OutOfOrder),
        }
        Ok(match self.step {
            Step::Done => ChapProgress::Authenticated,
            _ => ChapProgress::Going,
        })
    }

    fn check(
        &self,
        algorithm: Algorithm,
        keys: ChapKeys<'_>,
        answers: &mut Vec<u8>,
    ) -> Result<(), ChapError> {
        if keys.algorithms.is_some() {
            return Err(ChapError::OutOfOrder);
        }
        let name = keys.name.ok_or(ChapError::Missing("CHAP_N"))?;
        let response = keys.response.ok_or(ChapError::Missing("CHAP_R"))?;
        let response = text::binary(response).ok_or(ChapError::BadValue("CHAP_R"))?;
        let Seed { identifier, challenge } = &self.seed;
        let expected = algorithm.response(*identifier, &self.policy.host.secret, challenge);
        // Both are looked at whatever the other says, so that time tells neither.
        let known = is_same(name.as_bytes(), self.policy.host.name.as_bytes());
        let right = is_same(&response, &expected);
        if !(known & right) {
            return Err(ChapError::Denied);
        }
        match (keys.identifier, keys.challenge) {
            (None, None) => Ok(()),
            (Some(identifier), Some(challenge)) => self.prove(algorithm, identifier, challenge, answers),
            (None, Some(_)) => Err(ChapError::Missing("CHAP_I")),
            (Some(_), None) => Err(ChapError::Missing("CHAP_C")),
        }
    }

    /// Answers the host's challenge.
    fn prove(
        &self,
        algorithm: Algorithm,
        identifier: &str,
        challenge: &str,
        answers: &mut Vec<u8>,
    ) -> Result<(), ChapError> {
        let own = self.policy.target.as_ref().ok_or(ChapError::NotMutual)?;
        let identifier = text::number(identifier).and_then(|number| u8::try_from(number).ok());
        let identifier = identifier.ok_or(ChapError::BadValue("CHAP_I"))?;
        let challenge = text::binary(challenge).filter(|challenge| challenge.len() <= CHALLENGE_MAX);
        let challenge = challenge.ok_or(ChapError::BadValue("CHAP_C"))?;
        if challenge == self.seed.challenge {
            return Err(ChapError::Reflected);
        }
        text::append(answers, "CHAP_N", &own.name);
        let response = algorithm.response(identifier, &own.secret, &challenge);
        text::append(answers, "CHAP_R", &text::to_hexadecimal(&response));
        Ok(())
    }
}

/// Compares in a time that depends on lengths alone.
#[must_use]
pub fn is_same(left: &[u8], right: &[u8]) -> bool {
    let differing = left.iter().zip(right).fold(0, |sum, (left, right)| black_box(sum | (left ^ right)));
    left.len() == right.len() && differing == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: Seed = Seed { identifier: 0x2a, challenge: [7; CHALLENGE_LEN] };

    fn credentials(name: &str, secret: &str) -> Credentials {
        Credentials { name: name.to_owned(), secret: secret.as_bytes().to_vec() }
    }

    fn policy() -> ChapPolicy {
        ChapPolicy::new(credentials("host", "host's secret"), Some(credentials("target", "target's secret")))
            .unwrap()
    }

    /// What is answered to pairs.
    fn say(chap: &mut Chap, pairs: &[(&str, &str)]) -> Result<(ChapProgress, String), ChapError> {
        let mut keys = ChapKeys::default();
        for (key, value) in pairs {
            assert!(keys.take(text::Pair { key, value })?);
        }
        let mut answers = Vec::new();
        let progress = chap.handle_keys(keys, &mut answers)?;
        Ok((progress, String::from_utf8(answers).unwrap().replace('\0', " ")))
    }

    /// A host that was given its challenge.
    fn challenged(algorithms: &str) -> Chap {
        let mut chap = Chap::new(policy(), SEED);
        assert_eq!(say(&mut chap, &[("CHAP_A", algorithms)]).unwrap().0, ChapProgress::Going);
        chap
    }

    fn response(algorithm: Algorithm, secret: &str) -> String {
        text::to_hexadecimal(&algorithm.response(SEED.identifier, secret.as_bytes(), &SEED.challenge))
    }

    #[test]
    fn responses_are_those_of_known_vectors() {
        // md5sum and sha256sum of "\x01secretchallenge".
        assert_eq!(
            text::to_hexadecimal(&Algorithm::Md5.response(1, b"secret", b"challenge")),
            "0x46e47770030e2b4e26a0db72a7efec00"
        );
        assert_eq!(
            text::to_hexadecimal(&Algorithm::Sha256.response(1, b"secret", b"challenge")),
            "0x2dfa0526f4764864b7c3c5bc6596bcead3d8dbd984f4fc1d9f330299f0beced4"
        );
    }

    #[test]
    fn the_first_algorithm_of_the_host_that_is_ours_is_taken() {
        for (offered, taken) in [("5", "5"), ("8,7,6,5", "7"), ("5,7", "5"), ("0x7", "7")] {
            let mut chap = Chap::new(policy(), SEED);
            let (_, said) = say(&mut chap, &[("CHAP_A", offered)]).unwrap();
            assert_eq!(said, format!("CHAP_A={taken} CHAP_I=42 CHAP_C=0x{} ", "07".repeat(32)));
        }
        for offered in ["6", "8,6", "", "five"] {
            let mut chap = Chap::new(policy(), SEED);
            assert_eq!(say(&mut chap, &[("CHAP_A", offered)]), Err(ChapError::Algorithm));
        }
    }

    #[test]
    fn who_knows_the_secret_is_let_in_and_nobody_else() {
        for (offered, algorithm) in [("5", Algorithm::Md5), ("7", Algorithm::Sha256)] {
            let right = response(algorithm, "host's secret");
            let said = say(&mut challenged(offered), &[("CHAP_N", "host"), ("CHAP_R", &right)]);
            assert_eq!(said, Ok((ChapProgress::Authenticated, String::new())));
            let wrong = response(algorithm, "another secret");
            for (name, response) in
                [("host", &wrong), ("hosts", &right), ("", &right), ("host", &"0x00".to_owned())]
            {
                let said = say(&mut challenged(offered), &[("CHAP_N", name), ("CHAP_R", response)]);
                assert_eq!(said, Err(ChapError::Denied), "{name} {response}");
            }
        }
    }

    #[test]
    fn the_target_proves_itself_to_a_host_that_asks() {
        let right = response(Algorithm::Md5, "host's secret");
        let host = [("CHAP_N", "host"), ("CHAP_R", &right), ("CHAP_I", "9"), ("CHAP_C", "0bZm9v")];
        let proof = text::to_hexadecimal(&Algorithm::Md5.response(9, b"target's secret", b"foo"));
        let said = say(&mut challenged("5"), &host);
        assert_eq!(said, Ok((ChapProgress::Authenticated, format!("CHAP_N=target CHAP_R={proof} "))));
    }

    #[test]
    fn our_own_challenge_is_not_answered() {
        let right = response(Algorithm::Md5, "host's secret");
        let ours = text::to_hexadecimal(&SEED.challenge);
        let host = [("CHAP_N", "host"), ("CHAP_R", &right), ("CHAP_I", "42"), ("CHAP_C", &ours)];
        assert_eq!(say(&mut challenged("5"), &host), Err(ChapError::Reflected));
    }

    #[test]
    fn steps_out_of_order_and_values_that_are_none_end_it() {
        let right = response(Algorithm::Md5, "host's secret");
        let (name, response) = (("CHAP_N", "host"), ("CHAP_R", &right[..]));
        let mut fresh = Chap::new(policy(), SEED);
        assert_eq!(say(&mut fresh, &[name, response]), Err(ChapError::Missing("CHAP_A")));
        assert_eq!(say(&mut fresh, &[("CHAP_A", "5"), name]), Err(ChapError::OutOfOrder));
        assert_eq!(say(&mut fresh, &[("CHAP_A", "5"), ("CHAP_A", "5")]), Err(ChapError::OutOfOrder));
        let error = |pairs: &[(&str, &str)]| say(&mut challenged("5"), pairs).unwrap_err();
        assert_eq!(error(&[("CHAP_A", "5")]), ChapError::OutOfOrder);
        assert_eq!(error(&[name]), ChapError::Missing("CHAP_R"));
        assert_eq!(error(&[response]), ChapError::Missing("CHAP_N"));
        assert_eq!(error(&[name, ("CHAP_R", "none")]), ChapError::BadValue("CHAP_R"));
        assert_eq!(error(&[name, response, ("CHAP_C", "0x01")]), ChapError::Missing("CHAP_I"));
        assert_eq!(error(&[name, response, ("CHAP_I", "1")]), ChapError::Missing("CHAP_C"));
        let mutual =
            |identifier, challenge| error(&[name, response, ("CHAP_I", identifier), ("CHAP_C", challenge)]);
        assert_eq!(mutual("256", "0x01"), ChapError::BadValue("CHAP_I"));
        assert_eq!(mutual("1", "0x"), ChapError::BadValue("CHAP_C"));
        assert_eq!(mutual("1", &format!("0x{}", "00".repeat(1025))), ChapError::BadValue("CHAP_C"));
        let mut done = challenged("5");
        say(&mut done, &[name, response]).unwrap();
        assert_eq!(
            say(&mut done, &[]).unwrap().0,
            ChapProgress::Authenticated,
            "an empty request changes nothing"
        );
        assert_eq!(say(&mut done, &[name, response]), Err(ChapError::OutOfOrder));
    }

    #[test]
    fn credentials_that_protect_nothing_are_refused_and_secrets_are_not_shown() {
        let (host, target) = (credentials("host", "same"), credentials("target", "same"));
        assert_eq!(ChapPolicy::new(host.clone(), Some(target)), Err(ChapPolicyError::SameSecret));
        assert_eq!(ChapPolicy::new(credentials("host", ""), None), Err(ChapPolicyError::Empty));
        assert_eq!(ChapPolicy::new(credentials("", "secret"), None), Err(ChapPolicyError::Empty));
        let one_way = ChapPolicy::new(host, None).unwrap();
        assert!(!format!("{:?}", Chap::new(one_way.clone(), SEED)).contains("same"));
        let mut chap = Chap::new(one_way, SEED);
        say(&mut chap, &[("CHAP_A", "5")]).unwrap();
        let right = response(Algorithm::Md5, "same");
        let host = [("CHAP_N", "host"), ("CHAP_R", &right[..]), ("CHAP_I", "1"), ("CHAP_C", "0x01")];
        assert_eq!(say(&mut chap, &host), Err(ChapError::NotMutual));
    }
}
