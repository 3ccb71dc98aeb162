//! [`PiContext`]: one validated description of a transfer's protection, built once a command and then trusted.
//!
//! Owns what every operation shares: the expected tuple of a block, the comparison with a stored one, the escape
//! rule, and the order in which mismatches are reported (spec: blocks ascending; in a block escape, guard,
//! application tag, storage tag, reference tag). The operations over buffers are in the files beside it.

use crate::checks::{Checks, Escape, PiType, RefTags, Tags};
use crate::crc::{self, Checksum, Kernel};
use crate::error::{ContextError, PiMismatch};
use crate::format::{Format, Guard, low_bits, truncate};

/// The protection of one transfer: format, type, checks and tags.
///
/// Data and metadata are byte streams given as segments of any length; a segment may end anywhere, also inside a
/// tuple, and the result is the same for every division. The number of blocks follows from the lengths.
///
/// Nothing here allocates. Operations panic when lengths do not describe whole blocks or do not match each other:
/// lengths come from the caller's own planning, never from a peer.
#[derive(Clone, Copy, Debug)]
pub struct PiContext {
    format: Format,
    pi_type: PiType,
    tags: Tags,
    escape: Escape,
    /// The application tag and the storage tag as they stand in a tuple, guard and reference tag zero.
    constant: u128,
    /// Where the guard stands: in the only word of a short tuple, in the upper one of a long tuple.
    guard_shift: u32,
    /// The bits of the reference tag.
    ref_mask: u64,
    /// What the reference tag counts up by: 1, or 0 for type 3.
    ref_step: u8,
    /// Bits of a tuple in which a difference is a mismatch.
    compared: u128,
    /// What computes checksums.
    pub(crate) kernel: Kernel,
    /// State of a guard's checksum before the first byte.
    pub(crate) seed: u64,
    /// Computes guards.
    pub(crate) generating: &'static Checksum,
    /// Computes guards where they are checked, and nothing where they are not.
    pub(crate) checking: &'static Checksum,
}

/// Blocks whose checksums are computed by one call of a kernel.
pub(crate) const BATCH: usize = 16;

impl PiContext {
    /// Returns the description of a transfer.
    ///
    /// # Errors
    /// [`ContextError::StorageTag`] when the storage tag is wider than the format's.
    pub fn new(format: &Format, pi_type: PiType, checks: Checks, tags: Tags) -> Result<Self, ContextError> {
        Self::with_kernel(format, pi_type, checks, tags, Kernel::active())
    }

    /// As [`PiContext::new`], with checksums by `kernel` instead of the kernel of the process.
    ///
    /// # Errors
    /// As [`PiContext::new`].
    pub fn with_kernel(
        format: &Format,
        pi_type: PiType,
        checks: Checks,
        tags: Tags,
        kernel: Kernel,
    ) -> Result<Self, ContextError> {
        let format = *format;
        let bits = format.storage_tag_bits();
        if tags.storage_tag & !low_bits(bits) != 0 {
            return Err(ContextError::StorageTag { tag: tags.storage_tag, bits });
        }
        let tags = Tags { ref_tag: format.ref_tag_of(tags.ref_tag), ..tags };
        let space_bits = format.guard().space_bits();
        let field = |enabled: bool, value: u128| if enabled { value } else { 0 };
        let compared = field(checks.guard, guard_bits(&format))
            | field(checks.app_tag, u128::from(tags.app_tag_mask) << space_bits)
            | field(checks.storage_tag, format.join_space(format.storage_tag_mask(), 0))
            | field(checks.ref_tag && pi_type != PiType::Type3, format.join_space(0, u64::MAX));
        let constant = u128::from(tags.app_tag) << space_bits | format.join_space(tags.storage_tag, 0);
        let guard_shift = match format.guard() {
            Guard::Crc16 | Guard::Ip => 48,
            Guard::Crc32c => 32,
            Guard::Crc64 => 0,
        };
        let ref_mask = low_bits(format.ref_tag_bits());
        let ref_step = u8::from(pi_type != PiType::Type3);
        let generating = kernel.checksum(format.guard());
        let checking = if checks.guard { generating } else { crc::null() };
        Ok(Self {
            format,
            pi_type,
            tags,
            escape: Escape::Honoured,
            constant,
            guard_shift,
            ref_mask,
            ref_step,
            compared,
            kernel,
            seed: generating.init,
            generating,
            checking,
        })
    }

