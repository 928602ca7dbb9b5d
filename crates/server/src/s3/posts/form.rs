//! Bodies that are `multipart/form-data`, read as they arrive: fields into memory, of which there may be little, then the file as a stream.
//!
//! Knows neither which fields S3 has nor what they mean. Source: RFC 7578, RFC 2046 §5.1.

use bytes::{Buf, Bytes, BytesMut};
use gabion_store::BodyError;
use memchr::memmem::Finder;

use crate::error::{S3Code, S3Error};
use crate::s3::content::Content;

/// Most bytes of all that comes before the file, as on AWS.
const FIELDS_BYTES_MAX: usize = 20 * 1024;
/// Most bytes that may follow the file; they are not looked at.
const EPILOGUE_BYTES_MAX: usize = 64 * 1024;
/// Longest boundary (RFC 2046), in bytes.
const BOUNDARY_BYTES_MAX: usize = 70;

const CRLF: &[u8] = b"\r\n";

/// Why a form could not be read.
#[derive(Debug)]
pub(super) enum FormError {
    /// It is no form.
    Malformed,
    /// There is too much before the file.
    TooLong,
    /// What became of the body that it is in.
    Body(BodyError),
}

impl From<FormError> for S3Error {
    fn from(error: FormError) -> Self {
        match error {
            FormError::Malformed => S3Code::MalformedPOSTRequest.into(),
            FormError::TooLong => S3Code::MaxPostPreDataLengthExceededError.into(),
            FormError::Body(error) => error.into(),
        }
    }
}

/// What the head of a part says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) name: String,
    pub(super) filename: Option<String>,
}

/// A form that is being read.
pub(super) struct Form {
    body: Content,
    /// What has arrived and was not handed out.
    buffer: BytesMut,
    /// Line break, hyphens and boundary.
    delimiter: Finder<'static>,
    /// Bytes that may still come before the file.
    left: usize,
}

/// The boundary that a `Content-Type` names.
pub(super) fn boundary(content_type: &str) -> Option<String> {
    let (_, parameters) = content_type.split_once(';')?;
    let value = parameter(parameters, "boundary")?;
    (1..=BOUNDARY_BYTES_MAX).contains(&value.len()).then_some(value)
}

impl Form {
    pub(super) fn new(body: Content, boundary: &str) -> Self {
        let delimiter = Finder::new(&[b"\r\n--", boundary.as_bytes()].concat()).into_owned();
        // The first delimiter may stand at the very beginning: as if a line had ended before it.
        Self { body, buffer: BytesMut::from(CRLF), delimiter, left: FIELDS_BYTES_MAX }
    }

    /// The head of the next part; nothing when there is none. What is left of the part before is passed over.
    ///
    /// # Errors
    /// As [`FormError`] says.
    pub(super) async fn next_part(&mut self) -> Result<Option<Part>, FormError> {
        self.value().await?;
        self.buffer.advance(self.delimiter.needle().len());
        while self.buffer.len() < 2 {
            self.fill_bounded().await?;
        }
        if self.buffer.starts_with(b"--") {
            return Ok(None);
        }
        let padding = self.until(CRLF).await?;
        if !padding.trim_ascii().is_empty() {
            return Err(FormError::Malformed);
        }
        let (mut name, mut filename) = (None, None);
        loop {
            let line = self.until(CRLF).await?;
            if line.is_empty() {
                break;
            }
            let line = std::str::from_utf8(&line).map_err(|_| FormError::Malformed)?;
            let (header, value) = line.split_once(':').ok_or(FormError::Malformed)?;
            if header.trim().eq_ignore_ascii_case("content-disposition") {
                let (kind, parameters) = value.split_once(';').ok_or(FormError::Malformed)?;
                if !kind.trim().eq_ignore_ascii_case("form-data") {
                    return Err(FormError::Malformed);
                }
                (name, filename) = (parameter(parameters, "name"), parameter(parameters, "filename"));
            }
        }
        let name = name.ok_or(FormError::Malformed)?;
        Ok(Some(Part { name, filename }))
    }

