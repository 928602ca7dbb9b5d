//! The small lane: what queues up while a stripe is written becomes the next stripe, or half of it where stripes wait for no disk; where they wait for one long, together with who is about to come. Who writes alone waits for nobody.

use std::sync::Arc;

use bytes::Bytes;
use gabion_types::Seq;
use tokio::sync::{mpsc, oneshot};

use super::LaneGuard;
use super::apply::ApplyJob;
use super::encode::{SequencedRecord, encode_records};
use super::open::Purpose;
use super::writer::{Position, WRITE_ATTEMPTS_MAX, Writer, Written};
use crate::applier::{AppliedRecord, AppliedStripe, Committed, Companion, RecordBody};
use crate::core::Core;
use crate::error::LogError;
use crate::layout::{Layout, RecordSize, deal};
use crate::queue::{InFlight, Queue};
use crate::segment_info::LaneKind;

/// A record that waits for its lane.
pub(crate) struct PendingRecord {
    pub(crate) body: RecordBody,
    /// The sequence of a carried record; a new one gets its own when its batch is closed.
    pub(crate) carried: Option<Seq>,
    pub(crate) data: Vec<Bytes>,
    pub(crate) data_bytes: usize,
    pub(crate) data_crc64: u64,
    pub(crate) answer: oneshot::Sender<Result<Committed, LogError>>,
    pub(crate) companion: Option<Box<dyn Companion>>,
}

impl PendingRecord {
    /// Answers it, once nothing is kept of it: its submitter may use the memory of its data for what comes next.
    pub(crate) fn answer(self, outcome: Result<Committed, LogError>) {
        let Self { body, data, answer, companion, .. } = self;
        drop((body, data));
        if let Some(companion) = companion {
            companion.answered(outcome.as_ref().map(|_| ()));
        }
        // A submitter that went away does not want to know.
        let _ = answer.send(outcome);
    }

    fn complete(&mut self) {
        if let (Some(companion), RecordBody::Mutation(mutation)) = (&mut self.companion, &mut self.body) {
            let bytes = mutation.len();
            companion.complete(mutation);
            debug_assert_eq!(mutation.len(), bytes, "a mutation that was queued keeps its length");
        }
    }
}

/// A record of a closed batch.
struct BatchRecord {
    pending: PendingRecord,
    seq: Seq,
    in_flight: InFlight<PendingRecord>,
}

/// Records of a batch that are written as one stripe.
struct Part {
    batch: Vec<BatchRecord>,
    /// One more than how often they were written in vain.
    attempt: u32,
}

impl BatchRecord {
    fn answer(self, outcome: Result<Committed, LogError>) {
        self.pending.answer(outcome);
        drop(self.in_flight);
    }

    fn size(&self) -> RecordSize {
        let mutation_bytes = match &self.pending.body {
            RecordBody::Mutation(mutation) => mutation.len(),
            RecordBody::Freed(_) => 16,
        };
        RecordSize { mutation_bytes, data_bytes: self.pending.data_bytes }
    }
}

/// Runs until the queue is closed and empty.
pub(crate) async fn run_small_lane(
    core: Arc<Core>,
    queue: Arc<Queue<PendingRecord>>,
    purpose: Purpose,
    applies: mpsc::Sender<ApplyJob>,
) {
    let guard = LaneGuard::new(Arc::clone(&core), Arc::clone(&queue));
    let mut writer = Writer::new(Arc::clone(&core), LaneKind::Small, purpose, applies);
    let (records_max, bytes_max) = (core.config.batch_records_max, core.config.batch_bytes_max);
    while let Some(pending) = queue.take(writer.portion(), records_max, bytes_max).await {
        if let Some(held) = queue.held() {
            core.media.metrics.held_us.observe(held.as_micros() as u64);
        }
        if pending.is_empty() {
            writer.retire().await;
        }
        let batch = pending.into_iter().map(|mut pending| {
            pending.complete();
            BatchRecord {
                seq: pending.carried.unwrap_or_else(|| core.sequencer.next()),
                pending,
                in_flight: InFlight(Arc::clone(&queue)),
            }
        });
        // The later part of a batch that had to be split lies below the earlier one: sequences ascend on the media.
        let mut parts = vec![Part { batch: batch.collect(), attempt: 1 }];
        while let Some(part) = parts.pop() {
            write_part(&mut writer, &queue, part, &mut parts).await;
        }
    }
    writer.close().await;
    guard.finish();
}

