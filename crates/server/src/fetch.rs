//! Small documents from and to other servers, over HTTP or HTTPS: what identity providers publish, what webhooks take.
//!
//! Every request is bounded in time and in bytes, follows no redirection, and makes a connection of its own.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::Body;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Gets a document of at most `bytes_max`.
///
/// # Errors
/// With a sentence for the log.
pub(crate) async fn get(url: &str, bytes_max: usize, patience: Duration) -> Result<Bytes, String> {
    let request = Request::builder().method(Method::GET).header(ACCEPT, "application/json");
    send(url, request, Empty::<Bytes>::new(), bytes_max, patience).await
}

/// Posts lines of JSON; what comes back is of no interest as long as it says that they were taken.
///
/// # Errors
/// With a sentence for the log.
pub(crate) async fn post(
    url: &str,
    authorization: Option<&str>,
    lines: Bytes,
    patience: Duration,
) -> Result<(), String> {
    let mut request = Request::builder().method(Method::POST).header(CONTENT_TYPE, "application/x-ndjson");
    if let Some(authorization) = authorization {
        request = request.header(AUTHORIZATION, authorization);
    }
    send(url, request, Full::new(lines), ANSWER_BYTES_MAX, patience).await.map(drop)
}

/// Longest answer to a post.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

async fn send<B>(
    url: &str,
    request: http::request::Builder,
    body: B,
    bytes_max: usize,
    patience: Duration,
) -> Result<Bytes, String>
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + 'static,
{
    let uri: Uri = url.parse().map_err(|error| format!("{url}: {error}"))?;
    let (host, tls) = match (uri.host(), uri.scheme_str()) {
        (Some(host), Some("https")) => (host.trim_matches(['[', ']']).to_owned(), true),
        (Some(host), Some("http")) => (host.trim_matches(['[', ']']).to_owned(), false),
        _ => return Err(format!("{url} is no address of a web server")),
    };
    let port = uri.port_u16().unwrap_or(if tls { 443 } else { 80 });
    let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
    let authority = uri.authority().map_or("", |authority| authority.as_str()).to_owned();
    let request = request
        .uri(target)
        .header(HOST, authority)
        .header(USER_AGENT, "gabion")
        .body(body)
        .map_err(|error| error.to_string())?;
    let exchange = async {
        let stream = TcpStream::connect((host.as_str(), port)).await.map_err(|error| error.to_string())?;
        if !tls {
            return exchange(stream, request, bytes_max).await;
        }
        let name = ServerName::try_from(host).map_err(|error| error.to_string())?;
        let stream = connector()?.connect(name, stream).await.map_err(|error| error.to_string())?;
        exchange(stream, request, bytes_max).await
    };
    match tokio::time::timeout(patience, exchange).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no answer within {} s", patience.as_secs())),
    }
}

async fn exchange<S, B>(stream: S, request: Request<B>, bytes_max: usize) -> Result<Bytes, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + 'static,
{
    let connected = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
    let (mut sender, connection) = connected.map_err(|error| error.to_string())?;
    let connection = tokio::spawn(connection);
    let answer = async {
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        if !status.is_success() {
            return Err(format!("it answered {status}"));
        }
        let body = Limited::new(response.into_body(), bytes_max).collect().await.map_err(|error| error.to_string())?;
        Ok(body.to_bytes())
    };
    let outcome = answer.await;
    connection.abort();
    outcome
}

/// Trusts whom the system trusts.
fn connector() -> Result<TlsConnector, String> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(TlsConnector::from(Arc::clone(config)));
    }
    let mut roots = RootCertStore::empty();
    for certificate in rustls_native_certs::load_native_certs().certs {
        // One that can not be read is one less to trust.
        let _ = roots.add(certificate);
    }
    if roots.is_empty() {
        return Err("the system has no certificates of authorities".to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::clone(CONFIG.get_or_init(|| Arc::new(config)))))
}
