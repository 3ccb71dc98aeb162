//! A task's data: its buffers, the pieces of them in the order of the wire, and the medium's side.

use std::rc::Rc;
use std::sync::Arc;

use rwctx::device::Device;
use rwctx::plan::{Direction, needs_mr};
use rwctx::qp::RwQp;

use super::connection::Connection;
use super::request::{Ended, Request, Work};
use crate::block::{Buf, Io, IoOp};
use crate::iscsi::session::Transfer as HostMemory;
use crate::request::Kind;
use crate::scsi::sense::code;
use crate::transport::core::{Buffers, Core};
use crate::transport::share::Share;

/// Bytes of each of a request's buffers.
#[derive(Clone, Copy, Debug, Default)]
struct Sizes {
    data: u32,
    md: u32,
    second: [u32; 2],
    medium: [u32; 2],
    stream: u32,
}

impl Sizes {
    fn sum(&self) -> usize {
        let all = [self.data, self.md, self.stream].into_iter().chain(self.second).chain(self.medium);
        all.map(|bytes| bytes as usize).sum()
    }
}

impl Request {
    fn sizes<D: Device>(&self, core: &Core<D>) -> Sizes {
        match &self.work {
            Work::Answer(_) => Sizes { data: self.to_host, ..Sizes::default() },
            Work::Parameters { .. } => Sizes { data: self.from_host, ..Sizes::default() },
            Work::Blocks(work) => {
                let (bs, ms) = (work.volume().block_size(), u32::from(work.volume().metadata_size()));
                let of = |blocks: u32| [blocks * bs, blocks * ms];
                let [data, md] = of(work.host_blocks());
                let (second, medium) = (of(work.second_blocks()), of(work.medium_blocks()));
                let pieces = 2 * (work.host_blocks() + work.second_blocks()) as usize;
                let in_pieces = work.is_interleaved() || second[0] != 0;
                let streams =
                    in_pieces && self.from_host != 0 && needs_mr(&core.caps, Direction::FromHost, pieces);
                Sizes { data, md, second, medium, stream: if streams { self.from_host } else { 0 } }
            }
            Work::None | Work::Flush(_) | Work::Unmap(..) | Work::Settle | Work::Store(_) => Sizes::default(),
        }
    }

    /// Takes the buffers of the command, all or none.
    pub(super) fn try_buffers<D: Device>(&mut self, core: &Core<D>, share: &Rc<Share>) -> Buffers {
        let sizes = self.sizes(core);
        let bytes = sizes.sum();
        if !share.allows(bytes, core.pool.free_bytes()) {
            return Buffers::OverShare;
        }
        let take = |length: u32| match length {
            0 => Some(None),
            length => core.pool.take(length as usize).map(Some),
        };
        let taken = || {
            let [second, second_md] = sizes.second;
            let [medium, medium_md] = sizes.medium;
            let host = [take(sizes.data)?, take(sizes.md)?, take(sizes.stream)?];
            Some((host, [take(second)?, take(second_md)?], [take(medium)?, take(medium_md)?]))
        };
        let Some(([data, md, stream], second, medium)) = taken() else { return Buffers::NoRoom };
        (self.data, self.md, self.stream, self.second, self.medium) = (data, md, stream, second, medium);
        self.charge = (bytes > 0).then(|| share.charge(bytes));
        Buffers::Taken
    }

    /// Damages its blocks in memory, if a test wants that at this moment.
    #[cfg(feature = "_fault")]
    pub(super) fn meet(&mut self, moment: crate::block::fault::Moment) {
        if let Work::Blocks(work) = &self.work {
            work.volume().meet(moment, work.part().0, self.data.as_mut(), self.md.as_mut());
        }
    }

    /// How much of the data came along with the command, in bytes.
    fn immediate(&self) -> u32 {
        match &self.host {
            HostMemory::FromHost { immediate, .. } => {
                u32::try_from(immediate.len()).expect("a receive slot is a few KiB").min(self.from_host)
            }
            _ => 0,
        }
    }

    /// Calls `fill` with each piece of the buffers that the host's data goes to, in the order of the wire.
    fn for_each_piece(&mut self, mut fill: impl FnMut(&mut [u8])) {
        let tuples = match &self.work {
            Work::Blocks(work) if work.is_interleaved() => {
                Some((work.volume().block_size() as usize, usize::from(work.volume().metadata_size())))
            }
            _ => None,
        };
        let [second, second_md] = &mut self.second;
        for (data, md) in [(&mut self.data, &mut self.md), (second, second_md)] {
            let Some(data) = data else { continue };
            match (tuples, md) {
                (Some((bs, ms)), Some(md)) => {
                    let blocks = data.bytes_mut().chunks_exact_mut(bs);
                    for (block, tuple) in blocks.zip(md.bytes_mut().chunks_exact_mut(ms)) {
                        fill(block);
                        fill(tuple);
                    }
                }
                _ => fill(data.bytes_mut()),
            }
        }
    }

    /// Moves what came as on the wire to the buffers for data and tuples.
    pub(super) fn split_stream(&mut self) {
        let Some(stream) = self.stream.take() else { return };
        let mut rest = stream.bytes();
        self.for_each_piece(|piece| {
            let (here, behind) = rest.split_at(piece.len());
            piece.copy_from_slice(here);
            rest = behind;
        });
        self.stream = Some(stream);
    }

