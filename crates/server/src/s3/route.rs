//! Which operation a request asks for, and on what: from method, host, path and query alone, before it is trusted.

use std::borrow::Cow;
use std::net::IpAddr;

use gabion_types::{BucketName, ObjectKey, ObjectKeyError};
use http::header::{AUTHORIZATION, HOST};
use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, Uri, Version};
use percent_encoding::percent_decode_str;

use super::host::Domains;
use super::posts;
use super::query::Query;
use crate::error::{S3Code, S3Error};
use crate::http::Peer;

macro_rules! operations {
    ($($name:ident,)*) => {
        /// An operation of S3 that is served.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Operation { $($name,)* }

        impl Operation {
            /// The name in AWS's API.
            pub(crate) const fn name(self) -> &'static str {
                match self { $(Operation::$name => stringify!($name),)* }
            }

            /// Whether it is one of those that are asked for most.
            pub(crate) const fn is_frequent(self) -> bool {
                use Operation::{DeleteObject, GetObject, HeadObject, PutObject, UploadPart};
                matches!(self, GetObject | HeadObject | PutObject | DeleteObject | UploadPart)
            }

            /// Whether its body may come in chunks.
            pub(crate) const fn is_streamed(self) -> bool {
                matches!(self, Operation::PutObject | Operation::UploadPart)
            }

            /// Whether it may be about a version of an object.
            pub(crate) const fn takes_version(self) -> bool {
                use Operation::{
                    DeleteObject, DeleteObjectTagging, GetObject, GetObjectAcl, GetObjectAttributes, GetObjectLegalHold,
                    GetObjectRetention, GetObjectTagging, HeadObject, PutObjectAcl, PutObjectLegalHold,
                    PutObjectRetention, PutObjectTagging, RestoreObject,
                };
                let reads = matches!(self, GetObject | HeadObject | GetObjectAttributes | GetObjectTagging | GetObjectAcl);
                let locks = matches!(
                    self,
                    GetObjectRetention | PutObjectRetention | GetObjectLegalHold | PutObjectLegalHold
                );
                reads || locks || matches!(self, PutObjectTagging | DeleteObjectTagging | PutObjectAcl | DeleteObject | RestoreObject)
            }

            /// Whether it looks at the body of its request.
            pub(crate) const fn reads_body(self) -> bool {
                !matches!(self, Operation::GetObject | Operation::HeadObject | Operation::DeleteObject)
            }
        }
    };
}

operations! {
    AbortMultipartUpload, CompleteMultipartUpload, CopyObject, CreateBucket, CreateMultipartUpload, DeleteBucket,
    DeleteBucketCors, DeleteBucketEncryption, DeleteBucketInventoryConfiguration, DeleteBucketLifecycle, DeleteBucketOwnershipControls,
    DeleteBucketPolicy, DeleteBucketTagging, DeleteBucketWebsite, DeleteObject, DeleteObjectTagging, DeleteObjects,
    DeletePublicAccessBlock, GetBucketAbac, GetBucketAccelerateConfiguration, GetBucketAcl,
    GetBucketAnalyticsConfiguration, GetBucketCors, GetBucketEncryption, GetBucketIntelligentTieringConfiguration,
    GetBucketInventoryConfiguration, GetBucketLifecycleConfiguration, GetBucketLocation, GetBucketLogging, GetBucketMetricsConfiguration, GetBucketNotificationConfiguration,
    GetBucketOwnershipControls, GetBucketPolicy, GetBucketPolicyStatus, GetBucketReplication, GetBucketRequestPayment,
    GetBucketTagging, GetBucketVersioning, GetBucketWebsite, GetObject, GetObjectAcl,
    GetObjectAttributes, GetObjectLegalHold, GetObjectLockConfiguration, GetObjectRetention, GetObjectTagging,
    GetPublicAccessBlock, HeadBucket, HeadObject, ListBucketAnalyticsConfigurations,
    ListBucketIntelligentTieringConfigurations, ListBucketInventoryConfigurations, ListBucketMetricsConfigurations, ListBuckets, ListMultipartUploads, ListObjectVersions, ListObjects,
    ListObjectsV2, ListParts, PostObject, PreflightRequest, PutBucketAcl, PutBucketCors, PutBucketEncryption,
    PutBucketInventoryConfiguration, PutBucketLifecycleConfiguration, PutBucketLogging, PutBucketNotificationConfiguration, PutBucketOwnershipControls, PutBucketPolicy,
    PutBucketRequestPayment, PutBucketTagging, PutBucketVersioning, PutBucketWebsite, PutObject, PutObjectAcl,
    PutObjectLegalHold, PutObjectLockConfiguration, PutObjectRetention, PutObjectTagging, PutPublicAccessBlock,
    RenameObject, RestoreObject, UploadPart, UploadPartCopy,
}

