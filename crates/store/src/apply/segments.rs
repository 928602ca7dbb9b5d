//! The segments that exist, as the index knows them: in memory, and in its table.

use std::collections::BTreeMap;

use gabion_metadata::{
    Index, Pages, ScanRange, Table, Write, keys,
    rows::{LaneKind, Row, SegmentRow, SegmentState},
};
use gabion_segment::{KnownSegment, Seal, SegmentInfo};
use gabion_types::{SegmentId, Seq, ShardCopy};

use super::snapshot::{self, Covered};
use crate::StoreError;

/// Rows that one scan returns at most.
const PAGE_ROWS: usize = 1024;

/// All segments; what is in the index, is here.
#[derive(Default)]
pub(crate) struct Segments {
    /// In an order, so that a simulation goes the same way each time.
    table: BTreeMap<SegmentId, Segment>,
    /// What the newest snapshot of the index covers, if there is one.
    snapshot: Option<Covered>,
    /// What the one that is being written covers.
    pending: Option<Covered>,
}

/// A segment.
#[derive(Clone)]
pub(crate) struct Segment {
    pub row: SegmentRow,
    /// See [`crate::holds::Holds::sealed`]; 0 for those sealed before this start: nothing in flight refers to them.
    pub sealed_epoch: u64,
}

/// What a batch did to segments.
#[derive(Default)]
pub(crate) struct News {
    /// One is wholly dead now.
    pub any_dead: bool,
    /// One is freed now, or gone.
    pub any_freed: bool,
}

/// Segments after a batch; `None` for those that are gone.
pub(crate) type Changes = BTreeMap<SegmentId, Option<Segment>>;

impl Segments {
    /// Reads all rows.
    pub(crate) fn load(index: &dyn Index) -> Result<Self, StoreError> {
        let mut table = BTreeMap::new();
        let mut pages = Pages::new(ScanRange::all(Table::Segment), PAGE_ROWS);
        while let Some(rows) = pages.next(|range, limit| index.scan(range, limit))? {
            for (key, row) in &rows {
                let id = keys::decode_segment(key).map_err(|error| StoreError::Unavailable(error.to_string()))?;
                table.insert(id, Segment { row: SegmentRow::decode(row)?, sealed_epoch: 0 });
            }
        }
        Ok(Self { table, snapshot: snapshot::load(&*index.snapshot())?, pending: None })
    }

    pub(crate) fn get(&self, id: SegmentId) -> Option<&Segment> {
        self.table.get(&id)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (SegmentId, &Segment)> {
        self.table.iter().map(|(&id, segment)| (id, segment))
    }

    /// What the log is told about them when it is opened.
    pub(crate) fn known(&self) -> Vec<KnownSegment> {
        self.iter().map(|(id, segment)| segment.known(id)).collect()
    }

    /// Whether a segment other than `except` may hold a mutation older than `seq` that brings a row into being, or a snapshot
    /// of the index the row itself, without knowing what `except` took away: then what takes such a row away must stay in the log.
    pub(crate) fn may_create_before(&self, except: SegmentId, seq: Seq) -> bool {
        if self.snapshot.iter().chain(&self.pending).any(|covered| !covered.contains(&except)) {
            return true;
        }
        let creates = |segment: &Segment| segment.row.creates_min_seq.is_some_and(|min| min < seq);
        self.iter().any(|(id, segment)| id != except && segment.stays() && creates(segment))
    }

    /// There is a new snapshot of the index, or none any more.
    pub(crate) fn set_snapshot(&mut self, covered: Option<Covered>) {
        self.snapshot = covered;
    }

    /// One is being written, or none any more.
    pub(crate) fn set_pending(&mut self, covered: Option<Covered>) {
        self.pending = covered;
    }

    /// Whether one is being written, or may or may not have been, that does not cover a segment.
    pub(crate) fn is_pending_without(&self, segment: SegmentId) -> bool {
        self.pending.as_ref().is_some_and(|covered| !covered.contains(&segment))
    }

    /// Whether one is being written, or may or may not have been.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Payload of the segments of records that the newest snapshot does not cover, in bytes.
    pub(crate) fn uncovered_bytes(&self) -> u64 {
        let is_covered = |id: &SegmentId| self.snapshot.as_ref().is_some_and(|covered| covered.contains(id));
        let uncovered = self.table.iter().filter(|(id, s)| s.row.kind == LaneKind::Small && !is_covered(id));
        uncovered.map(|(_, segment)| segment.row.written_bytes).sum()
    }

    /// Takes over the changes of a committed batch.
    pub(crate) fn install(&mut self, changes: Changes) -> News {
        let mut news = News::default();
        for (id, segment) in changes {
            match segment {
                Some(segment) => {
                    news.any_dead |= segment.is_dead();
                    news.any_freed |= segment.row.state == SegmentState::Freeing;
                    self.table.insert(id, segment);
                }
                None => {
                    news.any_freed = true;
                    self.table.remove(&id);
                }
            }
        }
        news
    }
}

impl Segment {
    /// Whether its records count: its files are not being removed.
    pub(crate) fn stays(&self) -> bool {
        self.row.state != SegmentState::Freeing
    }

