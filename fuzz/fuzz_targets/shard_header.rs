//! The header block of a shard file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gabion_segment::fuzzing::shard_header(bytes));
