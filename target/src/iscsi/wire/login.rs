//! Login Request and Login Response (RFC 7143 sections 11.12, 11.13).

use std::fmt;

use super::bhs::{Bhs, Numbers, Order, Word};
use super::codes::codes;
use super::number::Itt;
use super::opcode::Opcode;
use super::pdu::PduError;

/// The only version of the protocol there is.
pub const VERSION: u8 = 0x00;

const TRANSIT: u8 = 0x80;
const CONTINUE: u8 = 0x40;

/// Stages of a connection (section 11.12.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// SecurityNegotiation.
    Security,
    /// LoginOperationalNegotiation.
    Operational,
    /// FullFeaturePhase.
    FullFeature,
}

impl Stage {
    fn from_wire(bits: u8) -> Result<Self, PduError> {
        match bits & 3 {
            0 => Ok(Self::Security),
            1 => Ok(Self::Operational),
            3 => Ok(Self::FullFeature),
            _ => Err(PduError::Field("CSG or NSG of a login PDU: 2 is no stage")),
        }
    }

    const fn to_wire(self) -> u8 {
        match self {
            Self::Security => 0,
            Self::Operational => 1,
            Self::FullFeature => 3,
        }
    }
}

/// What a login PDU says of stages: T, C, CSG and NSG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// C: the text goes on in the next PDU of the same sender.
    Continued(Stage),
    /// The negotiation of this stage goes on.
    Stay(Stage),
    /// T: the sender is ready to go from the first stage to the second, a later one.
    Transit(Stage, Stage),
}

impl Step {
    /// The stage in which the sender is: never the full feature phase.
    #[must_use]
    pub const fn stage(self) -> Stage {
        match self {
            Self::Continued(stage) | Self::Stay(stage) | Self::Transit(stage, _) => stage,
        }
    }

    fn from_flags(flags: u8) -> Result<Self, PduError> {
        let current = Stage::from_wire(flags >> 2)?;
        if current == Stage::FullFeature {
            return Err(PduError::Field("CSG of a login PDU: the full feature phase has no login"));
        }
        match (flags & TRANSIT != 0, flags & CONTINUE != 0) {
            (true, true) => Err(PduError::Field("T and C of a login PDU: both are set")),
            (false, true) => Ok(Self::Continued(current)),
            (false, false) => Ok(Self::Stay(current)),
            (true, false) => {
                let next = Stage::from_wire(flags)?;
                if next <= current {
                    return Err(PduError::Field("NSG of a login PDU: not a later stage than CSG"));
                }
                Ok(Self::Transit(current, next))
            }
        }
    }

    const fn flags(self) -> u8 {
        match self {
            Self::Continued(stage) => CONTINUE | stage.to_wire() << 2,
            Self::Stay(stage) => stage.to_wire() << 2,
            Self::Transit(stage, next) => TRANSIT | stage.to_wire() << 2 | next.to_wire(),
        }
    }
}

/// Initiator part of the session ID: type, naming authority and qualifier, opaque to the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Isid(pub [u8; 6]);

/// Target Session Identifying Handle; 0 asks for a new session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tsih(pub u16);

/// A Login Request's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginRequest {
    /// T, C, CSG, NSG.
    pub step: Step,
    /// Version-max.
    pub version_max: u8,
    /// Version-min.
    pub version_min: u8,
    /// ISID.
    pub isid: Isid,
    /// TSIH.
    pub tsih: Tsih,
    /// Initiator Task Tag: the same for the whole login.
    pub itt: Itt,
    /// Connection ID.
    pub cid: u16,
    /// CmdSN and ExpStatSN. Logins are immediate whether they say so or not.
    pub order: Order,
}

impl LoginRequest {
    /// Reads a header of this opcode.
    ///
    /// # Errors
    /// When the stages that it names are none, or don't follow one another.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        let (isid, tsih) = bhs.isid_and_tsih();
        Ok(Self {
            step: Step::from_flags(bhs.flags)?,
            version_max: bhs.specific[0],
            version_min: bhs.specific[1],
            isid: Isid(isid),
            tsih: Tsih(tsih),
            itt: bhs.itt(),
            cid: bhs.halves(Word::At20)[0],
            order: bhs.order(),
        })
    }

    /// The header that says this.
    #[must_use]
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::LoginRequest, self.step.flags())
            .with_isid_and_tsih(self.isid.0, self.tsih.0)
            .with_itt(self.itt)
            .with_halves(Word::At20, [self.cid, 0])
            .with_order(self.order);
        bhs.specific = [self.version_max, self.version_min];
        bhs
    }
}

codes! {
    /// Status-Class (upper byte) and Status-Detail (lower byte; section 11.13.5).
    LoginStatus: u16, 0xffff;
    Success = 0x0000 "success";
    TargetMovedTemporarily = 0x0101 "target moved temporarily";
    TargetMovedPermanently = 0x0102 "target moved permanently";
    InitiatorError = 0x0200 "initiator error";
    AuthenticationFailure = 0x0201 "authentication failure";
    AuthorizationFailure = 0x0202 "authorization failure";
    NotFound = 0x0203 "not found";
    TargetRemoved = 0x0204 "target removed";
    UnsupportedVersion = 0x0205 "unsupported version";
    TooManyConnections = 0x0206 "too many connections";
    MissingParameter = 0x0207 "missing parameter";
    CannotInclude = 0x0208 "can't include in session";
    SessionTypeNotSupported = 0x0209 "session type not supported";
    SessionDoesNotExist = 0x020a "session does not exist";
    InvalidDuringLogin = 0x020b "invalid during login";
    TargetError = 0x0300 "target error";
    ServiceUnavailable = 0x0301 "service unavailable";
    OutOfResources = 0x0302 "out of resources";
}

impl fmt::Display for LoginStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "login status {:#06x} ({})", self.to_wire(), self.text())
    }
}

/// A Login Response's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoginResponse {
    /// T, C, CSG, NSG; of no meaning when the login failed.
    pub step: Step,
    /// Version-max.
    pub version_max: u8,
    /// Version-active.
    pub version_active: u8,
    /// ISID.
    pub isid: Isid,
    /// TSIH: set in the response that ends a login.
    pub tsih: Tsih,
    /// The request's tag.
    pub itt: Itt,
    /// Sequence numbers.
    pub numbers: Numbers,
    /// Status-Class and Status-Detail.
    pub status: LoginStatus,
}

impl LoginResponse {
    /// Reads a header of this opcode.
    ///
    /// # Errors
    /// When the stages that it names are none, or don't follow one another.
    pub fn parse(bhs: &Bhs) -> Result<Self, PduError> {
        let (isid, tsih) = bhs.isid_and_tsih();
        Ok(Self {
            step: Step::from_flags(bhs.flags)?,
            version_max: bhs.specific[0],
            version_active: bhs.specific[1],
            isid: Isid(isid),
            tsih: Tsih(tsih),
            itt: bhs.itt(),
            numbers: bhs.numbers(),
            status: LoginStatus::from_wire(bhs.halves(Word::At36)[0]),
        })
    }

    /// The header that says this.
    #[must_use]
    pub fn emit(&self) -> Bhs {
        let mut bhs = Bhs::new(Opcode::LoginResponse, self.step.flags())
            .with_isid_and_tsih(self.isid.0, self.tsih.0)
            .with_itt(self.itt)
            .with_numbers(self.numbers)
            .with_halves(Word::At36, [self.status.to_wire(), 0]);
        bhs.specific = [self.version_max, self.version_active];
        bhs
    }
}
