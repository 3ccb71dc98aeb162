//! Rules of the house that are about sources: which files may be unsafe, which may know clocks, sockets and threads,
//! and that each module says what it is.

use std::path::{Path, PathBuf};

/// Where `unsafe` may stand. A folder ends in `/`.
const UNSAFE_ALLOWED: [&str; 15] = [
    "pi/src/crc/dispatch.rs",
    "pi/src/crc/x86_64/",
    "rwctx/src/mem.rs",
    "rwctx/src/mem/",
    "rwctx/src/device/mlx5/calls.rs",
    "rwctx/src/device/mlx5/ffi.rs",
    "rwctx/src/device/mlx5/library.rs",
    "rwctx/src/device/soft/driver/",
    "rwctx/src/device/verbs/channel.rs",
    "rwctx/src/device/verbs/handles.rs",
    "rwctx/src/device/verbs/queue_pair.rs",
    "target/src/block/shared.rs",
    "target/src/block/uring/",
    "target/src/reactor/cpu.rs",
    "tools/src/pi/bench/isal.rs",
];

/// State machines and pure code: input, output and time are arguments.
const SANS_IO: [&str; 32] = [
    "pi/src/",
    "rwctx/src/mr_pool.rs",
    "rwctx/src/plan.rs",
    "rwctx/src/plan/",
    "rwctx/src/segment/",
    "rwctx/src/signature/",
    "rwctx/src/sq.rs",
    "rwctx/src/device/mlx5/",
    "rwctx/src/device/soft/",
    "rwctx/src/device/verbs/connections.rs",
    "rwctx/src/device/verbs/unconfirmed.rs",
    "target/src/iscsi/",
    "target/src/nvmf/",
    "target/src/reservation_store/image.rs",
    "target/src/scsi/",
    "target/src/config/reader.rs",
    "target/src/config/iscsi.rs",
    "target/src/config/numbered.rs",
    "target/src/config/nvme.rs",
    "target/src/config/volume.rs",
    "target/src/config/device.rs",
    "target/src/config/reactor.rs",
    "target/src/config/size.rs",
    "tools/src/host/iscsi/cdb.rs",
    "tools/src/host/iscsi/chap.rs",
    "tools/src/host/iscsi/discovery.rs",
    "tools/src/host/iscsi/failure.rs",
    "tools/src/host/iscsi/inquiry.rs",
    "tools/src/host/iscsi/keys.rs",
    "tools/src/host/iscsi/login.rs",
    "tools/src/host/iscsi/session.rs",
    "tools/src/host/iscsi/unit.rs",
];

/// Parts of those folders that know the machine, on purpose; `sim/` is tests only.
const DRIVERS: [&str; 6] = [
    "pi/src/crc/dispatch.rs",
    "rwctx/src/device/soft/driver/",
    "rwctx/src/device/soft/device.rs",
    "rwctx/src/device/soft/sim/",
    "target/src/iscsi/rdma/",
    "target/src/nvmf/rdma/",
];

/// What a sans-IO file never names.
const IO: [&str; 17] = [
    "Instant::now",
    "SystemTime",
    "UdpSocket",
    "TcpStream",
    "TcpListener",
    "UnixStream",
    "std::thread",
    "thread::spawn",
    "thread::sleep",
    "std::fs",
    "File::open",
    "std::env",
    "mpsc",
    "nix::",
    "io_uring",
    "println!",
    "Rng::new()",
];

/// Where sources stand.
const FOLDERS: [&str; 8] = [
    "pi/benches",
    "pi/src",
    "rwctx/benches",
    "rwctx/src",
    "target/src",
    "tools/src",
    "tests",
    "fuzz/fuzz_targets",
];

struct Source {
    /// Relative to the root, with `/`.
    path: String,
    /// Without tests and comments.
    code: String,
    text: String,
}

fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut folders: Vec<PathBuf> = FOLDERS.iter().map(|folder| root.join(folder)).collect();
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("source folders can be listed") {
            let path = entry.expect("source folders can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = std::fs::read_to_string(&path).expect("sources are UTF-8");
                let relative = path.strip_prefix(&root).expect("found below the root");
                let path = relative.to_str().expect("our file names are ASCII").to_owned();
                sources.push(Source { code: code(&path, &text), path, text });
            }
        }
    }
    assert!(sources.len() > 20, "the sources were found");
    sources
}

/// The text without comments, the contents of strings and test modules; nothing of a file that is tests only.
fn code(path: &str, text: &str) -> String {
    if path.ends_with("/tests.rs") || path.contains("/tests/") {
        return String::new();
    }
    without_test_modules(&without_comments_and_strings(text))
}

/// Rust without comments and without what stands between quotes. Line breaks outside them stay.
fn without_comments_and_strings(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let in_word = out.ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let skip = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(hashes) = raw_string(rest).filter(|_| !in_word) {
            let end = format!("\"{}", "#".repeat(hashes));
            let begin = rest.find('"').expect("a raw string has a quote") + 1;
            out.push_str("\"\"");
            rest[begin..].find(&end).map_or(rest.len(), |at| begin + at + end.len())
        } else if next == '"' {
            out.push_str("\"\"");
            quoted(rest, '"')
        } else if next == '\'' && is_char(rest) {
            out.push_str("' '");
            quoted(rest, '\'')
        } else {
            out.push(next);
            next.len_utf8()
        };
        rest = &rest[skip..];
    }
    out
}

