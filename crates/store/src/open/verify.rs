//! Whether the index is what the log says: it is rebuilt beside, and compared row by row.

use std::{cmp::Ordering, sync::Arc};

use gabion_metadata::{
    Index, Table, WalkedRow,
    rows::{Row, SegmentRow, SegmentState, may_be_rebuilt_as},
};
use gabion_segment::LogTarget;

use super::{Opened, open_index, startup};
use crate::{
    Env, IndexFactory, Progress, RowDifference, RowFault, StoreConfig, StoreError, VerifyReport, snapshot::SNAPSHOT_ROW,
};

/// Differences that a report names; beyond it they are counted.
const NAMED_MAX: usize = 100;

/// See [`crate::Store::verify_index`].
pub(crate) async fn verify(
    config: StoreConfig,
    targets: Vec<LogTarget>,
    present: Box<dyn IndexFactory>,
    scratch: Box<dyn IndexFactory>,
    env: Env,
    progress: Arc<dyn Progress>,
) -> Result<VerifyReport, StoreError> {
    // Neither of the two logs is ever started: nothing is freed or written between the two looks at it.
    let (Opened { index: present, .. }, found) = open_index(&config, &targets, &*present, &env, &*progress).await?;
    scratch.destroy().map_err(|error| startup(&error))?;
    let (Opened { index: rebuilt, .. }, built) = open_index(&config, &targets, &*scratch, &env, &*progress).await?;
    let mut report = VerifyReport { present: found, rebuilt: built, ..VerifyReport::default() };
    for table in Table::ALL {
        compare(&*present, &*rebuilt, table, &mut report)?;
        tokio::task::yield_now().await;
    }
    drop(rebuilt);
    scratch.destroy().map_err(|error| startup(&error))?;
    Ok(report)
}

fn compare(
    present: &dyn Index,
    rebuilt: &dyn Index,
    table: Table,
    report: &mut VerifyReport,
) -> Result<(), StoreError> {
    let (mut ours, mut theirs) = (present.walk(&[table])?, rebuilt.walk(&[table])?);
    let (mut our, mut their) = (ours.next()?, theirs.next()?);
    loop {
        let order = match (&our, &their) {
            (None, None) => return Ok(()),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(our), Some(their)) => our.key.cmp(their.key),
        };
        report.rows += 1;
        let counts = |found: &WalkedRow<'_>| counts(table, found.key, found.row);
        let fault = match (&our, &their) {
            (Some(our), _) if order.is_lt() && counts(our) => Some((our.key, RowFault::Surplus)),
            (_, Some(their)) if order.is_gt() && counts(their) => Some((their.key, RowFault::Missing)),
            (Some(our), Some(their))
                if order.is_eq() && !is_same(table, our.row, their.row) && counts(our) && counts(their) =>
            {
                Some((our.key, RowFault::Different))
            }
            _ => None,
        };
        if let Some((key, fault)) = fault {
            report.differing += 1;
            if report.differences.len() < NAMED_MAX {
                report.differences.push(RowDifference { table: table.name(), key: key.to_vec(), fault });
            }
        }
        if order.is_le() {
            our = ours.next()?;
        }
        if order.is_ge() {
            their = theirs.next()?;
        }
    }
}

/// Whether two rows say the same, as far as a rebuild can know it. Which replaced copies of its shards are still to be removed, and which of its stripes were punched out, is no
/// part of what the log says of a segment.
fn is_same(table: Table, our: &[u8], their: &[u8]) -> bool {
    if may_be_rebuilt_as(table, our, their) {
        return true;
    }
    let decoded =
        |row| SegmentRow::decode(row).map(|row| SegmentRow { former: None, punched: None, punched_bytes: None, ..row });
    match (table, decoded(our), decoded(their)) {
        (Table::Segment, Ok(our), Ok(their)) => our == their,
        _ => false,
    }
}

/// Whether a row follows from the log: not what an index says of how it came to be, and not segments on their way out, of which a rebuilt
/// one has no row.
fn counts(table: Table, key: &[u8], row: &[u8]) -> bool {
    match table {
        Table::System => key == SNAPSHOT_ROW.as_bytes(),
        Table::Segment => SegmentRow::decode(row).map_or(true, |row| row.state != SegmentState::Freeing),
        _ => true,
    }
}
