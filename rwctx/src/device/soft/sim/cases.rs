//! Single rules of the transport, one test each.

use std::time::Duration;

use super::super::fault::Faults;
use super::super::wire::{Aeth, AtomicEth, Ext, Ieth, NakCode, Opcode, Reth, Syndrome};
use super::pair::{ALL, LATENCY, MEMORY, MTU, Pair, usual};
use crate::device::{PostError, QpEvent, QpState, Qpn, RemoteAccess};
use crate::mem::{Access, Lkey};
use crate::plan::Integrity;
use crate::remote::{RemoteAddr, Rkey};
use crate::wc::{RecvExtra, WcOpcode, WcStatus};
use crate::wr::{Fence, SendOp, Sge, Signal, WrId};

use WcStatus::{
    BadRespErr, LocLenErr, LocProtErr, LocQpOpErr, RemAccessErr, RemInvReqErr, RemOpErr, RetryExcErr,
    RnrRetryExcErr, Success, WrFlushErr,
};

const FAILED: [Option<QpState>; 2] = [Some(QpState::Error); 2];
const MS: Duration = Duration::from_millis(1);

/// The READ or WRITE of one side fails both queue pairs, and leaves no trace in the other's memory.
fn is_refused(mut pair: Pair, op: SendOp, length: usize, status: WcStatus) {
    pair.fill(0, 0, length, 0xAA);
    pair.receive(1, 100, &[]);
    let sge = pair.sge(0, 0, length);
    pair.post(0, 1, op, &[sge]);
    pair.post(0, 2, SendOp::Send, &[]);
    assert_eq!(pair.outcome(0), [(1, status), (2, WrFlushErr)]);
    assert_eq!(pair.outcome(1), [(100, WrFlushErr)]);
    assert_eq!(pair.states(), FAILED);
    assert!(pair.events(0).contains(&QpEvent::Fatal(pair.qpns[0])));
    assert!(pair.events(1).contains(&QpEvent::Fatal(pair.qpns[1])));
    assert_eq!(pair.bytes(1, 0, MEMORY), vec![0; MEMORY]);
    assert_eq!(pair.bytes(0, 0, length), vec![0xAA; length], "nothing was read either");
}

#[test]
fn only_a_request_with_the_expected_number_shows_that_the_peer_knows_of_the_connection() {
    let mut pair = Pair::new();
    let room = pair.sge(1, 0, 100);
    pair.receive(1, 100, &[room]);
    for ahead in [1, 7, 1 << 22, 0_u32.wrapping_sub(1), 0_u32.wrapping_sub(1 << 22)] {
        pair.inject(1, Opcode::SendOnly, ahead, Ext::None, b"guess");
    }
    pair.inject(1, Opcode::Acknowledge, 0, Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn: 0 }), &[]);
    assert_eq!((pair.events(1), pair.completions(1)), (vec![], vec![]));
    pair.inject(1, Opcode::SendOnly, 0, Ext::None, b"known");
    assert_eq!(pair.events(1), [QpEvent::CommEst(pair.qpns[1])]);
    assert_eq!(pair.completions(1).len(), 1);
}

#[test]
fn memory_that_was_not_granted_is_not_reached() {
    for length in [1, MTU, 5 * MTU + 3] {
        for read in [false, true] {
            let try_it = |make: &dyn Fn(&mut Pair) -> RemoteAddr| {
                let mut pair = Pair::new();
                let remote = make(&mut pair);
                let op = if read { SendOp::Read(remote) } else { SendOp::Write(remote) };
                is_refused(pair, op, length, RemAccessErr);
            };
            try_it(&|pair| pair.remote_by(1, 0, Rkey(pair.mrs[1].rkey.0 ^ 1)));
            try_it(&|pair| pair.remote_by(1, 0, Rkey(0)));
            try_it(&|pair| pair.remote_by(1, 0, Rkey(u32::MAX)));
            try_it(&|pair| pair.remote(1, MEMORY - length + 1));
            try_it(&|pair| RemoteAddr { addr: pair.mrs[1].addr - 1, rkey: pair.mrs[1].rkey });
            try_it(&|pair| RemoteAddr { addr: u64::MAX, rkey: pair.mrs[1].rkey });
            try_it(&|pair| {
                let other = pair.world.endpoints[1].alloc_pd().unwrap();
                let foreign =
                    pair.world.endpoints[1].reg_mr(other, &pair.regions[1], 0, MEMORY, ALL).unwrap();
                pair.remote_by(1, 0, foreign.rkey)
            });
            try_it(&|pair| {
                let access = Access { local_write: true, remote_read: !read, remote_write: read };
                let pd = pair.pds[1];
                let other = pair.world.endpoints[1].reg_mr(pd, &pair.regions[1], 0, MEMORY, access).unwrap();
                pair.remote_by(1, 0, other.rkey)
            });
            try_it(&|pair| {
                let pd = pair.pds[1];
                let gone = pair.world.endpoints[1].reg_mr(pd, &pair.regions[1], 0, MEMORY, ALL).unwrap();
                pair.world.endpoints[1].dereg_mr(gone.id).unwrap();
                pair.remote_by(1, 0, gone.rkey)
            });
        }
    }
}

