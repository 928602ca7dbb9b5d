//! The audit log: who did what, from where, and what came of it; one JSON object per request and line, to a file or standard output, and to a
//! webhook. Requests are those to S3, IAM and STS, and those that change something over the admin port.
//!
//! Requests never wait for it. The file's writer is that of the access log. Lines for the webhook go through a bounded queue to a task that posts them in
//! batches (`application/x-ndjson`) and tries again until they are taken: at least once, as long as the server lives and the queue has
//! room; what does not fit is dropped and counted. The queue is in memory: what a crash takes of it is in the file, if there is one. Lines hold
//! no signatures, tokens or secrets.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio_util::sync::CancellationToken;

use crate::access_log::{AccessLog, timestamp, without_secrets};
use crate::credentials::{Identity, SecretKey};
use crate::fetch::Poster;
use crate::http::{OperationName, Peer};

/// Lines that may wait for the webhook: at 500 bytes a line a few MiB.
const QUEUE_LINES: usize = 8 * 1024;
/// Lines of one post.
const BATCH_LINES: usize = 500;
/// Longest time for a post.
const PATIENCE: Duration = Duration::from_secs(10);
/// Time to the second try, and longest time between two.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Where a webhook is.
#[derive(Clone, Debug)]
pub struct Webhook {
    /// Its address, `http://` or `https://`.
    pub url: String,
    /// What is sent as `Authorization: Bearer`.
    pub token: Option<SecretKey>,
}

/// A handle; cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct AuditLog {
    file: Option<AccessLog>,
    webhook: Option<Sender<Bytes>>,
    dropped: Arc<AtomicU64>,
}

/// Sends lines to the webhook; to be run as a task.
pub struct AuditPoster {
    poster: Poster,
    lines: Receiver<Bytes>,
}

/// What is logged of a request.
pub(crate) struct Entry<'a> {
    pub(crate) time_ms: u64,
    pub(crate) request_id: &'a str,
    pub(crate) peer: Peer,
    pub(crate) operation: &'a str,
    /// Nothing: it was refused before anybody knew who sent it.
    pub(crate) caller: Option<&'a Identity>,
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) query: Option<&'a str>,
    pub(crate) user_agent: Option<&'a str>,
    /// Nothing: whoever sent it hung up before it was answered.
    pub(crate) status: Option<StatusCode>,
}

/// What becomes known of a request while it is answered.
#[derive(Default)]
pub(crate) struct Known {
    pub(crate) operation: OnceLock<OperationName>,
    pub(crate) caller: OnceLock<Arc<Identity>>,
}

/// What is logged of a request over the admin port.
pub(crate) struct OperatorEntry<'a> {
    pub(crate) time_ms: u64,
    pub(crate) peer: Peer,
    /// `admin:KIND/ACTION`.
    pub(crate) operation: &'a str,
    /// What was asked for; nothing of it is logged of who is no operator.
    pub(crate) request: Option<Value>,
    pub(crate) status: StatusCode,
    /// Whether who sent it has the admin token.
    pub(crate) is_operators: bool,
}

#[derive(Serialize)]
struct OperatorLine<'a> {
    time: String,
    peer: String,
    tls: bool,
    operation: &'a str,
    outcome: &'static str,
    status: u16,
    /// Who has the admin token; nothing for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<Value>,
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    request_id: &'a str,
    peer: String,
    tls: bool,
    operation: &'a str,
    /// `allowed`, `denied`, `failed` or `unanswered`.
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    principal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    access_key: Option<&'a str>,
    method: &'a str,
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    query: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<&'a str>,
}

impl AuditLog {
    /// To a file that was opened as an access log is, to a webhook, or to both.
    #[must_use]
    pub fn new(file: Option<AccessLog>, webhook: Option<Webhook>) -> (Self, Option<AuditPoster>) {
        let (sender, poster) = match webhook {
            Some(webhook) => {
                let (sender, lines) = channel(QUEUE_LINES);
                let token = webhook.token.as_ref().map(|token| format!("Bearer {}", token.expose()));
                let poster = Poster::new(&webhook.url, "application/x-ndjson", token);
                (Some(sender), Some(AuditPoster { poster, lines }))
            }
            None => (None, None),
        };
        (Self { file, webhook: sender, dropped: Arc::default() }, poster)
    }

    /// Whether anything is logged.
    pub(crate) fn is_on(&self) -> bool {
        self.file.is_some() || self.webhook.is_some()
    }

