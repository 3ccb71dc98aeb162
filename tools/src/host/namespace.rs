//! A namespace as a host needs to know it: geometry, protection, and what commands to it look like.
//!
//! Read from Identify once; never asks the controller itself. NVM 4.1.5, 5.2; rw-contexts 4.7.

use intact::nvmf::command::PiFields;
use intact::nvmf::wire::identify::{IdentifyNamespace, IdentifyNamespaceNvm};
use t10pi::{Checks, CommandTags, Format, Guard, PiType, Position};

use super::error::HostError;

/// Geometry and protection of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Namespace ID.
    pub nsid: u32,
    /// Size in blocks.
    pub blocks: u64,
    /// Bytes of user data in a block.
    pub block_size: u32,
    /// Bytes of metadata of a block; 0 = none.
    pub metadata_size: u16,
    /// Metadata follows its block in the data (extended LBA).
    pub extended: bool,
    /// Format and type of the protection information.
    pub protection: Option<(Format, PiType)>,
    /// Refuses commands that change blocks.
    pub read_only: bool,
}

/// FLBAS bit 4: metadata at the end of the data LBA.
const FLBAS_EXTENDED: u8 = 1 << 4;
/// DPS bit 3: the tuple is in the first bytes of the metadata.
const DPS_FIRST: u8 = 1 << 3;
/// NSATTR bit 0: write protected.
const NSATTR_WRITE_PROTECTED: u8 = 1 << 0;

impl Namespace {
    /// Reads Identify Namespace, and its extended formats if the controller has them.
    ///
    /// # Errors
    /// When the namespace is inactive, or of a format that does not exist.
    pub fn parse(
        nsid: u32,
        id: &IdentifyNamespace,
        nvm: Option<&IdentifyNamespaceNvm>,
    ) -> Result<Self, HostError> {
        let bad = |what: String| HostError::Invalid(format!("namespace {nsid} {what}"));
        if id.nsze.get() == 0 {
            return Err(bad("does not exist".to_owned()));
        }
        let high = if id.nlbaf > 15 { id.flbas >> 5 & 3 } else { 0 };
        let index = usize::from(id.flbas & 0xf | high << 4);
        let lbaf = id.lbaf[index];
        if !(9..=30).contains(&lbaf.lbads) {
            return Err(bad(format!("has blocks of 2^{} bytes", lbaf.lbads)));
        }
        let block_size = 1 << lbaf.lbads;
        let metadata_size = lbaf.ms.get();
        let pi_type = match (id.dps & 7, PiType::from_number(id.dps & 7)) {
            (1.., None) => return Err(bad(format!("has protection of type {}", id.dps & 7))),
            (_, pi_type) => pi_type,
        };
        let protection = match pi_type {
            None => None,
            Some(pi_type) => {
                let elbaf = nvm.map_or(0, |nvm| nvm.elbaf[index].get());
                let guard = match elbaf >> 7 & 3 {
                    0 => Guard::Crc16,
                    1 => Guard::Crc32c,
                    2 => Guard::Crc64,
                    _ => return Err(bad("has a guard format that is not known".to_owned())),
                };
                let position = if id.dps & DPS_FIRST == 0 { Position::Last } else { Position::First };
                let bits = u8::try_from(elbaf & 0x7f).expect("7 bits");
                let mask = nvm.map_or(0, |nvm| nvm.lbstm.get());
                let format = Format::new(guard, block_size, metadata_size)
                    .and_then(|format| format.with_position(position).with_storage_tag(bits, mask))
                    .map_err(|error| bad(format!("has an impossible format: {error}")))?;
                Some((format, pi_type))
            }
        };
        Ok(Self {
            nsid,
            blocks: id.nsze.get(),
            block_size,
            metadata_size,
            extended: id.flbas & FLBAS_EXTENDED != 0,
            protection,
            read_only: id.nsattr & NSATTR_WRITE_PROTECTED != 0,
        })
    }

