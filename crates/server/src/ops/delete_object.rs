//! DeleteObject and DeleteObjects.

use gabion_store::{DeleteObject, Deleted, EtagMatch, VersionId};
use gabion_types::limits::DELETE_KEYS_MAX;
use gabion_types::{BucketName, ObjectKey, ObjectKeyError};

use super::Ops;
use crate::error::{S3Code, S3Error};

/// DeleteObject. Deleting what is not there is a success.
///
/// # Errors
/// `NoSuchBucket`, `PreconditionFailed`.
pub(crate) async fn one(ops: &Ops, bucket: BucketName, delete: DeleteObject) -> Result<Deleted, S3Error> {
    Ok(ops.store.delete_object(bucket, delete).await?)
}

/// Deletes many objects.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) bucket: BucketName,
    pub(crate) objects: Vec<Named>,
    /// Whether versions may go that are retained in governance mode.
    pub(crate) bypass_governance: bool,
}

/// An object of a [`Request`].
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// Its key, not checked.
    pub(crate) key: String,
    /// The version that is to go, not checked.
    pub(crate) version: Option<String>,
    pub(crate) if_match: Option<EtagMatch>,
    pub(crate) if_size: Option<u64>,
    pub(crate) if_modified_ms: Option<u64>,
    /// Why it is not deleted, when that is known already.
    pub(crate) refused: Option<S3Error>,
}

/// What became of an object.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) key: String,
    /// The version that was named.
    pub(crate) version: Option<String>,
    pub(crate) result: Result<Deleted, S3Error>,
}

/// What became of each object, in the order of the request.
pub(crate) type Response = Vec<Outcome>;

/// How many keys a request may name.
///
/// # Errors
/// `MalformedXML` for none, or more than 1000.
pub(crate) fn check_count(keys: usize) -> Result<(), S3Error> {
    if (1..=DELETE_KEYS_MAX).contains(&keys) { Ok(()) } else { Err(S3Code::MalformedXML.into()) }
}

/// Runs it. How many keys there are was checked.
///
/// # Errors
/// `NoSuchBucket`. What is wrong with one key is in the response.
pub(crate) async fn many(ops: &Ops, request: Request) -> Result<Response, S3Error> {
    let mut deletes = Vec::with_capacity(request.objects.len());
    let mut response: Vec<(String, Option<String>, Option<S3Error>)> = Vec::with_capacity(request.objects.len());
    for object in request.objects {
        let named = match (object.refused, ObjectKey::new(&object.key)) {
            (Some(error), _) => Err(error),
            (None, Ok(key)) => Ok(key),
            (None, Err(ObjectKeyError::TooLong)) => Err(S3Code::KeyTooLongError.into()),
            (None, Err(ObjectKeyError::Empty)) => {
                Err(S3Error::with(S3Code::InvalidArgument, "The key must not be empty."))
            }
        };
        let version = object.version.as_deref().map(str::parse::<VersionId>).transpose();
        let version = version.map_err(|_| S3Error::from(S3Code::NoSuchVersion));
        let refused = match (named, version) {
            (Ok(key), Ok(version)) => {
                deletes.push(DeleteObject {
                    version,
                    if_match: object.if_match,
                    if_size: object.if_size,
                    if_modified_ms: object.if_modified_ms,
                    bypass_governance: request.bypass_governance,
                    ..DeleteObject::current(key)
                });
                None
            }
            (Err(error), _) | (_, Err(error)) => Some(error),
        };
        response.push((object.key, object.version, refused));
    }
    let deleted = ops.store.delete_objects(request.bucket, deletes).await?;
    let mut deleted = deleted.into_iter().map(|(_, outcome)| outcome.map_err(S3Error::from));
    let outcomes = response.into_iter().map(|(key, version, refused)| {
        let result = match refused {
            Some(error) => Err(error),
            None => deleted.next().unwrap_or_else(|| Err(S3Code::InternalError.into())),
        };
        Outcome { key, version, result }
    });
    Ok(outcomes.collect())
}
