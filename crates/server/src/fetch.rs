//! Small documents from and to other servers, over HTTP or HTTPS: what identity providers publish, what webhooks take.
//!
//! Every request is bounded in time and in bytes, follows no redirection, and makes a connection of its own, but for those of a [`Poster`].

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Empty, Full, Limited};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use crate::address::WebAddress;

/// Which servers may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Any: an operator has named it.
    Any,
    /// None on this machine, on its link, or where clouds tell machines their secrets: somebody else has named it.
    Foreign,
}

impl Reach {
    fn includes(self, address: IpAddr) -> bool {
        self == Reach::Any || !is_near(address)
    }
}

/// Where clouds tell machines about themselves, beside the link-local 169.254.169.254 and its like.
const METADATA_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(192, 0, 0, 192)];
const METADATA_V6: [u16; 2] = [0xfd00, 0x0ec2];
/// RFC 6052.
const IPV4_BEHIND_V6: [u16; 6] = [0x64, 0xff9b, 0, 0, 0, 0];

fn is_near(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let is_this_network = v4.octets()[0] == 0;
            let is_no_server = v4.is_loopback() || v4.is_multicast() || v4.is_broadcast() || is_this_network;
            is_no_server || v4.is_link_local() || METADATA_V4.contains(&v4)
        }
        // What a gateway of IPv4 is behind is judged as itself.
        IpAddr::V6(v6) if v6.segments().starts_with(&IPV4_BEHIND_V6) => {
            let [.., high, low] = v6.segments();
            is_near(Ipv4Addr::from(u32::from(high) << 16 | u32::from(low)).into())
        }
        IpAddr::V6(v6) => {
            let is_no_server = v6.is_loopback() || v6.is_multicast() || v6.is_unspecified();
            is_no_server || v6.is_unicast_link_local() || v6.segments().starts_with(&METADATA_V6)
        }
    }
}

/// Gets a document of at most `bytes_max` from a server within `reach`.
///
/// # Errors
/// With a sentence for the log.
pub(crate) async fn get(url: &str, bytes_max: usize, patience: Duration, reach: Reach) -> Result<Bytes, String> {
    let request = Request::builder().method(Method::GET).header(ACCEPT, "application/json");
    let exchange = async {
        let address = WebAddress::parse(url)?;
        let request = complete(&address, request).body(Empty::<Bytes>::new()).map_err(|error| error.to_string())?;
        let mut connection = Connection::open(&address, reach).await?;
        let answer = connection.ask(request).await?;
        let body = Limited::new(answer.into_body(), bytes_max).collect().await.map_err(|error| error.to_string())?;
        Ok(body.to_bytes())
    };
    within(patience, exchange).await
}

/// Longest answer to a post.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// How long the rest of an answer is waited for whose head has said all.
const REST: Duration = Duration::from_secs(1);

/// What comes of an exchange, if it does not take too long.
async fn within<T>(patience: Duration, exchange: impl Future<Output = Result<T, String>>) -> Result<T, String> {
    match tokio::time::timeout(patience, exchange).await {
        Ok(outcome) => outcome,
        Err(_) => Err(format!("no answer within {} s", patience.as_secs())),
    }
}

/// What lets such servers be asked.
const NEAR: &str = " (iam.near_providers lets such providers be asked)";

/// Connects to one of the addresses of a host: to no other than those that were looked at.
async fn connect(host: &str, port: u16, reach: Reach) -> Result<TcpStream, String> {
    let found = tokio::net::lookup_host((host, port)).await.map_err(|error| error.to_string())?;
    let addresses: Vec<SocketAddr> = found.filter(|address| reach.includes(address.ip())).collect();
    if addresses.is_empty() {
        return Err(format!("{host} has no address that may be asked: it is on this machine or its link{NEAR}"));
    }
    let stream = TcpStream::connect(addresses.as_slice()).await.map_err(|error| error.to_string())?;
    // Whoever is asked from his own address is this machine, whatever the address.
    let is_here = match (stream.peer_addr(), stream.local_addr()) {
        (Ok(there), Ok(here)) => there.ip() == here.ip(),
        _ => true,
    };
    if reach == Reach::Foreign && is_here {
        return Err(format!("{host} is on this machine{NEAR}"));
    }
    Ok(stream)
}

/// Posts documents to one address, over a connection that is kept from one to the next.
pub(crate) struct Poster {
    url: String,
    content_type: &'static str,
    authorization: Option<String>,
    kept: Option<Connection<Full<Bytes>>>,
}

impl Poster {
    pub(crate) fn new(url: &str, content_type: &'static str, authorization: Option<String>) -> Self {
        Self { url: url.to_owned(), content_type, authorization, kept: None }
    }

    /// Does not rely on the connection that is kept: where nothing was said for long, nobody may be at its other end any more.
    pub(crate) fn forget(&mut self) {
        self.kept = None;
    }

    /// Posts a document with further headers; what comes back is of no interest as long as it says that it was taken.
    ///
    /// # Errors
    /// With a sentence for the log.
    pub(crate) async fn post(
        &mut self,
        headers: &[(&str, &str)],
        document: Bytes,
        patience: Duration,
    ) -> Result<(), String> {
        let (connection, answer) = within(patience, self.ask(headers, document)).await?;
        // It was taken, whatever follows. A connection is kept of which nothing is left to come.
        let rest = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect();
        if matches!(tokio::time::timeout(REST, rest).await, Ok(Ok(_))) {
            self.kept = Some(connection);
        }
        Ok(())
    }

