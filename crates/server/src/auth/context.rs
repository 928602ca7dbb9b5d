//! What policies may look at: condition keys and their values.
//!
//! Source: AWS, "AWS global condition context keys", "Actions, resources, and condition keys for Amazon S3".

use gabion_policy::{Context, Principal};
use gabion_store::EtagMatch;

use super::version_2;
use crate::credentials::{self, Identity};
use crate::error::S3Error;
use crate::lifecycle::DAY_MS;
use crate::ops::Ops;
use crate::s3::{Call, Operation, date, source_name, tags};

/// Headers that are keys by their own name.
const HEADERS: [&str; 15] = [
    "x-amz-acl",
    "x-amz-content-sha256",
    "x-amz-grant-full-control",
    "x-amz-grant-read",
    "x-amz-grant-read-acp",
    "x-amz-grant-write",
    "x-amz-grant-write-acp",
    "x-amz-metadata-directive",
    "x-amz-object-ownership",
    "x-amz-server-side-encryption",
    "x-amz-server-side-encryption-customer-algorithm",
    "x-amz-storage-class",
    "x-amz-website-redirect-location",
    "x-amz-if-match",
    "x-amz-if-none-match",
];

/// What is copied.
const COPY_SOURCE: &str = "x-amz-copy-source";
/// What an object is encrypted with.
const KMS_KEY: &str = "x-amz-server-side-encryption-aws-kms-key-id";
/// The tag that the object must have.
pub(crate) const IF_MATCH: &str = "s3:if-match";
/// The tags that it must not have.
pub(crate) const IF_NONE_MATCH: &str = "s3:if-none-match";

/// Headers that say how a new object is locked, which are keys by another name. To what makes none they say nothing: what changes a lock says so in its document.
const LOCK_HEADERS: [(&str, &str); 3] = [
    ("x-amz-object-lock-legal-hold", "s3:object-lock-legal-hold"),
    ("x-amz-object-lock-mode", "s3:object-lock-mode"),
    (UNTIL, "s3:object-lock-retain-until-date"),
];
const UNTIL: &str = "x-amz-object-lock-retain-until-date";

/// Query parameters that are keys.
const PARAMETERS: [(&str, &str); 4] = [
    ("prefix", "s3:prefix"),
    ("delimiter", "s3:delimiter"),
    ("max-keys", "s3:max-keys"),
    ("versionId", "s3:VersionId"),
];

/// How long an object is to be kept yet.
pub(crate) const REMAINING_DAYS: &str = "s3:object-lock-remaining-retention-days";

/// Days until a moment, one that has begun included; both in Unix time in milliseconds.
pub(crate) fn remaining_days(until_ms: u64, now_ms: u64) -> u64 {
    until_ms.saturating_sub(now_ms).div_ceil(DAY_MS)
}

/// The names of who asks, as policies know them.
pub(crate) struct Names {
    arn: String,
    principal_arn: String,
}

impl Names {
    pub(crate) fn of(caller: &Identity) -> Self {
        Self { arn: caller.arn(), principal_arn: caller.principal_arn() }
    }

    pub(crate) fn principal<'a>(&'a self, caller: &'a Identity) -> Principal<'a> {
        let (account, canonical_id) = (&*caller.account.id, &*caller.account.canonical_id);
        match &caller.principal {
            credentials::Principal::Anonymous => Principal::Anonymous,
            credentials::Principal::Root => Principal::Root { account, canonical_id },
            credentials::Principal::User { id, .. } => Principal::User { account, canonical_id, arn: &self.arn, id },
            credentials::Principal::AssumedRole { id, .. } => {
                Principal::Session { account, canonical_id, role_arn: &self.principal_arn, arn: &self.arn, id }
            }
        }
    }
}

/// What every request says about who asks, whence and when.
pub(crate) fn of_caller(ops: &Ops, call: &Call, names: &Names) -> Context {
    let caller = call.caller();
    let mut context = Context::within(call.policy_work());
    let now_ms = ops.clock.now_ms();
    context.add("aws:CurrentTime", date::iso(now_ms).to_string());
    context.add("aws:EpochTime", (now_ms / 1000).to_string());
    context.add("aws:RequestedRegion", &*ops.region);
    context.add("aws:SecureTransport", call.is_secure().to_string());
    context.add("aws:SourceIp", call.source().to_canonical().to_string());
    context.add("aws:PrincipalType", caller.principal_type());
    context.add("aws:userid", caller.user_id());
    context.add_optional("aws:UserAgent", text(call, "user-agent"));
    context.add_optional("aws:Referer", text(call, "referer"));
    // No service acts for somebody here.
    context.add("aws:ViaAWSService", "false");
    context.add("aws:PrincipalIsAWSService", "false");
    if caller.is_anonymous() {
        return context;
    }
    context.add("aws:PrincipalArn", &*names.principal_arn);
    context.add("aws:PrincipalAccount", &*caller.account.id);
    context.add_optional("aws:username", caller.user_name());
    if caller.issued_ms.is_some() {
        // Of temporary credentials it is known: nobody shows a second factor.
        context.add("aws:MultiFactorAuthPresent", "false");
    }
    context.add_optional("aws:TokenIssueTime", caller.issued_ms.map(|ms| date::iso(ms).to_string()));
    for (key, value) in caller.tags() {
        context.add(&format!("aws:PrincipalTag/{key}"), &**value);
    }
    for (key, value) in &caller.federated {
        context.add(key, &**value);
    }
    context
}

