//! Contexts with signatures: the device's where it runs them, software's around a plain context elsewhere; with one result. (rw-contexts
//! 1.7, 2.3, 2.4)

use t10pi::{Checks, Field, PiContext, PiType, Tags};

use super::bench::{Bench, PAGE, random};
use super::transfer::{Piece, SLOT, Transfer, transfer};
use super::{MEMORY, Rig, Side};
use crate::ctx::RwCtx;
use crate::device::{Device, DeviceError};
use crate::plan::{Direction, Kind, RwError};
use crate::remote::Rkey;
use crate::signature::testing::{attrs, domain, formats};
use crate::signature::{Operation, SigStatus, Signature};
use crate::wc::WcStatus;
use crate::wr::Sge;

/// Transfers of the random case, on a slow device.
const TRANSFERS: u64 = 150;
/// Where software holds metadata that is on the wire alone.
const APART: usize = MEMORY - SLOT;
/// A buffer for what is on the wire.
const BUFFER: usize = MEMORY - 2 * SLOT;

/// How a transfer was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Device,
    Software,
}

pub(crate) fn tuples_are_made_checked_and_left_out_as_software_does_it<R: Rig>(make: impl Fn() -> R) {
    let mut bench = Bench::new(make(), 2);
    let mut seen = [[0; 2]; 4];
    let mut by_device = 0;
    for seed in 0..TRANSFERS * R::ROUNDS {
        let mut rng = fastrand::Rng::with_seed(seed);
        let transfer = transfer(&mut rng, 0);
        let Some((by, status)) = carry_out(&mut bench, &transfer) else { continue };
        let format = transfer.signature.format();
        let (found, expected) = (status.mismatch(format).err(), transfer.found);
        let same = match (found, expected) {
            // One of several faults of a block: the device's choice.
            (Some(found), Some(expected)) if found.field != expected.field && !R::NAMES_FIRST_FAULT => {
                found.block == expected.block
            }
            _ => found == expected,
        };
        assert!(same, "seed {seed}, {by:?}: {found:?}, not {expected:?}");
        bench.check_memory(&format!("seed {seed}, {by:?}, {:?}", transfer.signature.operation()));
        seen[transfer.signature.operation() as usize][usize::from(expected.is_some())] += 1;
        by_device += u32::from(by == By::Device);
    }
    let offers = bench.rig.device().caps().max_pi_fast_reg_page_list_len > 0;
    assert_eq!(by_device > 0, offers, "a device that has signatures runs some");
    for operation in [Operation::Insert, Operation::Strip, Operation::Verify, Operation::Rewrite] {
        let [clean, failed] = seen[operation as usize];
        assert!(clean > 0 && (failed > 0) == (operation != Operation::Insert), "{seen:?}");
    }
    bench.end();
}

/// Carries a transfer out, by the device if that runs its signature; `None` when its lists are too long for that.
fn carry_out<R: Rig>(bench: &mut Bench<R>, transfer: &Transfer) -> Option<(By, SigStatus)> {
    let lists = [&transfer.data, &transfer.protection];
    for (list, bytes) in lists.into_iter().zip(&transfer.before) {
        each(list, bytes, |at, bytes| bench.put(Side::Ours, at, bytes));
    }
    let signature = &transfer.signature;
    match signature.direction() {
        Direction::FromHost => bench.put(Side::Peer, transfer.remote, &transfer.wire),
        Direction::ToHost => {}
    }
    let sges = lists.map(|list| list.iter().map(|&(at, length)| bench.sge(at, length)).collect::<Vec<_>>());
    let done = if bench.rig.device().executes(signature).is_ok() {
        (By::Device, by_device(bench, transfer, &sges)?)
    } else {
        (By::Software, by_software(bench, transfer, &sges))
    };
    for (list, bytes) in lists.into_iter().zip(&transfer.after) {
        each(list, bytes, |at, bytes| bench.expect(Side::Ours, at, bytes));
    }
    bench.expect(Side::Peer, transfer.remote, &transfer.wire);
    Some(done)
}

