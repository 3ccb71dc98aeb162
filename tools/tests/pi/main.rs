//! `intact-pi` as a person runs it: images made, damaged, found out; and what it says and leaves of nonsense. Nothing may hang.

mod files;
mod images;
mod interrupts;
mod kinds;
mod measures;
mod output;
mod readme;
mod sentences;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::channel;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// What no run takes, unless it hangs.
const LONG: Duration = Duration::from_secs(120);

/// The UUID of volumes that nobody serves.
const UUID: &str = "00000000-0000-0000-0000-000000000005";

/// `intact-pi` in `folder`, about to run.
fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_intact-pi"));
    command.current_dir(folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Waits until a program ends.
///
/// # Panics
/// When it hangs; it is killed then.
fn finish(child: Child) -> Output {
    let pid = pid(&child);
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(child.wait_with_output()));
    match receiver.recv_timeout(LONG) {
        Ok(output) => output.expect("a child can be waited for"),
        Err(_) => {
            kill(pid, Signal::SIGKILL).expect("the child is there");
            panic!("intact-pi hangs");
        }
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().expect("a process number"))
}

/// Runs `intact-pi` in `folder` with these words.
fn run<W: AsRef<OsStr>>(folder: &Path, words: &[W]) -> Output {
    finish(command(folder).args(words).spawn().expect("intact-pi was built"))
}

/// Runs `intact-pi` in `folder` with the words of `line`.
fn pi(folder: &Path, line: &str) -> Output {
    run(folder, &line.split_whitespace().collect::<Vec<_>>())
}

/// What a run printed, and its exit status.
fn text(output: Output) -> (i32, String) {
    let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
    (output.status.code().unwrap_or_else(|| panic!("it ended by a signal: {text}")), text)
}

/// What [`pi`] printed, and its exit status.
fn said(folder: &Path, line: &str) -> (i32, String) {
    text(pi(folder, line))
}

/// Asserts that a line is refused, with these words.
fn refused(folder: &Path, line: &str, expected: &str) {
    let (status, text) = said(folder, line);
    assert_eq!(status, 2, "{line}: {text}");
    assert!(text.contains(expected), "{line}: {text}");
}

/// Asserts that a line does what it says; returns what it printed.
fn done(folder: &Path, line: &str) -> String {
    let (status, text) = said(folder, line);
    assert_eq!(status, 0, "{line}: {text}");
    text
}

/// A folder with `disk.img`: so many blocks without structure.
fn folder(blocks: usize, block_size: usize) -> (TempDir, Vec<u8>) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut random = fastrand::Rng::with_seed(7);
    let image: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(blocks * block_size).collect();
    fs::write(folder.path().join("disk.img"), &image).expect("room for an image");
    (folder, image)
}

/// The names in a folder, sorted.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> =
        entries.map(|entry| entry.expect("a folder").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// The file that is not complete yet, once there is one.
fn unfinished(folder: &Path) -> PathBuf {
    let found = until(|| names(folder).into_iter().find(|name| name.starts_with("intact-pi-unfinished-")));
    folder.join(found)
}

/// What `look` finds, once it does.
///
/// # Panics
/// When that takes too long.
fn until<T>(look: impl Fn() -> Option<T>) -> T {
    for _ in 0..LONG.as_millis() {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("what was waited for did not come");
}
