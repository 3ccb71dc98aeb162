//! The connection manager of the verbs device: its listeners, and what the kernel says to its connections.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Instant;

use super::channel::{Event, EventChannel, Id};
use super::connections::{Change, Connections};

/// Requests that the kernel keeps for us, of one listener.
const BACKLOG: i32 = 128;

/// Listeners and connections of one device.
#[derive(Debug)]
pub(super) struct Cm {
    addresses: Vec<IpAddr>,
    listeners: Vec<(u16, Id)>,
    pub(super) connections: Connections<Id>,
    device_removed: bool,
    channel: Arc<EventChannel>,
}

impl Cm {
    /// A manager of connections to these addresses, without listeners.
    pub(super) fn new(channel: Arc<EventChannel>, addresses: Vec<IpAddr>) -> Self {
        Self {
            addresses,
            listeners: Vec::new(),
            connections: Connections::default(),
            device_removed: false,
            channel,
        }
    }

    /// Takes requests for `port` of each address.
    ///
    /// # Errors
    /// What the library says; nothing listens then.
    pub(super) fn listen(&mut self, port: u16) -> io::Result<()> {
        let mut made = Vec::new();
        for &address in &self.addresses {
            let id = Id::bind(&self.channel, SocketAddr::new(address, port))?;
            id.listen(BACKLOG)?;
            made.push((port, id));
        }
        self.listeners.append(&mut made);
        Ok(())
    }

    /// Refuses requests for `port` from now on.
    pub(super) fn unlisten(&mut self, port: u16) {
        self.listeners.retain(|(other, _)| *other != port);
    }

    /// Reads what the kernel has to say, and lets time pass.
    pub(super) fn receive(&mut self, now: Instant) {
        self.connections.handle_timeout(now);
        while let Some(event) = self.channel.poll() {
            match event {
                Event::Request(id, request) => self.connections.handle_request(now, id, &request),
                Event::Change(key, change) => {
                    self.device_removed |= change == Change::DeviceRemoval;
                    self.connections.handle_change(key, change);
                }
                Event::Unreadable(error) => self.connections.failed(&error, "read a request"),
            }
        }
    }

    /// Becomes readable when there is something to [`Self::receive`].
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.channel.fd()
    }

    /// When to call [`Self::receive`] though nothing arrives.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.connections.next_timeout()
    }

    /// Whether the device went away under its listeners or connections.
    pub(super) fn device_removed(&self) -> bool {
        self.device_removed
    }
}
