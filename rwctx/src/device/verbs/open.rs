//! Finds the device that has a target's addresses, and opens it for each reactor.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use super::channel::{EventChannel, Id};
use super::cm::Cm;
use super::device::VerbsDevice;
use super::handles::CompletionChannel;
use super::{OpenError, VerbsConfig, signatures};

impl VerbsDevice {
    /// Opens the device that has the addresses, once for each reactor; the first one is reactor 0's.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing stays open then.
    pub fn open(config: &VerbsConfig) -> Result<Vec<Self>, OpenError> {
        let system = |what: &str| {
            let what = what.to_owned();
            move |source| OpenError::System { what, source }
        };
        let channel = EventChannel::new()
            .map_err(system("make an RDMA event channel (is the module rdma_ucm loaded?)"))?;
        let (name, port) = device_of(&channel, &config.addresses)?;
        let mut cm = Some(Cm::new(channel, config.addresses.clone()));
        let mut devices = Vec::new();
        for _ in 0..config.reactors.max(1) {
            let (context, signatures) =
                signatures::open(&name).map_err(system(&format!("open the RDMA device {name}")))?;
            let attributes = context
                .attributes()
                .map_err(system(&format!("ask the RDMA device {name} what it can do")))?;
            if attributes.iwarp {
                return Err(OpenError::Iwarp { device: name });
            }
            let completions =
                CompletionChannel::new(&context).map_err(system("make a completion channel"))?;
            devices.push(Self::new(&name, port, &attributes, signatures, cm.take(), completions, context));
        }
        Ok(devices)
    }
}

/// The device that has all these addresses, and its port that has the first.
fn device_of(channel: &Arc<EventChannel>, addresses: &[IpAddr]) -> Result<(String, u8), OpenError> {
    let mut found: Option<(IpAddr, (String, u8))> = None;
    for &address in addresses {
        let id = Id::bind(channel, SocketAddr::new(address, 0))
            .map_err(|source| OpenError::NoDevice { address, source })?;
        let Some(device) = id.device() else {
            return Err(OpenError::NoDevice { address, source: io::Error::from_raw_os_error(libc::ENODEV) });
        };
        match &found {
            None => found = Some((address, device)),
            Some((first, (name, _))) if *name != device.0 => {
                return Err(OpenError::SeveralDevices {
                    address: *first,
                    device: name.clone(),
                    other_address: address,
                    other: device.0,
                });
            }
            Some(_) => {}
        }
    }
    found.map(|(_, device)| device).ok_or(OpenError::NoAddress)
}
