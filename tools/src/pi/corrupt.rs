//! `intact-pi corrupt`: damage for drills, the same for the same seed.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fastrand::Rng;
use t10pi::{Checks, Format, PiType};

use super::Outcome;
use super::counted::Counted;
use super::error::PiError;
use super::format::{FormatArgs, LayoutName, TagArgs};
use super::image::{Blocks, Image};
use super::interrupt::Interrupt;
use super::source::Access;
use super::verify::parse_count;
use crate::host::size::parse_integer;

/// A kind of damage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Kind {
    /// Any of the others that this format has and this many blocks allow
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
    /// Number of blocks that may be hit, at least 1 (default: all)
    #[arg(long, value_parser = parse_count)]
    pub block_count: Option<u64>,
}

pub(super) fn corrupt(
    arguments: &Corrupt,
    interrupt: &Interrupt,
    out: &mut impl Write,
) -> Result<Outcome, PiError> {
    let image = Image::open(&arguments.file, arguments.layout, &arguments.format, Access::Write)?;
    let range = image.range(arguments.start_block, arguments.block_count)?;
    let blocks = range.end - range.start;
    // No block is hit twice: damage must not undo damage. A swap takes two.
    let takes = if arguments.kind == Kind::Swap { 2 } else { 1 };
    let needed = arguments.count * takes;
    if needed > blocks {
        let each = if takes == 2 { ", two for each swap" } else { ", one for each damage" };
        return Err(PiError::Flags(format!(
            "--count {} takes {}{each}, and there {} {blocks}",
            arguments.count,
            Counted(needed, "block"),
            if blocks == 1 { "is" } else { "are" },
        )));
    }
    if arguments.kind == Kind::RefTag && image.format.ref_tag_bits() == 0 {
        return Err(PiError::Flags("this format has no reference tag".to_owned()));
    }
    // What was done is said also when not all of it can be, and when nobody reads it all of it is done.
    let mut done = String::new();
    let damaged = damage_blocks(arguments, &image, range, interrupt, &mut done);
    let synced = image.sync();
    out.write_all(done.as_bytes()).map_err(PiError::Output)?;
    damaged.and(synced).map(|()| Outcome::Good)
}

/// Damages as many blocks as were asked for, and adds a line for each to `done` (which does not fail: it is a string).
fn damage_blocks(
    arguments: &Corrupt,
    image: &Image,
    range: std::ops::Range<u64>,
    interrupt: &Interrupt,
    done: &mut String,
) -> Result<(), PiError> {
    let context = TagArgs::default().context(&image.format, image.pi_type, Checks::ALL, 0xFFFF, 0)?;
    let mut random = Rng::with_seed(arguments.seed);
    let blocks = range.end - range.start;
    let mut hit = BTreeSet::new();
    for number in 0..arguments.count {
        if let Some(signal) = interrupt.signal() {
            let state = format!("{number} of {} done", arguments.count);
            return Err(PiError::Interrupted { signal, state });
        }
        // There must be a block left for each damage that is still to come.
        let may_swap = blocks - hit.len() as u64 > arguments.count - number;
        let kind = choose(arguments.kind, &image.format, may_swap, &mut random);
        let mut pick = |random: &mut Rng| loop {
            let lba = range.start + random.u64(0..blocks);
            if hit.insert(lba) {
                return lba;
            }
        };
        let lba = pick(&mut random);
        let mut block = image.read(lba, 1)?;
        let escaped = block.escaped(&context) == 1;
        let text = if kind == Kind::Swap {
            let other = pick(&mut random);
            let there = image.read(other, 1)?;
            image.write(other, &block).inspect_err(|_| {
                let _ = writeln!(done, "block {other}: written in part, perhaps");
            })?;
            block = there;
            format!("changed places with block {other}")
        } else {
            damage(kind, &mut block, &image.format, &mut random)
        };
        image.write(lba, &block).inspect_err(|_| {
            let _ = writeln!(done, "block {lba}: {text}, in part, perhaps");
        })?;
        let escapes = block.escaped(&context) == 1;
        let remark = remark(kind, &image.format, image.pi_type, escaped, escapes);
        let _ = writeln!(done, "block {lba}: {text}{remark}");
    }
    Ok(())
}

/// Why `intact-pi verify` will not find some damage.
fn remark(kind: Kind, format: &Format, pi_type: PiType, escaped: bool, escapes: bool) -> &'static str {
    let has_ref_tag = pi_type != PiType::Type3 && format.ref_tag_bits() > 0;
    match kind {
        _ if escaped && escapes => " (it has the escape value: nobody checks it)",
        Kind::AppTag if escapes => " (it has the escape value now: nobody checks it)",
        Kind::AppTag if !escaped => " (found with --app-tag alone)",
        Kind::RefTag | Kind::Swap if !has_ref_tag => {
            " (nobody checks reference tags in this format and type)"
        }
        _ => "",
    }
}

/// A kind that the format can have, and if need be without swaps.
fn choose(kind: Kind, format: &Format, may_swap: bool, random: &mut Rng) -> Kind {
    if kind != Kind::Any {
        return kind;
    }
    loop {
        match KINDS[random.usize(0..KINDS.len())] {
            Kind::RefTag if format.ref_tag_bits() == 0 => {}
            Kind::Swap if !may_swap => {}
            chosen => return chosen,
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
