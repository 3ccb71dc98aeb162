//! Two managers and their users over a bad network.

use std::collections::BTreeMap;

use super::*;

/// What a user knows of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    /// Asked, or accepted.
    Pending,
    Established,
    /// Over, not released.
    Ended,
    /// Released, or refused by this user.
    Gone,
}

#[derive(Debug)]
struct Node {
    cm: Cm,
    address: IpAddr,
    /// With what the other side calls it, once known.
    views: BTreeMap<CmId, View>,
    next_qpn: u32,
}

/// How the network and the users behave, per thousand.
#[derive(Clone, Copy, Debug)]
struct Faults {
    lost: u32,
    repeated: u32,
    /// Longest delay of a datagram in milliseconds.
    delay: u64,
    /// Requests that the user of the passive side refuses.
    refused: u32,
    /// Connections that are closed by either user while the network is bad.
    closed: u32,
}

struct Simulation {
    now: Instant,
    random: fastrand::Rng,
    faults: Faults,
    nodes: [Node; 2],
    /// Datagrams under way, with the node that they go to.
    network: BTreeMap<(Instant, u64), (usize, MadOut)>,
    sequence: u64,
    /// Calls of users that are due.
    calls: BTreeMap<(Instant, u64), (usize, CmId, Call)>,
}

#[derive(Clone, Copy, Debug)]
enum Call {
    Decide,
    Confirm,
    Close,
}

impl Simulation {
    fn new(seed: u64, faults: Faults) -> Self {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut node = |guid, address| {
            let mut cm = cm(guid, random.u64(..));
            cm.listen(PORT).unwrap();
            Node { cm, address, views: BTreeMap::new(), next_qpn: random.u32(0x100..0x10_0000) }
        };
        let nodes = [node(GUID_A, a()), node(GUID_B, b())];
        Self {
            now: start(),
            random,
            faults,
            nodes,
            network: BTreeMap::new(),
            sequence: 0,
            calls: BTreeMap::new(),
        }
    }

    fn chance(&mut self, per_thousand: u32) -> bool {
        self.random.u32(0..1000) < per_thousand
    }

    fn key(&mut self, delay_ms: u64) -> (Instant, u64) {
        self.sequence += 1;
        (self.now + Duration::from_millis(self.random.u64(0..=delay_ms)), self.sequence)
    }

    fn call_soon(&mut self, at: usize, id: CmId, call: Call, within_ms: u64) {
        let key = self.key(within_ms);
        self.calls.insert(key, (at, id, call));
    }

    fn connect(&mut self, from: usize) {
        let remote = self.nodes[1 - from].address;
        let now = self.now;
        let node = &mut self.nodes[from];
        node.next_qpn += 1;
        let to = ConnectParams { local: node.address, remote, ..params(node.next_qpn) };
        let id = node.cm.connect(now, &to).unwrap();
        node.views.insert(id, View::Pending);
        self.settle();
    }

    /// Takes events and datagrams from the managers.
    fn settle(&mut self) {
        for at in 0..2 {
            while let Some(event) = self.nodes[at].cm.poll_event() {
                self.handle_event(at, &event);
            }
            while let Some(out) = self.nodes[at].cm.poll_mad(self.now) {
                assert_eq!((out.src, out.dst), (self.nodes[at].address, self.nodes[1 - at].address));
                let copies = 1 + usize::from(self.chance(self.faults.repeated));
                for _ in 0..copies {
                    if !self.chance(self.faults.lost) {
                        let key = self.key(self.faults.delay);
                        self.network.insert(key, (1 - at, out.clone()));
                    }
                }
            }
        }
    }

    fn handle_event(&mut self, at: usize, event: &CmEvent) {
        let view = |node: &Node, id: CmId| node.views.get(&id).copied();
        match *event {
            CmEvent::ConnectRequest { id, .. } => {
                let before = self.nodes[at].views.insert(id, View::Pending);
                assert!(matches!(before, None | Some(View::Gone)), "{id:?} is new");
                self.call_soon(at, id, Call::Decide, 1500);
            }
            CmEvent::ConnectReply { id, .. } => {
                assert_eq!(view(&self.nodes[at], id), Some(View::Pending));
                self.call_soon(at, id, Call::Confirm, 1500);
            }
            CmEvent::Established { id } => {
                assert_eq!(view(&self.nodes[at], id), Some(View::Pending));
                self.nodes[at].views.insert(id, View::Established);
                self.maybe_close(at, id);
            }
            CmEvent::Rejected { id, .. } | CmEvent::Unreachable { id } | CmEvent::Disconnected { id } => {
                let before = self.nodes[at].views.insert(id, View::Ended);
                assert!(
                    matches!(before, Some(View::Pending | View::Established)),
                    "{event:?} after {before:?}"
                );
            }
            CmEvent::Released { id } => {
                let before = self.nodes[at].views.insert(id, View::Gone);
                assert!(!matches!(before, None | Some(View::Gone)), "{event:?} after {before:?}");
            }
        }
    }

    fn maybe_close(&mut self, at: usize, id: CmId) {
        if self.chance(self.faults.closed) {
            self.call_soon(at, id, Call::Close, 5000);
        }
    }

