//! Taking in a body: small ones into memory, large ones stripe by stripe into the log; digests as the bytes pass.
//!
//! What limits a large body that comes alone is MD5 (S3's entity tag, unless the configuration has another), at some 600 MB/s of one core; those that come together share its cost
//! (`crate::md5s`): it is taken of the stripes, which are in memory until they are durable, so that nearly always many have something to be taken. CRC-64/NVME is never computed
//! twice: the log computes it per stripe, and stripes combine.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::{Pin, pin},
    task::{Poll, ready},
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures::future::{MaybeDone, maybe_done};
use gabion_encryption::{Sealer, SecretKey};
use gabion_erasure::{Checksum, ChecksumAlgorithm, Crc64, Digester, Digests};
use gabion_metadata::rows::{ChecksumKind, PartTag, StoredChecksum};
use gabion_segment::StripeBuffer;
use gabion_types::{
    Extent,
    limits::{BLOCK_BYTES, INLINE_BYTES_MAX, MUTATION_BYTES_MAX, PUT_BYTES_MAX},
};
use tokio::{task::JoinHandle, time::Sleep};

use crate::{
    BodyError, BodyPiece, DigestKind, EtagKind, ObjectBody, StoreError,
    copy::crc64_of,
    holdback::{ADMITTED_BYTES_MAX, Admitted, OVERHEAD_BYTES},
    holds::Hold,
    in_flight::Kept,
    late_md5::LateMd5s,
    md5s::BodyMd5,
    sealed::Seal,
    store::{Inner, Share},
};

/// Stripes of one body that are on their way to the targets while the next is filled.
const STRIPES_IN_FLIGHT: usize = 2;
/// How long a stripe that was seen to be durable keeps its memory for its MD5: most clients send more soon, and then others have something to share.
const PATIENCE: Duration = Duration::from_millis(100);
/// Extents that a mutation can name, at up to 56 bytes each; 5 GiB in stripes of 320 KiB.
const EXTENTS_MAX: usize = 16 * 1024;
const _: () = assert!(EXTENTS_MAX * 56 + 64 * 1024 <= MUTATION_BYTES_MAX);
/// Pieces of a small body below this are gathered, so that a client's tiny chunks do not become a write each.
const PIECE_BYTES_MIN: usize = 16 * 1024;

/// A body that was taken in and checked.
pub(crate) struct Collected {
    /// Its length in bytes, as the client knows it.
    pub size: u64,
    /// Its tag, as the configuration has it; nothing where that is an MD5 that is taken later.
    pub tag: Option<PartTag>,
    /// Every checksum that was computed, of the full body.
    pub checksums: Vec<Checksum>,
    /// The CRC-64/NVME of what is stored.
    pub crc64: u64,
    /// Where it is.
    pub content: Content,
    /// What its commit needs to be kept; its hold keeps what was written from being freed before a row refers to it.
    pub kept: Kept,
}

/// Where a body is.
pub(crate) enum Content {
    /// In memory, to go into the record.
    Inline(Vec<Bytes>),
    /// In the log already.
    Stored(Vec<Extent>),
}

/// When the tag of a body must be known.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tagging {
    /// When it was taken in.
    Now,
    /// If it is a small one, not before its record is written (`crate::late_md5`).
    Late,
}

/// Takes in `body`; computes the checksums that it asks for, and `also`. What is stored of it is sealed, if it is to be.
///
/// # Errors
/// `Body`, `BadDigest`, `EntityTooLarge`, `InvalidRequest`, `Busy`, `NoSpace`; those of the log for a large body.
pub(crate) fn collect(
    inner: &Inner,
    mut body: ObjectBody,
    also: Option<ChecksumAlgorithm>,
    tagging: Tagging,
    seal: Option<Seal>,
) -> impl Future<Output = Result<Collected, StoreError>> + Send {
    let collector = inner.check_index_room().map(|()| Collector::new(inner, &body, also, tagging, seal));
    async move {
        let mut collector = collector?;
        let taken = collector.take_in(&mut body).await;
        let collected = taken.and_then(|taken| collector.finish(body, taken));
        match &collected {
            Ok(collected) => {
                inner.metrics.body_bytes.add(collected.size);
                match collected.content {
                    Content::Inline(_) => inner.metrics.bodies_inline.add(1),
                    Content::Stored(_) => inner.metrics.bodies_striped.add(1),
                }
            }
            Err(_) => inner.metrics.bodies_refused.add(1),
        }
        collected
    }
}

