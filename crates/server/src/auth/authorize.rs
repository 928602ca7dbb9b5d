//! Whether a request may be done: every operation asks here first.
//!
//! Who is the root user of the account that owns a bucket without policy and ACLs, which is the usual case, costs a few comparisons. All
//! else is judged by identity policies, the bucket's policy and ACLs together (`gabion_policy::decide`). What can not be found out is
//! refused.
//!
//! An object's owner, ACL and tags are looked at just before the operation looks at them again: who replaces an object in between may be
//! judged by the one before.
//!
//! Source: AWS, "How Amazon S3 authorizes a request".

use std::sync::Arc;

use gabion_policy::{Context, Decision, Layers, Outcome, Reach, Request, decide};
use gabion_store::{Attributes, EtagMatch, StoreError, VersionId};
use gabion_types::{BucketName, ObjectKey};

use super::actions::{self, Target};
use super::context::{self, Names};
use crate::access::acl::Acl;
use crate::access::{BucketAccess, Ownership};
use crate::credentials::{Identity, Principal};
use crate::error::{S3Code, S3Error};
use crate::ops::Ops;
use crate::s3::{BucketSettings, Call, Operation, SourceName, renamed_key, source_name};

/// Actions on a bucket's policy: the root user of its account can always take them, so that nobody locks himself out by mistake.
const RECOVERY: [&str; 3] = ["s3:GetBucketPolicy", "s3:PutBucketPolicy", "s3:DeleteBucketPolicy"];

/// Beginnings of keys, in lower case.
const VERSION_ID: &str = "s3:VersionId";
const REQUEST_TAG: &str = "s3:requestobjecttag";
const LOCK: &str = "s3:object-lock-";
const EXISTING_TAG: &str = "s3:existingobjecttag/";

/// How a request was let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// By the owner of all that it is about: nothing has to be hidden from him.
    Owner,
    /// By what policies and ACLs say.
    Granted,
}

/// Decides whether a request may be done.
///
/// # Errors
/// `AccessDenied`; `NoSuchBucket`, and `NoSuchKey` for those who may know it.
pub(crate) async fn authorize(ops: &Ops, call: &Call, operation: Operation) -> Result<Standing, S3Error> {
    let is_of_one_bucket =
        !matches!(operation, Operation::CreateBucket | Operation::CopyObject | Operation::UploadPartCopy);
    if is_of_one_bucket
        && call.named_bucket().is_some()
        && owns_all(call.caller(), &call.settings(ops)?.access, ops.object_ownership)
    {
        return Ok(Standing::Owner);
    }
    Box::pin(judge(ops, call, operation)).await
}

/// Whether somebody may do whatever he likes in a bucket: nothing that is said about it can restrict him.
fn owns_all(caller: &Identity, access: &BucketAccess, usual: Ownership) -> bool {
    caller.principal == Principal::Root
        && caller.session_policies.is_empty()
        && access.owner.as_ref() == Some(&caller.account.canonical_id)
        && access.policy.is_none()
        && !access.ownership.ownership(usual).has_acls()
}

