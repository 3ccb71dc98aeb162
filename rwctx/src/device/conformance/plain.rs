//! Plain contexts: whatever list they get, its bytes and no others move. (rw-contexts 1.3 to 1.6)

use super::bench::{Bench, PAGE, random, scattered};
use super::{Rig, Side};
use crate::ctx::RwCtx;
use crate::device::{Device, DeviceCaps};
use crate::plan::{Bvec, BvecIter, Direction, Kind, RwError};
use crate::remote::RemoteAddr;

use Direction::{FromHost, ToHost};

/// What a list of `n` pieces becomes. (rw-contexts 1.1)
fn kind(caps: &DeviceCaps, direction: Direction, n: usize) -> Kind {
    let hinted = caps.max_sgl_rd != 0 && n > caps.max_sgl_rd as usize;
    if caps.force_mr || direction == FromHost && (caps.iwarp || hinted) {
        Kind::Registered
    } else if n == 1 {
        Kind::SingleWr
    } else {
        Kind::MultiWr
    }
}

pub(crate) fn lists_of_any_length_move_both_ways<R: Rig>(make: impl Fn() -> R) {
    let mut bench = Bench::new(make(), 4);
    let caps = *bench.rig.device().caps();
    let mut rng = fastrand::Rng::with_seed(1);
    let most = caps.max_send_sge as usize;
    let mut ctx = RwCtx::new();
    for n in [1, 2, 3, most, most + 1, 33, 64] {
        for offset in [0, 100, PAGE, PAGE + 104].into_iter().filter(|&offset| offset < n * PAGE) {
            for direction in [ToHost, FromHost] {
                let left = n * PAGE - offset;
                let pages: Vec<usize> = scattered(n).collect();
                let list: Vec<_> = pages.iter().map(|&page| bench.sge(page, PAGE)).collect();
                let far = rng.usize(0..1000);
                let bytes = random(&mut rng, n * PAGE);
                match direction {
                    ToHost => {
                        for (&page, bytes) in pages.iter().zip(bytes.chunks(PAGE)) {
                            bench.put(Side::Ours, page, bytes);
                        }
                        bench.expect(Side::Peer, far, &bytes[offset..]);
                    }
                    FromHost => {
                        bench.put(Side::Peer, far, &bytes[..left]);
                        let mut skip = offset;
                        let mut rest = &bytes[..left];
                        for &page in &pages {
                            let (skipped, take) = (skip.min(PAGE), PAGE - skip.min(PAGE));
                            let (now, later) = rest.split_at(take);
                            bench.expect(Side::Ours, page + skipped, now);
                            (rest, skip) = (later, skip - skipped);
                        }
                    }
                }
                let remote = bench.remote(far);
                let small = u32::try_from(offset).unwrap();
                let wqes = ctx.init(&bench.qp, &list, small, remote, direction).unwrap();
                let pieces = n - offset / PAGE;
                assert_eq!(ctx.kind(), Some(kind(&caps, direction, pieces)), "{n} {offset} {direction:?}");
                assert_eq!((ctx.wqes(), ctx.is_posted()), (wqes, false));
                bench.carry_out(&mut ctx);
                ctx.destroy();
                bench.check_memory(&format!("{n} pages from {offset}, {direction:?}"));
            }
        }
    }
    bench.end();
}

pub(crate) fn page_arrays_move_from_where_their_iterator_stands<R: Rig>(make: impl Fn() -> R) {
    let mut bench = Bench::new(make(), 4);
    let caps = *bench.rig.device().caps();
    let mut rng = fastrand::Rng::with_seed(2);
    let apart: Vec<usize> = scattered(5).collect();
    let in_a_row: Vec<usize> = (20..25).map(|page| page * PAGE).collect();
    let mut ctx = RwCtx::new();
    for (pages, iter, direct) in [
        (&apart[..1], BvecIter { index: 0, done: 100, size: 500 }, Kind::SingleWr),
        (&apart[..2], BvecIter { index: 0, done: 100, size: 5000 }, Kind::MultiWr),
        (&apart[..], BvecIter { index: 0, done: 0, size: 5 * 4096 }, Kind::MultiWr),
        (&apart[..], BvecIter { index: 2, done: 4095, size: 4097 }, Kind::MultiWr),
        (&in_a_row[..], BvecIter { index: 1, done: 5, size: 3 * 4096 }, Kind::Contiguous),
    ] {
        for direction in [ToHost, FromHost] {
            let (far, size) = (rng.usize(0..1000), iter.size as usize);
            let bytes = random(&mut rng, size);
            let mut left = &bytes[..];
            let mut skip = iter.done as usize;
            for &page in &pages[iter.index..] {
                let (now, later) = left.split_at(left.len().min(PAGE - skip));
                match direction {
                    ToHost => bench.put(Side::Ours, page + skip, now),
                    FromHost => bench.expect(Side::Ours, page + skip, now),
                }
                (left, skip) = (later, 0);
            }
            match direction {
                ToHost => bench.expect(Side::Peer, far, &bytes),
                FromHost => bench.put(Side::Peer, far, &bytes),
            }
            let bvecs: Vec<Bvec> = pages.iter().map(|&page| bench.sge(page, PAGE)).collect();
            let remote = bench.remote(far);
            ctx.init_bvec(&bench.qp, &bvecs, iter, remote, direction).unwrap();
            let registers = caps.force_mr || caps.iwarp && direction == FromHost;
            let expected = if registers { Kind::Registered } else { direct };
            assert_eq!(ctx.kind(), Some(expected), "{iter:?} {direction:?}");
            bench.carry_out(&mut ctx);
            ctx.destroy();
            bench.check_memory(&format!("{iter:?}, {direction:?}"));
        }
    }
    bench.end();
}

pub(crate) fn what_can_not_be_moved_is_refused_with_the_kernels_errno<R: Rig>(make: impl Fn() -> R) {
    let bench = Bench::new(make(), 2);
    let mut ctx = RwCtx::new();
    let list = [bench.sge(0, PAGE), bench.sge(2 * PAGE, PAGE)];
    let remote = bench.remote(0);
    let wraps = RemoteAddr { addr: u64::MAX - 100, ..remote };
    let all = BvecIter { index: 0, done: 0, size: 8192 };
    for direction in [ToHost, FromHost] {
        let mut init = |list: &[_], offset, at| ctx.init(&bench.qp, list, offset, at, direction);
        assert_eq!(init(&list, 8192, remote).map_err(RwError::errno), Err(libc::EIO));
        assert_eq!(init(&[], 0, remote).map_err(RwError::errno), Err(libc::EIO));
        assert_eq!(init(&list, 0, wraps).map_err(RwError::errno), Err(libc::EINVAL));
        let mut bvec = |list: &[_], iter| ctx.init_bvec(&bench.qp, list, iter, remote, direction);
        assert_eq!(bvec(&[], all).map_err(RwError::errno), Err(libc::EINVAL));
        assert_eq!(bvec(&list, BvecIter { size: 0, ..all }).map_err(RwError::errno), Err(libc::EINVAL));
        assert_eq!(bvec(&list, BvecIter { size: 8193, ..all }).map_err(RwError::errno), Err(libc::EINVAL));
        assert_eq!((ctx.kind(), ctx.wqes()), (None, 0));
        ctx.init(&bench.qp, &list, 0, remote, direction).unwrap();
        let busy = ctx.init(&bench.qp, &list, 0, remote, direction);
        assert_eq!(busy.map_err(RwError::errno), Err(libc::EBUSY));
        ctx.destroy();
    }
    bench.end();
}
