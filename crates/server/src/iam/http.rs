//! IAM and STS on HTTP: forms that are posted to the service itself, answers in XML.
//!
//! The signature is of the whole body, so that a body is read before anything is known of its sender: it is bounded.

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt, Limited};

use super::context::{Origin, context};
use super::{Ask, Form, Iam, IamError, action_name};
use crate::audit::Known;
use crate::auth::sigv4::{Verifier, service_of};
use crate::credentials::{Identity, Principal};
use crate::documents::{DocumentMemory, Ended, Sender};
use crate::http::{OperationName, Peer};
use crate::s3::{Query, Xml};

/// Longest body in bytes: the longest document of a policy, each character of which may be encoded as three.
const BODY_BYTES_MAX: usize = 512 * 1024;
const IAM_NAMESPACE: &str = "https://iam.amazonaws.com/doc/2010-05-08/";
const STS_NAMESPACE: &str = "https://sts.amazonaws.com/doc/2011-06-15/";
/// What those who want it need not sign for: their token says who they are.
const UNSIGNED: &str = "sts:AssumeRoleWithWebIdentity";

/// Answers requests to IAM and STS.
pub(crate) struct Front {
    pub(crate) iam: Arc<Iam>,
    pub(crate) documents: DocumentMemory,
    pub(crate) verifier: Verifier,
    pub(crate) region: String,
    pub(crate) nobody: Arc<Identity>,
}

/// Whether a request is one to IAM or STS: a form that is posted to the service itself. So is a DeleteObjects of a bucket that its host names, if its client
/// says of every document that it is a form.
pub(crate) fn is_query(parts: &Parts) -> bool {
    const FORM: &[u8] = b"application/x-www-form-urlencoded";
    let is_form = |headers: &HeaderMap| {
        let value = headers.get(CONTENT_TYPE).map_or(&b""[..], |value| value.as_bytes().trim_ascii_start());
        value.get(..FORM.len()).is_some_and(|start| start.eq_ignore_ascii_case(FORM))
    };
    let deletes =
        parts.uri.query().is_some_and(|query| query.split('&').any(|pair| matches!(pair, "delete" | "delete=")));
    parts.method == Method::POST && parts.uri.path() == "/" && !deletes && is_form(&parts.headers)
}

impl Front {
    /// Answers a request; failures are answers too. What is learnt of it is for metrics and logs.
    pub(crate) async fn answer<B>(
        &self,
        parts: Parts,
        body: B,
        peer: Peer,
        request_id: &str,
        known: &Known,
    ) -> Response<s3s::Body>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let outcome = self.run(parts, body, peer, known).await;
        let operation = known.operation.get().map_or(OperationName::UNKNOWN.0, |operation| operation.0);
        let (status, document) = match outcome {
            Ok(reply) => (StatusCode::OK, document(operation, &reply, request_id)),
            Err(error) => (error.status, refusal(operation, &error, request_id)),
        };
        let mut response = Response::new(s3s::Body::from(Bytes::from(document)));
        *response.status_mut() = status;
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/xml"));
        response
    }

    /// All of a body, while there is memory for what is there of it.
    async fn whole<B>(&self, body: B) -> Result<Bytes, IamError>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let incomplete =
            || IamError::validation(format!("The request is not complete, or has more than {BODY_BYTES_MAX} bytes."));
        let mut body = pin!(Limited::new(body, BODY_BYTES_MAX));
        let ended = |ended| match ended {
            Ended::TooLate => incomplete(),
            Ended::NoRoom => IamError::busy(),
        };
        let mut coming = self.documents.begin(Sender::OfForm);
        while let Some(frame) = coming.in_time(body.frame()).await.map_err(ended)? {
            let Ok(bytes) = frame.map_err(|_| incomplete())?.into_data() else { continue };
            coming.take(&bytes).map_err(ended)?;
        }
        Ok(coming.whole().map_err(ended)?.freeze())
    }

    async fn run<B>(&self, parts: Parts, body: B, peer: Peer, known: &Known) -> Result<String, IamError>
    where
        B: Body<Data = Bytes> + Send,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let malformed = |_| IamError::sender("MalformedQueryString", "The query string contains a syntax error.");
        let query = Query::parse(parts.uri.query().unwrap_or_default()).map_err(malformed)?;
        let body = self.whole(body).await?;
        let form = Form::parse(&body, &query)?;
        let action = form.required("Action").map_err(|_| {
            IamError::sender("MissingAction", "The request is missing an action or a required parameter.")
        })?;
        // Of which service it is says its signature; without one it can only be this.
        let service = service_of(&parts.headers).unwrap_or("sts");
        let operation = action_name(service, action).map_or(OperationName::UNKNOWN, OperationName);
        let OperationName(operation) = *known.operation.get_or_init(|| operation);
        let caller = if operation == UNSIGNED {
            Arc::clone(&self.nobody)
        } else {
            let verified = self.verifier.form(&parts, "/", &query, &body);
            let credential =
                verified.map_err(|(status, code, message)| IamError { code, status, message: message.into() })?;
            Arc::clone(known.caller.get_or_init(|| credential.identity))
        };
        check_session(&caller, operation)?;
        let user_agent = parts.headers.get(USER_AGENT).and_then(|agent| agent.to_str().ok()).map(str::to_owned);
        let origin = Origin {
            address: peer.address.ip(),
            tls: peer.tls,
            user_agent,
            now_ms: self.iam.now_ms(),
            region: self.region.clone(),
        };
        let mut context = context(&caller, &origin);
        self.iam.describe(&mut context, &caller, operation, &form);
        self.iam.run(operation, &Ask { context, caller, form }).await
    }
}

