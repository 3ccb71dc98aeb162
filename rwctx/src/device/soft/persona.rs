//! Other devices' capabilities, which the soft device can take on: so that what stands above it walks the branches that it has
//! for them. What a persona says, the soft device enforces.

use super::endpoint::CAPS;
use crate::device::DeviceCaps;

/// A device to pretend to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Persona {
    /// Linux's software RoCE: lists of 32 pieces, no registrations asked for.
    Rxe,
    /// A ConnectX: lists of 30 pieces, and READs to more of them had better use registrations.
    Mlx5,
    /// As Linux's software iWARP: short lists, READs to one piece only, which has to be registered for the peer to write.
    Iwarp,
}

impl Persona {
    /// Its capabilities: those of the device as far as contexts look at them. None of them can send from memory that is
    /// replaced ([`DeviceCaps::replace_source`]); integrity registrations are those of the soft device, but over iWARP, whose
    /// READs name the memory that they go to, there are none.
    #[must_use]
    pub const fn caps(self) -> DeviceCaps {
        let other = DeviceCaps { replace_source: false, ..CAPS };
        match self {
            Self::Rxe => DeviceCaps { max_qp_wr: 1 << 20, ..other },
            Self::Mlx5 => DeviceCaps {
                // The hint is the firmware's and differs: this is the one of the reference tables.
                max_sgl_rd: 32,
                max_send_sge: 30,
                max_sge_rd: 30,
                max_fast_reg_page_list_len: 65536,
                max_qp_wr: 32768,
                max_qp_rd_atom: 16,
                max_qp_init_rd_atom: 16,
                ..other
            },
            Self::Iwarp => DeviceCaps {
                iwarp: true,
                max_send_sge: 6,
                max_sge_rd: 1,
                max_recv_sge: 6,
                max_fast_reg_page_list_len: 256,
                max_pi_fast_reg_page_list_len: 0,
                max_qp_wr: 32768,
                ..other
            },
        }
    }

    /// Its name, as in a configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rxe => "rxe",
            Self::Mlx5 => "mlx5",
            Self::Iwarp => "iwarp",
        }
    }
}
