//! The store as a whole, over simulated disks with an index in memory, and over real directories with fjall.
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used)]

#[path = "../harness/mod.rs"]
mod harness;

mod appends;
mod basics;
mod bodies;
mod compaction;
mod compaction_crash;
mod concurrency;
mod conditional;
mod configs;
mod copies;
mod deletions;
mod encryption;
mod etags;
mod format;
mod holdback;
mod large_moves;
mod listing;
mod model;
mod multipart;
mod page_cache;
mod quotas;
mod real;
mod recovery;
mod renames;
mod snapshot;
mod snapshot_space;
mod space;
mod stale;
mod tags;
mod uncertain_buckets;
mod uncertain_moves;
mod uncertain_uploads;
mod unread;
mod upkeep;
mod versions;
mod warm;
