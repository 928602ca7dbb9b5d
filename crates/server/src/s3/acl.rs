//! ACLs in headers and documents, and the operations on them.
//!
//! Source: AWS, "Access control list (ACL) overview", "PutBucketAcl", "PutObjectAcl".

use bytes::Bytes;
use gabion_store::{Attributes, ConfigScope, StoreError};
use gabion_types::BucketName;
use http::{Response, StatusCode};
use s3s::{Body, dto};

use super::answer;
use super::attributes;
use super::body::{self, DocumentDigests};
use super::call::Call;
use super::configs;
use super::quota;
use super::settings::BucketSettings;
use super::xml::{Xml, parse_acl};
use super::{notifications, versioning};
use crate::access::acl::{Acl, GRANTS_MAX, Grant, Grantee, Owners, Permission};
use crate::access::settings::OwnershipControls;
use crate::access::{self, BucketAccess, Ownership};
use crate::credentials::AccountName;
use crate::error::{S3Code, S3Error};
use crate::notifications::EventName;
use crate::ops::Ops;

const CANNED: &str = "x-amz-acl";
const BUCKET_OWNER_FULL_CONTROL: &str = "bucket-owner-full-control";

/// Headers that grant, in the order of the list that they make.
const GRANT_HEADERS: [(&str, Permission); 5] = [
    ("x-amz-grant-read", Permission::Read),
    ("x-amz-grant-write", Permission::Write),
    ("x-amz-grant-read-acp", Permission::ReadAcp),
    ("x-amz-grant-write-acp", Permission::WriteAcp),
    ("x-amz-grant-full-control", Permission::FullControl),
];

/// Whose a new object is, and its ACL, as they are stored with it; nothing says what is so for most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObjectAccess {
    pub(crate) owner: Option<String>,
    pub(crate) acl: Option<String>,
}

/// The list that the headers of a request ask for.
///
/// # Errors
/// For what is no list, or is two.
pub(crate) fn requested(ops: &Ops, call: &Call, owners: Owners<'_>) -> Result<Option<Acl>, S3Error> {
    if !call.has.extensions {
        return Ok(None);
    }
    let canned = call.header(CANNED)?;
    if canned.is_some() && GRANT_HEADERS.iter().any(|(header, _)| call.headers().contains_key(*header)) {
        return Err(S3Error::request("Specifying both Canned ACLs and Header Grants is not allowed"));
    }
    let mut grants = Vec::new();
    for (header, permission) in GRANT_HEADERS {
        // Over all its lines, of which none is left out.
        for line in call.headers().get_all(header) {
            let line = line.to_str().map_err(|_| S3Error::argument(header, "", "The header is not ASCII."))?;
            for grantee in line.split(',').filter(|grantee| !grantee.trim().is_empty()) {
                grants.push(Grant { grantee: named_in_header(ops, header, grantee)?, permission });
            }
        }
    }
    check_count(grants.len())?;
    match canned {
        None if grants.is_empty() => Ok(None),
        None => Ok(Some(Acl::new(grants))),
        Some(name) => {
            let acl = Acl::canned(name, owners);
            acl.map(Some).ok_or_else(|| S3Error::argument(CANNED, name, S3Code::InvalidArgument.message()))
        }
    }
}

fn check_count(grants: usize) -> Result<(), S3Error> {
    if grants > GRANTS_MAX { Err(S3Code::MalformedACLError.into()) } else { Ok(()) }
}

/// `id="…"`, `emailAddress="…"` or `uri="…"`.
fn named_in_header(ops: &Ops, header: &str, text: &str) -> Result<Grantee, S3Error> {
    let invalid = || S3Error::argument(header, text, "Argument format not recognized");
    let (kind, name) = text.trim().split_once('=').ok_or_else(invalid)?;
    let name = name.trim().trim_matches('"');
    match kind.trim() {
        "id" => by_id(ops, name),
        "emailAddress" => by_email(ops, name),
        "uri" => by_uri(name),
        _ => Err(invalid()),
    }
}

fn by_id(ops: &Ops, id: &str) -> Result<Grantee, S3Error> {
    match ops.credentials.account(AccountName::CanonicalId(id)) {
        Some(account) => Ok(Grantee::Account(account.canonical_id.clone())),
        None => Err(S3Error::argument("CanonicalUser/ID", id, "Invalid id")),
    }
}

