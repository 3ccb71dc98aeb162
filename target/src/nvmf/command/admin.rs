//! Admin commands (base 5).

use super::data_pointer::data_pointer;
use super::{DataPointer, byte, halves, high16, low16};
use crate::nvmf::wire::features::Select;
use crate::nvmf::wire::sqe::{PSDT_SGL, Sqe, admin_opcode};
use crate::nvmf::wire::status::Status;

/// An Admin command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminCommand {
    /// Command Identifier.
    pub cid: u16,
    /// Opcode as sent, for logs.
    pub opcode: u8,
    /// Namespace Identifier.
    pub nsid: u32,
    /// What to do.
    pub op: AdminOp,
    /// Where its data is.
    pub dptr: DataPointer,
}

/// The Admin commands this target carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdminOp {
    /// Identify.
    Identify {
        /// Controller or Namespace Structure.
        cns: u8,
        /// Controller Identifier.
        cntid: u16,
        /// CNS Specific Identifier.
        cnssid: u16,
        /// Command Set Identifier.
        csi: u8,
        /// UUID Index.
        uuid_index: u8,
    },
    /// Get Log Page.
    GetLogPage {
        /// Log Page Identifier.
        lid: u8,
        /// Log Specific Field.
        lsp: u8,
        /// Retain Asynchronous Event.
        rae: bool,
        /// Bytes asked for: 4 to 2^34, a multiple of 4.
        length: u64,
        /// Log Specific Identifier.
        lsi: u16,
        /// Log Page Offset in bytes (or an index, with `offset_is_index`).
        offset: u64,
        /// Offset Type.
        offset_is_index: bool,
        /// Command Set Identifier.
        csi: u8,
        /// UUID Index.
        uuid_index: u8,
    },
    /// Set Features.
    SetFeatures {
        /// Feature Identifier.
        fid: u8,
        /// Save the value.
        save: bool,
        /// CDW11 to CDW15.
        cdw: [u32; 5],
    },
    /// Get Features.
    GetFeatures {
        /// Feature Identifier.
        fid: u8,
        /// Which value.
        select: Select,
        /// CDW11.
        cdw11: u32,
    },
    /// Abort.
    Abort {
        /// Submission queue of the command to abort.
        sqid: u16,
        /// Its Command Identifier.
        cid: u16,
    },
    /// Asynchronous Event Request.
    AsyncEventRequest,
    /// Keep Alive.
    KeepAlive,
}

impl AdminCommand {
    pub(super) fn parse(sqe: &Sqe) -> Result<Self, Status> {
        let (cdw10, cdw11) = (sqe.cdw10.get(), sqe.cdw11.get());
        let (cdw12, cdw13, cdw14) = (sqe.cdw12.get(), sqe.cdw13.get(), sqe.cdw14.get());
        let uuid_index = byte(cdw14, 0) & 0x7f;
        let op = match sqe.opc {
            admin_opcode::IDENTIFY => AdminOp::Identify {
                cns: byte(cdw10, 0),
                cntid: high16(cdw10),
                cnssid: low16(cdw11),
                csi: byte(cdw11, 3),
                uuid_index,
            },
            admin_opcode::GET_LOG_PAGE => AdminOp::GetLogPage {
                lid: byte(cdw10, 0),
                lsp: byte(cdw10, 1) & 0x7f,
                rae: cdw10 & 1 << 15 != 0,
                length: ((u64::from(low16(cdw11)) << 16 | u64::from(high16(cdw10))) + 1) * 4,
                lsi: high16(cdw11),
                offset: u64::from(cdw13) << 32 | u64::from(cdw12),
                offset_is_index: cdw14 & 1 << 23 != 0,
                csi: byte(cdw14, 3),
                uuid_index,
            },
            admin_opcode::SET_FEATURES => AdminOp::SetFeatures {
                fid: byte(cdw10, 0),
                save: cdw10 & 1 << 31 != 0,
                cdw: [cdw11, cdw12, cdw13, cdw14, sqe.cdw15.get()],
            },
            admin_opcode::GET_FEATURES => AdminOp::GetFeatures {
                fid: byte(cdw10, 0),
                select: match cdw10 >> 8 & 7 {
                    0 => Select::Current,
                    1 => Select::Default,
                    2 => Select::Saved,
                    3 => Select::Capabilities,
                    _ => return Err(Status::INVALID_FIELD),
                },
                cdw11,
            },
            admin_opcode::ABORT => AdminOp::Abort { sqid: low16(cdw10), cid: high16(cdw10) },
            admin_opcode::ASYNC_EVENT_REQUEST => AdminOp::AsyncEventRequest,
            admin_opcode::KEEP_ALIVE => AdminOp::KeepAlive,
            _ => return Err(Status::INVALID_OPCODE),
        };
        // Set Features moves data for a few features only, so its opcode's direction says no more than "may".
        let dptr = data_pointer(sqe, sqe.opc)?;
        Ok(Self { cid: sqe.cid.get(), opcode: sqe.opc, nsid: sqe.nsid.get(), op, dptr })
    }

