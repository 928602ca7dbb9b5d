//! Pages of a website: what a browser asks for, what it is shown, and where it is sent.

use std::sync::Arc;

use gabion_types::{BucketName, ObjectKey};
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, Version};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use s3s::Body;

use super::rules::{Pages, Target, Website};
use crate::credentials::Identity;
use crate::error::{S3Code, S3Error};
use crate::http::Peer;
use crate::s3::answer;
use crate::s3::call::Call;
use crate::s3::content::Content;
use crate::s3::cors;
use crate::s3::dispatch::Dispatch;
use crate::s3::query::Query;
use crate::s3::route::{Operation, Routed};

/// What stands for itself in the path of a place.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');
/// Headers of a browser that an object is read with.
const READ_WITH: [&str; 6] =
    ["range", "if-range", "if-match", "if-none-match", "if-modified-since", "if-unmodified-since"];
const ERROR_CODE: HeaderName = HeaderName::from_static("x-amz-error-code");
const ERROR_MESSAGE: HeaderName = HeaderName::from_static("x-amz-error-message");
const REDIRECT_LOCATION: HeaderName = HeaderName::from_static("x-amz-website-redirect-location");

/// What a browser asks for.
pub(crate) struct Visit {
    pub(crate) bucket: String,
    /// The path, decoded.
    pub(crate) path: String,
    /// The query, as it was sent: it goes along where a browser is sent elsewhere.
    pub(crate) query: Option<String>,
    pub(crate) method: Method,
    pub(crate) headers: HeaderMap,
    /// Who reads: nobody.
    pub(crate) caller: Arc<Identity>,
    pub(crate) peer: Peer,
    pub(crate) host: HeaderValue,
    pub(crate) version: Version,
    pub(crate) request_id: String,
}

impl Visit {
    fn scheme(&self) -> &'static str {
        if self.peer.tls { "https" } else { "http" }
    }
}

/// Answers a browser.
pub(crate) async fn serve(dispatch: &Dispatch, visit: Visit) -> Response<Body> {
    match answered(dispatch, &visit).await {
        Ok(response) => response,
        Err(error) => page_of_error(&error, &visit),
    }
}

async fn answered(dispatch: &Dispatch, visit: &Visit) -> Result<Response<Body>, S3Error> {
    let bucket = BucketName::new(&visit.bucket)
        .map_err(|_| S3Error::new(S3Code::NoSuchBucket).detail("BucketName", visit.bucket.clone()))?;
    if visit.method == Method::OPTIONS {
        return cors::preflight(&dispatch.ops, &bucket, &visit.headers, true);
    }
    if ![Method::GET, Method::HEAD].contains(&visit.method) {
        let error = S3Error::new(S3Code::MethodNotAllowed).detail("Method", visit.method.as_str());
        return Err(error.detail("ResourceType", "OBJECT"));
    }
    let settings = dispatch.ops.settings(&bucket)?;
    let website = match &settings.website {
        Some(website) => website.as_ref().map_err(Clone::clone)?,
        None => {
            dispatch.ops.store.head_bucket(&bucket).await?;
            return Err(S3Error::new(S3Code::NoSuchWebsiteConfiguration).detail("BucketName", bucket.as_str()));
        }
    };
    let path = visit.path.strip_prefix('/').unwrap_or(&visit.path);
    let pages = match website {
        Website::Here(pages) => pages,
        Website::Elsewhere { host, protocol } => {
            let target = Target {
                host: Some(host.clone()),
                protocol: *protocol,
                code: StatusCode::MOVED_PERMANENTLY,
                key: path.to_owned(),
            };
            return Ok(sent_to(&target, visit));
        }
    };
    if let Some(target) = pages.redirect(path, None) {
        return Ok(sent_to(&target, visit));
    }
    match read(dispatch, visit, &bucket, &pages.key(path), visit.method == Method::HEAD).await {
        Ok(response) => Ok(shown(response)),
        // The browser has it already, or asked for what it can not have.
        Err(error) if matches!(error.code.status().as_u16(), 304 | 412 | 416) => Err(error),
        Err(error) => failed(dispatch, visit, &bucket, pages, path, error).await,
    }
}

/// A page, or the place that its object names instead.
fn shown(mut response: Response<Body>) -> Response<Body> {
    if let Some(place) = response.headers().get(&REDIRECT_LOCATION).cloned() {
        response = answer::empty(StatusCode::MOVED_PERMANENTLY);
        response.headers_mut().insert(LOCATION, place);
    }
    response
}

