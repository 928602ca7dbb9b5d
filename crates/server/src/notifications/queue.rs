//! The queue of a target: events that are durable before what they tell of is acknowledged.
//!
//! It lies in the log, as documents of the site, each with the events of all requests that waited when it was written: one commit for all of
//! them. Their names ascend, so that they are read in the order in which they were written. Memory holds what is on its way into a document,
//! which is bounded, and counts.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use gabion_platform::Clock;
use gabion_store::{ConfigScope, Store, StoreError};
use parking_lot::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use super::figures::TargetFigures;
use super::target::NotificationTarget;
use super::{NotificationOptions, WhenFull};
use crate::error::{S3Code, S3Error};

/// What the names of documents begin with.
pub(super) const PREFIX: &str = "notifications/queue/";
/// Longest document in bytes: as long as the store takes.
const DOCUMENT_BYTES: usize = gabion_store::CONFIG_BYTES_MAX;
/// About as long is what one request offers at a time.
const PIECE_BYTES: usize = 64 << 10;
/// With as many pieces waiting for a document, which are 32 MiB at most, nothing is begun that would make more; only what has begun still adds its own.
const PIECES_MAX: usize = 512;
/// Documents that are read at a time when they are counted.
const PAGE_DOCUMENTS: usize = 4;
/// Names of documents count on by this much in a millisecond.
const NAMES_PER_MS: u64 = 1_000_000;
/// Longest time that a request waits until its events are durable.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time to the next attempt to write a document.
const PAUSE: Duration = Duration::from_millis(200);

/// An event as it lies in a queue: one line of JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A record, which is sent among others.
    Record(Vec<u8>),
    /// A message of its own.
    Message(Vec<u8>),
}

impl Line {
    const RECORD: u8 = b'R';
    const MESSAGE: u8 = b'M';

    /// Appends it to a document.
    fn write(&self, document: &mut Vec<u8>) {
        let (kind, json) = match self {
            Line::Record(json) => (Self::RECORD, json),
            Line::Message(json) => (Self::MESSAGE, json),
        };
        document.push(kind);
        document.extend_from_slice(json);
        document.push(b'\n');
    }

    /// The lines of a document; what is none (a newer program's) is left out.
    pub(super) fn read(document: &[u8]) -> impl Iterator<Item = Line> {
        document.split(|byte| *byte == b'\n').filter_map(|line| match line.split_first()? {
            (&Self::RECORD, json) => Some(Line::Record(json.to_vec())),
            (&Self::MESSAGE, json) => Some(Line::Message(json.to_vec())),
            _ => None,
        })
    }
}

/// Lines on their way into a document.
struct Piece {
    lines: Vec<u8>,
    events: u64,
    /// Told when it is durable.
    kept: oneshot::Sender<()>,
}

/// Pieces on their way, for who writes them.
pub(super) struct Pieces(UnboundedReceiver<Piece>);

/// What waits in the log.
#[derive(Clone, Copy, Debug, Default)]
struct Backlog {
    events: u64,
    bytes: u64,
}

/// A document of a queue.
#[derive(Debug)]
pub(super) struct Document {
    pub(super) name: String,
    /// When it was written, Unix time in milliseconds.
    pub(super) written_ms: u64,
    pub(super) content: Bytes,
}

impl Document {
    fn of((name, content): (String, Bytes)) -> Self {
        let written_ms = number(&name) / NAMES_PER_MS;
        Self { name, written_ms, content }
    }

    fn events(&self) -> u64 {
        self.content.iter().filter(|byte| **byte == b'\n').count() as u64
    }
}

