//! What is made: whole or not there, and never in the place of anything.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::{Command, Stdio};

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::{UUID, command, done, finish, folder, names, pi, refused, said, text};

const FORMAT: &str = "--block-size 512 --type 1";

#[test]
fn no_name_that_a_user_may_have_chosen_is_touched() {
    let (folder, image) = folder(8, 512);
    let folder = folder.path();
    // An image whose name is that of the other with an ending.
    fs::write(folder.join("x.new"), &image).expect("room");
    done(folder, &format!("insert --file x.new --out x {FORMAT}"));
    assert!(fs::read(folder.join("x.new")).expect("it stays") == image);

    fs::write(folder.join("precious"), b"precious").expect("room");
    symlink("precious", folder.join("y.new")).expect("a link");
    mkfifo(&folder.join("z.new"), Mode::S_IRWXU).expect("a pipe");
    symlink("precious", folder.join("disk.img.pi.new")).expect("a link");
    done(folder, &format!("insert --file disk.img --out y {FORMAT}"));
    done(folder, &format!("insert --file disk.img --out z {FORMAT}"));
    done(folder, &format!("generate --file disk.img {FORMAT} --uuid {UUID}"));
    assert_eq!(said(folder, &format!("strip --file y --out z2 {FORMAT} --checks app --app-tag 5")).0, 1);
    assert_eq!(fs::read(folder.join("precious")).expect("it stays"), b"precious");
    assert_eq!(
        names(folder),
        ["disk.img", "disk.img.pi", "disk.img.pi.new", "precious", "x", "x.new", "y", "y.new", "z", "z.new"]
    );
}

#[test]
fn what_exists_is_not_overwritten_whatever_it_is() {
    let (folder, image) = folder(8, 512);
    let folder = folder.path();
    done(folder, &format!("insert --file disk.img --out disk.dif {FORMAT}"));
    fs::write(folder.join("file"), b"precious").expect("room");
    symlink("nowhere", folder.join("link")).expect("a link");
    symlink("disk.img", folder.join("alias")).expect("a link");
    fs::hard_link(folder.join("disk.img"), folder.join("twin")).expect("a link");
    mkfifo(&folder.join("pipe"), Mode::S_IRWXU).expect("a pipe");
    fs::create_dir(folder.join("folder")).expect("a folder");
    let before = names(folder);
    for (out, expected) in [
        ("file", "file exists already, as a file; remove it if that may go"),
        ("link", "link exists already, as a symbolic link; remove it if that may go"),
        ("pipe", "pipe exists already, as a pipe; only new files are made"),
        ("folder", "folder exists already, as a directory; only new files are made"),
        ("alias", "--out alias exists already: it is the image that is read"),
        ("twin", "--out twin exists already: it is the image that is read"),
        ("./disk.img", "--out ./disk.img exists already: it is the image that is read"),
        ("/dev/null", "/dev/null exists already, as a character device; only new files are made"),
        ("disk.img.pi", "--out disk.img.pi would be taken for the protection information of --file"),
        ("./disk.img.pi", "--out ./disk.img.pi would be taken for the protection information of --file"),
    ] {
        refused(folder, &format!("insert --file disk.img --out {out} {FORMAT}"), expected);
    }
    refused(folder, &format!("strip --file disk.dif --out link {FORMAT}"), "link exists already");
    refused(
        folder,
        &format!("strip --file disk.dif --out disk.dif {FORMAT}"),
        "exists already: it is the image that is read",
    );
    assert_eq!(names(folder), before);
    assert!(fs::read(folder.join("disk.img")).expect("it stays") == image);
    assert_eq!(fs::read(folder.join("file")).expect("it stays"), b"precious");

    // A link that leads nowhere has the name, too, and what has the ending `.pi` belongs to somebody.
    symlink("nowhere", folder.join("disk.img.pi")).expect("a link");
    let line = format!("generate --file disk.img {FORMAT} --uuid {UUID}");
    refused(folder, &line, "disk.img.pi exists already, as a symbolic link; remove it");
    assert_eq!(fs::read_link(folder.join("disk.img.pi")).expect("it stays").as_os_str(), "nowhere");
    fs::write(folder.join("new.pi"), b"of another").expect("room");
    let line = format!("strip --file disk.dif --out new {FORMAT}");
    refused(folder, &line, "--out new would be taken for what its FILE.pi belongs to, which is there");
}

