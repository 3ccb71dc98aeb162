//! `[[volume]]`: name, backend, geometry, protection and identity of logical disks.

use std::path::{Path, PathBuf};

use t10pi::{Format, Guard, PiType};
use uuid::Uuid;

use super::files::{FileState, Probe};
use super::nqn::Serial;
use super::reader::{Field, Section};
use crate::block::{BackendConfig, Layout, Protection, pi_path};
use crate::reservation_store::pr_paths;

/// Longest name, in bytes.
const NAME_MAX: usize = 64;

/// A logical disk that namespaces present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Volume {
    /// Unique; 1 to 64 ASCII letters, digits, `.`, `_`, `-`.
    pub name: String,
    /// What stores it.
    pub backend: BackendConfig,
    /// Bytes of data in a block: 512 or 4096.
    pub block_size: u32,
    /// Absent: none.
    pub protection: Option<Protection>,
    /// Refuses writes.
    pub read_only: bool,
    /// Absent: derived from the name of what presents it first ([`super::Config::home`]) and its own.
    pub uuid: Option<Uuid>,
    /// Absent: derived likewise.
    pub serial: Option<Serial>,
}

/// A volume as read, with the places that later checks report.
#[derive(Debug)]
pub(super) struct Draft<'d> {
    pub(super) name: Field<'d, &'d str>,
    file: Option<Field<'d, PathBuf>>,
    volume: Volume,
}

impl<'d> Draft<'d> {
    /// Reads one `[[volume]]`; relative files are of `folder`.
    pub(super) fn read(mut section: Section<'d, '_>, folder: &Path, probe: Probe<'_>) -> Option<Self> {
        let name = section.string("name").and_then(|field| field.parse(name));
        let name = section.require(name, "name", "name = \"disk0\"");
        let memory = section.size("memory");
        let file = section.string("file").and_then(|field| {
            field.parse(|path| match path {
                "" => Err("the path is empty"),
                path if path.contains('\0') => Err("the path has a NUL character"),
                path => Ok(folder.join(path)),
            })
        });
        let null = section.size("null");
        let size = section.size("size");
        let block_size = section.integer("block_size", 512..=4096).and_then(|field| {
            field.parse(|bytes| match bytes {
                512 => Ok(512),
                4096 => Ok(4096),
                other => Err(format!("must be 512 or 4096, and is {other}")),
            })
        });
        let block_size = block_size.map_or(4096, |field| field.value);
        let protection = section.section("protection").and_then(|section| protection(section, block_size));
        let read_only = section.boolean("read_only").is_some_and(|field| field.value);
        let uuid = section.string("uuid").and_then(|field| field.parse(uuid)).map(|field| field.value);
        let serial =
            section.string("serial").and_then(|field| field.parse(Serial::parse)).map(|field| field.value);

        let whole_blocks = |field: &Field<'_, u64>| {
            if !field.value.is_multiple_of(u64::from(block_size)) {
                field
                    .report(format!("{} bytes are no whole number of {block_size}-byte blocks", field.value));
            }
        };
        [&memory, &null, &size].into_iter().flatten().for_each(whole_blocks);
        if file.is_none()
            && !section.has("file")
            && let Some(size) = &size
        {
            size.report("only a file has a `size`; memory and null say theirs themselves");
        }
        let backends = ["memory", "file", "null"].into_iter().filter(|key| section.has(key)).count();
        let backend = match (backends, memory, &file, null) {
            (0, ..) => {
                section.report("it needs a backend: memory = \"256MiB\", file = \"PATH\" or null = \"1TiB\"");
                None
            }
            (2.., ..) => {
                section.report("it has more than one backend; keep one of memory, file, null");
                None
            }
            (_, Some(size), None, None) => Some(BackendConfig::Memory { size: size.value }),
            (_, None, None, Some(size)) => Some(BackendConfig::Null { size: size.value }),
            (_, None, Some(file), None) => {
                check_file(file, size.as_ref(), read_only, probe);
                Some(BackendConfig::File { path: file.value.clone(), size: size.map(|field| field.value) })
            }
            _ => None,
        };
        section.finish();
        let name = name?;
        // A backend that can't be used was reported; what presents the volume is not wrong for it.
        let backend = backend.unwrap_or(BackendConfig::Null { size: 0 });
        let volume =
            Volume { name: name.value.to_owned(), backend, block_size, protection, read_only, uuid, serial };
        Some(Self { name, file, volume })
    }

    /// The files that the volume uses, or may make.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let Some(file) = &self.file else { return Vec::new() };
        let separate = self.volume.protection.is_some_and(|p| p.layout == Layout::Separate);
        let pi = separate.then(|| pi_path(&file.value));
        std::iter::once(file.value.clone()).chain(pi).chain(pr_paths(&file.value)).collect()
    }

    /// Notes that the volume's file is wrong.
    pub(super) fn report_file(&self, message: impl Into<String>) {
        if let Some(file) = &self.file {
            file.report(message);
        }
    }

    /// The volume.
    pub(super) fn finish(self) -> Volume {
        self.volume
    }

    /// How its blocks are protected.
    pub(super) fn protection(&self) -> Option<&Protection> {
        self.volume.protection.as_ref()
    }

    /// Bytes of data in a block.
    pub(super) fn block_size(&self) -> u32 {
        self.volume.block_size
    }

    /// The UUID, if one is configured.
    pub(super) fn uuid(&self) -> Option<Uuid> {
        self.volume.uuid
    }

    /// The serial number, if one is configured.
    pub(super) fn serial(&self) -> Option<&Serial> {
        self.volume.serial.as_ref()
    }
}

