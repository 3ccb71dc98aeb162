//! The fast-registration regions of one queue pair, between the contexts that use them.
//!
//! A region is taken out as a [`PooledMr`], which puts it back when it is dropped, on whatever path: so none is lost. The one
//! that was put back last is taken first. It belongs to one thread. Follows Linux `mr_pool.c`.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::device::{Device, DeviceError};
use crate::mem::{Lkey, Mr, MrId, Pd};
use crate::remote::Rkey;

const STEP: u32 = 0xff;

/// Regions of one kind.
#[derive(Debug, Default)]
pub struct MrPool {
    shared: Rc<Shared>,
    /// Pages of each region's list.
    pages: u32,
}

#[derive(Debug, Default)]
struct Shared {
    /// The last one is taken next.
    free: RefCell<Vec<Region>>,
    used: Cell<u32>,
}

#[derive(Debug)]
struct Region {
    id: MrId,
    /// Its key for local and remote users alike; the low byte steps on each use.
    key: u32,
    need_inval: bool,
    /// Of an integrity region: what its last registration found was not asked for.
    unasked: bool,
}

/// A region in use by a context.
#[derive(Debug)]
pub struct PooledMr {
    region: Region,
    home: Rc<Shared>,
}

impl MrPool {
    /// Makes `count` regions with lists of `pages` pages.
    ///
    /// # Errors
    /// The device's; what was made by then is gone.
    pub fn new<D: Device>(device: &mut D, pd: Pd, count: u32, pages: u32) -> Result<Self, DeviceError> {
        Self::of(device, count, pages, |device| device.alloc_fast_reg(pd, pages))
    }

    /// Makes `count` integrity regions with two lists of `pages` pages.
    ///
    /// # Errors
    /// The device's; what was made by then is gone.
    pub fn new_integrity<D: Device>(
        device: &mut D,
        pd: Pd,
        count: u32,
        pages: u32,
    ) -> Result<Self, DeviceError> {
        Self::of(device, count, pages, |device| device.alloc_integrity_mr(pd, pages))
    }

    fn of<D: Device>(
        device: &mut D,
        count: u32,
        pages: u32,
        make: impl Fn(&mut D) -> Result<Mr, DeviceError>,
    ) -> Result<Self, DeviceError> {
        let mut pool = Self { shared: Rc::default(), pages };
        pool.shared.free.borrow_mut().reserve_exact(count as usize);
        for _ in 0..count {
            match make(device) {
                Ok(mr) => {
                    let region = Region { id: mr.id, key: mr.rkey.0, need_inval: false, unasked: false };
                    pool.shared.free.borrow_mut().push(region);
                }
                Err(error) => {
                    pool.destroy(device);
                    return Err(error);
                }
            }
        }
        // The first one made is taken first.
        pool.shared.free.borrow_mut().reverse();
        Ok(pool)
    }

    /// Takes a region out; `None` when all are in use.
    #[must_use]
    pub fn take(&self) -> Option<PooledMr> {
        let region = self.shared.free.borrow_mut().pop()?;
        self.shared.used.set(self.shared.used.get() + 1);
        Some(PooledMr { region, home: Rc::clone(&self.shared) })
    }

    /// Gives the regions back to the device; none is in use.
    pub fn destroy<D: Device>(&mut self, device: &mut D) {
        debug_assert_eq!(self.used(), 0, "contexts are destroyed before the pool of their regions");
        for region in self.shared.free.borrow_mut().drain(..) {
            let gone = device.dereg_mr(region.id);
            debug_assert!(gone.is_ok(), "a region of the pool exists until the pool gives it back");
        }
    }

    /// Pages of each region's list.
    #[must_use]
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Regions in use.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.shared.used.get()
    }

    /// Regions that may be taken.
    #[must_use]
    pub fn free(&self) -> u32 {
        u32::try_from(self.shared.free.borrow().len()).expect("made from a u32")
    }
}

impl PooledMr {
    /// The region.
    #[must_use]
    pub fn id(&self) -> MrId {
        self.region.id
    }

    /// Its key as it is now, for local work requests.
    #[must_use]
    pub fn lkey(&self) -> Lkey {
        Lkey(self.region.key)
    }

