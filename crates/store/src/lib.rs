//! The object engine: buckets, objects, multipart uploads, and the commit that makes them visible.
//!
//! It is the only crate that knows both the log ([`gabion_segment`]) and the index ([`gabion_metadata`]). It knows no
//! HTTP, no XML and no signatures: the server hands it parsed requests and checked, bounded body streams.
//!
//! Invariants:
//! * The log is the truth: a client is answered after its mutation is durable in the log *and* applied to the index.
//! * One function applies a mutation, in a live commit and in a replay alike (`src/apply`).
//! * Rows, counters and the position in the log up to which they are complete change in one index commit.
//! * A segment is deleted only when no row refers to it, nothing in flight may come to refer to it, the index has
//!   made that durable, and what its mutations took away stays away (docs/adr/0004).
#![forbid(unsafe_code)]

mod api;
mod append;
mod apply;
mod attributes;
mod body;
mod bucket;
mod compact;
pub mod conditions;
mod config;
mod config_cache;
mod configs;
mod copy;
mod delete;
mod embedded;
mod error;
mod free;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod get;
mod holdback;
mod holds;
mod in_flight;
mod late_md5;
mod list;
mod list_details;
mod list_versions;
mod locks;
mod md5s;
mod metrics;
mod multipart;
mod mutation;
mod open;
mod put;
mod quotas;
pub mod range;
mod references;
mod rename;
mod sealed;
mod snapshot;
mod store;
mod tasks;
mod uncertain;
mod upkeep;
mod versions;

pub use api::{
    append::AppendObject,
    attributes::{GetAttributes, ObjectAttributes, PartsPage},
    body::{BodyPiece, BodySource, BodyTrailers, ObjectBody},
    bucket::{BucketInfo, ListBuckets, ListedBuckets, Usage},
    copy::{CopyMetadata, CopyObject, CopyResult, CopySource},
    delete::{DeleteObject, Deleted},
    encryption::{CopyKeys, Encrypt, KeyKeeper, WrappingKey},
    list::{
        ListDetails, ListObjects, ListVersions, ListedDetails, ListedObjects, ListedVersions, ObjectSummary,
        VersionDetails, VersionSummary,
    },
    multipart::{
        CompleteUpload, CompletedPart, CreateUpload, CreatedUpload, ListParts, ListUploads, ListedParts, ListedUploads,
        PartResult, PartSummary, UploadPart, UploadPartCopy, UploadRef, UploadSummary,
    },
    object::{GetObject, ObjectInfo, ObjectRead, ObjectStream, Opening, PartInfo, PutObject, PutResult},
    quota::{Holder, Holding, Limit, Limits, QuotaKeeper},
    rename::RenameObject,
    version::{VersionId, VersionIdError},
};
pub use compact::Compacted;
pub use conditions::{EtagMatch, ReadConditions, WriteConditions};
pub use config::{
    CompactionConfig, Env, EtagKind, IndexFactory, OpenReport, Owner, Progress, RebuildReport, RowDifference, RowFault,
    Silent, SnapshotReport, StoreConfig, VerifyReport,
};
pub use config_cache::{Configs, VERSIONING, Versioning};
pub use configs::{CONFIG_BYTES_MAX, ConfigScope};
pub use embedded::EmbeddedIndex;
pub use error::{BodyError, DigestKind, KeyError, StoreError, Unmodified};
pub use metrics::StoreMetrics;
pub use range::{ByteRange, RangeRequest};
pub use store::{Store, StoreStatus};
pub use upkeep::{CrossCheck, ScrubReport, ScrubStatus};

// A bench measures it by itself.
#[doc(hidden)]
pub use md5s::{BodyMd5, Md5s};

pub use gabion_encryption::SecretKey;
pub use gabion_erasure::{Checksum, ChecksumAlgorithm};
pub use gabion_metadata::rows::{
    Attributes, ChecksumKind, Encryption, EncryptionScheme, Etag, Retention, RetentionMode, StoredChecksum,
};
pub use gabion_segment::{
    LogMetrics, LogTarget, MemoryUse, RepairPass, RepairStatus, TargetMode, TargetPlan, TargetState, TargetStatus,
};
