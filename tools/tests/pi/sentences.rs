//! The sentences that nonsense gets: what is wrong, where, and what is allowed; nothing is changed, and nothing left.

use super::{UUID, done, folder, names, said};

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
        ("insert --file disk.img --out new --block-size 512 --type 4", "\"4\" is not 1, 2 or 3"),
        ("generate --file disk.img --block-size 512 --type 1", "--uuid is needed"),
        (
            "generate --file disk.img --block-size 1024 --type 1 --uuid 00000000-0000-0000-0000-000000000005",
            "blocks of a volume have 512 or 4096 bytes",
        ),
        (
            "generate --file disk.img --block-size 512 --type 1 --guard crc64 --uuid 00000000-0000-0000-0000-000000000005",
            "with tuples of 16 bytes (crc32c, crc64) blocks of a volume have 4096 bytes",
        ),
        (
            "strip --file disk.img --out new --block-size 504 --type 1 --checks app",
            "--checks app needs --app-tag to compare with",
        ),
        ("check-vectors none.jsonl", "can't open none.jsonl"),
        (
            "corrupt --file disk.img --layout interleaved --block-size 504 --type 1 --count 5",
            "--count 5 takes 5 blocks, one for each damage, and there are 4",
        ),
        (
            "corrupt --file disk.img --layout interleaved --block-size 504 --type 1 --kind swap --count 3",
            "--count 3 takes 6 blocks, two for each swap, and there are 4",
        ),
        (
            "corrupt --file disk.img --layout interleaved --block-size 2040 --type 1 --kind swap",
            "--count 1 takes 2 blocks, two for each swap, and there is 1",
        ),
        ("insert --file disk.img --out new --block-size 512 --type 0", "type 0 is no protection: there is"),
        ("insert --file disk.img --out new --block-size 0 --type 1", "0 is not in 1..=16777216"),
        (
            "insert --file disk.img --out new --block-size 512 --type 2 --ref-tag 0x100000000",
            "--ref-tag 0x100000000 is wider than this format's reference tag of 32 bits",
        ),
        (
            "insert --file disk.img --out new --block-size 512 --type 1 --app-tag 0xffff",
            "the escape value (--app-tag 0xffff): nobody would ever check a block",
        ),
        ("insert --file disk.img --out new --block-size 512 --type 1 --app-tag 65536", "more than 16 bits"),
        (
            "insert --file disk.img --out new --block-size 512 --type 1 --checks guard",
            "--checks and --app-tag-mask go with an image that has a FILE.pi",
        ),
        ("insert --file disk.img --out . --block-size 512 --type 1", ". is no name of a file"),
        ("insert --file disk.img --out new/ --block-size 512 --type 1", "new/ is no name of a file"),
        (
            "insert --file disk.img --out no/new --block-size 512 --type 1",
            "can't open the folder no: No such",
        ),
        (
            "insert --file disk.img/ --out new --block-size 512 --type 1",
            "can't open disk.img/: Not a directory",
        ),
        (
            "generate --file disk.img --layout interleaved --block-size 504 --type 1",
            "--layout interleaved overwrites the tuples in FILE: say --in-place if they may go",
        ),
        (
            "generate --file disk.img --in-place --block-size 512 --type 1 --uuid 00000000-0000-0000-0000-000000000005",
            "--in-place goes with --layout interleaved",
        ),
        (
            "generate --file disk.img --position first --block-size 512 --type 1 --uuid 00000000-0000-0000-0000-000000000005",
            "a FILE.pi can't have this format: volumes have the tuple in the last bytes of the metadata, and it is in the first",
        ),
        (
            "generate --file odd.img --block-size 512 --type 1 --uuid 00000000-0000-0000-0000-000000000005",
            "odd.img has 700 bytes, which is not a multiple of its blocks' 512",
        ),
        (
            "verify --file odd.img",
            "odd.img has no odd.img.pi, and its 700 bytes are no whole blocks of 512 or 4096, for which one could be made; say",
        ),
        ("verify --file disk.img --block-count 0", "'--block-count <BLOCK_COUNT>': it is at least 1"),
        ("inspect --file disk.img --block-count 0", "'--block-count <BLOCK_COUNT>': it is at least 1"),
        ("corrupt --file disk.img --block-count 0", "'--block-count <BLOCK_COUNT>': it is at least 1"),
        (
            "verify --file disk.img --layout interleaved --block-size 504 --type 1 --start-block 1 --block-count \
             18446744073709551615",
            "disk.img has 4 blocks, and block 4 is not among them",
        ),
        (
            "verify --file disk.img --layout interleaved --block-size 504 --type 1 --start-block 18446744073709551615",
            "disk.img has 4 blocks, and block 18446744073709551615 is not among them",
        ),
        (
            "inspect --file disk.img --layout interleaved --block-size 2040 --type 1 --start-block 9",
            "disk.img has 1 block, and block 9 is not among them",
        ),
        (
            "verify --file disk.img --layout interleaved --block-size 504 --type 1 --app-tag-mask 1",
            "--app-tag-mask needs --app-tag",
        ),
        (
            "verify --file disk.img --layout interleaved --block-size 16777216 --metadata-size 65535 --type 1",
            "is not a multiple of its blocks' 16842751 (data and 65535 bytes of metadata)",
        ),
        ("bench --case nosuch", "no case has \"nosuch\" in its name; there are\nraw crc16, 512 B\n"),
        (
            "inspect --file disk.img --layout interleaved --block-size 504 --type 1 --start-block 4",
            "disk.img has 4 blocks, and block 4 is not among them",
        ),
    ] {
        let (status, text) = said(folder, line);
        assert_eq!(status, 2, "{line}: {text}");
        assert!(text.contains(expected), "{line}: {text}");
    }
    assert_eq!(names(folder), ["disk.img", "odd.img"]);
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
}

#[test]
fn a_bad_file_beside_an_image_is_named_once_with_what_is_wrong() {
    let (folder, image) = folder(4, 512);
    let folder = folder.path();
    done(folder, &format!("generate --file disk.img --block-size 512 --type 1 --uuid {UUID}"));
    let pi = folder.join("disk.img.pi");
    let good = std::fs::read(&pi).expect("it was made");
    let cut = |length: usize| good[..length].to_vec();
    for (bytes, expected) in [
        (vec![], "disk.img.pi is empty"),
        (cut(100), "disk.img.pi can't be used: it is truncated: 100 bytes, and needs 4096"),
        (cut(4104), "disk.img.pi can't be used: it is truncated: 4104 bytes, and needs 8192"),
        (vec![0; 8192], "disk.img.pi can't be used: it does not start with \"INTACTPI\": it is no such file"),
        ([&good[..50], &[1], &good[51..]].concat(), "disk.img.pi can't be used: its header is damaged: CRC"),
    ] {
        std::fs::write(&pi, bytes).expect("room");
        for line in ["verify", "inspect", "corrupt", "insert --out new"] {
            let (status, text) = said(folder, &format!("{line} --file disk.img"));
            assert_eq!((status, text.matches(expected).count()), (2, 1), "{line}: {text}");
            assert!(!text.contains("intact-pi generate"), "a FILE.pi is there: {text}");
        }
    }
    assert!(std::fs::read(folder.join("disk.img")).expect("it is there") == image);
    assert_eq!(names(folder), ["disk.img", "disk.img.pi"]);
}