    /// Lines that were dropped because writer or webhook could not keep up.
    #[must_use]
    pub fn dropped_lines(&self) -> u64 {
        self.file.as_ref().map_or(0, AccessLog::dropped_lines) + self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn write(&self, entry: &Entry<'_>) {
        self.push(render(entry));
    }

    pub(crate) fn write_operator(&self, entry: OperatorEntry<'_>) {
        self.push(render_operator(entry));
    }

    fn push(&self, line: Vec<u8>) {
        if let Some(file) = &self.file {
            file.push(line.clone());
        }
        if let Some(webhook) = &self.webhook
            && webhook.try_send(line.into()).is_err()
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn render(entry: &Entry<'_>) -> Vec<u8> {
    let known = entry.caller.filter(|caller| !caller.is_anonymous());
    let line = Line {
        time: timestamp(entry.time_ms),
        request_id: entry.request_id,
        peer: entry.peer.address.to_string(),
        tls: entry.peer.tls,
        operation: entry.operation,
        outcome: match entry.status {
            None => "unanswered",
            // A signature or a token that is no good may be a 400.
            Some(status) if entry.caller.is_none() && status.is_client_error() => "denied",
            Some(status) => outcome(status),
        },
        status: entry.status.map(|status| status.as_u16()),
        account: known.map(|caller| caller.account.id.as_str()),
        principal: known.map(Identity::arn),
        access_key: known.map(|caller| caller.access_key.as_str()),
        method: entry.method,
        path: entry.path,
        query: entry.query.map(without_secrets),
        user_agent: entry.user_agent,
    };
    ended(&line)
}

fn render_operator(entry: OperatorEntry<'_>) -> Vec<u8> {
    ended(&OperatorLine {
        time: timestamp(entry.time_ms),
        peer: entry.peer.address.to_string(),
        tls: entry.peer.tls,
        operation: entry.operation,
        // Strangers are let in to nothing, also where their request is none.
        outcome: if entry.is_operators || entry.status.is_server_error() { outcome(entry.status) } else { "denied" },
        status: entry.status.as_u16(),
        principal: entry.is_operators.then_some("operator"),
        request: entry.request.filter(|_| entry.is_operators).map(told),
    })
}

/// A request without its secrets, and without what it leaves open.
fn told(request: Value) -> Value {
    let Value::Object(fields) = request else { return Value::Null };
    let is_secret = |name: &str| ["secret", "token", "password"].iter().any(|word| name.contains(word));
    let fields = fields.into_iter().filter(|(_, value)| !value.is_null() && *value != Value::Bool(false));
    fields.map(|(name, value)| if is_secret(&name) { (name, "***".into()) } else { (name, value) }).collect()
}

/// A line with its end.
fn ended(line: &impl Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec(line).expect("a line has only texts and numbers");
    bytes.push(b'\n');
    bytes
}

fn outcome(status: StatusCode) -> &'static str {
    match status.as_u16() {
        401 | 403 => "denied",
        500.. => "failed",
        _ => "allowed",
    }
}

impl AuditPoster {
    /// Posts what comes until it is told to stop; then what is queued, once.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(BATCH_LINES);
        loop {
            tokio::select! {
                count = self.lines.recv_many(&mut batch, BATCH_LINES) => if count == 0 { return },
                () = stop.cancelled() => break,
            }
            if !self.deliver(&batch, &stop).await {
                break;
            }
            batch.clear();
        }
        while let Ok(line) = self.lines.try_recv() {
            batch.push(line);
        }
        // There is no other try.
        self.poster.forget();
        if !batch.is_empty()
            && let Err(error) = self.post(&batch).await
        {
            tracing::warn!(error, lines = batch.len(), "the last lines of the audit log could not be posted");
        }
    }

    /// Whether it was taken before the server stopped.
    async fn deliver(&mut self, batch: &[Bytes], stop: &CancellationToken) -> bool {
        let mut pause = PAUSE;
        while let Err(error) = self.post(batch).await {
            if pause == PAUSE {
                tracing::warn!(error, "the audit log's webhook does not take what it is posted; it is tried again");
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = stop.cancelled() => return false,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
        true
    }

    async fn post(&mut self, batch: &[Bytes]) -> Result<(), String> {
        self.poster.post(&[], batch.concat().into(), PATIENCE).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::credentials::{Account, Identity};

    fn entry<'a>(caller: Option<&'a Identity>, status: StatusCode) -> Entry<'a> {
        Entry {
            time_ms: 1_700_000_000_123,
            request_id: "17A2",
            peer: Peer { address: "127.0.0.1:4711".parse().unwrap(), tls: true },
            operation: "GetObject",
            caller,
            method: "GET",
            path: "/b/k",
            query: Some("X-Amz-Signature=abc&versionId=1"),
            user_agent: None,
            status: Some(status),
        }
    }

    #[test]
    fn a_line_says_who_did_what_and_what_came_of_it() {
        let account = Account { id: "123456789012".into(), ..Account::first("d") };
        let root = Identity::root(Arc::new(account), "AK");
        let line = String::from_utf8(render(&entry(Some(&root), StatusCode::OK))).unwrap();
        assert_eq!(
            line,
            "{\"time\":\"2023-11-14T22:13:20.123Z\",\"request_id\":\"17A2\",\"peer\":\"127.0.0.1:4711\",\"tls\":true,\
             \"operation\":\"GetObject\",\"outcome\":\"allowed\",\"status\":200,\"account\":\"123456789012\",\
             \"principal\":\"arn:aws:iam::123456789012:root\",\"access_key\":\"AK\",\"method\":\"GET\",\"path\":\"/b/k\",\
             \"query\":\"X-Amz-Signature=***&versionId=1\"}\n"
        );
        let line = String::from_utf8(render(&entry(None, StatusCode::FORBIDDEN))).unwrap();
        assert!(line.contains("\"denied\"") && !line.contains("principal"), "{line}");
        let line = String::from_utf8(render(&entry(None, StatusCode::BAD_REQUEST))).unwrap();
        assert!(line.contains("\"denied\""), "{line}");
        let line = String::from_utf8(render(&entry(Some(&root), StatusCode::BAD_REQUEST))).unwrap();
        assert!(line.contains("\"allowed\""), "{line}");
        assert_eq!(outcome(StatusCode::SERVICE_UNAVAILABLE), "failed");
        let line = String::from_utf8(render(&Entry { status: None, ..entry(Some(&root), StatusCode::OK) })).unwrap();
        assert!(line.contains("\"unanswered\",\"account\"") && !line.contains("status"), "{line}");
    }

    #[test]
    fn an_operators_line_has_no_secret_and_a_strangers_nothing_at_all() {
        let line = |status, is_operators| {
            let request =
                serde_json::json!({ "user": "ann", "secret_key": "very secret", "account": null, "force": false });
            let peer = Peer { address: "127.0.0.1:4711".parse().unwrap(), tls: false };
            let (operation, request) = ("admin:key/create", Some(request));
            let entry = OperatorEntry { time_ms: 1_700_000_000_123, peer, operation, request, status, is_operators };
            String::from_utf8(render_operator(entry)).unwrap()
        };
        let rest = |outcome: &str, more: &str| {
            format!(
                "{{\"time\":\"2023-11-14T22:13:20.123Z\",\"peer\":\"127.0.0.1:4711\",\"tls\":false,\
                 \"operation\":\"admin:key/create\",\"outcome\":{outcome}{more}}}\n"
            )
        };
        let request = ",\"principal\":\"operator\",\"request\":{\"secret_key\":\"***\",\"user\":\"ann\"}";
        assert_eq!(line(StatusCode::OK, true), rest("\"allowed\",\"status\":200", request));
        assert_eq!(line(StatusCode::CONFLICT, true), rest("\"allowed\",\"status\":409", request));
        assert_eq!(line(StatusCode::FORBIDDEN, true), rest("\"denied\",\"status\":403", request));
        assert_eq!(line(StatusCode::UNAUTHORIZED, false), rest("\"denied\",\"status\":401", ""));
        assert_eq!(line(StatusCode::UNPROCESSABLE_ENTITY, false), rest("\"denied\",\"status\":422", ""));
    }

    /// The webhook refuses once; what it was posted comes again, and nothing is lost.
    #[tokio::test]
    async fn a_webhook_gets_every_line() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/audit", listener.local_addr().unwrap());
        let webhook = Webhook { url, token: Some(SecretKey::new("very secret")) };
        let (log, poster) = AuditLog::new(None, Some(webhook));
        let stop = CancellationToken::new();
        let posting = tokio::spawn(poster.unwrap().run(stop.clone()));
        for _ in 0..3 {
            log.write(&entry(None, StatusCode::OK));
        }
        let mut taken = Vec::new();
        for status in ["500 No", "200 OK"] {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            let body = loop {
                let mut bytes = [0; 4096];
                let count = stream.read(&mut bytes).await.unwrap();
                request.extend_from_slice(&bytes[..count]);
                let text = String::from_utf8_lossy(&request).into_owned();
                let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
                let length = head
                    .lines()
                    .find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok());
                assert!(head.starts_with("POST /audit ") && head.contains("Bearer very secret"), "{head}");
                if length == Some(body.len()) {
                    break body.to_owned();
                }
            };
            stream.write_all(format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\n\r\n").as_bytes()).await.unwrap();
            taken.push(body);
        }
        assert_eq!(taken[0], taken[1]);
        assert_eq!((taken[1].lines().count(), log.dropped_lines()), (3, 0));
        stop.cancel();
        drop(listener);
        posting.await.unwrap();
    }
}
