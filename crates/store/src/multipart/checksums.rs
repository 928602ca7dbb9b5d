//! Which checksum an upload asks for, and what follows from it for its parts and its object, as pure functions.
//!
//! Source: AWS, "Checking object integrity": full-object checksums with the CRCs only, composite ones with all but CRC-64/NVME.

use gabion_erasure::{Checksum, ChecksumAlgorithm, combine_full_object, composite};
use gabion_metadata::rows::{ChecksumKind, PartRow, StoredChecksum, UploadRow};

use crate::{StoreError, body::stored};

/// The checksum that an upload's object will have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wanted {
    pub algorithm: ChecksumAlgorithm,
    pub kind: ChecksumKind,
    /// Whether the client asked for it. If not, parts may carry others.
    pub is_asked: bool,
}

impl Wanted {
    /// What a client asks for when it begins an upload.
    ///
    /// # Errors
    /// `InvalidRequest` when algorithm and kind do not go together.
    pub(crate) fn asked(
        asked: Option<(ChecksumAlgorithm, Option<ChecksumKind>)>,
    ) -> Result<Option<(ChecksumAlgorithm, ChecksumKind)>, StoreError> {
        let Some((algorithm, kind)) = asked else { return Ok(None) };
        let kind = kind.unwrap_or(match algorithm {
            ChecksumAlgorithm::Crc64Nvme => ChecksumKind::FullObject,
            _ => ChecksumKind::Composite,
        });
        let fits = match kind {
            ChecksumKind::FullObject => combine_full_object(algorithm, &[]).is_some(),
            ChecksumKind::Composite => algorithm != ChecksumAlgorithm::Crc64Nvme,
        };
        if fits {
            return Ok(Some((algorithm, kind)));
        }
        Err(StoreError::InvalidRequest(format!(
            "The {} checksum type cannot be used with the {} checksum algorithm.",
            kind.name(),
            algorithm.as_str().to_ascii_lowercase()
        )))
    }

    /// What an upload's row says.
    pub(crate) fn of(row: &UploadRow) -> Self {
        let asked = row.checksum_algorithm.and_then(ChecksumAlgorithm::from_index).zip(row.checksum_kind);
        match asked {
            Some((algorithm, kind)) => Self { algorithm, kind, is_asked: true },
            None => Self { algorithm: ChecksumAlgorithm::Crc64Nvme, kind: ChecksumKind::FullObject, is_asked: false },
        }
    }

    /// Whether a part may carry a checksum of `algorithm`.
    ///
    /// # Errors
    /// `InvalidRequest` when the upload asked for another one.
    pub(crate) fn check_part(self, algorithm: ChecksumAlgorithm) -> Result<(), StoreError> {
        if !self.is_asked || algorithm == self.algorithm {
            return Ok(());
        }
        Err(self.mismatch(&algorithm.as_str().to_ascii_lowercase()))
    }

    /// Whether a part may come without a checksum: not where the object's is made of theirs.
    ///
    /// # Errors
    /// `InvalidRequest`.
    pub(crate) fn check_without(self) -> Result<(), StoreError> {
        if self.is_asked && self.kind == ChecksumKind::Composite { Err(self.mismatch("null")) } else { Ok(()) }
    }

    fn mismatch(self, actual: &str) -> StoreError {
        StoreError::InvalidRequest(format!(
            "Checksum Type mismatch occurred, expected checksum Type: {}, actual checksum Type: {actual}",
            self.algorithm.as_str().to_ascii_lowercase()
        ))
    }

    /// The checksum of the object made of `parts`, in order.
    pub(crate) fn of_object(self, parts: &[(u16, PartRow)]) -> Option<Checksum> {
        let mut found = Vec::with_capacity(parts.len());
        for (_, part) in parts {
            found.push((checksum_of(&part.checksums, self.algorithm)?, part.size));
        }
        match self.kind {
            ChecksumKind::FullObject => combine_full_object(self.algorithm, &found),
            ChecksumKind::Composite => {
                let parts: Vec<Checksum> = found.into_iter().map(|(checksum, _)| checksum).collect();
                Some(composite(self.algorithm, &parts))
            }
        }
    }

    /// As the object's row holds it.
    pub(crate) fn stored(self, checksum: &Checksum) -> StoredChecksum {
        stored(checksum, self.kind)
    }
}

/// The checksum of `algorithm` among those of a part.
pub(crate) fn checksum_of(checksums: &[StoredChecksum], algorithm: ChecksumAlgorithm) -> Option<Checksum> {
    let found = checksums.iter().find(|checksum| checksum.algorithm == algorithm.index())?;
    Checksum::new(algorithm, &found.value).ok()
}

#[cfg(test)]
mod tests {
    use ChecksumAlgorithm::{Crc32, Crc32c, Crc64Nvme, Md5, Sha1, Sha256, Sha512, XxHash3, XxHash64, XxHash128};
    use ChecksumKind::{Composite, FullObject};

    use super::*;

    #[test]
    fn algorithms_and_kinds_go_together_as_on_aws() {
        let table = [
            (Crc32, None, Some(Composite)),
            (Crc32c, None, Some(Composite)),
            (Sha1, None, Some(Composite)),
            (Sha256, None, Some(Composite)),
            (Crc64Nvme, None, Some(FullObject)),
            (Crc32, Some(FullObject), Some(FullObject)),
            (Crc32c, Some(FullObject), Some(FullObject)),
            (Crc32c, Some(Composite), Some(Composite)),
            (Crc64Nvme, Some(FullObject), Some(FullObject)),
            (Sha1, Some(FullObject), None),
            (Sha256, Some(FullObject), None),
            (Crc64Nvme, Some(Composite), None),
            (Sha256, Some(Composite), Some(Composite)),
            (Sha512, None, Some(Composite)),
            (Md5, None, Some(Composite)),
            (XxHash64, None, Some(Composite)),
            (XxHash64, Some(Composite), Some(Composite)),
            (XxHash3, Some(Composite), Some(Composite)),
            (XxHash128, None, Some(Composite)),
            (Sha512, Some(FullObject), None),
            (XxHash3, Some(FullObject), None),
            (XxHash128, Some(FullObject), None),
        ];
        for (algorithm, kind, expected) in table {
            let got = Wanted::asked(Some((algorithm, kind))).ok().flatten().map(|(_, kind)| kind);
            assert_eq!(got, expected, "{algorithm} {kind:?}");
        }
        assert_eq!(Wanted::asked(None).unwrap(), None);
    }
}
