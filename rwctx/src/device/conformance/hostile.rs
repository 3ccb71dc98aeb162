//! Peers that break their word, with what any device lets them do: the context fails, once, and nobody else notices.

use super::bench::{Bench, OWN, PAGE, scattered, statuses};
use super::{MEMORY, Peered, Side};
use crate::ctx::RwCtx;
use crate::device::{Device, QpState};
use crate::plan::Direction;
use crate::remote::{RemoteAddr, Rkey};
use crate::wc::WcStatus;
use crate::wr::{Fence, RecvWr, SendOp, SendWr, Sge, Signal, WrId};

use Direction::{FromHost, ToHost};
use WcStatus::{RemAccessErr, Success};

/// More than any device sends in one go.
const LONG: usize = 64;

/// Replaces the connection by a fresh one, which works.
fn goes_on<R: Peered>(bench: &mut Bench<R>) {
    assert_eq!(bench.rig.device().qp_state(bench.qpn), Some(QpState::Error));
    bench.reconnect();
    for direction in [ToHost, FromHost] {
        let (list, remote) = ([bench.sge(MEMORY - PAGE, PAGE)], bench.remote(MEMORY - PAGE));
        assert_eq!(bench.try_move(&list, remote, direction), [Success]);
    }
}

/// A context to memory that the peer does not have fails.
fn is_refused<R: Peered>(bench: &mut Bench<R>, at: RemoteAddr, pages: usize, direction: Direction) {
    let list: Vec<_> = scattered(pages).map(|page| bench.sge(page, PAGE)).collect();
    let seen = bench.try_move(&list, at, direction);
    assert_eq!(seen.first(), Some(&RemAccessErr), "{at:?} {direction:?}");
    assert!(!seen.contains(&Success), "{seen:?}");
    bench.check_memory("nothing was granted");
    goes_on(bench);
}

pub(crate) fn memory_that_was_not_granted_fails_the_context_alone<R: Peered>(make: impl Fn() -> R) {
    let mut bench = Bench::new(make(), 2);
    let RemoteAddr { addr, rkey } = bench.remote(0);
    for direction in [ToHost, FromHost] {
        for pages in [1, 2] {
            for at in [
                RemoteAddr { addr, rkey: Rkey(rkey.0 ^ 0x0100_0000) },
                RemoteAddr { addr, rkey: Rkey(0) },
                RemoteAddr { addr: addr + (MEMORY - PAGE * pages + 1) as u64, rkey },
                RemoteAddr { addr: addr - 1, rkey },
            ] {
                is_refused(&mut bench, at, pages, direction);
            }
        }
    }
    bench.end();
}

pub(crate) fn a_key_that_is_taken_back_fails_the_context_that_was_made_with_it<R: Peered>(
    make: impl Fn() -> R,
) {
    let mut bench = Bench::new(make(), 2);
    for direction in [ToHost, FromHost] {
        let mr = bench.rig.peer_registers();
        let at = RemoteAddr { addr: mr.addr, rkey: mr.rkey };
        let list = [bench.sge(0, PAGE)];
        let mut ctx = RwCtx::new();
        ctx.init(&bench.qp, &list, 0, at, direction).unwrap();
        bench.rig.peer().dereg_mr(mr.id).unwrap();
        assert_eq!(bench.post(&mut ctx).first(), Some(&RemAccessErr));
        ctx.destroy();
        bench.check_memory("the peer's key was gone");
        goes_on(&mut bench);
    }
    bench.end();
}

pub(crate) fn a_peer_that_invalidates_what_it_was_not_granted_loses_its_connection<R: Peered>(
    make: impl Fn() -> R,
) {
    let mut bench = Bench::new(make(), 2);
    let ours = bench.rig.memory(Side::Ours);
    for key in [ours.rkey, Rkey(ours.rkey.0 ^ 0x0200_0000), Rkey(0)] {
        let (qpn, room) = (bench.qpn, bench.sge(8 * PAGE, 64));
        bench.rig.device().post_recv(qpn, &RecvWr { wr_id: WrId(9), sges: &[room] }).unwrap();
        let peer = bench.rig.peer_qpn(qpn);
        let op = SendOp::SendWithInv(key);
        let wr = SendWr { wr_id: WrId(1), op, sges: &[], signal: Signal::Signaled, fence: Fence::None };
        bench.rig.peer().post_send(peer, &wr).unwrap();
        // The peer hears of it or not: Linux's software RoCE acknowledges the message first.
        assert_eq!(bench.rig.peer_completions(1).len(), 1, "{key:?}");
        let done = bench.rig.completions(1);
        assert!(done.iter().all(|wc| wc.wr_id == WrId(9) && wc.status != Success), "{done:?}");
        // Our memory is as good as before.
        goes_on(&mut bench);
    }
    bench.end();
}

/// Posts READs and WRITEs of long lists, as many as there are registrations for.
fn under_way<R: Peered>(bench: &mut Bench<R>, direction: Direction) -> Vec<RwCtx> {
    let list: Vec<Sge> = scattered(LONG).map(|page| bench.sge(page, PAGE)).collect();
    let remote = bench.remote(0);
    (0..2)
        .map(|_| {
            let mut ctx = RwCtx::new();
            ctx.init(&bench.qp, &list, 0, remote, direction).unwrap();
            ctx.post(bench.rig.device(), bench.qpn, OWN).unwrap();
            ctx
        })
        .collect()
}

/// Contexts of a connection that failed end, and nothing of them is left.
fn end_all<R: Peered>(bench: &mut Bench<R>, ctxs: Vec<RwCtx>) {
    for mut ctx in ctxs {
        assert!(ctx.is_posted());
        ctx.complete();
        ctx.destroy();
    }
    assert_eq!(bench.qp.rdma_mrs().used(), 0);
    goes_on(bench);
    for side in [Side::Ours, Side::Peer] {
        bench.forget(side, 0, 2 * LONG * PAGE);
        bench.forget(side, MEMORY - PAGE, PAGE);
    }
    bench.check_memory("what the contexts did not name is as it was");
}

pub(crate) fn a_peer_that_closes_in_the_middle_leaves_nothing<R: Peered>(make: impl Fn() -> R) {
    let mut bench = Bench::new(make(), 4);
    for direction in [ToHost, FromHost] {
        let ctxs = under_way(&mut bench, direction);
        let peer = bench.rig.peer_qpn(bench.qpn);
        bench.rig.peer().error_qp(peer).unwrap();
        // Some may have arrived before; the rest is given up after the retries.
        let mut seen = Vec::new();
        while !seen.iter().any(|status| *status != Success) && seen.len() < ctxs.len() {
            seen.extend(statuses(&bench.rig.completions(1)));
        }
        assert!(seen.iter().any(|status| *status != Success), "{seen:?}");
        end_all(&mut bench, ctxs);
    }
    bench.end();
}

pub(crate) fn a_connection_that_is_closed_in_the_middle_leaves_nothing<R: Peered>(make: impl Fn() -> R) {
    let mut bench = Bench::new(make(), 4);
    for direction in [ToHost, FromHost] {
        let ctxs = under_way(&mut bench, direction);
        bench.rig.device().error_qp(bench.qpn).unwrap();
        let seen = statuses(&bench.rig.completions(ctxs.len()));
        assert!(seen.contains(&WcStatus::WrFlushErr), "{seen:?}");
        end_all(&mut bench, ctxs);
    }
    bench.end();
}
