//! Identify (base 5.17): what the controller says of itself, and the lists and structures of its namespaces.

use zerocopy::IntoBytes;

use super::events::MAX_REQUESTS;
use super::keep_alive::GRANULARITY_100MS;
use super::properties::VERSION;
use super::{Controller, MODEL};
use crate::nvmf::namespace::{NSID_ALL, NSID_MAX, Namespace};
use crate::nvmf::subsystem::Subsystem;
use crate::nvmf::wire::cqe::CQE_LEN;
use crate::nvmf::wire::fabrics::DISCOVERY_NQN;
use crate::nvmf::wire::identify::{
    CSI_NVM, IDENTIFY_LEN, IdentifyController, IdentifyControllerNvm, cns, set_ascii, zeroed,
};
use crate::nvmf::wire::sqe::SQE_LEN;
use crate::nvmf::wire::status::Status;

use super::shared::ERROR_LOG_ENTRIES;

/// CMIC: several ports (0), several controllers (1).
const CMIC: u8 = 0b11;
/// CTRATT: 128-bit host identifier.
const CTRATT_HIDS: u32 = 1 << 0;
/// CTRATT: traffic-based keep alive.
const CTRATT_TBKAS: u32 = 1 << 6;
/// CTRATT: extended LBA formats.
const CTRATT_ELBAS: u32 = 1 << 15;
/// CTRATT: MDTS and size limits exclude metadata.
const CTRATT_MEM: u32 = 1 << 16;
/// CNTRLTYPE: I/O controller.
const CNTRLTYPE_IO: u8 = 1;
/// CNTRLTYPE: discovery controller.
const CNTRLTYPE_DISCOVERY: u8 = 2;
/// ACL: Abort commands at once, 0's based.
const ACL: u8 = 3;
/// FRMW: one firmware slot (3:1), which is read only (0).
const FRMW: u8 = 0b11;
/// LPA: effects log (1), offsets (2), supported log pages and feature effects (5).
const LPA_IO: u8 = 1 << 1 | 1 << 2 | 1 << 5;
/// LPA of a discovery controller: offsets.
const LPA_DISCOVERY: u8 = 1 << 2;
/// SQES: 64 bytes required and at most.
const SQES: u8 = 0x66;
/// CQES: 16 bytes required and at most.
const CQES: u8 = 0x44;
/// ONCS: Compare (0), Dataset Management (2), Write Zeroes (3), Save and Select fields (4), Timestamp (6), Verify (7).
const ONCS: u16 = 1 << 0 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 6 | 1 << 7;
/// VWC: present.
const VWC_PRESENT: u8 = 1 << 0;
/// VWC 2:1 = 10b: Flush of all namespaces at once is not supported.
const VWC_NO_FLUSH_ALL: u8 = 0b10 << 1;
/// SGLS: SGLs without alignment (1:0 = 01b), keyed (2).
const SGLS: u32 = 1 << 0 | 1 << 2;
/// SGLS: offset in the address field, that is, data and descriptors in the capsule.
const SGLS_OFFSET: u32 = 1 << 20;
/// Unit of IOCCSZ and IORCSZ.
const CAPSULE_UNIT: u32 = 16;

