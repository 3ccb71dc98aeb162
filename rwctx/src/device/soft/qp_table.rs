//! Queue pairs by number. A number is found by index: no hashing on the way of a packet.
//!
//! Numbers are given out in a cycle over all that belong to this reactor (`QPN mod N`), from a random start, so that one
//! is used again as late as possible and a restarted process does not meet old peers (IBTA 12.9.8.3.1).

use std::collections::BTreeMap;

use super::qp::Qp;
use crate::device::{DeviceError, Qpn};

/// Numbers below are special, or look like it.
const FIRST: u32 = 0x100;
/// The multicast number; it and everything above is no queue pair.
const END: u32 = 0x00FF_FFFF;

/// The queue pairs of one reactor.
#[derive(Debug)]
pub(super) struct QpTable {
    /// A number's place is its turn (`QPN / N`) modulo the size, a power of two.
    slots: Box<[Option<Box<Qp>>]>,
    /// Those whose number was promised and whose place another one has. Few, if any.
    beside: BTreeMap<Qpn, Box<Qp>>,
    reactor: u32,
    reactors: u32,
    next_turn: u32,
    live: usize,
    most: usize,
}

impl QpTable {
    /// A table of at most `most` queue pairs whose numbers are `reactor` modulo `reactors`.
    pub(super) fn new(reactor: u32, reactors: u32, most: u32, seed: u64) -> Self {
        let reactors = reactors.max(1);
        let most = most.clamp(1, 1 << 20);
        let slots = (most as usize).next_power_of_two();
        let mut table = Self {
            slots: (0..slots).map(|_| None).collect(),
            beside: BTreeMap::new(),
            reactor: reactor % reactors,
            reactors,
            next_turn: 0,
            live: 0,
            most: most as usize,
        };
        table.next_turn = fastrand::Rng::with_seed(seed).u32(table.turns());
        table
    }

    /// Makes a queue pair with the next free number.
    ///
    /// # Errors
    /// [`DeviceError::NoResources`].
    pub(super) fn insert(&mut self, make: impl FnOnce(Qpn) -> Qp) -> Result<Qpn, DeviceError> {
        if self.live >= self.most {
            return Err(DeviceError::NoResources("queue pairs"));
        }
        // Successive turns have successive slots, of which one at least is free.
        for _ in 0..2 * self.slots.len() {
            let turn = self.next_turn;
            self.next_turn = if turn == *self.turns().end() { *self.turns().start() } else { turn + 1 };
            let qpn = Qpn(turn * self.reactors + self.reactor);
            let slot = self.slot(qpn);
            if self.slots[slot].is_none() && !self.beside.contains_key(&qpn) {
                self.slots[slot] = Some(Box::new(make(qpn)));
                self.live += 1;
                return Ok(qpn);
            }
        }
        Err(DeviceError::NoResources("queue pair numbers"))
    }

    /// Makes the queue pair of a number that belongs to this reactor.
    ///
    /// # Errors
    /// [`DeviceError::NoResources`], also when the number is in use; [`DeviceError::Invalid`].
    pub(super) fn insert_at(&mut self, qpn: Qpn, make: impl FnOnce(Qpn) -> Qp) -> Result<Qpn, DeviceError> {
        if qpn.0 % self.reactors != self.reactor || !self.turns().contains(&(qpn.0 / self.reactors)) {
            return Err(DeviceError::Invalid("queue pair number"));
        }
        if self.live >= self.most || self.get(qpn).is_some() {
            return Err(DeviceError::NoResources("queue pairs"));
        }
        let slot = self.slot(qpn);
        let qp = Box::new(make(qpn));
        if self.slots[slot].is_none() {
            self.slots[slot] = Some(qp);
        } else {
            self.beside.insert(qpn, qp);
        }
        self.live += 1;
        Ok(qpn)
    }

