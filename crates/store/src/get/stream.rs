//! The body of a read: pieces read ahead in order, each with its share of the read memory until it is consumed.

use std::sync::Arc;

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use gabion_segment::Pin;

use super::pieces::{Piece, Pieces};
use crate::{
    ObjectStream, StoreError,
    store::{Inner, Share},
};

/// The bytes of a piece, and the memory they count against.
struct Read {
    chunks: Vec<Bytes>,
    share: Share,
}

/// Reads the first piece, and streams the rest behind it.
pub(super) async fn open(inner: Arc<Inner>, mut pieces: Pieces, pin: Pin) -> Result<ObjectStream, StoreError> {
    let is_single = pieces.is_single();
    let Some(first) = pieces.next()? else { return Ok(ObjectStream::empty()) };
    let first = read(&inner, first).await?;
    if is_single {
        // The bytes are here: no file is needed any more.
        drop(pin);
        return Ok(ObjectStream::new(Box::pin(chunks(first))));
    }
    let ahead = inner.config.read_ahead_stripes.max(1);
    let next = |mut pieces: Pieces| async move { Ok(pieces.next()?.map(|piece| (piece, pieces))) };
    let rest = stream::try_unfold(pieces, next)
        .map(move |piece: Result<Piece, StoreError>| {
            let inner = Arc::clone(&inner);
            async move {
                let piece = piece?;
                // In a task of its own: it is verified while the reader is busy with the piece before it.
                let task = tokio::spawn(async move { read(&inner, piece).await });
                task.await.map_err(|error| StoreError::Internal(format!("a task failed: {error}")))?
            }
        })
        .buffered(ahead)
        .map_ok(chunks)
        .try_flatten();
    let body = chunks(first).chain(rest).inspect(move |_| {
        let _held = &pin;
    });
    Ok(ObjectStream::new(Box::pin(body)))
}

async fn read(inner: &Inner, piece: Piece) -> Result<Read, StoreError> {
    let share = inner.read_share((piece.to - piece.from) as usize).await;
    let chunks = inner.log.read(&piece.extent, piece.from..piece.to).await.map_err(|error| match error {
        // Its row was there when it was pinned: what is lost now, is lost.
        error @ gabion_segment::LogError::NotFound(_) => StoreError::Corrupt(error.to_string()),
        error => error.into(),
    })?;
    Ok(Read { chunks, share })
}

/// The bytes one after the other; the share is given back with the last.
fn chunks(read: Read) -> impl Stream<Item = Result<Bytes, StoreError>> + Send {
    let Read { chunks, share } = read;
    stream::iter(chunks).map(move |chunk| {
        let _held = &share;
        Ok(chunk)
    })
}
