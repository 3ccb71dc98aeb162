//! Executes tasks step by step: a command goes on until a step has to wait.
//!
//! Which step comes next is [`Progress`]'s; how a step is done is here, in `blocks` and in `data`. A step that fails lets go of
//! what the request holds and leaves the response.

use rwctx::device::Device;
use rwctx::plan::Direction;

use super::Common;
use super::blocks::BlockWork;
use super::connection::{Connection, Phase, Post};
use super::request::{Arrived, Ended, Request, Work};
use crate::block::{IoDone, IoOp, Mode, RangeWait};
use crate::iscsi::session::Command;
use crate::request::{Kind, Progress, Step};
use crate::scsi::lun::{Action, Response};
use crate::scsi::sense::code;
use crate::scsi::shared::Handled;
use crate::scsi::status::Status;
use crate::transport::core::{Buffers, Core, Locked, Submitted, Token};

/// How a step went.
pub(super) enum Outcome {
    /// Go on.
    Done,
    /// Go back to where the host's data is fetched.
    FetchAgain,
    /// Go on with what the request has become.
    Became,
    /// Something resumes it later.
    Wait,
    /// Answer.
    End(Ended),
    /// The connection is beyond help; it closes.
    Dead,
}

impl Connection {
    /// Starts a command.
    pub(super) fn start<D: Device>(
        &mut self,
        core: &mut Core<D>,
        common: &mut Common,
        id: u32,
        command: Command,
        arrived: Option<Arrived>,
    ) {
        let request = &mut self.requests[id as usize];
        request.task = Some(command.task);
        request.lun = command.lun.0;
        request.host = command.data;
        request.arrived = arrived;
        request.progress = Some(Progress::new(Kind::Plain));
        request.work = Work::None;
        (request.length, request.to_host, request.from_host) = (0, 0, 0);
        let (Phase::Session(logged), Some(attached)) = (&mut self.phase, &self.attached) else {
            return self.finish(core, common, id, &code::INTERNAL_TARGET_FAILURE.into());
        };
        let handled =
            attached.target.handle_command(&mut logged.view, attached.id, command.lun.0, &command.cdb);
        self.proceed(core, common, id, handled);
    }

    /// Goes on with what the unit says.
    fn proceed<D: Device>(&mut self, core: &mut Core<D>, common: &mut Common, id: u32, handled: Handled) {
        match self.take_on(core, common, id, handled) {
            Ok(()) => self.advance(core, common, id),
            Err(ended) => self.finish(core, common, id, &ended),
        }
    }

    /// Makes a request what the unit says, or says how it ends.
    fn take_on<D: Device>(
        &mut self,
        core: &mut Core<D>,
        common: &mut Common,
        id: u32,
        handled: Handled,
    ) -> Result<(), Ended> {
        let Handled { action, volume, format } = handled;
        self.requests[id as usize].format = format;
        let gone = || Ended::from(code::LOGICAL_UNIT_NOT_SUPPORTED);
        let (kind, work) = match action {
            Action::Done(response) => self.answer(id, response)?,
            Action::Fetch { operation, command, length } => {
                let request = &mut self.requests[id as usize];
                let wanted =
                    u32::try_from(length).map_err(|_| Ended::from(code::PARAMETER_LIST_LENGTH_ERROR))?;
                request.length = u64::from(wanted);
                if request.offered(Direction::FromHost) < wanted {
                    return Err(Ended { length: request.length, ..code::PARAMETER_LIST_LENGTH_ERROR.into() });
                }
                request.from_host = wanted;
                (Kind::FromHost, Work::Parameters { operation, command, length })
            }
            Action::Transfer(transfer) => {
                let request = &mut self.requests[id as usize];
                let work = BlockWork::new(core, transfer, volume.ok_or_else(gone)?);
                request.length = if transfer.to_host == 0 { transfer.from_host } else { transfer.to_host };
                let work = request.fit(work)?;
                (work.kind(), Work::Blocks(work))
            }
            Action::Flush { .. } => (Kind::Flush, Work::Flush(volume.ok_or_else(gone)?)),
            Action::Unmap(extents) => (Kind::Unmap, Work::Unmap(volume.ok_or_else(gone)?, extents, 0)),
            Action::Settle { abort } => {
                self.abort_others(core, common, id, abort);
                (Kind::Settle, Work::Settle)
            }
            // Units say that they store nothing, and are asked for nothing.
            Action::Store { change, saved } => {
                self.store(common, id, change, saved)?;
                (Kind::Settle, Work::Store(change))
            }
        };
        let request = &mut self.requests[id as usize];
        request.progress = Some(Progress::new(kind));
        request.work = work;
        Ok(())
    }

