//! From interleaved to separate: copy user data out of a stream, checking its protection information on the way.
//! Each byte is touched once: copy and checksum are one pass.

use crate::context::{BATCH, PiContext};
use crate::copy::copy_pieces;
use crate::error::PiMismatch;
use crate::sgl::{Cursor, CursorMut, total, total_mut};

impl PiContext {
    /// Copies the user data of the interleaved `stream` to `data` and drops the metadata after checking it.
    ///
    /// # Errors
    /// As [`PiContext::verify`]. Then the blocks before the mismatch, and an unspecified part of those behind it,
    /// are in `data`.
    ///
    /// # Panics
    /// When `stream` is not whole blocks with their metadata or `data` not as many blocks.
    pub fn strip(&self, stream: &[&[u8]], data: &mut [&mut [u8]]) -> Result<(), PiMismatch> {
        let blocks = self.blocks_interleaved(total(stream));
        assert_eq!(self.blocks_of_data(total_mut(data)), blocks, "stream and data hold equally many blocks");
        self.separate(blocks, stream, data, None)
    }

    /// Copies the user data of the interleaved `stream` to `data` and its metadata to `md`, checking on the way.
    /// Without checks this is a plain de-interleave; [`PiContext::join`] is its reverse.
    ///
    /// ```
    /// # use t10pi::{Checks, Format, Guard, PiContext, PiType, Tags};
    /// let format = Format::new(Guard::Crc64, 512, 24)?;
    /// let pi = PiContext::new(&format, PiType::Type3, Checks::ALL, Tags::default())?;
    /// let mut stream = vec![0xC3; 536 * 4];
    /// pi.generate_interleaved(&mut [&mut stream]);
    /// let (mut data, mut md) = (vec![0; 512 * 4], vec![0; 24 * 4]);
    /// pi.split(&[&stream], &mut [&mut data], &mut [&mut md])?;
    /// assert_eq!(pi.verify(&[&data], &[&md]), Ok(()));
    ///
    /// let mut again = vec![0; 536 * 4];
    /// pi.join(&[&data], &[&md], &mut [&mut again])?;
    /// assert_eq!(again, stream);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`PiContext::verify`]. Then the blocks before the mismatch, and an unspecified part of those behind it,
    /// are in `data` and `md`.
    ///
    /// # Panics
    /// When `stream` is not whole blocks with their metadata, `data` not as many blocks, or `md` not one metadata
    /// for each.
    pub fn split(
        &self,
        stream: &[&[u8]],
        data: &mut [&mut [u8]],
        md: &mut [&mut [u8]],
    ) -> Result<(), PiMismatch> {
        let blocks = self.blocks_interleaved(total(stream));
        let separate = self.blocks_separate(total_mut(data), total_mut(md));
        assert_eq!(separate, blocks, "stream and data hold equally many blocks");
        self.separate(blocks, stream, data, Some(md))
    }

    /// Both forms: metadata is kept where there is room for it.
    fn separate(
        &self,
        blocks: usize,
        stream: &[&[u8]],
        data: &mut [&mut [u8]],
        md: Option<&mut [&mut [u8]]>,
    ) -> Result<(), PiMismatch> {
        let (size, stride) = (self.block(), self.format().interleaved_block_size());
        let mut source = Cursor::new(stream);
        let mut target = CursorMut::new(data);
        let mut kept = md.map(CursorMut::new);
        let mut states = [0; BATCH];
        let mut block = 0;
        self.copying(blocks, |copy| {
            while block < blocks {
                let run = copy.run(&source, stride, &target, size);
                if run == 0 {
                    let state = copy_pieces(self.checking, self.seed, &mut source, &mut target, size);
                    self.check_streamed(&mut source, state, block, kept.as_mut())?;
                    block += 1;
                    continue;
                }
                let from = source.take(run * stride);
                let to = target.take(run * size);
                let states = &mut states[..run];
                copy.fill(to, &source, |stores, to| {
                    let init = self.seed;
                    self.checking.copy_blocks(stores, init, from, stride, to, size, size, states);
                });
                if kept.is_none() && self.lead() == 0 {
                    self.check_tuples(from, stride, size, states, block)?;
                    block += run;
                    continue;
                }
                let mut rest = from;
                for state in states {
                    let (unit, later) = rest.split_at(stride);
                    let md = &unit[size..];
                    if let Some(kept) = &mut kept {
                        kept.write(md);
                    }
                    self.check_metadata(md, *state, block)?;
                    block += 1;
                    rest = later;
                }
            }
            Ok(())
        })
    }
}
