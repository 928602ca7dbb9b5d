//! Locks of keys: fixed tables of slots, so that memory does not grow with the number of keys.
//!
//! Two keys that share a slot wait for each other, nothing more. Several slots are always taken in ascending order, buckets
//! before keys, so that no two holders can wait for each other. A guard lives in the task that commits: a client who
//! hangs up does not let go of it.

use std::{
    cmp::Reverse,
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
    /// The documents of the site.
    Site,
}

/// The tables of slots.
pub(crate) struct Locks {
    buckets: Box<[Slot]>,
    keys: Box<[Slot]>,
}

type Slot = Arc<RwLock<()>>;

/// Table (keys or not) and slot.
type Place = (bool, usize);

/// Most locks that are held together: a copied part needs two buckets, its source, its upload and itself.
const LOCKS_MAX: usize = 5;

/// Locks that are held until it is dropped.
#[derive(Default)]
pub(crate) struct Guards([Guard; LOCKS_MAX]);

#[derive(Default)]
enum Guard {
    #[default]
    None,
    Shared(#[expect(dead_code, reason = "it is held")] OwnedRwLockReadGuard<()>),
    Exclusive(#[expect(dead_code, reason = "it is held")] OwnedRwLockWriteGuard<()>),
}

/// Slots of buckets: most deployments have few.
const BUCKET_SLOTS: usize = 256;

impl Locks {
    /// Tables with `key_slots` slots (at least 1) for keys, uploads and parts.
    pub(crate) fn new(key_slots: usize) -> Self {
        let table = |slots: usize| (0..slots.max(1)).map(|_| Slot::default()).collect();
        Self { buckets: table(BUCKET_SLOTS), keys: table(key_slots) }
    }

    /// Waits for all of `wanted`, at most [`LOCKS_MAX`].
    pub(crate) async fn lock(&self, wanted: &[(Lockable<'_>, Mode)]) -> Guards {
        let mut guards = Guards::default();
        for (held, (place, mode)) in guards.0.iter_mut().zip(self.places(wanted)) {
            let slot = Arc::clone(self.slot(place));
            *held = match mode {
                Mode::Shared => Guard::Shared(slot.read_owned().await),
                Mode::Exclusive => Guard::Exclusive(slot.write_owned().await),
            };
        }
        guards
    }

    /// All of `wanted`, if nobody holds or waits for any of them in a way that excludes this.
    pub(crate) fn try_lock(&self, wanted: &[(Lockable<'_>, Mode)]) -> Option<Guards> {
        let mut guards = Guards::default();
        for (held, (place, mode)) in guards.0.iter_mut().zip(self.places(wanted)) {
            let slot = Arc::clone(self.slot(place));
            *held = match mode {
                Mode::Shared => Guard::Shared(slot.try_read_owned().ok()?),
                Mode::Exclusive => Guard::Exclusive(slot.try_write_owned().ok()?),
            };
        }
        Some(guards)
    }

    /// Where the slots of `wanted` are, each once, in the order in which they are taken.
    fn places(&self, wanted: &[(Lockable<'_>, Mode)]) -> impl Iterator<Item = (Place, Mode)> {
        assert!(wanted.len() <= LOCKS_MAX, "{} locks at once", wanted.len());
        let mut places = [None; LOCKS_MAX];
        for (place, &(lockable, mode)) in places.iter_mut().zip(wanted) {
            *place = Some((self.place(lockable), mode));
        }
        // Of two for one slot the exclusive one comes first.
        places.sort_unstable_by_key(|wanted| wanted.map(|(place, mode)| (place, Reverse(mode))));
        let mut last = None;
        places.into_iter().flatten().filter(move |(place, _)| last.replace(*place) != Some(*place))
    }

    fn slot(&self, (in_keys, slot): Place) -> &Slot {
        if in_keys { &self.keys[slot] } else { &self.buckets[slot] }
    }

    fn place(&self, lockable: Lockable<'_>) -> Place {
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
    async fn what_is_tried_waits_for_nobody_and_keeps_nothing() {
        let (bucket, key) = names();
        let locks = Locks::new(64);
        let (of_bucket, of_key) = (Lockable::Bucket(&bucket), Lockable::Object(&bucket, &key));
        let put = [(of_bucket, Mode::Shared), (of_key, Mode::Exclusive)];
        let held = locks.try_lock(&put).unwrap();
        assert!(locks.try_lock(&put).is_none());
        assert!(locks.try_lock(&[(of_bucket, Mode::Exclusive)]).is_none());
        let reader = [(of_key, Mode::Shared)];
        let waits = locks.lock(&reader);
        pin_mut!(waits);
        assert!(waits.as_mut().now_or_never().is_none());
        drop(held);
        assert!(locks.try_lock(&put).is_none(), "who waits comes first");
        drop(waits.await);
        assert!(locks.try_lock(&[(of_bucket, Mode::Exclusive)]).is_some(), "what failed let go of the bucket");
        assert!(locks.try_lock(&put).is_some());
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