/// Sub-resources whose operations are not served. Without this list a request for one would be taken for an operation on
/// the bucket or object itself.
const UNSUPPORTED: &[&str] = &[
    "abac",
    "accelerate",
    "analytics",
    "annotation",
    "append",
    "events",
    "intelligent-tiering",
    "inventory",
    "metadataAnnotationTable",
    "metadataConfiguration",
    "metadataInventoryTable",
    "metadataJournalTable",
    "metadataTable",
    "metrics",
    "replication",
    "select",
    "session",
    "torrent",
];

/// Query parameters of presigned requests that are about the signature; all other `X-Amz-*` parameters stand for headers.
const PRESIGNING: &[&str] = &[
    "x-amz-algorithm",
    "x-amz-content-sha256",
    "x-amz-credential",
    "x-amz-date",
    "x-amz-expires",
    "x-amz-security-token",
    "x-amz-signature",
    "x-amz-signedheaders",
];

/// Parameters about checksums that stand for headers: what is asked for. Values do not, nor their algorithm, as on AWS: an SDK signs into a URL the CRC of
/// the body that it does not have.
const CHECKSUM_WISHES: &[&str] = &["x-amz-checksum-algorithm", "x-amz-checksum-mode", "x-amz-checksum-type"];

const COPY_SOURCE: HeaderName = HeaderName::from_static("x-amz-copy-source");

/// What a request asks for.
#[derive(Clone, Debug)]
pub(crate) struct Routed {
    /// The operation, or why there is none. It is told only to those who are authenticated.
    pub(crate) operation: Result<Operation, S3Error>,
    pub(crate) bucket: Option<BucketName>,
    pub(crate) key: Option<ObjectKey>,
    pub(crate) query: Query,
    /// Headers that a presigned URL carries as query parameters.
    pub(crate) hoisted: Vec<(HeaderName, HeaderValue)>,
    /// Whether the host names the bucket.
    pub(crate) virtual_host: bool,
    /// `http` or `https`.
    pub(crate) scheme: &'static str,
    /// Whether a customer's key may be shown: nobody between client and server can read along, or the site does not mind.
    pub(crate) private: bool,
    /// Where the request came from.
    pub(crate) source: IpAddr,
    /// `Host`, as sent; empty if it is no text.
    pub(crate) host: HeaderValue,
    pub(crate) version: Version,
}

impl Routed {
    /// Finds the operation; `path` is that of the request, decoded.
    ///
    /// # Errors
    /// `InvalidURI`, `InvalidBucketName`, `KeyTooLongError`.
    pub(crate) fn new(parts: &Parts, path: &str, domains: &Domains, peer: Peer) -> Result<Self, S3Error> {
        let host = host(parts);
        let query = Query::parse(parts.uri.query().unwrap_or_default())?;
        let resource = path.strip_prefix('/').unwrap_or(path);
        let named = domains.bucket(host.to_str().unwrap_or_default());
        let virtual_host = named.is_some();
        let (bucket, key) = match &named {
            Some(bucket) => (bucket.as_str(), resource),
            None => resource.split_once('/').unwrap_or((resource, "")),
        };
        let hoisted = if query.has("X-Amz-Signature") { hoisted(&query)? } else { Vec::new() };
        let copies = parts.headers.contains_key(COPY_SOURCE) || hoisted.iter().any(|(name, _)| name == COPY_SOURCE);
        let (bucket, key) = names(bucket, key)?;
        let operation = asked(parts, (bucket.is_some(), key.is_some()), &query, copies);
        let source = peer.address.ip();
        let (scheme, private) = if peer.tls { ("https", true) } else { ("http", false) };
        let version = parts.version;
        Ok(Self { operation, bucket, key, query, hoisted, virtual_host, scheme, private, source, host, version })
    }
}

impl Routed {
    /// What Signature Version 2 signs of a request that names a bucket alone: a path that ends with a slash, whether or not it was sent.
    pub(crate) fn uri_of_version_2(&self, parts: &Parts) -> Option<Uri> {
        let path = parts.uri.path();
        let signed = self.is_version_2(parts);
        let is_bucket = self.bucket.is_some() && self.key.is_none() && !self.virtual_host && !path.ends_with('/');
        if !signed || !is_bucket {
            return None;
        }
        let target = match parts.uri.query() {
            Some(query) => format!("{path}/?{query}"),
            None => format!("{path}/"),
        };
        let mut uri = parts.uri.clone().into_parts();
        uri.path_and_query = Some(target.parse().ok()?);
        Uri::from_parts(uri).ok()
    }
}

impl Routed {
    /// Whether it says that it is signed in Version 2.
    pub(crate) fn is_version_2(&self, parts: &Parts) -> bool {
        let authorization = parts.headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
        let in_query = self.query.has("AWSAccessKeyId") || self.query.has("Signature");
        in_query || authorization.is_some_and(|value| value.starts_with(b"AWS "))
    }

