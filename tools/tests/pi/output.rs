//! Standard output that takes nothing: its reader is gone, or its disk is full.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Output;

use nix::sys::signal::Signal;

use super::{UUID, command, done, finish, folder, said};

/// Runs a line whose output nobody reads.
fn unread(folder: &Path, line: &str) -> Output {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    finish(command(folder).args(line.split_whitespace()).stdout(writer).spawn().expect("intact-pi was built"))
}

#[test]
fn when_nobody_reads_on_it_ends_as_others_do_and_says_nothing() {
    let (folder, _) = folder(4096, 512);
    let folder = folder.path();
    done(folder, &format!("generate --file disk.img --block-size 512 --type 1 --uuid {UUID}"));
    for line in
        ["inspect --file disk.img --block-count 4096", "verify --file disk.img", "bench --case nosuch"]
    {
        let output = unread(folder, line);
        if line.starts_with("bench") {
            assert_eq!(output.status.code(), Some(2), "{output:?}");
        } else {
            assert_eq!(output.status.signal(), Some(Signal::SIGPIPE as i32), "{line}: {output:?}");
            assert_eq!(output.stderr, b"", "{line}");
        }
    }
}

#[test]
fn what_changes_something_does_all_of_it_unread() {
    let (folder, image) = folder(4096, 512);
    let folder = folder.path();
    let format = "--block-size 512 --type 1";
    unread(folder, &format!("insert --file disk.img --out disk.dif {format}"));
    unread(folder, &format!("strip --file disk.dif --out back.img {format}"));
    assert!(fs::read(folder.join("back.img")).expect("it was made") == image);
    unread(
        folder,
        &format!("corrupt --file disk.dif --layout interleaved {format} --kind guard --count 1500"),
    );
    let (status, text) = said(folder, &format!("verify --file disk.dif --layout interleaved {format}"));
    assert!(status == 1 && text.contains(" 1500 failing (guard 1500,"), "{text}");
}

#[test]
fn a_full_disk_behind_standard_output_is_an_error() {
    let (folder, _) = folder(8, 512);
    let folder = folder.path();
    let line = "insert --file disk.img --out disk.dif --block-size 512 --type 1";
    let full = File::options().write(true).open("/dev/full").expect("Linux has it");
    let child =
        command(folder).args(line.split_whitespace()).stdout(full).spawn().expect("intact-pi was built");
    let output = finish(child);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).expect("text");
    assert!(text.starts_with("intact-pi: can't write to standard output: No space left"), "{text}");
    done(folder, "verify --file disk.dif --layout interleaved --block-size 512 --type 1");
}
