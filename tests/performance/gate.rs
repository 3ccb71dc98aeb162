//! The speed gate: `intact-host bench` against `intact serve`, one core each, beside the ceiling of plain sockets, in the same
//! run. Figures of shared machines drift, so only ratios count: each round measures the ceiling and everything that is
//! compared with it. The median of several rounds is held against the goal, which is reported. The best of them is held against
//! a floor: other work on the machine spoils single rounds, what broke is broken in all of them.
//!
//! Run by name, with the programs built: `cargo bench -p intact-tests --bench gate -- [--json] [--time SECONDS]
//! [--rounds N]`. Ends with status 1 when a ratio is below its floor.

#[path = "ceiling.rs"]
#[expect(dead_code, reason = "it has a main of its own, and shapes that are not judged here")]
mod ceiling;

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, ExitCode};
use std::time::Duration;

use intact_tests::target::{Target, program};
use serde_json::{Value, json};

type Failure = Box<dyn Error + Send + Sync>;

/// A ratio: what is wanted of it, and the bound below which something has broken.
struct Bound {
    name: &'static str,
    goal: f64,
    floor: f64,
}

// The ceiling of processors whose kernel copies quickly is far higher: 0.23 to 0.32 was seen on a Xeon of the Ice Lake kind.
const READS_4K: Bound =
    Bound { name: "4 KiB random reads, depth 128, of the ceiling's", goal: 0.4, floor: 0.2 };
const BYTES_128K: Bound =
    Bound { name: "128 KiB random reads, depth 32, of the ceiling's", goal: 0.4, floor: 0.35 };
const PI_4K: Bound = Bound { name: "4 KiB with protection, of without", goal: 0.9, floor: 0.8 };
const PI_128K: Bound = Bound { name: "128 KiB with protection, of without", goal: 0.9, floor: 0.8 };
/// Commands per system call, so that more is better here too.
const PER_CALL: Bound =
    Bound { name: "commands per system call of the target, depth 128", goal: 2.0, floor: 2.0 };

const NQN: &str = "nqn.2026-11.io.intact:bench";
const TARGET: &str = "127.0.0.1";
const METRICS: &str = "127.0.0.1:9429";

/// What one round saw, as ratios.
struct Round {
    ceiling_reads: f64,
    ceiling_bytes: f64,
    plain_4k: Measured,
    pi_4k: Measured,
    plain_128k: Measured,
    pi_128k: Measured,
    latency_us: f64,
    target_calls: f64,
}

struct Measured {
    iops: f64,
    mb_s: f64,
}

fn main() -> Result<ExitCode, Failure> {
    let (mut json_wanted, mut time, mut rounds) = (false, 1.0, 5);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().ok_or_else(|| format!("{argument} needs a number"));
        match argument.as_str() {
            "--json" => json_wanted = true,
            "--time" => time = number()?.parse()?,
            "--rounds" => rounds = number()?.parse()?,
            "--bench" => {}
            "--list" => return Ok(ExitCode::SUCCESS),
            other => {
                return Err(format!("unknown argument {other}; known are --json, --time, --rounds").into());
            }
        }
    }
    let cores = ceiling::cores()?;
    let mut seen = Vec::new();
    for _ in 0..rounds {
        seen.push(round(cores, time)?);
    }
    Ok(report(&seen, json_wanted))
}

fn round(cores: [usize; 2], time: f64) -> Result<Round, Failure> {
    let duration = Duration::try_from_secs_f64(time)?;
    let ceiling_4k = ceiling::run(ceiling::Shape::Batched, duration, cores)?;
    let ceiling_128k = ceiling::run(ceiling::Shape::Large, duration, cores)?;
    let [host, serving] = cores;
    let config = format!(
        "[device]\naddress = \"{TARGET}\"\n[reactor]\ncores = [{serving}]\n[metrics]\naddress = \"{METRICS}\"\n\
         [[volume]]\nname = \"plain\"\nmemory = \"64MiB\"\n\
         [[volume]]\nname = \"protected\"\nmemory = \"64MiB\"\nprotection = {{ type = 1 }}\n\
         [[nvme.subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
         [[nvme.subsystem.namespace]]\nvolume = \"plain\"\n[[nvme.subsystem.namespace]]\nvolume = \"protected\"\n"
    );
    let mut command = Command::new(program("intact"));
    command.env_remove("RUST_LOG");
    let mut target = Target::start(command, &config, 1);
    let before = counters()?;
    let plain_4k = bench(host, 1, "randread", "4KiB", 128, time)?;
    let after = counters()?;
    let pi_4k = bench(host, 2, "randread", "4KiB", 128, time)?;
    let plain_128k = bench(host, 1, "randread", "128KiB", 32, time)?;
    let pi_128k = bench(host, 2, "randread", "128KiB", 32, time)?;
    let (_, latency) = bench_json(host, 2, "randread", "4KiB", 1, time / 2.0)?;
    target.terminate(Duration::from_secs(10));
    let target_calls = (after.calls - before.calls) / (after.commands - before.commands).max(1.0);
    Ok(Round {
        ceiling_reads: ceiling_4k.reads,
        ceiling_bytes: ceiling_128k.bytes,
        plain_4k,
        pi_4k,
        plain_128k,
        pi_128k,
        latency_us: latency["p50_us"].as_f64().unwrap_or(f64::NAN),
        target_calls,
    })
}

