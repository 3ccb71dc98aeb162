//! Vectors of rw-contexts 2 and 1.13, and the software path against t10pi's whole-stream operations.

use t10pi::{Checks, Field, Format, Guard, Outgoing, PiContext, PiType, Tags};

use super::testing::{attrs, domain, formats, join, protected};
use super::*;
use crate::mem::Lkey;
use crate::plan::Direction;
use crate::wr::Sge;

const BLOCKS: usize = 5;

#[test]
fn domains_and_direction_make_the_operation() {
    let format = formats()[0];
    let (one, other) = (domain(format, PiType::Type1, 5), domain(format, PiType::Type1, 700));
    let operation = |mem, wire, direction| {
        Signature::new(&attrs(mem, wire), direction).map(|signature| signature.operation())
    };
    for (mem, wire, to_host, from_host) in [
        (Some(one), None, Operation::Strip, Operation::Insert),
        (None, Some(one), Operation::Insert, Operation::Strip),
        (Some(one), Some(one), Operation::Verify, Operation::Verify),
        (Some(one), Some(other), Operation::Rewrite, Operation::Rewrite),
    ] {
        assert_eq!(operation(mem, wire, Direction::ToHost), Ok(to_host));
        assert_eq!(operation(mem, wire, Direction::FromHost), Ok(from_host));
    }
    assert_eq!(operation(None, None, Direction::ToHost), Err(SigError::NoProtection));
}

#[test]
fn domains_that_can_not_become_each_other_are_refused() {
    let [crc16, storage, long, wide, crc32c, crc64] = formats()[..] else { panic!("six formats") };
    let refused = |from: Format, to: Format| {
        let made = Signature::new(
            &attrs(Some(domain(from, PiType::Type1, 0)), Some(domain(to, PiType::Type1, 0))),
            Direction::ToHost,
        );
        made.unwrap_err()
    };
    assert_eq!(refused(crc16, long), SigError::Shape("block size"));
    assert_eq!(refused(crc16, wide), SigError::Shape("metadata size"));
    assert_eq!(refused(crc32c, crc64), SigError::Shape("layout of the tuple"));
    assert_eq!(refused(crc16, storage), SigError::Shape("width of the storage tag"));
    let first = wide.with_position(t10pi::Position::First);
    assert_eq!(refused(wide, first), SigError::Shape("position of the tuple"));

    let ip = Format::new(Guard::Ip, 512, 8).unwrap();
    assert_eq!(refused(crc16, ip), SigError::WireGuard);
    let convert = attrs(Some(domain(ip, PiType::Type1, 0)), Some(domain(crc16, PiType::Type1, 0)));
    let signature = Signature::new(&convert, Direction::ToHost).unwrap();
    assert_eq!(signature.operation(), Operation::Rewrite, "a guard of another type is made anew");
    let copied = SigAttrs { copy_mask: CopyMask::Fields(Checks::ALL), ..convert };
    assert_eq!(Signature::new(&copied, Direction::ToHost).unwrap_err(), SigError::CopyGuard);

    let wide_seed = T10Dif { guard_seed: 0x1_0000, ..domain(crc16, PiType::Type1, 0) };
    let error = Signature::new(&attrs(Some(wide_seed), None), Direction::ToHost).unwrap_err();
    assert_eq!(error, SigError::GuardSeed { seed: 0x1_0000, bits: 16 });
    let wide_tag = T10Dif { storage_tag: 0x100, ..domain(storage, PiType::Type1, 0) };
    let error = Signature::new(&attrs(Some(wide_tag), None), Direction::ToHost).unwrap_err();
    assert!(matches!(error, SigError::Tags(_)), "{error}");
    assert_eq!(error.errno(), libc::EINVAL);
}

