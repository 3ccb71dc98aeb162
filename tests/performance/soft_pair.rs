//! What two soft devices do in the shape of NVMe reads of 4 KiB, without NVMe: each read is a REG_MR and a 64-byte SEND
//! to the target, answered by an RDMA WRITE of 4 KiB and a 16-byte SEND_WITH_INV. To be compared with `ceiling`, run
//! just before or after it on the same machine.
//!
//! Two threads, pinned to a core each, poll without sleeping. The target posts, for all commands of one poll, either
//! all WRITEs before all SENDs (`batched`: segmentation works best) or each command's pair (`in order`).
//!
//! Run by name: `cargo bench -p intact-tests --bench soft_pair -- [--json] [--time SECONDS] [--queues N]`.
//! With SOFT_PAIR_COUNTERS set, both sides print their counters to stderr.
#![expect(clippy::disallowed_methods, reason = "a bench reads the clock")]

use std::error::Error;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;
use rwctx::device::soft::device::{SoftConfig, SoftDevice};
use rwctx::device::{Device, PathMtu, QpCap, QpConnect, Qpn, RemoteAccess};
use rwctx::mem::{Access, Mr, MrId, Region};
use rwctx::plan::Integrity;
use rwctx::remote::{RemoteAddr, Rkey};
use rwctx::wc::{WcOpcode, WcStatus};
use rwctx::wr::{Fence, RecvWr, SendOp, SendWr, Sge, Signal, WrId};

type Failure = Box<dyn Error + Send + Sync>;

/// Commands outstanding, over all queues.
const DEPTH: usize = 128;
const COMMAND: usize = 64;
const RESPONSE: usize = 16;
const DATA: usize = 4096;

/// In which order the target posts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Batched,
    InOrder,
}

/// How to run.
#[derive(Clone, Copy)]
struct Plan {
    time: Duration,
    queues: usize,
    cores: [usize; 2],
    addresses: [IpAddr; 2],
}

fn main() -> Result<(), Failure> {
    let mut json = false;
    let mut time = Duration::from_secs(3);
    let mut queues = 1;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().ok_or("an option needs a number");
        match argument.as_str() {
            "--json" => json = true,
            "--time" => time = Duration::try_from_secs_f64(number()?.parse()?)?,
            "--queues" => queues = number()?.parse()?,
            // Cargo says so to every bench.
            "--bench" => {}
            // Test runners ask every binary; there is no test in here.
            "--list" => return Ok(()),
            other => {
                return Err(format!("unknown argument {other}; known are --json, --time and --queues").into());
            }
        }
    }
    if queues == 0 || !DEPTH.is_multiple_of(queues) {
        return Err(format!("--queues must divide {DEPTH}").into());
    }
    let address =
        || IpAddr::from(Ipv4Addr::new(127, fastrand::u8(1..255), fastrand::u8(..), fastrand::u8(1..255)));
    let plan = Plan { time, queues, cores: cores()?, addresses: [address(), address()] };
    let batched = run(plan, Order::Batched)?;
    let in_order = run(plan, Order::InOrder)?;
    if json {
        let report = serde_json::json!({
            "reads_per_s": batched, "reads_per_s_in_order": in_order, "depth": DEPTH, "queues": queues,
        });
        println!("{report}");
    } else {
        println!("4 KiB reads, batched:  {batched:>10.0} reads/s");
        println!("4 KiB reads, in order: {in_order:>10.0} reads/s");
    }
    Ok(())
}

/// The cores that the two threads get: the first two that we may use.
fn cores() -> Result<[usize; 2], Failure> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let mut cores = (0..CpuSet::count()).filter(|&core| allowed.is_set(core).unwrap_or(false));
    let first = cores.next().ok_or("no core is allowed")?;
    let second = cores.next().ok_or("two cores are needed: the devices would take turns on one")?;
    Ok([first, second])
}

fn pin(core: usize) -> nix::Result<()> {
    let mut set = CpuSet::new();
    set.set(core)?;
    sched_setaffinity(Pid::from_raw(0), &set)
}

/// Reads a second.
fn run(plan: Plan, order: Order) -> Result<f64, Failure> {
    let stop = AtomicBool::new(false);
    // Both threads are on their cores before either begins to spin.
    let ready = Barrier::new(2);
    let (stop, ready) = (&stop, &ready);
    let (to_target, from_host) = channel();
    let (to_host, from_target) = channel();
    std::thread::scope(|scope| {
        let target = scope.spawn(move || {
            let side = Side::open(plan.addresses[1], plan.queues);
            let pinned = pin(plan.cores[1]);
            ready.wait();
            pinned?;
            let mut side = side?;
            side.meet(plan.addresses[0], &to_host, &from_host)?;
            side.serve(order, stop)
        });
        let host = scope.spawn(move || {
            let side = Side::open(plan.addresses[0], plan.queues);
            let pinned = pin(plan.cores[0]);
            ready.wait();
            let seen = pinned.map_err(Failure::from).and_then(|()| {
                let mut side = side?;
                side.meet(plan.addresses[1], &to_target, &from_target)?;
                side.drive(plan.time)
            });
            stop.store(true, Ordering::Relaxed);
            seen
        });
        target.join().map_err(|_| "the target panicked")??;
        host.join().map_err(|_| "the host panicked")?
    })
}

