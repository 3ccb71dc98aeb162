//! A device for the tests: memory, keys, and transfers with signatures, as the documentation describes them; and the mistakes that
//! it saw. Knows no library calls, and nothing of `crate::signature`. (rw-contexts 2.3, 2.4, 2.6.5)

use std::collections::{BTreeMap, VecDeque};

use super::super::ffi;

/// The peer's key.
pub(super) const PEER: u32 = 0x5EE5_0001;

/// A device, as far as signatures go.
#[derive(Debug, Default)]
pub(super) struct Device {
    pub(super) caps: ffi::SigCaps,
    /// Registered memory: its first address and its bytes, by local key.
    pub(super) memory: BTreeMap<u32, (u64, Vec<u8>)>,
    /// The peer's memory.
    pub(super) peer: Vec<u8>,
    /// Keys by local key.
    pub(super) keys: BTreeMap<u32, Key>,
    pub(super) completions: VecDeque<Completion>,
    /// What nobody may do, though no library call fails for it.
    pub(super) mistakes: Vec<String>,
    /// The queue pair is in the error state.
    pub(super) failed: bool,
    pub(super) next_index: u32,
}

/// A key as the device has it.
#[derive(Debug, Default)]
pub(super) struct Key {
    pub(super) signature: bool,
    pub(super) entries: u16,
    /// What the library remembers of its signature.
    pub(super) remembered: Remembered,
    pub(super) valid: bool,
    pub(super) access: u32,
    pub(super) layout: Layout,
    pub(super) block: Option<Block>,
    /// Work requests whose completions were not polled.
    pub(super) outstanding: u32,
    /// Transfers that were not asked for.
    pub(super) unchecked: u32,
    /// What was polled and not asked for.
    pub(super) error: Option<ffi::MkeyErr>,
}

/// A library's memory of a key's signature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Remembered {
    #[default]
    Init,
    Reset,
    Updated,
    Set,
    Undefined,
}

#[derive(Clone, Debug)]
pub(super) enum Layout {
    List(Vec<ffi::Sge>),
    Interleaved(u32, Vec<ffi::MrInterleaved>),
}

impl Default for Layout {
    fn default() -> Self {
        Self::List(Vec::new())
    }
}

/// A signature.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub(super) mem: Option<Domain>,
    pub(super) wire: Option<Domain>,
    pub(super) check_mask: u8,
    pub(super) copy_mask: u8,
}

/// T10-DIF tuples of one side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Domain {
    pub(super) block: usize,
    pub(super) dif: ffi::SigT10Dif,
}

#[derive(Debug)]
pub(super) enum Completion {
    Request {
        wr_id: u64,
        key: u32,
        success: bool,
    },
    /// Of a check that failed; it comes before that of the transfer.
    Error {
        key: u32,
        error: ffi::MkeyErr,
    },
}

/// A work request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) wr_id: u64,
    pub(super) signaled: bool,
    pub(super) what: What,
}

#[derive(Clone, Debug)]
pub(super) enum What {
    Configure { key: u32, access: Option<u32>, layout: Option<Layout>, block: NewBlock },
    Transfer { read: bool, rkey: u32, remote: u64, sge: Option<ffi::Sge> },
    Invalidate { key: u32 },
}

/// What becomes of a key's signature when it is configured.
#[derive(Clone, Copy, Debug)]
pub(super) enum NewBlock {
    Set(Block),
    Stays,
    None,
}

/// Bytes of registered memory in a row: local key, first byte, count.
type Run = (u32, usize, usize);

impl Device {
    pub(super) fn mistake(&mut self, text: impl Into<String>) {
        self.mistakes.push(text.into());
    }

    /// Executes a request that was posted.
    pub(super) fn execute(&mut self, request: &Request) {
        let key = match &request.what {
            What::Configure { key, .. } | What::Invalidate { key } => *key,
            What::Transfer { sge, .. } => sge.map_or(0, |sge| sge.lkey),
        };
        let done = !self.failed && self.perform(&request.what).is_some();
        if !done {
            self.failed = true;
        }
        if request.signaled || !done {
            if let Some(key) = self.keys.get_mut(&key) {
                key.outstanding += 1;
            }
            self.completions.push_back(Completion::Request { wr_id: request.wr_id, key, success: done });
        }
    }