/// The number in the name of a document.
fn number(name: &str) -> u64 {
    name.rsplit('/').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The queue of a target.
pub(super) struct Queue {
    pub(super) target: String,
    prefix: String,
    accounts: BTreeSet<String>,
    bytes_max: u64,
    when_full: WhenFull,
    pieces: UnboundedSender<Piece>,
    /// Pieces that wait for a document.
    waiting: AtomicUsize,
    backlog: Mutex<Backlog>,
    /// Whether documents can not be written: then nothing more is begun that would need one.
    is_stuck: AtomicBool,
    added: Notify,
    pub(super) figures: TargetFigures,
}

impl Queue {
    pub(super) fn new(target: &NotificationTarget, options: &NotificationOptions) -> (Self, Pieces) {
        let (pieces, receiver) = unbounded_channel();
        let queue = Self {
            target: target.name.clone(),
            prefix: format!("{PREFIX}{}/", target.name),
            accounts: target.accounts.clone(),
            bytes_max: options.queue_bytes,
            when_full: options.when_full,
            pieces,
            waiting: AtomicUsize::new(0),
            backlog: Mutex::default(),
            is_stuck: AtomicBool::new(false),
            added: Notify::new(),
            figures: options.figures.of(&target.name),
        };
        (queue, Pieces(receiver))
    }

    /// Whether it takes events of buckets of this account.
    pub(super) fn is_for(&self, account: Option<&str>) -> bool {
        self.accounts.is_empty() || account.is_some_and(|account| self.accounts.contains(account))
    }

    /// Whether there will be room for an event of what is about to be done.
    ///
    /// # Errors
    /// `SlowDown` when the queue is full and nothing may be lost, or when too much is on its way; `ServiceUnavailable` when it can not be written.
    pub(super) fn admit(&self) -> Result<(), S3Error> {
        if self.is_full() && self.when_full == WhenFull::Refuse {
            let message = "Too many event notifications wait for a destination that does not take them.";
            return Err(S3Error::with(S3Code::SlowDown, message));
        }
        // Nobody writes any more: the server is about to stop.
        if self.is_stuck.load(Ordering::Relaxed) || self.pieces.is_closed() {
            return Err(not_kept());
        }
        if self.waiting.load(Ordering::Relaxed) >= PIECES_MAX { Err(S3Code::SlowDown.into()) } else { Ok(()) }
    }

    fn is_full(&self) -> bool {
        self.backlog.lock().bytes >= self.bytes_max
    }

    /// Adds events; they are durable when it returns.
    ///
    /// # Errors
    /// `ServiceUnavailable` when that could not be told in time: they may be durable yet, and are tried further.
    pub(super) async fn add(&self, lines: Vec<Line>) -> Result<(), S3Error> {
        if self.is_full() && self.when_full == WhenFull::Drop {
            self.figures.dropped.inc_by(lines.len() as u64);
            return Ok(());
        }
        let mut waited_for = Vec::new();
        let mut lines = lines.iter().peekable();
        while lines.peek().is_some() {
            let (mut piece, mut events) = (Vec::new(), 0);
            while piece.len() < PIECE_BYTES
                && let Some(line) = lines.next()
            {
                line.write(&mut piece);
                events += 1;
            }
            let (kept, durable) = oneshot::channel();
            self.waiting.fetch_add(1, Ordering::Relaxed);
            self.pieces.send(Piece { lines: piece, events, kept }).map_err(|_| not_kept())?;
            waited_for.push(durable);
        }
        let all = futures::future::try_join_all(waited_for);
        match tokio::time::timeout(PATIENCE, all).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(not_kept()),
        }
    }

    /// Counts what is there from before, and gives the number that names go on from.
    ///
    /// # Errors
    /// Those of the index.
    pub(super) async fn count(&self, store: &Store) -> Result<u64, StoreError> {
        let (mut last, mut found) = (None, Backlog::default());
        loop {
            let page = store.list_site_configs(&self.prefix, last.as_deref(), PAGE_DOCUMENTS)?;
            if page.is_empty() {
                break;
            }
            for document in page.into_iter().map(Document::of) {
                found.events += document.events();
                found.bytes += document.content.len() as u64;
                last = Some(document.name);
            }
            tokio::task::yield_now().await;
        }
        if found.events > 0 {
            tracing::info!(to = self.target, events = found.events, "notifications wait from before");
        }
        self.changed(|backlog| {
            backlog.events += found.events;
            backlog.bytes += found.bytes;
        });
        Ok(last.as_deref().map_or(0, number))
    }

    fn changed(&self, change: impl FnOnce(&mut Backlog)) {
        let mut backlog = self.backlog.lock();
        change(&mut backlog);
        self.figures.waiting.set(i64::try_from(backlog.events).unwrap_or(i64::MAX));
        self.figures.waiting_bytes.set(i64::try_from(backlog.bytes).unwrap_or(i64::MAX));
    }

    /// Writes documents until it is told to stop, and what is on its way then.
    pub(super) async fn write(
        &self,
        store: &Store,
        clock: &dyn Clock,
        Pieces(mut pieces): Pieces,
        mut last: u64,
        stop: &CancellationToken,
    ) {
        loop {
            let first = tokio::select! {
                biased;
                piece = pieces.recv() => piece,
                () = stop.cancelled() => None,
            };
            let Some(first) = first else { return };
            let (mut document, mut events) = (first.lines, first.events);
            let mut waiting = vec![first.kept];
            // A piece is longer than it should be by a line at most, and a line is far shorter than a piece.
            while document.len() + 2 * PIECE_BYTES <= DOCUMENT_BYTES
                && let Ok(piece) = pieces.try_recv()
            {
                document.extend_from_slice(&piece.lines);
                events += piece.events;
                waiting.push(piece.kept);
            }
            last = (last + 1).max(clock.now_ms().saturating_mul(NAMES_PER_MS));
            let bytes = document.len() as u64;
            // Before anybody can see it, so that nobody takes off what was not added.
            self.changed(|backlog| {
                backlog.events += events;
                backlog.bytes += bytes;
            });
            if !self.keep(store, last, document.into(), stop).await {
                return;
            }
            self.figures.queued.inc_by(events);
            self.added.notify_one();
            self.waiting.fetch_sub(waiting.len(), Ordering::Relaxed);
            for kept in waiting {
                // Whoever does not wait any more was told that it is not known.
                let _ = kept.send(());
            }
        }
    }

    /// Writes a document, again and again until it is durable; whether it is.
    async fn keep(&self, store: &Store, number: u64, document: Bytes, stop: &CancellationToken) -> bool {
        let name = format!("{}{number:020}", self.prefix);
        loop {
            match store.put_config(ConfigScope::Site, &name, document.clone()).await {
                Ok(()) => {
                    self.is_stuck.store(false, Ordering::Relaxed);
                    return true;
                }
                Err(error) => {
                    if !self.is_stuck.swap(true, Ordering::Relaxed) {
                        tracing::warn!(to = self.target, %error, "notifications can not be stored; it is tried again");
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = stop.cancelled() => return false,
            }
        }
    }

    /// The document that comes after `after`, once there is one.
    ///
    /// # Errors
    /// Those of the index.
    pub(super) async fn next(&self, store: &Store, after: Option<&str>) -> Result<Document, StoreError> {
        loop {
            if let Some(found) = store.list_site_configs(&self.prefix, after, 1)?.pop() {
                let document = Document::of(found);
                self.figures.oldest_s.set(i64::try_from(document.written_ms / 1000).unwrap_or(i64::MAX));
                return Ok(document);
            }
            self.figures.oldest_s.set(0);
            self.added.notified().await;
        }
    }

    /// Forgets a document, all of which was delivered.
    ///
    /// # Errors
    /// Those of the store.
    pub(super) async fn forget(&self, store: &Store, document: &Document) -> Result<(), StoreError> {
        store.delete_config(ConfigScope::Site, &document.name).await?;
        self.changed(|backlog| {
            backlog.events = backlog.events.saturating_sub(document.events());
            backlog.bytes = backlog.bytes.saturating_sub(document.content.len() as u64);
        });
        Ok(())
    }
}

fn not_kept() -> S3Error {
    let message =
        "The request may have taken effect, but its event notification could not be stored. Please try again.";
    S3Error::with(S3Code::ServiceUnavailable, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_hold_lines() {
        let lines = [Line::Record(b"{\"a\":1}".to_vec()), Line::Message(b"{}".to_vec())];
        let mut document = Vec::new();
        lines.iter().for_each(|line| line.write(&mut document));
        assert_eq!(document, b"R{\"a\":1}\nM{}\n");
        assert_eq!(Line::read(&document).collect::<Vec<_>>(), lines);
        assert_eq!(Line::read(b"X{}\n\nR{}").collect::<Vec<_>>(), [Line::Record(b"{}".to_vec())]);
        let document = Document::of(("notifications/queue/t/00000001700000000123".into(), document.into()));
        assert_eq!((document.written_ms, document.events()), (1_700_000, 2));
    }
}
