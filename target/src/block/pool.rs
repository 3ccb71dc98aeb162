//! The buffer pool of one reactor: page-aligned buffers of any size up to a limit, out of one region.
//!
//! Owns which pages are in use (a binary buddy system over 4 KiB pages, so that a 4 KiB read and a 1 MiB write share
//! the memory without fragmenting it for good) and the promise that memory which a device or the kernel may touch is
//! not handed out again. Never clears memory, never waits, never allocates after construction. One thread: pool and
//! buffers are not `Send`.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use rwctx::mem::Region;

use super::shared::Piece;

/// Granularity and alignment of buffers, in bytes.
pub const PAGE: usize = 4096;

/// A pool of buffers; clones are handles of the same pool.
#[derive(Clone)]
pub struct BufPool {
    inner: Rc<Inner>,
}

struct Inner {
    region: Arc<Region>,
    pages: RefCell<Pages>,
}

/// Exclusive use of a buffer. Dropping it returns the memory, at once or when the last [`BufPin`] is gone.
///
/// Its bytes are those that the last user left there.
pub struct Buf {
    pool: Rc<Inner>,
    page: u32,
    length: usize,
}

/// The promise of a page, for what will rarely need it: cheaper than a buffer.
pub struct Promise {
    pool: Rc<Inner>,
}

/// Keeps a buffer's memory from being handed out while a device may touch it. Whoever posts a work request on a
/// buffer holds a pin until its completion; while there is one, the buffer's bytes can't be had as slices.
pub struct BufPin {
    pool: Rc<Inner>,
    page: u32,
}

impl BufPool {
    /// A pool of `bytes` bytes (rounded up to pages; 4 KiB to 16 TiB).
    ///
    /// # Errors
    /// What the kernel says when the memory can't be mapped.
    pub fn new(bytes: usize) -> nix::Result<Self> {
        let count = u32::try_from(bytes.div_ceil(PAGE)).map_err(|_| nix::Error::ENOMEM)?;
        Ok(Self::over(Arc::new(Region::new(count as usize * PAGE)?)))
    }

    /// A pool of the whole pages of a region that nobody else uses, of at most 16 TiB.
    ///
    /// # Panics
    /// When the region is larger.
    pub(super) fn over(region: Arc<Region>) -> Self {
        let count = u32::try_from(region.len() / PAGE).expect("at most 2^32 pages");
        let pages = RefCell::new(Pages::new(count));
        Self { inner: Rc::new(Inner { region, pages }) }
    }

    /// The memory behind every buffer of the pool, for registration with devices and the kernel.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.inner.region
    }

    /// A buffer of `length` bytes (at least 1); `None` when there is no room now, or `length` is above
    /// [`Self::largest`].
    #[must_use]
    pub fn take(&self, length: usize) -> Option<Buf> {
        let order = order_of(length)?;
        let page = self.inner.pages.borrow_mut().take(order)?;
        Some(Buf { pool: Rc::clone(&self.inner), page, length })
    }

    /// Promises a buffer of at most a page; `None` when there is no room now.
    #[must_use]
    pub fn promise(&self) -> Option<Promise> {
        let mut pages = self.inner.pages.borrow_mut();
        if pages.free == pages.promised {
            return None;
        }
        pages.promised += 1;
        Some(Promise { pool: Rc::clone(&self.inner) })
    }

    /// Bytes of the largest buffer that an empty pool gives.
    #[must_use]
    pub fn largest(&self) -> usize {
        PAGE << self.inner.pages.borrow().top
    }

    /// Bytes neither in use nor promised, in whatever pieces.
    #[must_use]
    pub fn free_bytes(&self) -> usize {
        let pages = self.inner.pages.borrow();
        (pages.free - pages.promised) as usize * PAGE
    }
}

impl Promise {
    /// The buffer, of `length` bytes.
    ///
    /// # Panics
    /// When that is 0 or more than a page.
    #[must_use]
    pub fn keep(self, length: usize) -> Buf {
        assert!((1..=PAGE).contains(&length), "what is promised is a page");
        let pool = Rc::clone(&self.pool);
        drop(self);
        let page = pool.pages.borrow_mut().take(0).expect("nobody takes the pages that are promised");
        Buf { pool, page, length }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.pool.pages.borrow_mut().promised -= 1;
    }
}

