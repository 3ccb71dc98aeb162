//! `intact-pi bench`: rates of `t10pi` beside libisal, `memcpy` and the crate `crc-fast`, all in one run.
//!
//! Contenders take turns within a round, so that what else the machine does hits all of them; medians over rounds are
//! compared. A rate is user data in 10^9 bytes a second.
#![expect(clippy::disallowed_methods, reason = "measures wall time")]

mod cases;
mod isal;
mod memory;
mod peers;

use std::io::Write;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use t10pi::Kernel;

use super::error::PiError;
use cases::{Case, Peer};
use isal::Isal;

/// Arguments of `intact-pi bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// One JSON object a line
    #[arg(long)]
    pub json: bool,
    /// Only cases whose name contains this
    #[arg(long, default_value = "")]
    pub case: String,
    /// Rounds of which the median counts
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: u32,
    /// Milliseconds that each contender runs in a round
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub milliseconds: u64,
}

/// One measured case.
#[derive(Debug, Serialize)]
struct Row {
    case: String,
    bytes: usize,
    ours_gb_s: f64,
    peers: Peers,
}

/// Rates of peers; those that don't do what is measured are absent.
#[derive(Debug, Default, Serialize)]
struct Peers {
    #[serde(skip_serializing_if = "Option::is_none")]
    libisal: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memcpy: Option<f64>,
    #[serde(rename = "crc-fast", skip_serializing_if = "Option::is_none")]
    crc_fast: Option<f64>,
}

impl Peers {
    fn rate(&self, peer: Peer) -> Option<f64> {
        match peer {
            Peer::Isal => self.libisal,
            Peer::Memcpy => self.memcpy,
            Peer::CrcFast => self.crc_fast,
        }
    }

    fn rate_mut(&mut self, peer: Peer) -> &mut Option<f64> {
        match peer {
            Peer::Isal => &mut self.libisal,
            Peer::Memcpy => &mut self.memcpy,
            Peer::CrcFast => &mut self.crc_fast,
        }
    }
}

/// Measures, and writes a line for each case to `out`; what can't be compared is said on `notes`.
///
/// # Errors
/// When there is no such case, or writing to `out` fails.
pub(super) fn run(arguments: &Bench, out: &mut impl Write, notes: &mut impl Write) -> Result<(), PiError> {
    let kernel = Kernel::active();
    let (isal, missing) = match Isal::load() {
        Ok(isal) => (Some(isal), None),
        Err(error) => (None, Some(error)),
    };
    let mut cases = cases::all(kernel, isal);
    let names: Vec<String> = cases.iter().map(|(name, _)| name.clone()).collect();
    cases.retain(|(name, _)| name.contains(&arguments.case));
    if cases.is_empty() {
        let (case, names) = (&arguments.case, names.join("\n"));
        return Err(PiError::Flags(format!("no case has {case:?} in its name; there are\n{names}")));
    }
    if let Some(error) = missing {
        // Notes are for whoever reads them.
        let _ = writeln!(notes, "no libisal to compare with ({error}); Debian's package is libisal2");
    }
    let (rounds, milliseconds) = (arguments.rounds, arguments.milliseconds);
    let _ = writeln!(notes, "kernel {}, {rounds} rounds of {milliseconds} ms", kernel.name());
    if !arguments.json {
        writeln!(
            out,
            "{:36} {:>8} {:>8} {:>8} {:>8}   goals",
            "GB/s", "ours", "libisal", "memcpy", "crc-fast"
        )
        .map_err(PiError::Output)?;
    }
    for (_, build) in cases {
        let mut case = build();
        let row = measure(&mut case, arguments);
        if arguments.json {
            let row = serde_json::to_string(&row).expect("numbers and texts are JSON");
            writeln!(out, "{row}")
        } else {
            print(&row, case.goals, out)
        }
        .and_then(|()| out.flush())
        .map_err(PiError::Output)?;
    }
    Ok(())
}

fn print(row: &Row, goals: &[(Peer, f64)], out: &mut impl Write) -> std::io::Result<()> {
    let rate = |rate: Option<f64>| rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.2}"));
    write!(out, "{:36} {:>8}", row.case, rate(Some(row.ours_gb_s)))?;
    for peer in Peer::ALL {
        write!(out, " {:>8}", rate(row.peers.rate(peer)))?;
    }
    for (peer, goal) in goals {
        if let Some(rate) = row.peers.rate(*peer) {
            let ratio = row.ours_gb_s / rate;
            let verdict = if ratio >= *goal { "" } else { " MISSED" };
            write!(out, "   {ratio:.2} of {} (goal {goal}{verdict})", peer.name())?;
        }
    }
    writeln!(out)
}

fn measure(case: &mut Case, arguments: &Bench) -> Row {
    let slice = Duration::from_millis(arguments.milliseconds);
    let present: Vec<Peer> = Peer::ALL.into_iter().filter(|peer| case.peer(*peer)).collect();
    let mut ours = Vec::new();
    let mut theirs = vec![Vec::new(); present.len()];
    let bytes = case.bytes;
    for _ in 0..arguments.rounds {
        ours.push(rate(bytes, slice, || case.ours()));
        for (peer, rates) in present.iter().zip(&mut theirs) {
            rates.push(rate(bytes, slice, || {
                case.peer(*peer);
            }));
        }
    }
    let mut peers = Peers::default();
    for (peer, rates) in present.into_iter().zip(theirs) {
        *peers.rate_mut(peer) = Some(median(rates));
    }
    Row { case: case.name.clone(), bytes, ours_gb_s: median(ours), peers }
}

/// Repeats `work`, which handles `bytes`, for at least `slice`, and returns its rate.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn rate(bytes: usize, slice: Duration, mut work: impl FnMut()) -> f64 {
    work();
    let batch = (1 << 16) / bytes + 1;
    let mut runs = 0;
    let start = Instant::now();
    loop {
        for _ in 0..batch {
            work();
        }
        runs += batch;
        let took = start.elapsed();
        if took >= slice {
            return (bytes * runs) as f64 / took.as_secs_f64() / 1e9;
        }
    }
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}
