//! The XML documents of requests.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gabion_server::fuzzing::documents(bytes));