impl Buf {
    /// Bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length
    }

    /// Never: a buffer has at least one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Makes it shorter, or longer within the memory that it has.
    ///
    /// # Panics
    /// When `length` is 0 or more than its memory.
    pub fn set_len(&mut self, length: usize) {
        let order = self.pool.pages.borrow().used_order(self.page);
        assert!(length > 0 && length <= PAGE << order, "a buffer's length stays within its memory");
        self.length = length;
    }

    /// Offset of the first byte in the pool's region.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.page as usize * PAGE
    }

    /// Address of the first byte, as SGEs name it.
    #[must_use]
    pub fn addr(&self) -> u64 {
        self.pool.region.addr() + self.offset() as u64
    }

    /// The region that it is a part of.
    #[must_use]
    pub fn region(&self) -> &Arc<Region> {
        &self.pool.region
    }

    /// Keeps the memory for a device. While a pin exists, [`Self::bytes`] and [`Self::bytes_mut`] panic.
    #[must_use]
    pub fn pin(&mut self) -> BufPin {
        self.pool.pages.borrow_mut().pins[self.page as usize] += 1;
        BufPin { pool: Rc::clone(&self.pool), page: self.page }
    }

    /// Whether a pin exists.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.pool.pages.borrow().pins[self.page as usize] > 0
    }

    /// The memory, for raw copies.
    pub(super) fn piece(&self) -> Piece<'_> {
        Piece::new(&self.pool.region, self.offset(), self.length)
    }
}

impl Drop for Buf {
    fn drop(&mut self) {
        self.pool.pages.borrow_mut().give_up(self.page);
    }
}

impl Drop for BufPin {
    fn drop(&mut self) {
        self.pool.pages.borrow_mut().unpin(self.page);
    }
}

impl fmt::Debug for BufPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufPool({} of {} bytes free)", self.free_bytes(), self.inner.region.len())
    }
}

impl fmt::Debug for Buf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buf({}+{})", self.offset(), self.length)
    }
}

impl fmt::Debug for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Promise")
    }
}

impl fmt::Debug for BufPin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BufPin({})", self.page as usize * PAGE)
    }
}

/// Smallest order whose block holds `length` bytes.
fn order_of(length: usize) -> Option<u8> {
    if length == 0 {
        return None;
    }
    u8::try_from(length.div_ceil(PAGE).checked_next_power_of_two()?.trailing_zeros()).ok()
}

/// State of the pages: a buddy system. A block of order `n` is 2^n pages, at a multiple of that.
struct Pages {
    free_lists: [u32; ORDERS],
    /// Blocks of small orders that were given back last, not merged with their buddies: the next buffer of that size takes
    /// one without splitting a large block anew.
    recent: [Vec<u32>; RECENT_ORDERS],
    /// By first page of a block: what it is.
    heads: Vec<Head>,
    next: Vec<u32>,
    prev: Vec<u32>,
    pins: Vec<u32>,
    /// Pages that are free.
    free: u32,
    /// So many of them are promised: never more than are free.
    promised: u32,
    /// Largest order that the pool has.
    top: u8,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Head {
    /// Not the first page of a block.
    Inside,
    Free(u8),
    /// Free, and kept unmerged.
    Recent,
    Used(u8),
    /// Given up by its owner, kept by pins.
    Orphan(u8),
}

const ORDERS: usize = 32;
/// Orders whose blocks are kept unmerged for a while: up to 128 KiB.
const RECENT_ORDERS: usize = 6;
/// How many of each.
const RECENT: usize = 256;
const END: u32 = u32::MAX;

impl Pages {
    fn new(count: u32) -> Self {
        let length = count as usize;
        let mut pages = Self {
            free_lists: [END; ORDERS],
            recent: std::array::from_fn(|_| Vec::with_capacity(RECENT)),
            heads: vec![Head::Inside; length],
            next: vec![END; length],
            prev: vec![END; length],
            pins: vec![0; length],
            free: count,
            promised: 0,
            top: 0,
        };
        // The largest aligned blocks that fit, from the left; pushed from the right so that low pages go first.
        let mut blocks = Vec::new();
        let mut at = 0;
        while at < count {
            let aligned = if at == 0 { 31 } else { at.trailing_zeros() };
            let order = aligned.min((count - at).ilog2());
            blocks.push((at, u8::try_from(order).expect("below 32")));
            at += 1 << order;
        }
        for &(page, order) in blocks.iter().rev() {
            pages.push(page, order);
            pages.top = pages.top.max(order);
        }
        pages
    }

