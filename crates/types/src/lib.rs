//! Identifiers, units and limits, the words that all crates of Gabion share, and what they count with.
//!
//! A leaf: it knows no I/O, no clock and no other crate of the workspace. Values are parsed once at the
//! edge; inside, the type is the proof that they are valid.
#![forbid(unsafe_code)]

mod extent;
mod geometry;
mod ids;
pub mod limits;
mod names;
mod seq;
mod shard_copy;
mod striped;

pub use extent::{Extent, Place};
pub use geometry::{Geometry, GeometryError};
pub use ids::{DeploymentId, IdError, ManifestId, SegmentId, TargetId, UploadId};
pub use names::{BucketName, BucketNameError, ObjectKey, ObjectKeyError};
pub use seq::Seq;
pub use shard_copy::ShardCopy;
pub use striped::{Counter, STRIPES, Striped};
