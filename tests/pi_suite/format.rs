//! The formats that the suite goes through: every guard, type, block size, layout and backend, with metadata of the tuple's
//! size and larger, with storage tags of no, some and all bits, compared in whole and in part.

use std::fmt;

use super::oracle::low;

/// How a guard is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    Crc16,
    Crc32c,
    Crc64,
}

impl Guard {
    /// As configurations name it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Crc16 => "crc16",
            Self::Crc32c => "crc32c",
            Self::Crc64 => "crc64",
        }
    }
}

/// What stores a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backend {
    Memory,
    File,
}

/// Protection of types 1 to 3.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protection {
    pub(crate) pi_type: u8,
    pub(crate) guard: Guard,
    /// Bytes of a block's metadata; the tuple is its last part.
    pub(crate) metadata: usize,
    /// Bits of the storage tag.
    pub(crate) storage_bits: u32,
    /// Which of them are compared.
    pub(crate) storage_mask: u64,
}

/// What one volume is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Format {
    /// Its place in the list.
    pub(crate) number: usize,
    /// Bytes of data of a block.
    pub(crate) block: usize,
    /// None: type 0.
    pub(crate) protection: Option<Protection>,
    /// Whether metadata is stored behind each block.
    pub(crate) interleaved: bool,
    pub(crate) backend: Backend,
}

impl Format {
    /// Bytes of a block with its metadata.
    pub(crate) fn stride(&self) -> usize {
        self.block + self.metadata()
    }

    pub(crate) fn metadata(&self) -> usize {
        self.protection.map_or(0, |protection| protection.metadata)
    }

    /// Bytes of metadata before the tuple, which the guard covers.
    pub(crate) fn leading(&self) -> usize {
        self.protection.map_or(0, |protection| protection.metadata - protection.tuple_size())
    }

    /// The value of `protection` in a configuration.
    pub(crate) fn config(&self) -> String {
        let Some(protection) = &self.protection else { return "{ type = 0 }".to_owned() };
        let Protection { pi_type, guard, metadata, storage_bits, storage_mask } = protection;
        let layout = if self.interleaved { "interleaved" } else { "separate" };
        let mut text = format!(
            "{{ type = {pi_type}, guard = \"{}\", metadata_size = {metadata}, layout = \"{layout}\", \
             storage_tag_bits = {storage_bits}",
            guard.name()
        );
        if *storage_mask != low(*storage_bits) {
            text += &format!(", storage_tag_mask = {storage_mask:#x}");
        }
        text + " }"
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, block, backend, .. } = self;
        write!(f, "volume v{number}, {block} bytes in {backend:?}, {}", self.config())
    }
}

/// Guards with the block and metadata sizes that they can have.
const SHAPES: [(Guard, usize, [usize; 2]); 4] = [
    (Guard::Crc16, 512, [8, 64]),
    (Guard::Crc16, 4096, [8, 64]),
    (Guard::Crc32c, 4096, [16, 64]),
    (Guard::Crc64, 4096, [16, 64]),
];

/// Bits and masks of storage tags.
fn storage_tags(guard: Guard) -> &'static [(u32, u64)] {
    match guard {
        Guard::Crc16 => &[(0, 0), (8, 0xff), (16, 0xff0f), (32, 0xffff_ffff)],
        Guard::Crc32c => &[(16, 0xffff), (40, 0xff_00ff_ffff), (64, u64::MAX)],
        Guard::Crc64 => &[(0, 0), (18, 0x3_00ff), (48, 0xffff_ffff_ffff)],
    }
}

/// All of them.
pub(crate) fn all() -> Vec<Format> {
    let mut formats = Vec::new();
    for backend in [Backend::Memory, Backend::File] {
        for block in [512, 4096] {
            formats.push(Format { number: 0, block, protection: None, interleaved: false, backend });
        }
        for (guard, block, sizes) in SHAPES {
            for (metadata, &(storage_bits, storage_mask)) in
                sizes.into_iter().flat_map(|size| storage_tags(guard).iter().map(move |tag| (size, tag)))
            {
                for (pi_type, interleaved) in
                    [(1, false), (1, true), (2, false), (2, true), (3, false), (3, true)]
                {
                    let protection = Protection { pi_type, guard, metadata, storage_bits, storage_mask };
                    let protection = Some(protection);
                    formats.push(Format { number: 0, block, protection, interleaved, backend });
                }
            }
        }
    }
    for (number, format) in formats.iter_mut().enumerate() {
        format.number = number;
    }
    formats
}
