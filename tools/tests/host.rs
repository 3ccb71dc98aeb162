//! `intact-host` as a program, against a target in this process: what its users and their scripts rely on.
//!
//! Each test has its own pair of loopback addresses, so that they can run at once, in one process or in several.
#![expect(clippy::unwrap_used, reason = "helpers of tests, too, fail by panicking")]

use std::net::Ipv4Addr;
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

const NQN: &str = "nqn.2026-11.io.intact:test";
const CLOSED: &str = "nqn.2026-11.io.intact:closed";

/// A target with a protected namespace (1), one without protection (2), and a subsystem that admits one host only.
struct Target {
    folder: TempDir,
    addr: String,
    local: String,
}

impl Target {
    /// Serves on an address that no other test uses. It ends with the process.
    fn start(pair: u8) -> Self {
        let (addr, local) = (format!("127.0.21.{pair}"), format!("127.0.22.{pair}"));
        let folder = tempfile::tempdir().unwrap();
        let config = format!(
            r#"
            [device]
            address = "{addr}"
            [[volume]]
            name = "protected"
            memory = "16MiB"
            protection = {{ type = 1 }}
            [[volume]]
            name = "plain"
            memory = "16MiB"
            block_size = 512
            [[volume]]
            name = "other"
            memory = "1MiB"
            [[nvme.subsystem]]
            nqn = "{NQN}"
            allow_any_host = true
            [[nvme.subsystem.namespace]]
            volume = "protected"
            [[nvme.subsystem.namespace]]
            volume = "plain"
            [[nvme.subsystem]]
            nqn = "{CLOSED}"
            hosts = ["nqn.2026-11.io.intact:friend"]
            [[nvme.subsystem.namespace]]
            volume = "other"
            "#
        );
        let file = folder.path().join("target.toml");
        std::fs::write(&file, config).unwrap();
        let served = thread::spawn(move || intact::serve::serve(&file).expect("the target serves"));
        let target = Self { folder, addr, local };
        target.await_ready(&served);
        target
    }

    fn await_ready(&self, served: &thread::JoinHandle<()>) {
        let until = now() + Duration::from_secs(60);
        // Looked up rather than tried: a socket of ours would take the address from the target.
        let address: Ipv4Addr = self.addr.parse().unwrap();
        let listed = format!(" {:08X}:12B7 ", u32::from_ne_bytes(address.octets()));
        while !std::fs::read_to_string("/proc/net/udp").unwrap().contains(&listed) {
            assert!(!served.is_finished(), "the target ended");
            assert!(now() < until, "the target opens its sockets");
            thread::sleep(Duration::from_millis(20));
        }
        while !self.run("discover", &[]).status.success() {
            assert!(now() < until, "the target accepts connections");
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn run(&self, command: &str, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_intact-host"))
            .args([command, "-a", &self.addr, "--local", &self.local])
            .args(args)
            .output()
            .unwrap()
    }

    /// Runs a command on a subsystem that has to succeed; returns what it prints.
    fn ok(&self, command: &str, args: &[&str]) -> String {
        let output = self.run(command, &with_nqn(args));
        assert!(output.status.success(), "{command} {args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs a command that has to fail with exit status `code`; returns what it says on stderr.
    fn fails(&self, command: &str, args: &[&str], code: i32) -> String {
        let output = self.run(command, &with_nqn(args));
        assert_eq!(output.status.code(), Some(code), "{command} {args:?}: {output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Makes a file; returns its path.
    fn file(&self, name: &str, content: &[u8]) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path.into_os_string().into_string().unwrap()
    }
}

fn with_nqn<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let named = args.contains(&"-n");
    let nqn = if named { [].as_slice() } else { ["-n", NQN].as_slice() };
    nqn.iter().chain(args).copied().collect()
}

#[expect(clippy::disallowed_methods, reason = "waits for another thread")]
fn now() -> Instant {
    Instant::now()
}

/// Blocks whose content differs.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from((at * 7 + at / 4096) % 251).unwrap()).collect()
}

#[test]
fn discover_and_identify_show_what_is_configured() {
    let target = Target::start(1);
    let output = target.run("discover", &["--json"]);
    let log: Value = serde_json::from_slice(&output.stdout).unwrap();
    let found: Vec<&str> =
        log["records"].as_array().unwrap().iter().map(|r| r["subnqn"].as_str().unwrap()).collect();
    // The other subsystem is not for this host.
    assert!(found.contains(&NQN) && !found.contains(&CLOSED), "{found:?}");
    let described: Value = serde_json::from_str(&target.ok("identify", &["--json"])).unwrap();
    assert_eq!(described["controller"]["subnqn"], NQN);
    let namespaces = described["namespaces"].as_array().unwrap();
    assert_eq!(namespaces.len(), 2);
    assert_eq!(namespaces[0]["protection"]["type"], 1);
    assert_eq!(namespaces[0]["size_bytes"], 16 << 20);
    assert_eq!(
        (namespaces[1]["block_size"].as_u64(), &namespaces[1]["protection"]),
        (Some(512), &Value::Null)
    );
    let words = target.ok("identify", &[]);
    assert!(words.contains("protection: type 1, guard crc16"), "{words}");
}

/// Arguments for eight blocks from block 8 on.
fn at<'a>(rest: &[&'a str]) -> Vec<&'a str> {
    ["--start-block", "8", "--block-count", "7"].iter().chain(rest).copied().collect()
}

