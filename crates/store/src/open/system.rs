//! What the index remembers of itself, in the table `System`.

use std::collections::BTreeSet;

use gabion_metadata::{Index, Pages, ROW_BYTES_MAX, ScanRange, Table, Write, keys};
use gabion_types::{DeploymentId, SegmentId, Seq};

use crate::{StoreError, apply::Overlay};

/// Version of what the tables hold.
const FORMAT: u64 = 1;

const FORMAT_ROW: &str = "format";
const DEPLOYMENT_ROW: &str = "deployment";
const REPLAYED_ROW: &str = "replayed";
const REPLAYING_ROW: &str = "replaying";
const UNREADABLE_ROW: &str = "unreadable";
/// How far the scrub is; see [`crate::upkeep`].
pub(crate) const SCRUB_ROW: &str = "scrub";
/// What is to be repaired; see [`crate::upkeep`].
pub(crate) const DAMAGE_ROW: &str = "damage";
/// How alike the targets are to be made; see [`crate::upkeep`].
pub(crate) const REBALANCE_ROW: &str = "rebalance";
const FORGOTTEN_ROW: &str = "forgotten";
const RESTORING_ROW: &str = "restoring";
const SNAPSHOT_UNKNOWN_ROW: &str = "snapshot-unknown";
const HOLES_UNKNOWN_ROW: &str = "holes-unknown";

/// Segments that one row of a list names at most: as many as fit. A longer list goes on in rows of the same name with a number behind it. What fits one row lies
/// there as it did when a list had one only.
const LISTED_PER_ROW: usize = ROW_BYTES_MAX / size_of::<u128>();
/// Rows that one scan returns at most.
const PAGE_ROWS: usize = 16;

/// The rows of the table `System`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The deployment that it is the index of; nothing when it is new.
    pub deployment: Option<DeploymentId>,
    /// A replay is under way, and everything up to this position is applied; see [`super::merge`].
    pub replayed: Option<u64>,
    /// A replay is under way, or due because the index was restored from its snapshot, of a log whose highest sequence was this. Before it is done, rows
    /// may refer to segments that are gone, or that do not count as applied: only what that log still says puts them right.
    pub replaying: Option<Seq>,
    /// Segments whose mutations could not be read when the index was built.
    pub unreadable: BTreeSet<SegmentId>,
    /// Freed segments that a target may still bring back and of which the index has no row, because it was rebuilt after they were freed.
    pub forgotten: BTreeSet<SegmentId>,
    /// The index was made of the log without its snapshot when this was the log's highest sequence. What the snapshot has that is gone from the rest of the log since, rows of up to then do
    /// not know.
    pub snapshot_unknown: Option<Seq>,
    /// It was made of the log, which does not say what is punched out, and nobody has looked yet for what nothing needs.
    pub holes_unknown: bool,
}

impl State {
    /// Reads the rows; a sentence when they can not be used.
    pub(super) fn load(index: &dyn Index) -> Result<Result<Self, String>, StoreError> {
        let row = |name| index.get(Table::System, &keys::system(name));
        let (format, deployment, replayed) = (row(FORMAT_ROW)?, row(DEPLOYMENT_ROW)?, row(REPLAYED_ROW)?);
        let (unreadable, forgotten) = (list(index, UNREADABLE_ROW)?, list(index, FORGOTTEN_ROW)?);
        let (restoring, replaying) = (row(RESTORING_ROW)?, row(REPLAYING_ROW)?);
        let (snapshot_unknown, holes_unknown) = (row(SNAPSHOT_UNKNOWN_ROW)?, are_holes_unknown(index)?);
        let read = || {
            if restoring.is_some() {
                return Err("it was being restored from its snapshot when the process ended");
            }
            if format.as_deref().is_some_and(|bytes| number(bytes) != Some(FORMAT)) {
                return Err("the version of its format is unknown");
            }
            Ok(Self {
                deployment: match deployment {
                    Some(bytes) => Some(DeploymentId::from_bytes(bytes[..].try_into().map_err(|_| "malformed row")?)),
                    None => None,
                },
                replayed: match replayed {
                    Some(bytes) => Some(number(&bytes).ok_or("malformed row")?),
                    None => None,
                },
                replaying: match replaying {
                    Some(bytes) => Some(Seq::from_u64(number(&bytes).ok_or("malformed row")?)),
                    None => None,
                },
                unreadable: unreadable.ok_or("malformed row")?,
                forgotten: forgotten.ok_or("malformed row")?,
                snapshot_unknown: match snapshot_unknown {
                    Some(bytes) => Some(Seq::from_u64(number(&bytes).ok_or("malformed row")?)),
                    None => None,
                },
                holes_unknown,
            })
        };
        Ok(read().map_err(str::to_owned))
    }

