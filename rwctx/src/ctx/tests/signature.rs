//! Contexts with signatures: the vectors of their shape (spec: rw contexts 1.7, 1.13).

use t10pi::{Checks, Format, Guard, PiType, Tags};

use super::*;
use crate::signature::{CopyMask, SigAttrs, SigDomain, T10Dif};

/// Profile A, and what makes a queue pair of profile S different.
fn a() -> DeviceCaps {
    DeviceCaps { max_fast_reg_page_list_len: 65536, max_pi_fast_reg_page_list_len: 32768, ..CAPS }
}

fn s() -> DeviceCaps {
    DeviceCaps { max_sgl_rd: 4, max_fast_reg_page_list_len: 8, max_pi_fast_reg_page_list_len: 4, ..CAPS }
}

/// A signature over memory that has tuples in a list of its own.
fn signature(block: u32, wire: bool, direction: Direction) -> Signature {
    let format = Format::new(Guard::Crc16, block, 8).unwrap();
    let domain = SigDomain::T10Dif(T10Dif::of_type(format, PiType::Type1, Tags::default()));
    let attrs = SigAttrs {
        mem: domain,
        wire: if wire { domain } else { SigDomain::None },
        check_mask: Checks::ALL,
        copy_mask: CopyMask::Equal,
    };
    Signature::new(&attrs, direction).unwrap()
}

struct Signed {
    world: World,
}

impl Signed {
    fn new(caps: DeviceCaps, mrs: u32, integrity: Integrity) -> Self {
        let mut device = NullDevice::new(caps);
        let pd = device.alloc_pd().unwrap();
        let cap = QpCap { integrity, ..CAP };
        let qpn = device.create_qp(pd, &cap).unwrap();
        let qp = RwQp::init_mrs(&mut device, pd, &cap, mrs).unwrap();
        Self { world: World { device, qpn, qp, ctx: RwCtx::new() } }
    }

    fn init(&mut self, data: &[Sge], protection: &[Sge], signature: &Signature) -> Result<u32, RwError> {
        let World { device, qp, ctx, .. } = &mut self.world;
        ctx.signature_init(qp, device, data, protection, signature, REMOTE)
    }

    fn in_pool(&self) -> (u32, u32) {
        (self.world.qp.sig_mrs().used(), self.world.qp.sig_mrs().free())
    }
}

/// `n` pieces of a page, and the tuples of their blocks.
fn lists(n: u64, block: u32) -> (Vec<Sge>, Vec<Sge>) {
    let length = u32::try_from(n).unwrap() * PAGE / block * 8;
    (pages(n), vec![Sge { addr: 0x90_0000, length, lkey: Lkey(7) }])
}

#[test]
fn a_fresh_registration_takes_two_entries_and_a_used_one_three() {
    let mut signed = Signed::new(a(), 1, Integrity::Enabled);
    let (data, protection) = lists(8, 4096);
    for (wqes, direction) in [(2, ToHost), (3, FromHost), (3, ToHost)] {
        let signature = signature(4096, true, direction);
        assert_eq!(signed.init(&data, &protection, &signature), Ok(wqes));
        assert_eq!((signed.world.ctx.kind(), signed.world.ctx.ops()), (Some(Kind::Signature), 1));
        let World { device, qpn, ctx, .. } = &mut signed.world;
        assert!(ctx.sig_status(device).is_err(), "nothing completed");
        ctx.post(device, *qpn, OWN).unwrap();
        ctx.complete();
        // Asked for once, or not at all: the next registration is taken in any case.
        if direction == FromHost {
            assert_eq!(ctx.sig_status(device), Ok(SigStatus::Clean));
            assert!(ctx.sig_status(device).is_err(), "never twice");
        }
        ctx.destroy();
        assert_eq!(signed.in_pool(), (0, 1));
    }
    let (direction, wqes) = (ToHost, signed.init(&data, &protection, &signature(4096, true, ToHost)));
    assert_eq!((direction, wqes), (ToHost, Ok(3)));
    let ops = signed.world.ops();
    assert!(
        matches!(ops[..], [SendOp::LocalInv(_), SendOp::RegMrIntegrity { access, .. }, SendOp::Write(REMOTE)]
            if access.local_write && !access.remote_write),
        "{ops:?}"
    );
    signed.world.ctx.complete();
}