    /// What is left of the part, at once.
    ///
    /// # Errors
    /// As [`FormError`] says.
    pub(super) async fn value(&mut self) -> Result<Bytes, FormError> {
        let needle = self.delimiter.needle().len();
        let mut searched = 0;
        loop {
            if let Some(at) = self.delimiter.find(&self.buffer[searched..]) {
                return self.take(searched + at);
            }
            searched = (self.buffer.len() + 1).saturating_sub(needle);
            self.fill_bounded().await?;
        }
    }

    /// A piece of what is left of the part; nothing at its end, when all that follows has been passed over.
    ///
    /// # Errors
    /// `Malformed` when the part never ends; what the body fails with.
    pub(super) async fn piece(&mut self) -> Result<Option<Bytes>, FormError> {
        let kept = self.delimiter.needle().len() - 1;
        loop {
            match self.delimiter.find(&self.buffer) {
                Some(0) => {
                    self.skip_epilogue().await?;
                    return Ok(None);
                }
                Some(at) => return Ok(Some(self.buffer.split_to(at).freeze())),
                None if self.buffer.len() > kept => {
                    let sure = self.buffer.len() - kept;
                    return Ok(Some(self.buffer.split_to(sure).freeze()));
                }
                None if self.fill().await? => {}
                None => return Err(FormError::Malformed),
            }
        }
    }

    async fn skip_epilogue(&mut self) -> Result<(), FormError> {
        let mut left = EPILOGUE_BYTES_MAX;
        self.buffer.clear();
        while left > 0 && self.fill().await? {
            left = left.saturating_sub(self.buffer.len());
            self.buffer.clear();
        }
        Ok(())
    }

    /// The bytes up to `end`, which is passed over.
    async fn until(&mut self, end: &[u8]) -> Result<Bytes, FormError> {
        loop {
            if let Some(at) = memchr::memmem::find(&self.buffer, end) {
                let bytes = self.take(at)?;
                self.buffer.advance(end.len());
                return Ok(bytes);
            }
            self.fill_bounded().await?;
        }
    }

    fn take(&mut self, len: usize) -> Result<Bytes, FormError> {
        self.left = self.left.checked_sub(len).ok_or(FormError::TooLong)?;
        Ok(self.buffer.split_to(len).freeze())
    }

    /// Reads on, when there may be more before the file.
    async fn fill_bounded(&mut self) -> Result<(), FormError> {
        if self.buffer.len() > self.left {
            return Err(FormError::TooLong);
        }
        if self.fill().await? { Ok(()) } else { Err(FormError::Malformed) }
    }

    /// Reads on; whether there was anything.
    async fn fill(&mut self) -> Result<bool, FormError> {
        match self.body.next().await {
            Some(Ok(bytes)) => {
                self.buffer.extend_from_slice(&bytes);
                Ok(true)
            }
            Some(Err(error)) => Err(FormError::Body(error)),
            None => Ok(false),
        }
    }
}

/// The value of a parameter: a token, or a quoted string, in which browsers write quotes as `%22` or `\"`.
fn parameter(parameters: &str, wanted: &str) -> Option<String> {
    let mut rest = parameters;
    loop {
        let (name, after) = rest.split_once('=')?;
        let name = name.trim_matches(|character: char| character == ';' || character.is_whitespace());
        let after = after.trim_start();
        let (value, left) = match after.strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let end = after.find(';').unwrap_or(after.len());
                (after[..end].trim().to_owned(), &after[end..])
            }
        };
        if name.eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = left;
    }
}

