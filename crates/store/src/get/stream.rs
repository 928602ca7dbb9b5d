//! The body of a read: what its reader needs next, and what could be read ahead of it.
//!
//! A client may keep its body from being asked for long. So nothing that waits for a turn of a target is polled by the body alone: it would get the turn and keep it.
//!
//! Of a stripe that is begun the page cache is to have all that is needed of it, in large pages, and of those behind it when that had to be waited for (docs/adr/0022).
//!
//! What is needed next is a small part, and waits for its share of the memory that is kept for that. Where it has to be waited for, because the page cache does not have it all the same
//! or there is none, what is behind it is read ahead: whole pieces, and only in memory that is free at that moment, from a budget of its own. So readers that stall hold little each, and
//! never what others need to go on.

use std::{collections::VecDeque, future::ready, sync::Arc, task::Poll};

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, poll, stream};
use gabion_platform::{FilePlace, FilePlaces, Wanted};
use gabion_segment::{LogError, Pin};
use tokio::task::JoinError;
use tokio_util::task::AbortOnDropHandle;

use super::pieces::{Piece, Pieces};
use crate::{
    ObjectStream, StoreError,
    store::{Inner, NEEDED_BYTES_MAX, Share},
};

/// The bytes of a piece, and the memory they count against.
struct Read {
    chunks: Vec<Bytes>,
    /// Where they lie in files; of all of them or of none.
    places: Vec<FilePlace>,
    share: Share,
}

/// Reads the first part, and streams the rest behind it.
pub(super) async fn open(inner: &Arc<Inner>, mut pieces: Pieces, pin: Pin) -> Result<ObjectStream, StoreError> {
    let Some(piece) = pieces.next()? else { return Ok(ObjectStream::empty()) };
    let needed_bytes = piece.cut(NEEDED_BYTES_MAX).0.len();
    let share = inner.first_read_share(needed_bytes).await?;
    if needed_bytes == piece.len() && pieces.is_done() {
        let chunks = inner.log.read(&piece.extent, piece.from..piece.to).await.map_err(lost)?;
        // The bytes are here: no file is needed any more.
        drop(pin);
        return Ok(ObjectStream::of_read(chunks, share));
    }
    // Beside the future that all reads are part of: it is moved about with each request.
    Box::pin(open_long(inner, piece, share, pieces, pin)).await
}

/// The same where there is more behind the first part of `piece`, which `share` is for.
async fn open_long(
    inner: &Arc<Inner>,
    piece: Piece,
    share: Share,
    pieces: Pieces,
    pin: Pin,
) -> Result<ObjectStream, StoreError> {
    let places = FilePlaces::default();
    let mut rest = Rest {
        inner: Arc::clone(inner),
        begun: None,
        loading: VecDeque::new(),
        pieces,
        ahead: VecDeque::new(),
        places: places.clone(),
    };
    rest.load(&piece).await?;
    let part = rest.cut(piece);
    let first = rest.read_needed(part, share).await?;
    let next = |mut rest: Rest| async move { Ok::<_, StoreError>(rest.next().await?.map(|read| (chunks(read), rest))) };
    let rest = stream::try_unfold(rest, next).try_flatten();
    let body = chunks(first).chain(rest).inspect(move |_| {
        let _held = &pin;
    });
    Ok(ObjectStream::placed(Box::pin(body), places))
}

/// A piece that the page cache loads. That takes none of the memory for reading ahead, but counts against it: what is loaded and not read for long would push out
/// what others wait for.
struct Loading {
    piece: Piece,
    task: AbortOnDropHandle<Share>,
}

/// What is behind the first part: reads under way, what is left of the stripe that was begun last, those that are loaded, and the others, in this order.
struct Rest {
    inner: Arc<Inner>,
    /// Reads of whole pieces, each with what it waits for. That ends with the stream; the read itself goes on, as the memory is the driver's.
    ahead: VecDeque<AbortOnDropHandle<Result<Read, StoreError>>>,
    begun: Option<Piece>,
    loading: VecDeque<Loading>,
    pieces: Pieces,
    /// Where the bytes lie that were read last, if the page cache had them at that moment.
    places: FilePlaces,
}

impl Rest {
    async fn next(&mut self) -> Result<Option<Read>, StoreError> {
        // They are of bytes that were given already.
        self.places.clear();
        if let Some(task) = self.ahead.pop_front() {
            let read = task.await.map_err(failed)??;
            self.read_ahead()?;
            return Ok(Some(read));
        }
        // The next part, as soon as there is memory for it.
        let piece = match self.begun.take() {
            Some(piece) => piece,
            None => match self.begin().await? {
                Some(piece) => piece,
                None => return Ok(None),
            },
        };
        let part = self.cut(piece);
        let share = self.inner.read_share(part.len()).await;
        self.read_needed(part, share).await.map(Some)
    }

    /// The first part of `piece`; the rest is what was begun.
    fn cut(&mut self, piece: Piece) -> Piece {
        let (part, rest) = piece.cut(NEEDED_BYTES_MAX);
        self.begun = rest;
        part
    }

