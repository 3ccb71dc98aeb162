//! The command window: which CmdSN comes next, and the last that the host may use (RFC 7143 section 4.2.2.1).

use super::super::wire::bhs::Order;
use super::super::wire::number::Sn;

/// What a request's place says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is the next, or immediate.
    Next,
    /// It came before, or the host may not send it yet: to be ignored without a word.
    Outside,
    /// Others are missing before it. A connection delivers in order, so that they will never come.
    Gap,
}

/// ExpCmdSN and MaxCmdSN. Commands that were allowed once stay allowed: MaxCmdSN never goes back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    expected: Sn,
    max: Sn,
}

impl Window {
    /// `open` commands may be sent, `expected` first.
    pub(super) fn new(expected: Sn, open: u16) -> Self {
        Self { expected, max: expected.plus(u32::from(open)).plus(u32::MAX) }
    }

    /// ExpCmdSN.
    pub(super) fn expected(&self) -> Sn {
        self.expected
    }

    /// MaxCmdSN.
    pub(super) fn max(&self) -> Sn {
        self.max
    }

    /// Where a request stands.
    pub(super) fn place(&self, order: Order) -> Place {
        if order.immediate || (order.cmd_sn == self.expected && self.is_open()) {
            Place::Next
        } else if self.contains(order.cmd_sn) {
            Place::Gap
        } else {
            Place::Outside
        }
    }

    /// Whether a command of this number may be sent.
    pub(super) fn contains(&self, sn: Sn) -> bool {
        !sn.is_before(self.expected) && !self.max.is_before(sn) && self.is_open()
    }

    /// The next request was taken.
    pub(super) fn take(&mut self, order: Order) {
        if !order.immediate {
            self.expected = self.expected.next();
        }
    }

    /// So many further commands have room.
    pub(super) fn open_to(&mut self, free: u16) {
        let max = self.expected.plus(u32::from(free)).plus(u32::MAX);
        if self.max.is_before(max) {
            self.max = max;
        }
    }

    /// Commands that the host may still send.
    pub(super) fn open(&self) -> u32 {
        self.max.next().0.wrapping_sub(self.expected.0)
    }

    fn is_open(&self) -> bool {
        self.open() != 0
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(cmd_sn: u32) -> Order {
        Order { immediate: false, cmd_sn: Sn(cmd_sn), exp_stat_sn: Sn(0) }
    }

    #[test]
    fn only_the_next_number_is_taken() {
        let mut window = Window::new(Sn(0xffff_fffe), 4);
        assert_eq!((window.max(), window.open()), (Sn(1), 4));
        assert_eq!(window.place(at(0xffff_fffe)), Place::Next);
        assert_eq!(window.place(at(0xffff_fffd)), Place::Outside);
        assert_eq!(window.place(at(2)), Place::Outside);
        assert_eq!(window.place(at(1)), Place::Gap);
        assert_eq!(window.place(Order { immediate: true, ..at(77) }), Place::Next);
        for sn in [0xffff_fffe, 0xffff_ffff, 0, 1] {
            assert_eq!(window.place(at(sn)), Place::Next);
            window.take(at(sn));
        }
        assert_eq!((window.open(), window.place(at(2))), (0, Place::Outside));
        window.open_to(1);
        assert_eq!((window.max(), window.place(at(2))), (Sn(2), Place::Next));
        window.open_to(0);
        assert_eq!(window.max(), Sn(2), "what was allowed stays allowed");
    }

    proptest! {
        #[test]
        fn numbers_never_go_back(start: u32, open in 0_u16..100, steps in prop::collection::vec(0_u16..100, 0..50)) {
            let mut window = Window::new(Sn(start), open);
            for free in steps {
                let before = window;
                let next = Order { cmd_sn: window.expected(), ..at(0) };
                if window.place(next) == Place::Next {
                    window.take(next);
                }
                window.open_to(free);
                prop_assert!(!window.expected().is_before(before.expected()));
                prop_assert!(!window.max().is_before(before.max()));
                prop_assert!(window.open() <= 100 && window.open() >= u32::from(free));
            }
        }
    }
}
