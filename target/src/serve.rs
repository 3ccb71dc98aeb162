//! `intact serve`: makes everything that a configuration says, runs it, and changes it when told to.
//!
//! The control thread owns the configuration and the volumes; reactors run on threads of their own. SIGHUP reads the file
//! again, SIGTERM and SIGINT drain and end.

mod export;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rwctx::device::provider::Provider;
use rwctx::device::soft::device::{SoftConfig, SoftDevice, random_seed};
use rwctx::device::soft::driver::OpenError;
use rwctx::device::soft::persona::Persona;
#[cfg(feature = "verbs")]
use rwctx::device::verbs::{self, VerbsConfig, VerbsDevice};
use rwctx::device::{DeviceError, NoOffload};
use rwctx::plan::Integrity;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;
use thiserror::Error;

use crate::block::{BufPool, Engine, EngineError, FileSetup, Pending, Stop, Volume, VolumeError};
use crate::config::{self, Config, ConfigErrors};
use crate::iscsi::rdma::{Connections, Notice};
use crate::iscsi::registry::Registry as IscsiRegistry;
use crate::metrics::Server;
use crate::nvmf::controller::TargetLimits;
use crate::nvmf::rdma::check_offload;
use crate::nvmf::registry::{Applied, Registry};
use crate::reactor::acceptor::{Acceptor, Ports, QueueLimits};
use crate::reactor::mailbox::{Mailbox, Postbox, mailbox};
use crate::reactor::{Message, Reactor, cpu};
use crate::reservation_store::{ReservationStore, StoreError};
use crate::scsi::medium::MediumError;
use crate::stats::ReactorStats;
use crate::transport::Transport;

use self::export::{iscsi_config, nvme_config, volume_config};

/// Buffers of one reactor, in bytes: what its commands hold at the most, and wait beyond. Address space alone as long as
/// nobody uses it; what was used once, with its surroundings of 2 MiB, stays resident.
const POOL: usize = 256 << 20;
/// I/O operations that one reactor has under way.
const ENGINE_DEPTH: usize = 1024;
/// How long the end waits for hosts to be told.
const GOODBYE: Duration = Duration::from_millis(300);
/// How long the end waits for commands, after which what is left is dropped.
const DRAIN: Duration = Duration::from_secs(6);
/// How long commands in blocks that volumes in memory don't present any more are waited for, all volumes together.
const CUT_WAIT: Duration = Duration::from_secs(10);

/// Why the target can't start.
#[derive(Debug, Error)]
pub enum ServeError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigErrors),
    /// A volume can't be opened.
    #[error(transparent)]
    Volume(#[from] VolumeError),
    /// Reservations that were kept can't be had.
    #[error(transparent)]
    Reservations(#[from] StoreError),
    /// The soft device can't be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The verbs device can't be opened.
    #[cfg(feature = "verbs")]
    #[error(transparent)]
    OpenVerbs(#[from] verbs::OpenError),
    /// The device can't be used any more.
    #[error("the RDMA device can't be used any more: {0}")]
    DeviceFailed(String),
    /// The device was to check protection information, and does not.
    #[error("device.integrity: \"offload\" can't be: {0}; allowed: \"auto\", \"software\"")]
    NoOffload(NoOffload),
    /// The device has no room.
    #[error("the RDMA device refuses the buffers")]
    Device(#[from] DeviceError),
    /// The I/O engine can't be made.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Two volumes are to have one file.
    #[error(
        "volume {volume:?}: volume {other:?} has its file, by this name or another; needed: a file of its own for each volume"
    )]
    Shared {
        /// The volume.
        volume: String,
        /// The other one.
        other: String,
    },
    /// A volume can't be a logical unit.
    #[error("volume {volume:?} can't be a logical unit: {error}")]
    Unit {
        /// The volume.
        volume: String,
        /// Why.
        error: MediumError,
    },
    /// The system refused something.
    #[error("can't {0}")]
    System(String, #[source] std::io::Error),
}

/// Runs a target until SIGTERM or SIGINT.
///
/// # Errors
/// Everything that keeps it from starting, and the loss of its device.
pub fn serve(file: &Path) -> Result<(), ServeError> {
    let config = Config::load(file)?;
    let mut signals = Signals::new([SIGHUP, SIGTERM, SIGINT, SIGXFSZ])
        .map_err(|error| ServeError::System("listen for signals".to_owned(), error))?;
    // A change of volumes that takes long hears of the end at once.
    let stop = Stop::default();
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, stop.flag())
            .map_err(|error| ServeError::System("listen for signals".to_owned(), error))?;
    }
    let handle = signals.handle();
    let failure = Failure::new(move || handle.close());
    let mut target = match Target::run(file, config, &stop, &failure) {
        Err(error) if stop.is_set() => {
            tracing::info!(reason = with_sources(&error), "ended before it was ready");
            return Ok(());
        }
        started => started?,
    };
    target.announce();
    tracing::info!(version = env!("CARGO_PKG_VERSION"), file = %file.display(), volumes = target.volumes.len(), "serving");
    for signal in signals.forever() {
        match signal {
            SIGHUP => target.reload(),
            // A limit of the length of files (ulimit -f) is an error of the operation that meets it.
            SIGXFSZ => {}
            _ => break,
        }
    }
    target.stop();
    failure.into_result()
}

