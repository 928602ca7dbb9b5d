//! Restoring: an empty index gets the rows of the newest snapshot, and is then what an index is after a crash: behind the log.
//!
//! What is different from a crash is that segments may be gone which the snapshot knows. Whatever its rows say of them was
//! superseded by mutations that the log still has (docs/adr/0009), so the rows of the segments are dropped here and the rest is left to the
//! replay.
//!
//! The first commit, made durable, marks the index as one that is being restored, the last takes the mark away: one that was cut off in between is
//! thrown away by the next start. In between rows go past journal and memtables: they are sorted.

use std::collections::BTreeSet;

use bytes::Bytes;
use gabion_metadata::{
    Index, Ingest, Table, keys,
    rows::{Row, SegmentRow, SegmentState},
};
use gabion_segment::{LaneKind, Log, LogError, RecordBody, RecoveredSegment, Recovery};
use gabion_types::{Extent, SegmentId, Seq, ShardCopy, TargetId};
use tokio::task::JoinHandle;

use super::{
    SNAPSHOT_ROW,
    stream::{Decoder, Entry},
};
use crate::{
    Progress, StoreError,
    mutation::{IndexSnapshotMutation, MovedRow, Mutation},
    open::State,
    tasks,
};

/// The newest of so many parts of what the segments of records hold is looked through for a snapshot: with an older one little is won.
const LOOKED_THROUGH_SHARE: u64 = 4;

/// What came of it.
pub(crate) enum Restored {
    /// There is no snapshot that can be used; the index is empty as it was.
    Nothing,
    /// So many rows; the index is to be opened again.
    Rows(u64),
    /// It turned out to be unusable, and why; the index is to be thrown away.
    Broken(String),
}

/// Fills the empty `index`. `recovery` is what a log found that was opened without an index.
///
/// # Errors
/// Those of the index. What is wrong with the log is no error here: then there is nothing to begin with.
pub(crate) async fn restore(
    log: &Log,
    index: &dyn Index,
    recovery: &Recovery,
    looked_through_min: u64,
    progress: &dyn Progress,
) -> Result<Restored, StoreError> {
    // What can not be read may hold a newer snapshot than the one that is found, or what took rows of it away.
    if !recovery.unreadable.is_empty() {
        return Ok(Restored::Nothing);
    }
    let found = match find(log, recovery, looked_through_min).await {
        Ok(Some(found)) => found,
        Ok(None) => return Ok(Restored::Nothing),
        Err(error) => {
            tracing::warn!(%error, "no snapshot of the index is looked for where mutations can not be read");
            return Ok(Restored::Nothing);
        }
    };
    index.commit(&[], vec![State::restoring()])?;
    // What is ingested is there after a power cut, whatever became of commits before it.
    tasks::blocking(|| index.persist())?;
    let status = log.status();
    let mut rows = Rows {
        index,
        recovery,
        members: status.targets.iter().map(|target| target.id).chain(status.missing_members).collect(),
        under_way: None,
        segments: BTreeSet::new(),
        forgotten: BTreeSet::new(),
    };
    if let Err(error) = read(log, &found, &mut rows, progress).await {
        return match error {
            Failed::Snapshot(reason) => Ok(Restored::Broken(format!("the snapshot of the index is no good: {reason}"))),
            Failed::Index(error) => Err(error),
        };
    }
    rows.finish(log)?;
    Ok(Restored::Rows(found.rows))
}

