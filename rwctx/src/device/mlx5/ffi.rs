//! The binary interface of libmlx5's signature calls: structures, constants and function types of `infiniband/mlx5dv.h`, and
//! what of `infiniband/verbs.h` goes with them, on x86-64. (rw-contexts 2.6.2, 2.6.3)
//!
//! Names are those of the header without `mlx5dv_` and `ibv_`. A test compiles a C program against the installed header and
//! compares each size, offset and number. `mlx5dv_wr_*` and `ibv_wr_*` are inline functions there: they call the pointers in
//! [`DvQpEx`] and [`QpEx`]. Calls nothing itself.

use std::ffi::{c_int, c_void};

/// Makes types of which C alone knows what is inside.
macro_rules! opaque {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        #[repr(C)]
        pub struct $name {
            _inside: [u8; 0],
        }
    )*};
}

opaque! {
    /// `ibv_device`: a device that is not open.
    Device;
    /// `ibv_context`: an open device.
    Context;
    /// `ibv_pd`: a protection domain.
    Pd;
    /// `ibv_cq`: a completion queue.
    Cq;
    /// `ibv_qp`: a queue pair.
    Qp;
}

/// `mlx5dv_context_attr`
#[derive(Debug, Default)]
#[repr(C)]
pub struct ContextAttr {
    /// [`CONTEXT_FLAGS_DEVX`]
    pub flags: u32,
    /// 0
    pub comp_mask: u64,
    /// A field of later versions.
    pub more: u64,
}

/// `mlx5dv_sig_caps`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct SigCaps {
    /// Bits `1 << BLOCK_SIZE_*`.
    pub block_size: u64,
    /// [`SIG_PROT_CAP_T10DIF`], [`SIG_PROT_CAP_CRC`]
    pub block_prot: u32,
    /// Bits `1 << T10DIF_*`.
    pub t10dif_bg: u16,
    /// Bits `1 << CRC_TYPE_*`.
    pub crc_type: u16,
}

/// `mlx5dv_context`: what a device can do, as far as signatures need it.
#[derive(Debug)]
#[repr(C)]
pub struct DvContext {
    /// `version`, `flags`
    pub reserved: [u64; 2],
    /// What is asked for, and then what was answered.
    pub comp_mask: u64,
    /// Capabilities of other kinds.
    pub others: [u64; 10],
    /// Those of signatures.
    pub sig_caps: SigCaps,
    /// Capabilities of other kinds, and room for those of later versions.
    pub more: [u64; 32],
}

/// `mlx5dv_mkey_init_attr`
#[derive(Debug)]
#[repr(C)]
pub struct MkeyInitAttr {
    /// Where it belongs.
    pub pd: *mut Pd,
    /// `MKEY_INIT_*`
    pub create_flags: u32,
    /// Entries of its layout; the library rounds it up.
    pub max_entries: u16,
}

/// `mlx5dv_mkey`
#[derive(Debug)]
#[repr(C)]
pub struct Mkey {
    /// For local work requests.
    pub lkey: u32,
    /// For peers.
    pub rkey: u32,
}

/// `mlx5dv_mkey_conf_attr`
#[derive(Debug, Default)]
#[repr(C)]
pub struct MkeyConfAttr {
    /// [`MKEY_CONF_RESET_SIG_ATTR`]
    pub conf_flags: u32,
    /// 0
    pub comp_mask: u64,
}

/// `mlx5dv_mr_interleaved`: one of the pieces that make up a cycle of an interleaved layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct MrInterleaved {
    /// Address of the first piece.
    pub addr: u64,
    /// Bytes of a piece; 16 bits of them count.
    pub bytes_count: u32,
    /// Bytes from its end to the next piece.
    pub bytes_skip: u32,
    /// Key of the memory.
    pub lkey: u32,
}

