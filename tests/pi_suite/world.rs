//! A target in this process that has a volume of each format, its host, its log, and its media from behind.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::future::poll_fn;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll};
use std::time::Instant;

use intact::block::Volume;
use intact::nvmf::wire::log_page::{ErrorEntry, lid};
use intact::nvmf::wire::status::Status;
use intact::serve::{Target, with_sources};
use intact_tests::host::{Host, HostConfig};
use intact_tests::metrics::Metrics;
use intact_tools::host::Keys;
use tempfile::TempDir;
use tracing_subscriber::fmt::MakeWriter;
use zerocopy::FromBytes;

use super::command::{Action, Carried, Op, io_op};
use super::damage::{BLOCKS, SLBA};
use super::format::{Backend, Format};
use super::oracle::{Checks, Tags};
use super::point::Checker;

const NQN: &str = "nqn.2026-11.io.intact:pi-suite";
/// Worlds beside each other; each has every so many-th format.
pub(crate) const WORLDS: usize = 2;
/// Commands that a host can have under way: those of a round, and as many whose capsule's acknowledgement is outstanding.
const DEPTH: u16 = 64;
/// Entries of the error log that are looked at: more than the commands of a round.
const ERRORS: usize = 64;
/// Blocks of a volume.
const VOLUME: usize = 64;
/// The port of the targets' metrics.
const METRICS: u16 = 9420;
/// Bytes before the tuples in `FILE.pi`.
const PI_FILE_HEADER: u64 = 4096;

/// All of it.
///
/// Commands of several formats are under way at once, in rounds: a future of [`World::command`] sends one, and is done in the
/// round after the next [`World::round`], which waits for all of them. One command at a time for each format.
pub(crate) struct World {
    target: Target,
    link: RefCell<Link>,
    log: Log,
    media: Vec<Medium>,
    pub(crate) target_address: IpAddr,
    pub(crate) host_address: IpAddr,
    pub(crate) checker: Checker,
    _folder: TempDir,
}

/// The host, and what came back in the last round.
struct Link {
    host: Host,
    done: HashMap<usize, Status>,
    /// The controller's error log, the newest entry first.
    errors: Vec<ErrorEntry>,
    /// Error counts of entries that were looked at, by namespace.
    seen: HashMap<u32, u64>,
}

/// How a command ended.
pub(crate) struct Answer {
    pub(crate) status: Status,
    /// What a Read gave.
    pub(crate) data: Vec<u8>,
    /// Lines about failed checks.
    pub(crate) log: Vec<String>,
}

impl World {
    /// World `index`.
    pub(crate) fn start(index: usize, formats: &[Format], log: &Log, checker: Checker) -> Self {
        // Memory: the suite is about what is stored, not about disks.
        let folder = tempfile::tempdir_in("/dev/shm").expect("a temporary folder can be made");
        let [low, high, ..] = std::process::id().to_le_bytes();
        let last = 2 * u8::try_from(index).expect("a few worlds") + 1;
        let address = |last| IpAddr::from(Ipv4Addr::new(127, 64 | high & 0x3f, low, last));
        let (target_address, host_address) = (address(last), address(last + 1));
        let config = folder.path().join("config.toml");
        std::fs::write(&config, configuration(formats, folder.path(), target_address, checker))
            .expect("the temporary folder can be written");
        let target = Target::start(&config).unwrap_or_else(|error| panic!("{}", with_sources(&error)));
        let media = formats.iter().map(|format| Medium::open(format, &target, folder.path())).collect();
        let longest = formats.iter().map(Format::stride).max().unwrap_or(0);
        let host = Host::connect(&HostConfig {
            local: host_address,
            target: (target_address, 4420).into(),
            nqn: NQN.to_owned(),
            hostnqn: format!("{NQN}-host"),
            queues: 1,
            depth: DEPTH,
            slot_len: BLOCKS * longest,
            keys: Keys::Lasting,
        });
        let log = log.clone();
        let link =
            RefCell::new(Link { host, done: HashMap::new(), errors: Vec::new(), seen: HashMap::new() });
        Self { target, link, log, media, target_address, host_address, checker, _folder: folder }
    }

    /// What stores a format's volume.
    pub(crate) fn medium(&self, format: &Format) -> &Medium {
        &self.media[place(format)]
    }

