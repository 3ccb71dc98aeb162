//! A logical unit that presents a volume: commands of nexuses in, answers and what is to be moved out.
//!
//! Owns mode pages, reservations and unit attention conditions. Never moves data, stores or aborts anything: an [`Action`]
//! says what is to be done. The order of the checks: unit attention, CDB, reservations, the command itself. (SAM-5,
//! SPC-4.)

mod action;
mod change;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use self::action::{Action, Limits, Response};
use self::change::Change;
pub use self::change::{ChangeId, Stored};
pub use self::view::View;
use super::capacity;
use super::cdb::{Command, ModeSelect, PersistentOut};
use super::inquiry;
use super::lba_status;
use super::medium::Medium;
use super::mode::ModePages;
use super::nexus::{Nexus, NexusId};
use super::opcodes::{self, Operation, TaskFunctions};
use super::ports::{TargetPort, TargetPorts};
use super::reservations::{Refusal, Reservations};
use super::sense::{Sense, SenseFormat, code};
use super::transfer;
use super::unit_attention::{UnitAttention, UnitAttentions};
use super::unmap;
use super::vpd::Described;
use crate::block::Identity;

/// What a logical unit is to be.
#[derive(Clone, Debug)]
pub struct LunConfig {
    /// Its volume.
    pub medium: Medium,
    /// What names it.
    pub identity: Identity,
    /// The target that it belongs to.
    pub ports: Arc<TargetPorts>,
    /// What commands may be at most.
    pub limits: Limits,
    /// What the transport carries out.
    pub task_functions: TaskFunctions,
    /// None, or those of before a restart.
    pub reservations: Reservations,
}

/// A logical unit.
#[derive(Debug)]
pub struct Lun {
    medium: Medium,
    identity: Identity,
    ports: Arc<TargetPorts>,
    limits: Limits,
    task_functions: TaskFunctions,
    pages: ModePages,
    reservations: Reservations,
    /// The change of them that is being stored.
    change: Option<Change>,
    next_change: u64,
    nexuses: BTreeMap<NexusId, Peer>,
}

/// A nexus, as this unit knows it.
#[derive(Clone, Debug)]
struct Peer {
    nexus: Nexus,
    port: TargetPort,
    attentions: UnitAttentions,
}

/// A nexus is unknown: nobody attached it, or it is gone.
const ATTACHED: &str = "commands come from nexuses that are attached";

impl Lun {
    /// A unit that nobody uses yet.
    #[must_use]
    pub fn new(config: LunConfig) -> Self {
        let pages = ModePages::new(&config.medium);
        Self {
            medium: config.medium,
            identity: config.identity,
            ports: config.ports,
            limits: config.limits,
            task_functions: config.task_functions,
            pages,
            reservations: config.reservations,
            change: None,
            next_change: 0,
            nexuses: BTreeMap::new(),
        }
    }

    /// A nexus begins. Its first command is told so.
    ///
    /// # Panics
    /// When the nexus has a target port that the target has not.
    pub fn attach(&mut self, id: NexusId, nexus: &Nexus) {
        let port = *self.ports.find(nexus.target_port).expect("a nexus is at a port of its target");
        let mut attentions = UnitAttentions::default();
        attentions.add(UnitAttention::PowerOn);
        self.reservations.attach(id, nexus);
        if let Some(change) = &mut self.change {
            change.attach(id, nexus);
        }
        self.nexuses.insert(id, Peer { nexus: nexus.clone(), port, attentions });
    }

    /// A nexus ends: what it was to be told is forgotten, its registration is not.
    pub fn detach(&mut self, id: NexusId) {
        self.reservations.detach(id);
        if let Some(change) = &mut self.change {
            change.detach(id);
        }
        self.nexuses.remove(&id);
    }

    /// The unit is reset (LOGICAL UNIT RESET): mode pages have their defaults, RESERVE's reservation is gone, and every nexus is
    /// told.
    pub fn reset(&mut self) {
        self.pages = ModePages::new(&self.medium);
        self.reservations.reset();
        self.tell_others(None, UnitAttention::UnitReset);
    }

