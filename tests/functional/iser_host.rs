//! `intact-host iscsi` and `intact serve` as people run them: over RoCEv2 packets, on one machine. Each test has its own pair
//! of loopback addresses, so that they can run at once.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use intact_tests::target::{Target, program};
use serde_json::Value;
use tempfile::TempDir;

const IQN: &str = "iqn.2026-11.io.intact:disks";
const CHAP: &str = "iqn.2026-11.io.intact:chap";
const CLOSED: &str = "iqn.2026-11.io.intact:closed";
const NQN: &str = "nqn.2026-11.io.intact:disks";

/// A target with units of type 1, 2 and none, one that wants CHAP, and one that is open to another host only.
struct Pair {
    target: Target,
    folder: TempDir,
    address: String,
    local: String,
}

impl Pair {
    fn start(number: u8) -> Self {
        let (address, local) = (format!("127.0.35.{number}"), format!("127.0.36.{number}"));
        let config = format!(
            r#"
            [device]
            address = "{address}"
            [[volume]]
            name = "one"
            memory = "16MiB"
            protection = {{ type = 1 }}
            [[volume]]
            name = "plain"
            memory = "16MiB"
            block_size = 512
            [[volume]]
            name = "two"
            memory = "16MiB"
            block_size = 512
            protection = {{ type = 2 }}
            [[nvme.subsystem]]
            nqn = "{NQN}"
            allow_any_host = true
            [[nvme.subsystem.namespace]]
            volume = "one"
            [[iscsi.target]]
            iqn = "{IQN}"
            allow_any_initiator = true
            [[iscsi.target.lun]]
            volume = "one"
            [[iscsi.target.lun]]
            volume = "plain"
            [[iscsi.target.lun]]
            volume = "two"
            lun = 300
            [[iscsi.target]]
            iqn = "{CHAP}"
            allow_any_initiator = true
            chap = {{ user = "host", secret = "the host's secret", mutual_user = "target", mutual_secret = "the target's secret" }}
            [[iscsi.target.lun]]
            volume = "plain"
            [[iscsi.target]]
            iqn = "{CLOSED}"
            initiators = ["iqn.2026-11.io.intact:friend"]
            [[iscsi.target.lun]]
            volume = "plain"
            "#
        );
        let target = Target::start(Command::new(program("intact")), &config, 2);
        let ready = format!("iser {address}:3260");
        assert!(target.ready().contains(&ready), "{:?}", target.ready());
        let folder = TempDir::new().expect("a temporary folder can be made");
        Self { target, folder, address, local }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(program("intact-host"));
        command.args(words).args(["--traddr", &self.address, "--local", &self.local]);
        command
    }

    fn run(&self, subcommand: &str, arguments: &[&str]) -> Output {
        let mut command = self.command(&["iscsi", subcommand]);
        command.args(arguments).output().expect("intact-host starts")
    }

    /// Runs a command that has to succeed; returns what it prints.
    fn ok(&self, subcommand: &str, arguments: &[&str]) -> String {
        let output = self.run(subcommand, arguments);
        assert!(output.status.success(), "{subcommand} {arguments:?}: {output:?}\n{}", self.target.log());
        String::from_utf8(output.stdout).expect("intact-host prints text")
    }

    /// Runs a command that has to fail with exit status `code`; returns what it says.
    fn fails(&self, subcommand: &str, arguments: &[&str], code: i32) -> String {
        let output = self.run(subcommand, arguments);
        assert_eq!(output.status.code(), Some(code), "{subcommand} {arguments:?}: {output:?}");
        String::from_utf8(output.stderr).expect("intact-host prints text")
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file with these bytes; returns its path.
    fn write(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.file(name);
        fs::write(&path, bytes).expect("the temporary folder can be written");
        path.to_str().expect("temporary names are UTF-8").to_owned()
    }

    fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.file(name)).expect("the file was written")
    }
}

/// Bytes that differ from block to block.
fn pattern(length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(7);
    std::iter::repeat_with(|| random.u8(..)).take(length).collect()
}

