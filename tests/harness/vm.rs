//! A QEMU virtual machine with a Linux kernel nobody here wrote: boots it, sends it commands, collects their lines.
//!
//! The console goes to a file. Commands and their output use a second serial port, which is QEMU's standard
//! input and output; `tests/interop/guest/agent.sh` stands at its other end. Emulation only (TCG): a
//! distribution kernel does not boot under the KVM of every machine this runs on.

#![expect(clippy::disallowed_methods, reason = "the harness drives real programs in real time")]

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{self, Receiver, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use crate::net::Network;

/// How long a guest may take until its agent answers. It takes 5 s on an idle machine.
const BOOT_TIMEOUT: Duration = Duration::from_secs(90);

/// How often a guest is started that panics on its way up. TCG with a thread for each processor now and then runs a
/// breakpoint that the kernel, patching its own code, has already taken back (seen in one boot of some twenty): that
/// is the emulator's, and says nothing about what is tested.
const BOOTS: usize = 3;

/// A kernel that `tests/interop/prepare.sh` has fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// Debian 12's.
    V6_1,
    /// Debian 13's.
    V6_12,
}

impl Kernel {
    const fn series(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
        }
    }
}

/// A disk of the guest.
#[derive(Debug, Clone)]
pub enum Disk {
    /// A virtio disk: /dev/vdc and on.
    Virtio(PathBuf),
    /// A disk of an emulated NVMe controller, with an 8-byte type 1 tuple behind each block.
    ProtectedNvme {
        /// The image; its length is a multiple of `block_size + 8`.
        image: PathBuf,
        /// Bytes of data a block.
        block_size: u32,
    },
}

/// What a guest is made of.
#[derive(Debug, Clone)]
pub struct VmConfig {
    /// Names its log.
    pub name: &'static str,
    /// What it boots.
    pub kernel: Kernel,
    /// Virtual processors; Linux makes no more I/O queues than it has of them.
    pub cpus: u32,
    /// Memory in MiB.
    pub memory_mib: u32,
    /// Disks beside the root disk.
    pub disks: Vec<Disk>,
    /// Programs of this machine, which stand beside the guest's scripts.
    pub programs: Vec<PathBuf>,
}

impl VmConfig {
    /// A guest with `cpus` processors and 768 MiB.
    #[must_use]
    pub const fn new(name: &'static str, kernel: Kernel, cpus: u32) -> Self {
        Self { name, kernel, cpus, memory_mib: 768, disks: Vec::new(), programs: Vec::new() }
    }
}

/// A running guest whose agent answers. Dropping it kills it.
#[derive(Debug)]
pub struct Vm {
    name: &'static str,
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
    folder: TempDir,
}

/// What a command of the guest printed, and how it ended.
#[derive(Debug)]
pub struct GuestOutput {
    /// Standard output, line by line.
    pub lines: Vec<String>,
    /// Exit status.
    pub status: i32,
}

impl Vm {
    /// Boots a guest on `network` and waits for its agent. `station` ends the address of its network card: another
    /// guest with the same one is the same machine, booted again.
    ///
    /// # Panics
    /// When QEMU or an image is missing, or the guest does not come up: with the reason and the console's end.
    #[must_use]
    pub fn boot(config: &VmConfig, network: &mut Network, station: u8) -> Self {
        let mut boots = 1;
        loop {
            let mut vm = Self::power_on(config, network, station);
            match vm.wait_for_agent() {
                Ok(()) => return vm,
                Err(_) if boots < BOOTS && vm.console().contains("Kernel panic") => {
                    println!("# {}: the kernel panicked before its agent was ready: once more", vm.name);
                    boots += 1;
                }
                Err(what) => vm.fail("boot", &what),
            }
        }
    }

