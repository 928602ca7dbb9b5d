//! Requests and results of the store's operations: plain values, one family per file.

pub(crate) mod append;
pub(crate) mod attributes;
pub(crate) mod body;
pub(crate) mod bucket;
pub(crate) mod copy;
pub(crate) mod delete;
pub(crate) mod encryption;
pub(crate) mod list;
pub(crate) mod multipart;
pub(crate) mod object;
pub(crate) mod quota;
pub(crate) mod rename;
pub(crate) mod version;
