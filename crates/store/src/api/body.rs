//! The body of a put, as the server hands it over.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures::Stream;
use futures::stream::BoxStream;
use gabion_erasure::{Checksum, ChecksumAlgorithm};

use crate::{BodyError, Encrypt};

/// Gives the checksums of the trailers; called after the stream has ended.
pub type BodyTrailers = Box<dyn FnOnce() -> Result<Vec<Checksum>, BodyError> + Send>;

/// A body with what the client said about it.
pub struct ObjectBody {
    /// The bytes, decoded from any transfer framing.
    pub stream: Box<dyn BodySource>,
    /// Number of bytes, when it is known beforehand.
    pub length: Option<u64>,
    /// The MD5 that the body must have (`Content-MD5`).
    pub content_md5: Option<[u8; 16]>,
    /// Checksums that the body must have, from headers.
    pub checksums: Vec<Checksum>,
    /// Checksums to compute and store although no value was given in a header (a trailer will give it, or the client
    /// named an algorithm). When this and `checksums` are empty, CRC-64/NVME is stored.
    pub compute: Vec<ChecksumAlgorithm>,
    /// Checksums that the body must have, from trailers.
    pub trailers: Option<BodyTrailers>,
    /// How it is to be encrypted; of a part, which is encrypted as its upload is, the customer's key.
    pub encrypt: Option<Box<Encrypt>>,
}

impl ObjectBody {
    /// A body that is in memory, about which nothing was said.
    #[must_use]
    pub fn from_bytes(bytes: Bytes) -> Self {
        let length = Some(bytes.len() as u64);
        Self::from_stream(Box::pin(futures::stream::iter([Ok(bytes)])), length)
    }

    /// A stream about which nothing else was said.
    #[must_use]
    pub fn from_stream(stream: BoxStream<'static, Result<Bytes, BodyError>>, length: Option<u64>) -> Self {
        Self {
            stream: Box::new(stream),
            length,
            content_md5: None,
            checksums: Vec::new(),
            compute: Vec::new(),
            trailers: None,
            encrypt: None,
        }
    }
}

impl std::fmt::Debug for ObjectBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ObjectBody").field("length", &self.length).finish_non_exhaustive()
    }
}

/// Where the bytes of a body come from, in order.
pub trait BodySource: Send {
    /// The next bytes; nothing at the end. Those that would be read into memory for this are read into `room`, if there is any.
    fn poll_piece(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<Option<Result<BodyPiece, BodyError>>>;
}

/// The next bytes of a body.
#[derive(Debug)]
pub enum BodyPiece {
    /// They lie here.
    Bytes(Bytes),
    /// So many are at the front of the room that was given.
    InRoom(usize),
}

impl BodyPiece {
    /// Number of bytes.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::InRoom(bytes) => *bytes,
        }
    }

    /// The bytes, where no room was given.
    #[must_use]
    pub fn into_bytes(self) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::InRoom(bytes) => {
                assert_eq!(bytes, 0, "no room was given");
                Bytes::new()
            }
        }
    }

    /// The bytes; `room` is what was given.
    #[must_use]
    pub fn bytes<'a>(&'a self, room: &'a [u8]) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::InRoom(bytes) => &room[..*bytes],
        }
    }
}

impl<S: Stream<Item = Result<Bytes, BodyError>> + Send + Unpin> BodySource for S {
    fn poll_piece(&mut self, cx: &mut Context<'_>, _room: &mut [u8]) -> Poll<Option<Result<BodyPiece, BodyError>>> {
        Pin::new(self).poll_next(cx).map(|piece| piece.map(|piece| piece.map(BodyPiece::Bytes)))
    }
}
