//! Mode pages: their values, and MODE SENSE. (SPC-4 "MODE SENSE", and SPC-4 and SBC-4 "Mode parameters".)
//!
//! All nexuses share them; none can be saved. What can be changed is what the unit obeys: whether its cache is used, the
//! format of sense data, write protection, and whether reads without protection information are checked.

mod select;
#[cfg(test)]
mod tests;

use super::cdb::{ModeForm, ModeSense, PageControl};
use super::medium::Medium;
use super::sense::{Sense, SenseFormat, code};

/// The values of a unit's mode pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModePages {
    /// WCE: writes may stay in the cache.
    write_cache: bool,
    /// D_SENSE
    descriptor_sense: bool,
    /// SWP
    write_protect: bool,
    /// DPICZ
    no_check_without_protect: bool,
}

/// A mode page, with its code and length.
struct Page {
    bytes: [u8; PAGE_MAX],
    len: usize,
}

/// Bytes of the longest page.
const PAGE_MAX: usize = 20;
/// Page codes, rising.
const PAGES: [u8; 4] = [DISCONNECT, CACHING, CONTROL, EXCEPTIONS];
const DISCONNECT: u8 = 0x02;
const CACHING: u8 = 0x08;
const CONTROL: u8 = 0x0A;
const EXCEPTIONS: u8 = 0x1C;
const ALL_PAGES: u8 = 0x3F;
const ALL_SUBPAGES: u8 = 0xFF;

/// Caching page, byte 2.
const WCE: u8 = 1 << 2;
/// Control page, byte 2.
const DPICZ: u8 = 1 << 3;
const D_SENSE: u8 = 1 << 2;
/// Control page, byte 3: commands may overtake each other.
const UNRESTRICTED_REORDERING: u8 = 1 << 4;
/// Control page, byte 4.
const SWP: u8 = 1 << 3;
/// Control page, byte 5: the application tag is the application's.
const ATO: u8 = 1 << 7;
/// Informational exceptions page, byte 2: none are reported.
const DEXCPT: u8 = 1 << 3;

/// DEVICE-SPECIFIC PARAMETER
const WRITE_PROTECTED: u8 = 1 << 7;
const DPOFUA: u8 = 1 << 4;

impl ModePages {
    /// The default values.
    #[must_use]
    pub fn new(medium: &Medium) -> Self {
        Self {
            write_cache: medium.has_write_cache(),
            // Addresses above 32 bits have no room in sense data of the fixed format.
            descriptor_sense: medium.last_lba() > u64::from(u32::MAX),
            write_protect: false,
            no_check_without_protect: false,
        }
    }

    /// D_SENSE: the format of sense data.
    #[must_use]
    pub const fn sense_format(&self) -> SenseFormat {
        if self.descriptor_sense { SenseFormat::Descriptor } else { SenseFormat::Fixed }
    }

    /// Whether every write is to be durable before it completes: the medium has a cache, and its use was switched off.
    #[must_use]
    pub const fn write_through(&self, medium: &Medium) -> bool {
        medium.has_write_cache() && !self.write_cache
    }

    /// SWP: writes are refused.
    #[must_use]
    pub const fn write_protected(&self) -> bool {
        self.write_protect
    }

    /// DPICZ: a read without protection information is not checked.
    #[must_use]
    pub const fn no_check_without_protect(&self) -> bool {
        self.no_check_without_protect
    }

