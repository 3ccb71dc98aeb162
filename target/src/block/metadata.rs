//! The stored form of metadata: tuple bytes inverted, all others as they are.
//!
//! Owns that inversion. Memory and files that nobody wrote read as zero; inverted, a tuple that nobody wrote reads as
//! all ones, the escape value that passes every check, while metadata outside the tuple and data read as zero (NVM
//! Command Set, deallocated or unwritten logical blocks). Never looks at what a tuple says.

use t10pi::Format;

use super::shared::Piece;

/// How one block's metadata looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Metadata {
    /// Bytes of one block's metadata.
    pub(super) size: usize,
    tuple_offset: usize,
    tuple_size: usize,
}

/// Bytes that are inverted at a time; the copies on the stack have this size.
const CHUNK: usize = 1024;
/// The same for the metadata of a few blocks.
const FEW: usize = 64;

impl Metadata {
    pub(super) fn new(format: &Format) -> Self {
        Self {
            size: usize::from(format.metadata_size()),
            tuple_offset: format.tuple_offset(),
            tuple_size: format.tuple_size(),
        }
    }

    /// Copies whole blocks' metadata between the form that hosts see and the stored form, either way.
    ///
    /// # Panics
    /// When the lengths differ or are not whole blocks.
    pub(super) fn copy_inverted(&self, from: &Piece<'_>, to: &Piece<'_>) {
        assert!(from.len() == to.len() && from.len().is_multiple_of(self.size), "whole blocks are copied");
        // A command on one block moves a few bytes: clearing a large buffer for them would cost more than the rest.
        let mut few = [0; FEW];
        if let Some(bytes) = few.get_mut(..from.len()) {
            from.read(bytes);
            self.invert(0, bytes);
            to.write(bytes);
            return;
        }
        let mut chunk = [0; CHUNK];
        let mut at = 0;
        while at < from.len() {
            let length = CHUNK.min(from.len() - at);
            let bytes = &mut chunk[..length];
            from.slice(at, length).read(bytes);
            self.invert(at, bytes);
            to.slice(at, length).write(bytes);
            at += length;
        }
    }

    /// Makes whole blocks' metadata what a block that nobody wrote has, as hosts see it.
    ///
    /// # Panics
    /// When the length is not whole blocks.
    pub(super) fn fill_unwritten(&self, to: &Piece<'_>) {
        assert!(to.len().is_multiple_of(self.size), "whole blocks are filled");
        let mut at = 0;
        while at < to.len() {
            let mut chunk = [0; CHUNK];
            let length = CHUNK.min(to.len() - at);
            self.invert(at, &mut chunk[..length]);
            to.slice(at, length).write(&chunk[..length]);
            at += length;
        }
    }

    /// Inverts the tuple bytes of metadata that starts `at` bytes after the start of a block's metadata.
    pub(super) fn invert(&self, at: usize, bytes: &mut [u8]) {
        if self.size == self.tuple_size {
            bytes.iter_mut().for_each(|byte| *byte = !*byte);
            return;
        }
        let tuple = self.tuple_offset..self.tuple_offset + self.tuple_size;
        for (index, byte) in bytes.iter_mut().enumerate() {
            if tuple.contains(&((at + index) % self.size)) {
                *byte = !*byte;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rwctx::mem::Region;
    use t10pi::{Guard, Position};

    use super::*;

    #[test]
    fn only_tuple_bytes_are_inverted() {
        for (position, tuple) in [(Position::First, 0..8), (Position::Last, 56..64)] {
            let format = Format::new(Guard::Crc16, 512, 64).unwrap().with_position(position);
            let metadata = Metadata::new(&format);
            let region = Region::new(2 * 6400).unwrap();
            let (from, to) = (Piece::new(&region, 0, 6400), Piece::new(&region, 6400, 6400));
            from.fill(0xA5);
            metadata.copy_inverted(&from, &to);
            let mut bytes = vec![0; 6400];
            to.read(&mut bytes);
            for (index, byte) in bytes.iter().enumerate() {
                assert_eq!(*byte, if tuple.contains(&(index % 64)) { 0x5A } else { 0xA5 });
            }
            metadata.copy_inverted(&to, &from);
            from.read(&mut bytes);
            assert!(bytes.iter().all(|&byte| byte == 0xA5));
            metadata.fill_unwritten(&to);
            to.read(&mut bytes);
            for (index, byte) in bytes.iter().enumerate() {
                assert_eq!(*byte, if tuple.contains(&(index % 64)) { 0xFF } else { 0 });
            }
        }
    }
}