/// What a body has come to when it is at its end.
#[derive(Default)]
struct Taken {
    /// The memory of one that is not known to be large.
    share: Option<Share>,
    /// The room that it was let in for.
    admitted: Option<Admitted>,
    md5: Option<[u8; 16]>,
    /// Where a large one is, what keeps it there, and the room for its record.
    stored: Option<(Vec<Extent>, Hold, Option<Admitted>)>,
}

struct Collector<'a> {
    inner: &'a Inner,
    size: u64,
    size_max: u64,
    /// Bytes of what is stored (the body, or the sealed one) that were kept in memory.
    kept_bytes: u64,
    /// How many there will be, if that is known.
    stored_length: Option<u64>,
    sealer: Option<Box<Sealer>>,
    /// What makes the tag, if that is to say nothing of the bytes.
    tag_key: Option<SecretKey>,
    /// Nothing when neither tag nor client needs it.
    md5: Option<BodyMd5<'a>>,
    is_late: bool,
    digester: Digester,
    wants_crc64: bool,
    /// Whether nobody but the tag needs the CRC of a body that is sealed.
    is_crc64_for_tag: bool,
    wants_md5_checksum: bool,
    pieces: Pieces,
    stripes: Option<Stripes<'a>>,
    /// The memory and the room of a body that may be a small one, until it is known to be large.
    small: Option<Box<(Share, Admitted)>>,
}

impl<'a> Collector<'a> {
    fn new(
        inner: &'a Inner,
        body: &ObjectBody,
        also: Option<ChecksumAlgorithm>,
        tagging: Tagging,
        seal: Option<Seal>,
    ) -> Self {
        let asked = body.checksums.iter().map(Checksum::algorithm).chain(body.compute.iter().copied()).chain(also);
        let mut algorithms: Vec<ChecksumAlgorithm> = asked.collect();
        algorithms.sort_unstable();
        algorithms.dedup();
        let hides_digest = seal.as_ref().is_some_and(|seal| seal.hides_digest);
        let is_md5 = inner.config.etag == EtagKind::Md5 && !hides_digest;
        let wants_md5_checksum = algorithms.contains(&ChecksumAlgorithm::Md5);
        let needs_md5 = body.content_md5.is_some() || wants_md5_checksum;
        let may_wait = tagging == Tagging::Late && !needs_md5 && seal.is_none();
        let is_late = is_md5 && may_wait && body.length.is_some_and(LateMd5s::takes);
        let wants_md5 = (is_md5 && !is_late) || needs_md5;
        let is_crc64_asked = algorithms.is_empty() || algorithms.contains(&ChecksumAlgorithm::Crc64Nvme);
        // Those two are taken anyway.
        algorithms.retain(|algorithm| !matches!(algorithm, ChecksumAlgorithm::Crc64Nvme | ChecksumAlgorithm::Md5));
        // The log's is of what is stored: that of a sealed body has to be computed.
        let wants_crc64 = is_crc64_asked && seal.is_none();
        let is_crc64_for_tag = seal.is_some() && !is_crc64_asked && inner.config.etag == EtagKind::Crc64Nvme;
        if seal.is_some() && (is_crc64_asked || is_crc64_for_tag) {
            algorithms.push(ChecksumAlgorithm::Crc64Nvme);
        }
        let stored_length =
            body.length.map(|length| seal.as_ref().map_or(length, |seal| seal.frames.sealed_len(length)));
        let mut tag_key = None;
        let sealer = seal.map(|seal| {
            let Seal { data_key, frames, salt, part_number, .. } = seal;
            tag_key = hides_digest.then(|| data_key.clone());
            Box::new(Sealer::new(&data_key, &salt.0, part_number, frames, body.length))
        });
        Self {
            inner,
            size: 0,
            size_max: body.length.unwrap_or(u64::MAX),
            kept_bytes: 0,
            stored_length,
            sealer,
            tag_key,
            md5: wants_md5.then(|| inner.md5s.begin()),
            is_late,
            digester: Digester::new(false, &algorithms),
            wants_crc64,
            is_crc64_for_tag,
            wants_md5_checksum,
            pieces: Pieces::default(),
            stripes: None,
            small: None,
        }
    }

