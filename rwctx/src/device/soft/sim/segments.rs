//! Messages whose bytes lie in a peer's segments, moved over a simulated network by contexts that the segment builder makes.
//!
//! Side 0 serves: it READs requests into pages and WRITEs replies. Side 1 has its memory in pieces all over its region.

use super::SideId;
use super::pair::Pair;
use crate::ctx::Completion;
use crate::device::QpCap;
use crate::device::soft::endpoint::CAPS;
use crate::plan::{Bvec, Integrity};
use crate::qp::RwQp;
use crate::remote::RemoteSegment;
use crate::segment::{
    ChunkCtx, CtxCache, Message, PAGE, Page, PageCursor, Payload, ReadList, ReadSegment, SegmentBuilder,
    SendChain, WriteChunk, XdrBuf,
};
use crate::wc::WcStatus;
use crate::wr::{Fence, SendOp, SendWr, Signal, WrId};

const SERVER: SideId = 0;
const CLIENT: SideId = 1;
const PAGES: usize = 64;
/// Where the client's memory is cut into pieces, in the middle of its region.
const PIECES: usize = 256 << 10;
/// Where a reply's head and tail lie, behind the server's pages.
const HEAD: usize = 512 << 10;
const TAIL: usize = 520 << 10;
const DEPTH: u32 = 64;

/// A connection, and the server's side of it.
struct Rpc {
    pair: Pair,
    pages: Vec<Page>,
    cache: CtxCache,
    random: fastrand::Rng,
    /// Where the client's next piece of memory is.
    next: usize,
}

/// The limits of the pair's queue pairs.
fn qp() -> RwQp {
    let cap = QpCap {
        max_send_wr: DEPTH,
        max_recv_wr: 16,
        max_send_sge: 4,
        max_recv_sge: 4,
        integrity: Integrity::Off,
    };
    RwQp::new(&CAPS, &cap)
}

impl Rpc {
    fn new(seed: u64) -> Self {
        let pair = Pair::new();
        let mut random = fastrand::Rng::with_seed(seed);
        // Pages in any order, so that few of them touch.
        let mut order: Vec<usize> = (0..PAGES).collect();
        random.shuffle(&mut order);
        let page = |index| pair.sge(SERVER, index * PAGE as usize, PAGE as usize);
        let pages = order.into_iter().map(|index| {
            let Bvec { addr, lkey, .. } = page(index);
            Page { addr, lkey }
        });
        Self { pages: pages.collect(), pair, cache: CtxCache::new(16, 100), random, next: PIECES }
    }

    /// The bytes of the server's memory in a piece.
    fn local(&self, piece: Bvec) -> Vec<u8> {
        let offset = usize::try_from(piece.addr - self.pair.mrs[SERVER].addr).unwrap();
        self.pair.bytes(SERVER, offset, piece.length as usize)
    }

    fn write_local(&self, piece: Bvec, bytes: &[u8]) {
        let offset = usize::try_from(piece.addr - self.pair.mrs[SERVER].addr).unwrap();
        self.pair.regions[SERVER].write(offset, bytes);
    }

    fn random_bytes(&mut self, length: usize) -> Vec<u8> {
        std::iter::repeat_with(|| self.random.u8(..)).take(length).collect()
    }

    /// Memory of the client in one piece, somewhere.
    fn segment(&mut self, length: usize) -> RemoteSegment {
        let offset = self.next + self.random.usize(1..200);
        self.next = offset + length;
        RemoteSegment { at: self.pair.remote(CLIENT, offset), length: u32::try_from(length).unwrap() }
    }

    /// Memory of the client for `length` bytes in some pieces.
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

    /// The client puts bytes into its segments.
    fn fill(&self, segments: &[RemoteSegment], mut bytes: &[u8]) {
        for segment in segments {
            let (part, rest) = bytes.split_at(segment.length as usize);
            let offset = usize::try_from(segment.at.addr - self.pair.mrs[CLIENT].addr).unwrap();
            self.pair.regions[CLIENT].write(offset, part);
            bytes = rest;
        }
        assert!(bytes.is_empty());
    }