    /// Writes the rows.
    pub(super) fn store(&self, overlay: &mut Overlay<'_>) -> Result<(), StoreError> {
        end_list(overlay, UNREADABLE_ROW)?;
        end_list(overlay, FORGOTTEN_ROW)?;
        put_all(overlay, self.writes());
        Ok(())
    }

    /// A replay has applied everything up to `position`, and could not read what was to be found in `lost` until then. Writes no more than what that changes: the rest of
    /// the rows may be long, and there are many such positions.
    pub(super) fn store_progress<'a>(
        &mut self,
        position: Seq,
        lost: impl Iterator<Item = &'a SegmentId>,
        overlay: &mut Overlay<'_>,
    ) -> Result<(), StoreError> {
        self.replayed = Some(position.as_u64());
        overlay.put_raw(Table::System, keys::system(REPLAYED_ROW), position.as_u64().to_be_bytes().to_vec());
        let noted = self.unreadable.len();
        self.unreadable.extend(lost);
        if self.unreadable.len() > noted {
            end_list(overlay, UNREADABLE_ROW)?;
            put_all(overlay, list_writes(UNREADABLE_ROW, &self.unreadable));
        }
        Ok(())
    }

    /// The rows, for an index that has none of a longer list.
    pub(crate) fn writes(&self) -> Vec<Write> {
        let rows = [
            (FORMAT_ROW, Some(FORMAT.to_be_bytes().to_vec())),
            (DEPLOYMENT_ROW, self.deployment.map(|deployment| deployment.to_bytes().to_vec())),
            (REPLAYED_ROW, self.replayed.map(|position| position.to_be_bytes().to_vec())),
            (REPLAYING_ROW, self.replaying.map(|until| until.as_u64().to_be_bytes().to_vec())),
            (RESTORING_ROW, None),
            (SNAPSHOT_UNKNOWN_ROW, self.snapshot_unknown.map(|until| until.as_u64().to_be_bytes().to_vec())),
            (HOLES_UNKNOWN_ROW, self.holes_unknown.then(|| vec![1])),
        ];
        let write = |(name, row)| match row {
            Some(row) => Write::Put(Table::System, keys::system(name), row),
            None => Write::Delete(Table::System, keys::system(name)),
        };
        let lists = [(UNREADABLE_ROW, &self.unreadable), (FORGOTTEN_ROW, &self.forgotten)];
        let lists = lists.into_iter().flat_map(|(name, ids)| list_writes(name, ids));
        rows.into_iter().map(write).chain(lists).collect()
    }

    /// Marks an index as one that is being restored: until its rows are written by [`State::writes`] it can not be used.
    pub(crate) fn restoring() -> Write {
        Write::Put(Table::System, keys::system(RESTORING_ROW), vec![1])
    }

    /// What a row of a snapshot adds to `forgotten`; a sentence when no index that was fit for a snapshot has such a row.
    pub(crate) fn forgotten_in(key: &[u8], row: &[u8]) -> Result<BTreeSet<SegmentId>, String> {
        let name = std::str::from_utf8(key).unwrap_or_default();
        match name {
            FORMAT_ROW if number(row) == Some(FORMAT) => Ok(BTreeSet::new()),
            // A snapshot of such an index knows what that one has.
            DEPLOYMENT_ROW | SCRUB_ROW | DAMAGE_ROW | REBALANCE_ROW | SNAPSHOT_UNKNOWN_ROW | HOLES_UNKNOWN_ROW => {
                Ok(BTreeSet::new())
            }
            name if is_of_list(name, FORGOTTEN_ROW) => segments(row).ok_or_else(|| "malformed row".to_owned()),
            _ => Err(format!("the row {name:?} of the table {}", Table::System)),
        }
    }
}

/// See [`State::holes_unknown`].
pub(super) fn are_holes_unknown(index: &dyn Index) -> Result<bool, StoreError> {
    Ok(index.get(Table::System, &keys::system(HOLES_UNKNOWN_ROW))?.is_some())
}

/// All of them are noted.
pub(super) fn holes_are_known(overlay: &mut Overlay<'_>) {
    overlay.delete(Table::System, keys::system(HOLES_UNKNOWN_ROW));
}

