//! Operational keys, the initiator's side: what it offers, and what follows from the answers (RFC 7143 section 13, RFC
//! 7145 section 6).
//!
//! Sans-IO. What is offered is what open-iscsi offers on iSER; an answer is held to the rule of its key. The rules of a
//! target are [`intact::iscsi::keys`]'.

use intact::iscsi::keys::SessionType;
use intact::iscsi::text::{self, Pair};
use thiserror::Error;

/// InitiatorRecvDataSegmentLength and MaxRecvDataSegmentLength, bytes: what fits behind the headers in our receive buffers.
pub const RECEIVE_MAX: u32 = 8192;
/// What a target receives behind the headers unless it says otherwise, bytes (RFC 7145 section 6.4).
const TARGET_RECEIVE: u32 = 8192;
const BURST_MAX: u32 = 0xff_fc00;
const FIRST_BURST: u32 = 262_144;

/// What both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreed {
    /// ImmediateData.
    pub immediate_data: bool,
    /// FirstBurstLength, bytes: the most that a command brings along.
    pub first_burst: u32,
    /// MaxBurstLength, bytes; of no meaning to RDMA.
    pub max_burst: u32,
    /// TargetRecvDataSegmentLength, bytes: the longest data segment to the target.
    pub target_recv: u32,
}

impl Agreed {
    /// Bytes of a write of `length` bytes that its command brings along.
    #[must_use]
    pub fn immediate(&self, length: u32) -> u32 {
        if self.immediate_data { length.min(self.first_burst).min(self.target_recv) } else { 0 }
    }
}

/// What is wrong with a target's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyFault {
    /// The key came before.
    #[error("{0} is answered twice")]
    Twice(&'static str),
    /// A value that can't be the answer to what was offered.
    #[error("{0} has a value that does not answer what was offered")]
    BadValue(&'static str),
    /// RDMAExtensions is not answered with Yes.
    #[error("the target does not agree to RDMAExtensions=Yes: it has no iSER here")]
    NoRdma,
    /// FirstBurstLength is above MaxBurstLength.
    #[error("FirstBurstLength exceeds MaxBurstLength")]
    Bursts,
}

/// How an offer is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    /// This value.
    Same,
    /// Yes or No: after an offer of No with AND, or Yes with OR, the same.
    Flag,
    /// A number of the range.
    Number(u32, u32),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Both,
    Normal,
    Discovery,
}

struct Offer {
    key: &'static str,
    value: &'static str,
    rule: Rule,
    kind: Use,
}

const fn offer(key: &'static str, value: &'static str, rule: Rule, kind: Use) -> Offer {
    Offer { key, value, rule, kind }
}

const OFFERS: [Offer; 19] = [
    // Digests are nothing that iSER has: they are offered where open-iscsi does.
    offer("HeaderDigest", "None", Rule::Same, Use::Discovery),
    offer("DataDigest", "None", Rule::Same, Use::Discovery),
    offer("DefaultTime2Wait", "2", Rule::Number(2, 3600), Use::Both),
    offer("DefaultTime2Retain", "0", Rule::Same, Use::Both),
    offer("IFMarker", "No", Rule::Same, Use::Both),
    offer("OFMarker", "No", Rule::Same, Use::Both),
    offer("ErrorRecoveryLevel", "0", Rule::Same, Use::Both),
    // Declared, and not answered but by the target's own.
    offer("MaxRecvDataSegmentLength", "8192", Rule::Number(512, 0xff_ffff), Use::Discovery),
    offer("InitialR2T", "Yes", Rule::Same, Use::Normal),
    offer("ImmediateData", "Yes", Rule::Flag, Use::Normal),
    offer("MaxBurstLength", "16776192", Rule::Number(512, BURST_MAX), Use::Normal),
    offer("FirstBurstLength", "262144", Rule::Number(512, FIRST_BURST), Use::Normal),
    offer("MaxOutstandingR2T", "1", Rule::Same, Use::Normal),
    offer("MaxConnections", "1", Rule::Same, Use::Normal),
    offer("DataPDUInOrder", "Yes", Rule::Same, Use::Normal),
    offer("DataSequenceInOrder", "Yes", Rule::Same, Use::Normal),
    offer("InitiatorRecvDataSegmentLength", "8192", Rule::Number(512, RECEIVE_MAX), Use::Normal),
    offer("TargetRecvDataSegmentLength", "8192", Rule::Number(512, TARGET_RECEIVE), Use::Normal),
    offer("RDMAExtensions", "Yes", Rule::Flag, Use::Normal),
];

