//! The AWS SDK, pointed at a test server.

use std::time::Duration;

use aws_sdk_s3::{
    Client,
    config::{Credentials, Region, SharedHttpClient, retry::RetryConfig, timeout::TimeoutConfig},
    error::{ProvideErrorMetadata, SdkError},
    operation::get_object::GetObjectOutput,
};
use bytes::Bytes;

/// A client with path-style addressing, no retries and generous time limits.
#[must_use]
pub fn client_for(endpoint: &str, access_key: &str, secret_key: &str) -> Client {
    Client::from_conf(builder(endpoint, access_key, secret_key).build())
}

/// Like [`client_for`], without the checksums that the SDK adds of its own accord.
#[must_use]
pub fn small_client(endpoint: &str, access_key: &str, secret_key: &str) -> Client {
    use aws_sdk_s3::config::{RequestChecksumCalculation, ResponseChecksumValidation};
    let config = builder(endpoint, access_key, secret_key)
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired);
    Client::from_conf(config.build())
}

fn builder(endpoint: &str, access_key: &str, secret_key: &str) -> aws_sdk_s3::config::Builder {
    let http: SharedHttpClient = aws_smithy_http_client::Builder::new().build_http();
    aws_sdk_s3::Config::builder()
        .http_client(http)
        .endpoint_url(endpoint)
        .region(Region::new("us-east-1"))
        .credentials_provider(Credentials::new(access_key, secret_key, None, None, "test"))
        .force_path_style(true)
        .retry_config(RetryConfig::disabled())
        .timeout_config(TimeoutConfig::builder().operation_timeout(Duration::from_secs(120)).build())
}

/// How an operation ended that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server answered with this status and error code (empty where there is no body, as with HEAD).
    Refused(u16, String),
    /// There was no whole answer: whether the operation took effect is unknown.
    Lost(String),
}

impl Outcome {
    /// The HTTP status of a refusal.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        match self {
            Outcome::Refused(status, _) => Some(*status),
            Outcome::Lost(_) => None,
        }
    }
}

/// What went wrong.
///
/// # Panics
/// When nothing did.
#[track_caller]
pub fn failure<T: std::fmt::Debug, E>(result: Result<T, SdkError<E>>) -> Outcome
where
    E: ProvideErrorMetadata + std::error::Error + 'static,
{
    let error = result.map(|value| format!("{value:?}")).expect_err("the operation should have been refused");
    match &error {
        SdkError::ServiceError(service) => {
            Outcome::Refused(service.raw().status().as_u16(), service.err().code().unwrap_or_default().to_owned())
        }
        other => Outcome::Lost(format!("{}", aws_sdk_s3::error::DisplayErrorContext(other))),
    }
}

/// The whole body of an answer to GetObject.
///
/// # Errors
/// When the body breaks off or its checksum is wrong.
pub async fn bytes_of(output: GetObjectOutput) -> anyhow::Result<Bytes> {
    Ok(output.body.collect().await?.into_bytes())
}