    /// The submission queue entry that says this: what a host sends.
    #[must_use]
    pub fn emit(&self) -> Sqe {
        let mut sqe = Sqe {
            flags: PSDT_SGL,
            cid: self.cid.into(),
            nsid: self.nsid.into(),
            dptr: self.dptr.emit(),
            ..Sqe::default()
        };
        sqe.opc = match self.op {
            AdminOp::Identify { cns, cntid, cnssid, csi, uuid_index } => {
                sqe.cdw10 = (u32::from(cns) | u32::from(cntid) << 16).into();
                sqe.cdw11 = (u32::from(cnssid) | u32::from(csi) << 24).into();
                sqe.cdw14 = u32::from(uuid_index).into();
                admin_opcode::IDENTIFY
            }
            AdminOp::GetLogPage { lid, lsp, rae, length, lsi, offset, offset_is_index, csi, uuid_index } => {
                let [numd, _] = halves((length / 4).saturating_sub(1));
                let [offset_low, offset_high] = halves(offset);
                let first = u32::from(lid) | u32::from(lsp & 0x7f) << 8 | u32::from(rae) << 15;
                sqe.cdw10 = (first | u32::from(low16(numd)) << 16).into();
                sqe.cdw11 = (u32::from(high16(numd)) | u32::from(lsi) << 16).into();
                sqe.cdw12 = offset_low.into();
                sqe.cdw13 = offset_high.into();
                let index = u32::from(offset_is_index) << 23;
                sqe.cdw14 = (u32::from(uuid_index) | index | u32::from(csi) << 24).into();
                admin_opcode::GET_LOG_PAGE
            }
            AdminOp::SetFeatures { fid, save, cdw } => {
                sqe.cdw10 = (u32::from(fid) | u32::from(save) << 31).into();
                [sqe.cdw11, sqe.cdw12, sqe.cdw13, sqe.cdw14, sqe.cdw15] = cdw.map(Into::into);
                admin_opcode::SET_FEATURES
            }
            AdminOp::GetFeatures { fid, select, cdw11 } => {
                let select: u32 = match select {
                    Select::Current => 0,
                    Select::Default => 1,
                    Select::Saved => 2,
                    Select::Capabilities => 3,
                };
                sqe.cdw10 = (u32::from(fid) | select << 8).into();
                sqe.cdw11 = cdw11.into();
                admin_opcode::GET_FEATURES
            }
            AdminOp::Abort { sqid, cid } => {
                sqe.cdw10 = (u32::from(sqid) | u32::from(cid) << 16).into();
                admin_opcode::ABORT
            }
            AdminOp::AsyncEventRequest => admin_opcode::ASYNC_EVENT_REQUEST,
            AdminOp::KeepAlive => admin_opcode::KEEP_ALIVE,
        };
        sqe
    }
}
