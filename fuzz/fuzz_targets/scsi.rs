//! Commands to a SCSI target device, from two nexuses.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| intact_tests::fuzz::scsi(input));
