//! A volume with an engine and buffers, and the calls of the tests on them.

use std::path::Path;
use std::sync::Arc;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use t10pi::{Format, Guard, PiType};
use tempfile::TempDir;

use super::super::*;

/// Backends that keep data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Memory,
    /// In the folder for temporary files; on most machines without the page cache.
    File,
    /// In memory, through the page cache.
    Tmpfs,
}

impl Kind {
    pub(super) const ALL: [Self; 3] = [Self::Memory, Self::File, Self::Tmpfs];
}

/// Block size, metadata and layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) block_size: u32,
    pub(super) guard: Option<(Guard, u16)>,
    pub(super) layout: Layout,
}

impl Shape {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        [
            (512, None, Layout::Separate),
            (512, Some((Guard::Crc16, 8)), Layout::Separate),
            (512, Some((Guard::Crc16, 8)), Layout::Interleaved),
            (512, Some((Guard::Crc16, 24)), Layout::Separate),
            (4096, None, Layout::Separate),
            (4096, Some((Guard::Crc16, 8)), Layout::Separate),
            (4096, Some((Guard::Crc16, 8)), Layout::Interleaved),
            (4096, Some((Guard::Crc64, 16)), Layout::Separate),
            (4096, Some((Guard::Crc32c, 64)), Layout::Interleaved),
        ]
        .into_iter()
        .map(|(block_size, guard, layout)| Self { block_size, guard, layout })
    }

    pub(super) fn protection(self) -> Option<Protection> {
        self.guard.map(|(guard, metadata_size)| Protection {
            format: Format::new(guard, self.block_size, metadata_size).unwrap(),
            pi_type: PiType::Type1,
            layout: self.layout,
        })
    }
}

/// A memory volume's configuration.
pub(super) fn memory(shape: Shape, blocks: u64) -> VolumeConfig {
    VolumeConfig {
        name: "disk0".to_owned(),
        identity: Identity::new("nqn.2026-11.io.intact:disk0", "disk0", None, None),
        block_size: shape.block_size,
        protection: shape.protection(),
        read_only: false,
        backend: BackendConfig::Memory { size: blocks * u64::from(shape.block_size) },
        stop: Stop::default(),
    }
}

/// A file volume's configuration; `size` in blocks.
pub(super) fn file(shape: Shape, path: &Path, blocks: Option<u64>) -> VolumeConfig {
    let size = blocks.map(|blocks| blocks * u64::from(shape.block_size));
    VolumeConfig { backend: BackendConfig::File { path: path.to_owned(), size }, ..memory(shape, 1) }
}

/// A volume with an engine and buffers.
pub(super) struct Bench {
    pub(super) volume: Arc<Volume>,
    pub(super) engine: Engine,
    pub(super) pool: BufPool,
    pub(super) waker: WakerId,
    pub(super) fua: bool,
    shape: Shape,
    _folder: Option<TempDir>,
}

impl Bench {
    pub(super) fn new(kind: Kind, shape: Shape, blocks: u64) -> Self {
        let folder = match kind {
            Kind::Memory => return Self::with(Volume::open(memory(shape, blocks)).unwrap(), shape),
            Kind::File => tempfile::tempdir().unwrap(),
            Kind::Tmpfs => tempfile::tempdir_in("/dev/shm").unwrap(),
        };
        let config = file(shape, &folder.path().join("disk0.img"), Some(blocks));
        let bench = Self::with(Volume::open(config).unwrap(), shape);
        Self { _folder: Some(folder), ..bench }
    }

    pub(super) fn with(volume: Arc<Volume>, shape: Shape) -> Self {
        let pool = BufPool::new(32 << 20).unwrap();
        let mut engine = Engine::new(64).unwrap();
        if volume.backend_kind() == BackendKind::File {
            engine.file_setup().prepare().unwrap();
        }
        let waker = engine.attach(&volume).unwrap();
        engine.register_buffers(&pool);
        Self { volume, engine, pool, waker, fua: false, shape, _folder: None }
    }

