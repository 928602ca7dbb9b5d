//! Requests about the bucket that comes and goes.

use gabion_store::StoreError;
use gabion_types::BucketName;

use super::{Client, World, documents};
use crate::{
    linearize::{Post, Pre},
    uploads::Life,
    values::Value,
};

/// What the bucket's register holds while it is there.
const IS_THERE: Value = Value::MAX;

impl World {
    /// The bucket that comes and goes.
    fn changing_bucket(&self) -> Option<&BucketName> {
        self.buckets.last().filter(|_| self.buckets_change)
    }

    pub(crate) fn is_changing(&self, bucket: &BucketName) -> bool {
        self.changing_bucket() == Some(bucket)
    }

    pub(super) fn is_in_changing(&self, key: usize) -> bool {
        self.is_changing(&self.keys[key].0)
    }

    /// A request since `called` found the bucket there, or not.
    pub(crate) fn saw_bucket(&mut self, bucket: &BucketName, called: u64, is_there: bool) {
        if self.is_changing(bucket) {
            let now = self.tick();
            let register = self.keys.len();
            self.registers[register].saw(called, now, if is_there { Pre::Present } else { Pre::Absent });
        } else if !is_there {
            self.violate(format!("bucket {bucket} is gone"));
        }
    }

    /// A request that concerns a key found its bucket there, or not: then the key is not there either.
    pub(crate) fn saw_bucket_of(&mut self, key: usize, called: u64, is_there: bool) {
        let bucket = self.keys[key].0.clone();
        self.saw_bucket(&bucket, called, is_there);
        if !is_there {
            self.saw(key, called, None);
        }
    }

    /// An upload that was created since `called` may be gone already.
    pub(super) fn may_be_gone(&self, key: usize, called: u64) -> bool {
        self.is_in_changing(key) && (self.deletions.under_way > 0 || self.deletions.last_ended > called)
    }
}

impl Client<'_> {
    /// Creates the bucket, now and then with a document.
    pub(super) async fn create_bucket(&self) {
        let (call, of_document, bucket, configs) = {
            let mut world = self.world();
            let Some(bucket) = world.changing_bucket().cloned() else { return };
            let register = world.keys.len();
            let call = world.call(register, Pre::Absent, Post::Put(IS_THERE));
            let document = world.dice.coin().then(|| world.new_document());
            let of_document = world.call_document(&bucket, Pre::Absent, document.map_or(Post::Same, Post::Put));
            let configs = document.map(|document| (documents::NAME, documents::written(document)));
            (call, of_document, bucket, configs.into_iter().collect())
        };
        let outcome = self.store.create_bucket_of(bucket, None, self.store.owner().id.clone(), configs).await;
        let mut world = self.world();
        let now = world.tick();
        match outcome {
            Ok(()) => {
                self.trace_in(&mut world, format_args!("create the bucket"));
                world.registers[call.key].done(call, now);
                world.registers[of_document.key].done(of_document, now);
            }
            Err(StoreError::BucketAlreadyOwnedByYou) => {
                world.registers[call.key].done_as(call, now, Pre::Present, Post::Same);
                world.registers[of_document.key].refused(of_document, now);
            }
            Err(error) => {
                drop(world);
                self.all_failed(&[call, of_document], "create the bucket", &error);
            }
        }
    }

    /// Deletes the bucket, mostly after what is in it.
    pub(super) async fn delete_bucket(&self) {
        let keys: Vec<usize> = {
            let mut world = self.world();
            let empties = world.dice.below(4) > 0;
            (0..world.keys.len()).filter(|key| empties && world.is_in_changing(*key)).collect()
        };
        for key in keys {
            self.delete_key(key).await;
        }
        let (call, of_document, bucket, called, uploads) = {
            let mut world = self.world();
            let Some(bucket) = world.changing_bucket().cloned() else { return };
            let register = world.keys.len();
            let call = world.call(register, Pre::Present, Post::Delete);
            let of_document = world.call_document(&bucket, Pre::Any, Post::Delete);
            world.deletions.under_way += 1;
            let uploads: Vec<usize> = (0..world.uploads.len())
                .filter(|at| world.is_in_changing(world.uploads[*at].key) && world.uploads[*at].life != Life::Ended)
                .collect();
            let marked: Vec<usize> = uploads.iter().copied().filter(|at| !world.uploads[*at].may_be_gone).collect();
            marked.iter().for_each(|at| world.uploads[*at].may_be_gone = true);
            (call, of_document, bucket, world.tick(), (uploads, marked))
        };
        let outcome = self.store.delete_bucket(&bucket).await;
        let mut world = self.world();
        let now = world.tick();
        world.deletions.under_way -= 1;
        let was_alone = world.deletions.under_way == 0 && world.deletions.last_ended < called;
        world.deletions.last_ended = now;
        self.trace_in(&mut world, format_args!("delete the bucket: {outcome:?}"));
        let (uploads, marked) = uploads;
        match outcome {
            Ok(()) => {
                world.registers[call.key].done(call, now);
                world.registers[of_document.key].done(of_document, now);
                uploads.into_iter().for_each(|at| world.uploads[at].life = Life::Ended);
                for key in 0..world.keys.len() {
                    if world.is_in_changing(key) {
                        world.saw(key, called, None);
                    }
                }
            }
            Err(error @ (StoreError::NoSuchBucket | StoreError::BucketNotEmpty)) => {
                let pre = if matches!(error, StoreError::NoSuchBucket) { Pre::Absent } else { Pre::Present };
                let of_bucket = if pre == Pre::Absent { Pre::Absent } else { Pre::Any };
                world.registers[call.key].done_as(call, now, pre, Post::Same);
                world.registers[of_document.key].done_as(of_document, now, of_bucket, Post::Same);
                if was_alone {
                    marked.into_iter().for_each(|at| world.uploads[at].may_be_gone = false);
                }
            }
            Err(error) => {
                drop(world);
                self.all_failed(&[call, of_document], "delete the bucket", &error);
            }
        }
    }
}
