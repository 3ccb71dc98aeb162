//! The protection fields of an I/O command: PRINFO, storage tag check, tags (NVM 3.2 CDW2-3 and CDW12-15, 5.2).
//!
//! The tags stay as dwords until the namespace's format is known.

use t10pi::{Checks, CommandTags};

use super::{high16, low16};
use crate::nvmf::wire::sqe::{Sqe, rw_bits};

/// The protection fields of a command, for any guard format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PiFields {
    /// Protection Information Action: the controller inserts or strips.
    pub pract: bool,
    /// Protection Information Check (PRCHK) and Storage Tag Check (STC).
    pub checks: Checks,
    /// Logical Block Application Tag (expected, on the read side).
    pub app_tag: u16,
    /// Its mask.
    pub app_tag_mask: u16,
    /// Storage tag and initial reference tag, not yet split.
    pub command_tags: CommandTags,
}

impl PiFields {
    /// Reads the fields of an entry. The bits of CDW2 that no format uses are dropped.
    #[must_use]
    pub fn parse(sqe: &Sqe) -> Self {
        let cdw12 = sqe.cdw12.get();
        let cdw15 = sqe.cdw15.get();
        Self {
            pract: cdw12 & rw_bits::PRACT != 0,
            checks: Checks {
                guard: cdw12 & rw_bits::PRCHK_GUARD != 0,
                app_tag: cdw12 & rw_bits::PRCHK_APP != 0,
                storage_tag: cdw12 & rw_bits::STC != 0,
                ref_tag: cdw12 & rw_bits::PRCHK_REF != 0,
            },
            app_tag: low16(cdw15),
            app_tag_mask: high16(cdw15),
            command_tags: CommandTags {
                cdw2: sqe.cdw2.get() & 0xffff,
                cdw3: sqe.cdw3.get(),
                cdw14: sqe.cdw14.get(),
            },
        }
    }

    /// Writes the fields into an entry whose other CDW12 bits are `cdw12`.
    pub(super) fn emit(&self, sqe: &mut Sqe, mut cdw12: u32) {
        for (set, bit) in [
            (self.pract, rw_bits::PRACT),
            (self.checks.guard, rw_bits::PRCHK_GUARD),
            (self.checks.app_tag, rw_bits::PRCHK_APP),
            (self.checks.storage_tag, rw_bits::STC),
            (self.checks.ref_tag, rw_bits::PRCHK_REF),
        ] {
            if set {
                cdw12 |= bit;
            }
        }
        sqe.cdw2 = self.command_tags.cdw2.into();
        sqe.cdw3 = self.command_tags.cdw3.into();
        sqe.cdw12 = cdw12.into();
        sqe.cdw14 = self.command_tags.cdw14.into();
        sqe.cdw15 = (u32::from(self.app_tag) | u32::from(self.app_tag_mask) << 16).into();
    }
}

#[cfg(test)]
mod tests {
    use t10pi::{Format, Guard};

    use super::*;

    fn tags(format: &Format, cdw2: u32, cdw3: u32, cdw14: u32) -> (u64, u64) {
        let sqe = Sqe { cdw2: cdw2.into(), cdw3: cdw3.into(), cdw14: cdw14.into(), ..Sqe::default() };
        format.unpack_tags(PiFields::parse(&sqe).command_tags)
    }

    #[test]
    fn a_64_bit_guard_uses_48_bits_of_the_tag_dwords() {
        let format = Format::new(Guard::Crc64, 4096, 16).unwrap().with_storage_tag(18, 0x3_ffff).unwrap();
        assert_eq!(tags(&format, 0xffff, 0xffff_aaaa, 0xc000_0005), (0x2_aaab, 5));
    }

    #[test]
    fn a_16_bit_guard_uses_cdw14_only() {
        let format = Format::new(Guard::Crc16, 512, 8).unwrap();
        assert_eq!(tags(&format, 0xdead, 0xffff_ffff, 0xa501_2345), (0, 0xa501_2345));
        let with_storage_tag = format.with_storage_tag(8, 0xff).unwrap();
        assert_eq!(tags(&with_storage_tag, 0xdead, 0xffff_ffff, 0xa501_2345), (0xa5, 0x01_2345));
    }

    #[test]
    fn a_32_bit_guard_uses_all_80_bits() {
        let format = Format::new(Guard::Crc32c, 4096, 16).unwrap();
        assert_eq!(tags(&format, 0xffff_beef, 0x0123_4567, 0x89ab_cdef), (0xbeef, 0x0123_4567_89ab_cdef));
    }
}
