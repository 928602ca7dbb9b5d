//! HTTP and S3 in front of the store: routes, signatures, errors, the admin page. It knows no files.
#![forbid(unsafe_code)]

mod access;
pub mod access_log;
mod address;
pub mod admin;
pub mod audit;
mod auth;
pub mod credentials;
mod documents;
pub mod error;
mod fetch;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
pub mod http;
pub mod iam;
pub mod inventory;
pub mod keys;
pub mod lifecycle;
pub mod metrics;
pub mod notifications;
mod ops;
pub mod s3;
pub mod tls;

pub use address::check_web_address;