fn by_email(ops: &Ops, email: &str) -> Result<Grantee, S3Error> {
    match ops.credentials.account(AccountName::Email(email)) {
        Some(account) => Ok(Grantee::Account(account.canonical_id.clone())),
        None => Err(S3Code::UnresolvableGrantByEmailAddress.into()),
    }
}

fn by_uri(uri: &str) -> Result<Grantee, S3Error> {
    Grantee::group(uri).ok_or_else(|| S3Error::argument("Group/URI", uri, "Invalid group uri"))
}

/// Reads a document; `owner` is who it must say that the owner is.
fn of_document(ops: &Ops, document: &[u8], owner: &str) -> Result<Acl, S3Error> {
    let malformed = || S3Error::new(S3Code::MalformedACLError);
    let policy = parse_acl(document).map_err(|_| malformed())?;
    let said = policy.owner.and_then(|owner| owner.id).ok_or_else(malformed)?;
    let grants = policy.grants.ok_or_else(malformed)?;
    check_count(grants.len())?;
    // What is no list is refused before anybody is looked for.
    let read = grants.into_iter().map(|grant| named_in_document(grant).ok_or_else(malformed));
    let read: Vec<(Named, Permission)> = read.collect::<Result<_, _>>()?;
    if said != owner {
        by_id(ops, &said)?;
        // The owner can not be changed.
        return Err(S3Code::AccessDenied.into());
    }
    let grant = |(named, permission)| {
        let grantee = match named {
            Named::Id(id) => by_id(ops, &id)?,
            Named::Email(email) => by_email(ops, &email)?,
            Named::Uri(uri) => by_uri(&uri)?,
        };
        Ok(Grant { grantee, permission })
    };
    Ok(Acl::new(read.into_iter().map(grant).collect::<Result<_, S3Error>>()?))
}

/// How a document names a grantee.
enum Named {
    Id(String),
    Email(String),
    Uri(String),
}

/// Whom a grant of a document names in the way of its type, and what it grants; nothing when it is none.
fn named_in_document(grant: dto::Grant) -> Option<(Named, Permission)> {
    let permission = Permission::parse(grant.permission.as_ref()?.as_str())?;
    let grantee = grant.grantee?;
    let named = match (grantee.type_.as_str(), grantee.id, grantee.email_address, grantee.uri) {
        (dto::Type::CANONICAL_USER, Some(id), None, None) => Named::Id(id),
        (dto::Type::AMAZON_CUSTOMER_BY_EMAIL, None, Some(email), None) => Named::Email(email),
        (dto::Type::GROUP, None, None, Some(uri)) => Named::Uri(uri),
        _ => return None,
    };
    Some((named, permission))
}

/// The list that a request for a change of one asks for, in its headers or its document.
async fn asked(ops: &Ops, call: &mut Call, owners: Owners<'_>) -> Result<Acl, S3Error> {
    let document = body::document(ops, call, DocumentDigests::Any).await?;
    let in_headers = [CANNED].into_iter().chain(GRANT_HEADERS.map(|(header, _)| header));
    if !document.is_empty() && in_headers.into_iter().any(|header| call.headers().contains_key(header)) {
        return Err(S3Code::UnexpectedContent.into());
    }
    match requested(ops, call, owners)? {
        Some(acl) => Ok(acl),
        None if !document.is_empty() => of_document(ops, &document, owners.own),
        None => Err(S3Error::new(S3Code::MissingSecurityHeader).detail("MissingHeaderName", CANNED)),
    }
}

fn refuse_public(access: &BucketAccess, acl: &Acl) -> Result<(), S3Error> {
    let blocks = access.public_access.is_some_and(|block| block.block_acls);
    if blocks && acl.is_public() { Err(S3Code::AccessDenied.into()) } else { Ok(()) }
}