    /// Its key as it is now, for peers.
    #[must_use]
    pub fn rkey(&self) -> Rkey {
        Rkey(self.region.key)
    }

    /// The key that is valid and must be invalidated before the region is registered again, if any is.
    #[must_use]
    pub fn stale(&self) -> Option<Rkey> {
        self.region.need_inval.then_some(self.rkey())
    }

    /// Goes to the next key, which the work request about to be posted makes valid: for longer than that when
    /// `need_inval`.
    pub(crate) fn step(&mut self, need_inval: bool) {
        self.set(self.region.key.wrapping_add(1), need_inval);
    }

    /// Takes [`Self::step`] back: its registration was not posted, and the key before is valid or not.
    pub(crate) fn step_back(&mut self, need_inval: bool) {
        self.set(self.region.key.wrapping_sub(1), need_inval);
    }

    /// Whether what its last registration found is still to be asked for.
    pub(crate) fn is_unasked(&self) -> bool {
        self.region.unasked
    }

    /// What its registration finds is to be asked for, or was.
    pub(crate) fn set_unasked(&mut self, unasked: bool) {
        self.region.unasked = unasked;
    }

    /// The key stays valid after all.
    pub(crate) fn stays_valid(&mut self) {
        self.region.need_inval = true;
    }

    fn set(&mut self, step: u32, need_inval: bool) {
        self.region.key = (self.region.key & !STEP) | (step & STEP);
        self.region.need_inval = need_inval;
    }
}

impl Drop for PooledMr {
    fn drop(&mut self) {
        let Region { id, key, need_inval, unasked } = self.region;
        self.home.used.set(self.home.used.get() - 1);
        // Its room is there since the pool was made.
        self.home.free.borrow_mut().push(Region { id, key, need_inval, unasked });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::null::NullDevice;
    use crate::device::soft::endpoint::CAPS;

    fn pool(count: u32) -> (NullDevice, MrPool) {
        let mut device = NullDevice::new(CAPS);
        let pd = device.alloc_pd().unwrap();
        let pool = MrPool::new(&mut device, pd, count, 16).unwrap();
        (device, pool)
    }

    #[test]
    fn regions_are_taken_in_order_and_the_last_put_back_comes_first() {
        let (mut device, mut pool) = pool(3);
        let (first, second) = (pool.take().unwrap(), pool.take().unwrap());
        assert!(first.id().0 < second.id().0);
        assert_eq!((pool.used(), pool.free()), (2, 1));
        let ids = (first.id(), second.id());
        drop(second);
        drop(first);
        assert_eq!(pool.take().unwrap().id(), ids.0);
        let all: Vec<PooledMr> = (0..3).map_while(|_| pool.take()).collect();
        assert_eq!(all.iter().take(2).map(PooledMr::id).collect::<Vec<_>>(), [ids.0, ids.1]);
        assert!(pool.take().is_none());
        drop(all);
        pool.destroy(&mut device);
        assert_eq!((pool.used(), pool.free(), device.live_mrs()), (0, 0, 0));
    }

    #[test]
    fn the_low_byte_of_a_key_steps_and_wraps_and_the_rest_stays() {
        let (_, pool) = pool(1);
        let mut mr = pool.take().unwrap();
        let begin = mr.rkey().0;
        for n in 1..=512 {
            mr.step(true);
            assert_eq!(mr.rkey().0, (begin & !0xff) | (begin.wrapping_add(n) & 0xff));
            assert_eq!((mr.stale(), mr.lkey().0), (Some(mr.rkey()), mr.rkey().0));
        }
        mr.step_back(false);
        assert_eq!((mr.rkey().0 & 0xff, mr.stale()), ((begin + 255) & 0xff, None));
    }

    #[test]
    fn a_pool_that_can_not_be_made_leaves_nothing() {
        for step in 1..=4 {
            let mut device = NullDevice::new(CAPS);
            let pd = device.alloc_pd().unwrap();
            device.fail_after(step - 1);
            assert!(MrPool::new(&mut device, pd, 4, 16).is_err(), "step {step}");
            assert_eq!(device.live_mrs(), 0, "step {step}");
        }
    }
}
