//! Contexts over registrations, where the device's contexts use some. (rw-contexts 1.5, 1.8, 1.11)

use super::bench::{Bench, PAGE, random, scattered};
use super::{Rig, Side};
use crate::ctx::RwCtx;
use crate::device::Device;
use crate::plan::{Direction, Kind, RwError, can_use_mr};

use Direction::{FromHost, ToHost};

/// More pieces than any persona READs without a registration.
const MANY: usize = 40;

pub(crate) fn registrations_are_used_again_until_their_keys_have_come_round<R: Rig>(make: impl Fn() -> R) {
    let mut bench = Bench::new(make(), 1);
    let caps = *bench.rig.device().caps();
    if !can_use_mr(&caps) {
        assert_eq!(bench.qp.rdma_mrs().used(), 0, "contexts of this device ask for none");
        bench.end();
        return;
    }
    let mut rng = fastrand::Rng::with_seed(3);
    let list: Vec<_> = scattered(MANY).map(|page| bench.sge(page, PAGE)).collect();
    let mut ctx = RwCtx::new();
    // The low byte of a key has 256 values, and one step for each use.
    for round in 0..300 {
        let direction = if caps.force_mr && round % 2 == 1 { ToHost } else { FromHost };
        let bytes = random(&mut rng, MANY * PAGE);
        for (page, bytes) in scattered(MANY).zip(bytes.chunks(PAGE)) {
            match direction {
                ToHost => bench.put(Side::Ours, page, bytes),
                FromHost => bench.expect(Side::Ours, page, bytes),
            }
        }
        match direction {
            ToHost => bench.expect(Side::Peer, 9, &bytes),
            FromHost => bench.put(Side::Peer, 9, &bytes),
        }
        let remote = bench.remote(9);
        let wqes = ctx.init(&bench.qp, &list, 0, remote, direction).unwrap();
        assert_eq!(ctx.kind(), Some(Kind::Registered));
        // What an iWARP READ invalidates itself needs no invalidation before.
        assert_eq!(wqes, if round == 0 || caps.iwarp { 2 } else { 3 }, "round {round}");
        assert_eq!((bench.qp.rdma_mrs().used(), bench.qp.rdma_mrs().free()), (1, 0));
        let mut second = RwCtx::new();
        let dry = second.init(&bench.qp, &list, 0, remote, direction);
        if caps.iwarp || caps.force_mr {
            assert_eq!(dry.map_err(RwError::errno), Err(libc::EAGAIN), "the pool is dry");
        } else {
            assert_eq!(dry, Ok(u32::try_from(MANY.div_ceil(caps.max_sge_rd as usize)).unwrap()));
            second.destroy();
        }
        bench.carry_out(&mut ctx);
        ctx.destroy();
        bench.check_memory(&format!("round {round}"));
    }
    bench.end();
}
