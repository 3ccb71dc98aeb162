//! Cursors over scattered segments: they walk a byte stream whose pieces may end anywhere, also inside a tuple.
//!
//! Own nothing but a position; never copy more than the few bytes of a tuple or of metadata.

/// A read position in a stream of segments.
#[derive(Debug)]
pub(crate) struct Cursor<'s, 'a> {
    segments: &'s [&'a [u8]],
    /// What is left of the segment before `segments`.
    current: &'a [u8],
}

impl<'s, 'a> Cursor<'s, 'a> {
    pub(crate) fn new(segments: &'s [&'a [u8]]) -> Self {
        let mut cursor = Self { segments, current: &[] };
        cursor.settle();
        cursor
    }

    /// Bytes that follow without a gap; 0 only at the end of the stream.
    pub(crate) fn contiguous(&self) -> usize {
        self.current.len()
    }

    /// The bytes that follow without a gap.
    pub(crate) fn ahead(&self) -> &'a [u8] {
        self.current
    }

    /// Returns the next bytes: at least one, at most `max` (which is not 0).
    ///
    /// # Panics
    /// At the end of the stream: callers have compared the lengths before.
    pub(crate) fn take(&mut self, max: usize) -> &'a [u8] {
        assert!(!self.current.is_empty(), "the segments hold every byte of every block");
        let (piece, rest) = self.current.split_at(max.min(self.current.len()));
        self.current = rest;
        self.settle();
        piece
    }

    /// Passes the next `count` bytes to `each`, piece by piece.
    pub(crate) fn pieces(&mut self, count: usize, mut each: impl FnMut(&[u8])) {
        let mut left = count;
        while left > 0 {
            let piece = self.take(left);
            left -= piece.len();
            each(piece);
        }
    }

    /// Copies the next bytes into `out` and fills it.
    pub(crate) fn read(&mut self, out: &mut [u8]) {
        let mut at = 0;
        while at < out.len() {
            let piece = self.take(out.len() - at);
            out[at..at + piece.len()].copy_from_slice(piece);
            at += piece.len();
        }
    }

    /// Passes over `count` bytes.
    pub(crate) fn skip(&mut self, count: usize) {
        self.pieces(count, |_| ());
    }

    /// Steps over exhausted and empty segments.
    fn settle(&mut self) {
        while self.current.is_empty() {
            let Some((first, rest)) = self.segments.split_first() else { return };
            self.current = first;
            self.segments = rest;
        }
    }
}

/// A write position in a stream of segments.
#[derive(Debug)]
pub(crate) struct CursorMut<'s, 'a> {
    segments: &'s mut [&'a mut [u8]],
    segment: usize,
    offset: usize,
}

impl<'s, 'a> CursorMut<'s, 'a> {
    pub(crate) fn new(segments: &'s mut [&'a mut [u8]]) -> Self {
        let mut cursor = Self { segments, segment: 0, offset: 0 };
        cursor.settle();
        cursor
    }

    /// Bytes that follow without a gap; 0 only at the end of the stream.
    pub(crate) fn contiguous(&self) -> usize {
        self.segments.get(self.segment).map_or(0, |segment| segment.len() - self.offset)
    }

    /// Returns the next bytes: at least one, at most `max` (which is not 0).
    ///
    /// # Panics
    /// At the end of the stream: callers have compared the lengths before.
    pub(crate) fn take(&mut self, max: usize) -> &mut [u8] {
        let (segment, start) = (self.segment, self.offset);
        let length = max.min(self.contiguous());
        assert!(length > 0, "the segments hold every byte of every block");
        self.offset += length;
        self.settle();
        &mut self.segments[segment][start..start + length]
    }

    /// Passes the next `count` bytes to `each`, piece by piece.
    pub(crate) fn pieces(&mut self, count: usize, mut each: impl FnMut(&mut [u8])) {
        let mut left = count;
        while left > 0 {
            let piece = self.take(left);
            left -= piece.len();
            each(piece);
        }
    }

    /// Passes over `count` bytes.
    pub(crate) fn skip(&mut self, count: usize) {
        self.pieces(count, |_| ());
    }

    /// Reads the next bytes into `out` without moving.
    ///
    /// # Panics
    /// When fewer bytes are left than `out` holds.
    pub(crate) fn peek(&self, out: &mut [u8]) {
        let (mut segment, mut offset, mut at) = (self.segment, self.offset, 0);
        while at < out.len() {
            let rest = &self.segments[segment][offset..];
            let count = rest.len().min(out.len() - at);
            out[at..at + count].copy_from_slice(&rest[..count]);
            at += count;
            (segment, offset) = (segment + 1, 0);
        }
    }

    /// Writes all of `bytes`.
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        self.pieces(bytes.len(), |piece| {
            let (now, later) = rest.split_at(piece.len());
            piece.copy_from_slice(now);
            rest = later;
        });
    }

    /// Steps over exhausted and empty segments.
    fn settle(&mut self) {
        while self.segments.get(self.segment).is_some_and(|segment| segment.len() == self.offset) {
            self.segment += 1;
            self.offset = 0;
        }
    }
}

/// Bytes in all of `segments`.
pub(crate) fn total(segments: &[&[u8]]) -> usize {
    segments.iter().map(|segment| segment.len()).sum()
}

/// Bytes in all of `segments`.
pub(crate) fn total_mut(segments: &[&mut [u8]]) -> usize {
    segments.iter().map(|segment| segment.len()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_segments_are_stepped_over() {
        let segments: [&[u8]; 5] = [&[], &[1, 2], &[], &[3], &[]];
        let mut cursor = Cursor::new(&segments);
        let mut seen = [0; 3];
        cursor.read(&mut seen);
        assert_eq!((seen, cursor.contiguous()), ([1, 2, 3], 0));

        let (mut a, mut b) = ([0; 2], [0; 1]);
        let mut segments: [&mut [u8]; 4] = [&mut [], &mut a, &mut [], &mut b];
        let mut cursor = CursorMut::new(&mut segments);
        cursor.write(&[7, 8, 9]);
        assert_eq!(cursor.contiguous(), 0);
        assert_eq!((a, b), ([7, 8], [9]));
    }

    #[test]
    fn a_take_never_crosses_a_segment() {
        let segments: [&[u8]; 2] = [&[1, 2, 3], &[4]];
        let mut cursor = Cursor::new(&segments);
        assert_eq!(cursor.take(2), [1, 2]);
        assert_eq!(cursor.take(2), [3]);
        assert_eq!(cursor.take(2), [4]);
    }
}
