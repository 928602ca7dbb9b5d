//! Adapters of notifications: what a bucket says of them, and what the operations on objects tell.
//!
//! An operation of which somebody wants to be told is watched: it runs to its end also if the client hangs up, and is answered when its events are durable.

use gabion_store::{Deleted, Etag, ObjectInfo, PutResult, VersionId};
use http::Response;
use s3s::Body;

use super::answer::{self, About};
use super::body;
use super::call::Call;
use super::configs;
use super::route::Operation;
use super::xml::Xml;
use crate::credentials::Identity;
use crate::error::{S3Code, S3Error};
use crate::notifications::{EventName, EventSet, Happened, NotificationRules, Origin};
use crate::ops::Ops;

/// The name of the document.
pub(crate) const NAME: &str = "notification";
/// The tag that AWS gives to a delete marker: that of no bytes.
const MARKER_TAG: &str = "d41d8cd98f00b204e9800998ecf8427e";

pub(super) async fn put(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let document = body::required(ops, call).await?;
    let (rules, kept) = NotificationRules::parse(&document)?;
    let skips = call.header("x-amz-skip-destination-validation")?.is_some_and(|skip| skip.eq_ignore_ascii_case("true"));
    let account = account(ops, call)?;
    if !skips {
        check_targets(ops, &rules, account.as_deref())?;
    }
    ops.notifier.admit_announcement(&rules, account.as_deref())?;
    if rules.rules.is_empty() {
        configs::delete(ops, call, NAME).await?;
        return Ok(answer::empty(http::StatusCode::OK));
    }
    let response = configs::put(ops, call, NAME, kept).await?;
    let settings = ops.settings(&call.bucket()?)?;
    ops.notifier.announce(&rules, &origin(ops, call, settings.access.owner.as_deref())?).await?;
    Ok(response)
}

/// Whether there is everybody who is to be notified, for buckets of this account.
fn check_targets(ops: &Ops, rules: &NotificationRules, account: Option<&str>) -> Result<(), S3Error> {
    match rules.rules.iter().find(|rule| !ops.notifier.knows(&rule.target, account)) {
        Some(rule) => {
            let message = "Unable to validate the following destination configurations";
            Err(S3Error::with(S3Code::InvalidArgument, message)
                .detail("ArgumentName1", rule.arn.clone())
                .detail("ArgumentValue1", rule.service.missing()))
        }
        None => Ok(()),
    }
}

pub(super) async fn get(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let none = || answer::document(Xml::document("NotificationConfiguration", |_| {}));
    Ok(configs::get(ops, call, NAME).await?.unwrap_or_else(none))
}

/// What may happen to objects because of an operation; nothing for one that changes none.
fn events_of(operation: Operation) -> Option<EventSet> {
    use EventName as E;
    use Operation as O;
    let events: &[EventName] = match operation {
        O::PutObject => &[E::CreatedPut],
        O::PostObject => &[E::CreatedPost],
        O::CopyObject => &[E::CreatedCopy],
        O::RenameObject => &[E::CreatedCopy, E::RemovedDelete],
        O::CompleteMultipartUpload => &[E::CreatedMultipart],
        O::DeleteObject | O::DeleteObjects => &[E::RemovedDelete, E::RemovedMarker],
        O::PutObjectTagging => &[E::TaggingPut],
        O::DeleteObjectTagging => &[E::TaggingDelete],
        O::PutObjectAcl => &[E::AclPut],
        _ => return None,
    };
    Some(EventSet::of(events))
}

/// An operation of which somebody wants to be told.
pub(crate) struct Watch {
    events: EventSet,
    request_id: String,
}

impl Watch {
    /// Nothing when nobody wants to be told.
    ///
    /// # Errors
    /// Those of the index; `InternalError` when it can not be read who wants to.
    pub(super) fn of(ops: &Ops, call: &Call, about: &About<'_>) -> Result<Option<Box<Self>>, S3Error> {
        let Some(events) = call.routed.operation.as_ref().ok().and_then(|operation| events_of(*operation)) else {
            return Ok(None);
        };
        let Some(rules) = rules(ops, call)? else { return Ok(None) };
        let is_wanted = rules.maybe_about(events, only_key(call)).next().is_some();
        Ok(is_wanted.then(|| Box::new(Self { events, request_id: about.request_id.to_owned() })))
    }

    /// Whether its events may be added.
    ///
    /// # Errors
    /// `SlowDown`, `ServiceUnavailable`.
    pub(super) fn admit(&self, ops: &Ops, call: &Call) -> Result<(), S3Error> {
        let Some(rules) = rules(ops, call)? else { return Ok(()) };
        ops.notifier.admit(rules, self.events, only_key(call), account(ops, call)?.as_deref())
    }
}

