//! Properties over random formats, contents and divisions into segments: all operations agree with each other and
//! with a plain block-by-block model, wherever segments end.

use proptest::prelude::*;
use proptest::sample::Index;
use t10pi::{
    Ahead, Checks, Field, Format, Guard, Kernel, PiContext, PiMismatch, PiType, Position, Tags, crc,
};

/// A transfer to be protected.
#[derive(Clone, Debug)]
struct Transfer {
    format: Format,
    pi_type: PiType,
    tags: Tags,
    blocks: usize,
    seed: u64,
}

impl Transfer {
    fn context(&self, checks: Checks, kernel: Kernel) -> PiContext {
        PiContext::with_kernel(&self.format, self.pi_type, checks, self.tags, kernel).expect("tags fit")
    }

    fn block(&self) -> usize {
        self.format.block_size() as usize
    }

    fn metadata(&self) -> usize {
        usize::from(self.format.metadata_size())
    }

    fn noise(&self, length: usize) -> Vec<u8> {
        let mut state = self.seed | 1;
        (0..length)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                state.to_be_bytes()[0]
            })
            .collect()
    }

    fn interleave(&self, data: &[u8], md: &[u8]) -> Vec<u8> {
        let pairs = data.chunks(self.block()).zip(md.chunks(self.metadata()));
        pairs.flat_map(|(data, md)| [data, md].concat()).collect()
    }

    /// Metadata with tuples, put together field by field.
    fn model(&self, data: &[u8], md: &[u8]) -> Vec<u8> {
        let mut out = md.to_vec();
        for (index, (data, md)) in data.chunks(self.block()).zip(out.chunks_mut(self.metadata())).enumerate()
        {
            let at = self.format.tuple_offset();
            let covered = [data, &md[..at]].concat();
            let guard = match self.format.guard() {
                Guard::Crc16 => crc::crc16(0, &covered).to_be_bytes().to_vec(),
                Guard::Crc32c => crc::crc32c(0, &covered).to_be_bytes().to_vec(),
                Guard::Crc64 => crc::crc64(0, &covered).to_be_bytes().to_vec(),
                Guard::Ip => crc::ip_checksum(&covered).to_be_bytes().to_vec(),
            };
            let count = if self.pi_type == PiType::Type3 { 0 } else { index as u64 };
            let ref_tag = self.format.ref_tag_of(self.tags.ref_tag.wrapping_add(count));
            let space = u128::from(self.tags.storage_tag) << self.format.ref_tag_bits() | u128::from(ref_tag);
            let space_bytes = usize::from(self.format.guard().space_bits() / 8);
            let tuple = [
                guard.as_slice(),
                &self.tags.app_tag.to_be_bytes(),
                &space.to_be_bytes()[16 - space_bytes..],
            ]
            .concat();
            md[at..at + tuple.len()].copy_from_slice(&tuple);
        }
        out
    }
}

fn low_bits(bits: u8) -> u64 {
    u64::MAX.checked_shr(64 - u32::from(bits)).unwrap_or(0)
}

fn transfers() -> impl Strategy<Value = Transfer> {
    let guards = prop_oneof![Just(Guard::Crc16), Just(Guard::Crc32c), Just(Guard::Crc64), Just(Guard::Ip)];
    let types = prop_oneof![Just(PiType::Type1), Just(PiType::Type2), Just(PiType::Type3)];
    let sizes = prop_oneof![4 => Just(512_u32), 2 => Just(4096), 1 => Just(520), 3 => 1_u32..700];
    let extra = prop_oneof![3 => Just(0_u16), 2 => 1_u16..70];
    let tags = (any::<u16>(), any::<u16>(), any::<u64>(), any::<u64>(), any::<u64>());
    (guards, types, sizes, extra, any::<bool>(), any::<Index>(), tags, 1_usize..40, any::<u64>()).prop_map(
        |(guard, pi_type, size, extra, first, sts, tags, blocks, seed)| {
            let metadata = u16::try_from(guard.tuple_size()).expect("8 or 16") + extra;
            let range = guard.storage_tag_range();
            let bits = range.start()
                + u8::try_from(sts.index(usize::from(range.end() - range.start()) + 1)).expect("small");
            let position = if first { Position::First } else { Position::Last };
            let format = Format::new(guard, size, metadata)
                .and_then(|format| format.with_storage_tag(bits, tags.2 & low_bits(bits)))
                .expect("within the guard's limits")
                .with_position(position);
            let tags = Tags {
                app_tag: tags.0,
                app_tag_mask: tags.1,
                storage_tag: tags.3 & low_bits(bits),
                ref_tag: tags.4,
            };
            let blocks = if size > 1000 { blocks % 6 + 1 } else { blocks };
            Transfer { format, pi_type, tags, blocks, seed }
        },
    )
}

/// Places to cut a stream, reduced to its length when used; none at all in some cases.
fn cuts() -> impl Strategy<Value = Vec<Index>> {
    prop_oneof![1 => Just(Vec::new()), 3 => proptest::collection::vec(any::<Index>(), 1..12)]
}

