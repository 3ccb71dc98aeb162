//! Who runs a verbs device's signatures: its NIC by libmlx5 (cargo feature `mlx5`), or software and why.

use std::io;
use std::sync::Arc;

use super::device::VerbsDevice;
use super::handles::{CompletionQueue, Context, ProtectionDomain};
use super::queue_pair::QueuePair;
use crate::device::{DeviceError, NoOffload, PostError, QpCap, QpEvent, QpState, Qpn};
use crate::mem::{Lkey, MrId};
use crate::plan::Integrity;
use crate::signature::{SigLayout, SigStatus, Signature};
use crate::wr::{SendWr, Sge, Signal};

#[cfg(feature = "mlx5")]
use crate::device::mlx5::{ENTRIES, Library, Offload, Posted, SigQueue, WRS_PER_WR};
#[cfg(feature = "mlx5")]
use crate::wc::WcStatus;

/// PCI vendor of ConnectX.
#[cfg(feature = "mlx5")]
const MELLANOX: u32 = 0x02C9;

/// Who runs signatures.
#[derive(Debug)]
pub(super) enum Signatures {
    /// Software, for this reason.
    Software(NoOffload),
    /// The device.
    #[cfg(feature = "mlx5")]
    Device(Offload),
}

/// What a queue pair has for signatures.
#[derive(Debug)]
pub(super) enum Signed {
    /// Nothing.
    No,
    /// Keys, and the calls that post their work requests.
    #[cfg(feature = "mlx5")]
    Queue(Box<SigQueue>),
}

fn no_offload() -> DeviceError {
    DeviceError::Invalid("use: no integrity offload")
}

/// Opens the device of this name, for its signatures where it has some.
pub(super) fn open(name: &str) -> io::Result<(Arc<Context>, Signatures)> {
    let context = Context::open(name)?;
    #[cfg(not(feature = "mlx5"))]
    let why = "this build lacks the signature offload of ConnectX (cargo feature mlx5)".to_owned();
    #[cfg(feature = "mlx5")]
    let why = match with_library(name, &context) {
        Ok((context, offload)) => return Ok((context, Signatures::Device(offload))),
        Err(why) => why,
    };
    Ok((context, Signatures::Software(NoOffload::Unavailable(why.into()))))
}

/// Opens a device again by its own library, or says why it does without.
#[cfg(feature = "mlx5")]
fn with_library(name: &str, context: &Context) -> Result<(Arc<Context>, Offload), String> {
    let vendor =
        context.attributes().map_err(|error| format!("{name} says nothing of itself: {error}"))?.vendor_id;
    if vendor != MELLANOX {
        return Err(format!("{name} is no ConnectX"));
    }
    let library = Library::load().map_err(|error| {
        let source =
            std::error::Error::source(&error).map_or_else(String::new, |source| format!(": {source}"));
        format!("{error}{source}")
    })?;
    let (context, caps) = Context::open_for_signatures(name, library)
        .map_err(|error| format!("libmlx5 doesn't open {name}: {error}"))?;
    if !caps.has_t10dif() {
        return Err(format!("{name} has no T10-DIF signatures"));
    }
    Ok((context, Offload::new(caps)))
}

impl Signatures {
    /// Entries of an integrity region's lists; 0 where software runs signatures.
    pub(super) fn pages(&self) -> u32 {
        match self {
            Self::Software(_) => 0,
            #[cfg(feature = "mlx5")]
            Self::Device(_) => ENTRIES.into(),
        }
    }

    /// See [`crate::device::Device::executes`].
    #[cfg_attr(not(feature = "mlx5"), expect(unused_variables, reason = "nobody looks at it"))]
    pub(super) fn executes(&self, signature: &Signature) -> Result<(), NoOffload> {
        match self {
            Self::Software(why) => Err(why.clone()),
            #[cfg(feature = "mlx5")]
            Self::Device(offload) => offload.executes(signature),
        }
    }

    /// Makes a queue pair in state RESET, for signatures if it is to have them.
    pub(super) fn make_pair(
        &self,
        pd: &Arc<ProtectionDomain>,
        cq: &Arc<CompletionQueue>,
        cap: &QpCap,
    ) -> io::Result<(QueuePair, Signed)> {
        #[cfg(feature = "mlx5")]
        if let (Self::Device(_), Integrity::Enabled) = (self, cap.integrity) {
            let (pair, queue) = QueuePair::with_signatures(pd, cq, cap)?;
            return Ok((pair, Signed::Queue(Box::new(queue))));
        }
        QueuePair::new(pd, cq, cap).map(|pair| (pair, Signed::No))
    }

    /// Entries of the device's send queue for each of a queue pair of ours, if the device makes any such.
    pub(super) fn wrs_per_wr(&self, integrity: Integrity) -> Option<u32> {
        match (self, integrity) {
            (_, Integrity::Off) => Some(1),
            (Self::Software(_), Integrity::Enabled) => None,
            #[cfg(feature = "mlx5")]
            (Self::Device(_), Integrity::Enabled) => Some(WRS_PER_WR),
        }
    }

    /// A queue pair is gone.
    #[cfg_attr(not(feature = "mlx5"), expect(unused_variables, reason = "nobody has regions"))]
    pub(super) fn queue_gone(&mut self, qpn: Qpn) {
        match self {
            Self::Software(_) => {}
            #[cfg(feature = "mlx5")]
            Self::Device(offload) => offload.queue_gone(qpn),
        }
    }