    /// An answer: with data for the host, or that is all.
    fn answer(&mut self, id: u32, response: Response) -> Result<(Kind, Work), Ended> {
        let request = &mut self.requests[id as usize];
        let Response { status, sense, data } = response;
        request.length = data.len() as u64;
        let wanted = u32::try_from(data.len()).unwrap_or(u32::MAX).min(request.offered(Direction::ToHost));
        if wanted == 0 {
            return Err(Ended { status, sense, length: request.length });
        }
        request.to_host = wanted;
        Ok((Kind::ToHost, Work::Answer(data)))
    }

    /// Goes on with a request until it waits or its response is queued.
    pub(super) fn advance<D: Device>(&mut self, core: &mut Core<D>, common: &mut Common, id: u32) {
        loop {
            if self.end_if_aborted(core, common, id) {
                return;
            }
            let request = &mut self.requests[id as usize];
            let Some(step) = request.progress.as_ref().map(Progress::step) else { return };
            let outcome = match step {
                Step::TakeBuffers => self.take_buffers(core, id),
                Step::Fetch => self.fetch(core, id),
                Step::ProtectFromHost => self.protect_from_host(core, id),
                Step::LockRange => self.lock_range(core, id),
                Step::ReadMedium => self.submit(core, id, IoOp::Read),
                // Of reads in place.
                Step::PrefetchMedium | Step::UseMedium => Outcome::End(code::INTERNAL_TARGET_FAILURE.into()),
                Step::WriteMedium => self.submit(core, id, IoOp::Write),
                Step::ZeroMedium => self.submit(core, id, IoOp::WriteZeroes),
                Step::DeallocateMedium => self.submit(core, id, IoOp::Deallocate),
                Step::FlushMedium => self.submit(core, id, IoOp::Flush),
                Step::UnlockRange => {
                    request.range = None;
                    Outcome::Done
                }
                Step::CheckFromMedium => self.check_from_medium(core, id),
                Step::Compare => self.compare(id),
                Step::Execute => self.execute(core, common, id),
                Step::NextPart(_) => {
                    if request.next_part() {
                        if let Some(progress) = &mut request.progress {
                            progress.again();
                        }
                        // A command with many parts keeps nobody waiting.
                        return core.next_round.push_back(Token { queue: self.index, request: id });
                    }
                    Outcome::Done
                }
                Step::SendData => match self.plan_send(core, id) {
                    Ok(()) => return self.complete(core, common, id),
                    Err(ended) => Outcome::End(ended),
                },
                Step::Respond => return self.complete(core, common, id),
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
                Outcome::Became => {}
                Outcome::Wait => return,
                Outcome::End(ended) => return self.finish(core, common, id, &ended),
                Outcome::Dead => return core.close_later(self.index),
            }
        }
    }

    /// A command succeeded; its data, if it is for the host, is planned.
    fn complete<D: Device>(&mut self, core: &mut Core<D>, common: &mut Common, id: u32) {
        let request = &mut self.requests[id as usize];
        common.stats.bytes_to_host.add(request.to_host.into());
        common.stats.bytes_from_host.add(request.from_host.into());
        let ended = Ended::good(request.length);
        if request.to_host == 0 {
            request.release_memory();
        }
        self.end(core, common, id, &ended);
    }

