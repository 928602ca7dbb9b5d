//! The access log: one JSON object per request and line, to a file or to standard output.
//!
//! Requests never wait for it: lines go through a bounded queue to a thread of its own; what does not fit, or can not be written, is dropped and
//! counted. The audit log is written in the same way. Signatures and tokens in queries are replaced: a log must not hold what signs a request.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use percent_encoding::percent_decode_str;
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::http::{RequestFigures, RequestLine};

/// Lines that may wait for the writer: at 300 bytes a line a few MiB.
const QUEUE_LINES: usize = 16 * 1024;

/// Where lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessLogTarget {
    /// Standard output.
    Stdout,
    /// A file, appended to; made with mode 0640 if it is missing.
    File(PathBuf),
}

/// A handle to the writer; cheap to clone.
#[derive(Debug, Clone)]
pub struct AccessLog {
    queue: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

/// The writer's thread; closed by [`AccessLogWriter::close`].
#[derive(Debug)]
pub struct AccessLogWriter {
    queue: SyncSender<Message>,
    thread: JoinHandle<()>,
}

enum Message {
    Line(Vec<u8>),
    Reopen,
    Close,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Message::Line(_) => "Line",
            Message::Reopen => "Reopen",
            Message::Close => "Close",
        })
    }
}

impl AccessLog {
    /// Opens the target and starts the writer.
    ///
    /// # Errors
    /// When the file can not be opened or the thread not be started.
    pub fn open(target: AccessLogTarget) -> io::Result<(AccessLog, AccessLogWriter)> {
        let sink: Box<dyn Write + Send> = match &target {
            AccessLogTarget::Stdout => Box::new(io::stdout()),
            AccessLogTarget::File(path) => Box::new(append(path)?),
        };
        let (queue, lines) = sync_channel(QUEUE_LINES);
        let log = AccessLog { queue: queue.clone(), dropped: Arc::default() };
        let writer = Writer { target, sink: BufWriter::new(sink), dropped: Arc::clone(&log.dropped), failing: false };
        let thread = std::thread::Builder::new().name("access-log".to_owned()).spawn(move || writer.run(&lines))?;
        Ok((log, AccessLogWriter { queue, thread }))
    }

