//! Order-preserving encodings of the keys of every table.
//!
//! Byte order of the encoded keys is the order of what they stand for: bucket names byte by byte, object keys by UTF-8
//! bytes, uploads by key and then by upload id, numbers ascending. A bucket name never contains a zero byte, so one
//! ends it; an object key may contain any byte. Decoders take hostile bytes and never panic.

use gabion_types::{BucketName, ManifestId, ObjectKey, SegmentId, Seq, UploadId};

/// Ends a bucket name.
const BUCKET_END: u8 = 0x00;
/// Follows a zero byte of an object key inside an upload's key.
const ESCAPED_ZERO: u8 = 0xff;
/// Follows the zero byte that ends the object key inside an upload's key; below [`ESCAPED_ZERO`], so that a key
/// comes before its extensions.
const KEY_END: u8 = 0x01;
/// Kind byte of the `null` version; below [`NUMBERED_VERSION`], so that it is found first.
const NULL_VERSION: u8 = 0x00;
/// Kind byte of a version with a number.
const NUMBERED_VERSION: u8 = 0x01;
/// Stands for the site where a bucket's name could be; no bucket is named so.
const SITE: &str = "/";
/// Kind byte of a page of extents.
const PAGE: u8 = b'x';
/// Kind byte of a part.
const PART: u8 = b'p';

/// Bytes are not a key of their table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed {0} key")]
pub struct KeyError(&'static str);

/// The least byte string above all that begin with `prefix`; nothing when there is none (empty, or all bytes 0xff).
///
/// A listing with a delimiter seeks here to pass a common prefix.
#[must_use]
pub fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != 0xff)?;
    let mut key = prefix[..=last].to_vec();
    key[last] += 1;
    Some(key)
}

/// Key of a bucket in the tables `Bucket` and `Usage`.
#[must_use]
pub fn bucket(bucket: &BucketName) -> Vec<u8> {
    bucket.as_str().as_bytes().to_vec()
}

