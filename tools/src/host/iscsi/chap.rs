//! CHAP, one-way and mutual (RFC 7143 section 12.1.3, RFC 1994): the initiator's side.
//!
//! Sans-IO: randomness is an argument. Secrets appear in no message and no error.

use intact::iscsi::chap::{Algorithm, CHALLENGE_MAX, Credentials, Seed, is_same};
use intact::iscsi::text::{self, Pair};
use thiserror::Error;

/// What this side proves, and what it demands of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Our name and secret.
    pub host: Credentials,
    /// The target's, if it must prove itself, too.
    pub target: Option<Credentials>,
}

/// Why a target is not believed, or can't be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ChapFault {
    /// A key of this step is missing.
    #[error("{0} is missing")]
    Missing(&'static str),
    /// A key that came before, or has no place in this step.
    #[error("{0} is out of its order")]
    OutOfOrder(&'static str),
    /// A value that the key can't have.
    #[error("{0} has a value that it can't have")]
    BadValue(&'static str),
    /// An algorithm that was not offered.
    #[error("CHAP_A: the target chose an algorithm that was not offered")]
    Algorithm,
    /// The target gave our own challenge, or our own secret's proof, back.
    #[error("the target reflects what this host said")]
    Reflected,
    /// The name is another than was expected, or the response is not the secret's.
    #[error("the target does not prove that it knows its secret: unknown name or wrong response")]
    Denied,
}

/// The exchange of one login.
#[derive(Debug)]
pub struct Chap {
    account: Account,
    seed: Seed,
    step: Step,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The algorithms were offered.
    Offered,
    /// Our response was sent; what comes is the target's, if it must.
    Responded(Algorithm),
    Done,
}

/// Algorithms that we offer, the one that we like best first.
const OFFERED: [Algorithm; 2] = [Algorithm::Sha256, Algorithm::Md5];

impl Chap {
    /// An exchange that begins: adds the offer to `said`. `seed` is our challenge to the target.
    #[must_use]
    pub fn begin(account: Account, seed: Seed, said: &mut Vec<u8>) -> Self {
        text::append(said, "CHAP_A", &OFFERED.map(Algorithm::name).join(","));
        Self { account, seed, step: Step::Offered }
    }

    /// Whether our part was said, so that the stage may be left.
    #[must_use]
    pub fn has_responded(&self) -> bool {
        self.step != Step::Offered
    }

    /// Whether both sides have proved what they must.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.step == Step::Done
    }

    /// Takes the CHAP keys of an answer, and adds what must be said next to `said`.
    ///
    /// # Errors
    /// When the target is not to be believed.
    pub fn handle_pairs(&mut self, pairs: &[Pair<'_>], said: &mut Vec<u8>) -> Result<(), ChapFault> {
        let keys = Keys::of(pairs)?;
        match self.step {
            Step::Offered => self.respond(&keys, said),
            Step::Responded(algorithm) => self.check(algorithm, &keys),
            Step::Done if keys == Keys::default() => Ok(()),
            Step::Done => Err(ChapFault::OutOfOrder("a CHAP key")),
        }
    }

    /// Answers the target's challenge, and makes ours.
    fn respond(&mut self, keys: &Keys<'_>, said: &mut Vec<u8>) -> Result<(), ChapFault> {
        let algorithm = keys.algorithm.ok_or(ChapFault::Missing("CHAP_A"))?;
        let algorithm = Algorithm::from_text(algorithm).filter(|chosen| OFFERED.contains(chosen));
        let algorithm = algorithm.ok_or(ChapFault::Algorithm)?;
        if keys.name.is_some() || keys.response.is_some() {
            return Err(ChapFault::OutOfOrder("CHAP_N or CHAP_R"));
        }
        let identifier = keys.identifier.ok_or(ChapFault::Missing("CHAP_I"))?;
        let identifier = text::number(identifier).and_then(|number| u8::try_from(number).ok());
        let identifier = identifier.ok_or(ChapFault::BadValue("CHAP_I"))?;
        let challenge = text::binary(keys.challenge.ok_or(ChapFault::Missing("CHAP_C"))?);
        let challenge = challenge.filter(|challenge| challenge.len() <= CHALLENGE_MAX);
        let challenge = challenge.ok_or(ChapFault::BadValue("CHAP_C"))?;
        if challenge == self.seed.challenge {
            return Err(ChapFault::Reflected);
        }
        let Account { host, target } = &self.account;
        text::append(said, "CHAP_N", &host.name);
        let response = algorithm.response(identifier, &host.secret, &challenge);
        text::append(said, "CHAP_R", &text::to_hexadecimal(&response));
        if target.is_some() {
            text::append(said, "CHAP_I", &self.seed.identifier.to_string());
            text::append(said, "CHAP_C", &text::to_hexadecimal(&self.seed.challenge));
        }
        self.step = Step::Responded(algorithm);
        Ok(())
    }

    fn check(&mut self, algorithm: Algorithm, keys: &Keys<'_>) -> Result<(), ChapFault> {
        for (key, value) in
            [("CHAP_A", keys.algorithm), ("CHAP_I", keys.identifier), ("CHAP_C", keys.challenge)]
        {
            if value.is_some() {
                return Err(ChapFault::OutOfOrder(key));
            }
        }
        if let Some(target) = &self.account.target {
            let name = keys.name.ok_or(ChapFault::Missing("CHAP_N"))?;
            let response = text::binary(keys.response.ok_or(ChapFault::Missing("CHAP_R"))?);
            let response = response.ok_or(ChapFault::BadValue("CHAP_R"))?;
            let expected = algorithm.response(self.seed.identifier, &target.secret, &self.seed.challenge);
            let known = is_same(name.as_bytes(), target.name.as_bytes());
            let right = is_same(&response, &expected);
            if !(known & right) {
                return Err(ChapFault::Denied);
            }
        }
        self.step = Step::Done;
        Ok(())
    }
}

/// The CHAP keys of an answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Keys<'a> {
    algorithm: Option<&'a str>,
    identifier: Option<&'a str>,
    challenge: Option<&'a str>,
    name: Option<&'a str>,
    response: Option<&'a str>,
}

impl<'a> Keys<'a> {
    fn of(pairs: &[Pair<'a>]) -> Result<Self, ChapFault> {
        let mut keys = Self::default();
        for pair in pairs {
            let (name, slot) = match pair.key {
                "CHAP_A" => ("CHAP_A", &mut keys.algorithm),
                "CHAP_I" => ("CHAP_I", &mut keys.identifier),
                "CHAP_C" => ("CHAP_C", &mut keys.challenge),
                "CHAP_N" => ("CHAP_N", &mut keys.name),
                "CHAP_R" => ("CHAP_R", &mut keys.response),
                _ => continue,
            };
            if slot.replace(pair.value).is_some() {
                return Err(ChapFault::OutOfOrder(name));
            }
        }
        Ok(keys)
    }
}

#[cfg(test)]
mod tests {
    use intact::iscsi::chap::{CHALLENGE_LEN, Chap as TargetChap, ChapKeys, ChapPolicy, ChapProgress};

    use super::*;

    const OURS: Seed = Seed { identifier: 5, challenge: [3; CHALLENGE_LEN] };
    const THEIRS: Seed = Seed { identifier: 9, challenge: [7; CHALLENGE_LEN] };

    fn credentials(name: &str, secret: &str) -> Credentials {
        Credentials { name: name.to_owned(), secret: secret.as_bytes().to_vec() }
    }

    fn account(mutual: Option<&str>) -> Account {
        Account {
            host: credentials("host", "host's secret"),
            target: mutual.map(|secret| credentials("target", secret)),
        }
    }

    /// An exchange with a target that was just made, and what it says first.
    fn begin(account: Account) -> (Chap, Vec<u8>) {
        let mut said = Vec::new();
        (Chap::begin(account, OURS, &mut said), said)
    }

    fn hear(chap: &mut Chap, text: &str) -> Result<String, ChapFault> {
        let text = text.replace(' ', "\0") + "\0";
        let mut said = Vec::new();
        chap.handle_pairs(&text::pairs(text.as_bytes()).unwrap(), &mut said)?;
        Ok(String::from_utf8(said).unwrap().replace('\0', " "))
    }

    /// Talks to the target's own side until both are done.
    fn talk(account: Account, policy: ChapPolicy) -> Result<(), ChapFault> {
        let mut target = TargetChap::new(policy, THEIRS);
        let (mut chap, mut said) = begin(account);
        while !chap.is_done() {
            let mut keys = ChapKeys::default();
            for pair in text::pairs(&said).unwrap() {
                keys.take(pair).unwrap();
            }
            let mut heard = Vec::new();
            let progress = target.handle_keys(keys, &mut heard).expect("the target believes us");
            assert_eq!(progress == ChapProgress::Authenticated, chap.has_responded());
            said.clear();
            chap.handle_pairs(&text::pairs(&heard).unwrap(), &mut said)?;
        }
        Ok(())
    }

    #[test]
    fn the_targets_side_believes_us_and_we_believe_it_if_it_knows_its_secret() {
        let policy = |target: Option<&str>| {
            let target = target.map(|secret| credentials("target", secret));
            ChapPolicy::new(credentials("host", "host's secret"), target).unwrap()
        };
        assert_eq!(talk(account(None), policy(None)), Ok(()));
        assert_eq!(talk(account(Some("right")), policy(Some("right"))), Ok(()));
        assert_eq!(talk(account(Some("right")), policy(Some("wrong"))), Err(ChapFault::Denied));
        let mut other = account(Some("right"));
        other.target.as_mut().unwrap().name = "another".to_owned();
        assert_eq!(talk(other, policy(Some("right"))), Err(ChapFault::Denied));
    }

    #[test]
    fn what_a_target_may_not_say_ends_the_exchange() {
        let first = |text: &str| hear(&mut begin(account(Some("right"))).0, text).unwrap_err();
        assert_eq!(first("CHAP_I=1 CHAP_C=0x01"), ChapFault::Missing("CHAP_A"));
        assert_eq!(first("CHAP_A=6 CHAP_I=1 CHAP_C=0x01"), ChapFault::Algorithm);
        assert_eq!(first("CHAP_A=7,5 CHAP_I=1 CHAP_C=0x01"), ChapFault::Algorithm);
        assert_eq!(first("CHAP_A=5 CHAP_C=0x01"), ChapFault::Missing("CHAP_I"));
        assert_eq!(first("CHAP_A=5 CHAP_I=256 CHAP_C=0x01"), ChapFault::BadValue("CHAP_I"));
        assert_eq!(first("CHAP_A=5 CHAP_I=1"), ChapFault::Missing("CHAP_C"));
        assert_eq!(first("CHAP_A=5 CHAP_I=1 CHAP_C=01"), ChapFault::BadValue("CHAP_C"));
        assert_eq!(first("CHAP_A=5 CHAP_I=1 CHAP_I=1"), ChapFault::OutOfOrder("CHAP_I"));
        let ours = text::to_hexadecimal(&OURS.challenge);
        assert_eq!(first(&format!("CHAP_A=5 CHAP_I=5 CHAP_C={ours}")), ChapFault::Reflected);
        let early = "CHAP_A=5 CHAP_I=1 CHAP_C=0x01 CHAP_N=target CHAP_R=0x00";
        assert_eq!(first(early), ChapFault::OutOfOrder("CHAP_N or CHAP_R"));

        let second = |text: &str| {
            let (mut chap, _) = begin(account(Some("right")));
            let said = hear(&mut chap, "CHAP_A=5 CHAP_I=1 CHAP_C=0x01").unwrap();
            assert!(said.starts_with("CHAP_N=host CHAP_R=0x") && said.contains(" CHAP_I=5 CHAP_C=0x0303"));
            let result = hear(&mut chap, text);
            assert!(!chap.is_done());
            result.unwrap_err()
        };
        assert_eq!(second(""), ChapFault::Missing("CHAP_N"));
        assert_eq!(second("CHAP_N=target"), ChapFault::Missing("CHAP_R"));
        assert_eq!(second("CHAP_N=target CHAP_R=no"), ChapFault::BadValue("CHAP_R"));
        assert_eq!(second("CHAP_N=target CHAP_R=0x00"), ChapFault::Denied);
        assert_eq!(second("CHAP_A=5"), ChapFault::OutOfOrder("CHAP_A"));
    }

    #[test]
    fn secrets_are_not_shown() {
        let shown = format!("{:?}", begin(account(Some("right"))).0);
        assert!(!shown.contains("secret\"") && !shown.contains("right"), "{shown}");
    }
}