fn by_device<R: Rig>(bench: &mut Bench<R>, transfer: &Transfer, sges: &[Vec<Sge>; 2]) -> Option<SigStatus> {
    let mut ctx = RwCtx::new();
    let remote = bench.remote(transfer.remote);
    let Bench { rig, qp, .. } = &mut *bench;
    let [data, protection] = sges;
    let planned = ctx.signature_init(qp, rig.device(), data, protection, &transfer.signature, remote);
    if data.len().max(protection.len()) > qp.pages_per_mr() as usize {
        assert_eq!(planned.map_err(RwError::errno), Err(libc::EINVAL));
        assert_eq!((ctx.kind(), qp.sig_mrs().used()), (None, 0));
        return None;
    }
    planned.unwrap();
    assert_eq!((ctx.kind(), qp.sig_mrs().used()), (Some(Kind::Signature), 1));
    bench.carry_out(&mut ctx);
    let status = ctx.sig_status(bench.rig.device()).unwrap();
    if let SigStatus::Failed(error) = status {
        assert_ne!(error.key, Rkey(0), "the key of the registration");
    }
    ctx.destroy();
    assert_eq!(bench.qp.sig_mrs().used(), 0);
    Some(status)
}

fn by_software<R: Rig>(bench: &mut Bench<R>, transfer: &Transfer, sges: &[Vec<Sge>; 2]) -> SigStatus {
    let signature = &transfer.signature;
    let bytes = |list: &[Sge]| list.iter().map(|sge| u64::from(sge.length)).sum();
    let layout = signature.layout(bytes(&sges[0]), bytes(&sges[1])).unwrap();
    let apart = bench.sge(APART, signature.apart_bytes(layout.blocks) as usize);
    let mut wire = Vec::new();
    signature.wire_sges(&sges[0], &sges[1], apart, &mut wire);
    let mut held = vec![0; apart.length as usize];
    let [mut data, mut protection] = transfer.before.clone();
    if signature.direction() == Direction::ToHost {
        let made: &mut [&mut [u8]] = if held.is_empty() { &mut [] } else { &mut [&mut held] };
        let given: &[&[u8]] = if protection.is_empty() { &[] } else { &[&protection] };
        let status = signature.before_write(&[&data], given, made);
        bench.put(Side::Ours, APART, &held);
        move_wire(bench, transfer, &wire);
        return status;
    }
    move_wire(bench, transfer, &wire);
    held = bench.rig.bytes(Side::Ours, APART, held.len());
    let lists = [&transfer.data, &transfer.protection];
    for (list, bytes) in lists.into_iter().zip([&mut data, &mut protection]) {
        let came = list.iter().flat_map(|&(at, length)| bench.rig.bytes(Side::Ours, at, length));
        *bytes = came.collect();
    }
    let made: &mut [&mut [u8]] = if protection.is_empty() { &mut [] } else { &mut [&mut protection] };
    let apart: &[&[u8]] = if held.is_empty() { &[] } else { &[&held] };
    let status = signature.after_read(&mut [&mut data], made, apart);
    each(&transfer.data, &data, |at, bytes| bench.put(Side::Ours, at, bytes));
    each(&transfer.protection, &protection, |at, bytes| bench.put(Side::Ours, at, bytes));
    bench.forget(Side::Ours, APART, held.len());
    status
}

/// Moves what is on the wire by a plain context: where a registration can't hold pieces like these, by way of a buffer.
fn move_wire<R: Rig>(bench: &mut Bench<R>, transfer: &Transfer, wire: &[Sge]) {
    let (remote, direction) = (bench.remote(transfer.remote), transfer.signature.direction());
    let mut ctx = RwCtx::new();
    match ctx.init(&bench.qp, wire, 0, remote, direction) {
        Ok(_) => {
            bench.carry_out(&mut ctx);
            ctx.destroy();
        }
        Err(RwError::Unmappable) => {
            let base = bench.rig.memory(Side::Ours).addr;
            let place = |sge: &Sge| (usize::try_from(sge.addr - base).unwrap(), sge.length as usize);
            let pieces: Vec<Piece> = wire.iter().map(place).collect();
            let length = transfer.wire.len();
            if direction == Direction::ToHost {
                let bytes: Vec<u8> =
                    pieces.iter().flat_map(|&(at, length)| bench.rig.bytes(Side::Ours, at, length)).collect();
                bench.put(Side::Ours, BUFFER, &bytes);
            }
            let buffer = [bench.sge(BUFFER, length)];
            assert_eq!(bench.try_move(&buffer, remote, direction), [WcStatus::Success]);
            if direction == Direction::FromHost {
                let bytes = bench.rig.bytes(Side::Ours, BUFFER, length);
                each(&pieces, &bytes, |at, bytes| bench.rig.put(Side::Ours, at, bytes));
            }
            bench.forget(Side::Ours, BUFFER, length);
        }
        Err(error) => panic!("{error}"),
    }
}

