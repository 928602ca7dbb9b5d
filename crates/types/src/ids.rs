//! Identifiers of 128 bits, written as 32 lower-case hexadecimal digits.

use std::{fmt, str::FromStr};

/// A text is not 32 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no identifier: it must be 32 lower-case hexadecimal digits")]
pub struct IdError(String);

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(u128);

        impl $name {
            /// The identifier with this value.
            #[must_use]
            pub const fn from_u128(value: u128) -> Self {
                Self(value)
            }

            /// The value as a number.
            #[must_use]
            pub const fn as_u128(self) -> u128 {
                self.0
            }

            /// 16 bytes, big-endian: their order is that of the number.
            #[must_use]
            pub const fn to_bytes(self) -> [u8; 16] {
                self.0.to_be_bytes()
            }

            /// From 16 bytes, big-endian.
            #[must_use]
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(u128::from_be_bytes(bytes))
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:032x}", self.0)
            }
        }

        impl FromStr for $name {
            type Err = IdError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let hex = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
                if text.len() != 32 || !text.bytes().all(hex) {
                    return Err(IdError(text.to_owned()));
                }
                u128::from_str_radix(text, 16).map(Self).map_err(|_| IdError(text.to_owned()))
            }
        }

        impl<C> minicbor::Encode<C> for $name {
            fn encode<W: minicbor::encode::Write>(
                &self,
                e: &mut minicbor::Encoder<W>,
                _: &mut C,
            ) -> Result<(), minicbor::encode::Error<W::Error>> {
                e.bytes(&self.to_bytes())?.ok()
            }
        }

        impl<'b, C> minicbor::Decode<'b, C> for $name {
            fn decode(
                d: &mut minicbor::Decoder<'b>,
                _: &mut C,
            ) -> Result<Self, minicbor::decode::Error> {
                let bytes = d.bytes()?;
                let bytes = <[u8; 16]>::try_from(bytes)
                    .map_err(|_| minicbor::decode::Error::message("an identifier has 16 bytes"))?;
                Ok(Self::from_bytes(bytes))
            }
        }
    };
}

id! {
    /// A segment: the upper 64 bits name the writer (random per start of a server), the lower are a number of its own.
    SegmentId
}
id! {
    /// A target: one directory on one failure domain. Zero is nobody: an absent shard.
    TargetId
}
id! {
    /// A deployment: all targets that were formatted together.
    DeploymentId
}
id! {
    /// A multipart upload.
    UploadId
}
id! {
    /// The paged manifest of an object with many extents.
    ManifestId
}

impl SegmentId {
    /// The id of the `counter`-th segment of `writer`.
    #[must_use]
    pub const fn new(writer: u64, counter: u64) -> Self {
        Self(((writer as u128) << 64) | counter as u128)
    }

    /// The writer's half.
    #[must_use]
    pub const fn writer(self) -> u64 {
        (self.0 >> 64) as u64
    }
}

impl TargetId {
    /// No target: the shard is absent.
    pub const NONE: TargetId = TargetId(0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_bytes_round_trip() {
        let id = SegmentId::new(0x0123_4567_89ab_cdef, 42);
        assert_eq!(id.to_string(), "0123456789abcdef000000000000002a");
        assert_eq!(id.to_string().parse::<SegmentId>().unwrap(), id);
        assert_eq!(SegmentId::from_bytes(id.to_bytes()), id);
        let cbor = minicbor::to_vec(id).unwrap();
        assert_eq!(minicbor::decode::<SegmentId>(&cbor).unwrap(), id);
    }

    #[test]
    fn refuses_other_texts() {
        for text in ["", "12", "0123456789ABCDEF000000000000002A", "+123456789abcdef000000000000002a"] {
            assert!(text.parse::<SegmentId>().is_err(), "{text}");
        }
    }
}
