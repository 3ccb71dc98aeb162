//! A Linux guest as an iSER host, with open-iscsi and ib_iser, or as a target with the kernel's own LIO and ib_isert.
//!
//! As for NVMe, the names of all checks stand here.

use std::time::Duration;

use crate::guest::{BlockDevice, Guest};

/// The target that hosts look for. Another one, with CHAP, has `:chap` behind this.
pub const TARGET: &str = "iqn.2026-11.io.intact:interop";
/// The host that is allowed. Another one has `:second` behind this, a stranger `:stranger`.
pub const INITIATOR: &str = "iqn.1993-08.org.debian:01:0a11ced0002";
/// Names and secrets of the host, and of the target with CHAP.
pub const CHAP_HOST: [&str; 2] = ["the-host", "a secret of the host"];
/// As [`CHAP_HOST`].
pub const CHAP_TARGET: [&str; 2] = ["the-target", "one of the target"];

/// A logical unit as a host has to see it.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedUnit {
    /// Its number.
    pub lun: u32,
    /// Bytes of data a block.
    pub block_size: u32,
    /// Bytes of data in all.
    pub bytes: u64,
}

/// What the scripts are told.
pub(crate) fn variables() -> String {
    let [host, host_secret] = CHAP_HOST;
    let [target, target_secret] = CHAP_TARGET;
    format!(
        "IQN={TARGET} INITIATOR={INITIATOR} CHAP_HOST='{host}' CHAP_HOST_SECRET='{host_secret}' \
         CHAP_TARGET='{target}' CHAP_TARGET_SECRET='{target_secret}'"
    )
}

impl Guest {
    /// Makes this guest a target with LIO: `units` of TARGET for INITIATOR, and the target with CHAP.
    ///
    /// # Panics
    /// When it does not start: with the console's end.
    pub fn serve_lio(&mut self, addresses: &[&str], units: &[ExpectedUnit]) {
        let command = format!(
            "{} ADDRESSES='{}' sh /checks/lio.sh {}",
            variables(),
            addresses.join(" "),
            words(units).join(" ")
        );
        let output = self.vm.run(&command, Duration::from_secs(60));
        assert!(
            output.status == 0 && output.lines == ["ok lio"],
            "LIO did not start: {output:?}\n{}",
            self.vm.logs()
        );
    }

    /// Starts open-iscsi.
    pub fn start_iscsi(&mut self) {
        self.check("iscsid.sh", &["iscsid"]);
    }

    /// SendTargets, and who is refused.
    pub fn check_iscsi_discovery(&mut self) {
        let names = ["", "_chap", "_hides_from_stranger", "_stranger_refused"];
        self.check("iscsi_discovery.sh", &names.map(|name| format!("iscsi_discovery{name}")));
    }

    /// CHAP in one direction and both, right and wrong.
    pub fn check_chap(&mut self) {
        let mut names = Vec::new();
        for way in ["one_way", "mutual"] {
            names.extend(["", "_read", "_logout"].map(|step| format!("chap_{way}{step}")));
        }
        let wrong = ["none", "wrong_secret", "wrong_name", "wrong_target_secret"];
        names.extend(wrong.map(|what| format!("chap_{what}_refused")));
        self.check("iscsi_chap.sh", &names);
    }

    /// Logs in. `settings` are further keys and values of the record.
    pub fn iscsi_login(&mut self, units: &[ExpectedUnit], settings: &str) {
        let mut names: Vec<String> =
            ["iscsi_login", "iscsi_logged_in", "iscsi_transport"].map(String::from).into();
        for ExpectedUnit { lun, .. } in units {
            names.extend(["block_size", "capacity"].map(|what| format!("iscsi_lun{lun}_{what}")));
        }
        self.check(&format!("iscsi_login.sh {} -- {settings}", words(units).join(" ")), &names);
    }

    /// Logs out.
    pub fn iscsi_logout(&mut self) {
        self.check("iscsi_logout.sh", &["iscsi_logout", "iscsi_logout_gone"]);
    }

