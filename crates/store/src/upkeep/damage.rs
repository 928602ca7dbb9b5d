//! Damage that was found and is not repaired yet: the log knows it while it is open, and here it is remembered, so that the next start goes on with it
//! and no scrub has to find it again.
//!
//! The row says no more than what was found. What is lost of it, as with the index, the next scrub finds again.

use gabion_metadata::{Index, Table, Write, keys};
use gabion_segment::{Damage, RepairEntry};
use gabion_types::SegmentId;
use minicbor::{Decode, Encode};
use parking_lot::Mutex;

use crate::{StoreError, open::DAMAGE_ROW, store::Inner, tasks, tasks::Told};

/// Shards that the row names at most. Of more it says that there are more: the next start has a scrub look for them.
const SHARDS_MAX: usize = 1024;

/// What the row says.
#[derive(Default)]
pub(crate) struct NotedDamage(Mutex<Noted>);

#[derive(Default)]
struct Noted {
    damage: Damage,
    told: Told,
}

#[derive(Encode, Decode)]
struct Row {
    #[n(0)]
    shards: Vec<Shard>,
    /// There was more.
    #[n(1)]
    more: bool,
}

#[derive(Encode, Decode)]
struct Shard {
    #[n(0)]
    segment: SegmentId,
    #[n(1)]
    shard: u8,
}

impl Row {
    fn of(damage: &Damage) -> Self {
        let shard = |entry: &RepairEntry| Shard { segment: entry.segment, shard: entry.shard };
        Self {
            shards: damage.shards.iter().take(SHARDS_MAX).map(shard).collect(),
            more: damage.more || damage.shards.len() > SHARDS_MAX,
        }
    }

    fn damage(self) -> Damage {
        let entry = |shard: Shard| RepairEntry { segment: shard.segment, shard: shard.shard };
        Damage { shards: self.shards.into_iter().map(entry).collect(), more: self.more }
    }
}

/// Tells the log what was found before the start.
pub(crate) fn resume(inner: &Inner) {
    match load(&*inner.index) {
        Ok(Some(damage)) => {
            inner.log.note_damage(&damage);
            inner.noted_damage.0.lock().damage = damage;
        }
        Ok(None) => {}
        Err(error) => {
            tracing::warn!(%error, "what was found damaged before the start can not be read: the next scrub finds it")
        }
    }
}

/// Writes down what the log knows, if it is something else than before; the next checkpoint makes it durable. Where that fails, all else goes on: it is tried again.
pub(crate) fn note(inner: &Inner) {
    let mut noted = inner.noted_damage.0.lock();
    let damage = inner.log.damage();
    if noted.damage == damage {
        return;
    }
    match store(&*inner.index, &damage) {
        Ok(()) => {
            inner.apply.work().committed();
            *noted = Noted { damage, told: Told::default() };
        }
        Err(error) if noted.told.is_new(&error) => {
            tracing::warn!(%error, "what is damaged could not be written down: after a restart only a scrub finds it again");
        }
        Err(_) => {}
    }
}

fn store(index: &dyn Index, damage: &Damage) -> Result<(), StoreError> {
    let key = keys::system(DAMAGE_ROW);
    let write = if *damage == Damage::default() {
        Write::Delete(Table::System, key)
    } else {
        let row = minicbor::to_vec(Row::of(damage)).map_err(|error| StoreError::Internal(error.to_string()))?;
        Write::Put(Table::System, key, row)
    };
    tasks::blocking(|| index.commit(&[], vec![write]))?;
    Ok(())
}

fn load(index: &dyn Index) -> Result<Option<Damage>, StoreError> {
    let row = index.get(Table::System, &keys::system(DAMAGE_ROW))?;
    // One that can not be read says that there is damage, and not where.
    let damage = |row: &[u8]| match minicbor::decode::<Row>(row) {
        Ok(row) => row.damage(),
        Err(_) => Damage { shards: Vec::new(), more: true },
    };
    Ok(row.map(|row| damage(&row)))
}

#[cfg(test)]
mod tests {
    use gabion_metadata::MemoryIndex;

    use super::*;

    #[test]
    fn a_row_names_what_it_can_and_says_that_there_was_more() {
        let entry = |at: usize| RepairEntry { segment: SegmentId::new(7, at as u64), shard: (at % 6) as u8 };
        for (shards, more, reads, reads_more) in
            [(0, false, 0, false), (3, false, 3, false), (3, true, 3, true), (SHARDS_MAX + 1, false, SHARDS_MAX, true)]
        {
            let damage = Damage { shards: (0..shards).map(entry).collect(), more };
            let index = MemoryIndex::new();
            let row = minicbor::to_vec(Row::of(&damage)).unwrap();
            assert!(row.len() < 64 << 10);
            index.commit(&[], vec![Write::Put(Table::System, keys::system(DAMAGE_ROW), row)]).unwrap();
            let read = load(&index).unwrap();
            assert_eq!(read, Some(Damage { shards: (0..reads).map(entry).collect(), more: reads_more }));
        }
    }

    #[test]
    fn what_can_not_be_read_is_damage_that_a_scrub_is_to_find() {
        let index = MemoryIndex::new();
        assert_eq!(load(&index).unwrap(), None);
        index.commit(&[], vec![Write::Put(Table::System, keys::system(DAMAGE_ROW), vec![0xff])]).unwrap();
        assert_eq!(load(&index).unwrap(), Some(Damage { shards: Vec::new(), more: true }));
    }
}