    fn take(&mut self, order: u8) -> Option<u32> {
        if u64::from(self.free - self.promised) < 1 << order {
            return None;
        }
        if let Some(page) = self.recent.get_mut(usize::from(order)).and_then(Vec::pop) {
            self.heads[page as usize] = Head::Used(order);
            self.free -= 1 << order;
            return Some(page);
        }
        self.split(order).or_else(|| {
            self.merge_recent();
            self.split(order)
        })
    }

    /// Takes a block from the free lists, cut out of a larger one where needed.
    fn split(&mut self, order: u8) -> Option<u32> {
        let from = (order..=self.top).find(|&order| self.free_lists[usize::from(order)] != END)?;
        let page = self.free_lists[usize::from(from)];
        self.unlink(page, from);
        for half in (order..from).rev() {
            self.push(page + (1 << half), half);
        }
        self.heads[page as usize] = Head::Used(order);
        self.free -= 1 << order;
        Some(page)
    }

    fn used_order(&self, page: u32) -> u8 {
        match self.heads[page as usize] {
            Head::Used(order) => order,
            Head::Inside | Head::Free(_) | Head::Recent | Head::Orphan(_) => {
                unreachable!("a live buffer's block is in use")
            }
        }
    }

    fn give_up(&mut self, page: u32) {
        let order = self.used_order(page);
        if self.pins[page as usize] > 0 {
            self.heads[page as usize] = Head::Orphan(order);
        } else {
            self.put(page, order);
        }
    }

    fn unpin(&mut self, page: u32) {
        let pins = &mut self.pins[page as usize];
        *pins -= 1;
        if *pins == 0
            && let Head::Orphan(order) = self.heads[page as usize]
        {
            self.put(page, order);
        }
    }

    fn put(&mut self, page: u32, order: u8) {
        self.free += 1 << order;
        if let Some(recent) = self.recent.get_mut(usize::from(order))
            && recent.len() < RECENT
        {
            recent.push(page);
            self.heads[page as usize] = Head::Recent;
            return;
        }
        self.merge(page, order);
    }

    /// Gives up all blocks that are kept unmerged.
    fn merge_recent(&mut self) {
        for order in 0..RECENT_ORDERS {
            while let Some(page) = self.recent[order].pop() {
                self.merge(page, u8::try_from(order).expect("a small number"));
            }
        }
    }

    /// Puts a block into the free lists, merged with its buddies as far as they are free.
    fn merge(&mut self, mut page: u32, mut order: u8) {
        self.heads[page as usize] = Head::Inside;
        while order < self.top {
            let buddy = page ^ (1 << order);
            if self.heads.get(buddy as usize) != Some(&Head::Free(order)) {
                break;
            }
            self.unlink(buddy, order);
            page = page.min(buddy);
            order += 1;
        }
        self.push(page, order);
    }

    fn push(&mut self, page: u32, order: u8) {
        let list = &mut self.free_lists[usize::from(order)];
        let first = std::mem::replace(list, page);
        self.heads[page as usize] = Head::Free(order);
        self.prev[page as usize] = END;
        self.next[page as usize] = first;
        if first != END {
            self.prev[first as usize] = page;
        }
    }