    /// A command ends without data.
    pub(super) fn finish<D: Device>(
        &mut self,
        core: &mut Core<D>,
        common: &mut Common,
        id: u32,
        ended: &Ended,
    ) {
        let request = &mut self.requests[id as usize];
        if let Some(progress) = &mut request.progress {
            progress.fail();
        }
        request.release_memory();
        if ended.sense.is_some() || ended.status != Status::Good {
            common.stats.failed_commands.add(1);
        }
        self.end(core, common, id, ended);
    }

    /// Tells the session that a task has ended, and sends what it answers.
    fn end<D: Device>(&mut self, core: &mut Core<D>, common: &mut Common, id: u32, ended: &Ended) {
        let request = &mut self.requests[id as usize];
        let arrived = request.arrived.take();
        let format = request.format;
        request.let_waiters_go();
        let task = request.task.take();
        if let Some(arrived) = arrived {
            self.repost(core, arrived);
        }
        let Some(task) = task else { return };
        if !self.done(core, common, task, Some(id), ended, format) {
            self.free_request(id);
        }
    }

    /// Ends a task that was aborted, unless it waits for the medium or for the host's data; whether it did.
    pub(super) fn end_if_aborted<D: Device>(
        &mut self,
        core: &mut Core<D>,
        common: &mut Common,
        id: u32,
    ) -> bool {
        let request = &mut self.requests[id as usize];
        if !request.aborted || request.task.is_none() || request.with_engine || request.fetching {
            return false;
        }
        self.forget_waits(core, id);
        self.finish(core, common, id, &code::INTERNAL_TARGET_FAILURE.into());
        true
    }

