//! SendTargets, and the exchange of texts in the full feature phase (RFC 7143 sections 6.4, 11.10, appendix C).

use thiserror::Error;

use super::directory::{Directory, Target};
use super::keys::{KeyError, Negotiation, SessionType};
use super::name::IscsiName;
use super::text::{self, Gathered, TextError};
use super::wire::login::Stage;
use super::wire::number::{Itt, Ttt};
use super::wire::text::{Progress, TextRequest};

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The host.
    pub initiator: IscsiName,
    /// The target that its session is with; none in a discovery session.
    pub target: Option<IscsiName>,
}

/// Adds the answer to `SendTargets=value`: each target with its portals, of those that the host may use.
pub fn send_targets(directory: &Directory, asker: &Asker, value: &str, answers: &mut Vec<u8>) {
    let visible = directory.targets.iter().filter(|target| target.allows(&asker.initiator));
    let mut listed: Vec<&Target> = Vec::new();
    match (&asker.target, value) {
        // A discovery session is with no target, and a normal one is told of no other (appendix C).
        (None, "") | (Some(_), "All") => return text::append(answers, "SendTargets", "Reject"),
        (None, "All") => listed.extend(visible),
        (Some(own), "") => listed.extend(visible.filter(|target| target.name == *own)),
        (own, name) => {
            let Ok(name) = IscsiName::parse(name) else {
                return text::append(answers, "SendTargets", "Reject");
            };
            if own.as_ref().is_none_or(|own| *own == name) {
                listed.extend(visible.filter(|target| target.name == name));
            }
        }
    }
    for target in listed {
        text::append(answers, "TargetName", target.name.as_str());
        for portal in &directory.portals {
            // An IPv6 address stands in brackets.
            let address = format!("{portal},{}", directory.portal_group_tag);
            text::append(answers, "TargetAddress", &address);
        }
    }
}

/// What a host did wrong with a text; each is a reject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TextFault {
    /// The tags are those of no exchange.
    #[error("a Text Request for an exchange that there is not")]
    NoExchange,
    /// There is text where only more of the answer may be asked for.
    #[error("text in a request for the rest of an answer")]
    Unasked,
    /// The text is none.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A key has no place here.
    #[error(transparent)]
    Key(#[from] KeyError),
}

/// What a Text Response says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextReply {
    /// F and C.
    pub progress: Progress,
    /// What the host's next request must carry.
    pub ttt: Ttt,
    /// The text, or a part of it.
    pub data: Vec<u8>,
}

/// The exchange of texts of one session: one at a time, each of at most [`text::TEXT_MAX`] bytes from the host.
#[derive(Debug)]
pub struct Texts {
    /// Longest data segment of a response, bytes.
    segment_max: usize,
    current: Option<Exchange>,
    last_ttt: u32,
}

#[derive(Debug)]
struct Exchange {
    itt: Itt,
    ttt: Ttt,
    gathered: Gathered,
    /// What is answered and was not sent yet.
    answer: Vec<u8>,
}

impl Texts {
    /// A session whose host receives segments of `segment_max` bytes.
    #[must_use]
    pub fn new(segment_max: usize) -> Self {
        Self { segment_max: segment_max.max(1), current: None, last_ttt: 0 }
    }

    /// Takes a request; returns what is answered.
    ///
    /// # Errors
    /// When it must be rejected; the exchange ends then.
    pub fn handle_request(
        &mut self,
        request: &TextRequest,
        data: &[u8],
        directory: &Directory,
        asker: &Asker,
    ) -> Result<TextReply, TextFault> {
        let mut exchange = match (request.ttt, self.current.take()) {
            // A request without the tag begins anew.
            (Ttt::NONE, _) => Exchange {
                itt: request.itt,
                ttt: Ttt::NONE,
                gathered: Gathered::default(),
                answer: Vec::new(),
            },
            (ttt, Some(exchange)) if exchange.ttt == ttt && exchange.itt == request.itt => exchange,
            _ => return Err(TextFault::NoExchange),
        };
        if exchange.answer.is_empty() {
            exchange.gathered.push(data)?;
            if request.progress != Progress::Continued {
                let whole = exchange.gathered.take();
                exchange.answer = answer(&whole, directory, asker)?;
            }
        } else if !data.is_empty() || request.progress == Progress::Continued {
            return Err(TextFault::Unasked);
        }
        Ok(self.reply(exchange, request.progress))
    }

