//! I/O commands: their buffers, the medium's side, and protection information in software.
//!
//! Data and tuples lie in two buffers whatever the wire's form is: RDMA gathers and scatters them block by block, so
//! protected data is copied no more often than plain data.

use std::rc::Rc;
use std::sync::Arc;

use rwctx::device::{Device, SUM_PIECE};
use rwctx::plan::Direction;
use rwctx::wr::Sge;
use t10pi::{Ahead, PiMismatch, nvme};
use zerocopy::FromBytes;

use super::exec::{Outcome, Work};
use super::queue::{Queue, Request};
use super::role::Role;
#[cfg(feature = "_fault")]
use crate::block::fault::Moment;
use crate::block::{Io, IoError, IoErrorKind, IoOp, PAGE, RangeGuard, Volume};
use crate::nvmf::command::{DataPointer, IoCommand};
use crate::nvmf::namespace::Namespace;
use crate::nvmf::validate::{BlockOp, BlockPlan, IoPlan, PiAction, WireForm, check_dsm_range, validate};
use crate::nvmf::wire::sqe::DsmRange;
use crate::nvmf::wire::status::Status;
use crate::request::Kind;
use crate::transport::core::{Buffers, Core, Hop, Token};
use crate::transport::in_place::InPlace;
use crate::transport::share::Share;
use crate::transport::wr_id::Posted;

/// An I/O command under way.
#[derive(Debug)]
pub(super) struct IoWork {
    pub(super) namespace: Namespace,
    pub(super) plan: IoPlan,
    kind: Kind,
    pub(super) opcode: u8,
    /// Entries of a Dataset Management list that are done.
    done: u16,
    /// First block and blocks of the current part: the command's, or those of a list entry.
    part: (u64, u32),
    /// Of a read in place: where its data lies.
    medium: Option<Sge>,
    /// The first block that failed.
    pub(super) failed_lba: Option<u64>,
    /// What the medium gave failed a check of its protection information.
    pub(super) failed_on_medium: bool,
    /// The check that what the host sent has failed, while its memory is asked a second time.
    doubt: Option<PiMismatch>,
}

/// Bytes of a command's data that are asked for ahead: behind them the processor sees by itself how it goes on.
const AHEAD: u32 = 4096;

impl IoWork {
    fn new(namespace: Namespace, plan: IoPlan, opcode: u8) -> Self {
        let (kind, part) = match &plan {
            IoPlan::Flush => (Kind::Flush, (0, 0)),
            IoPlan::DatasetManagement { deallocate: true, .. } => (Kind::DatasetManagement, (0, 0)),
            // Hints alone: nothing to do.
            IoPlan::DatasetManagement { deallocate: false, .. } => (Kind::Plain, (0, 0)),
            IoPlan::Blocks(blocks) => {
                let kind = match blocks.op {
                    BlockOp::Read => Kind::Read,
                    BlockOp::Write => Kind::Write,
                    BlockOp::Compare => Kind::Compare,
                    BlockOp::Verify => Kind::Verify,
                    BlockOp::WriteZeroes => Kind::WriteZeroes,
                    BlockOp::Deallocate => Kind::Deallocate,
                };
                (kind, (blocks.slba, blocks.blocks))
            }
        };
        Self {
            namespace,
            plan,
            kind,
            done: 0,
            part,
            medium: None,
            opcode,
            failed_lba: None,
            failed_on_medium: false,
            doubt: None,
        }
    }

    pub(super) fn volume(&self) -> &Arc<Volume> {
        self.namespace.volume()
    }

    /// First block and blocks of the current part.
    pub(super) fn part(&self) -> (u64, u32) {
        self.part
    }