    /// Refuses a request in whose query something that Signature Version 2 does not sign makes another operation of it: anybody on the way could
    /// have added that.
    ///
    /// # Errors
    /// `AccessDenied`.
    pub(crate) fn check_version_2(&self, parts: &Parts) -> Result<(), S3Error> {
        if self.query.is_empty() || !self.is_version_2(parts) {
            return Ok(());
        }
        // What is there twice is not signed at all.
        let is_doubled = |name: &&str| self.query.iter().filter(|(present, _)| present == name).count() > 1;
        if SIGNED_BY_VERSION_2.iter().any(is_doubled) {
            return Err(S3Error::with(S3Code::AccessDenied, NOT_SIGNED_BY_VERSION_2));
        }
        let signed = self.query.only(|name| SIGNED_BY_VERSION_2.contains(&name) || name == LIST_TYPE);
        let copies = parts.headers.contains_key(COPY_SOURCE);
        let meant = asked(parts, (self.bucket.is_some(), self.key.is_some()), &signed, copies);
        let is_meant = match (&self.operation, &meant) {
            (Ok(asked), Ok(meant)) => asked == meant,
            // It is refused in any case.
            (Err(_), Err(_)) => true,
            _ => false,
        };
        if is_meant && !self.query.has(CONFIGURATION_ID) {
            return Ok(());
        }
        Err(S3Error::with(S3Code::AccessDenied, NOT_SIGNED_BY_VERSION_2))
    }
}

const NOT_SIGNED_BY_VERSION_2: &str =
    "There were sub-resources in the request which Signature Version 2 does not sign. Please use AWS4-HMAC-SHA256.";
/// Chooses between two forms of the same answer.
const LIST_TYPE: &str = "list-type";
/// Chooses one of several documents of a bucket.
const CONFIGURATION_ID: &str = "id";

/// Query parameters that Signature Version 2 signs: what botocore's `HmacV1Auth` and s3s agree on.
const SIGNED_BY_VERSION_2: &[&str] = &[
    "accelerate",
    "acl",
    "analytics",
    "cors",
    "defaultObjectAcl",
    "delete",
    "inventory",
    "lifecycle",
    "location",
    "logging",
    "metrics",
    "notification",
    "object-lock",
    "partNumber",
    "policy",
    "replication",
    "requestPayment",
    "response-cache-control",
    "response-content-disposition",
    "response-content-encoding",
    "response-content-language",
    "response-content-type",
    "response-expires",
    "restore",
    "select",
    "select-type",
    "storageClass",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versionId",
    "versioning",
    "versions",
    "website",
];

/// The operation that a request asks for, which may name a bucket, and a key in it.
fn asked(
    parts: &Parts,
    (has_bucket, has_key): (bool, bool),
    query: &Query,
    copies: bool,
) -> Result<Operation, S3Error> {
    if copies && takes_no_source(&parts.method, query) {
        return Err(S3Error::argument(
            COPY_SOURCE.as_str(),
            parts.headers.get(COPY_SOURCE).and_then(|source| source.to_str().ok()).unwrap_or_default(),
            "You can only specify a copy source header for copy requests.",
        ));
    }
    match (has_bucket, has_key) {
        (false, _) => on_service(&parts.method),
        // The question of a browser is about a bucket, whatever else it names.
        (true, _) if parts.method == Method::OPTIONS => Ok(Operation::PreflightRequest),
        (true, false) if is_post_of_form(parts, query) => Ok(Operation::PostObject),
        (true, false) => on_bucket(&parts.method, query),
        (true, true) => on_object(&parts.method, query, copies),
    }
}

/// Whether a request can be no copy, whatever it is about.
fn takes_no_source(method: &Method, query: &Query) -> bool {
    matches!(*method, Method::GET | Method::HEAD | Method::DELETE) || *method == Method::POST && query.has("uploadId")
}

/// Whether a browser uploads an object. Its form says who it is, so that it has neither a signed head nor sub-resources.
fn is_post_of_form(parts: &Parts, query: &Query) -> bool {
    parts.method == Method::POST && !query.has("delete") && posts::is_form(&parts.headers)
}

/// The path of a request, decoded.
///
/// # Errors
/// `InvalidURI` when it is not UTF-8.
pub(crate) fn decoded_path(uri: &Uri) -> Result<Cow<'_, str>, S3Error> {
    percent_decode_str(uri.path()).decode_utf8().map_err(|_| S3Error::new(S3Code::InvalidURI))
}

fn names(bucket: &str, key: &str) -> Result<(Option<BucketName>, Option<ObjectKey>), S3Error> {
    if bucket.is_empty() {
        // `//key` names no bucket.
        return if key.is_empty() { Ok((None, None)) } else { Err(S3Code::InvalidBucketName.into()) };
    }
    let name = BucketName::new(bucket)
        .map_err(|_| S3Error::new(S3Code::InvalidBucketName).detail("BucketName", bucket.to_owned()))?;
    let key = match ObjectKey::new(key) {
        Ok(key) => Some(key),
        Err(ObjectKeyError::Empty) => None,
        Err(ObjectKeyError::TooLong) => {
            return Err(S3Error::new(S3Code::KeyTooLongError)
                .detail("Size", key.len().to_string())
                .detail("MaxSizeAllowed", gabion_types::limits::KEY_BYTES_MAX.to_string()));
        }
    };
    Ok((Some(name), key))
}

