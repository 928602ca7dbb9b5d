//! What a connection is doing, and until when it may.
//!
//! One atomic word per fact, written by the connection's own task, so that a request costs no timer: a watchdog wakes at
//! most once per shortest timeout and looks. What streams of HTTP/2 have handed over is noted under a lock, by tasks of their own.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::HttpLimits;

/// Why a connection is closed by its watchdog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expired {
    /// No request for too long.
    Idle,
    /// A request's head takes too long.
    Header,
    /// The client takes nothing of its answers.
    Stalled,
}

#[derive(Debug)]
pub(super) struct Activity {
    accepted: Instant,
    in_flight: AtomicU32,
    /// Whether a request has come in yet.
    served: AtomicBool,
    http2: AtomicBool,
    /// Since when there is no request in flight, in ms after `accepted`.
    idle_since_ms: AtomicU64,
    /// When the first byte after that came in, in ms after `accepted`; `NEVER` if none has.
    head_since_ms: AtomicU64,
    /// Whether a write waits for the client, who has limits of his own for that.
    is_writing: AtomicBool,
    unsent: Mutex<Pieces>,
    /// Bytes that were written, on HTTP/2: of a long piece much may have gone out.
    written: AtomicU64,
}

/// Pieces of HTTP/2 answers that were handed over and not written yet. What their client gives no window for waits where no write does.
#[derive(Debug, Default)]
struct Pieces {
    /// Since when each waits, in ms after the connection was accepted, by number: the first one is the oldest.
    waiting: BTreeMap<u64, u64>,
    next: u64,
}

const NEVER: u64 = u64::MAX;
/// As many times as long as a client of HTTP/1 may one of HTTP/2 take nothing: clients open their windows by a mebibyte at a time.
const WINDOW_PATIENCE: u64 = 10;
/// As many times as long as that may one piece of an answer wait while others are taken.
const PIECE_PATIENCE: u64 = 12;

impl Activity {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            accepted: Instant::now(),
            in_flight: AtomicU32::new(0),
            served: AtomicBool::new(false),
            http2: AtomicBool::new(false),
            idle_since_ms: AtomicU64::new(0),
            // The first head is due from the start on, so that a mute connection does not get the idle timeout.
            head_since_ms: AtomicU64::new(0),
            is_writing: AtomicBool::new(false),
            unsent: Mutex::default(),
            written: AtomicU64::new(0),
        })
    }

    /// A request's head is complete. It ends when the guard is dropped.
    pub(super) fn begin(self: &Arc<Self>, http2: bool) -> InFlight {
        self.http2.store(http2, Ordering::Relaxed);
        self.served.store(true, Ordering::Relaxed);
        self.in_flight.fetch_add(1, Ordering::AcqRel);
        InFlight(Arc::clone(self))
    }

    pub(super) fn is_http2(&self) -> bool {
        self.http2.load(Ordering::Relaxed)
    }

    /// Whether a request is in flight.
    pub(super) fn is_busy(&self) -> bool {
        self.in_flight.load(Ordering::Acquire) > 0
    }

    /// Bytes have come in.
    pub(super) fn received(&self) {
        if self.in_flight.load(Ordering::Acquire) == 0 && self.head_since_ms.load(Ordering::Relaxed) == NEVER {
            self.head_since_ms.store(self.now_ms(), Ordering::Relaxed);
        }
    }

    /// Something has gone out. What is left of an answer when nobody asks for more of it is no idleness; answers to a client's pings, on HTTP/2, are.
    pub(super) fn wrote(&self, bytes: u64) {
        let waited = self.is_writing.swap(false, Ordering::Relaxed);
        let http2 = self.is_http2();
        if http2 {
            self.written.fetch_add(bytes, Ordering::Relaxed);
        }
        if bytes > 0 && !self.is_busy() && (waited || !http2) {
            self.moved();
        }
    }

    /// It is idle from now on, if there is no request.
    fn moved(&self) {
        self.idle_since_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// The client has to take something before more can go out.
    pub(super) fn waits_to_write(&self) {
        self.is_writing.store(true, Ordering::Relaxed);
    }

    /// A piece of an answer of HTTP/2 that counts until it was written.
    pub(super) fn unsent(self: &Arc<Self>, piece: Bytes) -> Bytes {
        if piece.is_empty() {
            return piece;
        }
        let now_ms = self.now_ms();
        let mut pieces = self.unsent.lock();
        let number = pieces.next;
        pieces.next += 1;
        pieces.waiting.insert(number, now_ms);
        drop(pieces);
        Bytes::from_owner(Unsent { piece, number, activity: Arc::clone(self) })
    }

    /// Resolves when the connection should be closed.
    pub(super) async fn watch(&self, limits: &HttpLimits) -> Expired {
        let mut window = Unread::default();
        loop {
            let now_ms = self.now_ms();
            if window.is_stalled(self, now_ms, limits) {
                return Expired::Stalled;
            }
            let check_ms = match self.deadline_ms(now_ms, limits) {
                Due::At(at_ms, expired) if at_ms <= now_ms => return expired,
                Due::At(at_ms, _) => at_ms.min(now_ms + millis(limits.header_timeout)),
                Due::Busy => {
                    now_ms + millis(limits.header_timeout.min(limits.idle_timeout).min(limits.progress_timeout))
                }
            };
            tokio::time::sleep_until(self.accepted + Duration::from_millis(check_ms)).await;
        }
    }

    fn deadline_ms(&self, now_ms: u64, limits: &HttpLimits) -> Due {
        if self.is_busy() || self.is_writing.load(Ordering::Relaxed) || !self.unsent.lock().waiting.is_empty() {
            return Due::Busy;
        }
        let head_ms = self.head_since_ms.load(Ordering::Relaxed);
        // On HTTP/2 any frame (a ping, a window update) is a byte; there only idleness is measured.
        let measures_head = !(self.is_http2() && self.served.load(Ordering::Relaxed));
        if head_ms != NEVER && measures_head {
            return Due::At(head_ms.saturating_add(millis(limits.header_timeout)), Expired::Header);
        }
        let idle_ms = self.idle_since_ms.load(Ordering::Relaxed).min(now_ms);
        Due::At(idle_ms.saturating_add(millis(limits.idle_timeout)), Expired::Idle)
    }

    fn now_ms(&self) -> u64 {
        millis(self.accepted.elapsed())
    }
}

