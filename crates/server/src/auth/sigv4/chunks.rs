//! aws-chunked bodies: framing off, signatures verified, as the bytes arrive.
//!
//! A chunk is `hex-size[;chunk-signature=hex]\r\n bytes \r\n`; the last one is empty, and trailers may follow it. Bytes pass as they come, those of a signed chunk
//! too, as those of a body do that is signed as a whole: nothing is done with a body before its end, and behind a chunk whose signature
//! is wrong there is an error instead. The hashes of all chunks of which something has arrived are taken together, as two cost little more than one. All but the last chunk must have a certain size, as on AWS. Source: AWS, "Signature Calculations for the Authorization Header: Transferring
//! Payload in Multiple Chunks" and "Working with trailing headers".

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use gabion_erasure::Sha256;
use gabion_store::{BodyError, BodyPiece, BodySource};
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;
use subtle::ConstantTimeEq;

use super::{ChunkSigning, SERVICE, from_hex, to_hex};
use crate::auth::EMPTY_SHA256;

/// Longest line with a chunk's size, in bytes.
const LINE_BYTES_MAX: usize = 1024;
/// Longest trailers, in bytes.
const TRAILER_BYTES_MAX: usize = 16 * 1024;
/// Most trailers.
const TRAILERS_MAX: usize = 100;
/// Least bytes of a chunk that others follow.
const CHUNK_BYTES_MIN: usize = 8192;
/// Bytes of a signed chunk that is read to where it is wanted: of a shorter one the next is expected in what comes, and their hashes are taken together.
const ALONE_BYTES_MIN: usize = 512 * 1024;
const CHUNK_ALGORITHM: &str = "AWS4-HMAC-SHA256-PAYLOAD";
const SIGNATURE_FIELD: &[u8] = b";chunk-signature=";
const TRAILER_SIGNATURE: &str = "x-amz-trailer-signature";

/// The trailers, once the body was read to its end.
pub(super) type Trailers = Arc<Mutex<Option<HeaderMap>>>;

/// Where in the framing the next byte stands.
enum State {
    Size,
    /// In a chunk, with so many bytes left.
    Passing(usize),
    /// Behind a chunk, with so many bytes of the line break seen.
    Break(usize),
    Trailers,
    Ended,
    /// What came was told to be wrong; more of it is no better.
    Failed,
}

/// A signed chunk.
struct Signed {
    /// Of its bytes until now, and of those that have arrived.
    sha256: Sha256,
    /// As it was sent.
    signature: [u8; 64],
    /// Whether others are expected in what comes.
    is_short: bool,
}

/// The bytes of an aws-chunked body.
pub(crate) struct Chunks {
    source: Box<dyn BodySource>,
    /// Nothing: no chunk is signed.
    signing: Option<Box<ChunkSigning>>,
    has_trailers: bool,
    /// The chunk under way, if it is signed.
    signed: Option<Signed>,
    /// Of the signed chunks behind it, as far as they have arrived.
    ahead: VecDeque<Sha256>,
    /// How many chunks have begun.
    number: u64,
    /// The size of the chunk before, if none may follow it.
    small: Option<usize>,
    state: State,
    /// Arrived, not looked at.
    arrived: Bytes,
    /// A line that is not there in full, or the trailers.
    line: Vec<u8>,
    trailers: Trailers,
}

impl Chunks {
    /// Takes the framing off `source`.
    pub(crate) fn new(source: Box<dyn BodySource>, signing: Option<Box<ChunkSigning>>, has_trailers: bool) -> Self {
        Self {
            source,
            signing,
            has_trailers,
            signed: None,
            ahead: VecDeque::new(),
            number: 0,
            small: None,
            state: State::Size,
            arrived: Bytes::new(),
            line: Vec::new(),
            trailers: Trailers::default(),
        }
    }

    /// Where the trailers will be.
    pub(crate) fn trailers(&self) -> Trailers {
        Arc::clone(&self.trailers)
    }