/// Length of the comment, with those inside it, that `text` begins with.
fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < text.len() {
        match text.as_bytes()[at..] {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

/// How many `#` the raw string has that `text` begins with, if it does.
fn raw_string(text: &str) -> Option<usize> {
    let text = ["br", "cr", "r"].iter().find_map(|prefix| text.strip_prefix(prefix))?;
    let hashes = text.len() - text.trim_start_matches('#').len();
    text[hashes..].starts_with('"').then_some(hashes)
}

/// Length of the literal, with its quotes, that `text` begins with.
fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Whether the quote that `text` begins with is a character's, and not a lifetime's.
fn is_char(text: &str) -> bool {
    let mut chars = text.chars().skip(1);
    matches!((chars.next(), chars.next()), (Some('\\'), _) | (Some(_), Some('\'')))
}

/// Code (as above) without its modules for tests, whether they stand here or in a file of their own.
fn without_test_modules(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find("#[cfg(test)]\nmod ") {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let opens = rest.find(['{', ';']).unwrap_or(rest.len());
        let mut depth = 0_usize;
        let ends = rest.char_indices().skip_while(|(at, _)| *at < opens).find(|(_, c)| {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                _ => {}
            }
            depth == 0
        });
        rest = ends.map_or("", |(at, _)| &rest[at + 1..]);
    }
    out + rest
}

fn within(path: &str, list: &[&str]) -> bool {
    list.iter().any(|entry| if entry.ends_with('/') { path.starts_with(entry) } else { path == *entry })
}

/// The type of a pointer to an unsafe function is not unsafe itself.
fn is_unsafe(code: &str) -> bool {
    words(&code.replace("unsafe fn(", "")).any(|word| word == "unsafe")
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
}

#[test]
fn unsafe_code_stands_only_in_the_files_that_may_have_it() {
    let found: Vec<String> = sources()
        .into_iter()
        .filter(|source| !source.path.starts_with("tests/") && !within(&source.path, &UNSAFE_ALLOWED))
        .filter(|source| is_unsafe(&source.code))
        .map(|source| source.path)
        .collect();
    assert!(found.is_empty(), "unsafe outside {UNSAFE_ALLOWED:?}: {found:?}");
}

#[test]
fn sans_io_files_know_no_clock_socket_thread_or_file() {
    let sources = sources();
    let mut found = Vec::new();
    for source in sources.iter().filter(|s| within(&s.path, &SANS_IO) && !within(&s.path, &DRIVERS)) {
        for word in IO.iter().filter(|word| source.code.contains(**word)) {
            found.push(format!("{}: {word}", source.path));
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_file_that_a_rule_names_exists() {
    let sources = sources();
    for entry in UNSAFE_ALLOWED.iter().chain(&SANS_IO).chain(&DRIVERS) {
        assert!(sources.iter().any(|s| within(&s.path, &[entry])), "{entry} is listed and does not exist");
    }
    for entry in &DRIVERS {
        let inside = sources.iter().any(|s| within(&s.path, &[entry]) && within(&s.path, &SANS_IO));
        assert!(inside, "{entry} is an exception to no rule");
    }
}

#[test]
fn every_module_starts_by_saying_what_it_is() {
    let found: Vec<String> = sources()
        .into_iter()
        .filter(|source| !source.path.ends_with("/tests.rs") && !source.path.contains("/tests/"))
        .filter(|source| !source.text.starts_with("//!"))
        .map(|source| source.path)
        .collect();
    assert!(found.is_empty(), "no module documentation: {found:?}");
}

#[test]
fn the_rules_see_what_they_look_for() {
    for (text, expected) in [
        ("use x; // unsafe\n#[cfg(test)]\nmod tests {\n unsafe }", "use x; \n"),
        // Modules for tests may stand first, here or in a file of their own: what follows counts.
        ("#[cfg(test)]\nmod tests;\nunsafe fn x();", "\nunsafe fn x();"),
        ("#[cfg(test)]\nmod tests {\n fn y() { { } }\n}\nunsafe { x() }", "\nunsafe { x() }"),
        ("#[cfg(test)]\nmod naive;\n#[cfg(test)]\nmod tests {}\nlet z;", "\n\nlet z;"),
        // What isn't code hides none, and is none.
        (r#"x("http://a", '"'); unsafe"#, r#"x("", ' '); unsafe"#),
        ("/* a /* b */ unsafe */ y", " y"),
        (r##"r#"unsafe " // "# z"##, r#""" z"#),
        (r#""a \" // unsafe" + b'\'' + &'a str"#, r#""" + b' ' + &'a str"#),
        (r#"for"{}""#, r#"for"""#),
    ] {
        assert_eq!(code("a/src/b.rs", text), expected, "{text}");
    }
    assert_eq!(code("a/src/b/tests.rs", "unsafe"), "");
    assert!(is_unsafe("pub unsafe fn x()") && is_unsafe("unsafe { x() }"));
    assert!(!is_unsafe("unsafe_op_in_unsafe_fn") && !is_unsafe("type F = unsafe fn(u8);"));
    assert!(within("a/b/c.rs", &["a/b/"]) && within("a/b.rs", &["a/b.rs"]) && !within("a/bc.rs", &["a/b"]));
}
