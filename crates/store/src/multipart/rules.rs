//! Which parts may make up an object, as a pure function.
//!
//! Source: AWS, CompleteMultipartUpload: part numbers ascend; each is the part that was uploaded, by tag and checksum; all but
//! the last have at least 5 MiB. Parts that are not named are dropped.

use gabion_metadata::rows::{ChecksumKind, PartRow, PartTag};
use gabion_types::limits::{OBJECT_BYTES_MAX, PART_NUMBER_MAX};

use super::{Wanted, checksums::checksum_of};
use crate::{CompletedPart, DigestKind, StoreError, conditions::bare_etag};

/// Checks `named` against the parts that were uploaded; returns the rows in order.
///
/// # Errors
/// `InvalidRequest`, `InvalidPartOrder`, `InvalidPart`, `BadDigest`, `EntityTooSmall`, `EntityTooLarge`.
pub(super) fn check(
    named: &[CompletedPart],
    wanted: Wanted,
    part_bytes_min: u64,
    mut find: impl FnMut(u16) -> Result<Option<PartRow>, StoreError>,
) -> Result<Vec<(u16, PartRow)>, StoreError> {
    if named.is_empty() {
        return Err(StoreError::InvalidRequest("You must specify at least one part".into()));
    }
    if named.windows(2).any(|pair| pair[0].part_number >= pair[1].part_number) {
        return Err(StoreError::InvalidPartOrder);
    }
    let mut parts = Vec::with_capacity(named.len());
    for part in named {
        let row = match part.part_number {
            1..=PART_NUMBER_MAX => find(part.part_number)?,
            _ => None,
        };
        let row = row.ok_or(StoreError::InvalidPart)?;
        check_part(part, &row, wanted)?;
        parts.push((part.part_number, row));
    }
    let all_but_last = &parts[..parts.len() - 1];
    if let Some((part_number, row)) = all_but_last.iter().find(|(_, row)| row.size < part_bytes_min) {
        return Err(StoreError::EntityTooSmall {
            part_number: *part_number,
            etag: row.tag.etag(),
            size: row.size,
            size_min: part_bytes_min,
        });
    }
    match parts.iter().map(|(_, row)| row.size).sum::<u64>() {
        0..=OBJECT_BYTES_MAX => Ok(parts),
        _ => Err(StoreError::EntityTooLarge),
    }
}

/// Whether a part is named by its tag.
pub(super) fn is_tag(named: &CompletedPart, tag: PartTag) -> bool {
    bare_etag(&named.etag).eq_ignore_ascii_case(&tag.etag().to_string())
}

