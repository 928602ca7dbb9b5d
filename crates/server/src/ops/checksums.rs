//! Checksums as S3 shows them.

use gabion_store::{Checksum, ChecksumAlgorithm, ChecksumKind, StoredChecksum};

/// A checksum of an object or a part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ShownChecksum {
    pub(crate) algorithm: ChecksumAlgorithm,
    pub(crate) kind: ChecksumKind,
    /// Base64; of a composite one with `-N` behind it.
    pub(crate) text: String,
}

/// The checksums to show. `parts` is the number of parts of the object, if it has any; without it composite checksums
/// are shown bare, as in GetObjectAttributes.
pub(crate) fn shown(stored: &[StoredChecksum], parts: Option<u32>) -> Vec<ShownChecksum> {
    let show = |stored: &StoredChecksum| {
        let algorithm = ChecksumAlgorithm::from_index(stored.algorithm)?;
        let mut text = Checksum::new(algorithm, &stored.value).ok()?.to_base64();
        if let (ChecksumKind::Composite, Some(parts)) = (stored.kind, parts) {
            text.push_str(&format!("-{parts}"));
        }
        Some(ShownChecksum { algorithm, kind: stored.kind, text })
    };
    stored.iter().filter_map(show).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_composite_checksum_shows_its_number_of_parts() {
        let stored =
            |kind| StoredChecksum { algorithm: ChecksumAlgorithm::Crc32.index(), kind, value: vec![0, 0, 0, 1] };
        let both = [stored(ChecksumKind::Composite), stored(ChecksumKind::FullObject)];
        let texts = |parts| shown(&both, parts).into_iter().map(|shown| shown.text).collect::<Vec<_>>();
        assert_eq!(texts(Some(3)), ["AAAAAQ==-3", "AAAAAQ=="]);
        assert_eq!(texts(None), ["AAAAAQ==", "AAAAAQ=="]);
        let unknown = StoredChecksum { algorithm: 99, kind: ChecksumKind::FullObject, value: vec![1] };
        assert!(shown(&[unknown], None).is_empty());
    }
}
