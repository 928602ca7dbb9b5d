//! Who may ask: what is checked around the signatures that s3s verifies.
//!
//! s3s 0.17 verifies Signature Version 4 (header, presigned, chunks, trailers) and presigned URLs of 2, the clock skew, the expiry, the
//! region, and that all `x-amz-*` headers are signed. What it leaves open is checked here, before it sees a request:
//! that `Host` is signed, that there is one way of signing only, that the framing headers are plain numbers.
//! The operations that are asked for most are verified by `sigv4` instead, which leaves every refusal to s3s.

mod actions;
mod authorize;
mod context;
pub(crate) mod forms;
mod front;
pub(crate) mod identity;
mod provider;
mod services;
pub(crate) mod sigv4;
pub(crate) mod version_2;
mod version_4;

pub(crate) use actions::action;
pub(crate) use authorize::{Standing, authorize, authorize_lock, authorize_tags, hide, may, may_delete, may_put};
pub(crate) use context::{REMAINING_DAYS, remaining_days};
pub(crate) use front::{Asked, check, session_token};
pub(crate) use provider::Provider;
pub(crate) use services::{Delivery, LOGS, REPORTS, delivery};
pub(crate) use version_4::EMPTY_SHA256;
