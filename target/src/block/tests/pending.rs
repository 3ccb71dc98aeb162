//! Changes that are ready: what takes effect when, and that nothing is left of those that don't.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use t10pi::Guard;

use super::super::*;
use super::bench::{self, Bench, Kind, Shape};

/// The names in a folder with what the files hold.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let mut all: Vec<_> = entries
        .map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap()))
        .collect();
    all.sort();
    all
}

#[test]
fn a_new_size_shows_when_it_is_committed_and_not_before() {
    for kind in Kind::ALL {
        for shape in Shape::all() {
            let mut bench = Bench::new(kind, shape, 1024);
            let pending = Pending::resize(&bench.volume, 1536).unwrap();
            assert_eq!(bench.volume.blocks(), 1024);
            assert!(bench.deallocate(1024, 1).is_err());
            assert!(pending.commit().is_none());
            assert_eq!(bench.volume.blocks(), 1536);
            assert_eq!(bench.read(1024, 512).1, bench.unwritten(512));
            let pending = Pending::resize(&bench.volume, 512).unwrap();
            assert_eq!(bench.volume.blocks(), 1536);
            assert_eq!(pending.commit().is_some(), kind == Kind::Memory);
            assert_eq!(bench.volume.blocks(), 512);
        }
    }
}

#[test]
fn a_new_size_that_is_given_up_leaves_the_files_as_they_were() {
    for shape in Shape::all() {
        let folder = tempfile::tempdir().unwrap();
        let config = bench::file(shape, &folder.path().join("disk0.img"), Some(1024));
        let mut bench = Bench::with(Volume::open(config.clone()).unwrap(), shape);
        bench.write_pattern(1000, 24);
        bench.flush().unwrap();
        let before = contents(folder.path());
        drop(Pending::resize(&bench.volume, 4096).unwrap());
        assert!(contents(folder.path()) == before, "{shape:?}");
        // Room that was there before is not taken away.
        assert!(Pending::resize(&bench.volume, 512).unwrap().commit().is_none());
        drop(Pending::resize(&bench.volume, 1024).unwrap());
        assert!(contents(folder.path()) == before, "{shape:?}");
        drop(bench);
        Bench::with(Volume::open(config).unwrap(), shape).expect_pattern(1000, 24);
    }
}

#[test]
fn a_volume_that_is_given_up_leaves_no_file_behind() {
    for shape in Shape::all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk0.img");
        let open = |blocks| Pending::open(bench::file(shape, &path, Some(blocks))).unwrap();
        drop(open(1024));
        assert_eq!(contents(folder.path()), []);
        // What was there before stays: an empty file, and a volume that is extended.
        fs::write(&path, b"").unwrap();
        drop(open(1024));
        assert_eq!(contents(folder.path()), [("disk0.img".to_owned(), Vec::new())]);
        let pending = open(512);
        Bench::with(Arc::clone(pending.volume()), shape).write_pattern(0, 512);
        assert!(pending.commit().is_none());
        let before = contents(folder.path());
        drop(open(1024));
        assert!(contents(folder.path()) == before, "{shape:?}");
    }
}

#[test]
fn a_volume_that_can_not_be_opened_leaves_no_file_behind() {
    let folder = tempfile::tempdir().unwrap();
    for shape in Shape::all().filter(|shape| shape.guard.is_some() && shape.layout == Layout::Separate) {
        let path = folder.path().join("disk0.img");
        // A dangling link is no file that exists, and none that can be made.
        std::os::unix::fs::symlink("/dev/null/nowhere", pi_path(&path)).unwrap();
        assert!(Volume::open(bench::file(shape, &path, Some(1024))).is_err());
        assert!(!path.exists(), "{shape:?}");
        fs::remove_file(pi_path(&path)).unwrap();
    }
}

