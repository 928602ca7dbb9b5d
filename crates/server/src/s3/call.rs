//! An authenticated request, as the adapters of operations read it.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

use gabion_policy::Work;
use gabion_store::VersionId;
use gabion_types::{BucketName, ObjectKey, UploadId};
use http::HeaderMap;
use http::header::{REFERER, USER_AGENT};

use super::content::{Content, TakeTrailers};
use super::notifications::Watch;
use super::query::Query;
use super::route::{Operation, Routed};
use super::settings::BucketSettings;
use crate::audit::Known;
use crate::auth::session_token;
use crate::credentials::{Identity, NoCredential};
use crate::error::{S3Code, S3Error};
use crate::ops::Ops;

/// Which kinds of headers a request has: found in one pass, so that a request with none of a kind is not asked for each of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Has {
    /// Any that begin with `if-`.
    conditions: bool,
    /// `Range`.
    range: bool,
    /// Any that begin with `x-amz-`, but for those that every signed request has.
    pub(super) extensions: bool,
    /// Of those, any about server-side encryption.
    pub(super) encryption: bool,
    /// Any of [`DESCRIPTIONS`].
    descriptions: bool,
}

/// Headers about a body besides its type and length: most requests have none of them.
const DESCRIPTIONS: [&str; 6] =
    ["cache-control", "content-disposition", "content-encoding", "content-language", "content-md5", "expires"];
/// What every signed request has.
const SIGNED: [&str; 2] = ["x-amz-date", "x-amz-content-sha256"];

impl Has {
    fn among(headers: &HeaderMap) -> Self {
        let mut has = Self::default();
        for name in headers.keys() {
            let name = name.as_str();
            has.conditions |= name.starts_with("if-");
            has.range |= name == "range";
            has.descriptions |= DESCRIPTIONS.contains(&name);
            if name.starts_with("x-amz-") && !SIGNED.contains(&name) {
                has.extensions = true;
                has.encryption |= name.contains("server-side-encryption");
            }
        }
        has
    }

    /// Whether there may be a header of this name, or of one that begins like this, which is in lower case.
    pub(super) fn may_have(self, name: &str) -> bool {
        if name.starts_with("x-amz-") {
            return self.extensions || SIGNED.contains(&name);
        }
        if name.starts_with("if-") {
            return self.conditions;
        }
        if name == "range" {
            return self.range;
        }
        self.descriptions || !DESCRIPTIONS.contains(&name)
    }
}

/// What a form says of its signature.
#[derive(Clone, Debug)]
pub(crate) struct FormSignature {
    /// Whether it is in Version 2.
    pub(crate) is_version_2: bool,
    /// When it was made, as the form says it.
    pub(crate) date: Option<String>,
}

/// A request whose signature was verified.
pub(crate) struct Call {
    pub(super) routed: Routed,
    /// Who sent it.
    pub(super) caller: Arc<Identity>,
    /// Headers, those that a presigned URL carries in its query included.
    headers: HeaderMap,
    /// What there is among them.
    pub(super) has: Has,
    /// The body, decoded from aws-chunked framing.
    pub(super) body: Content,
    /// What the trailers will be once the body has been read; there if the body was in aws-chunked framing.
    pub(super) trailers: Option<TakeTrailers>,
    /// How the form was signed that it came in, if it did.
    pub(crate) form: Option<Box<FormSignature>>,
    /// Whether the one who asks has said that he pays, where that counts.
    pub(super) is_charged: bool,
    /// Tells those who want to know what it did.
    pub(super) watch: Option<Box<Watch>>,
    /// Wants to know who sent it, as soon as somebody knows.
    pub(super) known: Option<Arc<Known>>,
    /// Once somebody has asked for them.
    settings: OnceLock<Arc<BucketSettings>>,
    /// What policies may do for it, once one is asked.
    policy_work: OnceLock<Work>,
}

impl Call {
    /// Takes over a request that was verified.
    pub(super) fn new(
        routed: Routed,
        caller: Arc<Identity>,
        mut headers: HeaderMap,
        body: Content,
        trailers: Option<TakeTrailers>,
    ) -> Self {
        for (name, value) in &routed.hoisted {
            headers.append(name.clone(), value.clone());
        }
        let has = Has::among(&headers);
        let (form, is_charged, watch, known, settings) = (None, false, None, None, OnceLock::new());
        let policy_work = OnceLock::new();
        Self { routed, caller, headers, has, body, trailers, form, is_charged, watch, known, settings, policy_work }
    }