    pub(super) fn changes_medium(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::WriteZeroes | Kind::Deallocate | Kind::DatasetManagement)
    }

    /// Whether the medium's data stands beside the host's: Compare.
    pub(super) fn reads_beside_host_data(&self) -> bool {
        self.kind == Kind::Compare
    }

    pub(super) fn blocks(&self) -> Option<&BlockPlan> {
        match &self.plan {
            IoPlan::Blocks(blocks) => Some(blocks),
            IoPlan::Flush | IoPlan::DatasetManagement { .. } => None,
        }
    }

    fn pi(&self) -> &PiAction {
        self.blocks().map_or(&PiAction::None, |blocks| &blocks.pi)
    }

    /// Whether the medium's tuples are looked at and then dropped: they need no buffer that the device can use.
    fn drops_tuples(&self) -> bool {
        self.kind == Kind::ReadInPlace && matches!(self.pi(), PiAction::Strip(_))
    }

    /// Bytes of data and of metadata that the command needs in buffers.
    fn buffer_sizes(&self) -> (u32, u32) {
        match &self.plan {
            IoPlan::Flush => (0, 0),
            IoPlan::DatasetManagement { list_len, .. } => (*list_len, 0),
            IoPlan::Blocks(plan) => match (plan.op, &plan.pi) {
                (BlockOp::Deallocate, _) => (0, 0),
                (BlockOp::WriteZeroes, PiAction::Insert(_)) => (plan.data_len, plan.metadata_len),
                (BlockOp::WriteZeroes, _) => (0, 0),
                _ if self.drops_tuples() => (plan.data_len, 0),
                _ => (plan.data_len, plan.metadata_len),
            },
        }
    }
}

impl Queue {
    /// Checks an I/O command, whose SGL describes `sgl_len` bytes, and says how it is done.
    pub(super) fn prepare_io<D: Device>(
        &mut self,
        core: &mut Core<D>,
        command: &IoCommand,
        sgl_len: u32,
    ) -> Result<(Kind, Work), Status> {
        let Role::Io(role) = &mut self.role else { return Err(Status::COMMAND_SEQUENCE_ERROR) };
        role.shared.touch();
        role.shared.check_ready()?;
        let namespaces = role.namespaces.load();
        let namespace = namespaces.find(command.nsid)?.clone();
        let plan = validate(command, sgl_len, &namespace.view(), &role.shared.io_limits())?;
        let mut work = IoWork::new(namespace, plan, command.opcode);
        let (slba, blocks) = work.part;
        if work.kind == Kind::Read
            && let Some(sge) = core.memory_of(work.volume(), slba, blocks)
        {
            work.kind = Kind::ReadInPlace;
            work.medium = Some(sge);
        }
        Ok((work.kind, Work::Io(work)))
    }

    /// Copies a command's in-capsule data to its buffers.
    pub(super) fn copy_from_capsule(&mut self, id: u32) -> Result<(), Status> {
        let capacity = self.in_capsule_capacity() as usize;
        let request = &mut self.requests[id as usize];
        let DataPointer::InCapsule { offset, .. } = request.dptr else { return Ok(()) };
        let capsule = request.capsule.ok_or(Status::INTERNAL_ERROR)?;
        let received = (capsule.length - 64) as usize;
        request.dptr.in_capsule_range(received, capacity)?;
        let mut at = u32::try_from(offset).map_err(|_| Status::SGL_OFFSET_INVALID)?;
        let interleaved = request.wire() == WireForm::Interleaved;
        let (mut data, mut md) = (request.data.take(), request.md.take());
        let request = &self.requests[id as usize];
        if let Some(data) = &mut data {
            let bytes = data.bytes_mut();
            match (&mut md, &request.work) {
                (Some(md), Work::Io(io)) if interleaved => {
                    let (bs, ms) = (io.volume().block_size(), u32::from(io.volume().metadata_size()));
                    let blocks = bytes.chunks_exact_mut(bs as usize);
                    for (block, tuple) in blocks.zip(md.bytes_mut().chunks_exact_mut(ms as usize)) {
                        self.capsule_data(capsule, at, block);
                        self.capsule_data(capsule, at + bs, tuple);
                        at += bs + ms;
                    }
                }
                _ => self.capsule_data(capsule, at, bytes),
            }
        }
        let request = &mut self.requests[id as usize];
        (request.data, request.md) = (data, md);
        Ok(())
    }

