//! A target under a flood of requests with false addresses, and an honest host that connects meanwhile.

use std::collections::BTreeSet;

use super::*;

/// Where the flood says that it comes from.
#[derive(Clone, Copy, Debug)]
enum From {
    OneAddress,
    /// The honest host's network of 24 bits.
    Neighbours,
    /// Its network of 16 bits.
    District,
    /// Anywhere in IPv4.
    Anywhere,
    /// Its IPv6 network of 48 bits.
    Site,
}

impl From {
    const ALL: [Self; 5] = [Self::OneAddress, Self::Neighbours, Self::District, Self::Anywhere, Self::Site];

    fn address(self, random: &mut fastrand::Rng) -> IpAddr {
        let host = random.u8(2..=254);
        match self {
            Self::OneAddress => [10, 9, 8, 7].into(),
            Self::Neighbours => [10, 0, 0, host].into(),
            Self::District => [10, 0, random.u8(..), host].into(),
            Self::Anywhere => [random.u8(1..=223), random.u8(..), random.u8(..), host].into(),
            Self::Site => v6(random.u16(..)),
        }
    }

    /// The honest host and the target.
    fn addresses(self) -> (IpAddr, IpAddr) {
        if matches!(self, Self::Site) { (v6(1), v6(0)) } else { ([10, 0, 0, 1].into(), b()) }
    }
}

fn v6(network: u16) -> IpAddr {
    std::net::Ipv6Addr::new(0x2001, 0xdb8, 0, network, 0, 0, 0, 1).into()
}

/// How long a host takes between a reply and its confirmation, and a target to decide.
const WORK: Duration = Duration::from_millis(5);
const STEP: Duration = Duration::from_millis(1);

struct Flood {
    now: Instant,
    random: fastrand::Rng,
    from: From,
    per_ms: u32,
    template: Req,
    target: Cm,
    /// What the target's user has: connections that it was told of and not that they are released.
    held: BTreeSet<CmId>,
    most_held: usize,
    /// Those of them that are not doubtful.
    spent_on: BTreeSet<CmId>,
    most_spent_on: usize,
    /// Whether a request of the honest host was doubtful.
    honest_doubted: bool,
    /// Decisions and confirmations that are due.
    decisions: VecDeque<(Instant, CmId)>,
    confirmations: VecDeque<(Instant, CmId)>,
    honest: Cm,
    established: BTreeSet<u32>,
}

impl Flood {
    fn new(from: From, per_ms: u32, seed: u64) -> Self {
        let mut target = cm(GUID_B, seed);
        target.listen(PORT).unwrap();
        Self {
            now: start(),
            random: fastrand::Rng::with_seed(seed),
            from,
            per_ms,
            template: request(0x100, |_| ()).0,
            target,
            held: BTreeSet::new(),
            most_held: 0,
            spent_on: BTreeSet::new(),
            most_spent_on: 0,
            honest_doubted: false,
            decisions: VecDeque::new(),
            confirmations: VecDeque::new(),
            honest: cm(GUID_A, !seed),
            established: BTreeSet::new(),
        }
    }

    /// The flood, for a millisecond.
    fn pour(&mut self) {
        let (_, target) = self.from.addresses();
        for _ in 0..self.per_ms {
            let address = self.from.address(&mut self.random);
            let mut req = self.template;
            (req.ca_guid, req.local_comm_id) = (self.random.u64(..), self.random.u32(1..));
            req.qpn = Qpn(self.random.u32(2..0x00FF_FFFF));
            (req.primary.local_gid, req.primary.remote_gid) = (gid(address), gid(target));
            req.cma = Some(CmaHeader { src_port: 0xC000, src: address, dst: target });
            let mad = CmMessage::Req(req).emit(self.random.u64(..));
            self.target.handle_mad(self.now, address, target, &mad);
        }
    }

    fn connect(&mut self, qpn: u32) -> CmId {
        let (local, remote) = self.from.addresses();
        self.honest.connect(self.now, &ConnectParams { local, remote, ..params(qpn) }).unwrap()
    }