async fn judge(ops: &Ops, call: &Call, operation: Operation) -> Result<Standing, S3Error> {
    let versioned = call.query().get("versionId")?.is_some();
    let (target, action) = actions::action(operation, versioned);
    match operation {
        // Who has no account has no buckets.
        Operation::ListBuckets if call.caller().is_anonymous() => return Err(S3Code::AccessDenied.into()),
        // Nobody's, and about nothing but what browsers may ask for.
        Operation::PreflightRequest => return Ok(Standing::Granted),
        _ => {}
    }
    if call.caller().is_anonymous() {
        check_nobody(operation)?;
    }
    let Some(bucket) = call.named_bucket().filter(|_| target != Target::Account) else {
        return for_account(ops, call, action, "arn:aws:s3:::*");
    };
    if operation == Operation::CreateBucket {
        return create_bucket(ops, call, bucket);
    }
    let judge = Judge::new(ops, call, bucket)?;
    match operation {
        Operation::CopyObject | Operation::UploadPartCopy => copy(&judge, operation).await?,
        Operation::RenameObject => {
            let from = renamed_key(call)?;
            let mut source = Judge::of_source(ops, call, bucket)?;
            source.context.add_optional(context::IF_MATCH, call.header("x-amz-rename-source-if-match")?);
            source.require_object("s3:GetObject", &from, None, true).await?;
            source.require_object("s3:DeleteObject", &from, None, false).await?;
            let has_tags = source.require_tags(&from, None).await?;
            let key = call.key()?;
            judge.require_object(action, &key, None, false).await?;
            if has_tags {
                judge.require_object("s3:PutObjectTagging", &key, None, false).await?;
            }
            judge.require_named_tags(&key, None).await?;
        }
        Operation::DeleteObjects if call.caller().is_anonymous() && judge.is_closed() => {
            // Nobody's document need not be read to know.
            return Err(S3Code::AccessDenied.into());
        }
        // Each key is asked for, and a form when it has been read.
        Operation::DeleteObjects | Operation::PostObject => {}
        // Its tags are in its document: see `authorize_tags`.
        Operation::PutObjectTagging if judge.mentions(REQUEST_TAG) => {}
        // So is what locks: see `authorize_lock`.
        Operation::PutObjectRetention | Operation::PutObjectLegalHold if judge.mentions(LOCK) => {}
        _ if target == Target::Object => {
            let key = call.key()?;
            let version = call.version()?;
            judge.require_object(action, &key, version, actions::reads_object(operation)).await?;
            if operation == Operation::GetObjectAttributes {
                judge.require_object(reading(version), &key, version, true).await?;
            }
            if makes_object(operation) {
                judge.check_new(&key)?;
            }
            if changes_object(operation) {
                judge.require_named_tags(&key, version).await?;
            }
        }
        _ => judge.require_bucket(action)?,
    }
    Ok(Standing::Granted)
}

/// Whether a condition names tags: who names one may read it, as on AWS, as the answer says whether the object has it. That there is an object at all, any may ask.
fn names_tags(condition: &EtagMatch) -> bool {
    *condition != EtagMatch::Any
}

/// What an object or a version is read by.
fn reading(version: Option<VersionId>) -> &'static str {
    actions::action(Operation::GetObject, version.is_some()).1
}

/// What nobody in particular can do, whoever allows it.
///
/// # Errors
/// `AccessDenied`, with AWS's words.
fn check_nobody(operation: Operation) -> Result<(), S3Error> {
    let message = match operation {
        Operation::CreateBucket | Operation::PutBucketAcl | Operation::PutObjectAcl => {
            "Anonymous users cannot invoke this API. Please authenticate."
        }
        Operation::CreateMultipartUpload => "Anonymous users cannot initiate multipart uploads. Please authenticate.",
        Operation::CopyObject => "Anonymous users cannot copy objects. Please authenticate.",
        Operation::GetBucketOwnershipControls => "s3:GetBucketOwnershipControls does not support Anonymous requests!",
        Operation::PutBucketOwnershipControls | Operation::DeleteBucketOwnershipControls => {
            "s3:PutBucketOwnershipControls does not support Anonymous requests!"
        }
        _ => return Ok(()),
    };
    Err(S3Error::with(S3Code::AccessDenied, message))
}

/// Whether it puts something in an object's place, or takes it away, and only if it has a tag, if it says so.
fn changes_object(operation: Operation) -> bool {
    use Operation::{CompleteMultipartUpload, DeleteObject, PutObject};
    matches!(operation, PutObject | CompleteMultipartUpload | DeleteObject)
}

/// Whether a request says what the object that it makes is like.
fn makes_object(operation: Operation) -> bool {
    matches!(operation, Operation::PutObject | Operation::CopyObject | Operation::CreateMultipartUpload)
}

/// Headers that say something of a new object, and the permission that each needs.
const SAID_OF_NEW: [(&str, &str); 3] = [
    ("x-amz-tagging", "s3:PutObjectTagging"),
    ("x-amz-object-lock-mode", "s3:PutObjectRetention"),
    ("x-amz-object-lock-legal-hold", "s3:PutObjectLegalHold"),
];

