//! Keys that a key service gave, for a short while: else every object would cost a question.

use std::collections::HashMap;
use std::hash::Hash;

use gabion_store::SecretKey;
use parking_lot::Mutex;

/// Most keys that are kept.
const KEYS_MAX: usize = 1024;

/// Keys by what they were asked for with. None is kept longer than the cache was made for.
pub(super) struct KeyCache<Q, E> {
    kept_ns: u64,
    entries: Mutex<HashMap<Q, Entry<E>>>,
}

struct Entry<E> {
    key: SecretKey,
    extra: E,
    until_ns: u64,
}

impl<Q: Hash + Eq + Clone, E: Clone> KeyCache<Q, E> {
    pub(super) fn new(kept_ns: u64) -> Self {
        Self { kept_ns, entries: Mutex::default() }
    }

    /// The key, if it was given not long ago.
    pub(super) fn get(&self, question: &Q, now_ns: u64) -> Option<(SecretKey, E)> {
        let mut entries = self.entries.lock();
        let entry = entries.get(question)?;
        if entry.until_ns <= now_ns {
            entries.remove(question);
            return None;
        }
        Some((entry.key.clone(), entry.extra.clone()))
    }

    pub(super) fn put(&self, question: Q, key: SecretKey, extra: E, now_ns: u64) {
        if self.kept_ns == 0 {
            return;
        }
        let mut entries = self.entries.lock();
        if entries.len() >= KEYS_MAX {
            entries.retain(|_, entry| entry.until_ns > now_ns);
        }
        if entries.len() >= KEYS_MAX {
            let oldest = entries.iter().min_by_key(|(_, entry)| entry.until_ns).map(|(question, _)| question.clone());
            oldest.and_then(|question| entries.remove(&question));
        }
        entries.insert(question, Entry { key, extra, until_ns: now_ns.saturating_add(self.kept_ns) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_kept_for_a_while_and_not_all_of_them() {
        let key = || SecretKey::filled(|_| ());
        let cache = KeyCache::<usize, ()>::new(10);
        cache.put(1, key(), (), 100);
        assert!(cache.get(&1, 109).is_some() && cache.get(&2, 100).is_none());
        assert!(cache.get(&1, 110).is_none() && cache.entries.lock().is_empty());
        (0..3 * KEYS_MAX).for_each(|i| cache.put(i, key(), (), 200 + i as u64 / 1000));
        assert_eq!(cache.entries.lock().len(), KEYS_MAX);
        assert!(cache.get(&(3 * KEYS_MAX - 1), 203).is_some());
        let none = KeyCache::<usize, ()>::new(0);
        none.put(1, key(), (), 0);
        assert!(none.entries.lock().is_empty());
    }
}
