use t10pi::{Format, Guard, PiType};

use super::*;

fn cached() -> Medium {
    Medium::new(0x0102, 512, None).unwrap().with_write_cache()
}

fn protected() -> Medium {
    let format = Format::new(Guard::Crc16, 512, 8).unwrap();
    Medium::new(8, 512, Some((format, PiType::Type1))).unwrap()
}

fn ask(form: ModeForm, page: u8, control: PageControl) -> ModeSense {
    ModeSense { form, block_descriptor: false, long_lba: false, control, page, subpage: 0, allocation: 255 }
}

#[test]
fn the_caching_page_tells_whether_there_is_a_cache() {
    let ask = ask(ModeForm::Six, CACHING, PageControl::Current);
    let with = ModePages::new(&cached()).sense(&ask, &cached()).unwrap();
    assert_eq!(with[..8], [23, 0, 0x10, 0, 0x08, 0x12, 0x04, 0]);
    assert_eq!(with.len(), 24);
    let medium = Medium::new(8, 512, None).unwrap();
    assert_eq!(ModePages::new(&medium).sense(&ask, &medium).unwrap()[6], 0);
}

#[test]
fn all_pages_come_in_rising_order_behind_their_header() {
    let all = ModeSense { block_descriptor: true, ..ask(ModeForm::Ten, ALL_PAGES, PageControl::Current) };
    let medium = cached();
    let data = ModePages::new(&medium).sense(&all, &medium).unwrap();
    assert_eq!(data[..8], [0, 74, 0, 0x10, 0, 0, 0, 8]);
    assert_eq!(data[8..16], [0, 0, 1, 2, 0, 0, 2, 0]);
    assert_eq!((data[16], data[32], data[52], data[64], data.len()), (0x02, 0x08, 0x0A, 0x1C, 76));
    assert_eq!(data[52..64], [0x0A, 0x0A, 0, 0x10, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(data[64..76], [0x1C, 0x0A, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let long = ModeSense { long_lba: true, ..all };
    let data = ModePages::new(&medium).sense(&long, &medium).unwrap();
    assert_eq!(data[..8], [0, 82, 0, 0x10, 1, 0, 0, 16]);
    assert_eq!(data[8..24], [0, 0, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0, 0, 2, 0]);
    // The short form has no long descriptor.
    let six = ModePages::new(&medium).sense(&ModeSense { form: ModeForm::Six, ..long }, &medium).unwrap();
    assert_eq!((six[3], six.len()), (8, 72));
}

#[test]
fn pages_that_there_are_not_and_saved_values_are_refused() {
    let pages = ModePages::new(&cached());
    let sense = |ask: &ModeSense| pages.sense(ask, &cached());
    for page in (0..=0x3F).filter(|page| !PAGES.contains(page) && *page != ALL_PAGES) {
        let refused = Err(Sense::in_cdb(2, Some(5)));
        assert_eq!(sense(&ask(ModeForm::Six, page, PageControl::Current)), refused, "{page:#x}");
    }
    let subpage = ModeSense { subpage: 1, ..ask(ModeForm::Six, CONTROL, PageControl::Current) };
    assert_eq!(sense(&subpage), Err(Sense::in_cdb(3, None)));
    assert!(sense(&ModeSense { subpage: ALL_SUBPAGES, ..subpage }).is_ok());
    let saved = Err(Sense::new(code::SAVING_PARAMETERS_NOT_SUPPORTED));
    assert_eq!(sense(&ask(ModeForm::Six, CONTROL, PageControl::Saved)), saved);
}

#[test]
fn what_protection_and_size_ask_for_is_in_the_control_page() {
    let medium = protected();
    let ask = ask(ModeForm::Six, CONTROL, PageControl::Default);
    let data = ModePages::new(&medium).sense(&ask, &medium).unwrap();
    assert_eq!(data[4..10], [0x0A, 0x0A, 0, 0x10, 0, ATO]);
    let large = Medium::new(1 << 33, 512, None).unwrap();
    let pages = ModePages::new(&large);
    assert_eq!(pages.sense(&ask, &large).unwrap()[6], D_SENSE);
    assert_eq!(pages.sense_format(), SenseFormat::Descriptor);
    assert_eq!(ModePages::new(&medium).sense_format(), SenseFormat::Fixed);
    let read_only = medium.with_read_only();
    assert_eq!(ModePages::new(&read_only).sense(&ask, &read_only).unwrap()[2], 0x90);
}

#[test]
fn a_page_that_was_read_can_be_written_back_changed() {
    let medium = cached();
    let pages = ModePages::new(&medium);
    for form in [ModeForm::Six, ModeForm::Ten] {
        let ask = ModeSense { block_descriptor: true, ..ask(form, ALL_PAGES, PageControl::Current) };
        let data = pages.sense(&ask, &medium).unwrap();
        assert_eq!(pages.select(form, &data, &medium), Ok(pages));
    }
    // What Linux sends to switch the cache off.
    let mut list = vec![0; 4];
    list.extend(pages.page(CACHING, &medium).as_bytes());
    list[6] &= !WCE;
    let changed = pages.select(ModeForm::Six, &list, &medium).unwrap();
    assert!(changed.write_through(&medium) && !pages.write_through(&medium));
    let mut list = vec![0; 8];
    list.extend(pages.page(CONTROL, &medium).as_bytes());
    (list[10], list[12]) = (D_SENSE, SWP);
    let changed = pages.select(ModeForm::Ten, &list, &medium).unwrap();
    assert!(changed.write_protected() && changed.sense_format() == SenseFormat::Descriptor);
    assert_eq!(pages.select(ModeForm::Six, &[], &medium), Ok(pages));
}

#[test]
fn exactly_the_bits_that_are_said_to_be_changeable_can_be_changed() {
    for medium in [cached(), protected(), Medium::new(8, 4096, None).unwrap()] {
        let pages = ModePages::new(&medium);
        for page_code in PAGES {
            let (page, mask) = (pages.page(page_code, &medium), changeable(page_code, &medium));
            for at in 2..page.len {
                for bit in 0..8 {
                    let mut list = [&[0; 4], page.as_bytes()].concat();
                    list[4 + at] ^= 1 << bit;
                    let result = pages.select(ModeForm::Six, &list, &medium);
                    if mask.bytes[at] & 1 << bit == 0 {
                        let at = u16::try_from(4 + at).unwrap();
                        assert_eq!(result, Err(Sense::in_list(at, Some(bit))), "{page_code:#x}");
                    } else {
                        assert_ne!(result, Ok(pages), "{page_code:#x} byte {at} bit {bit} has an effect");
                        assert!(result.is_ok());
                    }
                }
            }
        }
    }
}

#[test]
fn lists_that_are_cut_short_or_wrong_are_refused_where_they_are_wrong() {
    let medium = cached();
    let pages = ModePages::new(&medium);
    let ask = ModeSense { block_descriptor: true, ..ask(ModeForm::Six, ALL_PAGES, PageControl::Current) };
    let whole = pages.sense(&ask, &medium).unwrap();
    let short = Err(Sense::new(code::PARAMETER_LIST_LENGTH_ERROR));
    let ends = [12, 28, 48, 60, 72];
    for len in 1..whole.len() {
        let expected = if ends.contains(&len) { Ok(pages) } else { short };
        assert_eq!(pages.select(ModeForm::Six, &whole[..len], &medium), expected, "{len}");
    }
    let wrong = |at: usize, value: u8| {
        let mut list = whole.clone();
        list[at] = value;
        pages.select(ModeForm::Six, &list, &medium).unwrap_err()
    };
    assert_eq!(wrong(1, 1), Sense::in_list(1, None), "medium type");
    assert_eq!(wrong(3, 9), Sense::in_list(3, None), "length of the block descriptor");
    assert_eq!(wrong(7, 9), Sense::in_list(4, None), "number of blocks");
    assert_eq!(wrong(10, 4), Sense::in_list(9, None), "size of a block");
    assert_eq!(wrong(12, 0x82), Sense::in_list(12, Some(7)), "PS");
    assert_eq!(wrong(12, 0x3F), Sense::in_list(12, Some(5)), "no page");
    assert_eq!(wrong(13, 13), Sense::in_list(13, None), "length of a page");
    // Nothing of a list that is refused takes effect: the values are returned, not changed in place.
    let mut list = vec![0; 4];
    list.extend(pages.page(CACHING, &medium).as_bytes());
    list[6] &= !WCE;
    list.push(0x3E);
    assert_eq!(pages.select(ModeForm::Six, &list, &medium), short);
}
