//! Check protection information where it lies.

use crate::context::{BATCH, PiContext, units};
use crate::crc::Ahead;
use crate::error::PiMismatch;
use crate::sgl::{Cursor, CursorMut, total};

impl PiContext {
    /// Checks `data` against its separate metadata `md`.
    ///
    /// ```
    /// # use t10pi::{Checks, Field, Format, Guard, PiContext, PiType, Tags};
    /// let format = Format::new(Guard::Crc64, 4096, 16)?;
    /// let tags = Tags { ref_tag: 7, ..Tags::default() };
    /// let pi = PiContext::new(&format, PiType::Type1, Checks::ALL, tags)?;
    /// let (data, mut md) = ([0x5A; 8192], [0; 32]);
    /// pi.generate(&[&data], &mut [&mut md]);
    ///
    /// // Segments may end anywhere, on both sides.
    /// let scattered: [&[u8]; 3] = [&data[..100], &data[100..4097], &data[4097..]];
    /// assert_eq!(pi.verify(&scattered, &[&md[..17], &md[17..]]), Ok(()));
    ///
    /// md[31] ^= 1;
    /// let mismatch = pi.verify(&scattered, &[&md]).unwrap_err();
    /// assert_eq!((mismatch.block, mismatch.field), (1, Field::RefTag));
    /// assert_eq!((mismatch.expected, mismatch.actual), (8, 9));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The first mismatch: the lowest block, and in it the first field in the order of [`Field`](crate::Field).
    /// [`PiContext::inspect`] finds all of them.
    ///
    /// # Panics
    /// When `data` is not whole blocks or `md` not one metadata for each.
    pub fn verify(&self, data: &[&[u8]], md: &[&[u8]]) -> Result<(), PiMismatch> {
        self.verify_ahead(data, md, Ahead::NONE)
    }

    /// As [`PiContext::verify`], of data that may be far from the processor, and fetches `ahead` meanwhile: the data that is
    /// verified next.
    ///
    /// # Errors
    /// As [`PiContext::verify`].
    ///
    /// # Panics
    /// As [`PiContext::verify`].
    pub fn verify_ahead(&self, data: &[&[u8]], md: &[&[u8]], ahead: Ahead) -> Result<(), PiMismatch> {
        let blocks = self.blocks_separate(total(data), total(md));
        if !self.checks_anything() {
            return Ok(());
        }
        let mut source = Cursor::new(data);
        let mut metadata = Cursor::new(md);
        let mut states = [0; BATCH];
        let mut block = 0;
        while block < blocks {
            let count = self.data_states(self.checking, self.seed, &mut source, &mut states, ahead);
            for state in &states[..count] {
                self.check_streamed(&mut metadata, *state, block, None)?;
                block += 1;
            }
        }
        Ok(())
    }

    /// As [`PiContext::verify_ahead`], and writes to `sums` the CRC-32 of each block's data, for the packet that will carry it:
    /// of IEEE 802.3, from register 0 and without the final complement. Both are made in one pass where the kernel can.
    ///
    /// ```
    /// # use t10pi::{Ahead, Checks, Format, Guard, PiContext, PiType, Tags};
    /// let format = Format::new(Guard::Crc16, 512, 8)?;
    /// let pi = PiContext::new(&format, PiType::Type1, Checks::ALL, Tags::default())?;
    /// let (data, mut md) = ([0x5A; 1024], [0; 16]);
    /// pi.generate(&[&data], &mut [&mut md]);
    /// let mut sums = [0; 2];
    /// assert_eq!(pi.verify_summed(&data, &md, Ahead::NONE, &mut sums), Ok(()));
    /// assert_eq!(sums, [0x747D_108E; 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`PiContext::verify`]; `sums` are anything then.
    ///
    /// # Panics
    /// As [`PiContext::verify`], and when `sums` has not one for each block.
    pub fn verify_summed(
        &self,
        data: &[u8],
        md: &[u8],
        ahead: Ahead,
        sums: &mut [u32],
    ) -> Result<(), PiMismatch> {
        let blocks = self.blocks_separate(data.len(), md.len());
        assert_eq!(sums.len(), blocks, "one sum for each block");
        let (mut states, size, per_md) = ([0; BATCH], self.block(), self.metadata());
        let mut rest = (data, md);
        let mut block = 0;
        for sums in sums.chunks_mut(BATCH) {
            let count = sums.len();
            let states = &mut states[..count];
            let (now, later) = rest.0.split_at(count * size);
            let (md, later_md) = rest.1.split_at(count * per_md);
            rest = (later, later_md);
            self.checking.blocks_summed(self.seed, now, size, size, states, sums, ahead.behind(later));
            if self.checks_anything() {
                for (md, state) in md.chunks_exact(per_md).zip(states) {
                    self.check_metadata(md, *state, block)?;
                    block += 1;
                }
            }
        }
        Ok(())
    }

    /// Checks a stream in which each block is followed by its metadata.
    ///
    /// # Errors
    /// As [`PiContext::verify`].
    ///
    /// # Panics
    /// When `stream` is not whole blocks with their metadata.
    pub fn verify_interleaved(&self, stream: &[&[u8]]) -> Result<(), PiMismatch> {
        let blocks = self.blocks_interleaved(total(stream));
        if !self.checks_anything() {
            return Ok(());
        }
        let stride = self.format().interleaved_block_size();
        let covered = self.block() + self.lead();
        let mut source = Cursor::new(stream);
        let mut states = [0; BATCH];
        let mut block = 0;
        while block < blocks {
            let run = units(source.contiguous(), stride).min(BATCH);
            if run == 0 {
                let mut state = self.seed;
                source.pieces(self.block(), |piece| state = self.checking.update(state, piece));
                self.check_streamed(&mut source, state, block, None)?;
                block += 1;
                continue;
            }
            let chunk = source.take(run * stride);
            self.checking.blocks(self.seed, chunk, stride, covered, &mut states[..run], Ahead::NONE);
            self.check_tuples(chunk, stride, covered, &states[..run], block)?;
            block += run;
        }
        Ok(())
    }

    /// Checks the next metadata of `source`, wherever segments end, and copies it to `kept`; `state` is the checksum
    /// of the block's data.
    pub(crate) fn check_streamed(
        &self,
        source: &mut Cursor<'_, '_>,
        state: u64,
        block: usize,
        kept: Option<&mut CursorMut<'_, '_>>,
    ) -> Result<(), PiMismatch> {
        let whole = self.metadata();
        if source.contiguous() >= whole {
            let md = source.take(whole);
            if let Some(kept) = kept {
                kept.write(md);
            }
            return self.check_metadata(md, state, block);
        }
        self.check_pieces(source, state, block, kept)
    }

    /// As [`check_streamed`](Self::check_streamed), for metadata that straddles segments.
    #[cold]
    fn check_pieces(
        &self,
        source: &mut Cursor<'_, '_>,
        mut state: u64,
        block: usize,
        mut kept: Option<&mut CursorMut<'_, '_>>,
    ) -> Result<(), PiMismatch> {
        let size = self.format().tuple_size();
        let mut tuple = [0; 16];
        source.pieces(self.lead(), |piece| {
            state = self.checking.update(state, piece);
            if let Some(kept) = &mut kept {
                kept.write(piece);
            }
        });
        source.read(&mut tuple[..size]);
        if let Some(kept) = &mut kept {
            kept.write(&tuple[..size]);
        }
        source.pieces(self.metadata() - self.lead() - size, |piece| {
            if let Some(kept) = &mut kept {
                kept.write(piece);
            }
        });
        self.check_tuple(&tuple[..size], state, block)
    }
}