    /// The volume has another size: every nexus is told.
    pub fn resize(&mut self, blocks: u64) {
        if self.medium.blocks() != blocks {
            self.medium = self.medium.with_blocks(blocks);
            self.tell_others(None, UnitAttention::CapacityChanged);
        }
    }

    /// A nexus is to be told something before its next command.
    pub fn tell(&mut self, id: NexusId, attention: UnitAttention) {
        if let Some(peer) = self.nexuses.get_mut(&id) {
            peer.attentions.add(attention);
        }
    }

    /// A nexus knows already.
    pub(super) fn untell(&mut self, id: NexusId, attention: UnitAttention) {
        if let Some(peer) = self.nexuses.get_mut(&id) {
            peer.attentions.remove(attention);
        }
    }

    /// Takes a command; `numbers` are those of the target's units, for REPORT LUNS.
    ///
    /// # Panics
    /// For a nexus that is not attached.
    pub fn handle_command(&mut self, id: NexusId, cdb: &[u8], numbers: &[u16]) -> Action {
        // A command that can't be read is told of what waits as well, unless it may pass.
        if !opcodes::passes_unit_attention(cdb)
            && let Some(attention) = self.peer(id).attentions.take()
        {
            return Response::check(Sense::new(attention.code())).into();
        }
        let (operation, command) = match opcodes::parse(cdb, self.medium.profile()) {
            Ok(read) => read,
            Err(sense) => return Response::check(sense).into(),
        };
        if !self.reservations.allow(id, operation.access) {
            return Response::conflict().into();
        }
        match command.parameter_list_len() {
            0 => self.execute(id, &command, &[], numbers).unwrap_or_else(Action::from),
            length => Action::Fetch { operation, command, length },
        }
    }

    /// Takes the list of parameters of a command that [`Action::Fetch`] asked for.
    ///
    /// # Panics
    /// For a nexus that is not attached.
    pub fn handle_parameters(
        &mut self,
        id: NexusId,
        operation: &Operation,
        command: &Command,
        list: &[u8],
    ) -> Action {
        // Meanwhile somebody else may have reserved the unit.
        if !self.reservations.allow(id, operation.access) {
            return Response::conflict().into();
        }
        if list.len() != command.parameter_list_len() {
            return Response::check(Sense::new(code::PARAMETER_LIST_LENGTH_ERROR)).into();
        }
        self.execute(id, command, list, &[]).unwrap_or_else(Action::from)
    }

    /// D_SENSE: the format of sense data, but for those of REQUEST SENSE.
    #[must_use]
    pub const fn sense_format(&self) -> SenseFormat {
        self.pages.sense_format()
    }

    /// What it presents.
    #[must_use]
    pub const fn medium(&self) -> &Medium {
        &self.medium
    }

