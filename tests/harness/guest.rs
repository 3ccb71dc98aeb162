//! A Linux guest as an NVMe host, or as a target with the kernel's own nvmet: names what each check must report.
//!
//! The scripts in `tests/interop/guest/` print `ok NAME` or `not ok NAME: why`. Here stands, independently, which
//! names have to come: a check that a script leaves out fails as one that says `not ok`.

#![expect(clippy::disallowed_methods, reason = "the harness drives real programs in real time")]

use sha2::{Digest, Sha256};
use std::{
    collections::BTreeSet,
    fmt,
    time::{Duration, Instant},
};

use crate::{
    iscsi,
    net::Network,
    vm::{Vm, VmConfig},
};

/// The subsystem that hosts look for.
pub const SUBSYSTEM: &str = "nqn.2026-11.io.intact:interop";
/// The host NQN that is allowed.
pub const HOST_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:0a11ced0-0000-4000-8000-000000000002";
/// Its host identifier.
pub const HOST_ID: &str = "0a11ced0-0000-4000-8000-000000000002";

/// Time that an ordinary check may take; emulated guests on a busy machine are slow.
const CHECK: Duration = Duration::from_secs(120);

/// A namespace as a host has to see it.
#[derive(Debug, Clone, Copy)]
pub struct ExpectedNamespace {
    /// Its number, from 1.
    pub nsid: u32,
    /// Bytes of data a block.
    pub block_size: u32,
    /// Bytes of data in all.
    pub bytes: u64,
}

/// A namespace with protection, as a host has to see it.
#[derive(Debug, Clone, Copy)]
pub struct Protected {
    /// Its number.
    pub nsid: u32,
    /// Bytes of data a block.
    pub block_size: u32,
    /// 1 to 3.
    pub pi_type: u8,
    /// 16 (tuples of 8 bytes) or 64 (of 16).
    pub guard_bits: u8,
}

/// A block device of a host, as its scripts name it.
#[derive(Debug, Clone, Copy)]
pub enum BlockDevice {
    /// Of an NVMe namespace: its number.
    Namespace(u32),
    /// Of a SCSI logical unit: its number.
    Unit(u32),
}

impl From<u32> for BlockDevice {
    fn from(nsid: u32) -> Self {
        Self::Namespace(nsid)
    }
}

impl BlockDevice {
    /// What the names of checks have for it.
    fn label(self) -> String {
        match self {
            Self::Namespace(nsid) => format!("n{nsid}"),
            Self::Unit(lun) => format!("lun{lun}"),
        }
    }
}

impl fmt::Display for BlockDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Namespace(nsid) => write!(f, "{nsid}"),
            Self::Unit(lun) => write!(f, "lun{lun}"),
        }
    }
}

/// A guest with Soft-RoCE on its one network card.
#[derive(Debug)]
pub struct Guest {
    pub(crate) vm: Vm,
    address: String,
}

impl Guest {
    /// Boots a guest that will be `10.77.0.HOST` and `fd77::HOST`.
    #[must_use]
    pub fn boot(config: &VmConfig, network: &mut Network, host: u8) -> Self {
        let mut guest = Self { vm: Vm::boot(config, network, host), address: String::new() };
        guest.check(&format!("net.sh 10.77.0.{host} fd77::{host}"), &["rdma_link"]);
        guest
    }

    /// From now on looks for the target at `address`.
    pub fn look_at(&mut self, address: &str) {
        address.clone_into(&mut self.address);
    }

    /// Runs one of the guest's scripts and asserts that exactly `names` came back ok.
    pub fn check<S: AsRef<str>>(&mut self, script: &str, names: &[S]) {
        self.check_within(CHECK, script, names);
    }

    /// As [`Self::check`], for a script that may take up to `timeout`.
    ///
    /// # Panics
    /// When a name is missing, unexpected or not ok: with what was said of it and the console's end.
    pub fn check_within<S: AsRef<str>>(&mut self, timeout: Duration, script: &str, names: &[S]) {
        let started = Instant::now();
        let command = format!(
            "TRADDR={} SUBNQN={SUBSYSTEM} HOSTNQN={HOST_NQN} HOSTID={HOST_ID} {} sh /checks/{script}",
            self.address,
            iscsi::variables()
        );
        let output = self.vm.run(&command, timeout);
        println!("# {script}: {:.1} s", started.elapsed().as_secs_f32());
        let mut expected: BTreeSet<&str> = names.iter().map(AsRef::as_ref).collect();
        let mut complaints = Vec::new();
        for line in &output.lines {
            if let Some(name) = line.strip_prefix("ok ") {
                if !expected.remove(name) {
                    complaints.push(format!("unexpected: {line}"));
                }
            } else if let Some(rest) = line.strip_prefix("not ok ") {
                complaints.push(line.clone());
                expected.remove(rest.split(':').next().unwrap_or_default());
            }
        }
        complaints.extend(expected.iter().map(|name| format!("missing: {name}")));
        assert!(
            complaints.is_empty() && output.status == 0,
            "`{script}` (status {}):\n{}\n{}",
            output.status,
            complaints.join("\n"),
            self.vm.logs()
        );
    }

