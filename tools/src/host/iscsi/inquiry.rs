//! What `intact-host iscsi inquiry` shows of a logical unit: standard data, vital product data and its capacity, for people
//! and as JSON. (SPC-4 "INQUIRY" and "Vital product data parameters", SBC-4.)
//!
//! Sans-IO. Everything a target says is looked at with its length; what is missing is left out.

use std::fmt::Write as _;

use serde::Serialize;
use uuid::Uuid;

use super::unit::Unit;

/// Bytes of standard data that are asked for.
pub const STANDARD_LEN: u16 = 96;
/// Bytes of a page that are asked for.
pub const PAGE_LEN: u16 = 1024;

/// Supported VPD pages.
pub const SUPPORTED: u8 = 0x00;
/// Unit serial number.
const SERIAL: u8 = 0x80;
/// Device identification.
const IDENTIFICATION: u8 = 0x83;
/// Extended INQUIRY data.
const EXTENDED: u8 = 0x86;
/// Block limits.
const LIMITS: u8 = 0xB0;
/// Logical block provisioning.
const PROVISIONING: u8 = 0xB2;

/// A logical unit.
#[derive(Clone, Debug, Serialize)]
pub struct Description {
    /// Its number.
    pub lun: u16,
    /// Standard INQUIRY data.
    pub standard: Standard,
    /// Pages of vital product data that the unit lists.
    pub pages: Vec<u8>,
    /// Unit serial number.
    pub serial: Option<String>,
    /// Names of the unit, its port and its target.
    pub designators: Vec<Designator>,
    /// What is checked of protection information.
    pub extended: Option<Extended>,
    /// Block limits.
    pub limits: Option<Limits>,
    /// Logical block provisioning.
    pub provisioning: Option<Provisioning>,
    /// Size and format; none for a unit that is no disk.
    pub capacity: Option<Capacity>,
}

/// Standard INQUIRY data, with the standard's names.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the standard's names; SPC-4 says what they are")]
pub struct Standard {
    pub peripheral_qualifier: u8,
    pub device_type: u8,
    pub version: u8,
    pub tpgs: u8,
    pub protect: bool,
    pub cmdque: bool,
    pub vendor: String,
    pub product: String,
    pub revision: String,
}

/// A designation descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Designator {
    /// `unit`, `port` or `target`.
    pub of: &'static str,
    /// `naa`, `t10`, `uuid`, `name` and the like.
    pub kind: &'static str,
    /// In words.
    pub value: String,
}

/// Extended INQUIRY data, as far as protection goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the standard's names; SPC-4 says what they are")]
pub struct Extended {
    pub spt: u8,
    pub grd_chk: bool,
    pub app_chk: bool,
    pub ref_chk: bool,
    pub v_sup: bool,
    pub no_pi_chk: bool,
}

/// Block limits; 0 is no limit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the standard's names; SBC-4 says what they are")]
pub struct Limits {
    pub maximum_compare_and_write_length: u8,
    pub maximum_transfer_length: u32,
    pub optimal_transfer_length: u32,
    pub maximum_unmap_lba_count: u32,
    pub maximum_write_same_length: u64,
}

/// Logical block provisioning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the standard's names; SBC-4 says what they are")]
pub struct Provisioning {
    pub lbpu: bool,
    pub lbpws: bool,
    pub lbpws10: bool,
    pub lbprz: u8,
    pub provisioning_type: u8,
}

/// Size and format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Capacity {
    /// Size in blocks.
    pub blocks: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Bytes of user data in a block.
    pub block_size: u32,
    /// Type of the protection information, 1 to 3.
    pub protection: Option<u8>,
    /// LBPME: blocks can be given back.
    pub provisioned: bool,
    /// LBPRZ: what was given back reads as zeroes.
    pub reads_zero: bool,
}

