//! Everything the target knows of iSCSI: its targets and their sessions; behind a mutex that only logins, the ends of sessions
//! and configuration take.
//!
//! Sessions themselves belong to their reactors; here is only what others need to know of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;

use super::directory::{self, Directory};
use super::name::IscsiName;
use super::sessions::{Admission, AdmitRequest, Sessions};
use super::wire::login::{LoginStatus, Tsih};
use crate::block::Volume;
use crate::reservation_store::{Place, ReservationStore, StoreError};
use crate::scsi::medium::MediumError;
use crate::scsi::nexus::{InitiatorPort, Nexus, NexusId};
use crate::scsi::ports::{TargetPort, TargetPorts};
use crate::scsi::reservations::Reservations;
use crate::scsi::shared::SharedTarget;
use crate::scsi::target::AttachError;
use crate::transport::share::{Peers, peer_group};

/// What is to be exported.
#[derive(Clone, Debug, Default)]
pub struct IscsiConfig {
    /// Where the targets are reached, as hosts are told.
    pub portals: Vec<SocketAddr>,
    /// Targets; their names are unique.
    pub targets: Vec<TargetConfig>,
}

/// What a target is to be.
#[derive(Clone, Debug)]
pub struct TargetConfig {
    /// Name, who may use it, and what they must prove.
    pub target: directory::Target,
    /// Volumes by logical unit number.
    pub units: BTreeMap<u16, Arc<Volume>>,
}

/// What new units begin with, and where they store it.
#[derive(Debug, Default)]
pub struct OpenedReservations(BTreeMap<(IscsiName, u16), (Reservations, Option<Place>)>);

/// A session, for listings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionInfo {
    /// TSIH.
    pub tsih: Tsih,
    /// The host.
    pub initiator: IscsiName,
    /// The target; none for discovery.
    pub target: Option<IscsiName>,
}

/// A nexus of a session with a target.
#[derive(Clone, Debug)]
pub struct Attached {
    /// The target.
    pub target: Arc<SharedTarget>,
    /// The nexus.
    pub id: NexusId,
}

/// Why a session has no nexus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoNexus {
    /// The session that it replaces has not ended.
    NotYet,
    /// The login is refused with this status.
    Refused(LoginStatus),
}

/// The target's iSCSI state.
#[derive(Debug)]
pub struct Registry {
    max_transfer: u32,
    directory: ArcSwap<Directory>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    sessions: Sessions,
    places: BTreeMap<u16, Admitted>,
    targets: BTreeMap<IscsiName, Arc<SharedTarget>>,
}

/// A session, from its admission until nothing of it is left.
#[derive(Debug)]
struct Admitted {
    request: AdmitRequest,
    /// Whose it is, as far as limits go.
    peer: IpAddr,
    attached: Option<Attached>,
}

/// Sessions of all targets together.
const SESSIONS_MAX: u16 = 1024;
/// The one portal group, of all portals.
const PORTAL_GROUP: u16 = 1;
/// RELATIVE TARGET PORT IDENTIFIER of each target's one port.
const TARGET_PORT: u16 = 1;

impl Registry {
    /// Without targets; commands move `max_transfer` bytes of user data at most.
    #[must_use]
    pub fn new(max_transfer: u32) -> Self {
        let directory = Directory {
            targets: Vec::new(),
            portals: Vec::new(),
            portal_group_tag: PORTAL_GROUP,
            discovery_chap: None,
        };
        let sessions = Sessions::new(SESSIONS_MAX);
        let state = State { sessions, places: BTreeMap::new(), targets: BTreeMap::new() };
        Self { max_transfer, directory: ArcSwap::from_pointee(directory), state: Mutex::new(state) }
    }

    /// The reservations that the units begin with that `config` adds. Nothing has changed yet.
    ///
    /// # Errors
    /// A volume's are not to be had.
    pub fn open_reservations(
        &self,
        config: &IscsiConfig,
        store: &ReservationStore,
    ) -> Result<OpenedReservations, StoreError> {
        let targets = self.lock().targets.clone();
        let mut opened = BTreeMap::new();
        for TargetConfig { target, units } in &config.targets {
            let there = targets.get(&target.name);
            for (number, volume) in units {
                if !there.is_some_and(|target| target.presents(*number, volume)) {
                    opened.insert((target.name.clone(), *number), store.open(volume)?);
                }
            }
        }
        Ok(OpenedReservations(opened))
    }

