//! Kinds of damage: what each does to the blocks of a command, and what the standard says must follow.
//!
//! What follows is told by which fields of which block are wrong then, in words of the standard ([`Damage::symptoms`]);
//! [`expect`] turns it into the first check that fails. A test holds it against [`Format::judge`], which looks at the bytes.

use fastrand::Rng;

use super::format::{Format, Guard};
use super::oracle::{Checks, Field, Tags, low};

/// Blocks of a command.
pub(crate) const BLOCKS: usize = 3;
/// The block that is damaged, where one is.
const HIT: usize = 1;
/// First block of a command.
pub(crate) const SLBA: u64 = 13;
/// How far away blocks are that come to the wrong place.
const AWAY: u64 = 37;

/// Why damage passes all checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    TypeZero,
    Stale,
    SameTags,
    NoRefTag,
    Escaped,
    Masked,
    Multiple,
    Agrees,
    Unasked,
    MadeAfter,
    Stripped,
}

impl Reason {
    /// As README says it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::TypeZero => "type 0 checks nothing",
            Self::Stale => "an old block is as valid as the new one",
            Self::SameTags => "without storage tag nothing tells volumes apart",
            Self::NoRefTag => "no reference tag to check (type 3, or the storage tag takes its bits)",
            Self::Escaped => "escaped (application tag FFFFh; in type 3 a reference tag of all ones, too)",
            Self::Masked => "the mask leaves the bit out",
            Self::Multiple => "a multiple of its polynomial does not change a guard",
            Self::Agrees => "the guard was made after the damage",
            Self::Unasked => "the command does not ask for the check",
            Self::MadeAfter => "the target makes the tuple after the damage",
            Self::Stripped => "the host asked for data without tuples",
        }
    }
}

/// What must become of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// This check fails at this block.
    Caught {
        block: usize,
        field: Field,
    },
    Passes(Reason),
}

/// The blocks of a command as they should be, and blocks that may come in their place.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) tags: Tags,
    /// What is written or read.
    pub(crate) fresh: Vec<Vec<u8>>,
    /// What was there before.
    pub(crate) stale: Vec<Vec<u8>>,
    /// Blocks of other addresses, with their tags.
    away: Vec<Vec<u8>>,
    /// The same blocks of a volume with another storage tag, if there are any.
    foreign: Vec<Vec<u8>>,
}

impl Scene {
    pub(crate) fn new(format: &Format) -> Self {
        let mut rng = Rng::with_seed(format.number as u64);
        let tags = tags(format);
        let distance =
            if format.protection.is_some_and(|protection| protection.pi_type == 3) { 0 } else { AWAY };
        let away = Tags { first_ref: tags.first_ref.wrapping_add(distance), ..tags };
        let foreign = Tags { storage: !tags.storage & storage_bits(format), ..tags };
        let mut blocks = |tags: &Tags| {
            (0..BLOCKS).map(|index| format.seal(&payload(format, &mut rng), tags, index)).collect()
        };
        Self {
            fresh: blocks(&tags),
            stale: blocks(&tags),
            away: blocks(&away),
            foreign: blocks(&foreign),
            tags,
        }
    }
}

/// The tags of commands to a format: type 1 starts with the address, type 2 just before its reference tag wraps, type 3
/// with anything.
fn tags(format: &Format) -> Tags {
    let first_ref = format.protection.map_or(0, |protection| {
        let all = low(protection.ref_bits());
        match protection.pi_type {
            1 => SLBA & all,
            2 => all.saturating_sub(1),
            _ => 9 & all,
        }
    });
    let storage = 0xa5c3_96e1_5a3c_691e & storage_bits(format);
    Tags { app: 0x1234, app_mask: 0xfff0, storage, first_ref }
}

fn storage_bits(format: &Format) -> u64 {
    format.protection.map_or(0, |protection| low(protection.storage_bits))
}

/// Data of a block and metadata before its tuple.
fn payload(format: &Format, rng: &mut Rng) -> Vec<u8> {
    std::iter::repeat_with(|| rng.u8(..)).take(format.block + format.leading()).collect()
}

