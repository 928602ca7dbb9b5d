//! Commits of which nobody knows what came of them: they failed in a way that may let them take effect at the next start.
//!
//! Whatever is acknowledged later has a higher sequence and wins; deletions are logged even where nothing is there. That is not enough where a later mutation stands on
//! what such a commit may take away: a completion names parts by their commits, and what is put into a bucket needs the bucket. So uploads and buckets that such a commit is about
//! are remembered, and what would stand on them is refused, until a start has found out or they are gone for good (docs/adr/0004). Nor is anything moved that such a commit may have taken
//! away: its record would lie behind the deletion, and bring back what a start had found to be gone.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::atomic::{AtomicBool, Ordering},
};

use gabion_types::{BucketName, UploadId};
use parking_lot::Mutex;

use crate::{StoreError, mutation::Mutation};

/// Uploads that are remembered, some 40 bytes each. Fewer commits than that are on their way when targets go away, and what comes then is refused for certain; if there are
/// more all the same, all uploads count as such.
const UPLOADS_MAX: usize = 1 << 16;
/// Names of rows that are remembered, some 20 bytes each; if there are more, all count as such.
const NAMES_MAX: usize = 1 << 16;

/// What stands for the name of an object, with all of its versions, or of a document. Another that has the same is not moved either.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct NameHash(u64);

impl NameHash {
    pub(crate) fn of_object(bucket: &str, key: &str) -> Self {
        Self::of(("object", bucket, key))
    }

    pub(crate) fn of_config(bucket: Option<&str>, name: &str) -> Self {
        Self::of(("config", bucket, name))
    }

    fn of(name: impl Hash) -> Self {
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        Self(hasher.finish())
    }
}

/// What a mutation takes away, or replaces, that later ones may stand on.
#[derive(Debug)]
pub(crate) enum Change {
    /// A part of an upload.
    Part(UploadId),
    /// An upload, with all its parts.
    UploadEnd(UploadId),
    /// The same, to make an object of them.
    Completion(UploadId),
    /// A bucket, with its uploads.
    BucketEnd { bucket: String, uploads: Vec<UploadId> },
    /// An object, a version of one, or a document.
    End(NameHash),
}

impl Change {
    /// That of a mutation, if it has one.
    pub(crate) fn of(mutation: &Mutation) -> Option<Self> {
        match mutation {
            Mutation::PutPart(part) => Some(Self::Part(part.upload)),
            Mutation::EndUpload(end) => Some(Self::UploadEnd(end.upload)),
            Mutation::CompleteUpload(completion) => Some(Self::Completion(completion.upload)),
            Mutation::DeleteBucket(deletion) => Some(Self::BucketEnd {
                bucket: deletion.bucket.clone(),
                uploads: deletion.uploads.iter().map(|ended| ended.upload).collect(),
            }),
            Mutation::DeleteObject(deletion) => Some(Self::End(NameHash::of_object(&deletion.bucket, &deletion.key))),
            Mutation::DeleteVersion(deletion) => Some(Self::End(NameHash::of_object(&deletion.bucket, &deletion.key))),
            Mutation::RenameObject(renaming) => {
                Some(Self::End(NameHash::of_object(&renaming.object.bucket, &renaming.from)))
            }
            Mutation::DeleteConfig(deletion) => {
                Some(Self::End(NameHash::of_config(deletion.bucket.as_deref(), &deletion.name)))
            }
            _ => None,
        }
    }
}

/// What is remembered of commits of unknown outcome.
#[derive(Default)]
pub(crate) struct Uncertain {
    /// Whether there was one.
    is_any: AtomicBool,
    changes: Mutex<Changes>,
}

#[derive(Default)]
struct Changes {
    /// Uploads, and whether an object may have been made of them.
    uploads: HashMap<UploadId, bool>,
    /// There are more of them.
    has_more_uploads: bool,
    /// There are no more of them than buckets: each is there, as far as the index knows.
    buckets: HashSet<String>,
    /// Objects and documents.
    names: HashSet<NameHash>,
    /// There are more of them.
    has_more_names: bool,
}