fn lengths(cuts: &[Index], total: usize) -> Vec<usize> {
    let mut at: Vec<usize> = cuts.iter().map(|cut| cut.index(total + 1)).collect();
    at.extend([0, total]);
    at.sort_unstable();
    at.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn cut<'a>(mut bytes: &'a [u8], cuts: &[Index]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for length in lengths(cuts, bytes.len()) {
        let (piece, rest) = bytes.split_at(length);
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

fn cut_mut<'a>(mut bytes: &'a mut [u8], cuts: &[Index]) -> Vec<&'a mut [u8]> {
    let mut pieces = Vec::new();
    for length in lengths(cuts, bytes.len()) {
        let (piece, rest) = bytes.split_at_mut(length);
        pieces.push(piece);
        bytes = rest;
    }
    pieces
}

proptest! {
    #[test]
    fn every_way_to_generate_gives_the_tuples_of_the_model(t in transfers(), a in cuts(), b in cuts()) {
        let data = t.noise(t.blocks * t.block());
        let md = t.noise(t.blocks * t.metadata());
        let expected = t.model(&data, &md);
        for kernel in Kernel::available() {
            let pi = t.context(Checks::ALL, kernel);
            let mut out = md.clone();
            pi.generate(&cut(&data, &a), &mut cut_mut(&mut out, &b));
            prop_assert_eq!(&out, &expected);

            let mut stream = t.interleave(&data, &md);
            pi.generate_interleaved(&mut cut_mut(&mut stream, &b));
            prop_assert_eq!(&stream, &t.interleave(&data, &expected));

            let zero_md = t.model(&data, &vec![0; md.len()]);
            let mut stream = vec![0xEE; stream.len()];
            pi.insert(&cut(&data, &a), &mut cut_mut(&mut stream, &b));
            prop_assert_eq!(&stream, &t.interleave(&data, &zero_md));
        }
    }

    #[test]
    fn what_was_generated_verifies_and_survives_every_copy(t in transfers(), a in cuts(), b in cuts()) {
        let data = t.noise(t.blocks * t.block());
        let md = t.model(&data, &t.noise(t.blocks * t.metadata()));
        let stream = t.interleave(&data, &md);
        for (kernel, checks) in Kernel::available().flat_map(|k| [(k, Checks::ALL), (k, Checks::NONE)]) {
            let pi = t.context(checks, kernel);
            prop_assert_eq!(pi.verify(&cut(&data, &a), &cut(&md, &b)), Ok(()));
            prop_assert_eq!(pi.verify_interleaved(&cut(&stream, &b)), Ok(()));
            let (mut to_data, mut to_md) = (vec![0; data.len()], vec![0; md.len()]);
            prop_assert_eq!(pi.strip(&cut(&stream, &a), &mut cut_mut(&mut to_data, &b)), Ok(()));
            prop_assert_eq!(&to_data, &data);
            to_data.fill(0);
            prop_assert_eq!(pi.split(&cut(&stream, &a), &mut cut_mut(&mut to_data, &b), &mut cut_mut(&mut to_md, &a)), Ok(()));
            prop_assert_eq!((&to_data, &to_md), (&data, &md));
            let mut to_stream = vec![0; stream.len()];
            prop_assert_eq!(pi.join(&cut(&data, &a), &cut(&md, &b), &mut cut_mut(&mut to_stream, &b)), Ok(()));
            prop_assert_eq!(&to_stream, &stream);
        }
    }

    #[test]
    fn verifying_with_sums_finds_the_same_and_makes_the_crc_of_each_block(
        t in transfers(),
        flipped in proptest::option::of((any::<Index>(), 0_u8..8)),
    ) {
        let mut data = t.noise(t.blocks * t.block());
        let md = t.model(&data, &t.noise(t.blocks * t.metadata()));
        if let Some((at, bit)) = flipped {
            let at = at.index(data.len());
            data[at] ^= 1 << bit;
        }
        let portable = Kernel::named("portable").expect("it is everywhere");
        for (kernel, checks) in Kernel::available().flat_map(|k| [(k, Checks::ALL), (k, Checks::NONE)]) {
            let pi = t.context(checks, kernel);
            for ahead in [Ahead::NONE, Ahead::of(&md)] {
                let mut sums = vec![0; t.blocks];
                let verified = pi.verify_summed(&data, &md, ahead, &mut sums);
                prop_assert_eq!(verified, pi.verify(&[&data], &[&md]));
                if verified.is_ok() {
                    for (sum, block) in sums.iter().zip(data.chunks(t.block())) {
                        // From register 0 and without the complement at the end: of seeds, all ones is that.
                        prop_assert_eq!(*sum, !portable.crc32(u32::MAX, block), "{:?}", kernel);
                    }
                }
            }
        }
    }

    #[test]
    fn a_flipped_bit_is_found_in_its_block_and_field_by_every_operation(
        mut t in transfers(),
        at in any::<Index>(),
        bit in 0_u8..8,
        a in cuts(),
        b in cuts(),
    ) {
        // An escaped block would hide the flip; a flip must not make an escape either.
        t.tags.app_tag &= 0x0FFF;
        let data = t.noise(t.blocks * t.block());
        let md = t.model(&data, &t.noise(t.blocks * t.metadata()));
        let mut stream = t.interleave(&data, &md);
        let position = at.index(stream.len());
        stream[position] ^= 1 << bit;

        let stride = t.format.interleaved_block_size();
        let block = position / stride;
        let expected = offset_field(&t, position % stride, bit);
        let (data, md): (Vec<&[u8]>, Vec<&[u8]>) = stream.chunks(stride).map(|unit| unit.split_at(t.block())).unzip();
        let (data, md) = (data.concat(), md.concat());
        for kernel in Kernel::available() {
            let pi = t.context(Checks::ALL, kernel);
            let found = |result: Result<(), PiMismatch>| result.err().map(|m| (m.block, m.field));
            let expected = expected.map(|field| (block as u64, field));
            prop_assert_eq!(found(pi.verify(&cut(&data, &a), &cut(&md, &b))), expected);
            prop_assert_eq!(found(pi.verify_interleaved(&cut(&stream, &a))), expected);
            let (mut to_data, mut to_md) = (vec![0; data.len()], vec![0; md.len()]);
            prop_assert_eq!(found(pi.strip(&cut(&stream, &a), &mut cut_mut(&mut to_data, &b))), expected);
            let split = pi.split(&cut(&stream, &a), &mut cut_mut(&mut to_data, &b), &mut cut_mut(&mut to_md, &a));
            prop_assert_eq!(found(split), expected);
            let mut to_stream = vec![0; stream.len()];
            prop_assert_eq!(found(pi.join(&cut(&data, &a), &cut(&md, &b), &mut cut_mut(&mut to_stream, &b))), expected);
        }
    }

    #[test]
    fn zero_blocks_have_the_metadata_that_generation_gives_them(t in transfers()) {
        let expected = t.model(&vec![0; t.blocks * t.block()], &vec![0; t.blocks * t.metadata()]);
        let mut md = vec![0xEE; expected.len()];
        t.context(Checks::NONE, Kernel::active()).generate_zeroes(&mut md);
        prop_assert_eq!(md, expected);
    }

    #[test]
    fn a_remapped_transfer_verifies_at_its_new_place_and_maps_back(t in transfers(), phys in any::<u64>(), a in cuts()) {
        let data = t.noise(t.blocks * t.block());
        let md = t.model(&data, &vec![0; t.blocks * t.metadata()]);
        let mut moved = md.clone();
        let pi = t.context(Checks::ALL, Kernel::active());
        pi.remap(&mut cut_mut(&mut moved, &a), t.tags.ref_tag, phys);
        let there = Transfer { tags: Tags { ref_tag: phys, ..t.tags }, ..t.clone() };
        prop_assert_eq!(there.context(Checks::ALL, Kernel::active()).verify(&[&data], &[&moved]), Ok(()));
        pi.remap(&mut [&mut moved], phys, t.tags.ref_tag);
        prop_assert_eq!(moved, md);
    }
}

