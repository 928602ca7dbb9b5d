//! Targets that left, and whether anything is still missing that was on them (docs/adr/0010).
//!
//! A header or row names targets that a segment was on once. If one of them left, either its shard was built anew elsewhere, or the segment was freed, or the
//! shard is missing still: then as much of the segment is lost as if the target were absent. Only the list of members can tell, at a start, which it is.
//! So a target that leaves is noted there as *lost*, in the list that drops it, and until one that is written when no segment names it any more. One
//! that was drained has nothing to be noted for.
//!
//! Who is not noted stays so: nothing is placed on a target once it is marked as one that leaves ([`super::TargetSet::placing`]).

use std::collections::BTreeSet;

use gabion_types::TargetId;

use super::membership::Member;

/// The targets that segments have their shards on, at one moment.
#[derive(Debug, Clone, Default)]
pub(crate) struct Holders {
    /// Targets that a segment names as the place of a shard.
    pub(crate) named: BTreeSet<TargetId>,
    /// Targets that could not be looked at when the log was opened: what they hold is not known.
    pub(crate) unlisted: BTreeSet<TargetId>,
    /// There are segments of which it is not known where they lie.
    pub(crate) any_unplaced: bool,
    /// Some file could not be read when the log was opened.
    pub(crate) any_unread: bool,
}

impl Holders {
    /// Whether there is nothing that members may hold and that was not seen when the log was opened. A segment that could not be placed although all could
    /// be read is lost for good, and one that lies on nothing but targets that left is, too: they are not waited for.
    fn saw_all(&self, members: &[Member]) -> bool {
        let any_unlisted = members.iter().any(|member| self.unlisted.contains(&member.id));
        !(any_unlisted || self.any_unplaced && self.any_unread)
    }

    /// Whether nothing lies on a member, and nothing will: it was drained.
    fn is_bare(&self, member: &Member) -> bool {
        member.draining && !self.named.contains(&member.id) && !self.unlisted.contains(&member.id) && !self.any_unplaced
    }
}

/// Which targets are lost with the members `next`, after `before` with `lost`.
pub(super) fn lost_next(
    lost: Option<&BTreeSet<TargetId>>,
    before: &[Member],
    next: &[Member],
    holders: &Holders,
) -> Option<BTreeSet<TargetId>> {
    let is_in = |members: &[Member], id: TargetId| members.iter().any(|member| member.id == id);
    let leaving = before.iter().filter(|member| !is_in(next, member.id) && !holders.is_bare(member));
    let leaving: BTreeSet<TargetId> = leaving.map(|member| member.id).collect();
    match lost {
        Some(lost) => {
            let is_needed = |id: &&TargetId| !holders.saw_all(before) || holders.named.contains(id);
            Some(lost.iter().filter(is_needed).copied().chain(leaving).collect())
        }
        // Who left before this was recorded is not known by name: it is known again when no segment names any of them.
        None => {
            let is_missing = |id: &TargetId| *id != TargetId::NONE && !is_in(before, *id);
            let none_missing = holders.saw_all(before) && !holders.named.iter().any(is_missing);
            none_missing.then_some(leaving)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEFT: TargetId = TargetId::from_u128(1);
    const HERE: TargetId = TargetId::from_u128(2);
    const OTHER: TargetId = TargetId::from_u128(3);

    fn member(id: TargetId) -> Member {
        Member::new(id, String::new(), String::new())
    }

    fn drained(id: TargetId) -> Member {
        Member { draining: true, ..member(id) }
    }

    fn naming(named: &[TargetId]) -> Holders {
        Holders { named: named.iter().copied().collect(), ..Holders::default() }
    }

    /// What becomes of a list with the lost `lost` when `who` leaves.
    fn leave(lost: &[TargetId], who: Member, holders: &Holders) -> Vec<TargetId> {
        let before = [who, member(HERE)];
        let lost = lost.iter().copied().collect();
        lost_next(Some(&lost), &before, &before[1..], holders).unwrap().into_iter().collect()
    }

    /// What becomes of a list with the lost `lost` when nobody leaves.
    fn stay(lost: Option<&[TargetId]>, holders: &Holders) -> Option<Vec<TargetId>> {
        let lost = lost.map(|lost| lost.iter().copied().collect());
        let next = lost_next(lost.as_ref(), &[member(HERE)], &[member(HERE)], holders);
        next.map(|next| next.into_iter().collect())
    }

    #[test]
    fn whoever_leaves_is_lost_unless_nothing_is_or_will_be_there() {
        assert_eq!(leave(&[], member(LEFT), &naming(&[HERE])), [LEFT]);
        assert_eq!(leave(&[], drained(LEFT), &naming(&[LEFT, HERE])), [LEFT]);
        assert!(leave(&[], drained(LEFT), &naming(&[HERE])).is_empty());
        assert_eq!(leave(&[OTHER], drained(LEFT), &naming(&[OTHER])), [OTHER]);
        // What it holds is not known.
        let unlisted = Holders { unlisted: [LEFT].into(), ..naming(&[HERE]) };
        assert_eq!(leave(&[], drained(LEFT), &unlisted), [LEFT]);
        let unplaced = Holders { any_unplaced: true, ..naming(&[HERE]) };
        assert_eq!(leave(&[], drained(LEFT), &unplaced), [LEFT]);
        // That another is away does not matter.
        let away = Holders { unlisted: [HERE].into(), ..naming(&[HERE]) };
        assert!(leave(&[], drained(LEFT), &away).is_empty());
    }

    #[test]
    fn it_is_lost_until_no_segment_names_it_and_all_were_seen() {
        let before: &[TargetId] = &[LEFT, OTHER];
        assert_eq!(stay(Some(before), &naming(&[HERE, OTHER])), Some(vec![OTHER]));
        let unlisted = Holders { unlisted: [HERE].into(), ..naming(&[HERE]) };
        assert_eq!(stay(Some(before), &unlisted), Some(before.to_vec()));
        let unread = Holders { any_unread: true, any_unplaced: true, ..naming(&[HERE]) };
        assert_eq!(stay(Some(before), &unread), Some(before.to_vec()));
        // All members were seen: a segment that is nowhere to be found is gone.
        let gone = Holders { any_unplaced: true, unlisted: [LEFT].into(), ..naming(&[HERE]) };
        assert_eq!(stay(Some(before), &gone), Some(vec![]));
    }

    #[test]
    fn what_an_older_list_does_not_say_is_known_when_no_segment_names_who_left() {
        assert_eq!(stay(None, &naming(&[LEFT, HERE])), None);
        assert_eq!(stay(None, &Holders { unlisted: [HERE].into(), ..naming(&[HERE]) }), None);
        assert_eq!(stay(None, &naming(&[TargetId::NONE, HERE])), Some(vec![]));
        let before = [member(LEFT), member(HERE)];
        let leaving = |holders: &Holders| lost_next(None, &before, &before[1..], holders);
        assert_eq!(leaving(&naming(&[LEFT, HERE])), Some([LEFT].into()));
        assert_eq!(leaving(&naming(&[OTHER, LEFT])), None);
    }
}
