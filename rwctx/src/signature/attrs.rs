//! Signature attributes as their user gives them: plain values, checked when a [`Signature`](super::Signature) is made.
//!
//! Fields and names follow Linux `struct ib_sig_attrs` and `struct ib_t10_dif_domain`; see [`super`] for what is added.

use t10pi::{Checks, Escape, Field, Format, PiContext, PiType, RefTags, Tags};
use thiserror::Error;

/// The protection of a transfer (Linux `struct ib_sig_attrs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SigAttrs {
    /// What lies in local memory.
    pub mem: SigDomain,
    /// What goes over the wire.
    pub wire: SigDomain,
    /// Fields of the incoming tuple that are compared. What is generated is never checked.
    pub check_mask: Checks,
    /// Fields that go from the incoming tuple to the outgoing one, where both domains are protected.
    pub copy_mask: CopyMask,
}

/// One side of a transfer (Linux `struct ib_sig_domain`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SigDomain {
    /// Data alone.
    None,
    /// Each block of data has a tuple.
    T10Dif(T10Dif),
}

/// T10-DIF attributes of a domain (Linux `struct ib_t10_dif_domain`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct T10Dif {
    /// Guard type, block size (Linux `pi_interval`), metadata of a block, storage tag.
    pub format: Format,
    /// State of the guard's checksum before the first byte; [`t10pi::Guard::seed`] unless the other side is as odd.
    pub guard_seed: u64,
    /// Application tag: generated, or expected.
    pub app_tag: u16,
    /// Bits of the application tag that are compared.
    pub apptag_check_mask: u16,
    /// Storage tag: generated, or expected under the format's mask.
    pub storage_tag: u64,
    /// Reference tag of the first block of the transfer; taken modulo its width.
    pub ref_tag: u64,
    /// The reference tag increases by one a block; otherwise it is the same in all.
    pub ref_remap: bool,
    /// Tuples with application tag FFFFh are not checked.
    pub app_escape: bool,
    /// With `app_escape`: only those whose reference tag is all ones as well are not.
    pub ref_escape: bool,
}

/// What of the incoming tuple is copied to the outgoing one; what is not is generated anew.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyMask {
    /// What both domains say the same of: the guard of one type and seed, tags of one value.
    #[default]
    Equal,
    /// These fields.
    Fields(Checks),
}

impl SigAttrs {
    /// Those of data that comes with the tuples which `context` describes, to be checked and kept as they are.
    #[must_use]
    pub fn verify(context: &PiContext) -> Self {
        let domain = SigDomain::T10Dif(T10Dif::of(context));
        Self { mem: domain, wire: domain, check_mask: context.checks(), copy_mask: CopyMask::Equal }
    }

    /// Those of data that comes without tuples to memory that has those which `context` describes.
    #[must_use]
    pub fn insert(context: &PiContext) -> Self {
        let mem = SigDomain::T10Dif(T10Dif::of(context));
        Self { mem, wire: SigDomain::None, check_mask: Checks::NONE, copy_mask: CopyMask::Equal }
    }
}

impl T10Dif {
    /// The attributes of the tuples that `context` describes, which honours the escape values of its type.
    #[must_use]
    pub fn of(context: &PiContext) -> Self {
        Self::of_type(*context.format(), context.pi_type(), context.tags())
    }

    /// The attributes that a protection type gives to a transfer (rw-contexts 2.6.2: types 1 and 2 count their reference tags and
    /// escape by application tag, type 3 neither counts nor escapes without a reference tag of all ones).
    #[must_use]
    pub const fn of_type(format: Format, pi_type: PiType, tags: Tags) -> Self {
        let counts = !matches!(pi_type, PiType::Type3);
        Self {
            format,
            guard_seed: format.guard().seed(),
            app_tag: tags.app_tag,
            apptag_check_mask: tags.app_tag_mask,
            storage_tag: tags.storage_tag,
            ref_tag: tags.ref_tag,
            ref_remap: counts,
            app_escape: true,
            ref_escape: !counts,
        }
    }

