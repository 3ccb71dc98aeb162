//! What serving files takes of the kernel, made before a reactor needs it.
//!
//! Owns a ring and memory between the thread that makes them, which may have to wait for the kernel, and the engine that takes
//! them, which must not.

use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::EventFd;
use rwctx::mem::Region;

use super::super::engine::EngineError;
use super::ring::Ring;
use super::{EDGES, POOL, places};

/// What an engine needs to serve files.
#[derive(Debug)]
pub struct FileSetup {
    depth: usize,
    /// What the ring makes readable.
    event: Arc<EventFd>,
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Missing,
    Ready(Box<Prepared>),
    /// The engine has it.
    Taken,
}

/// A ring, and memory for what it merges and fills.
#[derive(Debug)]
pub(in crate::block) struct Prepared {
    pub(super) ring: Ring,
    pub(super) region: Arc<Region>,
}

impl FileSetup {
    pub(in crate::block) fn new(depth: usize, event: Arc<EventFd>) -> Self {
        Self { depth, event, state: Mutex::new(State::Missing) }
    }

    /// Makes what the engine needs, unless that was done. May wait some seconds for memory that the kernel is about to get
    /// back. One caller at a time.
    ///
    /// # Errors
    /// The kernel's refusal, with what to do about it.
    pub fn prepare(&self) -> Result<(), EngineError> {
        if !matches!(*self.state(), State::Missing) {
            return Ok(());
        }
        let system =
            |errno: nix::Error| EngineError::System { operation: "map I/O buffers", source: errno.into() };
        let region = Arc::new(Region::new(POOL).map_err(system)?);
        let ring = Ring::new(2 * places(self.depth) + EDGES, self.event.as_fd())?;
        *self.state() = State::Ready(Box::new(Prepared { ring, region }));
        Ok(())
    }

    /// What was prepared, once.
    pub(in crate::block) fn take(&self) -> Option<Box<Prepared>> {
        let mut state = self.state();
        match std::mem::replace(&mut *state, State::Taken) {
            State::Ready(prepared) => Some(prepared),
            other => {
                *state = other;
                None
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each step leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
