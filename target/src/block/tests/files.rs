//! What file volumes do beyond the conformance suite: their files, restarts, refusals, several reactors, teardown.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use t10pi::{Format, Guard, PiType};
use tempfile::TempDir;

use super::super::volume::Backend;
use super::super::*;
use super::bench::{self, Bench, Shape};

const PLAIN: Shape = Shape { block_size: 512, guard: None, layout: Layout::Separate };
const SEPARATE: Shape = Shape { block_size: 512, guard: Some((Guard::Crc16, 8)), layout: Layout::Separate };
const INTERLEAVED: Shape = Shape { layout: Layout::Interleaved, ..SEPARATE };

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("disk0.img");
    (folder, path)
}

fn open(shape: Shape, path: &Path, blocks: Option<u64>) -> Bench {
    Bench::with(Volume::open(bench::file(shape, path, blocks)).unwrap(), shape)
}

fn refusal(shape: Shape, path: &Path, blocks: Option<u64>) -> String {
    Volume::open(bench::file(shape, path, blocks)).unwrap_err().to_string()
}

#[test]
fn data_and_metadata_outlive_the_volume() {
    for shape in Shape::all() {
        let (_folder, path) = folder();
        let mut bench = open(shape, &path, Some(1024));
        bench.write_pattern(10, 100);
        bench.deallocate(20, 10).unwrap();
        bench.zero(40, 10, None).unwrap();
        bench.flush().unwrap();
        let before = bench.read(0, 1024);
        drop(bench);
        // Without a size, and with the one that it has.
        for size in [None, Some(1024)] {
            let mut bench = open(shape, &path, size);
            assert_eq!(bench.volume.blocks(), 1024);
            assert_eq!(bench.volume.backend_kind(), BackendKind::File);
            assert!(bench.volume.has_write_cache());
            assert!(bench.read(0, 1024) == before, "{shape:?}");
        }
    }
}

#[test]
fn the_data_file_of_the_separate_layout_is_a_plain_image() {
    let (_folder, path) = folder();
    let mut bench = open(SEPARATE, &path, Some(64));
    bench.write_pattern(3, 5);
    bench.flush().unwrap();
    let image = fs::read(&path).unwrap();
    assert_eq!(image.len(), 64 * 512);
    assert_eq!(image[3 * 512..8 * 512], bench.pattern(3, 5));
    let pi = fs::read(pi_path(&path)).unwrap();
    assert_eq!(pi.len(), 8192);
    let header = PiHeader::decode(pi[..512].try_into().unwrap()).unwrap();
    assert_eq!((header.blocks, header.uuid), (64, bench.volume.identity().uuid()));
    let inverted: Vec<_> = bench.md_pattern(3, 5).iter().map(|byte| !byte).collect();
    assert_eq!(pi[4096 + 24..4096 + 64], inverted);
    assert!(pi[4096 + 64..].iter().all(|&byte| byte == 0));
}

#[test]
fn an_interleaved_file_has_blocks_and_metadata_in_turn() {
    let (_folder, path) = folder();
    let mut bench = open(INTERLEAVED, &path, Some(64));
    bench.write_pattern(3, 1);
    bench.flush().unwrap();
    let image = fs::read(&path).unwrap();
    assert_eq!(image.len(), 64 * 520);
    assert_eq!(image[3 * 520..][..512], bench.pattern(3, 1));
    assert_eq!(image[3 * 520 + 512..][..8], bench.md_pattern(3, 1));
    assert!(image[4 * 520..][..512].iter().all(|&byte| byte == 0));
    assert_eq!(image[4 * 520 + 512..][..8], [0xFF; 8]);
    assert!(!pi_path(&path).exists());
}

#[test]
fn deallocation_gives_storage_back() {
    let (_folder, path) = folder();
    let mut bench = open(SEPARATE, &path, Some(8192));
    for slba in (0..8192).step_by(512) {
        bench.write_pattern(slba, 512);
    }
    bench.flush().unwrap();
    let used = || fs::metadata(&path).unwrap().blocks();
    let before = used();
    bench.deallocate(0, 8192).unwrap();
    bench.flush().unwrap();
    assert!(used() * 4 < before, "{} of {before} sectors are still in use", used());
}