/// `ibv_sge`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// Address of the first byte.
    pub addr: u64,
    /// Bytes.
    pub length: u32,
    /// Key of the memory.
    pub lkey: u32,
}

/// `mlx5dv_sig_t10dif`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SigT10Dif {
    /// [`T10DIF_CRC`] or [`T10DIF_CSUM`]
    pub bg_type: u32,
    /// State of the guard's checksum before the first byte: 0 or FFFFh.
    pub bg: u16,
    /// Application tag.
    pub app_tag: u16,
    /// Reference tag of the first block.
    pub ref_tag: u32,
    /// `T10DIF_FLAG_*`
    pub flags: u16,
}

/// `mlx5dv_sig_crc`: a bare checksum behind each block, without tags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct SigCrc {
    /// `CRC_TYPE_*`
    pub crc_type: u32,
    /// 0 or all ones.
    pub seed: u64,
}

/// `mlx5dv_sig_block_domain`
#[derive(Debug)]
#[repr(C)]
pub struct SigBlockDomain {
    /// [`SIG_TYPE_T10DIF`] or [`SIG_TYPE_CRC`]
    pub sig_type: u32,
    /// A [`SigT10Dif`] or a [`SigCrc`].
    pub sig: *const c_void,
    /// `BLOCK_SIZE_*`
    pub block_size: u32,
    /// 0
    pub comp_mask: u64,
}

/// `mlx5dv_sig_block_attr`
#[derive(Debug)]
#[repr(C)]
pub struct SigBlockAttr {
    /// Null: memory has data alone.
    pub mem: *const SigBlockDomain,
    /// Null: the wire has data alone.
    pub wire: *const SigBlockDomain,
    /// [`SIG_BLOCK_ATTR_FLAG_COPY_MASK`]
    pub flags: u32,
    /// Bytes of the tuple that are compared, `SIG_MASK_*`.
    pub check_mask: u8,
    /// Bytes of the tuple that are copied, `SIG_MASK_*`.
    pub copy_mask: u8,
    /// 0
    pub comp_mask: u64,
}

/// `mlx5dv_mkey_err`, with the `mlx5dv_sig_err` inside it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct MkeyErr {
    /// `MKEY_*`
    pub err_type: u32,
    /// What the tuple holds: guard in bits 63 to 48, application tag in 47 to 32, reference tag in 31 to 0.
    pub actual_value: u64,
    /// What it should hold, likewise.
    pub expected_value: u64,
    /// Where, in bytes of the transfer.
    pub offset: u64,
}

/// `ibv_qp_init_attr_ex`
#[derive(Debug)]
#[repr(C)]
pub struct QpInitAttrEx {
    /// The caller's.
    pub qp_context: *mut c_void,
    /// Completions of sends.
    pub send_cq: *mut Cq,
    /// Completions of receives.
    pub recv_cq: *mut Cq,
    /// Null: it has receives of its own.
    pub srq: *mut c_void,
    /// Its sizes; the library writes what it gave.
    pub cap: QpCap,
    /// [`QPT_RC`]
    pub qp_type: u32,
    /// 0: requests say whether they are signaled.
    pub sq_sig_all: c_int,
    /// [`QP_INIT_ATTR_PD`], [`QP_INIT_ATTR_SEND_OPS_FLAGS`]
    pub comp_mask: u32,
    /// Where it belongs.
    pub pd: *mut Pd,
    /// Fields of other kinds of queue pairs.
    pub others: [u64; 7],
    /// `QP_EX_WITH_*`
    pub send_ops_flags: u64,
}

/// `ibv_qp_cap`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct QpCap {
    /// Send work requests.
    pub max_send_wr: u32,
    /// Receives.
    pub max_recv_wr: u32,
    /// SGEs of a send.
    pub max_send_sge: u32,
    /// SGEs of a receive.
    pub max_recv_sge: u32,
    /// Bytes that a work request can hold itself.
    pub max_inline_data: u32,
}

