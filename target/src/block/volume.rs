//! A volume: identity, geometry, protection format, locks and backend of a logical disk.
//!
//! Owns what namespaces and logical units present, and changes of size. One volume may be presented several times
//! and is used by all reactors at once. Never carries out I/O; that is the engine's.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rwctx::mem::Region;
use t10pi::{Format, Guard, PiType};
use thiserror::Error;

use super::engine::EngineError;
use super::file::{Extent, FileBackend, FileSpec};
use super::identity::Identity;
use super::locks::{Lock, Mode, RangeGuard, RangeLocks};
use super::memory::{MemoryBackend, Segment, Transfer};
use super::metadata::Metadata;
use super::null::NullBackend;
use super::number::Number;
use super::pi_file::{PiFileError, PiHeader};
use super::pool::Buf;
use super::stop::Stop;
use super::uring;

/// Where the metadata of blocks is stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Layout {
    /// In an area (or file) of its own.
    #[default]
    Separate,
    /// Behind each block.
    Interleaved,
}

/// How a volume's blocks are protected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Protection {
    /// Guard, metadata size, position, storage tag.
    pub format: Format,
    /// Type 1, 2 or 3.
    pub pi_type: PiType,
    /// Where the metadata is stored.
    pub layout: Layout,
}

/// What a volume is to be.
#[derive(Clone, Debug)]
pub struct VolumeConfig {
    /// Unique in the configuration.
    pub name: String,
    /// What names it towards hosts.
    pub identity: Identity,
    /// Bytes of user data in a block: 512 or 4096.
    pub block_size: u32,
    /// None: blocks have no metadata.
    pub protection: Option<Protection>,
    /// Refuses every operation that changes blocks.
    pub read_only: bool,
    /// What stores it.
    pub backend: BackendConfig,
    /// Ends what takes long.
    pub stop: Stop,
}

/// What stores a volume.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BackendConfig {
    /// Memory of this process; gone when it ends.
    Memory {
        /// Bytes of user data, a multiple of the block size.
        size: u64,
    },
    /// A file or block device.
    File {
        /// Where.
        path: PathBuf,
        /// Bytes of user data that the volume presents, a multiple of the block size: a file that does not exist is
        /// made, one that has less is extended, one that has more is left as it is. Absent: what it has.
        size: Option<u64>,
    },
    /// Nothing: reads as never written.
    Null {
        /// Bytes of user data, a multiple of the block size.
        size: u64,
    },
}

/// The kind of a volume's backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BackendKind {
    /// Memory of this process.
    Memory,
    /// A file or block device.
    File,
    /// Nothing.
    Null,
}

/// A logical disk.
pub struct Volume {
    name: String,
    number: Number,
    identity: Identity,
    block_size: u32,
    blocks: AtomicU64,
    protection: Option<Protection>,
    read_only: bool,
    locks: Arc<RangeLocks>,
    backend: Backend,
    file: Option<PathBuf>,
    /// Blocks that were cut off and not emptied, because somebody used them: from this one on. Held while the size changes.
    resizing: Mutex<Option<u64>>,
    #[cfg(feature = "_fault")]
    faults: super::fault::Faults,
}

#[derive(Debug)]
pub(super) enum Backend {
    Memory(MemoryBackend),
    /// Shared with the volume that has the file next, where a reload gives it to another.
    File(Arc<FileBackend>),
    Null(NullBackend),
}

