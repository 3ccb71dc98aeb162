//! The tables of the PROTECT fields: what is transferred, checked and compared. (SBC-4: READ table 70, WRITE table
//! 135, VERIFY tables 125 to 128.)
//!
//! The standard does not order its reasons to refuse against each other: [`refusals`] lists all that apply, in the
//! order in which this crate prefers them.

use super::cdb::{ByteCheck, Cdb, Command};
use super::sense::Sense;
use crate::checks::PiType;

/// What inquiry, mode pages and format say of a logical unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Type of protection; `None` is type 0.
    pub pi_type: Option<PiType>,
    /// `GRD_CHK`: guards are checked on reads.
    pub guard_check: bool,
    /// `APP_CHK`: application tags are checked on reads.
    pub app_check: bool,
    /// `REF_CHK`: reference tags are checked on reads.
    pub ref_check: bool,
    /// DPICZ: a read with code 000b checks nothing.
    pub no_check_without_protect: bool,
    /// ATO: the application tag is the application's.
    pub app_tag_owner: bool,
    /// RWWP: writes without protection information are refused, and application tags of writes must be checked.
    pub reject_unprotected_writes: bool,
}

/// What a command asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The command.
    pub command: Command,
    /// The PROTECT field, 0 to 7.
    pub protect: u8,
    /// Whether the CDB has 32 bytes.
    pub long_cdb: bool,
    /// BYTCHK, of VERIFY.
    pub byte_check: ByteCheck,
    /// Whether the unit knows which application tags to expect: from a CDB of 32 bytes with ATO = 1, from the
    /// Application Tag mode page, or otherwise.
    pub app_tag_known: bool,
}

impl Request {
    /// What `cdb` asks for, if the application tag is known from nowhere but the CDB.
    pub const fn new(cdb: &Cdb) -> Self {
        Self {
            command: cdb.command,
            protect: cdb.protect,
            long_cdb: cdb.long.is_some(),
            byte_check: cdb.byte_check,
            app_tag_known: cdb.long.is_some(),
        }
    }

    /// Whether it writes to the medium.
    const fn writes(&self) -> bool {
        !matches!(self.command, Command::Read | Command::Verify)
    }

    /// Whether it is a VERIFY with data from the host.
    fn compares(&self) -> bool {
        self.command == Command::Verify && self.byte_check != ByteCheck::None
    }
}

/// Whether a field is checked or compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// It is not.
    #[default]
    No,
    /// Both conforms.
    May,
    /// It is.
    Shall,
}

impl Need {
    const fn shall_if(condition: bool) -> Self {
        if condition { Self::Shall } else { Self::No }
    }

    const fn may_if(condition: bool) -> Self {
        if condition { Self::May } else { Self::No }
    }
}

/// What is done to each field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FieldNeeds {
    /// The guard.
    pub guard: Need,
    /// The application tag.
    pub app_tag: Need,
    /// The reference tag.
    pub ref_tag: Need,
}

/// What a command transfers, checks and compares.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decision {
    /// Protection information goes to the host.
    pub to_host: bool,
    /// Protection information comes from the host.
    pub from_host: bool,
    /// Checks of what the medium has.
    pub medium: FieldNeeds,
    /// Checks of what the host sends.
    pub data_out: FieldNeeds,
    /// Comparisons of the host's with the medium's.
    pub compare: FieldNeeds,
}

/// Decides what a command does.
///
/// # Errors
/// The first of [`refusals`]; nothing has moved then.
pub fn decide(control: &Control, request: &Request) -> Result<Decision, Sense> {
    if let Some(sense) = refusals(control, request).next() {
        return Err(sense);
    }
    let Some(pi_type) = control.pi_type else { return Ok(Decision::default()) };
    let sent = request.protect != 0;
    Ok(if request.writes() {
        Decision { from_host: sent, data_out: data_out(control, request, pi_type), ..Decision::default() }
    } else if request.compares() && sent {
        Decision {
            from_host: true,
            data_out: data_out(control, request, pi_type),
            compare: compare(control, request, pi_type),
            ..Decision::default()
        }
    } else {
        Decision {
            to_host: sent && request.command == Command::Read,
            medium: medium(control, request, pi_type),
            ..Decision::default()
        }
    })
}

