//! CreateMultipartUpload, CompleteMultipartUpload, AbortMultipartUpload.

use gabion_store::{
    ChecksumAlgorithm, ChecksumKind, CompleteUpload, CreateUpload, Encrypt, Encryption, ListParts, PutResult,
    SecretKey, UploadRef,
};
use gabion_types::UploadId;

use super::Ops;
use crate::error::{S3Code, S3Error};

/// An upload that was begun.
#[derive(Debug)]
pub(crate) struct Created {
    pub(crate) upload: UploadId,
    /// The checksum of the object to be, if the request named an algorithm.
    pub(crate) checksum: Option<(ChecksumAlgorithm, ChecksumKind)>,
    /// How its parts are encrypted, if they are.
    pub(crate) encryption: Option<Box<Encryption>>,
}

/// CreateMultipartUpload.
///
/// # Errors
/// `NoSuchBucket`, `InvalidRequest` for a kind of checksum that the algorithm has not.
pub(crate) async fn create(ops: &Ops, request: CreateUpload, encrypt: Option<&Encrypt>) -> Result<Created, S3Error> {
    let checksum = match request.checksum {
        Some((algorithm, kind)) => Some((algorithm, kind_of(algorithm, kind)?)),
        None => None,
    };
    let request = CreateUpload { checksum: checksum.map(|(algorithm, kind)| (algorithm, Some(kind))), ..request };
    let (upload, encryption) = ops.store.create_encrypted_upload(request, encrypt).await?;
    Ok(Created { upload, checksum, encryption })
}

/// The kind of checksum of a multipart object: AWS, "Checking object integrity", table of algorithms and types.
fn kind_of(algorithm: ChecksumAlgorithm, kind: Option<ChecksumKind>) -> Result<ChecksumKind, S3Error> {
    use ChecksumAlgorithm::{Crc32, Crc32c, Crc64Nvme};
    let is_possible = match kind {
        Some(ChecksumKind::Composite) => algorithm != Crc64Nvme,
        Some(ChecksumKind::FullObject) => matches!(algorithm, Crc32 | Crc32c | Crc64Nvme),
        None => true,
    };
    match (algorithm, kind) {
        (_, Some(kind)) if !is_possible => {
            let kind = kind.name();
            let algorithm = algorithm.as_str().to_ascii_lowercase();
            Err(S3Error::request(format!(
                "The {kind} checksum type cannot be used with the {algorithm} checksum algorithm."
            )))
        }
        (_, Some(kind)) => Ok(kind),
        (Crc64Nvme, None) => Ok(ChecksumKind::FullObject),
        (_, None) => Ok(ChecksumKind::Composite),
    }
}

/// CompleteMultipartUpload.
///
/// # Errors
/// `NoSuchUpload`, `InvalidPart`, `InvalidPartOrder`, `EntityTooSmall`, `BadDigest`, `PreconditionFailed`.
pub(crate) async fn complete(
    ops: &Ops,
    request: CompleteUpload,
    customer: Option<SecretKey>,
) -> Result<PutResult, S3Error> {
    Ok(ops.store.complete_encrypted_upload(request, customer).await?)
}

/// AbortMultipartUpload.
///
/// # Errors
/// `NoSuchUpload`.
pub(crate) async fn abort(ops: &Ops, target: UploadRef) -> Result<(), S3Error> {
    Ok(ops.store.abort_upload(target).await?)
}

/// AbortMultipartUpload of an upload that must have been begun in a given second.
///
/// # Errors
/// `NoSuchUpload`, `PreconditionFailed`.
pub(crate) async fn abort_if_initiated(ops: &Ops, target: UploadRef, initiated_ms: u64) -> Result<(), S3Error> {
    // When it was begun never changes: nothing comes between the look and the deed.
    let look = ListParts { target: target.clone(), after: 0, max: 0 };
    let upload = ops.store.list_parts(look).await?.upload;
    if upload.created_ms / 1000 != initiated_ms / 1000 {
        return Err(S3Error::new(S3Code::PreconditionFailed).detail("Condition", "x-amz-if-match-initiated-time"));
    }
    abort(ops, target).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_of_checksums_follow_awss_table() {
        use ChecksumAlgorithm::{Crc32, Crc32c, Crc64Nvme, Md5, Sha1, Sha256, Sha512, XxHash3, XxHash64, XxHash128};
        use ChecksumKind::{Composite, FullObject};
        let table = [
            (Crc32, None, Some(Composite)),
            (Crc32, Some(FullObject), Some(FullObject)),
            (Crc32c, Some(Composite), Some(Composite)),
            (Crc64Nvme, None, Some(FullObject)),
            (Crc64Nvme, Some(FullObject), Some(FullObject)),
            (Crc64Nvme, Some(Composite), None),
            (Sha1, None, Some(Composite)),
            (Sha256, Some(Composite), Some(Composite)),
            (Sha1, Some(FullObject), None),
            (Sha256, Some(FullObject), None),
            (Sha512, None, Some(Composite)),
            (Md5, None, Some(Composite)),
            (XxHash64, Some(Composite), Some(Composite)),
            (XxHash3, Some(FullObject), None),
            (XxHash128, Some(FullObject), None),
        ];
        for (algorithm, kind, expected) in table {
            assert_eq!(kind_of(algorithm, kind).ok(), expected, "{algorithm} {kind:?}");
        }
    }
}