/// A device with its queue pairs, and memory in slots: 4 KiB for data, then command and response of each.
struct Side {
    address: IpAddr,
    device: SoftDevice,
    qpns: Vec<Qpn>,
    region: Arc<Region>,
    mr: Mr,
    /// Of the host: a window for each slot.
    windows: Vec<(MrId, Rkey)>,
}

/// Where the command of a slot lies, behind the data of all; the response lies behind the commands.
fn command_at(slot: usize) -> usize {
    DEPTH * DATA + slot * COMMAND
}

fn response_at(slot: usize) -> usize {
    DEPTH * (DATA + COMMAND) + slot * RESPONSE
}

impl Side {
    fn open(address: IpAddr, queues: usize) -> Result<Self, Failure> {
        let mut device = SoftDevice::open(&SoftConfig::new(vec![address], 1))?.remove(0);
        let pd = device.alloc_pd()?;
        let length = DEPTH * (DATA + COMMAND + RESPONSE);
        let region = Arc::new(Region::new(length)?);
        region.write(0, &(0..length).map(|at| at.to_le_bytes()[0]).collect::<Vec<_>>());
        let access = Access { local_write: true, remote_read: false, remote_write: false };
        let mr = device.reg_mr(pd, &region, 0, length, access)?;
        let depth = u32::try_from(2 * DEPTH)?;
        let cap = QpCap {
            max_send_wr: 2 * depth,
            max_recv_wr: depth,
            max_send_sge: 4,
            max_recv_sge: 4,
            integrity: Integrity::Off,
        };
        let qpns = (0..queues).map(|_| device.create_qp(pd, &cap)).collect::<Result<_, _>>()?;
        let windows = (0..DEPTH).map(|_| device.alloc_fast_reg(pd, 2).map(|mr| (mr.id, mr.rkey)));
        let windows = windows.collect::<Result<_, _>>()?;
        Ok(Self { address, device, qpns, region, mr, windows })
    }

    /// Connects the queue pairs with the other side's.
    fn meet(&mut self, other: IpAddr, to: &Sender<Qpn>, from: &Receiver<Qpn>) -> Result<(), Failure> {
        for &qpn in &self.qpns {
            to.send(qpn)?;
            let peer = from.recv()?;
            let to = QpConnect {
                local: self.address,
                remote: other,
                dest_qpn: peer,
                sq_psn: 1,
                rq_psn: 1,
                path_mtu: PathMtu::Mtu4096,
                max_rd_atomic: 16,
                max_dest_rd_atomic: 16,
                ack_timeout: Duration::from_millis(500),
                retry_cnt: 7,
                rnr_retry: 7,
                min_rnr_timer: 12,
                tos: 0,
                remote_access: RemoteAccess { read: true, write: true },
                route: None,
            };
            self.device.connect_qp(qpn, &to)?;
        }
        // The first receives, before the other side can send.
        for slot in 0..DEPTH {
            self.receive(slot)?;
        }
        // Any message says so.
        to.send(Qpn(0))?;
        from.recv()?;
        Ok(())
    }

    fn qpn(&self, slot: usize) -> Qpn {
        self.qpns[slot % self.qpns.len()]
    }

    fn sge(&self, at: usize, length: usize) -> Sge {
        Sge {
            addr: self.mr.addr + at as u64,
            length: u32::try_from(length).expect("slots are small"),
            lkey: self.mr.lkey,
        }
    }

    /// Posts a receive whose message lands in the slot's command; a response is shorter.
    fn receive(&mut self, slot: usize) -> Result<(), Failure> {
        let sges = [self.sge(command_at(slot), COMMAND)];
        let wr = RecvWr { wr_id: WrId(slot as u64), sges: &sges };
        self.device.post_recv(self.qpn(slot), &wr)?;
        Ok(())
    }

    fn send(&mut self, slot: usize, op: SendOp, sges: &[Sge], signal: Signal) -> Result<(), Failure> {
        let wr = SendWr { wr_id: WrId(slot as u64), op, sges, signal, fence: Fence::None };
        self.device.post_send(self.qpn(slot), &wr)?;
        Ok(())
    }

