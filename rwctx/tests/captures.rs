//! Traffic of Linux and of hardware, recorded: every packet parses, is emitted again byte for byte, and has the ICRC
//! that we compute; those that were corrupted on purpose are refused.

mod capture;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use capture::{CAPTURES, Datagram};
use rwctx::device::PathMtu;
use rwctx::device::soft::cm::{Cm, CmConfig, CmEvent, MadOut};
use rwctx::device::soft::icrc::{IcrcChecker, IcrcFlow};
use rwctx::device::soft::wire::cm::{CmMessage, Req, service_port};
use rwctx::device::soft::wire::{HEADER_MAX, Opcode, Packet};

/// The UDP payload that we would send for what `datagram` says, with the Identification that its sender used.
fn emitted(datagram: &Datagram) -> Vec<u8> {
    let packet =
        Packet::parse(&datagram.udp_payload).unwrap_or_else(|error| panic!("{}: {error}", datagram.name));
    let mut header = [0; HEADER_MAX];
    let length = packet.header().emit(&mut header);
    let meta = datagram.meta;
    let mut icrc = IcrcFlow::new(meta.src, meta.dst, meta.src_port).begin(
        datagram.id,
        &header[..length],
        packet.payload.len(),
    );
    // In two pieces, as a payload that crosses buffers is.
    let (head, tail) = packet.payload.split_at(packet.payload.len() / 3);
    icrc.update(head);
    icrc.update(tail);
    [&header[..length], packet.payload, icrc.finish().as_bytes()].concat()
}

#[test]
fn every_packet_is_emitted_again_byte_for_byte_and_only_corrupted_ones_are_refused() {
    let mut kinds: HashMap<Opcode, usize> = HashMap::new();
    for (name, count, corrupted) in CAPTURES {
        let datagrams = capture::datagrams(name);
        assert_eq!(datagrams.len(), count, "{name}");
        let mut checker = IcrcChecker::new();
        let mut refused = Vec::new();
        for datagram in &datagrams {
            let again = emitted(datagram);
            let (covered, icrc) = datagram.udp_payload.split_at(datagram.udp_payload.len() - 4);
            assert_eq!(again[..again.len() - 4], *covered, "{}", datagram.name);
            *kinds.entry(Opcode::from(covered[0])).or_default() += 1;
            let accepted = checker.identify(&datagram.meta, &datagram.udp_payload);
            if again[again.len() - 4..] == *icrc {
                assert_eq!(accepted, Some(datagram.id), "{}", datagram.name);
            } else {
                assert_eq!(accepted, None, "{}", datagram.name);
                refused.push(&datagram.name);
            }
        }
        assert_eq!(refused.len(), corrupted, "{name}: {refused:?}");
    }
    // What the captures prove: all that Linux uses on a reliable connection.
    for opcode in [
        Opcode::SendFirst,
        Opcode::SendMiddle,
        Opcode::SendLast,
        Opcode::SendOnly,
        Opcode::SendOnlyWithInvalidate,
        Opcode::WriteFirst,
        Opcode::WriteMiddle,
        Opcode::WriteLast,
        Opcode::WriteOnly,
        Opcode::ReadRequest,
        Opcode::ReadResponseFirst,
        Opcode::ReadResponseMiddle,
        Opcode::ReadResponseLast,
        Opcode::ReadResponseOnly,
        Opcode::Acknowledge,
        Opcode::UdSendOnly,
    ] {
        assert!(kinds.contains_key(&opcode), "{opcode:?} is in no capture; there are {kinds:?}");
    }
}

#[test]
fn every_vector_is_emitted_again_byte_for_byte_and_accepted() {
    let vectors = capture::vectors();
    assert_eq!(vectors.len(), 17);
    let mut checker = IcrcChecker::new();
    for vector in &vectors {
        assert_eq!(emitted(vector), vector.udp_payload, "{}", vector.name);
        let id = checker.identify(&vector.meta, &vector.udp_payload);
        assert_eq!(id, Some(vector.id), "{}", vector.name);
    }
}

