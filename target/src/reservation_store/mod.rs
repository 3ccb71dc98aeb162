//! Where reservations that hosts want kept over restarts (APTPL of PERSISTENT RESERVE OUT) are stored: in `FILE.pr` beside a
//! volume's file.
//!
//! Owns the files and a thread that reads and writes them, so that no reactor waits for a disk: what became of a change comes
//! back by a call on that thread. Never decides what is stored; that is a [logical unit](crate::scsi::lun)'s.
//!
//! Memory and null volumes keep nothing (PTPL_C is 0 then, and APTPL refused). A block device does where the configuration
//! names a symbolic link to it in a folder on a disk: files below `/dev` don't outlive a restart of the machine. A volume that
//! is `read_only` does not: other processes may have it, too.
//!
//! Reservations are those of a logical unit, which is its volume, named by the volume's UUID. A unit that stays while a
//! configuration is read again keeps them all. They end with their unit, but for those that are kept: these are there again with
//! the next unit that presents the volume from this file, whatever its number. A unit that presents another volume instead is
//! another logical unit, with that one's reservations.

mod file;
mod image;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use thiserror::Error;
use uuid::Uuid;

use self::file::PrFile;
pub use self::file::pr_paths;
pub use self::image::{IMAGE_MAX, ImageError, decode, encode};
use crate::block::Volume;
use crate::log_limit::LogLimit;
use crate::scsi::lun::Stored;
use crate::scsi::reservations::{Persistence, Reservations, Saved};
use crate::serve::{AbortOnPanic, with_sources};

/// The store: a thread, which ends when the last of these and of their [`Place`]s is gone.
#[derive(Clone, Debug)]
pub struct ReservationStore {
    jobs: Sender<Job>,
}

/// Where one unit's reservations are stored.
#[derive(Debug)]
pub struct Place {
    number: u64,
    jobs: Sender<Job>,
}

/// Why reservations can't be had, or not be stored.
#[derive(Debug, Error)]
pub enum StoreError {
    /// A file that is none.
    #[error(
        "volume {volume:?}: {} is {what}; needed: the file in which Intact keeps reservations, put back there, or none: then all of hosts' reservations are gone",
        path.display()
    )]
    Kind {
        /// The volume.
        volume: String,
        /// Its `.pr` file.
        path: PathBuf,
        /// What stands there.
        what: &'static str,
    },
    /// A file with something else in it.
    #[error(
        "volume {volume:?}: {}: {problem}; needed: the file in which Intact keeps this volume's reservations, put back there, or none: then all of hosts' reservations are gone",
        path.display()
    )]
    Image {
        /// The volume.
        volume: String,
        /// Its `.pr` file.
        path: PathBuf,
        /// What is wrong.
        problem: Box<ImageError>,
    },
    /// Reservations of a volume that can't keep any.
    #[error(
        "volume {volume:?}: {} keeps reservations of hosts, and a volume that is read_only keeps none; needed: the volume without read_only until hosts have given them up, or no such file",
        path.display()
    )]
    ReadOnly {
        /// The volume.
        volume: String,
        /// Its `.pr` file.
        path: PathBuf,
    },
    /// The system refused.
    #[error("volume {volume:?}: can't {operation} {}", path.display())]
    System {
        /// The volume.
        volume: String,
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: io::Error,
    },
    /// Two units keep the reservations of one volume.
    #[error(
        "volume {volume:?}: another logical unit has stored reservations in {}; needed: one unit for each volume",
        path.display()
    )]
    Superseded {
        /// The volume.
        volume: String,
        /// Its `.pr` file.
        path: PathBuf,
    },
    /// Our thread is gone.
    #[error("the thread that stores reservations has ended")]
    Ended,
}

/// What is called with what became of a change, on the store's thread: it must not wait.
type Answer = Box<dyn FnOnce(Stored) + Send>;
type Opened = Result<(u64, Reservations), StoreError>;

enum Job {
    Open { volume: String, uuid: Uuid, file: PathBuf, answer: Sender<Opened> },
    Store { place: u64, saved: Box<Saved>, answer: Answer },
    Close { place: u64 },
}

impl ReservationStore {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system gives none.
    pub fn start() -> io::Result<Self> {
        let (jobs, work) = channel();
        std::thread::Builder::new().name("reservations".to_owned()).spawn(move || {
            let _guard = AbortOnPanic;
            Keeper::new(now()).run(&work);
        })?;
        Ok(Self { jobs })
    }