    /// The volume of a format.
    pub(crate) fn volume(&self, format: &Format) -> &Arc<Volume> {
        self.target.volume(&name(format)).expect("each format has a volume")
    }

    /// Carries out a command on the blocks of the suite. `data` is what a Write or Compare has.
    pub(crate) async fn command(
        &self,
        format: &Format,
        op: Op,
        action: Action,
        checks: Checks,
        tags: &Tags,
        (data, carried): (&[u8], Carried),
    ) -> Answer {
        self.log.take(format);
        let (op, length) = io_op(format, op, action, checks, tags, data.len());
        let slot = {
            let Link { host, done, .. } = &mut *self.link.borrow_mut();
            let slot = host.wait_for_slot(|_, early| {
                done.insert(early.slot, early.status);
            });
            host.fill(slot, data);
            host.carry_at_most(if carried == Carried::InCapsule { u32::MAX } else { 0 });
            host.submit(slot, nsid(format), op, length);
            slot
        };
        let done = |_: &mut Context<'_>| match self.link.borrow_mut().done.remove(&slot) {
            None => Poll::Pending,
            Some(status) => Poll::Ready(status),
        };
        let status = poll_fn(done).await;
        let mut data = vec![0; length as usize];
        let mut link = self.link.borrow_mut();
        link.host.read(slot, &mut data);
        link.host.release(slot);
        Answer { status, data, log: self.log.take(format) }
    }

    /// Waits for all commands that are under way, and reads the error log if one of them failed.
    pub(crate) fn round(&self) {
        let Link { host, done, errors, .. } = &mut *self.link.borrow_mut();
        while let Some(next) = host.next_done() {
            done.insert(next.slot, next.status);
        }
        // A Read that was sent from where the data lies holds its blocks until this acknowledgement.
        host.controller().link().transmit(now());
        if done.values().all(|status| status.is_success()) {
            return;
        }
        let mut bytes = [0; ERRORS * size_of::<ErrorEntry>()];
        let page = host.controller().log_page(lid::ERROR_INFORMATION, u32::MAX, 0, &mut bytes);
        page.unwrap_or_else(|error| panic!("{}", with_sources(&error)));
        let entries = bytes.chunks_exact(size_of::<ErrorEntry>());
        errors.clear();
        errors
            .extend(entries.map(|entry| ErrorEntry::read_from_bytes(entry).expect("an entry has 64 bytes")));
    }

    /// The newest entry about a format in the error log, if it was not looked at before: status and first LBA.
    pub(crate) fn newest_error(&self, format: &Format) -> Option<(Status, u64)> {
        let Link { errors, seen, .. } = &mut *self.link.borrow_mut();
        let entry = errors.iter().find(|entry| entry.nsid.get() == nsid(format))?;
        let before = seen.insert(nsid(format), entry.error_count.get());
        (before < Some(entry.error_count.get()))
            .then(|| (Status::from_cqe(entry.status.get()), entry.lba.get()))
    }

    /// Ends host and target. The device has checked what it was to check.
    pub(crate) fn end(self) {
        let metrics = Metrics::scrape((self.target_address, METRICS).into());
        let signatures = metrics.sum("intact_protection_signatures_total", "");
        assert_eq!(signatures > 0, self.checker == Checker::Device, "{signatures} transfers with signatures");
        self.link.into_inner().host.close();
        self.target.stop();
    }
}

/// Which volume of its world a format has.
fn place(format: &Format) -> usize {
    format.number / WORLDS
}

/// The namespace of a format.
pub(crate) fn nsid(format: &Format) -> u32 {
    u32::try_from(place(format) + 1).expect("a few hundred")
}

/// The name of a format's volume.
pub(crate) fn name(format: &Format) -> String {
    format!("v{}", format.number)
}

fn configuration(formats: &[Format], folder: &Path, address: IpAddr, checker: Checker) -> String {
    let integrity = checker.integrity();
    let mut text = format!(
        "[device]\naddress = \"{address}\"\nintegrity = \"{integrity}\"\n[metrics]\naddress = \"{address}:{METRICS}\"\n"
    );
    for format in formats {
        let size = VOLUME * format.block;
        let backend = match format.backend {
            Backend::Memory => format!("memory = {size}"),
            Backend::File => format!("file = \"{}/{}\"\nsize = {size}", folder.display(), name(format)),
        };
        text += &format!(
            "[[volume]]\nname = \"{}\"\n{backend}\nblock_size = {}\nprotection = {}\n",
            name(format),
            format.block,
            format.config()
        );
    }
    text += &format!("[[nvme.subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n");
    for format in formats {
        text += &format!("[[nvme.subsystem.namespace]]\nvolume = \"{}\"\n", name(format));
    }
    text
}