    /// The parameter data of MODE SENSE, untruncated.
    ///
    /// # Errors
    /// INVALID FIELD IN CDB for a page that there is not; SAVING PARAMETERS NOT SUPPORTED.
    pub fn sense(&self, command: &ModeSense, medium: &Medium) -> Result<Vec<u8>, Sense> {
        if command.control == PageControl::Saved {
            return Err(Sense::new(code::SAVING_PARAMETERS_NOT_SUPPORTED));
        }
        if !matches!(command.subpage, 0 | ALL_SUBPAGES) {
            return Err(Sense::in_cdb(3, None));
        }
        if command.page != ALL_PAGES && !PAGES.contains(&command.page) {
            return Err(Sense::in_cdb(2, Some(5)));
        }
        let mut body = Vec::new();
        let long = command.long_lba && command.form == ModeForm::Ten;
        if command.block_descriptor {
            body = block_descriptor(medium, long);
        }
        let descriptor_len = u8::try_from(body.len()).expect("a block descriptor is short");
        for code in
            PAGES.into_iter().filter(|code| matches!(command.page, ALL_PAGES) || *code == command.page)
        {
            let page = match command.control {
                PageControl::Changeable => changeable(code, medium),
                PageControl::Default => Self::new(medium).page(code, medium),
                PageControl::Current | PageControl::Saved => self.page(code, medium),
            };
            body.extend(page.as_bytes());
        }
        let parameter = DPOFUA | if medium.read_only() || self.write_protect { WRITE_PROTECTED } else { 0 };
        Ok(with_header(command.form, parameter, long && descriptor_len != 0, descriptor_len, &body))
    }

    /// A page as it is.
    fn page(&self, code: u8, medium: &Medium) -> Page {
        let bit = |set: bool, bit: u8| if set { bit } else { 0 };
        match code {
            DISCONNECT => Page::new(DISCONNECT, 16, &[]),
            CACHING => Page::new(CACHING, 20, &[(2, bit(self.write_cache, WCE))]),
            CONTROL => {
                let checks = bit(self.no_check_without_protect, DPICZ) | bit(self.descriptor_sense, D_SENSE);
                let owner = bit(medium.protection().is_some(), ATO);
                let fields = [
                    (2, checks),
                    (3, UNRESTRICTED_REORDERING),
                    (4, bit(self.write_protect, SWP)),
                    (5, owner),
                ];
                Page::new(CONTROL, 12, &fields)
            }
            _ => Page::new(EXCEPTIONS, 12, &[(2, DEXCPT)]),
        }
    }
}

/// A page with ones where a bit can be changed.
fn changeable(code: u8, medium: &Medium) -> Page {
    match code {
        DISCONNECT => Page::new(DISCONNECT, 16, &[]),
        CACHING => Page::new(CACHING, 20, &[(2, if medium.has_write_cache() { WCE } else { 0 })]),
        CONTROL => {
            let checks = D_SENSE | if medium.protection().is_some() { DPICZ } else { 0 };
            Page::new(CONTROL, 12, &[(2, checks), (4, SWP)])
        }
        _ => Page::new(EXCEPTIONS, 12, &[]),
    }
}

fn block_descriptor(medium: &Medium, long: bool) -> Vec<u8> {
    let size = medium.block_size().to_be_bytes();
    if long {
        [medium.blocks().to_be_bytes().as_slice(), &[0; 4], &size].concat()
    } else {
        // Three bytes of the size: blocks have at most 4096 bytes.
        [short_blocks(medium).to_be_bytes().as_slice(), &[0], &size[1..]].concat()
    }
}

/// NUMBER OF LOGICAL BLOCKS of a short descriptor: all ones where it has no room.
fn short_blocks(medium: &Medium) -> u32 {
    u32::try_from(medium.blocks()).unwrap_or(u32::MAX)
}

fn with_header(form: ModeForm, parameter: u8, long: bool, descriptor_len: u8, body: &[u8]) -> Vec<u8> {
    // MODE DATA LENGTH counts what follows it.
    let len = body.len();
    let header = match form {
        ModeForm::Six => {
            vec![u8::try_from(len + 3).expect("pages are short"), 0, parameter, descriptor_len]
        }
        ModeForm::Ten => {
            let [high, low] = u16::try_from(len + 6).expect("pages are short").to_be_bytes();
            vec![high, low, 0, parameter, u8::from(long), 0, 0, descriptor_len]
        }
    };
    [header.as_slice(), body].concat()
}

impl Page {
    fn new(code: u8, len: u8, fields: &[(usize, u8)]) -> Self {
        let mut bytes = [0; PAGE_MAX];
        (bytes[0], bytes[1]) = (code, len - 2);
        for (at, value) in fields {
            bytes[*at] = *value;
        }
        Self { bytes, len: usize::from(len) }
    }

    fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
