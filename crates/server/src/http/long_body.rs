//! A body that is read from its connection when it is asked for, and what is lent to it for that.
//!
//! While such a body is there it has the connection's stream: nobody else reads. It gives it back when it has come to its end, or is dropped before that. It may be in another task
//! than the connection by then; so both ends have a way to wake each other.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::{BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWrite};

use super::transport::Transport;

/// What asks a client for the body that it has announced.
const GO_AHEAD: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Memory that is read into, in bytes: what one read brings should still be in a processor's caches when it is looked at. Reads shorter than it share it.
const BUFFER_BYTES: usize = 256 * 1024;
/// Free room in it before a read, in bytes.
const ROOM_BYTES_MIN: usize = 32 * 1024;

/// The stream of a connection, and what was read of it and is nobody's yet.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) transport: Transport,
    pub(super) input: BytesMut,
}

impl Wire {
    pub(super) fn new(transport: Transport) -> Self {
        Self { transport, input: BytesMut::new() }
    }

    /// Reads once, and says how many bytes came.
    pub(super) fn poll_more(&mut self, room: usize, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.input.capacity() - self.input.len() < room.div_ceil(2) {
            self.input.reserve(room);
        }
        // It keeps nothing between two looks at it.
        pin!(self.transport.read_buf(&mut self.input)).poll(cx)
    }
}

/// What a body left of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rest {
    pub(super) bytes: u64,
    /// Whether the client sends it unasked.
    pub(super) is_sent: bool,
}

/// Where what was lent comes back to. Dropped, it ends the body.
#[derive(Debug)]
pub(super) struct Lender(Arc<Mutex<Loan>>);

#[derive(Debug, Default)]
struct Loan {
    /// What came back.
    returned: Option<(Box<Wire>, Rest)>,
    /// Who waits for it.
    lender: Option<Waker>,
    /// The connection has ended.
    is_over: bool,
    /// Who reads the body.
    reader: Option<Waker>,
}

impl Lender {
    /// What was lent, once it is back.
    pub(super) fn poll_returned(&self, cx: &mut Context<'_>) -> Poll<(Box<Wire>, Rest)> {
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
        let mut loan = self.0.lock();
        loan.is_over = true;
        if let Some(reader) = loan.reader.take() {
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
}

impl LongBody {
    /// A body of `bytes`, at least one, that begins where the wire is. A client that `expects` is asked for it first.
    pub(super) fn lend(wire: Box<Wire>, bytes: u64, expects: bool) -> (Self, Lender) {
        let loan = Arc::<Mutex<Loan>>::default();
        let body = Self {
            wire: Some(wire),
            loan: Arc::clone(&loan),
            left: bytes,
            go_ahead: expects.then_some(GO_AHEAD),
            is_sent: !expects,
            buffer: BytesMut::new(),
        };
        (body, Lender(loan))
    }

    /// Bytes that are still to come.
    pub(super) fn left(&self) -> u64 {
        self.left
    }

    /// The next bytes; nothing at its end.
    pub(super) fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let Some(wire) = &mut self.wire else { return Poll::Ready(None) };
        let outcome = read(wire, &mut self.buffer, &mut self.go_ahead, self.left, cx);
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
            Ok(bytes) => {
                self.is_sent = true;
                self.left -= bytes.len() as u64;
            }
            // There is no rest to wait for.
            Err(_) => self.is_sent = false,
        }
        if outcome.is_err() || self.left == 0 {
            self.give_back();
        }
        Poll::Ready(Some(outcome))
    }

    fn give_back(&mut self) {
        let Some(wire) = self.wire.take() else { return };
        let rest = Rest { bytes: self.left, is_sent: self.is_sent };
        let mut loan = self.loan.lock();
        loan.returned = Some((wire, rest));
        if let Some(lender) = loan.lender.take() {
            lender.wake();
        }
    }
}

impl Drop for LongBody {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Up to `left` bytes of a body, but at least one: those that are there already, or what one read brings.
fn read(
    wire: &mut Wire,
    buffer: &mut BytesMut,
    go_ahead: &mut Option<&'static [u8]>,
    left: u64,
    cx: &mut Context<'_>,
) -> Poll<io::Result<Bytes>> {
    while let Some(text) = go_ahead {
        if text.is_empty() {
            ready!(Pin::new(&mut wire.transport).poll_flush(cx))?;
            *go_ahead = None;
        } else {
            let written = ready!(Pin::new(&mut wire.transport).poll_write(cx, text))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *text = &text[written..];
        }
    }
    let left = usize::try_from(left).unwrap_or(usize::MAX);
    if !wire.input.is_empty() {
        let bytes = wire.input.len().min(left);
        return Poll::Ready(Ok(wire.input.split_to(bytes).freeze()));
    }
    if buffer.capacity() < left.min(ROOM_BYTES_MIN) {
        buffer.reserve(left.min(BUFFER_BYTES));
    }
    // What follows the body is not read into its memory.
    let mut room = (&mut *buffer).limit(left);
    if ready!(pin!(wire.transport.read_buf(&mut room)).poll(cx))? == 0 {
        return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
    }
    Poll::Ready(Ok(buffer.split().freeze()))
}
