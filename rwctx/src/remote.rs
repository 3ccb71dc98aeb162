//! A peer's memory as it is named on the wire: address, key and length.

/// A remote key: grants a peer's memory to us, or ours to a peer. The low byte steps on every reuse.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rkey(pub u32);

impl std::fmt::Debug for Rkey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Rkey({:#010x})", self.0)
    }
}

/// The start of a peer's buffer (IBTA RETH: virtual address and R_Key).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteAddr {
    /// Virtual address in the peer's address space.
    pub addr: u64,
    /// Key that grants access to it.
    pub rkey: Rkey,
}

/// A peer's buffer with its length, as an NVMe keyed SGL descriptor or an iSER header names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteSegment {
    /// Where it starts.
    pub at: RemoteAddr,
    /// Bytes.
    pub length: u32,
}

impl RemoteAddr {
    /// The address `bytes` further on, or `None` when it would pass the end of the address space.
    #[must_use]
    pub fn checked_add(self, bytes: u64) -> Option<Self> {
        Some(Self { addr: self.addr.checked_add(bytes)?, rkey: self.rkey })
    }
}
