//! A target device that several reactors serve at once.
//!
//! Its state stands behind a mutex, which commands that move blocks do not take: each nexus has a [`NexusView`], a copy of
//! what those commands need, and looks whether it is still good by reading one number. Everything that changes what a nexus
//! may do or must be told changes the number before the mutex is free again. All other commands take the mutex, for as long as
//! it takes to answer them.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cdb::Command;
use super::lun::{Action, ChangeId, Limits, Lun, LunConfig, Stored, View};
use super::luns::LunAddress;
use super::medium::{Medium, MediumError};
use super::nexus::{Nexus, NexusId};
use super::opcodes::{self, Access, Operation, Profile, TaskFunctions};
use super::ports::TargetPorts;
use super::reservations::{Reservations, Saved};
use super::sense::SenseFormat;
use super::target::{AttachError, Target};
use super::unit_attention::UnitAttention;
use crate::block::Volume;
use crate::reservation_store::Place;

/// A target device, shared by reactors.
#[derive(Debug)]
pub struct SharedTarget {
    ports: Arc<TargetPorts>,
    /// Bytes of user data that a command moves at most.
    max_transfer: u32,
    /// Changes with everything that views depend on.
    generation: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    target: Target,
    volumes: BTreeMap<u16, Arc<Volume>>,
    /// Where the reservations of units are stored that can store them.
    places: BTreeMap<u16, Arc<Place>>,
}

/// What follows from a command.
#[derive(Debug)]
#[must_use = "a host waits for its answer"]
pub struct Handled {
    /// What is to be done.
    pub action: Action,
    /// The unit's volume; none where there is no unit.
    pub volume: Option<Arc<Volume>>,
    /// How sense data are laid out for this host.
    pub format: SenseFormat,
}

/// A copy of what a nexus's commands on blocks need.
#[derive(Debug, Default)]
pub struct NexusView {
    /// Of which generation; 0 is none.
    generation: u64,
    units: Vec<(u16, View, Arc<Volume>)>,
}

impl SharedTarget {
    /// A target without units.
    #[must_use]
    pub fn new(ports: Arc<TargetPorts>, max_transfer: u32) -> Self {
        let target = Target::new(Arc::clone(&ports));
        let state = Mutex::new(State { target, volumes: BTreeMap::new(), places: BTreeMap::new() });
        Self { ports, max_transfer, generation: AtomicU64::new(1), state }
    }

    /// Whether the unit of this number is this volume already.
    #[must_use]
    pub fn presents(&self, number: u16, volume: &Arc<Volume>) -> bool {
        self.lock().volumes.get(&number).is_some_and(|there| Arc::ptr_eq(there, volume))
    }

    /// Makes its units these volumes, by number: those that are there already stay what they are. New ones begin with the
    /// reservations that `opened` says, and store them there.
    ///
    /// # Errors
    /// The first volume that can't be a unit; nothing has changed then.
    pub fn apply(
        &self,
        units: &BTreeMap<u16, Arc<Volume>>,
        mut opened: impl FnMut(u16) -> (Reservations, Option<Place>),
    ) -> Result<(), (u16, MediumError)> {
        for (number, volume) in units {
            Medium::of(volume).map_err(|error| (*number, error))?;
        }
        let mut state = self.lock();
        let gone: Vec<u16> = state
            .volumes
            .iter()
            .filter(|(number, volume)| units.get(number).is_none_or(|new| !Arc::ptr_eq(new, volume)))
            .map(|(number, _)| *number)
            .collect();
        for number in gone {
            state.volumes.remove(&number);
            state.places.remove(&number);
            state.target.remove(number);
        }
        for (number, volume) in units {
            match state.target.unit_mut(*number) {
                Some(unit) => unit.resize(volume.blocks()),
                None => {
                    let (reservations, place) = opened(*number);
                    let unit = self.unit(volume, reservations).map_err(|error| (*number, error))?;
                    if let Some(place) = place {
                        state.places.insert(*number, Arc::new(place));
                    }
                    state.target.insert(*number, unit);
                    state.volumes.insert(*number, Arc::clone(volume));
                }
            }
        }
        self.changed();
        Ok(())
    }

    /// A nexus begins.
    ///
    /// # Errors
    /// See [`Target::attach`].
    pub fn attach(&self, nexus: Nexus) -> Result<NexusId, AttachError> {
        self.lock().target.attach(nexus)
    }

    /// A nexus ends.
    pub fn detach(&self, id: NexusId) {
        self.lock().target.detach(id);
        self.changed();
    }

    /// Takes a command of a nexus for the unit that `lun` addresses.
    ///
    /// # Panics
    /// For a nexus that is not attached.
    pub fn handle_command(&self, view: &mut NexusView, id: NexusId, lun: [u8; 8], cdb: &[u8]) -> Handled {
        if view.generation != self.generation.load(Ordering::Acquire) {
            self.renew(view, id);
        }
        if let Some(handled) = view.handle_command(lun, cdb) {
            return handled;
        }
        if view.unit(lun).is_none() {
            // The nexus may be told what it was to be told first, and has a view of the unit then.
            view.generation = 0;
        }
        self.ask(id, lun, cdb)
    }

    /// Brings a view up to date, so that it keeps no volume that is gone.
    pub fn renew(&self, view: &mut NexusView, id: NexusId) {
        let state = self.lock();
        view.generation = self.generation.load(Ordering::Acquire);
        view.units.clear();
        let units = state.volumes.iter().filter_map(|(number, volume)| {
            let seen = state.target.unit(*number)?.view(id)?;
            Some((*number, seen, Arc::clone(volume)))
        });
        view.units.extend(units);
    }