/// `mlx5dv_qp_init_attr`
#[derive(Debug, Default)]
#[repr(C)]
pub struct DvQpInitAttr {
    /// [`DV_QP_INIT_ATTR_CREATE_FLAGS`], [`DV_QP_INIT_ATTR_SEND_OPS_FLAGS`]
    pub comp_mask: u64,
    /// [`QP_CREATE_DISABLE_SCATTER_TO_CQE`]
    pub create_flags: u32,
    /// Of queue pairs of another kind.
    pub dc_init_attr: [u64; 2],
    /// [`QP_EX_WITH_MKEY_CONFIGURE`]
    pub send_ops_flags: u64,
}

/// `ibv_qp_ex`: a queue pair whose work requests are made by calls.
#[derive(Debug)]
#[repr(C)]
pub struct QpEx {
    /// `ibv_qp`
    pub qp_base: [u64; 20],
    /// What of the following there is.
    pub comp_mask: u64,
    /// Comes back in the completion of the requests that are made next.
    pub wr_id: u64,
    /// [`SEND_SIGNALED`], [`SEND_INLINE`]
    pub wr_flags: u32,
    /// Atomics and memory windows.
    pub others: [Unused; 3],
    /// Invalidates a local key.
    pub wr_local_inv: Option<WrKey<Self>>,
    /// RDMA READ.
    pub wr_rdma_read: Option<WrRemote>,
    /// RDMA WRITE.
    pub wr_rdma_write: Option<WrRemote>,
    /// SENDs, and setters of other requests.
    pub more: [Unused; 9],
    /// The one piece of memory of a request.
    pub wr_set_sge: Option<WrSetSge>,
    /// Its pieces.
    pub wr_set_sge_list: Unused,
    /// Begins a list of requests.
    pub wr_start: Option<WrStart>,
    /// Posts the list.
    pub wr_complete: Option<WrComplete>,
    /// Forgets the list.
    pub wr_abort: Option<WrStart>,
}

/// `mlx5dv_qp_ex`: calls that make work requests of mlx5 alone.
#[derive(Debug)]
#[repr(C)]
pub struct DvQpEx {
    /// 0
    pub comp_mask: u64,
    /// Of other queue pairs, and older calls.
    pub others: [Unused; 3],
    /// Configures a key, by as many setters as it is told.
    pub wr_mkey_configure: Option<MkeyConfigure>,
    /// Setter: the rights of the key, `IBV_ACCESS_*`.
    pub wr_set_mkey_access_flags: Option<WrKey<Self>>,
    /// Setter: pieces of memory in a row.
    pub wr_set_mkey_layout_list: Option<SetLayoutList>,
    /// Setter: pieces of memory in turn.
    pub wr_set_mkey_layout_interleaved: Option<SetLayoutInterleaved>,
    /// Setter: the signature of blocks.
    pub wr_set_mkey_sig_block: Option<SetSigBlock>,
    /// Other requests.
    pub more: [Unused; 4],
}

/// A pointer that nothing here calls.
pub type Unused = *const c_void;
/// `ibv_wr_start`, `ibv_wr_abort`
pub type WrStart = unsafe extern "C" fn(qp: *mut QpEx);
/// `ibv_wr_complete`
pub type WrComplete = unsafe extern "C" fn(qp: *mut QpEx) -> c_int;
/// Calls with one number more: a key, or rights.
pub type WrKey<Q> = unsafe extern "C" fn(qp: *mut Q, key: u32);
/// `ibv_wr_rdma_read`, `ibv_wr_rdma_write`
pub type WrRemote = unsafe extern "C" fn(qp: *mut QpEx, rkey: u32, remote_addr: u64);
/// `ibv_wr_set_sge`
pub type WrSetSge = unsafe extern "C" fn(qp: *mut QpEx, lkey: u32, addr: u64, length: u32);
/// `mlx5dv_wr_mkey_configure`
pub type MkeyConfigure =
    unsafe extern "C" fn(qp: *mut DvQpEx, mkey: *mut Mkey, num_setters: u8, attr: *mut MkeyConfAttr);