#[test]
fn a_volume_grows_across_restarts_and_shrinking_destroys_nothing() {
    for shape in Shape::all() {
        let (_folder, path) = folder();
        open(shape, &path, Some(512)).write_pattern(0, 512);
        let mut bench = open(shape, &path, Some(1024));
        bench.expect_pattern(0, 512);
        assert_eq!(bench.read(512, 512).1, bench.unwritten(512));
        bench.write_pattern(1000, 24);
        drop(bench);
        let mut bench = open(shape, &path, Some(512));
        assert_eq!(bench.volume.blocks(), 512);
        assert!(bench.write(512, &bench.pattern(0, 1), &bench.md_pattern(0, 1)).is_err());
        drop(bench);
        open(shape, &path, None).expect_pattern(1000, 24);
    }
}

#[test]
fn an_interleaved_file_that_does_not_end_at_a_sector_is_used_all_the_same() {
    let (_folder, path) = folder();
    let mut bench = open(INTERLEAVED, &path, Some(63));
    bench.write_pattern(0, 63);
    bench.deallocate(62, 1).unwrap();
    bench.expect_pattern(0, 62);
    assert_eq!(fs::metadata(&path).unwrap().len(), 63 * 520);
}

#[test]
fn data_without_its_metadata_is_refused_with_the_command_that_makes_it() {
    let (_folder, path) = folder();
    fs::write(&path, vec![7; 4096]).unwrap();
    let error = refusal(SEPARATE, &path, None);
    let uuid = bench::file(SEPARATE, &path, None).identity.uuid();
    let command = format!(
        "intact-pi generate --file {} --block-size 512 --type 1 --guard crc16 --metadata-size 8 --uuid {uuid}",
        path.display()
    );
    assert!(error.ends_with(&command), "{error}");
    assert!(!pi_path(&path).exists());
    // The same with a size that would extend it.
    assert!(refusal(SEPARATE, &path, Some(64)).ends_with(&command));
    assert_eq!(fs::read(&path).unwrap(), vec![7; 4096]);
}

#[test]
fn metadata_without_its_data_is_refused() {
    let (_folder, path) = folder();
    drop(open(SEPARATE, &path, Some(64)));
    fs::remove_file(&path).unwrap();
    let error = refusal(SEPARATE, &path, Some(64));
    assert!(error.contains("disk0.img.pi does") && error.contains("both or neither"), "{error}");
    assert!(!path.exists());
}

/// Makes a volume of 64 blocks, lets `change` change its files, and returns the refusal.
fn refusal_after(change: impl FnOnce(&Path)) -> String {
    let (_folder, path) = folder();
    drop(open(SEPARATE, &path, Some(64)));
    change(&path);
    let error = refusal(SEPARATE, &path, None);
    assert!(error.contains("disk0.img"), "{error}");
    error
}

