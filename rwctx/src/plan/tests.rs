//! The numeric tables of the context rules (spec: rw contexts 1.13).

use super::*;
use crate::device::Device;
use crate::device::null::NullDevice;
use crate::mem::{Lkey, PAGE};
use crate::mr_pool::PooledMr;
use crate::remote::Rkey;
use proptest::prelude::*;

#[expect(clippy::too_many_arguments, reason = "one column of the device table each")]
fn profile(
    iwarp: bool,
    max_sgl_rd: u32,
    sge: u32,
    sge_rd: u32,
    fast_reg: u32,
    pi: u32,
    max_qp_wr: u32,
    force_mr: bool,
) -> DeviceCaps {
    DeviceCaps {
        iwarp,
        max_sgl_rd,
        max_send_sge: sge,
        max_sge_rd: sge_rd,
        max_recv_sge: sge,
        max_fast_reg_page_list_len: fast_reg,
        max_pi_fast_reg_page_list_len: pi,
        max_qp_wr,
        max_qp_rd_atom: 16,
        max_qp_init_rd_atom: 16,
        replace_source: false,
        takes_sums: false,
        mem_mgt_extensions: true,
        send_with_inv: true,
        force_mr,
    }
}

fn a() -> DeviceCaps {
    profile(false, 0, 30, 30, 65536, 32768, 32768, false)
}
fn b() -> DeviceCaps {
    profile(false, 32, 30, 30, 65536, 32768, 32768, false)
}
fn c() -> DeviceCaps {
    profile(true, 0, 6, 1, 256, 0, 32768, false)
}
fn r() -> DeviceCaps {
    profile(false, 0, 32, 32, 512, 0, 1_048_576, false)
}
fn f() -> DeviceCaps {
    profile(false, 0, 30, 30, 65536, 32768, 32768, true)
}
fn s() -> DeviceCaps {
    profile(false, 4, 4, 3, 8, 4, 64, false)
}

fn cap(max_send_sge: u32) -> QpCap {
    QpCap { max_send_wr: 64, max_recv_wr: 64, max_send_sge, max_recv_sge: 1, integrity: Integrity::Off }
}

fn limits(caps: &DeviceCaps, max_send_sge: u32) -> QpLimits {
    QpLimits::new(caps, &cap(max_send_sge))
}

/// A queue pair with a pool of `mrs` registrations, if the device's contexts use any.
fn qp_of(caps: &DeviceCaps, max_send_sge: u32, mrs: u32, integrity: Integrity) -> RwQp {
    let mut device = NullDevice::new(*caps);
    let pd = device.alloc_pd().unwrap();
    let cap = QpCap { integrity, ..cap(max_send_sge) };
    RwQp::init_mrs(&mut device, pd, &cap, mrs).unwrap()
}

fn qp(caps: &DeviceCaps) -> RwQp {
    qp_of(caps, caps.max_send_sge, 8, Integrity::Off)
}

/// `n` pages that are not contiguous.
fn pages(n: usize) -> Vec<Sge> {
    (0..n).map(|i| Sge { addr: 0x10_0000 + i as u64 * 8192, length: PAGE, lkey: Lkey(7) }).collect()
}

#[derive(Debug)]
struct Planned {
    kind: Kind,
    wqes: u32,
    /// (entries, bytes, remote offset) of each READ or WRITE.
    wrs: Vec<(usize, u64, u64)>,
    sges: Vec<Sge>,
}

fn remote_of(op: SendOp) -> u64 {
    match op {
        SendOp::Read(at) | SendOp::ReadWithInv(at) | SendOp::Write(at) => at.addr,
        other => panic!("not a data work request: {other:?}"),
    }
}

fn bytes_of(sges: &[Sge]) -> u64 {
    sges.iter().map(|sge| u64::from(sge.length)).sum()
}