/// Writes one stripe; what must be written apart from it is pushed to `parts`.
async fn write_part(writer: &mut Writer, queue: &Queue<PendingRecord>, part: Part, parts: &mut Vec<Part>) {
    let core = Arc::clone(&writer.core);
    let Part { mut batch, mut attempt } = part;
    while !batch.is_empty() {
        if let Err(error) = core.check_poison() {
            return answer_all(batch, &error);
        }
        let sizes: Vec<RecordSize> = batch.iter().map(BatchRecord::size).collect();
        let has_data = sizes.iter().any(|size| size.data_bytes > 0);
        let Some(layout) = deal(&sizes, core.config.geometry.data()) else { return split(batch, attempt, parts) };
        let place = match writer.position(layout.stored_bytes(), has_data, batch.len() > 1).await {
            Position::At(place) => place,
            Position::TooLarge => return split(batch, attempt, parts),
            Position::Refused(error) => {
                let error = refusal(error, attempt);
                batch = keep_dataless(&core, batch, &error);
                if !has_data {
                    return answer_all(batch, &error);
                }
                continue;
            }
        };
        let records: Vec<SequencedRecord<'_>> = batch.iter().map(sequenced).collect();
        let codec = core.media.codec(place.info.geometry);
        let (stripe, applied) = encode_records(&records, &layout, &place, &codec, &core.buffers);
        let written = writer.write(&stripe).await;
        let shape = stripe.shape;
        drop(stripe.chunks);
        match written {
            Written::Durable => {
                writer.write_ahead(queue.writers(), shape.stored_bytes());
                observe(&core, &layout, batch.len());
                let shards = place.info.geometry.shards() as u64;
                let (batch, records) = in_order_together(batch, applied);
                let stripe = AppliedStripe {
                    stripe_index: place.stripe_index,
                    next_offset: shape.next_offset(),
                    stored_bytes: shape.stored_bytes() * shards,
                    payload_bytes: shape.stripe_payload_bytes(),
                    records,
                    segment: place.info,
                };
                return writer.hand_over(job(stripe, batch)).await;
            }
            Written::Void(error) if attempt == WRITE_ATTEMPTS_MAX => return answer_all(batch, &error),
            Written::Void(_) => attempt += 1,
        }
    }
}

fn sequenced(record: &BatchRecord) -> SequencedRecord<'_> {
    SequencedRecord {
        seq: record.seq,
        carried: record.pending.carried.is_some(),
        body: &record.pending.body,
        data: &record.pending.data,
        data_crc64: record.pending.data_crc64,
    }
}

/// Records as replay gives them: in order of their sequence.
pub(crate) fn in_order(mut records: Vec<AppliedRecord>) -> Vec<AppliedRecord> {
    records.sort_by_key(|record| record.seq);
    records
}

/// The same, each with the record that it came from.
fn in_order_together(batch: Vec<BatchRecord>, applied: Vec<AppliedRecord>) -> (Vec<BatchRecord>, Vec<AppliedRecord>) {
    // Only what is carried is out of order.
    if applied.is_sorted_by_key(|record| record.seq) {
        return (batch, applied);
    }
    let mut pairs: Vec<(BatchRecord, AppliedRecord)> = batch.into_iter().zip(applied).collect();
    pairs.sort_by_key(|(_, record)| record.seq);
    pairs.into_iter().unzip()
}

fn job(stripe: AppliedStripe, batch: Vec<BatchRecord>) -> ApplyJob {
    let answer = Box::new(move |outcome: Result<(), LogError>, records: Vec<AppliedRecord>| {
        for (record, applied) in batch.into_iter().zip(records) {
            let committed = Committed { seq: applied.seq, extents: applied.extents, home: applied.home };
            record.answer(outcome.clone().map(|()| committed));
        }
    });
    ApplyJob::Stripe { stripe, answer }
}

/// Why a stripe is not written, after so many attempts. A refusal says that nothing took effect; of an attempt that was voided only the next
/// start is sure.
pub(crate) fn refusal(error: LogError, attempt: u32) -> LogError {
    match error {
        error if attempt == 1 => error,
        LogError::NoSpace => LogError::RanOutOfSpace,
        LogError::Busy => LogError::Unavailable("no segment can be opened".to_owned()),
        LogError::TooFewTargets(why) => LogError::Unavailable(why),
        error => error,
    }
}

/// Splits a batch that is too large for one stripe; a record that is too large by itself is refused.
fn split(mut batch: Vec<BatchRecord>, attempt: u32, parts: &mut Vec<Part>) {
    if batch.len() < 2 {
        return answer_all(batch, &refusal(LogError::NoSpace, attempt));
    }
    let later = batch.split_off(batch.len() / 2);
    parts.extend([later, batch].map(|batch| Part { batch, attempt }));
}

/// Refuses the records with data; the others may still find room.
fn keep_dataless(core: &Core, batch: Vec<BatchRecord>, error: &LogError) -> Vec<BatchRecord> {
    let (with_data, dataless): (Vec<_>, Vec<_>) = batch.into_iter().partition(|record| record.pending.data_bytes > 0);
    if matches!(error, LogError::NoSpace | LogError::RanOutOfSpace) {
        core.media.metrics.no_space_refusals.add(with_data.len() as u64);
    }
    answer_all(with_data, error);
    dataless
}

fn answer_all(batch: Vec<BatchRecord>, error: &LogError) {
    for record in batch {
        record.answer(Err(error.clone()));
    }
}

fn observe(core: &Core, layout: &Layout, records: usize) {
    let metrics = &core.media.metrics;
    let payload_bytes: u64 = layout.spans.iter().map(|span| u64::from(span.payload_bytes)).sum();
    metrics.small_stripes.add(1);
    metrics.small_records.add(records as u64);
    metrics.small_payload_bytes.add(payload_bytes);
    metrics.batch_records.observe(records as u64);
    metrics.batch_bytes.observe(payload_bytes);
}