    /// `count` rounds of login, read, logout.
    pub fn check_iscsi_rounds(&mut self, count: u32) {
        self.check_within(Duration::from_secs(400), &format!("iscsi_rounds.sh {count}"), &["iscsi_rounds"]);
    }

    /// Writes of a unit's block to 1 MiB, compared with a model.
    pub fn check_unit_data(&mut self, unit: ExpectedUnit) {
        let sizes: Vec<u32> =
            [512, 1024, 1536, 4096, 8192, 12_288, 32_768, 65_536, 131_072, 262_144, 1 << 20]
                .into_iter()
                .filter(|size| size % unit.block_size == 0)
                .collect();
        self.check_data_of(BlockDevice::Unit(unit.lun), &sizes);
    }

    /// Resets of the unit and of the target, which abort what a load has under way.
    pub fn check_iscsi_resets(&mut self, lun: u32) {
        self.check(&format!("iscsi_reset.sh lun{lun}"), &["iscsi_reset_device", "iscsi_reset_target"]);
    }

    /// sg3-utils on a unit without protection, of a target with so many units. `lacks` is what it is not asked.
    pub fn check_sg(&mut self, lun: u32, units: usize, lacks: &[&str]) {
        let names: Vec<&str> = SG.into_iter().filter(|name| !lacks.contains(name)).collect();
        self.check_within(
            Duration::from_secs(240),
            &format!("sg.sh lun{lun} {units} {}", lacks.join(" ")),
            &names,
        );
    }
}

/// Units as the scripts take them.
fn words(units: &[ExpectedUnit]) -> Vec<String> {
    let words = units.iter().map(|unit| format!("{}:{}:{}", unit.lun, unit.block_size, unit.bytes));
    words.collect()
}

/// What `sg.sh` reports.
const SG: [&str; 69] = [
    "sg_inq",
    "sg_inq_version",
    "sg_vpd_supported",
    "sg_vpd_serial",
    "sg_vpd_identification",
    "sg_vpd_ports",
    "sg_vpd_limits",
    "sg_vpd_characteristics",
    "sg_vpd_provisioning",
    "sg_vpd_unknown",
    "sg_readcap_10",
    "sg_readcap_16",
    "sg_readcap_block",
    "sg_modes_caching",
    "sg_modes_control",
    "sg_modes_6",
    "sg_modes_changeable",
    "sg_modes_unknown",
    "sg_luns",
    "sg_turs",
    "sg_requests",
    "sg_sync",
    "sg_opcodes",
    "sg_rtpg",
    "sg_persist_register",
    "sg_persist_keys",
    "sg_persist_reserve",
    "sg_persist_reservation",
    "sg_persist_status",
    "sg_persist_capabilities",
    "sg_persist_write",
    "sg_persist_wrong_key",
    "sg_persist_release",
    "sg_persist_released",
    "sg_persist_clear",
    "sg_persist_cleared",
    "sg_write_same_10",
    "sg_write_same_10_data",
    "sg_write_same_16",
    "sg_write_same_16_data",
    "sg_write_same_unmap",
    "sg_write_same_unmap_data",
    "sg_unmap",
    "sg_unmap_data",
    "sg_unmap_beyond_end",
    "sg_compare_and_write",
    "sg_compare_and_write_data",
    "sg_compare_and_write_differs",
    "sg_compare_and_write_kept",
    "sg_verify",
    "sg_verify_16",
    "sg_verify_bytes",
    "sg_verify_differs",
    "sg_raw_write_6",
    "sg_raw_write_6_data",
    "sg_raw_write_10_fua",
    "sg_raw_write_10_data",
    "sg_raw_write_12_fua",
    "sg_raw_write_12_data",
    "sg_raw_write_16_fua",
    "sg_raw_write_16_data",
    "sg_raw_write_verify",
    "sg_raw_write_verify_data",
    "sg_raw_residual",
    "sg_raw_residual_data",
    "sg_raw_beyond_end",
    "sg_raw_across_end",
    "sg_raw_unknown_command",
    "sg_raw_reserved_bit",
];