    /// Takes in the body to its end.
    async fn take_in(&mut self, body: &mut ObjectBody) -> Result<Taken, StoreError> {
        if body.length.is_some_and(|length| length > PUT_BYTES_MAX) {
            return Err(StoreError::EntityTooLarge);
        }
        let is_small = self.stored_length.is_some_and(|length| length <= INLINE_BYTES_MAX as u64);
        // Boxed is what most bodies have no need of: their futures are small, and moved on their way.
        if self.stored_length.is_some() && !is_small {
            self.stripes = Some(Stripes::new(self.inner, self.stored_length));
            return Box::pin(self.take_rest(body)).await;
        }
        let bytes = self.stored_length.map_or(INLINE_BYTES_MAX, |length| length as usize);
        // First this: who waits for room keeps no memory from others.
        let admitted = self.inner.admit(bytes as u64).await?;
        let share = self.inner.put_share(bytes).await?;
        if is_small && self.sealer.is_none() && self.md5.is_none() {
            while let Some(piece) = next(body, &mut []).await? {
                let piece = piece.into_bytes();
                self.count(piece.len())?;
                self.digester.update(&piece);
                self.keep(piece);
            }
            self.end(body)?;
            return Ok(Taken { share: Some(share), admitted: Some(admitted), ..Taken::default() });
        }
        self.small = Some(Box::new((share, admitted)));
        let taken = Box::pin(self.take_rest(body)).await?;
        let (share, admitted) = self.small.take().map(|small| *small).unzip();
        Ok(Taken { share, admitted, ..taken })
    }

    /// Takes in what there is, whatever it is and wherever it goes.
    async fn take_rest(&mut self, body: &mut ObjectBody) -> Result<Taken, StoreError> {
        loop {
            let piece = match &mut self.stripes {
                Some(stripes) if self.sealer.is_none() => stripes.next(body, self.md5.as_mut()).await?,
                _ => next(body, &mut []).await?,
            };
            match piece {
                Some(BodyPiece::Bytes(piece)) => self.take(piece).await?,
                Some(BodyPiece::InRoom(bytes)) => self.take_from_room(bytes).await?,
                None => break,
            }
        }
        self.end(body)?;
        if let Some(last) = self.sealer.take().and_then(|sealer| sealer.finish()) {
            self.store(last.into(), false).await?;
        }
        let stored = match self.stripes.take() {
            Some(stripes) => Some(stripes.finish(self.md5.as_mut()).await?),
            None => None,
        };
        let md5 = match self.md5.take() {
            Some(md5) => Some(md5.finish().await),
            None => None,
        };
        Ok(Taken { md5, stored, ..Taken::default() })
    }

    /// There are no more bytes.
    fn end(&self, body: &mut ObjectBody) -> Result<(), StoreError> {
        // What it held is no longer needed; trailers are known once the stream is gone.
        body.stream = Box::new(futures::stream::empty());
        match body.length {
            Some(length) if self.size < length => Err(BodyError::WrongLength.into()),
            _ => Ok(()),
        }
    }

