//! What the fake demands of those who call it, by its functions themselves: without this, the other tests would say less than
//! they seem to. (rw-contexts 2.6.5)
#![allow(unsafe_code, reason = "C functions that are called through pointers")]

use std::ffi::c_int;
use std::ptr;

use nix::errno::Errno;

use super::super::calls::{KeyKind, Mkey, RawQueue};
use super::super::ffi;
use super::fake::Fake;

/// Calls in a list, as C would make them.
struct Calls {
    fake: Fake,
    /// Keys go before the fake.
    mkey: *mut ffi::Mkey,
    wr_flags: u32,
}

type Case = Box<dyn Fn(&mut Calls)>;

const SGE: ffi::Sge = ffi::Sge { addr: 0, length: 520, lkey: 1 };
const TURN: ffi::MrInterleaved = ffi::MrInterleaved { addr: 0, bytes_count: 512, bytes_skip: 0, lkey: 1 };
const DIF: ffi::SigT10Dif =
    ffi::SigT10Dif { bg_type: ffi::T10DIF_CRC, bg: 0, app_tag: 0, ref_tag: 0, flags: 0 };

impl Calls {
    fn start(&self) {
        // SAFETY: the fake's queue pair; so for each of the following.
        unsafe { (self.fake.ex().wr_start.unwrap())(self.fake.qp()) };
    }

    fn configure(&self, setters: u8, conf_flags: u32, comp_mask: u64) {
        let mut attr = ffi::MkeyConfAttr { conf_flags, comp_mask };
        // SAFETY: as above.
        unsafe { (*self.fake.qp()).wr_flags = self.wr_flags };
        let dv = self.fake.dv();
        // SAFETY: as above.
        unsafe { (self.fake.dv_ex().wr_mkey_configure.unwrap())(dv, self.mkey, setters, &raw mut attr) };
    }

    fn access(&self, flags: u32) {
        let dv = self.fake.dv();
        // SAFETY: as above.
        unsafe { (self.fake.dv_ex().wr_set_mkey_access_flags.unwrap())(dv, flags) };
    }

    fn list(&self, list: &[ffi::Sge]) {
        let dv = self.fake.dv();
        // SAFETY: as above.
        unsafe { (self.fake.dv_ex().wr_set_mkey_layout_list.unwrap())(dv, count(list), list.as_ptr()) };
    }

    fn interleaved(&self, repeat: u32, turns: &[ffi::MrInterleaved]) {
        let dv = self.fake.dv();
        let call = self.fake.dv_ex().wr_set_mkey_layout_interleaved.unwrap();
        // SAFETY: as above.
        unsafe { call(dv, repeat, count(turns), turns.as_ptr()) };
    }

    fn signature(&self, mem: Option<&ffi::SigBlockDomain>, wire: Option<&ffi::SigBlockDomain>, flags: u32) {
        let pointer = |domain: Option<&ffi::SigBlockDomain>| domain.map_or(ptr::null(), ptr::from_ref);
        let (mem, wire) = (pointer(mem), pointer(wire));
        let attr = ffi::SigBlockAttr { mem, wire, flags, check_mask: 0, copy_mask: 0, comp_mask: 0 };
        let dv = self.fake.dv();
        // SAFETY: as above.
        unsafe { (self.fake.dv_ex().wr_set_mkey_sig_block.unwrap())(dv, &raw const attr) };
    }

    fn complete(&self) -> c_int {
        // SAFETY: as above.
        unsafe { (self.fake.ex().wr_complete.unwrap())(self.fake.qp()) }
    }

    fn abort(&self) {
        // SAFETY: as above.
        unsafe { (self.fake.ex().wr_abort.unwrap())(self.fake.qp()) };
    }
}

fn count<T>(entries: &[T]) -> u16 {
    u16::try_from(entries.len()).unwrap()
}

fn domain(dif: &ffi::SigT10Dif, block_size: u32) -> ffi::SigBlockDomain {
    let sig = ptr::from_ref(dif).cast();
    ffi::SigBlockDomain { sig_type: ffi::SIG_TYPE_T10DIF, sig, block_size, comp_mask: 0 }
}