    fn execute(
        &mut self,
        id: NexusId,
        command: &Command,
        list: &[u8],
        numbers: &[u16],
    ) -> Result<Action, Refusal> {
        if let Some(action) = view::of_blocks(command, &self.medium, &self.pages, &self.limits) {
            return Ok(action?);
        }
        let (data, allocation) = match *command {
            Command::StartUnit => (Vec::new(), 0),
            Command::RequestSense { format, allocation } => (self.request_sense(id, format), allocation),
            Command::Inquiry { page, allocation } => (self.inquiry(id, page)?, allocation),
            Command::ReportLuns { select, allocation } => {
                (select.answer(numbers.iter().copied()), allocation)
            }
            Command::ModeSense(sense) => (self.pages.sense(&sense, &self.medium)?, sense.allocation),
            Command::ModeSelect(select) => {
                self.mode_select(id, select, list)?;
                (Vec::new(), 0)
            }
            Command::ReadCapacity10 => (capacity::read_capacity_10(&self.medium).to_vec(), usize::MAX),
            Command::ReadCapacity16 { allocation } => {
                (capacity::read_capacity_16(&self.medium).to_vec(), allocation)
            }
            Command::ReportPortGroups { extended, allocation } => {
                (self.ports.report_groups(extended), allocation)
            }
            Command::ReportOpcodes { request, allocation } => {
                (request.answer(self.medium.profile())?, allocation)
            }
            Command::ReportTaskFunctions { extended, allocation } => {
                (self.task_functions.answer(extended), allocation)
            }
            Command::Reserve => {
                self.may_change()?;
                self.reservations.reserve_legacy(id)?;
                (Vec::new(), 0)
            }
            Command::Release => {
                self.may_change()?;
                self.reservations.release_legacy(id)?;
                (Vec::new(), 0)
            }
            Command::PersistentIn { of, allocation } => (self.reservations.report(of), allocation),
            Command::PersistentOut(out) => return self.persistent_out(id, &out, list),
            Command::TestUnitReady | Command::Blocks(_) | Command::SynchronizeCache { .. } => {
                unreachable!("a command on blocks was planned")
            }
            Command::Prefetch { lba, blocks } => {
                transfer::check_range(lba, u64::from(blocks), &self.medium)?;
                // GOOD, and not CONDITION MET: no block is held in a cache for it.
                (Vec::new(), 0)
            }
            Command::LbaStatus { lba, allocation } => (lba_status::report(lba, &self.medium)?, allocation),
            Command::Unmap { .. } => {
                transfer::check_writable(&self.medium, &self.pages)?;
                let extents = unmap::extents(list, &self.medium, &self.limits)?;
                return Ok(if extents.is_empty() { Response::good().into() } else { Action::Unmap(extents) });
            }
        };
        Ok(Response::data(data, allocation).into())
    }

    /// Sense data as data: what the nexus is to be told, or nothing.
    fn request_sense(&mut self, id: NexusId, format: SenseFormat) -> Vec<u8> {
        let attention = self.peer(id).attentions.take();
        let code = attention.map_or(code::NO_ADDITIONAL_SENSE, UnitAttention::code);
        Sense::new(code).emit(format).as_bytes().to_vec()
    }

    fn inquiry(&mut self, id: NexusId, page: Option<u8>) -> Result<Vec<u8>, Sense> {
        let Some(page) = page else { return Ok(inquiry::disk(&self.medium, &self.ports).to_vec()) };
        let port = self.peer(id).port;
        let described = Described {
            medium: &self.medium,
            identity: &self.identity,
            ports: &self.ports,
            port: &port,
            limits: &self.limits,
        };
        described.page(page).ok_or(Sense::in_cdb(2, None))
    }

    fn mode_select(&mut self, id: NexusId, command: ModeSelect, list: &[u8]) -> Result<(), Sense> {
        let pages = self.pages.select(command.form, list, &self.medium)?;
        if pages != self.pages {
            self.pages = pages;
            self.tell_others(Some(id), UnitAttention::ModeParametersChanged);
        }
        Ok(())
    }

    fn persistent_out(
        &mut self,
        id: NexusId,
        command: &PersistentOut,
        list: &[u8],
    ) -> Result<Action, Refusal> {
        self.may_change()?;
        let nexus = &self.nexuses.get(&id).expect(ATTACHED).nexus;
        let mut reservations = self.reservations.clone();
        let outcome = reservations.out(id, nexus, command, list)?;
        Ok(self.change(reservations, outcome))
    }

    fn tell_others(&mut self, but: Option<NexusId>, attention: UnitAttention) {
        let others = self.nexuses.iter_mut().filter(|(id, _)| Some(**id) != but);
        others.for_each(|(_, peer)| peer.attentions.add(attention));
    }

    fn peer(&mut self, id: NexusId) -> &mut Peer {
        self.nexuses.get_mut(&id).expect(ATTACHED)
    }
}