    /// The description of this domain's tuples, with these fields checked.
    pub(super) fn context(&self, checks: Checks) -> Result<PiContext, SigError> {
        let bits = self.format.guard().size() * 8;
        if self.guard_seed > u64::MAX >> (64 - bits) {
            return Err(SigError::GuardSeed { seed: self.guard_seed, bits });
        }
        let tags = Tags {
            app_tag: self.app_tag,
            app_tag_mask: self.apptag_check_mask,
            storage_tag: self.storage_tag,
            ref_tag: self.ref_tag,
        };
        let context = PiContext::new(&self.format, PiType::Type1, checks, tags)?;
        let escape = match (self.app_escape, self.ref_escape) {
            (false, _) => Escape::Ignored,
            (true, false) => Escape::AppTag,
            (true, true) => Escape::AppAndRefTag,
        };
        let ref_tags = if self.ref_remap { RefTags::Counting } else { RefTags::Constant };
        Ok(context.with_escape(escape).with_ref_tags(ref_tags).with_guard_seed(self.guard_seed))
    }
}

/// Why attributes are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SigError {
    /// Neither domain is protected: the transfer needs no signature.
    #[error("neither domain is protected")]
    NoProtection,
    /// The domains differ in this.
    #[error("the {0} of the memory and the wire domain differ")]
    Shape(&'static str),
    /// The Internet checksum is a guard of memory alone.
    #[error("the Internet checksum is no guard of a wire")]
    WireGuard,
    /// The guard's checksum has fewer bits.
    #[error("guard seed {seed:#x} is wider than {bits} bits")]
    GuardSeed {
        /// What was asked for.
        seed: u64,
        /// Width of the guard.
        bits: usize,
    },
    /// A guard of another type or seed can't be copied.
    #[error("guards of two kinds can't be copied from one domain to the other")]
    CopyGuard,
    /// A tag does not fit its field.
    #[error(transparent)]
    Tags(#[from] t10pi::ContextError),
    /// A list does not hold whole blocks, or not one metadata for each.
    #[error(
        "{data} bytes of data and {protection} of protection information are no blocks of {block} and {metadata}"
    )]
    Lengths {
        /// Bytes of the data list.
        data: u64,
        /// Bytes of the protection list.
        protection: u64,
        /// Bytes of a block's data.
        block: u32,
        /// Bytes of a block's metadata in memory.
        metadata: u16,
    },
    /// More bytes than a message has.
    #[error("{0} bytes are more than a message has")]
    TooLong(u64),
}

impl SigError {
    /// The errno that Linux gives for attributes that a device doesn't take, positive.
    #[must_use]
    pub fn errno(self) -> i32 {
        libc::EINVAL
    }
}

/// Tuple bytes of each field, as Linux masks have them: one bit a byte of the 8-byte tuple.
const MASKS: [(Field, u8); 3] = [(Field::Guard, 0xC0), (Field::AppTag, 0x30), (Field::RefTag, 0x0F)];

/// The fields of which a mask of tuple bytes (Linux `check_mask`) names any.
#[must_use]
pub fn check_mask(bits: u8) -> Checks {
    let any = |field| MASKS.iter().any(|(of, mask)| *of == field && bits & mask != 0);
    Checks {
        guard: any(Field::Guard),
        app_tag: any(Field::AppTag),
        storage_tag: false,
        ref_tag: any(Field::RefTag),
    }
}

/// The mask of tuple bytes (Linux `check_mask`) of some fields of an 8-byte tuple. A storage tag has no bytes of its own.
#[must_use]
pub fn check_mask_bits(fields: Checks) -> u8 {
    let named = |field| match field {
        Field::Guard => fields.guard,
        Field::AppTag => fields.app_tag,
        Field::RefTag => fields.ref_tag,
        Field::StorageTag => false,
    };
    MASKS.iter().filter(|(field, _)| named(*field)).fold(0, |bits, (_, mask)| bits | mask)
}
