//! What copying operations share: how far both sides go without a gap, and the way past the caches for large copies.
//!
//! Whole cache lines can be stored past the caches. Long blocks are, by the kernel that copies them. Short ones, whose
//! metadata would leave half a line to each, are put together in a buffer that stays in the cache, and go from there;
//! or they are copied as ever, where the kernel is too slow for that to pay.

use crate::context::{BATCH, PiContext, units};
use crate::crc::{Ahead, Checksum, Kernel, Stores};
use crate::sgl::{Cursor, CursorMut};

/// Bytes of the buffer.
pub(crate) const STAGE: usize = 16 << 10;

/// Blocks that are shorter go through the buffer.
const LONG: usize = 2048;

/// How one operation copies.
pub(crate) struct Copy<'b> {
    kernel: Kernel,
    stores: Stores,
    stage: Option<&'b mut [u8; STAGE]>,
    /// Blocks of one run at most.
    batch: usize,
}

impl PiContext {
    /// Runs an operation that copies `blocks` blocks.
    #[inline]
    pub(crate) fn copying<R>(&self, blocks: usize, run: impl FnOnce(&mut Copy<'_>) -> R) -> R {
        let short = self.block() < LONG;
        let stores =
            if short && !self.kernel.stages() { Stores::Cached } else { Stores::of(blocks * self.block()) };
        let _fence = stores.fence();
        if short && stores == Stores::Streamed {
            return self.staged(run);
        }
        run(&mut Copy { kernel: self.kernel, stores, stage: None, batch: BATCH })
    }

    /// In a function of its own, so that only large copies make the buffer.
    #[inline(never)]
    fn staged<R>(&self, run: impl FnOnce(&mut Copy<'_>) -> R) -> R {
        let mut buffer = [0; STAGE];
        let batch = (STAGE / self.format().interleaved_block_size()).min(BATCH);
        // Metadata so large that no block fits is copied as it is.
        let stage = (batch > 0).then_some(&mut buffer);
        run(&mut Copy { kernel: self.kernel, stores: Stores::Cached, stage, batch: batch.max(1) })
    }
}

impl Copy<'_> {
    /// Whole blocks that lie without a gap on both sides, as many as one run takes.
    #[inline]
    pub(crate) fn run(
        &self,
        source: &Cursor<'_, '_>,
        source_size: usize,
        target: &CursorMut<'_, '_>,
        target_size: usize,
    ) -> usize {
        let most = |bytes, size| if bytes >= self.batch * size { self.batch } else { units(bytes, size) };
        most(source.contiguous(), source_size).min(most(target.contiguous(), target_size))
    }

    /// Lets `fill` write `to`, or the buffer that is copied there; `source` is what will be read next.
    #[inline]
    pub(crate) fn fill<R>(
        &mut self,
        to: &mut [u8],
        source: &Cursor<'_, '_>,
        fill: impl FnOnce(Stores, &mut [u8]) -> R,
    ) -> R {
        match &mut self.stage {
            None => fill(self.stores, to),
            Some(stage) => {
                let stage = &mut stage[..to.len()];
                let result = fill(Stores::Cached, stage);
                self.kernel.stream(stage, to, Ahead::of(source.ahead()));
                result
            }
        }
    }
}

/// Copies `count` bytes of one block, wherever segments end, and returns the checksum state after them, from `seed` on. A short
/// block that lies without a gap on one side has its checksum computed there, at once: copying it costs less than a checksum that stops
/// where pieces end.
pub(crate) fn copy_pieces(
    checksum: &Checksum,
    seed: u64,
    source: &mut Cursor<'_, '_>,
    target: &mut CursorMut<'_, '_>,
    count: usize,
) -> u64 {
    if count < LONG {
        if source.contiguous() >= count {
            let block = source.take(count);
            target.write(block);
            return checksum.update(seed, block);
        }
        if target.contiguous() >= count {
            let block = target.take(count);
            source.read(block);
            return checksum.update(seed, block);
        }
    }
    let mut state = seed;
    source.pieces(count, |piece| {
        let mut rest = piece;
        target.pieces(piece.len(), |to| {
            let (now, later) = rest.split_at(to.len());
            state = checksum.copy(state, now, to);
            rest = later;
        });
    });
    state
}
