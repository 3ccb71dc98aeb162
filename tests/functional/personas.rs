//! The target on the soft device with other devices' capabilities: it moves the same data by other work requests, takes
//! registrations where the device asks for them, and gives all of them back.

use std::net::SocketAddr;
use std::time::Duration;

use intact_tests::metrics::Metrics;

use super::{PROTECTED, Pair, subsystem};

/// Volumes with blocks of 512 and 4096 bytes with tuples, and plain ones.
const VOLUMES: [(&str, &str); 3] =
    [("small", "block_size = 512\nprotection = { type = 1 }"), ("large", PROTECTED), ("plain", "")];

/// What a device asks for of a target that reads from its host.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Registrations {
    None,
    /// Of lists that are longer than it likes.
    LongLists,
    All,
}

fn runs_as(persona: &str, number: u8, expected: Registrations) {
    let metrics: SocketAddr = ([127, 0, 31, number], 9420).into();
    let config = |_: &std::path::Path| {
        let volumes: String = VOLUMES
            .iter()
            .map(|(name, rest)| format!("[[volume]]\nname = \"{name}\"\nmemory = \"16MiB\"\n{rest}\n"))
            .collect();
        format!(
            "persona = \"{persona}\"\n[metrics]\naddress = \"{metrics}\"\n{volumes}{}",
            subsystem(&VOLUMES.map(|(name, _)| name))
        )
    };
    let mut pair = Pair::start(number, config);
    let registered = || Metrics::scrape(metrics).sum("intact_roce_fast_registrations_total", "");
    let regions = || Metrics::scrape(metrics).sum("intact_memory_regions", "");
    // Counters are published now and then. The one region is the reactor's buffers.
    pair.until("the region of the buffers", || regions() == 1);
    assert_eq!(registered(), 0);

    // The largest transfers, one by one.
    let data = pair.data("data", 256);
    let back = pair.file("back").to_str().expect("temporary names are UTF-8").to_owned();
    for (nsid, blocks, prinfo) in [("1", "2047", "0x8"), ("2", "255", "0x8"), ("3", "255", "0")] {
        let place =
            ["--namespace-id", nsid, "--start-block", "16", "--block-count", blocks, "--ref-tag", "16"];
        pair.host("write", &[&place[..], &["--prinfo", prinfo, "--data", &data]].concat());
        pair.host("read", &[&place[..], &["--prinfo", prinfo, "--data", &back]].concat());
        pair.assert_same("data", "back");
    }
    // A registration maps 256 pages, which is as much as a command moves; what goes to the host needs none.
    match expected {
        Registrations::None => {}
        Registrations::LongLists => pair.until("registrations of three writes", || registered() == 3),
        // Connect has data, too.
        Registrations::All => pair.until("registrations of three writes", || registered() >= 3),
    }

    // At random, many at once; data and tuples in turn are lists of two pieces a block.
    for (nsid, pi, size, depth) in [
        ("1", "full", "512", "16"),
        ("1", "full", "16384", "8"),
        ("2", "full", "4096", "16"),
        ("2", "full", "1048576", "2"),
        ("1", "pract", "65536", "8"),
        ("3", "off", "4096", "16"),
        ("3", "off", "262144", "4"),
    ] {
        let before = registered();
        let run = ["--namespace-id", nsid, "--rw", "randrw", "--pi", pi, "--verify", "--bs", size];
        pair.host("bench", &[&run[..], &["--queues", "2", "--qd", depth, "--time", "1"]].concat());
        // Where only long lists need some, those of what fills the namespace first may be.
        let long = matches!(size, "1048576" | "262144");
        if expected == Registrations::All || (expected == Registrations::LongLists && long) {
            pair.until("registrations of many writes", || registered() > before);
        }
    }
    // All of them are given back with their queues.
    pair.until("no memory region is left of closed queues", || regions() == 1);
    assert_eq!(registered() > 0, expected != Registrations::None, "{persona}");
    let log = pair.target.log();
    assert!(!log.contains("work request failed"), "{log}");
    assert!(pair.target.terminate(Duration::from_secs(10)).success());
}

#[test]
fn the_target_runs_on_a_device_like_rxe() {
    runs_as("rxe", 90, Registrations::None);
}

#[test]
fn the_target_runs_on_a_device_like_mlx5() {
    runs_as("mlx5", 91, Registrations::LongLists);
}

#[test]
fn the_target_runs_on_a_device_like_iwarp() {
    runs_as("iwarp", 92, Registrations::All);
}
