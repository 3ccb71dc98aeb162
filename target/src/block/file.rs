//! Volumes in files and on block devices: what is opened, made, checked and resized.
//!
//! Owns the descriptors, the size of the file, its `.pi` file in the separate layout (see [`super::pi_file`]), and
//! whether the page cache is bypassed. Never moves a block of a running volume; that is the engine's.
//!
//! **Interleaved files** have no header and store metadata as hosts see it, so that a hole would be a block with a
//! tuple of zeros, which is not what a block that nobody wrote has and can't be told from a written one. A new or
//! grown file is therefore filled with such blocks before it is used. It is appended to, so that after a crash its
//! length says how far it came.
//!
//! **Shrinking** a file volume presents fewer blocks and leaves the file as it is: a slip in the configuration
//! destroys nothing, and growing again brings the blocks back.

mod undo;

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use uuid::Uuid;

pub(super) use self::undo::Extent;
use self::undo::{Before, Made};
use super::locks::RangeLocks;
use super::metadata::Metadata;
use super::pi_file::{PI_FILE_HEADER, PI_HEADER_LEN, PiFileError, PiHeader, pi_path};
use super::stop::Stop;
use super::uring::system;
use super::volume::{Layout, VolumeError};

/// The backend of a file volume.
#[derive(Debug)]
pub(super) struct FileBackend {
    /// The blocks, in the interleaved layout with their metadata.
    pub(super) data: Disk,
    /// `FILE.pi`, in the separate layout.
    pub(super) pi: Option<Disk>,
    pub(super) block_size: usize,
    pub(super) metadata: Option<(Metadata, Layout)>,
    /// Held for writing by whoever merges records into a sector of [`Self::records`].
    pub(super) sectors: Arc<RangeLocks>,
    /// What the `.pi` file says, but for the number of blocks.
    header: Option<PiHeader>,
    /// Whose it is, for messages.
    volume: Mutex<String>,
    stop: Stop,
    read_only: bool,
    before: Mutex<Before>,
    /// Keep other volumes and processes out of both files.
    _locks: [Option<Flock<File>>; 2],
}

/// An open file or block device.
#[derive(Debug)]
pub(super) struct Disk {
    /// For I/O; bypasses the page cache if `sector` is more than 1.
    pub(super) file: File,
    /// For everything else; through the page cache.
    plain: File,
    pub(super) path: PathBuf,
    /// Offsets and lengths of I/O are multiples of this.
    pub(super) sector: usize,
    /// What the file system turned out not to do.
    pub(super) no_punch: AtomicBool,
    pub(super) no_zero: AtomicBool,
    is_device: bool,
}

/// Records of one size in a file: metadata, or blocks with their metadata.
#[derive(Clone, Copy, Debug)]
pub(super) struct Records<'f> {
    pub(super) disk: &'f Disk,
    /// Offset of record 0.
    pub(super) base: u64,
    pub(super) stride: usize,
}

/// What the volume knows when its file is opened.
pub(super) struct FileSpec<'v> {
    pub(super) volume: &'v str,
    pub(super) path: &'v Path,
    /// Bytes of user data.
    pub(super) size: Option<u64>,
    pub(super) block_size: u32,
    pub(super) metadata: Option<(Metadata, Layout)>,
    /// With protection: what a `.pi` file says (the number of blocks is not looked at).
    pub(super) header: Option<PiHeader>,
    pub(super) read_only: bool,
    pub(super) stop: &'v Stop,
}

/// How long another process that still has the file is waited for; the kernel finishes a killed one's I/O first.
const LOCK_WAIT: Duration = Duration::from_millis(if cfg!(test) { 100 } else { 5000 });

impl FileBackend {
    /// Opens, makes or extends the files of a volume; returns how many blocks it presents, too. When it fails, files are
    /// as they were.
    pub(super) fn open(spec: &FileSpec<'_>) -> Result<(Self, u64), VolumeError> {
        let mut made = Made::default();
        match Self::open_files(spec, &mut made) {
            Ok((backend, extent, blocks)) => {
                let before = Mutex::new(Before { extent, made });
                Ok((Self { before, ..backend }, blocks))
            }
            Err(error) => {
                made.remove();
                Err(error)
            }
        }
    }

