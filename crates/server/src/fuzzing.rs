//! What the fuzz targets call: parsers that a whole request reaches only behind a signature.

use crate::{ops, s3};

/// The documents of requests.
pub fn documents(bytes: &[u8]) {
    s3::fuzzing::documents(bytes);
}

/// Queries, headers and tokens.
///
/// # Panics
/// When a token that was read is not written as it came.
pub fn texts(text: &str) {
    s3::fuzzing::texts(text);
    if let Ok(position) = ops::token::decode(text) {
        assert_eq!(ops::token::decode(&ops::token::encode(&position)).ok(), Some(position));
    }
}
