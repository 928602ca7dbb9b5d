//! Index against log, both ways: every extent that a row names lies in a segment, and every segment has a row.

use std::collections::{BTreeSet, HashMap};

use gabion_metadata::{Pages, ScanRange, Table, rows::SegmentState};
use gabion_segment::Strays;
use gabion_types::SegmentId;
use serde::Serialize;

use crate::{Store, StoreError, references::References, store::Inner, tasks};

/// Rows that one scan returns at most.
const PAGE_ROWS: usize = 1024;
/// Findings that are named.
const EXAMPLES_MAX: usize = 10;

/// What a comparison of index and log found. All counts are zero where all is well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CrossCheck {
    /// Rows that were looked at.
    pub rows: u64,
    /// Rows that name a segment that is not there.
    pub rows_without_segment: u64,
    /// Rows that name bytes behind the end of their segment.
    pub rows_past_end: u64,
    /// Segments of the log that the index has no row for.
    pub segments_without_row: u64,
    /// Rows of segments that the log does not have.
    pub segment_rows_without_log: u64,
    /// Shard files that belong to no segment, or to none on their target.
    pub strays: Strays,
    /// The first findings, for people.
    pub examples: Vec<String>,
}

impl CrossCheck {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let found = self.rows_without_segment
            + self.rows_past_end
            + self.segments_without_row
            + self.segment_rows_without_log
            + self.strays.unknown_files
            + self.strays.misplaced_files;
        found == 0
    }

    fn name(&mut self, example: String) {
        if self.examples.len() < EXAMPLES_MAX {
            self.examples.push(example);
        }
    }
}

enum Fault {
    NoSegment(SegmentId),
    PastEnd(SegmentId),
}

impl Store {
    /// Compares index and log, both ways, while both go on.
    ///
    /// # Errors
    /// Those of the index.
    pub async fn cross_check(&self) -> Result<CrossCheck, StoreError> {
        cross_check(&self.inner).await
    }
}

pub(super) async fn cross_check(inner: &Inner) -> Result<CrossCheck, StoreError> {
    let mut report = CrossCheck::default();
    let before = unmatched(inner);
    for table in [
        Table::Bucket,
        Table::Object,
        Table::Upload,
        Table::Part,
        Table::Manifest,
        Table::System,
        Table::Version,
        Table::Config,
    ] {
        check_rows(inner, table, &mut report).await?;
    }
    // What comes or goes is known here before it is there, or the other way round: only what is wrong twice is wrong.
    let after = unmatched(inner);
    for id in before.0.intersection(&after.0) {
        report.segments_without_row += 1;
        report.name(format!("segment {id} has no row"));
    }
    for id in before.1.intersection(&after.1) {
        report.segment_rows_without_log += 1;
        report.name(format!("the row of segment {id} stands for nothing"));
    }
    report.strays = inner.log.strays().await;
    Ok(report)
}

/// Segments without a row, and rows without a segment.
fn unmatched(inner: &Inner) -> (BTreeSet<SegmentId>, BTreeSet<SegmentId>) {
    let log: BTreeSet<SegmentId> = inner.log.ends().into_keys().collect();
    let rows: BTreeSet<SegmentId> = inner.apply.with_segments(|segments| {
        segments.iter().filter(|(_, segment)| segment.row.state != SegmentState::Freeing).map(|(id, _)| id).collect()
    });
    let all_rows: BTreeSet<SegmentId> =
        inner.apply.with_segments(|segments| segments.iter().map(|(id, _)| id).collect());
    (log.difference(&all_rows).copied().collect(), rows.difference(&log).copied().collect())
}

async fn check_rows(inner: &Inner, table: Table, report: &mut CrossCheck) -> Result<(), StoreError> {
    let mut pages = Pages::new(ScanRange::all(table), PAGE_ROWS);
    while let Some(rows) = tasks::blocking(|| pages.next(|range, limit| inner.index.scan(range, limit)))? {
        let ends = inner.log.ends();
        for (key, row) in &rows {
            report.rows += 1;
            if fault(&References::of_row(table, key, row)?, &ends).is_none() {
                continue;
            }
            // It may have moved, or gone, between the two looks.
            let Some(row) = inner.index.get(table, key)? else { continue };
            let Some(fault) = fault(&References::of_row(table, key, &row)?, &inner.log.ends()) else { continue };
            let name = String::from_utf8_lossy(key).into_owned();
            match fault {
                Fault::NoSegment(id) => {
                    report.rows_without_segment += 1;
                    report.name(format!("{} {name:?} names segment {id}, which is not there", table.name()));
                }
                Fault::PastEnd(id) => {
                    report.rows_past_end += 1;
                    report.name(format!("{} {name:?} names bytes behind the end of segment {id}", table.name()));
                }
            }
        }
        tokio::task::yield_now().await;
    }
    Ok(())
}

/// The first thing that the log does not have.
fn fault(needs: &References, ends: &HashMap<SegmentId, Option<u64>>) -> Option<Fault> {
    let homes = needs.home.iter().filter(|home| home.bytes > 0).map(|home| (home.segment, 0));
    let extents = needs.extents.iter().map(|extent| (extent.segment, extent.stripe_offset));
    homes.chain(extents).find_map(|(id, offset)| match ends.get(&id) {
        None => Some(Fault::NoSegment(id)),
        Some(Some(end)) if offset >= *end => Some(Fault::PastEnd(id)),
        Some(_) => None,
    })
}
