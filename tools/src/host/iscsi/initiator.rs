//! The initiator: this host's device, and its sessions with one target.
//!
//! Owns everything that touches the device: connecting, waiting, completions. Knows commands as bytes of a CDB and memory,
//! not what they mean. Several sessions are independent of each other, as the queues of an NVMe controller are.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use intact::iscsi::chap::{CHALLENGE_LEN, Seed};
use intact::iscsi::name::IscsiName;
use intact::iscsi::wire::iser::Control;
use intact::iscsi::wire::login::Isid;
use intact::iscsi::wire::logout::LogoutResult;
use intact::iscsi::wire::private_data::Abilities;
use intact::iscsi::wire::scsi::Residual;
use rwctx::device::soft::cm::CmId;
use rwctx::device::soft::device::SoftCounters;
use rwctx::device::{Device, RemoteAccess};
use rwctx::mem::{Mr, Region};
use rwctx::remote::Rkey;
use rwctx::wc::{RecvExtra, Wc, WcStatus};
use rwctx::wr::{SendOp, Sge};
use zerocopy::IntoBytes;

use super::chap::Account;
use super::connection::{self, Connection, FlushError, Phase, RECEIVE_LEN, TEXT_LEN};
use super::keys::Agreed;
use super::login::{Login, LoginFault, LoginParams};
use super::session::{Command, Event, TextEnd};
use crate::host::buffers::{Keys, Registrar};
use crate::host::channel::{Channel, Work};
use crate::host::clock;
use crate::host::error::{Fault, HostError, Of};
use crate::host::port::Port;

/// How long a login may take.
const LOGIN_TIMEOUT: Duration = Duration::from_secs(15);
/// How long a text, or a logout, may take.
const TEXT_TIMEOUT: Duration = Duration::from_secs(10);
const LOGOUT_TIMEOUT: Duration = Duration::from_secs(2);
/// Commands that a session may have under way at most: a work request's share of the device.
pub const TASKS_MAX: u32 = 2048;
/// Bytes of the answer to a text at most: a target that goes on for ever is left.
const ANSWER_MAX: usize = 16 << 20;

/// Who talks to whom.
#[derive(Clone, Debug)]
pub struct Parties {
    /// Us.
    pub initiator: IscsiName,
    /// The target; none for discovery.
    pub target: Option<IscsiName>,
    /// What is proved, if anything.
    pub account: Option<Account>,
    /// How the target reaches our memory.
    pub keys: Keys,
}

/// How a command ended; sense data, if there are some, are [`Initiator::sense`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Index of the session that it was sent in.
    pub session: usize,
    /// Its tag.
    pub tag: u32,
    /// SCSI status; none when the target failed.
    pub status: Option<u8>,
    /// By how much the data that moved differs from what was expected.
    pub residual: Residual,
    /// The key that the target invalidated.
    pub invalidated: Option<Rkey>,
}

/// The soft device with the sessions with one target.
#[derive(Debug)]
pub struct Initiator {
    port: Port,
    parties: Parties,
    /// Tells this process's sessions from those of others.
    isid: [u8; 4],
    connections: Vec<Connection>,
    /// What a SEND brought.
    scratch: Box<[u8]>,
    /// Sense data of the last completion that had some.
    sense: Vec<u8>,
    /// The answer to a text, and whether it is whole.
    answer: (Vec<u8>, TextEnd),
}

impl Initiator {
    /// Opens a device on `local`, or on the address that suits the target; nothing is sent yet.
    ///
    /// # Errors
    /// When there is no such address, or it can't be used.
    pub fn reach(
        local: Option<std::net::IpAddr>,
        target: SocketAddr,
        parties: Parties,
    ) -> Result<Self, HostError> {
        Ok(Self {
            port: Port::reach(local, target)?,
            parties,
            isid: random_bytes(),
            connections: Vec::new(),
            scratch: vec![0; RECEIVE_LEN.next_multiple_of(64) as usize].into_boxed_slice(),
            sense: Vec::new(),
            answer: (Vec::new(), TextEnd::Whole),
        })
    }