/// What a target says of itself; it wants no answer.
const DECLARED: [&str; 7] = [
    "TargetAlias",
    "TargetPortalGroupTag",
    "TargetAddress",
    "MaxRecvDataSegmentLength",
    "MaxOutstandingUnexpectedPDUs",
    "MaxAHSLength",
    "NodeArchitecture",
];

/// The negotiation of one login.
#[derive(Clone, Debug)]
pub struct Negotiation {
    kind: SessionType,
    /// Offers that were answered, a bit each.
    answered: u32,
    rdma_extensions: bool,
    agreed: Agreed,
}

const _: () = assert!(OFFERS.len() <= 32);

impl Negotiation {
    /// Nothing was said yet.
    #[must_use]
    pub fn new(kind: SessionType) -> Self {
        // What holds where nothing is answered: the smaller of the RFC's defaults and our offers.
        let agreed = Agreed {
            immediate_data: true,
            first_burst: 65536,
            max_burst: 262_144,
            target_recv: TARGET_RECEIVE,
        };
        Self { kind, answered: 0, rdma_extensions: false, agreed }
    }

    /// Adds the offers to a text.
    pub fn offer(&self, said: &mut Vec<u8>) {
        for offer in OFFERS.iter().filter(|offer| self.is_ours(offer)) {
            text::append(said, offer.key, offer.value);
        }
    }

    /// Takes a pair that is not the security stage's, and adds what must be answered to `said`.
    ///
    /// # Errors
    /// When it does not answer what was offered.
    pub fn handle_pair(&mut self, pair: Pair<'_>, said: &mut Vec<u8>) -> Result<(), KeyFault> {
        let offered = OFFERS.iter().enumerate().find(|(_, offer)| offer.key == pair.key);
        let Some((at, offer)) = offered.filter(|(_, offer)| self.is_ours(offer)) else {
            if !DECLARED.contains(&pair.key) {
                // What came after RFC 3720, and what is a target's own.
                text::append(said, pair.key, "NotUnderstood");
            }
            return Ok(());
        };
        if self.answered & 1 << at != 0 {
            return Err(KeyFault::Twice(offer.key));
        }
        self.answered |= 1 << at;
        if pair.value == "Irrelevant" && self.kind == SessionType::Discovery {
            return Ok(());
        }
        let bad = KeyFault::BadValue(offer.key);
        match offer.rule {
            // A number may be written in two ways.
            Rule::Same if text::number(offer.value).is_some() => {
                if text::number(pair.value) == text::number(offer.value) { Ok(()) } else { Err(bad) }
            }
            Rule::Same => {
                if pair.value == offer.value {
                    Ok(())
                } else {
                    Err(bad)
                }
            }
            Rule::Flag => {
                let value = match pair.value {
                    "Yes" => true,
                    "No" => false,
                    _ => return Err(bad),
                };
                if offer.key == "ImmediateData" {
                    self.agreed.immediate_data = value;
                } else {
                    self.rdma_extensions = value;
                }
                Ok(())
            }
            Rule::Number(least, most) => {
                let number = text::number(pair.value).and_then(|number| u32::try_from(number).ok());
                let number = number.filter(|number| (least..=most).contains(number)).ok_or(bad)?;
                match offer.key {
                    "MaxBurstLength" => self.agreed.max_burst = number,
                    "FirstBurstLength" => self.agreed.first_burst = number,
                    "TargetRecvDataSegmentLength" => self.agreed.target_recv = number,
                    // Nobody waits, and nothing is bounded by the others.
                    _ => {}
                }
                Ok(())
            }
        }
    }

    /// What both sides agreed on.
    ///
    /// # Errors
    /// When it is not enough for a session over RDMA, or contradicts itself.
    pub fn finish(&self) -> Result<Agreed, KeyFault> {
        if self.kind == SessionType::Normal {
            if !self.rdma_extensions {
                return Err(KeyFault::NoRdma);
            }
            if self.agreed.immediate_data && self.agreed.first_burst > self.agreed.max_burst {
                return Err(KeyFault::Bursts);
            }
        }
        Ok(self.agreed)
    }

