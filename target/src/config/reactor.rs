//! `[reactor]` and `[metrics]`: threads, and where their counters are shown.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use super::reader::{OneOrList, Section};

/// Reactors that one target may have.
const REACTORS_MAX: u64 = 64;

/// Highest CPU number, from the kernel's `CPU_SETSIZE`.
const CPU_MAX: u64 = 1023;

/// The reactors: one thread each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reactor {
    /// How many, and where they run.
    pub cores: Cores,
    /// How they wait.
    pub poll: Poll,
}

/// How many reactors there are, and where they run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cores {
    /// So many reactors, on whichever CPU the kernel chooses.
    Count(NonZeroUsize),
    /// One reactor pinned to each of these CPUs; not empty, all different.
    Cpus(Vec<usize>),
}

impl Cores {
    /// Reactors, 1 to 64.
    #[must_use]
    pub fn count(&self) -> usize {
        match self {
            Self::Count(count) => count.get(),
            Self::Cpus(cpus) => cpus.len(),
        }
    }

    /// The CPU that reactor `index` is pinned to, if it is.
    #[must_use]
    pub fn cpu(&self, index: usize) -> Option<usize> {
        match self {
            Self::Count(_) => None,
            Self::Cpus(cpus) => cpus.get(index).copied(),
        }
    }
}

/// How a reactor waits for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Polls for a short while after work, then sleeps until something arrives.
    Adaptive,
    /// Never sleeps: lowest latency, a whole CPU.
    Busy,
}

impl Default for Reactor {
    fn default() -> Self {
        Self { cores: Cores::Count(NonZeroUsize::MIN), poll: Poll::Adaptive }
    }
}

impl Reactor {
    pub(super) fn read(mut section: Section<'_, '_>) -> Self {
        let default = Self::default();
        let cores = section.integer_or_list("cores", &(1..=REACTORS_MAX), &(0..=CPU_MAX));
        let cores = cores.and_then(cores_of).unwrap_or(default.cores);
        let poll = section.choice("poll", &[("adaptive", Poll::Adaptive), ("busy", Poll::Busy)]);
        section.finish();
        Self { cores, poll: poll.unwrap_or(default.poll) }
    }
}

fn cores_of(cores: OneOrList<'_>) -> Option<Cores> {
    let cpus = match cores {
        OneOrList::One(count) => {
            return usize::try_from(count.value).ok().and_then(NonZeroUsize::new).map(Cores::Count);
        }
        OneOrList::List(cpus) => cpus,
    };
    if cpus.value.is_empty() {
        cpus.report("the list is empty; give at least one CPU number, such as [0]");
    }
    if u64::try_from(cpus.value.len()).is_ok_and(|count| count > REACTORS_MAX) {
        cpus.report(format!("has {} CPUs; at most {REACTORS_MAX} are allowed", cpus.value.len()));
    }
    let mut numbers = Vec::with_capacity(cpus.value.len());
    for cpu in &cpus.value {
        let number = usize::try_from(cpu.value).ok()?;
        if numbers.contains(&number) {
            cpu.report(format!("CPU {number} is listed twice"));
        }
        numbers.push(number);
    }
    Some(Cores::Cpus(numbers))
}

/// Where counters are shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Address of the Prometheus endpoint; absent: none.
    pub address: Option<SocketAddr>,
}

impl Metrics {
    pub(super) fn read(mut section: Section<'_, '_>) -> Self {
        let address = section.string("address").and_then(|field| {
            field.parse(|text| match text.parse::<SocketAddr>() {
                Ok(address) if address.port() == 0 => {
                    Err(format!("{text:?} has port 0; give a port from 1 to 65535"))
                }
                Ok(address) => Ok(address),
                Err(_) => Err(format!(
                    "{text:?} is no address and port; give such as \"127.0.0.1:9420\" or \"[::1]:9420\""
                )),
            })
        });
        section.finish();
        Self { address: address.map(|field| field.value) }
    }
}