impl Judge<'_> {
    /// Asks for what it takes to name the tags that an object must have, or must not; see [`names_tags`].
    async fn require_named_tags(&self, key: &ObjectKey, version: Option<VersionId>) -> Result<(), S3Error> {
        let lists = ["if-match", "if-none-match"].into_iter().filter_map(|name| self.call.list(name));
        if lists.map(|list| EtagMatch::parse(&list)).any(|condition| names_tags(&condition)) {
            self.require_object(reading(version), key, version, false).await?;
        }
        Ok(())
    }

    /// Asks for what it takes to have an object's tags go along, and tells whether it has any: they are more than the object to some.
    async fn require_tags(&self, key: &ObjectKey, version: Option<VersionId>) -> Result<bool, S3Error> {
        let has_tags = self.look(key, version).await?.is_some_and(|found| !found.tags.is_empty());
        if has_tags {
            let (_, action) = actions::action(Operation::GetObjectTagging, version.is_some());
            self.require_object(action, key, version, true).await?;
        }
        Ok(has_tags)
    }

    /// Whether what a request says of the object that it makes may be said: each needs a permission of its own.
    ///
    /// # Errors
    /// `AccessDenied`; for a header that is none.
    fn check_new(&self, key: &ObjectKey) -> Result<(), S3Error> {
        for (header, action) in SAID_OF_NEW {
            if self.call.header(header)?.is_some() {
                self.require_of_new(action, key)?;
            }
        }
        self.check_acl(key)
    }

    /// Whom an ACL lets write, it lets tag what he writes and say what that grants, but not lock it; whom a policy does, only if it says so.
    fn require_of_new(&self, action: &str, key: &ObjectKey) -> Result<(), S3Error> {
        let goes_along = matches!(action, "s3:PutObjectTagging" | "s3:PutObjectAcl");
        let granted = self.granted("s3:PutObject", None).filter(|_| goes_along);
        match self.decide_granted(action, &self.object_arn(key), &self.context, &self.owner, granted) {
            Decision::Allow => Ok(()),
            Decision::Neutral | Decision::Deny => Err(S3Code::AccessDenied.into()),
        }
    }

    /// Whether the ACL may be set that a request gives to the object that it makes.
    ///
    /// # Errors
    /// `AccessDenied`; for what is no ACL.
    fn check_acl(&self, key: &ObjectKey) -> Result<(), S3Error> {
        let Some(acl) = crate::s3::requested_acl(self.ops, self.call, self.owners())? else { return Ok(()) };
        // A list that grants nothing to others than the two owners needs no permission of its own.
        if acl.is_among(self.owners()) {
            return Ok(());
        }
        self.require_of_new("s3:PutObjectAcl", key)
    }
}

async fn copy(judge: &Judge<'_>, operation: Operation) -> Result<(), S3Error> {
    let (ops, call) = (judge.ops, judge.call);
    let SourceName { bucket, key, version } = source_name(call)?;
    let source = Judge::of_source(ops, call, &bucket)?;
    source.require_object(reading(version), &key, version, true).await?;
    // Tags go along unless they are replaced.
    let takes_tags = operation == Operation::CopyObject && call.header("x-amz-tagging-directive")? != Some("REPLACE");
    let has_tags = takes_tags && source.require_tags(&key, version).await?;
    let key = call.key()?;
    judge.require_object("s3:PutObject", &key, None, false).await?;
    if has_tags {
        judge.require_object("s3:PutObjectTagging", &key, None, false).await?;
    }
    if makes_object(operation) {
        judge.require_named_tags(&key, None).await?;
        judge.check_new(&key)?;
    }
    Ok(())
}

/// What is about no bucket that is there: who asks must be allowed by his own account.
fn for_account(ops: &Ops, call: &Call, action: &str, resource: &str) -> Result<Standing, S3Error> {
    match ask_account(ops, call, action, resource)? {
        Decision::Allow => Ok(Standing::Granted),
        Decision::Deny | Decision::Neutral => Err(S3Code::AccessDenied.into()),
    }
}

