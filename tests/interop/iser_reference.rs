//! The checks of iSER hosts against a target nobody here wrote: Linux's own LIO with ib_isert, in a second guest.
//!
//! They prove the checks, so that one that fails against Intact is Intact's fault. LIO moves no protection information over a
//! device that does not offload it, as rdma_rxe is: those checks have no reference. In 6.1 it knows no REPORT SUPPORTED OPERATION
//! CODES, and it compares nothing that VERIFY brings.

use intact_tests::guest::{BlockDevice, Guest};
use intact_tests::iscsi::ExpectedUnit;
use intact_tests::net::{self, Network, TargetPlace};
use intact_tests::vm::{Kernel, VmConfig};

const SIZE: u64 = 64 << 20;

const UNITS: [ExpectedUnit; 2] = [
    ExpectedUnit { lun: 0, block_size: 512, bytes: SIZE },
    ExpectedUnit { lun: 1, block_size: 4096, bytes: SIZE },
];

#[test]
fn linux_passes_every_check_against_lio() {
    let mut network = Network::new(net::JUMBO_MTU, TargetPlace::Guest);
    let mut target = Guest::boot(&VmConfig::new("target", Kernel::V6_1, 2), &mut network, 1);
    target.serve_lio(&[net::TARGET_V4], &UNITS);
    let mut host = Guest::boot(&VmConfig::new("host", Kernel::V6_12, 2), &mut network, 2);
    host.look_at(net::TARGET_V4);
    host.start_iscsi();
    host.check_iscsi_discovery();
    host.check_chap();
    host.iscsi_login(&UNITS, "");
    for unit in UNITS {
        host.check_unit_data(unit);
    }
    host.check_sg(0, UNITS.len(), &["sg_opcodes", "sg_verify_differs"]);
    host.check_file_system(BlockDevice::Unit(1));
    host.check_fio(BlockDevice::Unit(1), 4);
    host.start_load(BlockDevice::Unit(1), 400, 100);
    host.check_iscsi_resets(1);
    host.finish_load(60, 400);
    host.iscsi_logout();
    host.check_iscsi_rounds(3);
}