    /// What all policies together may do for it, however often they are asked.
    pub(crate) fn policy_work(&self) -> Work {
        self.policy_work.get_or_init(Work::default).clone()
    }

    /// Takes all that an operation reads, and leaves what a refusal is told about.
    pub(super) fn take(&mut self) -> Self {
        let left = Self::new(self.routed.clone(), Arc::clone(&self.caller), HeaderMap::new(), Content::default(), None);
        std::mem::replace(self, left)
    }

    /// Looks once more who sent it, as of now, and forgets what was configured before.
    ///
    /// # Errors
    /// When his key, or his session, holds no longer.
    pub(super) fn identify(&mut self, ops: &Ops) -> Result<(), S3Error> {
        self.settings = OnceLock::new();
        if self.caller.is_anonymous() {
            return Ok(());
        }
        let token = session_token(&self.headers, &self.routed.query)?;
        let identity = ops.credentials.find(&self.caller.access_key, token).map_err(S3Error::from)?.identity;
        if (&identity.account.id, &identity.principal) != (&self.caller.account.id, &self.caller.principal) {
            // The key is somebody else's now.
            return Err(NoCredential::UnknownKey.into());
        }
        self.caller = identity;
        Ok(())
    }

    /// It was found who sent it.
    pub(super) fn sent_by(&mut self, caller: Arc<Identity>) {
        if let Some(known) = &self.known {
            known.caller.get_or_init(|| Arc::clone(&caller));
        }
        self.caller = caller;
    }

    /// The operation, if it is one.
    pub(crate) fn operation(&self) -> Option<Operation> {
        self.routed.operation.as_ref().ok().copied()
    }

    /// What is configured for the bucket that the request names; looked up once.
    ///
    /// # Errors
    /// Those of the index.
    pub(crate) fn settings(&self, ops: &Ops) -> Result<&BucketSettings, S3Error> {
        match self.settings.get() {
            Some(settings) => Ok(settings),
            None => {
                let bucket = self.named_bucket().ok_or(S3Code::InvalidBucketName)?;
                let settings = ops.settings(bucket)?;
                Ok(self.settings.get_or_init(|| settings))
            }
        }
    }

    /// Makes the put of a form out of a request whose form was read: its key, and what its fields say instead of headers.
    pub(super) fn turn_into_put(&mut self, key: ObjectKey, mut headers: HeaderMap, signed: FormSignature) {
        // What no field says of a put, and policies and logs look at.
        for name in [USER_AGENT, REFERER] {
            if let Some(value) = self.headers.remove(&name) {
                headers.insert(name, value);
            }
        }
        self.form = Some(Box::new(signed));
        // It may have been long in coming: what is configured now counts.
        self.settings = OnceLock::new();
        self.has = Has::among(&headers);
        self.headers = headers;
        self.routed.key = Some(key);
        self.routed.query = Query::default();
    }

    /// Takes the headers, which nobody asks for any more: their map serves those of the answer.
    pub(super) fn take_headers(&mut self) -> HeaderMap {
        std::mem::take(&mut self.headers)
    }

    pub(crate) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Whether nobody between client and server can read along.
    pub(super) fn is_private(&self) -> bool {
        self.routed.private
    }

    pub(crate) fn query(&self) -> &Query {
        &self.routed.query
    }

    /// Who sent it.
    pub(crate) fn caller(&self) -> &Identity {
        &self.caller
    }

    /// The same, to keep.
    pub(super) fn shared_caller(&self) -> Arc<Identity> {
        Arc::clone(&self.caller)
    }

    /// The bucket that the request names, if it names one.
    pub(crate) fn named_bucket(&self) -> Option<&BucketName> {
        self.routed.bucket.as_ref()
    }

    /// Whether it came encrypted.
    pub(crate) fn is_secure(&self) -> bool {
        self.routed.scheme == "https"
    }

    /// Whether it is the put of a form.
    pub(crate) fn is_form(&self) -> bool {
        matches!(self.routed.operation, Ok(Operation::PostObject))
    }

    /// Where it came from.
    pub(crate) fn source(&self) -> IpAddr {
        self.routed.source
    }

    /// The bucket that the request names.
    ///
    /// # Errors
    /// Never for an operation on a bucket.
    pub(crate) fn bucket(&self) -> Result<BucketName, S3Error> {
        self.routed.bucket.clone().ok_or_else(|| S3Code::InvalidBucketName.into())
    }

    /// The key that the request names.
    ///
    /// # Errors
    /// Never for an operation on an object.
    pub(crate) fn key(&self) -> Result<ObjectKey, S3Error> {
        self.routed.key.clone().ok_or_else(|| S3Code::InvalidURI.into())
    }

