//! `intact-pi generate`: the protection information of the data that an image has, in `FILE.pi` beside it, so that a
//! protected volume can be served from it; or in the image itself, where the metadata behind each block is.

use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use clap::Args;
use intact::block::{PI_FILE_HEADER, PiHeader, pi_path};
use t10pi::Checks;
use uuid::Uuid;

use super::Outcome;
use super::error::{PiError, system};
use super::format::{FormatArgs, LayoutName, TagArgs};
use super::image::{Access, CHUNK, Image, invert_tuples, lock, whole_blocks};
use super::progress::Progress;

/// Arguments of `intact-pi generate`; `intact serve` prints the line that fits a volume.
#[derive(Debug, Args)]
pub struct Generate {
    /// The image, a file or a block device
    #[arg(long)]
    pub file: PathBuf,
    /// Where the protection information goes: a new FILE.pi, or the metadata in FILE, whose tuples are overwritten
    #[arg(long, value_enum, default_value_t)]
    pub layout: LayoutName,
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

pub(super) fn generate(arguments: &Generate, out: &mut impl Write) -> Result<Outcome, PiError> {
    let done = match arguments.layout {
        LayoutName::Separate => separate(arguments)?,
        LayoutName::Interleaved => interleaved(arguments)?,
    };
    writeln!(out, "{done}").map_err(system("write to", "standard output".as_ref()))?;
    Ok(Outcome::Good)
}

/// Overwrites the tuples of an image that has room for them.
fn interleaved(arguments: &Generate) -> Result<String, PiError> {
    if arguments.uuid.is_some() {
        let why = "--uuid goes with --layout separate: there is no FILE.pi to put it into";
        return Err(PiError::Flags(why.to_owned()));
    }
    let path = &arguments.file;
    let image = Image::open(path, LayoutName::Interleaved, &arguments.format, Access::Write)?;
    let block_size = u64::from(image.format.block_size());
    let progress = Progress::new(image.blocks * block_size);
    let mut lba = 0;
    while lba < image.blocks {
        let count = image.chunk().min(image.blocks - lba);
        let pi = arguments.tags.context(&image.format, image.pi_type, Checks::NONE, 0, lba)?;
        let mut blocks = image.read(lba, count)?;
        blocks.generate(&pi);
        image.write(lba, &blocks)?;
        progress.add(count * block_size);
        lba += count;
    }
    image.sync()?;
    Ok(format!("{}: {} blocks of {block_size} bytes protected", path.display(), image.blocks))
}

/// Makes `FILE.pi`.
fn separate(arguments: &Generate) -> Result<String, PiError> {
    let path = &arguments.file;
    let (format, pi_type) = arguments.format.build()?;
    let (block_size, metadata_size) = (format.block_size(), format.metadata_size());
    let bad = |why: &str| PiError::Format { block_size, metadata_size, why: why.to_owned() };
    if !matches!(block_size, 512 | 4096) {
        return Err(bad("blocks of a volume have 512 or 4096 bytes"));
    }
    if !metadata_size.is_multiple_of(8) || metadata_size > 128 {
        return Err(bad("metadata of a volume is a multiple of 8 bytes up to 128"));
    }
    if !format.is_nvme_legal() {
        return Err(bad(
            "a volume has the tuple in the last bytes, and with 16-byte tuples blocks of 4096 bytes",
        ));
    }
    let uuid = arguments.uuid.ok_or_else(|| {
        PiError::Flags(
            "--uuid is needed: the volume's, which FILE.pi belongs to; `intact check` prints it".to_owned(),
        )
    })?;
    let mut image = File::open(path).map_err(system("open", path))?;
    // Its protection information is part of it: nobody serves it with less, and nobody else makes that.
    lock(path, &image, Access::Write)?;
    let blocks = whole_blocks(path, &image, block_size.into(), 0)?;
    image.rewind().map_err(system("read", path))?;
    let header = PiHeader { uuid, format, pi_type, blocks };
    let pi = pi_path(path);
    if pi.exists() {
        return Err(PiError::Exists { path: pi });
    }
    // Made under another name: FILE.pi exists only when it is complete.
    let mut unfinished = OsString::from(&pi);
    unfinished.push(".new");
    let unfinished = PathBuf::from(unfinished);
    let written = write_pi(&mut image, path, &unfinished, &header, &arguments.tags)
        .and_then(|()| std::fs::rename(&unfinished, &pi).map_err(system("rename to", &pi)))
        .and_then(|()| sync_folder(&pi));
    if let Err(error) = written {
        // What can't be removed either is under a name that nobody takes for the real one.
        let _ = std::fs::remove_file(&unfinished);
        return Err(error);
    }
    Ok(format!("{}: {blocks} blocks of {block_size} bytes protected", pi.display()))
}

fn write_pi(
    image: &mut File,
    path: &Path,
    to: &Path,
    header: &PiHeader,
    tags: &TagArgs,
) -> Result<(), PiError> {
    let file =
        OpenOptions::new().write(true).create(true).truncate(true).open(to).map_err(system("make", to))?;
    file.set_len(header.file_length()).map_err(system("extend", to))?;
    let mut out = BufWriter::with_capacity(CHUNK, file);
    let write = system("write", to);
    out.write_all(&header.encode()).map_err(&write)?;
    out.seek(SeekFrom::Start(PI_FILE_HEADER)).map_err(&write)?;
    let format = &header.format;
    let (block_size, md_size) = (format.block_size() as usize, usize::from(format.metadata_size()));
    let progress = Progress::new(header.blocks * u64::from(format.block_size()));
    let mut data = vec![0; CHUNK];
    let mut md = vec![0; CHUNK / block_size * md_size];
    let mut lba = 0;
    while lba < header.blocks {
        let here = usize::try_from(header.blocks - lba).unwrap_or(usize::MAX).min(CHUNK / block_size);
        let (data, md) = (&mut data[..here * block_size], &mut md[..here * md_size]);
        image.read_exact(data).map_err(system("read", path))?;
        md.fill(0);
        let context = tags.context(format, header.pi_type, Checks::NONE, 0, lba)?;
        context.generate(&[data], &mut [md]);
        invert_tuples(format, md);
        out.write_all(md).map_err(&write)?;
        progress.add((here * block_size) as u64);
        lba += here as u64;
    }
    let file = out.into_inner().map_err(|error| write(error.into_error()))?;
    file.sync_all().map_err(write)
}

fn sync_folder(pi: &Path) -> Result<(), PiError> {
    let folder =
        pi.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(system("sync the folder of", pi))
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use intact::block::{BackendConfig, Identity, Layout, Protection, Stop, Volume, VolumeConfig};
    use t10pi::{Format, Guard, PiType};

    use crate::pi::{Cli, Command, run};

    use super::*;

    fn arguments(file: &Path, uuid: Uuid) -> Generate {
        let format = FormatArgs { block_size: Some(512), pi_type: Some(1), ..FormatArgs::default() };
        let tags = TagArgs { app_tag: Some(7), ..TagArgs::default() };
        Generate { file: file.to_owned(), layout: LayoutName::Separate, format, tags, uuid: Some(uuid) }
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

        run(&command, &mut Vec::new()).unwrap();
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
        let error = separate(&arguments(&file, Uuid::nil())).unwrap_err();
        assert!(error.to_string().contains("has 700 bytes"), "{error}");
        std::fs::write(&file, [0; 1024]).unwrap();
        std::fs::write(pi_path(&file), b"precious").unwrap();
        let error = separate(&arguments(&file, Uuid::nil())).unwrap_err();
        assert!(matches!(error, PiError::Exists { .. }), "{error}");
        assert_eq!(std::fs::read(pi_path(&file)).unwrap(), b"precious");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
        let error = separate(&arguments(&folder.path().join("none"), Uuid::nil())).unwrap_err();
        assert!(error.to_string().contains("can't open"), "{error}");
    }
}