fn ask_account(ops: &Ops, call: &Call, action: &str, resource: &str) -> Result<Decision, S3Error> {
    let names = Names::of(call.caller());
    let context = context::of_s3(ops, call, &names)?;
    Ok(decide_by(call.caller(), &names, action, resource, &context, Layers::default()))
}

fn create_bucket(ops: &Ops, call: &Call, bucket: &BucketName) -> Result<Standing, S3Error> {
    if call.caller().is_anonymous() {
        return Err(S3Code::AccessDenied.into());
    }
    let arn = format!("arn:aws:s3:::{bucket}");
    for_account(ops, call, "s3:CreateBucket", &arn)?;
    if crate::s3::makes_locks(call)? {
        for action in ["s3:PutBucketObjectLockConfiguration", "s3:PutBucketVersioning"] {
            for_account(ops, call, action, &arn)?;
        }
    }
    if call.header("x-amz-object-ownership")?.is_some()
        && ask_account(ops, call, "s3:PutBucketOwnershipControls", &arn)? == Decision::Deny
    {
        return Err(S3Code::AccessDenied.into());
    }
    let own = &call.caller().account.canonical_id;
    let owners = crate::access::acl::Owners { own, bucket: own };
    if crate::s3::requested_acl(ops, call, owners)?.is_some() {
        for_account(ops, call, "s3:PutBucketAcl", &arn)?;
    }
    Ok(Standing::Granted)
}

/// Asks the policies of who asks and all `layers`.
fn decide_by(
    caller: &Identity,
    names: &Names,
    action: &str,
    resource: &str,
    context: &Context,
    layers: Layers<'_>,
) -> Decision {
    let layers = Layers {
        identity: &caller.policies,
        boundary: caller.boundary.as_deref(),
        session: &caller.session_policies,
        ..layers
    };
    decide(&layers, &Request { principal: names.principal(caller), action, resource, context })
}

/// Whether the one who sent a request may do something else, too: what an operation finds out that it needs on the way.
///
/// # Errors
/// Those of the index.
pub(crate) async fn may(
    ops: &Ops,
    call: &Call,
    action: &str,
    key: Option<&ObjectKey>,
    version: Option<VersionId>,
) -> Result<bool, S3Error> {
    let bucket = call.bucket()?;
    let Some(judge) = Judge::unless_owner(ops, call, &bucket)? else { return Ok(true) };
    match key {
        Some(key) => judge.may_on_object(action, key, version).await,
        None => Ok(judge.decide(action, &judge.bucket_arn(), &judge.context, None) == Decision::Allow),
    }
}

/// Whether the one who sent a document may delete an object of it; see [`names_tags`]. Policies see its condition as they see a header.
///
/// # Errors
/// Those of the index.
pub(crate) async fn may_delete(
    ops: &Ops,
    call: &Call,
    action: &str,
    key: &ObjectKey,
    version: Option<VersionId>,
    if_match: Option<&EtagMatch>,
) -> Result<bool, S3Error> {
    let bucket = call.bucket()?;
    let Some(mut judge) = Judge::unless_owner(ops, call, &bucket)? else { return Ok(true) };
    let Some(condition) = if_match else { return judge.may_on_object(action, key, version).await };
    let tags = match condition {
        EtagMatch::Any => "*".to_owned(),
        EtagMatch::OneOf(tags) => tags.iter().map(|tag| format!("\"{tag}\"")).collect::<Vec<_>>().join(","),
    };
    judge.context.set(context::IF_MATCH, tags);
    Ok(judge.may_on_object(action, key, version).await?
        && (!names_tags(condition) || judge.may_on_object(reading(version), key, version).await?))
}

/// Whether the one who sent a request may put an object in another bucket than it names.
///
/// # Errors
/// Those of the index.
pub(crate) fn may_put(ops: &Ops, call: &Call, bucket: &BucketName, key: &ObjectKey) -> Result<bool, S3Error> {
    let Some(judge) = Judge::unless_owner(ops, call, bucket)? else { return Ok(true) };
    Ok(judge.on_object("s3:PutObject", key, None, None) == Decision::Allow)
}

