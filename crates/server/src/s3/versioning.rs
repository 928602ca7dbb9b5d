//! Whether a bucket keeps versions, and the list of them.
//!
//! Source: AWS, "Using versioning in S3 buckets", "ListObjectVersions".

use bytes::Bytes;
use gabion_store::{
    ConfigScope, Configs, ListVersions, ListedVersions, StoreError, VERSIONING, VersionId, VersionSummary, Versioning,
};
use gabion_types::limits::LIST_KEYS_MAX;
use http::header::{HeaderMap, HeaderValue};
use http::{Response, StatusCode};
use s3s::Body;

use super::answer;
use super::body;
use super::call::Call;
use super::listing::{Names, Owners, STANDARD, owner};
use super::xml::{Xml, parse_versioning};
use super::{date, object_lock};
use crate::error::{DELETE_MARKER, S3Code, S3Error, VERSION_ID};
use crate::ops::{Ops, bucket};

/// Shows the id of what was made, read or deleted.
pub(super) fn show(version: Option<VersionId>, is_marker: bool, headers: &mut HeaderMap) {
    if let Some(version) = version.and_then(|version| answer::value(format_args!("{version}"))) {
        headers.insert(VERSION_ID, version);
    }
    if is_marker {
        headers.insert(DELETE_MARKER, HeaderValue::from_static("true"));
    }
}

/// The id of what was read, if its bucket keeps versions or did.
///
/// # Errors
/// Those of the index.
pub(super) fn shown(ops: &Ops, call: &Call, version: VersionId) -> Result<Option<VersionId>, S3Error> {
    let is_told = version != VersionId::Null || call.settings(ops)?.versioning != Versioning::Never;
    Ok(is_told.then_some(version))
}

/// A delete marker is told as such, whether it was named or is the newest version: of all that belongs to versions AWS says so, but for reads.
pub(super) fn marker_is_told(error: StoreError) -> S3Error {
    match error {
        StoreError::DeleteMarker { version, modified_ms, .. } => {
            StoreError::DeleteMarker { version, modified_ms, is_named: true }.into()
        }
        error => error.into(),
    }
}

pub(super) async fn get(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    bucket::head(ops, &call.bucket()?).await?;
    let status = match call.settings(ops)?.versioning {
        Versioning::Never => None,
        kept => Some(kept.document()),
    };
    Ok(answer::document(Xml::document("VersioningConfiguration", |xml| xml.optional("Status", status))))
}

pub(super) async fn put(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let document = body::required(ops, call).await?;
    let configuration = parse_versioning(&document)?;
    if configuration.mfa_delete.is_some_and(|mfa| mfa.as_str() == "Enabled") {
        return Err(S3Error::unsupported("MfaDelete"));
    }
    let versioning = match configuration.status.as_ref().map(|status| status.as_str()) {
        Some("Enabled") => Versioning::Enabled,
        Some("Suspended") => Versioning::Suspended,
        Some(_) => return Err(S3Code::MalformedXML.into()),
        None => {
            return Err(S3Error::with(
                S3Code::IllegalVersioningConfigurationException,
                "The Versioning element must be specified",
            ));
        }
    };
    let is_suspended = versioning == Versioning::Suspended;
    let allows = move |configs: &Configs| !is_suspended || configs.get(object_lock::NAME).is_none();
    let document = Bytes::from_static(versioning.document().as_bytes());
    let scope = ConfigScope::Bucket(call.bucket()?);
    if let Err(error) = ops.store.put_config_if(scope, VERSIONING, document, allows).await {
        if !matches!(error, StoreError::PreconditionFailed(_)) {
            return Err(error.into());
        }
        let message =
            "An Object Lock configuration is present on this bucket, so the versioning state cannot be changed.";
        return Err(S3Error::with(S3Code::InvalidBucketState, message));
    }
    Ok(answer::empty(StatusCode::OK))
}

/// ListObjectVersions.
pub(super) async fn list(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let query = call.query();
    let names = Names::of(query)?;
    let (key_marker, version_marker) = (query.text("key-marker")?, query.text("version-id-marker")?);
    let (prefix, delimiter) = (query.text("prefix")?, query.text("delimiter")?);
    let version = match version_marker {
        "" => None,
        marker if key_marker.is_empty() => {
            let message = "A version-id marker cannot be specified without a key marker.";
            return Err(S3Error::argument("version-id-marker", marker, message));
        }
        marker => Some(
            marker
                .parse::<VersionId>()
                .ok()
                .filter(|version| *version != VersionId::ELSEWHERE)
                .ok_or_else(|| S3Error::argument("version-id-marker", marker, "Invalid version id specified"))?,
        ),
    };
    let max = query.count("max-keys")?.unwrap_or(LIST_KEYS_MAX).min(LIST_KEYS_MAX);
    let request = ListVersions {
        bucket: call.bucket()?,
        prefix: prefix.to_owned(),
        delimiter: (!delimiter.is_empty()).then(|| delimiter.to_owned()),
        after: (!key_marker.is_empty()).then(|| (key_marker.to_owned(), version)),
        max,
    };
    let page: ListedVersions = ops.store.list_versions(request).await?;
    let owners = Owners::of(ops, &call.bucket()?)?;
    Ok(answer::document(Xml::document("ListVersionsResult", |xml| {
        xml.text("Name", call.bucket().map(|name| name.to_string()).unwrap_or_default());
        names.write(xml, "Prefix", prefix);
        names.write(xml, "KeyMarker", key_marker);
        xml.text("VersionIdMarker", version_marker);
        if let Some((key, version)) = &page.next {
            names.write(xml, "NextKeyMarker", key);
            if let Some(version) = version {
                xml.value("NextVersionIdMarker", version);
            }
        }
        xml.value("MaxKeys", max);
        if !delimiter.is_empty() {
            names.write(xml, "Delimiter", delimiter);
        }
        xml.value("IsTruncated", page.truncated);
        names.declare(xml);
        for entry in &page.entries {
            xml.element(if entry.is_marker { "DeleteMarker" } else { "Version" }, |xml| {
                version_of(&owners, names, entry, xml);
            });
        }
        names.prefixes(xml, &page.common_prefixes);
    })))
}

fn version_of(owners: &Owners<'_>, names: Names, entry: &VersionSummary, xml: &mut Xml) {
    let object = &entry.object;
    names.write(xml, "Key", &object.key);
    xml.value("VersionId", entry.version);
    xml.value("IsLatest", entry.is_latest);
    xml.value("LastModified", date::iso(object.modified_ms));
    if !entry.is_marker {
        xml.display("ETag", format_args!("\"{}\"", object.etag));
        for (algorithm, _) in &object.checksums {
            xml.text("ChecksumAlgorithm", algorithm.as_str());
        }
        xml.optional("ChecksumType", object.checksums.first().map(|(_, kind)| kind.name()));
        xml.value("Size", object.size);
        xml.text("StorageClass", object.storage_class.as_deref().unwrap_or(STANDARD));
    }
    owner(xml, "Owner", &owners.named(object.owner.as_deref()));
}
