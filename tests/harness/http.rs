//! Plain HTTP/1.1 by hand: for the admin port, and for requests that no client would send.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

/// Longest wait for an answer: a server that hangs fails the test, it does not stop it.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// An answer, headers in lower case.
#[derive(Clone, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// Names in lower case, values as they came.
    pub headers: Vec<(String, String)>,
    /// The body, as it came (chunked bodies are not decoded).
    pub body: String,
}

impl Answer {
    /// The value of a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    /// Parses what a connection gave until it was closed. `None` when it is no answer.
    fn parse(bytes: &[u8]) -> Option<Self> {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text.split_once("\r\n\r\n")?;
        let mut lines = head.lines();
        let status = lines.next()?.split_whitespace().nth(1)?.parse().ok()?;
        let headers = lines
            .filter_map(|line| line.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        Some(Self { status, headers, body: body.to_owned() })
    }
}

/// Sends bytes and reads until the server closes the connection: the request should say `Connection: close`.
///
/// # Errors
/// When there is no connection, no answer in time, or what came is no answer.
pub async fn exchange(address: &str, request: &[u8]) -> io::Result<Answer> {
    let talk = async {
        let mut stream = TcpStream::connect(address).await?;
        // A server may answer and close before it has read everything: what it said still counts.
        let sent = stream.write_all(request).await;
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer).await;
        Answer::parse(&answer).ok_or_else(|| {
            sent.err().or(read.err()).unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no answer"))
        })
    };
    timeout(ANSWER_LIMIT, talk).await?
}

/// GET without credentials.
///
/// # Errors
/// As [`exchange`].
pub async fn get(address: &str, path: &str) -> io::Result<Answer> {
    exchange(address, format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").as_bytes()).await
}
