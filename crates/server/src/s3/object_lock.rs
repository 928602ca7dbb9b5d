//! Object lock: versions that nobody may delete before their time.
//!
//! What a version is kept by is part of its row, and the store refuses to delete it, whoever asks. Here are the documents, headers and
//! rules about who may change it.
//!
//! Source: AWS, "Locking objects with Object Lock".

use bytes::Bytes;
use gabion_store::{
    Attributes, ConfigScope, Configs, ObjectInfo, Retention, RetentionMode, StoreError, VERSIONING, VersionId,
    Versioning,
};
use gabion_types::BucketName;
use gabion_types::ObjectKey;
use http::header::{HeaderMap, HeaderValue};
use http::{HeaderName, Response, StatusCode};
use s3s::Body;
use s3s::dto::{ObjectLockConfiguration, ObjectLockRetention, Timestamp};
use time::OffsetDateTime;

use super::answer;
use super::body::{self, DocumentDigests};
use super::call::Call;
use super::route::Operation;
use super::xml::{Xml, parse_legal_hold, parse_lock, parse_retention};
use super::{date, versioning};
use crate::auth;
use crate::error::{S3Code, S3Error};
use crate::ops::{Ops, bucket};

/// Name of the document.
pub(super) const NAME: &str = "object-lock";
pub(super) const MODE: HeaderName = HeaderName::from_static("x-amz-object-lock-mode");
pub(super) const UNTIL: HeaderName = HeaderName::from_static("x-amz-object-lock-retain-until-date");
pub(super) const HOLD: HeaderName = HeaderName::from_static("x-amz-object-lock-legal-hold");
const BYPASS: &str = "x-amz-bypass-governance-retention";
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Longest default retention, in days and in years.
const DAYS_MAX: i32 = 36_500;
const YEARS_MAX: i32 = 100;

/// The rule of a bucket whose objects can be locked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LockRule {
    /// What objects get that come without a retention of their own.
    default: Option<(RetentionMode, Period)>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Period {
    Days(i32),
    Years(i32),
}

impl LockRule {
    /// Reads a document.
    ///
    /// # Errors
    /// `MalformedXML`, `InvalidRetentionPeriod`.
    pub(crate) fn parse(document: &[u8]) -> Result<Self, S3Error> {
        let malformed = || S3Error::new(S3Code::MalformedXML);
        let configuration: ObjectLockConfiguration = parse_lock(document)?;
        if configuration.object_lock_enabled.as_ref().map(|enabled| enabled.as_str()) != Some("Enabled") {
            return Err(malformed());
        }
        let Some(rule) = configuration.rule else { return Ok(Self { default: None }) };
        let retention = rule.default_retention.ok_or_else(malformed)?;
        let mode =
            mode(retention.mode.as_ref().map(|mode| mode.as_str()).ok_or_else(malformed)?).ok_or_else(malformed)?;
        let invalid = |what: &str| {
            let message = format!("Default retention period must be a positive integer value of {what}");
            Err(S3Error::with(S3Code::InvalidRetentionPeriod, message))
        };
        let period = match (retention.days, retention.years) {
            (Some(days @ 1..=DAYS_MAX), None) => Period::Days(days),
            (None, Some(years @ 1..=YEARS_MAX)) => Period::Years(years),
            (Some(_), None) => return invalid("days"),
            (None, Some(_)) => return invalid("years"),
            _ => return Err(malformed()),
        };
        Ok(Self { default: Some((mode, period)) })
    }

    fn document(self) -> String {
        Xml::document("ObjectLockConfiguration", |xml| {
            xml.text("ObjectLockEnabled", "Enabled");
            if let Some((mode, period)) = self.default {
                xml.element("Rule", |xml| {
                    xml.element("DefaultRetention", |xml| {
                        xml.text("Mode", name(mode));
                        match period {
                            Period::Days(days) => xml.value("Days", days),
                            Period::Years(years) => xml.value("Years", years),
                        }
                    });
                });
            }
        })
    }

