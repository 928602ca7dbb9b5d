//! Who pays for requests: nobody does here, but who asks for a bucket whose requesters pay must say that they would.
//!
//! Source: AWS, "Using Requester Pays general purpose buckets for storage transfers and usage".

use http::{HeaderName, Response};
use s3s::Body;
use s3s::dto::RequestPaymentConfiguration;

use super::answer;
use super::body;
use super::call::Call;
use super::configs;
use super::xml::{Xml, parse_payment};
use crate::error::{S3Code, S3Error};
use crate::ops::Ops;

/// Says that the one who asked was charged.
pub(super) const CHARGED: HeaderName = HeaderName::from_static("x-amz-request-charged");
/// The name of the document.
pub(super) const NAME: &str = "requestPayment";

/// Whether the requesters pay, and not the owner.
///
/// # Errors
/// `MalformedXML`.
pub(super) fn requesters_pay(document: &[u8]) -> Result<bool, S3Error> {
    let configuration: RequestPaymentConfiguration = parse_payment(document)?;
    match configuration.payer.as_str() {
        "Requester" => Ok(true),
        "BucketOwner" => Ok(false),
        _ => Err(S3Code::MalformedXML.into()),
    }
}

/// Whether the one who asks would pay for it, and may ask therefore.
///
/// # Errors
/// `AccessDenied` when he must say so and does not.
pub(super) async fn charges(ops: &Ops, call: &Call) -> Result<bool, S3Error> {
    if !call.settings(ops)?.requesters_pay {
        return Ok(false);
    }
    let owner = ops.store.head_bucket(&call.bucket()?).await?.owner;
    if owner == call.caller.account.canonical_id && !call.caller.is_anonymous() {
        return Ok(false);
    }
    match call.header("x-amz-request-payer")? {
        Some(payer) if payer.eq_ignore_ascii_case("requester") && !call.caller.is_anonymous() => Ok(true),
        _ => Err(S3Code::AccessDenied.into()),
    }
}

fn document(payer: &str) -> String {
    Xml::document("RequestPaymentConfiguration", |xml| xml.text("Payer", payer))
}

pub(super) async fn put(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let sent = body::required(ops, call).await?;
    let payer = if requesters_pay(&sent)? { "Requester" } else { "BucketOwner" };
    configs::put(ops, call, NAME, document(payer)).await
}

pub(super) async fn get(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    Ok(configs::get(ops, call, NAME).await?.unwrap_or_else(|| answer::document(document("BucketOwner"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payers_are_owner_or_requester() {
        for (payer, expected) in
            [("Requester", Some(true)), ("BucketOwner", Some(false)), ("requester", None), ("", None)]
        {
            assert_eq!(requesters_pay(document(payer).as_bytes()).ok(), expected, "{payer}");
        }
    }
}
