//! Executes requests step by step: a command goes on until a step has to wait.
//!
//! Which step comes next is [`Progress`]'s; how a step is done is here. A step that fails lets go of what the request holds and
//! leaves the response.

use rwctx::device::Device;
use rwctx::plan::Direction;
use rwctx::qp::RwQp;
use rwctx::segment::{PieceCursor, SegmentBuilder, SegmentCursor};

use super::admin::{AdminWork, FabricsWork};
use super::io::IoWork;
use super::queue::{Post, Queue, Request};
use crate::block::{IoDone, IoError, IoOp, Mode, RangeWait, Volume};
use crate::nvmf::command::{Command, DataPointer, MAX_SGL_DESCRIPTORS, QueueKind};
use crate::nvmf::wire::sgl::SGL_DESCRIPTOR_LEN;
use crate::nvmf::wire::sqe::{SQE_LEN, Sqe};
use crate::nvmf::wire::status::Status;
use crate::request::{Kind, Progress, Step};
use crate::transport::core::{Buffers, Core, Locked, Submitted, Token};

/// What a request is about.
#[derive(Debug)]
pub(super) enum Work {
    /// Nothing: the slot is free.
    None,
    /// An I/O command.
    Io(IoWork),
    /// An admin command.
    Admin(AdminWork),
    /// A Fabrics command.
    Fabrics(FabricsWork),
    /// A command that was refused when it was parsed.
    Refused,
}

/// How a step went.
pub(super) enum Outcome {
    /// Go on.
    Done,
    /// Go back to where the host's data is fetched.
    FetchAgain,
    /// Something resumes it later.
    Wait,
    /// Answer with this status.
    Fail(Status),
    /// The queue is beyond help; it closes.
    Dead,
}

impl Queue {
    /// Starts the command of an admitted capsule.
    pub(super) fn start<D: Device>(&mut self, core: &mut Core<D>, id: u32, sqe: &Sqe) {
        let kind = if self.request.qid == 0 { QueueKind::Admin } else { QueueKind::Io };
        // The key of a readable descriptor is invalidated by every response, also of a command refused for other reasons.
        let request = &mut self.requests[id as usize];
        request.dptr = DataPointer::parse(&sqe.dptr).unwrap_or(DataPointer::None);
        let command = match Command::parse(sqe, kind) {
            Ok(command) => command,
            Err(status) => {
                // A list that can't be read has none.
                let _ = self.sgl_length(id);
                return self.start_failed(core, id, status);
            }
        };
        let prepared = match command {
            Command::Fabrics(command) => self.prepare_fabrics(command),
            Command::Admin(command) => self.prepare_admin(command),
            Command::Io(command) => {
                self.sgl_length(id).and_then(|sgl_len| self.prepare_io(core, &command, sgl_len))
            }
        };
        match prepared {
            Ok((kind, work)) => {
                let request = &mut self.requests[id as usize];
                request.progress = Some(Progress::new(kind));
                request.work = work;
                request.choose_signing(core);
                if !matches!(request.dptr, DataPointer::InCapsule { .. }) {
                    self.release_capsule(core, id);
                }
                self.advance(core, id);
            }
            Err(status) => self.start_failed(core, id, status),
        }
    }

    /// A command that is answered with an error at once.
    pub(super) fn start_failed<D: Device>(&mut self, core: &mut Core<D>, id: u32, status: Status) {
        let request = &mut self.requests[id as usize];
        request.work = Work::Refused;
        let mut progress = Progress::new(Kind::Plain);
        progress.fail();
        request.progress = Some(progress);
        self.finish(core, id, status);
    }

