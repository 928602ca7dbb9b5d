//! A snapshot of the index, as it lies in the log.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gabion_store::fuzzing::index_snapshot(bytes));
