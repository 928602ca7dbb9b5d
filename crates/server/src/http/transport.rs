//! The stream under a connection, clear or TLS: notes what comes in, cuts a client that stops taking its answer.

use std::io;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use gabion_platform::PagePipe;
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::HttpLimits;
use super::activity::Activity;
use super::progress::{Stalled, Window};

#[derive(Debug)]
pub(super) enum Channel {
    Clear(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

#[derive(Debug)]
pub(super) struct Transport {
    channel: Channel,
    activity: Arc<Activity>,
    writing: Window,
    /// What was read and is to be read again, before all else.
    unread: BytesMut,
}

impl Transport {
    pub(super) fn new(channel: Channel, activity: Arc<Activity>, limits: &HttpLimits) -> Self {
        Self { channel, activity, writing: Window::new(limits), unread: BytesMut::new() }
    }

    /// Has these bytes read again.
    pub(super) fn unread(&mut self, bytes: BytesMut) {
        self.unread = bytes;
    }

    /// Whether [`Transport::poll_send_pages`] works: TLS has to see what is sent.
    pub(super) fn takes_pages(&self) -> bool {
        matches!(self.channel, Channel::Clear(_))
    }

    /// Whether a read may bring something, an end or an error included: so that nobody has to have room for one that does not.
    pub(super) fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &self.channel {
            Channel::Clear(stream) if self.unread.is_empty() => stream.poll_read_ready(cx).map(drop),
            // What TLS has decrypted is not to be seen from outside.
            Channel::Clear(_) | Channel::Tls(_) => Poll::Ready(()),
        }
    }

    /// Hands up to `len` bytes of a pipe on; says how many were taken.
    pub(super) fn poll_send_pages(
        &mut self,
        cx: &mut Context<'_>,
        pipe: &mut PagePipe,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        let Channel::Clear(stream) = &self.channel else {
            return Poll::Ready(Err(io::ErrorKind::Unsupported.into()));
        };
        let outcome = loop {
            match stream.poll_write_ready(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) => break Poll::Ready(Err(error)),
                Poll::Pending => break Poll::Pending,
            }
            match stream.try_io(Interest::WRITABLE, || pipe.send(stream.as_fd(), len)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                sent => break Poll::Ready(sent),
            }
        };
        self.written(cx, outcome, |&bytes| bytes as u64)
    }

    /// A TCP socket holds nothing back, so its flush is always done and says nothing of the client; TLS may wait here.
    fn flushed(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
        match &self.channel {
            Channel::Clear(_) => outcome,
            Channel::Tls(_) => self.written(cx, outcome, |()| 0),
        }
    }

    /// Counts a write that moved `bytes`, or a wait for the client.
    fn written<T>(
        &mut self,
        cx: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
        bytes: fn(&T) -> u64,
    ) -> Poll<io::Result<T>> {
        match outcome {
            Poll::Ready(Ok(done)) => {
                let bytes = bytes(&done);
                self.writing.moved(bytes);
                self.activity.wrote(bytes);
                Poll::Ready(Ok(done))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => {
                self.activity.waits_to_write();
                self.writing.poll_stalled(cx).map(|Stalled| Err(io::Error::new(io::ErrorKind::TimedOut, Stalled)))
            }
        }
    }
}

/// Runs an expression on whichever stream there is.
macro_rules! on_channel {
    ($transport:expr, $stream:ident => $do:expr) => {
        match &mut $transport.channel {
            Channel::Clear($stream) => $do,
            Channel::Tls(stream) => {
                let $stream = stream.as_mut();
                $do
            }
        }
    };
}

impl AsyncRead for Transport {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            let bytes = self.unread.len().min(buf.remaining());
            buf.put_slice(&self.unread[..bytes]);
            self.unread.advance(bytes);
            if self.unread.is_empty() {
                // Its memory is not needed again.
                self.unread = BytesMut::new();
            }
            self.activity.received();
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        let outcome = on_channel!(self, stream => Pin::new(stream).poll_read(cx, buf));
        if buf.filled().len() > before {
            self.activity.received();
        }
        outcome
    }
}

impl AsyncWrite for Transport {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = on_channel!(self, stream => Pin::new(stream).poll_write(cx, buf));
        self.written(cx, outcome, |&bytes| bytes as u64)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // The head of an answer without a body is a buffer by itself, which the kernel takes at less cost than a list of one.
        let outcome = match bufs {
            [buf] => on_channel!(self, stream => Pin::new(stream).poll_write(cx, buf)),
            _ => on_channel!(self, stream => Pin::new(stream).poll_write_vectored(cx, bufs)),
        };
        self.written(cx, outcome, |&bytes| bytes as u64)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.channel {
            Channel::Clear(stream) => stream.is_write_vectored(),
            Channel::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = on_channel!(self, stream => Pin::new(stream).poll_flush(cx));
        self.flushed(cx, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = on_channel!(self, stream => Pin::new(stream).poll_shutdown(cx));
        self.flushed(cx, outcome)
    }
}
