//! The log: to standard error, as text or JSON. What libraries tell by the crate `log` (the index engine does) is in it.

use std::io;
use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::{Config, LogFilter, LogFormat};
use crate::exit::Failure;

/// Parts below their own level of interest: s3s opens a span per request at INFO (1.5 µs) and calls every refused request an
/// error, which the server reports by itself; hyper and h2 tell of every frame; async-nats calls every attempt to connect an error,
/// where notifications say once that they fail.
const QUIET: [&str; 8] = [
    "s3s=off",
    "hyper=warn",
    "hyper_util=warn",
    "h2=warn",
    "rustls=warn",
    "fjall=warn",
    "lsm_tree=warn",
    "async_nats=off",
];

/// Starts logging.
///
/// # Errors
/// When the filter can not be read.
pub(crate) fn start(config: &Config) -> Result<(), Failure> {
    let text = match &config.log_filter {
        Some(LogFilter(directives)) => directives.clone(),
        None => config.log_level.0.to_string().to_lowercase(),
    };
    let filter = EnvFilter::try_new(QUIET.join(",") + "," + &text)
        .map_err(|error| Failure::config(format!("log.filter {text:?} can not be read: {error}")))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    let started = match config.log_format {
        LogFormat::Text => builder.with_ansi(io::stderr().is_terminal()).try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| Failure::failed(format!("the log can not be started: {error}")))
}
