//! Integrity regions of a device, run by signature keys: what [`Device`](crate::device::Device) says in registrations, transfers
//! and invalidations becomes configurations of keys and transfers through them.
//!
//! A region's keys are made with it and belong to the queue pair that registers it first. The keys that callers name step with each
//! registration, those of the library don't: what is posted names ours and is translated here. An invalidation reaches no
//! device: keys grant nothing to peers, and ours are refused here once they are invalid. Polls nothing. (rw-contexts 1.7, 2.4, 2.6)

use std::collections::HashMap;
use std::io;

use super::attrs::{SigBlock, SigBlockError};
use super::batch::{Memory, Piece};
use super::calls::KeyKind;
use super::caps::SigCaps;
use super::mkey::KeyState;
use super::queue::{MkeyError, MkeyId, SigQueue, SpareKey};
use super::size::inline_data;
use crate::device::{DeviceError, NoOffload, PostError, Qpn};
use crate::mem::{Lkey, MrId};
use crate::plan::Direction;
use crate::remote::{RemoteAddr, Rkey};
use crate::signature::{SigErr, SigLayout, SigStatus, Signature};
use crate::wc::WcStatus;
use crate::wr::{Fence, SendOp, SendWr, Sge, Signal, WrId};

/// Pieces that each list of a region may have: what the pages of a region are here.
pub const ENTRIES: u16 = 12;

/// Bytes that a work request of a queue pair must hold itself, for the keys of regions.
pub const INLINE_DATA: u32 = inline_data(KeyKind::Signature, ENTRIES);

/// Work requests of the device for each of ours, over a registration and its transfer: two lists, the signature's three, and the
/// transfer.
pub const WRS_PER_WR: u32 = 3;

/// The integrity regions of a device.
#[derive(Debug)]
pub struct Offload {
    caps: SigCaps,
    regions: HashMap<MrId, Region>,
    /// By the part of their keys that does not step.
    by_key: HashMap<u32, MrId>,
}

/// What a work request became.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// Nothing that completes, unless it fails.
    Quiet,
    /// A transfer, which always completes: [`Offload::transferred`] is to be told then.
    Transfer(MrId),
}

#[derive(Debug)]
struct Region {
    keys: Keys,
    /// As callers name it.
    key: u32,
    valid: bool,
    /// Entries of a list, at most.
    pages: usize,
    /// What the next registration is of, with the lists.
    next: Option<SigBlock>,
    data: Vec<Sge>,
    protection: Vec<Sge>,
    /// The one transfer that the registration is good for: which way, bytes on the wire.
    transfer: Option<(Direction, u32)>,
    /// The status of the last registration was not asked for.
    unasked: bool,
}

/// The library's keys of a region: the signature's, and those of lists of several pieces.
#[derive(Debug)]
enum Keys {
    /// Nothing was registered yet.
    Spare(Box<[SpareKey; 3]>),
    /// Of this queue pair.
    Of(Qpn, [MkeyId; 3]),
    /// They went with their queue pair.
    Gone,
}

/// What does not step of a key.
fn number(key: u32) -> u32 {
    key >> 8
}

impl Offload {
    /// Of a device that has these signatures.
    #[must_use]
    pub fn new(caps: SigCaps) -> Self {
        Self { caps, regions: HashMap::new(), by_key: HashMap::new() }
    }

    /// Whether the device runs this signature.
    ///
    /// # Errors
    /// [`NoOffload`] with what the device does not know.
    pub fn executes(&self, signature: &Signature) -> Result<(), NoOffload> {
        self.block(signature).map(|_| ()).map_err(|error| match error {
            SigBlockError::Unsupported(what) => what.into(),
            SigBlockError::Invalid(what) => what.into(),
        })
    }

