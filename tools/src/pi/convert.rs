//! `intact-pi insert` and `intact-pi strip`: from a plain image to an interleaved one and back.

use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use t10pi::Checks;

use super::Outcome;
use super::error::{PiError, system};
use super::format::{CheckArgs, FormatArgs, LayoutName, TagArgs};
use super::image::{Access, Blocks, CHUNK, Image, open_source, whole_blocks};
use super::progress::Progress;

/// Arguments of `intact-pi insert`.
#[derive(Debug, Args)]
pub struct Insert {
    /// The plain image, a file or a block device
    #[arg(long)]
    pub file: PathBuf,
    /// The interleaved image that is made
    #[arg(long)]
    pub out: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs, reason = "the flags say it")]
    pub format: FormatArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "the flags say it")]
    pub tags: TagArgs,
}

/// Arguments of `intact-pi strip`.
#[derive(Debug, Args)]
pub struct Strip {
    /// The interleaved image, a file or a block device
    #[arg(long)]
    pub file: PathBuf,
    /// The plain image that is made, if every block passes
    #[arg(long)]
    pub out: PathBuf,
    #[command(flatten)]
    #[allow(missing_docs, reason = "the flags say it")]
    pub format: FormatArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "the flags say it")]
    pub tags: TagArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "the flags say it")]
    pub checks: CheckArgs,
}

pub(super) fn insert(arguments: &Insert, out: &mut impl Write) -> Result<Outcome, PiError> {
    let (format, pi_type) = arguments.format.build()?;
    let path = &arguments.file;
    let mut file = open_source(path)?;
    let block_size = format.block_size();
    let blocks = whole_blocks(path, &file, block_size.into(), 0)?;
    file.rewind().map_err(system("read", path))?;
    let progress = Progress::new(blocks * u64::from(block_size));
    let chunk = (CHUNK as u64 / u64::from(block_size)).max(1);
    make(&arguments.out, |to, writer| {
        let mut lba = 0;
        while lba < blocks {
            let count = chunk.min(blocks - lba);
            let mut data = vec![0; bytes(count, block_size as usize)];
            file.read_exact(&mut data).map_err(system("read", path))?;
            let pi = arguments.tags.context(&format, pi_type, Checks::NONE, 0, lba)?;
            let mut stream = vec![0; bytes(count, format.interleaved_block_size())];
            pi.insert(&[&data], &mut [&mut stream]);
            writer.write_all(&stream).map_err(system("write", to))?;
            progress.add(data.len() as u64);
            lba += count;
        }
        Ok(Outcome::Good)
    })?;
    drop(progress);
    report(out, &format!("{}: {blocks} blocks of {block_size} bytes protected", arguments.out.display()))?;
    Ok(Outcome::Good)
}

pub(super) fn strip(arguments: &Strip, out: &mut impl Write) -> Result<Outcome, PiError> {
    let path = &arguments.file;
    let image = Image::open(path, LayoutName::Interleaved, &arguments.format, Access::Read)?;
    let (checks, mask) = arguments.checks.checks(&arguments.tags)?;
    let block_size = image.format.block_size();
    let progress = Progress::new(image.blocks * u64::from(block_size));
    let mut bad = None;
    let outcome = make(&arguments.out, |to, writer| {
        let mut lba = 0;
        while lba < image.blocks {
            let count = image.chunk().min(image.blocks - lba);
            let Blocks::Interleaved(stream) = image.read(lba, count)? else {
                unreachable!("it was opened as interleaved");
            };
            let pi = arguments.tags.context(&image.format, image.pi_type, checks, mask, lba)?;
            let mut data = vec![0; bytes(count, block_size as usize)];
            if let Err(mismatch) = pi.strip(&[&stream], &mut [&mut data]) {
                bad = Some((lba + mismatch.block, mismatch));
                return Ok(Outcome::Bad);
            }
            writer.write_all(&data).map_err(system("write", to))?;
            progress.add(data.len() as u64);
            lba += count;
        }
        Ok(Outcome::Good)
    })?;
    drop(progress);
    match bad {
        Some((lba, mismatch)) => report(
            out,
            &format!(
                "block {lba}: {} is {:#x}, expected {:#x}; {} was not made",
                mismatch.field,
                mismatch.actual,
                mismatch.expected,
                arguments.out.display()
            ),
        )?,
        None => report(
            out,
            &format!("{}: {} blocks checked and stripped", arguments.out.display(), image.blocks),
        )?,
    }
    Ok(outcome)
}

fn bytes(count: u64, size: usize) -> usize {
    usize::try_from(count).expect("a chunk fits into memory") * size
}

fn report(out: &mut impl Write, line: &str) -> Result<(), PiError> {
    writeln!(out, "{line}").map_err(system("write to", "standard output".as_ref()))
}

/// Makes `path` by `fill`. It exists only when it is complete and good: until then it has another name.
fn make(
    path: &Path,
    fill: impl FnOnce(&Path, &mut BufWriter<File>) -> Result<Outcome, PiError>,
) -> Result<Outcome, PiError> {
    if path.exists() {
        return Err(PiError::Exists { path: path.to_owned() });
    }
    let mut unfinished = path.as_os_str().to_owned();
    unfinished.push(".new");
    let unfinished = PathBuf::from(unfinished);
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .open(&unfinished)
        .map_err(system("make", &unfinished))?;
    let mut writer = BufWriter::with_capacity(CHUNK, file);
    let made = fill(&unfinished, &mut writer).and_then(|outcome| {
        let write = system("write", &unfinished);
        let file = writer.into_inner().map_err(|error| write(error.into_error()))?;
        file.sync_all().map_err(&write)?;
        if outcome == Outcome::Good {
            std::fs::rename(&unfinished, path).map_err(system("rename to", path))?;
        }
        Ok(outcome)
    });
    if !matches!(made, Ok(Outcome::Good)) {
        // What can't be removed either is under a name that nobody takes for the real one.
        let _ = std::fs::remove_file(&unfinished);
    }
    made
}