/// Decides whether a request may give an object the tags of its document, where some policy looks at them; where none does, that is
/// decided without the document.
///
/// # Errors
/// As [`authorize`].
pub(crate) async fn authorize_tags(ops: &Ops, call: &Call, tags: &[(String, String)]) -> Result<(), S3Error> {
    let bucket = call.bucket()?;
    let Some(mut judge) = Judge::unless_owner(ops, call, &bucket)? else { return Ok(()) };
    for (key, value) in tags {
        context::add_request_tag(&mut judge.context, key, value.clone());
    }
    let version = call.version()?;
    let (_, action) = actions::action(Operation::PutObjectTagging, version.is_some());
    judge.require_object(action, &call.key()?, version, true).await
}

/// Decides whether a request may lock an object as its document says, in condition keys and their values; where no policy looks at them, that is
/// decided without the document.
///
/// # Errors
/// As [`authorize`].
pub(crate) async fn authorize_lock(
    ops: &Ops,
    call: &Call,
    operation: Operation,
    said: &[(&str, String)],
) -> Result<(), S3Error> {
    let bucket = call.bucket()?;
    let Some(mut judge) = Judge::unless_owner(ops, call, &bucket)? else { return Ok(()) };
    for (key, value) in said {
        judge.context.set(key, value.clone());
    }
    let version = call.version()?;
    let (_, action) = actions::action(operation, version.is_some());
    judge.require_object(action, &call.key()?, version, true).await
}

/// What is told to who was let in and asked for a key that is not there: only who may list the bucket learns that.
pub(crate) async fn hide(ops: &Ops, call: &Call, operation: Operation, error: S3Error) -> S3Error {
    if !matches!(error.code, S3Code::NoSuchKey | S3Code::NoSuchVersion) {
        return error;
    }
    let named = match operation {
        Operation::CopyObject | Operation::UploadPartCopy => {
            source_name(call).map(|source| (source.bucket, source.key))
        }
        Operation::RenameObject => call.bucket().and_then(|bucket| Ok((bucket, renamed_key(call)?))),
        _ if actions::reads_object(operation) => call.bucket().and_then(|bucket| Ok((bucket, call.key()?))),
        _ => return error,
    };
    let lists = named.and_then(|(bucket, key)| Judge::new(ops, call, &bucket)?.may_list(&key));
    match lists {
        Ok(true) => error,
        Ok(false) => S3Code::AccessDenied.into(),
        Err(failed) => failed,
    }
}

/// A request, and what is said about the bucket that it is about.
struct Judge<'a> {
    ops: &'a Ops,
    call: &'a Call,
    bucket: BucketName,
    owner: String,
    settings: Arc<BucketSettings>,
    names: Names,
    context: Context,
}

/// What is said about an object that is there.
struct Found {
    /// Canonical id; the bucket's owner if nobody else.
    owner: String,
    acl: Acl,
    tags: Vec<(String, String)>,
}

impl<'a> Judge<'a> {
    /// # Errors
    /// `NoSuchBucket`.
    fn new(ops: &'a Ops, call: &'a Call, bucket: &BucketName) -> Result<Self, S3Error> {
        let settings = ops.settings(bucket)?;
        let owner = settings.access.owner.clone().ok_or(S3Code::NoSuchBucket)?;
        let names = Names::of(call.caller());
        let mut context = context::of_s3(ops, call, &names)?;
        let account = ops.account_id(&owner);
        context.add_optional("s3:ResourceAccount", account.clone());
        context.add_optional("aws:ResourceAccount", account);
        Ok(Self { ops, call, bucket: bucket.clone(), owner, settings, names, context })
    }

    /// The same, or nothing of who may do whatever he likes there.
    ///
    /// # Errors
    /// As [`Judge::new`].
    fn unless_owner(ops: &'a Ops, call: &'a Call, bucket: &BucketName) -> Result<Option<Self>, S3Error> {
        let is_free = owns_all(call.caller(), &ops.settings(bucket)?.access, ops.object_ownership);
        if is_free { Ok(None) } else { Self::new(ops, call, bucket).map(Some) }
    }