    /// An operation without buffers and guard.
    pub(super) fn io(&self, op: IoOp, slba: u64, nlb: u32) -> Io {
        let volume = Arc::clone(&self.volume);
        Io { volume, op, slba, nlb, data: None, md: None, fua: self.fua, guard: None, token: 17 }
    }

    /// Locks the blocks, submits, waits.
    pub(super) fn run(&mut self, mut io: Io) -> IoDone {
        if io.op != IoOp::Flush {
            let mode = if io.op == IoOp::Read { Mode::Read } else { Mode::Write };
            io.guard = self.volume.locks().try_lock(io.slba, u64::from(io.nlb), mode);
        }
        match self.engine.submit(io) {
            Submit::Done(done) => done,
            Submit::Pending => self.wait(),
            Submit::Busy(_) => panic!("there is room"),
        }
    }

    /// The next completion.
    pub(super) fn wait(&mut self) -> IoDone {
        loop {
            if let Some(done) = self.engine.poll() {
                return done;
            }
            self.sleep();
        }
    }

    /// Sleeps until the engine has something, as a reactor does.
    pub(super) fn sleep(&mut self) {
        let mut fds = [PollFd::new(self.engine.fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::from(20_000_u16)), Ok(1), "the engine tells of progress");
        self.engine.clear_event();
    }