/// Why a volume can't be opened or changed.
#[derive(Debug, Error)]
pub enum VolumeError {
    /// A size, block size or format that can't be.
    #[error("volume {volume:?}: {what}; {allowed}")]
    Geometry {
        /// The volume.
        volume: String,
        /// What is wrong.
        what: String,
        /// What would be right.
        allowed: String,
    },
    /// A file that does not fit.
    #[error("volume {volume:?}: {}: {what}; needed: {allowed}", path.display())]
    File {
        /// The volume.
        volume: String,
        /// Its file.
        path: PathBuf,
        /// What is wrong.
        what: String,
        /// What would be right.
        allowed: String,
    },
    /// A file with data, but without its `.pi` file.
    #[error(
        "volume {volume:?}: {} has data, but no protection information beside it; put its .pi file there, or, if the data is known to be good, make a new one: {command}",
        path.display()
    )]
    NoMetadata {
        /// The volume.
        volume: String,
        /// Its file.
        path: PathBuf,
        /// The command that makes the `.pi` file from the data.
        command: String,
    },
    /// A `.pi` file that is damaged or of another volume or format.
    #[error(
        "volume {volume:?}: {}: {problem}; give the volume what the file says, or, if the data is known to be good, remove the file and make a new one: {command}",
        path.display()
    )]
    Metadata {
        /// The volume.
        volume: String,
        /// Its `.pi` file.
        path: PathBuf,
        /// What is wrong.
        problem: Box<PiFileError>,
        /// The command that makes the `.pi` file from the data.
        command: String,
    },
    /// The system refused.
    #[error("volume {volume:?}: can't {operation} {}", path.display())]
    System {
        /// The volume.
        volume: String,
        /// What was tried.
        operation: &'static str,
        /// On what; for memory its size.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// File volumes can't be served on this machine.
    #[error("volume {volume:?} is a file, and files can't be served")]
    NoEngine {
        /// The volume.
        volume: String,
        /// Why.
        #[source]
        source: EngineError,
    },
    /// Commands in the blocks to be cut off did not end in time.
    #[error("volume {volume:?}: blocks that were cut off are still in use after {waited:?}")]
    InUse {
        /// The volume.
        volume: String,
        /// How long it was waited for them.
        waited: Duration,
    },
}

impl Volume {
    /// Opens, and where the configuration says so makes, a volume.
    ///
    /// # Errors
    /// Geometry that can't be, files that don't fit the configuration, or the system's refusal: each says what is
    /// wrong, where, and what is allowed.
    pub fn open(config: VolumeConfig) -> Result<Arc<Self>, VolumeError> {
        let geometry = Geometry::check(&config)?;
        let metadata =
            config.protection.map(|protection| (Metadata::new(&protection.format), protection.layout));
        let (backend, blocks) = match &config.backend {
            BackendConfig::Memory { size } => {
                let blocks = geometry.blocks(*size)?;
                let memory = MemoryBackend::new(config.block_size, metadata, blocks)
                    .map_err(|errno| geometry.no_memory(*size, errno))?;
                (Backend::Memory(memory), blocks)
            }
            BackendConfig::File { path, size } => {
                if let Some(size) = size {
                    geometry.blocks(*size)?;
                }
                let no_engine = |source| VolumeError::NoEngine { volume: config.name.clone(), source };
                uring::check().map_err(no_engine)?;
                let header = config.protection.map(|protection| PiHeader {
                    uuid: config.identity.uuid(),
                    format: protection.format,
                    pi_type: protection.pi_type,
                    blocks: 0,
                });
                let (file, blocks) = FileBackend::open(&FileSpec {
                    volume: &config.name,
                    path,
                    size: *size,
                    block_size: config.block_size,
                    metadata,
                    header,
                    read_only: config.read_only,
                    stop: &config.stop,
                })?;
                (Backend::File(Arc::new(file)), blocks)
            }
            BackendConfig::Null { size } => {
                let null = NullBackend::new(metadata.map(|(metadata, _)| metadata));
                (Backend::Null(null), geometry.blocks(*size)?)
            }
        };
        Ok(Self::assemble(config, blocks, backend, RangeLocks::new(blocks)))
    }

    fn assemble(config: VolumeConfig, blocks: u64, backend: Backend, locks: Arc<RangeLocks>) -> Arc<Self> {
        let file = match config.backend {
            BackendConfig::File { path, .. } => Some(path),
            BackendConfig::Memory { .. } | BackendConfig::Null { .. } => None,
        };
        Arc::new(Self {
            name: config.name,
            number: Number::take(),
            identity: config.identity,
            block_size: config.block_size,
            blocks: AtomicU64::new(blocks),
            protection: config.protection,
            read_only: config.read_only,
            locks,
            backend,
            file,
            resizing: Mutex::new(None),
            #[cfg(feature = "_fault")]
            faults: super::fault::Faults::default(),
        })
    }