    /// Connects and logs in; the session may have `tasks` commands at once, 1 to [`TASKS_MAX`]. Returns its index.
    ///
    /// # Errors
    /// When the target refuses, breaks the protocol, or does not answer.
    pub fn open_session(&mut self, tasks: u32) -> Result<usize, HostError> {
        if !(1..=TASKS_MAX).contains(&tasks) {
            return Err(HostError::Invalid(format!(
                "a session has 1 to {TASKS_MAX} commands at once, not {tasks}"
            )));
        }
        let at = self.connections.len();
        let number =
            u16::try_from(at).map_err(|_| HostError::Invalid("at most 65536 sessions".to_owned()))?;
        let port = &mut self.port;
        let shape = connection::shape(tasks);
        let channel = Channel::open(&mut port.device, port.pd, u32::from(number), shape)?;
        let region = connection::text_region()?;
        let mr = port.register(&region, RemoteAccess::default())?;
        let [a, b, c, d] = self.isid;
        let [high, low] = number.to_be_bytes();
        // Of the random kind (RFC 7143 section 11.12.5): a number of this process's, and one of the session.
        let isid = Isid([0x80 | a >> 2, b, c, d, high, low]);
        let Parties { initiator, target, account, keys } = self.parties.clone();
        let seed = Seed { identifier: fastrand::u8(..), challenge: random_bytes::<CHALLENGE_LEN>() };
        let login = Login::new(LoginParams { initiator, target, isid, account, seed });
        let qpn = channel.qpn;
        self.connections.push(Connection::new(channel, login, region, mr, tasks as usize));
        let abilities = Abilities { zero_based: false, invalidate: keys == Keys::PerCommand };
        let connected = self.port.connect(qpn, Of::Session(number), abilities.emit().as_bytes())?;
        self.connections[at].channel.cm = Some(connected.id);
        let peer = Abilities::parse(&connected.private);
        tracing::debug!(session = number, invalidates = peer.invalidate, "connected");
        self.log_in(at)?;
        Ok(at)
    }

    fn log_in(&mut self, at: usize) -> Result<(), HostError> {
        let until = clock::now() + LOGIN_TIMEOUT;
        loop {
            self.flush(at)?;
            // There are no commands yet in this session; those of others are nobody's who waits here.
            while self.next_completion()?.is_some() {}
            if self.connections[at].agreed().is_some() {
                return Ok(());
            }
            self.step(until, "login", LOGIN_TIMEOUT)?;
        }
    }

    /// Asks something by a text, and returns the whole answer.
    ///
    /// # Errors
    /// When the target does not answer, or without end.
    pub fn ask(&mut self, session: usize, text: Vec<u8>) -> Result<Vec<u8>, HostError> {
        let until = clock::now() + TEXT_TIMEOUT;
        self.answer = (Vec::new(), TextEnd::More);
        self.connections[session].session().expect("it was opened").ask(text);
        while self.answer.1 == TextEnd::More {
            self.flush(session)?;
            self.step(until, "text", TEXT_TIMEOUT)?;
            while self.next_completion()?.is_some() {}
        }
        Ok(std::mem::take(&mut self.answer.0))
    }

    /// What was agreed on in a session.
    ///
    /// # Panics
    /// When it is not open.
    #[inline]
    #[must_use]
    pub fn agreed(&self, session: usize) -> &Agreed {
        self.connections[session].agreed().expect("it was opened")
    }

    /// How the target reaches our memory.
    #[must_use]
    pub fn keys(&self) -> Keys {
        self.parties.keys
    }

    /// Sums of the device.
    #[must_use]
    pub fn counters(&self) -> SoftCounters {
        self.port.counters()
    }

    /// Sense data of the last completion that had some.
    #[must_use]
    pub fn sense(&self) -> &[u8] {
        &self.sense
    }

    /// Whether a session takes another command now. If not, it does when earlier ones have ended, or their messages are
    /// acknowledged; taking completions brings that about.
    #[inline]
    #[must_use]
    pub fn has_room(&self, session: usize) -> bool {
        self.connections[session].has_room()
    }

    /// Sends a command, for which there is room, with the next [`Self::transmit`]: `extended` is what of its CDB has no room
    /// in a header, `control` names memory, `immediate` is data that it brings along, which may change when its message,
    /// whose number is returned, is acknowledged.
    ///
    /// # Errors
    /// When the queue pair failed.
    #[inline]
    pub fn submit(
        &mut self,
        session: usize,
        command: &Command,
        extended: &[u8],
        control: Control,
        immediate: Option<Sge>,
    ) -> Result<u32, HostError> {
        let device = &mut self.port.device;
        Ok(self.connections[session].send_command(device, command, extended, control, immediate)?)
    }

