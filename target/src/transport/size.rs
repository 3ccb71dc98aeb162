//! What a queue takes of its reactor's device, and whether its peer may have as much.

use rwctx::device::DeviceCaps;
use rwctx::plan::{self, Integrity};
use rwctx::qp::PoolSizes;

use super::core::slots;
use crate::block::PAGE;
use crate::nvmf::command::MAX_SGL_DESCRIPTORS;

/// Queues at a time: each costs memory.
const MAX_QUEUES: usize = 4096;
/// Queues without Connect at a time: nobody has authenticated for them. The connection manager bounds those whose hosts have
/// not even shown that they exist, to fewer.
const MAX_UNCONNECTED: usize = 512;
/// Entries of all send queues: as many as [`MAX_QUEUES`] have where contexts are plain.
const MAX_SENDS: usize = 4 << 20;
/// Registrations of all queues: half of the regions that the soft device has.
const MAX_REGISTRATIONS: usize = 512 << 10;

/// Bytes of the longest metadata of a block.
const LONGEST_METADATA: usize = 128;
/// Bytes of the smallest block.
const SMALLEST_BLOCK: u32 = 512;

/// What a queue pair has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueSize {
    /// Send-queue entries beside those of contexts.
    own: u32,
    /// Plain contexts, each with a registration if the device's contexts use some.
    ctxs: u32,
    /// Contexts with signatures: one a command, instead of its plain ones.
    signatures: u32,
}

/// What queues hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) queues: usize,
    /// Those of them that await Connect.
    pub(crate) unconnected: usize,
    pub(crate) sends: usize,
    pub(crate) registrations: usize,
}

impl QueueSize {
    /// For `entries` commands that move `max_transfer` bytes at most, without metadata.
    pub(crate) fn new(caps: &DeviceCaps, max_transfer: u32, entries: u32, integrity: Integrity) -> Self {
        // Data and tuple of each block in turn, of the smallest blocks. Where the data is in several pieces of the host's memory,
        // each of them may cut one of ours, and has a last entry that is not full.
        let pieces = u32::try_from(MAX_SGL_DESCRIPTORS).expect("a few");
        let sges = 2 * max_transfer / SMALLEST_BLOCK + pieces;
        let own = slots(entries);
        let signatures = if integrity == Integrity::Enabled { entries } else { 0 };
        if !plan::can_use_mr(caps) {
            // Requests of the largest size wait for each other; ordinary ones need one entry.
            return Self { own, ctxs: entries.max(plan::mr_factor(caps, sges) + pieces), signatures };
        }
        // Each command has registrations for its largest transfer: so none ever waits for one. Data that goes to the host without
        // them may need more work requests than these do.
        let most = max_transfer as usize + LONGEST_METADATA * max_transfer.div_ceil(SMALLEST_BLOCK) as usize;
        let pages = u32::try_from(most.div_ceil(PAGE)).expect("a transfer has few pages");
        let unregistered = sges.div_ceil(caps.max_send_sge.max(1)) + pieces;
        Self {
            own: own.saturating_add(unregistered),
            ctxs: entries.saturating_mul(plan::mr_factor(caps, pages) + pieces),
            signatures,
        }
    }

    /// The same with `more` send-queue entries beside those of contexts.
    #[must_use]
    pub(crate) fn with_more(self, more: u32) -> Self {
        Self { own: self.own.saturating_add(more), ..self }
    }

    /// Entries of its send queue: a command has either kind of contexts.
    pub(crate) fn max_send_wr(&self, caps: &DeviceCaps) -> u32 {
        let plain = plan::init_qp(caps, self.own, self.ctxs, Integrity::Off);
        if self.signatures == 0 {
            return plain;
        }
        plain.max(plan::init_qp(caps, self.own, self.signatures, Integrity::Enabled))
    }

    /// Its registrations.
    pub(crate) fn pools(&self, caps: &DeviceCaps) -> PoolSizes {
        let plain = if plan::can_use_mr(caps) { self.ctxs } else { 0 };
        PoolSizes { plain, signatures: self.signatures }
    }