#[test]
fn lengths_on_the_wire_are_those_of_the_table() {
    // rw-contexts 1.13: 8 blocks of 512 and of 4096.
    for (format, data, protection, mapped) in
        [(formats()[0], 4096, 64, 4160), (formats()[2], 32768, 64, 32832)]
    {
        let dif = Some(domain(format, PiType::Type1, 0));
        for (mem, wire, expected) in [(dif, None, data), (dif, dif, mapped)] {
            let signature = Signature::new(&attrs(mem, wire), Direction::ToHost).unwrap();
            let layout = signature.layout(data, protection).unwrap();
            assert_eq!(u64::from(layout.wire), expected);
            assert_eq!(u64::from(layout.data + layout.metadata), mapped);
            assert_eq!(signature.layout(mapped, 0), Ok(layout), "interleaved");
            for (data, protection) in
                [(data, protection - 8), (data - 1, protection), (0, 0), (mapped - 1, 0)]
            {
                assert!(matches!(signature.layout(data, protection), Err(SigError::Lengths { .. })));
            }
        }
        let insert = Signature::new(&attrs(None, dif), Direction::ToHost).unwrap();
        assert_eq!(insert.layout(data, 0).map(|layout| u64::from(layout.wire)), Ok(mapped));
        assert!(insert.layout(data, 8).is_err(), "memory has no tuples");
        assert_eq!(insert.layout(1 << 31, 0), Err(SigError::TooLong((1 << 31) / (data / 8) * (mapped / 8))));
    }
}

#[test]
fn masks_of_tuple_bytes_name_fields() {
    let checks = |guard, app_tag, ref_tag| Checks { guard, app_tag, storage_tag: false, ref_tag };
    for (bits, fields) in [
        (0xC0, checks(true, false, false)),
        (0x30, checks(false, true, false)),
        (0x0F, checks(false, false, true)),
        (0xFF, checks(true, true, true)),
        (0, Checks::NONE),
    ] {
        assert_eq!((check_mask(bits), check_mask_bits(fields)), (fields, bits));
    }
    assert_eq!(check_mask(0x81), checks(true, false, true), "one byte is enough");
    assert_eq!(check_mask_bits(Checks::ALL), 0xFF);
}

/// Cuts bytes anywhere.
fn scattered<'b>(bytes: &'b [u8], rng: &mut fastrand::Rng) -> Vec<&'b [u8]> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (now, later) = rest.split_at(rng.usize(0..=rest.len().min(1500)));
        pieces.push(now);
        rest = later;
    }
    pieces
}

fn scattered_mut<'b>(bytes: &'b mut [u8], rng: &mut fastrand::Rng) -> Vec<&'b mut [u8]> {
    let mut pieces = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let at = rng.usize(0..=rest.len().min(1500));
        let (now, later) = rest.split_at_mut(at);
        pieces.push(now);
        rest = later;
    }
    pieces
}

/// What t10pi makes of a whole stream that comes in with the tuples of `from`: what goes out, and the first mismatch.
fn oracle(
    from: &T10Dif,
    to: &T10Dif,
    checks: Checks,
    copied: Checks,
    stream: &[u8],
) -> (Vec<u8>, Option<t10pi::PiMismatch>) {
    let (from_checked, from_blind) = (from.context(checks).unwrap(), from.context(Checks::NONE).unwrap());
    let to = to.context(Checks::NONE).unwrap();
    let found = from_checked.verify_interleaved(&[stream]).err();
    let outgoing = match (copied.guard, copied.ref_tag) {
        (true, true) => Outgoing::AsStored,
        (true, false) => Outgoing::Retagged(&to),
        (false, _) => Outgoing::Replaced(&to),
    };
    let mut out = vec![0; stream.len()];
    from_blind.pass(&[stream], &mut [&mut out], outgoing).unwrap();
    (out, found)
}