/// The newest snapshot's mutation, if it lies among what was written last.
async fn find(
    log: &Log,
    recovery: &Recovery,
    looked_through_min: u64,
) -> Result<Option<IndexSnapshotMutation>, StoreError> {
    let mut segments: Vec<&RecoveredSegment> =
        recovery.segments.iter().filter(|segment| segment.info.kind == LaneKind::Small).collect();
    segments.sort_by_key(|segment| std::cmp::Reverse(segment.seal.max_seq));
    let all: u64 = segments.iter().map(|segment| segment.seal.written_bytes).sum();
    let (limit, mut looked_through) = (looked_through_min.max(all / LOOKED_THROUGH_SHARE), 0);
    let mut newest: Option<((Seq, Option<Seq>), IndexSnapshotMutation)> = None;
    for segment in segments {
        let has_newer = newest.as_ref().is_none_or(|((seq, _), _)| segment.seal.max_seq > *seq);
        if !has_newer || (newest.is_none() && looked_through > limit) {
            break;
        }
        let mut stripes = log.mutations(segment.info.id, 0).await?;
        while let Some(stripe) = stripes.next().await? {
            for record in &stripe.records {
                let RecordBody::Mutation(bytes) = &record.body else { continue };
                if newest.as_ref().is_some_and(|((seq, _), _)| record.seq <= *seq) {
                    continue;
                }
                let mutation = Mutation::decode(bytes).map_err(|error| StoreError::Corrupt(error.to_string()))?;
                let Some((version, found)) = snapshot_in(mutation, record.seq) else { continue };
                if newest.as_ref().is_none_or(|(newest, _)| version > *newest) {
                    newest = Some((version, found));
                }
            }
        }
        looked_through += segment.seal.written_bytes;
    }
    Ok(newest.map(|(_, found)| found).filter(|found| !found.extents.is_empty()))
}

/// The snapshot that a record names, by its commit and its last move.
fn snapshot_in(mutation: Mutation, seq: Seq) -> Option<((Seq, Option<Seq>), IndexSnapshotMutation)> {
    match mutation {
        Mutation::IndexSnapshot(found) => Some(((seq, None), found)),
        Mutation::Move(moved) => match moved.row {
            MovedRow::IndexSnapshot(found) => Some(((moved.seq, Some(seq)), found)),
            _ => None,
        },
        _ => None,
    }
}

/// Why the rows could not be read.
enum Failed {
    Snapshot(String),
    Index(StoreError),
}

async fn read(
    log: &Log,
    found: &IndexSnapshotMutation,
    rows: &mut Rows<'_>,
    progress: &dyn Progress,
) -> Result<(), Failed> {
    let broken = |error: &dyn std::fmt::Display| Failed::Snapshot(error.to_string());
    let mut decoder = Decoder::new(log.deployment());
    let total = found.extents.iter().map(|extent| u64::from(extent.len)).sum();
    let mut done = 0;
    let mut next = found.extents.first().map(|extent| begin(log, extent));
    for (number, extent) in found.extents.iter().enumerate() {
        let pieces = next.take().expect("there is one for each extent").await;
        next = found.extents.get(number + 1).map(|extent| begin(log, extent));
        for piece in pieces.map_err(|error| broken(&error))?.map_err(|error| broken(&error))? {
            decoder.push(&piece);
            // The engine writes its tables meanwhile.
            tasks::blocking(|| rows.take_all(&mut decoder))?;
        }
        done += u64::from(extent.len);
        progress.replayed(0, done, total);
        tokio::task::yield_now().await;
    }
    let count = decoder.finish().map_err(|error| broken(&error))?;
    if count != found.rows {
        return Err(Failed::Snapshot(format!("it has {count} rows, not {}", found.rows)));
    }
    Ok(())
}

/// Has a stripe of the snapshot read while the one before is decoded.
fn begin(log: &Log, extent: &Extent) -> JoinHandle<Result<Vec<Bytes>, LogError>> {
    let (log, extent) = (log.clone(), *extent);
    tokio::spawn(async move { log.read(&extent, 0..extent.len).await })
}

/// Rows on their way into the index.
struct Rows<'a> {
    index: &'a dyn Index,
    recovery: &'a Recovery,
    /// Targets of the deployment.
    members: BTreeSet<TargetId>,
    /// The table that is being filled.
    under_way: Option<(Table, Box<dyn Ingest + 'a>)>,
    /// Segments that the index has a row of.
    segments: BTreeSet<SegmentId>,
    forgotten: BTreeSet<SegmentId>,
}

