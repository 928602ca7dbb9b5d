//! What is asked of a running server over its admin port.

mod client;
pub(crate) mod status;

pub(crate) use client::AdminArgs;
