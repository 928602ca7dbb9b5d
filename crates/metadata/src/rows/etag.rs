//! The entity tag of an object.

use std::fmt;

use minicbor::{Decode, Encode};

/// An entity tag; displayed as S3 writes it, without quotes.
#[derive(Clone, PartialEq, Eq, Debug, Encode, Decode)]
pub enum Etag {
    /// The MD5 of the bytes.
    #[n(0)]
    Md5(#[cbor(n(0), with = "minicbor::bytes")] [u8; 16]),
    /// The MD5 of the concatenated MD5s of the parts, and the number of parts.
    #[n(1)]
    Multipart(#[cbor(n(0), with = "minicbor::bytes")] [u8; 16], #[n(1)] u32),
    /// Any other tag.
    #[n(2)]
    Opaque(#[n(0)] String),
}

impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = |md5: &[u8; 16]| format!("{:032x}", u128::from_be_bytes(*md5));
        match self {
            Etag::Md5(md5) => f.write_str(&hex(md5)),
            Etag::Multipart(md5, parts) => write!(f, "{}-{parts}", hex(md5)),
            Etag::Opaque(tag) => f.write_str(tag),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_displayed_as_s3_writes_it() {
        let mut md5 = [0; 16];
        md5[0] = 0x0a;
        md5[15] = 0xff;
        assert_eq!(Etag::Md5(md5).to_string(), "0a0000000000000000000000000000ff");
        assert_eq!(Etag::Multipart(md5, 7).to_string(), "0a0000000000000000000000000000ff-7");
        assert_eq!(Etag::Opaque("x".into()).to_string(), "x");
    }
}