#[test]
fn a_queue_pair_without_remote_access_refuses_reads_and_writes_as_invalid() {
    let mut closed = usual(1);
    closed.remote_access = RemoteAccess::default();
    let pair = || Pair::with([usual(0), closed]);
    let remote = pair().remote(1, 0);
    is_refused(pair(), SendOp::Write(remote), 10, RemInvReqErr);
    is_refused(pair(), SendOp::Read(remote), 10, RemInvReqErr);
}

#[test]
fn zero_bytes_need_no_key() {
    let mut pair = Pair::new();
    let nowhere = RemoteAddr { addr: 0, rkey: Rkey(0) };
    pair.post(0, 1, SendOp::Write(nowhere), &[]);
    pair.post(0, 2, SendOp::Read(nowhere), &[]);
    assert_eq!(pair.outcome(0), [(1, Success), (2, Success)]);
}

#[test]
fn a_message_longer_than_its_receive_fails_both_ends() {
    let mut pair = Pair::new();
    let (room, message) = (pair.sge(1, 0, 3 * MTU - 1), pair.sge(0, 0, 3 * MTU));
    pair.receive(1, 100, &[room]);
    pair.receive(1, 101, &[room]);
    pair.post(0, 1, SendOp::Send, &[message]);
    assert_eq!(pair.outcome(0), [(1, RemInvReqErr)]);
    assert_eq!(pair.outcome(1), [(100, LocLenErr), (101, WrFlushErr)]);
    assert_eq!(pair.states(), FAILED);
}

#[test]
fn a_receive_into_memory_that_may_not_be_written_fails_both_ends() {
    let mut pair = Pair::new();
    let (pd, region) = (pair.pds[1], pair.regions[1].clone());
    let constant = pair.world.endpoints[1].reg_mr(pd, &region, 0, 64, Access::default()).unwrap();
    pair.receive(1, 100, &[Sge { addr: constant.addr, length: 64, lkey: constant.lkey }]);
    let message = pair.sge(0, 0, 8);
    pair.post(0, 1, SendOp::Send, &[message]);
    assert_eq!(pair.outcome(0), [(1, RemOpErr)]);
    assert_eq!(pair.outcome(1), [(100, LocProtErr)]);
}

#[test]
fn a_work_request_with_a_bad_local_key_fails_in_its_turn() {
    let mut pair = Pair::new();
    let good = pair.sge(0, 0, 5000);
    let bad = Sge { lkey: Lkey(good.lkey.0 ^ 1), ..good };
    let to = SendOp::Write(pair.remote(1, 0));
    pair.post(0, 1, to, &[good]);
    pair.try_post(0, 2, to, &[good], Signal::Unsignaled, Fence::None).unwrap();
    pair.post(0, 3, to, &[Sge { length: 2000, ..good }, bad]);
    pair.try_post(0, 4, to, &[good], Signal::Unsignaled, Fence::None).unwrap();
    assert_eq!(pair.outcome(0), [(1, Success), (3, LocProtErr), (4, WrFlushErr)]);
    assert_eq!(pair.states(), [Some(QpState::Error), Some(QpState::Rts)]);
}

#[test]
fn a_read_into_memory_that_may_not_be_written_fails() {
    let mut pair = Pair::new();
    let (pd, region) = (pair.pds[0], pair.regions[0].clone());
    let constant = pair.world.endpoints[0].reg_mr(pd, &region, 0, 64, Access::default()).unwrap();
    let from = SendOp::Read(pair.remote(1, 0));
    pair.post(0, 1, from, &[Sge { addr: constant.addr, length: 64, lkey: constant.lkey }]);
    assert_eq!(pair.outcome(0), [(1, LocProtErr)]);
}

