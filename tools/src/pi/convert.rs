//! `intact-pi insert` and `intact-pi strip`: from a plain image to an interleaved one and back.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;
use intact::block::pi_path;
use t10pi::{PiContext, PiMismatch};

use super::Outcome;
use super::checks::{CheckArgs, Comparison};
use super::counted::Counted;
use super::error::PiError;
use super::format::{FormatArgs, LayoutName, TagArgs};
use super::image::{Blocks, Image, bytes, chunk, has_pi};
use super::interrupt::Interrupt;
use super::name::Name;
use super::new_file::NewFile;
use super::progress::Progress;
use super::source::{Access, Kinds, Source};

/// Arguments of `intact-pi insert`.
#[derive(Debug, Args)]
pub struct Insert {
    /// The plain image, a file or a block device. If there is a FILE.pi, blocks are checked against it and its metadata is
    /// what is inserted; otherwise, tuples are made
    #[arg(long)]
    pub file: PathBuf,
    /// The interleaved image that is made, if every block passes; a file that does not exist yet
    #[arg(long)]
    pub out: PathBuf,
    /// Make new tuples although there is a FILE.pi: they vouch for the data as it is now, damaged or not
    #[arg(long)]
    pub ignore_pi: bool,
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

/// Arguments of `intact-pi strip`.
#[derive(Debug, Args)]
pub struct Strip {
    /// The interleaved image, a file or a block device
    #[arg(long)]
    pub file: PathBuf,
    /// The plain image that is made, if every block passes; a file that does not exist yet
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

pub(super) fn insert(
    arguments: &Insert,
    interrupt: &Interrupt,
    out: &mut impl Write,
) -> Result<Outcome, PiError> {
    if !arguments.ignore_pi && has_pi(&arguments.file)? {
        return join(arguments, interrupt, out);
    }
    if arguments.checks.is_given() {
        let why = "--checks and --app-tag-mask go with an image that has a FILE.pi: there is nothing to check without";
        return Err(PiError::Flags(why.to_owned()));
    }
    let (format, pi_type) = arguments.format.build()?;
    arguments.tags.refuse_escapes(&format, pi_type)?;
    let source = Source::open(&arguments.file, Access::Read, Kinds::Image)?.lock(Access::Read)?;
    let block_size = format.block_size() as usize;
    let blocks = source.blocks(block_size as u64, 0)?;
    let mut file = create(&arguments.out, &source)?;
    let progress = Progress::new(blocks * block_size as u64);
    let mut lba = 0;
    while lba < blocks {
        go_on(interrupt, &arguments.out)?;
        let count = chunk(&format).min(blocks - lba);
        let mut data = vec![0; bytes(count, block_size)];
        source.read_at(&mut data, lba * block_size as u64)?;
        let mut stream = vec![0; bytes(count, format.interleaved_block_size())];
        arguments.tags.generating(&format, pi_type, lba)?.insert(&[&data], &mut [&mut stream]);
        file.append(&stream)?;
        progress.add(data.len() as u64);
        lba += count;
    }
    source.unchanged()?;
    file.finish()?;
    drop(progress);
    let size = Counted(block_size as u64, "byte");
    let rest = source.length() - blocks * block_size as u64;
    let rest =
        if rest > 0 { format!("; {} at its end are no block", Counted(rest, "byte")) } else { String::new() };
    let blocks = Counted(blocks, "block");
    report(out, &format!("{}: {blocks} of {size} protected{rest}", Name(&arguments.out)))
}

/// From `FILE` and `FILE.pi`, whose metadata stays as it is.
fn join(arguments: &Insert, interrupt: &Interrupt, out: &mut impl Write) -> Result<Outcome, PiError> {
    let image = Image::open(&arguments.file, LayoutName::Separate, &arguments.format, Access::Read)?;
    let conversion = Conversion {
        image: &image,
        path: &arguments.out,
        comparison: arguments.checks.comparison(&arguments.tags)?,
        tags: &arguments.tags,
        done: "with the metadata of FILE.pi",
    };
    conversion.run(interrupt, out, |pi, blocks| {
        let Blocks::Separate { data, md } = blocks else {
            unreachable!("it was opened as separate");
        };
        let mut stream = vec![0; data.len() + md.len()];
        pi.join(&[data], &[md], &mut [&mut stream]).map(|()| stream)
    })
}

pub(super) fn strip(
    arguments: &Strip,
    interrupt: &Interrupt,
    out: &mut impl Write,
) -> Result<Outcome, PiError> {
    let image = Image::open(&arguments.file, LayoutName::Interleaved, &arguments.format, Access::Read)?;
    let conversion = Conversion {
        image: &image,
        path: &arguments.out,
        comparison: arguments.checks.comparison(&arguments.tags)?,
        tags: &arguments.tags,
        done: "stripped",
    };
    let (block_size, stride) = (image.format.block_size() as usize, image.format.interleaved_block_size());
    conversion.run(interrupt, out, |pi, blocks| {
        let Blocks::Interleaved(stream) = blocks else {
            unreachable!("it was opened as interleaved");
        };
        let mut data = vec![0; stream.len() / stride * block_size];
        pi.strip(&[stream], &mut [&mut data]).map(|()| data)
    })
}

/// An image that becomes another, if every block passes.
struct Conversion<'a> {
    image: &'a Image,
    /// What is made.
    path: &'a Path,
    comparison: Comparison,
    tags: &'a TagArgs,
    /// What was done to blocks.
    done: &'static str,
}

impl Conversion<'_> {
    fn run(
        &self,
        interrupt: &Interrupt,
        out: &mut impl Write,
        convert: impl Fn(&PiContext, &Blocks) -> Result<Vec<u8>, PiMismatch>,
    ) -> Result<Outcome, PiError> {
        let (image, name) = (self.image, Name(self.path));
        let block_size = u64::from(image.format.block_size());
        let mut file = create(self.path, image.source())?;
        let progress = Progress::new(image.blocks * block_size);
        let (mut lba, mut escaped) = (0, 0);
        while lba < image.blocks {
            go_on(interrupt, self.path)?;
            let count = image.chunk().min(image.blocks - lba);
            let blocks = image.read(lba, count)?;
            let pi = self.comparison.context(self.tags, &image.format, image.pi_type, lba)?;
            let bytes = match convert(&pi, &blocks) {
                Ok(bytes) => bytes,
                Err(PiMismatch { block, field, expected, actual }) => {
                    drop((progress, file));
                    let lba = lba + block;
                    report(
                        out,
                        &format!(
                            "block {lba}: {field} is {actual:#x}, expected {expected:#x}; {name} was not made"
                        ),
                    )?;
                    return Ok(Outcome::Bad);
                }
            };
            file.append(&bytes)?;
            escaped += blocks.escaped(&pi);
            progress.add(count * block_size);
            lba += count;
        }
        image.unchanged()?;
        file.finish()?;
        drop(progress);
        let (blocks, done) = (Counted(image.blocks, "block"), self.done);
        let fields = self.comparison.fields(&image.format, image.pi_type);
        let fields: Vec<String> = fields.iter().map(ToString::to_string).collect();
        let checked = match (fields.is_empty(), escaped) {
            (true, _) => "nothing checked".to_owned(),
            (false, 0) => format!("{} checked", fields.join(", ")),
            (false, _) => format!("{} checked, but of {escaped} with the escape value", fields.join(", ")),
        };
        report(out, &format!("{name}: {blocks} {done}; {checked}"))
    }
}

