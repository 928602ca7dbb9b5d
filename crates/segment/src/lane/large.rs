//! The large lane: one stripe of object bytes after the other, each synced, each answered with its extent.

use std::sync::Arc;

use gabion_types::{Extent, Place};
use tokio::sync::{mpsc, oneshot};

use super::LaneGuard;
use super::apply::ApplyJob;
use super::encode::{LargePayload, StripePlace};
use super::open::Purpose;
use super::small::refusal;
use super::writer::{Position, WRITE_ATTEMPTS_MAX, Writer, Written};
use crate::applier::AppliedStripe;
use crate::core::Core;
use crate::error::LogError;
use crate::format::{align, chunk_header_bytes};
use crate::queue::{InFlight, Portion, Queue};
use crate::segment_info::LaneKind;

/// A stripe that waits for its lane.
pub(crate) struct PendingStripe {
    pub(crate) payload: LargePayload,
    /// Whether its segment ends with it.
    pub(crate) ends_segment: bool,
    pub(crate) answer: oneshot::Sender<Result<Extent, LogError>>,
}

/// Runs until the queue is closed and empty.
pub(crate) async fn run_large_lane(
    core: Arc<Core>,
    queue: Arc<Queue<PendingStripe>>,
    purpose: Purpose,
    applies: mpsc::Sender<ApplyJob>,
) {
    let guard = LaneGuard::new(Arc::clone(&core), Arc::clone(&queue));
    let mut writer = Writer::new(Arc::clone(&core), LaneKind::Large, purpose, applies);
    while let Some(pending) = queue.take(Portion::All, 1, usize::MAX).await {
        if pending.is_empty() {
            writer.retire().await;
        }
        for PendingStripe { mut payload, ends_segment, answer } in pending {
            let in_flight = InFlight(Arc::clone(&queue));
            let written = write_stripe(&mut writer, &mut payload).await;
            let crc64 = payload.crc64;
            let cells = payload.cells;
            drop(payload);
            match written {
                Ok((place, stripe)) => {
                    let extent = Extent {
                        segment: place.info.id,
                        stripe_offset: place.stripe_offset,
                        place: Place::Cells { cell_bytes: cells.cell_bytes as u32 },
                        len: cells.len as u32,
                        crc64,
                    };
                    let answer = Box::new(move |outcome: Result<(), LogError>, _| {
                        // A submitter that went away does not want to know.
                        let _ = answer.send(outcome.map(|()| extent));
                        drop(in_flight);
                    });
                    writer.hand_over(ApplyJob::Stripe { stripe, answer }).await;
                    if ends_segment {
                        writer.finish_segment().await;
                    }
                }
                Err(error) => {
                    if matches!(error, LogError::NoSpace | LogError::RanOutOfSpace) {
                        core.media.metrics.no_space_refusals.add(1);
                    }
                    let _ = answer.send(Err(error));
                }
            }
        }
    }
    writer.close().await;
    guard.finish();
}

async fn write_stripe(
    writer: &mut Writer,
    payload: &mut LargePayload,
) -> Result<(StripePlace, AppliedStripe), LogError> {
    let core = Arc::clone(&writer.core);
    let chunk_bytes = payload.cells.chunk_bytes();
    let stored_bytes = align(chunk_header_bytes(payload.cells.data_shards, chunk_bytes) + chunk_bytes) as u64;
    let mut attempt = 1;
    loop {
        core.check_poison()?;
        let place = match writer.position(stored_bytes, true, false).await {
            Position::At(place) => place,
            Position::TooLarge => return Err(refusal(LogError::NoSpace, attempt)),
            Position::Refused(error) => return Err(refusal(error, attempt)),
        };
        let stripe = payload.encode(&place);
        match writer.write(&stripe).await {
            Written::Durable => {
                core.media.metrics.large_stripes.add(1);
                core.media.metrics.large_payload_bytes.add(payload.cells.len as u64);
                let applied = AppliedStripe {
                    segment: Arc::clone(&place.info),
                    stripe_index: place.stripe_index,
                    next_offset: stripe.shape.next_offset(),
                    stored_bytes: stored_bytes * place.info.geometry.shards() as u64,
                    payload_bytes: stripe.shape.stripe_payload_bytes(),
                    records: Vec::new(),
                };
                return Ok((place, applied));
            }
            Written::Void(error) if attempt == WRITE_ATTEMPTS_MAX => return Err(error),
            Written::Void(_) => attempt += 1,
        }
    }
}
