//! Work requests that are posted together, or not at all.
//!
//! Each call checks first and changes nothing when it refuses. The library keeps the first mistake to itself until the list is
//! posted, and then posts nothing: keys are what they were before. (rw-contexts 2.6.5)

use super::attrs::SigBlock;
use super::calls::{Configuration, KeyKind, Layout, Move, Posting};
use super::ffi;
use super::mkey::Event;
use super::queue::{Keys, MkeyError, MkeyId, Registered, Transfer};
use super::size::SEPARATE_ENTRIES;
use super::status::Blocks;
use crate::plan::Direction;
use crate::remote::RemoteAddr;
use crate::signature::{SigError, SigLayout};
use crate::wr::{Sge, WrId};

/// A list of work requests. Dropping it posts none.
#[derive(Debug)]
pub struct Batch<'q> {
    /// There until the list ends.
    posting: Option<Posting<'q>>,
    keys: &'q mut Keys,
}

/// Where the memory of a transfer lies.
#[derive(Clone, Copy, Debug)]
pub enum Memory<'a> {
    /// In a row: data alone, or each block's metadata behind it.
    Row(&'a [Sge]),
    /// Data in one place, metadata in another.
    Separate {
        /// The data of all blocks.
        data: Piece,
        /// The metadata of all blocks.
        metadata: Piece,
    },
}

/// Memory that a key takes for one piece.
#[derive(Clone, Copy, Debug)]
pub enum Piece {
    /// It is one.
    Sge(Sge),
    /// The whole of a list ([`Batch::map`]), which is free again when the transfer is done.
    List(MkeyId),
}

