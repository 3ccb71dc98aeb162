//! What two plain UDP sockets can do at most, in the shapes that NVMe reads have on the wire: the yardstick for the
//! soft device, to be run on the same machine just before what is compared with it.
//!
//! Two threads, pinned to a core each, exchange datagrams over loopback with `UDP_SEGMENT`, `UDP_GRO`, `sendmmsg`,
//! `recvmmsg`, connected sockets and busy polling. They look at nothing but sizes: no checksum, no copy out of the
//! socket's buffers, no protocol. Shapes (bytes after the UDP header):
//!
//! - a read of 4 KiB: one datagram of 84 bytes to the target, one of 4128 and one of 36 back, 128 reads at once. In
//!   `batched` all data datagrams that are due come first, so that messages hold as many segments as they can; in
//!   `in order` each read's two datagrams follow each other, as a queue pair without reordering sends them.
//! - a read of 128 KiB: 84 bytes to the target, 4128 + 31 x 4112 + 36 bytes back, 32 reads at once.
//!
//! Run by name: `cargo bench -p intact-tests --bench ceiling -- [--json] [--time SECONDS]`.
#![allow(unsafe_code, reason = "sendmmsg and recvmmsg, called as sparingly as the device calls them")]

use std::error::Error;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use libc::c_int;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// Bytes of a command capsule with its headers.
const REQUEST: usize = 84;
/// Bytes of a completion with its headers.
const DONE: usize = 36;
/// Bytes of an only or first data packet of 4 KiB.
const FIRST: usize = 4128;
/// Bytes of a middle or last data packet of 4 KiB.
const MIDDLE: usize = 4112;
/// Segments of a message.
const SEGMENTS: usize = 64;
/// Bytes of a message.
const MAX_BYTES: usize = 65_507;
/// Messages of a call.
const BATCH: usize = 64;
/// Bytes of a receive buffer.
const BUFFER: usize = 64 << 10;
/// Distance of receive buffers; see the device's driver.
const STRIDE: usize = BUFFER + 4096 + 128;

type Failure = Box<dyn Error + Send + Sync>;

/// What the target answers to one request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// 4 KiB, data of all due requests first.
    Batched,
    /// 4 KiB, data and completion of one request after the other.
    InOrder,
    /// 128 KiB.
    Large,
}

impl Shape {
    fn depth(self) -> usize {
        if self == Self::Large { 32 } else { 128 }
    }

    fn bytes(self) -> f64 {
        if self == Self::Large { 131_072.0 } else { 4096.0 }
    }
}

fn main() -> Result<(), Failure> {
    let mut json = false;
    let mut time = Duration::from_secs(3);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => json = true,
            "--time" => {
                let seconds = arguments.next().ok_or("--time needs a number of seconds")?;
                time = Duration::try_from_secs_f64(seconds.parse()?)?;
            }
            // Cargo says so to every bench.
            "--bench" => {}
            // Test runners ask every binary; there is no test in here.
            "--list" => return Ok(()),
            other => {
                return Err(format!("unknown argument {other}; known are --json and --time SECONDS").into());
            }
        }
    }
    let cores = cores()?;
    let batched = run(Shape::Batched, time, cores)?;
    let in_order = run(Shape::InOrder, time, cores)?;
    let large = run(Shape::Large, time, cores)?;
    if json {
        let report = serde_json::json!({
            "read_4k": { "reads_per_s": batched.reads, "reads_per_s_in_order": in_order.reads, "depth": 128 },
            "read_128k": { "reads_per_s": large.reads, "bytes_per_s": large.bytes, "depth": 32 },
            "lost": batched.lost + in_order.lost + large.lost,
            "cores": cores,
        });
        println!("{report}");
    } else {
        println!(
            "  4 KiB reads, batched:  {:>10.0} reads/s  {:>8.0} MB/s",
            batched.reads,
            batched.bytes / 1e6
        );
        println!(
            "  4 KiB reads, in order: {:>10.0} reads/s  {:>8.0} MB/s",
            in_order.reads,
            in_order.bytes / 1e6
        );
        println!("128 KiB reads:           {:>10.0} reads/s  {:>8.0} MB/s", large.reads, large.bytes / 1e6);
        let lost = batched.lost + in_order.lost + large.lost;
        if lost > 0 {
            println!("{lost} reads were lost to full socket buffers: raise net.core.rmem_max");
        }
    }
    Ok(())
}

/// The cores that the two threads get: the first two that we may use.
pub(crate) fn cores() -> Result<[usize; 2], Failure> {
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let mut cores = (0..CpuSet::count()).filter(|&core| allowed.is_set(core).unwrap_or(false));
    let first = cores.next().ok_or("no core is allowed")?;
    let second = cores.next().ok_or("two cores are needed: sender and receiver would take turns on one")?;
    Ok([first, second])
}

fn pin(core: usize) -> nix::Result<()> {
    let mut set = CpuSet::new();
    set.set(core)?;
    sched_setaffinity(Pid::from_raw(0), &set)
}

/// What was seen.
pub(crate) struct Seen {
    pub(crate) reads: f64,
    pub(crate) bytes: f64,
    lost: usize,
}

