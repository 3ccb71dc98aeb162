//! From separate to interleaved: copy user data into a stream and put metadata behind each block. Each byte is
//! touched once: copy and checksum are one pass.

use crate::context::{BATCH, PiContext};
use crate::copy::copy_pieces;
use crate::error::PiMismatch;
use crate::sgl::{Cursor, CursorMut, total, total_mut};

impl PiContext {
    /// Copies `data` into the interleaved stream `out` and generates its metadata; bytes of the metadata that are not
    /// the tuple become zero. (NVM Command Set 5.3.2.1, a write with PRACT = 1; SBC-4 5.40, WRPROTECT 000b.)
    ///
    /// ```
    /// # use t10pi::{Checks, Format, Guard, PiContext, PiType, Tags};
    /// let format = Format::new(Guard::Crc32c, 4096, 16)?;
    /// let pi = PiContext::new(&format, PiType::Type1, Checks::ALL, Tags::default())?;
    /// let data = [0; 8192];
    /// let mut pages = [[0; 4096]; 3];
    /// // 8224 bytes in segments that straddle blocks.
    /// let [a, b, c] = &mut pages;
    /// pi.insert(&[&data], &mut [a, b, &mut c[..32]]);
    /// assert_eq!(pages[1][..4], [0x98, 0xF9, 0x41, 0x89], "the guard of block 0 begins the second page");
    ///
    /// let mut back = [1; 8192];
    /// pi.strip(&[&pages[0], &pages[1], &pages[2][..32]], &mut [&mut back])?;
    /// assert_eq!(back, data);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When `data` is not whole blocks or `out` not the interleaved form of as many.
    pub fn insert(&self, data: &[&[u8]], out: &mut [&mut [u8]]) {
        let blocks = self.blocks_of_data(total(data));
        assert_eq!(
            self.blocks_interleaved(total_mut(out)),
            blocks,
            "data and stream hold equally many blocks"
        );
        let (size, stride) = (self.block(), self.format().interleaved_block_size());
        let mut source = Cursor::new(data);
        let mut target = CursorMut::new(out);
        let mut states = [0; BATCH];
        let mut block = 0;
        self.copying(blocks, |copy| {
            while block < blocks {
                let run = copy.run(&source, size, &target, stride);
                if run == 0 {
                    let state = copy_pieces(self.generating, self.seed, &mut source, &mut target, size);
                    self.make_metadata(&mut target, state, block);
                    block += 1;
                    continue;
                }
                let from = source.take(run * size);
                let to = target.take(run * stride);
                let states = &mut states[..run];
                copy.fill(to, &source, |stores, to| {
                    let init = self.seed;
                    self.generating.copy_blocks(stores, init, from, size, to, stride, size, states);
                    if self.metadata() == self.format().tuple_size() {
                        self.write_tuples(to, stride, size, states, block);
                        block += run;
                        return;
                    }
                    let mut rest = to;
                    for state in states {
                        let (unit, later) = rest.split_at_mut(stride);
                        let md = &mut unit[size..];
                        md.fill(0);
                        self.seal_metadata(md, *state, block);
                        block += 1;
                        rest = later;
                    }
                });
            }
        });
    }

    /// Copies `data` and its separate metadata `md` into the interleaved stream `out`, checking on the way.
    ///
    /// # Errors
    /// As [`PiContext::verify`]. Then the blocks before the mismatch, and an unspecified part of those behind it,
    /// are in `out`.
    ///
    /// # Panics
    /// When `data` is not whole blocks, `md` not one metadata for each, or `out` not their interleaved form.
    pub fn join(&self, data: &[&[u8]], md: &[&[u8]], out: &mut [&mut [u8]]) -> Result<(), PiMismatch> {
        let blocks = self.blocks_separate(total(data), total(md));
        assert_eq!(
            self.blocks_interleaved(total_mut(out)),
            blocks,
            "data and stream hold equally many blocks"
        );
        let (size, stride) = (self.block(), self.format().interleaved_block_size());
        let mut source = Cursor::new(data);
        let mut target = CursorMut::new(out);
        let mut metadata = Cursor::new(md);
        let mut states = [0; BATCH];
        let mut block = 0;
        self.copying(blocks, |copy| {
            while block < blocks {
                let run = copy.run(&source, size, &target, stride);
                if run == 0 {
                    let state = copy_pieces(self.checking, self.seed, &mut source, &mut target, size);
                    self.check_streamed(&mut metadata, state, block, Some(&mut target))?;
                    block += 1;
                    continue;
                }
                let from = source.take(run * size);
                let to = target.take(run * stride);
                let states = &mut states[..run];
                copy.fill(to, &source, |stores, to| {
                    let init = self.seed;
                    self.checking.copy_blocks(stores, init, from, size, to, stride, size, states);
                    let mut rest = to;
                    for state in states {
                        let (unit, later) = rest.split_at_mut(stride);
                        let md = &mut unit[size..];
                        metadata.read(md);
                        self.check_metadata(md, *state, block)?;
                        block += 1;
                        rest = later;
                    }
                    Ok(())
                })?;
            }
            Ok(())
        })
    }
}