#[test]
fn protected_data_comes_back_and_bad_protection_information_is_refused() {
    let target = Target::start(2);
    let data = pattern(8 * 4096);
    let source = target.file("data", &data);
    let back = target.file("back", &[]);
    for keys in [&[][..], &["--key-per-command"][..]] {
        let mut write = at(&["--prinfo", "0xd", "--data", &source]);
        write.extend(keys);
        target.ok("write", &write);
        let mut read = at(&["--prinfo", "13", "--data", &back]);
        read.extend(keys);
        target.ok("read", &read);
        assert!(std::fs::read(&back).unwrap() == data, "what was written is read");
    }

    // With its protection information, each block is followed by its tuple.
    target.ok("read", &at(&["--prinfo", "5", "--data", &back]));
    let interleaved = std::fs::read(&back).unwrap();
    assert_eq!(interleaved.len(), 8 * 4104);
    for (block, (whole, plain)) in interleaved.chunks(4104).zip(data.chunks(4096)).enumerate() {
        assert!(whole[..4096] == *plain, "block {block}");
        assert_eq!(whole[4096 + 4..], (8 + u32::try_from(block).unwrap()).to_be_bytes(), "reference tag");
    }
    let good = target.file("good", &interleaved);
    target.ok("compare", &at(&["--prinfo", "5", "--data", &good]));
    target.ok("write", &at(&["--prinfo", "5", "--data", &good]));
    target.ok("verify", &at(&["--prinfo", "5"]));

    let spoilt = |name: &str, offset: usize| {
        let mut bytes = interleaved.clone();
        bytes[3 * 4104 + offset] ^= 1;
        target.file(name, &bytes)
    };
    let guard = target.fails("write", &at(&["--prinfo", "5", "--data", &spoilt("guard", 100)]), 1);
    assert!(guard.contains("status: SCT 0x2 SC 0x82 (guard check error)"), "{guard}");
    let reference = target.fails("write", &at(&["--prinfo", "1", "--data", &spoilt("ref", 4103)]), 1);
    assert!(reference.contains("status: SCT 0x2 SC 0x84 (reference tag check error)"), "{reference}");
    let tags = ["--prinfo", "2", "--app-tag", "0x55", "--app-tag-mask", "0xffff", "--data", &good];
    let application = target.fails("write", &at(&tags), 1);
    assert!(application.contains("status: SCT 0x2 SC 0x83 (application tag check error)"), "{application}");
    let different = target.fails("compare", &at(&["--data", &spoilt("different", 4095)]), 1);
    assert!(different.contains("status: SCT 0x2 SC 0x85 (compare failure)"), "{different}");

    // Nothing of that reached the medium.
    target.ok("compare", &at(&["--prinfo", "5", "--data", &good]));
}

#[test]
fn zeroed_and_deallocated_blocks_read_as_zeroes() {
    let target = Target::start(3);
    let source = target.file("data", &pattern(4 * 4096));
    let back = target.file("back", &[]);
    target.ok("write", &["--block-count", "3", "--prinfo", "13", "--data", &source]);
    target.ok("write-zeroes", &["--start-block", "1", "--prinfo", "8"]);
    target.ok("dsm", &["--slbs", "2", "--blocks", "1", "--ad"]);
    target.ok("flush", &[]);
    target.ok("read", &["--block-count", "3", "--prinfo", "13", "--data", &back]);
    let mut expected = pattern(4 * 4096);
    expected[4096..3 * 4096].fill(0);
    assert!(std::fs::read(&back).unwrap() == expected);
}