fn collect(kind: Kind, plan: &Plan) -> Planned {
    let plain = plan.wrs.iter().map(|wr| {
        let part = &plan.sges[wr.first_sge as usize..(wr.first_sge + wr.num_sge) as usize];
        (part.len(), bytes_of(part), remote_of(wr.op))
    });
    let registered = plan.registrations.iter().map(|registration| {
        let wrs: Vec<(SendOp, &[Sge])> = registration.wrs(&plan.sges).collect();
        assert_eq!(wrs.len(), registration.wqes() as usize);
        let [.., (SendOp::RegMr { .. }, memory), (op, sink)] = wrs[..] else { panic!("{wrs:?}") };
        assert!(wrs.len() == 2 || matches!(wrs[0], (SendOp::LocalInv(_), [])), "{wrs:?}");
        assert_eq!((sink.len(), sink[0].addr, bytes_of(sink)), (1, memory[0].addr, bytes_of(memory)));
        (memory.len(), bytes_of(memory), remote_of(op))
    });
    Planned { kind, wqes: plan.wqes(), wrs: plain.chain(registered).collect(), sges: plan.sges.clone() }
}

const REMOTE: RemoteAddr = RemoteAddr { addr: 0, rkey: Rkey(9) };

fn run_on(qp: &RwQp, sgl: &[Sge], offset: u32, direction: Direction) -> Result<Planned, RwError> {
    let mut out = Plan::default();
    let kind = plan(qp, sgl, offset, REMOTE, direction, &mut out)?;
    Ok(collect(kind, &out))
}

fn run(
    caps: &DeviceCaps,
    sge: u32,
    sgl: &[Sge],
    offset: u32,
    direction: Direction,
) -> Result<Planned, RwError> {
    run_on(&qp_of(caps, sge, 8, Integrity::Off), sgl, offset, direction)
}

fn run_bvec(
    caps: &DeviceCaps,
    bvecs: &[Bvec],
    iter: BvecIter,
    direction: Direction,
) -> Result<Planned, RwError> {
    let mut out = Plan::default();
    let kind = plan_bvec(&qp(caps), bvecs, iter, REMOTE, direction, &mut out)?;
    Ok(collect(kind, &out))
}

/// Kind and number of operations in one cell of the table.
#[derive(Clone, Copy, Debug)]
enum Cell {
    /// On SGEs: SINGLE of one entry, otherwise MULTI.
    Sge(usize),
    /// On registrations, each with REG_MR.
    Mr(usize),
}

#[test]
fn path_and_number_of_work_requests_follow_the_table() {
    use Cell::{Mr, Sge};
    use Direction::{FromHost, ToHost};
    let on_sges = |ops: [usize; 9]| ops.map(Sge);
    let registered = [Mr(1), Mr(1), Mr(1), Mr(1), Mr(1), Mr(1), Mr(1), Mr(1), Mr(2)];
    let table: [(DeviceCaps, Direction, [Cell; 9]); 10] = [
        (a(), ToHost, on_sges([1, 1, 1, 2, 2, 2, 3, 9, 9])),
        (a(), FromHost, on_sges([1, 1, 1, 2, 2, 2, 3, 9, 9])),
        (b(), ToHost, on_sges([1, 1, 1, 2, 2, 2, 3, 9, 9])),
        (b(), FromHost, [Sge(1), Sge(1), Sge(1), Sge(2), Sge(2), Mr(1), Mr(1), Mr(1), Mr(2)]),
        (c(), ToHost, on_sges([1, 1, 5, 6, 6, 6, 11, 43, 43])),
        (c(), FromHost, registered),
        (r(), ToHost, on_sges([1, 1, 1, 1, 1, 2, 2, 8, 9])),
        (r(), FromHost, on_sges([1, 1, 1, 1, 1, 2, 2, 8, 9])),
        (f(), ToHost, registered),
        (f(), FromHost, registered),
    ];
    for (caps, direction, cells) in table {
        let max_sge = if direction == FromHost { caps.max_sge_rd } else { caps.max_send_sge } as usize;
        for (n, cell) in [1, 2, 30, 31, 32, 33, 64, 256, 257].into_iter().zip(cells) {
            let what = format!("{n} entries, {direction:?}, {caps:?}");
            let planned = run(&caps, caps.max_send_sge, &pages(n), 0, direction).unwrap();
            let (kind, ops, wqes, most) = match cell {
                Sge(ops) => (if n == 1 { Kind::SingleWr } else { Kind::MultiWr }, ops, ops, max_sge),
                Mr(ops) => (Kind::Registered, ops, 2 * ops, 256),
            };
            assert_eq!((planned.kind, planned.wrs.len(), planned.wqes as usize), (kind, ops, wqes), "{what}");
            // All but the last are full, and each goes on where the one before ended.
            for (i, (entries, bytes, remote)) in planned.wrs.into_iter().enumerate() {
                let full = most.min(n - i * most);
                let at = (i * most * 4096) as u64;
                assert_eq!((entries, bytes, remote), (full, full as u64 * 4096, at), "{what}");
            }
        }
    }
}

