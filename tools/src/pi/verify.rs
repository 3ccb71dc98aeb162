//! `intact-pi verify` and `intact-pi inspect`: what an image's protection information says of it.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use t10pi::{BlockReport, Field};

use super::Outcome;
use super::error::{PiError, system};
use super::format::{CheckArgs, FormatArgs, LayoutName, TagArgs};
use super::image::{Access, Image};
use super::progress::Progress;
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
    /// Number of blocks (default: all)
    #[arg(long, value_parser = parse_integer)]
    pub block_count: Option<u64>,
    /// Failing blocks that are printed; all are counted
    #[arg(long, default_value_t = 10)]
    pub errors: u64,
}

/// How many blocks are how.
#[derive(Debug, Default)]
struct Counts {
    blocks: u64,
    escaped: u64,
    failing: u64,
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

pub(super) fn verify(arguments: &Verify, out: &mut impl Write) -> Result<Outcome, PiError> {
    let image = Image::open(&arguments.file, arguments.layout, &arguments.format, Access::Read)?;
    let range = image.range(arguments.start_block, arguments.block_count)?;
    let (checks, mask) = arguments.checks.checks(&arguments.tags)?;
    let block_size = u64::from(image.format.block_size());
    let progress = Progress::new((range.end - range.start) * block_size);
    let written = |error| system("write to", "standard output".as_ref())(error);

    let mut counts = Counts::default();
    let mut lba = range.start;
    while lba < range.end {
        let count = image.chunk().min(range.end - lba);
        let blocks = image.read(lba, count)?;
        let pi = arguments.tags.context(&image.format, image.pi_type, checks, mask, lba)?;
        // Most are good: the slow look is for chunks that are not.
        if blocks.verify(&pi).is_err() {
            let mut result = Ok(());
            blocks.inspect(&pi, |report| {
                counts.add(report);
                if !report.is_ok() && counts.failing <= arguments.errors && result.is_ok() {
                    result = failing(report, lba, out);
                }
            });
            result.map_err(written)?;
        }
        counts.blocks += count;
        counts.escaped += blocks.escaped(&pi);
        progress.add(count * block_size);
        lba += count;
    }
    drop(progress);
    if counts.failing > arguments.errors {
        writeln!(out, "and {} more blocks that fail", counts.failing - arguments.errors).map_err(written)?;
    }
    let [guard, app, storage, reference] = counts.fields;
    writeln!(
        out,
        "{} blocks: {} good, {} not checked (escape value), {} failing (guard {guard}, application tag {app}, \
         storage tag {storage}, reference tag {reference})",
        counts.blocks,
        counts.blocks - counts.escaped - counts.failing,
        counts.escaped,
        counts.failing,
    )
    .map_err(written)?;
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
    /// Number of blocks (default: 16, or what there is)
    #[arg(long, value_parser = parse_integer)]
    pub block_count: Option<u64>,
}

pub(super) fn inspect(arguments: &Inspect, out: &mut impl Write) -> Result<Outcome, PiError> {
    const BLOCKS: u64 = 16;
    let image = Image::open(&arguments.file, arguments.layout, &arguments.format, Access::Read)?;
    let left = image.blocks.saturating_sub(arguments.start_block);
    let count = arguments.block_count.unwrap_or_else(|| BLOCKS.min(left));
    let range = image.range(arguments.start_block, Some(count))?;
    let (checks, mask) = arguments.checks.checks(&arguments.tags)?;
    let mut lines = Vec::new();
    let digits = image.format.guard().size() * 2;
    let storage = image.format.storage_tag_bits() > 0;
    lines.push(format!(
        "{:>12}  {:<digits$}  {:<digits$}  {:<4}  {}{:<16}  state",
        "block",
        "guard",
        "computed",
        "app",
        if storage { "storage           " } else { "" },
        "reference",
    ));
    let mut lba = range.start;
    let mut outcome = Outcome::Good;
    while lba < range.end {
        let count = image.chunk().min(range.end - lba);
        let blocks = image.read(lba, count)?;
        let pi = arguments.tags.context(&image.format, image.pi_type, checks, mask, lba)?;
        blocks.inspect(&pi, |report| {
            if !report.is_ok() {
                outcome = Outcome::Bad;
            }
            lines.push(line(report, lba, digits, storage));
        });
        lba += count;
    }
    for line in lines {
        writeln!(out, "{}", line.trim_end()).map_err(system("write to", "standard output".as_ref()))?;
    }
    Ok(outcome)
}

/// One row of the table.
fn line(report: &BlockReport, first: u64, digits: usize, storage: bool) -> String {
    let state = if report.escaped {
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