    /// What an object is kept by that is made now.
    fn retention(self, now_ms: u64) -> Option<Retention> {
        let (mode, period) = self.default?;
        let days = match period {
            Period::Days(days) => days,
            Period::Years(years) => years * 365,
        };
        Some(Retention { mode, until_ms: now_ms + u64::from(days.unsigned_abs()) * DAY_MS })
    }
}

fn mode(name: &str) -> Option<RetentionMode> {
    match name {
        "GOVERNANCE" => Some(RetentionMode::Governance),
        "COMPLIANCE" => Some(RetentionMode::Compliance),
        _ => None,
    }
}

fn name(mode: RetentionMode) -> &'static str {
    match mode {
        RetentionMode::Governance => "GOVERNANCE",
        RetentionMode::Compliance => "COMPLIANCE",
    }
}

/// Whether a bucket that is created is to have versions and locks.
///
/// # Errors
/// `InvalidArgument`.
pub(crate) fn of_creation(call: &Call) -> Result<bool, S3Error> {
    const ENABLED: &str = "x-amz-bucket-object-lock-enabled";
    match call.header(ENABLED)? {
        None => Ok(false),
        Some(flag) if flag.eq_ignore_ascii_case("true") => Ok(true),
        Some(flag) if flag.eq_ignore_ascii_case("false") => Ok(false),
        Some(other) => Err(S3Error::argument(ENABLED, other, "The flag is true or false.")),
    }
}

