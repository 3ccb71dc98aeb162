//! What a device says of itself, turned into capabilities; and what some devices don't say, by vendor.

use super::queue_pair::MAX_RECV_SGE;
use crate::device::DeviceCaps;

/// Of `struct ibv_device_attr` and the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Attributes {
    pub(super) vendor_id: u32,
    pub(super) vendor_part_id: u32,
    /// An iWARP device: connections over TCP.
    pub(super) iwarp: bool,
    /// `IBV_DEVICE_MEM_MGT_EXTENSIONS`, of which user space has SEND with invalidation.
    pub(super) mem_mgt_extensions: bool,
    pub(super) max_qp_wr: u32,
    pub(super) max_sge: u32,
    pub(super) max_sge_rd: u32,
    pub(super) max_cqe: u32,
    pub(super) max_qp_rd_atom: u32,
    pub(super) max_qp_init_rd_atom: u32,
}

/// What a device does otherwise than it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quirk {
    vendor_id: u32,
    /// The driver, for the log.
    pub(super) driver: &'static str,
    /// SGEs that a send work request has at most.
    max_send_sge: u32,
}

/// Devices that are known. Others are taken at their word.
const QUIRKS: [Quirk; 2] = [
    // Linux's software RoCE says what it can do.
    Quirk { vendor_id: 0x00FF_FFFF, driver: "rxe", max_send_sge: 32 },
    // ConnectX says how many fit the longest work queue entry; with those a send queue has fewer entries than it says. Linux
    // itself makes queue pairs with entries of 512 bytes: (512 - 32) / 16.
    Quirk { vendor_id: 0x02C9, driver: "mlx5", max_send_sge: 30 },
];

impl Attributes {
    /// What is known of the device's kind.
    pub(super) fn quirk(&self) -> Option<&'static Quirk> {
        QUIRKS.iter().find(|quirk| quirk.vendor_id == self.vendor_id)
    }

    /// Capabilities: what the device has, of it what user space can use, of it what works.
    pub(super) fn caps(&self) -> DeviceCaps {
        let quirk = self.quirk();
        let max_send_sge = self.max_sge.min(quirk.map_or(u32::MAX, |quirk| quirk.max_send_sge)).max(1);
        let depth = |reads: u32| u8::try_from(reads).unwrap_or(u8::MAX);
        DeviceCaps {
            iwarp: self.iwarp,
            max_sgl_rd: 0,
            max_send_sge,
            // Some devices leave it 0.
            max_sge_rd: self.max_sge_rd.clamp(1, max_send_sge),
            max_recv_sge: self.max_sge.clamp(1, u32::try_from(MAX_RECV_SGE).expect("a few")),
            // There is no fast registration in user space.
            max_fast_reg_page_list_len: 0,
            max_pi_fast_reg_page_list_len: 0,
            max_qp_wr: self.max_qp_wr,
            max_qp_rd_atom: depth(self.max_qp_rd_atom),
            max_qp_init_rd_atom: depth(self.max_qp_init_rd_atom),
            mem_mgt_extensions: false,
            send_with_inv: self.mem_mgt_extensions,
            force_mr: false,
            replace_source: false,
            takes_sums: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICE: Attributes = Attributes {
        vendor_id: 0x1234,
        vendor_part_id: 1,
        iwarp: false,
        mem_mgt_extensions: true,
        max_qp_wr: 16384,
        max_sge: 32,
        max_sge_rd: 32,
        max_cqe: 1 << 20,
        max_qp_rd_atom: 16,
        max_qp_init_rd_atom: 500,
    };

    #[test]
    fn capabilities_are_those_of_user_space() {
        let caps = DEVICE.caps();
        assert_eq!((caps.max_send_sge, caps.max_sge_rd, caps.max_recv_sge), (32, 32, 8));
        assert!(caps.send_with_inv && !caps.mem_mgt_extensions && !caps.replace_source);
        assert_eq!((caps.max_qp_rd_atom, caps.max_qp_init_rd_atom), (16, u8::MAX));
        assert_eq!(caps.max_fast_reg_page_list_len, 0);
    }

    #[test]
    fn a_device_that_leaves_numbers_out_can_do_one_of_each() {
        let caps = Attributes { max_sge: 0, max_sge_rd: 0, ..DEVICE }.caps();
        assert_eq!((caps.max_send_sge, caps.max_sge_rd, caps.max_recv_sge), (1, 1, 1));
    }

    #[test]
    fn a_read_has_no_more_pieces_than_a_work_request() {
        assert_eq!(Attributes { max_sge: 6, max_sge_rd: 30, ..DEVICE }.caps().max_sge_rd, 6);
    }

    #[test]
    fn known_devices_are_taken_for_less_than_they_say() {
        let connectx = Attributes { vendor_id: 0x02C9, max_sge: 64, max_sge_rd: 64, ..DEVICE };
        assert_eq!((connectx.caps().max_send_sge, connectx.caps().max_sge_rd), (30, 30));
        let rxe = Attributes { vendor_id: 0x00FF_FFFF, ..DEVICE };
        assert_eq!(rxe.quirk().map(|quirk| quirk.driver), Some("rxe"));
        assert_eq!(DEVICE.quirk(), None);
    }
}
