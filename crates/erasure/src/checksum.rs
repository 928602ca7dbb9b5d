//! The checksums that S3 clients send and ask for.

use std::{fmt, str::FromStr};

use base64::{Engine, prelude::BASE64_STANDARD};

use crate::ErasureError;

/// Longest digest of all algorithms, in bytes.
const DIGEST_BYTES_MAX: usize = 64;

/// A checksum algorithm of S3. The discriminant is what rows on disk hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum ChecksumAlgorithm {
    /// CRC-32/ISO-HDLC.
    Crc32 = 0,
    /// CRC-32/ISCSI (Castagnoli).
    Crc32c = 1,
    /// CRC-64/NVME.
    Crc64Nvme = 2,
    /// SHA-1.
    Sha1 = 3,
    /// SHA-256.
    Sha256 = 4,
    /// SHA-512.
    Sha512 = 5,
    /// MD5.
    Md5 = 6,
    /// XXH64, seed 0.
    XxHash64 = 7,
    /// XXH3 with 64 bits, seed 0.
    XxHash3 = 8,
    /// XXH3 with 128 bits, seed 0.
    XxHash128 = 9,
}

impl ChecksumAlgorithm {
    /// All algorithms, each at its [`Self::index`].
    pub const ALL: [Self; 10] = [
        Self::Crc32,
        Self::Crc32c,
        Self::Crc64Nvme,
        Self::Sha1,
        Self::Sha256,
        Self::Sha512,
        Self::Md5,
        Self::XxHash64,
        Self::XxHash3,
        Self::XxHash128,
    ];

    /// The name in S3's API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
            Self::Sha512 => "SHA512",
            Self::Md5 => "MD5",
            Self::XxHash64 => "XXHASH64",
            Self::XxHash3 => "XXHASH3",
            Self::XxHash128 => "XXHASH128",
        }
    }

    /// Length of the raw digest in bytes.
    #[must_use]
    pub const fn digest_len(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme | Self::XxHash64 | Self::XxHash3 => 8,
            Self::Md5 | Self::XxHash128 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha512 => 64,
        }
    }

    /// The number that stands for it on disk.
    #[must_use]
    pub const fn index(self) -> u8 {
        self as u8
    }

    /// The algorithm that a number on disk stands for.
    #[must_use]
    pub fn from_index(index: u8) -> Option<Self> {
        Self::ALL.get(usize::from(index)).copied()
    }
}

impl fmt::Display for ChecksumAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for ChecksumAlgorithm {
    type Err = ErasureError;

    /// Reads the name that [`ChecksumAlgorithm::as_str`] gives, in upper or lower case.
    fn from_str(text: &str) -> Result<Self, ErasureError> {
        Self::ALL
            .into_iter()
            .find(|algorithm| algorithm.as_str().eq_ignore_ascii_case(text))
            .ok_or_else(|| ErasureError::UnknownAlgorithm(text.to_owned()))
    }
}

/// The value of a checksum: its algorithm and its raw bytes (CRCs and XXH sums big-endian). Its text is base64, as in S3's headers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum {
    algorithm: ChecksumAlgorithm,
    /// The digest, then zeros.
    bytes: [u8; DIGEST_BYTES_MAX],
}

impl Checksum {
    /// From raw bytes.
    ///
    /// # Errors
    /// When their number is not that of the algorithm's digest.
    pub fn new(algorithm: ChecksumAlgorithm, digest: &[u8]) -> Result<Self, ErasureError> {
        if digest.len() != algorithm.digest_len() {
            return Err(ErasureError::InvalidChecksum { algorithm });
        }
        let mut bytes = [0; DIGEST_BYTES_MAX];
        bytes[..digest.len()].copy_from_slice(digest);
        Ok(Self { algorithm, bytes })
    }

    /// From the base64 text of a header or trailer.
    ///
    /// # Errors
    /// When the text is no padded standard base64, or has not the length of the algorithm's digest.
    pub fn from_base64(algorithm: ChecksumAlgorithm, text: &str) -> Result<Self, ErasureError> {
        // A little more than the longest digest, so that the decoder's estimate of its output fits.
        let mut digest = [0; DIGEST_BYTES_MAX + 4];
        match BASE64_STANDARD.decode_slice(text, &mut digest) {
            Ok(len) => Self::new(algorithm, &digest[..len]),
            Err(_) => Err(ErasureError::InvalidChecksum { algorithm }),
        }
    }

    /// The value of a CRC or a sum of at most 64 bits, in the low bits of `crc`.
    pub(crate) fn from_crc(algorithm: ChecksumAlgorithm, crc: u64) -> Self {
        let big_endian = crc.to_be_bytes();
        let len = algorithm.digest_len().min(big_endian.len());
        let mut bytes = [0; DIGEST_BYTES_MAX];
        bytes[..len].copy_from_slice(&big_endian[big_endian.len() - len..]);
        Self { algorithm, bytes }
    }

    /// The algorithm.
    #[must_use]
    pub fn algorithm(&self) -> ChecksumAlgorithm {
        self.algorithm
    }

    /// The raw digest.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.algorithm.digest_len()]
    }

    /// The digest in base64.
    #[must_use]
    pub fn to_base64(&self) -> String {
        BASE64_STANDARD.encode(self.as_bytes())
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_base64())
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.algorithm, self.to_base64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_round_trip() {
        for algorithm in ChecksumAlgorithm::ALL {
            assert_eq!(algorithm.as_str().parse(), Ok(algorithm));
            assert_eq!(algorithm.as_str().to_lowercase().parse(), Ok(algorithm));
            assert_eq!(ChecksumAlgorithm::from_index(algorithm.index()), Some(algorithm));
        }
        assert_eq!(ChecksumAlgorithm::from_index(10), None);
        for text in ["", "XXH3", "CRC-32", "CRC32 ", "SHA-256"] {
            assert!(text.parse::<ChecksumAlgorithm>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn base64_round_trips_and_refuses_the_rest() {
        for algorithm in ChecksumAlgorithm::ALL {
            let digest: Vec<u8> = (150..).take(algorithm.digest_len()).collect();
            let checksum = Checksum::new(algorithm, &digest).unwrap();
            assert_eq!(checksum.as_bytes(), digest);
            assert_eq!(Checksum::from_base64(algorithm, &checksum.to_string()), Ok(checksum));
            assert!(Checksum::new(algorithm, &digest[1..]).is_err());
            let unpadded = checksum.to_base64().replace('=', "");
            for text in ["", "=", "AA==", "not base64!", &unpadded, &"A".repeat(48), &"A".repeat(4000)] {
                let decoded = Checksum::from_base64(algorithm, text);
                assert_eq!(decoded, Err(ErasureError::InvalidChecksum { algorithm }), "{algorithm} {text:?}");
            }
        }
    }
}