#[expect(clippy::disallowed_methods, reason = "the suite drives a real target in real time")]
fn now() -> Instant {
    Instant::now()
}

/// Lines of the targets' log.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    /// The log of all targets of this process, from now on, without a limit.
    pub(crate) fn start() -> Self {
        static LOG: OnceLock<Log> = OnceLock::new();
        let start = || {
            intact::log_limit::lift();
            let log = Self::default();
            tracing_subscriber::fmt()
                .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
                .with_ansi(false)
                .with_target(false)
                .with_writer(log.clone())
                .init();
            log
        };
        LOG.get_or_init(start).clone()
    }

    /// The lines about failed checks on a format's volume since the last call.
    fn take(&self, format: &Format) -> Vec<String> {
        let volume = format!("volume=\"{}\"", name(format));
        let mut lines = self.0.lock().expect("keeping lines does not panic");
        lines.extract_if(.., |line| line.contains(&volume)).collect()
    }
}

impl Write for Log {
    /// The subscriber writes a line at a time.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let line = String::from_utf8_lossy(bytes);
        if line.contains("protection information check failed") {
            self.0.lock().expect("keeping lines does not panic").push(line.into_owned());
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for Log {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        self.clone()
    }
}

/// What stores a volume, past the target.
pub(crate) enum Medium {
    Memory(Arc<Volume>),
    /// The image, and `FILE.pi` where metadata is stored apart.
    File(File, Option<File>),
}

impl Medium {
    fn open(format: &Format, target: &Target, folder: &Path) -> Self {
        let name = name(format);
        if format.backend == Backend::Memory {
            return Self::Memory(Arc::clone(target.volume(&name).expect("each format has a volume")));
        }
        let open = |name: &str| {
            let file = File::options().read(true).write(true).open(folder.join(name));
            file.unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        let apart = format.protection.is_some() && !format.interleaved;
        Self::File(open(&name), apart.then(|| open(&format!("{name}.pi"))))
    }

    /// The suite's blocks with their metadata.
    pub(crate) fn blocks(&self, format: &Format) -> Vec<Vec<u8>> {
        let block = |lba: u64| match self {
            Self::Memory(volume) => volume.stored(lba),
            Self::File(image, pi) => {
                let mut bytes = vec![0; format.stride()];
                let (data, md) = bytes.split_at_mut(format.block);
                let places = places(format, image, pi.as_ref(), lba);
                for ((file, at), piece) in places.into_iter().zip([data, md]) {
                    file.read_exact_at(piece, at).expect("the medium can be read");
                }
                if pi.is_some() {
                    invert(format, &mut bytes);
                }
                bytes
            }
        };
        (0..BLOCKS as u64).map(|index| block(SLBA + index)).collect()
    }

    /// Makes the suite's blocks these.
    pub(crate) fn put(&self, format: &Format, blocks: &[Vec<u8>]) {
        for (lba, block) in (SLBA..).zip(blocks) {
            match self {
                Self::Memory(volume) => volume.store(lba, block),
                Self::File(image, pi) => {
                    let mut bytes = block.clone();
                    if pi.is_some() {
                        invert(format, &mut bytes);
                    }
                    let (data, md) = bytes.split_at(format.block);
                    for ((file, at), piece) in
                        places(format, image, pi.as_ref(), lba).into_iter().zip([data, md])
                    {
                        file.write_all_at(piece, at).expect("the medium can be written");
                    }
                }
            }
        }
    }
}

/// Where data and metadata of a block are.
fn places<'f>(format: &Format, image: &'f File, pi: Option<&'f File>, lba: u64) -> [(&'f File, u64); 2] {
    let (block, md) = (format.block as u64, format.metadata() as u64);
    match pi {
        Some(pi) => [(image, lba * block), (pi, PI_FILE_HEADER + lba * md)],
        None => [(image, lba * (block + md)), (image, lba * (block + md) + block)],
    }
}

/// `FILE.pi` has the bits of tuples inverted.
fn invert(format: &Format, block: &mut [u8]) {
    block[format.block + format.leading()..].iter_mut().for_each(|byte| *byte = !*byte);
}