#[test]
fn of_several_that_make_the_same_at_once_one_does() {
    let (folder, _) = folder(2000, 512);
    let folder = folder.path();
    for line in [
        format!("insert --file disk.img --out disk.dif {FORMAT}"),
        format!("generate --file disk.img {FORMAT} --uuid {UUID}"),
    ] {
        let children: Vec<_> = (0..4)
            .map(|_| command(folder).args(line.split_whitespace()).spawn().expect("intact-pi was built"))
            .collect();
        let ended: Vec<_> = children.into_iter().map(|child| text(finish(child))).collect();
        assert_eq!(ended.iter().filter(|(status, _)| *status == 0).count(), 1, "{ended:?}");
        for (_, text) in ended.iter().filter(|(status, _)| *status != 0) {
            assert!(text.contains("exists already") || text.contains("is in use"), "{text}");
        }
    }
    assert_eq!(names(folder), ["disk.dif", "disk.img", "disk.img.pi"]);
    done(folder, "verify --file disk.img");
    done(folder, &format!("verify --file disk.dif --layout interleaved {FORMAT}"));
}

#[test]
fn a_file_that_may_not_grow_is_an_error_that_leaves_nothing() {
    let (folder, _) = folder(4096, 512);
    let folder = folder.path();
    for line in [
        format!("insert --file disk.img --out disk.dif {FORMAT}"),
        format!("generate --file disk.img {FORMAT} --uuid {UUID}"),
    ] {
        let mut limited = Command::new("sh");
        // In blocks of 512 bytes.
        limited.args(["-c", "ulimit -f 16; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_intact-pi")]);
        limited.args(line.split_whitespace()).current_dir(folder).stdin(Stdio::null());
        limited.stdout(Stdio::piped()).stderr(Stdio::piped());
        let (status, text) = text(finish(limited.spawn().expect("there is a shell")));
        let expected = "intact-pi-unfinished-";
        assert!(status == 2 && text.contains(expected) && text.contains(": File too large"), "{text}");
        assert!(text.contains("which was to be disk."), "{text}");
        assert_eq!(names(folder), ["disk.img"]);
    }
}

#[test]
fn nobody_reads_a_copy_who_could_not_read_the_image() {
    let (folder, _) = folder(8, 512);
    let folder = folder.path();
    fs::set_permissions(folder.join("disk.img"), fs::Permissions::from_mode(0o600)).expect("ours");
    done(folder, &format!("insert --file disk.img --out disk.dif {FORMAT}"));
    done(folder, &format!("generate --file disk.img {FORMAT} --uuid {UUID}"));
    for name in ["disk.dif", "disk.img.pi"] {
        let mode = fs::metadata(folder.join(name)).expect("it was made").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }
}

#[test]
fn names_may_be_any_bytes_and_are_shown_so_that_they_do_nothing() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let (folder, image) = folder(8, 512);
    let folder = folder.path();
    let odd = OsStr::from_bytes(b"a\xff\x1b[2J\n b");
    fs::write(folder.join(odd), &image).expect("room");
    let words = |line: &str| line.split_whitespace().map(OsStr::new).map(OsStr::to_owned).collect::<Vec<_>>();
    let mut generate = words(&format!("generate {FORMAT} --uuid {UUID} --file"));
    generate.push(odd.to_owned());
    let (status, said) = text(super::run(folder, &generate));
    assert_eq!(
        (status, said.as_str()),
        (0, "\"a\\xFF\\u{1b}[2J\\n b.pi\": 8 blocks of 512 bytes protected\n")
    );
    let mut verify = words("verify --file");
    verify.push(odd.to_owned());
    assert_eq!(super::run(folder, &verify).status.code(), Some(0));
    let (status, said) = text(super::run(folder, &generate));
    assert!(
        status == 2 && said.starts_with("intact-pi: \"a\\xFF\\u{1b}[2J\\n b.pi\" exists already"),
        "{said}"
    );

    let long = "n".repeat(254);
    fs::write(folder.join(&long), &image).expect("room");
    refused(folder, &format!("generate --file {long} {FORMAT} --uuid {UUID}"), ".pi: File name too long");
    let output = pi(folder, &format!("insert --file disk.img --out {long}x --ignore-pi {FORMAT}"));
    assert!(output.status.success(), "{output:?}");
}
