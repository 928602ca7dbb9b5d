//! Headers of server-side encryption, both ways.
//!
//! Source: AWS, "Using server-side encryption with customer-provided keys", "Specifying server-side encryption with AWS KMS"; the texts of refusals are
//! AWS's. Requests without such headers are not asked for any of them ([`super::call::Has`]).

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gabion_erasure::Md5;
use gabion_store::{CopyKeys, Encrypt, Encryption, EncryptionScheme, SecretKey};
use gabion_types::BucketName;
use http::{HeaderMap, HeaderName, HeaderValue};
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

use super::bucket_encryption::NotUnderstood;
use super::call::Call;
use crate::error::{S3Code, S3Error};
use crate::ops::Ops;

const SCHEME: &str = "x-amz-server-side-encryption";
const KEY_ID: &str = "x-amz-server-side-encryption-aws-kms-key-id";
const CONTEXT: &str = "x-amz-server-side-encryption-context";
const BUCKET_KEY: &str = "x-amz-server-side-encryption-bucket-key-enabled";
const CUSTOMER_ALGORITHM: HeaderName = HeaderName::from_static("x-amz-server-side-encryption-customer-algorithm");
const CUSTOMER_MD5: HeaderName = HeaderName::from_static("x-amz-server-side-encryption-customer-key-md5");
/// What stands in the names of headers about the source of a copy.
const SOURCE: &str = "copy-source-";
/// Longest encryption context, in bytes of its header.
const CONTEXT_BYTES_MAX: usize = 8 * 1024;
/// Longest id of a key, in bytes.
const KEY_ID_BYTES_MAX: usize = 2048;

/// A customer's key, as a request shows it.
pub(super) struct Customer {
    pub(super) key: SecretKey,
    /// The MD5 of the key, as it is told again.
    md5: HeaderValue,
}

/// What a request says about how something new is encrypted.
#[derive(Default)]
struct Asked {
    /// How; nothing where the bucket decides.
    encrypt: Option<Encrypt>,
    /// Whether it asks for a bucket key, or for none, where the bucket decides on the rest.
    bucket_key: Option<bool>,
    /// What to tell of a customer's key.
    md5: Option<HeaderValue>,
}

impl Asked {
    /// Reads the headers of a request that makes an object or an upload.
    ///
    /// # Errors
    /// `InvalidArgument`, `InvalidRequest`, `InvalidEncryptionAlgorithmError`, `NotImplemented`.
    fn of(call: &Call) -> Result<Self, S3Error> {
        if !call.has.encryption {
            return Ok(Self::default());
        }
        let bucket_key = match call.header(BUCKET_KEY)? {
            None => None,
            Some(value) if value.eq_ignore_ascii_case("true") => Some(true),
            Some(value) if value.eq_ignore_ascii_case("false") => Some(false),
            Some(value) => return Err(S3Error::argument(BUCKET_KEY, value, "The value must be true or false.")),
        };
        let scheme = match call.header(SCHEME)? {
            None => None,
            Some("AES256") => Some(EncryptionScheme::Master),
            Some("aws:kms") => Some(EncryptionScheme::KeyService),
            Some("aws:kms:dsse") => return Err(S3Error::unsupported(SCHEME)),
            Some(other) => {
                return Err(S3Error::argument(SCHEME, other, "The encryption method specified is not supported"));
            }
        };
        if let Some(Customer { key, md5 }) = customer(call, "")? {
            if let Some(value) = call.header(SCHEME)?.or(call.header(KEY_ID)?) {
                let message = "Server Side Encryption with Customer provided keys is incompatible with the encryption \
                    method specified";
                return Err(S3Error::argument(SCHEME, value, message));
            }
            return Ok(Self { encrypt: Some(Encrypt::with_customer(key)), bucket_key: None, md5: Some(md5) });
        }
        if scheme != Some(EncryptionScheme::KeyService) {
            for header in [KEY_ID, CONTEXT] {
                if let Some(value) = call.header(header)? {
                    let message = "Server Side Encryption with AWS KMS managed key requires HTTP header \
                        x-amz-server-side-encryption : aws:kms";
                    return Err(S3Error::argument(header, value, message));
                }
            }
        }
        let Some(scheme) = scheme else { return Ok(Self { bucket_key, ..Self::default() }) };
        let key_id = call.owned(KEY_ID)?;
        if let Some(id) = key_id.as_deref().filter(|id| id.len() > KEY_ID_BYTES_MAX) {
            return Err(S3Error::argument(KEY_ID, id, "The id of the key is too long."));
        }
        let bucket_key = bucket_key.filter(|_| scheme == EncryptionScheme::KeyService);
        let context = call.header(CONTEXT)?.map(context).transpose()?;
        let encrypt = Encrypt { key_id, context, bucket_key: bucket_key.unwrap_or(false), ..Encrypt::by(scheme) };
        Ok(Self { encrypt: Some(encrypt), bucket_key: None, md5: None })
    }
}

