//! `intact-pi verify` and `intact-pi inspect`: what an image's protection information says of it.

use std::fmt;
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use t10pi::{BlockReport, Field};

use super::Outcome;
use super::checks::CheckArgs;
use super::counted::Counted;
use super::error::PiError;
use super::format::{FormatArgs, LayoutName, TagArgs};
use super::image::Image;
use super::progress::Progress;
use super::source::Access;
use crate::host::size::parse_integer;

/// Arguments of `intact-pi verify`.
#[derive(Debug, Args)]
pub struct Verify {
    /// The image, a file or a block device
    #[arg(long)]
    pub file: PathBuf,
    /// Where its protection information is
    #[arg(long, value_enum, default_value_t)]
    pub layout: LayoutName,
    #[command(flatten)]
    #[allow(missing_docs, reason = "the flags say it")]
    pub format: FormatArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "the flags say it")]
    pub tags: TagArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "the flags say it")]
    pub checks: CheckArgs,
    /// First block
    #[arg(long, value_parser = parse_integer, default_value = "0")]
    pub start_block: u64,
    /// Number of blocks, at least 1 (default: all)
    #[arg(long, value_parser = parse_count)]
    pub block_count: Option<u64>,
    /// Failing blocks that are printed; all are counted
    #[arg(long, default_value_t = 10)]
    pub errors: u64,
}

/// How many blocks are how.
#[derive(Debug)]
struct Counts {
    /// The fields that are compared.
    compared: Vec<Field>,
    blocks: u64,
    escaped: u64,
    failing: u64,
    /// Blocks that fail, by field.
    fields: [u64; 4],
}

impl Counts {
    fn add(&mut self, report: &BlockReport) {
        self.failing += u64::from(!report.is_ok());
        for mismatch in report.mismatches() {
            self.fields[mismatch.field as usize] += 1;
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", Counted(self.blocks, "block"))?;
        if self.compared.is_empty() {
            return write!(f, "0 good, {} not checked (nothing to compare), 0 failing", self.blocks);
        }
        let good = self.blocks - self.escaped - self.failing;
        write!(f, "{good} good, {} not checked (escape value), {} failing (", self.escaped, self.failing)?;
        for (index, field) in
            [Field::Guard, Field::AppTag, Field::StorageTag, Field::RefTag].iter().enumerate()
        {
            let comma = if index > 0 { ", " } else { "" };
            match self.compared.contains(field) {
                true => write!(f, "{comma}{field} {}", self.fields[index])?,
                false => write!(f, "{comma}{field} not compared")?,
            }
        }
        f.write_str(")")
    }
}

pub(super) fn verify(arguments: &Verify, out: &mut impl Write) -> Result<Outcome, PiError> {
    let comparison = arguments.checks.comparison(&arguments.tags)?;
    let image = Image::open(&arguments.file, arguments.layout, &arguments.format, Access::Read)?;
    let range = image.range(arguments.start_block, arguments.block_count)?;
    let block_size = u64::from(image.format.block_size());
    let progress = Progress::new((range.end - range.start) * block_size);

    let compared = comparison.fields(&image.format, image.pi_type);
    let mut counts = Counts { compared, blocks: 0, escaped: 0, failing: 0, fields: [0; 4] };
    let mut lba = range.start;
    while lba < range.end {
        let count = image.chunk().min(range.end - lba);
        let blocks = image.read(lba, count)?;
        let pi = comparison.context(&arguments.tags, &image.format, image.pi_type, lba)?;
        // Most are good: the slow look is for chunks that are not.
        if blocks.verify(&pi).is_err() {
            let mut result = Ok(());
            blocks.inspect(&pi, |report| {
                counts.add(report);
                if !report.is_ok() && counts.failing <= arguments.errors && result.is_ok() {
                    result = failing(report, lba, out);
                }
            });
            // The rest may take long.
            result.and_then(|()| out.flush()).map_err(PiError::Output)?;
        }
        counts.blocks += count;
        counts.escaped += blocks.escaped(&pi);
        progress.add(count * block_size);
        lba += count;
    }
    drop(progress);
    image.unchanged()?;
    if arguments.errors > 0 && counts.failing > arguments.errors {
        let more = Counted(counts.failing - arguments.errors, "more block");
        let fail = if counts.failing - arguments.errors == 1 { "fails" } else { "fail" };
        writeln!(out, "and {more} that {fail}").map_err(PiError::Output)?;
    }
    writeln!(out, "{counts}").map_err(PiError::Output)?;
    Ok(if counts.failing == 0 { Outcome::Good } else { Outcome::Bad })
}

/// One line about a failing block.
fn failing(report: &BlockReport, first: u64, out: &mut impl Write) -> std::io::Result<()> {
    write!(out, "block {}:", first + report.block)?;
    for (index, mismatch) in report.mismatches().enumerate() {
        let comma = if index > 0 { "," } else { "" };
        write!(
            out,
            "{comma} {} is {:#x}, expected {:#x}",
            mismatch.field, mismatch.actual, mismatch.expected
        )?;
    }
    writeln!(out)
}

/// Arguments of `intact-pi inspect`.
#[derive(Debug, Args)]
pub struct Inspect {
    /// The image, a file or a block device
    #[arg(long)]
    pub file: PathBuf,
    /// Where its protection information is
    #[arg(long, value_enum, default_value_t)]
    pub layout: LayoutName,
    #[command(flatten)]
    #[allow(missing_docs, reason = "the flags say it")]
    pub format: FormatArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "the flags say it")]
    pub tags: TagArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "the flags say it")]
    pub checks: CheckArgs,
    /// First block
    #[arg(long, value_parser = parse_integer, default_value = "0")]
    pub start_block: u64,
    /// Number of blocks, at least 1 (default: 16, or what there is)
    #[arg(long, value_parser = parse_count)]
    pub block_count: Option<u64>,
}

