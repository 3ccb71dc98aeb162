//! The checks against targets nobody here wrote: Linux's own nvmet-rdma in a second guest, and QEMU's protected disk.
//!
//! They prove the checks, so that one that fails against Intact is Intact's fault.

use std::fs::File;

use intact_tests::{
    guest::{ExpectedNamespace, Guest},
    net::{self, Network, TargetPlace},
    vm::{Disk, Kernel, VmConfig},
};
use tempfile::TempDir;

const MIB: u64 = 1 << 20;

const NAMESPACES: [ExpectedNamespace; 2] = [
    ExpectedNamespace { nsid: 1, block_size: 512, bytes: 64 * MIB },
    ExpectedNamespace { nsid: 2, block_size: 4096, bytes: 64 * MIB },
];

fn nvmet_and_host(target_kernel: Kernel, host_kernel: Kernel, mtu: u32) -> (Network, Guest, Guest) {
    let mut network = Network::new(mtu, TargetPlace::Guest);
    let mut target = Guest::boot(&VmConfig::new("target", target_kernel, 2), &mut network, 1);
    target.serve_nvmet(&[net::TARGET_V4, net::TARGET_V6], &["null:67108864:512", "null:67108864:4096"]);
    let host = Guest::boot(&VmConfig::new("host", host_kernel, 4), &mut network, 2);
    (network, target, host)
}

#[test]
fn linux_6_1_passes_every_check_against_nvmet() {
    let (_network, _target, mut host) = nvmet_and_host(Kernel::V6_12, Kernel::V6_1, net::JUMBO_MTU);
    host.look_at(net::TARGET_V4);
    host.check_discovery();
    host.connect(4, &NAMESPACES, "");
    host.check_data(1);
    host.check_data(2);
    host.check_file_system(1);
    host.check_fio(2, 8);
    host.check_cli(1);
    host.check_reset(2);
    host.disconnect();
    host.check_rounds(3, 4);
}

#[test]
fn linux_6_12_passes_every_check_against_nvmet_over_ipv6() {
    let (_network, _target, mut host) = nvmet_and_host(Kernel::V6_1, Kernel::V6_12, net::ETHERNET_MTU);
    host.look_at(net::TARGET_V6);
    host.check_discovery();
    host.connect(1, &NAMESPACES, "");
    host.check_data(2);
    host.check_file_system(2);
    host.check_cli(2);
    host.make_network_bad();
    host.start_load(1, 200, 50);
    host.finish_load(150, 200);
    host.check_network_was_bad();
    host.disconnect();
}

#[test]
fn the_passthrough_checks_hold_on_qemus_protected_disks() {
    let folder = TempDir::new().expect("a temporary folder can be made");
    let mut config = VmConfig::new("host", Kernel::V6_12, 2);
    for block_size in [512_u32, 4096] {
        let image = folder.path().join(format!("{block_size}"));
        let file = File::create(&image).expect("the temporary folder can be written");
        file.set_len(u64::from(block_size + 8) * 4096).expect("a sparse file can be made");
        config.disks.push(Disk::ProtectedNvme { image, block_size });
    }
    let mut network = Network::new(net::ETHERNET_MTU, TargetPlace::Guest);
    let mut host = Guest::boot(&config, &mut network, 2);
    for block_size in [512, 4096] {
        let device = host.protected_disk(block_size);
        host.check_pi_passthrough(&device, block_size);
    }
}
