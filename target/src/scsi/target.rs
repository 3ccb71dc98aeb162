//! A SCSI target device: its logical units by number, its nexuses, and what is answered for numbers that have no unit.
//! (SAM-5 "SCSI target device".)

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use thiserror::Error;

use super::cdb::Command;
use super::inquiry;
use super::lun::{Action, ChangeId, Lun, Response, Stored};
use super::luns::{LUN_MAX, LunAddress};
use super::nexus::{Nexus, NexusId};
use super::opcodes::{self, Operation, Profile};
use super::ports::TargetPorts;
use super::reservations::Refusal;
use super::sense::{Sense, SenseFormat, code};
use super::unit_attention::UnitAttention;
use super::vpd;

/// A target device.
#[derive(Debug)]
pub struct Target {
    ports: Arc<TargetPorts>,
    units: BTreeMap<u16, Lun>,
    /// The keys of `units`.
    numbers: Vec<u16>,
    nexuses: BTreeMap<NexusId, Nexus>,
    next_id: u32,
    /// Units that were inserted.
    inserted: u32,
}

/// Nexuses of a target at most.
pub const NEXUSES_MAX: usize = 1024;

/// Why a nexus can't begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AttachError {
    /// There are as many as there may be.
    #[error("the target has {NEXUSES_MAX} nexuses already")]
    Full,
    /// It has begun already, and must end first.
    #[error("the initiator port has a nexus with this target port already")]
    Exists,
    /// The target has no such port.
    #[error("the target has no port {0}")]
    Port(u16),
}

impl Target {
    /// A target without units.
    #[must_use]
    pub fn new(ports: Arc<TargetPorts>) -> Self {
        let (units, numbers, nexuses) = (BTreeMap::new(), Vec::new(), BTreeMap::new());
        Self { ports, units, numbers, nexuses, next_id: 0, inserted: 0 }
    }

    /// Adds a unit, or puts it in the place of another; hosts are told.
    ///
    /// # Panics
    /// For a number above [`LUN_MAX`].
    pub fn insert(&mut self, number: u16, mut unit: Lun) {
        assert!(number <= LUN_MAX, "numbers of units have 14 bits");
        unit.number_changes_from(u64::from(self.inserted) << 32);
        self.inserted = self.inserted.wrapping_add(1);
        self.nexuses.iter().for_each(|(id, nexus)| unit.attach(*id, nexus));
        self.units.insert(number, unit);
        self.units_changed(Some(number));
    }

    /// Takes a unit away; hosts are told by those that are left.
    pub fn remove(&mut self, number: u16) -> Option<Lun> {
        let unit = self.units.remove(&number)?;
        self.units_changed(None);
        Some(unit)
    }

    /// A unit.
    #[must_use]
    pub fn unit(&self, number: u16) -> Option<&Lun> {
        self.units.get(&number)
    }

    /// A unit, to be changed.
    pub fn unit_mut(&mut self, number: u16) -> Option<&mut Lun> {
        self.units.get_mut(&number)
    }

