//! Bodies: of requests, checked as they are read; of answers, streamed from the store.

use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use futures::Stream;
use gabion_erasure::Digester;
use gabion_store::{
    BodyError, BodyPiece, BodySource, Checksum, ChecksumAlgorithm, DigestKind, ObjectBody, ObjectStream, StoreError,
};
use http::Version;
use s3s::stream::{ByteStream, RemainingLength};
use s3s::{Body, StdError};

use super::call::Call;
use super::checksums::{self, BodyDigests};
use super::content::Content;
use crate::auth;
use crate::documents::{Ended, Sender};
use crate::error::{S3Code, S3Error};
use crate::ops::Ops;

/// Largest document that a request may carry, in bytes: 10 000 parts with SHA-256 checksums have less than 2.5 MiB, 1000 keys
/// of 1024 bytes that are not all to be escaped less than 2.
pub(super) const DOCUMENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// The body of PutObject or UploadPart, with what the headers say about it. Nothing of it has been read.
///
/// # Errors
/// `MissingContentLength`, and what is wrong with the digests.
pub(super) fn object_body(call: &mut Call) -> Result<ObjectBody, S3Error> {
    let digests = BodyDigests::of(call)?;
    let length = length(call)?.ok_or(S3Code::MissingContentLength)?;
    let body = std::mem::take(&mut call.body);
    let trailers = call.trailers.take().map(|trailers| checksums::expected_trailers(digests.trailer, trailers));
    Ok(ObjectBody {
        stream: Box::new(Counted { body: Some(body), left: length, behind: None }),
        length: Some(length),
        content_md5: digests.md5,
        checksums: digests.checksum.into_iter().collect(),
        compute: digests.trailer.into_iter().collect(),
        trailers,
        encrypt: None,
    })
}

/// Length of the body without its framing, in bytes.
fn length(call: &Call) -> Result<Option<u64>, S3Error> {
    let header = if call.trailers.is_some() { "x-amz-decoded-content-length" } else { "content-length" };
    if let Some(value) = call.header(header)? {
        return match value.parse() {
            Ok(length) => Ok(Some(length)),
            Err(_) => Err(S3Code::MissingContentLength.into()),
        };
    }
    // HTTP/2 may leave the header out and still end a stream at its head; HTTP/1.1 clients have to say it, as on AWS.
    let known = call.routed.version >= Version::HTTP_2;
    Ok(call.body.exact().filter(|_| known))
}

/// The bytes of a body, of which there must be so many.
struct Counted {
    /// Nothing once its end was seen.
    body: Option<Content>,
    left: u64,
    /// How far it is read on, when there are more bytes than were announced: where the framing turns out to be damaged, that is it, as on AWS.
    behind: Option<usize>,
}

impl BodySource for Counted {
    fn poll_piece(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<Option<Result<BodyPiece, BodyError>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let end = loop {
            match (ready!(body.poll_piece(cx, room)), &mut self.behind) {
                (Some(Ok(piece)), None) => match self.left.checked_sub(piece.len() as u64) {
                    Some(left) => {
                        self.left = left;
                        return Poll::Ready(Some(Ok(piece)));
                    }
                    None => self.behind = Some(BEHIND_BYTES_MAX),
                },
                (Some(Ok(piece)), Some(behind)) => match behind.checked_sub(piece.len()) {
                    Some(rest) => *behind = rest,
                    None => break Some(BodyError::WrongLength),
                },
                (Some(Err(error)), _) => break Some(error),
                (None, Some(_)) => break Some(BodyError::WrongLength),
                (None, None) => break (self.left > 0).then_some(BodyError::WrongLength),
            }
        };
        self.body = None;
        Poll::Ready(end.map(Err))
    }
}

/// How far a body is read on that is too long, in bytes.
const BEHIND_BYTES_MAX: usize = 64 * 1024;

/// Which digests a document must have.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum DocumentDigests {
    /// None, one or both of `Content-MD5` and a checksum.
    Any,
    /// `Content-MD5` only: checksum headers speak of something else.
    Md5Only,
    /// One at least (DeleteObjects).
    Required,
}

fn too_long(bytes_max: usize) -> S3Error {
    S3Error::new(S3Code::MaxMessageLengthExceeded).detail("MaxMessageLengthBytes", bytes_max.to_string())
}

/// Reads a document that must be there.
///
/// # Errors
/// `MissingRequestBodyError`; else as [`document`].
pub(super) async fn required(ops: &Ops, call: &mut Call) -> Result<Bytes, S3Error> {
    let document = document(ops, call, DocumentDigests::Any).await?;
    if document.is_empty() { Err(S3Code::MissingRequestBodyError.into()) } else { Ok(document) }
}

/// Reads a document that must be there, and must not be longer than others of its kind.
///
/// # Errors
/// `MaxMessageLengthExceeded`; else as [`required`].
pub(super) async fn bounded(ops: &Ops, call: &mut Call, bytes_max: usize) -> Result<Bytes, S3Error> {
    let document = required(ops, call).await?;
    if document.len() > bytes_max { Err(too_long(bytes_max)) } else { Ok(document) }
}