impl Controller {
    /// Identify: writes 4096 bytes.
    pub(super) fn identify(&self, nsid: u32, which: u8, csi: u8, out: &mut [u8]) -> Result<usize, Status> {
        let out = out.get_mut(..IDENTIFY_LEN).ok_or(Status::SGL_DATA_LENGTH_INVALID)?;
        if which == cns::CONTROLLER {
            out.copy_from_slice(self.identify_controller().as_bytes());
            return Ok(IDENTIFY_LEN);
        }
        // A discovery controller has no namespaces and no I/O command sets.
        let subsystem = self.io_subsystem().ok_or(Status::INVALID_FIELD)?;
        let namespaces = subsystem.namespaces();
        let nvm_only = || if csi == CSI_NVM { Ok(()) } else { Err(Status::INVALID_IO_COMMAND_SET) };
        match which {
            cns::NAMESPACE => match valid_nsid(subsystem, nsid)? {
                Some(namespace) => out.copy_from_slice(namespace.identify().as_bytes()),
                None => out.fill(0),
            },
            cns::ACTIVE_NAMESPACES => out.copy_from_slice(&namespaces.list(list_start(nsid)?)),
            cns::NAMESPACE_DESCRIPTORS => {
                out.copy_from_slice(&active(subsystem, nsid)?.descriptors());
            }
            cns::CSI_NAMESPACE => {
                nvm_only()?;
                match valid_nsid(subsystem, nsid)? {
                    Some(namespace) => out.copy_from_slice(namespace.identify_nvm().as_bytes()),
                    None => out.fill(0),
                }
            }
            cns::CSI_CONTROLLER => {
                nvm_only()?;
                out.copy_from_slice(self.identify_controller_nvm().as_bytes());
            }
            cns::CSI_ACTIVE_NAMESPACES => {
                nvm_only()?;
                out.copy_from_slice(&namespaces.list(list_start(nsid)?));
            }
            cns::INDEPENDENT_NAMESPACE => match valid_nsid(subsystem, nsid)? {
                Some(namespace) => out.copy_from_slice(namespace.identify_independent().as_bytes()),
                None => out.fill(0),
            },
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok(IDENTIFY_LEN)
    }

    fn identify_controller(&self) -> Box<IdentifyController> {
        let mut id = zeroed::<IdentifyController>();
        set_ascii(&mut id.mn, MODEL);
        set_ascii(&mut id.fr, env!("CARGO_PKG_VERSION"));
        id.cntlid = self.shared.cntlid().into();
        id.ver = VERSION.into();
        id.ctratt = (CTRATT_HIDS | CTRATT_TBKAS).into();
        id.oaes = (self.supported_event_config() & !crate::nvmf::wire::log_page::event::CONFIG_SMART).into();
        id.acl = ACL;
        id.aerl = zero_based(MAX_REQUESTS);
        id.elpe = zero_based(ERROR_LOG_ENTRIES);
        id.frmw = FRMW;
        id.kas = GRANULARITY_100MS.into();
        id.mdts = self.limits.mdts();
        id.maxcmd = u16::try_from(self.limits.max_queue_entries).unwrap_or(u16::MAX).into();
        id.msdbd = 1;
        id.sgls = SGLS.into();
        let nqn = match self.io_subsystem() {
            Some(subsystem) => {
                self.identify_io(&mut id, subsystem);
                subsystem.nqn()
            }
            None => {
                set_ascii(&mut id.sn, MODEL);
                id.cntrltype = CNTRLTYPE_DISCOVERY;
                id.lpa = LPA_DISCOVERY;
                DISCOVERY_NQN
            }
        };
        id.subnqn[..nqn.len()].copy_from_slice(nqn.as_bytes());
        id
    }

    fn identify_io(&self, id: &mut IdentifyController, subsystem: &Subsystem) {
        set_ascii(&mut id.sn, subsystem.serial());
        id.cmic = CMIC;
        id.ctratt = (id.ctratt.get() | CTRATT_ELBAS | CTRATT_MEM).into();
        id.cntrltype = CNTRLTYPE_IO;
        id.lpa = LPA_IO;
        id.sqes = SQES;
        id.cqes = CQES;
        id.nn = NSID_MAX.into();
        id.oncs = ONCS.into();
        let present = if subsystem.namespaces().have_write_cache() { VWC_PRESENT } else { 0 };
        id.vwc = VWC_NO_FLUSH_ALL | present;
        let in_capsule = self.limits.in_capsule_data;
        id.msdbd = self.limits.max_sgl_descriptors();
        if in_capsule != 0 {
            id.sgls = (SGLS | SGLS_OFFSET).into();
        }
        id.ioccsz = (as_u32(SQE_LEN) / CAPSULE_UNIT + in_capsule / CAPSULE_UNIT).into();
        id.iorcsz = (as_u32(CQE_LEN) / CAPSULE_UNIT).into();
    }

    fn identify_controller_nvm(&self) -> Box<IdentifyControllerNvm> {
        let mut id = zeroed::<IdentifyControllerNvm>();
        id.vsl = self.limits.mdts();
        id.wzsl = self.limits.mdts();
        id
    }
}

/// The namespace `nsid`, `None` where the number is valid but inactive.
fn valid_nsid(subsystem: &Subsystem, nsid: u32) -> Result<Option<Namespace>, Status> {
    if (1..=NSID_MAX).contains(&nsid) {
        Ok(subsystem.namespaces().get(nsid).cloned())
    } else {
        Err(Status::INVALID_NAMESPACE_OR_FORMAT)
    }
}

/// The namespace `nsid`, which has to be active.
fn active(subsystem: &Subsystem, nsid: u32) -> Result<Namespace, Status> {
    valid_nsid(subsystem, nsid)?.ok_or(Status::INVALID_NAMESPACE_OR_FORMAT)
}

/// The number above which a namespace list starts (base 5.17.2.2).
fn list_start(nsid: u32) -> Result<u32, Status> {
    if nsid >= NSID_ALL - 1 { Err(Status::INVALID_NAMESPACE_OR_FORMAT) } else { Ok(nsid) }
}

fn zero_based(count: usize) -> u8 {
    u8::try_from(count - 1).expect("limits of the admin queue fit a byte")
}

fn as_u32(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("sizes of queue entries fit")
}
