//! A machine in trouble: a log that takes nothing, an end in the middle of something long.

#![expect(clippy::disallowed_methods, reason = "tests of real programs run in real time")]

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, pipe};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use intact_tests::target::program;
use nix::sys::signal::{Signal, kill};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use tempfile::TempDir;

use super::peer::Peer;
use super::world::{NQN, PORT, addresses};

/// A target whose standard error is `log`.
fn serve(config: &Path, log: Stdio) -> Child {
    let mut command = Command::new(program("intact"));
    command.arg("serve").arg(config).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    command.spawn().expect("the program can be started")
}

fn terminate(child: &Child) {
    let pid = Pid::from_raw(child.id().try_into().expect("a process id is positive"));
    kill(pid, Signal::SIGTERM).expect("the child has not been waited for");
}

/// Waits for the end of a target, and kills it when it does not come.
fn end_of(child: &mut Child, within: Duration) -> Option<ExitStatus> {
    let until = Instant::now() + within;
    while Instant::now() < until {
        if let Some(status) = child.try_wait().expect("the child is this process's") {
            return Some(status);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

#[test]
fn a_target_whose_log_takes_nothing_serves_on() {
    let folder = TempDir::new().unwrap();
    let (reader, gone) = pipe().unwrap();
    drop(reader);
    // Nobody reads, and there is no room for a line.
    let (_reader, stuck) = pipe().unwrap();
    let mut full = [0; 1 << 16].as_slice();
    std::io::copy(&mut full, &mut &stuck).unwrap();
    let disk = OpenOptions::new().write(true).open("/dev/full").unwrap();
    let logs: [(&str, Stdio); 3] = [
        ("a pipe without a reader", gone.into()),
        ("a full pipe", stuck.into()),
        ("a full disk", disk.into()),
    ];
    for (what, log) in logs {
        let address = addresses();
        let config = folder.path().join("c.toml");
        let text = format!(
            "[device]\naddress = \"{address}\"\n[[volume]]\nname = \"a\"\nmemory = \"1MiB\"\n\
             [[nvme.subsystem]]\nnqn = \"{NQN}\"\nallow_any_host = true\n\
             [[nvme.subsystem.namespace]]\nvolume = \"a\"\n"
        );
        fs::write(&config, text).unwrap();
        let mut target = serve(&config, log);
        let mut ready = String::new();
        BufReader::new(target.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert!(ready.starts_with("ready "), "{what}: {ready}");
        let [a, b, c, d] = address.octets();
        let local = [a, b, c, d + 1].into();
        // Each controller that comes and goes is a line or two.
        for _ in 0..3 {
            let mut peer = Peer::open(local, SocketAddr::new(address.into(), PORT), 1 << 16);
            let (admin, _) = peer.admin(0);
            peer.disconnect(admin);
            peer.await_departure();
        }
        assert_eq!(target.try_wait().unwrap(), None, "{what}");
        terminate(&target);
        let status = end_of(&mut target, Duration::from_secs(15));
        assert!(status.is_some_and(|status| status.success()), "{what}: {status:?}");
    }
}

#[test]
fn a_target_that_fills_a_file_ends_when_it_is_told_to() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("c.toml");
    let file = folder.path().join("disk.img");
    let device = format!("[device]\naddress = \"{}\"\n", addresses());
    let volume = "[[volume]]\nname = \"a\"\nfile = \"disk.img\"\nsize = \"1TiB\"\n\
                  protection = { type = 1, layout = \"interleaved\" }\n";
    for at_start in [true, false] {
        fs::write(&config, format!("{device}{}", if at_start { volume } else { "" })).unwrap();
        let mut target = serve(&config, Stdio::null());
        if !at_start {
            let mut ready = String::new();
            BufReader::new(target.stdout.take().unwrap()).read_line(&mut ready).unwrap();
            assert!(ready.starts_with("ready "), "{ready}");
            fs::write(&config, format!("{device}{volume}")).unwrap();
            let pid = Pid::from_raw(target.id().try_into().unwrap());
            kill(pid, Signal::SIGHUP).unwrap();
        }
        let until = Instant::now() + Duration::from_secs(20);
        while fs::metadata(&file).map_or(0, |file| file.len()) < 1 << 20 {
            assert!(Instant::now() < until, "nothing is filled");
            std::thread::sleep(Duration::from_millis(1));
        }
        terminate(&target);
        let status = end_of(&mut target, Duration::from_secs(15));
        assert!(status.is_some_and(|status| status.success()), "{status:?}");
        assert!(!file.exists(), "what was made in vain is left behind");
    }
}

#[test]
fn a_configuration_from_a_pipe_is_read_only_once() {
    let folder = TempDir::new().unwrap();
    let config = folder.path().join("c.toml");
    mkfifo(&config, Mode::S_IRWXU).unwrap();
    let log = folder.path().join("log");
    let mut target = serve(&config, File::create(&log).unwrap().into());
    fs::write(&config, format!("[device]\naddress = \"{}\"\n", addresses())).unwrap();
    let mut ready = String::new();
    BufReader::new(target.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    assert!(ready.starts_with("ready "), "{ready}");
    // To open the pipe again would wait for somebody who writes.
    kill(Pid::from_raw(target.id().try_into().unwrap()), Signal::SIGHUP).unwrap();
    let until = Instant::now() + Duration::from_secs(15);
    while !fs::read_to_string(&log).unwrap().contains("configuration not changed") {
        if Instant::now() > until {
            let _ = target.kill();
            panic!("nothing is said of a pipe");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    terminate(&target);
    let status = end_of(&mut target, Duration::from_secs(15));
    assert!(status.is_some_and(|status| status.success()), "{status:?}");
}

#[test]
fn output_that_nobody_takes_is_an_error_and_no_panic() {
    let folder = TempDir::new().unwrap();
    let [good, bad] = ["good.toml", "bad.toml"].map(|name| folder.path().join(name));
    fs::write(&good, "[reactor]\ncores = 1\n").unwrap();
    fs::write(&bad, "[reactor]\ncores = 0\n").unwrap();
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    let check = |config: &Path, out: Stdio, log: Stdio| {
        let mut command = Command::new(program("intact"));
        command.arg("check").arg(config).stdin(Stdio::null()).stdout(out).stderr(log).output().unwrap()
    };
    let output = check(&good, full().into(), Stdio::piped());
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.starts_with("intact: can't write to stdout: "), "{said}");
    let output = check(&bad, Stdio::null(), full().into());
    assert_eq!(output.status.code(), Some(2));
}
