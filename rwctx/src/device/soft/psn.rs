//! Packet sequence numbers: 24 bits on the wire, compared with sign (IBTA 9.7.1); unwrapped here.
//!
//! An unwrapped number never decreases over the life of a connection, so that ranges and order are plain arithmetic. The
//! wire value is turned into the nearest unwrapped one at the edge ([`Psn::near`]) and back ([`Psn::wire`]).

const BITS: u32 = 24;
const MASK: u64 = (1 << BITS) - 1;

/// A packet sequence number that does not wrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Psn(u64);

impl Psn {
    /// The first number of a connection; of `wire` the low 24 bits count.
    pub(super) const fn start(wire: u32) -> Self {
        // One turn ahead, so that numbers just before the first one exist.
        Self((1 << BITS) | (wire as u64 & MASK))
    }

    /// The 24 bits of the wire.
    #[inline]
    pub(super) const fn wire(self) -> u32 {
        (self.0 & MASK) as u32
    }

    /// The number nearest to this one that has the low 24 bits of `wire`: from 2^23 behind to 2^23 - 1 ahead.
    #[inline]
    pub(super) const fn near(self, wire: u32) -> Self {
        let ahead = (wire.wrapping_sub(self.wire()) << (32 - BITS)).cast_signed() >> (32 - BITS);
        Self(self.0.saturating_add_signed(ahead as i64))
    }

    /// The number `packets` later.
    #[inline]
    pub(super) const fn after(self, packets: u32) -> Self {
        Self(self.0 + packets as u64)
    }

    /// The number one earlier.
    #[inline]
    pub(super) const fn before(self) -> Self {
        Self(self.0 - 1)
    }

    /// Packets from `earlier` to this one.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "ranges in use are shorter than 2^24 packets")]
    pub(super) const fn since(self, earlier: Self) -> u32 {
        debug_assert!(self.0 >= earlier.0 && self.0 - earlier.0 <= MASK);
        (self.0 - earlier.0) as u32
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_nearest_number_is_found_on_both_sides_of_the_wrap() {
        let last = Psn::start(0xFF_FFFE);
        assert_eq!(last.near(0xFF_FFFF), last.after(1));
        assert_eq!(last.near(0), last.after(2));
        assert_eq!(last.after(5).near(0xFF_FFFE), last);
        assert_eq!(Psn::start(0).near(0xFF_FFFF).after(1), Psn::start(0));
        assert_eq!(Psn::start(0).near(0x80_0000).after(0x80_0000), Psn::start(0));
        assert_eq!(Psn::start(0).near(0x7F_FFFF), Psn::start(0).after(0x7F_FFFF));
    }

    proptest! {
        #[test]
        fn any_number_within_half_a_turn_comes_back_from_the_wire(
            start in 0_u32..1 << 24,
            turns in 0_u32..1 << 26,
            ahead in 0_u32..1 << 23,
        ) {
            let base = Psn::start(start).after(turns);
            prop_assert_eq!(base.near(base.after(ahead).wire()), base.after(ahead));
            prop_assert_eq!(base.after(ahead).near(base.wire()), base);
            prop_assert_eq!(base.after(ahead).since(base), ahead);
        }
    }
}