    fn open_files(spec: &FileSpec<'_>, made: &mut Made) -> Result<(Self, Extent, u64), VolumeError> {
        let opened = Opened::open(spec, made)?;
        let separate = matches!(spec.metadata, Some((_, Layout::Separate)));
        let pi = if separate { Some(opened.open_pi(spec, made)?) } else { None };
        let (pi, pi_lock) = match pi {
            Some((file, lock, blocks)) => (Some((file, blocks)), Some(lock)),
            None => (None, None),
        };
        let has = match (&pi, spec.metadata) {
            (Some((_, blocks)), _) => *blocks,
            (None, Some((metadata, _))) => opened.interleaved_blocks(spec, metadata.size)?,
            (None, None) => opened.plain_blocks(spec)?,
        };
        let wanted = spec.size.map(|size| size / u64::from(spec.block_size));
        let blocks = wanted.unwrap_or(has);
        if blocks == 0 {
            return Err(spec.refuse("it has room for no block", "at least one block"));
        }
        let unit = match spec.metadata {
            Some((metadata, Layout::Interleaved)) => {
                blocks.max(has).saturating_mul((metadata.size + spec.block_size as usize) as u64)
            }
            Some((_, Layout::Separate)) | None => u64::from(spec.block_size),
        };
        let data = Disk::new(spec, opened.file, spec.path, opened.is_device, unit)?;
        let pi = match pi {
            Some((file, _)) => Some(Disk::new(spec, file, &pi_path(spec.path), false, PI_FILE_HEADER)?),
            None => None,
        };
        let sectors = RangeLocks::new(1 << 16);
        let backend = Self {
            data,
            pi,
            block_size: spec.block_size as usize,
            metadata: spec.metadata,
            sectors,
            header: spec.header,
            volume: Mutex::new(spec.volume.to_owned()),
            stop: spec.stop.clone(),
            read_only: spec.read_only,
            before: Mutex::default(),
            _locks: [Some(opened.lock), pi_lock],
        };
        let extent = backend.extent()?;
        if blocks > has {
            backend.extend(has, blocks).inspect_err(|_| backend.restore(&extent))?;
        } else if blocks < has {
            tracing::info!(
                volume = spec.volume,
                file = %spec.path.display(),
                presented = blocks,
                stored = has,
                "the file has room for more blocks than the volume presents"
            );
        }
        Ok((backend, extent, blocks))
    }