/// A piece of an answer that is handed over.
struct Unsent {
    piece: Bytes,
    number: u64,
    activity: Arc<Activity>,
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.activity.unsent.lock().waiting.remove(&self.number);
        self.activity.moved();
    }
}

/// What was sent since a moment at which pieces waited.
#[derive(Default)]
struct Unread {
    since_ms: u64,
    written: u64,
}

impl Unread {
    /// Whether pieces wait, and too little was sent for too long; or one of them for much too long, whatever becomes of the others.
    fn is_stalled(&mut self, activity: &Activity, now_ms: u64, limits: &HttpLimits) -> bool {
        let pieces = activity.unsent.lock();
        let Some((_, &oldest_ms)) = pieces.waiting.first_key_value() else { return false };
        let patience_ms = millis(limits.progress_timeout).saturating_mul(WINDOW_PATIENCE);
        if now_ms.saturating_sub(oldest_ms) >= patience_ms.saturating_mul(PIECE_PATIENCE) {
            return true;
        }
        let wanted = limits.progress_bytes_min.max(1).saturating_mul(pieces.waiting.len() as u64);
        let written = activity.written.load(Ordering::Relaxed);
        if oldest_ms > self.since_ms || written.wrapping_sub(self.written) >= wanted {
            *self = Self { since_ms: now_ms, written };
            return false;
        }
        now_ms.saturating_sub(self.since_ms) >= patience_ms
    }
}

enum Due {
    /// A request is in flight, or an answer under way: bodies and answers have limits of their own.
    Busy,
    At(u64, Expired),
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 4).max(1)
}

/// A request in flight, until its answer has been sent or given up.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Activity>);

impl InFlight {
    pub(super) fn activity(&self) -> &Arc<Activity> {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let activity = &self.0;
        activity.idle_since_ms.store(activity.now_ms(), Ordering::Relaxed);
        activity.head_since_ms.store(NEVER, Ordering::Relaxed);
        activity.in_flight.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> HttpLimits {
        let (header_timeout, idle_timeout) = (Duration::from_secs(10), Duration::from_secs(60));
        HttpLimits { header_timeout, idle_timeout, ..HttpLimits::default() }
    }

    async fn expires(activity: &Activity) -> (Expired, u64) {
        let expired = activity.watch(&limits()).await;
        (expired, activity.accepted.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_mute_connection_gets_the_header_timeout() {
        assert_eq!(expires(&Activity::new()).await, (Expired::Header, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn between_requests_the_idle_timeout_counts_then_the_head() {
        let activity = Activity::new();
        drop(activity.begin(false));
        assert_eq!(expires(&activity).await, (Expired::Idle, 60));

        let activity = Activity::new();
        drop(activity.begin(false));
        tokio::time::advance(Duration::from_secs(45)).await;
        activity.received();
        tokio::time::advance(Duration::from_secs(3)).await;
        activity.received();
        assert_eq!(expires(&activity).await, (Expired::Header, 55));
    }

    #[tokio::test(start_paused = true)]
    async fn frames_of_http2_do_not_count_as_heads() {
        let activity = Activity::new();
        drop(activity.begin(true));
        activity.received();
        assert_eq!(expires(&activity).await, (Expired::Idle, 60));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_in_flight_may_last() {
        let activity = Activity::new();
        let request = activity.begin(false);
        let watched = Arc::clone(&activity);
        let watch = tokio::spawn(async move { expires(&watched).await });
        tokio::time::sleep(Duration::from_secs(5000)).await;
        assert!(!watch.is_finished());
        drop(request);
        assert_eq!(watch.await.unwrap(), (Expired::Idle, 5060));
    }
}