/// What makes a new bucket one whose objects can be locked: a lock without versions would keep nothing.
pub(super) fn first_configs() -> [(&'static str, Bytes); 2] {
    [(VERSIONING, Versioning::Enabled.document().into()), (NAME, LockRule { default: None }.document().into())]
}

/// What an object that is made by a request is kept by: what the request says, or the rule of its bucket.
///
/// # Errors
/// `InvalidArgument` for headers that say nothing sensible, `InvalidRequest` for a bucket without locks.
pub(super) async fn of_put(ops: &Ops, call: &Call, attributes: &mut Attributes) -> Result<(), S3Error> {
    if let Some(rule) = of_upload(ops, call, attributes).await? {
        attributes.retention = attributes.retention.or_else(|| rule.retention(ops.clock.now_ms()));
    }
    Ok(())
}

/// What an object is kept by whose upload is begun by a request: what the request says. Else the rule of its bucket counts when it is completed: that may be
/// days later, and a rule is for what is put under it. Returns the rule.
///
/// # Errors
/// As [`of_put`].
pub(super) async fn of_upload(
    ops: &Ops,
    call: &Call,
    attributes: &mut Attributes,
) -> Result<Option<LockRule>, S3Error> {
    let said = Said::of(ops, call)?;
    let settings = call.settings(ops)?;
    let rule = match &settings.object_lock {
        None if said == Said::default() => return Ok(None),
        // AWS's own words for it, here without spaces.
        None => return Err(S3Error::request("Bucket is missing ObjectLockConfiguration")),
        Some(rule) => rule.clone()?,
    };
    for (is_said, action) in
        [(said.retention.is_some(), "s3:PutObjectRetention"), (said.hold.is_some(), "s3:PutObjectLegalHold")]
    {
        if is_said && !auth::may(ops, call, action, Some(&call.key()?), None).await? {
            return Err(S3Code::AccessDenied.into());
        }
    }
    attributes.retention = said.retention;
    attributes.legal_hold = said.hold;
    Ok(Some(rule))
}

/// What the headers of a request that makes an object say.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
struct Said {
    retention: Option<Retention>,
    hold: Option<bool>,
}

impl Said {
    /// Reads them; they must make sense whatever the bucket is.
    ///
    /// # Errors
    /// `InvalidArgument`.
    fn of(ops: &Ops, call: &Call) -> Result<Self, S3Error> {
        let retention = match (call.header(MODE.as_str())?, call.header(UNTIL.as_str())?) {
            (None, None) => None,
            (Some(given), Some(until)) => {
                let unknown = || S3Error::argument(MODE.as_str(), given, "Unknown wormMode directive.");
                let mode = mode(given).ok_or_else(unknown)?;
                let message = "The retain until date must be provided in ISO 8601 format";
                let until_ms =
                    date::parse_iso(until).ok_or_else(|| S3Error::argument(UNTIL.as_str(), until, message))?;
                Some(in_future(Retention { mode, until_ms }, ops.clock.now_ms(), UNTIL.as_str())?)
            }
            (mode, _) => {
                let missing = if mode.is_some() { UNTIL } else { MODE };
                let message = "x-amz-object-lock-retain-until-date and x-amz-object-lock-mode must both be supplied";
                return Err(S3Error::argument(missing.as_str(), "", message));
            }
        };
        let hold = match call.header(HOLD.as_str())? {
            None => None,
            Some("ON") => Some(true),
            Some("OFF") => Some(false),
            Some(other) => {
                return Err(S3Error::argument(HOLD.as_str(), other, "Legal Hold must be either of 'ON' or 'OFF'"));
            }
        };
        Ok(Self { retention, hold })
    }
}

/// What an object is kept by of which no request says it, as those that the server itself puts: the bucket's rule.
///
/// # Errors
/// When the rule can not be read; those of the index.
pub(super) fn by_default(ops: &Ops, bucket: &BucketName) -> Result<Option<Retention>, S3Error> {
    let settings = ops.settings(bucket)?;
    let Some(rule) = &settings.object_lock else { return Ok(None) };
    Ok(rule.clone()?.retention(ops.clock.now_ms()))
}

fn in_future(retention: Retention, now_ms: u64, argument: &str) -> Result<Retention, S3Error> {
    if retention.until_ms > now_ms {
        return Ok(retention);
    }
    let until = date::iso_ms(retention.until_ms).to_string();
    Err(S3Error::argument(argument, &until, "The retain until date must be in the future!"))
}

/// Shows what an object is kept by.
pub(super) fn show(attributes: &Attributes, headers: &mut HeaderMap) {
    if let Some(Retention { mode, until_ms }) = attributes.retention {
        headers.insert(MODE, HeaderValue::from_static(name(mode)));
        if let Some(until) = answer::value(format_args!("{}", date::iso_ms(until_ms))) {
            headers.insert(UNTIL, until);
        }
    }
    if let Some(hold) = attributes.legal_hold {
        headers.insert(HOLD, HeaderValue::from_static(if hold { "ON" } else { "OFF" }));
    }
}

/// Whether a request is to delete or to change what is governed, and may.
///
/// # Errors
/// `AccessDenied` when it may not.
pub(super) async fn bypasses(ops: &Ops, call: &Call) -> Result<bool, S3Error> {
    if !asks_to_bypass(ops, call)? {
        return Ok(false);
    }
    if may_bypass(ops, call, &call.key()?, call.version()?).await? {
        Ok(true)
    } else {
        Err(S3Code::AccessDenied.into())
    }
}

/// Whether a request is to delete or to change what is governed. In a bucket without locks that says nothing; AWS refuses it there, but many
/// clients send it whatever the bucket is.
///
/// # Errors
/// For a header that is none.
pub(super) fn asks_to_bypass(ops: &Ops, call: &Call) -> Result<bool, S3Error> {
    let is_said = call.header(BYPASS)?.is_some_and(|flag| flag.eq_ignore_ascii_case("true"));
    Ok(is_said && call.settings(ops)?.object_lock.is_some())
}

/// Whether who asks may do that to an object.
pub(super) async fn may_bypass(
    ops: &Ops,
    call: &Call,
    key: &ObjectKey,
    version: Option<VersionId>,
) -> Result<bool, S3Error> {
    auth::may(ops, call, "s3:BypassGovernanceRetention", Some(key), version).await
}

pub(super) async fn get(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    bucket::head(ops, &call.bucket()?).await?;
    match &call.settings(ops)?.object_lock {
        Some(rule) => Ok(answer::document(rule.clone()?.document())),
        None => Err(S3Code::ObjectLockConfigurationNotFoundError.into()),
    }
}

pub(super) async fn put(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let document = body::required(ops, call).await?;
    bucket::head(ops, &call.bucket()?).await?;
    let rule = LockRule::parse(&document)?;
    let scope = ConfigScope::Bucket(call.bucket()?);
    let is_versioned = |configs: &Configs| configs.versioning() == Versioning::Enabled;
    if let Err(error) = ops.store.put_config_if(scope, NAME, rule.document().into(), is_versioned).await {
        if !matches!(error, StoreError::PreconditionFailed(_)) {
            return Err(error.into());
        }
        let message = "Versioning must be 'Enabled' on the bucket to apply a Object Lock configuration";
        return Err(S3Error::with(S3Code::InvalidBucketState, message));
    }
    Ok(answer::empty(StatusCode::OK))
}

/// The object, in a bucket that has locks.
///
/// # Errors
/// `NoSuchBucket`, `NoSuchKey`, `NoSuchVersion`, `MethodNotAllowed` for a delete marker; then `InvalidRequest` for a bucket without locks.
async fn lockable(ops: &Ops, call: &Call) -> Result<ObjectInfo, S3Error> {
    let info = ops.store.object_info(&call.bucket()?, &call.key()?, call.version()?).await;
    let info = info.map_err(versioning::marker_is_told)?;
    if call.settings(ops)?.object_lock.is_some() {
        Ok(info)
    } else {
        Err(S3Error::request("Bucket is missing Object Lock Configuration"))
    }
}

pub(super) async fn get_retention(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let info = lockable(ops, call).await?;
    let Some(Retention { mode, until_ms }) = info.attributes.retention else {
        return Err(S3Code::NoSuchObjectLockConfiguration.into());
    };
    Ok(answer::document(Xml::document("Retention", |xml| {
        xml.text("Mode", name(mode));
        xml.value("RetainUntilDate", date::iso_ms(until_ms));
    })))
}

/// Unix time in milliseconds; the beginning for what was before it.
fn unix_ms(moment: Timestamp) -> u64 {
    u64::try_from(OffsetDateTime::from(moment).unix_timestamp_nanos() / 1_000_000).unwrap_or(0)
}

pub(super) async fn put_retention(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let document = body::document(ops, call, DocumentDigests::Any).await?;
    let malformed = || S3Error::new(S3Code::MalformedXML);
    let ObjectLockRetention { mode: given, retain_until_date } = parse_retention(&document)?;
    let now_ms = ops.clock.now_ms();
    let mut said = Vec::new();
    if let (Some(mode), Some(until)) = (&given, &retain_until_date) {
        let until_ms = unix_ms(until.clone());
        said.push(("s3:object-lock-mode", mode.as_str().to_owned()));
        said.push(("s3:object-lock-retain-until-date", date::iso(until_ms).to_string()));
        said.push((auth::REMAINING_DAYS, auth::remaining_days(until_ms, now_ms).to_string()));
    }
    auth::authorize_lock(ops, call, Operation::PutObjectRetention, &said).await?;
    let retention = match (given, retain_until_date) {
        (Some(given), Some(until)) => {
            let mode = mode(given.as_str()).ok_or_else(malformed)?;
            let until_ms = unix_ms(until);
            Some(in_future(Retention { mode, until_ms }, now_ms, "RetainUntilDate")?)
        }
        (None, None) => None,
        _ => return Err(malformed()),
    };
    lockable(ops, call).await?;
    let bypass = bypasses(ops, call).await?;
    let change = move |attributes: &mut Attributes| {
        if let Some(before) = attributes.retention.filter(|before| before.until_ms > now_ms) {
            let extends = retention.is_some_and(|after| after.mode == before.mode && after.until_ms >= before.until_ms);
            let may_weaken = bypass && before.mode == RetentionMode::Governance;
            if !extends && !may_weaken {
                return Err(StoreError::AccessDenied("Access Denied because object protected by object lock."));
            }
        }
        attributes.retention = retention;
        Ok(())
    };
    ops.store.update_attributes(call.bucket()?, call.key()?, call.version()?, change).await?;
    Ok(answer::empty(StatusCode::OK))
}

pub(super) async fn get_legal_hold(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let info = lockable(ops, call).await?;
    let Some(hold) = info.attributes.legal_hold else {
        return Err(S3Code::NoSuchObjectLockConfiguration.into());
    };
    Ok(answer::document(Xml::document("LegalHold", |xml| xml.text("Status", if hold { "ON" } else { "OFF" }))))
}

pub(super) async fn put_legal_hold(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let document = body::document(ops, call, DocumentDigests::Any).await?;
    let asked = parse_legal_hold(&document)?.status;
    let said = asked.as_ref().map(|status| ("s3:object-lock-legal-hold", status.as_str().to_owned()));
    auth::authorize_lock(ops, call, Operation::PutObjectLegalHold, said.as_slice()).await?;
    let hold = match asked.as_ref().map(|status| status.as_str()) {
        Some("ON") => true,
        Some("OFF") => false,
        _ => return Err(S3Code::MalformedXML.into()),
    };
    lockable(ops, call).await?;
    let change = move |attributes: &mut Attributes| {
        attributes.legal_hold = Some(hold);
        Ok(())
    };
    ops.store.update_attributes(call.bucket()?, call.key()?, call.version()?, change).await?;
    Ok(answer::empty(StatusCode::OK))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(rule: &str) -> String {
        format!(
            "<ObjectLockConfiguration><ObjectLockEnabled>Enabled</ObjectLockEnabled>{rule}</ObjectLockConfiguration>"
        )
    }

    fn rule(retention: &str) -> String {
        document(&format!("<Rule><DefaultRetention>{retention}</DefaultRetention></Rule>"))
    }

    #[test]
    fn rules_are_read_and_shown() {
        for (text, default) in [
            (document(""), None),
            (rule("<Mode>GOVERNANCE</Mode><Days>1</Days>"), Some((RetentionMode::Governance, Period::Days(1)))),
            (rule("<Mode>COMPLIANCE</Mode><Years>100</Years>"), Some((RetentionMode::Compliance, Period::Years(100)))),
        ] {
            let parsed = LockRule::parse(text.as_bytes()).unwrap();
            assert_eq!(parsed, LockRule { default });
            assert_eq!(LockRule::parse(parsed.document().as_bytes()).unwrap(), parsed);
        }
        for (text, code) in [
            ("<ObjectLockConfiguration/>".to_owned(), S3Code::MalformedXML),
            (document("<Rule/>"), S3Code::MalformedXML),
            (rule("<Mode>GOVERNANCE</Mode>"), S3Code::MalformedXML),
            (rule("<Mode>governance</Mode><Days>1</Days>"), S3Code::MalformedXML),
            (rule("<Mode>GOVERNANCE</Mode><Days>1</Days><Years>1</Years>"), S3Code::MalformedXML),
            (rule("<Mode>GOVERNANCE</Mode><Days>0</Days>"), S3Code::InvalidRetentionPeriod),
            (rule("<Mode>GOVERNANCE</Mode><Years>101</Years>"), S3Code::InvalidRetentionPeriod),
        ] {
            assert_eq!(LockRule::parse(text.as_bytes()).unwrap_err().code, code, "{text}");
        }
    }

    #[test]
    fn a_rule_gives_new_objects_their_time() {
        let rule = |period| LockRule { default: Some((RetentionMode::Governance, period)) };
        assert_eq!(rule(Period::Days(2)).retention(5).unwrap().until_ms, 5 + 2 * DAY_MS);
        assert_eq!(rule(Period::Years(1)).retention(5).unwrap().until_ms, 5 + 365 * DAY_MS);
        assert_eq!(LockRule { default: None }.retention(5), None);
    }
}
