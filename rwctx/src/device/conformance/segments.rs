//! Messages whose bytes lie in a peer's segments, moved by contexts that the segment builder makes. (rw-contexts 3.3 to 3.5)
//!
//! Our side serves: it READs requests into pages and WRITEs replies. The peer has its memory in pieces all over its region.

use super::bench::Bench;
use super::{MEMORY, Peered, Rig, Side};
use crate::ctx::Completion;
use crate::device::Device;
use crate::plan::{Bvec, init_qp};
use crate::remote::RemoteSegment;
use crate::segment::{
    ChunkCtx, CtxCache, Message, PAGE, Page, PageCursor, Payload, Posting, ReadList, ReadSegment,
    SegmentBuilder, SendChain, WriteChunk, XdrBuf,
};
use crate::wc::WcStatus;
use crate::wr::{Fence, RecvWr, SendOp, SendWr, Signal, WrId};

const PAGES: usize = 64;
/// Where the peer's memory is cut into pieces, in the middle of its region.
const PIECES: usize = 256 << 10;
/// Where a reply's head and tail lie, behind our pages.
const HEAD: usize = 512 << 10;
const TAIL: usize = 520 << 10;
/// Contexts at once.
const CTXS: u32 = 128;
/// Messages of a case.
const MESSAGES: u64 = 10;

/// A connection, and our side of it.
struct Rpc<R: Rig> {
    bench: Bench<R>,
    pages: Vec<Page>,
    cache: CtxCache,
    random: fastrand::Rng,
    /// Where the peer's next piece of memory is.
    next: usize,
}

impl<R: Rig> Rpc<R> {
    fn new(rig: R) -> Self {
        let bench = Bench::with_entries(rig, CTXS, |caps, integrity| init_qp(caps, 64, CTXS, integrity));
        let mut rpc = Self {
            bench,
            pages: Vec::new(),
            cache: CtxCache::new(16, 100),
            random: fastrand::Rng::new(),
            next: PIECES,
        };
        rpc.begin(0);
        rpc
    }

    /// Goes on as a seed decides.
    fn begin(&mut self, seed: u64) {
        self.random = fastrand::Rng::with_seed(seed);
        // Pages in any order, so that few of them touch.
        let mut order: Vec<usize> = (0..PAGES).collect();
        self.random.shuffle(&mut order);
        let page = |index| {
            let Bvec { addr, lkey, .. } = self.bench.sge(index * PAGE as usize, PAGE as usize);
            Page { addr, lkey }
        };
        self.pages = order.into_iter().map(page).collect();
        self.next = PIECES;
        self.bench.rig.put(Side::Peer, PIECES, &[0; MEMORY - PIECES]);
    }

    /// The bytes of our memory in a piece.
    fn local(&self, piece: Bvec) -> Vec<u8> {
        let offset = usize::try_from(piece.addr - self.bench.rig.memory(Side::Ours).addr).unwrap();
        self.bench.rig.bytes(Side::Ours, offset, piece.length as usize)
    }

    fn write_local(&mut self, piece: Bvec, bytes: &[u8]) {
        let offset = usize::try_from(piece.addr - self.bench.rig.memory(Side::Ours).addr).unwrap();
        self.bench.rig.put(Side::Ours, offset, bytes);
    }

    fn random_bytes(&mut self, length: usize) -> Vec<u8> {
        std::iter::repeat_with(|| self.random.u8(..)).take(length).collect()
    }

    /// Memory of the peer in one piece, somewhere.
    fn segment(&mut self, length: usize) -> RemoteSegment {
        let offset = self.next + self.random.usize(1..200);
        self.next = offset + length;
        RemoteSegment { at: self.bench.remote(offset), length: u32::try_from(length).unwrap() }
    }