    /// What the client finds in its segments.
    fn contents(&self, segments: &[RemoteSegment]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for segment in segments {
            let offset = usize::try_from(segment.at.addr - self.pair.mrs[CLIENT].addr).unwrap();
            bytes.extend(self.pair.bytes(CLIENT, offset, segment.length as usize));
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
        let message = SegmentBuilder { qp: &qp(), cache: &mut self.cache, cc: &mut cc }
            .build_read_list(&mut cursor, list, u32::try_from(inline.len()).unwrap(), |from, to| {
                copies.push((from, to));
            })
            .unwrap();
        let readbytes = usize::try_from(cursor.readbytes()).unwrap();
        self.pages = pages;
        for (from, to) in copies {
            self.write_local(to, &inline[from]);
        }
        assert!(cc.sqecount() <= DEPTH);
        for wr in cc.wrs(Completion::Own(WrId(5))) {
            self.pair.world.endpoints[SERVER].post_send(self.pair.qpns[SERVER], &wr).unwrap();
        }
        assert_eq!(self.pair.outcome(SERVER), [(5, WcStatus::Success)], "one completion for all");
        cc.complete();
        cc.destroy(&mut self.cache);
        (message, self.paged(readbytes))
    }
}

/// A message with `chunks` Read chunks, and its parts: what comes inline (or by a Call chunk), and the list.
fn message(rpc: &mut Rpc, chunks: usize) -> (Vec<u8>, Vec<u8>, ReadList) {
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

#[test]
fn read_chunks_and_inline_bytes_become_the_message_that_was_sent() {
    for seed in 0..30 {
        let mut rpc = Rpc::new(seed);
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
}

#[test]
fn a_call_chunk_with_read_chunks_inside_becomes_the_message_that_was_sent() {
    for seed in 100..130 {
        let mut rpc = Rpc::new(seed);
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
}

#[test]
fn payloads_go_to_write_chunks_the_rest_to_the_reply_chunk_and_all_before_the_send() {
    for seed in 200..230 {
        let mut rpc = Rpc::new(seed);
        let head = rpc.random.usize(8..300);
        let (page_base, page_len) = (rpc.random.u32(0..PAGE), rpc.random.u32(100..12_000));
        let tail = rpc.random.usize(0..300);
        let pages = rpc.pages.clone();
        let reply = XdrBuf {
            head: rpc.pair.sge(SERVER, HEAD, head),
            pages: &pages,
            page_base,
            page_len,
            tail: rpc.pair.sge(SERVER, TAIL, tail),
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
        chain.build_write_list(&qp(), &mut rpc.cache, &reply, &chunks, DEPTH).unwrap();
        let written =
            chain.build_reply_chunk(&qp(), &mut rpc.cache, &reply, &chunks, &memory[2], DEPTH).unwrap();
        assert_eq!(written, rest as u64);

        let header = rpc.pair.sge(SERVER, HEAD + 1000, 28);
        rpc.pair.receive(CLIENT, 1, &[rpc.pair.sge(CLIENT, 0, 100)]);
        let qpn = rpc.pair.qpns[SERVER];
        for wr in chain.wrs(WrId(9)) {
            rpc.pair.world.endpoints[SERVER].post_send(qpn, &wr).unwrap();
        }
        let send = SendWr {
            wr_id: WrId(9),
            op: SendOp::Send,
            sges: &[header],
            signal: Signal::Signaled,
            fence: Fence::None,
        };
        rpc.pair.world.endpoints[SERVER].post_send(qpn, &send).unwrap();
        // The client has the reply by when the Send arrives, which comes last.
        while rpc.pair.completions(CLIENT).is_empty() {
            let next = rpc.pair.world.next_event();
            rpc.pair.world.transmit();
            let Some(at) = rpc.pair.world.next_event().or(next) else { panic!("no Send, seed {seed}") };
            rpc.pair.world.advance_to(at);
        }
        for (range, segments) in ranges.iter().zip(&memory) {
            let found = rpc.contents(segments);
            assert!(found[..range.len()] == whole[range.clone()], "seed {seed}");
            assert!(found[range.len()..].iter().all(|&byte| byte == 0), "seed {seed}: nothing behind it");
        }
        let others = [&whole[..cuts[0]], &whole[cuts[1]..cuts[2]], &whole[cuts[3]..]].concat();
        assert!(rpc.contents(&memory[2])[..rest] == others, "seed {seed}");
        assert_eq!(rpc.pair.outcome(SERVER), [(9, WcStatus::Success)], "one completion for all");
        chain.complete();
        chain.destroy(&mut rpc.cache);
    }
}

#[test]
fn a_wrong_key_in_the_middle_of_a_list_fails_all_of_it() {
    let mut rpc = Rpc::new(7);
    let mut segments: Vec<RemoteSegment> = (0..5).map(|_| rpc.segment(3000)).collect();
    segments[2].at.rkey.0 ^= 1;
    let pages = rpc.pages.clone();
    let (mut cc, mut cursor) = (ChunkCtx::new(), PageCursor::new(&pages));
    let chunk: Vec<ReadSegment> =
        segments.iter().map(|&segment| ReadSegment { position: 4, segment }).collect();
    SegmentBuilder { qp: &qp(), cache: &mut rpc.cache, cc: &mut cc }
        .build_read_chunk(&mut cursor, &chunk)
        .unwrap();
    for wr in cc.wrs(Completion::Own(WrId(5))) {
        rpc.pair.world.endpoints[SERVER].post_send(rpc.pair.qpns[SERVER], &wr).unwrap();
    }
    let outcome = rpc.pair.outcome(SERVER);
    assert_eq!(outcome.first(), Some(&(5, WcStatus::RemAccessErr)), "{outcome:?}");
    assert!(outcome.iter().all(|(id, status)| *id == 5 && *status != WcStatus::Success));
    cc.complete();
    cc.destroy(&mut rpc.cache);
    assert_eq!(rpc.cache.free(), 5);
}
