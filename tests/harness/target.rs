//! A running `intact serve`: starts it, waits until it accepts connections, ends it gently or not, samples what it uses.

#![expect(clippy::disallowed_methods, reason = "the harness drives real programs in real time")]

use std::{
    fs::{self, File},
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{self, Signal},
    unistd::Pid,
};
use tempfile::TempDir;

/// How long a target may take until all its listeners are ready.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// A target process. Dropping it kills it.
#[derive(Debug)]
pub struct Target {
    child: Child,
    folder: TempDir,
    ready: Vec<String>,
}

/// What a process holds of the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Resident memory, in bytes.
    pub resident: u64,
    /// Memory that the kernel keeps resident for devices and io_uring, in bytes.
    pub pinned: u64,
    /// Open file descriptors.
    pub descriptors: usize,
}

/// The program `name` of this workspace, built with the same profile as this test, or from `INTACT_BIN_DIR`.
///
/// # Panics
/// When it has not been built, with the command that builds it.
#[must_use]
pub fn program(name: &str) -> PathBuf {
    let folder = std::env::var_os("INTACT_BIN_DIR").map_or_else(
        || {
            let test = std::env::current_exe().expect("a running test has a path");
            // Tests lie in deps/, a folder below the programs.
            test.parent().and_then(|deps| deps.parent()).expect("a test lies in the build folder").to_owned()
        },
        PathBuf::from,
    );
    let path = folder.join(name);
    assert!(
        path.exists(),
        "{} is missing: build it with `cargo build -p intact -p intact-tools`, or set INTACT_BIN_DIR",
        path.display()
    );
    path
}

/// `intact` with the verbs provider, as `./test.sh interop` builds it, or from `INTACT_VERBS_BIN`.
///
/// # Panics
/// When it has not been built, with the command that builds it.
#[must_use]
pub fn verbs_program() -> PathBuf {
    std::env::var_os("INTACT_VERBS_BIN").map_or_else(|| built_with_verbs("intact"), PathBuf::from)
}

/// A program that `./test.sh verbs` builds with the verbs provider.
///
/// # Panics
/// When it has not been built, with the command that builds it.
#[must_use]
pub fn built_with_verbs(name: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a running test has a path");
    // Tests lie in PROFILE/deps/ of the build folder.
    let folder = test.ancestors().nth(3).expect("a test lies in the build folder").join("verbs");
    let path = folder.join(name);
    assert!(path.exists(), "{} is missing: `./test.sh verbs` builds it", path.display());
    path
}

impl Target {
    /// Starts a target with the text of a configuration, by `command`: one for the program [`program`] gives, in a
    /// network namespace or not. Waits for `listeners` lines that say it accepts connections.
    ///
    /// # Panics
    /// When it ends, or is not ready in time: with its log.
    #[must_use]
    pub fn start(command: Command, config: &str, listeners: usize) -> Self {
        let folder = TempDir::new().expect("a temporary folder can be made");
        fs::write(folder.path().join("config.toml"), config).expect("the temporary folder can be written");
        let (child, lines) = spawn(command, folder.path());
        let mut target = Self { child, folder, ready: Vec::new() };
        target.wait_until_ready(&lines, listeners);
        target
    }

    /// Kills it if it runs, and starts it again with the same configuration.
    ///
    /// # Panics
    /// As [`Self::start`].
    pub fn restart(&mut self, command: Command) {
        self.kill();
        let (child, lines) = spawn(command, self.folder.path());
        self.child = child;
        let listeners = std::mem::take(&mut self.ready).len();
        self.wait_until_ready(&lines, listeners);
    }