    /// The next piece, once the page cache has it, if it loads anything.
    async fn begin(&mut self) -> Result<Option<Piece>, StoreError> {
        if let Some(Loading { piece, task }) = self.loading.pop_front() {
            // Its share is for the next one.
            drop(task.await.map_err(failed)?);
            self.load_ahead()?;
            return Ok(Some(piece));
        }
        let Some(piece) = self.pieces.next()? else { return Ok(None) };
        self.load(&piece).await?;
        Ok(Some(piece))
    }

    /// Waits until the page cache has `piece`, the next one. Where it had not, those behind it are loaded as well.
    async fn load(&mut self, piece: &Piece) -> Result<(), StoreError> {
        let load = self.inner.log.load(&piece.extent, piece.from..piece.to, Wanted::Now).await;
        let Some(mut load) = load else { return Ok(()) };
        // It takes its turns before the others.
        if poll!(load.as_mut()).is_pending() {
            let loaded = AbortOnDropHandle::new(tokio::spawn(load));
            self.load_ahead()?;
            loaded.await.map_err(failed)?;
        }
        Ok(())
    }

    /// Begins to load pieces as far as the configuration and the free memory go.
    fn load_ahead(&mut self) -> Result<(), StoreError> {
        while self.ahead.len() + self.loading.len() < self.inner.config.read_ahead_stripes.max(1) {
            let Some(piece) = self.pieces.next()? else { break };
            let Some(share) = self.inner.read_ahead_share(piece.len()) else {
                self.pieces.put_back(piece);
                break;
            };
            let inner = Arc::clone(&self.inner);
            // It ends with the stream. The share is given back when it has, not before.
            let task = tokio::spawn(async move {
                if let Some(load) = inner.log.load(&piece.extent, piece.from..piece.to, Wanted::Later).await {
                    load.await;
                }
                share
            });
            self.loading.push_back(Loading { piece, task: AbortOnDropHandle::new(task) });
        }
        Ok(())
    }

    /// Reads a part that the reader waits for. What the page cache holds is there at once; to read ahead of it would only push it out of the processor's
    /// caches before it is sent. Where it is not, what comes behind it is read meanwhile.
    async fn read_needed(&mut self, part: Piece, share: Share) -> Result<Read, StoreError> {
        let mut reading = Box::pin(read(Arc::clone(&self.inner), part, share));
        if let Poll::Ready(read) = poll!(reading.as_mut()) {
            let mut read = read?;
            self.places.set(&read.chunks, read.places.drain(..));
            return Ok(read);
        }
        let reading = tokio::spawn(reading);
        self.read_ahead()?;
        reading.await.map_err(failed)?
    }

    /// Begins to read pieces as far as the configuration and the free memory go, each once it is loaded.
    fn read_ahead(&mut self) -> Result<(), StoreError> {
        if let Some(piece) = self.begun.take() {
            let Some(share) = self.inner.read_ahead_share(piece.len()) else {
                self.begun = Some(piece);
                return Ok(());
            };
            self.ahead.push_back(self.read_with(piece, ready(Ok(share))));
        }
        self.load_ahead()?;
        for Loading { piece, task } in std::mem::take(&mut self.loading) {
            self.ahead.push_back(self.read_with(piece, task));
        }
        Ok(())
    }

    /// Reads `piece` once there is `share`. It is verified while the reader is busy with what lies before it.
    fn read_with(
        &self,
        piece: Piece,
        share: impl Future<Output = Result<Share, JoinError>> + Send + 'static,
    ) -> AbortOnDropHandle<Result<Read, StoreError>> {
        let inner = Arc::clone(&self.inner);
        AbortOnDropHandle::new(tokio::spawn(async move {
            let share = share.await.map_err(failed)?;
            tokio::spawn(read(inner, piece, share)).await.map_err(failed)?
        }))
    }
}

async fn read(inner: Arc<Inner>, piece: Piece, share: Share) -> Result<Read, StoreError> {
    let mut places = Vec::new();
    let read = inner.log.read_placed(&piece.extent, piece.from..piece.to, Some(&mut places));
    let chunks = read.await.map_err(lost)?;
    Ok(Read { chunks, places, share })
}

fn failed(error: JoinError) -> StoreError {
    StoreError::Internal(format!("a task failed: {error}"))
}

fn lost(error: LogError) -> StoreError {
    match error {
        // Its row was there when it was pinned: what is lost now, is lost.
        error @ LogError::NotFound(_) => StoreError::Corrupt(error.to_string()),
        error => error.into(),
    }
}

/// The bytes one after the other; the share is given back with the last.
fn chunks(read: Read) -> impl Stream<Item = Result<Bytes, StoreError>> + Send {
    let Read { chunks, share, .. } = read;
    stream::iter(chunks).map(move |chunk| {
        let _held = &share;
        Ok(chunk)
    })
}
