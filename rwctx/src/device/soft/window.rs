//! How much a requester may have in flight, and how long it waits: a congestion window in packets that grows by one a
//! round trip and halves on loss, and a smoothed round-trip time. IBTA leaves both to the implementation; the window keeps
//! bursts within what receive rings of hosts hold.

use std::time::{Duration, Instant};

use super::endpoint::Tuning;
use super::psn::Psn;

/// Packets that may be sent after a retransmission timeout; also the smallest window.
pub(super) const WINDOW_MIN: u32 = 8;

#[derive(Debug)]
pub(super) struct Window {
    packets: u32,
    most: u32,
    /// Below it the window grows by a packet per packet, above by a packet per window.
    threshold: u32,
    /// Packets acknowledged towards the next step of growth.
    credit: u32,
    /// Smoothed round-trip time.
    srtt: Option<Duration>,
    /// The packet that is being timed. Only first transmissions are (Karn).
    sample: Option<(Psn, Instant)>,
    rto_min: Duration,
    rto_start: Duration,
}

impl Window {
    pub(super) fn new(tuning: &Tuning) -> Self {
        let most = tuning.window_max.max(WINDOW_MIN);
        let packets = tuning.window_start.clamp(WINDOW_MIN, most);
        Self {
            packets,
            most,
            threshold: packets,
            credit: 0,
            srtt: None,
            sample: None,
            rto_min: tuning.rto_min,
            rto_start: tuning.rto_start,
        }
    }

    /// Packets that may be in flight.
    #[inline]
    pub(super) fn packets(&self) -> u32 {
        self.packets
    }

    /// Smoothed round-trip time; before the first sample a guess.
    pub(super) fn round_trip(&self) -> Duration {
        self.srtt.unwrap_or(self.rto_min / 4)
    }

    /// Retransmission timeout before any back-off.
    #[inline]
    pub(super) fn timeout(&self) -> Duration {
        self.srtt.map_or(self.rto_start, |srtt| (4 * srtt).max(self.rto_min))
    }

    /// A packet that asks for an answer was sent for the first time.
    #[inline]
    pub(super) fn on_sent(&mut self, psn: Psn, now: Instant) {
        if self.sample.is_none() {
            self.sample = Some((psn, now));
        }
    }

    /// The peer showed that it executed everything up to and including `psn`.
    #[inline]
    pub(super) fn on_answer(&mut self, psn: Psn, now: Instant) {
        if let Some((timed, since)) = self.sample
            && timed <= psn
        {
            self.sample = None;
            let rtt = now.saturating_duration_since(since);
            self.srtt = Some(self.srtt.map_or(rtt, |srtt| (7 * srtt + rtt) / 8));
        }
    }

    /// Packets left the network.
    #[inline]
    pub(super) fn on_progress(&mut self, packets: u32) {
        if self.packets >= self.most {
            return;
        }
        if self.packets < self.threshold {
            self.packets = (self.packets + packets).min(self.threshold);
            return;
        }
        self.credit += packets;
        if self.credit >= self.packets {
            self.credit = 0;
            self.packets += 1;
        }
    }

    /// Something is sent again: its round trip can't be told.
    pub(super) fn forget_sample(&mut self) {
        self.sample = None;
    }

    /// Packets were lost, but answers still come; or the network asks for less.
    pub(super) fn on_loss(&mut self) {
        self.threshold = (self.packets / 2).max(WINDOW_MIN);
        self.packets = self.threshold;
        self.credit = 0;
    }

    /// Nothing came back.
    pub(super) fn on_timeout(&mut self) {
        self.threshold = (self.packets / 2).max(WINDOW_MIN);
        self.packets = WINDOW_MIN;
        self.credit = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window() -> Window {
        Window::new(&Tuning { window_start: 64, window_max: 100, ..Tuning::default() })
    }

    #[test]
    fn it_grows_by_a_packet_a_round_trip_up_to_its_limit_and_halves_on_loss() {
        let mut window = window();
        window.on_progress(63);
        assert_eq!(window.packets(), 64);
        window.on_progress(1);
        assert_eq!(window.packets(), 65);
        (0..10_000).for_each(|_| window.on_progress(1));
        assert_eq!(window.packets(), 100);
        for expected in [50, 25, 12, 8, 8] {
            window.on_loss();
            assert_eq!(window.packets(), expected);
        }
    }

    #[test]
    fn after_a_timeout_it_starts_small_and_is_quickly_back_at_half() {
        let mut window = window();
        window.on_timeout();
        assert_eq!(window.packets(), WINDOW_MIN);
        window.on_progress(8);
        assert_eq!(window.packets(), 16);
        window.on_progress(1000);
        assert_eq!(window.packets(), 32);
        window.on_progress(31);
        assert_eq!(window.packets(), 32);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a base for a virtual clock")]
    fn the_timeout_follows_the_round_trip_time_of_first_transmissions() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut window = window();
        let psn = Psn::start(7);
        assert_eq!(window.timeout(), Duration::from_millis(20));
        window.on_sent(psn, at(0));
        window.on_sent(psn.after(1), at(1));
        window.on_answer(psn.before(), at(1));
        window.on_answer(psn.after(1), at(10));
        assert_eq!(
            (window.round_trip(), window.timeout()),
            (Duration::from_millis(10), Duration::from_millis(40))
        );
        window.on_sent(psn.after(2), at(20));
        window.forget_sample();
        window.on_answer(psn.after(2), at(1000));
        assert_eq!(window.round_trip(), Duration::from_millis(10));
        for round in 0..50 {
            window.on_sent(psn.after(3), at(2000 + round));
            window.on_answer(psn.after(3), at(2000 + round));
        }
        assert_eq!(window.timeout(), Duration::from_millis(5));
    }
}
