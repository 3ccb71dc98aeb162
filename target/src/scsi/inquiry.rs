//! Standard INQUIRY data. (SPC-4 "INQUIRY".)

use super::big_endian::put;
use super::medium::Medium;
use super::ports::TargetPorts;

/// Bytes of standard INQUIRY data.
pub const INQUIRY_LEN: usize = 96;

/// T10 VENDOR IDENTIFICATION, padded.
pub(super) const VENDOR: [u8; 8] = *b"INTACT  ";
const PRODUCT: [u8; 16] = *b"Volume          ";

/// PERIPHERAL QUALIFIER 011b and DEVICE TYPE 1Fh: there is no unit.
pub(super) const NO_UNIT: u8 = 0x7F;
/// A direct access block device.
pub(super) const DISK: u8 = 0x00;
/// A well known logical unit.
pub(super) const WELL_KNOWN: u8 = 0x1E;

/// VERSION: SPC-4.
const SPC_4: u8 = 0x06;
/// HISUP: numbers of units are hierarchical; RESPONSE DATA FORMAT 2.
const HISUP_FORMAT_2: u8 = 1 << 4 | 2;
/// TPGS 01b: the state of target port groups can be asked for, and not set.
const IMPLICIT_GROUPS: u8 = 0b01 << 4;
const PROTECT: u8 = 1 << 0;
const MULTIPLE_PORTS: u8 = 1 << 4;
/// CMDQUE: full task management.
const COMMAND_QUEUING: u8 = 1 << 1;

/// VERSION DESCRIPTORs: SAM-5, iSCSI, SPC-4, SBC-3, none of a certain revision.
const STANDARDS: [u16; 4] = [0x00A0, 0x0960, 0x0460, 0x04C0];

/// The data of a disk.
#[must_use]
pub fn disk(medium: &Medium, ports: &TargetPorts) -> [u8; INQUIRY_LEN] {
    let mut data = common(DISK);
    data[5] = IMPLICIT_GROUPS | if medium.protection().is_some() { PROTECT } else { 0 };
    data[6] = if ports.ports.len() > 1 { MULTIPLE_PORTS } else { 0 };
    data
}

/// The data of the REPORT LUNS well known logical unit.
#[must_use]
pub fn well_known() -> [u8; INQUIRY_LEN] {
    common(WELL_KNOWN)
}

/// The data for a number that has no unit.
#[must_use]
pub fn no_unit() -> [u8; INQUIRY_LEN] {
    common(NO_UNIT)
}

fn common(peripheral: u8) -> [u8; INQUIRY_LEN] {
    let mut data = [0; INQUIRY_LEN];
    let additional = u8::try_from(INQUIRY_LEN - 5).expect("the data are short");
    put(&mut data, 0, &[peripheral, 0, SPC_4, HISUP_FORMAT_2, additional, 0, 0, COMMAND_QUEUING]);
    put(&mut data, 8, &VENDOR);
    put(&mut data, 16, &PRODUCT);
    put(&mut data, 32, &revision());
    for (at, standard) in STANDARDS.iter().enumerate() {
        put(&mut data, 58 + at * 2, &standard.to_be_bytes());
    }
    data
}

/// PRODUCT REVISION LEVEL: the first characters of our version.
fn revision() -> [u8; 4] {
    let mut revision = [b' '; 4];
    revision.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()).for_each(|(to, from)| *to = from);
    revision
}

#[cfg(test)]
mod tests {
    use t10pi::{Format, Guard, PiType};

    use super::*;
    use crate::scsi::ports::TargetPort;

    fn ports(count: u16) -> TargetPorts {
        let port = |relative| TargetPort { relative, portal_group: relative };
        TargetPorts { name: "iqn.x:t".to_owned(), ports: (1..=count).map(port).collect() }
    }

    #[test]
    fn a_disk_says_what_it_is() {
        let plain = disk(&Medium::new(8, 512, None).unwrap(), &ports(1));
        assert_eq!(plain[..8], [0x00, 0, 6, 0x12, 91, 0x10, 0, 0x02]);
        assert_eq!(plain[8..32], *b"INTACT  Volume          ");
        assert!(plain[32..36].iter().all(|c| c.is_ascii_graphic() || *c == b' '));
        assert_eq!(plain[58..68], [0x00, 0xA0, 0x09, 0x60, 0x04, 0x60, 0x04, 0xC0, 0, 0]);
        let format = Format::new(Guard::Crc16, 512, 8).unwrap();
        let protected = disk(&Medium::new(8, 512, Some((format, PiType::Type1))).unwrap(), &ports(2));
        assert_eq!(protected[5..8], [0x11, 0x10, 0x02]);
    }

    #[test]
    fn what_is_no_disk_says_so() {
        assert_eq!(no_unit()[0], 0x7F);
        assert_eq!(well_known()[0], 0x1E);
        assert_eq!(no_unit()[1..], well_known()[1..]);
    }
}