impl Description {
    /// What standard data say; the rest is to be filled in.
    ///
    /// # Errors
    /// When they are too short.
    pub fn new(lun: u16, standard: &[u8]) -> Result<Self, String> {
        let short = || format!("logical unit {lun} says {} bytes of itself, 36 are expected", standard.len());
        let data = standard.first_chunk::<36>().ok_or_else(short)?;
        Ok(Self {
            lun,
            standard: Standard {
                peripheral_qualifier: data[0] >> 5,
                device_type: data[0] & 0x1F,
                version: data[2],
                tpgs: data[5] >> 4 & 3,
                protect: data[5] & 1 != 0,
                cmdque: data[7] & 2 != 0,
                vendor: ascii(&data[8..16]),
                product: ascii(&data[16..32]),
                revision: ascii(&data[32..36]),
            },
            pages: Vec::new(),
            serial: None,
            designators: Vec::new(),
            extended: None,
            limits: None,
            provisioning: None,
            capacity: None,
        })
    }

    /// Whether this is a disk, and there.
    #[must_use]
    pub fn is_disk(&self) -> bool {
        self.standard.peripheral_qualifier == 0 && self.standard.device_type == 0
    }

    /// Takes a page of vital product data. One that is cut short, or another than was asked for, says nothing.
    pub fn take_page(&mut self, page: u8, data: &[u8]) {
        let Some(([_, code, high, low], rest)) = data.split_first_chunk::<4>() else { return };
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        let body = &rest[..length.min(rest.len())];
        if *code != page {
            return;
        }
        match page {
            SUPPORTED => self.pages = body.to_vec(),
            SERIAL => self.serial = Some(ascii(body)),
            IDENTIFICATION => self.designators = designators(body),
            EXTENDED => self.extended = extended(body),
            LIMITS => self.limits = limits(body),
            PROVISIONING => self.provisioning = provisioning(body),
            _ => {}
        }
    }

    /// The pages that the unit lists and this can show.
    #[must_use]
    pub fn wanted_pages(&self) -> Vec<u8> {
        let shown = [SERIAL, IDENTIFICATION, EXTENDED, LIMITS, PROVISIONING];
        shown.into_iter().filter(|page| self.pages.contains(page)).collect()
    }

    /// Takes size and format.
    pub fn take_unit(&mut self, unit: &Unit) {
        self.capacity = Some(Capacity {
            blocks: unit.blocks,
            size_bytes: unit.blocks.saturating_mul(u64::from(unit.block_size)),
            block_size: unit.block_size,
            protection: unit.pi_type().map(|pi_type| pi_type.number()),
            provisioned: unit.provisioned,
            reads_zero: unit.reads_zero,
        });
    }

    /// For people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("writing to a string can't fail");
        text
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        let Standard { peripheral_qualifier, device_type, version, tpgs, protect, cmdque, .. } =
            self.standard;
        writeln!(text, "logical unit {}", self.lun)?;
        writeln!(text, "  vendor    : {}", self.standard.vendor)?;
        writeln!(text, "  product   : {}", self.standard.product)?;
        writeln!(text, "  revision  : {}", self.standard.revision)?;
        writeln!(text, "  device    : type {device_type:#04x}, qualifier {peripheral_qualifier}")?;
        writeln!(text, "  version   : {version:#04x}")?;
        writeln!(text, "  protect   : {}", u8::from(protect))?;
        writeln!(text, "  tpgs      : {tpgs}")?;
        writeln!(text, "  cmdque    : {}", u8::from(cmdque))?;
        let pages: Vec<String> = self.pages.iter().map(|page| format!("{page:02x}")).collect();
        writeln!(text, "  pages     : {}", pages.join(" "))?;
        if let Some(serial) = &self.serial {
            writeln!(text, "  serial    : {serial}")?;
        }
        for Designator { of, kind, value } in &self.designators {
            writeln!(text, "  {:<10}: {kind} {value}", format!("{of} id"))?;
        }
        if let Some(Extended { spt, grd_chk, app_chk, ref_chk, v_sup, no_pi_chk }) = self.extended {
            let flag = |set| u8::from(set);
            let (grd, app, reference) = (flag(grd_chk), flag(app_chk), flag(ref_chk));
            writeln!(text, "  checks    : spt {spt}, grd {grd}, app {app}, ref {reference}")?;
            writeln!(text, "  cache     : volatile {}", flag(v_sup))?;
            writeln!(text, "  no_pi_chk : {}", flag(no_pi_chk))?;
        }
        if let Some(limits) = &self.limits {
            writeln!(
                text,
                "  limits    : transfer {} blocks, compare and write {}, unmap {}, write same {}",
                limits.maximum_transfer_length,
                limits.maximum_compare_and_write_length,
                limits.maximum_unmap_lba_count,
                limits.maximum_write_same_length
            )?;
        }
        if let Some(thin) = &self.provisioning {
            let Provisioning { lbpu, lbpws, lbpws10, lbprz, provisioning_type } = thin;
            let [unmap, same16, same10] = [lbpu, lbpws, lbpws10].map(|set| u8::from(*set));
            writeln!(
                text,
                "  thin      : type {provisioning_type}, lbpu {unmap}, lbpws {same16}, lbpws10 {same10}, lbprz {lbprz}"
            )?;
        }
        let Some(capacity) = &self.capacity else { return Ok(()) };
        writeln!(text, "  capacity  : {} blocks ({} bytes)", capacity.blocks, capacity.size_bytes)?;
        writeln!(text, "  block     : {} bytes", capacity.block_size)?;
        match capacity.protection {
            None => writeln!(text, "  protection: none"),
            Some(pi_type) => writeln!(text, "  protection: type {pi_type}, guard crc16, tuples of 8 bytes"),
        }
    }
}

