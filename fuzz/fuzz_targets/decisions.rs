//! Commands whose protection fields a host chose.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| intact_tests::fuzz::decisions(input));