/// A kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Damage {
    DataBit,
    DataTwoBits,
    ShortBurst,
    Polynomial,
    LongBurst,
    Garbage,
    MetadataBit,
    GuardBit,
    AppBit,
    AppBitMasked,
    StorageBit,
    StorageBitMasked,
    RefBit,
    AppWrong,
    RefWrong,
    Foreign,
    Away,
    Twice,
    Swapped,
    SwappedData,
    SwappedTuples,
    Stale,
    StaleApp,
    StaleData,
    StaleMetadata,
    TornInside,
    TornBetween,
    Unwritten,
    Zeroes,
    Ones,
    EscapedByApp,
    EscapedByBoth,
    Agreeing,
    TwoBlocks,
    AllFields,
    EarlierTag,
}

impl Damage {
    pub(crate) const ALL: [Self; 36] = [
        Self::DataBit,
        Self::DataTwoBits,
        Self::ShortBurst,
        Self::Polynomial,
        Self::LongBurst,
        Self::Garbage,
        Self::MetadataBit,
        Self::GuardBit,
        Self::AppBit,
        Self::AppBitMasked,
        Self::StorageBit,
        Self::StorageBitMasked,
        Self::RefBit,
        Self::AppWrong,
        Self::RefWrong,
        Self::Foreign,
        Self::Away,
        Self::Twice,
        Self::Swapped,
        Self::SwappedData,
        Self::SwappedTuples,
        Self::Stale,
        Self::StaleApp,
        Self::StaleData,
        Self::StaleMetadata,
        Self::TornInside,
        Self::TornBetween,
        Self::Unwritten,
        Self::Zeroes,
        Self::Ones,
        Self::EscapedByApp,
        Self::EscapedByBoth,
        Self::Agreeing,
        Self::TwoBlocks,
        Self::AllFields,
        Self::EarlierTag,
    ];

