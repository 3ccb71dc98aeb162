//! Transfers with signatures, and what must become of them: the same for simulated devices and real ones. (rw-contexts 2.3)

use t10pi::{Checks, PiMismatch, PiType};

use super::bench::PAGE;
use crate::plan::Direction;
use crate::signature::testing::{attrs, domain, formats, join, protected};
use crate::signature::{CopyMask, Operation, SigAttrs, SigDomain, Signature};

/// Memory of a transfer: half for data, half for protection information.
pub(crate) const SLOT: usize = 1 << 18;
/// Pages of either half that a transfer has at most, with those that lie between its own.
pub(crate) const PAGES: u32 = 32;

/// Place and length.
pub(crate) type Piece = (usize, usize);

/// A transfer, and what must be true after it.
pub(crate) struct Transfer {
    pub(crate) signature: Signature,
    pub(crate) data: Vec<Piece>,
    pub(crate) protection: Vec<Piece>,
    /// Where it lies in the peer's memory.
    pub(crate) remote: usize,
    pub(crate) wire: Vec<u8>,
    /// What the data list and the protection list hold before and after.
    pub(crate) before: [Vec<u8>; 2],
    pub(crate) after: [Vec<u8>; 2],
    pub(crate) found: Option<PiMismatch>,
}

/// Some transfer whose memory lies from `at` on, on both sides.
pub(crate) fn transfer(rng: &mut fastrand::Rng, at: usize) -> Transfer {
    let format = formats()[rng.usize(0..formats().len())];
    let pi_type = [PiType::Type1, PiType::Type3][rng.usize(0..2)];
    let blocks = rng
        .usize(1..=(PAGES as usize - 4) * PAGE / 2 / format.interleaved_block_size())
        .min(rng.usize(1..50));
    let (mem, wire) = (domain(format, pi_type, rng.u64(..)), domain(format, pi_type, rng.u64(..)));
    let (mem, wire) = match rng.u32(0..6) {
        0 | 1 => (Some(mem), None),
        2 | 3 => (None, Some(wire)),
        4 => (Some(mem), Some(mem)),
        _ => (Some(mem), Some(wire)),
    };
    let check_mask = Checks {
        guard: rng.u32(0..4) > 0,
        app_tag: rng.bool(),
        storage_tag: rng.bool(),
        ref_tag: rng.bool(),
    };
    let copy_mask = match rng.bool() {
        true => CopyMask::Equal,
        false => CopyMask::Fields(Checks {
            guard: rng.bool(),
            app_tag: rng.bool(),
            storage_tag: rng.bool(),
            ref_tag: rng.bool(),
        }),
    };
    let attrs = SigAttrs { check_mask, copy_mask, ..attrs(mem, wire) };
    let direction = if rng.bool() { Direction::ToHost } else { Direction::FromHost };
    let interleaved = mem.is_some() && rng.bool();
    expected(rng, &attrs, direction, blocks, interleaved, at)
}

/// What must become of random blocks, with damage in them, by the software path.
pub(crate) fn expected(
    rng: &mut fastrand::Rng,
    attrs: &SigAttrs,
    direction: Direction,
    blocks: usize,
    interleaved: bool,
    at: usize,
) -> Transfer {
    let signature = Signature::new(attrs, direction).unwrap();
    let dif = |domain| match domain {
        SigDomain::T10Dif(dif) => Some(dif),
        SigDomain::None => None,
    };
    let (from, to) = match direction {
        Direction::ToHost => (dif(attrs.mem), dif(attrs.wire)),
        Direction::FromHost => (dif(attrs.wire), dif(attrs.mem)),
    };
    let (data, given) = protected(&from.or(to).unwrap(), blocks, rng);
    of_blocks(rng, signature, interleaved, at, data, &given)
}

/// The same, of these blocks as they come in.
pub(crate) fn of_blocks(
    rng: &mut fastrand::Rng,
    signature: Signature,
    interleaved: bool,
    at: usize,
    mut data: Vec<u8>,
    given: &[u8],
) -> Transfer {
    let format = *signature.format();
    let (inserts, direction) = (signature.operation() == Operation::Insert, signature.direction());
    let junk = vec![rng.u8(..); given.len()];
    let in_memory = |data: &[u8], md: &[u8]| {
        if !signature.protects_memory() {
            [data.to_vec(), Vec::new()]
        } else if interleaved {
            [join(&format, data, md), Vec::new()]
        } else {
            [data.to_vec(), md.to_vec()]
        }
    };
    let on_wire = |data: &[u8], md: &[u8]| {
        if signature.protects_wire() { join(&format, data, md) } else { data.to_vec() }
    };
    let makes = matches!(signature.operation(), Operation::Insert | Operation::Rewrite);
    let mut made = junk.clone();
    let (before, after, wire, status) = if direction == Direction::ToHost {
        let md: &[&[u8]] = if inserts { &[] } else { &[given] };
        let room: &mut [&mut [u8]] = if makes { &mut [&mut made] } else { &mut [] };
        let status = signature.before_write(&[&data], md, room);
        let memory = in_memory(&data, given);
        (memory.clone(), memory, on_wire(&data, if makes { &made } else { given }), status)
    } else {
        let wire = on_wire(&data, given);
        let before = in_memory(&vec![rng.u8(..); data.len()], &junk);
        if signature.operation() == Operation::Verify {
            made.copy_from_slice(given);
        }
        let apart: &[&[u8]] = if signature.apart_bytes(1) > 0 { &[given] } else { &[] };
        let memory: &mut [&mut [u8]] = if signature.protects_memory() { &mut [&mut made] } else { &mut [] };
        let status = signature.after_read(&mut [&mut data], memory, apart);
        (before, in_memory(&data, &made), wire, status)
    };
    let [data, protection] = [0, 1].map(|list| pieces(rng, at + list * SLOT / 2, before[list].len()));
    let remote = at + rng.usize(0..PAGE);
    Transfer {
        signature,
        data,
        protection,
        remote,
        wire,
        before,
        after,
        found: status.mismatch(&format).err(),
    }
}

/// Pieces of `length` bytes from `at` on with page boundaries between them.
fn pieces(rng: &mut fastrand::Rng, at: usize, length: usize) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut left = length;
    let mut next = at + rng.usize(0..PAGE);
    while left > 0 {
        let to_page = next.next_multiple_of(PAGE) - next;
        let now = left.min(if to_page > 0 { to_page } else { rng.usize(1..6) * PAGE });
        pieces.push((next, now));
        left -= now;
        next += now + rng.usize(0..2) * PAGE;
    }
    pieces
}
