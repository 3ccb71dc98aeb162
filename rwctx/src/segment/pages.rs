//! The page array that a message is put together in, and the cursor that goes through it.

use std::ops::Range;

use super::SegmentError;
use crate::mem::Lkey;
use crate::plan::Bvec;

/// Bytes of a page.
pub const PAGE: u32 = 4096;

/// A page of [`PAGE`] bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Address of its first byte.
    pub addr: u64,
    /// Local key of the memory region that it lies in.
    pub lkey: Lkey,
}

/// A place in a page array (Linux: fields of `svc_rdma_recv_ctxt`). What is taken next begins at the byte behind what was
/// taken last, in the same page.
#[derive(Clone, Copy, Debug)]
pub struct PageCursor<'p> {
    pages: &'p [Page],
    /// At most the number of pages; then `pageoff` is 0.
    curpage: usize,
    /// Below [`PAGE`].
    pageoff: u32,
    page_count: usize,
    readbytes: u64,
}

impl<'p> PageCursor<'p> {
    /// At the first byte of `pages`.
    #[must_use]
    pub fn new(pages: &'p [Page]) -> Self {
        Self { pages, curpage: 0, pageoff: 0, page_count: 0, readbytes: 0 }
    }

    /// Index of the page that the next byte goes to; the number of pages when all are full.
    #[must_use]
    pub fn curpage(&self) -> usize {
        self.curpage
    }

    /// Place in that page, below [`PAGE`].
    #[must_use]
    pub fn pageoff(&self) -> u32 {
        self.pageoff
    }

    /// Pages with at least a byte of the message: they belong to it from now on.
    #[must_use]
    pub fn page_count(&self) -> usize {
        self.page_count
    }

    /// Bytes that chunks and copies took.
    #[must_use]
    pub fn readbytes(&self) -> u64 {
        self.readbytes
    }

    /// Counts the bytes of a segment that was built.
    pub(super) fn count(&mut self, bytes: u32) {
        self.readbytes += u64::from(bytes);
    }

    /// Appends the pieces of the next `length` bytes to `bvecs`. Deviation: pages are counted before one is used, where
    /// Linux looks after it used one.
    pub(super) fn take(&mut self, length: u32, bvecs: &mut Vec<Bvec>) -> Result<(), SegmentError> {
        let pieces = self.pieces(length)?;
        bvecs.try_reserve(pieces).map_err(|_| SegmentError::NoMemory)?;
        self.advance(length, pieces, |piece| bvecs.push(piece));
        Ok(())
    }

    /// Makes room for a part of the bytes that came inline: calls `copy` with where each of them lies and goes.
    ///
    /// # Errors
    /// [`SegmentError::LengthOverflow`], [`SegmentError::PageOverrun`]; nothing was copied then.
    pub(super) fn copy_inline(
        &mut self,
        range: Range<u64>,
        mut copy: impl FnMut(Range<usize>, Bvec),
    ) -> Result<(), SegmentError> {
        let length = u32::try_from(range.end - range.start).map_err(|_| SegmentError::LengthOverflow)?;
        let mut from = usize::try_from(range.start).map_err(|_| SegmentError::LengthOverflow)?;
        let pieces = self.pieces(length)?;
        self.advance(length, pieces, |to| {
            let end = from + to.length as usize;
            copy(from..end, to);
            from = end;
        });
        self.readbytes += u64::from(length);
        Ok(())
    }

    /// Pages that the next `length` bytes touch, from the current one on, even where they are none.
    fn pieces(&self, length: u32) -> Result<usize, SegmentError> {
        let end = self.pageoff.checked_add(length).ok_or(SegmentError::LengthOverflow)?;
        let pieces = end.div_ceil(PAGE) as usize;
        if pieces > self.pages.len() - self.curpage { Err(SegmentError::PageOverrun) } else { Ok(pieces) }
    }

    fn advance(&mut self, length: u32, pieces: usize, mut each: impl FnMut(Bvec)) {
        let mut left = length;
        for _ in 0..pieces {
            let taken = left.min(PAGE - self.pageoff);
            if self.pageoff == 0 {
                self.page_count += 1;
            }
            let page = self.pages[self.curpage];
            each(Bvec { addr: page.addr + u64::from(self.pageoff), length: taken, lkey: page.lkey });
            self.pageoff += taken;
            if self.pageoff == PAGE {
                self.curpage += 1;
                self.pageoff = 0;
            }
            left -= taken;
        }
    }
}