    /// As README says it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::DataBit => "a bit of the data",
            Self::DataTwoBits => "two bits of the data",
            Self::ShortBurst => "a burst in the data as long as the guard",
            Self::Polynomial => "a burst one bit longer that is the guard's polynomial",
            Self::LongBurst => "a burst of 64 bytes in the data",
            Self::Garbage => "all data of a block replaced",
            Self::MetadataBit => "a bit of the metadata before the tuple",
            Self::GuardBit => "a bit of the guard",
            Self::AppBit => "a bit of the application tag",
            Self::AppBitMasked => "a bit of the application tag outside its mask",
            Self::StorageBit => "a bit of the storage tag",
            Self::StorageBitMasked => "a bit of the storage tag outside its mask",
            Self::RefBit => "a bit of the reference tag",
            Self::AppWrong => "another application tag",
            Self::RefWrong => "reference tags one too high",
            Self::Foreign => "blocks of another volume at the same address",
            Self::Away => "a misdirected write: a block of another address",
            Self::Twice => "a block where its successor belongs",
            Self::Swapped => "two blocks swapped",
            Self::SwappedData => "their data swapped, not their metadata",
            Self::SwappedTuples => "their metadata swapped, not their data",
            Self::Stale => "a lost write: the old block",
            Self::StaleApp => "the same, where each write has an application tag of its own",
            Self::StaleData => "a torn write: old data, new metadata",
            Self::StaleMetadata => "a torn write: new data, old metadata",
            Self::TornInside => "a torn write: half of the data is old",
            Self::TornBetween => "a torn write: old blocks behind new ones",
            Self::Unwritten => "a lost write: a block that nobody ever wrote",
            Self::Zeroes => "a block and its metadata of zeroes",
            Self::Ones => "a block and its metadata of ones",
            Self::EscapedByApp => "damaged data, application tag FFFFh",
            Self::EscapedByBoth => "the same, and a reference tag of all ones",
            Self::Agreeing => "damaged data with a guard made of it",
            Self::TwoBlocks => "two damaged blocks: the first is named",
            Self::AllFields => "a block with all fields wrong: the guard is named",
            Self::EarlierTag => "a wrong reference tag before a wrong guard",
        }
    }

    /// The blocks after the damage; `None` where a format has nothing to be damaged so.
    pub(crate) fn apply(self, format: &Format, scene: &Scene) -> Option<Vec<Vec<u8>>> {
        let mut rng = Rng::with_seed((format.number * Self::ALL.len() + self as usize) as u64);
        let mut blocks = scene.fresh.clone();
        let bits = format.block * 8;
        let tuple = Bits::of(format);
        match self {
            Self::DataBit => flip(&mut blocks[HIT], rng.usize(..bits)),
            Self::DataTwoBits => {
                let first = rng.usize(..bits);
                flip(&mut blocks[HIT], first);
                flip(&mut blocks[HIT], (first + rng.usize(1..bits)) % bits);
            }
            Self::ShortBurst => {
                let length = guard_bits(format.protection.map_or(Guard::Crc16, |p| p.guard));
                let first = rng.usize(..=bits - length);
                flip(&mut blocks[HIT], first);
                flip(&mut blocks[HIT], first + length - 1);
                (first + 1..first + length - 1)
                    .filter(|_| rng.bool())
                    .collect::<Vec<_>>()
                    .into_iter()
                    .for_each(|bit| flip(&mut blocks[HIT], bit));
            }
            Self::Polynomial => {
                let guard = format.protection.map_or(Guard::Crc16, |protection| protection.guard);
                let terms = terms(guard);
                let first = rng.usize(..bits - guard_bits(guard));
                for bit in terms.into_iter().map(|term| first + term) {
                    // In the order in which the guard takes bits: crc16 the highest of a byte first, others the lowest.
                    let place = if guard == Guard::Crc16 { bit } else { bit / 8 * 8 + 7 - bit % 8 };
                    flip(&mut blocks[HIT], place);
                }
            }
            Self::LongBurst => {
                let first = rng.usize(..=format.block - 64);
                blocks[HIT][first..first + 64].iter_mut().for_each(|byte| *byte ^= rng.u8(1..));
            }
            Self::Garbage => rng.fill(&mut blocks[HIT][..format.block]),
            Self::MetadataBit => {
                let leading = Some(format.leading()).filter(|leading| *leading > 0)?;
                flip(&mut blocks[HIT], bits + rng.usize(..leading * 8));
            }
            Self::GuardBit => flip(&mut blocks[HIT], tuple?.guard(&mut rng)),
            Self::AppBit => flip(&mut blocks[HIT], tuple?.app(&mut rng, scene.tags.app_mask)),
            Self::AppBitMasked => flip(&mut blocks[HIT], tuple?.app(&mut rng, !scene.tags.app_mask)),
            Self::StorageBit => flip(&mut blocks[HIT], tuple?.storage(&mut rng, true)?),
            Self::StorageBitMasked => flip(&mut blocks[HIT], tuple?.storage(&mut rng, false)?),
            Self::RefBit => flip(&mut blocks[HIT], tuple?.reference(&mut rng)?),
            Self::AppWrong => {
                let app = tuple?.app_byte();
                blocks[HIT][app..app + 2].copy_from_slice(&0x4321_u16.to_be_bytes());
            }
            Self::RefWrong => {
                let protection = format.protection.as_ref()?;
                let bits = Some(protection.ref_bits()).filter(|bits| *bits > 0)?;
                for block in &mut blocks {
                    edit(format, block, |tuple| {
                        tuple.reference = tuple.reference.wrapping_add(1) & low(bits);
                    });
                }
            }
            Self::Foreign => blocks.clone_from(&scene.foreign),
            Self::Away => blocks[HIT].clone_from(&scene.away[HIT]),
            Self::Twice => blocks[HIT] = blocks[HIT - 1].clone(),
            Self::Swapped => blocks.swap(HIT, HIT + 1),
            Self::SwappedData => exchange(&mut blocks, 0..format.block),
            Self::SwappedTuples => {
                tuple?;
                exchange(&mut blocks, format.block..format.stride());
            }
            Self::Stale => blocks[HIT].clone_from(&scene.stale[HIT]),
            Self::StaleApp => {
                tuple?;
                blocks[HIT].clone_from(&scene.stale[HIT]);
                edit(format, &mut blocks[HIT], |tuple| tuple.app ^= 0x0100);
            }
            Self::StaleData => {
                blocks[HIT][..format.block].copy_from_slice(&scene.stale[HIT][..format.block]);
            }
            Self::StaleMetadata => {
                tuple?;
                blocks[HIT][format.block..].copy_from_slice(&scene.stale[HIT][format.block..]);
            }
            Self::TornInside => {
                let half = format.block / 2..format.block;
                blocks[HIT][half.clone()].copy_from_slice(&scene.stale[HIT][half]);
            }
            Self::TornBetween => blocks[HIT..].clone_from_slice(&scene.stale[HIT..]),
            Self::Unwritten => {
                let tuple = tuple.map_or_else(|| format.stride(), |tuple| tuple.tuple / 8);
                blocks[HIT][..tuple].fill(0);
                blocks[HIT][tuple..].fill(0xff);
            }
            Self::Zeroes => blocks[HIT].fill(0),
            Self::Ones => blocks[HIT].fill(0xff),
            Self::EscapedByApp => {
                flip(&mut blocks[HIT], rng.usize(..bits));
                tuple?;
                edit(format, &mut blocks[HIT], |tuple| tuple.app = 0xffff);
            }
            Self::EscapedByBoth => {
                flip(&mut blocks[HIT], rng.usize(..bits));
                let all = low(format.protection?.ref_bits());
                edit(format, &mut blocks[HIT], |tuple| (tuple.app, tuple.reference) = (0xffff, all));
            }
            Self::Agreeing => {
                tuple?;
                flip(&mut blocks[HIT], rng.usize(..bits));
                let payload = blocks[HIT][..format.block + format.leading()].to_vec();
                blocks[HIT] = format.seal(&payload, &scene.tags, HIT);
            }
            Self::TwoBlocks => {
                flip(&mut blocks[HIT + 1], rng.usize(..bits));
                flip(&mut blocks[HIT], rng.usize(..bits));
            }
            Self::AllFields => {
                let tuple = tuple?;
                let places = [
                    Some(tuple.guard(&mut rng)),
                    Some(tuple.app(&mut rng, scene.tags.app_mask)),
                    tuple.storage(&mut rng, true),
                    tuple.reference(&mut rng),
                ];
                places.into_iter().flatten().for_each(|bit| flip(&mut blocks[HIT], bit));
            }
            Self::EarlierTag => {
                let tuple = tuple?;
                flip(&mut blocks[HIT], tuple.reference(&mut rng)?);
                flip(&mut blocks[HIT + 1], tuple.guard(&mut rng));
            }
        }
        Some(blocks)
    }

    /// Which fields are wrong then, block after block; where none is, why.
    fn symptoms(self, format: &Format) -> Result<Vec<(usize, Vec<Field>)>, Reason> {
        use Field::{App, Ref, Storage};
        let protection = format.protection.as_ref().ok_or(Reason::TypeZero)?;
        let (refs, storage) = (protection.checks_refs(), protection.storage_bits > 0);
        let at = |fields: &[Field]| vec![(HIT, fields.to_vec())];
        let reference = |fields: &[Field]| {
            let mut fields = fields.to_vec();
            fields.extend(refs.then_some(Ref));
            if fields.is_empty() { Err(Reason::NoRefTag) } else { Ok(at(&fields)) }
        };
        let tags = |fields: &[Field]| {
            let fields = fields.iter().copied().chain([App]).chain(storage.then_some(Storage));
            reference(&fields.collect::<Vec<_>>())
        };
        let all_ones_escape = protection.pi_type != 3 || protection.ref_bits() == 0;
        match self {
            Self::DataBit
            | Self::DataTwoBits
            | Self::ShortBurst
            | Self::LongBurst
            | Self::Garbage
            | Self::MetadataBit
            | Self::GuardBit
            | Self::SwappedData
            | Self::StaleData
            | Self::StaleMetadata
            | Self::TornInside => Ok(at(&[Field::Guard])),
            Self::AppBit | Self::AppWrong | Self::StaleApp => Ok(at(&[App])),
            Self::AppBitMasked | Self::StorageBitMasked => Err(Reason::Masked),
            Self::StorageBit => Ok(at(&[Storage])),
            Self::RefBit | Self::Away | Self::Twice | Self::Swapped => reference(&[]),
            Self::RefWrong if refs => Ok(vec![(0, vec![Ref])]),
            Self::RefWrong => Err(Reason::NoRefTag),
            Self::Foreign if storage => Ok(vec![(0, vec![Storage])]),
            Self::Foreign => Err(Reason::SameTags),
            Self::SwappedTuples => reference(&[Field::Guard]),
            Self::Stale | Self::TornBetween => Err(Reason::Stale),
            // The crc16 of zeroes is zero.
            Self::Zeroes if protection.guard == Guard::Crc16 => tags(&[]),
            Self::Zeroes | Self::AllFields => tags(&[Field::Guard]),
            Self::Polynomial => Err(Reason::Multiple),
            Self::Unwritten | Self::Ones | Self::EscapedByBoth => Err(Reason::Escaped),
            Self::EscapedByApp if all_ones_escape => Err(Reason::Escaped),
            Self::EscapedByApp => Ok(at(&[Field::Guard, App])),
            Self::Agreeing => Err(Reason::Agrees),
            Self::TwoBlocks => Ok(vec![(HIT, vec![Field::Guard]), (HIT + 1, vec![Field::Guard])]),
            Self::EarlierTag => {
                let guard = (HIT + 1, vec![Field::Guard]);
                Ok(if refs { vec![(HIT, vec![Ref]), guard] } else { vec![guard] })
            }
        }
    }
}