impl Rows<'_> {
    /// Takes all rows that there are as a whole.
    fn take_all(&mut self, decoder: &mut Decoder) -> Result<(), Failed> {
        while let Some(entry) = decoder.next().map_err(|error| Failed::Snapshot(error.to_string()))? {
            self.take(entry)?;
        }
        Ok(())
    }

    fn take(&mut self, entry: Entry) -> Result<(), Failed> {
        let Entry { table, key, row } = entry;
        let row = match table {
            Table::Segment => match self.segment(&key, &row)? {
                Some(row) => row,
                None => return Ok(()),
            },
            Table::System if key != SNAPSHOT_ROW.as_bytes() => {
                let forgotten = State::forgotten_in(&key, &row).map_err(Failed::Snapshot)?;
                self.forgotten.extend(forgotten);
                return Ok(());
            }
            _ => row,
        };
        if self.under_way.as_ref().is_none_or(|(filled, _)| *filled != table) {
            self.end_table().map_err(Failed::Index)?;
        }
        let (_, ingest) = match &mut self.under_way {
            Some(under_way) => under_way,
            None => {
                let ingest = self.index.ingest(table).map_err(|error| Failed::Index(error.into()))?;
                self.under_way.insert((table, ingest))
            }
        };
        ingest.put(key, row).map_err(|error| Failed::Index(error.into()))
    }

    /// A segment's row as it is now; nothing when the segment is gone.
    fn segment(&mut self, key: &[u8], row: &[u8]) -> Result<Option<Vec<u8>>, Failed> {
        let malformed = |error: &dyn std::fmt::Display| Failed::Snapshot(error.to_string());
        let id = keys::decode_segment(key).map_err(|error| malformed(&error))?;
        let mut row = SegmentRow::decode(row).map_err(|error| malformed(&error))?;
        if self.recovery.removed.contains(&id) {
            return Ok(None);
        }
        if self.recovery.freed.contains(&id) {
            row.state = SegmentState::Freeing;
            // Files are left of it, nobody knows where: it is not gone before all targets have been seen.
            let anywhere = self.members.iter().map(|&target| ShardCopy { shard: 0, target });
            row.former = Some(anywhere.collect());
        } else if let Ok(at) = self.recovery.segments.binary_search_by_key(&id, |segment| segment.info.id) {
            let found = &self.recovery.segments[at];
            if row.applied_stripes > found.seal.stripes {
                return Err(Failed::Snapshot(format!("it is ahead of segment {id}")));
            }
            // Its shards may have moved since.
            row.targets.clone_from(&found.info.targets);
            row.former = (!found.info.former.is_empty()).then(|| found.info.former.clone());
        } else {
            return Ok(None);
        }
        self.segments.insert(id);
        Ok(Some(row.encode()))
    }

    /// Rows come table by table.
    fn end_table(&mut self) -> Result<(), StoreError> {
        match self.under_way.take() {
            Some((_, ingest)) => Ok(ingest.finish()?),
            None => Ok(()),
        }
    }

    fn finish(mut self, log: &Log) -> Result<(), StoreError> {
        tasks::blocking(|| self.end_table())?;
        let is_left = |id: &&SegmentId| !self.segments.contains(id) && !self.recovery.removed.contains(id);
        self.forgotten.extend(self.recovery.freed.iter().filter(is_left));
        let (deployment, replaying) = (Some(log.deployment()), Some(self.recovery.max_seq));
        let forgotten = self.forgotten;
        let state = State { deployment, replaying, forgotten, holes_unknown: true, ..State::default() };
        self.index.commit(&[], state.writes())?;
        tasks::blocking(|| self.index.persist())?;
        Ok(())
    }
}