/// A quoted string, and what follows it.
fn unquoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((value.replace("%22", "\""), &text[at + 1..])),
            // Only quotes are escaped: paths of Windows are not.
            '\\' if text[at + 1..].starts_with('"') => {
                characters.next();
                value.push('"');
            }
            other => value.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts of a form that arrives in pieces of `piece_bytes`.
    async fn parts(text: &str, piece_bytes: usize) -> Result<Vec<(Part, String)>, FormError> {
        let pieces: Vec<_> =
            text.as_bytes().chunks(piece_bytes).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let mut form = Form::new(Content::of_pieces(pieces), "b-d");
        let mut parts = Vec::new();
        while let Some(part) = form.next_part().await? {
            let mut text = Vec::new();
            if part.name == "file" {
                while let Some(piece) = form.piece().await? {
                    text.extend_from_slice(&piece);
                }
                parts.push((part, String::from_utf8(text).unwrap()));
                break;
            }
            text.extend_from_slice(&form.value().await?);
            parts.push((part, String::from_utf8(text).unwrap()));
        }
        Ok(parts)
    }

    fn part(name: &str, filename: Option<&str>, text: &str) -> (Part, String) {
        (Part { name: name.into(), filename: filename.map(str::to_owned) }, text.to_owned())
    }

    #[tokio::test]
    async fn forms_are_read_whatever_the_pieces() {
        let text = "preamble\r\n--b-d  \r\nContent-Disposition: form-data; name=\"key\"\r\n\r\na\r\n--b-\r\n--b-d\r\n\
            content-disposition:form-data;name=empty\r\nContent-Type: text/plain\r\n\r\n\r\n--b-d\r\n\
            Content-Disposition: form-data; name=\"file\"; filename=\"C:\\a \\\"b%22.txt\"\r\nContent-Type: a/b\r\n\r\n\
            first\r\n--b-\r\n\r\nlast\r\n--b-d\r\nwhatever follows";
        let expected = [
            part("key", None, "a\r\n--b-"),
            part("empty", None, ""),
            part("file", Some("C:\\a \"b\".txt"), "first\r\n--b-\r\n\r\nlast"),
        ];
        for piece_bytes in [1, 2, 3, 5, 7, 11, 64, 1000] {
            assert_eq!(parts(text, piece_bytes).await.unwrap(), expected, "{piece_bytes}");
        }
        let without = "--b-d\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nv\r\n--b-d--\r\n";
        assert_eq!(parts(without, 3).await.unwrap(), [part("key", None, "v")]);
    }

    #[tokio::test]
    async fn what_is_no_form_is_refused() {
        let head = "--b-d\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\n";
        let file = "--b-d\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n";
        for text in
            ["", "x", "--b-d", "--b-d\r\n", "--b-d\r\n\r\nv\r\n--b-d--", "--b-dx\r\n", head, &format!("{head}v"), file]
        {
            assert!(matches!(parts(text, 4).await, Err(FormError::Malformed)), "{text:?}");
        }
        let long = format!("{head}{}\r\n--b-d--", "v".repeat(FIELDS_BYTES_MAX));
        let many = head.replace("\r\n\r\n", "\r\n\r\nv\r\n").repeat(FIELDS_BYTES_MAX / 40);
        for text in [long, many] {
            assert!(matches!(parts(&text, 1000).await, Err(FormError::TooLong)));
        }
        let large = format!("{file}{}\r\n--b-d--", "v".repeat(10 * FIELDS_BYTES_MAX));
        assert_eq!(parts(&large, 1000).await.unwrap()[0].1.len(), 10 * FIELDS_BYTES_MAX);
    }

    #[test]
    fn boundaries_are_found() {
        for (text, expected) in [
            ("multipart/form-data; boundary=abc", Some("abc")),
            ("multipart/form-data; charset=utf-8; Boundary=\"a b\"", Some("a b")),
            ("multipart/form-data;boundary=abc;charset=utf-8", Some("abc")),
            ("multipart/form-data", None),
            ("multipart/form-data; boundary=", None),
            ("multipart/form-data; boundary=\"a", None),
        ] {
            assert_eq!(boundary(text).as_deref(), expected, "{text}");
        }
    }
}