#[test]
fn remote_addresses_go_on_where_the_work_request_before_ended() {
    let planned = run(&a(), 30, &pages(64), 0, Direction::FromHost).unwrap();
    assert_eq!(planned.wrs, [(30, 122_880, 0), (30, 122_880, 122_880), (4, 16384, 245_760)]);
    let planned = run(&c(), 6, &pages(257), 0, Direction::ToHost).unwrap();
    assert_eq!(planned.wrs.last(), Some(&(5, 20480, 1_032_192)));
    // A list as long as the hint, and one that has one entry less.
    let planned = run(&b(), 30, &pages(32), 0, Direction::FromHost).unwrap();
    assert_eq!(planned.wrs, [(30, 122_880, 0), (2, 8192, 122_880)]);
    let planned = run(&b(), 30, &pages(31), 0, Direction::FromHost).unwrap();
    assert_eq!(planned.wrs, [(30, 122_880, 0), (1, 4096, 122_880)]);
    let planned = run(&b(), 30, &pages(257), 0, Direction::FromHost).unwrap();
    assert_eq!(planned.wrs, [(256, 1_048_576, 0), (1, 4096, 1_048_576)]);
}

#[test]
fn a_small_device_splits_as_the_table_says() {
    use Direction::{FromHost, ToHost};
    let wrs = |n, direction| run(&s(), 4, &pages(n), 0, direction).unwrap().wrs;
    assert_eq!(wrs(3, FromHost), [(3, 12288, 0)]);
    assert_eq!(wrs(4, FromHost), [(3, 12288, 0), (1, 4096, 12288)]);
    assert_eq!(wrs(4, ToHost), [(4, 16384, 0)]);
    assert_eq!(wrs(5, ToHost), [(4, 16384, 0), (1, 4096, 16384)]);
    assert_eq!(
        wrs(17, ToHost),
        [(4, 16384, 0), (4, 16384, 16384), (4, 16384, 32768), (4, 16384, 49152), (1, 4096, 65536)]
    );
}

/// What a transfer from the host became: kind, send-queue entries, operations.
type Row = (Kind, u32, Vec<(usize, u64, u64)>);

fn read(qp: &RwQp, n: usize, offset: u32) -> Result<Row, RwError> {
    let planned = run_on(qp, &pages(n), offset, Direction::FromHost)?;
    Ok((planned.kind, planned.wqes, planned.wrs))
}

#[test]
fn a_small_device_registers_as_the_table_says() {
    let small = qp(&s());
    let registered = |wqes, wrs: &[(usize, u64, u64)]| Ok((Kind::Registered, wqes, wrs.to_vec()));
    assert_eq!(read(&small, 5, 0), registered(2, &[(5, 20480, 0)]));
    assert_eq!(read(&small, 9, 0), registered(4, &[(8, 32768, 0), (1, 4096, 32768)]));
    let three = [(8, 32768, 0), (8, 32768, 32768), (1, 4096, 65536)];
    assert_eq!(read(&small, 17, 0), registered(6, &three));
    assert_eq!(read(&small, 9, 1000), registered(4, &[(8, 31768, 0), (1, 4096, 31768)]));
    // On a queue pair with integrity, the limit of integrity registrations counts.
    let integrity = qp_of(&s(), 4, 8, Integrity::Enabled);
    let expected = registered(6, &[(4, 16384, 0), (4, 16384, 16384), (1, 4096, 32768)]);
    assert_eq!(read(&integrity, 9, 0), expected);
}

#[test]
fn registrations_that_were_used_are_invalidated_first() {
    let three = [(8, 32768, 0), (8, 32768, 32768), (1, 4096, 65536)];
    for (used, wqes) in [([true; 3], 9), ([false, true, false], 7), ([false; 3], 6)] {
        let small = qp_of(&s(), 4, 3, Integrity::Off);
        let mut mrs: Vec<PooledMr> = (0..3).map_while(|_| small.rdma_mrs().take()).collect();
        mrs.iter_mut().zip(used).filter(|(_, used)| *used).for_each(|(mr, _)| mr.step(true));
        // The first one taken is put back last.
        while mrs.pop().is_some() {}
        assert_eq!(read(&small, 17, 0), Ok((Kind::Registered, wqes, three.to_vec())), "{used:?}");
        assert_eq!(small.rdma_mrs().free(), 3);
    }
}

