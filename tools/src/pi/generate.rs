//! `intact-pi generate`: the protection information of the data that an image has, in `FILE.pi` beside it, so that a
//! protected volume can be served from it; or in the image itself, where the metadata behind each block is.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use intact::block::{PI_FILE_HEADER, PiHeader, pi_path};
use uuid::Uuid;

use super::Outcome;
use super::counted::Counted;
use super::error::PiError;
use super::format::{FormatArgs, LayoutName, TagArgs, of_volume};
use super::image::{CHUNK, Image, bytes, invert_tuples, refuse_dev};
use super::interrupt::Interrupt;
use super::name::Name;
use super::new_file::NewFile;
use super::progress::Progress;
use super::source::{Access, Kinds, Source};

/// Arguments of `intact-pi generate`; `intact serve` prints the line that fits a volume.
#[derive(Debug, Args)]
pub struct Generate {
    /// The image, a file or a block device
    #[arg(long)]
    pub file: PathBuf,
    /// Where the protection information goes: a new FILE.pi, or the metadata in FILE, whose tuples are overwritten (with
    /// --in-place alone)
    #[arg(long, value_enum, default_value_t)]
    pub layout: LayoutName,
    /// Overwrite the tuples in FILE, for --layout interleaved: what they vouched for is lost
    #[arg(long)]
    pub in_place: bool,
    #[command(flatten)]
    #[allow(missing_docs, reason = "the flags say it")]
    pub format: FormatArgs,
    #[command(flatten)]
    #[allow(missing_docs, reason = "the flags say it")]
    pub tags: TagArgs,
    /// The volume's UUID, for FILE.pi
    #[arg(long)]
    pub uuid: Option<Uuid>,
}

pub(super) fn generate(
    arguments: &Generate,
    interrupt: &Interrupt,
    out: &mut impl Write,
) -> Result<Outcome, PiError> {
    let done = match arguments.layout {
        LayoutName::Separate => separate(arguments, interrupt)?,
        LayoutName::Interleaved => interleaved(arguments, interrupt)?,
    };
    writeln!(out, "{done}").map_err(PiError::Output)?;
    Ok(Outcome::Good)
}

/// Overwrites the tuples of an image that has room for them.
fn interleaved(arguments: &Generate, interrupt: &Interrupt) -> Result<String, PiError> {
    let refuse = |why: &str| Err(PiError::Flags(why.to_owned()));
    if arguments.uuid.is_some() {
        return refuse("--uuid goes with --layout separate: there is no FILE.pi to put it into");
    }
    if !arguments.in_place {
        return refuse("--layout interleaved overwrites the tuples in FILE: say --in-place if they may go");
    }
    let image = Image::open(&arguments.file, LayoutName::Interleaved, &arguments.format, Access::Write)?;
    arguments.tags.refuse_escapes(&image.format, image.pi_type)?;
    let block_size = u64::from(image.format.block_size());
    let progress = Progress::new(image.blocks * block_size);
    let (name, blocks) = (Name(image.path()), Counted(image.blocks, "block"));
    let mut lba = 0;
    while lba < image.blocks {
        if let Some(signal) = interrupt.signal() {
            image.sync()?;
            let state =
                format!("the first {lba} of {blocks} in {name} have new protection information; do it again");
            return Err(PiError::Interrupted { signal, state });
        }
        let count = image.chunk().min(image.blocks - lba);
        let pi = arguments.tags.generating(&image.format, image.pi_type, lba)?;
        let mut blocks = image.read(lba, count)?;
        blocks.generate(&pi);
        image.write(lba, &blocks)?;
        progress.add(count * block_size);
        lba += count;
    }
    image.sync()?;
    Ok(format!("{name}: {blocks} of {} protected", Counted(block_size, "byte")))
}

/// Makes `FILE.pi`.
fn separate(arguments: &Generate, interrupt: &Interrupt) -> Result<String, PiError> {
    let refuse = |why: &str| PiError::Flags(why.to_owned());
    if arguments.in_place {
        return Err(refuse("--in-place goes with --layout interleaved: a new FILE.pi overwrites nothing"));
    }
    let (format, pi_type) = arguments.format.build()?;
    of_volume(&format).map_err(|why| {
        PiError::Flags(format!(
            "a FILE.pi can't have this format: {why}; intact-pi insert makes interleaved images of any"
        ))
    })?;
    arguments.tags.refuse_escapes(&format, pi_type)?;
    let uuid = arguments.uuid.ok_or_else(|| {
        refuse("--uuid is needed: the volume's, which FILE.pi belongs to; `intact check` prints it")
    })?;
    // Its protection information is part of it: nobody serves it with less, and nobody else makes that.
    let image = Source::open(&arguments.file, Access::Own, Kinds::Image)?.lock(Access::Own)?;
    let pi = pi_path(image.path());
    refuse_dev(&image, &pi).map_err(PiError::Flags)?;
    let blocks = image.blocks(format.block_size().into(), 0)?;
    let file = NewFile::create(&pi, image.mode())?;
    write_pi(&image, &file, &PiHeader { uuid, format, pi_type, blocks }, &arguments.tags, interrupt)?;
    image.unchanged()?;
    file.finish()?;
    let size = Counted(format.block_size().into(), "byte");
    Ok(format!("{}: {} of {size} protected", Name(&pi), Counted(blocks, "block")))
}