/// Takes segments that can not come back out of [`State::forgotten`].
pub(crate) fn forget(overlay: &mut Overlay<'_>, gone: &[SegmentId]) -> Result<(), StoreError> {
    for (key, row) in overlay.rows_with_prefix(Table::System, FORGOTTEN_ROW.as_bytes())? {
        let mut left = segments(&row).ok_or_else(|| StoreError::Corrupt("malformed row".to_owned()))?;
        let listed = left.len();
        for id in gone {
            left.remove(id);
        }
        if left.is_empty() {
            overlay.delete(Table::System, key);
        } else if left.len() < listed {
            overlay.put_raw(Table::System, key, left.iter().flat_map(|id| id.to_bytes()).collect());
        }
    }
    Ok(())
}

fn put_all(overlay: &mut Overlay<'_>, writes: Vec<Write>) {
    for write in writes {
        match write {
            Write::Put(table, key, row) => overlay.put_raw(table, key, row),
            Write::Delete(table, key) => overlay.delete(table, key),
        }
    }
}

/// Whether a row is one of those of a list.
fn is_of_list(row: &str, list: &str) -> bool {
    row.strip_prefix(list).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// What the rows of a list name; nothing when one is malformed.
fn list(index: &dyn Index, name: &'static str) -> Result<Option<BTreeSet<SegmentId>>, StoreError> {
    let mut named = BTreeSet::new();
    let mut pages = Pages::new(ScanRange::prefix(Table::System, name.as_bytes()), PAGE_ROWS);
    while let Some(rows) = pages.next(|range, limit| index.scan(range, limit))? {
        for (_, row) in rows {
            let Some(ids) = segments(&row) else { return Ok(None) };
            named.extend(ids);
        }
    }
    Ok(Some(named))
}

/// The rows of a list.
fn list_writes(name: &'static str, ids: &BTreeSet<SegmentId>) -> Vec<Write> {
    let ids: Vec<SegmentId> = ids.iter().copied().collect();
    let row = |(number, ids): (usize, &[SegmentId])| {
        let mut key = keys::system(name);
        if number > 0 {
            key.extend(format!("-{number}").bytes());
        }
        Write::Put(Table::System, key, ids.iter().flat_map(|id| id.to_bytes()).collect())
    };
    ids.chunks(LISTED_PER_ROW).enumerate().map(row).collect()
}

/// Takes away all rows of a list.
fn end_list(overlay: &mut Overlay<'_>, name: &'static str) -> Result<(), StoreError> {
    for (key, _) in overlay.rows_with_prefix(Table::System, name.as_bytes())? {
        overlay.delete(Table::System, key);
    }
    Ok(())
}

fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

fn segments(bytes: &[u8]) -> Option<BTreeSet<SegmentId>> {
    let (ids, rest) = bytes.as_chunks::<16>();
    rest.is_empty().then(|| ids.iter().map(|id| SegmentId::from_bytes(*id)).collect())
}

#[cfg(test)]
mod tests {
    use gabion_metadata::MemoryIndex;
    use std::sync::Arc;

    use super::*;
    use crate::{apply::Apply, holds::Holds};

    #[test]
    fn it_reads_what_it_wrote_and_distrusts_the_rest() {
        let index = MemoryIndex::new();
        assert_eq!(State::load(&index).unwrap(), Ok(State::default()));
        let state = State {
            deployment: Some(DeploymentId::from_u128(3)),
            replayed: Some(7),
            replaying: Some(Seq::from_u64(8)),
            unreadable: [SegmentId::new(1, 2), SegmentId::new(1, 3)].into(),
            forgotten: [SegmentId::new(9, 9)].into(),
            snapshot_unknown: Some(Seq::from_u64(6)),
            holes_unknown: true,
        };
        let apply = Apply::load(Arc::new(index.clone()), Arc::new(Holds::default()), 1).unwrap();
        for state in [state, State { deployment: Some(DeploymentId::from_u128(3)), ..State::default() }] {
            apply.replay(&[], |overlay| state.store(overlay)).unwrap();
            assert_eq!(State::load(&index).unwrap(), Ok(state));
        }
        let many = State { forgotten: (1..4).map(|id| SegmentId::new(9, id)).collect(), ..State::default() };
        let forget = |ids: &[u64]| {
            let ids: Vec<SegmentId> = ids.iter().map(|id| SegmentId::new(9, *id)).collect();
            apply.replay(&[], |overlay| forget(overlay, &ids)).unwrap();
            State::load(&index).unwrap().unwrap().forgotten
        };
        apply.replay(&[], |overlay| many.store(overlay)).unwrap();
        assert_eq!(forget(&[1, 3, 7]), [SegmentId::new(9, 2)].into());
        assert_eq!(forget(&[2]), [].into());
        for (row, bytes) in [
            (FORMAT_ROW, vec![9; 8]),
            (UNREADABLE_ROW, vec![1; 17]),
            (REPLAYED_ROW, vec![1]),
            (REPLAYING_ROW, vec![1]),
            (SNAPSHOT_UNKNOWN_ROW, vec![1]),
        ] {
            let before = index.get(Table::System, row.as_bytes()).unwrap();
            index.commit(&[], vec![Write::Put(Table::System, keys::system(row), bytes)]).unwrap();
            assert!(State::load(&index).unwrap().is_err(), "{row}");
            let undo = match before {
                Some(before) => Write::Put(Table::System, keys::system(row), before.to_vec()),
                None => Write::Delete(Table::System, keys::system(row)),
            };
            index.commit(&[], vec![undo]).unwrap();
        }
    }

    #[test]
    fn a_list_takes_as_many_rows_as_it_needs() {
        let ids = |from: u64, to: u64| (from..to).map(|id| SegmentId::new(9, id)).collect::<BTreeSet<_>>();
        let index = MemoryIndex::new();
        let rows = |name: &str| index.scan(ScanRange::prefix(Table::System, name.as_bytes()), usize::MAX).unwrap();
        let apply = Apply::load(Arc::new(index.clone()), Arc::new(Holds::default()), 1).unwrap();
        let store = |state: &State| {
            apply.replay(&[], |overlay| state.store(overlay)).unwrap();
            assert_eq!(State::load(&index).unwrap().as_ref(), Ok(state));
        };
        let per_row = LISTED_PER_ROW as u64;
        for (count, expected_rows) in [(70_000, 2), (per_row + 1, 2), (per_row, 1), (3 * per_row, 3), (1, 1), (0, 0)] {
            store(&State { unreadable: ids(0, count), forgotten: ids(5, 5 + count), ..State::default() });
            for name in [UNREADABLE_ROW, FORGOTTEN_ROW] {
                assert_eq!(rows(name).len(), expected_rows, "{name} {count}");
            }
        }
        // What comes to be known in the course of a replay is added to what was.
        let mut state = State { unreadable: ids(0, per_row), ..State::default() };
        store(&state);
        for lost in [ids(7, 8), ids(0, per_row + 3), BTreeSet::new()] {
            apply.replay(&[], |overlay| state.store_progress(Seq::from_u64(4), lost.iter(), overlay)).unwrap();
            assert_eq!(State::load(&index).unwrap().as_ref(), Ok(&state));
        }
        assert_eq!((state.replayed, state.unreadable.len()), (Some(4), LISTED_PER_ROW + 3));
        // Whatever is taken out, and put in again.
        store(&State { forgotten: ids(0, 3 * per_row), ..State::default() });
        for (from, to, expected_rows) in [(0, per_row, 2), (2 * per_row - 1, 2 * per_row + 1, 2), (9, 2 * per_row, 1)] {
            let gone: Vec<SegmentId> = ids(from, to).into_iter().collect();
            apply.replay(&[], |overlay| forget(overlay, &gone)).unwrap();
            assert_eq!(rows(FORGOTTEN_ROW).len(), expected_rows);
            assert!(State::load(&index).unwrap().unwrap().forgotten.is_disjoint(&ids(from, to)));
        }
        let left = State { forgotten: ids(2 * per_row + 1, 3 * per_row), ..State::default() };
        assert_eq!(State::load(&index).unwrap().as_ref(), Ok(&left));
        store(&left);
        // An index that is restored has none of these rows, and gets what those of a snapshot say.
        let long = State { forgotten: ids(0, 70_000), ..State::default() };
        let restored = MemoryIndex::new();
        restored.commit(&[], long.writes()).unwrap();
        assert_eq!(State::load(&restored).unwrap().as_ref(), Ok(&long));
        let named = restored.scan(ScanRange::prefix(Table::System, b"f"), usize::MAX).unwrap();
        let named: BTreeSet<SegmentId> =
            named.iter().flat_map(|(key, row)| State::forgotten_in(key, row).unwrap()).collect();
        assert_eq!(named, long.forgotten);
    }
}
