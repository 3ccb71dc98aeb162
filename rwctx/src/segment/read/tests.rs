//! The vectors of segments and chunks (rw contexts, 3.3 to 3.5), and a naive model that puts messages together byte by byte.

use proptest::prelude::*;

use super::super::testing::{
    Moved, bvec, bytes, finish, page, pages, profiles, qp, qp_with_mrs, remote_bytes, segment,
};
use super::super::{ChunkCtx, CtxCache, PAGE, PageCursor, Posting, SegmentBuilder};
use super::*;
use crate::ctx::Completion;
use crate::device::null::NullDevice;
use crate::device::{DeviceCaps, Qpn};
use crate::qp::RwQp;
use crate::remote::RemoteAddr;
use crate::sq::SqCredits;
use crate::wr::{Signal, WrId};

/// What a test builds with.
struct Bench {
    qp: RwQp,
    cache: CtxCache,
    cc: ChunkCtx,
}

impl Bench {
    fn new(caps: DeviceCaps) -> Self {
        Self { qp: qp(&caps), cache: CtxCache::new(64, 100), cc: ChunkCtx::new() }
    }

    fn builder(&mut self) -> SegmentBuilder<'_> {
        SegmentBuilder { qp: &self.qp, cache: &mut self.cache, cc: &mut self.cc }
    }

    fn finish(&mut self) -> Vec<Moved> {
        finish(&mut self.cc, &mut self.cache)
    }
}

fn place(cursor: &PageCursor<'_>) -> (usize, u32, usize) {
    (cursor.curpage(), cursor.pageoff(), cursor.page_count())
}

fn errno<T>(result: Result<T, SegmentError>) -> Option<i32> {
    result.err().map(SegmentError::errno)
}

/// A cursor that has the first `bytes` bytes behind it.
fn behind(pages: &[super::super::Page], bytes: u64) -> PageCursor<'_> {
    let mut cursor = PageCursor::new(pages);
    cursor.copy_inline(0..bytes, |_, _| {}).unwrap();
    cursor
}

fn no_copy(_: Range<usize>, _: Bvec) {
    panic!("nothing inline is copied");
}

fn list(segments: &[(u32, RemoteSegment)]) -> ReadList {
    let mut list = ReadList::new();
    for &(position, segment) in segments {
        list.push(ReadSegment { position, segment }, 100).unwrap();
    }
    list
}

#[test]
fn segments_take_pages_as_the_table_says() {
    let pages = pages(8);
    for (before, lengths, bvecs, after) in [
        (0, &[8192][..], vec![vec![bvec(0, 0, 4096), bvec(1, 0, 4096)]], (2, 0, 2)),
        (
            0,
            &[1000, 5000],
            vec![vec![bvec(0, 0, 1000)], vec![bvec(0, 1000, 3096), bvec(1, 0, 1904)]],
            (1, 1904, 2),
        ),
        (0, &[4096, 1], vec![vec![bvec(0, 0, 4096)], vec![bvec(1, 0, 1)]], (1, 1, 2)),
        (100, &[8192], vec![vec![bvec(0, 100, 3996), bvec(1, 0, 4096), bvec(2, 0, 100)]], (2, 100, 3)),
    ] {
        let mut bench = Bench::new(profiles::a());
        let mut cursor = behind(&pages, before);
        for (number, &length) in (0..).zip(lengths) {
            let wqes = bench.builder().build_read_segment(&mut cursor, &segment(number, length));
            assert_eq!(wqes, Ok(1), "{lengths:?}");
        }
        assert_eq!(place(&cursor), after, "{lengths:?}");
        let moved = bench.finish();
        assert_eq!(moved.len(), lengths.len());
        for ((number, wr), sges) in (0..).zip(moved).zip(bvecs) {
            assert_eq!((wr.remote, wr.write), (segment(number, 0).at, false), "{lengths:?}");
            assert_eq!(wr.sges, sges, "{lengths:?}");
        }
    }
}

