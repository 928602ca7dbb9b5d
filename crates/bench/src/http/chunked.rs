//! Bodies in aws-chunked framing, as SDKs send them: in chunks, with what vouches for them between or behind them.
//!
//! Source: AWS, "Signature Calculations for the Authorization Header: Transferring Payload in Multiple Chunks (Chunked Upload)" and "Working with trailing
//! checksums".

use std::fmt::Write;

use crate::{
    content::Window,
    sign::{ChunkSigner, HASH_DIGITS},
};

/// Bytes of each chunk but the last: what minio-go sends.
pub(crate) const CHUNK_BYTES: u64 = 64 * 1024;

/// What stands between the length of a chunk and its signature.
const SIGNATURE: &str = ";chunk-signature=";

/// What vouches for a body in chunks.
pub(crate) enum Seal {
    /// A signature with each chunk, of its SHA-256 and of the signature before.
    Signatures(Vec<[u8; 32]>),
    /// A line behind the last one: a header's name and value.
    Trailer(String),
}

impl Seal {
    /// Bytes of a body of `length` bytes with its framing.
    pub(crate) fn framed_bytes(&self, length: u64) -> u64 {
        let (signature, trailer) = match self {
            Seal::Signatures(_) => (SIGNATURE.len() + HASH_DIGITS, 0),
            Seal::Trailer(line) => (0, line.len() + 2),
        };
        let (signature, trailer) = (signature as u64, trailer as u64);
        let frame = |bytes: u64| hex_digits(bytes) + signature + 2;
        let (whole, rest) = (length / CHUNK_BYTES, length % CHUNK_BYTES);
        let chunks = whole * (frame(CHUNK_BYTES) + 2) + if rest > 0 { frame(rest) + 2 } else { 0 };
        length + chunks + frame(0) + trailer + 2
    }

    /// Puts together all that stands around the bytes of a body of `length` bytes.
    pub(crate) fn write_frames(&self, out: &mut String, length: u64, mut signer: ChunkSigner<'_>) {
        out.clear();
        let mut left = length;
        for chunk in 0.. {
            if chunk > 0 {
                out.push_str("\r\n");
            }
            let bytes = left.min(CHUNK_BYTES);
            write!(out, "{bytes:x}").expect("writing to a string succeeds");
            if let Seal::Signatures(hashes) = self {
                out.push_str(SIGNATURE);
                signer.sign(out, hashes.get(chunk));
            }
            out.push_str("\r\n");
            left -= bytes;
            if bytes == 0 {
                break;
            }
        }
        if let Seal::Trailer(line) = self {
            out.push_str(line);
            out.push_str("\r\n");
        }
        out.push_str("\r\n");
    }
}

/// Digits of a number in hexadecimal, without leading zeros.
fn hex_digits(number: u64) -> u64 {
    u64::from((u64::BITS - number.leading_zeros()).div_ceil(4).max(1))
}

/// An object's content between its frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunked<'a> {
    content: Window<'a>,
    /// What stands around what is still to come.
    frames: &'a str,
    /// Bytes of the chunk that are still to come, behind its frame.
    chunk: u64,
}

impl<'a> Chunked<'a> {
    pub(crate) fn new(content: Window<'a>, frames: &'a str) -> Self {
        Self { content, frames, chunk: 0 }
    }

    pub(crate) fn len(&self) -> u64 {
        self.frames.len() as u64 + self.content.remaining()
    }

    /// The next bytes, in one piece; empty at the end.
    pub(crate) fn next(&mut self) -> &'a [u8] {
        if self.chunk > 0 {
            let mut bytes = self.content.split_to(self.chunk);
            self.chunk = 0;
            // A chunk is shorter than what lies in one piece.
            return bytes.next_slice();
        }
        self.chunk = self.content.remaining().min(CHUNK_BYTES);
        let frame = if self.chunk == 0 { self.frames.len() } else { frame_len(self.frames) };
        let (frame, rest) = self.frames.split_at(frame);
        self.frames = rest;
        frame.as_bytes()
    }
}

