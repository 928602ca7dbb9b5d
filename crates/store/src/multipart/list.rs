//! ListParts and ListMultipartUploads.

use gabion_erasure::ChecksumAlgorithm;
use gabion_metadata::{
    ScanRange, Table, keys,
    rows::{PartRow, Row, UploadRow},
};
use gabion_types::{BucketName, UploadId};

use crate::{
    ListParts, ListUploads, ListedParts, ListedUploads, PartSummary, Store, StoreError, UploadSummary,
    list::{Found, Listed, Walk},
};

impl Store {
    /// A page of the parts of an upload, in order of number.
    ///
    /// # Errors
    /// `NoSuchBucket`, `NoSuchUpload`, `Unavailable`.
    pub async fn list_parts(&self, request: ListParts) -> Result<ListedParts, StoreError> {
        // Upload and parts from one moment: whatever ends it in between takes the parts along.
        let index = self.inner.index.snapshot();
        let upload = self.inner.upload_as(&request.target, |row_key| index.get(Table::Upload, row_key))?;
        let id = request.target.upload;
        let range = ScanRange::prefix(Table::Part, &keys::parts_of(id)).after(&keys::part(id, request.after));
        let mut rows = index.scan(range, request.max.saturating_add(1))?;
        let truncated = rows.len() > request.max;
        rows.truncate(request.max);
        let parts = rows.iter().map(|(key, row)| part_summary(key, row)).collect::<Result<Vec<_>, _>>()?;
        let next = parts.last().map_or(request.after, |part| part.part_number);
        Ok(ListedParts {
            upload: upload_summary(request.target.key.as_str().to_owned(), id, upload),
            parts,
            next: truncated.then_some(next),
            truncated,
        })
    }

    /// A page of uploads, in order of key and then of beginning.
    ///
    /// # Errors
    /// `NoSuchBucket`, `Unavailable`.
    pub async fn list_uploads(&self, request: ListUploads) -> Result<ListedUploads, StoreError> {
        self.inner.require_bucket(&request.bucket)?;
        let mut page = ListedUploads {
            uploads: Vec::new(),
            common_prefixes: Vec::new(),
            next_key_marker: None,
            next_upload_id_marker: None,
            truncated: false,
        };
        if request.max == 0 {
            return Ok(page);
        }
        let index = self.inner.index.snapshot();
        let uploads = Uploads { bucket: request.bucket.clone() };
        let mut walk =
            Walk::new(&*index, uploads, &request.prefix, request.delimiter.as_deref(), after(&request), request.max);
        let marker = request.key_marker.as_deref().unwrap_or("");
        let mut last: (Option<String>, Option<UploadId>) = (None, None);
        while let Some(found) = walk.next()? {
            if let Found::Prefix(prefix) = &found
                && prefix.as_str() <= marker
            {
                continue;
            }
            if page.uploads.len() + page.common_prefixes.len() == request.max {
                page.truncated = true;
                (page.next_key_marker, page.next_upload_id_marker) = last;
                break;
            }
            match found {
                Found::Prefix(prefix) => {
                    last = (Some(prefix.clone()), None);
                    page.common_prefixes.push(prefix);
                }
                Found::Row(found) => {
                    let (_, key, id) = keys::decode_upload(&found.row_key).map_err(corrupt)?;
                    last = (Some(key.clone()), Some(id));
                    page.uploads.push(upload_summary(key, id, UploadRow::decode(&found.row)?));
                }
            }
        }
        Ok(page)
    }
}

/// Uploads of a bucket.
struct Uploads {
    bucket: BucketName,
}

impl Listed for Uploads {
    const TABLE: Table = Table::Upload;

    fn row_prefix(&self, prefix: &str) -> Vec<u8> {
        keys::uploads_with_prefix(&self.bucket, prefix)
    }

    fn object_key(&self, row_key: &[u8]) -> Result<String, StoreError> {
        Ok(keys::decode_upload(row_key).map_err(corrupt)?.1)
    }
}

/// The row key that a page begins after.
fn after(request: &ListUploads) -> Option<Vec<u8>> {
    let uploads = keys::uploads_of(&request.bucket, request.key_marker.as_deref()?);
    Some(match request.upload_id_marker {
        Some(id) => [&uploads[..], &id.to_bytes()].concat(),
        // Above every upload to the marker's key: no upload has a longer id.
        None => [&uploads[..], &[0xff; 17]].concat(),
    })
}

fn upload_summary(key: String, upload: UploadId, row: UploadRow) -> UploadSummary {
    UploadSummary {
        key,
        upload,
        created_ms: row.created_ms,
        storage_class: row.attributes.storage_class,
        owner: row.attributes.owner,
        checksum: row.checksum_algorithm.and_then(ChecksumAlgorithm::from_index).zip(row.checksum_kind),
    }
}

fn part_summary(key: &[u8], row: &[u8]) -> Result<PartSummary, StoreError> {
    let (_, part_number) = keys::decode_part(key).map_err(corrupt)?;
    let row = PartRow::decode(row)?;
    Ok(PartSummary {
        part_number,
        size: row.size,
        etag: row.tag.etag(),
        modified_ms: row.modified_ms,
        checksums: row.checksums,
    })
}

fn corrupt(error: keys::KeyError) -> StoreError {
    StoreError::Unavailable(format!("the index is corrupt: {error}"))
}