#[test]
fn memory_deregistered_while_a_message_is_on_its_way_is_not_sent_again() {
    let mut pair = Pair::new();
    let (pd, region) = (pair.pds[0], pair.regions[0].clone());
    let mr = pair.world.endpoints[0].reg_mr(pd, &region, 0, 64, ALL).unwrap();
    let to = SendOp::Write(pair.remote(1, 0));
    pair.world.links[0].set_faults(Faults { lose: 1000, ..Faults::default() });
    pair.post(0, 1, to, &[Sge { addr: mr.addr, length: 64, lkey: mr.lkey }]);
    pair.run(MS);
    pair.world.endpoints[0].dereg_mr(mr.id).unwrap();
    pair.world.links[0].set_faults(Faults { latency: LATENCY, ..Faults::default() });
    assert_eq!(pair.outcome(0), [(1, LocProtErr)]);
    assert_eq!(pair.counters(0).tx_packets, 1);
}

#[test]
fn a_peer_without_receives_is_waited_for_or_given_up_as_asked() {
    for retries in [0, 2] {
        let mut impatient = usual(0);
        impatient.rnr_retry = retries;
        let mut pair = Pair::with([impatient, usual(1)]);
        pair.post(0, 1, SendOp::Send, &[]);
        pair.post(0, 2, SendOp::Send, &[]);
        assert_eq!(pair.outcome(0), [(1, RnrRetryExcErr), (2, WrFlushErr)]);
        assert_eq!(pair.counters(1).tx_rnr_naks, u64::from(retries) + 1);
        assert_eq!(pair.states(), [Some(QpState::Error), Some(QpState::Rts)]);
    }
    let mut pair = Pair::new();
    for wr in 1..=3 {
        let message = pair.sge(0, 0, 3 * MTU);
        pair.post(0, wr, SendOp::Send, &[message]);
    }
    pair.run(100 * MS);
    assert!(pair.counters(1).tx_rnr_naks > 50, "asked again about every 0.64 ms");
    assert_eq!(
        pair.counters(1).tx_sequence_naks,
        0,
        "what follows a refused packet is not reported as a gap"
    );
    let room = pair.sge(1, 0, 3 * MTU);
    (100..103).for_each(|wr| pair.receive(1, wr, &[room]));
    assert_eq!(pair.outcome(0), [(1, Success), (2, Success), (3, Success)]);
    assert_eq!(pair.outcome(1), [(100, Success), (101, Success), (102, Success)]);
}

#[test]
fn a_silent_peer_is_given_up_after_the_agreed_time() {
    let mut to = usual(0);
    (to.retry_cnt, to.ack_timeout) = (3, 67 * MS);
    let mut pair = Pair::with([to, usual(1)]);
    pair.world.links[0].set_faults(Faults { lose: 1000, ..Faults::default() });
    let message = pair.sge(0, 0, 300 * MTU);
    pair.try_post(0, 1, SendOp::Write(pair.remote(1, 0)), &[message], Signal::Unsignaled, Fence::None)
        .unwrap();
    pair.post(0, 2, SendOp::Read(pair.remote(1, 0)), &[message]);
    let start = pair.world.now;
    while pair.states()[0] == Some(QpState::Rts) {
        pair.run(MS);
        pair.world.now += MS / 2;
    }
    let waited = pair.world.now - start;
    // Quick tries after 20 and 40 ms, then four times the full 67 ms.
    assert!(waited > 300 * MS && waited < 340 * MS, "{waited:?}");
    assert_eq!(pair.outcome(0), [(1, RetryExcErr), (2, WrFlushErr)]);
    let resent = pair.counters(0).retransmits;
    assert!(resent <= 5 * 8, "at most 8 packets a timeout: {resent}");
}

#[test]
fn posting_to_a_failed_queue_pair_flushes() {
    let mut pair = Pair::new();
    let qpn = pair.qpns[0];
    pair.receive(0, 100, &[]);
    pair.world.endpoints[0].error_qp(qpn).unwrap();
    pair.try_post(0, 1, SendOp::Send, &[], Signal::Unsignaled, Fence::None).unwrap();
    pair.receive(0, 101, &[]);
    assert_eq!(pair.outcome(0), [(100, WrFlushErr), (1, WrFlushErr), (101, WrFlushErr)]);
    assert_eq!(pair.events(0), [], "nobody is told of what they did");
    assert_eq!(pair.counters(0).tx_packets, 0);
}

