//! fio's own protection information against `intact serve`: an engine that nobody here wrote makes and checks the tuples of
//! extended blocks, which the guest's kernel passes through (`io_uring_cmd` on `/dev/ngXnY`).
//!
//! What fio 3.39 can't do, and what stands for it here: it checks what it asks the target to check, so on the media the target
//! finds damage first, and only damage behind the target's check shows that fio finds it; it verifies no data with tuples in
//! it (`--verify`), but the guards cover it; it has no guards of 32 bits and no storage tags.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use intact_tests::guest::{ExpectedNamespace, Guest, HOST_NQN, SUBSYSTEM};
use intact_tests::metrics::Metrics;
use intact_tests::net::{JUMBO_MTU, Network, TARGET_V4, TargetPlace};
use intact_tests::target::{Target, program};
use intact_tests::vm::{Kernel, VmConfig};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

/// Where the target's counters are, in its network namespace.
const METRICS: &str = "127.0.0.1:9420";

/// The block that is damaged on the media.
const DAMAGED_LBA: u64 = 9;

/// Time that all of fio's runs on one namespace may take.
const LOAD: Duration = Duration::from_secs(240);

/// A namespace with protection of type 1, its number being its place.
struct Format {
    block_size: u32,
    metadata: u32,
    guard_bits: u8,
    /// The volume's keys beside its name.
    volume: &'static str,
    /// What is damaged on the media.
    damage: Option<Damage>,
}

/// One bit of a block on the media.
struct Damage {
    /// What follows the volume's name in the file's.
    suffix: &'static str,
    /// Which byte of the file.
    at: u64,
    /// The field whose check fails, as metrics name it.
    field: &'static str,
}

/// A field each is damaged, in the data or in the tuple; a volume in memory sends what it reads from where it lies.
const FORMATS: [Format; 4] = [
    Format {
        block_size: 512,
        metadata: 8,
        guard_bits: 16,
        volume: "file = \"FOLDER/n1\"\nsize = \"64MiB\"\nblock_size = 512\nprotection = { type = 1, layout = \"interleaved\" }",
        damage: Some(Damage { suffix: "", at: DAMAGED_LBA * 520 + 300, field: "guard" }),
    },
    Format {
        block_size: 4096,
        metadata: 8,
        guard_bits: 16,
        volume: "file = \"FOLDER/n2\"\nsize = \"64MiB\"\nprotection = { type = 1 }",
        // Behind the header of 4 KiB.
        damage: Some(Damage { suffix: ".pi", at: 4096 + DAMAGED_LBA * 8 + 7, field: "ref_tag" }),
    },
    Format {
        block_size: 4096,
        metadata: 64,
        guard_bits: 16,
        volume: "file = \"FOLDER/n3\"\nsize = \"64MiB\"\nprotection = { type = 1, metadata_size = 64, layout = \"interleaved\" }",
        damage: Some(Damage { suffix: "", at: DAMAGED_LBA * 4160 + 4152 + 3, field: "app_tag" }),
    },
    Format {
        block_size: 4096,
        metadata: 16,
        guard_bits: 64,
        volume: "memory = \"64MiB\"\nprotection = { type = 1, guard = \"crc64\" }",
        damage: None,
    },
];

/// Linux has block I/O where metadata is the tuple alone; namespace 3 takes passthrough only.
const BLOCK_DEVICES: [ExpectedNamespace; 3] = [
    ExpectedNamespace { nsid: 1, block_size: 512, bytes: 64 * MIB },
    ExpectedNamespace { nsid: 2, block_size: 4096, bytes: 64 * MIB },
    ExpectedNamespace { nsid: 4, block_size: 4096, bytes: 64 * MIB },
];

const LOAD_CHECKS: [&str; 19] = [
    "fill",
    "filled",
    "mix",
    "mixed",
    "read",
    "read_all",
    "stored",
    "stored_tuples",
    "other_app",
    "app_masked",
    "app_masked_wrong",
    "no_guard_write",
    "no_guard_unasked",
    "no_guard_found",
    "pract",
    "pract_mixed",
    "pract_heal",
    "pract_tuples",
    "pract_tuples_all",
];

const WIRE_CHECKS: [&str; 8] = [
    "wire_damage_data",
    "wire_guard",
    "wire_guard_unasked",
    "wire_damage_tags",
    "wire_app",
    "wire_ref",
    "wire_tags_unasked",
    "wire_sound",
];

const MEDIA_CHECKS: [&str; 6] =
    ["media_found", "media_pract", "media_unasked", "media_neighbour", "media_heal", "media_healed"];

