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
    /// No version here: what ids are read as that other servers make. No commit ever has this number.
    pub const ELSEWHERE: VersionId = VersionId::Of(Seq::from_u64(u64::MAX));

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
            _ if is_ulid(text) || is_uuid(text) => Ok(VersionId::ELSEWHERE),
            _ => Err(VersionIdError),
        }
    }
}

/// Whether a text has the form in which versitygw names versions.
fn is_ulid(text: &str) -> bool {
    let is_digit =
        |byte: &u8| matches!(byte, b'0'..=b'9' | b'A'..=b'H' | b'J' | b'K' | b'M' | b'N' | b'P'..=b'T' | b'V'..=b'Z');
    text.len() == 26 && text.as_bytes()[0] <= b'7' && text.as_bytes().iter().all(is_digit)
}

/// Whether a text has the form in which MinIO names versions.
fn is_uuid(text: &str) -> bool {
    let is_right = |(at, byte): (usize, &u8)| match at {
        8 | 13 | 18 | 23 => *byte == b'-',
        _ => byte.is_ascii_hexdigit(),
    };
    text.len() == 36 && text.as_bytes().iter().enumerate().all(is_right)
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

    #[test]
    fn ids_of_other_servers_are_of_no_version_here() {
        for text in ["01G65Z755AFWAKHE12NY0CQ9FH", "f5b1a4a2-0f0a-4a53-9d1e-3b0e7a1c2d4E"] {
            assert_eq!(text.parse(), Ok(VersionId::ELSEWHERE), "{text}");
        }
        for text in [
            "01G65Z755AFWAKHE12NY0CQ9FI",
            "81G65Z755AFWAKHE12NY0CQ9FH",
            "01g65z755afwakhe12ny0cq9fh",
            "f5b1a4a2-0f0a-4a53-9d1e-3b0e7a1c2d4g",
            "f5b1a4a200f0a-4a53-9d1e-3b0e7a1c2d4e",
            "HPniJFCxqTsMuIH9KX8K8wEjNUgmABCD",
            "invalid_versionId",
        ] {
            assert!(text.parse::<VersionId>().is_err(), "{text}");
        }
    }
}
