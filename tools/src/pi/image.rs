//! An image and its protection information, block by block: in one file, or in `FILE` and `FILE.pi`.
//!
//! An image is locked as `intact serve` locks the file of a volume, for as long as it is open.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use intact::block::{PI_FILE_HEADER, PI_HEADER_LEN, PiHeader, pi_path};
use t10pi::{BlockReport, Format, PiContext, PiMismatch, PiType};

use super::error::{PiError, system};
use super::format::{FormatArgs, LayoutName};

/// Bytes of data that are handled at a time.
pub(super) const CHUNK: usize = 1 << 20;

/// Whether an image may be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

/// An open image.
#[derive(Debug)]
pub(super) struct Image {
    path: PathBuf,
    file: File,
    /// `FILE.pi`, in the separate layout.
    pi: Option<(PathBuf, File)>,
    pub(super) format: Format,
    pub(super) pi_type: PiType,
    pub(super) blocks: u64,
}

/// Blocks of an image: as its files hold them, tuples the right way round.
#[derive(Debug)]
pub(super) enum Blocks {
    Interleaved(Vec<u8>),
    Separate { data: Vec<u8>, md: Vec<u8> },
}

impl Image {
    /// Opens an image.
    pub(super) fn open(
        path: &Path,
        layout: LayoutName,
        format: &FormatArgs,
        access: Access,
    ) -> Result<Self, PiError> {
        let file = open(path, access)?;
        lock(path, &file, access)?;
        if layout == LayoutName::Interleaved {
            let (format, pi_type) = format.build()?;
            let blocks =
                whole_blocks(path, &file, format.interleaved_block_size() as u64, format.metadata_size())?;
            return Ok(Self { path: path.to_owned(), file, pi: None, format, pi_type, blocks });
        }
        let pi = pi_path(path);
        let pi_file = match open(&pi, access) {
            Err(PiError::System { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                return Err(PiError::Flags(format!(
                    "{} has no {}: make one with intact-pi generate, or say --layout interleaved if its \
                     protection information is behind each block",
                    path.display(),
                    pi.display()
                )));
            }
            opened => opened?,
        };
        let mut header = [0; PI_HEADER_LEN];
        pi_file.read_exact_at(&mut header, 0).map_err(system("read the header of", &pi))?;
        let header =
            PiHeader::decode(&header).map_err(|source| PiError::PiFile { path: pi.clone(), source })?;
        format.agree(&header.format, header.pi_type)?;
        let blocks = whole_blocks(path, &file, header.format.block_size().into(), 0)?;
        if blocks != header.blocks {
            return Err(PiError::Flags(format!(
                "{} has {blocks} blocks, and {} is for {}: they don't belong together",
                path.display(),
                pi.display(),
                header.blocks
            )));
        }
        let (format, pi_type) = (header.format, header.pi_type);
        Ok(Self { path: path.to_owned(), file, pi: Some((pi, pi_file)), format, pi_type, blocks })
    }

    /// The blocks from `start` on, `count` of them or all; refused when the image has not so many.
    pub(super) fn range(&self, start: u64, count: Option<u64>) -> Result<std::ops::Range<u64>, PiError> {
        let end = count.map_or(Some(self.blocks), |count| start.checked_add(count));
        match end {
            Some(end) if end <= self.blocks && start < end => Ok(start..end),
            _ => {
                let (path, blocks) = (self.path.clone(), self.blocks);
                Err(PiError::Range { path, blocks, wanted: start.max(blocks) })
            }
        }
    }

    /// How many blocks are handled at a time.
    pub(super) fn chunk(&self) -> u64 {
        (CHUNK as u64 / u64::from(self.format.block_size())).max(1)
    }

    /// Reads blocks.
    pub(super) fn read(&self, lba: u64, count: u64) -> Result<Blocks, PiError> {
        let read = |file: &File, path: &Path, size: usize, at: u64| {
            let mut bytes = vec![0; usize::try_from(count).expect("a chunk fits into memory") * size];
            file.read_exact_at(&mut bytes, at + lba * size as u64).map_err(system("read", path))?;
            Ok::<_, PiError>(bytes)
        };
        let Some((pi_path, pi)) = &self.pi else {
            let stride = self.format.interleaved_block_size();
            return Ok(Blocks::Interleaved(read(&self.file, &self.path, stride, 0)?));
        };
        let data = read(&self.file, &self.path, self.format.block_size() as usize, 0)?;
        let mut md = read(pi, pi_path, usize::from(self.format.metadata_size()), PI_FILE_HEADER)?;
        invert_tuples(&self.format, &mut md);
        Ok(Blocks::Separate { data, md })
    }

    /// Writes blocks.
    pub(super) fn write(&self, lba: u64, blocks: &Blocks) -> Result<(), PiError> {
        let write = |file: &File, path: &Path, bytes: &[u8], size: usize, at: u64| {
            file.write_all_at(bytes, at + lba * size as u64).map_err(system("write", path))
        };
        match (blocks, &self.pi) {
            (Blocks::Interleaved(stream), _) => {
                write(&self.file, &self.path, stream, self.format.interleaved_block_size(), 0)
            }
            (Blocks::Separate { data, md }, pi) => {
                let (pi_path, pi) = pi.as_ref().expect("separate blocks are of an image with FILE.pi");
                let mut md = md.clone();
                invert_tuples(&self.format, &mut md);
                write(&self.file, &self.path, data, self.format.block_size() as usize, 0)?;
                write(pi, pi_path, &md, usize::from(self.format.metadata_size()), PI_FILE_HEADER)
            }
        }
    }

    /// Makes what was written durable.
    pub(super) fn sync(&self) -> Result<(), PiError> {
        self.file.sync_all().map_err(system("sync", &self.path))?;
        match &self.pi {
            Some((path, pi)) => pi.sync_all().map_err(system("sync", path)),
            None => Ok(()),
        }
    }
}

impl Blocks {
    /// The first mismatch.
    pub(super) fn verify(&self, pi: &PiContext) -> Result<(), PiMismatch> {
        match self {
            Self::Interleaved(stream) => pi.verify_interleaved(&[stream]),
            Self::Separate { data, md } => pi.verify(&[data], &[md]),
        }
    }

