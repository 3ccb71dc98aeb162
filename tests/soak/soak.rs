//! Everything at once, for minutes: mixed load with protection and data checked, reconnects, hosts killed in mid-load, namespaces
//! added, resized and removed, packets lost on both ways. No error, and no growth of memory or descriptors after a warm-up.
//!
//! `./test.sh soak MINUTES` builds the programs with the feature `_fault` and says what goes wrong in `INTACT_FAULT_*`.
#![expect(clippy::disallowed_methods, reason = "runs real programs in real time")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use intact_tests::metrics::Metrics;
use intact_tests::target::{Target, Usage, program};
use serde_json::Value;

const NQN: &str = "nqn.2026-11.io.intact:soak";
const TARGET: &str = "127.0.9.1";
const METRICS: &str = "127.0.9.1:9420";

/// Longest time that a host may take for what takes it seconds.
const HOST_TIMEOUT: Duration = Duration::from_secs(120);
/// Until a killed host's controller is gone: its keep-alive timeout of 15 s, and what the target adds to it.
const CLEANUP: Duration = Duration::from_secs(60);
/// Until a change of the configuration is seen.
const RELOAD: Duration = Duration::from_secs(20);
/// What a reconnect may leave behind in memory, once and for all: what the allocator keeps.
const MEMORY_TOLERANCE: u64 = 8 << 20;

/// Namespaces.
const MEMORY: u32 = 1;
const SEPARATE: u32 = 2;
const INTERLEAVED: u32 = 3;
const PLAIN: u32 = 4;
const EXTRA: u32 = 5;

/// What was done.
#[derive(Debug, Default)]
struct Tally {
    benches: AtomicU64,
    verified: AtomicU64,
    retransmitted: AtomicU64,
    identified: AtomicU64,
    reloads: AtomicU64,
    killed: AtomicU64,
    /// Hosts that were told that the namespace they asked about does not exist (any more).
    refused: AtomicU64,
}

#[test]
fn minutes_of_mixed_load_leave_no_error_and_no_growth() {
    let minutes: f64 = std::env::var("INTACT_SOAK_MINUTES")
        .map_or(2.0, |text| text.parse().expect("INTACT_SOAK_MINUTES is a number of minutes"));
    let time = Duration::from_secs_f64(minutes * 60.0);
    let files = tempfile::tempdir().expect("a temporary folder can be made");
    let mut target = Target::start(Command::new(program("intact")), &config(files.path(), None), 1);
    assert!(target.whole_log().contains("FAULTS ARE ON"), "the programs have faults\n{}", target.log());

    let tally = Tally::default();
    fill();
    load(&target, files.path(), time / 4, &tally);
    let before = settled(&target);
    load(&target, files.path(), time - time / 4, &tally);
    let after = settled(&target);
    println!("{tally:?}\nbefore {before:?}\nafter {after:?}");

    target.assert_alive();
    assert!(after.descriptors <= before.descriptors, "descriptors: {before:?}, then {after:?}");
    assert!(
        after.resident <= before.resident + MEMORY_TOLERANCE,
        "memory: {before:?}, then {after:?}; {MEMORY_TOLERANCE} bytes are tolerated"
    );
    check_metrics(&tally, &target);
    assert!(target.terminate(Duration::from_secs(15)).success(), "{}", target.log());
    let log = target.whole_log();
    let bad = log.lines().find(|line| line.contains("ERROR") || line.contains("panicked"));
    assert_eq!(bad, None, "{}", target.log());
    let faults = log.lines().filter(|line| line.contains("faults on the way out"));
    faults.for_each(|line| println!("target: {line}"));
}

