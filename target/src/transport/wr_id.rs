//! Names of work requests: what a completion is about, packed in 64 bits.

use rwctx::wr::WrId;

/// What a work request was posted for. Queue numbers fit 24 bits, slots 32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    /// A receive into this capsule slot.
    Receive {
        /// Queue index of the transport.
        queue: u32,
        /// Capsule slot.
        slot: u32,
    },
    /// RDMA READs of a request's data.
    Fetch {
        /// Queue index of the transport.
        queue: u32,
        /// Request slot.
        request: u32,
    },
    /// A request's response, and the WRITEs of its data before it.
    Respond {
        /// Queue index of the transport.
        queue: u32,
        /// Request slot.
        request: u32,
    },
}

const RECEIVE: u64 = 0;
const FETCH: u64 = 1;
const RESPOND: u64 = 2;

impl Posted {
    /// Packs it.
    pub(crate) fn wr_id(self) -> WrId {
        let (kind, queue, index) = match self {
            Self::Receive { queue, slot } => (RECEIVE, queue, slot),
            Self::Fetch { queue, request } => (FETCH, queue, request),
            Self::Respond { queue, request } => (RESPOND, queue, request),
        };
        debug_assert!(queue < 1 << 24, "queue numbers fit 24 bits");
        WrId(kind << 56 | u64::from(queue) << 32 | u64::from(index))
    }

    /// The queue that it was posted to.
    pub(crate) fn queue(self) -> u32 {
        let (Self::Receive { queue, .. } | Self::Fetch { queue, .. } | Self::Respond { queue, .. }) = self;
        queue
    }

    /// Unpacks it; `None` for a value that [`Self::wr_id`] never made.
    pub(crate) fn parse(wr_id: WrId) -> Option<Self> {
        let queue = u32::try_from(wr_id.0 >> 32 & 0xff_ffff).ok()?;
        let index = u32::try_from(wr_id.0 & 0xffff_ffff).ok()?;
        match wr_id.0 >> 56 {
            RECEIVE => Some(Self::Receive { queue, slot: index }),
            FETCH => Some(Self::Fetch { queue, request: index }),
            RESPOND => Some(Self::Respond { queue, request: index }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_survive_packing() {
        for posted in [
            Posted::Receive { queue: 0, slot: 0 },
            Posted::Receive { queue: 0xff_ffff, slot: u32::MAX },
            Posted::Fetch { queue: 1, request: 2 },
            Posted::Respond { queue: 0x80_0000, request: 255 },
        ] {
            assert_eq!(Posted::parse(posted.wr_id()), Some(posted));
        }
        assert_eq!(Posted::parse(WrId(u64::MAX)), None);
    }
}
