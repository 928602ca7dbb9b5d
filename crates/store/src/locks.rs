//! Locks of keys: fixed tables of slots, so that memory does not grow with the number of keys.
//!
//! Two keys that share a slot wait for each other, nothing more. Several slots are always taken in ascending order, buckets
//! before keys, so that no two holders can wait for each other. A guard lives in the task that commits: a client who
//! hangs up does not let go of it.

use std::{
    collections::BTreeMap,
    hash::{Hash, Hasher},
    sync::Arc,
};

use gabion_types::{BucketName, ObjectKey, UploadId};
use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

/// Whether others may hold the same lock.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Mode {
    Shared,
    Exclusive,
}

/// What a lock is about.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Lockable<'a> {
    /// A bucket's existence: shared by all that write into it.
    Bucket(&'a BucketName),
    /// The current object under a key.
    Object(&'a BucketName, &'a ObjectKey),
    /// An upload's existence: shared by those that put its parts.
    Upload(UploadId),
    /// A part of an upload.
    Part(UploadId, u16),
}

/// The tables of slots.
pub(crate) struct Locks {
    buckets: Box<[Slot]>,
    keys: Box<[Slot]>,
}

type Slot = Arc<RwLock<()>>;

/// Locks that are held until it is dropped.
#[derive(Default)]
pub(crate) struct Guards {
    _shared: Vec<OwnedRwLockReadGuard<()>>,
    _exclusive: Vec<OwnedRwLockWriteGuard<()>>,
}

/// Slots of buckets: most deployments have few.
const BUCKET_SLOTS: usize = 256;

impl Locks {
    /// Tables with `key_slots` slots (at least 1) for keys, uploads and parts.
    pub(crate) fn new(key_slots: usize) -> Self {
        let table = |slots: usize| (0..slots.max(1)).map(|_| Slot::default()).collect();
        Self { buckets: table(BUCKET_SLOTS), keys: table(key_slots) }
    }

    /// Waits for all of `wanted`.
    pub(crate) async fn lock(&self, wanted: &[(Lockable<'_>, Mode)]) -> Guards {
        let mut slots = BTreeMap::new();
        for &(lockable, mode) in wanted {
            let at = self.place(lockable);
            let held = slots.entry(at).or_insert(mode);
            *held = mode.max(*held);
        }
        let mut guards = Guards::default();
        for ((in_keys, slot), mode) in slots {
            let slot = if in_keys { &self.keys[slot] } else { &self.buckets[slot] };
            match mode {
                Mode::Shared => guards._shared.push(Arc::clone(slot).read_owned().await),
                Mode::Exclusive => guards._exclusive.push(Arc::clone(slot).write_owned().await),
            }
        }
        guards
    }

    /// Table (keys or not) and slot.
    fn place(&self, lockable: Lockable<'_>) -> (bool, usize) {
        // Keyed by nothing: a client that picks colliding keys slows down its own requests to those keys.
        let mut hasher = std::hash::DefaultHasher::new();
        lockable.hash(&mut hasher);
        let in_keys = !matches!(lockable, Lockable::Bucket(_));
        let slots = if in_keys { self.keys.len() } else { self.buckets.len() };
        (in_keys, (hasher.finish() % slots as u64) as usize)
    }
}

#[cfg(test)]
mod tests {
    use futures::{FutureExt, pin_mut};

    use super::*;

    fn names() -> (BucketName, ObjectKey) {
        (BucketName::new("bucket").unwrap(), ObjectKey::new("key").unwrap())
    }

    #[tokio::test]
    async fn exclusive_keeps_out_and_shared_does_not() {
        let (bucket, key) = names();
        let locks = Locks::new(64);
        let shared = [(Lockable::Bucket(&bucket), Mode::Shared), (Lockable::Object(&bucket, &key), Mode::Shared)];
        let exclusive = [(Lockable::Object(&bucket, &key), Mode::Exclusive)];
        let first = locks.lock(&shared).await;
        let second = locks.lock(&shared).await;
        let third = locks.lock(&exclusive);
        pin_mut!(third);
        assert!(third.as_mut().now_or_never().is_none());
        drop((first, second));
        let third = third.await;
        assert!(locks.lock(&shared).now_or_never().is_none());
        drop(third);
        assert!(locks.lock(&shared).now_or_never().is_some());
    }

    #[tokio::test]
    async fn one_slot_for_all_is_taken_once() {
        let (bucket, key) = names();
        let locks = Locks::new(1);
        let other = ObjectKey::new("other").unwrap();
        let wanted = [
            (Lockable::Object(&bucket, &key), Mode::Shared),
            (Lockable::Object(&bucket, &other), Mode::Exclusive),
            (Lockable::Part(UploadId::from_u128(1), 1), Mode::Shared),
        ];
        let guards = locks.lock(&wanted).await;
        assert!(locks.lock(&wanted[..1]).now_or_never().is_none());
        drop(guards);
        assert!(locks.lock(&wanted[..1]).now_or_never().is_some());
    }
}
