//! What the fuzz targets do with their input, so that an ordinary test can do the same with their corpora.
//!
//! Each body takes bytes that a stranger chose and panics when something that must hold does not. `fuzz/` calls them
//! from libFuzzer; `tests/functional/corpus.rs` replays `fuzz/corpus/` and variations of it.

#[path = "fuzz_initiator.rs"]
mod of_initiator;
#[path = "fuzz_iscsi.rs"]
mod of_iscsi;
#[path = "fuzz_protection.rs"]
mod of_protection;
#[path = "fuzz_scsi.rs"]
mod of_scsi;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Instant;

use intact::cli;
use intact::config::{Config, FileState};
use intact::nvmf::command::{Command, DataPointer, MAX_SGL_DESCRIPTORS, QueueKind, SglList};
use intact::nvmf::validate::{IoLimits, IoPlan, NamespaceView, WireForm, validate};
use intact::nvmf::wire::private_data::QueueRequest;
use intact::nvmf::wire::sqe::{SQE_LEN, Sqe};
use rwctx::device::soft::RxMeta;
use rwctx::device::soft::cm::{AcceptParams, Cm, CmConfig, CmEvent, CmId, ConnectParams};
use rwctx::device::soft::icrc::IcrcChecker;
use rwctx::device::soft::wire::cm::CmMessage;
use rwctx::device::soft::wire::{HEADER_MAX, ICRC_LEN, MAD_LEN, Packet, RejReason};
use rwctx::device::{PathMtu, Qpn};
use t10pi::nvme::ExtendedFormats;
use t10pi::{Format, Guard, PiType};
use zerocopy::FromBytes;

pub use of_initiator::{host_login, host_session};
pub use of_iscsi::{login, pdu, session};
pub use of_protection::{decisions, protection, vectors};
pub use of_scsi::scsi;

/// A body: what is done with one input.
pub type Body = fn(&[u8]);

/// Every fuzz target by name, which is also its corpus's folder.
pub const TARGETS: [(&str, Body); 13] = [
    ("packet", packet),
    ("cm", cm),
    ("capsule", capsule),
    ("config", config),
    ("protection", protection),
    ("decisions", decisions),
    ("vectors", vectors),
    ("scsi", scsi),
    ("pdu", pdu),
    ("login", login),
    ("session", session),
    ("host_login", host_login),
    ("host_session", host_session),
];

/// A UDP payload on port 4791.
///
/// # Panics
/// When a packet that parses is not the same after it was emitted and parsed again.
pub fn packet(udp_payload: &[u8]) {
    let mut checker = IcrcChecker::new();
    for address in [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)] {
        let meta = RxMeta { src: address, dst: address, src_port: 0xC000 };
        let _ = checker.check(&meta, udp_payload);
    }
    let Ok(packet) = Packet::parse(udp_payload) else { return };
    let mut header = [0; HEADER_MAX];
    let length = packet.header().emit(&mut header);
    let pad = vec![0; usize::from(packet.bth.pad_count)];
    let again = [&header[..length], packet.payload, &pad, &[0; ICRC_LEN]].concat();
    assert_eq!(Packet::parse(&again), Ok(packet));
}

/// A conversation with a connection manager: steps of a byte each, some followed by a management datagram.
///
/// # Panics
/// When a message that parses is not the same after it was emitted and parsed again, when the manager sends what does
/// not parse, or when its timers stand still.
pub fn cm(script: &[u8]) {
    let mut conversation = Conversation::new();
    let mut rest = script;
    while let Some((step, tail)) = rest.split_first() {
        rest = conversation.step(*step, tail);
    }
    // Whatever was begun comes to an end or stays, but never spins.
    for _ in 0..64 {
        conversation.pass_time();
    }
}

/// One manager, and the last of what it said.
struct Conversation {
    cm: Cm,
    now: Instant,
    asked: Vec<CmId>,
    last: Option<CmId>,
}

impl Conversation {
    const PORT: u16 = 4420;
    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    #[expect(clippy::disallowed_methods, reason = "where virtual time starts does not matter")]
    fn new() -> Self {
        let mut cm = Cm::new(CmConfig::new(1, 1, PathMtu::Mtu4096));
        cm.listen(Self::PORT).expect("nobody listens there yet");
        Self { cm, now: Instant::now(), asked: Vec::new(), last: None }
    }

