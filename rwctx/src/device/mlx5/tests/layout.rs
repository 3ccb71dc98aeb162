//! The header that is installed, against ours: a C program is made of every size, offset, number and function type that we use,
//! and compiled.
//!
//! Structures that we make must be at least as large as the header's; of those that the library makes, what we look at must
//! be in its place.

use std::fmt::Write as _;
use std::io::Write as _;
use std::mem::offset_of;
use std::process::{Command, Stdio};

use super::super::ffi;

/// Assertions about fields of a structure: `OURS = "theirs" { our_field = "theirs", ... }`.
macro_rules! fields {
    ($out:expr, $ours:ident = $theirs:literal { $($field:ident $(= $name:literal)?),* $(,)? }) => {$(
        let name = [$($name,)? stringify!($field)][0];
        offset($out, $theirs, name, offset_of!(ffi::$ours, $field));
    )*};
}

/// As `fields`, of a structure that we make: it has the header's size, or more.
macro_rules! structure {
    ($out:expr, $ours:ident = $theirs:literal { $($fields:tt)* }) => {
        let condition = format!("sizeof(struct {}) <= {}", $theirs, size_of::<ffi::$ours>());
        assertion($out, &condition, concat!("size of ", $theirs));
        fields!($out, $ours = $theirs { $($fields)* });
    };
}

/// Assertions about numbers: `OURS = THEIRS`.
macro_rules! numbers {
    ($out:expr, $($ours:ident = $theirs:ident),* $(,)?) => {$(
        let condition = format!("(long long){} == {}", stringify!($theirs), ffi::$ours);
        assertion($out, &condition, stringify!($theirs));
    )*};
}

fn assertion(out: &mut String, condition: &str, what: &str) {
    writeln!(out, "_Static_assert({condition}, \"{what}\");").unwrap();
}

fn offset(out: &mut String, structure: &str, field: &str, at: usize) {
    let condition = format!("offsetof(struct {structure}, {field}) == {at}");
    assertion(out, &condition, &format!("{structure}.{field}"));
}

fn program() -> String {
    let mut source = String::from("#include <stddef.h>\n#include <infiniband/mlx5dv.h>\n");
    let out = &mut source;
    structures(out);
    made_by_the_library(out);
    signature_numbers(out);
    queue_numbers(out);
    functions(out);
    source
}

fn structures(out: &mut String) {
    structure!(out, ContextAttr = "mlx5dv_context_attr" { flags, comp_mask });
    structure!(out, SigCaps = "mlx5dv_sig_caps" { block_size, block_prot, t10dif_bg, crc_type });
    structure!(out, DvContext = "mlx5dv_context" { comp_mask, sig_caps });
    structure!(out, MkeyInitAttr = "mlx5dv_mkey_init_attr" { pd, create_flags, max_entries });
    structure!(out, MkeyConfAttr = "mlx5dv_mkey_conf_attr" { conf_flags, comp_mask });
    structure!(out, MrInterleaved = "mlx5dv_mr_interleaved" { addr, bytes_count, bytes_skip, lkey });
    structure!(out, Sge = "ibv_sge" { addr, length, lkey });
    structure!(out, SigT10Dif = "mlx5dv_sig_t10dif" { bg_type, bg, app_tag, ref_tag, flags });
    structure!(out, SigCrc = "mlx5dv_sig_crc" { crc_type = "type", seed });
    structure!(out, SigBlockDomain = "mlx5dv_sig_block_domain" { sig_type, sig, block_size, comp_mask });
    structure!(out, SigBlockAttr = "mlx5dv_sig_block_attr" { mem, wire, flags, check_mask, copy_mask, comp_mask });
    structure!(out, MkeyErr = "mlx5dv_mkey_err" {
        err_type,
        actual_value = "err.sig.actual_value",
        expected_value = "err.sig.expected_value",
        offset = "err.sig.offset",
    });
    structure!(out, QpCap = "ibv_qp_cap" { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data });
    structure!(out, QpInitAttrEx = "ibv_qp_init_attr_ex" {
        qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all, comp_mask, pd, send_ops_flags,
    });
    structure!(out, DvQpInitAttr = "mlx5dv_qp_init_attr" { comp_mask, create_flags, dc_init_attr, send_ops_flags });
    // Arrays of these: no more than the header's size either.
    for (theirs, ours) in
        [("mlx5dv_mr_interleaved", size_of::<ffi::MrInterleaved>()), ("ibv_sge", size_of::<ffi::Sge>())]
    {
        assertion(out, &format!("sizeof(struct {theirs}) == {ours}"), &format!("size of {theirs} in arrays"));
    }
    // The library is told its size.
    let size = size_of::<ffi::MkeyErr>();
    assertion(out, &format!("sizeof(struct mlx5dv_mkey_err) == {size}"), "size of mlx5dv_mkey_err as told");
}

