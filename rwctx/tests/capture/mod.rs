//! Reads recorded RoCEv2 traffic: `tests/data/*.pcap` (Ethernet) and `tests/data/roce-vectors.json`.

#![expect(clippy::unwrap_used, reason = "test support: a broken capture fails the test")]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::PathBuf;

use rwctx::device::soft::RxMeta;

/// One recorded datagram to UDP port 4791.
#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    /// File and number in it, for messages.
    pub(crate) name: String,
    /// Addressing.
    pub(crate) meta: RxMeta,
    /// IPv4 Identification; 0 over IPv6.
    pub(crate) id: u16,
    /// From the BTH to the ICRC.
    pub(crate) udp_payload: Vec<u8>,
}

/// The captures, with the number of datagrams to port 4791 in each, and how many of them were corrupted on purpose.
pub(crate) const CAPTURES: [(&str, usize, usize); 6] = [
    ("linux-nvme-iser-rxe.pcap", 1578, 0),
    ("rxe-6.1-ipv6-mtu9000.pcap", 328, 0),
    ("rxe-6.12-nvmf.pcap", 804, 0),
    ("rxe-6.12-probe-active.pcap", 82, 3),
    ("rxe-6.12-probe-ipv6.pcap", 30, 1),
    ("rxe-6.12-probe-passive.pcap", 99, 0),
];

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name)
}

/// The RoCEv2 datagrams of a capture, in order.
pub(crate) fn datagrams(name: &str) -> Vec<Datagram> {
    let bytes = std::fs::read(path(name)).unwrap();
    assert_eq!(bytes[..4], [0xD4, 0xC3, 0xB2, 0xA1], "little-endian microseconds");
    assert_eq!(bytes[20..24], [1, 0, 0, 0], "Ethernet");
    let mut found = Vec::new();
    let mut rest = &bytes[24..];
    let mut number = 0;
    while !rest.is_empty() {
        number += 1;
        let (record, tail) = rest.split_at(16);
        let word = |at: usize| u32::from_le_bytes(record[at..at + 4].try_into().unwrap()) as usize;
        assert_eq!(word(8), word(12), "{name}: frame {number} was cut short");
        let (frame, tail) = tail.split_at(word(8));
        rest = tail;
        if let Some(datagram) = datagram(&format!("{name}: frame {number}"), &frame[14..]) {
            found.push(datagram);
        }
    }
    found
}

/// The single datagrams, with their names.
#[allow(dead_code, reason = "not every test binary that shares this module reads the vectors")]
pub(crate) fn vectors() -> Vec<Datagram> {
    let text = std::fs::read_to_string(path("roce-vectors.json")).unwrap();
    let parsed: serde_json::Value = serde_json::from_str(&text).unwrap();
    let vectors = parsed.as_array().unwrap().iter().map(|vector| {
        let hex = vector["ip_hex"].as_str().unwrap();
        let ip: Vec<u8> =
            (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        datagram(vector["name"].as_str().unwrap(), &ip).unwrap()
    });
    vectors.collect()
}

/// A RoCEv2 datagram from its IP header on, if it is one.
fn datagram(name: &str, ip: &[u8]) -> Option<Datagram> {
    let half = |bytes: &[u8], at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let (protocol, id, src, dst, udp): (u8, u16, IpAddr, IpAddr, &[u8]) = match ip[0] >> 4 {
        4 if ip[0] == 0x45 => {
            let address = |at: usize| Ipv4Addr::from(<[u8; 4]>::try_from(&ip[at..at + 4]).unwrap()).into();
            (ip[9], half(ip, 4), address(12), address(16), &ip[20..usize::from(half(ip, 2))])
        }
        6 => {
            let address = |at: usize| Ipv6Addr::from(<[u8; 16]>::try_from(&ip[at..at + 16]).unwrap()).into();
            (ip[6], 0, address(8), address(24), &ip[40..40 + usize::from(half(ip, 4))])
        }
        _ => return None,
    };
    if protocol != 17 || half(udp, 2) != 4791 {
        return None;
    }
    assert_eq!(usize::from(half(udp, 4)), udp.len(), "{name}");
    let meta = RxMeta { src, dst, src_port: half(udp, 0) };
    Some(Datagram { name: name.to_owned(), meta, id, udp_payload: udp[8..].to_vec() })
}