    /// Lists the pieces of the buffers in the order of the wire in `core.sges`: `length` bytes.
    fn scatter<D: Device>(&self, core: &mut Core<D>, direction: Direction, length: u32) {
        core.sges.clear();
        if let (Some(stream), Direction::FromHost) = (&self.stream, direction) {
            return core.list(stream, length, direction);
        }
        let interleaved = match &self.work {
            Work::Blocks(work) if work.is_interleaved() => Some(work.volume()),
            _ => None,
        };
        let [second, second_md] = &self.second;
        let mut left = length;
        for (data, md) in [(&self.data, &self.md), (second, second_md)] {
            let Some(data) = data else { continue };
            match (interleaved, md) {
                (Some(volume), Some(md)) => {
                    let (bs, ms) = (volume.block_size(), u32::from(volume.metadata_size()));
                    let (mut block, mut tuple) = (data.addr(), md.addr());
                    for _ in 0..data.len() / bs as usize {
                        for (addr, length) in [(&mut block, bs), (&mut tuple, ms)] {
                            let here = length.min(left);
                            if here != 0 {
                                let sge = core.sge(*addr, here);
                                core.sges.push(sge);
                            }
                            *addr += u64::from(length);
                            left -= here;
                        }
                    }
                }
                _ => {
                    let here = u32::try_from(data.len()).expect("a buffer is smaller than 4 GiB").min(left);
                    core.list(data, here, direction);
                    left -= here;
                }
            }
        }
    }

    /// Plans the READs of what did not come along; whether there is any.
    pub(super) fn plan_fetch<D: Device>(&mut self, core: &mut Core<D>, qp: &RwQp) -> Result<bool, Ended> {
        let came = self.immediate();
        if self.from_host <= came {
            return Ok(false);
        }
        let HostMemory::FromHost { solicited: Some(segment), .. } = &self.host else {
            return Err(code::INTERNAL_TARGET_FAILURE.into());
        };
        let at = segment.at;
        self.scatter(core, Direction::FromHost, self.from_host);
        match self.ctx.init(qp, &core.sges, came, at, Direction::FromHost) {
            Ok(_) => Ok(true),
            Err(_) => Err(code::INTERNAL_TARGET_FAILURE.into()),
        }
    }

    /// The engine's operation for the current part; `None` when there is nothing to do.
    pub(super) fn engine_io(&mut self, op: IoOp, token: u64) -> Option<Io> {
        let (volume, (slba, nlb), fua) = match &self.work {
            Work::Flush(volume) => (volume, (0, 0), false),
            Work::Unmap(volume, extents, at) => {
                let extent = extents.get(*at)?;
                (volume, (extent.lba, extent.blocks), false)
            }
            Work::Blocks(work) => (work.volume(), work.part(), work.transfer.durable),
            Work::None | Work::Answer(_) | Work::Parameters { .. } | Work::Settle | Work::Store(_) => {
                return None;
            }
        };
        let volume = Arc::clone(volume);
        let [data, md] = self.side(op).map(|side| side.and_then(Option::take));
        Some(Io { volume, op, slba, nlb, data, md, fua, guard: self.range.take(), token })
    }

    /// Puts what the engine gives back into its place.
    pub(super) fn restore(&mut self, io: Io) {
        let Io { op, data, md, guard, .. } = io;
        for (place, buf) in self.side(op).into_iter().zip([data, md]) {
            if let (Some(place), Some(buf)) = (place, buf) {
                *place = Some(buf);
            }
        }
        self.range = guard;
    }

    /// The buffers that an operation on the medium uses.
    fn side(&mut self, op: IoOp) -> [Option<&mut Option<Buf>>; 2] {
        let (beside, kind) = match &self.work {
            Work::Blocks(work) => (work.reads_beside(), work.kind()),
            _ => return [None, None],
        };
        let [second, second_md] = &mut self.second;
        let [medium, medium_md] = &mut self.medium;
        match (op, kind) {
            (IoOp::Read, _) if beside => [Some(medium), Some(medium_md)],
            (IoOp::Write, Kind::WriteSame) => [Some(medium), Some(medium_md)],
            (IoOp::Write, Kind::CompareAndWrite) => [Some(second), Some(second_md)],
            (IoOp::Read | IoOp::Write, _) => [Some(&mut self.data), Some(&mut self.md)],
            (IoOp::Flush | IoOp::Deallocate | IoOp::WriteZeroes, _) => [None, None],
        }
    }
}

impl Connection {
    /// Copies what came along with a command to its buffers.
    pub(super) fn copy_immediate(&mut self, id: u32) {
        let request = &mut self.requests[id as usize];
        let mut left = request.immediate() as usize;
        let (Some(arrived), HostMemory::FromHost { immediate, .. }) = (request.arrived, &request.host) else {
            return;
        };
        let mut at = immediate.start;
        // The request is out of its place while the message is looked at.
        let mut request = std::mem::replace(request, Request::new());
        let mut fill = |piece: &mut [u8]| {
            let here = left.min(piece.len());
            self.read_received(arrived, at, &mut piece[..here]);
            at += here;
            left -= here;
        };
        match &mut request.stream {
            Some(stream) => fill(stream.bytes_mut()),
            None => request.for_each_piece(fill),
        }
        self.requests[id as usize] = request;
    }

    /// Plans the WRITEs of a command's data.
    pub(super) fn plan_send<D: Device>(&mut self, core: &mut Core<D>, id: u32) -> Result<(), Ended> {
        let request = &mut self.requests[id as usize];
        #[cfg(feature = "_fault")]
        request.meet(crate::block::fault::Moment::Leaving);
        let HostMemory::ToHost(segment) = &request.host else { return Ok(()) };
        let at = segment.at;
        if request.to_host == 0 {
            return Ok(());
        }
        request.scatter(core, Direction::ToHost, request.to_host);
        match request.ctx.init(&self.rw, &core.sges, 0, at, Direction::ToHost) {
            Ok(_) => Ok(()),
            Err(_) => Err(code::INTERNAL_TARGET_FAILURE.into()),
        }
    }
}