    /// Memory of the peer for `length` bytes in some pieces.
    fn segments(&mut self, length: usize) -> Vec<RemoteSegment> {
        let mut left = length;
        let mut segments = Vec::new();
        while left > 0 {
            let part = self.random.usize(left.min(600)..=left.min(5000));
            segments.push(self.segment(part));
            left -= part;
        }
        segments
    }

    /// The peer puts bytes into its segments.
    fn fill(&mut self, segments: &[RemoteSegment], mut bytes: &[u8]) {
        for segment in segments {
            let (part, rest) = bytes.split_at(segment.length as usize);
            let offset = usize::try_from(segment.at.addr - self.bench.rig.memory(Side::Peer).addr).unwrap();
            self.bench.rig.put(Side::Peer, offset, part);
            bytes = rest;
        }
        assert!(bytes.is_empty());
    }

    /// What the peer finds in its segments.
    fn contents(&self, segments: &[RemoteSegment]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for segment in segments {
            let offset = usize::try_from(segment.at.addr - self.bench.rig.memory(Side::Peer).addr).unwrap();
            bytes.extend(self.bench.rig.bytes(Side::Peer, offset, segment.length as usize));
        }
        bytes
    }

    /// What the pages hold.
    fn paged(&self, length: usize) -> Vec<u8> {
        let whole = |page: &Page| self.local(Bvec { addr: page.addr, length: PAGE, lkey: page.lkey });
        let mut bytes: Vec<u8> = self.pages.iter().flat_map(whole).collect();
        bytes.truncate(length);
        bytes
    }

    /// READs a message of which `inline` came with the request. Returns how it stands and what the pages hold.
    fn read(&mut self, list: &ReadList, inline: &[u8]) -> (Message, Vec<u8>) {
        let pages = std::mem::take(&mut self.pages);
        let mut cursor = PageCursor::new(&pages);
        let mut cc = ChunkCtx::new();
        let mut copies = Vec::new();
        let message = SegmentBuilder { qp: &self.bench.qp, cache: &mut self.cache, cc: &mut cc }
            .build_read_list(&mut cursor, list, u32::try_from(inline.len()).unwrap(), |from, to| {
                copies.push((from, to));
            })
            .unwrap();
        let readbytes = usize::try_from(cursor.readbytes()).unwrap();
        self.pages = pages;
        for (from, to) in copies {
            self.write_local(to, &inline[from]);
        }
        assert!(cc.sqecount() <= self.bench.cap.max_send_wr);
        let own = Completion::Own(WrId(5));
        assert_eq!(cc.post(self.bench.rig.device(), self.bench.qpn, own), Ok(Posting::All));
        assert_eq!(self.outcome(), [(5, WcStatus::Success)], "one completion for all");
        cc.complete();
        cc.destroy(&mut self.cache);
        (message, self.paged(readbytes))
    }

    fn outcome(&mut self) -> Vec<(u64, WcStatus)> {
        self.bench.rig.completions(1).iter().map(|wc| (wc.wr_id.0, wc.status)).collect()
    }

    fn end(self) {
        self.bench.end();
    }
}

/// A message with `chunks` Read chunks, and its parts: what comes inline (or by a Call chunk), and the list.
fn message<R: Rig>(rpc: &mut Rpc<R>, chunks: usize) -> (Vec<u8>, Vec<u8>, ReadList) {
    let (mut whole, mut between, mut list) = (Vec::new(), Vec::new(), ReadList::new());
    for _ in 0..chunks {
        let gap = rpc.random.usize(1..200) * 4;
        let gap = rpc.random_bytes(gap);
        between.extend_from_slice(&gap);
        whole.extend_from_slice(&gap);
        let position = u32::try_from(whole.len()).unwrap();
        let length = rpc.random.usize(1..2500) * 4;
        let data = rpc.random_bytes(length);
        let segments = rpc.segments(length);
        rpc.fill(&segments, &data);
        whole.extend_from_slice(&data);
        for segment in segments {
            list.push(ReadSegment { position, segment }, PAGES).unwrap();
        }
    }
    let length = rpc.random.usize(0..500);
    let tail = rpc.random_bytes(length);
    between.extend_from_slice(&tail);
    whole.extend_from_slice(&tail);
    (whole, between, list)
}