fn config(files: &Path, extra: Option<&str>) -> String {
    let mut text = format!(
        "[device]\naddress = \"{TARGET}\"\n[reactor]\ncores = 2\n[metrics]\naddress = \"{METRICS}\"\n\
         [[volume]]\nname = \"memory\"\nmemory = \"64MiB\"\nprotection = {{ type = 1 }}\n\
         [[volume]]\nname = \"separate\"\nfile = \"{0}/separate\"\nsize = \"64MiB\"\nprotection = {{ type = 1 }}\n\
         [[volume]]\nname = \"interleaved\"\nfile = \"{0}/interleaved\"\nsize = \"64MiB\"\nblock_size = 512\n\
         protection = {{ type = 1, layout = \"interleaved\" }}\n\
         [[volume]]\nname = \"plain\"\nmemory = \"64MiB\"\n",
        files.display()
    );
    if let Some(size) = extra {
        text += &format!("[[volume]]\nname = \"extra\"\nmemory = \"{size}\"\nprotection = {{ type = 1 }}\n");
    }
    text += &format!("[[nvme.subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n");
    for volume in ["memory", "separate", "interleaved", "plain"] {
        text += &format!("[[nvme.subsystem.namespace]]\nvolume = \"{volume}\"\n");
    }
    if extra.is_some() {
        text += "[[nvme.subsystem.namespace]]\nvolume = \"extra\"\n";
    }
    text
}

/// Writes all volumes, with more under way than at any time later: what memory volumes and buffers take, they have then.
fn fill() {
    for (nsid, pi) in [(MEMORY, "pract"), (SEPARATE, "pract"), (INTERLEAVED, "pract"), (PLAIN, "off")] {
        let mut command = host("bench", "127.0.9.11");
        command.args(["-n", NQN, "--namespace-id", &nsid.to_string(), "--rw", "write", "--bs", "1MiB"]);
        command.args(["--pi", pi, "--queues", "2", "--qd", "32", "--time", "2", "--json"]);
        json(&mut command);
    }
}

/// Runs everything for a time.
fn load(target: &Target, files: &Path, time: Duration, tally: &Tally) {
    let until = Instant::now() + time;
    std::thread::scope(|scope| {
        let workers = [
            scope.spawn(|| verified_load("127.0.9.11", 0, until, tally)),
            scope.spawn(|| verified_load("127.0.9.12", 1, until, tally)),
            scope.spawn(|| reconnects("127.0.9.13", until, tally)),
            scope.spawn(|| reloads("127.0.9.14", target, files, until, tally)),
            scope.spawn(|| killed_hosts("127.0.9.15", until, tally)),
        ];
        for worker in workers {
            worker.join().expect("a worker found nothing wrong");
        }
    });
}

/// Benches that check all data, each a new process; the two workers use different halves of the volumes.
fn verified_load(local: &str, half: usize, until: Instant, tally: &Tally) {
    const LOADS: [(u32, &str, &str, &str); 8] = [
        (MEMORY, "full", "randrw", "4KiB"),
        (SEPARATE, "pract", "randrw", "16KiB"),
        (INTERLEAVED, "full", "randrw", "8KiB"),
        (MEMORY, "pract", "randrw", "128KiB"),
        (PLAIN, "off", "randrw", "4KiB"),
        (SEPARATE, "full", "randrw", "64KiB"),
        (INTERLEAVED, "pract", "write", "32KiB"),
        (MEMORY, "pract", "randrw", "4KiB"),
    ];
    let mut random = fastrand::Rng::new();
    for (nsid, pi, rw, bs) in LOADS.iter().cycle().skip(half * LOADS.len() / 2) {
        if Instant::now() >= until {
            break;
        }
        // Half of 64 MiB.
        let first = half as u64 * (32 << 20) / if *nsid == INTERLEAVED { 512 } else { 4096 };
        let mut command = host("bench", local);
        command.args(["-n", NQN, "--namespace-id", &nsid.to_string(), "--start-block", &first.to_string()]);
        command.args(["--span", "12MiB", "--rw", rw, "--bs", bs, "--pi", pi, "--verify", "--json"]);
        command.args(["--queues", "2", "--qd", &random.u32(1..=16).to_string(), "--time", "2"]);
        if random.bool() {
            command.arg("--key-per-command");
        }
        let report = json(&mut command);
        let number = |name: &str| report[name].as_u64().unwrap_or_else(|| panic!("{name} in {report}"));
        tally.benches.fetch_add(1, Ordering::Relaxed);
        tally.verified.fetch_add(number("verified"), Ordering::Relaxed);
        tally.retransmitted.fetch_add(number("retransmitted"), Ordering::Relaxed);
    }
}

