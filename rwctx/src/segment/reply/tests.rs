//! What surrounds a reply's WRITEs (rw contexts, 3.7): the order of the chain, its entries, the Send's body, echoed lengths.

use super::super::testing::{ID, moved, profiles, qp, segment};
use super::super::{EndpointConfig, EndpointSizes, Payload};
use super::*;
use crate::device::null::NullDevice;
use crate::mem::Lkey;
use crate::plan::Bvec;
use crate::wr::{Fence, SendOp, Signal};

fn head(length: u32) -> XdrBuf<'static> {
    let piece = |addr, length| Bvec { addr, length, lkey: Lkey(1) };
    XdrBuf { head: piece(0x1000, length), pages: &[], page_base: 0, page_len: 0, tail: piece(0, 0) }
}

fn chunk(segments: &[RemoteSegment], position: u32, length: u32) -> WriteChunk<'_> {
    WriteChunk::new(segments, 9).unwrap().with_payload(Payload { position, length })
}

#[test]
fn what_was_built_last_is_posted_first_and_a_chunk_in_its_order() {
    let caps = profiles::a();
    let (mut cache, mut chain) = (CtxCache::new(8, 100), SendChain::new());
    let numbered: Vec<RemoteSegment> = (0..8).map(|number| segment(number, 10)).collect();
    let reply = head(60);
    let chunks = [chunk(&numbered[..2], 4, 20), chunk(&numbered[2..4], 30, 20)];
    for round in 0..2 {
        assert_eq!(chain.sqecount(), 1, "the Send");
        chain.build_write_list(&qp(&caps), &mut cache, &reply, &chunks, 8).unwrap();
        assert_eq!(chain.sqecount(), 5);
        let written = chain.build_reply_chunk(&qp(&caps), &mut cache, &reply, &chunks, &numbered[4..], 8);
        // 4 bytes, 6, 10: two segments, in three pieces.
        assert_eq!((written, chain.sqecount()), (Ok(20), 8), "round {round}");
        let order: Vec<u64> = chain
            .wrs(ID)
            .map(|wr| {
                let wr = moved(&wr);
                assert!(wr.write && !wr.signaled);
                (wr.remote.addr >> 40) - 1
            })
            .collect();
        assert_eq!(order, [4, 4, 5, 2, 3, 0, 1]);
        chain.complete();
        chain.destroy(&mut cache);
        assert_eq!(cache.free(), 7, "nothing is lost, and nothing new is made");
    }
}

#[test]
fn a_chain_that_the_send_queue_cannot_hold_is_refused() {
    let caps = profiles::a();
    let (mut cache, mut chain) = (CtxCache::new(8, 100), SendChain::new());
    let numbered: Vec<RemoteSegment> = (0..8).map(|number| segment(number, 10)).collect();
    let reply = head(60);
    let chunks = [chunk(&numbered[..3], 0, 30)];
    let built = chain.build_write_list(&qp(&caps), &mut cache, &reply, &chunks, 3);
    assert_eq!(built.map_err(SegmentError::errno), Err(libc::EINVAL));
    chain.destroy(&mut cache);
    // For the Reply chunk, too, where Linux does not look.
    chain.build_write_list(&qp(&caps), &mut cache, &reply, &chunks, 6).unwrap();
    let built = chain.build_reply_chunk(&qp(&caps), &mut cache, &reply, &chunks, &numbered, 6);
    assert_eq!(built, Err(SegmentError::TooManyEntries));
    // Abandoned work is released without having been posted.
    chain.destroy(&mut cache);
    assert_eq!((cache.free(), chain.sqecount()), (6, 1));
}

