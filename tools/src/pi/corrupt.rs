//! `intact-pi corrupt`: damage for drills, the same for the same seed.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fastrand::Rng;
use t10pi::{Checks, Format};

use super::Outcome;
use super::error::{PiError, system};
use super::format::{FormatArgs, LayoutName, TagArgs};
use super::image::{Access, Blocks, Image};
use crate::host::size::parse_integer;

/// A kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Any of the others
    Any,
    /// One bit of the data
    Bit,
    /// Up to 16 bits of the data in a row
    Burst,
    /// The second half of the data is something else
    Torn,
    /// The data is zero
    Zero,
    /// Two blocks with their metadata change places
    Swap,
    /// A bit of the guard
    Guard,
    /// A bit of the application tag
    AppTag,
    /// A bit of the reference tag
    RefTag,
}

/// All but [`Kind::Any`].
const KINDS: [Kind; 8] =
    [Kind::Bit, Kind::Burst, Kind::Torn, Kind::Zero, Kind::Swap, Kind::Guard, Kind::AppTag, Kind::RefTag];

/// Arguments of `intact-pi corrupt`.
#[derive(Debug, Args)]
pub struct Corrupt {
    /// The image, a file or a block device; it is changed
    #[arg(long)]
    pub file: PathBuf,
    /// Where its protection information is
    #[arg(long, value_enum, default_value_t)]
    pub layout: LayoutName,
    #[command(flatten)]
    #[allow(missing_docs, reason = "the flags say it")]
    pub format: FormatArgs,
    /// What is done
    #[arg(long, value_enum, default_value_t = Kind::Any)]
    pub kind: Kind,
    /// How many times
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    pub count: u64,
    /// The same seed does the same to the same image
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// First block that may be hit
    #[arg(long, value_parser = parse_integer, default_value = "0")]
    pub start_block: u64,
    /// Number of blocks that may be hit (default: all)
    #[arg(long, value_parser = parse_integer)]
    pub block_count: Option<u64>,
}

pub(super) fn corrupt(arguments: &Corrupt, out: &mut impl Write) -> Result<Outcome, PiError> {
    let image = Image::open(&arguments.file, arguments.layout, &arguments.format, Access::Write)?;
    let range = image.range(arguments.start_block, arguments.block_count)?;
    let blocks = range.end - range.start;
    // A swap takes two, and no block is hit twice: damage must not undo damage.
    let needed = arguments.count.saturating_mul(2);
    if needed > blocks {
        return Err(PiError::Flags(format!(
            "{blocks} blocks are too few for {} kinds of damage that don't meet: there must be {needed}",
            arguments.count
        )));
    }
    if arguments.kind == Kind::RefTag && image.format.ref_tag_bits() == 0 {
        return Err(PiError::Flags("this format has no reference tag".to_owned()));
    }
    let context = TagArgs::default().context(&image.format, image.pi_type, Checks::ALL, 0xFFFF, 0)?;
    let mut random = Rng::with_seed(arguments.seed);
    let mut hit = BTreeSet::new();
    let mut pick = |random: &mut Rng| loop {
        let lba = range.start + random.u64(0..blocks);
        if hit.insert(lba) {
            return lba;
        }
    };
    for _ in 0..arguments.count {
        let kind = choose(arguments.kind, &image.format, &mut random);
        let lba = pick(&mut random);
        let mut block = image.read(lba, 1)?;
        let escaped = block.escaped(&context) == 1;
        let done = if kind == Kind::Swap {
            let other = pick(&mut random);
            let there = image.read(other, 1)?;
            image.write(other, &block)?;
            block = there;
            format!("changed places with block {other}")
        } else {
            damage(kind, &mut block, &image.format, &mut random)
        };
        image.write(lba, &block)?;
        let remark = if escaped { " (it has the escape value: nobody checks it)" } else { "" };
        writeln!(out, "block {lba}: {done}{remark}")
            .map_err(system("write to", "standard output".as_ref()))?;
    }
    image.sync()?;
    Ok(Outcome::Good)
}

/// A kind that the format can have.
fn choose(kind: Kind, format: &Format, random: &mut Rng) -> Kind {
    loop {
        let chosen = if kind == Kind::Any { KINDS[random.usize(0..KINDS.len())] } else { kind };
        if chosen != Kind::RefTag || format.ref_tag_bits() > 0 {
            return chosen;
        }
    }
}

/// Damages one block and says how.
fn damage(kind: Kind, block: &mut Blocks, format: &Format, random: &mut Rng) -> String {
    let (data, md) = block.parts(format);
    let tuple = &mut md[format.tuple_offset()..format.tuple_offset() + format.tuple_size()];
    let guard = format.guard().size();
    match kind {
        Kind::Torn => {
            let half = data.len() / 2;
            // Something else in every byte, whatever was there.
            data[half..].iter_mut().for_each(|byte| *byte ^= random.u8(1..));
            format!("data from byte {half} on replaced")
        }
        Kind::Zero if data.iter().any(|byte| *byte != 0) => {
            data.fill(0);
            "data zeroed".to_owned()
        }
        Kind::Burst => {
            let length = random.usize(2..=16).min(data.len() * 8);
            let start = random.usize(0..=data.len() * 8 - length);
            for bit in start..start + length {
                if bit == start || bit == start + length - 1 || random.bool() {
                    flip(data, bit);
                }
            }
            format!("a burst of {length} bits from bit {} of byte {} of the data on", start % 8, start / 8)
        }
        Kind::Guard => flip_one(&mut tuple[..guard], "guard", random),
        Kind::AppTag => flip_one(&mut tuple[guard..guard + 2], "application tag", random),
        Kind::RefTag => {
            let bit = random.usize(0..usize::from(format.ref_tag_bits()));
            let at = tuple.len() - 1 - bit / 8;
            tuple[at] ^= 1 << (bit % 8);
            format!("bit {bit} of the reference tag flipped")
        }
        Kind::Bit | Kind::Zero | Kind::Swap | Kind::Any => flip_one(data, "data", random),
    }
}

fn flip_one(bytes: &mut [u8], what: &str, random: &mut Rng) -> String {
    let bit = random.usize(0..bytes.len() * 8);
    flip(bytes, bit);
    format!("bit {} of byte {} of the {what} flipped", bit % 8, bit / 8)
}

fn flip(bytes: &mut [u8], bit: usize) {
    bytes[bit / 8] ^= 1 << (bit % 8);
}
