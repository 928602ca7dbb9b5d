//! Writing bytes that do not go into a record: what lies in victims is packed into new stripes, in order.

use gabion_erasure::Crc64;
use gabion_segment::StripeBuffer;
use gabion_types::Extent;

use super::{
    Round,
    relocate::{Content, Stays, read},
};
use crate::{StoreError, get::pieces::Piece, holds::Hold, mutation::Data};

/// Writes the bytes of `pieces` again, but for those that stay where they are.
pub(super) async fn restripe(round: &Round, pieces: &[Piece], stays: Stays) -> Result<Content, StoreError> {
    let _turn = round.restripes.acquire().await.expect("the semaphore is never closed");
    let mut stripes = Stripes { round, filling: None, extents: Vec::new(), hold: round.inner.holds.hold(), bytes: 0 };
    for piece in pieces {
        if stays.stays(round, piece) {
            stripes.send().await?;
            stripes.extents.push(piece.extent);
        } else {
            stripes.put(piece).await?;
        }
    }
    stripes.send().await?;
    Ok(Content {
        data: Data::Extents(stripes.extents),
        record: Vec::new(),
        record_crc64: 0,
        hold: stripes.hold,
        written_bytes: stripes.bytes,
    })
}

/// Stripes as they are filled.
struct Stripes<'a> {
    round: &'a Round,
    filling: Option<Filling>,
    extents: Vec<Extent>,
    hold: Hold,
    bytes: u64,
}

/// A stripe, and the checksum of what was put into it.
struct Filling {
    buffer: StripeBuffer,
    crc64: Crc64,
    bytes: usize,
}

impl Stripes<'_> {
    async fn put(&mut self, piece: &Piece) -> Result<(), StoreError> {
        // What fits into a stripe is not cut: it stays one extent, and can be shared.
        let room = self.round.inner.log.stripe_payload_bytes();
        if self.filling.as_ref().is_some_and(|filling| filling.bytes + piece.len() > room) {
            self.send().await?;
        }
        let mut put = Crc64::new();
        for bytes in read(self.round, piece).await? {
            put.update(&bytes);
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let filling = match &mut self.filling {
                    Some(filling) => filling,
                    empty => {
                        let buffer = self.round.inner.log.own_stripe_buffer().await?;
                        empty.insert(Filling { buffer, crc64: Crc64::new(), bytes: 0 })
                    }
                };
                let taken = filling.buffer.put(rest);
                filling.crc64.update(&rest[..taken]);
                filling.bytes += taken;
                rest = &rest[taken..];
                if filling.buffer.is_full() {
                    self.send().await?;
                }
            }
        }
        if piece.is_whole() && put.finish() != piece.extent.crc64 {
            return Err(StoreError::Internal("bytes changed in memory while they were moved".into()));
        }
        Ok(())
    }

    /// Writes what is filled.
    async fn send(&mut self) -> Result<(), StoreError> {
        let Some(Filling { buffer, crc64, bytes }) = self.filling.take() else { return Ok(()) };
        let inner = &self.round.inner;
        self.round.pause(bytes as u64).await;
        let appending = inner.holds.append();
        let extent = inner.log.append_moved(buffer).await?;
        self.hold.add(extent.segment);
        drop(appending);
        // The log computed its checksum from what it coded and wrote.
        if extent.crc64 != crc64.finish() {
            return Err(StoreError::Internal("bytes changed in memory while they were moved".into()));
        }
        self.bytes += bytes as u64;
        self.extents.push(extent);
        Ok(())
    }
}