#[test]
fn the_software_path_does_what_t10pi_does_with_whole_streams() {
    let mut failures = 0;
    for seed in 0..600 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let format = formats()[rng.usize(0..formats().len())];
        let pi_type = [PiType::Type1, PiType::Type3][rng.usize(0..2)];
        let (from, to) = (domain(format, pi_type, 77), domain(format, pi_type, 1 << 40 | 5));
        let checks =
            Checks { guard: rng.bool(), app_tag: rng.bool(), ref_tag: rng.bool(), storage_tag: rng.bool() };
        let copied = match rng.u32(0..3) {
            0 => Checks::ALL,
            1 => Checks { guard: true, ..Checks::NONE },
            _ => Checks::NONE,
        };
        let attrs = SigAttrs {
            check_mask: checks,
            copy_mask: CopyMask::Fields(copied),
            ..attrs(Some(from), Some(to))
        };
        let (data, md) = protected(&from, BLOCKS, &mut rng);
        let (expected, found) = oracle(&from, &to, checks, copied, &join(&format, &data, &md));
        failures += u32::from(found.is_some());

        // A WRITE: memory is read-only, what is rewritten is apart.
        let signature = Signature::new(&attrs, Direction::ToHost).unwrap();
        let (interleaved, mut apart) = (join(&format, &data, &md), vec![0x77; md.len()]);
        let (memory, beside) = if rng.bool() { (&interleaved, &[][..]) } else { (&data, &md[..]) };
        let rewritten = signature.operation() == Operation::Rewrite;
        let mut room = if rewritten { scattered_mut(&mut apart, &mut rng) } else { Vec::new() };
        let (memory, beside) = (scattered(memory, &mut rng), scattered(beside, &mut rng));
        let status = signature.before_write(&memory, &beside, &mut room);
        assert_eq!(status.mismatch(&format).err(), found, "seed {seed}");
        let sent = if rewritten { &apart } else { &md };
        assert!(join(&format, &data, sent) == expected, "seed {seed}: wire of a WRITE");

        // A READ: the same tuples come in from the wire.
        let swapped = SigAttrs { mem: attrs.wire, wire: attrs.mem, ..attrs };
        let signature = Signature::new(&swapped, Direction::FromHost).unwrap();
        // What is not apart came to its place in memory.
        let came = if rewritten { vec![0x99; md.len()] } else { md.clone() };
        let apart = if rewritten { scattered(&md, &mut rng) } else { Vec::new() };
        let memory = if rng.bool() {
            let mut memory = join(&format, &data, &came);
            let status = signature.after_read(&mut scattered_mut(&mut memory, &mut rng), &mut [], &apart);
            assert_eq!(status.mismatch(&format).err(), found, "seed {seed}");
            memory
        } else {
            let (mut data, mut md) = (data.clone(), came);
            let mut pieces = (scattered_mut(&mut data, &mut rng), Vec::new());
            pieces.1 = scattered_mut(&mut md, &mut rng);
            let status = signature.after_read(&mut pieces.0, &mut pieces.1, &apart);
            assert_eq!(status.mismatch(&format).err(), found, "seed {seed}");
            join(&format, &data, &md)
        };
        assert!(memory == expected, "seed {seed}: memory of a READ");
    }
    assert!(failures > 100, "{failures}");
}

#[test]
fn insert_and_strip_are_those_of_streams_in_both_directions() {
    for (format, pi_type) in formats().into_iter().flat_map(|f| [(f, PiType::Type1), (f, PiType::Type3)]) {
        let mut rng = fastrand::Rng::with_seed(9);
        let dif = domain(format, pi_type, 1 << 33 | 3);
        let data: Vec<u8> = (0..BLOCKS * format.block_size() as usize).map(|_| rng.u8(..)).collect();
        let size = BLOCKS * usize::from(format.metadata_size());
        let mut stream = vec![0; data.len() + size];
        dif.context(Checks::NONE).unwrap().insert(&[&data], &mut [&mut stream]);

        let insert = Signature::new(&attrs(None, Some(dif)), Direction::ToHost).unwrap();
        let mut apart = vec![1; size];
        let blocks = insert.layout(data.len() as u64, 0).unwrap().blocks;
        assert_eq!(insert.apart_bytes(blocks) as usize, size);
        assert_eq!(insert.before_write(&[&data], &[], &mut [&mut apart]), SigStatus::Clean);
        assert!(join(&format, &data, &apart) == stream);

        let insert = Signature::new(&attrs(Some(dif), None), Direction::FromHost).unwrap();
        let (mut into, mut md) = (data.clone(), vec![1; size]);
        assert_eq!(insert.apart_bytes(blocks), 0);
        assert_eq!(insert.after_read(&mut [&mut into], &mut [&mut md], &[]), SigStatus::Clean);
        assert!(md == apart && into == data);
        let mut memory = join(&format, &data, &vec![1; size]);
        assert_eq!(insert.after_read(&mut [&mut memory], &mut [], &[]), SigStatus::Clean);
        assert!(memory == stream);

        // Damage in block 3 is found wherever tuples come in, and hides nothing.
        into[3 * format.block_size() as usize] ^= 1;
        let strip = Signature::new(&attrs(Some(dif), None), Direction::ToHost).unwrap();
        let SigStatus::Failed(error) = strip.before_write(&[&into], &[&md], &mut []) else {
            panic!("damaged")
        };
        let block = format.interleaved_block_size() as u64;
        assert_eq!((error.field, error.offset), (Field::Guard, 3 * block));
        assert_ne!(error.expected, error.actual);
        let strip = Signature::new(&attrs(None, Some(dif)), Direction::FromHost).unwrap();
        assert_eq!(strip.after_read(&mut [&mut into], &mut [], &[&md]), SigStatus::Failed(error));
    }
}

