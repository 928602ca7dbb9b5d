//! What vouches for the body of a request: found before the request is timed, as a client that reads a file twice would.

use std::borrow::Cow;

use gabion_erasure::{Checksum, ChecksumAlgorithm, Digester, Sha256};

use crate::{
    cli::Payload,
    content::Window,
    http::{CHUNK_BYTES, Seal},
    sign::{EMPTY_SHA256, push_hex, sha256_hex},
};

/// Of a request without a body.
pub(crate) static NO_BODY: Cover = Cover::Hash(Cow::Borrowed(EMPTY_SHA256));

/// The header that a trailer stands for.
const TRAILER: &str = "x-amz-checksum-crc32";

/// What vouches for a body.
pub(crate) enum Cover {
    /// Its SHA-256, as the signature of the request has it; or that there is none.
    Hash(Cow<'static, str>),
    /// What stands between or behind its chunks.
    Chunked(Seal),
}

impl Cover {
    /// Of an object's content.
    pub(crate) fn of(payload: Payload, mut content: Window<'_>) -> Self {
        match payload {
            Payload::Unsigned => Cover::Hash(Cow::Borrowed("UNSIGNED-PAYLOAD")),
            Payload::Signed => {
                let sha256 = checksum(ChecksumAlgorithm::Sha256, content);
                let mut hash = String::new();
                push_hex(&mut hash, sha256.as_bytes().try_into().expect("a SHA-256 has 32 bytes"));
                Cover::Hash(Cow::Owned(hash))
            }
            Payload::Chunked => {
                let mut hashes = Vec::new();
                while content.remaining() > 0 {
                    // Two at a time.
                    let mut chunks = [content.split_to(CHUNK_BYTES), content.split_to(CHUNK_BYTES)];
                    let mut pair = [Sha256::default(), Sha256::default()];
                    let count = chunks.iter().filter(|chunk| chunk.remaining() > 0).count();
                    let pieces = chunks.iter_mut().map(Window::next_slice);
                    Sha256::update_many(&mut pair.iter_mut().zip(pieces).collect::<Vec<_>>());
                    hashes.extend(pair.into_iter().take(count).map(Sha256::finish));
                }
                Cover::Chunked(Seal::Signatures(hashes))
            }
            Payload::Trailer => {
                let crc32 = checksum(ChecksumAlgorithm::Crc32, content);
                Cover::Chunked(Seal::Trailer(format!("{TRAILER}:{}", crc32.to_base64())))
            }
        }
    }

    /// Of a document.
    pub(crate) fn of_document(text: &str) -> Self {
        Cover::Hash(Cow::Owned(sha256_hex(text.as_bytes())))
    }

    /// What the signature of the request has in place of the body's hash, or as that.
    pub(crate) fn content_sha256(&self) -> &str {
        match self {
            Cover::Hash(hash) => hash,
            Cover::Chunked(Seal::Signatures(_)) => "STREAMING-AWS4-HMAC-SHA256-PAYLOAD",
            Cover::Chunked(Seal::Trailer(_)) => "STREAMING-UNSIGNED-PAYLOAD-TRAILER",
        }
    }

    /// What stands between or behind the chunks of the body, if it comes in chunks.
    pub(crate) fn seal(&self) -> Option<&Seal> {
        match self {
            Cover::Hash(_) => None,
            Cover::Chunked(seal) => Some(seal),
        }
    }

    /// The name of the header that comes behind the body, if one does.
    pub(crate) fn trailer(&self) -> Option<&'static str> {
        matches!(self, Cover::Chunked(Seal::Trailer(_))).then_some(TRAILER)
    }
}

fn checksum(algorithm: ChecksumAlgorithm, mut content: Window<'_>) -> Checksum {
    let mut digester = Digester::new(false, &[algorithm]);
    while content.remaining() > 0 {
        digester.update(content.next_slice());
    }
    digester.finish().checksum(algorithm).expect("it was asked for")
}

#[cfg(test)]
mod tests {
    use sha2::Digest;

    use super::*;
    use crate::content::Content;

    #[test]
    fn each_chunk_has_its_own_hash() {
        let content = Content::new(1);
        for length in [0, 1, CHUNK_BYTES, CHUNK_BYTES + 1, 3 * CHUNK_BYTES, 2_000_000] {
            let mut window = content.of(content.hash(["key", ""]), length);
            let Cover::Chunked(Seal::Signatures(hashes)) = Cover::of(Payload::Chunked, window) else {
                panic!("chunks are wanted")
            };
            assert_eq!(hashes.len() as u64, length.div_ceil(CHUNK_BYTES));
            for hash in hashes {
                let chunk = window.split_to(CHUNK_BYTES).next_slice();
                assert_eq!(hash, <[u8; 32]>::from(sha2::Sha256::digest(chunk)), "{length}");
            }
        }
    }
}
