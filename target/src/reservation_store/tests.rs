use std::os::unix::fs::{MetadataExt as _, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::block::{BackendConfig, Identity, Stop, VolumeConfig};
use crate::scsi::cdb::StatusOf;

const UUID: Uuid = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);

/// One registration with this key, and what it reserves.
fn saved(key: u64) -> Box<Saved> {
    let text = format!(
        "version = 1\n[reservation]\nkind = 1\nholder = 0\n[[registrations]]\nkey = \"{key:016x}\"\n\
         [registrations.nexus]\ninitiator = [\"iqn.x:0\", [0, 0, 0, 0, 0, 1]]\ntarget_port = 1\n"
    );
    Box::new(toml::from_str(&text).unwrap())
}

fn keys(reservations: &Reservations) -> Vec<u64> {
    let report = reservations.report(StatusOf::Keys);
    report[8..].chunks(8).map(|key| u64::from_be_bytes(key.try_into().unwrap())).collect()
}

fn keeper() -> Keeper {
    Keeper::new(now())
}

/// A folder with a data file's name, and the name of its `.pr` file.
fn folder() -> (TempDir, PathBuf, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk0.img");
    let [pr, _] = pr_paths(&file);
    (folder, file, pr)
}

fn names(folder: &TempDir) -> Vec<String> {
    let entries = std::fs::read_dir(folder.path()).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn volume(config: BackendConfig, read_only: bool) -> std::sync::Arc<Volume> {
    Volume::open(VolumeConfig {
        name: "disk0".to_owned(),
        identity: Identity::new("iqn.x:t", "disk0", Some(UUID), None),
        block_size: 4096,
        protection: None,
        read_only,
        backend: config,
        stop: Stop::default(),
    })
    .unwrap()
}

#[test]
fn what_was_stored_is_there_again() {
    let (folder, file, pr) = folder();
    let backend = BackendConfig::File { path: file.clone(), size: Some(1 << 20) };
    let disk = volume(backend.clone(), false);
    let store = ReservationStore::start().unwrap();
    let (none, place) = store.open(&disk).unwrap();
    assert!(keys(&none).is_empty());
    assert_eq!(none.report(StatusOf::Capabilities)[2] & 1, 1, "PTPL_C");
    let place = place.expect("a volume in a file keeps reservations");
    assert!(!pr.exists(), "nothing is made before there is something to keep");
    let (post, answers) = channel();
    for key in [0xA, 0xB] {
        let post = post.clone();
        place.store(saved(key), move |stored| post.send((key, stored)).unwrap());
    }
    let wait = Duration::from_secs(60);
    assert_eq!(answers.recv_timeout(wait), Ok((0xA, Stored::Durably)));
    assert_eq!(answers.recv_timeout(wait), Ok((0xB, Stored::Durably)));
    assert_eq!(std::fs::metadata(&pr).unwrap().mode() & 0o7777, 0o600);
    // As another process finds it.
    let (again, _place) = ReservationStore::start().unwrap().open(&disk).unwrap();
    assert_eq!(keys(&again), [0xB]);
    place.store(Box::default(), move |stored| post.send((0, stored)).unwrap());
    assert_eq!(answers.recv_timeout(wait), Ok((0, Stored::Durably)));
    assert_eq!(names(&folder), ["disk0.img"], "nothing is kept any more");
    drop(disk);
    // A volume that can't be written has none, and does not hide those that there are.
    let disk = volume(backend, true);
    let (none, place) = store.open(&disk).unwrap();
    assert!(place.is_none() && none.report(StatusOf::Capabilities)[2] & 1 == 0);
    symlink("nowhere", &pr).unwrap();
    let refused = store.open(&disk).unwrap_err().to_string();
    assert!(refused.contains("disk0.img.pr") && refused.contains("needed: the volume without read_only"));
}

#[test]
fn what_is_gone_with_the_process_keeps_nothing() {
    let store = ReservationStore::start().unwrap();
    for backend in [BackendConfig::Memory { size: 1 << 20 }, BackendConfig::Null { size: 1 << 20 }] {
        let (none, place) = store.open(&volume(backend, false)).unwrap();
        assert!(place.is_none() && none.report(StatusOf::Capabilities)[2] & 1 == 0, "PTPL_C");
    }
    let outlives = |file: &str| outlives_restart(Path::new(file));
    assert!(!outlives("/dev/sdb") && !outlives("/dev/disk/by-id/x"));
    assert!(outlives("/srv/disk0") && outlives("/dev/shm/disk0") && outlives("disk0"));
}

#[test]
fn what_is_no_file_of_this_volume_is_refused_with_what_to_do_and_stays() {
    let (_folder, file, pr) = folder();
    let good = encode(UUID, &saved(0xA));
    let mut damaged = good.clone();
    damaged[70] ^= 1;
    let mut keeper = keeper();
    let mut refused = || match keeper.open("disk0", UUID, &file) {
        Err(error) => error.to_string(),
        Ok(_) => panic!("it is refused"),
    };
    for (bytes, expected) in [
        (&[][..], "it has 0 bytes, and needs at least 64"),
        (&good[..63], "it has 63 bytes"),
        (&good[..good.len() - 1], "bytes, and needs"),
        (&damaged, "it is damaged: CRC"),
        (&encode(Uuid::from_u128(7), &saved(0xA)), "it is of the volume with UUID 00000000-"),
        (&[b'#'; 4096], "it is no such file"),
        (&vec![0; 3 << 20], "it has 3145728 bytes, and needs at most 1048576"),
    ] {
        std::fs::write(&pr, bytes).unwrap();
        let found = refused();
        assert!(found.starts_with("volume \"disk0\": ") && found.contains("disk0.img.pr"), "{found}");
        assert!(found.contains(expected) && found.contains("needed: "), "{found}");
        assert_eq!(std::fs::read(&pr).unwrap(), bytes);
    }
    std::fs::remove_file(&pr).unwrap();
    let elsewhere = pr.with_extension("elsewhere");
    std::fs::write(&elsewhere, &good).unwrap();
    for to in [elsewhere.as_path(), Path::new("nowhere")] {
        symlink(to, &pr).unwrap();
        assert!(refused().contains("is a symbolic link; needed: "));
        std::fs::remove_file(&pr).unwrap();
    }
    // To open a pipe may last for ever; a socket can't be opened.
    nix::unistd::mkfifo(&pr, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(refused().contains("is no regular file; needed: "));
    std::fs::remove_file(&pr).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(&pr).unwrap();
    assert!(refused().contains("is no regular file; needed: "));
    std::fs::remove_file(&pr).unwrap();
    std::fs::create_dir(&pr).unwrap();
    assert!(refused().contains("is no regular file; needed: "));
}

#[test]
fn what_can_not_be_stored_leaves_what_was() {
    let (folder, file, pr) = folder();
    let mut keeper = keeper();
    let (place, _) = keeper.open("disk0", UUID, &file).unwrap();
    assert_eq!(keeper.store(place, &saved(0xA)), Stored::Durably);
    let before = std::fs::read(&pr).unwrap();
    // The new file can't be made.
    let new = folder.path().join("disk0.img.pr.new");
    std::fs::create_dir(&new).unwrap();
    assert_eq!(keeper.store(place, &saved(0xB)), Stored::Not);
    assert_eq!(std::fs::read(&pr).unwrap(), before);
    std::fs::remove_dir(&new).unwrap();
    assert_eq!(keeper.store(place, &saved(0xB)), Stored::Durably);
    // It can't take the name.
    std::fs::remove_file(&pr).unwrap();
    std::fs::create_dir(&pr).unwrap();
    assert_eq!(keeper.store(place, &saved(0xC)), Stored::Not);
    assert_eq!(keeper.store(place, &Saved::default()), Stored::Not);
    assert_eq!(names(&folder), ["disk0.img.pr"], "what was begun is gone");
    std::fs::remove_dir(&pr).unwrap();
    // There is no folder any more.
    drop(folder);
    assert_eq!(keeper.store(place, &saved(0xC)), Stored::Not);
}

#[test]
fn nothing_is_written_through_a_link() {
    let (folder, file, pr) = folder();
    let precious = folder.path().join("precious");
    std::fs::write(&precious, "data").unwrap();
    let mut keeper = keeper();
    let (place, _) = keeper.open("disk0", UUID, &file).unwrap();
    symlink(&precious, &pr).unwrap();
    symlink(&precious, folder.path().join("disk0.img.pr.new")).unwrap();
    assert_eq!(keeper.store(place, &saved(0xA)), Stored::Durably);
    assert_eq!(std::fs::read(&precious).unwrap(), b"data");
    assert!(std::fs::symlink_metadata(&pr).unwrap().is_file());
    assert_eq!(keys(&keeper.open("disk0", UUID, &file).unwrap().1), [0xA]);
}

#[test]
fn whoever_looks_at_any_time_finds_the_old_or_the_new() {
    let (_folder, file, pr) = folder();
    let mut keeper = keeper();
    let (place, _) = keeper.open("disk0", UUID, &file).unwrap();
    assert_eq!(keeper.store(place, &saved(1)), Stored::Durably);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut last = 0;
            while !over.load(Ordering::Acquire) {
                let there = decode(UUID, &std::fs::read(&pr).unwrap()).unwrap();
                let key = keys(&there)[0];
                assert!(key >= last, "{key} after {last}");
                last = key;
            }
        });
        let stored = (2..100).all(|key| keeper.store(place, &saved(key)) == Stored::Durably);
        over.store(true, Ordering::Release);
        looks.join().unwrap();
        assert!(stored);
    });
}

#[test]
fn of_two_units_that_keep_the_reservations_of_one_volume_the_first_to_store_does() {
    let (_folder, file, pr) = folder();
    let mut keeper = keeper();
    let (first, _) = keeper.open("disk0", UUID, &file).unwrap();
    let (second, _) = keeper.open("disk0", UUID, &file).unwrap();
    assert_eq!(keeper.store(second, &saved(0xB)), Stored::Durably);
    assert_eq!(keeper.store(first, &saved(0xA)), Stored::Not);
    assert_eq!(keys(&decode(UUID, &std::fs::read(&pr).unwrap()).unwrap()), [0xB]);
    let (third, there) = keeper.open("disk0", UUID, &file).unwrap();
    assert_eq!(keys(&there), [0xB]);
    assert_eq!(keeper.store(third, &saved(0xC)), Stored::Durably);
}