    /// Takes the list of parameters of a command that [`Action::Fetch`] asked for.
    ///
    /// # Panics
    /// For a nexus that is not attached.
    pub fn handle_parameters(
        &self,
        id: NexusId,
        lun: [u8; 8],
        operation: &Operation,
        command: &Command,
        list: &[u8],
    ) -> Handled {
        let mut state = self.lock();
        let action = state.target.handle_parameters(id, lun, operation, command, list);
        if !matches!(command, Command::Unmap { .. }) {
            self.changed();
        }
        state.handled(lun, action)
    }

    /// Stores what [`Action::Store`] asks for. The change takes effect when it is stored, whether anybody waits for it any more or
    /// not; `then` is told what follows for the command, on the store's thread, which it must not keep.
    pub fn store(
        self: &Arc<Self>,
        lun: [u8; 8],
        change: ChangeId,
        saved: Box<Saved>,
        then: impl FnOnce(Action) + Send + 'static,
    ) {
        let target = Arc::clone(self);
        let stored = move |stored| then(target.handle_stored(change, stored));
        let place = self.lock().place(lun);
        match place {
            Some(place) => place.store(saved, stored),
            None => stored(Stored::Not),
        }
    }

    fn handle_stored(&self, change: ChangeId, stored: Stored) -> Action {
        let action = self.lock().target.handle_stored(change, stored);
        self.changed();
        action
    }

    /// Whether there is a unit at this address.
    #[must_use]
    pub fn has_unit(&self, lun: [u8; 8]) -> bool {
        self.lock().volume(lun).is_some()
    }

    /// Whether any unit has protection information.
    #[must_use]
    pub fn has_protection(&self) -> bool {
        self.lock().volumes.values().any(|volume| volume.protection().is_some())
    }

    /// A unit is reset; whether there is one.
    pub fn reset_unit(&self, lun: [u8; 8]) -> bool {
        let Some(LunAddress::Unit(number)) = LunAddress::parse(lun) else { return false };
        let mut state = self.lock();
        let Some(unit) = state.target.unit_mut(number) else { return false };
        unit.reset();
        self.changed();
        true
    }

    /// All units are reset.
    pub fn reset(&self) {
        let mut state = self.lock();
        let numbers: Vec<u16> = state.volumes.keys().copied().collect();
        for number in numbers {
            if let Some(unit) = state.target.unit_mut(number) {
                unit.reset();
            }
        }
        self.changed();
    }

    /// A nexus lost commands in a unit because of another one.
    pub fn commands_cleared(&self, id: NexusId, lun: [u8; 8]) {
        let Some(LunAddress::Unit(number)) = LunAddress::parse(lun) else { return };
        if let Some(unit) = self.lock().target.unit_mut(number) {
            unit.tell(id, UnitAttention::CommandsCleared);
        }
        self.changed();
    }

    /// What a view does not answer.
    fn ask(&self, id: NexusId, lun: [u8; 8], cdb: &[u8]) -> Handled {
        let mut state = self.lock();
        let action = state.target.handle_command(id, lun, cdb);
        if opcodes::parse(cdb, Profile::Disk).is_ok_and(|(operation, _)| operation.access == Access::Legacy) {
            self.changed();
        }
        state.handled(lun, action)
    }

    fn unit(&self, volume: &Volume, reservations: Reservations) -> Result<Lun, MediumError> {
        Ok(Lun::new(LunConfig {
            medium: Medium::of(volume)?,
            identity: volume.identity().clone(),
            ports: Arc::clone(&self.ports),
            limits: Limits::new(volume.block_size(), self.max_transfer),
            task_functions: TaskFunctions {
                abort_task: true,
                abort_task_set: true,
                clear_task_set: true,
                unit_reset: true,
            },
            reservations,
        }))
    }

    /// Views are to be renewed.
    fn changed(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic of a reactor ends the process.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn volume(&self, lun: [u8; 8]) -> Option<&Arc<Volume>> {
        match LunAddress::parse(lun) {
            Some(LunAddress::Unit(number)) => self.volumes.get(&number),
            _ => None,
        }
    }

    fn place(&self, lun: [u8; 8]) -> Option<Arc<Place>> {
        match LunAddress::parse(lun) {
            Some(LunAddress::Unit(number)) => self.places.get(&number).cloned(),
            _ => None,
        }
    }

    fn handled(&self, lun: [u8; 8], action: Action) -> Handled {
        Handled { action, volume: self.volume(lun).cloned(), format: self.target.sense_format(lun) }
    }
}

impl NexusView {
    fn handle_command(&self, lun: [u8; 8], cdb: &[u8]) -> Option<Handled> {
        let (_, view, volume) = self.unit(lun)?;
        let action = view.handle_command(cdb)?;
        Some(Handled { action, volume: Some(Arc::clone(volume)), format: view.sense_format() })
    }

    fn unit(&self, lun: [u8; 8]) -> Option<&(u16, View, Arc<Volume>)> {
        let Some(LunAddress::Unit(number)) = LunAddress::parse(lun) else { return None };
        let at = self.units.binary_search_by_key(&number, |(number, ..)| *number).ok()?;
        self.units.get(at)
    }
}
