//! The programs as people run them: `intact serve` and `intact-host` on one machine, over RoCEv2 packets, without
//! privileges. Each test has its own pair of loopback addresses, so that they can run at once.
#![expect(clippy::disallowed_methods, reason = "real programs run in real time")]

mod formats;
mod personas;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use intact_tests::target::{Target, program};
use tempfile::TempDir;

const NQN: &str = "nqn.2026-11.io.intact:end-to-end";
const BLOCK: usize = 4096;

/// A target with volumes in a folder, and the address that its host has.
struct Pair {
    target: Target,
    folder: TempDir,
    address: String,
    local: String,
}

impl Pair {
    /// `number` makes the addresses; `config` makes the rest of the configuration from the folder of volumes.
    fn start(number: u8, config: impl FnOnce(&Path) -> String) -> Self {
        Self::start_by(Command::new(program("intact")), number, config)
    }

    /// The same by `command`, which runs [`program`]`("intact")`.
    fn start_by(command: Command, number: u8, config: impl FnOnce(&Path) -> String) -> Self {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let (address, local) = (format!("127.0.31.{number}"), format!("127.0.32.{number}"));
        let text = format!("[device]\naddress = \"{address}\"\n{}", config(folder.path()));
        let target = Target::start(command, &text, 1);
        assert_eq!(target.ready(), [format!("nvme rdma {address}:4420")]);
        Self { target, folder, address, local }
    }

    fn reload(&self, config: &str) {
        self.target.reload(&format!("[device]\naddress = \"{}\"\n{config}", self.address));
    }

    fn run(&self, subcommand: &str, arguments: &[&str]) -> Output {
        self.command(subcommand, &self.local).args(arguments).output().expect("intact-host starts")
    }

    /// `intact-host` at an address.
    fn command(&self, subcommand: &str, local: &str) -> Command {
        let mut command = Command::new(program("intact-host"));
        command.args([subcommand, "--traddr", &self.address, "--trsvcid", "4420", "--local", local]);
        command
    }

    /// A host at an address of its own, which reads and writes namespace 1 for so many seconds and checks all data.
    fn start_load(&self, local: &str, depth: &str, seconds: &str) -> Child {
        self.command("bench", local)
            .args(["--nqn", NQN, "--rw", "randrw", "--pi", "full", "--verify", "--queues", "2"])
            .args(["--qd", depth, "--bs", "4096", "--time", seconds])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("intact-host starts")
    }