    /// Holds it against what was said of it.
    fn finish(self, body: ObjectBody, taken: Taken) -> Result<Collected, StoreError> {
        let Taken { share, admitted, md5, stored } = taken;
        let (content, crc64, hold, of_stripes) = match stored {
            Some((extents, hold, admitted)) => {
                let crc64 = crc64_of(&extents);
                (Content::Stored(extents), crc64, hold, admitted)
            }
            None => {
                let pieces = self.pieces.finish();
                let mut crc64 = Crc64::new();
                pieces.iter().for_each(|piece| crc64.update(piece));
                (Content::Inline(pieces), crc64.finish(), self.inner.holds.hold(), None)
            }
        };
        let mut digests = self.digester.finish();
        if self.wants_crc64 {
            digests.checksums.push(crc64_checksum(crc64));
        }
        if let (true, Some(md5)) = (self.wants_md5_checksum, md5) {
            let checksum = Checksum::new(ChecksumAlgorithm::Md5, &md5).expect("it has sixteen bytes");
            digests.checksums.push(checksum);
        }
        check(md5, &digests, body)?;
        let computed_crc64 = digests.checksum(ChecksumAlgorithm::Crc64Nvme).as_ref().and_then(crc64_value);
        let tag = match (self.inner.config.etag, md5) {
            _ if self.is_late => None,
            _ if self.tag_key.is_some() => {
                self.tag_key.map(|key| PartTag::Md5(key.tag(digests.checksums.iter().map(Checksum::as_bytes))))
            }
            (EtagKind::Md5, Some(md5)) => Some(PartTag::Md5(md5)),
            (EtagKind::Crc64Nvme, _) | (_, None) => Some(PartTag::Crc64(computed_crc64.unwrap_or(crc64))),
        };
        if self.is_crc64_for_tag {
            digests.checksums.retain(|checksum| checksum.algorithm() != ChecksumAlgorithm::Crc64Nvme);
        }
        let mut of_record = [admitted, of_stripes];
        of_record.iter_mut().flatten().for_each(Admitted::spend);
        Ok(Collected {
            size: self.size,
            tag,
            checksums: digests.checksums,
            crc64,
            content,
            kept: Kept { _share: share, _admitted: of_record, ..hold.into() },
        })
    }

    /// Counts bytes that came.
    fn count(&mut self, bytes: usize) -> Result<(), StoreError> {
        self.size += bytes as u64;
        if self.size > self.size_max {
            return Err(BodyError::TooLarge.into());
        }
        if self.size > PUT_BYTES_MAX {
            return Err(StoreError::EntityTooLarge);
        }
        Ok(())
    }

    /// Takes what stays in memory.
    fn keep(&mut self, piece: Bytes) {
        self.kept_bytes += piece.len() as u64;
        self.pieces.push(piece);
    }

    async fn take(&mut self, piece: Bytes) -> Result<(), StoreError> {
        self.count(piece.len())?;
        self.digester.update(&piece);
        if self.sealer.is_none() {
            return self.store(piece, true).await;
        }
        if let Some(md5) = &mut self.md5 {
            md5.update(&piece).await;
        }
        let mut rest = &piece[..];
        while !rest.is_empty() {
            if let Some(frame) = self.sealer.as_mut().and_then(|sealer| sealer.take(&mut rest)) {
                self.store(frame.into(), false).await?;
            }
        }
        Ok(())
    }

    /// Takes so many bytes that came into the filling stripe's room.
    async fn take_from_room(&mut self, bytes: usize) -> Result<(), StoreError> {
        self.count(bytes)?;
        let stripes = self.stripes.as_mut().ok_or_else(|| missing("the stripe of a body"))?;
        let filling = stripes.filling.as_mut().ok_or_else(|| missing("the stripe of a body"))?;
        self.digester.update(&filling.buffer.room()[..bytes]);
        filling.buffer.advance(bytes);
        stripes.filled(self.md5.as_mut()).await
    }

    /// Takes what goes to the log, and its MD5 if that is to be taken of it.
    async fn store(&mut self, piece: Bytes, digested: bool) -> Result<(), StoreError> {
        let md5 = self.md5.as_mut().filter(|_| digested);
        if self.stripes.is_none() {
            if self.kept_bytes + piece.len() as u64 <= INLINE_BYTES_MAX as u64 {
                if let Some(md5) = md5 {
                    md5.update(&piece).await;
                }
                self.keep(piece);
                return Ok(());
            }
            let mut stripes = Stripes::new(self.inner, None);
            for early in std::mem::take(&mut self.pieces).finish() {
                stripes.put(&early, None).await?;
            }
            self.stripes = Some(stripes);
            // For others, while the rest comes, which may take long.
            self.small = None;
        }
        match &mut self.stripes {
            Some(stripes) => stripes.put(&piece, md5).await,
            None => Ok(()),
        }
    }
}

