//! Get Log Page (base 5.16): the pages of I/O and discovery controllers, and offsets into them.

use std::time::Instant;

use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

use super::{Controller, Kind};
use crate::nvmf::namespace::NSID_ALL;
use crate::nvmf::subsystem::Subsystem;
use crate::nvmf::wire::identify::{CSI_NVM, set_ascii, zeroed};
use crate::nvmf::wire::log_page::{CommandEffectsLog, FirmwareSlotLog, SmartLog, effects, lid};
use crate::nvmf::wire::sqe::{admin_opcode, io_opcode};
use crate::nvmf::wire::status::Status;

/// Pages of an I/O controller.
const IO_PAGES: [u8; 8] = [
    lid::SUPPORTED_LOG_PAGES,
    lid::ERROR_INFORMATION,
    lid::SMART,
    lid::FIRMWARE_SLOT,
    lid::CHANGED_NAMESPACES,
    lid::COMMAND_EFFECTS,
    lid::FEATURE_EFFECTS,
    lid::MI_EFFECTS,
];
/// Pages of a discovery controller.
const DISCOVERY_PAGES: [u8; 3] = [lid::SUPPORTED_LOG_PAGES, lid::ERROR_INFORMATION, lid::DISCOVERY];

/// Bytes in a data unit of the SMART log.
const DATA_UNIT: u64 = 512 * 1000;
const SECONDS_PER_HOUR: u64 = 3600;
/// Available Spare: nothing wears here.
const SPARE_PERCENT: u8 = 100;

/// A Get Log Page command's fields.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogRequest {
    pub(super) nsid: u32,
    pub(super) lid: u8,
    pub(super) retain_event: bool,
    pub(super) length: u64,
    pub(super) offset: u64,
    pub(super) offset_is_index: bool,
    pub(super) csi: u8,
}

impl Controller {
    /// Get Log Page: fills as much of `out` as was asked for, with zeroes behind the page's end.
    pub(super) fn log_page(
        &mut self,
        now: Instant,
        request: &LogRequest,
        out: &mut [u8],
    ) -> Result<usize, Status> {
        let page = self.build_page(now, request)?;
        // None of the pages here is an indexed one.
        if request.offset_is_index || !request.offset.is_multiple_of(4) {
            return Err(Status::INVALID_FIELD);
        }
        let asked = usize::try_from(request.length).map_err(|_| Status::INVALID_FIELD)?;
        let out = out.get_mut(..asked).ok_or(Status::SGL_DATA_LENGTH_INVALID)?;
        let start = usize::try_from(request.offset).map_err(|_| Status::INVALID_FIELD)?;
        let rest = page.get(start..).filter(|rest| !rest.is_empty()).ok_or(Status::INVALID_FIELD)?;
        let length = rest.len().min(out.len());
        out[..length].copy_from_slice(&rest[..length]);
        out[length..].fill(0);
        if !request.retain_event {
            self.events.log_page_read(request.lid);
        }
        Ok(out.len())
    }

    fn build_page(&self, now: Instant, request: &LogRequest) -> Result<Vec<u8>, Status> {
        let pages: &[u8] = match self.kind {
            Kind::Io(_) => &IO_PAGES,
            Kind::Discovery(_) => &DISCOVERY_PAGES,
        };
        if !pages.contains(&request.lid) {
            return Err(Status::INVALID_LOG_PAGE);
        }
        match (request.lid, &self.kind) {
            (lid::SUPPORTED_LOG_PAGES, _) => Ok(supported(pages.iter().copied())),
            (lid::ERROR_INFORMATION, _) => Ok(self.shared.error_log()),
            (lid::DISCOVERY, Kind::Discovery(view)) => Ok(view.log_page(&self.host.nqn)),
            (lid::SMART, Kind::Io(subsystem)) => {
                // Health by namespace is not announced (LPA bit 0).
                if !matches!(request.nsid, 0 | NSID_ALL) {
                    return Err(Status::INVALID_FIELD);
                }
                Ok(self.smart(now, subsystem).as_bytes().to_vec())
            }
            (lid::FIRMWARE_SLOT, _) => {
                let mut page = zeroed::<FirmwareSlotLog>();
                page.afi = 1;
                set_ascii(&mut page.frs[0], env!("CARGO_PKG_VERSION"));
                Ok(page.as_bytes().to_vec())
            }
            (lid::CHANGED_NAMESPACES, _) => Ok(self.events.changed_list().to_vec()),
            (lid::COMMAND_EFFECTS, _) => {
                if request.csi != CSI_NVM {
                    return Err(Status::INVALID_IO_COMMAND_SET);
                }
                Ok(command_effects().as_bytes().to_vec())
            }
            (lid::FEATURE_EFFECTS, _) => Ok(supported(self.supported_features())),
            // There is no management endpoint, so the page is empty.
            (lid::MI_EFFECTS, _) => Ok(vec![0; 4096]),
            _ => Err(Status::INVALID_LOG_PAGE),
        }
    }

    fn smart(&self, now: Instant, subsystem: &Subsystem) -> Box<SmartLog> {
        let totals = subsystem.totals();
        let wide = |value: u64| u128::from(value).to_le_bytes();
        let hours = now.saturating_duration_since(subsystem.started()).as_secs() / SECONDS_PER_HOUR;
        let mut page = zeroed::<SmartLog>();
        page.available_spare = SPARE_PERCENT;
        page.data_units_read = wide(totals.read_bytes.div_ceil(DATA_UNIT));
        page.data_units_written = wide(totals.write_bytes.div_ceil(DATA_UNIT));
        page.host_reads = wide(totals.read_commands);
        page.host_writes = wide(totals.write_commands);
        page.power_on_hours = wide(hours);
        page.media_errors = wide(totals.media_errors);
        page.error_log_entries = wide(self.shared.error_count());
        page
    }
}

/// A page of 256 dwords with the "supported" bit at each of `identifiers`: Supported Log Pages, Feature Identifiers
/// Supported and Effects.
fn supported(identifiers: impl Iterator<Item = u8>) -> Vec<u8> {
    let mut page = [U32::ZERO; 256];
    for identifier in identifiers {
        page[usize::from(identifier)] = effects::SUPPORTED.into();
    }
    page.as_bytes().to_vec()
}

/// Deviation: LPA bit 5 promises the scope of each command (31:20), which stays "not reported": Linux up to at least
/// 6.1 warns of "unusual effects" of every I/O command that states one.
fn command_effects() -> Box<CommandEffectsLog> {
    let mut page = zeroed::<CommandEffectsLog>();
    for opcode in [
        admin_opcode::GET_LOG_PAGE,
        admin_opcode::IDENTIFY,
        admin_opcode::ABORT,
        admin_opcode::SET_FEATURES,
        admin_opcode::GET_FEATURES,
        admin_opcode::ASYNC_EVENT_REQUEST,
        admin_opcode::KEEP_ALIVE,
    ] {
        page.acs[usize::from(opcode)] = effects::SUPPORTED.into();
    }
    for opcode in [io_opcode::FLUSH, io_opcode::READ, io_opcode::COMPARE, io_opcode::VERIFY] {
        page.iocs[usize::from(opcode)] = effects::SUPPORTED.into();
    }
    for opcode in [io_opcode::WRITE, io_opcode::WRITE_ZEROES, io_opcode::DATASET_MANAGEMENT] {
        page.iocs[usize::from(opcode)] = (effects::SUPPORTED | effects::LBCC).into();
    }
    page
}