fn designators(body: &[u8]) -> Vec<Designator> {
    let mut found = Vec::new();
    let mut rest = body;
    while let Some(([codes, kind, _, length], tail)) = rest.split_first_chunk::<4>() {
        let Some((value, tail)) = tail.split_at_checked(usize::from(*length)) else { break };
        let of = match kind >> 4 & 3 {
            0 => "unit",
            1 => "port",
            2 => "target",
            _ => "other",
        };
        let (kind, value) = match (kind & 0xF, codes & 0xF, value) {
            (0x1, ..) => ("t10", ascii(value)),
            (0x3, ..) => ("naa", hexadecimal(value)),
            (0x2, ..) => ("eui", hexadecimal(value)),
            (0x4, _, [_, _, high, low]) => ("relative port", u16::from_be_bytes([*high, *low]).to_string()),
            (0x5, _, [_, _, high, low]) => ("port group", u16::from_be_bytes([*high, *low]).to_string()),
            (0x8, ..) => ("name", ascii(value)),
            (0xA, _, [0x10, _, uuid @ ..]) if uuid.len() == 16 => {
                let uuid = Uuid::from_slice(uuid).expect("16 bytes are a UUID");
                ("uuid", uuid.hyphenated().to_string())
            }
            (_, 2 | 3, _) => ("other", ascii(value)),
            _ => ("other", hexadecimal(value)),
        };
        found.push(Designator { of, kind, value });
        rest = tail;
    }
    found
}

fn extended(body: &[u8]) -> Option<Extended> {
    let [checks, _, cache, escape, ..] = *body else { return None };
    Some(Extended {
        spt: checks >> 3 & 7,
        grd_chk: checks & 4 != 0,
        app_chk: checks & 2 != 0,
        ref_chk: checks & 1 != 0,
        v_sup: cache & 1 != 0,
        no_pi_chk: escape & 0x20 != 0,
    })
}

fn limits(body: &[u8]) -> Option<Limits> {
    let long = |at: usize| body.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    Some(Limits {
        maximum_compare_and_write_length: *body.get(1)?,
        maximum_transfer_length: long(4)?,
        optimal_transfer_length: long(8)?,
        maximum_unmap_lba_count: long(16).unwrap_or(0),
        maximum_write_same_length: long(32)
            .and_then(|high| Some(u64::from(high) << 32 | u64::from(long(36)?)))
            .unwrap_or(0),
    })
}

