//! Controller properties (base 3.1.3): capabilities, configuration, status, and the transitions that writing CC
//! makes.
//!
//! Version 2.0 is reported: Linux hosts from 6.0 on take from it what this target offers (extended formats by
//! Identify CNS 05h, limits by CNS 06h), older hosts and nvme-cli ask for no more than 1.4 structures, and
//! CAP.CRMS/CRTO, which 2.0 demands, are there. CAP.CSS announces the NVM Command Set alone: there is no second one
//! to choose, and a host told of "more command sets" (bit 43) makes nvme-cli ask for effects of sets that are not
//! here, and fail.

use super::{Controller, Effect, Kind};
use crate::nvmf::command::PropertySize;
use crate::nvmf::wire::fabrics::property;
use crate::nvmf::wire::status::Status;

/// VS: 2.0.0.
pub(super) const VERSION: u32 = 0x0002_0000;

/// CAP.CQR (16): queues are contiguous.
const CAP_CQR: u64 = 1 << 16;
/// CAP.TO (31:24) and CRTO.CRWMT, in 500 ms: 7.5 s; the controller is ready at once.
const READY_TIMEOUT: u8 = 15;
/// CAP.CSS: NVM Command Set (37).
const CAP_CSS_NVM: u64 = 1 << 37;
/// CAP.CRMS: ready with media (59).
const CAP_CRMS_CRWMS: u64 = 1 << 59;

/// CC.EN.
const CC_EN: u32 = 1 << 0;
/// CC.SHN.
const CC_SHN: u32 = 0b11 << 14;
/// CC.IOSQES, CC.IOCQES for 64 and 16 bytes.
const IOSQES: u32 = 6;
const IOCQES: u32 = 4;

/// CSTS.RDY.
const CSTS_RDY: u32 = 1 << 0;
/// CSTS.CFS.
const CSTS_CFS: u32 = 1 << 1;
/// CSTS.SHST: in progress.
const CSTS_SHST_PROGRESS: u32 = 0b01 << 2;
/// CSTS.SHST: complete.
const CSTS_SHST_COMPLETE: u32 = 0b10 << 2;

/// CC and CSTS.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Properties {
    cc: u32,
    csts: u32,
}

impl Properties {
    pub(super) fn is_ready(self) -> bool {
        self.csts & (CSTS_RDY | CSTS_CFS) == CSTS_RDY
    }
}

impl Controller {
    /// Property Get: the value.
    pub(super) fn property_get(&self, size: PropertySize, offset: u32) -> Result<u64, Status> {
        match (offset, size) {
            (property::CAP, PropertySize::Qword) => Ok(self.cap()),
            (property::VS, PropertySize::Dword) => Ok(VERSION.into()),
            (property::CC, PropertySize::Dword) => Ok(self.properties.cc.into()),
            (property::CSTS, PropertySize::Dword) => Ok(self.properties.csts.into()),
            (property::CRTO, PropertySize::Dword) => Ok(READY_TIMEOUT.into()),
            _ => Err(Status::INVALID_FIELD),
        }
    }

    /// Property Set: only CC can be written.
    pub(super) fn property_set(
        &mut self,
        size: PropertySize,
        offset: u32,
        value: u64,
    ) -> Result<Option<Effect>, Status> {
        match (offset, size, u32::try_from(value)) {
            (property::CC, PropertySize::Dword, Ok(cc)) => Ok(self.write_cc(cc)),
            // The upper dword of a 4-byte property is reserved.
            (property::CC, PropertySize::Dword, Err(_)) => {
                let [b0, b1, b2, b3, ..] = value.to_le_bytes();
                Ok(self.write_cc(u32::from_le_bytes([b0, b1, b2, b3])))
            }
            _ => Err(Status::INVALID_FIELD),
        }
    }

    fn cap(&self) -> u64 {
        let mqes = u64::from(self.limits.max_queue_entries.saturating_sub(1)) & 0xffff;
        mqes | CAP_CQR | u64::from(READY_TIMEOUT) << 24 | CAP_CSS_NVM | CAP_CRMS_CRWMS
    }

    fn write_cc(&mut self, cc: u32) -> Option<Effect> {
        let old = std::mem::replace(&mut self.properties.cc, cc);
        let rose = |bits: u32| cc & bits != 0 && old & bits == 0;
        let mut effect = None;
        if rose(CC_EN) {
            if self.acceptable(cc) {
                self.properties.csts = CSTS_RDY;
                self.shared.set_ready(true);
            } else {
                self.properties.csts = CSTS_CFS;
            }
        } else if old & CC_EN != 0 && cc & CC_EN == 0 {
            self.reset();
            effect = Some(Effect::Reset);
        }
        if rose(CC_SHN) {
            self.shared.set_ready(false);
            self.properties.csts &= !CSTS_RDY;
            let flush = self.io_subsystem().is_some_and(|s| s.namespaces().have_write_cache());
            self.properties.csts |= if flush { CSTS_SHST_PROGRESS } else { CSTS_SHST_COMPLETE };
            if flush {
                effect = Some(Effect::FlushForShutdown);
            }
        } else if cc & CC_SHN == 0 {
            self.properties.csts &= !(CSTS_SHST_PROGRESS | CSTS_SHST_COMPLETE);
        }
        effect
    }

    /// What [`Effect::FlushForShutdown`] asked for is done.
    pub fn shutdown_complete(&mut self) {
        if self.properties.csts & CSTS_SHST_PROGRESS != 0 {
            self.properties.csts = self.properties.csts & !CSTS_SHST_PROGRESS | CSTS_SHST_COMPLETE;
        }
    }

    /// Whether a configuration can be enabled.
    fn acceptable(&self, cc: u32) -> bool {
        let field = |shift: u32, bits: u32| cc >> shift & ((1 << bits) - 1);
        let (css, mps, ams) = (field(4, 3), field(7, 4), field(11, 3));
        let entry_sizes = (field(16, 4), field(20, 4)) == (IOSQES, IOCQES);
        let has_io_queues = matches!(self.kind, Kind::Io(_));
        css == 0 && mps == 0 && ams == 0 && (entry_sizes || !has_io_queues)
    }

    /// A fatal error: the host sees CFS and has to reset the controller.
    pub(super) fn fail(&mut self) {
        self.properties.csts |= CSTS_CFS;
        self.shared.set_ready(false);
    }

    /// Controller reset by CC.EN: everything but the association and its keep-alive timeout goes to defaults.
    fn reset(&mut self) {
        self.properties.csts = 0;
        self.shared.set_ready(false);
        self.shared.set_lba_format_extensions(false);
        self.features = super::features::Features::default();
        self.events.reset();
        self.has_io_queues = false;
    }
}
