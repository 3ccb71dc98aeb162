//! What bounds the answers that unauthenticated packets cause, and who is known not to be one of their inventions.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Peers that have completed a handshake, the last so many of them: they receive what is sent to their address.
#[derive(Debug, Default)]
pub(in crate::device) struct Known {
    /// When each did last, as a count of handshakes.
    by_peer: BTreeMap<IpAddr, u64>,
    by_age: BTreeSet<(u64, IpAddr)>,
    handshakes: u64,
}

const KNOWN: usize = 1024;

impl Known {
    pub(in crate::device) fn insert(&mut self, peer: IpAddr) {
        let peer = group(peer);
        self.handshakes += 1;
        if let Some(before) = self.by_peer.insert(peer, self.handshakes) {
            self.by_age.remove(&(before, peer));
        }
        self.by_age.insert((self.handshakes, peer));
        if self.by_peer.len() > KNOWN
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_peer.remove(&oldest);
        }
    }

    pub(in crate::device) fn contains(&self, peer: IpAddr) -> bool {
        self.by_peer.contains_key(&group(peer))
    }
}

/// Addresses that one host can have at will count as one: those of an IPv6 network of 64 bits.
fn group(peer: IpAddr) -> IpAddr {
    match peer {
        IpAddr::V4(_) => peer,
        IpAddr::V6(v6) => IpAddr::from((v6.to_bits() >> 64 << 64).to_be_bytes()),
    }
}

/// Token buckets for answers, shared by peers of the same hash: one that floods takes its neighbours' answers, not
/// everyone's, and they lose only time.
#[derive(Debug)]
pub(super) struct AnswerRate {
    buckets: Box<[Bucket; BUCKETS]>,
    seed: u64,
    per_second: u32,
}

const BUCKETS: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// Time up to which answers have been spent; never more than a second behind now.
    spent_to: Option<Instant>,
}

impl AnswerRate {
    /// At most `per_second` answers a second to one bucket of peers, in bursts up to as many.
    pub(super) fn new(per_second: u32, seed: u64) -> Self {
        Self { buckets: Box::new([Bucket { spent_to: None }; BUCKETS]), seed, per_second: per_second.max(1) }
    }

    /// Whether one more answer may go to `peer`; it then counts.
    pub(super) fn take(&mut self, now: Instant, peer: IpAddr) -> bool {
        let bits = match peer {
            IpAddr::V4(v4) => u64::from(v4.to_bits()),
            // The upper half: one host may own all addresses below it.
            IpAddr::V6(v6) => u64::try_from(v6.to_bits() >> 64).expect("64 of 128 bits"),
        };
        let mixed = (bits ^ self.seed).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 58;
        let bucket = &mut self.buckets[usize::try_from(mixed).expect("six bits")];
        let cost = Duration::from_secs(1) / self.per_second;
        let full = now.checked_sub(Duration::from_secs(1)).unwrap_or(now);
        let from = bucket.spent_to.map_or(full, |at| at.max(full));
        let to = from + cost;
        if to > now {
            return false;
        }
        bucket.spent_to = Some(to);
        true
    }
}

const _: () = assert!(BUCKETS == 1 << (64 - 58));

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "an arbitrary point to count from")]
    fn a_flooding_peer_gets_its_rate_and_others_theirs() {
        let start = Instant::now() + Duration::from_secs(10);
        let mut rate = AnswerRate::new(50, 7);
        let flooder: IpAddr = [10, 0, 0, 1].into();
        let answered = |rate: &mut AnswerRate, now, peer| (0..1000).filter(|_| rate.take(now, peer)).count();
        assert_eq!(answered(&mut rate, start, flooder), 50);
        assert_eq!(answered(&mut rate, start + Duration::from_millis(100), flooder), 5);
        assert_eq!(answered(&mut rate, start + Duration::from_secs(60), flooder), 50);
        let others = (2..200).filter(|&n| rate.take(start + Duration::from_secs(60), [10, 0, 0, n].into()));
        assert!(others.count() > 180);
    }

    #[test]
    fn the_peers_that_completed_a_handshake_last_are_known() {
        let mut known = Known::default();
        let peer = |number: u16| IpAddr::from([10, 0, number.to_be_bytes()[0], number.to_be_bytes()[1]]);
        (0..1024).for_each(|number| known.insert(peer(number)));
        known.insert(peer(0));
        known.insert(peer(1024));
        assert!(known.contains(peer(0)) && !known.contains(peer(1)) && known.contains(peer(1024)));
        assert_eq!((known.by_peer.len(), known.by_age.len()), (1024, 1024));
        known.insert("2001:db8::1".parse().unwrap());
        assert!(known.contains("2001:db8::2".parse().unwrap()), "of the same network");
        assert!(!known.contains("2001:db8:0:1::1".parse().unwrap()));
    }
}
