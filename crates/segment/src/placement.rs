//! Which targets a new segment lies on. Pure.

use std::collections::BTreeMap;

/// A target that has room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its place in the list of targets.
    pub(crate) target: usize,
    pub(crate) failure_domain: String,
    pub(crate) available_bytes: u64,
}

/// Chooses a target for every shard: as many failure domains as there are, those with the most room first within a domain, and by `turn`
/// each target in every role in time. `None` in the last shards (parity: reads do not miss them) where targets are too few;
/// nothing at all if fewer than `quorum` would be left.
pub(crate) fn choose(candidates: &[Candidate], shards: usize, quorum: usize, turn: u64) -> Option<Vec<Option<usize>>> {
    let mut domains: BTreeMap<&str, Vec<&Candidate>> = BTreeMap::new();
    for candidate in candidates {
        domains.entry(&candidate.failure_domain).or_default().push(candidate);
    }
    let count = domains.len() as u64;
    let mut ranked = Vec::with_capacity(candidates.len());
    for (number, members) in domains.values_mut().enumerate() {
        members.sort_by_key(|member| (std::cmp::Reverse(member.available_bytes), member.target));
        let position = (number as u64 + turn) % count;
        ranked.extend(members.iter().enumerate().map(|(rank, member)| (rank, position, member.target)));
    }
    ranked.sort_unstable();
    let mut chosen: Vec<usize> = ranked.into_iter().take(shards).map(|(_, _, target)| target).collect();
    if chosen.len() < quorum || chosen.is_empty() {
        return None;
    }
    let rotation = (turn % chosen.len() as u64) as usize;
    chosen.sort_unstable();
    chosen.rotate_left(rotation);
    let mut slots: Vec<Option<usize>> = chosen.into_iter().map(Some).collect();
    slots.resize(shards, None);
    Some(slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(domains: &[&str]) -> Vec<Candidate> {
        let candidate = |(target, domain): (usize, &&str)| Candidate {
            target,
            failure_domain: (*domain).to_owned(),
            available_bytes: 100,
        };
        domains.iter().enumerate().map(candidate).collect()
    }

    #[test]
    fn different_domains_come_first() {
        let candidates = candidates(&["a", "a", "a", "b", "c"]);
        for turn in 0..7 {
            let chosen = choose(&candidates, 3, 3, turn).unwrap();
            assert!(chosen.contains(&Some(3)) && chosen.contains(&Some(4)), "turn {turn}: {chosen:?}");
        }
    }

    #[test]
    fn every_target_takes_every_role_in_time() {
        let candidates = candidates(&["a", "b", "c", "d", "e", "f"]);
        let mut first = [0; 6];
        for turn in 0..6 {
            first[choose(&candidates, 6, 5, turn).unwrap()[0].unwrap()] += 1;
        }
        assert_eq!(first, [1; 6]);
        let mut used = [0; 6];
        for turn in 0..6 {
            for target in choose(&candidates, 3, 3, turn).unwrap() {
                used[target.unwrap()] += 1;
            }
        }
        assert_eq!(used, [3; 6]);
    }

    #[test]
    fn too_few_targets_leave_parity_out_and_then_refuse() {
        let chosen = choose(&candidates(&["a", "b", "c", "d", "e"]), 6, 5, 0).unwrap();
        assert_eq!(chosen.iter().filter(|slot| slot.is_some()).count(), 5);
        assert_eq!(chosen[5], None);
        assert_eq!(choose(&candidates(&["a", "b", "c", "d"]), 6, 5, 0), None);
        assert_eq!(choose(&[], 1, 1, 0), None);
    }

    #[test]
    fn within_a_domain_the_emptiest_target_is_taken() {
        let mut candidates = candidates(&["a", "a", "b"]);
        candidates[1].available_bytes = 500;
        let chosen = choose(&candidates, 2, 2, 0).unwrap();
        assert_eq!(chosen, [Some(1), Some(2)]);
    }
}
