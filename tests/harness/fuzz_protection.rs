//! Bodies of the fuzz targets about protection information.

use intact_tools::pi::vectors::check;
use t10pi::nvme::{
    CopyFields, DescriptorFormat, ExtendedFormats, Layout, Namespace, RwFields, SourceRange, decide,
    decide_copy,
};
use t10pi::scsi::{self, Cdb, Control, Request};
use t10pi::{Checks, Escape, Format, Guard, Kernel, Outgoing, PiContext, PiMismatch, PiType, Position, Tags};

/// Takes a few bytes off the front of an input.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    fn number(&mut self, bytes: usize) -> u64 {
        (0..bytes).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    fn format(&mut self) -> Format {
        let guard = [Guard::Crc16, Guard::Crc32c, Guard::Crc64, Guard::Ip][usize::from(self.byte() & 3)];
        let tuple = if guard.tuple_size() == 8 { 8 } else { 16 };
        let block = u32::from(self.byte()) * 3 + 1;
        let format =
            Format::new(guard, block, tuple + u16::from(self.byte() & 31)).expect("room for the tuple");
        let range = guard.storage_tag_range();
        let bits = range.start() + self.byte() % (range.end() - range.start() + 1);
        let all = u64::MAX.checked_shr(64 - u32::from(bits)).unwrap_or(0);
        let position = if self.byte() & 1 == 0 { Position::Last } else { Position::First };
        format
            .with_storage_tag(bits, self.number(8) & all)
            .expect("within the guard's range")
            .with_position(position)
    }

    fn pi_type(&mut self) -> PiType {
        [PiType::Type1, PiType::Type2, PiType::Type3][usize::from(self.byte() % 3)]
    }

    fn tags(&mut self, format: &Format) -> Tags {
        let all = u64::MAX.checked_shr(64 - u32::from(format.storage_tag_bits())).unwrap_or(0);
        let half = |number: u64| u16::try_from(number & 0xFFFF).expect("16 bits");
        Tags {
            app_tag: half(self.number(2)),
            app_tag_mask: half(self.number(2)),
            storage_tag: self.number(8) & all,
            ref_tag: self.number(8),
        }
    }
}

/// A format, a command's checks and tags, where segments end, and interleaved blocks that a stranger filled.
///
/// # Panics
/// When kernels, ways to divide the stream, or operations disagree; when what was generated does not verify.
pub fn protection(input: &[u8]) {
    let mut bytes = Bytes(input);
    let (format, pi_type) = (bytes.format(), bytes.pi_type());
    let tags = bytes.tags(&format);
    let flags = bytes.byte();
    let bit = |n: u8| flags >> n & 1 == 1;
    let checks = Checks { guard: bit(0), app_tag: bit(1), storage_tag: bit(2), ref_tag: bit(3) };
    let escape = if bit(4) { Escape::Ignored } else { Escape::Honoured };
    let (from, to) = (usize::from(bytes.byte()) + 1, usize::from(bytes.byte()) + 1);
    let stride = format.interleaved_block_size();
    let (block, metadata) = (format.block_size() as usize, usize::from(format.metadata_size()));
    let stream = &bytes.0[..bytes.0.len() / stride * stride];
    let data: Vec<u8> = stream.chunks(stride).flat_map(|unit| unit[..block].to_vec()).collect();
    let md: Vec<u8> = stream.chunks(stride).flat_map(|unit| unit[block..].to_vec()).collect();
    assert_eq!(md.len(), stream.len() / stride * metadata);

    let mut verdicts: Vec<Result<(), PiMismatch>> = Vec::new();
    for kernel in Kernel::available() {
        let pi =
            PiContext::with_kernel(&format, pi_type, checks, tags, kernel).expect("a masked storage tag");
        let pi = pi.with_escape(escape);
        let cut = |bytes| stream.chunks(bytes).collect::<Vec<_>>();
        let (mut out, mut out_md, mut copy) = (vec![1; data.len()], vec![1; md.len()], vec![1; stream.len()]);
        verdicts.push(pi.verify(&data.chunks(from).collect::<Vec<_>>(), &md.chunks(to).collect::<Vec<_>>()));
        verdicts.push(pi.verify_interleaved(&cut(from)));
        let mut first = None;
        pi.inspect_interleaved(&cut(to), |report| first = first.or_else(|| report.mismatches().next()));
        verdicts.push(first.map_or(Ok(()), Err));
        verdicts.push(pi.strip(&cut(from), &mut out.chunks_mut(to).collect::<Vec<_>>()));
        verdicts.push(pi.split(
            &cut(to),
            &mut out.chunks_mut(from).collect::<Vec<_>>(),
            &mut out_md.chunks_mut(to).collect::<Vec<_>>(),
        ));
        let passed = pi.pass(&cut(from), &mut copy.chunks_mut(to).collect::<Vec<_>>(), Outgoing::AsStored);
        verdicts.push(passed);
        assert!(passed.is_err() || (out == data && out_md == md && copy == stream));
        let joined = pi.join(&[&data], &[&md], &mut copy.chunks_mut(from).collect::<Vec<_>>());
        assert!(joined.is_err() || copy == stream);
        verdicts.push(joined);

        // What is generated verifies, escaped or not.
        let all = PiContext::with_kernel(&format, pi_type, Checks::ALL, tags, kernel).expect("as above");
        let mut made = stream.to_vec();
        all.generate_interleaved(&mut made.chunks_mut(from).collect::<Vec<_>>());
        assert_eq!(all.verify_interleaved(&made.chunks(to).collect::<Vec<_>>()), Ok(()));
        let mut replaced = vec![1; stream.len()];
        let open = PiContext::with_kernel(&format, pi_type, Checks::NONE, tags, kernel).expect("as above");
        open.pass(&cut(to), &mut [&mut replaced], Outgoing::Replaced(&all)).expect("nothing is checked");
        assert!(replaced == made, "replacing is generating");
        let mut remapped = made.clone();
        all.remap_interleaved(&mut [&mut remapped], tags.ref_tag, !tags.ref_tag);
        all.remap_interleaved(
            &mut remapped.chunks_mut(from).collect::<Vec<_>>(),
            !tags.ref_tag,
            tags.ref_tag,
        );
        assert!(remapped == made, "there and back");
    }
    assert!(verdicts.windows(2).all(|pair| pair[0] == pair[1]), "{verdicts:?}");
}