#[test]
fn inline_bytes_go_to_the_same_pages() {
    let pages = pages(2);
    let mut copied = Vec::new();
    let mut cursor = PageCursor::new(&pages);
    cursor.copy_inline(0..100, |from, to| copied.push((from, to))).unwrap();
    cursor.copy_inline(300..300 + 4000, |from, to| copied.push((from, to))).unwrap();
    let expected = [(0..100, bvec(0, 0, 100)), (300..4296, bvec(0, 100, 3996)), (4296..4300, bvec(1, 0, 4))];
    assert_eq!(copied, expected);
    assert_eq!((place(&cursor), cursor.readbytes()), ((1, 4, 2), 4100));
    assert_eq!(cursor.copy_inline(0..4093, no_copy), Err(SegmentError::PageOverrun));
    assert_eq!(cursor.copy_inline(0..1 << 32, no_copy), Err(SegmentError::LengthOverflow));
    assert_eq!(cursor.copy_inline(0..u64::from(u32::MAX), no_copy), Err(SegmentError::LengthOverflow));
    cursor.copy_inline(0..4092, |_, _| {}).unwrap();
    assert_eq!(place(&cursor), (2, 0, 2));
    assert_eq!(cursor.copy_inline(9..9, no_copy), Ok(()));
    assert_eq!(cursor.copy_inline(9..10, no_copy), Err(SegmentError::PageOverrun));
}

#[test]
fn segments_that_do_not_fit_are_refused_and_take_nothing() {
    let pages = pages(2);
    for (before, length, error) in [
        (0, 12288, Some(libc::EINVAL)),
        (0, 8193, Some(libc::EINVAL)),
        (0, 8192, None),
        (100, u32::MAX, Some(libc::EINVAL)),
        (0, u32::MAX, Some(libc::EINVAL)),
        (0, 0, Some(libc::EIO)),
        (10, 0, Some(libc::EIO)),
        // Linux looks too late for this one.
        (8192, 1, Some(libc::EINVAL)),
        (8192, 0, Some(libc::EIO)),
        (8191, 1, None),
        (8191, 2, Some(libc::EINVAL)),
    ] {
        let mut bench = Bench::new(profiles::a());
        let mut cursor = behind(&pages, before);
        let start = place(&cursor);
        let built = bench.builder().build_read_segment(&mut cursor, &segment(0, length));
        assert_eq!(errno(built), error, "{length} behind {before}");
        if error.is_some() {
            assert_eq!((place(&cursor), bench.cc.is_empty()), (start, true), "{length} behind {before}");
            assert_eq!(bench.cache.free(), 1, "the context is back");
        } else {
            assert_eq!(place(&cursor), (2, 0, 2));
        }
        bench.finish();
    }
    let mut bench = Bench::new(profiles::a());
    let wraps = RemoteSegment { at: RemoteAddr { addr: u64::MAX - 10, ..segment(0, 0).at }, length: 4096 };
    let built = bench.builder().build_read_segment(&mut PageCursor::new(&pages), &wraps);
    assert_eq!(built, Err(SegmentError::Context(RwError::RemoteWraps)));
}

#[test]
fn a_mebibyte_takes_as_many_entries_as_the_table_says() {
    let scattered = pages(256);
    let adjacent: Vec<_> = (0..256_u32)
        .map(|at| super::super::Page { addr: page(0).addr + u64::from(at * PAGE), ..page(0) })
        .collect();
    for (pages, wqes) in [(&scattered, 9), (&adjacent, 1)] {
        let mut bench = Bench::new(profiles::a());
        let mut cursor = PageCursor::new(pages);
        assert_eq!(bench.builder().build_read_segment(&mut cursor, &segment(0, 1 << 20)), Ok(wqes));
        assert_eq!((bench.cc.sqecount(), place(&cursor)), (wqes, (256, 0, 256)));
        bench.finish();
    }
}

#[test]
fn a_device_that_needs_registrations_gets_them_for_each_segment() {
    let pages = pages(256);
    let mut bench = Bench { qp: qp_with_mrs(&profiles::c(), 2), ..Bench::new(profiles::c()) };
    for _ in 0..3 {
        let mut cursor = PageCursor::new(&pages);
        // A registration and a READ, which invalidates it.
        assert_eq!(bench.builder().build_read_segment(&mut cursor, &segment(0, 9000)), Ok(2));
        assert_eq!(bench.builder().build_read_segment(&mut cursor, &segment(1, 100)), Ok(2));
        let before = place(&cursor);
        let third = bench.builder().build_read_segment(&mut cursor, &segment(2, 100));
        assert_eq!(third, Err(SegmentError::Context(RwError::PoolEmpty)));
        assert_eq!((errno(third), place(&cursor)), (Some(libc::EIO), before));
        assert_eq!(bench.cc.wrs(Completion::Own(WrId(3))).count(), 4);
        bench.cc.complete();
        bench.cc.destroy(&mut bench.cache);
        assert_eq!(bench.qp.rdma_mrs().used(), 0);
    }
    let mut fresh = Bench { qp: qp_with_mrs(&profiles::c(), 2), ..Bench::new(profiles::c()) };
    let whole = fresh.builder().build_read_segment(&mut PageCursor::new(&pages), &segment(0, 1 << 20));
    assert_eq!(whole, Ok(2), "one registration");
    fresh.cc.destroy(&mut fresh.cache);
}

