//! The syndrome of an acknowledge: what the responder says (IBTA 9.7.5.1.2 and 9.7.5.2).

use std::time::Duration;

/// Credit code of an ACK that reports no end-to-end credits.
pub const CREDITS_NOT_REPORTED: u8 = 0x1F;

const KIND_MASK: u8 = 0xE0;
const VALUE_MASK: u8 = 0x1F;
const KIND_ACK: u8 = 0x00;
const KIND_RNR: u8 = 0x20;
const KIND_NAK: u8 = 0x60;

/// What an acknowledge says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Syndrome {
    /// Positive; the credit code (0-31) counts receive buffers, [`CREDITS_NOT_REPORTED`] says nothing.
    Ack(u8),
    /// No receive buffer: the requester tries again after the delay.
    RnrNak(RnrTimer),
    /// Negative.
    Nak(NakCode),
    /// A kind without a meaning; the whole byte.
    Reserved(u8),
}

/// Why a request was refused. All but [`NakCode::PsnSequence`] are fatal for both queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NakCode {
    /// A gap in the sequence numbers; the PSN of the NAK is the one expected.
    PsnSequence,
    /// The operation, its length or its order is not allowed.
    InvalidRequest,
    /// Key, range or rights do not fit.
    RemoteAccess,
    /// The responder failed.
    RemoteOperational,
    /// Reliable datagrams only.
    InvalidRdRequest,
    /// Any other code, 5-31.
    Unknown(u8),
}

/// The delay that an RNR NAK asks for: a code, 0-31. Code 0 is the longest.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

impl Syndrome {
    /// The positive acknowledge that we send.
    pub const ACK: Self = Self::Ack(CREDITS_NOT_REPORTED);
}

impl RnrTimer {
    /// Delays by code, in units of 10 microseconds.
    const DELAYS: [u32; 32] = [
        65536, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
        3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
    ];

    /// The timer of a code; its low five bits count.
    #[must_use]
    #[inline]
    pub const fn new(code: u8) -> Self {
        Self(code & VALUE_MASK)
    }

    /// The code, 0-31.
    #[must_use]
    #[inline]
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The delay, 10 microseconds to 655.36 milliseconds.
    #[must_use]
    pub fn delay(self) -> Duration {
        Duration::from_micros(u64::from(Self::DELAYS[usize::from(self.0)]) * 10)
    }
}

impl std::fmt::Debug for RnrTimer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RnrTimer({}: {:?})", self.0, self.delay())
    }
}

impl From<u8> for NakCode {
    /// The low five bits of a syndrome.
    fn from(code: u8) -> Self {
        match code & VALUE_MASK {
            0 => Self::PsnSequence,
            1 => Self::InvalidRequest,
            2 => Self::RemoteAccess,
            3 => Self::RemoteOperational,
            4 => Self::InvalidRdRequest,
            other => Self::Unknown(other),
        }
    }
}

impl From<NakCode> for u8 {
    fn from(code: NakCode) -> Self {
        match code {
            NakCode::PsnSequence => 0,
            NakCode::InvalidRequest => 1,
            NakCode::RemoteAccess => 2,
            NakCode::RemoteOperational => 3,
            NakCode::InvalidRdRequest => 4,
            NakCode::Unknown(other) => other & VALUE_MASK,
        }
    }
}

impl From<u8> for Syndrome {
    #[inline]
    fn from(byte: u8) -> Self {
        match byte & KIND_MASK {
            KIND_ACK => Self::Ack(byte & VALUE_MASK),
            KIND_RNR => Self::RnrNak(RnrTimer::new(byte)),
            KIND_NAK => Self::Nak(NakCode::from(byte)),
            _ => Self::Reserved(byte),
        }
    }
}

impl From<Syndrome> for u8 {
    #[inline]
    fn from(syndrome: Syndrome) -> Self {
        match syndrome {
            Syndrome::Ack(credits) => KIND_ACK | (credits & VALUE_MASK),
            Syndrome::RnrNak(timer) => KIND_RNR | timer.code(),
            Syndrome::Nak(code) => KIND_NAK | Self::from(code),
            Syndrome::Reserved(byte) => byte,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_the_way_through_the_enum() {
        for byte in 0..=u8::MAX {
            assert_eq!(u8::from(Syndrome::from(byte)), byte);
        }
    }

    #[test]
    fn nak_codes_have_their_bytes() {
        assert_eq!(u8::from(Syndrome::ACK), 0x1F);
        assert_eq!(u8::from(Syndrome::Nak(NakCode::PsnSequence)), 0x60);
        assert_eq!(u8::from(Syndrome::Nak(NakCode::InvalidRequest)), 0x61);
        assert_eq!(u8::from(Syndrome::Nak(NakCode::RemoteAccess)), 0x62);
        assert_eq!(u8::from(Syndrome::Nak(NakCode::RemoteOperational)), 0x63);
        assert_eq!(u8::from(Syndrome::Nak(NakCode::InvalidRdRequest)), 0x64);
    }

    #[test]
    fn rnr_delays_are_those_of_the_table() {
        let delay = |code| RnrTimer::new(code).delay().as_micros();
        assert_eq!(delay(0), 655_360);
        assert_eq!(delay(1), 10);
        assert_eq!(delay(5), 60);
        assert_eq!(delay(12), 640);
        assert_eq!(delay(14), 1_280);
        assert_eq!(delay(20), 10_240);
        assert_eq!(delay(31), 491_520);
        assert!((1..31).all(|code| delay(code) < delay(code + 1)));
    }
}