    /// Makes this guest a target: `devices` (block devices, or `null:BYTES:BLOCK_SIZE`) become namespaces 1 and on.
    pub fn serve_nvmet(&mut self, addresses: &[&str], devices: &[&str]) {
        let command = format!("nvmet.sh {}", devices.join(" "));
        let variables = format!("SUBNQN={SUBSYSTEM} ALLOWED={HOST_NQN} ADDRESSES='{}'", addresses.join(" "));
        let output = self.vm.run(&format!("{variables} sh /checks/{command}"), CHECK);
        assert!(
            output.status == 0 && output.lines.last().is_some_and(|line| line == "ok nvmet"),
            "nvmet did not start: {output:?}\n{}",
            self.vm.logs()
        );
    }

    /// Makes this guest a target: Intact on its RDMA device that has the address. `volumes` are words of `intact.sh`.
    pub fn serve_verbs(&mut self, address: &str, volumes: &str) {
        let command =
            format!("ALLOWED={HOST_NQN} SUBNQN={SUBSYSTEM} sh /checks/intact.sh start {address} {volumes}");
        let output = self.vm.run(&command, CHECK);
        assert!(
            output.lines == ["ok intact_check", "ok intact_ready"],
            "Intact did not start: {output:?}\n{}",
            self.vm.logs()
        );
    }

    /// Ends the Intact of [`Self::serve_verbs`].
    pub fn stop_verbs(&mut self) {
        self.check("intact.sh stop", &["intact_ended"]);
    }

    /// Takes the RDMA device away from the Intact of [`Self::serve_verbs`], which ends and says why.
    pub fn remove_rdma_device(&mut self) {
        self.check("rdma_gone.sh", &["rdma_link_delete"]);
        self.check(
            "intact.sh ended 1 'the RDMA device can.t be used any more'",
            &["intact_ended", "intact_said"],
        );
    }

