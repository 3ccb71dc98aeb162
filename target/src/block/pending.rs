//! A change of a volume that is ready and not in effect.
//!
//! Owns what makes several changes all or nothing: whatever can fail is done before any of them shows, and undone when one
//! fails. One caller at a time, the control thread.

use std::sync::Arc;
use std::time::Duration;

use super::file::Extent;
use super::memory::Segment;
use super::volume::{Backend, Volume, VolumeConfig, VolumeError};

/// A change of a volume. It takes effect by [`Self::commit`]; dropped without, it is undone.
#[derive(Debug)]
#[must_use = "a change that is dropped is undone"]
pub struct Pending {
    volume: Arc<Volume>,
    change: Option<Change>,
}

#[derive(Debug)]
enum Change {
    /// It was opened.
    Open,
    /// It is to have the file of another one, which went so far before room was made.
    Succeed { before: Extent },
    /// It is to have so many blocks.
    Resize { blocks: u64, room: Room },
}

/// Room for blocks that nobody was told of.
#[derive(Debug)]
enum Room {
    /// A file went so far before it was made.
    File {
        before: Extent,
    },
    /// Memory, if it takes any.
    Memory(Option<Segment>),
    Null,
}

/// Blocks that a volume in memory does not present any more, and that are not emptied yet.
#[derive(Debug)]
#[must_use = "the blocks keep their memory"]
pub struct Cut {
    volume: Arc<Volume>,
    first: u64,
}

impl Pending {
    /// Opens, and where the configuration says so makes, a volume.
    ///
    /// # Errors
    /// As [`Volume::open`]; nothing is left behind then.
    pub fn open(config: VolumeConfig) -> Result<Self, VolumeError> {
        Ok(Self { volume: Volume::open(config)?, change: Some(Change::Open) })
    }

    /// A volume in the file of `old`, which is presented no more when this takes effect; commands that it has been given go on.
    ///
    /// # Errors
    /// What keeps a volume from having a file that is open as another one; no room. The file is as it was then.
    ///
    /// # Panics
    /// When one of them is no volume in a file.
    pub fn succeed(old: &Volume, config: VolumeConfig) -> Result<Self, VolumeError> {
        let (volume, before) = old.successor(config)?;
        Ok(Self { volume, change: Some(Change::Succeed { before }) })
    }

    /// Makes room for `blocks` blocks (1 to 2^60 bytes of them); the volume keeps its size for now.
    ///
    /// # Errors
    /// No room, or blocks that were cut off and are to come again are still in use; files are as they were then.
    pub fn resize(volume: &Arc<Volume>, blocks: u64) -> Result<Self, VolumeError> {
        let memory = volume.prepare(blocks)?;
        let room = match volume.backend() {
            Backend::File(file) => {
                let before = file.extent()?;
                file.grow(blocks)?;
                Room::File { before }
            }
            Backend::Memory(_) => Room::Memory(memory),
            Backend::Null(_) => Room::Null,
        };
        Ok(Self { volume: Arc::clone(volume), change: Some(Change::Resize { blocks, room }) })
    }

    /// The volume.
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// The change takes effect. Returns what is to be emptied.
    pub fn commit(mut self) -> Option<Cut> {
        match (self.change.take()?, self.volume.backend()) {
            (Change::Open, Backend::File(file)) => file.keep(),
            (Change::Succeed { .. }, Backend::File(file)) => file.rename(self.volume.name()),
            (Change::Resize { blocks, room }, backend) => {
                if let (Backend::Memory(memory), Room::Memory(Some(segment))) = (backend, room) {
                    memory.add(segment);
                }
                let volume = Arc::clone(&self.volume);
                return self.volume.present(blocks).map(|first| Cut { volume, first });
            }
            (Change::Open | Change::Succeed { .. }, _) => {}
        }
        None
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        match (self.change.take(), self.volume.backend()) {
            (Some(Change::Open), Backend::File(file)) => file.undo_open(),
            (
                Some(Change::Resize { room: Room::File { before }, .. } | Change::Succeed { before }),
                Backend::File(file),
            ) => file.restore(&before),
            (Some(_) | None, _) => {}
        }
    }
}

impl Cut {
    /// Empties the blocks, once no command uses them any more; waits for that at most `wait`, which becomes less by it.
    ///
    /// # Errors
    /// They stay in use: no host reaches them, and they are emptied before they are presented again.
    pub fn empty(self, wait: &mut Duration) -> Result<(), VolumeError> {
        self.volume.empty(self.first, wait)
    }
}

#[cfg(test)]
impl Volume {
    /// Changes the size at once.
    pub(crate) fn resize(self: &Arc<Self>, blocks: u64) -> Result<(), VolumeError> {
        match Pending::resize(self, blocks)?.commit() {
            Some(cut) => cut.empty(&mut Duration::from_secs(10)),
            None => Ok(()),
        }
    }
}
