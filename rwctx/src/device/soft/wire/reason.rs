//! Why a REJ refuses (IBTA 12.6.7.2).

/// Why a connection is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RejReason {
    /// 1: no queue pair.
    NoQp,
    /// 3: no resources.
    NoResources,
    /// 4: the sender gave up; the additional information is its CA GUID.
    Timeout,
    /// 5: unsupported request.
    Unsupported,
    /// 6: the communication ID is unknown.
    InvalidCommId,
    /// 8: nobody serves this service ID.
    InvalidServiceId,
    /// 9: not a reliable connection.
    InvalidTransport,
    /// 10: the queue pair belongs to a connection that the sender still has.
    Stale,
    /// 12: the addresses in the request are not those of the packet.
    InvalidGid,
    /// 26: the path MTU is larger than the sender's.
    InvalidMtu,
    /// 28: the user of the connection manager refused; the private data says why.
    Consumer,
    /// Any other.
    Other(u16),
}

impl From<u16> for RejReason {
    fn from(code: u16) -> Self {
        match code {
            1 => Self::NoQp,
            3 => Self::NoResources,
            4 => Self::Timeout,
            5 => Self::Unsupported,
            6 => Self::InvalidCommId,
            8 => Self::InvalidServiceId,
            9 => Self::InvalidTransport,
            10 => Self::Stale,
            12 => Self::InvalidGid,
            26 => Self::InvalidMtu,
            28 => Self::Consumer,
            other => Self::Other(other),
        }
    }
}

impl From<RejReason> for u16 {
    fn from(reason: RejReason) -> Self {
        match reason {
            RejReason::NoQp => 1,
            RejReason::NoResources => 3,
            RejReason::Timeout => 4,
            RejReason::Unsupported => 5,
            RejReason::InvalidCommId => 6,
            RejReason::InvalidServiceId => 8,
            RejReason::InvalidTransport => 9,
            RejReason::Stale => 10,
            RejReason::InvalidGid => 12,
            RejReason::InvalidMtu => 26,
            RejReason::Consumer => 28,
            RejReason::Other(other) => other,
        }
    }
}
