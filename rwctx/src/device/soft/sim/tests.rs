//! Random operations over good and bad networks.

use std::ops::Range;
use std::time::Duration;

use super::app::{Apps, Plan};
use super::{Replay, seeds};
use crate::device::soft::fault::Faults;

const CLEAN: Faults = Faults {
    lose: 0,
    duplicate: 0,
    reorder: 0,
    corrupt: 0,
    latency: Duration::from_micros(20),
    hold: Duration::from_micros(300),
};

/// Runs the seeds and returns what all endpoints counted together.
fn run(test: &'static str, all: Range<u64>, plan: impl Fn(u64) -> Plan) -> Totals {
    let mut totals = Totals::default();
    for seed in seeds(all) {
        let _replay = Replay { test, seed };
        let mut apps = Apps::new(seed, plan(seed));
        apps.run();
        for counters in apps.counters() {
            totals.retransmits += counters.retransmits;
            totals.timeouts += counters.timeouts;
            totals.sequence_naks += counters.rx_sequence_naks;
            totals.rnr_naks += counters.rx_rnr_naks;
            totals.duplicates += counters.duplicates;
            totals.read_replays += counters.read_replays;
            totals.corrupted += counters.drop_icrc;
            assert_eq!((counters.qp_failures, counters.flushes), (0, 0));
        }
    }
    totals
}

/// How often the repairs were at work.
#[derive(Debug, Default)]
struct Totals {
    retransmits: u64,
    timeouts: u64,
    sequence_naks: u64,
    rnr_naks: u64,
    duplicates: u64,
    read_replays: u64,
    corrupted: u64,
}

/// A bad network, another one for each seed.
fn bad(seed: u64) -> Plan {
    let mut rng = fastrand::Rng::with_seed(seed);
    // Over IPv4 the check has 16 bits of strength, too few for this many flipped bits (see `icrc`).
    let ipv6 = rng.bool();
    let mut share = |most| if rng.bool() { 0 } else { rng.u32(0..=most) };
    Plan {
        faults: Faults {
            lose: share(100),
            duplicate: share(100),
            reorder: share(200),
            corrupt: if ipv6 { share(50) } else { 0 },
            ..CLEAN
        },
        ipv6,
        operations: 50,
        lazy_receives: seed.is_multiple_of(2),
    }
}

#[test]
fn a_clean_network_carries_every_operation() {
    let totals = run("tests::a_clean_network_carries_every_operation", 0..200, |seed| Plan {
        faults: CLEAN,
        ipv6: seed.is_multiple_of(2),
        operations: 60,
        lazy_receives: false,
    });
    assert_eq!((totals.timeouts, totals.duplicates, totals.sequence_naks), (0, 0, 0), "{totals:?}");
}

#[test]
fn loss_duplication_reordering_and_corruption_change_nothing_but_time_first_part() {
    let test = "tests::loss_duplication_reordering_and_corruption_change_nothing_but_time_first_part";
    all_repairs_were_at_work(&run(test, 1000..1320, bad));
}

#[test]
fn loss_duplication_reordering_and_corruption_change_nothing_but_time_second_part() {
    let test = "tests::loss_duplication_reordering_and_corruption_change_nothing_but_time_second_part";
    all_repairs_were_at_work(&run(test, 2000..2320, bad));
}

#[test]
fn loss_duplication_reordering_and_corruption_change_nothing_but_time_third_part() {
    let test = "tests::loss_duplication_reordering_and_corruption_change_nothing_but_time_third_part";
    all_repairs_were_at_work(&run(test, 3000..3320, bad));
}

fn all_repairs_were_at_work(totals: &Totals) {
    let Totals { retransmits, timeouts, sequence_naks, rnr_naks, duplicates, read_replays, corrupted } =
        totals;
    let all = [retransmits, timeouts, sequence_naks, rnr_naks, duplicates, read_replays, corrupted];
    assert!(
        all.iter().all(|&&count| count > 0) || std::env::var_os("INTACT_SIM_SEED").is_some(),
        "{totals:?}"
    );
}
