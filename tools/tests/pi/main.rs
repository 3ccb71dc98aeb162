//! `intact-pi` as a person runs it: images made, damaged, found out; and what it says of nonsense.

use std::path::Path;
use std::process::{Command, Output};

use t10pi::{Checks, Format, Guard, PiContext, PiType, Tags};
use tempfile::TempDir;

/// Runs `intact-pi` in `folder` with the words of `line`.
fn pi(folder: &Path, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_intact-pi"))
        .args(line.split_whitespace())
        .current_dir(folder)
        .output()
        .expect("intact-pi was built")
}

/// What it printed, and its exit status.
fn said(folder: &Path, line: &str) -> (i32, String) {
    let output = pi(folder, line);
    let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
    (output.status.code().expect("it ended by itself"), text)
}

/// A folder with `disk.img`: so many blocks without structure.
fn folder(blocks: usize, block_size: usize) -> (TempDir, Vec<u8>) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut random = fastrand::Rng::with_seed(7);
    let image: Vec<u8> = std::iter::repeat_with(|| random.u8(..)).take(blocks * block_size).collect();
    std::fs::write(folder.path().join("disk.img"), &image).expect("room for an image");
    (folder, image)
}

const UUID: &str = "00000000-0000-0000-0000-000000000005";

#[test]
fn a_separate_image_is_protected_and_every_kind_of_damage_is_found() {
    for kind in ["bit", "burst", "torn", "zero", "swap", "guard", "app-tag", "ref-tag", "any"] {
        let (folder, _) = folder(600, 4096);
        let folder = folder.path();
        let line = format!(
            "generate --file disk.img --block-size 4096 --type 1 --guard crc64 --storage-tag-bits 8 \
             --storage-tag 0xA5 --app-tag 7 --metadata-size 16 --uuid {UUID}"
        );
        assert_eq!(said(folder, &line).0, 0);
        let verify = "verify --file disk.img --app-tag 7 --storage-tag 0xa5";
        let (status, text) = said(folder, verify);
        assert_eq!(status, 0, "{text}");
        assert!(text.starts_with("600 blocks: 600 good, 0 not checked (escape value), 0 failing"), "{text}");

        let (status, done) =
            said(folder, &format!("corrupt --file disk.img --kind {kind} --count 5 --seed 3"));
        assert_eq!((status, done.lines().count()), (0, 5), "{done}");
        let (status, text) = said(folder, verify);
        assert_eq!(status, 1, "{kind}: {text}");
        for line in done.lines() {
            let block = line.split(':').next().expect("a block");
            assert!(
                text.lines().any(|found| found.starts_with(&format!("{block}: "))),
                "{kind}: {line}\n{text}"
            );
        }
        let expected = match kind {
            "guard" | "bit" | "burst" | "torn" | "zero" => "5 failing (guard 5, application tag 0,",
            "app-tag" => "5 failing (guard 0, application tag 5,",
            "ref-tag" => "5 failing (guard 0, application tag 0, storage tag 0, reference tag 5)",
            "swap" => "10 failing (guard 0, application tag 0, storage tag 0, reference tag 10)",
            _ => " failing ",
        };
        assert!(text.contains(expected), "{kind}: {text}");
    }
}

#[test]
fn the_same_seed_does_the_same_damage() {
    let damage = |seed: u64| {
        let (folder, _) = folder(64, 512);
        let insert = "insert --file disk.img --out disk.dif --block-size 512 --type 2 --ref-tag 99";
        assert_eq!(said(folder.path(), insert).0, 0);
        let line = format!(
            "corrupt --file disk.dif --layout interleaved --block-size 512 --type 2 --count 9 --seed {seed}"
        );
        assert_eq!(said(folder.path(), &line).0, 0);
        std::fs::read(folder.path().join("disk.dif")).expect("it is there")
    };
    assert_eq!(damage(4), damage(4));
    assert_ne!(damage(4), damage(5));
}