/// What is counted in the table `Usage` beside the objects of a bucket, which are under [`bucket`]. No bucket's name begins so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted<'a> {
    /// Parts of the open uploads of a bucket.
    PartsOfBucket(&'a str),
    /// Objects that a user made.
    ObjectsOfUser(&'a str),
    /// Parts of the open uploads that a user began.
    PartsOfUser(&'a str),
}

/// Key of a counter.
#[must_use]
pub fn counter(counted: Counted<'_>) -> Vec<u8> {
    let (kind, name) = match counted {
        Counted::PartsOfBucket(name) => ("/parts/", name),
        Counted::ObjectsOfUser(name) => ("/user/", name),
        Counted::PartsOfUser(name) => ("/user-parts/", name),
    };
    [kind, name].concat().into_bytes()
}

/// Reads [`bucket`].
///
/// # Errors
/// When the bytes are not a valid bucket name.
pub fn decode_bucket(key: &[u8]) -> Result<BucketName, KeyError> {
    const ERROR: KeyError = KeyError("bucket");
    BucketName::new(std::str::from_utf8(key).map_err(|_| ERROR)?).map_err(|_| ERROR)
}

/// Key of an object.
#[must_use]
pub fn object(bucket: &BucketName, key: &ObjectKey) -> Vec<u8> {
    objects_with_prefix(bucket, key.as_str())
}

/// What the keys of all objects of a bucket begin with whose own keys begin with `prefix` (all, when it is empty).
///
/// With a whole object key as `prefix` it is that object's key, also for markers that are no valid key.
#[must_use]
pub fn objects_with_prefix(bucket: &BucketName, prefix: &str) -> Vec<u8> {
    let bucket = bucket.as_str().as_bytes();
    let mut out = Vec::with_capacity(bucket.len() + 1 + prefix.len());
    out.extend_from_slice(bucket);
    out.push(BUCKET_END);
    out.extend_from_slice(prefix.as_bytes());
    out
}

/// Reads [`object`]: bucket and object key.
///
/// # Errors
/// When the bytes are malformed.
pub fn decode_object(key: &[u8]) -> Result<(&str, &str), KeyError> {
    const ERROR: KeyError = KeyError("object");
    let (bucket, key) = split_bucket(key).ok_or(ERROR)?;
    if key.is_empty() {
        return Err(ERROR);
    }
    Ok((bucket, std::str::from_utf8(key).map_err(|_| ERROR)?))
}

/// Key of an upload.
#[must_use]
pub fn upload(bucket: &BucketName, key: &ObjectKey, upload: UploadId) -> Vec<u8> {
    let mut out = uploads_of(bucket, key.as_str());
    out.extend_from_slice(&upload.to_bytes());
    out
}

/// What the keys of all uploads to one object key begin with, and no other: `successor` of it passes them all.
#[must_use]
pub fn uploads_of(bucket: &BucketName, key: &str) -> Vec<u8> {
    let mut out = uploads_with_prefix(bucket, key);
    out.extend_from_slice(&[0x00, KEY_END]);
    out
}

/// What the keys of all uploads of a bucket begin with whose object keys begin with `prefix` (all, when it is empty).
#[must_use]
pub fn uploads_with_prefix(bucket: &BucketName, prefix: &str) -> Vec<u8> {
    let bucket = bucket.as_str().as_bytes();
    let mut out = Vec::with_capacity(bucket.len() + 1 + prefix.len() + 2 + 16);
    out.extend_from_slice(bucket);
    out.push(BUCKET_END);
    escape(prefix.as_bytes(), &mut out);
    out
}

/// Reads [`upload`]: bucket, object key and upload.
///
/// # Errors
/// When the bytes are malformed.
pub fn decode_upload(key: &[u8]) -> Result<(&str, String, UploadId), KeyError> {
    const ERROR: KeyError = KeyError("upload");
    let (bucket, rest) = split_bucket(key).ok_or(ERROR)?;
    let (escaped, id) = rest.split_last_chunk::<16>().ok_or(ERROR)?;
    let escaped = escaped.strip_suffix(&[0x00, KEY_END]).ok_or(ERROR)?;
    Ok((bucket, unescaped(escaped).ok_or(ERROR)?, UploadId::from_bytes(*id)))
}

/// An object key as it was before it was escaped.
fn unescaped(escaped: &[u8]) -> Option<String> {
    let mut key = Vec::with_capacity(escaped.len());
    let mut bytes = escaped.iter();
    while let Some(&byte) = bytes.next() {
        if byte == 0x00 && bytes.next() != Some(&ESCAPED_ZERO) {
            return None;
        }
        key.push(byte);
    }
    String::from_utf8(key).ok().filter(|key| !key.is_empty())
}

/// A row of the table `Version`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VersionKey {
    /// The `null` version, of which a key has one at most: it comes first.
    Null,
    /// The version of this commit; the newest comes first.
    Of(Seq),
}

/// Key of a version of an object that is not current, or of a delete marker.
#[must_use]
pub fn version(bucket: &BucketName, key: &ObjectKey, version: VersionKey) -> Vec<u8> {
    let mut out = versions_of(bucket, key.as_str());
    push_version(&mut out, version);
    out
}

/// [`version`] of the object whose current row is under `row_key` ([`object`]).
#[must_use]
pub fn version_of_object(row_key: &[u8], version: VersionKey) -> Vec<u8> {
    let mut out = all_of_object(row_key);
    push_version(&mut out, version);
    out
}

/// What the rows of all versions with a number begin with, of the object whose current row is under `row_key` ([`object`]).
#[must_use]
pub fn numbered_of_object(row_key: &[u8]) -> Vec<u8> {
    let mut out = all_of_object(row_key);
    out.push(NUMBERED_VERSION);
    out
}

fn all_of_object(row_key: &[u8]) -> Vec<u8> {
    let end = row_key.iter().position(|&byte| byte == BUCKET_END).map_or(row_key.len(), |end| end + 1);
    let (bucket, key) = row_key.split_at(end);
    let mut out = Vec::with_capacity(row_key.len() + 2 + 9);
    out.extend_from_slice(bucket);
    escape(key, &mut out);
    out.extend_from_slice(&[0x00, KEY_END]);
    out
}

fn push_version(out: &mut Vec<u8>, version: VersionKey) {
    match version {
        VersionKey::Null => out.push(NULL_VERSION),
        VersionKey::Of(seq) => {
            out.push(NUMBERED_VERSION);
            out.extend_from_slice(&(!seq.as_u64()).to_be_bytes());
        }
    }
}

fn escape(key: &[u8], out: &mut Vec<u8>) {
    for &byte in key {
        out.push(byte);
        if byte == 0x00 {
            out.push(ESCAPED_ZERO);
        }
    }
}

/// What the rows of all versions of one object key begin with, and no other: `successor` of it passes them all.
#[must_use]
pub fn versions_of(bucket: &BucketName, key: &str) -> Vec<u8> {
    uploads_of(bucket, key)
}

/// What the rows of all versions of a bucket begin with whose object keys begin with `prefix` (all, when it is empty).
#[must_use]
pub fn versions_with_prefix(bucket: &BucketName, prefix: &str) -> Vec<u8> {
    uploads_with_prefix(bucket, prefix)
}

/// Reads [`version`]: bucket, object key and version.
///
/// # Errors
/// When the bytes are malformed.
pub fn decode_version(key: &[u8]) -> Result<(&str, String, VersionKey), KeyError> {
    const ERROR: KeyError = KeyError("version");
    let (bucket, rest) = split_bucket(key).ok_or(ERROR)?;
    // Inside an escaped key a zero byte is followed by another byte than at its end.
    let end = rest.windows(2).position(|pair| pair == [0x00, KEY_END]).ok_or(ERROR)?;
    let key = unescaped(&rest[..end]).ok_or(ERROR)?;
    let version = match rest[end + 2..].split_first() {
        Some((&NULL_VERSION, [])) => VersionKey::Null,
        Some((&NUMBERED_VERSION, seq)) => {
            VersionKey::Of(Seq::from_u64(!u64::from_be_bytes(seq.try_into().map_err(|_| ERROR)?)))
        }
        _ => return Err(ERROR),
    };
    Ok((bucket, key, version))
}

/// Key of a document that configures a bucket; of the site without one.
#[must_use]
pub fn config(bucket: Option<&BucketName>, name: &str) -> Vec<u8> {
    let bucket = bucket.map_or(SITE, BucketName::as_str);
    [bucket.as_bytes(), &[BUCKET_END], name.as_bytes()].concat()
}

/// Reads [`config`]: bucket and name.
///
/// # Errors
/// When the bytes are malformed.
pub fn decode_config(key: &[u8]) -> Result<(Option<BucketName>, &str), KeyError> {
    const ERROR: KeyError = KeyError("config");
    let (bucket, name) = split_bucket(key).ok_or(ERROR)?;
    let name = std::str::from_utf8(name).map_err(|_| ERROR)?;
    let bucket = if bucket == SITE { None } else { Some(BucketName::new(bucket).map_err(|_| ERROR)?) };
    Ok((bucket, name))
}

/// Key of a part of an upload.
#[must_use]
pub fn part(upload: UploadId, part_number: u16) -> Vec<u8> {
    [&parts_of(upload)[..], &part_number.to_be_bytes()].concat()
}

/// What the keys of all parts of an upload begin with, and no other.
#[must_use]
pub fn parts_of(upload: UploadId) -> Vec<u8> {
    upload.to_bytes().to_vec()
}

/// Reads [`part`]: upload and part number.
///
/// # Errors
/// When the bytes are malformed.
pub fn decode_part(key: &[u8]) -> Result<(UploadId, u16), KeyError> {
    let (upload, number) = key.split_first_chunk::<16>().ok_or(KeyError("part"))?;
    let number = number.try_into().map_err(|_| KeyError("part"))?;
    Ok((UploadId::from_bytes(*upload), u16::from_be_bytes(number)))
}

/// What a row of the table `Manifest` is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ManifestKey {
    /// A [`crate::rows::ManifestPart`], by part number.
    Part(u16),
    /// A [`crate::rows::ManifestPage`], by the offset in the object of the page's first byte.
    Page(u64),
}

