//! How large a queue must be for signatures. (rw-contexts 2.6.4)

use super::calls::KeyKind;

/// Work requests of the device that one registration and its transfer take: the key's configuration, the start of two tuples,
/// the READ or WRITE.
pub const WRS_PER_REGISTRATION: u32 = 4;

/// Entries that a signature's key needs where data and metadata lie apart: one each, and one for how they alternate.
pub const SEPARATE_ENTRIES: u16 = 3;

/// Sizes of a queue that posts signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSize {
    /// Send work requests, with [`WRS_PER_REGISTRATION`] for each registration, and one for each invalidation.
    pub max_send_wr: u32,
    /// Receives.
    pub max_recv_wr: u32,
    /// SGEs of a send.
    pub max_send_sge: u32,
    /// SGEs of a receive.
    pub max_recv_sge: u32,
    /// Bytes that a work request can hold itself: at least [`inline_data`].
    pub max_inline_data: u32,
}

/// Bytes that a work request must be able to hold itself so that it can configure a key with so many entries.
#[must_use]
pub const fn inline_data(kind: KeyKind, entries: u16) -> u32 {
    needed(kind, entries) - SEGMENT
}

/// Entries that a key can have, given what work requests can hold themselves.
pub(super) fn max_entries(kind: KeyKind, max_inline_data: u32) -> u16 {
    let room = max_inline_data.saturating_add(SEGMENT);
    let most = u16::try_from(room / ENTRY).unwrap_or(u16::MAX);
    (0..=most).rev().find(|entries| needed(kind, *entries) <= room).unwrap_or(0)
}

/// What inline data has in front of it.
const SEGMENT: u32 = 4;
/// An entry of a layout.
const ENTRY: u32 = 16;
/// A layout is padded to this, and a signature has it.
const ALIGN: u32 = 64;

const fn needed(kind: KeyKind, entries: u16) -> u32 {
    let layout = (entries as u32 * ENTRY).next_multiple_of(ALIGN);
    match kind {
        KeyKind::List => layout,
        KeyKind::Signature => layout + ALIGN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_data_is_that_of_the_table() {
        // An interleaved layout of n pieces has n + 1 entries.
        for (kind, entries, bytes) in [
            (KeyKind::List, 4, 60),
            (KeyKind::Signature, 1, 124),
            (KeyKind::Signature, 4, 124),
            (KeyKind::Signature, 5, 188),
            (KeyKind::Signature, 8, 188),
            (KeyKind::Signature, 0, 60),
        ] {
            assert_eq!(inline_data(kind, entries), bytes);
        }
        assert_eq!(max_entries(KeyKind::List, 60), 4);
        assert_eq!(max_entries(KeyKind::Signature, 60), 0, "a signature alone");
        assert_eq!(max_entries(KeyKind::Signature, 123), 0);
        assert_eq!(max_entries(KeyKind::Signature, 124), 4);
        assert_eq!(max_entries(KeyKind::Signature, 188), 8);
        assert_eq!(max_entries(KeyKind::Signature, 508), 28);
        assert_eq!(max_entries(KeyKind::List, 0), 0);
    }
}