#[test]
fn the_transfer_is_as_long_as_its_wire() {
    for (block, wire, length) in
        [(512, true, 4160), (512, false, 4096), (4096, true, 32832), (4096, false, 32768)]
    {
        let mut signed = Signed::new(a(), 1, Integrity::Enabled);
        let (data, protection) = lists(u64::from(8 * block / PAGE), block);
        for direction in [ToHost, FromHost] {
            signed.init(&data, &protection, &signature(block, wire, direction)).unwrap();
            let last = signed.world.ctx.wrs(OWN).last().map(|wr| (wr.sges.to_vec(), wr.signal));
            let Some((sges, Signal::Signaled)) = last else { panic!("{last:?}") };
            assert_eq!((sges.len(), sges[0].addr, sges[0].length), (1, 0, length), "{block} {wire}");
            signed.world.ctx.complete();
            signed.world.ctx.destroy();
        }
    }
}

#[test]
fn lists_longer_than_a_registration_and_a_dry_pool_are_refused() {
    let signature = signature(4096, true, ToHost);
    let refused = |signed: &mut Signed, data: u64, protection: u64| {
        let before = signed.in_pool();
        let refused = signed.init(&pages(data), &pages(protection), &signature).unwrap_err();
        assert_eq!((signed.in_pool(), signed.world.ctx.kind()), (before, None));
        refused.errno()
    };
    let mut large = Signed::new(a(), 1, Integrity::Enabled);
    assert_eq!(refused(&mut large, 257, 1), libc::EINVAL);
    assert_eq!(refused(&mut large, 8, 257), libc::EINVAL);
    assert_eq!(refused(&mut large, 8, 2), libc::EINVAL, "lengths that don't fit each other");
    assert_eq!(refused(&mut Signed::new(s(), 1, Integrity::Enabled), 5, 1), libc::EINVAL);
    let (data, protection) = lists(8, 4096);
    let mut dry = Signed::new(a(), 0, Integrity::Enabled);
    assert_eq!(dry.init(&data, &protection, &signature).map_err(RwError::errno), Err(libc::EAGAIN));
    // Without integrity there is no pool, and never a special error.
    let mut plain = Signed::new(a(), 1, Integrity::Off);
    assert_eq!(plain.init(&data, &protection, &signature).map_err(RwError::errno), Err(libc::EAGAIN));
    let none = DeviceCaps { max_pi_fast_reg_page_list_len: 0, ..CAPS };
    let mut device = NullDevice::new(none);
    let pd = device.alloc_pd().unwrap();
    let cap = QpCap { integrity: Integrity::Enabled, ..CAP };
    assert!(RwQp::init_mrs(&mut device, pd, &cap, 2).is_err());
    assert_eq!(device.live_mrs(), 0, "the pool that was made first is gone");
}

#[test]
fn nothing_of_a_signature_is_lost_whichever_step_fails() {
    let signature = signature(4096, false, FromHost);
    let (data, protection) = lists(8, 4096);
    let mut failed = 0;
    for steps in 0..16 {
        let mut signed = Signed::new(a(), 1, Integrity::Enabled);
        signed.world.device.fail_after(steps);
        for round in 0..4 {
            let planned = signed.init(&data, &protection, &signature);
            failed += u32::from(planned == Err(RwError::NoMemory));
            let World { device, qpn, ctx, .. } = &mut signed.world;
            if planned.is_ok() {
                let armed = device.will_fail();
                let posted = ctx.post(device, *qpn, OWN);
                assert!(posted.is_ok() || armed != device.will_fail(), "step {steps}, round {round}");
                ctx.complete();
                ctx.destroy();
            }
            assert_eq!((signed.in_pool(), signed.world.ctx.wqes()), ((0, 1), 0), "step {steps}");
        }
    }
    assert!(failed > 2, "mapping failed {failed} times");
}