    fn is_ours(&self, offer: &Offer) -> bool {
        match offer.kind {
            Use::Both => true,
            Use::Normal => self.kind == SessionType::Normal,
            Use::Discovery => self.kind == SessionType::Discovery,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(negotiation: &mut Negotiation, text: &str) -> Result<String, KeyFault> {
        let mut said = Vec::new();
        for pair in text.split(' ').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap();
            negotiation.handle_pair(Pair { key, value }, &mut said)?;
        }
        Ok(String::from_utf8(said).unwrap().replace('\0', " "))
    }

    fn agreed(text: &str) -> Result<Agreed, KeyFault> {
        let mut negotiation = Negotiation::new(SessionType::Normal);
        assert_eq!(hear(&mut negotiation, text)?, "");
        negotiation.finish()
    }

    #[test]
    fn what_the_kernels_target_answered_is_understood() {
        // Recorded.
        let result = agreed(
            "MaxConnections=1 TargetAlias=LIO TargetPortalGroupTag=1 InitialR2T=Yes ImmediateData=Yes \
             MaxBurstLength=262144 FirstBurstLength=65536 DefaultTime2Wait=2 DefaultTime2Retain=0 \
             MaxOutstandingR2T=1 ErrorRecoveryLevel=0 IFMarker=No OFMarker=No RDMAExtensions=Yes \
             InitiatorRecvDataSegmentLength=8192 TargetRecvDataSegmentLength=4096",
        );
        let result = result.unwrap();
        assert_eq!((result.immediate_data, result.first_burst, result.target_recv), (true, 65536, 4096));
        assert_eq!((result.immediate(512), result.immediate(1 << 20)), (512, 4096));
        let none = agreed("RDMAExtensions=Yes ImmediateData=No").unwrap();
        assert_eq!(none.immediate(512), 0);
    }

    #[test]
    fn answers_that_are_none_are_refused() {
        assert_eq!(agreed(""), Err(KeyFault::NoRdma));
        assert_eq!(agreed("RDMAExtensions=No"), Err(KeyFault::NoRdma));
        for (answer, key) in [
            ("RDMAExtensions=yes", "RDMAExtensions"),
            ("ImmediateData=Reject", "ImmediateData"),
            ("InitialR2T=No", "InitialR2T"),
            ("MaxConnections=2", "MaxConnections"),
            ("MaxBurstLength=16776193", "MaxBurstLength"),
            ("FirstBurstLength=511", "FirstBurstLength"),
            ("TargetRecvDataSegmentLength=65536", "TargetRecvDataSegmentLength"),
            ("InitiatorRecvDataSegmentLength=8193", "InitiatorRecvDataSegmentLength"),
            ("DefaultTime2Wait=1", "DefaultTime2Wait"),
            ("ErrorRecoveryLevel=1", "ErrorRecoveryLevel"),
            ("IFMarker=Irrelevant", "IFMarker"),
        ] {
            assert_eq!(agreed(answer), Err(KeyFault::BadValue(key)), "{answer}");
        }
        assert_eq!(agreed("IFMarker=No IFMarker=No"), Err(KeyFault::Twice("IFMarker")));
        let bursts = "RDMAExtensions=Yes MaxBurstLength=512 FirstBurstLength=1024";
        assert_eq!(agreed(bursts), Err(KeyFault::Bursts));
    }

    #[test]
    fn what_was_not_offered_is_not_understood_unless_it_is_declared() {
        let mut negotiation = Negotiation::new(SessionType::Normal);
        let said =
            hear(&mut negotiation, "TaskReporting=RFC3720 MaxRecvDataSegmentLength=4096 HeaderDigest=None");
        assert_eq!(said.unwrap(), "TaskReporting=NotUnderstood HeaderDigest=NotUnderstood ");
        let mut discovery = Negotiation::new(SessionType::Discovery);
        let said = hear(&mut discovery, "HeaderDigest=None MaxRecvDataSegmentLength=262144");
        assert_eq!((said.unwrap().as_str(), discovery.finish().is_ok()), ("", true));
    }
}
