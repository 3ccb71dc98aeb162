//! Vital product data. (SPC-4 and SBC-4 "Vital product data parameters".)
//!
//! No IEEE company identifier is ours: what names a unit is locally assigned (NAA 3h), the UUID itself, and vendor and
//! UUID as text.

use t10pi::PiType;
use uuid::Uuid;

use super::big_endian::put;
use super::inquiry::{DISK, VENDOR, WELL_KNOWN};
use super::lun::Limits;
use super::medium::Medium;
use super::nexus::{PROTOCOL_ISCSI, padded};
use super::ports::{GROUP, TargetPort, TargetPorts};
use crate::block::Identity;

/// Pages of a disk, rising.
const DISK_PAGES: [u8; 7] =
    [SUPPORTED, SERIAL, IDENTIFICATION, EXTENDED, LIMITS, CHARACTERISTICS, PROVISIONING];
const SUPPORTED: u8 = 0x00;
const SERIAL: u8 = 0x80;
const IDENTIFICATION: u8 = 0x83;
const EXTENDED: u8 = 0x86;
const LIMITS: u8 = 0xB0;
const CHARACTERISTICS: u8 = 0xB1;
const PROVISIONING: u8 = 0xB2;

/// Bytes of the pages whose length the standard fixes at this, without the header.
const LONG: usize = 60;

/// What the pages are about.
#[derive(Clone, Copy, Debug)]
pub struct Described<'a> {
    /// The volume.
    pub medium: &'a Medium,
    /// Its names.
    pub identity: &'a Identity,
    /// The target.
    pub ports: &'a TargetPorts,
    /// The port that is asked.
    pub port: &'a TargetPort,
    /// What commands may be at most.
    pub limits: &'a Limits,
}

impl Described<'_> {
    /// A page, untruncated; `None` for one that there is not.
    #[must_use]
    pub fn page(&self, page: u8) -> Option<Vec<u8>> {
        let body = match page {
            SUPPORTED => DISK_PAGES.to_vec(),
            SERIAL => self.identity.serial().as_bytes().to_vec(),
            IDENTIFICATION => {
                let mut body = self.unit_designators();
                body.extend(port_designators(self.ports, self.port));
                body
            }
            EXTENDED => self.extended().to_vec(),
            LIMITS => self.block_limits().to_vec(),
            CHARACTERISTICS => {
                let mut body = [0; LONG];
                // MEDIUM ROTATION RATE: none.
                put(&mut body, 0, &[0, 1]);
                body.to_vec()
            }
            PROVISIONING => provisioning().to_vec(),
            _ => return None,
        };
        Some(with_header(DISK, page, &body))
    }

    fn unit_designators(&self) -> Vec<u8> {
        let uuid = self.identity.uuid();
        let text = uuid.hyphenated().to_string();
        let vendor = [VENDOR.as_slice(), text.as_bytes()].concat();
        let mut whole = vec![0x10, 0];
        whole.extend(uuid.as_bytes());
        [
            designator(BINARY, UNIT, 0x3, &naa(uuid)),
            designator(ASCII, UNIT, 0x1, &vendor),
            designator(BINARY, UNIT, 0xA, &whole),
        ]
        .concat()
    }

    /// Extended INQUIRY data: what is checked of protection information, and when.
    fn extended(&self) -> [u8; LONG] {
        const CHECKS: u8 = 0b111;
        const SIMPLE_TASKS: u8 = 1 << 0;
        const VOLATILE_CACHE: u8 = 1 << 0;
        /// NO_PI_CHK: the escape value counts in what hosts send, too.
        const ESCAPE_FROM_HOST: u8 = 1 << 5;
        let mut body = [0; LONG];
        if let Some(pi_type) = self.medium.pi_type() {
            // SPT: the one type that the unit has.
            let supported = match pi_type {
                PiType::Type1 => 0b000,
                PiType::Type2 => 0b010,
                PiType::Type3 => 0b100,
            };
            body[0] = supported << 3 | CHECKS;
            body[3] = ESCAPE_FROM_HOST;
        }
        body[1] = SIMPLE_TASKS;
        body[2] = if self.medium.has_write_cache() { VOLATILE_CACHE } else { 0 };
        body
    }

    fn block_limits(&self) -> [u8; LONG] {
        /// WSNZ: WRITE SAME names a number of blocks.
        const NO_ZERO_LENGTH: u8 = 1 << 0;
        let limits = self.limits;
        let mut body = [0; LONG];
        body[0] = NO_ZERO_LENGTH;
        body[1] = limits.compare_blocks;
        put(&mut body, 4, &limits.transfer_blocks.to_be_bytes());
        put(&mut body, 16, &limits.unmap_blocks.to_be_bytes());
        put(&mut body, 20, &u32::from(limits.unmap_ranges).to_be_bytes());
        put(&mut body, 24, &1_u32.to_be_bytes());
        put(&mut body, 32, &u64::from(limits.same_blocks).to_be_bytes());
        body
    }
}

