//! Objects: put, get, head.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures::{Stream, future::BoxFuture, stream::BoxStream};
use gabion_encryption::SecretKey;
use gabion_metadata::rows::{Attributes, Encryption, Etag, StoredChecksum};
use gabion_platform::FilePlaces;
use gabion_types::{BucketName, ObjectKey, Seq};

use crate::{ByteRange, RangeRequest, ReadConditions, StoreError, VersionId, WriteConditions, store::Share};

/// Puts an object.
#[derive(Clone, Debug)]
pub struct PutObject {
    /// The bucket.
    pub bucket: BucketName,
    /// The key.
    pub key: ObjectKey,
    /// What the client says about it.
    pub attributes: Attributes,
    /// When to refuse.
    pub conditions: WriteConditions,
}

/// A stored object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PutResult {
    /// Its tag.
    pub etag: Etag,
    /// The commit.
    pub seq: Seq,
    /// The id of its version, if its bucket keeps versions.
    pub version: Option<VersionId>,
    /// Its length in bytes.
    pub size: u64,
    /// `Last-Modified`, Unix time in milliseconds.
    pub modified_ms: u64,
    /// Its checksums.
    pub checksums: Vec<StoredChecksum>,
    /// Number of parts, if it was uploaded in parts.
    pub parts_count: Option<u32>,
    /// How it is encrypted, if it is.
    pub encryption: Option<Box<Encryption>>,
}

/// Reads an object, or what is known about it (get and head take the same request).
#[derive(Clone, Debug)]
pub struct GetObject {
    /// The bucket.
    pub bucket: BucketName,
    /// The key.
    pub key: ObjectKey,
    /// This version instead of the current object.
    pub version: Option<VersionId>,
    /// Only this range.
    pub range: Option<RangeRequest>,
    /// Only this part; excludes `range`.
    pub part_number: Option<u16>,
    /// When to refuse.
    pub conditions: ReadConditions,
    /// The customer's key, if the object is encrypted with one.
    pub customer: Option<SecretKey>,
}

impl GetObject {
    /// Asks for a whole object.
    #[must_use]
    pub fn whole(bucket: BucketName, key: ObjectKey) -> Self {
        let conditions = ReadConditions::default();
        Self { bucket, key, version: None, range: None, part_number: None, conditions, customer: None }
    }
}

/// What is known about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectInfo {
    /// Its length in bytes.
    pub size: u64,
    /// Its tag.
    pub etag: Etag,
    /// `Last-Modified`, Unix time in milliseconds.
    pub modified_ms: u64,
    /// The commit that made it.
    pub seq: Seq,
    /// Which version it is.
    pub version: VersionId,
    /// What the client said about it.
    pub attributes: Attributes,
    /// Its checksums.
    pub checksums: Vec<StoredChecksum>,
    /// Number of parts, if it was uploaded in parts.
    pub parts_count: Option<u32>,
}

/// One part of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartInfo {
    /// Its number.
    pub part_number: u16,
    /// Its length in bytes.
    pub size: u64,
    /// Its checksums.
    pub checksums: Vec<StoredChecksum>,
}

/// An object, or a range of it, to be read (for head: without reading it).
#[derive(Debug)]
pub struct ObjectRead {
    /// The object.
    pub info: Arc<ObjectInfo>,
    /// The range that was asked for, resolved; nothing when the whole object was asked for, and for a part without bytes.
    pub range: Option<ByteRange>,
    /// Number of bytes of the body.
    pub len: u64,
    /// The part that was asked for.
    pub part: Option<PartInfo>,
    /// The bytes; empty for head.
    pub body: ObjectStream,
}

/// An object on its way to be read.
pub enum Opening<'a> {
    /// All that was asked for is in memory.
    Ready(ObjectRead),
    /// Resolves when its first bytes were read and verified. Nothing is read before it is polled.
    Reading(BoxFuture<'a, Result<ObjectRead, StoreError>>),
}

/// Verified bytes of an object, read with a bounded read-ahead. Holds on to the segments it needs until it is dropped,
/// also when the object is overwritten or deleted meanwhile. An error ends it.
pub struct ObjectStream {
    left: Left,
    places: Option<FilePlaces>,
}

/// What is left of an object's bytes.
enum Left {
    Nothing,
    /// They are here, in one piece, until it was asked for; with the memory that they count against as long as the stream is there.
    Piece(Option<Bytes>, Share),
    /// They are here, in several.
    Pieces(std::vec::IntoIter<Bytes>, Share),
    /// They are read as they are asked for.
    Stream(BoxStream<'static, Result<Bytes, StoreError>>),
}

impl ObjectStream {
    pub(crate) fn new(inner: BoxStream<'static, Result<Bytes, StoreError>>) -> Self {
        Self { left: Left::Stream(inner), places: None }
    }

    /// Of bytes that may lie in files as they are.
    pub(crate) fn placed(inner: BoxStream<'static, Result<Bytes, StoreError>>, places: FilePlaces) -> Self {
        Self { left: Left::Stream(inner), places: Some(places) }
    }

    /// Tells of the bytes that were given last where they lie, if the page cache had them: for who can send them from there. Nothing where that is never so.
    #[must_use]
    pub fn places(&self) -> Option<&FilePlaces> {
        self.places.as_ref()
    }

    /// Of one piece that is here.
    pub(crate) fn of_piece(piece: Bytes, share: Share) -> Self {
        Self { left: Left::Piece(Some(piece), share), places: None }
    }

    /// Of bytes that were read, all of them.
    pub(crate) fn of_read(chunks: Vec<Bytes>, share: Share) -> Self {
        Self { left: Left::Pieces(chunks.into_iter(), share), places: None }
    }

    /// No bytes.
    #[must_use]
    pub fn empty() -> Self {
        Self { left: Left::Nothing, places: None }
    }
}

impl Stream for ObjectStream {
    type Item = Result<Bytes, StoreError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        match &mut self.left {
            Left::Nothing => Poll::Ready(None),
            Left::Piece(piece, _share) => Poll::Ready(piece.take().map(Ok)),
            Left::Pieces(chunks, _share) => Poll::Ready(chunks.next().map(Ok)),
            Left::Stream(stream) => stream.as_mut().poll_next(cx),
        }
    }
}

impl std::fmt::Debug for ObjectStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ObjectStream")
    }
}