/// Arguments for eight blocks from block 64 on.
fn at<'a>(lun: &'a str, rest: &[&'a str]) -> Vec<&'a str> {
    let blocks = ["-T", IQN, "--lun", lun, "--start-block", "0x40", "--block-count", "7"];
    blocks.iter().chain(rest).copied().collect()
}

#[test]
fn discover_and_inquiry_show_what_is_configured() {
    let pair = Pair::start(1);
    let found = pair.ok("discover", &[]);
    let portal = format!("{}:3260,1", pair.address);
    for (name, listed) in [(IQN, true), (CHAP, true), (CLOSED, false)] {
        assert_eq!(found.contains(&format!("{portal} {name}\n")), listed, "{found}");
    }
    let units: Value = serde_json::from_str(&pair.ok("inquiry", &["-T", IQN, "--json"])).expect("JSON");
    let seen: Vec<_> = units
        .as_array()
        .expect("a list")
        .iter()
        .map(|unit| {
            let capacity = &unit["capacity"];
            [&unit["lun"], &capacity["block_size"], &capacity["protection"], &capacity["size_bytes"]]
                .map(Value::as_u64)
        })
        .collect();
    let size = Some(16 << 20);
    let expected = [
        [Some(0), Some(4096), Some(1), size],
        [Some(1), Some(512), None, size],
        [Some(300), Some(512), Some(2), size],
    ];
    assert_eq!(seen, expected, "{units}");
    let words = pair.ok("inquiry", &["-T", IQN, "--lun", "0"]);
    for line in
        ["vendor    : INTACT", "protect   : 1", "protection: type 1, guard crc16", "target id : name iqn."]
    {
        assert!(words.contains(line), "no {line:?} in {words}");
    }
}

#[test]
fn what_is_written_is_read_in_every_length_of_cdb_and_by_nvme_hosts() {
    let pair = Pair::start(2);
    let back = pair.write("back", &[]);
    for (lun, block, cdbs) in
        [("0", 4096, &["10", "12", "16"][..]), ("1", 512, &["10", "12", "16"]), ("300", 512, &["10", "16"])]
    {
        for (round, cdb) in cdbs.iter().enumerate() {
            let mut data = pattern(8 * block);
            data[0] = u8::try_from(round).expect("three rounds");
            let source = pair.write("data", &data);
            for keys in [&[][..], &["--lasting-key"]] {
                pair.ok("write", &[&at(lun, &["--cdb", cdb, "--data", &source]), keys].concat());
                pair.ok("read", &[&at(lun, &["--cdb", cdb, "--data", &back]), keys].concat());
                assert!(pair.read("back") == data, "unit {lun}, {cdb} bytes of CDB");
            }
        }
    }
    let fua = pair.write("data", &pattern(8 * 4096));
    pair.ok("write", &at("0", &["--force-unit-access", "--data", &fua]));
    // The same volume as a namespace.
    let nvme = ["--nqn", NQN, "--start-block", "64", "--block-count", "7", "--prinfo", "13", "--data", &back];
    let output = pair.command(&["read"]).args(nvme).output().expect("intact-host starts");
    assert!(output.status.success(), "{output:?}");
    assert!(pair.read("back") == pattern(8 * 4096));
}

#[test]
fn tuples_travel_and_a_wrong_one_is_named_with_its_block() {
    let pair = Pair::start(3);
    let source = pair.write("data", &pattern(8 * 4096));
    let back = pair.write("back", &[]);
    pair.ok("write", &at("0", &["--data", &source]));
    pair.ok("read", &at("0", &["--protect", "1", "--data", &back]));
    let mut interleaved = pair.read("back");
    assert_eq!(interleaved.len(), 8 * 4104);
    for (number, block) in (0x40_u32..).zip(interleaved.chunks_mut(4104)) {
        assert_eq!(block[4100..], number.to_be_bytes(), "the reference tag of block {number:#x}");
        // What a unit makes has the application tag that escapes; with another one, blocks are checked.
        assert_eq!(block[4098..4100], [0xFF, 0xFF], "the application tag of block {number:#x}");
        block[4098..4100].copy_from_slice(&[0x12, 0x34]);
    }
    let good = pair.write("good", &interleaved);
    pair.ok("write", &at("0", &["--protect", "1", "--cdb", "16", "--data", &good]));

    let spoilt = |offset: usize| {
        let mut bytes = interleaved.clone();
        bytes[3 * 4104 + offset] ^= 1;
        pair.write("spoilt", &bytes)
    };
    let refused = |offset, protect| {
        pair.fails("write", &at("0", &["--protect", protect, "--data", &spoilt(offset)]), 1)
    };
    let guard = refused(100, "1");
    let line =
        "status: CHECK CONDITION, sense ABORTED COMMAND 10/01 (logical block guard check failed) LBA 0x43";
    assert!(guard.contains(line), "{guard}");
    let reference = refused(4103, "1");
    assert!(reference.contains("10/03 (logical block reference tag check failed) LBA 0x43"), "{reference}");
    assert!(refused(100, "4").contains("10/01"));
    // Nothing of that reached the medium; what is not checked does.
    pair.ok("read", &at("0", &["--protect", "1", "--data", &back]));
    assert!(pair.read("back") == interleaved);
    pair.ok("write", &at("0", &["--protect", "3", "--data", &spoilt(100)]));
    let read = pair.fails("read", &at("0", &["--protect", "1", "--data", &back]), 1);
    assert!(read.contains("10/01 (logical block guard check failed) LBA 0x43"), "{read}");
    pair.ok("read", &at("0", &["--protect", "3", "--data", &back]));
}

#[test]
fn what_is_wrong_is_said() {
    let pair = Pair::start(4);
    let block = pair.write("block", &[0; 512]);
    let range = pair.fails("read", &["-T", IQN, "--lun", "1", "--start-block", "32768", "--data", &block], 1);
    assert!(range.contains("ILLEGAL REQUEST 21/00 (logical block address out of range)"), "{range}");
    let protect = ["-T", IQN, "--lun", "1", "--protect", "1", "--data", &block];
    assert!(pair.fails("write", &protect, 1).contains("24/00 (invalid field in CDB)"));
    let unit = pair.fails("read", &["-T", IQN, "--lun", "9", "--data", &block], 1);
    assert!(unit.contains("25/00 (logical unit not supported)"), "{unit}");
    let short = pair.fails("write", &["-T", IQN, "--lun", "0", "--data", &block], 2);
    assert!(short.contains("4096 bytes are expected (1 x 4096), it has 512"), "{short}");
    let nobody = pair.fails("inquiry", &["-T", "iqn.2026-11.io.intact:nope"], 1);
    assert!(nobody.contains("status: login status 0x0203 (not found)"), "{nobody}");
    let closed = pair.fails("inquiry", &["-T", CLOSED], 1);
    assert!(
        closed.contains("0x0202 (authorization failure)") && closed.contains("--initiatorname"),
        "{closed}"
    );
    pair.ok("inquiry", &["-T", CLOSED, "--initiatorname", "iqn.2026-11.io.intact:friend"]);
    let port = pair.fails("discover", &["-s", "3261"], 3);
    assert!(port.contains("nobody listens on this port"), "{port}");
    let name = pair.fails("inquiry", &["-T", "disks"], 2);
    assert!(name.contains("--targetname: \"disks\" is no iSCSI name"), "{name}");
    let off = pair.fails("bench", &["-T", IQN, "--pi", "off", "--time", "1"], 2);
    assert!(off.contains("logical unit 0 is protected"), "{off}");
}

#[test]
fn chap_lets_in_who_knows_the_secret_and_the_target_proves_itself() {
    let pair = Pair::start(5);
    let inquiry = |arguments: &[&str], environment: &[(&str, &str)]| {
        let mut command = pair.command(&["iscsi", "inquiry", "-T", CHAP]);
        command.args(arguments).envs(environment.iter().copied());
        let output = command.output().expect("intact-host starts");
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let host = ["--chap-user", "host", "--chap-secret", "the host's secret"];
    assert_eq!(inquiry(&host, &[]).0, Some(0));
    let file = pair.write("secret", b"the host's secret\n");
    assert_eq!(inquiry(&["--chap-user", "host", "--chap-secret-file", &file], &[]).0, Some(0));
    let given =
        [("INTACT_CHAP_SECRET", "the host's secret"), ("INTACT_MUTUAL_SECRET", "the target's secret")];
    assert_eq!(inquiry(&["--chap-user", "host"], &given).0, Some(0));
    assert_eq!(inquiry(&["--chap-user", "host", "--mutual-user", "target"], &given).0, Some(0));

    let (code, said) = inquiry(&[], &[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("0x0201 (authentication failure)") && said.contains("--chap-user"), "{said}");
    assert_eq!(inquiry(&["--chap-user", "host", "--chap-secret", "another secret"], &[]).0, Some(1));
    let wrong = [&host[..], &["--mutual-user", "target", "--mutual-secret", "not the target's"]].concat();
    let (code, said) = inquiry(&wrong, &[]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("does not prove that it knows its secret"), "{said}");
}

#[test]
fn a_bench_checks_all_data_and_reports_numbers() {
    let pair = Pair::start(6);
    for arguments in [
        ["--lun", "0", "--rw", "randrw", "--pi", "full", "--qd", "16", "--bs", "4k"],
        ["--lun", "0", "--rw", "randread", "--pi", "pract", "--qd", "32", "--bs", "4k"],
        ["--lun", "0", "--rw", "write", "--pi", "pract", "--qd", "4", "--bs", "128KiB"],
        ["--lun", "1", "--rw", "randrw", "--pi", "off", "--qd", "32", "--bs", "2048"],
    ] {
        let all = ["-T", IQN, "--time", "1", "--span", "8MiB", "--queues", "2", "--verify", "--json"];
        let report = pair.ok("bench", &[&all[..], &arguments].concat());
        let report: Value = serde_json::from_str(&report).expect("JSON");
        for key in ["iops", "mb_s", "p50_us", "p99_us", "p999_us", "cpu_s"] {
            assert!(report[key].as_f64().is_some_and(|value| value > 0.0), "{key} of {report}");
        }
        assert!(report["verified"].as_u64().is_some_and(|verified| verified > 0), "{report}");
    }
    let words = pair.ok("bench", &["-T", IQN, "--time", "0.2", "--qd", "4", "--prepare", "--lasting-key"]);
    assert!(words.contains("IOPS") && words.contains("p99.9"), "{words}");
}
