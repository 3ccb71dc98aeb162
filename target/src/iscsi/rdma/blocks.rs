//! Commands on blocks: which steps they take, and protection information in software.
//!
//! Data and tuples lie in two buffers whatever the wire's form is: RDMA gathers and scatters them block by block, so
//! protected data is copied no more often than plain data.

use std::sync::Arc;

use rwctx::device::Device;
use t10pi::{PiContext, PiMismatch};

use super::connection::Connection;
use super::exec::Outcome;
use super::request::{Ended, Request, Work};
use crate::block::{Buf, IoError, Volume};
use crate::iscsi::session::Transfer as HostMemory;
use crate::request::Kind;
use crate::scsi::transfer::{Transfer, Tuples, Work as Blocks};
use crate::transport::core::{Core, Hop};

/// A command on blocks under way.
#[derive(Debug)]
pub(super) struct BlockWork {
    pub(super) transfer: Transfer,
    volume: Arc<Volume>,
    kind: Kind,
    /// First block and blocks of the current part.
    part: (u64, u32),
    /// The check that what the host sent has failed, while its memory is asked a second time.
    doubt: Option<PiMismatch>,
}

/// Bytes of a tuple.
pub(super) const TUPLE: u32 = 8;

impl BlockWork {
    pub(super) fn new<D: Device>(core: &Core<D>, transfer: Transfer, volume: Arc<Volume>) -> Self {
        let kind = match transfer.work {
            Blocks::Read => Kind::Read,
            Blocks::Write => Kind::Write,
            Blocks::WriteAndVerify | Blocks::WriteAndCompare => Kind::WriteVerify,
            Blocks::Verify => Kind::Verify,
            Blocks::CompareBlocks | Blocks::CompareOne => Kind::Compare,
            Blocks::CompareAndWrite => Kind::CompareAndWrite,
            Blocks::Same { .. } => Kind::WriteSame,
            // Zeroes beside escapes are what blocks are that nobody wrote.
            Blocks::Zero { give_back } if give_back || volume.metadata_size() != 0 => Kind::Deallocate,
            Blocks::Zero { .. } => Kind::WriteZeroes,
        };
        let mut work = Self { transfer, volume, kind, part: (transfer.lba, transfer.blocks), doubt: None };
        if kind == Kind::WriteSame {
            work.part.1 = transfer.blocks.min(core.max_transfer / work.volume.block_size());
        }
        work
    }

    pub(super) fn kind(&self) -> Kind {
        self.kind
    }

    pub(super) fn volume(&self) -> &Arc<Volume> {
        &self.volume
    }

    /// First block and blocks of the current part.
    pub(super) fn part(&self) -> (u64, u32) {
        self.part
    }

    pub(super) fn set_part(&mut self, part: (u64, u32)) {
        self.part = part;
    }

    pub(super) fn changes_medium(&self) -> bool {
        self.transfer.work.writes()
    }

    /// Whether tuples follow each block on the wire.
    pub(super) fn is_interleaved(&self) -> bool {
        let protection = &self.transfer.protection;
        protection.to_host || matches!(protection.tuples, Tuples::FromHost(_))
    }

    /// Bytes of a block on the wire.
    pub(super) fn wire_block(&self) -> u32 {
        self.volume.block_size() + if self.is_interleaved() { TUPLE } else { 0 }
    }

    /// Blocks that the host has, or of those the first half.
    pub(super) fn host_blocks(&self) -> u32 {
        match self.transfer.work {
            Blocks::Zero { .. } => 0,
            Blocks::Same { .. } | Blocks::CompareOne => 1,
            _ => self.transfer.blocks,
        }
    }

    /// Blocks of the second half.
    pub(super) fn second_blocks(&self) -> u32 {
        if self.transfer.work == Blocks::CompareAndWrite { self.transfer.blocks } else { 0 }
    }

    /// Blocks that stand beside the host's.
    pub(super) fn medium_blocks(&self) -> u32 {
        match self.transfer.work {
            Blocks::Same { .. } => self.part.1,
            _ if self.reads_beside() => self.transfer.blocks,
            _ => 0,
        }
    }

    /// Whether what is read from the medium stands beside the host's.
    pub(super) fn reads_beside(&self) -> bool {
        matches!(self.kind, Kind::WriteVerify | Kind::Compare | Kind::CompareAndWrite)
    }

    /// What the medium's tuples are checked by.
    fn of_medium(&self) -> Option<&PiContext> {
        match &self.transfer.protection.tuples {
            Tuples::CheckMedium(pi) => Some(pi),
            // What was written must be there.
            Tuples::FromHost(pi) | Tuples::Generate(pi) if self.kind == Kind::WriteVerify => Some(pi),
            // The host's are compared with them.
            Tuples::None | Tuples::FromHost(_) | Tuples::Generate(_) => None,
        }
    }
}

