//! Exchange the guard of 8-byte tuples between the wire's CRC and the Internet checksum of a host's memory (DIX).
//!
//! The incoming guard is checked before the outgoing one is written: the other order would bless a corruption.

use crate::context::{BATCH, PiContext, load, store};
use crate::crc::Ahead;
use crate::error::PiMismatch;
use crate::format::Guard;
use crate::sgl::{Cursor, CursorMut, total, total_mut};

impl PiContext {
    /// Checks `data` against its separate metadata `md` and replaces each guard by that of `to`; tags stay. Blocks
    /// with the escape value are not checked, and get the new guard too.
    ///
    /// ```
    /// # use t10pi::{Checks, Format, Guard, PiContext, PiType, Tags};
    /// let memory = Format::new(Guard::Ip, 512, 8)?;
    /// let pi = PiContext::new(&memory, PiType::Type1, Checks::ALL, Tags::default())?;
    /// let (data, mut md) = ([0xA5; 512], [0; 8]);
    /// pi.generate(&[&data], &mut [&mut md]);
    /// pi.convert(&[&data], &mut [&mut md], Guard::Crc16)?;
    /// assert_eq!(md[..2], [0x9E, 0xC6], "the wire's guard");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`PiContext::verify`]. Then the blocks before the mismatch have their new guard and the others the old.
    ///
    /// # Panics
    /// When `data` is not whole blocks or `md` not one metadata for each, and when the tuples of `to` have another
    /// layout than those of the format.
    pub fn convert(&self, data: &[&[u8]], md: &mut [&mut [u8]], to: Guard) -> Result<(), PiMismatch> {
        let format = self.format();
        let same_layout = format.guard().size() == to.size() && format.tuple_size() == to.tuple_size();
        assert!(same_layout, "guards are exchanged between tuples of one layout");
        let blocks = self.blocks_separate(total(data), total_mut(md));
        let outgoing = self.kernel.checksum(to);
        let mut checked = Cursor::new(data);
        let mut guarded = Cursor::new(data);
        let (mut old, mut new) = ([0; BATCH], [0; BATCH]);
        let mut metadata = CursorMut::new(md);
        let (tuple_size, behind) = (format.tuple_size(), self.metadata() - self.lead() - format.tuple_size());
        let guard_shift = (tuple_size - to.size()) * 8;
        let mut block = 0;
        while block < blocks {
            let count = self.data_states(self.checking, self.seed, &mut checked, &mut old, Ahead::NONE);
            let again = self.data_states(outgoing, outgoing.init, &mut guarded, &mut new, Ahead::NONE);
            assert_eq!(count, again, "both cursors walk the same segments");
            for (old, new) in old.iter_mut().zip(&mut new).take(count) {
                metadata.pieces(self.lead(), |piece| {
                    *old = self.checking.update(*old, piece);
                    *new = outgoing.update(*new, piece);
                });
                let mut tuple = [0; 16];
                let tuple = &mut tuple[..tuple_size];
                metadata.peek(tuple);
                self.check_tuple(tuple, *old, block)?;
                let tags = load(tuple) & !(u128::from(u64::MAX) << guard_shift);
                store(tuple, tags | u128::from(outgoing.finish(*new)) << guard_shift);
                metadata.write(tuple);
                metadata.skip(behind);
                block += 1;
            }
        }
        Ok(())
    }
}
