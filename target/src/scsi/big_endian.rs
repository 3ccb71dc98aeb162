//! Big-endian numbers inside byte strings, as SCSI lays them out.

/// The 16 bits at `at`.
///
/// # Panics
/// When the string ends before them.
pub(crate) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(chunk(bytes, at))
}

/// The 24 bits at `at`.
///
/// # Panics
/// When the string ends before them.
pub(crate) fn u24_at(bytes: &[u8], at: usize) -> u32 {
    let [a, b, c] = chunk(bytes, at);
    u32::from_be_bytes([0, a, b, c])
}

/// The 32 bits at `at`.
///
/// # Panics
/// When the string ends before them.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(chunk(bytes, at))
}

/// The 64 bits at `at`.
///
/// # Panics
/// When the string ends before them.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(chunk(bytes, at))
}

/// Writes `value` at `at`.
///
/// # Panics
/// When the string ends before its last byte.
pub(crate) fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn chunk<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    *bytes[at..].first_chunk().expect("the caller checked the length")
}