/// Short connections.
fn reconnects(local: &str, until: Instant, tally: &Tally) {
    while Instant::now() < until {
        let log = json(host("discover", local).arg("--json")).to_string();
        assert!(log.contains(NQN), "{log}");
        if let Some(namespaces) = identify(local, tally) {
            assert!((4..=5).contains(&namespaces.len()), "{namespaces:?}");
        }
        tally.identified.fetch_add(1, Ordering::Relaxed);
    }
}

/// A namespace that is added, grows, shrinks and goes. It is gone at the end.
fn reloads(local: &str, target: &Target, files: &Path, until: Instant, tally: &Tally) {
    for size in [Some(("8MiB", 2048)), Some(("16MiB", 4096)), Some(("4MiB", 1024)), None].iter().cycle() {
        let size = size.filter(|_| Instant::now() < until);
        target.reload(&config(files, size.map(|(text, _)| text)));
        tally.reloads.fetch_add(1, Ordering::Relaxed);
        let deadline = Instant::now() + RELOAD;
        loop {
            let all = identify(local, tally);
            let blocks = all.as_ref().map(|all| {
                all.iter().find(|ns| ns["nsid"] == EXTRA).and_then(|extra| extra["nsze"].as_u64())
            });
            if blocks == Some(size.map(|(_, blocks)| blocks)) {
                break;
            }
            assert!(Instant::now() < deadline, "{size:?} is not what hosts see: {all:?}\n{}", target.log());
        }
        if size.is_none() && Instant::now() >= until {
            return;
        }
        if size.is_some() {
            let mut command = host("bench", local);
            command.args(["-n", NQN, "--namespace-id", &EXTRA.to_string(), "--rw", "randrw", "--bs", "4KiB"]);
            command
                .args(["--pi", "full", "--verify", "--span", "1MiB", "--qd", "8", "--time", "0.3", "--json"]);
            json(&mut command);
            tally.benches.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Hosts that vanish under load. Each comes back at the same address, as one that crashed does.
fn killed_hosts(local: &str, until: Instant, tally: &Tally) {
    let mut random = fastrand::Rng::new();
    while Instant::now() < until {
        let mut command = host("bench", local);
        let (rw, bs) =
            [("randwrite", "4KiB"), ("randread", "128KiB"), ("randrw", "64KiB")][random.usize(..3)];
        // The last 8 MiB of the first half, which nobody checks.
        command.args(["-n", NQN, "--namespace-id", &MEMORY.to_string(), "--start-block", "6144"]);
        command
            .args(["--span", "8MiB", "--rw", rw, "--bs", bs, "--pi", "pract", "--queues", "2", "--qd", "16"]);
        command.args(["--time", "60"]);
        let mut child = command.spawn().expect("intact-host can be started");
        std::thread::sleep(Duration::from_millis(random.u64(300..2500)));
        let ended = child.try_wait().expect("the child is this process's");
        assert!(ended.is_none(), "a host under load ended: {ended:?}");
        child.kill().expect("the child runs");
        child.wait().expect("the child is this process's");
        tally.killed.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the target holds when all hosts have gone.
fn settled(target: &Target) -> Usage {
    let deadline = Instant::now() + CLEANUP;
    loop {
        let metrics = Metrics::scrape(METRICS.parse().expect("a socket address"));
        if metrics.sum("intact_nvme_queues", "") == 0 {
            // The connection that was asked for metrics is closed within moments.
            let usage = || {
                std::thread::sleep(Duration::from_millis(100));
                target.usage()
            };
            return (0..10).map(|_| usage()).min_by_key(|usage| usage.descriptors).expect("ten samples");
        }
        assert!(
            Instant::now() < deadline,
            "queues of hosts that have gone are left after {CLEANUP:?}\n{}\n{}",
            metrics.text(),
            target.log()
        );
        std::thread::sleep(Duration::from_millis(250));
    }
}

fn check_metrics(tally: &Tally, target: &Target) {
    let metrics = Metrics::scrape(METRICS.parse().expect("a socket address"));
    let killed = tally.killed.load(Ordering::Relaxed);
    let refused = tally.refused.load(Ordering::Relaxed);
    assert_eq!(metrics.sum("intact_nvme_failed_commands_total", ""), refused, "{}", target.log());
    for wrong in [
        "intact_nvme_bad_capsules_total",
        "intact_nvme_cid_conflicts_total",
        "intact_media_errors_total",
        "intact_pi_errors_total",
        "intact_socket_send_errors_total",
    ] {
        assert_eq!(metrics.sum(wrong, ""), 0, "{wrong}\n{}", target.log());
    }
    // A killed host has an admin queue and two others.
    let failed = metrics.sum("intact_nvme_failed_queues_total", "");
    assert!(failed <= 3 * killed, "{failed} queues failed, {killed} hosts were killed\n{}", target.log());
    for used in [
        "intact_nvme_commands_total",
        "intact_nvme_bytes_total",
        "intact_roce_packets_total",
        "intact_roce_retransmits_total",
    ] {
        assert!(metrics.sum(used, "") > 0, "{used}\n{}", metrics.text());
    }
    let commands = |reactor| metrics.sum("intact_nvme_commands_total", reactor);
    assert!(commands("reactor=\"0\"") > 0 && commands("reactor=\"1\"") > 0, "both reactors work");
    let benches = tally.benches.load(Ordering::Relaxed);
    assert!(benches > 0 && killed > 0 && tally.reloads.load(Ordering::Relaxed) > 3, "{tally:?}");
    println!("{}", metrics.text());
}

/// An `intact-host` command on an address of its own.
fn host(command: &str, local: &str) -> Command {
    let mut host = Command::new(program("intact-host"));
    host.args([command, "-a", TARGET, "--local", local])
        .args(["-q", &format!("nqn.2026-11.io.intact:host-{local}")]);
    host.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    host
}

/// All namespaces; `None` when one went away while its host asked.
fn identify(local: &str, tally: &Tally) -> Option<Vec<Value>> {
    let mut command = host("identify", local);
    command.args(["-n", NQN, "--json"]);
    let output = run(&mut command);
    // It asks several questions about each namespace of the list: the first one answers with zeros, others with a status.
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        if said.contains("SC 0x0b (invalid namespace or format)") {
            tally.refused.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        if said.contains(&format!("namespace {EXTRA} does not exist")) {
            return None;
        }
    }
    let mut all = parse(&command, &output);
    let Value::Array(namespaces) = all["namespaces"].take() else { panic!("no namespaces in {all}") };
    Some(namespaces)
}

/// Runs a host to its end and gives what it printed.
fn json(command: &mut Command) -> Value {
    let output = run(command);
    parse(command, &output)
}

fn parse(command: &Command, output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{command:?}: {}\n{text}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{command:?}: {error} in {text}"))
}

/// Runs a host to its end, not for ever.
fn run(command: &mut Command) -> Output {
    let mut child = command.spawn().expect("intact-host can be started");
    let deadline = Instant::now() + HOST_TIMEOUT;
    while child.try_wait().expect("the child is this process's").is_none() {
        if Instant::now() >= deadline {
            // It may have ended just now.
            let _ = child.kill();
            let output = child.wait_with_output().expect("the child is this process's");
            panic!(
                "{command:?} did not end within {HOST_TIMEOUT:?}\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("the child is this process's")
}
