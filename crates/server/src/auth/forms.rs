//! Who sends a form from a browser: the signature of its policy, in Signature Version 4 or 2.
//!
//! What is signed is the policy alone, as it was sent; that the form does only what the policy allows is checked in `crate::s3`, after this.
//! Source: AWS, "Authenticating Requests in Browser-Based Uploads Using POST".

use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use gabion_platform::Clock;
use hmac::{Hmac, Mac};
use s3s_sigv4::AmzDate;
use sha1::Sha1;
use subtle::ConstantTimeEq;

use super::sigv4::{explain, unix_seconds};
use crate::credentials::{Credential, CredentialStore, Identity};
use crate::error::{S3Code, S3Error};
use crate::s3::echo;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// How long a signing key holds after its day, in milliseconds.
const KEY_MS_MAX: i64 = 7 * 24 * 60 * 60 * 1000;
/// How far ahead of ours the signer's clock may be, in milliseconds.
const SKEW_MS_MAX: i64 = 15 * 60 * 1000;

/// What a form says of its signature.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SignedForm<'a> {
    pub(crate) policy: Option<&'a str>,
    pub(crate) algorithm: Option<&'a str>,
    pub(crate) credential: Option<&'a str>,
    pub(crate) date: Option<&'a str>,
    pub(crate) signature: Option<&'a str>,
    pub(crate) token: Option<&'a str>,
    pub(crate) access_key_v2: Option<&'a str>,
    pub(crate) signature_v2: Option<&'a str>,
}

impl SignedForm<'_> {
    /// Which version verifies it, if it is signed: 4 as soon as it has anything of that.
    pub(crate) fn version(&self) -> Option<u8> {
        let has_any = |fields: &[Option<&str>]| fields.iter().any(Option::is_some);
        match has_any(&[self.algorithm, self.credential, self.date, self.signature]) {
            true => Some(4),
            false => has_any(&[self.access_key_v2, self.signature_v2]).then_some(2),
        }
    }
}

/// Knows the keys that forms are signed with.
pub(crate) struct FormKeys {
    credentials: Arc<dyn CredentialStore>,
    clock: Arc<dyn Clock>,
    region: String,
    sigv2: bool,
}