#[test]
fn posting_has_its_limits() {
    let mut pair = Pair::new();
    let sge = pair.sge(0, 0, 8);
    let mut post = |sges: &[Sge], op| pair.try_post(0, 1, op, sges, Signal::Signaled, Fence::None);
    assert_eq!(post(&[sge; 5], SendOp::Send), Err(PostError::BadSge));
    let huge = Sge { length: 1 << 30, ..sge };
    assert_eq!(post(&[huge, huge, sge], SendOp::Send), Err(PostError::BadSge));
    assert_eq!(post(&[sge], SendOp::LocalInv(Rkey(1))), Err(PostError::BadSge));
    (0..64).for_each(|_| post(&[], SendOp::Send).unwrap());
    assert_eq!(post(&[], SendOp::Send), Err(PostError::Full));
    let cap = crate::device::QpCap {
        max_send_wr: 1,
        max_recv_wr: 1,
        max_send_sge: 1,
        max_recv_sge: 1,
        integrity: Integrity::Off,
    };
    let pd = pair.pds[0];
    let fresh = pair.world.endpoints[0].create_qp(pd, &cap).unwrap();
    pair.qpns[0] = fresh;
    assert_eq!(
        pair.try_post(0, 1, SendOp::Send, &[], Signal::Signaled, Fence::None),
        Err(PostError::BadState)
    );
    pair.receive(0, 1, &[]);
    pair.qpns[0] = Qpn(7);
    assert_eq!(
        pair.try_post(0, 1, SendOp::Send, &[], Signal::Signaled, Fence::None),
        Err(PostError::UnknownQp)
    );
}

/// Registers a window of side 1 with a fresh key and returns the key.
pub(super) fn window(pair: &mut Pair) -> Rkey {
    let pd = pair.pds[1];
    let fast = pair.world.endpoints[1].alloc_fast_reg(pd, 16).unwrap();
    let key = Rkey(fast.rkey.0 & !0xFF | 0x42);
    let mr = pair.mrs[1];
    let register = SendOp::RegMr { mr: fast.id, key, access: ALL };
    pair.post(1, 900, register, &[Sge { addr: mr.addr, length: 4096, lkey: mr.lkey }]);
    assert_eq!(pair.outcome(1), [(900, Success)]);
    key
}

#[test]
fn a_window_grants_its_range_until_the_peer_invalidates_it() {
    let mut pair = Pair::new();
    let key = window(&mut pair);
    pair.receive(1, 100, &[]);
    let sge = pair.sge(0, 0, 4096);
    pair.post(0, 1, SendOp::Write(pair.remote_by(1, 0, key)), &[sge]);
    pair.post(0, 2, SendOp::SendWithInv(key), &[]);
    assert_eq!(pair.outcome(0), [(1, Success), (2, Success)]);
    let received = pair.completions(1);
    assert_eq!((received[0].wr_id, received[0].extra), (WrId(100), RecvExtra::Invalidated(key)));
    let op = SendOp::Write(pair.remote_by(1, 0, key));
    is_refused(pair, op, 1, RemAccessErr);
    let mut pair = Pair::new();
    let key = window(&mut pair);
    let op = SendOp::Write(pair.remote_by(1, 1, key));
    is_refused(pair, op, 4096, RemAccessErr);
}

#[test]
fn invalidating_what_can_not_be_invalidated_fails_the_connection() {
    for key in [None, Some(Rkey(0x0001_0042))] {
        let mut pair = Pair::new();
        let key = key.unwrap_or(pair.mrs[1].rkey);
        pair.receive(1, 100, &[]);
        pair.post(0, 1, SendOp::SendWithInv(key), &[]);
        assert_eq!(pair.outcome(0), [(1, RemAccessErr)]);
        assert_eq!(pair.outcome(1), [(100, WrFlushErr)]);
    }
    let mut pair = Pair::new();
    pair.post(0, 1, SendOp::LocalInv(Rkey(0x4200)), &[]);
    assert_eq!(pair.outcome(0), [(1, LocQpOpErr)]);
}

#[test]
fn a_local_invalidation_waits_for_work_requests_that_use_the_key() {
    let mut pair = Pair::new();
    let key = window(&mut pair);
    pair.fill(0, 0, 4096, 7);
    let sge = Sge { addr: pair.mrs[1].addr, length: 4096, lkey: Lkey(key.0) };
    pair.try_post(1, 1, SendOp::Read(pair.remote(0, 0)), &[sge], Signal::Unsignaled, Fence::None).unwrap();
    pair.try_post(1, 2, SendOp::Write(pair.remote(0, 8192)), &[sge], Signal::Unsignaled, Fence::None)
        .unwrap();
    pair.post(1, 3, SendOp::LocalInv(key), &[]);
    pair.post(1, 4, SendOp::Write(pair.remote(0, 0)), &[sge]);
    assert_eq!(pair.outcome(1), [(3, Success), (4, LocProtErr)]);
    assert_eq!(pair.bytes(1, 0, 4096), vec![7; 4096]);
    assert_eq!(pair.counters(1).timeouts, 0, "the next in line was told");
}