fn provisioning(body: &[u8]) -> Option<Provisioning> {
    let [_, flags, kind, ..] = *body else { return None };
    Some(Provisioning {
        lbpu: flags & 0x80 != 0,
        lbpws: flags & 0x40 != 0,
        lbpws10: flags & 0x20 != 0,
        lbprz: flags >> 2 & 7,
        provisioning_type: kind & 7,
    })
}

/// Text of a target, without its padding and with nothing that a terminal would act on.
fn ascii(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let shown = bytes[..end].iter().map(|byte| match byte {
        0x20..=0x7E => char::from(*byte),
        _ => '?',
    });
    shown.collect::<String>().trim().to_owned()
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use intact::block::Identity;
    use intact::scsi::inquiry::disk;
    use intact::scsi::lun::Limits as TargetLimits;
    use intact::scsi::medium::Medium;
    use intact::scsi::ports::{TargetPort, TargetPorts};
    use intact::scsi::vpd::Described;
    use t10pi::{Format, Guard, PiType};

    use super::*;

    fn described() -> (Description, Vec<(u8, Vec<u8>)>) {
        let format = Format::new(Guard::Crc16, 4096, 8).unwrap();
        let medium = Medium::new(64, 4096, Some((format, PiType::Type1))).unwrap();
        let port = TargetPort { relative: 1, portal_group: 1 };
        let ports = TargetPorts { name: "iqn.2026-11.test:t0".to_owned(), ports: vec![port] };
        let identity = Identity::new("iqn.2026-11.test:t0", "disk0", None, Some("SN-1"));
        let limits = TargetLimits::new(4096, 1 << 20);
        let of =
            Described { medium: &medium, identity: &identity, ports: &ports, port: &port, limits: &limits };
        let pages = (0..=255).filter_map(|page| Some((page, of.page(page)?))).collect();
        (Description::new(0, &disk(&medium, &ports)).unwrap(), pages)
    }

    #[test]
    fn what_our_target_says_of_itself_is_understood() {
        let (mut description, pages) = described();
        assert!(description.is_disk());
        for (page, data) in &pages {
            description.take_page(*page, data);
        }
        assert_eq!(description.wanted_pages(), [SERIAL, IDENTIFICATION, EXTENDED, LIMITS, PROVISIONING]);
        let Standard { vendor, product, protect, .. } = &description.standard;
        assert_eq!((vendor.as_str(), product.as_str(), protect), ("INTACT", "Volume", &true));
        assert_eq!(description.serial.as_deref(), Some("SN-1"));
        let kinds: Vec<_> = description.designators.iter().map(|one| (one.of, one.kind)).collect();
        let expected = [
            ("unit", "naa"),
            ("unit", "t10"),
            ("unit", "uuid"),
            ("port", "relative port"),
            ("port", "port group"),
            ("port", "name"),
            ("target", "name"),
        ];
        assert_eq!(kinds, expected);
        let extended = description.extended.as_ref().unwrap();
        assert!(extended.grd_chk && extended.app_chk && extended.ref_chk && extended.no_pi_chk);
        assert_eq!(description.limits.as_ref().unwrap().maximum_transfer_length, 256);
        assert_eq!(description.provisioning.as_ref().unwrap().provisioning_type, 2);
        let text = description.to_text();
        assert!(text.contains("target id : name iqn.2026-11.test:t0\n"), "{text}");
    }

    #[test]
    fn data_that_are_cut_short_or_lie_about_their_length_say_less() {
        let (_, pages) = described();
        for (page, data) in &pages {
            for length in 0..data.len() {
                let (mut description, _) = described();
                description.take_page(*page, &data[..length]);
                let mut lying = data.clone();
                lying[2..4].fill(0xFF);
                description.take_page(*page, &lying[..length.max(4)]);
                // Another page than was asked for.
                description.take_page(page.wrapping_add(1), data);
                assert!(description.to_text().is_ascii());
            }
        }
        assert!(Description::new(0, &[0; 35]).unwrap_err().contains("35 bytes"));
        assert_eq!(ascii(b" a\x1b[1m\xff \0b"), "a?[1m?");
    }
}