impl FormKeys {
    pub(crate) fn new(credentials: Arc<dyn CredentialStore>, clock: Arc<dyn Clock>, region: &str, sigv2: bool) -> Self {
        Self { credentials, clock, region: region.to_owned(), sigv2 }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    /// Who signed a form; nobody did one that says nothing of a signature nor of a policy.
    ///
    /// # Errors
    /// `InvalidArgument` when something is missing or malformed, `InvalidAccessKeyId`, `SignatureDoesNotMatch`, `AccessDenied` when it is too
    /// old, `InvalidToken`, `ExpiredToken`.
    pub(crate) fn verify(&self, form: &SignedForm<'_>) -> Result<Option<Arc<Identity>>, S3Error> {
        match form.version() {
            None if form.policy.is_none() => Ok(None),
            Some(4) => self.verify_v4(form).map(Some),
            _ => self.verify_v2(form).map(Some),
        }
    }

    fn verify_v4(&self, form: &SignedForm<'_>) -> Result<Arc<Identity>, S3Error> {
        let policy = present("policy", form.policy)?;
        let algorithm = present("x-amz-algorithm", form.algorithm)?;
        let credential = present("x-amz-credential", form.credential)?;
        let date = present("x-amz-date", form.date)?;
        let signature = present("x-amz-signature", form.signature)?;
        if algorithm != ALGORITHM {
            return Err(S3Error::argument("X-Amz-Algorithm", algorithm, "Only AWS4-HMAC-SHA256 is supported"));
        }
        let invalid_date =
            || S3Error::argument("X-Amz-Date", date, "X-Amz-Date must be formated via ISO8601 Long format");
        let signed_s = unix_seconds(date).ok_or_else(invalid_date)?;
        let parsed = AmzDate::parse(date).map_err(|_| invalid_date())?;
        let malformed = |text: String| S3Error::argument("x-amz-credential", credential, text);
        let mut parts = credential.rsplitn(5, '/');
        let (Some(end), Some(service), Some(region), Some(day), Some(access_key)) =
            (parts.next(), parts.next(), parts.next(), parts.next(), parts.next())
        else {
            let text = "the Credential is mal-formed; expecting \"<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request\".";
            return Err(malformed(text.into()));
        };
        if end != "aws4_request" {
            return Err(malformed(format!("incorrect terminal \"{end}\". This endpoint uses \"aws4_request\".")));
        }
        if service != "s3" {
            return Err(malformed(format!("incorrect service \"{service}\". This endpoint belongs to \"s3\".")));
        }
        if region != self.region {
            return Err(malformed(format!("the region '{region}' is wrong; expecting '{}'", self.region)));
        }
        if date.get(..day.len()) != Some(day) || day.len() != 8 {
            return Err(malformed(format!(
                "incorrect date format \"{day}\". This date in the credential must be in the format \"yyyyMMdd\"."
            )));
        }
        let age_ms = i64::try_from(self.now_ms()).unwrap_or(i64::MAX).saturating_sub(signed_s.saturating_mul(1000));
        if !(-SKEW_MS_MAX..=KEY_MS_MAX).contains(&age_ms) {
            return Err(S3Error::with(S3Code::AccessDenied, "Invalid according to Policy: Policy expired."));
        }
        let Credential { secret, identity } = self.credential(access_key, form)?;
        let key = s3s_sigv4::derive_signing_key(secret.expose(), &parsed, &self.region, "s3");
        let expected = hex::encode(s3s_sigv4::calculate_signature_with_key(policy, &key));
        compare(&expected, signature, access_key, policy, form.token)?;
        Ok(identity)
    }

    fn verify_v2(&self, form: &SignedForm<'_>) -> Result<Arc<Identity>, S3Error> {
        let policy = present("policy", form.policy)?;
        let access_key = present("AWSAccessKeyId", form.access_key_v2)?;
        let signature = present("signature", form.signature_v2)?;
        if !self.sigv2 {
            let message =
                "The authorization mechanism you have provided is not supported. Please use AWS4-HMAC-SHA256.";
            return Err(S3Error::request(message));
        }
        let Credential { secret, identity } = self.credential(access_key, form)?;
        let mut mac = Hmac::<Sha1>::new_from_slice(secret.expose().as_bytes()).expect("HMAC takes keys of any length");
        mac.update(policy.as_bytes());
        compare(&BASE64_STANDARD.encode(mac.finalize().into_bytes()), signature, access_key, policy, form.token)?;
        Ok(identity)
    }

    fn credential(&self, access_key: &str, form: &SignedForm<'_>) -> Result<Credential, S3Error> {
        self.credentials.find(access_key, form.token.filter(|token| !token.is_empty())).map_err(|refusal| {
            let error = S3Error::from(refusal);
            let key = (error.code == S3Code::InvalidAccessKeyId).then(|| echo(access_key));
            error.or_detail("AWSAccessKeyId", key)
        })
    }
}

fn present<'a>(name: &str, value: Option<&'a str>) -> Result<&'a str, S3Error> {
    value.ok_or_else(|| {
        let message = format!(
            "Bucket POST must contain a field named '{name}'.  If it is specified, please check the order of the fields."
        );
        S3Error::argument(name, "", message)
    })
}

/// What is signed is the policy, which is told again unless a token stands in it.
fn compare(expected: &str, sent: &str, access_key: &str, policy: &str, token: Option<&str>) -> Result<(), S3Error> {
    if expected.as_bytes().ct_eq(sent.as_bytes()).into() {
        return Ok(());
    }
    let error = S3Error::new(S3Code::SignatureDoesNotMatch).detail("AWSAccessKeyId", echo(access_key));
    Err(if token.is_none() { explain(error, sent, policy) } else { error })
}
