//! Commands on blocks: whether a unit can carry one out, and what then moves where. A pure function, whose result is for
//! whoever moves data.
//!
//! What PROTECT fields ask for is decided by [`t10pi::scsi::decide`]; here is what surrounds it. The standard does not order
//! the checks; here they run: write protection, range, limits, protection. (SBC-4.)

#[cfg(test)]
mod tests;

use t10pi::scsi::{self as pi, ByteCheck, Cdb, Command as Kind, Control, Decision, FieldNeeds, Need};
use t10pi::{Checks, Format, PiContext, PiType, Tags};

use super::cdb::BlockCommand;
use super::lun::Limits;
use super::medium::{Medium, TUPLE_LEN};
use super::mode::ModePages;
use super::sense::{Sense, code};

/// What is done with blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Medium to host.
    Read,
    /// Host to medium.
    Write,
    /// Host to medium, which is read then.
    WriteAndVerify,
    /// Host to medium, whose blocks are compared with the host's then.
    WriteAndCompare,
    /// The medium is read.
    Verify,
    /// The medium's blocks are compared with as many of the host's.
    CompareBlocks,
    /// Each of the medium's blocks is compared with the host's one.
    CompareOne,
    /// Twice as many blocks from the host: user data of the first half are compared with the medium's; when they are equal, the
    /// second half is written. Nobody sees a state between the two.
    CompareAndWrite,
    /// One block from the host to each of the medium's. Its tuple goes on as [`t10pi::scsi::write_same`] says.
    Same {
        /// Blocks that become zero, and whose tuples escape, may be given back.
        give_back: bool,
    },
    /// The medium's blocks become zero, their tuples escape.
    Zero {
        /// They may be given back.
        give_back: bool,
    },
}

/// What is done with the tuples of a command's blocks.
#[derive(Clone, Copy, Debug)]
pub enum Tuples {
    /// Nothing: there are none, they are not checked, or they become those of blocks never written.
    None,
    /// Those of the medium are checked as the context says.
    CheckMedium(PiContext),
    /// Each block of the host's is followed by its own, which is checked as the context says, and kept or compared.
    FromHost(PiContext),
    /// They are made as the context says.
    Generate(PiContext),
}

/// What is done with protection information.
#[derive(Clone, Copy, Debug)]
pub struct Protection {
    /// Check or make.
    pub tuples: Tuples,
    /// Tuples follow each block to the host.
    pub to_host: bool,
    /// Fields in which the host's tuples are compared with the medium's.
    pub compare: Checks,
}

/// What a command on blocks needs.
#[derive(Clone, Copy, Debug)]
pub struct Transfer {
    /// What is done.
    pub work: Work,
    /// First block.
    pub lba: u64,
    /// Blocks, at least 1, all on the medium and within the limits.
    pub blocks: u32,
    /// What is written is durable before the command ends.
    pub durable: bool,
    /// Bytes to the host, with tuples.
    pub to_host: u64,
    /// Bytes from the host, with tuples.
    pub from_host: u64,
    /// Protection.
    pub protection: Protection,
}

impl Transfer {
    /// What a command needs; nothing when it names no blocks, which is no error.
    ///
    /// # Errors
    /// The sense data to end the command with; nothing has been moved then.
    pub fn plan(
        command: &BlockCommand,
        medium: &Medium,
        pages: &ModePages,
        limits: &Limits,
    ) -> Result<Option<Self>, Sense> {
        let fields = &command.fields;
        let work = work(command);
        if work.writes() {
            check_writable(medium, pages)?;
        }
        check_range(fields.lba, u64::from(fields.blocks), medium)?;
        if fields.blocks > limits.of(work) {
            return Err(Sense::in_cdb(command.length_at, None));
        }
        let decision = decide(command, medium, pages)?;
        if fields.blocks == 0 {
            return Ok(None);
        }
        let tuple = if decision.to_host || decision.from_host { u64::from(TUPLE_LEN) } else { 0 };
        let block = u64::from(medium.block_size()) + tuple;
        Ok(Some(Self {
            work,
            lba: fields.lba,
            blocks: fields.blocks,
            durable: work.writes() && (command.fua || work.reads_back() || pages.write_through(medium)),
            to_host: if work == Work::Read { u64::from(fields.blocks) * block } else { 0 },
            from_host: work.blocks_from_host(fields.blocks) * block,
            protection: protection(work, &decision, fields, medium),
        }))
    }
}

