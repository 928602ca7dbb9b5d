//! The rules of a bucket, from the document that a client sends, with all the checks that AWS makes.
//!
//! Storage classes are all one here: transitions are checked, kept and shown, and move nothing.

use std::collections::HashSet;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use s3s::dto::{self, BucketLifecycleConfiguration, TransitionStorageClass};
use sha2::{Digest, Sha256};

use super::DAY_MS;
use crate::error::{S3Code, S3Error};
use crate::s3::xml;

/// Most rules of a bucket.
const RULES_MAX: usize = 1000;
/// Longest id of a rule, in characters.
const ID_CHARS_MAX: usize = 255;
/// Longest prefix in bytes.
const PREFIX_BYTES_MAX: usize = 1024;
/// Most newer versions that a rule may spare.
const NEWER_VERSIONS_MAX: i32 = 100;
/// Least days before a transition to one of the infrequently read classes.
const INFREQUENT_DAYS_MIN: i32 = 30;

/// The rules of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LifecycleRules {
    pub(crate) rules: Vec<Rule>,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) id: String,
    pub(crate) is_enabled: bool,
    pub(crate) filter: Filter,
    pub(crate) expiration: Option<Expiration>,
    pub(crate) noncurrent: Option<Noncurrent>,
    /// Days after which uploads that were not completed are aborted.
    pub(crate) abort_days: Option<u32>,
}

/// What a rule is about: all of it must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    pub(crate) prefix: String,
    pub(crate) tags: Vec<(String, String)>,
    /// Only objects that are longer, in bytes.
    pub(crate) longer_than: Option<u64>,
    /// Only objects that are shorter, in bytes.
    pub(crate) shorter_than: Option<u64>,
}

/// When current objects end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Expiration {
    /// So many days after they were made.
    Days(u32),
    /// At this moment, and whatever is made later at once; Unix time in milliseconds.
    Date(u64),
    /// Only delete markers behind which there are no versions any more.
    LoneMarkers,
}

/// When versions end that are not current.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Noncurrent {
    /// After so many days in which they were not current.
    pub(crate) days: u32,
    /// So many of the newest of them are spared.
    pub(crate) newer: u32,
}

fn malformed() -> S3Error {
    S3Code::MalformedXML.into()
}

fn argument(message: &str) -> S3Error {
    S3Error::with(S3Code::InvalidArgument, message.to_owned())
}

/// A number of days of an action, at least one.
fn positive(days: i32, action: &str, element: &str) -> Result<u32, S3Error> {
    match u32::try_from(days) {
        Ok(days @ 1..) => Ok(days),
        _ => Err(argument(&format!("'{element}' for {action} action must be a positive integer"))),
    }
}

/// A moment, which must be the beginning of a day.
fn midnight(date: &dto::Timestamp) -> Result<u64, S3Error> {
    let moment: time::OffsetDateTime = date.clone().into();
    match u64::try_from(moment.unix_timestamp_nanos() / 1_000_000) {
        Ok(unix_ms) if unix_ms % DAY_MS == 0 && moment.nanosecond() == 0 => Ok(unix_ms),
        _ => Err(argument("'Date' must be at midnight GMT")),
    }
}

impl LifecycleRules {
    /// Reads and checks a document; gives it as it is kept, too: rules that have no id get one.
    ///
    /// # Errors
    /// `MalformedXML`, `InvalidArgument`, `InvalidRequest`.
    pub(crate) fn parse(document: &[u8]) -> Result<(Self, String), S3Error> {
        let mut configuration: BucketLifecycleConfiguration = xml::parse_lifecycle(document)?;
        if configuration.rules.is_empty() || configuration.rules.len() > RULES_MAX {
            return Err(malformed());
        }
        let mut ids = HashSet::new();
        let mut rules = Vec::with_capacity(configuration.rules.len());
        for (number, rule) in configuration.rules.iter_mut().enumerate() {
            let id = rule.id.get_or_insert_with(String::new);
            if id.is_empty() {
                *id = made_id(document, number);
            }
            if id.chars().count() > ID_CHARS_MAX {
                return Err(argument("ID length should not exceed allowed limit of 255"));
            }
            if !ids.insert(id.clone()) {
                return Err(argument(&format!("Rule ID must be unique. Found same ID for more than one rule: {id}")));
            }
            rules.push(Rule::of(rule)?);
        }
        Ok((Self { rules }, xml::canonical("LifecycleConfiguration", &configuration)?))
    }
}

