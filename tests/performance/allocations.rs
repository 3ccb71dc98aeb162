//! In steady state a reactor allocates nothing: counted over 24,000 commands of 4 KiB, reads and writes, memory and file, with
//! protection generated and checked by the target and by the host, a quarter of them with their data in 16 pieces.
//!
//! The target runs in this process, so that its allocations can be told by their thread.
#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::path::Path;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use intact::nvmf::command::IoOp;
use intact_tests::host::{Done, Host, HostConfig, LIST, checked_range, protection};
use intact_tools::host::Keys;
use intact_tools::host::namespace::Namespace;
use nix::sys::signal::{Signal, kill};

const NQN: &str = "nqn.2026-11.io.intact:counted";
const BLOCK: usize = 4096;
/// Blocks of a volume: 16 MiB.
const BLOCKS: u64 = 4096;
const WARM_UP: u64 = 12_000;
const COUNTED: u64 = 24_000;
/// Backtraces that are kept for the message.
const SHOWN: u64 = 4;

/// The system's allocator, which counts the calls of one thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The thread whose allocations are counted; 0 = none.
static COUNTED_THREAD: AtomicI32 = AtomicI32::new(0);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BACKTRACES: Mutex<Vec<String>> = Mutex::new(Vec::new());

thread_local! {
    /// Whether this thread is taking a backtrace, which allocates.
    static LOOKING: Cell<bool> = const { Cell::new(false) };
}

// SAFETY: every call goes to the system's allocator as it came; counting does not touch memory that is handed out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise about the layout is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller's promise about the layout is passed on.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: `ptr` came from the system's allocator with this layout, as the caller promises.
        unsafe { System.realloc(ptr, layout, size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from the system's allocator with this layout, as the caller promises.
        unsafe { System.dealloc(ptr, layout) }
    }
}

fn count(size: usize) {
    let counted = COUNTED_THREAD.load(Ordering::Relaxed);
    if counted == 0 || nix::unistd::gettid().as_raw() != counted || LOOKING.get() {
        return;
    }
    if ALLOCATIONS.fetch_add(1, Ordering::Relaxed) < SHOWN {
        LOOKING.set(true);
        let text = format!("{size} bytes\n{}", Backtrace::force_capture());
        BACKTRACES.lock().unwrap_or_else(PoisonError::into_inner).push(text);
        LOOKING.set(false);
    }
}

#[test]
fn a_reactor_allocates_nothing_in_steady_state() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let config = folder.path().join("config.toml");
    let text = format!(
        "[device]\naddress = \"127.0.8.21\"\n\
         [[volume]]\nname = \"memory\"\nmemory = \"16MiB\"\nprotection = {{ type = 1 }}\n\
         [[volume]]\nname = \"file\"\nfile = \"{}/file\"\nsize = \"16MiB\"\nprotection = {{ type = 1 }}\n\
         [[nvme.subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         [[nvme.subsystem.namespace]]\nvolume = \"memory\"\n[[nvme.subsystem.namespace]]\nvolume = \"file\"\n",
        folder.path().display()
    );
    std::fs::write(&config, text).expect("the temporary folder can be written");
    let target = std::thread::spawn(move || {
        intact::serve::serve(&config)
            .unwrap_or_else(|error| panic!("{}", intact::serve::with_sources(&error)));
    });

    let mut load = Load::connect();
    // At their most, such commands overlap by chance: so first of all nothing else is under way.
    load.run(WARM_UP / 2, 4);
    load.run(WARM_UP, 1);
    COUNTED_THREAD.store(nix::unistd::gettid().as_raw(), Ordering::Relaxed);
    drop(std::hint::black_box(Box::new(1_u64)));
    COUNTED_THREAD.store(0, Ordering::Relaxed);
    assert_eq!(ALLOCATIONS.swap(0, Ordering::Relaxed), 1, "what is counted is seen");
    BACKTRACES.lock().unwrap_or_else(PoisonError::into_inner).clear();
    COUNTED_THREAD.store(thread_named("reactor-0"), Ordering::Relaxed);
    load.run(COUNTED, 1);
    COUNTED_THREAD.store(0, Ordering::Relaxed);
    load.host.close();
    kill(nix::unistd::getpid(), Signal::SIGTERM).expect("a process may signal itself");
    target.join().expect("the target ended well");

    let backtraces = BACKTRACES.lock().unwrap_or_else(PoisonError::into_inner).join("\n");
    let allocations = ALLOCATIONS.load(Ordering::Relaxed);
    assert_eq!(allocations, 0, "allocations during {COUNTED} commands, the first of them:\n{backtraces}");
}

/// The thread of this process that has this name.
fn thread_named(name: &str) -> i32 {
    let tasks = std::fs::read_dir("/proc/self/task").expect("a process can list its threads");
    tasks
        .map(|task| task.expect("a process can list its threads").path())
        .find(|task| comm(task) == name)
        .and_then(|task| task.file_name()?.to_str()?.parse().ok())
        .unwrap_or_else(|| panic!("no thread is called {name}"))
}

fn comm(task: &Path) -> String {
    // A thread may have ended since it was listed.
    std::fs::read_to_string(task.join("comm")).unwrap_or_default().trim_end().to_owned()
}

/// Commands of 4 KiB at random.
struct Load {
    host: Host,
    namespaces: Vec<Namespace>,
    random: fastrand::Rng,
    data: Vec<u8>,
}

impl Load {
    fn connect() -> Self {
        let mut host = Host::connect(&HostConfig {
            local: [127, 0, 8, 22].into(),
            target: ([127, 0, 8, 21], 4420).into(),
            nqn: NQN.to_owned(),
            hostnqn: "nqn.2026-11.io.intact:counting".to_owned(),
            queues: 2,
            depth: 32,
            slot_len: LIST + BLOCK + 8,
            keys: Keys::PerCommand,
        });
        let namespaces = [1, 2]
            .map(|nsid| host.controller().namespace(nsid).expect("the namespace can be identified"))
            .to_vec();
        Self { host, namespaces, random: fastrand::Rng::with_seed(1), data: vec![0; LIST + BLOCK + 8] }
    }

    /// Carries out so many commands, of four so many with their data in pieces, and waits for all of them.
    fn run(&mut self, commands: u64, in_pieces_of_four: u8) {
        for _ in 0..commands {
            let slot = self.host.wait_for_slot(finish);
            let namespace = self.namespaces[self.random.usize(..self.namespaces.len())];
            let slba = self.random.u64(..BLOCKS);
            let pract = self.random.bool();
            let range = checked_range(&namespace, slba, 1, pract);
            let length = if pract { BLOCK } else { BLOCK + 8 };
            let in_pieces = self.random.u8(..4) < in_pieces_of_four;
            let front = if in_pieces { LIST } else { 0 };
            let op = if self.random.bool() {
                let data = &mut self.data[front..front + length];
                data[..8].copy_from_slice(&slba.to_le_bytes());
                if !pract {
                    protection(&namespace, slba).generate_interleaved(&mut [data]);
                }
                self.host.fill(slot, &self.data[..front + length]);
                IoOp::Write(range)
            } else {
                IoOp::Read(range)
            };
            let length = u32::try_from(length).expect("a block");
            if in_pieces {
                self.host.submit_in_pieces(slot, namespace.nsid, op, length);
            } else {
                self.host.submit(slot, namespace.nsid, op, length);
            }
        }
        while let Some(done) = self.host.next_done() {
            finish(&mut self.host, done);
        }
    }
}

fn finish(host: &mut Host, done: Done) {
    assert!(done.status.is_success(), "{}", done.status);
    host.release(done.slot);
}
