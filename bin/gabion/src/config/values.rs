//! The types of settings: what a text may say, and how a value is shown.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use gabion_platform::DriverChoice;
use gabion_segment::Durability;
use gabion_server::notifications::{Destination, NotificationTarget, WhenFull};
use gabion_server::s3::{CustomerKeys, Ownership, check_domain, check_region};
use gabion_store::{EncryptionScheme, EtagKind};
use gabion_types::Geometry;
use tracing_subscriber::EnvFilter;

/// A value of a setting. Lists have many texts, everything else exactly one.
pub(crate) trait Value: Sized {
    /// Type and unit, for humans.
    const UNIT: &'static str;
    /// Whether it takes any number of texts.
    const LIST: bool = false;

    /// Reads the texts of a setting.
    fn parse(texts: &[String]) -> Result<Self, String>;
}

/// A value that is one text.
pub(crate) trait Scalar: Sized {
    /// Type and unit, for humans.
    const UNIT: &'static str;

    /// Reads the text.
    fn read(text: &str) -> Result<Self, String>;
}

impl<T: Scalar> Value for T {
    const UNIT: &'static str = T::UNIT;

    fn parse(texts: &[String]) -> Result<Self, String> {
        match texts {
            [text] => T::read(text),
            [] => Err("a value is needed".to_owned()),
            _ => Err(format!("one value is needed, not {}", texts.len())),
        }
    }
}

impl<T: Scalar> Value for Option<T> {
    const UNIT: &'static str = T::UNIT;

    fn parse(texts: &[String]) -> Result<Self, String> {
        match texts {
            [] => Ok(None),
            [text] if text.is_empty() => Ok(None),
            _ => <T as Value>::parse(texts).map(Some),
        }
    }
}

impl<T: Scalar> Value for Vec<T> {
    const UNIT: &'static str = T::UNIT;
    const LIST: bool = true;

    fn parse(texts: &[String]) -> Result<Self, String> {
        texts.iter().filter(|text| !text.is_empty()).map(|text| T::read(text)).collect()
    }
}

/// A list that can be switched off by the single word `none`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OptionalList<T>(pub(crate) Vec<T>);

impl<T: Scalar> Value for OptionalList<T> {
    const UNIT: &'static str = T::UNIT;
    const LIST: bool = true;

    fn parse(texts: &[String]) -> Result<Self, String> {
        match texts {
            [text] if text == "none" => Ok(Self(Vec::new())),
            [text] if ["off", "no", "false"].contains(&text.as_str()) => {
                Err(format!("{text:?} is not understood: write none to switch it off"))
            }
            _ => <Vec<T> as Value>::parse(texts).map(Self),
        }
    }
}

/// A number of bytes, with an optional unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ByteCount(pub(crate) u64);

impl ByteCount {
    /// As a length in memory.
    pub(crate) fn in_memory(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl Scalar for ByteCount {
    const UNIT: &'static str = "bytes, with a unit if you like: 4096, 64KiB, 16MiB, 1GiB, 1TiB";

    fn read(text: &str) -> Result<Self, String> {
        const UNITS: [(&str, u64); 11] = [
            ("", 1),
            ("B", 1),
            ("KiB", 1 << 10),
            ("MiB", 1 << 20),
            ("GiB", 1 << 30),
            ("TiB", 1 << 40),
            ("K", 1 << 10),
            ("M", 1 << 20),
            ("G", 1 << 30),
            ("kB", 1000),
            ("MB", 1_000_000),
        ];
        let (number, unit) = split_unit(text)?;
        let (_, scale) = UNITS
            .iter()
            .find(|(name, _)| *name == unit)
            .ok_or_else(|| format!("{unit:?} is no unit of bytes: write 4096, 64KiB, 16MiB, 1GiB or 1TiB"))?;
        number.checked_mul(*scale).map(ByteCount).ok_or_else(|| "the number is too large".to_owned())
    }
}

/// A part of a whole.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd)]
pub(crate) struct Ratio(pub(crate) f64);

impl Scalar for Ratio {
    const UNIT: &'static str = "a number from 0 to 1";

    fn read(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(Ratio(ratio)),
            _ => Err(format!("{text:?} is no number from 0 to 1")),
        }
    }
}

/// A time, with its unit; longer than zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span(pub(crate) Duration);

impl Span {
    /// In milliseconds.
    pub(crate) fn millis(self) -> u64 {
        u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX)
    }
}

impl Scalar for Span {
    const UNIT: &'static str = "time with its unit: 500ms, 30s, 5m, 1h";

    fn read(text: &str) -> Result<Self, String> {
        match millis(text)? {
            0 => Err("it must be longer than zero".to_owned()),
            millis => Ok(Span(Duration::from_millis(millis))),
        }
    }
}

/// How long something is waited for: a time, with its unit; not at all when it is zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wait(u64);

