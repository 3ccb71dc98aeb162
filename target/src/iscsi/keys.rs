//! Operational keys: which there are, where they may stand, and what is answered (RFC 7143 section 13, RFC 7145
//! section 6, RFC 7144 section 7.1.1). Security keys are [`super::chap`]'s.

use thiserror::Error;

use super::text::{self, Pair};
use super::wire::login::Stage;

/// What a session is for (SessionType).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionType {
    /// Asks for targets, and nothing else.
    Discovery,
    /// Has tasks.
    Normal,
}

/// What this side offers, and the most that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offers {
    /// Whether writes may bring their first data along; not where a host's protection information is checked.
    pub immediate_data: bool,
    /// FirstBurstLength, bytes: 512 to MaxBurstLength.
    pub first_burst: u32,
    /// MaxBurstLength, bytes: up to 2²⁴ - 1.
    pub max_burst: u32,
    /// TargetRecvDataSegmentLength, bytes: what fits behind the headers in a receive buffer; 8192, the default of the
    /// RFC, or more.
    pub target_recv: u32,
    /// InitiatorRecvDataSegmentLength, bytes: up to 2²⁴ - 1.
    pub initiator_recv: u32,
    /// DefaultTime2Wait, seconds.
    pub time_to_wait: u16,
}

impl Default for Offers {
    fn default() -> Self {
        Self {
            immediate_data: true,
            first_burst: 65536,
            max_burst: 262_144,
            target_recv: 8192,
            initiator_recv: 262_144,
            time_to_wait: 2,
        }
    }
}

/// What both sides agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// ImmediateData.
    pub immediate_data: bool,
    /// FirstBurstLength, bytes: the most that a command brings along.
    pub first_burst: u32,
    /// MaxBurstLength, bytes; of no meaning to RDMA.
    pub max_burst: u32,
    /// TargetRecvDataSegmentLength, bytes: the longest data segment from the host.
    pub target_recv: u32,
    /// InitiatorRecvDataSegmentLength, bytes.
    pub initiator_recv: u32,
    /// MaxRecvDataSegmentLength that the host declared, bytes: what bounds a discovery session's answers.
    pub host_recv: u32,
    /// DefaultTime2Wait, seconds.
    pub time_to_wait: u16,
    /// DefaultTime2Retain, seconds.
    pub time_to_retain: u16,
    /// MaxOutstandingUnexpectedPDUs that the host declared; 0: no limit.
    pub unexpected_pdus: u32,
    /// RDMAExtensions.
    pub rdma_extensions: bool,
}

impl Default for Negotiated {
    /// What holds if nothing is said.
    fn default() -> Self {
        Self {
            immediate_data: true,
            first_burst: 65536,
            max_burst: 262_144,
            target_recv: 8192,
            initiator_recv: 8192,
            host_recv: 8192,
            time_to_wait: 2,
            time_to_retain: 20,
            unexpected_pdus: 0,
            rdma_extensions: false,
        }
    }
}

