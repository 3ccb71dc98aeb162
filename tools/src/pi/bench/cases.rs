//! What is measured: operations, formats and sizes, each beside what others do for the same result.

use std::hint::black_box;

use t10pi::{Checks, Format, Guard, Kernel, PiContext, PiType, Tags};

use super::isal::Isal;
use super::memory::Memory;
use super::peers::{Crc, Shape};

/// Somebody to be compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Peer {
    /// A loop over libisal's checksum (in place) or its fused copy.
    Isal,
    /// `memcpy` of the user data, no checksum.
    Memcpy,
    /// A loop over the crate `crc-fast`, behind a `memcpy` where data is copied.
    CrcFast,
}

impl Peer {
    pub(super) const ALL: [Self; 3] = [Self::Isal, Self::Memcpy, Self::CrcFast];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Isal => "libisal",
            Self::Memcpy => "memcpy",
            Self::CrcFast => "crc-fast",
        }
    }
}

/// One row: ours, and peers that do the same.
pub(super) struct Case {
    pub(super) name: String,
    /// User data that one run handles, in bytes.
    pub(super) bytes: usize,
    /// At least so many times a peer's rate, on a machine with AVX-512.
    pub(super) goals: &'static [(Peer, f64)],
    kind: Kind,
    shape: Shape,
    context: PiContext,
    kernel: Kernel,
    isal: Option<Isal>,
    data: Memory,
    stream: Memory,
    other: Memory,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Raw,
    Generate,
    Verify,
    Insert,
    Strip,
    InsertSegments,
    StripSegments,
}

/// Segments of the cases that have some.
const SEGMENT: usize = 4096;

/// The formats: guard, block, metadata.
const FORMATS: [(&str, Guard, usize, usize); 5] = [
    ("512+8", Guard::Crc16, 512, 8),
    ("4096+8", Guard::Crc16, 4096, 8),
    ("4096+16 32b", Guard::Crc32c, 4096, 16),
    ("4096+16 64b", Guard::Crc64, 4096, 16),
    ("4096+64", Guard::Crc16, 4096, 64),
];

const SIZES: [(&str, usize); 3] = [("4 KiB", 4 << 10), ("128 KiB", 128 << 10), ("64 MiB", 64 << 20)];

/// Builders of all cases, in the order of the table; only the one that runs holds memory.
pub(super) fn all(kernel: Kernel, isal: Option<Isal>) -> Vec<(String, Box<dyn Fn() -> Case>)> {
    let mut cases: Vec<(String, Box<dyn Fn() -> Case>)> = Vec::new();
    let mut add = |name: String, kind: Kind, format: (&'static str, Guard, usize, usize), bytes: usize| {
        let title = name.clone();
        cases.push((title, Box::new(move || Case::new(name.clone(), kind, format, bytes, kernel, isal))));
    };
    for (size, bytes) in [("512 B", 512), SIZES[0], SIZES[1]] {
        add(format!("raw crc16, {size}"), Kind::Raw, FORMATS[0], bytes);
    }
    for format in FORMATS {
        for (size, bytes) in SIZES {
            for (verb, kind) in [
                ("generate", Kind::Generate),
                ("verify", Kind::Verify),
                ("insert", Kind::Insert),
                ("strip", Kind::Strip),
            ] {
                add(format!("{verb} {}, {size}", format.0), kind, format, bytes);
            }
        }
    }
    for (verb, kind) in [("insert", Kind::InsertSegments), ("strip", Kind::StripSegments)] {
        add(format!("{verb} 512+8 in 4 KiB segments, 128 KiB"), kind, FORMATS[0], 128 << 10);
    }
    cases
}

/// The ratios to reach.
fn goals(kind: Kind, guard: Guard, block: usize, metadata: usize, bytes: usize) -> &'static [(Peer, f64)] {
    let copies = matches!(kind, Kind::Insert | Kind::Strip);
    let in_place = matches!(kind, Kind::Generate | Kind::Verify);
    match (guard, block, metadata, bytes) {
        _ if kind == Kind::Raw && bytes <= 4096 => &[(Peer::Isal, 1.0)],
        _ if matches!(kind, Kind::InsertSegments | Kind::StripSegments) => &[(Peer::Isal, 2.0)],
        (_, _, _, 0x400_0000) if copies => &[(Peer::Memcpy, 0.9)],
        (Guard::Crc16, 512, 8, 0x2_0000) if in_place => &[(Peer::Isal, 1.25)],
        (Guard::Crc16, 4096, 8, 0x1000) if copies => &[(Peer::Isal, 2.5)],
        (Guard::Crc16, 4096, 8, 0x2_0000) if copies => &[(Peer::Isal, 1.8), (Peer::Memcpy, 0.8)],
        (Guard::Crc32c | Guard::Crc64, ..) if in_place => &[(Peer::CrcFast, 1.0)],
        (Guard::Crc32c | Guard::Crc64, _, _, 0x2_0000) if copies => &[(Peer::CrcFast, 1.3)],
        _ => &[],
    }
}

