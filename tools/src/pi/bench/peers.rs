//! The loops that a program without `t10pi` writes: a checksum of a library for each block, and the tags beside it.

use t10pi::Guard;

use super::isal::Isal;

/// A checksum that is continued piece by piece.
#[derive(Clone, Copy, Debug)]
pub(super) enum Crc {
    /// libisal's `crc16_t10dif`.
    Isal16(Isal),
    /// libisal's `crc32_iscsi`.
    Isal32(Isal),
    /// The crate `crc-fast`.
    Fast(crc_fast::CrcAlgorithm),
}

impl Crc {
    /// libisal's checksum for a guard, if it has one.
    pub(super) fn isal(isal: Isal, guard: Guard) -> Option<Self> {
        match guard {
            Guard::Crc16 => Some(Self::Isal16(isal)),
            Guard::Crc32c => Some(Self::Isal32(isal)),
            Guard::Crc64 | Guard::Ip => None,
        }
    }

    /// The crate's checksum for a guard.
    pub(super) fn fast(guard: Guard) -> Self {
        Self::Fast(match guard {
            Guard::Crc32c => crc_fast::CrcAlgorithm::Crc32Iscsi,
            Guard::Crc64 => crc_fast::CrcAlgorithm::Crc64Nvme,
            Guard::Crc16 | Guard::Ip => crc_fast::CrcAlgorithm::Crc16T10Dif,
        })
    }

    /// The guard of `bytes`, and of `more` behind them.
    #[inline]
    fn guard(self, bytes: &[u8], more: &[u8]) -> u64 {
        match self {
            Self::Isal16(isal) => {
                let value = isal.crc16(0, bytes);
                u64::from(if more.is_empty() { value } else { isal.crc16(value, more) })
            }
            Self::Isal32(isal) => {
                let state = isal.crc32(u32::MAX, bytes);
                u64::from(!if more.is_empty() { state } else { isal.crc32(state, more) })
            }
            Self::Fast(algorithm) if more.is_empty() => crc_fast::checksum(algorithm, bytes),
            Self::Fast(algorithm) => {
                let mut digest = crc_fast::Digest::new(algorithm);
                digest.update(bytes);
                digest.update(more);
                digest.finalize()
            }
        }
    }
}

/// A format's numbers, and the tags of the first block: application tag 1, reference tag 7.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) guard: Guard,
    pub(super) block: usize,
    pub(super) metadata: usize,
}

impl Shape {
    pub(super) fn stride(&self) -> usize {
        self.block + self.metadata
    }

    fn tuple_offset(&self) -> usize {
        self.metadata - self.guard.tuple_size()
    }

    /// Writes the tuple of block `index`.
    #[inline]
    fn put(&self, tuple: &mut [u8], guard: u64, index: usize) {
        let size = self.guard.size();
        tuple[..size].copy_from_slice(&guard.to_be_bytes()[8 - size..]);
        tuple[size..size + 2].copy_from_slice(&1_u16.to_be_bytes());
        let ref_tag = (7 + index as u64).to_be_bytes();
        let rest = tuple.len() - size - 2;
        if rest > 8 {
            tuple[size + 2..][..rest - 8].fill(0);
            tuple[size + 2 + rest - 8..].copy_from_slice(&ref_tag);
        } else {
            tuple[size + 2..].copy_from_slice(&ref_tag[8 - rest..]);
        }
    }

    /// Whether a tuple is that of block `index`.
    #[inline]
    fn holds(&self, tuple: &[u8], guard: u64, index: usize) -> bool {
        let mut expected = [0; 16];
        let expected = &mut expected[..tuple.len()];
        self.put(expected, guard, index);
        expected == tuple
    }

    /// Writes the tuples of an interleaved stream.
    pub(super) fn generate(&self, crc: Crc, stream: &mut [u8]) {
        for (index, unit) in stream.chunks_exact_mut(self.stride()).enumerate() {
            let (covered, tuple) = unit.split_at_mut(self.block + self.tuple_offset());
            self.put(tuple, crc.guard(covered, &[]), index);
        }
    }

    /// Whether the tuples of an interleaved stream are right.
    pub(super) fn verify(&self, crc: Crc, stream: &[u8]) -> bool {
        stream.chunks_exact(self.stride()).enumerate().all(|(index, unit)| {
            let (covered, tuple) = unit.split_at(self.block + self.tuple_offset());
            self.holds(tuple, crc.guard(covered, &[]), index)
        })
    }

    /// Copies each block, then computes its guard.
    pub(super) fn insert(&self, crc: Crc, data: &[u8], stream: &mut [u8]) {
        let units = stream.chunks_exact_mut(self.stride());
        for (index, (data, unit)) in data.chunks_exact(self.block).zip(units).enumerate() {
            let (block, md) = unit.split_at_mut(self.block);
            block.copy_from_slice(data);
            let (lead, tuple) = md.split_at_mut(self.tuple_offset());
            lead.fill(0);
            self.put(tuple, crc.guard(block, lead), index);
        }
    }