/// A host that runs fio, the target and what lies under it.
struct Setup {
    // Dropped in this order: the processes before their network and files.
    host: Guest,
    target: Target,
    network: Network,
    folder: TempDir,
}

impl Setup {
    fn new(kernel: Kernel) -> Self {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let mut network = Network::new(JUMBO_MTU, TargetPlace::Namespace);
        let intact = program("intact");
        let command = network.command(intact.to_str().expect("build folders have plain names"));
        let target = Target::start(command, &config(folder.path()), 1);
        let mut host = Guest::boot(&VmConfig::new("host", kernel, 2), &mut network, 2);
        host.look_at(TARGET_V4);
        host.connect(2, &BLOCK_DEVICES, "");
        Self { host, target, network, folder }
    }

    /// Runs a script on a namespace, all whose checks have to come back ok.
    fn check(&mut self, script: &str, nsid: usize, arguments: &str, checks: &[&str]) {
        let Format { block_size, metadata, guard_bits, .. } = FORMATS[nsid - 1];
        let script = format!("{script} {nsid} {block_size} {metadata} {guard_bits} {arguments}");
        let names: Vec<String> = checks.iter().map(|check| format!("fio_n{nsid}_{check}")).collect();
        self.host.check_within(LOAD, script.trim_end(), &names);
    }

    /// How many checks of a field the target has found to fail; of all fields when it is empty.
    fn failed_checks(&self, field: &str) -> u64 {
        let address: SocketAddr = METRICS.parse().expect("it is an address");
        let network = &self.network;
        let scrape = || {
            network.enter();
            Metrics::scrape(address)
        };
        let metrics = std::thread::scope(|scope| scope.spawn(scrape).join()).expect("the metrics were read");
        metrics.sum("intact_pi_errors_total", field)
    }

    /// Flips a bit of a file volume.
    fn damage(&self, nsid: usize, damage: &Damage) {
        let path = self.folder.path().join(format!("n{nsid}{}", damage.suffix));
        let file = File::options().read(true).write(true).open(path).expect("the volume has this file");
        let mut byte = [0];
        file.read_exact_at(&mut byte, damage.at).expect("the block is in the file");
        file.write_all_at(&[byte[0] ^ 0x10], damage.at).expect("the volume's file can be written");
        file.sync_all().expect("the volume's file can be synced");
    }
}

fn config(folder: &Path) -> String {
    let mut text = format!(
        "[device]\naddress = \"{TARGET_V4}\"\n[metrics]\naddress = \"{METRICS}\"\n\
         [[nvme.subsystem]]\nnqn = \"{SUBSYSTEM}\"\nhosts = [\"{HOST_NQN}\"]\n"
    );
    for nsid in 1..=FORMATS.len() {
        text.push_str(&format!("[[nvme.subsystem.namespace]]\nvolume = \"n{nsid}\"\n"));
    }
    for (number, Format { volume, .. }) in (1..).zip(&FORMATS) {
        let keys = volume.replace("FOLDER", &folder.display().to_string());
        text.push_str(&format!("[[volume]]\nname = \"n{number}\"\n{keys}\n"));
    }
    text
}

fn check(kernel: Kernel) {
    let mut setup = Setup::new(kernel);
    for nsid in 1..=FORMATS.len() {
        setup.check("fio_pi.sh", nsid, "", &LOAD_CHECKS);
    }
    let before = setup.failed_checks("");
    for nsid in 1..=FORMATS.len() {
        setup.check("fio_wire.sh", nsid, "", &WIRE_CHECKS);
    }
    assert_eq!(setup.failed_checks(""), before, "the target found what fio was to find");
    for (nsid, Format { damage, .. }) in (1..).zip(&FORMATS) {
        let Some(damage) = damage else { continue };
        let before = setup.failed_checks(damage.field);
        setup.damage(nsid, damage);
        setup.check("fio_media.sh", nsid, &format!("{DAMAGED_LBA} {}", damage.field), &MEDIA_CHECKS);
        assert_eq!(setup.failed_checks(damage.field), before + 2, "{}", damage.field);
    }
    setup.host.disconnect();
    setup.target.assert_alive();
    let status = setup.target.terminate(Duration::from_secs(10));
    assert!(status.success(), "the target ended with {status}\n{}", setup.target.log());
}

#[test]
fn fio_and_the_target_make_and_check_each_others_tuples_on_linux_6_1() {
    check(Kernel::V6_1);
}

#[test]
fn fio_and_the_target_make_and_check_each_others_tuples_on_linux_6_12() {
    check(Kernel::V6_12);
}