    /// Its name in the configuration.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A small number that no other volume has while this one lives: an index for whoever knows something of each.
    #[must_use]
    pub fn number(&self) -> usize {
        self.number.index()
    }

    /// What names it towards hosts.
    #[must_use]
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Bytes of user data in a block: 512 or 4096.
    #[must_use]
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// Bytes of metadata of a block; 0 without protection.
    #[must_use]
    pub fn metadata_size(&self) -> u16 {
        self.protection.map_or(0, |protection| protection.format.metadata_size())
    }

    /// Its size in blocks; changes by [`Pending::resize`](super::Pending::resize).
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Acquire)
    }

    /// How its blocks are protected.
    #[must_use]
    pub fn protection(&self) -> Option<&Protection> {
        self.protection.as_ref()
    }

    /// Whether it refuses to be changed.
    #[must_use]
    pub fn read_only(&self) -> bool {
        self.read_only
    }

    /// Its range locks.
    #[must_use]
    pub fn locks(&self) -> &Arc<RangeLocks> {
        &self.locks
    }

    /// What stores it.
    #[must_use]
    pub fn backend_kind(&self) -> BackendKind {
        match self.backend {
            Backend::Memory(_) => BackendKind::Memory,
            Backend::File(_) => BackendKind::File,
            Backend::Null(_) => BackendKind::Null,
        }
    }

    /// The file or block device that it is in, as the configuration names it.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Whether completed writes may be lost by a power failure until a flush (the volatile write cache that hosts
    /// are told of). Memory volumes have none: their writes are as durable as they get.
    #[must_use]
    pub fn has_write_cache(&self) -> bool {
        match self.backend {
            Backend::File(_) => true,
            Backend::Memory(_) | Backend::Null(_) => false,
        }
    }

    #[cfg(feature = "_fault")]
    pub(super) fn faults(&self) -> &super::fault::Faults {
        &self.faults
    }

    pub(super) fn backend(&self) -> &Backend {
        &self.backend
    }

    /// A volume in the file of this one, to be presented in its stead. Both have the file and the locks together, so that
    /// commands which are under way keep out of each other's way. Says how far the file went before, too.
    ///
    /// # Errors
    /// No file; other blocks or protection; a file that is open for reading alone; no room.
    pub(super) fn successor(&self, config: VolumeConfig) -> Result<(Arc<Self>, Extent), VolumeError> {
        let Backend::File(file) = &self.backend else {
            panic!("only a volume in a file leaves it to another")
        };
        let geometry = Geometry::check(&config)?;
        let refuse = |what: &str| VolumeError::File {
            volume: config.name.clone(),
            path: file.data.path.clone(),
            what: format!("volume {:?} has it {what}", self.name),
            allowed: format!("a configuration without volume {:?} first, and then this one", self.name),
        };
        if config.block_size != self.block_size || config.protection != self.protection {
            return Err(refuse("with other blocks or another protection"));
        }
        if self.read_only && !config.read_only {
            return Err(refuse("open for reading alone"));
        }
        file.check_identity(&config.name, config.identity.uuid())?;
        let BackendConfig::File { size, .. } = config.backend else {
            panic!("only a volume in a file has the file of another")
        };
        let has = file.stored_blocks()?;
        let blocks = size.map_or(Ok(has), |size| geometry.blocks(size))?;
        let extent = file.extent()?;
        file.grow(blocks)?;
        let backend = Backend::File(Arc::clone(file));
        Ok((Self::assemble(config, blocks, backend, Arc::clone(&self.locks)), extent))
    }

    /// Whether it is in this file, by whatever name.
    #[must_use]
    pub fn is_in(&self, path: &Path) -> bool {
        match &self.backend {
            Backend::File(file) => file.is_at(path),
            Backend::Memory(_) | Backend::Null(_) => false,
        }
    }

    /// Makes room for `blocks` blocks, where that is in memory; the size stays for now. Blocks that are to come again were
    /// emptied, or are now.
    pub(super) fn prepare(&self, blocks: u64) -> Result<Option<Segment>, VolumeError> {
        let geometry = Geometry { volume: &self.name, block_size: self.block_size };
        let size = blocks.saturating_mul(u64::from(self.block_size));
        geometry.blocks(size)?;
        let Backend::Memory(memory) = &self.backend else { return Ok(None) };
        let first_used = *self.resizing();
        if let Some(first) = first_used.filter(|first| *first < blocks) {
            self.empty(first, &mut Duration::from_secs(1))?;
        }
        memory.prepare(blocks).map_err(|errno| match errno {
            nix::Error::ENOSPC => {
                geometry.error("it has grown as often as it can", "a restart, and then so many blocks")
            }
            errno => geometry.no_memory(size, errno),
        })
    }

    /// Presents `blocks` blocks, for which there is room. Blocks that are cut off are to be [emptied](Self::empty): from the
    /// one that is returned.
    pub(super) fn present(&self, blocks: u64) -> Option<u64> {
        let mut first_used = self.resizing();
        let before = self.blocks.swap(blocks, Ordering::AcqRel);
        tracing::info!(volume = self.name, before, after = blocks, "volume resized");
        if blocks >= before || !matches!(self.backend, Backend::Memory(_)) {
            return None;
        }
        *first_used = Some(first_used.map_or(blocks, |first| first.min(blocks)));
        *first_used
    }

    /// Empties the blocks from `first` on, which were cut off, when no command uses them any more; waits for that at most
    /// `wait`, which becomes less by it.
    pub(super) fn empty(&self, first: u64, wait: &mut Duration) -> Result<(), VolumeError> {
        let Backend::Memory(memory) = &self.backend else { return Ok(()) };
        let mut first_used = self.resizing();
        let blocks = memory.blocks() - first;
        let _guard = self.wait_for_end_of(first, blocks, wait)?;
        memory.transfer(first, blocks, Transfer::Deallocate);
        *first_used = None;
        Ok(())
    }

    fn resizing(&self) -> MutexGuard<'_, Option<u64>> {
        // One thread alone uses it.
        self.resizing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until no command uses the blocks any more, at most for `wait`.
    fn wait_for_end_of(
        &self,
        slba: u64,
        blocks: u64,
        wait: &mut Duration,
    ) -> Result<RangeGuard, VolumeError> {
        const STEP: Duration = Duration::from_millis(1);
        let mut range = match self.locks.lock_by_polling(slba, blocks, Mode::Write) {
            Lock::Held(guard) => return Ok(guard),
            Lock::Waiting(range) => range,
        };
        let mut waited = Duration::ZERO;
        while !wait.is_zero() {
            std::thread::sleep(STEP);
            waited += STEP;
            *wait = wait.saturating_sub(STEP);
            if let Some(guard) = range.poll() {
                return Ok(guard);
            }
        }
        Err(VolumeError::InUse { volume: self.name.clone(), waited })
    }

    /// Where the data of `nlb` blocks from `slba` lies in memory, for sending it from there: region, offset and
    /// length in bytes. `None` when it is not one plain piece of memory; then read it into a buffer.
    ///
    /// The region stays the same for the volume's life, so that a device registers it once. The bytes stay unchanged
    /// while a guard for reading is held.
    #[must_use]
    pub fn shared_data(&self, slba: u64, nlb: u32) -> Option<(&Arc<Region>, usize, usize)> {
        match &self.backend {
            Backend::Memory(memory) => memory.contiguous(slba, u64::from(nlb)),
            Backend::File(_) | Backend::Null(_) => None,
        }
    }

    /// As [`Self::read_metadata`], into memory that no device uses.
    ///
    /// # Panics
    /// When the guard is of another volume; on volumes without shared data.
    pub fn read_tuples(&self, guard: &RangeGuard, tuples: &mut Vec<u8>) {
        let (slba, blocks) = (guard.slba(), guard.blocks());
        assert!(guard.covers(&self.locks, slba, blocks, Mode::Read), "the guard is one of this volume");
        let Backend::Memory(memory) = &self.backend else {
            panic!("only volumes in memory have data to share")
        };
        memory.read_metadata(slba, blocks, tuples);
    }

    /// Asks the processor for the metadata of the blocks that `guard` holds, of a volume with shared data.
    pub fn prefetch_metadata(&self, guard: &RangeGuard) {
        if let Backend::Memory(memory) = &self.backend {
            memory.prefetch_metadata(guard.slba(), guard.blocks());
        }
    }

    /// The metadata of the blocks that `guard` holds, as hosts see it, to `md`: beside [`Self::shared_data`], for
    /// volumes whose data is used where it lies.
    ///
    /// # Panics
    /// When the guard is of another volume, or `md` has another length; on volumes without shared data.
    pub fn read_metadata(&self, guard: &RangeGuard, md: &Buf) {
        let (slba, blocks) = (guard.slba(), guard.blocks());
        assert!(guard.covers(&self.locks, slba, blocks, Mode::Read), "the guard is one of this volume");
        let Backend::Memory(memory) = &self.backend else {
            panic!("only volumes in memory have data to share")
        };
        memory.transfer(slba, blocks, Transfer::Read { data: None, md: Some(md.piece()) });
    }
}

