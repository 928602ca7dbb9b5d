//! The configuration file, through all layers to the typed settings.
#![no_main]
#![allow(dead_code, reason = "the program's modules are here for their parsers")]

#[path = "../../bin/gabion/src/config/layers.rs"]
mod layers;
#[path = "../../bin/gabion/src/config/settings.rs"]
mod settings;
#[path = "../../bin/gabion/src/config/values.rs"]
mod values;

use layers::ENVIRONMENT_PREFIX;

libfuzzer_sys::fuzz_target!(|text: &str| {
    let layers = layers::Layers {
        flags: Default::default(),
        environment: Vec::new(),
        file: Some(("gabion.toml".into(), text.to_owned())),
    };
    let _ = settings::Config::read(&layers.resolve());
});
