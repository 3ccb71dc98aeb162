//! iSCSI and iSER layouts as they stand on the wire; nothing else in this crate knows a byte offset of them.
//!
//! Every PDU is a value with `parse` and `emit`: a request of the host or a response of the target, each field
//! converted. Reserved bits are ignored on receipt and zero when sent, as RFC 7143 section 11 asks, so what is emitted
//! is what was parsed, but for those. Sections named here are those of RFC 7143 (iSCSI) and RFC 7145 (iSER).

pub mod ahs;
pub mod async_message;
pub mod bhs;
mod codes;
pub mod iser;
pub mod login;
pub mod logout;
pub mod message;
pub mod nop;
pub mod number;
pub mod opcode;
pub mod pdu;
pub mod private_data;
pub mod reject;
pub mod scsi;
pub mod task;
pub mod text;

#[cfg(test)]
mod tests;
