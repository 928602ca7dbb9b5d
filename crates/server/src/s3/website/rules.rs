//! What a bucket is as a website: which document stands for a directory and for an error, and who is sent elsewhere.
//!
//! Pure: a document in; which object to read, or where to go, out. Source: AWS, "Hosting a static website using Amazon S3",
//! "(Optional) Configuring a webpage redirect".

use http::StatusCode;
use s3s::dto::{self, WebsiteConfiguration};

use crate::error::{S3Code, S3Error};
use crate::s3::xml;

/// Most routing rules of a website.
const RULES_MAX: usize = 50;

/// A website.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Website {
    /// All of it is elsewhere.
    Elsewhere {
        host: String,
        protocol: Option<Protocol>,
    },
    Here(Pages),
}

/// The pages of a website.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pages {
    /// Name of the object that stands for a directory.
    index: String,
    /// Key of the object that is shown for an error.
    pub(super) error: Option<String>,
    rules: Vec<RoutingRule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Protocol {
    Http,
    Https,
}

impl Protocol {
    fn parse(text: &str) -> Result<Self, S3Error> {
        match text {
            "http" => Ok(Self::Http),
            "https" => Ok(Self::Https),
            _ => {
                let message = "Invalid protocol, protocol can be http or https. If not defined the protocol will be selected automatically.";
                Err(S3Error::request(message))
            }
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Https => "https",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct RoutingRule {
    /// Only for keys that begin so.
    prefix: Option<String>,
    /// Only when reading the object fails so.
    error: Option<u16>,
    redirect: Redirect,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Redirect {
    host: Option<String>,
    protocol: Option<Protocol>,
    code: StatusCode,
    key: ReplacedKey,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum ReplacedKey {
    No,
    Whole(String),
    Prefix(String),
}

/// Where a client is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) host: Option<String>,
    pub(super) protocol: Option<Protocol>,
    pub(super) code: StatusCode,
    pub(super) key: String,
}

fn malformed() -> S3Error {
    S3Code::MalformedXML.into()
}

/// A status in a document.
fn number(text: &str) -> Result<u16, S3Error> {
    text.parse().map_err(|_| malformed())
}

impl Website {
    /// Reads and checks a document; gives it as it is kept, too.
    ///
    /// # Errors
    /// `MalformedXML`, `InvalidArgument`, `InvalidRequest`.
    pub(crate) fn parse(document: &[u8]) -> Result<(Self, String), S3Error> {
        let configuration: WebsiteConfiguration = xml::parse_website(document)?;
        let website = Self::of(&configuration)?;
        Ok((website, xml::canonical("WebsiteConfiguration", &configuration)?))
    }

    fn of(configuration: &WebsiteConfiguration) -> Result<Self, S3Error> {
        let rules = configuration.routing_rules.as_deref().unwrap_or_default();
        if let Some(all) = &configuration.redirect_all_requests_to {
            let alone =
                configuration.index_document.is_none() && configuration.error_document.is_none() && rules.is_empty();
            if !alone {
                let message = "RedirectAllRequestsTo cannot be provided in conjunction with other Routing Rules.";
                return Err(S3Error::request(message));
            }
            if all.host_name.is_empty() {
                return Err(malformed());
            }
            let protocol = all.protocol.as_ref().map(|protocol| Protocol::parse(protocol.as_str())).transpose()?;
            return Ok(Self::Elsewhere { host: all.host_name.clone(), protocol });
        }
        let Some(index) = &configuration.index_document else {
            let message = "A value for IndexDocument Suffix must be provided if RedirectAllRequestsTo is empty";
            return Err(S3Error::argument("IndexDocument", "null", message));
        };
        if index.suffix.is_empty() || index.suffix.contains('/') {
            return Err(S3Error::argument(
                "IndexDocument",
                &index.suffix,
                "The IndexDocument Suffix is not well formed",
            ));
        }
        let error = configuration.error_document.as_ref().map(|error| error.key.clone());
        if error.as_ref().is_some_and(String::is_empty) {
            return Err(S3Error::argument("ErrorDocument", "", "The ErrorDocument Key is not well formed"));
        }
        if rules.len() > RULES_MAX {
            let message = format!(
                "{} routing rules provided, the number of routing rules in a website configuration is limited to {RULES_MAX}.",
                rules.len()
            );
            return Err(S3Error::request(message));
        }
        let rules = rules.iter().map(RoutingRule::of).collect::<Result<_, _>>()?;
        Ok(Self::Here(Pages { index: index.suffix.clone(), error, rules }))
    }
}

impl RoutingRule {
    fn of(rule: &dto::RoutingRule) -> Result<Self, S3Error> {
        let (prefix, error) = match &rule.condition {
            None => (None, None),
            Some(condition) => {
                let error = condition.http_error_code_returned_equals.as_deref().map(|code| match number(code)? {
                    code @ (400..=417 | 500..=505) => Ok(code),
                    _ => {
                        let message =
                            format!("The provided HTTP error code ({code}) is not valid. Valid codes are 4XX or 5XX.");
                        Err(S3Error::request(message))
                    }
                });
                let prefix = condition.key_prefix_equals.clone();
                if prefix.is_none() && error.is_none() {
                    return Err(S3Error::request(
                        "Condition cannot be empty. To redirect all requests without a condition, the condition element shouldn't be present.",
                    ));
                }
                (prefix, error.transpose()?)
            }
        };
        let redirect = &rule.redirect;
        let key = match (&redirect.replace_key_with, &redirect.replace_key_prefix_with) {
            (Some(_), Some(_)) => {
                return Err(S3Error::request("You can only define ReplaceKeyPrefix or ReplaceKey but not both."));
            }
            (Some(key), None) => ReplacedKey::Whole(key.clone()),
            (None, Some(prefix)) => ReplacedKey::Prefix(prefix.clone()),
            (None, None) => ReplacedKey::No,
        };
        let code = match redirect.http_redirect_code.as_deref() {
            None => StatusCode::MOVED_PERMANENTLY,
            Some(text) => match number(text)? {
                code @ (301..=305 | 307 | 308) => StatusCode::from_u16(code).map_err(|_| malformed())?,
                _ => {
                    let message = format!(
                        "The provided HTTP redirect code ({text}) is not valid. Valid codes are 3XX except 300."
                    );
                    return Err(S3Error::request(message));
                }
            },
        };
        let is_empty = redirect.host_name.is_none()
            && redirect.protocol.is_none()
            && redirect.http_redirect_code.is_none()
            && key == ReplacedKey::No;
        if is_empty {
            return Err(malformed());
        }
        let protocol = redirect.protocol.as_ref().map(|protocol| Protocol::parse(protocol.as_str())).transpose()?;
        Ok(Self { prefix, error, redirect: Redirect { host: redirect.host_name.clone(), protocol, code, key } })
    }
}

impl Pages {
    /// The key of what a path stands for; `path` has no slash at its beginning.
    pub(super) fn key(&self, path: &str) -> String {
        if path.is_empty() || path.ends_with('/') { format!("{path}{}", self.index) } else { path.to_owned() }
    }

    /// The key that a path would have as a directory, if it can be one.
    pub(super) fn as_directory(&self, path: &str) -> Option<String> {
        (!path.is_empty() && !path.ends_with('/')).then(|| format!("{path}/{}", self.index))
    }

    /// Where the first rule sends a client that asks for `path`: before the object is read, or after that failed so.
    pub(super) fn redirect(&self, path: &str, failed: Option<u16>) -> Option<Target> {
        let rule = self.rules.iter().find(|rule| {
            rule.error == failed && rule.prefix.as_deref().is_none_or(|prefix| path.starts_with(prefix))
        })?;
        let key = match &rule.redirect.key {
            ReplacedKey::No => path.to_owned(),
            ReplacedKey::Whole(key) => key.clone(),
            ReplacedKey::Prefix(new) => {
                let rest = path.strip_prefix(rule.prefix.as_deref().unwrap_or_default()).unwrap_or_default();
                format!("{new}{rest}")
            }
        };
        let Redirect { host, protocol, code, .. } = &rule.redirect;
        Some(Target { host: host.clone(), protocol: *protocol, code: *code, key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(content: &str) -> Result<Website, S3Error> {
        Website::parse(format!("<WebsiteConfiguration>{content}</WebsiteConfiguration>").as_bytes())
            .map(|(website, _)| website)
    }

    const INDEX: &str = "<IndexDocument><Suffix>index.html</Suffix></IndexDocument>";

    fn with_rules(rules: &[(&str, &str)]) -> Result<Website, S3Error> {
        let rule = |(condition, redirect): &(&str, &str)| {
            let condition =
                if condition.is_empty() { String::new() } else { format!("<Condition>{condition}</Condition>") };
            format!("<RoutingRule>{condition}<Redirect>{redirect}</Redirect></RoutingRule>")
        };
        let rules: String = rules.iter().map(rule).collect();
        parse(&format!("{INDEX}<RoutingRules>{rules}</RoutingRules>"))
    }

    #[test]
    fn documents_are_refused_as_on_aws() {
        use S3Code::{InvalidArgument, InvalidRequest, MalformedXML};
        let all = "<RedirectAllRequestsTo><HostName>h</HostName></RedirectAllRequestsTo>";
        for (content, code) in [
            (String::new(), InvalidArgument),
            ("<IndexDocument><Suffix></Suffix></IndexDocument>".into(), InvalidArgument),
            ("<IndexDocument><Suffix>a/b</Suffix></IndexDocument>".into(), InvalidArgument),
            (format!("{INDEX}<ErrorDocument><Key></Key></ErrorDocument>"), InvalidArgument),
            (format!("{INDEX}{all}"), InvalidRequest),
            (
                "<RedirectAllRequestsTo><HostName>h</HostName><Protocol>ftp</Protocol></RedirectAllRequestsTo>".into(),
                InvalidRequest,
            ),
            ("<Other/>".into(), InvalidArgument),
        ] {
            assert_eq!(parse(&content).unwrap_err().code, code, "{content}");
        }
        for (condition, redirect, code) in [
            ("", "", MalformedXML),
            (
                "<HttpErrorCodeReturnedEquals>200</HttpErrorCodeReturnedEquals>",
                "<HostName>h</HostName>",
                InvalidRequest,
            ),
            (
                "<HttpErrorCodeReturnedEquals>418</HttpErrorCodeReturnedEquals>",
                "<HostName>h</HostName>",
                InvalidRequest,
            ),
            ("<HttpErrorCodeReturnedEquals>4xx</HttpErrorCodeReturnedEquals>", "<HostName>h</HostName>", MalformedXML),
            ("", "<HttpRedirectCode>300</HttpRedirectCode>", InvalidRequest),
            ("", "<HttpRedirectCode>306</HttpRedirectCode>", InvalidRequest),
            ("", "<HttpRedirectCode>3xx</HttpRedirectCode>", MalformedXML),
            ("", "<ReplaceKeyWith>a</ReplaceKeyWith><ReplaceKeyPrefixWith>b</ReplaceKeyPrefixWith>", InvalidRequest),
            ("", "<Protocol>gopher</Protocol>", InvalidRequest),
        ] {
            assert_eq!(with_rules(&[(condition, redirect)]).unwrap_err().code, code, "{condition} {redirect}");
        }
        assert_eq!(with_rules(&[("", "<HostName>h</HostName>"); 51]).unwrap_err().code, InvalidRequest);
        assert!(parse(all).is_ok());
    }

    #[test]
    fn paths_become_keys() {
        let Ok(Website::Here(pages)) = parse(INDEX) else { panic!("it is here") };
        for (path, key) in [("", "index.html"), ("a/", "a/index.html"), ("a", "a"), ("a/b.html", "a/b.html")] {
            assert_eq!(pages.key(path), key);
        }
        assert_eq!(pages.as_directory("a").as_deref(), Some("a/index.html"));
        assert_eq!(pages.as_directory("a/"), None);
    }

    #[test]
    fn rules_send_elsewhere() {
        let Ok(Website::Here(pages)) = with_rules(&[
            ("<KeyPrefixEquals>docs/</KeyPrefixEquals>", "<ReplaceKeyPrefixWith>documents/</ReplaceKeyPrefixWith>"),
            (
                "<KeyPrefixEquals>images/</KeyPrefixEquals>",
                "<ReplaceKeyWith>gone.html</ReplaceKeyWith><HttpRedirectCode>302</HttpRedirectCode>",
            ),
            (
                "<HttpErrorCodeReturnedEquals>404</HttpErrorCodeReturnedEquals><KeyPrefixEquals>a/</KeyPrefixEquals>",
                "<HostName>other.test</HostName><Protocol>https</Protocol><ReplaceKeyPrefixWith>missing/</ReplaceKeyPrefixWith>",
            ),
        ]) else {
            panic!("it is here")
        };
        let target = |code: u16, key: &str| Target {
            host: None,
            protocol: None,
            code: StatusCode::from_u16(code).unwrap(),
            key: key.into(),
        };
        assert_eq!(pages.redirect("docs/a.html", None), Some(target(301, "documents/a.html")));
        assert_eq!(pages.redirect("images/a", None), Some(target(302, "gone.html")));
        assert_eq!(pages.redirect("a/x", None), None);
        let elsewhere =
            Target { host: Some("other.test".into()), protocol: Some(Protocol::Https), ..target(301, "missing/x") };
        assert_eq!(pages.redirect("a/x", Some(404)), Some(elsewhere));
        assert_eq!(pages.redirect("a/x", Some(403)), None);
        assert_eq!(pages.redirect("docs/x", Some(404)), None);
    }
}
