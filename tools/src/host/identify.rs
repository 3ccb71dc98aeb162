//! What `intact-host identify` shows: the controller and its namespaces, for people and as JSON.

use std::fmt::Write as _;

use intact::nvmf::wire::identify::{IdentifyNamespace, ascii};
use serde::Serialize;
use uuid::Uuid;

use super::controller::Controller;
use super::error::HostError;
use super::namespace::Namespace;

/// A controller with its namespaces.
#[derive(Clone, Debug, Serialize)]
pub struct Description {
    /// The controller.
    pub controller: ControllerInfo,
    /// Its active namespaces.
    pub namespaces: Vec<NamespaceInfo>,
}

/// A controller, with the field names of the specification.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the specification's names; Identify Controller says what they are")]
pub struct ControllerInfo {
    pub subnqn: String,
    pub cntlid: u16,
    pub sn: String,
    pub mn: String,
    pub fr: String,
    pub version: String,
    pub cap: u64,
    pub mdts: u8,
    pub max_data_bytes: u64,
    pub max_queue_entries: u32,
    pub cntrltype: u8,
    pub cmic: u8,
    pub oaes: u32,
    pub ctratt: u32,
    pub oacs: u16,
    pub acl: u8,
    pub aerl: u8,
    pub lpa: u8,
    pub elpe: u8,
    pub kas: u16,
    pub maxcmd: u16,
    pub nn: u32,
    pub oncs: u16,
    pub vwc: u8,
    pub sgls: u32,
    pub ioccsz: u32,
    pub iorcsz: u32,
    pub icdoff: u16,
    pub msdbd: u8,
}

/// A namespace.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the specification's names; Identify Namespace says what they are")]
pub struct NamespaceInfo {
    pub nsid: u32,
    pub nsze: u64,
    pub ncap: u64,
    pub nuse: u64,
    pub size_bytes: u64,
    pub block_size: u32,
    pub metadata_size: u16,
    pub flbas: u8,
    pub mc: u8,
    pub dpc: u8,
    pub dps: u8,
    pub nmic: u8,
    pub nsattr: u8,
    pub read_only: bool,
    pub nguid: String,
    pub uuid: Option<String>,
    pub protection: Option<ProtectionInfo>,
}

/// Protection of a namespace.
#[derive(Clone, Debug, Serialize)]
pub struct ProtectionInfo {
    /// 1 to 3.
    pub r#type: u8,
    /// The guard's name in configurations.
    pub guard: &'static str,
    /// Bits of the storage tag.
    pub storage_tag_bits: u8,
    /// Bits of the reference tag.
    pub ref_tag_bits: u8,
}

impl Description {
    /// Asks the controller for everything; or for one namespace only.
    ///
    /// # Errors
    /// When the controller refuses or does not answer.
    pub fn read(controller: &mut Controller, nsid: Option<u32>) -> Result<Self, HostError> {
        let nsids = match nsid {
            Some(nsid) => vec![nsid],
            None => controller.namespaces()?,
        };
        let mut namespaces = Vec::with_capacity(nsids.len());
        for nsid in nsids {
            let (id, nvm) = controller.identify_namespace(nsid)?;
            let namespace = Namespace::parse(nsid, &id, nvm.as_deref())?;
            let uuid = controller.namespace_uuid(nsid)?;
            namespaces.push(NamespaceInfo::new(&id, &namespace, uuid));
        }
        Ok(Self { controller: ControllerInfo::new(controller), namespaces })
    }

    /// For people.
    #[must_use]
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        self.controller.write(&mut text).expect("writing to a string can't fail");
        for namespace in &self.namespaces {
            namespace.write(&mut text).expect("writing to a string can't fail");
        }
        text
    }
}

