//! A namespace: a volume under a number, and what Identify says of it (NVM 4.1.5, 5.2; base 3.2.1, 5.17.2).
//!
//! Also the table of a subsystem's namespaces, which is replaced as a whole when the configuration changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use t10pi::Guard;
use zerocopy::IntoBytes;

use super::validate::NamespaceView;
use super::wire::identify::{
    CSI_NVM, IDENTIFY_LEN, IdentifyNamespace, IdentifyNamespaceIndependent, IdentifyNamespaceNvm, LbaFormat,
    NSID_LIST_LEN, nidt, zeroed,
};
use super::wire::status::Status;
use crate::block::Volume;

/// Highest namespace number of a subsystem (Identify Controller NN).
pub const NSID_MAX: u32 = 1024;
/// NSID that addresses all namespaces.
pub const NSID_ALL: u32 = 0xffff_ffff;

/// FLBAS bit 4: metadata follows each block.
const FLBAS_EXTENDED: u8 = 1 << 4;
/// MC bit 0: metadata as part of an extended block. A separate buffer does not exist over fabrics.
const MC_EXTENDED: u8 = 1 << 0;
/// DPC: types 1 to 3 (2:0) in the last bytes of the metadata (4).
const DPC: u8 = 0b1_0111;
/// NMIC bit 0: several controllers may attach the namespace.
const NMIC_SHARED: u8 = 1 << 0;
/// DLFEAT: deallocated blocks read as zero (001b), Write Zeroes can deallocate (bit 3); their guards are all ones
/// rather than a checksum (bit 4 clear).
const DLFEAT: u8 = 0b0_1001;
/// NSATTR bit 0: write protected.
const NSATTR_WRITE_PROTECTED: u8 = 1 << 0;
/// NSTAT bit 0: ready.
const NSTAT_READY: u8 = 1 << 0;
/// PIC bit 0: 16b guards may have a storage tag; required when an extended format exists.
const PIC_STORAGE_TAG: u8 = 1 << 0;
/// ELBAF: the PIF field starts at bit 7.
const ELBAF_PIF_SHIFT: u32 = 7;

/// A volume under a number.
#[derive(Clone, Debug)]
pub struct Namespace {
    nsid: u32,
    volume: Arc<Volume>,
}

impl Namespace {
    /// Presents `volume` as namespace `nsid` (1 to [`NSID_MAX`]).
    #[must_use]
    pub fn new(nsid: u32, volume: Arc<Volume>) -> Self {
        Self { nsid, volume }
    }

    /// Its number.
    #[must_use]
    pub fn nsid(&self) -> u32 {
        self.nsid
    }

    /// What stores it.
    #[must_use]
    pub fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// What validation needs to know, now.
    #[must_use]
    pub fn view(&self) -> NamespaceView {
        NamespaceView {
            blocks: self.volume.blocks(),
            block_size: self.volume.block_size(),
            metadata_size: self.volume.metadata_size(),
            protection: self.volume.protection().map(|p| (p.format, p.pi_type)),
            read_only: self.volume.read_only(),
        }
    }

    /// Identify Namespace (CNS 00h).
    #[must_use]
    pub(super) fn identify(&self) -> Box<IdentifyNamespace> {
        let view = self.view();
        let mut id = zeroed::<IdentifyNamespace>();
        id.nsze = view.blocks.into();
        id.ncap = view.blocks.into();
        id.nuse = view.blocks.into();
        if view.metadata_size != 0 {
            id.flbas = FLBAS_EXTENDED;
            id.mc = MC_EXTENDED;
        }
        if let Some((_, pi_type)) = view.protection {
            id.dpc = DPC;
            id.dps = pi_type.number();
        }
        id.nmic = NMIC_SHARED;
        id.dlfeat = DLFEAT;
        id.nsattr = if view.read_only { NSATTR_WRITE_PROTECTED } else { 0 };
        let bytes = u128::from(view.blocks) * u128::from(view.block_size);
        id.nvmcap = bytes.to_le_bytes();
        id.nguid = self.volume.identity().nguid();
        let lbads = u8::try_from(view.block_size.ilog2()).expect("the logarithm of a u32 fits");
        id.lbaf[0] = LbaFormat { ms: view.metadata_size.into(), lbads, rp: 0 };
        id
    }

    /// NVM Command Set Identify Namespace (CNS 05h, CSI 00h).
    #[must_use]
    pub(super) fn identify_nvm(&self) -> Box<IdentifyNamespaceNvm> {
        let mut id = zeroed::<IdentifyNamespaceNvm>();
        if let Some(protection) = self.volume.protection() {
            let format = &protection.format;
            let pif = match format.guard() {
                // The Internet checksum is a memory-side format; volumes refuse it.
                Guard::Crc16 | Guard::Ip => 0,
                Guard::Crc32c => 1,
                Guard::Crc64 => 2,
            };
            id.lbstm = format.storage_tag_mask().into();
            id.pic = if format.is_extended() { PIC_STORAGE_TAG } else { 0 };
            id.elbaf[0] = (u32::from(format.storage_tag_bits()) | pif << ELBAF_PIF_SHIFT).into();
        }
        id
    }