    /// Bytes that a command for `blocks` blocks transfers.
    ///
    /// # Errors
    /// When metadata would have to travel apart from the data, which fabrics can't.
    pub fn transfer_len(&self, blocks: u32, pract: bool) -> Result<u64, HostError> {
        let data = u64::from(blocks) * u64::from(self.block_size);
        let left_out = self
            .protection
            .is_some_and(|(format, _)| pract && usize::from(self.metadata_size) == format.tuple_size());
        if self.metadata_size == 0 || left_out {
            return Ok(data);
        }
        if !self.extended {
            return Err(HostError::Invalid(format!(
                "namespace {} keeps metadata apart from data: over fabrics it can be used with PRACT = 1 only",
                self.nsid
            )));
        }
        Ok(data + u64::from(blocks) * u64::from(self.metadata_size))
    }

    /// The reference tag with which a transfer at `slba` starts, unless told otherwise.
    #[must_use]
    pub fn ref_tag(&self, slba: u64) -> u64 {
        match self.protection {
            Some((format, PiType::Type1 | PiType::Type2)) => format.ref_tag_of(slba),
            _ => 0,
        }
    }

    /// The storage and reference tag fields of a command.
    #[must_use]
    pub fn command_tags(&self, storage_tag: u64, ref_tag: u64) -> CommandTags {
        match self.protection {
            Some((format, _)) => format.pack_tags(storage_tag, ref_tag),
            None => CommandTags::default(),
        }
    }

    /// The protection fields of a command at `slba` that checks guard and, if the type has one, reference tag.
    #[must_use]
    pub fn checked_pi(&self, slba: u64, pract: bool) -> PiFields {
        let ref_tag = matches!(self.protection, Some((_, PiType::Type1 | PiType::Type2)));
        PiFields {
            pract,
            checks: Checks { guard: self.protection.is_some(), ref_tag, ..Checks::NONE },
            command_tags: self.command_tags(0, self.ref_tag(slba)),
            ..PiFields::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use intact::nvmf::wire::identify::{LbaFormat, zeroed};

    use super::*;

    fn protected() -> Box<IdentifyNamespace> {
        let mut id = zeroed::<IdentifyNamespace>();
        id.nsze = 1024.into();
        id.flbas = FLBAS_EXTENDED;
        id.dps = 1;
        id.lbaf[0] = LbaFormat { ms: 8.into(), lbads: 12, rp: 0 };
        id
    }

    #[test]
    fn a_protected_namespace_transfers_metadata_unless_the_controller_acts() {
        let ns = Namespace::parse(1, &protected(), None).unwrap();
        assert_eq!((ns.blocks, ns.block_size, ns.metadata_size), (1024, 4096, 8));
        assert_eq!(ns.transfer_len(8, true).unwrap(), 32_768);
        assert_eq!(ns.transfer_len(8, false).unwrap(), 32_832);
        assert_eq!(ns.ref_tag(0x1_0000_0005), 5);
    }

    #[test]
    fn metadata_longer_than_the_tuple_always_travels() {
        let mut id = protected();
        id.lbaf[0].ms = 16.into();
        assert_eq!(Namespace::parse(1, &id, None).unwrap().transfer_len(1, true).unwrap(), 4112);
        id.dps = 0;
        assert_eq!(Namespace::parse(1, &id, None).unwrap().transfer_len(1, true).unwrap(), 4112);
    }

    #[test]
    fn extended_formats_name_guard_and_storage_tag() {
        let mut id = protected();
        id.lbaf[0].ms = 16.into();
        let mut nvm = zeroed::<IdentifyNamespaceNvm>();
        nvm.elbaf[0] = (2 << 7 | 18).into();
        nvm.lbstm = 0x3_ffff.into();
        let (format, pi_type) = Namespace::parse(1, &id, Some(&nvm)).unwrap().protection.unwrap();
        assert_eq!((format.guard(), format.storage_tag_bits(), pi_type), (Guard::Crc64, 18, PiType::Type1));
    }

    #[test]
    fn what_can_not_be_is_refused() {
        assert!(Namespace::parse(1, &zeroed(), None).is_err());
        let mut id = protected();
        id.dps = 5;
        assert!(Namespace::parse(1, &id, None).is_err());
        let mut id = protected();
        id.lbaf[0].ms = 4.into();
        assert!(Namespace::parse(1, &id, None).is_err());
        let mut id = protected();
        id.flbas = 0;
        let apart = Namespace::parse(1, &id, None).unwrap();
        assert!(apart.transfer_len(1, false).is_err() && apart.transfer_len(1, true).is_ok());
    }
}
