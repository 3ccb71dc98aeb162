//! What a configuration says, as the values that volumes and the registries of both protocols are made of.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::block::{self, Identity, Stop, Volume};
use crate::config::{self, Config};
use crate::iscsi::directory;
use crate::iscsi::registry::{IscsiConfig, TargetConfig};
use crate::nvmf::registry::{NvmeConfig, SubsystemConfig};
use crate::nvmf::subsystem::Hosts;

pub(super) fn volume_config(config: &Config, volume: &config::Volume, stop: &Stop) -> block::VolumeConfig {
    let home = config.home(&volume.name).unwrap_or_default();
    let serial = volume.serial.as_ref().map(config::Serial::as_str);
    let protection = volume.protection.map(|protection| block::Protection {
        format: protection.format,
        pi_type: protection.pi_type,
        layout: match protection.layout {
            config::Layout::Separate => block::Layout::Separate,
            config::Layout::Interleaved => block::Layout::Interleaved,
        },
    });
    let backend = match &volume.backend {
        config::Backend::Memory { size } => block::BackendConfig::Memory { size: *size },
        config::Backend::Null { size } => block::BackendConfig::Null { size: *size },
        config::Backend::File { path, size } => {
            block::BackendConfig::File { path: path.clone(), size: *size }
        }
    };
    block::VolumeConfig {
        name: volume.name.clone(),
        identity: Identity::new(home, &volume.name, volume.uuid, serial),
        block_size: volume.block_size,
        protection,
        read_only: volume.read_only,
        backend,
        stop: stop.clone(),
    }
}

pub(super) fn nvme_config(config: &Config, volumes: &BTreeMap<String, Arc<Volume>>) -> NvmeConfig {
    let subsystems = config.nvme.subsystems.iter().map(|subsystem| SubsystemConfig {
        nqn: subsystem.nqn.as_str().to_owned(),
        serial: subsystem.serial.as_str().to_owned(),
        hosts: match &subsystem.hosts {
            config::Hosts::Any => Hosts::Any,
            config::Hosts::Listed(names) => {
                Hosts::Listed(names.iter().map(|name| name.as_str().to_owned()).collect())
            }
        },
        namespaces: subsystem
            .namespaces
            .iter()
            .filter_map(|ns| Some((ns.nsid, Arc::clone(volumes.get(&ns.volume)?))))
            .collect(),
    });
    NvmeConfig { listeners: config.nvme_listeners().collect(), subsystems: subsystems.collect() }
}

pub(super) fn iscsi_config(config: &Config, volumes: &BTreeMap<String, Arc<Volume>>) -> IscsiConfig {
    let targets = config.iscsi.targets.iter().map(|target| TargetConfig {
        target: directory::Target {
            name: target.iqn.clone(),
            alias: None,
            initiators: target.initiators.clone(),
            chap: target.chap.clone(),
        },
        units: target
            .units
            .iter()
            .filter_map(|(lun, volume)| Some((*lun, Arc::clone(volumes.get(volume)?))))
            .collect(),
    });
    IscsiConfig { portals: config.iscsi_portals().collect(), targets: targets.collect() }
}