    /// Where metadata lies among other things in sectors.
    pub(super) fn records(&self) -> Option<Records<'_>> {
        let (metadata, layout) = self.metadata?;
        Some(match (layout, &self.pi) {
            (Layout::Separate, Some(disk)) => Records { disk, base: PI_FILE_HEADER, stride: metadata.size },
            _ => Records { disk: &self.data, base: 0, stride: self.block_size + metadata.size },
        })
    }

    /// Makes room for `blocks` blocks; when it fails, files are as they were. One caller at a time; I/O goes on.
    pub(super) fn grow(&self, blocks: u64) -> Result<(), VolumeError> {
        let has = self.stored_blocks()?;
        if blocks <= has {
            return Ok(());
        }
        let before = self.extent()?;
        self.extend(has, blocks).inspect_err(|_| self.restore(&before))
    }

    /// Another volume has it now.
    pub(super) fn rename(&self, volume: &str) {
        volume.clone_into(&mut self.volume.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn volume(&self) -> String {
        self.volume.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whether this is the file of that name.
    pub(super) fn is_at(&self, path: &Path) -> bool {
        match (std::fs::metadata(path), self.data.plain.metadata()) {
            // A device has many names that are files of their own.
            (Ok(named), Ok(own)) if self.data.is_device => {
                named.file_type().is_block_device() && named.rdev() == own.rdev()
            }
            (Ok(named), Ok(own)) => (named.dev(), named.ino()) == (own.dev(), own.ino()),
            _ => false,
        }
    }

    /// Whether a volume of this identity, and otherwise like this one, may have the file.
    pub(super) fn check_identity(&self, volume: &str, uuid: Uuid) -> Result<(), VolumeError> {
        let (Some(header), Some(pi)) = (self.header, &self.pi) else { return Ok(()) };
        let needed = PiHeader { uuid, ..header };
        header.check(&needed).map_err(|problem| VolumeError::Metadata {
            volume: volume.to_owned(),
            path: pi.path.clone(),
            problem: Box::new(problem),
            command: needed.generate_command(&self.data.path),
        })
    }

    /// Blocks that there is room for.
    pub(super) fn stored_blocks(&self) -> Result<u64, VolumeError> {
        let length = length_of(&self.data.plain, self.data.is_device)
            .map_err(|error| self.system("ask the size of", &self.data.path, error))?;
        let each = match self.metadata {
            Some((metadata, Layout::Interleaved)) => self.block_size + metadata.size,
            Some((_, Layout::Separate)) | None => self.block_size,
        };
        Ok(length / each as u64)
    }

    fn extend(&self, has: u64, blocks: u64) -> Result<(), VolumeError> {
        let refuse = |what: String, allowed: String| VolumeError::File {
            volume: self.volume(),
            path: self.data.path.clone(),
            what,
            allowed,
        };
        if self.data.is_device || self.read_only {
            let kind = if self.data.is_device { "a block device" } else { "read-only" };
            return Err(refuse(
                format!("it is {kind} with room for {has} blocks, and {blocks} are asked for"),
                format!("at most {has} blocks"),
            ));
        }
        let data = &self.data;
        match (self.metadata, &self.pi, self.header) {
            (Some((metadata, Layout::Interleaved)), _, _) => {
                let stride = (self.block_size + metadata.size) as u64;
                let sector = data.sector as u64;
                if !blocks.saturating_mul(stride).is_multiple_of(sector) {
                    return Err(refuse(
                        format!("{blocks} blocks of {stride} bytes do not end at a sector"),
                        format!("a multiple of {} blocks", sector >> stride.trailing_zeros().min(12)),
                    ));
                }
                fill_unwritten(&data.plain, self.block_size, metadata, has..blocks, &self.stop)
                    .map_err(|error| self.system("fill", &data.path, error))?;
            }
            (_, Some(pi), Some(header)) => {
                // The header first: a `.pi` file for more blocks than the data file has is an extension that a crash
                // cut short, and is taken up again; the other way round it would be data without metadata.
                let header = PiHeader { blocks, ..header };
                pi.plain
                    .set_len(header.file_length())
                    .and_then(|()| pi.plain.write_all_at(&header.encode(), 0))
                    .and_then(|()| pi.plain.sync_all())
                    .map_err(|error| self.system("extend", &pi.path, error))?;
                self.lengthen(blocks)?;
            }
            (None | Some(_), _, _) => self.lengthen(blocks)?,
        }
        if has == 0 {
            tracing::info!(volume = self.volume(), file = %data.path.display(), blocks, "file made");
        } else {
            tracing::info!(volume = self.volume(), file = %data.path.display(), blocks_before = has, blocks, "file extended");
        }
        Ok(())
    }

    fn lengthen(&self, blocks: u64) -> Result<(), VolumeError> {
        let data = &self.data;
        data.plain
            .set_len(blocks * self.block_size as u64)
            .and_then(|()| data.plain.sync_all())
            .map_err(|error| self.system("extend", &data.path, error))
    }

    fn system(&self, operation: &'static str, path: &Path, source: io::Error) -> VolumeError {
        VolumeError::System { volume: self.volume(), operation, path: path.to_owned(), source }
    }

    /// Flips bits of a stored byte behind the engine's back; `at` counts from the block's data or metadata.
    #[cfg(feature = "_fault")]
    pub(super) fn corrupt(&self, lba: u64, place: super::fault::Place, mask: u8) {
        let (disk, at) = self.place(lba, place);
        let mut byte = [0];
        disk.plain.read_exact_at(&mut byte, at).expect("the byte to corrupt can be read");
        disk.plain.write_all_at(&[byte[0] ^ mask], at).expect("the byte to corrupt can be written");
        disk.plain.sync_all().expect("the corruption reaches the medium");
    }

    /// Writes a block behind the engine's back.
    #[cfg(feature = "_fault")]
    pub(super) fn store(
        &self,
        lba: u64,
        data: Option<&super::shared::Piece<'_>>,
        md: Option<&super::shared::Piece<'_>>,
    ) {
        use super::fault::Place;
        for (piece, place) in [(data, Place::Data(0)), (md, Place::Metadata(0))] {
            let Some(piece) = piece else { continue };
            let mut bytes = vec![0; piece.len()];
            piece.read(&mut bytes);
            if let (Place::Metadata(_), Some((metadata, Layout::Separate))) = (place, self.metadata) {
                metadata.invert(0, &mut bytes);
            }
            let (disk, at) = self.place(lba, place);
            disk.plain.write_all_at(&bytes, at).expect("the block can be written");
            disk.plain.sync_all().expect("the block reaches the medium");
        }
    }

    #[cfg(feature = "_fault")]
    fn place(&self, lba: u64, place: super::fault::Place) -> (&Disk, u64) {
        use super::fault::Place;
        let block = self.block_size as u64;
        match (place, self.records()) {
            (Place::Data(byte), Some(records)) if self.pi.is_none() => {
                (records.disk, records.base + lba * records.stride as u64 + byte as u64)
            }
            (Place::Data(byte), _) => (&self.data, lba * block + byte as u64),
            (Place::Metadata(byte), Some(records)) => {
                let behind = if self.pi.is_none() { block } else { 0 };
                (records.disk, records.base + lba * records.stride as u64 + behind + byte as u64)
            }
            (Place::Metadata(_), None) => panic!("the volume has no metadata to corrupt"),
        }
    }
}

impl Disk {
    /// Opens the file once more for I/O, without the page cache where `unit` allows: I/O starts at and has multiples
    /// of so many bytes, or it is a `.pi` or interleaved file of that length, whose I/O goes by sectors.
    fn new(
        spec: &FileSpec<'_>,
        plain: File,
        path: &Path,
        is_device: bool,
        unit: u64,
    ) -> Result<Self, VolumeError> {
        let (file, sector) = match direct(path, &plain, is_device, unit, spec.read_only) {
            Ok(direct) => direct,
            // That is no property of the file.
            Err(error)
                if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)) =>
            {
                return Err(spec.system("open", path, error));
            }
            Err(why) => {
                tracing::warn!(
                    volume = spec.volume,
                    file = %path.display(),
                    %why,
                    "direct I/O is not possible here; the page cache is used"
                );
                (plain.try_clone().map_err(|error| spec.system("open", path, error))?, 1)
            }
        };
        Ok(Self {
            file,
            plain,
            path: path.to_owned(),
            sector,
            no_punch: AtomicBool::new(false),
            no_zero: AtomicBool::new(false),
            is_device,
        })
    }
}