fn bench(cpu: usize, nsid: u32, rw: &str, bs: &str, qd: u32, time: f64) -> Result<Measured, Failure> {
    bench_json(cpu, nsid, rw, bs, qd, time).map(|(measured, _)| measured)
}

fn bench_json(
    cpu: usize,
    nsid: u32,
    rw: &str,
    bs: &str,
    qd: u32,
    time: f64,
) -> Result<(Measured, Value), Failure> {
    // Blocks that nobody wrote are not checked, so everything is written first.
    let pi = if nsid == 1 { "off" } else { "pract" };
    let mut command = Command::new(program("intact-host"));
    command.args(["bench", "-a", TARGET, "-n", NQN, "--json", "--rw", rw, "--bs", bs, "--pi", pi]);
    command.args(["--namespace-id", &nsid.to_string(), "--qd", &qd.to_string(), "--cpu", &cpu.to_string()]);
    command.args(["--queues", "1", "--time", &time.to_string(), "--prepare"]);
    let output = command.output()?;
    if !output.status.success() {
        return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    let report: Value = serde_json::from_slice(&output.stdout)?;
    let field = |name: &str| report[name].as_f64().ok_or_else(|| format!("no {name} in {report}"));
    Ok((Measured { iops: field("iops")?, mb_s: field("mb_s")? }, report))
}

/// Counters of the target, from its metrics.
struct Counters {
    commands: f64,
    calls: f64,
}

fn counters() -> Result<Counters, Failure> {
    // The device's counters are shown some times a second.
    std::thread::sleep(Duration::from_millis(300));
    let mut stream = TcpStream::connect(METRICS)?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let sum = |name: &str| -> f64 {
        let of_name = |line: &&str| line.starts_with(name) && line[name.len()..].starts_with(['{', ' ']);
        let lines = text.lines().filter(of_name);
        lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let calls = sum("intact_socket_calls_total") + sum("intact_reactor_sleeps_total");
    Ok(Counters { commands: sum("intact_nvme_commands_total"), calls })
}

/// Of several rounds.
#[derive(Clone, Copy)]
struct Seen {
    median: f64,
    best: f64,
}

impl Seen {
    fn of(rounds: &[Round], value: impl Fn(&Round) -> f64) -> Self {
        let mut values: Vec<f64> = rounds.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let at = |index: usize| values.get(index).copied().unwrap_or(f64::NAN);
        Self { median: at(values.len() / 2), best: at(values.len().saturating_sub(1)) }
    }
}

fn report(rounds: &[Round], json_wanted: bool) -> ExitCode {
    let gates = [
        (READS_4K, Seen::of(rounds, |r| r.plain_4k.iops / r.ceiling_reads)),
        (BYTES_128K, Seen::of(rounds, |r| r.plain_128k.mb_s * 1e6 / r.ceiling_bytes)),
        (PI_4K, Seen::of(rounds, |r| r.pi_4k.iops / r.plain_4k.iops)),
        (PI_128K, Seen::of(rounds, |r| r.pi_128k.mb_s / r.plain_128k.mb_s)),
        (PER_CALL, Seen::of(rounds, |r| 1.0 / r.target_calls)),
    ];
    let median = |value: &dyn Fn(&Round) -> f64| Seen::of(rounds, value).median;
    let absolute = json!({
        "ceiling_reads_4k_per_s": median(&|r| r.ceiling_reads),
        "ceiling_mb_s_128k": median(&|r| r.ceiling_bytes / 1e6),
        "iops_4k": median(&|r| r.plain_4k.iops),
        "iops_4k_pi": median(&|r| r.pi_4k.iops),
        "mb_s_128k": median(&|r| r.plain_128k.mb_s),
        "mb_s_128k_pi": median(&|r| r.pi_128k.mb_s),
        "p50_us_depth_1_pi": median(&|r| r.latency_us),
    });
    // A figure that is not a number is no figure.
    let passed = gates.iter().all(|(bound, seen)| seen.best >= bound.floor);
    if json_wanted {
        let ratios: serde_json::Map<String, Value> =
            gates.iter().map(|(bound, seen)| (bound.name.to_owned(), json!(seen.median))).collect();
        println!(
            "{}",
            json!({ "ratios": ratios, "absolute": absolute, "rounds": rounds.len(), "passed": passed })
        );
    } else {
        for (bound, Seen { median, best }) in gates {
            let verdict = match (median, best) {
                (median, _) if median >= bound.goal => "reached",
                (_, best) if best >= bound.floor => "below the goal",
                _ => "FAILED: below the floor",
            };
            let Bound { name, goal, floor } = bound;
            println!("{median:>6.3}  {name} (best {best:.3}, goal {goal}, floor {floor}): {verdict}");
        }
        println!("medians of {} rounds, absolute: {absolute:#}", rounds.len());
    }
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
