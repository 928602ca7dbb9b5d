//! Web identity tokens: JSON Web Tokens (RFC 7519) of OpenID Connect providers, verified with the keys that their issuer publishes.
//!
//! Keys are found as "OpenID Connect Discovery 1.0" says: the issuer's configuration names where they are. They are kept for an hour, and asked for anew when a
//! token names one that is not among them, but not more than once a minute. Only signatures that need the issuer's private key are accepted:
//! RS256, RS384, RS512, ES256, ES384; never `none`, never one with a shared secret.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use gabion_platform::Clock;
use parking_lot::Mutex;
use ring::signature::{self, RsaPublicKeyComponents, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;

use super::error::IamError;
use super::model::{Provider, is_prefix_of_keys};
use crate::credentials::Tags;
use crate::fetch::{self, Reach};

/// How long keys are believed without another look, in milliseconds.
const KEYS_MS_MAX: u64 = 60 * 60 * 1000;
/// How long it is until an issuer is asked again for a key that he did not have, or after he did not answer, in milliseconds.
const AGAIN_MS: u64 = 60 * 1000;
/// Issuers whose keys are kept.
const ISSUERS_MAX: usize = 1000;
/// How much an issuer's clock may differ from ours, in seconds.
const SKEW_S: u64 = 60;
/// Longest token.
const TOKEN_BYTES_MAX: usize = 20_000;
/// Longest document of an issuer.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(10);
/// The claim by which a provider gives a session its tags, as AWS names it.
const TAGS_CLAIM: &str = "https://aws.amazon.com/tags";

/// What a token says, after it was verified.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Claims {
    pub(super) subject: String,
    /// The one that was found among the provider's.
    pub(super) audience: String,
    all: serde_json::Map<String, Value>,
}

impl Claims {
    /// `HOST:sub`, `HOST:aud` and the like: texts, and lists of texts.
    pub(super) fn condition_keys(&self, host: &str) -> Tags {
        let mut keys = Tags::new();
        // None is made of such a name any more; one that was before says nothing.
        if is_prefix_of_keys(host) {
            return keys;
        }
        for (name, value) in &self.all {
            let values = match value {
                Value::String(text) => vec![text.clone()],
                Value::Bool(flag) => vec![flag.to_string()],
                Value::Array(list) => list.iter().filter_map(|entry| Some(entry.as_str()?.to_owned())).collect(),
                _ => continue,
            };
            // AWS gives `azp` the name `aud` when it is there.
            let name = match name.as_str() {
                "azp" => "aud",
                "aud" if self.all.contains_key("azp") => "oaud",
                name => name,
            };
            keys.extend(values.into_iter().map(|value| (format!("{host}:{name}"), value)));
        }
        keys
    }

    /// Tags that the provider gives.
    pub(super) fn session_tags(&self) -> Tags {
        let tags = self.all.get(TAGS_CLAIM).and_then(|claim| claim.get("principal_tags")?.as_object());
        let pairs = tags.into_iter().flatten();
        let first = |value: &Value| match value {
            Value::Array(list) => list.first().and_then(Value::as_str).map(str::to_owned),
            value => value.as_str().map(str::to_owned),
        };
        pairs.filter_map(|(key, value)| Some((key.clone(), first(value)?))).collect()
    }
}

fn invalid(message: impl Into<std::borrow::Cow<'static, str>>) -> IamError {
    IamError::sender("InvalidIdentityToken", message)
}

/// A token, taken apart.
struct Parts<'a> {
    header: Header,
    claims: serde_json::Map<String, Value>,
    signed: &'a str,
    signature: Vec<u8>,
}

#[derive(Deserialize)]
struct Header {
    alg: String,
    #[serde(default)]
    kid: Option<String>,
}

fn parts(token: &str) -> Result<Parts<'_>, IamError> {
    let malformed = || invalid("The ID Token provided is not a valid JWT.");
    if token.len() > TOKEN_BYTES_MAX {
        return Err(malformed());
    }
    let (signed, signature) = token.rsplit_once('.').ok_or_else(malformed)?;
    let (header, claims) = signed.split_once('.').ok_or_else(malformed)?;
    let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).map_err(|_| malformed());
    Ok(Parts {
        header: serde_json::from_slice(&decode(header)?).map_err(|_| malformed())?,
        claims: serde_json::from_slice(&decode(claims)?).map_err(|_| malformed())?,
        signed,
        signature: decode(signature)?,
    })
}

/// Who a token says that it is from. Nothing is verified yet.
///
/// # Errors
/// `InvalidIdentityToken`.
pub(super) fn issuer_of(token: &str) -> Result<String, IamError> {
    let issuer = parts(token)?.claims.get("iss").and_then(Value::as_str).map(str::to_owned);
    issuer.ok_or_else(|| invalid("Missing a required claim: iss"))
}