/// Runs `act` with a key of four entries, and says what the list's end returned and what mistakes were seen.
fn run(kind: KeyKind, act: impl FnOnce(&mut Calls)) -> (Option<Errno>, Vec<String>) {
    let (fake, queue): (Fake, RawQueue) = Fake::new(124);
    let key: Mkey = queue.create_mkey(kind, 3).expect("a key");
    assert_eq!(key.max_entries(), 4, "rounded up");
    let mut calls = Calls { mkey: key.as_ptr(), wr_flags: ffi::SEND_INLINE, fake };
    calls.start();
    act(&mut calls);
    let returned = calls.complete();
    drop(key);
    let mistakes = calls.fake.mistakes();
    ((returned != 0).then(|| Errno::from_raw(returned)), mistakes)
}

fn error(act: impl FnOnce(&mut Calls)) -> Option<Errno> {
    let (returned, mistakes) = run(KeyKind::Signature, act);
    assert_eq!(mistakes, [""; 0]);
    returned
}

fn mistake(act: impl FnOnce(&mut Calls)) -> String {
    let (returned, mut mistakes) = run(KeyKind::Signature, act);
    assert_eq!((returned, mistakes.len()), (None, 1), "{mistakes:?}");
    mistakes.remove(0)
}

#[test]
fn configurations_in_order_are_posted() {
    let block = domain(&DIF, ffi::BLOCK_SIZE_512);
    assert_eq!(error(|calls| calls.configure(0, 0, 0)), None);
    assert_eq!(
        error(|calls| {
            calls.configure(3, ffi::MKEY_CONF_RESET_SIG_ATTR, 0);
            calls.access(0xF);
            calls.interleaved(1, &[TURN; 2]);
            calls.signature(Some(&block), Some(&block), 1);
        }),
        None
    );
}

#[test]
fn configure_refuses_what_it_does_not_know() {
    assert_eq!(error(|calls| calls.configure(0, 2, 0)), Some(Errno::EOPNOTSUPP));
    assert_eq!(error(|calls| calls.configure(0, 0, 1)), Some(Errno::EOPNOTSUPP));
    let not_inline = |calls: &mut Calls| {
        calls.wr_flags = 0;
        calls.configure(0, 0, 0);
    };
    assert_eq!(error(not_inline), Some(Errno::EOPNOTSUPP));
}

#[test]
fn setters_are_refused_out_of_turn_or_twice() {
    let block = domain(&DIF, ffi::BLOCK_SIZE_512);
    let einval = Some(Errno::EINVAL);
    assert_eq!(error(|calls| calls.access(1)), einval, "no key is configured");
    let mut cases: Vec<Case> = vec![
        Box::new(|calls| [1, 1].map(|flags| calls.access(flags)).into_iter().collect()),
        Box::new(|calls| calls.access(0x10)),
        Box::new(|calls| [SGE; 2].map(|sge| calls.list(&[sge])).into_iter().collect()),
        Box::new(|calls| {
            calls.list(&[SGE]);
            calls.interleaved(1, &[TURN]);
        }),
    ];
    cases.push(Box::new(move |calls| {
        calls.signature(Some(&block), None, 0);
        calls.signature(Some(&block), None, 0);
    }));
    for case in cases {
        let configured = |calls: &mut Calls| {
            calls.configure(4, 0, 0);
            case(calls);
        };
        assert_eq!(error(configured), einval);
    }
    let more = |calls: &mut Calls| {
        calls.configure(1, 0, 0);
        calls.access(1);
        calls.list(&[SGE]);
    };
    assert_eq!(error(more), einval, "more setters than were announced");
    let sticky = |calls: &mut Calls| {
        calls.configure(2, 0, 0);
        calls.access(0x10);
        calls.list(&[SGE; 5]);
    };
    assert_eq!(error(sticky), einval, "the first error stays");
}

#[test]
fn layouts_have_to_fit_keys_and_work_requests() {
    let set = |setters, act: &dyn Fn(&mut Calls)| {
        error(|calls| {
            calls.configure(setters, 0, 0);
            act(calls);
        })
    };
    let block = domain(&DIF, ffi::BLOCK_SIZE_512);
    assert_eq!(set(1, &|calls| calls.list(&[SGE; 5])), Some(Errno::ENOMEM));
    assert_eq!(set(1, &|calls| calls.interleaved(1, &[TURN; 5])), Some(Errno::ENOMEM));
    let long = ffi::Sge { length: u32::MAX, ..SGE };
    assert_eq!(set(1, &|calls| calls.list(&[long; 2])), Some(Errno::EINVAL));
    let both = |calls: &mut Calls| {
        calls.list(&[SGE; 4]);
        calls.signature(Some(&block), None, 0);
    };
    assert_eq!(set(2, &both), None);
}

