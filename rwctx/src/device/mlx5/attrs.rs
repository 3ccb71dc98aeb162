//! Signature attributes as the device takes them.
//!
//! Pure: values in, values out. There is no protection type on the device; types fall out of flags and masks, as they do from
//! [`SigAttrs`]. (rw-contexts 2.6.2, 2.6.5 `sig_block`; pi 8)

use t10pi::{Checks, Guard};
use thiserror::Error;

use super::caps::{Sides, SigCaps, Unsupported};
use super::ffi;
use crate::plan::Direction;
use crate::signature::{Operation, SigAttrs, SigDomain, SigError, Signature, T10Dif, check_mask_bits};

/// A signature that a device executes.
#[derive(Clone, Copy, Debug)]
pub struct SigBlock {
    signature: Signature,
    mem: Option<Domain>,
    wire: Option<Domain>,
    check_mask: u8,
    copy_mask: Option<u8>,
    app_tag_mask: u16,
}

/// All bytes of a tuple.
const ALL: u8 = 0xFF;

/// The tuples of one domain (`mlx5dv_sig_block_domain`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Domain {
    pub(super) block_size: u32,
    pub(super) t10dif: ffi::SigT10Dif,
}

/// Why a device executes no such signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SigBlockError {
    /// Nobody can.
    #[error(transparent)]
    Invalid(#[from] SigError),
    /// Software can.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

impl SigBlock {
    /// What `attrs` are for a transfer in `direction` by a device with these capabilities.
    ///
    /// # Errors
    /// [`SigBlockError`].
    pub fn new(attrs: &SigAttrs, direction: Direction, caps: &SigCaps) -> Result<Self, SigBlockError> {
        let signature = Signature::new(attrs, direction)?;
        let sides = match signature.operation() {
            Operation::Insert | Operation::Strip => Sides::One,
            Operation::Verify | Operation::Rewrite => Sides::Both,
        };
        let domain = |of: SigDomain| match of {
            SigDomain::None => Ok(None),
            SigDomain::T10Dif(dif) => Domain::new(&dif, sides, caps).map(Some),
        };
        let (mem, wire) = (domain(attrs.mem)?, domain(attrs.wire)?);
        let input = match direction {
            Direction::ToHost => attrs.mem,
            Direction::FromHost => attrs.wire,
        };
        let (check_mask, app_tag_mask) = match input {
            // What is generated is not checked.
            SigDomain::None => (0, 0),
            SigDomain::T10Dif(dif) => {
                (check_mask(attrs.check_mask, dif.apptag_check_mask)?, dif.apptag_check_mask)
            }
        };
        // Said, where it can be: the device alone would not ask whether reference tags count on both sides.
        let copied = signature.copied();
        let copy_mask = (sides == Sides::Both).then(|| check_mask_bits(copied));
        let escapes = matches!(input, SigDomain::T10Dif(dif) if dif.app_escape);
        if copied.guard && copy_mask != Some(ALL) && escapes {
            return Err(Unsupported::EscapedRewrite.into());
        }
        Ok(Self { signature, mem, wire, check_mask, copy_mask, app_tag_mask })
    }

    /// The signature that is executed.
    #[must_use]
    pub fn signature(&self) -> &Signature {
        &self.signature
    }

    pub(super) fn mem(&self) -> Option<&Domain> {
        self.mem.as_ref()
    }

    pub(super) fn wire(&self) -> Option<&Domain> {
        self.wire.as_ref()
    }

    /// Bytes of the incoming tuple that are compared.
    pub(super) fn check_mask(&self) -> u8 {
        self.check_mask
    }

    /// Bytes of the incoming tuple that go out, where both sides have tuples.
    pub(super) fn copy_mask(&self) -> Option<u8> {
        self.copy_mask
    }

    /// Bits of the application tag that are compared.
    pub(super) fn app_tag_mask(&self) -> u16 {
        self.app_tag_mask
    }
}

impl Domain {
    fn new(dif: &T10Dif, sides: Sides, caps: &SigCaps) -> Result<Self, Unsupported> {
        let block_size = caps.block_size_of(&dif.format, sides)?;
        let guard = dif.format.guard();
        let bg = match (guard, dif.guard_seed) {
            // 0 is what standards say; examples of this interface have FFFFh, and guards that nobody else makes.
            (_, 0) => 0,
            (Guard::Crc16, 0xFFFF) => 0xFFFF,
            (_, seed) => return Err(Unsupported::GuardSeed(seed)),
        };
        let escape = match (dif.app_escape, dif.ref_escape) {
            (false, _) => 0,
            (true, false) => ffi::T10DIF_FLAG_APP_ESCAPE,
            (true, true) => ffi::T10DIF_FLAG_APP_REF_ESCAPE,
        };
        let t10dif = ffi::SigT10Dif {
            bg_type: if guard == Guard::Ip { ffi::T10DIF_CSUM } else { ffi::T10DIF_CRC },
            bg,
            app_tag: dif.app_tag,
            ref_tag: u32::try_from(dif.ref_tag & u64::from(u32::MAX)).expect("32 bits are left"),
            flags: escape | if dif.ref_remap { ffi::T10DIF_FLAG_REF_REMAP } else { 0 },
        };
        Ok(Self { block_size, t10dif })
    }
}

/// The bytes of these fields; of the application tag, those under its mask.
fn check_mask(checks: Checks, app_tag_mask: u16) -> Result<u8, Unsupported> {
    let app_tag = match app_tag_mask {
        _ if !checks.app_tag => 0,
        0x0000 => 0,
        0x00FF => ffi::SIG_MASK_T10DIF_APPTAG_BYTE0,
        0xFF00 => ffi::SIG_MASK_T10DIF_APPTAG_BYTE1,
        0xFFFF => ffi::SIG_MASK_T10DIF_APPTAG,
        other => return Err(Unsupported::AppTagMask(other)),
    };
    Ok(check_mask_bits(Checks { app_tag: false, ..checks }) | app_tag)
}

#[cfg(test)]
mod tests {
    use t10pi::{Format, PiType};

    use super::*;
    use crate::signature::CopyMask;
    use crate::signature::testing::{attrs, domain};

    fn caps() -> SigCaps {
        SigCaps::new(&ffi::SigCaps { block_size: 0x1F, block_prot: 3, t10dif_bg: 3, crc_type: 7 })
    }

    fn crc16() -> Format {
        Format::new(Guard::Crc16, 512, 8).unwrap()
    }

    fn block(attrs: &SigAttrs, direction: Direction) -> Result<SigBlock, SigBlockError> {
        SigBlock::new(attrs, direction, &caps())
    }

    #[test]
    fn types_are_flags_and_masks() {
        use ffi::{T10DIF_FLAG_APP_ESCAPE, T10DIF_FLAG_APP_REF_ESCAPE, T10DIF_FLAG_REF_REMAP};
        for (pi_type, flags) in [
            (PiType::Type1, T10DIF_FLAG_REF_REMAP | T10DIF_FLAG_APP_ESCAPE),
            (PiType::Type3, T10DIF_FLAG_APP_REF_ESCAPE),
        ] {
            let dif = domain(crc16(), pi_type, 0x7_0000_0009);
            let made = block(&attrs(Some(dif), None), Direction::FromHost).unwrap();
            let t10dif = ffi::SigT10Dif { bg_type: 0, bg: 0, app_tag: 0x1234, ref_tag: 9, flags };
            assert_eq!(made.mem(), Some(&Domain { block_size: ffi::BLOCK_SIZE_512, t10dif }));
            assert_eq!(
                (made.wire(), made.check_mask(), made.copy_mask()),
                (None, 0, None),
                "insert checks nothing"
            );
        }
        let mut dif = domain(crc16(), PiType::Type1, 0);
        (dif.app_escape, dif.ref_escape, dif.ref_remap) = (false, true, false);
        let made = block(&attrs(Some(dif), None), Direction::FromHost).unwrap();
        assert_eq!(made.mem().unwrap().t10dif.flags, 0, "a reference tag alone escapes nothing");
    }

    #[test]
    fn masks_name_bytes_of_the_tuple_that_comes_in() {
        let dif = |mask| T10Dif { apptag_check_mask: mask, ..domain(crc16(), PiType::Type1, 0) };
        let mask = |app_tag_mask, check_mask| {
            let strip = SigAttrs { check_mask, ..attrs(None, Some(dif(app_tag_mask))) };
            block(&strip, Direction::FromHost).map(|made| made.check_mask())
        };
        let only_app = Checks { app_tag: true, ..Checks::NONE };
        for (app_tag_mask, bits) in [(0xFFFF, 0x30), (0xFF00, 0x20), (0x00FF, 0x10), (0, 0)] {
            assert_eq!(mask(app_tag_mask, only_app), Ok(bits));
            assert_eq!(mask(app_tag_mask, Checks::ALL), Ok(0xCF | bits));
        }
        assert_eq!(mask(0xFFFE, only_app), Err(Unsupported::AppTagMask(0xFFFE).into()));
        assert_eq!(mask(0xFFFE, Checks { guard: true, ..Checks::NONE }), Ok(0xC0), "nobody looks at the tag");
        // What goes out is not compared: its mask is of no interest.
        let pass = attrs(Some(dif(0xFFFF)), Some(dif(0x0FF0)));
        assert_eq!(block(&pass, Direction::ToHost).unwrap().check_mask(), 0xFF);
        assert!(block(&pass, Direction::FromHost).is_err());
    }

    #[test]
    fn what_is_copied_is_said() {
        let one = T10Dif { app_escape: false, ..domain(crc16(), PiType::Type1, 5) };
        let copied = |mem, wire, copy_mask| {
            let attrs = SigAttrs { copy_mask, ..attrs(Some(mem), Some(wire)) };
            block(&attrs, Direction::ToHost).unwrap().copy_mask()
        };
        assert_eq!(copied(one, one, CopyMask::Equal), Some(0xFF));
        let other = T10Dif { ref_tag: 6, app_tag: 1, ..one };
        assert_eq!(copied(one, other, CopyMask::Equal), Some(0xC0));
        let still = T10Dif { ref_remap: false, ..one };
        assert_eq!(copied(one, still, CopyMask::Equal), Some(0xF0), "one counts, the other doesn't");
        let ip = T10Dif { format: Format::new(Guard::Ip, 512, 8).unwrap(), ..one };
        assert_eq!(copied(ip, one, CopyMask::Equal), Some(0x3F));
        assert_eq!(copied(one, one, CopyMask::Fields(Checks::NONE)), Some(0));
    }

    #[test]
    fn escaped_tuples_get_no_new_tags_beside_their_guard() {
        let one = domain(crc16(), PiType::Type1, 5);
        let other = T10Dif { ref_tag: 6, ..one };
        let passed = |mem, wire, direction| {
            block(&attrs(Some(mem), Some(wire)), direction).map(|made| made.copy_mask())
        };
        let refused = Err(Unsupported::EscapedRewrite.into());
        assert_eq!(passed(one, other, Direction::ToHost), refused);
        assert_eq!(passed(one, one, Direction::ToHost), Ok(Some(0xFF)), "whole tuples are copied");
        let plain = T10Dif { app_escape: false, ..one };
        assert_eq!(passed(plain, other, Direction::ToHost), Ok(Some(0xF0)));
        assert_eq!(passed(plain, other, Direction::FromHost), refused, "what comes in counts");
        let ip = T10Dif { format: Format::new(Guard::Ip, 512, 8).unwrap(), ..other };
        assert_eq!(passed(ip, one, Direction::ToHost), Ok(Some(0x30)), "the guard is new, too");
    }

    #[test]
    fn what_the_device_can_not_say_is_refused() {
        let one = domain(crc16(), PiType::Type1, 5);
        let refused = |dif: T10Dif| block(&attrs(Some(dif), None), Direction::ToHost).unwrap_err();
        let seed = |guard_seed| T10Dif { guard_seed, ..one };
        assert_eq!(refused(seed(1)), Unsupported::GuardSeed(1).into());
        let made = block(&attrs(Some(seed(0xFFFF)), None), Direction::ToHost).unwrap();
        assert_eq!(made.mem().unwrap().t10dif.bg, 0xFFFF);
        let storage = domain(crc16().with_storage_tag(8, 0xFF).unwrap(), PiType::Type1, 5);
        assert_eq!(refused(storage), Unsupported::StorageTag(8).into());
        let wide = domain(Format::new(Guard::Crc16, 512, 16).unwrap(), PiType::Type1, 5);
        assert_eq!(refused(wide), Unsupported::Metadata(16).into());
        let pass = block(&attrs(Some(wide), Some(wide)), Direction::ToHost).unwrap();
        assert_eq!(pass.mem().unwrap().block_size, ffi::BLOCK_SIZE_520);
        assert_eq!(
            block(&attrs(None, None), Direction::ToHost).unwrap_err(),
            SigBlockError::Invalid(SigError::NoProtection)
        );
    }
}
