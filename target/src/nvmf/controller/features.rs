//! Set and Get Features (base 5.15, 5.27; NVM 4.1.4): which features there are, whether they can be changed, and
//! their values. None can be saved, none belongs to a namespace.

use std::time::Instant;

use super::Controller;
use super::events::Kind;
use crate::nvmf::namespace::NSID_ALL;
use crate::nvmf::wire::features::{
    CAP_CHANGEABLE, HOST_BEHAVIOR_LBAFEE, HOST_BEHAVIOR_LEN, HOST_ID_LEN, Select, TIMESTAMP_LEN, fid,
};
use crate::nvmf::wire::log_page::event;
use crate::nvmf::wire::status::Status;

/// Arbitration burst "no limit" (CDW11 2:0).
const ARBITRATION_NO_LIMIT: u32 = 7;
/// Volatile Write Cache Enable.
const WCE: u32 = 1 << 0;
/// Disable Normal (write atomicity).
const DN: u32 = 1 << 0;
/// Extended Host Identifier: 16 bytes; the only form over fabrics.
const EXHID: u32 = 1 << 0;
/// Timestamp Origin: set by Set Features (3:1 of the attributes byte).
const TIMESTAMP_SET_BY_HOST: u8 = 1 << 1;
/// Values of Host Behavior Support that hosts may write: ACRE, ETDAS, LBAFEE and HDISNS are 0 or 1 each.
const HOST_BEHAVIOR_FIELDS: usize = 4;

/// The values of the features that can change.
#[derive(Clone, Debug, Default)]
pub(super) struct Features {
    write_atomicity: u32,
    host_behavior: [u8; HOST_BEHAVIOR_FIELDS],
    timestamp: Option<(u64, Instant)>,
}

/// What a feature is, on one controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Feature {
    pub(super) changeable: bool,
    /// Bytes of the data that its value has; 0 when the value is in the CQE.
    pub(super) data_len: usize,
}

/// Every feature identifier that a controller of either kind may have.
const FIDS: [u8; 11] = [
    fid::ARBITRATION,
    fid::POWER_MANAGEMENT,
    fid::ERROR_RECOVERY,
    fid::VOLATILE_WRITE_CACHE,
    fid::NUMBER_OF_QUEUES,
    fid::WRITE_ATOMICITY,
    fid::ASYNC_EVENT_CONFIG,
    fid::TIMESTAMP,
    fid::KEEP_ALIVE_TIMER,
    fid::HOST_BEHAVIOR_SUPPORT,
    fid::HOST_IDENTIFIER,
];

impl Controller {
    /// The features this controller has.
    pub(super) fn supported_features(&self) -> impl Iterator<Item = u8> {
        FIDS.into_iter().filter(|fid| self.feature(*fid).is_ok())
    }

    /// What feature `fid` is here.
    ///
    /// # Errors
    /// `INVALID_FIELD` when this controller does not have it.
    pub(super) fn feature(&self, fid: u8) -> Result<Feature, Status> {
        let (changeable, data_len) = match (fid, self.io_subsystem()) {
            (fid::ASYNC_EVENT_CONFIG | fid::KEEP_ALIVE_TIMER, _) => (true, 0),
            (fid::HOST_IDENTIFIER, _) => (false, HOST_ID_LEN),
            (fid::ARBITRATION | fid::ERROR_RECOVERY, Some(_)) => (false, 0),
            (fid::POWER_MANAGEMENT | fid::NUMBER_OF_QUEUES | fid::WRITE_ATOMICITY, Some(_)) => (true, 0),
            (fid::VOLATILE_WRITE_CACHE, Some(subsystem)) if subsystem.namespaces().have_write_cache() => {
                (false, 0)
            }
            (fid::TIMESTAMP, Some(_)) => (true, TIMESTAMP_LEN),
            (fid::HOST_BEHAVIOR_SUPPORT, Some(_)) => (true, HOST_BEHAVIOR_LEN),
            _ => return Err(Status::INVALID_FIELD),
        };
        Ok(Feature { changeable, data_len })
    }

    /// Bytes of data that a Set Features of `fid` brings.
    pub(super) fn set_feature_len(&self, fid: u8) -> usize {
        match self.feature(fid) {
            Ok(feature) if feature.changeable => feature.data_len,
            _ => 0,
        }
    }

    /// Bytes of data that a Get Features of `fid` returns.
    pub(super) fn get_feature_len(&self, fid: u8, select: Select) -> usize {
        match self.feature(fid) {
            Ok(feature) if select != Select::Capabilities => feature.data_len,
            _ => 0,
        }
    }

