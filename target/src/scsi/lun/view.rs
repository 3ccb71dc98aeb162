//! What a nexus may do in a unit, as it was at one time: enough for the commands that move blocks.
//!
//! Whoever runs commands keeps one and asks the unit itself for everything that a view does not answer.

use super::{Action, Limits, Lun, Response};
use crate::scsi::cdb::Command;
use crate::scsi::medium::Medium;
use crate::scsi::mode::ModePages;
use crate::scsi::nexus::NexusId;
use crate::scsi::opcodes::{self, Access};
use crate::scsi::sense::{Sense, SenseFormat};
use crate::scsi::transfer::{self, Transfer};

/// A nexus's view of a unit. Valid until anything about the unit changes.
#[derive(Clone, Copy, Debug)]
pub struct View {
    medium: Medium,
    pages: ModePages,
    limits: Limits,
    status: bool,
    read: bool,
    write: bool,
}

impl Lun {
    /// What the nexus sees; `None` while it is to be told something first.
    ///
    /// # Panics
    /// For a nexus that is not attached.
    #[must_use]
    pub fn view(&self, id: NexusId) -> Option<View> {
        let peer = self.nexuses.get(&id).expect(super::ATTACHED);
        peer.attentions.is_empty().then(|| View {
            medium: self.medium,
            pages: self.pages,
            limits: self.limits,
            status: self.reservations.allow(id, Access::Status),
            read: self.reservations.allow(id, Access::Read),
            write: self.reservations.allow(id, Access::Write),
        })
    }
}

impl View {
    /// Takes a command, if it is one that only moves or flushes blocks, and may.
    #[must_use]
    pub fn handle_command(&self, cdb: &[u8]) -> Option<Action> {
        let (operation, command) = opcodes::parse(cdb, self.medium.profile()).ok()?;
        let allowed = match operation.access {
            Access::Free => true,
            Access::Status => self.status,
            Access::Read => self.read,
            Access::Write => self.write,
            Access::Persistent | Access::Legacy => false,
        };
        if !allowed {
            return None;
        }
        let action = of_blocks(&command, &self.medium, &self.pages, &self.limits)?;
        Some(action.unwrap_or_else(|sense| Response::check(sense).into()))
    }

    /// D_SENSE: the format of sense data.
    #[must_use]
    pub const fn sense_format(&self) -> SenseFormat {
        self.pages.sense_format()
    }
}

/// What follows from a command that needs nothing but the medium and the pages; `None` for others.
pub(super) fn of_blocks(
    command: &Command,
    medium: &Medium,
    pages: &ModePages,
    limits: &Limits,
) -> Option<Result<Action, Sense>> {
    Some(match *command {
        Command::TestUnitReady => Ok(Response::good().into()),
        Command::Blocks(blocks) => Transfer::plan(&blocks, medium, pages, limits)
            .map(|plan| plan.map_or_else(|| Response::good().into(), Action::Transfer)),
        Command::SynchronizeCache { lba, blocks } => {
            transfer::check_range(lba, u64::from(blocks), medium).map(|()| Action::Flush { lba, blocks })
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::block::Identity;
    use crate::scsi::lun::LunConfig;
    use crate::scsi::nexus::{InitiatorPort, Nexus};
    use crate::scsi::opcodes::TaskFunctions;
    use crate::scsi::ports::{TargetPort, TargetPorts};
    use crate::scsi::reservations::{Persistence, Reservations};

    const TEST_UNIT_READY: [u8; 16] = [0; 16];
    const READ_10: [u8; 16] = [0x28, 0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
    const WRITE_10: [u8; 16] = [0x2A, 0, 0, 0, 0, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0];
    const RESERVE_10: [u8; 16] = [0x56, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    const INQUIRY: [u8; 16] = [0x12, 0, 0, 0, 36, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

    fn unit() -> Lun {
        let ports = TargetPorts {
            name: "iqn.2026-11.test:t".to_owned(),
            ports: vec![TargetPort { relative: 1, portal_group: 1 }],
        };
        let mut unit = Lun::new(LunConfig {
            medium: Medium::new(64, 512, None).unwrap(),
            identity: Identity::new("", "disk0", None, None),
            ports: Arc::new(ports),
            limits: Limits::new(512, 1 << 20),
            task_functions: TaskFunctions::default(),
            reservations: Reservations::new(Persistence::Volatile),
        });
        for id in [1, 2] {
            let initiator = InitiatorPort::new(format!("iqn.2026-11.test:h{id}"), [0; 6]).unwrap();
            unit.attach(NexusId(id), &Nexus { initiator, target_port: 1 });
        }
        unit
    }

    #[test]
    fn what_is_to_be_told_first_is_the_units_to_tell() {
        let mut unit = unit();
        assert!(unit.view(NexusId(1)).is_none(), "it is new");
        let _ = unit.handle_command(NexusId(1), &TEST_UNIT_READY, &[]);
        assert!(unit.view(NexusId(1)).is_some());
    }

    #[test]
    fn a_view_answers_as_the_unit_does_or_not_at_all() {
        let mut unit = unit();
        for id in [1, 2] {
            let _ = unit.handle_command(NexusId(id), &TEST_UNIT_READY, &[]);
        }
        let view = unit.view(NexusId(1)).unwrap();
        for cdb in [TEST_UNIT_READY, READ_10, WRITE_10] {
            let (seen, answered) =
                (view.handle_command(&cdb).unwrap(), unit.handle_command(NexusId(1), &cdb, &[]));
            assert_eq!(format!("{seen:?}"), format!("{answered:?}"));
        }
        assert!(view.handle_command(&INQUIRY).is_none());
        let _ = unit.handle_command(NexusId(2), &RESERVE_10, &[]);
        let view = unit.view(NexusId(1)).unwrap();
        for cdb in [TEST_UNIT_READY, READ_10, WRITE_10] {
            assert!(view.handle_command(&cdb).is_none(), "the conflict is the unit's to say");
        }
        assert!(unit.view(NexusId(2)).unwrap().handle_command(&READ_10).is_some());
    }
}