/// Exchanges reads for `time` after a warm-up, from the host's side.
pub(crate) fn run(
    shape: Shape,
    time: Duration,
    [host_core, target_core]: [usize; 2],
) -> Result<Seen, Failure> {
    let host = UdpSocket::bind("127.0.0.1:0")?;
    let target = UdpSocket::bind("127.0.0.2:0")?;
    host.connect(target.local_addr()?)?;
    target.connect(host.local_addr()?)?;
    let stop = AtomicBool::new(false);
    // Both threads are on their cores before either begins to spin.
    let ready = Barrier::new(2);
    std::thread::scope(|scope| {
        let target = scope.spawn(|| {
            let pinned = pin(target_core);
            ready.wait();
            pinned?;
            serve(&target, shape, &stop)
        });
        let host = scope.spawn(|| {
            let pinned = pin(host_core);
            ready.wait();
            let seen = pinned.map_err(Failure::from).and_then(|()| drive(&host, shape, time));
            stop.store(true, Ordering::Relaxed);
            seen
        });
        target.join().map_err(|_| "the target panicked")??;
        host.join().map_err(|_| "the host panicked")?
    })
}

/// The host: keeps `depth` reads outstanding.
#[expect(clippy::disallowed_methods, reason = "a bench reads the clock")]
fn drive(socket: &UdpSocket, shape: Shape, time: Duration) -> Result<Seen, Failure> {
    let mut wire = Wire::new(socket)?;
    let warm_up = time / 10;
    let mut begun = Instant::now();
    let mut measuring = false;
    let (mut reads, mut lost) = (0_usize, 0);
    let mut outstanding = 0;
    let mut heard = Instant::now();
    loop {
        wire.add(REQUEST, shape.depth() - outstanding);
        outstanding = shape.depth();
        wire.flush()?;
        let mut done = 0;
        wire.receive(|size, count| {
            if size == DONE {
                done += count;
            }
        })?;
        let now = Instant::now();
        if done > 0 {
            heard = now;
            outstanding -= done.min(outstanding);
            reads += done;
        } else if now - heard > Duration::from_secs(1) {
            lost += outstanding;
            outstanding = 0;
            heard = now;
        }
        let spent = now - begun;
        if !measuring && spent >= warm_up {
            measuring = true;
            begun = now;
            reads = 0;
        } else if measuring && spent >= time {
            #[expect(clippy::cast_precision_loss, reason = "fewer than 2^52 reads")]
            let rate = reads as f64 / spent.as_secs_f64();
            return Ok(Seen { reads: rate, bytes: rate * shape.bytes(), lost });
        }
    }
}

/// The target: answers until told to stop.
fn serve(socket: &UdpSocket, shape: Shape, stop: &AtomicBool) -> Result<(), Failure> {
    let mut wire = Wire::new(socket)?;
    while !stop.load(Ordering::Relaxed) {
        let mut due = 0;
        wire.receive(|size, count| {
            if size == REQUEST {
                due += count;
            }
        })?;
        match shape {
            Shape::Batched => {
                wire.add(FIRST, due);
                wire.add(DONE, due);
            }
            Shape::InOrder => {
                for _ in 0..due {
                    wire.add(FIRST, 1);
                    wire.add(DONE, 1);
                }
            }
            Shape::Large => {
                for _ in 0..due {
                    wire.add(FIRST, 1);
                    wire.add(MIDDLE, 31);
                    wire.add(DONE, 1);
                }
            }
        }
        wire.flush()?;
    }
    Ok(())
}

/// A socket with all that its calls need, laid out once.
struct Wire<'s> {
    socket: &'s UdpSocket,
    /// Received bytes; also what is sent.
    buffers: Vec<u8>,
    rx: Vec<libc::mmsghdr>,
    rx_controls: Vec<Control>,
    rx_vectors: Vec<libc::iovec>,
    /// Messages to send: size of segments, bytes.
    messages: Vec<(usize, usize)>,
    tx: Vec<libc::mmsghdr>,
    tx_controls: Vec<Control>,
    tx_vectors: Vec<libc::iovec>,
}

/// One control message with up to eight bytes.
#[derive(Clone, Copy)]
#[repr(C)]
struct Control {
    header: libc::cmsghdr,
    data: [u8; 8],
}

impl Control {
    fn segment(size: usize) -> Self {
        let size = u16::try_from(size).expect("segments are smaller than a datagram");
        let mut data = [0; 8];
        data[..2].copy_from_slice(&size.to_ne_bytes());
        let header = libc::cmsghdr {
            cmsg_len: size_of::<libc::cmsghdr>() + 2,
            cmsg_level: libc::SOL_UDP,
            cmsg_type: libc::UDP_SEGMENT,
        };
        Self { header, data }
    }
}

