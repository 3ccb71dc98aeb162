//! The suite's commands: what they do to its blocks, as NVMe has it.

use intact::nvmf::command::{BlockRange, IoOp, PiFields};
use t10pi::CommandTags;

use super::damage::{BLOCKS, SLBA};
use super::format::Format;
use super::oracle::{Checks, Field, Tags};

/// What a command is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Read,
    Write,
    Compare,
    Verify,
}

/// Whether the target makes or takes off tuples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Pass,
    Act,
}

/// Where a Write has its data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    Fetched,
    InCapsule,
}

/// A command on the blocks of the suite, and the bytes that it moves. A Write or Compare has `given` bytes.
pub(crate) fn io_op(
    format: &Format,
    op: Op,
    action: Action,
    checks: Checks,
    tags: &Tags,
    given: usize,
) -> (IoOp, u32) {
    let pi = PiFields {
        pract: action == Action::Act,
        checks: t10pi::Checks {
            guard: checks.has(Field::Guard),
            app_tag: checks.has(Field::App),
            storage_tag: checks.has(Field::Storage),
            ref_tag: checks.has(Field::Ref),
        },
        app_tag: tags.app,
        app_tag_mask: tags.app_mask,
        command_tags: command_tags(format, tags),
    };
    let blocks = u32::try_from(BLOCKS).expect("a few");
    let range = BlockRange { slba: SLBA, blocks, fua: false, limited_retry: false, pi };
    let stripped = action == Action::Act && format.leading() == 0;
    let each = if stripped { format.block } else { format.stride() };
    let (op, length) = match op {
        Op::Read => (IoOp::Read(range), BLOCKS * each),
        Op::Write => (IoOp::Write(range), given),
        Op::Compare => (IoOp::Compare(range), given),
        Op::Verify => (IoOp::Verify(range), 0),
    };
    (op, u32::try_from(length).expect("a few blocks"))
}

/// Storage and reference tag as a command has them: right-aligned in CDW2, CDW3 and CDW14.
fn command_tags(format: &Format, tags: &Tags) -> CommandTags {
    let Some(protection) = &format.protection else { return CommandTags::default() };
    let space = protection.space(tags.storage, tags.first_ref);
    let word = |value: u128| u32::try_from(value & 0xffff_ffff).expect("32 bits");
    CommandTags { cdw2: word(space >> 64 & 0xffff), cdw3: word(space >> 32), cdw14: word(space) }
}