/// Where a reactor says that its device can't be used any more, and that there is nothing left to do.
#[derive(Clone)]
struct Failure {
    why: Arc<OnceLock<String>>,
    tell: Arc<dyn Fn() + Send + Sync>,
}

impl Failure {
    /// A place that calls `tell` when something is said there.
    fn new(tell: impl Fn() + Send + Sync + 'static) -> Self {
        Self { why: Arc::default(), tell: Arc::new(tell) }
    }

    fn report(&self, why: String) {
        // The first reason is the one that counts.
        let _ = self.why.set(why);
        (self.tell)();
    }

    fn is_reported(&self) -> bool {
        self.why.get().is_some()
    }

    fn into_result(self) -> Result<(), ServeError> {
        self.why.get().map_or(Ok(()), |why| Err(ServeError::DeviceFailed(why.clone())))
    }
}

/// A running target, on threads of this process. [`serve`] is one with signals.
pub struct Target {
    file: PathBuf,
    config: Config,
    stop: Stop,
    volumes: BTreeMap<String, Arc<Volume>>,
    registry: Arc<Registry>,
    targets: Arc<IscsiRegistry>,
    reservations: ReservationStore,
    reactors: Vec<Postbox<Message>>,
    /// What each reactor needs before it can serve volumes in files.
    file_setups: Vec<Arc<FileSetup>>,
    threads: Vec<JoinHandle<()>>,
    failure: Failure,
    _metrics: Option<Server>,
}

/// What a reactor that started leaves to others.
struct Started {
    stats: ReactorStats,
    file_setup: Arc<FileSetup>,
}

impl Target {
    /// Starts what the configuration in `file` says; hosts can connect when this returned.
    ///
    /// # Errors
    /// Everything that keeps it from starting.
    pub fn start(file: &Path) -> Result<Self, ServeError> {
        // Whoever runs it in a process of its own finds out by what it does not do any more.
        Self::run(file, Config::load(file)?, &Stop::default(), &Failure::new(|| {}))
    }

    /// The volume of this name.
    #[must_use]
    pub fn volume(&self, name: &str) -> Option<&Arc<Volume>> {
        self.volumes.get(name)
    }

    fn run(file: &Path, config: Config, stop: &Stop, failure: &Failure) -> Result<Self, ServeError> {
        // Files of the first are not left behind where a later one can't be opened.
        let mut opened = Vec::new();
        for volume in &config.volumes {
            refuse_shared(&opened, volume)?;
            opened.push(Pending::open(volume_config(&config, volume, stop))?);
        }
        let named = |pending: &Pending| (pending.volume().name().to_owned(), Arc::clone(pending.volume()));
        let volumes: BTreeMap<_, _> = opened.iter().map(named).collect();
        let limits = TargetLimits { max_queue_entries: 256, ..TargetLimits::default() };
        let targets = Arc::new(IscsiRegistry::new(limits.max_data));
        let reservations = ReservationStore::start().map_err(|error| {
            ServeError::System("start the thread that stores reservations".to_owned(), error)
        })?;
        let iscsi = iscsi_config(&config, &volumes);
        let kept = targets.open_reservations(&iscsi, &reservations)?;
        for pending in opened {
            let cut = pending.commit();
            debug_assert!(cut.is_none(), "what was just opened has nothing to cut off");
        }
        let count = config.reactor.cores.count();
        let registry = Arc::new(Registry::new(limits, count));
        // Nobody is connected who would have to be told.
        let _ = registry.apply(now(), nvme_config(&config, &volumes));
        targets.apply(iscsi, kept).map_err(not_a_unit)?;
        let queue_limits =
            QueueLimits { max_qid: limits.max_io_queues, max_entries: limits.max_queue_entries };
        let mut target = Self {
            file: file.to_owned(),
            stop: stop.clone(),
            volumes,
            registry,
            targets,
            reservations,
            reactors: Vec::new(),
            file_setups: Vec::new(),
            threads: Vec::new(),
            failure: failure.clone(),
            _metrics: None,
            config,
        };
        let addresses = target.config.device.addresses.clone();
        let stats = match target.config.device.provider {
            config::Provider::Soft => {
                let mut soft = SoftConfig::new(addresses, count);
                soft.caps = target.config.device.persona.map_or(soft.caps, Persona::caps);
                target.start_reactors(SoftDevice::open(&soft)?, queue_limits)?
            }
            #[cfg(feature = "verbs")]
            config::Provider::Verbs => {
                let devices = VerbsDevice::open(&VerbsConfig { addresses, reactors: count })?;
                target.start_reactors(devices, queue_limits)?
            }
        };
        if let Some(address) = target.config.metrics.address {
            let source =
                crate::stats::source(stats, Arc::clone(&target.registry), Arc::clone(&target.targets));
            let server = Server::start(address, source)
                .map_err(|error| ServeError::System(format!("serve metrics on {address}"), error))?;
            target._metrics = Some(server);
        }
        Ok(target)
    }

