//! Contexts over the null device: what is posted, when keys step, and that nothing is lost whatever fails.

mod signature;

use super::*;
use crate::device::null::NullDevice;
use crate::device::soft::endpoint::CAPS;
use crate::device::{DeviceCaps, QpCap};
use crate::mem::{Lkey, PAGE};
use crate::plan::Integrity;
use crate::remote::Rkey;
use crate::sq::{SqCredits, Take};
use crate::wr::SendOp;

use Direction::{FromHost, ToHost};

const CAP: QpCap =
    QpCap { max_send_wr: 64, max_recv_wr: 8, max_send_sge: 2, max_recv_sge: 1, integrity: Integrity::Off };
const REMOTE: RemoteAddr = RemoteAddr { addr: 0x1000, rkey: Rkey(0x77) };
const OWN: Completion = Completion::Own(WrId(5));

/// Registrations of 4 pages.
fn forced() -> DeviceCaps {
    DeviceCaps { max_fast_reg_page_list_len: 4, force_mr: true, ..CAPS }
}

fn iwarp() -> DeviceCaps {
    DeviceCaps { max_fast_reg_page_list_len: 4, iwarp: true, ..CAPS }
}

fn pages(n: u64) -> Vec<Sge> {
    (0..n).map(|i| Sge { addr: 0x10_0000 + i * 8192, length: PAGE, lkey: Lkey(7) }).collect()
}

struct World {
    device: NullDevice,
    qpn: Qpn,
    qp: RwQp,
    ctx: RwCtx,
}

impl World {
    fn new(caps: DeviceCaps, mrs: u32) -> Self {
        let mut device = NullDevice::new(caps);
        let pd = device.alloc_pd().unwrap();
        let qpn = device.create_qp(pd, &CAP).unwrap();
        let qp = RwQp::init_mrs(&mut device, pd, &CAP, mrs).unwrap();
        Self { device, qpn, qp, ctx: RwCtx::new() }
    }

    fn init(&mut self, n: u64, direction: Direction) -> Result<u32, RwError> {
        self.ctx.init(&self.qp, &pages(n), 0, REMOTE, direction)
    }

    /// Inits, posts, completes and destroys; the send-queue entries that it took.
    fn run(&mut self, n: u64, direction: Direction) -> u32 {
        let wqes = self.init(n, direction).unwrap();
        self.ctx.post(&mut self.device, self.qpn, OWN).unwrap();
        self.ctx.complete();
        self.ctx.destroy();
        wqes
    }

    fn ops(&mut self) -> Vec<SendOp> {
        self.ctx.wrs(OWN).map(|wr| wr.op).collect()
    }
}

#[test]
fn a_plan_that_failed_leaves_nothing_to_post() {
    let cap = QpCap { max_send_sge: 1, ..CAP };
    let qp = RwQp::new(&CAPS, &cap);
    let mut ctx = RwCtx::new();
    let mut init = |addr: u64| {
        let planned = ctx.init(&qp, &pages(3), 0, RemoteAddr { addr, ..REMOTE }, ToHost);
        (planned, ctx.wqes(), ctx.ops(), ctx.kind())
    };
    // The first work request fits, the second wraps around.
    assert_eq!(init(u64::MAX - 5000), (Err(RwError::RemoteWraps), 0, 0, None));
    assert_eq!(init(0x1000), (Ok(3), 3, 3, Some(Kind::MultiWr)));
}

#[test]
fn a_registration_is_posted_before_its_transfer_and_only_the_last_is_signaled() {
    let mut world = World::new(forced(), 4);
    assert_eq!(world.init(5, FromHost), Ok(4));
    assert_eq!((world.ctx.kind(), world.ctx.ops()), (Some(Kind::Registered), 2));
    let sgl = pages(5);
    let first = match world.ctx.wrs(OWN).map(|wr| (wr.op, wr.sges.to_vec(), wr.signal)).collect::<Vec<_>>()[..]
    {
        [
            (SendOp::RegMr { mr, key, access }, ref memory, Signal::Unsignaled),
            (SendOp::Read(at), ref sink, Signal::Unsignaled),
            (SendOp::RegMr { mr: second, key: second_key, .. }, ref rest, Signal::Unsignaled),
            (SendOp::Read(rest_at), ref rest_sink, Signal::Signaled),
        ] => {
            assert_eq!((&memory[..], &rest[..]), (&sgl[..4], &sgl[4..]));
            assert!(access.local_write && !access.remote_write && !access.remote_read);
            assert_eq!((at, rest_at), (REMOTE, REMOTE.checked_add(4 * 4096).unwrap()));
            assert_eq!(sink[..], [Sge { addr: sgl[0].addr, length: 4 * PAGE, lkey: Lkey(key.0) }]);
            assert_eq!(rest_sink[..], [Sge { addr: sgl[4].addr, length: PAGE, lkey: Lkey(second_key.0) }]);
            assert_eq!([key.0, second_key.0].map(|key| key & 0xff), [1, 1]);
            assert_ne!(mr, second);
            key
        }
        ref other => panic!("{other:?}"),
    };
    world.ctx.complete();
    world.ctx.destroy();
    // What comes next uses the registration that was put back last: the second.
    assert_eq!(world.init(1, ToHost), Ok(3));
    let ops = world.ops();
    assert!(
        matches!(ops[..], [SendOp::LocalInv(old), SendOp::RegMr { key, .. }, SendOp::Write(_)]
        if old != first && old.0 & 0xff == 1 && key.0 == old.0 + 1),
        "{ops:?}"
    );
    world.ctx.complete();
}