    /// Whether a message will not be sent again, so that immediate data behind it may change.
    #[inline]
    #[must_use]
    pub fn is_acked(&self, session: usize, message: u32) -> bool {
        self.connections[session].is_acked(message)
    }

    /// Receives what is there, without waiting.
    #[inline]
    pub fn receive(&mut self, now: Instant) {
        self.port.device.receive(now);
    }

    /// Takes the next completion of a command. What else a target says is dealt with on the way.
    ///
    /// # Errors
    /// When a connection broke, a login was refused, or the target breaks the protocol.
    #[inline]
    pub fn next_completion(&mut self) -> Result<Option<Completion>, HostError> {
        while let Some(wc) = self.port.device.poll_cq() {
            let (index, work) = Channel::work(wc.wr_id);
            if wc.status != WcStatus::Success {
                return Err(self.work_failed(index, wc.status));
            }
            match work {
                Work::Receive(slot) => {
                    if let Some(completion) = self.take_message(index, slot, &wc)? {
                        return Ok(Some(completion));
                    }
                }
                Work::Message(number) => {
                    self.connections[index].channel.on_acked(number);
                    self.flush(index)?;
                }
                Work::Memory => {}
            }
        }
        Ok(None)
    }

    fn take_message(&mut self, index: usize, slot: u32, wc: &Wc) -> Result<Option<Completion>, HostError> {
        let target = self.port.target();
        let broken = |what: String| HostError::Protocol { target, what };
        let Self { connections, port, scratch, sense, answer, .. } = self;
        let connection = &mut connections[index];
        let bytes = &mut scratch[..wc.byte_len as usize];
        connection.channel.on_receive(&mut port.device, slot, bytes)?;
        let session = match &mut connection.phase {
            Phase::Login(login) => {
                login.handle_message(bytes).map_err(|fault| match fault {
                    LoginFault::Refused(status) => HostError::Login(status),
                    fault => broken(fault.to_string()),
                })?;
                connection.settle();
                self.flush(index)?;
                return Ok(None);
            }
            Phase::Full(session, _) => session,
            Phase::Over => return Ok(None),
        };
        match session.handle_message(bytes).map_err(|fault| broken(fault.to_string()))? {
            Event::Done(done) => {
                if !done.sense.is_empty() || done.status != Some(super::GOOD) {
                    sense.clear();
                    sense.extend_from_slice(done.sense);
                }
                let invalidated = match wc.extra {
                    RecvExtra::Invalidated(key) => Some(key),
                    RecvExtra::None | RecvExtra::Imm(_) => None,
                };
                return Ok(Some(Completion {
                    session: index,
                    tag: done.tag,
                    status: done.status,
                    residual: done.residual,
                    invalidated,
                }));
            }
            Event::Nothing => {}
            Event::Text(part, end) => {
                if answer.0.len() + part.len() > ANSWER_MAX {
                    return Err(broken(format!("its answer to a text is longer than {ANSWER_MAX} bytes")));
                }
                answer.0.extend_from_slice(part);
                answer.1 = end;
            }
            Event::LoggedOut(result) => {
                if result != LogoutResult::Closed {
                    tracing::warn!(?result, "the target did not close the session");
                }
                connection.phase = Phase::Over;
            }
            Event::Rejected(reason, opcode) => return Err(HostError::Rejected { opcode, reason }),
            Event::LogoutWanted(seconds) => {
                tracing::warn!(seconds, "the target asks for the session's end");
            }
            Event::Dropped => return Err(self.broken(index, Fault::Disconnected)),
        }
        self.flush(index)?;
        Ok(None)
    }

    /// Sends what a session has to say of its own accord.
    fn flush(&mut self, index: usize) -> Result<(), HostError> {
        self.connections[index].flush(&mut self.port.device).map_err(|error| match error {
            FlushError::Post(error) => error.into(),
            FlushError::Text(length) => HostError::Invalid(format!(
                "names and secrets make a login of {length} bytes, more than the {TEXT_LEN} that it may have"
            )),
        })
    }

