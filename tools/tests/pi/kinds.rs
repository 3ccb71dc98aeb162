//! What is no image is refused at once and called what it is; block devices are images.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use nix::fcntl::OFlag;
use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::{UUID, done, folder, refused, said};

const FORMAT: &str = "--block-size 512 --type 1";

/// Every way to name an image.
const LINES: [&str; 10] = [
    "generate --block-size 512 --type 1 --uuid 00000000-0000-0000-0000-000000000005 --file",
    "generate --layout interleaved --in-place --block-size 512 --type 1 --file",
    "verify --file",
    "verify --layout interleaved --block-size 512 --type 1 --file",
    "inspect --file",
    "inspect --layout interleaved --block-size 512 --type 1 --file",
    "corrupt --file",
    "corrupt --layout interleaved --block-size 512 --type 1 --file",
    "insert --out new --block-size 512 --type 1 --file",
    "strip --out new --block-size 512 --type 1 --file",
];

#[test]
fn what_is_no_image_is_called_what_it_is() {
    let (folder, _) = folder(8, 512);
    let folder = folder.path();
    mkfifo(&folder.join("pipe"), Mode::S_IRWXU).expect("a pipe");
    symlink("pipe", folder.join("link")).expect("a link");
    let _socket = UnixListener::bind(folder.join("socket")).expect("a socket");
    fs::write(folder.join("empty"), b"").expect("room");
    for (name, what) in [
        ("pipe", "a pipe"),
        ("link", "a pipe"),
        ("socket", "a socket"),
        (".", "a directory"),
        ("/dev/null", "a character device"),
        ("/dev/zero", "a character device"),
    ] {
        for line in LINES {
            refused(
                folder,
                &format!("{line} {name}"),
                &format!("{name} is {what}; allowed is a file or a block device"),
            );
        }
        refused(
            folder,
            &format!("check-vectors {name}"),
            &format!("{name} is {what}; allowed is a file, or - for standard input\n"),
        );
    }
    for line in LINES {
        refused(folder, &format!("{line} empty"), "intact-pi: empty is empty\n");
        refused(folder, &format!("{line} none"), "can't open none: No such file");
    }
    symlink("loop", folder.join("loop")).expect("a link");
    refused(folder, "verify --file loop", "can't open loop: Too many levels of symbolic links");
}

#[test]
fn what_is_beside_an_image_may_be_no_pipe_either() {
    let (folder, _) = folder(8, 512);
    let folder = folder.path();
    mkfifo(&folder.join("disk.img.pi"), Mode::S_IRWXU).expect("a pipe");
    for line in ["verify", "inspect", "corrupt", "insert --out new"] {
        refused(folder, &format!("{line} --file disk.img"), "disk.img.pi is a pipe; allowed is a file\n");
    }
    let line = format!("generate --file disk.img {FORMAT} --uuid {UUID}");
    refused(folder, &line, "disk.img.pi exists already, as a pipe; only new files are made");
    fs::remove_file(folder.join("disk.img.pi")).expect("ours");
    symlink("nowhere", folder.join("disk.img.pi")).expect("a link");
    refused(folder, "verify --file disk.img", "can't open disk.img.pi: No such file");
}

/// A loop device over a file, while it lives.
struct LoopDevice {
    path: PathBuf,
}

impl LoopDevice {
    /// `None` where none can be had: only root makes one, with the kernel's loop driver. `./test.sh` says so beforehand.
    fn new(backing: &Path) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            eprintln!("not tested: a loop device needs root and /dev/loop-control");
            return None;
        }
        let made = Command::new("losetup").args(["--find", "--show"]).arg(backing).output();
        let made =
            made.unwrap_or_else(|error| panic!("losetup (of util-linux or mount) doesn't run: {error}"));
        assert!(made.status.success(), "no loop device: {made:?}");
        Some(Self { path: PathBuf::from(String::from_utf8(made.stdout).expect("a name").trim()) })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let ended = Command::new("losetup").arg("--detach").arg(&self.path).status();
        assert!(ended.is_ok_and(|status| status.success()), "the loop device ends");
    }
}

#[test]
fn block_devices_are_images() {
    let (folder, image) = folder(1025, 4096);
    let folder = folder.path();
    done(folder, "insert --file disk.img --out disk.dif --block-size 4096 --type 1");
    // Devices have whole sectors: an interleaved one ends with a part of a block.
    let dif = fs::File::options().write(true).open(folder.join("disk.dif")).expect("it was made");
    dif.set_len((1025 * 4104_u64).next_multiple_of(512)).expect("room");
    let Some(device) = LoopDevice::new(&folder.join("disk.dif")) else { return };
    let path = device.path.to_str().expect("a name").to_owned();
    let flags = format!("--file {path} --block-size 4096 --type 1");
    let text = done(folder, &format!("verify --layout interleaved {flags}"));
    assert!(text.starts_with("1025 blocks: 1025 good"), "{text}");
    done(folder, &format!("strip {flags} --out back.img"));
    assert!(fs::read(folder.join("back.img")).expect("it was made") == image);
    done(folder, &format!("corrupt --layout interleaved {flags} --kind bit"));
    assert_eq!(said(folder, &format!("verify --layout interleaved {flags}")).0, 1);
    done(folder, &format!("generate --layout interleaved --in-place {flags}"));
    done(folder, &format!("verify --layout interleaved {flags}"));
    let text = done(folder, &format!("insert {flags} --out more.dif"));
    assert!(text.contains("more.dif: 1027 blocks of 4096 bytes protected; "), "{text}");
    assert!(text.trim_end().ends_with(" bytes at its end are no block"), "{text}");
    refused(folder, &format!("insert {flags} --out {path}"), "exists already: it is the image that is read");

    // Somebody has it for himself, as a mount has.
    let claimed = OpenOptions::new().read(true).custom_flags(OFlag::O_EXCL.bits()).open(&path);
    let claimed = claimed.expect("nobody has it");
    for line in ["corrupt --layout interleaved", "generate --layout interleaved --in-place"] {
        refused(
            folder,
            &format!("{line} {flags}"),
            "is in use: by intact serve, or it is mounted or part of another",
        );
    }
    done(folder, &format!("verify --layout interleaved {flags}"));
    drop(claimed);

    // In /dev a FILE.pi would be gone after a restart.
    let plain = format!("--file {path} --block-size 512 --type 1 --uuid {UUID}");
    let advice = "would not outlive a restart of the machine: name a symbolic link to the device in a folder on a disk";
    refused(folder, &format!("generate {plain}"), advice);
    refused(folder, &format!("verify --file {path}"), advice);
    assert!(!Path::new(&format!("{path}.pi")).exists());
    symlink(&path, folder.join("disk0")).expect("a link");
    done(folder, &plain.replace(&path, "disk0").replace("--file", "generate --file"));
    done(folder, "verify --file disk0");
}