/// When the object could not be read: a directory, a rule for errors, the document for errors, or the error itself.
async fn failed(
    dispatch: &Dispatch,
    visit: &Visit,
    bucket: &BucketName,
    pages: &Pages,
    path: &str,
    error: S3Error,
) -> Result<Response<Body>, S3Error> {
    if let Some(index) = pages.as_directory(path)
        && read(dispatch, visit, bucket, &index, true).await.is_ok()
    {
        let mut response = answer::empty(StatusCode::FOUND);
        answer::set(&mut response, LOCATION, format!("/{}/", utf8_percent_encode(path, PATH)));
        return Ok(response);
    }
    let status = error.code.status();
    if let Some(target) = pages.redirect(path, Some(status.as_u16())) {
        return Ok(sent_to(&target, visit));
    }
    if let Some(document) = &pages.error
        && let Ok(mut response) = read(dispatch, visit, bucket, document, visit.method == Method::HEAD).await
        && response.status() == StatusCode::OK
    {
        *response.status_mut() = status;
        name_error(&mut response, &error);
        return Ok(response);
    }
    Err(error)
}

/// Reads an object as nobody, or only looks whether that can be done.
async fn read(
    dispatch: &Dispatch,
    visit: &Visit,
    bucket: &BucketName,
    key: &str,
    head_only: bool,
) -> Result<Response<Body>, S3Error> {
    let key = ObjectKey::new(key).map_err(|_| S3Error::new(S3Code::NoSuchKey))?;
    let operation = if head_only { Operation::HeadObject } else { Operation::GetObject };
    let routed = Routed {
        operation: Ok(operation),
        bucket: Some(bucket.clone()),
        key: Some(key.clone()),
        query: Query::default(),
        hoisted: Vec::new(),
        virtual_host: true,
        scheme: visit.scheme(),
        private: visit.peer.tls,
        source: visit.peer.address.ip(),
        host: visit.host.clone(),
        version: visit.version,
    };
    let mut headers = HeaderMap::new();
    for name in READ_WITH {
        for value in visit.headers.get_all(name) {
            headers.append(HeaderName::from_static(name), value.clone());
        }
    }
    let mut call = Call::new(routed, Arc::clone(&visit.caller), headers, Content::default(), None);
    let outcome = dispatch.read_page(&mut call, operation).await;
    outcome.map_err(|error| if error.code == S3Code::NoSuchKey { error.detail("Key", key.as_str()) } else { error })
}

fn sent_to(target: &Target, visit: &Visit) -> Response<Body> {
    let scheme = target.protocol.map_or(visit.scheme(), |protocol| protocol.as_str());
    let host = target.host.as_deref().or_else(|| visit.host.to_str().ok()).unwrap_or_default();
    let mut response = answer::empty(target.code);
    let query = visit.query.as_deref().map(|query| format!("?{query}")).unwrap_or_default();
    let key = utf8_percent_encode(&target.key, PATH);
    answer::set(&mut response, LOCATION, format!("{scheme}://{host}/{key}{query}"));
    response
}

fn name_error(response: &mut Response<Body>, error: &S3Error) {
    answer::set(response, ERROR_CODE, error.code.as_str());
    answer::set(response, ERROR_MESSAGE, error.message.as_ref());
}

/// An error as people read it.
fn page_of_error(error: &S3Error, visit: &Visit) -> Response<Body> {
    let status = error.code.status();
    let mut response = answer::empty(status);
    for (name, value) in &error.headers {
        response.headers_mut().insert(name.clone(), value.clone());
    }
    name_error(&mut response, error);
    if visit.method == Method::HEAD || status == StatusCode::NOT_MODIFIED {
        return response;
    }
    let title = format!("{} {}", status.as_u16(), status.canonical_reason().unwrap_or_default());
    let mut items = vec![("Code", error.code.as_str().to_owned()), ("Message", error.message.clone().into_owned())];
    items.extend(error.details.iter().cloned());
    items.push(("RequestId", visit.request_id.clone()));
    let items: String = items.iter().map(|(name, text)| format!("<li>{name}: {}</li>\n", escaped(text))).collect();
    let page = format!(
        "<html>\n<head><title>{title}</title></head>\n<body>\n<h1>{title}</h1>\n<ul>\n{items}</ul>\n<hr/>\n</body>\n</html>\n"
    );
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/html; charset=utf-8"));
    *response.body_mut() = Body::from(page);
    response
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}
