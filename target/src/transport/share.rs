//! What one peer may take of what all share.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;

use super::core::Token;

/// Requests of a peer that wait for ranges at once.
const RANGE_WAITS: u32 = 64;

/// Bytes of the reactor's buffers that a peer's requests hold.
///
/// A peer may hold as much as it leaves free. One that does not take its data can so keep half of the buffers from
/// others, two can keep two thirds, and nobody can keep all.
#[derive(Debug, Default)]
pub(crate) struct Share {
    held: Cell<usize>,
    /// Requests of the peer that wait for a buffer.
    pub(crate) waiting: Cell<u32>,
    /// The last round of tries in which one of them would have exceeded the share.
    pub(crate) passed_over: Cell<u64>,
    /// Requests of the peer that wait for a range.
    range_waits: Cell<u32>,
    /// Those that are to wait for one when others have theirs, in order.
    pub(super) parked: RefCell<VecDeque<Token>>,
    /// Whether it is among those with parked requests.
    pub(super) is_listed: Cell<bool>,
}

/// A request's part of its peer's [`Share`], given back when dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    share: Rc<Share>,
    bytes: usize,
}

impl Share {
    /// Whether the peer may hold `bytes` more, of a pool with `free` bytes left.
    pub(crate) fn allows(&self, bytes: usize, free: usize) -> bool {
        self.held.get() == 0 || self.held.get() + bytes <= free
    }

    /// Whether one more of the peer's requests may wait for a range.
    pub(crate) fn may_wait(&self) -> bool {
        self.range_waits.get() < RANGE_WAITS
    }

    /// One of them waits for a range.
    pub(crate) fn waits(&self) {
        self.range_waits.set(self.range_waits.get() + 1);
    }

    /// One of them has waited for a range.
    pub(crate) fn has_waited(&self) {
        self.range_waits.set(self.range_waits.get() - 1);
    }

    /// Holds `bytes` more.
    pub(crate) fn charge(self: &Rc<Self>, bytes: usize) -> Charge {
        self.held.set(self.held.get() + bytes);
        Charge { share: Rc::clone(self), bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.share.held.set(self.share.held.get() - self.bytes);
    }
}

/// How many queues all have, and how many of them one peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Peers {
    all: usize,
    own: usize,
}

impl Peers {
    /// One more.
    pub(crate) fn count(&mut self, own: bool) {
        self.all += 1;
        self.own += usize::from(own);
    }

    /// Whether the peer has, of `most`, less than it leaves to others.
    pub(crate) fn leave_room(self, most: usize) -> bool {
        self.own < most.saturating_sub(self.all)
    }
}

/// Addresses that one host can have at will count as one towards limits: those of an IPv6 network of 64 bits.
pub(crate) fn peer_group(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(v6) => IpAddr::from((v6.to_bits() >> 64 << 64).to_be_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_may_hold_as_much_as_it_leaves_to_others() {
        let share = Rc::new(Share::default());
        let mut charges = Vec::new();
        let mut free = 100;
        while share.allows(10, free) {
            charges.push(share.charge(10));
            free -= 10;
        }
        assert_eq!(free, 50);
        let other = Rc::new(Share::default());
        assert!(other.allows(50, free), "who holds nothing may have all that is left");
        charges.pop();
        assert!(share.allows(10, free + 10));
    }
}