/// What is never to be seen: nothing is acknowledged of which something is missing.
fn missing(what: &str) -> StoreError {
    StoreError::Internal(format!("{what} is missing"))
}

/// The next piece of a body.
async fn next(body: &mut ObjectBody, room: &mut [u8]) -> Result<Option<BodyPiece>, StoreError> {
    Ok(poll_fn(|cx| body.stream.poll_piece(cx, room)).await.transpose()?)
}

/// A small body in pieces: those that are long enough as they came.
#[derive(Default)]
struct Pieces {
    whole: Vec<Bytes>,
    gathered: BytesMut,
}

impl Pieces {
    fn push(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        let is_first = self.whole.is_empty() && self.gathered.is_empty();
        if piece.len() >= PIECE_BYTES_MIN || is_first {
            self.end_gathered();
            self.whole.push(piece);
        } else {
            self.gathered.extend_from_slice(&piece);
        }
    }

    fn end_gathered(&mut self) {
        if !self.gathered.is_empty() {
            self.whole.push(self.gathered.split().freeze());
        }
    }

    fn finish(mut self) -> Vec<Bytes> {
        self.end_gathered();
        self.whole
    }
}

/// Room for the stripes of a large body. It is asked for as a whole, before the first: bodies that wait for each other in the middle would keep what
/// they have written from everyone, and none of them might ever be complete. Only those that are very long, or do not say how
/// long they are, wait on the way as well, and their clients with them.
struct RoomFor {
    /// Bytes that are to come, of those for which no room was asked for yet, if that is known.
    expected_bytes: Option<u64>,
    admitted: Option<Admitted>,
}

impl RoomFor {
    /// Waits until the next stripe may be written.
    async fn next_stripe(&mut self, inner: &Inner) -> Result<Admitted, StoreError> {
        let stripe_bytes = inner.log.stripe_payload_bytes() as u64;
        loop {
            if let Some(next) =
                self.admitted.as_mut().and_then(|admitted| admitted.split(stripe_bytes + OVERHEAD_BYTES))
            {
                return Ok(next);
            }
            let longest_bytes = (ADMITTED_BYTES_MAX / stripe_bytes).max(1) * stripe_bytes;
            let bytes = match &mut self.expected_bytes {
                Some(expected) if *expected > 0 => {
                    let bytes = longest_bytes.min(*expected);
                    *expected -= bytes;
                    bytes
                }
                _ => stripe_bytes,
            };
            self.admitted = Some(inner.admit(bytes + bytes.div_ceil(stripe_bytes) * OVERHEAD_BYTES).await?);
        }
    }
}

/// A large body on its way into the log.
struct Stripes<'a> {
    inner: &'a Inner,
    room: RoomFor,
    filling: Option<Filling>,
    in_flight: VecDeque<Sent>,
    extents: Vec<Extent>,
    hold: Hold,
    /// Bytes that were left to have their MD5 taken.
    left_bytes: u64,
    /// Until when the first stripe in flight, which is durable, is left to others for its MD5.
    patience: Option<Pin<Box<Sleep>>>,
}

/// The stripe that comes next.
struct Filling {
    buffer: StripeBuffer,
    admitted: Admitted,
    /// Bytes whose MD5 is taken, or that were left for that.
    left: usize,
}

/// A stripe that is on its way.
struct Sent {
    written: MaybeDone<JoinHandle<Result<(Extent, Hold), StoreError>>>,
    /// How many bytes had been left when it was complete.
    left_bytes: u64,
}

impl<'a> Stripes<'a> {
    fn new(inner: &'a Inner, length: Option<u64>) -> Self {
        let (hold, room) = (inner.holds.hold(), RoomFor { expected_bytes: length, admitted: None });
        Self {
            inner,
            room,
            filling: None,
            in_flight: VecDeque::new(),
            extents: Vec::new(),
            hold,
            left_bytes: 0,
            patience: None,
        }
    }

