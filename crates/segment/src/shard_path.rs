//! Names of shard files: `segments/<hh>/<segment id>.<shard>`. Pure.

use gabion_types::SegmentId;

/// Directory of all shard files on a target.
pub(crate) const SEGMENTS_DIR: &str = "segments";

/// Ends the names of shard files that are being built.
const UNFINISHED_SUFFIX: &str = ".rebuild";

/// Ends the names of shard files of segments that count no more: their target came back as an older image of itself.
const SET_ASIDE_SUFFIX: &str = ".stale";

/// Directory of a segment's shard file: the last byte of the id spreads them evenly, sixteen that come one after the other to each.
pub(crate) fn shard_dir(segment: SegmentId) -> String {
    format!("{SEGMENTS_DIR}/{:02x}", segment.to_bytes()[15])
}

/// A number for each number, to be that of a segment: sixteen in a row have the same last byte, so that few segments have few directories, and many have
/// all of them alike.
pub(crate) fn neighbourly(number: u64) -> u64 {
    (number & !0xfff) | (number & 0xf) << 8 | (number >> 4 & 0xff)
}

/// Path of a shard file on its target.
pub(crate) fn shard_path(segment: SegmentId, shard: u8) -> String {
    format!("{}/{segment}.{shard:03}", shard_dir(segment))
}

/// Name under which a shard file is built, beside its own; `attempt` is never used twice by one process.
pub(crate) fn unfinished_path(segment: SegmentId, shard: u8, attempt: u64) -> String {
    format!("{}.{attempt:016x}{UNFINISHED_SUFFIX}", shard_path(segment, shard))
}

/// Name of a shard file that counts no more, beside its own.
pub(crate) fn set_aside_path(segment: SegmentId, shard: u8) -> String {
    format!("{}{SET_ASIDE_SUFFIX}", shard_path(segment, shard))
}

/// Whether a file was set aside.
pub(crate) fn is_set_aside(name: &str) -> bool {
    name.strip_suffix(SET_ASIDE_SUFFIX).is_some_and(|name| parse_shard_name(name).is_some())
}

/// Whether a file was being built when its process ended.
pub(crate) fn is_unfinished(name: &str) -> bool {
    name.strip_suffix(UNFINISHED_SUFFIX).and_then(|name| name.rsplit_once('.')).is_some_and(|(shard_name, attempt)| {
        parse_shard_name(shard_name).is_some() && attempt.len() == 16 && u64::from_str_radix(attempt, 16).is_ok()
    })
}

/// The segment and shard that a file's name stands for, if it is one of ours.
pub(crate) fn parse_shard_name(name: &str) -> Option<(SegmentId, u8)> {
    let (segment, shard) = name.split_once('.')?;
    if shard.len() != 3 || !shard.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((segment.parse().ok()?, shard.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    #[test]
    fn neighbours_share_a_directory_and_no_number() {
        let numbers: Vec<u64> = (0..3 << 12).map(neighbourly).collect();
        assert_eq!(numbers.iter().collect::<BTreeSet<_>>().len(), numbers.len());
        assert_eq!(neighbourly(u64::MAX), u64::MAX);
        let mut dirs: BTreeMap<String, usize> = BTreeMap::new();
        for number in &numbers {
            *dirs.entry(shard_dir(SegmentId::new(1, *number))).or_default() += 1;
        }
        assert_eq!((dirs.len(), dirs.values().min(), dirs.values().max()), (256, Some(&48), Some(&48)));
        let of_first = |count| {
            let dirs = numbers[..count].iter().map(|number| shard_dir(SegmentId::new(1, *number)));
            dirs.collect::<BTreeSet<_>>().len()
        };
        assert_eq!([1, 16, 17, 32].map(of_first), [1, 1, 2, 2]);
    }

    #[test]
    fn names_round_trip() {
        let segment = SegmentId::new(0xabc, 0x1ff);
        let path = shard_path(segment, 7);
        assert_eq!(path, "segments/ff/0000000000000abc00000000000001ff.007");
        assert_eq!(parse_shard_name(path.rsplit_once('/').unwrap().1), Some((segment, 7)));
    }

    #[test]
    fn a_file_that_is_being_built_is_no_shard_file() {
        let path = unfinished_path(SegmentId::new(0xabc, 0x1ff), 7, 3);
        let name = path.rsplit_once('/').unwrap().1;
        assert_eq!(name, "0000000000000abc00000000000001ff.007.0000000000000003.rebuild");
        assert!(is_unfinished(name) && parse_shard_name(name).is_none());
        assert!(!is_unfinished("x.rebuild") && !is_unfinished("0000000000000abc00000000000001ff.007"));
    }

    #[test]
    fn other_names_are_not_ours() {
        let id = "0000000000000abc00000000000001ff";
        for name in
            ["", "x", id, &format!("{id}.7"), &format!("{id}.+07"), &format!("{id}.256"), &format!("{id}.007.tmp")]
        {
            assert_eq!(parse_shard_name(name), None, "{name}");
        }
    }
}
