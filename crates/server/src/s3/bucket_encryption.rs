//! How the objects of a bucket are encrypted of which their requests say nothing.
//!
//! Source: AWS, "Setting default server-side encryption behavior for S3 buckets", "Blocking or unblocking SSE-C". A bucket of which nothing is said has the site's
//! default, which is none unless `encryption.default` says so; then that is what is shown.

use bytes::Bytes;
use gabion_store::{ConfigScope, Configs, Encrypt, EncryptionScheme};
use http::{Response, StatusCode};
use s3s::{Body, dto};

use super::answer;
use super::body;
use super::call::Call;
use super::xml::{Xml, parse_encryption};
use crate::error::{S3Code, S3Error};
use crate::ops::{Ops, bucket};

/// The name of the document.
const DOCUMENT: &str = "encryption";
/// Longest id of a key, in bytes.
const KEY_ID_BYTES_MAX: usize = 2048;

/// What a bucket's document says.
#[derive(Debug, Default)]
pub(crate) struct BucketEncryption {
    /// How objects are encrypted of which nothing is said; nothing: as the site has it.
    pub(crate) default: Option<Encrypt>,
    /// Whether customers' keys (SSE-C) are refused.
    pub(crate) blocks_customers: bool,
}

/// A document that this program does not understand: a newer one wrote it. Nothing is written into its bucket then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NotUnderstood;

impl BucketEncryption {
    /// What the documents of a bucket say.
    pub(crate) fn of(configs: &Configs) -> Option<Result<Self, NotUnderstood>> {
        let document = configs.get(DOCUMENT)?;
        Some(parse_encryption(document).and_then(Self::read).map_err(|_| NotUnderstood))
    }

    fn read(document: dto::ServerSideEncryptionConfiguration) -> Result<Self, S3Error> {
        let mut rules = document.rules.into_iter();
        let (Some(rule), None) = (rules.next(), rules.next()) else { return Err(S3Code::MalformedXML.into()) };
        let mut read = Self::default();
        if let Some(by_default) = rule.apply_server_side_encryption_by_default {
            let scheme = match by_default.sse_algorithm.as_str() {
                "AES256" => EncryptionScheme::Master,
                "aws:kms" => EncryptionScheme::KeyService,
                "aws:kms:dsse" => return Err(S3Error::unsupported("SSEAlgorithm")),
                _ => return Err(S3Code::MalformedXML.into()),
            };
            let key_id = by_default.kms_master_key_id.filter(|id| !id.is_empty());
            if let Some(id) = &key_id {
                if scheme != EncryptionScheme::KeyService {
                    let message = "a KMSMasterKeyID is not applicable if the default sse algorithm is not aws:kms or \
                        aws:kms:dsse";
                    return Err(S3Error::argument("KMSMasterKeyID", id, message));
                }
                if id.len() > KEY_ID_BYTES_MAX || id.chars().any(char::is_control) {
                    return Err(S3Error::argument("KMSMasterKeyID", id, "The id of the key is not valid."));
                }
            }
            let bucket_key = rule.bucket_key_enabled.unwrap_or(false);
            read.default = Some(Encrypt { key_id, bucket_key, ..Encrypt::by(scheme) });
        }
        for blocked in rule.blocked_encryption_types.and_then(|blocked| blocked.encryption_type).unwrap_or_default() {
            match blocked.as_str() {
                "SSE-C" => read.blocks_customers = true,
                "NONE" => {}
                _ => return Err(S3Code::MalformedXML.into()),
            }
        }
        Ok(read)
    }

    fn document(&self) -> String {
        Xml::document("ServerSideEncryptionConfiguration", |xml| {
            xml.element("Rule", |xml| {
                if let Some(encrypt) = &self.default {
                    xml.element("ApplyServerSideEncryptionByDefault", |xml| {
                        let is_named = encrypt.scheme == EncryptionScheme::KeyService;
                        xml.text("SSEAlgorithm", if is_named { "aws:kms" } else { "AES256" });
                        xml.optional("KMSMasterKeyID", encrypt.key_id.as_deref());
                    });
                }
                if self.blocks_customers {
                    xml.element("BlockedEncryptionTypes", |xml| xml.text("EncryptionType", "SSE-C"));
                }
                xml.value("BucketKeyEnabled", self.default.as_ref().is_some_and(|encrypt| encrypt.bucket_key));
            });
        })
    }
}