    /// The version that the request names.
    ///
    /// # Errors
    /// `InvalidArgument` for what is no id of a version.
    pub(crate) fn version(&self) -> Result<Option<VersionId>, S3Error> {
        let Some(id) = self.query().get("versionId")? else { return Ok(None) };
        id.parse().map(Some).map_err(|_| {
            let message = match id {
                "" => "Version id cannot be the empty string",
                _ => "Invalid version id specified",
            };
            S3Error::argument("versionId", id, message)
        })
    }

    /// The upload that the request names.
    ///
    /// # Errors
    /// `NoSuchUpload` when it is no id.
    pub(super) fn upload(&self) -> Result<UploadId, S3Error> {
        let id = self.query().text("uploadId")?;
        id.parse().map_err(|_| S3Error::new(S3Code::NoSuchUpload).detail("UploadId", id))
    }

    /// A header that may be there once; an empty one counts as absent.
    ///
    /// # Errors
    /// `InvalidArgument` when it is there more than once, or no text.
    pub(crate) fn header(&self, name: &str) -> Result<Option<&str>, S3Error> {
        Ok(self.present(name)?.filter(|value| !value.is_empty()))
    }

    /// A header that may be there once, also an empty one.
    ///
    /// # Errors
    /// See [`Call::header`].
    pub(super) fn present(&self, name: &str) -> Result<Option<&str>, S3Error> {
        if !self.has.may_have(name) {
            return Ok(None);
        }
        let mut values = self.headers.get_all(name).iter();
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(S3Error::argument(name, "", "The header is there more than once."));
        }
        match std::str::from_utf8(value.as_bytes()) {
            Ok(value) => Ok(Some(value.trim())),
            Err(_) => Err(S3Error::argument(name, "", "The header is not UTF-8.")),
        }
    }

    /// A header that is a list, over all its lines; nothing if nothing is in it.
    pub(crate) fn list(&self, name: &str) -> Option<String> {
        self.list_or_empty(name).filter(|list| !list.trim().is_empty())
    }

    /// The same where one with nothing in it is not one that is not there. What is no text matches none.
    pub(super) fn list_or_empty(&self, name: &str) -> Option<String> {
        if !self.has.may_have(name) || !self.headers.contains_key(name) {
            return None;
        }
        let lines = self.headers.get_all(name).iter().map(|line| String::from_utf8_lossy(line.as_bytes()));
        Some(lines.collect::<Vec<_>>().join(","))
    }

    /// The owned value of a header.
    ///
    /// # Errors
    /// See [`Call::header`].
    pub(super) fn owned(&self, name: &str) -> Result<Option<String>, S3Error> {
        Ok(self.header(name)?.map(str::to_owned))
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn kinds_of_headers_are_found() {
        let usual = ["host", "authorization", "x-amz-date", "x-amz-content-sha256", "accept"];
        let has = |more: &[&'static str]| {
            let names = usual.iter().chain(more).copied();
            let named = names.map(|name| (HeaderName::from_static(name), HeaderValue::from_static("x")));
            Has::among(&named.collect())
        };
        assert_eq!(has(&[]), Has::default());
        assert_eq!(has(&["if-none-match"]), Has { conditions: true, ..Has::default() });
        assert_eq!(has(&["if-range", "range"]), Has { conditions: true, range: true, ..Has::default() });
        assert_eq!(has(&["x-amz-checksum-mode"]), Has { extensions: true, ..Has::default() });
        let encryption = Has { extensions: true, encryption: true, ..Has::default() };
        assert_eq!(has(&["x-amz-server-side-encryption"]), encryption);
        assert_eq!(has(&["x-amz-copy-source-server-side-encryption-customer-key"]), encryption);
        assert_eq!(has(&["content-md5"]), Has { descriptions: true, ..Has::default() });
        assert_eq!(has(&["content-type", "content-length"]), Has::default());
    }

    #[test]
    fn every_header_that_is_there_may_be_there() {
        let names = ["host", "content-length", "if-match", "range", "x-amz-meta-a", "x-amz-tagging"];
        for name in names.into_iter().chain(SIGNED).chain(DESCRIPTIONS) {
            let headers = [(HeaderName::from_static(name), HeaderValue::from_static("x"))].into_iter().collect();
            assert!(Has::among(&headers).may_have(name), "{name}");
        }
        for name in ["if-match", "range", "x-amz-meta-a", "content-md5", "expires"] {
            assert!(!Has::default().may_have(name), "{name}");
        }
    }
}
