//! How large the queues of a server are that carries out segment lists (Linux `svc_rdma_accept`).

use super::{PAGE, SegmentError};
use crate::device::DeviceCaps;
use crate::plan::{Integrity, max_send_wr, mr_factor};

/// Contexts of a request: its READs, its Write chunks, its Reply chunk.
const CTXS_PER_REQUEST: u32 = 3;
/// Pieces of a Send beside those of the pages of a message: its header, head and tail.
const FIXED_SGES: u32 = 3;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointConfig {
    /// Requests under way at once, 4 to 16384.
    pub max_requests: u32,
    /// Requests of ours under way at once.
    pub max_bc_requests: u32,
    /// Receives that are posted at a time.
    pub recv_batch: u32,
    /// Bytes of a message that is not in chunks, 4096 to 65536.
    pub max_req_size: u32,
    /// Bytes of a message.
    pub max_payload: u32,
}

impl Default for EndpointConfig {
    fn default() -> Self {
        Self {
            max_requests: 128,
            max_bc_requests: 2,
            recv_batch: 7,
            max_req_size: 4096,
            max_payload: 1 << 20,
        }
    }
}

/// What a connection gets, within the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndpointSizes {
    /// Requests under way at once: the credits that replies grant. (Deviation: Linux grants what it had before the device
    /// reduced it.)
    pub max_requests: u32,
    /// Requests of ours under way at once.
    pub max_bc_requests: u32,
    /// Receives that are posted at a time.
    pub recv_batch: u32,
    /// Bytes of a message that is not in chunks.
    pub max_req_size: u32,
    /// SGEs of a Send.
    pub max_send_sges: u32,
    /// Entries of the receive queue.
    pub rq_depth: u32,
    /// Contexts.
    pub ctxts: u32,
    /// Entries of the send queue, as credits.
    pub sq_depth: u32,
}

impl EndpointSizes {
    /// Computes them.
    ///
    /// # Errors
    /// [`SegmentError::TooManyEntries`] when the device's queues are too short for two requests.
    pub fn new(caps: &DeviceCaps, config: &EndpointConfig) -> Result<Self, SegmentError> {
        let EndpointConfig {
            mut max_requests,
            mut max_bc_requests,
            mut recv_batch,
            max_req_size,
            max_payload,
        } = *config;
        let max_send_sges = (FIXED_SGES + max_req_size / PAGE + 1).min(caps.max_send_sge);
        let all = u64::from(max_requests) + u64::from(max_bc_requests) + u64::from(recv_batch) + 1;
        let rq_depth = if all > u64::from(caps.max_qp_wr) {
            (recv_batch, max_bc_requests) = (1, 2);
            max_requests = caps.max_qp_wr.checked_sub(2).ok_or(SegmentError::TooManyEntries)?;
            caps.max_qp_wr
        } else {
            u32::try_from(all).expect("at most a u32")
        };
        let factor = mr_factor(caps, max_payload / PAGE);
        let ctxts = max_requests.saturating_mul(CTXS_PER_REQUEST).saturating_mul(factor);
        let sq_depth = rq_depth.saturating_add(max_send_wr(caps, ctxts, Integrity::Off)).min(caps.max_qp_wr);
        Ok(Self {
            max_requests,
            max_bc_requests,
            recv_batch,
            max_req_size,
            max_send_sges,
            rq_depth,
            ctxts,
            sq_depth,
        })
    }

    /// Send-queue entries to ask for beside those of [`Self::ctxts`] contexts ([`crate::plan::init_qp`] adds these).
    /// (Deviation: where the device cuts the send queue below that, Linux's subtraction wraps.)
    #[must_use]
    pub fn own_send_wr(&self) -> u32 {
        self.sq_depth.saturating_sub(self.ctxts)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::profiles::{a, b, c, r, s};
    use super::*;
    use crate::plan::init_qp;

    #[test]
    fn sizes_follow_the_table() {
        for (caps, max_payload, max_requests, rq_depth, factor, ctxts, sq_depth, own, qp) in [
            (a(), 1 << 20, 64, 74, 9, 1728, 1802, 74, 1802),
            (a(), 1 << 20, 128, 138, 9, 3456, 3594, 138, 3594),
            (a(), 4 << 20, 128, 138, 35, 13440, 13578, 138, 13578),
            (b(), 1 << 20, 128, 138, 1, 384, 1290, 906, 2058),
            (c(), 1 << 20, 128, 138, 1, 384, 1290, 906, 2058),
            (b(), 4 << 20, 128, 138, 4, 1536, 4746, 3210, 7818),
            (c(), 4 << 20, 128, 138, 4, 1536, 4746, 3210, 7818),
            (r(), 1 << 20, 128, 138, 8, 3072, 3210, 138, 3210),
            (r(), 4 << 20, 128, 138, 32, 12288, 12426, 138, 12426),
        ] {
            let config = EndpointConfig { max_requests, max_payload, ..EndpointConfig::default() };
            let sizes = EndpointSizes::new(&caps, &config).unwrap();
            assert_eq!(mr_factor(&caps, max_payload / PAGE), factor);
            assert_eq!(
                (sizes.rq_depth, sizes.ctxts, sizes.sq_depth),
                (rq_depth, ctxts, sq_depth),
                "{caps:?}"
            );
            assert_eq!(sizes.own_send_wr(), own, "{caps:?}");
            assert_eq!(init_qp(&caps, own, sizes.ctxts, Integrity::Off), qp, "{caps:?}");
        }
    }

    #[test]
    fn a_send_has_sges_for_its_pages_as_far_as_the_device_has_them() {
        let sges = |caps, max_req_size| {
            let config = EndpointConfig { max_req_size, ..EndpointConfig::default() };
            EndpointSizes::new(&caps, &config).unwrap().max_send_sges
        };
        assert_eq!((sges(a(), 4096), sges(a(), 65536), sges(c(), 65536)), (5, 20, 6));
    }

    #[test]
    fn a_device_with_short_queues_serves_fewer_requests() {
        // 64 entries: 138 receives don't fit.
        let sizes = EndpointSizes::new(&s(), &EndpointConfig::default()).unwrap();
        assert_eq!(
            (sizes.rq_depth, sizes.recv_batch, sizes.max_requests, sizes.max_bc_requests),
            (64, 1, 62, 2)
        );
        assert_eq!((sizes.sq_depth, sizes.own_send_wr()), (64, 0));
        let tiny = DeviceCaps { max_qp_wr: 1, ..s() };
        let sized = EndpointSizes::new(&tiny, &EndpointConfig::default());
        assert_eq!(sized, Err(SegmentError::TooManyEntries));
    }
}
