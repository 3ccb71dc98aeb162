//! Completions as libibverbs numbers them, turned into ours.

use crate::device::Qpn;
use crate::remote::Rkey;
use crate::wc::{RecvExtra, Wc, WcOpcode, WcStatus};
use crate::wr::WrId;

/// A completion as the library gives it (`struct ibv_wc`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawWc {
    pub(super) wr_id: u64,
    /// `enum ibv_wc_status`.
    pub(super) status: u32,
    /// `enum ibv_wc_opcode`; means nothing unless the status is success.
    pub(super) opcode: u32,
    pub(super) byte_len: u32,
    /// Immediate data as on the wire, or the key that was invalidated.
    pub(super) word: u32,
    pub(super) qp_num: u32,
    /// `enum ibv_wc_flags`.
    pub(super) flags: u32,
}

const WITH_IMM: u32 = 1 << 1;
const WITH_INV: u32 = 1 << 3;
/// Opcodes of receives have this bit.
const RECV: u32 = 1 << 7;

impl RawWc {
    /// Whether it is of a receive; known of successful ones alone.
    pub(super) fn is_receive(&self) -> bool {
        self.opcode & RECV != 0
    }

    /// The completion as callers see it.
    pub(super) fn wc(&self) -> Wc {
        let extra = if self.flags & WITH_IMM != 0 {
            RecvExtra::Imm(self.word.to_ne_bytes())
        } else if self.flags & WITH_INV != 0 {
            RecvExtra::Invalidated(Rkey(self.word))
        } else {
            RecvExtra::None
        };
        Wc {
            wr_id: WrId(self.wr_id),
            qpn: Qpn(self.qp_num),
            status: status(self.status),
            opcode: opcode(self.opcode),
            byte_len: self.byte_len,
            extra,
        }
    }
}

/// `enum ibv_wc_status`. What has no counterpart here is an inconsistency of the queue pair: it failed in any case.
fn status(number: u32) -> WcStatus {
    match number {
        0 => WcStatus::Success,
        1 => WcStatus::LocLenErr,
        // A local key or address did not fit, or a receive's memory.
        4 | 8 => WcStatus::LocProtErr,
        5 => WcStatus::WrFlushErr,
        7 => WcStatus::BadRespErr,
        9 => WcStatus::RemInvReqErr,
        10 => WcStatus::RemAccessErr,
        11 | 16 => WcStatus::RemOpErr,
        // A response that does not come, of a reliable datagram or connection.
        12 | 20 => WcStatus::RetryExcErr,
        13 => WcStatus::RnrRetryExcErr,
        _ => WcStatus::LocQpOpErr,
    }
}

/// `enum ibv_wc_opcode`, of those that are ever posted here.
fn opcode(number: u32) -> WcOpcode {
    match number {
        1 => WcOpcode::RdmaWrite,
        2 => WcOpcode::RdmaRead,
        6 => WcOpcode::LocalInv,
        0x80 => WcOpcode::Recv,
        0x81 => WcOpcode::RecvRdmaWithImm,
        _ => WcOpcode::Send,
    }
}

#[cfg(test)]
mod tests {
    use rdma_sys::{ibv_wc_flags, ibv_wc_opcode, ibv_wc_status};

    use super::*;

    const RAW: RawWc =
        RawWc { wr_id: 7, status: 0, opcode: 0x80, byte_len: 64, word: 0, qp_num: 0x11, flags: 0 };

    #[test]
    fn each_status_of_the_library_has_its_own_here() {
        for (number, expected) in [
            (ibv_wc_status::IBV_WC_SUCCESS, WcStatus::Success),
            (ibv_wc_status::IBV_WC_LOC_LEN_ERR, WcStatus::LocLenErr),
            (ibv_wc_status::IBV_WC_LOC_QP_OP_ERR, WcStatus::LocQpOpErr),
            (ibv_wc_status::IBV_WC_LOC_PROT_ERR, WcStatus::LocProtErr),
            (ibv_wc_status::IBV_WC_WR_FLUSH_ERR, WcStatus::WrFlushErr),
            (ibv_wc_status::IBV_WC_BAD_RESP_ERR, WcStatus::BadRespErr),
            (ibv_wc_status::IBV_WC_LOC_ACCESS_ERR, WcStatus::LocProtErr),
            (ibv_wc_status::IBV_WC_REM_INV_REQ_ERR, WcStatus::RemInvReqErr),
            (ibv_wc_status::IBV_WC_REM_ACCESS_ERR, WcStatus::RemAccessErr),
            (ibv_wc_status::IBV_WC_REM_OP_ERR, WcStatus::RemOpErr),
            (ibv_wc_status::IBV_WC_RETRY_EXC_ERR, WcStatus::RetryExcErr),
            (ibv_wc_status::IBV_WC_RNR_RETRY_EXC_ERR, WcStatus::RnrRetryExcErr),
            (ibv_wc_status::IBV_WC_REM_ABORT_ERR, WcStatus::RemOpErr),
            (ibv_wc_status::IBV_WC_RESP_TIMEOUT_ERR, WcStatus::RetryExcErr),
            (ibv_wc_status::IBV_WC_FATAL_ERR, WcStatus::LocQpOpErr),
            (ibv_wc_status::IBV_WC_GENERAL_ERR, WcStatus::LocQpOpErr),
            (u32::MAX, WcStatus::LocQpOpErr),
        ] {
            assert_eq!(status(number), expected, "{number}");
        }
    }

    #[test]
    fn opcodes_are_those_of_the_library() {
        for (number, expected) in [
            (ibv_wc_opcode::IBV_WC_SEND, WcOpcode::Send),
            (ibv_wc_opcode::IBV_WC_RDMA_WRITE, WcOpcode::RdmaWrite),
            (ibv_wc_opcode::IBV_WC_RDMA_READ, WcOpcode::RdmaRead),
            (ibv_wc_opcode::IBV_WC_LOCAL_INV, WcOpcode::LocalInv),
            (ibv_wc_opcode::IBV_WC_RECV, WcOpcode::Recv),
            (ibv_wc_opcode::IBV_WC_RECV_RDMA_WITH_IMM, WcOpcode::RecvRdmaWithImm),
        ] {
            let raw = RawWc { opcode: number, ..RAW };
            assert_eq!(raw.wc().opcode, expected, "{number}");
            let receive = matches!(expected, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
            assert_eq!(raw.is_receive(), receive, "{number}");
        }
    }

    #[test]
    fn a_receive_says_what_came_with_it() {
        let wc = |flags: ibv_wc_flags, word| RawWc { flags: flags.0, word, ..RAW }.wc().extra;
        assert_eq!(wc(ibv_wc_flags(0), 5), RecvExtra::None);
        assert_eq!(wc(ibv_wc_flags::IBV_WC_WITH_INV, 0x1234), RecvExtra::Invalidated(Rkey(0x1234)));
        let imm = [1, 2, 3, 4];
        assert_eq!(wc(ibv_wc_flags::IBV_WC_WITH_IMM, u32::from_ne_bytes(imm)), RecvExtra::Imm(imm));
    }
}
