//! Logical unit numbers: the eight bytes in which a transport carries one, and REPORT LUNS. (SAM-5 "Logical unit
//! number", SPC-4 "REPORT LUNS".)

/// What a logical unit number addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LunAddress {
    /// A unit by number, 0 to [`LUN_MAX`].
    Unit(u16),
    /// The REPORT LUNS well known logical unit.
    ReportLuns,
}

/// The highest number: that of the flat space.
pub const LUN_MAX: u16 = 0x3FFF;

/// SELECT REPORT
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SelectReport {
    /// 00h: units, without the well known.
    Units,
    /// 01h: the well known ones.
    WellKnown,
    /// 02h: all.
    All,
}

const FLAT_SPACE: u8 = 0b01;
const REPORT_LUNS: [u8; 8] = [0xC1, 0x01, 0, 0, 0, 0, 0, 0];

impl LunAddress {
    /// Reads eight bytes: a single level, by peripheral device or flat space addressing, or well known. `None` for any
    /// other, which has no unit here.
    #[must_use]
    pub fn parse(bytes: [u8; 8]) -> Option<Self> {
        if bytes == REPORT_LUNS {
            return Some(Self::ReportLuns);
        }
        let [high, low, rest @ ..] = bytes;
        if rest != [0; 6] {
            return None;
        }
        match high >> 6 {
            0 if high == 0 => Some(Self::Unit(u16::from(low))),
            FLAT_SPACE => Some(Self::Unit(u16::from_be_bytes([high, low]) & LUN_MAX)),
            _ => None,
        }
    }

    /// The eight bytes: peripheral device addressing up to 255, flat space addressing above.
    ///
    /// # Panics
    /// For a number above [`LUN_MAX`].
    #[must_use]
    pub fn emit(self) -> [u8; 8] {
        let Self::Unit(number) = self else { return REPORT_LUNS };
        assert!(number <= LUN_MAX, "numbers of the flat space have 14 bits");
        let method = if number > 0xFF { u16::from(FLAT_SPACE) << 14 } else { 0 };
        let [high, low] = (method | number).to_be_bytes();
        [high, low, 0, 0, 0, 0, 0, 0]
    }
}

impl SelectReport {
    pub(super) const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Units),
            1 => Some(Self::WellKnown),
            2 => Some(Self::All),
            _ => None,
        }
    }

    /// The parameter data of REPORT LUNS, untruncated, of units with these numbers.
    #[must_use]
    pub fn answer(self, numbers: impl Iterator<Item = u16>) -> Vec<u8> {
        let mut data = vec![0; 8];
        if self != Self::Units {
            data.extend(REPORT_LUNS);
        }
        if self != Self::WellKnown {
            data.extend(numbers.flat_map(|number| LunAddress::Unit(number).emit()));
        }
        let len = u32::try_from(data.len() - 8).expect("numbers have 14 bits");
        data[..4].copy_from_slice(&len.to_be_bytes());
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_in_both_addressing_methods() {
        let unit = |high, low| LunAddress::parse([high, low, 0, 0, 0, 0, 0, 0]);
        assert_eq!(unit(0, 7), Some(LunAddress::Unit(7)));
        assert_eq!(unit(0x40, 7), Some(LunAddress::Unit(7)));
        assert_eq!(unit(0x7F, 0xFF), Some(LunAddress::Unit(LUN_MAX)));
        // A bus, logical unit addressing, another well known unit.
        assert_eq!((unit(1, 0), unit(0x80, 0), unit(0xC1, 2)), (None, None, None));
        assert_eq!(unit(0xC1, 1), Some(LunAddress::ReportLuns));
        assert_eq!(LunAddress::parse([0, 0, 0, 1, 0, 0, 0, 0]), None);
        for number in [0, 1, 255, 256, LUN_MAX] {
            let unit = LunAddress::Unit(number);
            assert_eq!(LunAddress::parse(unit.emit()), Some(unit));
        }
        assert_eq!(LunAddress::Unit(256).emit()[..2], [0x41, 0]);
    }

    #[test]
    fn a_report_lists_what_is_selected() {
        let numbers = [0, 300];
        let units = [[0, 0, 0, 0, 0, 0, 0, 0], [0x41, 0x2C, 0, 0, 0, 0, 0, 0]].concat();
        let data = SelectReport::Units.answer(numbers.into_iter());
        assert_eq!(data, [&[0, 0, 0, 16, 0, 0, 0, 0], units.as_slice()].concat());
        let data = SelectReport::WellKnown.answer(numbers.into_iter());
        assert_eq!(data, [[0, 0, 0, 8, 0, 0, 0, 0], REPORT_LUNS].concat());
        let data = SelectReport::All.answer(numbers.into_iter());
        assert_eq!(data, [&[0, 0, 0, 24, 0, 0, 0, 0], REPORT_LUNS.as_slice(), &units].concat());
        assert_eq!(SelectReport::from_code(3), None);
    }
}