/// A key of an issuer (RFC 7517).
#[derive(Clone, Debug, Deserialize)]
struct Jwk {
    kty: String,
    #[serde(default)]
    kid: Option<String>,
    #[serde(default, rename = "use")]
    usage: Option<String>,
    #[serde(default)]
    n: Option<String>,
    #[serde(default)]
    e: Option<String>,
    #[serde(default)]
    crv: Option<String>,
    #[serde(default)]
    x: Option<String>,
    #[serde(default)]
    y: Option<String>,
}

impl Jwk {
    /// Whether this key made the signature.
    fn verifies(&self, algorithm: &str, signed: &[u8], signature: &[u8]) -> bool {
        if self.usage.as_deref().is_some_and(|usage| usage != "sig") {
            return false;
        }
        let decode = |text: &Option<String>| BASE64_URL_SAFE_NO_PAD.decode(text.as_deref()?.trim_end_matches('=')).ok();
        let checked = match (algorithm, self.kty.as_str()) {
            ("RS256" | "RS384" | "RS512", "RSA") => (|| {
                let parameters = match algorithm {
                    "RS256" => &signature::RSA_PKCS1_2048_8192_SHA256,
                    "RS384" => &signature::RSA_PKCS1_2048_8192_SHA384,
                    _ => &signature::RSA_PKCS1_2048_8192_SHA512,
                };
                let key = RsaPublicKeyComponents { n: decode(&self.n)?, e: decode(&self.e)? };
                key.verify(parameters, signed, signature).ok()
            })(),
            ("ES256" | "ES384", "EC") => (|| {
                let (curve, parameters): (_, &dyn signature::VerificationAlgorithm) = match algorithm {
                    "ES256" => ("P-256", &signature::ECDSA_P256_SHA256_FIXED),
                    _ => ("P-384", &signature::ECDSA_P384_SHA384_FIXED),
                };
                (self.crv.as_deref() == Some(curve)).then_some(())?;
                let point = [&[4][..], &decode(&self.x)?, &decode(&self.y)?].concat();
                UnparsedPublicKey::new(parameters, point).verify(signed, signature).ok()
            })(),
            _ => None,
        };
        checked.is_some()
    }
}

#[derive(Deserialize)]
struct Configuration {
    issuer: String,
    jwks_uri: String,
}

#[derive(Deserialize)]
struct Jwks {
    keys: Vec<Value>,
}

/// Keys on their way, for all who wait for them.
type Coming = Shared<BoxFuture<'static, Result<Arc<Vec<Jwk>>, ()>>>;

#[derive(Default)]
struct Known {
    keys: Arc<Vec<Jwk>>,
    /// When they came; 0: never.
    fetched_ms: u64,
    /// When they were asked for last, with or without an answer.
    asked_ms: u64,
    coming: Option<Coming>,
}

impl Known {
    fn is_fresh(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.fetched_ms) < KEYS_MS_MAX
    }
}

/// The keys of issuers.
pub(super) struct Issuers {
    known: Arc<Mutex<HashMap<String, Known>>>,
    clock: Arc<dyn Clock>,
    /// Administrators of accounts name them.
    reach: Reach,
}

impl Issuers {
    pub(super) fn new(clock: Arc<dyn Clock>, reach: Reach) -> Self {
        Self { known: Arc::default(), clock, reach }
    }

    /// What a token of this provider says.
    ///
    /// # Errors
    /// `InvalidIdentityToken`, `ExpiredTokenException`, `IDPCommunicationError`.
    pub(super) async fn verify(&self, token: &str, provider: &Provider) -> Result<Claims, IamError> {
        let parts = parts(token)?;
        let keys = self.keys(provider, |_| true).await?;
        let made = |keys: &[Jwk]| {
            let named = |key: &&Jwk| match (&parts.header.kid, &key.kid) {
                (Some(wanted), Some(kid)) => wanted == kid,
                _ => true,
            };
            keys.iter()
                .filter(named)
                .any(|key| key.verifies(&parts.header.alg, parts.signed.as_bytes(), &parts.signature))
        };
        if !made(&keys) {
            // The issuer may have new ones.
            let keys = self.keys(provider, |known| !Arc::ptr_eq(&known.keys, &keys)).await?;
            if !made(&keys) {
                return Err(invalid("The signature of the ID Token can not be verified with the keys of its issuer."));
            }
        }
        check(parts.claims, provider, self.clock.now_ms() / 1000)
    }

