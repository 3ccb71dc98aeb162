//! Messages between threads: a queue and an event descriptor that wakes a sleeping reactor. Control plane only.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use nix::sys::eventfd::{EfdFlags, EventFd};

/// The receiving end, owned by one thread.
#[derive(Debug)]
pub struct Mailbox<M> {
    receiver: Receiver<M>,
    wake: Wake,
}

/// A sending end; clone it for each sender.
#[derive(Debug)]
pub struct Postbox<M> {
    sender: Sender<M>,
    wake: Wake,
}

/// Wakes the owner of a mailbox without a message.
#[derive(Clone, Debug)]
pub struct Wake {
    event: Arc<EventFd>,
    raised: Arc<AtomicBool>,
}

/// Makes a mailbox and its first sending end.
///
/// # Errors
/// When the kernel gives no event descriptor.
pub fn mailbox<M>() -> nix::Result<(Postbox<M>, Mailbox<M>)> {
    let (sender, receiver) = channel();
    let event = Arc::new(EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?);
    let wake = Wake { event, raised: Arc::new(AtomicBool::new(false)) };
    Ok((Postbox { sender, wake: wake.clone() }, Mailbox { receiver, wake }))
}

impl<M> Clone for Postbox<M> {
    fn clone(&self) -> Self {
        Self { sender: self.sender.clone(), wake: self.wake.clone() }
    }
}

impl<M> Postbox<M> {
    /// Sends a message; it is lost when the receiver has ended, as at shutdown.
    pub fn post(&self, message: M) {
        if self.sender.send(message).is_ok() {
            self.wake.raise();
        }
    }

    /// Wakes the receiver without a message.
    #[must_use]
    pub fn wake(&self) -> Wake {
        self.wake.clone()
    }
}

impl Wake {
    /// Makes the owner's next look at [`Mailbox::take_wake`] true, and ends its sleep.
    pub fn raise(&self) {
        if !self.raised.swap(true, Ordering::AcqRel) {
            // The counter can only be full when nobody has read 2^64 wake-ups: the owner is awake then.
            let _ = self.event.write(1);
        }
    }
}

impl<M> Mailbox<M> {
    /// The next message.
    pub fn take(&self) -> Option<M> {
        self.receiver.try_recv().ok()
    }

    /// Whether somebody raised the wake since the last call; cheap when nobody did.
    pub fn take_wake(&self) -> bool {
        if !self.wake.raised.load(Ordering::Acquire) {
            return false;
        }
        // Drain the descriptor before clearing the flag, so that a raise in between leaves it readable.
        let _ = self.wake.event.read();
        self.wake.raised.swap(false, Ordering::AcqRel)
    }

    /// Becomes readable when somebody raised the wake.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.wake.event.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_raises_the_wake_once_until_it_is_taken() {
        let (post, mail) = mailbox().unwrap();
        assert!(!mail.take_wake());
        post.post(1);
        post.post(2);
        assert!(mail.take_wake());
        assert!(!mail.take_wake());
        assert_eq!((mail.take(), mail.take(), mail.take()), (Some(1), Some(2), None));
        post.wake().raise();
        assert!(mail.take_wake());
        assert_eq!(mail.take(), None);
    }

    #[test]
    fn a_message_from_another_thread_makes_the_descriptor_readable() {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let (post, mail) = mailbox().unwrap();
        let sender = std::thread::spawn(move || post.post(7));
        let mut fds = [PollFd::new(mail.fd(), PollFlags::POLLIN)];
        assert_eq!(poll(&mut fds, PollTimeout::from(10_000u16)).unwrap(), 1);
        sender.join().unwrap();
        assert!(mail.take_wake());
        assert_eq!(mail.take(), Some(7));
    }
}
