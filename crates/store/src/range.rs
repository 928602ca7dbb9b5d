//! Byte ranges of reads, as pure functions.
//!
//! Source: RFC 9110 §14.1.2, and AWS S3 where it is narrower: a header that asks for several ranges, or that is
//! malformed (white space among the numbers included), is ignored and the whole object is sent; so are the last bytes of an empty object.

use crate::StoreError;

/// A range as a client asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeRequest {
    /// `first-last`, both included.
    Between(u64, u64),
    /// `first-`.
    From(u64),
    /// `-count`: the last bytes.
    Last(u64),
}

/// A range of an object; both ends included, `first ≤ last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// Offset of the first byte.
    pub first: u64,
    /// Offset of the last byte.
    pub last: u64,
}

impl ByteRange {
    /// Number of bytes.
    #[must_use]
    pub fn len(self) -> u64 {
        self.last - self.first + 1
    }

    /// Never: a range has at least one byte.
    #[must_use]
    pub fn is_empty(self) -> bool {
        false
    }
}

impl RangeRequest {
    /// Reads the value of `Range`; nothing when it is to be ignored.
    #[must_use]
    pub fn parse(value: &str) -> Option<Self> {
        let (unit, spec) = value.trim().split_once('=')?;
        if !unit.eq_ignore_ascii_case("bytes") || spec.contains(',') {
            return None;
        }
        match spec.split_once('-')? {
            ("", count) => Some(RangeRequest::Last(number(count)?)),
            (first, "") => Some(RangeRequest::From(number(first)?)),
            (first, last) => {
                let (first, last) = (number(first)?, number(last)?);
                (first <= last).then_some(RangeRequest::Between(first, last))
            }
        }
    }

    /// Reads `x-amz-copy-source-range`, which must be `bytes=first-last`.
    #[must_use]
    pub fn parse_copy_source(value: &str) -> Option<ByteRange> {
        let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
        let (first, last) = (number(first)?, number(last)?);
        (first <= last).then_some(ByteRange { first, last })
    }

    /// The bytes of an object of `size` bytes that it means; nothing when all of it is to be sent as if no range was asked for.
    ///
    /// # Errors
    /// `InvalidRange` when there are none.
    pub fn resolve(self, size: u64) -> Result<Option<ByteRange>, StoreError> {
        let (first, last) = match self {
            RangeRequest::Between(first, last) => (first, last.min(size.wrapping_sub(1))),
            RangeRequest::From(first) => (first, size.wrapping_sub(1)),
            RangeRequest::Last(0) => return Err(StoreError::InvalidRange { size }),
            RangeRequest::Last(_) if size == 0 => return Ok(None),
            RangeRequest::Last(count) => (size.saturating_sub(count), size.wrapping_sub(1)),
        };
        if first >= size { Err(StoreError::InvalidRange { size }) } else { Ok(Some(ByteRange { first, last })) }
    }
}

/// Digits only; what is beyond 64 bits is beyond every object.
fn number(digits: &str) -> Option<u64> {
    let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_resolve_as_on_aws() {
        let table = [
            ("bytes=0-0", 10, "0-0"),
            ("bytes=2-5", 10, "2-5"),
            ("bytes=2-", 10, "2-9"),
            ("bytes=2-99", 10, "2-9"),
            ("bytes=9-9", 10, "9-9"),
            ("bytes=10-", 10, "416"),
            ("bytes=10-12", 10, "416"),
            ("bytes=-3", 10, "7-9"),
            ("bytes=-99", 10, "0-9"),
            ("bytes=-0", 10, "416"),
            ("bytes=0-", 0, "416"),
            ("bytes=0-0", 0, "416"),
            ("bytes=-1", 0, "all"),
            ("bytes=-0", 0, "416"),
            ("bytes=0-99999999999999999999999", 10, "0-9"),
            ("BYTES=1-2", 10, "1-2"),
            (" bytes=1-2 ", 10, "1-2"),
            ("bytes=00-01", 10, "0-1"),
            ("bytes = 1-2", 10, "all"),
            ("bytes= -1", 10, "all"),
            ("bytes=0 -1", 10, "all"),
            ("bytes=1- 2", 10, "all"),
            ("bytes=--1", 10, "all"),
            ("bytes=0--1", 10, "all"),
            ("bytes=,", 10, "all"),
            ("bytes=5-2", 10, "all"),
            ("bytes=0-1,3-4", 10, "all"),
            ("bytes=-", 10, "all"),
            ("bytes=a-b", 10, "all"),
            ("bytes=+1-2", 10, "all"),
            ("items=0-1", 10, "all"),
            ("bytes", 10, "all"),
            ("", 10, "all"),
        ];
        for (header, size, expected) in table {
            let got = match RangeRequest::parse(header).map(|range| range.resolve(size)) {
                None | Some(Ok(None)) => "all".into(),
                Some(Ok(Some(range))) => format!("{}-{}", range.first, range.last),
                Some(Err(_)) => "416".into(),
            };
            assert_eq!(got, expected, "{header} of {size}");
        }
    }

    #[test]
    fn a_copy_source_range_has_both_ends() {
        assert_eq!(RangeRequest::parse_copy_source("bytes=3-7"), Some(ByteRange { first: 3, last: 7 }));
        for bad in ["bytes=3-", "bytes=-3", "bytes=7-3", "3-7", "bytes=1-2,3-4", ""] {
            assert_eq!(RangeRequest::parse_copy_source(bad), None, "{bad}");
        }
    }
}
