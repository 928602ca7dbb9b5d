//! Adapters of inventories: a document for each, by its id.
//!
//! Source: AWS, "PutBucketInventoryConfiguration" and its neighbours.

use bytes::Bytes;
use gabion_store::{ConfigScope, Configs, StoreError};
use gabion_types::{BucketName, ObjectKey};
use http::{Response, StatusCode};
use s3s::Body;

use super::answer;
use super::body;
use super::call::Call;
use super::configs;
use super::xml::Xml;
use crate::auth::{Delivery, REPORTS, delivery, may_put};
use crate::error::{S3Code, S3Error};
use crate::inventory::{DOCUMENT_BYTES_MAX, IDS_MAX, Inventory, check_id};
use crate::ops::{Ops, token};

/// What the names of the documents begin with; the id follows.
pub(crate) const INVENTORY: &str = "inventory/";
/// The same of those that say which was the last report.
pub(crate) const INVENTORY_RUN: &str = "inventory-run/";
/// Inventories of a page.
const PAGE: usize = 100;

/// The id that a request names.
fn id(call: &Call) -> Result<&str, S3Error> {
    let id = call.query().text("id")?;
    check_id(id)?;
    Ok(id)
}

pub(super) async fn put(ops: &Ops, call: &mut Call) -> Result<Response<Body>, S3Error> {
    let document = body::required(ops, call).await?;
    let (inventory, kept) = Inventory::parse(&document)?;
    if kept.len() > DOCUMENT_BYTES_MAX {
        return Err(S3Error::request(format!("An inventory must not be longer than {DOCUMENT_BYTES_MAX} bytes.")));
    }
    let id = id(call)?;
    if id != inventory.id {
        let message = "The id of the request and that of the configuration are not the same.";
        return Err(S3Error::argument("id", id, message));
    }
    let bucket = call.bucket()?;
    ops.store.head_bucket(&bucket).await?;
    require_destination(ops, call, &bucket, &inventory).await?;
    let name = format!("{INVENTORY}{id}");
    let has_room = {
        let name = name.clone();
        move |configs: &Configs| {
            let others = configs.iter().filter(|(other, _)| other.starts_with(INVENTORY) && *other != name);
            others.count() < IDS_MAX
        }
    };
    let scope = ConfigScope::Bucket(bucket.clone());
    // One of this name may have gone before its run did.
    forget_run(ops, &bucket, id).await?;
    match ops.store.put_config_if(scope, &name, Bytes::from(kept), has_room).await {
        Err(StoreError::PreconditionFailed(_)) => return Err(S3Code::TooManyConfigurations.into()),
        outcome => outcome?,
    }
    ops.inventories.add(bucket);
    Ok(answer::empty(StatusCode::OK))
}

/// That the bucket is there, and the account's that the document says. Whether it takes reports is asked when there is one: a policy that
/// allows it may come later. Where none is needed, as the bucket is of the same account, who asks must be allowed to write there himself.
async fn require_destination(
    ops: &Ops,
    call: &Call,
    source: &BucketName,
    inventory: &Inventory,
) -> Result<(), S3Error> {
    let destination = &inventory.destination;
    let invalid = |message: &'static str| {
        S3Error::with(S3Code::InvalidS3DestinationBucket, message).detail("Bucket", destination.bucket.as_str())
    };
    let found = match ops.store.head_bucket(&destination.bucket).await {
        Err(StoreError::NoSuchBucket) => return Err(invalid("The destination bucket does not exist.")),
        found => found?,
    };
    if destination.account.is_some() && ops.account_id(&found.owner) != destination.account {
        return Err(invalid("The destination bucket is not owned by the account that was named."));
    }
    let key = format!("{}{}/manifest.json", destination.place(source.as_str()), inventory.id);
    let key = ObjectKey::new(&key).map_err(|error| S3Error::request(error.to_string()))?;
    if delivery(ops, REPORTS, source, &destination.bucket, key.as_str())? == Delivery::Own
        && !may_put(ops, call, &destination.bucket, &key)?
    {
        let message = "You may have no reports put where you may not put objects, unless the destination's policy lets s3.amazonaws.com put them.";
        return Err(S3Error::with(S3Code::AccessDenied, message));
    }
    Ok(())
}

pub(super) async fn get(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let name = format!("{INVENTORY}{}", id(call)?);
    configs::get(ops, call, &name).await?.ok_or_else(|| S3Code::NoSuchConfiguration.into())
}

pub(super) async fn delete(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let id = id(call)?;
    let name = format!("{INVENTORY}{id}");
    if configs::get(ops, call, &name).await?.is_none() {
        return Err(S3Code::NoSuchConfiguration.into());
    }
    let deleted = configs::delete(ops, call, &name).await?;
    forget_run(ops, &call.bucket()?, id).await?;
    Ok(deleted)
}

/// Forgets how far a report is whose inventory is not there any more. The worker keeps a run only beside its inventory: after it there is none that comes back.
async fn forget_run(ops: &Ops, bucket: &BucketName, id: &str) -> Result<(), S3Error> {
    let inventory = format!("{INVENTORY}{id}");
    let is_gone = move |configs: &Configs| configs.get(&inventory).is_none();
    let scope = ConfigScope::Bucket(bucket.clone());
    match ops.store.delete_config_if(scope, &format!("{INVENTORY_RUN}{id}"), is_gone).await {
        Err(StoreError::PreconditionFailed(_)) => Ok(()),
        outcome => Ok(outcome?),
    }
}

/// ListBucketInventoryConfigurations.
pub(super) async fn list(ops: &Ops, call: &Call) -> Result<Response<Body>, S3Error> {
    let bucket = call.bucket()?;
    ops.store.head_bucket(&bucket).await?;
    let given = call.query().text("continuation-token")?;
    let after = if given.is_empty() { String::new() } else { token::decode(given)? };
    let configs = ops.store.bucket_configs(&bucket)?;
    let mut found = configs.iter().filter_map(|(name, document)| Some((name.strip_prefix(INVENTORY)?, document)));
    let mut page = Vec::new();
    let mut truncated = false;
    for (id, document) in found.by_ref().filter(|(id, _)| *id > after.as_str()) {
        if page.len() == PAGE {
            truncated = true;
            break;
        }
        page.push((id, document));
    }
    Ok(answer::document(Xml::document("ListInventoryConfigurationsResult", |xml| {
        for (_, document) in &page {
            xml.element("InventoryConfiguration", |xml| xml.raw(&[content(document)]));
        }
        if !given.is_empty() {
            xml.text("ContinuationToken", given);
        }
        xml.value("IsTruncated", truncated);
        if let Some((id, _)) = page.last().filter(|_| truncated) {
            xml.text("NextContinuationToken", token::encode(id));
        }
    })))
}

/// What stands within the root of a document that is kept.
fn content(document: &[u8]) -> &str {
    let document = std::str::from_utf8(document).unwrap_or_default();
    let rest = document.split_once("<InventoryConfiguration").and_then(|(_, rest)| rest.split_once('>'));
    rest.and_then(|(_, rest)| rest.rsplit_once("</InventoryConfiguration>")).map_or("", |(content, _)| content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_have_a_content() {
        let document =
            b"<?xml version=\"1.0\"?>\n<InventoryConfiguration xmlns=\"x\"><Id>a</Id></InventoryConfiguration>";
        assert_eq!(content(document), "<Id>a</Id>");
        assert_eq!((content(b""), content(b"\xff")), ("", ""));
    }
}