    /// The next piece of a body, in the filling stripe's room if there is one. What has been durable for a while is done with meanwhile: its memory is not a slow client's to keep.
    async fn next(
        &mut self,
        body: &mut ObjectBody,
        mut md5: Option<&mut BodyMd5<'_>>,
    ) -> Result<Option<BodyPiece>, StoreError> {
        loop {
            let (filling, first, patience) = (&mut self.filling, self.in_flight.front_mut(), &mut self.patience);
            let mut first = first.map(|sent| &mut sent.written);
            let room = filling.as_mut().map_or(&mut [][..], |filling| filling.buffer.room());
            let piece = poll_fn(|cx| {
                if let Poll::Ready(piece) = body.stream.poll_piece(cx, room) {
                    return Poll::Ready(Some(piece));
                }
                let Some(written) = &mut first else { return Poll::Pending };
                ready!(Pin::new(&mut **written).poll(cx));
                let patience = patience.get_or_insert_with(|| Box::pin(tokio::time::sleep(PATIENCE)));
                patience.as_mut().poll(cx).map(|()| None)
            });
            match piece.await {
                Some(piece) => return Ok(piece.transpose()?),
                None => self.receive(md5.as_deref_mut()).await?,
            }
        }
    }

    /// Takes `bytes`, and their MD5 if there is one to be taken.
    async fn put(&mut self, mut bytes: &[u8], mut md5: Option<&mut BodyMd5<'_>>) -> Result<(), StoreError> {
        while !bytes.is_empty() {
            let filling = self.filling(md5.as_deref_mut()).await?;
            bytes = &bytes[filling.buffer.put_in_cell(bytes)..];
            self.filled(md5.as_deref_mut()).await?;
        }
        Ok(())
    }

    /// The stripe that has room.
    async fn filling(&mut self, md5: Option<&mut BodyMd5<'_>>) -> Result<&mut Filling, StoreError> {
        if self.filling.is_none() {
            // Nobody who waits for room or memory keeps any that is not on its way: else all might wait.
            let settle = async || {
                if let Some(md5) = &md5 {
                    md5.settle_to(0).await;
                }
            };
            let admitted = {
                let mut admitted = pin!(self.room.next_stripe(self.inner));
                match futures::poll!(admitted.as_mut()) {
                    Poll::Ready(admitted) => admitted?,
                    Poll::Pending => {
                        settle().await;
                        admitted.await?
                    }
                }
            };
            let buffer = match self.inner.log.try_stripe_buffer() {
                Some(buffer) => buffer,
                None => {
                    settle().await;
                    self.inner.stripe_buffer().await?
                }
            };
            self.filling = Some(Filling { buffer, admitted, left: 0 });
        }
        Ok(self.filling.as_mut().expect("there is one now"))
    }

    /// Takes what is complete further: something came to the filling stripe, no more than to the end of its cell.
    async fn filled(&mut self, mut md5: Option<&mut BodyMd5<'_>>) -> Result<(), StoreError> {
        let filling = self.filling.as_mut().ok_or_else(|| missing("the stripe of a body"))?;
        if md5.is_none() {
            filling.left = filling.buffer.len();
        } else if filling.buffer.len().is_multiple_of(BLOCK_BYTES) {
            self.leave(md5.as_deref_mut()).await;
        }
        if self.filling.as_ref().is_some_and(|filling| filling.buffer.is_full()) {
            self.send(md5).await
        } else {
            Ok(())
        }
    }

    /// Leaves what came since, which lies in one cell, to have its MD5 taken.
    async fn leave(&mut self, md5: Option<&mut BodyMd5<'_>>) {
        let (Some(md5), Some(filling)) = (md5, &mut self.filling) else { return };
        let part = filling.left..filling.buffer.len();
        if !part.is_empty() {
            filling.left = part.end;
            self.left_bytes += part.len() as u64;
            md5.update_in_place(filling.buffer.part(part)).await;
        }
    }

