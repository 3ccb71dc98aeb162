//! Lines of test vectors.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| intact_tests::fuzz::vectors(input));