    fn word(&self, at: usize) -> u64 {
        let mut bytes = [0; 8];
        self.region.read(at, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// The host sends a command: registers the slot's window, then names it in 64 bytes. They are gathered from the
    /// slot's response area, which the host has no other use for, and filler.
    fn command(&mut self, slot: usize, signal: Signal) -> Result<(), Failure> {
        let (mr, old) = self.windows[slot];
        let key = Rkey((old.0 & !0xff) | (old.0.wrapping_add(1) & 0xff));
        self.windows[slot].1 = key;
        let register = SendOp::RegMr {
            mr,
            key,
            access: Access { local_write: true, remote_read: false, remote_write: true },
        };
        self.send(slot, register, &[self.sge(slot * DATA, DATA)], Signal::Unsignaled)?;
        let at = response_at(slot);
        let mut words = [0; RESPONSE];
        words[..8].copy_from_slice(&(self.mr.addr + (slot * DATA) as u64).to_le_bytes());
        words[8..12].copy_from_slice(&key.0.to_le_bytes());
        words[12..].copy_from_slice(&u32::try_from(slot)?.to_le_bytes());
        self.region.write(at, &words);
        let sges = [self.sge(at, RESPONSE), self.sge(command_at(0), COMMAND - RESPONSE)];
        self.send(slot, SendOp::Send, &sges, signal)
    }

    /// The host: keeps all slots busy.
    fn drive(&mut self, time: Duration) -> Result<f64, Failure> {
        for slot in 0..DEPTH {
            self.command(slot, Signal::Unsignaled)?;
        }
        let warm_up = time / 10;
        let mut begun = Instant::now();
        let mut measuring = false;
        let mut reads = 0_u64;
        loop {
            let now = Instant::now();
            self.device.receive(now);
            while let Some(wc) = self.device.poll_cq() {
                if wc.status != WcStatus::Success {
                    return Err(format!("a work request failed: {wc:?}").into());
                }
                if wc.opcode == WcOpcode::Recv {
                    let slot = usize::try_from(wc.wr_id.0)?;
                    let done = usize::try_from(self.word(command_at(slot)))?;
                    self.receive(slot)?;
                    reads += 1;
                    let signal = if reads.is_multiple_of(16) { Signal::Signaled } else { Signal::Unsignaled };
                    self.command(done, signal)?;
                }
            }
            self.device.transmit(now);
            let spent = now - begun;
            if !measuring && spent >= warm_up {
                measuring = true;
                begun = now;
                reads = 0;
            } else if measuring && spent >= time {
                if std::env::var_os("SOFT_PAIR_COUNTERS").is_some() {
                    eprintln!("{:#?}", self.device.counters());
                }
                #[expect(clippy::cast_precision_loss, reason = "fewer than 2^52 reads")]
                return Ok(reads as f64 / spent.as_secs_f64());
            }
        }
    }

    /// The target: answers until told to stop.
    fn serve(&mut self, order: Order, stop: &AtomicBool) -> Result<(), Failure> {
        let mut responses = Vec::with_capacity(DEPTH);
        while !stop.load(Ordering::Relaxed) {
            let now = Instant::now();
            self.device.receive(now);
            responses.clear();
            while let Some(wc) = self.device.poll_cq() {
                if wc.status != WcStatus::Success {
                    return Err(format!("a work request failed: {wc:?}").into());
                }
                if wc.opcode != WcOpcode::Recv {
                    continue;
                }
                let received = usize::try_from(wc.wr_id.0)?;
                let addr = self.word(command_at(received));
                let [a, b, c, d, e, f, g, h] = self.word(command_at(received) + 8).to_le_bytes();
                let key = Rkey(u32::from_le_bytes([a, b, c, d]));
                let slot = usize::try_from(u32::from_le_bytes([e, f, g, h]))?;
                self.receive(received)?;
                let data = [self.sge(slot * DATA, DATA)];
                let to = RemoteAddr { addr, rkey: key };
                self.send(slot, SendOp::Write(to), &data, Signal::Unsignaled)?;
                match order {
                    Order::Batched => responses.push((slot, key)),
                    Order::InOrder => self.respond(slot, key)?,
                }
            }
            for (slot, key) in responses.drain(..) {
                self.respond(slot, key)?;
            }
            self.device.transmit(now);
        }
        if std::env::var_os("SOFT_PAIR_COUNTERS").is_some() {
            eprintln!("{:#?}", self.device.counters());
        }
        Ok(())
    }

    fn respond(&mut self, slot: usize, key: Rkey) -> Result<(), Failure> {
        let at = response_at(slot);
        self.region.write(at, &(slot as u64).to_le_bytes());
        let sges = [self.sge(at, RESPONSE)];
        self.send(slot, SendOp::SendWithInv(key), &sges, Signal::Signaled)
    }
}