    fn handle_call(&mut self, at: usize, id: CmId, call: Call) {
        let refuse = matches!(call, Call::Decide) && self.chance(self.faults.refused);
        let now = self.now;
        let node = &mut self.nodes[at];
        // What the user calls for may be over already.
        let result = match call {
            Call::Decide if refuse => {
                let result = node.cm.reject(now, id, RejReason::Consumer, &[1]);
                if result.is_ok() {
                    node.views.insert(id, View::Gone);
                }
                result
            }
            Call::Decide => {
                node.next_qpn += 1;
                node.cm.accept(now, id, &acceptance(node.next_qpn))
            }
            Call::Confirm => {
                let result = node.cm.send_rtu(now, id);
                if result.is_ok() {
                    node.views.insert(id, View::Established);
                    self.maybe_close(at, id);
                }
                result
            }
            Call::Close => node.cm.disconnect(now, id),
        };
        let view = self.nodes[at].views[&id];
        if result.is_err() {
            assert!(matches!(view, View::Ended | View::Gone), "{call:?} failed: {result:?}, {view:?}");
        }
    }

    /// Runs for `seconds`, or until nothing is left to do.
    fn run(&mut self, seconds: u64) {
        let end = self.now + Duration::from_secs(seconds);
        loop {
            self.settle();
            let datagram = self.network.keys().next().map(|&(at, _)| at);
            let call = self.calls.keys().next().map(|&(at, _)| at);
            let timers = self.nodes.iter().filter_map(|node| node.cm.next_timeout());
            let next = timers.chain(datagram).chain(call).min();
            let Some(next) = next.filter(|&at| at <= end) else { break };
            self.now = self.now.max(next);
            for node in &mut self.nodes {
                node.cm.handle_timeout(self.now);
            }
            if call.is_some_and(|at| at <= self.now)
                && let Some((_, (at, id, call))) = self.calls.pop_first()
            {
                self.handle_call(at, id, call);
            }
            if datagram.is_some_and(|at| at <= self.now)
                && let Some((_, (to, out))) = self.network.pop_first()
            {
                self.nodes[to].cm.handle_mad(self.now, out.src, out.dst, &out.mad);
            }
        }
        self.now = end;
    }

    /// Established connections of a node, as pairs of IDs, its own first if it is the first node.
    fn established(&self, at: usize) -> Vec<(u32, u32)> {
        let node = &self.nodes[at];
        let established = node.views.iter().filter(|(_, view)| **view == View::Established);
        let mut pairs: Vec<(u32, u32)> = established
            .map(|(id, _)| {
                let peer = node.cm.connections[&id.0].peer.unwrap().comm_id;
                if at == 0 { (id.0, peer) } else { (peer, id.0) }
            })
            .collect();
        pairs.sort_unstable();
        pairs
    }

    fn close_all(&mut self) {
        for at in 0..2 {
            let open: Vec<u32> = self.nodes[at].cm.connections.keys().copied().collect();
            for id in open {
                // A refused one is no business of its user's any more.
                let _ended = self.nodes[at].cm.disconnect(self.now, CmId(id));
            }
        }
    }
}

fn simulate(seed: u64, faults: Faults, count: usize) -> Simulation {
    let mut simulation = Simulation::new(seed, faults);
    for _ in 0..count {
        let from = simulation.random.usize(0..2);
        simulation.connect(from);
        simulation.run(1);
    }
    simulation.run(120);
    simulation
}

fn assert_all_over(simulation: &mut Simulation) {
    simulation.close_all();
    simulation.run(200);
    for node in &simulation.nodes {
        assert_empty(&node.cm);
        assert!(node.views.values().all(|view| *view == View::Gone), "{:?}", node.views);
    }
    assert!(simulation.network.is_empty());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn both_sides_agree_on_every_connection_over_a_bad_network(
        seed in any::<u64>(),
        lost in 0_u32..350,
        repeated in 0_u32..300,
        delay in 0_u64..3000,
        refused in 0_u32..300,
    ) {
        let faults = Faults { lost, repeated, delay, refused, closed: 0 };
        let mut simulation = simulate(seed, faults, 12);
        let [left, right] = [0, 1].map(|at| simulation.established(at));
        prop_assert_eq!(left, right);
        for node in &simulation.nodes {
            prop_assert!(!node.views.values().any(|view| *view == View::Pending), "{:?}", node.views);
        }
        assert_all_over(&mut simulation);
    }

    #[test]
    fn nothing_is_left_when_users_close_and_refuse_at_any_time(
        seed in any::<u64>(),
        lost in 0_u32..500,
        repeated in 0_u32..300,
        delay in 0_u64..3000,
        closed in 0_u32..1000,
    ) {
        let faults = Faults { lost, repeated, delay, refused: 200, closed };
        let mut simulation = simulate(seed, faults, 12);
        assert_all_over(&mut simulation);
    }
}

#[test]
fn over_a_good_network_every_request_becomes_a_connection() {
    let faults = Faults { lost: 0, repeated: 0, delay: 5, refused: 0, closed: 0 };
    let mut simulation = simulate(1, faults, 20);
    let [left, right] = [0, 1].map(|at| simulation.established(at));
    assert_eq!(left.len(), 20);
    assert_eq!(left, right);
    assert_all_over(&mut simulation);
}

#[test]
fn over_a_network_that_loses_a_fifth_nearly_every_request_becomes_a_connection() {
    let faults = Faults { lost: 200, repeated: 200, delay: 500, refused: 0, closed: 0 };
    let established: usize = (0..20).map(|seed| simulate(seed, faults, 12).established(0).len()).sum();
    assert!((220..=240).contains(&established), "{established} of 240");
}