    /// All that is to be found.
    pub(super) fn inspect(&self, pi: &PiContext, each: impl FnMut(&BlockReport)) {
        match self {
            Self::Interleaved(stream) => pi.inspect_interleaved(&[stream], each),
            Self::Separate { data, md } => pi.inspect(&[data], &[md], each),
        }
    }

    /// Writes tuples.
    pub(super) fn generate(&mut self, pi: &PiContext) {
        match self {
            Self::Interleaved(stream) => pi.generate_interleaved(&mut [stream]),
            Self::Separate { data, md } => pi.generate(&[data], &mut [md]),
        }
    }

    /// Blocks with the escape value.
    pub(super) fn escaped(&self, pi: &PiContext) -> u64 {
        let format = pi.format();
        let metadata = usize::from(format.metadata_size());
        let (bytes, size, before) = match self {
            Self::Interleaved(stream) => {
                (stream, format.interleaved_block_size(), format.block_size() as usize)
            }
            Self::Separate { md, .. } => (md, metadata, 0),
        };
        let at = before + format.tuple_offset();
        let tuples = bytes.chunks_exact(size).map(|unit| &unit[at..at + format.tuple_size()]);
        tuples.filter(|tuple| pi.escapes(tuple)).count() as u64
    }

    /// Data and metadata of the only block.
    pub(super) fn parts(&mut self, format: &Format) -> (&mut [u8], &mut [u8]) {
        match self {
            Self::Interleaved(stream) => stream.split_at_mut(format.block_size() as usize),
            Self::Separate { data, md } => (data, md),
        }
    }
}

/// Opens an image to read all of it, while nobody changes it.
pub(super) fn open_source(path: &Path) -> Result<File, PiError> {
    let file = open(path, Access::Read)?;
    lock(path, &file, Access::Read)?;
    Ok(file)
}

fn open(path: &Path, access: Access) -> Result<File, PiError> {
    OpenOptions::new().read(true).write(access == Access::Write).open(path).map_err(system("open", path))
}

/// Keeps others from changing an image, and where it is to be changed from reading it. An image's lock is that of its data
/// file; it ends with the descriptor.
pub(super) fn lock(path: &Path, file: &File, access: Access) -> Result<(), PiError> {
    let locked = match access {
        Access::Read => file.try_lock_shared(),
        Access::Write => file.try_lock(),
    };
    match locked {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(PiError::InUse { path: path.to_owned() }),
        Err(TryLockError::Error(source)) => Err(system("lock", path)(source)),
    }
}

/// Blocks of a file; a block device has no length but its end.
pub(super) fn whole_blocks(
    path: &Path,
    mut file: &File,
    block_size: u64,
    metadata_size: u16,
) -> Result<u64, PiError> {
    let length = file.seek(SeekFrom::End(0)).map_err(system("find the end of", path))?;
    if length == 0 || !length.is_multiple_of(block_size) {
        return Err(PiError::Length { path: path.to_owned(), length, block_size, metadata_size });
    }
    Ok(length / block_size)
}

/// Turns the tuples of separate metadata over: `FILE.pi` stores them inverted.
pub(super) fn invert_tuples(format: &Format, md: &mut [u8]) {
    let tuple = format.tuple_offset()..format.tuple_offset() + format.tuple_size();
    for block in md.chunks_exact_mut(usize::from(format.metadata_size())) {
        block[tuple.clone()].iter_mut().for_each(|byte| *byte = !*byte);
    }
}