/// `mlx5dv_wr_set_mkey_layout_list`
pub type SetLayoutList = unsafe extern "C" fn(qp: *mut DvQpEx, num_sges: u16, sge: *const Sge);
/// `mlx5dv_wr_set_mkey_layout_interleaved`
pub type SetLayoutInterleaved = unsafe extern "C" fn(
    qp: *mut DvQpEx,
    repeat_count: u32,
    num_interleaved: u16,
    data: *const MrInterleaved,
);
/// `mlx5dv_wr_set_mkey_sig_block`
pub type SetSigBlock = unsafe extern "C" fn(qp: *mut DvQpEx, attr: *const SigBlockAttr);

/// `mlx5dv_open_device`
pub type OpenDevice = unsafe extern "C" fn(device: *mut Device, attr: *mut ContextAttr) -> *mut Context;
/// `mlx5dv_query_device`
pub type QueryDevice = unsafe extern "C" fn(context: *mut Context, attrs_out: *mut DvContext) -> c_int;
/// `mlx5dv_create_qp`
pub type CreateQp = unsafe extern "C" fn(
    context: *mut Context,
    attr: *mut QpInitAttrEx,
    dv_attr: *mut DvQpInitAttr,
) -> *mut Qp;
/// `ibv_qp_to_qp_ex`
pub type QpToQpEx = unsafe extern "C" fn(qp: *mut Qp) -> *mut QpEx;
/// `mlx5dv_qp_ex_from_ibv_qp_ex`
pub type DvQpExFrom = unsafe extern "C" fn(qp: *mut QpEx) -> *mut DvQpEx;
/// `mlx5dv_create_mkey`
pub type CreateMkey = unsafe extern "C" fn(attr: *mut MkeyInitAttr) -> *mut Mkey;
/// `mlx5dv_destroy_mkey`
pub type DestroyMkey = unsafe extern "C" fn(mkey: *mut Mkey) -> c_int;
/// `_mlx5dv_mkey_check`, which is told how large the error is that it may write.
pub type MkeyCheck = unsafe extern "C" fn(mkey: *mut Mkey, err: *mut MkeyErr, size: usize) -> c_int;

/// Opens the device so that it takes commands of mlx5: signatures need that.
pub const CONTEXT_FLAGS_DEVX: u32 = 1 << 0;
/// Asks for [`SigCaps`].
pub const CONTEXT_MASK_SIGNATURE_OFFLOAD: u64 = 1 << 10;

