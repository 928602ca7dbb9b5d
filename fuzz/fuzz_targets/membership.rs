//! `gabion.json`, and the names of shard files.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gabion_segment::fuzzing::membership(bytes));