impl Request {
    /// Fits the work to what the host has memory for: of a write, to whole blocks.
    pub(super) fn fit(&mut self, mut work: BlockWork) -> Result<BlockWork, Ended> {
        use rwctx::plan::Direction;
        let too_short = || Ended {
            length: work.transfer.from_host,
            ..crate::scsi::sense::code::INVALID_FIELD_IN_CDB.into()
        };
        let bytes = |bytes: u64| u32::try_from(bytes).expect("a command moves a few MiB at most");
        if work.transfer.to_host != 0 {
            self.to_host = bytes(work.transfer.to_host).min(self.offered(Direction::ToHost));
            return Ok(work);
        }
        let wanted = bytes(work.transfer.from_host);
        self.from_host = wanted;
        let offered = self.offered(Direction::FromHost);
        if offered >= wanted {
            return Ok(work);
        }
        let blocks = offered / work.wire_block();
        if work.transfer.work != Blocks::Write || blocks == 0 {
            return Err(too_short());
        }
        work.transfer.blocks = blocks;
        work.part.1 = blocks;
        self.from_host = blocks * work.wire_block();
        Ok(work)
    }
}

impl Connection {
    /// Makes the tuples of what the host sent, or checks those that it sent. Nothing has reached the medium yet. What fails is
    /// fetched once more, to know where it was damaged; the command fails in any case.
    pub(super) fn protect_from_host<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Outcome {
        let request = &mut self.requests[id as usize];
        #[cfg(feature = "_fault")]
        request.meet(crate::block::fault::Moment::Arrived);
        let Work::Blocks(work) = &mut request.work else { return Outcome::Done };
        let (Some(data), Some(md)) = (&mut request.data, &mut request.md) else { return Outcome::Done };
        let doubt = work.doubt.take();
        match &work.transfer.protection.tuples {
            Tuples::None | Tuples::CheckMedium(_) => Outcome::Done,
            Tuples::Generate(pi) => {
                pi.generate(&[data.bytes()], &mut [md.bytes_mut()]);
                if let [Some(data), Some(md)] = &mut request.second {
                    pi.generate(&[data.bytes()], &mut [md.bytes_mut()]);
                }
                Outcome::Done
            }
            Tuples::FromHost(pi) => {
                let checked =
                    pi.verify(&[data.bytes()], &[md.bytes()]).and_then(|()| match &request.second {
                        [Some(data), Some(md)] => pi.verify(&[data.bytes()], &[md.bytes()]),
                        _ => Ok(()),
                    });
                let again =
                    matches!(&request.host, HostMemory::FromHost { immediate, .. } if immediate.is_empty());
                match (checked, doubt) {
                    (Ok(()), None) => Outcome::Done,
                    (Err(mismatch), None) if again => {
                        work.doubt = Some(mismatch);
                        Outcome::FetchAgain
                    }
                    (Ok(()), Some(first)) => Outcome::End(self.protection_error(core, id, Hop::Wire, &first)),
                    (Err(mismatch), first) => {
                        let first = first.unwrap_or(mismatch);
                        Outcome::End(self.protection_error(core, id, Hop::Host, &first))
                    }
                }
            }
        }
    }

    /// Checks the tuples of what the medium gave. Nothing has reached the host yet.
    pub(super) fn check_from_medium<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Outcome {
        let request = &self.requests[id as usize];
        let Work::Blocks(work) = &request.work else { return Outcome::Done };
        let Some(pi) = work.of_medium() else { return Outcome::Done };
        let [data, md] = if work.reads_beside() {
            [&request.medium[0], &request.medium[1]]
        } else {
            [&request.data, &request.md]
        };
        let (Some(data), Some(md)) = (data.as_ref().map(Buf::bytes), md.as_ref().map(Buf::bytes)) else {
            return Outcome::Done;
        };
        match pi.verify_ahead(&[data], &[md], core.ahead) {
            Ok(()) => Outcome::Done,
            Err(mismatch) => Outcome::End(self.protection_error(core, id, Hop::Media, &mismatch)),
        }
    }

    /// Logs a failed check and says how the command ends.
    fn protection_error<D: Device>(
        &self,
        core: &mut Core<D>,
        id: u32,
        hop: Hop,
        mismatch: &PiMismatch,
    ) -> Ended {
        let request = &self.requests[id as usize];
        let Work::Blocks(work) = &request.work else {
            return crate::scsi::sense::code::INTERNAL_TARGET_FAILURE.into();
        };
        core.protection_error(&work.volume, self.peer, work.transfer.lba + mismatch.block, hop, mismatch);
        Ended { length: request.length, ..Ended::check(work.transfer.check_failed(mismatch)) }
    }

    /// Logs a failed operation on the medium and says how the command ends.
    pub(super) fn io_failed<D: Device>(
        &self,
        core: &mut Core<D>,
        id: u32,
        volume: &Volume,
        error: &IoError,
    ) -> Ended {
        core.note_io_failed(volume, self.peer, error);
        let request = &self.requests[id as usize];
        let sense = match &request.work {
            Work::Blocks(work) => work.transfer.medium_failed(error),
            _ => crate::scsi::failure::of_medium(true, error),
        };
        Ended { length: request.length, ..Ended::check(sense) }
    }
}
