//! From separate to separate: metadata with some fields of its tuples as they were, and the others made anew. It checks
//! nothing; who does it to data of others verifies first.

use crate::checks::Checks;
use crate::context::{PiContext, load, store};
use crate::sgl::{Cursor, CursorMut, total, total_mut};

impl PiContext {
    /// Copies `md`, the separate metadata of `data`, to `out`, where the fields of each tuple that are not `copied` become those
    /// of `to`. Where the guard is copied, a block with the escape value keeps its whole tuple. (RDMA signatures, pass with a
    /// copy mask; what is outside the tuple is copied.)
    ///
    /// ```
    /// # use t10pi::{Checks, Format, Guard, PiContext, PiType, Tags};
    /// let format = Format::new(Guard::Crc16, 512, 8)?;
    /// let at = |lba| PiContext::new(&format, PiType::Type1, Checks::ALL, Tags { ref_tag: lba, ..Tags::default() });
    /// let (from, to) = (at(100)?, at(7000)?);
    /// let (data, mut md, mut out) = ([7; 1024], [0; 16], [0; 16]);
    /// from.generate(&[&data], &mut [&mut md]);
    /// from.rewrite(&[&data], &[&md], &mut [&mut out], &to, Checks { ref_tag: false, ..Checks::ALL });
    /// assert_eq!(to.verify(&[&data], &[&out]), Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// When `data` is not whole blocks, `md` or `out` not one metadata for each, or the tuples of `to` have another layout.
    pub fn rewrite(&self, data: &[&[u8]], md: &[&[u8]], out: &mut [&mut [u8]], to: &Self, copied: Checks) {
        let shape = |context: &Self| {
            let format = context.format();
            let tuple = (format.tuple_size(), format.guard().size(), format.storage_tag_bits());
            (tuple, format.block_size(), format.metadata_size(), format.position())
        };
        assert_eq!(shape(self), shape(to), "tuples are rewritten in blocks of one shape");
        let blocks = self.blocks_separate(total(data), total(md));
        assert_eq!(total_mut(out), total(md), "as much metadata goes out as comes in");
        let mut source = Cursor::new(md);
        let mut target = CursorMut::new(out);
        source.pieces(blocks * self.metadata(), |piece| target.write(piece));
        if !copied.guard {
            to.generate(data, out);
        }

        let keep = self.bits_of(copied);
        let (lead, size) = (self.lead(), self.format().tuple_size());
        let behind = self.metadata() - lead - size;
        let mut source = Cursor::new(md);
        let mut target = CursorMut::new(out);
        let (mut given, mut made) = ([0; 16], [0; 16]);
        let (given, made) = (&mut given[..size], &mut made[..size]);
        for block in 0..blocks as u64 {
            source.skip(lead);
            source.read(given);
            source.skip(behind);
            target.skip(lead);
            target.peek(made);
            let stored = load(given);
            if !(copied.guard && self.is_escaped(stored)) {
                let new = if copied.guard { to.expected(0, block) } else { load(made) };
                store(made, stored & keep | new & !keep);
            }
            target.write(made);
            target.skip(behind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Escape, Format, Guard, Outgoing, PiType, RefTags, Tags};

    fn pair(format: &Format) -> (PiContext, PiContext) {
        let at = |app_tag, ref_tag| {
            let tags = Tags { app_tag, app_tag_mask: 0xFFFF, storage_tag: 3, ref_tag };
            PiContext::new(format, PiType::Type1, Checks::ALL, tags).unwrap()
        };
        (at(0x1111, 10), at(0x2222, 900))
    }

    #[test]
    fn whole_masks_are_what_pass_does_with_a_stream() {
        for (guard, block, metadata) in
            [(Guard::Crc16, 512, 8), (Guard::Crc64, 512, 24), (Guard::Crc32c, 4096, 16)]
        {
            let format = Format::new(guard, block, metadata).unwrap().with_storage_tag(16, 0xFFFF).unwrap();
            let (from, to) = pair(&format);
            let (block, metadata) = (block as usize, usize::from(metadata));
            let data: Vec<u8> = (0..=250).cycle().take(block * 3).collect();
            let mut md = vec![0x5A; metadata * 3];
            from.generate(&[&data], &mut [&mut md]);
            let tuple =
                metadata + format.tuple_offset()..metadata + format.tuple_offset() + format.tuple_size();
            md[tuple].fill(0xFF); // block 1 is escaped
            let stream: Vec<u8> =
                data.chunks(block).zip(md.chunks(metadata)).flat_map(|(d, m)| [d, m].concat()).collect();
            let guard_only = Checks { guard: true, ..Checks::NONE };
            for (copied, outgoing) in [
                (Checks::ALL, Outgoing::AsStored),
                (guard_only, Outgoing::Retagged(&to)),
                (Checks::NONE, Outgoing::Replaced(&to)),
            ] {
                let mut passed = vec![0; stream.len()];
                from.pass(&[&stream], &mut [&mut passed], outgoing).unwrap();
                let expected: Vec<u8> =
                    passed.chunks(block + metadata).flat_map(|unit| unit[block..].to_vec()).collect();
                let mut out = vec![0; md.len()];
                let (first, second) = out.split_at_mut(5);
                from.rewrite(&[&data], &[&md[..11], &md[11..]], &mut [first, second], &to, copied);
                assert_eq!(out, expected, "{guard:?} {copied:?}");
            }
        }
    }

    #[test]
    fn a_block_further_on_has_the_tuple_that_it_has_in_the_whole() {
        let format = Format::new(Guard::Crc16, 512, 8).unwrap();
        let tags = Tags { ref_tag: 0xFFFF_FFFE, ..Tags::default() };
        let whole =
            PiContext::new(&format, PiType::Type1, Checks::ALL, tags).unwrap().with_guard_seed(0xFFFF);
        let data = [0; 2048];
        let (mut all, mut rest) = ([0; 32], [0; 16]);
        whole.generate(&[&data], &mut [&mut all]);
        whole.from_block(2).generate(&[&data[1024..]], &mut [&mut rest]);
        assert_eq!(all[16..], rest);
        assert_eq!(all[..2], [0x72, 0xBB], "zeroes with a seed of all ones");
        let constant = whole.with_ref_tags(RefTags::Constant);
        constant.generate(&[&data], &mut [&mut all]);
        assert!(all.chunks(8).all(|tuple| tuple[4..] == [0xFF, 0xFF, 0xFF, 0xFE]));
        assert_eq!(constant.from_block(7).verify(&[&data], &[&all]), Ok(()));
    }

    #[test]
    fn an_escape_may_need_the_reference_tag_whatever_the_type() {
        let format = Format::new(Guard::Crc16, 512, 8).unwrap();
        let pi = PiContext::new(&format, PiType::Type1, Checks::ALL, Tags::default()).unwrap();
        let (half, whole) = ([1, 2, 0xFF, 0xFF, 0, 0, 0, 0], [1, 2, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF]);
        for (escape, expected) in [
            (Escape::Honoured, [true, true]),
            (Escape::AppTag, [true, true]),
            (Escape::AppAndRefTag, [false, true]),
            (Escape::Ignored, [false, false]),
        ] {
            let pi = pi.with_escape(escape);
            assert_eq!([pi.escapes(&half), pi.escapes(&whole)], expected, "{escape:?}");
        }
    }
}