/// A page of the REPORT LUNS well known logical unit; `None` for one that there is not.
#[must_use]
pub fn well_known(page: u8, ports: &TargetPorts, port: &TargetPort) -> Option<Vec<u8>> {
    let body = match page {
        SUPPORTED => vec![SUPPORTED, IDENTIFICATION],
        IDENTIFICATION => port_designators(ports, port),
        _ => return None,
    };
    Some(with_header(WELL_KNOWN, page, &body))
}

fn port_designators(ports: &TargetPorts, port: &TargetPort) -> Vec<u8> {
    let [relative_high, relative_low] = port.relative.to_be_bytes();
    let [group_high, group_low] = GROUP.to_be_bytes();
    let port_name = padded(ports.port_name(port).as_bytes(), 0);
    let target_name = padded(ports.name.as_bytes(), 0);
    [
        designator(BINARY, PORT, 0x4, &[0, 0, relative_high, relative_low]),
        designator(BINARY, PORT, 0x5, &[0, 0, group_high, group_low]),
        designator(UTF_8, PORT, 0x8, &port_name),
        designator(UTF_8, TARGET, 0x8, &target_name),
    ]
    .concat()
}

/// Logical block provisioning: thin, by UNMAP and WRITE SAME; what was given back reads as zeroes.
fn provisioning() -> [u8; 4] {
    const UNMAP: u8 = 1 << 7;
    const WRITE_SAME_16: u8 = 1 << 6;
    const WRITE_SAME_10: u8 = 1 << 5;
    const READS_ZERO: u8 = 0b001 << 2;
    const THIN: u8 = 2;
    [0, UNMAP | WRITE_SAME_16 | WRITE_SAME_10 | READS_ZERO, THIN, 0]
}

const BINARY: u8 = 1;
const ASCII: u8 = 2;
const UTF_8: u8 = 3;

/// ASSOCIATION: the logical unit.
const UNIT: u8 = 0 << 4;
/// The target port; PIV: the protocol is named.
const PORT: u8 = 1 << 7 | 1 << 4;
/// The target device; the same.
const TARGET: u8 = 1 << 7 | 2 << 4;

fn designator(code_set: u8, association: u8, kind: u8, value: &[u8]) -> Vec<u8> {
    let protocol = if association == UNIT { 0 } else { PROTOCOL_ISCSI << 4 };
    let len = u8::try_from(value.len()).expect("names are short");
    [&[protocol | code_set, association | kind, 0, len], value].concat()
}

/// NAA 3h, locally assigned: 60 bits of the UUID, those that are random or a hash in all its versions.
fn naa(uuid: Uuid) -> [u8; 8] {
    const LOCALLY_ASSIGNED: u64 = 3 << 60;
    let (_, low) = uuid.as_u64_pair();
    (LOCALLY_ASSIGNED | low & !(0xF << 60)).to_be_bytes()
}

fn with_header(peripheral: u8, page: u8, body: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(body.len()).expect("pages are short").to_be_bytes();
    [&[peripheral, page, high, low], body].concat()
}

#[cfg(test)]
mod tests {
    use t10pi::{Format, Guard};

    use super::*;

    const UUID: Uuid = Uuid::from_u128(0xb59b_c556_3668_5893_b59f_5e18_7925_67a5);

    fn page(medium: &Medium, page: u8) -> Option<Vec<u8>> {
        let port = TargetPort { relative: 1, portal_group: 1 };
        let ports = TargetPorts { name: "iqn.x:t".to_owned(), ports: vec![port] };
        let identity = Identity::new("iqn.x:t", "disk0", Some(UUID), Some("SN-1"));
        let limits = Limits::new(medium.block_size(), 1 << 20);
        Described { medium, identity: &identity, ports: &ports, port: &port, limits: &limits }.page(page)
    }

    fn plain() -> Medium {
        Medium::new(8, 4096, None).unwrap()
    }

    fn protected(pi_type: PiType) -> Medium {
        let format = Format::new(Guard::Crc16, 4096, 8).unwrap();
        Medium::new(8, 4096, Some((format, pi_type))).unwrap()
    }

