//! The store: a handle that is cheap to clone.

use std::sync::Arc;

use gabion_segment::{LogStatus, LogTarget};
use gabion_types::{BucketName, UploadId};

use crate::*;

/// The object engine. Clones share it.
#[derive(Clone)]
pub struct Store {
    _inner: Arc<()>,
}

/// A snapshot for the admin page.
#[derive(Clone, Debug)]
pub struct StoreStatus {
    /// The log's own.
    pub log: LogStatus,
    /// The index's own.
    pub index: gabion_metadata::IndexStats,
    /// Bytes in segments that some row needs, references counted.
    pub live_bytes: u64,
    /// Bytes ever written to the segments that exist.
    pub written_bytes: u64,
    /// Segments that wait to be deleted.
    pub segments_to_free: usize,
    /// Why the store takes no writes, if it takes none.
    pub unavailable: Option<String>,
}

macro_rules! signatures {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $ty:ty),*) -> $out:ty;)*) => {
        impl Store {
            $($(#[$doc])* pub async fn $name(&self, $($arg: $ty),*) -> Result<$out, StoreError> {
                $(let _ = $arg;)*
                Err(StoreError::Unavailable("not open".into()))
            })*
        }
    };
}

signatures! {
    /// Buckets.
    fn list_buckets(request: ListBuckets) -> ListedBuckets;
    /// `region` None: the store's.
    fn create_bucket(name: BucketName, region: Option<String>) -> ();
    /// One bucket.
    fn head_bucket(name: &BucketName) -> BucketInfo;
    /// Deletes.
    fn delete_bucket(name: &BucketName) -> ();
    /// Puts.
    fn put_object(request: PutObject, body: ObjectBody) -> PutResult;
    /// Gets.
    fn get_object(request: GetObject) -> ObjectRead;
    /// Heads: the same, with an empty body.
    fn head_object(request: GetObject) -> ObjectRead;
    /// Attributes.
    fn get_attributes(request: GetAttributes) -> ObjectAttributes;
    /// Deletes.
    fn delete_object(bucket: BucketName, request: DeleteObject) -> Deleted;
    /// One result per request, in order; the outer error is about the bucket.
    fn delete_objects(bucket: BucketName, requests: Vec<DeleteObject>) -> Vec<(gabion_types::ObjectKey, Result<Deleted, StoreError>)>;
    /// Copies.
    fn copy_object(request: CopyObject) -> CopyResult;
    /// Lists.
    fn list_objects(request: ListObjects) -> ListedObjects;
    /// Begins an upload.
    fn create_upload(request: CreateUpload) -> UploadId;
    /// A part.
    fn upload_part(request: UploadPart, body: ObjectBody) -> PartResult;
    /// A part from an object.
    fn upload_part_copy(request: UploadPartCopy) -> PartResult;
    /// Completes.
    fn complete_upload(request: CompleteUpload) -> PutResult;
    /// Aborts.
    fn abort_upload(target: UploadRef) -> ();
    /// Parts.
    fn list_parts(request: ListParts) -> ListedParts;
    /// Uploads.
    fn list_uploads(request: ListUploads) -> ListedUploads;
}

impl Store {
    /// Opens.
    pub async fn open(
        config: StoreConfig,
        targets: Vec<LogTarget>,
        index: Box<dyn IndexFactory>,
        env: Env,
        progress: Arc<dyn Progress>,
    ) -> Result<(Store, OpenReport), StoreError> {
        let _ = (config, targets, index, env, progress);
        Err(StoreError::Unavailable("not open".into()))
    }

    /// Rebuilds.
    pub async fn rebuild_index(
        config: StoreConfig,
        targets: Vec<LogTarget>,
        index: Box<dyn IndexFactory>,
        env: Env,
        progress: Arc<dyn Progress>,
    ) -> Result<RebuildReport, StoreError> {
        let _ = (config, targets, index, env, progress);
        Err(StoreError::Unavailable("not open".into()))
    }

    /// The owner of everything.
    #[must_use]
    pub fn owner(&self) -> Owner {
        Owner { id: String::new(), display_name: String::new() }
    }

    /// Finishes what is in flight, makes a checkpoint, lets go of the targets.
    pub async fn shutdown(&self) {}

    /// The log's counters, for the metrics page.
    #[must_use]
    pub fn log_metrics(&self) -> &gabion_segment::LogMetrics {
        unreachable!("no store can be open yet")
    }

    /// A snapshot for the admin page.
    #[must_use]
    pub fn status(&self) -> StoreStatus {
        unreachable!("no store can be open yet")
    }
}
