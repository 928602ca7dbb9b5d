//! Requests to the admin port.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::exit::Failure;
use crate::state::ADMIN_TOKEN_FILE;

/// Longest answer that is read, in bytes.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// Longest wait for an answer: the server does nothing long before it answers.
const PATIENCE: Duration = Duration::from_secs(120);

/// Which server is asked.
#[derive(Debug, Args)]
pub(crate) struct AdminArgs {
    /// Address of the server's admin port.
    #[arg(long, value_name = "URL", env = "GABION_ADMIN", default_value = "http://127.0.0.1:9001")]
    pub(crate) admin: String,
}

/// What shows that changes may be asked for.
#[derive(Debug, Args)]
pub(crate) struct TokenArgs {
    /// The server's state directory, whose file admin-token is read; not needed when GABION_ADMIN_TOKEN is set.
    #[arg(long, value_name = "DIR", env = "GABION_STATE")]
    state: Option<PathBuf>,
}

const TOKEN_VARIABLE: &str = "GABION_ADMIN_TOKEN";

impl TokenArgs {
    fn token(&self) -> Result<String, Failure> {
        if let Some(token) = std::env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty()) {
            return Ok(token);
        }
        let Some(state) = &self.state else {
            return Err(Failure::config(format!(
                "changes need the admin token: give --state, the server's state directory, or set {TOKEN_VARIABLE}"
            )));
        };
        let path = state.join(ADMIN_TOKEN_FILE);
        let token = fs::read_to_string(&path)
            .map_err(|error| Failure::config(format!("the admin token {} can not be read: {error}", path.display())))?;
        Ok(token.trim().to_owned())
    }
}

/// A refusal in the server's words.
#[derive(Deserialize)]
struct Refusal {
    error: String,
}

impl AdminArgs {
    /// Gets a page.
    ///
    /// # Errors
    /// When there is no server, or it answers with an error or with something else.
    pub(crate) fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        let request = Request::builder().method(Method::GET).uri(self.uri(path)?).body(Full::default());
        let body = self.ask(path, request)?;
        serde_json::from_slice(&body)
            .map_err(|error| Failure::failed(format!("what answers at {} is no Gabion: {path}: {error}", self.admin)))
    }

    /// Asks for a change; gives the body of the answer.
    ///
    /// # Errors
    /// When there is no server, the token is not to be had or wrong, or the server refuses.
    pub(crate) fn post(&self, path: &str, token: &TokenArgs, body: &impl Serialize) -> Result<Bytes, Failure> {
        let body = serde_json::to_vec(body).map_err(|error| Failure::failed(error.to_string()))?;
        let request = Request::builder()
            .method(Method::POST)
            .uri(self.uri(path)?)
            .header(CONTENT_TYPE, "application/json")
            .header(AUTHORIZATION, format!("Bearer {}", token.token()?))
            .body(Full::from(body));
        self.ask(path, request)
    }

    fn uri(&self, path: &str) -> Result<Uri, Failure> {
        let base = self.admin.trim_end_matches('/');
        let base = if base.contains("://") { base.to_owned() } else { format!("http://{base}") };
        format!("{base}{path}")
            .parse()
            .map_err(|error| Failure::config(format!("--admin {}: {error}; write http://host:9001", self.admin)))
    }

    fn ask(&self, path: &str, request: Result<Request<Full<Bytes>>, hyper::http::Error>) -> Result<Bytes, Failure> {
        let request = request.map_err(|error| Failure::config(format!("--admin {}: {error}", self.admin)))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Failure::failed(format!("no runtime can be started: {error}")))?;
        let (status, body) = runtime
            .block_on(async { tokio::time::timeout(PATIENCE, answer(request)).await })
            .map_err(|_| self.unanswered(&format!("no answer in {} s", PATIENCE.as_secs())))?
            .map_err(|why| self.unanswered(&why))?;
        if status.is_success() {
            return Ok(body);
        }
        Err(Failure::failed(match serde_json::from_slice::<Refusal>(&body) {
            Ok(Refusal { error }) => error,
            // XML is what S3 answers, HTML what others do.
            Err(_) if body.starts_with(b"<") => format!(
                "the server at {} answered {status} to {path}: this is no admin port; give --admin the address of its --admin-listen",
                self.admin
            ),
            Err(_) => format!("the server at {} answered {status} to {path}", self.admin),
        }))
    }

    fn unanswered(&self, why: &str) -> Failure {
        Failure::failed(format!(
            "the admin port {} can not be reached: {why}; is the server running, and is --admin its --admin-listen?",
            self.admin
        ))
    }
}

async fn answer(request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), String> {
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
