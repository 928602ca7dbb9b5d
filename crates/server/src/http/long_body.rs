//! A body that is read from its connection when it is asked for, and what is lent to it for that.
//!
//! While such a body is there it has the connection's stream: nobody else reads. It gives it back when it has come to its end, or is dropped before that. It may be in another task
//! than the connection by then; so both ends have a way to wake each other.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, BufMut, BytesMut};
use gabion_store::BodyPiece;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};

use super::transport::Transport;

/// What asks a client for the body that it has announced.
const GO_AHEAD: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Memory that a body is read into at first, in bytes. Each read that fills it doubles it, up to what a connection may buffer.
const BUFFER_BYTES_MIN: usize = 32 * 1024;
/// Most bytes of a body that are thrown away. From 1 or 2 MiB on SDKs ask before they send; bodies in chunks are a little longer than what is in them.
pub(super) const DISCARDED_BYTES_MAX: u64 = 4 << 20;
/// Free room before a read of a head, in bytes.
pub(super) const READ_BYTES: usize = 8 * 1024;
/// Most memory that a connection keeps for its next request, in bytes: a head and a small body.
const KEPT_BYTES_MAX: usize = 16 * 1024;
/// Most free room before a read of what is thrown away, in bytes.
const DISCARDED_ROOM_BYTES: u64 = 64 * 1024;

/// The stream of a connection, and what was read of it and is nobody's yet.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) transport: Transport,
    pub(super) input: BytesMut,
    /// Most bytes that there was to be room for in the memory of `input`.
    room_bytes: usize,
    /// Bytes of a body that nobody wants: they are thrown away as they come.
    skipping: u64,
    /// The client has sent its last byte amid a body, or behind a request that waits for its turn. It may still wait for answers.
    is_ended: bool,
}

impl Wire {
    pub(super) fn new(transport: Transport) -> Self {
        Self { transport, input: BytesMut::new(), room_bytes: 0, skipping: 0, is_ended: false }
    }

    /// Reads once, and says how many bytes came.
    pub(super) fn poll_more(&mut self, room: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let room = room.max(self.skipping.min(DISCARDED_ROOM_BYTES) as usize);
        if self.input.is_empty() && self.room_bytes > KEPT_BYTES_MAX {
            // It is used again and again, and a connection may stay for long.
            (self.input, self.room_bytes) = (BytesMut::new(), 0);
        }
        if self.input.capacity() - self.input.len() < room.div_ceil(2) {
            self.input.reserve(room);
            self.room_bytes = self.room_bytes.max(self.input.len() + room);
        }
        // It keeps nothing between two looks at it.
        let bytes = ready!(pin!(self.transport.read_buf(&mut self.input)).poll(cx))?;
        self.is_ended |= bytes == 0 && self.skipping > 0;
        self.skip();
        Poll::Ready(Ok(bytes))
    }

    /// Whether the client has closed the connection. What it sent instead is kept, up to `room` bytes.
    pub(super) fn is_gone(&mut self, room: usize, cx: &mut Context<'_>) -> bool {
        while !self.is_ended && self.input.len() < room {
            // The body of the request that is served lies in the memory that is free again for what follows it.
            if self.transport.poll_readable(cx).is_pending() {
                return false;
            }
            match self.poll_more(READ_BYTES, cx) {
                Poll::Ready(Ok(1..)) => {}
                Poll::Ready(Ok(0)) => {
                    self.is_ended |= !self.input.is_empty();
                    return !self.is_ended;
                }
                Poll::Ready(Err(_)) => return !self.is_ended,
                Poll::Pending => return false,
            }
        }
        false
    }

    /// Whether something is to be thrown away still.
    pub(super) fn skips(&self) -> bool {
        self.skipping > 0
    }

    fn skip(&mut self) {
        let bytes = self.skipping.min(self.input.len() as u64);
        self.input.advance(bytes as usize);
        self.skipping -= bytes;
    }

    /// Has the rest of a body thrown away, before anything of its answer is sent; `is_sent` if the client sends it in any case.
    fn leave(&mut self, bytes: u64, is_sent: bool) -> After {
        let is_here = self.input.len() as u64 >= bytes;
        if !is_here && (!is_sent || bytes > DISCARDED_BYTES_MAX) {
            return After::Rest;
        }
        self.skipping = bytes;
        self.skip();
        After::Next
    }

    /// Throws away what is to be thrown away and has come. Ready when there is no more of it to come, and says whether that is so because all has.
    pub(super) fn poll_skipped(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        while self.skipping > 0 {
            if !matches!(ready!(self.poll_more(READ_BYTES, cx)), Ok(1..)) {
                return Poll::Ready(false);
            }
        }
        Poll::Ready(true)
    }

