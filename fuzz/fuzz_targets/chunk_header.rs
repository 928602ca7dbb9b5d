//! The header of a chunk.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gabion_segment::fuzzing::chunk_header(bytes));
