//! Rewrite reference tags for another numbering of the same blocks (a partition's offset, a virtual start sector).

use crate::checks::PiType;
use crate::context::{PiContext, load, store};
use crate::sgl::{CursorMut, total_mut};

impl PiContext {
    /// Changes the reference tag of block `i` in the separate metadata `md` from `virt + i` to `phys + i`, both modulo
    /// the width of the reference tag.
    ///
    /// A tag that is not `virt + i` stays, so that what was wrong before is wrong after. Nothing changes for type 3.
    /// Guard, application tag and storage tag are not touched, and the tags of this context play no part.
    ///
    /// ```
    /// # use t10pi::{Checks, Format, Guard, PiContext, PiType, Tags};
    /// let format = Format::new(Guard::Crc16, 512, 8)?;
    /// let at = |ref_tag| PiContext::new(&format, PiType::Type1, Checks::ALL, Tags { ref_tag, ..Tags::default() });
    /// let (data, mut md) = ([7; 1024], [0; 16]);
    /// at(0)?.generate(&[&data], &mut [&mut md]); // numbered within a partition
    /// at(0)?.remap(&mut [&mut md], 0, 2048); // that begins at block 2048
    /// assert_eq!(at(2048)?.verify(&[&data], &[&md]), Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When `md` is not one metadata for each of some blocks.
    pub fn remap(&self, md: &mut [&mut [u8]], virt: u64, phys: u64) {
        let total = total_mut(md);
        assert_eq!(total % self.metadata(), 0, "metadata holds whole blocks");
        self.renumber(md, total / self.metadata(), 0, virt, phys);
    }

    /// As [`PiContext::remap`], in a stream in which each block is followed by its metadata.
    ///
    /// # Panics
    /// When `stream` is not whole blocks with their metadata.
    pub fn remap_interleaved(&self, stream: &mut [&mut [u8]], virt: u64, phys: u64) {
        let blocks = self.blocks_interleaved(total_mut(stream));
        self.renumber(stream, blocks, self.block(), virt, phys);
    }

    /// Both forms: `gap` bytes are before each metadata.
    fn renumber(&self, segments: &mut [&mut [u8]], blocks: usize, gap: usize, virt: u64, phys: u64) {
        if self.pi_type() == PiType::Type3 {
            return;
        }
        let format = self.format();
        let mask = format.join_space(0, u64::MAX);
        let behind = self.metadata() - self.lead() - format.tuple_size();
        let mut target = CursorMut::new(segments);
        let mut tuple = [0; 16];
        let tuple = &mut tuple[..format.tuple_size()];
        for block in 0..blocks as u64 {
            target.skip(gap + self.lead());
            target.peek(tuple);
            let stored = load(tuple);
            if stored & mask == u128::from(format.ref_tag_of(virt.wrapping_add(block))) {
                let ref_tag = u128::from(format.ref_tag_of(phys.wrapping_add(block)));
                store(tuple, stored & !mask | ref_tag);
            }
            target.write(tuple);
            target.skip(behind);
        }
    }
}
