//! `intact-host` against Linux's own target: nvmet-rdma in a guest.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use intact_tests::guest::{Guest, HOST_ID, HOST_NQN, SUBSYSTEM};
use intact_tests::net::{ETHERNET_MTU, JUMBO_MTU, Network, TARGET_V4, TARGET_V6, TargetPlace};
use intact_tests::target::program;
use intact_tests::vm::{Kernel, VmConfig};
use tempfile::TempDir;

const STRANGER_NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:5740a6ee-0000-4000-8000-000000000000";

/// A guest that serves two RAM disks, of 512- and 4096-byte blocks, and this machine's side of its network.
struct Setup {
    guest: Guest,
    network: Network,
    folder: TempDir,
    /// Where the guest listens, and the address this side uses.
    remote: &'static str,
    local: &'static str,
}

impl Setup {
    fn new(kernel: Kernel, mtu: u32, remote: &'static str, local: &'static str) -> Self {
        let mut network = Network::new(mtu, TargetPlace::Namespace);
        let mut guest = Guest::boot(&VmConfig::new("nvmet", kernel, 2), &mut network, 2);
        guest.serve_nvmet(&[remote], &["null:16777216:512", "null:16777216:4096"]);
        Self {
            guest,
            network,
            folder: TempDir::new().expect("a temporary folder can be made"),
            remote,
            local,
        }
    }

    fn command(&self, verb: &str, host_nqn: &str) -> Command {
        let host = program("intact-host");
        let mut command = self.network.command(host.to_str().expect("build folders have plain names"));
        command.args([verb, "--traddr", self.remote, "--trsvcid", "4420", "--local", self.local]);
        command.args(["--hostnqn", host_nqn, "--hostid", HOST_ID]);
        if verb != "discover" {
            command.args(["--nqn", SUBSYSTEM]);
        }
        command
    }

    /// Runs `intact-host VERB ARGUMENTS`, which has to succeed, and returns what it printed.
    fn run(&self, verb: &str, arguments: &[&str]) -> String {
        let output = run(self.command(verb, HOST_NQN).args(arguments));
        assert!(output.status.success(), "intact-host {verb} {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).expect("intact-host prints text")
    }

    /// Runs `intact-host VERB ARGUMENTS`, which has to fail with an NVMe status.
    fn run_refused(&self, verb: &str, host_nqn: &str, arguments: &[&str], status: &str) {
        let output = run(self.command(verb, host_nqn).args(arguments));
        let said =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(1), "intact-host {verb} {arguments:?}: {said}");
        assert!(said.contains(&format!("status: {status} ")), "no {status} in: {said}");
    }

    fn transfer(&self, verb: &str, nsid: u32, slba: u64, blocks: usize, data: &Path) -> String {
        self.run(
            verb,
            &[
                "--namespace-id",
                &nsid.to_string(),
                "--start-block",
                &slba.to_string(),
                "--block-count",
                &(blocks - 1).to_string(),
                "--data",
                data.to_str().expect("temporary folders have plain names"),
            ],
        )
    }
}

fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"))
}

/// Bytes that differ everywhere and from one seed to the next (a linear congruential generator).
fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    (0..length)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        })
        .collect()
}

fn everything(kernel: Kernel, mtu: u32, remote: &'static str, local: &'static str) {
    let mut setup = Setup::new(kernel, mtu, remote, local);
    let found = setup.run("discover", &[]);
    assert!(found.contains(SUBSYSTEM) && found.contains(remote), "discovered: {found}");
    let identity = setup.run("identify", &["--namespace-id", "2"]);
    assert!(identity.contains(SUBSYSTEM), "identified: {identity}");
    setup.run_refused("identify", STRANGER_NQN, &[], "SCT 0x1 SC 0x84");

    let written = setup.folder.path().join("written");
    let back = setup.folder.path().join("back");
    for (nsid, block_size) in [(1, 512), (2, 4096)] {
        for (round, kib) in [4, 8, 64, 128, 256, 1024].into_iter().enumerate() {
            let data = bytes(kib * 1024, u64::from(nsid) * 100 + round as u64);
            let blocks = data.len() / block_size;
            let slba = (2 << 20) / block_size as u64 + 3;
            fs::write(&written, &data).expect("the temporary folder can be written");
            setup.transfer("write", nsid, slba, blocks, &written);
            setup.transfer("read", nsid, slba, blocks, &back);
            assert!(
                fs::read(&back).is_ok_and(|back| back == data),
                "namespace {nsid}, {kib} KiB: read other data"
            );
        }
        setup.run("flush", &["--namespace-id", &nsid.to_string()]);
        // The disk itself holds what was written, where it was written.
        let at = (2 << 20) + 3 * block_size;
        setup.guest.check_disk_holds(nsid, at, &fs::read(&written).expect("just written"));
    }
    // nvmet has no Compare: its refusal arrives as such.
    let written = written.to_str().expect("temporary folders have plain names");
    let compare = ["--namespace-id", "2", "--start-block", "0", "--block-count", "255", "--data", written];
    setup.run_refused("compare", HOST_NQN, &compare, "SCT 0x0 SC 0x01");

    for rw in ["randrw", "read"] {
        let arguments = ["--namespace-id", "2", "--rw", rw, "--bs", "4096", "--qd", "32", "--queues", "2"];
        let result = setup.run("bench", &[&arguments[..], &["--time", "3", "--verify", "--json"]].concat());
        assert!(result.contains("\"iops\""), "bench --rw {rw}: {result}");
    }
}

#[test]
fn intact_host_uses_linux_6_1_nvmet_over_ipv4() {
    everything(Kernel::V6_1, JUMBO_MTU, "10.77.0.2", TARGET_V4);
}

#[test]
fn intact_host_uses_linux_6_12_nvmet_over_ipv6() {
    everything(Kernel::V6_12, ETHERNET_MTU, "fd77::2", TARGET_V6);
}
