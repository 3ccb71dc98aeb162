//! Body of the fuzz target about SCSI: a conversation of two nexuses with a target device.

use std::sync::Arc;

use intact::block::Identity;
use intact::scsi::lun::{Action, ChangeId, Limits, Lun, LunConfig, Response, Stored};
use intact::scsi::medium::Medium;
use intact::scsi::nexus::{InitiatorPort, Nexus, NexusId};
use intact::scsi::opcodes::TaskFunctions;
use intact::scsi::ports::{TargetPort, TargetPorts};
use intact::scsi::reservations::{Persistence, Reservations};
use intact::scsi::sense::{Sense, SenseFormat};
use intact::scsi::status::Status;
use intact::scsi::target::Target;
use t10pi::{Format, Guard, PiType};

const BLOCK_SIZE: u32 = 512;
const MAX_TRANSFER: u32 = 1 << 20;
/// Bytes of a block with its tuple.
const BLOCK_ON_WIRE: u64 = 520;
/// Data of one answer at most: 256 registrations with names of iSCSI's length.
const ANSWER_MAX: usize = 256 * 300;

/// A byte that chooses the medium, then steps: a byte that chooses nexus, unit and what happens; for a command the length of its
/// CDB, the CDB, and the list of parameters that it asks for, as far as the input goes.
///
/// # Panics
/// When an action reaches outside the medium or the limits, writes where nothing may be written, or answers what can't be read.
pub fn scsi(input: &[u8]) {
    let Some((choice, script)) = input.split_first() else { return };
    let mut conversation = Conversation::new(*choice);
    let mut rest = script;
    while let Some((step, tail)) = rest.split_first() {
        rest = conversation.step(*step, tail);
    }
}

struct Conversation {
    target: Target,
    medium: Medium,
    nexuses: [NexusId; 2],
    /// What is being stored.
    storing: Option<ChangeId>,
}

impl Conversation {
    fn new(choice: u8) -> Self {
        let port = TargetPort { relative: 1, portal_group: 1 };
        let ports =
            Arc::new(TargetPorts { name: "iqn.2026-11.io.intact:fuzz".to_owned(), ports: vec![port] });
        let format = Format::new(Guard::Crc16, BLOCK_SIZE, 8).expect("a tuple's metadata");
        let types = [None, Some(PiType::Type1), Some(PiType::Type2), Some(PiType::Type3)];
        let protection = types[usize::from(choice & 3)].map(|pi_type| (format, pi_type));
        let blocks = if choice & 4 == 0 { 1 << 20 } else { u64::MAX };
        let mut medium = Medium::new(blocks, BLOCK_SIZE, protection).expect("tuples of SCSI");
        if choice & 8 != 0 {
            medium = medium.with_write_cache();
        }
        if choice & 16 != 0 {
            medium = medium.with_read_only();
        }
        let persistence = if choice & 32 == 0 { Persistence::Volatile } else { Persistence::Stored };
        let mut target = Target::new(Arc::clone(&ports));
        target.insert(
            0,
            Lun::new(LunConfig {
                medium,
                identity: Identity::new("iqn.2026-11.io.intact:fuzz", "disk0", None, None),
                ports,
                limits: Limits::new(BLOCK_SIZE, MAX_TRANSFER),
                task_functions: TaskFunctions::default(),
                reservations: Reservations::new(persistence),
            }),
        );
        let nexuses = [0, 1].map(|number| target.attach(nexus(number)).expect("there is room"));
        Self { target, medium, nexuses, storing: None }
    }