pub(crate) fn read_chunks_and_inline_bytes_become_the_message_that_was_sent<R: Rig>(make: impl Fn() -> R) {
    let mut rpc = Rpc::new(make());
    for seed in 0..MESSAGES * R::ROUNDS {
        rpc.begin(seed);
        for chunks in [1, 2, 3] {
            rpc.next = PIECES;
            let (whole, inline, list) = message(&mut rpc, chunks);
            let (kind, pages) = rpc.read(&list, &inline);
            if chunks == 1 {
                let Message::DataItem { head, tail } = kind else { panic!("{kind:?}") };
                let [head, tail] =
                    [head, tail].map(|range| &inline[range.start as usize..range.end as usize]);
                assert!([head, &pages, tail].concat() == whole, "seed {seed}");
            } else {
                assert_eq!(kind, Message::Pages);
                assert!(pages == whole, "seed {seed}, {chunks} chunks");
            }
        }
    }
    rpc.end();
}

pub(crate) fn a_call_chunk_with_read_chunks_inside_becomes_the_message_that_was_sent<R: Rig>(
    make: impl Fn() -> R,
) {
    let mut rpc = Rpc::new(make());
    for seed in 100..100 + MESSAGES * R::ROUNDS {
        rpc.begin(seed);
        for chunks in [0, 1, 3] {
            rpc.next = PIECES;
            let (mut whole, mut call, mut list) = message(&mut rpc, chunks);
            if whole.is_empty() {
                (whole, call) = (vec![7; 300], vec![7; 300]);
            }
            let segments = rpc.segments(call.len());
            rpc.fill(&segments, &call);
            for segment in segments {
                list.push(ReadSegment { position: 0, segment }, PAGES).unwrap();
            }
            let (kind, pages) = rpc.read(&list, b"the header came inline");
            assert_eq!(kind, Message::Pages);
            assert!(pages == whole, "seed {seed}, {chunks} chunks");
        }
    }
    rpc.end();
}