#[test]
fn what_is_wrong_is_said() {
    let target = Target::start(4);
    let short = target.file("short", &[0; 4095]);
    let length = target.fails("write", &["--prinfo", "8", "--data", &short], 2);
    assert!(length.contains("4096 bytes are expected (1 x 4096), it has 4095"), "{length}");
    let missing = target.fails("write", &["--data", "/nonexistent/file"], 2);
    assert!(missing.contains("/nonexistent/file: No such file"), "{missing}");
    let range = target.fails("verify", &["--start-block", "4096", "--prinfo", "4"], 1);
    assert!(range.contains("status: SCT 0x0 SC 0x80 (lba out of range)"), "{range}");
    let namespace = target.fails("flush", &["--namespace-id", "7"], 2);
    assert!(namespace.contains("namespace 7 does not exist"), "{namespace}");
    let stranger = target.fails("identify", &["-n", CLOSED], 1);
    assert!(stranger.contains("status: SCT 0x1 SC 0x84 (connect invalid host)"), "{stranger}");
    assert!(stranger.contains("not open to this host's NQN"), "{stranger}");
    let nqn = target.fails("identify", &["-n", "nqn.2026-11.io.intact:nope"], 1);
    assert!(nqn.contains("status: SCT 0x1 SC 0x82 (connect invalid parameters)\n"), "{nqn}");
    assert!(nqn.contains("discover lists"), "{nqn}");
    let tag = target.fails("verify", &["--prinfo", "1", "--ref-tag", "0x100000000"], 2);
    assert!(tag.contains("--ref-tag: 0x100000000 does not fit"), "{tag}");
    let foreign = target.fails("verify", &["--prinfo", "1", "--ref-tag", "5"], 1);
    assert!(foreign.contains("status: SCT 0x1 SC 0x81 (invalid protection information)"), "{foreign}");
    let ranges = target.fails("dsm", &["--slbs", "0,1", "--blocks", "1"], 2);
    assert!(ranges.contains("--slbs has 2 values and --blocks 1"), "{ranges}");
    target.ok("identify", &["-n", CLOSED, "-q", "nqn.2026-11.io.intact:friend"]);
    let port = target.fails("identify", &["-s", "4421"], 3);
    assert!(port.contains("nobody listens on this port"), "{port}");
    let off = target.fails("bench", &["--pi", "off", "--time", "1"], 2);
    assert!(off.contains("is protected"), "{off}");
}

#[test]
fn single_commands_are_logged_at_level_trace() {
    let target = Target::start(6);
    let log = |level| {
        let output = target.run("flush", &with_nqn(&["--log", level]));
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let line = "command completed command=\"Flush\" status=\"SCT 0x0 SC 0x00 (success)\"";
    let trace = log("trace");
    assert!(trace.contains(line), "{trace}");
    let debug = log("debug");
    assert!(!debug.contains("command completed"), "{debug}");
}

#[test]
fn a_bench_checks_all_data_and_reports_numbers() {
    let target = Target::start(5);
    for args in [
        ["--rw", "randrw", "--pi", "full", "--qd", "32", "--bs", "4k"],
        ["--rw", "randread", "--pi", "pract", "--qd", "128", "--bs", "4096"],
        ["--rw", "write", "--pi", "pract", "--qd", "8", "--bs", "128KiB"],
        ["--rw", "randrw", "--namespace-id", "2", "--qd", "64", "--bs", "2048"],
    ] {
        let mut all = vec!["--time", "1", "--span", "8MiB", "--queues", "2", "--verify", "--json"];
        all.extend(args);
        let report: Value = serde_json::from_str(&target.ok("bench", &all)).unwrap();
        for key in ["iops", "mb_s", "p50_us", "p99_us", "p999_us", "cpu_s"] {
            assert!(report[key].as_f64().unwrap() > 0.0, "{key} of {report}");
        }
        assert!(report["verified"].as_u64().unwrap() > 0, "{report}");
    }
    let words = target.ok("bench", &["--time", "0.2", "--qd", "4", "--prepare", "--key-per-command"]);
    assert!(words.contains("IOPS") && words.contains("p99.9"), "{words}");
}

#[test]
fn an_unknown_checksum_kernel_is_refused_rather_than_ignored() {
    let output = Command::new(env!("CARGO_BIN_EXE_intact-host"))
        .args(["discover", "-a", "127.0.21.99"])
        .env("T10PI_KERNEL", "magic")
        .output()
        .expect("intact-host was built");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text.contains("intact-host: T10PI_KERNEL: unknown checksum kernel \"magic\", there are avx512"),
        "{text}"
    );
}