#[test]
fn signatures_are_refused_that_say_nothing_or_what_is_unknown() {
    let good = domain(&DIF, ffi::BLOCK_SIZE_512);
    let other = domain(&DIF, ffi::BLOCK_SIZE_520);
    let with = |dif| ffi::SigT10Dif { ..dif };
    let (seed, guard, flags) = (
        with(ffi::SigT10Dif { bg: 1, ..DIF }),
        with(ffi::SigT10Dif { bg_type: 2, ..DIF }),
        with(ffi::SigT10Dif { flags: 8, ..DIF }),
    );
    let (seed, guard, flags) = (domain(&seed, 0), domain(&guard, 0), domain(&flags, 0));
    let masked = ffi::SigBlockDomain { comp_mask: 1, ..domain(&DIF, 0) };
    let typed = ffi::SigBlockDomain { sig_type: 2, ..domain(&DIF, 0) };
    let crc = ffi::SigCrc { crc_type: 3, seed: 0 };
    let crc_type = ffi::SigBlockDomain { sig_type: 1, sig: ptr::from_ref(&crc).cast(), ..domain(&DIF, 0) };
    let half = ffi::SigCrc { crc_type: ffi::CRC_TYPE_CRC64_XP10, seed: u32::MAX.into() };
    let crc_seed = ffi::SigBlockDomain { sig_type: 1, sig: ptr::from_ref(&half).cast(), ..domain(&DIF, 0) };
    let size = domain(&DIF, 5);
    let set = |mem, wire, flags| {
        error(|calls| {
            calls.configure(1, 0, 0);
            calls.signature(mem, wire, flags);
        })
    };
    assert_eq!(set(Some(&good), Some(&good), 1), None);
    assert_eq!(set(Some(&good), Some(&other), 0), None);
    for (mem, wire, flags) in [
        (None, None, 0),
        (Some(&good), None, 2),
        (Some(&size), None, 0),
        (None, Some(&masked), 0),
        (Some(&typed), None, 0),
        (Some(&seed), None, 0),
        (Some(&guard), None, 0),
        (Some(&flags), None, 0),
        (Some(&crc_type), None, 0),
        (Some(&crc_seed), None, 0),
        (Some(&good), Some(&other), 1),
    ] {
        assert_eq!(set(mem, wire, flags), Some(Errno::EINVAL), "{mem:?} {wire:?} {flags}");
    }
    let (returned, mistakes) = run(KeyKind::List, |calls| {
        calls.configure(1, 0, 0);
        calls.signature(Some(&good), None, 0);
    });
    assert_eq!((returned, mistakes.len()), (Some(Errno::EINVAL), 0), "a key without signatures");
}

#[test]
fn mistakes_that_the_library_does_not_see_are_seen() {
    let block = domain(&DIF, ffi::BLOCK_SIZE_512);
    let fewer = |calls: &mut Calls| {
        calls.configure(2, 0, 0);
        calls.access(1);
    };
    assert!(mistake(fewer).contains("fewer setters"));
    let wide = |calls: &mut Calls| {
        calls.configure(1, 0, 0);
        calls.interleaved(1, &[ffi::MrInterleaved { bytes_skip: 0xFFFF, ..TURN }]);
    };
    assert!(mistake(wide).contains("16 bits"));
    let entry = |calls: &mut Calls| {
        calls.configure(1, 0, 0);
        calls.interleaved(1, &[TURN; 4]);
    };
    assert!(mistake(entry).contains("one entry more"));
    let unknown = |calls: &mut Calls| {
        calls.fake.device().caps.block_size = 1 << ffi::BLOCK_SIZE_4096;
        calls.configure(1, 0, 0);
        calls.signature(Some(&block), None, 0);
    };
    assert!(mistake(unknown).contains("no such block"));
    assert!(mistake(|calls| calls.start()).contains("started in another"));
    let outside = |calls: &mut Calls| {
        calls.abort();
        calls.configure(0, 0, 0);
        calls.start();
    };
    assert!(mistake(outside).contains("outside a list"));
    let undefined = |calls: &mut Calls| {
        calls.configure(1, 0, 0);
        calls.signature(Some(&block), None, 0);
        calls.abort();
        calls.start();
        calls.configure(0, 0, 0);
    };
    assert!(mistake(undefined).contains("not defined"));
    let reset = |calls: &mut Calls| {
        calls.configure(1, 0, 0);
        calls.abort();
        calls.start();
        calls.configure(0, ffi::MKEY_CONF_RESET_SIG_ATTR, 0);
    };
    assert_eq!(error(reset), None, "reset, it is defined");
}