    /// Takes one step; returns what follows it in the script.
    fn step<'s>(&mut self, step: u8, tail: &'s [u8]) -> &'s [u8] {
        let peer = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2 + (step >> 3 & 1)));
        let mut rest = tail;
        match step & 7 {
            0..=2 => {
                let (mad, behind) = tail.split_at(tail.len().min(MAD_LEN));
                rest = behind;
                self.receive(peer, mad, step & 0x10 != 0);
            }
            3 => self.connect(peer),
            4 => {
                if let Some(id) = self.asked.pop() {
                    let with = AcceptParams {
                        qpn: Qpn(0x12),
                        rq_psn: 1,
                        responder_resources: 1,
                        initiator_depth: 1,
                        private: &[],
                    };
                    let _ = self.cm.accept(self.now, id, &with);
                }
            }
            5 => {
                if let Some(id) = self.asked.pop() {
                    let _ = self.cm.reject(self.now, id, RejReason::Consumer, &[1; 4]);
                }
            }
            6 => {
                if let Some(id) = self.last {
                    let _ = self.cm.disconnect(self.now, id);
                }
            }
            _ => self.pass_time(),
        }
        self.listen();
        rest
    }

    /// `answer`: the datagram is made to speak of our last connection.
    fn receive(&mut self, peer: IpAddr, mad: &[u8], answer: bool) {
        const REMOTE_COMMUNICATION_ID: std::ops::Range<usize> = 28..32;
        let mut mad = mad.to_vec();
        if let (Some(id), Some(field)) = (self.last.filter(|_| answer), mad.get_mut(REMOTE_COMMUNICATION_ID))
        {
            field.copy_from_slice(&id.0.to_be_bytes());
        }
        if let Ok((transaction_id, message)) = CmMessage::parse(&mad) {
            let again: [u8; MAD_LEN] = message.emit(transaction_id);
            assert_eq!(CmMessage::parse(&again), Ok((transaction_id, message)));
        }
        self.cm.handle_mad(self.now, peer, Self::LOCAL, &mad);
    }

    fn connect(&mut self, remote: IpAddr) {
        let to = ConnectParams {
            local: Self::LOCAL,
            remote,
            port: Self::PORT,
            qpn: Qpn(0x11),
            rq_psn: 7,
            path_mtu: PathMtu::Mtu1024,
            responder_resources: 1,
            initiator_depth: 1,
            tos: 0,
            private: &[2; 8],
        };
        self.last = self.cm.connect(self.now, &to).ok().or(self.last);
    }

    fn pass_time(&mut self) {
        let Some(deadline) = self.cm.next_timeout() else { return };
        self.now = self.now.max(deadline);
        self.cm.handle_timeout(self.now);
        assert!(self.cm.next_timeout().is_none_or(|next| next > self.now), "a timer that was due stays due");
        self.listen();
    }

    fn listen(&mut self) {
        while let Some(out) = self.cm.poll_mad(self.now) {
            assert!(
                CmMessage::parse(&out.mad).is_ok() || is_sidr_reply(&out.mad),
                "it sent what does not parse"
            );
        }
        while let Some(event) = self.cm.poll_event() {
            match event {
                CmEvent::ConnectRequest { id, .. } => {
                    self.asked.push(id);
                    self.last = Some(id);
                }
                CmEvent::ConnectReply { id, .. } => {
                    let _ = self.cm.send_rtu(self.now, id);
                }
                CmEvent::Released { id } => self.asked.retain(|asked| *asked != id),
                _ => {}
            }
        }
    }
}

/// The one message that is sent and never taken.
fn is_sidr_reply(mad: &[u8; MAD_LEN]) -> bool {
    const SIDR_REP: [u8; 2] = [0, 0x18];
    mad[16..18] == SIDR_REP
}