#[test]
fn an_image_survives_insertion_and_stripping_in_every_format() {
    for (format, tags) in [
        ("--block-size 512 --type 1", ""),
        ("--block-size 4096 --type 1 --metadata-size 64", ""),
        ("--block-size 4096 --type 2 --guard crc32c", "--storage-tag 0xBEEF --ref-tag 0xfffffffffffffff0"),
        ("--block-size 4096 --type 3 --guard crc64", "--ref-tag 5 --app-tag 0x1234"),
        ("--block-size 2048 --type 1 --guard crc64 --metadata-size 32 --position first", ""),
    ] {
        let (folder, image) = folder(300, 4096);
        let folder = folder.path();
        let (status, text) = said(folder, &format!("insert --file disk.img --out disk.dif {format} {tags}"));
        assert_eq!(status, 0, "{text}");
        let (status, text) =
            said(folder, &format!("verify --file disk.dif --layout interleaved {format} {tags}"));
        assert_eq!(status, 0, "{text}");
        let (status, text) = said(folder, &format!("strip --file disk.dif --out back.img {format} {tags}"));
        assert_eq!(status, 0, "{text}");
        assert!(std::fs::read(folder.join("back.img")).expect("it was made") == image, "{format}");

        // Tuples that are wiped come back.
        let dif = std::fs::read(folder.join("disk.dif")).expect("it was made");
        let flags = format!("--file disk.dif --layout interleaved {format}");
        assert_eq!(said(folder, &format!("corrupt {flags} --kind guard --count 20")).0, 0);
        assert_eq!(said(folder, &format!("strip --file disk.dif --out bad.img {format} {tags}")).0, 1);
        assert!(!folder.join("bad.img").exists() && !folder.join("bad.img.new").exists());
        assert_eq!(said(folder, &format!("generate {flags} {tags}")).0, 0);
        assert!(std::fs::read(folder.join("disk.dif")).expect("it is there") == dif, "{format}");
    }
}

#[test]
fn tuples_are_shown_in_a_table() {
    let folder = tempfile::tempdir().expect("a folder");
    let format = Format::new(Guard::Crc16, 512, 8).expect("a format");
    let tags = Tags { app_tag: 0x1234, ..Tags::default() };
    let pi = PiContext::new(&format, PiType::Type1, Checks::ALL, tags).expect("a context");
    let mut stream = vec![0; 520 * 4];
    pi.generate_interleaved(&mut [&mut stream]);
    stream[519] ^= 2;
    stream[520] = 1;
    stream[520 * 3 - 6..520 * 3 - 4].fill(0xFF);
    std::fs::write(folder.path().join("disk.dif"), &stream).expect("room");
    let (status, text) =
        said(folder.path(), "inspect --file disk.dif --layout interleaved --block-size 512 --type 1");
    assert_eq!(status, 1);
    let guard = t10pi::crc::crc16(0, &stream[520..520 + 512]);
    let expected = format!(
        "       block  guard  computed  app   reference         state\n\
                    0  0000  0000  1234  2                 reference tag is not 0x0\n\
                    1  0000  {guard:04x}  1234  1                 guard wrong\n\
                    2  0000  0000  ffff  2                 not checked (escape value)\n\
                    3  0000  0000  1234  3                 good\n"
    );
    let rows = |text: &str| {
        text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>()
    };
    assert_eq!(rows(&text), rows(&expected));

    let (status, text) = said(
        folder.path(),
        "inspect --file disk.dif --layout interleaved --block-size 512 --type 1 --start-block 3 --block-count 1",
    );
    assert_eq!((status, text.lines().count()), (0, 2), "{text}");
}

#[test]
fn only_the_first_failing_blocks_are_printed_and_all_are_counted() {
    let (folder, _) = folder(64, 512);
    let folder = folder.path();
    assert_eq!(said(folder, "insert --file disk.img --out disk.dif --block-size 512 --type 1").0, 0);
    let flags = "--file disk.dif --layout interleaved --block-size 512 --type 1";
    assert_eq!(said(folder, &format!("corrupt {flags} --kind guard --count 12")).0, 0);
    let (status, text) = said(folder, &format!("verify {flags} --errors 3"));
    assert_eq!((status, text.lines().count()), (1, 5), "{text}");
    assert!(text.contains("and 9 more blocks that fail\n64 blocks: 52 good, 0 not checked"), "{text}");
    assert_eq!(said(folder, &format!("verify {flags} --checks ref")).0, 0, "guards are not looked at");
    assert_eq!(said(folder, &format!("verify {flags} --checks none")).0, 0);
}