#[test]
fn a_message_of_one_read_chunk_has_head_pages_and_tail() {
    let pages = pages(4);
    let mut bench = Bench::new(profiles::a());
    let mut cursor = PageCursor::new(&pages);
    let reads = list(&[(40, segment(0, 3000)), (40, segment(1, 3000))]);
    let message = bench.builder().build_read_list(&mut cursor, &reads, 100, no_copy);
    assert_eq!(message, Ok(Message::DataItem { head: 0..40, tail: 40..100 }));
    assert_eq!((place(&cursor), cursor.readbytes()), ((1, 1904, 2), 6000));
    let remotes: Vec<RemoteAddr> = bench.finish().iter().map(|wr| wr.remote).collect();
    assert_eq!(remotes, [segment(0, 0).at, segment(1, 0).at]);
    for (position, inline, fits) in [(100, 100, true), (104, 100, false), (4, 0, false)] {
        let reads = list(&[(position, segment(0, 10))]);
        let mut cursor = PageCursor::new(&pages);
        let message = bench.builder().build_read_list(&mut cursor, &reads, inline, no_copy);
        assert_eq!(errno(message), if fits { None } else { Some(libc::EINVAL) }, "{position} in {inline}");
        bench.finish();
    }
    let none = bench.builder().build_read_list(&mut cursor, &ReadList::new(), 100, no_copy);
    assert_eq!(none, Ok(Message::Inline));
}

#[test]
fn chunks_without_segments_are_refused() {
    let pages = pages(1);
    let mut bench = Bench::new(profiles::a());
    let built = bench.builder().build_read_chunk(&mut PageCursor::new(&pages), &[]);
    assert_eq!(built, Err(SegmentError::EmptyChunk));
}

#[test]
fn a_list_stops_at_its_first_error_and_keeps_what_was_built() {
    let pages = pages(2);
    let mut bench = Bench::new(profiles::a());
    let mut cursor = PageCursor::new(&pages);
    let chunk = [(4, segment(0, 100)), (4, segment(1, 0)), (4, segment(2, 100))];
    let built = bench.builder().build_read_list(&mut cursor, &list(&chunk), 10, no_copy);
    assert_eq!(errno(built), Some(libc::EIO));
    assert_eq!((bench.cc.len(), cursor.readbytes(), place(&cursor)), (1, 100, (0, 100, 1)));
    // Never posted, it is destroyed all the same.
    bench.cc.destroy(&mut bench.cache);
    assert_eq!((bench.cc.len(), bench.cache.free()), (0, 2));
}

#[test]
fn positions_inside_what_stands_before_them_or_outside_the_message_are_refused() {
    let pages = pages(8);
    for (segments, inline) in [
        // The second chunk's position lies inside the first.
        (&[(8, segment(0, 100)), (104, segment(1, 10))][..], 200),
        // 8 inline bytes, 100 of a chunk; the next position is that of inline byte 12, and there are 10.
        (&[(8, segment(0, 100)), (112, segment(1, 10))], 10),
        (&[(8, segment(0, 100)), (u32::MAX - 3, segment(1, 10))], 200),
        (&[(0, segment(2, 50)), (60, segment(0, 10))], 200),
        (&[(0, segment(2, 50)), (40, segment(0, 100)), (44, segment(1, 10))], 200),
    ] {
        let mut bench = Bench::new(profiles::a());
        let mut cursor = PageCursor::new(&pages);
        let built = bench.builder().build_read_list(&mut cursor, &list(segments), inline, |_, _| {});
        assert_eq!(built, Err(SegmentError::Position), "{segments:?}");
        assert_eq!(errno(built), Some(libc::EINVAL));
        bench.finish();
    }
}