    /// Goes on with a request until it waits or its response is queued.
    pub(super) fn advance<D: Device>(&mut self, core: &mut Core<D>, id: u32) {
        loop {
            let request = &mut self.requests[id as usize];
            let Some(step) = request.progress.as_ref().map(Progress::step) else { return };
            let outcome = match step {
                Step::TakeBuffers => self.take_buffers(core, id),
                Step::Fetch => self.fetch(core, id),
                Step::ProtectFromHost => self.protect_from_host(core, id),
                Step::LockRange => self.lock_range(core, id),
                Step::ReadMedium => self.submit(core, id, IoOp::Read),
                Step::PrefetchMedium => self.prefetch_medium(core, id),
                Step::UseMedium => self.use_medium(core, id),
                Step::WriteMedium => self.submit(core, id, IoOp::Write),
                Step::ZeroMedium => self.submit(core, id, IoOp::WriteZeroes),
                Step::DeallocateMedium => self.submit(core, id, IoOp::Deallocate),
                Step::FlushMedium => self.submit(core, id, IoOp::Flush),
                Step::UnlockRange => {
                    request.range = None;
                    Outcome::Done
                }
                Step::CheckFromMedium => outcome(self.check_from_medium(core, id)),
                Step::Compare => outcome(self.compare(id)),
                Step::Execute => self.execute(core, id),
                Step::NextPart(_) => {
                    if self.next_part(id) {
                        if let Some(progress) = &mut self.requests[id as usize].progress {
                            progress.again();
                        }
                        continue;
                    }
                    Outcome::Done
                }
                Step::SendData => match self.plan_send(core, id) {
                    Ok(()) => return self.queue_response(core, id),
                    Err(status) => Outcome::Fail(status),
                },
                Step::Respond => return self.finish(core, id, Status::SUCCESS),
            };
            match outcome {
                Outcome::Done => {
                    if let Some(progress) = &mut self.requests[id as usize].progress {
                        progress.done();
                    }
                }
                Outcome::FetchAgain => {
                    if let Some(progress) = &mut self.requests[id as usize].progress {
                        progress.fetch_again();
                    }
                }
                Outcome::Wait => return,
                Outcome::Fail(status) => return self.finish(core, id, status),
                Outcome::Dead => return core.close_later(self.index),
            }
        }
    }

    /// Queues the response without data.
    pub(super) fn finish<D: Device>(&mut self, core: &mut Core<D>, id: u32, status: Status) {
        let request = &mut self.requests[id as usize];
        request.status = status;
        if !status.is_success() {
            if let Some(progress) = &mut request.progress {
                progress.fail();
            }
            self.note_error(core, id, status);
            self.abandon_flush(core, id);
        }
        self.requests[id as usize].release_memory();
        self.queue_response(core, id);
    }

    fn take_buffers<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Outcome {
        // Nobody overtakes those who wait for room, nor others of the same peer.
        if !core.room_wanted && self.share.waiting.get() == 0 {
            match self.requests[id as usize].try_buffers(core, &self.share) {
                Buffers::Taken => return Outcome::Done,
                Buffers::NoRoom => core.room_wanted = true,
                Buffers::OverShare => {}
            }
        }
        core.wait_for_buffers(&self.share, Token { queue: self.index, request: id });
        Outcome::Wait
    }

    fn fetch<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Outcome {
        let request = &mut self.requests[id as usize];
        match request.dptr {
            DataPointer::None => Outcome::Done,
            DataPointer::InCapsule { .. } => {
                let copied = self.copy_from_capsule(id);
                self.release_capsule(core, id);
                outcome(copied)
            }
            DataPointer::Keyed { .. } | DataPointer::LastSegment { .. } => {
                let signed = request.plan_signed(core, &self.rw);
                let planned = signed.unwrap_or_else(|| {
                    request.scatter(core, Direction::FromHost);
                    request.plan(core, &self.rw, Direction::FromHost)
                });
                if let Err(status) = planned {
                    return Outcome::Fail(status);
                }
                match self.post_fetch(core, id) {
                    Post::Posted | Post::Waiting => Outcome::Wait,
                    Post::Dead => Outcome::Dead,
                }
            }
        }
    }

    /// The READs of a request completed.
    pub(super) fn on_fetched<D: Device>(&mut self, core: &mut Core<D>, id: u32) {
        self.fetched(core, id);
        self.requests[id as usize].split_stream();
        self.resume_credits(core);
        self.resume(core, id);
    }

