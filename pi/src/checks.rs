//! What a transfer's protection consists of: the protection type, the fields to check, the tag values, and whether
//! the escape value counts. Plain values without behaviour of their own; [`PiContext`](crate::PiContext) applies them.

/// The protection type of a namespace or logical unit. "Type 0" is the absence of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PiType {
    /// The reference tag is the low bits of the block's address and is checked.
    Type1,
    /// The reference tag starts anywhere, counts up by one a block, and is checked.
    Type2,
    /// The reference tag is opaque: it does not count and is never checked.
    Type3,
}

impl PiType {
    /// 1, 2 or 3.
    pub const fn number(self) -> u8 {
        match self {
            Self::Type1 => 1,
            Self::Type2 => 2,
            Self::Type3 => 3,
        }
    }

    /// The type of a number; `None` for 0, which is no protection, and for those that do not exist.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            1 => Some(Self::Type1),
            2 => Some(Self::Type2),
            3 => Some(Self::Type3),
            _ => None,
        }
    }
}

/// Which fields are checked (NVMe PRCHK and STC). What a format or type has not is ignored: the storage tag without
/// storage tag bits, the reference tag without reference tag bits or with type 3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Checks {
    /// Recompute and compare the guard.
    pub guard: bool,
    /// Compare the application tag under [`Tags::app_tag_mask`].
    pub app_tag: bool,
    /// Compare the storage tag under the format's mask.
    pub storage_tag: bool,
    /// Compare the reference tag.
    pub ref_tag: bool,
}

impl Checks {
    /// No check at all.
    pub const NONE: Self = Self { guard: false, app_tag: false, storage_tag: false, ref_tag: false };
    /// Every check that format and type allow.
    pub const ALL: Self = Self { guard: true, app_tag: true, storage_tag: true, ref_tag: true };
}

/// The tag values of a transfer: inserted when tuples are generated, expected when they are verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Tags {
    /// Application tag.
    pub app_tag: u16,
    /// Bits of the application tag that are compared; generation ignores it.
    pub app_tag_mask: u16,
    /// Storage tag, within the format's width.
    pub storage_tag: u64,
    /// Reference tag of the first block; taken modulo the width of the format's reference tag.
    pub ref_tag: u64,
}

/// Whether the reference tag counts from block to block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefTags {
    /// It increases by one a block, modulo its width.
    Counting,
    /// It is the same in every block.
    Constant,
}

/// Whether a stored escape value (application tag FFFFh; for type 3 also a reference tag of all ones) switches off
/// all checks of its block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Escape {
    /// It does: NVMe in every direction, SCSI reads, and SCSI writes to a unit with `NO_PI_CHK` = 1.
    #[default]
    Honoured,
    /// It does not: SCSI writes to a unit with `NO_PI_CHK` = 0.
    Ignored,
    /// An application tag of FFFFh does, whatever the type (RDMA signatures, `app_escape`).
    AppTag,
    /// It does together with a reference tag of all ones, whatever the type (RDMA signatures, `ref_escape`).
    AppAndRefTag,
}
