//! `[device]`: which RDMA device, and its addresses.

use std::net::{IpAddr, Ipv4Addr};

use rwctx::device::NoOffload;
use rwctx::device::soft::persona::Persona;

use super::reader::{Field, Section};

/// What a build without the feature says.
const NO_VERBS: &str = "this build lacks the verbs provider: build with `cargo build --release --features verbs`; allowed: \"soft\"";

/// What a build without the feature says.
#[cfg(all(feature = "verbs", not(feature = "mlx5")))]
const NO_MLX5: &str = "this build lacks the signature offload of ConnectX (cargo feature mlx5)";

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

    /// Why its offload is not taken unless it is asked for.
    fn why_software(self) -> &'static str {
        match self {
            Self::Soft => "the soft device's offload was not quicker with tuples on the wire",
            #[cfg(feature = "verbs")]
            Self::Verbs => "the offload of NICs was not measured",
        }
    }
}

/// Where protection information is checked that hosts send, or made for what they send. What goes to them is checked in
/// software before it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Integrity {
    /// As is known to be quicker: in software.
    Auto,
    /// By the device, as far as it can.
    Offload,
    /// Always in software.
    Software,
}

impl Integrity {
    /// Its name in a configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Offload => "offload",
            Self::Software => "software",
        }
    }
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

/// Who checks what hosts send, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checker {
    /// Whether it is the device.
    pub offload: bool,
    /// Why, where that was not asked for.
    pub why: Option<NoOffload>,
}

impl Device {
    /// Who checks the protection information that hosts send.
    #[must_use]
    pub fn checker(&self) -> Checker {
        let asked = |offload| Checker { offload, why: None };
        match (self.integrity, offload(self.provider, self.persona)) {
            (Integrity::Offload, _) => asked(true),
            (Integrity::Software, _) => asked(false),
            (Integrity::Auto, Err(lack)) => Checker { offload: false, why: Some(lack) },
            (Integrity::Auto, Ok(())) => Checker {
                offload: false,
                why: Some(NoOffload::Unavailable(self.provider.why_software().into())),
            },
        }
    }

    pub(super) fn read(mut section: Section<'_, '_>) -> Self {
        let default = Self::default();
        let providers = [("soft", Some(Provider::Soft)), ("verbs", Provider::VERBS)];
        let provider = section.choice("provider", &providers);
        if provider == Some(None) {
            section.report_key("provider", NO_VERBS);
        }
        let places = [Integrity::Auto, Integrity::Offload, Integrity::Software].map(|it| (it.name(), it));
        let integrity = section.choice("integrity", &places);
        let one = section.string("address");
        let list = section.strings("addresses");
        let personas = [Persona::Rxe, Persona::Mlx5, Persona::Iwarp].map(|it| (it.name(), it));
        let persona = section.choice("persona", &personas);
        let provider = provider.map(|provider| provider.unwrap_or(default.provider));
        #[cfg(feature = "verbs")]
        if persona.is_some() && provider == Some(Provider::Verbs) {
            section.report_key("persona", "only the soft device takes on the capabilities of another");
        }
        if integrity == Some(Integrity::Offload)
            && let Err(lack) = offload(provider.unwrap_or(default.provider), persona)
        {
            section.report_key("integrity", format!("{lack}; allowed: \"auto\", \"software\""));
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
            provider: provider.unwrap_or(default.provider),
            addresses,
            integrity: integrity.unwrap_or(default.integrity),
            persona,
        }
    }
}

/// Whether a device may check protection information while data comes in. Of NICs it is known when they are opened.
///
/// # Errors
/// Why it never does.
fn offload(provider: Provider, persona: Option<Persona>) -> Result<(), NoOffload> {
    match provider {
        Provider::Soft if persona.is_some_and(|it| it.caps().max_pi_fast_reg_page_list_len == 0) => {
            Err(NoOffload::Device)
        }
        Provider::Soft => Ok(()),
        #[cfg(feature = "mlx5")]
        Provider::Verbs => Ok(()),
        #[cfg(all(feature = "verbs", not(feature = "mlx5")))]
        Provider::Verbs => Err(NoOffload::Unavailable(NO_MLX5.into())),
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