#[test]
fn a_fenced_request_starts_after_the_reads_before_it() {
    let mut pair = Pair::new();
    pair.receive(1, 100, &[]);
    let sge = pair.sge(0, 0, 3 * MTU);
    pair.post(0, 1, SendOp::Read(pair.remote(1, 0)), &[sge]);
    pair.try_post(0, 2, SendOp::Send, &[], Signal::Signaled, Fence::Reads).unwrap();
    pair.run(LATENCY / 2);
    assert_eq!(pair.counters(0).tx_packets, 1);
    assert_eq!(pair.outcome(0), [(1, Success), (2, Success)]);
    assert_eq!(pair.counters(0).tx_packets, 2);
}

#[test]
fn no_more_reads_are_outstanding_than_agreed() {
    let read = |ours: u8, theirs: u8| {
        let (mut to, mut from) = (usual(0), usual(1));
        (to.max_rd_atomic, from.max_dest_rd_atomic) = (ours, theirs);
        let mut pair = Pair::with([to, from]);
        let sge = pair.sge(0, 0, 2 * MTU);
        (1..=6).for_each(|wr| pair.post(0, wr, SendOp::Read(pair.remote(1, 0)), &[sge]));
        pair.outcome(0)
    };
    for depth in [1, 2, 5] {
        assert_eq!(read(depth, depth), (1..=6).map(|wr| (wr, Success)).collect::<Vec<_>>());
    }
    assert!(read(4, 1).iter().any(|&(_, status)| status == RemInvReqErr));
}

#[test]
fn a_long_read_is_asked_for_in_pieces_within_the_limits() {
    let mut pair = Pair::new();
    let data: Vec<u8> = (0..600_001_u32).map(|at| at.wrapping_mul(0x9E37_79B9).to_be_bytes()[0]).collect();
    pair.regions[1].write(11, &data);
    let sge = pair.sge(0, 100, data.len());
    pair.post(0, 1, SendOp::Read(pair.remote(1, 11)), &[sge]);
    pair.run(LATENCY);
    assert_eq!(pair.counters(0).tx_packets, 4, "four READs may be outstanding");
    assert_eq!(pair.world.endpoints[0].read_bytes_outstanding(), 256 << 10);
    assert_eq!(pair.outcome(0), [(1, Success)]);
    assert_eq!(pair.bytes(0, 100, data.len()), data);
    assert_eq!(pair.counters(0).tx_packets, 10);
}

#[test]
fn a_batch_of_messages_costs_one_acknowledge() {
    let mut pair = Pair::new();
    let sge = pair.sge(0, 0, 100);
    (0..16).for_each(|wr| pair.receive(1, 100 + wr, &[]));
    (1..=16).for_each(|wr| pair.post(0, wr, SendOp::Write(pair.remote(1, 0)), &[sge]));
    pair.post(0, 17, SendOp::Send, &[]);
    pair.run(LATENCY * 3);
    assert_eq!(pair.completions(0).len(), 17);
    assert_eq!(pair.counters(1).tx_acks, 1);
}

#[test]
fn duplicates_are_answered_once_a_batch_and_not_executed_again() {
    let mut pair = Pair::new();
    let room = pair.sge(1, 0, 8);
    pair.receive(1, 100, &[room]);
    pair.receive(1, 101, &[room]);
    for _ in 0..5 {
        pair.inject(1, Opcode::SendOnly, 0, Ext::None, b"once");
    }
    pair.world.transmit();
    assert_eq!((pair.completions(1).len(), pair.counters(1).tx_acks), (1, 1));
    assert_eq!(pair.counters(1).duplicates, 4);
}

#[test]
fn a_gap_is_reported_once_until_it_is_closed() {
    let mut pair = Pair::new();
    let room = pair.sge(1, 0, 8);
    (0..8).for_each(|wr| pair.receive(1, 100 + wr, &[room]));
    for round in 0..3 {
        for ahead in [1, 2, 3] {
            pair.inject(1, Opcode::SendOnly, round + ahead, Ext::None, b"lost");
            pair.world.transmit();
        }
        assert_eq!(pair.counters(1).tx_sequence_naks, u64::from(round) + 1);
        pair.inject(1, Opcode::SendOnly, round, Ext::None, b"next");
        pair.world.transmit();
    }
    assert_eq!(pair.completions(1).len(), 3);
}