/// A byte that chooses queue kind and namespace, then a capsule: a submission queue entry and data behind it, which is
/// also read as a connection's private data.
///
/// # Panics
/// When a plan reaches outside the namespace, the capsule or the limits.
pub fn capsule(input: &[u8]) {
    let Some((choice, capsule)) = input.split_first() else { return };
    let Some((sqe, data)) = capsule.split_first_chunk::<SQE_LEN>() else { return };
    let _ = QueueRequest::parse(data, 128, 128);
    let sqe = Sqe::read_from_bytes(sqe).expect("a submission queue entry has 64 bytes");
    let kind = if choice & 1 == 0 { QueueKind::Admin } else { QueueKind::Io };
    let Ok(Command::Io(command)) = Command::parse(&sqe, kind) else { return };
    let again = Command::parse(&command.emit(), kind);
    assert_eq!(again, Ok(Command::Io(command)));

    const CAPSULE_DATA_MAX: usize = 8192;
    let (mut list, mut sgl_len) = (SglList::new(), command.dptr.length());
    if let Ok(Some(range)) = command.dptr.in_capsule_range(data.len(), CAPSULE_DATA_MAX) {
        assert!(range.start < range.end && range.end <= data.len().min(CAPSULE_DATA_MAX));
        if matches!(command.dptr, DataPointer::LastSegment { .. }) && list.parse(&data[range]).is_ok() {
            sgl_len = list.length();
            let all: u64 = list.segments().iter().map(|segment| u64::from(segment.length)).sum();
            assert_eq!(all, u64::from(sgl_len));
            assert!(list.segments().len() <= MAX_SGL_DESCRIPTORS);
            assert!(
                list.segments().iter().all(|s| s.length > 0 && s.at.checked_add(s.length.into()).is_some())
            );
        }
    }
    let (block_size, metadata_size) =
        [(4096, 0), (512, 8), (4096, 8), (4096, 16)][usize::from(choice >> 1 & 3)];
    let protection = (metadata_size > 0).then(|| {
        let extended = choice & 0x80 != 0;
        let guard = if extended && metadata_size == 16 { Guard::Crc64 } else { Guard::Crc16 };
        let format = Format::new(guard, block_size, metadata_size).expect("there is room for the tuple");
        let storage_tag_bits = if extended { 20 } else { 0 };
        let format = format.with_storage_tag(storage_tag_bits, 0).expect("a size that both guards allow");
        (format, [PiType::Type1, PiType::Type2, PiType::Type3][usize::from(choice >> 3 & 3) % 3])
    });
    let namespace = NamespaceView {
        blocks: 1 << 20,
        block_size,
        metadata_size,
        protection,
        read_only: choice & 0x20 != 0,
    };
    let extended_formats =
        if choice & 0x40 != 0 { ExtendedFormats::Enabled } else { ExtendedFormats::Disabled };
    let limits = IoLimits { max_data: 1 << 20, extended_formats };
    if let Ok(IoPlan::Blocks(plan)) = validate(&command, sgl_len, &namespace, &limits) {
        assert!(plan.blocks > 0 && plan.slba + u64::from(plan.blocks) <= namespace.blocks);
        assert!(plan.data_len <= limits.max_data && plan.data_len == plan.blocks * block_size);
        assert_eq!(plan.metadata_len, plan.blocks * u32::from(metadata_size));
        assert_eq!(plan.wire_len, sgl_len);
        assert_eq!(plan.wire_len == 0, matches!(plan.wire, WireForm::None));
    }
}

/// A configuration file.
///
/// # Panics
/// When errors are not one line each, with a place inside the text.
pub fn config(text: &[u8]) {
    let name = Path::new("fuzz.toml");
    match Config::parse(text, name, &|_| Ok(FileState::Missing)) {
        Ok(config) => {
            assert!(config.needs_restart(&config).is_empty());
            assert!(!cli::plan(&config).is_empty());
        }
        Err(errors) => {
            assert!(!errors.errors().is_empty());
            assert_eq!(errors.to_string().lines().count(), errors.errors().len());
            for error in errors.errors() {
                let place = error.place.expect("an error in a text has a place");
                assert!(place.line > 0 && place.column > 0 && place.line <= text.len() + 1);
            }
        }
    }
}
