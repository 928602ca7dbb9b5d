//! A transit engine: HashiCorp Vault's, or OpenBao's, over HTTP or HTTPS.
//!
//! It makes a key, and gives it both bare and wrapped by one that never leaves it; later it opens the wrapped one again. Source: HashiCorp, "Transit
//! secrets engine (API)": `datakey/plaintext` and `decrypt`. A key that it made wraps the data keys of many objects for as long as it is kept here, as
//! AWS's bucket keys do. Calls are few then, so each has a connection of its own.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use gabion_platform::Clock;
use gabion_store::{KeyError, SecretKey};
use http::header::{CONTENT_TYPE, HOST};
use http::{HeaderValue, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use zeroize::Zeroizing;

use super::cache::KeyCache;
use super::file::secret;
use crate::address::WebAddress;
use crate::fetch::trusting_only;

/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// Longest token, in bytes.
const TOKEN_BYTES_MAX: usize = 16 * 1024;

/// Where a transit engine is, and how it is spoken to.
#[derive(Clone, Debug)]
pub struct TransitOptions {
    /// `http://host:port` or `https://host:port`, perhaps with a path.
    pub url: String,
    /// Where the engine is mounted.
    pub mount: String,
    /// The file that holds the token; read for every call, so that an agent can renew it.
    pub token_file: PathBuf,
    /// The namespace, if there are such.
    pub namespace: Option<String>,
    /// PEM file of those who may have signed its certificate, instead of those whom the system trusts.
    pub ca: Option<PathBuf>,
    /// Longest time for a call.
    pub timeout: Duration,
    /// How long keys are kept.
    pub cache: Duration,
}

/// Why a transit engine can not be used.
#[derive(Debug, thiserror::Error)]
pub enum TransitError {
    /// The address is invalid.
    #[error("not an address like https://vault.example.org:8200: {0}")]
    Url(String),
    /// The namespace can be no header.
    #[error("{0:?} is not a namespace")]
    Namespace(String),
    /// Those who sign certificates can not be read.
    #[error("certificates can not be read: {0}")]
    Certificates(String),
}

/// A transit engine.
pub(super) struct Transit {
    options: TransitOptions,
    address: WebAddress,
    path: String,
    namespace: Option<HeaderValue>,
    tls: Option<TlsConnector>,
    clock: Arc<dyn Clock>,
    /// Keys that it made, by the key of the engine that wraps them; with what they are wrapped to.
    made: KeyCache<String, Vec<u8>>,
    /// Keys that it opened, by the key of the engine and what was wrapped.
    opened: KeyCache<(String, Vec<u8>), ()>,
}

/// An answer, of which only this is read.
#[derive(serde::Deserialize)]
struct Answer {
    data: KeyAnswer,
}

#[derive(serde::Deserialize)]
struct KeyAnswer {
    plaintext: String,
    ciphertext: Option<String>,
}

impl Transit {
    pub(super) fn new(options: TransitOptions, clock: Arc<dyn Clock>) -> Result<Self, TransitError> {
        let address = WebAddress::parse(&options.url).map_err(TransitError::Url)?;
        if address.query.is_some() {
            return Err(TransitError::Url("it has a query".to_owned()));
        }
        let tls = if address.tls { Some(connector(&options)?) } else { None };
        let namespace = match &options.namespace {
            Some(name) => Some(HeaderValue::from_str(name).map_err(|_| TransitError::Namespace(name.clone()))?),
            None => None,
        };
        let path = format!("{}/v1/{}", address.path.trim_end_matches('/'), options.mount.trim_matches('/'));
        let kept_ns = u64::try_from(options.cache.as_nanos()).unwrap_or(u64::MAX);
        let (made, opened) = (KeyCache::new(kept_ns), KeyCache::new(kept_ns));
        Ok(Self { options, address, path, namespace, tls, clock, made, opened })
    }

    /// A key, and what it is wrapped to.
    pub(super) async fn new_key(&self, name: &str) -> Result<(SecretKey, Vec<u8>), KeyError> {
        if let Some(made) = self.made.get(&name.to_owned(), self.clock.monotonic_ns()) {
            return Ok(made);
        }
        let answer = self.ask("datakey/plaintext", name, serde_json::json!({ "bits": 256 })).await?;
        let plaintext = Zeroizing::new(answer.plaintext);
        let key = secret(&plaintext).ok_or_else(|| unavailable("its key is not one of 256 bits"))?;
        let wrapped = answer.ciphertext.ok_or_else(|| unavailable("its key came without what it is wrapped to"))?;
        let (wrapped, now_ns) = (wrapped.into_bytes(), self.clock.monotonic_ns());
        self.made.put(name.to_owned(), key.clone(), wrapped.clone(), now_ns);
        self.opened.put((name.to_owned(), wrapped.clone()), key.clone(), (), now_ns);
        Ok((key, wrapped))
    }

    /// A key that it made before.
    pub(super) async fn known_key(&self, name: &str, wrapped: &[u8]) -> Result<SecretKey, KeyError> {
        let question = (name.to_owned(), wrapped.to_vec());
        if let Some((key, ())) = self.opened.get(&question, self.clock.monotonic_ns()) {
            return Ok(key);
        }
        let ciphertext = String::from_utf8_lossy(wrapped);
        let answer = self.ask("decrypt", name, serde_json::json!({ "ciphertext": ciphertext })).await?;
        let plaintext = Zeroizing::new(answer.plaintext);
        let key = secret(&plaintext).ok_or_else(|| unavailable("its key is not one of 256 bits"))?;
        self.opened.put(question, key.clone(), (), self.clock.monotonic_ns());
        Ok(key)
    }

    async fn ask(&self, what: &str, name: &str, question: serde_json::Value) -> Result<KeyAnswer, KeyError> {
        // What can be no name of a key must not be a path to something else.
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.starts_with('.') || !name.bytes().all(is_plain) {
            return Err(KeyError::NotFound(name.to_owned()));
        }
        let path = format!("{}/{what}/{name}", self.path);
        let asked = tokio::time::timeout(self.options.timeout, self.call(&path, question.to_string()));
        let (status, answer) = asked.await.map_err(|_| unavailable("it did not answer in time"))??;
        match status {
            StatusCode::OK => serde_json::from_slice(&answer)
                .map(|answer: Answer| answer.data)
                .map_err(|_| unavailable("its answer is not understood")),
            StatusCode::NOT_FOUND => Err(KeyError::NotFound(name.to_owned())),
            StatusCode::BAD_REQUEST if said(&answer).contains("not found") => Err(KeyError::NotFound(name.to_owned())),
            StatusCode::BAD_REQUEST | StatusCode::FORBIDDEN => {
                Err(KeyError::Refused(format!("{status} of {what} with {name}: {}", said(&answer))))
            }
            status => Err(KeyError::Unavailable(format!("{status} of {what}: {}", said(&answer)))),
        }
    }

    async fn call(&self, path: &str, question: String) -> Result<(StatusCode, Zeroizing<Vec<u8>>), KeyError> {
        let WebAddress { host, port, .. } = &self.address;
        let connected = TcpStream::connect((host.as_str(), *port)).await;
        let tcp = connected.map_err(|error| unavailable(&format!("it can not be connected to: {error}")))?;
        match &self.tls {
            None => self.exchange(tcp, path, question).await,
            Some(tls) => {
                let name = ServerName::try_from(host.clone()).map_err(|_| unavailable("its name is none"))?;
                let secured = tls.connect(name, tcp).await;
                let tls = secured.map_err(|error| unavailable(&format!("TLS with it failed: {error}")))?;
                self.exchange(tls, path, question).await
            }
        }
    }

    async fn exchange(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        path: &str,
        question: String,
    ) -> Result<(StatusCode, Zeroizing<Vec<u8>>), KeyError> {
        let failed = |error: hyper::Error| unavailable(&format!("speaking with it failed: {error}"));
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        let mut request = Request::post(path)
            .header(HOST, &self.address.authority)
            .header(CONTENT_TYPE, "application/json")
            .header("x-vault-token", self.token().await?)
            .header("x-vault-request", "true");
        if let Some(namespace) = &self.namespace {
            request = request.header("x-vault-namespace", namespace);
        }
        let request = request
            .body(Full::new(Bytes::from(question)))
            .map_err(|error| unavailable(&format!("it can not be asked: {error}")))?;
        let answer = async {
            let answer = sender.send_request(request).await.map_err(failed)?;
            let status = answer.status();
            let mut body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX);
            // As long as it may be from the start: no copy is left behind where it grew.
            let mut read = Zeroizing::new(Vec::with_capacity(ANSWER_BYTES_MAX));
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| unavailable(&format!("its answer did not come: {error}")))?;
                if let Some(bytes) = frame.data_ref() {
                    read.extend_from_slice(bytes);
                }
            }
            Ok((status, read))
        };
        // The connection goes on as long as it is driven, and ends with this call.
        tokio::pin!(answer, connection);
        tokio::select! {
            biased;
            answer = &mut answer => answer,
            _ = &mut connection => answer.await,
        }
    }

    async fn token(&self) -> Result<HeaderValue, KeyError> {
        let unreadable = |why: String| unavailable(&format!("the token can not be read: {why}"));
        let path = self.options.token_file.clone();
        let read = tokio::task::spawn_blocking(move || std::fs::read(path).map(Zeroizing::new)).await;
        let text =
            read.map_err(|error| unreadable(error.to_string()))?.map_err(|error| unreadable(error.to_string()))?;
        let token = text.trim_ascii();
        let value = HeaderValue::from_bytes(token).ok().filter(|_| !token.is_empty() && token.len() <= TOKEN_BYTES_MAX);
        let mut value = value.ok_or_else(|| unreadable("it can be no header".to_owned()))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

impl std::fmt::Debug for Transit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transit").field("options", &self.options).finish_non_exhaustive()
    }
}

fn unavailable(why: &str) -> KeyError {
    KeyError::Unavailable(format!("the transit engine: {why}"))
}

/// What an answer says went wrong.
fn said(answer: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Errors {
        errors: Vec<String>,
    }
    serde_json::from_slice::<Errors>(answer).map(|answer| answer.errors.join("; ")).unwrap_or_default()
}

fn connector(options: &TransitOptions) -> Result<TlsConnector, TransitError> {
    let unreadable = |error: String| TransitError::Certificates(error);
    let mut roots = rustls::RootCertStore::empty();
    match &options.ca {
        Some(path) => {
            let pem = std::fs::read(path).map_err(|error| unreadable(format!("{}: {error}", path.display())))?;
            for certificate in CertificateDer::pem_slice_iter(&pem) {
                let certificate = certificate.map_err(|error| unreadable(format!("{}: {error}", path.display())))?;
                roots.add(certificate).map_err(|error| unreadable(format!("{}: {error}", path.display())))?;
            }
        }
        None => {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
    }
    if roots.is_empty() {
        return Err(unreadable("there are none".to_owned()));
    }
    trusting_only(roots).map(TlsConnector::from).map_err(unreadable)
}

#[cfg(test)]
#[path = "transit/tests.rs"]
mod tests;