fn made_by_the_library(out: &mut String) {
    fields!(out, Mkey = "mlx5dv_mkey" { lkey, rkey });
    fields!(out, QpEx = "ibv_qp_ex" {
        qp_base, comp_mask, wr_id, wr_flags, wr_local_inv, wr_rdma_read, wr_rdma_write, wr_set_sge, wr_set_sge_list, wr_start,
        wr_complete, wr_abort,
    });
    fields!(out, DvQpEx = "mlx5dv_qp_ex" {
        comp_mask, wr_mkey_configure, wr_set_mkey_access_flags, wr_set_mkey_layout_list, wr_set_mkey_layout_interleaved,
        wr_set_mkey_sig_block,
    });
}

fn signature_numbers(out: &mut String) {
    numbers!(
        out,
        CONTEXT_FLAGS_DEVX = MLX5DV_CONTEXT_FLAGS_DEVX,
        CONTEXT_MASK_SIGNATURE_OFFLOAD = MLX5DV_CONTEXT_MASK_SIGNATURE_OFFLOAD,
        SIG_TYPE_T10DIF = MLX5DV_SIG_TYPE_T10DIF,
        SIG_TYPE_CRC = MLX5DV_SIG_TYPE_CRC,
        SIG_PROT_CAP_T10DIF = MLX5DV_SIG_PROT_CAP_T10DIF,
        SIG_PROT_CAP_CRC = MLX5DV_SIG_PROT_CAP_CRC,
        T10DIF_CRC = MLX5DV_SIG_T10DIF_CRC,
        T10DIF_CSUM = MLX5DV_SIG_T10DIF_CSUM,
        CRC_TYPE_CRC32 = MLX5DV_SIG_CRC_TYPE_CRC32,
        CRC_TYPE_CRC32C = MLX5DV_SIG_CRC_TYPE_CRC32C,
        CRC_TYPE_CRC64_XP10 = MLX5DV_SIG_CRC_TYPE_CRC64_XP10,
        BLOCK_SIZE_512 = MLX5DV_BLOCK_SIZE_512,
        BLOCK_SIZE_520 = MLX5DV_BLOCK_SIZE_520,
        BLOCK_SIZE_4048 = MLX5DV_BLOCK_SIZE_4048,
        BLOCK_SIZE_4096 = MLX5DV_BLOCK_SIZE_4096,
        BLOCK_SIZE_4160 = MLX5DV_BLOCK_SIZE_4160,
        T10DIF_FLAG_REF_REMAP = MLX5DV_SIG_T10DIF_FLAG_REF_REMAP,
        T10DIF_FLAG_APP_ESCAPE = MLX5DV_SIG_T10DIF_FLAG_APP_ESCAPE,
        T10DIF_FLAG_APP_REF_ESCAPE = MLX5DV_SIG_T10DIF_FLAG_APP_REF_ESCAPE,
        SIG_MASK_T10DIF_GUARD = MLX5DV_SIG_MASK_T10DIF_GUARD,
        SIG_MASK_T10DIF_APPTAG = MLX5DV_SIG_MASK_T10DIF_APPTAG,
        SIG_MASK_T10DIF_REFTAG = MLX5DV_SIG_MASK_T10DIF_REFTAG,
        SIG_BLOCK_ATTR_FLAG_COPY_MASK = MLX5DV_SIG_BLOCK_ATTR_FLAG_COPY_MASK,
        MKEY_CONF_RESET_SIG_ATTR = MLX5DV_MKEY_CONF_FLAG_RESET_SIG_ATTR,
        MKEY_INIT_INDIRECT = MLX5DV_MKEY_INIT_ATTR_FLAGS_INDIRECT,
        MKEY_INIT_BLOCK_SIGNATURE = MLX5DV_MKEY_INIT_ATTR_FLAGS_BLOCK_SIGNATURE,
        MKEY_NO_ERR = MLX5DV_MKEY_NO_ERR,
        MKEY_SIG_BLOCK_BAD_GUARD = MLX5DV_MKEY_SIG_BLOCK_BAD_GUARD,
        MKEY_SIG_BLOCK_BAD_REFTAG = MLX5DV_MKEY_SIG_BLOCK_BAD_REFTAG,
        MKEY_SIG_BLOCK_BAD_APPTAG = MLX5DV_MKEY_SIG_BLOCK_BAD_APPTAG,
    );
    for (name, size, capability) in [
        ("512", ffi::BLOCK_SIZE_512, "MLX5DV_BLOCK_SIZE_CAP_512"),
        ("520", ffi::BLOCK_SIZE_520, "MLX5DV_BLOCK_SIZE_CAP_520"),
        ("4048", ffi::BLOCK_SIZE_4048, "MLX5DV_BLOCK_SIZE_CAP_4048"),
        ("4096", ffi::BLOCK_SIZE_4096, "MLX5DV_BLOCK_SIZE_CAP_4096"),
        ("4160", ffi::BLOCK_SIZE_4160, "MLX5DV_BLOCK_SIZE_CAP_4160"),
        ("CRC", ffi::T10DIF_CRC, "MLX5DV_SIG_T10DIF_BG_CAP_CRC"),
        ("CSUM", ffi::T10DIF_CSUM, "MLX5DV_SIG_T10DIF_BG_CAP_CSUM"),
        ("CRC32", ffi::CRC_TYPE_CRC32, "MLX5DV_SIG_CRC_TYPE_CAP_CRC32"),
        ("CRC32C", ffi::CRC_TYPE_CRC32C, "MLX5DV_SIG_CRC_TYPE_CAP_CRC32C"),
        ("XP10", ffi::CRC_TYPE_CRC64_XP10, "MLX5DV_SIG_CRC_TYPE_CAP_CRC64_XP10"),
    ] {
        assertion(out, &format!("{capability} == 1 << {size}"), &format!("capability {name}"));
    }
    let bytes = ffi::SIG_MASK_T10DIF_APPTAG_BYTE1 | ffi::SIG_MASK_T10DIF_APPTAG_BYTE0;
    assertion(out, &format!("MLX5DV_SIG_MASK_T10DIF_APPTAG == {bytes}"), "bytes of the application tag");
}

