//! CreateBucket.
//!
//! There is one region, the server's. AWS refuses a request without a location constraint outside of us-east-1; here it
//! means the server's region, as clients of self-hosted servers rarely send one.

use bytes::Bytes;
use gabion_store::StoreError;
use gabion_types::BucketName;

use super::Ops;
use crate::error::{S3Code, S3Error};

/// The region in which creating an existing bucket of one's own again is no error (AWS keeps it for old clients).
const LENIENT_REGION: &str = "us-east-1";

/// Creates a bucket.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) bucket: BucketName,
    /// `LocationConstraint`.
    pub(crate) location: Option<String>,
    /// Canonical id of the account whose it will be.
    pub(crate) owner: String,
    /// Documents that configure it from its first moment.
    pub(crate) configs: Vec<(&'static str, Bytes)>,
}

/// Runs it; says whether the bucket was created, not there already.
///
/// # Errors
/// `InvalidLocationConstraint`, `IllegalLocationConstraintException`, `BucketAlreadyOwnedByYou`, `BucketAlreadyExists`, `TooManyBuckets`.
pub(crate) async fn run(ops: &Ops, request: Request) -> Result<bool, S3Error> {
    check_location(request.location.as_deref(), &ops.region)?;
    let (bucket, region) = (request.bucket.clone(), Some(ops.region.clone()));
    match ops.store.create_bucket_of(bucket, region, request.owner, request.configs).await {
        Err(StoreError::BucketAlreadyOwnedByYou) if ops.region == LENIENT_REGION => Ok(false),
        Err(error @ (StoreError::BucketAlreadyOwnedByYou | StoreError::BucketAlreadyExists)) => {
            Err(S3Error::from(error).detail("BucketName", request.bucket.as_str()))
        }
        outcome => Ok(outcome.map(|()| true)?),
    }
}

fn check_location(location: Option<&str>, region: &str) -> Result<(), S3Error> {
    match location {
        None | Some("") => Ok(()),
        Some(location) if location == region => Ok(()),
        Some(location) if is_region(location) => Err(S3Error::with(
            S3Code::IllegalLocationConstraintException,
            format!(
                "The {location} location constraint is incompatible for the region specific endpoint this request was \
                 sent to."
            ),
        )),
        Some(location) => {
            Err(S3Error::new(S3Code::InvalidLocationConstraint).detail("LocationConstraint", location.to_owned()))
        }
    }
}

/// Whether it has the form of AWS's names of regions: `eu-west-1`, `us-gov-east-1`; or is their old name of Ireland.
fn is_region(name: &str) -> bool {
    let mut parts: Vec<&str> = name.split('-').collect();
    let number = parts.pop().unwrap_or_default();
    let letters = |part: &&str| part.len() >= 2 && part.bytes().all(|byte| byte.is_ascii_lowercase());
    name == "EU"
        || (2..=3).contains(&parts.len())
            && parts.iter().all(letters)
            && number.len() == 1
            && number.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_the_servers_or_none() {
        let illegal = Some(S3Code::IllegalLocationConstraintException);
        let invalid = Some(S3Code::InvalidLocationConstraint);
        let table = [
            (None, "us-east-1", None),
            (Some(""), "eu-lab", None),
            (None, "eu-lab", None),
            (Some("us-east-1"), "us-east-1", None),
            (Some("eu-lab"), "eu-lab", None),
            (Some("eu-west-1"), "us-east-1", illegal),
            (Some("us-east-1"), "eu-west-1", illegal),
            (Some("us-gov-east-1"), "us-east-1", illegal),
            (Some("EU"), "us-east-1", illegal),
            (Some("mars"), "us-east-1", invalid),
            (Some("eu-west"), "us-east-1", invalid),
            (Some("EU-WEST-1"), "us-east-1", invalid),
            (Some("-1"), "us-east-1", invalid),
        ];
        for (location, region, expected) in table {
            let got = check_location(location, region).err().map(|error| error.code);
            assert_eq!(got, expected, "{location:?} in {region}");
        }
    }
}
