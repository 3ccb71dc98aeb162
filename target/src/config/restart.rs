//! Which differences between two configurations only take effect after a restart, and what is left without them.

use super::{Backend, Config, Volume};

/// The keys that differ and are only read at start.
pub(super) fn differences(old: &Config, new: &Config) -> Vec<String> {
    let mut keys: Vec<String> = Vec::new();
    let whole = [
        ("device", old.device != new.device),
        ("reactor", old.reactor != new.reactor),
        ("metrics", old.metrics != new.metrics),
    ];
    keys.extend(whole.iter().filter(|(_, differ)| *differ).map(|(key, _)| (*key).to_owned()));
    if old.nvme.port != new.nvme.port {
        keys.push("nvme.port".to_owned());
    }
    if old.iscsi.port != new.iscsi.port {
        keys.push("iscsi.port".to_owned());
    }
    let listens =
        |config: &Config| [config.nvme_listeners().count() != 0, config.iscsi_portals().count() != 0];
    for (key, (before, after)) in
        ["nvme", "iscsi"].into_iter().zip(listens(old).into_iter().zip(listens(new)))
    {
        if before != after {
            keys.push(format!("{key}: whether hosts can connect"));
        }
    }
    for subsystem in &new.nvme.subsystems {
        let before = old.nvme.subsystems.iter().find(|before| before.nqn == subsystem.nqn);
        if before.is_some_and(|before| before.serial != subsystem.serial) {
            keys.push(format!("nvme.subsystem {}: serial", subsystem.nqn));
        }
    }
    for volume in &new.volumes {
        if let Some(before) = old.volume(&volume.name) {
            let moved = old.home(&volume.name) != new.home(&volume.name);
            keys.extend(
                fixed(before, volume, moved).into_iter().map(|key| format!("volume {}: {key}", volume.name)),
            );
        }
    }
    keys
}

/// `new` with what is only read at start as it was.
pub(super) fn without_differences(old: &Config, new: Config) -> Config {
    let Config { device, reactor, metrics, .. } = old.clone();
    let mut merged = Config { device, reactor, metrics, ..new };
    merged.nvme.port = old.nvme.port;
    merged.iscsi.port = old.iscsi.port;
    for subsystem in &mut merged.nvme.subsystems {
        if let Some(before) = old.nvme.subsystems.iter().find(|before| before.nqn == subsystem.nqn) {
            subsystem.serial = before.serial.clone();
        }
    }
    for volume in &mut merged.volumes {
        if let Some(before) = old.volume(&volume.name) {
            let mut kept = before.clone();
            resize(&mut kept, volume);
            *volume = kept;
        }
    }
    merged
}

/// Gives `volume` the size that `new` has, where both have the same kind of backend and it is whole blocks.
fn resize(volume: &mut Volume, new: &Volume) {
    let whole = |size: u64| size.is_multiple_of(u64::from(volume.block_size));
    match (&mut volume.backend, &new.backend) {
        (Backend::Memory { size }, Backend::Memory { size: new })
        | (Backend::Null { size }, Backend::Null { size: new })
            if whole(*new) =>
        {
            *size = *new;
        }
        (Backend::File { path, size }, Backend::File { path: same, size: new })
            if path == same && new.is_none_or(whole) =>
        {
            *size = *new;
        }
        _ => {}
    }
}

/// What a volume that hosts use can't change: everything but its size. `moved`: its identity is derived from another
/// subsystem's name than before.
fn fixed(old: &Volume, new: &Volume, moved: bool) -> Vec<&'static str> {
    let backend = match (&old.backend, &new.backend) {
        (Backend::Memory { .. }, Backend::Memory { .. }) | (Backend::Null { .. }, Backend::Null { .. }) => {
            false
        }
        (Backend::File { path: old, .. }, Backend::File { path: new, .. }) => old != new,
        _ => true,
    };
    let differ = [
        ("backend", backend),
        ("block_size", old.block_size != new.block_size),
        ("protection", old.protection != new.protection),
        ("read_only", old.read_only != new.read_only),
        ("uuid", old.uuid != new.uuid || (new.uuid.is_none() && moved)),
        ("serial", old.serial != new.serial || (new.serial.is_none() && moved)),
    ];
    differ.into_iter().filter(|(_, differ)| *differ).map(|(key, _)| key).collect()
}
