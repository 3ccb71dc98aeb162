//! A queue pair with its keys, and the rules between them.
//!
//! A registration and the transfer that uses it are posted to one queue, in this order; the device waits between them by itself.
//! A data list in several pieces can't be interleaved with metadata, for each piece of an interleaved layout repeats: a key of
//! its own makes one piece of them first. Polls no completions: whoever does tells of those of work requests that were posted
//! here. (rw-contexts 2.6.4, 2.6.5)

use std::io;

use thiserror::Error;

use super::batch::Batch;
use super::calls::{KeyKind, Mkey, Move, RawQueue};
use super::ffi;
use super::mkey::{Event, KeyState};
use super::size::max_entries;
use super::status::Blocks;
use crate::mem::Lkey;
use crate::signature::{SigError, SigStatus};
use crate::wc::WcStatus;
use crate::wr::Sge;

/// Names a key towards its queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MkeyId(pub u32);

/// A queue pair that posts signatures, and its keys. When it is dropped, keys that are left are destroyed: nothing of them may be
/// under way then.
#[derive(Debug)]
pub struct SigQueue {
    raw: RawQueue,
    keys: Keys,
    drained: bool,
}

/// A key that belongs to no queue yet.
#[derive(Debug)]
pub struct SpareKey {
    pub(super) raw: Mkey,
    pub(super) kind: KeyKind,
}

/// The keys of a queue.
#[derive(Debug, Default)]
pub(super) struct Keys {
    slots: Vec<Option<Key>>,
    /// What keys were before the work requests that are not posted yet.
    undo: Vec<(MkeyId, Life)>,
    /// Pieces of memory as the library takes them; reused.
    list: Vec<ffi::Sge>,
}

/// A key and what becomes of it.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) raw: Mkey,
    pub(super) kind: KeyKind,
    /// Entries of a layout: what the key has room for, and work requests.
    pub(super) max_entries: u16,
    life: Life,
}

/// The state of a key, and its registration.
#[derive(Clone, Copy, Debug)]
struct Life {
    state: KeyState,
    registered: Registered,
}

/// What a key was configured with last.
#[derive(Clone, Copy, Debug)]
pub(super) enum Registered {
    Nothing,
    /// A list of so many bytes.
    List(u32),
    Signature(Transfer),
}

/// What goes through a signature's key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) what: Move,
    /// Bytes on the wire.
    pub(super) length: u32,
    pub(super) blocks: Blocks,
    /// Lists that it has.
    pub(super) parts: [Option<MkeyId>; 2],
}

/// Why something can't be done with a key. Nothing was done.
#[derive(Debug, Error)]
pub enum MkeyError {
    /// There is no such key.
    #[error("no such key")]
    Unknown,
    /// A list has no signature, and a signature's key is no part of others.
    #[error("not for keys of this kind")]
    Kind,
    /// Not now.
    #[error("a key that is {0:?} can't be used so")]
    State(KeyState),
    /// The queue was drained.
    #[error("the queue was drained")]
    Drained,
    /// The layout has more entries than the key, or a work request, has room for.
    #[error("a layout of {given} entries does not fit a key of {allowed}")]
    Entries {
        /// Entries of the layout, with the one that says how pieces alternate.
        given: usize,
        /// Entries that fit.
        allowed: u16,
    },
    /// The memory holds no transfer of the signature.
    #[error(transparent)]
    Signature(#[from] SigError),
    /// The library refused.
    #[error("cannot {what}")]
    Library {
        /// What was tried.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The device tells of an error that the transfer can't have: its status is unknown.
    #[error("the device reports error {kind} at byte {offset}, which the transfer can't have")]
    Report {
        /// The number of the error.
        kind: u32,
        /// Where.
        offset: u64,
    },
}

impl SpareKey {
    /// Its local key.
    #[must_use]
    pub fn lkey(&self) -> Lkey {
        self.raw.lkey()
    }
}

impl SigQueue {
    /// A queue without keys.
    #[must_use]
    pub fn new(raw: RawQueue) -> Self {
        Self { raw, keys: Keys::default(), drained: false }
    }

    /// Makes a key whose layout has at most `entries` entries: pieces of memory, and one more where they alternate
    /// ([`super::SEPARATE_ENTRIES`]).
    ///
    /// # Errors
    /// [`MkeyError::Entries`] beyond what a work request can hold, [`MkeyError::Library`].
    pub fn create_key(&mut self, kind: KeyKind, entries: u16) -> Result<MkeyId, MkeyError> {
        let allowed = max_entries(kind, self.raw.max_inline_data());
        if entries == 0 || entries > allowed {
            return Err(MkeyError::Entries { given: entries.into(), allowed });
        }
        let raw = self.raw.create_mkey(kind, entries);
        let raw = raw.map_err(|source| MkeyError::Library { what: "make a key", source })?;
        Ok(self.adopt(SpareKey { raw, kind }))
    }

    /// Takes a key, which is this queue's from now on.
    pub fn adopt(&mut self, SpareKey { raw, kind }: SpareKey) -> MkeyId {
        let max_entries = raw.max_entries().min(max_entries(kind, self.raw.max_inline_data()));
        let life = Life { state: KeyState::Idle, registered: Registered::Nothing };
        self.keys.add(Key { raw, kind, max_entries, life })
    }

    /// Destroys a key that no work request has.
    ///
    /// # Errors
    /// [`MkeyError::Unknown`], [`MkeyError::State`]; [`MkeyError::Library`], after which it is still there.
    pub fn destroy_key(&mut self, id: MkeyId) -> Result<(), MkeyError> {
        self.keys.key(id)?.after(Event::Destroy)?;
        let slot = self.keys.slot(id)?;
        let key = slot.take().expect("a key that was found");
        let Key { raw, kind, max_entries, life } = key;
        raw.destroy().map_err(|(raw, source)| {
            *slot = Some(Key { raw, kind, max_entries, life });
            MkeyError::Library { what: "destroy a key", source }
        })
    }

    /// Begins a list of work requests, which are posted together.
    ///
    /// # Errors
    /// [`MkeyError::Drained`].
    pub fn start(&mut self) -> Result<Batch<'_>, MkeyError> {
        if self.drained {
            return Err(MkeyError::Drained);
        }
        Ok(Batch::new(self.raw.start(), &mut self.keys))
    }

    /// A work request of the key completed: its transfer or invalidation, or any that failed.
    ///
    /// # Errors
    /// [`MkeyError::Unknown`]; [`MkeyError::State`] when the key waits for none.
    pub fn handle_completion(&mut self, id: MkeyId, status: WcStatus) -> Result<(), MkeyError> {
        let key = self.keys.key(id)?;
        if status != WcStatus::Success {
            return key.pass(Event::Fail);
        }
        key.pass(Event::Succeed)?;
        if let Registered::Signature(transfer) = &mut key.life.registered {
            let parts = std::mem::take(&mut transfer.parts);
            self.keys.release(parts);
        }
        Ok(())
    }

    /// The queue pair failed, or was destroyed, and the completion of everything that was posted to it was polled. Keys can only
    /// be destroyed now, but what transfers found that were done before can be asked for.
    pub fn handle_drained(&mut self) {
        self.drained = true;
        for key in self.keys.slots.iter_mut().flatten() {
            key.life.state = key.life.state.after(Event::Drain).expect("any key can be drained");
        }
    }

    /// What the signature of the last transfer found. It is asked once, when that has completed.
    ///
    /// # Errors
    /// [`MkeyError::Unknown`], [`MkeyError::State`]; [`MkeyError::Library`] and [`MkeyError::Report`], after which nobody knows,
    /// and the key can only be destroyed.
    pub fn check(&mut self, id: MkeyId) -> Result<SigStatus, MkeyError> {
        let key = self.keys.key(id)?;
        key.after(Event::Check)?;
        let Registered::Signature(transfer) = key.life.registered else { return Err(MkeyError::Kind) };
        let rkey = key.raw.rkey();
        let told = key.raw.check().map_err(|source| MkeyError::Library { what: "check a key", source });
        let status = told.and_then(|err| {
            let report = MkeyError::Report { kind: err.err_type, offset: err.offset };
            transfer.blocks.status(&err, rkey).ok_or(report)
        });
        key.pass(if status.is_ok() { Event::Check } else { Event::Break })?;
        status
    }

    /// What a key is good for now.
    #[must_use]
    pub fn state(&self, id: MkeyId) -> Option<KeyState> {
        let slot = self.keys.slots.get(usize::try_from(id.0).ok()?)?;
        slot.as_ref().map(|key| key.life.state)
    }
}

impl Keys {
    fn add(&mut self, key: Key) -> MkeyId {
        let free = self.slots.iter().position(Option::is_none);
        let index = free.unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[index] = Some(key);
        MkeyId(u32::try_from(index).expect("keys have 24 bits"))
    }

