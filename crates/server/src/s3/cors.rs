//! Cross-origin requests from browsers: the rules of a bucket, what its answers say to a browser, and the question beforehand (`OPTIONS`).
//!
//! Rules give no access: they only tell browsers which pages may see an answer. So the question is answered without a signature, and every
//! answer to a request with an `Origin` says what the rules say, refusals too. Who sends no `Origin` pays nothing.
//! Source: AWS, "Using cross-origin resource sharing (CORS)"; Fetch, "CORS protocol".

use gabion_types::BucketName;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use s3s::Body;
use s3s::dto::CORSConfiguration;

use super::answer;
use super::body;
use super::call::Call;
use super::configs;
use super::xml::{self, parse_cors};
use crate::error::{S3Code, S3Error};
use crate::ops::Ops;

/// The name of the document.
pub(super) const NAME: &str = "cors";
/// Largest document, in bytes.
const DOCUMENT_BYTES_MAX: usize = 64 * 1024;
/// Most headers that a browser may ask for at once: each is held against each pattern. No request of a client has as many.
const ASKED_MAX: usize = 256;
/// Most rules of a bucket.
const RULES_MAX: usize = 100;
/// Most characters of what can be no name of a header, in what is said about it.
const NAME_CHARS_SHOWN_MAX: usize = 128;
/// Longest id of a rule, in characters.
const ID_CHARS_MAX: usize = 255;
const METHODS: [&str; 5] = ["GET", "PUT", "POST", "DELETE", "HEAD"];
const VARIES: HeaderValue =
    HeaderValue::from_static("Origin, Access-Control-Request-Headers, Access-Control-Request-Method");

/// The rules of a bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CorsRules(Vec<Rule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    origins: Vec<String>,
    methods: Vec<String>,
    /// In lower case.
    headers: Vec<String>,
    exposed: Vec<String>,
    max_age_s: Option<i32>,
}

/// What a browser tells about a request, or about one that it would like to send.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    origin: HeaderValue,
    /// Of the request to come, or of this one.
    method: String,
    /// In lower case; or the first that can be no name.
    headers: Result<Vec<String>, String>,
}

impl Asked {
    /// Nothing when it does not come from a page of another origin.
    pub(super) fn of(method: &http::Method, headers: &HeaderMap) -> Option<Self> {
        let origin = headers.get(ORIGIN).filter(|origin| !origin.is_empty())?.clone();
        let asked = headers.get(ACCESS_CONTROL_REQUEST_METHOD).and_then(|method| method.to_str().ok());
        let method = asked.unwrap_or(method.as_str()).to_owned();
        let lines = headers.get_all(ACCESS_CONTROL_REQUEST_HEADERS).iter();
        let lines: Vec<_> = lines.map(|line| String::from_utf8_lossy(line.as_bytes())).collect();
        let names = lines.iter().flat_map(|line| line.split(',')).filter(|name| !name.trim().is_empty());
        let lower = |name: &str| match HeaderName::from_bytes(name.trim().as_bytes()) {
            Ok(name) => Ok(name.as_str().to_owned()),
            Err(_) => Err(name.to_owned()),
        };
        let headers = names.map(lower).collect();
        Some(Self { origin, method, headers })
    }
}

impl CorsRules {
    /// Reads and checks a document; gives it as it is kept, too.
    ///
    /// # Errors
    /// `MalformedXML`, `InvalidRequest`.
    pub(crate) fn parse(document: &[u8]) -> Result<(Self, String), S3Error> {
        let configuration: CORSConfiguration = parse_cors(document)?;
        let rules = &configuration.cors_rules;
        if rules.is_empty() || rules.len() > RULES_MAX {
            let message = "The number of CORS rules should not exceed allowed limit of 100 rules.";
            return Err(if rules.is_empty() { S3Code::MalformedXML.into() } else { S3Error::request(message) });
        }
        let rules = rules.iter().map(Rule::of).collect::<Result<_, _>>()?;
        Ok((Self(rules), xml::canonical("CORSConfiguration", &configuration)?))
    }