/// `None` is type 0, or an error that was noted.
fn protection(mut section: Section<'_, '_>, block_size: u32) -> Option<Protection> {
    let pi_type = section.integer("type", 0..=3);
    let pi_type = section.require(pi_type, "type", "type = 1");
    let guards = [Guard::Crc16, Guard::Crc32c, Guard::Crc64].map(|guard| (guard.name(), guard));
    let guard = section.choice("guard", &guards);
    let metadata_size = section.integer("metadata_size", 8..=128).and_then(|field| {
        field.parse(|bytes| match u16::try_from(bytes) {
            Ok(bytes) if bytes % 8 == 0 => Ok(bytes),
            _ => Err(format!("must be a multiple of 8, and is {bytes}")),
        })
    });
    let layout =
        section.choice("layout", &[("separate", Layout::Separate), ("interleaved", Layout::Interleaved)]);
    let bits = section.integer("storage_tag_bits", 0..=64).and_then(|field| field.parse(u8::try_from));
    let mask = section.integer("storage_tag_mask", 0..=u64::MAX);
    section.not_yet(
        "app_tag",
        "an application tag for hosts that can't name one; NVMe hosts name it in each command",
    );
    if pi_type.as_ref().is_some_and(|field| field.value == 0) && !section.has_only(&["type"]) {
        section.report("type 0 is no protection and has no other keys");
    }
    // What a key that is wrong by itself would mean for others, nobody knows.
    let read = |key: &str, is_read: bool| is_read || !section.has(key);
    let known = read("guard", guard.is_some())
        && read("metadata_size", metadata_size.is_some())
        && read("storage_tag_bits", bits.is_some())
        && read("storage_tag_mask", mask.is_some());
    let guard = guard.unwrap_or(Guard::Crc16);
    let numbers = (
        metadata_size.map(|field| field.value),
        bits.map(|field| field.value),
        mask.map(|field| field.value),
    );
    let format = if known { format(&section, guard, block_size, numbers) } else { None };
    section.finish();
    let pi_type = PiType::from_number(u8::try_from(pi_type?.value).ok()?)?;
    Some(Protection { pi_type, format: format?, layout: layout.unwrap_or(Layout::Separate) })
}