fn edit(path: &Path, at: u64, bytes: &[u8]) {
    fs::File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

fn set_len(path: &Path, length: u64) {
    fs::File::options().write(true).open(path).unwrap().set_len(length).unwrap();
}

#[test]
fn a_metadata_file_that_does_not_fit_is_refused_with_what_does_not() {
    let error = refusal_after(|path| edit(&pi_path(path), 0, b"NOTHING!"));
    assert!(error.contains("does not start with \"INTACTPI\""), "{error}");
    let error = refusal_after(|path| edit(&pi_path(path), 8, &[2]));
    assert!(error.contains("version is 2"), "{error}");
    let error = refusal_after(|path| edit(&pi_path(path), 33, &[0x10]));
    assert!(error.contains("header is damaged: CRC"), "{error}");
    let error = refusal_after(|path| set_len(&pi_path(path), 4095));
    assert!(error.contains("truncated: 4095 bytes, and needs 4096"), "{error}");
    let error = refusal_after(|path| set_len(&pi_path(path), 4104));
    assert!(error.contains("truncated: 4104 bytes, and needs 8192"), "{error}");
    let error = refusal_after(|path| set_len(path, 63 * 512));
    assert!(error.contains("number of blocks is 64, and the volume has 63"), "{error}");
    let error = refusal_after(|path| set_len(path, 65 * 512));
    assert!(error.contains("number of blocks is 64, and the volume has 65"), "{error}");
    let error = refusal_after(|path| set_len(path, 64 * 512 + 1));
    assert!(error.contains("no whole number of blocks"), "{error}");
}

#[test]
fn a_metadata_file_of_another_volume_or_format_is_refused() {
    let (_folder, path) = folder();
    drop(open(SEPARATE, &path, Some(64)));
    let refusal = |change: &dyn Fn(&mut VolumeConfig)| {
        let mut config = bench::file(SEPARATE, &path, None);
        change(&mut config);
        Volume::open(config).unwrap_err().to_string()
    };
    let error = refusal(&|config| config.identity = Identity::new("nqn.other", "disk0", None, None));
    assert!(error.contains("its UUID is") && error.contains("intact-pi generate"), "{error}");
    let protection = SEPARATE.protection().unwrap();
    let error = refusal(&|config| {
        config.protection = Some(Protection { pi_type: PiType::Type3, ..protection });
    });
    assert!(error.contains("its type is 1, and the volume has 3"), "{error}");
    let error = refusal(&|config| {
        let format = Format::new(Guard::Crc16, 512, 16).unwrap();
        config.protection = Some(Protection { format, ..protection });
    });
    assert!(error.contains("its metadata size is 8, and the volume has 16"), "{error}");
    let error = refusal(&|config| {
        config.block_size = 4096;
        let format = Format::new(Guard::Crc16, 4096, 8).unwrap();
        config.protection = Some(Protection { format, ..protection });
    });
    assert!(error.contains("its block size is 512, and the volume has 4096"), "{error}");
}

#[test]
fn files_that_can_not_be_volumes_are_refused() {
    let (folder, path) = folder();
    let error = refusal(PLAIN, &path, None);
    assert!(error.contains("does not exist") && error.contains("size = "), "{error}");
    fs::write(&path, b"").unwrap();
    let error = refusal(PLAIN, &path, None);
    assert!(error.contains("is empty") && error.contains("size = "), "{error}");
    fs::write(&path, vec![0; 1000]).unwrap();
    let error = refusal(PLAIN, &path, None);
    assert!(error.contains("1000 bytes are no whole number of blocks of 512 bytes"), "{error}");
    let error = refusal(INTERLEAVED, &path, None);
    assert!(error.contains("multiple of 520 bytes"), "{error}");
    let error = refusal(PLAIN, folder.path(), Some(8));
    assert!(error.contains("neither a file nor a block device"), "{error}");
    let error = refusal(PLAIN, &folder.path().join("none/disk0.img"), Some(8));
    assert!(error.contains("can't make"), "{error}");
    let mut config = bench::file(PLAIN, &folder.path().join("new.img"), Some(8));
    config.read_only = true;
    let error = Volume::open(config).unwrap_err().to_string();
    assert!(error.contains("read_only"), "{error}");
    assert!(!folder.path().join("new.img").exists());
}

#[test]
fn what_stands_in_the_place_of_a_metadata_file_and_is_none_is_refused_at_once() {
    let (folder, path) = folder();
    fs::write(&path, vec![0; 64 * 512]).unwrap();
    let pi = pi_path(&path);
    let mut config = bench::file(SEPARATE, &path, None);
    for read_only in [false, true] {
        config.read_only = read_only;
        let refused = |config: &VolumeConfig| {
            let error = Volume::open(config.clone()).unwrap_err().to_string();
            assert!(error.contains("disk0.img.pi: it is no regular file"), "{error}");
        };
        // To open it for reading waits for somebody who writes.
        nix::unistd::mkfifo(&pi, nix::sys::stat::Mode::S_IRWXU).unwrap();
        refused(&config);
        fs::remove_file(&pi).unwrap();
        fs::create_dir(&pi).unwrap();
        refused(&config);
        fs::remove_dir(&pi).unwrap();
    }
    drop(folder);
}

#[test]
fn a_read_only_file_volume_is_read_and_never_written() {
    for shape in [PLAIN, SEPARATE, INTERLEAVED] {
        let (_folder, path) = folder();
        open(shape, &path, Some(64)).write_pattern(0, 64);
        for file in [path.clone(), pi_path(&path)] {
            if file.exists() {
                let mut rights = fs::metadata(&file).unwrap().permissions();
                rights.set_readonly(true);
                fs::set_permissions(&file, rights).unwrap();
            }
        }
        let mut config = bench::file(shape, &path, None);
        config.read_only = true;
        let mut bench = Bench::with(Volume::open(config.clone()).unwrap(), shape);
        bench.expect_pattern(0, 64);
        assert_eq!(bench.deallocate(0, 1).unwrap_err().kind, IoErrorKind::ReadOnly);
        // Two may read it at once.
        Bench::with(Volume::open(config.clone()).unwrap(), shape).expect_pattern(0, 64);
        config.backend = BackendConfig::File { path: path.clone(), size: Some(128 * 512) };
        let error = Volume::open(config).unwrap_err().to_string();
        assert!(error.contains("at most 64 blocks"), "{error}");
    }
}

#[test]
fn an_engine_takes_a_file_volume_once_what_that_needs_is_prepared() {
    let (_folder, path) = folder();
    let volume = Volume::open(bench::file(PLAIN, &path, Some(64))).unwrap();
    let mut engine = Engine::new(8).unwrap();
    let error = engine.attach(&volume).unwrap_err();
    assert!(matches!(error, EngineError::Unprepared), "{error}");
    let memory = Volume::open(bench::memory(PLAIN, 64)).unwrap();
    engine.attach(&memory).unwrap();
    let setup = Arc::clone(engine.file_setup());
    std::thread::spawn(move || setup.prepare().and_then(|()| setup.prepare())).join().unwrap().unwrap();
    let name = engine.attach(&volume).unwrap();
    engine.file_setup().prepare().unwrap();
    assert_eq!(engine.attach(&volume).unwrap(), name);
    assert_eq!(engine.in_flight(), 0);
}

#[test]
fn two_volumes_can_not_have_one_file() {
    let (_folder, path) = folder();
    let _bench = open(PLAIN, &path, Some(8));
    let error = refusal(PLAIN, &path, Some(8));
    assert!(error.contains("another volume or process has it open"), "{error}");
}

#[test]
fn a_metadata_file_is_no_other_volumes_file_by_any_name() {
    let (folder, path) = folder();
    let link = folder.path().join("link.img");
    let bench = open(SEPARATE, &path, Some(1024));
    fs::hard_link(pi_path(&path), &link).unwrap();
    let error = refusal(PLAIN, &link, None);
    assert!(error.contains("link.img: another volume or process has it open"), "{error}");
    drop(bench);
    let bench = open(PLAIN, &link, None);
    let error = refusal(SEPARATE, &path, None);
    assert!(error.contains("disk0.img.pi: another volume or process has it open"), "{error}");
    drop(bench);
    assert_eq!(open(SEPARATE, &path, None).volume.blocks(), 1024);
}

#[test]
fn making_a_volume_that_a_crash_cut_short_is_taken_up_again() {
    // After the name of the data file.
    let (_folder, path) = folder();
    fs::write(&path, b"").unwrap();
    assert_eq!(open(SEPARATE, &path, Some(64)).volume.blocks(), 64);
    // After the name of the metadata file, and after its length.
    for length in [0, 4096] {
        fs::write(&path, b"").unwrap();
        fs::write(pi_path(&path), vec![0; length]).unwrap();
        assert_eq!(open(SEPARATE, &path, Some(64)).volume.blocks(), 64);
    }
    // After the metadata file was extended, before the data file was.
    set_len(&path, 32 * 512);
    let mut bench = open(SEPARATE, &path, Some(64));
    bench.write_pattern(0, 64);
    bench.expect_pattern(0, 64);
    drop(bench);
    // In the middle of filling an interleaved file.
    let (_folder, path) = folder();
    drop(open(INTERLEAVED, &path, Some(64)));
    set_len(&path, 32 * 520 + 100);
    let mut bench = open(INTERLEAVED, &path, Some(64));
    assert_eq!(bench.volume.blocks(), 64);
    assert_eq!(bench.read(0, 64).1, bench.unwritten(64));
}

#[test]
fn reactors_that_write_neighbours_lose_none_of_their_metadata() {
    for shape in [SEPARATE, INTERLEAVED] {
        let (_folder, path) = folder();
        let volume = Volume::open(bench::file(shape, &path, Some(64))).unwrap();
        std::thread::scope(|scope| {
            for reactor in 0..3_u64 {
                let volume = Arc::clone(&volume);
                scope.spawn(move || {
                    let mut bench = Bench::with(volume, shape);
                    for round in 0..40 {
                        // Many at once, interleaved with the blocks of the other reactors in every sector.
                        let mut pending = 0;
                        for lba in (reactor..63).step_by(3) {
                            let (data, md) =
                                (bench.pattern(lba + round, 1), bench.md_pattern(lba + round, 1));
                            let mut io = bench.write_io(lba, &data, &md);
                            io.guard = bench.volume.locks().try_lock(lba, 1, Mode::Write);
                            assert!(matches!(bench.engine.submit(io), Submit::Pending));
                            pending += 1;
                        }
                        while pending > 0 {
                            assert_eq!(bench.wait().result, Ok(()));
                            pending -= 1;
                        }
                        for lba in (reactor..63).step_by(3) {
                            let read = bench.read(lba, 1);
                            assert!(read.0 == bench.pattern(lba + round, 1), "round {round}, block {lba}");
                            assert!(read.1 == bench.md_pattern(lba + round, 1), "round {round}, block {lba}");
                        }
                    }
                });
            }
        });
    }
}

#[test]
fn more_operations_than_there_is_room_for_come_back_or_wait() {
    for shape in [SEPARATE, INTERLEAVED] {
        let (_folder, path) = folder();
        let mut bench = open(shape, &path, Some(64 * 1024));
        // Each has two edges in sectors of its own, and a bounce buffer: more than there are.
        let (mut submitted, mut busy) = (0, 0);
        for index in 0..80_u64 {
            let lba = index * 400 + 3;
            let (data, md) = (bench.pattern(lba, 250), bench.md_pattern(lba, 250));
            let mut io = bench.write_io(lba, &data, &md);
            io.guard = bench.volume.locks().try_lock(lba, 250, Mode::Write);
            match bench.engine.submit(io) {
                Submit::Pending => submitted += 1,
                Submit::Busy(io) => {
                    assert_eq!((io.slba, io.token), (lba, 17));
                    busy += 1;
                }
                Submit::Done(done) => panic!("{done:?}"),
            }
        }
        assert_eq!((submitted, busy), (64, 16));
        for _ in 0..submitted {
            assert_eq!(bench.wait().result, Ok(()));
        }
        assert_eq!(bench.engine.in_flight(), 0);
        for index in 0..64 {
            bench.expect_pattern(index * 400 + 3, 250);
        }
    }
}

#[test]
fn dropping_an_engine_finishes_what_is_under_way_first() {
    let (_folder, path) = folder();
    let volume = Volume::open(bench::file(SEPARATE, &path, Some(4096))).unwrap();
    for _ in 0..20 {
        let mut bench = Bench::with(Arc::clone(&volume), SEPARATE);
        for lba in (0..4096).step_by(128) {
            let (data, md) = (bench.pattern(lba, 100), bench.md_pattern(lba, 100));
            let mut io = bench.write_io(lba, &data, &md);
            io.guard = volume.locks().try_lock(lba, 100, Mode::Write);
            assert!(matches!(bench.engine.submit(io), Submit::Pending));
        }
        // Some go to the kernel, some don't.
        let _ = bench.engine.poll();
        let pool = bench.pool.clone();
        drop(bench);
        assert_eq!(pool.free_bytes(), pool.region().len(), "every buffer is back");
        assert!(volume.locks().try_lock(0, 4096, Mode::Write).is_some(), "every lock is free");
    }
}

#[test]
fn zeros_are_written_where_the_file_system_knows_no_other_way() {
    for shape in Shape::all() {
        let (_folder, path) = folder();
        let mut bench = open(shape, &path, Some(1024));
        let Backend::File(file) = bench.volume.backend() else { panic!("it is a file") };
        for disk in [Some(&file.data), file.pi.as_ref()].into_iter().flatten() {
            disk.no_punch.store(true, Ordering::Relaxed);
            disk.no_zero.store(true, Ordering::Relaxed);
        }
        bench.write_pattern(0, 1024);
        bench.zero(100, 700, None).unwrap();
        assert!(bench.read(100, 700).0.iter().all(|&byte| byte == 0));
        bench.deallocate(90, 800).unwrap();
        let (data, md) = bench.read(90, 800);
        assert!(data.iter().all(|&byte| byte == 0));
        assert_eq!(md, bench.unwritten(800));
        bench.expect_pattern(0, 90);
        bench.expect_pattern(890, 134);
        bench.deallocate(0, 1024).unwrap();
        bench.compare_with_array(50);
    }
}

/// A loop device over a file of 8 MiB with this sector size, while it lives.
struct LoopDevice {
    _folder: TempDir,
    path: PathBuf,
}

impl LoopDevice {
    /// `None` where none can be had: only root makes one, with the kernel's loop driver. `./test.sh` says so beforehand.
    ///
    /// # Panics
    /// When making it fails although it can be had.
    fn new(sector: u32) -> Option<Self> {
        if !nix::unistd::geteuid().is_root() || !Path::new("/dev/loop-control").exists() {
            eprintln!("not tested: a loop device needs root and /dev/loop-control");
            return None;
        }
        let (folder, backing) = folder();
        fs::File::create(&backing).unwrap().set_len(8 << 20).unwrap();
        let made = Command::new("losetup")
            .args(["--find", "--show", "--sector-size", &sector.to_string()])
            .arg(&backing)
            .output()
            .unwrap_or_else(|error| panic!("losetup (of util-linux or mount) doesn't run: {error}"));
        assert!(made.status.success(), "no loop device: {made:?}");
        let path = PathBuf::from(String::from_utf8(made.stdout).unwrap().trim());
        Some(Self { _folder: folder, path })
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let ended = Command::new("losetup").arg("--detach").arg(&self.path).status();
        assert!(ended.is_ok_and(|status| status.success()), "the loop device ends");
    }
}

#[test]
fn a_block_device_is_a_volume_of_its_size() {
    // With sectors larger than blocks it goes through the page cache.
    for sector in [512, 4096] {
        for shape in [PLAIN, INTERLEAVED, Shape { block_size: 4096, ..PLAIN }] {
            let Some(device) = LoopDevice::new(sector) else { return };
            let mut bench = open(shape, &device.path, None);
            let stride = u64::from(shape.block_size + u32::from(bench.volume.metadata_size()));
            let blocks = (8 << 20) / stride;
            assert_eq!(bench.volume.blocks(), blocks);
            let last = u32::try_from(blocks).unwrap() - 1;
            // Nobody filled the device: only blocks that were written or deallocated are known.
            bench.write_pattern(u64::from(last) - 100, 101);
            bench.deallocate(u64::from(last) - 50, 20).unwrap();
            bench.zero(u64::from(last) - 20, 10, None).unwrap();
            bench.flush().unwrap();
            bench.expect_pattern(u64::from(last) - 100, 50);
            let (data, md) = bench.read(u64::from(last) - 50, 20);
            assert!(data.iter().all(|&byte| byte == 0));
            assert_eq!(md, bench.unwritten(20));
            bench.expect_pattern(u64::from(last) - 10, 11);
            let error = bench.volume.resize(blocks + 1).unwrap_err().to_string();
            assert!(error.contains(&format!("at most {blocks} blocks")), "{error}");
            let error = refusal(shape, &device.path, None);
            assert!(error.contains("can't open") || error.contains("another volume"), "{error}");
        }
    }
}

#[test]
fn metadata_of_a_block_device_lies_beside_a_link_to_it() {
    let Some(device) = LoopDevice::new(512) else { return };
    let error = refusal(SEPARATE, &device.path, None);
    assert!(error.contains("would not outlive a restart"), "{error}");
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("disk0");
    std::os::unix::fs::symlink(&device.path, &link).unwrap();
    let error = refusal(SEPARATE, &link, None);
    assert!(error.contains("intact-pi generate --file"), "{error}");
    let config = bench::file(SEPARATE, &link, None);
    let protection = config.protection.unwrap();
    let header = PiHeader {
        uuid: config.identity.uuid(),
        format: protection.format,
        pi_type: protection.pi_type,
        blocks: 16384,
    };
    fs::write(pi_path(&link), header.encode()).unwrap();
    set_len(&pi_path(&link), header.file_length());
    let mut bench = open(SEPARATE, &link, None);
    bench.compare_with_array(30);
}

#[test]
fn a_file_that_somebody_cut_is_a_failing_medium() {
    let (_folder, path) = folder();
    let mut bench = open(SEPARATE, &path, Some(64));
    bench.write_pattern(0, 64);
    set_len(&path, 40 * 512);
    let io = Io { data: bench.pool.take(64 * 512), ..bench.io(IoOp::Read, 0, 64) };
    let error = bench.run(io).result.unwrap_err();
    assert_eq!((error.kind, error.lba, error.area), (IoErrorKind::Media, 40, Area::Data));
    set_len(&pi_path(&path), 4096);
    let io = Io { md: bench.pool.take(8 * 8), ..bench.io(IoOp::Read, 8, 8) };
    let error = bench.run(io).result.unwrap_err();
    assert_eq!((error.kind, error.lba, error.area), (IoErrorKind::Media, 8, Area::Metadata));
}