    /// Generates the tuples of what the host sent, or checks those that it sent, unless the device did. Nothing has reached the
    /// medium yet. What fails is fetched once more, to know where it was damaged; the command fails in any case.
    pub(super) fn protect_from_host<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Outcome {
        let request = &mut self.requests[id as usize];
        #[cfg(feature = "_fault")]
        request.meet(Moment::Arrived);
        let Work::Io(io) = &mut request.work else { return Outcome::Done };
        let (doubt, status) = (io.doubt.take(), request.signing.take_status());
        let (pi, zeroes) = (io.pi(), io.kind == Kind::WriteZeroes);
        let (Some(data), Some(md)) = (&mut request.data, &mut request.md) else { return Outcome::Done };
        match pi {
            PiAction::None | PiAction::Strip(_) | PiAction::Zero => Outcome::Done,
            // The device has made them.
            PiAction::Insert(_) if status.is_some() => Outcome::Done,
            PiAction::Insert(pi) => {
                if zeroes {
                    data.bytes_mut().fill(0);
                    md.bytes_mut().fill(0);
                }
                pi.generate(&[data.bytes()], &mut [md.bytes_mut()]);
                Outcome::Done
            }
            PiAction::Pass(pi) => {
                let checked = match status {
                    Some(found) => found.mismatch(pi.format()),
                    None => pi.verify(&[data.bytes()], &[md.bytes()]),
                };
                match (checked, doubt) {
                    (Ok(()), None) => Outcome::Done,
                    (Err(mismatch), None) if request.dptr.is_in_host_memory() => {
                        io.doubt = Some(mismatch);
                        Outcome::FetchAgain
                    }
                    (Ok(()), Some(first)) => {
                        Outcome::Fail(self.protection_error(core, id, Hop::Wire, &first))
                    }
                    (Err(mismatch), first) => {
                        Outcome::Fail(self.protection_error(core, id, Hop::Host, &first.unwrap_or(mismatch)))
                    }
                }
            }
        }
    }

    /// Checks the tuples of what the medium gave. Nothing has reached the host yet.
    pub(super) fn check_from_medium<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Result<(), Status> {
        let request = &self.requests[id as usize];
        let Work::Io(io) = &request.work else { return Ok(()) };
        let (PiAction::Pass(pi) | PiAction::Strip(pi)) = io.pi() else { return Ok(()) };
        let (data, md) = if io.reads_beside_host_data() {
            (&request.medium_data, &request.medium_md)
        } else {
            (&request.data, &request.md)
        };
        let data = match (&request.in_place, data) {
            (Some(_), _) => request.bytes_in_place().ok_or(Status::INTERNAL_ERROR)?,
            (None, Some(data)) => data.bytes(),
            (None, None) => return Ok(()),
        };
        let md = match md {
            Some(md) => md.bytes(),
            None if io.drops_tuples() => &core.tuples,
            None => return Ok(()),
        };
        let is_sent_alone = matches!(io.pi(), PiAction::Strip(_)) && !io.reads_beside_host_data();
        core.checked_bytes += data.len();
        let checked = if core.caps.takes_sums && is_sent_alone && io.volume().block_size() == SUM_PIECE {
            core.sums.resize(data.len() / SUM_PIECE as usize, 0);
            pi.verify_summed(data, md, core.ahead, &mut core.sums)
        } else {
            core.sums.clear();
            pi.verify_ahead(&[data], &[md], core.ahead)
        };
        match checked {
            Ok(()) => {
                std::mem::swap(&mut self.requests[id as usize].sums, &mut core.sums);
                Ok(())
            }
            Err(mismatch) => Err(self.protection_error(core, id, Hop::Media, &mismatch)),
        }
    }

