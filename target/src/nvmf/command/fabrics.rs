//! Fabrics commands (base 6): Connect, Property Get, Property Set.

use super::data_pointer::data_pointer;
use super::{DataPointer, byte, halves, high16, low16};
use crate::nvmf::wire::fabrics::fctype;
use crate::nvmf::wire::sqe::{PSDT_SGL, Sqe, admin_opcode};
use crate::nvmf::wire::status::Status;

/// A Fabrics command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricsCommand {
    /// Command Identifier.
    pub cid: u16,
    /// What to do.
    pub op: FabricsOp,
    /// Where its data is.
    pub dptr: DataPointer,
}

/// The Fabrics commands this target carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FabricsOp {
    /// Connect.
    Connect(ConnectFields),
    /// Property Get.
    PropertyGet {
        /// Size of the property.
        size: PropertySize,
        /// Offset of the property.
        offset: u32,
    },
    /// Property Set.
    PropertySet {
        /// Size of the property.
        size: PropertySize,
        /// Offset of the property.
        offset: u32,
        /// New value.
        value: u64,
    },
}

/// Size of a property (ATTRIB 2:0).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PropertySize {
    /// 4 bytes.
    Dword,
    /// 8 bytes.
    Qword,
}

/// The fields of a Connect SQE (base 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectFields {
    /// Record Format.
    pub recfmt: u16,
    /// Queue ID; 0 makes an admin queue and with it a controller.
    pub qid: u16,
    /// Entries of the submission queue, 1 to 65536 (1 is not allowed: see [`crate::nvmf::registry`]).
    pub sq_entries: u32,
    /// Connect Attributes.
    pub cattr: u8,
    /// Keep Alive Timeout in milliseconds; 0 = no timer.
    pub kato_ms: u32,
}

impl FabricsCommand {
    pub(super) fn parse(sqe: &Sqe) -> Result<Self, Status> {
        let [fctype, ..] = sqe.nsid.get().to_le_bytes();
        let (cdw10, cdw11, cdw12) = (sqe.cdw10.get(), sqe.cdw11.get(), sqe.cdw12.get());
        let property_size = || match cdw10 & 7 {
            0 => Ok(PropertySize::Dword),
            1 => Ok(PropertySize::Qword),
            _ => Err(Status::INVALID_FIELD),
        };
        if !matches!(fctype, fctype::CONNECT | fctype::PROPERTY_GET | fctype::PROPERTY_SET) {
            return Err(Status::INVALID_OPCODE);
        }
        // Property Get answers in the CQE although its FCTYPE's low bits (00b) agree with "no data".
        let dptr = data_pointer(sqe, fctype)?;
        let op = match fctype {
            fctype::CONNECT => FabricsOp::Connect(ConnectFields {
                recfmt: low16(cdw10),
                qid: high16(cdw10),
                sq_entries: u32::from(low16(cdw11)) + 1,
                cattr: byte(cdw11, 2),
                kato_ms: cdw12,
            }),
            fctype::PROPERTY_GET => FabricsOp::PropertyGet { size: property_size()?, offset: cdw11 },
            _ => FabricsOp::PropertySet {
                size: property_size()?,
                offset: cdw11,
                value: u64::from(cdw12) | u64::from(sqe.cdw13.get()) << 32,
            },
        };
        Ok(Self { cid: sqe.cid.get(), op, dptr })
    }

    /// The submission queue entry that says this: what a host sends.
    #[must_use]
    pub fn emit(&self) -> Sqe {
        let mut sqe = Sqe {
            opc: admin_opcode::FABRICS,
            flags: PSDT_SGL,
            cid: self.cid.into(),
            dptr: self.dptr.emit(),
            ..Sqe::default()
        };
        let attrib = |size: PropertySize| match size {
            PropertySize::Dword => 0_u32,
            PropertySize::Qword => 1,
        };
        let fctype = match self.op {
            FabricsOp::Connect(connect) => {
                let sqsize = connect.sq_entries.saturating_sub(1) & 0xffff;
                sqe.cdw10 = (u32::from(connect.recfmt) | u32::from(connect.qid) << 16).into();
                sqe.cdw11 = (sqsize | u32::from(connect.cattr) << 16).into();
                sqe.cdw12 = connect.kato_ms.into();
                fctype::CONNECT
            }
            FabricsOp::PropertyGet { size, offset } => {
                sqe.cdw10 = attrib(size).into();
                sqe.cdw11 = offset.into();
                fctype::PROPERTY_GET
            }
            FabricsOp::PropertySet { size, offset, value } => {
                let [low, high] = halves(value);
                sqe.cdw10 = attrib(size).into();
                sqe.cdw11 = offset.into();
                sqe.cdw12 = low.into();
                sqe.cdw13 = high.into();
                fctype::PROPERTY_SET
            }
        };
        sqe.nsid = u32::from(fctype).into();
        sqe
    }
}