/// Opens for direct I/O; returns the sector size.
fn direct(
    path: &Path,
    plain: &File,
    is_device: bool,
    unit: u64,
    read_only: bool,
) -> io::Result<(File, usize)> {
    // Through the descriptor that is open already, not by name: the name may stand for another file by now.
    use std::os::fd::AsRawFd;
    let itself = PathBuf::from(format!("/proc/self/fd/{}", plain.as_raw_fd()));
    let name = if itself.exists() { itself.as_path() } else { path };
    let file = OpenOptions::new().read(true).write(!read_only).custom_flags(libc::O_DIRECT).open(name)?;
    let sector = if is_device {
        system::sector_size(&file)?
    } else {
        match system::direct_alignment(&file) {
            Ok(Some((memory, offset))) if memory > 0 && offset > 0 => offset.max(memory) as usize,
            Ok(Some(_)) => return Err(io::Error::other("the file system has none for this file")),
            // Kernels before 6.1, and file systems that don't tell: a page suits every device.
            Ok(None) | Err(_) => 4096,
        }
    };
    let sector = sector.max(512);
    if sector > 4096 || !unit.is_multiple_of(sector as u64) {
        return Err(io::Error::other(format!("it needs multiples of {sector} bytes")));
    }
    Ok((file, sector))
}

