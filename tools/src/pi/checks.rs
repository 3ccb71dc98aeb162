//! What of an image's blocks is compared, as flags.

use clap::{Args, ValueEnum};
use t10pi::{Checks, Field, Format, PiContext, PiType};

use super::error::PiError;
use super::format::{TagArgs, parse_tag};

/// A field of the tuple that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CheckName {
    /// The checksum
    Guard,
    /// The application tag, with --app-tag
    App,
    /// The storage tag, with --storage-tag
    Storage,
    /// The reference tag; of types 1 and 2
    Ref,
    /// Nothing
    None,
}

/// What of an image's blocks is checked.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Checks")]
pub struct CheckArgs {
    /// Fields that are checked (default: guard, reference tag, and the tags that are given). Damage of an application tag
    /// is found with --app-tag alone, damage of a storage tag with --storage-tag: no image says what they should be
    #[arg(long, value_enum, value_delimiter = ',')]
    pub checks: Vec<CheckName>,
    /// Bits of the application tag that are compared (default: all)
    #[arg(long, value_parser = parse_tag)]
    pub app_tag_mask: Option<u16>,
}

impl CheckArgs {
    /// Whether any of the flags is given.
    pub(super) fn is_given(&self) -> bool {
        !self.checks.is_empty() || self.app_tag_mask.is_some()
    }

    /// What is compared of blocks with these tags.
    pub(super) fn comparison(&self, tags: &TagArgs) -> Result<Comparison, PiError> {
        let has = |name| self.checks.contains(&name);
        let lacks =
            |what: &str| PiError::Flags(format!("--checks {what} needs --{what}-tag to compare with"));
        if has(CheckName::App) && tags.app_tag.is_none() {
            return Err(lacks("app"));
        }
        if has(CheckName::Storage) && tags.storage_tag.is_none() {
            return Err(lacks("storage"));
        }
        if has(CheckName::None) && self.checks.len() > 1 {
            return Err(PiError::Flags("--checks none goes with nothing else".to_owned()));
        }
        let checks = if self.checks.is_empty() {
            Checks {
                guard: true,
                app_tag: tags.app_tag.is_some(),
                storage_tag: tags.storage_tag.is_some(),
                ref_tag: true,
            }
        } else {
            Checks {
                guard: has(CheckName::Guard),
                app_tag: has(CheckName::App),
                storage_tag: has(CheckName::Storage),
                ref_tag: has(CheckName::Ref),
            }
        };
        if self.app_tag_mask.is_some() && !checks.app_tag {
            let why = "--app-tag-mask needs --app-tag, and a check of it: the mask is of that comparison";
            return Err(PiError::Flags(why.to_owned()));
        }
        Ok(Comparison { checks, app_tag_mask: self.app_tag_mask.unwrap_or(0xFFFF) })
    }
}

/// What is compared.
#[derive(Clone, Copy, Debug)]
pub(super) struct Comparison {
    checks: Checks,
    app_tag_mask: u16,
}

impl Comparison {
    /// The context of blocks from `lba` on.
    pub(super) fn context(
        &self,
        tags: &TagArgs,
        format: &Format,
        pi_type: PiType,
        lba: u64,
    ) -> Result<PiContext, PiError> {
        tags.context(format, pi_type, self.checks, self.app_tag_mask, lba)
    }

    /// The fields in which a difference would be seen.
    pub(super) fn fields(&self, format: &Format, pi_type: PiType) -> Vec<Field> {
        let Checks { guard, app_tag, storage_tag, ref_tag } = self.checks;
        let fields = [
            (Field::Guard, guard),
            (Field::AppTag, app_tag && self.app_tag_mask != 0),
            (Field::StorageTag, storage_tag && format.storage_tag_mask() != 0),
            (Field::RefTag, ref_tag && pi_type != PiType::Type3 && format.ref_tag_bits() > 0),
        ];
        fields.into_iter().filter(|(_, seen)| *seen).map(|(field, _)| field).collect()
    }
}