/// A submission queue entry, source ranges and a CDB.
///
/// # Panics
/// When a decision contradicts itself.
pub fn decisions(input: &[u8]) {
    if let Some(cdb) = Cdb::parse(input) {
        assert!(cdb.protect < 8);
        for pi_type in [None, Some(PiType::Type1), Some(PiType::Type2), Some(PiType::Type3)] {
            for flags in 0..64_u8 {
                let bit = |n: u8| flags >> n & 1 == 1;
                let control = Control {
                    pi_type,
                    guard_check: bit(0),
                    app_check: bit(1),
                    ref_check: bit(2),
                    no_check_without_protect: bit(3),
                    app_tag_owner: bit(4),
                    reject_unprotected_writes: bit(5),
                };
                let request = Request::new(&cdb);
                let refused = scsi::refusals(&control, &request).next();
                match scsi::decide(&control, &request) {
                    Err(sense) => assert_eq!(Some(sense), refused),
                    Ok(decision) => {
                        assert!(refused.is_none() && !(decision.to_host && decision.from_host));
                        assert!(cdb.protect != 0 || !(decision.to_host || decision.from_host));
                    }
                }
            }
        }
    }
    let Some((sqe, rest)) = input.split_first_chunk::<64>() else { return };
    let mut bytes = Bytes(rest);
    let (format, pi_type) = (bytes.format(), bytes.pi_type());
    let layout = if bytes.byte() & 1 == 0 { Layout::Extended } else { Layout::Separate };
    let protected = Namespace::protected(format, pi_type, layout);
    let plain = Namespace::plain(format.block_size(), u16::from(bytes.byte()), layout);
    let fields = RwFields::parse(sqe);
    let tags = fields.tags(&format);
    let packed = format.pack_tags(tags.storage_tag, tags.ref_tag);
    assert_eq!(format.unpack_tags(packed), (tags.storage_tag, tags.ref_tag));
    for namespace in [protected, plain] {
        if let Ok(decision) = decide(&namespace, &fields, ExtendedFormats::Enabled) {
            let most = u64::from(fields.blocks)
                * (u64::from(namespace.block_size()) + u64::from(namespace.metadata_size()));
            assert!(decision.data_bytes + decision.metadata_bytes <= most);
            assert!(layout == Layout::Separate || decision.metadata_bytes == 0);
        }
    }
    let copy = CopyFields::parse(sqe);
    assert!((1..=256).contains(&copy.ranges));
    if let Some(descriptors) = DescriptorFormat::from_code(copy.descriptor_format) {
        let sources = bytes.0.chunks_exact(descriptors.size());
        for source in sources {
            let range = SourceRange::parse(descriptors, source).expect("it has the size of one");
            assert!((1..=65536).contains(&range.blocks));
            let _ = range.tags(&format);
        }
        for (to, from) in [(protected, plain), (plain, protected), (protected, protected), (plain, plain)] {
            let decided = decide_copy(&to, &[from, from], descriptors, copy.read.pract, copy.write.pract);
            let one = decide_copy(&to, &[from], descriptors, copy.read.pract, copy.write.pract);
            assert_eq!(decided, one, "more of the same is the same");
        }
    }
}

/// Lines of vectors.
///
/// # Panics
/// When a line is neither passed nor failed, or fails without a word.
pub fn vectors(input: &[u8]) {
    let mut problems = 0;
    let Ok(tally) = check(input, |_| problems += 1) else { return };
    let lines = String::from_utf8_lossy(input).lines().filter(|line| !line.trim().is_empty()).count();
    assert_eq!(tally.passed + tally.failed, lines);
    assert!(problems >= tally.failed);
}
