//! An image and its protection information, block by block: in one file, or in `FILE` and `FILE.pi`.
//!
//! An image is locked as `intact serve` locks the file of a volume, for as long as it is open.

use std::io::ErrorKind::{InvalidFilename, NotADirectory, NotFound};
use std::path::Path;

use intact::block::{PI_FILE_HEADER, PI_HEADER_LEN, PiFileError, PiHeader, pi_path};
use t10pi::{BlockReport, Format, PiContext, PiMismatch, PiType};

use super::counted::Counted;
use super::error::{PiError, system};
use super::format::{FormatArgs, LayoutName, of_volume};
use super::name::Name;
use super::source::{Access, Kinds, Source};

/// Bytes of data and metadata that are handled at a time.
pub(super) const CHUNK: usize = 1 << 20;

/// An open image.
#[derive(Debug)]
pub(super) struct Image {
    source: Source,
    /// `FILE.pi`, in the separate layout.
    pi: Option<Source>,
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
        let source = Source::open(path, access, Kinds::Image)?.lock(access)?;
        match layout {
            LayoutName::Interleaved => Self::interleaved(source, format),
            LayoutName::Separate => Self::separate(source, format, access),
        }
    }

    fn interleaved(source: Source, format: &FormatArgs) -> Result<Self, PiError> {
        let path = source.path();
        if has_pi(path)? {
            return Err(PiError::Flags(format!(
                "{0} has {1}, so that it is a plain image, with no metadata in it; move {1} away if it belongs to \
                 another",
                Name(path),
                Name(&pi_path(path))
            )));
        }
        let (format, pi_type) = format.build()?;
        let blocks = source.blocks(format.interleaved_block_size() as u64, format.metadata_size())?;
        Ok(Self { source, pi: None, format, pi_type, blocks })
    }

    fn separate(source: Source, format: &FormatArgs, access: Access) -> Result<Self, PiError> {
        let path = source.path();
        let pi_path = pi_path(path);
        if !has_pi(path)? {
            return Err(PiError::Flags(without_pi(&source, &pi_path)));
        }
        let unusable = |source| PiError::PiFile { path: pi_path.clone(), source };
        let pi = Source::open(&pi_path, access, Kinds::File)?;
        let needed = PI_FILE_HEADER;
        if pi.length() < needed {
            return Err(unusable(PiFileError::Truncated { length: pi.length(), needed }));
        }
        let mut header = [0; PI_HEADER_LEN];
        pi.read_at(&mut header, 0)?;
        let header = PiHeader::decode(&header).map_err(unusable)?;
        of_volume(&header.format).map_err(|why| unusable(PiFileError::Invalid(why)))?;
        let needed = header.file_length();
        if pi.length() < needed {
            return Err(unusable(PiFileError::Truncated { length: pi.length(), needed }));
        }
        format.agree(&header.format, header.pi_type)?;
        let blocks = source.blocks(header.format.block_size().into(), 0)?;
        if blocks != header.blocks {
            return Err(PiError::Flags(format!(
                "{} has {}, and {} is for {}: they don't belong together",
                Name(path),
                Counted(blocks, "block"),
                Name(&pi_path),
                header.blocks
            )));
        }
        let (format, pi_type) = (header.format, header.pi_type);
        Ok(Self { source, pi: Some(pi), format, pi_type, blocks })
    }

    pub(super) fn path(&self) -> &Path {
        self.source.path()
    }

    /// The file with its data.
    pub(super) fn source(&self) -> &Source {
        &self.source
    }

    /// The blocks from `start` on, `count` of them or all; refused when the image has not so many.
    pub(super) fn range(&self, start: u64, count: Option<u64>) -> Result<std::ops::Range<u64>, PiError> {
        let end = count.map_or(Some(self.blocks), |count| start.checked_add(count));
        match end {
            Some(end) if end <= self.blocks && start < end => Ok(start..end),
            _ => {
                let (path, blocks) = (self.path().to_owned(), self.blocks);
                Err(PiError::Range { path, blocks, wanted: start.max(blocks) })
            }
        }
    }

    /// How many blocks are handled at a time.
    pub(super) fn chunk(&self) -> u64 {
        chunk(&self.format)
    }

    /// Reads blocks.
    pub(super) fn read(&self, lba: u64, count: u64) -> Result<Blocks, PiError> {
        let read = |source: &Source, size: usize, at: u64| {
            let mut bytes = vec![0; bytes(count, size)];
            source.read_at(&mut bytes, at + lba * size as u64)?;
            Ok::<_, PiError>(bytes)
        };
        let Some(pi) = &self.pi else {
            return Ok(Blocks::Interleaved(read(&self.source, self.format.interleaved_block_size(), 0)?));
        };
        let data = read(&self.source, self.format.block_size() as usize, 0)?;
        let mut md = read(pi, usize::from(self.format.metadata_size()), PI_FILE_HEADER)?;
        invert_tuples(&self.format, &mut md);
        Ok(Blocks::Separate { data, md })
    }

    /// Writes blocks.
    pub(super) fn write(&self, lba: u64, blocks: &Blocks) -> Result<(), PiError> {
        match (blocks, &self.pi) {
            (Blocks::Interleaved(stream), _) => {
                self.source.write_at(stream, lba * self.format.interleaved_block_size() as u64)
            }
            (Blocks::Separate { data, md }, pi) => {
                let pi = pi.as_ref().expect("separate blocks are of an image with FILE.pi");
                let mut md = md.clone();
                invert_tuples(&self.format, &mut md);
                self.source.write_at(data, lba * u64::from(self.format.block_size()))?;
                pi.write_at(&md, PI_FILE_HEADER + lba * u64::from(self.format.metadata_size()))
            }
        }
    }

    /// Makes what was written durable.
    pub(super) fn sync(&self) -> Result<(), PiError> {
        self.source.sync()?;
        self.pi.as_ref().map_or(Ok(()), Source::sync)
    }

    /// Refuses what was read when it has changed meanwhile.
    pub(super) fn unchanged(&self) -> Result<(), PiError> {
        self.source.unchanged()?;
        self.pi.as_ref().map_or(Ok(()), Source::unchanged)
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

/// Whether there is anything called `FILE.pi`.
pub(super) fn has_pi(path: &Path) -> Result<bool, PiError> {
    let pi = pi_path(path);
    match std::fs::symlink_metadata(&pi) {
        Ok(_) => Ok(true),
        // Where there can be none, there is none: the name would be too long, or FILE is called a folder.
        Err(error) if matches!(error.kind(), NotFound | InvalidFilename | NotADirectory) => Ok(false),
        Err(error) => Err(system("look for", &pi)(error)),
    }
}

/// Why `FILE.pi` can't lie beside a device, where it can't.
pub(super) fn refuse_dev(source: &Source, pi: &Path) -> Result<(), String> {
    if !source.is_in_dev() {
        return Ok(());
    }
    Err(format!(
        "{} would not outlive a restart of the machine: name a symbolic link to the device in a folder on a disk",
        Name(pi)
    ))
}

/// What is to be done about an image that has no `FILE.pi`.
fn without_pi(source: &Source, pi: &Path) -> String {
    let (image, name) = (Name(source.path()), Name(pi));
    if let Err(why) = refuse_dev(source, pi) {
        return format!(
            "{image} has no {name}: {why}; or say --layout interleaved if its protection information is in it"
        );
    }
    if !source.is_device() && !source.length().is_multiple_of(512) {
        return format!(
            "{image} has no {name}, and its {} are no whole blocks of 512 or 4096, for which one could be made; say \
             --layout interleaved if its protection information is behind each block",
            Counted(source.length(), "byte")
        );
    }
    format!(
        "{image} has no {name}: make one with intact-pi generate, or say --layout interleaved if its protection \
         information is behind each block"
    )
}

/// How many blocks of a format are handled at a time.
pub(super) fn chunk(format: &Format) -> u64 {
    (CHUNK as u64 / format.interleaved_block_size() as u64).max(1)
}

/// Bytes of so many blocks.
pub(super) fn bytes(blocks: u64, size: usize) -> usize {
    usize::try_from(blocks).expect("a chunk fits into memory") * size
}

/// Turns the tuples of separate metadata over: `FILE.pi` stores them inverted.
pub(super) fn invert_tuples(format: &Format, md: &mut [u8]) {
    let tuple = format.tuple_offset()..format.tuple_offset() + format.tuple_size();
    for block in md.chunks_exact_mut(usize::from(format.metadata_size())) {
        block[tuple.clone()].iter_mut().for_each(|byte| *byte = !*byte);
    }
}