impl Case {
    fn new(
        name: String,
        kind: Kind,
        (_, guard, block, metadata): (&'static str, Guard, usize, usize),
        bytes: usize,
        kernel: Kernel,
        isal: Option<Isal>,
    ) -> Self {
        let small = |number: usize| u32::try_from(number).expect("a block's size");
        let metadata_size = u16::try_from(metadata).expect("a metadata size");
        let format = Format::new(guard, small(block), metadata_size).expect("a format of the table");
        let tags = Tags { app_tag: 1, app_tag_mask: 0xFFFF, storage_tag: 0, ref_tag: 7 };
        let context = PiContext::with_kernel(&format, PiType::Type1, Checks::ALL, tags, kernel)
            .expect("no storage tag to be too wide");
        let shape = Shape { guard, block, metadata };
        let data = Memory::new(bytes);
        // Raw checksums have no stream, and lengths that are no blocks.
        let whole = if kind == Kind::Raw { 0 } else { bytes / block * shape.stride() };
        let mut stream = Memory::new(whole);
        if kind != Kind::Raw {
            context.insert(&[data.get()], &mut [stream.get_mut()]);
        }
        let other = Memory::new(whole.max(bytes));
        let goals = goals(kind, guard, block, metadata, bytes);
        Self { name, bytes, goals, kind, shape, context, kernel, isal, data, stream, other }
    }

    /// Runs ours once.
    pub(super) fn ours(&mut self) {
        let (data, stream) = (self.data.get(), black_box(&mut self.stream));
        let pi = &self.context;
        match self.kind {
            Kind::Raw => {
                black_box(self.kernel.crc16(0, black_box(data)));
            }
            Kind::Generate => pi.generate_interleaved(&mut [stream.get_mut()]),
            Kind::Verify => pi.verify_interleaved(&[stream.get()]).expect("good blocks"),
            Kind::Insert => pi.insert(&[black_box(data)], &mut [stream.get_mut()]),
            Kind::Strip => {
                let out = &mut self.other.get_mut()[..self.bytes];
                pi.strip(&[stream.get()], &mut [out]).expect("good blocks");
            }
            Kind::InsertSegments => {
                let (from, mut to) = segments(data, stream.get_mut());
                pi.insert(&from, &mut to);
            }
            Kind::StripSegments => {
                let (from, mut to) = segments(stream.get(), &mut self.other.get_mut()[..self.bytes]);
                pi.strip(&from, &mut to).expect("good blocks");
            }
        }
    }

    /// Runs a peer once; `false` when it does nothing of the kind.
    pub(super) fn peer(&mut self, peer: Peer) -> bool {
        let (data, stream) = (black_box(self.data.get()), black_box(&mut self.stream));
        let shape = &self.shape;
        match (peer, self.kind) {
            (Peer::Memcpy, Kind::StripSegments | Kind::Strip) => {
                self.other.get_mut()[..self.bytes].copy_from_slice(&stream.get()[..self.bytes]);
            }
            (Peer::Memcpy, _) => self.other.get_mut()[..self.bytes].copy_from_slice(data),
            (Peer::Isal, kind) => {
                let Some(isal) = self.isal else { return false };
                match kind {
                    Kind::Raw => {
                        black_box(isal.crc16(0, data));
                    }
                    Kind::InsertSegments => {
                        let (from, mut to) = segments(data, stream.get_mut());
                        shape.insert_segments(isal, &from, &mut to);
                    }
                    Kind::StripSegments => {
                        let (from, mut to) = segments(stream.get(), &mut self.other.get_mut()[..self.bytes]);
                        assert!(shape.strip_segments(isal, &from, &mut to), "good blocks");
                    }
                    Kind::Insert if shape.guard == Guard::Crc16 => {
                        shape.insert_fused(isal, data, stream.get_mut());
                    }
                    Kind::Strip if shape.guard == Guard::Crc16 => {
                        let out = &mut self.other.get_mut()[..self.bytes];
                        assert!(shape.strip_fused(isal, stream.get(), out), "good blocks");
                    }
                    _ => {
                        let Some(crc) = Crc::isal(isal, shape.guard) else { return false };
                        return self.checksum_loop(crc);
                    }
                }
            }
            (Peer::CrcFast, Kind::Raw) => {
                black_box(crc_fast::checksum(crc_fast::CrcAlgorithm::Crc16T10Dif, data));
            }
            (Peer::CrcFast, _) => return self.checksum_loop(Crc::fast(self.shape.guard)),
        }
        true
    }

    /// A loop over a checksum, behind a copy where there is one.
    fn checksum_loop(&mut self, crc: Crc) -> bool {
        let (data, stream) = (self.data.get(), &mut self.stream);
        let shape = &self.shape;
        match self.kind {
            Kind::Generate => shape.generate(crc, stream.get_mut()),
            Kind::Verify => assert!(shape.verify(crc, stream.get()), "good blocks"),
            Kind::Insert => shape.insert(crc, data, stream.get_mut()),
            Kind::Strip => {
                let out = &mut self.other.get_mut()[..self.bytes];
                assert!(shape.strip(crc, stream.get(), out), "good blocks");
            }
            Kind::Raw | Kind::InsertSegments | Kind::StripSegments => return false,
        }
        true
    }
}

/// Both sides in segments of [`SEGMENT`] bytes.
fn segments<'a>(from: &'a [u8], to: &'a mut [u8]) -> (Vec<&'a [u8]>, Vec<&'a mut [u8]>) {
    (from.chunks(SEGMENT).collect(), to.chunks_mut(SEGMENT).collect())
}