#[test]
fn a_range_of_a_call_chunk_is_cut_out_of_its_segments() {
    let pages = pages(8);
    let chunk: Vec<ReadSegment> = [100, 0, 50, 70]
        .into_iter()
        .zip(0..)
        .map(|(length, number)| ReadSegment { position: 0, segment: segment(number, length) })
        .collect();
    let part = |number: u32, from: u64, length: u32| {
        let at = segment(number, 0).at.checked_add(from).unwrap();
        RemoteSegment { at, length }
    };
    for (range, parts) in [
        (0..100, vec![part(0, 0, 100)]),
        (0..101, vec![part(0, 0, 100), part(2, 0, 1)]),
        // Where Linux gives an empty READ, which fails.
        (100..150, vec![part(2, 0, 50)]),
        // Where Linux reads too little of the first and too much in all.
        (90..120, vec![part(0, 90, 10), part(2, 0, 20)]),
        (99..220, vec![part(0, 99, 1), part(2, 0, 50), part(3, 0, 70)]),
        (150..151, vec![part(3, 0, 1)]),
        (220..220, vec![]),
        (7..7, vec![]),
    ] {
        let mut bench = Bench::new(profiles::a());
        let mut cursor = PageCursor::new(&pages);
        let what = format!("{range:?}");
        bench.builder().build_read_chunk_range(&mut cursor, &chunk, range).unwrap();
        let moved = bytes(&bench.finish());
        let remotes: Vec<RemoteAddr> = moved.iter().map(|(remote, _)| *remote).collect();
        assert_eq!(remotes, remote_bytes(&parts), "{what}");
        assert_eq!(cursor.readbytes(), remotes.len() as u64, "{what}");
    }
    #[expect(clippy::reversed_empty_ranges, reason = "what must be refused")]
    for range in [0..221, 220..221, 500..501, 9..8, u64::MAX - 1..u64::MAX] {
        let mut bench = Bench::new(profiles::a());
        let what = format!("{range:?}");
        let built = bench.builder().build_read_chunk_range(&mut PageCursor::new(&pages), &chunk, range);
        assert_eq!(built, Err(SegmentError::Position), "{what}");
        bench.finish();
    }
}

#[test]
fn more_work_than_the_send_queue_has_entries_is_refused_and_closing_ends_the_wait() {
    let pages = pages(600);
    let mut bench = Bench::new(profiles::a());
    let mut cursor = PageCursor::new(&pages);
    for number in 0..2 {
        bench.builder().build_read_segment(&mut cursor, &segment(number, 1 << 20)).unwrap();
    }
    assert_eq!(bench.cc.sqecount(), 18);
    let errno_of =
        |credits: &mut SqCredits<char>| bench.cc.take_credits(credits, 'a').map_err(SegmentError::errno);
    assert_eq!(errno_of(&mut SqCredits::new(17, 1)), Err(libc::EINVAL));
    let mut credits = SqCredits::new(20, 1);
    assert_eq!(errno_of(&mut credits), Ok(true));
    assert_eq!(errno_of(&mut credits), Ok(false), "it waits");
    credits.give(18);
    assert_eq!(credits.next_ready(), Some('a'));
    assert_eq!(credits.close().count(), 0);
    assert_eq!(errno_of(&mut credits), Err(libc::ENOTCONN));
    bench.finish();
}

#[test]
fn what_a_failing_queue_took_is_waited_for_and_what_it_did_not_take_is_not() {
    let pages = pages(20);
    for (takes, posting) in [
        (9, Ok(Posting::All)),
        (6, Ok(Posting::All)),
        (5, Ok(Posting::Partly)),
        (3, Ok(Posting::Partly)),
        (1, Ok(Posting::Partly)),
        (0, Err(libc::ENOTCONN)),
    ] {
        let mut bench = Bench::new(profiles::s());
        let mut cursor = PageCursor::new(&pages);
        for number in 0..3 {
            // Four SGEs: two READs, of three each at most.
            bench.builder().build_read_segment(&mut cursor, &segment(number, 4 * PAGE)).unwrap();
        }
        let mut device = NullDevice::new(profiles::s());
        device.fail_after(takes);
        let posted = bench.cc.post(&mut device, Qpn(1), Completion::Own(WrId(3)));
        assert_eq!(posted.map_err(SegmentError::errno), posting, "{takes}");
        assert_eq!(bench.cc.is_posted(), takes > 0, "{takes}: the device may use its memory");
        assert_eq!((device.posted(), device.will_fail()), (takes.min(6), takes >= 6));
        bench.cc.complete();
        bench.cc.destroy(&mut bench.cache);
        assert_eq!(bench.cache.free(), 3);
    }
}