impl Wait {
    /// In milliseconds.
    pub(crate) fn millis(self) -> u64 {
        self.0
    }
}

impl Scalar for Wait {
    const UNIT: &'static str = <Span as Scalar>::UNIT;

    fn read(text: &str) -> Result<Self, String> {
        millis(text).map(Wait)
    }
}

/// Milliseconds of a time with its unit.
fn millis(text: &str) -> Result<u64, String> {
    /// A year: nothing here waits longer, and no clock arithmetic can overflow.
    const MILLIS_MAX: u64 = 365 * 24 * 3_600_000;
    let (number, unit) = split_unit(text)?;
    let scale = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" | "min" => 60_000,
        "h" => 3_600_000,
        "" => return Err(format!("the unit is missing: write {number}s or {number}ms")),
        _ => return Err(format!("{unit:?} is no unit of time: write 500ms, 30s, 5m or 1h")),
    };
    let millis = number.checked_mul(scale).filter(|millis| *millis <= MILLIS_MAX);
    millis.ok_or_else(|| "it must be shorter than a year".to_owned())
}

fn split_unit(text: &str) -> Result<(u64, &str), String> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    if digits.is_empty() {
        return Err(format!("{text:?} does not begin with a whole number"));
    }
    let number = digits.parse().map_err(|_| "the number is too large".to_owned())?;
    Ok((number, unit.trim_start()))
}

impl Scalar for usize {
    const UNIT: &'static str = "whole number";

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("{text:?} is no whole number"))
    }
}

impl Scalar for bool {
    const UNIT: &'static str = "true or false";

    fn read(text: &str) -> Result<Self, String> {
        text.parse().map_err(|_| format!("{text:?} is neither true nor false"))
    }
}

impl Scalar for String {
    const UNIT: &'static str = "text";

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("it must not be empty".to_owned()) } else { Ok(text.to_owned()) }
    }
}

impl Scalar for PathBuf {
    const UNIT: &'static str = "path";

    fn read(text: &str) -> Result<Self, String> {
        if text.is_empty() { Err("it must not be empty".to_owned()) } else { Ok(text.into()) }
    }
}

impl Scalar for Geometry {
    const UNIT: &'static str = "k+m: data and parity shards, e.g. 4+2";

    fn read(text: &str) -> Result<Self, String> {
        Geometry::from_str(text).map_err(|error| error.to_string())
    }
}

impl Scalar for Durability {
    const UNIT: &'static str = "sync or relaxed";

    fn read(text: &str) -> Result<Self, String> {
        Durability::from_str(text).map_err(|_| format!("{text:?} is neither sync nor relaxed"))
    }
}

impl Scalar for Ownership {
    const UNIT: &'static str = "BucketOwnerEnforced, BucketOwnerPreferred or ObjectWriter";

    fn read(text: &str) -> Result<Self, String> {
        Self::parse(text).ok_or_else(|| format!("{text:?} is not one of {}", <Self as Scalar>::UNIT))
    }
}

impl Scalar for EtagKind {
    const UNIT: &'static str = "md5 or crc64nvme";

    fn read(text: &str) -> Result<Self, String> {
        EtagKind::from_str(text)
    }
}

impl Scalar for DriverChoice {
    const UNIT: &'static str = "auto, io_uring or threads";

    fn read(text: &str) -> Result<Self, String> {
        DriverChoice::from_str(text).map_err(|error| error.to_string())
    }
}

/// Where a socket listens: `address:port` or `name:port`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListenAddress(pub(crate) String);

impl Scalar for ListenAddress {
    const UNIT: &'static str = "address:port, e.g. 127.0.0.1:9000, 0.0.0.0:9000, [::]:9000";

    fn read(text: &str) -> Result<Self, String> {
        let Some((host, port)) = text.rsplit_once(':') else {
            return Err(match text.parse::<u16>() {
                Ok(port) => format!("{text:?} has no address: write 127.0.0.1:{port}, or 0.0.0.0:{port} for all"),
                Err(_) => format!("{text:?} has no port: write {text}:9000"),
            });
        };
        if port.parse::<u16>().is_err() {
            return Err(format!("{port:?} is no port: it must be a number from 0 to 65535"));
        }
        if host.is_empty() {
            return Err(format!("{text:?} has no address: write 0.0.0.0:{port} for all"));
        }
        Ok(Self(text.to_owned()))
    }
}

/// The name of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RegionName(pub(crate) String);

impl Scalar for RegionName {
    const UNIT: &'static str = "text: lower-case letters, digits and hyphens";

    fn read(text: &str) -> Result<Self, String> {
        check_region(text).map_err(|error| error.to_string())?;
        Ok(Self(text.to_owned()))
    }
}

/// A domain under which buckets have names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DomainName(pub(crate) String);

impl Scalar for DomainName {
    const UNIT: &'static str = "domain, e.g. s3.example.org";

