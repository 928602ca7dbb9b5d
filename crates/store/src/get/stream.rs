//! The body of a read: what its reader needs next, and what could be read ahead of it.
//!
//! What is needed next is a small part, and waits for its share of the memory that is kept for that. Reading ahead takes whole pieces, and only
//! memory that is free at that moment, from a budget of its own. So readers that stall hold little each, and never what others need to go on.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use gabion_segment::Pin;
use tokio::task::JoinHandle;

use super::pieces::{Piece, Pieces};
use crate::{
    ObjectStream, StoreError,
    store::{Inner, NEEDED_BYTES_MAX, Share},
};

/// The bytes of a piece, and the memory they count against.
struct Read {
    chunks: Vec<Bytes>,
    share: Share,
}

/// Reads the first part, and streams the rest behind it.
pub(super) async fn open(inner: &Arc<Inner>, mut pieces: Pieces, pin: Pin) -> Result<ObjectStream, StoreError> {
    let Some(piece) = pieces.next_up_to(NEEDED_BYTES_MAX)? else { return Ok(ObjectStream::empty()) };
    let share = inner.first_read_share(piece.len()).await?;
    let first = read(inner, piece, share).await?;
    if pieces.is_done() {
        // The bytes are here: no file is needed any more.
        drop(pin);
        return Ok(ObjectStream::of_read(first.chunks, first.share));
    }
    let mut rest = Rest { inner: Arc::clone(inner), pieces, ahead: VecDeque::new() };
    rest.read_ahead()?;
    let next = |mut rest: Rest| async move { Ok::<_, StoreError>(rest.next().await?.map(|read| (chunks(read), rest))) };
    let rest = stream::try_unfold(rest, next).try_flatten();
    let body = chunks(first).chain(rest).inspect(move |_| {
        let _held = &pin;
    });
    Ok(ObjectStream::new(Box::pin(body)))
}

/// What is behind the first part.
struct Rest {
    inner: Arc<Inner>,
    pieces: Pieces,
    /// Reads under way, in order.
    ahead: VecDeque<JoinHandle<Result<Read, StoreError>>>,
}

impl Rest {
    async fn next(&mut self) -> Result<Option<Read>, StoreError> {
        let read = match self.ahead.pop_front() {
            Some(task) => Some(task.await.map_err(|error| StoreError::Internal(format!("a task failed: {error}")))??),
            None => needed(&self.inner, &mut self.pieces).await?,
        };
        self.read_ahead()?;
        Ok(read)
    }

    /// Begins reads as far as the configuration and the free memory go.
    fn read_ahead(&mut self) -> Result<(), StoreError> {
        while self.ahead.len() < self.inner.config.read_ahead_stripes.max(1) {
            let Some(piece) = self.pieces.next()? else { break };
            let Some(share) = self.inner.read_ahead_share(piece.len()) else {
                self.pieces.put_back(piece);
                break;
            };
            let inner = Arc::clone(&self.inner);
            // In a task of its own: it is verified while the reader is busy with the piece before it.
            self.ahead.push_back(tokio::spawn(async move { read(&inner, piece, share).await }));
        }
        Ok(())
    }
}

/// Reads the next part as soon as there is memory for it; nothing after the last.
async fn needed(inner: &Inner, pieces: &mut Pieces) -> Result<Option<Read>, StoreError> {
    let Some(piece) = pieces.next_up_to(NEEDED_BYTES_MAX)? else { return Ok(None) };
    let share = inner.read_share(piece.len()).await;
    read(inner, piece, share).await.map(Some)
}

async fn read(inner: &Inner, piece: Piece, share: Share) -> Result<Read, StoreError> {
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