    /// Whether the engine's descriptor is readable.
    pub(super) fn readable(&self) -> bool {
        let mut fds = [PollFd::new(self.engine.fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::ZERO).unwrap() == 1
    }

    pub(super) fn buf(&self, bytes: &[u8]) -> Option<Buf> {
        (!bytes.is_empty()).then(|| {
            let mut buf = self.pool.take(bytes.len()).unwrap();
            buf.bytes_mut().copy_from_slice(bytes);
            buf
        })
    }

    pub(super) fn write_io(&self, slba: u64, data: &[u8], md: &[u8]) -> Io {
        let nlb = u32::try_from(data.len()).unwrap() / self.shape.block_size;
        Io { data: self.buf(data), md: self.buf(md), ..self.io(IoOp::Write, slba, nlb) }
    }

    pub(super) fn write(&mut self, slba: u64, data: &[u8], md: &[u8]) -> Result<(), IoError> {
        let io = self.write_io(slba, data, md);
        self.run(io).result
    }

    pub(super) fn zero(&mut self, slba: u64, nlb: u32, md: Option<&[u8]>) -> Result<(), IoError> {
        let md = md.and_then(|md| self.buf(md));
        let io = Io { md, ..self.io(IoOp::WriteZeroes, slba, nlb) };
        self.run(io).result
    }

    pub(super) fn deallocate(&mut self, slba: u64, nlb: u32) -> Result<(), IoError> {
        let io = self.io(IoOp::Deallocate, slba, nlb);
        self.run(io).result
    }

    pub(super) fn flush(&mut self) -> Result<(), IoError> {
        let io = self.io(IoOp::Flush, 0, 0);
        self.run(io).result
    }

    pub(super) fn read(&mut self, slba: u64, nlb: u32) -> (Vec<u8>, Vec<u8>) {
        self.read_parts(slba, nlb, true, true)
    }

    pub(super) fn read_parts(&mut self, slba: u64, nlb: u32, data: bool, md: bool) -> (Vec<u8>, Vec<u8>) {
        let io = self.read_io(slba, nlb, data, md);
        let done = self.run(io);
        assert_eq!(done.result, Ok(()));
        assert_eq!(done.io.token, 17);
        bytes_of(&done.io)
    }

    fn read_io(&self, slba: u64, nlb: u32, data: bool, md: bool) -> Io {
        let buf = |wanted: bool, each: usize| {
            (wanted && each > 0).then(|| {
                let mut buf = self.pool.take(nlb as usize * each).unwrap();
                buf.bytes_mut().fill(0xEE);
                buf
            })
        };
        let data = buf(data, self.shape.block_size as usize);
        let md = buf(md, usize::from(self.volume.metadata_size()));
        Io { data, md, ..self.io(IoOp::Read, slba, nlb) }
    }

    /// Data that names its blocks.
    pub(super) fn pattern(&self, slba: u64, nlb: u32) -> Vec<u8> {
        pattern(slba, nlb, self.shape.block_size as usize, 0x5A)
    }

    /// Metadata that names its blocks.
    pub(super) fn md_pattern(&self, slba: u64, nlb: u32) -> Vec<u8> {
        pattern(slba, nlb, usize::from(self.volume.metadata_size()), 0x33)
    }

    pub(super) fn write_pattern(&mut self, slba: u64, nlb: u32) {
        let (data, md) = (self.pattern(slba, nlb), self.md_pattern(slba, nlb));
        self.write(slba, &data, &md).unwrap();
    }

    pub(super) fn expect_pattern(&mut self, slba: u64, nlb: u32) {
        let (data, md) = self.read(slba, nlb);
        assert!(data == self.pattern(slba, nlb), "data of {slba}+{nlb}");
        assert!(md == self.md_pattern(slba, nlb), "metadata of {slba}+{nlb}");
    }

    /// Metadata of blocks that nobody wrote: zero, and ones in the tuple.
    pub(super) fn unwritten(&self, nlb: u32) -> Vec<u8> {
        let Some(Protection { format, .. }) = self.shape.protection() else { return Vec::new() };
        let mut one = vec![0; usize::from(format.metadata_size())];
        one[format.tuple_offset()..][..format.tuple_size()].fill(0xFF);
        one.repeat(nlb as usize)
    }

    /// Random operations beside a plain array.
    pub(super) fn compare_with_array(&mut self, steps: u32) {
        let blocks = u32::try_from(self.volume.blocks()).unwrap();
        let block = self.shape.block_size as usize;
        let each = usize::from(self.volume.metadata_size());
        let mut data = vec![0; blocks as usize * block];
        let mut md = self.unwritten(blocks);
        let mut random = 0x9E37_79B9_u64;
        let mut next = |below: u32| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            u32::try_from((random >> 33) % u64::from(below)).unwrap()
        };
        for step in 0..steps {
            let slba = next(blocks);
            let most = if next(4) == 0 { 300 } else { 9 };
            let nlb = 1 + next(most.min(blocks - slba));
            let (at, length) = (slba as usize, nlb as usize);
            let (data, md) =
                (&mut data[at * block..][..length * block], &mut md[at * each..][..length * each]);
            let slba = u64::from(slba);
            match next(8) {
                0..=3 => {
                    data.copy_from_slice(&self.pattern(u64::from(step) << 16, nlb));
                    md.copy_from_slice(&self.md_pattern(u64::from(step) << 16, nlb));
                    self.write(slba, data, md).unwrap();
                }
                4 => {
                    data.fill(0);
                    let given = next(2) == 0 && each > 0;
                    if given {
                        md.copy_from_slice(&self.md_pattern(u64::from(step), nlb));
                    } else {
                        md.fill(0);
                    }
                    self.zero(slba, nlb, given.then_some(&*md)).unwrap();
                }
                5 => {
                    data.fill(0);
                    md.copy_from_slice(&self.unwritten(nlb));
                    self.deallocate(slba, nlb).unwrap();
                }
                _ => {
                    let read = self.read(slba, nlb);
                    assert!(read.0 == data && read.1 == md, "step {step}: {slba}+{nlb}");
                }
            }
        }
        let read = self.read(0, blocks);
        assert!(read.0 == data && read.1 == md, "at the end");
    }
}

fn bytes_of(io: &Io) -> (Vec<u8>, Vec<u8>) {
    let bytes = |buf: &Option<Buf>| buf.as_ref().map_or_else(Vec::new, |buf| buf.bytes().to_vec());
    (bytes(&io.data), bytes(&io.md))
}

fn pattern(slba: u64, nlb: u32, each: usize, salt: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(nlb as usize * each);
    for lba in slba..slba + u64::from(nlb) {
        let name = lba.to_be_bytes();
        bytes.extend((0..each).map(|at| name[at % 8] ^ salt ^ at.to_le_bytes()[0]));
    }
    bytes
}
