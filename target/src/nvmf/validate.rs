//! Whether a namespace can carry out an I/O command, and what then moves where: a pure function from a command and
//! a view of the namespace to a status or an [`IoPlan`].
//!
//! What protection information asks for is decided by [`t10pi::nvme`]; here is what surrounds it. Never moves data. NVM
//! 3.2 and 5.2. The standard does not order the checks; here they run: read only, LBA range, transfer limits, protection
//! information, SGL length.

#[cfg(test)]
mod tests;

use t10pi::nvme::{self, Action, ExtendedFormats, Layout, Opcode, RwFields, decide};
use t10pi::{Format, PiContext, PiType};

use super::command::{BlockRange, IoCommand, IoOp};
use super::wire::sqe::DsmRange;
use super::wire::status::Status;

/// What validation needs to know of a namespace: a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceView {
    /// Size in blocks.
    pub blocks: u64,
    /// Bytes of user data in a block.
    pub block_size: u32,
    /// Bytes of metadata of a block; 0 = none.
    pub metadata_size: u16,
    /// Format and type of the protection; `None` is type 0, whose metadata is opaque.
    pub protection: Option<(Format, PiType)>,
    /// Refuses commands that change blocks.
    pub read_only: bool,
}

impl NamespaceView {
    /// The format, over fabrics, where metadata that is transferred follows its block.
    const fn nvme(&self) -> nvme::Namespace {
        match self.protection {
            Some((format, pi_type)) => nvme::Namespace::protected(format, pi_type, Layout::Extended),
            None => nvme::Namespace::plain(self.block_size, self.metadata_size, Layout::Extended),
        }
    }
}

/// Limits of the controller that Identify states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoLimits {
    /// User data of one command in bytes (MDTS, VSL and WZSL; CTRATT.MEM says that metadata does not count).
    pub max_data: u32,
    /// Whether the host understands extended formats (Host Behavior Support, LBAFEE).
    pub extended_formats: ExtendedFormats,
}

/// How the blocks of a command appear in its data pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireForm {
    /// Nothing is transferred.
    None,
    /// User data alone.
    Data,
    /// Each block followed by its metadata.
    Interleaved,
}

/// What is done with the protection information of a command's blocks.
#[derive(Clone, Copy, Debug)]
pub enum PiAction {
    /// Nothing: the namespace has none. Metadata, if any, is moved as it is.
    None,
    /// Wire and media carry it: verified as the context says, moved unchanged. Also Compare and Verify.
    Pass(PiContext),
    /// A write without it on the wire: generated ([`WireForm::Data`]), or, with more metadata than the tuple,
    /// replaced in what the host sent ([`WireForm::Interleaved`]). Nothing of the host's is checked.
    Insert(PiContext),
    /// A read without it on the wire: verified and left out.
    Strip(PiContext),
    /// Write Zeroes with PRACT = 0: the metadata becomes zero, tuple included.
    Zero,
}

/// What is done with a range of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockOp {
    /// Media to host.
    Read,
    /// Host to media.
    Write,
    /// Host's data against the media's.
    Compare,
    /// The media's protection information.
    Verify,
    /// Zeroes to media.
    WriteZeroes,
    /// Write Zeroes with DEAC: the blocks become as never written, which reads as zeroes.
    Deallocate,
}

/// The plan of a command on one range of blocks.
#[derive(Clone, Copy, Debug)]
pub struct BlockPlan {
    /// What is done.
    pub op: BlockOp,
    /// Starting LBA.
    pub slba: u64,
    /// Blocks, 1 to 65536; all within the namespace.
    pub blocks: u32,
    /// Durable before completion.
    pub fua: bool,
    /// User data of the blocks in bytes.
    pub data_len: u32,
    /// Metadata of the blocks in bytes.
    pub metadata_len: u32,
    /// What the data pointer carries.
    pub wire: WireForm,
    /// Its length in bytes; the SGL has exactly this.
    pub wire_len: u32,
    /// Protection.
    pub pi: PiAction,
}

/// What a command needs.
#[derive(Clone, Copy, Debug)]
pub enum IoPlan {
    /// Make completed writes durable.
    Flush,
    /// One range of blocks.
    Blocks(BlockPlan),
    /// Dataset Management: fetch the range list, then [`check_dsm_range`] each entry.
    DatasetManagement {
        /// Ranges, 1 to 256.
        ranges: u16,
        /// Bytes to fetch; the SGL has at least this many.
        list_len: u32,
        /// Deallocate them; otherwise the ranges are hints and the command has no effect.
        deallocate: bool,
    },
}

