//! From interleaved to interleaved: copy blocks with their metadata, checking on the way, and give them other tags.
//! (NVM Command Set, "Copy", protection information passed and replaced.)

use crate::context::{BATCH, PiContext, load, store};
use crate::copy::copy_pieces;
use crate::error::PiMismatch;
use crate::sgl::{Cursor, CursorMut, total, total_mut};

/// What becomes of the tuples that [`PiContext::pass`] copies.
#[derive(Clone, Copy, Debug)]
pub enum Outgoing<'a> {
    /// They stay as they are.
    AsStored,
    /// Application, storage and reference tag become those of this context, and the guard stays: a corruption that
    /// was not looked for can still be found. A block with the escape value keeps its whole tuple.
    Retagged(&'a PiContext),
    /// Every tuple becomes what this context generates, that of a block with the escape value too. What was not
    /// checked is blessed.
    Replaced(&'a PiContext),
}

impl PiContext {
    /// Copies the interleaved `stream` to `out`, checking by this context and writing tuples as `outgoing` says; the
    /// rest of the metadata is copied as it is.
    ///
    /// ```
    /// # use t10pi::{Checks, Format, Guard, Outgoing, PiContext, PiType, Tags};
    /// let format = Format::new(Guard::Crc16, 512, 8)?;
    /// let at = |lba| PiContext::new(&format, PiType::Type1, Checks::ALL, Tags { ref_tag: lba, ..Tags::default() });
    /// let (from, to) = (at(100)?, at(7000)?);
    /// let (mut source, mut copy) = ([0x3C; 1040], [0; 1040]);
    /// from.generate_interleaved(&mut [&mut source]);
    ///
    /// from.pass(&[&source], &mut [&mut copy], Outgoing::Retagged(&to))?;
    /// assert_eq!(to.verify_interleaved(&[&copy]), Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`PiContext::verify`]. Then the blocks before the mismatch, and an unspecified part of those behind it,
    /// are in `out`.
    ///
    /// # Panics
    /// When `stream` is not whole blocks with their metadata, `out` has not its length, or the context in `outgoing`
    /// has another guard or seed, block size, metadata size or position.
    pub fn pass(
        &self,
        stream: &[&[u8]],
        out: &mut [&mut [u8]],
        outgoing: Outgoing<'_>,
    ) -> Result<(), PiMismatch> {
        let blocks = self.blocks_interleaved(total(stream));
        assert_eq!(self.blocks_interleaved(total_mut(out)), blocks, "both streams hold equally many blocks");
        // A guard that is written must be computed, whether or not the stored one is checked.
        let checksum = match outgoing {
            Outgoing::AsStored => self.checking,
            Outgoing::Retagged(to) => {
                self.assert_same_shape(to);
                self.checking
            }
            Outgoing::Replaced(to) => {
                self.assert_same_shape(to);
                self.generating
            }
        };
        let (size, stride) = (self.block(), self.format().interleaved_block_size());
        let mut source = Cursor::new(stream);
        let mut target = CursorMut::new(out);
        let mut states = [0; BATCH];
        let mut block = 0;
        self.copying(blocks, |copy| {
            while block < blocks {
                let run = copy.run(&source, stride, &target, stride);
                if run == 0 {
                    let mut state = copy_pieces(checksum, self.seed, &mut source, &mut target, size);
                    source.pieces(self.lead(), |piece| {
                        state = checksum.update(state, piece);
                        target.write(piece);
                    });
                    let mut tuple = [0; 16];
                    let tuple = &mut tuple[..self.format().tuple_size()];
                    source.read(tuple);
                    self.check_tuple(tuple, state, block)?;
                    self.outgoing_tuple(outgoing, tuple, state, block);
                    target.write(tuple);
                    source.pieces(self.metadata() - self.lead() - tuple.len(), |piece| target.write(piece));
                    block += 1;
                    continue;
                }
                let from = source.take(run * stride);
                let to = target.take(run * stride);
                let states = &mut states[..run];
                let covered = size + self.lead();
                copy.fill(to, &source, |stores, to| {
                    checksum.copy_blocks(stores, self.seed, from, stride, to, stride, covered, states);
                    for ((state, from), to) in
                        states.iter().zip(from.chunks_exact(stride)).zip(to.chunks_exact_mut(stride))
                    {
                        to[covered..].copy_from_slice(&from[covered..]);
                        let tuple = &mut to[covered..covered + self.format().tuple_size()];
                        self.check_tuple(tuple, *state, block)?;
                        self.outgoing_tuple(outgoing, tuple, *state, block);
                        block += 1;
                    }
                    Ok(())
                })?;
            }
            Ok(())
        })
    }

    /// Makes the stored `tuple` of block `block` what goes out.
    fn outgoing_tuple(&self, outgoing: Outgoing<'_>, tuple: &mut [u8], state: u64, block: usize) {
        match outgoing {
            Outgoing::AsStored => {}
            Outgoing::Replaced(to) => to.write_tuple(tuple, state, block),
            Outgoing::Retagged(to) => {
                let stored = load(tuple);
                if self.is_escaped(stored) {
                    return;
                }
                let tags = to.expected(0, block as u64);
                let guard_shift = (tuple.len() - self.format().guard().size()) * 8;
                store(tuple, stored >> guard_shift << guard_shift | tags);
            }
        }
    }

    fn assert_same_shape(&self, to: &Self) {
        let shape = |context: &Self| {
            let format = context.format();
            (format.guard(), context.seed, format.block_size(), format.metadata_size(), format.position())
        };
        assert_eq!(shape(self), shape(to), "tuples are rewritten in blocks of one shape");
    }
}
