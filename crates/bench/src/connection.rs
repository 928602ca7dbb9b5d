//! One HTTP/1.1 connection that a worker owns, opened again when it broke.

use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{Either, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::content::Window;

/// The body of a request: bytes at hand, or an object's content.
pub(crate) type RequestBody = Either<Full<Bytes>, Window>;

/// Where requests go.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// `host:port`, as it stands in the `Host` header.
    pub(crate) authority: String,
    address: String,
}

impl Endpoint {
    /// Parses `http://host[:port]`.
    ///
    /// # Errors
    /// For another scheme, a path, or no host.
    pub(crate) fn parse(url: &str) -> anyhow::Result<Self> {
        let uri: http::Uri = url.parse().with_context(|| format!("the endpoint {url:?} is no URL"))?;
        if uri.scheme_str() != Some("http") {
            bail!("the endpoint {url:?}: only http:// can be measured");
        }
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            bail!("the endpoint {url:?} must not have a path");
        }
        let authority = uri.authority().context("the endpoint has no host")?;
        let address = format!("{}:{}", authority.host(), authority.port_u16().unwrap_or(80));
        Ok(Self { authority: authority.to_string(), address })
    }
}

/// A worker's connection.
pub(crate) struct Connection {
    endpoint: Endpoint,
    timeout: Duration,
    sender: Option<http1::SendRequest<RequestBody>>,
}

impl Connection {
    pub(crate) fn new(endpoint: Endpoint, timeout: Duration) -> Self {
        Self { endpoint, timeout, sender: None }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Longest time for one request, its response body included.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Closes the connection: an answer was not read to its end, so the next request needs a new one.
    pub(crate) fn close(&mut self) {
        self.sender = None;
    }

    /// Sends a request and waits for the head of its answer. After an error the connection is closed.
    ///
    /// # Errors
    /// When the endpoint can not be reached or the connection breaks.
    pub(crate) async fn send(&mut self, request: Request<RequestBody>) -> anyhow::Result<Response<Incoming>> {
        let mut sender = match self.reusable().await {
            Some(sender) => sender,
            None => self.open().await?,
        };
        let response = sender.send_request(request).await?;
        self.sender = Some(sender);
        Ok(response)
    }

    /// The connection of the request before, unless the endpoint has closed it since.
    async fn reusable(&mut self) -> Option<http1::SendRequest<RequestBody>> {
        let mut sender = self.sender.take()?;
        sender.ready().await.ok().map(|()| sender)
    }

    async fn open(&self) -> anyhow::Result<http1::SendRequest<RequestBody>> {
        let stream = TcpStream::connect(&self.endpoint.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::Builder::new().handshake(TokioIo::new(stream)).await?;
        // A connection that breaks tells the sender, which reports it.
        tokio::spawn(connection);
        Ok(sender)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        let endpoint = Endpoint::parse("http://localhost:9000/").unwrap();
        assert_eq!((endpoint.authority.as_str(), endpoint.address.as_str()), ("localhost:9000", "localhost:9000"));
        assert_eq!(Endpoint::parse("http://[::1]").unwrap().address, "[::1]:80");
        for url in ["https://localhost", "localhost:9000", "http://localhost/bucket", "http://"] {
            assert!(Endpoint::parse(url).is_err(), "{url}");
        }
    }
}
