//! The decoding plans in use: a bounded cache, since inverting a matrix costs more than decoding 4 KiB.

use std::{collections::HashMap, sync::Arc};

use gabion_types::limits::SHARDS_MAX;
use parking_lot::Mutex;

use crate::Plan;

/// Most plans kept per codec. A failed target gives one plan for each set of shards read in its place; at 4+2 all
/// pairs of losses fit, and the widest plan (128 sources, 16 outputs) is 2 KiB.
const PLANS_MAX: usize = 256;

/// A set of shard indices.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub(crate) struct ShardSet([u64; SHARDS_MAX.div_ceil(64)]);

impl ShardSet {
    /// Adds a shard, below [`SHARDS_MAX`]; false if it was a member before.
    pub(crate) fn insert(&mut self, index: usize) -> bool {
        let (word, bit) = (&mut self.0[index / 64], 1 << (index % 64));
        let fresh = *word & bit == 0;
        *word |= bit;
        fresh
    }

    pub(crate) fn contains(&self, index: usize) -> bool {
        self.0[index / 64] & (1 << (index % 64)) != 0
    }

    /// The members in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        (0..SHARDS_MAX).filter(|&index| self.contains(index))
    }
}

/// What a decoding plan is for: the shards that it reads and those that it rebuilds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PlanKey {
    pub(crate) have: ShardSet,
    pub(crate) want: ShardSet,
}

/// Least recently used plans leave first.
#[derive(Default)]
pub(crate) struct PlanCache {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    plans: HashMap<PlanKey, Entry>,
    /// Counts the uses; an entry's `used` is the count at its last one.
    uses: u64,
}

struct Entry {
    plan: Arc<Plan>,
    used: u64,
}

impl PlanCache {
    /// The plan for `key`, made by `make` if it is not here. Two threads may make the same plan: both are equal.
    pub(crate) fn get_or_make(&self, key: &PlanKey, make: impl FnOnce() -> Plan) -> Arc<Plan> {
        if let Some(plan) = self.state.lock().get(key) {
            return plan;
        }
        let plan = Arc::new(make());
        self.state.lock().insert(*key, Arc::clone(&plan));
        plan
    }
}

impl State {
    fn get(&mut self, key: &PlanKey) -> Option<Arc<Plan>> {
        let entry = self.plans.get_mut(key)?;
        self.uses += 1;
        entry.used = self.uses;
        Some(Arc::clone(&entry.plan))
    }

    fn insert(&mut self, key: PlanKey, plan: Arc<Plan>) {
        // A scan of all entries is cheap beside the inversion that brought us here.
        if self.plans.len() >= PLANS_MAX
            && let Some(oldest) = self.plans.iter().min_by_key(|(_, entry)| entry.used).map(|(key, _)| *key)
        {
            self.plans.remove(&oldest);
        }
        self.uses += 1;
        self.plans.insert(key, Entry { plan, used: self.uses });
    }
}

#[cfg(test)]
mod tests {
    use gabion_types::Geometry;

    use super::*;
    use crate::matrix::Matrix;

    fn plan() -> Plan {
        Plan::new(&Matrix::coding(Geometry::new(1, 1).unwrap()))
    }

    fn key(number: usize) -> PlanKey {
        let mut key = PlanKey { have: ShardSet::default(), want: ShardSet::default() };
        key.have.insert(number % SHARDS_MAX);
        key.want.insert(number / SHARDS_MAX);
        key
    }

    #[test]
    fn a_set_lists_its_members_in_order() {
        let mut set = ShardSet::default();
        for index in [200, 0, 63, 64, 254] {
            assert!(set.insert(index));
            assert!(!set.insert(index));
        }
        assert_eq!(set.iter().collect::<Vec<_>>(), [0, 63, 64, 200, 254]);
    }

    #[test]
    fn the_cache_stays_bounded_and_keeps_what_is_used() {
        let cache = PlanCache::default();
        let kept = cache.get_or_make(&key(0), plan);
        for number in 1..2 * PLANS_MAX {
            cache.get_or_make(&key(number), plan);
            let again = cache.get_or_make(&key(0), || unreachable!("it was used last"));
            assert!(Arc::ptr_eq(&kept, &again));
        }
        assert_eq!(cache.state.lock().plans.len(), PLANS_MAX);
        assert!(!cache.state.lock().plans.contains_key(&key(1)));
    }
}