/// Who owns the object that a request makes, and its ACL.
///
/// # Errors
/// `NoSuchBucket`, `AccessControlListNotSupported`, `AccessDenied` for a public list where those are blocked, and those of [`requested`].
pub(crate) fn of_new_object(ops: &Ops, call: &Call) -> Result<ObjectAccess, S3Error> {
    let access = &call.settings(ops)?.access;
    let bucket_owner = access.owner.as_deref().ok_or(S3Code::NoSuchBucket)?;
    // What nobody writes is the bucket's owner's: else nobody could read it.
    let is_nobody = call.caller().is_anonymous();
    let caller = if is_nobody { bucket_owner } else { &*call.caller().account.canonical_id };
    let ownership = access.ownership.ownership(ops.object_ownership);
    if !call.has.extensions && (caller == bucket_owner || !ownership.has_acls()) {
        return Ok(ObjectAccess::default());
    }
    let gives = call.header(CANNED)? == Some(BUCKET_OWNER_FULL_CONTROL);
    let own = match ownership {
        Ownership::BucketOwnerEnforced => bucket_owner,
        Ownership::BucketOwnerPreferred if gives => bucket_owner,
        Ownership::BucketOwnerPreferred | Ownership::ObjectWriter => caller,
    };
    let owners = Owners { own, bucket: bucket_owner };
    let Some(acl) = requested(ops, call, owners)? else {
        return Ok(ObjectAccess { owner: (own != bucket_owner).then(|| own.to_owned()), acl: None });
    };
    if !ownership.has_acls() {
        check_unneeded(call, access, &acl, bucket_owner)?;
        return Ok(ObjectAccess::default());
    }
    refuse_public(access, &acl)?;
    let is_usual = acl == Acl::private(own);
    Ok(ObjectAccess { owner: (own != bucket_owner).then(|| own.to_owned()), acl: (!is_usual).then(|| acl.encode()) })
}

/// What a request says about the object that it makes, whose it is and its ACL included.
///
/// # Errors
/// Those of [`attributes::read`] and [`of_new_object`].
pub(super) fn attributes_of_new(ops: &Ops, call: &Call) -> Result<Attributes, S3Error> {
    let ObjectAccess { owner, acl } = of_new_object(ops, call)?;
    Ok(Attributes { owner, acl, creator: quota::creator(call.caller()), ..attributes::read(call)? })
}

/// What is said where ACLs do not count of one that is none: that they do not count.
fn disabled(error: S3Error) -> S3Error {
    let is_of_list = matches!(
        error.code,
        S3Code::AccessDenied
            | S3Code::InvalidArgument
            | S3Code::InvalidRequest
            | S3Code::MalformedACLError
            | S3Code::UnexpectedContent
            | S3Code::UnresolvableGrantByEmailAddress
    );
    if is_of_list { S3Code::AccessControlListNotSupported.into() } else { error }
}

/// Where ACLs do not count, those are let through that say what is so anyway; `private`, which says it too, only where nobody said that they
/// do not count: AWS refuses it, but clients from before send it with every object.
fn check_unneeded(call: &Call, access: &BucketAccess, acl: &Acl, bucket_owner: &str) -> Result<(), S3Error> {
    let says_so = match call.header(CANNED)? {
        Some("private") => access.ownership == OwnershipControls::Unsaid,
        Some(name) => name == BUCKET_OWNER_FULL_CONTROL,
        None => *acl == Acl::private(bucket_owner),
    };
    if says_so { Ok(()) } else { Err(S3Code::AccessControlListNotSupported.into()) }
}

fn document(ops: &Ops, owner: &str, acl: &Acl) -> Response<Body> {
    let account = |xml: &mut Xml, id: &str| {
        let name = ops.credentials.account(AccountName::CanonicalId(id)).map(|account| account.display_name.clone());
        xml.text("ID", id);
        xml.optional("DisplayName", name.filter(|name| !name.is_empty()));
    };
    answer::document(Xml::document("AccessControlPolicy", |xml| {
        xml.element("Owner", |xml| account(xml, owner));
        xml.element("AccessControlList", |xml| {
            for grant in acl.grants() {
                xml.element("Grant", |xml| {
                    let group = grant.grantee.uri();
                    let kind = if group.is_some() { "Group" } else { "CanonicalUser" };
                    xml.raw(&[
                        "<Grantee xmlns:xsi=\"http://www.w3.org/2001/XMLSchema-instance\" xsi:type=\"",
                        kind,
                        "\">",
                    ]);
                    match (&grant.grantee, group) {
                        (Grantee::Account(id), _) => account(xml, id),
                        (_, uri) => xml.optional("URI", uri),
                    }
                    xml.raw(&["</Grantee>"]);
                    xml.text("Permission", grant.permission.as_str());
                });
            }
        });
    }))
}

