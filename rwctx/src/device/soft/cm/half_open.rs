//! Passive connections that were never established, and which of them makes room when there are too many.
//!
//! Anybody can make one with a single packet under a false address. So a flood is met by fairness and not by first come,
//! first served: who comes from where few come from displaces one of those from where most come from, as far as the
//! prefixes of addresses tell; among equals, one that had its time. Peers that are known to receive what is sent to them have
//! places of their own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// How long a handshake may take until it can be displaced by one with a better claim.
const SHORT_GRACE: Duration = Duration::from_millis(50);
/// The same by any other.
const GRACE: Duration = Duration::from_millis(250);

/// Half-open connections of one kind of peers.
#[derive(Debug, Default)]
pub(in crate::device) struct HalfOpen {
    /// Those below each prefix, oldest first.
    below: BTreeMap<Prefix, BTreeSet<(Instant, u32)>>,
    /// The prefixes below each prefix: the last one has the most connections, and of equals the oldest one.
    ranks: BTreeSet<(Prefix, Rank, Prefix)>,
}

/// How many connections are below a prefix, and the oldest of them.
type Rank = (usize, Reverse<(Instant, u32)>);

/// What a newcomer meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::device) enum Room {
    /// There is room.
    Free,
    /// This connection makes room.
    Displaces(u32),
    /// There is none now.
    None,
}

/// Leading bits of an address. IPv4 addresses are mapped into IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Prefix {
    level: u8,
    bits: u128,
}

/// Lengths of prefixes by level, of IPv4 in IPv6 and of IPv6. One host can have all addresses of the last one.
const LENGTHS: [[u32; LEVELS]; 2] = [[0, 104, 112, 120, 128], [0, 32, 48, 56, 64]];
const LEVELS: usize = 5;
const ROOT: Prefix = Prefix { level: 0, bits: 0 };

/// The prefixes of an address, from the shortest.
fn prefixes(address: IpAddr) -> [Prefix; LEVELS] {
    let (bits, lengths) = match address {
        IpAddr::V4(v4) => (v4.to_ipv6_mapped().to_bits(), LENGTHS[0]),
        IpAddr::V6(v6) => (v6.to_bits(), LENGTHS[1]),
    };
    let mut level = 0;
    lengths.map(|length| {
        let mask = u128::MAX.checked_shl(128 - length).unwrap_or_default();
        let prefix = Prefix { level, bits: bits & mask };
        level += 1;
        prefix
    })
}

impl HalfOpen {
    /// Adds connection `id`, that `peer` began at `since`.
    pub(in crate::device) fn add(&mut self, peer: IpAddr, since: Instant, id: u32) {
        self.change(peer, |below| below.insert((since, id)));
    }

    /// Removes a connection, which was added with these words.
    pub(in crate::device) fn remove(&mut self, peer: IpAddr, since: Instant, id: u32) {
        self.change(peer, |below| below.remove(&(since, id)));
    }

    /// Whether another one of `peer` has room, where there may be `most`, and `most_of_peer` of one peer.
    pub(in crate::device) fn room(
        &self,
        now: Instant,
        peer: IpAddr,
        most: usize,
        most_of_peer: usize,
    ) -> Room {
        let path = prefixes(peer);
        let own = path[LEVELS - 1];
        if self.count(own) >= most_of_peer {
            return self.oldest(now, own, GRACE);
        }
        if self.total() < most {
            return Room::Free;
        }
        // From the most crowded prefix to the most crowded one in it.
        let mut crowded = ROOT;
        let mut has_better_claim = None;
        for own in &path[1..] {
            let Some((count, prefix)) = self.most_crowded(crowded, now) else { return Room::None };
            if has_better_claim.is_none() && prefix != *own {
                has_better_claim = Some(self.count(*own) + 1 < count);
            }
            crowded = prefix;
        }
        let grace = if has_better_claim == Some(true) { SHORT_GRACE } else { GRACE };
        match self.oldest(now, crowded, grace) {
            Room::None => self.oldest(now, ROOT, GRACE),
            displaces => displaces,
        }
    }

    /// How many there are.
    pub(in crate::device) fn total(&self) -> usize {
        self.count(ROOT)
    }