    #[test]
    fn the_pages_that_are_listed_are_those_that_there_are() {
        let list = page(&plain(), 0x00).unwrap();
        assert_eq!(list, [0, 0, 0, 7, 0x00, 0x80, 0x83, 0x86, 0xB0, 0xB1, 0xB2]);
        for code in 0..=255 {
            let there = page(&plain(), code);
            assert_eq!(there.is_some(), list[4..].contains(&code), "{code:#x}");
            if let Some(there) = there {
                assert_eq!(there[..2], [0, code]);
                assert_eq!(usize::from(u16::from_be_bytes([there[2], there[3]])), there.len() - 4);
            }
        }
        assert_eq!(page(&plain(), 0x80).unwrap(), *b"\x00\x80\x00\x04SN-1");
    }

    #[test]
    fn a_unit_is_named_by_its_uuid_and_a_port_by_the_targets_name() {
        let data = page(&plain(), 0x83).unwrap();
        let mut rest = &data[4..];
        let mut found = Vec::new();
        while let [codes, kind, 0, len, tail @ ..] = rest {
            let (value, tail) = tail.split_at(usize::from(*len));
            found.push((*codes, *kind, value.to_vec()));
            rest = tail;
        }
        let uuid = [&[0x10, 0], UUID.as_bytes().as_slice()].concat();
        let expected = [
            (0x01, 0x03, vec![0x35, 0x9F, 0x5E, 0x18, 0x79, 0x25, 0x67, 0xA5]),
            (0x02, 0x01, b"INTACT  b59bc556-3668-5893-b59f-5e18792567a5".to_vec()),
            (0x01, 0x0A, uuid),
            (0x51, 0x94, vec![0, 0, 0, 1]),
            (0x51, 0x95, vec![0, 0, 0, 1]),
            (0x53, 0x98, b"iqn.x:t,t,0x0001\0\0\0\0".to_vec()),
            (0x53, 0xA8, b"iqn.x:t\0".to_vec()),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn what_is_checked_of_protection_information_is_told() {
        assert_eq!(page(&plain(), 0x86).unwrap()[..8], [0, 0x86, 0, 60, 0, 1, 0, 0]);
        assert_eq!(page(&plain().with_write_cache(), 0x86).unwrap()[6], 1);
        for (pi_type, byte) in [(PiType::Type1, 0x07), (PiType::Type2, 0x17), (PiType::Type3, 0x27)] {
            let data = page(&protected(pi_type), 0x86).unwrap();
            assert_eq!((data.len(), data[4], data[7]), (64, byte, 0x20));
            // It is the code that the library's own reader understands as this type alone.
            let types = t10pi::scsi::SupportedTypes::new(true, byte >> 3 & 7);
            let formatted = match pi_type {
                PiType::Type1 => t10pi::scsi::format_unit(&types, 2, Some(0)),
                PiType::Type2 => t10pi::scsi::format_unit(&types, 3, Some(0)),
                PiType::Type3 => t10pi::scsi::format_unit(&types, 3, Some(1)),
            };
            assert_eq!(formatted, Ok(Some(pi_type)));
        }
    }

    #[test]
    fn limits_are_those_that_commands_are_held_to() {
        let data = page(&plain(), 0xB0).unwrap();
        assert_eq!(data.len(), 64);
        assert_eq!((data[4], data[5]), (1, 128));
        assert_eq!(data[8..12], [0, 0, 1, 0], "1 MiB are 256 blocks");
        assert_eq!((&data[20..24], &data[24..28]), ([0xFF; 4].as_slice(), [0, 0, 1, 0].as_slice()));
        assert_eq!(data[36..44], [0, 0, 0, 0, 0, 0x80, 0, 0]);
        assert_eq!(page(&plain(), 0xB1).unwrap()[..6], [0, 0xB1, 0, 60, 0, 1]);
        assert_eq!(page(&plain(), 0xB2).unwrap(), [0, 0xB2, 0, 4, 0, 0xE4, 2, 0]);
    }

    #[test]
    fn the_well_known_unit_has_the_ports_names_alone() {
        let port = TargetPort { relative: 1, portal_group: 1 };
        let ports = TargetPorts { name: "iqn.x:t".to_owned(), ports: vec![port] };
        assert_eq!(well_known(0x00, &ports, &port).unwrap(), [0x1E, 0, 0, 2, 0, 0x83]);
        let names = well_known(0x83, &ports, &port).unwrap();
        assert!(names.ends_with(b"iqn.x:t\0") && names[5] == 0x94);
        assert_eq!(well_known(0xB0, &ports, &port), None);
    }
}