    /// Adds to an answer what the first rule says that allows the request.
    fn show(&self, asked: &Asked, headers: &mut HeaderMap) -> bool {
        let Some((rule, is_any)) = self.0.iter().find_map(|rule| Some((rule, rule.allows(asked)?))) else {
            return false;
        };
        let origin = if is_any { HeaderValue::from_static("*") } else { asked.origin.clone() };
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        if !is_any {
            headers.insert(ACCESS_CONTROL_ALLOW_CREDENTIALS, HeaderValue::from_static("true"));
        }
        let mut show = |name: HeaderName, values: &[String]| {
            if let (false, Ok(value)) = (values.is_empty(), HeaderValue::from_str(&values.join(", "))) {
                headers.insert(name, value);
            }
        };
        show(ACCESS_CONTROL_ALLOW_METHODS, &rule.methods);
        show(ACCESS_CONTROL_ALLOW_HEADERS, asked.headers.as_deref().unwrap_or_default());
        show(ACCESS_CONTROL_EXPOSE_HEADERS, &rule.exposed);
        if let Some(seconds) = rule.max_age_s {
            headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from(seconds));
        }
        headers.append(VARY, VARIES);
        true
    }
}

impl Rule {
    fn of(rule: &s3s::dto::CORSRule) -> Result<Self, S3Error> {
        if rule.allowed_origins.is_empty() || rule.allowed_methods.is_empty() {
            return Err(S3Code::MalformedXML.into());
        }
        if rule.id.as_ref().is_some_and(|id| id.chars().count() > ID_CHARS_MAX) {
            return Err(S3Error::request("The ID of a CORS rule must not have more than 255 characters."));
        }
        for method in &rule.allowed_methods {
            if !METHODS.contains(&method.as_str()) {
                let message = "Found unsupported HTTP method in CORS config. Unsupported method is";
                return Err(S3Error::request(format!("{message} {method}")));
            }
        }
        for origin in &rule.allowed_origins {
            if origin.matches('*').count() > 1 {
                let message = format!("AllowedOrigin \"{origin}\" can not have more than one wildcard.");
                return Err(S3Error::request(message));
            }
        }
        let headers = rule.allowed_headers.as_deref().unwrap_or_default();
        for header in headers {
            if header.matches('*').count() > 1 {
                let message = format!("AllowedHeader \"{header}\" can not have more than one wildcard.");
                return Err(S3Error::request(message));
            }
            let name = header.replace('*', "");
            if !name.is_empty() && HeaderName::from_bytes(name.as_bytes()).is_err() {
                return Err(S3Error::request(format!("AllowedHeader \"{header}\" contains invalid character.")));
            }
        }
        let exposed = rule.expose_headers.as_deref().unwrap_or_default();
        for header in exposed {
            if header.contains('*') {
                let message = format!(
                    "ExposeHeader \"{header}\" contains wildcard. We currently do not support wildcard for ExposeHeader."
                );
                return Err(S3Error::request(message));
            }
            if HeaderName::from_bytes(header.as_bytes()).is_err() {
                return Err(S3Error::request(format!("ExposeHeader \"{header}\" contains invalid character.")));
            }
        }
        Ok(Self {
            origins: rule.allowed_origins.clone(),
            methods: rule.allowed_methods.clone(),
            headers: headers.iter().map(|header| header.to_ascii_lowercase()).collect(),
            exposed: exposed.to_vec(),
            max_age_s: rule.max_age_seconds,
        })
    }

    /// Whether it allows the request, and if so, whether from any origin.
    fn allows(&self, asked: &Asked) -> Option<bool> {
        let origin = asked.origin.to_str().ok()?;
        let allowed = self.origins.iter().find(|pattern| matches(pattern, origin))?;
        let has_header = |header: &String| self.headers.iter().any(|pattern| matches(pattern, header));
        let are_allowed = |asked: &Vec<String>| asked.len() <= ASKED_MAX && asked.iter().all(has_header);
        let allows = self.methods.contains(&asked.method) && asked.headers.as_ref().is_ok_and(are_allowed);
        allows.then_some(allowed == "*")
    }
}

/// Whether a text is what a pattern with at most one `*` stands for.
fn matches(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, end)) => text.len() >= start.len() + end.len() && text.starts_with(start) && text.ends_with(end),
    }
}