#[test]
fn nonsense_gets_a_sentence_that_helps() {
    let (folder, _) = folder(4, 512);
    let folder = folder.path();
    std::fs::write(folder.join("odd.img"), [0; 700]).expect("room");
    for (line, expected) in [
        ("verify --file none.img", "can't open none.img: No such file"),
        ("verify --file disk.img", "disk.img has no disk.img.pi: make one with intact-pi generate, or say"),
        ("verify --file disk.img --layout interleaved", "--block-size is needed"),
        ("verify --file disk.img --layout interleaved --block-size 512", "--type is needed"),
        (
            "verify --file disk.img --layout interleaved --block-size 512 --type 1",
            "disk.img has 2048 bytes, which is not a multiple of its blocks' 520 (data and 8 bytes of metadata); is it",
        ),
        (
            "insert --file odd.img --out new --block-size 512 --type 1",
            "odd.img has 700 bytes, which is not a multiple of its blocks' 512",
        ),
        (
            "insert --file disk.img --out new --block-size 512 --type 1 --guard crc64 --metadata-size 8",
            "block size 512 and metadata size 8 are no format: metadata of 8 bytes is smaller than its tuple of 16",
        ),
        (
            "insert --file disk.img --out new --block-size 512 --type 1 --guard crc32c --storage-tag-bits 8",
            "storage tag of 8 bits, the guard allows 16 to 64",
        ),
        (
            "insert --file disk.img --out new --block-size 512 --type 1 --storage-tag-bits 200",
            "storage tag of 200 bits, the guard allows 0 to 32",
        ),
        (
            "insert --file disk.img --out new --block-size 512 --type 1 --storage-tag 1",
            "--storage-tag can't be: storage tag 0x1 is wider than 0 bits",
        ),
        (
            "insert --file disk.img --out new --block-size 512 --type 1 --ref-tag 4",
            "--ref-tag goes with types 2 and 3",
        ),
        ("insert --file disk.img --out disk.img --block-size 512 --type 1", "disk.img exists already"),
        ("insert --file disk.img --out new --block-size 512 --type 4", "4 is not in 1..=3"),
        ("generate --file disk.img --block-size 512 --type 1", "--uuid is needed"),
        (
            "generate --file disk.img --block-size 1024 --type 1 --uuid 00000000-0000-0000-0000-000000000005",
            "blocks of a volume have 512 or 4096 bytes",
        ),
        (
            "generate --file disk.img --block-size 512 --type 1 --guard crc64 --uuid 00000000-0000-0000-0000-000000000005",
            "with 16-byte tuples blocks of 4096 bytes",
        ),
        (
            "strip --file disk.img --out new --block-size 504 --type 1 --checks app",
            "--checks app needs --app-tag to compare with",
        ),
        ("check-vectors none.jsonl", "can't open none.jsonl"),
        (
            "corrupt --file disk.img --layout interleaved --block-size 504 --type 1 --count 3",
            "4 blocks are too few",
        ),
        (
            "inspect --file disk.img --layout interleaved --block-size 504 --type 1 --start-block 4",
            "disk.img has 4 blocks, and block 4 is not among them",
        ),
    ] {
        let (status, text) = said(folder, line);
        assert_eq!(status, 2, "{line}: {text}");
        assert!(text.contains(expected), "{line}: {text}");
    }
    assert!(!folder.join("new").exists() && !folder.join("new.new").exists());
}