    /// I/O Command Set Independent Identify Namespace (CNS 08h).
    #[must_use]
    pub(super) fn identify_independent(&self) -> Box<IdentifyNamespaceIndependent> {
        let mut id = zeroed::<IdentifyNamespaceIndependent>();
        id.nmic = NMIC_SHARED;
        id.nsattr = if self.volume.read_only() { NSATTR_WRITE_PROTECTED } else { 0 };
        id.nstat = NSTAT_READY;
        id
    }

    /// Namespace Identification Descriptor list (CNS 03h).
    #[must_use]
    pub(super) fn descriptors(&self) -> [u8; IDENTIFY_LEN] {
        let identity = self.volume.identity();
        let mut list = [0; IDENTIFY_LEN];
        let mut at = 0;
        let mut push = |kind: u8, value: &[u8]| {
            // NIDT, NIDL, two reserved bytes, NID.
            list[at] = kind;
            list[at + 1] = u8::try_from(value.len()).expect("an identifier has at most 16 bytes");
            list[at + 4..at + 4 + value.len()].copy_from_slice(value);
            at += 4 + value.len();
        };
        push(nidt::NGUID, &identity.nguid());
        push(nidt::UUID, identity.uuid().as_bytes());
        push(nidt::CSI, &[CSI_NVM]);
        list
    }
}

/// The namespaces of a subsystem at one time.
#[derive(Clone, Debug, Default)]
pub struct Namespaces {
    by_nsid: BTreeMap<u32, Namespace>,
}

impl Namespaces {
    /// The namespaces of these volumes.
    #[must_use]
    pub fn new(volumes: impl IntoIterator<Item = (u32, Arc<Volume>)>) -> Self {
        let by_nsid =
            volumes.into_iter().map(|(nsid, volume)| (nsid, Namespace::new(nsid, volume))).collect();
        Self { by_nsid }
    }

    /// The namespace that an I/O command addresses.
    ///
    /// # Errors
    /// `INVALID_NAMESPACE_OR_FORMAT` for a number that no namespace can have (0, above [`NSID_MAX`], all
    /// namespaces), `INVALID_FIELD` for one that none has now (base 3.2.1.4 and 3.2.1.5).
    pub fn find(&self, nsid: u32) -> Result<&Namespace, Status> {
        match self.by_nsid.get(&nsid) {
            Some(namespace) => Ok(namespace),
            None if (1..=NSID_MAX).contains(&nsid) => Err(Status::INVALID_FIELD),
            None => Err(Status::INVALID_NAMESPACE_OR_FORMAT),
        }
    }

    /// The namespace of this number, if there is one.
    #[must_use]
    pub fn get(&self, nsid: u32) -> Option<&Namespace> {
        self.by_nsid.get(&nsid)
    }

    /// All of them, by rising number.
    pub fn iter(&self) -> impl Iterator<Item = &Namespace> {
        self.by_nsid.values()
    }

    /// Whether a volume of theirs may lose completed writes when power fails.
    #[must_use]
    pub fn have_write_cache(&self) -> bool {
        self.iter().any(|namespace| namespace.volume.has_write_cache())
    }

    /// A namespace list: numbers above `after`, rising (CNS 02h).
    #[must_use]
    pub(super) fn list(&self, after: u32) -> [u8; IDENTIFY_LEN] {
        let numbers = after.checked_add(1).into_iter().flat_map(|from| self.by_nsid.range(from..));
        nsid_list(numbers.map(|(nsid, _)| *nsid))
    }

    /// Numbers of namespaces that `new` adds, removes, or puts onto another volume.
    #[must_use]
    pub(super) fn changes(&self, new: &Self) -> Vec<u32> {
        let same = |nsid: &u32| match (self.get(*nsid), new.get(*nsid)) {
            (Some(old), Some(new)) => Arc::ptr_eq(&old.volume, &new.volume),
            _ => false,
        };
        let mut numbers: Vec<u32> =
            self.by_nsid.keys().chain(new.by_nsid.keys()).copied().filter(|nsid| !same(nsid)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }
}

/// A namespace list of up to 1024 numbers, zero-filled.
pub(super) fn nsid_list(numbers: impl Iterator<Item = u32>) -> [u8; IDENTIFY_LEN] {
    let mut list = [zerocopy::little_endian::U32::ZERO; NSID_LIST_LEN];
    for (entry, nsid) in list.iter_mut().zip(numbers) {
        *entry = nsid.into();
    }
    let mut out = [0; IDENTIFY_LEN];
    out.copy_from_slice(list.as_bytes());
    out
}
