//! Every guard and every size of storage tag, end to end: each namespace is described as it is, each field of a tuple is
//! checked by itself and named when it is wrong, and tuples that the target makes are those that the standard says.
//!
//! The tuples stand here a second time, put together from the standard's tables.

use std::fs;
use std::process::Command;
use std::time::Duration;

use intact_tests::target::program;

use super::{NQN, Pair};

/// A namespace, and the tags of the commands to it.
#[derive(Clone, Copy)]
struct Case {
    /// Makes the addresses.
    number: u8,
    /// `[[volume]]` without name and protection; `FOLDER` is where files may be.
    backend: &'static str,
    pi_type: u8,
    guard: &'static str,
    block_size: usize,
    metadata_size: usize,
    storage_tag_bits: u32,
    /// Not given: all bits.
    storage_tag_mask: Option<u64>,
    layout: &'static str,
    storage_tag: u64,
    ref_tag: u64,
}

const SLBA: u64 = 100;
const BLOCKS: usize = 4;
const APP_TAG: u16 = 0x1234;
/// The block in which something is wrong.
const WRONG: usize = 2;

/// A field of the tuple: its name in the log and its status.
type Field = (&'static str, &'static str);
const GUARD: Field = ("guard", "SCT 0x2 SC 0x82 (guard check error)");
const APP: Field = ("app_tag", "SCT 0x2 SC 0x83 (application tag check error)");
const REF: Field = ("ref_tag", "SCT 0x2 SC 0x84 (reference tag check error)");
const STORAGE: Field = ("storage_tag", "SCT 0x2 SC 0x88 (storage tag check error)");

impl Case {
    fn guard_size(&self) -> usize {
        match self.guard {
            "crc16" => 2,
            "crc32c" => 4,
            _ => 8,
        }
    }

    fn tuple_size(&self) -> usize {
        if self.guard == "crc16" { 8 } else { 16 }
    }

    fn ref_tag_bits(&self) -> u32 {
        let space = match self.guard {
            "crc16" => 32,
            "crc32c" => 80,
            _ => 48,
        };
        space - self.storage_tag_bits
    }

    fn checks_ref_tags(&self) -> bool {
        self.pi_type != 3 && self.ref_tag_bits() > 0
    }

    /// The tuple of block `index` whose data, and metadata before the tuple, are `covered`.
    fn tuple(&self, index: usize, covered: &[u8]) -> Vec<u8> {
        let guard = match self.guard {
            "crc16" => u64::from(t10pi::crc::crc16(0, covered)),
            "crc32c" => u64::from(t10pi::crc::crc32c(0, covered)),
            _ => t10pi::crc::crc64(0, covered),
        };
        let step = if self.pi_type == 3 { 0 } else { index as u64 };
        let ref_tag = u128::from(self.ref_tag + step) & ((1 << self.ref_tag_bits()) - 1);
        let space = u128::from(self.storage_tag) << self.ref_tag_bits() | ref_tag;
        let mut tuple = guard.to_be_bytes()[8 - self.guard_size()..].to_vec();
        tuple.extend(APP_TAG.to_be_bytes());
        let rest = self.tuple_size() - tuple.len();
        tuple.extend(&space.to_be_bytes()[16 - rest..]);
        tuple
    }

    /// The blocks with their metadata, as they are on the wire. `leading` is what stands before the tuples.
    fn stream(&self, data: &[u8], leading: u8) -> Vec<u8> {
        let blocks = data.chunks(self.block_size).enumerate();
        blocks
            .flat_map(|(index, block)| {
                let mut all = block.to_vec();
                all.resize(self.block_size + self.metadata_size - self.tuple_size(), leading);
                let tuple = self.tuple(index, &all);
                all.extend(tuple);
                all
            })
            .collect()
    }

    /// The same blocks, whose tuples are `fill`, as is everything else.
    fn filled(&self, data: u8, tuple: u8) -> Vec<u8> {
        let mut block = vec![data; self.block_size + self.metadata_size - self.tuple_size()];
        block.resize(self.block_size + self.metadata_size, tuple);
        block.repeat(BLOCKS)
    }

