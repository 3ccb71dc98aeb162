//! Signatures without a device that has them: the whole transfer, before its WRITE or after its READ.
//!
//! What goes over the wire is then a plain READ or WRITE over [`Signature::wire_sges`].

use t10pi::PiMismatch;

use super::operation::{Operation, Signature};
use super::pieces::{Place, Shape, cut};
use super::status::SigStatus;
use crate::plan::Direction;
use crate::remote::Rkey;
use crate::wr::Sge;

/// Segments of read-only memory that are listed without allocating.
const FEW: usize = 16;

impl Signature {
    /// Bytes of metadata that is neither on both sides nor on none, which needs memory of its own in software: that on the wire
    /// of an insertion before a WRITE, of a strip after a READ, and of a rewrite.
    #[must_use]
    pub fn apart_bytes(&self, blocks: u32) -> u32 {
        if self.holds_apart() { self.shape_of(0).apart(0, blocks).length } else { 0 }
    }

    /// Lists what is on the wire, in order, in `out`, which is emptied first: from the data list, the protection list, and the
    /// metadata that is held `apart`, of [`Self::apart_bytes`] bytes.
    ///
    /// # Panics
    /// When the lists have no [`layout`](Self::layout), or `apart` not that length.
    pub fn wire_sges(&self, data: &[Sge], protection: &[Sge], apart: Sge, out: &mut Vec<Sge>) {
        out.clear();
        let beside = total(protection);
        let layout = self.layout(total(data), beside).expect("lists that describe a transfer");
        assert!(
            !self.holds_apart() || apart.length == layout.metadata,
            "room for the metadata of every block"
        );
        for span in self.shape_of(beside).on_wire(0, layout.wire) {
            let list = match span.place {
                Place::Data => data,
                Place::Protection => protection,
                Place::Apart => std::slice::from_ref(&apart),
            };
            for piece in cut(list, span) {
                match out.last_mut() {
                    Some(last) if last.ends_at(&piece) => last.length += piece.length,
                    _ => out.push(piece),
                }
            }
        }
    }

    /// Checks what a WRITE is going to send, and makes the metadata that is held apart. `data` and `protection` are the two lists
    /// of memory, `protection` empty where it is bare or interleaved.
    ///
    /// Interleaved memory is listed anew, which allocates.
    ///
    /// # Panics
    /// When the signature is not of a WRITE, or the lengths have no [`layout`](Self::layout).
    pub fn before_write(&self, data: &[&[u8]], protection: &[&[u8]], apart: &mut [&mut [u8]]) -> SigStatus {
        assert_eq!(self.direction(), Direction::ToHost, "data goes to the wire");
        let shape = self.shape_of(bytes(protection));
        let result = if shape.is_interleaved() {
            let (data, given) = split(shape, data.to_vec(), |piece, at| piece.split_at(at));
            self.run(0, &data, &given, apart)
        } else {
            self.run(0, data, protection, apart)
        };
        self.status(Rkey(0), result.err())
    }

    /// Checks what a READ brought, and makes the metadata in memory: `data` and `protection` are its two lists, `protection` empty
    /// where it is bare or interleaved; `apart` is what came of metadata that is held apart.
    ///
    /// Interleaved memory, and that in many pieces, is listed anew, which allocates.
    ///
    /// # Panics
    /// When the signature is not of a READ, or the lengths have no [`layout`](Self::layout).
    pub fn after_read(
        &self,
        data: &mut [&mut [u8]],
        protection: &mut [&mut [u8]],
        apart: &[&[u8]],
    ) -> SigStatus {
        assert_eq!(self.direction(), Direction::FromHost, "data came from the wire");
        let beside: usize = protection.iter().map(|piece| piece.len()).sum();
        let shape = self.shape_of(beside as u64);
        let found = if shape.is_interleaved() {
            let pieces = data.iter_mut().map(|piece| &mut **piece).collect();
            let (data, mut made) = split(shape, pieces, |piece: &mut [u8], at| piece.split_at_mut(at));
            self.run_after_read(&data, &mut made, apart)
        } else {
            self.run_after_read(data, protection, apart)
        };
        self.status(Rkey(0), found.err())
    }

    fn run_after_read(
        &self,
        data: &[&mut [u8]],
        metadata: &mut [&mut [u8]],
        apart: &[&[u8]],
    ) -> Result<(), PiMismatch> {
        shared(data, |data| match self.operation() {
            Operation::Verify => shared(metadata, |given| self.run(0, data, given, &mut [])),
            Operation::Strip => self.run(0, data, apart, &mut []),
            Operation::Insert | Operation::Rewrite => self.run(0, data, apart, metadata),
        })
    }

    /// Whether there is metadata on the wire that is not that in memory.
    fn holds_apart(&self) -> bool {
        self.protects_wire() && self.operation() != Operation::Verify
    }
}

/// Lets `run` see segments for reading.
fn shared<R>(segments: &[&mut [u8]], run: impl FnOnce(&[&[u8]]) -> R) -> R {
    if segments.len() > FEW {
        return run(&segments.iter().map(|piece| &**piece).collect::<Vec<_>>());
    }
    let mut few: [&[u8]; FEW] = [&[]; FEW];
    for (few, piece) in few.iter_mut().zip(segments) {
        *few = piece;
    }
    run(&few[..segments.len()])
}

/// Splits interleaved memory into the pieces of its data and of its metadata.
fn split<P: AsRef<[u8]> + Default>(
    shape: Shape,
    pieces: Vec<P>,
    split_at: impl Fn(P, usize) -> (P, P),
) -> (Vec<P>, Vec<P>) {
    let (mut data, mut metadata) = (Vec::new(), Vec::new());
    let (block, stride) = (shape.block as usize, (shape.block + shape.metadata) as usize);
    let mut at = 0;
    for piece in pieces {
        let mut rest = piece;
        while !rest.as_ref().is_empty() {
            let (list, end) = if at < block { (&mut data, block) } else { (&mut metadata, stride) };
            let length = (end - at).min(rest.as_ref().len());
            let (now, later) = split_at(rest, length);
            list.push(now);
            rest = later;
            at = (at + length) % stride;
        }
    }
    (data, metadata)
}

fn total(list: &[Sge]) -> u64 {
    list.iter().map(|sge| u64::from(sge.length)).sum()
}

fn bytes(segments: &[&[u8]]) -> u64 {
    segments.iter().map(|piece| piece.len() as u64).sum()
}