    fn read(text: &str) -> Result<Self, String> {
        check_domain(text).map_err(|error| error.to_string())?;
        Ok(Self(text.to_owned()))
    }
}

/// Where a web server answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WebAddress(pub(crate) String);

impl Scalar for WebAddress {
    const UNIT: &'static str = "address that begins with http:// or https://";

    fn read(text: &str) -> Result<Self, String> {
        gabion_server::check_web_address(text)?;
        Ok(Self(text.to_owned()))
    }
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogLevel(pub(crate) tracing::Level);

impl Scalar for LogLevel {
    const UNIT: &'static str = "error, warn, info, debug or trace";

    fn read(text: &str) -> Result<Self, String> {
        let level = match text {
            "error" => tracing::Level::ERROR,
            "warn" => tracing::Level::WARN,
            "info" => tracing::Level::INFO,
            "debug" => tracing::Level::DEBUG,
            "trace" => tracing::Level::TRACE,
            _ => return Err(format!("{text:?} is no level: it is error, warn, info, debug or trace")),
        };
        Ok(Self(level))
    }
}

/// What is logged of which part, beyond its level.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LogFilter(pub(crate) String);

impl Scalar for LogFilter {
    const UNIT: &'static str = "directives, e.g. info,gabion_store=debug";

    fn read(text: &str) -> Result<Self, String> {
        match EnvFilter::try_new(text) {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(error) => Err(format!("{text:?} is no filter: {error}")),
        }
    }
}

/// How the log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LogFormat {
    /// For humans.
    Text,
    /// One JSON object per line.
    Json,
}

impl Scalar for LogFormat {
    const UNIT: &'static str = "text or json";

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "text" => Ok(Self::Text),
            "json" => Ok(Self::Json),
            _ => Err(format!("{text:?} is neither text nor json")),
        }
    }
}

/// Where the access log goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AccessLogChoice {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// A file.
    File(PathBuf),
}

impl Scalar for AccessLogChoice {
    const UNIT: &'static str = "off, stdout, or the path of a file";

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("it must not be empty: write off, stdout, or the path of a file".to_owned()),
            "off" => Ok(Self::Off),
            "stdout" | "-" => Ok(Self::Stdout),
            path => Ok(Self::File(path.into())),
        }
    }
}

/// How objects are encrypted of which nothing is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DefaultEncryption(pub(crate) Option<EncryptionScheme>);

impl Scalar for DefaultEncryption {
    const UNIT: &'static str = "none, AES256 (SSE-S3) or aws:kms (SSE-KMS)";

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self(None)),
            "AES256" => Ok(Self(Some(EncryptionScheme::Master))),
            "aws:kms" => Ok(Self(Some(EncryptionScheme::KeyService))),
            other => Err(format!("{other:?} is neither none nor AES256 nor aws:kms")),
        }
    }
}

/// Over which connections customers may show keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CustomerKeysChoice(pub(crate) CustomerKeys);

impl Scalar for CustomerKeysChoice {
    const UNIT: &'static str = "tls, local or any";

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "tls" => Ok(Self(CustomerKeys::Encrypted)),
            "local" => Ok(Self(CustomerKeys::Local)),
            "any" => Ok(Self(CustomerKeys::Any)),
            other => Err(format!("{other:?} is neither tls nor local nor any")),
        }
    }
}

/// Somebody who can be notified: `NAME=URL`.
#[derive(Debug, Clone)]
pub(crate) struct NotificationTargetUrl(pub(crate) NotificationTarget);

impl PartialEq for NotificationTargetUrl {
    fn eq(&self, other: &Self) -> bool {
        let said = |target: &NotificationTarget| -> (String, Destination) {
            (target.name.clone(), target.destination.clone())
        };
        said(&self.0) == said(&other.0)
    }
}

impl Scalar for NotificationTargetUrl {
    const UNIT: &'static str =
        "NAME=URL, e.g. hook=https://hooks.example.org/s3, bus=nats://nats.example.org/s3.events";

    fn read(text: &str) -> Result<Self, String> {
        NotificationTarget::parse(text).map(Self)
    }
}

/// What becomes of events when too many wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WhenFullChoice(pub(crate) WhenFull);

impl Scalar for WhenFullChoice {
    const UNIT: &'static str = "refuse or drop";

    fn read(text: &str) -> Result<Self, String> {
        match text {
            "refuse" => Ok(Self(WhenFull::Refuse)),
            "drop" => Ok(Self(WhenFull::Drop)),
            other => Err(format!("{other:?} is neither refuse nor drop")),
        }
    }
}

impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(bytes) = *self;
        for (unit, scale) in [("TiB", 1_u64 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if bytes >= scale && bytes.is_multiple_of(scale) {
                return write!(f, "{}{unit}", bytes / scale);
            }
        }
        write!(f, "{bytes}")
    }
}