    /// Flips the lowest bit of a field of one block.
    fn damage(&self, stream: &[u8], field: Field) -> Vec<u8> {
        let end = (WRONG + 1) * (self.block_size + self.metadata_size);
        let tuple = end - self.tuple_size();
        let (byte, bit) = match field.0 {
            "guard" => (tuple + self.guard_size() - 1, 0),
            "app_tag" => (tuple + self.guard_size() + 1, 0),
            "ref_tag" => (end - 1, 0),
            _ => (end - 1 - self.ref_tag_bits() as usize / 8, self.ref_tag_bits() % 8),
        };
        let mut stream = stream.to_vec();
        stream[byte] ^= 1 << bit;
        stream
    }

    /// What the log says of that damage: expected and actual value.
    fn expected(&self, stream: &[u8], field: Field) -> (u64, u64) {
        let each = self.block_size + self.metadata_size;
        let tuple = &stream[(WRONG + 1) * each - self.tuple_size()..(WRONG + 1) * each];
        let number = |bytes: &[u8]| bytes.iter().fold(0, |value, byte| value << 8 | u128::from(*byte));
        let space = number(&tuple[self.guard_size() + 2..]);
        let wide = match field.0 {
            "guard" => number(&tuple[..self.guard_size()]),
            "app_tag" => u128::from(APP_TAG),
            "ref_tag" => space & ((1 << self.ref_tag_bits()) - 1),
            _ => space >> self.ref_tag_bits() & self.storage_tag_mask.map_or(u128::MAX, u128::from),
        };
        let value = u64::try_from(wide).expect("a field has at most 64 bits");
        (value, value ^ 1)
    }
}

/// A target with that namespace.
struct Served {
    case: Case,
    pair: Pair,
}

impl Served {
    fn start(case: Case) -> Self {
        let Case { number, backend, pi_type, guard, block_size, metadata_size, layout, .. } = case;
        let bits = case.storage_tag_bits;
        let mask =
            case.storage_tag_mask.map_or(String::new(), |mask| format!(", storage_tag_mask = {mask:#x}"));
        let pair = Pair::start(number, |folder| {
            let backend = backend.replace("FOLDER", folder.to_str().expect("temporary names are UTF-8"));
            format!(
                "[[volume]]\nname = \"disk\"\n{backend}\nblock_size = {block_size}\n\
                 protection = {{ type = {pi_type}, guard = \"{guard}\", metadata_size = {metadata_size}, \
                 layout = \"{layout}\", storage_tag_bits = {bits}{mask} }}\n\
                 [[nvme.subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
                 [[nvme.subsystem.namespace]]\nvolume = \"disk\"\n"
            )
        });
        Self { case, pair }
    }

    /// Flags that name the blocks and their tags; the storage tag is checked where any is.
    fn place(&self, prinfo: u8) -> Vec<String> {
        let Case { ref_tag, storage_tag, .. } = self.case;
        let mut flags: Vec<String> = [
            ("--start-block", SLBA),
            ("--block-count", BLOCKS as u64 - 1),
            ("--prinfo", prinfo.into()),
            ("--ref-tag", ref_tag),
            ("--app-tag", APP_TAG.into()),
            ("--app-tag-mask", 0xffff),
            ("--storage-tag", storage_tag),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), format!("{value:#x}")])
        .collect();
        if prinfo & 7 != 0 {
            flags.push("--storage-tag-check".to_owned());
        }
        flags
    }

    /// Flags of a command, and the path of a file with `data` if it has any.
    fn arguments(&self, prinfo: u8, data: Option<&[u8]>) -> Vec<String> {
        let mut flags = self.place(prinfo);
        if let Some(data) = data {
            fs::write(self.pair.file("data"), data).expect("the temporary folder can be written");
            flags.extend(["--data".to_owned(), self.path("data")]);
        }
        flags
    }

    fn path(&self, name: &str) -> String {
        self.pair.file(name).to_str().expect("temporary names are UTF-8").to_owned()
    }

    fn ok(&self, command: &str, prinfo: u8, data: Option<&[u8]>) {
        self.pair.host(command, &words(&self.arguments(prinfo, data)));
    }

    fn refused(&self, command: &str, prinfo: u8, data: Option<&[u8]>, status: &str) {
        let said = self.pair.refused(command, &words(&self.arguments(prinfo, data)));
        assert!(said.contains(status), "{command} {prinfo:#x}: {said}, not {status}");
    }

    fn assert_reads(&self, prinfo: u8, expected: &[u8], why: &str) {
        let mut flags = self.place(prinfo);
        flags.extend(["--data".to_owned(), self.path("back")]);
        self.pair.host("read", &words(&flags));
        let back = fs::read(self.pair.file("back")).expect("it was read");
        assert!(back == expected, "{why}: prinfo {prinfo:#x}\n{}", self.pair.target.log());
    }

    /// Asserts that the newest line about a failed check says this.
    fn assert_logged(&self, field: Field, hop: &str, (expected, actual): (u64, u64)) {
        let log = self.pair.target.whole_log();
        let line = log.lines().rev().find(|line| line.contains("protection information check failed"));
        let line = line.unwrap_or_else(|| panic!("no line for {field:?} at {hop}\n{log}"));
        let lba = SLBA + WRONG as u64;
        let name = field.0;
        let wanted = format!(
            "volume=\"disk\" lba={lba} field=\"{name}\" expected={expected:#x} actual={actual:#x} hop=\"{hop}\""
        );
        assert!(line.contains(&wanted), "{wanted}: {line}");
    }
}