    /// A segment that a lane begins to write.
    pub(crate) fn opened(info: &SegmentInfo) -> Self {
        let row = SegmentRow {
            geometry: info.geometry,
            targets: info.targets.clone(),
            state: SegmentState::Open,
            kind: match info.kind {
                gabion_segment::LaneKind::Small => LaneKind::Small,
                gabion_segment::LaneKind::Large => LaneKind::Large,
            },
            applied_stripes: 0,
            next_offset: 0,
            sealed_stripes: None,
            min_seq: Seq::ZERO,
            max_seq: Seq::ZERO,
            live_bytes: 0,
            written_bytes: 0,
            creates_min_seq: None,
            former: former_row(info),
            punched: None,
            punched_bytes: None,
        };
        Self { row, sealed_epoch: 0 }
    }

    /// Notes its end; everything before it is applied.
    pub(crate) fn seal(&mut self, seal: &Seal, sealed_epoch: u64) {
        if self.row.state == SegmentState::Open {
            self.row.state = SegmentState::Sealed;
        }
        self.row.applied_stripes = seal.stripes;
        self.row.next_offset = seal.end_offset;
        self.row.sealed_stripes = Some(seal.stripes);
        self.row.min_seq = seal.min_seq;
        self.row.max_seq = seal.max_seq;
        self.row.written_bytes = seal.written_bytes;
        self.sealed_epoch = sealed_epoch;
    }

    /// Notes where its shards are now.
    pub(crate) fn moved(&mut self, info: &SegmentInfo) {
        self.row.targets.clone_from(&info.targets);
        self.row.former = former_row(info);
    }

    /// Whether it is complete and no row refers to it.
    pub(crate) fn is_dead(&self) -> bool {
        self.row.state == SegmentState::Sealed && self.row.live_bytes <= 0
    }

    fn known(&self, id: SegmentId) -> KnownSegment {
        let row = &self.row;
        let seal = |stripes| Seal {
            stripes,
            end_offset: row.next_offset,
            min_seq: row.min_seq,
            max_seq: row.max_seq,
            written_bytes: row.written_bytes,
        };
        KnownSegment {
            id,
            kind: match row.kind {
                LaneKind::Small => gabion_segment::LaneKind::Small,
                LaneKind::Large => gabion_segment::LaneKind::Large,
            },
            geometry: row.geometry,
            targets: row.targets.clone(),
            former: row.former.clone().unwrap_or_default(),
            sealed: row.sealed_stripes.map(seal),
            applied_stripes: row.applied_stripes,
            next_offset: row.next_offset,
            min_seq: row.min_seq,
            max_seq: row.max_seq,
            written_bytes: row.written_bytes,
            freed: row.state == SegmentState::Freeing,
        }
    }
}

fn former_row(info: &SegmentInfo) -> Option<Vec<ShardCopy>> {
    (!info.former.is_empty()).then(|| info.former.clone())
}

/// The index's part of changes to segments.
pub(crate) fn writes(changes: &Changes) -> impl Iterator<Item = Write> {
    changes.iter().map(|(&id, segment)| match segment {
        Some(segment) => Write::Put(Table::Segment, keys::segment(id), segment.row.encode()),
        None => Write::Delete(Table::Segment, keys::segment(id)),
    })
}
