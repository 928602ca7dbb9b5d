//! All digests of a body in one go.

use std::hash::Hasher;

use crc_fast::CrcAlgorithm;
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};
use twox_hash::{XxHash3_64, XxHash3_128, XxHash64};

use crate::{Checksum, ChecksumAlgorithm, Crc64, Md5};

/// Bytes that every digest takes before the next ones come: they stay in the second cache meanwhile.
const BLOCK_BYTES: usize = 32 * 1024;

/// Digests of bytes that come in pieces: MD5 if wanted, and any set of checksums.
#[derive(Clone)]
pub struct Digester {
    md5: Option<Md5>,
    running: Vec<Running>,
}

/// What a [`Digester`] found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Digests {
    /// MD5, if it was wanted.
    pub md5: Option<[u8; 16]>,
    /// The checksums in the order in which they were asked for, each once.
    pub checksums: Vec<Checksum>,
}

impl Digester {
    /// Wants MD5 or not, and these checksums; an algorithm named twice counts once.
    #[must_use]
    pub fn new(md5: bool, algorithms: &[ChecksumAlgorithm]) -> Self {
        let mut running = Vec::with_capacity(algorithms.len());
        for (position, &algorithm) in algorithms.iter().enumerate() {
            if !algorithms[..position].contains(&algorithm) {
                running.push(Running::new(algorithm));
            }
        }
        Self { md5: md5.then(Md5::default), running }
    }

    /// Appends `bytes`.
    pub fn update(&mut self, bytes: &[u8]) {
        for block in bytes.chunks(BLOCK_BYTES) {
            if let Some(md5) = &mut self.md5 {
                md5.update(block);
            }
            self.running.iter_mut().for_each(|running| running.update(block));
        }
    }

    /// The digests of all bytes.
    #[must_use]
    pub fn finish(self) -> Digests {
        Digests { md5: self.md5.map(Md5::finish), checksums: self.running.into_iter().map(Running::finish).collect() }
    }
}

impl Digests {
    /// The checksum of this algorithm, if it was wanted.
    #[must_use]
    pub fn checksum(&self, algorithm: ChecksumAlgorithm) -> Option<Checksum> {
        self.checksums.iter().find(|checksum| checksum.algorithm() == algorithm).copied()
    }
}

/// One checksum under way.
#[derive(Clone)]
enum Running {
    Crc32(ChecksumAlgorithm, Box<crc_fast::Digest>),
    Crc64(Crc64),
    Sha1(Sha1),
    Sha256(Sha256),
    Sha512(Box<Sha512>),
    Md5(Md5),
    XxHash64(XxHash64),
    XxHash3(Box<XxHash3_64>),
    XxHash128(Box<XxHash3_128>),
}

impl Running {
    fn new(algorithm: ChecksumAlgorithm) -> Self {
        let crc32 = |kind| Self::Crc32(algorithm, Box::new(crc_fast::Digest::new(kind)));
        match algorithm {
            ChecksumAlgorithm::Crc32 => crc32(CrcAlgorithm::Crc32IsoHdlc),
            ChecksumAlgorithm::Crc32c => crc32(CrcAlgorithm::Crc32Iscsi),
            ChecksumAlgorithm::Crc64Nvme => Self::Crc64(Crc64::new()),
            ChecksumAlgorithm::Sha1 => Self::Sha1(Sha1::new()),
            ChecksumAlgorithm::Sha256 => Self::Sha256(Sha256::new()),
            ChecksumAlgorithm::Sha512 => Self::Sha512(Box::default()),
            ChecksumAlgorithm::Md5 => Self::Md5(Md5::default()),
            ChecksumAlgorithm::XxHash64 => Self::XxHash64(XxHash64::with_seed(0)),
            ChecksumAlgorithm::XxHash3 => Self::XxHash3(Box::new(XxHash3_64::new())),
            ChecksumAlgorithm::XxHash128 => Self::XxHash128(Box::new(XxHash3_128::new())),
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Crc32(_, crc) => crc.update(bytes),
            Self::Crc64(crc) => crc.update(bytes),
            Self::Sha1(sha1) => sha1.update(bytes),
            Self::Sha256(sha256) => sha256.update(bytes),
            Self::Sha512(sha512) => sha512.update(bytes),
            Self::Md5(md5) => md5.update(bytes),
            Self::XxHash64(sum) => sum.write(bytes),
            Self::XxHash3(sum) => sum.write(bytes),
            Self::XxHash128(sum) => sum.write(bytes),
        }
    }

