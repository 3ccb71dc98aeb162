//! Vectors and measurements.

use std::fs;
use std::process::Stdio;

use super::{command, finish, pi, refused, said, text};

#[test]
fn vectors_are_counted_and_mismatches_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let good =
        r#"{"id":"A","suite":"scsi","op":"readcap16","case":"","cmd":{"type":1},"expect":{"byte12":1}}"#;
    let bad = good.replace(r#""id":"A""#, r#""id":"B""#).replace(r#""byte12":1"#, r#""byte12":2"#);
    fs::write(folder.path().join("good"), format!("{good}\n{good}\n")).expect("room");
    fs::write(folder.path().join("bad"), format!("{good}\n{bad}\n")).expect("room");
    assert_eq!(said(folder.path(), "check-vectors good"), (0, "2 passed, 0 failed\n".to_owned()));
    let expected = "B: byte12: expected 0x2, got 0x1\n1 passed, 1 failed\n".to_owned();
    assert_eq!(said(folder.path(), "check-vectors bad"), (1, expected));
}

#[test]
fn an_unknown_kernel_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut bench = command(folder.path());
    bench.args(["bench", "--case", "none"]).env("T10PI_KERNEL", "magic");
    let output = finish(bench.spawn().expect("intact-pi was built"));
    let text = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2));
    assert!(text.contains("T10PI_KERNEL: unknown checksum kernel \"magic\", there are avx512"), "{text}");
}

#[test]
fn a_bench_prints_one_json_object_for_each_case() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = pi(folder.path(), "bench --json --rounds 1 --milliseconds 1 --case 4096+8");
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).expect("text");
    let rows: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect();
    assert_eq!(rows.len(), 12, "{text}");
    for row in &rows {
        assert!(row["case"].is_string() && row["bytes"].as_u64() > Some(0), "{row}");
        assert!(
            row["ours_gb_s"].as_f64() > Some(0.0) && row["peers"]["memcpy"].as_f64() > Some(0.0),
            "{row}"
        );
    }
    let (status, text) = said(folder.path(), "bench --rounds 1 --milliseconds 1 --case raw");
    assert!(status == 0 && text.contains("raw crc16, 512 B"), "{text}");
}

#[test]
fn lines_that_are_no_text_and_files_without_vectors_are_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    fs::write(folder.join("odd"), b"\n{}\n{\"id\":\"\xff\"}\n").expect("room");
    let (status, text) = said(folder, "check-vectors odd");
    assert_eq!(status, 1);
    assert_eq!(
        text,
        "line 2: the vector lacks suite\nline 3: not UTF-8 behind its first 7 bytes\n0 passed, 2 failed\n"
    );
    fs::write(folder.join("blank"), " \n\n").expect("room");
    refused(folder, "check-vectors blank", "there are no vectors in blank");
    fs::write(folder.join("empty"), "").expect("room");
    refused(folder, "check-vectors empty", "empty is empty");
}

#[test]
fn vectors_may_come_from_standard_input_which_is_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let vector = r#"{"id":"A","suite":"scsi","op":"readcap16","cmd":{"type":1},"expect":{"byte12":1}}"#;
    fs::write(folder.path().join("good"), vector).expect("room");
    let mut check = command(folder.path());
    check
        .args(["check-vectors", "-"])
        .stdin(fs::File::open(folder.path().join("good")).expect("it is there"));
    let output = finish(check.spawn().expect("intact-pi was built"));
    assert_eq!(output.stdout, b"1 passed, 0 failed\n");
    assert_eq!(output.stderr, b"intact-pi: reading vectors from standard input\n");
    check.stdin(Stdio::null());
    let (status, text) = text(finish(check.spawn().expect("intact-pi was built")));
    assert!(status == 2 && text.contains("there are no vectors in -"), "{text}");
}
