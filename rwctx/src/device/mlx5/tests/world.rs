//! A queue of ours on the fake library, with memory and a peer.

use super::super::{
    Batch, KeyKind, Memory, MkeyError, MkeyId, SEPARATE_ENTRIES, SigBlock, SigCaps, SigQueue,
};
use super::device::PEER;
use super::fake::Fake;
use crate::mem::Lkey;
use crate::remote::{RemoteAddr, Rkey};
use crate::signature::{SigLayout, SigStatus};
use crate::wc::WcStatus;
use crate::wr::{Sge, WrId};

/// Fields are dropped in this order: keys before what made them.
pub(super) struct World {
    pub(super) queue: SigQueue,
    pub(super) fake: Fake,
}

/// Under which a registration would fail.
pub(super) const REGISTER: WrId = WrId(1);
/// Under which a transfer completes.
pub(super) const TRANSFER: WrId = WrId(2);
/// Where the peer's memory begins that is used.
pub(super) const AT: RemoteAddr = RemoteAddr { addr: 16, rkey: Rkey(PEER) };

impl World {
    pub(super) fn new(max_inline_data: u32) -> Self {
        let (fake, queue) = Fake::new(max_inline_data);
        Self { queue: SigQueue::new(queue), fake }
    }

    pub(super) fn caps(&self) -> SigCaps {
        SigCaps::new(&self.fake.device().caps)
    }

    pub(super) fn key(&mut self, kind: KeyKind, entries: u16) -> MkeyId {
        self.queue.create_key(kind, entries).expect("a key")
    }

    /// A signature's key for data and metadata that lie apart.
    pub(super) fn signature_key(&mut self) -> MkeyId {
        self.key(KeyKind::Signature, SEPARATE_ENTRIES)
    }

    /// Registers memory under a key, and returns the whole of it.
    pub(super) fn memory(&self, lkey: u32, bytes: Vec<u8>) -> Sge {
        let sge = Sge {
            addr: u64::from(lkey) << 32,
            length: u32::try_from(bytes.len()).unwrap(),
            lkey: Lkey(lkey),
        };
        self.fake.device().memory.insert(lkey, (sge.addr, bytes));
        sge
    }

    /// What registered memory holds.
    pub(super) fn bytes(&self, lkey: u32) -> Vec<u8> {
        self.fake.device().memory[&lkey].1.clone()
    }

    /// Gives the peer memory, and what lies at [`AT`] in it.
    pub(super) fn peer(&self, bytes: &[u8]) {
        self.fake.device().peer = [&[0x77; 16][..], bytes, &[0x77; 16]].concat();
    }

    /// What lies at [`AT`]; around it nothing may have changed.
    pub(super) fn peer_bytes(&self) -> Vec<u8> {
        let peer = &self.fake.device().peer;
        let (before, rest) = peer.split_at(16);
        let (bytes, behind) = rest.split_at(rest.len() - 16);
        assert!(before == [0x77; 16] && behind == [0x77; 16]);
        bytes.to_vec()
    }

    pub(super) fn start(&mut self) -> Batch<'_> {
        self.queue.start().expect("a queue that works")
    }

    /// Registers and transfers in one list.
    pub(super) fn post(
        &mut self,
        id: MkeyId,
        block: &SigBlock,
        memory: Memory<'_>,
    ) -> Result<SigLayout, MkeyError> {
        let mut batch = self.start();
        let layout = batch.register(REGISTER, id, block, memory)?;
        batch.transfer(TRANSFER, id, AT)?;
        batch.complete()?;
        Ok(layout)
    }

    /// Polls the completion of the one transfer that is under way.
    pub(super) fn completed(&mut self, id: MkeyId) {
        let polled = self.fake.device().poll();
        assert_eq!(polled, [(TRANSFER.0, true)]);
        self.queue.handle_completion(id, WcStatus::Success).expect("a transfer was under way");
    }

    /// A transfer from its registration to its status.
    pub(super) fn run(&mut self, id: MkeyId, block: &SigBlock, memory: Memory<'_>) -> SigStatus {
        self.post(id, block, memory).expect("a list in order");
        self.completed(id);
        self.queue.check(id).expect("a status")
    }
}