/// Bytes until the next chunk: the end of the chunk before, if there is one, and a line.
fn frame_len(frames: &str) -> usize {
    let end = if frames.starts_with("\r\n") { 2 } else { 0 };
    frames[end..].find('\n').map_or(frames.len(), |line| end + line + 1)
}

#[cfg(test)]
mod tests {
    use sha2::{Digest, Sha256};

    use super::*;
    use crate::{
        content::Content,
        sign::{Identity, Signer},
    };

    const DATE: &str = "20130524T000000Z";
    /// Of the request of AWS's example.
    const SEED: &str = "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9";

    fn signer() -> Signer {
        let mut signer = Signer::new(Identity {
            access_key: "AKIAIOSFODNN7EXAMPLE".into(),
            secret_key: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY".into(),
            session_token: None,
            region: "us-east-1".into(),
        });
        signer.begin_day(&DATE[..8]);
        signer
    }

    fn frames_of(seal: &Seal, length: u64) -> String {
        let (signer, mut frames) = (signer(), String::new());
        seal.write_frames(&mut frames, length, signer.chunks(DATE, SEED));
        frames
    }

    /// The example of AWS's page on chunked uploads: 65 KiB of the letter a.
    #[test]
    fn chunks_are_signed_as_in_the_example_of_aws() {
        let body = [b'a'; 66_560];
        let hashes: Vec<[u8; 32]> = body.chunks(65_536).map(|chunk| Sha256::digest(chunk).into()).collect();
        let seal = Seal::Signatures(hashes);
        assert_eq!(
            frames_of(&seal, 66_560),
            "10000;chunk-signature=ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648\r\n\
             \r\n400;chunk-signature=0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497\r\n\
             \r\n0;chunk-signature=b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9\r\n\r\n"
        );
        assert_eq!(seal.framed_bytes(66_560), 66_824);
    }

    #[test]
    fn a_body_lies_between_its_frames() {
        let content = Content::new(1);
        for length in [0, 1, 15, 16, 4096, 65_535, 65_536, 65_537, 131_072, 1_500_000] {
            let window = || content.of(content.hash(["key", ""]), length);
            let hashes = vec![[7; 32]; usize::try_from(length.div_ceil(CHUNK_BYTES)).unwrap()];
            for seal in [Seal::Signatures(hashes), Seal::Trailer("x-amz-checksum-crc32:AAAAAA==".to_owned())] {
                let frames = frames_of(&seal, length);
                let mut body = Chunked::new(window(), &frames);
                assert_eq!(body.len(), seal.framed_bytes(length), "{length}");
                let mut sent = Vec::new();
                loop {
                    let piece = body.next();
                    if piece.is_empty() {
                        break;
                    }
                    sent.extend_from_slice(piece);
                }
                assert_eq!(sent.len() as u64, seal.framed_bytes(length), "{length}");
                let (mut at, mut expected) = (0, window());
                loop {
                    let line = sent[at..].windows(2).position(|end| end == b"\r\n").unwrap();
                    let line = std::str::from_utf8(&sent[at..at + line]).unwrap();
                    let bytes = usize::from_str_radix(line.split(';').next().unwrap(), 16).unwrap();
                    assert_eq!(line.len() > 16, matches!(seal, Seal::Signatures(_)));
                    at += line.len() + 2;
                    if bytes == 0 {
                        break;
                    }
                    assert!(expected.matches(&sent[at..at + bytes]), "{length}");
                    assert_eq!(&sent[at + bytes..at + bytes + 2], b"\r\n");
                    at += bytes + 2;
                }
                assert_eq!(expected.remaining(), 0, "{length}");
                let rest = std::str::from_utf8(&sent[at..]).unwrap();
                match seal {
                    Seal::Signatures(_) => assert_eq!(rest, "\r\n"),
                    Seal::Trailer(line) => assert_eq!(rest, format!("{line}\r\n\r\n")),
                }
            }
        }
    }
}
