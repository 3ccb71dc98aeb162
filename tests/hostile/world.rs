//! A target for one test, and what can be asked of it from outside.

#![expect(clippy::disallowed_methods, reason = "tests of real programs run in real time")]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::process::Command;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use intact_tests::target::{Target, Usage, program};

/// A subsystem that everybody may use, with a protected volume as namespace 1.
pub(crate) const NQN: &str = "nqn.2026-11.io.intact:hostile";
/// A subsystem for one host.
pub(crate) const PRIVATE_NQN: &str = "nqn.2026-11.io.intact:private";
/// That host.
pub(crate) const FRIEND_NQN: &str = "nqn.2026-11.io.intact:friend";
/// Any other host.
pub(crate) const HOST_NQN: &str = "nqn.2026-11.io.intact:host";
/// Port of the listener.
pub(crate) const PORT: u16 = 4420;
/// Blocks of 4 KiB of the volume.
pub(crate) const BLOCKS: u64 = 64 << 20 >> 12;

/// Addresses that a world has.
const EACH: u8 = 10;

/// Addresses of their own for whoever asks, [`EACH`] from the first one, which is returned: neither tests of this process
/// nor several runs of this suite on one machine meet.
pub(crate) fn addresses() -> Ipv4Addr {
    const IN_BLOCK: u8 = 24;
    static TAKEN: AtomicU8 = AtomicU8::new(0);
    let number = TAKEN.fetch_add(1, Ordering::Relaxed);
    let (block, place) = (number / IN_BLOCK, number % IN_BLOCK);
    assert!(block < 3, "more worlds than addresses");
    let [low, high, ..] = std::process::id().to_le_bytes();
    Ipv4Addr::new(127, (64 + 64 * block) | high & 0x3f, low, EACH * (place + 1))
}

/// A target with addresses of its own: the first one for itself, the following ones for peers.
pub(crate) struct World {
    first: Ipv4Addr,
    pub(crate) target: Target,
}

impl World {
    /// Starts a target of `reactors` reactors.
    pub(crate) fn start(reactors: u8) -> Self {
        Self::with_volume(reactors, "memory = \"64MiB\"")
    }

    /// The same with a volume stored as these lines of its configuration say.
    pub(crate) fn with_volume(reactors: u8, stored: &str) -> Self {
        let address = addresses();
        let config = format!(
            r#"
            [device]
            addresses = ["{address}"]
            [reactor]
            cores = {reactors}
            [metrics]
            address = "{address}:9420"
            [[volume]]
            name = "disk0"
            {stored}
            protection = {{ type = 1 }}
            [[nvme.subsystem]]
            nqn = "{NQN}"
            allow_any_host = true
            [[nvme.subsystem.namespace]]
            volume = "disk0"
            [[nvme.subsystem]]
            nqn = "{PRIVATE_NQN}"
            hosts = ["{FRIEND_NQN}"]
            [[nvme.subsystem.namespace]]
            volume = "disk0"
            "#
        );
        Self { first: address, target: Target::start(Command::new(program("intact")), &config, 1) }
    }

    /// Where peers connect.
    pub(crate) fn listener(&self) -> SocketAddr {
        SocketAddr::new(self.peer(0), PORT)
    }

    /// The address of peer `number`, 1 to 9; 0 is the target's own.
    pub(crate) fn peer(&self, number: u8) -> IpAddr {
        assert!(number < EACH, "the next address is another world's");
        let [a, b, c, d] = self.first.octets();
        Ipv4Addr::new(a, b, c, d + number).into()
    }

    /// The sum of the metrics whose name starts as `name` says, over all reactors; after a space, a label that they have.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let text = self.metrics();
        let (name, label) = name.split_once(' ').unwrap_or((name, ""));
        text.lines()
            .filter(|line| line.starts_with(name) && line.contains(label))
            .filter_map(|line| line.rsplit_once(' ')?.1.parse::<f64>().ok())
            .map(|value| {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "counters are whole and small"
                )]
                let value = value as u64;
                value
            })
            .sum()
    }

    fn metrics(&self) -> String {
        let address = SocketAddr::new(self.peer(0), 9420);
        let mut stream = TcpStream::connect(address).expect("metrics are served");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket has a timeout");
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: intact\r\nConnection: close\r\n\r\n")
            .expect("the request is taken");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("metrics are text");
        text
    }

    /// Waits until a metric's sum fits.
    pub(crate) fn await_metric(&self, name: &str, within: Duration, fits: impl Fn(u64) -> bool) -> u64 {
        let until = Instant::now() + within;
        loop {
            let value = self.metric(name);
            if fits(value) {
                return value;
            }
            assert!(
                Instant::now() < until,
                "{name} is {value} after {within:?}\n{}\n{}",
                self.metrics(),
                self.target.log()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until nobody is connected and every queue is gone.
    pub(crate) fn await_idle(&self) {
        self.await_metric("intact_nvme_controllers", Duration::from_secs(30), |n| n == 0);
        self.await_metric("intact_nvme_queues", Duration::from_secs(30), |n| n == 0);
    }

    /// Asserts that the target holds no more than at `before`: no descriptor more, and at most `bytes` more memory.
    pub(crate) fn assert_no_growth(&self, before: Usage, bytes: u64) {
        let until = Instant::now() + Duration::from_secs(10);
        let mut after = self.target.usage();
        // Connections for metrics are closed a moment after their answer.
        while after.descriptors > before.descriptors && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
            after = self.target.usage();
        }
        assert!(after.descriptors <= before.descriptors, "descriptors leak: {before:?}, {after:?}");
        let grown = after.resident.saturating_sub(before.resident);
        assert!(grown <= bytes, "memory grew by {grown} bytes");
    }

    /// Asserts that the target runs and ends when it is told to.
    pub(crate) fn end(mut self) {
        self.target.assert_alive();
        let status = self.target.terminate(Duration::from_secs(15));
        assert!(status.success(), "{status:?}\n{}", self.target.log());
        let log = self.target.log();
        assert!(!log.contains("panicked"), "{log}");
    }
}