#[test]
fn requests_that_break_the_order_of_opcodes_or_lengths_are_refused_as_invalid() {
    let reth = |dma_len| Ext::Reth(Reth { va: 0, rkey: Rkey(0), dma_len });
    let atomic = Ext::Atomic(AtomicEth { va: 0, rkey: Rkey(0), swap_or_add: 0, compare: 0 });
    let full = vec![0; MTU];
    let over = vec![0; MTU + 4];
    type Step<'s> = (Opcode, Ext, &'s [u8]);
    let cases: &[&[Step<'_>]] = &[
        &[(Opcode::SendMiddle, Ext::None, &full)],
        &[(Opcode::SendLast, Ext::None, &full)],
        &[(Opcode::SendFirst, Ext::None, &full), (Opcode::SendFirst, Ext::None, &full)],
        &[(Opcode::SendFirst, Ext::None, &full), (Opcode::SendOnly, Ext::None, &full)],
        &[(Opcode::SendFirst, Ext::None, &full), (Opcode::ReadRequest, reth(0), &[])],
        &[(Opcode::SendFirst, Ext::None, &full), (Opcode::WriteLast, Ext::None, &full)],
        &[(Opcode::SendFirst, Ext::None, &full), (Opcode::SendLast, Ext::None, &[])],
        &[(Opcode::SendFirst, Ext::None, &full[4..])],
        &[(Opcode::SendOnly, Ext::None, &over)],
        &[(Opcode::WriteMiddle, Ext::None, &full)],
        &[(Opcode::WriteOnly, reth(8), &[0; 4])],
        &[(Opcode::WriteOnly, reth(4), &[0; 8])],
        &[(Opcode::WriteFirst, reth(1024), &full)],
        &[(Opcode::WriteOnly, reth(u32::MAX), &full)],
        &[(Opcode::ReadRequest, reth((1 << 31) + 1), &[])],
        &[(Opcode::CompareSwap, atomic, &[])],
        &[(Opcode::FetchAdd, atomic, &[])],
        &[(Opcode::Unknown(0x1C), Ext::None, &[0; 28])],
        &[(Opcode::Unknown(0x15), Ext::None, &[])],
    ];
    for case in cases {
        let mut pair = Pair::new();
        let room = pair.sge(1, 0, 8 * MTU);
        pair.receive(1, 100, &[room]);
        for (ahead, &(opcode, ext, payload)) in (0..).zip(*case) {
            pair.inject(1, opcode, ahead, ext, payload);
        }
        pair.world.transmit();
        assert_eq!(pair.states()[1], Some(QpState::Error), "{case:x?}");
        assert_eq!(pair.counters(1).tx_fatal_naks, 1, "{case:x?}");
        let statuses: Vec<_> = pair.completions(1).iter().map(|wc| wc.status).collect();
        assert_eq!(statuses, [WrFlushErr], "{case:x?}");
    }
}

#[test]
fn an_invalidation_while_a_read_is_served_stops_it_with_an_access_error() {
    let mut pair = Pair::new();
    let (pd, region) = (pair.pds[1], pair.regions[1].clone());
    let mr = pair.world.endpoints[1].reg_mr(pd, &region, 0, MEMORY, ALL).unwrap();
    let sge = pair.sge(0, 0, 60 * MTU);
    pair.post(0, 1, SendOp::Read(pair.remote_by(1, 0, mr.rkey)), &[sge]);
    pair.world.transmit();
    let request = pair.world.next_event().unwrap();
    pair.world.advance_to(request);
    pair.world.endpoints[1].dereg_mr(mr.id).unwrap();
    assert_eq!(pair.outcome(0), [(1, RemAccessErr)]);
    assert_eq!(pair.counters(1).tx_packets, 1);
}

#[test]
fn read_responses_that_do_not_fit_the_request_fail_it() {
    let aeth = Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn: 1 });
    let full = vec![1; MTU];
    type Bad<'b> = (Opcode, u32, Ext, &'b [u8]);
    let cases: &[Bad<'_>] = &[
        (Opcode::ReadResponseFirst, 0, aeth, &full[4..]),
        (Opcode::ReadResponseOnly, 0, aeth, &full),
        (Opcode::ReadResponseLast, 1, aeth, &full[4..]),
        (Opcode::ReadResponseMiddle, 2, Ext::None, &full),
        (Opcode::ReadResponseLast, 2, aeth, &full[..4]),
    ];
    for &(opcode, ahead, ext, payload) in cases {
        let mut pair = Pair::new();
        let sge = pair.sge(0, 0, 2 * MTU + 100);
        pair.post(0, 1, SendOp::Read(pair.remote(1, 0)), &[sge]);
        pair.world.transmit();
        pair.inject(0, opcode, ahead, ext, payload);
        let statuses: Vec<_> = pair.completions(0).iter().map(|wc| wc.status).collect();
        assert_eq!(statuses, [BadRespErr], "{opcode:?}");
    }
}

