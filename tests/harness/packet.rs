//! Packets made by hand, with a right ICRC.

use rwctx::device::Qpn;
use rwctx::device::soft::icrc::IcrcFlow;
use rwctx::device::soft::wire::{Bth, Deth, Ext, GSI_QKEY, HEADER_MAX, Header, Opcode};

/// Headers and payload of any kind, with pad bytes and the ICRC.
#[must_use]
pub fn sealed(flow: &IcrcFlow, header: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut icrc = flow.begin(0, header, payload.len());
    icrc.update(payload);
    [header, payload, icrc.finish().as_bytes()].concat()
}

/// A packet.
#[must_use]
pub fn packet(flow: &IcrcFlow, header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = [0; HEADER_MAX];
    let length = header.emit(&mut bytes);
    sealed(flow, &bytes[..length], payload)
}

/// A management datagram to queue pair 1.
#[must_use]
pub fn mad_packet(flow: &IcrcFlow, mad: &[u8]) -> Vec<u8> {
    let bth = Bth::new(Opcode::UdSendOnly, Qpn(1), 0, mad.len());
    let ext = Ext::Deth(Deth { qkey: GSI_QKEY, src_qpn: Qpn(1) });
    packet(flow, &Header { bth, ext }, mad)
}