    /// Starts a reactor for each device; returns when all run, or none.
    fn start_reactors<P: Provider>(
        &mut self,
        devices: Vec<P>,
        limits: QueueLimits,
    ) -> Result<Vec<ReactorStats>, ServeError> {
        if self.config.device.checker().offload {
            devices.iter().try_for_each(check_offload).map_err(ServeError::NoOffload)?;
        }
        let mut boxes = Vec::new();
        for _ in 0..devices.len() {
            boxes.push(mailbox().map_err(|errno| system("make an event descriptor", errno))?);
        }
        self.reactors = boxes.iter().map(|(post, _)| post.clone()).collect();
        let mut stats = Vec::new();
        for (index, (device, (_, mail))) in devices.into_iter().zip(boxes).enumerate() {
            let acceptor = (index == 0).then(|| Acceptor::new(limits, self.ports(), random_seed()));
            match self.start_reactor(index, device, mail, acceptor) {
                Ok(started) => {
                    stats.push(started.stats);
                    self.file_setups.push(started.file_setup);
                }
                Err(error) => {
                    self.reactors.iter().for_each(|reactor| reactor.post(Message::Stop));
                    return Err(error);
                }
            }
        }
        Ok(stats)
    }

    /// Starts a reactor's thread; returns when it runs.
    fn start_reactor<P: Provider>(
        &mut self,
        index: usize,
        device: P,
        mail: Mailbox<Message>,
        acceptor: Option<Acceptor>,
    ) -> Result<Started, ServeError> {
        let (registry, peers) = (Arc::clone(&self.registry), self.reactors.clone());
        let targets = Arc::clone(&self.targets);
        let failure = self.failure.clone();
        let (poll, core) = (self.config.reactor.poll, self.config.reactor.cores.cpu(index));
        let offload = self.config.device.checker().offload;
        let integrity = if offload { Integrity::Enabled } else { Integrity::Off };
        let serves_files = has_files(&self.config);
        let (ready, started) = std::sync::mpsc::channel();
        let run = move || {
            let _guard = AbortOnPanic;
            let made = make_reactor(
                index,
                device,
                mail,
                acceptor,
                (registry, targets),
                peers,
                poll,
                core,
                serves_files,
                integrity,
            );
            match made {
                Ok((reactor, started)) => {
                    let _ = ready.send(Ok(started));
                    if let Err(why) = reactor.run() {
                        failure.report(why);
                    }
                }
                Err(error) => {
                    let _ = ready.send(Err(error));
                }
            }
        };
        let thread = std::thread::Builder::new()
            .name(format!("reactor-{index}"))
            .spawn(run)
            .map_err(|error| ServeError::System("start a reactor's thread".to_owned(), error))?;
        self.threads.push(thread);
        started.recv().unwrap_or_else(|_| {
            let ended = std::io::Error::other("it ended at once");
            Err(ServeError::System("start a reactor's thread".to_owned(), ended))
        })
    }

    /// Ports on which hosts connect.
    fn ports(&self) -> Ports {
        let config = &self.config;
        Ports {
            nvme: config.nvme_listeners().next().map(|listener| listener.port()),
            iser: config.iscsi_portals().next().map(|portal| portal.port()),
        }
    }

    /// Says on stdout where hosts can connect: connections are accepted by now.
    fn announce(&self) {
        let mut lines = String::new();
        for listener in self.config.nvme_listeners() {
            // Writing to a string does not fail.
            let _ = writeln!(lines, "ready nvme rdma {listener}");
        }
        for portal in self.config.iscsi_portals() {
            let _ = writeln!(lines, "ready iser {portal}");
        }
        let mut out = std::io::stdout().lock();
        if let Err(error) = out.write_all(lines.as_bytes()).and_then(|()| out.flush()) {
            tracing::warn!(%error, "can't write to stdout");
        }
    }