/// Key of a page of extents, by the offset in the object of its first byte.
///
/// The page that holds a byte is the last one at or below it: a descending scan of [`manifest_pages`] that
/// starts at that byte's key.
#[must_use]
pub fn manifest_page(manifest: ManifestId, start: u64) -> Vec<u8> {
    [&manifest_pages(manifest)[..], &start.to_be_bytes()].concat()
}

/// Key of a part of a completed object.
#[must_use]
pub fn manifest_part(manifest: ManifestId, part_number: u16) -> Vec<u8> {
    [&manifest_parts(manifest)[..], &part_number.to_be_bytes()].concat()
}

/// What the keys of all rows of a manifest begin with, and no other.
#[must_use]
pub fn manifest(manifest: ManifestId) -> Vec<u8> {
    manifest.to_bytes().to_vec()
}

/// What the keys of all pages of a manifest begin with, and no other.
#[must_use]
pub fn manifest_pages(manifest: ManifestId) -> Vec<u8> {
    [&manifest.to_bytes()[..], &[PAGE]].concat()
}

/// What the keys of all parts of a manifest begin with, and no other.
#[must_use]
pub fn manifest_parts(manifest: ManifestId) -> Vec<u8> {
    [&manifest.to_bytes()[..], &[PART]].concat()
}

/// Reads [`manifest_page`] and [`manifest_part`].
///
/// # Errors
/// When the bytes are malformed.
pub fn decode_manifest(key: &[u8]) -> Result<(ManifestId, ManifestKey), KeyError> {
    const ERROR: KeyError = KeyError("manifest");
    let (id, rest) = key.split_first_chunk::<16>().ok_or(ERROR)?;
    let row = match rest.split_first() {
        Some((&PAGE, start)) => ManifestKey::Page(u64::from_be_bytes(start.try_into().map_err(|_| ERROR)?)),
        Some((&PART, number)) => ManifestKey::Part(u16::from_be_bytes(number.try_into().map_err(|_| ERROR)?)),
        _ => return Err(ERROR),
    };
    Ok((ManifestId::from_bytes(*id), row))
}

/// Key of a segment.
#[must_use]
pub fn segment(segment: SegmentId) -> Vec<u8> {
    segment.to_bytes().to_vec()
}

/// Reads [`segment`].
///
/// # Errors
/// When the bytes are malformed.
pub fn decode_segment(key: &[u8]) -> Result<SegmentId, KeyError> {
    key.try_into().map(SegmentId::from_bytes).map_err(|_| KeyError("segment"))
}

/// Key of a row of the table `System`: a short ASCII name.
#[must_use]
pub fn system(name: &'static str) -> Vec<u8> {
    name.as_bytes().to_vec()
}

/// Splits at the end of the bucket name, which must be text.
fn split_bucket(key: &[u8]) -> Option<(&str, &[u8])> {
    let end = key.iter().position(|&byte| byte == BUCKET_END)?;
    Some((std::str::from_utf8(&key[..end]).ok()?, &key[end + 1..]))
}

#[cfg(test)]
mod tests;