/// The id of a rule that came without one: the same for the same document.
fn made_id(document: &[u8], number: usize) -> String {
    let digest = Sha256::new().chain_update(document).chain_update(number.to_be_bytes()).finalize();
    BASE64_URL_SAFE_NO_PAD.encode(digest)
}

impl Rule {
    fn of(rule: &dto::LifecycleRule) -> Result<Self, S3Error> {
        let is_enabled = match rule.status.as_str() {
            "Enabled" => true,
            "Disabled" => false,
            _ => return Err(malformed()),
        };
        let filter = match (&rule.filter, &rule.prefix) {
            (Some(filter), None) => Filter::of(filter)?,
            (None, Some(prefix)) => Filter { prefix: prefix.clone(), ..Filter::default() },
            _ => return Err(malformed()),
        };
        if filter.prefix.len() > PREFIX_BYTES_MAX {
            return Err(S3Error::request("The maximum size of a prefix is 1024."));
        }
        let expiration = rule.expiration.as_ref().map(expiration_of).transpose()?.flatten();
        let noncurrent = rule.noncurrent_version_expiration.as_ref().map(noncurrent_of).transpose()?;
        let abort_days = match &rule.abort_incomplete_multipart_upload {
            None => None,
            Some(abort) => {
                let days = abort.days_after_initiation.ok_or_else(malformed)?;
                Some(positive(days, "AbortIncompleteMultipartUpload", "DaysAfterInitiation")?)
            }
        };
        check_transitions(rule)?;
        let transitions = rule.transitions.as_ref().is_some_and(|list| !list.is_empty())
            || rule.noncurrent_version_transitions.as_ref().is_some_and(|list| !list.is_empty());
        if rule.expiration.is_none() && noncurrent.is_none() && abort_days.is_none() && !transitions {
            return Err(S3Error::request("At least one action needs to be specified in a rule."));
        }
        if abort_days.is_some() {
            filter.must_not_look_inside("AbortIncompleteMultipartUpload")?;
        }
        if rule.expiration.as_ref().is_some_and(|expiration| expiration.expired_object_delete_marker == Some(true)) {
            filter.must_not_look_inside("ExpiredObjectDeleteMarker")?;
        }
        let id = rule.id.clone().unwrap_or_default();
        Ok(Self { id, is_enabled, filter, expiration, noncurrent, abort_days })
    }
}

impl Filter {
    fn of(filter: &dto::LifecycleRuleFilter) -> Result<Self, S3Error> {
        // What stands beside each other holds together, where AWS wants all of it in an `And`.
        let mut prefix = filter.prefix.clone();
        let mut tags: Vec<dto::Tag> = filter.tag.iter().cloned().collect();
        let (mut longer, mut shorter) = (filter.object_size_greater_than, filter.object_size_less_than);
        if let Some(and) = &filter.and {
            let of_and = and.tags.clone().unwrap_or_default();
            let count = usize::from(and.prefix.is_some())
                + of_and.len()
                + usize::from(and.object_size_greater_than.is_some())
                + usize::from(and.object_size_less_than.is_some());
            if count < 2 {
                return Err(malformed());
            }
            prefix = match (prefix, and.prefix.clone()) {
                (Some(one), Some(other)) if one.starts_with(&other) => Some(one),
                (Some(one), Some(other)) if other.starts_with(&one) => Some(other),
                (Some(_), Some(_)) => return Err(malformed()),
                (one, other) => one.or(other),
            };
            tags.extend(of_and);
            longer = longer.max(and.object_size_greater_than);
            shorter = [shorter, and.object_size_less_than].into_iter().flatten().min();
        }
        let pair = |tag: dto::Tag| tag.key.zip(tag.value).ok_or_else(malformed);
        let tags: Vec<(String, String)> = tags.into_iter().map(pair).collect::<Result<_, _>>()?;
        let mut keys = HashSet::new();
        if !tags.iter().all(|(key, _)| keys.insert(key)) {
            return Err(S3Error::request("Duplicate Tag Keys are not allowed."));
        }
        if tags.iter().any(|(key, value)| key.is_empty() || key.chars().count() > 128 || value.chars().count() > 256) {
            return Err(S3Error::with(S3Code::InvalidTag, "The TagKey you have provided is invalid"));
        }
        let size = |bytes: Option<i64>, name: &str| match bytes.map(u64::try_from) {
            None => Ok(None),
            Some(Ok(bytes)) => Ok(Some(bytes)),
            Some(Err(_)) => Err(S3Error::request(format!("'{name}' has to be a value that is not negative."))),
        };
        let (longer_than, shorter_than) =
            (size(longer, "ObjectSizeGreaterThan")?, size(shorter, "ObjectSizeLessThan")?);
        if let (Some(longer), Some(shorter)) = (longer_than, shorter_than)
            && shorter <= longer
        {
            let message = "'ObjectSizeLessThan' has to be a value greater than 'ObjectSizeGreaterThan'.";
            return Err(S3Error::request(message));
        }
        Ok(Self { prefix: prefix.unwrap_or_default(), tags, longer_than, shorter_than })
    }