#[test]
fn a_pool_that_is_too_small_falls_back_where_registrations_were_only_a_hint() {
    let hinted = qp_of(&s(), 4, 1, Integrity::Off);
    let plain = vec![(3, 12288, 0), (3, 12288, 12288), (3, 12288, 24576)];
    assert_eq!(read(&hinted, 9, 0), Ok((Kind::MultiWr, 3, plain)));
    assert_eq!((hinted.rdma_mrs().free(), hinted.rdma_mrs().used()), (1, 0));
    for caps in [DeviceCaps { force_mr: true, ..s() }, DeviceCaps { iwarp: true, ..s() }] {
        let small = qp_of(&caps, 4, 1, Integrity::Off);
        assert_eq!(read(&small, 9, 0).map_err(RwError::errno), Err(libc::EAGAIN), "{caps:?}");
        assert_eq!((small.rdma_mrs().free(), small.rdma_mrs().used()), (1, 0), "{caps:?}");
    }
}

#[test]
fn lists_that_pages_can_not_hold_are_refused_and_cost_no_registration() {
    let small = qp(&s());
    let unmappable = |sgl: &[Sge]| {
        let refused = run_on(&small, sgl, 0, Direction::FromHost).unwrap_err();
        assert_eq!((small.rdma_mrs().free(), small.rdma_mrs().used()), (8, 0));
        refused.errno()
    };
    let mut gap = pages(9);
    gap[3].length = 100;
    assert_eq!(unmappable(&gap), libc::EINVAL, "an entry in the middle ends inside a page");
    let mut unaligned = pages(9);
    unaligned[8].addr += 8;
    // It is the first of the second registration, which may start anywhere.
    assert!(run_on(&small, &unaligned, 0, Direction::FromHost).is_ok());
    unaligned[7].addr += 8;
    assert_eq!(unmappable(&unaligned), libc::EINVAL, "an entry in the middle starts inside a page");
    // Eight entries to a registration, which has eight pages.
    let mut large = pages(5);
    large.iter_mut().for_each(|sge| sge.length = 2 * PAGE);
    assert_eq!(unmappable(&large), libc::EINVAL);
}

#[test]
fn an_offset_skips_whole_entries_and_shortens_the_first() {
    let sgl = pages(3);
    for (offset, kind, sges, entry, within, length, total) in [
        (0, Kind::MultiWr, 3, 0, 0, 4096, 12288),
        (100, Kind::MultiWr, 3, 0, 100, 3996, 12188),
        (4096, Kind::MultiWr, 2, 1, 0, 4096, 8192),
        (4200, Kind::MultiWr, 2, 1, 104, 3992, 8088),
        (8192, Kind::SingleWr, 1, 2, 0, 4096, 4096),
        (12287, Kind::SingleWr, 1, 2, 4095, 1, 1),
    ] {
        let planned = run(&a(), 30, &sgl, offset, Direction::FromHost).unwrap();
        assert_eq!((planned.kind, planned.sges.len()), (kind, sges), "offset {offset}");
        let first = Sge { addr: sgl[entry].addr + within, length, lkey: Lkey(7) };
        assert_eq!(planned.sges[0], first, "offset {offset}");
        assert_eq!(planned.wrs.iter().map(|wr| wr.1).sum::<u64>(), total, "offset {offset}");
    }
    for offset in [12288, 12289, u32::MAX] {
        let refused = run(&a(), 30, &sgl, offset, Direction::FromHost).err();
        assert_eq!(refused.map(RwError::errno), Some(libc::EIO), "offset {offset}");
    }
}

#[test]
fn a_queue_pair_made_with_fewer_sges_splits_by_its_own_limit() {
    assert_eq!(limits(&a(), 4), QpLimits { max_write_sge: 4, max_read_sge: 4 });
    assert_eq!(run(&a(), 4, &pages(9), 0, Direction::FromHost).unwrap().wrs.len(), 3);
}