    /// Returns this description with another treatment of stored escape values.
    #[must_use]
    pub fn with_escape(mut self, escape: Escape) -> Self {
        self.escape = escape;
        self
    }

    /// Returns this description with reference tags that count or don't, whatever the type says.
    #[must_use]
    pub fn with_ref_tags(mut self, ref_tags: RefTags) -> Self {
        self.ref_step = u8::from(ref_tags == RefTags::Counting);
        self
    }

    /// Returns this description with guards whose checksum starts from `seed` instead of [`Guard::seed`]; bits that the guard
    /// has not are ignored. RDMA signatures can be told to; no standard's tuples are like that.
    #[must_use]
    pub fn with_guard_seed(mut self, seed: u64) -> Self {
        self.seed = seed & low_bits(guard_width(&self.format));
        self
    }

    /// Returns the description of what follows the first `blocks` blocks of this transfer.
    #[must_use]
    pub fn from_block(mut self, blocks: u64) -> Self {
        self.tags.ref_tag = self.ref_tag(blocks);
        self
    }

    /// The format.
    pub fn format(&self) -> &Format {
        &self.format
    }

    /// The protection type.
    pub fn pi_type(&self) -> PiType {
        self.pi_type
    }

    /// The tags, the reference tag reduced to its width.
    pub fn tags(&self) -> Tags {
        self.tags
    }

    /// The fields in which a difference is a mismatch: of those that were asked for, the ones that the format and the type have
    /// and masks leave bits of.
    pub fn checks(&self) -> Checks {
        let any = |fields| self.compared & self.bits_of(fields) != 0;
        Checks {
            guard: any(Checks { guard: true, ..Checks::NONE }),
            app_tag: any(Checks { app_tag: true, ..Checks::NONE }),
            storage_tag: any(Checks { storage_tag: true, ..Checks::NONE }),
            ref_tag: any(Checks { ref_tag: true, ..Checks::NONE }),
        }
    }

    /// User data of a block, in bytes.
    pub(crate) fn block(&self) -> usize {
        self.format.block_size() as usize
    }

    /// Metadata of a block, in bytes.
    pub(crate) fn metadata(&self) -> usize {
        usize::from(self.format.metadata_size())
    }

    /// Metadata before the tuple, in bytes: covered by the guard.
    pub(crate) fn lead(&self) -> usize {
        self.format.tuple_offset()
    }

    /// Bits of a tuple in which a difference is a mismatch.
    pub(crate) fn compared(&self) -> u128 {
        self.compared
    }

    /// Whether any check is enabled.
    pub(crate) fn checks_anything(&self) -> bool {
        self.compared != 0
    }

    /// Blocks in `data` bytes of separate data with `md` bytes of metadata.
    pub(crate) fn blocks_separate(&self, data: usize, md: usize) -> usize {
        let blocks = self.blocks_of_data(data);
        assert_eq!(blocks * self.metadata(), md, "data and metadata hold equally many blocks");
        blocks
    }

    /// Blocks in `data` bytes of user data.
    pub(crate) fn blocks_of_data(&self, data: usize) -> usize {
        let blocks = units(data, self.block());
        assert_eq!(data, blocks * self.block(), "data holds whole blocks");
        blocks
    }

    /// Blocks in `stream` bytes of interleaved data and metadata.
    pub(crate) fn blocks_interleaved(&self, stream: usize) -> usize {
        let stride = self.format.interleaved_block_size();
        let blocks = units(stream, stride);
        assert_eq!(stream, blocks * stride, "an interleaved stream holds whole blocks");
        blocks
    }

    /// Writes the tuple of block `block`, whose guard is that of `state`, to `tuple`.
    #[inline]
    pub(crate) fn write_tuple(&self, tuple: &mut [u8], state: u64, block: usize) {
        let value = self.expected(self.generating.finish(state), block as u64);
        store(tuple, value);
    }