#[test]
fn an_image_in_use_is_not_changed_and_one_that_is_changed_not_read() {
    let (folder, _) = folder(16, 512);
    let folder = folder.path();
    let format = "--block-size 512 --type 1";
    assert_eq!(said(folder, &format!("insert --file disk.img --out disk.dif {format}")).0, 0);
    assert_eq!(said(folder, &format!("generate --file disk.img {format} --uuid {UUID}")).0, 0);
    std::fs::copy(folder.join("disk.img"), folder.join("plain.img")).expect("room");
    let interleaved = format!("--file disk.dif --layout interleaved {format}");
    let reads = [
        "verify --file disk.img".to_owned(),
        "inspect --file disk.img".to_owned(),
        format!("verify {interleaved}"),
        format!("strip --file disk.dif {format} --out out.img"),
        format!("insert --file plain.img --out out.img {format}"),
    ];
    let changes = [
        "corrupt --file disk.img".to_owned(),
        format!("corrupt {interleaved}"),
        format!("generate {interleaved}"),
        format!("generate --file plain.img {format} --uuid {UUID}"),
    ];
    let images = ["disk.img", "disk.dif", "plain.img"].map(|name| folder.join(name));
    let open = || images.each_ref().map(|image| std::fs::File::open(image).expect("the image exists"));
    let before = images.each_ref().map(|image| std::fs::read(image).expect("the image can be read"));

    // As `intact serve` has a volume's file, and as it has that of a volume that is read-only.
    let held = open();
    for file in &held {
        file.lock().expect("nobody has it");
    }
    for line in reads.iter().chain(&changes) {
        let (status, text) = said(folder, line);
        assert_eq!(status, 2, "{line}: {text}");
        assert!(text.contains(" is in use: by intact serve, or"), "{line}: {text}");
    }
    drop(held);
    let held = open();
    for file in &held {
        file.lock_shared().expect("nobody has it");
    }
    for line in &changes {
        let (status, text) = said(folder, line);
        assert_eq!(status, 2, "{line}: {text}");
        assert!(text.contains(" is in use: by intact serve, or"), "{line}: {text}");
    }
    assert_eq!(images.each_ref().map(|image| std::fs::read(image).expect("the image can be read")), before);
    assert!(!folder.join("out.img").exists() && !folder.join("plain.img.pi").exists());
    for line in &reads {
        let (status, text) = said(folder, line);
        assert_eq!(status, 0, "{line}: {text}");
        let _ = std::fs::remove_file(folder.join("out.img"));
    }
    drop(held);
    for line in &changes {
        let (status, text) = said(folder, line);
        assert_eq!(status, 0, "{line}: {text}");
    }
}

#[test]
fn flags_that_contradict_the_file_are_refused() {
    let (folder, _) = folder(4, 512);
    let folder = folder.path();
    assert_eq!(
        said(folder, &format!("generate --file disk.img --block-size 512 --type 1 --uuid {UUID}")).0,
        0
    );
    assert_eq!(said(folder, "verify --file disk.img --block-size 512 --guard crc16").0, 0);
    let (status, text) = said(folder, "verify --file disk.img --type 2");
    assert_eq!(status, 2);
    assert!(text.contains("--type is 2, and FILE.pi says 1; leave the flag out"), "{text}");
    std::fs::write(folder.join("disk.img"), [0; 1024]).expect("room");
    let (status, text) = said(folder, "verify --file disk.img");
    assert!(status == 2 && text.contains("they don't belong together"), "{text}");
    std::fs::write(folder.join("disk.img.pi"), [0; 8192]).expect("room");
    let (status, text) = said(folder, "verify --file disk.img");
    assert!(status == 2 && text.contains("disk.img.pi can't be used: it does not start with"), "{text}");
}

#[test]
fn vectors_are_counted_and_mismatches_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let good =
        r#"{"id":"A","suite":"scsi","op":"readcap16","case":"","cmd":{"type":1},"expect":{"byte12":1}}"#;
    let bad = good.replace(r#""id":"A""#, r#""id":"B""#).replace(r#""byte12":1"#, r#""byte12":2"#);
    std::fs::write(folder.path().join("good"), format!("{good}\n{good}\n")).expect("room");
    std::fs::write(folder.path().join("bad"), format!("{good}\n{bad}\n")).expect("room");
    assert_eq!(said(folder.path(), "check-vectors good"), (0, "2 passed, 0 failed\n".to_owned()));
    let expected = "B: byte12: expected 0x2, got 0x1\n1 passed, 1 failed\n".to_owned();
    assert_eq!(said(folder.path(), "check-vectors bad"), (1, expected));
}

#[test]
fn an_unknown_kernel_is_refused() {
    let output = Command::new(env!("CARGO_BIN_EXE_intact-pi"))
        .args(["bench", "--case", "none"])
        .env("T10PI_KERNEL", "magic")
        .output()
        .expect("intact-pi was built");
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