    fn unlink(&mut self, page: u32, order: u8) {
        let (prev, next) = (self.prev[page as usize], self.next[page as usize]);
        if prev == END {
            self.free_lists[usize::from(order)] = next;
        } else {
            self.next[prev as usize] = next;
        }
        if next != END {
            self.prev[next as usize] = prev;
        }
        self.heads[page as usize] = Head::Inside;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buffers_are_page_aligned_apart_and_come_back() {
        let pool = BufPool::new(64 * PAGE).unwrap();
        let whole = pool.take(64 * PAGE).unwrap();
        assert!(pool.take(1).is_none());
        drop(whole);
        let mut a = pool.take(1).unwrap();
        let mut b = pool.take(3 * PAGE).unwrap();
        assert_eq!((a.addr() % 4096, b.addr() % 4096), (0, 0));
        a.bytes_mut().fill(1);
        b.bytes_mut().fill(2);
        assert!(a.bytes().iter().all(|&byte| byte == 1));
        assert_eq!(b.bytes().len(), 3 * PAGE);
        b.set_len(4 * PAGE);
        drop((a, b));
        assert_eq!(pool.free_bytes(), 64 * PAGE);
        assert!(pool.take(64 * PAGE).is_some());
    }

    #[test]
    fn nothing_larger_than_the_largest_is_given() {
        let pool = BufPool::new(48 * PAGE).unwrap();
        assert_eq!(pool.largest(), 32 * PAGE);
        assert!(pool.take(pool.largest() + 1).is_none());
        assert!(pool.take(usize::MAX).is_none());
        assert!(pool.take(0).is_none());
        assert!(pool.take(pool.largest()).is_some());
    }

    #[test]
    fn a_pinned_buffer_is_not_handed_out_again_before_the_pin_is_gone() {
        let pool = BufPool::new(PAGE).unwrap();
        let mut buf = pool.take(PAGE).unwrap();
        let (one, two) = (buf.pin(), buf.pin());
        assert!(buf.is_pinned());
        drop(buf);
        drop(one);
        assert!(pool.take(1).is_none());
        drop(two);
        assert!(pool.take(1).is_some());
    }

    #[test]
    #[should_panic(expected = "in use by a device")]
    fn a_pinned_buffer_is_not_looked_at() {
        let pool = BufPool::new(PAGE).unwrap();
        let mut buf = pool.take(PAGE).unwrap();
        let _pin = buf.pin();
        let _ = buf.bytes();
    }

    #[test]
    fn what_is_promised_is_there_however_the_rest_is_used() {
        let pool = BufPool::new(4 * PAGE).unwrap();
        let promises: Vec<_> = (0..2).map(|_| pool.promise().unwrap()).collect();
        assert_eq!(pool.free_bytes(), 2 * PAGE);
        assert!(pool.take(3 * PAGE).is_none(), "three pages would leave one");
        let held: Vec<_> = (0..2).map(|_| pool.take(1).unwrap()).collect();
        assert!(pool.take(1).is_none() && pool.promise().is_none());
        let mut kept: Vec<_> = promises.into_iter().map(|promise| promise.keep(PAGE)).collect();
        kept.iter_mut().for_each(|buf| buf.bytes_mut().fill(3));
        assert!(pool.take(1).is_none());
        drop((held, kept));
        assert_eq!(pool.free_bytes(), 4 * PAGE);
        drop(pool.promise().unwrap());
        assert!(pool.take(4 * PAGE).is_some());
    }

    proptest! {
        #[test]
        fn any_order_of_taking_and_returning_keeps_buffers_apart(
            count in 1_usize..100,
            steps in proptest::collection::vec((any::<bool>(), 1_usize..20 * PAGE, any::<prop::sample::Index>()), 0..200),
        ) {
            let pool = BufPool::new(count * PAGE).unwrap();
            let mut live: Vec<Buf> = Vec::new();
            for (take, length, which) in steps {
                if take {
                    live.extend(pool.take(length));
                } else if !live.is_empty() {
                    live.swap_remove(which.index(live.len()));
                }
                let mut spans: Vec<_> = live
                    .iter()
                    .map(|buf| (buf.offset(), buf.offset() + buf.len()))
                    .collect();
                spans.sort_unstable();
                prop_assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0));
                prop_assert!(spans.last().is_none_or(|last| last.1 <= count * PAGE));
            }
            drop(live);
            prop_assert_eq!(pool.free_bytes(), count * PAGE);
            prop_assert!(pool.take(pool.largest()).is_some());
        }
    }
}