    #[inline]
    pub(super) fn get(&self, qpn: Qpn) -> Option<&Qp> {
        match &self.slots[self.slot(qpn)] {
            Some(qp) if qp.path.qpn == qpn => Some(qp),
            _ => self.beside.get(&qpn).map(Box::as_ref),
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, qpn: Qpn) -> Option<&mut Qp> {
        let slot = self.slot(qpn);
        match &mut self.slots[slot] {
            Some(qp) if qp.path.qpn == qpn => Some(qp),
            _ => self.beside.get_mut(&qpn).map(Box::as_mut),
        }
    }

    /// Takes a queue pair out.
    pub(super) fn remove(&mut self, qpn: Qpn) -> Option<Box<Qp>> {
        let slot = self.slot(qpn);
        let own = self.slots[slot].take_if(|qp| qp.path.qpn == qpn);
        let qp = own.or_else(|| self.beside.remove(&qpn))?;
        self.live -= 1;
        Some(qp)
    }

    /// Queue pairs in it.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// All of them.
    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &Qp> {
        self.slots.iter().flatten().chain(self.beside.values()).map(Box::as_ref)
    }

    fn turns(&self) -> std::ops::RangeInclusive<u32> {
        FIRST.div_ceil(self.reactors)..=(END - 1 - self.reactor) / self.reactors
    }

    #[inline]
    fn slot(&self, qpn: Qpn) -> usize {
        let turn = if self.reactors == 1 { qpn.0 } else { qpn.0 / self.reactors };
        turn as usize & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::endpoint::Tuning;
    use super::*;
    use crate::device::QpCap;
    use crate::mem::Pd;
    use crate::plan::Integrity;

    fn make(qpn: Qpn) -> Qp {
        let cap = QpCap {
            max_send_wr: 1,
            max_recv_wr: 1,
            max_send_sge: 1,
            max_recv_sge: 1,
            integrity: Integrity::Off,
        };
        Qp::new(qpn, Pd(1), &cap, &Tuning::default())
    }

    #[test]
    fn numbers_belong_to_their_reactor_and_come_back_late() {
        for (reactor, reactors) in [(0, 1), (0, 3), (2, 3), (6, 7)] {
            let mut table = QpTable::new(reactor, reactors, 8, 1);
            let mut seen = std::collections::HashSet::new();
            for _ in 0..1000 {
                let qpn = table.insert(make).unwrap();
                assert!(qpn.0 >= FIRST && qpn.0 < END && qpn.0 % reactors == reactor);
                assert!(seen.insert(qpn), "a number came back");
                assert!(table.get(qpn).is_some() && table.get(Qpn(qpn.0 ^ 0x80_0000)).is_none());
                assert!(table.remove(qpn).is_some() && table.get(qpn).is_none());
            }
        }
    }

    #[test]
    fn a_number_can_be_asked_for_whoever_has_its_place() {
        let mut table = QpTable::new(1, 2, 4, 7);
        assert_eq!(table.insert_at(Qpn(0x1001), make), Ok(Qpn(0x1001)));
        assert!(table.get(Qpn(0x1001)).is_some());
        assert!(matches!(table.insert_at(Qpn(0x1001), make), Err(DeviceError::NoResources(_))));
        assert_eq!(table.insert_at(Qpn(0x2001), make), Ok(Qpn(0x2001)), "the same place");
        assert!(matches!(table.insert_at(Qpn(0x2001), make), Err(DeviceError::NoResources(_))));
        for number in [0x1001, 0x2001] {
            assert_eq!(table.get_mut(Qpn(number)).map(|qp| qp.path.qpn), Some(Qpn(number)));
        }
        assert!(table.get(Qpn(0x3001)).is_none());
        // The place is free, but the number beside it is not.
        table.remove(Qpn(0x1001)).unwrap();
        table.next_turn = 0x2001 / 2;
        assert_eq!(table.insert(make), Ok(Qpn(0x2003)));
        table.remove(Qpn(0x2003)).unwrap();
        assert_eq!((table.len(), table.iter().count()), (1, 1));
        assert!(table.remove(Qpn(0x2001)).is_some() && table.remove(Qpn(0x2001)).is_none());
        table.insert_at(Qpn(0x1001), make).unwrap();
        for wrong in [0x1002, 1, 0xFF, 0x00FF_FFFF] {
            assert!(matches!(table.insert_at(Qpn(wrong), make), Err(DeviceError::Invalid(_))), "{wrong:#x}");
        }
        for number in [0x1003, 0x1005, 0x1007] {
            table.insert_at(Qpn(number), make).unwrap();
        }
        assert_eq!(table.len(), 4);
        assert!(table.insert(make).is_err());
    }

    #[test]
    fn the_cycle_wraps_and_skips_numbers_in_use() {
        let mut table = QpTable::new(1, 2, 4, 7);
        let last = *table.turns().end();
        table.next_turn = last;
        let qpns: Vec<_> = (0..4).map(|_| table.insert(make).unwrap().0).collect();
        // 0x105 has the place of the last number of the cycle, which is in use.
        assert_eq!(qpns, [last * 2 + 1, 0x101, 0x103, 0x107]);
        assert!(table.insert(make).is_err());
        table.remove(Qpn(0x103)).unwrap();
        let again = table.insert(make).unwrap();
        assert!(again.0 > 0x107 && table.get(again).is_some());
        assert_eq!(table.len(), 4);
    }

    #[test]
    fn the_start_depends_on_the_seed() {
        let first = |seed| QpTable::new(0, 1, 4, seed).insert(make).unwrap();
        assert_ne!(first(1), first(2));
        assert_eq!(first(3), first(3));
    }
}