fn queue_numbers(out: &mut String) {
    numbers!(
        out,
        QPT_RC = IBV_QPT_RC,
        QP_INIT_ATTR_PD = IBV_QP_INIT_ATTR_PD,
        QP_INIT_ATTR_SEND_OPS_FLAGS = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        QP_EX_WITH_RDMA_WRITE = IBV_QP_EX_WITH_RDMA_WRITE,
        QP_EX_WITH_SEND = IBV_QP_EX_WITH_SEND,
        QP_EX_WITH_RDMA_READ = IBV_QP_EX_WITH_RDMA_READ,
        QP_EX_WITH_LOCAL_INV = IBV_QP_EX_WITH_LOCAL_INV,
        QP_EX_WITH_SEND_WITH_INV = IBV_QP_EX_WITH_SEND_WITH_INV,
        DV_QP_INIT_ATTR_CREATE_FLAGS = MLX5DV_QP_INIT_ATTR_MASK_QP_CREATE_FLAGS,
        DV_QP_INIT_ATTR_SEND_OPS_FLAGS = MLX5DV_QP_INIT_ATTR_MASK_SEND_OPS_FLAGS,
        QP_CREATE_DISABLE_SCATTER_TO_CQE = MLX5DV_QP_CREATE_DISABLE_SCATTER_TO_CQE,
        QP_EX_WITH_MKEY_CONFIGURE = MLX5DV_QP_EX_WITH_MKEY_CONFIGURE,
        SEND_SIGNALED = IBV_SEND_SIGNALED,
        SEND_INLINE = IBV_SEND_INLINE,
        ACCESS_LOCAL_WRITE = IBV_ACCESS_LOCAL_WRITE,
    );
}