pub(super) fn inspect(arguments: &Inspect, out: &mut impl Write) -> Result<Outcome, PiError> {
    /// What is shown when nobody says how much.
    const BLOCKS: u64 = 16;
    /// What is looked at before it is shown: a row takes more memory than a small block.
    const ROWS: u64 = 1024;
    let comparison = arguments.checks.comparison(&arguments.tags)?;
    let image = Image::open(&arguments.file, arguments.layout, &arguments.format, Access::Read)?;
    let left = image.blocks.saturating_sub(arguments.start_block);
    let count = arguments.block_count.unwrap_or_else(|| BLOCKS.min(left));
    let range = image.range(arguments.start_block, Some(count))?;
    let is_checked = !comparison.fields(&image.format, image.pi_type).is_empty();
    let digits = image.format.guard().size() * 2;
    let storage = image.format.storage_tag_bits() > 0;
    let mut lines = vec![format!(
        "{:>12}  {:<digits$}  {:<digits$}  {:<4}  {}{:<16}  state",
        "block",
        "guard",
        "computed",
        "app",
        if storage { "storage           " } else { "" },
        "reference",
    )];
    let mut lba = range.start;
    let mut outcome = Outcome::Good;
    while lba < range.end {
        let count = image.chunk().min(range.end - lba).min(ROWS);
        let blocks = image.read(lba, count)?;
        let pi = comparison.context(&arguments.tags, &image.format, image.pi_type, lba)?;
        blocks.inspect(&pi, |report| {
            if !report.is_ok() {
                outcome = Outcome::Bad;
            }
            lines.push(line(report, lba, digits, storage, is_checked));
        });
        for line in lines.drain(..) {
            writeln!(out, "{}", line.trim_end()).map_err(PiError::Output)?;
        }
        lba += count;
    }
    image.unchanged()?;
    Ok(outcome)
}

/// One row of the table.
fn line(report: &BlockReport, first: u64, digits: usize, storage: bool, is_checked: bool) -> String {
    let state = if !is_checked {
        "not checked (nothing to compare)".to_owned()
    } else if report.escaped {
        "not checked (escape value)".to_owned()
    } else if report.is_ok() {
        "good".to_owned()
    } else {
        let wrong: Vec<String> = report
            .mismatches()
            .map(|mismatch| match mismatch.field {
                Field::Guard => "guard wrong".to_owned(),
                field => format!("{field} is not {:#x}", mismatch.expected),
            })
            .collect();
        wrong.join(", ")
    };
    let stored = &report.stored;
    format!(
        "{:>12}  {:0digits$x}  {:0digits$x}  {:04x}  {}{:<16x}  {state}",
        first + report.block,
        stored.guard,
        report.expected.guard,
        stored.app_tag,
        if storage { format!("{:<16x}  ", stored.storage_tag) } else { String::new() },
        stored.ref_tag,
    )
}

/// Reads a number of blocks.
pub(super) fn parse_count(text: &str) -> Result<u64, String> {
    match parse_integer(text)? {
        0 => Err("it is at least 1".to_owned()),
        count => Ok(count),
    }
}