#[test]
fn a_repeated_read_may_begin_with_any_opcode_and_come_in_any_order() {
    for (one, two) in [
        (Opcode::ReadResponseFirst, Opcode::ReadResponseLast),
        (Opcode::ReadResponseMiddle, Opcode::ReadResponseOnly),
    ] {
        let mut pair = Pair::new();
        let ext = |opcode: Opcode| match opcode {
            Opcode::ReadResponseMiddle => Ext::None,
            _ => Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn: 1 }),
        };
        let sge = pair.sge(0, 0, 3 * MTU + 8);
        pair.post(0, 1, SendOp::Read(pair.remote(1, 0)), &[sge]);
        pair.world.transmit();
        pair.inject(0, two, 3, ext(two), &[4; 8]);
        pair.inject(0, Opcode::ReadResponseMiddle, 2, Ext::None, &[3; MTU]);
        pair.inject(0, one, 0, ext(one), &[1; MTU]);
        assert!(pair.completions(0).is_empty());
        pair.world.transmit();
        assert_eq!(pair.counters(0).read_rerequests, 1);
        pair.inject(0, one, 1, ext(one), &[2; MTU]);
        assert_eq!(pair.completions(0).len(), 1);
        let expected = [vec![1; MTU], vec![2; MTU], vec![3; MTU], vec![4; 8]].concat();
        assert_eq!(pair.bytes(0, 0, 3 * MTU + 8), expected);
    }
}

#[test]
fn responses_that_nothing_explains_are_dropped() {
    let mut pair = Pair::new();
    let nak = |code| Ext::Aeth(Aeth { syndrome: Syndrome::Nak(code), msn: 0 });
    for ahead in [0, 1, 0x7F_FFFF, 0x80_0000, 0xFF_FFFF] {
        pair.inject(0, Opcode::Acknowledge, ahead, Ext::Aeth(Aeth { syndrome: Syndrome::ACK, msn: 0 }), &[]);
        pair.inject(0, Opcode::Acknowledge, ahead, nak(NakCode::RemoteAccess), &[]);
        pair.inject(0, Opcode::Acknowledge, ahead, nak(NakCode::PsnSequence), &[]);
        pair.inject(0, Opcode::ReadResponseMiddle, ahead, Ext::None, &[0; MTU]);
    }
    assert_eq!(pair.states(), [Some(QpState::Rts); 2]);
    pair.receive(1, 100, &[]);
    pair.post(0, 1, SendOp::Send, &[]);
    assert_eq!(pair.outcome(0), [(1, Success)]);
}

#[test]
fn packets_of_strangers_are_dropped() {
    let mut pair = Pair::new();
    pair.receive(1, 100, &[]);
    let addresses = pair.world.addresses;
    pair.world.addresses[0] = "fd77::3".parse().unwrap();
    pair.inject(1, Opcode::SendOnly, 0, Ext::None, &[]);
    assert_eq!(pair.counters(1).drop_address, 1);
    pair.world.addresses = addresses;
    let qpns = pair.qpns;
    pair.qpns[1] = Qpn(qpns[1].0 + 1);
    pair.inject(1, Opcode::SendOnly, 0, Ext::None, &[]);
    assert_eq!(pair.counters(1).drop_qpn, 1);
    pair.qpns = qpns;
    pair.world.endpoints[1].error_qp(qpns[1]).unwrap();
    pair.inject(1, Opcode::SendOnly, 0, Ext::None, &[]);
    assert_eq!(pair.counters(1).drop_state, 1);
}

#[test]
fn a_destroyed_queue_pair_leaves_nothing_behind() {
    let mut pair = Pair::new();
    let qpns = pair.qpns;
    let sge = pair.sge(0, 0, 100_000);
    pair.post(0, 1, SendOp::Read(pair.remote(1, 0)), &[sge]);
    pair.receive(0, 100, &[]);
    pair.world.transmit();
    pair.world.endpoints[0].destroy_qp(qpns[0]).unwrap();
    assert_eq!(pair.world.endpoints[0].read_bytes_outstanding(), 0);
    assert_eq!((pair.completions(0).len(), pair.states()[0]), (0, None));
    assert!(pair.world.endpoints[0].destroy_qp(qpns[0]).is_err());
    pair.run(Duration::from_secs(1));
    assert!(pair.counters(0).drop_qpn > 0);
    assert_eq!(pair.world.endpoints[0].next_timeout(), None);
    let again = pair.connect([usual(0), usual(1)]);
    assert_ne!(again[0], qpns[0]);
}