    /// Adds the region `id`, whose lists have at most `pages` (1 to [`ENTRIES`]) entries each; `make` makes its keys, with so many
    /// entries. Returns its key.
    ///
    /// # Errors
    /// What `make` says; nothing is left then.
    ///
    /// # Panics
    /// When there are no such keys, or the id is taken.
    pub fn alloc(
        &mut self,
        id: MrId,
        pages: u32,
        mut make: impl FnMut(KeyKind, u16) -> io::Result<SpareKey>,
    ) -> io::Result<Lkey> {
        assert!((1..=u32::from(ENTRIES)).contains(&pages), "as many pieces as a key has entries");
        let signature = make(KeyKind::Signature, ENTRIES)?;
        let key = signature.lkey();
        let list = make(KeyKind::List, ENTRIES)?;
        let keys = Keys::Spare(Box::new([signature, list, make(KeyKind::List, ENTRIES)?]));
        let pages = pages as usize;
        let list = || Vec::with_capacity(pages);
        let (data, protection) = (list(), list());
        let (next, transfer) = (None, None);
        let region = Region {
            keys,
            key: key.0,
            valid: false,
            pages,
            next,
            data,
            protection,
            transfer,
            unasked: false,
        };
        let before = self.regions.insert(id, region);
        assert!(before.is_none(), "ids are given once");
        self.by_key.insert(number(key.0), id);
        Ok(key)
    }

    /// Whether there is such a region.
    #[must_use]
    pub fn has(&self, id: MrId) -> bool {
        self.regions.contains_key(&id)
    }

    /// The queue pair that a region's keys belong to, if any.
    #[must_use]
    pub fn queue_of(&self, id: MrId) -> Option<Qpn> {
        match self.regions.get(&id)?.keys {
            Keys::Of(qpn, _) => Some(qpn),
            Keys::Spare(_) | Keys::Gone => None,
        }
    }

    /// Forgets a region. `queue` is that of [`Self::queue_of`]; keys that it still uses go with it.
    ///
    /// # Errors
    /// [`DeviceError::Unknown`].
    pub fn free(&mut self, id: MrId, queue: Option<&mut SigQueue>) -> Result<(), DeviceError> {
        let region = self.regions.remove(&id).ok_or(DeviceError::Unknown("memory region"))?;
        self.by_key.remove(&number(region.key));
        if let (Keys::Of(_, keys), Some(queue)) = (region.keys, queue) {
            for key in keys {
                if let Err(error) = queue.destroy_key(key) {
                    tracing::debug!(%error, "a key stays until its queue pair goes");
                }
            }
        }
        Ok(())
    }

    /// A queue pair is gone: the regions that were registered on it can only be freed.
    pub fn queue_gone(&mut self, qpn: Qpn) {
        for region in self.regions.values_mut() {
            if matches!(region.keys, Keys::Of(of, _) if of == qpn) {
                (region.keys, region.next, region.unasked) = (Keys::Gone, None, false);
            }
        }
    }

    /// See [`crate::device::Device::map_integrity`]; pages are entries here, wherever they lie.
    ///
    /// # Errors
    /// See there.
    pub fn map(
        &mut self,
        id: MrId,
        signature: &Signature,
        data: &[Sge],
        protection: &[Sge],
    ) -> Result<SigLayout, DeviceError> {
        let block = self.block(signature).map_err(|_| DeviceError::Invalid("signature: not for this device"));
        let region = self.regions.get_mut(&id).ok_or(DeviceError::Unknown("memory region"))?;
        region.next = None;
        let block = block?;
        if matches!(region.keys, Keys::Gone) {
            return Err(DeviceError::Invalid("use: the region's queue pair is gone"));
        }
        if data.len().max(protection.len()) > region.pages {
            return Err(DeviceError::Invalid("list: its entries"));
        }
        let bytes = |list: &[Sge]| list.iter().map(|sge| u64::from(sge.length)).sum();
        let layout = signature.layout(bytes(data), bytes(protection));
        let layout = layout.map_err(|_| DeviceError::Invalid("lengths of the lists"))?;
        if signature.direction() == Direction::FromHost && overlap(data, protection) {
            return Err(DeviceError::Invalid("lists: their pieces overlap"));
        }
        for (to, from) in [(&mut region.data, data), (&mut region.protection, protection)] {
            to.clear();
            to.extend_from_slice(from);
        }
        region.next = Some(block);
        Ok(layout)
    }

