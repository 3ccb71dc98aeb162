//! One connection of a session: its queue pair, the phase that it is in, and memory for texts.
//!
//! Sends what a state machine says, and hands it what arrives; decides nothing of the protocol.

use std::sync::Arc;

use intact::iscsi::outgoing::Outgoing;
use intact::iscsi::wire::ahs::{self, Ahs};
use intact::iscsi::wire::iser::{Control, IserHeader};
use intact::iscsi::wire::message::HEADERS_LEN;
use rwctx::device::soft::device::SoftDevice;
use rwctx::device::{DeviceError, PostError};
use rwctx::mem::{Mr, Region};
use rwctx::wr::Sge;
use zerocopy::IntoBytes;

use super::keys::{Agreed, RECEIVE_MAX};
use super::login::{Established, Login};
use super::session::{Command, Session};
use crate::host::channel::{Channel, Shape};

/// Bytes of a message ahead of its data: the headers, and an additional one for a CDB of 32 bytes.
const MESSAGE_LEN: u32 = 128;
/// Bytes of a receive: the headers and what was agreed on as the longest data segment.
pub(super) const RECEIVE_LEN: u32 = 76 + RECEIVE_MAX;
const _: () = assert!(HEADERS_LEN == 76);
/// Bytes of a text that we send, at most.
pub(super) const TEXT_LEN: usize = 8192;
/// Receives for what a target says unasked, beside those for answers.
const UNASKED: u32 = 32;
/// Messages of a session's own accord that are outstanding, beside commands.
const CONTROLS: u32 = 16;

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) channel: Channel,
    pub(super) phase: Phase,
    text: Text,
    /// What was to be sent and has no room yet.
    waiting: Option<Outgoing>,
    /// Commands that may be under way at once.
    tasks: usize,
}

/// Where a connection is.
#[derive(Debug)]
pub(super) enum Phase {
    /// It logs in.
    Login(Box<Login>),
    /// It is in the full feature phase.
    Full(Box<Session>, Agreed),
    /// It is logged out.
    Over,
}

/// Memory for data segments of texts, one at a time.
#[derive(Debug)]
struct Text {
    region: Arc<Region>,
    mr: Mr,
    /// The message that carried the last one.
    message: Option<u32>,
}

/// The shape of a connection with so many commands at once.
pub(super) fn shape(tasks: u32) -> Shape {
    Shape {
        messages: (tasks + CONTROLS) * 2,
        message_len: MESSAGE_LEN,
        receives: tasks + UNASKED,
        // Not a power of two: receives would share few lines of the cache.
        receive_len: RECEIVE_LEN.next_multiple_of(64),
        memory: tasks * 4,
    }
}

impl Connection {
    /// A connection that is to log in, for so many commands at once; `region` and `mr` are for texts.
    pub(super) fn new(channel: Channel, login: Login, region: Arc<Region>, mr: Mr, tasks: usize) -> Self {
        let text = Text { region, mr, message: None };
        Self { channel, phase: Phase::Login(Box::new(login)), text, waiting: None, tasks }
    }

    /// Goes to the full feature phase when the login is over.
    pub(super) fn settle(&mut self) {
        if let Phase::Login(login) = &self.phase
            && let Some(Established { agreed, tsih, numbers }) = login.established().copied()
        {
            tracing::debug!(tsih = tsih.0, ?agreed, "logged in");
            self.phase = Phase::Full(Box::new(Session::new(numbers, self.tasks)), agreed);
        }
    }

    /// Its session, if it is in the full feature phase.
    #[inline]
    pub(super) fn session(&mut self) -> Option<&mut Session> {
        match &mut self.phase {
            Phase::Full(session, _) => Some(session),
            Phase::Login(_) | Phase::Over => None,
        }
    }

    /// What was agreed on; nothing before that.
    #[inline]
    pub(super) fn agreed(&self) -> Option<&Agreed> {
        match &self.phase {
            Phase::Full(_, agreed) => Some(agreed),
            Phase::Login(_) | Phase::Over => None,
        }
    }

    /// Whether a command can be sent now.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        let window = match &self.phase {
            Phase::Full(session, _) => session.has_room(),
            Phase::Login(_) | Phase::Over => false,
        };
        window && self.channel.has_room()
    }

    /// Whether a message was acknowledged, so that data behind it may change.
    #[inline]
    pub(super) fn is_acked(&self, number: u32) -> bool {
        self.channel.is_acked(number)
    }

    /// Sends a command, for which there is room: `extended` is what of its CDB has no room in the header, `immediate` data that
    /// it brings along. Returns the message's number.
    #[inline]
    pub(super) fn send_command(
        &mut self,
        device: &mut SoftDevice,
        command: &Command,
        extended: &[u8],
        control: Control,
        immediate: Option<Sge>,
    ) -> Result<u32, PostError> {
        let session = self.session().expect("room was looked for first");
        let mut bhs = session.start_command(command);
        bhs.set_data_len(immediate.map_or(0, |sge| sge.length as usize));
        let additional = if extended.is_empty() {
            Vec::new()
        } else {
            ahs::emit(&[Ahs::ExtendedCdb(extended)]).expect("an extended CDB can be written")
        };
        bhs.total_ahs_length = u8::try_from(additional.len() / 4).expect("CDBs are short");
        let iser = IserHeader::Control(control).emit();
        self.channel.send(device, &[&iser, bhs.as_bytes(), &additional], immediate)
    }

    /// Sends what the phase has to say, as far as there is room; the rest when there is.
    ///
    /// # Errors
    /// When the device does not take it, or a text is longer than [`TEXT_LEN`].
    pub(super) fn flush(&mut self, device: &mut SoftDevice) -> Result<(), FlushError> {
        loop {
            if self.waiting.is_none() {
                self.waiting = match &mut self.phase {
                    Phase::Login(login) => login.poll_transmit(),
                    Phase::Full(session, _) => session.poll_transmit(),
                    Phase::Over => None,
                };
            }
            let Some(outgoing) = &self.waiting else { return Ok(()) };
            let text_is_free = self.text.message.is_none_or(|number| self.channel.is_acked(number));
            if !self.channel.has_room() || (!outgoing.data.is_empty() && !text_is_free) {
                return Ok(());
            }
            let mut bytes = vec![0; outgoing.emitted_len()];
            outgoing.emit(&mut bytes);
            self.waiting = None;
            let (headers, data) = bytes.split_at(HEADERS_LEN);
            if data.len() > TEXT_LEN {
                return Err(FlushError::Text(data.len()));
            }
            let sge = (!data.is_empty()).then(|| self.text.fill(data));
            let number = self.channel.send(device, &[headers], sge)?;
            if sge.is_some() {
                self.text.message = Some(number);
            }
        }
    }
}

/// Why what must be said can't be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FlushError {
    /// The device does not take it.
    Post(PostError),
    /// A text of so many bytes is too long.
    Text(usize),
}

impl From<PostError> for FlushError {
    fn from(error: PostError) -> Self {
        Self::Post(error)
    }
}

impl Text {
    fn fill(&self, data: &[u8]) -> Sge {
        self.region.write(0, data);
        let length = u32::try_from(data.len()).expect("it was looked at");
        Sge { addr: self.mr.addr, length, lkey: self.mr.lkey }
    }
}

/// Memory for texts.
pub(super) fn text_region() -> Result<Arc<Region>, DeviceError> {
    let region = Region::new(TEXT_LEN).map_err(|_| DeviceError::NoResources("memory"))?;
    Ok(Arc::new(region))
}