#[test]
fn bvec_forms_follow_the_table() {
    let whole = |n: u32| BvecIter { index: 0, done: 0, size: n * PAGE };
    let refused =
        |bvecs: &[Bvec], iter| run_bvec(&a(), bvecs, iter, Direction::FromHost).err().map(RwError::errno);
    assert_eq!(refused(&[], whole(1)), Some(libc::EINVAL));
    assert_eq!(refused(&pages(3), BvecIter { index: 0, done: 0, size: 0 }), Some(libc::EINVAL));

    let piece = [Sge { addr: 0x1064, length: 500, lkey: Lkey(7) }];
    let single =
        run_bvec(&a(), &piece, BvecIter { index: 0, done: 0, size: 500 }, Direction::ToHost).unwrap();
    assert_eq!(
        (single.kind, single.wrs.as_slice(), single.sges[0].length),
        (Kind::SingleWr, &[(1, 500, 0)][..], 500)
    );

    let multi = run_bvec(&a(), &pages(3), whole(3), Direction::FromHost).unwrap();
    assert_eq!((multi.kind, multi.wrs.as_slice()), (Kind::MultiWr, &[(3, 12288, 0)][..]));
    let adjacent: Vec<Sge> =
        (0..3).map(|i| Sge { addr: 0x10_0000 + i * 4096, length: PAGE, lkey: Lkey(7) }).collect();
    let contiguous = run_bvec(&a(), &adjacent, whole(3), Direction::FromHost).unwrap();
    assert_eq!((contiguous.kind, contiguous.wrs.as_slice()), (Kind::Contiguous, &[(1, 12288, 0)][..]));

    let many = run_bvec(&b(), &pages(33), whole(33), Direction::FromHost).unwrap();
    assert_eq!((many.kind, many.wrs.len()), (Kind::MultiWr, 2), "the hint does not gate the bvec form");

    let part = BvecIter { index: 0, done: 100, size: 5000 };
    let cut = run_bvec(&a(), &pages(2), part, Direction::FromHost).unwrap();
    let lengths: Vec<u32> = cut.sges.iter().map(|sge| sge.length).collect();
    assert_eq!((cut.kind, lengths), (Kind::MultiWr, vec![3996, 1004]));
    assert_eq!(refused(&pages(2), BvecIter { index: 0, done: 100, size: 9000 }), Some(libc::EINVAL));
    assert_eq!(refused(&pages(2), BvecIter { index: 3, done: 0, size: 1 }), Some(libc::EINVAL));
}

#[test]
fn bvec_forms_over_registrations_follow_the_table() {
    let whole = |n: u32| BvecIter { index: 0, done: 0, size: n * PAGE };
    let read = |caps: &DeviceCaps, bvecs: &[Bvec], iter| {
        run_bvec(caps, bvecs, iter, Direction::FromHost).map(|it| (it.kind, it.wrs.len(), it.wqes))
    };
    assert_eq!(read(&c(), &pages(257), whole(257)), Ok((Kind::Registered, 2, 4)));
    // In one piece, a list of one entry needs as many pages as ever.
    let one = [Sge { addr: 0x10_0000, length: 257 * PAGE, lkey: Lkey(7) }];
    assert_eq!(read(&c(), &one, whole(257)).map_err(RwError::errno), Err(libc::EINVAL));
    assert_eq!(read(&c(), &one, whole(256)), Ok((Kind::Registered, 1, 2)));
    assert_eq!(read(&f(), &pages(1), whole(1)), Ok((Kind::Registered, 1, 2)), "forced");
    // More pieces than the array has.
    assert_eq!(read(&f(), &pages(2), whole(3)).map_err(RwError::errno), Err(libc::EINVAL));
    let to_host = run_bvec(&c(), &pages(3), whole(3), Direction::ToHost).unwrap();
    assert_eq!((to_host.kind, to_host.wqes), (Kind::MultiWr, 1), "a WRITE over iWARP");
    // The pool is final for this form, and the hint of no account.
    let hinted = read(&s(), &pages(17), whole(17));
    assert_eq!(hinted, Ok((Kind::MultiWr, 6, 6)));
    let mut out = Plan::default();
    let small = qp_of(&c(), 6, 1, Integrity::Off);
    let dry = plan_bvec(&small, &pages(257), whole(257), REMOTE, Direction::FromHost, &mut out);
    assert_eq!((dry, small.rdma_mrs().free()), (Err(RwError::PoolEmpty), 1));
}