    /// Whether a work request is for [`Self::post`]: it names a region of these, or the key of one.
    #[must_use]
    pub fn is_for(&self, wr: &SendWr<'_>) -> bool {
        match wr.op {
            SendOp::RegMrIntegrity { .. } => true,
            SendOp::LocalInv(key) => self.by_key.contains_key(&number(key.0)),
            _ => wr.sges.iter().any(|sge| self.by_key.contains_key(&number(sge.lkey.0))),
        }
    }

    /// Posts such a work request to the queue pair `qpn`. What was given to its queue before must have been posted: the order is that
    /// of the calls. Registrations and invalidations can't be signaled, nothing can be fenced.
    ///
    /// # Errors
    /// [`PostError`]; nothing was posted then.
    pub fn post(&mut self, qpn: Qpn, queue: &mut SigQueue, wr: &SendWr<'_>) -> Result<Posted, PostError> {
        if wr.fence != Fence::None {
            return Err(PostError::Unsupported);
        }
        match (wr.op, wr.signal) {
            (SendOp::RegMrIntegrity { mr, key, .. }, Signal::Unsignaled) => {
                self.register(qpn, queue, wr.wr_id, mr, key).map(|()| Posted::Quiet)
            }
            (SendOp::LocalInv(key), Signal::Unsignaled) => {
                let (_, region) = self.region_of(key.0).ok_or(PostError::BadState)?;
                region.valid = false;
                Ok(Posted::Quiet)
            }
            (SendOp::Read(at), _) => self.transfer(qpn, queue, wr, at, Direction::FromHost),
            (SendOp::Write(at), _) => self.transfer(qpn, queue, wr, at, Direction::ToHost),
            _ => Err(PostError::Unsupported),
        }
    }

    /// A transfer completed, on the queue that it was posted to. One whose region was freed meanwhile is nobody's.
    ///
    /// # Errors
    /// [`MkeyError`] when no transfer of the region was under way.
    pub fn transferred(&self, id: MrId, queue: &mut SigQueue, status: WcStatus) -> Result<(), MkeyError> {
        match self.regions.get(&id).map(|region| &region.keys) {
            Some(Keys::Of(_, [signature, ..])) => queue.handle_completion(*signature, status),
            _ => Ok(()),
        }
    }

    /// See [`crate::device::Device::sig_status`]; `queue` is that of [`Self::queue_of`].
    ///
    /// # Errors
    /// See there.
    pub fn status(&mut self, id: MrId, queue: Option<&mut SigQueue>) -> Result<SigStatus, DeviceError> {
        let region = self.regions.get_mut(&id).ok_or(DeviceError::Unknown("memory region"))?;
        let (Keys::Of(_, [signature, ..]), Some(queue), true) = (&region.keys, queue, region.unasked) else {
            return Err(DeviceError::Invalid("query: nothing was registered since the last"));
        };
        if queue.state(*signature) != Some(KeyState::Unchecked) {
            return Err(DeviceError::Busy("the transfer of the registration"));
        }
        // Whether it answers or not, it is asked once.
        region.unasked = false;
        let status = queue.check(*signature).map_err(|error| {
            tracing::warn!(%error, "what a signature found is not to be had");
            DeviceError::Invalid("answer of the device")
        })?;
        let key = Rkey(region.key);
        Ok(match status {
            SigStatus::Clean => SigStatus::Clean,
            SigStatus::Failed(error) => SigStatus::Failed(SigErr { key, ..error }),
        })
    }

    fn block(&self, signature: &Signature) -> Result<SigBlock, SigBlockError> {
        SigBlock::new(signature.attrs(), signature.direction(), &self.caps)
    }

