//! S3 on HTTP: from a request to an operation of [`crate::ops`] and back.

pub(crate) mod date;

use std::sync::Arc;

use bytes::Bytes;
use gabion_platform::Entropy;
use gabion_store::Store;
use http::{Request, Response};
use http_body::Body;

use crate::credentials::CredentialStore;
use crate::http::{Handler, Peer, RequestBody};

/// How S3 is spoken.
#[derive(Clone, Debug)]
pub struct S3Options {
    /// The region: requests must be signed for it.
    pub region: String,
    /// Domains under which `bucket.domain` names a bucket (virtual-host style); any other host is path-style.
    pub domains: Vec<String>,
    /// Whether Signature Version 2 is accepted.
    pub sigv2: bool,
}

/// Why a service was not made.
#[derive(Debug, thiserror::Error)]
pub enum S3ServiceError {
    /// A domain is no host name.
    #[error("{0:?} is not a domain")]
    Domain(String),
    /// A region is not one.
    #[error("{0:?} is not the name of a region: letters, digits and hyphens")]
    Region(String),
}

/// The body of an answer.
pub type ResponseBody = s3s::Body;

/// Answers S3 requests from a store. Clones share it.
#[derive(Clone)]
pub struct S3Service {
    inner: Arc<Inner>,
}

struct Inner {
    _store: Store,
    _credentials: Arc<dyn CredentialStore>,
    _options: S3Options,
}

impl S3Service {
    /// Puts S3 in front of a store.
    ///
    /// # Errors
    /// When a domain or the region is malformed.
    pub fn new(
        store: Store,
        credentials: Arc<dyn CredentialStore>,
        options: S3Options,
        entropy: &dyn Entropy,
    ) -> Result<Self, S3ServiceError> {
        let _ = entropy;
        Ok(Self { inner: Arc::new(Inner { _store: store, _credentials: credentials, _options: options }) })
    }

    /// Answers a request; failures are answers too.
    pub async fn call<B>(&self, request: Request<B>, peer: Peer) -> Response<ResponseBody>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let _ = (request, peer, &self.inner);
        Response::new(s3s::Body::empty())
    }
}

impl Handler for S3Service {
    type Body = ResponseBody;

    async fn handle(&self, request: Request<RequestBody>, peer: Peer) -> Response<ResponseBody> {
        self.call(request, peer).await
    }
}