    /// Some actions are on what has neither tags nor a size.
    fn must_not_look_inside(&self, action: &str) -> Result<(), S3Error> {
        if !self.tags.is_empty() {
            return Err(S3Error::request(format!("{action} cannot be specified with Tags.")));
        }
        if self.longer_than.or(self.shorter_than).is_some() {
            return Err(S3Error::request(format!("{action} cannot be specified with object size.")));
        }
        Ok(())
    }
}

/// Nothing for an action that was switched off.
fn expiration_of(expiration: &dto::LifecycleExpiration) -> Result<Option<Expiration>, S3Error> {
    match (&expiration.days, &expiration.date, expiration.expired_object_delete_marker) {
        (Some(days), None, None) => Ok(Some(Expiration::Days(positive(*days, "Expiration", "Days")?))),
        (None, Some(date), None) => Ok(Some(Expiration::Date(midnight(date)?))),
        (None, None, Some(true)) => Ok(Some(Expiration::LoneMarkers)),
        (None, None, Some(false)) => Ok(None),
        _ => Err(malformed()),
    }
}

fn noncurrent_of(noncurrent: &dto::NoncurrentVersionExpiration) -> Result<Noncurrent, S3Error> {
    let days = noncurrent.noncurrent_days.ok_or_else(malformed)?;
    let days = positive(days, "NoncurrentVersionExpiration", "NoncurrentDays")?;
    let newer = match noncurrent.newer_noncurrent_versions {
        None => 0,
        Some(newer @ 1..=NEWER_VERSIONS_MAX) => newer.unsigned_abs(),
        Some(_) => {
            let message = "'NewerNoncurrentVersions' for NoncurrentVersionExpiration action must be a positive integer \
                of at most 100";
            return Err(argument(message));
        }
    };
    Ok(Noncurrent { days, newer })
}

/// Transitions move nothing here, but a document that AWS refuses is refused.
fn check_transitions(rule: &dto::LifecycleRule) -> Result<(), S3Error> {
    let expiration = rule.expiration.as_ref();
    let mut steps = Steps::of("Transition");
    for transition in rule.transitions.iter().flatten() {
        let class = check_class(transition.storage_class.as_ref())?;
        match (transition.days, &transition.date) {
            (Some(days), None) => {
                check_days(days, class, "Transition")?;
                steps.add(class, i64::from(days))?;
                if expiration.is_some_and(|expiration| expiration.date.is_some()) {
                    return Err(mixed());
                }
                if expiration.and_then(|expiration| expiration.days).is_some_and(|end| end <= days) {
                    let message =
                        "'Days' in the Expiration action must be greater than 'Days' in the Transition action";
                    return Err(argument(message));
                }
            }
            (None, Some(date)) => {
                let moment_ms = midnight(date)?;
                steps.add(class, i64::try_from(moment_ms / DAY_MS).unwrap_or(i64::MAX))?;
                if expiration.is_some_and(|expiration| expiration.days.is_some()) {
                    return Err(mixed());
                }
                let end = expiration.and_then(|expiration| expiration.date.as_ref()).map(midnight).transpose()?;
                if end.is_some_and(|end_ms| end_ms <= moment_ms) {
                    let message = "'Date' in the Expiration action must be later than 'Date' in the Transition action";
                    return Err(argument(message));
                }
            }
            _ => return Err(malformed()),
        }
    }
    steps.check()?;
    let ends = rule.noncurrent_version_expiration.as_ref().and_then(|expiration| expiration.noncurrent_days);
    let mut steps = Steps::of("NoncurrentVersionTransition");
    for transition in rule.noncurrent_version_transitions.iter().flatten() {
        let class = check_class(transition.storage_class.as_ref())?;
        let days = transition.noncurrent_days.ok_or_else(malformed)?;
        check_days(days, class, "NoncurrentVersionTransition")?;
        steps.add(class, i64::from(days))?;
        if ends.is_some_and(|end| end <= days) {
            let message = "'NoncurrentDays' in the NoncurrentVersionExpiration action must be greater than \
                'NoncurrentDays' in the NoncurrentVersionTransition action";
            return Err(argument(message));
        }
    }
    steps.check()
}

