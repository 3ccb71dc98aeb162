//! Linux hosts against `intact serve`: kernels, address families, MTUs and queue counts in pairs, each with all block formats.

use intact_tests::guest::{ExpectedNamespace, Guest, HOST_NQN, Protected, SUBSYSTEM};
use intact_tests::net::{ETHERNET_MTU, JUMBO_MTU, Network, TARGET_V4, TARGET_V6, TargetPlace};
use intact_tests::target::{Target, program};
use intact_tests::vm::{Kernel, VmConfig};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 64 * MIB;

const NAMESPACES: [ExpectedNamespace; 7] = [
    ExpectedNamespace { nsid: 1, block_size: 512, bytes: SIZE },
    ExpectedNamespace { nsid: 2, block_size: 4096, bytes: SIZE },
    ExpectedNamespace { nsid: 3, block_size: 512, bytes: SIZE },
    ExpectedNamespace { nsid: 4, block_size: 4096, bytes: SIZE },
    ExpectedNamespace { nsid: 5, block_size: 512, bytes: SIZE },
    ExpectedNamespace { nsid: 6, block_size: 4096, bytes: SIZE },
    ExpectedNamespace { nsid: 7, block_size: 4096, bytes: SIZE },
];

/// Those with protection: each type, and a guard of 64 bits. Linux 6.1 and 6.12 have no other guards, and no block I/O with
/// storage tags, which namespace 8 has.
const PROTECTED: [Protected; 5] = [
    Protected { nsid: 3, block_size: 512, pi_type: 1, guard_bits: 16 },
    Protected { nsid: 4, block_size: 4096, pi_type: 1, guard_bits: 16 },
    Protected { nsid: 5, block_size: 512, pi_type: 2, guard_bits: 16 },
    Protected { nsid: 6, block_size: 4096, pi_type: 3, guard_bits: 16 },
    Protected { nsid: 7, block_size: 4096, pi_type: 1, guard_bits: 64 },
];

/// One row: what differs between hosts.
#[derive(Clone, Copy)]
struct Row {
    kernel: Kernel,
    address: &'static str,
    mtu: u32,
    queues: u32,
}

/// Each pair of values of two columns stands in a row.
const ROWS: [Row; 5] = [
    Row { kernel: Kernel::V6_1, address: TARGET_V4, mtu: ETHERNET_MTU, queues: 1 },
    Row { kernel: Kernel::V6_1, address: TARGET_V6, mtu: JUMBO_MTU, queues: 4 },
    Row { kernel: Kernel::V6_12, address: TARGET_V4, mtu: JUMBO_MTU, queues: 4 },
    Row { kernel: Kernel::V6_12, address: TARGET_V6, mtu: ETHERNET_MTU, queues: 4 },
    Row { kernel: Kernel::V6_12, address: TARGET_V6, mtu: JUMBO_MTU, queues: 1 },
];

#[test]
fn rows_hold_every_pair_of_values() {
    let columns: [fn(&Row) -> bool; 4] = [
        |row| row.kernel == Kernel::V6_1,
        |row| row.address == TARGET_V4,
        |row| row.mtu == ETHERNET_MTU,
        |row| row.queues == 1,
    ];
    for (i, left) in columns.iter().enumerate() {
        for right in &columns[i + 1..] {
            for wanted in [(false, false), (false, true), (true, false), (true, true)] {
                assert!(
                    ROWS.iter().any(|row| (left(row), right(row)) == wanted),
                    "column {i}: no {wanted:?}"
                );
            }
        }
    }
}

