//! A network of its own for a target and its guests: a namespace with a bridge, and a tap a guest.
//!
//! The namespace lives as long as a process that does nothing holds it, so that nothing is left behind
//! even when the test is killed. Loss and reordering are the guest's business (its kernel has netem; this
//! machine's may not).

#![expect(clippy::disallowed_methods, reason = "the harness drives real programs in real time")]

use std::{
    fs, io,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

/// The address of the target, or of the bridge when nothing listens on it.
pub const TARGET_V4: &str = "10.77.0.1";
/// The same in IPv6.
pub const TARGET_V6: &str = "fd77::1";
/// Bytes that UDP, RoCE and NVMe headers may take beside a 4096-byte path MTU fit in an MTU of 4200.
pub const JUMBO_MTU: u32 = 4200;
/// Ethernet's ordinary MTU; gives a path MTU of 1024.
pub const ETHERNET_MTU: u32 = 1500;

/// Who has the target's addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetPlace {
    /// A process in the namespace: the bridge has them.
    Namespace,
    /// A guest.
    Guest,
}

/// A network namespace with the bridge `br0`.
#[derive(Debug)]
pub struct Network {
    holder: Child,
    mtu: u32,
    taps: u32,
}

impl Network {
    /// Makes a namespace whose links have an MTU of `mtu` bytes.
    ///
    /// # Panics
    /// Where namespaces or taps can't be had, with the reason.
    #[must_use]
    pub fn new(mtu: u32, place: TargetPlace) -> Self {
        assert!(
            nix::unistd::geteuid().is_root(),
            "the interop suite needs root: it makes a network namespace and taps (run it with sudo)"
        );
        if let Err(error) = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun") {
            panic!("the interop suite needs /dev/net/tun to connect its guests: {error}");
        }
        let holder = Command::new("unshare")
            .args(["--net", "--", "setpriv", "--pdeathsig", "KILL", "--", "sleep", "infinity"])
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run unshare: {error}"));
        let mut network = Self { holder, mtu, taps: 0 };
        network.wait_for_holder();
        network.ip("link set lo up");
        network.ip("link add br0 type bridge mcast_snooping 0 forward_delay 0");
        network.ip(&format!("link set br0 mtu {mtu} up"));
        if place == TargetPlace::Namespace {
            network.ip(&format!("addr add {TARGET_V4}/24 dev br0"));
            network.ip(&format!("-6 addr add {TARGET_V6}/64 dev br0 nodad"));
        }
        network
    }

    /// Waits until the holder has left this namespace: before that, a command sent to its namespace would run in ours.
    fn wait_for_holder(&mut self) {
        let ours = fs::read_link("/proc/self/ns/net").expect("this process has a network namespace");
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            if let Ok(Some(status)) = self.holder.try_wait() {
                panic!("cannot make a network namespace: unshare ended with {status}");
            }
            // The link can be read before `unshare` runs; `sleep` runs after it.
            let pid = self.holder.id();
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            if comm.trim_end() == "sleep"
                && fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|link| link != ours)
            {
                return;
            }
            assert!(Instant::now() < deadline, "no network namespace within 10 s");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// The MTU of the links, in bytes.
    #[must_use]
    pub const fn mtu(&self) -> u32 {
        self.mtu
    }

    /// A command that will run in the namespace and die with this test. Its process id is the program's own.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.holder.id())).args([
            "--",
            "setpriv",
            "--pdeathsig",
            "KILL",
            "--",
            program,
        ]);
        command
    }

    /// Moves the calling thread into the namespace: sockets that it makes from now on are there.
    ///
    /// # Panics
    /// When the kernel refuses.
    pub fn enter(&self) {
        let namespace = fs::File::open(format!("/proc/{}/ns/net", self.holder.id()));
        let namespace = namespace.expect("the holder lives as long as the network");
        nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET)
            .expect("root may enter namespaces");
    }

    /// Adds a tap to the bridge and returns its name.
    pub fn tap(&mut self) -> String {
        let name = format!("tap{}", self.taps);
        self.taps += 1;
        self.ip(&format!("tuntap add dev {name} mode tap"));
        self.ip(&format!("link set {name} mtu {} master br0 up", self.mtu));
        name
    }

    fn ip(&self, arguments: &str) {
        let output = self.command("ip").args(arguments.split(' ')).output();
        check_output("ip", arguments, output);
    }
}

fn check_output(program: &str, arguments: &str, output: io::Result<std::process::Output>) {
    let output = output.unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
    assert!(output.status.success(), "{program} {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Drop for Network {
    fn drop(&mut self) {
        // Either may fail only when the holder is gone already.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