/// Adds what the rules of a bucket say to the answer to a request from a page.
pub(super) fn show(ops: &Ops, bucket: &BucketName, asked: &Asked, headers: &mut HeaderMap) {
    // Rules that can not be read allow nothing: the answer itself is not theirs to spoil.
    if let Ok(settings) = ops.settings(bucket)
        && let Some(Ok(rules)) = &settings.cors
    {
        rules.show(asked, headers);
    }
}

/// The question of a browser whether it may send a request; `is_of_object` says what it would be about.
///
/// # Errors
/// `BadRequest`, `AccessForbidden`.
pub(super) fn preflight(
    ops: &Ops,
    bucket: &BucketName,
    headers: &HeaderMap,
    is_of_object: bool,
) -> Result<Response<Body>, S3Error> {
    let Some(asked) = Asked::of(&http::Method::OPTIONS, headers) else {
        let message = "Insufficient information. Origin request header needed.";
        return Err(S3Error::with(S3Code::BadRequest, message));
    };
    if !METHODS.contains(&asked.method.as_str()) {
        let method = headers.get(ACCESS_CONTROL_REQUEST_METHOD).map_or("null", |_| asked.method.as_str());
        return Err(S3Error::with(S3Code::BadRequest, format!("Invalid Access-Control-Request-Method: {method}")));
    }
    if let Err(name) = &asked.headers {
        let name: String = name.chars().take(NAME_CHARS_SHOWN_MAX).collect();
        let message = format!("Access-Control-Request-Headers \"{name}\" contains invalid character.");
        return Err(S3Error::with(S3Code::BadRequest, message));
    }
    let forbidden = |message: &'static str| {
        let kind = if is_of_object { "OBJECT" } else { "BUCKET" };
        let error = S3Error::with(S3Code::AccessForbidden, message);
        error.detail("Method", asked.method.clone()).detail("ResourceType", kind)
    };
    let settings = ops.settings(bucket)?;
    if settings.access.owner.is_none() {
        return Err(forbidden("CORSResponse: Bucket not found"));
    }
    let Some(rules) = &settings.cors else {
        return Err(forbidden("CORSResponse: CORS is not enabled for this bucket."));
    };
    let mut response = answer::empty(StatusCode::OK);
    if rules.as_ref().map_err(Clone::clone)?.show(&asked, response.headers_mut()) {
        return Ok(response);
    }
    Err(forbidden(
        "CORSResponse: This CORS request is not allowed. This is usually because the evalution of Origin, request method / \
         Access-Control-Request-Method or Access-Control-Request-Headers are not whitelisted by the resource's CORS spec.",
    ))
}

pub(super) async fn put(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let document = body::bounded(ops, call, DOCUMENT_BYTES_MAX).await?;
    let (_, canonical) = CorsRules::parse(&document)?;
    configs::put(ops, call, NAME, canonical).await
}

pub(super) async fn get(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    configs::get(ops, call, NAME).await?.ok_or_else(|| S3Code::NoSuchCORSConfiguration.into())
}

