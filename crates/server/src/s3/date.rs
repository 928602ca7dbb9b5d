//! Dates as S3 writes and reads them. Stored times have milliseconds, S3's have whole seconds.

use std::fmt::{self, Display};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The last second that these dates can say, of the year 9999: for what is later, as a rule of very many days may make it.
const LAST_SECOND: u64 = 253_402_300_799;

/// `Wed, 21 Oct 2015 07:28:00 GMT`, for headers.
#[must_use]
pub(crate) fn http(unix_ms: u64) -> impl Display {
    httpdate::HttpDate::from(UNIX_EPOCH + Duration::from_secs((unix_ms / 1000).min(LAST_SECOND)))
}

/// `2015-10-21T07:28:00.000Z`, for documents.
#[must_use]
pub(crate) fn iso(unix_ms: u64) -> impl Display {
    let seconds = i64::try_from((unix_ms / 1000).min(LAST_SECOND)).unwrap_or(i64::MAX);
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    fmt::from_fn(move |f| {
        let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
        write!(f, "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.000Z", at.hour(), at.minute(), at.second())
    })
}

/// The same with milliseconds: what must not seem to be over before it is.
#[must_use]
pub(crate) fn iso_ms(unix_ms: u64) -> impl Display {
    fmt::from_fn(move |f| {
        let seconds = iso(unix_ms).to_string();
        write!(f, "{}.{:03}Z", seconds.trim_end_matches(".000Z"), unix_ms % 1000)
    })
}

/// Reads a date of ISO 8601 in the form of RFC 3339, as Unix time in milliseconds. RFC 3339 allows a space between date and time, and lower case; policies, which look at the same texts, do not.
#[must_use]
pub(crate) fn parse_iso(text: &str) -> Option<u64> {
    let text = Some(text).filter(|text| text.get(10..11) == Some("T") && !text.ends_with('z'))?;
    let at = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    u64::try_from(at.unix_timestamp_nanos() / 1_000_000).ok()
}

/// Reads a date of a header in any of HTTP's three formats, as Unix time in milliseconds; nothing when it is none:
/// RFC 9110 §13.1.3 has conditions with malformed dates ignored.
#[must_use]
pub(crate) fn parse_http(value: &str) -> Option<u64> {
    let at = httpdate::parse_http_date(value).ok()?;
    let since: Duration = at.duration_since(SystemTime::UNIX_EPOCH).ok()?;
    u64::try_from(since.as_millis()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_s3() {
        assert_eq!(http(1_445_412_480_999).to_string(), "Wed, 21 Oct 2015 07:28:00 GMT");
        assert_eq!(iso(1_445_412_480_999).to_string(), "2015-10-21T07:28:00.000Z");
        assert_eq!(iso_ms(1_445_412_480_099).to_string(), "2015-10-21T07:28:00.099Z");
        assert_eq!(http(u64::MAX).to_string(), "Fri, 31 Dec 9999 23:59:59 GMT");
        assert_eq!(iso(u64::MAX).to_string(), "9999-12-31T23:59:59.000Z");
        for text in ["Wed, 21 Oct 2015 07:28:00 GMT", "Wednesday, 21-Oct-15 07:28:00 GMT", "Wed Oct 21 07:28:00 2015"] {
            assert_eq!(parse_http(text), Some(1_445_412_480_000), "{text}");
        }
        for text in ["", "yesterday", "2015-10-21T07:28:00Z"] {
            assert_eq!(parse_http(text), None, "{text}");
        }
        for text in ["2015-10-21T07:28:00Z", "2015-10-21T09:28:00.000+02:00"] {
            assert_eq!(parse_iso(text), Some(1_445_412_480_000), "{text}");
        }
        for text in
            ["", "2015-10-21", "2015-10-21 07:28:00Z", "2015-10-21t07:28:00Z", "2015-10-21T07:28:00z", "yesterdayüT"]
        {
            assert_eq!(parse_iso(text), None, "{text}");
        }
    }
}