    /// What is looked at is looked at by the end of the round, after another command's: the memory is asked for while that
    /// is looked at. Where nothing is, the device asks for it.
    pub(super) fn prefetch_medium<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Outcome {
        let request = &self.requests[id as usize];
        let (Work::Io(io), Some(guard)) = (&request.work, &request.range) else {
            return Outcome::Fail(Status::INTERNAL_ERROR);
        };
        let (Some(sge), false) = (io.medium, matches!(io.pi(), PiAction::None)) else { return Outcome::Done };
        io.volume().prefetch_metadata(guard);
        // An address of another width is none that could be asked for.
        let address = usize::try_from(sge.addr).unwrap_or_default();
        let ahead = Ahead::new(address, sge.length.min(AHEAD) as usize);
        core.prefetched.push((Token { queue: self.index, request: id }, ahead));
        Outcome::Wait
    }

    /// Uses the medium's memory as it lies there, under the range that the request holds.
    pub(super) fn use_medium<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Outcome {
        let request = &self.requests[id as usize];
        let (Work::Io(io), Some(guard)) = (&request.work, &request.range) else {
            return Outcome::Fail(Status::INTERNAL_ERROR);
        };
        let ((slba, blocks), volume) = (io.part, io.volume());
        // It may have shrunk since the command was checked.
        if slba + u64::from(blocks) > volume.blocks() {
            let error = IoError::out_of_range(slba.max(volume.blocks()));
            let volume = Arc::clone(volume);
            return self.io_failed(core, id, &volume, IoOp::Read, &error);
        }
        if let Some(md) = &request.md {
            volume.read_metadata(guard, md);
        } else if io.drops_tuples() {
            // They are checked in the next step, before another request comes to this one.
            volume.read_tuples(guard, &mut core.tuples);
        }
        let Some(sge) = io.medium else { return Outcome::Fail(Status::INTERNAL_ERROR) };
        if !guard.is_wanted() {
            self.requests[id as usize].in_place = Some(InPlace::new(sge, &self.in_place));
            return Outcome::Done;
        }
        // Whoever waits by now has told so, and does not tell again.
        core.note_conflict(volume);
        let request = &mut self.requests[id as usize];
        if !request.copy_data(sge.length as usize) {
            return Outcome::Fail(Status::INTERNAL_ERROR);
        }
        request.range = None;
        Outcome::Done
    }

    /// Copies the data of reads in place for whose blocks somebody waits, and lets these go: their hosts may take long.
    pub(super) fn yield_ranges<D: Device>(&mut self, core: &mut Core<D>) {
        if self.in_place.get() == 0 {
            return;
        }
        for id in 0..self.requests.len() {
            let request = &self.requests[id];
            if request.in_place.is_some() && request.range.as_ref().is_some_and(RangeGuard::is_wanted) {
                self.yield_range(core, u32::try_from(id).expect("a queue has few requests"));
            }
        }
    }

    fn yield_range<D: Device>(&mut self, core: &mut Core<D>, id: u32) {
        let request = &mut self.requests[id as usize];
        let length = request.in_place.as_ref().map_or(0, |in_place| in_place.sge.length as usize);
        if !request.copy_data(length) {
            return;
        }
        let (Some(buf), Some(in_place)) = (&request.data, request.in_place.take()) else { return };
        let to = core.sge(buf.addr(), u32::try_from(buf.len()).expect("a buffer is smaller than 4 GiB"));
        if let Work::Io(io) = &request.work {
            core.note_conflict(io.volume());
        }
        let yielded = if request.is_posted() {
            request.pin();
            let wr_id = Posted::Respond { queue: self.index, request: id }.wr_id();
            core.device.replace_source(self.qpn, wr_id, in_place.sge, to).is_ok()
        } else {
            request.unplan(&mut core.contexts);
            self.plan_send(core, id).is_ok()
        };
        // Otherwise the range is held until the queue is closed: then the device does not look at it any more.
        if yielded {
            self.requests[id as usize].range = None;
        } else {
            core.close_later(self.index);
        }
    }