    /// Waits until a metric of the Intact of [`Self::serve_verbs`] has a value, in sum.
    pub fn wait_for_metric(&mut self, name: &str, value: u64, seconds: u64) {
        let wanted = format!("# {name} {value}");
        let deadline = Instant::now() + Duration::from_secs(seconds);
        loop {
            let output = self.vm.run(&format!("sh /checks/intact.sh metric {name}"), CHECK);
            if output.lines.contains(&wanted) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "no {wanted:?} within {seconds} s: {output:?}\n{}",
                self.vm.logs()
            );
            std::thread::sleep(Duration::from_millis(500));
        }
    }

    /// Gives its network card another address.
    pub fn add_address(&mut self, address: &str) {
        let output = self.vm.run(&format!("ip addr add {address}/24 dev eth0"), CHECK);
        assert_eq!(output.status, 0, "{output:?}\n{}", self.vm.logs());
    }

    /// Reads from targets in turns, so many rounds of so many seconds: name, KiB and reads a second.
    pub fn compare_speed(
        &mut self,
        rounds: u32,
        seconds: u32,
        targets: &[(&str, &str)],
        timeout: Duration,
    ) -> Vec<(String, String, f64)> {
        let targets: Vec<String> =
            targets.iter().map(|(name, address)| format!("{name}={address}")).collect();
        let command = format!(
            "SUBNQN={SUBSYSTEM} HOSTNQN={HOST_NQN} HOSTID={HOST_ID} sh /checks/speed.sh {rounds} {seconds} {}",
            targets.join(" ")
        );
        let output = self.vm.run(&command, timeout);
        let ok = output.lines.last().is_some_and(|line| line == "ok speed");
        assert!(ok, "the comparison failed: {output:?}\n{}", self.vm.logs());
        let seen = output.lines.iter().filter_map(|line| {
            let [name, kib, rate] = line.strip_prefix("# ")?.split(' ').collect::<Vec<_>>()[..] else {
                return None;
            };
            Some((name.to_owned(), kib.to_owned(), rate.parse().ok()?))
        });
        seen.collect()
    }

    /// Asserts that a RAM disk that this guest serves holds `data` at byte `at`.
    pub fn check_disk_holds(&mut self, nsid: u32, at: usize, data: &[u8]) {
        // Cached pages of the device node could be older than what the target wrote below them.
        let read = format!(
            "disk=/dev/disk{nsid}; [ -b $disk ] || disk=/dev/nullb$(cat /sys/kernel/config/nullb/disk{nsid}/index); \
             dd if=$disk bs={} count=1 skip={at} iflag=direct,skip_bytes 2>/dev/null | sha256sum",
            data.len()
        );
        let output = self.vm.run(&read, CHECK);
        let expected: String = Sha256::digest(data).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(output.lines, [format!("{expected}  -")], "namespace {nsid} at {at}\n{}", self.vm.logs());
    }

    /// Discovery, and who is refused.
    pub fn check_discovery(&mut self) {
        self.check(
            "discovery.sh",
            &[
                "discovery_subnqn",
                "discovery_trtype",
                "discovery_adrfam",
                "discovery_subtype",
                "discovery_trsvcid",
                "discovery_traddr",
                "discovery_hides_from_stranger",
                "stranger_refused",
                "unknown_subsystem_refused",
            ],
        );
    }

    /// Connects with `queues` I/O queues; `options` are further ones of `nvme connect`.
    pub fn connect(&mut self, queues: u32, namespaces: &[ExpectedNamespace], options: &str) {
        self.connect_by("connect.sh", queues, namespaces, options);
    }

    /// As [`Self::connect`], of a host that was connected before it lost its power. Its queue pairs have the same numbers again:
    /// where the target still has the old ones, it refuses the first request as stale (IBTA 12.9.8.3), as Linux does.
    pub fn connect_again(&mut self, queues: u32, namespaces: &[ExpectedNamespace]) {
        self.connect_by("connect.sh -r", queues, namespaces, "");
    }

    fn connect_by(&mut self, script: &str, queues: u32, namespaces: &[ExpectedNamespace], options: &str) {
        let mut names: Vec<String> =
            ["connect", "connect_live", "connect_queue_count"].map(String::from).into();
        let mut script = format!("{script} {queues}");
        for ExpectedNamespace { nsid, block_size, bytes } in namespaces {
            names.push(format!("connect_n{nsid}_block_size"));
            names.push(format!("connect_n{nsid}_capacity"));
            script.push_str(&format!(" {nsid}:{block_size}:{bytes}"));
        }
        self.check(&format!("{script} -- {options}"), &names);
    }

    /// Disconnects.
    pub fn disconnect(&mut self) {
        self.check("disconnect.sh", &["disconnect", "disconnect_gone"]);
    }

    /// Writes of 4 KiB to 1 MiB, compared with a model.
    pub fn check_data(&mut self, device: impl Into<BlockDevice>) {
        self.check_data_of(device, &[4, 8, 12, 32, 64, 128, 256, 512, 1024].map(|kib| kib << 10));
    }

    /// Writes of so many bytes, at most 1 MiB, compared with a model.
    pub fn check_data_of(&mut self, device: impl Into<BlockDevice>, sizes: &[u32]) {
        let device = device.into();
        let label = device.label();
        let mut names = vec![format!("data_{label}_fill")];
        names.extend(sizes.iter().map(|size| format!("data_{label}_{size}")));
        let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
        self.check(&format!("data.sh {device} {}", sizes.join(" ")), &names);
    }

    /// A file system: made, filled, checked, read again.
    pub fn check_file_system(&mut self, device: impl Into<BlockDevice>) {
        let device = device.into();
        let label = device.label();
        let steps = ["mkfs", "mount", "copy", "umount", "fsck", "remount", "compare", "link", "final_umount"];
        self.check(&format!("fs.sh {device}"), &steps.map(|step| format!("fs_{label}_{step}")));
    }

    /// fio's mixed load with verification at depth 32 over the first `mebibytes` of a volume.
    pub fn check_fio(&mut self, device: impl Into<BlockDevice>, mebibytes: u32) {
        let device = device.into();
        let label = device.label();
        let names = ["fill", "verify"].map(|step| format!("fio_{label}_{step}"));
        self.check(&format!("fio.sh {device} {mebibytes}"), &names);
    }

    /// nvme-cli's commands on a namespace without protection.
    pub fn check_cli(&mut self, nsid: u32) {
        self.check(
            &format!("cli.sh {nsid}"),
            &[
                "cli_id_ctrl_subnqn",
                "cli_id_ctrl_serial",
                "cli_id_ctrl_cntlid",
                "cli_id_ns",
                "cli_list_ns",
                "cli_ns_descs",
                "cli_list",
                "cli_list_subsys",
                "cli_smart_log",
                "cli_error_log",
                "cli_fw_log",
                "cli_effects_log",
                "cli_effects_identify",
                "cli_effects_read",
                "cli_changed_ns_list",
                "cli_get_feature_queues",
                "cli_set_feature_events",
                "cli_get_feature_events",
                "cli_flush",
                "cli_write",
                "cli_read",
                "cli_write_zeroes",
                "cli_write_zeroes_reads_zero",
                "cli_dsm",
                "cli_dsm_reads_whole",
                "cli_write_after_dsm",
                "cli_read_after_dsm",
                "cli_unknown_command_refused",
                "cli_unknown_admin_command_refused",
            ],
        );
    }

    /// What Linux's own target lacks or leaves to the disk below: Compare, Verify, ranges, logs.
    pub fn check_strict(&mut self, nsid: u32) {
        self.check(
            &format!("strict.sh {nsid}"),
            &[
                "compare_write",
                "compare_equal",
                "compare_different",
                "compare_beyond_end",
                "verify",
                "read_beyond_end",
                "read_across_end",
                "write_beyond_end",
                "write_zeroes_beyond_end",
                "error_log_names_status",
                "supported_log_pages",
                "unknown_log_refused",
                "unknown_feature_refused",
            ],
        );
    }

    /// A controller reset.
    pub fn check_reset(&mut self, nsid: u32) {
        self.check(&format!("reset.sh {nsid}"), &["reset", "reset_live", "reset_queue_count", "reset_data"]);
    }

    /// The generic device of the guest's own NVMe disk with blocks of this size. Linux numbers controllers as they get ready.
    pub fn protected_disk(&mut self, block_size: u32) -> String {
        let script = format!(
            "modprobe nvme; for _ in 1 2 3 4 5 6 7 8 9 10; do for disk in /sys/class/nvme/nvme*; do case $(cat $disk/serial) in \
             b{block_size}-*) [ -e /dev/ng${{disk##*nvme}}n1 ] && echo /dev/ng${{disk##*nvme}}n1 && exit;; esac; done; sleep 1; done"
        );
        let output = self.vm.run(&script, CHECK);
        let found = output.lines.iter().find(|line| line.starts_with("/dev/ng"));
        found.unwrap_or_else(|| panic!("no NVMe disk: {}", self.vm.logs())).clone()
    }

    /// Waits until a namespace has `bytes`, because the target told so.
    pub fn wait_for_namespace(&mut self, nsid: u32, bytes: u64) {
        self.check(&format!("namespace.sh has {nsid} {bytes}"), &[format!("namespace_{nsid}_has_{bytes}")]);
    }

    /// Waits until a namespace is gone, because the target told so.
    pub fn wait_until_gone(&mut self, nsid: u32) {
        self.check(&format!("namespace.sh gone {nsid}"), &[format!("namespace_{nsid}_gone")]);
    }

    /// Passthrough with protection information, each PRINFO bit, right and wrong. `device` is a shell word.
    pub fn check_pi_passthrough(&mut self, device: &str, block_size: u32) {
        let names: Vec<String> =
            PI_PASSTHROUGH.iter().map(|name| format!("pi_{block_size}_{name}")).collect();
        self.check(&format!("pi.sh {device} {block_size} 64"), &names);
    }

    /// What is different with protection of types 2 and 3, by passthrough.
    pub fn check_pi_type(&mut self, protected: Protected) {
        let Protected { nsid, block_size, pi_type, .. } = protected;
        let names = PI_TYPE.map(|name| format!("pi_type_{pi_type}_{name}"));
        self.check(&format!("pi_type.sh {nsid} {block_size} {pi_type} 64"), &names);
    }

    /// A namespace with a guard of 16 bits and a storage tag of 8, by passthrough.
    pub fn check_storage_tag(&mut self, nsid: u32, block_size: u32) {
        let steps = [
            "no_block_io",
            "mask",
            "size",
            "write",
            "read",
            "write_other_tag",
            "read_other_tag",
            "read_unchecked",
            "write_other_ref",
            "write_pract",
            "tuples",
            "read_pract",
        ];
        let names = steps.map(|step| format!("pi_storage_{step}"));
        self.check(&format!("pi_storage.sh {nsid} {block_size} 64"), &names);
    }

    /// The block device of a protected namespace, whose tuples the controller inserts and strips.
    pub fn check_pi_block(&mut self, protected: Protected) {
        let Protected { nsid, block_size, pi_type, guard_bits } = protected;
        let steps = ["write", "tuples", "read", "store_bad_guard", "bad_guard_io_error", "heal", "healed"];
        self.check(
            &format!("pi_block.sh {nsid} {block_size} {pi_type} {guard_bits}"),
            &steps.map(|step| format!("pi_block_n{nsid}_{step}")),
        );
    }

    /// `count` rounds of connect, read, disconnect.
    pub fn check_rounds(&mut self, count: u32, queues: u32) {
        self.check_within(Duration::from_secs(400), &format!("rounds.sh {count} {queues}"), &["rounds"]);
    }

    /// Starts a load in the background: `writes` random writes of 8 KiB, at most `iops` of them a second; then it reads
    /// them back.
    pub fn start_load(&mut self, device: impl Into<BlockDevice>, writes: u32, iops: u32) {
        let device = device.into();
        self.check(&format!("load.sh start {device} {writes} {iops}"), &["load_started"]);
    }

    /// Asserts that the load has not ended.
    pub fn check_load_runs(&mut self) {
        self.check("load.sh running", &["load_running"]);
    }

    /// Waits up to `seconds` for the load's end, and asserts that it read back what it wrote: `writes` blocks.
    pub fn finish_load(&mut self, seconds: u32, writes: u32) {
        let timeout = Duration::from_secs(u64::from(seconds) + 60);
        self.check_within(timeout, &format!("load.sh wait {seconds} {writes}"), &["load_verified"]);
    }

    /// Waits until the controller is `live`, `connecting`.
    pub fn wait_for_state(&mut self, state: &str, seconds: u32) {
        let timeout = Duration::from_secs(u64::from(seconds) + 30);
        self.check_within(timeout, &format!("state.sh {state} {seconds}"), &[format!("state_{state}")]);
    }

    /// Makes the network lose and reorder packets in both directions.
    pub fn make_network_bad(&mut self) {
        self.check("netem.sh", &["netem_in", "netem_out"]);
    }

    /// Asserts that it did.
    pub fn check_network_was_bad(&mut self) {
        self.check("netem_seen.sh", &["netem_seen_ifb0", "netem_seen_ifb1"]);
    }

    /// Lets time pass in the guest, while what runs there goes on.
    pub fn sleep(&mut self, seconds: u32) {
        let timeout = Duration::from_secs(u64::from(seconds)) + CHECK;
        self.vm.run(&format!("sleep {seconds}"), timeout);
    }

    /// Cuts the guest's power.
    pub fn kill(&mut self) {
        self.vm.kill();
    }
}

