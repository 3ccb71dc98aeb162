//! The repository's vectors of protection information, all of them, and that no suite got lost.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::BufReader;

use intact_tools::pi::vectors::{Tally, check};

const VECTORS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../pi/tests/data/vectors.jsonl");

/// How many vectors each suite has, so that none is lost by a change of the file.
const SUITES: [(&str, usize); 20] = [
    ("crc.value", 119),
    ("dix.convert", 47),
    ("dix.generate", 13),
    ("nvme.command", 91),
    ("nvme.copy", 35),
    ("nvme.dealloc", 9),
    ("nvme.generate", 287),
    ("nvme.remap", 33),
    ("nvme.sqe", 54),
    ("nvme.tags", 30),
    ("nvme.tags_decode", 25),
    ("nvme.verify", 833),
    ("nvme.write_zeroes", 48),
    ("scsi.cdb", 47),
    ("scsi.decide", 84),
    ("scsi.format", 16),
    ("scsi.generate", 46),
    ("scsi.readcap16", 4),
    ("scsi.verify", 164),
    ("scsi.write_same", 15),
];

#[test]
fn every_vector_gives_what_it_expects() {
    let mut problems = Vec::new();
    let file = BufReader::new(File::open(VECTORS).expect("the vectors are there"));
    let tally = check(file, |text| problems.push(text.to_owned())).expect("a readable file");
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(tally, Tally { passed: 2000, failed: 0 });
}

#[test]
fn every_suite_has_all_its_vectors() {
    let text = std::fs::read_to_string(VECTORS).expect("the vectors are there");
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for line in text.lines() {
        let vector: serde_json::Value = serde_json::from_str(line).expect("JSON");
        let name = ["suite", "op"].map(|key| vector[key].as_str().expect("a text")).join(".");
        *seen.entry(name).or_default() += 1;
    }
    assert_eq!(seen, SUITES.map(|(name, count)| (name.to_owned(), count)).into());
}