    /// Compares the host's data with the medium's, without the tuples.
    pub(super) fn compare(&mut self, id: u32) -> Result<(), Status> {
        let request = &self.requests[id as usize];
        let Work::Io(io) = &request.work else { return Ok(()) };
        let (Some(host), Some(medium)) = (&request.data, &request.medium_data) else { return Ok(()) };
        let same = host.bytes() == medium.bytes()
            && match (&request.md, &request.medium_md) {
                (Some(host), Some(medium)) => same_opaque_metadata(io.volume(), host.bytes(), medium.bytes()),
                _ => true,
            };
        if same { Ok(()) } else { Err(Status::COMPARE_FAILURE) }
    }

    /// Goes to the next entry of a Dataset Management list; `false` when all are done.
    pub(super) fn next_part(&mut self, id: u32) -> bool {
        let request = &mut self.requests[id as usize];
        let (Work::Io(io), Some(list)) = (&mut request.work, &request.data) else {
            return self.next_flush(id);
        };
        let IoPlan::DatasetManagement { ranges, .. } = io.plan else { return false };
        io.done += 1;
        if io.done < ranges {
            io.part = dsm_part(list.bytes(), io.done);
        }
        io.done < ranges
    }

    /// Checks the list of Dataset Management that the host sent: all of it before the first range is touched.
    pub(super) fn read_dsm_ranges(&mut self, id: u32) -> Result<(), Status> {
        let request = &mut self.requests[id as usize];
        let (Work::Io(io), Some(list)) = (&mut request.work, &request.data) else { return Ok(()) };
        let IoPlan::DatasetManagement { ranges, .. } = io.plan else { return Ok(()) };
        let view = io.namespace.view();
        for index in 0..ranges {
            let range = dsm_range(list.bytes(), index);
            if let Err(status) = check_dsm_range(&range, &view) {
                io.failed_lba = Some(range.slba.get());
                return Err(status);
            }
        }
        io.part = dsm_part(list.bytes(), 0);
        Ok(())
    }

    /// Logs a failed check and names the status for it.
    fn protection_error<D: Device>(
        &mut self,
        core: &mut Core<D>,
        id: u32,
        hop: Hop,
        mismatch: &PiMismatch,
    ) -> Status {
        let request = &mut self.requests[id as usize];
        let Work::Io(io) = &mut request.work else { return Status::INTERNAL_ERROR };
        let lba = io.part.0 + mismatch.block;
        io.failed_lba = Some(lba);
        io.failed_on_medium = hop == Hop::Media;
        core.protection_error(io.volume(), self.peer, lba, hop, mismatch);
        nvme::Status::from(mismatch.field).into()
    }

    /// Remembers the block that an error names, for the error log.
    pub(super) fn failed_lba(&mut self, id: u32, lba: u64) {
        if let Work::Io(io) = &mut self.requests[id as usize].work {
            io.failed_lba = Some(lba);
        }
    }
}