    fn slot(&mut self, id: MkeyId) -> Result<&mut Option<Key>, MkeyError> {
        let index = usize::try_from(id.0).expect("32 bits");
        self.slots.get_mut(index).ok_or(MkeyError::Unknown)
    }

    pub(super) fn key(&mut self, id: MkeyId) -> Result<&mut Key, MkeyError> {
        self.slot(id)?.as_mut().ok_or(MkeyError::Unknown)
    }

    /// A key that was found, and pieces of memory as the library takes them.
    pub(super) fn with_list(&mut self, id: MkeyId, pieces: &[Sge]) -> (&Mkey, &[ffi::Sge]) {
        self.list.clear();
        let raw = |sge: &Sge| ffi::Sge { addr: sge.addr, length: sge.length, lkey: sge.lkey.0 };
        self.list.extend(pieces.iter().map(raw));
        let index = usize::try_from(id.0).expect("32 bits");
        let key = self.slots[index].as_ref().expect("a key that was found");
        (&key.raw, &self.list)
    }

    /// Lets an event that was found possible happen to a key, with what it is registered with from then on. It can be undone.
    pub(super) fn change(&mut self, id: MkeyId, event: Event, registered: Option<Registered>) {
        let key = self.key(id).expect("a key that was found");
        let before = key.life;
        key.pass(event).expect("an event that was found possible");
        key.life.registered = registered.unwrap_or(before.registered);
        self.undo.push((id, before));
    }

    /// Work requests were posted, and what they did to keys stays.
    pub(super) fn keep(&mut self) {
        self.undo.clear();
    }

    /// Work requests were not posted. What the library remembers of a signature is undefined then; every registration gives a new
    /// one.
    pub(super) fn undo(&mut self) {
        while let Some((id, before)) = self.undo.pop() {
            self.key(id).expect("keys live while a list is made").life = before;
        }
    }

    /// Lists are free again.
    fn release(&mut self, parts: [Option<MkeyId>; 2]) {
        for id in parts.into_iter().flatten() {
            if let Ok(key) = self.key(id)
                && let Some(state) = key.life.state.after(Event::Release)
            {
                key.life.state = state;
            }
        }
    }
}

impl Key {
    /// The state after an event, if it may happen.
    pub(super) fn after(&self, event: Event) -> Result<KeyState, MkeyError> {
        self.life.state.after(event).ok_or(MkeyError::State(self.life.state))
    }

    pub(super) fn registered(&self) -> Registered {
        self.life.registered
    }

    fn pass(&mut self, event: Event) -> Result<(), MkeyError> {
        self.life.state = self.after(event)?;
        Ok(())
    }
}