    /// Lines that were dropped because the writer could not keep up, or could not write.
    #[must_use]
    pub fn dropped_lines(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(crate) fn write(&self, line: &RequestLine, figures: &RequestFigures) {
        self.push(render(line, figures));
    }

    /// Takes a line that ends with a newline.
    pub(crate) fn push(&self, line: Vec<u8>) {
        match self.queue.try_send(Message::Line(line)) {
            Ok(()) => {}
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl AccessLogWriter {
    /// Opens the file anew, after it was rotated.
    pub fn reopen(&self) {
        if self.queue.try_send(Message::Reopen).is_err() {
            tracing::warn!("the access or audit log is too busy to be reopened; try again");
        }
    }

    /// Writes what is queued and ends. Blocks meanwhile.
    pub fn close(self) {
        // An error means that the thread is gone already.
        let _ = self.queue.send(Message::Close);
        if self.thread.join().is_err() {
            tracing::error!("the writer of the access or audit log had failed");
        }
    }
}

struct Writer {
    target: AccessLogTarget,
    /// What could not be written stays in its buffer for the next try.
    sink: BufWriter<Box<dyn Write + Send>>,
    dropped: Arc<AtomicU64>,
    /// Whether the last write failed, so that a full disk is reported once.
    failing: bool,
}

impl Writer {
    fn run(mut self, lines: &Receiver<Message>) {
        while let Ok(message) = lines.recv() {
            let mut next = Some(message);
            // Flush when there is nothing to do, not after each line.
            while let Some(message) = next {
                match message {
                    Message::Line(line) => self.write(&line),
                    Message::Reopen => self.reopen(),
                    Message::Close => {
                        self.flush();
                        self.drop_lines(self.sink.buffer());
                        return;
                    }
                }
                next = lines.try_recv().ok();
            }
            self.flush();
        }
    }

    fn write(&mut self, line: &[u8]) {
        if let Err(error) = self.sink.write_all(line) {
            self.drop_lines(line);
            self.report(&error);
        }
    }

    fn flush(&mut self) {
        match self.sink.flush() {
            Ok(()) => self.failing = false,
            Err(error) => self.report(&error),
        }
    }

    fn reopen(&mut self) {
        self.flush();
        let AccessLogTarget::File(path) = &self.target else { return };
        match append(path) {
            Ok(file) => {
                let old = std::mem::replace(&mut self.sink, BufWriter::new(Box::new(file)));
                // What the old file did not take may begin amid a line. The error would be that a write panicked.
                if let (_, Ok(unwritten)) = old.into_parts() {
                    self.drop_lines(&unwritten);
                }
            }
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "the log can not be reopened; the old file stays in use");
            }
        }
    }

    fn drop_lines(&self, lines: &[u8]) {
        let count = lines.iter().filter(|byte| **byte == b'\n').count();
        self.dropped.fetch_add(count as u64, Ordering::Relaxed);
    }

    fn report(&mut self, error: &io::Error) {
        if !std::mem::replace(&mut self.failing, true) {
            let path = match &self.target {
                AccessLogTarget::Stdout => "standard output".into(),
                AccessLogTarget::File(path) => path.to_string_lossy(),
            };
            tracing::error!(%path, %error, "the log can not be written; what its buffer does not hold is dropped and counted");
        }
    }
}

fn append(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    OpenOptions::new().append(true).create(true).mode(0o640).open(path)
}

/// A line of the log; the order of the fields is that of the line.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    peer: String,
    operation: &'a str,
    method: &'a str,
    path: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    query: Option<String>,
    version: String,
    status: u16,
    received_bytes: u64,
    sent_bytes: u64,
    first_byte_us: u64,
    total_us: u64,
    complete: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_agent: Option<&'a str>,
}

fn render(line: &RequestLine, figures: &RequestFigures) -> Vec<u8> {
    let row = Line {
        time: timestamp(line.time_ms),
        peer: line.peer.to_string(),
        operation: figures.operation,
        method: line.method.as_str(),
        path: line.uri.path(),
        query: line.uri.query().map(without_secrets),
        version: format!("{:?}", line.version),
        status: figures.status.as_u16(),
        received_bytes: figures.received_bytes,
        sent_bytes: figures.sent_bytes,
        first_byte_us: figures.first_byte_ns / 1000,
        total_us: figures.total_ns / 1000,
        complete: figures.complete,
        request_id: line.request_id.as_deref(),
        user_agent: line.user_agent.as_deref(),
    };
    let mut bytes = serde_json::to_vec(&row).expect("a line has only texts and numbers");
    bytes.push(b'\n');
    bytes
}

/// A time as it stands in lines.
pub(crate) fn timestamp(unix_ms: u64) -> String {
    let time = OffsetDateTime::from_unix_timestamp_nanos(i128::from(unix_ms) * 1_000_000).ok();
    time.and_then(|time| time.format(&Rfc3339).ok()).unwrap_or_default()
}

/// Whether the value of a parameter, by its name as it was sent, signs a request, says who somebody is, stands for a session, or is a customer's key, which has no place in a query
/// but may be put there.
pub(crate) fn is_secret(name: &str) -> bool {
    const SECRETS: [&str; 4] = ["x-amz-signature", "x-amz-security-token", "signature", "webidentitytoken"];
    let name = percent_decode_str(name).decode_utf8_lossy().to_ascii_lowercase();
    SECRETS.contains(&&name[..]) || name.contains("encryption-customer-key")
}

/// Replaces the values that are not for others.
pub(crate) fn without_secrets(query: &str) -> String {
    let hide = |pair: &str| {
        let name = pair.split_once('=').map_or(pair, |(name, _)| name);
        if is_secret(name) { format!("{name}=***") } else { pair.to_owned() }
    };
    query.split('&').map(hide).collect::<Vec<_>>().join("&")
}

#[cfg(test)]
mod tests {
    use http::{Method, StatusCode, Version};

    use super::*;