    /// Takes all completions: those of requests with their names and success. The library keeps the others.
    pub(super) fn poll(&mut self) -> Vec<(u64, bool)> {
        let mut polled = Vec::new();
        while let Some(completion) = self.completions.pop_front() {
            match completion {
                Completion::Request { wr_id, key, success } => {
                    if let Some(key) = self.keys.get_mut(&key) {
                        key.outstanding -= 1;
                    }
                    polled.push((wr_id, success));
                }
                Completion::Error { key, error } => match self.keys.get_mut(&key) {
                    Some(key) => key.error = key.error.or(Some(error)),
                    None => self.mistake("a key was destroyed before its error was polled: polling fails"),
                },
            }
        }
        polled
    }

    fn perform(&mut self, what: &What) -> Option<()> {
        match what {
            What::Configure { key, access, layout, block } => {
                let key = self.keys.get_mut(key)?;
                let unchecked = key.unchecked;
                key.valid = true;
                key.access = access.unwrap_or(key.access);
                if let Some(layout) = layout {
                    key.layout = layout.clone();
                }
                match block {
                    NewBlock::Set(block) => key.block = Some(*block),
                    NewBlock::Stays => {}
                    NewBlock::None => key.block = None,
                }
                if unchecked > 0 {
                    self.mistake("a key was configured again before its status was asked for");
                }
                Some(())
            }
            What::Invalidate { key } => {
                let key = self.keys.get_mut(key).filter(|key| key.valid)?;
                key.valid = false;
                Some(())
            }
            What::Transfer { read, rkey, remote, sge } => {
                self.transfer(*read, *rkey, usize::try_from(*remote).ok()?, &(*sge)?)
            }
        }
    }

    fn transfer(&mut self, read: bool, rkey: u32, remote: usize, sge: &ffi::Sge) -> Option<()> {
        let key = self.keys.get(&sge.lkey)?;
        let (block, size) = (key.block, size(&key.layout));
        if sge.addr != 0 {
            self.mistake("bytes of a key are counted from 0");
        }
        let runs = self.runs(sge.lkey, 0, size, read)?;
        let length = usize::try_from(sge.length).ok()?;
        let on_wire = remote..remote.checked_add(length)?;
        if rkey != PEER || self.peer.len() < on_wire.end {
            return None;
        }
        let (came, from, to) = if read {
            let (mem, wire) = block.map_or((None, None), |block| (block.mem, block.wire));
            (self.peer[on_wire.clone()].to_vec(), wire, mem)
        } else {
            let (mem, wire) = block.map_or((None, None), |block| (block.mem, block.wire));
            (self.gather(&runs), mem, wire)
        };
        let (went, error) = pass(&came, from, to, block.as_ref())?;
        if went.len() != if read { size } else { length } {
            self.mistake(format!("{} bytes become {}, which fit neither side", came.len(), went.len()));
            return None;
        }
        if read {
            self.scatter(&runs, &went);
        } else {
            self.peer[on_wire].copy_from_slice(&went);
        }
        let key = self.keys.get_mut(&sge.lkey)?;
        key.unchecked += u32::from(key.signature);
        if let Some(error) = error {
            self.completions.push_back(Completion::Error { key: sge.lkey, error });
        }
        Some(())
    }

    /// Where bytes of a key lie in registered memory.
    fn runs(&self, lkey: u32, addr: u64, length: usize, write: bool) -> Option<Vec<Run>> {
        if let Some((base, bytes)) = self.memory.get(&lkey) {
            let at = usize::try_from(addr.checked_sub(*base)?).ok()?;
            return (at + length <= bytes.len()).then(|| vec![(lkey, at, length)]);
        }
        let key = self.keys.get(&lkey)?;
        if !key.valid || write && key.access & ffi::ACCESS_LOCAL_WRITE == 0 {
            return None;
        }
        let mut skip = usize::try_from(addr).ok()?;
        let mut left = length;
        let mut runs = Vec::new();
        for (lkey, addr, length) in pieces(&key.layout) {
            if skip >= length {
                skip -= length;
                continue;
            }
            let now = left.min(length - skip);
            if now == 0 {
                break;
            }
            runs.extend(self.runs(lkey, addr + skip as u64, now, write)?);
            (skip, left) = (0, left - now);
        }
        (left == 0).then_some(runs)
    }

    fn gather(&self, runs: &[Run]) -> Vec<u8> {
        runs.iter().flat_map(|(lkey, at, length)| &self.memory[lkey].1[*at..at + length]).copied().collect()
    }

    fn scatter(&mut self, runs: &[Run], bytes: &[u8]) {
        let mut rest = bytes;
        for (lkey, at, length) in runs {
            let (now, later) = rest.split_at(*length);
            let (_, memory) = self.memory.get_mut(lkey).expect("memory that was found");
            memory[*at..at + length].copy_from_slice(now);
            rest = later;
        }
    }
}

