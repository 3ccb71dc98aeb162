//! `[device]`: which RDMA device, and its addresses.

use std::net::{IpAddr, Ipv4Addr};

use rwctx::device::soft::persona::Persona;

use super::reader::{Field, Section};

/// What a build without the feature says.
const NO_VERBS: &str = "this build lacks the verbs provider: build with `cargo build --release --features verbs`; allowed: \"soft\"";

/// Addresses that one target may have.
const ADDRESSES_MAX: usize = 64;

/// The RDMA device of the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// What executes the work.
    pub provider: Provider,
    /// Local addresses, each of which gets a listener; at least one, all different.
    pub addresses: Vec<IpAddr>,
    /// Where protection information is checked.
    pub integrity: Integrity,
    /// The device that the soft one pretends to be.
    pub persona: Option<Persona>,
}

/// An implementation of RDMA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    /// The userspace RoCEv2 endpoint.
    Soft,
    /// An RDMA NIC, or the kernel's software RoCE, through libibverbs.
    #[cfg(feature = "verbs")]
    Verbs,
}

impl Provider {
    #[cfg(feature = "verbs")]
    const VERBS: Option<Self> = Some(Self::Verbs);
    #[cfg(not(feature = "verbs"))]
    const VERBS: Option<Self> = None;

    /// Its name in a configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Soft => "soft",
            #[cfg(feature = "verbs")]
            Self::Verbs => "verbs",
        }
    }
}

/// Where protection information is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integrity {
    /// By the device where it can, otherwise in software.
    Auto,
    /// Always in software.
    Software,
}

impl Default for Device {
    fn default() -> Self {
        Self {
            provider: Provider::Soft,
            addresses: vec![IpAddr::V4(Ipv4Addr::LOCALHOST)],
            integrity: Integrity::Auto,
            persona: None,
        }
    }
}

impl Device {
    pub(super) fn read(mut section: Section<'_, '_>) -> Self {
        let default = Self::default();
        let providers = [("soft", Some(Provider::Soft)), ("verbs", Provider::VERBS)];
        let provider = section.choice("provider", &providers);
        if provider == Some(None) {
            section.report_key("provider", NO_VERBS);
        }
        let places =
            [("auto", Some(Integrity::Auto)), ("offload", None), ("software", Some(Integrity::Software))];
        let integrity = section.choice_of_built("integrity", &places, "signature offload");
        let one = section.string("address");
        let list = section.strings("addresses");
        let personas = [Persona::Rxe, Persona::Mlx5, Persona::Iwarp].map(|it| (it.name(), it));
        let persona = section.choice("persona", &personas);
        #[cfg(feature = "verbs")]
        if persona.is_some() && provider == Some(Some(Provider::Verbs)) {
            section.report_key("persona", "only the soft device takes on the capabilities of another");
        }
        let addresses = match (one, list) {
            (Some(one), Some(_)) => {
                one.report("give either `address` or `addresses`, not both");
                Vec::new()
            }
            (Some(one), None) => unicast(vec![one]),
            (None, Some(list)) => {
                if list.value.is_empty() {
                    list.report("the list is empty; give at least one address, such as \"127.0.0.1\"");
                }
                if list.value.len() > ADDRESSES_MAX {
                    list.report(format!(
                        "has {} addresses; at most {ADDRESSES_MAX} are allowed",
                        list.value.len()
                    ));
                }
                unicast(list.value)
            }
            (None, None) => default.addresses,
        };
        section.finish();
        Self {
            provider: provider.flatten().unwrap_or(default.provider),
            addresses,
            integrity: integrity.unwrap_or(default.integrity),
            persona,
        }
    }
}

fn unicast(fields: Vec<Field<'_, &str>>) -> Vec<IpAddr> {
    let mut addresses = Vec::with_capacity(fields.len());
    for field in fields {
        let Some(field) = field.parse(address) else { continue };
        if addresses.contains(&field.value) {
            field.report(format!("{} is listed twice", field.value));
        }
        addresses.push(field.value);
    }
    addresses
}

/// Parses an address that a RoCE endpoint can have: RoCE puts it into packets, so it can't be a wildcard.
fn address(text: &str) -> Result<IpAddr, String> {
    let address: IpAddr = text.parse().map_err(|_| {
        format!("{text:?} is no IP address; give one of this machine's, such as \"127.0.0.1\" or \"fd00::1\", without port")
    })?;
    let why = match address {
        _ if address.is_unspecified() => "stands for all addresses; list those to listen on",
        _ if address.is_multicast() => "is a multicast address",
        IpAddr::V4(v4) if v4.is_broadcast() => "is a broadcast address",
        IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some() => {
            "is an IPv4 address in IPv6 form; write it as IPv4"
        }
        IpAddr::V6(v6) if v6.is_unicast_link_local() => {
            "is link-local, which needs an interface that RoCE's headers have no room for; give a global, unique local or \
             IPv4 address"
        }
        _ => return Ok(address),
    };
    Err(format!("{address} {why}"))
}