/// Decides whether `command` can be carried out on a namespace, and what it needs. `sgl_len` are the bytes that its SGL
/// describes: [`DataPointer::length`](super::command::DataPointer::length), or
/// [`SglList::length`](super::command::SglList::length).
///
/// # Errors
/// The status to complete the command with; nothing has been moved then.
pub fn validate(
    command: &IoCommand,
    sgl_len: u32,
    ns: &NamespaceView,
    limits: &IoLimits,
) -> Result<IoPlan, Status> {
    let (op, range) = match &command.op {
        IoOp::Flush => {
            ns.nvme().check_consent(limits.extended_formats)?;
            return Ok(IoPlan::Flush);
        }
        IoOp::DatasetManagement { ranges, deallocate } => {
            ns.nvme().check_consent(limits.extended_formats)?;
            if ns.read_only && *deallocate {
                return Err(Status::NAMESPACE_WRITE_PROTECTED);
            }
            let list_len = u32::from(*ranges) * DSM_RANGE_LEN;
            // Linux always sends room for 256 ranges, so a longer list is not an error.
            if sgl_len < list_len {
                return Err(Status::SGL_DATA_LENGTH_INVALID);
            }
            return Ok(IoPlan::DatasetManagement { ranges: *ranges, list_len, deallocate: *deallocate });
        }
        IoOp::Read(range) => (BlockOp::Read, range),
        IoOp::Write(range) => (BlockOp::Write, range),
        IoOp::Compare(range) => (BlockOp::Compare, range),
        IoOp::Verify(range) => (BlockOp::Verify, range),
        IoOp::WriteZeroes { range, deallocate: false } => (BlockOp::WriteZeroes, range),
        IoOp::WriteZeroes { range, deallocate: true } => (BlockOp::Deallocate, range),
    };
    let changes = matches!(op, BlockOp::Write | BlockOp::WriteZeroes | BlockOp::Deallocate);
    if ns.read_only && changes {
        return Err(Status::NAMESPACE_WRITE_PROTECTED);
    }
    check_range(range.slba, u64::from(range.blocks), ns)?;
    let data_len = u64::from(range.blocks) * u64::from(ns.block_size);
    if data_len > u64::from(limits.max_data) {
        return Err(Status::INVALID_FIELD);
    }
    let data_len = u32::try_from(data_len).expect("within the limit, which is a u32");
    let metadata_len = range.blocks * u32::from(ns.metadata_size);
    let (wire_len, pi) = protection(command, op, range, ns, limits)?;
    if u64::from(sgl_len) != wire_len {
        return Err(Status::SGL_DATA_LENGTH_INVALID);
    }
    let wire_len = sgl_len;
    let wire = match wire_len {
        0 => WireForm::None,
        length if length == data_len => WireForm::Data,
        _ => WireForm::Interleaved,
    };
    let (slba, blocks, fua) = (range.slba, range.blocks, range.fua);
    Ok(IoPlan::Blocks(BlockPlan { op, slba, blocks, fua, data_len, metadata_len, wire, wire_len, pi }))
}

/// Bytes of one entry of a range list.
const DSM_RANGE_LEN: u32 = 16;
const _: () = assert!(size_of::<DsmRange>() == 16);

/// Checks one entry of a fetched range list. An empty range is `None`: it names no blocks and is no error.
///
/// # Errors
/// `LBA_OUT_OF_RANGE`.
pub fn check_dsm_range(range: &DsmRange, ns: &NamespaceView) -> Result<Option<(u64, u32)>, Status> {
    let (slba, blocks) = (range.slba.get(), range.nlb.get());
    check_range(slba, u64::from(blocks), ns)?;
    Ok((blocks != 0).then_some((slba, blocks)))
}

fn check_range(slba: u64, blocks: u64, ns: &NamespaceView) -> Result<(), Status> {
    match slba.checked_add(blocks) {
        Some(end) if end <= ns.blocks => Ok(()),
        _ => Err(Status::LBA_OUT_OF_RANGE),
    }
}

/// What happens to the protection information: what [`decide`] says, with what it takes to do it. Also the bytes that
/// the data pointer holds.
fn protection(
    command: &IoCommand,
    op: BlockOp,
    range: &BlockRange,
    ns: &NamespaceView,
    limits: &IoLimits,
) -> Result<(u64, PiAction), Status> {
    let fields = rw_fields(command, op, range);
    let decision = decide(&ns.nvme(), &fields, limits.extended_formats)?;
    let pi = match (decision.action, &ns.protection) {
        // Blocks that become as never written take their tuples from that.
        (Action::None, _) | (_, None) => PiAction::None,
        _ if op == BlockOp::Deallocate => PiAction::None,
        (Action::Zero, _) => PiAction::Zero,
        (action, Some((format, pi_type))) => {
            let context = PiContext::new(format, *pi_type, fields.checks, fields.tags(format))
                .expect("tags unpacked by a format fit into it");
            match action {
                Action::Insert | Action::Replace | Action::GenerateZeroes => PiAction::Insert(context),
                Action::CheckAndStrip => PiAction::Strip(context),
                _ => PiAction::Pass(context),
            }
        }
    };
    Ok((decision.data_bytes, pi))
}

fn rw_fields(command: &IoCommand, op: BlockOp, range: &BlockRange) -> RwFields {
    RwFields {
        opcode: match op {
            BlockOp::Read => Opcode::Read,
            BlockOp::Write => Opcode::Write,
            BlockOp::Compare => Opcode::Compare,
            BlockOp::Verify => Opcode::Verify,
            BlockOp::WriteZeroes | BlockOp::Deallocate => Opcode::WriteZeroes,
        },
        cid: command.cid,
        nsid: command.nsid,
        slba: range.slba,
        blocks: range.blocks,
        fua: range.fua,
        lr: range.limited_retry,
        deac: op == BlockOp::Deallocate,
        pract: range.pi.pract,
        checks: range.pi.checks,
        app_tag: range.pi.app_tag,
        app_tag_mask: range.pi.app_tag_mask,
        command_tags: range.pi.command_tags,
    }
}
