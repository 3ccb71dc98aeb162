//! The iSER header that goes ahead of every PDU (RFC 7145 section 9): control header, Hello and HelloReply.

use rwctx::remote::{RemoteAddr, Rkey};
use zerocopy::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of every iSER header.
pub const ISER_HEADER_LEN: usize = 28;

const TYPE_MASK: u8 = 0xf0;
const TYPE_CONTROL: u8 = 0x10;
const TYPE_HELLO: u8 = 0x20;
const TYPE_HELLO_REPLY: u8 = 0x30;
/// WSV: Write STag and Write Base Offset are valid.
const WRITE_VALID: u8 = 0x08;
/// RSV: Read STag and Read Base Offset are valid.
const READ_VALID: u8 = 0x04;
/// REJ of a HelloReply.
const REJECTED: u8 = 0x01;

/// The control header (section 9.2).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawControl {
    /// Type (7:4), WSV (3), RSV (2).
    flags: u8,
    rsvd1: [u8; 3],
    /// Write STag: the key of what the target reads.
    write_stag: U32,
    /// Write Base Offset.
    write_base: U64,
    /// Read STag: the key of what the target writes to.
    read_stag: U32,
    /// Read Base Offset.
    read_base: U64,
}

/// Hello and HelloReply (sections 9.3, 9.4).
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawHello {
    /// Type (7:4); REJ (0) of a reply.
    flags: u8,
    /// MaxVer (7:4); MinVer or, in a reply, CurVer (3:0).
    versions: u8,
    /// iSER-IRD or, in a reply, iSER-ORD.
    depth: U16,
    rsvd4: [u8; 24],
}

const _: () = assert!(size_of::<RawControl>() == ISER_HEADER_LEN);
const _: () = assert!(size_of::<RawHello>() == ISER_HEADER_LEN);

/// An iSER header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IserHeader {
    /// Ahead of an iSCSI PDU.
    Control(Control),
    /// A host's Hello.
    Hello {
        /// MaxVer, 0 to 15.
        version_max: u8,
        /// MinVer, 0 to 15.
        version_min: u8,
        /// iSER-IRD: RDMA Reads that the host answers at once.
        inbound_reads: u16,
    },
    /// A target's answer to it.
    HelloReply {
        /// REJ: the target accepts no version of those offered.
        rejected: bool,
        /// MaxVer, 0 to 15.
        version_max: u8,
        /// CurVer, 0 to 15.
        version: u8,
        /// iSER-ORD: RDMA Reads that the target issues at once.
        outbound_reads: u16,
    },
    /// Of a reserved type, 0 to 15.
    Unknown(u8),
}

/// The host's memory that a command names; each part is there if its flag says so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Control {
    /// Where a write's solicited data begins: what the target reads.
    pub write: Option<RemoteAddr>,
    /// Where a read's data goes: what the target writes to.
    pub read: Option<RemoteAddr>,
}

impl IserHeader {
    /// Reads a header.
    #[must_use]
    pub fn parse(bytes: &[u8; ISER_HEADER_LEN]) -> Self {
        let hello: RawHello = zerocopy::transmute!(*bytes);
        let (high, low) = (hello.versions >> 4, hello.versions & 0xf);
        match hello.flags & TYPE_MASK {
            TYPE_CONTROL => {
                let raw: RawControl = zerocopy::transmute!(*bytes);
                let at = |bit, stag: U32, base: U64| {
                    (raw.flags & bit != 0).then(|| RemoteAddr { addr: base.get(), rkey: Rkey(stag.get()) })
                };
                Self::Control(Control {
                    write: at(WRITE_VALID, raw.write_stag, raw.write_base),
                    read: at(READ_VALID, raw.read_stag, raw.read_base),
                })
            }
            TYPE_HELLO => {
                Self::Hello { version_max: high, version_min: low, inbound_reads: hello.depth.get() }
            }
            TYPE_HELLO_REPLY => Self::HelloReply {
                rejected: hello.flags & REJECTED != 0,
                version_max: high,
                version: low,
                outbound_reads: hello.depth.get(),
            },
            other => Self::Unknown(other >> 4),
        }
    }

    /// The header's bytes.
    #[must_use]
    pub fn emit(&self) -> [u8; ISER_HEADER_LEN] {
        let hello = |flags, high: u8, low: u8, depth| {
            let versions = high << 4 | low & 0xf;
            zerocopy::transmute!(RawHello { flags, versions, depth: U16::new(depth), rsvd4: [0; 24] })
        };
        match *self {
            Self::Control(control) => {
                let mut raw = RawControl::new_zeroed();
                raw.flags = TYPE_CONTROL;
                if let Some(at) = control.write {
                    raw.flags |= WRITE_VALID;
                    raw.write_stag = U32::new(at.rkey.0);
                    raw.write_base = U64::new(at.addr);
                }
                if let Some(at) = control.read {
                    raw.flags |= READ_VALID;
                    raw.read_stag = U32::new(at.rkey.0);
                    raw.read_base = U64::new(at.addr);
                }
                zerocopy::transmute!(raw)
            }
            Self::Hello { version_max, version_min, inbound_reads } => {
                hello(TYPE_HELLO, version_max, version_min, inbound_reads)
            }
            Self::HelloReply { rejected, version_max, version, outbound_reads } => {
                let flags = TYPE_HELLO_REPLY | if rejected { REJECTED } else { 0 };
                hello(flags, version_max, version, outbound_reads)
            }
            Self::Unknown(kind) => hello(kind << 4, 0, 0, 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_of_a_recorded_read_is_read_and_written_back() {
        let mut bytes = [0; ISER_HEADER_LEN];
        bytes[0] = 0x14;
        bytes[18..20].copy_from_slice(&[0x77, 0xb4]);
        bytes[20..].copy_from_slice(&0xff22_2880_9860_ce00_u64.to_be_bytes());
        let header = IserHeader::parse(&bytes);
        let read = RemoteAddr { addr: 0xff22_2880_9860_ce00, rkey: Rkey(0x77b4) };
        assert_eq!(header, IserHeader::Control(Control { write: None, read: Some(read) }));
        assert_eq!(header.emit(), bytes);
    }

    #[test]
    fn greetings_and_reserved_types_are_told_apart() {
        for (header, start) in [
            (IserHeader::Hello { version_max: 2, version_min: 1, inbound_reads: 16 }, [0x20, 0x21, 0, 16]),
            (
                IserHeader::HelloReply { rejected: true, version_max: 2, version: 1, outbound_reads: 8 },
                [0x31, 0x21, 0, 8],
            ),
            (IserHeader::Unknown(0xf), [0xf0, 0, 0, 0]),
        ] {
            let bytes = header.emit();
            assert_eq!(bytes[..4], start);
            assert_eq!(bytes[4..], [0; 24]);
            assert_eq!(IserHeader::parse(&bytes), header);
        }
    }
}
