//! What a page list can map: the rule by which a list of pieces becomes pages of one fast registration.
//!
//! Pieces stand one behind the other in a registration's addresses, in whole pages: where one ends and the next begins both
//! must be page boundaries, unless the two are contiguous in memory. So only the first may start and the last may end inside a
//! page. Follows Linux `ib_sg_to_pages`.

/// Bytes of a registration's page.
pub const PAGE: u32 = 4096;

/// A list of pieces on its way to becoming pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageList {
    /// Bytes mapped.
    pub length: u64,
    /// Pages taken.
    pub pages: u64,
    /// One past the last byte.
    end: Option<u64>,
}

impl PageList {
    /// Appends `length` bytes at `addr`; whether the list takes them. Nothing changes when it doesn't.
    pub fn push(&mut self, addr: u64, length: u32, most_pages: u32) -> bool {
        const IN_PAGE: u64 = PAGE as u64 - 1;
        let Some(end) = addr.checked_add(u64::from(length)) else { return false };
        let pages = match self.end {
            Some(last) if last == addr && last & IN_PAGE != 0 => {
                // It goes on in the page that is there already.
                let rest = u64::from(PAGE) - (last & IN_PAGE);
                u64::from(length).saturating_sub(rest).div_ceil(u64::from(PAGE))
            }
            Some(last) if (last | addr) & IN_PAGE != 0 => return false,
            Some(_) | None => ((addr & IN_PAGE) + u64::from(length)).div_ceil(u64::from(PAGE)),
        };
        if self.pages + pages > u64::from(most_pages) {
            return false;
        }
        self.pages += pages;
        self.length += u64::from(length);
        self.end = Some(end);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of the pieces a list of `most_pages` pages takes, with their bytes and pages.
    fn map(pieces: &[(u64, u32)], most_pages: u32) -> (usize, u64, u64) {
        let mut list = PageList::default();
        let taken = pieces.iter().take_while(|&&(addr, length)| list.push(addr, length, most_pages)).count();
        (taken, list.length, list.pages)
    }

    #[test]
    fn only_the_first_piece_starts_and_only_the_last_ends_inside_a_page() {
        assert_eq!(map(&[(0x1100, 0xf00), (0x5000, 4096), (0x9000, 5)], 8), (3, 0xf00 + 4101, 3));
        assert_eq!(map(&[(0x1000, 100), (0x5000, 4096)], 8), (1, 100, 1), "the first ends inside");
        assert_eq!(map(&[(0x1000, 4096), (0x5001, 4096)], 8), (1, 4096, 1), "the second starts inside");
    }

    #[test]
    fn contiguous_pieces_share_their_page() {
        assert_eq!(map(&[(0x1000, 100), (0x1064, 200), (0x112c, 4096)], 8), (3, 4396, 2));
        assert_eq!(map(&[(0x1000, 4096), (0x2000, 4096)], 8), (2, 8192, 2));
        assert_eq!(map(&[(0x1ff0, 16), (0x2000, 16), (0x2010, 1)], 8), (3, 33, 2));
    }

    #[test]
    fn a_piece_takes_a_slot_for_each_page_that_it_touches() {
        assert_eq!(map(&[(512, 1 << 20)], 257), (1, 1 << 20, 257));
        assert_eq!(map(&[(512, 1 << 20)], 256), (0, 0, 0));
        assert_eq!(map(&[(4096, 1 << 20)], 256), (1, 1 << 20, 256));
        assert_eq!(map(&[(4096, 8192), (0x10_0000, 8192)], 3), (1, 8192, 2));
        assert_eq!(map(&[(u64::MAX - 1, 2)], 3).0, 0, "the end of the address space");
    }
}
