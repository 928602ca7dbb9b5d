//! What the benches share that send requests to the service, without sockets.

use bytes::Bytes;
use gabion_server::s3::S3Service;
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use tokio::runtime::{Builder, Runtime};

use crate::harness::{Call, Sent, peer};

/// Bytes of a body that there are at a time, as behind a connection; and of a chunk, as SDKs send them.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

pub(crate) fn built(call: Call) -> Request<Bytes> {
    call.build().map(Bytes::from)
}

/// Sends a request and takes in all of its answer.
pub(crate) async fn sent(service: &S3Service, request: &Request<Bytes>) -> (StatusCode, Bytes) {
    let (parts, body) = request.clone().into_parts();
    let body = Sent { piece_bytes: PIECE_BYTES, ..Sent::new(body) };
    let response = service.call(Request::from_parts(parts, body), peer()).await;
    let status = response.status();
    (status, response.into_body().collect().await.unwrap().to_bytes())
}
