//! What the index remembers of itself, in the table `System`.

use std::collections::BTreeSet;

use gabion_metadata::{Index, Table, Write, keys};
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
}

impl State {
    /// Reads the rows; a sentence when they can not be used.
    pub(super) fn load(index: &dyn Index) -> Result<Result<Self, String>, StoreError> {
        let row = |name| index.get(Table::System, &keys::system(name));
        let (format, deployment, replayed) = (row(FORMAT_ROW)?, row(DEPLOYMENT_ROW)?, row(REPLAYED_ROW)?);
        let (unreadable, forgotten) = (row(UNREADABLE_ROW)?, row(FORGOTTEN_ROW)?);
        let (restoring, replaying) = (row(RESTORING_ROW)?, row(REPLAYING_ROW)?);
        let snapshot_unknown = row(SNAPSHOT_UNKNOWN_ROW)?;
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
                unreadable: segments(unreadable.as_deref()).ok_or("malformed row")?,
                forgotten: segments(forgotten.as_deref()).ok_or("malformed row")?,
                snapshot_unknown: match snapshot_unknown {
                    Some(bytes) => Some(Seq::from_u64(number(&bytes).ok_or("malformed row")?)),
                    None => None,
                },
            })
        };
        Ok(read().map_err(str::to_owned))
    }

    /// Writes the rows.
    pub(super) fn store(&self, overlay: &mut Overlay<'_>) {
        for write in self.writes() {
            match write {
                Write::Put(table, key, row) => overlay.put_raw(table, key, row),
                Write::Delete(table, key) => overlay.delete(table, key),
            }
        }
    }

    /// The rows.
    pub(crate) fn writes(&self) -> Vec<Write> {
        let list = |ids: &BTreeSet<SegmentId>| {
            (!ids.is_empty()).then(|| ids.iter().flat_map(|id| id.to_bytes()).collect::<Vec<u8>>())
        };
        let rows = [
            (FORMAT_ROW, Some(FORMAT.to_be_bytes().to_vec())),
            (DEPLOYMENT_ROW, self.deployment.map(|deployment| deployment.to_bytes().to_vec())),
            (REPLAYED_ROW, self.replayed.map(|position| position.to_be_bytes().to_vec())),
            (REPLAYING_ROW, self.replaying.map(|until| until.as_u64().to_be_bytes().to_vec())),
            (UNREADABLE_ROW, list(&self.unreadable)),
            (FORGOTTEN_ROW, list(&self.forgotten)),
            (RESTORING_ROW, None),
            (SNAPSHOT_UNKNOWN_ROW, self.snapshot_unknown.map(|until| until.as_u64().to_be_bytes().to_vec())),
        ];
        let write = |(name, row)| match row {
            Some(row) => Write::Put(Table::System, keys::system(name), row),
            None => Write::Delete(Table::System, keys::system(name)),
        };
        rows.into_iter().map(write).collect()
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
            DEPLOYMENT_ROW | SCRUB_ROW | DAMAGE_ROW | REBALANCE_ROW | SNAPSHOT_UNKNOWN_ROW => Ok(BTreeSet::new()),
            FORGOTTEN_ROW => segments(Some(row)).ok_or_else(|| "malformed row".to_owned()),
            _ => Err(format!("the row {name:?} of the table {}", Table::System)),
        }
    }
}

/// Takes segments that can not come back out of [`State::forgotten`].
pub(crate) fn forget(overlay: &mut Overlay<'_>, gone: &[SegmentId]) -> Result<(), StoreError> {
    let Some(row) = overlay.get_raw(Table::System, &keys::system(FORGOTTEN_ROW))? else { return Ok(()) };
    let mut left = segments(Some(&row)).ok_or_else(|| StoreError::Corrupt("malformed row".to_owned()))?;
    for id in gone {
        left.remove(id);
    }
    if left.is_empty() {
        overlay.delete(Table::System, keys::system(FORGOTTEN_ROW));
    } else {
        let row = left.iter().flat_map(|id| id.to_bytes()).collect();
        overlay.put_raw(Table::System, keys::system(FORGOTTEN_ROW), row);
    }
    Ok(())
}

fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.try_into().ok()?))
}

fn segments(bytes: Option<&[u8]>) -> Option<BTreeSet<SegmentId>> {
    let (ids, rest) = bytes.unwrap_or_default().as_chunks::<16>();
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
        };
        let apply = Apply::load(Arc::new(index.clone()), Arc::new(Holds::default()), 1).unwrap();
        for state in [state, State { deployment: Some(DeploymentId::from_u128(3)), ..State::default() }] {
            apply
                .replay(&[], |overlay| {
                    state.store(overlay);
                    Ok(())
                })
                .unwrap();
            assert_eq!(State::load(&index).unwrap(), Ok(state));
        }
        let many = State { forgotten: (1..4).map(|id| SegmentId::new(9, id)).collect(), ..State::default() };
        let forget = |ids: &[u64]| {
            let ids: Vec<SegmentId> = ids.iter().map(|id| SegmentId::new(9, *id)).collect();
            apply.replay(&[], |overlay| forget(overlay, &ids)).unwrap();
            State::load(&index).unwrap().unwrap().forgotten
        };
        apply
            .replay(&[], |overlay| {
                many.store(overlay);
                Ok(())
            })
            .unwrap();
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
}