    /// A nexus begins. Its number is not that of another until 2³² have begun.
    ///
    /// # Errors
    /// Too many, the same already, or a target port that there is not.
    pub fn attach(&mut self, nexus: Nexus) -> Result<NexusId, AttachError> {
        if self.ports.find(nexus.target_port).is_none() {
            return Err(AttachError::Port(nexus.target_port));
        }
        if self.nexuses.values().any(|other| *other == nexus) {
            return Err(AttachError::Exists);
        }
        if self.nexuses.len() >= NEXUSES_MAX {
            return Err(AttachError::Full);
        }
        while self.nexuses.contains_key(&NexusId(self.next_id)) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = NexusId(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        self.units.values_mut().for_each(|unit| unit.attach(id, &nexus));
        self.nexuses.insert(id, nexus);
        Ok(id)
    }

    /// A nexus ends.
    pub fn detach(&mut self, id: NexusId) {
        self.units.values_mut().for_each(|unit| unit.detach(id));
        self.nexuses.remove(&id);
    }

    /// Takes a command for the unit that `lun` (the eight bytes of the transport) addresses.
    ///
    /// # Panics
    /// For a nexus that is not attached.
    pub fn handle_command(&mut self, id: NexusId, lun: [u8; 8], cdb: &[u8]) -> Action {
        let nexus = self.nexuses.get(&id).expect("commands come from nexuses that are attached");
        let address = LunAddress::parse(lun);
        let action = match self.unit_at(address) {
            Some(number) => {
                let unit = self.units.get_mut(&number).expect("the number was found");
                unit.handle_command(id, cdb, &self.numbers)
            }
            None => self.without_unit(nexus, address, cdb).unwrap_or_else(Action::from),
        };
        // Who asked knows now, whichever unit was asked.
        if opcodes::is_report_luns(cdb)
            && matches!(&action, Action::Done(response) if response.sense.is_none())
        {
            self.units.values_mut().for_each(|unit| unit.untell(id, UnitAttention::ReportedLunsChanged));
        }
        action
    }

    /// Takes the list of parameters of a command that [`Action::Fetch`] asked for.
    ///
    /// # Panics
    /// For a nexus that is not attached.
    pub fn handle_parameters(
        &mut self,
        id: NexusId,
        lun: [u8; 8],
        operation: &Operation,
        command: &Command,
        list: &[u8],
    ) -> Action {
        // The unit may have gone meanwhile.
        match self.unit_at(LunAddress::parse(lun)).and_then(|number| self.units.get_mut(&number)) {
            Some(unit) => unit.handle_parameters(id, operation, command, list),
            None => Response::check(Sense::new(code::LOGICAL_UNIT_NOT_SUPPORTED)).into(),
        }
    }

    /// Takes what became of a change that [`Action::Store`] asked to store, and says what follows for its command.
    pub fn handle_stored(&mut self, change: ChangeId, stored: Stored) -> Action {
        // The unit may have gone meanwhile, or another stands in its place.
        let taken = self.units.values_mut().find_map(|unit| unit.handle_stored(change, stored));
        taken.unwrap_or_else(|| Response::check(Sense::new(code::LOGICAL_UNIT_NOT_SUPPORTED)).into())
    }

    /// The format of sense data of a unit.
    #[must_use]
    pub fn sense_format(&self, lun: [u8; 8]) -> SenseFormat {
        let number = self.unit_at(LunAddress::parse(lun));
        number.map_or(SenseFormat::Fixed, |number| self.units[&number].sense_format())
    }

    /// The number that an address names, if it has a unit.
    fn unit_at(&self, address: Option<LunAddress>) -> Option<u16> {
        match address {
            Some(LunAddress::Unit(number)) if self.units.contains_key(&number) => Some(number),
            _ => None,
        }
    }

    /// The REPORT LUNS well known logical unit, and numbers that have none.
    fn without_unit(
        &self,
        nexus: &Nexus,
        address: Option<LunAddress>,
        cdb: &[u8],
    ) -> Result<Action, Refusal> {
        let well_known = address == Some(LunAddress::ReportLuns);
        if !well_known && !opcodes::passes_unit_attention(cdb) {
            return Err(Sense::new(code::LOGICAL_UNIT_NOT_SUPPORTED).into());
        }
        let (_, command) = opcodes::parse(cdb, Profile::NoDisk)?;
        let (data, allocation) = match command {
            Command::Inquiry { page: None, allocation } => {
                let data = if well_known { inquiry::well_known() } else { inquiry::no_unit() };
                (data.to_vec(), allocation)
            }
            Command::Inquiry { page: Some(page), allocation } if well_known => {
                let port = self.ports.find(nexus.target_port).expect("a nexus is at a port of its target");
                (vpd::well_known(page, &self.ports, port).ok_or(Sense::in_cdb(2, None))?, allocation)
            }
            Command::ReportLuns { select, allocation } => {
                (select.answer(self.numbers.iter().copied()), allocation)
            }
            Command::RequestSense { format, allocation } => {
                let code =
                    if well_known { code::NO_ADDITIONAL_SENSE } else { code::LOGICAL_UNIT_NOT_SUPPORTED };
                (Sense::new(code).emit(format).as_bytes().to_vec(), allocation)
            }
            Command::TestUnitReady => (Vec::new(), 0),
            _ => return Err(Sense::in_cdb(2, None).into()),
        };
        Ok(Response::data(data, allocation).into())
    }

    /// Units came or went: all but the new one tell their nexuses.
    fn units_changed(&mut self, new: Option<u16>) {
        self.numbers = self.units.keys().copied().collect();
        for (_, unit) in self.units.iter_mut().filter(|(number, _)| Some(**number) != new) {
            self.nexuses.keys().for_each(|id| unit.tell(*id, UnitAttention::ReportedLunsChanged));
        }
    }
}