/// T10-DIF: data and an 8-byte tuple.
pub const SIG_TYPE_T10DIF: u32 = 0;
/// Data and a checksum.
pub const SIG_TYPE_CRC: u32 = 1;
/// The device knows T10-DIF.
pub const SIG_PROT_CAP_T10DIF: u32 = 1 << SIG_TYPE_T10DIF;
/// The device knows bare checksums.
pub const SIG_PROT_CAP_CRC: u32 = 1 << SIG_TYPE_CRC;
/// Guards are CRC-16.
pub const T10DIF_CRC: u32 = 0;
/// Guards are Internet checksums.
pub const T10DIF_CSUM: u32 = 1;
/// CRC-32.
pub const CRC_TYPE_CRC32: u32 = 0;
/// CRC-32C.
pub const CRC_TYPE_CRC32C: u32 = 1;
/// CRC-64/XP10.
pub const CRC_TYPE_CRC64_XP10: u32 = 2;
/// 512 bytes.
pub const BLOCK_SIZE_512: u32 = 0;
/// 520 bytes.
pub const BLOCK_SIZE_520: u32 = 1;
/// 4048 bytes.
pub const BLOCK_SIZE_4048: u32 = 2;
/// 4096 bytes.
pub const BLOCK_SIZE_4096: u32 = 3;
/// 4160 bytes.
pub const BLOCK_SIZE_4160: u32 = 4;
/// Reference tags count.
pub const T10DIF_FLAG_REF_REMAP: u16 = 1 << 0;
/// Tuples with application tag FFFFh are not checked.
pub const T10DIF_FLAG_APP_ESCAPE: u16 = 1 << 1;
/// Tuples with application tag FFFFh and reference tag FFFFFFFFh are not checked; wins over the former.
pub const T10DIF_FLAG_APP_REF_ESCAPE: u16 = 1 << 2;
/// The guard's bytes.
pub const SIG_MASK_T10DIF_GUARD: u8 = 0xC0;
/// The application tag's bytes.
pub const SIG_MASK_T10DIF_APPTAG: u8 = 0x30;
/// The upper byte of the application tag.
pub const SIG_MASK_T10DIF_APPTAG_BYTE1: u8 = 0x20;
/// The lower byte of the application tag.
pub const SIG_MASK_T10DIF_APPTAG_BYTE0: u8 = 0x10;
/// The reference tag's bytes.
pub const SIG_MASK_T10DIF_REFTAG: u8 = 0x0F;
/// `copy_mask` counts.
pub const SIG_BLOCK_ATTR_FLAG_COPY_MASK: u32 = 1 << 0;
/// The key forgets the signature that it had.
pub const MKEY_CONF_RESET_SIG_ATTR: u32 = 1 << 0;
/// The key points to others.
pub const MKEY_INIT_INDIRECT: u32 = 1 << 0;
/// The key can have a signature.
pub const MKEY_INIT_BLOCK_SIGNATURE: u32 = 1 << 1;
/// No check failed.
pub const MKEY_NO_ERR: u32 = 0;
/// A guard.
pub const MKEY_SIG_BLOCK_BAD_GUARD: u32 = 1;
/// A reference tag.
pub const MKEY_SIG_BLOCK_BAD_REFTAG: u32 = 2;
/// An application tag.
pub const MKEY_SIG_BLOCK_BAD_APPTAG: u32 = 3;

/// A reliable connection.
pub const QPT_RC: u32 = 2;
/// `pd` counts.
pub const QP_INIT_ATTR_PD: u32 = 1 << 0;
/// `send_ops_flags` counts.
pub const QP_INIT_ATTR_SEND_OPS_FLAGS: u32 = 1 << 6;
/// RDMA WRITEs are made by calls.
pub const QP_EX_WITH_RDMA_WRITE: u64 = 1 << 0;
/// SENDs are.
pub const QP_EX_WITH_SEND: u64 = 1 << 2;
/// RDMA READs are.
pub const QP_EX_WITH_RDMA_READ: u64 = 1 << 4;
/// Local invalidations are.
pub const QP_EX_WITH_LOCAL_INV: u64 = 1 << 7;
/// SENDs with invalidation are.
pub const QP_EX_WITH_SEND_WITH_INV: u64 = 1 << 9;
/// `create_flags` counts.
pub const DV_QP_INIT_ATTR_CREATE_FLAGS: u64 = 1 << 0;
/// `send_ops_flags` counts.
pub const DV_QP_INIT_ATTR_SEND_OPS_FLAGS: u64 = 1 << 2;
/// Small READs put no data into completions, which indirect keys can't take.
pub const QP_CREATE_DISABLE_SCATTER_TO_CQE: u32 = 1 << 3;
/// Keys are configured by calls.
pub const QP_EX_WITH_MKEY_CONFIGURE: u64 = 1 << 2;
/// The request completes visibly.
pub const SEND_SIGNALED: u32 = 1 << 1;
/// The request holds its data itself; configuring a key must.
pub const SEND_INLINE: u32 = 1 << 3;
/// Our device may write through the key.
pub const ACCESS_LOCAL_WRITE: u32 = 1 << 0;
