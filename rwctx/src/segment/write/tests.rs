//! WRITEs to chunks (rw contexts, 3.7): the builder of a segment, payloads, the Reply chunk; a naive model byte by byte.

use proptest::prelude::*;

use super::super::testing::{Moved, bvec, bytes, finish, pages, profiles, qp, remote_bytes, segment};
use super::super::{ChunkCtx, CtxCache, Page};
use super::*;
use crate::mem::Lkey;
use crate::plan::{Bvec, RwError};
use crate::remote::RemoteAddr;

const HEAD: u64 = 0x7000_0000;
const TAIL: u64 = 0x8000_0000;

fn piece(addr: u64, length: u32) -> Bvec {
    Bvec { addr, length, lkey: Lkey(9) }
}

fn xdr(pages: &[Page], head: u32, (page_base, page_len): (u32, u32), tail: u32) -> XdrBuf<'_> {
    XdrBuf { head: piece(HEAD, head), pages, page_base, page_len, tail: piece(TAIL, tail) }
}

/// Each byte of a message.
fn addresses(reply: &XdrBuf<'_>) -> Vec<u64> {
    let paged = (reply.page_base..reply.page_base + reply.page_len)
        .map(|at| reply.pages[(at / 4096) as usize].addr + u64::from(at % 4096));
    let whole = |piece: Bvec| piece.addr..piece.addr + u64::from(piece.length);
    whole(reply.head).chain(paged).chain(whole(reply.tail)).collect()
}