fn check_part(part: &CompletedPart, row: &PartRow, wanted: Wanted) -> Result<(), StoreError> {
    if !is_tag(part, row.tag) {
        return Err(StoreError::InvalidPart);
    }
    for given in &part.checksums {
        match checksum_of(&row.checksums, given.algorithm()) {
            Some(found) if found == *given => {}
            None if wanted.is_asked => {
                return Err(StoreError::BadDigest(DigestKind::PartChecksum(given.algorithm(), part.part_number)));
            }
            _ => return Err(StoreError::InvalidPart),
        }
    }
    let is_composite = wanted.is_asked && wanted.kind == ChecksumKind::Composite;
    if is_composite && !part.checksums.iter().any(|checksum| checksum.algorithm() == wanted.algorithm) {
        return Err(StoreError::InvalidRequest(format!(
            "The upload was created using a {} checksum. The complete request must include the checksum for each part. It was \
             missing for part {} in the request.",
            wanted.algorithm.as_str().to_ascii_lowercase(),
            part.part_number
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use gabion_erasure::{Checksum, ChecksumAlgorithm};
    use gabion_metadata::rows::{Home, Layout};
    use gabion_types::{SegmentId, Seq};

    use super::*;
    use crate::body::stored_full;

    fn row(number: u16, size: u64) -> PartRow {
        PartRow {
            moved: None,
            salt: None,
            counts: None,
            size,
            tag: PartTag::Md5([number as u8; 16]),
            modified_ms: 1,
            seq: Seq::from_u64(number.into()),
            checksums: stored_full(&[sha(number)]),
            layout: Layout::Empty,
            home: Home { segment: SegmentId::new(1, 1), bytes: 1 },
        }
    }

    fn sha(number: u16) -> Checksum {
        Checksum::new(ChecksumAlgorithm::Sha1, &[number as u8; 20]).unwrap()
    }

    fn named(number: u16) -> CompletedPart {
        CompletedPart { part_number: number, etag: format!("\"{}\"", etag(number)), checksums: Vec::new() }
    }

    fn etag(number: u16) -> String {
        PartTag::Md5([number as u8; 16]).etag().to_string()
    }

    fn outcome(named: &[CompletedPart], wanted: Wanted) -> String {
        // Part 4 is small, part 5 is huge, part 6 is missing.
        let find = |number| {
            Ok(match number {
                4 => Some(row(4, 9)),
                5 => Some(row(5, OBJECT_BYTES_MAX)),
                6 => None,
                number => Some(row(number, 10)),
            })
        };
        match check(named, wanted, 10, find) {
            Ok(parts) => format!("{:?}", parts.iter().map(|(number, _)| number).collect::<Vec<_>>()),
            Err(error) => format!("{error:?}").split([' ', '(']).next().unwrap().to_owned(),
        }
    }

    #[test]
    fn parts_are_judged_as_on_aws() {
        let any = Wanted { algorithm: ChecksumAlgorithm::Crc64Nvme, kind: ChecksumKind::FullObject, is_asked: false };
        let other_etag = CompletedPart { etag: etag(2), ..named(1) };
        let bare = CompletedPart { etag: etag(1).to_uppercase(), ..named(1) };
        let checksum = CompletedPart { checksums: vec![sha(1)], ..named(1) };
        let other_checksum = CompletedPart { checksums: vec![sha(2)], ..named(1) };
        let table: [(&[CompletedPart], &str); 14] = [
            (&[], "InvalidRequest"),
            (&[named(1)], "[1]"),
            (&[named(1), named(3), named(9)], "[1, 3, 9]"),
            (&[named(3), named(1)], "InvalidPartOrder"),
            (&[named(1), named(1)], "InvalidPartOrder"),
            (&[named(0)], "InvalidPart"),
            (&[named(10_001)], "InvalidPart"),
            (&[named(1), named(6)], "InvalidPart"),
            (&[named(4)], "[4]"),
            (&[named(1), named(4)], "[1, 4]"),
            (&[named(4), named(7)], "EntityTooSmall"),
            (&[named(1), named(5)], "EntityTooLarge"),
            (&[other_etag], "InvalidPart"),
            (&[bare, named(2)], "[1, 2]"),
        ];
        for (parts, expected) in table {
            assert_eq!(outcome(parts, any), expected, "{parts:?}");
        }
        assert_eq!(outcome(std::slice::from_ref(&checksum), any), "[1]");
        assert_eq!(outcome(std::slice::from_ref(&other_checksum), any), "InvalidPart");
        let composite = Wanted { algorithm: ChecksumAlgorithm::Sha1, kind: ChecksumKind::Composite, is_asked: true };
        assert_eq!(outcome(&[checksum], composite), "[1]");
        assert_eq!(outcome(&[other_checksum], composite), "InvalidPart");
        assert_eq!(outcome(&[named(1)], composite), "InvalidRequest");
        let crc = Checksum::new(ChecksumAlgorithm::Crc32, &[1; 4]).unwrap();
        let other_algorithm = CompletedPart { checksums: vec![crc], ..named(1) };
        assert_eq!(outcome(std::slice::from_ref(&other_algorithm), composite), "BadDigest");
        assert_eq!(outcome(&[other_algorithm], any), "InvalidPart");
    }
}
