//! In steady state contexts allocate nothing, on whatever path they move their data.
#![expect(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use rwctx::ctx::{Completion, RwCtx};
use rwctx::device::null::NullDevice;
use rwctx::device::soft::endpoint::CAPS;
use rwctx::device::soft::persona::Persona;
use rwctx::device::{Device, QpCap};
use rwctx::mem::{Lkey, PAGE};
use rwctx::plan::{BvecIter, Direction, Integrity, Kind};
use rwctx::qp::RwQp;
use rwctx::remote::{RemoteAddr, Rkey};
use rwctx::wr::{Sge, WrId};

/// The system's allocator, which counts the calls of each thread.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    ALLOCATIONS.set(ALLOCATIONS.get() + 1);
}

// SAFETY: every call goes to the system's allocator as it came; counting does not touch memory that is handed out.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promise about the layout is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: `ptr` came from the system's allocator with this layout, as the caller promises.
        unsafe { System.realloc(ptr, layout, size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: `ptr` came from the system's allocator with this layout, as the caller promises.
        unsafe { System.dealloc(ptr, layout) }
    }
}

#[test]
fn contexts_allocate_nothing_once_they_are_warm() {
    let before = ALLOCATIONS.get();
    drop(std::hint::black_box(Box::new(1_u64)));
    assert_eq!(ALLOCATIONS.get(), before + 1, "what is counted is seen");
    for (caps, pages, kind) in [
        (CAPS, 1, Kind::SingleWr),
        (CAPS, 300, Kind::MultiWr),
        (Persona::Mlx5.caps(), 300, Kind::Registered),
        (Persona::Iwarp.caps(), 1, Kind::Registered),
        (Persona::Iwarp.caps(), 300, Kind::Registered),
    ] {
        let mut device = NullDevice::new(caps);
        let cap = QpCap {
            max_send_wr: 64,
            max_recv_wr: 1,
            max_send_sge: caps.max_send_sge,
            max_recv_sge: 1,
            integrity: Integrity::Off,
        };
        let pd = device.alloc_pd().unwrap();
        let qpn = device.create_qp(pd, &cap).unwrap();
        let qp = RwQp::init_mrs(&mut device, pd, &cap, 4).unwrap();
        let list: Vec<Sge> =
            (0..pages).map(|i| Sge { addr: 0x10_0000 + i * 8192, length: PAGE, lkey: Lkey(7) }).collect();
        let remote = RemoteAddr { addr: 0x1000, rkey: Rkey(9) };
        let whole = BvecIter { index: 0, done: 0, size: u32::try_from(pages).unwrap() * PAGE };
        let mut ctx = RwCtx::new();
        let mut run = |ctx: &mut RwCtx| {
            for form in 0..2 {
                let made = match form {
                    0 => ctx.init(&qp, &list, 0, remote, Direction::FromHost),
                    _ => ctx.init_bvec(&qp, &list, whole, remote, Direction::FromHost),
                };
                made.unwrap();
                if form == 0 {
                    assert_eq!(ctx.kind(), Some(kind));
                }
                ctx.post(&mut device, qpn, Completion::Own(WrId(1))).unwrap();
                ctx.complete();
                ctx.destroy();
            }
        };
        run(&mut ctx);
        let before = ALLOCATIONS.get();
        (0..100).for_each(|_| run(&mut ctx));
        assert_eq!(ALLOCATIONS.get(), before, "{pages} pages, {caps:?}");
    }
}