    /// The keys of a provider: those that are known if they are not too old and `good`, or cannot be asked for again so soon.
    async fn keys(&self, provider: &Provider, good: impl Fn(&Known) -> bool) -> Result<Arc<Vec<Jwk>>, IamError> {
        let coming = {
            let now_ms = self.clock.now_ms();
            let issuer = provider.url.trim_end_matches('/');
            let mut known = self.known.lock();
            if known.len() >= ISSUERS_MAX && !known.contains_key(issuer) {
                known.clear();
            }
            let entry = known.entry(issuer.to_owned()).or_default();
            let too_soon = now_ms.saturating_sub(entry.asked_ms) < AGAIN_MS;
            match (&entry.coming, entry.is_fresh(now_ms)) {
                (_, true) if good(entry) => return Ok(Arc::clone(&entry.keys)),
                // Whoever else comes waits for them as well.
                (Some(coming), _) => coming.clone(),
                (_, true) if too_soon => return Ok(Arc::clone(&entry.keys)),
                (_, false) if too_soon => return Err(unanswered()),
                _ => {
                    entry.asked_ms = now_ms;
                    let coming = self.fetch(issuer.to_owned(), now_ms);
                    entry.coming = Some(coming.clone());
                    coming
                }
            }
        };
        // Not under the lock: one issuer who does not answer must not hold up the tokens of others.
        coming.await.map_err(|()| unanswered())
    }

    /// Fetches keys: to the end, also if whoever asked for them first has gone.
    fn fetch(&self, issuer: String, now_ms: u64) -> Coming {
        let (known, reach) = (Arc::clone(&self.known), self.reach);
        let fetching = tokio::spawn(async move {
            let fetched = fetch_keys(&issuer, reach).await;
            let mut known = known.lock();
            let entry = known.entry(issuer.clone()).or_default();
            entry.coming = None;
            match fetched {
                Ok(keys) => {
                    entry.keys = Arc::new(keys);
                    entry.fetched_ms = now_ms;
                    Ok(Arc::clone(&entry.keys))
                }
                Err(why) => {
                    tracing::warn!(issuer, why, "the keys of an identity provider can not be fetched");
                    // Those that came within the hour still hold.
                    if entry.is_fresh(now_ms) { Ok(Arc::clone(&entry.keys)) } else { Err(()) }
                }
            }
        });
        async move { fetching.await.unwrap_or(Err(())) }.boxed().shared()
    }
}

fn unanswered() -> IamError {
    IamError::sender("IDPCommunicationError", "The identity provider did not give its keys.")
}

async fn fetch_keys(issuer: &str, reach: Reach) -> Result<Vec<Jwk>, String> {
    let address = format!("{issuer}/.well-known/openid-configuration");
    let document = fetch::get(&address, DOCUMENT_BYTES_MAX, PATIENCE, reach).await?;
    let configuration: Configuration = serde_json::from_slice(&document).map_err(|error| error.to_string())?;
    if configuration.issuer.trim_end_matches('/') != issuer {
        return Err(format!("its configuration is that of {}", configuration.issuer));
    }
    let document = fetch::get(&configuration.jwks_uri, DOCUMENT_BYTES_MAX, PATIENCE, reach).await?;
    let jwks: Jwks = serde_json::from_slice(&document).map_err(|error| error.to_string())?;
    // Keys of kinds that are not known here are passed over.
    Ok(jwks.keys.into_iter().filter_map(|key| serde_json::from_value(key).ok()).collect())
}

/// Checks what a token whose signature was verified says.
fn check(all: serde_json::Map<String, Value>, provider: &Provider, now_s: u64) -> Result<Claims, IamError> {
    let text = |name: &str| all.get(name).and_then(Value::as_str);
    let time = |name: &str| all.get(name).and_then(|value| value.as_u64().or_else(|| Some(value.as_f64()? as u64)));
    let issuer = text("iss").ok_or_else(|| invalid("Missing a required claim: iss"))?;
    if issuer.trim_end_matches('/') != provider.url.trim_end_matches('/') {
        return Err(invalid("The ID Token is of another issuer."));
    }
    let expires_s = time("exp").ok_or_else(|| invalid("Missing a required claim: exp"))?;
    if now_s >= expires_s.saturating_add(SKEW_S) {
        return Err(IamError::sender(
            "ExpiredTokenException",
            "Token must be valid for at least one second: it is expired.",
        ));
    }
    let begins_s = time("nbf").max(time("iat")).unwrap_or(0);
    if begins_s > now_s.saturating_add(SKEW_S) {
        return Err(invalid("The ID Token is not valid yet."));
    }
    let subject =
        text("sub").filter(|subject| !subject.is_empty()).ok_or_else(|| invalid("Missing a required claim: sub"))?;
    let audiences: Vec<&str> = match all.get("aud") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let accepted = |audience: &&str| provider.client_ids.iter().any(|id| id == audience);
    let audience = text("azp").into_iter().chain(audiences).find(accepted);
    let audience = audience.ok_or_else(|| invalid("Incorrect token audience"))?;
    let (subject, audience) = (subject.to_owned(), audience.to_owned());
    Ok(Claims { subject, audience, all })
}