/// Sessions of users and roots, which nobody vouched for anew, change no users and policies, as on AWS.
fn check_session(caller: &Identity, operation: &str) -> Result<(), IamError> {
    let own = caller.issued_ms.is_some() && matches!(caller.principal, Principal::User { .. } | Principal::Root);
    if own && operation.starts_with("iam:") {
        let message =
            "The security token included in the request is invalid: session credentials without MFA can not call IAM.";
        return Err(IamError::forbidden("InvalidClientTokenId", message));
    }
    Ok(())
}

/// The namespace of the service, and the action without it.
fn of(operation: &str) -> (&'static str, &str) {
    match operation.split_once(':') {
        Some(("sts", action)) => (STS_NAMESPACE, action),
        Some((_, action)) => (IAM_NAMESPACE, action),
        None => (IAM_NAMESPACE, operation),
    }
}

fn document(operation: &str, reply: &str, request_id: &str) -> String {
    let (namespace, action) = of(operation);
    Xml::in_namespace(&format!("{action}Response"), namespace, |xml| {
        // Some SDKs want the element of the results also where there is nothing in it; none minds it.
        xml.element(&format!("{action}Result"), |xml| xml.raw(&[reply]));
        xml.element("ResponseMetadata", |xml| xml.text("RequestId", request_id));
    })
}

fn refusal(operation: &str, error: &IamError, request_id: &str) -> String {
    Xml::in_namespace("ErrorResponse", of(operation).0, |xml| {
        xml.element("Error", |xml| {
            xml.text("Type", if error.is_senders() { "Sender" } else { "Receiver" });
            xml.text("Code", error.code);
            xml.text("Message", &error.message);
        });
        xml.text("RequestId", request_id);
    })
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn forms_that_are_posted_to_the_service_itself_are_asked_of_it() {
        let form = "application/x-www-form-urlencoded; charset=utf-8";
        for (method, target, content_type, expected) in [
            ("POST", "/", form, true),
            ("POST", "/?Action=ListUsers", form, true),
            ("POST", "/", "Application/X-WWW-Form-Urlencoded", true),
            ("POST", "/", "application/xml", false),
            ("GET", "/", form, false),
            ("POST", "/bucket", form, false),
            // Of a bucket that the host names; curl says so of every document.
            ("POST", "/?delete", form, false),
            ("POST", "/?x-id=DeleteObjects&delete=", form, false),
        ] {
            let request = Request::builder().method(method).uri(target).header(CONTENT_TYPE, content_type);
            let (parts, ()) = request.body(()).unwrap().into_parts();
            assert_eq!(is_query(&parts), expected, "{method} {target} {content_type}");
        }
    }
}
