//! Names of shard files: `segments/<hh>/<segment id>.<shard>`. Pure.

use gabion_types::SegmentId;

/// Directory of all shard files on a target.
pub(crate) const SEGMENTS_DIR: &str = "segments";

/// Directory of a segment's shard file: the last byte of the id, which counts, spreads them evenly.
pub(crate) fn shard_dir(segment: SegmentId) -> String {
    format!("{SEGMENTS_DIR}/{:02x}", segment.to_bytes()[15])
}

/// Path of a shard file on its target.
pub(crate) fn shard_path(segment: SegmentId, shard: u8) -> String {
    format!("{}/{segment}.{shard:03}", shard_dir(segment))
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
    use super::*;

    #[test]
    fn names_round_trip() {
        let segment = SegmentId::new(0xabc, 0x1ff);
        let path = shard_path(segment, 7);
        assert_eq!(path, "segments/ff/0000000000000abc00000000000001ff.007");
        assert_eq!(parse_shard_name(path.rsplit_once('/').unwrap().1), Some((segment, 7)));
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
