//! Metadata of blocks that were never written or are deallocated: tags of all ones, so that every type's escape rule
//! takes them out of checking. (NVM Command Set, "Deallocated or Unwritten Logical Blocks"; SBC-4 for unmapped ones.)

use crate::context::store;
use crate::crc::Kernel;
use crate::format::Format;

/// What the user data of unwritten blocks reads as (DLFEAT bits 2:0); metadata outside the tuple reads the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Zero bytes.
    Zeroes,
    /// Bytes of FFh.
    Ones,
}

/// What the guard of unwritten blocks reads as (DLFEAT bit 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnwrittenGuard {
    /// All ones.
    Ones,
    /// The checksum of what is read.
    Checksum,
}

impl Format {
    /// Writes the metadata of unwritten blocks to `md`, as many as fit its length.
    ///
    /// ```
    /// # use t10pi::{Fill, Format, Guard, UnwrittenGuard};
    /// let format = Format::new(Guard::Crc32c, 4096, 16)?;
    /// let mut md = [0; 16];
    /// format.fill_unwritten(Fill::Zeroes, UnwrittenGuard::Checksum, &mut md);
    /// assert_eq!(md[..6], [0x98, 0xF9, 0x41, 0x89, 0xFF, 0xFF]);
    /// # Ok::<(), t10pi::FormatError>(())
    /// ```
    ///
    /// # Panics
    /// When `md` is not one metadata for each of some blocks.
    pub fn fill_unwritten(&self, fill: Fill, guard: UnwrittenGuard, md: &mut [u8]) {
        let size = usize::from(self.metadata_size());
        assert_eq!(md.len() % size, 0, "metadata holds whole blocks");
        let byte = match fill {
            Fill::Zeroes => 0,
            Fill::Ones => 0xFF,
        };
        let guard = match guard {
            UnwrittenGuard::Ones => u128::MAX,
            UnwrittenGuard::Checksum => u128::from(self.guard_of(byte)),
        };
        let guard_shift = (self.tuple_size() - self.guard().size()) * 8;
        let value = guard << guard_shift | !(u128::MAX << guard_shift);
        let tuple = self.tuple_offset()..self.tuple_offset() + self.tuple_size();
        md.fill(byte);
        for md in md.chunks_exact_mut(size) {
            store(&mut md[tuple.clone()], value);
        }
    }

    /// The guard of a block whose covered bytes are all `byte`.
    fn guard_of(&self, byte: u8) -> u64 {
        let checksum = Kernel::active().checksum(self.guard());
        let covered = self.block_size() as usize + self.tuple_offset();
        checksum.finish(checksum.update_fill(checksum.init, byte, covered))
    }
}