impl Request {
    /// Takes the buffers of the command, all or none.
    pub(super) fn try_buffers<D: Device>(&mut self, core: &mut Core<D>, share: &Rc<Share>) -> Buffers {
        let (data, md) = match &self.work {
            Work::Io(io) => io.buffer_sizes(),
            Work::Admin(work) => (work.data_length(), 0),
            Work::Fabrics(work) => (work.data_length(), 0),
            Work::None | Work::Refused => (0, 0),
        };
        let twice = matches!(&self.work, Work::Io(io) if io.reads_beside_host_data());
        let stream = if self.needs_stream(core) { data + md } else { 0 };
        let bytes = (data as usize + md as usize) * if twice { 2 } else { 1 } + stream as usize;
        if !share.allows(bytes, core.pool.free_bytes()) {
            return Buffers::OverShare;
        }
        let take = |length: u32| match length {
            0 => Some(None),
            length => core.pool.take(length as usize).map(Some),
        };
        // Where a page is enough, its promise is cheaper: nearly all of these buffers are never used.
        let in_place = matches!(&self.work, Work::Io(io) if io.kind == Kind::ReadInPlace);
        if in_place && (1..=PAGE).contains(&(data as usize)) {
            let (Some(md), Some(promise)) = (take(md), core.pool.promise()) else { return Buffers::NoRoom };
            (self.md, self.promise) = (md, Some(promise));
            self.charge = Some(share.charge(bytes));
            return Buffers::Taken;
        }
        let (Some(data_buf), Some(md_buf)) = (take(data), take(md)) else { return Buffers::NoRoom };
        let Some(stream) = take(stream) else { return Buffers::NoRoom };
        if twice {
            let (Some(medium_data), Some(medium_md)) = (take(data), take(md)) else { return Buffers::NoRoom };
            (self.medium_data, self.medium_md) = (medium_data, medium_md);
        }
        (self.data, self.md, self.stream) = (data_buf, md_buf, stream);
        self.charge = (bytes > 0).then(|| share.charge(bytes));
        Buffers::Taken
    }

    /// Damages its blocks in memory, if a test wants that at this moment.
    #[cfg(feature = "_fault")]
    pub(super) fn meet(&mut self, moment: Moment) {
        if let Work::Io(io) = &self.work
            && io.blocks().is_some()
            && io.volume().meet(moment, io.part.0, self.data.as_mut(), self.md.as_mut())
        {
            // They would give it away.
            self.sums.clear();
        }
    }

    /// Copies the `length` bytes that a read in place would send to the buffer that it has, or the promise of one; whether
    /// it had them.
    fn copy_data(&mut self, length: usize) -> bool {
        let promised = self.promise.take().map(|promise| promise.keep(length));
        let mut data = self.data.take().or(promised);
        let (Some(bytes), Some(buf)) = (self.bytes_in_place(), &mut data) else { return false };
        buf.bytes_mut().copy_from_slice(bytes);
        self.data = data;
        true
    }

    /// The data that a read in place sends.
    fn bytes_in_place(&self) -> Option<&[u8]> {
        let (Work::Io(io), Some(guard)) = (&self.work, &self.range) else { return None };
        io.volume().shared_bytes(guard)
    }

    /// How the command's data stands on the wire.
    pub(super) fn wire(&self) -> WireForm {
        match &self.work {
            Work::Io(io) => io.blocks().map_or(WireForm::Data, |blocks| blocks.wire),
            _ => WireForm::Data,
        }
    }

    /// Lists the pieces of the buffers in the order of the wire in `core.sges`.
    pub(super) fn scatter<D: Device>(&self, core: &mut Core<D>, direction: Direction) {
        core.sges.clear();
        let buffer = match direction {
            Direction::FromHost => self.stream.as_ref().or(self.data.as_ref()),
            Direction::ToHost => self.data.as_ref(),
        };
        let whole = match (&self.in_place, buffer) {
            (Some(in_place), _) => in_place.sge,
            (None, Some(buf)) => {
                core.sge(buf.addr(), u32::try_from(buf.len()).expect("a buffer is smaller than 4 GiB"))
            }
            (None, None) => return,
        };
        let is_stream = direction == Direction::FromHost && self.stream.is_some();
        if let (Work::Io(io), Some(md), WireForm::Interleaved, false) =
            (&self.work, &self.md, self.wire(), is_stream)
        {
            let (bs, ms) = (io.volume().block_size(), u32::from(io.volume().metadata_size()));
            for block in 0..u64::from(whole.length / bs) {
                let data = Sge { addr: whole.addr + block * u64::from(bs), length: bs, ..whole };
                let tuple = core.sge(md.addr() + block * u64::from(ms), ms);
                core.sges.extend([data, tuple]);
            }
        } else {
            core.list_piece(Sge { length: whole.length.min(self.send_length), ..whole }, direction);
        }
    }