/// All reasons to refuse a command.
pub fn refusals(control: &Control, request: &Request) -> impl Iterator<Item = Sense> {
    let type_2 = control.pi_type == Some(PiType::Type2);
    let protected = request.protect != 0;
    let reserved_byte_check = request.command == Command::Verify && request.byte_check == ByteCheck::Reserved;
    let unprotected_write =
        request.writes() && !protected && control.pi_type.is_some() && control.reject_unprotected_writes;
    [
        (request.long_cdb && !type_2, Sense::INVALID_OPERATION_CODE),
        (reserved_byte_check, Sense::INVALID_FIELD_IN_CDB),
        (request.protect > 5, Sense::INVALID_FIELD_IN_CDB),
        (protected && control.pi_type.is_none(), Sense::INVALID_FIELD_IN_CDB),
        (type_2 && protected && !request.long_cdb, Sense::INVALID_OPERATION_CODE),
        (unprotected_write, Sense::INVALID_FIELD_IN_CDB),
    ]
    .into_iter()
    .filter_map(|(applies, sense)| applies.then_some(sense))
}

/// Checks of what a READ or VERIFY finds on the medium.
fn medium(control: &Control, request: &Request, pi_type: PiType) -> FieldNeeds {
    let (guard, tags) = match request.protect {
        0 => (!control.no_check_without_protect, !control.no_check_without_protect),
        1 | 5 => (true, true),
        2 => (false, true),
        4 => (true, false),
        _ => (false, false),
    };
    let ref_tag_known = match pi_type {
        PiType::Type1 => true,
        PiType::Type2 => request.long_cdb,
        PiType::Type3 => false,
    };
    FieldNeeds {
        guard: Need::shall_if(guard && control.guard_check),
        app_tag: Need::shall_if(tags && control.app_check && request.app_tag_known),
        ref_tag: Need::shall_if(tags && control.ref_check && ref_tag_known),
    }
}

/// Checks of what the host sends with a WRITE, or a VERIFY that compares.
fn data_out(control: &Control, request: &Request, pi_type: PiType) -> FieldNeeds {
    let counts = pi_type != PiType::Type3;
    let app_tag = if !(control.app_tag_owner && request.app_tag_known) {
        Need::No
    } else if control.reject_unprotected_writes && request.writes() {
        Need::Shall
    } else {
        Need::May
    };
    match request.protect {
        1 => FieldNeeds { guard: Need::Shall, app_tag, ref_tag: Need::shall_if(counts) },
        2 => FieldNeeds { guard: Need::No, app_tag, ref_tag: Need::may_if(counts) },
        4 => FieldNeeds { guard: Need::Shall, ..FieldNeeds::default() },
        5 => FieldNeeds { guard: Need::Shall, app_tag, ref_tag: Need::may_if(counts) },
        _ => FieldNeeds::default(),
    }
}

/// Comparisons that a VERIFY makes.
fn compare(control: &Control, request: &Request, pi_type: PiType) -> FieldNeeds {
    let ref_tag = request.protect != 5 && (pi_type != PiType::Type3 || control.app_tag_owner);
    FieldNeeds {
        guard: Need::shall_if(request.protect != 2),
        app_tag: Need::shall_if(control.app_tag_owner && request.app_tag_known),
        ref_tag: Need::shall_if(ref_tag),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(command: Command, protect: u8) -> Request {
        let byte_check = ByteCheck::None;
        Request { command, protect, long_cdb: false, byte_check, app_tag_known: false }
    }

    #[test]
    fn a_write_without_protection_is_refused_where_the_unit_says_so() {
        let control =
            Control { pi_type: Some(PiType::Type1), reject_unprotected_writes: true, ..Control::default() };
        for command in [Command::Write, Command::WriteAndVerify, Command::WriteSame, Command::CompareAndWrite]
        {
            assert_eq!(decide(&control, &request(command, 0)), Err(Sense::INVALID_FIELD_IN_CDB));
        }
        assert_eq!(decide(&control, &request(Command::Read, 0)), Ok(Decision::default()));
    }

    #[test]
    fn all_reasons_to_refuse_are_listed() {
        let control = Control::default();
        let all: Vec<Sense> =
            refusals(&control, &Request { long_cdb: true, ..request(Command::Read, 6) }).collect();
        let field = Sense::INVALID_FIELD_IN_CDB;
        assert_eq!(all, [Sense::INVALID_OPERATION_CODE, field, field]);
    }
}