/// The field in which a flip of `bit` at `offset` of an interleaved block shows; none where nothing looks at it.
fn offset_field(t: &Transfer, offset: usize, bit: u8) -> Option<Field> {
    let tuple = t.block() + t.format.tuple_offset();
    if offset < tuple {
        return Some(Field::Guard);
    }
    let guard = t.format.guard().size();
    let in_tuple = offset - tuple;
    if in_tuple >= t.format.tuple_size() {
        return None;
    }
    // Bits of the tuple, counted from its last one.
    let number = (t.format.tuple_size() - 1 - in_tuple) * 8 + usize::from(bit);
    let space = usize::from(t.format.guard().space_bits());
    let ref_bits = usize::from(t.format.ref_tag_bits());
    if in_tuple < guard {
        Some(Field::Guard)
    } else if number >= space {
        (t.tags.app_tag_mask >> (number - space) & 1 == 1).then_some(Field::AppTag)
    } else if number >= ref_bits {
        (t.format.storage_tag_mask() >> (number - ref_bits) & 1 == 1).then_some(Field::StorageTag)
    } else {
        (t.pi_type != PiType::Type3).then_some(Field::RefTag)
    }
}

#[test]
#[should_panic(expected = "data and metadata hold equally many blocks")]
fn metadata_of_another_number_of_blocks_is_our_bug() {
    let format = Format::new(Guard::Crc16, 512, 8).expect("valid");
    let pi = PiContext::new(&format, PiType::Type1, Checks::ALL, Tags::default()).expect("valid");
    let _ = pi.verify(&[&[0; 1024]], &[&[0; 8]]);
}