/// The format of a guard with the metadata size, storage tag size and storage tag mask that are given, or their defaults.
fn format(
    section: &Section<'_, '_>,
    guard: Guard,
    block_size: u32,
    (metadata_size, bits, mask): (Option<u16>, Option<u8>, Option<u64>),
) -> Option<Format> {
    let name = guard.name();
    let tuple_size = guard.tuple_size();
    let metadata_size = metadata_size.unwrap_or(if tuple_size == 8 { 8 } else { 16 });
    if usize::from(metadata_size) < tuple_size {
        section.report_key(
            "metadata_size",
            format!("must be at least {tuple_size}, the tuple of {name}, and is {metadata_size}"),
        );
        return None;
    }
    let (least, most) = (*guard.storage_tag_range().start(), *guard.storage_tag_range().end());
    let bits = bits.unwrap_or(least);
    if !guard.storage_tag_range().contains(&bits) {
        section.report_key(
            "storage_tag_bits",
            format!("must be from {least} to {most} with {name}, and is {bits}"),
        );
        return None;
    }
    let format = Format::new(guard, block_size, metadata_size)
        .and_then(|format| format.with_whole_storage_tag(bits))
        .expect("sizes that were just checked");
    let all = format.storage_tag_mask();
    let mask = mask.unwrap_or(all);
    if mask & !all != 0 {
        section.report_key(
            "storage_tag_mask",
            format!("{mask:#x} has bits that a storage tag of {bits} bits has not; allowed: 0 to {all:#x}"),
        );
        return None;
    }
    let format = format.with_storage_tag(bits, mask).expect("a mask that was just checked");
    if !format.is_nvme_legal() {
        section
            .report_key("guard", format!("{name} needs blocks of 4096 bytes, and these have {block_size}"));
        return None;
    }
    Some(format)
}

fn check_file(file: &Field<'_, PathBuf>, size: Option<&Field<'_, u64>>, read_only: bool, probe: Probe<'_>) {
    let path = file.value.display();
    match (probe(&file.value), size) {
        (Ok(FileState::Missing), _) if read_only => {
            file.report(format!(
                "{path} doesn't exist, and a `read_only` volume makes no file; name one that exists"
            ));
        }
        (Ok(FileState::Missing), None) => {
            file.report(format!(
                "{path} doesn't exist; give the `size` to make it with, such as size = \"1GiB\""
            ));
        }
        (Ok(FileState::Empty), None) => {
            file.report(format!(
                "{path} is empty; give the `size` that it shall have, such as size = \"1GiB\""
            ));
        }
        (Ok(FileState::MissingFolder), _) => {
            file.report(format!("{path} can't be made: its folder doesn't exist"));
        }
        (Ok(FileState::Folder), _) => {
            file.report(format!("{path} is a folder; a file or block device is needed"));
        }
        (Ok(FileState::Other), _) => file.report(format!("{path} is neither a file nor a block device")),
        (Ok(FileState::BlockDevice), Some(size)) => {
            size.report("a block device has its own size; leave `size` out");
        }
        (Err(why), _) => file.report(format!("{path} can't be used: {why}")),
        (Ok(FileState::Missing | FileState::Empty | FileState::Regular), Some(_)) => {}
        (Ok(FileState::Regular | FileState::BlockDevice), None) => {}
    }
}

fn name(text: &str) -> Result<&str, String> {
    let plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
    if text.is_empty() || text.len() > NAME_MAX || !plain {
        return Err(format!(
            "{text:?} is no volume name: 1 to {NAME_MAX} ASCII letters, digits, `.`, `_`, `-`"
        ));
    }
    Ok(text)
}

fn uuid(text: &str) -> Result<Uuid, String> {
    let example = "5b6c9a52-3d7e-4c8f-9a41-0e2d7c6b8a10";
    match Uuid::try_parse(text) {
        Ok(uuid) if uuid.is_nil() => {
            Err(format!("the nil UUID names nothing; give another, such as {example}"))
        }
        Ok(uuid) if text.len() == 36 => Ok(uuid),
        _ => Err(format!("{text:?} is no UUID; it must look like {example}")),
    }
}