/// A layout.
#[derive(Clone, Copy)]
enum Pieces<'a> {
    Row(&'a [Sge]),
    /// This many times a part of each.
    Turns(u32, &'a [ffi::MrInterleaved]),
}

impl<'q> Batch<'q> {
    pub(super) fn new(posting: Posting<'q>, keys: &'q mut Keys) -> Self {
        Self { posting: Some(posting), keys }
    }

    /// Makes one piece of several, for the next registration. Completes only when it fails, under `wr_id`.
    ///
    /// # Errors
    /// [`MkeyError`]; nothing was added to the list.
    pub fn map(&mut self, wr_id: WrId, id: MkeyId, pieces: &[Sge]) -> Result<(), MkeyError> {
        let key = self.keys.key(id)?;
        if key.kind != KeyKind::List {
            return Err(MkeyError::Kind);
        }
        key.after(Event::Register)?;
        fits(pieces.len(), key.max_entries)?;
        let bytes = total(pieces);
        let length = u32::try_from(bytes).map_err(|_| SigError::TooLong(bytes))?;
        // What the key of the registration allows counts.
        self.configure(wr_id, id, ffi::ACCESS_LOCAL_WRITE, None, Pieces::Row(pieces));
        self.keys.change(id, Event::Register, Some(Registered::List(length)));
        Ok(())
    }

    /// Registers the memory and the signature of the next transfer. Completes only when it fails, under `wr_id`. Returns the
    /// lengths of the transfer.
    ///
    /// # Errors
    /// [`MkeyError`]; nothing was added to the list.
    pub fn register(
        &mut self,
        wr_id: WrId,
        id: MkeyId,
        block: &SigBlock,
        memory: Memory<'_>,
    ) -> Result<SigLayout, MkeyError> {
        let (kind, max_entries) = {
            let key = self.keys.key(id)?;
            key.after(Event::Register)?;
            (key.kind, key.max_entries)
        };
        if kind != KeyKind::Signature {
            return Err(MkeyError::Kind);
        }
        let signature = block.signature();
        let (what, access) = match signature.direction() {
            Direction::FromHost => (Move::Read, ffi::ACCESS_LOCAL_WRITE),
            Direction::ToHost => (Move::Write, 0),
        };
        let (layout, parts) = match memory {
            Memory::Row(pieces) => {
                fits(pieces.len(), max_entries)?;
                let layout = signature.layout(total(pieces), 0)?;
                self.configure(wr_id, id, access, Some(block), Pieces::Row(pieces));
                (layout, [None; 2])
            }
            Memory::Separate { data, metadata } => {
                fits(usize::from(SEPARATE_ENTRIES), max_entries)?;
                let (data, data_list) = self.piece(data)?;
                let (metadata, metadata_list) = self.piece(metadata)?;
                if data_list.is_some() && data_list == metadata_list {
                    return Err(MkeyError::Kind);
                }
                let layout = signature.layout(data.length.into(), metadata.length.into())?;
                let format = signature.format();
                let turns = [(data, format.block_size()), (metadata, format.metadata_size().into())];
                let turns = turns.map(|(sge, bytes_count)| ffi::MrInterleaved {
                    addr: sge.addr,
                    bytes_count,
                    bytes_skip: 0,
                    lkey: sge.lkey.0,
                });
                self.configure(wr_id, id, access, Some(block), Pieces::Turns(layout.blocks, &turns));
                (layout, [data_list, metadata_list])
            }
        };
        let transfer = Transfer { what, length: layout.wire, blocks: Blocks::new(block, &layout), parts };
        self.keys.change(id, Event::Register, Some(Registered::Signature(transfer)));
        for list in parts.into_iter().flatten() {
            self.keys.change(list, Event::Use, None);
        }
        Ok(layout)
    }

    /// Moves what was registered, from or to a peer: a READ or WRITE by the signature's direction, of all its bytes on the wire.
    /// Completes under `wr_id`.
    ///
    /// The length is that of the wire, which is seen to be right where memory has tuples. Where only the wire has, no source
    /// says so. (rw-contexts U6)
    ///
    /// # Errors
    /// [`MkeyError`]; nothing was added to the list.
    pub fn transfer(&mut self, wr_id: WrId, id: MkeyId, remote: RemoteAddr) -> Result<(), MkeyError> {
        let key = self.keys.key(id)?;
        let Registered::Signature(Transfer { what, length, .. }) = key.registered() else {
            return Err(MkeyError::Kind);
        };
        key.after(Event::Transfer)?;
        // Bytes of a key are counted from 0.
        let sge = Sge { addr: 0, length, lkey: key.raw.lkey() };
        let posting = self.posting.as_mut().expect("a list that did not end");
        posting.transfer(wr_id, what, remote, &sge);
        self.keys.change(id, Event::Transfer, None);
        Ok(())
    }

    /// Takes the registration from a key that has none under way. Completes under `wr_id`.
    ///
    /// # Errors
    /// [`MkeyError`]; nothing was added to the list.
    pub fn invalidate(&mut self, wr_id: WrId, id: MkeyId) -> Result<(), MkeyError> {
        let key = self.keys.key(id)?;
        key.after(Event::Invalidate)?;
        self.posting.as_mut().expect("a list that did not end").invalidate(wr_id, &key.raw);
        self.keys.change(id, Event::Invalidate, None);
        Ok(())
    }

    /// Posts the list.
    ///
    /// # Errors
    /// [`MkeyError::Library`]: nothing was posted, and the keys are what they were before.
    pub fn complete(mut self) -> Result<(), MkeyError> {
        let posting = self.posting.take().expect("a list that did not end");
        match posting.complete() {
            Ok(()) => {
                self.keys.keep();
                Ok(())
            }
            Err(source) => {
                self.keys.undo();
                Err(MkeyError::Library { what: "post work requests", source })
            }
        }
    }

    fn configure(
        &mut self,
        wr_id: WrId,
        id: MkeyId,
        access: u32,
        signature: Option<&SigBlock>,
        pieces: Pieces<'_>,
    ) {
        let posting = self.posting.as_mut().expect("a list that did not end");
        let row = if let Pieces::Row(pieces) = pieces { pieces } else { &[] };
        let (key, list) = self.keys.with_list(id, row);
        let layout = match pieces {
            Pieces::Row(_) => Layout::List(list),
            Pieces::Turns(repeat, turns) => Layout::Interleaved(repeat, turns),
        };
        posting.configure(wr_id, key, &Configuration { access, layout, signature });
    }

    /// A piece as memory of a key, and the list that it is.
    fn piece(&mut self, piece: Piece) -> Result<(Sge, Option<MkeyId>), MkeyError> {
        match piece {
            Piece::Sge(sge) => Ok((sge, None)),
            Piece::List(id) => {
                let key = self.keys.key(id)?;
                let Registered::List(length) = key.registered() else { return Err(MkeyError::Kind) };
                key.after(Event::Use)?;
                Ok((Sge { addr: 0, length, lkey: key.raw.lkey() }, Some(id)))
            }
        }
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        if self.posting.take().is_some() {
            self.keys.undo();
        }
    }
}

fn total(pieces: &[Sge]) -> u64 {
    pieces.iter().map(|sge| u64::from(sge.length)).sum()
}

fn fits(entries: usize, allowed: u16) -> Result<(), MkeyError> {
    if (1..=usize::from(allowed)).contains(&entries) {
        return Ok(());
    }
    Err(MkeyError::Entries { given: entries, allowed })
}
