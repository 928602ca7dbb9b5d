//! Reading answers: heads by `httparse`, bodies of known length, chunked, or until the connection ends.
//!
//! What comes back is judged as strictly as it must be to know where an answer ends; a connection on which that is not known is not used again.

use tokio::io::{AsyncRead, AsyncReadExt};

/// First size of the read buffer in bytes: a head and a small body.
const BUFFER_BYTES: usize = 16 * 1024;
/// Size that it grows to for large bodies: few system calls, and still in the second-level cache.
const BUFFER_BYTES_MAX: usize = 256 * 1024;
/// Most headers of an answer.
const HEADERS_MAX: usize = 64;

/// Why an answer could not be read.
#[derive(Debug)]
pub(crate) enum HttpError {
    /// The connection failed.
    Io(std::io::Error),
    /// The peer closed the connection before the first byte of an answer.
    Closed,
    /// The peer closed the connection within an answer.
    CutShort,
    /// What came is not HTTP/1.1.
    Malformed(&'static str),
}

impl std::fmt::Display for HttpError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HttpError::Io(error) => error.fmt(f),
            HttpError::Closed => f.write_str("closed without an answer"),
            HttpError::CutShort => f.write_str("closed within an answer"),
            HttpError::Malformed(what) => write!(f, "malformed answer: {what}"),
        }
    }
}

impl std::error::Error for HttpError {}

impl From<std::io::Error> for HttpError {
    fn from(error: std::io::Error) -> Self {
        HttpError::Io(error)
    }
}

/// The head of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) status: u16,
    /// Bytes of the body, if the head says so.
    pub(crate) content_length: Option<u64>,
    /// The connection can not be used again.
    pub(crate) close: bool,
}

/// How the end of a body is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    /// So many bytes are still to come.
    Length(u64),
    /// A chunk's size line comes next; `true` if the line end of a chunk's data comes before it.
    ChunkSize(bool),
    /// So many bytes of this chunk are still to come.
    Chunk(u64),
    /// Trailers, up to an empty line.
    Trailers,
    /// Whatever comes until the connection ends.
    UntilClose,
}

/// The bytes that came in, and what they belong to.
pub(super) struct Reader {
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    framing: Framing,
    /// Something has come of the answer whose head was waited for last.
    has_heard: bool,
    /// Value of the last answer's `ETag`; empty if it had none.
    etag: String,
}

impl Reader {
    pub(super) fn new() -> Self {
        let (framing, etag) = (Framing::Length(0), String::new());
        Self { buffer: vec![0; BUFFER_BYTES], begin: 0, end: 0, framing, has_heard: false, etag }
    }

    /// Forgets what came on the connection before.
    pub(super) fn reset(&mut self) {
        (self.begin, self.end, self.framing) = (0, 0, Framing::Length(0));
    }

    pub(super) fn etag(&self) -> &str {
        &self.etag
    }

    /// Whether the last answer was read to its end.
    pub(super) fn is_at_end(&self) -> bool {
        self.framing == Framing::Length(0)
    }

    /// Whether any byte has come of the answer whose head was waited for last, be it of one before it (100 Continue).
    pub(super) fn has_heard(&self) -> bool {
        self.has_heard
    }

    /// Whether nothing has come that was not asked for.
    pub(super) fn is_empty(&self) -> bool {
        self.begin == self.end
    }

    /// Reads more; returns the number of bytes, 0 at the end of the connection.
    async fn fill(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<usize, HttpError> {
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
            if self.end == self.buffer.len() {
                return Err(HttpError::Malformed("a head or a line is longer than the buffer"));
            }
        }
        let count = stream.read(&mut self.buffer[self.end..]).await?;
        self.end += count;
        self.has_heard |= count > 0;
        Ok(count)
    }

    /// Reads the head of the answer to a request; `bodiless` if the request was a HEAD.
    pub(super) async fn head(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        bodiless: bool,
    ) -> Result<Head, HttpError> {
        self.has_heard = false;
        loop {
            if self.begin < self.end
                && let Some(head) = self.parse_head(bodiless)?
            {
                if (100..200).contains(&head.status) {
                    continue;
                }
                return Ok(head);
            }
            if self.fill(stream).await? == 0 {
                return Err(if self.begin == self.end { HttpError::Closed } else { HttpError::CutShort });
            }
        }
    }