    /// Takes a request from the lists of those who wait.
    fn forget_waits<D: Device>(&mut self, core: &mut Core<D>, id: u32) {
        let token = Token { queue: self.index, request: id };
        core.forget_request(token, &self.share);
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

    /// Tries again for buffers, and goes on with them.
    pub(super) fn retry_buffers<D: Device>(
        &mut self,
        core: &mut Core<D>,
        common: &mut Common,
        id: u32,
    ) -> Buffers {
        let taken = self.requests[id as usize].try_buffers(core, &self.share);
        if taken == Buffers::Taken {
            self.share.waiting.set(self.share.waiting.get().saturating_sub(1));
            self.resume(core, common, id);
        }
        taken
    }

    fn fetch<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Outcome {
        self.copy_immediate(id);
        if let Some(arrived) = self.requests[id as usize].arrived.take() {
            self.repost(core, arrived);
        }
        match self.requests[id as usize].plan_fetch(core, &self.rw) {
            Ok(false) => {
                self.requests[id as usize].split_stream();
                Outcome::Done
            }
            Ok(true) => match self.post_fetch(core, id) {
                Post::Posted => Outcome::Wait,
                Post::Dead => Outcome::Dead,
            },
            Err(ended) => Outcome::End(ended),
        }
    }

    /// The READs of a request completed.
    pub(super) fn on_fetched<D: Device>(&mut self, core: &mut Core<D>, common: &mut Common, id: u32) {
        self.fetched(core, id);
        self.requests[id as usize].split_stream();
        self.resume(core, common, id);
    }

    /// The step that a request waited in is done: go on with the next.
    pub(super) fn resume<D: Device>(&mut self, core: &mut Core<D>, common: &mut Common, id: u32) {
        if let Some(progress) = &mut self.requests[id as usize].progress {
            progress.done();
            self.advance(core, common, id);
        }
    }

    fn lock_range<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Outcome {
        let request = &mut self.requests[id as usize];
        let (volume, part, mode) = match &request.work {
            Work::Blocks(work) if work.changes_medium() => (work.volume(), work.part(), Mode::Write),
            Work::Blocks(work) => (work.volume(), work.part(), Mode::Read),
            Work::Unmap(volume, extents, at) => {
                (volume, (extents[*at].lba, extents[*at].blocks), Mode::Write)
            }
            _ => return Outcome::Done,
        };
        let token = Token { queue: self.index, request: id };
        match core.lock(volume, part, mode, &self.share, token) {
            Locked::Held(guard) => {
                request.range = Some(guard);
                Outcome::Done
            }
            Locked::Waiting(wait) => {
                request.range_wait = Some(wait);
                Outcome::Wait
            }
            Locked::Parked => Outcome::Wait,
            Locked::Unusable => Outcome::End(code::INTERNAL_TARGET_FAILURE.into()),
        }
    }

    /// Tries again for the range that a request waits for; whether it goes on.
    pub(super) fn retry_range<D: Device>(
        &mut self,
        core: &mut Core<D>,
        common: &mut Common,
        id: u32,
    ) -> bool {
        let request = &mut self.requests[id as usize];
        let Some(guard) = request.range_wait.as_mut().and_then(RangeWait::poll) else { return false };
        request.range_wait = None;
        request.range = Some(guard);
        self.share.has_waited();
        self.resume(core, common, id);
        true
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
                Outcome::End(code::INTERNAL_TARGET_FAILURE.into())
            }
        }
    }

    /// The engine completed a request's operation.
    pub(super) fn on_engine<D: Device>(
        &mut self,
        core: &mut Core<D>,
        common: &mut Common,
        id: u32,
        done: IoDone,
    ) {
        self.engine_busy -= 1;
        self.requests[id as usize].with_engine = false;
        if self.is_closing() {
            drop(done);
            self.requests[id as usize].clear();
            return;
        }
        match self.take_back(core, id, done) {
            Outcome::End(ended) => self.finish(core, common, id, &ended),
            _ => self.resume(core, common, id),
        }
    }

    fn take_back<D: Device>(&mut self, core: &mut Core<D>, id: u32, done: IoDone) -> Outcome {
        let IoDone { io, result } = done;
        let volume = std::sync::Arc::clone(&io.volume);
        self.requests[id as usize].restore(io);
        match result {
            Ok(()) => Outcome::Done,
            Err(error) => Outcome::End(self.io_failed(core, id, &volume, &error)),
        }
    }

    fn execute<D: Device>(&mut self, core: &mut Core<D>, common: &mut Common, id: u32) -> Outcome {
        let request = &mut self.requests[id as usize];
        match &request.work {
            Work::Answer(answer) => {
                let Some(buf) = &mut request.data else { return Outcome::Done };
                let length = buf.len().min(answer.len());
                buf.bytes_mut()[..length].copy_from_slice(&answer[..length]);
                Outcome::Done
            }
            Work::Blocks(_) => {
                request.prepare_same();
                Outcome::Done
            }
            Work::Settle | Work::Store(_) => self.settle(id),
            Work::Parameters { operation, command, length } => {
                let (Some(buf), Some(attached)) = (&request.data, &self.attached) else {
                    return Outcome::End(code::INTERNAL_TARGET_FAILURE.into());
                };
                let Some(list) = buf.bytes().get(..*length) else {
                    return Outcome::End(code::INTERNAL_TARGET_FAILURE.into());
                };
                let handled =
                    attached.target.handle_parameters(attached.id, request.lun, operation, command, list);
                let length = request.length;
                match self.take_on(core, common, id, handled) {
                    Ok(()) => {
                        self.requests[id as usize].length = length;
                        Outcome::Became
                    }
                    Err(ended) => Outcome::End(Ended { length, ..ended }),
                }
            }
            Work::None | Work::Flush(_) | Work::Unmap(..) => {
                Outcome::End(code::INTERNAL_TARGET_FAILURE.into())
            }
        }
    }
}

impl Request {
    /// Goes to the next part of the work; `false` when all is done.
    fn next_part(&mut self) -> bool {
        match &mut self.work {
            Work::Unmap(_, extents, at) => {
                *at += 1;
                *at < extents.len()
            }
            Work::Blocks(_) => self.next_same(),
            _ => false,
        }
    }
}
