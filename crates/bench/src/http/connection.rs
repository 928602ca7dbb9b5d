//! One connection that a worker owns, opened again when it broke.

use std::{
    io::{self, IoSlice},
    sync::Arc,
    time::Duration,
};

use gabion_platform::unpace_loopback;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    net::{TcpSocket, TcpStream, lookup_host},
};
use tokio_rustls::TlsConnector;

use super::{
    chunked::Chunked,
    endpoint::Endpoint,
    response::{Head, HttpError, Reader},
    tls::Stream,
};
use crate::{clock::Stamp, content::Window};

/// The body of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Body<'a> {
    /// Bytes at hand, maybe none.
    Bytes(&'a [u8]),
    /// An object's content.
    Content(Window<'a>),
    /// The same in chunks.
    Chunked(Chunked<'a>),
}

impl<'a> Body<'a> {
    pub(crate) const EMPTY: Self = Body::Bytes(&[]);

    pub(crate) fn len(&self) -> u64 {
        match self {
            Body::Bytes(bytes) => bytes.len() as u64,
            Body::Content(window) => window.remaining(),
            Body::Chunked(chunked) => chunked.len(),
        }
    }

    /// The next bytes, in one piece; empty at the end.
    fn next(&mut self) -> &'a [u8] {
        match self {
            Body::Bytes(bytes) => std::mem::take(bytes),
            Body::Content(window) => window.next_slice(),
            Body::Chunked(chunked) => chunked.next(),
        }
    }
}

/// Most bytes of a request that may have been written to a connection that the server has closed: more are taken by somebody.
const UNHEARD_BYTES_MAX: u64 = 1 << 20;
/// Longest time until such a connection is known to be closed.
const UNHEARD_MAX: Duration = Duration::from_secs(1);

/// A worker's connection.
pub(crate) struct Connection {
    endpoint: Arc<Endpoint>,
    tls: Option<TlsConnector>,
    stream: Option<Stream>,
    reader: Reader,
    /// The connection has answered a request before.
    used: bool,
    /// The answer being read is the last one.
    closing: bool,
    /// A request was begun whose answer has not come: whoever waited for it has gone.
    waiting: bool,
    /// Requests that were sent once more and not yet asked for.
    retries: u64,
}

impl Connection {
    pub(crate) fn new(endpoint: Arc<Endpoint>, tls: Option<TlsConnector>) -> Self {
        let reader = Reader::new();
        Self { endpoint, tls, stream: None, reader, used: false, closing: false, waiting: false, retries: 0 }
    }

    pub(crate) fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Closes the connection: the next request needs a new one.
    pub(crate) fn close(&mut self) {
        self.stream = None;
    }

    /// How many requests were sent once more since this was asked last.
    pub(crate) fn take_retries(&mut self) -> u64 {
        std::mem::take(&mut self.retries)
    }

    /// Value of the last answer's `ETag`; empty if it had none.
    pub(crate) fn etag(&self) -> &str {
        self.reader.etag()
    }

    /// Opens the connection unless it is open.
    ///
    /// # Errors
    /// When the endpoint can not be reached, or TLS is not agreed on.
    pub(crate) async fn open(&mut self) -> io::Result<()> {
        if self.stream.is_some() {
            return Ok(());
        }
        let stream = connect(&self.endpoint.address).await?;
        stream.set_nodelay(true)?;
        self.stream = Some(match (&self.endpoint.tls_name, &self.tls) {
            (Some(name), Some(tls)) => Stream::Tls(Box::new(tls.connect(name.clone(), stream).await?)),
            _ => Stream::Plain(stream),
        });
        self.reader.reset();
        (self.used, self.closing, self.waiting) = (false, false, false);
        Ok(())
    }

    /// Sends a request and reads the head of its answer. `bodiless`: it is a HEAD.
    ///
    /// A server may close a connection that it thinks idle just when a request comes in: then the request is sent once more, on a new one, and counted. Nothing
    /// is heard of such a request, little of it is written, and it is over soon: whatever else breaks a connection is an error. After one it is closed.
    ///
    /// # Errors
    /// When the endpoint can not be reached, the connection breaks, or the answer is not understood.
    pub(crate) async fn exchange(&mut self, head: &[u8], body: Body<'_>, bodiless: bool) -> Result<Head, HttpError> {
        if !self.reader.is_at_end() || !self.reader.is_empty() || self.closing || self.waiting {
            self.close();
        }
        loop {
            self.open().await?;
            self.waiting = true;
            let (begin, mut written) = (Stamp::now(), 0);
            let result = self.exchange_once(head, body, bodiless, &mut written).await;
            match result {
                Ok(answer) => {
                    (self.used, self.closing, self.waiting) = (true, answer.close, false);
                    return Ok(answer);
                }
                Err(error) => {
                    self.close();
                    let is_closed = matches!(&error, HttpError::Closed)
                        || matches!(&error, HttpError::Io(error) if is_reset(error));
                    let is_unheard = !self.reader.has_heard()
                        && written <= UNHEARD_BYTES_MAX
                        && Stamp::now().since(begin) <= UNHEARD_MAX;
                    if !(self.used && is_closed && is_unheard) {
                        return Err(error);
                    }
                    self.retries += 1;
                }
            }
        }
    }

    async fn exchange_once(
        &mut self,
        head: &[u8],
        body: Body<'_>,
        bodiless: bool,
        written: &mut u64,
    ) -> Result<Head, HttpError> {
        let stream = self.stream.as_mut().expect("the connection was opened");
        if let Err(error) = send(stream, head, body, written).await {
            // A server that refuses a body answers, and closes while it is being sent: its answer says why.
            return match self.reader.head(stream, bodiless).await {
                Ok(answer) => Ok(Head { close: true, ..answer }),
                Err(_) => Err(error.into()),
            };
        }
        self.reader.head(stream, bodiless).await
    }

    /// The next bytes of the answer's body; empty at its end.
    ///
    /// # Errors
    /// When the connection breaks or the body is not understood; the connection is not used again.
    pub(crate) async fn body(&mut self) -> Result<&[u8], HttpError> {
        match &mut self.stream {
            Some(stream) => self.reader.body(stream).await,
            None => Ok(&[]),
        }
    }
}

fn is_reset(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::BrokenPipe
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionAborted
            // TLS without a farewell.
            | io::ErrorKind::UnexpectedEof
    )
}

