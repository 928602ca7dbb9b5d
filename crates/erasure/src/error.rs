//! What the callers of this crate can get wrong.

use crate::ChecksumAlgorithm;

/// Why a call was refused. No output was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ErasureError {
    /// Another number of slices than the geometry asks for.
    #[error("{given} {role} shards given, the geometry has {expected}")]
    ShardCount {
        /// "data" or "parity".
        role: &'static str,
        /// How many were given.
        given: usize,
        /// How many were asked for.
        expected: usize,
    },
    /// The slices of one call differ in length.
    #[error("a shard of {given} bytes among shards of {expected} bytes")]
    ShardLength {
        /// The odd length in bytes.
        given: usize,
        /// The length of the first shard in bytes.
        expected: usize,
    },
    /// A shard index that the geometry does not have.
    #[error("there is no shard {index} in a geometry of {shards} shards")]
    ShardIndex {
        /// The index.
        index: usize,
        /// Number of shards, `k + m`.
        shards: usize,
    },
    /// One shard is named twice, or both as present and as wanted.
    #[error("shard {index} is named twice")]
    ShardRepeated {
        /// The index.
        index: usize,
    },
    /// More shards are lost than the geometry has parity.
    #[error("{given} shards cannot rebuild the others: {needed} are needed")]
    TooFewShards {
        /// How many are present.
        given: usize,
        /// How many are needed, `k`.
        needed: usize,
    },
    /// A text that names no checksum algorithm.
    #[error("{0:?} is no checksum algorithm: use one of those of S3, such as CRC32C, CRC64NVME or SHA256")]
    UnknownAlgorithm(String),
    /// A checksum that is no base64 text, or has another length than its algorithm gives.
    #[error("a {algorithm} checksum is {} bytes in base64", algorithm.digest_len())]
    InvalidChecksum {
        /// The algorithm it was given for.
        algorithm: ChecksumAlgorithm,
    },
}
