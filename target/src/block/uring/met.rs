//! How parts and sectors meet with the faults that tests inject.

use super::super::fault::PartFault;
use super::super::file::FileBackend;
use super::super::io::Area;
use super::edge::NIL;
use super::operation::Operation;
use super::part::Work;
use super::{Files, Kept, area, disk};

impl Files {
    /// What the next operation meets with.
    pub(in super::super) fn set_fault(&mut self, fault: PartFault) {
        self.fault = Some(fault);
    }
}

impl Kept {
    /// The failure that one of those who write the sector meets with.
    pub(super) fn edge_fault(&mut self, index: u32, backend: &FileBackend) -> Option<i32> {
        let Self { edges, operations, .. } = self;
        let mut member = edges.edge(index).0.writing;
        while member != NIL {
            let operation = operations[member as usize / 2].as_ref()?;
            if let Some(PartFault::Fail { errno, area: of, .. }) = operation.fault
                && of == area(backend)
            {
                return Some(errno);
            }
            member = operation.next[member as usize % 2];
        }
        None
    }
}

impl Operation {
    /// The failure that a part meets with now, or none; shortens it before one, or because of a rule.
    pub(super) fn meet(&mut self, side: usize, backend: &FileBackend) -> Option<i32> {
        let of = if side == 0 { Area::Data } else { area(backend) };
        let part = &mut self.parts[side];
        part.most = u64::MAX;
        match self.fault? {
            PartFault::Short { bytes } if part.done == 0 => {
                let sector = disk(backend, side).sector as u64;
                part.most = (bytes / sector).max(1) * sector;
                None
            }
            PartFault::Short { .. } => None,
            PartFault::Fail { area, .. } if area != of => None,
            PartFault::Fail { errno, lba, .. } => {
                let start = (part.offset + part.done) / backend.block_size as u64;
                let moves = matches!(part.work, Work::Read | Work::Write) && side == 0;
                if moves && start < lba {
                    part.most = (lba - start) * backend.block_size as u64;
                    return None;
                }
                Some(-errno)
            }
        }
    }
}