    /// Takes one step; returns what follows it in the script.
    fn step<'s>(&mut self, step: u8, tail: &'s [u8]) -> &'s [u8] {
        const STILL_STORING: u8 = 1 << 7;
        const CAN_NOT_STORE: u8 = 1 << 6;
        if let Some(change) = self.storing.take_if(|_| step & STILL_STORING == 0) {
            let stored = if step & CAN_NOT_STORE == 0 { Stored::Durably } else { Stored::Not };
            match self.target.handle_stored(change, stored) {
                Action::Done(response) => check_answer(&response),
                Action::Settle { abort } => assert!(!abort.is_empty()),
                other => panic!("a change that was stored moves nothing: {other:?}"),
            }
        }
        let which = usize::from(step & 1);
        match step >> 3 & 7 {
            0..=4 => return self.command(self.nexuses[which], step >> 1 & 3, tail),
            5 => self.target.unit_mut(0).expect("unit 0 stays").reset(),
            6 => {
                self.medium = self.medium.with_blocks(self.medium.blocks() ^ 7);
                self.target.unit_mut(0).expect("unit 0 stays").resize(self.medium.blocks());
            }
            _ => {
                self.target.detach(self.nexuses[which]);
                self.nexuses[which] = self.target.attach(nexus(which)).expect("it has just gone");
            }
        }
        tail
    }

    fn command<'s>(&mut self, id: NexusId, unit: u8, tail: &'s [u8]) -> &'s [u8] {
        const WELL_KNOWN: [u8; 8] = [0xC1, 1, 0, 0, 0, 0, 0, 0];
        let (lun, tail) = match unit {
            0 | 1 => ([0; 8], tail),
            2 => (WELL_KNOWN, tail),
            _ => match tail.split_first_chunk() {
                Some((lun, tail)) => (*lun, tail),
                None => return &[],
            },
        };
        let Some((len, tail)) = tail.split_first() else { return &[] };
        let (cdb, mut rest) = tail.split_at(tail.len().min(usize::from(len % 48)));
        let mut action = self.target.handle_command(id, lun, cdb);
        if let Action::Fetch { operation, command, length } = action {
            assert!(length > 0 && length <= usize::from(u16::MAX));
            let (list, behind) = rest.split_at(rest.len().min(length));
            rest = behind;
            let mut list = list.to_vec();
            list.resize(length, 0);
            action = self.target.handle_parameters(id, lun, operation, &command, &list);
        }
        self.check(id, &action);
        rest
    }

    fn check(&mut self, id: NexusId, action: &Action) {
        let end = self.medium.blocks();
        match action {
            Action::Done(response) => check_answer(response),
            Action::Fetch { .. } => panic!("a list is fetched once"),
            Action::Transfer(transfer) => {
                assert!(transfer.blocks > 0 && transfer.lba + u64::from(transfer.blocks) <= end);
                assert!(transfer.blocks <= Limits::new(BLOCK_SIZE, MAX_TRANSFER).of(transfer.work));
                assert!(!transfer.work.writes() || !self.medium.read_only());
                let most = u64::from(MAX_TRANSFER / BLOCK_SIZE) * BLOCK_ON_WIRE;
                assert!(transfer.to_host <= most && transfer.from_host <= most);
            }
            Action::Flush { lba, blocks } => assert!(lba + u64::from(*blocks) <= end),
            Action::Unmap(extents) => {
                assert!(!extents.is_empty() && extents.len() <= 256 && !self.medium.read_only());
                assert!(extents.iter().all(|e| e.blocks > 0 && e.lba + u64::from(e.blocks) <= end));
            }
            Action::Settle { abort } => assert!(!abort.contains(&id) && !abort.is_empty()),
            Action::Store { change, saved } => {
                Reservations::restore(saved).expect("what is stored can be had again");
                assert!(self.storing.replace(*change).is_none(), "one change after the other");
            }
        }
    }
}

fn check_answer(response: &Response) {
    assert!(response.data.len() <= ANSWER_MAX);
    assert_eq!(response.status == Status::CheckCondition, response.sense.is_some());
    let Some(sense) = response.sense else { return };
    assert!(response.data.is_empty());
    for format in [SenseFormat::Fixed, SenseFormat::Descriptor] {
        assert_eq!(Sense::parse(sense.emit(format).as_bytes()), Some((sense, format)));
    }
}

fn nexus(number: usize) -> Nexus {
    let initiator = InitiatorPort::new(format!("iqn.x:{number}"), [0; 6]).expect("a name that can be");
    Nexus { initiator, target_port: 1 }
}
