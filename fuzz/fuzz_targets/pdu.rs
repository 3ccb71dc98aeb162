//! An iSCSI PDU behind its iSER header.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| intact_tests::fuzz::pdu(input));