impl fmt::Debug for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Volume")
            .field("name", &self.name)
            .field("blocks", &self.blocks())
            .field("block_size", &self.block_size)
            .field("protection", &self.protection)
            .finish_non_exhaustive()
    }
}

/// Checks of sizes.
struct Geometry<'v> {
    volume: &'v str,
    block_size: u32,
}

impl<'v> Geometry<'v> {
    fn check(config: &'v VolumeConfig) -> Result<Self, VolumeError> {
        let geometry = Self { volume: &config.name, block_size: config.block_size };
        if !matches!(config.block_size, 512 | 4096) {
            let what = format!("block size {} is not possible", config.block_size);
            return Err(geometry.error(what, "a block has 512 or 4096 bytes"));
        }
        if let Some(protection) = &config.protection
            && protection.format.guard() == Guard::Ip
        {
            return Err(
                geometry.error("the Internet checksum is no guard of a medium", "CRC-16, CRC-32C or CRC-64")
            );
        }
        if let Some(protection) = &config.protection
            && protection.format.block_size() != config.block_size
        {
            let what = format!("its format protects blocks of {} bytes", protection.format.block_size());
            return Err(geometry.error(what, format!("its blocks have {} bytes", config.block_size)));
        }
        Ok(geometry)
    }

    fn blocks(&self, size: u64) -> Result<u64, VolumeError> {
        // A file offset is a signed 64-bit number, and metadata may be as large as data.
        const MOST: u64 = 1 << 60;
        if size == 0 || !size.is_multiple_of(u64::from(self.block_size)) || size > MOST {
            let allowed = format!("a multiple of the block size, {}, up to 1 EiB", self.block_size);
            return Err(self.error(format!("size {size} is not possible"), allowed));
        }
        Ok(size / u64::from(self.block_size))
    }

    fn error(&self, what: impl Into<String>, allowed: impl Into<String>) -> VolumeError {
        VolumeError::Geometry { volume: self.volume.to_owned(), what: what.into(), allowed: allowed.into() }
    }

    fn no_memory(&self, size: u64, errno: nix::Error) -> VolumeError {
        VolumeError::System {
            volume: self.volume.to_owned(),
            operation: "map memory of bytes",
            path: PathBuf::from(size.to_string()),
            source: errno.into(),
        }
    }
}