/// The transitions of a rule: each class once, and the colder the later.
struct Steps {
    action: &'static str,
    /// How cold the class is, and on which day it begins.
    steps: Vec<(usize, i64)>,
}

impl Steps {
    fn of(action: &'static str) -> Self {
        Self { action, steps: Vec::new() }
    }

    fn add(&mut self, class: &str, day: i64) -> Result<(), S3Error> {
        let rank = CLASSES.iter().position(|known| *known == class).ok_or_else(malformed)?;
        if self.steps.iter().any(|(known, _)| *known == rank) {
            let message = format!("'StorageClass' must be different for '{}' actions in same 'Rule'.", self.action);
            return Err(S3Error::request(message));
        }
        self.steps.push((rank, day));
        Ok(())
    }

    fn check(mut self) -> Result<(), S3Error> {
        self.steps.sort_unstable();
        for pair in self.steps.windows(2) {
            let [(warm, before), (cold, after)] = *pair else { continue };
            let (warm, cold) = (CLASSES[warm], CLASSES[cold]);
            let least = if INFREQUENT.contains(&warm) { i64::from(INFREQUENT_DAYS_MIN) } else { 1 };
            if after < before.saturating_add(least) {
                let action = self.action;
                return Err(argument(&format!(
                    "'Days' in the '{action}' action for StorageClass '{cold}' must be at least {least} more than in the '{action}' \
                     action for StorageClass '{warm}'"
                )));
            }
        }
        Ok(())
    }
}

fn mixed() -> S3Error {
    S3Error::request("Found mixed 'Date' and 'Days' based Expiration and Transition actions in lifecycle rule")
}

/// The classes to which a transition may lead, each colder than those before it.
const CLASSES: [&str; 6] =
    ["STANDARD_IA", "INTELLIGENT_TIERING", "ONEZONE_IA", "GLACIER_IR", "GLACIER", "DEEP_ARCHIVE"];
/// Those in which an object stays for thirty days at least.
const INFREQUENT: [&str; 2] = ["STANDARD_IA", "ONEZONE_IA"];

fn check_class(class: Option<&TransitionStorageClass>) -> Result<&str, S3Error> {
    let class = class.map(TransitionStorageClass::as_str).ok_or_else(malformed)?;
    if CLASSES.contains(&class) { Ok(class) } else { Err(malformed()) }
}

