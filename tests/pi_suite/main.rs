//! The PI correctness suite: what becomes of damaged blocks, in every format, wherever they are damaged.
//!
//! A table in code: kinds of damage ([`damage`]) × places ([`point`]) × formats ([`format`]). What must follow is computed from the
//! standard's rules, which stand in [`damage`] as words about fields and in [`oracle`] as a slow judge of bytes; both must agree,
//! and README must show the result: that is checked in every build. Builds with the feature `_fault` run it against a target
//! (`./test.sh pi-suite`), and what they see must be that, too.

mod answers;
#[cfg_attr(
    not(feature = "_fault"),
    expect(dead_code, reason = "capsules and media are looked at with faults alone")
)]
mod command;
mod damage;
mod format;
#[cfg_attr(
    not(feature = "_fault"),
    expect(dead_code, reason = "a target's answers are looked at with faults alone")
)]
mod oracle;
#[cfg_attr(
    not(feature = "_fault"),
    expect(dead_code, reason = "a target's log is looked at with faults alone")
)]
mod point;
#[cfg(feature = "_fault")]
mod run;
mod table;
#[cfg(feature = "_fault")]
mod world;

use damage::{Damage, Scene, Verdict, expect};
use oracle::{Checks, Field};
use table::Tally;

/// Between these README has the suite's tables.
const BEGIN: &str = "<!-- pi-suite: begin -->\n";
const END: &str = "<!-- pi-suite: end -->";

#[test]
fn readme_shows_what_the_standard_says_of_each_damage() {
    assert_readme(&Tally::expected(&format::all()));
}

#[test]
fn what_is_said_of_fields_is_what_the_bytes_say() {
    let variants = [Checks::ALL, Checks::NONE].into_iter().chain(Field::ALL.map(Checks::without));
    let variants: Vec<Checks> = variants.collect();
    for format in format::all() {
        let scene = Scene::new(&format);
        assert_eq!(format.judge(&scene.fresh, &scene.tags, Checks::ALL), None, "{format}");
        assert_eq!(format.judge(&scene.stale, &scene.tags, Checks::ALL), None, "{format}");
        for damage in Damage::ALL {
            let Some(blocks) = damage.apply(&format, &scene) else { continue };
            assert_ne!(blocks, scene.fresh, "{damage:?} of {format} changes something");
            for &checks in &variants {
                let found = format.judge(&blocks, &scene.tags, checks);
                let found = found.map(|finding| (finding.block, finding.field));
                let expected = match expect(damage, &format, checks) {
                    Verdict::Caught { block, field } => Some((block, field)),
                    Verdict::Passes(_) => None,
                };
                assert_eq!(found, expected, "{damage:?} of {format}, {checks:?}");
            }
        }
    }
}

#[cfg(feature = "_fault")]
#[test]
fn every_damage_is_detected_and_named_or_passes_as_the_standard_says() {
    becomes_what_the_standard_says(point::Checker::Software);
}

#[cfg(feature = "_fault")]
#[test]
fn every_damage_is_detected_by_the_device_while_data_comes_in_and_named_as_by_software() {
    becomes_what_the_standard_says(point::Checker::Device);
}

#[cfg(feature = "_fault")]
fn becomes_what_the_standard_says(checker: point::Checker) {
    // They share a log.
    static ONE_BY_ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = ONE_BY_ONE.lock();
    let formats = format::all();
    let seen = run::run(&formats, checker);
    println!("{}", seen.text());
    assert_eq!(seen, Tally::expected(&formats));
    assert_readme(&seen);
}

/// Asserts that README has these tables.
fn assert_readme(tally: &Tally) {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = std::fs::read_to_string(path).expect("README.md stands at the root");
    let shown = readme.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
    let (shown, _) = shown.expect("README.md has the marks of the suite's tables");
    let text = tally.text();
    assert!(shown == text, "between its marks README.md must have this:\n{text}");
}