impl Uncertain {
    /// The outcome of a commit is unknown. Whoever waits for it has not heard of that yet, and still holds its locks.
    pub(crate) fn note(&self, change: Option<Change>) {
        if let Some(change) = change {
            self.changes.lock().add(change);
        }
        self.is_any.store(true, Ordering::Release);
    }

    /// A commit took effect: what it took away for good need not be remembered. Nothing that came before it can bring that back.
    pub(crate) fn took_effect(&self, change: &Change) {
        if self.is_any() {
            self.changes.lock().remove(change);
        }
    }

    /// Whether there was one since the last start.
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    /// How many uploads are refused what stands on them, as far as they are remembered, and which buckets, in order.
    pub(crate) fn all(&self) -> (usize, Vec<String>) {
        if !self.is_any() {
            return (0, Vec::new());
        }
        let changes = self.changes.lock();
        let mut buckets: Vec<String> = changes.buckets.iter().cloned().collect();
        buckets.sort_unstable();
        (changes.uploads.len(), buckets)
    }

    /// Refuses what stands on an upload and its parts, if they may be others after the next start. The caller holds the upload's lock.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(crate) fn require_known_upload(&self, upload: UploadId) -> Result<(), StoreError> {
        if self.is_any() && self.changes.lock().completion_of(upload).is_some() {
            let why = "the outcome of an earlier request for this upload is unknown: it may take effect when the server starts again; restart the server, or begin a new upload";
            return Err(StoreError::Unavailable(why.to_owned()));
        }
        Ok(())
    }

    /// Refuses to end an upload of which the next start may make an object: that does not come before what ends it now. Parts that come late, and an end, do no harm: this
    /// end takes them away as well. The caller holds the upload's lock.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(crate) fn require_not_completed(&self, upload: UploadId) -> Result<(), StoreError> {
        if self.is_any() && self.changes.lock().completion_of(upload) == Some(true) {
            let why = "the outcome of an earlier completion of this upload is unknown: its object may be there when the server starts again; restart the server first";
            return Err(StoreError::Unavailable(why.to_owned()));
        }
        Ok(())
    }

    /// Whether an object, a version of it, or a document may be gone after the next start. The caller holds its lock.
    pub(crate) fn may_be_gone(&self, name: NameHash) -> bool {
        if !self.is_any() {
            return false;
        }
        let changes = self.changes.lock();
        changes.has_more_names || changes.names.contains(&name)
    }

    /// Refuses to create anything in a bucket that may be gone after the next start. The caller holds the bucket's lock.
    ///
    /// # Errors
    /// `Unavailable`.
    pub(crate) fn require_known_bucket(&self, bucket: &BucketName) -> Result<(), StoreError> {
        if self.is_any() && self.changes.lock().buckets.contains(bucket.as_str()) {
            let why = "the outcome of an earlier deletion of this bucket is unknown: it may take effect when the server starts again; restart the server, or delete the bucket again";
            return Err(StoreError::Unavailable(why.to_owned()));
        }
        Ok(())
    }
}

impl Changes {
    fn add(&mut self, change: Change) {
        let (upload, is_completion) = match change {
            Change::Part(upload) | Change::UploadEnd(upload) => (upload, false),
            Change::Completion(upload) => (upload, true),
            Change::BucketEnd { bucket, .. } => {
                self.buckets.insert(bucket);
                return;
            }
            Change::End(name) => {
                match self.names.len() < NAMES_MAX {
                    true => drop(self.names.insert(name)),
                    false => self.has_more_names = true,
                }
                return;
            }
        };
        if self.uploads.len() < UPLOADS_MAX || self.uploads.contains_key(&upload) {
            *self.uploads.entry(upload).or_default() |= is_completion;
        } else {
            self.has_more_uploads = true;
        }
    }

    fn remove(&mut self, change: &Change) {
        match change {
            Change::UploadEnd(upload) => drop(self.uploads.remove(upload)),
            Change::BucketEnd { bucket, uploads } => {
                self.buckets.remove(bucket);
                for upload in uploads {
                    self.uploads.remove(upload);
                }
            }
            Change::End(name) => drop(self.names.remove(name)),
            // Others may come late all the same.
            Change::Part(_) | Change::Completion(_) => {}
        }
    }