/// How something new is encrypted, by its request or its bucket; and what to tell of a customer's key.
///
/// # Errors
/// As [`Asked::of`]; `AccessDenied` for a customer's key where the bucket takes none; those of the index.
pub(super) fn decide(
    ops: &Ops,
    call: &Call,
    bucket: &BucketName,
) -> Result<(Option<Encrypt>, Option<HeaderValue>), S3Error> {
    let asked = Asked::of(call)?;
    let settings = call.settings(ops)?;
    let of_bucket = match &settings.encryption {
        None => None,
        Some(Ok(encryption)) => Some(encryption),
        Some(Err(NotUnderstood)) => {
            tracing::error!(%bucket, "the encryption of a bucket was configured by a newer program");
            return Err(S3Code::ServiceUnavailable.into());
        }
    };
    if asked.md5.is_some() && of_bucket.is_some_and(|encryption| encryption.blocks_customers) {
        return Err(S3Error::with(
            S3Code::AccessDenied,
            "The bucket does not take objects with customer provided keys (SSE-C).",
        ));
    }
    let by_default = of_bucket.and_then(|encryption| encryption.default.as_ref()).or(ops.default_encryption.as_ref());
    let encrypt = asked.encrypt.or_else(|| {
        let mut encrypt = by_default?.clone();
        encrypt.bucket_key = asked.bucket_key.unwrap_or(encrypt.bucket_key);
        Some(encrypt)
    });
    Ok((encrypt, asked.md5))
}

/// How something is encrypted that the server itself writes to a bucket.
///
/// # Errors
/// `ServiceUnavailable` when the bucket says what only a newer program understands; those of the index.
pub(super) fn by_default(ops: &Ops, bucket: &BucketName) -> Result<Option<Encrypt>, S3Error> {
    match &ops.settings(bucket)?.encryption {
        None => Ok(ops.default_encryption.clone()),
        Some(Ok(encryption)) => Ok(encryption.default.clone().or_else(|| ops.default_encryption.clone())),
        Some(Err(NotUnderstood)) => Err(S3Code::ServiceUnavailable.into()),
    }
}

/// The customer's key that a request shows to have something read; headers that say how to encrypt have no place there.
///
/// # Errors
/// `InvalidArgument`, `InvalidRequest`, `InvalidEncryptionAlgorithmError`.
pub(super) fn reading(call: &Call) -> Result<Option<Customer>, S3Error> {
    if !call.has.encryption {
        return Ok(None);
    }
    for header in [SCHEME, KEY_ID, CONTEXT, BUCKET_KEY] {
        if let Some(value) = call.header(header)? {
            return Err(S3Error::argument(
                header,
                value,
                format!("{header} header is not supported for this operation."),
            ));
        }
    }
    customer(call, "")
}

/// The customer's key of the source of a copy.
///
/// # Errors
/// See [`reading`].
pub(super) fn of_source(call: &Call) -> Result<Option<Customer>, S3Error> {
    if call.has.encryption { customer(call, SOURCE) } else { Ok(None) }
}

/// The customer's key that goes with a part. How parts are encrypted their upload says: other headers of encryption, which some clients send with
/// every part, change nothing.
///
/// # Errors
/// See [`reading`].
pub(super) fn of_part(call: &Call) -> Result<Option<Customer>, S3Error> {
    if call.has.encryption { customer(call, "") } else { Ok(None) }
}

/// The keys of a copy.
///
/// # Errors
/// For a header that is none.
pub(super) fn copy_keys(call: &Call, source: Option<Customer>, target: Option<Encrypt>) -> Result<CopyKeys, S3Error> {
    let is_asked = call.header(SCHEME)?.is_some();
    Ok(CopyKeys { source: source.map(|source| source.key), target, is_asked })
}