/// What the standard says of a command with these checks to blocks with this damage.
pub(crate) fn expect(damage: Damage, format: &Format, checks: Checks) -> Verdict {
    match damage.symptoms(format) {
        Err(reason) => Verdict::Passes(reason),
        Ok(symptoms) => symptoms
            .into_iter()
            .flat_map(|(block, fields)| fields.into_iter().map(move |field| (block, field)))
            .find(|(_, field)| checks.has(*field))
            .map_or(Verdict::Passes(Reason::Unasked), |(block, field)| Verdict::Caught { block, field }),
    }
}

/// Bits of a guard.
fn guard_bits(guard: Guard) -> usize {
    match guard {
        Guard::Crc16 => 16,
        Guard::Crc32c => 32,
        Guard::Crc64 => 64,
    }
}

/// The bits of a guard's polynomial, the highest power first.
fn terms(guard: Guard) -> Vec<usize> {
    let polynomial: u64 = match guard {
        Guard::Crc16 => 0x8bb7,
        Guard::Crc32c => 0x1edc_6f41,
        Guard::Crc64 => 0xad93_d235_94c9_3659,
    };
    let bits = guard_bits(guard);
    let rest = (0..bits).filter(|power| polynomial >> power & 1 == 1).map(|power| bits - power);
    std::iter::once(0).chain(rest).collect()
}