#[test]
fn a_chained_context_has_no_completion_of_its_own() {
    let mut world = World::new(forced(), 4);
    world.init(5, ToHost).unwrap();
    let signals: Vec<Signal> = world.ctx.wrs(Completion::Chained(WrId(1))).map(|wr| wr.signal).collect();
    assert_eq!(signals, [Signal::Unsignaled; 4]);
    world.ctx.complete();
}

#[test]
fn keys_step_when_work_is_handed_out_and_not_before() {
    let mut world = World::new(forced(), 1);
    assert_eq!(world.run(1, ToHost), 2, "a fresh registration");
    assert_eq!(world.run(1, FromHost), 3, "one that was used is invalidated first");
    // Planned and never posted: nothing changes.
    for _ in 0..3 {
        assert_eq!(world.init(1, ToHost), Ok(3));
        world.ctx.destroy();
    }
    // The null device refuses any key but the next, and a registration of what is valid.
    for _ in 0..600 {
        assert_eq!(world.run(1, ToHost), 3);
    }
    assert_eq!((world.device.registered(), world.device.valid_mrs()), (602, 1));
}

#[test]
fn an_iwarp_read_invalidates_its_sink_itself_and_names_it_to_the_peer() {
    let mut world = World::new(iwarp(), 1);
    for _ in 0..3 {
        assert_eq!(world.init(2, FromHost), Ok(2));
        world.ctx.destroy();
        assert_eq!(world.run(2, FromHost), 2);
        assert_eq!(world.device.valid_mrs(), 0);
    }
    world.init(2, FromHost).unwrap();
    let ops = world.ops();
    assert!(matches!(ops[..], [SendOp::RegMr { access, .. }, SendOp::ReadWithInv(_)] if access.remote_write));
    world.ctx.complete();
    world.ctx.destroy();
    assert_eq!(world.run(2, ToHost), 1, "a WRITE needs none");
}

#[test]
fn a_dry_pool_is_final_unless_the_device_only_hints() {
    for (caps, planned) in [
        (forced(), Err(RwError::PoolEmpty)),
        (iwarp(), Err(RwError::PoolEmpty)),
        (DeviceCaps { max_sgl_rd: 4, max_fast_reg_page_list_len: 4, ..CAPS }, Ok(3)),
    ] {
        let mut world = World::new(caps, 1);
        assert_eq!(world.init(6, FromHost), planned, "{caps:?}");
        assert_eq!((world.qp.rdma_mrs().used(), world.qp.rdma_mrs().free()), (0, 1), "{caps:?}");
    }
    assert_eq!(RwError::PoolEmpty.errno(), libc::EAGAIN);
}

#[test]
fn nothing_is_lost_whichever_step_fails() {
    for caps in [forced(), iwarp(), CAPS, DeviceCaps { max_sgl_rd: 2, max_fast_reg_page_list_len: 4, ..CAPS }]
    {
        for direction in [ToHost, FromHost] {
            for chained in [OWN, Completion::Chained(WrId(6))] {
                let mut failures = 0;
                while fails_cleanly_at(failures, caps, direction, chained) {
                    failures += 1;
                }
                assert!(failures >= 3, "{failures} steps of {caps:?} {direction:?} can fail");
            }
        }
    }
}

/// The life of a queue pair with the device failing after `steps`; whether it did. Registrations, credits and context come
/// back in any case, and the next use of what is left works.
fn fails_cleanly_at(steps: u64, caps: DeviceCaps, direction: Direction, completion: Completion) -> bool {
    let mut device = NullDevice::new(caps);
    device.fail_after(steps);
    let made = (|| {
        let pd = device.alloc_pd()?;
        let qpn = device.create_qp(pd, &CAP)?;
        Ok::<_, DeviceError>((qpn, RwQp::init_mrs(&mut device, pd, &CAP, 3)?))
    })();
    let Ok((qpn, mut qp)) = made else {
        assert_eq!(device.live_mrs(), 0, "step {steps}");
        return true;
    };
    let mrs = device.live_mrs();
    let mut credits = SqCredits::new(CAP.max_send_wr, 4);
    let mut ctx = RwCtx::new();
    let mut failures = 0;
    // The device refuses what does not fit the state of a key: one failure is the ordered one, and none may follow from it.
    for round in 0..4 {
        let wqes = ctx.init(&qp, &pages(9), 0, REMOTE, direction).unwrap();
        assert_eq!(credits.take((), wqes), Take::Taken);
        let posted = ctx.post(&mut device, qpn, completion);
        failures += u32::from(posted.is_err());
        assert!(failures <= 1, "step {steps}, round {round}: {posted:?}");
        // What was posted before the failure completes as a flush.
        ctx.complete();
        ctx.destroy();
        credits.give(wqes);
        assert_eq!((ctx.kind(), ctx.wqes(), credits.available()), (None, 0, CAP.max_send_wr), "step {steps}");
        assert_eq!((qp.rdma_mrs().used(), qp.rdma_mrs().free() as usize), (0, mrs), "step {steps}");
    }
    qp.cleanup_mrs(&mut device);
    assert_eq!(device.live_mrs(), 0, "step {steps}");
    failures == 1
}

#[test]
fn a_dropped_context_gives_its_registrations_back() {
    let mut world = World::new(forced(), 3);
    world.init(9, ToHost).unwrap();
    assert_eq!(world.qp.rdma_mrs().used(), 3);
    world.ctx = RwCtx::new();
    assert_eq!(world.qp.rdma_mrs().used(), 0);
    // In the order of their transfers: the last one put back comes first.
    assert_eq!(world.run(1, ToHost), 2);
    world.qp.cleanup_mrs(&mut world.device);
    assert_eq!(world.device.live_mrs(), 0);
}