fn write_pi(
    image: &Source,
    file: &NewFile,
    header: &PiHeader,
    tags: &TagArgs,
    interrupt: &Interrupt,
) -> Result<(), PiError> {
    file.set_len(header.file_length())?;
    file.write_at(&header.encode(), 0)?;
    let format = &header.format;
    let (block_size, md_size) = (format.block_size() as usize, usize::from(format.metadata_size()));
    let progress = Progress::new(header.blocks * u64::from(format.block_size()));
    let mut data = vec![0; CHUNK];
    let mut md = vec![0; CHUNK / block_size * md_size];
    let mut lba = 0;
    while lba < header.blocks {
        if let Some(signal) = interrupt.signal() {
            return Err(PiError::Interrupted {
                signal,
                state: format!("no FILE.pi of {} was made", Name(image.path())),
            });
        }
        let here = (header.blocks - lba).min((CHUNK / block_size) as u64);
        let (data, md) = (&mut data[..bytes(here, block_size)], &mut md[..bytes(here, md_size)]);
        image.read_at(data, lba * block_size as u64)?;
        md.fill(0);
        tags.generating(format, header.pi_type, lba)?.generate(&[data], &mut [md]);
        invert_tuples(format, md);
        file.write_at(md, PI_FILE_HEADER + lba * md_size as u64)?;
        progress.add(data.len() as u64);
        lba += here;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::Parser;
    use intact::block::{BackendConfig, Identity, Layout, Protection, Stop, Volume, VolumeConfig};
    use t10pi::{Format, Guard, PiType};

    use crate::pi::{Cli, Command, run};

    use super::*;

    fn arguments(file: &Path, uuid: Uuid) -> Generate {
        let format = FormatArgs { block_size: Some(512), pi_type: Some(1), ..FormatArgs::default() };
        let tags = TagArgs { app_tag: Some(7), ..TagArgs::default() };
        let layout = LayoutName::Separate;
        Generate { file: file.to_owned(), layout, in_place: false, format, tags, uuid: Some(uuid) }
    }

    fn open(file: &Path, uuid: Uuid) -> Result<std::sync::Arc<Volume>, intact::block::VolumeError> {
        Volume::open(VolumeConfig {
            name: "disk0".to_owned(),
            identity: Identity::new("nqn.a", "disk0", Some(uuid), None),
            block_size: 512,
            protection: Some(Protection {
                format: Format::new(Guard::Crc16, 512, 8).unwrap(),
                pi_type: PiType::Type1,
                layout: Layout::Separate,
            }),
            read_only: false,
            backend: BackendConfig::File { path: file.to_owned(), size: None },
            stop: Stop::default(),
        })
    }

    #[test]
    fn an_image_without_protection_is_refused_with_the_line_that_makes_it_usable() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk.img");
        let image: Vec<u8> = (0..512 * 5000_u32).map(|n| n.to_le_bytes()[0] ^ n.to_le_bytes()[1]).collect();
        std::fs::write(&file, &image).unwrap();
        let uuid = Uuid::from_u128(5);
        let refused = intact::serve::with_sources(&open(&file, uuid).unwrap_err());
        let line = refused.split("intact-pi ").nth(1).expect("the line is in the refusal");
        let words = std::iter::once("intact-pi").chain(line.lines().next().unwrap().split(' '));
        let command = Cli::try_parse_from(words).unwrap().command;
        assert!(matches!(&command, Command::Generate(parsed)
            if (&parsed.file, parsed.uuid, parsed.format.block_size) == (&file, Some(uuid), Some(512))));

        run(&command, &Interrupt::default(), &mut Vec::new()).unwrap();
        assert_eq!(open(&file, uuid).unwrap().blocks(), 5000);
        let pi = std::fs::read(pi_path(&file)).unwrap();
        let tuple: Vec<u8> = pi[4096 + 8 * 4999..4096 + 8 * 5000].iter().map(|byte| !byte).collect();
        let guard = t10pi::crc::crc16(0, &image[512 * 4999..]);
        assert_eq!(tuple[..2], guard.to_be_bytes());
        assert_eq!(tuple[2..], [0, 0, 0, 0, 0x13, 0x87], "application tag 0, reference tag 4999");
    }

    #[test]
    fn nothing_is_overwritten_and_nothing_is_left_behind() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("disk.img");
        std::fs::write(&file, [0; 700]).unwrap();
        let error = separate(&arguments(&file, Uuid::nil()), &Interrupt::default()).unwrap_err();
        assert!(error.to_string().contains("has 700 bytes"), "{error}");
        std::fs::write(&file, [0; 1024]).unwrap();
        std::fs::write(pi_path(&file), b"precious").unwrap();
        let error = separate(&arguments(&file, Uuid::nil()), &Interrupt::default()).unwrap_err();
        assert!(matches!(error, PiError::Exists { .. }), "{error}");
        assert_eq!(std::fs::read(pi_path(&file)).unwrap(), b"precious");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        let error = separate(&arguments(&folder.path().join("none"), Uuid::nil()), &Interrupt::default())
            .unwrap_err();
        assert!(error.to_string().contains("can't open"), "{error}");
    }
}