    /// Sends, sleeps until something happens, receives, and sees to it that the sessions are still there.
    ///
    /// # Errors
    /// When one is not, or it is `until`, of which `after` is said.
    pub fn step(&mut self, until: Instant, what: &'static str, after: Duration) -> Result<(), HostError> {
        self.port.drive(until)?;
        let now = clock::now();
        self.check(now)?;
        if now >= until {
            return Err(HostError::Timeout { target: self.port.target(), what, after });
        }
        Ok(())
    }

    /// Sees to it that the sessions are still there.
    ///
    /// # Errors
    /// When one is not.
    pub fn check(&mut self, now: Instant) -> Result<(), HostError> {
        while let Some(id) = self.port.poll_lost(now) {
            let at = self.connections.iter().position(|connection| connection.channel.cm == Some(id));
            if let Some(at) = at {
                self.connections[at].channel.cm = None;
                if !matches!(self.connections[at].phase, Phase::Over) {
                    return Err(self.lost(at));
                }
            }
        }
        Ok(())
    }

    /// The target closed a connection. What it said before may say why.
    #[cold]
    fn lost(&mut self, at: usize) -> HostError {
        loop {
            match self.next_completion() {
                Ok(Some(_)) => {}
                Ok(None) | Err(HostError::Broken { .. }) => return self.broken(at, Fault::Disconnected),
                Err(error) => return error,
            }
        }
    }

    /// A failed work request; that of a connection which the target closed is told as that.
    #[cold]
    fn work_failed(&mut self, index: usize, status: WcStatus) -> HostError {
        if self.port.poll_lost(clock::now()).is_some() || self.connections[index].channel.cm.is_none() {
            return self.broken(index, Fault::Disconnected);
        }
        self.broken(index, Fault::Work(status))
    }

    fn broken(&self, index: usize, fault: Fault) -> HostError {
        let number = u16::try_from(index).expect("at most 65536 sessions");
        HostError::Broken { target: self.port.target(), of: Of::Session(number), fault }
    }

    /// Logs out of all sessions, disconnects, and waits a moment for the target to confirm it.
    pub fn close(mut self) {
        if let Err(error) = self.log_out() {
            tracing::debug!(%error, "not logged out");
        }
        let open = self.disconnect();
        self.port.await_goodbye(open);
    }

    fn log_out(&mut self) -> Result<(), HostError> {
        let until = clock::now() + LOGOUT_TIMEOUT;
        for index in 0..self.connections.len() {
            if let Some(session) = self.connections[index].session() {
                session.log_out();
                self.flush(index)?;
            }
        }
        while self.connections.iter().any(|connection| matches!(connection.phase, Phase::Full(..))) {
            self.step(until, "logout", LOGOUT_TIMEOUT)?;
            while self.next_completion()?.is_some() {}
        }
        Ok(())
    }

    /// Tells the target that all connections end; what is left is not asked again. Returns those that were there.
    fn disconnect(&mut self) -> Vec<CmId> {
        let channels = self.connections.iter().map(|connection| &connection.channel);
        self.port.disconnect(channels.map(|channel| (channel.qpn, channel.cm)));
        self.connections.iter_mut().filter_map(|connection| connection.channel.cm.take()).collect()
    }
}

impl Registrar for Initiator {
    fn target(&self) -> SocketAddr {
        self.port.target()
    }

    fn register(&mut self, region: &Arc<Region>, remote: RemoteAccess) -> Result<Mr, HostError> {
        self.port.register(region, remote)
    }

    fn alloc_fast_reg(&mut self) -> Result<Mr, HostError> {
        self.port.alloc_fast_reg()
    }

    fn deregister(&mut self, mr: &Mr) -> Result<(), HostError> {
        self.port.deregister(mr)
    }

    #[inline]
    fn post_memory(&mut self, session: usize, op: SendOp, memory: &[Sge]) -> Result<(), HostError> {
        Ok(self.connections[session].channel.post_memory(&mut self.port.device, op, memory)?)
    }

    #[inline]
    fn transmit(&mut self, now: Instant) {
        self.port.device.transmit(now);
    }
}

impl Drop for Initiator {
    fn drop(&mut self) {
        if self.connections.iter().any(|connection| connection.channel.cm.is_some()) {
            self.disconnect();
        }
    }
}

/// Random bytes of the operating system's; where it has none, of a generator that it seeded.
fn random_bytes<const N: usize>() -> [u8; N] {
    use std::io::Read;
    let mut bytes = [0; N];
    let read = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    if read.is_err() {
        fastrand::fill(&mut bytes);
    }
    bytes
}