/// Builds with a fresh chunk context and ends it.
fn build<T>(
    build: impl FnOnce(&mut SegmentBuilder<'_>) -> Result<T, SegmentError>,
) -> (Result<T, SegmentError>, Vec<Moved>) {
    let caps = profiles::a();
    let (mut cache, mut cc) = (CtxCache::new(64, 100), ChunkCtx::new());
    let built = build(&mut SegmentBuilder { qp: &qp(&caps), cache: &mut cache, cc: &mut cc });
    let moved = finish(&mut cc, &mut cache);
    (built, moved)
}

#[test]
fn pieces_are_cut_where_segments_end() {
    let pieces = [piece(0x1000, 300), piece(0x9000, 0), piece(0x5000, 700)];
    let segments = [segment(0, 200), segment(1, 500), segment(2, 9999)];
    let mut to = SegmentCursor::new(&segments);
    let (built, moved) = build(|builder| {
        builder.build_segments(&mut PieceCursor::new(&pieces), &mut to, Direction::ToHost)?;
        // What comes next begins behind it, in the same segment.
        builder.build_segments(&mut PieceCursor::new(&pieces[..1]), &mut to, Direction::ToHost)
    });
    assert_eq!(built, Ok(()));
    let at = |number, offset| segment(number, 0).at.checked_add(offset).unwrap();
    let wrs: Vec<(RemoteAddr, Vec<Bvec>)> = moved.into_iter().map(|wr| (wr.remote, wr.sges)).collect();
    assert_eq!(
        wrs,
        [
            (at(0, 0), vec![piece(0x1000, 200)]),
            (at(1, 0), vec![piece(0x10c8, 100), piece(0x5000, 400)]),
            (at(2, 0), vec![piece(0x5190, 300)]),
            (at(2, 300), vec![piece(0x1000, 300)]),
        ]
    );
}

#[test]
fn segments_that_end_too_early_are_too_small() {
    let pieces = [piece(0x1000, 300)];
    for lengths in [&[][..], &[299], &[100, 199], &[0, 300], &[100, 0, 300]] {
        let segments: Vec<RemoteSegment> =
            (0..).zip(lengths).map(|(number, &length)| segment(number, length)).collect();
        let mut to = SegmentCursor::new(&segments);
        let (built, _) =
            build(|b| b.build_segments(&mut PieceCursor::new(&pieces), &mut to, Direction::ToHost));
        assert_eq!(built.map_err(SegmentError::errno), Err(libc::E2BIG), "{lengths:?}");
    }
    let (nothing, moved) = build(|builder| {
        let mut to = SegmentCursor::new(&[]);
        builder.build_segments(&mut PieceCursor::new(&[]), &mut to, Direction::ToHost)
    });
    assert_eq!((nothing, moved.len()), (Ok(()), 0));
}

#[test]
fn segments_that_wrap_around_the_address_space_are_refused() {
    let pieces = [piece(0x1000, 200), piece(0x5000, 200)];
    let at = RemoteAddr { addr: u64::MAX - 250, ..segment(0, 0).at };
    let segments = [RemoteSegment { at, length: 400 }];
    let (built, moved) = build(|builder| {
        let mut to = SegmentCursor::new(&segments);
        builder.build_segments(&mut PieceCursor::new(&pieces[..1]), &mut to, Direction::ToHost)?;
        builder.build_segments(&mut PieceCursor::new(&pieces), &mut to, Direction::ToHost)
    });
    assert_eq!(built, Err(SegmentError::Context(RwError::RemoteWraps)));
    assert_eq!(moved.len(), 1, "what was built before");
}

#[test]
fn head_pages_and_tail_have_contexts_of_their_own() {
    let pages = pages(3);
    let reply = xdr(&pages, 100, (1000, 4000), 50);
    let segments = [segment(0, 10_000)];
    let payload = Payload { position: 40, length: 4100 };
    let chunk = WriteChunk::new(&segments, 1).unwrap().with_payload(payload);
    let (built, moved) = build(|builder| builder.build_write_chunk(&reply, &chunk));
    assert_eq!(built, Ok(()));
    let at = |offset| segment(0, 0).at.checked_add(offset).unwrap();
    let wrs: Vec<(RemoteAddr, Vec<Bvec>)> = moved.into_iter().map(|wr| (wr.remote, wr.sges)).collect();
    assert_eq!(
        wrs,
        [
            (at(0), vec![piece(HEAD + 40, 60)]),
            (at(60), vec![bvec(0, 1000, 3096), bvec(1, 0, 904)]),
            (at(4060), vec![piece(TAIL, 40)]),
        ]
    );
}

#[test]
fn payloads_outside_the_message_are_refused() {
    let pages = pages(2);
    let reply = xdr(&pages, 100, (0, 1000), 50);
    let segments = [segment(0, 10_000)];
    let too_few = xdr(&pages, 100, (4096, 4097), 50);
    for (reply, position, length, fits) in [
        (&reply, 0, 1150, true),
        (&reply, 1149, 1, true),
        (&reply, 0, 1151, false),
        (&reply, 1150, 1, false),
        (&reply, u32::MAX, u32::MAX, false),
        (&too_few, 0, 1, false),
    ] {
        let chunk = WriteChunk::new(&segments, 1).unwrap().with_payload(Payload { position, length });
        let (built, _) = build(|builder| builder.build_write_chunk(reply, &chunk));
        let expected = if fits { Ok(()) } else { Err(libc::EMSGSIZE) };
        assert_eq!(built.map_err(SegmentError::errno), expected, "{position} {length}");
    }
    assert!(matches!(WriteChunk::new(&segments, 0), Err(SegmentError::TooManySegments)));
}

#[test]
fn payloads_that_overlap_or_go_back_are_refused() {
    let reply = xdr(&[], 1000, (0, 0), 0);
    let segments = [segment(0, 10_000)];
    for (one, other) in [((100, 50), (149, 10)), ((100, 50), (20, 10)), ((100, 900), (1000, 1))] {
        let chunks = [one, other].map(|(position, length)| {
            WriteChunk::new(&segments, 1).unwrap().with_payload(Payload { position, length })
        });
        let (built, _) = build(|builder| builder.build_reply_chunk(&reply, &chunks, &segments));
        assert_eq!(built, Err(SegmentError::PayloadRange), "{one:?} {other:?}");
    }
}

/// Sizes of a message: head, page base, page bytes, tail.
fn sizes() -> impl Strategy<Value = (u32, u32, u32, u32)> {
    (0u32..600, 0u32..4096, 0u32..20_000, 0u32..600)
}

proptest! {
    #[test]
    fn every_byte_of_a_reply_is_written_once_to_its_chunk(
        (head, page_base, page_len, tail) in sizes(),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        lengths in prop::collection::vec(1u32..9000, 1..12),
        gives_up in prop::option::of(0usize..3),
    ) {
        let array = pages(8);
        let reply = xdr(&array, head, (page_base, page_len), tail);
        let total = u32::try_from(reply.length()).unwrap();
        // Pairs of cuts are payloads.
        let mut at: Vec<u32> =
            cuts.iter().map(|cut| u32::try_from(cut.index(total as usize + 1)).unwrap()).collect();
        at.sort_unstable();
        let segments: Vec<RemoteSegment> =
            (0..).zip(&lengths).map(|(number, &length)| segment(number, length)).collect();
        let mut payloads: Vec<Payload> = at
            .chunks_exact(2)
            .map(|pair| Payload { position: pair[0], length: pair[1] - pair[0] })
            .filter(|payload| payload.length > 0)
            .collect();
        if let Some(chunk) = gives_up.and_then(|index| payloads.get_mut(index)) {
            chunk.length = 0;
        }
        let chunks: Vec<WriteChunk<'_>> = payloads
            .iter()
            .map(|&payload| WriteChunk::new(&segments, 20).unwrap().with_payload(payload))
            .collect();
        let room: u64 = lengths.iter().map(|&length| u64::from(length)).sum();
        let all = addresses(&reply);
        let remotes = remote_bytes(&segments);
        let pairs = |locals: Vec<u64>| remotes.iter().copied().zip(locals).collect::<Vec<_>>();

        let carried: Vec<&WriteChunk<'_>> = carried(&chunks).collect();
        for chunk in &carried {
            let (built, moved) = build(|builder| builder.build_write_chunk(&reply, chunk));
            let range = chunk.payload.position as usize..(chunk.payload.position + chunk.payload.length) as usize;
            if range.len() as u64 > room {
                prop_assert_eq!(built, Err(SegmentError::ChunkTooSmall));
            } else {
                prop_assert_eq!(built, Ok(()));
                prop_assert!(bytes(&moved) == pairs(all[range].to_vec()));
            }
        }
        let (built, moved) = build(|builder| builder.build_reply_chunk(&reply, &chunks, &segments));
        let inside = |byte: u32| {
            carried.iter().any(|c| (c.payload.position..c.payload.position + c.payload.length).contains(&byte))
        };
        let rest: Vec<u64> =
            (0..total).filter(|&byte| !inside(byte)).map(|byte| all[byte as usize]).collect();
        if rest.len() as u64 > room {
            prop_assert_eq!(built, Err(SegmentError::ChunkTooSmall));
        } else {
            prop_assert_eq!(built, Ok(rest.len() as u64));
            prop_assert!(moved.iter().all(|wr| wr.write && wr.sges.len() <= 30));
            prop_assert!(bytes(&moved) == pairs(rest));
        }
    }
}
