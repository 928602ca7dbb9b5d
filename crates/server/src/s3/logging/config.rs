//! Where the log of a bucket goes, and what its objects are called.

use gabion_types::BucketName;
use s3s::dto;
use time::OffsetDateTime;

use crate::error::{S3Code, S3Error};
use crate::s3::xml;

/// Longest prefix in bytes: there must be room for the rest of a key.
const PREFIX_BYTES_MAX: usize = 800;

/// Where the log of a bucket goes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Logging {
    pub(crate) target: BucketName,
    prefix: String,
    partitions: Option<DateSource>,
}

/// Which date partitions are by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum DateSource {
    Event,
    Delivery,
}

/// What a log is of.
pub(super) struct Source<'a> {
    pub(super) account: &'a str,
    pub(super) region: &'a str,
    pub(super) bucket: &'a str,
}

impl Logging {
    /// Reads and checks a document; gives it as it is kept, too. Nothing when it switches logging off.
    ///
    /// # Errors
    /// `MalformedXML`, `InvalidArgument`, `InvalidBucketName`.
    pub(crate) fn parse(document: &[u8]) -> Result<Option<(Self, String)>, S3Error> {
        let malformed = || S3Error::new(S3Code::MalformedXML);
        let mut status: dto::BucketLoggingStatus = xml::parse_logging(document)?;
        let Some(enabled) = &mut status.logging_enabled else { return Ok(None) };
        // The target's owner has it all: grants to others would need ACLs on every log object.
        enabled.target_grants = None;
        let target = BucketName::new(&enabled.target_bucket)
            .map_err(|_| S3Error::new(S3Code::InvalidBucketName).detail("BucketName", enabled.target_bucket.clone()))?;
        if enabled.target_prefix.len() > PREFIX_BYTES_MAX {
            let message = format!("The TargetPrefix must not be longer than {PREFIX_BYTES_MAX} bytes.");
            return Err(S3Error::argument("TargetPrefix", &enabled.target_prefix, message));
        }
        let format = enabled.target_object_key_format.get_or_insert_with(|| dto::TargetObjectKeyFormat {
            simple_prefix: Some(dto::SimplePrefix::default()),
            ..dto::TargetObjectKeyFormat::default()
        });
        let partitions = match (&format.partitioned_prefix, &format.simple_prefix) {
            (None, Some(_)) => None,
            (Some(partitioned), None) => {
                let by = partitioned.partition_date_source.as_ref().map(dto::PartitionDateSource::as_str);
                Some(match by {
                    Some("EventTime") => DateSource::Event,
                    Some("DeliveryTime") => DateSource::Delivery,
                    _ => return Err(malformed()),
                })
            }
            _ => return Err(malformed()),
        };
        let logging = Self { target, prefix: enabled.target_prefix.clone(), partitions };
        Ok(Some((logging, xml::canonical("BucketLoggingStatus", &status)?)))
    }

    /// The key of a log object.
    pub(super) fn key(&self, source: &Source<'_>, event_ms: u64, delivered_ms: u64, unique: &str) -> String {
        let prefix = &self.prefix;
        let Some(by) = self.partitions else { return format!("{prefix}{}-{unique}", stamp(at(delivered_ms), true)) };
        let (moment, has_time) = match by {
            DateSource::Event => (at(event_ms), false),
            DateSource::Delivery => (at(delivered_ms), true),
        };
        let Source { account, region, bucket } = source;
        let (year, month, day) = (moment.year(), u8::from(moment.month()), moment.day());
        let stamp = stamp(moment, has_time);
        format!("{prefix}{account}/{region}/{bucket}/{year:04}/{month:02}/{day:02}/{stamp}-{unique}")
    }

    /// Lines of what happened on different days go to different objects, where partitions are by that.
    pub(super) fn partition(&self, event_ms: u64) -> u64 {
        if self.partitions == Some(DateSource::Event) { event_ms / crate::lifecycle::DAY_MS } else { 0 }
    }
}

fn at(unix_ms: u64) -> OffsetDateTime {
    let seconds = i64::try_from(unix_ms / 1000).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// `2026-01-31-23-59-59`; by the date alone the time is zeros, as on AWS.
fn stamp(at: OffsetDateTime, has_time: bool) -> String {
    let (hour, minute, second) = if has_time { (at.hour(), at.minute(), at.second()) } else { (0, 0, 0) };
    let (year, month, day) = (at.year(), u8::from(at.month()), at.day());
    format!("{year:04}-{month:02}-{day:02}-{hour:02}-{minute:02}-{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(content: &str) -> Result<Option<(Logging, String)>, S3Error> {
        Logging::parse(format!("<BucketLoggingStatus>{content}</BucketLoggingStatus>").as_bytes())
    }

    fn enabled(prefix: &str, format: &str) -> String {
        format!(
            "<LoggingEnabled><TargetBucket>logs</TargetBucket><TargetPrefix>{prefix}</TargetPrefix>{format}</LoggingEnabled>"
        )
    }

    fn partitioned(by: &str) -> String {
        format!(
            "<TargetObjectKeyFormat><PartitionedPrefix><PartitionDateSource>{by}</PartitionDateSource></PartitionedPrefix></TargetObjectKeyFormat>"
        )
    }

    #[test]
    fn documents_are_checked() {
        assert!(parse("").unwrap().is_none());
        let (_, kept) = parse(&enabled("log/", "")).unwrap().unwrap();
        assert!(kept.contains("<SimplePrefix></SimplePrefix>"), "{kept}");
        assert!(Logging::parse(kept.as_bytes()).unwrap().is_some());
        for (content, code) in [
            (enabled("log/", &partitioned("kaboom")), S3Code::MalformedXML),
            (enabled("log/", "<TargetObjectKeyFormat/>"), S3Code::MalformedXML),
            (enabled(&"p".repeat(801), ""), S3Code::InvalidArgument),
            (enabled("", "").replace("logs", "LOGS"), S3Code::InvalidBucketName),
            ("<LoggingEnabled><TargetPrefix/></LoggingEnabled>".into(), S3Code::MalformedXML),
        ] {
            assert_eq!(parse(&content).unwrap_err().code, code, "{content}");
        }
    }

    #[test]
    fn keys_are_as_on_aws() {
        let source = Source { account: "123456789012", region: "us-east-1", bucket: "src" };
        // 2026-01-02 03:04:05 and a day before.
        let (delivered, event) = (1_767_323_045_000, 1_767_236_645_000);
        for (format, expected) in [
            (String::new(), "log/2026-01-02-03-04-05-U"),
            (partitioned("DeliveryTime"), "log/123456789012/us-east-1/src/2026/01/02/2026-01-02-03-04-05-U"),
            (partitioned("EventTime"), "log/123456789012/us-east-1/src/2026/01/01/2026-01-01-00-00-00-U"),
        ] {
            let (logging, _) = parse(&enabled("log/", &format)).unwrap().unwrap();
            assert_eq!(logging.key(&source, event, delivered, "U"), expected);
        }
    }
}