    fn parse_head(&mut self, bodiless: bool) -> Result<Option<Head>, HttpError> {
        let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
        let mut response = httparse::Response::new(&mut headers);
        let bytes = &self.buffer[self.begin..self.end];
        let length = match response.parse(bytes) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(HttpError::Malformed("its head is not that of HTTP/1.1")),
        };
        let status = response.code.unwrap_or_default();
        let (mut content_length, mut chunked, mut close) = (None, false, response.version == Some(0));
        self.etag.clear();
        for header in response.headers.iter() {
            let (name, value) = (header.name, header.value);
            if name.eq_ignore_ascii_case("content-length") {
                let number = std::str::from_utf8(value).ok().and_then(|text| text.trim().parse::<u64>().ok());
                let number = number.ok_or(HttpError::Malformed("Content-Length is no number"))?;
                if content_length.is_some_and(|before| before != number) {
                    return Err(HttpError::Malformed("two different Content-Lengths"));
                }
                content_length = Some(number);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                chunked = value.trim_ascii().to_ascii_lowercase().ends_with(b"chunked");
                if !chunked {
                    return Err(HttpError::Malformed("a Transfer-Encoding other than chunked"));
                }
            } else if name.eq_ignore_ascii_case("connection") {
                let tokens = value.split(|byte| *byte == b',');
                close |= tokens.into_iter().any(|token| token.trim_ascii().eq_ignore_ascii_case(b"close"));
            } else if name.eq_ignore_ascii_case("etag")
                && let Ok(text) = std::str::from_utf8(value)
            {
                self.etag.push_str(text);
            }
        }
        self.begin += length;
        self.framing = if bodiless || matches!(status, 100..200 | 204 | 304) {
            Framing::Length(0)
        } else if chunked {
            Framing::ChunkSize(false)
        } else {
            content_length.map_or(Framing::UntilClose, Framing::Length)
        };
        close |= self.framing == Framing::UntilClose;
        Ok(Some(Head { status, content_length, close }))
    }

    /// The next bytes of the body; empty at its end.
    pub(super) async fn body(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> Result<&[u8], HttpError> {
        loop {
            let moved_on = match self.framing {
                Framing::Length(0) => return Ok(&[]),
                Framing::ChunkSize(after_data) => self.chunk_size(after_data)?,
                Framing::Trailers => self.trailer()?,
                _ if self.begin < self.end => return Ok(self.take()),
                Framing::Length(rest) | Framing::Chunk(rest) => {
                    self.make_room_for(rest);
                    false
                }
                Framing::UntilClose => false,
            };
            if moved_on {
                continue;
            }
            if self.fill(stream).await? == 0 {
                if self.framing == Framing::UntilClose {
                    self.framing = Framing::Length(0);
                    continue;
                }
                return Err(HttpError::CutShort);
            }
        }
    }

    /// A larger buffer for a large body; called when the buffer is empty.
    fn make_room_for(&mut self, rest: u64) {
        if rest > BUFFER_BYTES as u64 && self.buffer.len() < BUFFER_BYTES_MAX {
            self.buffer.resize(BUFFER_BYTES_MAX, 0);
        }
    }

    fn take(&mut self) -> &[u8] {
        let here = self.end - self.begin;
        let take = match &mut self.framing {
            Framing::Length(rest) | Framing::Chunk(rest) => {
                let take = usize::try_from(*rest).unwrap_or(usize::MAX).min(here);
                *rest -= take as u64;
                take
            }
            _ => here,
        };
        if self.framing == Framing::Chunk(0) {
            self.framing = Framing::ChunkSize(true);
        }
        let begin = self.begin;
        self.begin += take;
        &self.buffer[begin..begin + take]
    }

    /// Reads a chunk's size line; false if it is not here as a whole.
    fn chunk_size(&mut self, after_data: bool) -> Result<bool, HttpError> {
        if after_data {
            match &self.buffer[self.begin..self.end] {
                [b'\r', b'\n', ..] => {
                    self.begin += 2;
                    self.framing = Framing::ChunkSize(false);
                }
                [] | [b'\r'] => return Ok(false),
                _ => return Err(HttpError::Malformed("no line end after a chunk")),
            }
        }
        match httparse::parse_chunk_size(&self.buffer[self.begin..self.end]) {
            Ok(httparse::Status::Complete((length, size))) => {
                self.begin += length;
                self.framing = if size == 0 { Framing::Trailers } else { Framing::Chunk(size) };
                Ok(true)
            }
            Ok(httparse::Status::Partial) => Ok(false),
            Err(_) => Err(HttpError::Malformed("the size of a chunk is no number")),
        }
    }

    /// Passes over one trailer, or the empty line after the last; false if it is not here as a whole.
    fn trailer(&mut self) -> Result<bool, HttpError> {
        let here = &self.buffer[self.begin..self.end];
        let Some(length) = here.iter().position(|byte| *byte == b'\n') else { return Ok(false) };
        if here[..length].trim_ascii().is_empty() {
            self.framing = Framing::Length(0);
        }
        self.begin += length + 1;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads one answer that arrives in pieces of `step` bytes.
    async fn read(answer: &[u8], step: usize, bodiless: bool) -> Result<(Head, Vec<u8>, bool), HttpError> {
        let (mut theirs, mut ours) = tokio::io::duplex(step);
        let answer = answer.to_vec();
        let writer = tokio::spawn(async move {
            // The reader may give up before it has read all.
            let _ = tokio::io::AsyncWriteExt::write_all(&mut theirs, &answer).await;
        });
        let mut reader = Reader::new();
        let head = reader.head(&mut ours, bodiless).await?;
        let mut body = Vec::new();
        loop {
            let bytes = reader.body(&mut ours).await?;
            if bytes.is_empty() {
                break;
            }
            body.extend_from_slice(bytes);
        }
        let rest = reader.is_at_end() && reader.is_empty();
        drop(ours);
        writer.await.unwrap();
        Ok((head, body, rest))
    }

    #[tokio::test]
    async fn answers_in_pieces_of_any_size() {
        let rows: [(&[u8], u16, &[u8], bool); 7] = [
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: \"a\"\r\n\r\nhello", 200, b"hello", false),
            (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b"", false),
            (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 200, b"", false),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n1;x=y\r\n!\r\n0\r\n\r\n",
                200,
                b"hello!",
                false,
            ),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Sum: 1\r\n\r\n", 200, b"", false),
            (
                b"HTTP/1.1 503 Slow Down\r\nConnection: keep-alive, Close\r\nContent-Length: 2\r\n\r\nno",
                503,
                b"no",
                true,
            ),
            (b"HTTP/1.1 200 OK\r\n\r\nuntil the end", 200, b"until the end", true),
        ];
        for (answer, status, body, close) in rows {
            for step in [1, 2, 3, 7, 1000] {
                let (head, read, rest) = read(answer, step, false).await.unwrap();
                let text = String::from_utf8_lossy(answer);
                assert_eq!((head.status, head.close, rest), (status, close, true), "{text} by {step}");
                assert_eq!(read, body, "{text} by {step}");
            }
        }
    }

    #[tokio::test]
    async fn a_head_request_has_no_body_whatever_its_length() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4096\r\n\r\n";
        let (head, body, rest) = read(answer, 1000, true).await.unwrap();
        assert_eq!((head.content_length, body.len(), rest), (Some(4096), 0, true));
    }

    #[tokio::test]
    async fn what_is_wrong_is_told_apart() {
        let rows: [(&[u8], &str); 8] = [
            (b"", "closed without"),
            (b"HTTP/1.1 200 O", "closed within"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", "closed within"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "closed within"),
            (b"SSH-2.0-OpenSSH\r\n\r\n", "malformed"),
            (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello!", "two different"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhelloXX", "line end"),
            (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "size of a chunk"),
        ];
        for (answer, expected) in rows {
            let error = read(answer, 1000, false).await.unwrap_err().to_string();
            assert!(error.contains(expected), "{}: {error}", String::from_utf8_lossy(answer));
        }
    }

    #[tokio::test]
    async fn a_body_larger_than_the_buffer_comes_whole() {
        let body: Vec<u8> = (0..3_000_000_u32).map(|index| index.to_le_bytes()[index as usize % 3]).collect();
        let mut answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
        answer.extend_from_slice(&body);
        assert!(read(&answer, 100_000, false).await.unwrap().1 == body);
    }
}
