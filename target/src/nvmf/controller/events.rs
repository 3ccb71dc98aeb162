//! Asynchronous events (base 5.2): outstanding requests, what is to be reported, and which kinds wait for their log
//! page to be read before they are reported again.

use std::collections::{BTreeSet, VecDeque};

use crate::nvmf::namespace::{NSID_ALL, nsid_list};
use crate::nvmf::wire::identify::{IDENTIFY_LEN, NSID_LIST_LEN};
use crate::nvmf::wire::log_page::{event, lid};
use crate::nvmf::wire::status::Status;

/// Requests that may be outstanding (AERL + 1).
pub(super) const MAX_REQUESTS: usize = 4;

/// A kind of event that this target reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Namespaces were added, removed or resized.
    NamespaceAttribute,
    /// The discovery log changed.
    DiscoveryLog,
}

const KINDS: [Kind; 2] = [Kind::NamespaceAttribute, Kind::DiscoveryLog];

impl Kind {
    pub(super) const fn config_bit(self) -> u32 {
        match self {
            Self::NamespaceAttribute => event::CONFIG_NAMESPACE_ATTRIBUTE,
            Self::DiscoveryLog => event::CONFIG_DISCOVERY_LOG,
        }
    }

    const fn log_page(self) -> u8 {
        match self {
            Self::NamespaceAttribute => lid::CHANGED_NAMESPACES,
            Self::DiscoveryLog => lid::DISCOVERY,
        }
    }

    const fn information(self) -> u8 {
        match self {
            Self::NamespaceAttribute => event::NAMESPACE_ATTRIBUTE_CHANGED,
            Self::DiscoveryLog => event::DISCOVERY_LOG_CHANGED,
        }
    }

    /// DW0 of the completion.
    fn result(self) -> u32 {
        u32::from(event::TYPE_NOTICE) | u32::from(self.information()) << 8 | u32::from(self.log_page()) << 16
    }
}

/// A completed Asynchronous Event Request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AerCompletion {
    /// Command Identifier of the request.
    pub cid: u16,
    /// How it ended.
    pub status: Status,
    /// DW0: type, information and log page of the event.
    pub result: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct KindState {
    pending: bool,
    masked: bool,
}

/// The events of one controller.
#[derive(Debug, Default)]
pub(super) struct Events {
    config: u32,
    requests: VecDeque<u16>,
    completions: VecDeque<AerCompletion>,
    kinds: [KindState; KINDS.len()],
    changed: BTreeSet<u32>,
    changed_overflow: bool,
}

impl Events {
    /// Feature 0Bh's value.
    pub(super) fn config(&self) -> u32 {
        self.config
    }

    pub(super) fn set_config(&mut self, config: u32) {
        self.config = config;
    }

    /// Takes an Asynchronous Event Request; it completes by [`Self::poll_completion`].
    pub(super) fn request(&mut self, cid: u16) -> Result<(), Status> {
        if self.requests.len() >= MAX_REQUESTS {
            return Err(Status::ASYNC_EVENT_LIMIT_EXCEEDED);
        }
        self.requests.push_back(cid);
        self.report();
        Ok(())
    }

    /// Aborts the outstanding request `cid`, if it is one.
    pub(super) fn abort(&mut self, cid: u16) -> bool {
        let Some(at) = self.requests.iter().position(|&other| other == cid) else { return false };
        self.requests.remove(at);
        self.completions.push_back(aborted(cid));
        true
    }

    /// Namespaces were added, removed or changed.
    pub(super) fn namespaces_changed(&mut self, nsids: impl IntoIterator<Item = u32>) {
        for nsid in nsids {
            if self.changed.len() < NSID_LIST_LEN {
                self.changed.insert(nsid);
            } else if !self.changed.contains(&nsid) {
                self.changed_overflow = true;
            }
        }
        self.occurred(Kind::NamespaceAttribute);
    }

    /// The discovery log changed.
    pub(super) fn discovery_log_changed(&mut self) {
        self.occurred(Kind::DiscoveryLog);
    }

    /// The Changed Namespace List page. Reading it without retaining the event empties it.
    pub(super) fn changed_list(&self) -> [u8; IDENTIFY_LEN] {
        if self.changed_overflow {
            return nsid_list(std::iter::once(NSID_ALL));
        }
        nsid_list(self.changed.iter().copied())
    }

    /// A log page was read without retaining its event, so that the event may be reported again.
    pub(super) fn log_page_read(&mut self, page: u8) {
        if page == lid::CHANGED_NAMESPACES {
            self.changed.clear();
            self.changed_overflow = false;
        }
        for kind in KINDS {
            if kind.log_page() == page {
                self.state(kind).masked = false;
            }
        }
        self.report();
    }

    /// A controller reset: outstanding requests end, nothing is configured.
    pub(super) fn reset(&mut self) {
        let requests = std::mem::take(&mut self.requests);
        let mut completions = std::mem::take(&mut self.completions);
        completions.extend(requests.into_iter().map(aborted));
        *self = Self { completions, ..Self::default() };
    }

    pub(super) fn poll_completion(&mut self) -> Option<AerCompletion> {
        self.completions.pop_front()
    }

    fn state(&mut self, kind: Kind) -> &mut KindState {
        match kind {
            Kind::NamespaceAttribute => &mut self.kinds[0],
            Kind::DiscoveryLog => &mut self.kinds[1],
        }
    }

    fn occurred(&mut self, kind: Kind) {
        // While masked, the host has yet to read the page that will show this change as well.
        if self.config & kind.config_bit() != 0 && !self.state(kind).masked {
            self.state(kind).pending = true;
            self.report();
        }
    }

    fn report(&mut self) {
        for kind in KINDS {
            if !self.state(kind).pending {
                continue;
            }
            let Some(cid) = self.requests.pop_front() else { return };
            *self.state(kind) = KindState { pending: false, masked: true };
            let result = kind.result();
            self.completions.push_back(AerCompletion { cid, status: Status::SUCCESS, result });
        }
    }
}

fn aborted(cid: u16) -> AerCompletion {
    AerCompletion { cid, status: Status::COMMAND_ABORT_REQUESTED, result: 0 }
}
