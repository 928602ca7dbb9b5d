//! What a bucket says of whom to notify of what: the document, read and checked.
//!
//! Source: AWS, "PutBucketNotificationConfiguration", "Amazon S3 Event Notifications": at most one configuration is about an event of a key,
//! which is why filters may not overlap.

use s3s::dto;
use sha2::{Digest, Sha256};

use super::event::{EventName, EventSet};
use crate::error::{S3Code, S3Error};
use crate::s3::xml;

/// Most configurations of a bucket.
const RULES_MAX: usize = 100;
/// Longest id of a configuration, in characters.
const ID_CHARS_MAX: usize = 255;
/// Longest prefix or suffix in bytes.
const FILTER_BYTES_MAX: usize = 1024;

/// Whom AWS would notify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Service {
    Topic,
    Queue,
    Function,
}

impl Service {
    /// As ARNs name it.
    const fn in_arn(self) -> &'static str {
        match self {
            Service::Topic => "sns",
            Service::Queue => "sqs",
            Service::Function => "lambda",
        }
    }

    /// What is said when there is none of that name.
    pub(crate) const fn missing(self) -> &'static str {
        match self {
            Service::Topic => "The destination topic does not exist",
            Service::Queue => "The destination queue does not exist",
            Service::Function => "The destination Lambda function does not exist",
        }
    }
}

/// One configuration: of what whom to notify.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(super) id: String,
    pub(crate) service: Service,
    pub(crate) arn: String,
    /// The name of the target in it.
    pub(crate) target: String,
    events: EventSet,
    prefix: String,
    suffix: String,
}

impl Rule {
    fn overlaps(&self, other: &Self) -> bool {
        let one_begins = |a: &str, b: &str| a.starts_with(b) || b.starts_with(a);
        let one_ends = |a: &str, b: &str| a.ends_with(b) || b.ends_with(a);
        self.events.overlaps(other.events)
            && one_begins(&self.prefix, &other.prefix)
            && one_ends(&self.suffix, &other.suffix)
    }

    fn is_about(&self, key: &str) -> bool {
        key.starts_with(self.prefix.as_str()) && key.ends_with(self.suffix.as_str())
    }

    /// Whether it gets a test event when it is configured: AWS sends none to functions.
    pub(super) fn is_announced(&self) -> bool {
        self.service != Service::Function
    }

    fn has_filter(&self) -> bool {
        !self.prefix.is_empty() || !self.suffix.is_empty()
    }
}

/// What a bucket notifies of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct NotificationRules {
    pub(crate) rules: Vec<Rule>,
}

impl NotificationRules {
    /// Reads and checks a document; gives it as it is kept, too: configurations that have no id get one. Whether there are such targets is not looked at.
    ///
    /// # Errors
    /// `MalformedXML`, `InvalidArgument`; `NotImplemented` for EventBridge.
    pub(crate) fn parse(document: &[u8]) -> Result<(Self, String), S3Error> {
        let mut read: dto::NotificationConfiguration = xml::parse_notification(document)?;
        if read.event_bridge_configuration.is_some() {
            return Err(S3Error::unsupported("EventBridgeConfiguration"));
        }
        let mut rules = Vec::new();
        for found in read.topic_configurations.iter_mut().flatten() {
            let dto::TopicConfiguration { id, topic_arn, events, filter } = found;
            rules.push(rule(Service::Topic, id, topic_arn, events, filter)?);
        }
        for found in read.queue_configurations.iter_mut().flatten() {
            let dto::QueueConfiguration { id, queue_arn, events, filter } = found;
            rules.push(rule(Service::Queue, id, queue_arn, events, filter)?);
        }
        for found in read.lambda_function_configurations.iter_mut().flatten() {
            let dto::LambdaFunctionConfiguration { id, lambda_function_arn, events, filter } = found;
            rules.push(rule(Service::Function, id, lambda_function_arn, events, filter)?);
        }
        check_together(&rules)?;
        Ok((Self { rules }, xml::canonical("NotificationConfiguration", &read)?))
    }

    /// Which one is about this event of this key: there is at most one.
    pub(super) fn about(&self, event: EventName, key: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.events.has(event) && rule.is_about(key))
    }

    /// Those that may be about one of these events, of this key if it is known.
    pub(crate) fn maybe_about<'a>(&'a self, events: EventSet, key: Option<&'a str>) -> impl Iterator<Item = &'a Rule> {
        self.rules.iter().filter(move |rule| rule.events.overlaps(events) && key.is_none_or(|key| rule.is_about(key)))
    }
}