#[test]
fn one_connection_does_not_stop_another() {
    let mut pair = Pair::new();
    let (old, sge) = (pair.qpns, pair.sge(0, 0, 200 * MTU));
    let new = pair.connect([usual(0), usual(1)]);
    (1..=60).for_each(|wr| pair.post(0, wr, SendOp::Write(pair.remote(1, 0)), &[sge]));
    pair.qpns = new;
    pair.receive(1, 100, &[]);
    pair.post(0, 1000, SendOp::Send, &[]);
    pair.run(LATENCY * 2);
    let done = pair.completions(0);
    assert_eq!(done.iter().map(|wc| wc.wr_id.0).collect::<Vec<_>>(), [1000]);
    // The other one fails, this one goes on.
    pair.qpns = old;
    pair.inject(1, Opcode::Unknown(0x1F), 0, Ext::None, &[]);
    pair.qpns = new;
    pair.receive(1, 101, &[]);
    pair.post(0, 1001, SendOp::Send, &[]);
    assert!(pair.outcome(0).contains(&(1001, Success)));
    assert_eq!(pair.states(), [Some(QpState::Rts); 2]);
}

#[test]
fn immediate_data_arrives_as_it_was_sent() {
    let mut pair = Pair::new();
    let sge = pair.sge(0, 0, 2 * MTU);
    let room = pair.sge(1, 8192, 2 * MTU);
    pair.receive(1, 100, &[room]);
    pair.receive(1, 101, &[]);
    pair.post(0, 1, SendOp::SendWithImm([1, 2, 3, 4]), &[sge]);
    pair.post(0, 2, SendOp::WriteWithImm(pair.remote(1, 0), [5, 6, 7, 8]), &[sge]);
    pair.run(MS);
    let received: Vec<_> =
        pair.completions(1).iter().map(|wc| (wc.wr_id.0, wc.opcode, wc.byte_len, wc.extra)).collect();
    let expected = [
        (100, WcOpcode::Recv, 2048, RecvExtra::Imm([1, 2, 3, 4])),
        (101, WcOpcode::RecvRdmaWithImm, 2048, RecvExtra::Imm([5, 6, 7, 8])),
    ];
    assert_eq!(received, expected);
}

#[test]
fn a_congestion_notification_is_heard_once_a_round_trip() {
    let mut pair = Pair::new();
    let sge = pair.sge(0, 0, 500 * MTU);
    pair.post(0, 1, SendOp::Write(pair.remote(1, 0)), &[sge]);
    pair.world.transmit();
    assert_eq!(pair.counters(0).tx_packets, 64);
    (0..20).for_each(|_| pair.inject(0, Opcode::Cnp, 0, Ext::Cnp, &[]));
    assert_eq!(pair.counters(0).rx_cnps, 20);
    let before = pair.counters(0).tx_packets;
    let start = pair.world.now;
    while pair.world.now - start < LATENCY * 2 {
        let at = pair.world.next_event().unwrap();
        pair.world.advance_to(at);
        pair.world.transmit();
    }
    let sent = pair.counters(0).tx_packets - before;
    assert!((25..=34).contains(&sent), "half of the window: {sent}");
    assert_eq!(pair.outcome(0), [(1, Success)]);
}

#[test]
fn a_send_that_invalidates_twice_is_refused_the_second_time() {
    let mut pair = Pair::new();
    let key = window(&mut pair);
    let room = pair.sge(1, 0, 8);
    (0..2).for_each(|wr| pair.receive(1, 100 + wr, &[room]));
    pair.inject(1, Opcode::SendOnlyWithInvalidate, 0, Ext::Ieth(Ieth(key)), b"done");
    pair.inject(1, Opcode::SendOnlyWithInvalidate, 0, Ext::Ieth(Ieth(key)), b"done");
    assert_eq!(pair.states()[1], Some(QpState::Rts), "a duplicate is not executed");
    pair.inject(1, Opcode::SendOnlyWithInvalidate, 1, Ext::Ieth(Ieth(key)), b"done");
    assert_eq!(pair.states()[1], Some(QpState::Error));
}
