//! Delivers what is in the queue of a target: document by document, message by message, each until the target took it.
//!
//! A document goes when all of it was taken. So what was taken of one when the server ends comes again: each message has an id by which that
//! can be told, the same whenever it comes.

use std::time::Duration;

use bytes::Bytes;
use gabion_platform::Clock;
use gabion_store::Store;
use tokio_util::sync::CancellationToken;

use super::nats::Nats;
use super::queue::{Document, Line, Queue};
use super::target::{Destination, NotificationTarget};
use super::webhook::Webhook;

/// Time to the second attempt, and longest time between two.
const PAUSE: Duration = Duration::from_millis(500);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// What is sent at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// The same whenever it comes.
    pub(super) id: String,
    pub(super) body: Bytes,
    pub(super) events: u64,
}

/// The messages of a document, with at most so many records each.
fn messages(queue: &str, document: &Document, records: usize) -> Vec<Message> {
    let number = document.name.rsplit('/').next().unwrap_or_default();
    let mut messages = Vec::new();
    let mut gathered: Vec<Vec<u8>> = Vec::new();
    let gather = |gathered: &mut Vec<Vec<u8>>, messages: &mut Vec<Message>| {
        if gathered.is_empty() {
            return;
        }
        let events = gathered.len() as u64;
        let body = [b"{\"Records\":[", gathered.join(&b',').as_slice(), b"]}"].concat();
        gathered.clear();
        messages.push(Message { id: format!("{queue}-{number}-{}", messages.len()), body: body.into(), events });
    };
    for line in Line::read(&document.content) {
        match line {
            Line::Record(record) => {
                gathered.push(record);
                if gathered.len() >= records.max(1) {
                    gather(&mut gathered, &mut messages);
                }
            }
            Line::Message(body) => {
                gather(&mut gathered, &mut messages);
                let id = format!("{queue}-{number}-{}", messages.len());
                messages.push(Message { id, body: body.into(), events: 1 });
            }
        }
    }
    gather(&mut gathered, &mut messages);
    messages
}

/// Where messages go.
enum Sink {
    Webhook(Webhook),
    Nats(Box<Nats>),
}

impl Sink {
    fn of(target: &NotificationTarget) -> Self {
        let secret = target.secret.clone();
        match &target.destination {
            Destination::Webhook { url } => Sink::Webhook(Webhook::new(url, secret.as_ref())),
            Destination::Nats { servers, subject, tls } => {
                Sink::Nats(Box::new(Nats::new(servers, subject, *tls, secret)))
            }
        }
    }

    /// Sends messages in their order; gives how many were taken, and why no more were.
    async fn send(&mut self, messages: &[Message]) -> (usize, Result<(), String>) {
        match self {
            Sink::Webhook(webhook) => webhook.send(messages).await,
            Sink::Nats(nats) => nats.send(messages).await,
        }
    }
}

/// Delivers to one target.
pub(super) struct Courier<'a> {
    pub(super) queue: &'a Queue,
    pub(super) store: &'a Store,
    pub(super) clock: &'a dyn Clock,
    /// Most records of a message.
    pub(super) records: usize,
}

impl Courier<'_> {
    /// Delivers until it is told to stop.
    pub(super) async fn run(&self, target: &NotificationTarget, stop: &CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.deliver_all(Sink::of(target)) => {}
        }
    }

    async fn deliver_all(&self, mut sink: Sink) {
        let mut last: Option<String> = None;
        let mut pause = PAUSE;
        loop {
            let document = match self.queue.next(self.store, last.as_deref()).await {
                Ok(document) => document,
                Err(error) => {
                    tracing::warn!(to = self.queue.target, %error, "notifications can not be read; it is tried again");
                    pause = self.rest(pause).await;
                    continue;
                }
            };
            self.deliver(&mut sink, &messages(&self.queue.target, &document, self.records)).await;
            while let Err(error) = self.queue.forget(self.store, &document).await {
                tracing::warn!(to = self.queue.target, %error, "delivered notifications can not be deleted; it is tried again");
                pause = self.rest(pause).await;
            }
            (last, pause) = (Some(document.name), PAUSE);
        }
    }

    /// Sends messages until all were taken.
    async fn deliver(&self, sink: &mut Sink, mut messages: &[Message]) {
        let (mut pause, mut is_failing) = (PAUSE, false);
        loop {
            let (taken, outcome) = sink.send(messages).await;
            let delivered = messages.iter().take(taken).map(|message| message.events).sum();
            self.queue.figures.delivered.inc_by(delivered);
            messages = messages.get(taken..).unwrap_or_default();
            if taken > 0 {
                pause = PAUSE;
            }
            match outcome {
                Ok(()) => break,
                Err(error) => {
                    self.queue.figures.failures.inc();
                    if !is_failing {
                        is_failing = true;
                        tracing::warn!(
                            to = self.queue.target,
                            error,
                            "a target does not take notifications; they wait, and it is tried again"
                        );
                    }
                    pause = self.rest(pause).await;
                }
            }
        }
        if is_failing {
            tracing::info!(to = self.queue.target, "the target takes notifications again");
        }
    }

    /// Waits about as long, and gives the next, longer pause. Targets that fail together are not tried together.
    async fn rest(&self, pause: Duration) -> Duration {
        let of_name = self.queue.target.bytes().fold(7_u64, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        let percent = 75 + (self.clock.now_ms() ^ of_name) % 50;
        tokio::time::sleep(pause.mul_f64(percent as f64 / 100.0)).await;
        (pause * 2).min(PAUSE_MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_hold_records_in_their_order() {
        let document = Document {
            name: "notifications/queue/t/00000000000000000007".into(),
            written_ms: 0,
            content: Bytes::from_static(b"R1\nR2\nM3\nR4\nR5\nR6\n"),
        };
        let of = |records| {
            messages("t", &document, records)
                .into_iter()
                .map(|message| (message.id, String::from_utf8(message.body.to_vec()).unwrap(), message.events))
                .collect::<Vec<_>>()
        };
        let message = |at: usize, body: &str, events| (format!("t-00000000000000000007-{at}"), body.to_owned(), events);
        assert_eq!(
            of(2),
            [
                message(0, "{\"Records\":[1,2]}", 2),
                message(1, "3", 1),
                message(2, "{\"Records\":[4,5]}", 2),
                message(3, "{\"Records\":[6]}", 1)
            ]
        );
        assert_eq!(of(1).len(), 6);
        assert_eq!(of(0).len(), 6, "a message holds one record at least");
    }
}
