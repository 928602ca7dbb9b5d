//! Configuration: one table of settings, layered from flags, environment and a TOML file.
//!
//! The table ([`settings`]) drives everything: what is parsed, the help texts, `gabion config check` and the typed [`Config`].

mod check;
mod layers;
mod settings;
mod values;

pub(crate) use check::report;
pub(crate) use layers::{ENVIRONMENT_PREFIX, Layers, Problem};
pub(crate) use settings::{Config, MEMBERSHIP_FILE, SETTINGS, Setting, is_member, place};
pub(crate) use values::{
    AccessLogChoice, ByteCount, DomainName, ListenAddress, LogFilter, LogFormat, Scalar, WebAddress,
};

#[cfg(test)]
mod tests;