#[test]
fn contexts_are_used_again() {
    let pages = pages(20);
    let mut bench = Bench::new(profiles::a());
    for round in 0..3 {
        let mut cursor = PageCursor::new(&pages);
        for number in 0..4 {
            bench.builder().build_read_segment(&mut cursor, &segment(number, 9000)).unwrap();
        }
        assert_eq!((bench.cc.len(), bench.cache.free()), (4, 0), "round {round}");
        assert_eq!(bench.finish().len(), 4);
        assert_eq!(bench.cache.free(), 4);
    }
}

#[test]
fn only_the_last_work_request_is_signaled_and_with_a_chain_none() {
    let pages = pages(20);
    let mut bench = Bench::new(profiles::s());
    let mut cursor = PageCursor::new(&pages);
    for number in 0..3 {
        // Three pages of three SGEs each, and a fourth.
        bench.builder().build_read_segment(&mut cursor, &segment(number, 4 * PAGE)).unwrap();
    }
    let own: Vec<(WrId, Signal)> =
        bench.cc.wrs(Completion::Chained(WrId(3))).map(|wr| (wr.wr_id, wr.signal)).collect();
    assert_eq!(own, [(WrId(3), Signal::Unsignaled); 6]);
    bench.cc.complete();
    bench.cc.destroy(&mut bench.cache);
}

/// What a message is made of, in order: inline (or Call chunk) bytes, and chunks.
#[derive(Clone, Debug)]
struct Part {
    /// Bytes in front of the chunk, whole dwords.
    gap_dwords: u32,
    /// Its segments, all dwords together.
    lengths: Vec<u32>,
}

fn parts() -> impl Strategy<Value = Vec<Part>> {
    let lengths = prop::collection::vec(1u32..3000, 1..5).prop_map(|mut lengths| {
        let odd = lengths.iter().sum::<u32>() % 4;
        lengths.extend((odd != 0).then_some(4 - odd));
        lengths
    });
    let part = (0u32..1500, lengths).prop_map(|(gap_dwords, lengths)| Part { gap_dwords, lengths });
    prop::collection::vec(part, 1..6)
}

