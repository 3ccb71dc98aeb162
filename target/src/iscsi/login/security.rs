//! The security stage: which method, and whether the host passed (RFC 7143 sections 6.3.2, 12.1).

use super::super::chap::{Chap, ChapError, ChapKeys, ChapPolicy, ChapProgress, Seed};
use super::super::text::{self, Pair};
use super::super::wire::login::Stage;
use super::fault::LoginFault;

/// How far a host has come in the security stage.
#[derive(Debug)]
pub(super) struct Security {
    /// What it must prove, until that begins.
    demanded: Option<ChapPolicy>,
    seed: Seed,
    state: State,
}

#[derive(Debug)]
enum State {
    /// No method was agreed on.
    Undecided,
    Chap(Box<Chap>),
    Done,
}

impl Security {
    /// A host that must prove what `demanded` says, or nothing.
    pub(super) fn new(demanded: Option<ChapPolicy>, seed: Seed) -> Self {
        Self { demanded, seed, state: State::Undecided }
    }

    /// Whether a key is the security stage's.
    pub(super) fn owns(key: &str) -> bool {
        key == "AuthMethod" || key.starts_with("CHAP_")
    }

    /// Whether the stage may be left.
    pub(super) fn is_done(&self) -> bool {
        match self.state {
            State::Undecided => self.demanded.is_none(),
            State::Chap(_) => false,
            State::Done => true,
        }
    }

    /// Takes the stage's keys of a request, and adds what must be answered to `answers`. In other stages they are
    /// nobody's.
    pub(super) fn handle_pairs(
        &mut self,
        pairs: &[Pair<'_>],
        stage: Stage,
        answers: &mut Vec<u8>,
    ) -> Result<(), LoginFault> {
        if stage != Stage::Security {
            return Ok(());
        }
        let mut keys = ChapKeys::default();
        let mut method = None;
        for pair in pairs.iter().filter(|pair| Self::owns(pair.key)) {
            if pair.key == "AuthMethod" {
                if method.replace(pair.value).is_some() {
                    return Err(LoginFault::Method);
                }
            } else if !keys.take(*pair)? {
                return Err(ChapError::OutOfOrder.into());
            }
        }
        if let Some(offered) = method {
            // Keys of the method come once it is agreed on.
            if !keys.is_empty() {
                return Err(ChapError::OutOfOrder.into());
            }
            return self.choose(offered, answers);
        }
        if let State::Chap(chap) = &mut self.state {
            if chap.handle_keys(keys, answers)? == ChapProgress::Authenticated {
                self.state = State::Done;
            }
        } else if !keys.is_empty() {
            return Err(ChapError::OutOfOrder.into());
        }
        Ok(())
    }

    /// The target's choice among the host's methods: what it demands, and None if that is nothing.
    fn choose(&mut self, offered: &str, answers: &mut Vec<u8>) -> Result<(), LoginFault> {
        if !matches!(self.state, State::Undecided) {
            return Err(LoginFault::Method);
        }
        let wanted = if self.demanded.is_some() { "CHAP" } else { "None" };
        if !offered.split(',').any(|method| method == wanted) {
            return Err(LoginFault::Method);
        }
        text::append(answers, "AuthMethod", wanted);
        self.state = match self.demanded.take() {
            Some(policy) => State::Chap(Box::new(Chap::new(policy, self.seed))),
            None => State::Done,
        };
        Ok(())
    }
}