impl<'s> Wire<'s> {
    fn new(socket: &'s UdpSocket) -> Result<Self, Failure> {
        set(socket, libc::SOL_UDP, libc::UDP_GRO, 1)?;
        if set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, 16 << 20).is_err() {
            set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, 16 << 20)?;
        }
        let mut buffers = vec![0_u8; BATCH * STRIDE];
        let base = buffers.as_mut_ptr();
        let rx_vectors = (0..BATCH)
            .map(|i| libc::iovec { iov_base: base.wrapping_add(i * STRIDE).cast(), iov_len: BUFFER })
            .collect();
        // SAFETY: zero is a valid value of every field of a message header.
        let header: libc::mmsghdr = unsafe { std::mem::zeroed() };
        Ok(Self {
            socket,
            buffers,
            rx: vec![header; BATCH],
            rx_controls: vec![Control::segment(0); BATCH],
            rx_vectors,
            messages: Vec::new(),
            tx: Vec::new(),
            tx_controls: Vec::new(),
            tx_vectors: Vec::new(),
        })
    }

    /// Queues `count` datagrams of one size, joined to messages as far as the kernel allows.
    fn add(&mut self, size: usize, mut count: usize) {
        if let Some((segment, bytes)) = self.messages.last_mut() {
            let open = bytes.is_multiple_of(*segment);
            while open
                && count > 0
                && size <= *segment
                && *bytes + size <= MAX_BYTES
                && *bytes / *segment < SEGMENTS
                && *bytes % *segment == 0
            {
                *bytes += size;
                count -= 1;
            }
        }
        let most = SEGMENTS.min(MAX_BYTES / size);
        while count > 0 {
            let take = count.min(most);
            self.messages.push((size, take * size));
            count -= take;
        }
    }

    /// Sends what was queued.
    fn flush(&mut self) -> Result<(), Failure> {
        self.tx_controls.clear();
        self.tx_controls.extend(self.messages.iter().map(|&(segment, _)| Control::segment(segment)));
        self.tx_vectors.clear();
        let base = self.buffers.as_mut_ptr();
        self.tx_vectors.extend(
            self.messages.iter().map(|&(_, len)| libc::iovec { iov_base: base.cast(), iov_len: len }),
        );
        self.tx.clear();
        for ((control, vector), &(segment, bytes)) in
            self.tx_controls.iter_mut().zip(&mut self.tx_vectors).zip(&self.messages)
        {
            // SAFETY: zero is a valid value of every field of a message header.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = &raw mut *vector;
            header.msg_hdr.msg_iovlen = 1;
            if bytes > segment {
                header.msg_hdr.msg_control = (&raw mut *control).cast();
                header.msg_hdr.msg_controllen = size_of::<Control>();
            }
            self.tx.push(header);
        }
        self.messages.clear();
        let mut from = 0;
        while from < self.tx.len() {
            let rest = &mut self.tx[from..];
            let count = libc::c_uint::try_from(rest.len())?;
            // SAFETY: `count` headers, each with one vector into `buffers` and at most one control message, all owned
            // by this value and unchanged during the call.
            let sent = unsafe { libc::sendmmsg(self.socket.as_raw_fd(), rest.as_mut_ptr(), count, 0) };
            from += usize::try_from(sent).map_err(|_| std::io::Error::last_os_error())?;
        }
        Ok(())
    }

    /// Takes what waits: sizes and counts of datagrams.
    fn receive(&mut self, mut each: impl FnMut(usize, usize)) -> Result<(), Failure> {
        for ((header, control), vector) in
            self.rx.iter_mut().zip(&mut self.rx_controls).zip(&mut self.rx_vectors)
        {
            header.msg_hdr.msg_iov = &raw mut *vector;
            header.msg_hdr.msg_iovlen = 1;
            header.msg_hdr.msg_control = (&raw mut *control).cast();
            header.msg_hdr.msg_controllen = size_of::<Control>();
        }
        let count = libc::c_uint::try_from(BATCH)?;
        // SAFETY: `count` headers, each with a vector to its own BUFFER bytes of `buffers` and with one control message,
        // all owned by this value and untouched during the call.
        let got = unsafe {
            libc::recvmmsg(
                self.socket.as_raw_fd(),
                self.rx.as_mut_ptr(),
                count,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let Ok(got) = usize::try_from(got) else {
            let error = std::io::Error::last_os_error();
            return if error.kind() == std::io::ErrorKind::WouldBlock { Ok(()) } else { Err(error.into()) };
        };
        for (header, control) in self.rx.iter().zip(&self.rx_controls).take(got) {
            let length = header.msg_len as usize;
            let segment = if header.msg_hdr.msg_controllen > 0 {
                let [a, b, c, d, ..] = control.data;
                usize::try_from(c_int::from_ne_bytes([a, b, c, d]))?
            } else {
                length
            };
            each(segment, length / segment);
            if !length.is_multiple_of(segment) {
                each(length % segment, 1);
            }
        }
        Ok(())
    }
}

fn set(socket: &UdpSocket, level: c_int, option: c_int, value: c_int) -> std::io::Result<()> {
    let size = libc::socklen_t::try_from(size_of::<c_int>()).expect("an int is small");
    // SAFETY: the value is readable for its size during the call.
    let failed =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), size) };
    if failed == 0 { Ok(()) } else { Err(std::io::Error::last_os_error()) }
}
