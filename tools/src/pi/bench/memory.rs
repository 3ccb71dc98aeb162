//! Page-aligned memory, so that no contender is lucky with an alignment.

/// Bytes that start at a multiple of 4096.
#[derive(Debug)]
pub(super) struct Memory {
    bytes: Vec<u8>,
    start: usize,
    length: usize,
}

const PAGE: usize = 4096;

impl Memory {
    /// Memory of this length, filled with something that is not constant.
    pub(super) fn new(length: usize) -> Self {
        let mut state = 0x9E37_79B9_7F4A_7C15_u64;
        let mut bytes = vec![0; length + PAGE];
        for chunk in bytes.chunks_mut(8) {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            chunk.copy_from_slice(&state.to_be_bytes()[..chunk.len()]);
        }
        let start = bytes.as_ptr().align_offset(PAGE);
        Self { bytes, start, length }
    }

    pub(super) fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.length]
    }

    pub(super) fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.length]
    }
}