    /// Throws away what comes until the client closes the connection, but no more than is reasonable: bytes that nobody has read when it is closed here cost the client its answer.
    pub(super) async fn linger(&mut self) {
        self.skipping = DISCARDED_BYTES_MAX;
        self.skip();
        poll_fn(|cx| self.poll_skipped(cx)).await;
    }
}

/// What follows a request with a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum After {
    /// The next one, as far as is known.
    Next,
    /// What could not be told from the rest of its body: the connection ends with its answer.
    Rest,
    /// Nothing: reading its body failed. The client may still take its answer.
    Failed,
    /// Not even an answer: it would not be understood behind the part of what asks for the body that was sent.
    Garbled,
}

/// Where what was lent comes back to. Dropped, it ends the body.
#[derive(Debug)]
pub(super) struct Lender(Arc<Mutex<Loan>>);

#[derive(Debug, Default)]
struct Loan {
    /// What came back.
    returned: Option<(Box<Wire>, After)>,
    /// Who waits for it.
    lender: Option<Waker>,
    /// The connection has ended.
    is_over: bool,
    /// Who reads the body.
    reader: Option<Waker>,
}

impl Lender {
    /// What was lent, once it is back, and what follows.
    pub(super) fn poll_returned(&self, cx: &mut Context<'_>) -> Poll<(Box<Wire>, After)> {
        let mut loan = self.0.lock();
        match loan.returned.take() {
            Some(returned) => Poll::Ready(returned),
            None => {
                loan.lender = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Drop for Lender {
    fn drop(&mut self) {
        let (returned, reader) = {
            let mut loan = self.0.lock();
            loan.is_over = true;
            (loan.returned.take(), loan.reader.take())
        };
        // The body may stay for a while after it has ended.
        drop(returned);
        if let Some(reader) = reader {
            reader.wake();
        }
    }
}

/// A body of a known length that is on its way.
#[derive(Debug)]
pub(super) struct LongBody {
    /// Nothing when it was given back.
    wire: Option<Box<Wire>>,
    loan: Arc<Mutex<Loan>>,
    /// What has not been read yet.
    left: u64,
    /// What is to be sent before anything is read, if that has not happened.
    go_ahead: Option<&'static [u8]>,
    is_sent: bool,
    buffer: BytesMut,
    /// Bytes of the buffer when it is made next, and at most.
    buffer_bytes: usize,
    buffer_bytes_max: usize,
}

impl LongBody {
    /// A body of `bytes`, at least one, that begins where the wire is. A client that `expects` is asked for it first.
    pub(super) fn lend(wire: Box<Wire>, bytes: u64, expects: bool, buffer_bytes_max: usize) -> (Self, Lender) {
        let loan = Arc::<Mutex<Loan>>::default();
        let body = Self {
            wire: Some(wire),
            loan: Arc::clone(&loan),
            left: bytes,
            go_ahead: expects.then_some(GO_AHEAD),
            is_sent: !expects,
            buffer: BytesMut::new(),
            buffer_bytes: BUFFER_BYTES_MIN.min(buffer_bytes_max),
            buffer_bytes_max,
        };
        (body, Lender(loan))
    }

    /// Bytes that are still to come.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// The next bytes; nothing at its end. Those that have not been read yet are read into `room`, if there is any.
    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<Option<io::Result<BodyPiece>>> {
        if self.wire.is_none() {
            return Poll::Ready(None);
        }
        let outcome = self.read(cx, room);
        let outcome = {
            let mut loan = self.loan.lock();
            match outcome {
                _ if loan.is_over => Err(io::ErrorKind::ConnectionAborted.into()),
                Poll::Ready(outcome) => outcome,
                Poll::Pending => {
                    loan.reader = Some(cx.waker().clone());
                    return Poll::Pending;
                }
            }
        };
        match &outcome {
            Ok(piece) => {
                self.is_sent = true;
                self.left -= piece.len() as u64;
                if self.left == 0 {
                    self.give_back(false);
                }
            }
            Err(_) => self.give_back(true),
        }
        Poll::Ready(Some(outcome))
    }

    /// Some bytes, but at least one: those that are there already, or what one read brings.
    fn read(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<io::Result<BodyPiece>> {
        let Some(wire) = &mut self.wire else { return Poll::Ready(Err(io::ErrorKind::NotConnected.into())) };
        while let Some(text) = &mut self.go_ahead {
            if text.is_empty() {
                ready!(Pin::new(&mut wire.transport).poll_flush(cx))?;
                (self.go_ahead, self.is_sent) = (None, true);
            } else {
                let written = ready!(Pin::new(&mut wire.transport).poll_write(cx, text))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                *text = &text[written..];
            }
        }
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        if !wire.input.is_empty() {
            let bytes = wire.input.len().min(left).min(self.buffer_bytes_max);
            return Poll::Ready(Ok(BodyPiece::Bytes(wire.input.split_to(bytes).freeze())));
        }
        if !room.is_empty() {
            // What follows the body is not read with it.
            let bytes = left.min(room.len());
            let mut room = ReadBuf::new(&mut room[..bytes]);
            ready!(Pin::new(&mut wire.transport).poll_read(cx, &mut room))?;
            let bytes = room.filled().len();
            let read = if bytes == 0 { Err(io::ErrorKind::UnexpectedEof.into()) } else { Ok(BodyPiece::InRoom(bytes)) };
            return Poll::Ready(read);
        }
        let bytes = left.min(self.buffer_bytes);
        if self.buffer.capacity() < bytes.div_ceil(2) && !self.buffer.try_reclaim(bytes) {
            self.buffer = BytesMut::with_capacity(bytes);
        }
        let room = bytes.min(self.buffer.capacity());
        let bytes = ready!(pin!(wire.transport.read_buf(&mut (&mut self.buffer).limit(room))).poll(cx))?;
        if bytes == 0 {
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        if bytes == room {
            // More is there, or comes as fast.
            self.buffer_bytes = (2 * self.buffer_bytes).min(self.buffer_bytes_max);
        }
        Poll::Ready(Ok(BodyPiece::Bytes(self.buffer.split().freeze())))
    }

    fn give_back(&mut self, failed: bool) {
        let Some(mut wire) = self.wire.take() else { return };
        let after = match self.go_ahead {
            Some(text) if !text.is_empty() && text.len() < GO_AHEAD.len() => After::Garbled,
            _ if failed => After::Failed,
            _ => wire.leave(self.left, self.is_sent),
        };
        wire.is_ended |= failed;
        let lender = {
            let mut loan = self.loan.lock();
            if loan.is_over {
                return;
            }
            loan.returned = Some((wire, after));
            loan.lender.take()
        };
        if let Some(lender) = lender {
            lender.wake();
        }
    }
}

impl Drop for LongBody {
    fn drop(&mut self) {
        self.give_back(false);
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;
    use tokio::net::{TcpListener, TcpStream};

    use super::super::HttpLimits;
    use super::super::activity::Activity;
    use super::super::transport::Channel;
    use super::*;

    #[tokio::test]
    async fn requests_on_a_connection_are_read_into_the_same_memory() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let channel = Channel::Clear(listener.accept().await.unwrap().0);
        let mut wire = Wire::new(Transport::new(channel, Activity::new(), &HttpLimits::default()));
        let mut places = Vec::new();
        for _ in 0..5 {
            client.write_all(&[7; 5000]).await.unwrap();
            while wire.input.len() < 5000 {
                assert!(poll_fn(|cx| wire.poll_more(READ_BYTES, cx)).await.unwrap() > 0);
            }
            places.push(wire.input.as_ptr());
            let body = wire.input.split_to(5000).freeze();
            // While it is served nothing comes, and its body keeps what is left of the memory from being enough for the next one.
            assert!(poll_fn(|cx| Poll::Ready(!wire.is_gone(READ_BYTES, cx))).await);
            assert!(wire.input.capacity() < READ_BYTES / 2, "{}", wire.input.capacity());
            drop(body);
        }
        assert!(places.windows(2).all(|two| two[0] == two[1]), "{places:?}");
        // What a longer one took is not kept.
        client.write_all(&[7; 60_000]).await.unwrap();
        while wire.input.len() < 60_000 {
            assert!(poll_fn(|cx| wire.poll_more(60_000, cx)).await.unwrap() > 0);
        }
        drop(wire.input.split_to(60_000));
        assert!(poll_fn(|cx| Poll::Ready(wire.poll_more(READ_BYTES, cx).is_pending())).await);
        assert!(wire.input.try_reclaim(READ_BYTES) && !wire.input.try_reclaim(KEPT_BYTES_MAX + 1));
        drop(client);
        assert!(poll_fn(|cx| if wire.is_gone(READ_BYTES, cx) { Poll::Ready(true) } else { Poll::Pending }).await);
    }
}