/// A bucket's settings and its owner.
fn owned(ops: &Ops, bucket: &BucketName) -> Result<(std::sync::Arc<BucketSettings>, String), S3Error> {
    let settings = ops.settings(bucket)?;
    let owner = settings.access.owner.clone().ok_or(S3Code::NoSuchBucket)?;
    Ok((settings, owner))
}

pub(super) async fn get_of_bucket(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let (settings, owner) = owned(ops, &call.bucket()?)?;
    let has_acls = settings.access.ownership.ownership(ops.object_ownership).has_acls();
    let acl = settings.access.acl.clone().filter(|_| has_acls).unwrap_or_else(|| Acl::private(&owner));
    Ok(document(ops, &owner, &acl))
}

pub(super) async fn put_of_bucket(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let bucket = call.bucket()?;
    let (settings, owner) = owned(ops, &bucket)?;
    let acl = asked(ops, call, Owners { own: &owner, bucket: &owner }).await;
    if !settings.access.ownership.ownership(ops.object_ownership).has_acls() {
        check_unneeded(call, &settings.access, &acl.map_err(disabled)?, &owner)?;
        return Ok(answer::empty(StatusCode::OK));
    }
    let acl = acl?;
    if acl == Acl::private(&owner) {
        // What is private needs no document.
        ops.store.delete_config(ConfigScope::Bucket(bucket), access::ACL).await?;
        return Ok(answer::empty(StatusCode::OK));
    }
    let (document, default) = (Bytes::from(acl.encode()), ops.object_ownership);
    let judge = move |access: &BucketAccess| {
        if access.ownership.ownership(default).has_acls() {
            refuse_public(access, &acl)
        } else {
            Err(S3Code::AccessControlListNotSupported.into())
        }
    };
    configs::put_judged(ops, bucket, access::ACL, document, judge).await?;
    Ok(answer::empty(StatusCode::OK))
}

pub(super) async fn get_of_object(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let bucket = call.bucket()?;
    let (settings, bucket_owner) = owned(ops, &bucket)?;
    let attributes = ops.store.object_info(&bucket, &call.key()?, call.version()?).await?.attributes;
    if !settings.access.ownership.ownership(ops.object_ownership).has_acls() {
        return Ok(document(ops, &bucket_owner, &Acl::private(&bucket_owner)));
    }
    let owner = attributes.owner.unwrap_or(bucket_owner);
    let acl = attributes.acl.map(|acl| Acl::decode(&acl).unwrap_or_default());
    let acl = acl.unwrap_or_else(|| Acl::private(&owner));
    Ok(document(ops, &owner, &acl))
}

pub(super) async fn put_of_object(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let (bucket, key, version) = (call.bucket()?, call.key()?, call.version()?);
    let (settings, bucket_owner) = owned(ops, &bucket)?;
    let info = ops.store.object_info(&bucket, &key, version).await;
    let attributes = info.map_err(versioning::marker_is_told)?.attributes;
    let has_acls = settings.access.ownership.ownership(ops.object_ownership).has_acls();
    let owner = attributes.owner.clone().filter(|_| has_acls).unwrap_or_else(|| bucket_owner.clone());
    let owners = Owners { own: &owner, bucket: &bucket_owner };
    let acl = asked(ops, call, owners).await;
    if !has_acls {
        check_unneeded(call, &settings.access, &acl.map_err(disabled)?, &bucket_owner)?;
        return Ok(answer::empty(StatusCode::OK));
    }
    let acl = acl?;
    // As it is now: the document may have taken its time.
    refuse_public(&ops.settings(&bucket)?.access, &acl)?;
    let stored = (acl != Acl::private(&owner)).then(|| acl.encode());
    let judged = (attributes.owner, attributes.acl);
    let change = move |attributes: &mut Attributes| {
        // Whoever may change the list of one object need not be one who may change that of another one, which took its place meanwhile.
        if (&attributes.owner, &attributes.acl) != (&judged.0, &judged.1) {
            return Err(StoreError::Busy);
        }
        attributes.acl = stored;
        Ok(())
    };
    let info = ops.store.update_attributes(bucket, key, version, change).await;
    let info = info.map_err(versioning::marker_is_told)?;
    if call.watch.is_some() {
        let version = versioning::shown(ops, call, info.version)?;
        let told = notifications::described(EventName::AclPut, call.key()?.as_str(), &info.etag, version);
        notifications::tell(ops, call, vec![told]).await?;
    }
    Ok(answer::empty(StatusCode::OK))
}