    /// Writes a tuple into each unit of `stride` bytes, at `at` in it: those of blocks from `block` on with these
    /// checksum states.
    pub(crate) fn write_tuples(
        &self,
        units: &mut [u8],
        stride: usize,
        at: usize,
        states: &[u64],
        block: usize,
    ) {
        let mut rest = units;
        if self.format.tuple_size() == 8 {
            let constant = truncate(self.constant);
            for (state, block) in states.iter().zip(block as u64..) {
                let (unit, later) = rest.split_at_mut(stride);
                let tuple = self.generating.finish(*state) << 48 | constant | self.ref_tag(block);
                unit[at..at + 8].copy_from_slice(&tuple.to_be_bytes());
                rest = later;
            }
            return;
        }
        for (state, block) in states.iter().zip(block..) {
            let (unit, later) = rest.split_at_mut(stride);
            self.write_tuple(&mut unit[at..at + 16], *state, block);
            rest = later;
        }
    }

    /// Checks the tuples that [`write_tuples`](Self::write_tuples) would write.
    pub(crate) fn check_tuples(
        &self,
        units: &[u8],
        stride: usize,
        at: usize,
        states: &[u64],
        block: usize,
    ) -> Result<(), PiMismatch> {
        let mut rest = units;
        if self.format.tuple_size() == 8 {
            let (constant, compared) = (truncate(self.constant), truncate(self.compared));
            for (state, block) in states.iter().zip(block as u64..) {
                let (unit, later) = rest.split_at(stride);
                let expected = self.checking.finish(*state) << 48 | constant | self.ref_tag(block);
                let tuple: &[u8; 8] = unit[at..].first_chunk().expect("a unit holds its tuple");
                let stored = u64::from_be_bytes(*tuple);
                if (stored ^ expected) & compared != 0 {
                    self.judge(stored.into(), expected.into(), block)?;
                }
                rest = later;
            }
            return Ok(());
        }
        for (state, block) in states.iter().zip(block..) {
            let (unit, later) = rest.split_at(stride);
            self.check_tuple(&unit[at..at + 16], *state, block)?;
            rest = later;
        }
        Ok(())
    }

    /// Checks the tuple of block `block` against the guard of `state`.
    #[inline]
    pub(crate) fn check_tuple(&self, tuple: &[u8], state: u64, block: usize) -> Result<(), PiMismatch> {
        let stored = load(tuple);
        let block = block as u64;
        let expected = self.expected(self.checking.finish(state), block);
        if (stored ^ expected) & self.compared == 0 { Ok(()) } else { self.judge(stored, expected, block) }
    }

    /// Checks the metadata of block `block`; `state` is the checksum of its data.
    pub(crate) fn check_metadata(&self, md: &[u8], state: u64, block: usize) -> Result<(), PiMismatch> {
        let (lead, rest) = md.split_at(self.lead());
        let state = if lead.is_empty() { state } else { self.checking.update(state, lead) };
        self.check_tuple(&rest[..self.format.tuple_size()], state, block)
    }

    /// The bits of some fields in a tuple.
    pub(crate) fn bits_of(&self, fields: Checks) -> u128 {
        let format = &self.format;
        let field = |chosen: bool, bits: u128| if chosen { bits } else { 0 };
        field(fields.guard, guard_bits(format))
            | field(fields.app_tag, 0xFFFF << format.guard().space_bits())
            | field(fields.storage_tag, format.join_space(u64::MAX, 0))
            | field(fields.ref_tag, format.join_space(0, u64::MAX))
    }

    /// The whole tuple that block `block` should have.
    #[inline]
    pub(crate) fn expected(&self, guard: u64, block: u64) -> u128 {
        let guard = guard << self.guard_shift;
        // The reference tag is in the lower word whatever its width, the guard in the upper one of those that are.
        let guard = if self.format.tuple_size() == 8 { u128::from(guard) } else { u128::from(guard) << 64 };
        self.constant | guard | u128::from(self.ref_tag(block))
    }

    /// The reference tag that block `block` should have.
    #[inline]
    fn ref_tag(&self, block: u64) -> u64 {
        self.tags.ref_tag.wrapping_add(block.wrapping_mul(self.ref_step.into())) & self.ref_mask
    }