/// `Host`, as sent, or the authority of the target.
pub(super) fn host(parts: &Parts) -> HeaderValue {
    match parts.headers.get(HOST) {
        Some(host) if host.to_str().is_ok() => host.clone(),
        _ => parts
            .uri
            .authority()
            .and_then(|authority| HeaderValue::from_str(authority.as_str()).ok())
            .unwrap_or_else(|| HeaderValue::from_static("")),
    }
}

fn hoisted(query: &Query) -> Result<Vec<(HeaderName, HeaderValue)>, S3Error> {
    let mut headers = Vec::new();
    for (name, value) in query.iter() {
        let lower = name.to_ascii_lowercase();
        if lower.starts_with("x-amz-") && !PRESIGNING.contains(&lower.as_str()) {
            if lower.contains("encryption-customer-key") {
                let message = "A customer provided key must be given in headers: URLs are kept and logged.";
                return Err(S3Error::with(S3Code::InvalidArgument, message).detail("ArgumentName", name));
            }
            if is_checksum(&lower) {
                continue;
            }
            let invalid = || S3Error::argument(name, value, "The parameter stands for a header and can be none.");
            let name = HeaderName::from_bytes(lower.as_bytes()).map_err(|_| invalid())?;
            headers.push((name, HeaderValue::from_bytes(value.as_bytes()).map_err(|_| invalid())?));
        }
    }
    Ok(headers)
}

/// Whether a parameter says what the checksum of a body is.
fn is_checksum(lower: &str) -> bool {
    lower == "x-amz-sdk-checksum-algorithm"
        || (lower.starts_with("x-amz-checksum-") && !CHECKSUM_WISHES.contains(&lower))
}

fn supported(query: &Query) -> Result<(), S3Error> {
    if query.is_empty() {
        return Ok(());
    }
    match UNSUPPORTED.iter().find(|name| query.has(name)) {
        Some(name) => Err(S3Error::unsupported(name)),
        None => Ok(()),
    }
}

/// What AWS calls some of the sub-resources.
const RESOURCE_TYPES: &[(&str, &str)] = &[
    ("acl", "ACL"),
    ("cors", "CORS"),
    ("delete", "MULTI_OBJECT_DELETE"),
    ("encryption", "ENCRYPTION"),
    ("lifecycle", "LIFECYCLE"),
    ("location", "LOCATION"),
    ("logging", "LOGGING_STATUS"),
    ("notification", "NOTIFICATION"),
    ("object-lock", "OBJECT_LOCK_CONFIGURATION"),
    ("ownershipControls", "OWNERSHIP_CONTROLS"),
    ("policy", "BUCKETPOLICY"),
    ("policyStatus", "POLICY_STATUS"),
    ("publicAccessBlock", "PUBLIC_ACCESS_BLOCK"),
    ("requestPayment", "REQUEST_PAYMENT"),
    ("restore", "OBJECT_RESTORE"),
    ("tagging", "TAGGING"),
    ("uploads", "UPLOADS"),
    ("versioning", "VERSIONING"),
    ("versions", "BUCKETVERSIONS"),
    ("website", "WEBSITE"),
];

fn resource_type(name: &str) -> &'static str {
    RESOURCE_TYPES.iter().find(|(known, _)| *known == name).map_or("BUCKET", |(_, kind)| kind)
}

/// A method that what a request names has not.
fn not_allowed(method: &Method, resource: &'static str) -> S3Error {
    S3Error::new(S3Code::MethodNotAllowed).detail("Method", method.as_str()).detail("ResourceType", resource)
}

fn on_service(method: &Method) -> Result<Operation, S3Error> {
    match *method {
        Method::GET => Ok(Operation::ListBuckets),
        _ => Err(not_allowed(method, "SERVICE")),
    }
}

/// Documents of buckets: which operation reads, writes and deletes each.
const CONFIGURATIONS: &[(&str, [Option<Operation>; 3])] = &[
    ("acl", [Some(Operation::GetBucketAcl), Some(Operation::PutBucketAcl), None]),
    ("cors", [Some(Operation::GetBucketCors), Some(Operation::PutBucketCors), Some(Operation::DeleteBucketCors)]),
    (
        "encryption",
        [
            Some(Operation::GetBucketEncryption),
            Some(Operation::PutBucketEncryption),
            Some(Operation::DeleteBucketEncryption),
        ],
    ),
    (
        "lifecycle",
        [
            Some(Operation::GetBucketLifecycleConfiguration),
            Some(Operation::PutBucketLifecycleConfiguration),
            Some(Operation::DeleteBucketLifecycle),
        ],
    ),
    ("logging", [Some(Operation::GetBucketLogging), Some(Operation::PutBucketLogging), None]),
    (
        "notification",
        [
            Some(Operation::GetBucketNotificationConfiguration),
            Some(Operation::PutBucketNotificationConfiguration),
            None,
        ],
    ),
    (
        "ownershipControls",
        [
            Some(Operation::GetBucketOwnershipControls),
            Some(Operation::PutBucketOwnershipControls),
            Some(Operation::DeleteBucketOwnershipControls),
        ],
    ),
    (
        "policy",
        [Some(Operation::GetBucketPolicy), Some(Operation::PutBucketPolicy), Some(Operation::DeleteBucketPolicy)],
    ),
    ("policyStatus", [Some(Operation::GetBucketPolicyStatus), None, None]),
    (
        "publicAccessBlock",
        [
            Some(Operation::GetPublicAccessBlock),
            Some(Operation::PutPublicAccessBlock),
            Some(Operation::DeletePublicAccessBlock),
        ],
    ),
    ("requestPayment", [Some(Operation::GetBucketRequestPayment), Some(Operation::PutBucketRequestPayment), None]),
    (
        "website",
        [Some(Operation::GetBucketWebsite), Some(Operation::PutBucketWebsite), Some(Operation::DeleteBucketWebsite)],
    ),
    (
        "tagging",
        [Some(Operation::GetBucketTagging), Some(Operation::PutBucketTagging), Some(Operation::DeleteBucketTagging)],
    ),
];