fn flip(block: &mut [u8], bit: usize) {
    block[bit / 8] ^= 0x80 >> (bit % 8);
}

/// Changes fields of a block's tuple.
fn edit(format: &Format, block: &mut [u8], change: impl FnOnce(&mut super::oracle::Tuple)) {
    let Some(protection) = &format.protection else { return };
    let at = format.stride() - protection.tuple_size();
    let mut tuple = protection.parse(&block[at..]);
    change(&mut tuple);
    block[at..].copy_from_slice(&protection.emit(&tuple));
}

/// Exchanges these bytes of two blocks.
fn exchange(blocks: &mut [Vec<u8>], bytes: std::ops::Range<usize>) {
    let (one, other) = blocks.split_at_mut(HIT + 1);
    one[HIT][bytes.clone()].swap_with_slice(&mut other[0][bytes]);
}

/// Where the fields of a tuple are in a block, in bits, the highest bit of the first byte first.
#[derive(Clone, Copy)]
struct Bits {
    tuple: usize,
    guard: usize,
    storage: usize,
    storage_mask: u64,
    reference: usize,
}

impl Bits {
    fn of(format: &Format) -> Option<Self> {
        let protection = format.protection.as_ref()?;
        Some(Self {
            tuple: (format.stride() - protection.tuple_size()) * 8,
            guard: guard_bits(protection.guard),
            storage: protection.storage_bits as usize,
            storage_mask: protection.storage_mask,
            reference: protection.ref_bits() as usize,
        })
    }

    fn guard(&self, rng: &mut Rng) -> usize {
        self.tuple + rng.usize(..self.guard)
    }

    fn app_byte(&self) -> usize {
        (self.tuple + self.guard) / 8
    }

    /// A bit of the application tag that is in the mask.
    fn app(&self, rng: &mut Rng, mask: u16) -> usize {
        let bits: Vec<usize> = (0..16).filter(|bit| mask >> (15 - bit) & 1 == 1).collect();
        self.tuple + self.guard + bits[rng.usize(..bits.len())]
    }

    /// A bit of the storage tag that is compared, or one that isn't.
    fn storage(&self, rng: &mut Rng, compared: bool) -> Option<usize> {
        let last = self.storage.checked_sub(1)?;
        let fits = |bit: &usize| (self.storage_mask >> (last - bit) & 1 == 1) == compared;
        let bits: Vec<usize> = (0..self.storage).filter(fits).collect();
        let bit = *bits.get(rng.usize(..bits.len().max(1)))?;
        Some(self.tuple + self.guard + 16 + bit)
    }

    fn reference(&self, rng: &mut Rng) -> Option<usize> {
        (self.reference > 0)
            .then(|| self.tuple + self.guard + 16 + self.storage + rng.usize(..self.reference))
    }
}