    /// Finds out whether a difference in a compared bit counts, and in which field it is.
    #[cold]
    fn judge(&self, stored: u128, expected: u128, block: u64) -> Result<(), PiMismatch> {
        if self.is_escaped(stored) {
            return Ok(());
        }
        match self.mismatches(stored, expected, block).into_iter().flatten().next() {
            Some(first) => Err(first),
            None => Ok(()),
        }
    }

    /// Whether a stored tuple has the escape value of the type. No mask applies, and no expected tag.
    pub(crate) fn is_escaped(&self, stored: u128) -> bool {
        let app_tag = truncate(stored >> self.format.guard().space_bits()) & 0xFFFF;
        let ref_ones = self.format.join_space(0, u64::MAX);
        let with_ref_tag = match self.escape {
            Escape::Ignored => return false,
            Escape::Honoured => self.pi_type == PiType::Type3,
            Escape::AppTag => false,
            Escape::AppAndRefTag => true,
        };
        app_tag == 0xFFFF && (!with_ref_tag || stored & ref_ones == ref_ones)
    }
}

/// How many times `size` goes into `bytes`. One is frequent, and needs no division.
#[inline]
pub(crate) fn units(bytes: usize, size: usize) -> usize {
    if bytes < size {
        0
    } else if bytes < 2 * size {
        1
    } else {
        bytes / size
    }
}

/// The bits of the guard in a tuple of `format`.
fn guard_bits(format: &Format) -> u128 {
    let bits = guard_width(format);
    let shift = format.tuple_size() * 8 - usize::from(bits);
    u128::from(low_bits(bits)) << shift
}

/// Bits of the guard.
fn guard_width(format: &Format) -> u8 {
    match format.guard() {
        Guard::Crc16 | Guard::Ip => 16,
        Guard::Crc32c => 32,
        Guard::Crc64 => 64,
    }
}

/// Reads a tuple of 8 or 16 bytes as one big-endian number.
pub(crate) fn load(tuple: &[u8]) -> u128 {
    if let Ok(short) = <[u8; 8]>::try_from(tuple) {
        return u128::from(u64::from_be_bytes(short));
    }
    let long = <[u8; 16]>::try_from(tuple).expect("a tuple has 8 or 16 bytes");
    u128::from_be_bytes(long)
}

/// Writes a number as a tuple of 8 or 16 bytes.
pub(crate) fn store(tuple: &mut [u8], value: u128) {
    if let Ok(short) = <&mut [u8; 8]>::try_from(&mut *tuple) {
        *short = truncate(value).to_be_bytes();
        return;
    }
    let long = <&mut [u8; 16]>::try_from(tuple).expect("a tuple has 8 or 16 bytes");
    *long = value.to_be_bytes();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_those_that_can_fail() {
        let format = Format::new(Guard::Crc16, 512, 8).unwrap();
        let tagged = format.with_storage_tag(8, 0xF0).unwrap();
        let unmasked = format.with_storage_tag(8, 0).unwrap();
        let full = format.with_storage_tag(32, 1).unwrap();
        let checks = |format: &Format, pi_type, checks, app_tag_mask| {
            let tags = Tags { app_tag_mask, ..Tags::default() };
            PiContext::new(format, pi_type, checks, tags).unwrap().checks()
        };
        let (all, type1) = (Checks::ALL, PiType::Type1);
        assert_eq!(checks(&tagged, type1, all, 1), all);
        assert_eq!(checks(&tagged, type1, Checks::NONE, 1), Checks::NONE);
        assert_eq!(checks(&tagged, PiType::Type3, all, 1), Checks { ref_tag: false, ..all });
        assert_eq!(checks(&tagged, type1, all, 0), Checks { app_tag: false, ..all });
        for format in [format, unmasked] {
            assert_eq!(checks(&format, type1, all, 1), Checks { storage_tag: false, ..all });
        }
        assert_eq!(checks(&full, type1, all, 1), Checks { ref_tag: false, ..all });
        for field in [
            Checks { guard: true, ..Checks::NONE },
            Checks { app_tag: true, ..Checks::NONE },
            Checks { storage_tag: true, ..Checks::NONE },
            Checks { ref_tag: true, ..Checks::NONE },
        ] {
            assert_eq!(checks(&tagged, type1, field, 1), field);
        }
    }
}
