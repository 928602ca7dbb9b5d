//! Which targets a new segment lies on, and which one takes a shard that moves. Pure.

use std::collections::BTreeMap;

/// A target that has room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// Its place in the list of targets.
    pub(crate) target: usize,
    pub(crate) failure_domain: String,
    pub(crate) available_bytes: u64,
}

/// Chooses a target for every shard.
///
/// Shards are spread over failure domains as evenly as can be: no domain gets a second one before all have one, so that none holds more
/// than `m` if there are enough. Among domains, and among the targets of one, the draw of `turn` decides, in which a target with
/// twice the room comes up about twice as often: new targets fill up. Each target comes into each role in time. `None` in the last
/// shards (parity: reads do not miss them) where targets are too few; nothing at all if fewer than `quorum` would be left.
pub(crate) fn choose(candidates: &[Candidate], shards: usize, quorum: usize, turn: u64) -> Option<Vec<Option<usize>>> {
    let mut domains: BTreeMap<&str, Vec<&Candidate>> = BTreeMap::new();
    for candidate in candidates {
        domains.entry(&candidate.failure_domain).or_default().push(candidate);
    }
    let mut ranked = Vec::with_capacity(candidates.len());
    for members in domains.values_mut() {
        let key = |member: &&Candidate| draw(turn, member.target as u64, member.available_bytes);
        members.sort_by(|a, b| key(a).total_cmp(&key(b)));
        let room = members.iter().fold(0_u64, |sum, member| sum.saturating_add(member.available_bytes));
        let first = members.iter().map(|member| member.target).min().unwrap_or(0);
        // Apart from the draws of its targets, which decide about another matter.
        let position = draw(turn ^ DOMAIN_DRAW, first as u64, room);
        ranked.extend(members.iter().enumerate().map(|(rank, member)| (rank, position, member.target)));
    }
    ranked.sort_by(|a, b| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)));
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

/// Chooses a target for one more shard of a segment whose others lie in `domains`: in the domain that holds the fewest of them, where
/// there is the most room.
pub(crate) fn spread(candidates: &[Candidate], domains: &[String]) -> Option<usize> {
    let held = |candidate: &&Candidate| domains.iter().filter(|domain| **domain == candidate.failure_domain).count();
    let key =
        |candidate: &&Candidate| (held(candidate), std::cmp::Reverse(candidate.available_bytes), candidate.target);
    candidates.iter().min_by_key(key).map(|candidate| candidate.target)
}

const DOMAIN_DRAW: u64 = 0x5851_F42D_4C95_7F2D;

/// A draw with weights (Efraimidis and Spirakis, Weighted random sampling with a reservoir, 2006): the lowest come first.
fn draw(turn: u64, item: u64, weight: u64) -> f64 {
    // SplitMix64's finaliser: neighbouring turns and items are far apart.
    let mut word = turn.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ item.wrapping_mul(0xD1B5_4A32_D192_ED03);
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^= word >> 31;
    let uniform = ((word >> 11) as f64 + 1.0) / (1_u64 << 53) as f64;
    -uniform.ln() / weight.max(1) as f64
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

    /// How often each target is chosen in a thousand turns.
    fn counts(candidates: &[Candidate], shards: usize) -> Vec<usize> {
        let mut counts = vec![0; candidates.len()];
        for turn in 0..1000 {
            choose(candidates, shards, shards, turn)
                .unwrap()
                .into_iter()
                .flatten()
                .for_each(|target| counts[target] += 1);
        }
        counts
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
    fn no_rack_holds_more_than_m_where_there_are_enough() {
        // Three racks of four; 4+2 may have two in each.
        let racks = ["r1", "r2", "r3", "r1", "r2", "r3", "r1", "r2", "r3", "r1", "r2", "r3"];
        let mut candidates = candidates(&racks);
        candidates[0].available_bytes = 1_000_000;
        candidates[3].available_bytes = 1_000_000;
        for turn in 0..200 {
            let chosen = choose(&candidates, 6, 5, turn).unwrap();
            for rack in ["r1", "r2", "r3"] {
                let held = chosen.iter().flatten().filter(|&&target| racks[target] == rack).count();
                assert_eq!(held, 2, "turn {turn}: {chosen:?}");
            }
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
        for count in counts(&candidates, 3) {
            assert!((420..=580).contains(&count), "about half of the turns, not {count}");
        }
    }

    #[test]
    fn targets_with_more_room_fill_up() {
        let mut candidates = candidates(&["a", "b", "c", "d", "e", "f", "g", "h"]);
        candidates[6].available_bytes = 1000;
        candidates[7].available_bytes = 1000;
        let counts = counts(&candidates, 3);
        let old = counts[..6].iter().sum::<usize>() / 6;
        assert!(counts[6] > 3 * old && counts[7] > 3 * old, "{counts:?}");
        assert!(counts.iter().all(|count| *count > 50), "{counts:?}");
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
    fn a_shard_moves_to_the_emptiest_domain_and_then_target() {
        let mut candidates = candidates(&["a", "b", "b", "c"]);
        candidates[2].available_bytes = 200;
        let domains = ["a".to_owned(), "c".to_owned()];
        assert_eq!(spread(&candidates, &domains), Some(2));
        assert_eq!(spread(&candidates[..1], &domains), Some(0));
        assert_eq!(spread(&[], &domains), None);
    }
}