#[test]
fn the_wire_lists_blocks_with_their_metadata_from_wherever_it_is() {
    let format = formats()[0];
    let dif = Some(domain(format, PiType::Type1, 0));
    let sge = |addr, length| Sge { addr, length, lkey: Lkey(1) };
    let wire = |signature: &Signature, data: &[Sge], protection: &[Sge], apart| {
        let mut out = Vec::new();
        signature.wire_sges(data, protection, apart, &mut out);
        out.iter().map(|sge| (sge.addr, sge.length)).collect::<Vec<_>>()
    };
    let none = sge(0, 0);
    let data = [sge(0x1000, 700), sge(0x9000, 324)];
    let insert = Signature::new(&attrs(None, dif), Direction::ToHost).unwrap();
    let expected = [(0x1000, 512), (0x5000, 8), (0x1200, 188), (0x9000, 324), (0x5008, 8)];
    assert_eq!(wire(&insert, &data, &[], sge(0x5000, 16)), expected);
    let verify = Signature::new(&attrs(dif, dif), Direction::FromHost).unwrap();
    assert_eq!(wire(&verify, &data, &[sge(0x5000, 16)], none), expected);
    let strip = Signature::new(&attrs(dif, None), Direction::ToHost).unwrap();
    assert_eq!(wire(&strip, &data, &[sge(0x5000, 16)], none), [(0x1000, 700), (0x9000, 324)]);
    // Interleaved memory.
    let memory = [sge(0x1000, 1040)];
    assert_eq!(wire(&verify, &memory, &[], none), [(0x1000, 1040)]);
    assert_eq!(wire(&strip, &memory, &[], none), [(0x1000, 512), (0x1208, 512)]);
}

#[test]
fn attributes_of_a_context_do_what_the_context_does() {
    let mut rng = fastrand::Rng::with_seed(11);
    let (mut clean, mut failed) = (0, 0);
    for turn in 0..600 {
        let format = formats()[turn % formats().len()];
        let pi_type = [PiType::Type1, PiType::Type2, PiType::Type3][rng.usize(0..3)];
        let some = |rng: &mut fastrand::Rng| rng.u32(0..4) > 0;
        let checks = Checks {
            guard: some(&mut rng),
            app_tag: some(&mut rng),
            storage_tag: some(&mut rng),
            ref_tag: some(&mut rng),
        };
        let dif = domain(format, pi_type, rng.u64(..));
        let (mut data, mut md) = protected(&dif, BLOCKS, &mut rng);
        let tags = Tags {
            app_tag: dif.app_tag,
            app_tag_mask: [0xFFFF, 0xFF0F, 0][rng.usize(0..3)],
            storage_tag: dif.storage_tag,
            // At times other tags than those of the blocks.
            ref_tag: dif.ref_tag.wrapping_add(u64::from(rng.u32(0..4) == 0)),
        };
        let context = PiContext::new(&format, pi_type, checks, tags).unwrap();
        let verify = Signature::new(&SigAttrs::verify(&context), Direction::FromHost).unwrap();
        assert_eq!(verify.operation(), Operation::Verify);
        let expected = context.verify(&[&data], &[&md]);
        let status = verify.after_read(&mut [&mut data], &mut [&mut md], &[]);
        assert_eq!(status.mismatch(&format), expected, "{format:?} {pi_type:?} {checks:?}");
        *(if expected.is_ok() { &mut clean } else { &mut failed }) += 1;

        let insert = Signature::new(&SigAttrs::insert(&context), Direction::FromHost).unwrap();
        assert_eq!(insert.operation(), Operation::Insert);
        let mut made = vec![rng.u8(..); md.len()];
        assert_eq!(insert.after_read(&mut [&mut data], &mut [&mut made], &[]), SigStatus::Clean);
        md.fill(0);
        context.generate(&[&data], &mut [&mut md]);
        assert_eq!(made, md);
    }
    assert!(clean > 50 && failed > 50, "{clean} {failed}");
}