/// The key that a request is about; nothing for one that is about others, too.
fn only_key(call: &Call) -> Option<&str> {
    let is_of_one = !matches!(call.routed.operation, Ok(Operation::RenameObject));
    call.routed.key.as_ref().filter(|_| is_of_one).map(|key| key.as_str())
}

fn rules<'a>(ops: &Ops, call: &'a Call) -> Result<Option<&'a NotificationRules>, S3Error> {
    call.settings(ops)?.notifications.as_ref().map(|rules| rules.as_ref().map_err(Clone::clone)).transpose()
}

/// The account that owns the bucket.
fn account(ops: &Ops, call: &Call) -> Result<Option<String>, S3Error> {
    let owner = call.settings(ops)?.access.owner.as_deref();
    Ok(owner.and_then(|owner| ops.account_id(owner)))
}

/// Who did it, for whoever is told.
fn origin(ops: &Ops, call: &Call, owner: Option<&str>) -> Result<Origin, S3Error> {
    Ok(Origin {
        region: ops.region.clone(),
        bucket: call.bucket()?.as_str().to_owned(),
        owner: owner.unwrap_or_default().to_owned(),
        account: owner.and_then(|owner| ops.account_id(owner)),
        principal: principal(call.caller()),
        source: call.source().to_string(),
        request_id: call.watch.as_ref().map(|watch| watch.request_id.clone()).unwrap_or_default(),
        time_ms: ops.clock.now_ms(),
    })
}

fn principal(caller: &Identity) -> String {
    if caller.is_anonymous() { "Anonymous".to_owned() } else { format!("AWS:{}", caller.user_id()) }
}

/// Tells what a watched operation did; it is durable when this returns.
///
/// # Errors
/// `ServiceUnavailable` when it may not be durable.
pub(super) async fn tell(ops: &Ops, call: &Call, happened: Vec<Happened>) -> Result<(), S3Error> {
    let Some(rules) = rules(ops, call)?.filter(|_| !happened.is_empty()) else { return Ok(()) };
    let owner = call.settings(ops)?.access.owner.as_deref();
    ops.notifier.tell(rules, &origin(ops, call, owner)?, &happened).await
}

/// That an object was made.
pub(super) fn created(event: EventName, key: &str, made: &PutResult) -> Happened {
    Happened {
        event,
        key: key.to_owned(),
        size: Some(made.size),
        etag: Some(made.etag.to_string()),
        version: made.version,
        seq: Some(made.seq),
    }
}

/// That an object has another key: what it would be with a copy and a deletion.
pub(super) fn renamed(from: &str, to: &str, info: &ObjectInfo) -> Vec<Happened> {
    let made = Happened {
        event: EventName::CreatedCopy,
        key: to.to_owned(),
        size: Some(info.size),
        etag: Some(info.etag.to_string()),
        version: None,
        seq: Some(info.seq),
    };
    let gone = Happened {
        event: EventName::RemovedDelete,
        key: from.to_owned(),
        size: None,
        etag: None,
        version: None,
        seq: Some(info.seq),
    };
    vec![made, gone]
}

/// What a deletion did, if it did anything: `events` for what is gone, and for a delete marker in its place.
pub(crate) fn deleted(
    (gone, marked): (EventName, EventName),
    key: &str,
    named_version: bool,
    deleted: &Deleted,
) -> Option<Happened> {
    // A delete marker that is named is deleted itself.
    let is_made = deleted.is_marker && !named_version;
    (deleted.existed || is_made).then(|| Happened {
        event: if is_made { marked } else { gone },
        key: key.to_owned(),
        size: None,
        etag: is_made.then(|| MARKER_TAG.to_owned()),
        version: deleted.version,
        seq: deleted.seq,
    })
}

/// That something is said about an object that was not said before.
pub(super) fn described(event: EventName, key: &str, etag: &Etag, version: Option<VersionId>) -> Happened {
    Happened { event, key: key.to_owned(), size: None, etag: Some(etag.to_string()), version, seq: None }
}

#[cfg(test)]
mod tests {
    use gabion_types::Seq;

    use super::*;

    #[test]
    fn what_a_deletion_did_is_told() {
        let events = (EventName::RemovedDelete, EventName::RemovedMarker);
        let made = |existed, version, is_marker| Deleted { existed, version, is_marker, seq: Some(Seq::from_u64(9)) };
        let version = Some(VersionId::Of(Seq::from_u64(7)));
        for (result, named, expected) in [
            (made(true, None, false), false, Some((EventName::RemovedDelete, None))),
            (made(false, None, false), false, None),
            (made(false, version, true), false, Some((EventName::RemovedMarker, version))),
            (made(true, version, true), true, Some((EventName::RemovedDelete, version))),
            (made(false, version, false), true, None),
        ] {
            let told = deleted(events, "k", named, &result);
            assert_eq!(told.map(|told| (told.event, told.version)), expected, "{result:?}");
        }
    }
}
