//! The body of a read: what its reader needs next, and what could be read ahead of it.
//!
//! Of a stripe that is begun the page cache is to have all that is needed of it, in large pages, and of those behind it when that had to be waited for (docs/adr/0022).
//!
//! What is needed next is a small part, and waits for its share of the memory that is kept for that. Where it has to be waited for, because the page cache does not have it all the same
//! or there is none, what is behind it is read ahead: whole pieces, and only in memory that is free at that moment, from a budget of its own. So readers that stall hold little each, and
//! never what others need to go on.

use std::{collections::VecDeque, pin::pin, sync::Arc, task::Poll};

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt, poll, stream};
use gabion_platform::{FilePlace, FilePlaces};
use gabion_segment::{LogError, Pin};
use gabion_types::SegmentId;
use tokio::task::JoinHandle;

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
    let Some(piece) = pieces.next_up_to(NEEDED_BYTES_MAX)? else { return Ok(ObjectStream::empty()) };
    let share = inner.first_read_share(piece.len()).await?;
    if pieces.is_done() {
        let chunks = inner.log.read(&piece.extent, piece.from..piece.to).await.map_err(lost)?;
        // The bytes are here: no file is needed any more.
        drop(pin);
        return Ok(ObjectStream::of_read(chunks, share));
    }
    // Beside the future that all reads are part of: it is moved about with each request.
    Box::pin(open_long(inner, piece, share, pieces, pin)).await
}

/// The same where there is more behind the first part.
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
        pieces,
        begun: None,
        loads: VecDeque::new(),
        ahead: VecDeque::new(),
        places: places.clone(),
    };
    rest.load(&piece).await;
    let first = rest.read_needed(piece, share).await?;
    let next = |mut rest: Rest| async move { Ok::<_, StoreError>(rest.next().await?.map(|read| (chunks(read), rest))) };
    let rest = stream::try_unfold(rest, next).try_flatten();
    let body = chunks(first).chain(rest).inspect(move |_| {
        let _held = &pin;
    });
    Ok(ObjectStream::placed(Box::pin(body), places))
}

/// A stripe, by its segment and offset.
type Stripe = (SegmentId, u64);

fn stripe(piece: &Piece) -> Stripe {
    (piece.extent.segment, piece.extent.stripe_offset)
}

/// What is behind the first part.
struct Rest {
    inner: Arc<Inner>,
    pieces: Pieces,
    /// The stripe that was begun last.
    begun: Option<Stripe>,
    /// Those behind it that the page cache loads, in order, each with a share of the memory for reading ahead: it takes none of that, but what is loaded and
    /// not read for long would push out what others wait for.
    loads: VecDeque<(Stripe, Share, JoinHandle<()>)>,
    /// Reads under way, in order.
    ahead: VecDeque<JoinHandle<Result<Read, StoreError>>>,
    /// Where the bytes lie that were read last, if the page cache had them at that moment.
    places: FilePlaces,
}

impl Rest {
    async fn next(&mut self) -> Result<Option<Read>, StoreError> {
        // They are of bytes that were given already.
        self.places.clear();
        if let Some(task) = self.ahead.pop_front() {
            let read = task.await.map_err(|error| StoreError::Internal(format!("a task failed: {error}")))??;
            self.read_ahead()?;
            return Ok(Some(read));
        }
        // The next part, as soon as there is memory for it.
        let Some(piece) = self.pieces.next_up_to(NEEDED_BYTES_MAX)? else { return Ok(None) };
        self.load(&piece).await;
        let share = self.inner.read_share(piece.len()).await;
        self.read_needed(piece, share).await.map(Some)
    }

    /// Waits until the page cache has what is needed of the stripe that `piece` is the next part of, if it was not begun before.
    async fn load(&mut self, piece: &Piece) {
        if self.begun.replace(stripe(piece)) == Some(stripe(piece)) {
            return;
        }
        while let Some((loaded, _share, task)) = self.loads.pop_front() {
            if loaded == stripe(piece) {
                // It may be read whatever came of that.
                let _ = task.await;
                return self.load_ahead();
            }
        }
        let inner = Arc::clone(&self.inner);
        let end = self.pieces.end_of(piece);
        let mut loading = pin!(inner.log.load(&piece.extent, piece.from..end));
        if poll!(loading.as_mut()).is_pending() {
            self.load_ahead();
            loading.await;
        }
    }

    /// Begins loads of the stripes behind the one that was begun last, as far as the configuration and the free memory go.
    fn load_ahead(&mut self) {
        let behind = self.pieces.at_hand().filter(|piece| Some(stripe(piece)) != self.begun);
        for piece in behind.take(self.inner.config.read_ahead_stripes).skip(self.loads.len()) {
            let Some(share) = self.inner.read_ahead_share(piece.len()) else { break };
            let (inner, loaded) = (Arc::clone(&self.inner), *piece);
            let task = tokio::spawn(async move { inner.log.load(&loaded.extent, loaded.from..loaded.to).await });
            self.loads.push_back((stripe(piece), share, task));
        }
    }

    /// Reads a part that the reader waits for. What the page cache holds is there at once; to read ahead of it would only push it out of the processor's
    /// caches before it is sent. Where it is not, what comes behind it is read meanwhile.
    async fn read_needed(&mut self, piece: Piece, share: Share) -> Result<Read, StoreError> {
        let inner = Arc::clone(&self.inner);
        let mut reading = pin!(read(&inner, piece, share));
        if let Poll::Ready(read) = poll!(reading.as_mut()) {
            let mut read = read?;
            self.places.set(&read.chunks, read.places.drain(..));
            return Ok(read);
        }
        self.read_ahead()?;
        reading.await
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

async fn read(inner: &Inner, piece: Piece, share: Share) -> Result<Read, StoreError> {
    let mut places = Vec::new();
    let read = inner.log.read_placed(&piece.extent, piece.from..piece.to, Some(&mut places));
    let chunks = read.await.map_err(lost)?;
    Ok(Read { chunks, places, share })
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
