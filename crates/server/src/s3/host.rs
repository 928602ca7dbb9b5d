//! Virtual-host style: which bucket a `Host` names.

use s3s::S3Result;
use s3s::host::{S3Host, VirtualHost};

use super::S3ServiceError;

/// Checks a domain under which buckets have names.
///
/// # Errors
/// When it is none.
pub fn check_domain(domain: &str) -> Result<(), S3ServiceError> {
    let is_label =
        |label: &str| !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if domain.split('.').all(is_label) { Ok(()) } else { Err(S3ServiceError::Domain(domain.to_owned())) }
}

/// Base domains, lower-case, longest first. A host that is below none of them names no bucket.
#[derive(Clone, Debug)]
pub(crate) struct Domains(Vec<String>);

impl Domains {
    /// Checks and keeps them.
    ///
    /// # Errors
    /// When one is no host name.
    pub(crate) fn new(domains: &[String]) -> Result<Self, S3ServiceError> {
        let mut kept = Vec::with_capacity(domains.len());
        for domain in domains {
            check_domain(domain)?;
            kept.push(domain.to_ascii_lowercase());
        }
        kept.sort_by_key(|domain| std::cmp::Reverse(domain.len()));
        Ok(Self(kept))
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The bucket that a host names, in lower case.
    pub(crate) fn bucket(&self, host: &str) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let host = without_port(host).to_ascii_lowercase();
        self.0.iter().find_map(|domain| {
            let bucket = host.strip_suffix(domain.as_str())?.strip_suffix('.')?;
            (!bucket.is_empty()).then(|| bucket.to_owned())
        })
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

impl S3Host for Domains {
    /// s3s needs it for Signature Version 2, which signs the bucket that the host names.
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let virtual_host = VirtualHost::new(host);
        Ok(match self.bucket(host) {
            Some(bucket) => virtual_host.with_bucket(bucket),
            None => virtual_host,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_below_a_domain_name_a_bucket() {
        let domains = Domains::new(&["s3.example.com".into(), "example.com".into(), "localhost".into()]).unwrap();
        let table = [
            ("b.s3.example.com", Some("b")),
            ("B.S3.Example.com:9000", Some("b")),
            ("a.b.s3.example.com", Some("a.b")),
            ("x.example.com", Some("x")),
            ("s3.example.com", Some("s3")),
            ("example.com", None),
            ("example.com:9000", None),
            ("b.localhost:9000", Some("b")),
            ("localhost:9000", None),
            ("notexample.com", None),
            (".example.com", None),
            ("127.0.0.1:9000", None),
            ("[::1]:9000", None),
            ("other.org", None),
        ];
        for (host, bucket) in table {
            assert_eq!(domains.bucket(host).as_deref(), bucket, "{host}");
        }
        assert!(Domains::new(&["a..b".into()]).is_err());
        assert!(Domains::new(&["a b".into()]).is_err());
    }

    #[test]
    fn a_domain_itself_is_path_style_when_no_shorter_one_covers_it() {
        let domains = Domains::new(&["s3.example.com".into()]).unwrap();
        assert_eq!(domains.bucket("s3.example.com"), None);
    }
}
