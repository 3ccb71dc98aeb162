//! What a Linux 6.1 host (open-iscsi on ib_iser) and the kernel's own target said to each other: a discovery session,
//! then a login, the scan of a disk, reads, writes and the logout. For tests.

use rwctx::remote::{RemoteAddr, RemoteSegment, Rkey};

/// A line for each message or RDMA operation: `host|target QPN INVALIDATED HEX MORE` with the message's bytes, of which
/// the last MORE, the data of a write, are left out; `read|write QPN - ADDRESS KEY LENGTH`, all numbers but MORE in
/// hexadecimal.
const MESSAGES: &str = include_str!("../../tests/data/iser-messages.txt");

/// The queue pair of the discovery session.
pub(super) const DISCOVERY: u32 = 0x14;
/// The queue pair of the normal session.
pub(super) const NORMAL: u32 = 0x15;

/// Something that was seen on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    /// A SEND of the host.
    Host(Vec<u8>),
    /// A SEND of the target, and the key that it invalidated.
    Target(Vec<u8>, Option<Rkey>),
    /// An RDMA WRITE of the target to the host's memory.
    Write(RemoteSegment),
    /// An RDMA READ of the target from the host's memory.
    Read(RemoteSegment),
}

/// What was seen on a queue pair, in order.
pub(super) fn recorded(qpn: u32) -> Vec<Recorded> {
    let hex = |text| u64::from_str_radix(text, 16).unwrap();
    let number = |text| u32::from_str_radix(text, 16).unwrap();
    let lines = MESSAGES.lines().map(|line| line.split(' ').collect::<Vec<_>>());
    let lines = lines.filter(|line| number(line[1]) == qpn);
    lines
        .map(|line| match line[..] {
            ["host", _, "-", bytes, more] => Recorded::Host(message(bytes, more)),
            ["target", _, key, bytes, more] => {
                let key = (key != "-").then(|| Rkey(number(key)));
                Recorded::Target(message(bytes, more), key)
            }
            [kind @ ("read" | "write"), _, "-", addr, key, length] => {
                let at = RemoteAddr { addr: hex(addr), rkey: Rkey(number(key)) };
                let segment = RemoteSegment { at, length: number(length) };
                if kind == "read" { Recorded::Read(segment) } else { Recorded::Write(segment) }
            }
            _ => panic!("{line:?}"),
        })
        .collect()
}

fn message(hex: &str, more: &str) -> Vec<u8> {
    let digits = (0..hex.len()).step_by(2);
    let mut bytes: Vec<u8> = digits.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
    bytes.resize(bytes.len() + more.parse::<usize>().unwrap(), 0x5a);
    bytes
}