impl ControllerInfo {
    fn new(controller: &Controller) -> Self {
        let id = controller.id();
        let version = controller.version();
        Self {
            subnqn: ascii(&id.subnqn),
            cntlid: id.cntlid.get(),
            sn: ascii(&id.sn),
            mn: ascii(&id.mn),
            fr: ascii(&id.fr),
            version: format!("{}.{}.{}", version >> 16, version >> 8 & 0xff, version & 0xff),
            cap: controller.cap(),
            mdts: id.mdts,
            max_data_bytes: controller.max_data(),
            max_queue_entries: controller.max_entries(),
            cntrltype: id.cntrltype,
            cmic: id.cmic,
            oaes: id.oaes.get(),
            ctratt: id.ctratt.get(),
            oacs: id.oacs.get(),
            acl: id.acl,
            aerl: id.aerl,
            lpa: id.lpa,
            elpe: id.elpe,
            kas: id.kas.get(),
            maxcmd: id.maxcmd.get(),
            nn: id.nn.get(),
            oncs: id.oncs.get(),
            vwc: id.vwc,
            sgls: id.sgls.get(),
            ioccsz: id.ioccsz.get(),
            iorcsz: id.iorcsz.get(),
            icdoff: id.icdoff.get(),
            msdbd: id.msdbd,
        }
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "controller")?;
        writeln!(text, "  subnqn    : {}", self.subnqn)?;
        writeln!(text, "  cntlid    : {}", self.cntlid)?;
        writeln!(text, "  sn        : {}", self.sn)?;
        writeln!(text, "  mn        : {}", self.mn)?;
        writeln!(text, "  fr        : {}", self.fr)?;
        writeln!(text, "  version   : {}", self.version)?;
        writeln!(text, "  cap       : {:#x} ({} queue entries)", self.cap, self.max_queue_entries)?;
        writeln!(text, "  mdts      : {} ({} bytes)", self.mdts, self.max_data_bytes)?;
        writeln!(text, "  cntrltype : {}", self.cntrltype)?;
        writeln!(text, "  cmic      : {:#x}", self.cmic)?;
        writeln!(text, "  oaes      : {:#x}", self.oaes)?;
        writeln!(text, "  ctratt    : {:#x}", self.ctratt)?;
        writeln!(text, "  oacs      : {:#x}", self.oacs)?;
        writeln!(text, "  acl       : {}", self.acl)?;
        writeln!(text, "  aerl      : {}", self.aerl)?;
        writeln!(text, "  lpa       : {:#x}", self.lpa)?;
        writeln!(text, "  elpe      : {}", self.elpe)?;
        writeln!(text, "  kas       : {}", self.kas)?;
        writeln!(text, "  maxcmd    : {}", self.maxcmd)?;
        writeln!(text, "  nn        : {}", self.nn)?;
        writeln!(text, "  oncs      : {:#x}", self.oncs)?;
        writeln!(text, "  vwc       : {:#x}", self.vwc)?;
        writeln!(text, "  sgls      : {:#x}", self.sgls)?;
        writeln!(text, "  ioccsz    : {} ({} bytes)", self.ioccsz, u64::from(self.ioccsz) * 16)?;
        writeln!(text, "  iorcsz    : {}", self.iorcsz)?;
        writeln!(text, "  icdoff    : {}", self.icdoff)?;
        writeln!(text, "  msdbd     : {}", self.msdbd)
    }
}

impl NamespaceInfo {
    fn new(id: &IdentifyNamespace, namespace: &Namespace, uuid: Option<[u8; 16]>) -> Self {
        let protection = namespace.protection.map(|(format, pi_type)| ProtectionInfo {
            r#type: pi_type.number(),
            guard: format.guard().name(),
            storage_tag_bits: format.storage_tag_bits(),
            ref_tag_bits: format.ref_tag_bits(),
        });
        Self {
            nsid: namespace.nsid,
            nsze: id.nsze.get(),
            ncap: id.ncap.get(),
            nuse: id.nuse.get(),
            size_bytes: id.nsze.get().saturating_mul(u64::from(namespace.block_size)),
            block_size: namespace.block_size,
            metadata_size: namespace.metadata_size,
            flbas: id.flbas,
            mc: id.mc,
            dpc: id.dpc,
            dps: id.dps,
            nmic: id.nmic,
            nsattr: id.nsattr,
            read_only: namespace.read_only,
            nguid: Uuid::from_bytes(id.nguid).simple().to_string(),
            uuid: uuid.map(|uuid| Uuid::from_bytes(uuid).hyphenated().to_string()),
            protection,
        }
    }

    fn write(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "namespace {}", self.nsid)?;
        writeln!(text, "  nsze      : {} blocks ({} bytes)", self.nsze, self.size_bytes)?;
        writeln!(text, "  ncap      : {}", self.ncap)?;
        writeln!(text, "  nuse      : {}", self.nuse)?;
        writeln!(text, "  block     : {} bytes", self.block_size)?;
        writeln!(text, "  metadata  : {} bytes", self.metadata_size)?;
        match &self.protection {
            None => writeln!(text, "  protection: none")?,
            Some(pi) => writeln!(
                text,
                "  protection: type {}, guard {}, storage tag {} bits, reference tag {} bits",
                pi.r#type, pi.guard, pi.storage_tag_bits, pi.ref_tag_bits
            )?,
        }
        writeln!(text, "  flbas     : {:#x}", self.flbas)?;
        writeln!(text, "  mc        : {:#x}", self.mc)?;
        writeln!(text, "  dpc       : {:#x}", self.dpc)?;
        writeln!(text, "  dps       : {:#x}", self.dps)?;
        writeln!(text, "  nmic      : {:#x}", self.nmic)?;
        writeln!(
            text,
            "  nsattr    : {:#x}{}",
            self.nsattr,
            if self.read_only { " (read only)" } else { "" }
        )?;
        writeln!(text, "  nguid     : {}", self.nguid)?;
        if let Some(uuid) = &self.uuid {
            writeln!(text, "  uuid      : {uuid}")?;
        }
        Ok(())
    }
}