    /// Copies each block, then computes its guard and checks its tuple.
    pub(super) fn strip(&self, crc: Crc, stream: &[u8], data: &mut [u8]) -> bool {
        let units = stream.chunks_exact(self.stride());
        data.chunks_exact_mut(self.block).zip(units).enumerate().all(|(index, (data, unit))| {
            let (block, md) = unit.split_at(self.block);
            data.copy_from_slice(block);
            let (lead, tuple) = md.split_at(self.tuple_offset());
            self.holds(tuple, crc.guard(data, lead), index)
        })
    }

    /// Copies by libisal's fused function.
    pub(super) fn insert_fused(&self, isal: Isal, data: &[u8], stream: &mut [u8]) {
        let units = stream.chunks_exact_mut(self.stride());
        for (index, (data, unit)) in data.chunks_exact(self.block).zip(units).enumerate() {
            let (block, md) = unit.split_at_mut(self.block);
            let mut guard = isal.crc16_copy(0, data, block);
            let (lead, tuple) = md.split_at_mut(self.tuple_offset());
            if !lead.is_empty() {
                lead.fill(0);
                guard = isal.crc16(guard, lead);
            }
            self.put(tuple, guard.into(), index);
        }
    }

    /// Copies by libisal's fused function, and checks.
    pub(super) fn strip_fused(&self, isal: Isal, stream: &[u8], data: &mut [u8]) -> bool {
        let units = stream.chunks_exact(self.stride());
        data.chunks_exact_mut(self.block).zip(units).enumerate().all(|(index, (data, unit))| {
            let (block, md) = unit.split_at(self.block);
            let mut guard = isal.crc16_copy(0, block, data);
            let (lead, tuple) = md.split_at(self.tuple_offset());
            if !lead.is_empty() {
                guard = isal.crc16(guard, lead);
            }
            self.holds(tuple, guard.into(), index)
        })
    }

    /// As [`insert_fused`](Self::insert_fused), with both sides in segments. All metadata is tuple.
    pub(super) fn insert_segments(&self, isal: Isal, data: &[&[u8]], stream: &mut [&mut [u8]]) {
        let mut from = Pieces { segments: data, at: 0 };
        let mut to = PiecesMut { segments: stream, segment: 0, at: 0 };
        let mut tuple = [0; 16];
        let tuple = &mut tuple[..self.metadata];
        let mut index = 0;
        while !from.segments.is_empty() {
            let (mut guard, mut left) = (0, self.block);
            while left > 0 {
                let count = left.min(from.contiguous()).min(to.contiguous());
                guard = isal.crc16_copy(guard, from.take(count), to.take(count));
                left -= count;
            }
            self.put(tuple, guard.into(), index);
            let mut rest: &[u8] = tuple;
            while !rest.is_empty() {
                let count = rest.len().min(to.contiguous());
                to.take(count).copy_from_slice(&rest[..count]);
                rest = &rest[count..];
            }
            index += 1;
        }
    }

    /// As [`strip_fused`](Self::strip_fused), with both sides in segments. All metadata is tuple.
    pub(super) fn strip_segments(&self, isal: Isal, stream: &[&[u8]], data: &mut [&mut [u8]]) -> bool {
        let mut from = Pieces { segments: stream, at: 0 };
        let mut to = PiecesMut { segments: data, segment: 0, at: 0 };
        let mut tuple = [0; 16];
        let tuple = &mut tuple[..self.metadata];
        let mut index = 0;
        while !from.segments.is_empty() {
            let (mut guard, mut left) = (0, self.block);
            while left > 0 {
                let count = left.min(from.contiguous()).min(to.contiguous());
                guard = isal.crc16_copy(guard, from.take(count), to.take(count));
                left -= count;
            }
            let mut got = 0;
            while got < tuple.len() {
                let count = (tuple.len() - got).min(from.contiguous());
                tuple[got..got + count].copy_from_slice(from.take(count));
                got += count;
            }
            if !self.holds(tuple, guard.into(), index) {
                return false;
            }
            index += 1;
        }
        true
    }
}

/// What is left of segments.
struct Pieces<'s, 'a> {
    segments: &'s [&'a [u8]],
    at: usize,
}

impl<'a> Pieces<'_, 'a> {
    fn contiguous(&self) -> usize {
        self.segments[0].len() - self.at
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let piece = &self.segments[0][self.at..self.at + count];
        self.at += count;
        if self.at == self.segments[0].len() {
            (self.segments, self.at) = (&self.segments[1..], 0);
        }
        piece
    }
}

/// What is left of segments that are written.
struct PiecesMut<'s, 'a> {
    segments: &'s mut [&'a mut [u8]],
    segment: usize,
    at: usize,
}

impl PiecesMut<'_, '_> {
    fn contiguous(&self) -> usize {
        self.segments[self.segment].len() - self.at
    }

    fn take(&mut self, count: usize) -> &mut [u8] {
        let (segment, at) = (self.segment, self.at);
        self.at += count;
        if self.at == self.segments[segment].len() {
            (self.segment, self.at) = (segment + 1, 0);
        }
        &mut self.segments[segment][at..at + count]
    }
}