impl Work {
    /// Whether the medium changes.
    #[must_use]
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read | Self::Verify | Self::CompareBlocks | Self::CompareOne)
    }

    /// Whether what was written is read from the medium.
    const fn reads_back(self) -> bool {
        matches!(self, Self::WriteAndVerify | Self::WriteAndCompare)
    }

    const fn blocks_from_host(self, blocks: u32) -> u64 {
        match self {
            Self::Read | Self::Verify | Self::Zero { .. } => 0,
            Self::CompareOne | Self::Same { .. } => 1,
            Self::CompareAndWrite => 2 * blocks as u64,
            Self::Write | Self::WriteAndVerify | Self::WriteAndCompare | Self::CompareBlocks => blocks as u64,
        }
    }
}

fn work(command: &BlockCommand) -> Work {
    let give_back = command.unmap;
    match (command.fields.command, command.fields.byte_check) {
        (Kind::Read, _) => Work::Read,
        (Kind::Write, _) => Work::Write,
        (Kind::WriteAndVerify, ByteCheck::Blocks) => Work::WriteAndCompare,
        (Kind::WriteAndVerify, _) => Work::WriteAndVerify,
        (Kind::Verify, ByteCheck::Blocks) => Work::CompareBlocks,
        (Kind::Verify, ByteCheck::OneBlock) => Work::CompareOne,
        (Kind::Verify, _) => Work::Verify,
        (Kind::WriteSame, _) if command.no_data => Work::Zero { give_back },
        (Kind::WriteSame, _) => Work::Same { give_back },
        (Kind::CompareAndWrite, _) => Work::CompareAndWrite,
    }
}

/// Whether the medium, and the control mode page, let a command change blocks.
pub(super) fn check_writable(medium: &Medium, pages: &ModePages) -> Result<(), Sense> {
    if medium.read_only() {
        return Err(Sense::new(code::WRITE_PROTECTED));
    }
    if pages.write_protected() {
        return Err(Sense::new(code::LOGICAL_UNIT_SOFTWARE_WRITE_PROTECTED));
    }
    Ok(())
}

/// Whether blocks are on the medium. No blocks may start right behind the last one.
pub(super) fn check_range(lba: u64, blocks: u64, medium: &Medium) -> Result<(), Sense> {
    match lba.checked_add(blocks) {
        Some(end) if end <= medium.blocks() => Ok(()),
        _ => Err(Sense::new(code::LOGICAL_BLOCK_ADDRESS_OUT_OF_RANGE)),
    }
}

fn decide(command: &BlockCommand, medium: &Medium, pages: &ModePages) -> Result<Decision, Sense> {
    let control = Control {
        pi_type: medium.pi_type(),
        guard_check: true,
        app_check: true,
        ref_check: true,
        no_check_without_protect: pages.no_check_without_protect(),
        app_tag_owner: true,
        reject_unprotected_writes: false,
    };
    pi::decide(&control, &pi::Request::new(&command.fields)).map_err(|refusal| {
        if refusal == pi::Sense::INVALID_FIELD_IN_CDB {
            Sense::in_cdb(command.protect_at(), Some(7))
        } else {
            Sense::new(refusal)
        }
    })
}

fn protection(work: Work, decision: &Decision, fields: &Cdb, medium: &Medium) -> Protection {
    let (to_host, compare) = (decision.to_host, checks(decision.compare));
    let Some((format, pi_type)) = medium.protection() else {
        return Protection { tuples: Tuples::None, to_host, compare };
    };
    let of_medium = checks(decision.medium);
    let tuples = match work {
        Work::Zero { .. } => Tuples::None,
        _ if decision.from_host => {
            Tuples::FromHost(context(format, *pi_type, checks(decision.data_out), fields))
        }
        _ if work.writes() => Tuples::Generate(pi::generate_context(format, *pi_type, fields.lba)),
        _ if of_medium == Checks::NONE => Tuples::None,
        _ => Tuples::CheckMedium(context(format, *pi_type, of_medium, fields)),
    };
    Protection { tuples, to_host, compare }
}

/// What is checked; what may be is.
fn checks(needs: FieldNeeds) -> Checks {
    Checks {
        guard: needs.guard != Need::No,
        app_tag: needs.app_tag != Need::No,
        storage_tag: false,
        ref_tag: needs.ref_tag != Need::No,
    }
}

fn context(format: &Format, pi_type: PiType, checks: Checks, fields: &Cdb) -> PiContext {
    let tags = match fields.long {
        Some(long) => Tags {
            app_tag: long.app_tag,
            app_tag_mask: long.app_tag_mask,
            storage_tag: 0,
            ref_tag: u64::from(long.ref_tag),
        },
        // Type 2 checks no reference tag then, and nobody knows the application tag.
        None => Tags { ref_tag: fields.lba, ..Tags::default() },
    };
    PiContext::new(format, pi_type, checks, tags).expect("there is no storage tag to be too wide")
}