    /// Get Features: the CQE's result and the bytes written to `out`.
    pub(super) fn get_features(
        &self,
        now: Instant,
        fid: u8,
        select: Select,
        cdw11: u32,
        out: &mut [u8],
    ) -> Result<(u64, usize), Status> {
        let feature = self.feature(fid)?;
        if select == Select::Capabilities {
            return Ok((if feature.changeable { CAP_CHANGEABLE } else { 0 }, 0));
        }
        // What can't be saved has no saved value; the default stands for it.
        let current = select == Select::Current;
        let defaults = Features::default();
        let values = if current { &self.features } else { &defaults };
        let out = out.get_mut(..feature.data_len).ok_or(Status::SGL_DATA_LENGTH_INVALID)?;
        out.fill(0);
        let value = match fid {
            fid::ARBITRATION => ARBITRATION_NO_LIMIT,
            fid::VOLATILE_WRITE_CACHE => WCE,
            fid::NUMBER_OF_QUEUES => self.number_of_queues(),
            fid::WRITE_ATOMICITY => values.write_atomicity,
            fid::ASYNC_EVENT_CONFIG if current => self.events.config(),
            fid::KEEP_ALIVE_TIMER if current => self.keep_alive.timeout_ms(),
            fid::TIMESTAMP => {
                out.copy_from_slice(&values.timestamp(now));
                0
            }
            fid::HOST_BEHAVIOR_SUPPORT => {
                out[..HOST_BEHAVIOR_FIELDS].copy_from_slice(&values.host_behavior);
                0
            }
            fid::HOST_IDENTIFIER => {
                if cdw11 & EXHID == 0 {
                    return Err(Status::INVALID_FIELD);
                }
                out.copy_from_slice(&self.host.id);
                0
            }
            _ => 0,
        };
        Ok((u64::from(value), feature.data_len))
    }

    /// Set Features: the CQE's result.
    pub(super) fn set_features(
        &mut self,
        now: Instant,
        nsid: u32,
        fid: u8,
        save: bool,
        cdw11: u32,
        data: &[u8],
    ) -> Result<u64, Status> {
        let feature = self.feature(fid)?;
        if save {
            return Err(Status::FEATURE_ID_NOT_SAVEABLE);
        }
        if !matches!(nsid, 0 | NSID_ALL) {
            return Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC);
        }
        if fid == fid::HOST_IDENTIFIER {
            // Fixed by Connect (base 5.27.1.24).
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        if !feature.changeable {
            return Err(Status::FEATURE_NOT_CHANGEABLE);
        }
        let data = data.get(..feature.data_len).ok_or(Status::SGL_DATA_LENGTH_INVALID)?;
        match fid {
            // One power state.
            fid::POWER_MANAGEMENT if cdw11 & 0x1f != 0 => return Err(Status::INVALID_FIELD),
            fid::POWER_MANAGEMENT => {}
            fid::NUMBER_OF_QUEUES => {
                let (submission, completion) = (cdw11 & 0xffff, cdw11 >> 16);
                if submission == 0xffff || completion == 0xffff {
                    return Err(Status::INVALID_FIELD);
                }
                if self.has_io_queues {
                    return Err(Status::COMMAND_SEQUENCE_ERROR);
                }
                return Ok(u64::from(self.number_of_queues()));
            }
            fid::WRITE_ATOMICITY => self.features.write_atomicity = cdw11 & DN,
            fid::ASYNC_EVENT_CONFIG => {
                if cdw11 & !self.supported_event_config() != 0 {
                    return Err(Status::INVALID_FIELD);
                }
                self.events.set_config(cdw11);
            }
            fid::TIMESTAMP => {
                let mut ms = [0; 8];
                ms[..6].copy_from_slice(&data[..6]);
                self.features.timestamp = Some((u64::from_le_bytes(ms), now));
            }
            fid::KEEP_ALIVE_TIMER => self.set_keep_alive(now, cdw11),
            fid::HOST_BEHAVIOR_SUPPORT => {
                let fields: [u8; HOST_BEHAVIOR_FIELDS] =
                    data[..HOST_BEHAVIOR_FIELDS].try_into().expect("the slice has this length");
                if fields.iter().any(|&value| value > 1) {
                    return Err(Status::INVALID_FIELD);
                }
                self.features.host_behavior = fields;
                self.shared.set_lba_format_extensions(fields[HOST_BEHAVIOR_LBAFEE] == 1);
            }
            _ => return Err(Status::INVALID_FIELD),
        }
        Ok(0)
    }

    /// Bits of Feature 0Bh that may be set.
    pub(super) fn supported_event_config(&self) -> u32 {
        match self.io_subsystem() {
            Some(_) => event::CONFIG_SMART | Kind::NamespaceAttribute.config_bit(),
            None => Kind::DiscoveryLog.config_bit(),
        }
    }

    /// Queues that the host may create, both kinds, 0's based.
    fn number_of_queues(&self) -> u32 {
        let queues = u32::from(self.limits.max_io_queues.saturating_sub(1));
        queues | queues << 16
    }
}

impl Features {
    /// The data structure of the Timestamp feature (base 5.27.1.10).
    fn timestamp(&self, now: Instant) -> [u8; TIMESTAMP_LEN] {
        let Some((ms, since)) = self.timestamp else { return [0; TIMESTAMP_LEN] };
        let elapsed = u64::try_from(now.saturating_duration_since(since).as_millis()).unwrap_or(u64::MAX);
        let mut out = ms.wrapping_add(elapsed).to_le_bytes();
        out[6] = TIMESTAMP_SET_BY_HOST;
        out[7] = 0;
        out
    }
}
