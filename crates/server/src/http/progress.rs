//! Minimum progress: a slow client may take as long as it needs, a stalled one is cut.
//!
//! Only time in which the server waits for the client counts; time in which the server itself is busy (waiting for memory or
//! for a target) is never the client's fault.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use gabion_store::BodyPiece;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep};

use super::{HttpLimits, ReadInto};

/// The client moved too few bytes in the time that it was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stalled;

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client stopped sending or receiving")
    }
}

impl std::error::Error for Stalled {}

/// Accounts waiting against bytes moved. The timer is made at the first wait: what arrives at once costs none.
#[derive(Debug)]
pub(super) struct Window {
    timeout: Duration,
    bytes_min: u64,
    bytes: u64,
    /// Waiting time left in this window, while not waiting.
    left: Duration,
    /// When the window ends, while waiting.
    deadline: Option<Instant>,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Window {
    pub(super) fn new(limits: &HttpLimits) -> Self {
        let timeout = limits.progress_timeout;
        Self {
            timeout,
            bytes_min: limits.progress_bytes_min.max(1),
            bytes: 0,
            left: timeout,
            deadline: None,
            sleep: None,
        }
    }

    /// To be called when the client has nothing for us: ready when it has stalled.
    pub(super) fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<Stalled> {
        if self.deadline.is_none() {
            let deadline = Instant::now() + self.left;
            self.deadline = Some(deadline);
            match &mut self.sleep {
                Some(sleep) => sleep.as_mut().reset(deadline),
                None => self.sleep = Some(Box::pin(tokio::time::sleep_until(deadline))),
            }
        }
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().poll(cx).map(|()| Stalled),
            None => Poll::Pending,
        }
    }

    /// To be called when `bytes` have moved.
    pub(super) fn moved(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
        let waited_until = self.deadline.take();
        if self.bytes >= self.bytes_min {
            self.bytes = 0;
            self.left = self.timeout;
        } else if let Some(deadline) = waited_until {
            self.left = deadline.saturating_duration_since(Instant::now());
        }
    }
}

/// A request body that ends with [`Stalled`] when its client stops sending, and counts what it has sent.
pub struct RequestBody<B = super::Arriving> {
    inner: B,
    /// Beside it, as bodies are handed on and on; nothing if all of it is here.
    window: Option<Box<Window>>,
    received: super::observe::ByteCount,
}

impl RequestBody {
    pub(super) fn new(inner: super::Arriving, limits: &HttpLimits, received: super::observe::ByteCount) -> Self {
        if inner.is_here() { Self { inner, window: None, received } } else { Self::awaited(inner, limits, received) }
    }
}

impl<B> RequestBody<B> {
    fn awaited(inner: B, limits: &HttpLimits, received: super::observe::ByteCount) -> Self {
        Self { inner, window: Some(Box::new(Window::new(limits))), received }
    }

    /// What came, counted, or that nothing comes any more.
    fn watched<T, E: Into<Box<dyn std::error::Error + Send + Sync>>>(
        &mut self,
        cx: &mut Context<'_>,
        next: Poll<Option<Result<T, E>>>,
        bytes: fn(&T) -> usize,
    ) -> Poll<Option<Result<T, Box<dyn std::error::Error + Send + Sync>>>> {
        match next {
            Poll::Ready(next) => {
                let bytes = next.as_ref().and_then(|next| next.as_ref().ok()).map_or(0, bytes) as u64;
                if let Some(window) = &mut self.window {
                    window.moved(bytes);
                }
                self.received.add(bytes);
                Poll::Ready(next.map(|next| next.map_err(Into::into)))
            }
            Poll::Pending => match &mut self.window {
                Some(window) => window.poll_stalled(cx).map(|stalled| Some(Err(stalled.into()))),
                None => Poll::Pending,
            },
        }
    }
}

impl<B> fmt::Debug for RequestBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequestBody").finish_non_exhaustive()
    }
}

impl<B> Body for RequestBody<B>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = Pin::new(&mut self.inner).poll_frame(cx);
        self.watched(cx, frame, |frame| frame.data_ref().map_or(0, Bytes::len))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B> ReadInto for RequestBody<B>
where
    B: ReadInto,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn poll_into(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        room: &mut [u8],
    ) -> Poll<Option<Result<BodyPiece, Self::Error>>> {
        let piece = Pin::new(&mut self.inner).poll_into(cx, room);
        self.watched(cx, piece, BodyPiece::len)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use http_body_util::BodyExt;

    use super::*;

    fn limits() -> HttpLimits {
        HttpLimits { progress_timeout: Duration::from_secs(30), progress_bytes_min: 100, ..HttpLimits::default() }
    }

    /// Sends a frame of the given length after each pause, then nothing for ever.
    struct Trickle {
        frames: Vec<(u64, usize)>,
        sleep: Option<Pin<Box<Sleep>>>,
    }

    impl Body for Trickle {
        type Data = Bytes;
        type Error = std::convert::Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            let Some(&(pause_s, len)) = self.frames.first() else { return Poll::Pending };
            let sleep = self.sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep(Duration::from_secs(pause_s))));
            std::task::ready!(sleep.as_mut().poll(cx));
            self.sleep = None;
            self.frames.remove(0);
            Poll::Ready(Some(Ok(Frame::data(Bytes::from(vec![0; len])))))
        }
    }

    async fn bytes_before_stall(frames: Vec<(u64, usize)>, busy: Duration) -> usize {
        let trickle = Trickle { frames, sleep: None };
        let mut body = RequestBody::awaited(trickle, &limits(), super::super::observe::ByteCount::default());
        let mut bytes = 0;
        loop {
            match body.frame().await.expect("it never ends by itself") {
                Ok(frame) => bytes += frame.into_data().unwrap().len(),
                Err(error) => {
                    assert!(error.is::<Stalled>());
                    return bytes;
                }
            }
            tokio::time::sleep(busy).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_clients_that_move_too_little_are_cut() {
        let table = [
            // (pauses in seconds and bytes, how long the server is busy after each, bytes that pass)
            (vec![], 0, 0),
            (vec![(29, 100), (29, 100), (29, 100)], 0, 300),
            (vec![(29, 99), (2, 1)], 0, 99),
            (vec![(10, 40), (10, 40), (9, 40), (29, 100)], 0, 220),
            (vec![(31, 100)], 0, 0),
            // The server's own time does not count.
            (vec![(10, 1), (10, 1), (9, 1)], 1000, 3),
            (vec![(10, 1), (10, 1), (11, 1)], 1000, 2),
        ];
        for (frames, busy_s, expected) in table {
            let shown = format!("{frames:?} {busy_s}");
            assert_eq!(bytes_before_stall(frames, Duration::from_secs(busy_s)).await, expected, "{shown}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_window_without_a_wait_never_ends() {
        let mut window = Window::new(&limits());
        window.moved(1);
        tokio::time::advance(Duration::from_secs(3600)).await;
        window.moved(1);
        let stalled = poll_fn(|cx| Poll::Ready(window.poll_stalled(cx).is_ready())).await;
        assert!(!stalled);
    }
}