fn rule(
    service: Service,
    id: &mut Option<String>,
    arn: &str,
    events: &[dto::Event],
    filter: &mut Option<dto::NotificationConfigurationFilter>,
) -> Result<Rule, S3Error> {
    let target =
        target_of(service, arn).ok_or_else(|| S3Error::argument(arn, arn, "The ARN is not well formed"))?.to_owned();
    let mut wanted = EventSet::default();
    for event in events {
        let event = event.as_ref();
        let known = EventSet::parse(event)
            .ok_or_else(|| S3Error::argument("Event", event, "The event is not supported for notifications"))?;
        wanted = wanted.with(known);
    }
    let (prefix, suffix) = filters(filter)?;
    let id = id.get_or_insert_with(String::new);
    if id.is_empty() {
        *id = made_id(arn, events, &prefix, &suffix);
    }
    if id.chars().count() > ID_CHARS_MAX {
        return Err(S3Error::argument("ID", id, format!("The ID must not have more than {ID_CHARS_MAX} characters.")));
    }
    Ok(Rule { id: id.clone(), service, arn: arn.to_owned(), target, events: wanted, prefix, suffix })
}

/// Prefix and suffix of a filter, whose names are written as AWS shows them.
fn filters(filter: &mut Option<dto::NotificationConfigurationFilter>) -> Result<(String, String), S3Error> {
    let (mut prefix, mut suffix) = (None, None);
    let rules = filter.iter_mut().filter_map(|filter| filter.key.as_mut()?.filter_rules.as_mut()).flatten();
    for rule in rules {
        let name = rule.name.as_ref().map(dto::FilterRuleName::as_str).unwrap_or_default();
        let value = rule.value.clone().unwrap_or_default();
        let (shown, place, twice) = match name.to_ascii_lowercase().as_str() {
            "prefix" => ("Prefix", &mut prefix, "Cannot specify more than one prefix rule in a filter."),
            "suffix" => ("Suffix", &mut suffix, "Cannot specify more than one suffix rule in a filter."),
            _ => {
                let message = "filter rule name must be either prefix or suffix";
                return Err(S3Error::argument("FilterRule.Name", name, message));
            }
        };
        if value.len() > FILTER_BYTES_MAX {
            let message = "Size of filter rule value cannot exceed 1024 bytes in UTF-8 representation";
            return Err(S3Error::argument("FilterRule.Value", &value, message));
        }
        if place.is_some() {
            return Err(S3Error::argument("FilterRule.Name", name, twice));
        }
        *place = Some(value);
        rule.name = Some(dto::FilterRuleName::from_static(shown));
    }
    Ok((prefix.unwrap_or_default(), suffix.unwrap_or_default()))
}

/// The name of the target in an ARN: its last part; in MinIO's (`arn:minio:sqs:REGION:NAME:webhook`), the one before the kind of target.
fn target_of(service: Service, arn: &str) -> Option<&str> {
    let parts: Vec<&str> = arn.split(':').collect();
    let name = match parts.as_slice() {
        ["arn", "minio", "sqs", _, name, _] => *name,
        ["arn", _, of, _, _, .., name] if *of == service.in_arn() => *name,
        _ => return None,
    };
    (!name.is_empty()).then_some(name)
}