/// Begins an image like `source`.
fn create(path: &Path, source: &Source) -> Result<NewFile, PiError> {
    let refuse = |why: &str| Err(PiError::Flags(format!("--out {} {why}", Name(path))));
    if source.is_at(path) {
        return refuse("exists already: it is the image that is read");
    }
    if is_same(path, &pi_path(source.path())) {
        return refuse("would be taken for the protection information of --file");
    }
    if has_pi(path)? {
        return refuse(
            "would be taken for what its FILE.pi belongs to, which is there: remove that, or use another name",
        );
    }
    NewFile::create(path, source.mode())
}

/// Whether two names are the same in the same folder.
fn is_same(one: &Path, other: &Path) -> bool {
    let folder = |path: &Path| {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        std::fs::canonicalize(folder.unwrap_or_else(|| Path::new("."))).ok()
    };
    one.file_name() == other.file_name() && folder(one).is_some_and(|one| folder(other) == Some(one))
}

/// Ends what is not complete when a signal came.
fn go_on(interrupt: &Interrupt, path: &Path) -> Result<(), PiError> {
    match interrupt.signal() {
        Some(signal) => Err(PiError::Interrupted { signal, state: format!("{} was not made", Name(path)) }),
        None => Ok(()),
    }
}

fn report(out: &mut impl Write, line: &str) -> Result<Outcome, PiError> {
    writeln!(out, "{line}").map_err(PiError::Output)?;
    Ok(Outcome::Good)
}