#[test]
fn filling_a_file_ends_early_when_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let shape = Shape { block_size: 512, guard: Some((Guard::Crc16, 8)), layout: Layout::Interleaved };
    let path = folder.path().join("disk0.img");
    let config = bench::file(shape, &path, Some(1024));
    config.stop.flag().store(true, Ordering::Relaxed);
    let told = |error: VolumeError| {
        let told =
            matches!(&error, VolumeError::System { source, .. } if source.kind() == ErrorKind::Interrupted);
        assert!(told, "{error}");
    };
    told(Volume::open(config.clone()).unwrap_err());
    assert_eq!(contents(folder.path()), []);
    config.stop.flag().store(false, Ordering::Relaxed);
    let volume = Volume::open(config.clone()).unwrap();
    let before = contents(folder.path());
    config.stop.flag().store(true, Ordering::Relaxed);
    told(Pending::resize(&volume, 4096).unwrap_err());
    assert!(contents(folder.path()) == before);
}

#[test]
fn memory_that_can_not_be_had_leaves_the_volume_as_it_is() {
    let shape = Shape { block_size: 4096, guard: None, layout: Layout::Separate };
    let mut bench = Bench::new(Kind::Memory, shape, 1024);
    bench.write_pattern(0, 1024);
    let error = Pending::resize(&bench.volume, 1 << 47).unwrap_err().to_string();
    assert!(error.contains("can't map memory of bytes 576460752303423488"), "{error}");
    assert_eq!(bench.volume.blocks(), 1024);
    bench.expect_pattern(0, 1024);
    assert!(Pending::resize(&bench.volume, 2048).unwrap().commit().is_none());
    bench.expect_pattern(0, 1024);
}

const PLAIN: Shape = Shape { block_size: 512, guard: None, layout: Layout::Separate };

#[test]
fn growth_that_is_given_up_is_as_if_nobody_had_asked_for_it() {
    let mut bench = Bench::new(Kind::Memory, PLAIN, 64);
    for _ in 0..1000 {
        drop(Pending::resize(&bench.volume, 128).unwrap());
    }
    for blocks in 65..320 {
        bench.volume.resize(blocks).unwrap();
        bench.write_pattern(blocks - 1, 1);
    }
    bench.expect_pattern(64, 255);
    // So often can it grow, and no more.
    let error = bench.volume.resize(320).unwrap_err().to_string();
    assert!(error.contains("grown as often as it can") && error.contains("a restart"), "{error}");
    bench.volume.resize(100).unwrap();
    bench.volume.resize(319).unwrap();
    assert_eq!(bench.read(100, 219).0, vec![0; 219 * 512]);
}

#[test]
#[expect(clippy::disallowed_methods, reason = "how long a thread waits is what is tested")]
fn blocks_that_are_cut_off_are_waited_for_all_together() {
    let mut benches: Vec<Bench> = (0..4).map(|_| Bench::new(Kind::Memory, PLAIN, 1024)).collect();
    benches.iter_mut().for_each(|bench| bench.write_pattern(0, 1024));
    let held: Vec<_> = benches[1..]
        .iter()
        .map(|bench| bench.volume.locks().try_lock(1000, 1, Mode::Read).unwrap())
        .collect();
    let cut: Vec<_> =
        benches.iter().filter_map(|bench| Pending::resize(&bench.volume, 512).unwrap().commit()).collect();
    assert!(benches.iter().all(|bench| bench.volume.blocks() == 512), "that waits for nobody");
    let (start, mut wait) = (std::time::Instant::now(), Duration::from_millis(50));
    let done: Vec<bool> = cut.into_iter().map(|cut| cut.empty(&mut wait).is_ok()).collect();
    assert_eq!(done, [true, false, false, false]);
    // Steps of a millisecond, which a busy machine makes longer; without a common bound it would be three times as long.
    assert!(wait.is_zero() && start.elapsed() < Duration::from_millis(2000), "{:?}", start.elapsed());

    // What stayed is not shown to anybody who gets the blocks again.
    let error = benches[1].volume.resize(1024).unwrap_err().to_string();
    assert!(error.contains("blocks that were cut off are still in use"), "{error}");
    assert_eq!(benches[1].volume.blocks(), 512);
    drop(held);
    for bench in &mut benches {
        bench.volume.resize(800).unwrap();
        assert_eq!(bench.read(512, 288).0, vec![0; 288 * 512]);
        bench.volume.resize(1024).unwrap();
        assert_eq!(bench.read(800, 224).0, vec![0; 224 * 512]);
        bench.expect_pattern(0, 512);
    }
}

