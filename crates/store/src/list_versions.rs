//! Listings of versions: current objects and what lies under them, merged.
//!
//! Both tables are walked in order of key. Of a key the current object comes first; of the others the `null` version is found first and
//! waits until it is its turn.

use gabion_metadata::{
    IndexSnapshot, Table, Value,
    keys::{self, VersionKey},
    rows::{ObjectRow, Row, VersionKind},
};
use gabion_types::{BucketName, ObjectKey, Seq};

use crate::{
    ListVersions, ListedVersions, Store, StoreError, VersionId, VersionSummary,
    list::{Found, FoundRow, Listed, Objects, Walk, summary},
    versions::locate,
};

/// Above the kinds of all rows of a key.
const PAST_VERSIONS: u8 = 0x02;

impl Store {
    /// A page of versions, in order of key, and of a key the newest first.
    ///
    /// # Errors
    /// `NoSuchBucket`, `Unavailable`.
    pub async fn list_versions(&self, request: ListVersions) -> Result<ListedVersions, StoreError> {
        self.inner.require_bucket(&request.bucket)?;
        list(&*self.inner.index.snapshot(), &request)
    }
}

fn list(index: &dyn IndexSnapshot, request: &ListVersions) -> Result<ListedVersions, StoreError> {
    let mut page = ListedVersions { entries: Vec::new(), common_prefixes: Vec::new(), next: None, truncated: false };
    if request.max == 0 {
        return Ok(page);
    }
    let marker = request.after.as_ref().map_or("", |(key, _)| key.as_str());
    let mut versions = Versions::new(index, request)?;
    let mut last = None;
    while let Some(found) = versions.next()? {
        // A common prefix that is not above the marker was told on an earlier page.
        if matches!(&found, Next::Prefix(prefix) if prefix.as_str() <= marker) {
            continue;
        }
        if page.entries.len() + page.common_prefixes.len() == request.max {
            (page.truncated, page.next) = (true, last);
            break;
        }
        match found {
            Next::Prefix(prefix) => {
                last = Some((prefix.clone(), None));
                page.common_prefixes.push(prefix);
            }
            Next::Version(told) => {
                let entry = told.summary()?;
                last = Some((entry.object.key.clone(), Some(entry.version)));
                page.entries.push(entry);
            }
        }
    }
    Ok(page)
}

/// Versions of a bucket that are not current.
struct Older {
    bucket: BucketName,
}

impl Listed for Older {
    const TABLE: Table = Table::Version;

    fn row_prefix(&self, prefix: &str) -> Vec<u8> {
        keys::versions_with_prefix(&self.bucket, prefix)
    }

    fn object_key(&self, row_key: &[u8]) -> Result<String, StoreError> {
        let (_, key, _) = keys::decode_version(row_key).map_err(|error| StoreError::Unavailable(error.to_string()))?;
        Ok(key)
    }
}

/// What comes next.
#[expect(clippy::large_enum_variant, reason = "it is taken apart at once, and a box would be made for each version")]
pub(crate) enum Next {
    Prefix(String),
    Version(Told),
}

/// A version whose turn it is.
pub(crate) struct Told {
    pub key: String,
    value: Value,
    pub row: ObjectRow,
    /// Whether it is the newest of its key.
    pub is_latest: bool,
}

impl Told {
    fn summary(self) -> Result<VersionSummary, StoreError> {
        Ok(VersionSummary {
            object: summary(self.key, &self.value)?,
            version: VersionId::of(&self.row),
            seq: self.row.seq,
            is_latest: self.is_latest,
            is_marker: VersionKind::is_marker(self.row.kind),
        })
    }
}

/// A version that was found, and is to be told in its turn.
struct Waiting {
    key: String,
    value: Value,
    row: ObjectRow,
}

impl Waiting {
    fn new(key: String, value: Value) -> Result<Self, StoreError> {
        let row = ObjectRow::decode(&value)?;
        Ok(Self { key, value, row })
    }
}

/// All versions, in their order.
pub(crate) struct Versions<'a> {
    current: Walk<'a, Objects>,
    older: Walk<'a, Older>,
    next_current: Option<Found>,
    next_older: Option<Found>,
    /// The current object of the key with which the page begins.
    first: Option<Waiting>,
    /// The `null` version of the key that is being told.
    null: Option<Waiting>,
    /// The key that was told last.
    told: Option<String>,
}