/// Volumes in each format, in memory and in files, tuples separate and interleaved.
fn config(folder: &std::path::Path) -> String {
    let mut text = format!(
        "[device]\naddresses = [\"{TARGET_V4}\", \"{TARGET_V6}\"]\n\
         [[nvme.subsystem]]\nnqn = \"{SUBSYSTEM}\"\nhosts = [\"{HOST_NQN}\"]\n"
    );
    for namespace in 1..=8 {
        text.push_str(&format!("[[nvme.subsystem.namespace]]\nvolume = \"n{namespace}\"\n"));
    }
    let folder = folder.display();
    text.push_str(&format!(
        "[[volume]]\nname = \"n1\"\nmemory = \"64MiB\"\nblock_size = 512\n\
         [[volume]]\nname = \"n2\"\nfile = \"{folder}/n2\"\nsize = \"64MiB\"\n\
         [[volume]]\nname = \"n3\"\nfile = \"{folder}/n3\"\nsize = \"64MiB\"\nblock_size = 512\n\
         protection = {{ type = 1, layout = \"interleaved\" }}\n\
         [[volume]]\nname = \"n4\"\nmemory = \"64MiB\"\nprotection = {{ type = 1 }}\n\
         [[volume]]\nname = \"n5\"\nfile = \"{folder}/n5\"\nsize = \"64MiB\"\nblock_size = 512\n\
         protection = {{ type = 2 }}\n\
         [[volume]]\nname = \"n6\"\nfile = \"{folder}/n6\"\nsize = \"64MiB\"\n\
         protection = {{ type = 3, layout = \"interleaved\" }}\n\
         [[volume]]\nname = \"n7\"\nmemory = \"64MiB\"\nprotection = {{ type = 1, guard = \"crc64\" }}\n\
         [[volume]]\nname = \"n8\"\nmemory = \"64MiB\"\nblock_size = 512\n\
         protection = {{ type = 1, storage_tag_bits = 8 }}\n"
    ));
    text
}

/// Everything a host does, on a row of the matrix.
fn check(row: usize) {
    let Row { kernel, address, mtu, queues } = ROWS[row];
    let folder = tempfile::TempDir::new().expect("a temporary folder can be made");
    let mut network = Network::new(mtu, TargetPlace::Namespace);
    let intact = program("intact");
    let command = network.command(intact.to_str().expect("build folders have plain names"));
    let mut target = Target::start(command, &config(folder.path()), 2);
    let cpus = queues.max(2);
    let mut host = Guest::boot(&VmConfig::new("host", kernel, cpus), &mut network, 2);
    host.look_at(address);
    host.check_discovery();
    host.connect(queues, &NAMESPACES, "");
    // The block formats take turns with nvme-cli's long lists; each kernel meets each. First, while no block has been
    // written.
    let [plain, protected] = [&NAMESPACES[..2], &NAMESPACES[2..4]].map(|formats| formats[row % 2]);
    let device = format!("$(. /checks/lib.sh; block {})", protected.nsid);
    host.check_pi_passthrough(&device, protected.block_size);
    host.check_cli(plain.nsid);
    host.check_strict(plain.nsid);
    host.check_pi_type(PROTECTED[2 + row % 2]);
    host.check_storage_tag(8, 512);
    for protected in PROTECTED {
        host.check_pi_block(protected);
    }
    // These take long. Of the plain formats, of those of type 1, and of the others, one each takes its turn; each kernel meets
    // blocks of both sizes in each group.
    for ExpectedNamespace { nsid, .. } in [plain, protected, NAMESPACES[4 + row % 3]] {
        host.check_data(nsid);
        host.check_file_system(nsid);
        host.check_fio(nsid, 8);
    }
    host.check_reset(2);
    host.disconnect();
    target.assert_alive();
    let status = target.terminate(std::time::Duration::from_secs(10));
    assert!(status.success(), "the target ended with {status}\n{}", target.log());
}

#[test]
fn linux_6_1_over_ipv4_with_mtu_1500_and_one_queue() {
    check(0);
}

#[test]
fn linux_6_1_over_ipv6_with_mtu_4200_and_four_queues() {
    check(1);
}

#[test]
fn linux_6_12_over_ipv4_with_mtu_4200_and_four_queues() {
    check(2);
}

#[test]
fn linux_6_12_over_ipv6_with_mtu_1500_and_four_queues() {
    check(3);
}

#[test]
fn linux_6_12_over_ipv6_with_mtu_4200_and_one_queue() {
    check(4);
}