proptest! {
    /// The model: the message as a list of bytes, each of which comes from somewhere; byte `n` lands at byte `n` of the pages.
    #[test]
    fn every_byte_of_a_message_lands_where_its_position_says(
        parts in parts(),
        tail in 0u32..5000,
        call_cuts in prop::option::of(prop::collection::vec(1u32..4000, 0..6)),
        arrival in any::<u64>(),
    ) {
        let mut bench = Bench::new(profiles::r());
        let scattered = pages(64);
        // Positions are those of the message put together; two chunks at one place would be one chunk.
        let mut segments = Vec::new();
        let mut message: Vec<Result<u32, RemoteAddr>> = Vec::new();
        let mut source = 0;
        let mut inline_to = |message: &mut Vec<_>, bytes: u32| {
            message.extend((source..source + bytes).map(Ok));
            source += bytes;
        };
        for (index, part) in parts.iter().enumerate() {
            inline_to(&mut message, (part.gap_dwords + u32::from(index == 0)) * 4);
            let position = u32::try_from(message.len()).unwrap();
            for &length in &part.lengths {
                let segment = segment(u32::try_from(segments.len()).unwrap(), length);
                message.extend(remote_bytes([&segment]).into_iter().map(Err));
                segments.push((position, segment));
            }
        }
        inline_to(&mut message, tail);
        // Either the bytes between come inline, or a Call chunk has them.
        let mut call = Vec::new();
        if let Some(cuts) = &call_cuts {
            let mut left = source;
            for (number, &cut) in (1000..).zip(cuts) {
                let length = cut.min(left);
                call.extend((length > 0).then(|| segment(number, length)));
                left -= length;
            }
            call.extend((left > 0).then(|| segment(2000, left)));
        }
        let call_bytes = remote_bytes(&call);
        // Segments of different chunks may arrive in any order.
        let mut random = fastrand::Rng::with_seed(arrival);
        let mut queues: Vec<Vec<(u32, RemoteSegment)>> =
            segments.chunk_by(|a, b| a.0 == b.0).map(<[_]>::to_vec).collect();
        queues.push(call.iter().map(|&segment| (0, segment)).collect());
        let mut arrived = Vec::new();
        while let Some(at) = (!queues.is_empty()).then(|| random.usize(..queues.len())) {
            if queues[at].is_empty() { queues.swap_remove(at); } else { arrived.push(queues[at].remove(0)); }
        }
        let inline = if call.is_empty() { source } else { 60 };
        let mut copied = Vec::new();
        let mut cursor = PageCursor::new(&scattered);
        let kind = bench.builder()
            .build_read_list(&mut cursor, &list(&arrived), inline, |from, to| {
                copied.extend(from.zip(to.addr..to.addr + u64::from(to.length)));
            });
        let contiguous = |byte: usize| page(byte / 4096).addr + (byte % 4096) as u64;
        let mut wanted: Vec<(RemoteAddr, u64)> = Vec::new();
        let mut inlined: Vec<(usize, u64)> = Vec::new();
        let chunks = segments.chunk_by(|a, b| a.0 == b.0).count();
        if call.is_empty() && chunks == 1 {
            let position = segments[0].0;
            prop_assert_eq!(kind, Ok(Message::DataItem { head: 0..position, tail: position..source }));
            wanted.extend(message.iter().filter_map(|byte| byte.err()).enumerate()
                .map(|(at, remote)| (remote, contiguous(at))));
        } else {
            prop_assert_eq!(kind, Ok(Message::Pages));
            for (at, byte) in message.iter().enumerate() {
                match *byte {
                    Err(remote) => wanted.push((remote, contiguous(at))),
                    Ok(byte) if call.is_empty() => inlined.push((byte as usize, contiguous(at))),
                    Ok(byte) => wanted.push((call_bytes[byte as usize], contiguous(at))),
                }
            }
        }
        prop_assert_eq!(copied, inlined);
        let moved = bench.finish();
        prop_assert!(moved.iter().all(|wr| !wr.write && wr.sges.len() <= 32));
        prop_assert!(bytes(&moved) == wanted);
    }

    /// Whatever a peer says, the answer is an error or READs of at most the pages that there are.
    #[test]
    fn hostile_lists_reach_no_byte_beyond_the_pages(
        raw in prop::collection::vec((any::<u8>(), any::<u32>(), any::<u64>()), 0..20),
        inline in 0u32..5000,
    ) {
        let mut bench = Bench::new(profiles::r());
        let few = pages(5);
        let mut reads = ReadList::new();
        for (number, &(shape, value, addr)) in (0..).zip(&raw) {
            let length = match shape % 4 { 0 => value % 3, 1 => value % 5000, 2 => value, _ => 4 };
            let position = match shape / 4 % 4 { 0 => 0, 1 => value % 4096, 2 => value, _ => value % 64 * 4 };
            let mut segment = segment(number, length);
            if shape > 200 { segment.at.addr = addr; }
            let pushed = reads.push(ReadSegment { position, segment }, 15);
            prop_assert!(pushed.is_ok() || position % 4 != 0 || number >= 15);
        }
        let mut cursor = PageCursor::new(&few);
        let mut copied: u64 = 0;
        let built = bench.builder().build_read_list(&mut cursor, &reads, inline, |from, to| {
            copied += from.len() as u64;
            assert!(from.end <= inline as usize && from.len() == to.length as usize);
        });
        prop_assert!(cursor.page_count() <= 5 && cursor.readbytes() <= 5 * 4096);
        if let Err(error) = built {
            prop_assert!([libc::EINVAL, libc::EIO].contains(&error.errno()), "{:?}", error);
        }
        let moved = bytes(&bench.finish());
        prop_assert!(moved.len() as u64 + copied <= 5 * 4096);
        let mut locals: Vec<u64> = moved.iter().map(|(_, local)| *local).collect();
        locals.sort_unstable();
        prop_assert!(locals.windows(2).all(|pair| pair[0] < pair[1]), "no byte is written twice");
        prop_assert!(locals.iter().all(|&at| (0..5).any(|i| (page(i).addr..page(i).addr + 4096).contains(&at))));
    }
}