impl<'a> Versions<'a> {
    pub(crate) fn new(index: &'a dyn IndexSnapshot, request: &'a ListVersions) -> Result<Self, StoreError> {
        let bucket = &request.bucket;
        let (mut first, mut null, mut told) = (None, None, None);
        let (mut after_current, mut after_older) = (None, None);
        if let Some((key, version)) = &request.after {
            after_current = Some(keys::objects_with_prefix(bucket, key));
            match (version, ObjectKey::new(key)) {
                (Some(version), Ok(name)) => {
                    let seq = match version {
                        VersionId::Of(seq) => *seq,
                        // If it is gone, what comes behind it is not known: all of the key is told again.
                        VersionId::Null => locate(index, bucket, &name, *version)?
                            .map_or(Seq::from_u64(u64::MAX), |found| found.row.seq),
                    };
                    let waiting = |value| Waiting::new(key.clone(), value);
                    let is_behind = |found: &Waiting| found.row.seq < seq;
                    let null_key = keys::version(bucket, &name, VersionKey::Null);
                    first = index.get(Table::Object, &keys::object(bucket, &name))?.map(waiting).transpose()?;
                    null = index.get(Table::Version, &null_key)?.map(waiting).transpose()?;
                    (first, null) = (first.filter(is_behind), null.filter(is_behind));
                    told = (seq < Seq::from_u64(u64::MAX)).then(|| key.clone());
                    // The numbered ones begin with the newest, behind the `null` one.
                    after_older = Some(keys::version(bucket, &name, VersionKey::Of(seq)));
                }
                _ => {
                    let mut of_key = keys::versions_of(bucket, key);
                    of_key.push(PAST_VERSIONS);
                    after_older = Some(of_key);
                }
            }
        }
        let (prefix, delimiter) = (request.prefix.as_str(), request.delimiter.as_deref());
        // What a common prefix stands for is not told by itself.
        let is_alone = |rest: &str| delimiter.is_none_or(|delimiter| delimiter.is_empty() || !rest.contains(delimiter));
        let is_listed = |found: &Waiting| found.key.strip_prefix(prefix).is_some_and(is_alone);
        (first, null) = (first.filter(is_listed), null.filter(is_listed));
        let mut current =
            Walk::new(index, Objects { bucket: bucket.clone() }, prefix, delimiter, after_current, request.max);
        let mut older = Walk::new(index, Older { bucket: bucket.clone() }, prefix, delimiter, after_older, request.max);
        let (next_current, next_older) = (current.next()?, older.next()?);
        Ok(Self { current, older, next_current, next_older, first, null, told })
    }

    pub(crate) fn next(&mut self) -> Result<Option<Next>, StoreError> {
        loop {
            if let Some(first) = self.first.take() {
                return Ok(Some(self.tell(first)));
            }
            if let Some(null) = self.null.take() {
                let newer = match &self.next_older {
                    Some(Found::Row(found)) if found.key == null.key => {
                        ObjectRow::decode(&found.row)?.seq > null.row.seq
                    }
                    _ => false,
                };
                if !newer {
                    return Ok(Some(self.tell(null)));
                }
                let found = std::mem::replace(&mut self.next_older, self.older.next()?);
                self.null = Some(null);
                if let Some(Found::Row(found)) = found {
                    let waiting = Waiting::new(found.key, found.row)?;
                    return Ok(Some(self.tell(waiting)));
                }
                continue;
            }
            let (here, there) = (self.next_current.as_ref().map(name), self.next_older.as_ref().map(name));
            let takes_current = match (here, there) {
                (None, None) => return Ok(None),
                (Some(here), Some(there)) => here <= there,
                (here, _) => here.is_some(),
            };
            let is_both = takes_current && here == there;
            let found = if takes_current {
                std::mem::replace(&mut self.next_current, self.current.next()?)
            } else {
                std::mem::replace(&mut self.next_older, self.older.next()?)
            };
            match found {
                None => {}
                Some(Found::Prefix(prefix)) => {
                    if is_both {
                        self.next_older = self.older.next()?;
                    }
                    return Ok(Some(Next::Prefix(prefix)));
                }
                Some(Found::Row(FoundRow { row_key, key, row })) => {
                    let waiting = Waiting::new(key, row)?;
                    let is_null =
                        !takes_current && matches!(keys::decode_version(&row_key), Ok((_, _, VersionKey::Null)));
                    match is_null {
                        true => self.null = Some(waiting),
                        false => return Ok(Some(self.tell(waiting))),
                    }
                }
            }
        }
    }

    fn tell(&mut self, found: Waiting) -> Next {
        let is_latest = self.told.as_ref() != Some(&found.key);
        if is_latest {
            self.told = Some(found.key.clone());
        }
        Next::Version(Told { key: found.key, value: found.value, row: found.row, is_latest })
    }
}

fn name(found: &Found) -> &str {
    match found {
        Found::Prefix(prefix) => prefix,
        Found::Row(found) => &found.key,
    }
}
