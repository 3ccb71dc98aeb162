//! What a controller does with the protection information of one command.
//!
//! The standard does not order its reasons to refuse against each other; here: an extended format that the host does
//! not know, the rules of the command, the reference tag against the LBA. Without protection nothing is refused.
//! (NVM Command Set 3.2, 5.3.2, 5.3.3.)

use super::namespace::{ExtendedFormats, Layout, Namespace};
use super::sqe::{Opcode, RwFields};
use super::status::Status;
use crate::checks::{Checks, PiType};

/// What is done to the protection information of a command's blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing: the namespace has none. Metadata, if any, is opaque.
    None,
    /// Write: what the host sends is checked and stored. Compare, Verify: checked.
    Check,
    /// Write: generated, with none from the host.
    Insert,
    /// Write: the host's metadata is stored with the tuple replaced by a generated one; nothing of it is checked.
    Replace,
    /// Read: checked, then left out.
    CheckAndStrip,
    /// Read: checked, and sent with the data.
    CheckAndPass,
    /// Write Zeroes: the tuple becomes zero too.
    Zero,
    /// Write Zeroes: generated over zeroes.
    GenerateZeroes,
}

/// What a command does to protection information, and how much it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What is done.
    pub action: Action,
    /// Bytes that the data pointer holds.
    pub data_bytes: u64,
    /// Bytes that the metadata pointer holds.
    pub metadata_bytes: u64,
}

/// Decides what `command` does on `namespace`.
///
/// # Errors
/// The status to complete the command with, before anything has moved.
pub fn decide(
    namespace: &Namespace,
    command: &RwFields,
    extended_formats: ExtendedFormats,
) -> Result<Decision, Status> {
    let action = action(namespace, command, extended_formats)?;
    let moves_data = matches!(command.opcode, Opcode::Read | Opcode::Write | Opcode::Compare);
    let moves_metadata = moves_data && !matches!(action, Action::Insert | Action::CheckAndStrip);
    let blocks = u64::from(command.blocks);
    let bytes = |moved: bool, size: u32| if moved { blocks * u64::from(size) } else { 0 };
    let data = bytes(moves_data, namespace.block_size());
    let metadata = bytes(moves_metadata, namespace.metadata_size());
    Ok(match namespace.layout() {
        Layout::Extended => Decision { action, data_bytes: data + metadata, metadata_bytes: 0 },
        Layout::Separate => Decision { action, data_bytes: data, metadata_bytes: metadata },
    })
}

fn action(
    namespace: &Namespace,
    command: &RwFields,
    extended_formats: ExtendedFormats,
) -> Result<Action, Status> {
    namespace.check_consent(extended_formats)?;
    let Some((format, pi_type)) = namespace.protection() else { return Ok(Action::None) };
    let tuple_only = namespace.is_tuple_only();
    let action = match (command.opcode, command.pract) {
        (Opcode::Write, false) | (Opcode::Compare | Opcode::Verify, false) => Action::Check,
        (Opcode::Write, true) if tuple_only => Action::Insert,
        (Opcode::Write, true) => Action::Replace,
        (Opcode::Read, true) if tuple_only => Action::CheckAndStrip,
        (Opcode::Read, _) => Action::CheckAndPass,
        (Opcode::Verify, true) => return Err(Status::INVALID_FIELD),
        // No code is named for these two.
        (Opcode::Compare, true) => return Err(Status::INVALID_PROTECTION_INFORMATION),
        (Opcode::WriteZeroes, _) if command.checks != Checks::NONE => {
            return Err(Status::INVALID_PROTECTION_INFORMATION);
        }
        (Opcode::WriteZeroes, false) => Action::Zero,
        (Opcode::WriteZeroes, true) => Action::GenerateZeroes,
        (Opcode::Other(_), _) => return Ok(Action::None),
    };
    let ref_tag = command.tags(format).ref_tag;
    let wrong_ref_tag = *pi_type == PiType::Type1
        && command.checks.ref_tag
        && format.ref_tag_bits() > 0
        && ref_tag != format.ref_tag_of(command.slba);
    if wrong_ref_tag { Err(Status::INVALID_PROTECTION_INFORMATION) } else { Ok(action) }
}
