//! A management datagram to QP1.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| intact_tests::fuzz::cm(input));
