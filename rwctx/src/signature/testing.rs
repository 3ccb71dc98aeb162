//! What tests of signatures here and of devices share: domains, and blocks with damage in them.

use t10pi::{Checks, Format, Guard, PiType, Tags};

use super::{CopyMask, SigAttrs, SigDomain, T10Dif};

/// One of each kind.
pub(crate) fn formats() -> Vec<Format> {
    let crc16 = Format::new(Guard::Crc16, 512, 8).unwrap();
    vec![
        crc16,
        crc16.with_storage_tag(8, 0xFF).unwrap(),
        Format::new(Guard::Crc16, 4096, 8).unwrap(),
        Format::new(Guard::Crc16, 512, 64).unwrap(),
        Format::new(Guard::Crc32c, 4096, 16).unwrap(),
        Format::new(Guard::Crc64, 4096, 16).unwrap().with_storage_tag(18, 0x3FFFF).unwrap(),
    ]
}

/// A protected domain.
pub(crate) fn domain(format: Format, pi_type: PiType, ref_tag: u64) -> T10Dif {
    let storage_tag = if format.storage_tag_bits() == 0 { 0 } else { 0xA };
    let tags = Tags { app_tag: 0x1234, app_tag_mask: 0xFFFF, storage_tag, ref_tag };
    T10Dif::of_type(format, pi_type, tags)
}

/// Attributes that check everything and copy what is equal.
pub(crate) fn attrs(mem: Option<T10Dif>, wire: Option<T10Dif>) -> SigAttrs {
    let of = |domain: Option<T10Dif>| domain.map_or(SigDomain::None, SigDomain::T10Dif);
    SigAttrs { mem: of(mem), wire: of(wire), check_mask: Checks::ALL, copy_mask: CopyMask::Equal }
}

/// The interleaved form.
pub(crate) fn join(format: &Format, data: &[u8], md: &[u8]) -> Vec<u8> {
    let units = data.chunks(format.block_size() as usize).zip(md.chunks(usize::from(format.metadata_size())));
    units.flat_map(|(data, md)| [data, md].concat()).collect()
}

/// Data of some blocks and metadata with the tuples of `domain`, in which some bytes are damaged.
pub(crate) fn protected(domain: &T10Dif, blocks: usize, rng: &mut fastrand::Rng) -> (Vec<u8>, Vec<u8>) {
    let format = &domain.format;
    let mut data = vec![0; blocks * format.block_size() as usize];
    let mut md = vec![0; blocks * usize::from(format.metadata_size())];
    rng.fill(&mut data);
    rng.fill(&mut md);
    domain.context(Checks::ALL).unwrap().generate(&[&data], &mut [&mut md]);
    for _ in 0..rng.usize(0..3) {
        let all = if rng.bool() { &mut md } else { &mut data };
        let at = rng.usize(0..all.len());
        all[at] ^= 1 << rng.u32(0..8);
    }
    if rng.bool() {
        let at = rng.usize(0..blocks) * usize::from(format.metadata_size()) + format.tuple_offset();
        md[at..at + format.tuple_size()].fill(0xFF);
    }
    (data, md)
}