pub(crate) fn payloads_go_to_write_chunks_the_rest_to_the_reply_chunk_and_all_before_the_send<R: Peered>(
    make: impl Fn() -> R,
) {
    let mut rpc = Rpc::new(make());
    for seed in 200..200 + MESSAGES * R::ROUNDS {
        rpc.begin(seed);
        let head = rpc.random.usize(8..300);
        let (page_base, page_len) = (rpc.random.u32(0..PAGE), rpc.random.u32(100..12_000));
        let tail = rpc.random.usize(0..300);
        let pages = rpc.pages.clone();
        let reply = XdrBuf {
            head: rpc.bench.sge(HEAD, head),
            pages: &pages,
            page_base,
            page_len,
            tail: rpc.bench.sge(TAIL, tail),
        };
        let length = usize::try_from(reply.length()).unwrap();
        for page in &pages {
            let bytes = rpc.random_bytes(PAGE as usize);
            rpc.write_local(Bvec { addr: page.addr, length: PAGE, lkey: page.lkey }, &bytes);
        }
        for piece in [reply.head, reply.tail] {
            let bytes = rpc.random_bytes(piece.length as usize);
            rpc.write_local(piece, &bytes);
        }
        let start = page_base as usize;
        let paged = rpc.paged(start + page_len as usize).split_off(start);
        let whole = [rpc.local(reply.head), paged, rpc.local(reply.tail)].concat();

        // Two payloads, and segments with more room than they need.
        let mut cuts = rpc.random.choose_multiple(0..=length, 4);
        cuts.sort_unstable();
        let ranges = [cuts[0]..cuts[1], cuts[2]..cuts[3]];
        let rest = length - ranges.iter().map(ExactSizeIterator::len).sum::<usize>();
        let memory = [ranges[0].len() + 10, ranges[1].len() + 10, rest + 10].map(|room| rpc.segments(room));
        let chunk = |index: usize| {
            let range = &ranges[index];
            let payload = Payload {
                position: u32::try_from(range.start).unwrap(),
                length: u32::try_from(range.len()).unwrap(),
            };
            WriteChunk::new(&memory[index], PAGES).unwrap().with_payload(payload)
        };
        let chunks = [chunk(0), chunk(1)];
        let mut chain = SendChain::new();
        let depth = rpc.bench.cap.max_send_wr;
        chain.build_write_list(&rpc.bench.qp, &mut rpc.cache, &reply, &chunks, depth).unwrap();
        let written = chain
            .build_reply_chunk(&rpc.bench.qp, &mut rpc.cache, &reply, &chunks, &memory[2], depth)
            .unwrap();
        assert_eq!(written, rest as u64);

        let header = rpc.bench.sge(HEAD + 1000, 28);
        let qpn = rpc.bench.qpn;
        let (theirs, room) = (rpc.bench.rig.peer_qpn(qpn), rpc.bench.rig.memory(Side::Peer));
        let room = Bvec { addr: room.addr, length: 100, lkey: room.lkey };
        rpc.bench.rig.peer().post_recv(theirs, &RecvWr { wr_id: WrId(1), sges: &[room] }).unwrap();
        let send = SendWr {
            wr_id: WrId(9),
            op: SendOp::Send,
            sges: &[header],
            signal: Signal::Signaled,
            fence: Fence::None,
        };
        assert_eq!(chain.post(rpc.bench.rig.device(), qpn, &send), Ok(Posting::All));
        // The peer has the reply by when the Send arrives, which comes last.
        assert_eq!(rpc.bench.rig.peer_completions(1).len(), 1, "seed {seed}");
        for (range, segments) in ranges.iter().zip(&memory) {
            let found = rpc.contents(segments);
            assert!(found[..range.len()] == whole[range.clone()], "seed {seed}");
            assert!(found[range.len()..].iter().all(|&byte| byte == 0), "seed {seed}: nothing behind it");
        }
        let others = [&whole[..cuts[0]], &whole[cuts[1]..cuts[2]], &whole[cuts[3]..]].concat();
        assert!(rpc.contents(&memory[2])[..rest] == others, "seed {seed}");
        assert_eq!(rpc.outcome(), [(9, WcStatus::Success)], "one completion for all");
        chain.complete();
        chain.destroy(&mut rpc.cache);
    }
    rpc.end();
}

pub(crate) fn a_wrong_key_in_the_middle_of_a_list_fails_all_of_it<R: Peered>(make: impl Fn() -> R) {
    let mut rpc = Rpc::new(make());
    let mut segments: Vec<RemoteSegment> = (0..5).map(|_| rpc.segment(3000)).collect();
    segments[2].at.rkey.0 ^= 1;
    let pages = rpc.pages.clone();
    let (mut cc, mut cursor) = (ChunkCtx::new(), PageCursor::new(&pages));
    let chunk: Vec<ReadSegment> =
        segments.iter().map(|&segment| ReadSegment { position: 4, segment }).collect();
    SegmentBuilder { qp: &rpc.bench.qp, cache: &mut rpc.cache, cc: &mut cc }
        .build_read_chunk(&mut cursor, &chunk)
        .unwrap();
    let own = Completion::Own(WrId(5));
    assert_eq!(cc.post(rpc.bench.rig.device(), rpc.bench.qpn, own), Ok(Posting::All));
    let outcome = rpc.outcome();
    assert_eq!(outcome.first(), Some(&(5, WcStatus::RemAccessErr)), "{outcome:?}");
    assert!(outcome.iter().all(|(id, status)| *id == 5 && *status != WcStatus::Success));
    cc.complete();
    cc.destroy(&mut rpc.cache);
    assert_eq!(rpc.cache.free(), 5);
    rpc.end();
}