/// What `pi_type.sh` reports, without the prefix that names the type.
const PI_TYPE: [&str; 22] = [
    "identify",
    "unwritten",
    "write",
    "read",
    "write_bad_guard",
    "write_bad_app",
    "bad_writes_moved_nothing",
    "write_other_ref",
    "read_other_ref",
    "read_other_ref_pract",
    "read_bad_guard",
    "app_ones",
    "all_ones",
    "all_ones_read",
    "pract",
    "pract_tuples",
    "pract_read",
    "zeroes",
    "zeroes_checked",
    "compare",
    "compare_different",
    "verify",
];

/// What `pi.sh` reports, without the prefix that names the block size.
const PI_PASSTHROUGH: [&str; 45] = [
    "streams",
    "unwritten_checked",
    "write_0",
    "read_0",
    "write_1",
    "read_1",
    "write_2",
    "read_2",
    "write_4",
    "read_4",
    "write_7",
    "read_7",
    "write_bad_guard",
    "write_bad_app",
    "write_bad_ref",
    "write_ref_not_lba",
    "bad_writes_moved_nothing",
    "write_unchecked_guard",
    "read_unchecked_guard",
    "read_bad_guard",
    "read_bad_guard_moved_nothing",
    "read_bad_guard_pract",
    "write_unchecked_app",
    "read_unchecked_app",
    "read_bad_app",
    "read_bad_app_pract",
    "write_unchecked_ref",
    "read_unchecked_ref",
    "read_bad_ref",
    "read_bad_ref_pract",
    "read_app_masked",
    "read_app_masked_wrong",
    "read_app_mask_0",
    "write_escape",
    "read_escape",
    "write_pract_8",
    "write_pract_8_tuples",
    "read_pract_8",
    "write_pract_15",
    "write_pract_15_tuples",
    "read_pract_15",
    "zeroes",
    "zeroes_checked",
    "compare_equal",
    "compare_different",
];
