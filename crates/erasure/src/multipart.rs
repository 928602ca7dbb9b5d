//! The checksum of a multipart object from those of its parts.
//!
//! Source: AWS, "Checking object integrity", "Using full object and composite checksums for multipart uploads".

use crate::{
    Checksum, ChecksumAlgorithm, Digester,
    ring::{CRC32, CRC32C, CRC64_NVME, Ring},
};

/// The checksum of the whole object from those of its parts with their lengths in bytes, in order.
///
/// None for all that are no CRCs, which do not combine, and when a part's checksum is of another algorithm.
#[must_use]
pub fn combine_full_object(algorithm: ChecksumAlgorithm, parts: &[(Checksum, u64)]) -> Option<Checksum> {
    let ring = ring(algorithm)?;
    let mut whole = 0;
    // Parts are mostly of one length: its factor is worth keeping.
    let mut kept = None;
    for (part, len) in parts {
        if part.algorithm() != algorithm {
            return None;
        }
        let shift = match kept {
            Some((kept_len, shift)) if kept_len == *len => shift,
            _ => ring.shift(*len),
        };
        kept = Some((*len, shift));
        let crc = part.as_bytes().iter().fold(0, |crc, &byte| crc << 8 | u64::from(byte));
        whole = ring.combine(whole, crc, shift);
    }
    Some(Checksum::from_crc(algorithm, whole))
}

/// The checksum of checksums: that of the raw part checksums, concatenated in order. S3 writes it as its base64, a
/// hyphen and the number of parts.
///
/// S3 defines it for all but CRC64NVME; that it may not be asked for with that one, and that all parts are of `algorithm`, is
/// for the caller to check.
#[must_use]
pub fn composite(algorithm: ChecksumAlgorithm, parts: &[Checksum]) -> Checksum {
    let mut digester = Digester::new(false, &[algorithm]);
    parts.iter().for_each(|part| digester.update(part.as_bytes()));
    digester.finish().checksum(algorithm).expect("it was asked for")
}

fn ring(algorithm: ChecksumAlgorithm) -> Option<&'static Ring> {
    match algorithm {
        ChecksumAlgorithm::Crc32 => Some(&CRC32),
        ChecksumAlgorithm::Crc32c => Some(&CRC32C),
        ChecksumAlgorithm::Crc64Nvme => Some(&CRC64_NVME),
        ChecksumAlgorithm::Sha1
        | ChecksumAlgorithm::Sha256
        | ChecksumAlgorithm::Sha512
        | ChecksumAlgorithm::Md5
        | ChecksumAlgorithm::XxHash64
        | ChecksumAlgorithm::XxHash3
        | ChecksumAlgorithm::XxHash128 => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checksum(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> Checksum {
        let mut digester = Digester::new(false, &[algorithm]);
        digester.update(bytes);
        digester.finish().checksums[0]
    }

    #[test]
    fn parts_combine_to_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..10_000u32).map(|i| ((i * i) >> 5) as u8).collect();
        for algorithm in ChecksumAlgorithm::ALL {
            for part_bytes in [1, 100, 999, 5000, 10_000] {
                let parts: Vec<_> =
                    bytes.chunks(part_bytes).map(|part| (checksum(algorithm, part), part.len() as u64)).collect();
                let combines = ChecksumAlgorithm::ALL[..3].contains(&algorithm);
                let expected = combines.then(|| checksum(algorithm, &bytes));
                assert_eq!(combine_full_object(algorithm, &parts), expected, "{algorithm} {part_bytes}");
            }
        }
    }

    #[test]
    fn parts_of_another_algorithm_do_not_combine() {
        let parts = [(checksum(ChecksumAlgorithm::Crc32, b"a"), 1)];
        assert_eq!(combine_full_object(ChecksumAlgorithm::Crc32c, &parts), None);
    }

    #[test]
    fn nothing_combines_to_the_checksum_of_nothing() {
        for algorithm in &ChecksumAlgorithm::ALL[..3] {
            assert_eq!(combine_full_object(*algorithm, &[]), Some(checksum(*algorithm, b"")));
        }
    }

    #[test]
    fn composite_is_the_checksum_of_the_raw_checksums() {
        for algorithm in ChecksumAlgorithm::ALL {
            let parts = [checksum(algorithm, b"first part"), checksum(algorithm, b"second part")];
            let raw = [parts[0].as_bytes(), parts[1].as_bytes()].concat();
            assert_eq!(composite(algorithm, &parts), checksum(algorithm, &raw), "{algorithm}");
        }
    }
}
