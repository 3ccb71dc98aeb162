//! Contexts that come to nothing, at any step: what they took is back, and what memory they name is as it was. (rw-contexts 1.9, 1.11)

use super::Rig;
use super::bench::{Bench, OWN, PAGE, scattered};
use super::signatures::stripping;
use crate::ctx::RwCtx;
use crate::device::{Device, PostError};
use crate::plan::{Direction, RwError};

/// Pieces of the longest list.
const MANY: usize = 40;

pub(crate) fn what_was_never_posted_leaves_nothing<R: Rig>(make: impl Fn() -> R) {
    let mut bench = Bench::new(make(), 2);
    let list: Vec<_> = scattered(MANY).map(|page| bench.sge(page, PAGE)).collect();
    let remote = bench.remote(0);
    let mut ctx = RwCtx::new();
    let mut wqes = [None; 2];
    for _ in 0..20 {
        for direction in [Direction::ToHost, Direction::FromHost] {
            ctx.init(&bench.qp, &list, 0, remote, direction).unwrap();
            ctx.destroy();
            assert_eq!((ctx.kind(), ctx.wqes(), ctx.ops()), (None, 0, 0));
            let mut dropped = RwCtx::new();
            let now = dropped.init(&bench.qp, &list, 0, remote, direction).unwrap();
            let first = wqes[direction as usize].get_or_insert(now);
            assert_eq!(now, *first, "no key stepped: nothing is to be invalidated");
        }
        if let Some((signature, data, protection)) = stripping(&mut bench) {
            let Bench { rig, qp, .. } = &mut bench;
            let planned = ctx.signature_init(qp, rig.device(), &[data], &[protection], &signature, remote);
            assert_eq!(planned, Ok(2), "a fresh registration, for nothing was posted");
            ctx.destroy();
        }
    }
    assert_eq!((bench.qp.rdma_mrs().used(), bench.qp.sig_mrs().used()), (0, 0));
    bench.check_memory("nothing was posted");
    bench.end();
}

pub(crate) fn a_queue_that_is_full_at_any_step_leaves_nothing<R: Rig>(make: impl Fn() -> R) {
    for direction in [Direction::ToHost, Direction::FromHost] {
        for signed in [false, true] {
            // With ever longer queues, until the context fits.
            let fits = (1..100).find(|&entries| posts_with(make(), entries, direction, signed));
            assert!(fits.is_some(), "{direction:?}");
        }
    }
}

/// Whether a context fits a send queue of so many entries. If not, what it posted before is flushed with the connection.
fn posts_with<R: Rig>(rig: R, entries: u32, direction: Direction, signed: bool) -> bool {
    let mut bench = Bench::with_entries(rig, 2, |_, _| entries);
    let list: Vec<_> = scattered(MANY).map(|page| bench.sge(page, PAGE)).collect();
    let remote = bench.remote(0);
    let mut ctx = RwCtx::new();
    let signature = if signed { stripping(&mut bench) } else { None };
    let Bench { rig, qp, qpn, .. } = &mut bench;
    let planned = match signature {
        Some((signature, data, protection)) => {
            ctx.signature_init(qp, rig.device(), &[data], &[protection], &signature, remote)
        }
        None => ctx.init(qp, &list, 0, remote, direction),
    };
    let wqes = planned.unwrap();
    let posted = ctx.post(rig.device(), *qpn, OWN);
    if posted.is_ok() {
        assert_eq!(wqes, entries, "a queue with as many entries as the context takes");
        bench.rig.completions(1);
    } else {
        assert_eq!(posted, Err(PostError::Full), "{wqes} entries in {entries}");
        assert!(ctx.is_posted(), "the device may use its memory until the queue pair is gone");
        assert_eq!(ctx.init(qp, &list, 0, remote, direction).map_err(RwError::errno), Err(libc::EBUSY));
        rig.device().error_qp(*qpn).unwrap();
    }
    ctx.complete();
    ctx.destroy();
    assert_eq!((ctx.kind(), ctx.wqes()), (None, 0));
    bench.end();
    posted.is_ok()
}