/// Calls `with` for each piece of a list with its bytes.
fn each(list: &[Piece], mut bytes: &[u8], mut with: impl FnMut(usize, &[u8])) {
    for &(at, length) in list {
        let (now, later) = bytes.split_at(length);
        with(at, now);
        bytes = later;
    }
}

/// A signature that strips the tuples of eight blocks on their way out, with places for both: if the device runs it.
pub(super) fn stripping<R: Rig>(bench: &mut Bench<R>) -> Option<(Signature, Sge, Sge)> {
    let dif = domain(formats()[0], PiType::Type1, 7);
    let signature = Signature::new(&attrs(Some(dif), None), Direction::ToHost).unwrap();
    bench.rig.device().executes(&signature).ok()?;
    Some((signature, bench.sge(APART, PAGE), bench.sge(APART + PAGE, 64)))
}

pub(crate) fn a_status_is_asked_for_once_and_after_the_completion<R: Rig>(make: impl Fn() -> R) {
    let mut bench = Bench::new(make(), 1);
    let mut ctx = RwCtx::new();
    let remote = bench.remote(0);
    let plain = [bench.sge(0, PAGE)];
    ctx.init(&bench.qp, &plain, 0, remote, Direction::ToHost).unwrap();
    bench.carry_out(&mut ctx);
    assert!(matches!(ctx.sig_status(bench.rig.device()), Err(DeviceError::Invalid(_))), "no signature");
    ctx.destroy();
    let Some((signature, data, protection)) = stripping(&mut bench) else {
        bench.end();
        return;
    };
    let dif = domain(formats()[0], PiType::Type1, 7);
    let blocks = random(&mut fastrand::Rng::with_seed(5), PAGE);
    let mut tuples = vec![0; 64];
    let tags = Tags { app_tag: dif.app_tag, app_tag_mask: 0xFFFF, ref_tag: dif.ref_tag, ..Tags::default() };
    let pi = PiContext::new(&dif.format, PiType::Type1, Checks::ALL, tags).unwrap();
    pi.generate(&[&blocks], &mut [&mut tuples]);
    bench.put(Side::Ours, APART + PAGE, &tuples);
    // The guard, the application tag, the reference tag; the data; nothing.
    let damages: [(Option<usize>, Option<Field>); 5] = [
        (Some(PAGE + 3 * 8 + 1), Some(Field::Guard)),
        (Some(PAGE + 3 * 8 + 2), Some(Field::AppTag)),
        (Some(PAGE + 3 * 8 + 7), Some(Field::RefTag)),
        (Some(3 * 512 + 99), Some(Field::Guard)),
        (None, None),
    ];
    for (round, (place, field)) in (0..).zip(damages) {
        let mut bytes = [&blocks[..], &tuples].concat();
        if let Some(place) = place {
            bytes[place] ^= 0x40;
        }
        bench.put(Side::Ours, APART, &bytes);
        bench.expect(Side::Peer, 0, &bytes[..PAGE]);
        let Bench { rig, qp, .. } = &mut bench;
        let planned = ctx.signature_init(qp, rig.device(), &[data], &[protection], &signature, remote);
        assert_eq!(planned, Ok(if round == 0 { 2 } else { 3 }));
        assert!(matches!(ctx.sig_status(rig.device()), Err(DeviceError::Invalid(_))), "nothing completed");
        bench.carry_out(&mut ctx);
        let status = ctx.sig_status(bench.rig.device()).unwrap();
        assert!(ctx.sig_status(bench.rig.device()).is_err(), "never twice");
        let told = match status {
            SigStatus::Clean => None,
            SigStatus::Failed(error) => Some((error.field, error.offset)),
        };
        assert_eq!(told, field.map(|field| (field, 3 * 520)));
        ctx.destroy();
        bench.check_memory("what failed is moved as well");
    }
    bench.end();
}