    /// A transfer of a region completed.
    #[cfg_attr(not(feature = "mlx5"), expect(unused_variables, reason = "nobody has regions"))]
    pub(super) fn transferred(&self, id: MrId, signed: &mut Signed) {
        #[cfg(feature = "mlx5")]
        if let (Self::Device(offload), Signed::Queue(queue)) = (self, signed)
            && let Err(error) = offload.transferred(id, queue, WcStatus::Success)
        {
            tracing::warn!(%error, "a transfer completed that was not under way");
        }
    }

    /// Whether a work request of a queue pair is for [`Self::post`].
    #[inline]
    #[cfg_attr(not(feature = "mlx5"), expect(unused_variables, reason = "nobody has regions"))]
    pub(super) fn is_for(&self, signed: &Signed, wr: &SendWr<'_>) -> bool {
        #[cfg(feature = "mlx5")]
        if let (Self::Device(offload), Signed::Queue(_)) = (self, signed) {
            return offload.is_for(wr);
        }
        false
    }

    /// Posts such a work request. Returns the region whose transfer it is.
    #[cfg_attr(not(feature = "mlx5"), expect(unused_variables, reason = "nobody has regions"))]
    fn post(&mut self, qpn: Qpn, signed: &mut Signed, wr: &SendWr<'_>) -> Result<Option<MrId>, PostError> {
        #[cfg(feature = "mlx5")]
        if let (Self::Device(offload), Signed::Queue(queue)) = (self, signed) {
            return offload.post(qpn, queue, wr).map(|posted| match posted {
                Posted::Quiet => None,
                Posted::Transfer(id) => Some(id),
            });
        }
        Err(PostError::Unsupported)
    }
}

/// Integrity regions.
impl VerbsDevice {
    /// Makes the region `id`; its key.
    #[cfg_attr(not(feature = "mlx5"), expect(unused_variables, reason = "there are none"))]
    pub(super) fn alloc_region(
        &mut self,
        id: MrId,
        pd: &Arc<ProtectionDomain>,
        pages: u32,
    ) -> Result<Lkey, DeviceError> {
        match &mut self.signatures {
            Signatures::Software(_) => Err(no_offload()),
            #[cfg(feature = "mlx5")]
            Signatures::Device(_) if pages == 0 || pages > ENTRIES.into() => {
                Err(DeviceError::Invalid("number of pages"))
            }
            #[cfg(feature = "mlx5")]
            Signatures::Device(offload) => offload
                .alloc(id, pages, |kind, entries| pd.create_key(kind, entries))
                .map_err(|error| super::device::refused("signature keys", &error)),
        }
    }

    /// Forgets a region; whether it was one.
    #[cfg_attr(not(feature = "mlx5"), expect(unused_variables, reason = "there are none"))]
    pub(super) fn free_region(&mut self, id: MrId) -> bool {
        match &mut self.signatures {
            Signatures::Software(_) => false,
            #[cfg(feature = "mlx5")]
            Signatures::Device(offload) => {
                let of = offload.queue_of(id).and_then(|qpn| self.qps.get_mut(&qpn));
                offload.free(id, of.and_then(|qp| qp.signed.queue())).is_ok()
            }
        }
    }

    /// Maps lists to a region.
    #[cfg_attr(not(feature = "mlx5"), expect(unused_variables, reason = "there are none"))]
    pub(super) fn map_region(
        &mut self,
        id: MrId,
        signature: &Signature,
        data: &[Sge],
        protection: &[Sge],
    ) -> Result<SigLayout, DeviceError> {
        match &mut self.signatures {
            Signatures::Software(_) => Err(no_offload()),
            #[cfg(feature = "mlx5")]
            Signatures::Device(offload) => offload.map(id, signature, data, protection),
        }
    }

    /// What the signature of a region's transfer found.
    #[cfg_attr(not(feature = "mlx5"), expect(unused_variables, reason = "there are none"))]
    pub(super) fn region_status(&mut self, id: MrId) -> Result<SigStatus, DeviceError> {
        match &mut self.signatures {
            Signatures::Software(_) => Err(no_offload()),
            #[cfg(feature = "mlx5")]
            Signatures::Device(offload) => {
                let of = offload.queue_of(id).and_then(|qpn| self.qps.get_mut(&qpn));
                offload.status(id, of.and_then(|qp| qp.signed.queue()))
            }
        }
    }

    /// Posts a work request of a region, behind what was gathered before it.
    pub(super) fn post_signed(&mut self, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), PostError> {
        let qp = self.qps.get_mut(&qpn).ok_or(PostError::UnknownQp)?;
        self.counters.send_calls += 1;
        if let Err(error) = qp.pair.post_send(&mut qp.batch) {
            tracing::debug!(%error, qpn = qpn.0, "the device does not take sends");
            qp.state = QpState::Error;
            self.counters.qp_failures += 1;
            self.events.push_back(QpEvent::Fatal(qpn));
            return Err(PostError::BadState);
        }
        match self.signatures.post(qpn, &mut qp.signed, wr)? {
            None => qp.sends.post(false),
            Some(id) => qp.sends.post_transfer(id, wr.signal == Signal::Signaled),
        }
        self.counters.sends += 1;
        Ok(())
    }
}

#[cfg(feature = "mlx5")]
impl Signed {
    fn queue(&mut self) -> Option<&mut SigQueue> {
        match self {
            Self::No => None,
            Self::Queue(queue) => Some(queue),
        }
    }
}