    fn power_on(config: &VmConfig, network: &mut Network, station: u8) -> Self {
        let folder = TempDir::new().expect("a temporary folder can be made");
        let checks = folder.path().join("checks.tar");
        pack_checks(&checks, &config.programs);
        let images = image_folder();
        let series = config.kernel.series();
        let mut qemu = network.command("qemu-system-x86_64");
        qemu.args([
            "-M",
            "q35",
            "-cpu",
            "max",
            "-accel",
            "tcg,thread=multi",
            "-nodefaults",
            "-no-user-config",
        ])
        .args(["-display", "none", "-no-reboot"])
        .args(["-smp", &config.cpus.to_string(), "-m", &config.memory_mib.to_string()])
        .arg("-kernel")
        .arg(image(&images, &format!("vmlinuz-{series}")))
        .arg("-initrd")
        .arg(image(&images, &format!("initrd-{series}")))
        .args(["-append", "console=ttyS0 panic=-1 mitigations=off cryptomgr.notests=1"])
        .arg("-serial")
        .arg(format!("file:{}", folder.path().join("console").display()))
        .args(["-serial", "stdio"]);
        for disk in [image(&images, "root.img"), checks] {
            qemu.arg("-drive").arg(format!("file={},format=raw,if=virtio,readonly=on", disk.display()));
        }
        for (number, disk) in config.disks.iter().enumerate() {
            add_disk(&mut qemu, number, disk);
        }
        let tap = network.tap();
        qemu.arg("-netdev")
            .arg(format!("tap,id=n0,ifname={tap},script=no,downscript=no"))
            .arg("-device")
            .arg(format!(
                "virtio-net-pci,netdev=n0,mac=52:54:00:77:00:{station:02x},host_mtu={}",
                network.mtu()
            ));
        let errors =
            fs::File::create(folder.path().join("qemu")).expect("the temporary folder can be written");
        let mut child = qemu
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(errors)
            .spawn()
            .unwrap_or_else(|error| panic!("cannot run nsenter: {error}"));
        let stdin = child.stdin.take().expect("standard input was piped");
        let stdout = child.stdout.take().expect("standard output was piped");
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stdout).split(b'\n') {
                let Ok(line) = line else { break };
                // The receiver goes when the test is over.
                if sender.send(String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned()).is_err() {
                    break;
                }
            }
        });
        Self { name: config.name, child, stdin, lines, folder }
    }

    fn wait_for_agent(&mut self) -> Result<(), String> {
        let started = Instant::now();
        loop {
            let line = self.line_before(started + BOOT_TIMEOUT)?;
            if line.starts_with("agent ready") {
                println!("# {}: {line}, {:.1} s outside", self.name, started.elapsed().as_secs_f32());
                return Ok(());
            }
        }
    }

    /// Runs a shell command in the guest and returns its output.
    ///
    /// # Panics
    /// When it has not ended within `timeout`, or the guest dies: with the console's end.
    pub fn run(&mut self, command: &str, timeout: Duration) -> GuestOutput {
        assert!(!command.contains('\n'), "a command is one line: {command}");
        let started = Instant::now();
        if let Err(error) = writeln!(self.stdin, "{command}") {
            self.fail(command, &format!("cannot be reached: {error}"));
        }
        let mut lines = Vec::new();
        loop {
            let line = self.line_before(started + timeout).unwrap_or_else(|what| self.fail(command, &what));
            if let Some(status) = line.strip_prefix("end ").and_then(|rest| rest.parse().ok()) {
                return GuestOutput { lines, status };
            }
            println!("{}: {line}", self.name);
            lines.push(line);
        }
    }

    /// Kills the guest as a power cut does.
    pub fn kill(&mut self) {
        // Either may fail only when it is gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn line_before(&mut self, deadline: Instant) -> Result<String, String> {
        match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err("did not end in time".to_owned()),
            Err(RecvTimeoutError::Disconnected) => {
                Err(format!("the guest is gone ({:?})", self.child.wait()))
            }
        }
    }

    fn console(&self) -> String {
        let text = fs::read(self.folder.path().join("console")).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    fn fail(&self, command: &str, what: &str) -> ! {
        panic!("{}: `{command}`: {what}\n{}", self.name, self.logs());
    }

    /// The ends of the console and of QEMU's own messages, for a failure report.
    #[must_use]
    pub fn logs(&self) -> String {
        let end = |file: &str, count: usize| {
            let text = fs::read(self.folder.path().join(file)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(count)..].join("\n")
        };
        format!(
            "--- {} console ---\n{}\n--- {0} qemu ---\n{}",
            self.name,
            end("console", 60),
            end("qemu", 10)
        )
    }
}

impl Drop for Vm {
    fn drop(&mut self) {
        self.kill();
    }
}

fn add_disk(qemu: &mut Command, number: usize, disk: &Disk) {
    match disk {
        Disk::Virtio(path) => {
            qemu.arg("-drive").arg(format!("file={},format=raw,if=virtio,cache=writeback", path.display()));
        }
        Disk::ProtectedNvme { image, block_size } => {
            qemu.arg("-drive")
                .arg(format!("file={},format=raw,if=none,id=p{number}", image.display()))
                .args(["-device", &format!("nvme,serial=b{block_size}-{number},id=c{number}")])
                .arg("-device")
                .arg(format!(
                    "nvme-ns,drive=p{number},bus=c{number},nsid=1,logical_block_size={block_size},physical_block_size={block_size},ms=8,mset=1,pi=1,pil=0"
                ));
        }
    }
}

/// Where `prepare.sh` put what guests boot.
fn image_folder() -> PathBuf {
    std::env::var_os("INTACT_INTEROP_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../build/interop"), PathBuf::from)
}

fn image(folder: &Path, name: &str) -> PathBuf {
    let path = folder.join(name);
    assert!(
        path.exists() && folder.join("stamp").exists(),
        "{} is missing: run tests/interop/prepare.sh, or set INTACT_INTEROP_DIR",
        path.display()
    );
    path
}

/// Packs the guest's scripts and programs: they travel as a disk, so that changing one needs no new image.
fn pack_checks(to: &Path, programs: &[PathBuf]) {
    let mut tar = Command::new("tar");
    tar.args(["--format=ustar", "-cf"])
        .arg(to)
        .arg("-C")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("interop/guest"))
        .arg(".");
    for program in programs {
        let [folder, name] = [program.parent().map(Path::as_os_str), program.file_name()];
        let (Some(folder), Some(name)) = (folder, name) else { panic!("{program:?} is no program's path") };
        tar.arg("-C").arg(folder).arg(name);
    }
    let status = tar.status();
    assert!(
        status.as_ref().is_ok_and(std::process::ExitStatus::success),
        "cannot pack the checks with tar: {status:?}"
    );
}