    /// The step that a request waited in is done: go on with the next.
    pub(super) fn resume<D: Device>(&mut self, core: &mut Core<D>, id: u32) {
        if let Some(progress) = &mut self.requests[id as usize].progress {
            progress.done();
            self.advance(core, id);
        }
    }

    pub(super) fn plan_send<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Result<(), Status> {
        let request = &mut self.requests[id as usize];
        #[cfg(feature = "_fault")]
        request.meet(crate::block::fault::Moment::Leaving);
        if !request.dptr.is_in_host_memory() {
            return Ok(());
        }
        request.scatter(core, Direction::ToHost);
        if core.sges.is_empty() {
            return Ok(());
        }
        request.plan(core, &self.rw, Direction::ToHost)
    }

    /// Bytes that the SGL of a request describes. Reads the descriptors in the capsule, if there are any.
    fn sgl_length(&mut self, id: u32) -> Result<u32, Status> {
        let dptr = self.requests[id as usize].dptr;
        if matches!(dptr, DataPointer::LastSegment { .. }) {
            self.read_sgl_list(id)
        } else {
            Ok(dptr.length())
        }
    }

    #[cold]
    fn read_sgl_list(&mut self, id: u32) -> Result<u32, Status> {
        let capacity = self.in_capsule_capacity() as usize;
        let request = &self.requests[id as usize];
        let capsule = request.capsule.ok_or(Status::INTERNAL_ERROR)?;
        let received = capsule.length as usize - SQE_LEN;
        let Some(range) = request.dptr.in_capsule_range(received, capacity)? else { return Ok(0) };
        let mut bytes = [0; MAX_SGL_DESCRIPTORS * SGL_DESCRIPTOR_LEN];
        let bytes = bytes.get_mut(..range.len()).ok_or(Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS)?;
        let offset = u32::try_from(range.start).map_err(|_| Status::SGL_OFFSET_INVALID)?;
        self.capsule_data(capsule, offset, bytes);
        let list = &mut self.requests[id as usize].sgl;
        list.parse(bytes)?;
        Ok(list.length())
    }

    fn lock_range<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Outcome {
        let request = &mut self.requests[id as usize];
        let Work::Io(io) = &request.work else { return Outcome::Done };
        let (slba, blocks) = io.part();
        if blocks == 0 {
            return Outcome::Done;
        }
        let mode = if io.changes_medium() { Mode::Write } else { Mode::Read };
        let token = Token { queue: self.index, request: id };
        match core.lock(io.volume(), (slba, blocks), mode, &self.share, token) {
            Locked::Held(guard) => {
                request.range = Some(guard);
                Outcome::Done
            }
            Locked::Waiting(wait) => {
                request.range_wait = Some(wait);
                Outcome::Wait
            }
            Locked::Parked => Outcome::Wait,
            Locked::Unusable => Outcome::Fail(Status::INTERNAL_ERROR),
        }
    }

    /// Tries again for the range that a request waits for; whether it goes on.
    pub(super) fn retry_range<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> bool {
        let request = &mut self.requests[id as usize];
        let Some(guard) = request.range_wait.as_mut().and_then(RangeWait::poll) else { return false };
        request.range_wait = None;
        request.range = Some(guard);
        self.share.has_waited();
        self.resume(core, id);
        true
    }

    /// Tries again for buffers, and goes on with them.
    pub(super) fn retry_buffers<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Buffers {
        let taken = self.requests[id as usize].try_buffers(core, &self.share);
        if taken == Buffers::Taken {
            self.share.waiting.set(self.share.waiting.get().saturating_sub(1));
            self.resume(core, id);
        }
        taken
    }

