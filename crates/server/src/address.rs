//! Addresses of other servers: what operators write in settings, and what documents of identity providers name.

use http::Uri;
use http::uri::Authority;

/// Where a web server is, and what is asked of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WebAddress {
    /// A name, or an address of IP without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: bool,
    /// What the header `Host` says.
    pub(crate) authority: String,
    pub(crate) path: String,
    /// What follows the path behind `?`.
    pub(crate) query: Option<String>,
}

impl WebAddress {
    /// Reads `http://HOST[:PORT][/PATH][?QUERY]`, or the same with `https`.
    ///
    /// # Errors
    /// With a sentence that says what is wrong. It is logged, and holds nothing of a path or a query, nor of what may be a password.
    pub(crate) fn parse(url: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        if authority.contains('@') {
            return Err("an address of a web server holds a user, which does not belong there".to_owned());
        }
        Self::of(url, authority).map_err(|why| {
            if url.contains('@') {
                return "an address with an @ in it is none of a web server: http://HOST/ or https://HOST/".to_owned();
            }
            let scheme = if scheme.is_empty() { String::new() } else { format!("{scheme}://") };
            format!("{scheme}{authority}: {why}")
        })
    }

    fn of(url: &str, authority: &str) -> Result<Self, String> {
        let uri: Uri = url.parse().map_err(|error: http::uri::InvalidUri| error.to_string())?;
        let tls = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err("no address of a web server: http://HOST/ or https://HOST/".to_owned()),
        };
        let (host, port) = host_and_port(authority, if tls { 443 } else { 80 })?;
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            tls,
            authority: authority.to_owned(),
            path: uri.path().to_owned(),
            query: uri.query().map(str::to_owned),
        })
    }

    /// What the first line of a request names.
    pub(crate) fn target(&self) -> String {
        match &self.query {
            Some(query) => format!("{}?{query}", self.path),
            None => self.path.clone(),
        }
    }
}

/// Reads `HOST` or `HOST:PORT`; an address of IPv6 keeps its brackets.
///
/// # Errors
/// With what is wrong, for a sentence that says where.
pub(crate) fn host_and_port(text: &str, default_port: u16) -> Result<(String, u16), String> {
    let malformed = || format!("{text:?} is no HOST or HOST:PORT");
    let authority: Authority = text.parse().map_err(|_| malformed())?;
    // What stands before the host is a user; a port that is none would be passed over.
    let rest = text.strip_prefix(authority.host()).filter(|_| !authority.host().is_empty()).ok_or_else(malformed)?;
    let port = match rest.strip_prefix(':') {
        Some(port) => {
            let is_number = port.bytes().all(|byte| byte.is_ascii_digit());
            let number = port.parse().ok().filter(|port| is_number && *port > 0);
            number.ok_or_else(|| format!("{port:?} is no port"))?
        }
        None if rest.is_empty() => default_port,
        None => return Err(malformed()),
    };
    Ok((authority.host().to_owned(), port))
}

/// Checks the address of a web server, of which nothing is asked.
///
/// # Errors
/// With a sentence that says what is wrong.
pub fn check_web_address(url: &str) -> Result<(), String> {
    WebAddress::parse(url).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn web_addresses_have_a_host_and_a_port() {
        let read = |url: &str| {
            let address = WebAddress::parse(url).unwrap();
            (address.host.clone(), address.port, address.tls, address.authority.clone(), address.target())
        };
        let is = |host: &str, port, tls, authority: &str, target: &str| {
            (host.to_owned(), port, tls, authority.to_owned(), target.to_owned())
        };
        assert_eq!(read("http://h.example"), is("h.example", 80, false, "h.example", "/"));
        assert_eq!(read("https://h.example/a?b=c"), is("h.example", 443, true, "h.example", "/a?b=c"));
        assert_eq!(read("HTTP://h:8200/"), is("h", 8200, false, "h:8200", "/"));
        assert_eq!(read("https://[::1]:9/x"), is("::1", 9, true, "[::1]:9", "/x"));
        assert_eq!(read("https://[::1]/x"), is("::1", 443, true, "[::1]", "/x"));
        for url in [
            "",
            "h",
            "h:80",
            "ftp://h/",
            "http://",
            "http:///x",
            "http://:80/",
            "http://h:/",
            "http://h:0/",
            "http://h:65536/",
            "http://h:80:90/",
            "http://[::1]x/",
            "http://[::1]:x/",
            "http://user:secret@h/",
            "http://user:se/secret@h/",
            "http://h:x/secret",
            "ftp://h/secret",
            "h/secret",
            "http://h /",
        ] {
            let error = WebAddress::parse(url).unwrap_err();
            assert!(!error.contains("secret"), "{url}: {error}");
        }
    }

    #[test]
    fn hosts_may_name_a_port() {
        assert_eq!(host_and_port("h", 4222), Ok(("h".to_owned(), 4222)));
        assert_eq!(host_and_port("h:1", 4222), Ok(("h".to_owned(), 1)));
        assert_eq!(host_and_port("[::1]:1", 4222), Ok(("[::1]".to_owned(), 1)));
        for text in ["", ":1", "h:", "h:0", "h:70000", "h:+1", "u@h", "a b"] {
            assert!(host_and_port(text, 4222).is_err(), "{text}");
        }
    }
}
