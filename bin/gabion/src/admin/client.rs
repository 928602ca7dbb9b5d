//! Requests to the admin port.

use std::time::Duration;

use clap::Args;
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;

use crate::exit::Failure;

/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Longest wait for an answer: the server does nothing long before it answers.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which server is asked.
#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    /// Address of the server's admin port.
    #[arg(long, value_name = "URL", env = "GABION_ADMIN", default_value = "http://127.0.0.1:9001")]
    pub(crate) admin: String,
}

impl AdminArgs {
    /// Gets a page.
    ///
    /// # Errors
    /// When there is no server, or it answers with an error or with something else.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let base = self.admin.trim_end_matches('/');
        let base = if base.contains("://") { base.to_owned() } else { format!("http://{base}") };
        let uri: Uri = format!("{base}{path}")
            .parse()
            .map_err(|error| Failure::config(format!("--admin {}: {error}; write http://host:9001", self.admin)))?;
        let request = Request::get(uri)
            .body(Empty::<Bytes>::new())
            .map_err(|error| Failure::config(format!("--admin {}: {error}", self.admin)))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::failed(format!("no runtime can be started: {error}")))?;
        let (status, body) = runtime
            .block_on(async { tokio::time::timeout(PATIENCE, answer(request)).await })
            .map_err(|_| self.unanswered(format!("no answer in {} s", PATIENCE.as_secs())))?
            .map_err(|why| self.unanswered(why))?;
        if !status.is_success() {
            return Err(Failure::failed(format!("the server at {} answered {status} to {path}", self.admin)));
        }
        serde_json::from_slice(&body)
            .map_err(|error| Failure::failed(format!("what answers at {} is no Gabion: {path}: {error}", self.admin)))
    }

    fn unanswered(&self, why: String) -> Failure {
        Failure::failed(format!(
            "the admin port {} can not be reached: {why}; is the server running, and is --admin its --admin-listen?",
            self.admin
        ))
    }
}

async fn answer(request: Request<Empty<Bytes>>) -> Result<(StatusCode, Bytes), String> {
    let client = Client::builder(TokioExecutor::new()).build_http();
    let response = client.request(request).await.map_err(|error| causes(&error))?;
    let status = response.status();
    let body =
        Limited::new(response.into_body(), ANSWER_BYTES_MAX).collect().await.map_err(|error| error.to_string())?;
    Ok((status, body.to_bytes()))
}

/// The innermost cause says what happened.
fn causes(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