    fn finish(self) -> Checksum {
        let of = |algorithm, digest: &[u8]| Checksum::new(algorithm, digest).expect("a digest has its length");
        match self {
            Self::Crc32(algorithm, crc) => Checksum::from_crc(algorithm, crc.finalize()),
            Self::Crc64(crc) => Checksum::from_crc(ChecksumAlgorithm::Crc64Nvme, crc.finish()),
            Self::Sha1(sha1) => of(ChecksumAlgorithm::Sha1, &sha1.finalize()),
            Self::Sha256(sha256) => of(ChecksumAlgorithm::Sha256, &sha256.finalize()),
            Self::Sha512(sha512) => of(ChecksumAlgorithm::Sha512, &sha512.finalize()),
            Self::Md5(md5) => of(ChecksumAlgorithm::Md5, &md5.finish()),
            Self::XxHash64(sum) => Checksum::from_crc(ChecksumAlgorithm::XxHash64, sum.finish()),
            Self::XxHash3(sum) => Checksum::from_crc(ChecksumAlgorithm::XxHash3, sum.finish()),
            Self::XxHash128(sum) => of(ChecksumAlgorithm::XxHash128, &sum.finish_128().to_be_bytes()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        let mut digester = Digester::new(true, &ChecksumAlgorithm::ALL);
        digester.update(b"1234");
        digester.update(b"");
        digester.update(b"56789");
        let digests = digester.finish();
        assert_eq!(hex::encode(digests.md5.unwrap()), "25f9e794323b453885f5181f1b624d0b");
        for (algorithm, expected) in [
            (ChecksumAlgorithm::Crc32, "cbf43926"),
            (ChecksumAlgorithm::Crc32c, "e3069283"),
            (ChecksumAlgorithm::Crc64Nvme, "ae8b14860a799888"),
            (ChecksumAlgorithm::Sha1, "f7c3bc1d808e04732adf679965ccc34ca7ae3441"),
            (ChecksumAlgorithm::Sha256, "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225"),
            (
                ChecksumAlgorithm::Sha512,
                "d9e6762dd1c8eaf6d61b3c6192fc408d4d6d5f1176d0c29169bc24e71c3f274ad27fcd5811b313d681f7e55ec02d73d499c95455b6b5bb503acf574fba8ffe85",
            ),
            (ChecksumAlgorithm::Md5, "25f9e794323b453885f5181f1b624d0b"),
            // Of the reference implementation (xxhsum 0.8).
            (ChecksumAlgorithm::XxHash64, "8cb841db40e6ae83"),
            (ChecksumAlgorithm::XxHash3, "72dcb18b67a17dff"),
            (ChecksumAlgorithm::XxHash128, "33119477ede5dcd5e9716427681d5860"),
        ] {
            assert_eq!(hex::encode(digests.checksum(algorithm).unwrap().as_bytes()), expected, "{algorithm}");
        }
    }

    #[test]
    fn gives_what_was_asked_for_in_order_and_once() {
        let (crc, sha) = (ChecksumAlgorithm::Crc32, ChecksumAlgorithm::Sha256);
        let digests = Digester::new(false, &[sha, crc, sha]).finish();
        assert_eq!(digests.md5, None);
        assert_eq!(digests.checksums.iter().map(Checksum::algorithm).collect::<Vec<_>>(), [sha, crc]);
        assert_eq!(digests.checksum(ChecksumAlgorithm::Sha1), None);
        assert_eq!(Digester::new(false, &[]).finish(), Digests::default());
    }

    #[test]
    fn long_updates_are_as_many_short_ones() {
        let bytes: Vec<u8> = (0..3 * BLOCK_BYTES + 17).map(|i| ((i * 31) >> 3) as u8).collect();
        let mut at_once = Digester::new(true, &ChecksumAlgorithm::ALL);
        at_once.update(&bytes);
        let mut in_pieces = Digester::new(true, &ChecksumAlgorithm::ALL);
        bytes.chunks(777).for_each(|piece| in_pieces.update(piece));
        assert_eq!(at_once.finish(), in_pieces.finish());
    }
}