    /// Makes the targets what `config` says: the first time and whenever it changes. Those of the same name live on.
    /// Reactors have to look then which of their sessions may stay ([`Self::is_current`]).
    ///
    /// # Errors
    /// The volume that can't be a logical unit. What was applied before it stays.
    ///
    /// # Panics
    /// When the reservations are those of another configuration.
    pub fn apply(
        &self,
        config: IscsiConfig,
        mut opened: OpenedReservations,
    ) -> Result<(), (Arc<Volume>, MediumError)> {
        let mut state = self.lock();
        let mut targets = BTreeMap::new();
        let mut listed = Vec::new();
        for TargetConfig { target, units } in config.targets {
            let shared = state.targets.get(&target.name).cloned().unwrap_or_else(|| {
                let ports = TargetPorts {
                    name: target.name.as_str().to_owned(),
                    ports: vec![TargetPort { relative: TARGET_PORT, portal_group: PORTAL_GROUP }],
                };
                Arc::new(SharedTarget::new(Arc::new(ports), self.max_transfer))
            });
            let opened = |number| {
                let unit = (target.name.clone(), number);
                opened.0.remove(&unit).expect("the reservations of each new unit were opened")
            };
            shared.apply(&units, opened).map_err(|(number, error)| (Arc::clone(&units[&number]), error))?;
            targets.insert(target.name.clone(), shared);
            listed.push(target);
        }
        state.targets = targets;
        self.directory.store(Arc::new(Directory {
            targets: listed,
            portals: config.portals,
            portal_group_tag: PORTAL_GROUP,
            discovery_chap: None,
        }));
        Ok(())
    }

    /// The targets, as they are now.
    #[must_use]
    pub fn directory(&self) -> Arc<Directory> {
        self.directory.load_full()
    }

    /// Whether a unit of any target has protection information.
    #[must_use]
    pub fn has_protection(&self) -> bool {
        self.lock().targets.values().any(|target| target.has_protection())
    }

    /// Finds a place for a session of a host at `peer`. Whoever gets one gives it up by [`Self::end`].
    ///
    /// # Errors
    /// The status that refuses the login.
    pub fn admit(&self, request: &AdmitRequest, peer: IpAddr) -> Result<Admission, LoginStatus> {
        let mut state = self.lock();
        let mut peers = Peers::default();
        for place in state.places.values() {
            peers.count(place.peer == peer_group(peer));
        }
        let again = state.places.values().any(|place| place.request.nexus == request.nexus);
        if !again && !peers.leave_room(SESSIONS_MAX.into()) {
            return Err(LoginStatus::OutOfResources);
        }
        let admission = state.sessions.admit(request)?;
        let place = Admitted { request: request.clone(), peer: peer_group(peer), attached: None };
        state.places.insert(admission.tsih.0, place);
        Ok(admission)
    }

    /// Gives an admitted session with a target its nexus; `None` for one of discovery.
    ///
    /// # Errors
    /// Why there is none, or not yet.
    pub fn attach(&self, tsih: Tsih) -> Result<Option<Attached>, NoNexus> {
        const GONE: NoNexus = NoNexus::Refused(LoginStatus::NotFound);
        let mut state = self.lock();
        let State { places, targets, .. } = &mut *state;
        let place = places.get_mut(&tsih.0).ok_or(GONE)?;
        let nexus = &place.request.nexus;
        let Some(name) = &nexus.target else { return Ok(None) };
        let target = targets.get(name).ok_or(GONE)?;
        let initiator = InitiatorPort::new(nexus.initiator.as_str(), nexus.isid)
            .map_err(|_| NoNexus::Refused(LoginStatus::InitiatorError))?;
        let id =
            target.attach(Nexus { initiator, target_port: TARGET_PORT }).map_err(|error| match error {
                AttachError::Exists => NoNexus::NotYet,
                AttachError::Full | AttachError::Port(_) => NoNexus::Refused(LoginStatus::OutOfResources),
            })?;
        let attached = Attached { target: Arc::clone(target), id };
        place.attached = Some(attached.clone());
        Ok(Some(attached))
    }

    /// A session has ended, and nothing of it touches blocks or a host's memory any more.
    pub fn end(&self, tsih: Tsih) {
        let mut state = self.lock();
        state.sessions.remove(tsih);
        if let Some(Admitted { attached: Some(Attached { target, id }), .. }) = state.places.remove(&tsih.0) {
            target.detach(id);
        }
    }

    /// Whether a session of `initiator` with `target` may go on.
    #[must_use]
    pub fn is_current(&self, initiator: &IscsiName, name: &IscsiName, target: &Arc<SharedTarget>) -> bool {
        let allowed = self.directory.load().target(name).is_some_and(|target| target.allows(initiator));
        allowed && self.lock().targets.get(name).is_some_and(|current| Arc::ptr_eq(current, target))
    }

    /// The sessions that there are.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let state = self.lock();
        let info = |(tsih, place): (&u16, &Admitted)| SessionInfo {
            tsih: Tsih(*tsih),
            initiator: place.request.nexus.initiator.clone(),
            target: place.request.nexus.target.clone(),
        };
        state.places.iter().map(info).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every operation leaves a valid state at each step, so a panic of another thread does not spoil it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
