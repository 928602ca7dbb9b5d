//! The entity tag of an object, and that of a part.

use std::fmt;

use minicbor::{
    Decode, Decoder, Encode, Encoder, decode,
    encode::{self, Write},
};

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
    /// The CRC-64/NVME of all bytes, and the number of parts; 1 for what came as one body. Displayed with a dash in any case: clients take a
    /// tag without one for an MD5, and compare.
    #[n(3)]
    Crc64 {
        /// The CRC.
        #[n(0)]
        crc64: u64,
        /// Number of parts.
        #[n(1)]
        parts: u32,
    },
}

impl fmt::Display for Etag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Etag::Md5(md5) => write!(f, "{:032x}", u128::from_be_bytes(*md5)),
            Etag::Multipart(md5, parts) => write!(f, "{:032x}-{parts}", u128::from_be_bytes(*md5)),
            Etag::Opaque(tag) => f.write_str(tag),
            Etag::Crc64 { crc64, parts } => write!(f, "{crc64:016x}-{parts}"),
        }
    }
}

/// What is told of one body, as a part or as a whole object. Encoded as a byte string, whose length says what it is: 16 bytes are an MD5, 8 a CRC.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartTag {
    /// The MD5 of the bytes.
    Md5([u8; 16]),
    /// The CRC-64/NVME of the bytes.
    Crc64(u64),
}

impl PartTag {
    /// As an entity tag.
    #[must_use]
    pub const fn etag(self) -> Etag {
        match self {
            PartTag::Md5(md5) => Etag::Md5(md5),
            PartTag::Crc64(crc64) => Etag::Crc64 { crc64, parts: 1 },
        }
    }
}

impl<C> Encode<C> for PartTag {
    fn encode<W: Write>(&self, encoder: &mut Encoder<W>, _: &mut C) -> Result<(), encode::Error<W::Error>> {
        match self {
            PartTag::Md5(md5) => encoder.bytes(md5)?,
            PartTag::Crc64(crc64) => encoder.bytes(&crc64.to_be_bytes())?,
        };
        Ok(())
    }
}

impl<'b, C> Decode<'b, C> for PartTag {
    fn decode(decoder: &mut Decoder<'b>, _: &mut C) -> Result<Self, decode::Error> {
        let at = decoder.position();
        let bytes = decoder.bytes()?;
        if let Ok(md5) = bytes.try_into() {
            return Ok(PartTag::Md5(md5));
        }
        match bytes.try_into() {
            Ok(crc64) => Ok(PartTag::Crc64(u64::from_be_bytes(crc64))),
            Err(_) => Err(decode::Error::message("a part's tag has neither 16 nor 8 bytes").at(at)),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn is_displayed_as_s3_writes_it() {
        let mut md5 = [0; 16];
        md5[0] = 0x0a;
        md5[15] = 0xff;
        assert_eq!(Etag::Md5(md5).to_string(), "0a0000000000000000000000000000ff");
        assert_eq!(Etag::Multipart(md5, 7).to_string(), "0a0000000000000000000000000000ff-7");
        assert_eq!(Etag::Opaque("x".into()).to_string(), "x");
        assert_eq!(Etag::Crc64 { crc64: 0xa_b0c0, parts: 10_000 }.to_string(), "00000000000ab0c0-10000");
        assert_eq!(PartTag::Md5(md5).etag(), Etag::Md5(md5));
        assert_eq!(PartTag::Crc64(u64::MAX).etag().to_string(), "ffffffffffffffff-1");
    }

    /// These bytes never change.
    #[test]
    fn encodings_are_for_ever() {
        let crc64 = 0x0102_0304_0506_0708;
        let etag = minicbor::to_vec(Etag::Crc64 { crc64, parts: 2 }).unwrap();
        assert_eq!(etag, [0x82, 3, 0x82, 0x1b, 1, 2, 3, 4, 5, 6, 7, 8, 2]);
        assert_eq!(minicbor::to_vec(PartTag::Crc64(crc64)).unwrap(), [0x48, 1, 2, 3, 4, 5, 6, 7, 8]);
        let md5 = minicbor::to_vec(PartTag::Md5([7; 16])).unwrap();
        assert_eq!((md5[0], &md5[1..]), (0x50, &[7; 16][..]), "as a bare MD5 was");
    }

    proptest! {
        #[test]
        fn a_part_s_tag_has_16_bytes_or_8(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
            let encoded = minicbor::to_vec(minicbor::bytes::ByteVec::from(bytes.clone())).unwrap();
            match (bytes.len(), minicbor::decode::<PartTag>(&encoded)) {
                (8 | 16, Ok(tag)) => prop_assert_eq!(minicbor::to_vec(tag).unwrap(), encoded),
                (len, tag) => prop_assert!(len != 8 && len != 16 && tag.is_err(), "{} bytes are {:?}", len, tag),
            }
        }
    }
}