#[test]
fn mr_factor_follows_the_table() {
    let maxpages = [1, 30, 32, 33, 255, 256, 257, 512, 1024];
    for (caps, factors) in [
        (a(), [1, 1, 2, 2, 9, 9, 9, 18, 35]),
        (b(), [1, 1, 1, 1, 1, 1, 2, 2, 4]),
        (c(), [1, 1, 1, 1, 1, 1, 2, 2, 4]),
        (f(), [1, 1, 1, 1, 1, 1, 2, 2, 4]),
        (r(), [1, 1, 1, 2, 8, 8, 9, 16, 32]),
        (s(), [1, 4, 4, 5, 32, 32, 33, 64, 128]),
    ] {
        assert_eq!(maxpages.map(|pages| mr_factor(&caps, pages)), factors, "{caps:?}");
    }
}

#[test]
fn max_send_wr_follows_the_table_and_has_an_overflow_sentinel() {
    for ctxs in [1, 128, 1536] {
        assert_eq!(max_send_wr(&a(), ctxs, Integrity::Off), ctxs);
        assert_eq!(max_send_wr(&a(), ctxs, Integrity::Enabled), 3 * ctxs);
        assert_eq!(max_send_wr(&b(), ctxs, Integrity::Off), 3 * ctxs);
        assert_eq!(max_send_wr(&b(), ctxs, Integrity::Enabled), 3 * ctxs);
    }
    assert_eq!(max_send_wr(&a(), 0x6000_0000, Integrity::Enabled), u32::MAX);
    assert_eq!(max_send_wr(&b(), 0x6000_0000, Integrity::Off), u32::MAX);
    assert_eq!(max_send_wr(&a(), 1_431_655_765, Integrity::Off), 1_431_655_765);
    assert_eq!(max_send_wr(&a(), 1_431_655_765, Integrity::Enabled), 4_294_967_295);
    assert_eq!(max_send_wr(&a(), 1_431_655_766, Integrity::Enabled), u32::MAX);
}

#[test]
fn a_send_queue_is_sized_for_its_contexts_within_the_device() {
    for ((own, ctxs), plain, integrity, hinted, small) in [
        ((129, 128), 257, 513, 513, 64),
        ((129, 1152), 1281, 3585, 3585, 64),
        ((139, 1152), 1291, 3595, 3595, 64),
    ] {
        assert_eq!(init_qp(&a(), own, ctxs, Integrity::Off), plain);
        assert_eq!(init_qp(&a(), own, ctxs, Integrity::Enabled), integrity);
        assert_eq!(init_qp(&b(), own, ctxs, Integrity::Off), hinted);
        assert_eq!(init_qp(&s(), own, ctxs, Integrity::Off), small);
    }
}

#[test]
fn a_remote_range_that_wraps_is_refused() {
    let mut out = Plan::default();
    let remote = RemoteAddr { addr: u64::MAX - 4096, rkey: Rkey(9) };
    for caps in [a(), f()] {
        let qp = qp(&caps);
        let result = plan(&qp, &pages(2), 0, remote, Direction::ToHost, &mut out);
        assert_eq!((result, qp.rdma_mrs().used()), (Err(RwError::RemoteWraps), 0));
    }
}

proptest! {
    #[test]
    fn every_byte_moves_once_and_in_order(
        lengths in prop::collection::vec(1u32..9000, 1..80),
        sge in 1u32..40,
        offset_share in 0.0f64..1.0,
        to_host: bool,
    ) {
        let total: u32 = lengths.iter().sum();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of a u32")]
        let offset = (f64::from(total) * offset_share) as u32;
        let sgl: Vec<Sge> = lengths.iter().enumerate()
            .map(|(i, &length)| Sge { addr: i as u64 * 16384, length, lkey: Lkey(1) }).collect();
        let direction = if to_host { Direction::ToHost } else { Direction::FromHost };
        let planned = run(&r(), sge, &sgl, offset, direction).unwrap();
        let bytes = |sges: &[Sge]| sges.iter()
            .flat_map(|s| (s.addr..s.addr + u64::from(s.length)).collect::<Vec<_>>()).collect::<Vec<_>>();
        prop_assert_eq!(bytes(&planned.sges), bytes(&sgl)[offset as usize..].to_vec());
        let mut at = 0;
        for (entries, length, remote) in planned.wrs {
            prop_assert!(entries <= sge.min(32) as usize || (to_host && entries <= sge as usize));
            prop_assert_eq!(remote, at);
            at += length;
        }
        prop_assert_eq!(at, u64::from(total - offset));
    }
}