/// Bytes of a layout.
pub(super) fn size(layout: &Layout) -> usize {
    pieces(layout).map(|(_, _, length)| length).sum()
}

fn pieces(layout: &Layout) -> Box<dyn Iterator<Item = (u32, u64, usize)> + '_> {
    match layout {
        Layout::List(list) => Box::new(list.iter().map(|sge| (sge.lkey, sge.addr, sge.length as usize))),
        Layout::Interleaved(repeat, turns) => Box::new((0..u64::from(*repeat)).flat_map(move |turn| {
            turns.iter().map(move |of| {
                let stride = u64::from(of.bytes_count) + u64::from(of.bytes_skip);
                (of.lkey, of.addr + turn * stride, of.bytes_count as usize)
            })
        })),
    }
}

/// What goes out of what came in, and the first check that failed; `None` when there are no whole blocks.
fn pass(
    came: &[u8],
    from: Option<Domain>,
    to: Option<Domain>,
    block: Option<&Block>,
) -> Option<(Vec<u8>, Option<ffi::MkeyErr>)> {
    let Some((block, domain)) = block.zip(from.or(to)) else { return Some((came.to_vec(), None)) };
    let (size, tuple) = (domain.block, if from.is_some() { 8 } else { 0 });
    if came.is_empty() || !came.len().is_multiple_of(size + tuple) {
        return None;
    }
    let mut went = Vec::new();
    let mut first = None;
    for (index, unit) in (0_u32..).zip(came.chunks(size + tuple)) {
        let (data, given) = unit.split_at(size);
        let given: Option<[u8; 8]> = given.try_into().ok();
        if let Some((from, given)) = from.zip(given) {
            let offset = u64::from(index) * (size as u64 + 8) + size as u64 + 7;
            first = first.or_else(|| check(&from, index, data, given, block.check_mask, offset));
        }
        went.extend(data);
        if let Some(to) = to {
            let made = to.tuple(index, data);
            let copied = |byte: usize| {
                given.filter(|_| block.copy_mask & (0x80 >> byte) != 0).map(|given| given[byte])
            };
            went.extend((0..8).map(|byte| copied(byte).unwrap_or(made[byte])));
        }
    }
    Some((went, first))
}

/// What is wrong with a tuple. Looks for the reference tag first, for the guard last, as the library does.
fn check(
    domain: &Domain,
    index: u32,
    data: &[u8],
    given: [u8; 8],
    mask: u8,
    offset: u64,
) -> Option<ffi::MkeyErr> {
    let flags = domain.dif.flags;
    let (app, reference) = (&given[2..4], &given[4..8]);
    let escaped = match app == [0xFF; 2] {
        true if flags & ffi::T10DIF_FLAG_APP_REF_ESCAPE != 0 => reference == [0xFF; 4],
        true => flags & ffi::T10DIF_FLAG_APP_ESCAPE != 0,
        false => false,
    };
    if escaped {
        return None;
    }
    let expected = domain.tuple(index, data);
    let differs = |bytes: std::ops::Range<usize>| {
        bytes.into_iter().any(|byte| mask & (0x80 >> byte) != 0 && given[byte] != expected[byte])
    };
    let err_type = if differs(4..8) {
        ffi::MKEY_SIG_BLOCK_BAD_REFTAG
    } else if differs(2..4) {
        ffi::MKEY_SIG_BLOCK_BAD_APPTAG
    } else if differs(0..2) {
        ffi::MKEY_SIG_BLOCK_BAD_GUARD
    } else {
        return None;
    };
    let (actual_value, expected_value) = (u64::from_be_bytes(given), u64::from_be_bytes(expected));
    Some(ffi::MkeyErr { err_type, actual_value, expected_value, offset })
}

impl Domain {
    fn tuple(&self, index: u32, data: &[u8]) -> [u8; 8] {
        let dif = &self.dif;
        let guard = match dif.bg_type {
            ffi::T10DIF_CRC => t10pi::crc::crc16(dif.bg, data),
            _ => t10pi::crc::ip_checksum(data),
        };
        let counts = dif.flags & ffi::T10DIF_FLAG_REF_REMAP != 0;
        let reference = dif.ref_tag.wrapping_add(if counts { index } else { 0 });
        let mut tuple = [0; 8];
        tuple[..2].copy_from_slice(&guard.to_be_bytes());
        tuple[2..4].copy_from_slice(&dif.app_tag.to_be_bytes());
        tuple[4..].copy_from_slice(&reference.to_be_bytes());
        tuple
    }
}
