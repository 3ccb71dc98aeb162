//! What ends early leaves nothing half-done without saying so.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use nix::sys::signal::{Signal, kill};
use tempfile::TempDir;

use super::{UUID, finish, names, pid, unfinished, until};

/// A folder with an image that takes long and little room.
fn long() -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let image = File::create(folder.path().join("disk.img")).expect("room");
    image.set_len(1 << 40).expect("a hole takes no room");
    folder
}

/// Starts `intact-pi` by another program, `env` or a shell, that sets up its signals.
fn start(folder: &Path, by: &[&str], line: &str) -> Child {
    Command::new(by[0])
        .args(&by[1..])
        .arg(env!("CARGO_BIN_EXE_intact-pi"))
        .args(line.split_whitespace())
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("there are env and sh")
}

/// Whoever runs the tests may ignore signals.
const DEFAULT: [&str; 2] = ["env", "--default-signal=HUP,INT,TERM"];

fn generate() -> String {
    format!("generate --file disk.img --block-size 4096 --type 1 --uuid {UUID}")
}

#[test]
fn a_signal_leaves_no_file_and_ends_the_program_as_it_ends_others() {
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let folder = long();
        let child = start(folder.path(), &DEFAULT, &generate());
        unfinished(folder.path());
        kill(pid(&child), signal).expect("it runs");
        let output = finish(child);
        assert_eq!(output.status.signal(), Some(signal as i32), "{output:?}");
        let text = String::from_utf8(output.stderr).expect("text");
        assert_eq!(text, format!("intact-pi: ended by {signal}: no FILE.pi of disk.img was made\n"));
        assert_eq!(names(folder.path()), ["disk.img"]);
    }
}

#[test]
fn a_signal_that_is_ignored_ends_nothing() {
    let folder = long();
    let ignoring = ["sh", "-c", "trap '' HUP INT; exec \"$0\" \"$@\""];
    let mut child = start(folder.path(), &ignoring, &generate());
    let path = unfinished(folder.path());
    let written = || fs::metadata(&path).expect("it is not complete").blocks();
    for signal in [Signal::SIGHUP, Signal::SIGINT] {
        kill(pid(&child), signal).expect("it runs");
        let before = written();
        until(|| (written() > before + 1024).then_some(()));
    }
    assert!(child.try_wait().expect("a child").is_none());
    kill(pid(&child), Signal::SIGTERM).expect("it runs");
    assert_eq!(finish(child).status.signal(), Some(Signal::SIGTERM as i32));
    assert_eq!(names(folder.path()), ["disk.img"]);
}

#[test]
fn an_image_that_is_changed_in_place_is_said_to_be_changed_in_part() {
    let folder = long();
    let line = "generate --file disk.img --layout interleaved --in-place --block-size 4088 --type 1";
    let child = start(folder.path(), &DEFAULT, line);
    let image = folder.path().join("disk.img");
    until(|| (fs::metadata(&image).expect("it is there").blocks() > 0).then_some(()));
    kill(pid(&child), Signal::SIGINT).expect("it runs");
    let output = finish(child);
    assert_eq!(output.status.signal(), Some(Signal::SIGINT as i32), "{output:?}");
    let text = String::from_utf8(output.stderr).expect("text");
    assert!(text.starts_with("intact-pi: ended by SIGINT: the first "), "{text}");
    assert!(
        text.ends_with(" of 268435456 blocks in disk.img have new protection information; do it again\n"),
        "{text}"
    );
}

/// Makes a `FILE.pi` while `change` happens, and asserts that it is not made.
fn changed(change: impl Fn(&File)) {
    let folder = long();
    let image = File::options().write(true).open(folder.path().join("disk.img")).expect("it is there");
    image.set_len(512 << 20).expect("it may be shorter");
    // The time of its last change is past: a file system's clock has ticks.
    image.set_times(fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH)).expect("ours");
    let child = start(folder.path(), &DEFAULT, &generate());
    unfinished(folder.path());
    change(&image);
    let output = finish(child);
    let text = String::from_utf8(output.stderr).expect("text");
    let expected = "intact-pi: disk.img was changed by something else while it was read; do it again when nothing does\n";
    assert_eq!((output.status.code(), text.as_str()), (Some(2), expected));
    assert_eq!(names(folder.path()), ["disk.img"]);
}

#[test]
fn an_image_that_somebody_changes_meanwhile_is_not_taken_for_what_it_was() {
    changed(|image| image.set_len(1 << 20).expect("it may be shorter"));
    changed(|image| image.set_len(0).expect("it may be empty"));
    changed(|image| image.set_len(1 << 30).expect("it may be longer"));
    changed(|image| image.write_all_at(b"x", 0).expect("it may be written to"));
}