    /// The place of the oldest one below a prefix, if that had its time.
    fn oldest(&self, now: Instant, prefix: Prefix, grace: Duration) -> Room {
        match self.below.get(&prefix).and_then(BTreeSet::first) {
            Some((since, id)) if now >= *since + grace => Room::Displaces(*id),
            _ => Room::None,
        }
    }

    /// Connections below a prefix.
    fn count(&self, prefix: Prefix) -> usize {
        self.below.get(&prefix).map_or(0, BTreeSet::len)
    }

    /// Of the prefixes below `above`, the one with the most connections, and how many.
    fn most_crowded(&self, above: Prefix, now: Instant) -> Option<(usize, Prefix)> {
        // Less than any rank of the next prefix, and more than all of this one.
        let end = (Prefix { bits: above.bits + 1, ..above }, (0, Reverse((now, 0))), ROOT);
        let last = self.ranks.range(..end).next_back();
        last.filter(|(of, ..)| *of == above).map(|(_, (count, _), prefix)| (*count, *prefix))
    }

    /// Changes what is below each prefix of an address.
    fn change(&mut self, peer: IpAddr, change: impl Fn(&mut BTreeSet<(Instant, u32)>) -> bool) {
        let rank = |below: &BTreeSet<(Instant, u32)>| Some((below.len(), Reverse(*below.first()?)));
        let mut above = None;
        for prefix in prefixes(peer) {
            let below = self.below.entry(prefix).or_default();
            let before = rank(below);
            change(below);
            let after = rank(below);
            if after.is_none() {
                self.below.remove(&prefix);
            }
            if let Some(above) = above.replace(prefix) {
                before.map(|rank| self.ranks.remove(&(above, rank, prefix)));
                after.map(|rank| self.ranks.insert((above, rank, prefix)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "an arbitrary point to count from")]
    fn start() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
        [a, b, c, d].into()
    }

    fn with(peers: impl IntoIterator<Item = IpAddr>, since: Instant) -> HalfOpen {
        let mut half_open = HalfOpen::default();
        (1..).zip(peers).for_each(|(id, peer)| half_open.add(peer, since, id));
        half_open
    }

    #[test]
    fn who_comes_from_where_few_come_from_displaces_the_oldest_from_where_most_come_from() {
        let now = start();
        // Ids 1 to 64 from 10.1, of which 10.1.3 has one more, older than its neighbours.
        let mut half_open = with((0..64).map(|number| v4(10, 1, number % 4, number / 4)), now);
        half_open.add(v4(10, 1, 3, 200), now - Duration::from_millis(100), 100);
        half_open.add(v4(10, 2, 0, 1), now - Duration::from_millis(200), 101);
        half_open.add(v4(192, 0, 2, 1), now, 102);
        for peer in [v4(10, 2, 0, 2), v4(192, 0, 2, 2), v4(198, 51, 100, 1)] {
            assert_eq!(half_open.room(now, peer, 67, 8), Room::Displaces(100), "{peer}");
            assert_eq!(half_open.room(now, peer, 68, 8), Room::Free);
        }
        // One of the crowd has no better claim, until one of all had its time; its own first.
        assert_eq!(half_open.room(now, v4(10, 1, 3, 7), 67, 8), Room::None);
        let soon = now + Duration::from_millis(50);
        assert_eq!(half_open.room(soon, v4(10, 1, 3, 7), 67, 8), Room::Displaces(101));
        let later = now + Duration::from_millis(150);
        assert_eq!(half_open.room(later, v4(10, 1, 3, 7), 67, 8), Room::Displaces(100));
        // A handshake that has just begun is left alone.
        half_open.remove(v4(10, 1, 3, 200), now - Duration::from_millis(100), 100);
        assert_eq!(half_open.room(now, v4(198, 51, 100, 1), 66, 8), Room::None);
        assert_eq!(half_open.room(now + SHORT_GRACE, v4(198, 51, 100, 1), 66, 8), Room::Displaces(1));
    }

    #[test]
    fn a_peer_that_has_its_share_makes_room_for_itself_alone() {
        let now = start();
        let mut half_open = with([v4(10, 0, 0, 1); 3], now);
        half_open.add(v4(10, 0, 0, 2), now - GRACE, 9);
        assert_eq!(half_open.room(now, v4(10, 0, 0, 1), 100, 3), Room::None);
        assert_eq!(half_open.room(now + GRACE, v4(10, 0, 0, 1), 100, 3), Room::Displaces(1));
        let network = |host| IpAddr::from(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, host));
        let half_open = with((0..3).map(network), now);
        assert_eq!(
            half_open.room(now, network(7), 100, 3),
            Room::None,
            "one host has all of a network's addresses"
        );
    }

    /// The same by looking at everything.
    fn slow_room(
        all: &[(IpAddr, Instant, u32)],
        now: Instant,
        peer: IpAddr,
        most: usize,
        of_peer: usize,
    ) -> Room {
        let path = prefixes(peer);
        let oldest =
            |crowd: &[&(IpAddr, Instant, u32)]| crowd.iter().map(|(_, since, id)| (*since, *id)).min();
        let own: Vec<_> = all.iter().filter(|(other, ..)| prefixes(*other)[4] == path[4]).collect();
        let choose = |crowd: &[&(IpAddr, Instant, u32)], grace| {
            let ripe = oldest(crowd).filter(|(since, _)| now - *since >= grace);
            ripe.map_or(Room::None, |(_, id)| Room::Displaces(id))
        };
        if own.len() >= of_peer {
            return choose(&own, GRACE);
        }
        if all.len() < most {
            return Room::Free;
        }
        let mut crowd: Vec<_> = all.iter().collect();
        let mut claim = None;
        for (level, own) in path.iter().enumerate().skip(1) {
            let below = |prefix| -> Vec<_> {
                crowd.iter().copied().filter(|(other, ..)| prefixes(*other)[level] == prefix).collect()
            };
            let candidates = crowd.iter().map(|(other, ..)| prefixes(*other)[level]);
            let rank = |prefix: &Prefix| {
                let below = below(*prefix);
                (below.len(), Reverse(oldest(&below)))
            };
            let Some(prefix) = candidates.max_by_key(rank) else { return Room::None };
            let newcomers = all.iter().filter(|(other, ..)| prefixes(*other)[level] == *own).count();
            if claim.is_none() && prefix != *own {
                claim = Some(newcomers + 1 < below(prefix).len());
            }
            crowd = below(prefix);
        }
        let chosen = choose(&crowd, if claim == Some(true) { SHORT_GRACE } else { GRACE });
        if chosen == Room::None { choose(&all.iter().collect::<Vec<_>>(), GRACE) } else { chosen }
    }

    proptest! {
        #[test]
        fn what_is_kept_in_order_says_the_same_as_looking_at_everything(
            steps in proptest::collection::vec((0_u8..3, 0_u8..3, 0_u8..3, any::<bool>(), 0_u64..100), 1..80),
            most in 1_usize..20,
            of_peer in 1_usize..8,
        ) {
            let mut now = start();
            let mut half_open = HalfOpen::default();
            let mut all: Vec<(IpAddr, Instant, u32)> = Vec::new();
            for (id, (a, b, c, is_v6, ms)) in (1..).zip(steps) {
                now += Duration::from_millis(ms);
                let peer = if is_v6 {
                    std::net::Ipv6Addr::new(0x2001, a.into(), b.into(), c.into(), 0, 0, 0, 1).into()
                } else {
                    v4(a, b, c, c)
                };
                let room = half_open.room(now, peer, most, of_peer);
                prop_assert_eq!(room, slow_room(&all, now, peer, most, of_peer));
                if let Room::Displaces(victim) = room {
                    let at = all.iter().position(|(.., id)| *id == victim).unwrap();
                    let (peer, since, id) = all.swap_remove(at);
                    half_open.remove(peer, since, id);
                }
                if room != Room::None {
                    all.push((peer, now, id));
                    half_open.add(peer, now, id);
                }
                prop_assert!(half_open.total() == all.len() && all.len() <= most);
            }
            for (peer, since, id) in all {
                half_open.remove(peer, since, id);
            }
            prop_assert!(half_open.below.is_empty() && half_open.ranks.is_empty());
        }
    }
}