    fn submit<D: Device>(&mut self, core: &mut Core<D>, id: u32, op: IoOp) -> Outcome {
        let token = Token { queue: self.index, request: id };
        let Some(io) = self.requests[id as usize].engine_io(op, token.pack()) else { return Outcome::Done };
        match core.submit(io) {
            Submitted::Done(done) => self.take_back(core, id, done),
            Submitted::Pending => {
                self.engine_busy += 1;
                self.requests[id as usize].with_engine = true;
                Outcome::Wait
            }
            Submitted::Waiting(io) => {
                self.requests[id as usize].restore(io);
                Outcome::Wait
            }
            Submitted::Unusable(io) => {
                self.requests[id as usize].restore(io);
                Outcome::Fail(Status::INTERNAL_ERROR)
            }
        }
    }

    /// The engine completed a request's operation.
    pub(super) fn on_engine<D: Device>(&mut self, core: &mut Core<D>, id: u32, done: IoDone) {
        self.engine_busy -= 1;
        self.requests[id as usize].with_engine = false;
        if self.is_closing() {
            drop(done);
            self.forget(core, id);
            return;
        }
        match self.take_back(core, id, done) {
            Outcome::Done => self.resume(core, id),
            Outcome::Fail(status) => self.finish(core, id, status),
            Outcome::Wait | Outcome::FetchAgain | Outcome::Dead => {
                unreachable!("a completed operation is done or failed")
            }
        }
    }

    fn take_back<D: Device>(&mut self, core: &mut Core<D>, id: u32, done: IoDone) -> Outcome {
        let IoDone { io, result } = done;
        let op = io.op;
        let volume = std::sync::Arc::clone(&io.volume);
        let request = &mut self.requests[id as usize];
        request.restore(io);
        match result {
            Ok(()) => Outcome::Done,
            Err(error) => self.io_failed(core, id, &volume, op, &error),
        }
    }

    /// Logs a failed operation on the medium and names the status for it.
    pub(super) fn io_failed<D: Device>(
        &mut self,
        core: &mut Core<D>,
        id: u32,
        volume: &Volume,
        op: IoOp,
        error: &IoError,
    ) -> Outcome {
        core.note_io_failed(volume, self.peer, error);
        self.failed_lba(id, error.lba);
        Outcome::Fail(super::io::media_status(op, error))
    }

    fn execute<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Outcome {
        match &self.requests[id as usize].work {
            Work::Admin(_) => self.execute_admin(core, id),
            Work::Fabrics(_) => self.execute_fabrics(core, id),
            Work::Io(_) => outcome(self.read_dsm_ranges(id)),
            Work::None | Work::Refused => Outcome::Fail(Status::INTERNAL_ERROR),
        }
    }
}

impl Request {
    /// Plans the READs or WRITEs of its data, whose pieces are listed in `core.sges`: of one piece of the host's memory, or
    /// of several in order.
    fn plan<D: Device>(&mut self, core: &mut Core<D>, qp: &RwQp, direction: Direction) -> Result<(), Status> {
        if let DataPointer::Keyed { segment, .. } = self.dptr {
            let planned = self.ctx.init(qp, &core.sges, 0, segment.at, direction);
            return planned.map(|_| ()).map_err(|_| Status::INTERNAL_ERROR);
        }
        self.plan_list(core, qp, direction)
    }

    #[cold]
    fn plan_list<D: Device>(
        &mut self,
        core: &mut Core<D>,
        qp: &RwQp,
        direction: Direction,
    ) -> Result<(), Status> {
        let mut builder = SegmentBuilder { qp, cache: &mut core.contexts, cc: &mut self.cc };
        let mut segments = SegmentCursor::new(self.sgl.segments());
        let built = builder.build_segments(&mut PieceCursor::new(&core.sges), &mut segments, direction);
        if built.is_err() || self.cc.is_empty() {
            self.cc.destroy(&mut core.contexts);
            return Err(Status::INTERNAL_ERROR);
        }
        Ok(())
    }
}

fn outcome(result: Result<(), Status>) -> Outcome {
    match result {
        Ok(()) => Outcome::Done,
        Err(status) => Outcome::Fail(status),
    }
}