/// The data file, open and locked.
struct Opened {
    file: File,
    lock: Flock<File>,
    is_device: bool,
    /// Made now, or found without a byte.
    is_new: bool,
    length: u64,
}

impl Opened {
    fn open(spec: &FileSpec<'_>, made: &mut Made) -> Result<Self, VolumeError> {
        let kind = match std::fs::metadata(spec.path) {
            Ok(metadata) => Some(metadata.file_type()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(spec.system("look at", spec.path, error)),
        };
        let is_device = kind.is_some_and(|kind| kind.is_block_device());
        if kind.is_some_and(|kind| !kind.is_file() && !kind.is_block_device()) {
            return Err(spec.refuse("it is neither a file nor a block device", "a file or a block device"));
        }
        if kind.is_none() {
            spec.may_be_made()?;
            made.begin(spec)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(!spec.read_only).create_new(kind.is_none()).mode(0o600);
        if is_device && !spec.read_only {
            // On a device: fails when it is mounted or otherwise claimed.
            options.custom_flags(libc::O_EXCL);
        }
        let operation = if kind.is_none() { "make" } else { "open" };
        let file = options.open(spec.path).map_err(|error| spec.system(operation, spec.path, error))?;
        if kind.is_none() {
            made.data(spec, &file)?;
            made.sync_names(spec)?;
        }
        let lock = spec.lock(&file, spec.path)?;
        let length =
            length_of(&file, is_device).map_err(|error| spec.system("ask the size of", spec.path, error))?;
        let is_new = !is_device && length == 0;
        if is_new && spec.size.is_none() {
            return Err(spec.refuse("it is empty", "a `size`, such as size = \"1GiB\""));
        }
        Ok(Self { file, lock, is_device, is_new, length })
    }

    fn plain_blocks(&self, spec: &FileSpec<'_>) -> Result<u64, VolumeError> {
        self.whole_blocks(spec, u64::from(spec.block_size))
    }

    /// Blocks of `each` bytes that the file has.
    fn whole_blocks(&self, spec: &FileSpec<'_>, each: u64) -> Result<u64, VolumeError> {
        if !self.is_device && !self.length.is_multiple_of(each) {
            let what = format!("its {} bytes are no whole number of blocks of {each} bytes", self.length);
            return Err(spec.refuse(what, format!("a multiple of {each} bytes")));
        }
        Ok(self.length / each)
    }

    fn interleaved_blocks(&self, spec: &FileSpec<'_>, metadata: usize) -> Result<u64, VolumeError> {
        let each = u64::from(spec.block_size) + metadata as u64;
        let extends = spec.size.is_some_and(|size| size / u64::from(spec.block_size) > self.length / each);
        if extends && !self.is_device {
            // Filling that was cut short may have left a part of a block.
            return Ok(self.length / each);
        }
        self.whole_blocks(spec, each)
    }

    /// The `.pi` file, its lock, and for how many blocks both files have room.
    fn open_pi(&self, spec: &FileSpec<'_>, made: &mut Made) -> Result<(File, Flock<File>, u64), VolumeError> {
        let path = pi_path(spec.path);
        if self.is_device && spec.path.starts_with("/dev") && !spec.path.starts_with("/dev/shm") {
            return Err(spec.refuse(
                format!("{} would not outlive a restart of the machine", path.display()),
                "layout = \"interleaved\", or `file` naming a symbolic link to the device in a folder on a disk",
            ));
        }
        if std::fs::metadata(&path).is_ok_and(|found| !found.is_file()) {
            // To open a pipe may last for ever.
            let allowed = "one with the protection information of the data file";
            return Err(spec.refuse_file(&path, "it is no regular file", allowed));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(!spec.read_only);
        match options.open(&path) {
            Ok(file) => {
                let lock = spec.lock(&file, &path)?;
                let is_blank = self.is_new
                    && !spec.read_only
                    && is_blank(&file).map_err(|error| spec.system("read", &path, error))?;
                if is_blank {
                    spec.begin_pi(&file, &path)?;
                    return Ok((file, lock, 0));
                }
                let (file, blocks) = self.check_pi(spec, file, &path)?;
                Ok((file, lock, blocks))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && self.is_new => {
                let file = spec.make_pi(&path, made)?;
                let lock = spec.lock(&file, &path)?;
                Ok((file, lock, 0))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let blocks = self.length / u64::from(spec.block_size);
                let header = PiHeader { blocks, ..spec.pi_header() };
                Err(VolumeError::NoMetadata {
                    volume: spec.volume.to_owned(),
                    path: spec.path.to_owned(),
                    command: header.generate_command(spec.path),
                })
            }
            Err(error) => Err(spec.system("open", &path, error)),
        }
    }

    fn check_pi(&self, spec: &FileSpec<'_>, file: File, path: &Path) -> Result<(File, u64), VolumeError> {
        let refuse = |problem| VolumeError::Metadata {
            volume: spec.volume.to_owned(),
            path: path.to_owned(),
            problem: Box::new(problem),
            command: spec.pi_header().generate_command(spec.path),
        };
        let length = length_of(&file, false).map_err(|error| spec.system("ask the size of", path, error))?;
        if length < PI_FILE_HEADER {
            return Err(refuse(PiFileError::Truncated { length, needed: PI_FILE_HEADER }));
        }
        let mut bytes = [0; PI_HEADER_LEN];
        file.read_exact_at(&mut bytes, 0).map_err(|error| spec.system("read", path, error))?;
        let header = PiHeader::decode(&bytes).map_err(refuse)?;
        header.check(&spec.pi_header()).map_err(refuse)?;
        if length < header.file_length() {
            return Err(refuse(PiFileError::Truncated { length, needed: header.file_length() }));
        }
        let has = self.plain_blocks(spec)?;
        let continues = !self.is_device
            && spec.size.is_some_and(|size| size / u64::from(spec.block_size) >= header.blocks);
        if has > header.blocks || (has < header.blocks && !continues) {
            return Err(refuse(PiFileError::Mismatch {
                field: "number of blocks",
                found: header.blocks.to_string(),
                expected: has.to_string(),
            }));
        }
        Ok((file, has))
    }
}

impl FileSpec<'_> {
    fn may_be_made(&self) -> Result<(), VolumeError> {
        if self.size.is_none() {
            return Err(self.refuse("it does not exist", "a `size` to make it with, such as size = \"1GiB\""));
        }
        if self.read_only {
            return Err(self.refuse("it does not exist", "a file that exists, for it is read_only"));
        }
        let pi = pi_path(self.path);
        if self.pi_is_separate() && pi.exists() {
            return Err(self.refuse(
                format!("it does not exist, but {} does", pi.display()),
                "both or neither: restore the one, or move the other away",
            ));
        }
        Ok(())
    }

    fn pi_is_separate(&self) -> bool {
        matches!(self.metadata, Some((_, Layout::Separate)))
    }

    fn pi_header(&self) -> PiHeader {
        self.header.expect("a protected volume says what its `.pi` file would")
    }

    /// Makes the `.pi` file of a new data file, for no blocks yet.
    fn make_pi(&self, path: &Path, made: &mut Made) -> Result<File, VolumeError> {
        made.begin(self)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(|error| self.system("make", path, error))?;
        made.pi(self, path, &file)?;
        self.begin_pi(&file, path)?;
        made.sync_names(self)?;
        Ok(file)
    }

    /// Writes the first header of a `.pi` file, for no blocks yet.
    fn begin_pi(&self, file: &File, path: &Path) -> Result<(), VolumeError> {
        let header = PiHeader { blocks: 0, ..self.pi_header() };
        file.set_len(header.file_length())
            .and_then(|()| file.write_all_at(&header.encode(), 0))
            .and_then(|()| file.sync_all())
            .map_err(|error| self.system("write", path, error))
    }

    fn lock(&self, file: &File, path: &Path) -> Result<Flock<File>, VolumeError> {
        const STEP: Duration = Duration::from_millis(20);
        let mut file = file.try_clone().map_err(|error| self.system("open", path, error))?;
        let how = if self.read_only { FlockArg::LockSharedNonblock } else { FlockArg::LockExclusiveNonblock };
        let mut waited = Duration::ZERO;
        loop {
            match Flock::lock(file, how) {
                Ok(lock) => return Ok(lock),
                Err((back, nix::Error::EWOULDBLOCK)) if waited < LOCK_WAIT => file = back,
                Err((_, nix::Error::EWOULDBLOCK)) => {
                    return Err(self.refuse_file(
                        path,
                        "another volume or process has it open",
                        "a file of its own for each volume",
                    ));
                }
                Err((_, errno)) => return Err(self.system("lock", path, errno.into())),
            }
            std::thread::sleep(STEP);
            waited += STEP;
        }
    }

    fn refuse(&self, what: impl Into<String>, allowed: impl Into<String>) -> VolumeError {
        self.refuse_file(self.path, what, allowed)
    }

    /// As [`Self::refuse`], for another of the volume's files.
    fn refuse_file(&self, path: &Path, what: impl Into<String>, allowed: impl Into<String>) -> VolumeError {
        VolumeError::File {
            volume: self.volume.to_owned(),
            path: path.to_owned(),
            what: what.into(),
            allowed: allowed.into(),
        }
    }

    fn system(&self, operation: &'static str, path: &Path, source: io::Error) -> VolumeError {
        VolumeError::System { volume: self.volume.to_owned(), operation, path: path.to_owned(), source }
    }
}

/// Where a file's name stands.
fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

fn length_of(file: &File, is_device: bool) -> io::Result<u64> {
    if is_device { Ok(system::device_size(file)?) } else { Ok(file.metadata()?.len()) }
}

/// Whether nothing stands in a `.pi` file: a crash came between its making and its header.
fn is_blank(file: &File) -> io::Result<bool> {
    let mut bytes = Vec::new();
    file.take(PI_FILE_HEADER + 1).read_to_end(&mut bytes)?;
    Ok(bytes.len() as u64 <= PI_FILE_HEADER && bytes.iter().all(|byte| *byte == 0))
}

/// Appends blocks that nobody wrote to an interleaved file, and makes them durable.
fn fill_unwritten(
    file: &File,
    block_size: usize,
    metadata: Metadata,
    blocks: std::ops::Range<u64>,
    stop: &Stop,
) -> io::Result<()> {
    const AT_ONCE: u64 = 256;
    /// Bytes between two calls that make them durable: one of them for all would be long, and deaf to `stop`.
    const DURABLE: u64 = 64 << 20;
    let stride = block_size + metadata.size;
    let mut one = vec![0; stride];
    metadata.invert(0, &mut one[block_size..]);
    let many = one.repeat(usize::try_from(AT_ONCE).expect("it is small"));
    let (mut at, mut pending) = (blocks.start, 0);
    while at < blocks.end {
        if stop.is_set() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "told to end"));
        }
        let here = AT_ONCE.min(blocks.end - at);
        let bytes = &many[..stride * usize::try_from(here).expect("at most 256")];
        file.write_all_at(bytes, at * stride as u64)?;
        at += here;
        pending += bytes.len() as u64;
        if pending >= DURABLE {
            file.sync_data()?;
            pending = 0;
        }
    }
    file.sync_all()
}