    fn host(&self, subcommand: &str, arguments: &[&str]) -> String {
        let output = self.run(subcommand, &[&["--nqn", NQN], arguments].concat());
        assert!(output.status.success(), "{subcommand} {arguments:?}: {output:?}\n{}", self.target.log());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// What it says when it fails with status 1, as for an NVMe status.
    fn refused(&self, subcommand: &str, arguments: &[&str]) -> String {
        let output = self.run(subcommand, &[&["--nqn", NQN], arguments].concat());
        assert_eq!(
            output.status.code(),
            Some(1),
            "{subcommand} {arguments:?}: {output:?}\n{}",
            self.target.log()
        );
        String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A file with `blocks` blocks of data that differ.
    fn data(&self, name: &str, blocks: usize) -> String {
        let mut random = fastrand::Rng::with_seed(blocks as u64);
        let bytes: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(blocks * BLOCK).collect();
        let path = self.file(name);
        fs::write(&path, bytes).expect("the temporary folder can be written");
        path.to_str().expect("temporary names are UTF-8").to_owned()
    }

    fn assert_same(&self, one: &str, other: &str) {
        let read = |name: &str| fs::read(self.file(name)).expect("both files were written");
        assert!(read(one) == read(other), "{one} and {other} differ");
    }

    /// The size of a namespace, as Identify says it; none when there is no such namespace.
    fn blocks(&self, nsid: &str) -> Option<String> {
        let output = self.run("identify", &["--nqn", NQN]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let section = text.split(&format!("namespace {nsid}\n")).nth(1)?;
        let size = section.lines().find_map(|line| line.trim().strip_prefix("nsze"))?;
        size.split_whitespace().nth(1).map(str::to_owned)
    }

    /// Waits until a condition holds.
    fn until(&self, what: &str, mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !condition() {
            assert!(Instant::now() < deadline, "not in time: {what}\n{}", self.target.log());
            thread::sleep(Duration::from_millis(20));
        }
    }
}

fn subsystem(volumes: &[&str]) -> String {
    let mut text = format!("[[nvme.subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n");
    for volume in volumes {
        text += &format!("[[nvme.subsystem.namespace]]\nvolume = \"{volume}\"\n");
    }
    text
}

fn file_volume(folder: &Path, name: &str, rest: &str) -> String {
    format!(
        "[[volume]]\nname = \"{name}\"\nfile = \"{}/{name}.img\"\nsize = \"16MiB\"\n{rest}\n",
        folder.display()
    )
}

const PROTECTED: &str = "protection = { type = 1 }";
const INTERLEAVED: &str = "protection = { type = 1, layout = \"interleaved\" }";
const MEMORY: &str = "[[volume]]\nname = \"memory\"\nmemory = \"16MiB\"\nprotection = { type = 1 }\n";

#[test]
fn protected_data_survives_on_every_backend_and_a_restart_of_the_target() {
    let mut pair = Pair::start(1, |folder| {
        file_volume(folder, "separate", PROTECTED)
            + &file_volume(folder, "interleaved", INTERLEAVED)
            + &file_volume(folder, "plain", "")
            + MEMORY
            + &subsystem(&["separate", "interleaved", "memory", "plain"])
    });
    // A Flush may be the first command of all.
    for nsid in ["1", "2", "3", "4"] {
        pair.host("flush", &["--namespace-id", nsid]);
    }
    let data = pair.data("data", 64);
    let back = pair.file("back").to_str().expect("temporary names are UTF-8").to_owned();
    for (nsid, prinfo) in [("1", "0xd"), ("2", "0xd"), ("3", "0xd"), ("4", "0")] {
        let place =
            ["--namespace-id", nsid, "--start-block", "1000", "--block-count", "63", "--ref-tag", "1000"];
        pair.host("write", &[&place[..], &["--prinfo", prinfo, "--data", &data]].concat());
        pair.host("read", &[&place[..], &["--prinfo", prinfo, "--data", &back]].concat());
        pair.assert_same("data", "back");
        pair.host("flush", &["--namespace-id", nsid]);
    }
    pair.target.restart(Command::new(program("intact")));
    for (nsid, prinfo) in [("1", "0xd"), ("2", "0xd"), ("4", "0")] {
        let place =
            ["--namespace-id", nsid, "--start-block", "1000", "--block-count", "63", "--ref-tag", "1000"];
        pair.host("read", &[&place[..], &["--prinfo", prinfo, "--data", &back]].concat());
        pair.assert_same("data", "back");
    }
    assert!(pair.target.terminate(Duration::from_secs(10)).success());
}

#[test]
fn corruption_of_a_file_is_caught_and_located_and_the_target_lives() {
    let mut pair = Pair::start(2, |folder| file_volume(folder, "disk", PROTECTED) + &subsystem(&["disk"]));
    let data = pair.data("data", 8);
    pair.host("write", &["--start-block", "40", "--block-count", "7", "--prinfo", "0x8", "--data", &data]);
    pair.host("flush", &[]);
    let image = pair.file("disk.img");
    let mut bytes = fs::read(&image).expect("the volume is a plain image");
    assert_eq!(bytes.len(), 16 << 20);
    bytes[43 * BLOCK + 17] ^= 1;
    fs::write(&image, &bytes).expect("the image can be written");

    let back = pair.file("back").to_str().expect("temporary names are UTF-8").to_owned();
    let said = pair.refused(
        "read",
        &["--start-block", "40", "--block-count", "7", "--ref-tag", "40", "--prinfo", "0xd", "--data", &back],
    );
    assert!(said.contains("status: SCT 0x2 SC 0x82 (guard check error)"), "{said}");
    let log = pair.target.log();
    assert!(
        log.lines().any(|line| line.contains("disk") && line.contains("43") && line.contains("guard")),
        "{log}"
    );
    for (start, tag) in [("40", "40"), ("44", "44")] {
        let place = ["--start-block", start, "--block-count", "2", "--ref-tag", tag];
        pair.host("read", &[&place[..], &["--prinfo", "0xd", "--data", &back]].concat());
    }
    // Nobody else looks at the image, or changes it, while it is served.
    let pi = |arguments: &[&str]| {
        let output = Command::new(program("intact-pi")).args(arguments).arg("--file").arg(&image).output();
        let output = output.expect("intact-pi starts");
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code(), said)
    };
    for arguments in [&["verify"][..], &["inspect"], &["corrupt", "--kind", "zero"]] {
        let (status, said) = pi(arguments);
        assert!(status == Some(2) && said.contains("in use: by intact serve"), "{arguments:?}: {said}");
    }
    assert!(pair.target.terminate(Duration::from_secs(10)).success());
    let (status, said) = pi(&["verify"]);
    assert!(status == Some(1) && said.contains("block 43: "), "{said}");
}

#[test]
fn a_reload_adds_resizes_and_removes_namespaces_and_a_bad_file_changes_nothing() {
    let pair = Pair::start(3, |_| MEMORY.to_owned() + &subsystem(&["memory"]));
    let blocks = |nsid: &str| pair.blocks(nsid);
    assert_eq!(blocks("1").as_deref(), Some("4096"));

    let more = "[[volume]]\nname = \"more\"\nmemory = \"1MiB\"\n";
    pair.reload(&(MEMORY.replace("16MiB", "32MiB") + more + &subsystem(&["memory", "more"])));
    pair.until("namespace 2 exists", || blocks("2").is_some());
    assert_eq!(blocks("1").as_deref(), Some("8192"));

    let other = MEMORY.replace("16MiB", "32MiB").replace("type = 1", "type = 2");
    pair.reload(&(other + more + &subsystem(&["memory", "more"])));
    pair.until("what can't change is logged", || pair.target.log().contains("at the next start"));
    assert!(pair.host("identify", &[]).contains("protection: type 1"));

    pair.reload("nonsense = 1\n");
    pair.until("the mistake is logged", || pair.target.log().contains("nonsense"));
    assert_eq!((blocks("1").as_deref(), blocks("2").as_deref()), (Some("8192"), Some("256")));

    pair.reload(&(MEMORY.replace("16MiB", "32MiB") + &subsystem(&["memory"])));
    pair.until("namespace 2 is gone", || blocks("2").is_none());
    assert_eq!(blocks("1").as_deref(), Some("8192"));
}

#[test]
fn a_reload_that_fails_at_its_last_volume_changes_nothing() {
    // No file may be longer than 24 MiB.
    let mut command = Command::new("prlimit");
    command.arg("--fsize=25165824").arg(program("intact"));
    let config = |folder: &Path, size: &str, last: &str, vast: &str| {
        file_volume(folder, "disk", PROTECTED).replace("16MiB", size)
            + &file_volume(folder, "interleaved", INTERLEAVED).replace("16MiB", size)
            + &MEMORY.replace("16MiB", size)
            + &file_volume(folder, "last", PROTECTED).replace("16MiB", last)
            + &MEMORY.replace("memory\"", "vast\"").replace("16MiB", vast)
    };
    let all = ["disk", "interleaved", "memory", "last", "vast"];
    let pair =
        Pair::start_by(command, 5, |folder| config(folder, "16MiB", "16MiB", "16MiB") + &subsystem(&all));
    let folder = pair.folder.path();
    let blocks = || ["1", "2", "3", "4", "5"].map(|nsid| pair.blocks(nsid));
    let files = || {
        let entries = fs::read_dir(folder).expect("the folder of volumes can be read");
        let mut files: Vec<_> = entries
            .map(|entry| {
                let path = entry.expect("the folder of volumes can be read").path();
                (path.file_name().map(ToOwned::to_owned), fs::metadata(&path).map(|file| file.len()).ok())
            })
            .collect();
        files.sort();
        files
    };
    let (before, files_before) = (blocks(), files());
    assert_eq!(before, [(); 5].map(|()| Some("4096".to_owned())));

    let new = file_volume(folder, "new", PROTECTED);
    let too_long = new.replace("new", "long").replace("16MiB", "32MiB");
    let names = [&all[..], &["new"]].concat();
    for (volume, text) in [
        ("last", config(folder, "20MiB", "32MiB", "20MiB") + &new + &subsystem(&names)),
        ("vast", config(folder, "20MiB", "20MiB", "524288TiB") + &new + &subsystem(&names)),
        ("long", config(folder, "20MiB", "20MiB", "20MiB") + &new + &too_long + &subsystem(&names)),
    ] {
        pair.reload(&text);
        let failure = format!("configuration not changed: volume \"{volume}\"");
        pair.until(&failure, || pair.target.log().contains(&failure));
        assert_eq!((blocks(), files()), (before.clone(), files_before.clone()), "{}", pair.target.log());
    }

    pair.reload(&(config(folder, "20MiB", "20MiB", "20MiB") + &new + &subsystem(&names)));
    pair.until("namespace 6 exists", || pair.blocks("6").is_some());
    assert_eq!(blocks(), [(); 5].map(|()| Some("5120".to_owned())));
}

#[test]
fn a_reload_that_can_not_have_what_files_need_is_refused_and_changes_nothing() {
    let pair = Pair::start(7, |_| format!("[reactor]\ncores = 2\n{MEMORY}{}", subsystem(&["memory"])));
    let with_file = format!(
        "[reactor]\ncores = 2\n{MEMORY}{}{}",
        file_volume(pair.folder.path(), "disk", ""),
        subsystem(&["memory", "disk"])
    );
    let open = pair.target.usage().descriptors;
    let limit = |descriptors: usize| {
        let (pid, limit) = (pair.target.pid().to_string(), format!("--nofile={descriptors}:"));
        let status = Command::new("prlimit").args(["--pid", &pid, &limit]).status();
        assert!(status.expect("prlimit starts").success());
    };
    let count = |what: &str| pair.target.whole_log().matches(what).count();
    let mut refusals = Vec::new();
    for more in 0.. {
        assert!(more < 20, "{refusals:?}");
        limit(open + more - 2);
        let before = count("configuration ");
        pair.reload(&with_file);
        pair.until("the reload is over", || count("configuration ") > before);
        if count("configuration read again") > 0 {
            break;
        }
        // All of it: what is wrong with the configuration's file is said a line each.
        let log = pair.target.whole_log();
        let said = log.rsplit_once("configuration not changed:").map_or(log.as_str(), |(_, said)| said);
        assert!(said.to_lowercase().contains("too many open files"), "{said}");
        refusals.push(said.to_owned());
        assert!(!pair.file("disk.img").exists(), "{said}");
        limit(1024);
        assert!(pair.blocks("2").is_none() && pair.blocks("1").is_some(), "{said}");
    }
    // First not even the configuration could be read; at last the file could be had, and the rings of one reactor or
    // both could not.
    let refused = |what: &str| refusals.iter().filter(|said| said.contains(what)).count();
    let counts = ["config.toml", "volume \"disk\"", "raise ulimit -n"].map(refused);
    assert!(counts[0] >= 1 && counts[1] >= 1 && counts[2] >= 2, "{refusals:?}");
    limit(1024);
    let data = pair.data("data", 8);
    let back = pair.file("back").to_str().expect("temporary names are UTF-8").to_owned();
    for (nsid, prinfo) in [("1", "0x8"), ("2", "0")] {
        let place = ["--namespace-id", nsid, "--block-count", "7", "--prinfo", prinfo];
        pair.host("write", &[&place[..], &["--data", &data]].concat());
        pair.host("read", &[&place[..], &["--data", &back]].concat());
        pair.assert_same("data", "back");
    }
}

#[test]
fn a_file_goes_from_volume_to_volume_while_a_host_works_with_it() {
    const UUID: &str = "uuid = \"00000000-0000-0000-0000-000000000009\"";
    let config = |folder: &Path, names: [&str; 2], rest: &str| {
        let [first, second] = names.map(|name| {
            let image = format!("{}/{}.img", folder.display(), if name.starts_with('a') { "a" } else { "b" });
            let uuid = UUID.replace('9', if name.starts_with('a') { "9" } else { "8" });
            format!("[[volume]]\nname = \"{name}\"\nfile = \"{image}\"\nsize = \"16MiB\"\n{uuid}\n{rest}\n")
        });
        format!("[reactor]\ncores = 2\n{first}{second}{}", subsystem(&names))
    };
    let mut pair = Pair::start(9, |folder| config(folder, ["a0", "b0"], PROTECTED));
    let folder = pair.folder.path().to_owned();
    let count = |what: &str| pair.target.whole_log().matches(what).count();
    let reload = |text: &str| {
        let (before, start) = (count("configuration "), Instant::now());
        pair.reload(text);
        pair.until("the reload is over", || count("configuration ") > before);
        // Waiting for another process to let go of the file takes five seconds.
        assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    };
    let mut worker = pair.start_load("127.0.33.9", "8", "4");
    let mut rounds = 0;
    while worker.try_wait().expect("it is this process's child").is_none() {
        rounds += 1;
        // Each file has another volume, and now and then both volumes have changed places in the configuration's eyes.
        let (a, b) = (format!("a{}", rounds % 3), format!("b{}", rounds % 2));
        reload(&config(&folder, [&a, &b], PROTECTED));
    }
    let output = worker.wait_with_output().expect("it is this process's child");
    assert!(output.status.success(), "{output:?}\n{}", pair.target.log());
    assert!(rounds >= 5 && count("configuration not changed") == 0, "{}", pair.target.log());

    let data = pair.data("data", 8);
    let back = pair.file("back").to_str().expect("temporary names are UTF-8").to_owned();
    let place = ["--block-count", "7", "--prinfo", "0x8"];
    pair.host("write", &[&place[..], &["--data", &data]].concat());
    // What can't be is said at once, and changes nothing.
    let names = ["a7", "b7"];
    reload(&config(&folder, names, "protection = { type = 2 }"));
    fs::hard_link(folder.join("a.img"), folder.join("c.img")).expect("a file may have two names");
    reload(&config(&folder, names, PROTECTED).replace("/b.img", "/c.img"));
    reload(&config(&folder, names, PROTECTED).replace("0009", "0007"));
    let log = pair.target.whole_log();
    let said: Vec<&str> = log.lines().filter(|line| line.contains("configuration not changed")).collect();
    let expected = [
        "has it with other blocks or another protection; needed: a configuration without volume",
        "volume \"b7\": volume \"a7\" has its file, by this name or another; needed: a file of its own",
        "its UUID is 00000000-0000-0000-0000-000000000009, and the volume has 00000000-0000-0000-0000-000000000007",
    ];
    assert_eq!(said.len(), expected.len(), "{said:?}");
    assert!(said.iter().zip(expected).all(|(said, expected)| said.contains(expected)), "{said:?}");
    pair.host("read", &[&place[..], &["--data", &back]].concat());
    pair.assert_same("data", "back");
    // As read-only it goes on at once.
    reload(&config(&folder, names, &format!("read_only = true\n{PROTECTED}")));
    let said = pair.refused("write", &[&place[..], &["--data", &data]].concat());
    assert!(said.contains("SCT 0x0 SC 0x20 (namespace is write protected)"), "{said}");
    pair.target.restart(Command::new(program("intact")));
    pair.host("read", &[&place[..], &["--data", &back]].concat());
    pair.assert_same("data", "back");
}

#[test]
fn volumes_come_and_go_while_hosts_work_with_others() {
    // Each time others, whose numbers those before them had.
    let names = |round: usize| [format!("a{round}"), format!("b{}", round % 3), format!("c{round}")];
    let config = |folder: &Path, round: usize| {
        let names = names(round);
        let mut volumes = MEMORY.to_owned() + &file_volume(folder, &names[1], PROTECTED);
        for name in [&names[0], &names[2]] {
            volumes += &format!("[[volume]]\nname = \"{name}\"\nmemory = \"{}MiB\"\n", 1 + round % 4);
        }
        let all: Vec<&str> = std::iter::once("memory").chain(names.iter().map(String::as_str)).collect();
        format!("[reactor]\ncores = 2\n{volumes}{}", subsystem(&all))
    };
    let pair = Pair::start(8, |folder| config(folder, 0));
    let data = pair.data("data", 8);
    let back = pair.file("back").to_str().expect("temporary names are UTF-8").to_owned();
    let mut worker = pair.start_load("127.0.33.8", "16", "6");
    let mut rounds = 0;
    while worker.try_wait().expect("it is this process's child").is_none() {
        for nsid in ["2", "3", "4"] {
            let prinfo = if nsid == "3" { "0x8" } else { "0" };
            let place = ["--namespace-id", nsid, "--block-count", "7", "--prinfo", prinfo];
            pair.host("write", &[&place[..], &["--data", &data]].concat());
            pair.host("read", &[&place[..], &["--data", &back]].concat());
            pair.assert_same("data", "back");
        }
        rounds += 1;
        let reloads = || pair.target.whole_log().matches("configuration read again").count();
        let before = reloads();
        pair.reload(&config(pair.folder.path(), rounds));
        pair.until("the configuration is read", || reloads() > before);
    }
    let output = worker.wait_with_output().expect("it is this process's child");
    assert!(output.status.success(), "{output:?}\n{}", pair.target.log());
    assert!(rounds >= 3, "{rounds} rounds are too few");
    let log = pair.target.whole_log();
    assert!(!log.contains("can't use a volume"), "{log}");
}

#[test]
fn several_reactors_serve_several_queues_and_are_counted() {
    const METRICS: &str = "127.0.31.4:9420";
    let pair = Pair::start(4, |_| {
        format!(
            "[reactor]\ncores = 2\n[metrics]\naddress = \"{METRICS}\"\n{MEMORY}{}",
            subsystem(&["memory"])
        )
    });
    let queues = ["--queues", "4", "--qd", "16", "--bs", "4096", "--time", "1"];
    pair.host("bench", &[&["--rw", "randrw", "--pi", "full", "--verify"][..], &queues].concat());
    pair.host("bench", &[&["--rw", "randread", "--pi", "pract"][..], &queues].concat());

    let mut stream = TcpStream::connect(METRICS).expect("metrics are served");
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("a request can be sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("metrics are text");
    for reactor in ["0", "1"] {
        let sample = format!("intact_nvme_commands_total{{reactor=\"{reactor}\"}} ");
        let value =
            text.lines().find_map(|line| line.strip_prefix(&sample)).unwrap_or_else(|| panic!("{text}"));
        assert_ne!(value, "0", "reactor {reactor} served commands\n{text}");
    }
}

#[test]
fn a_target_holds_the_memory_that_its_commands_need_and_not_what_they_might() {
    const MIB: u64 = 1 << 20;
    let pair = Pair::start(6, |folder| {
        let disk = file_volume(folder, "disk", PROTECTED).replace("16MiB", "256MiB");
        format!("[reactor]\ncores = 2\n{disk}{}", subsystem(&["disk"]))
    });
    let used = |what: &str, limit: u64| {
        let usage = pair.target.usage();
        println!("{what}: {} MiB resident, {} MiB pinned", usage.resident / MIB, usage.pinned / MIB);
        assert!(usage.resident < limit * MIB, "{what}: {usage:?}, and less than {limit} MiB are expected");
        usage
    };
    let bench = |bs: &str, qd: &str| {
        pair.host("bench", &["--rw", "randrw", "--bs", bs, "--qd", qd, "--queues", "4", "--time", "1"]);
    };
    used("nobody connected", 32);
    bench("4096", "32");
    let small = used("4 queues of 32 commands of 4 KiB", 64);
    if nix::unistd::geteuid().is_root() {
        // Both reactors' buffers, and what they merge metadata in.
        assert!((4 * MIB..32 * MIB).contains(&small.pinned), "used buffers are registered: {small:?}");
    }
    bench("1048576", "8");
    // 32 commands of 1 MiB and their metadata, in blocks of powers of two.
    let large = used("4 queues of 8 commands of 1 MiB", 192);
    assert!(large.resident > small.resident, "{small:?}, {large:?}");
}

#[test]
fn what_keeps_a_target_from_starting_is_said_with_the_right_status() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let run = |subcommand: &str, text: &str| {
        let path = folder.path().join("c.toml");
        fs::write(&path, text).expect("the temporary folder can be written");
        let output =
            Command::new(program("intact")).arg(subcommand).arg(&path).output().expect("intact starts");
        (
            output.status.code(),
            String::from_utf8_lossy(&output.stderr).replace(&*path.to_string_lossy(), "FILE"),
        )
    };
    let broken = "[nvme]\nprot = 4420\n";
    for subcommand in ["check", "serve"] {
        let (status, said) = run(subcommand, broken);
        assert_eq!(status, Some(2));
        assert_eq!(
            said,
            "FILE:2:1: nvme.prot: unknown key; did you mean `port`? Allowed: port, serial, hosts, subsystem\n"
        );
    }
    // Whatever it is that too few descriptors are left for.
    let config = format!("[device]\naddress = \"127.0.31.9\"\n{}", file_volume(folder.path(), "disk", ""));
    fs::write(folder.path().join("c.toml"), config + &subsystem(&["disk"]))
        .expect("the folder can be written");
    let mut sentences = Vec::new();
    for descriptors in 8.. {
        assert!(descriptors < 64, "{sentences:?}");
        let mut child = Command::new("prlimit")
            .arg(format!("--nofile={descriptors}"))
            .arg(program("intact"))
            .arg("serve")
            .arg(folder.path().join("c.toml"))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("prlimit starts");
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        stdout.read_line(&mut line).expect("stdout is text");
        if line.starts_with("ready ") {
            child.kill().expect("it is this process's child");
            child.wait().expect("it is this process's child");
            break;
        }
        let output = child.wait_with_output().expect("it is this process's child");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{descriptors}: {said}");
        assert!(said.to_lowercase().contains("too many open files"), "{descriptors}: {said}");
        sentences.push(said);
    }
    assert!(sentences.iter().any(|said| said.contains("raise ulimit -n")), "{sentences:?}");
    // An address of documentation, which no machine has.
    let (status, said) =
        run("serve", &format!("[device]\naddress = \"192.0.2.1\"\n{MEMORY}{}", subsystem(&["memory"])));
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("192.0.2.1"), "{said}");
}