fn words(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

/// PRINFO: everything is checked.
const ALL: u8 = 7;
const PRACT: u8 = 8;

fn check(case: Case) {
    let mut served = Served::start(case);
    let tuple_only = case.metadata_size == case.tuple_size();
    let mut random = fastrand::Rng::with_seed(case.number.into());
    let data: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(BLOCKS * case.block_size).collect();
    let good = case.stream(&data, 0x5a);

    let said = served.pair.host("identify", &["--namespace-id", "1"]);
    let described = format!(
        "protection: type {}, guard {}, storage tag {} bits, reference tag {} bits",
        case.pi_type,
        case.guard,
        case.storage_tag_bits,
        case.ref_tag_bits()
    );
    assert!(said.contains(&described), "{described}: {said}");

    let unwritten = case.filled(0, 0xff);
    served.assert_reads(ALL, &unwritten, "a block that nobody wrote passes all checks");
    served.ok("write", ALL, Some(&good));
    served.assert_reads(ALL, &good, "what was written is read");
    served.ok("verify", ALL, None);

    let mut fields = vec![GUARD, APP];
    if case.storage_tag_bits > 0 {
        fields.push(STORAGE);
    }
    if case.checks_ref_tags() {
        fields.push(REF);
    }
    for field in fields {
        let bad = case.damage(&good, field);
        let values = case.expected(&good, field);
        served.refused("write", ALL, Some(&bad), field.1);
        served.assert_logged(field, "host", values);
        served.assert_reads(ALL, &good, "a write that is refused changes nothing");
        served.refused("compare", ALL, Some(&bad), field.1);
        served.ok("write", 0, Some(&bad));
        served.assert_reads(0, &bad, "what is not checked is stored as it came");
        served.refused("verify", ALL, None, field.1);
        let back = served.path("back");
        let mut read = served.place(ALL);
        read.extend(["--data".to_owned(), back]);
        let said = served.pair.refused("read", &words(&read));
        assert!(said.contains(field.1), "{said}");
        served.assert_logged(field, "media", values);
        served.ok("write", ALL, Some(&good));
    }

    served.ok("compare", ALL, Some(&good));
    let mut other = data.clone();
    other[0] ^= 1;
    served.refused("compare", ALL, Some(&case.stream(&other, 0x5a)), "SCT 0x2 SC 0x85 (compare failure)");

    // The target makes tuples: of what a host sends without any, or in place of those that it sends.
    served.ok("write-zeroes", 0, None);
    served.assert_reads(0, &case.filled(0, 0), "Write Zeroes without PRACT clears tuples, too");
    if tuple_only {
        served.ok("write", PRACT, Some(&data));
    } else {
        served.ok("write", PRACT, Some(&case.damage(&good, GUARD)));
    }
    served.assert_reads(ALL, &good, "tuples that the target makes");
    let stripped = if tuple_only { &data } else { &good };
    served.assert_reads(PRACT | ALL, stripped, "tuples that the target takes off");
    served.ok("write-zeroes", PRACT, None);
    served.assert_reads(ALL, &case.stream(&vec![0; data.len()], 0), "tuples over zeroes");
    served.refused("write-zeroes", ALL, None, "SCT 0x1 SC 0x81");
    served.ok("write", ALL, Some(&good));
    served.pair.host("dsm", &["--slbs", &(SLBA + 1).to_string(), "--blocks", "2", "--ad"]);
    let each = case.block_size + case.metadata_size;
    let mut holes = good.clone();
    holes[each..3 * each].copy_from_slice(&unwritten[..2 * each]);
    served.assert_reads(ALL, &holes, "deallocated blocks are as nobody had written them");

    if case.backend.starts_with("file") {
        served.pair.host("flush", &[]);
        served.pair.target.restart(Command::new(program("intact")));
        served.assert_reads(ALL, &holes, "the medium keeps it");
    }
    for mode in ["full", "pract"].into_iter().take(if tuple_only { 2 } else { 1 }) {
        let load = "--rw randrw --bs 4KiB --qd 8 --time 0.2 --verify --pi";
        served.pair.host("bench", &load.split(' ').chain([mode]).collect::<Vec<_>>());
    }
    assert!(served.pair.target.terminate(Duration::from_secs(10)).success());
}

const MEMORY: &str = "memory = \"8MiB\"";
const FILE: &str = "file = \"FOLDER/disk.img\"\nsize = \"8MiB\"";

const CRC16: Case = Case {
    number: 40,
    backend: MEMORY,
    pi_type: 1,
    guard: "crc16",
    block_size: 512,
    metadata_size: 8,
    storage_tag_bits: 8,
    storage_tag_mask: None,
    layout: "separate",
    storage_tag: 0xa5,
    ref_tag: SLBA,
};

#[test]
fn crc16_with_a_storage_tag_of_a_byte() {
    check(CRC16);
}

#[test]
fn crc16_with_a_storage_tag_alone_in_a_file() {
    let tags = Case { storage_tag_bits: 32, storage_tag: 0x89ab_cdef, ref_tag: 0, ..CRC16 };
    check(Case { number: 41, backend: FILE, pi_type: 2, layout: "interleaved", ..tags });
}

#[test]
fn crc32c_in_a_file_with_tuples_beside_it() {
    check(Case { number: 42, backend: FILE, ..CRC32C });
}

const CRC32C: Case = Case {
    number: 43,
    backend: MEMORY,
    pi_type: 1,
    guard: "crc32c",
    block_size: 4096,
    metadata_size: 16,
    storage_tag_bits: 16,
    storage_tag_mask: None,
    layout: "separate",
    storage_tag: 0xbeef,
    ref_tag: SLBA,
};

#[test]
fn crc32c_with_a_storage_tag_of_64_bits_and_a_reference_tag_that_wraps() {
    let tags = Case { storage_tag_bits: 64, storage_tag: 0x0123_4567_89ab_cdef, ref_tag: 0xfffe, ..CRC32C };
    check(Case { pi_type: 2, metadata_size: 64, ..tags });
}

#[test]
fn crc64_without_storage_tag_interleaved_in_a_file() {
    check(Case {
        number: 44,
        backend: FILE,
        guard: "crc64",
        layout: "interleaved",
        storage_tag_bits: 0,
        storage_tag: 0,
        ..CRC32C
    });
}

#[test]
fn crc64_with_a_storage_tag_of_18_bits_of_which_some_are_compared() {
    let tags =
        Case { storage_tag_bits: 18, storage_tag: 0x2_aaab, storage_tag_mask: Some(0x3_00ff), ..CRC32C };
    let case =
        Case { number: 45, backend: FILE, guard: "crc64", pi_type: 3, metadata_size: 32, ref_tag: 9, ..tags };
    check(case);
    // A bit that isn't compared may differ.
    let served = Served::start(case);
    let data = vec![3; BLOCKS * case.block_size];
    served.ok("write", PRACT, Some(&case.stream(&data, 0)));
    let other = Served { case: Case { storage_tag: 0x2_55ab, ..case }, pair: served.pair };
    other.ok("verify", ALL, None);
    let other = Served { case: Case { storage_tag: 0x2_aaaa, ..case }, pair: other.pair };
    other.refused("verify", ALL, None, STORAGE.1);
}

#[test]
fn crc64_with_a_storage_tag_alone() {
    let tags = Case { storage_tag_bits: 48, storage_tag: 0x1234_5678_9abc, ref_tag: 0, ..CRC32C };
    check(Case { number: 46, guard: "crc64", ..tags });
}