/// What a request of S3 says beside that.
///
/// # Errors
/// For a header or parameter that is there twice: the operation must not see one value and the policy the other.
pub(crate) fn of_s3(ops: &Ops, call: &Call, names: &Names) -> Result<Context, S3Error> {
    let mut context = of_caller(ops, call, names);
    if !call.caller().is_anonymous() {
        let query = call.query();
        let in_query = query.has("X-Amz-Signature") || query.has("Signature");
        let kind = match in_query {
            _ if call.is_form() => "POST",
            true => "REST-QUERY-STRING",
            false => "REST-HEADER",
        };
        context.add("s3:authType", kind);
        // The date that was verified, and no other one that the request may also say.
        let signed = match kind {
            "POST" => call.form.as_ref().and_then(|form| form.date.as_deref()),
            "REST-QUERY-STRING" => query.get("X-Amz-Date")?.filter(|_| query.has("X-Amz-Signature")),
            _ => text(call, "x-amz-date").or_else(|| text(call, "date")),
        };
        let signed = signed.and_then(version_2::moment);
        let signed_ms =
            signed.and_then(|seconds| u64::try_from(seconds).ok()).map(|seconds| seconds.saturating_mul(1000));
        let age_ms = signed_ms.map(|signed_ms| ops.clock.now_ms().saturating_sub(signed_ms).to_string());
        context.add_optional("s3:signatureAge", age_ms);
        let version_2 = call.form.as_ref().is_some_and(|form| form.is_version_2)
            || query.has("Signature")
            || text(call, "authorization").is_some_and(|authorization| authorization.starts_with("AWS "));
        context.add("s3:signatureversion", if version_2 { "AWS" } else { "AWS4-HMAC-SHA256" });
    }
    for name in HEADERS {
        context.add_optional(&format!("s3:{name}"), call.header(name)?);
    }
    if let Some(header) = call.header(COPY_SOURCE)? {
        copy_sources(call, header).into_iter().for_each(|source| context.add(&format!("s3:{COPY_SOURCE}"), source));
    }
    let (if_match, if_none_match) = heeded_tags(call);
    if if_match {
        context.add_optional(IF_MATCH, call.header("if-match")?);
    }
    if if_none_match {
        context.add_optional(IF_NONE_MATCH, call.header("if-none-match")?);
    }
    if call.operation().is_some_and(says_how_it_is_kept) {
        // Where nothing is encrypted with it, it would say nothing of who asks: policies take it for an audience.
        context.add_optional(&format!("s3:{KMS_KEY}"), call.header(KMS_KEY)?);
        for (name, key) in LOCK_HEADERS {
            context.add_optional(key, call.header(name)?);
        }
        if let Some(until) = call.header(UNTIL)?.and_then(date::parse_iso) {
            context.add(REMAINING_DAYS, remaining_days(until, ops.clock.now_ms()).to_string());
        }
    }
    for (name, key) in PARAMETERS {
        context.add_optional(key, call.query().get(name)?);
    }
    if let Some(operation) = call.operation() {
        context.add("s3:ObjectCreationOperation", creates_object(operation).to_string());
    }
    for (key, value) in tags::of_new(call)? {
        add_request_tag(&mut context, &key, value);
    }
    Ok(context)
}

/// Whether `If-Match` and `If-None-Match` of a request are conditions that it heeds, as policies take them to be. AWS knows only `*` of the latter where something is written: it is what
/// says that nothing is overwritten.
fn heeded_tags(call: &Call) -> (bool, bool) {
    use Operation::{
        CompleteMultipartUpload, CopyObject, DeleteObject, GetObject, HeadObject, PutObject, RenameObject,
    };
    match call.operation() {
        Some(GetObject | HeadObject) => (true, true),
        Some(PutObject | CopyObject | CompleteMultipartUpload | RenameObject) => {
            let names_any = call.list("if-none-match").is_some_and(|list| EtagMatch::parse(&list).names_any());
            (true, names_any)
        }
        Some(DeleteObject) => (true, false),
        _ => (false, false),
    }
}

/// What policies see of the source of a copy: bucket and key as they are, however the header has them encoded, with a slash before them and without. What names none, the operation refuses.
fn copy_sources(call: &Call, header: &str) -> Vec<String> {
    match source_name(call) {
        Ok(source) => ["", "/"].map(|slash| format!("{slash}{}/{}", source.bucket, source.key)).into(),
        Err(_) => vec![header.to_owned()],
    }
}

/// Whether the headers of an operation say how the object that it makes, or begins, is locked and encrypted.
fn says_how_it_is_kept(operation: Operation) -> bool {
    use Operation::{CopyObject, CreateMultipartUpload, PostObject, PutObject};
    matches!(operation, PutObject | CopyObject | CreateMultipartUpload | PostObject)
}

/// Whether an operation makes an object; one that begins or continues an upload in parts does not yet.
fn creates_object(operation: Operation) -> bool {
    use Operation::{CompleteMultipartUpload, CopyObject, PostObject, PutObject, RenameObject};
    matches!(operation, PutObject | CopyObject | CompleteMultipartUpload | PostObject | RenameObject)
}

/// A tag that the request gives to an object.
pub(crate) fn add_request_tag(context: &mut Context, key: &str, value: String) {
    context.add(&format!("s3:RequestObjectTag/{key}"), value);
    context.add("s3:RequestObjectTagKeys", key);
}

/// A header that may be there once; what is no text or there twice counts as absent.
fn text<'a>(call: &'a Call, name: &str) -> Option<&'a str> {
    call.header(name).ok().flatten()
}
