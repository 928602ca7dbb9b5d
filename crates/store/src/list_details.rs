//! Pages of objects with all that is known about each: what a report of a bucket needs, without asking for each object again.

use gabion_metadata::{
    IndexSnapshot, keys,
    rows::{ObjectRow, Row, VersionKind},
};

use crate::{
    ListDetails, ListVersions, ListedDetails, Store, StoreError, VersionDetails, VersionId,
    get::info,
    list::{Found, Objects, Walk},
    list_versions::{Next, Versions},
};

impl Store {
    /// A page of objects, or of all versions, with all that is known about each.
    ///
    /// # Errors
    /// `NoSuchBucket`, `Unavailable`.
    pub async fn list_details(&self, request: ListDetails) -> Result<ListedDetails, StoreError> {
        self.inner.require_bucket(&request.bucket)?;
        let index = self.inner.index.snapshot();
        let entries = match request.all_versions {
            true => all_versions(&*index, &request)?,
            false => current(&*index, &request)?,
        };
        let last = entries.last().filter(|_| entries.len() == request.max);
        let next = last.map(|last| (last.key.clone(), last.info.seq));
        Ok(ListedDetails { entries, next })
    }
}

fn details(key: String, mut row: ObjectRow, is_latest: bool) -> VersionDetails {
    let is_marker = VersionKind::is_marker(row.kind);
    VersionDetails { key, info: info(&mut row), is_latest, is_marker }
}

fn current(index: &dyn IndexSnapshot, request: &ListDetails) -> Result<Vec<VersionDetails>, StoreError> {
    let after = request.after.as_ref().map(|(key, _)| keys::objects_with_prefix(&request.bucket, key));
    let objects = Objects { bucket: request.bucket.clone() };
    let mut walk = Walk::new(index, objects, &request.prefix, None, after, request.max);
    let mut entries = Vec::new();
    while entries.len() < request.max {
        match walk.next()? {
            Some(Found::Row(found)) => entries.push(details(found.key, ObjectRow::decode(&found.row)?, true)),
            Some(Found::Prefix(_)) => {}
            None => break,
        }
    }
    Ok(entries)
}

fn all_versions(index: &dyn IndexSnapshot, request: &ListDetails) -> Result<Vec<VersionDetails>, StoreError> {
    let versions = ListVersions {
        bucket: request.bucket.clone(),
        prefix: request.prefix.clone(),
        delimiter: None,
        // By its commit, also where it is a `null` version: that may be gone before the next page is asked for.
        after: request.after.as_ref().map(|(key, seq)| (key.clone(), Some(VersionId::Of(*seq)))),
        max: request.max,
    };
    let mut walk = Versions::new(index, &versions)?;
    let mut entries = Vec::new();
    while entries.len() < request.max {
        match walk.next()? {
            Some(Next::Version(told)) => entries.push(details(told.key, told.row, told.is_latest)),
            Some(Next::Prefix(_)) => {}
            None => break,
        }
    }
    Ok(entries)
}
