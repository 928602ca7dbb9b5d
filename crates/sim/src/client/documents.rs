//! Requests about the document that configures a bucket: a register beside those of the keys, which comes and goes with its bucket as well.

use bytes::Bytes;
use gabion_store::{ConfigScope, StoreError};
use gabion_types::BucketName;

use super::{Client, World};
use crate::{
    history::Call,
    linearize::{Post, Pre},
    values::Value,
};

/// Its name.
pub(super) const NAME: &str = "document";

impl World {
    /// The register of the document of a bucket.
    fn document_register(&self, bucket: &BucketName) -> usize {
        // Behind those of the keys and that of the bucket that comes and goes.
        let place = self.buckets.iter().position(|other| other == bucket).unwrap_or_default();
        self.keys.len() + 1 + place
    }

    /// A document that nobody has written before.
    pub(super) fn new_document(&mut self) -> Value {
        self.documents += 1;
        self.documents
    }

    /// Its document is about to be changed.
    pub(super) fn call_document(&mut self, bucket: &BucketName, pre: Pre, post: Post) -> Call {
        let register = self.document_register(bucket);
        self.call(register, pre, post)
    }
}

/// A document's bytes.
pub(super) fn written(value: Value) -> Bytes {
    value.to_string().into()
}

impl Client<'_> {
    pub(super) async fn put_document(&self) {
        let (bucket, value, call, called) = {
            let mut world = self.world();
            let (bucket, value, called) = (world.any_bucket(), world.new_document(), world.tick());
            let call = world.call_document(&bucket, Pre::Any, Post::Put(value));
            (bucket, value, call, called)
        };
        let outcome = self.store.put_config(ConfigScope::Bucket(bucket.clone()), NAME, written(value)).await;
        self.document_changed(call, called, &bucket, &format!("write document {value} of {bucket}"), outcome);
    }

    pub(super) async fn delete_document(&self) {
        let (bucket, call, called) = {
            let mut world = self.world();
            let (bucket, called) = (world.any_bucket(), world.tick());
            let call = world.call_document(&bucket, Pre::Any, Post::Delete);
            (bucket, call, called)
        };
        let outcome = self.store.delete_config(ConfigScope::Bucket(bucket.clone()), NAME).await;
        self.document_changed(call, called, &bucket, &format!("delete the document of {bucket}"), outcome);
    }

    fn document_changed(
        &self,
        call: Call,
        called: u64,
        bucket: &BucketName,
        what: &str,
        outcome: Result<(), StoreError>,
    ) {
        let mut world = self.world();
        let now = world.tick();
        match outcome {
            Ok(()) => {
                self.trace_in(&mut world, format_args!("{what}"));
                world.registers[call.key].done(call, now);
                world.saw_bucket(bucket, called, true);
            }
            Err(StoreError::NoSuchBucket) => {
                world.registers[call.key].done_as(call, now, Pre::Absent, Post::Same);
                world.saw_bucket(bucket, called, false);
            }
            Err(error) => {
                drop(world);
                self.failed(call, what, &error);
            }
        }
    }

    pub(super) fn read_any_document(&self) {
        let bucket = self.world().any_bucket();
        self.read_document(&bucket);
    }

    /// Reads the document of a bucket, which has none when it is not there.
    pub(crate) fn read_document(&self, bucket: &BucketName) {
        let called = self.world().tick();
        let configs = match self.store.bucket_configs(bucket) {
            Ok(configs) => configs,
            Err(error) => return self.read_failed(&format!("the document of {bucket}"), &error),
        };
        let document = configs.get(NAME).map(|document| String::from_utf8_lossy(document).into_owned());
        let mut world = self.world();
        let register = world.document_register(bucket);
        match document.as_deref().map(str::parse).transpose() {
            Ok(value) => world.saw(register, called, value),
            Err(_) => world.violate(format!("the document of {bucket} is {document:?}, which nobody wrote")),
        }
    }
}