/// Prototypes, and the types of the pointers that are called.
fn functions(out: &mut String) {
    let dv = "((struct mlx5dv_qp_ex *)0)->";
    let ex = "((struct ibv_qp_ex *)0)->";
    for (function, returns, arguments) in [
        ("mlx5dv_open_device", "struct ibv_context *", "struct ibv_device *, struct mlx5dv_context_attr *"),
        ("mlx5dv_query_device", "int", "struct ibv_context *, struct mlx5dv_context *"),
        (
            "mlx5dv_create_qp",
            "struct ibv_qp *",
            "struct ibv_context *, struct ibv_qp_init_attr_ex *, struct mlx5dv_qp_init_attr *",
        ),
        ("ibv_qp_to_qp_ex", "struct ibv_qp_ex *", "struct ibv_qp *"),
        ("mlx5dv_qp_ex_from_ibv_qp_ex", "struct mlx5dv_qp_ex *", "struct ibv_qp_ex *"),
        ("mlx5dv_create_mkey", "struct mlx5dv_mkey *", "struct mlx5dv_mkey_init_attr *"),
        ("mlx5dv_destroy_mkey", "int", "struct mlx5dv_mkey *"),
        ("_mlx5dv_mkey_check", "int", "struct mlx5dv_mkey *, struct mlx5dv_mkey_err *, size_t"),
        (&format!("*{ex}wr_start"), "void", "struct ibv_qp_ex *"),
        (&format!("*{ex}wr_complete"), "int", "struct ibv_qp_ex *"),
        (&format!("*{ex}wr_abort"), "void", "struct ibv_qp_ex *"),
        (&format!("*{ex}wr_local_inv"), "void", "struct ibv_qp_ex *, uint32_t"),
        (&format!("*{ex}wr_rdma_read"), "void", "struct ibv_qp_ex *, uint32_t, uint64_t"),
        (&format!("*{ex}wr_rdma_write"), "void", "struct ibv_qp_ex *, uint32_t, uint64_t"),
        (&format!("*{ex}wr_set_sge"), "void", "struct ibv_qp_ex *, uint32_t, uint64_t, uint32_t"),
        (
            &format!("*{dv}wr_mkey_configure"),
            "void",
            "struct mlx5dv_qp_ex *, struct mlx5dv_mkey *, uint8_t, struct mlx5dv_mkey_conf_attr *",
        ),
        (&format!("*{dv}wr_set_mkey_access_flags"), "void", "struct mlx5dv_qp_ex *, uint32_t"),
        (
            &format!("*{dv}wr_set_mkey_layout_list"),
            "void",
            "struct mlx5dv_qp_ex *, uint16_t, const struct ibv_sge *",
        ),
        (
            &format!("*{dv}wr_set_mkey_layout_interleaved"),
            "void",
            "struct mlx5dv_qp_ex *, uint32_t, uint16_t, const struct mlx5dv_mr_interleaved *",
        ),
        (
            &format!("*{dv}wr_set_mkey_sig_block"),
            "void",
            "struct mlx5dv_qp_ex *, const struct mlx5dv_sig_block_attr *",
        ),
    ] {
        let condition = format!("__builtin_types_compatible_p(typeof({function}), {returns}({arguments}))");
        assertion(out, &condition, &format!("type of {function}"));
    }
}

/// What the compiler says of a program; nothing when it is content.
fn compile(source: &str) -> String {
    let mut compiler = Command::new("gcc")
        .args(["-std=gnu11", "-fsyntax-only", "-x", "c", "-"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("gcc is installed");
    let mut input = compiler.stdin.take().expect("a pipe");
    input.write_all(source.as_bytes()).expect("gcc reads the program");
    drop(input);
    let output = compiler.wait_with_output().expect("gcc ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.success(), said.is_empty(), "{said}");
    said
}

#[test]
fn structures_numbers_and_calls_are_those_of_the_header() {
    let program = program();
    assert!(program.lines().count() > 150, "{program}");
    let said = compile(&program);
    assert!(said.is_empty(), "libibverbs-dev has the header; the compiler says:\n{said}");
}

#[test]
fn the_compiler_complains_of_what_is_not_in_its_place() {
    let headers = "#include <stddef.h>\n#include <infiniband/mlx5dv.h>\n";
    for (condition, what) in [
        ("offsetof(struct mlx5dv_mkey, rkey) == 8", "a wrong offset"),
        (
            "__builtin_types_compatible_p(typeof(mlx5dv_destroy_mkey), int(struct mlx5dv_mkey_err *))",
            "a wrong type",
        ),
    ] {
        let mut source = headers.to_owned();
        assertion(&mut source, condition, what);
        assert!(compile(&source).contains(what));
    }
}
