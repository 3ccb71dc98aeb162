//! Write protection information into space that is there.

use crate::context::{BATCH, PiContext, units};
use crate::crc::{Ahead, Checksum};
use crate::sgl::{Cursor, CursorMut, total, total_mut};

impl PiContext {
    /// Writes the tuples of `data` into its separate metadata `md`; the rest of `md` is covered where the format says
    /// so, and stays. (NVM Command Set 5.3.1, SBC-4 4.21.3.)
    ///
    /// ```
    /// # use t10pi::{Checks, Format, Guard, PiContext, PiType, Tags};
    /// let format = Format::new(Guard::Crc16, 512, 8)?;
    /// let tags = Tags { app_tag: 0x1234, ref_tag: 0x89AB_CDEF, ..Tags::default() };
    /// let pi = PiContext::new(&format, PiType::Type2, Checks::ALL, tags)?;
    /// let mut md = [0; 16];
    /// pi.generate(&[&[0; 1024]], &mut [&mut md]);
    /// assert_eq!(md[..8], [0, 0, 0x12, 0x34, 0x89, 0xAB, 0xCD, 0xEF]);
    /// assert_eq!(md[15], 0xF0, "the reference tag counts");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When `data` is not whole blocks or `md` not one metadata for each.
    pub fn generate(&self, data: &[&[u8]], md: &mut [&mut [u8]]) {
        let blocks = self.blocks_separate(total(data), total_mut(md));
        let mut source = Cursor::new(data);
        let mut metadata = CursorMut::new(md);
        let mut states = [0; BATCH];
        let mut block = 0;
        while block < blocks {
            let count = self.data_states(self.generating, self.seed, &mut source, &mut states, Ahead::NONE);
            for state in &states[..count] {
                self.seal_streamed(&mut metadata, *state, block);
                block += 1;
            }
        }
    }

    /// Writes the tuples into a stream in which each block is followed by its metadata.
    ///
    /// # Panics
    /// When `stream` is not whole blocks with their metadata.
    pub fn generate_interleaved(&self, stream: &mut [&mut [u8]]) {
        let blocks = self.blocks_interleaved(total_mut(stream));
        let stride = self.format().interleaved_block_size();
        let covered = self.block() + self.lead();
        let mut target = CursorMut::new(stream);
        let mut states = [0; BATCH];
        let mut block = 0;
        while block < blocks {
            let run = units(target.contiguous(), stride).min(BATCH);
            if run == 0 {
                let mut state = self.seed;
                target.pieces(self.block(), |piece| state = self.generating.update(state, piece));
                self.seal_streamed(&mut target, state, block);
                block += 1;
                continue;
            }
            let chunk = target.take(run * stride);
            self.generating.blocks(self.seed, chunk, stride, covered, &mut states[..run], Ahead::NONE);
            self.write_tuples(chunk, stride, covered, &states[..run], block);
            block += run;
        }
    }

    /// Writes the metadata of blocks of zeroes: tuples as generated for zero data, and zero bytes around them.
    /// The number of blocks follows from the length of `md`.
    ///
    /// # Panics
    /// When `md` is not one metadata for each of some blocks.
    pub fn generate_zeroes(&self, md: &mut [u8]) {
        assert_eq!(md.len() % self.metadata(), 0, "metadata holds whole blocks");
        let state = self.generating.update_fill(self.seed, 0, self.block() + self.lead());
        let tuple = self.lead()..self.lead() + self.format().tuple_size();
        md.fill(0);
        for (block, md) in md.chunks_exact_mut(self.metadata()).enumerate() {
            self.write_tuple(&mut md[tuple.clone()], state, block);
        }
    }

    /// Writes the tuple of block `block` into its metadata; `state` is the checksum of its data.
    pub(crate) fn seal_metadata(&self, md: &mut [u8], state: u64, block: usize) {
        let (lead, rest) = md.split_at_mut(self.lead());
        let state = if lead.is_empty() { state } else { self.generating.update(state, lead) };
        self.write_tuple(&mut rest[..self.format().tuple_size()], state, block);
    }

    /// Writes the tuple of block `block` into the next metadata of `target`, wherever segments end; `state` is the
    /// checksum of the block's data.
    pub(crate) fn seal_streamed(&self, target: &mut CursorMut<'_, '_>, mut state: u64, block: usize) {
        if target.contiguous() >= self.metadata() {
            return self.seal_metadata(target.take(self.metadata()), state, block);
        }
        target.pieces(self.lead(), |piece| state = self.generating.update(state, piece));
        self.emit_tuple(target, state, block);
        target.skip(self.metadata() - self.lead() - self.format().tuple_size());
    }

    /// Writes the tuple of block `block` to the next bytes of `target`; `state` is the checksum of all it covers.
    fn emit_tuple(&self, target: &mut CursorMut<'_, '_>, state: u64, block: usize) {
        let mut tuple = [0; 16];
        let tuple = &mut tuple[..self.format().tuple_size()];
        self.write_tuple(tuple, state, block);
        target.write(tuple);
    }

    /// Makes the next metadata of `target` for block `block`: zeroes and the tuple.
    pub(crate) fn make_metadata(&self, target: &mut CursorMut<'_, '_>, mut state: u64, block: usize) {
        target.pieces(self.lead(), |piece| {
            piece.fill(0);
            state = self.generating.update(state, piece);
        });
        self.emit_tuple(target, state, block);
        let behind = self.metadata() - self.lead() - self.format().tuple_size();
        target.pieces(behind, |piece| piece.fill(0));
    }

    /// Takes as many blocks of user data from `source` as lie without a gap, at least one and at most [`BATCH`], puts
    /// their checksum states, from `seed` on, into `states`, and returns how many they are. Fetches `ahead` meanwhile.
    pub(crate) fn data_states(
        &self,
        checksum: &Checksum,
        seed: u64,
        source: &mut Cursor<'_, '_>,
        states: &mut [u64; BATCH],
        ahead: Ahead,
    ) -> usize {
        let size = self.block();
        let run = units(source.contiguous(), size).min(BATCH);
        if run == 0 {
            states[0] = seed;
            source.pieces(size, |piece| states[0] = checksum.update(states[0], piece));
            return 1;
        }
        let chunk = source.take(run * size);
        checksum.blocks(seed, chunk, size, size, &mut states[..run], ahead.behind(source.ahead()));
        run
    }
}