    fn line(uri: &str) -> RequestLine {
        RequestLine {
            time_ms: 1_700_000_000_123,
            peer: "127.0.0.1:4711".parse().unwrap(),
            method: Method::GET,
            uri: uri.parse().unwrap(),
            version: Version::HTTP_11,
            request_id: Some("17A2".to_owned()),
            user_agent: Some("curl \"7\"\n".to_owned()),
        }
    }

    const FIGURES: RequestFigures = RequestFigures {
        operation: "GetObject",
        status: StatusCode::OK,
        received_bytes: 0,
        sent_bytes: 4096,
        first_byte_ns: 1_500,
        total_ns: 2_999,
        complete: true,
    };

    #[test]
    fn a_line_is_one_json_object() {
        let text = String::from_utf8(render(&line("/b/k%20k?partNumber=1"), &FIGURES)).unwrap();
        assert_eq!(
            text,
            "{\"time\":\"2023-11-14T22:13:20.123Z\",\"peer\":\"127.0.0.1:4711\",\"operation\":\"GetObject\",\"method\":\"GET\",\
             \"path\":\"/b/k%20k\",\"query\":\"partNumber=1\",\"version\":\"HTTP/1.1\",\"status\":200,\"received_bytes\":0,\
             \"sent_bytes\":4096,\"first_byte_us\":1,\"total_us\":2,\"complete\":true,\"request_id\":\"17A2\",\
             \"user_agent\":\"curl \\\"7\\\"\\n\"}\n"
        );
    }

    #[test]
    fn signatures_do_not_reach_the_log() {
        let table = [
            ("X-Amz-Expires=60&X-Amz-Signature=abc&x=1", "X-Amz-Expires=60&X-Amz-Signature=***&x=1"),
            ("x-amz-signature=abc", "x-amz-signature=***"),
            ("AWSAccessKeyId=a&Signature=b%3D&Expires=1", "AWSAccessKeyId=a&Signature=***&Expires=1"),
            ("X-Amz-Security-Token=t", "X-Amz-Security-Token=***"),
            ("X-Amz-Signatur%65=abc", "X-Amz-Signatur%65=***"),
            ("RoleArn=r&WebIdentityToken=eyJ", "RoleArn=r&WebIdentityToken=***"),
            ("X-Amz-Server-Side-Encryption-Customer-Key=k", "X-Amz-Server-Side-Encryption-Customer-Key=***"),
            ("uploads", "uploads"),
            ("", ""),
        ];
        for (query, expected) in table {
            assert_eq!(without_secrets(query), expected);
        }
    }

    #[test]
    fn lines_reach_the_file_across_a_rotation() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.log");
        let (log, writer) = AccessLog::open(AccessLogTarget::File(path.clone())).unwrap();
        log.write(&line("/a/1"), &FIGURES);
        // `reopen` makes the file anew, in order with the lines around it.
        std::fs::rename(&path, dir.path().join("access.log.1")).unwrap();
        writer.reopen();
        log.write(&line("/a/2"), &FIGURES);
        writer.close();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(read("access.log.1").contains("/a/1"));
        assert!(read("access.log").contains("/a/2"));
        assert_eq!(log.dropped_lines(), 0);
        log.write(&line("/a/3"), &FIGURES);
        assert_eq!(log.dropped_lines(), 1, "the writer is gone");
    }

    #[test]
    fn lines_that_a_full_disk_does_not_take_are_counted() {
        let (log, writer) = AccessLog::open(AccessLogTarget::File("/dev/full".into())).unwrap();
        for _ in 0..100 {
            log.write(&line("/a/1"), &FIGURES);
        }
        writer.close();
        assert_eq!(log.dropped_lines(), 100);
    }

    #[test]
    fn what_the_old_file_did_not_take_is_counted() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("access.log");
        let full: Box<dyn Write + Send> = Box::new(append(Path::new("/dev/full")).unwrap());
        let target = AccessLogTarget::File(path.clone());
        let mut writer = Writer { target, sink: BufWriter::new(full), dropped: Arc::default(), failing: false };
        writer.write(b"one\n");
        writer.reopen();
        assert!(writer.failing);
        writer.write(b"two\n");
        assert!(writer.failing, "it is not known yet");
        writer.flush();
        assert!(!writer.failing);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
        assert_eq!(writer.dropped.load(Ordering::Relaxed), 1);
    }
}