#[test]
fn the_send_goes_last_and_only_when_all_before_it_went() {
    let caps = profiles::a();
    let numbered: Vec<RemoteSegment> = (0..8).map(|number| segment(number, 10)).collect();
    let reply = head(60);
    let chunks = [chunk(&numbered[..2], 0, 20)];
    let send =
        SendWr { wr_id: ID, op: SendOp::Send, sges: &[], signal: Signal::Signaled, fence: Fence::None };
    for (takes, posting) in [
        (7, Ok(Posting::All)),
        (6, Ok(Posting::Partly)),
        (3, Ok(Posting::Partly)),
        (1, Ok(Posting::Partly)),
        (0, Err(SegmentError::NotConnected)),
    ] {
        let (mut cache, mut chain) = (CtxCache::new(8, 100), SendChain::new());
        chain.build_write_list(&qp(&caps), &mut cache, &reply, &chunks, 8).unwrap();
        chain.build_reply_chunk(&qp(&caps), &mut cache, &reply, &chunks, &numbered[4..], 8).unwrap();
        let mut device = NullDevice::new(caps);
        device.fail_after(takes);
        assert_eq!(chain.sqecount(), 7);
        assert_eq!(chain.post(&mut device, Qpn(1), &send), posting, "{takes}");
        assert_eq!((device.posted(), device.will_fail()), (takes, takes == 7));
        chain.complete();
        chain.destroy(&mut cache);
        assert_eq!(cache.free(), 6);
    }
    // A Send without chunks.
    let mut device = NullDevice::new(caps);
    device.fail_after(1);
    assert_eq!(SendChain::new().post(&mut device, Qpn(1), &send), Ok(Posting::All));
    assert_eq!(SendChain::new().post(&mut device, Qpn(1), &send), Err(SegmentError::NotConnected));
}

#[test]
fn the_write_list_ends_at_the_first_chunk_without_payload() {
    let caps = profiles::a();
    let (mut cache, mut chain) = (CtxCache::new(8, 100), SendChain::new());
    let numbered: Vec<RemoteSegment> = (0..3).map(|number| segment(number, 100)).collect();
    let reply = head(60);
    let chunks = [chunk(&numbered[..1], 0, 8), chunk(&numbered[1..2], 8, 0), chunk(&numbered[2..], 8, 8)];
    chain.build_write_list(&qp(&caps), &mut cache, &reply, &chunks, 9).unwrap();
    assert_eq!(chain.sqecount(), 2);
    // What the list did not carry, the Reply chunk does.
    let written = chain.build_reply_chunk(&qp(&caps), &mut cache, &reply, &chunks, &numbered[1..2], 9);
    assert_eq!(written, Ok(52));
    chain.destroy(&mut cache);
}

#[test]
fn a_body_is_copied_when_short_mapped_when_it_has_few_pieces_and_copied_else() {
    let sizes = EndpointSizes::new(&profiles::a(), &EndpointConfig::default()).unwrap();
    assert_eq!(sizes.max_send_sges, 5);
    for (header, body, pieces, decided) in [
        (28, 483, 1, Ok(SendBody::Copied)),
        (28, 484, 1, Ok(SendBody::Mapped)),
        (28, 9000, 3, Ok(SendBody::Mapped)),
        (28, 4068, 4, Ok(SendBody::Copied)),
        (28, 4069, 4, Err(libc::E2BIG)),
        (28, u32::MAX, u32::MAX, Err(libc::E2BIG)),
    ] {
        let body_decided = send_body(&sizes, header, body, pieces);
        assert_eq!(body_decided.map_err(SegmentError::errno), decided, "{body} in {pieces}");
    }
}

#[test]
fn a_reply_says_how_much_was_written_to_each_segment() {
    let segments = [segment(0, 100), segment(1, 0), segment(2, 50), segment(3, 10)];
    for (length, written) in [
        (0, [0, 0, 0, 0]),
        (99, [99, 0, 0, 0]),
        (100, [100, 0, 0, 0]),
        (120, [100, 0, 20, 0]),
        (160, [100, 0, 50, 10]),
        (u64::MAX, [100, 0, 50, 10]),
    ] {
        assert_eq!(written_lengths(&segments, length).collect::<Vec<_>>(), written, "{length}");
    }
}