#[test]
fn a_volume_leaves_its_file_to_another_while_commands_are_under_way() {
    for shape in Shape::all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("disk0.img");
        let config = |blocks| VolumeConfig { name: "other".to_owned(), ..bench::file(shape, &path, blocks) };
        let mut old = Bench::with(Volume::open(bench::file(shape, &path, Some(1024))).unwrap(), shape);
        old.write_pattern(0, 1024);
        let before = contents(folder.path());
        drop(Pending::succeed(&old.volume, config(Some(2048))).unwrap());
        assert!(contents(folder.path()) == before, "{shape:?}");

        let pending = Pending::succeed(&old.volume, config(Some(1536))).unwrap();
        let mut new = Bench::with(Arc::clone(pending.volume()), shape);
        assert!(pending.commit().is_none());
        assert_eq!((new.volume.name(), new.volume.blocks(), old.volume.blocks()), ("other", 1536, 1024));
        new.expect_pattern(0, 1024);
        assert_eq!(new.read(1024, 512).1, new.unwritten(512));
        // Commands of both keep out of each other's way.
        let guard = old.volume.locks().try_lock(10, 5, Mode::Write).unwrap();
        assert!(new.volume.locks().try_lock(12, 1, Mode::Read).is_none());
        drop(guard);
        old.write_pattern(500, 100);
        new.expect_pattern(500, 100);
        // It stays closed to others as long as one has it.
        drop(old);
        assert!(Volume::open(config(None)).is_err());
        new.write_pattern(1024, 512);
        if shape.layout == Layout::Separate {
            // No file can have so many; an interleaved one would be filled until the disk is full.
            let error = new.volume.resize(1 << 48).unwrap_err().to_string();
            assert!(error.contains("volume \"other\": can't extend"), "{error}");
        }
        drop(new);
        Bench::with(Volume::open(config(None)).unwrap(), shape).expect_pattern(1024, 512);
    }
}

#[test]
fn a_volume_of_another_shape_can_not_have_a_file_that_is_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk0.img");
    let shape = Shape { guard: Some((Guard::Crc16, 8)), ..PLAIN };
    let old = Volume::open(bench::file(shape, &path, Some(1024))).unwrap();
    let config = bench::file(shape, &path, None);
    let refusal = |old: &Arc<Volume>, config| Pending::succeed(old, config).unwrap_err().to_string();
    for other in [PLAIN, Shape { layout: Layout::Interleaved, ..shape }] {
        let error = refusal(&old, bench::file(other, &path, None));
        assert!(
            error.contains("with other blocks or another protection; needed: a configuration"),
            "{error}"
        );
    }
    let identity = Identity::new("nqn.2026-11.io.intact:disk0", "elsewhere", None, None);
    let error = refusal(&old, VolumeConfig { identity, ..config.clone() });
    assert!(error.contains("its UUID is "), "{error}");
    // From writing to reading it can go at once, but not back.
    let read_only = VolumeConfig { read_only: true, ..config.clone() };
    let pending = Pending::succeed(&old, read_only).unwrap();
    let reader = Arc::clone(pending.volume());
    assert!(pending.commit().is_none() && reader.read_only());
    let error = refusal(&reader, config);
    assert!(error.contains("open for reading alone; needed: a configuration without"), "{error}");
}