    /// As much of the answer as fits a segment.
    fn reply(&mut self, mut exchange: Exchange, asked: Progress) -> TextReply {
        let rest = exchange.answer.split_off(self.segment_max.min(exchange.answer.len()));
        let data = std::mem::replace(&mut exchange.answer, rest);
        let progress = match asked {
            _ if !exchange.answer.is_empty() => Progress::Continued,
            Progress::Final => return TextReply { progress: Progress::Final, ttt: Ttt::NONE, data },
            Progress::Whole | Progress::Continued => Progress::Whole,
        };
        self.last_ttt = self.last_ttt.wrapping_add(1);
        if self.last_ttt == Ttt::NONE.0 {
            self.last_ttt = 0;
        }
        exchange.ttt = Ttt(self.last_ttt);
        self.current = Some(exchange);
        TextReply { progress, ttt: Ttt(self.last_ttt), data }
    }
}

/// What is answered to a whole text.
fn answer(whole: &[u8], directory: &Directory, asker: &Asker) -> Result<Vec<u8>, TextFault> {
    let kind = if asker.target.is_some() { SessionType::Normal } else { SessionType::Discovery };
    // What may be declared in this phase has no effect on what was agreed.
    let mut negotiation = Negotiation::new(super::keys::Offers::default(), kind);
    let mut answers = Vec::new();
    let mut asked = false;
    for pair in text::pairs(whole)? {
        if pair.key == "SendTargets" {
            // Once: an answer is long, and a text has room for many questions.
            if asked {
                return Err(KeyError::Twice("SendTargets").into());
            }
            asked = true;
            send_targets(directory, asker, pair.value, &mut answers);
        } else {
            negotiation.handle_pair(pair, Stage::FullFeature, &mut answers)?;
        }
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use super::super::directory::Initiators;
    use super::super::wire::bhs::Order;
    use super::super::wire::number::{Lun, Sn};
    use super::*;

    fn name(text: &str) -> IscsiName {
        IscsiName::parse(text).unwrap()
    }

    fn target(text: &str, initiators: Initiators) -> Target {
        Target { name: name(text), alias: None, initiators, chap: None }
    }

    fn directory() -> Directory {
        let only = Initiators::Named(vec![name("iqn.2026-11.test:other")]);
        Directory {
            targets: vec![
                target("iqn.2026-11.test:t0", Initiators::Any),
                target("iqn.2026-11.test:hidden", only),
                target("iqn.2026-11.test:t1", Initiators::Any),
            ],
            portals: vec!["10.77.0.1:3260".parse().unwrap(), "[fd00::1]:3260".parse().unwrap()],
            portal_group_tag: 1,
            discovery_chap: None,
        }
    }

    fn asker(target: Option<&str>) -> Asker {
        Asker { initiator: name("iqn.2026-11.test:ini"), target: target.map(name) }
    }

    fn listed(target: Option<&str>, value: &str) -> String {
        let mut out = Vec::new();
        send_targets(&directory(), &asker(target), value, &mut out);
        String::from_utf8(out).unwrap().replace('\0', " ")
    }

    const T0: &str =
        "TargetName=iqn.2026-11.test:t0 TargetAddress=10.77.0.1:3260,1 TargetAddress=[fd00::1]:3260,1 ";
    const T1: &str =
        "TargetName=iqn.2026-11.test:t1 TargetAddress=10.77.0.1:3260,1 TargetAddress=[fd00::1]:3260,1 ";

    #[test]
    fn a_host_is_told_of_the_targets_that_it_may_use() {
        assert_eq!(listed(None, "All"), format!("{T0}{T1}"));
        assert_eq!(listed(None, "iqn.2026-11.test:T1"), T1);
        assert_eq!(listed(None, "iqn.2026-11.test:hidden"), "");
        assert_eq!(listed(None, "iqn.2026-11.test:none"), "");
        assert_eq!(listed(None, ""), "SendTargets=Reject ");
        assert_eq!(listed(None, "all of them"), "SendTargets=Reject ");
    }

    #[test]
    fn a_session_with_a_target_is_told_of_that_one() {
        let own = Some("iqn.2026-11.test:t0");
        assert_eq!(listed(own, ""), T0);
        assert_eq!(listed(own, "iqn.2026-11.test:t0"), T0);
        assert_eq!(listed(own, "iqn.2026-11.test:t1"), "");
        assert_eq!(listed(own, "All"), "SendTargets=Reject ");
    }

    fn request(ttt: Ttt, progress: Progress) -> TextRequest {
        let order = Order { immediate: false, cmd_sn: Sn(1), exp_stat_sn: Sn(1) };
        TextRequest { order, progress, lun: Lun::default(), itt: Itt(5), ttt }
    }

    fn say(texts: &mut Texts, ttt: Ttt, progress: Progress, data: &[u8]) -> Result<TextReply, TextFault> {
        texts.handle_request(&request(ttt, progress), data, &directory(), &asker(None))
    }

    #[test]
    fn a_short_answer_is_one_response() {
        let mut texts = Texts::new(8192);
        let reply = say(&mut texts, Ttt::NONE, Progress::Final, b"SendTargets=All\0").unwrap();
        assert_eq!((reply.progress, reply.ttt), (Progress::Final, Ttt::NONE));
        assert_eq!(reply.data.len(), T0.len() + T1.len());
        let reply = say(&mut texts, Ttt::NONE, Progress::Final, b"X-y=1\0InitiatorAlias=a\0").unwrap();
        assert_eq!(reply.data, b"X-y=NotUnderstood\0");
    }

    #[test]
    fn a_long_answer_is_split_and_asked_for_piece_by_piece() {
        let mut texts = Texts::new(100);
        let mut reply = say(&mut texts, Ttt::NONE, Progress::Final, b"SendTargets=All\0").unwrap();
        let mut whole = reply.data.clone();
        let mut pieces = 1;
        while reply.progress == Progress::Continued {
            assert_eq!(reply.data.len(), 100);
            reply = say(&mut texts, reply.ttt, Progress::Final, b"").unwrap();
            whole.extend(&reply.data);
            pieces += 1;
        }
        assert_eq!((reply.progress, reply.ttt, pieces), (Progress::Final, Ttt::NONE, 2));
        assert_eq!(String::from_utf8(whole).unwrap().replace('\0', " "), format!("{T0}{T1}"));
        assert_eq!(say(&mut texts, Ttt(1), Progress::Final, b""), Err(TextFault::NoExchange), "it is over");
    }

    #[test]
    fn a_question_may_come_in_pieces() {
        let mut texts = Texts::new(8192);
        let reply = say(&mut texts, Ttt::NONE, Progress::Continued, b"SendTar").unwrap();
        assert_eq!((reply.progress, reply.data.len()), (Progress::Whole, 0));
        let reply = say(&mut texts, reply.ttt, Progress::Whole, b"gets=All\0").unwrap();
        assert_eq!((reply.progress, reply.data.len()), (Progress::Whole, T0.len() + T1.len()));
        let reply = say(&mut texts, reply.ttt, Progress::Final, b"").unwrap();
        assert_eq!((reply.progress, reply.ttt, reply.data.len()), (Progress::Final, Ttt::NONE, 0));
    }

    #[test]
    fn exchanges_that_are_none_and_texts_without_end_are_refused() {
        let mut texts = Texts::new(100);
        assert_eq!(say(&mut texts, Ttt(7), Progress::Final, b""), Err(TextFault::NoExchange));
        let reply = say(&mut texts, Ttt::NONE, Progress::Final, b"SendTargets=All\0").unwrap();
        assert_eq!(say(&mut texts, reply.ttt, Progress::Final, b"X=y\0"), Err(TextFault::Unasked));
        let mut reply = say(&mut texts, Ttt::NONE, Progress::Continued, &[b'a'; 4096]).unwrap();
        reply = say(&mut texts, reply.ttt, Progress::Continued, &[b'a'; 4096]).unwrap();
        assert_eq!(say(&mut texts, reply.ttt, Progress::Continued, b"a"), Err(TextError::TooLong.into()));
        let twice = b"SendTargets=All\0SendTargets=All\0";
        assert_eq!(
            say(&mut texts, Ttt::NONE, Progress::Final, twice),
            Err(KeyError::Twice("SendTargets").into())
        );
        let late = say(&mut texts, Ttt::NONE, Progress::Final, b"MaxBurstLength=512\0");
        assert_eq!(late, Err(KeyError::WrongStage("MaxBurstLength").into()));
    }
}
