//! Replays the corpora of the fuzz targets, and seeded variations of each input.

use std::path::Path;

use fastrand::Rng;
use intact_tests::fuzz::{Body, TARGETS};

/// Variations of each input.
const VARIATIONS: u64 = 200;

#[test]
fn the_corpora_of_all_fuzz_targets_and_variations_of_them_hold_what_must_hold() {
    for (name, body) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
        let mut inputs = 0;
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display())) {
            let path = entry.expect("a corpus can be listed").path();
            let input = std::fs::read(&path).expect("inputs can be read");
            println!("{}", path.display());
            body(&input);
            for seed in 0..VARIATIONS {
                vary(body, input.clone(), seed);
            }
            inputs += 1;
        }
        assert!(inputs >= 10, "{name} has a corpus; found {inputs} inputs");
    }
}

/// Runs a body over one variation; a failure names the seed.
fn vary(body: Body, mut input: Vec<u8>, seed: u64) {
    let mut random = Rng::with_seed(seed);
    for _ in 0..random.usize(1..4) {
        let at = random.usize(0..=input.len());
        match random.u8(0..4) {
            0 => input.truncate(at),
            1 => input.insert(at, random.u8(..)),
            _ if at < input.len() => input[at] ^= 1 << random.u8(0..8),
            _ => input.extend(std::iter::repeat_with(|| random.u8(..)).take(8)),
        }
    }
    println!("  variation {seed}");
    body(&input);
}