    /// The region of a key that is valid.
    fn region_of(&mut self, key: u32) -> Option<(MrId, &mut Region)> {
        let id = *self.by_key.get(&number(key))?;
        let region = self.regions.get_mut(&id)?;
        (region.valid && region.key == key).then_some((id, region))
    }

    fn register(
        &mut self,
        qpn: Qpn,
        queue: &mut SigQueue,
        wr_id: WrId,
        id: MrId,
        key: Rkey,
    ) -> Result<(), PostError> {
        let region = self.regions.get_mut(&id).ok_or(PostError::Integrity)?;
        if region.valid || number(region.key) != number(key.0) || region.key == key.0 {
            return Err(PostError::BadState);
        }
        let Some(block) = region.next.filter(|_| !region.unasked) else { return Err(PostError::Integrity) };
        let [signature, lists @ ..] = region.keys_on(qpn, queue)?;
        let mut batch = queue.start().map_err(|error| refused(&error))?;
        let mut piece = |list: &[Sge], key: MkeyId| match list {
            [sge] => Ok(Piece::Sge(*sge)),
            _ => batch.map(wr_id, key, list).map(|()| Piece::List(key)),
        };
        let memory = if region.protection.is_empty() {
            Memory::Row(&region.data)
        } else {
            let data = piece(&region.data, lists[0]).map_err(|error| refused(&error))?;
            Memory::Separate {
                data,
                metadata: piece(&region.protection, lists[1]).map_err(|error| refused(&error))?,
            }
        };
        let layout = batch.register(wr_id, signature, &block, memory).map_err(|error| refused(&error))?;
        batch.complete().map_err(|error| refused(&error))?;
        region.transfer = Some((block.signature().direction(), layout.wire));
        (region.key, region.valid, region.next, region.unasked) = (key.0, true, None, true);
        Ok(())
    }

    fn transfer(
        &mut self,
        qpn: Qpn,
        queue: &mut SigQueue,
        wr: &SendWr<'_>,
        at: RemoteAddr,
        direction: Direction,
    ) -> Result<Posted, PostError> {
        let [sge] = wr.sges else { return Err(PostError::BadSge) };
        let (id, region) = self.region_of(sge.lkey.0).ok_or(PostError::BadSge)?;
        let Keys::Of(of, [signature, ..]) = region.keys else { return Err(PostError::Integrity) };
        if of != qpn || sge.addr != 0 || region.transfer != Some((direction, sge.length)) {
            return Err(PostError::BadSge);
        }
        let mut batch = queue.start().map_err(|error| refused(&error))?;
        batch.transfer(wr.wr_id, signature, at).map_err(|error| refused(&error))?;
        batch.complete().map_err(|error| refused(&error))?;
        region.transfer = None;
        Ok(Posted::Transfer(id))
    }
}

impl Region {
    /// Its keys, which are this queue pair's from now on.
    fn keys_on(&mut self, qpn: Qpn, queue: &mut SigQueue) -> Result<[MkeyId; 3], PostError> {
        if let Keys::Spare(_) = self.keys
            && let Keys::Spare(spare) = std::mem::replace(&mut self.keys, Keys::Gone)
        {
            self.keys = Keys::Of(qpn, (*spare).map(|key| queue.adopt(key)));
        }
        match self.keys {
            Keys::Of(of, keys) if of == qpn => Ok(keys),
            _ => Err(PostError::Integrity),
        }
    }
}

/// Why a key did not do what it was to do.
fn refused(error: &MkeyError) -> PostError {
    tracing::debug!(%error, "a signature is not posted");
    match error {
        MkeyError::Library { .. } => PostError::Full,
        MkeyError::Drained => PostError::BadState,
        _ => PostError::Integrity,
    }
}

/// Whether some piece lies in another.
fn overlap(data: &[Sge], protection: &[Sge]) -> bool {
    let all = || data.iter().chain(protection).enumerate();
    let within = |a: &Sge, b: &Sge| a.addr < b.addr + u64::from(b.length);
    all().any(|(at, a)| all().skip(at + 1).any(|(_, b)| within(a, b) && within(b, a)))
}