    fn step(&mut self) {
        self.now += STEP;
        let now = self.now;
        self.pour();
        for cm in [&mut self.target, &mut self.honest] {
            cm.handle_timeout(now);
        }
        let (honest, target) = self.from.addresses();
        for out in sent(&mut self.honest, now) {
            self.target.handle_mad(now, honest, target, &out.mad);
        }
        for out in sent(&mut self.target, now) {
            if out.dst == honest {
                self.honest.handle_mad(now, target, honest, &out.mad);
            }
        }
        for event in events(&mut self.target) {
            match event {
                CmEvent::ConnectRequest { id, doubtful, remote, .. } => {
                    self.honest_doubted |= doubtful && remote == honest;
                    assert!(self.held.insert(id));
                    assert!(doubtful || self.spent_on.insert(id));
                    self.decisions.push_back((now + WORK, id));
                }
                CmEvent::Released { id } => {
                    assert!(self.held.remove(&id));
                    self.spent_on.remove(&id);
                }
                CmEvent::Established { id } => assert!(self.held.contains(&id)),
                _ => {}
            }
        }
        self.most_held = self.most_held.max(self.held.len());
        self.most_spent_on = self.most_spent_on.max(self.spent_on.len());
        while let Some((_, id)) = self.decisions.pop_front_if(|(at, _)| *at <= now) {
            let accepted = self.target.accept(now, id, &acceptance(id.0 & 0xFF_FFFF));
            assert!(accepted.is_ok() || !self.held.contains(&id));
        }
        for event in events(&mut self.honest) {
            match event {
                CmEvent::ConnectReply { id, .. } => self.confirmations.push_back((now + WORK, id)),
                CmEvent::Unreachable { id } | CmEvent::Rejected { id, .. } => panic!("{id:?} failed"),
                _ => {}
            }
        }
        while let Some((_, id)) = self.confirmations.pop_front_if(|(at, _)| *at <= now) {
            self.honest.send_rtu(now, id).unwrap();
            self.established.insert(id.0);
        }
    }

    fn run(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end {
            self.step();
        }
    }

    /// Connects the honest host; how long that took, if it was done within a minute.
    fn time_to_connect(&mut self, qpn: u32) -> Option<Duration> {
        let begin = self.now;
        let id = self.connect(qpn);
        while !self.established.contains(&id.0) {
            if self.now > begin + Duration::from_secs(60) {
                return None;
            }
            self.step();
        }
        Some(self.now - begin)
    }
}

/// Rates of the flood, in requests a millisecond.
const RATES: [u32; 2] = [2, 30];

#[test]
fn a_stranger_connects_at_its_first_try_wherever_a_flood_says_that_it_comes_from() {
    for from in From::ALL {
        for (seed, per_ms) in (1..).zip(RATES) {
            let mut flood = Flood::new(from, per_ms, seed);
            flood.run(Duration::from_secs(1));
            let time = flood.time_to_connect(0x100);
            assert!(
                time.is_some_and(|time| time < Duration::from_millis(50)),
                "{from:?} {per_ms}/ms: {time:?}"
            );
        }
    }
}

#[test]
fn a_known_host_connects_as_if_there_were_no_flood() {
    for from in [From::Neighbours, From::Anywhere] {
        let mut flood = Flood::new(from, 0, 1);
        assert!(flood.time_to_connect(0x100).is_some());
        flood.per_ms = 20;
        flood.run(Duration::from_secs(1));
        for qpn in 0x101..0x120 {
            let time = flood.time_to_connect(qpn);
            assert!(time.is_some_and(|time| time < Duration::from_millis(50)), "{from:?}: {time:?}");
        }
        assert!(!flood.honest_doubted, "a known host is not doubtful");
    }
}

#[test]
fn what_a_flood_makes_a_target_hold_is_bounded() {
    for from in From::ALL {
        let mut flood = Flood::new(from, 30, 1);
        flood.run(Duration::from_secs(2));
        let config = CmConfig::new(GUID_B, 1, PathMtu::Mtu4096);
        assert!(flood.most_held <= config.max_half_open + 1, "{from:?}: {}", flood.most_held);
        assert!(flood.most_spent_on <= config.doubtful_from, "{from:?}: {}", flood.most_spent_on);
        assert_eq!(flood.target.connections(), flood.held.len());
        // Nobody answers: all of it goes.
        flood.per_ms = 0;
        flood.run(Duration::from_secs(70));
        assert_empty(&flood.target);
        assert!(flood.held.is_empty());
    }
}
