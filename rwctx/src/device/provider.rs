//! A device, its connection manager and its descriptors, as the one thread drives them that owns them.
//!
//! A round of that thread: [`Provider::receive`], then completions and events, posting and calls of the connection manager,
//! then [`Provider::transmit`]. Generic code over this trait is compiled for each provider: a call costs nothing.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use super::soft::cm::{AcceptParams, CmCounters, CmError, CmEvent, CmId};
use super::soft::device::SoftCounters;
use super::soft::driver::More;
use super::{Device, Qpn};

/// A device that a reactor can run on.
pub trait Provider: Device + fmt::Debug + Send + 'static {
    /// Takes what arrived, and lets timers expire. Completions wait in [`Device::poll_cq`] then.
    fn receive(&mut self, now: Instant) -> More;

    /// Sends what was posted and answered since the last call.
    fn transmit(&mut self, now: Instant);

    /// Descriptors that become readable when there is something to do: the same for the device's life.
    fn wake_fds(&self) -> impl Iterator<Item = BorrowedFd<'_>>;

    /// Whether something waits to be sent that no descriptor tells of: call [`Self::transmit`] again soon.
    fn has_unsent(&self) -> bool;

    /// From now on [`Self::wake_fds`] tell of whatever comes. Call it before each sleep.
    fn prepare_sleep(&mut self) -> Sleep;

    /// A sleep was ended by one of [`Self::wake_fds`].
    fn woken(&mut self);

    /// Which number the next queue pair shall have, where it was promised to a peer that may not exist.
    fn number_next_qp(&mut self, qpn: Option<Qpn>);

    /// Why the device can't be used any more, once it can't.
    fn failure(&self) -> Option<&str>;

    /// Sums.
    fn counters(&self) -> ProviderCounters;

    /// Takes connection requests for `port` of each local address; on reactor 0, as all that follows.
    ///
    /// # Errors
    /// When somebody else does.
    fn listen(&mut self, port: u16) -> io::Result<()>;

    /// Refuses requests for `port` from now on. Those reported already go on.
    fn unlisten(&mut self, port: u16);

    /// Accepts a request; the queue pair can already receive.
    ///
    /// # Errors
    /// See [`CmError`]; events say what became of the connection.
    fn accept(&mut self, now: Instant, id: CmId, with: &AcceptParams<'_>) -> Result<(), CmError>;

    /// Refuses a request for reasons of ours, which `private` gives. It has no further event.
    ///
    /// # Errors
    /// See [`CmError`].
    fn reject(&mut self, now: Instant, id: CmId, private: &[u8]) -> Result<(), CmError>;

    /// Ends a connection.
    ///
    /// # Errors
    /// See [`CmError`].
    fn disconnect(&mut self, now: Instant, id: CmId) -> Result<(), CmError>;

    /// The peer's first request came on the connection's queue pair: that is as good as its last message of the handshake.
    fn handle_qp_traffic(&mut self, now: Instant, id: CmId);

    /// Takes the connection manager's next event.
    fn poll_cm_event(&mut self, now: Instant) -> Option<CmEvent>;
}

/// Whether a thread may sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sleep {
    /// Until a descriptor is readable.
    Ready,
    /// Something came meanwhile.
    NotNow,
}

/// Counters of a device: of its kind alone.
#[derive(Clone, Debug, Default)]
pub struct ProviderCounters {
    /// Of the soft device.
    pub soft: Option<SoftCounters>,
    /// Of the soft device's connection manager, on reactor 0.
    pub cm: Option<CmCounters>,
    /// Of a verbs device.
    pub verbs: Option<VerbsCounters>,
}

/// Counters of a verbs device, from the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerbsCounters {
    /// Send work requests posted.
    pub sends: u64,
    /// Calls that posted them: a call posts all that a queue pair has.
    pub send_calls: u64,
    /// Receives posted.
    pub receives: u64,
    /// Completions.
    pub completions: u64,
    /// Those with an error other than a flush.
    pub failures: u64,
    /// Notifications of completions, which a sleeping reactor asked for.
    pub notifications: u64,
    /// Queue pairs that the device said failed.
    pub qp_failures: u64,
    /// Times that a port went down.
    pub port_errors: u64,
    /// Connection requests.
    pub requests: u64,
    /// Those refused because too many of others were under way.
    pub crowded_out: u64,
    /// Those that made room for others, as their peers had not confirmed yet.
    pub displaced: u64,
    /// Those whose peers did not confirm in time.
    pub expired: u64,
    /// Calls of the connection manager that came to nothing.
    pub cm_failures: u64,
    /// Memory regions now.
    pub memory_regions: u64,
}
