//! A UDP payload on port 4791.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| intact_tests::fuzz::packet(input));
