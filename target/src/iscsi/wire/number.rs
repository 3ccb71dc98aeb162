//! Sequence numbers, tags and logical unit numbers (RFC 7143 sections 4.2.2, 11.2.1).

use std::fmt;

/// A command or status sequence number: 32 bits, compared by serial arithmetic (RFC 1982).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Sn(pub u32);

impl Sn {
    /// The number `n` later.
    #[must_use]
    pub const fn plus(self, n: u32) -> Self {
        Self(self.0.wrapping_add(n))
    }

    /// The number after this.
    #[must_use]
    pub const fn next(self) -> Self {
        self.plus(1)
    }

    /// Whether this comes before `other`: by less than half of all numbers.
    #[must_use]
    pub const fn is_before(self, other: Self) -> bool {
        let ahead = other.0.wrapping_sub(self.0);
        ahead != 0 && ahead < 1 << 31
    }
}

/// Initiator Task Tag: the host's name of a task, unique among those under way.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Itt(pub u32);

/// Target Transfer Tag: the target's name of an exchange that it wants continued or answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ttt(pub u32);

impl Itt {
    /// The tag that is no task's.
    pub const NONE: Self = Self(0xffff_ffff);
}

impl Ttt {
    /// The tag that names nothing.
    pub const NONE: Self = Self(0xffff_ffff);
}

impl fmt::Debug for Itt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Itt({:#010x})", self.0)
    }
}

impl fmt::Debug for Ttt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ttt({:#010x})", self.0)
    }
}

/// A logical unit number as it stands on the wire; which unit it addresses is SCSI's to say
/// ([`crate::scsi::luns::LunAddress`]).
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Lun(pub [u8; 8]);

impl fmt::Debug for Lun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lun({:#018x})", u64::from_be_bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_ordered_across_the_wrap() {
        assert!(Sn(5).is_before(Sn(6)) && !Sn(6).is_before(Sn(5)) && !Sn(5).is_before(Sn(5)));
        assert!(Sn(0xffff_ffff).is_before(Sn(0)) && Sn(0xffff_fff0).is_before(Sn(0x10)));
        assert_eq!(Sn(0xffff_ffff).next(), Sn(0));
        // Half of all numbers apart, neither is first.
        assert!(!Sn(0).is_before(Sn(1 << 31)) && !Sn(1 << 31).is_before(Sn(0)));
    }
}
