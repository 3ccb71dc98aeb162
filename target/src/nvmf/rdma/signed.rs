//! Data whose tuples the device checks or makes while it comes in: contexts with signatures.
//!
//! Writes and Compares whose data is in one piece of the host's memory. What was found is asked for when the data is there,
//! before anything of it is looked at or goes to the medium. Everything else is software's ([`super::io`]), with the same
//! results: data in capsules, and in several pieces, which may cut blocks; tuples that replace those of the host behind metadata
//! of the host's own; and Reads, whose check comes before the data leaves.

use rwctx::device::{Device, NoOffload};
use rwctx::plan::{Direction, Integrity};
use rwctx::qp::RwQp;
use rwctx::signature::{SigAttrs, SigStatus, Signature};
use t10pi::{Checks, Format, Guard, PiContext, PiType, Tags};

use super::exec::Work;
use super::io::IoWork;
use super::queue::Request;
use crate::nvmf::command::DataPointer;
use crate::nvmf::validate::{BlockOp, PiAction, WireForm};
use crate::nvmf::wire::status::Status;
use crate::transport::core::Core;

/// Who checks or makes the tuples of what a host sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Signing {
    /// Software, when all data is there.
    #[default]
    Software,
    /// The device, and what it found once the data came.
    Device(Option<SigStatus>),
}

/// Whether a device has signatures at all; which ones, it says of each.
///
/// # Errors
/// Why it has none.
pub(crate) fn check_offload<D: Device>(device: &D) -> Result<(), NoOffload> {
    if device.caps().max_pi_fast_reg_page_list_len > 0 {
        return Ok(());
    }
    let format = Format::new(Guard::Crc16, 512, 8).expect("the oldest format");
    let pi =
        PiContext::new(&format, PiType::Type1, Checks::ALL, Tags::default()).expect("type 1 has this format");
    let usual =
        Signature::new(&SigAttrs::verify(&pi), Direction::FromHost).expect("a check contradicts nothing");
    device.executes(&usual)
}

impl IoWork {
    /// What the tuples of the data ask of a device that brings it, if they are as a device can have them.
    fn signature(&self) -> Option<Signature> {
        let plan = self.blocks().filter(|plan| matches!(plan.op, BlockOp::Write | BlockOp::Compare))?;
        let attrs = match (&plan.pi, plan.wire) {
            (PiAction::Pass(pi), WireForm::Interleaved) => SigAttrs::verify(pi),
            (PiAction::Insert(pi), WireForm::Data) => SigAttrs::insert(pi),
            _ => return None,
        };
        Signature::new(&attrs, Direction::FromHost).ok()
    }
}

impl Signing {
    /// What the device found in the data that it brought, once; `None` where software has to look.
    pub(super) fn take_status(&mut self) -> Option<SigStatus> {
        match self {
            Self::Software => None,
            Self::Device(found) => found.take(),
        }
    }
}

impl Request {
    /// Decides who checks or makes the tuples of what the host sends.
    pub(super) fn choose_signing<D: Device>(&mut self, core: &Core<D>) {
        if core.integrity == Integrity::Off || !matches!(self.dptr, DataPointer::Keyed { .. }) {
            return;
        }
        if let Work::Io(io) = &self.work
            && io.signature().is_some_and(|signature| core.device.executes(&signature).is_ok())
        {
            self.signing = Signing::Device(None);
        }
    }

    /// Whether the device checks or makes the tuples of its data.
    pub(super) fn is_signed(&self) -> bool {
        matches!(self.signing, Signing::Device(_))
    }

    /// Plans the READ of its data over a registration with its signature; `None` where the device has none of it.
    pub(super) fn plan_signed<D: Device>(
        &mut self,
        core: &mut Core<D>,
        qp: &RwQp,
    ) -> Option<Result<(), Status>> {
        let (Work::Io(io), DataPointer::Keyed { segment, .. }) = (&self.work, self.dptr) else { return None };
        if !self.is_signed() {
            return None;
        }
        let signature = io.signature()?;
        let (Some(data), Some(md)) = (&self.data, &self.md) else { return Some(Err(Status::INTERNAL_ERROR)) };
        let [data, md] = [data, md].map(|buf| {
            core.sge(buf.addr(), u32::try_from(buf.len()).expect("a buffer is smaller than 4 GiB"))
        });
        let planned = self.ctx.signature_init(qp, &mut core.device, &[data], &[md], &signature, segment.at);
        Some(planned.map(|_| ()).map_err(|_| Status::INTERNAL_ERROR))
    }

    /// The data came: asks what the device found in it, if it was to look. Where the device does not say, software looks.
    pub(super) fn ask_status<D: Device>(&mut self, core: &mut Core<D>) {
        let Signing::Device(found) = &mut self.signing else { return };
        *found = self.ctx.sig_status(&mut core.device).ok();
        core.stats.signatures.add(u64::from(found.is_some()));
    }
}

#[cfg(test)]
mod tests {
    use rwctx::device::DeviceCaps;
    use rwctx::device::null::NullDevice;
    use rwctx::device::soft::endpoint::CAPS;

    use super::*;

    #[test]
    fn a_device_without_integrity_registrations_says_why_it_checks_nothing() {
        assert_eq!(check_offload(&NullDevice::new(CAPS)), Ok(()));
        let without = DeviceCaps { max_pi_fast_reg_page_list_len: 0, ..CAPS };
        assert_eq!(check_offload(&NullDevice::new(without)), Err(NoOffload::Device));
    }
}