    /// Sends what is filled on its way, in a task of its own: it goes on whatever becomes of the request.
    async fn send(&mut self, mut md5: Option<&mut BodyMd5<'_>>) -> Result<(), StoreError> {
        self.leave(md5.as_deref_mut()).await;
        let Some(Filling { buffer, mut admitted, .. }) = self.filling.take() else { return Ok(()) };
        while self.in_flight.len() >= STRIPES_IN_FLIGHT {
            self.receive(md5.as_deref_mut()).await?;
        }
        let (log, holds) = (self.inner.log.clone(), std::sync::Arc::clone(&self.inner.holds));
        let written = self.inner.spawn(async move {
            admitted.spend();
            let (_appending, _admitted) = (holds.append(), admitted);
            let extent = log.append(buffer).await?;
            let mut hold = holds.hold();
            hold.add(extent.segment);
            Ok((extent, hold))
        });
        self.in_flight.push_back(Sent { written: maybe_done(written), left_bytes: self.left_bytes });
        Ok(())
    }

    async fn receive(&mut self, md5: Option<&mut BodyMd5<'_>>) -> Result<(), StoreError> {
        if let Some(Sent { mut written, left_bytes }) = self.in_flight.pop_front() {
            self.patience = None;
            (&mut written).await;
            let done = Pin::new(&mut written).take_output().ok_or_else(|| missing("the outcome of a stripe"))?;
            let (extent, _its_own) =
                done.map_err(|error| StoreError::Internal(format!("a task failed: {error}")))??;
            if let Some(md5) = md5 {
                // Its memory is needed by others.
                md5.settle_to((self.left_bytes - left_bytes) as usize).await;
            }
            self.hold.add(extent.segment);
            self.extents.push(extent);
            if self.extents.len() > EXTENTS_MAX {
                return Err(StoreError::EntityTooLarge);
            }
        }
        Ok(())
    }

    /// Where it is; what keeps it there, and the room for its record.
    async fn finish(
        mut self,
        mut md5: Option<&mut BodyMd5<'_>>,
    ) -> Result<(Vec<Extent>, Hold, Option<Admitted>), StoreError> {
        self.send(md5.as_deref_mut()).await?;
        while !self.in_flight.is_empty() {
            self.receive(md5.as_deref_mut()).await?;
        }
        Ok((self.extents, self.hold, self.room.admitted))
    }
}

/// Compares with what the client said, in headers and trailers.
fn check(md5: Option<[u8; 16]>, digests: &Digests, body: ObjectBody) -> Result<(), StoreError> {
    if body.content_md5.is_some() && body.content_md5 != md5 {
        return Err(StoreError::BadDigest(DigestKind::Md5));
    }
    let trailers = match body.trailers {
        Some(trailers) => trailers()?,
        None => Vec::new(),
    };
    for expected in body.checksums.iter().chain(&trailers) {
        match digests.checksum(expected.algorithm()) {
            None => return Err(BodyError::MalformedTrailer("a trailer that was not announced".into()).into()),
            Some(checksum) if checksum != *expected => {
                return Err(StoreError::BadDigest(DigestKind::Checksum(expected.algorithm())));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// A CRC-64/NVME as S3 shows it.
pub(crate) fn crc64_checksum(crc64: u64) -> Checksum {
    Checksum::new(ChecksumAlgorithm::Crc64Nvme, &crc64.to_be_bytes()).expect("it has eight bytes")
}

/// The number that a CRC-64/NVME is.
fn crc64_value(checksum: &Checksum) -> Option<u64> {
    Some(u64::from_be_bytes(checksum.as_bytes().try_into().ok()?))
}

/// A checksum as rows hold it.
pub(crate) fn stored(checksum: &Checksum, kind: ChecksumKind) -> StoredChecksum {
    StoredChecksum { algorithm: checksum.algorithm().index(), kind, value: checksum.as_bytes().to_vec() }
}

/// Checksums of a whole body as rows hold them.
pub(crate) fn stored_full(checksums: &[Checksum]) -> Vec<StoredChecksum> {
    checksums.iter().map(|checksum| stored(checksum, ChecksumKind::FullObject)).collect()
}