#[test]
fn every_recorded_message_of_the_connection_manager_is_emitted_again_byte_for_byte() {
    let mut counts = [0; 8];
    for (name, ..) in CAPTURES {
        for datagram in capture::datagrams(name) {
            let packet = Packet::parse(&datagram.udp_payload).expect("captures parse");
            if packet.bth.opcode != Opcode::UdSendOnly {
                continue;
            }
            let (transaction_id, message) =
                CmMessage::parse(packet.payload).unwrap_or_else(|error| panic!("{}: {error}", datagram.name));
            assert_eq!(message.emit(transaction_id), packet.payload, "{}: {message:?}", datagram.name);
            let index = match message {
                CmMessage::Req(_) => 0,
                CmMessage::Mra(_) => 1,
                CmMessage::Rej(_) => 2,
                CmMessage::Rep(_) => 3,
                CmMessage::Rtu(_) => 4,
                CmMessage::Dreq(_) => 5,
                CmMessage::Drep(_) => 6,
                CmMessage::SidrReq(_) | CmMessage::SidrRep(_) => 7,
            };
            counts[index] += 1;
        }
    }
    let [req, mra, rej, rep, rtu, dreq, drep, sidr] = counts;
    println!("{req} REQ, {mra} MRA, {rej} REJ, {rep} REP, {rtu} RTU, {dreq} DREQ, {drep} DREP, {sidr} SIDR");
    assert!(req > 0 && mra > 0 && rej > 0 && rep > 0 && rtu > 0 && dreq > 0 && drep > 0);
}

/// The requests of the captures, each once: retransmissions repeat the communication ID.
fn recorded_requests() -> Vec<(Datagram, Req)> {
    let mut requests: Vec<(Datagram, Req)> = Vec::new();
    for (name, ..) in CAPTURES {
        for datagram in capture::datagrams(name) {
            let packet = Packet::parse(&datagram.udp_payload).expect("captures parse");
            if packet.bth.opcode == Opcode::UdSendOnly
                && let Ok((_, CmMessage::Req(req))) = CmMessage::parse(packet.payload)
                && !requests.iter().any(|(_, known)| known.local_comm_id == req.local_comm_id)
            {
                requests.push((datagram, req));
            }
        }
    }
    requests
}

/// What a manager that listens on the ports of NVMe and iSER makes of requests.
fn handle(requests: &[(Datagram, Req)]) -> (Cm, Vec<CmEvent>, Vec<MadOut>) {
    #[expect(clippy::disallowed_methods, reason = "an arbitrary point to count from")]
    let now = Instant::now();
    let mut cm = Cm::new(CmConfig::new(1, 1, PathMtu::Mtu4096));
    for port in [4420, 3260] {
        cm.listen(port).expect("ports are free");
    }
    for (datagram, _) in requests {
        let packet = Packet::parse(&datagram.udp_payload).expect("captures parse");
        cm.handle_mad(now, datagram.meta.src, datagram.meta.dst, packet.payload);
    }
    let events = std::iter::from_fn(|| cm.poll_event()).collect();
    let answers = std::iter::from_fn(|| cm.poll_mad(now)).collect();
    (cm, events, answers)
}

#[test]
fn requests_of_linux_initiators_become_connection_requests() {
    let requests = recorded_requests();
    let ours: Vec<&(Datagram, Req)> = requests
        .iter()
        .filter(|(_, req)| [Some(4420), Some(3260)].contains(&service_port(req.service_id)))
        .collect();
    let mut nvme = 0;
    let mut iser = 0;
    for (datagram, req) in ours {
        let (cm, events, answers) = handle(std::slice::from_ref(&(datagram.clone(), *req)));
        let name = &datagram.name;
        let [CmEvent::ConnectRequest { local, remote, port, peer, private, .. }] = &events[..] else {
            let answers: Vec<_> = answers.iter().map(|out| CmMessage::parse(&out.mad)).collect();
            panic!("{name}: {events:?}, {answers:?}");
        };
        assert!(answers.is_empty(), "{name}");
        assert_eq!((*local, *remote), (datagram.meta.dst, datagram.meta.src), "{name}");
        assert_eq!((peer.qpn, peer.psn), (req.qpn, req.starting_psn), "{name}");
        assert_eq!(cm.connections(), 1);
        // Only kernels say 7 retries and a hash as flow label; the probes among the captures are held to less.
        if *port == 4420 {
            assert_eq!(private[..2], [0, 0], "{name}: NVMe record format 0");
            if peer.responder_resources == 128 {
                nvme += 1;
                assert_eq!((peer.initiator_depth, peer.retry_cnt, peer.rnr_retry), (0, 7, 7), "{name}");
            }
        } else {
            iser += 1;
            assert_eq!((peer.responder_resources, peer.initiator_depth), (128, 1), "{name}");
            assert_eq!((peer.retry_cnt, peer.rnr_retry), (7, 6), "{name}");
            assert_eq!(private[0], 0x80, "{name}: iSER without zero-based virtual addresses");
        }
        // Linux 6.1 says 19, later ones 17.
        if peer.responder_resources == 128 {
            let exponents = [17, 19].map(|exponent| Duration::from_nanos(4096 << exponent));
            assert!(exponents.contains(&peer.ack_timeout), "{name}: {:?}", peer.ack_timeout);
        }
    }
    println!("{nvme} of nvme-rdma, {iser} of ib_iser, {} in all", requests.len());
    assert!(nvme >= 10 && iser >= 1, "{nvme} of nvme-rdma, {iser} of ib_iser");
}
