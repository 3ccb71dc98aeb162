//! What a target says to the initiator in a session.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| intact_tests::fuzz::host_session(input));