/// Configurations that no bucket has, and nobody can write: what reads one, and what reads the one that an `id` names.
const ABSENT: &[(&str, Operation, Operation)] = &[
    ("abac", Operation::GetBucketAbac, Operation::GetBucketAbac),
    ("accelerate", Operation::GetBucketAccelerateConfiguration, Operation::GetBucketAccelerateConfiguration),
    ("analytics", Operation::ListBucketAnalyticsConfigurations, Operation::GetBucketAnalyticsConfiguration),
    (
        "intelligent-tiering",
        Operation::ListBucketIntelligentTieringConfigurations,
        Operation::GetBucketIntelligentTieringConfiguration,
    ),
    ("metrics", Operation::ListBucketMetricsConfigurations, Operation::GetBucketMetricsConfiguration),
    ("replication", Operation::GetBucketReplication, Operation::GetBucketReplication),
];

/// Inventories, of which a bucket may have many, each with an id.
fn on_inventory(method: &Method, query: &Query) -> Result<Operation, S3Error> {
    match *method {
        Method::GET if query.has("id") => Ok(Operation::GetBucketInventoryConfiguration),
        Method::GET => Ok(Operation::ListBucketInventoryConfigurations),
        Method::PUT => Ok(Operation::PutBucketInventoryConfiguration),
        Method::DELETE => Ok(Operation::DeleteBucketInventoryConfiguration),
        _ => Err(not_allowed(method, "INVENTORY")),
    }
}

/// Sub-resources of buckets that are no configurations of three methods.
const OTHERS_OF_BUCKETS: [&str; 6] = ["versioning", "object-lock", "versions", "location", "uploads", "delete"];

/// Refuses what names more than one sub-resource: which of them was meant, nobody can know.
///
/// # Errors
/// `InvalidArgument`.
fn one_of<'a>(query: &Query, known: impl Iterator<Item = &'a str>) -> Result<(), S3Error> {
    if query.pairs().len() < 2 {
        return Ok(());
    }
    let mut named: Vec<&str> = known.filter(|name| query.has(name)).collect();
    named.sort_unstable();
    named.dedup();
    match named[..] {
        [first, _, ..] => {
            let message = format!("Conflicting query string parameters: {}", named.join(", "));
            Err(S3Error::argument("ResourceType", first, message))
        }
        _ => Ok(()),
    }
}

fn on_bucket(method: &Method, query: &Query) -> Result<Operation, S3Error> {
    let configurations = CONFIGURATIONS.iter().map(|(name, _)| *name).chain(ABSENT.iter().map(|(name, ..)| *name));
    one_of(query, configurations.chain(OTHERS_OF_BUCKETS).chain(["inventory"]))?;
    if method == Method::GET
        && !query.is_empty()
        && let Some((_, all, one)) = ABSENT.iter().find(|(name, ..)| query.has(name))
    {
        return Ok(if query.has("id") { *one } else { *all });
    }
    if query.has("inventory") {
        return on_inventory(method, query);
    }
    supported(query)?;
    if query.has("renameObject") {
        return Err(not_allowed(method, "BUCKET"));
    }
    if let Some((name, operations)) = CONFIGURATIONS.iter().find(|(name, _)| query.has(name)) {
        let at = [Method::GET, Method::PUT, Method::DELETE].iter().position(|known| known == method);
        return at.and_then(|at| operations[at]).ok_or_else(|| not_allowed(method, resource_type(name)));
    }
    let other = OTHERS_OF_BUCKETS.iter().find(|name| query.has(name));
    match *method {
        Method::GET if query.has("versioning") => Ok(Operation::GetBucketVersioning),
        Method::PUT if query.has("versioning") => Ok(Operation::PutBucketVersioning),
        Method::GET if query.has("object-lock") => Ok(Operation::GetObjectLockConfiguration),
        Method::PUT if query.has("object-lock") => Ok(Operation::PutObjectLockConfiguration),
        Method::GET if query.has("versions") => Ok(Operation::ListObjectVersions),
        Method::GET if query.has("location") => Ok(Operation::GetBucketLocation),
        Method::GET if query.has("uploads") => Ok(Operation::ListMultipartUploads),
        Method::POST if query.has("delete") => Ok(Operation::DeleteObjects),
        // Else who asks for one of them would make or delete the bucket.
        _ if other.is_some() => Err(not_allowed(method, other.map_or("BUCKET", |name| resource_type(name)))),
        Method::GET => match query.get("list-type")? {
            None | Some("1") => Ok(Operation::ListObjects),
            Some("2") => Ok(Operation::ListObjectsV2),
            Some(other) => Err(S3Error::argument("list-type", other, "Invalid list type")),
        },
        Method::HEAD => Ok(Operation::HeadBucket),
        Method::PUT => Ok(Operation::CreateBucket),
        Method::DELETE => Ok(Operation::DeleteBucket),
        Method::POST => {
            let condition = "Bucket POST must be of the enclosure-type multipart/form-data";
            Err(S3Error::new(S3Code::PreconditionFailed).detail("Condition", condition))
        }
        _ => Err(not_allowed(method, "BUCKET")),
    }
}