    /// Reads the configuration again and makes the target what it says; a file that is wrong changes nothing.
    fn reload(&mut self) {
        if std::fs::metadata(&self.file).is_ok_and(|found| !found.is_file()) {
            // A pipe may last for ever to open, or be empty now, which would be a configuration of nothing.
            let file = self.file.display();
            tracing::error!("configuration not changed: {file} is no regular file, and is read only once");
            return;
        }
        let config = match Config::load(&self.file) {
            Ok(config) => config,
            Err(errors) => {
                tracing::error!("configuration not changed:\n{errors}");
                return;
            }
        };
        let later = self.config.needs_restart(&config);
        let config = self.config.without_restart(config);
        match self.apply(&config) {
            Ok(()) => {
                for key in later {
                    tracing::warn!(key, "this change takes effect at the next start");
                }
                tracing::info!(file = %self.file.display(), "configuration read again");
                self.config = config;
            }
            Err(error) => tracing::error!("configuration not changed: {}", with_sources(&error)),
        }
    }

    /// Makes the target what `config` says, or leaves it as it is: all that can fail comes first.
    fn apply(&mut self, config: &Config) -> Result<(), ServeError> {
        let mut volumes = BTreeMap::new();
        // Undone when a later one fails.
        let mut pending = Vec::new();
        let kept = |volume: &config::Volume| {
            let as_before = self.config.volume(&volume.name).is_some_and(|old| same_but_size(old, volume));
            self.volumes.get(&volume.name).filter(|_| as_before)
        };
        let mut owners: BTreeSet<&str> =
            config.volumes.iter().filter_map(&kept).map(|volume| volume.name()).collect();
        for volume in &config.volumes {
            if let Some(open) = kept(volume) {
                if let Some(blocks) = new_size(open, volume) {
                    pending.push(Pending::resize(open, blocks)?);
                }
                volumes.insert(volume.name.clone(), Arc::clone(open));
                continue;
            }
            refuse_shared(&pending, volume)?;
            let opened = match self.volumes.values().find(|open| is_in_file_of(open, volume)) {
                Some(other) if owners.insert(other.name()) => {
                    Pending::succeed(other, volume_config(config, volume, &self.stop))?
                }
                Some(other) => return Err(shared(volume, other)),
                None => Pending::open(volume_config(config, volume, &self.stop))?,
            };
            volumes.insert(volume.name.clone(), Arc::clone(opened.volume()));
            pending.push(opened);
        }
        if has_files(config) {
            // A reactor has no time for it once it meets the first of them.
            self.file_setups.iter().try_for_each(|setup| setup.prepare())?;
        }
        let iscsi = iscsi_config(config, &volumes);
        let kept = self.targets.open_reservations(&iscsi, &self.reservations)?;
        let cut: Vec<_> = pending.into_iter().filter_map(Pending::commit).collect();
        let Applied { notified, disconnect } = self.registry.apply(now(), nvme_config(config, &volumes));
        for controller in disconnect {
            for reactor in &self.reactors {
                reactor.post(Message::ControllerGone(controller.cntlid));
            }
        }
        if !notified.is_empty() {
            self.reactors.iter().for_each(|reactor| reactor.post(Message::ControllersChanged));
        }
        self.targets.apply(iscsi, kept).map_err(not_a_unit)?;
        self.reactors.iter().for_each(|reactor| reactor.post(Message::Iscsi(Notice::Changed)));
        self.volumes = volumes;
        // Hosts reach these blocks no more; commands that are under way may.
        let mut wait = CUT_WAIT;
        for cut in cut {
            if let Err(error) = cut.empty(&mut wait) {
                tracing::warn!(%error, "their memory is kept until the volume grows again");
            }
        }
        Ok(())
    }

    /// Lets commands finish, tells hosts, and ends.
    pub fn stop(mut self) {
        tracing::info!("draining");
        self.reactors.iter().for_each(|reactor| reactor.post(Message::Drain));
        // Without a device there is nobody to wait for.
        let until = now() + if self.failure.is_reported() { Duration::ZERO } else { DRAIN };
        let connected =
            |it: &Self| !it.registry.controllers().is_empty() || !it.targets.sessions().is_empty();
        while connected(&self) && now() < until {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(GOODBYE);
        self.reactors.iter().for_each(|reactor| reactor.post(Message::Stop));
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a reactor's thread panicked");
            }
        }
        tracing::info!("ended");
    }
}