    /// The reservations that a unit of this volume starts with, and where it is to store them; `None` where it can't. Waits for
    /// the file system. Changes no file.
    ///
    /// # Errors
    /// `FILE.pr` is damaged, of another volume, no regular file, or can't be read.
    pub fn open(&self, volume: &Volume) -> Result<(Reservations, Option<Place>), StoreError> {
        let volatile = || (Reservations::new(Persistence::Volatile), None);
        let Some(file) = volume.file().filter(|file| outlives_restart(file)) else { return Ok(volatile()) };
        if volume.read_only() {
            let (volume, [path, _]) = (volume.name().to_owned(), pr_paths(file));
            // Also for a link that leads nowhere.
            return match path.symlink_metadata() {
                Ok(_) => Err(StoreError::ReadOnly { volume, path }),
                Err(source) if source.kind() == io::ErrorKind::NotFound => Ok(volatile()),
                Err(source) => Err(StoreError::System { volume, operation: "look at", path, source }),
            };
        }
        let (answer, opened) = channel();
        let (name, uuid) = (volume.name().to_owned(), volume.identity().uuid());
        let job = Job::Open { volume: name, uuid, file: file.to_owned(), answer };
        self.jobs.send(job).map_err(|_| StoreError::Ended)?;
        let (number, reservations) = opened.recv().map_err(|_| StoreError::Ended)??;
        Ok((reservations, Some(Place { number, jobs: self.jobs.clone() })))
    }
}

impl Place {
    /// Stores what [`Action::Store`](crate::scsi::lun::Action::Store) asks for, in the order of the calls, and then calls
    /// `answer` on the store's thread, which must not wait there.
    pub fn store(&self, saved: Box<Saved>, answer: impl FnOnce(Stored) + Send + 'static) {
        let job = Job::Store { place: self.number, saved, answer: Box::new(answer) };
        if let Err(lost) = self.jobs.send(job)
            && let Job::Store { answer, .. } = lost.0
        {
            answer(Stored::Not);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Without a thread there is nothing to close.
        let _ = self.jobs.send(Job::Close { place: self.number });
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open { .. } => "Open",
            Self::Store { .. } => "Store",
            Self::Close { .. } => "Close",
        })
    }
}

/// What the thread knows.
struct Keeper {
    places: BTreeMap<u64, Opening>,
    next: u64,
    log_limit: LogLimit,
}

/// A place, from its opening on.
struct Opening {
    file: PrFile,
    /// Another place has stored in the same file since.
    superseded: bool,
}

impl Keeper {
    fn new(now: Instant) -> Self {
        Self {
            places: BTreeMap::new(),
            next: 0,
            log_limit: LogLimit::new(now, "reservations that can't be stored"),
        }
    }

    fn run(mut self, work: &Receiver<Job>) {
        while let Ok(job) = work.recv() {
            match job {
                Job::Open { volume, uuid, file, answer } => {
                    // Whoever asked waits.
                    let _ = answer.send(self.open(&volume, uuid, &file));
                }
                Job::Store { place, saved, answer } => answer(self.store(place, &saved)),
                Job::Close { place } => {
                    self.places.remove(&place);
                }
            }
        }
    }

    fn open(&mut self, volume: &str, uuid: Uuid, file: &Path) -> Opened {
        let (file, reservations) = PrFile::open(volume, uuid, file)?;
        let number = self.next;
        self.next += 1;
        self.places.insert(number, Opening { file, superseded: false });
        Ok((number, reservations))
    }

    fn store(&mut self, place: u64, saved: &Saved) -> Stored {
        let opening = self.places.get_mut(&place).expect("a place is closed when it is dropped");
        let result =
            if opening.superseded { Err(opening.file.superseded()) } else { opening.file.store(saved) };
        match result {
            Ok(()) => {
                let path = opening.file.path().to_owned();
                let others = self.places.iter_mut().filter(|(number, _)| **number != place);
                others.filter(|(_, other)| other.file.path() == path).for_each(|(_, o)| o.superseded = true);
                Stored::Durably
            }
            Err(error) => {
                self.log_limit.log(now(), || tracing::error!("{}", with_sources(&error)));
                Stored::Not
            }
        }
    }
}

/// Whether files beside this one are there after a restart of the machine.
fn outlives_restart(file: &Path) -> bool {
    !file.starts_with("/dev") || file.starts_with("/dev/shm")
}

#[expect(clippy::disallowed_methods, reason = "the clock of the store's thread")]
fn now() -> Instant {
    Instant::now()
}