    /// Goes on with what has arrived.
    ///
    /// Returns bytes to give out, or nothing when more must arrive.
    fn step(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            if self.arrived.is_empty() {
                return Ok(None);
            }
            match &mut self.state {
                State::Size => {
                    let Some(end) = self.arrived.iter().position(|&byte| byte == b'\n') else {
                        let rest = mem::take(&mut self.arrived);
                        self.extend_line(&rest)?;
                        return Ok(None);
                    };
                    let rest = self.arrived.split_to(end + 1);
                    self.extend_line(&rest)?;
                    self.state = self.begin_chunk()?;
                    self.line.clear();
                }
                State::Passing(left) => {
                    let bytes = self.arrived.split_to(self.arrived.len().min(*left));
                    self.passed(bytes.len());
                    return Ok(Some(bytes));
                }
                State::Break(seen) => {
                    if self.arrived[0] != b"\r\n"[*seen] {
                        return Err(BodyError::Incomplete);
                    }
                    self.arrived.advance(1);
                    *seen += 1;
                    if *seen == 2 {
                        self.state = State::Size;
                        self.verify_chunk()?;
                    }
                }
                State::Trailers => {
                    if self.line.len() + self.arrived.len() > TRAILER_BYTES_MAX {
                        return Err(BodyError::MalformedTrailer("they are too large".into()));
                    }
                    self.line.extend_from_slice(&self.arrived);
                    self.arrived = Bytes::new();
                }
                // Nothing is asked for behind the end.
                State::Ended => self.arrived = Bytes::new(),
                State::Failed => return Err(BodyError::Incomplete),
            }
        }
    }

    /// Takes the hashes of what has just arrived.
    fn hash_arrived(&mut self) {
        if self.signing.is_none() {
            return;
        }
        let parts = self.parts_arrived();
        let (begun, new) = match (&mut self.signed, &self.state) {
            (Some(signed), State::Passing(_)) => (Some(&mut signed.sha256), parts.len().saturating_sub(1)),
            _ => (None, parts.len()),
        };
        debug_assert!(self.ahead.is_empty(), "all that arrived before has begun");
        self.ahead.resize_with(new, Sha256::default);
        let hashes = begun.into_iter().chain(&mut self.ahead);
        let mut streams: Vec<_> = hashes.zip(parts.iter().map(|part| &self.arrived[part.clone()])).collect();
        Sha256::update_many(&mut streams);
    }

    /// Where in what has arrived bytes of chunks are: of the one under way, and of those behind it until one that can not be read, or that none may follow.
    fn parts_arrived(&self) -> Vec<Range<usize>> {
        let mut parts = Vec::new();
        let (mut at, mut left) = match self.state {
            State::Passing(left) => (0, Some(left)),
            State::Break(seen) => (2 - seen, None),
            State::Size => (0, None),
            State::Trailers | State::Ended | State::Failed => return parts,
        };
        let (mut is_last, mut line) = (self.small.is_some(), self.line.clone());
        loop {
            if let Some(left) = left {
                let end = self.arrived.len().min(at.saturating_add(left));
                parts.push(at..end);
                if end - at < left {
                    return parts;
                }
                at = end + 2;
            }
            let rest = self.arrived.get(at..).unwrap_or_default();
            let end = rest.iter().take(LINE_BYTES_MAX).position(|&byte| byte == b'\n');
            let Some(end) = end.filter(|_| !is_last) else { return parts };
            line.extend_from_slice(&rest[..=end]);
            let Some((size @ 1.., _)) = parse_size(&line) else { return parts };
            (at, left, is_last) = (at + end + 1, Some(size), size < CHUNK_BYTES_MIN);
            line.clear();
        }
    }

    /// Takes note of bytes of a chunk.
    fn passed(&mut self, bytes: usize) {
        if let State::Passing(left) = &mut self.state {
            *left -= bytes;
            if *left == 0 {
                self.state = State::Break(0);
            }
        }
    }

    /// Whether the chunk that has ended is what was signed, if it was.
    fn verify_chunk(&mut self) -> Result<(), BodyError> {
        match (self.signed.take(), &mut self.signing) {
            (Some(signed), Some(signing)) => signing.verify_chunk(signed),
            _ => Ok(()),
        }
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), BodyError> {
        if self.line.len() + bytes.len() > LINE_BYTES_MAX {
            return Err(BodyError::Incomplete);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    /// What the line with a chunk's size begins.
    fn begin_chunk(&mut self) -> Result<State, BodyError> {
        let (size, signature) = parse_size(&self.line).ok_or(BodyError::Incomplete)?;
        if size > 0 {
            self.number += 1;
            if let Some(bytes) = self.small {
                return Err(BodyError::SmallChunk { number: self.number, bytes: bytes as u64 });
            }
            self.small = (size < CHUNK_BYTES_MIN).then_some(size);
        }
        // Those who sign chunks sign all of them.
        if self.signing.is_some() != signature.is_some() {
            return Err(BodyError::Incomplete);
        }
        self.signed = match signature {
            Some(signature) => {
                // What has arrived of it was seen before.
                let ahead = if size > 0 { self.ahead.pop_front() } else { Some(Sha256::default()) };
                let sha256 = ahead.ok_or(BodyError::Incomplete)?;
                Some(Signed { sha256, signature, is_short: size < ALONE_BYTES_MIN })
            }
            None => None,
        };
        if size > 0 {
            return Ok(State::Passing(size));
        }
        self.verify_chunk()?;
        Ok(State::Trailers)
    }

    /// The body has come to its end.
    fn end(&mut self) -> Result<(), BodyError> {
        match mem::replace(&mut self.state, State::Failed) {
            State::Ended => {
                self.state = State::Ended;
                return Ok(());
            }
            State::Trailers => {}
            // The last, empty chunk is missing.
            _ => return Err(BodyError::Incomplete),
        }
        // An empty line ends it, whether or not trailers stand before it.
        let lines = match self.line.strip_suffix(b"\r\n") {
            Some(lines) if lines.is_empty() || lines.ends_with(b"\n") => lines,
            _ => return Err(BodyError::Incomplete),
        };
        if self.has_trailers {
            *self.trailers.lock() = Some(self.read_trailers(lines)?);
        } else if !lines.is_empty() {
            return Err(BodyError::Incomplete);
        }
        self.state = State::Ended;
        Ok(())
    }

    fn read_trailers(&self, lines: &[u8]) -> Result<HeaderMap, BodyError> {
        let malformed = |what: &str| BodyError::MalformedTrailer(what.to_owned());
        let mut signature = None;
        let mut trailers = Vec::new();
        let lines = lines.split(|&byte| byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        for line in lines.filter(|line| !line.is_empty()) {
            if trailers.len() == TRAILERS_MAX {
                return Err(malformed("there are too many"));
            }
            let text = std::str::from_utf8(line).map_err(|_| malformed("one is no text"))?;
            let (name, value) = text.split_once(':').ok_or_else(|| malformed("one has no name"))?;
            let (name, value) = (name.to_ascii_lowercase(), value.trim_ascii());
            if name == TRAILER_SIGNATURE {
                signature = Some(value);
            } else {
                trailers.push((name, value));
            }
        }
        trailers.sort_by(|a, b| a.0.cmp(&b.0));
        if let Some(signing) = &self.signing {
            let signature = signature.filter(|signature| from_hex(signature.as_bytes()).is_some());
            let signature = signature.ok_or(BodyError::Incomplete)?;
            if trailers.is_empty() {
                return Err(malformed("there is none"));
            }
            let canonical: String = trailers.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
            signing.verify_trailers(&canonical, signature)?;
        } else if signature.is_some() {
            return Err(malformed("they are signed, where nothing else is"));
        }
        let mut map = HeaderMap::new();
        for (name, value) in trailers {
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| malformed("one has no name"))?;
            map.append(name, HeaderValue::from_str(value).map_err(|_| malformed("one can be no header"))?);
        }
        Ok(map)
    }
}

/// Size and signature of a chunk.
fn parse_size(line: &[u8]) -> Option<(usize, Option<[u8; 64]>)> {
    let line = line.strip_suffix(b"\r\n")?;
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    // An unsigned chunk may be the whole body.
    if !(1..=16).contains(&digits) {
        return None;
    }
    let size = usize::from_str_radix(std::str::from_utf8(&line[..digits]).ok()?, 16).ok()?;
    match &line[digits..] {
        [] => Some((size, None)),
        rest => Some((size, Some(rest.strip_prefix(SIGNATURE_FIELD)?.try_into().ok()?))),
    }
}

impl ChunkSigning {
    fn verify_chunk(&mut self, chunk: Signed) -> Result<(), BodyError> {
        if self.text.is_empty() {
            let (time, day, region) = (self.date.fmt_iso8601(), self.date.fmt_date(), &self.region);
            self.text = format!("{CHUNK_ALGORITHM}\n{time}\n{day}/{region}/{SERVICE}/aws4_request\n").into_bytes();
            self.scope_bytes = self.text.len();
        }
        self.text.truncate(self.scope_bytes);
        // Of the chunk before, of no headers, and of the bytes.
        for (hash, end) in [(self.previous, "\n"), (EMPTY_SHA256, "\n"), (chunk.sha256.finish(), "")] {
            self.text.extend_from_slice(&to_hex(hash));
            self.text.extend_from_slice(end.as_bytes());
        }
        self.previous = self.compare(&self.text, &chunk.signature)?;
        Ok(())
    }

    fn verify_trailers(&self, canonical: &str, sent: &str) -> Result<(), BodyError> {
        let previous = hex::encode(self.previous);
        let text = s3s_sigv4::create_trailer_string_to_sign(
            &self.date,
            &self.region,
            SERVICE,
            &previous,
            canonical.as_bytes(),
        );
        self.compare(text.as_bytes(), sent.as_bytes()).map(drop)
    }

    fn compare(&self, text: &[u8], sent: &[u8]) -> Result<[u8; 32], BodyError> {
        let signature = self.key.sign(text);
        let is_same = from_hex(sent).is_some_and(|sent| signature.ct_eq(&sent).into());
        if is_same { Ok(signature) } else { Err(BodyError::BadChunkSignature) }
    }
}

impl BodySource for Chunks {
    fn poll_piece(&mut self, cx: &mut Context<'_>, room: &mut [u8]) -> Poll<Option<Result<BodyPiece, BodyError>>> {
        loop {
            match self.step() {
                Ok(Some(bytes)) => return Poll::Ready(Some(Ok(BodyPiece::Bytes(bytes)))),
                Ok(None) => {}
                Err(error) => {
                    self.state = State::Failed;
                    return Poll::Ready(Some(Err(error)));
                }
            }
            // What comes next of a chunk can be read to where it is wanted.
            let place = match &self.state {
                State::Passing(left) if self.signed.as_ref().is_none_or(|signed| !signed.is_short) => {
                    let bytes = room.len().min(*left);
                    &mut room[..bytes]
                }
                _ => &mut [],
            };
            match ready!(self.source.poll_piece(cx, place)) {
                Some(Ok(BodyPiece::Bytes(bytes))) => {
                    self.arrived = bytes;
                    self.hash_arrived();
                }
                Some(Ok(BodyPiece::InRoom(bytes))) => {
                    if let Some(signed) = &mut self.signed {
                        signed.sha256.update(&room[..bytes]);
                    }
                    self.passed(bytes);
                    return Poll::Ready(Some(Ok(BodyPiece::InRoom(bytes))));
                }
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(self.end().err().map(Err)),
            }
        }
    }
}
