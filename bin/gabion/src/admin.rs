//! What is asked of a running server over its admin port.

mod client;
pub(crate) mod iam;
pub(crate) mod scrub;
pub(crate) mod status;
pub(crate) mod target;

pub(crate) use client::{AdminArgs, TokenArgs};