pub(super) async fn delete(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    configs::delete(ops, call, NAME).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(content: &str) -> String {
        format!("<CORSRule>{content}</CORSRule>")
    }

    fn parse(rules: &str) -> Result<CorsRules, S3Error> {
        CorsRules::parse(format!("<CORSConfiguration>{rules}</CORSConfiguration>").as_bytes()).map(|(rules, _)| rules)
    }

    const GET: &str = "<AllowedMethod>GET</AllowedMethod>";
    const ANY: &str = "<AllowedOrigin>*</AllowedOrigin>";

    #[test]
    fn rules_are_checked() {
        let good = rule(&[GET, ANY].concat());
        let with = |more: &str| rule(&[GET, ANY, more].concat());
        let id = |chars| with(&format!("<ID>{}</ID>", "i".repeat(chars)));
        for rules in [
            good.repeat(100),
            with("<AllowedHeader>x-*</AllowedHeader>"),
            id(255),
            with("<MaxAgeSeconds>3</MaxAgeSeconds>"),
        ] {
            assert!(parse(&rules).is_ok(), "{rules}");
        }
        for (rules, code) in [
            (String::new(), S3Code::MalformedXML),
            (rule(GET), S3Code::MalformedXML),
            (rule(ANY), S3Code::MalformedXML),
            (with("<Unknown/>"), S3Code::MalformedXML),
            (good.repeat(101), S3Code::InvalidRequest),
            (id(256), S3Code::InvalidRequest),
            (with("<AllowedMethod>PATCH</AllowedMethod>"), S3Code::InvalidRequest),
            (with("<AllowedMethod>get</AllowedMethod>"), S3Code::InvalidRequest),
            (with("<AllowedOrigin>http://*.*</AllowedOrigin>"), S3Code::InvalidRequest),
            (with("<AllowedHeader>*-*</AllowedHeader>"), S3Code::InvalidRequest),
            (with("<AllowedHeader>a b</AllowedHeader>"), S3Code::InvalidRequest),
            (with("<ExposeHeader>x-*</ExposeHeader>"), S3Code::InvalidRequest),
        ] {
            assert_eq!(parse(&rules).unwrap_err().code, code, "{rules}");
        }
    }

    #[test]
    fn the_first_rule_that_allows_a_request_is_shown() {
        let rules = parse(&[
            rule("<AllowedOrigin>http://a.test</AllowedOrigin><AllowedOrigin>https://*.b.test</AllowedOrigin>\
                <AllowedMethod>GET</AllowedMethod><AllowedMethod>PUT</AllowedMethod><AllowedHeader>X-Amz-*</AllowedHeader>\
                <ExposeHeader>ETag</ExposeHeader><ExposeHeader>x-amz-id</ExposeHeader><MaxAgeSeconds>3000</MaxAgeSeconds>"),
            rule(&[GET, ANY].concat()),
        ].concat()).unwrap();
        let shown = |origin: &str, method: &str, asked: Option<&str>| {
            let mut request = HeaderMap::new();
            request.insert(ORIGIN, HeaderValue::from_str(origin).unwrap());
            if let Some(asked) = asked {
                request.insert(ACCESS_CONTROL_REQUEST_HEADERS, HeaderValue::from_str(asked).unwrap());
            }
            let method = http::Method::from_bytes(method.as_bytes()).unwrap();
            let mut answer = HeaderMap::new();
            rules.show(&Asked::of(&method, &request)?, &mut answer).then_some(answer)
        };
        assert!(shown("http://a.test", "GET", Some(&"x-amz-a,".repeat(ASKED_MAX))).is_some());
        let first = shown("https://x.b.test", "PUT", Some("X-Amz-Date, x-amz-meta-a")).unwrap();
        let table = [
            ("access-control-allow-origin", "https://x.b.test"),
            ("access-control-allow-credentials", "true"),
            ("access-control-allow-methods", "GET, PUT"),
            ("access-control-allow-headers", "x-amz-date, x-amz-meta-a"),
            ("access-control-expose-headers", "ETag, x-amz-id"),
            ("access-control-max-age", "3000"),
        ];
        for (name, value) in table {
            assert_eq!(first[name], value, "{name}");
        }
        assert!(first.contains_key(VARY));
        let second = shown("http://c.test", "GET", None).unwrap();
        assert_eq!((&second["access-control-allow-origin"], second.len()), (&HeaderValue::from_static("*"), 3));
        for (origin, method, asked) in [
            ("http://c.test", "PUT", None),
            ("http://a.test", "DELETE", None),
            ("http://a.test", "PUT", Some("content-type")),
            ("http://a.test", "GET", Some("a b")),
            ("http://a.test", "GET", Some(&"x-amz-a,".repeat(ASKED_MAX + 1))),
            ("https://b.test", "PUT", None),
        ] {
            assert!(shown(origin, method, asked).is_none(), "{origin} {method} {asked:?}");
        }
    }

    #[test]
    fn patterns_have_one_wildcard() {
        for (pattern, text, expected) in [
            ("a", "a", true),
            ("a", "A", false),
            ("*", "", true),
            ("*suffix", "foo.suffix", true),
            ("*suffix", "foo.suffix.x", false),
            ("start*end", "startend", true),
            ("start*end", "start1end", true),
            ("start*end", "0start1end", false),
            ("ab*ba", "aba", false),
            ("prefix*", "prefix", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