    /// Whether an object may have been made of an upload; nothing if all is known of it.
    fn completion_of(&self, upload: UploadId) -> Option<bool> {
        self.uploads.get(&upload).copied().or_else(|| self.has_more_uploads.then_some(true))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a bucket that ends.
    const UPLOAD: u128 = 3;

    fn bucket_end() -> Change {
        Change::BucketEnd { bucket: "bucket".into(), uploads: vec![UploadId::from_u128(UPLOAD)] }
    }

    #[test]
    fn only_what_a_change_is_about_is_refused() {
        let (upload, other) = (UploadId::from_u128(1), UploadId::from_u128(2));
        let bucket = BucketName::new("bucket").unwrap();
        // Whether upload and bucket are known afterwards, and whether the upload may be ended.
        let name = NameHash::of_object("bucket", "key");
        let table = [
            (None, (true, true, true)),
            (Some(Change::Part(upload)), (false, true, true)),
            (Some(Change::UploadEnd(upload)), (false, true, true)),
            (Some(Change::Completion(upload)), (false, false, true)),
            (Some(bucket_end()), (true, true, false)),
            (Some(Change::End(name)), (true, true, true)),
        ];
        for (change, expected) in table {
            let (uncertain, what) = (Uncertain::default(), format!("{change:?}"));
            assert!(!uncertain.is_any());
            uncertain.note(change);
            assert!(uncertain.is_any(), "{what}");
            let (uploads, buckets) = uncertain.all();
            assert_eq!((uploads == 0, buckets.is_empty()), (expected.0, expected.2), "{what}");
            assert_eq!(uncertain.may_be_gone(name), what.contains("NameHash"), "{what}");
            let others = [NameHash::of_object("bucket", "other"), NameHash::of_config(Some("bucket"), "key")];
            assert!(others.iter().all(|other| !uncertain.may_be_gone(*other)), "{what}");
            let known = (
                uncertain.require_known_upload(upload).is_ok(),
                uncertain.require_not_completed(upload).is_ok(),
                uncertain.require_known_bucket(&bucket).is_ok(),
            );
            assert_eq!(known, expected, "{what}");
            uncertain.require_known_upload(other).unwrap();
            uncertain.require_known_bucket(&BucketName::new("other").unwrap()).unwrap();
        }
    }

    #[test]
    fn what_takes_away_for_good_settles_it() {
        let upload = UploadId::from_u128(1);
        let bucket = BucketName::new("bucket").unwrap();
        let uncertain = Uncertain::default();
        uncertain.note(Some(Change::Completion(upload)));
        uncertain.note(Some(Change::Part(upload)));
        uncertain.took_effect(&Change::Part(upload));
        assert!(uncertain.require_not_completed(upload).is_err(), "a part says nothing of the completion");
        uncertain.took_effect(&Change::UploadEnd(upload));
        uncertain.require_known_upload(upload).unwrap();
        uncertain.note(Some(bucket_end()));
        uncertain.note(Some(Change::Part(UploadId::from_u128(UPLOAD))));
        uncertain.took_effect(&bucket_end());
        assert_eq!(uncertain.all(), (0, Vec::new()), "its uploads ended with it");
        let name = NameHash::of_object("bucket", "key");
        uncertain.note(Some(Change::End(name)));
        uncertain.took_effect(&Change::End(name));
        assert!(!uncertain.may_be_gone(name));
        uncertain.require_known_bucket(&bucket).unwrap();
        assert!(uncertain.is_any());
    }

    #[test]
    fn all_uploads_are_refused_when_there_are_too_many_to_remember() {
        let uncertain = Uncertain::default();
        let stranger = UploadId::from_u128(u128::MAX);
        let uploads = || (0..UPLOADS_MAX as u128).map(UploadId::from_u128);
        uploads().for_each(|upload| uncertain.note(Some(Change::Part(upload))));
        uncertain.require_known_upload(stranger).unwrap();
        uncertain.note(Some(Change::Part(UploadId::from_u128(UPLOADS_MAX as u128))));
        uploads().for_each(|upload| uncertain.took_effect(&Change::UploadEnd(upload)));
        assert!(
            uncertain.require_known_upload(stranger).is_err() && uncertain.require_not_completed(stranger).is_err()
        );
    }
}