pub(super) async fn put(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let document = body::required(ops, call).await?;
    let document = BucketEncryption::read(parse_encryption(&document)?)?.document();
    ops.store.put_config(ConfigScope::Bucket(call.bucket()?), DOCUMENT, Bytes::from(document)).await?;
    Ok(answer::empty(StatusCode::OK))
}

pub(super) async fn get(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let bucket = call.bucket()?;
    bucket::head(ops, &bucket).await?;
    let configs = ops.store.bucket_configs(&bucket)?;
    if let Some(document) = configs.get(DOCUMENT) {
        return Ok(answer::document(String::from_utf8_lossy(document).into_owned()));
    }
    match &ops.default_encryption {
        Some(default) => {
            let shown = BucketEncryption { default: Some(default.clone()), blocks_customers: false };
            Ok(answer::document(shown.document()))
        }
        None => {
            Err(S3Error::new(S3Code::ServerSideEncryptionConfigurationNotFoundError)
                .detail("BucketName", bucket.as_str()))
        }
    }
}

pub(super) async fn delete(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    ops.store.delete_config(ConfigScope::Bucket(call.bucket()?), DOCUMENT).await?;
    Ok(answer::empty(StatusCode::NO_CONTENT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(rules: &str) -> Result<String, S3Code> {
        let document = format!("<ServerSideEncryptionConfiguration>{rules}</ServerSideEncryptionConfiguration>");
        let read = parse_encryption(document.as_bytes()).and_then(BucketEncryption::read);
        let document = read.map_err(|error| error.code)?.document();
        // What is kept is read again, and means the same.
        let again = BucketEncryption::read(parse_encryption(document.as_bytes()).unwrap()).unwrap().document();
        assert_eq!(again, document);
        Ok(document.split_once("<Rule>").unwrap().1.split_once("</Rule>").unwrap().0.to_owned())
    }

    #[test]
    fn documents_are_checked() {
        let by =
            |inner: &str| format!("<ApplyServerSideEncryptionByDefault>{inner}</ApplyServerSideEncryptionByDefault>");
        let rule = |inner: &str| format!("<Rule>{inner}</Rule>");
        let (aes, kms) = (by("<SSEAlgorithm>AES256</SSEAlgorithm>"), "<SSEAlgorithm>aws:kms</SSEAlgorithm>");
        let named = by(&format!("{kms}<KMSMasterKeyID>k&lt;</KMSMasterKeyID>"));
        let (off, on) = ("<BucketKeyEnabled>false</BucketKeyEnabled>", "<BucketKeyEnabled>true</BucketKeyEnabled>");
        let blocked = "<BlockedEncryptionTypes><EncryptionType>SSE-C</EncryptionType></BlockedEncryptionTypes>";
        let table = [
            (rule(&aes), Ok(format!("{aes}{off}"))),
            (rule(&format!("{named}{on}")), Ok(format!("{named}{on}"))),
            (rule(&format!("{aes}{blocked}")), Ok(format!("{aes}{blocked}{off}"))),
            (rule(blocked), Ok(format!("{blocked}{off}"))),
            (rule(&blocked.replace("SSE-C", "NONE")), Ok(off.to_owned())),
            (String::new(), Err(S3Code::MalformedXML)),
            (rule(&aes) + &rule(&aes), Err(S3Code::MalformedXML)),
            (rule(&by("<SSEAlgorithm>aes:kms</SSEAlgorithm>")), Err(S3Code::MalformedXML)),
            (rule(&by("")), Err(S3Code::MalformedXML)),
            (rule(&by("<SSEAlgorithm>aws:kms:dsse</SSEAlgorithm>")), Err(S3Code::NotImplemented)),
            (rule(&named.replace("aws:kms", "AES256")), Err(S3Code::InvalidArgument)),
            (rule(&blocked.replace("SSE-C", "SSE-S3")), Err(S3Code::MalformedXML)),
        ];
        for (rules, expected) in table {
            assert_eq!(read(&rules), expected, "{rules}");
        }
    }
}
