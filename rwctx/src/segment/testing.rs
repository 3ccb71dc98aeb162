//! Devices, pages and segments for tests of this folder, and the bytes that work requests move, one by one.

use super::{ChunkCtx, CtxCache, PAGE, Page};
use crate::ctx::Completion;
use crate::device::null::NullDevice;
use crate::device::{Device, DeviceCaps, QpCap};
use crate::mem::Lkey;
use crate::plan::{Bvec, Integrity};
use crate::qp::RwQp;
use crate::remote::{RemoteAddr, RemoteSegment, Rkey};
use crate::wr::{SendOp, SendWr, Sge, Signal, WrId};

/// The device table's rows that tests here need (rw contexts, 1.13).
pub(super) mod profiles {
    use crate::device::DeviceCaps;
    use crate::device::soft::endpoint::CAPS;

    const fn sges(send: u32, rd: u32) -> DeviceCaps {
        DeviceCaps { max_send_sge: send, max_sge_rd: rd, max_recv_sge: send, max_qp_wr: 32768, ..CAPS }
    }

    pub(in super::super) const fn a() -> DeviceCaps {
        DeviceCaps { max_fast_reg_page_list_len: 65536, ..sges(30, 30) }
    }

    pub(in super::super) const fn b() -> DeviceCaps {
        DeviceCaps { max_sgl_rd: 32, ..a() }
    }

    pub(in super::super) const fn c() -> DeviceCaps {
        DeviceCaps { iwarp: true, max_fast_reg_page_list_len: 256, ..sges(6, 1) }
    }

    pub(in super::super) const fn r() -> DeviceCaps {
        DeviceCaps { max_fast_reg_page_list_len: 512, max_qp_wr: 1_048_576, ..sges(32, 32) }
    }

    pub(in super::super) const fn s() -> DeviceCaps {
        DeviceCaps { max_sgl_rd: 4, max_fast_reg_page_list_len: 8, max_qp_wr: 64, ..sges(4, 3) }
    }
}

pub(super) const ID: WrId = WrId(77);

/// A queue pair without registrations.
pub(super) fn qp(caps: &DeviceCaps) -> RwQp {
    let cap = QpCap {
        max_send_wr: 64,
        max_recv_wr: 64,
        max_send_sge: caps.max_send_sge,
        max_recv_sge: 1,
        integrity: Integrity::Off,
    };
    RwQp::new(caps, &cap)
}

/// A queue pair with `mrs` registrations.
pub(super) fn qp_with_mrs(caps: &DeviceCaps, mrs: u32) -> RwQp {
    let cap = QpCap {
        max_send_wr: 64,
        max_recv_wr: 64,
        max_send_sge: caps.max_send_sge,
        max_recv_sge: 1,
        integrity: Integrity::Off,
    };
    let mut device = NullDevice::new(*caps);
    let pd = device.alloc_pd().unwrap();
    RwQp::init_mrs(&mut device, pd, &cap, mrs).unwrap()
}

/// `n` pages, no two of which touch.
pub(super) fn pages(n: usize) -> Vec<Page> {
    (0..n).map(page).collect()
}

pub(super) fn page(index: usize) -> Page {
    Page { addr: 0x10_0000 + index as u64 * 2 * u64::from(PAGE), lkey: Lkey(7) }
}

/// A part of page `index`.
pub(super) fn bvec(index: usize, offset: u32, length: u32) -> Bvec {
    Bvec { addr: page(index).addr + u64::from(offset), length, lkey: Lkey(7) }
}

/// A segment far from those of other numbers, with a key of its own.
pub(super) fn segment(number: u32, length: u32) -> RemoteSegment {
    let at = RemoteAddr { addr: u64::from(number + 1) << 40 | 0x123, rkey: Rkey(0x100 + number) };
    RemoteSegment { at, length }
}

/// A work request as numbers: key, the peer's address, pieces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Moved {
    pub(super) remote: RemoteAddr,
    pub(super) write: bool,
    pub(super) sges: Vec<Sge>,
    pub(super) signaled: bool,
}

pub(super) fn moved(wr: &SendWr<'_>) -> Moved {
    let (remote, write) = match wr.op {
        SendOp::Read(remote) => (remote, false),
        SendOp::Write(remote) => (remote, true),
        other => panic!("not a data work request: {other:?}"),
    };
    assert_eq!(wr.wr_id, ID);
    Moved { remote, write, sges: wr.sges.to_vec(), signaled: wr.signal == Signal::Signaled }
}

/// What a chunk context moves, and its end.
pub(super) fn finish(cc: &mut ChunkCtx, cache: &mut CtxCache) -> Vec<Moved> {
    let wqes = cc.sqecount() as usize;
    let all: Vec<Moved> = cc.wrs(Completion::Own(ID)).map(|wr| moved(&wr)).collect();
    assert_eq!(all.len(), wqes);
    assert!(all.iter().rev().skip(1).all(|wr| !wr.signaled) && all.last().is_none_or(|wr| wr.signaled));
    assert_eq!(cc.is_posted(), !all.is_empty());
    cc.complete();
    let (free, ctxs) = (cache.free(), cc.len());
    cc.destroy(cache);
    assert_eq!((cc.len(), cc.sqecount(), cache.free()), (0, 0, free + ctxs), "once");
    cc.destroy(cache);
    assert_eq!(cache.free(), free + ctxs, "once");
    all
}

/// Each byte that is moved: the key and address of the peer's, and the address of ours.
pub(super) fn bytes(all: &[Moved]) -> Vec<(RemoteAddr, u64)> {
    let mut bytes = Vec::new();
    for wr in all {
        let locals = wr.sges.iter().flat_map(|sge| sge.addr..sge.addr + u64::from(sge.length));
        bytes.extend((0..).zip(locals).map(|(at, local)| (wr.remote.checked_add(at).unwrap(), local)));
    }
    bytes
}

/// Each byte of segments, in order.
pub(super) fn remote_bytes<'s>(segments: impl IntoIterator<Item = &'s RemoteSegment>) -> Vec<RemoteAddr> {
    let each = |segment: &RemoteSegment| {
        let at = segment.at;
        (0..u64::from(segment.length)).map(move |byte| at.checked_add(byte).unwrap())
    };
    segments.into_iter().flat_map(each).collect()
}