    /// The same of what is copied or renamed: the conditions of the request are about what comes of it.
    ///
    /// # Errors
    /// As [`Judge::new`].
    fn of_source(ops: &'a Ops, call: &'a Call, bucket: &BucketName) -> Result<Self, S3Error> {
        let mut judge = Self::new(ops, call, bucket)?;
        [context::IF_MATCH, context::IF_NONE_MATCH].iter().for_each(|key| judge.context.remove(key));
        Ok(judge)
    }

    fn access(&self) -> &BucketAccess {
        &self.settings.access
    }

    fn has_acls(&self) -> bool {
        self.access().ownership.ownership(self.ops.object_ownership).has_acls()
    }

    /// Whether nothing is said that could let others in than the owner's account.
    fn is_closed(&self) -> bool {
        self.access().policy.is_none() && !self.has_acls()
    }

    fn bucket_arn(&self) -> String {
        format!("arn:aws:s3:::{}", self.bucket)
    }

    fn object_arn(&self, key: &ObjectKey) -> String {
        format!("arn:aws:s3:::{}/{key}", self.bucket)
    }

    /// Whose a new object would be, and the bucket is.
    fn owners(&self) -> crate::access::acl::Owners<'_> {
        crate::access::acl::Owners { own: &self.call.caller().account.canonical_id, bucket: &self.owner }
    }

    /// What the bucket's policy, its ACL or the object's, and who asks' own policies say together.
    fn decide(&self, action: &str, resource: &str, context: &Context, found: Option<&Found>) -> Decision {
        let owner = found.map_or(&self.owner, |found| &found.owner);
        self.decide_granted(action, resource, context, owner, self.granted(action, found))
    }

    /// The same of what belongs to `owner`, with what ACLs grant.
    fn decide_granted(
        &self,
        action: &str,
        resource: &str,
        context: &Context,
        owner: &str,
        granted: Option<Reach>,
    ) -> Decision {
        let (caller, access) = (self.call.caller(), self.access());
        let layers = Layers { granted, ..Layers::default() };
        // Only whether it is his own account matters.
        let is_own = owner == caller.account.canonical_id && !caller.is_anonymous();
        let layers = Layers { owner: Some(if is_own { &caller.account.id } else { "" }), ..layers };
        let by = |layers| decide_by(caller, &self.names, action, resource, context, layers);
        let Some(stored) = &access.policy else { return by(layers) };
        let is_bucket_owner = self.owner == caller.account.canonical_id;
        let recovers = RECOVERY.contains(&action) && is_bucket_owner && caller.principal == Principal::Root;
        if recovers {
            return by(layers);
        }
        let Some(policy) = &stored.policy else { return Decision::Deny };
        // A bucket's owner can not give away what is another's, but deny it he can.
        let grants_nothing = owner != self.owner
            || stored.is_public && !is_bucket_owner && access.public_access.is_some_and(|block| block.restrict);
        if grants_nothing {
            let request = Request { principal: self.names.principal(caller), action, resource, context };
            return if policy.outcome(&request) == Outcome::Deny { Decision::Deny } else { by(layers) };
        }
        by(Layers { resource: Some(policy), ..layers })
    }

    /// What ACLs grant.
    fn granted(&self, action: &str, found: Option<&Found>) -> Option<Reach> {
        if !self.has_acls() {
            return None;
        }
        let (target, permission) = actions::permission(action)?;
        let acl = match target {
            Target::Object => &found?.acl,
            _ => self.access().acl.as_ref()?,
        };
        let ignores = self.access().public_access.is_some_and(|block| block.ignore_acls);
        acl.reach(self.call.caller(), permission, ignores)
    }

    fn require_bucket(&self, action: &str) -> Result<(), S3Error> {
        match self.decide(action, &self.bucket_arn(), &self.context, None) {
            Decision::Allow => Ok(()),
            Decision::Deny | Decision::Neutral => Err(S3Code::AccessDenied.into()),
        }
    }

    async fn may_on_object(&self, action: &str, key: &ObjectKey, version: Option<VersionId>) -> Result<bool, S3Error> {
        let found = self.find(action, key, version).await?;
        Ok(self.on_object(action, key, version, found.as_ref()) == Decision::Allow)
    }

    fn on_object(&self, action: &str, key: &ObjectKey, version: Option<VersionId>, found: Option<&Found>) -> Decision {
        let mut context = self.context.clone();
        // That of this object: copies and deletions of many name it elsewhere than in the query.
        match version {
            Some(version) => context.set(VERSION_ID, version.to_string()),
            None => context.remove(VERSION_ID),
        }
        // Who may put and delete does not depend on what is there, as on AWS.
        let of_object = found.filter(|_| actions::is_of_object(action));
        for (key, value) in of_object.map_or(&[][..], |found| &found.tags) {
            context.add(&format!("s3:ExistingObjectTag/{key}"), &**value);
        }
        self.decide(action, &self.object_arn(key), &context, of_object)
    }

    /// # Errors
    /// `AccessDenied`; `NoSuchKey` when `reads` and there is none, for those who may know it.
    async fn require_object(
        &self,
        action: &str,
        key: &ObjectKey,
        version: Option<VersionId>,
        reads: bool,
    ) -> Result<(), S3Error> {
        let found = self.find(action, key, version).await?;
        if self.on_object(action, key, version, found.as_ref()) == Decision::Allow {
            return Ok(());
        }
        if reads && found.is_none() && self.may_list(key)? && self.is_missing(key, version).await? {
            return Err(match version {
                None => S3Error::new(S3Code::NoSuchKey).detail("Key", key.as_str()),
                Some(version) => StoreError::NoSuchVersion(version).into(),
            });
        }
        Err(S3Code::AccessDenied.into())
    }

    /// Whether who asks may know which keys there are.
    fn may_list(&self, key: &ObjectKey) -> Result<bool, S3Error> {
        let mut context = self.context.clone();
        context.set("s3:prefix", key.as_str());
        Ok(self.decide("s3:ListBucket", &self.bucket_arn(), &context, None) == Decision::Allow)
    }

    async fn is_missing(&self, key: &ObjectKey, version: Option<VersionId>) -> Result<bool, S3Error> {
        Ok(self.look(key, version).await?.is_none())
    }

    /// Whether a policy looks at a key that begins so.
    fn mentions(&self, prefix: &str) -> bool {
        let caller = self.call.caller();
        let policies = caller.policies.iter().chain(&caller.session_policies).chain(&caller.boundary);
        let bucket_policy = self.access().policy.as_ref().and_then(|stored| stored.policy.as_ref());
        policies.chain(bucket_policy).any(|policy| policy.mentions(prefix))
    }

    /// What is said about an object, if that can matter: nothing when there is none.
    async fn find(&self, action: &str, key: &ObjectKey, version: Option<VersionId>) -> Result<Option<Found>, S3Error> {
        if actions::is_of_object(action) && (self.mentions(EXISTING_TAG) || self.has_acls()) {
            self.look(key, version).await
        } else {
            Ok(None)
        }
    }

    async fn look(&self, key: &ObjectKey, version: Option<VersionId>) -> Result<Option<Found>, S3Error> {
        match self.ops.store.object_info(&self.bucket, key, version).await {
            Ok(info) => Ok(Some(self.found(info.attributes))),
            Err(StoreError::NoSuchKey | StoreError::NoSuchVersion(_) | StoreError::DeleteMarker { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn found(&self, attributes: Attributes) -> Found {
        // Where ACLs do not count, the bucket's owner owns everything, also what was another's before.
        let owner = attributes.owner.filter(|_| self.has_acls()).unwrap_or_else(|| self.owner.clone());
        let acl = match attributes.acl {
            // What is not understood grants nothing to others.
            Some(acl) => Acl::decode(&acl).unwrap_or_default(),
            None => Acl::private(&owner),
        };
        Found { owner, acl, tags: attributes.tags }
    }
}
