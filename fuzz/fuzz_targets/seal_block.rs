//! The block that ends a segment.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gabion_segment::fuzzing::seal_block(bytes));