/// A customer's key among the headers, if there is one.
fn customer(call: &Call, prefix: &str) -> Result<Option<Customer>, S3Error> {
    let name = |of: &str| format!("x-amz-{prefix}server-side-encryption-customer-{of}");
    let (algorithm, key, md5) = (name("algorithm"), name("key"), name("key-md5"));
    let given = (call.header(&algorithm)?, call.header(&key)?, call.header(&md5)?);
    let requests = "Requests specifying Server Side Encryption with Customer provided keys must";
    let lacks = |header: &str, what: &str| S3Error::argument(header, "null", format!("{requests} provide {what}."));
    let (given_algorithm, given_key, given_md5) = match given {
        (None, None, None) => return Ok(None),
        (None, ..) => return Err(lacks(&algorithm, "a valid encryption algorithm")),
        (_, None, _) => return Err(lacks(&key, "an appropriate secret key")),
        (.., None) => return Err(lacks(&md5, "the client calculated MD5 of the secret key")),
        (Some(algorithm), Some(key), Some(md5)) => (algorithm, key, md5),
    };
    if !call.is_private() {
        return Err(S3Error::request(format!("{requests} be made over a secure connection.")));
    }
    if given_algorithm != "AES256" {
        return Err(S3Code::InvalidEncryptionAlgorithmError.into());
    }
    // What is wrong is not shown: it may nearly be the key.
    let invalid = |header: &str, message: &'static str| {
        S3Error::with(S3Code::InvalidArgument, message).detail("ArgumentName", header)
    };
    let decoded = BASE64_STANDARD.decode(given_key).map(Zeroizing::new).ok();
    let secret = decoded.and_then(|bytes| SecretKey::from_slice(&bytes));
    let secret = secret.ok_or_else(|| invalid(&key, "The secret key was invalid for the specified algorithm."))?;
    let mut digest = Md5::default();
    digest.update(secret.expose());
    let digest = BASE64_STANDARD.encode(digest.finish());
    if !bool::from(digest.as_bytes().ct_eq(given_md5.as_bytes())) {
        return Err(invalid(&md5, "The calculated MD5 hash of the key did not match the hash that was provided."));
    }
    let md5 = HeaderValue::try_from(digest).map_err(|_| invalid(&md5, "The MD5 is invalid."))?;
    Ok(Some(Customer { key: secret, md5 }))
}

/// An encryption context: base64 of a JSON object of texts.
fn context(text: &str) -> Result<String, S3Error> {
    let decoded = BASE64_STANDARD.decode(text).ok().filter(|_| text.len() <= CONTEXT_BYTES_MAX);
    let map = decoded.and_then(|json| serde_json::from_slice::<std::collections::BTreeMap<String, String>>(&json).ok());
    match map {
        Some(_) => Ok(text.to_owned()),
        None => {
            let message = "The header x-amz-server-side-encryption-context shall be Base64-encoded UTF-8 string holding \
                JSON which represents a string-string map";
            Err(S3Error::argument(CONTEXT, text, message))
        }
    }
}

impl Customer {
    /// What an answer tells of the key.
    pub(super) fn md5(&self) -> HeaderValue {
        self.md5.clone()
    }
}

/// What an answer says about how an object is encrypted. `md5` is that of the customer's key, `context` whether the context is told, too: only to those
/// who gave it.
pub(super) fn show(encryption: &Encryption, md5: Option<HeaderValue>, tells_context: bool, headers: &mut HeaderMap) {
    let mut text = |name: &'static str, value: &str| {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    match encryption.scheme {
        EncryptionScheme::Master => text(SCHEME, "AES256"),
        EncryptionScheme::KeyService => {
            text(SCHEME, "aws:kms");
            text(KEY_ID, encryption.key_id.as_deref().unwrap_or_default());
            if encryption.bucket_key {
                text(BUCKET_KEY, "true");
            }
            if let Some(context) = encryption.context.as_deref().filter(|_| tells_context) {
                text(CONTEXT, context);
            }
        }
        EncryptionScheme::Customer => {
            headers.insert(CUSTOMER_ALGORITHM, HeaderValue::from_static("AES256"));
            if let Some(md5) = md5 {
                headers.insert(CUSTOMER_MD5, md5);
            }
        }
    }
}
