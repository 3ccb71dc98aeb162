//! The numeric tables of the context rules, rows that need no registration.

use super::*;
use crate::mem::Lkey;
use crate::remote::Rkey;
use proptest::prelude::*;

const PAGE: u32 = 4096;

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
        mem_mgt_extensions: true,
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

fn limits(caps: &DeviceCaps, max_send_sge: u32) -> QpLimits {
    QpLimits::new(caps, &QpCap { max_send_wr: 64, max_recv_wr: 64, max_send_sge, max_recv_sge: 1 })
}

/// `n` pages that are not contiguous.
fn pages(n: usize) -> Vec<Sge> {
    (0..n).map(|i| Sge { addr: 0x10_0000 + i as u64 * 8192, length: PAGE, lkey: Lkey(7) }).collect()
}

struct Planned {
    kind: Kind,
    /// (SGEs, bytes, remote offset) of each work request.
    wrs: Vec<(usize, u64, u64)>,
    sges: Vec<Sge>,
}

fn remote_of(op: SendOp) -> u64 {
    match op {
        SendOp::Read(at) | SendOp::Write(at) => at.addr,
        other => panic!("not a data work request: {other:?}"),
    }
}

fn collect(kind: Kind, Plan { sges, wrs }: Plan) -> Planned {
    let wrs = wrs
        .iter()
        .map(|wr| {
            let part = &sges[wr.first_sge as usize..(wr.first_sge + wr.num_sge) as usize];
            (part.len(), part.iter().map(|s| u64::from(s.length)).sum(), remote_of(wr.op))
        })
        .collect();
    Planned { kind, wrs, sges }
}

fn run(
    caps: &DeviceCaps,
    sge: u32,
    sgl: &[Sge],
    offset: u32,
    direction: Direction,
) -> Result<Planned, RwError> {
    let mut out = Plan::default();
    let remote = RemoteAddr { addr: 0, rkey: Rkey(9) };
    let kind = plan(caps, limits(caps, sge), sgl, offset, remote, direction, &mut out)?;
    Ok(collect(kind, out))
}

fn run_bvec(
    caps: &DeviceCaps,
    bvecs: &[Bvec],
    iter: BvecIter,
    direction: Direction,
) -> Result<Planned, RwError> {
    let mut out = Plan::default();
    let remote = RemoteAddr { addr: 0, rkey: Rkey(9) };
    let limits = limits(caps, caps.max_send_sge);
    let kind = plan_bvec(caps, limits, bvecs, iter, remote, direction, &mut out)?;
    Ok(collect(kind, out))
}

#[test]
fn path_and_number_of_work_requests_follow_the_table() {
    use Direction::{FromHost, ToHost};
    // 0: a registration, which is refused.
    let table: [(DeviceCaps, Direction, [usize; 9]); 10] = [
        (a(), ToHost, [1, 1, 1, 2, 2, 2, 3, 9, 9]),
        (a(), FromHost, [1, 1, 1, 2, 2, 2, 3, 9, 9]),
        (b(), ToHost, [1, 1, 1, 2, 2, 2, 3, 9, 9]),
        (b(), FromHost, [1, 1, 1, 2, 2, 0, 0, 0, 0]),
        (c(), ToHost, [1, 1, 5, 6, 6, 6, 11, 43, 43]),
        (c(), FromHost, [0; 9]),
        (r(), ToHost, [1, 1, 1, 1, 1, 2, 2, 8, 9]),
        (r(), FromHost, [1, 1, 1, 1, 1, 2, 2, 8, 9]),
        (f(), ToHost, [0; 9]),
        (f(), FromHost, [0; 9]),
    ];
    for (caps, direction, ops) in table {
        let max_sge = if direction == FromHost { caps.max_sge_rd } else { caps.max_send_sge } as usize;
        for (n, expected) in [1, 2, 30, 31, 32, 33, 64, 256, 257].into_iter().zip(ops) {
            let what = format!("{n} entries, {direction:?}, {caps:?}");
            match run(&caps, caps.max_send_sge, &pages(n), 0, direction) {
                Err(error) => assert_eq!((error, expected), (RwError::RegistrationNeeded, 0), "{what}"),
                Ok(planned) => {
                    assert_eq!(planned.wrs.len(), expected, "{what}");
                    assert_eq!(planned.kind, if n == 1 { Kind::SingleWr } else { Kind::MultiWr }, "{what}");
                    // All but the last are full, and each goes on where the one before ended.
                    for (i, (entries, bytes, remote)) in planned.wrs.into_iter().enumerate() {
                        let full = max_sge.min(n - i * max_sge);
                        let at = (i * max_sge * 4096) as u64;
                        assert_eq!((entries, bytes, remote), (full, full as u64 * 4096, at), "{what}");
                    }
                }
            }
        }
    }
}

#[test]
fn transfers_that_need_a_registration_are_refused_and_no_others() {
    use Direction::{FromHost, ToHost};
    let needs = |caps: &DeviceCaps, n, direction| {
        run(caps, caps.max_send_sge, &pages(n), 0, direction).err() == Some(RwError::RegistrationNeeded)
    };
    for n in [1, 2, 32, 257] {
        assert!(needs(&c(), n, FromHost), "iWARP READ");
        assert!(!needs(&c(), n, ToHost), "iWARP WRITE");
        assert!(needs(&f(), n, FromHost) && needs(&f(), n, ToHost), "forced");
        assert_eq!(needs(&b(), n, FromHost), n > 32, "a list as long as the hint stays on SGEs");
    }
    assert_eq!(RwError::RegistrationNeeded.errno(), libc::EOPNOTSUPP);
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
    let result = plan(&a(), limits(&a(), 30), &pages(2), 0, remote, Direction::ToHost, &mut out);
    assert_eq!(result, Err(RwError::RemoteWraps));
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