    async fn ask(&mut self, headers: &[(&str, &str)], document: Bytes) -> Result<Answered, String> {
        let address = WebAddress::parse(&self.url)?;
        // One that was closed meanwhile is replaced; one that fails, or whose answer is given up, is not kept.
        let kept = match self.kept.take() {
            Some(kept) if kept.is_open() => Some(kept),
            _ => None,
        };
        let mut connection = match kept {
            Some(kept) => kept,
            None => Connection::open(&address, Reach::Any).await?,
        };
        let mut request = Request::builder().method(Method::POST).header(CONTENT_TYPE, self.content_type);
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = complete(&address, request).body(Full::new(document)).map_err(|error| error.to_string())?;
        let answer = connection.ask(request).await?;
        Ok((connection, answer))
    }
}

/// The head of an answer, and the connection that its body is to come by.
type Answered = (Connection<Full<Bytes>>, Response<Incoming>);

/// Adds what every request to an address says.
fn complete(address: &WebAddress, request: http::request::Builder) -> http::request::Builder {
    request.uri(address.target()).header(HOST, &address.authority).header(USER_AGENT, "gabion")
}

/// A connection, which ends when it is dropped.
struct Connection<B> {
    sender: SendRequest<B>,
    task: AbortOnDropHandle<()>,
}

impl<B> Connection<B>
where
    B: Body<Data = Bytes, Error: std::error::Error + Send + Sync> + Send + 'static,
{
    async fn open(address: &WebAddress, reach: Reach) -> Result<Self, String> {
        let stream = connect(&address.host, address.port, reach).await?;
        if !address.tls {
            return Self::over(stream).await;
        }
        let name = ServerName::try_from(address.host.clone()).map_err(|error| error.to_string())?;
        Self::over(connector()?.connect(name, stream).await.map_err(|error| error.to_string())?).await
    }

    async fn over<S>(stream: S) -> Result<Self, String>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connected = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (sender, connection) = connected.map_err(|error| error.to_string())?;
        // What it ends with, the request that it was for is told.
        let task = AbortOnDropHandle::new(tokio::spawn(async move { drop(connection.await) }));
        Ok(Self { sender, task })
    }

    fn is_open(&self) -> bool {
        !self.sender.is_closed() && !self.task.is_finished()
    }

    /// The head of an answer that says yes; its body is still to come.
    async fn ask(&mut self, request: Request<B>) -> Result<Response<Incoming>, String> {
        self.sender.ready().await.map_err(|error| error.to_string())?;
        let response = self.sender.send_request(request).await.map_err(|error| error.to_string())?;
        let status = response.status();
        if status.is_success() { Ok(response) } else { Err(format!("it answered {status}")) }
    }
}

fn connector() -> Result<TlsConnector, String> {
    trusting().map(TlsConnector::from)
}

/// Trusts whom the system trusts.
///
/// # Errors
/// When that is nobody.
pub(crate) fn trusting() -> Result<Arc<ClientConfig>, String> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(Arc::clone(config));
    }
    let mut roots = RootCertStore::empty();
    for certificate in rustls_native_certs::load_native_certs().certs {
        // One that can not be read is one less to trust.
        let _ = roots.add(certificate);
    }
    if roots.is_empty() {
        return Err("the system has no certificates of authorities".to_owned());
    }
    let config = trusting_only(roots)?;
    Ok(Arc::clone(CONFIG.get_or_init(|| config)))
}

/// Trusts these.
///
/// # Errors
/// When the library of TLS offers no protocol.
pub(crate) fn trusting_only(roots: RootCertStore) -> Result<Arc<ClientConfig>, String> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_not_asked_for_others() {
        let table = [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("0.0.0.0", true),
            ("0.1.2.3", true),
            ("169.254.169.254", true),
            ("169.254.170.2", true),
            ("100.100.100.200", true),
            ("168.63.129.16", true),
            ("192.0.0.192", true),
            ("224.0.0.1", true),
            ("255.255.255.255", true),
            ("::1", true),
            ("::", true),
            ("fe80::1", true),
            ("fd00:ec2::254", true),
            ("::ffff:127.0.0.1", true),
            ("::ffff:169.254.169.254", true),
            ("64:ff9b::a9fe:a9fe", true),
            ("64:ff9b::127.0.0.1", true),
            ("64:ff9b::203.0.113.7", false),
            ("10.0.0.1", false),
            ("192.168.1.1", false),
            ("203.0.113.7", false),
            ("::ffff:203.0.113.7", false),
            ("fd00:1234::1", false),
            ("2001:db8::1", false),
        ];
        for (address, expected) in table {
            let address: IpAddr = address.parse().unwrap();
            assert_eq!(is_near(address), expected, "{address}");
            assert!(Reach::Any.includes(address) && Reach::Foreign.includes(address) != expected, "{address}");
        }
    }

    /// Also where a name, or a number in another form, stands for it: what counts is where the connection would go.
    #[tokio::test]
    async fn nothing_near_is_connected_to() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        for host in ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "2130706433", "0177.0.0.1"] {
            let url = format!("http://{host}:{port}/");
            let refused = get(&url, 10, Duration::from_secs(10), Reach::Foreign).await.unwrap_err();
            assert!(refused.contains("may be asked") || !refused.contains("answer"), "{host}: {refused}");
        }
        assert!(futures::FutureExt::now_or_never(listener.accept()).is_none(), "nobody came");
        // Nor is this machine asked by another address of its own, if it has one.
        let route = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        if route.connect("192.0.2.1:9").is_ok() {
            let own = route.local_addr().unwrap().ip();
            let listener = tokio::net::TcpListener::bind((own, 0)).await.unwrap();
            let url = format!("http://{}/", listener.local_addr().unwrap());
            let refused = get(&url, 10, Duration::from_secs(10), Reach::Foreign).await.unwrap_err();
            assert!(refused.contains("on this machine"), "{refused}");
        }
    }
}
