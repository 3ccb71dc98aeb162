//! An iSCSI session in its full feature phase.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| intact_tests::fuzz::session(input));
