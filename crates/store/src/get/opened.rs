//! The body of an encrypted object: what is read is opened frame by frame, as its reader takes it.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, stream};
use gabion_encryption::{BodyRange, Opener};
use gabion_segment::Pin;

use super::{pieces::Pieces, stream as sealed_stream};
use crate::{GetObject, ObjectInfo, ObjectStream, StoreError, sealed::frames, store::Inner};

/// Reads and opens the first frame, and streams the rest behind it.
pub(super) async fn open(
    inner: &Arc<Inner>,
    request: &GetObject,
    info: &ObjectInfo,
    bodies: Vec<BodyRange>,
    pieces: Pieces,
    pin: Pin,
) -> Result<ObjectStream, StoreError> {
    let encryption = info.attributes.encryption.as_deref();
    let encryption = encryption.ok_or_else(|| StoreError::Internal("only what is encrypted is opened".into()))?;
    let data_key = inner.unlock(encryption, &request.bucket, &request.key, request.customer.as_ref()).await?;
    let opener = Opener::new(data_key, frames(encryption)?, bodies);
    let sealed = sealed_stream::open(inner, pieces, pin).await?;
    let mut opening = Opening { sealed, left: Bytes::new(), opener, first: None };
    opening.first = opening.next().await?;
    let next =
        |mut opening: Opening| async move { Ok::<_, StoreError>(opening.next().await?.map(|bytes| (bytes, opening))) };
    Ok(ObjectStream::new(stream::try_unfold(opening, next).boxed()))
}

/// A body on its way: at most one frame of it is held beside what was read.
struct Opening {
    sealed: ObjectStream,
    /// What was read and not opened yet.
    left: Bytes,
    opener: Opener,
    /// The first frame, opened before anybody took it.
    first: Option<Bytes>,
}

impl Opening {
    async fn next(&mut self) -> Result<Option<Bytes>, StoreError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        loop {
            while !self.left.is_empty() {
                let mut left = &self.left[..];
                let opened = self.opener.take(&mut left);
                let taken = self.left.len() - left.len();
                let _ = self.left.split_to(taken);
                let opened = opened.map_err(|tampered| StoreError::Corrupt(tampered.to_string()))?;
                if let Some(bytes) = opened.filter(|bytes| !bytes.is_empty()) {
                    return Ok(Some(bytes));
                }
            }
            match self.sealed.next().await {
                Some(read) => self.left = read?,
                None if self.opener.is_done() => return Ok(None),
                None => return Err(StoreError::Corrupt("stored bytes of an encrypted object are missing".into())),
            }
        }
    }
}
