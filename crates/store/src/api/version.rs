//! Names of versions.

use std::{fmt, str::FromStr};

use gabion_metadata::rows::{ObjectRow, VersionKind};
use gabion_types::Seq;

/// Which version of an object.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum VersionId {
    /// The `null` version: of a bucket without versioning, or in which it was suspended.
    Null,
    /// The version that this commit made.
    Of(Seq),
}

impl VersionId {
    /// That of a row.
    pub(crate) fn of(row: &ObjectRow) -> Self {
        if VersionKind::is_null(row.kind) { VersionId::Null } else { VersionId::Of(row.seq) }
    }
}

/// As clients see it: opaque to them, `null` or 16 hexadecimal digits.
impl fmt::Display for VersionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            VersionId::Null => f.write_str("null"),
            VersionId::Of(seq) => write!(f, "{:016x}", seq.as_u64()),
        }
    }
}

/// A text that names no version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no version has such an id")]
pub struct VersionIdError;

impl FromStr for VersionId {
    type Err = VersionIdError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        match text {
            "null" => Ok(VersionId::Null),
            _ if text.len() == 16 && text.as_bytes().iter().all(is_digit) => {
                let seq = u64::from_str_radix(text, 16).map_err(|_| VersionIdError)?;
                Ok(VersionId::Of(Seq::from_u64(seq)))
            }
            _ => Err(VersionIdError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_shown_and_read() {
        for version in [VersionId::Null, VersionId::Of(Seq::from_u64(0)), VersionId::Of(Seq::from_u64(u64::MAX))] {
            assert_eq!(version.to_string().parse(), Ok(version));
        }
        for text in ["", "Null", "0", "00000000000000AB", "+000000000000000", "00000000000000000", "ü000000000000000"]
        {
            assert!(text.parse::<VersionId>().is_err(), "{text}");
        }
    }
}
