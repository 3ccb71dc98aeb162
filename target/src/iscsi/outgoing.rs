//! A PDU on its way to the host.

use rwctx::remote::Rkey;

use super::wire::iser::Control;
use super::wire::message::{HEADERS_LEN, Message};
use super::wire::pdu::Pdu;

/// A PDU with its data segment, to be sent in one SEND.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The header, without lengths.
    pub pdu: Pdu,
    /// Data segment without padding.
    pub data: Vec<u8>,
    /// The key that the SEND invalidates at the host: of the command that it answers, if both sides do that.
    pub invalidate: Option<Rkey>,
}

impl Outgoing {
    /// A PDU that invalidates nothing.
    #[must_use]
    pub fn new(pdu: Pdu, data: Vec<u8>) -> Self {
        Self { pdu, data, invalidate: None }
    }

    /// Bytes that [`Outgoing::emit`] writes.
    #[must_use]
    pub fn emitted_len(&self) -> usize {
        HEADERS_LEN + self.data.len().next_multiple_of(4)
    }

    /// Writes iSER header, header, data and padding to the start of `out`; returns how many bytes these are.
    ///
    /// # Panics
    /// When `out` is shorter than [`Outgoing::emitted_len`].
    pub fn emit(&self, out: &mut [u8]) -> usize {
        let mut bhs = self.pdu.emit();
        bhs.set_data_len(self.data.len());
        // A target names no memory: the control header is empty.
        Message { control: Control::default(), bhs: &bhs, ahs: &[], data: &self.data }.emit(out)
    }
}
