//! The tests of `tests/s3` with s3s in front of all operations.
#![allow(clippy::unwrap_used)]

#[path = "../s3/access.rs"]
mod access;
#[path = "../s3/appends.rs"]
mod appends;
#[path = "../s3/auth.rs"]
mod auth;
#[path = "../s3/bodies.rs"]
mod bodies;
#[path = "../s3/buckets.rs"]
mod buckets;
#[path = "../s3/configs.rs"]
mod configs;
#[path = "../s3/copies.rs"]
mod copies;
#[path = "../s3/cors.rs"]
mod cors;
#[path = "../s3/encryption.rs"]
mod encryption;
#[path = "../s3/errors.rs"]
mod errors;
#[path = "../s3/etags.rs"]
mod etags;
#[path = "../s3/harness.rs"]
mod harness;
#[path = "../s3/iam.rs"]
mod iam;
#[path = "../s3/inventory.rs"]
mod inventory;
#[path = "../s3/lifecycle.rs"]
mod lifecycle;
#[path = "../s3/listing.rs"]
mod listing;
#[path = "../s3/logging.rs"]
mod logging;
#[path = "../s3/multipart.rs"]
mod multipart;
#[path = "../s3/notifications.rs"]
mod notifications;
#[path = "../s3/object_lock.rs"]
mod object_lock;
#[path = "../s3/objects.rs"]
mod objects;
#[path = "../s3/posts.rs"]
mod posts;
#[path = "../s3/renames.rs"]
mod renames;
#[path = "../s3/tags.rs"]
mod tags;
#[path = "../s3/versions.rs"]
mod versions;
#[path = "../s3/website.rs"]
mod website;
#[path = "../s3/wire.rs"]
mod wire;

/// Whether the operations that are asked for most go by s3s.
const FAST_PATH: bool = false;
