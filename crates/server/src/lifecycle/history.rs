//! Versions in the order in which they are listed: since when each is not current, and how many newer ones there are.

use gabion_store::VersionSummary;

use super::Days;
use super::rules::Rule;

/// A version that may end.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub(crate) entry: VersionSummary,
    place: Place,
}

/// Where a version stands among those of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// A delete marker, which is all that there is.
    Lone,
    /// Not current since then (Unix time in milliseconds), with so many newer ones that are not, either.
    Noncurrent { since_ms: u64, newer: u32 },
}

impl Candidate {
    /// When it ends, if a rule is about it.
    pub(crate) fn ends_ms(&self, rule: &Rule, days: Days) -> Option<u64> {
        match self.place {
            Place::Lone => rule.lone_marker_ends_ms(self.entry.object.modified_ms, days),
            Place::Noncurrent { since_ms, newer } => rule.version_ends_ms(since_ms, newer, days),
        }
    }
}

/// The key whose versions are coming, newest first. Holds one version, whatever a key has of them.
#[derive(Default)]
pub(crate) struct History {
    key: String,
    /// When the one before came to be, which is when the next one ceased to be current.
    before_ms: u64,
    /// Versions of the key that came and are not current.
    noncurrent: u32,
    /// The newest of the key, if it is a delete marker and nothing came after it.
    lone: Option<VersionSummary>,
}

impl History {
    /// Takes the next version; adds what may end to `candidates`.
    pub(crate) fn take(&mut self, entry: VersionSummary, candidates: &mut Vec<Candidate>) {
        let modified_ms = entry.object.modified_ms;
        if entry.object.key != self.key || entry.is_latest {
            candidates.extend(self.end());
            self.key.clone_from(&entry.object.key);
            (self.before_ms, self.noncurrent) = (modified_ms, 0);
            self.lone = (entry.is_latest && entry.is_marker).then_some(entry);
            return;
        }
        self.lone = None;
        // A clock that was set back makes none older than it is.
        let since_ms = self.before_ms.max(modified_ms);
        candidates.push(Candidate { entry, place: Place::Noncurrent { since_ms, newer: self.noncurrent } });
        self.before_ms = modified_ms;
        self.noncurrent = self.noncurrent.saturating_add(1);
    }

    /// Nothing comes any more, of this key at least.
    pub(crate) fn end(&mut self) -> Option<Candidate> {
        self.lone.take().map(|entry| Candidate { entry, place: Place::Lone })
    }
}

#[cfg(test)]
mod tests {
    use gabion_store::{Etag, ObjectSummary, VersionId};
    use gabion_types::Seq;

    use super::*;

    /// A version that was made at `ms`, and is the newest of its key or not, and a delete marker or not.
    fn version(key: &str, ms: u64, is_latest: bool, is_marker: bool) -> VersionSummary {
        let object = ObjectSummary {
            key: key.into(),
            size: 1,
            etag: Etag::Md5([0; 16]),
            modified_ms: ms,
            checksums: Vec::new(),
            storage_class: None,
            owner: None,
        };
        let seq = Seq::from_u64(ms);
        VersionSummary { object, version: VersionId::Of(seq), seq, is_latest, is_marker }
    }

    #[test]
    fn versions_are_noncurrent_since_the_next_one() {
        let (mut history, mut found) = (History::default(), Vec::new());
        for entry in [
            version("a", 50, true, false),
            version("a", 40, false, false),
            version("a", 10, false, true),
            version("b", 30, true, true),
            version("c", 20, true, true),
            version("c", 5, false, false),
            version("d", 7, true, true),
        ] {
            history.take(entry, &mut found);
        }
        found.extend(history.end());
        let places: Vec<_> = found
            .iter()
            .map(|found| (found.entry.object.key.as_str(), found.entry.object.modified_ms, found.place))
            .collect();
        let noncurrent = |since_ms, newer| Place::Noncurrent { since_ms, newer };
        assert_eq!(
            places,
            [
                ("a", 40, noncurrent(50, 0)),
                ("a", 10, noncurrent(40, 1)),
                ("b", 30, Place::Lone),
                ("c", 5, noncurrent(20, 0)),
                ("d", 7, Place::Lone),
            ]
        );
    }
}