fn check_days(days: i32, class: &str, action: &str) -> Result<(), S3Error> {
    if days < 0 {
        return Err(argument(&format!("'Days' in {action} action must be nonnegative")));
    }
    if INFREQUENT.contains(&class) && days < INFREQUENT_DAYS_MIN {
        let least = INFREQUENT_DAYS_MIN;
        let message =
            format!("'Days' in {action} action must be greater than or equal to {least} for storageClass '{class}'");
        return Err(argument(&message));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(rules: &str) -> Result<(LifecycleRules, String), S3Error> {
        let document = format!("<LifecycleConfiguration>{rules}</LifecycleConfiguration>");
        LifecycleRules::parse(document.as_bytes())
    }

    fn rule(content: &str) -> String {
        format!("<Rule><ID>r</ID><Status>Enabled</Status>{content}</Rule>")
    }

    const ALL: &str = "<Filter/>";
    const DAY: &str = "<Expiration><Days>1</Days></Expiration>";

    #[test]
    fn rules_are_read() {
        let (parsed, kept) = parse(
            "<Rule><Status>Disabled</Status><Prefix>a/</Prefix><Expiration><Date>2026-01-02T00:00:00.000Z</Date></Expiration></Rule>\
             <Rule><ID>b</ID><Status>Enabled</Status><Filter><And><Prefix>b/</Prefix><Tag><Key>k</Key><Value>v</Value></Tag>\
             <ObjectSizeGreaterThan>5</ObjectSizeGreaterThan><ObjectSizeLessThan>9</ObjectSizeLessThan></And></Filter>\
             <Expiration><Days>30</Days></Expiration><NoncurrentVersionExpiration><NoncurrentDays>2</NoncurrentDays>\
             <NewerNoncurrentVersions>3</NewerNoncurrentVersions></NoncurrentVersionExpiration></Rule>\
             <Rule><ID>c</ID><Status>Enabled</Status><Filter><Prefix/></Filter><AbortIncompleteMultipartUpload>\
             <DaysAfterInitiation>7</DaysAfterInitiation></AbortIncompleteMultipartUpload>\
             <Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration></Rule>",
        )
        .unwrap();
        let [a, b, c] = &parsed.rules[..] else { panic!("{parsed:?}") };
        assert_eq!((a.id.len(), a.is_enabled, a.filter.prefix.as_str()), (43, false, "a/"));
        assert_eq!(a.expiration, Some(Expiration::Date(1_767_312_000_000)));
        assert_eq!(b.filter.tags, [("k".to_owned(), "v".to_owned())]);
        assert_eq!((b.filter.longer_than, b.filter.shorter_than), (Some(5), Some(9)));
        assert_eq!((b.expiration, b.noncurrent), (Some(Expiration::Days(30)), Some(Noncurrent { days: 2, newer: 3 })));
        assert_eq!((c.abort_days, c.expiration), (Some(7), Some(Expiration::LoneMarkers)));
        assert!(kept.contains(&format!("<ID>{}</ID>", a.id)), "{kept}");
        let again = LifecycleRules::parse(kept.as_bytes()).unwrap();
        assert_eq!(again, (parsed, kept));
    }

    #[test]
    fn documents_are_refused_as_on_aws() {
        use S3Code::{InvalidArgument, InvalidRequest, MalformedXML};
        let with = |filter: &str, action: &str| rule(&[filter, action].concat());
        let and = |content: &str| format!("<Filter><And>{content}</And></Filter>");
        let tag = "<Tag><Key>k</Key><Value>v</Value></Tag>";
        let transition = |content: &str| with(ALL, &format!("<Transition>{content}</Transition>{DAY}"));
        let table = [
            (String::new(), MalformedXML),
            (with(ALL, ""), InvalidRequest),
            (with("", DAY), MalformedXML),
            (with("<Filter/><Prefix>a</Prefix>", DAY), MalformedXML),
            (rule(&[ALL, DAY].concat()).repeat(2), InvalidArgument),
            (
                rule(&[ALL, DAY].concat()).replace("<ID>r</ID>", &format!("<ID>{}</ID>", "i".repeat(256))),
                InvalidArgument,
            ),
            (rule(&[ALL, DAY].concat()).replace("Enabled", "enabled"), MalformedXML),
            (with(ALL, "<Expiration><Days>0</Days></Expiration>"), InvalidArgument),
            (with(ALL, "<Expiration><Days>-1</Days></Expiration>"), InvalidArgument),
            (with(ALL, "<Expiration><Days>1.5</Days></Expiration>"), MalformedXML),
            (with(ALL, "<Expiration><Days>5x</Days></Expiration>"), MalformedXML),
            (with(ALL, "<Expiration/>"), MalformedXML),
            (with(ALL, "<Expiration><Date>20200101</Date></Expiration>"), MalformedXML),
            (with(ALL, "<Expiration><Date>2020-01-01T00:00:01Z</Date></Expiration>"), InvalidArgument),
            (with(ALL, "<Expiration><Days>1</Days><Date>2020-01-01T00:00:00Z</Date></Expiration>"), MalformedXML),
            (
                with(&format!("<Filter><Prefix>a</Prefix><And><Prefix>b</Prefix>{tag}</And></Filter>"), DAY),
                MalformedXML,
            ),
            (with(&and(tag), DAY), MalformedXML),
            (with(&and(&tag.repeat(2)), DAY), InvalidRequest),
            (with(&format!("<Filter><Prefix>{}</Prefix></Filter>", "p".repeat(1025)), DAY), InvalidRequest),
            (
                with(
                    &and("<ObjectSizeGreaterThan>5</ObjectSizeGreaterThan><ObjectSizeLessThan>5</ObjectSizeLessThan>"),
                    DAY,
                ),
                InvalidRequest,
            ),
            (with("<Filter><ObjectSizeLessThan>-5</ObjectSizeLessThan></Filter>", DAY), InvalidRequest),
            (
                with(
                    &format!("<Filter>{tag}</Filter>"),
                    "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>",
                ),
                InvalidRequest,
            ),
            (
                with(
                    &format!("<Filter>{tag}</Filter>"),
                    "<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload>",
                ),
                InvalidRequest,
            ),
            (
                with(
                    ALL,
                    "<AbortIncompleteMultipartUpload><DaysAfterInitiation>0</DaysAfterInitiation></AbortIncompleteMultipartUpload>",
                ),
                InvalidArgument,
            ),
            (
                with(
                    ALL,
                    "<NoncurrentVersionExpiration><NewerNoncurrentVersions>1</NewerNoncurrentVersions></NoncurrentVersionExpiration>",
                ),
                MalformedXML,
            ),
            (
                with(
                    ALL,
                    "<NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays><NewerNoncurrentVersions>101</NewerNoncurrentVersions></NoncurrentVersionExpiration>",
                ),
                InvalidArgument,
            ),
            (transition("<Days>0</Days><StorageClass>CHEAP</StorageClass>"), MalformedXML),
            (transition("<StorageClass>GLACIER</StorageClass>"), MalformedXML),
            (transition("<Days>1</Days><StorageClass>GLACIER</StorageClass>"), InvalidArgument),
            (transition("<Days>1</Days><StorageClass>STANDARD_IA</StorageClass>"), InvalidArgument),
            (transition("<Date>2020-01-01T00:00:00Z</Date><StorageClass>GLACIER</StorageClass>"), InvalidRequest),
        ];
        for (rules, code) in table {
            assert_eq!(parse(&rules).unwrap_err().code, code, "{rules}");
        }
        let step = |days: i32, class: &str| {
            format!("<Transition><Days>{days}</Days><StorageClass>{class}</StorageClass></Transition>")
        };
        for (steps, expected) in [
            (&[(30, "STANDARD_IA"), (60, "GLACIER")][..], None),
            (&[(60, "GLACIER"), (30, "STANDARD_IA")], None),
            (&[(30, "STANDARD_IA"), (59, "GLACIER")], Some(InvalidArgument)),
            (&[(60, "STANDARD_IA"), (30, "GLACIER")], Some(InvalidArgument)),
            (&[(0, "GLACIER"), (1, "DEEP_ARCHIVE")], None),
            (&[(1, "GLACIER"), (1, "DEEP_ARCHIVE")], Some(InvalidArgument)),
            (&[(1, "GLACIER"), (2, "GLACIER")], Some(InvalidRequest)),
        ] {
            let steps: String = steps.iter().map(|(days, class)| step(*days, class)).collect();
            assert_eq!(parse(&with(ALL, &steps)).err().map(|error| error.code), expected, "{steps}");
            let steps =
                steps.replace("Transition>", "NoncurrentVersionTransition>").replace("Days>", "NoncurrentDays>");
            assert_eq!(parse(&with(ALL, &steps)).err().map(|error| error.code), expected, "{steps}");
        }
        let ends = |days: i32| {
            format!(
                "<NoncurrentVersionTransition><NoncurrentDays>5</NoncurrentDays><StorageClass>GLACIER</StorageClass></NoncurrentVersionTransition>\
                <NoncurrentVersionExpiration><NoncurrentDays>{days}</NoncurrentDays></NoncurrentVersionExpiration>"
            )
        };
        assert_eq!(parse(&with(ALL, &ends(5))).unwrap_err().code, InvalidArgument);
        assert!(parse(&with(ALL, &ends(6))).is_ok());
        assert!(parse(&transition("<Days>0</Days><StorageClass>GLACIER</StorageClass>")).is_ok());
        let many: String =
            (0..1001).map(|number| rule(&[ALL, DAY].concat()).replace("<ID>r", &format!("<ID>{number}"))).collect();
        assert_eq!(parse(&many).unwrap_err().code, MalformedXML);
    }
}
