//! Where requests go.

use anyhow::{Context, bail};
use rustls::pki_types::ServerName;

/// An endpoint of the form `http[s]://host[:port]`.
#[derive(Clone, Debug)]
pub(crate) struct Endpoint {
    /// `host:port`, as it stands in the `Host` header.
    pub(crate) authority: String,
    /// `host:port` to connect to.
    pub(crate) address: String,
    /// The name that the certificate must have, for `https`.
    pub(crate) tls_name: Option<ServerName<'static>>,
}

impl Endpoint {
    /// Parses `http[s]://host[:port]`.
    ///
    /// # Errors
    /// For another scheme, a path, or no host.
    pub(crate) fn parse(url: &str) -> anyhow::Result<Self> {
        let uri: http::Uri = url.parse().with_context(|| format!("the endpoint {url:?} is no URL"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => bail!("the endpoint {url:?} must begin with http:// or https://"),
        };
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            bail!("the endpoint {url:?} must not have a path; name the bucket with --bucket");
        }
        let authority = uri.authority().with_context(|| format!("the endpoint {url:?} has no host"))?;
        let host = authority.host();
        // The parser takes what is no number of a port, and says that there is none.
        let whole = authority.as_str();
        if whole.contains('@') {
            // Reports show endpoints.
            bail!(
                "an endpoint must not say who asks: give keys by --access-key and --secret-key, or by the environment"
            );
        }
        let port = match (authority.port_u16(), whole.strip_prefix(host)) {
            (Some(port), _) if port > 0 => port,
            (None, Some("")) if tls => 443,
            (None, Some("")) => 80,
            _ => bail!("the endpoint {url:?} has no valid port: give one of 1 to 65535 after the last colon"),
        };
        let tls_name = if tls {
            let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            Some(ServerName::try_from(name).with_context(|| format!("the endpoint {url:?} has no usable host"))?)
        } else {
            None
        };
        Ok(Self { authority: authority.to_string(), address: format!("{host}:{port}"), tls_name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        let endpoint = Endpoint::parse("http://localhost:9000/").unwrap();
        assert_eq!((endpoint.authority.as_str(), endpoint.address.as_str()), ("localhost:9000", "localhost:9000"));
        assert!(endpoint.tls_name.is_none());
        assert_eq!(Endpoint::parse("http://[::1]").unwrap().address, "[::1]:80");
        let secure = Endpoint::parse("https://[::1]").unwrap();
        assert_eq!(secure.address, "[::1]:443");
        assert!(secure.tls_name.is_some());
        for url in ["ftp://localhost", "localhost:9000", "http://localhost/bucket", "http://"] {
            assert!(Endpoint::parse(url).is_err(), "{url}");
        }
        for url in ["http://127.0.0.1:99999", "http://localhost:0", "http://localhost:", "https://[::1]:65536"] {
            let error = Endpoint::parse(url).unwrap_err().to_string();
            assert!(error.contains("no valid port"), "{error}");
        }
        for url in ["http://me@[::1]:81", "https://key:secret@localhost"] {
            let error = format!("{:#}", Endpoint::parse(url).unwrap_err());
            assert!(error.contains("--access-key") && !error.contains("secret@"), "{error}");
        }
    }
}
