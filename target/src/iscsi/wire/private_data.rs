//! Private data of the connection manager's REQ and REP: the iSER CM header (InfiniBand Annex A12; RFC 7145 has it
//! as "iSER-specific connection parameters").

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Zero-based virtual addresses are not supported (REQ) or not used (REP).
const NO_ZERO_BASED: u8 = 0x80;
/// SEND with invalidation is not supported (REQ) or not used (REP).
const NO_INVALIDATE: u8 = 0x40;

/// The header's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct CmHeader {
    /// Flags: what is *not* there.
    pub flags: u8,
    /// Reserved.
    pub rsvd1: [u8; 3],
}

const _: () = assert!(size_of::<CmHeader>() == 4);

/// What one side can do, as it says when it connects or accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Abilities {
    /// Addresses in the other's memory may be counted from zero.
    pub zero_based: bool,
    /// Responses may invalidate the key of the command that they answer.
    pub invalidate: bool,
}

impl Abilities {
    /// What a side says in its private data; one that sends none can do neither. Bytes behind the header (the CM hands
    /// over its whole field) are ignored.
    #[must_use]
    pub fn parse(private: &[u8]) -> Self {
        CmHeader::ref_from_prefix(private).map_or_else(
            |_| Self::default(),
            |(header, _)| Self {
                zero_based: header.flags & NO_ZERO_BASED == 0,
                invalidate: header.flags & NO_INVALIDATE == 0,
            },
        )
    }

    /// The header that says this.
    #[must_use]
    pub fn emit(self) -> CmHeader {
        let unless = |able, flag| if able { 0 } else { flag };
        let flags = unless(self.zero_based, NO_ZERO_BASED) | unless(self.invalidate, NO_INVALIDATE);
        CmHeader { flags, rsvd1: [0; 3] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_linux_host_invalidates_and_has_no_zero_based_addresses() {
        let recorded = [0x80, 0, 0, 0, 0, 0, 0, 0];
        let abilities = Abilities::parse(&recorded);
        assert_eq!(abilities, Abilities { zero_based: false, invalidate: true });
        assert_eq!(abilities.emit().as_bytes(), &recorded[..4]);
    }

    #[test]
    fn who_says_nothing_can_do_nothing() {
        assert_eq!(Abilities::parse(&[]), Abilities::default());
        assert_eq!(Abilities::parse(&[0, 0, 0]), Abilities::default());
        assert_eq!(Abilities::default().emit().flags, 0xc0);
        assert_eq!(Abilities::parse(&[0; 4]), Abilities { zero_based: true, invalidate: true });
    }
}