impl std::fmt::Debug for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Target").field("file", &self.file).finish_non_exhaustive()
    }
}

/// Ends the process when the thread that holds it panics: a target without one of its reactors would leave hosts waiting
/// for ever, while one that ended is started again and hosts reconnect.
pub(crate) struct AbortOnPanic;

impl Drop for AbortOnPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

#[expect(clippy::too_many_arguments, reason = "what the new thread takes with it")]
fn make_reactor<P: Provider>(
    index: usize,
    mut device: P,
    mail: Mailbox<Message>,
    acceptor: Option<Acceptor>,
    (registry, targets): (Arc<Registry>, Arc<IscsiRegistry>),
    peers: Vec<Postbox<Message>>,
    poll: config::Poll,
    core: Option<usize>,
    serves_files: bool,
    integrity: Integrity,
) -> Result<(Reactor<P>, Started), ServeError> {
    if let Some(core) = core {
        cpu::pin(core).map_err(|errno| system(&format!("run on CPU {core}"), errno))?;
    }
    if let Some(acceptor) = &acceptor {
        let listening = acceptor.start_listening(&mut device);
        listening.map_err(|error| ServeError::System("listen for connections".to_owned(), error))?;
    }
    let pool = BufPool::new(POOL).map_err(|errno| system("map the buffers", errno))?;
    let mut engine = Engine::new(ENGINE_DEPTH)?;
    engine.register_buffers(&pool);
    let file_setup = Arc::clone(engine.file_setup());
    if serves_files {
        file_setup.prepare()?;
    }
    let iser = Connections::new(targets, peers[index].clone())
        .map_err(|error| ServeError::System("open the source of randomness".to_owned(), error))?;
    let transport = Transport::new(device, engine, pool, registry, iser, index, integrity, now())?;
    let (stats, iser) = (Arc::clone(transport.stats()), Arc::clone(transport.iser_stats()));
    let reactor = Reactor::new(index, transport, mail, peers, acceptor, poll, random_seed())
        .map_err(|errno| system("watch descriptors", errno))?;
    let stats = ReactorStats { transport: stats, iser, device: reactor.published() };
    Ok((reactor, Started { stats, file_setup }))
}

fn has_files(config: &Config) -> bool {
    config.volumes.iter().any(|volume| matches!(volume.backend, config::Backend::File { .. }))
}

/// Refuses a volume in a file that one of these has.
fn refuse_shared(pending: &[Pending], volume: &config::Volume) -> Result<(), ServeError> {
    let mut others = pending.iter().map(Pending::volume);
    others.find(|other| is_in_file_of(other, volume)).map_or(Ok(()), |other| Err(shared(volume, other)))
}

fn shared(volume: &config::Volume, other: &Volume) -> ServeError {
    ServeError::Shared { volume: volume.name.clone(), other: other.name().to_owned() }
}

/// Whether a volume is to be in the file that an open one has.
fn is_in_file_of(open: &Volume, volume: &config::Volume) -> bool {
    matches!(&volume.backend, config::Backend::File { path, .. } if open.is_in(path))
}

fn not_a_unit((volume, error): (Arc<Volume>, MediumError)) -> ServeError {
    ServeError::Unit { volume: volume.name().to_owned(), error }
}

/// Whether an open volume can be what another configuration says, at most with another size.
fn same_but_size(old: &config::Volume, new: &config::Volume) -> bool {
    let mut resized = old.clone();
    match (&mut resized.backend, &new.backend) {
        (config::Backend::Memory { size }, config::Backend::Memory { size: new })
        | (config::Backend::Null { size }, config::Backend::Null { size: new }) => *size = *new,
        (config::Backend::File { size, .. }, config::Backend::File { size: new, .. }) => *size = *new,
        _ => {}
    }
    resized == *new
}

/// Blocks that an open volume is to have, when it has others.
fn new_size(open: &Volume, new: &config::Volume) -> Option<u64> {
    let size = match &new.backend {
        config::Backend::Memory { size } | config::Backend::Null { size } => Some(*size),
        config::Backend::File { size, .. } => *size,
    };
    size.map(|size| size / u64::from(open.block_size())).filter(|blocks| *blocks != open.blocks())
}

fn system(what: &str, errno: nix::Error) -> ServeError {
    ServeError::System(what.to_owned(), errno.into())
}

/// An error with everything that caused it.
#[must_use]
pub fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Writing to a string does not fail.
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}

#[expect(clippy::disallowed_methods, reason = "the control thread's clock")]
fn now() -> Instant {
    Instant::now()
}
