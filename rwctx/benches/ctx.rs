//! What a context costs: planning and posting one operation of one segment on a device that does nothing, beside posting the
//! same work request alone. Run: `cargo bench -p rwctx --bench ctx`.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::unwrap_used, reason = "a measurement that cannot run must stop")]

use std::hint::black_box;
use std::time::Instant;

use rwctx::ctx::{Completion, RwCtx};
use rwctx::device::null::NullDevice;
use rwctx::device::soft::endpoint::CAPS;
use rwctx::device::soft::persona::Persona;
use rwctx::device::{Device, DeviceCaps, QpCap, Qpn};
use rwctx::mem::Lkey;
use rwctx::plan::{Direction, Integrity};
use rwctx::qp::RwQp;
use rwctx::remote::{RemoteAddr, Rkey};
use rwctx::wr::{Fence, SendOp, SendWr, Sge, Signal, WrId};

const OPERATIONS: u32 = 2_000_000;
/// The fastest of so many is what it costs.
const RUNS: usize = 7;

const SGE: Sge = Sge { addr: 0x10_0000, length: 4096, lkey: Lkey(7) };
const REMOTE: RemoteAddr = RemoteAddr { addr: 0x1000, rkey: Rkey(9) };

fn main() {
    let (mut device, qpn, _) = open(CAPS);
    let empty = nanoseconds(|| {
        let wr = SendWr {
            wr_id: WrId(1),
            op: SendOp::Read(REMOTE),
            sges: &[SGE],
            signal: Signal::Signaled,
            fence: Fence::None,
        };
        device.post_send(qpn, black_box(&wr)).unwrap();
    });
    println!("{:44} {empty:6.1} ns", "a work request posted");
    print("a context of one piece", context(CAPS), empty);
    print("a context over a registration", context(Persona::Iwarp.caps()), empty);
}

fn open(caps: DeviceCaps) -> (NullDevice, Qpn, RwQp) {
    let mut device = NullDevice::new(caps);
    let cap = QpCap {
        max_send_wr: 64,
        max_recv_wr: 64,
        max_send_sge: 1,
        max_recv_sge: 1,
        integrity: Integrity::Off,
    };
    let pd = device.alloc_pd().unwrap();
    let qpn = device.create_qp(pd, &cap).unwrap();
    let qp = RwQp::init_mrs(&mut device, pd, &cap, 16).unwrap();
    (device, qpn, qp)
}

/// Planned, posted, completed and destroyed, once each.
fn context(caps: DeviceCaps) -> f64 {
    let (mut device, qpn, qp) = open(caps);
    let mut ctx = RwCtx::new();
    nanoseconds(|| {
        ctx.init(&qp, black_box(&[SGE]), 0, REMOTE, Direction::FromHost).unwrap();
        ctx.post(&mut device, qpn, Completion::Own(WrId(1))).unwrap();
        ctx.complete();
        ctx.destroy();
    })
}

fn nanoseconds(mut operation: impl FnMut()) -> f64 {
    let run = |_| {
        let start = Instant::now();
        (0..OPERATIONS).for_each(|_| operation());
        start.elapsed().as_secs_f64() * 1e9 / f64::from(OPERATIONS)
    };
    (0..RUNS).map(run).fold(f64::INFINITY, f64::min)
}

fn print(what: &str, cost: f64, empty: f64) {
    println!("{what:44} {cost:6.1} ns {:6.1} of a post", cost / empty);
}