/// The id of a configuration that came without one: the same for the same configuration.
fn made_id(arn: &str, events: &[dto::Event], prefix: &str, suffix: &str) -> String {
    use base64::Engine;
    let mut digest = Sha256::new();
    for part in events.iter().map(AsRef::as_ref).chain([arn, prefix, suffix]) {
        digest.update((part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    base64::prelude::BASE64_URL_SAFE_NO_PAD.encode(&digest.finalize()[..])
}

fn check_together(rules: &[Rule]) -> Result<(), S3Error> {
    let refused = |message: &'static str| Err(S3Error::with(S3Code::InvalidArgument, message));
    if rules.len() > RULES_MAX {
        return refused("A bucket can have at most 100 event notification configurations.");
    }
    for (at, rule) in rules.iter().enumerate() {
        for before in &rules[..at] {
            if before.overlaps(rule) {
                return refused(if before.has_filter() && rule.has_filter() {
                    "Configuration is ambiguously defined. Cannot have overlapping suffixes in two rules if the prefixes are overlapping for the same event type."
                } else {
                    "Configurations overlap. Configurations on the same bucket cannot share a common event type."
                });
            }
            if before.id == rule.id {
                return refused("Same ID used for multiple configurations. IDs must be unique");
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(content: &str) -> Result<(NotificationRules, String), S3Error> {
        NotificationRules::parse(format!("<NotificationConfiguration>{content}</NotificationConfiguration>").as_bytes())
    }

    fn queue(id: &str, event: &str, filters: &[(&str, &str)]) -> String {
        let rules: String = filters
            .iter()
            .map(|(name, value)| format!("<FilterRule><Name>{name}</Name><Value>{value}</Value></FilterRule>"))
            .collect();
        format!(
            "<QueueConfiguration><Id>{id}</Id><Queue>arn:aws:sqs:r:1:q</Queue><Event>{event}</Event><Filter><S3Key>{rules}</S3Key></Filter>\
             </QueueConfiguration>"
        )
    }

    #[test]
    fn documents_are_read_and_kept() {
        let (rules, kept) = parse(
            "<TopicConfiguration><Topic>arn:aws:sns:us-east-1::hook</Topic><Event>s3:ObjectRemoved:*</Event></TopicConfiguration>\
             <QueueConfiguration><Id>q</Id><Queue>arn:minio:sqs::hook:webhook</Queue><Event>s3:ObjectCreated:Put</Event>\
             <Event>s3:ObjectTagging:*</Event><Filter><S3Key><FilterRule><Name>SUFFIX</Name><Value>.jpg</Value></FilterRule>\
             <FilterRule><Name>prefix</Name><Value>a/</Value></FilterRule></S3Key></Filter></QueueConfiguration>\
             <CloudFunctionConfiguration><CloudFunction>arn:aws:lambda:r:123456789012:function:hook</CloudFunction>\
             <Event>s3:ObjectCreated:Copy</Event></CloudFunctionConfiguration>",
        )
        .unwrap();
        assert!(rules.rules.iter().all(|rule| rule.target == "hook"), "{rules:?}");
        assert_eq!(rules.rules[0].id.len(), 43, "a configuration without an id gets one");
        assert!(kept.contains("<Name>Suffix</Name>") && kept.contains("<Id>q</Id>"), "{kept}");
        assert_eq!(NotificationRules::parse(kept.as_bytes()).unwrap(), (rules.clone(), kept));
        let about = |event, key| rules.about(event, key).map(|rule| rule.service);
        assert_eq!(about(EventName::CreatedPut, "a/x.jpg"), Some(Service::Queue));
        assert_eq!(about(EventName::TaggingDelete, "a/x.jpg"), Some(Service::Queue));
        assert_eq!(about(EventName::CreatedPut, "a/x.png"), None);
        assert_eq!(about(EventName::CreatedPut, "b/x.jpg"), None);
        assert_eq!(about(EventName::CreatedCopy, "b"), Some(Service::Function));
        assert_eq!(about(EventName::RemovedMarker, ""), Some(Service::Topic));
        assert_eq!(about(EventName::AclPut, "a/x.jpg"), None);
        assert_eq!(parse("").unwrap().0, NotificationRules::default());
    }

    #[test]
    fn what_is_wrong_is_refused_as_on_aws() {
        let put = "s3:ObjectCreated:Put";
        let long = "x".repeat(1025);
        let many: String = (0..101).map(|n| queue(&n.to_string(), put, &[("prefix", &format!("{n:03}"))])).collect();
        for (content, message) in [
            (queue("a", "s3:ObjectCreated:Pet", &[]), "The event is not supported for notifications"),
            (queue("a", put, &[("infix", "x")]), "filter rule name must be either prefix or suffix"),
            (
                queue("a", put, &[("prefix", "x"), ("Prefix", "y")]),
                "Cannot specify more than one prefix rule in a filter.",
            ),
            (
                queue("a", put, &[("suffix", &long)]),
                "Size of filter rule value cannot exceed 1024 bytes in UTF-8 representation",
            ),
            (queue("a", put, &[]).replace("sqs", "sns"), "The ARN is not well formed"),
            (queue("a", put, &[]).replace("arn:aws:sqs:r:1:q", "q"), "The ARN is not well formed"),
            (
                queue("a", put, &[]) + &queue("b", "s3:ObjectCreated:*", &[("prefix", "x")]),
                "Configurations overlap. Configurations on the same bucket cannot share a common event type.",
            ),
            (
                queue("a", put, &[("prefix", "x/")]) + &queue("b", put, &[("prefix", "x/y"), ("suffix", ".jpg")]),
                "Configuration is ambiguously defined. Cannot have overlapping suffixes in two rules if the prefixes are overlapping for the same event type.",
            ),
            (
                queue("a", put, &[]) + &queue("a", "s3:ObjectRemoved:*", &[]),
                "Same ID used for multiple configurations. IDs must be unique",
            ),
            (many, "A bucket can have at most 100 event notification configurations."),
        ] {
            let error = parse(&content).unwrap_err();
            assert_eq!((error.code, &*error.message), (S3Code::InvalidArgument, message), "{content}");
        }
        assert_eq!(parse("<EventBridgeConfiguration/>").unwrap_err().code, S3Code::NotImplemented);
        for content in [
            "<QueueConfiguration/>",
            "<Other/>",
            "<QueueConfiguration><Queue>arn:aws:sqs:r:1:q</Queue></QueueConfiguration>",
        ] {
            assert_eq!(parse(content).unwrap_err().code, S3Code::MalformedXML, "{content}");
        }
        // The same events of other keys.
        parse(&(queue("a", put, &[("prefix", "x/")]) + &queue("b", put, &[("prefix", "y/")]))).unwrap();
        parse(&(queue("a", put, &[("suffix", ".a")]) + &queue("b", put, &[("suffix", ".b")]))).unwrap();
    }
}
