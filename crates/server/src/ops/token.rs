//! Continuation tokens: the position in a listing, opaque to clients, checked when it comes back.

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;

use crate::error::S3Error;

/// Version of the token's content, so that a later server can tell its own from ours.
const VERSION: u8 = 1;
/// Longest position: a key.
const POSITION_BYTES_MAX: usize = gabion_types::limits::KEY_BYTES_MAX;

/// The token of a position.
pub(crate) fn encode(position: &str) -> String {
    let mut bytes = Vec::with_capacity(1 + position.len());
    bytes.push(VERSION);
    bytes.extend_from_slice(position.as_bytes());
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// The position of a token.
///
/// # Errors
/// `InvalidArgument` when the token is none of ours.
pub(crate) fn decode(token: &str) -> Result<String, S3Error> {
    let position = BASE64_URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| match bytes.split_first() {
        Some((&VERSION, position)) if (1..=POSITION_BYTES_MAX).contains(&position.len()) => {
            String::from_utf8(position.to_vec()).ok()
        }
        _ => None,
    });
    position
        .ok_or_else(|| S3Error::argument("continuation-token", token, "The continuation token provided is incorrect"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_round_trip() {
        for position in ["a", "b/c d+ü\u{0}", &"k".repeat(1024)] {
            assert_eq!(decode(&encode(position)).unwrap(), position);
        }
    }

    #[test]
    fn other_tokens_are_refused() {
        let long = encode(&"k".repeat(1025));
        let latin = BASE64_URL_SAFE_NO_PAD.encode([VERSION, 0xff]);
        for token in ["", "a", "not a token!", "AA", &encode(""), &long, &latin, "AmE"] {
            assert!(decode(token).is_err(), "{token}");
        }
    }
}
