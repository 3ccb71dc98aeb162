//! Blocks with protection information, and everything that is done with them.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| intact_tests::fuzz::protection(input));
