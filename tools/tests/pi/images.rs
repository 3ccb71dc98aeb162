//! Images made, damaged and found out, in every format.

use t10pi::{Checks, Format, Guard, PiContext, PiType, Tags};

use super::{UUID, done, folder, names, refused, said};

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
        assert_eq!(names(folder), ["back.img", "disk.dif", "disk.img"]);
        assert_eq!(said(folder, &format!("generate {flags} {tags} --in-place")).0, 0);
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
        format!("generate {interleaved} --in-place"),
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
fn an_image_with_a_file_beside_it_is_not_taken_for_an_interleaved_one() {
    let (folder, _) = folder(65 * 8, 512);
    let folder = folder.path();
    done(folder, &format!("generate --file disk.img --block-size 512 --type 1 --uuid {UUID}"));
    let flags = "--file disk.img --block-size 512 --type 1";
    for line in ["verify --layout interleaved", "generate --in-place --layout interleaved", "strip --out new"]
    {
        refused(
            folder,
            &format!("{line} {flags}"),
            "disk.img has disk.img.pi, so that it is a plain image, with no",
        );
    }
}

#[test]
fn insert_keeps_what_a_file_beside_the_image_has_and_blesses_no_damage() {
    let (folder, image) = folder(600, 4096);
    let folder = folder.path();
    let format = "--block-size 4096 --type 1 --metadata-size 64";
    done(folder, &format!("generate --file disk.img {format} --app-tag 7 --uuid {UUID}"));
    let text = done(folder, "insert --file disk.img --out disk.dif");
    assert!(
        text.contains("disk.dif: 600 blocks with the metadata of FILE.pi; guard, reference tag checked"),
        "{text}"
    );
    let flags = format!("--file disk.dif {format} --app-tag 7");
    done(folder, &format!("verify --layout interleaved {flags}"));
    let text = done(folder, &format!("strip --out copy.img {flags}"));
    assert!(text.contains("600 blocks stripped; guard, application tag, reference tag checked"), "{text}");
    assert!(std::fs::read(folder.join("copy.img")).expect("it was made") == image);
    refused(
        folder,
        "insert --file disk.img --out new --guard crc64",
        "--guard is crc64, and FILE.pi says crc16; leave",
    );
    refused(
        folder,
        "insert --file disk.img --out new --position first",
        "--position is first, and FILE.pi says last",
    );
    let (status, text) = said(folder, "insert --file disk.img --out new --app-tag 8");
    assert!(
        status == 1 && text.contains("block 0: application tag is 0x7, expected 0x8; new was not made"),
        "{text}"
    );

    let damage = done(folder, "corrupt --file disk.img --kind torn --seed 7");
    let (status, text) = said(folder, "insert --file disk.img --out new");
    let block = damage.split(':').next().expect("a block");
    assert!(
        status == 1 && text.starts_with(&format!("{block}: guard is ")) && text.contains("new was not made")
    );
    assert_eq!(names(folder), ["copy.img", "disk.dif", "disk.img", "disk.img.pi"]);
    let text = done(folder, &format!("insert --file disk.img --out new --ignore-pi {format}"));
    assert_eq!(text, "new: 600 blocks of 4096 bytes protected\n");
    done(folder, &format!("verify --file new --layout interleaved {format}"));
}

#[test]
fn blocks_of_which_nothing_is_compared_are_not_good() {
    let (folder, _) = folder(8, 512);
    let folder = folder.path();
    done(folder, "insert --file disk.img --out disk.dif --block-size 512 --type 3 --ref-tag 5");
    let flags = "--file disk.dif --block-size 512 --type 3";
    for checks in ["none", "ref"] {
        let text = done(folder, &format!("verify --layout interleaved {flags} --checks {checks}"));
        assert_eq!(text, "8 blocks: 0 good, 8 not checked (nothing to compare), 0 failing\n");
        let text = done(folder, &format!("inspect --layout interleaved {flags} --checks {checks}"));
        assert!(
            !text.contains("good") && text.matches("not checked (nothing to compare)").count() == 8,
            "{text}"
        );
        let text = done(folder, &format!("strip {flags} --checks {checks} --out {checks}"));
        assert_eq!(text, format!("{checks}: 8 blocks stripped; nothing checked\n"));
    }
    let text = done(folder, &format!("verify --layout interleaved {flags} --block-count 1"));
    assert_eq!(
        text,
        "1 block: 1 good, 0 not checked (escape value), 0 failing (guard 0, application tag not compared, storage tag \
         not compared, reference tag not compared)\n"
    );
}

#[test]
fn damage_that_verify_does_not_look_for_is_said_to_be() {
    let (folder, _) = folder(8, 512);
    let folder = folder.path();
    done(folder, "insert --file disk.img --out disk.dif --block-size 512 --type 1");
    let flags = "--file disk.dif --layout interleaved --block-size 512 --type 1";
    let text = done(folder, &format!("corrupt {flags} --kind app-tag"));
    assert!(text.ends_with("of the application tag flipped (found with --app-tag alone)\n"), "{text}");
    let text = done(folder, &format!("verify {flags}"));
    assert!(text.contains("8 good") && text.contains("application tag not compared"), "{text}");
    assert_eq!(said(folder, &format!("verify {flags} --app-tag 0")).0, 1);
    let text = done(folder, &format!("corrupt {flags} --kind swap").replace("type 1", "type 3"));
    assert!(text.ends_with(" (nobody checks reference tags in this format and type)\n"), "{text}");
}

#[test]
fn one_block_is_enough_for_damage_of_any_kind() {
    for seed in 0..40 {
        let (folder, _) = folder(3, 512);
        let folder = folder.path();
        done(folder, "insert --file disk.img --out disk.dif --block-size 512 --type 1");
        let flags = "--file disk.dif --layout interleaved --block-size 512 --type 1";
        for (count, line) in [(1, "--start-block 1 --block-count 1"), (3, "--count 3")] {
            let text = done(folder, &format!("corrupt {flags} --seed {seed} {line}"));
            assert_eq!(text.lines().count(), count, "{text}");
        }
    }
}

#[test]
fn a_large_format_takes_memory_for_a_few_blocks_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = std::fs::File::create(folder.path().join("disk.dif")).expect("room");
    // All of it at once would be 64 GiB.
    file.set_len(65536 << 20).expect("a hole takes no room");
    let line = "inspect --file disk.dif --layout interleaved --block-size 1 --metadata-size 65535 --type 1";
    let (status, text) = said(folder.path(), line);
    assert_eq!((status, text.lines().count()), (1, 17), "{text}");
    let (status, text) =
        said(folder.path(), &format!("{} --block-count 4096", line.replace("inspect", "verify")));
    assert!(status == 1 && text.contains("4096 blocks: 1 good"), "{text}");
}