/// Reads a document to its end. Clients may take minutes to send it: whether its sender may do what he asks for is judged once more when it is there.
///
/// # Errors
/// `MaxMessageLengthExceeded`, `BadDigest`, what the body may fail with; `InvalidRequest` when a required digest is missing; `SlowDown` when too many documents are
/// on their way; what is no longer allowed.
pub(super) async fn document(ops: &Ops, call: &mut Call, rule: DocumentDigests) -> Result<Bytes, S3Error> {
    let digests = match rule {
        DocumentDigests::Md5Only => BodyDigests { md5: checksums::content_md5(call)?, ..BodyDigests::default() },
        _ => BodyDigests::of(call)?,
    };
    let expected: Option<ChecksumAlgorithm> = digests.checksum.map(|checksum| checksum.algorithm()).or(digests.trailer);
    if rule == DocumentDigests::Required && digests.md5.is_none() && expected.is_none() {
        let message = "Missing required header for this request: Content-MD5 OR x-amz-checksum-*";
        return Err(S3Error::request(message));
    }
    let length = length(call)?;
    if length.is_some_and(|length| length > DOCUMENT_BYTES_MAX as u64) {
        return Err(too_long(DOCUMENT_BYTES_MAX));
    }
    let mut body = std::mem::take(&mut call.body);
    if length.is_none() && body.exact() != Some(0) {
        return Err(S3Code::MissingContentLength.into());
    }
    let caller = call.caller();
    let sender = if caller.is_anonymous() { Sender::Anonymous } else { Sender::Known(&caller.account.id) };
    let mut coming = ops.documents.begin(sender);
    let trailers = call.trailers.take().map(|trailers| checksums::expected_trailers(digests.trailer, trailers));
    let mut digester = Digester::new(digests.md5.is_some(), expected.as_slice());
    let ended = |ended| match ended {
        Ended::TooLate => S3Error::from(BodyError::TimedOut),
        Ended::NoRoom => StoreError::Busy.into(),
    };
    while let Some(bytes) = coming.in_time(body.next()).await.map_err(ended)? {
        let bytes = bytes?;
        if coming.received_bytes() + bytes.len() > DOCUMENT_BYTES_MAX {
            return Err(too_long(DOCUMENT_BYTES_MAX));
        }
        coming.take(&bytes).map_err(ended)?;
        digester.update(&bytes);
    }
    let document = coming.whole().map_err(ended)?;
    if length.is_some_and(|length| length != document.len() as u64) {
        return Err(BodyError::WrongLength.into());
    }
    call.identify(ops)?;
    if let Some(operation) = call.operation() {
        auth::authorize(ops, call, operation).await?;
    }
    let mut given: Vec<Checksum> = digests.checksum.into_iter().collect();
    if let Some(trailers) = trailers {
        given.extend(trailers()?);
    }
    let found = digester.finish();
    if digests.md5.is_some() && found.md5 != digests.md5 {
        return Err(StoreError::BadDigest(DigestKind::Md5).into());
    }
    match given.iter().find(|given| !found.checksums.contains(given)) {
        Some(given) => Err(StoreError::BadDigest(DigestKind::Checksum(given.algorithm())).into()),
        None => Ok(document.freeze()),
    }
}

/// The bytes of an object on their way to a client.
struct Sending {
    /// Never locked: it makes the stream `Sync`, which s3s's body wants and nothing needs.
    stream: Mutex<ObjectStream>,
    left: u64,
}

/// The body of an answer with `len` bytes of an object.
pub(super) fn sending(stream: ObjectStream, len: u64) -> Body {
    let stream: s3s::stream::DynByteStream = Box::pin(Sending { stream: Mutex::new(stream), left: len });
    Body::from(stream)
}

impl Stream for Sending {
    type Item = Result<Bytes, StdError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = self.stream.get_mut().unwrap_or_else(PoisonError::into_inner);
        let item = std::task::ready!(Pin::new(stream).poll_next(cx));
        Poll::Ready(item.map(|bytes| match bytes {
            Ok(bytes) => {
                self.left = self.left.saturating_sub(bytes.len() as u64);
                Ok(bytes)
            }
            Err(error) => {
                // The status is out: all that is left is to break the connection, and to tell the operator.
                tracing::error!(%error, "an object could not be sent to its end");
                Err(StdError::from("the object could not be read"))
            }
        }))
    }
}

impl ByteStream for Sending {
    fn remaining_length(&self) -> RemainingLength {
        usize::try_from(self.left).map_or_else(|_| RemainingLength::unknown(), RemainingLength::new_exact)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn a_body_has_the_length_that_was_announced() {
        for (announced, ok) in [(5, true), (4, false), (6, false)] {
            for room_bytes in [0, 2, 100] {
                let body = Content::of_source(Box::new(InRoom(Bytes::from_static(b"hello"))));
                let mut counted = Counted { body: Some(body), left: announced, behind: None };
                let (mut read, mut room, mut all_ok) = (Vec::new(), vec![0; room_bytes], true);
                while let Some(piece) = poll_fn(|cx| counted.poll_piece(cx, &mut room)).await {
                    match piece {
                        Ok(piece) => read.extend_from_slice(piece.bytes(&room)),
                        Err(error) => {
                            assert_eq!(error, BodyError::WrongLength);
                            all_ok = false;
                        }
                    }
                }
                assert_eq!(all_ok, ok, "{announced} {room_bytes}");
                assert!(b"hello".starts_with(&read) && read.len() as u64 <= announced, "{announced} {room_bytes}");
            }
        }
    }

    /// What is read to where it is wanted.
    struct InRoom(Bytes);

    impl BodySource for InRoom {
        fn poll_piece(&mut self, _: &mut Context<'_>, room: &mut [u8]) -> Poll<Option<Result<BodyPiece, BodyError>>> {
            if self.0.is_empty() {
                return Poll::Ready(None);
            }
            if room.is_empty() {
                return Poll::Ready(Some(Ok(BodyPiece::Bytes(std::mem::take(&mut self.0)))));
            }
            let bytes = self.0.split_to(self.0.len().min(room.len()));
            room[..bytes.len()].copy_from_slice(&bytes);
            Poll::Ready(Some(Ok(BodyPiece::InRoom(bytes.len()))))
        }
    }
}
