//! Files of the state directory: what stands beside fjall's own, its journals as far as we read them, and the credentials.
#![no_main]
#![allow(dead_code, reason = "the program's modules are here for one function each")]

#[path = "../../bin/gabion/src/exit.rs"]
mod exit;
#[path = "../../bin/gabion/src/state.rs"]
mod state;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    gabion_metadata::fuzzing::state_files(bytes);
    if let Ok(text) = std::str::from_utf8(bytes) {
        let _ = state::parse(text);
    }
});
