//! Send-queue credits: contexts that find too few wait in turn, and all get through. (rw-contexts 3.6)

use std::collections::VecDeque;

use super::bench::{Bench, PAGE, random};
use super::{Rig, Side};
use crate::ctx::{Completion, RwCtx};
use crate::device::Device;
use crate::plan::Direction;
use crate::sq::{SqCredits, Take};
use crate::wc::WcStatus;
use crate::wr::WrId;

const CTXS: usize = 24;
/// Pages of the largest context.
const MOST: usize = 9;

pub(crate) fn whoever_waits_for_credits_gets_them_in_turn<R: Rig>(make: impl Fn() -> R) {
    let entries = 8;
    let mut bench = Bench::with_entries(make(), 24, |_, _| entries);
    let mut rng = fastrand::Rng::with_seed(4);
    let mut credits = SqCredits::new(entries, CTXS);
    let mut ctxs: Vec<RwCtx> = (0..CTXS).map(|_| RwCtx::new()).collect();
    let (mut asked, mut posted, mut done) = (VecDeque::new(), Vec::new(), Vec::new());
    for (index, ctx) in ctxs.iter_mut().enumerate() {
        let at = index * (MOST + 1) * PAGE;
        // One page, or several in two pieces that don't touch.
        let pages = [1, 1, 3, MOST - 1][rng.usize(0..4)];
        let mut list = vec![bench.sge(at, PAGE)];
        if pages > 1 {
            list.push(bench.sge(at + 2 * PAGE, (pages - 1) * PAGE));
        }
        let direction = if rng.bool() { Direction::ToHost } else { Direction::FromHost };
        let bytes = random(&mut rng, pages * PAGE);
        let (first, rest) = bytes.split_at(PAGE);
        match direction {
            Direction::ToHost => {
                bench.put(Side::Ours, at, first);
                bench.put(Side::Ours, at + 2 * PAGE, rest);
                bench.expect(Side::Peer, at, &bytes);
            }
            Direction::FromHost => {
                bench.put(Side::Peer, at, &bytes);
                bench.expect(Side::Ours, at, first);
                bench.expect(Side::Ours, at + 2 * PAGE, rest);
            }
        }
        let remote = bench.remote(at);
        let wqes = ctx.init(&bench.qp, &list, 0, remote, direction).unwrap();
        match credits.take(index, wqes) {
            Take::Taken => {
                assert!(asked.is_empty(), "nobody overtakes those who wait");
                let wr_id = WrId(index as u64);
                ctx.post(bench.rig.device(), bench.qpn, Completion::Own(wr_id)).unwrap();
                posted.push(index);
            }
            Take::Queued => asked.push_back(index),
            take => panic!("{take:?} for {wqes} entries"),
        }
    }
    assert!(!asked.is_empty() && !posted.is_empty());
    while done.len() < CTXS {
        for wc in bench.rig.completions(1) {
            assert_eq!(wc.status, WcStatus::Success);
            let index = usize::try_from(wc.wr_id.0).unwrap();
            let ctx = &mut ctxs[index];
            credits.give(ctx.wqes());
            ctx.complete();
            ctx.destroy();
            done.push(index);
        }
        while let Some(index) = credits.next_ready() {
            assert_eq!(asked.pop_front(), Some(index), "the first in line");
            let wr_id = WrId(index as u64);
            ctxs[index].post(bench.rig.device(), bench.qpn, Completion::Own(wr_id)).unwrap();
            posted.push(index);
        }
    }
    assert_eq!(done, posted, "a queue completes in order");
    assert_eq!(posted, (0..CTXS).collect::<Vec<_>>());
    assert_eq!((credits.available(), bench.rig.device().caps().max_qp_wr >= entries), (entries, true));
    bench.check_memory("after all");
    bench.end();
}