/// What a host did wrong with keys; each ends the login, or is a reject in the full feature phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KeyError {
    /// The key came before.
    #[error("{0} is negotiated twice")]
    Twice(&'static str),
    /// Not in this stage.
    #[error("{0} has no place in this stage")]
    WrongStage(&'static str),
    /// Only targets send it.
    #[error("{0} is a target's to send")]
    NotYours(&'static str),
    /// A declared value that the key can't have.
    #[error("{0} has a value that it can't have")]
    BadValue(&'static str),
    /// FirstBurstLength is above MaxBurstLength.
    #[error("FirstBurstLength exceeds MaxBurstLength")]
    Bursts,
    /// The host wants a Hello, which InfiniBand and RoCE have none of.
    #[error("iSERHelloRequired=Yes: there is no Hello on this transport")]
    Hello,
    /// RDMAExtensions was not offered, or is No.
    #[error("a session over RDMA needs RDMAExtensions=Yes")]
    NoRdma,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    HeaderDigest,
    DataDigest,
    MaxConnections,
    InitialR2t,
    ImmediateData,
    MaxRecvDataSegmentLength,
    MaxBurstLength,
    FirstBurstLength,
    DefaultTime2Wait,
    DefaultTime2Retain,
    MaxOutstandingR2t,
    DataPduInOrder,
    DataSequenceInOrder,
    ErrorRecoveryLevel,
    TaskReporting,
    ProtocolLevel,
    Marker,
    MarkerInterval,
    RdmaExtensions,
    TargetRecv,
    InitiatorRecv,
    UnexpectedPdus,
    MaxAhsLength,
    TaggedBuffer,
    HelloRequired,
    /// Said at the start of a login, and read there.
    Identity,
    TargetsOnly,
    SendTargets,
}

/// How a key gets its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Yes if both say Yes.
    And,
    /// Yes if one says Yes.
    Or,
    /// The smaller number of a range.
    Min(u64, u64),
    /// The larger number of a range.
    Max(u64, u64),
    /// The first value of the host's list that is ours.
    List(&'static str),
    /// The host declares a number of a range, or a zero where zero says that there is no limit.
    Number(u64, u64, Zero),
    /// The host declares Yes or No.
    Flag,
    /// The host declares a text.
    Text,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zero {
    Allowed,
    No,
}

/// Where a key may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    /// Operational negotiation of a login.
    Operational,
    /// The same, but of no meaning to a discovery session.
    Normal,
    /// Security negotiation of a login.
    Security,
    /// Both stages of a login.
    Login,
    /// Operational negotiation and the full feature phase.
    Late,
    /// Everywhere.
    All,
    /// The full feature phase.
    FullFeature,
    /// Nowhere: targets send it.
    Never,
}

struct Rule {
    name: &'static str,
    key: Key,
    kind: Kind,
    place: Use,
}

const SEGMENT_MIN: u64 = 512;
const SEGMENT_MAX: u64 = 0xff_ffff;

const fn rule(name: &'static str, key: Key, place: Use, kind: Kind) -> Rule {
    Rule { name, key, kind, place }
}

const RULES: [Rule; 37] = [
    rule("HeaderDigest", Key::HeaderDigest, Use::Operational, Kind::List("None")),
    rule("DataDigest", Key::DataDigest, Use::Operational, Kind::List("None")),
    rule("MaxConnections", Key::MaxConnections, Use::Normal, Kind::Min(1, 65535)),
    rule("InitialR2T", Key::InitialR2t, Use::Normal, Kind::Or),
    rule("ImmediateData", Key::ImmediateData, Use::Normal, Kind::And),
    rule(
        "MaxRecvDataSegmentLength",
        Key::MaxRecvDataSegmentLength,
        Use::Late,
        Kind::Number(SEGMENT_MIN, SEGMENT_MAX, Zero::No),
    ),
    rule("MaxBurstLength", Key::MaxBurstLength, Use::Normal, Kind::Min(SEGMENT_MIN, SEGMENT_MAX)),
    rule("FirstBurstLength", Key::FirstBurstLength, Use::Normal, Kind::Min(SEGMENT_MIN, SEGMENT_MAX)),
    rule("DefaultTime2Wait", Key::DefaultTime2Wait, Use::Operational, Kind::Max(0, 3600)),
    rule("DefaultTime2Retain", Key::DefaultTime2Retain, Use::Operational, Kind::Min(0, 3600)),
    rule("MaxOutstandingR2T", Key::MaxOutstandingR2t, Use::Normal, Kind::Min(1, 65535)),
    rule("DataPDUInOrder", Key::DataPduInOrder, Use::Normal, Kind::Or),
    rule("DataSequenceInOrder", Key::DataSequenceInOrder, Use::Normal, Kind::Or),
    rule("ErrorRecoveryLevel", Key::ErrorRecoveryLevel, Use::Operational, Kind::Min(0, 2)),
    rule("TaskReporting", Key::TaskReporting, Use::Normal, Kind::List("RFC3720")),
    rule("iSCSIProtocolLevel", Key::ProtocolLevel, Use::Normal, Kind::Min(0, 31)),
    // Obsolete since RFC 7143; older hosts say No to them.
    rule("IFMarker", Key::Marker, Use::Operational, Kind::And),
    rule("OFMarker", Key::Marker, Use::Operational, Kind::And),
    rule("IFMarkInt", Key::MarkerInterval, Use::Operational, Kind::Text),
    rule("OFMarkInt", Key::MarkerInterval, Use::Operational, Kind::Text),
    rule("RDMAExtensions", Key::RdmaExtensions, Use::Normal, Kind::And),
    rule("TargetRecvDataSegmentLength", Key::TargetRecv, Use::Normal, Kind::Min(SEGMENT_MIN, SEGMENT_MAX)),
    rule(
        "InitiatorRecvDataSegmentLength",
        Key::InitiatorRecv,
        Use::Normal,
        Kind::Min(SEGMENT_MIN, SEGMENT_MAX),
    ),
    rule(
        "MaxOutstandingUnexpectedPDUs",
        Key::UnexpectedPdus,
        Use::Operational,
        Kind::Number(2, 0xffff_ffff, Zero::Allowed),
    ),
    rule("MaxAHSLength", Key::MaxAhsLength, Use::Operational, Kind::Number(2, 0xffff_ffff, Zero::Allowed)),
    rule("TaggedBufferForSolicitedDataOnly", Key::TaggedBuffer, Use::Operational, Kind::Flag),
    rule("iSERHelloRequired", Key::HelloRequired, Use::Operational, Kind::Flag),
    rule("InitiatorName", Key::Identity, Use::Login, Kind::Text),
    rule("TargetName", Key::Identity, Use::Login, Kind::Text),
    rule("SessionType", Key::Identity, Use::Login, Kind::Text),
    rule("InitiatorAlias", Key::Identity, Use::All, Kind::Text),
    rule("NodeArchitecture", Key::Identity, Use::All, Kind::Text),
    rule("TargetAlias", Key::TargetsOnly, Use::Never, Kind::Text),
    rule("TargetAddress", Key::TargetsOnly, Use::Never, Kind::Text),
    rule("TargetPortalGroupTag", Key::TargetsOnly, Use::Never, Kind::Text),
    rule("SendTargets", Key::SendTargets, Use::FullFeature, Kind::Text),
    // In its stage the machine of the login takes it first.
    rule("AuthMethod", Key::Identity, Use::Security, Kind::Text),
];

/// The negotiation of one connection, from its first login request on.
#[derive(Clone, Debug)]
pub struct Negotiation {
    offers: Offers,
    kind: SessionType,
    /// Rules whose keys came up in the login, a bit each.
    seen: u64,
    /// Whether we offered ImmediateData because the host didn't.
    asked: bool,
    result: Negotiated,
}

const _: () = assert!(RULES.len() <= 64);

impl Negotiation {
    /// Nothing was said yet.
    #[must_use]
    pub fn new(offers: Offers, kind: SessionType) -> Self {
        Self { offers, kind, seen: 0, asked: false, result: Negotiated::default() }
    }

    /// What holds so far.
    #[must_use]
    pub fn result(&self) -> &Negotiated {
        &self.result
    }

    /// Takes a pair that came in `stage`, and adds what must be answered to `answers`.
    ///
    /// # Errors
    /// When the host broke a rule that no answer mends.
    pub fn handle_pair(
        &mut self,
        pair: Pair<'_>,
        stage: Stage,
        answers: &mut Vec<u8>,
    ) -> Result<(), KeyError> {
        let Some((at, rule)) = RULES.iter().enumerate().find(|(_, rule)| rule.name == pair.key) else {
            text::append(answers, pair.key, "NotUnderstood");
            return Ok(());
        };
        let allowed = match rule.place {
            Use::Operational | Use::Normal => stage == Stage::Operational,
            Use::Security => stage == Stage::Security,
            Use::Login => stage != Stage::FullFeature,
            Use::Late => stage != Stage::Security,
            Use::All => true,
            Use::FullFeature => stage == Stage::FullFeature,
            Use::Never => return Err(KeyError::NotYours(rule.name)),
        };
        if !allowed {
            return Err(KeyError::WrongStage(rule.name));
        }
        let bit = 1 << at;
        if stage != Stage::FullFeature {
            if self.seen & bit != 0 {
                return Err(KeyError::Twice(rule.name));
            }
            self.seen |= bit;
        }
        if rule.key == Key::ImmediateData && self.asked {
            // The answer to our No, which stands whatever it is.
            return Ok(());
        }
        match self.take(rule, pair.value)? {
            Some(Answer::Value(value)) => text::append(answers, rule.name, &value),
            Some(Answer::Word(word)) => text::append(answers, rule.name, word),
            None => {}
        }
        Ok(())
    }

    /// Called when the host would leave the operational stage: what we must still ask, if anything.
    pub fn poll_offer(&mut self, answers: &mut Vec<u8>) -> bool {
        let offered = RULES.iter().position(|rule| rule.key == Key::ImmediateData);
        let offered = offered.is_some_and(|at| self.seen & 1 << at != 0);
        if self.kind == SessionType::Discovery || self.offers.immediate_data || offered || self.asked {
            return false;
        }
        self.asked = true;
        self.result.immediate_data = false;
        text::append(answers, "ImmediateData", "No");
        true
    }

    /// What both sides agreed on.
    ///
    /// # Errors
    /// When it is not enough for a session, or contradicts itself.
    pub fn finish(&self) -> Result<Negotiated, KeyError> {
        if self.kind == SessionType::Normal {
            if !self.result.rdma_extensions {
                return Err(KeyError::NoRdma);
            }
            if self.result.immediate_data && self.result.first_burst > self.result.max_burst {
                return Err(KeyError::Bursts);
            }
        }
        Ok(self.result)
    }

    /// The key's value, and what is answered.
    fn take(&mut self, rule: &Rule, value: &str) -> Result<Option<Answer>, KeyError> {
        if rule.key == Key::MarkerInterval {
            return Ok(Some(Answer::Word("Irrelevant")));
        }
        if rule.place == Use::Normal && self.kind == SessionType::Discovery {
            return Ok(Some(Answer::Word("Irrelevant")));
        }
        let ours = self.ours(rule.key);
        let number = |min, max| text::number(value).filter(|number| (min..=max).contains(number));
        let flag = match value {
            "Yes" => Some(true),
            "No" => Some(false),
            _ => None,
        };
        let agreed = match rule.kind {
            Kind::And => flag.map(|flag| u64::from(flag && ours != 0)),
            Kind::Or => flag.map(|flag| u64::from(flag || ours != 0)),
            Kind::Min(min, max) => number(min, max).map(|number| number.min(ours)),
            Kind::Max(min, max) => number(min, max).map(|number| number.max(ours)),
            Kind::List(word) => {
                let found = value.split(',').any(|offered| offered == word);
                return Ok(Some(Answer::Word(if found { word } else { "Reject" })));
            }
            Kind::Number(min, max, zero) => {
                let zero = zero == Zero::Allowed && text::number(value) == Some(0);
                let declared = if zero { Some(0) } else { number(min, max) };
                self.set(rule.key, declared.ok_or(KeyError::BadValue(rule.name))?)?;
                return Ok(None);
            }
            Kind::Flag => {
                self.set(rule.key, flag.ok_or(KeyError::BadValue(rule.name))?.into())?;
                return Ok(None);
            }
            Kind::Text => return Ok(None),
        };
        let Some(agreed) = agreed else { return Ok(Some(Answer::Word("Reject"))) };
        self.set(rule.key, agreed)?;
        Ok(Some(match rule.kind {
            Kind::And | Kind::Or => Answer::Word(if agreed != 0 { "Yes" } else { "No" }),
            _ => Answer::Value(agreed.to_string()),
        }))
    }

    /// Our side of a negotiated key; Yes is 1.
    fn ours(&self, key: Key) -> u64 {
        match key {
            Key::ImmediateData => self.offers.immediate_data.into(),
            Key::MaxBurstLength => self.offers.max_burst.into(),
            Key::FirstBurstLength => self.offers.first_burst.into(),
            Key::TargetRecv => self.offers.target_recv.into(),
            Key::InitiatorRecv => self.offers.initiator_recv.into(),
            Key::DefaultTime2Wait => self.offers.time_to_wait.into(),
            // One connection, one transfer at a time, everything in order, and data only when we ask for it.
            Key::MaxConnections
            | Key::InitialR2t
            | Key::MaxOutstandingR2t
            | Key::DataPduInOrder
            | Key::DataSequenceInOrder
            | Key::ProtocolLevel
            | Key::RdmaExtensions => 1,
            // Tasks don't outlive their connection; no markers.
            _ => 0,
        }
    }

    fn set(&mut self, key: Key, value: u64) -> Result<(), KeyError> {
        let result = &mut self.result;
        // Ranges were checked: all but declared limits are below 2²⁴.
        let number = u32::try_from(value).unwrap_or(u32::MAX);
        let short = u16::try_from(value).unwrap_or(u16::MAX);
        match key {
            Key::ImmediateData => result.immediate_data = value != 0,
            Key::RdmaExtensions => result.rdma_extensions = value != 0,
            Key::FirstBurstLength => result.first_burst = number,
            Key::MaxBurstLength => result.max_burst = number,
            Key::TargetRecv => result.target_recv = number,
            Key::InitiatorRecv => result.initiator_recv = number,
            Key::MaxRecvDataSegmentLength => result.host_recv = number,
            Key::UnexpectedPdus => result.unexpected_pdus = number,
            Key::DefaultTime2Wait => result.time_to_wait = short,
            Key::DefaultTime2Retain => result.time_to_retain = short,
            Key::HelloRequired if value != 0 => return Err(KeyError::Hello),
            // Values that have no effect, or only one that they may have.
            _ => {}
        }
        Ok(())
    }
}

enum Answer {
    Value(String),
    Word(&'static str),
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn answers(negotiation: &mut Negotiation, stage: Stage, text: &str) -> Result<String, KeyError> {
        let mut out = Vec::new();
        for pair in text.split(' ') {
            let (key, value) = pair.split_once('=').unwrap();
            negotiation.handle_pair(Pair { key, value }, stage, &mut out)?;
        }
        Ok(String::from_utf8(out).unwrap().replace('\0', " ").trim_end().to_owned())
    }

    fn normal() -> Negotiation {
        Negotiation::new(Offers::default(), SessionType::Normal)
    }

    fn answer(text: &str) -> String {
        answers(&mut normal(), Stage::Operational, text).unwrap()
    }

    #[test]
    fn what_a_linux_host_offers_is_answered_as_the_kernels_target_does() {
        let mut negotiation = normal();
        let said = answers(
            &mut negotiation,
            Stage::Operational,
            "DefaultTime2Wait=2 DefaultTime2Retain=0 IFMarker=No OFMarker=No ErrorRecoveryLevel=0 InitialR2T=No \
             ImmediateData=Yes MaxBurstLength=16776192 FirstBurstLength=262144 MaxOutstandingR2T=1 MaxConnections=1 \
             DataPDUInOrder=Yes DataSequenceInOrder=Yes InitiatorRecvDataSegmentLength=262144 \
             TargetRecvDataSegmentLength=8192 RDMAExtensions=Yes",
        );
        assert_eq!(
            said.unwrap(),
            "DefaultTime2Wait=2 DefaultTime2Retain=0 IFMarker=No OFMarker=No ErrorRecoveryLevel=0 InitialR2T=Yes \
             ImmediateData=Yes MaxBurstLength=262144 FirstBurstLength=65536 MaxOutstandingR2T=1 MaxConnections=1 \
             DataPDUInOrder=Yes DataSequenceInOrder=Yes InitiatorRecvDataSegmentLength=262144 \
             TargetRecvDataSegmentLength=8192 RDMAExtensions=Yes"
        );
        let expected = Negotiated {
            initiator_recv: 262_144,
            time_to_retain: 0,
            rdma_extensions: true,
            ..Negotiated::default()
        };
        assert_eq!(negotiation.finish(), Ok(expected));
    }

    #[test]
    fn each_kind_of_key_is_answered_by_its_rule() {
        for (offer, said) in [
            ("HeaderDigest=CRC32C,None", "HeaderDigest=None"),
            ("DataDigest=CRC32C", "DataDigest=Reject"),
            ("MaxConnections=8", "MaxConnections=1"),
            ("MaxConnections=0", "MaxConnections=Reject"),
            ("MaxConnections=65536", "MaxConnections=Reject"),
            ("InitialR2T=Maybe", "InitialR2T=Reject"),
            ("MaxBurstLength=0x1000", "MaxBurstLength=4096"),
            ("MaxBurstLength=511", "MaxBurstLength=Reject"),
            ("FirstBurstLength=16777216", "FirstBurstLength=Reject"),
            ("DefaultTime2Wait=0", "DefaultTime2Wait=2"),
            ("DefaultTime2Retain=3601", "DefaultTime2Retain=Reject"),
            ("ErrorRecoveryLevel=2", "ErrorRecoveryLevel=0"),
            ("DataPDUInOrder=No", "DataPDUInOrder=Yes"),
            ("TaskReporting=FastAbort,RFC3720", "TaskReporting=RFC3720"),
            ("TaskReporting=FastAbort", "TaskReporting=Reject"),
            ("iSCSIProtocolLevel=2", "iSCSIProtocolLevel=1"),
            ("OFMarker=Yes", "OFMarker=No"),
            ("OFMarkInt=2048~2048", "OFMarkInt=Irrelevant"),
            ("TargetRecvDataSegmentLength=65536", "TargetRecvDataSegmentLength=8192"),
            ("X-com.example=1", "X-com.example=NotUnderstood"),
            ("X#NodeArchitecture=a", "X#NodeArchitecture=NotUnderstood"),
            ("MaxOutstandingUnexpectedPDUs=0 MaxAHSLength=256 iSERHelloRequired=No", ""),
            ("TaggedBufferForSolicitedDataOnly=Yes MaxRecvDataSegmentLength=4096", ""),
            ("InitiatorAlias=none NodeArchitecture=x86", ""),
        ] {
            assert_eq!(answer(offer), said, "{offer}");
        }
    }

    #[test]
    fn what_no_answer_mends_is_an_error() {
        let error = |stage, text| answers(&mut normal(), stage, text).unwrap_err();
        assert_eq!(
            error(Stage::Operational, "MaxConnections=1 MaxConnections=1"),
            KeyError::Twice("MaxConnections")
        );
        assert_eq!(error(Stage::Security, "MaxBurstLength=512"), KeyError::WrongStage("MaxBurstLength"));
        assert_eq!(error(Stage::FullFeature, "MaxBurstLength=512"), KeyError::WrongStage("MaxBurstLength"));
        assert_eq!(error(Stage::Operational, "SendTargets=All"), KeyError::WrongStage("SendTargets"));
        assert_eq!(error(Stage::FullFeature, "InitiatorName=a"), KeyError::WrongStage("InitiatorName"));
        assert_eq!(error(Stage::Operational, "TargetAlias=a"), KeyError::NotYours("TargetAlias"));
        let declared = "MaxRecvDataSegmentLength=0";
        assert_eq!(error(Stage::Operational, declared), KeyError::BadValue("MaxRecvDataSegmentLength"));
        let declared = "MaxOutstandingUnexpectedPDUs=1";
        assert_eq!(error(Stage::Operational, declared), KeyError::BadValue("MaxOutstandingUnexpectedPDUs"));
        assert_eq!(error(Stage::Operational, "iSERHelloRequired=Yes"), KeyError::Hello);
        assert_eq!(error(Stage::Operational, "iSERHelloRequired=1"), KeyError::BadValue("iSERHelloRequired"));
    }

    #[test]
    fn a_session_over_rdma_needs_the_extensions_and_bursts_that_fit() {
        let mut negotiation = normal();
        assert_eq!(negotiation.finish(), Err(KeyError::NoRdma));
        assert_eq!(
            answers(&mut negotiation, Stage::Operational, "RDMAExtensions=No").unwrap(),
            "RDMAExtensions=No"
        );
        assert_eq!(negotiation.finish(), Err(KeyError::NoRdma));
        let mut negotiation = normal();
        answers(&mut negotiation, Stage::Operational, "RDMAExtensions=Yes MaxBurstLength=512").unwrap();
        assert_eq!(negotiation.finish(), Err(KeyError::Bursts));
        answers(&mut negotiation, Stage::Operational, "FirstBurstLength=512").unwrap();
        assert!(negotiation.finish().is_ok());
    }

    #[test]
    fn a_discovery_session_has_no_use_for_keys_of_tasks() {
        let mut negotiation = Negotiation::new(Offers::default(), SessionType::Discovery);
        let offer = "HeaderDigest=None ImmediateData=Yes RDMAExtensions=Yes MaxRecvDataSegmentLength=512";
        assert_eq!(
            answers(&mut negotiation, Stage::Operational, offer).unwrap(),
            "HeaderDigest=None ImmediateData=Irrelevant RDMAExtensions=Irrelevant"
        );
        assert_eq!(negotiation.finish().unwrap().host_recv, 512);
        assert!(!negotiation.poll_offer(&mut Vec::new()));
    }

    #[test]
    fn immediate_data_is_refused_whether_the_host_brings_it_up_or_not() {
        let offers = Offers { immediate_data: false, ..Offers::default() };
        let mut silent = Negotiation::new(offers, SessionType::Normal);
        answers(&mut silent, Stage::Operational, "RDMAExtensions=Yes").unwrap();
        let mut asked = Vec::new();
        assert!(silent.poll_offer(&mut asked));
        assert_eq!(asked, b"ImmediateData=No\0");
        assert!(!silent.poll_offer(&mut asked), "once");
        assert_eq!(answers(&mut silent, Stage::Operational, "ImmediateData=Yes").unwrap(), "");
        assert!(!silent.finish().unwrap().immediate_data);

        let mut offered = Negotiation::new(offers, SessionType::Normal);
        let said = answers(&mut offered, Stage::Operational, "RDMAExtensions=Yes ImmediateData=Yes").unwrap();
        assert_eq!(said, "RDMAExtensions=Yes ImmediateData=No");
        assert!(!offered.poll_offer(&mut asked));
        assert!(!offered.finish().unwrap().immediate_data);
    }

    proptest! {
        #[test]
        fn whatever_is_offered_no_result_exceeds_what_we_offer(
            values in prop::collection::vec((0..RULES.len(), "Yes|No|None|[0-9]{1,9}|0x[0-9a-f]{1,9}|[ -~]{0,9}"), 0..40),
        ) {
            let mut negotiation = normal();
            for (at, value) in &values {
                let pair = Pair { key: RULES[*at].name, value };
                let _ = negotiation.handle_pair(pair, Stage::Operational, &mut Vec::new());
            }
            let (result, ours) = (negotiation.result(), Offers::default());
            prop_assert!(result.max_burst <= ours.max_burst && result.first_burst <= ours.first_burst);
            prop_assert!(result.target_recv <= ours.target_recv && result.target_recv >= 512);
            prop_assert!(result.initiator_recv <= ours.initiator_recv && result.initiator_recv >= 512);
            prop_assert!(result.time_to_wait >= 2 && result.time_to_retain <= 20);
        }
    }
}