/// Sub-resources of objects.
const OF_OBJECTS: [&str; 9] =
    ["acl", "attributes", "legal-hold", "renameObject", "restore", "retention", "tagging", "torrent", "uploads"];

fn on_object(method: &Method, query: &Query, copies: bool) -> Result<Operation, S3Error> {
    one_of(query, OF_OBJECTS.into_iter())?;
    supported(query)?;
    if query.has("encryption") {
        // UpdateObjectEncryption.
        return Err(S3Error::unsupported("encryption"));
    }
    let upload = query.has("uploadId");
    match *method {
        Method::PUT if query.has("renameObject") => Ok(Operation::RenameObject),
        _ if query.has("renameObject") => Err(not_allowed(method, "OBJECT")),
        Method::GET if query.has("acl") => Ok(Operation::GetObjectAcl),
        Method::PUT if query.has("acl") => Ok(Operation::PutObjectAcl),
        _ if query.has("acl") => Err(not_allowed(method, resource_type("acl"))),
        Method::GET if query.has("tagging") => Ok(Operation::GetObjectTagging),
        Method::PUT if query.has("tagging") => Ok(Operation::PutObjectTagging),
        Method::DELETE if query.has("tagging") => Ok(Operation::DeleteObjectTagging),
        _ if query.has("tagging") => Err(not_allowed(method, resource_type("tagging"))),
        Method::GET if query.has("retention") => Ok(Operation::GetObjectRetention),
        Method::PUT if query.has("retention") => Ok(Operation::PutObjectRetention),
        Method::GET if query.has("legal-hold") => Ok(Operation::GetObjectLegalHold),
        Method::PUT if query.has("legal-hold") => Ok(Operation::PutObjectLegalHold),
        _ if query.has("retention") || query.has("legal-hold") => Err(not_allowed(method, "OBJECT_LOCK")),
        Method::POST if query.has("restore") => Ok(Operation::RestoreObject),
        _ if query.has("restore") => Err(not_allowed(method, resource_type("restore"))),
        Method::GET if query.has("attributes") => Ok(Operation::GetObjectAttributes),
        Method::GET if query.has("uploads") => {
            Err(S3Error::request("Key is not expected for the GET method ?uploads subresource"))
        }
        Method::GET if query.has("versions") => {
            Err(S3Error::request("There is no such thing as the ?versions sub-resource for a key"))
        }
        // Else who asks for one of them would make or delete the object.
        Method::PUT | Method::DELETE if query.has("uploads") => Err(not_allowed(method, resource_type("uploads"))),
        Method::PUT | Method::DELETE if query.has("attributes") => Err(not_allowed(method, "OBJECT")),
        Method::GET if upload => Ok(Operation::ListParts),
        Method::GET => Ok(Operation::GetObject),
        Method::HEAD => Ok(Operation::HeadObject),
        Method::PUT => match (upload, query.has("partNumber"), copies) {
            (true, true, false) => Ok(Operation::UploadPart),
            (true, true, true) => Ok(Operation::UploadPartCopy),
            (false, false, false) => Ok(Operation::PutObject),
            (false, false, true) => Ok(Operation::CopyObject),
            (false, true, _) => Err(S3Error::argument(
                "partNumber",
                query.text("partNumber")?,
                "This operation does not accept partNumber without uploadId",
            )),
            (true, false, _) => Err(not_allowed(method, "UPLOAD")),
        },
        Method::DELETE if upload => Ok(Operation::AbortMultipartUpload),
        Method::DELETE => Ok(Operation::DeleteObject),
        Method::POST if query.has("uploads") => Ok(Operation::CreateMultipartUpload),
        Method::POST if upload => Ok(Operation::CompleteMultipartUpload),
        _ => Err(not_allowed(method, "OBJECT")),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn route(method: &str, target: &str, headers: &[(&str, &str)]) -> Result<Routed, S3Error> {
        let mut request = Request::builder().method(method).uri(target).header("host", "b.s3.test");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let peer = Peer { address: "127.0.0.1:1".parse().unwrap(), tls: false };
        Routed::new(&parts, &decoded_path(&parts.uri)?, &Domains::new(&[]).unwrap(), peer)
    }

    #[test]
    fn requests_find_their_operation() {
        let copy: &[(&str, &str)] = &[("x-amz-copy-source", "/b/k")];
        let form: &[(&str, &str)] = &[("content-type", " Multipart/Form-Data; boundary=x")];
        type Row<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)], &'a str);
        let table: &[Row<'_>] = &[
            ("GET", "/", &[], "ListBuckets"),
            ("GET", "/?x-id=ListBuckets", &[], "ListBuckets"),
            ("PUT", "/", &[], "405"),
            ("PUT", "/bkt", &[], "CreateBucket"),
            ("PUT", "/bkt/", &[], "CreateBucket"),
            ("HEAD", "/bkt", &[], "HeadBucket"),
            ("DELETE", "/bkt", &[], "DeleteBucket"),
            ("GET", "/bkt", &[], "ListObjects"),
            ("GET", "/bkt?list-type=2", &[], "ListObjectsV2"),
            ("GET", "/bkt?list-type=3", &[], "400"),
            ("GET", "/bkt?location", &[], "GetBucketLocation"),
            ("GET", "/bkt?uploads", &[], "ListMultipartUploads"),
            ("PUT", "/bkt?uploads", &[], "405"),
            ("GET", "/bkt?acl&policy", &[], "400"),
            ("DELETE", "/bkt?cors&replication", &[], "400"),
            ("GET", "/bkt?versions&prefix=acl", &[], "ListObjectVersions"),
            ("PUT", "/bkt/k?acl&tagging", &[], "400"),
            ("GET", "/bkt/k?acl&versionId=x", &[], "GetObjectAcl"),
            ("DELETE", "/bkt?location", &[], "405"),
            ("PUT", "/bkt?versions", &[], "405"),
            ("GET", "/bkt?delete", &[], "405"),
            ("DELETE", "/bkt?delete", &[], "405"),
            ("GET", "/bkt/k?uploads", &[], "400"),
            ("GET", "/bkt/k?versions", &[], "400"),
            ("GET", "/bkt/k", copy, "400"),
            ("HEAD", "/bkt", copy, "400"),
            ("DELETE", "/bkt/k", copy, "400"),
            ("POST", "/bkt/k?uploadId=1", copy, "400"),
            ("POST", "/bkt/k?uploads", copy, "CreateMultipartUpload"),
            ("GET", "/bkt?encryption", &[], "GetBucketEncryption"),
            ("PUT", "/bkt?encryption", &[], "PutBucketEncryption"),
            ("DELETE", "/bkt?encryption", &[], "DeleteBucketEncryption"),
            ("POST", "/bkt?encryption", &[], "405"),
            ("PUT", "/bkt/k?encryption", &[], "501"),
            ("GET", "/bkt?versions", &[], "ListObjectVersions"),
            ("GET", "/bkt?versioning", &[], "GetBucketVersioning"),
            ("GET", "/bkt?acl", &[], "GetBucketAcl"),
            ("PUT", "/bkt?policy", &[], "PutBucketPolicy"),
            ("PUT", "/bkt?policyStatus", &[], "405"),
            ("DELETE", "/bkt?publicAccessBlock", &[], "DeletePublicAccessBlock"),
            ("PUT", "/bkt?ownershipControls", &[], "PutBucketOwnershipControls"),
            ("POST", "/bkt?acl", &[], "405"),
            ("PUT", "/bkt/k?acl", &[], "PutObjectAcl"),
            ("DELETE", "/bkt/k?acl", &[], "405"),
            ("PUT", "/bkt?versioning", &[], "PutBucketVersioning"),
            ("POST", "/bkt?delete", &[], "DeleteObjects"),
            ("POST", "/bkt", &[], "412"),
            ("POST", "/bkt", form, "PostObject"),
            ("POST", "/bkt/k", form, "405"),
            ("PUT", "/bkt", form, "CreateBucket"),
            ("POST", "/bkt?delete", form, "DeleteObjects"),
            ("GET", "/bkt?replication", &[], "GetBucketReplication"),
            ("PUT", "/bkt?replication", &[], "501"),
            ("GET", "/bkt/k?replication", &[], "501"),
            ("GET", "/bkt?analytics", &[], "ListBucketAnalyticsConfigurations"),
            ("GET", "/bkt?metrics&id=x", &[], "GetBucketMetricsConfiguration"),
            ("DELETE", "/bkt?metrics&id=x", &[], "501"),
            ("GET", "/bkt?inventory", &[], "ListBucketInventoryConfigurations"),
            ("GET", "/bkt?inventory&id=x", &[], "GetBucketInventoryConfiguration"),
            ("PUT", "/bkt?inventory&id=x", &[], "PutBucketInventoryConfiguration"),
            ("DELETE", "/bkt?inventory&id=x", &[], "DeleteBucketInventoryConfiguration"),
            ("GET", "/bkt/k?inventory", &[], "501"),
            ("PATCH", "/bkt", &[], "405"),
            ("GET", "/bkt/k", &[], "GetObject"),
            ("GET", "/bkt/a/b?partNumber=2", &[], "GetObject"),
            ("GET", "/bkt/k?attributes", &[], "GetObjectAttributes"),
            ("GET", "/bkt/k?uploadId=1", &[], "ListParts"),
            ("GET", "/bkt?tagging", &[], "GetBucketTagging"),
            ("PUT", "/bkt?cors", &[], "PutBucketCors"),
            ("DELETE", "/bkt?lifecycle", &[], "DeleteBucketLifecycle"),
            ("DELETE", "/bkt?requestPayment", &[], "405"),
            ("OPTIONS", "/bkt", &[], "PreflightRequest"),
            ("OPTIONS", "/bkt/k?X-Amz-Signature=1&acl", &[], "PreflightRequest"),
            ("OPTIONS", "/", &[], "405"),
            ("GET", "/bkt/k?tagging", &[], "GetObjectTagging"),
            ("PUT", "/bkt/k?tagging", &[], "PutObjectTagging"),
            ("POST", "/bkt/k?tagging", &[], "405"),
            ("GET", "/bkt/k?torrent", &[], "501"),
            ("HEAD", "/bkt/k", &[], "HeadObject"),
            ("PUT", "/bkt/k", &[], "PutObject"),
            ("PUT", "/bkt/k", copy, "CopyObject"),
            ("PUT", "/bkt/k?uploadId=1&partNumber=1", &[], "UploadPart"),
            ("PUT", "/bkt/k?uploadId=1&partNumber=1", copy, "UploadPartCopy"),
            ("PUT", "/bkt/k?uploadId=1", &[], "405"),
            ("PUT", "/bkt/k?partNumber=1", &[], "400"),
            ("PUT", "/bkt/k?annotation=x", &[], "501"),
            ("PUT", "/bkt/k?retention", &[], "PutObjectRetention"),
            ("DELETE", "/bkt/k?legal-hold", &[], "405"),
            ("PUT", "/bkt/k?renameObject", copy, "RenameObject"),
            ("DELETE", "/bkt/k", &[], "DeleteObject"),
            ("DELETE", "/bkt/k?uploadId=1", &[], "AbortMultipartUpload"),
            ("DELETE", "/bkt/k?tagging", &[], "DeleteObjectTagging"),
            ("POST", "/bkt/k?uploads", &[], "CreateMultipartUpload"),
            ("POST", "/bkt/k?uploadId=1", &[], "CompleteMultipartUpload"),
            ("POST", "/bkt/k?select&select-type=2", &[], "501"),
            ("POST", "/bkt/k?restore", &[], "RestoreObject"),
            ("POST", "/bkt/k", &[], "405"),
            ("PUT", "/bkt/k?X-Amz-Signature=1&X-Amz-Copy-Source=b%2Fk", &[], "CopyObject"),
            ("PUT", "/bkt/k?X-Amz-Copy-Source=b%2Fk", &[], "PutObject"),
        ];
        for (method, target, headers, expected) in table {
            let got = match route(method, target, headers).unwrap().operation {
                Ok(operation) => operation.name().to_owned(),
                Err(error) => error.code.status().as_u16().to_string(),
            };
            assert_eq!(got, *expected, "{method} {target}");
        }
    }

    #[test]
    fn paths_are_decoded_once() {
        let routed = route("GET", "/bkt/a%2Fb%20c+d%2520//e", &[]).unwrap();
        assert_eq!(routed.key.unwrap().as_str(), "a/b c+d%20//e");
        assert_eq!(routed.bucket.unwrap().as_str(), "bkt");
    }

    #[test]
    fn bad_names_are_refused() {
        let long = format!("/bkt/{}", "k".repeat(1025));
        for (target, code) in [
            ("/BKT/k", S3Code::InvalidBucketName),
            ("/b_t", S3Code::InvalidBucketName),
            ("/ab", S3Code::InvalidBucketName),
            ("//k", S3Code::InvalidBucketName),
            ("/bkt/%ff", S3Code::InvalidURI),
            (long.as_str(), S3Code::KeyTooLongError),
        ] {
            assert_eq!(route("GET", target, &[]).unwrap_err().code, code, "{target}");
        }
    }

    #[test]
    fn a_presigned_query_stands_for_headers() {
        let routed = route("PUT", "/bkt/k?X-Amz-Signature=s&X-Amz-Date=d&X-Amz-Meta-Tag=v&x-amz-acl=private", &[]);
        let hoisted = routed.unwrap().hoisted;
        let names: Vec<_> = hoisted.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
        assert_eq!(names, [("x-amz-meta-tag", "v"), ("x-amz-acl", "private")]);
        let routed = route("PUT", "/bkt/k?X-Amz-Signature=s&x-amz-checksum-crc32=v&x-amz-checksum-type=t", &[]);
        assert_eq!(
            routed.unwrap().hoisted.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["x-amz-checksum-type"]
        );
    }
}