    /// What a queue of this size holds until it is connected.
    pub(crate) fn held(&self, caps: &DeviceCaps) -> Held {
        let PoolSizes { plain, signatures } = self.pools(caps);
        Held {
            queues: 1,
            unconnected: 1,
            sends: self.max_send_wr(caps) as usize,
            registrations: plain as usize + signatures as usize,
        }
    }
}

impl Held {
    /// Whether somebody who holds `own` of `all` that is held may have `more`: at most as much as is left to others.
    pub(crate) fn allows(all: &Self, own: &Self, more: &Self) -> bool {
        let fits = |of: fn(&Self) -> usize, most: usize| of(own) + of(more) <= most.saturating_sub(of(all));
        fits(|held| held.queues, MAX_QUEUES)
            && fits(|held| held.unconnected, MAX_UNCONNECTED)
            && fits(|held| held.sends, MAX_SENDS)
            && fits(|held| held.registrations, MAX_REGISTRATIONS)
    }
}

impl std::ops::AddAssign for Held {
    fn add_assign(&mut self, other: Self) {
        self.queues += other.queues;
        self.unconnected += other.unconnected;
        self.sends += other.sends;
        self.registrations += other.registrations;
    }
}

#[cfg(test)]
mod tests {
    use rwctx::device::soft::endpoint::CAPS;
    use rwctx::device::soft::persona::Persona;

    use super::*;

    const MIB: u32 = 1 << 20;

    #[test]
    fn a_signature_takes_three_entries_of_a_send_queue_and_a_registration_a_command() {
        let size = |caps: &DeviceCaps, entries, integrity| {
            let size = QueueSize::new(caps, MIB, entries, integrity);
            (size.max_send_wr(caps), size.pools(caps))
        };
        let pools = |plain, signatures| PoolSizes { plain, signatures };
        assert_eq!(size(&CAPS, 256, Integrity::Off), (512 + 256, pools(0, 0)));
        assert_eq!(size(&CAPS, 256, Integrity::Enabled), (512 + 3 * 256, pools(0, 256)));
        // Of few commands the largest plain transfer decides.
        let (plain, _) = size(&CAPS, 32, Integrity::Off);
        assert_eq!(size(&CAPS, 32, Integrity::Enabled), (plain, pools(0, 32)));
        // A ConnectX has registrations for everything: one more for each command.
        let mlx5 = Persona::Mlx5.caps();
        let (plain, registrations) = size(&mlx5, 256, Integrity::Off);
        assert_eq!(registrations, pools(4608, 0));
        assert_eq!(size(&mlx5, 256, Integrity::Enabled), (plain, pools(4608, 256)));
    }

    /// Queues of 256 commands that peers get who ask in turn until nobody gets any more.
    fn queues_of(peers: usize, caps: &DeviceCaps, integrity: Integrity) -> Vec<usize> {
        let more = Held { unconnected: 0, ..QueueSize::new(caps, MIB, 256, integrity).held(caps) };
        let mut all = Held::default();
        let mut own = vec![Held::default(); peers];
        // The first takes all that it can get, then the next.
        for own in &mut own {
            while Held::allows(&all, own, &more) {
                all += more;
                *own += more;
            }
        }
        assert!(all.registrations <= MAX_REGISTRATIONS && all.sends <= MAX_SENDS && all.queues <= MAX_QUEUES);
        own.iter().map(|own| own.queues).collect()
    }

    #[test]
    fn one_peer_leaves_half_of_the_registrations_and_send_queues_to_others() {
        assert_eq!(queues_of(3, &CAPS, Integrity::Off), [2048, 1024, 512]);
        // 512 Ki registrations of 256, and of 4608, a queue.
        assert_eq!(queues_of(2, &CAPS, Integrity::Enabled), [1024, 512]);
        assert_eq!(queues_of(3, &Persona::Iwarp.caps(), Integrity::Off), [57, 28, 14]);
        assert_eq!(queues_of(2, &Persona::Mlx5.caps(), Integrity::Enabled), [54, 27]);
    }

    #[test]
    fn queues_that_await_connect_have_a_limit_of_their_own() {
        let more = QueueSize::new(&CAPS, MIB, 32, Integrity::Off).held(&CAPS);
        let mut all = Held::default();
        while Held::allows(&all, &all, &more) {
            all += more;
        }
        assert_eq!(all.queues, MAX_UNCONNECTED / 2);
    }
}
