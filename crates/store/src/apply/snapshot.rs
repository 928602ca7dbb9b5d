//! The newest snapshot of the index in the log, and which segments it covers.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use gabion_metadata::{
    IndexSnapshot, Table, Walk, keys,
    rows::{LaneKind, Row, SegmentState, SnapshotRow},
};
use gabion_types::SegmentId;

use super::{Apply, At, Overlay, overlay::Count};
use crate::{StoreError, mutation::IndexSnapshotMutation, snapshot::SNAPSHOT_ROW};

/// Segments of records all of which a snapshot knows.
pub(crate) type Covered = HashSet<SegmentId>;

/// What a snapshot that is begun consists of.
pub(crate) struct Begun {
    /// All rows of the index at one moment.
    pub rows: Box<dyn Walk>,
    /// Segments all of whose records were applied at that moment.
    pub covered: Vec<SegmentId>,
    /// As long as it lives, the snapshot counts as one that may bring rows back.
    pub pending: Arc<Pending>,
}

/// See [`Begun::pending`].
pub(crate) struct Pending {
    apply: Arc<Apply>,
    is_leaked: AtomicBool,
}

impl Pending {
    /// Whether the snapshot will count is known at the next start only.
    pub(crate) fn leak(&self) {
        self.is_leaked.store(true, Ordering::Release);
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !*self.is_leaked.get_mut() {
            self.apply.state.lock().segments.set_pending(None);
        }
    }
}

impl Apply {
    /// Takes the index at one moment. No deletion that comes later may go with its segment from now on: the snapshot has the row.
    /// Nothing, when it is not known whether an earlier one will count: what that one covers must not be forgotten.
    ///
    /// # Errors
    /// Those of the index.
    pub(crate) fn begin_snapshot(self: &Arc<Self>) -> Result<Option<Begun>, StoreError> {
        let mut state = self.state.lock();
        if state.segments.has_pending() {
            return Ok(None);
        }
        // Also when it can not be begun: it is tried again when more was written.
        self.work.snapshot_begins();
        let is_covered = |kind, segment_state| kind == LaneKind::Small && segment_state != SegmentState::Open;
        let mut covered: Vec<SegmentId> =
            state.segments.iter().filter(|(_, s)| is_covered(s.row.kind, s.row.state)).map(|(id, _)| id).collect();
        covered.sort_unstable();
        covered.truncate(crate::snapshot::COVERED_MAX);
        let rows = self.index.walk(&Table::ALL)?;
        state.segments.set_pending(Some(covered.iter().copied().collect()));
        let pending = Pending { apply: Arc::clone(self), is_leaked: AtomicBool::new(false) };
        Ok(Some(Begun { rows, covered, pending: Arc::new(pending) }))
    }
}

/// What the row of the newest snapshot says it covers; nothing when there is none.
pub(super) fn load(index: &dyn IndexSnapshot) -> Result<Option<Covered>, StoreError> {
    Ok(snapshot_row(index)?.filter(|row| !row.is_withdrawn()).map(|row| row.covered.into_iter().collect()))
}

/// The row of the newest snapshot.
pub(crate) fn snapshot_row(index: &dyn IndexSnapshot) -> Result<Option<SnapshotRow>, StoreError> {
    let row = index.get(Table::System, &keys::system(SNAPSHOT_ROW))?;
    Ok(row.map(|row| SnapshotRow::decode(&row)).transpose()?)
}

pub(super) fn apply(overlay: &mut Overlay<'_>, at: &At<'_>, m: IndexSnapshotMutation) -> Result<(), StoreError> {
    let key = keys::system(SNAPSHOT_ROW);
    if let Some(before) = overlay.get::<SnapshotRow>(Table::System, &key)? {
        if (before.seq, before.moved) >= at.version() {
            return Ok(());
        }
        overlay.count_home(before.home, Count::Down);
        overlay.count_extents(&before.extents, Count::Down);
    }
    overlay.count_home(at.home, Count::Up);
    overlay.count_extents(&m.extents, Count::Up);
    let covered = m.covered.iter().copied().collect();
    let (seq, moved) = at.version();
    let row = SnapshotRow { seq, home: at.home, extents: m.extents, rows: m.rows, covered: m.covered, moved };
    overlay.covers((!row.is_withdrawn()).then_some(covered));
    overlay.put(Table::System, key, &row);
    Ok(())
}