    /// The engine's operation for the current part; `None` when there is nothing to do.
    pub(super) fn engine_io(&mut self, op: IoOp, token: u64) -> Option<Io> {
        let work = match &self.work {
            Work::Io(work) => work,
            // The volume at the end of a shutdown's list.
            Work::Fabrics(work) => {
                let volume = Arc::clone(work.flush.last()?);
                return Some(Io {
                    volume,
                    op,
                    slba: 0,
                    nlb: 0,
                    data: None,
                    md: None,
                    fua: false,
                    guard: None,
                    token,
                });
            }
            Work::None | Work::Admin(_) | Work::Refused => return None,
        };
        let (slba, nlb) = work.part();
        if nlb == 0 && op != IoOp::Flush {
            return None;
        }
        let (volume, fua) = (Arc::clone(work.volume()), work.blocks().is_some_and(|blocks| blocks.fua));
        let (data, md) = match op {
            IoOp::Read if work.reads_beside_host_data() => (self.medium_data.take(), self.medium_md.take()),
            IoOp::Read | IoOp::Write => (self.data.take(), self.md.take()),
            IoOp::WriteZeroes => (None, self.md.take()),
            IoOp::Flush | IoOp::Deallocate => (None, None),
        };
        Some(Io { volume, op, slba, nlb, data, md, fua, guard: self.range.take(), token })
    }

    /// Puts what the engine gives back into its place.
    pub(super) fn restore(&mut self, io: Io) {
        let beside =
            matches!(&self.work, Work::Io(work) if work.reads_beside_host_data()) && io.op == IoOp::Read;
        let (data, md) = if beside {
            (&mut self.medium_data, &mut self.medium_md)
        } else {
            (&mut self.data, &mut self.md)
        };
        if io.data.is_some() {
            *data = io.data;
        }
        if io.md.is_some() {
            *md = io.md;
        }
        self.range = io.guard;
    }
}

/// Whether metadata is equal outside the tuples (NVM, Compare: the protection information is checked, not compared).
fn same_opaque_metadata(volume: &Volume, host: &[u8], medium: &[u8]) -> bool {
    let size = usize::from(volume.metadata_size());
    let Some(protection) = volume.protection() else { return host == medium };
    let tuple =
        protection.format.tuple_offset()..protection.format.tuple_offset() + protection.format.tuple_size();
    host.chunks_exact(size).zip(medium.chunks_exact(size)).all(|(host, medium)| {
        host[..tuple.start] == medium[..tuple.start] && host[tuple.end..] == medium[tuple.end..]
    })
}

/// Entry `index` of a Dataset Management list.
fn dsm_range(list: &[u8], index: u16) -> DsmRange {
    let at = usize::from(index) * size_of::<DsmRange>();
    DsmRange::read_from_bytes(&list[at..at + size_of::<DsmRange>()]).expect("a whole entry")
}

fn dsm_part(list: &[u8], index: u16) -> (u64, u32) {
    let range = dsm_range(list, index);
    (range.slba.get(), range.nlb.get())
}

/// The status for a failed operation on the medium.
pub(super) fn media_status(op: IoOp, error: &IoError) -> Status {
    match error.kind {
        IoErrorKind::Media if op == IoOp::Read => Status::UNRECOVERED_READ_ERROR,
        IoErrorKind::Media => Status::WRITE_FAULT,
        IoErrorKind::NoSpace => Status::CAPACITY_EXCEEDED,
        IoErrorKind::ReadOnly => Status::NAMESPACE_WRITE_PROTECTED,
        IoErrorKind::OutOfRange => Status::LBA_OUT_OF_RANGE,
        IoErrorKind::Timeout | IoErrorKind::Internal => Status::INTERNAL_ERROR,
    }
}
