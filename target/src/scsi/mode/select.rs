//! MODE SELECT: the list of parameters. (SPC-4 "MODE SELECT" and "Mode parameters".)

use super::{
    ALL_PAGES, CACHING, CONTROL, D_SENSE, DPICZ, ModePages, PAGES, SWP, WCE, changeable, short_blocks,
};
use crate::scsi::big_endian::{u16_at, u24_at, u32_at, u64_at};
use crate::scsi::cdb::ModeForm;
use crate::scsi::medium::Medium;
use crate::scsi::sense::{Sense, code};

/// PS and SPF of a page's first byte.
const PAGE_FLAGS: u8 = 0xC0;
const LONG_LBA: u8 = 1 << 0;

impl ModePages {
    /// The values after a MODE SELECT with this list of parameters. Empty, it changes nothing.
    ///
    /// # Errors
    /// PARAMETER LIST LENGTH ERROR for a list that is cut short; INVALID FIELD IN PARAMETER LIST, with a pointer, for a page
    /// that there is not and for a value that can't be.
    pub fn select(&self, form: ModeForm, list: &[u8], medium: &Medium) -> Result<Self, Sense> {
        let mut values = *self;
        if list.is_empty() {
            return Ok(values);
        }
        let mut at = header(form, list, medium)?;
        while at < list.len() {
            at += values.select_page(list, at, medium)?;
        }
        Ok(values)
    }

    /// Takes over the page at `at`; returns its length.
    fn select_page(&mut self, list: &[u8], at: usize, medium: &Medium) -> Result<usize, Sense> {
        let short = Sense::new(code::PARAMETER_LIST_LENGTH_ERROR);
        let head: &[u8; 2] = list[at..].first_chunk().ok_or(short)?;
        let wrong = |offset: usize, bit| Sense::in_list(u16::try_from(at + offset).unwrap_or(u16::MAX), bit);
        let [page_code, len] = *head;
        if page_code & PAGE_FLAGS != 0 {
            return Err(wrong(0, u8::try_from(page_code.ilog2()).ok()));
        }
        if page_code == ALL_PAGES || !PAGES.contains(&page_code) {
            return Err(wrong(0, Some(5)));
        }
        let current = self.page(page_code, medium);
        let mask = changeable(page_code, medium);
        if current.as_bytes()[1] != len {
            return Err(wrong(1, None));
        }
        let page = list.get(at..at + current.len).ok_or(short)?;
        for (offset, byte) in page.iter().enumerate().skip(2) {
            let differing = (byte ^ current.bytes[offset]) & !mask.bytes[offset];
            if let Some(bit) = differing.checked_ilog2() {
                return Err(wrong(offset, u8::try_from(bit).ok()));
            }
        }
        match page_code {
            CACHING => self.write_cache = page[2] & WCE != 0,
            CONTROL => {
                self.descriptor_sense = page[2] & D_SENSE != 0;
                self.no_check_without_protect = page[2] & DPICZ != 0;
                self.write_protect = page[4] & SWP != 0;
            }
            _ => {}
        }
        Ok(current.len)
    }
}

/// Checks header and block descriptor; returns where the pages start. MODE DATA LENGTH and DEVICE-SPECIFIC PARAMETER mean
/// nothing here: hosts send back what they were given.
fn header(form: ModeForm, list: &[u8], medium: &Medium) -> Result<usize, Sense> {
    let short = Sense::new(code::PARAMETER_LIST_LENGTH_ERROR);
    let (len, medium_type_at, descriptor_at) = match form {
        ModeForm::Six => (4, 1, 3),
        ModeForm::Ten => (8, 2, 6),
    };
    let head = list.get(..len).ok_or(short)?;
    if head[usize::from(medium_type_at)] != 0 {
        return Err(Sense::in_list(medium_type_at, None));
    }
    let (long, descriptor_len) = match form {
        ModeForm::Six => (false, usize::from(head[3])),
        ModeForm::Ten => (head[4] & LONG_LBA != 0, usize::from(u16_at(head, 6))),
    };
    let whole = if long { 16 } else { 8 };
    if descriptor_len == 0 {
        return Ok(len);
    }
    if descriptor_len != whole {
        return Err(Sense::in_list(descriptor_at, None));
    }
    let descriptor = list.get(len..len + whole).ok_or(short)?;
    let (blocks_fit, size, size_at) = if long {
        let blocks = u64_at(descriptor, 0);
        (matches!(blocks, 0 | u64::MAX) || blocks == medium.blocks(), u32_at(descriptor, 12), len + 12)
    } else {
        let blocks = u32_at(descriptor, 0);
        (matches!(blocks, 0 | u32::MAX) || blocks == short_blocks(medium), u24_at(descriptor, 5), len + 5)
    };
    let wrong = |at: usize| Sense::in_list(u16::try_from(at).unwrap_or(u16::MAX), None);
    if !blocks_fit {
        return Err(wrong(len));
    }
    if size != medium.block_size() {
        return Err(wrong(size_at));
    }
    Ok(len + whole)
}
