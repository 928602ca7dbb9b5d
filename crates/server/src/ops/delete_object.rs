//! DeleteObject and DeleteObjects.

use gabion_store::{DeleteObject, EtagMatch};
use gabion_types::limits::DELETE_KEYS_MAX;
use gabion_types::{BucketName, ObjectKey, ObjectKeyError};

use super::Ops;
use crate::error::{S3Code, S3Error};

/// DeleteObject. Deleting what is not there is a success.
///
/// # Errors
/// `NoSuchBucket`, `PreconditionFailed`.
pub(crate) async fn one(ops: &Ops, bucket: BucketName, delete: DeleteObject) -> Result<(), S3Error> {
    ops.store.delete_object(bucket, delete).await?;
    Ok(())
}

/// Deletes many objects.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) bucket: BucketName,
    pub(crate) objects: Vec<Named>,
}

/// An object of a [`Request`].
#[derive(Clone, Debug)]
pub(crate) struct Named {
    /// Its key, not checked.
    pub(crate) key: String,
    pub(crate) if_match: Option<EtagMatch>,
    /// Why it is not deleted, when that is known already.
    pub(crate) refused: Option<S3Error>,
}

/// What became of each object, in the order of the request.
pub(crate) type Response = Vec<(String, Result<(), S3Error>)>;

/// Runs it.
///
/// # Errors
/// `MalformedXML` for no or more than 1000 keys, `NoSuchBucket`. What is wrong with one key is in the response.
pub(crate) async fn many(ops: &Ops, request: Request) -> Result<Response, S3Error> {
    if request.objects.is_empty() || request.objects.len() > DELETE_KEYS_MAX {
        return Err(S3Code::MalformedXML.into());
    }
    let mut deletes = Vec::with_capacity(request.objects.len());
    let mut response: Vec<(String, Option<S3Error>)> = Vec::with_capacity(request.objects.len());
    for object in request.objects {
        let refused = match (object.refused, ObjectKey::new(&object.key)) {
            (Some(error), _) => Some(error),
            (None, Ok(key)) => {
                deletes.push(DeleteObject { key, if_match: object.if_match });
                None
            }
            (None, Err(ObjectKeyError::TooLong)) => Some(S3Code::KeyTooLongError.into()),
            (None, Err(ObjectKeyError::Empty)) => {
                Some(S3Error::with(S3Code::InvalidArgument, "The key must not be empty."))
            }
        };
        response.push((object.key, refused));
    }
    let deleted = ops.store.delete_objects(request.bucket, deletes).await?;
    let mut deleted = deleted.into_iter().map(|(_, outcome)| outcome.map(drop).map_err(S3Error::from));
    let outcomes = response.into_iter().map(|(key, refused)| match refused {
        Some(error) => (key, Err(error)),
        None => (key, deleted.next().unwrap_or_else(|| Err(S3Code::InternalError.into()))),
    });
    Ok(outcomes.collect())
}
