//! What a controller's admin side and its I/O queues on other reactors share: readiness, keep-alive traffic, the
//! error log, and notices from the control plane. The data path only touches atomics; the mutexes guard lists that
//! errors and configuration changes append to.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use t10pi::nvme::ExtendedFormats;
use zerocopy::IntoBytes;

use crate::nvmf::validate::IoLimits;
use crate::nvmf::wire::log_page::ErrorEntry;
use crate::nvmf::wire::status::Status;

/// Entries of the error log (ELPE + 1).
pub const ERROR_LOG_ENTRIES: usize = 64;
/// Location of an error that is not about one parameter.
pub const NO_LOCATION: u16 = 0xffff;
/// TRTYPE of RDMA in an error log entry.
const TRTYPE_RDMA: u8 = 1;

/// A failed command, for the error log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorRecord {
    /// Queue it came on.
    pub sqid: u16,
    /// Its Command Identifier.
    pub cid: u16,
    /// Its opcode.
    pub opcode: u8,
    /// Its namespace; 0 when none.
    pub nsid: u32,
    /// How it ended.
    pub status: Status,
    /// First block that failed; 0 when the error is not about one.
    pub lba: u64,
    /// Byte (7:0) and bit (10:8) of the SQE that is at fault, or [`NO_LOCATION`].
    pub location: u16,
}

impl ErrorRecord {
    /// A failed command that is about no block and no single parameter.
    #[must_use]
    pub const fn new(sqid: u16, cid: u16, opcode: u8, nsid: u32, status: Status) -> Self {
        Self { sqid, cid, opcode, nsid, status, lba: 0, location: NO_LOCATION }
    }

    /// The same, about the block at `lba`.
    #[must_use]
    pub const fn at_lba(self, lba: u64) -> Self {
        Self { lba, ..self }
    }
}

/// The state that a controller's queues share.
#[derive(Debug)]
pub struct CtrlShared {
    cntlid: u16,
    max_data: u32,
    ready: AtomicBool,
    lba_format_extensions: AtomicBool,
    traffic: AtomicBool,
    error_count: AtomicU64,
    errors: Mutex<VecDeque<ErrorEntry>>,
    noticed: AtomicBool,
    notices: Mutex<Notices>,
}

/// What the control plane has to tell a controller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::nvmf) struct Notices {
    /// Namespaces that were added, removed or changed.
    pub(in crate::nvmf) namespaces: BTreeSet<u32>,
    /// The discovery log changed.
    pub(in crate::nvmf) discovery_log: bool,
}

impl CtrlShared {
    pub(in crate::nvmf) fn new(cntlid: u16, max_data: u32) -> Self {
        Self {
            cntlid,
            max_data,
            ready: AtomicBool::new(false),
            lba_format_extensions: AtomicBool::new(false),
            traffic: AtomicBool::new(false),
            error_count: AtomicU64::new(0),
            errors: Mutex::new(VecDeque::with_capacity(ERROR_LOG_ENTRIES)),
            noticed: AtomicBool::new(false),
            notices: Mutex::new(Notices::default()),
        }
    }

    /// Controller Identifier.
    #[must_use]
    pub fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// Notes that a command arrived, which keeps the association alive. Called for every command of every queue.
    pub fn touch(&self) {
        // A load first: the line stays shared among reactors while the flag is set already.
        if !self.traffic.load(Ordering::Relaxed) {
            self.traffic.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the controller carries out commands.
    ///
    /// # Errors
    /// `COMMAND_SEQUENCE_ERROR` while it is not enabled and ready.
    pub fn check_ready(&self) -> Result<(), Status> {
        if self.ready.load(Ordering::Acquire) { Ok(()) } else { Err(Status::COMMAND_SEQUENCE_ERROR) }
    }

    /// The limits that I/O commands are validated against, now.
    #[must_use]
    pub fn io_limits(&self) -> IoLimits {
        IoLimits {
            max_data: self.max_data,
            extended_formats: match self.lba_format_extensions.load(Ordering::Relaxed) {
                true => ExtendedFormats::Enabled,
                false => ExtendedFormats::Disabled,
            },
        }
    }

    /// Appends a failed command to the error log; the oldest of more than 64 entries goes.
    pub fn log_error(&self, record: &ErrorRecord) {
        let mut errors = lock(&self.errors);
        let count = self.error_count.fetch_add(1, Ordering::Relaxed) + 1;
        if errors.len() == ERROR_LOG_ENTRIES {
            errors.pop_back();
        }
        errors.push_front(ErrorEntry {
            error_count: count.into(),
            sqid: record.sqid.into(),
            cmdid: record.cid.into(),
            status: record.status.to_cqe().into(),
            location: record.location.into(),
            lba: record.lba.into(),
            nsid: record.nsid.into(),
            trtype: TRTYPE_RDMA,
            opcode: record.opcode,
            version: 1,
            ..ErrorEntry::default()
        });
    }

    /// Errors logged since the controller was made.
    #[must_use]
    pub fn error_count(&self) -> u64 {
        self.error_count.load(Ordering::Relaxed)
    }

    /// The Error Information log page: 64 entries, newest first.
    pub(super) fn error_log(&self) -> Vec<u8> {
        let mut page = vec![0; ERROR_LOG_ENTRIES * size_of::<ErrorEntry>()];
        for (to, entry) in page.chunks_exact_mut(size_of::<ErrorEntry>()).zip(lock(&self.errors).iter()) {
            to.copy_from_slice(entry.as_bytes());
        }
        page
    }

    pub(super) fn set_ready(&self, ready: bool) {
        self.ready.store(ready, Ordering::Release);
    }

    pub(super) fn set_lba_format_extensions(&self, enabled: bool) {
        self.lba_format_extensions.store(enabled, Ordering::Relaxed);
    }

    /// Whether commands arrived since this was last asked.
    pub(super) fn take_traffic(&self) -> bool {
        self.traffic.swap(false, Ordering::Relaxed)
    }

    /// Leaves a notice for the controller; its reactor has to call [`super::Controller::handle_notices`].
    pub(in crate::nvmf) fn notify(&self, add: impl FnOnce(&mut Notices)) {
        add(&mut lock(&self.notices));
        self.noticed.store(true, Ordering::Release);
    }

    pub(super) fn take_notices(&self) -> Option<Notices> {
        self.noticed.swap(false, Ordering::AcqRel).then(|| std::mem::take(&mut *lock(&self.notices)))
    }
}

/// Locks a list whose every state is valid, so that a panic elsewhere does not take the log away.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