/// Most pieces that are written with one system call: what a short object in chunks has, with its head.
const PIECES_MAX: usize = 8;
/// Bytes that are enough for one.
const PIECES_BYTES: usize = 256 * 1024;

/// Writes head and body, several pieces with one system call; adds to `sum` what it has written, whatever becomes of it.
async fn send(
    stream: &mut (impl AsyncWrite + Unpin),
    head: &[u8],
    mut body: Body<'_>,
    sum: &mut u64,
) -> io::Result<()> {
    let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
    pieces[0] = IoSlice::new(head);
    let (mut count, mut bytes) = (1, head.len());
    loop {
        while count < PIECES_MAX && bytes < PIECES_BYTES {
            let piece = body.next();
            if piece.is_empty() {
                break;
            }
            pieces[count] = IoSlice::new(piece);
            (count, bytes) = (count + 1, bytes + piece.len());
        }
        if count == 0 {
            return stream.flush().await;
        }
        let written = stream.write_vectored(&pieces[..count]).await?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        *sum += written as u64;
        let mut left = &mut pieces[..count];
        IoSlice::advance_slices(&mut left, written);
        let left = left.len();
        pieces.copy_within(count - left..count, 0);
        (count, bytes) = (left, bytes - written);
    }
}

/// Connects to the first address of a host that answers.
async fn connect(address: &str) -> io::Result<TcpStream> {
    let mut failed = None;
    for address in lookup_host(address).await? {
        let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
        unpace_loopback(&socket, address.ip());
        match socket.connect(address).await {
            Ok(stream) => return Ok(stream),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host has no address")))
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncReadExt, net::TcpListener};

    use super::*;
    use crate::content::Content;

    const HEAD: &[u8] = b"GET / HTTP/1.1\r\n\r\n";

    /// Answers `answers[i]` requests on the connection of number `i`, and closes it when one more has come.
    async fn serve(listener: TcpListener, answers: &[usize]) {
        for count in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            for answered in 0..=*count {
                let mut request = [0; HEAD.len()];
                if stream.read_exact(&mut request).await.is_err() || answered == *count {
                    break;
                }
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            }
        }
    }

    #[tokio::test]
    async fn however_little_is_taken_at_a_time_all_is_written() {
        let content = Content::new(1);
        let window = content.of(3, 200_000);
        let frames = "10000\r\n\r\n10000\r\n\r\n10000\r\n\r\nd40\r\n\r\n0\r\n\r\n";
        for body in
            [Body::EMPTY, Body::Bytes(b"abc"), Body::Content(window), Body::Chunked(Chunked::new(window, frames))]
        {
            for taken in [1, 7, 65_536, 1 << 20] {
                let (mut one, mut other) = tokio::io::duplex(taken);
                let (mut written, mut expected, mut next) = (0, HEAD.to_vec(), body);
                loop {
                    let piece = next.next();
                    if piece.is_empty() {
                        break;
                    }
                    expected.extend_from_slice(piece);
                }
                let mut came = Vec::new();
                let (sent, read) = tokio::join!(
                    async {
                        let sent = send(&mut one, HEAD, body, &mut written).await;
                        drop(one);
                        sent
                    },
                    other.read_to_end(&mut came)
                );
                sent.unwrap();
                read.unwrap();
                assert!(came == expected, "{body:?}, {taken} bytes at a time");
                assert_eq!(written, expected.len() as u64);
            }
        }
    }

    #[tokio::test]
    async fn a_request_that_is_sent_once_more_is_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let endpoint = Arc::new(Endpoint::parse(&url).unwrap());
        let requests = async {
            let mut connection = Connection::new(endpoint, None);
            let mut seen = Vec::new();
            for _ in 0..4 {
                let status = connection.exchange(HEAD, Body::EMPTY, false).await.map(|head| head.status);
                seen.push((status.ok(), connection.take_retries()));
            }
            seen
        };
        let (seen, ()) = tokio::join!(requests, serve(listener, &[2, 1, 0]));
        // A new connection that is closed is a failure: nothing says that it was idle.
        assert_eq!(seen, [(Some(200), 0), (Some(200), 0), (Some(200), 1), (None, 1)]);
    }

    #[tokio::test]
    async fn what_breaks_within_a_request_is_no_idle_connection_that_was_closed() {
        let large = vec![0; 8 << 20];
        // What the server reads of the second request, what it answers, and after how long it breaks the connection: by a reset, since something is not read.
        for (reads, answer, pause_ms, body, sent_again) in [
            (1, "", 0, Body::EMPTY, true),
            (1, "HTTP/1.1 100 Continue\r\n\r\n", 0, Body::EMPTY, false),
            (1, "HTTP/1.1 200", 0, Body::EMPTY, false),
            (1, "", 1100, Body::EMPTY, false),
            (2 << 20, "", 0, Body::Bytes(&large), false),
        ] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let url = format!("http://{}", listener.local_addr().unwrap());
            let endpoint = Arc::new(Endpoint::parse(&url).unwrap());
            let server = async {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.read_exact(&mut [0; HEAD.len()]).await.unwrap();
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
                stream.read_exact(&mut vec![0; reads]).await.unwrap();
                stream.write_all(answer.as_bytes()).await.unwrap();
                tokio::time::sleep(Duration::from_millis(pause_ms)).await;
                drop(stream);
                serve(listener, &[1]).await;
            };
            let requests = async {
                let mut connection = Connection::new(endpoint, None);
                connection.exchange(HEAD, Body::EMPTY, false).await.unwrap();
                let outcome = connection.exchange(HEAD, body, false).await;
                (outcome.is_ok(), connection.take_retries())
            };
            tokio::select! {
                found = requests => assert_eq!(found, (sent_again, u64::from(sent_again)), "{answer:?} after {pause_ms} ms"),
                () = server => unreachable!("it waits for one more request"),
            }
        }
    }
}
