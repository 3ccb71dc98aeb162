//! Damage on the wire that no ICRC sees: payload that changes after it was read from memory and before its ICRC is made, as
//! in a device or a switch that makes that anew.
//!
//! Owns what is to change, of this process's devices, by the address that sends. Payload is looked at in pieces of
//! [`PIECE`] bytes, by which packets of any path MTU can be cut: a piece that a test knows becomes another, once. So a
//! packet that is sent again, or data that is asked for again, is as it should be.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::mem::Iov;

/// Bytes that are looked at together.
const PIECE: usize = 16;

/// What changes, by sender and piece. No piece occurs twice in what a test sends.
static PIECES: Mutex<Option<Pieces>> = Mutex::new(None);
static ANY: AtomicBool = AtomicBool::new(false);

type Pieces = HashMap<(IpAddr, Vec<u8>), Vec<u8>>;

/// What a test wants to change.
#[derive(Debug)]
#[must_use = "it says whether all of it happened"]
pub struct Tampering {
    pieces: Vec<(IpAddr, Vec<u8>)>,
}

/// The payload of messages from `sender` that is `original` becomes `damaged`, which has the same length.
///
/// # Panics
/// When the lengths differ, or the same bytes are to become different ones.
pub fn tamper(sender: IpAddr, original: &[u8], damaged: &[u8]) -> Tampering {
    assert_eq!(original.len(), damaged.len(), "what is damaged keeps its length");
    let mut known = PIECES.lock().expect("changing pieces does not panic");
    let known = known.get_or_insert_default();
    let mut pieces = Vec::new();
    for (from, to) in original.chunks(PIECE).zip(damaged.chunks(PIECE)).filter(|(from, to)| from != to) {
        let key = (sender, from.to_vec());
        pieces.push(key.clone());
        let before = known.insert(key, to.to_vec());
        assert!(before.is_none(), "a piece of the data occurs once");
    }
    ANY.store(true, Ordering::Release);
    Tampering { pieces }
}

impl Tampering {
    /// Forgets what did not change; how many pieces that were.
    ///
    /// # Panics
    /// Never: changing pieces does not panic.
    #[must_use]
    pub fn left(self) -> usize {
        let mut known = PIECES.lock().expect("changing pieces does not panic");
        let Some(known) = known.as_mut() else { return 0 };
        let left = self.pieces.iter().filter(|key| known.remove(key).is_some()).count();
        ANY.store(!known.is_empty(), Ordering::Release);
        left
    }
}

/// The payload of a packet from `sender` after what happens to it; `None` when nothing does.
pub(super) fn tampered(sender: IpAddr, payload: &[Iov<'_>]) -> Option<Tampered> {
    if !ANY.load(Ordering::Acquire) {
        return None;
    }
    let mut pieces = PIECES.lock().expect("changing pieces does not panic");
    let pieces = pieces.as_mut()?;
    let mut bytes = Vec::new();
    payload.iter().for_each(|piece| piece.append_to(&mut bytes));
    let mut spent = Vec::new();
    for piece in bytes.chunks_mut(PIECE) {
        let key = (sender, piece.to_vec());
        if let Some(to) = pieces.get(&key) {
            piece.copy_from_slice(to);
            spent.push(key);
        }
    }
    // The kernel may read it any time later.
    (!spent.is_empty()).then(|| Tampered { payload: bytes.leak(), spent })
}

/// A payload that changed.
#[derive(Debug)]
pub(super) struct Tampered {
    /// It is never freed.
    pub(super) payload: &'static [u8],
    spent: Vec<(IpAddr, Vec<u8>)>,
}

impl Tampered {
    /// It is on its way: the next such payload stays as it is.
    pub(super) fn sent(self) {
        if let Some(pieces) = PIECES.lock().expect("changing pieces does not panic").as_mut() {
            self.spent.iter().for_each(|key| drop(pieces.remove(key)));
        }
    }
}
