//! Volumes under numbers: the namespaces of a subsystem, the logical units of a target.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

use super::reader::{Field, Section};
use super::volume;

/// What is numbered.
#[derive(Debug)]
pub(super) struct Numbered {
    /// The key of the number.
    pub(super) key: &'static str,
    /// What one is called: "namespace".
    pub(super) one: &'static str,
    /// The same as what a volume is: "a namespace".
    pub(super) as_one: &'static str,
    /// What has them: "subsystem".
    pub(super) home: &'static str,
    /// Numbers that there are.
    pub(super) numbers: RangeInclusive<u32>,
    /// How many there may be.
    pub(super) most: usize,
}

impl Numbered {
    /// Reads those of one home; such without a number get the lowest free ones, in their order. `refuse` says why a volume can't
    /// be one.
    pub(super) fn read(
        &self,
        sections: Vec<Section<'_, '_>>,
        volumes: &[volume::Draft<'_>],
        refuse: impl Fn(&volume::Draft<'_>) -> Option<String>,
    ) -> BTreeMap<u32, String> {
        let Self { key, one, as_one, home, numbers, most } = self;
        let mut numbered: BTreeMap<u32, String> = BTreeMap::new();
        let mut unnumbered = Vec::new();
        let mut used = BTreeSet::new();
        for mut section in sections {
            let volume = section.string("volume");
            let volume = section.require(volume, "volume", "volume = \"disk0\"");
            let number = section.integer(key, u64::from(*numbers.start())..=u64::from(*numbers.end()));
            let wrong_number = number.is_none() && section.has(key);
            if let Some(volume) = &volume {
                match volumes.iter().find(|known| known.name.value == volume.value) {
                    None => volume.report(unknown(volume.value, volumes)),
                    Some(_) if !used.insert(volume.value) => {
                        volume
                            .report(format!("volume {:?} is {as_one} of this {home} already", volume.value));
                    }
                    Some(known) => {
                        if let Some(why) = refuse(known) {
                            volume.report(why);
                        }
                    }
                }
            }
            if let Some(number) = &number {
                let value = u32::try_from(number.value).unwrap_or_else(|_| *numbers.end());
                let name = volume.as_ref().map_or("", |field| field.value).to_owned();
                if numbered.insert(value, name).is_some() {
                    number.report(format!("{one} {value} exists already in this {home}"));
                }
            } else if let Some(volume) = volume.filter(|_| !wrong_number) {
                unnumbered.push(volume);
            }
            section.finish();
        }
        for volume in unnumbered {
            let free = numbers.clone().find(|number| !numbered.contains_key(number));
            match free.filter(|_| numbered.len() < *most) {
                Some(number) => {
                    numbered.insert(number, volume.value.to_owned());
                }
                None => self.too_many(&volume),
            }
        }
        numbered
    }

    fn too_many(&self, volume: &Field<'_, &str>) {
        volume.report(format!("a {} has at most {} {}s", self.home, self.most, self.one));
    }
}

fn unknown(name: &str, volumes: &[volume::Draft<'_>]) -> String {
    match volumes.iter().map(|known| known.name.value).collect::<Vec<_>>() {
        names if names.is_empty() => format!("there is no volume {name:?}, nor any other"),
        names => format!("there is no volume {name:?}; there are: {}", names.join(", ")),
    }
}
