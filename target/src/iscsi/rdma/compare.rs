//! Comparing the host's blocks with the medium's, and one block in the place of many.

use t10pi::scsi::{FORMATTED_TUPLE, write_same};
use t10pi::{Checks, Field, PiType};

use super::blocks::{BlockWork, TUPLE};
use super::connection::Connection;
use super::exec::Outcome;
use super::request::{Ended, Request, Work};
use crate::block::Buf;
use crate::scsi::sense::Sense;
use crate::scsi::transfer::{Tuples, Work as Blocks};

impl Connection {
    /// Compares the host's data with the medium's, and of the tuples what the command asks for.
    pub(super) fn compare(&self, id: u32) -> Outcome {
        let request = &self.requests[id as usize];
        let Work::Blocks(work) = &request.work else { return Outcome::Done };
        if work.transfer.work == Blocks::WriteAndVerify {
            return Outcome::Done;
        }
        let host = [&request.data, &request.md].map(bytes);
        let medium = request.medium.each_ref().map(bytes);
        match work.compare(host, medium) {
            Ok(()) => Outcome::Done,
            Err(sense) => Outcome::End(Ended { length: request.length, ..Ended::check(sense) }),
        }
    }
}

fn bytes(buf: &Option<Buf>) -> &[u8] {
    buf.as_ref().map_or(&[][..], Buf::bytes)
}

impl BlockWork {
    /// Compares data and tuples of the host's with the medium's, block by block.
    fn compare(&self, [data, md]: [&[u8]; 2], [on_medium, md_on_medium]: [&[u8]; 2]) -> Result<(), Sense> {
        let bs = self.volume().block_size() as usize;
        let one = self.transfer.work == Blocks::CompareOne;
        let checks = self.transfer.protection.compare;
        for (block, there) in on_medium.chunks_exact(bs).enumerate() {
            let of_host = if one { 0 } else { block };
            let here = &data[of_host * bs..(of_host + 1) * bs];
            if here != there {
                let within = here.iter().zip(there).position(|(a, b)| a != b).unwrap_or_default();
                return Err(self
                    .transfer
                    .data_differ(of_host as u64 * u64::from(self.wire_block()) + within as u64));
            }
            let tuple = |md: &[u8], block: usize| md.as_chunks::<{ TUPLE as usize }>().0.get(block).copied();
            if self.is_interleaved()
                && let (Some(here), Some(there)) = (tuple(md, of_host), tuple(md_on_medium, block))
                && let Some(field) = differing(here, there, checks)
            {
                return Err(self.transfer.tuple_differs(field, block as u64));
            }
        }
        Ok(())
    }
}

/// The first field, of those that are compared, in which two tuples differ.
fn differing(here: [u8; 8], there: [u8; 8], checks: Checks) -> Option<Field> {
    let fields = [
        (checks.guard, 0..2, Field::Guard),
        (checks.app_tag, 2..4, Field::AppTag),
        (checks.ref_tag, 4..8, Field::RefTag),
    ];
    fields
        .into_iter()
        .find(|(compared, at, _)| *compared && here[at.clone()] != there[at.clone()])
        .map(|(.., field)| field)
}

impl Request {
    /// Fills the buffers of WRITE SAME's current part with the host's block.
    pub(super) fn prepare_same(&mut self) {
        let Work::Blocks(work) = &self.work else { return };
        let (Some(block), [Some(data), md]) = (&self.data, &mut self.medium) else { return };
        let (lba, blocks) = work.part();
        data.set_len(blocks as usize * block.len());
        data.bytes_mut().chunks_exact_mut(block.len()).for_each(|to| to.copy_from_slice(block.bytes()));
        let (Some(md), Some(protection)) = (md, work.volume().protection()) else { return };
        md.set_len(blocks as usize * TUPLE as usize);
        let done = lba - work.transfer.lba;
        match (&work.transfer.protection.tuples, &self.md) {
            (Tuples::FromHost(_), Some(tuple)) => {
                let tuple =
                    tuple.bytes().first_chunk().map(|tuple| advanced(*tuple, protection.pi_type, done));
                write_same(protection.pi_type, tuple.unwrap_or(FORMATTED_TUPLE), md.bytes_mut());
            }
            (Tuples::Generate(pi), _) => pi.from_block(done).generate(&[data.bytes()], &mut [md.bytes_mut()]),
            _ => md.bytes_mut().fill(0xff),
        }
    }

    /// Goes to the next part of WRITE SAME; `false` when all is done.
    pub(super) fn next_same(&mut self) -> bool {
        let Work::Blocks(work) = &mut self.work else { return false };
        let (lba, blocks) = work.part();
        let next = lba + u64::from(blocks);
        let left = work.transfer.lba + u64::from(work.transfer.blocks) - next;
        let Some(blocks) = u32::try_from(left).ok().filter(|left| *left != 0).map(|left| left.min(blocks))
        else {
            return false;
        };
        work.set_part((next, blocks));
        self.prepare_same();
        true
    }
}

/// The tuple of WRITE SAME's block `done`, when the first one has `tuple`.
fn advanced(tuple: [u8; 8], pi_type: PiType, done: u64) -> [u8; 8] {
    let mut tuples = tuple;
    if pi_type != PiType::Type3 && tuple != FORMATTED_TUPLE {
        let [head @ .., a, b, c, d] = tuple;
        let steps = u32::try_from(done & u64::from(u32::MAX)).expect("32 bits");
        let ref_tag = u32::from_be_bytes([a, b, c, d]).wrapping_add(steps);
        tuples[..4].copy_from_slice(&head);
        tuples[4..].copy_from_slice(&ref_tag.to_be_bytes());
    }
    tuples
}