    fn wait_until_ready(&mut self, lines: &Receiver<String>, listeners: usize) {
        let deadline = Instant::now() + READY_TIMEOUT;
        while self.ready.len() < listeners {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => self.ready.extend(line.strip_prefix("ready ").map(str::to_owned)),
                Err(RecvTimeoutError::Timeout) => {
                    panic!(
                        "ready after {READY_TIMEOUT:?}: {:?}, wanted {listeners}\n{}",
                        self.ready,
                        self.log()
                    );
                }
                Err(RecvTimeoutError::Disconnected) => {
                    let status = self.child.wait();
                    panic!("the target ended ({status:?}) before it was ready\n{}", self.log());
                }
            }
        }
    }

    /// The listeners, such as `nvme rdma 10.77.0.1:4420`.
    #[must_use]
    pub fn ready(&self) -> &[String] {
        &self.ready
    }

    /// Kills it as a crash does.
    pub fn kill(&mut self) {
        // Either may fail only when it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end, and waits up to `timeout`.
    ///
    /// # Panics
    /// When it has not ended by then, with its log.
    pub fn terminate(&mut self, timeout: Duration) -> ExitStatus {
        self.signal(Signal::SIGTERM);
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(status) = self.child.try_wait().expect("the child is this process's") {
                return status;
            }
            assert!(
                Instant::now() < deadline,
                "the target did not end within {timeout:?} of SIGTERM\n{}",
                self.log()
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Gives it another configuration and asks it to read that.
    pub fn reload(&self, config: &str) {
        fs::write(self.folder.path().join("config.toml"), config)
            .expect("the temporary folder can be written");
        self.signal(Signal::SIGHUP);
    }

    fn signal(&self, signal: Signal) {
        signal::kill(self.pid(), signal)
            .expect("the target is this process's child and has not been waited for");
    }

    /// Its process.
    ///
    /// # Panics
    /// Never: a process id is positive.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_raw(self.child.id().try_into().expect("a process id is positive and fits pid_t"))
    }

    /// What it holds now.
    ///
    /// # Panics
    /// When it has ended, with its log.
    #[must_use]
    pub fn usage(&self) -> Usage {
        let proc = PathBuf::from(format!("/proc/{}", self.child.id()));
        let sample = || {
            let status = fs::read_to_string(proc.join("status")).ok()?;
            let bytes = |key: &str| {
                let value = status.lines().find_map(|line| line.strip_prefix(key))?;
                value.trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib * 1024)
            };
            let descriptors = fs::read_dir(proc.join("fd")).ok()?.count();
            Some(Usage { resident: bytes("VmRSS:")?, pinned: bytes("VmPin:")?, descriptors })
        };
        sample().unwrap_or_else(|| panic!("the target is gone\n{}", self.log()))
    }

    /// Asserts that it runs.
    ///
    /// # Panics
    /// When it has ended, with its log.
    pub fn assert_alive(&mut self) {
        let status = self.child.try_wait().expect("the child is this process's");
        assert!(status.is_none(), "the target ended: {status:?}\n{}", self.log());
    }

    /// Everything that it logged.
    #[must_use]
    pub fn whole_log(&self) -> String {
        let text = fs::read(self.folder.path().join("log")).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// What it logged, at most the last 100 lines.
    #[must_use]
    pub fn log(&self) -> String {
        let text = self.whole_log();
        let lines: Vec<&str> = text.lines().collect();
        format!("--- target log ---\n{}", lines[lines.len().saturating_sub(100)..].join("\n"))
    }
}

/// Starts `command` on the configuration in `folder`; returns it and the lines that it prints.
fn spawn(mut command: Command, folder: &Path) -> (Child, Receiver<String>) {
    let log = File::options().create(true).append(true).open(folder.join("log"));
    let mut child = command
        .arg("serve")
        .arg(folder.join("config.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log.expect("the temporary folder can be written"))
        .spawn()
        .unwrap_or_else(|error| panic!("cannot start {command:?}: {error}"));
    let stdout = child.stdout.take().expect("standard output was piped");
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            // The receiver goes when all listeners are ready; the pipe is read on, so that the target can write.
            let _ = sender.send(line);
        }
    });
    (child, lines)
}

impl Drop for Target {
    fn drop(&mut self) {
        self.kill();
        if thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}
